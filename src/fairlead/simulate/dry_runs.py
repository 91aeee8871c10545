"""Dry runs: possible continuations of a state, with durations and arrivals drawn from past ones.

All runs of a state share a :class:`DryRun`: its jobs that have not ended, with their running and then their waiting tasks.
A :class:`Run` is a copy that :func:`fairlead.simulate.kernel.advance.advance` moves through time. Job row j has number j + 1
and is job j of the simulated cluster, so neither has rows for jobs that ended long ago.

Simplifications: no node is lost, drained or added, and nobody cancels. Dependencies start when their jobs end, unless they
wait for a failure; times to begin and retry delays come due. Under a policy that only divides, entitlements stay as they are
now. Forecasts in a run do not use the jobs' own duration histograms.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead.engines.kernel import simulated
from fairlead.engines.kernel.simulated import Runs, Truth
from fairlead.engines.step import graces_of
from fairlead.scheduler.decide import MOST_PLACEMENTS
from fairlead.scheduler.dependencies import WHOLE
from fairlead.scheduler.entitlements import write_entitled
from fairlead.scheduler.growth import NEW_TASK, ensure_group, group_of, renumbering
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import MAX_RESERVATIONS
from fairlead.scheduler.kernel.scheduling import View, link_tasks
from fairlead.scheduler.kernel.view import BEGAN, ENDED, HISTOGRAMS
from fairlead.scheduler.snapshot import copy_of
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, REVOKING, RUNNING, WAITING
from fairlead.scheduler.tables import BINS, F64, I64, NONE, OF_JOB, Tasks, longer
from fairlead.simulate.kernel import tape as kernel
from fairlead.simulate.kernel.advance import Tape, advance, draw, enter_if_ready, fill_in, release_task
from fairlead.simulate.workload import most_at_once

DAY = 86400.0
HOUR = 3600.0
LISTED = 64
"""Maximum number of durations drawn for the waiting tasks of a job; with more tasks they repeat."""
CHUNK_JOBS, CHUNK_TASKS = 200, 5_000
"""Arrivals written at once, and their tasks: at most these, or as many as were written before; at least one job."""


class Arrivals(NamedTuple):
    """The jobs submitted in the last day that are not forgotten, by time."""

    source: I64
    """Their rows in the original state."""
    group: I64
    """Their pending groups."""
    at: F64
    """Seconds from the begin of the period."""
    window: float
    """Length of the period, in seconds."""


@dataclass(frozen=True)
class DryRun:
    """What all runs from a state start with. `after`, `paired` and `lacks` are as in a tape."""

    before: State
    """The original state, unchanged; durations are drawn for its rows."""
    source: I64
    """Row in `before` of each job of `state`."""
    state: State
    """The jobs that have not ended."""
    target: int
    """Row of the job to predict."""
    now: float
    held: I64
    """Rows of the tasks that hold resources."""
    held_jobs: I64
    """Rows of their jobs."""
    ages: F64
    """Seconds that they have run."""
    graces: F64
    """Seconds that those which are being stopped still have, at most; 0 for the others."""
    after: I64
    paired: I64
    lacks: I64
    timers: list[tuple[float, int, bool]]
    """What comes due, by time: the job's row, and True for the job as a whole, False for a delayed task of it."""
    arrivals: Arrivals
    at_once: int
    """Upper bound of tasks that run at once, beside those held."""
    running: NDArray[np.int32]
    """Ages of the running tasks, by row of `before.histograms` and bin."""


