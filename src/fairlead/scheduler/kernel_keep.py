"""What facts about reservations do to the state: holds made, made anew, and dropped."""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_claims import served_tasks
from fairlead.scheduler.kernel_forecasts import usual_duration
from fairlead.scheduler.kernel_holds import (
    charge_promise,
    count_claim,
    count_idle,
    counts_on,
    is_beside,
    link_holds,
    set_held,
    set_idle,
    unlink_holds,
)
from fairlead.scheduler.kernel_lending import set_withheld
from fairlead.scheduler.kernel_line import pass_over
from fairlead.scheduler.kernel_nodes import room_came_back
from fairlead.scheduler.kernel_order import touch_bucket, touch_queue
from fairlead.scheduler.kernel_reservations import expected_end, first_rank, next_rank, part_left
from fairlead.scheduler.tables import BINS, BROKEN, CHANGED, I64, NONE, RESERVATION, SAME, Bools
from fairlead.scheduler.view import CLAIM_DUE, HOLDS, IN_ORDER, NODES, QUEUES


@compiled
def keep_nodes(
    v: View, bucket: int, job: int, nodes: I64, tasks: I64, kind: int, start: float, slips: int, apart: I64, at: float
) -> None:
    """Keep room on nodes, which rise, for tasks of a job row, and not what was kept for it before. There are rows for that.

    Nothing is counted on that tasks of the leaves `apart` give back.

    Claims come before all reservations, which are planned anew around them. Where no more came of a new plan than of the one
    before, those that were made beside it hold as they are.
    """
    rank = next_rank(v) if kind == RESERVATION else first_rank(v)
    end = start + usual_duration(v, job) if kind == RESERVATION else np.inf
    news = not _is_kept(v, bucket, nodes, tasks, start, end)
    made, since, idled, ran = at, at, np.zeros(v.total.shape[0]), v.queues.tasks[v.buckets.leaf[bucket]]
    changed, claimed = np.zeros(v.counts[NODES], np.bool_), kind != RESERVATION
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == bucket:
            changed[v.holds.node[h]] = True
            claimed |= v.holds.kind[h] != RESERVATION
            if (v.holds.kind[h] == RESERVATION) == (kind == RESERVATION):
                rank, made, ran = v.holds.rank[h], v.holds.made[h], v.holds.ran[h]
            since = v.holds.since[h] if v.holds.slips[h] == slips else at
            count_idle(v, v.holds.node[h], at)
            idled += v.idled[h]
    _take_out(v, bucket, NONE)
    for n in nodes:
        count_idle(v, n, at)
    unlink_holds(v)
    first, place = v.counts[HOLDS], _free_place(v) if kind == RESERVATION else NONE
    for q in apart:
        v.queues.apart[q] |= 1 << place
    if claimed:
        v.times[CLAIM_DUE] = -np.inf
    for k in range(nodes.shape[0]):
        h = v.counts[HOLDS]
        v.counts[HOLDS] += 1
        v.holds.kind[h], v.holds.node[h], v.holds.bucket[h], v.holds.job[h] = kind, nodes[k], bucket, v.jobs.id[job]
        v.holds.tasks[h], v.holds.rank[h], v.holds.slips[h], v.holds.start[h] = tasks[k], rank, slips, start
        v.holds.end[h], v.holds.made[h], v.holds.since[h] = end, made, since
        v.holds.planned[h] = v.holds.counted[h] = at
        v.holds.change[h], v.holds.place[h] = SAME, place
        v.holds.ran[h] = ran
        v.amount[h] = tasks[k] * v.demand[v.buckets.shape_row[bucket]]
        count_claim(v, h, tasks[k])
        v.idle[h] = v.idled[h] = 0
        changed[nodes[k]] = True
    v.idled[first] = idled
    link_holds(v)
    _withhold(v, bucket)
    if kind == RESERVATION and np.isnan(v.buckets.passed_since[bucket]):
        pass_over(v, bucket, at)
    if news:
        _break(v, changed, rank)
    for n in range(v.counts[NODES]):
        if changed[n]:
            _look_ahead(v, n, at)
    _set_again(v, changed)
    if v.counts[IN_ORDER]:
        v.bucket_seats.keeping[bucket] = v.queue_seats.keeping[v.buckets.leaf[bucket]] = True
        touch_bucket(v, bucket)


