"""The ledger that plans of claims are made on: what there will be when somebody has paid, who may, and what is missing yet."""

from typing import ClassVar

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.policies.codes import DIVIDED, FIFO, HDRF
from fairlead.policies.codes import PRIORITY as BY_PRIORITY
from fairlead.scheduler.compiled_view import Arrays, View
from fairlead.scheduler.kernel_keys import (
    below_on_path,
    compare_queues,
    compares_as_yarn,
    queue_goes_before,
    set_key,
    set_level,
)
from fairlead.scheduler.kernel_order import current_job, is_leaf
from fairlead.scheduler.statuses import EXPIRING, PLACED, REVOKING, RUNNING, STOPPING
from fairlead.scheduler.tables import FAIR_SHARE, GUARANTEE, I64, IDLE, NONE, PRIORITY, RESERVATION, UNLIMITED, fields
from fairlead.scheduler.view import HOLDS, NOBODY, NODES, QUEUES

FINE = 2.0**30
"""Shares that differ by less than a part of this are the same."""
CLOSE = 1e-9
"""What differs by less, in parts of the larger, is the same."""
KEPT, NOW_RESCINDED, RESCINDED = range(3)
"""What becomes of an offer."""


class Ledger(Arrays):
    """What there will be, and who may pay; rows of `runs` are in the order of the tasks, so those of a gang lie together.

    left : shape (queues, resources): what they will use, without what is kept for claims; `bound`: without revocable jobs, too
    kept : shape (queues, resources): that
    room : shape (nodes, resources): free, and not kept for claims
    entitled, above : of each queue the dominant share that it is entitled to, and how far it will be above that
    depth : of each queue; 0 for the root
    runs : task, job, leaf, node: rows; first, last: those that pay with it; count: how many these are; lost: seconds of all of
        them times the dominant share of one, since they last said that they have kept what they did; begun: seconds; safe: it
        began too short a while ago; spare: of a revocable job; gone: it pays
    at, by_node : the runs of node n are by_node[at[n]:at[n + 1]]
    own_child : for the claim that is looked at: of each queue above its leaf, the one below it on the way there; NONE
    asks : of each queue on that way whether its siblings may be asked
    may_pay : of each leaf
    had : shape (queues, resources): what they would have if nobody paid for the claim that is looked at
    picked : runs that pay, so far
    gains, keys : of each node, what it would add to the claim, and its place among the nodes
    hosts : of each node, tasks of the claim
    work : how much may be done yet to find sets that pay, in all
    rescinded : of each offer, whether it is: KEPT, for the claim that is looked at (NOW_RESCINDED), or for one before
    """

    ARRAYS: ClassVar = {
        "left": ("i8", 2), "bound": ("i8", 2), "kept": ("i8", 2), "room": ("i8", 2), "entitled": ("f8", 1), "above": ("f8", 1),
        "depth": ("i8", 1),
        "runs": (fields(
            task="i8", job="i8", leaf="i8", node="i8", first="i8", last="i8", count="i8", lost="f8", begun="f8", safe="?",
            spare="?", gone="?",
        ), 1),
        "at": ("i8", 1), "by_node": ("i8", 1), "own_child": ("i8", 1), "asks": ("?", 1), "may_pay": ("?", 1), "had": ("i8", 2),
        "picked": ("i8", 1), "gains": ("i8", 1), "keys": ("f8", 2), "hosts": ("i8", 1), "work": ("i8", 1),
        "rescinded": ("i8", 1),
    }  # fmt: skip


