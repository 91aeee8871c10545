"""Offers: what is left of a node, kept for a framework until it answers.

An offer takes room of its node and counts as used by its leaf and all queues above, as a task does; but it is no task. It is the
node's whole rest, less what would break a limit with what is kept for claims, what others do not lend, and what is more than one
framework may be offered at once. Nodes are gone through in an order that is another for each offer and follows from its id: each
comes once, from a place on, by steps that have no divisor in common with their number.

A framework that no node has anything for is parked, as a bucket of jobs is, unless a limit bounds what it may have: it is asked
for again when room came back on some node, or when something that it refused may be offered to it again.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.policies.codes import MESOS
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_claims import note_fall
from fairlead.scheduler.kernel_history import count_use
from fairlead.scheduler.kernel_holds import count_idle, set_idle
from fairlead.scheduler.kernel_keys import turn_of
from fairlead.scheduler.kernel_lending import set_withheld, withheld_from
from fairlead.scheduler.kernel_nodes import raise_bounds, room_came_back, set_bounds
from fairlead.scheduler.kernel_order import touch_bucket, touch_queue
from fairlead.scheduler.tables import I64, NONE, UNLIMITED
from fairlead.scheduler.view import (
    BEYOND,
    BUCKETS,
    CLAIM_DUE,
    FRESH,
    IN_ORDER,
    LAST_OFFER,
    NODES,
    NOW,
    OFFER_SEARCHES,
    OFFER_WAKE,
    OFFERED,
    QUEUES,
)

LEAF, NODE, REVOCABLE = range(3)
"""Rows of `offered_to`: rows of the tables, and whether the framework is revocable; what is offered is in `offered_rest`."""


@compiled
def find_offer(v: View, b: int) -> bool:
    """Find a node with something to offer to the framework of a bucket, which is then where the bucket has `entered`."""
    v.bucket_seats.wake[b] = np.inf
    if not _set_room(v, b) or not _is_anything_left(v):
        return False
    count, leaf = v.counts[NODES], v.buckets.leaf[b]
    refused = v.queues.refusal[leaf] > 0
    if refused:
        v.bucket_seats.wake[b] = _note_refusals(v, leaf)
    if v.bucket_seats.parked[b] and not _is_unsure(v, leaf) and not _has_fresh(v, refused):
        return False
    n, step = _first_and_step(v.counts[LAST_OFFER] + v.counts[OFFERED] + 1, count)
    nothing = True
    for _ in range(count):
        if _is_to_be_had(v, n, refused):
            v.bucket_seats.entered[b] = n
            return True
        nothing &= not _is_worth(v, n)
        n = (n + step) % count
    if nothing and not v.bucket_seats.bounded[b]:
        set_bounds(v)  # so that others need not look
    return False


@compiled
def _is_unsure(v: View, q: int) -> bool:
    """Whether what is parked in a leaf may have room on other nodes than those where some came back."""
    while q != NONE:
        if v.queue_seats.unsure[q]:
            return True
        q = v.queues.parent[q]
    return False


@compiled
def _has_fresh(v: View, refused: bool) -> bool:
    """Whether one of the nodes where room came back has something to offer."""
    for k in range(v.counts[FRESH]):
        if _is_to_be_had(v, v.node_seats.fresh[k], refused):
            return True
    return False


@compiled
def _is_to_be_had(v: View, n: int, refused: bool) -> bool:
    up = v.nodes.up[n] and not v.nodes.draining[n]
    return bool(up and _is_worth(v, n) and not (refused and _is_refused(v, n)))


@compiled
def wake_frameworks(v: View) -> None:
    """Ask for those again who refused something that may be offered to them again by now."""
    v.times[OFFER_WAKE] = np.inf
    for b in range(v.counts[BUCKETS]):
        if v.buckets.wants[b] and v.bucket_seats.parked[b]:
            if v.bucket_seats.wake[b] <= v.times[NOW]:
                v.bucket_seats.parked[b] = False
                touch_bucket(v, b)
            else:
                v.times[OFFER_WAKE] = min(v.times[OFFER_WAKE], v.bucket_seats.wake[b])


@compiled
def park_framework(v: View, b: int) -> None:
    """Nothing was found for a framework: ask for it again when there is something else."""
    v.bucket_seats.parked[b] = not v.bucket_seats.bounded[b]
    if v.bucket_seats.parked[b]:
        v.times[OFFER_WAKE] = min(v.times[OFFER_WAKE], v.bucket_seats.wake[b])
    touch_bucket(v, b)


@compiled
def _set_room(v: View, b: int) -> bool:
    """Work out how much a framework may be offered, wherever it is; whether that is worth an offer."""
    beyond = v.counts[BEYOND] > 0 and v.buckets.revocable[b]  # where a cycle asks anybody, it comes to others, too
    v.bucket_seats.bounded[b], worth = bound_room(v, b, beyond, v.offer_room), False
    for r in range(v.total.shape[0]):
        worth |= v.offer_room[r] >= v.worth[r]
    return worth


@compiled
def bound_room(v: View, b: int, beyond: bool, amount: I64) -> bool:
    """Work out how much a framework may be offered, wherever it is; whether anything bounds that.

    `amount`, shape (resources,), becomes that; `beyond` where limits are nothing to it, for it is revocable.
    """
    leaf, bounded = v.buckets.leaf[b], False
    if has_enough(v, leaf):
        amount[:] = 0
        return True
    for r in range(v.total.shape[0]):
        room = UNLIMITED
        if v.queues.offer_most[leaf] > 0.0:
            room = int(v.total[r] * v.queues.offer_most[leaf]) - v.offered[leaf, r]
        if v.queues.lends[0]:
            room = min(room, left_by_others(v, leaf, r))
        q = NONE if beyond else leaf
        while q != NONE:
            room = min(room, left_under(v, b, q, r))
            q = v.queues.parent[q]
        amount[r] = max(0, room)
        bounded |= room != UNLIMITED
    return bounded


@compiled
def has_enough(v: View, leaf: int) -> bool:
    """Whether a framework has more than half of what it may be offered at once of something that offers are worth it for.

    What it were offered then would be cut to what is left of that, to CPUs without memory in the end; and answered piece by
    piece, the same pieces would be offered again for ever.
    """
    most = v.queues.offer_most[leaf]
    for r in range(v.total.shape[0]):
        if most > 0.0 and v.worth[r] <= v.total[r] and 2 * v.offered[leaf, r] > int(v.total[r] * most):
            return True
    return False


@compiled
def left_by_others(v: View, leaf: int, r: int) -> int:
    """How much of a resource is free that others than a leaf lend, and that is kept for no claim."""
    return int(v.total[r] - v.used[0, r] - v.claimed[0, r] - withheld_from(v, leaf, r))


@compiled
def left_under(v: View, b: int, q: int, r: int) -> int:
    """How much more of a resource the limit of a queue lets a framework have."""
    if v.limit[q, r] == UNLIMITED:
        return UNLIMITED
    spare = 0 if v.buckets.revocable[b] else v.spare[q, r]
    return int(v.limit[q, r] - v.used[q, r] - v.claimed[q, r] + spare)


@compiled
def _is_anything_left(v: View) -> bool:
    """Whether some node may have as much left as is offered at least."""
    for block in range(v.large_bounds.shape[0]):
        for r in range(v.total.shape[0]):
            if v.large_bounds[block, r] >= v.worth[r]:
                return True
    return False


@compiled
def _rest(v: View, n: int, r: int) -> int:
    """What there is to offer of a resource of a node, as far as the framework that was asked for may have it."""
    return int(max(0, min(v.free[n, r] - v.held[n, r], v.offer_room[r])))


@compiled
def _is_worth(v: View, n: int) -> bool:
    for r in range(v.total.shape[0]):
        if _rest(v, n, r) >= v.worth[r]:
            return True
    return False


@compiled
def _note_refusals(v: View, leaf: int) -> float:
    """Note with the nodes what a leaf's framework refused of them and does still; until when at least."""
    v.counts[OFFER_SEARCHES] += 1
    search, f, until = v.counts[OFFER_SEARCHES], v.queues.refusal[leaf], np.inf
    while f > 0:
        if v.refusals.until[f - 1] > v.times[NOW]:
            n, until = v.refusals.node[f - 1], min(until, v.refusals.until[f - 1])
            v.refusals.beside[f - 1] = v.node_seats.refusal[n] if v.node_seats.refusal_search[n] == search else 0
            v.node_seats.refusal[n], v.node_seats.refusal_search[n] = f, search
        f = v.refusals.after[f - 1]
    return float(until)


