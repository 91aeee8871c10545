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
spared: so each that is revoked is needed. Where that does not do, sets are tried: see kernel_victim_sets.

A queue pays down to its guarantee, and not below; for class FAIR_SHARE down to its fair share as well, and a plan after which who
has the claim is not served before who has paid for it is none. For class IDLE pay revocable jobs alone, whose queue is above a
limit, or one above it; and not so much that it could claim a guarantee or fair share then. For class PRIORITY a leaf pays for
its own claim, and not so much that it, or a queue above it, would be below its guarantee, or further below, with that served.
And nobody pays who would have a claim for a guarantee itself then, or, for class PRIORITY, one for a fair share.

Before anybody pays, offers are rescinded that make room: see kernel_rescind.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_ledger import (
    Ledger,
    all_hosts,
    any_claims_itself,
    comes_first,
    fits,
    hosts,
    lacks_lent,
    lacks_limit,
    may_pay,
    pay,
    pay_all,
    pays_before,
    short_of,
    take_from,
)
from fairlead.scheduler.kernel_nodes import could_hold
from fairlead.scheduler.kernel_rescind import keep_what_is_not_needed, rescind_all
from fairlead.scheduler.kernel_victim_sets import any_set
from fairlead.scheduler.tables import FAIR_SHARE, NONE, UNLIMITED
from fairlead.scheduler.view import NODES

FEW, MOST_SEARCHED = 8, 64
"""Runs of a node of which all sets are tried where one after another does not do, and nodes."""
MARKS = 4
"""What the key of a node says after whether any but revocable jobs pay, and the queues: priority, lost work, tasks, begin."""


@compiled
def plan(v: View, g: Ledger, b: int, kind: int) -> int:
    """Plan a bucket's next claim, after :func:`ask`; see the head of this file.

    Returns
    -------
    int
        How many of `picked` pay; `hosts` then says where the claim goes, and the ledger is as if that had happened. NONE where
        nothing that may be revoked makes room; then the ledger is as it was.
    """
    rescinds = g.rescinded.shape[0] > 0 and not fits(v, g, b)
    if rescinds:
        rescind_all(v, g, b, kind)
    count = _one_after_another(v, g, b, kind)
    if count == NONE:
        count = any_set(v, g, b, kind)
        count = _spare(v, g, b, count) if count != NONE else NONE
    if rescinds:
        keep_what_is_not_needed(v, g, b, count != NONE)
    if count != NONE:
        _settle_in(v, g, b, count)
    return count


@compiled
def _one_after_another(v: View, g: Ledger, b: int, kind: int) -> int:
    """Pick who pays for a claim, one after another; how many that are. NONE, and nobody pays, where that does not do."""
    shape, wanted, count = v.buckets.shape_row[b], max(1, v.buckets.gang[b]), 0
    while short_of(v, g, b) != NONE:
        k = _next_below(v, g, b, kind)
        if k == NONE:
            return _give_up(v, g, count)
        pay(v, g, k, 1)
        g.picked[count] = k
        count += 1
    missing, at = wanted - all_hosts(v, g, shape, wanted), 0
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
        pay_all(v, g, count, count + more, 1)
        count += more
        missing, at = wanted - all_hosts(v, g, shape, wanted), 0
        if n != NONE:
            g.gains[n] = UNLIMITED
    count = _spare(v, g, b, count)
    if any_claims_itself(v, g, b, kind, count) or (kind == FAIR_SHARE and not comes_first(v, g, b, count)):
        return _give_up(v, g, count)
    return count


@compiled
def _give_up(v: View, g: Ledger, count: int) -> int:
    pay_all(v, g, 0, count, -1)
    return NONE


@compiled
def _next_below(v: View, g: Ledger, b: int, kind: int) -> int:
    """The run that pays next so that a claim is within the limit that it would break, or needs nothing withheld; NONE."""
    q, found, need = short_of(v, g, b), NONE, v.demand[v.buckets.shape_row[b]]
    over, withheld = np.zeros(need.shape[0], np.bool_), np.zeros(need.shape[0], np.bool_)
    for r in range(need.shape[0]):
        over[r] = need[r] > 0 and lacks_limit(v, g, b, q, r) > 0
        withheld[r] = need[r] > 0 and q == 0 and lacks_lent(v, g, b, r) > 0
    for k in range(g.at[v.counts[NODES]]):
        x = g.runs.leaf[k]
        while x != NONE and x != q:
            x = v.queues.parent[x]
        has, helps = v.demand[v.jobs.shape_row[g.runs.job[k]]], False
        for r in range(need.shape[0]):
            helps |= has[r] > 0 and (withheld[r] or (over[r] and not g.runs.spare[k]))
        if x == q and helps and (found == NONE or pays_before(v, g, k, found)) and may_pay(v, g, k, b, kind):
            found = k
    return int(found)


