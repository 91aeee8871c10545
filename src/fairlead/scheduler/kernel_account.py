"""What facts about tasks do to the state: resources taken and given back, jobs moved in and out of their buckets.

Each function goes through the columns of one fact. Where a task is not in the state that the fact says, it stops and
returns the position; -1 means that all was applied.
"""

import numpy as np

from fairlead.compiled import compiled
from fairlead.outcomes import Outcome
from fairlead.scheduler.tables import (
    CANCELLED,
    EXPIRING,
    FAILED,
    I64,
    NONE,
    PLACED,
    REVOKING,
    RUNNING,
    STOPPING,
    SUCCEEDED,
    WAITING,
    Buckets,
    Jobs,
    Nodes,
    Queues,
    Shapes,
    Tasks,
)

# Compiled code wants plain numbers.
EXITED, NOT_STARTED = int(Outcome.EXITED), int(Outcome.NOT_STARTED)
LOST, TIME_LIMIT = int(Outcome.LOST), int(Outcome.TIME_LIMIT)


@compiled
def rows_of(job: I64, first: int, row_of_job: I64) -> I64:
    """The rows of jobs, NONE where there is none; `row_of_job[0]` is for the job with the number `first`."""
    rows = np.full(job.shape[0], NONE, np.int64)
    for k in range(job.shape[0]):
        if 0 <= job[k] - first < row_of_job.shape[0]:
            rows[k] = row_of_job[job[k] - first]
    return rows


@compiled
def enter_bucket(buckets: Buckets, jobs: Jobs, job: int, bucket: int) -> None:
    """Put a job into its bucket's list, by job number. New jobs come last; returned ones are near the front."""
    after, before = NONE, buckets.tail[bucket]
    if before != NONE and jobs.id[before] > jobs.id[job]:
        after, before = buckets.head[bucket], NONE
        while after != NONE and jobs.id[after] < jobs.id[job]:
            before, after = after, jobs.after[after]
    jobs.after[job], jobs.before[job], jobs.bucket[job] = after, before, bucket
    if before == NONE:
        buckets.head[bucket] = job
    else:
        jobs.after[before] = job
    if after == NONE:
        buckets.tail[bucket] = job
    else:
        jobs.before[after] = job
    if jobs.holding[job] > 0:
        buckets.started[bucket] += 1


@compiled
def leave_bucket(buckets: Buckets, jobs: Jobs, job: int) -> None:
    bucket, after, before = jobs.bucket[job], jobs.after[job], jobs.before[job]
    if before == NONE:
        buckets.head[bucket] = after
    else:
        jobs.after[before] = after
    if after == NONE:
        buckets.tail[bucket] = before
    else:
        jobs.before[after] = before
    if jobs.holding[job] > 0:
        buckets.started[bucket] -= 1
    jobs.bucket[job] = NONE
    jobs.after[job] = NONE
    jobs.before[job] = NONE


@compiled
def placed(
    nodes: Nodes, queues: Queues, shapes: Shapes, buckets: Buckets, jobs: Jobs, tasks: Tasks,
    job: I64, index: I64, attempt: I64, node: I64,
) -> int:  # fmt: skip
    """Apply TasksPlaced; `job` holds rows."""
    for k in range(job.shape[0]):
        j, n = job[k], node[k]
        if j < 0 or index[k] < 0 or index[k] >= jobs.tasks[j] or n < 0 or n >= nodes.n or not nodes.up[n]:
            return k
        t = jobs.first[j] + index[k]
        if tasks.status[t] != WAITING or attempt[k] != tasks.attempt[t] + 1:
            return k
        demand = shapes.demand[jobs.shape[j]]
        for r in range(demand.shape[0]):
            if demand[r] > 0 and nodes.free[n, r] < demand[r]:
                return k
        nodes.free[n] -= demand
        tasks.status[t] = PLACED
        tasks.attempt[t] = attempt[k]
        tasks.node[t] = n
        tasks.started_at[t] = np.nan
        jobs.waiting[j] -= 1
        jobs.holding[j] += 1
        jobs.next[j] = max(jobs.next[j], index[k] + 1)
        if jobs.holding[j] == 1 and jobs.bucket[j] != NONE:
            buckets.started[jobs.bucket[j]] += 1
        q = jobs.queue[j]
        while q != NONE:
            queues.used[q] += demand
            queues.tasks[q] += 1
            if jobs.holding[j] == 1:
                queues.jobs[q] += 1
            q = queues.parent[q]
        if jobs.bucket[j] != NONE:
            buckets.passed_since[jobs.bucket[j]] = np.nan
            if jobs.waiting[j] == 0 or jobs.gang[j]:
                leave_bucket(buckets, jobs, j)
    return -1


