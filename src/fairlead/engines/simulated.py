"""A cluster that is not there: tasks take as long as it was said, on a virtual clock.

A task that is started ends after its duration; ends at the same moment come in the order of their starts. Where machines may
promise more than they have (slots), whatever runs on one whose tasks need f times what it has goes on 1/f times as fast, for as
long as that is so.

Ends wait in a binary heap of arrays, in compiled code. What the tasks really use is counted here too, by the one who runs them,
so that it can be held against what the scheduler believes.
"""

from collections import namedtuple

import numpy as np
from numpy.typing import NDArray

from fairlead.kernel_cache import compiled
from fairlead.scheduler.tables import NONE

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


class SimulatedCluster:
    """Runs tasks on paper.

    Parameters
    ----------
    capacity : int64, shape (nodes, resources)
        What the machines really have.
    demand : int64, shape (jobs, resources)
        What a task of each job really uses.
    queue : int64, shape (jobs,)
        For each job the number of its leaf queue, below `queues`.
    duration : float64, shape (durations,)
        Seconds; job j's are from `first[j]` on, one a task, or one for all where `varied[j]` is 0.
    overcommitted : bool
        Whether machines may be given more than they have.

    Attributes
    ----------
    used, waits : int64, shape (queues, resources)
        What runs and what waits of each queue, as it really is; `running` and `waiting` are numbers of tasks.
    begun, ended : float64, shape (jobs,)
        When the first task of each job started, and when the last one ended; NaN before.
    waited : float64, shape (jobs,)
        Seconds that its tasks waited, added up.
    completed, withdrawn : int
        Tasks so far.
    """

    def __init__(
        self,
        capacity: I64,
        demand: I64,
        queue: I64,
        queues: int,
        duration: F64,
        first: I64,
        varied: I64,
        overcommitted: bool,
    ) -> None:
        jobs, resources = demand.shape
        self.capacity, self.demand, self.queue = capacity, demand, queue
        self.duration, self.first, self.varied = duration, first, varied
        self.overcommitted = overcommitted
        self.load = np.zeros_like(capacity)
        self.used = np.zeros((queues, resources), np.int64)
        self.waits = np.zeros((queues, resources), np.int64)
        self.running, self.waiting = np.zeros(queues, np.int64), np.zeros(queues, np.int64)
        self.begun, self.ended = np.full(jobs, np.nan), np.full(jobs, np.nan)
        self.submitted = np.full(jobs, np.nan)
        self.waited = np.zeros(jobs)
        self.left = np.zeros(jobs, np.int64)
        self.completed = self.withdrawn = 0
        self._pace = np.ones(len(capacity))  # seconds that a second's work takes on a machine
        self._first = np.full(len(capacity), NONE, np.int64)  # of the tasks that run on it
        self._runs = _Runs(
            heap=np.empty(0, np.int64), place=np.empty(0, np.int64), time=np.empty(0), since=np.empty(0), work=np.empty(0),
            order=np.empty(0, np.int64), job=np.empty(0, np.int64), index=np.empty(0, np.int64), attempt=np.empty(0, np.int64),
            node=np.empty(0, np.int64), after=np.empty(0, np.int64), before=np.empty(0, np.int64),
        )  # fmt: skip
        self._size = np.zeros(2, np.int64)  # of the heap; started so far

    def submit(self, job: int, tasks: int, now: float) -> None:
        """A job's tasks wait from now on."""
        self.submitted[job] = now
        self.left[job] = tasks
        self.waiting[self.queue[job]] += tasks
        self.waits[self.queue[job]] += tasks * self.demand[job]

    def withdraw(self, job: int, tasks: int, now: float) -> None:
        """So many of a job's tasks, which wait, are not run after all."""
        self.left[job] -= tasks
        self.waiting[self.queue[job]] -= tasks
        self.waits[self.queue[job]] -= tasks * self.demand[job]
        self.withdrawn += tasks
        if self.left[job] == 0:
            self.ended[job] = now

    def start(self, job: I64, index: I64, attempt: I64, node: I64, now: float) -> None:
        """Start attempts; jobs are counted from 0."""
        need = int(self._size[0]) + len(job)
        if need > len(self._runs.heap):
            self._runs = _longer(self._runs, max(need, 2 * len(self._runs.heap), 1024))
        _start(
            job, index, attempt, node, now, self.demand, self.queue, self.duration, self.first, self.varied, self.capacity,
            self.load, self.overcommitted, self.used, self.waits, self.running, self.waiting, self.begun, self.submitted,
            self.waited, self._pace, self._first, self._runs, self._size,
        )  # fmt: skip

    def next_end(self) -> float:
        """When the next task ends; infinite where none runs."""
        return float(self._runs.time[self._runs.heap[0]]) if self._size[0] else np.inf

    def ends(self) -> tuple[I64, I64, I64]:
        """What ends at that moment: jobs, indices and attempts."""
        job, index, attempt = _end(
            self.demand, self.queue, self.capacity, self.load, self.overcommitted, self.used, self.running, self.left,
            self.ended, self._pace, self._first, self._runs, self._size,
        )  # fmt: skip
        self.completed += len(job)
        return job, index, attempt