@compiled
def _next_payer(v: View, g: Ledger, n: int, b: int, kind: int, wanted: int) -> int:
    """The run of a node that pays next, so that it has room for so many tasks of the claim; NONE."""
    found, need = NONE, v.demand[v.buckets.shape_row[b]]
    for i in range(g.at[n], g.at[n + 1]):
        k = g.by_node[i]
        has, helps = v.demand[v.jobs.shape_row[g.runs.job[k]]], False
        for r in range(need.shape[0]):
            helps |= has[r] > 0 and need[r] > 0 and g.room[n, r] < wanted * need[r]
        if helps and (found == NONE or pays_before(v, g, k, found)) and may_pay(v, g, k, b, kind):
            found = k
    return int(found)


@compiled
def _evaluate(v: View, g: Ledger, n: int, b: int, kind: int, missing: int, first: int) -> int:
    """Work out what a node would add to a claim that lacks room for so many tasks, and its key.

    What pays is in `picked` from `first` on. Returns how many those are; nothing else is changed.
    """
    shape = v.buckets.shape_row[b]
    before, count = hosts(v, g, n, shape, UNLIMITED), first
    g.gains[n] = 0
    if could_hold(v, n, shape) == 0:
        return 0
    while hosts(v, g, n, shape, before + missing) < before + missing:
        k = _next_payer(v, g, n, b, kind, before + missing)
        if k == NONE:
            break
        pay(v, g, k, 1)
        g.picked[count] = k
        count += 1
    gain = hosts(v, g, n, shape, before + missing) - before
    kept = count
    for i in range(count - 1, first - 1, -1):
        pay(v, g, g.picked[i], -1)
        if gain > 0 and hosts(v, g, n, shape, before + gain) < before + gain:
            pay(v, g, g.picked[i], 1)
        else:
            g.picked[i] = NONE
            kept -= 1
    g.gains[n] = gain
    _close_up(g, first, count)
    _set_key(v, g, n, first, kept)
    pay_all(v, g, first, kept, -1)
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
    before = hosts(v, g, n, shape, UNLIMITED)
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
            while at > first and pays_before(v, g, k, g.picked[at - 1]):
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
    before = hosts(v, g, n, shape, UNLIMITED)
    for i in range(few):
        if chosen >> i & 1 and fits:
            fits = may_pay(v, g, g.picked[first + i], b, kind)
            if fits:
                pay(v, g, g.picked[first + i], 1)
                paid |= 1 << i
    fits = fits and hosts(v, g, n, shape, before + 1) > before
    for i in range(few):
        if paid >> i & 1:
            pay(v, g, g.picked[first + i], -1)
    return fits


@compiled
def _spare(v: View, g: Ledger, b: int, count: int) -> int:
    """From the last to the first, spare all that the claim can do without; how many pay then."""
    shape, wanted, kept = v.buckets.shape_row[b], max(1, v.buckets.gang[b]), count
    for i in range(count - 1, -1, -1):
        pay(v, g, g.picked[i], -1)
        if all_hosts(v, g, shape, wanted) < wanted or short_of(v, g, b) != NONE:
            pay(v, g, g.picked[i], 1)
        else:
            g.picked[i] = NONE
            kept -= 1
    _close_up(g, 0, count)
    return kept


@compiled
def _settle_in(v: View, g: Ledger, b: int, count: int) -> None:
    """Write down where a claim goes, and keep that: where somebody pays before where nobody does."""
    shape, wanted = v.buckets.shape_row[b], max(1, v.buckets.gang[b])
    g.hosts[:] = 0
    for i in range(count):
        for m in range(g.runs.first[g.picked[i]], g.runs.last[g.picked[i]]):
            wanted -= _host(v, g, g.runs.node[m], shape, wanted)
    for n in range(v.counts[NODES]):
        wanted -= _host(v, g, n, shape, wanted)
    take_from(v, g.kept, v.buckets.leaf[b], v.demand[shape], -max(1, v.buckets.gang[b]))


@compiled
def _host(v: View, g: Ledger, n: int, shape: int, most: int) -> int:
    more = hosts(v, g, n, shape, most) if most > 0 else 0
    g.hosts[n] += more
    for r in range(v.total.shape[0]):
        g.room[n, r] -= more * v.demand[shape, r]
    return more
