"""What facts about tasks do to the state: resources taken and given back, jobs moved in and out of their buckets.

Each function goes through the columns of one fact. Where a task is not in the state that the fact says, it stops and
returns the position; -1 means that all was applied.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.outcomes import Outcome
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_claims import expect_claim, is_above_limit, note_fall
from fairlead.scheduler.kernel_forecasts import usual_duration
from fairlead.scheduler.kernel_history import count_use
from fairlead.scheduler.kernel_holds import count_idle, give_back_at, lasts_at_most, set_idle
from fairlead.scheduler.kernel_keep import drop_holds, hand_on, note_end, use_hold
from fairlead.scheduler.kernel_keys import turn_of
from fairlead.scheduler.kernel_lending import set_withheld
from fairlead.scheduler.kernel_line import note_served
from fairlead.scheduler.kernel_nodes import room_came_back
from fairlead.scheduler.kernel_order import look_again, startable, touch_bucket, touch_queue
from fairlead.scheduler.kernel_sketches import NOBODYS, let_go, note_duration
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
from fairlead.scheduler.view import CLAIM_DUE, ENDED, HOLDS, IN_ORDER, NODES

_AFTER = np.array(TRANSITIONS, np.int64)
EXITED, LOST, NOT_STARTED = int(Outcome.EXITED), int(Outcome.LOST), int(Outcome.NOT_STARTED)
STOPPED, TIME_LIMIT = int(Outcome.STOPPED), int(Outcome.TIME_LIMIT)


@compiled
def enter_bucket(v: View, job: int, bucket: int, at: float) -> None:
    """Put a job into its bucket's list, by job number. New jobs come last; returned ones are near the front."""
    jobs, buckets = v.jobs, v.buckets
    if buckets.head[bucket] == NONE:
        buckets.since[bucket], buckets.put_off[bucket] = at, 0.0
    expect_claim(v, bucket, at)
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
def leave_bucket(v: View, job: int, at: float) -> None:
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
        drop_holds(v, bucket, at)
    elif v.counts[HOLDS] > 0 and before == NONE:
        hand_on(v, bucket)
    if v.counts[IN_ORDER]:
        if buckets.head[bucket] == NONE:
            v.bucket_seats.parked[bucket] = False  # nobody looks for room for it meanwhile
        touch_bucket(v, bucket)


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
        _say_until(v, j, t, n, at)
        _take(v, n, j, t, 1, at)
        bucket = jobs.bucket[j]
        if bucket != NONE:
            if jobs.holding[j] == 1:
                v.buckets.started[bucket] += 1
            if v.counts[HOLDS] == 0 or not use_hold(v, bucket, n, at):
                note_served(v, bucket, at)
            if startable(v, j) == 0 or jobs.gang[j]:
                leave_bucket(v, j, at)
            elif v.counts[IN_ORDER]:
                touch_bucket(v, bucket)
    return -1


@compiled
def _say_until(v: View, j: int, t: int, n: int, at: float) -> None:
    """Say of a task that is placed on a node with holds when it is taken to have ended."""
    v.tasks.until[t] = np.nan
    if v.nodes.hold[n] == NONE:
        return
    lasts = lasts_at_most(v, j, n, usual_duration(v, j))
    v.tasks.until[t], v.tasks.trusted[t] = at + lasts, lasts < v.jobs.time_limit[j]
    if v.tasks.trusted[t]:
        v.queues.trusted[v.jobs.queue[j]] += 1


