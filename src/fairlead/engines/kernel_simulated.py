"""What runs on a simulated cluster, in compiled code: a heap of ends, and what the tasks really use."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairlead.kernel_cache import compiled
from fairlead.outcomes import Outcome
from fairlead.scheduler import tables
from fairlead.scheduler.compiled_view import Arrays
from fairlead.scheduler.tables import NONE

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
EXITED, SIGNALLED = int(Outcome.EXITED), int(Outcome.SIGNALLED)
SIGTERM = 15

# Numbers in `Truth.size`: tasks that run, tasks started so far, whether machines may be given more than they have, tasks done.
RUNNING, STARTED, OVERCOMMITTED, COMPLETED = range(4)


class Truth(Arrays):
    """What machines have, what jobs do, and what came of it.

    capacity, load : shape (nodes, resources): what machines have, and what runs on them needs
    demand, queue, duration, first : see fairlead.engines.simulated
    several : shape (jobs,): how many durations a job has; task k takes as long as its duration k, counted around
    down : shape (nodes,): whether it is lost
    pace : shape (nodes,): seconds that a second's work takes; `first_run` is the first of the tasks that run on it, a row of Runs
    used, waits : shape (queues, resources): what really runs and waits; `running` and `waiting` are numbers of tasks
    begun, ended, submitted : shape (jobs,): when the first task started, the last one ended, the job came; NaN before
    waited : shape (jobs,): seconds that its tasks waited, added up; `left` is how many have not ended
    task, last : the first task of each job among all; and of each task the last attempt that was told to start, or never to
    never : shape (jobs,): whether it can never start, so that it counts as left, and does not count as waiting
    total : shape (resources,): what all machines have
    got, since : shape (queues,): dominant share x seconds of what it used until `since`, when that changed last
    """

    ARRAYS: ClassVar = {
        "capacity": ("i8", 2), "demand": ("i8", 2), "queue": ("i8", 1), "duration": ("f8", 1), "first": ("i8", 1),
        "several": ("i8", 1), "load": ("i8", 2), "down": ("?", 1), "pace": ("f8", 1), "first_run": ("i8", 1), "used": ("i8", 2),
        "waits": ("i8", 2), "running": ("i8", 1), "waiting": ("i8", 1), "begun": ("f8", 1), "ended": ("f8", 1),
        "submitted": ("f8", 1), "waited": ("f8", 1), "left": ("i8", 1), "task": ("i8", 1), "last": ("i4", 1), "size": ("i8", 1),
        "never": ("?", 1), "total": ("i8", 1), "got": ("f8", 1), "since": ("f8", 1),
    }  # fmt: skip


class Runs(Arrays):
    """Tasks that run, a row each; the first so many of `heap` are rows that are in use, by time and order, the rest are free.

    place : where in the heap the row is
    time, order : when the task ends, and how many were started before it
    since, work : at `since` it had so many seconds of work left
    stopped : when it ends at the latest, for it was told to; infinite
    after, before : others on the same machine
    """

    ARRAYS: ClassVar = {
        "heap": ("i8", 1), "place": ("i8", 1), "time": ("f8", 1), "since": ("f8", 1), "work": ("f8", 1), "stopped": ("f8", 1),
        "order": ("i8", 1), "job": ("i8", 1), "index": ("i8", 1), "attempt": ("i8", 1), "node": ("i8", 1), "after": ("i8", 1),
        "before": ("i8", 1),
    }  # fmt: skip


def no_runs(length: int) -> Runs:
    """Room for so many tasks."""
    columns = {name: np.zeros(length, kind) for name, (kind, _) in Runs.ARRAYS.items()}
    return Runs(**{**columns, "heap": np.arange(length)})


def longer(runs: Runs, length: int) -> Runs:
    """The same with room for more."""
    old = len(runs.heap)
    columns = {name: tables.longer(column, old, length) for name, column in runs.arrays.items()}
    columns["heap"][old:] = np.arange(old, length)
    return Runs(**columns)


@compiled
def submit(truth: Truth, job: int, tasks: int, now: float) -> None:
    """A job's tasks wait from now on."""
    q = truth.queue[job]
    truth.submitted[job] = now
    truth.left[job] = tasks
    if truth.never[job]:
        return
    truth.waiting[q] += tasks
    for r in range(truth.demand.shape[1]):
        truth.waits[q, r] += tasks * truth.demand[job, r]


@compiled
def next_end(truth: Truth, runs: Runs) -> float:
    """When the next task ends; infinite where none runs."""
    return float(runs.time[runs.heap[0]]) if truth.size[RUNNING] > 0 else np.inf