def dry_run_of(state: State, target: int, now: float) -> DryRun:
    """Prepare the dry runs of a state, which stays unchanged except for its caches; `target` is a job's row."""
    found = copy_of(state)
    arrivals = _arrivals(state, found, target, now)
    jobs = state.jobs
    live = np.flatnonzero((jobs.id[: jobs.n] != NONE) & np.isnan(jobs.finished_at[: jobs.n]))
    after, paired, lacks = _followers(state, live, int(jobs.id[target]))
    timers = _timers(state, live)
    np.add.at(lacks, [row for _, row, whole in timers if whole], 1)
    _keep_live(found, live)
    waits = found.jobs.waiting[: len(live)] > 0
    for row in np.flatnonzero(waits & found.jobs.gang[: len(live)] & (found.jobs.group[: len(live)] == NONE)).tolist():
        found.jobs.home[row] = group_of(found, row)
    held = found.held_rows()
    held_jobs = found.job_rows_of(held)
    ages = np.fmax(0.0, now - found.tasks.started_at[held])  # NaN: not started yet
    stopped, graces = found.tasks.status[held] > RUNNING, np.zeros(len(held))
    graces[stopped] = graces_of(state, jobs.id[live[held_jobs[stopped]]])
    found.holds.have_room((MAX_RESERVATIONS + 1) * found.nodes.n)
    found.order.ready(found, MOST_PLACEMENTS)
    write_entitled(found)
    place = int(np.searchsorted(live, target))
    most = most_at_once(found.shapes.demand[: found.shapes.n], found.cluster.total)
    running = np.zeros((max(1, state.histograms.n), BINS), np.int32)
    begun = ages > 0
    scheduling.count_running(
        state.view(), live[held_jobs[begun]], (held - found.jobs.first[held_jobs])[begun], ages[begun], running
    )
    return DryRun(
        state, live, found, place, now, held, held_jobs, ages, graces, after, paired, lacks, timers, arrivals, most, running
    )


def _arrivals(state: State, into: State, target: int, now: float) -> Arrivals:
    """Return the arrivals of the last day, without the target; add missing pending groups to `into`.

    Ended jobs are forgotten in the order of their ends, so all jobs that came after the first remembered end are known.
    """
    jobs, n = state.jobs, state.jobs.n
    ended = state.ended_jobs()
    begin = max(now - DAY, float(state.times[BEGAN]))
    if state.forgotten and len(ended):
        begin = max(begin, float(jobs.finished_at[state.job_row(int(ended[0]))]))
    chosen = (jobs.id[:n] != NONE) & (jobs.submitted_at[:n] >= begin) & (jobs.submitted_at[:n] <= now)
    chosen[target] = False
    source = np.flatnonzero(chosen)
    source = source[np.argsort(jobs.submitted_at[source], kind="stable")]
    group = jobs.home[source]
    gangs = np.flatnonzero(jobs.gang[source])
    columns = (jobs.queue, jobs.priority, jobs.shape_row, jobs.tasks, jobs.revocable)
    kinds = np.stack([column[source[gangs]] for column in columns], axis=1)
    distinct, which = np.unique(kinds, axis=0, return_inverse=True)
    made = [ensure_group(into, (*key, bool(revocable))) for *key, revocable in distinct.tolist()]
    group[gangs] = np.array(made, np.int64)[which.reshape(-1)]
    window = max(HOUR, now - begin)
    return Arrivals(source, group, jobs.submitted_at[source] - (now - window), window)


def _as_new(rows: NDArray[Any]) -> NDArray[Any]:
    """Reset rows of jobs to those of new jobs."""
    rows["waiting"] = rows["tasks"]
    for name in ("next", "holding", "failed", "cancelled", "held", "irregular", "delayed"):
        rows[name] = 0
    rows["group"] = rows["after"] = rows["before"] = NONE
    rows["finished_at"], rows["plain"] = np.nan, ~rows["gang"]
    return rows


