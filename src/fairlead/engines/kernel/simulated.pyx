"""The running tasks of a simulated cluster: a heap of ends, and their real usage."""

from libc.math cimport INFINITY, isnan
from simulated_constants cimport *

from fairlead.scheduler.kernel.scheduling cimport Arrays, address_of, flag, i64

import numpy as np

from fairlead.engines.kernel.declared import RUNS, TRUTH
from fairlead.scheduler.tables import longer as longer_column

include "simulated_types.pxi"


def no_runs(length):
    """Return empty rows for `length` tasks."""
    columns = {name: np.zeros(length, kind) for name, (kind, _) in RUNS.items()}
    return Runs(**{**columns, "heap": np.arange(length)})


def longer(Runs runs, length):
    """Return a copy with `length` rows."""
    old = len(runs.arrays["heap"])
    columns = {name: longer_column(column, old, length) for name, column in runs.arrays.items()}
    columns["heap"][old:] = np.arange(old, length)
    return Runs(**columns)



cpdef void submit(Truth truth, i64 job, i64 tasks, double now) noexcept nogil:
    """Submit a job's tasks now."""
    truth.submitted[job] = now
    truth.left[job] = tasks
    hold_back(truth, job, -tasks)


cpdef void hold_back(Truth truth, i64 job, i64 tasks) noexcept nogil:
    """Exclude submitted tasks from pending ones, since they depend on other jobs; negative: include them again."""
    cdef i64 m = truth.cols_demand
    if not truth.never[job]:
        q = truth.queue[job]
        truth.waiting[q] -= tasks
        for r in range(m):
            truth.waits[q * m + r] -= tasks * truth.demand[job * m + r]


cpdef double next_end(Truth truth, Runs runs) noexcept nogil:
    """Return when the next task ends; inf if none runs."""
    return runs.time[runs.heap[0]] if truth.size[RUNNING] > 0 else INFINITY


cdef bint _before(Runs runs, i64 a, i64 b) noexcept nogil:
    if runs.time[a] != runs.time[b]:
        return runs.time[a] < runs.time[b]
    return runs.order[a] < runs.order[b]


cdef void _sift(Runs runs, i64 size, i64 position) noexcept nogil:
    """Restore the heap order of the entry at `position`."""
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


cdef void _set_pace(Truth truth, Runs runs, i64 n, double now) noexcept nogil:
    """Adapt the speed of a node's tasks to its changed load."""
    cdef i64 m = truth.cols_demand
    slower = 1.0
    for r in range(m):
        if truth.capacity[n * m + r] > 0 and truth.load[n * m + r] > truth.capacity[n * m + r]:
            slower = max(slower, <double>truth.load[n * m + r] / truth.capacity[n * m + r])
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


cdef void _add_up(Truth truth, i64 q, double now) noexcept nogil:
    """Integrate a queue's share, and what it uses, until now, before its usage changes."""
    cdef i64 m = truth.cols_demand
    cdef double share = 0.0, seconds = now - truth.since[q]
    if seconds == 0.0:
        return
    for r in range(m):
        truth.held[q * m + r] += seconds * truth.used[q * m + r]
        if truth.total[r] > 0:
            share = max(share, <double>truth.used[q * m + r] / truth.total[r])
    truth.got[q] += share * seconds
    truth.since[q] = now


def add_up(Truth truth, double now):
    """Integrate the shares of all queues, and what they use, until now."""
    for q in range(truth.len_got):
        _add_up(truth, q, now)


cdef void _take_away(Truth truth, Runs runs, i64 run, double now) noexcept nogil:
    """Remove a running task and free its row; its columns stay readable until the next start."""
    cdef i64 m = truth.cols_demand
    j, n, q = runs.job[run], runs.node[run], truth.queue[runs.job[run]]
    _add_up(truth, q, now)
    for r in range(m):
        truth.load[n * m + r] -= truth.demand[j * m + r]
        truth.used[q * m + r] -= truth.demand[j * m + r]
    truth.running[q] -= 1
    truth.size[RUNNING] -= 1
    size, position = truth.size[RUNNING], runs.place[run]
    # Free rows follow those in use, the last freed first.
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


cdef i64 _find(Truth truth, Runs runs, i64 job, i64 index, i64 attempt) noexcept nogil:
    """Return the row of a running attempt, or NONE."""
    for k in range(truth.size[RUNNING]):
        run = runs.heap[k]
        if runs.job[run] == job and runs.index[run] == index and runs.attempt[run] == attempt:
            return run
    return NONE


cpdef void drop_node(Truth truth, Runs runs, i64 n, double now) noexcept nogil:
    """Lose all tasks on a node."""
    while truth.first_run[n] != NONE:
        run = truth.first_run[n]
        _take_away(truth, runs, run, now)
        hold_back(truth, runs.job[run], -1)
    truth.pace[n] = 1.0


cdef void start(Truth truth, Runs runs, i64 count, i64 *job, i64 *index, i64 *attempt, i64 *node, double now) noexcept nogil:
    """Start attempts; rows must be free for all."""
    for k in range(count):
        _start(truth, runs, job[k], index[k], attempt[k], node[k], now)


