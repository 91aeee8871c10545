"""Attempts as facts and engines name them (job, index and number, a column each), and the rows of the tables that they are.

An attempt is current if it is the latest of its task, and holds resources.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_room import INDEX, JOB, NODE
from fairlead.scheduler.statuses import PLACED, REVOKING
from fairlead.scheduler.tables import I64, NONE


@compiled
def rows_of(job: I64, first: int, row_of_job: I64) -> I64:
    """The rows of jobs, NONE where there is none; `row_of_job[0]` is for the job with the number `first`."""
    rows = np.full(job.shape[0], NONE, np.int64)
    for k in range(job.shape[0]):
        if 0 <= job[k] - first < row_of_job.shape[0]:
            rows[k] = row_of_job[job[k] - first]
    return rows


@compiled
def current_tasks(v: View, job: I64, index: I64, number: I64, first: int, row_of_job: I64) -> I64:
    """The task rows of current attempts, NONE for others; `first` and `row_of_job` as in :func:`rows_of`."""
    found = rows_of(job, first, row_of_job)
    for k in range(job.shape[0]):
        row, found[k] = found[k], NONE
        if row != NONE and 0 <= index[k] < v.jobs.tasks[row]:
            task = v.jobs.first[row] + index[k]
            status = v.tasks.status[task]
            if v.tasks.attempt[task] == number[k] and PLACED <= status <= REVOKING:
                found[k] = task
    return found


@compiled
def first_mentions(v: View, tasks: I64, status: int) -> I64:
    """Where in the array each task row is first, in order: of those with this status, or of all with NONE. NONE is no row."""
    chosen = np.zeros(tasks.shape[0], np.bool_)
    last, rising = NONE, True
    for k in range(tasks.shape[0]):
        if tasks[k] != NONE and (status == NONE or v.tasks.status[tasks[k]] == status):
            chosen[k] = True
            rising &= tasks[k] > last
            last = tasks[k]
    if not rising:
        order = np.argsort(tasks, kind="mergesort")
        for k in range(1, len(order)):
            if tasks[order[k]] == tasks[order[k - 1]]:
                chosen[order[k]] = False
    return np.flatnonzero(chosen)


@compiled
def limited(v: View, rows: I64) -> I64:
    """Which of these jobs' tasks may run for so long only."""
    return np.flatnonzero(v.jobs.time_limit[rows] < np.inf)


@compiled
def chosen_attempts(v: View, count: int) -> tuple[I64, bool]:
    """What a cycle placed, as columns: job, index, number and node.

    The second answer is whether there are jobs among them whose waiting tasks have gaps between: of those, neither index nor
    number is right yet.
    """
    columns, gaps = np.empty((4, count), np.int64), False
    for k in range(count):
        row, index = v.chosen[JOB, k], v.chosen[INDEX, k]
        number = 0
        if v.jobs.irregular[row]:
            gaps = True
        else:
            number = v.tasks.attempt[v.jobs.first[row] + index] + 1
        columns[0, k], columns[1, k], columns[2, k], columns[3, k] = v.jobs.id[row], index, number, v.chosen[NODE, k]
    return columns, gaps
