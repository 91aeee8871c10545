"""Who goes before whom: the keys of queues, and how they are compared.

Under a policy whose key is a largest share (drf, maxmin) keys are exact: two that floats may not tell apart are compared as
products of whole numbers; so are those of YARN's policies, which go on to the next largest where the largest are the same. The
other policies' levels are rounded to 40 binary digits, and two that are the same then are a tie;
so the order is one order, whoever is compared with whom first.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.policies import arithmetic
from fairlead.policies.codes import (
    ASSET,
    DRF,
    FAIRTREE,
    FIFO,
    HDRF,
    HTCONDOR,
    MAXMIN,
    MESOS,
    PRIORITY,
    SDRF,
    YARN_DRF,
    YARN_FAIR,
)
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_history import charge, mean_at_tick, mean_now
from fairlead.scheduler.kernel_wide import product
from fairlead.scheduler.tables import I64, NONE
from fairlead.scheduler.view import LAST_BIT, NEGATIVE_PRIORITY, NUMBER

dominant_share = compiled(arithmetic.dominant_share)
_times_priority = compiled(arithmetic.times_priority)

_SURE = 1e-13  # two shares further apart than this part of them are as far apart in fractions
_LEAST_PRIORITY = 500.0  # of HTCondor: half a core, in thousandths
_SPLIT = float(2**13 + 1)  # leaves 40 of the 53 digits
AS_YARN = -2
"""In place of the column: the level is the first of several numbers, which are compared one after the other."""


@compiled
def compare_shares(v: View, a: int, ra: int, b: int, rb: int) -> int:
    """Compare queue a's weighed share of resource ra with b's of rb, exactly: -1, 0 or 1."""
    x, y = v.charged[a, ra], v.charged[b, rb]
    if x == 0 or y == 0:
        return int(x > y) - int(x < y)
    if ra == rb and v.part[a, ra] == v.part[b, rb] and v.whole[a, ra] == v.whole[b, rb]:
        return int(x > y) - int(x < y)
    one = product(x, v.total[rb] << v.fine[rb], v.whole[a, ra], v.part[b, rb])
    other = product(y, v.total[ra] << v.fine[ra], v.whole[b, rb], v.part[a, ra])
    for k in range(3):
        if one[k] != other[k]:
            return 1 if one[k] > other[k] else -1
    return 0


@compiled
def _share(v: View, q: int, r: int) -> float:
    """The weighed share of a resource that a queue is charged."""
    return float(v.charged[q, r] / (max(1, v.total[r]) << v.fine[r]) / v.weight[q, r])


@compiled
def _rounded(x: float) -> float:
    """Round to 40 binary digits."""
    if not np.isfinite(x):
        return x
    t = x * _SPLIT
    return t - (t - x)


@compiled
def compares_shares(policy: int) -> bool:
    """Whether what queues used before is a part of their keys under a policy."""
    return policy == DRF or policy == ASSET or policy == HDRF or MAXMIN <= policy < YARN_FAIR


@compiled
def has_history(policy: int) -> bool:
    """Whether keys under a policy change when what queues used before does."""
    return compares_shares(policy) or policy == SDRF or policy >= FAIRTREE


@compiled
def set_key(v: View, q: int) -> None:
    """Work out queue q's key among its siblings, from what it is charged; for hdrf and divisions see :func:`set_level`."""
    seat = v.queue_seats
    p = v.queues.parent[q]
    policy = v.queues.policy[p]
    seat.below[q] = int(not _may_go_first(v, q, seat.base[q] + 1))
    seat.first[q] = 0
    seat.column[q] = NONE
    if compares_shares(policy):
        charge(v, q)
    if policy == DRF:
        _set_dominant(v, q, v.queues.exact[p])
    elif policy == MESOS:  # what was used before is nothing to it
        for r in range(v.total.shape[0]):
            v.charged[q, r] = (v.used[q, r] + v.promised[q, r]) << v.fine[r]
        _set_dominant(v, q, v.queues.exact[p])
    elif policy == SDRF:
        seat.level[q] = _rounded(_stateful_share(v, q))
    elif policy >= HTCONDOR:
        r = policy - HTCONDOR
        priority = max(_LEAST_PRIORITY, mean_now(v, q, r)) / v.weight[q, r]
        seat.level[q] = _rounded(_times_priority(float(v.used[q, r] + v.promised[q, r]), priority))
    elif policy >= FAIRTREE:
        r = policy - FAIRTREE
        seat.level[q] = _rounded(mean_at_tick(v, q, r) / v.weight[q, r])
    elif policy >= YARN_FAIR or policy == YARN_DRF:
        _set_as_yarn(v, q, policy)
    elif policy >= MAXMIN:
        r = policy - MAXMIN
        level = _share(v, q, r)
        seat.column[q] = r if v.total[r] > 0 and v.queues.exact[p] else NONE
        seat.level[q] = level if seat.column[q] != NONE else _rounded(level)
    elif policy == ASSET:
        level = 0.0
        for r in range(v.total.shape[0]):
            level += _share(v, q, r) if v.total[r] > 0 else 0.0
        seat.level[q] = _rounded(level)
    elif policy == FIFO or policy == PRIORITY:
        # The least that anything below has: what is really served is looked up when it is found.
        least = v.least[v.queue_seats.base[q] + 1]
        resources = v.total.shape[0]
        seat.first[q] = least[resources + NEGATIVE_PRIORITY] if policy == PRIORITY else 0
        seat.level[q] = float(least[resources + NUMBER])


