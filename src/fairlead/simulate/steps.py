"""Simulate step by step, with the live scheduler's steps at each moment, and sample shares meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.engines.simulated import SimulatedCluster
from fairlead.engines.step import Request, Scheduler, with_graces
from fairlead.model.specs import ROOT, After, Job, Queue, parent_of, settings_for, with_ancestors
from fairlead.scheduler import admission, facts
from fairlead.scheduler.decide import next_step
from fairlead.scheduler.entitlements import TreeDivision, bounds
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.kernel.scheduling import below_guarantee
from fairlead.scheduler.queue_tree import amounts_of, weights
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, SUCCEEDED, WAITING
from fairlead.scheduler.tables import NONE, UNLIMITED
from fairlead.simulate.offers import Offers
from fairlead.simulate.workload import F64, I64, Workload

Watch = Callable[[State, list[Fact]], None]


class Recorder:
    """Counts decisions, and passes facts on to `record`; with `starts` it notes each task's first placement there.

    `idled_before` is what promises kept idle before the measured time.
    """

    idled_before: F64 | float = 0.0

    def __init__(
        self, record: Callable[[Sequence[Fact]], None] | None, state: State, cluster: SimulatedCluster, starts: F64 | None = None
    ) -> None:
        self.revoked = self.decisions = 0
        self.lost = 0.0
        self._state, self._cluster = state, cluster
        self.happened: list[Fact] = []
        self._record, self._starts = record, starts
        self.wants_facts = record is not None or starts is not None

    def __call__(self, found: Sequence[Fact]) -> None:
        self.happened += found
        for fact in found:
            if isinstance(fact, facts.TasksPlaced):
                self.decisions += len(fact.job)
                if self._starts is not None:
                    really = self._cluster.really(fact.attempts)
                    tasks = self._cluster.truth.task[really.job - 1] + really.index
                    self._starts[tasks] = np.fmin(self._starts[tasks], fact.at)
            elif isinstance(fact, facts.TasksRevoked):
                self.revoked += len(fact.job)
                self.lost += self._lost(fact)
        if self._record is not None:
            self._record(found)

    def _lost(self, fact: facts.TasksRevoked) -> float:
        """Return the work that preemption loses, up to the end of the grace period: seconds times dominant shares."""
        state, truth, lost = self._state, self._cluster.truth, 0.0
        for attempts, grace in with_graces(state, fact.attempts):
            began = state.tasks.started_at[state.current_tasks(attempts)]
            really = self._cluster.really(attempts)
            row = really.job - 1
            ends = began + truth.duration[truth.first[row] + really.index % truth.several[row]]
            share = (truth.demand[row] / np.maximum(1, truth.capacity.sum(axis=0))).max(axis=1, initial=0.0)
            lost += float(((fact.at + grace - began) * share)[ends > fact.at + grace].sum())
        return lost


@dataclass(frozen=True)
class Simulation:
    """The parts of a simulation: `workload` is the truth, `seen` what the scheduler sees of it."""

    seen: Workload
    workload: Workload
    scheduler: Scheduler
    cluster: SimulatedCluster
    refused: NDArray[np.bool_]
    sampler: "Sampler"
    recorder: Recorder
    watch: Watch | None
    on_progress: Callable[[], None]
    offers: Offers | None = None


def by_steps(s: Simulation) -> int:
    """Run a simulation moment by moment; return the number of moments."""
    cluster, scheduler, submit = s.cluster, s.scheduler, s.workload.submit
    changes, changed = s.workload.changes, 0
    upcoming = moments = 0
    aside = Aside(s)
    happened = cluster.now
    while True:
        now = min(submit[upcoming] if upcoming < len(submit) else np.inf, cluster.next_event())
        if changed < len(changes) and (now < np.inf or cluster.truth.left.any()):
            now = min(now, changes[changed].at)
        if s.offers is not None and (now < np.inf or not s.offers.is_over(cluster.now)):
            now = min(now, s.offers.next_event())
        if now == np.inf:
            return moments
        now, happened = next_step(scheduler.state, now, cluster.now, happened)
        s.sampler.advance(now)
        if s.offers is not None:
            s.offers.advance(scheduler.state, float(now))
        cluster.now = float(now)
        moments += 1
        requests: list[Request] = []
        late: list[Request] = []
        while changed < len(changes) and changes[changed].at <= now:
            _change(s, changes[changed], requests, late, aside)
            changed += 1
        while upcoming < len(submit) and submit[upcoming] == now:
            requests += [] if s.refused[upcoming] else [partial(_submit, s, upcoming, aside)]
            upcoming += 1
        requests += late
        if s.offers is not None:
            requests += s.offers.answers(float(now))
        _all_steps(s, requests, float(now))
        aside.settle(s.recorder.happened)
        if s.watch is not None:
            s.watch(scheduler.state, s.recorder.happened)
        s.recorder.happened.clear()
        if moments % 200 == 0:
            s.on_progress()


def _all_steps(s: Simulation, requests: Sequence[Request], now: float) -> None:
    """Do all steps of one moment; frameworks react to them, which may take further steps."""
    heard = 0
    while True:
        s.scheduler.step(requests)
        while s.scheduler.more or s.cluster.next_event() == now:
            s.scheduler.step()
        if s.offers is None:
            return
        requests = s.offers.on_facts(s.recorder.happened[heard:], s.scheduler.state, now)
        heard = len(s.recorder.happened)
        if not requests:
            return


class Aside:
    """Jobs whose waiting tasks do not count as pending: held ones, and those that come after others.

    before : by job, those that it comes after and that have not ended
    held : jobs
    stopping : running tasks that were cancelled
    """

    def __init__(self, s: Simulation) -> None:
        self._s = s
        self.before: dict[int, list[int]] = {}
        self.held: set[int] = set()
        self.stopping: set[tuple[int, int]] = set()
        self._tasks: dict[int, int] = {}

    def put(self, job: int, tasks: int) -> None:
        """Count a job's waiting tasks as pending no longer."""
        if job not in self._tasks:
            self._tasks[job] = tasks
            self._s.cluster.hold_back(job, tasks)

    def take(self, job: int) -> None:
        """Count them again."""
        if job in self._tasks:
            self._s.cluster.hold_back(job, self._tasks.pop(job), back=False)

    def cancel(self, state: State, job: int, number: int, indices: Sequence[int] | None) -> list[int]:
        """Withdraw waiting tasks of a job, those with these indices or all; return their indices."""
        waiting = np.flatnonzero(_statuses(state, number) == WAITING)
        gone: list[int] = waiting[np.isin(waiting, waiting if indices is None else indices)].tolist()
        self.take(job)
        self._s.cluster.withdraw(job, len(gone))
        if job in self.before or job in self.held:
            self.put(job, len(waiting) - len(gone))
        return gone

    def settle(self, happened: Sequence[Fact]) -> None:
        """Withdraw cancelled tasks that have ended, and count jobs again that are not held and whose dependencies have ended."""
        for fact in happened if self.stopping else ():
            if isinstance(fact, facts.TasksFinished):
                for job, index, outcome in zip(fact.job.tolist(), fact.index.tolist(), fact.outcome.tolist(), strict=True):
                    if (job, index) in self.stopping:
                        self.stopping.remove((job, index))
                        self._s.cluster.withdraw(job - 1, outcome != facts.Outcome.EXITED)
        for job, before in list(self.before.items()):
            self.before[job] = _not_over(self._s, before)
            if not self.before[job]:
                del self.before[job]
        for job in list(self._tasks) if self._tasks else ():
            if job not in self.before and job not in self.held:
                self.take(job)


