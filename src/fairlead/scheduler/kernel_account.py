"""What facts about tasks do to the state: resources taken and given back, jobs moved in and out of their buckets.

Each function goes through the columns of one fact. Where a task is not in the state that the fact says, it stops and
returns the position; -1 means that all was applied.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.outcomes import Outcome
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_history import count_use
from fairlead.scheduler.kernel_nodes import room_came_back
from fairlead.scheduler.kernel_order import touch_bucket, touch_queue
from fairlead.scheduler.kernel_sketches import let_go, note_duration
from fairlead.scheduler.statuses import (
    CANCELLED,
    DONE,
    EXPIRING,
    FAIL,
    FAILED,
    GIVE_UP,
    IMPOSSIBLE,
    LOSE,
    NOT_BEGUN,
    PLACE,
    PLACED,
    RETRY,
    REVOKING,
    RUNNING,
    START,
    TRANSITIONS,
    WAITING,
    YIELDED,
)
from fairlead.scheduler.tables import I64, NONE
from fairlead.scheduler.view import ENDED, HOLDS, IN_ORDER, NODES

_AFTER = np.array(TRANSITIONS, np.int64)
EXITED, LOST, NOT_STARTED = int(Outcome.EXITED), int(Outcome.LOST), int(Outcome.NOT_STARTED)
STOPPED, TIME_LIMIT = int(Outcome.STOPPED), int(Outcome.TIME_LIMIT)


@compiled
def enter_bucket(v: View, job: int, bucket: int) -> None:
    """Put a job into its bucket's list, by job number. New jobs come last; returned ones are near the front."""
    jobs, buckets = v.jobs, v.buckets
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
    if v.counts[IN_ORDER]:
        touch_bucket(v, bucket)


@compiled
def leave_bucket(v: View, job: int) -> None:
    """Take a job out of its bucket; what is kept for it, or for the last of the bucket, is kept no longer."""
    jobs, buckets = v.jobs, v.buckets
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
    if buckets.head[bucket] == NONE:
        buckets.passed_since[bucket] = np.nan
    if v.counts[HOLDS] > 0 and (buckets.head[bucket] == NONE or buckets.gang[bucket] > 0):
        drop_holds(v, bucket, NONE)
    if v.counts[IN_ORDER]:
        if buckets.head[bucket] == NONE:
            v.bucket_seats.parked[bucket] = False  # nobody looks for room for it meanwhile
        touch_bucket(v, bucket)


@compiled
def keep_nodes(v: View, bucket: int, job: int, nodes: I64, tasks: I64, kind: int, at: float) -> None:
    """Keep room on nodes for tasks of a job. There are rows for that."""
    demand = v.demand[v.buckets.shape_row[bucket]]
    for k in range(nodes.shape[0]):
        h = v.counts[HOLDS]
        v.counts[HOLDS] += 1
        v.holds.kind[h], v.holds.node[h], v.holds.bucket[h], v.holds.job[h] = kind, nodes[k], bucket, job
        v.holds.tasks[h], v.holds.start[h], v.holds.end[h] = tasks[k], at, np.inf
        v.amount[h] = tasks[k] * demand
        v.held[nodes[k]] += v.amount[h]
    if v.counts[IN_ORDER]:
        v.bucket_seats.keeping[bucket] = v.queue_seats.keeping[v.buckets.leaf[bucket]] = True
        v.bucket_seats.parked[bucket] = False
        touch_bucket(v, bucket)


@compiled
def drop_holds(v: View, bucket: int, node: int) -> bool:
    """Keep nothing for a bucket any more; with NONE, for whoever has something kept on the node.

    Returns whether there was something.
    """
    found = False
    while True:
        owner = NONE
        for h in range(v.counts[HOLDS]):
            if v.holds.bucket[h] == bucket or (bucket == NONE and v.holds.node[h] == node):
                owner = v.holds.bucket[h]
        if owner == NONE:
            return found
        found = True
        left = 0
        for h in range(v.counts[HOLDS]):
            if v.holds.bucket[h] == owner:
                v.held[v.holds.node[h]] -= v.amount[h]
                if v.counts[IN_ORDER]:
                    room_came_back(v, v.holds.node[h])
            else:
                v.holds[left] = v.holds[h]
                v.amount[left] = v.amount[h]
                left += 1
        v.counts[HOLDS] = left
        v.buckets.passed_since[owner] = np.nan
        if v.counts[IN_ORDER]:
            v.bucket_seats.keeping[owner] = v.queue_seats.keeping[v.buckets.leaf[owner]] = False
            v.bucket_seats.parked[owner] = False  # a gang looked at no other nodes while it had these
            touch_bucket(v, owner)