@compiled
def gather(v: View, g: Ledger, now: float) -> None:
    """Fill the ledger: `entitled` and `depth` are set, the rest is zeros and long enough."""
    resources, k = v.total.shape[0], 0
    for q in range(v.counts[QUEUES]):
        g.left[q] = v.used[q]
        for r in range(resources):
            g.bound[q, r] = v.used[q, r] - v.spare[q, r]
    for n in range(v.counts[NODES]):
        for r in range(resources):
            g.room[n, r] = v.free[n, r]
    for j in range(len(v.jobs)):
        left, first = v.jobs.holding[j], k
        safe, lost, begun = False, 0.0, np.inf
        shape, leaf = v.jobs.shape_row[j], v.jobs.queue[j]
        for t in range(v.jobs.first[j], v.jobs.first[j] + v.jobs.tasks[j]):
            if left == 0:
                break
            status, n = v.tasks.status[t], v.tasks.node[t]
            if status < PLACED or status > REVOKING:
                continue
            left -= 1
            if status == STOPPING or status == EXPIRING or status == REVOKING:
                for r in range(resources):
                    g.room[n, r] += v.demand[shape, r]
                take_from(v, g.left, leaf, v.demand[shape], 1)
                if not v.jobs.revocable[j]:
                    take_from(v, g.bound, leaf, v.demand[shape], 1)
                continue
            started = v.tasks.started_at[t] if status == RUNNING else now
            runs = g.runs
            runs.task[k], runs.job[k], runs.leaf[k], runs.node[k] = t, j, leaf, n
            runs.first[k], runs.last[k], runs.count[k], runs.begun[k] = k, k + 1, 1, started
            runs.lost[k] = max(0.0, now - max(started, v.tasks.kept_at[t])) * _largest(v, v.demand[shape])
            runs.spare[k] = v.jobs.revocable[j]
            runs.safe[k] = now - started < v.queues.min_runtime[leaf]
            safe |= runs.safe[k]
            lost += runs.lost[k]
            begun = min(begun, started)
            k += 1
        if v.jobs.gang[j]:
            for m in range(first, k):
                g.runs.first[m], g.runs.last[m], g.runs.count[m] = first, k, k - first
                g.runs.lost[m], g.runs.begun[m], g.runs.safe[m] = lost, begun, safe
    _by_node(v, g, k)
    _keep_for_claims(v, g)
    for q in range(v.counts[QUEUES]):
        set_above(v, g, q)


@compiled
def _by_node(v: View, g: Ledger, count: int) -> None:
    """List the runs of each node."""
    for k in range(count):
        g.at[g.runs.node[k] + 1] += 1
    for n in range(v.counts[NODES]):
        g.at[n + 1] += g.at[n]
    place = g.at[:-1].copy()
    for k in range(count):
        n = g.runs.node[k]
        g.by_node[place[n]] = k
        place[n] += 1


@compiled
def _keep_for_claims(v: View, g: Ledger) -> None:
    """Take what is kept for claims from the room that there will be. Reservations are planned around claims."""
    for h in range(v.counts[HOLDS]):
        if v.holds.kind[h] != RESERVATION:
            for r in range(v.total.shape[0]):
                g.room[v.holds.node[h], r] -= v.amount[h, r]


@compiled
def _largest(v: View, amounts: I64) -> float:
    """The dominant share of amounts."""
    share = 0.0
    for r in range(v.total.shape[0]):
        if v.total[r] > 0:
            share = max(share, amounts[r] / v.total[r])
    return share


@compiled
def set_above(v: View, g: Ledger, q: int) -> None:
    """Work out how far a queue will be above what it is entitled to."""
    g.above[q] = np.floor((_largest(v, g.left[q]) - g.entitled[q]) * FINE + 0.5)


@compiled
def take_from(v: View, amounts: I64, leaf: int, demand: I64, times: int) -> None:
    """Take a demand from what a leaf and all above it have."""
    q = leaf
    while q != NONE:
        for r in range(demand.shape[0]):
            amounts[q, r] -= times * demand[r]
        q = v.queues.parent[q]


@compiled
def pay(v: View, g: Ledger, k: int, sign: int) -> None:
    """A run pays, with its gang; or does not after all (-1)."""
    leaf = g.runs.leaf[k]
    demand = v.demand[v.jobs.shape_row[g.runs.job[k]]]
    for m in range(g.runs.first[k], g.runs.last[k]):
        g.runs.gone[m] = sign > 0
        n = g.runs.node[m]
        for r in range(demand.shape[0]):
            g.room[n, r] += sign * demand[r]
    take_from(v, g.left, leaf, demand, sign * g.runs.count[k])
    if not g.runs.spare[k]:
        take_from(v, g.bound, leaf, demand, sign * g.runs.count[k])
    q = leaf
    while q != NONE:
        set_above(v, g, q)
        q = v.queues.parent[q]


@compiled
def pay_all(v: View, g: Ledger, begin: int, end: int, sign: int) -> None:
    """Those that are picked pay; or do not after all (-1)."""
    for i in range(begin, end):
        pay(v, g, g.picked[i], sign)