def _submit(s: Simulation, job: int, aside: Aside, state: State, now: float) -> list[Fact]:
    s.cluster.submit(job, int(s.workload.tasks[job]))
    before = _not_over(s, s.workload.after.get(job, ()))
    if before:
        aside.before[job] = before
        aside.put(job, int(s.workload.tasks[job]))
    if s.offers is not None and s.offers.launches(job):
        return s.offers.submit(state, job, now)
    number = job + 1 if s.offers is None else s.offers.number(state, job)
    after = [After(_number(s, other), "end") for other in before]
    return [facts.JobSubmitted(at=now, id=number, job=msgspec.structs.replace(job_of(s.seen, job), after=after))]


def _number(s: Simulation, job: int) -> int:
    return job + 1 if s.offers is None else s.offers.cluster.number_of[job]


def _not_over(s: Simulation, jobs: Sequence[int]) -> list[int]:
    return sorted({job for job in jobs if np.isnan(s.cluster.truth.ended[job])})


def _change(s: Simulation, fact: Fact, first: list[Request], last: list[Request], aside: Aside) -> None:
    """Have something of a workload's `changes` happen now; requests about jobs are to be made after submissions."""
    match fact:
        case facts.NodeJoined(node=node):
            s.cluster.join(node, np.array([node.capacity.get(r, 0) for r in s.workload.resources], np.int64))
        case facts.NodeLost(node=name):
            s.cluster.lose(name)
        case facts.JobCancelled() | facts.JobHeld() | facts.JobReleased() | facts.JobEdited():
            last.append(partial(_ask_about_job, fact, aside))
        case _:
            first.append(lambda state, now: [fact])
    s.sampler.configure(fact.queues if isinstance(fact, facts.Configured) else None)