@compiled
def needs_bit(r: int) -> int:
    """The bit of a resource in a tree's `needs`; the last is that of all the rest."""
    return 1 << min(r, LAST_BIT)


@compiled
def may_go_first(v: View, q: int, node: int) -> bool:
    """Whether :func:`exact_below` may be 0 for queue q and anybody below a node of its tree."""
    if v.queue_seats.column[q] == AS_YARN and v.queues.guaranteed[q]:
        return bool(v.queue_seats.below[q] == 0)
    return _may_go_first(v, q, node)


@compiled
def _may_go_first(v: View, q: int, node: int) -> bool:
    for r in range(v.total.shape[0]):
        if _has(v, q, r) < v.guarantee[q, r] and v.needs[node] & needs_bit(r):
            return True
    return _child_may_go_first(v, q, node)


@compiled
def _child_may_go_first(v: View, q: int, node: int) -> bool:
    return bool(v.queue_seats.inner[q] and v.best[node] != NONE and v.queue_seats.below[v.best[node]] == 0)


@compiled
def _has(v: View, q: int, r: int) -> int:
    """What a queue has of what it is guaranteed: what is kept for its claims is theirs, and for nobody else in it missing."""
    return int(v.used[q, r] + v.claimed[q, r])


@compiled
def _stateful_share(v: View, q: int) -> float:
    """The dominant share, and the largest commitment, which is what history is made of under sdrf."""
    share, committed = 0.0, 0.0
    for r in range(v.total.shape[0]):
        if v.total[r] > 0:
            share = max(share, (v.used[q, r] + v.promised[q, r]) / v.total[r] / v.weight[q, r])
            committed = max(committed, mean_now(v, q, r) / v.total[r] / v.weight[q, r])
    return share + committed


@compiled
def _set_dominant(v: View, q: int, exact: bool) -> None:
    """The dominant share, and at which resource it is reached; where floats are not sure, decided exactly."""
    largest, column = 0.0, NONE
    for r in range(v.total.shape[0]):
        if v.total[r] > 0 and v.charged[q, r] > 0:
            share = _share(v, q, r)
            if column == NONE or share > largest * (1.0 + _SURE):
                larger = True
            elif share < largest * (1.0 - _SURE) or not exact:
                larger = share > largest
            else:
                larger = compare_shares(v, q, r, q, column) > 0
            if larger:
                largest, column = share, r
    v.queue_seats.level[q] = largest if exact else _rounded(largest)
    v.queue_seats.column[q] = column if exact else NONE


@compiled
def _set_as_yarn(v: View, q: int, policy: int) -> None:
    """YARN's key: whether it is below its minimum of what it goes by, and the part of that which it has; else its share."""
    seat = v.queue_seats
    for r in range(v.total.shape[0]):
        v.charged[q, r] = (v.used[q, r] + v.promised[q, r]) << v.fine[r]
    r = policy - YARN_FAIR if policy != YARN_DRF else _next_by_dominance(v, q, NONE)
    seat.below[q], seat.first[q], seat.level[q], seat.column[q] = 1, int(v.queues.weightless[q]), 0.0, AS_YARN
    if r != NONE and _has(v, q, r) < v.guarantee[q, r]:
        seat.below[q], seat.first[q], seat.level[q] = 0, 0, _has(v, q, r) / v.guarantee[q, r]
    elif r != NONE:
        level = _share(v, q, r)
        seat.level[q] = level if v.queues.exact[v.queues.parent[q]] else _rounded(level)
    if not v.queues.guaranteed[q] and _child_may_go_first(v, q, seat.base[q] + 1):
        seat.below[q] = 0


