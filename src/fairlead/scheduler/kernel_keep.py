"""What facts about reservations do to the state: holds made, made anew, and dropped."""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_forecasts import set_tails
from fairlead.scheduler.kernel_holds import cautious, charge_promise, count_idle, set_held, set_idle
from fairlead.scheduler.kernel_nodes import room_came_back
from fairlead.scheduler.kernel_order import touch_bucket, touch_queue
from fairlead.scheduler.kernel_reservations import expected_end, next_rank
from fairlead.scheduler.statuses import PLACED, REVOKING
from fairlead.scheduler.tables import BINS, BROKEN, CHANGED, I64, NONE, SAME, Bools
from fairlead.scheduler.view import HOLDS, IN_ORDER, NODES


@compiled
def keep_nodes(
    v: View, bucket: int, job: int, nodes: I64, tasks: I64, kind: int, start: float, slips: int, at: float
) -> None:
    """Keep room on nodes, which rise, for tasks of a job row, and not what was kept for it before. There are rows for that."""
    rank, since, idled = next_rank(v), at, np.zeros(v.total.shape[0])
    changed = np.zeros(v.counts[NODES], np.bool_)
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == bucket:
            changed[v.holds.node[h]] = True
            rank = v.holds.rank[h]
            since = v.holds.since[h] if v.holds.slips[h] == slips else at
            count_idle(v, v.holds.node[h], at)
            idled += v.idled[h]
    _take_out(v, bucket)
    first = v.counts[HOLDS]
    end = start + cautious(v, job)
    for k in range(nodes.shape[0]):
        h = v.counts[HOLDS]
        v.counts[HOLDS] += 1
        count_idle(v, nodes[k], at)
        v.holds.kind[h], v.holds.node[h], v.holds.bucket[h], v.holds.job[h] = kind, nodes[k], bucket, v.jobs.id[job]
        v.holds.tasks[h], v.holds.rank[h], v.holds.slips[h], v.holds.start[h] = tasks[k], rank, slips, start
        v.holds.end[h], v.holds.since[h], v.holds.planned[h], v.holds.counted[h] = end, since, at, at
        v.holds.change[h] = SAME
        v.amount[h] = tasks[k] * v.demand[v.buckets.shape_row[bucket]]
        v.idle[h] = v.idled[h] = 0
        v.nodes.holds[nodes[k]] += 1
        changed[nodes[k]] = True
    v.idled[first] = idled
    _break(v, changed, rank)
    _look_ahead(v, changed, rank, at)
    _set_again(v, changed)
    if v.counts[IN_ORDER]:
        v.bucket_seats.keeping[bucket] = v.queue_seats.keeping[v.buckets.leaf[bucket]] = True
        v.bucket_seats.parked[bucket] = False
        touch_bucket(v, bucket)


@compiled
def drop_holds(v: View, bucket: int, at: float) -> bool:
    """Keep nothing for a bucket any more; whether there was something."""
    changed, found, leaf = np.zeros(v.counts[NODES], np.bool_), False, v.buckets.leaf[bucket]
    rank = 0
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == bucket:
            found, rank = True, v.holds.rank[h]
            changed[v.holds.node[h]] = True
            count_idle(v, v.holds.node[h], at)
            v.idled_before[leaf] += v.idled[h]
    if found:
        _take_out(v, bucket)
        _break(v, changed, rank)
        _set_again(v, changed)
        v.buckets.passed_since[bucket] = np.nan
        if v.counts[IN_ORDER]:
            v.bucket_seats.keeping[bucket] = v.queue_seats.keeping[leaf] = False
            v.bucket_seats.parked[bucket] = False
            touch_bucket(v, bucket)
    return found


@compiled
def drop_holds_on(v: View, node: int, at: float) -> None:
    """A node takes nobody any more: whoever had room kept there has none kept, but is due at once for a new plan."""
    while v.nodes.holds[node] > 0:
        owner = NONE
        for h in range(v.counts[HOLDS]):
            if v.holds.node[h] == node:
                owner = v.holds.bucket[h]
        since = v.buckets.passed_since[owner]
        drop_holds(v, owner, at)
        v.buckets.passed_since[owner] = since