@compiled
def ask(v: View, g: Ledger, b: int, kind: int, first: int, last: int) -> None:
    """Say who may pay for a claim, and note what queues have before anybody does.

    For PRIORITY its leaf, for IDLE all with revocable jobs, else the siblings of the queues from `first` to `last` on its path.
    """
    g.had[:] = g.left + g.kept
    g.own_child[:], g.asks[:], g.may_pay[:] = NONE, False, False
    leaf = v.buckets.leaf[b]
    q, asking = leaf, False
    while v.queues.parent[q] != NONE:
        asking |= q == first
        g.own_child[v.queues.parent[q]] = q
        g.asks[q] = asking
        asking &= q != last
        q = v.queues.parent[q]
    if kind == PRIORITY:
        g.may_pay[leaf] = v.queues.revocable[leaf]
        return
    for other in range(1, v.counts[QUEUES]):
        if kind == IDLE:
            g.may_pay[other] = v.queues.revocable[other] and v.queues.spare_tasks[other] > 0
        elif g.own_child[other] == NONE and other != leaf and v.queues.revocable[other]:
            q = other
            while g.own_child[q] == NONE:
                q = v.queues.parent[q]
            g.may_pay[other] = g.asks[g.own_child[q]]


@compiled
def pays_before(v: View, g: Ledger, one: int, other: int) -> bool:
    """Whether a run pays before another: see above."""
    if g.runs.spare[one] != g.runs.spare[other]:
        return bool(g.runs.spare[one])
    x, y = g.runs.leaf[one], g.runs.leaf[other]
    if x != y:
        while v.queues.parent[x] != v.queues.parent[y]:
            if g.depth[x] >= g.depth[y]:
                x = v.queues.parent[x]
            else:
                y = v.queues.parent[y]
        if g.above[x] != g.above[y]:
            return bool(g.above[x] > g.above[y])
        return bool(v.queues.rank[x] > v.queues.rank[y])
    i, j = g.runs.job[one], g.runs.job[other]
    if v.jobs.priority[i] != v.jobs.priority[j]:
        return bool(v.jobs.priority[i] < v.jobs.priority[j])
    if g.runs.lost[one] != g.runs.lost[other]:
        return bool(g.runs.lost[one] < g.runs.lost[other])
    if g.runs.count[one] != g.runs.count[other]:
        return bool(g.runs.count[one] < g.runs.count[other])
    if g.runs.begun[one] != g.runs.begun[other]:
        return bool(g.runs.begun[one] > g.runs.begun[other])
    return one > other  # the order of their jobs and tasks


@compiled
def may_pay(v: View, g: Ledger, k: int, b: int, kind: int) -> bool:
    """Whether a run may pay for a bucket's claim, those that pay already paying."""
    if g.runs.gone[k] or g.runs.safe[k] or not g.may_pay[g.runs.leaf[k]]:
        return False
    job, count = g.runs.job[k], g.runs.count[k]
    demand, q = v.demand[v.jobs.shape_row[job]], g.runs.leaf[k]
    if kind == PRIORITY and v.jobs.priority[job] >= v.buckets.priority[b]:
        return False
    if kind == IDLE and not (g.runs.spare[k] and _is_above_limit(v, g, q, demand)):
        return False
    shared = kind == FAIR_SHARE or (kind == IDLE and v.queues.share_timeout[q] < np.inf)
    while v.queues.parent[q] != NONE:
        if q == v.buckets.leaf[b] or g.own_child[q] != NONE:
            if sinks(v, g, q, demand, count, b) or (shared and _loses_share(v, g, q, demand, count, b)):
                return False
        elif falls_below(v, g, q, demand, count) or (shared and not stays_above(v, g, q, demand, count)):
            return False
        q = v.queues.parent[q]
    return not claims_itself(v, g, k, b, kind) and (kind != GUARANTEE or _stays_behind(v, g, k, b))