@compiled
def _free_place(v: View) -> int:
    """The first place that no reservation has."""
    taken = 0
    for h in range(v.counts[HOLDS]):
        if v.holds.place[h] != NONE:
            taken |= 1 << v.holds.place[h]
    place = 0
    while (taken >> place) & 1:
        place += 1
    return place


@compiled
def _withhold(v: View, bucket: int) -> None:
    """What is kept for a bucket has changed, and so may have what its queues do not lend."""
    if v.queues.lends[0]:
        set_withheld(v, v.buckets.leaf[bucket])


@compiled
def _is_kept(v: View, bucket: int, nodes: I64, tasks: I64, start: float, end: float) -> bool:
    """Whether just that is kept for a bucket: so many tasks on each of these nodes, from a start to an end."""
    k, same = 0, True
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == bucket:
            same &= k < nodes.shape[0] and v.holds.start[h] == start and v.holds.end[h] == end
            same = same and v.holds.node[h] == nodes[k] and v.holds.tasks[h] == tasks[k]
            k += 1
    return bool(same and k == nodes.shape[0])


@compiled
def drop_holds(v: View, bucket: int, at: float) -> bool:
    """Keep nothing for a bucket any more; whether there was something."""
    changed, found, leaf = np.zeros(v.counts[NODES], np.bool_), False, v.buckets.leaf[bucket]
    rank, claimed = 0, False
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == bucket:
            found, rank, claimed = True, v.holds.rank[h], v.holds.kind[h] != RESERVATION
            changed[v.holds.node[h]] = True
            count_idle(v, v.holds.node[h], at)
            v.idled_before[leaf] += v.idled[h]
    if found:
        _take_out(v, bucket, NONE)
        _withhold(v, bucket)
        _break(v, changed, rank)
        _set_again(v, changed)
        v.buckets.passed_since[bucket] = np.nan
        if claimed:
            v.times[CLAIM_DUE] = -np.inf
        if v.counts[IN_ORDER]:
            v.bucket_seats.keeping[bucket] = False
            v.queue_seats.keeping[leaf] = _keeps(v, leaf)
            touch_bucket(v, bucket)
    return found


@compiled
def _keeps(v: View, leaf: int) -> bool:
    """Whether something is kept for a leaf."""
    for h in range(v.counts[HOLDS]):
        if v.buckets.leaf[v.holds.bucket[h]] == leaf:
            return True
    return False


@compiled
def use_hold(v: View, bucket: int, node: int, at: float) -> bool:
    """A task of a bucket is placed on a node: its reservation is over, or, of what is kept for claims there, so much.

    Whether the reservation stays: it does not count on what its leaf's tasks give back, and such room was taken.
    """
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == bucket:
            if is_beside(v, h, node, v.queues.tasks[v.buckets.leaf[bucket]], at):
                return True
            if v.holds.kind[h] == RESERVATION or v.buckets.gang[bucket] > 0 or served_tasks(v, bucket) == 1:
                since = v.buckets.passed_since[bucket]
                drop_holds(v, bucket, at)
                v.buckets.passed_since[bucket] = since
                return False
            if v.holds.node[h] == node:
                _use_one(v, h, at)
                return False
    return False


@compiled
def hand_on(v: View, bucket: int) -> None:
    """A bucket's reservation is for the job that is first in it now."""
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == bucket and v.holds.kind[h] == RESERVATION:
            v.holds.job[h] = v.jobs.id[v.buckets.head[bucket]]


@compiled
def _use_one(v: View, h: int, at: float) -> None:
    """A hold keeps room for one task less."""
    n, bucket = v.holds.node[h], v.holds.bucket[h]
    count_idle(v, n, at)
    v.holds.tasks[h] -= 1
    count_claim(v, h, -1)
    _withhold(v, bucket)
    for r in range(v.total.shape[0]):
        v.amount[h, r] -= v.demand[v.buckets.shape_row[bucket], r]
    if v.holds.tasks[h] == 0:
        v.idled_before[v.buckets.leaf[bucket]] += v.idled[h]
        _take_out(v, bucket, n)
    set_held(v, n)
    set_idle(v, n)
    if v.counts[IN_ORDER]:
        touch_queue(v, v.buckets.leaf[bucket])
        room_came_back(v, n)
        touch_bucket(v, bucket)