@compiled
def compares_as_yarn(v: View, q: int) -> bool:
    """Whether a queue and its siblings are compared as YARN does it."""
    policy = v.queues.policy[v.queues.parent[q]]
    return bool(policy == YARN_DRF or YARN_FAIR <= policy < FAIRTREE)


@compiled
def misses_as_compared(v: View, q: int, kept: I64) -> bool:
    """Whether a queue misses what its siblings are compared by, so much being kept for claims: YARN compares one minimum."""
    policy = v.queues.policy[v.queues.parent[q]]
    if not compares_as_yarn(v, q):
        return True
    for r in range(v.total.shape[0]):
        v.charged[q, r] = (v.used[q, r] + v.promised[q, r]) << v.fine[r]
    r = policy - YARN_FAIR if policy != YARN_DRF else _next_by_dominance(v, q, NONE)
    return bool(r != NONE and v.used[q, r] + kept[q, r] < v.guarantee[q, r])


@compiled
def _next_by_dominance(v: View, q: int, last: int) -> int:
    """The resource after another (NONE: the first) by shares, the largest first; of equals the least part of a minimum."""
    found = NONE
    for r in range(v.total.shape[0]):
        if v.total[r] > 0 and r != last:
            later = last == NONE or _is_more_dominant(v, q, last, r)
            if later and (found == NONE or _is_more_dominant(v, q, r, found)):
                found = r
    return found


@compiled
def _is_more_dominant(v: View, q: int, r: int, s: int) -> bool:
    order = _compare_weighed(v, q, r, q, s)
    if order == 0:
        order = -_compare_parts_of_minimum(v, q, r, q, s)
    return order > 0 or (order == 0 and r < s)


@compiled
def _compare_weighed(v: View, a: int, ra: int, b: int, rb: int) -> int:
    """Compare weighed shares exactly where the weights allow that, else rounded: -1, 0 or 1."""
    if v.queues.exact[v.queues.parent[a]]:
        return compare_shares(v, a, ra, b, rb)
    x = _rounded(_share(v, a, ra))
    y = _rounded(_share(v, b, rb))
    return int(x > y) - int(x < y)


@compiled
def _compare_parts_of_minimum(v: View, a: int, ra: int, b: int, rb: int) -> int:
    """Compare what part of its minimum of resource ra queue a uses with b's of rb, exactly; that of no minimum is the largest."""
    least_a, least_b = v.guarantee[a, ra], v.guarantee[b, rb]
    if least_a == 0 or least_b == 0:
        return int(least_a == 0) - int(least_b == 0)
    one, other = product(_has(v, a, ra), least_b, 1, 1), product(_has(v, b, rb), least_a, 1, 1)
    for k in range(3):
        if one[k] != other[k]:
            return 1 if one[k] > other[k] else -1
    return 0


@compiled
def _compare_as_yarn(v: View, a: int, b: int, needy: bool) -> int:
    """Compare queue a with its sibling b by YARN's rule, both being below their minimums or neither: -1, 0 or 1."""
    policy = v.queues.policy[v.queues.parent[a]]
    if policy != YARN_DRF:
        r = policy - YARN_FAIR
        return _compare_parts_of_minimum(v, a, r, b, r) if needy else _compare_weighed(v, a, r, b, r)
    ra = rb = NONE
    order = 0
    for _ in range(v.total.shape[0]):
        ra, rb = _next_by_dominance(v, a, ra), _next_by_dominance(v, b, rb)
        if ra == NONE or order != 0:
            break
        order = _compare_parts_of_minimum(v, a, ra, b, rb) if needy else _compare_weighed(v, a, ra, b, rb)
    return order