@compiled
def _stays_behind(v: View, g: Ledger, k: int, b: int) -> bool:
    """Whether a claim for a guarantee goes before a run that pays for it, also as long as that has not been served.

    It is so but among queues that compare as YARN does: one that is below its minimum there goes first with whatever it asks
    for, so what it gave up would be its again before the claim's.
    """
    y = g.runs.leaf[k]
    while g.own_child[v.queues.parent[y]] == NONE:
        y = v.queues.parent[y]
    if not compares_as_yarn(v, y):
        return True
    pay(v, g, k, 1)
    first = _goes_before(v, g, b, g.own_child[v.queues.parent[y]], y, g.runs.job[k], True)
    pay(v, g, k, -1)
    return first


@compiled
def falls_below(v: View, g: Ledger, q: int, demand: I64, count: int) -> bool:
    """Whether a queue that does not gain the claim would be below its guarantee without so many tasks."""
    for r in range(demand.shape[0]):
        if demand[r] > 0 and v.guarantee[q, r] > 0 and g.left[q, r] - count * demand[r] < v.guarantee[q, r]:
            return True
    return False


@compiled
def sinks(v: View, g: Ledger, q: int, demand: I64, count: int, b: int) -> bool:
    """Whether a queue on the path of a bucket's claim, with that, would be below its guarantee without so many tasks.

    And further below than it would be anyway: it loses what is paid, and gains the claim.
    """
    for r in range(demand.shape[0]):
        if demand[r] > 0 and v.guarantee[q, r] > 0:
            after = _with_claim(v, g, q, b, r) - count * demand[r]
            if after < min(v.guarantee[q, r], g.had[q, r]):
                return True
    return False


@compiled
def _loses_share(v: View, g: Ledger, q: int, demand: I64, count: int, b: int) -> bool:
    """The same of its fair share."""
    had, share = 0.0, 0.0
    for r in range(demand.shape[0]):
        if v.total[r] > 0:
            had = max(had, g.had[q, r] / v.total[r])
            share = max(share, (_with_claim(v, g, q, b, r) - count * demand[r]) / v.total[r])
    return bool(np.floor((share - min(g.entitled[q], had)) * FINE + 0.5) < 0)


@compiled
def claims_itself(v: View, g: Ledger, k: int, b: int, kind: int) -> bool:
    """Whether a run that pays for a bucket's claim would have one for a guarantee then, with that served.

    For a claim of class PRIORITY, or one for its fair share. So nobody pays for whom others would have to pay in turn.
    """
    leaf, job = g.runs.leaf[k], g.runs.job[k]
    if g.runs.spare[k]:
        return False
    demand, back = v.demand[v.jobs.shape_row[job]], g.runs.count[k] if g.runs.gone[k] else 0
    if kind == PRIORITY and v.queues.share_timeout[leaf] < np.inf:
        share = 0.0
        for r in range(demand.shape[0]):
            if v.total[r] > 0:
                share = max(share, (_with_claim(v, g, leaf, b, r) + back * demand[r]) / v.total[r])
        if share <= g.entitled[leaf] * (1 + CLOSE):
            return True
    q, within = leaf, False
    while v.queues.guarded[q] and (within or v.queues.guarantee_timeout[q] < np.inf):
        named = False
        for r in range(demand.shape[0]):
            if demand[r] > 0 and v.guarantee[q, r] > 0:
                if _with_claim(v, g, q, b, r) + back * demand[r] > v.guarantee[q, r]:
                    return within
                named = True
        within |= named
        q = v.queues.parent[q]
    return within


@compiled
def _with_claim(v: View, g: Ledger, q: int, b: int, r: int) -> int:
    """What a queue will have of a resource with a bucket's claim served."""
    has = g.left[q, r] + g.kept[q, r]
    if q == v.buckets.leaf[b] or g.own_child[q] != NONE:
        has += max(1, v.buckets.gang[b]) * v.demand[v.buckets.shape_row[b], r]
    return int(has)


@compiled
def any_claims_itself(v: View, g: Ledger, b: int, kind: int, count: int) -> bool:
    """Whether any of those that are picked, all of them paying, would have a claim itself."""
    for i in range(count):
        if claims_itself(v, g, g.picked[i], b, kind):
            return True
    return False


