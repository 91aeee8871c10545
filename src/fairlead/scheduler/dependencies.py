"""Which jobs come after which, and which wait for what can no longer be."""

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