@compiled
def drop_holds_on(v: View, node: int, at: float) -> None:
    """A node takes nobody any more: whoever had room kept there has none kept, but is due at once for a new plan."""
    while v.nodes.hold[node] != NONE:
        owner = v.holds.bucket[v.nodes.hold[node]]
        since = v.buckets.passed_since[owner]
        drop_holds(v, owner, at)
        v.buckets.passed_since[owner] = since


@compiled
def note_end(v: View, j: int, t: int, at: float) -> None:
    """A task on a node with holds ends: whether it did what was counted on.

    Where it was to have ended before a start, there was not enough at that later moment, with its room and all else: so there is
    not now, and a new plan would be the same.
    """
    h, until = v.nodes.hold[v.tasks.node[t]], v.tasks.until[t]
    _note_overrun(v, j, t, at)
    while h != NONE and at < until:
        if until >= v.holds.start[h] and counts_on(v, h, v.jobs.queue[j]):
            v.holds.change[h] = max(v.holds.change[h], CHANGED)
        h = v.holds.after[h]


@compiled
def _note_overrun(v: View, j: int, t: int, at: float) -> None:
    """A task that is not over when its cautious forecast is counts against its queue, once."""
    if v.tasks.trusted[t] and at > v.tasks.until[t]:
        v.queues.overran[v.jobs.queue[j]] += 1
        v.tasks.trusted[t] = False


@compiled
def _take_out(v: View, bucket: int, node: int) -> None:
    """Take the rows of a bucket's holds out of the table, or of that on a node; what is charged for them is so no more."""
    unlink_holds(v)
    left = 0
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == bucket and (node == NONE or v.holds.node[h] == node):
            count_claim(v, h, -v.holds.tasks[h])
            for r in range(v.total.shape[0]):
                charge_promise(v, h, r, -v.idle[h, r])
            if v.holds.place[h] != NONE:
                for q in range(v.counts[QUEUES]):
                    v.queues.apart[q] &= ~(1 << v.holds.place[h])
        else:
            v.holds[left] = v.holds[h]
            v.amount[left], v.back[left] = v.amount[h], v.back[h]
            v.idle[left], v.idled[left] = v.idle[h], v.idled[h]
            left += 1
    for h in range(left, v.counts[HOLDS]):
        v.back[h] = 0
    v.counts[HOLDS] = left
    link_holds(v)
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
def _look_ahead(v: View, n: int, at: float) -> None:
    """Say of what runs on a node when it is taken to have ended, and what that gives back for all holds there."""
    h = v.nodes.hold[n]
    while h != NONE:
        v.back[h] = 0
        v.holds.review[h] = np.inf
        h = v.holds.after[h]
    t, part, tails = v.nodes.task[n], part_left(v, n), np.empty((3, BINS + 1))
    while t != NONE:
        j = v.tasks.job[t]
        _note_overrun(v, j, t, at)
        until = expected_end(v, t, at, part, tails)
        if until != v.tasks.until[t]:
            v.tasks.until[t], v.tasks.trusted[t] = until, False
        _count_on(v, j, t)
        t = v.tasks.after[t]


@compiled
def _count_on(v: View, j: int, t: int) -> None:
    """Count a task for the holds on its node: what it gives back until their starts, and when that is to be seen."""
    h = v.nodes.hold[v.tasks.node[t]]
    while h != NONE:
        if v.tasks.until[t] <= v.holds.start[h] and counts_on(v, h, v.jobs.queue[j]):
            for r in range(v.total.shape[0]):
                v.back[h, r] += v.demand[v.jobs.shape_row[j], r]
            v.holds.review[h] = min(v.holds.review[h], v.tasks.until[t])
        h = v.holds.after[h]


@compiled
def _set_again(v: View, changed: Bools) -> None:
    """Work out what is held on some nodes; whoever waits may have more room there, or may enter what is kept."""
    for n in range(v.counts[NODES]):
        if changed[n]:
            set_held(v, n)
            set_idle(v, n)
            if v.counts[IN_ORDER]:
                room_came_back(v, n)