@compiled
def gives_up(v: View, g: Ledger, leaf: int, job: int, amounts: I64) -> bool:
    """Add what tasks of a leaf may pay with, one after another, for a claim from beside all queues above it.

    As far as guarantees go. Returns whether any task of a job may be the first of them.
    """
    mine = False
    for k in range(g.at[g.at.shape[0] - 1]):
        if g.runs.job[k] == job and _keeps_theirs(v, g, k):
            mine = True
    for k in range(g.at[g.at.shape[0] - 1] - 1, -1, -1):
        if g.runs.leaf[k] == leaf and not g.runs.gone[k] and _keeps_theirs(v, g, k):
            pay(v, g, k, 1)
            for r in range(amounts.shape[0]):
                amounts[r] += g.runs.count[k] * v.demand[v.jobs.shape_row[g.runs.job[k]], r]
    return mine


@compiled
def _keeps_theirs(v: View, g: Ledger, k: int) -> bool:
    """Whether all above a run have what they are guaranteed without it."""
    q = g.runs.leaf[k]
    while v.queues.parent[q] != NONE:
        if falls_below(v, g, q, v.demand[v.jobs.shape_row[g.runs.job[k]]], g.runs.count[k]):
            return False
        q = v.queues.parent[q]
    return True


@compiled
def _is_above_limit(v: View, g: Ledger, leaf: int, demand: I64) -> bool:
    """Whether a leaf, or a queue above it, will use more than a limit of what a task of it takes."""
    q = leaf
    while q != NONE:
        for r in range(demand.shape[0]):
            if demand[r] > 0 and g.left[q, r] > v.limit[q, r]:
                return True
        q = v.queues.parent[q]
    return False


@compiled
def stays_above(v: View, g: Ledger, q: int, demand: I64, count: int) -> bool:
    """Whether a queue has its fair share yet without so many tasks."""
    share = 0.0
    for r in range(demand.shape[0]):
        if v.total[r] > 0:
            share = max(share, (g.left[q, r] - count * demand[r]) / v.total[r])
    return bool(np.floor((share - g.entitled[q]) * FINE + 0.5) >= 0)


@compiled
def comes_first(v: View, g: Ledger, b: int, count: int) -> bool:
    """Whether who has a claim is served, with it, before all that are picked, and pay for it, by the order that places."""
    claim, wanted, first = v.demand[v.buckets.shape_row[b]], max(1, v.buckets.gang[b]), True
    take_from(v, g.kept, v.buckets.leaf[b], claim, -wanted)
    for i in range(count):
        y = g.runs.leaf[g.picked[i]]
        while g.own_child[v.queues.parent[y]] == NONE:
            y = v.queues.parent[y]
        if not _goes_before(v, g, b, g.own_child[v.queues.parent[y]], y, g.runs.job[g.picked[i]], False):
            first = False
            break
    take_from(v, g.kept, v.buckets.leaf[b], claim, wanted)
    return first


@compiled
def _goes_before(v: View, g: Ledger, b: int, x: int, y: int, job: int, always: bool) -> bool:
    """Whether queue x, with what is kept for its claims, is served before its sibling y, which paid with a job's tasks.

    Where they are even it hangs on whose turn it is; `always` asks whether it is so whoever was served last.
    """
    policy = v.queues.policy[v.queues.parent[x]]
    if policy == FIFO or policy == BY_PRIORITY:
        if policy == BY_PRIORITY and v.buckets.priority[b] != v.jobs.priority[job]:
            return bool(v.buckets.priority[b] > v.jobs.priority[job])
        return bool(v.jobs.id[current_job(v, b)] < v.jobs.id[job])
    resources = v.total.shape[0]
    less, claimed = v.used[y] - g.left[y], v.claimed[x].copy()
    for r in range(resources):
        v.claimed[x, r] = 0  # it is a part of what is kept
        v.used[x, r] += g.kept[x, r]
        v.used[y, r] -= less[r]
        v.counts_as[x, r] += g.kept[x, r]
        v.counts_as[y, r] -= less[r]
    _set_keys(v, x, y)
    seat = v.queue_seats
    one = below_on_path(v, x, v.buckets.leaf[b], v.buckets.shape_row[b])
    other = below_on_path(v, y, v.jobs.queue[job], v.jobs.shape_row[job])
    if always:
        order = compare_queues(v, x, one, seat.first[x], seat.level[x], y, other, seat.first[y], seat.level[y])
        first = order < 0
    else:
        first = queue_goes_before(v, x, one, seat.first[x], seat.level[x], y, other, seat.first[y], seat.level[y])
    for r in range(resources):
        v.claimed[x, r] = claimed[r]
        v.used[x, r] -= g.kept[x, r]
        v.used[y, r] += less[r]
        v.counts_as[x, r] -= g.kept[x, r]
        v.counts_as[y, r] += less[r]
    _set_keys(v, x, y)
    return bool(first)