def _ask_about_job(
    fact: facts.JobCancelled | facts.JobHeld | facts.JobReleased | facts.JobEdited, aside: Aside, state: State, now: float
) -> list[Fact]:
    """Ask for what the fact says, as people do; nothing happens where that is refused, as of a job that has ended."""
    job = fact.id - 1
    found: Fact | None
    try:
        match fact:
            case facts.JobCancelled():
                found = admission.cancel(state, fact.id, fact.indices, now)
                if found is not None:
                    aside.stopping.update(_running(state, fact.id, found.indices))
                    aside.cancel(state, job, fact.id, found.indices)
            case facts.JobHeld():
                found = admission.hold(state, fact.id, now)
                aside.held.add(job)
                aside.put(job, int(state.jobs.waiting[state.job_row(fact.id)]))
            case facts.JobReleased():
                found = admission.release(state, fact.id, now)
                aside.held.discard(job)
            case facts.JobEdited():
                found = admission.edit(state, fact.id, fact)
    except admission.Refused:
        return []
    return [found] if found is not None else []


def _statuses(state: State, number: int) -> NDArray[np.int8]:
    row = state.job_row(number)
    first = state.jobs.first[row]
    return state.tasks.status[first : first + state.jobs.tasks[row]]


def _running(state: State, number: int, indices: Sequence[int] | None) -> list[tuple[int, int]]:
    """Return the tasks of a job that hold resources, those with these indices or all: numbers and indices."""
    status = _statuses(state, number)
    running = np.flatnonzero((status >= PLACED) & (status < SUCCEEDED)).tolist()
    return [(number, index) for index in running if indices is None or index in indices]


def job_of(workload: Workload, j: int) -> Job:
    return next(jobs_of(workload, slice(j, j + 1)))


def jobs_of(w: Workload, rows: I64 | slice) -> Iterator[Job]:
    columns = (w.like, w.leaf, w.shape, w.tasks, w.priority, w.gang, w.time_limit)
    for like, leaf, shape, tasks, priority, gang, limit in zip(*(each[rows].tolist() for each in columns), strict=True):
        yield msgspec.structs.replace(
            w.templates[like], queue=w.leaves[leaf], demand=w.demands[shape], tasks=tasks, on=w.places[shape],
            priority=priority, gang=gang, time_limit=limit if limit < np.inf else None,
        )  # fmt: skip


EXACT_UP_TO = 2000
"""Number of tasks up to which every moment of a run is measured."""


