"""Sets of those who may pay for a claim: tried where one after another does not do, because who pays first keeps others from it.

All that help are put in an order, those that help most first, but revocable jobs before others; one alone is tried first, then
any two, any three, and then any number of them, in depth. That is bounded by the work that it takes, so it finds a set wherever
few help, and otherwise may leave a claim for later.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_ledger import (
    Ledger,
    all_hosts,
    any_claims_itself,
    comes_first,
    hosts,
    lacks_lent,
    lacks_limit,
    may_pay,
    pay,
    pay_all,
    short_of,
    take_from,
)
from fairlead.scheduler.kernel_nodes import could_hold
from fairlead.scheduler.tables import FAIR_SHARE, I64, IDLE, NONE
from fairlead.scheduler.view import NODES, QUEUES

MOST_WORK = 1_000_000
"""Steps of some ten nanoseconds, in one decision."""
PART = 4
"""A claim may have a part of what is left of that."""
_FIRST = 1e9  # more than anybody helps
_LATER = 1e-6  # what helps only when others have paid


@compiled
def any_set(v: View, g: Ledger, b: int, kind: int) -> int:
    """Find any set of runs that may pay for a bucket's claim and suffice: how many are `picked`, and pay; or NONE."""
    runs, shape = g.at[v.counts[NODES]], v.buckets.shape_row[b]
    most = g.work[0] // PART
    g.work[0] -= runs
    if most < runs:
        return NONE
    missing = max(1, v.buckets.gang[b]) - all_hosts(v, g, shape, max(1, v.buckets.gang[b]))
    units = _who_help(v, g, b, kind, missing)
    if len(units) == 0 or not _may_suffice(v, g, b, units):
        return NONE
    g.gains[:] = 0
    for size in (1, 2, 3, len(units)):
        count, work = _sets_of(v, g, b, kind, units, missing, size, most)
        g.work[0] -= work
        most -= work
        if count != NONE:
            return count
    return NONE


@compiled
def _sets_of(v: View, g: Ledger, b: int, kind: int, units: I64, missing: int, size: int, most: int) -> tuple[int, int]:
    """Try all sets of at most so many units, in depth: how many are picked, and pay, or NONE; and the work that it took.

    For class IDLE it is of importance in which order they pay: all orders are tried.
    """
    at, work, places = 0, 0, np.empty(size, np.int64)
    count, gained = 0, np.zeros(size + 1, np.int64)
    while work < most:
        work += 1
        if at == len(units) or count == size:
            if count == 0:
                return NONE, work
            count -= 1
            pay(v, g, units[places[count]], -1)
            at = places[count] + 1
            continue
        k = units[at]
        if may_pay(v, g, k, b, kind):
            places[count], g.picked[count] = at, k
            gained[count + 1] = gained[count] + _pay_and_count(v, g, k, b)
            work += v.counts[QUEUES] + 2 * g.runs.count[k]
            count += 1
            if gained[count] >= missing and _may_together(v, g, b, kind, count):
                return count, work
            if kind == IDLE:
                at = -1
        at += 1
    pay_all(v, g, 0, count, -1)
    return NONE, work


@compiled
def _may_together(v: View, g: Ledger, b: int, kind: int, count: int) -> bool:
    """Whether a claim is within limits, and those that are picked get none; and before them, as it must be for a fair share."""
    if short_of(v, g, b) != NONE or any_claims_itself(v, g, b, kind, count):
        return False
    return bool(kind != FAIR_SHARE or comes_first(v, g, b, count))


@compiled
def _pay_and_count(v: View, g: Ledger, k: int, b: int) -> int:
    """A run pays with its gang: how many tasks more of a bucket's claim its nodes have room for then. `gains` are zeros."""
    shape, most, more = v.buckets.shape_row[b], max(1, v.buckets.gang[b]), 0
    for m in range(g.runs.first[k], g.runs.last[k]):
        n = g.runs.node[m]
        if g.gains[n] == 0:
            g.gains[n] = 1
            more -= hosts(v, g, n, shape, most)
    pay(v, g, k, 1)
    for m in range(g.runs.first[k], g.runs.last[k]):
        n = g.runs.node[m]
        if g.gains[n] == 1:
            g.gains[n] = 0
            more += hosts(v, g, n, shape, most)
    return more