@compiled
def _take(v: View, n: int, j: int, t: int, sign: int, at: float) -> None:
    """Task t of job j takes its demand of node n (sign 1), or gives it back (-1); holding counts it already, or no more."""
    demand = v.demand[v.jobs.shape_row[j]]
    first = v.jobs.holding[j] == (1 if sign > 0 else 0)
    has_holds = v.nodes.hold[n] != NONE
    if sign > 0:
        link_task(v, n, j, t)
    else:
        _unlink_task(v, n, t)
    if has_holds:
        count_idle(v, n, at)
    for r in range(demand.shape[0]):
        v.free[n, r] -= sign * demand[r]
    if has_holds:
        give_back_at(v, n, v.jobs.queue[j], v.jobs.shape_row[j], v.tasks.until[t], sign)
        set_idle(v, n)
    q = v.jobs.queue[j]
    if v.counts[IN_ORDER]:
        touch_queue(v, q)
        if sign < 0:
            room_came_back(v, n)
    turn = v.queues.served[0] + 1
    while q != NONE:
        p = v.queues.parent[q]
        if p != NONE and v.queues.tick[p] > 0.0:
            count_use(v, q, at)
        for r in range(demand.shape[0]):
            v.used[q, r] += sign * demand[r]
            if v.jobs.revocable[j]:
                v.spare[q, r] += sign * demand[r]
        if sign < 0 and v.queues.guaranteed[q]:
            note_fall(v, q, demand, at)
        v.queues.tasks[q] += sign
        if v.jobs.revocable[j]:
            v.queues.spare_tasks[q] += sign
        if sign > 0 and v.queues.spare_tasks[q] > 0 and is_above_limit(v, v.used, q):
            v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)  # whoever waits may have that back now
        if first:
            v.queues.jobs[q] += sign
        if sign > 0:
            v.queues.served[q] = turn
            if not v.jobs.once[j]:  # else that was counted when the room was offered
                v.queues.allocations[q] += 1
            if v.counts[IN_ORDER]:
                v.queue_seats.turn[q] = turn_of(v, q)
        q = p
    if v.queues.lends[0]:
        set_withheld(v, v.jobs.queue[j])
    if sign > 0 and v.jobs.revocable[j]:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)


@compiled
def link_task(v: View, n: int, j: int, t: int) -> None:
    """Note that task t of job row j is on a node."""
    tasks, after = v.tasks, v.nodes.task[n]
    tasks.job[t], tasks.after[t], tasks.before[t] = j, after, NONE
    if after != NONE:
        tasks.before[after] = t
    v.nodes.task[n] = t


@compiled
def _unlink_task(v: View, n: int, t: int) -> None:
    tasks, after, before = v.tasks, v.tasks.after[t], v.tasks.before[t]
    if before == NONE:
        v.nodes.task[n] = after
    else:
        tasks.after[before] = after
    if after != NONE:
        tasks.before[after] = before


@compiled
def link_tasks(v: View, tasks: I64, jobs: I64) -> None:
    """Link the tasks of all nodes anew: these hold resources, of these job rows."""
    v.nodes.task[: v.counts[NODES]] = NONE
    for k in range(len(tasks)):
        link_task(v, v.tasks.node[tasks[k]], jobs[k], tasks[k])


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
        if v.nodes.hold[tasks.node[t]] != NONE:
            note_end(v, j, t, at)
        _take(v, tasks.node[t], j, t, -1, at)
        tasks.trusted[t] = False
        if _ended_by_itself(was, outcome[k], code[k]):
            whose = note_duration(v, j, index[k], at - tasks.started_at[t], at)
            if whose != NOBODYS and v.counts[IN_ORDER]:
                look_again(v, j, whose)
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
        if jobs.bucket[j] != NONE and (now == WAITING or jobs.at_most[j] > 0):
            expect_claim(v, jobs.bucket[j], at)
        if now == WAITING or idle or jobs.at_most[j] > 0:
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
    if v.jobs.once[j]:
        return GIVE_UP
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
    """After tasks of a plain job ended or came back: it has ended, or waits in its bucket if it may run more at once."""
    if v.jobs.waiting[j] > 0:
        if v.jobs.bucket[j] == NONE and not v.jobs.held[j] and startable(v, j) > 0:
            enter_bucket(v, j, v.jobs.home[j], at)
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
