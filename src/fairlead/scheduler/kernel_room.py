"""Room for a bucket's next task, or whole gang: where it is kept for it, then where anybody may go, and at last where it is kept
for others until later: for tasks that are known to end in time, and for those who have a claim for a guarantee to what whoever
has that reservation would take, for then that would be revoked for them again. Written to `chosen`.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_claims import claims_from
from fairlead.scheduler.kernel_holds import (
    ALL,
    count_claim,
    fits_beside,
    give_back_at,
    is_beside,
    lasts_at_most,
    set_held,
)
from fairlead.scheduler.kernel_nodes import by_fit, first_fit, raise_bounds
from fairlead.scheduler.kernel_offers import find_offer
from fairlead.scheduler.kernel_order import current_job, lasts, tasks_left
from fairlead.scheduler.tables import NONE, RESERVATION
from fairlead.scheduler.view import HOLDS, NODES, NOW

# Rows of `chosen`: of what was placed, job and node rows, the task's index counted on from the job's `next`, whether the job ran
# nothing before, and of the hold that was used, the row. When it is taken to have ended is in `chosen_until`.
JOB, INDEX, NODE, FRESH_JOB, HOLD = range(5)


@compiled
def find_room(v: View, b: int, count: int, placed: int) -> bool:
    """Find nodes for all of so many tasks of a bucket and take their room, or change nothing."""
    shape = v.buckets.shape_row[b]
    cursor, cycle = v.shape_seats.cursor[shape], v.shape_seats.cycle[shape]
    found = _use_holds(v, b, count, placed) if v.bucket_seats.keeping[b] else 0
    h = 0
    while found < count:
        n = first_fit(v, shape)
        if n == v.counts[NODES]:
            h = hold_to_enter(v, b, h)
            if h == v.counts[HOLDS]:
                v.shape_seats.cursor[shape], v.shape_seats.cycle[shape] = cursor, cycle
                give_room_back(v, b, found, placed)
                return False
            n = v.holds.node[h]
        else:
            n = by_fit(v, shape, n)
        _take(v, b, n, NONE, placed + found)
        found += 1
    return True


@compiled
def _use_holds(v: View, b: int, count: int, placed: int) -> int:
    """Place tasks where room is kept for them: how many. What is used is kept no longer, task by task."""
    found = 0
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == b:
            n = v.holds.node[h]
            while (
                v.holds.tasks[h] > 0
                and found < count
                and fits_beside(v, n, v.buckets.shape_row[b], np.inf, v.holds.rank[h])
            ):
                used = NONE if is_beside(v, h, n, v.queues.tasks[v.buckets.leaf[b]] + 1, v.times[NOW]) else h
                if used != NONE:
                    _keep(v, h, -1)
                _take(v, b, n, used, placed + found)
                found += 1
    return found


@compiled
def _keep(v: View, h: int, tasks: int) -> None:
    """Have a hold keep room for so many tasks more, or less."""
    shape = v.buckets.shape_row[v.holds.bucket[h]]
    v.holds.tasks[h] += tasks
    count_claim(v, h, tasks)
    for r in range(v.total.shape[0]):
        v.amount[h, r] += tasks * v.demand[shape, r]
    set_held(v, v.holds.node[h])


@compiled
def hold_to_enter(v: View, b: int, h: int) -> int:
    """The first hold from h on whose node a task of a bucket may enter; the number of holds, if there is none."""
    while h < v.counts[HOLDS] and not may_enter(v, b, v.holds.node[h]):
        h += 1
    return h


@compiled
def may_enter(v: View, b: int, n: int) -> bool:
    """Whether a task of a bucket may enter room that is kept on a node for others.

    For it will have ended before, or would have revoked for its guarantee what they place there.
    """
    shape = v.buckets.shape_row[b]
    if v.nodes.hold[n] == NONE or not is_free(v, n, shape):
        return False
    until = _ended_by(v, b, n)
    if until < np.inf and fits_beside(v, n, shape, until, ALL):
        return True
    return bool(v.queues.guarded[v.buckets.leaf[b]] and fits_beside(v, n, shape, np.inf, _first_to_pass(v, b, n)))


@compiled
def _first_to_pass(v: View, b: int, n: int) -> int:
    """The lowest rank of the reservations on a node whose owners a bucket has a claim to; all after that are planned anew."""
    found, h = ALL, v.nodes.hold[n]
    while h != NONE:
        other = v.holds.bucket[h]
        if v.holds.kind[h] == RESERVATION and other != b and claims_from(v, b, v.buckets.leaf[other]):
            found = min(found, v.holds.rank[h])
        h = v.holds.after[h]
    h = v.nodes.hold[n]
    while h != NONE:  # who may not be passed is not, though it comes later
        if v.holds.rank[h] >= found and not claims_from(v, b, v.buckets.leaf[v.holds.bucket[h]]):
            return ALL
        if v.holds.rank[h] >= found and claims_from(v, v.holds.bucket[h], v.buckets.leaf[b]):
            return ALL
        h = v.holds.after[h]
    return int(found)


@compiled
def may_use_hold(v: View, b: int, n: int) -> bool:
    """Whether a task of a bucket has room where it is kept for it on a node."""
    h = v.nodes.hold[n] if v.bucket_seats.keeping[b] else NONE
    while h != NONE and v.holds.bucket[h] != b:
        h = v.holds.after[h]
    return bool(h != NONE and fits_beside(v, n, v.buckets.shape_row[b], np.inf, v.holds.rank[h]))


@compiled
def is_free(v: View, n: int, shape: int) -> bool:
    """Whether a node has what a task of a shape needs, whoever it is kept for."""
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > v.free[n, r]:
            return False
    return True


@compiled
def _ended_by(v: View, b: int, n: int) -> float:
    """When a task of a bucket will have ended on a node with holds, if it is placed there now; infinite: not known."""
    job = current_job(v, b)
    return float(v.times[NOW] + lasts_at_most(v, job, n, lasts(v, b, job)))


@compiled
def _take(v: View, b: int, n: int, h: int, at: int) -> None:
    """Take room on a node for a bucket's task, by a hold or NONE, and write it down."""
    v.chosen[NODE, at], v.chosen[HOLD, at], v.chosen_until[at] = n, h, np.inf
    if v.nodes.hold[n] != NONE:
        v.chosen_until[at] = _ended_by(v, b, n)
    take_room(v, n, v.buckets.leaf[b], v.buckets.shape_row[b], v.chosen_until[at], 1)