@compiled
def started(jobs: Jobs, tasks: Tasks, job: I64, index: I64, attempt: I64, at: float) -> int:
    """Apply TasksStarted; `job` holds rows."""
    for k in range(job.shape[0]):
        j = job[k]
        if j < 0 or index[k] < 0 or index[k] >= jobs.tasks[j]:
            return k
        t = jobs.first[j] + index[k]
        if tasks.attempt[t] != attempt[k] or tasks.status[t] < PLACED or tasks.status[t] > REVOKING:
            return k
        if tasks.status[t] == PLACED:
            tasks.status[t] = RUNNING
        tasks.started_at[t] = at
    return -1


@compiled
def finished(
    nodes: Nodes, queues: Queues, shapes: Shapes, buckets: Buckets, jobs: Jobs, tasks: Tasks,
    job: I64, index: I64, attempt: I64, outcome: I64, code: I64, at: float, max_losses: int, touched: I64,
) -> int:  # fmt: skip
    """Apply the end of attempts; `job` holds rows. `touched[k]` becomes the job's row if it ended or waits again.

    A task that was being stopped is cancelled, one whose time was over has failed, one that was being revoked waits again,
    unless it had done its work. A lost task waits again until it was lost `max_losses` times, one that failed until it
    did so more often than its job's `retries`.
    """
    for k in range(job.shape[0]):
        touched[k] = NONE
        j = job[k]
        if j < 0 or index[k] < 0 or index[k] >= jobs.tasks[j]:
            return k
        t = jobs.first[j] + index[k]
        was = tasks.status[t]
        if tasks.attempt[t] != attempt[k] or was < PLACED or was > REVOKING:
            return k
        good = outcome[k] == EXITED and code[k] == 0
        if good:
            now = SUCCEEDED
        elif was == STOPPING:
            now = CANCELLED
        elif was == EXPIRING:
            now = FAILED
        elif outcome[k] == LOST:
            tasks.losses[t] += 1
            now = FAILED if tasks.losses[t] >= max_losses else WAITING
        elif was == REVOKING:
            now = WAITING
        elif outcome[k] != NOT_STARTED and tasks.failures[t] < jobs.retries[j]:
            tasks.failures[t] += 1
            now = WAITING
        else:
            now = FAILED

        n = tasks.node[t]
        demand = shapes.demand[jobs.shape[j]]
        nodes.free[n] += demand
        nodes.fresh[n] = True
        jobs.holding[j] -= 1
        idle = jobs.holding[j] == 0
        if idle and jobs.bucket[j] != NONE:
            buckets.started[jobs.bucket[j]] -= 1
        q = jobs.queue[j]
        while q != NONE:
            queues.used[q] -= demand
            queues.tasks[q] -= 1
            if idle:
                queues.jobs[q] -= 1
            q = queues.parent[q]

        tasks.status[t] = now
        tasks.outcome[t] = TIME_LIMIT if was == EXPIRING and not good else outcome[k]
        tasks.code[t] = code[k]
        tasks.finished_at[t] = at
        if now == WAITING:
            tasks.finished_at[t] = np.nan
            jobs.waiting[j] += 1
            jobs.irregular[j] = True
        elif now == FAILED:
            jobs.failed[j] += 1
        elif now == CANCELLED:
            jobs.cancelled[j] += 1
        if now == WAITING or idle:
            touched[k] = j
    return -1
