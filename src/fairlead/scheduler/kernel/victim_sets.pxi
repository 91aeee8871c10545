"""Sets of those who may pay for a claim: tried where one after another does not do, because who pays first keeps others from it.

All that help are put in an order, those that help most first, but revocable jobs before others; one alone is tried first, then
any two, any three, and then any number of them, in depth. That is bounded by the work that it takes, so it finds a set wherever
few help, and otherwise may leave a claim for later.
"""


cdef i64 any_set(View v, Ledger g, i64 b, i64 kind) noexcept nogil:
    """Find any set of runs that may pay for a bucket's claim and suffice: how many are `picked`, and pay; or NONE."""
    runs, shape = g.at[v.counts[NODES]], v.buckets[b].shape_row
    most = g.work[0] // PART
    g.work[0] -= runs
    if most < runs:
        return NONE
    missing = max(1, v.buckets[b].gang) - all_hosts(v, g, shape, max(1, v.buckets[b].gang))
    mark, units = v.scratches, integers(v, runs)
    help_, found = _who_help(v, g, b, kind, missing, units), NONE
    if help_ > 0 and _may_suffice(v, g, b, help_, units):
        for n in range(v.counts[NODES]):
            g.gains[n] = 0
        for size in range(1, 5):
            if found == NONE:
                found, work = _sets_of(v, g, b, kind, help_, units, missing, size if size < 4 else help_, most)
                g.work[0] -= work
                most -= work
    release(v, mark)
    return found


cdef (i64, i64) _sets_of(
    View v, Ledger g, i64 b, i64 kind, i64 help_, i64 *units, i64 missing, i64 size, i64 most
) noexcept nogil:
    """Try all sets of at most so many units, in depth: how many are picked, and pay, or NONE; and the work that it took.

    For class IDLE it is of importance in which order they pay: all orders are tried.
    """
    cdef i64 m = v.len_total
    at, work, count = 0, 0, 0
    mark, places, gained = v.scratches, integers(v, size), integers(v, size + 1)
    while work < most:
        work += 1
        if at == help_ or count == size:
            if count == 0:
                release(v, mark)
                return NONE, work
            count -= 1
            pay(v, g, units[places[count]], -1)
            at = places[count] + 1
            continue
        k = units[at]
        if may_pay(v, g, k, b, kind):
            places[count], g.picked[count] = at, k
            gained[count + 1] = gained[count] + _pay_and_count(v, g, k, b)
            work += v.counts[QUEUES] + 2 * g.runs[k].count
            count += 1
            if gained[count] >= missing and _may_together(v, g, b, kind, count):
                release(v, mark)
                return count, work
            if kind == IDLE:
                at = -1
        at += 1
    pay_all(v, g, 0, count, -1)
    release(v, mark)
    return NONE, work


cdef bint _may_together(View v, Ledger g, i64 b, i64 kind, i64 count) noexcept nogil:
    """Whether a claim is within limits, and those that are picked get none; and before them, as it must be for a fair share."""
    if short_of(v, g, b) != NONE or any_claims_itself(v, g, b, kind, count):
        return False
    return kind != FAIR_SHARE or comes_first(v, g, b, count)


cdef i64 _pay_and_count(View v, Ledger g, i64 k, i64 b) noexcept nogil:
    """A run pays with its gang: how many tasks more of a bucket's claim its nodes have room for then. `gains` are zeros."""
    shape, most, more = v.buckets[b].shape_row, max(1, v.buckets[b].gang), 0
    for run in range(g.runs[k].first, g.runs[k].last):
        n = g.runs[run].node
        if g.gains[n] == 0:
            g.gains[n] = 1
            more -= hosts(v, g, n, shape, most)
    pay(v, g, k, 1)
    for run in range(g.runs[k].first, g.runs[k].last):
        n = g.runs[run].node
        if g.gains[n] == 1:
            g.gains[n] = 0
            more += hosts(v, g, n, shape, most)
    return more