cdef void _start(Truth truth, Runs runs, i64 j, i64 index, i64 attempt, i64 n, double now) noexcept nogil:
    cdef i64 m = truth.cols_demand
    q = truth.queue[j]
    _add_up(truth, q, now)
    for r in range(m):
        truth.load[n * m + r] += truth.demand[j * m + r]
        truth.used[q * m + r] += truth.demand[j * m + r]
        truth.waits[q * m + r] -= truth.demand[j * m + r]
    truth.running[q] += 1
    truth.waiting[q] -= 1
    if isnan(truth.begun[j]):
        truth.begun[j] = now
    truth.waited[j] += now - truth.submitted[j]
    at = truth.size[RUNNING]
    run = runs.heap[at]
    work = truth.duration[truth.first[j] + index % truth.several[j]]
    runs.job[run], runs.index[run], runs.attempt[run], runs.node[run] = j, index, attempt, n
    runs.order[run], runs.since[run], runs.work[run], runs.stopped[run] = truth.size[STARTED], now, work, INFINITY
    runs.time[run] = now + truth.pace[n] * work
    truth.last[truth.task[j] + index] = attempt
    truth.size[RUNNING] += 1
    truth.size[STARTED] += 1
    _sift(runs, truth.size[RUNNING], at)
    runs.before[run], runs.after[run] = NONE, truth.first_run[n]
    if truth.first_run[n] != NONE:
        runs.before[truth.first_run[n]] = run
    truth.first_run[n] = run
    if truth.size[OVERCOMMITTED]:
        _set_pace(truth, runs, n, now)


cdef i64 end_into(Truth truth, Runs runs, double now, i64 *ends, i64 room) noexcept nogil:
    """End the tasks due now: write jobs, indices, attempts, outcomes and codes as rows of `ends`. Return their number.

    A row has `room` entries; stops when they are full.
    """
    cdef i64 count = 0
    cdef bint by_itself
    while count < room and truth.size[RUNNING] > 0 and runs.time[runs.heap[0]] <= now:
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
            hold_back(truth, j, -1)
        ends[count], ends[room + count], ends[2 * room + count] = j, runs.index[run], runs.attempt[run]
        ends[3 * room + count] = EXITED if by_itself else SIGNALLED
        ends[4 * room + count] = 0 if by_itself else SIGTERM
        count += 1
        if truth.size[OVERCOMMITTED]:
            _set_pace(truth, runs, runs.node[run], now)
    return count


def end(Truth truth, Runs runs, double now):
    """End the tasks due now. Return job numbers, indices, attempts, outcomes and codes, a row each."""
    ends = np.empty((5, truth.size[RUNNING]), np.int64)
    cdef i64[:, ::1] room = ends
    count = end_into(truth, runs, now, &room[0, 0], room.shape[1]) if room.shape[1] > 0 else 0
    ends[0] += 1
    return ends[:, :count].copy()


def start_new(
    Truth truth, Runs runs, const i64[::1] number, const i64[::1] index, const i64[::1] attempt, const i64[::1] machines,
    const i64[::1] place, double now,
):
    """Start the attempts that were not requested to start or stop before and whose nodes are up. Return which.

    `number` holds job numbers; attempt k is for `machines[place[k]]`. Rows must be free for all.
    """
    cdef i64 k
    fine = np.zeros(number.shape[0], np.bool_)
    cdef unsigned char[::1] chosen = fine.view(np.uint8)
    for k in range(number.shape[0]):  # choose all first: a duplicate within one call starts twice
        chosen[k] = attempt[k] > truth.last[truth.task[number[k] - 1] + index[k]] and not truth.down[machines[place[k]]]
    for k in range(number.shape[0]):
        if chosen[k]:
            _start(truth, runs, number[k] - 1, index[k], attempt[k], machines[place[k]], now)
    return np.flatnonzero(fine)


def start_all(
    Truth truth, Runs runs, const i64[::1] job, const i64[::1] index, const i64[::1] attempt, const i64[::1] node, double now
):
    """Start attempts of jobs by row; rows must be free for all."""
    cdef i64 k
    for k in range(job.shape[0]):
        _start(truth, runs, job[k], index[k], attempt[k], node[k], now)


def stop(
    Truth truth, Runs runs, const i64[::1] job, const i64[::1] index, const i64[::1] attempt, double now, double grace
):
    """Stop attempts within a grace. Return which of them never started, and never will."""
    cdef i64 k
    never = np.zeros(job.shape[0], np.bool_)
    cdef unsigned char[::1] told = never.view(np.uint8)
    for k in range(job.shape[0]):
        told[k] = _stop(truth, runs, job[k], index[k], attempt[k], now, grace)
    return never


cdef bint _stop(Truth truth, Runs runs, i64 job, i64 index, i64 attempt, double now, double grace) noexcept nogil:
    cdef bint never
    run = _find(truth, runs, job, index, attempt)
    task = truth.task[job] + index
    if run == NONE:
        never = attempt > truth.last[task]
        truth.last[task] = max(truth.last[task], attempt)
        return never
    if runs.stopped[run] == INFINITY:
        runs.stopped[run] = now + grace
        runs.time[run] = min(runs.time[run], runs.stopped[run])
        _sift(runs, truth.size[RUNNING], runs.place[run])
    return False
