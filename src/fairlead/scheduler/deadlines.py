"""When tasks with a time limit have run for as long as they may."""

import heapq
from collections.abc import Callable, Iterable

Attempt = tuple[int, int, int]
"""Job, index, number."""


class Deadlines:
    """Attempts by the moment at which their time is over; those that ended before are let go of when they come first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Attempt]] = []

    def add(self, at: float, attempt: Attempt) -> None:
        """An attempt may run until then."""
        heapq.heappush(self._heap, (at, attempt))

    def clean(self, runs: Callable[[Attempt], bool]) -> None:
        """Let go of the first ones that do not run any more."""
        while self._heap and not runs(self._heap[0][1]):
            heapq.heappop(self._heap)

    def over(self, now: float, runs: Callable[[Attempt], bool]) -> list[Attempt]:
        """The attempts that run and whose time is over, in the order of their jobs."""
        if not self._heap or self._heap[0][0] > now:
            return []
        return sorted(attempt for at, attempt in self._heap if at <= now and runs(attempt))

    def copy(self) -> "Deadlines":
        """Another with the same entries."""
        found = Deadlines()
        found._heap = list(self._heap)
        return found

    def refill(self, entries: Iterable[tuple[float, Attempt]]) -> None:
        """Have these and no others."""
        self._heap = list(entries)
        heapq.heapify(self._heap)
