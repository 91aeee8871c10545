"""What holds keep of a node: as much as their owners need at their starts, less what tasks there give back until then.

For hold i on a node let claim_i be what it and all others need that lie over its start, less what tasks are taken to have given
back by then (`back`). A task that still runs at that start must leave free as much as that; one that has ended before may have
all that is free now. So

    held          = the largest claim, or 0: free - held is what anybody may take
    kept(until)   = the largest claim of holds that start before `until`: free - kept is for a task that has ended then

The rule holds for each resource. When a task ends early, free and held grow alike, and nobody else gets what was counted on. When
one enters that ends before, both fall alike. So held is never to be corrected, but when a reservation is planned anew.

Whoever has a hold need leave nothing for those of higher rank, which were planned around it and are planned anew if it is late.

A hold is charged to its owner for what it idles: what is free and held, and that no hold that starts before it keeps already.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_order import touch_queue
from fairlead.scheduler.tables import NONE, RESERVATION
from fairlead.scheduler.view import HOLDS, IN_ORDER

FIXED = 2
"""Slips after which the nodes of a reservation are fixed, and forecasts let in less readily to the room that is kept on them."""

DOUBTED = 4.0
"""How many times as long as is usual a task is taken to last there."""

ALL = 2**62
"""Higher than any rank."""

_FORGIVEN = 10  # tenths of a task that did not keep to its forecast


@compiled
def link_holds(v: View) -> None:
    """Link the holds of each node, in the order of their rows; `unlink_holds` is to be called before rows change."""
    for h in range(v.counts[HOLDS] - 1, -1, -1):
        n = v.holds.node[h]
        v.holds.after[h], v.nodes.hold[n] = v.nodes.hold[n], h


@compiled
def unlink_holds(v: View) -> None:
    """Have no node know of its holds."""
    for h in range(v.counts[HOLDS]):
        v.nodes.hold[v.holds.node[h]] = NONE


@compiled
def next_reservation(v: View, h: int) -> int:
    """The first hold of the reservation after that of hold h; the rows of one lie together."""
    bucket = v.holds.bucket[h]
    while h < v.counts[HOLDS] and v.holds.bucket[h] == bucket:
        h += 1
    return h


@compiled
def claim(v: View, h: int, r: int, rank: int) -> int:
    """What must be left at a hold's start beside what is given back until then, for reservations of lower rank than this."""
    holds = v.holds
    needed, k = -v.back[h, r], v.nodes.hold[holds.node[h]]
    while k != NONE:
        if holds.start[k] <= holds.start[h] < holds.end[k] and holds.rank[k] < rank:
            needed += v.amount[k, r]
        k = holds.after[k]
    return int(needed)


@compiled
def kept(v: View, n: int, r: int, until: float, rank: int) -> int:
    """What a task on a node that has ended at a time has to leave free for lower ranks: the largest claim that starts before."""
    most, h = 0, v.nodes.hold[n]
    while h != NONE:
        if v.holds.start[h] < until and v.holds.rank[h] < rank:
            most = max(most, claim(v, h, r, rank))
        h = v.holds.after[h]
    return int(most)


@compiled
def set_held(v: View, n: int) -> None:
    """Work out what all holds keep of a node."""
    for r in range(v.total.shape[0]):
        v.held[n, r] = kept(v, n, r, np.inf, ALL)


@compiled
def fits_beside(v: View, n: int, shape: int, until: float, rank: int) -> bool:
    """Whether a node takes a task of a shape that has ended at a time, beside what is kept for lower ranks."""
    if not v.nodes.up[n] or v.nodes.draining[n] or not v.masks[v.shapes.mask[shape], n]:
        return False
    for r in range(v.total.shape[0]):
        demand = v.demand[shape, r]
        if demand > 0 and (demand > v.free[n, r] or demand > v.free[n, r] - kept(v, n, r, until, rank)):
            return False
    return True


@compiled
def counts_on(v: View, h: int, q: int) -> bool:
    """Whether a hold counts on what tasks of a leaf give back."""
    return bool(v.holds.place[h] == NONE or not (v.queues.apart[q] >> v.holds.place[h]) & 1)