cdef i64 _who_help(View v, Ledger g, i64 b, i64 kind, i64 missing, i64 *units) noexcept nogil:
    """Those who may pay and help a claim that lacks room for so many tasks, one run of each gang: who helps most comes first.

    They are in `units`; how many.
    """
    cdef i64 m = v.len_total
    runs, count, mark = g.at[v.counts[NODES]], 0, v.scratches
    helps = <Ranked *>scratch(v, runs * sizeof(Ranked))
    over, withheld = integers(v, v.counts[QUEUES] * m), integers(v, m)
    _limits(v, g, b, over, withheld)
    for i in range(runs):
        k = g.by_node[i]
        if g.runs[k].first == k and may_pay(v, g, k, b, kind):
            help_ = _helps_below(v, g, k, over, withheld)
            for run in range(g.runs[k].first, g.runs[k].last):
                help_ += _helps_on_node(v, g, run, b, missing)
            if help_ > 0:
                helps[count].key, helps[count].row = -(help_ + (BEFORE_ALL if g.runs[k].spare else 0.0)), k
                helps[count].place = count
                count += 1
    qsort(helps, count, sizeof(Ranked), compare_ranked)
    for i in range(count):
        units[i] = helps[i].row
    release(v, mark)
    return count


cdef void _limits(View v, Ledger g, i64 b, i64 *over, i64 *withheld) noexcept nogil:
    """By how much a claim would break limits, by queue and resource; and how much it would use that others do not lend."""
    cdef i64 m = v.len_total
    q = v.buckets[b].leaf
    while q != NONE:
        for r in range(m):
            if v.demand[v.buckets[b].shape_row * m + r] > 0:
                over[q * m + r] = lacks_limit(v, g, b, q, r)
                withheld[r] = lacks_lent(v, g, b, r) if q == 0 else 0
        q = v.queues[q].parent


cdef double _helps_below(View v, Ledger g, i64 k, i64 *over, i64 *withheld) noexcept nogil:
    """What part of that which a claim lacks under limits, and of what others do not lend, a run gives up with its gang."""
    cdef i64 m = v.len_total
    demand, q, part = &v.demand[v.jobs[g.runs[k].job].shape_row * m], g.runs[k].leaf, 0.0
    while q != NONE:
        for r in range(m):
            if over[q * m + r] > 0 and not g.runs[k].spare:
                part += min(1.0, <double>(g.runs[k].count * demand[r]) / over[q * m + r])
            if q == 0 and withheld[r] > 0:
                part += min(1.0, <double>(g.runs[k].count * demand[r]) / withheld[r])
        q = v.queues[q].parent
    return part


cdef double _helps_on_node(View v, Ledger g, i64 run, i64 b, i64 missing) noexcept nogil:
    """What part of what one task more of a claim lacks on a node a run there has; next to nothing, if it is of further ones."""
    cdef i64 m = v.len_total
    n, shape, part = g.runs[run].node, v.buckets[b].shape_row, 0.0
    if missing <= 0 or could_hold(v, n, shape) == 0:
        return 0.0
    has, before = &v.demand[v.jobs[g.runs[run].job].shape_row * m], hosts(v, g, n, shape, max(1, v.buckets[b].gang))
    for r in range(m):
        need = v.demand[shape * m + r]
        if need > 0 and has[r] > 0:
            if g.room[n * m + r] < (before + 1) * need:
                part += <double>min(has[r], (before + 1) * need - g.room[n * m + r]) / need
            elif g.room[n * m + r] < (before + missing) * need:
                part += LATER
    return part


cdef bint _may_suffice(View v, Ledger g, i64 b, i64 count, i64 *units) noexcept nogil:
    """Whether a claim had room, and were within limits, if all of some paid, as far as one who pays keeps no other from it."""
    cdef i64 m = v.len_total
    cdef bint enough
    wanted = max(1, v.buckets[b].gang)
    _suppose(v, g, count, units, 1)
    enough, q = all_hosts(v, g, v.buckets[b].shape_row, wanted) >= wanted, v.buckets[b].leaf
    while q != NONE:
        for r in range(m):
            if v.demand[v.buckets[b].shape_row * m + r] > 0 and lacks_limit(v, g, b, q, r) > 0:
                enough = False
        q = v.queues[q].parent
    _suppose(v, g, count, units, -1)
    return enough


cdef void _suppose(View v, Ledger g, i64 count, i64 *units, i64 sign) noexcept nogil:
    """Give back what some have, or not after all (-1), but for what follows from that."""
    cdef i64 m = v.len_total
    for i in range(count):
        k = units[i]
        demand = &v.demand[v.jobs[g.runs[k].job].shape_row * m]
        for run in range(g.runs[k].first, g.runs[k].last):
            for r in range(m):
                g.room[g.runs[run].node * m + r] += sign * demand[r]
        if not g.runs[k].spare:
            take_from(v, g.bound, g.runs[k].leaf, demand, sign * g.runs[k].count)