class Sampler:
    """Samples what queues have and are entitled to at even moments: about `samples` in the `least` seconds of the run.

    It also integrates shortfalls over time: over every moment with few `tasks`, else each sample stands for the time to the
    next. What queues got is exact in any case. All begins at `since`, when `on_begin` is called.

    pause : the simulation may go up to this time without a sample
    every : seconds that a sample stands for; 0 where every moment is measured
    short : float64, shape (queues,): entitled less actual dominant share when sampled, times seconds
    missed : see :class:`fairlead.simulate.run.Run`
    state : the scheduler's state, from which unmet guarantees are read
    """

    state: State | None = None
    on_begin: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self, cluster: SimulatedCluster, workload: Workload, least: float, samples: int, tasks: int, since: float
    ) -> None:
        self._cluster, self._total, self._each = cluster, cluster.truth.total, tasks <= EXACT_UP_TO
        self._every, self._most = max(least / samples, 1.0), 10 * max(samples, 100)
        self._next = self._since = since
        self.pause = float(np.nextafter(since, -np.inf))  # what happens at `since` itself counts
        self._at_begin: tuple[F64, F64] | None = None
        self.missed, self.short = 0.0, np.zeros(len(workload.leaves))
        self._rows: list[tuple[float, F64, F64, F64, int]] = []
        self._queues, self._names, self._resources = workload.queues, workload.leaves, workload.resources
        self.configure()

    def configure(self, queues: list[Queue] | None = None) -> None:
        """Measure by this queue tree and the machines that are up from now on; None keeps the tree."""
        self._queues = self._queues if queues is None else queues
        self._tree = _Tree(self._queues, self._names, self._resources, self._total)

    @property
    def every(self) -> float:
        return 0.0 if self._each else self._every

    def advance(self, now: float) -> None:
        """Take all samples before `now`; nothing has changed since the last step."""
        row = None
        if self._at_begin is None and now >= self._since:
            self._at_begin = self._cluster.measured(self._since)
            self.on_begin()
        if self._each and now > self._since:
            row = self._measure()
            self._add_up(row, now - self._since)
            self._since = now
        while self._next < now:
            if len(self._rows) >= self._most:
                # The run lasts much longer than `least`: halve the resolution.
                self._rows = self._rows[::2]
                self._every *= 2
                self._next = self._rows[-1][0] + self._every
                continue
            row = row or self._measure()
            if not self._each:
                self._add_up(row, self._every)
            self._rows.append((self._next, *row))
            self._next += self._every
        self.pause = max(now, self._since) if self._each else self._next

    def _add_up(self, row: tuple[F64, F64, F64, int], seconds: float) -> None:
        _, shares, fair, _ = row
        # A queue of differing tasks may run all of them and still use less than its part.
        entitled = np.where(self._cluster.truth.waiting > 0, fair, np.minimum(fair, shares))
        self.short += (entitled - shares) * seconds
        self.missed += self._below() * seconds

    def _measure(self) -> tuple[F64, F64, F64, int]:
        cluster, total = self._cluster.truth, self._total
        there = np.where(total > 0, total, 1)
        used = np.asfortranarray(cluster.used)  # whose columns numpy reduces 20 times as fast as short rows
        shares = (used / there).max(axis=1)
        fair = np.zeros(len(shares))
        count = cluster.running + cluster.waiting
        rows = np.flatnonzero(count > 0)
        if len(rows):
            each = (cluster.used[rows] + cluster.waits[rows]) / count[rows, None]
            tasks = self._tree.divide(total.astype(np.float64), rows, each, count[rows])
            fair[rows] = (np.asfortranarray(each) * tasks[:, None] / there).max(axis=1)
        return used.sum(axis=0) / there, shares, fair, int(cluster.waiting.sum())

    def _below(self) -> int:
        """Count the queues below their guarantee."""
        state = self.state
        if state is None or not state.queues.guaranteed[: state.queues.n].any():
            return 0
        return int(below_guarantee(state.order.ready(state, 1)))

    def columns(self, origin: float) -> dict[str, Any]:
        """Return the samples as arrays, by seconds since `origin`."""
        at, utilisation, shares, fair, waiting = zip(*self._rows, strict=True) if self._rows else ((),) * 5
        resources, queues = len(self._total), len(self._tree.leaves)
        at_end = self._cluster.measured(self._cluster.now)
        got, used = (end - begin for end, begin in zip(at_end, self._at_begin or at_end, strict=True))
        return {
            "got": got, "used": used, "short": self.short, "every": self.every, "missed": self.missed,
            "at": np.array(at, float) - origin, "utilisation": np.array(utilisation, float).reshape(len(at), resources),
            "shares": np.array(shares, float).reshape(len(at), queues),
            "fair": np.array(fair, float).reshape(len(at), queues), "waiting": np.array(waiting, np.int64),
        }  # fmt: skip


class _Tree:
    """The queue tree of a workload with its declared settings; `leaves` are the rows of its queues."""

    def __init__(self, queues: list[Queue], names: list[str], resources: list[str], total: I64) -> None:
        declared = {queue.name: queue for queue in queues}
        paths = sorted(with_ancestors(names))
        row = {path: k for k, path in enumerate(paths)}
        self.leaves = np.array([row[name] for name in names], np.int64)
        self._parent = np.array([row[parent_of(path)] if path else NONE for path in paths])
        none = Queue(ROOT)
        by_path = [settings_for(path, declared) or none for path in paths]
        specs = list({id(spec): spec for spec in by_path}.values())
        number = {id(spec): k for k, spec in enumerate(specs)}
        which = np.array([number[id(spec)] for spec in by_path], np.int64)
        self._weight = np.array([weights(spec, resources) for spec in specs])[which]
        granted = [amounts_of(s.guarantee, s.guarantee_percent, resources, total, 0) for s in specs]
        most = [amounts_of(s.limit, s.limit_percent, resources, total, UNLIMITED) for s in specs]
        self._guarantee, self._limit = np.array(granted, float)[which], bounds(np.array(most))[which]
        self._max_tasks = np.array([np.inf if spec.max_tasks is None else spec.max_tasks for spec in specs])[which]
        self._division: tuple[I64, TreeDivision] | None = None

    def divide(self, total: F64, rows: I64, each: F64, most: I64) -> F64:
        """Return the number of tasks that DRF gives these leaves of the total."""
        if self._division is None or not np.array_equal(rows, self._division[0]):  # rows rarely change
            declared = (self._weight, self._guarantee, self._limit, self._max_tasks)
            self._division = rows, TreeDivision(total, self._parent, *declared, self.leaves[rows])
        return self._division[1].divide(each, most)