@compiled
def _before(runs: Runs, a: int, b: int) -> bool:
    if runs.time[a] != runs.time[b]:
        return bool(runs.time[a] < runs.time[b])
    return bool(runs.order[a] < runs.order[b])


@compiled
def _sift(runs: Runs, size: int, position: int) -> None:
    """Move what is at a place in the heap up or down to where it belongs."""
    run = runs.heap[position]
    while position > 0:
        up = (position - 1) // 2
        other = runs.heap[up]
        if not _before(runs, run, other):
            break
        runs.heap[position] = other
        runs.place[other] = position
        position = up
    while True:
        down = 2 * position + 1
        if down >= size:
            break
        if down + 1 < size and _before(runs, runs.heap[down + 1], runs.heap[down]):
            down += 1
        other = runs.heap[down]
        if not _before(runs, other, run):
            break
        runs.heap[position] = other
        runs.place[other] = position
        position = down
    runs.heap[position] = run
    runs.place[run] = position


@compiled
def _set_pace(truth: Truth, runs: Runs, n: int, now: float) -> None:
    """After a machine's load has changed: its tasks go on as fast as it lets them now."""
    slower = 1.0
    for r in range(truth.capacity.shape[1]):
        if truth.capacity[n, r] > 0 and truth.load[n, r] > truth.capacity[n, r]:
            slower = max(slower, truth.load[n, r] / truth.capacity[n, r])
    if slower == truth.pace[n]:
        return
    run = truth.first_run[n]
    while run != NONE:
        runs.work[run] = max(0.0, runs.work[run] - (now - runs.since[run]) / truth.pace[n])
        runs.since[run] = now
        runs.time[run] = min(runs.stopped[run], now + slower * runs.work[run])
        _sift(runs, truth.size[RUNNING], runs.place[run])
        run = runs.after[run]
    truth.pace[n] = slower


@compiled
def _add_up(truth: Truth, q: int, now: float) -> None:
    """Before what a queue uses changes: add what it got until now."""
    share = 0.0
    for r in range(truth.total.shape[0]):
        if truth.total[r] > 0:
            share = max(share, truth.used[q, r] / truth.total[r])
    truth.got[q] += share * (now - truth.since[q])
    truth.since[q] = now


@compiled
def start(truth: Truth, runs: Runs, job: I64, index: I64, attempt: I64, node: I64, now: float) -> None:
    """Start attempts, for which there are rows."""
    for k in range(job.shape[0]):
        j, n = job[k], node[k]
        q = truth.queue[j]
        _add_up(truth, q, now)
        for r in range(truth.demand.shape[1]):
            truth.load[n, r] += truth.demand[j, r]
            truth.used[q, r] += truth.demand[j, r]
            truth.waits[q, r] -= truth.demand[j, r]
        truth.running[q] += 1
        truth.waiting[q] -= 1
        if np.isnan(truth.begun[j]):
            truth.begun[j] = now
        truth.waited[j] += now - truth.submitted[j]
        at = truth.size[RUNNING]
        run = runs.heap[at]
        work = truth.duration[truth.first[j] + index[k] % truth.several[j]]
        runs.job[run], runs.index[run], runs.attempt[run], runs.node[run] = j, index[k], attempt[k], n
        runs.order[run], runs.since[run], runs.work[run], runs.stopped[run] = truth.size[STARTED], now, work, np.inf
        runs.time[run] = now + truth.pace[n] * work
        truth.last[truth.task[j] + index[k]] = attempt[k]
        truth.size[RUNNING] += 1
        truth.size[STARTED] += 1
        _sift(runs, truth.size[RUNNING], at)
        runs.before[run], runs.after[run] = NONE, truth.first_run[n]
        if truth.first_run[n] != NONE:
            runs.before[truth.first_run[n]] = run
        truth.first_run[n] = run
        if truth.size[OVERCOMMITTED]:
            _set_pace(truth, runs, n, now)