def _followers(state: State, live: I64, target: int) -> tuple[I64, I64, I64]:
    """Return `after`, `paired` and `lacks` of a tape, by row of `live`."""
    place = {int(number): k for k, number in enumerate(state.jobs.id[live])}
    lacks = np.zeros(len(live), np.int64)
    pairs = []
    waits = state.dependencies
    for job in sorted({*waits.waits_for, *chain(*waits.lines.values())}):
        others = waits.behind(job, state.index.specs[job])
        if job not in place or not others:  # it was cancelled, or is the first of its line
            continue
        wanted = {after.job: after.how for after in state.index.specs[job].after}
        lacks[place[job]] = len(others)
        if job == target or all(wanted.get(other) != "failure" for other in others):
            # A dependency that ended otherwise than required is not live: its follower never starts.
            pairs += [(place[other], place[job]) for other in others if other in place]
    paired = [(place[job], place[other]) for job, others in waits.paired.items() if job in place for other in others]
    return np.array(sorted(pairs), np.int64).reshape(-1, 2), np.array(sorted(paired), np.int64).reshape(-1, 2), lacks


def _timers(state: State, live: I64) -> list[tuple[float, int, bool]]:
    """Return when jobs of `live`, and delayed tasks of them, may start."""
    place = {int(number): k for k, number in enumerate(state.jobs.id[live])}
    found = [(at, place[job], True) for job, at in state.dependencies.begins.items() if job in place]
    for at, job, task in {timer for timer in state.dependencies.timers if timer[2] != WHOLE and timer[1] in place}:
        if state.tasks.delayed[state.jobs.first[live[place[job]]] + task]:
            found.append((at, place[job], False))
    return sorted(found)


def _keep_live(state: State, live: I64) -> None:
    """Keep only these jobs, renumbered from 1, and of their tasks first the running, then the waiting ones.

    A preempted task waits again in a row behind the others: see `next` in the table of jobs.
    """
    jobs, tasks = state.jobs, state.tasks
    status = tasks.status[: tasks.n]
    rows = np.flatnonzero((status >= PLACED) & (status <= REVOKING) | (status == WAITING))
    of = state.job_rows_of(rows)
    there = np.isin(of, live)
    rows, of = rows[there], of[there]
    order = np.argsort(2 * of + (status[rows] == WAITING), kind="stable")
    rows, of = rows[order], np.searchsorted(live, of[order])
    used = np.bincount(of, minlength=len(live))
    revoked = np.bincount(of[status[rows] == REVOKING], minlength=len(live))
    first = np.cumsum(used + revoked) - used - revoked
    begin = np.cumsum(used) - used
    kept = np.full(int((used + revoked).sum()), NEW_TASK, Tasks.FIELDS)
    kept[first[of] + np.arange(len(rows)) - begin[of]] = tasks.rows[rows]

    new_job, numbers = renumbering(live, jobs.n), jobs.id[live]
    jobs.keep(live)
    tasks.set_rows(kept)
    tasks.n = len(kept)
    jobs.id[:], jobs.first[:], jobs.tasks[:] = np.arange(1, len(live) + 1), first, used + revoked
    jobs.next[:], jobs.irregular[:] = jobs.holding, False
    for links in (jobs.after, jobs.before, state.groups.head, state.groups.tail):
        links[:] = new_job[links]
    state.holds.job[: state.holds.n] = 1 + np.searchsorted(numbers, state.holds.job[: state.holds.n])
    histograms = state.histograms
    histograms.keep(np.flatnonzero(histograms.about[: histograms.n] != OF_JOB))
    histograms.make_room()
    state.ended, state.forgotten = np.zeros(len(live), np.int64), 0
    state.order.counts[[ENDED, HISTOGRAMS]] = 0, histograms.n
    state.moves[0] += 1
    scheduling.find_places(state.view())
    rows = state.held_rows()
    link_tasks(state.view(), rows, state.job_rows_of(rows))


