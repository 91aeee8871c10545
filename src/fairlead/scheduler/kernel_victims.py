"""What is revoked for a claim: the least that makes room for all of it, from those who are furthest above what is theirs.

A plan is made on a **ledger**: what the tables will be when all that was told to stop has ended, and the claims that were planned
before have what is kept for them. What may pay are **runs**: tasks that run or start; of a gang all of them pay together.

Who pays before whom. One of a revocable job before one that is none. Of two runs of different queues, the one whose queue is
further above what it is entitled to, of the two queues among which their ways to the root part; then the queue whose name comes
later. Of two of the same leaf the one of lower priority; then the one that loses less work; then the one that is fewer tasks;
then the one that began later; then the later job, the later task. Each that pays brings its queues down, so the next is chosen
anew.

On one node those pay, one after another, that take of something that lacks there, until there is room; then, from the last to the
first, all are spared that can be. Of several nodes the one is taken on which more of the claim finds room; then the one after
which the payers are further above what is theirs, from the root down; then lower priority, less lost work, fewer tasks, later
begin, and the order of the nodes. That goes on until all of the claim fits, and then whatever can be spared of all of it is
spared: so each that is revoked is needed.

A queue pays down to its guarantee, and not below; for class FAIR_SHARE down to its fair share as well, and a plan after which who
has the claim is not served before who has paid for it is none. For class IDLE pay revocable jobs alone, whose queue is above a
limit, or one above it; and not so much that it could claim a guarantee or fair share then.
"""

from typing import ClassVar

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.policies.codes import DIVIDED, FIFO, HDRF
from fairlead.policies.codes import PRIORITY as BY_PRIORITY
from fairlead.scheduler.compiled_view import Arrays, View
from fairlead.scheduler.kernel_keys import queue_goes_before, set_key, set_level
from fairlead.scheduler.kernel_lending import withheld_from
from fairlead.scheduler.kernel_nodes import could_hold
from fairlead.scheduler.kernel_order import current_job, is_leaf
from fairlead.scheduler.statuses import EXPIRING, PLACED, REVOKING, RUNNING, STOPPING
from fairlead.scheduler.tables import FAIR_SHARE, I64, IDLE, NONE, PRIORITY, RESERVATION, UNLIMITED, fields
from fairlead.scheduler.view import HOLDS, NODES, QUEUES