@compiled
def _is_refused(v: View, n: int) -> bool:
    """Whether all that a node has to offer was refused before."""
    f = v.node_seats.refusal[n] if v.node_seats.refusal_search[n] == v.counts[OFFER_SEARCHES] else 0
    while f > 0:
        within = True
        for r in range(v.total.shape[0]):
            within &= _rest(v, n, r) <= v.refused[f - 1, r]
        if within:
            return True
        f = v.refusals.beside[f - 1]
    return False


@compiled
def _first_and_step(offer: int, count: int) -> tuple[int, int]:
    """Where to begin with so many nodes for an offer, and by which steps to go on so that each comes once."""
    first = _mixed(2 * offer) % count
    step = _mixed(2 * offer + 1) % count
    while _common_divisor(step, count) != 1:
        step = (step + 1) % count
    return first, step


@compiled
def _mixed(x: int) -> int:
    """Scatter numbers: a product in 64 bits, of which the upper 31 are taken (Knuth's multiplicative hashing)."""
    return int((np.uint64(x) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33))


@compiled
def _common_divisor(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


@compiled
def offer_found(v: View, b: int) -> None:
    """Offer what :func:`find_offer` found, on paper."""
    k, leaf, n = v.counts[OFFERED], v.buckets.leaf[b], v.bucket_seats.entered[b]
    v.counts[OFFERED] += 1
    v.offered_to[LEAF, k], v.offered_to[NODE, k], v.offered_to[REVOCABLE, k] = leaf, n, int(v.buckets.revocable[b])
    for r in range(v.total.shape[0]):
        v.offered_rest[k, r] = _rest(v, n, r)
    _move(v, leaf, n, v.offered_rest[k], v.buckets.revocable[b], 1, True)
    turn, q = v.queue_seats.turn[0] + 1, leaf
    while q != NONE:
        counts = q != 0 and v.queues.policy[v.queues.parent[q]] == MESOS
        v.queue_seats.turn[q] = v.queue_seats.turn[q] + 1 if counts else turn
        q = v.queues.parent[q]


@compiled
def untake_offer(v: View, k: int) -> None:
    """Undo an offer on paper."""
    q, n = v.offered_to[LEAF, k], v.offered_to[NODE, k]
    _move(v, q, n, v.offered_rest[k], v.offered_to[REVOCABLE, k] > 0, -1, True)
    raise_bounds(v, n)
    touch_queue(v, q)
    while q != NONE:
        v.queue_seats.turn[q] = turn_of(v, q)
        q = v.queues.parent[q]


@compiled
def _move(v: View, leaf: int, n: int, amount: I64, revocable: bool, sign: int, offered: bool) -> None:
    """An amount of a node is kept for a leaf, and used by it and those above (1); or no longer (-1); `offered`: as an offer."""
    q = leaf
    for r in range(v.total.shape[0]):
        v.free[n, r] -= sign * amount[r]
    while q != NONE:
        for r in range(v.total.shape[0]):
            v.used[q, r] += sign * amount[r]
            if offered:
                v.offered[q, r] += sign * amount[r]
            if revocable:
                v.spare[q, r] += sign * amount[r]
        q = v.queues.parent[q]
    if v.queues.lends[0]:
        set_withheld(v, leaf)


@compiled
def happened(v: View, leaf: int, n: int, amount: I64, revocable: bool, sign: int, at: float) -> None:
    """An offer was made (1), or answered or taken back (-1)."""
    _take(v, leaf, n, amount, revocable, sign, True, at)
    q, turn = leaf, v.queues.served[0] + 1
    while q != NONE and sign > 0:
        v.queues.served[q] = turn
        v.queues.allocations[q] += 1
        if v.counts[IN_ORDER]:
            v.queue_seats.turn[q] = turn_of(v, q)
        q = v.queues.parent[q]
    if revocable and sign > 0:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)
    _changed(v, leaf, n, sign)