@compiled
def is_beside(v: View, h: int, node: int, tasks: int, at: float) -> bool:
    """Whether a task that is placed on a node at a time leaves a reservation for it where it is; its leaf runs so many then.

    So it is where the reservation does not count on what tasks of the leaf give back, the leaf has no more than before, and the
    room that is kept is elsewhere, or still to come.
    """
    b = v.holds.bucket[h]
    if v.buckets.gang[b] > 0 or counts_on(v, h, v.buckets.leaf[b]) or tasks > v.holds.ran[h]:
        return False
    return bool(v.holds.node[h] != node or at < v.holds.start[h])


@compiled
def give_back_at(v: View, n: int, q: int, shape: int, until: float, sign: int) -> None:
    """A task of a leaf more (or less, -1) will have ended at a time on a node with holds; NaN: that is not known."""
    h = v.nodes.hold[n]
    while h != NONE:
        if until <= v.holds.start[h] and counts_on(v, h, q):
            for r in range(v.total.shape[0]):
                v.back[h, r] += sign * v.demand[shape, r]
        h = v.holds.after[h]
    set_held(v, n)


@compiled
def count_claim(v: View, h: int, tasks: int) -> None:
    """A hold, if it is for a claim, keeps room for so many tasks more: that counts for its leaf and all above."""
    q = v.buckets.leaf[v.holds.bucket[h]] if v.holds.kind[h] != RESERVATION else NONE
    while q != NONE:
        for r in range(v.total.shape[0]):
            v.claimed[q, r] += tasks * v.demand[v.buckets.shape_row[v.holds.bucket[h]], r]
        q = v.queues.parent[q]


@compiled
def is_trusted(v: View, q: int) -> bool:
    """Whether tasks of a leaf may be taken to last no longer than is usual: nine in ten of them did not."""
    return bool(10 * v.queues.overran[q] <= v.queues.trusted[q] + _FORGIVEN)


@compiled
def is_fixed(v: View, n: int) -> bool:
    """Whether a reservation on a node has slipped so often that its nodes are fixed."""
    h = v.nodes.hold[n]
    while h != NONE:
        if v.holds.slips[h] >= FIXED:
            return True
        h = v.holds.after[h]
    return False


@compiled
def lasts_at_most(v: View, j: int, n: int, usual: float) -> float:
    """How long a task of job row j is taken to last on a node with holds, so long being usual; infinite: not known."""
    if is_trusted(v, v.jobs.queue[j]):
        return float(min(v.jobs.time_limit[j], DOUBTED * usual if is_fixed(v, n) else usual))
    return float(v.jobs.time_limit[j])


@compiled
def count_idle(v: View, n: int, at: float) -> None:
    """What is free and kept on a node is about to change: count what it has been until now."""
    h = v.nodes.hold[n]
    while h != NONE:
        if at > v.holds.counted[h]:
            for r in range(v.total.shape[0]):
                v.idled[h, r] += v.idle[h, r] * (at - v.holds.counted[h])
            v.holds.counted[h] = at
        h = v.holds.after[h]


@compiled
def set_idle(v: View, n: int) -> None:
    """Work out what is free and kept on a node, by hold, and charge their owners."""
    h = v.nodes.hold[n]
    while h != NONE:
        changed = False
        for r in range(v.total.shape[0]):
            before = _kept_before(v, h, r)
            idle = min(v.free[n, r], max(before, claim(v, h, r, ALL))) - min(v.free[n, r], before)
            changed |= idle != v.idle[h, r]
            charge_promise(v, h, r, idle - v.idle[h, r])
            v.idle[h, r] = idle
        if changed and v.counts[IN_ORDER]:
            touch_queue(v, v.buckets.leaf[v.holds.bucket[h]])
        h = v.holds.after[h]


@compiled
def _kept_before(v: View, h: int, r: int) -> int:
    """What is held on a hold's node for those that start before it; of those at the same time, for lower ranks."""
    holds, most = v.holds, 0
    k = v.nodes.hold[holds.node[h]]
    while k != NONE:
        if holds.start[k] < holds.start[h] or (holds.start[k] == holds.start[h] and holds.rank[k] < holds.rank[h]):
            most = max(most, claim(v, k, r, ALL))
        k = holds.after[k]
    return int(most)


@compiled
def charge_promise(v: View, h: int, r: int, amount: int) -> None:
    """So much more is kept idle by a hold, for its leaf and all above that."""
    q = v.buckets.leaf[v.holds.bucket[h]] if amount != 0 else NONE
    while q != NONE:
        v.promised[q, r] += amount
        q = v.queues.parent[q]