@compiled
def _who_help(v: View, g: Ledger, b: int, kind: int, missing: int) -> I64:
    """Those who may pay and help a claim that lacks room for so many tasks, one run of each gang: who helps most comes first."""
    runs, count = g.at[v.counts[NODES]], 0
    found, helps = np.empty(runs, np.int64), np.empty(runs)
    over, withheld = _limits(v, g, b)
    for i in range(runs):
        k = g.by_node[i]
        if g.runs.first[k] == k and may_pay(v, g, k, b, kind):
            help_ = _helps_below(v, g, k, over, withheld)
            for m in range(g.runs.first[k], g.runs.last[k]):
                help_ += _helps_on_node(v, g, m, b, missing)
            if help_ > 0:
                found[count], helps[count] = k, help_ + (_FIRST if g.runs.spare[k] else 0.0)
                count += 1
    return found[:count][np.argsort(-helps[:count], kind="mergesort")]


@compiled
def _limits(v: View, g: Ledger, b: int) -> tuple[I64, I64]:
    """By how much a claim would break limits, by queue and resource; and how much it would use that others do not lend."""
    over, withheld = np.zeros(v.limit.shape, np.int64), np.zeros(v.total.shape[0], np.int64)
    q = v.buckets.leaf[b]
    while q != NONE:
        for r in range(v.total.shape[0]):
            if v.demand[v.buckets.shape_row[b], r] > 0:
                over[q, r] = lacks_limit(v, g, b, q, r)
                withheld[r] = lacks_lent(v, g, b, r) if q == 0 else 0
        q = v.queues.parent[q]
    return over, withheld


@compiled
def _helps_below(v: View, g: Ledger, k: int, over: I64, withheld: I64) -> float:
    """What part of that which a claim lacks under limits, and of what others do not lend, a run gives up with its gang."""
    demand, q, part = v.demand[v.jobs.shape_row[g.runs.job[k]]], g.runs.leaf[k], 0.0
    while q != NONE:
        for r in range(demand.shape[0]):
            if over[q, r] > 0 and not g.runs.spare[k]:
                part += min(1.0, g.runs.count[k] * demand[r] / over[q, r])
            if q == 0 and withheld[r] > 0:
                part += min(1.0, g.runs.count[k] * demand[r] / withheld[r])
        q = v.queues.parent[q]
    return part


@compiled
def _helps_on_node(v: View, g: Ledger, m: int, b: int, missing: int) -> float:
    """What part of what one task more of a claim lacks on a node a run there has; next to nothing, if it is of further ones."""
    n, shape, part = g.runs.node[m], v.buckets.shape_row[b], 0.0
    if missing <= 0 or could_hold(v, n, shape) == 0:
        return 0.0
    has, before = v.demand[v.jobs.shape_row[g.runs.job[m]]], hosts(v, g, n, shape, max(1, v.buckets.gang[b]))
    for r in range(has.shape[0]):
        need = v.demand[shape, r]
        if need > 0 and has[r] > 0:
            if g.room[n, r] < (before + 1) * need:
                part += min(has[r], (before + 1) * need - g.room[n, r]) / need
            elif g.room[n, r] < (before + missing) * need:
                part += _LATER
    return part


@compiled
def _may_suffice(v: View, g: Ledger, b: int, units: I64) -> bool:
    """Whether a claim had room, and were within limits, if all of some paid, as far as one who pays keeps no other from it."""
    wanted = max(1, v.buckets.gang[b])
    _suppose(v, g, units, 1)
    enough, q = all_hosts(v, g, v.buckets.shape_row[b], wanted) >= wanted, v.buckets.leaf[b]
    while q != NONE:
        for r in range(v.total.shape[0]):
            if v.demand[v.buckets.shape_row[b], r] > 0 and lacks_limit(v, g, b, q, r) > 0:
                enough = False
        q = v.queues.parent[q]
    _suppose(v, g, units, -1)
    return enough


@compiled
def _suppose(v: View, g: Ledger, units: I64, sign: int) -> None:
    """Give back what some have, or not after all (-1), but for what follows from that."""
    for k in units:
        demand = v.demand[v.jobs.shape_row[g.runs.job[k]]]
        for m in range(g.runs.first[k], g.runs.last[k]):
            for r in range(demand.shape[0]):
                g.room[g.runs.node[m], r] += sign * demand[r]
        if not g.runs.spare[k]:
            take_from(v, g.bound, g.runs.leaf[k], demand, sign * g.runs.count[k])