@compiled
def set_level(v: View, q: int, leaf: bool) -> None:
    """The rest of the key under policies that look at more than what queue q uses: hdrf, and those that divide."""
    level = now = 0.0
    if v.queues.policy[v.queues.parent[q]] == HDRF:
        for r in range(v.total.shape[0]):
            if v.total[r] > 0 and (leaf or v.counted[r]):
                before = (v.charged[q, r] - (v.used[q, r] << v.fine[r])) / (1 << v.fine[r])
                now = max(now, v.counts_as[q, r] / v.total[r] / v.weight[q, r])
                level = max(level, (v.counts_as[q, r] + before) / v.total[r] / v.weight[q, r])
        v.queue_seats.level_now[q] = _rounded(now)
    else:
        level = np.inf
        if v.queue_seats.entitled[q] > 0:
            level = dominant_share(v.used[q], v.total, v.weight[q]) / v.queue_seats.entitled[q]
    v.queue_seats.first[q], v.queue_seats.level[q] = 0, _rounded(level)
    v.queue_seats.column[q] = NONE


@compiled
def turn_of(v: View, q: int) -> int:
    """What breaks ties between queue q and its siblings: when it was served last; under Mesos' policy, how often."""
    p = v.queues.parent[q]
    if p != NONE and v.queues.policy[p] == MESOS:
        return int(v.queues.allocations[q])
    return int(v.queues.served[q])


@compiled
def queue_goes_before(
    v: View, a: int, a_below: int, a_first: int, a_level: float, b: int, b_below: int, b_first: int, b_level: float
) -> bool:
    """Whether queue a goes before its sibling b, their keys being these."""
    order = compare_queues(v, a, a_below, a_first, a_level, b, b_below, b_first, b_level)
    if order != 0:
        return order < 0
    seat = v.queue_seats
    if seat.turn[a] != seat.turn[b]:
        return seat.turn[a] < seat.turn[b]
    return bool(v.queues.rank[a] < v.queues.rank[b])


@compiled
def compare_queues(
    v: View, a: int, a_below: int, a_first: int, a_level: float, b: int, b_below: int, b_first: int, b_level: float
) -> int:
    """Compare two siblings by these keys alone, not by whose turn it is: -1 where a goes first, 0 or 1."""
    if a_below != b_below:
        return -1 if a_below < b_below else 1
    if a_first != b_first:
        return -1 if a_first < b_first else 1
    ra, rb = v.queue_seats.column[a], v.queue_seats.column[b]
    if ra != NONE and rb != NONE and abs(a_level - b_level) <= _SURE * (a_level + b_level):
        return compare_shares(v, a, ra, b, rb) if ra > NONE else _compare_as_yarn(v, a, b, a_below == 0)
    return int(a_level > b_level) - int(a_level < b_level)


@compiled
def bucket_goes_before(v: View, a: int, b: int) -> bool:
    """Whether bucket a goes before another of its leaf: by priority, then by the number of the job that is next."""
    if v.buckets.priority[a] != v.buckets.priority[b]:
        return bool(v.buckets.priority[a] > v.buckets.priority[b])
    return bool(v.bucket_seats.number[a] < v.bucket_seats.number[b])


@compiled
def exact_below(v: View, q: int, shape: int, under: int) -> int:
    """0 where queue q goes first with a task of the shape, for it is below its guarantee of something that this needs, else 1.

    A queue that is guaranteed nothing of what the task needs goes as the one on the way down from it does (`under`; 1 for a
    leaf): so a guarantee is one among the siblings of all above it too, as far as they name nothing. So goes whoever has others
    revoked for a guarantee, with what these give up: :func:`fairlead.scheduler.kernel_claims.guarded_part` asks along the same
    way. Who has a minimum under YARN's key goes by that. Who needs nothing in particular, a framework, needs anything.
    """
    if v.queue_seats.column[q] == AS_YARN:
        return int(v.queue_seats.below[q]) if v.queues.guaranteed[q] else under
    anything, named = True, False
    for r in range(v.total.shape[0]):
        anything &= v.demand[shape, r] == 0
    for r in range(v.total.shape[0]):
        if (anything or v.demand[shape, r] > 0) and v.guarantee[q, r] > 0:
            if _has(v, q, r) < v.guarantee[q, r]:
                return 0
            named = True
    return 1 if named else under


@compiled
def below_on_path(v: View, q: int, leaf: int, shape: int) -> int:
    """The same, for a task that waits in a leaf below the queue."""
    below, x = exact_below(v, leaf, shape, 1), leaf
    while x != q:
        x = v.queues.parent[x]
        below = exact_below(v, x, shape, below)
    return below
