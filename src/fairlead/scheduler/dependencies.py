"""Dependencies between jobs, time limits of attempts, and jobs under the caps on users' jobs."""

import heapq
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from fairlead.model.specs import Job


class Dependencies(Struct, dict=True, forbid_unknown_fields=True):
    """Jobs that wait for others to end.

    Attributes
    ----------
    waits_for : dict of int to list of int
        By job, the unfinished jobs it depends on.
    followers : dict of int to list of int
        By job, the jobs that depend on it.
    doomed : list of int
        Jobs with a dependency that can no longer be met.
    """

    waits_for: dict[int, list[int]] = field(default_factory=dict)
    doomed: list[int] = field(default_factory=list)
    followers: dict[int, list[int]] = field(default_factory=dict)

    def copy(self) -> "Dependencies":
        waits_for, followers = (
            {job: list(others) for job, others in links.items()} for links in (self.waits_for, self.followers)
        )
        return Dependencies(waits_for, list(self.doomed), followers)

    def add(self, job: int, others: list[int]) -> None:
        """Make a job depend on others."""
        for other in dict.fromkeys(others):
            self.waits_for.setdefault(job, []).append(other)
            self.followers.setdefault(other, []).append(job)

    def ended(self, job: int, success: bool, specs: dict[int, Job]) -> list[int]:
        """Note the end of a job; returns the jobs that now wait for no other. Those whose dependency failed are doomed."""
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
    """Attempts by the end of their time limit; ended attempts are dropped once they come first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Attempt]] = []

    def add(self, at: float, attempt: Attempt) -> None:
        """Add the deadline of an attempt."""
        heapq.heappush(self._heap, (at, attempt))

    def clean(self, runs: Callable[[Attempt], bool]) -> None:
        """Drop leading attempts that no longer run."""
        while self._heap and not runs(self._heap[0][1]):
            heapq.heappop(self._heap)

    def over(self, now: float, runs: Callable[[Attempt], bool]) -> list[Attempt]:
        """Return the running attempts past their deadline, ordered by job."""
        if not self._heap or self._heap[0][0] > now:
            return []
        return sorted(attempt for at, attempt in self._heap if at <= now and runs(attempt))

    def copy(self) -> "Deadlines":
        found = Deadlines()
        found._heap = list(self._heap)
        return found

    def refill(self, entries: Iterable[tuple[float, Attempt]]) -> None:
        """Replace all entries."""
        self._heap = list(entries)
        heapq.heapify(self._heap)


class JobCaps(Struct):
    """Jobs of users under a cap, by user: those admitted (`inside`), and those that wait for admission (`waits`)."""

    inside: dict[str, set[int]] = field(default_factory=dict)
    waits: dict[str, set[int]] = field(default_factory=dict)

    def copy(self) -> "JobCaps":
        return JobCaps(*({who: set(jobs) for who, jobs in some.items()} for some in (self.inside, self.waits)))