@compiled
def note_end(v: View, j: int, t: int, at: float) -> None:
    """A task on a node with holds ends: whether it did what was counted on."""
    n, until = v.tasks.node[t], v.tasks.until[t]
    _note_overrun(v, j, t, at)
    for h in range(v.counts[HOLDS]):
        if v.holds.node[h] == n and at < until:
            v.holds.change[h] = max(v.holds.change[h], CHANGED)


@compiled
def _note_overrun(v: View, j: int, t: int, at: float) -> None:
    """A task that is not over when its cautious forecast is counts against its queue, once."""
    if v.tasks.trusted[t] and at > v.tasks.until[t]:
        v.queues.overran[v.jobs.queue[j]] += 1
        v.tasks.trusted[t] = False


@compiled
def _take_out(v: View, bucket: int) -> None:
    """Take the rows of a bucket's holds out of the table; what is charged for them is so no more."""
    left = 0
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == bucket:
            v.nodes.holds[v.holds.node[h]] -= 1
            for r in range(v.total.shape[0]):
                charge_promise(v, h, r, -v.idle[h, r])
        else:
            v.holds[left] = v.holds[h]
            v.amount[left], v.back[left] = v.amount[h], v.back[h]
            v.idle[left], v.idled[left] = v.idle[h], v.idled[h]
            left += 1
    for h in range(left, v.counts[HOLDS]):
        v.back[h] = 0
    v.counts[HOLDS] = left
    if v.counts[IN_ORDER]:
        touch_queue(v, v.buckets.leaf[bucket])


@compiled
def _break(v: View, changed: Bools, rank: int) -> None:
    """What a reservation kept on some nodes is another now: those after it there are to be planned anew, those before may be."""
    for h in range(v.counts[HOLDS]):
        if changed[v.holds.node[h]] and v.holds.rank[h] != rank:
            change = BROKEN if v.holds.rank[h] > rank else CHANGED
            v.holds.change[h] = max(v.holds.change[h], change)


@compiled
def _look_ahead(v: View, changed: Bools, rank: int, at: float) -> None:
    """Say of what runs on some nodes when it is taken to have ended, and what that gives back for all holds there."""
    for h in range(v.counts[HOLDS]):
        if changed[v.holds.node[h]]:
            v.back[h] = 0
            v.holds.review[h] = np.inf
    tails = np.empty((3, BINS + 1))
    for j in range(len(v.jobs)):
        longest, left = -1.0, v.jobs.holding[j]
        for t in range(v.jobs.first[j], v.jobs.first[j] + v.jobs.tasks[j]):
            if left == 0:
                break
            if v.tasks.status[t] < PLACED or v.tasks.status[t] > REVOKING:
                continue
            left -= 1
            if changed[v.tasks.node[t]]:
                if longest < 0.0:
                    longest = set_tails(v, j, tails)
                _note_overrun(v, j, t, at)
                until = expected_end(v, j, t, rank, at, tails, longest)
                if until != v.tasks.until[t]:
                    v.tasks.until[t], v.tasks.trusted[t] = until, False
                _count_on(v, j, t)


@compiled
def _count_on(v: View, j: int, t: int) -> None:
    """Count a task for the holds on its node: what it gives back until their starts, and when that is to be seen."""
    for h in range(v.counts[HOLDS]):
        if v.holds.node[h] == v.tasks.node[t] and v.tasks.until[t] <= v.holds.start[h]:
            v.back[h] += v.demand[v.jobs.shape_row[j]]
            v.holds.review[h] = min(v.holds.review[h], v.tasks.until[t])


@compiled
def _set_again(v: View, changed: Bools) -> None:
    """Work out what is held on some nodes; whoever waits may have more room there."""
    for n in range(v.counts[NODES]):
        if changed[n]:
            set_held(v, n)
            set_idle(v, n)
            if v.counts[IN_ORDER]:
                room_came_back(v, n)
    if v.counts[IN_ORDER]:
        for h in range(v.counts[HOLDS]):
            if changed[v.holds.node[h]]:
                v.bucket_seats.parked[v.holds.bucket[h]] = False
                touch_bucket(v, v.holds.bucket[h])
