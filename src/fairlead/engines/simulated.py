"""A cluster that is not there: tasks take as long as it was said, on a virtual clock.

A task that is started ends after its duration; ends at the same moment come in the order of their starts. Where machines may
promise more than they have (slots), a task that starts on a machine whose demands are then f times what it has takes f times
as long.

Ends wait in a binary heap of arrays, in compiled code. What the tasks really use is counted here too, by the one who runs them,
so that it can be held against what the scheduler believes.
"""

import numpy as np
from numpy.typing import NDArray

from fairlead.compiled import compiled

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
        self._time = np.empty(1024)
        self._what = np.empty((1024, 5), np.int64)  # order of start, job, index, attempt, node
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
        if need > len(self._time):
            room = max(need, 2 * len(self._time))
            self._time = np.concatenate([self._time, np.empty(room - len(self._time))])
            self._what = np.concatenate([self._what, np.empty((room - len(self._what), 5), np.int64)])
        _start(
            job, index, attempt, node, now, self.demand, self.queue, self.duration, self.first, self.varied, self.capacity,
            self.load, self.overcommitted, self.used, self.waits, self.running, self.waiting, self.begun, self.submitted,
            self.waited, self._time, self._what, self._size,
        )  # fmt: skip

    def next_end(self) -> float:
        """When the next task ends; infinite where none runs."""
        return float(self._time[0]) if self._size[0] else np.inf

    def ends(self) -> tuple[I64, I64, I64]:
        """What ends at that moment: jobs, indices and attempts."""
        found = _end(
            self._time,
            self._what,
            self._size,
            self.demand,
            self.queue,
            self.load,
            self.used,
            self.running,
            self.left,
            self.ended,
        )
        self.completed += len(found)
        return found[:, 0].copy(), found[:, 1].copy(), found[:, 2].copy()


@compiled
def _before(time: F64, what: I64, a: int, b: int) -> bool:
    if time[a] != time[b]:
        return time[a] < time[b]
    return what[a, 0] < what[b, 0]


@compiled
def _swap(time: F64, what: I64, a: int, b: int) -> None:
    time[a], time[b] = time[b], time[a]
    for k in range(5):
        what[a, k], what[b, k] = what[b, k], what[a, k]


@compiled
def _start(
    job: I64, index: I64, attempt: I64, node: I64, now: float, demand: I64, queue: I64, duration: F64, first: I64,
    varied: I64, capacity: I64, load: I64, overcommitted: bool, used: I64, waits: I64, running: I64, waiting: I64, begun: F64,
    submitted: F64, waited: F64, time: F64, what: I64, size: I64,
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
        slower = 1.0
        if overcommitted:
            for r in range(demand.shape[1]):
                if capacity[n, r] > 0 and load[n, r] > capacity[n, r]:
                    slower = max(slower, load[n, r] / capacity[n, r])
        at = size[0]
        time[at] = now + slower * duration[first[j] + (index[k] if varied[j] else 0)]
        what[at, 0], what[at, 1], what[at, 2], what[at, 3], what[at, 4] = size[1], j, index[k], attempt[k], n
        size[0] += 1
        size[1] += 1
        while at > 0 and _before(time, what, at, (at - 1) // 2):
            _swap(time, what, at, (at - 1) // 2)
            at = (at - 1) // 2


@compiled
def _end(
    time: F64, what: I64, size: I64, demand: I64, queue: I64, load: I64, used: I64, running: I64, left: I64, ended: F64
) -> I64:
    now = time[0]
    found = np.empty((64, 3), np.int64)
    count = 0
    while size[0] > 0 and time[0] == now:
        if count == found.shape[0]:
            more = np.empty((2 * count, 3), np.int64)
            more[:count] = found
            found = more
        j, n = what[0, 1], what[0, 4]
        found[count, 0], found[count, 1], found[count, 2] = j, what[0, 2], what[0, 3]
        count += 1
        for r in range(demand.shape[1]):
            load[n, r] -= demand[j, r]
            used[queue[j], r] -= demand[j, r]
        running[queue[j]] -= 1
        left[j] -= 1
        if left[j] == 0:
            ended[j] = now
        size[0] -= 1
        last = size[0]
        time[0] = time[last]
        for k in range(5):
            what[0, k] = what[last, k]
        at = 0
        while True:
            child = 2 * at + 1
            if child >= last:
                break
            if child + 1 < last and _before(time, what, child + 1, child):
                child += 1
            if not _before(time, what, child, at):
                break
            _swap(time, what, at, child)
            at = child
    return found[:count]