@compiled
def _wake_owners(v: View, n: int) -> None:
    """Whoever has room kept on a node may find it there now."""
    for h in range(v.counts[HOLDS]):
        if v.holds.node[h] == n:
            v.bucket_seats.parked[v.holds.bucket[h]] = False
            touch_bucket(v, v.holds.bucket[h])


@compiled
def placed(v: View, job: I64, index: I64, attempt: I64, node: I64, at: float) -> int:
    """Apply TasksPlaced; `job` holds rows."""
    jobs, tasks = v.jobs, v.tasks
    for k in range(job.shape[0]):
        j, n = job[k], node[k]
        if j < 0 or index[k] < 0 or index[k] >= jobs.tasks[j] or n < 0 or n >= v.counts[NODES] or not v.nodes.up[n]:
            return k
        t = jobs.first[j] + index[k]
        if tasks.status[t] != WAITING or attempt[k] != tasks.attempt[t] + 1:
            return k
        demand = v.demand[jobs.shape_row[j]]
        for r in range(demand.shape[0]):
            if demand[r] > 0 and v.free[n, r] < demand[r]:
                return k
        tasks.status[t] = _AFTER[WAITING, PLACE]
        tasks.attempt[t] = attempt[k]
        tasks.node[t] = n
        tasks.started_at[t] = np.nan
        jobs.waiting[j] -= 1
        jobs.holding[j] += 1
        jobs.next[j] = max(jobs.next[j], index[k] + 1)
        _take(v, n, j, 1, at)
        bucket = jobs.bucket[j]
        if bucket != NONE:
            if jobs.holding[j] == 1:
                v.buckets.started[bucket] += 1
            v.buckets.passed_since[bucket] = np.nan
            if v.counts[HOLDS] > 0:
                drop_holds(v, bucket, NONE)
            if jobs.waiting[j] == 0 or jobs.gang[j]:
                leave_bucket(v, j)
            elif v.counts[IN_ORDER]:
                touch_bucket(v, bucket)
    return -1


@compiled
def _take(v: View, n: int, j: int, sign: int, at: float) -> None:
    """A task of job j takes its demand of node n (sign 1), or gives it back (-1); holding counts it already, or no more."""
    demand = v.demand[v.jobs.shape_row[j]]
    first = v.jobs.holding[j] == (1 if sign > 0 else 0)
    for r in range(demand.shape[0]):
        v.free[n, r] -= sign * demand[r]
    q = v.jobs.queue[j]
    if v.counts[IN_ORDER]:
        touch_queue(v, q)
        if sign < 0:
            room_came_back(v, n)
            _wake_owners(v, n)
    turn = v.queues.served[0] + 1
    while q != NONE:
        p = v.queues.parent[q]
        if p != NONE and v.queues.tick[p] > 0.0:
            count_use(v, q, at)
        for r in range(demand.shape[0]):
            v.used[q, r] += sign * demand[r]
        v.queues.tasks[q] += sign
        if first:
            v.queues.jobs[q] += sign
        if sign > 0:
            v.queues.served[q] = turn
            if v.counts[IN_ORDER]:
                v.queue_seats.turn[q] = turn
        q = p


@compiled
def started(v: View, job: I64, index: I64, attempt: I64, at: float) -> int:
    """Apply TasksStarted; `job` holds rows."""
    jobs, tasks = v.jobs, v.tasks
    for k in range(job.shape[0]):
        j = job[k]
        if j < 0 or index[k] < 0 or index[k] >= jobs.tasks[j]:
            return k
        t = jobs.first[j] + index[k]
        now = _AFTER[tasks.status[t], START]
        if tasks.attempt[t] != attempt[k] or now == IMPOSSIBLE:
            return k
        tasks.status[t] = now
        tasks.started_at[t] = at
    return -1