class Run:
    """One possible continuation: `until` is the simulated time reached, `known` is True if any duration is known."""

    def __init__(self, dry_run: DryRun, rng: np.random.Generator) -> None:
        self._dry_run, self._rng = dry_run, rng
        self.until, self._due = dry_run.now, 0
        jobs, n = dry_run.state.jobs, dry_run.state.jobs.n
        held, waiting = jobs.holding[:n], jobs.tasks[:n] - jobs.holding[:n]
        listed = np.minimum(waiting, LISTED)
        first = np.cumsum(held + listed) - held - listed
        runs = np.repeat(first, held) + dry_run.held - np.repeat(jobs.first[:n], held)
        ages, waits = np.zeros(int((held + listed).sum())), np.ones(int((held + listed).sum()), np.bool_)
        ages[runs], waits[runs] = dry_run.ages, False
        self._pool = np.zeros(0)
        lasts = self._draw(dry_run.source[np.repeat(np.arange(n), held + listed)], ages)
        self.known = bool(len(self._pool))
        self._arrays = {
            name: longer(array, len(array), len(array)) if array.dtype.names else array.copy()
            for name, array in dry_run.state.order.view(dry_run.state).arrays.items()
        }
        self._truth = _truth_of(dry_run.state, lasts[waits], listed, dry_run.now)
        self._jobs, self._tasks, self._durations = n, dry_run.state.tasks.n, int(listed.sum())
        self._runs = simulated.no_runs(len(dry_run.held))
        _resume(dry_run, self._truth, self._runs, lasts[runs] - dry_run.ages)
        offsets = _offsets(dry_run, rng)
        self._coming = np.argsort(offsets, kind="stable")
        self._offsets, self._came = offsets[self._coming], 0
        more = min(1, len(offsets))  # arrivals with a known time, but not written yet
        numbers = np.zeros(kernel.NUMBERS, np.int64)
        numbers[[kernel.ARRIVED, kernel.COMING]] = n
        numbers[kernel.GOES_OVER_LIMITS] = dry_run.state.settings.revoke and dry_run.state.any_revocable
        numbers[kernel.GOES_ON] = 1  # a decision may be due now
        self._tape = Tape(
            row=np.arange(n + more), group=np.full(n + more, NONE), submit=np.append(np.zeros(n), self._when(np.arange(more))),
            at=np.array([dry_run.now, dry_run.now, dry_run.now, np.inf]), after=dry_run.after, paired=dry_run.paired,
            before=np.zeros((0, 2), np.int64), lacks=dry_run.lacks.copy(), ends=np.zeros((5, 0), np.int64),
            rows=np.zeros(0, np.int64), attempts=np.zeros(0, np.int64), log=np.zeros(0, np.int64), moments=np.zeros(0),
            starts=np.zeros(0), returned=np.zeros(0, np.int64), numbers=numbers,
        )  # fmt: skip
        self._have_room()

    @property
    def begun(self) -> float:
        """Start of the target's next task, or of the gang; NaN before."""
        return float(self._truth.begun[self._dry_run.target])

    @property
    def work(self) -> int:
        """Placements and arrivals so far."""
        return int(self._tape.numbers[kernel.DECISIONS] + self._tape.numbers[kernel.ARRIVED]) - self._dry_run.state.jobs.n

    def go_on(self, until: float) -> bool:
        """Advance to a moment; return True if anything happens after it."""
        timers = self._dry_run.timers
        while self._due < len(timers) and timers[self._due][0] <= until:
            self._go_on(timers[self._due][0])
            self._come_due(*timers[self._due])
            self._due += 1
        goes_on = self._go_on(until)
        if self._due < len(timers):
            self.until = min(self.until, timers[self._due][0]) if goes_on else timers[self._due][0]
        return goes_on or self._due < len(timers)

    def _come_due(self, at: float, row: int, whole: bool) -> None:
        """Let a job start, or a delayed task of it."""
        tape = self._tape
        if whole:
            tape.lacks[row] -= 1
            if tape.lacks[row] == 0:
                enter_if_ready(self._view, row, at)
        else:
            release_task(self._view, tape, row, at)
        tape.at[[kernel.NOW, kernel.HAPPENED]] = at
        tape.numbers[kernel.GOES_ON] = 1

    def _go_on(self, until: float) -> bool:
        settings, why = self._dry_run.state.settings, kernel.MORE_JOBS
        while why == kernel.MORE_JOBS:
            why = advance(
                self._view, self._truth, self._runs, self._tape, until, MOST_PLACEMENTS,
                settings.max_losses, len(self._arrays["ended"]),
            )  # fmt: skip
            if why == kernel.MORE_JOBS:
                self._write_arrivals()
        self.until = float(self._tape.at[1]) if why == kernel.UNTIL else until
        return bool(why == kernel.UNTIL)

    def _draw(self, source: I64, ages: F64) -> F64:
        """Draw the total durations of tasks, in seconds."""
        view, found = self._dry_run.before.view(), np.empty(len(source))
        draw(view, source, ages, self._rng.random((len(source), 3)), self._dry_run.running, found)
        if not len(self._pool):
            self._pool = found[found > 0]
        if not found.all():
            fill_in(view, source, self._rng.random((len(source), 2)), self._pool, found)
        return found

    def _when(self, arrivals: I64) -> F64:
        """Return the times of these arrivals, by index: the last day's in order, repeated."""
        turns, place = np.divmod(arrivals, max(1, len(self._offsets)))
        return self._dry_run.now + turns * self._dry_run.arrivals.window + self._offsets[place]

    def _write_arrivals(self) -> None:
        arrivals = self._dry_run.arrivals
        coming = np.arange(self._came, self._came + max(CHUNK_JOBS, self._came))
        which = self._coming[coming % len(self._coming)]
        most = max(CHUNK_TASKS, self._tasks - self._dry_run.state.tasks.n)
        tasks = np.cumsum(self._dry_run.before.jobs.tasks[arrivals.source[which]])
        count = max(1, int(np.searchsorted(tasks, most, side="right")))
        coming, which = coming[:count], which[:count]
        self._came += count
        rows = _as_new(self._dry_run.before.jobs.rows[arrivals.source[which]])
        tasks = rows["tasks"]
        before, total = self._jobs, int(tasks.sum())
        rows["id"], rows["first"] = before + 1 + np.arange(count), self._tasks + np.cumsum(tasks) - tasks
        listed = np.minimum(tasks, LISTED)
        lasts = self._draw(np.repeat(arrivals.source[which], listed), np.zeros(int(listed.sum())))

        arrays, truth, tape = self._arrays, self._truth.arrays, self._tape.arrays
        arrays["jobs"] = _put(arrays["jobs"], before, rows)
        arrays["tasks"] = _put(arrays["tasks"], self._tasks, np.full(total, NEW_TASK, Tasks.FIELDS))
        arrays["ended"] = _put(arrays["ended"], before, np.zeros(count, np.int64))
        new = {
            "demand": self._dry_run.state.shapes.demand[rows["shape_row"]], "queue": rows["queue"], "several": listed,
            "first": self._durations + np.cumsum(listed) - listed, "begun": np.full(count, np.nan),
            "ended": np.full(count, np.nan), "submitted": np.full(count, np.nan), "waited": np.zeros(count), "left": tasks,
            "task": rows["first"], "never": np.zeros(count, np.bool_),
        }  # fmt: skip
        truth |= {name: _put(truth[name], before, values) for name, values in new.items()}
        truth["duration"] = _put(truth["duration"], self._durations, lasts)
        truth["last"] = _put(truth["last"], self._tasks, np.zeros(total, np.int32))
        self._jobs, self._tasks, self._durations = before + count, self._tasks + total, self._durations + len(lasts)
        # One more time: that of the next arrival.
        tape["submit"] = np.append(tape["submit"][:before], self._when(np.append(coming, self._came)))
        tape["row"] = np.arange(self._jobs + 1)
        tape["group"] = np.append(tape["group"][:before], np.append(arrivals.group[which], NONE))
        self._truth, self._tape = Truth(**truth), Tape(**tape)
        self._tape.numbers[kernel.COMING] = self._jobs
        self._have_room()

    def _have_room(self) -> None:
        """Allocate rows for all tasks that may run at once, and may end or be placed at one moment."""
        size = min(self._tasks, len(self._dry_run.held) + self._dry_run.at_once)
        if size > len(self._runs.heap):
            self._runs = simulated.longer(self._runs, max(size, 2 * len(self._runs.heap)))
        size = len(self._runs.heap)
        if size > len(self._tape.rows):
            rows, attempts = np.zeros((2, size), np.int64)
            new = {"ends": np.zeros((5, size), np.int64), "rows": rows, "attempts": attempts}
            self._tape = Tape(**{**self._tape.arrays, **new})
        self._view = View(**self._arrays)