@compiled
def _set_keys(v: View, x: int, y: int) -> None:
    for q in (x, y):
        set_key(v, q)
        policy = v.queues.policy[v.queues.parent[q]]
        if policy == HDRF or policy == DIVIDED:
            set_level(v, q, is_leaf(v, q))


@compiled
def hosts(v: View, g: Ledger, n: int, shape: int, most: int) -> int:
    """How many tasks of a shape a node will have room for, at most so many."""
    if not v.nodes.up[n] or v.nodes.draining[n] or not v.masks[v.shapes.mask[shape], n]:
        return 0
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > 0:
            most = min(most, g.room[n, r] // v.demand[shape, r])
    return max(0, int(most))


@compiled
def all_hosts(v: View, g: Ledger, shape: int, most: int) -> int:
    """How many tasks of a shape all nodes together will have room for, at most so many."""
    total = 0
    for n in range(v.counts[NODES]):
        if total < most:
            total += hosts(v, g, n, shape, most - total)
    return total


@compiled
def fits(v: View, g: Ledger, b: int) -> bool:
    """Whether a bucket's claim has room on nodes, and under limits, with nobody paying more."""
    wanted = max(1, v.buckets.gang[b])
    return bool(all_hosts(v, g, v.buckets.shape_row[b], wanted) >= wanted and short_of(v, g, b) == NONE)


@compiled
def short_of(v: View, g: Ledger, b: int) -> int:
    """The lowest queue on a bucket's path whose limit its claim would break, the root if others withhold what it needs; NONE."""
    demand, q = v.demand[v.buckets.shape_row[b]], v.buckets.leaf[b]
    while q != NONE:
        for r in range(demand.shape[0]):
            if demand[r] > 0 and (lacks_limit(v, g, b, q, r) > 0 or (q == 0 and lacks_lent(v, g, b, r) > 0)):
                return int(q)
        q = v.queues.parent[q]
    return NONE


@compiled
def lacks_limit(v: View, g: Ledger, b: int, q: int, r: int) -> int:
    """By how much a bucket's claim would break a queue's limit of a resource: 0 where it would not. It needs some of it."""
    if v.limit[q, r] == UNLIMITED:
        return 0
    return _missing(v, b, r, v.limit[q, r] - g.bound[q, r] - g.kept[q, r])


@compiled
def lacks_lent(v: View, g: Ledger, b: int, r: int) -> int:
    """How much a bucket's claim would use of what others do not lend, of a resource that it needs some of."""
    if not v.queues.lends[0]:
        return 0
    return _missing(v, b, r, v.total[r] - g.left[0, r] - g.kept[0, r] - _withheld(v, g, v.buckets.leaf[b], r))


@compiled
def _missing(v: View, b: int, r: int, room: int) -> int:
    """How much more than there is room for a bucket's claim needs."""
    need, count = v.demand[v.buckets.shape_row[b], r], max(1, v.buckets.gang[b])
    if need <= room // count:  # a product might be too large
        return 0
    return int(max(1, min(NOBODY // count, need) * count - room))


@compiled
def _withheld(v: View, g: Ledger, leaf: int, r: int) -> int:
    """How much of a resource others will withhold from a leaf: see :mod:`fairlead.scheduler.kernel_lending`."""
    below, above = np.zeros(v.counts[QUEUES], np.int64), np.zeros(v.counts[QUEUES], np.bool_)
    amount, q = np.int64(0), leaf
    while q != NONE:
        above[q] = True
        q = v.queues.parent[q]
    for q in range(v.counts[QUEUES] - 1, 0, -1):  # parents come before their children
        withheld = max(0, v.reserve[q, r] - g.left[q, r] - g.kept[q, r], below[q])
        if not above[q]:
            if above[v.queues.parent[q]]:
                amount += withheld
            below[v.queues.parent[q]] += withheld
    return int(amount)
