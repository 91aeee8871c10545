"""Which jobs come after which, and which wait for what can no longer be."""

import heapq
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from fairlead.model.specs import Job


class Dependencies(Struct, dict=True, forbid_unknown_fields=True):
    """Jobs that wait for others to end.

    Attributes
    ----------
    waits_for : dict of int to list of int
        By job: the jobs before it that have not ended as they should.
    followers : dict of int to list of int
        The other way round.
    doomed : list of int
        Jobs that wait for what can no longer be.
    """

    waits_for: dict[int, list[int]] = field(default_factory=dict)
    doomed: list[int] = field(default_factory=list)
    followers: dict[int, list[int]] = field(default_factory=dict)

    def copy(self) -> "Dependencies":
        """Another that knows the same."""
        waits_for, followers = (
            {job: list(others) for job, others in links.items()} for links in (self.waits_for, self.followers)
        )
        return Dependencies(waits_for, list(self.doomed), followers)

    def add(self, job: int, others: list[int]) -> None:
        """A job comes after others."""
        for other in dict.fromkeys(others):
            self.waits_for.setdefault(job, []).append(other)
            self.followers.setdefault(other, []).append(job)

    def ended(self, job: int, success: bool, specs: dict[int, Job]) -> list[int]:
        """A job has ended: those after it that wait for nothing else now. Others never will, and are doomed."""
        for other in self.waits_for.pop(job, ()):
            if other in self.followers:
                self.followers[other].remove(job)
        if job in self.doomed:
            self.doomed.remove(job)
        free = []
        for follower in self.followers.pop(job, []):
            wanted = {after.how for after in specs[follower].after if after.job == job}
            if wanted <= {"end", "success" if success else "failure"}:
                self.waits_for[follower].remove(job)
                if not self.waits_for[follower]:
                    del self.waits_for[follower]
                    free.append(follower)
            else:
                self.doomed += [follower] if follower not in self.doomed else []
        return free


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


class JobCaps(Struct):
    """The numbers of the jobs of people who are bounded, by the person's name: who is inside, and who waits to be let in."""

    inside: dict[str, set[int]] = field(default_factory=dict)
    waits: dict[str, set[int]] = field(default_factory=dict)

    def copy(self) -> "JobCaps":
        """Another that knows the same."""
        return JobCaps(*({who: set(jobs) for who, jobs in some.items()} for some in (self.inside, self.waits)))