def _offsets(dry_run: DryRun, rng: np.random.Generator) -> F64:
    """Return the seconds until each job of the last day comes again, if the day repeats from a random submission on.

    Jobs come in bursts. So the arrivals after the target's submission are modelled on those after another submission, not
    after a random moment, when usually little happens.
    """
    at, window = dry_run.arrivals.at, dry_run.arrivals.window
    if not len(at):
        return at
    begin = at[rng.integers(len(at))] + dry_run.now - dry_run.state.jobs.submitted_at[dry_run.target]
    return window - (begin - at) % window


def _truth_of(state: State, duration: F64, listed: I64, now: float) -> Truth:
    """Return an idle simulated cluster."""
    jobs, n = state.jobs, state.jobs.n
    capacity, queues = state.nodes.capacity.copy(), state.queues.n
    return Truth(
        capacity=capacity, demand=state.shapes.demand[jobs.shape_row[:n]], queue=jobs.queue[:n].copy(), duration=duration,
        first=np.cumsum(listed) - listed, several=np.maximum(1, listed), load=np.zeros_like(capacity),
        down=np.zeros(len(capacity), np.bool_), pace=np.ones(len(capacity)), first_run=np.full(len(capacity), NONE),
        used=np.zeros((queues, capacity.shape[1]), np.int64), waits=np.zeros((queues, capacity.shape[1]), np.int64),
        running=np.zeros(queues, np.int64), waiting=np.zeros(queues, np.int64), begun=np.full(n, np.nan),
        ended=np.full(n, np.nan), submitted=np.full(n, now), waited=np.zeros(n), left=jobs.tasks[:n].copy(),
        task=jobs.first[:n].copy(), last=np.zeros(state.tasks.n, np.int32), size=np.zeros(4, np.int64),
        never=np.zeros(n, np.bool_), total=state.cluster.total.copy(), got=np.zeros(queues),
        held=np.zeros((queues, len(state.resources))), since=np.full(queues, now),
    )  # fmt: skip