_Runs = namedtuple("_Runs", "heap place time since work order job index attempt node after before")
"""Tasks that run, a row each; the first so many of `heap` are rows that are in use, by time and order, the rest are free.

place : where in the heap the row is
time, order : when the task ends, and how many were started before it
since, work : at `since` it had so many seconds of work left
after, before : others on the same machine, where machines overcommit
"""


def _longer(runs: _Runs, length: int) -> _Runs:
    """The same with room for more."""
    more = _Runs(*(np.concatenate([column, np.empty(length - len(column), column.dtype)]) for column in runs))
    more.heap[len(runs.heap) :] = np.arange(len(runs.heap), length)
    return more


@compiled
def _before(runs: _Runs, a: int, b: int) -> bool:
    if runs.time[a] != runs.time[b]:
        return bool(runs.time[a] < runs.time[b])
    return bool(runs.order[a] < runs.order[b])


@compiled
def _sift(runs: _Runs, size: int, position: int) -> None:
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
def _set_pace(n: int, now: float, capacity: I64, load: I64, pace: F64, first: I64, runs: _Runs, size: int) -> None:
    """After a machine's load has changed: its tasks go on as fast as it lets them now."""
    slower = 1.0
    for r in range(capacity.shape[1]):
        if capacity[n, r] > 0 and load[n, r] > capacity[n, r]:
            slower = max(slower, load[n, r] / capacity[n, r])
    if slower == pace[n]:
        return
    run = first[n]
    while run != NONE:
        runs.work[run] = max(0.0, runs.work[run] - (now - runs.since[run]) / pace[n])
        runs.since[run] = now
        runs.time[run] = now + slower * runs.work[run]
        _sift(runs, size, runs.place[run])
        run = runs.after[run]
    pace[n] = slower


@compiled
def _start(
    job: I64, index: I64, attempt: I64, node: I64, now: float, demand: I64, queue: I64, duration: F64, first_duration: I64,
    varied: I64, capacity: I64, load: I64, overcommitted: bool, used: I64, waits: I64, running: I64, waiting: I64, begun: F64,
    submitted: F64, waited: F64, pace: F64, first: I64, runs: _Runs, size: I64,
) -> None:  # fmt: skip
    for k in range(job.shape[0]):
        j, n = job[k], node[k]
        q = queue[j]
        for r in range(demand.shape[1]):
            load[n, r] += demand[j, r]
            used[q, r] += demand[j, r]
            waits[q, r] -= demand[j, r]
        running[q] += 1
        waiting[q] -= 1
        if np.isnan(begun[j]):
            begun[j] = now
        waited[j] += now - submitted[j]
        at = size[0]
        run = runs.heap[at]
        work = duration[first_duration[j] + (index[k] if varied[j] else 0)]
        runs.job[run], runs.index[run], runs.attempt[run], runs.node[run] = j, index[k], attempt[k], n
        runs.order[run], runs.since[run], runs.work[run] = size[1], now, work
        runs.time[run] = now + pace[n] * work
        size[0] += 1
        size[1] += 1
        _sift(runs, size[0], at)
        if overcommitted:
            runs.before[run], runs.after[run] = NONE, first[n]
            if first[n] != NONE:
                runs.before[first[n]] = run
            first[n] = run
            _set_pace(n, now, capacity, load, pace, first, runs, size[0])


@compiled
def _end(
    demand: I64, queue: I64, capacity: I64, load: I64, overcommitted: bool, used: I64, running: I64, left: I64, ended: F64,
    pace: F64, first: I64, runs: _Runs, size: I64,
) -> tuple[I64, I64, I64]:  # fmt: skip
    now = runs.time[runs.heap[0]]
    before = size[0]
    while size[0] > 0 and runs.time[runs.heap[0]] == now:
        run = runs.heap[0]
        j, n = runs.job[run], runs.node[run]
        for r in range(demand.shape[1]):
            load[n, r] -= demand[j, r]
            used[queue[j], r] -= demand[j, r]
        running[queue[j]] -= 1
        left[j] -= 1
        if left[j] == 0:
            ended[j] = now
        size[0] -= 1
        # Free rows are behind those in use, last ended first.
        runs.heap[0], runs.heap[size[0]] = runs.heap[size[0]], run
        if size[0] > 0:
            _sift(runs, size[0], 0)
        if overcommitted:
            if runs.before[run] == NONE:
                first[n] = runs.after[run]
            else:
                runs.after[runs.before[run]] = runs.after[run]
            if runs.after[run] != NONE:
                runs.before[runs.after[run]] = runs.before[run]
    count = before - size[0]
    job, index, attempt = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    for k in range(count):
        run = runs.heap[before - 1 - k]
        job[k], index[k], attempt[k] = runs.job[run], runs.index[run], runs.attempt[run]
        if overcommitted:
            _set_pace(runs.node[run], now, capacity, load, pace, first, runs, size[0])
    return job, index, attempt