@compiled
def finished(
    v: View, job: I64, index: I64, attempt: I64, outcome: I64, code: I64, at: float, max_losses: int, touched: I64
) -> int:
    """Apply the end of attempts; `job` holds rows. `touched[k]` becomes the row of a job that is not plain and has more to it.

    What a task does after an end is said by :data:`fairlead.scheduler.statuses.TRANSITIONS`. A lost task waits again until it was
    lost `max_losses` times, one that failed until it did so more often than its job's `retries`.
    """
    jobs, tasks = v.jobs, v.tasks
    for k in range(job.shape[0]):
        touched[k] = NONE
        j = job[k]
        if j < 0 or index[k] < 0 or index[k] >= jobs.tasks[j]:
            return k
        t = jobs.first[j] + index[k]
        was = tasks.status[t]
        if tasks.attempt[t] != attempt[k] or was < PLACED or was > REVOKING:
            return k
        event = _end_event(v, j, t, outcome[k], code[k], max_losses)
        now = _AFTER[was, event]
        jobs.holding[j] -= 1
        idle = jobs.holding[j] == 0
        if idle and jobs.bucket[j] != NONE:
            v.buckets.started[jobs.bucket[j]] -= 1
            if v.counts[IN_ORDER]:
                touch_bucket(v, jobs.bucket[j])
        _take(v, tasks.node[t], j, -1, at)
        if _ended_by_itself(was, outcome[k], code[k]):
            note_duration(v, j, index[k], at - tasks.started_at[t], at)
        tasks.status[t] = now
        tasks.outcome[t] = TIME_LIMIT if was == EXPIRING and event != DONE else outcome[k]
        tasks.code[t] = code[k]
        tasks.finished_at[t] = at if now != WAITING else np.nan
        if now == WAITING:
            jobs.waiting[j] += 1
            jobs.irregular[j] = True
        elif now == FAILED:
            jobs.failed[j] += 1
        elif now == CANCELLED:
            jobs.cancelled[j] += 1
        if now == WAITING or idle:
            if jobs.plain[j]:
                _settle(v, j, at)
            else:
                touched[k] = j
    return -1


@compiled
def _end_event(v: View, j: int, t: int, outcome: int, code: int, max_losses: int) -> int:
    """What the end of an attempt is, for the table of transitions."""
    tasks = v.tasks
    if outcome == EXITED and code == 0:
        return DONE
    if outcome == STOPPED and code == 0:
        return DONE if v.jobs.exit_done[j] and tasks.status[t] == REVOKING else YIELDED
    if outcome == NOT_STARTED:
        return NOT_BEGUN
    if outcome == LOST:
        tasks.losses[t] += 1
        return GIVE_UP if tasks.losses[t] >= max_losses else LOSE
    if tasks.status[t] in (PLACED, RUNNING) and tasks.failures[t] < v.jobs.retries[j]:
        tasks.failures[t] += 1
        return RETRY
    return FAIL


@compiled
def _ended_by_itself(was: int, outcome: int, code: int) -> bool:
    """Whether an attempt lasted as long as such tasks last: it was not cut off, or only at its time limit."""
    if outcome in (LOST, NOT_STARTED):
        return False
    return was in (RUNNING, EXPIRING) or (outcome == EXITED and code == 0)


@compiled
def _settle(v: View, j: int, at: float) -> None:
    """After tasks of a plain job ended or came back: it has ended, or waits in its bucket."""
    if v.jobs.waiting[j] > 0:
        if v.jobs.bucket[j] == NONE and not v.jobs.held[j]:
            enter_bucket(v, j, v.jobs.home[j])
    elif v.jobs.holding[j] == 0:
        end_job(v, j, at)


@compiled
def end_job(v: View, j: int, at: float) -> None:
    """A job has ended. There is room in the list."""
    if np.isnan(v.jobs.finished_at[j]):
        v.jobs.finished_at[j] = at
        v.ended[v.counts[ENDED]] = v.jobs.id[j]
        v.counts[ENDED] += 1
        if v.jobs.tasks[j] > 1:
            let_go(v, v.jobs.id[j])