@compiled
def _take_away(truth: Truth, runs: Runs, run: int, now: float) -> None:
    """A task runs no more, and its row is free; its columns stay readable until the next start."""
    j, n, q = runs.job[run], runs.node[run], truth.queue[runs.job[run]]
    _add_up(truth, q, now)
    for r in range(truth.demand.shape[1]):
        truth.load[n, r] -= truth.demand[j, r]
        truth.used[q, r] -= truth.demand[j, r]
    truth.running[q] -= 1
    truth.size[RUNNING] -= 1
    size, position = truth.size[RUNNING], runs.place[run]
    # Free rows are behind those in use, last ended first.
    last = runs.heap[size]
    runs.heap[position], runs.heap[size] = last, run
    runs.place[last] = position
    if position < size:
        _sift(runs, size, position)
    if runs.before[run] == NONE:
        truth.first_run[n] = runs.after[run]
    else:
        runs.after[runs.before[run]] = runs.after[run]
    if runs.after[run] != NONE:
        runs.before[runs.after[run]] = runs.before[run]


@compiled
def end_into(truth: Truth, runs: Runs, now: float, ends: I64) -> int:
    """End what ends at this moment: jobs, indices, attempts, outcomes and codes as rows of `ends`; how many.

    Stops early when `ends` is full.
    """
    count = 0
    while count < ends.shape[1] and truth.size[RUNNING] > 0 and runs.time[runs.heap[0]] <= now:
        run = runs.heap[0]
        _take_away(truth, runs, run, now)
        j = runs.job[run]
        by_itself = runs.time[run] < runs.stopped[run]
        if by_itself:
            truth.size[COMPLETED] += 1
            truth.left[j] -= 1
            if truth.left[j] == 0:
                truth.ended[j] = now
        else:
            _waits_again(truth, j)
        ends[0, count], ends[1, count], ends[2, count] = j, runs.index[run], runs.attempt[run]
        ends[3, count], ends[4, count] = (EXITED, 0) if by_itself else (SIGNALLED, SIGTERM)
        count += 1
        if truth.size[OVERCOMMITTED]:
            _set_pace(truth, runs, runs.node[run], now)
    return count


@compiled
def _waits_again(truth: Truth, j: int) -> None:
    q = truth.queue[j]
    truth.waiting[q] += 1
    for r in range(truth.demand.shape[1]):
        truth.waits[q, r] += truth.demand[j, r]


@compiled
def end(truth: Truth, runs: Runs, now: float) -> I64:
    """End what ends at this moment: job numbers, indices, attempts, outcomes and codes, a row each."""
    ends = np.empty((5, truth.size[RUNNING]), np.int64)
    count = end_into(truth, runs, now, ends)
    for k in range(count):
        ends[0, k] += 1
    return ends[:, :count].copy()


@compiled
def _find(truth: Truth, runs: Runs, job: int, index: int, attempt: int) -> int:
    """The row of an attempt that runs, NONE."""
    for k in range(truth.size[RUNNING]):
        run = runs.heap[k]
        if runs.job[run] == job and runs.index[run] == index and runs.attempt[run] == attempt:
            return int(run)
    return NONE


@compiled
def start_new(
    truth: Truth, runs: Runs, number: I64, index: I64, attempt: I64, machines: I64, place: I64, now: float
) -> I64:
    """Start those attempts that were neither told to start before nor told never to, on machines that are there: which they are.

    `number` holds job numbers; attempt k is for `machines[place[k]]`. There are rows for all.
    """
    fine = np.empty(len(number), np.bool_)
    for k in range(len(number)):
        fine[k] = attempt[k] > truth.last[truth.task[number[k] - 1] + index[k]] and not truth.down[machines[place[k]]]
    chosen = np.flatnonzero(fine)
    start(truth, runs, number[chosen] - 1, index[chosen], attempt[chosen], machines[place[chosen]], now)
    return chosen


@compiled
def stop(truth: Truth, runs: Runs, job: I64, index: I64, attempt: I64, now: float, grace: float) -> NDArray[np.bool_]:
    """Have attempts end within a grace; which of them were never told to start, and never will be started."""
    never = np.zeros(len(job), np.bool_)
    for k in range(len(job)):
        run = _find(truth, runs, job[k], index[k], attempt[k])
        task = truth.task[job[k]] + index[k]
        if run == NONE:
            never[k] = attempt[k] > truth.last[task]
            truth.last[task] = max(truth.last[task], attempt[k])
        elif runs.stopped[run] == np.inf:
            runs.stopped[run] = now + grace
            runs.time[run] = min(runs.time[run], runs.stopped[run])
            _sift(runs, truth.size[RUNNING], runs.place[run])
    return never


@compiled
def drop_node(truth: Truth, runs: Runs, n: int, now: float) -> None:
    """All that runs on a machine is gone."""
    while truth.first_run[n] != NONE:
        run = truth.first_run[n]
        _take_away(truth, runs, run, now)
        _waits_again(truth, runs.job[run])
    truth.pace[n] = 1.0