@compiled
def take_room(v: View, n: int, q: int, shape: int, until: float, sign: int) -> None:
    """A task of a leaf that is taken to have ended at a time takes room on a node, or gives it back (-1)."""
    for r in range(v.total.shape[0]):
        v.free[n, r] -= sign * v.demand[shape, r]
    if v.nodes.hold[n] != NONE:
        give_back_at(v, n, q, shape, until, sign)


@compiled
def untake(v: View, q: int, shape: int, at: int) -> None:
    """Undo what was written down of a task of a leaf."""
    n, h = v.chosen[NODE, at], v.chosen[HOLD, at]
    take_room(v, n, q, shape, v.chosen_until[at], -1)
    if h != NONE:
        _keep(v, h, 1)
    raise_bounds(v, n)


@compiled
def give_room_back(v: View, b: int, count: int, placed: int) -> None:
    """Undo :func:`find_room`; the shape's cursor is the caller's."""
    for k in range(count):
        untake(v, v.buckets.leaf[b], v.buckets.shape_row[b], placed + k)


@compiled
def has_room(v: View, b: int) -> bool:
    """Whether there is room for a bucket's next task, or whole gang; for a single task :func:`take_found` can take it then.

    For a framework: whether there is something to offer.
    """
    if v.buckets.wants[b]:
        return bool(find_offer(v, b))
    if is_single(v, b):
        if first_fit(v, v.buckets.shape_row[b]) < v.counts[NODES]:
            return True
        h = hold_to_enter(v, b, 0)
        if h < v.counts[HOLDS]:
            v.bucket_seats.entered[b] = v.holds.node[h]
        return bool(h < v.counts[HOLDS])
    count, end = tasks_left(v, b) if v.buckets.gang[b] > 0 else 1, v.chosen.shape[1]
    shape = v.buckets.shape_row[b]
    cursor, cycle = v.shape_seats.cursor[shape], v.shape_seats.cycle[shape]
    if not find_room(v, b, count, end - count):
        return False
    give_room_back(v, b, count, end - count)
    v.shape_seats.cursor[shape], v.shape_seats.cycle[shape] = cursor, cycle
    return True


@compiled
def is_single(v: View, b: int) -> bool:
    """Whether a bucket's tasks start one by one, and no nodes are kept for them."""
    return v.buckets.gang[b] == 0 and not v.bucket_seats.keeping[b]


@compiled
def take_found(v: View, b: int, placed: int) -> None:
    """Take the room for a single task that :func:`has_room` found: its shape's cursor stands there, or it may enter a node."""
    shape = v.buckets.shape_row[b]
    n = v.shape_seats.cursor[shape]
    _take(v, b, by_fit(v, shape, n) if n < v.counts[NODES] else v.bucket_seats.entered[b], NONE, placed)