def _resume(dry_run: DryRun, truth: Truth, runs: Runs, left: F64) -> None:
    """Schedule the ends of held tasks after `left` seconds; after their grace where they are being stopped."""
    jobs, tasks, n = dry_run.state.jobs, dry_run.state.tasks, dry_run.state.jobs.n
    held = np.maximum(1, jobs.holding[:n])
    first = np.cumsum(jobs.holding[:n]) - jobs.holding[:n]
    of, stopped = dry_run.held_jobs, tasks.status[dry_run.held] > RUNNING
    left = np.where(stopped, np.inf, left)
    index, attempt = dry_run.held - jobs.first[of], tasks.attempt[dry_run.held].astype(np.int64)
    here = Truth(**{**truth.arrays, "duration": left, "first": first, "several": held})
    simulated.start_all(here, runs, of, index, attempt, tasks.node[dry_run.held].astype(np.int64), dry_run.now)
    for grace in np.unique(dry_run.graces[stopped]).tolist():
        rows = np.flatnonzero(stopped & (dry_run.graces == grace))
        simulated.stop(truth, runs, of[rows], index[rows], attempt[rows], dry_run.now, grace)
    truth.begun[:] = np.nan


def _put(array: NDArray[Any], begin: int, values: NDArray[Any]) -> NDArray[Any]:
    """Write values from row `begin` on; return the array, or a longer copy."""
    end = begin + len(values)
    if end > len(array):
        array = longer(array, begin, max(2 * len(array), end))
    array[begin:end] = values
    return array