@compiled
def set_apart(v: View, leaf: int, n: int, amount: I64, sign: int, at: float) -> None:
    """An amount of a node is set apart for the role that a leaf stands for (1), or no longer (-1)."""
    _take(v, leaf, n, amount, False, sign, False, at)
    _changed(v, leaf, n, sign)


@compiled
def _take(v: View, leaf: int, n: int, amount: I64, revocable: bool, sign: int, offered: bool, at: float) -> None:
    """What :func:`_move` does, in what is counted over time as well."""
    q = leaf
    while q != NONE:
        p = v.queues.parent[q]
        if p != NONE and v.queues.tick[p] > 0.0:
            count_use(v, q, at)
        q = p
    if v.nodes.hold[n] != NONE:
        count_idle(v, n, at)
    _move(v, leaf, n, amount, revocable, sign, offered)
    if v.nodes.hold[n] != NONE:
        set_idle(v, n)
    q = leaf
    while q != NONE and sign < 0:
        if v.queues.guaranteed[q]:
            note_fall(v, q, amount, at)
        q = v.queues.parent[q]


@compiled
def _changed(v: View, leaf: int, n: int, sign: int) -> None:
    """Have the order know of it."""
    if v.counts[IN_ORDER]:
        touch_queue(v, leaf)
        if sign < 0:
            room_came_back(v, n)


@compiled
def fits(v: View, n: int, amount: I64) -> bool:
    """Whether a node has an amount free."""
    for r in range(v.total.shape[0]):
        if amount[r] < 0 or amount[r] > v.free[n, r]:
            return False
    return True


@compiled
def link_refusals(v: View, count: int) -> None:
    """Link the refusals of each leaf, of which there are so many, the last first."""
    v.queues.refusal[: v.counts[QUEUES]] = 0
    for f in range(count):
        link_refusal(v, f)


@compiled
def link_refusal(v: View, f: int) -> None:
    """Link a new refusal before the others of its leaf."""
    leaf = v.refusals.leaf[f]
    v.refusals.after[f], v.queues.refusal[leaf] = v.queues.refusal[leaf], f + 1