FINE = 2.0**30
"""Shares that differ by less than a part of this are the same."""
FEW, MOST_SEARCHED = 8, 64
"""Runs of a node of which all sets are tried where one after another does not do, and nodes."""
MARKS = 4
"""What the key of a node says after whether any but revocable jobs pay, and the queues: priority, lost work, tasks, begin."""


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
    picked : runs that pay, so far
    gains, keys : of each node, what it would add to the claim, and its place among the nodes
    hosts : of each node, tasks of the claim
    """

    ARRAYS: ClassVar = {
        "left": ("i8", 2), "bound": ("i8", 2), "kept": ("i8", 2), "room": ("i8", 2), "entitled": ("f8", 1), "above": ("f8", 1),
        "depth": ("i8", 1),
        "runs": (fields(
            task="i8", job="i8", leaf="i8", node="i8", first="i8", last="i8", count="i8", lost="f8", begun="f8", safe="?",
            spare="?", gone="?",
        ), 1),
        "at": ("i8", 1), "by_node": ("i8", 1), "own_child": ("i8", 1), "asks": ("?", 1), "may_pay": ("?", 1), "picked": ("i8", 1),
        "gains": ("i8", 1), "keys": ("f8", 2), "hosts": ("i8", 1),
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
                _take_from(v, g.left, leaf, v.demand[shape], 1)
                if not v.jobs.revocable[j]:
                    _take_from(v, g.bound, leaf, v.demand[shape], 1)
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
        _set_above(v, g, q)


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
def _set_above(v: View, g: Ledger, q: int) -> None:
    g.above[q] = np.floor((_largest(v, g.left[q]) - g.entitled[q]) * FINE + 0.5)


@compiled
def _take_from(v: View, amounts: I64, leaf: int, demand: I64, times: int) -> None:
    """Take a demand from what a leaf and all above it have."""
    q = leaf
    while q != NONE:
        for r in range(demand.shape[0]):
            amounts[q, r] -= times * demand[r]
        q = v.queues.parent[q]


@compiled
def _pay(v: View, g: Ledger, k: int, sign: int) -> None:
    """A run pays, with its gang; or does not after all (-1)."""
    leaf = g.runs.leaf[k]
    demand = v.demand[v.jobs.shape_row[g.runs.job[k]]]
    for m in range(g.runs.first[k], g.runs.last[k]):
        g.runs.gone[m] = sign > 0
        n = g.runs.node[m]
        for r in range(demand.shape[0]):
            g.room[n, r] += sign * demand[r]
    _take_from(v, g.left, leaf, demand, sign * g.runs.count[k])
    if not g.runs.spare[k]:
        _take_from(v, g.bound, leaf, demand, sign * g.runs.count[k])
    q = leaf
    while q != NONE:
        _set_above(v, g, q)
        q = v.queues.parent[q]


@compiled
def _pay_all(v: View, g: Ledger, begin: int, end: int, sign: int) -> None:
    """Those that are picked pay; or do not after all (-1)."""
    for i in range(begin, end):
        _pay(v, g, g.picked[i], sign)


@compiled
def _pays_before(v: View, g: Ledger, one: int, other: int) -> bool:
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
    if kind == PRIORITY:
        return bool(v.jobs.priority[job] < v.buckets.priority[b])
    demand, q = v.demand[v.jobs.shape_row[job]], g.runs.leaf[k]
    if kind == IDLE and not (g.runs.spare[k] and _is_above_limit(v, g, q, demand)):
        return False
    shared = kind == FAIR_SHARE or (kind == IDLE and v.queues.share_timeout[q] < np.inf)
    while g.own_child[q] == NONE:
        for r in range(demand.shape[0]):
            if demand[r] > 0 and v.guarantee[q, r] > 0 and g.left[q, r] - count * demand[r] < v.guarantee[q, r]:
                return False
        if shared and not _stays_above(v, g, q, demand, count):
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
def _stays_above(v: View, g: Ledger, q: int, demand: I64, count: int) -> bool:
    """Whether a queue has its fair share yet without so many tasks."""
    share = 0.0
    for r in range(demand.shape[0]):
        if v.total[r] > 0:
            share = max(share, (g.left[q, r] - count * demand[r]) / v.total[r])
    return bool(np.floor((share - g.entitled[q]) * FINE + 0.5) >= 0)


@compiled
def comes_first(v: View, g: Ledger, b: int, count: int) -> bool:
    """After :func:`plan`: whether who has the claim is served, with it, before all that pay for it, by the order that places."""
    for i in range(count):
        y = g.runs.leaf[g.picked[i]]
        while g.own_child[v.queues.parent[y]] == NONE:
            y = v.queues.parent[y]
        if not _goes_before(v, g, b, g.own_child[v.queues.parent[y]], y, g.runs.job[g.picked[i]]):
            return False
    return True


@compiled
def _goes_before(v: View, g: Ledger, b: int, x: int, y: int, job: int) -> bool:
    """Whether queue x, with what is kept for its claims, is served before its sibling y, which paid with a job's tasks."""
    policy = v.queues.policy[v.queues.parent[x]]
    if policy == FIFO or policy == BY_PRIORITY:
        if policy == BY_PRIORITY and v.buckets.priority[b] != v.jobs.priority[job]:
            return bool(v.buckets.priority[b] > v.jobs.priority[job])
        return bool(v.jobs.id[current_job(v, b)] < v.jobs.id[job])
    resources = v.total.shape[0]
    less = v.used[y] - g.left[y]
    for r in range(resources):
        v.used[x, r] += g.kept[x, r]
        v.used[y, r] -= less[r]
        v.counts_as[x, r] += g.kept[x, r]
        v.counts_as[y, r] -= less[r]
    _set_keys(v, x, y)
    seat = v.queue_seats
    first = queue_goes_before(
        v, x, seat.below[x], seat.first[x], seat.level[x], y, seat.below[y], seat.first[y], seat.level[y]
    )
    for r in range(resources):
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
def _hosts(v: View, g: Ledger, n: int, shape: int, most: int) -> int:
    """How many tasks of a shape a node will have room for, at most so many."""
    if not v.nodes.up[n] or v.nodes.draining[n] or not v.masks[v.shapes.mask[shape], n]:
        return 0
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > 0:
            most = min(most, g.room[n, r] // v.demand[shape, r])
    return max(0, int(most))


@compiled
def _next_payer(v: View, g: Ledger, n: int, b: int, kind: int, wanted: int) -> int:
    """The run of a node that pays next, so that it has room for so many tasks of the claim; NONE."""
    found, need = NONE, v.demand[v.buckets.shape_row[b]]
    for i in range(g.at[n], g.at[n + 1]):
        k = g.by_node[i]
        has, helps = v.demand[v.jobs.shape_row[g.runs.job[k]]], False
        for r in range(need.shape[0]):
            helps |= has[r] > 0 and need[r] > 0 and g.room[n, r] < wanted * need[r]
        if helps and (found == NONE or _pays_before(v, g, k, found)) and may_pay(v, g, k, b, kind):
            found = k
    return int(found)


@compiled
def _evaluate(v: View, g: Ledger, n: int, b: int, kind: int, missing: int, first: int) -> int:
    """Work out what a node would add to a claim that lacks room for so many tasks, and its key.

    What pays is in `picked` from `first` on. Returns how many those are; nothing else is changed.
    """
    shape = v.buckets.shape_row[b]
    before, count = _hosts(v, g, n, shape, UNLIMITED), first
    g.gains[n] = 0
    if could_hold(v, n, shape) == 0:
        return 0
    while _hosts(v, g, n, shape, before + missing) < before + missing:
        k = _next_payer(v, g, n, b, kind, before + missing)
        if k == NONE:
            break
        _pay(v, g, k, 1)
        g.picked[count] = k
        count += 1
    gain = _hosts(v, g, n, shape, before + missing) - before
    kept = count
    for i in range(count - 1, first - 1, -1):
        _pay(v, g, g.picked[i], -1)
        if gain > 0 and _hosts(v, g, n, shape, before + gain) < before + gain:
            _pay(v, g, g.picked[i], 1)
        else:
            g.picked[i] = NONE
            kept -= 1
    g.gains[n] = gain
    _close_up(g, first, count)
    _set_key(v, g, n, first, kept)
    _pay_all(v, g, first, kept, -1)
    return kept - first


@compiled
def _close_up(g: Ledger, first: int, end: int) -> None:
    """Have no gaps in what is picked."""
    kept = first
    for i in range(first, end):
        if g.picked[i] != NONE:
            g.picked[kept] = g.picked[i]
            kept += 1


@compiled
def _set_key(v: View, g: Ledger, n: int, first: int, end: int) -> None:
    """The place of a node among others, by those that pay on it: smaller numbers come before."""
    key = g.keys[n]
    deepest = key.shape[0] - MARKS
    key[:deepest] = -np.inf
    key[0] = 0.0
    key[deepest], key[deepest + 1], key[deepest + 2], key[deepest + 3] = -np.inf, 0.0, 0.0, -np.inf
    for i in range(first, end):
        k = g.picked[i]
        q = g.runs.leaf[k]
        if not g.runs.spare[k]:
            key[0] = 1.0
        while v.queues.parent[q] != NONE:
            key[g.depth[q]] = max(key[g.depth[q]], -g.above[q])
            q = v.queues.parent[q]
        key[deepest] = max(key[deepest], float(v.jobs.priority[g.runs.job[k]]))
        key[deepest + 1] += g.runs.lost[k]
        key[deepest + 2] += g.runs.count[k]
        key[deepest + 3] = max(key[deepest + 3], -g.runs.begun[k])


@compiled
def _best_node(v: View, g: Ledger) -> int:
    """The node that adds most, by its key among those that add as much; NONE."""
    found = NONE
    for n in range(v.counts[NODES]):
        if g.gains[n] > 0 and (found == NONE or g.gains[n] > g.gains[found]):
            found = n
        elif g.gains[n] > 0 and g.gains[n] == g.gains[found]:
            for i in range(g.keys.shape[1]):
                if g.keys[n, i] != g.keys[found, i]:
                    if g.keys[n, i] < g.keys[found, i]:
                        found = n
                    break
    return int(found)


@compiled
def _search(v: View, g: Ledger, b: int, kind: int, first: int) -> int:
    """Find runs of some node that make room for one task more of a claim, where those that pay first keep others from it.

    That is, one pays that brings its queue down to its guarantee, and does not suffice; and another would have. So all sets of
    few are tried, those that spare the last to pay first. Returns how many are `picked` from `first` on; nothing else is changed.
    """
    tried = 0
    for n in range(v.counts[NODES]):
        few = _few(v, g, n, b, kind, first)
        if few > 0 and tried < MOST_SEARCHED:
            tried += 1
            for chosen in range(1, 2**few):
                if _suffices(v, g, n, b, kind, first, few, chosen):
                    count = 0
                    for i in range(few):
                        if chosen >> i & 1:
                            g.picked[first + count] = g.picked[first + i]
                            count += 1
                    return count
    return 0


@compiled
def _few(v: View, g: Ledger, n: int, b: int, kind: int, first: int) -> int:
    """Pick the first few of a node that may pay, in the order in which they do; 0 where all that may would not make room."""
    shape, count = v.buckets.shape_row[b], 0
    if could_hold(v, n, shape) == 0:
        return 0
    before = _hosts(v, g, n, shape, UNLIMITED)
    free = g.room[n].copy()
    for i in range(g.at[n], g.at[n + 1]):
        k = g.by_node[i]
        has, helps = v.demand[v.jobs.shape_row[g.runs.job[k]]], False
        for r in range(free.shape[0]):
            helps |= has[r] > 0 and v.demand[shape, r] > 0 and g.room[n, r] < (before + 1) * v.demand[shape, r]
        if helps and may_pay(v, g, k, b, kind) and not _is_picked(g, k, first, first + count):
            for m in range(g.runs.first[k], g.runs.last[k]):
                if g.runs.node[m] == n:
                    for r in range(free.shape[0]):
                        free[r] += has[r]
            at = first + min(count, FEW)
            while at > first and _pays_before(v, g, k, g.picked[at - 1]):
                if at - first < FEW:
                    g.picked[at] = g.picked[at - 1]
                at -= 1
            if at - first < FEW:
                g.picked[at] = k
            count = min(count + 1, FEW)
    for r in range(free.shape[0]):
        if v.demand[shape, r] > 0 and free[r] < (before + 1) * v.demand[shape, r]:
            return 0
    return count


@compiled
def _is_picked(g: Ledger, k: int, begin: int, end: int) -> bool:
    """Whether the gang of a run is picked."""
    for i in range(begin, end):
        if g.runs.first[g.picked[i]] == g.runs.first[k]:
            return True
    return False


@compiled
def _suffices(v: View, g: Ledger, n: int, b: int, kind: int, first: int, few: int, chosen: int) -> bool:
    """Whether those of the few whose bits are set may pay together, and make room for one task more."""
    shape, fits, paid = v.buckets.shape_row[b], True, 0
    before = _hosts(v, g, n, shape, UNLIMITED)
    for i in range(few):
        if chosen >> i & 1 and fits:
            fits = may_pay(v, g, g.picked[first + i], b, kind)
            if fits:
                _pay(v, g, g.picked[first + i], 1)
                paid |= 1 << i
    fits = fits and _hosts(v, g, n, shape, before + 1) > before
    for i in range(few):
        if paid >> i & 1:
            _pay(v, g, g.picked[first + i], -1)
    return fits


@compiled
def _all_hosts(v: View, g: Ledger, shape: int, most: int) -> int:
    """How many tasks of a shape all nodes together will have room for, at most so many."""
    total = 0
    for n in range(v.counts[NODES]):
        if total < most:
            total += _hosts(v, g, n, shape, most - total)
    return total


@compiled
def ask(v: View, g: Ledger, b: int, kind: int, first: int, last: int) -> None:
    """Say who may pay for a claim.

    For PRIORITY its leaf, for IDLE all with revocable jobs, else the siblings of the queues from `first` to `last` on its path.
    """
    g.own_child[:], g.asks[:], g.may_pay[:] = NONE, False, False
    leaf = v.buckets.leaf[b]
    if kind == PRIORITY:
        g.may_pay[leaf] = v.queues.revocable[leaf]
        return
    q, asking = leaf, False
    while v.queues.parent[q] != NONE:
        asking |= q == first
        g.own_child[v.queues.parent[q]] = q
        g.asks[q] = asking
        asking &= q != last
        q = v.queues.parent[q]
    for other in range(1, v.counts[QUEUES]):
        if kind == IDLE:
            g.may_pay[other] = v.queues.revocable[other] and v.queues.spare_tasks[other] > 0
        elif g.own_child[other] == NONE and other != leaf and v.queues.revocable[other]:
            q = other
            while g.own_child[q] == NONE:
                q = v.queues.parent[q]
            g.may_pay[other] = g.asks[g.own_child[q]]


@compiled
def plan(v: View, g: Ledger, b: int, kind: int) -> int:
    """Plan a bucket's next claim, after :func:`ask`; see the head of this file.

    Returns
    -------
    int
        How many of `picked` pay; `hosts` then says where the claim goes, and the ledger is as if that had happened. NONE where
        nothing that may be revoked makes room; then the ledger is as it was.
    """
    shape, wanted, count = v.buckets.shape_row[b], max(1, v.buckets.gang[b]), 0
    short = True
    while short:
        short = _short(v, g, b) != NONE
        if short:
            k = _next_below(v, g, b, kind)
            if k == NONE:
                return _give_up(v, g, count)
            _pay(v, g, k, 1)
            g.picked[count] = k
            count += 1
    missing, at = wanted - _all_hosts(v, g, shape, wanted), 0
    g.gains[:] = UNLIMITED  # not known
    while missing > 0:
        while at < v.counts[NODES] and g.gains[at] <= missing:
            at += 1
        looks = at < v.counts[NODES]
        n = at if looks else _best_node(v, g)
        gain, key = (g.gains[n], g.keys[n].copy()) if n != NONE else (0, g.keys[0])
        more = _evaluate(v, g, n, b, kind, missing, count) if n != NONE else _search(v, g, b, kind, count)
        if more == 0 and n == NONE:
            return _give_up(v, g, count)
        if n != NONE and (looks or g.gains[n] != gain or (g.keys[n] != key).any()):
            continue  # others may have paid since it was looked at: it may be another choice now
        _pay_all(v, g, count, count + more, 1)
        count += more
        missing, at = wanted - _all_hosts(v, g, shape, wanted), 0
        if n != NONE:
            g.gains[n] = UNLIMITED
    count = _spare(v, g, b, shape, wanted, count)
    if kind == PRIORITY and _sinks(v, g, b, count):
        return _give_up(v, g, count)
    _settle_in(v, g, b, shape, wanted, count)
    return count


@compiled
def _give_up(v: View, g: Ledger, count: int) -> int:
    _pay_all(v, g, 0, count, -1)
    return NONE


@compiled
def _short(v: View, g: Ledger, b: int) -> int:
    """The lowest queue on a bucket's path whose limit its claim would break, the root if others withhold what it needs; NONE."""
    demand, q = v.demand[v.buckets.shape_row[b]], v.buckets.leaf[b]
    while q != NONE:
        for r in range(demand.shape[0]):
            if demand[r] > 0 and (_is_over(v, g, b, q, r) or (q == 0 and _is_withheld(v, g, b, r))):
                return int(q)
        q = v.queues.parent[q]
    return NONE


@compiled
def _is_over(v: View, g: Ledger, b: int, q: int, r: int) -> bool:
    """Whether a bucket's claim would break a queue's limit of a resource."""
    count = max(1, v.buckets.gang[b])
    return bool(v.demand[v.buckets.shape_row[b], r] > (v.limit[q, r] - g.bound[q, r] - g.kept[q, r]) // count)


@compiled
def _is_withheld(v: View, g: Ledger, b: int, r: int) -> bool:
    """Whether a bucket's claim would use what others do not lend. Who pays keeps its guarantee, so none withholds more then."""
    if not v.queues.lends[0]:
        return False
    room = v.total[r] - g.left[0, r] - g.kept[0, r] - withheld_from(v, v.buckets.leaf[b], r)
    return bool(v.demand[v.buckets.shape_row[b], r] > room // max(1, v.buckets.gang[b]))


@compiled
def _next_below(v: View, g: Ledger, b: int, kind: int) -> int:
    """The run that pays next so that a claim is within the limit that it would break, or needs nothing withheld; NONE."""
    q, found, need = _short(v, g, b), NONE, v.demand[v.buckets.shape_row[b]]
    for k in range(g.at[v.counts[NODES]]):
        x = g.runs.leaf[k]
        while x != NONE and x != q:
            x = v.queues.parent[x]
        has, helps = v.demand[v.jobs.shape_row[g.runs.job[k]]], False
        for r in range(need.shape[0]):
            if need[r] > 0 and has[r] > 0:
                over = _is_over(v, g, b, q, r) and not g.runs.spare[k]
                helps |= over or (q == 0 and _is_withheld(v, g, b, r))
        if x == q and helps and (found == NONE or _pays_before(v, g, k, found)) and may_pay(v, g, k, b, kind):
            found = k
    return int(found)


@compiled
def _spare(v: View, g: Ledger, b: int, shape: int, wanted: int, count: int) -> int:
    """From the last to the first, spare all that the claim can do without; how many pay then."""
    kept = count
    for i in range(count - 1, -1, -1):
        _pay(v, g, g.picked[i], -1)
        if _all_hosts(v, g, shape, wanted) < wanted or _short(v, g, b) != NONE:
            _pay(v, g, g.picked[i], 1)
        else:
            g.picked[i] = NONE
            kept -= 1
    _close_up(g, 0, count)
    return kept


@compiled
def _sinks(v: View, g: Ledger, b: int, count: int) -> bool:
    """Whether what pays for a claim of its own leaf would bring some queue below its guarantee, or further below."""
    demand, times, q = v.demand[v.buckets.shape_row[b]], max(1, v.buckets.gang[b]), v.buckets.leaf[b]
    while v.queues.parent[q] != NONE:
        for r in range(demand.shape[0]):
            gone = np.int64(0)
            for i in range(count):
                gone += g.runs.count[g.picked[i]] * v.demand[v.jobs.shape_row[g.runs.job[g.picked[i]]], r]
            after = g.left[q, r] + g.kept[q, r] + times * demand[r]
            if gone > times * demand[r] and after < v.guarantee[q, r]:
                return True
        q = v.queues.parent[q]
    return False


@compiled
def _settle_in(v: View, g: Ledger, b: int, shape: int, wanted: int, count: int) -> None:
    """Write down where a claim goes, and keep that: where somebody pays before where nobody does."""
    g.hosts[:] = 0
    for i in range(count):
        for m in range(g.runs.first[g.picked[i]], g.runs.last[g.picked[i]]):
            wanted -= _host(v, g, g.runs.node[m], shape, wanted)
    for n in range(v.counts[NODES]):
        wanted -= _host(v, g, n, shape, wanted)
    _take_from(v, g.kept, v.buckets.leaf[b], v.demand[shape], -max(1, v.buckets.gang[b]))


@compiled
def _host(v: View, g: Ledger, n: int, shape: int, most: int) -> int:
    more = _hosts(v, g, n, shape, most) if most > 0 else 0
    g.hosts[n] += more
    for r in range(v.total.shape[0]):
        g.room[n, r] -= more * v.demand[shape, r]
    return more


@compiled
def undo(v: View, g: Ledger, b: int, count: int) -> None:
    """Have the ledger as it was before a plan."""
    demand = v.demand[v.buckets.shape_row[b]]
    for n in range(v.counts[NODES]):
        for r in range(demand.shape[0]):
            g.room[n, r] += g.hosts[n] * demand[r]
    _take_from(v, g.kept, v.buckets.leaf[b], demand, max(1, v.buckets.gang[b]))
    _pay_all(v, g, 0, count, -1)
