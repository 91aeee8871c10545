"""What jobs wait for, and jobs under the caps on users' jobs."""

import heapq
from collections.abc import Collection, Mapping
from math import inf

from msgspec import Struct, field

from fairlead.model.specs import Job

WHOLE = -1
"""In place of a task's place: the whole job."""


class Dependencies(Struct, dict=True, forbid_unknown_fields=True):
    """What jobs, and single tasks of them, wait for besides room: other jobs, and times.

    waits_for : by job, the unfinished jobs it depends on
    followers : by job, the jobs that depend on it
    doomed : jobs with a dependency that can no longer be met
    begins : by job, the time before which none of its tasks starts
    lines : by owner and name, the singletons that have not ended, in order: only the first may start
    paired : by unfinished job, the jobs of which each task waits for the job's task of the same own index
    doomed_tasks : by job, the places of tasks whose counterpart did not succeed
    timers : a heap of what to start when: time, job, and the place of a task, or WHOLE for the job. Some may be void.
    """

    waits_for: dict[int, list[int]] = field(default_factory=dict)
    doomed: list[int] = field(default_factory=list)
    followers: dict[int, list[int]] = field(default_factory=dict)
    begins: dict[int, float] = field(default_factory=dict)
    lines: dict[str, list[int]] = field(default_factory=dict)
    paired: dict[int, list[int]] = field(default_factory=dict)
    doomed_tasks: dict[int, list[int]] = field(default_factory=dict)
    timers: list[tuple[float, int, int]] = field(default_factory=list)

    def add(self, number: int, job: Job, now: float) -> None:
        """Note what a new job waits for. It has the highest number, so it is the last of the followers of each."""
        for other, how in dict.fromkeys((after.job, after.how) for after in job.after):
            if how == "index":
                self.paired.setdefault(other, []).append(number)
            elif self.followers.setdefault(other, [])[-1:] != [number]:
                self.waits_for.setdefault(number, []).append(other)
                self.followers[other].append(number)
        if job.singleton:
            self.lines.setdefault(job.line, []).append(number)
        if job.begin is not None:
            self.begin(number, job.begin, now)

    def begin(self, job: int, at: float, now: float) -> None:
        """Let a job wait until a time, instead of an earlier or later one."""
        self.begins.pop(job, None)
        if at > now:
            self.wake(at, job)

    def wake(self, at: float, job: int, place: int = WHOLE) -> None:
        """Let a job wait until a time, or one task of it."""
        heapq.heappush(self.timers, (at, job, place))
        if place == WHOLE:
            self.begins[job] = at

    def next_timer(self) -> float:
        """Return the next time that something waits for."""
        return self.timers[0][0] if self.timers else inf

    def due(self, now: float) -> list[int]:
        """Return the jobs that wait for a time that has come, themselves or with a task."""
        return sorted({job for at, job, _ in self.timers if at <= now}) if self.next_timer() <= now else []

    def take_due(self, jobs: Collection[int], now: float) -> dict[int, list[int]]:
        """Drop what is due of some jobs; returns the places of the tasks that waited, by job."""
        found: dict[int, list[int]] = {job: [] for job in jobs}
        timers, self.timers = self.timers, []
        for at, job, place in timers:
            if at > now or job not in found:
                self.timers.append((at, job, place))
            elif place != WHOLE:
                found[job].append(place)
            elif self.begins.get(job) == at:
                del self.begins[job]
        heapq.heapify(self.timers)
        return found

    def behind(self, number: int, job: Job) -> list[int]:
        """Return the unfinished jobs that must end before a job starts; of its line, the one just before it."""
        line = self.lines.get(job.line, []) if job.singleton else []
        place = line.index(number) if number in line else 0
        return [*dict.fromkeys(self.waits_for.get(number, []) + (line[place - 1 : place] if place else []))]

    def paired_with(self, number: int) -> list[int]:
        """Return the unfinished jobs of which each task of a job waits for one."""
        return [other for other, others in self.paired.items() if number in others]

    def waits(self, number: int, job: Job) -> bool:
        """True if no task of a job may start yet."""
        first = self.lines.get(job.line, [number])[0] == number if job.singleton else True
        return number in self.waits_for or number in self.begins or not first

    def ended(self, job: int, success: bool, specs: Mapping[int, Job]) -> list[int]:
        """Note the end of a job; returns the jobs that may now start. Those whose dependency failed are doomed."""
        for other in self.waits_for.pop(job, ()):
            if other in self.followers:
                self.followers[other].remove(job)
        for other in self.paired_with(job):
            self.paired[other].remove(job)
        if job in self.doomed:
            self.doomed.remove(job)
        self.begins.pop(job, None)
        self.paired.pop(job, None)
        self.doomed_tasks.pop(job, None)
        free = []
        if specs[job].singleton and job in self.lines.get(line := specs[job].line, ()):
            self.lines[line].remove(job)
            free += self.lines[line][:1]
            if not self.lines[line]:
                del self.lines[line]
        for follower in self.followers.pop(job, []):
            wanted = {after.how for after in specs[follower].after if after.job == job}
            if wanted <= {"end", "start", "index", "success" if success else "failure"}:
                free += self._met(follower, job)
            else:
                self.doomed += [follower] if follower not in self.doomed else []
        return free

    def started(self, job: int, specs: Mapping[int, Job]) -> list[int]:
        """Note the start of a job; returns the jobs that may now start."""
        only = [f for f in self.followers[job] if {after.how for after in specs[f].after if after.job == job} == {"start"}]
        self.followers[job] = [follower for follower in self.followers[job] if follower not in only]
        return [free for follower in only for free in self._met(follower, job)]

    def _met(self, follower: int, job: int) -> list[int]:
        """Drop a dependency that is met; returns the follower if it was the last one."""
        self.waits_for[follower].remove(job)
        if self.waits_for[follower]:
            return []
        del self.waits_for[follower]
        return [follower]


class JobCaps(Struct):
    """Jobs of users under a cap, by user: those admitted (`inside`), and those that wait for admission (`waits`)."""

    inside: dict[str, set[int]] = field(default_factory=dict)
    waits: dict[str, set[int]] = field(default_factory=dict)
