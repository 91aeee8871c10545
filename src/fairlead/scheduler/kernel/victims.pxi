"""What is revoked for a claim: the least that makes room for all of it, from those who are furthest above what is theirs.

A plan is made on a **preemption_plan**: what the tables will be when all that was told to stop has ended, and the claims that were planned
before have what is kept for them. What may preempt are **runs**: tasks that run or start; of a gang all of them preempt together.

Who pays before whom. One of a revocable job before one that is none. Of two runs of different queues, the one whose queue is
further above what it is entitled to, of the two queues among which their ways to the root part; then the queue whose name comes
later. Of two of the same leaf the one of lower priority; then the one that loses less work; then the one that is fewer tasks;
then the one that began later; then the later job, the later task. Each that pays brings its queues down, so the next is chosen
anew.

On one node those preempt, one after another, that take of something that lacks there, until there is room; then, from the last to the
first, all are spared that can be. Of several nodes the one is taken on which more of the claim finds room; then the one after
which the payers are further above what is theirs, from the root down; then lower priority, less lost work, fewer tasks, later
begin, and the order of the nodes. That goes on until all of the claim fits, and then whatever can be spared of all of it is
spared: so each that is revoked is needed. Where that does not do, sets are tried: see kernel/victims.

A queue pays down to its guarantee, and not below; for class FAIR_SHARE down to its fair share as well, and a plan after which who
has the claim is not served before who has paid for it is none. For class IDLE preempt revocable jobs alone, whose queue is above a
limit, or one above it; and not so much that it could claim a guarantee or fair share then. For class PRIORITY a leaf pays for
its own claim, and not so much that it, or a queue above it, would be below its guarantee, or further below, with that served.
And nobody pays who would have a claim for a guarantee itself then, or, for class PRIORITY, one for a fair share.

Before anybody pays, offers are rescinded that make room: see kernel/preemption.
"""


cpdef i64 plan_claim(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """Plan a group's next claim, after :func:`ask`; see the head of this file.

    Returns
    -------
    int
        How many of `picked` preempt; `hosts` then says where the claim goes, and the preemption_plan is as if that had happened. NONE where
        nothing that may be revoked makes room; then the preemption_plan is as it was.
    """
    cdef bint rescinds
    rescinds = g.len_rescinded > 0 and not fits(v, g, b)
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


cdef i64 _one_after_another(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """Pick who pays for a claim, one after another; how many that are. NONE, and nobody pays, where that does not do."""
    cdef bint looks
    shape, wanted, count = v.groups[b].shape_row, max(1, v.groups[b].gang), 0
    while short_of(v, g, b) != NONE:
        k = _next_below(v, g, b, kind)
        if k == NONE:
            return _give_up(v, g, count)
        preempt(v, g, k, 1)
        g.picked[count] = k
        count += 1
    missing, at = wanted - all_hosts(v, g, shape, wanted), 0
    for n in range(v.counts[NODES]):
        g.gains[n] = UNLIMITED  # not known
    mark, key = v.scratches, floats(v, g.cols_keys)
    while missing > 0:
        while at < v.counts[NODES] and g.gains[at] <= missing:
            at += 1
        looks = at < v.counts[NODES]
        n = at if looks else _best_node(v, g)
        gain = 0
        if n != NONE:
            gain = g.gains[n]
            memcpy(key, &g.keys[n * g.cols_keys], g.cols_keys * sizeof(double))
        more = _evaluate(v, g, n, b, kind, missing, count) if n != NONE else _search(v, g, b, kind, count)
        if more == 0 and n == NONE:
            release(v, mark)
            return _give_up(v, g, count)
        if n != NONE and (looks or g.gains[n] != gain or not _is_key(g, n, key)):
            continue  # others may have paid since it was looked at: it may be another choice now
        preempt_all(v, g, count, count + more, 1)
        count += more
        missing, at = wanted - all_hosts(v, g, shape, wanted), 0
        if n != NONE:
            g.gains[n] = UNLIMITED
    release(v, mark)
    count = _spare(v, g, b, count)
    if any_claims_itself(v, g, b, kind, count) or (kind == FAIR_SHARE and not comes_first(v, g, b, count)):
        return _give_up(v, g, count)
    return count


cdef i64 _give_up(View v, PreemptionPlan g, i64 count) noexcept nogil:
    preempt_all(v, g, 0, count, -1)
    return NONE


cdef i64 _next_below(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """The run that pays next so that a claim is within the limit that it would break, or needs nothing idle_nonlendable; NONE."""
    cdef i64 m = v.len_total
    cdef bint helps
    q, found, need = short_of(v, g, b), NONE, &v.demand[v.groups[b].shape_row * m]
    mark, over, idle_nonlendable = v.scratches, flags(v, m), flags(v, m)
    for r in range(m):
        over[r] = need[r] > 0 and lacks_limit(v, g, b, q, r) > 0
        idle_nonlendable[r] = need[r] > 0 and q == 0 and lacks_lent(v, g, b, r) > 0
    for k in range(g.at[v.counts[NODES]]):
        x = g.runs[k].leaf
        while x != NONE and x != q:
            x = v.queues[x].parent
        has, helps = &v.demand[v.jobs[g.runs[k].job].shape_row * m], False
        for r in range(m):
            helps |= has[r] > 0 and (idle_nonlendable[r] or (over[r] and not g.runs[k].spare))
        if x == q and helps and (found == NONE or is_victim_before(v, g, k, found)) and is_eligible_victim(v, g, k, b, kind):
            found = k
    release(v, mark)
    return found


cdef i64 _next_payer(View v, PreemptionPlan g, i64 n, i64 b, i64 kind, i64 wanted) noexcept nogil:
    """The run of a node that pays next, so that it has room for so many tasks of the claim; NONE."""
    cdef i64 m = v.len_total
    cdef bint helps
    found, need = NONE, &v.demand[v.groups[b].shape_row * m]
    for i in range(g.at[n], g.at[n + 1]):
        k = g.by_node[i]
        has, helps = &v.demand[v.jobs[g.runs[k].job].shape_row * m], False
        for r in range(m):
            helps |= has[r] > 0 and need[r] > 0 and g.room[n * m + r] < wanted * need[r]
        if helps and (found == NONE or is_victim_before(v, g, k, found)) and is_eligible_victim(v, g, k, b, kind):
            found = k
    return found


cdef i64 _evaluate(View v, PreemptionPlan g, i64 n, i64 b, i64 kind, i64 missing, i64 first) noexcept nogil:
    """Work out what a node would add to a claim that lacks room for so many tasks, and its key.

    What pays is in `picked` from `first` on. Returns how many those are; nothing else is changed.
    """
    shape = v.groups[b].shape_row
    before, count = hosts(v, g, n, shape, UNLIMITED), first
    g.gains[n] = 0
    if could_hold(v, n, shape) == 0:
        return 0
    while hosts(v, g, n, shape, before + missing) < before + missing:
        k = _next_payer(v, g, n, b, kind, before + missing)
        if k == NONE:
            break
        preempt(v, g, k, 1)
        g.picked[count] = k
        count += 1
    gain = hosts(v, g, n, shape, before + missing) - before
    kept = count
    for i in range(count - 1, first - 1, -1):
        preempt(v, g, g.picked[i], -1)
        if gain > 0 and hosts(v, g, n, shape, before + gain) < before + gain:
            preempt(v, g, g.picked[i], 1)
        else:
            g.picked[i] = NONE
            kept -= 1
    g.gains[n] = gain
    _close_up(g, first, count)
    _set_key(v, g, n, first, kept)
    preempt_all(v, g, first, kept, -1)
    return kept - first


cdef void _close_up(PreemptionPlan g, i64 first, i64 end) noexcept nogil:
    """Have no gaps in what is picked."""
    kept = first
    for i in range(first, end):
        if g.picked[i] != NONE:
            g.picked[kept] = g.picked[i]
            kept += 1


cdef void _set_key(View v, PreemptionPlan g, i64 n, i64 first, i64 end) noexcept nogil:
    """The place of a node among others, by those that preempt on it: smaller numbers come before."""
    cdef i64 m = v.len_total
    key = &g.keys[n * g.cols_keys]
    deepest = g.cols_keys - MARKS
    for i in range(deepest):
        key[i] = -INFINITY
    key[0] = 0.0
    key[deepest], key[deepest + 1], key[deepest + 2], key[deepest + 3] = -INFINITY, 0.0, 0.0, -INFINITY
    for i in range(first, end):
        k = g.picked[i]
        q = g.runs[k].leaf
        if not g.runs[k].spare:
            key[0] = 1.0
        while v.queues[q].parent != NONE:
            key[g.depth[q]] = max(key[g.depth[q]], -g.above[q])
            q = v.queues[q].parent
        key[deepest] = max(key[deepest], <double>v.jobs[g.runs[k].job].priority)
        key[deepest + 1] += g.runs[k].lost
        key[deepest + 2] += g.runs[k].count
        key[deepest + 3] = max(key[deepest + 3], -g.runs[k].begun)


cdef bint _is_key(PreemptionPlan g, i64 n, double *key) noexcept nogil:
    for i in range(g.cols_keys):
        if g.keys[n * g.cols_keys + i] != key[i]:
            return False
    return True


cdef i64 _best_node(View v, PreemptionPlan g) noexcept nogil:
    """The node that adds most, by its key among those that add as much; NONE."""
    found = NONE
    for n in range(v.counts[NODES]):
        if g.gains[n] > 0 and (found == NONE or g.gains[n] > g.gains[found]):
            found = n
        elif g.gains[n] > 0 and g.gains[n] == g.gains[found]:
            for i in range(g.cols_keys):
                if g.keys[n * g.cols_keys + i] != g.keys[found * g.cols_keys + i]:
                    if g.keys[n * g.cols_keys + i] < g.keys[found * g.cols_keys + i]:
                        found = n
                    break
    return found


cdef i64 _search(View v, PreemptionPlan g, i64 b, i64 kind, i64 first) noexcept nogil:
    """Find runs of some node that make room for one task more of a claim, where those that preempt first keep others from it.

    That is, one pays that brings its queue down to its guarantee, and does not suffice; and another would have. So all sets of
    few are tried, those that spare the last to preempt first. Returns how many are `picked` from `first` on; nothing else is changed.
    """
    tried = 0
    for n in range(v.counts[NODES]):
        few = _few(v, g, n, b, kind, first)
        if few > 0 and tried < MOST_SEARCHED:
            tried += 1
            for chosen in range(1, <i64>1 << few):
                if _suffices(v, g, n, b, kind, first, few, chosen):
                    count = 0
                    for i in range(few):
                        if chosen >> i & 1:
                            g.picked[first + count] = g.picked[first + i]
                            count += 1
                    return count
    return 0


cdef i64 _few(View v, PreemptionPlan g, i64 n, i64 b, i64 kind, i64 first) noexcept nogil:
    """Pick the first few of a node that may preempt, in the order in which they do; 0 where all that may would not make room."""
    cdef i64 m = g.cols_left
    cdef bint helps
    shape, count = v.groups[b].shape_row, 0
    if could_hold(v, n, shape) == 0:
        return 0
    before = hosts(v, g, n, shape, UNLIMITED)
    mark, free = v.scratches, integers(v, m)
    memcpy(free, &g.room[n * m], m * sizeof(i64))
    for i in range(g.at[n], g.at[n + 1]):
        k = g.by_node[i]
        has, helps = &v.demand[v.jobs[g.runs[k].job].shape_row * m], False
        for r in range(m):
            helps |= has[r] > 0 and v.demand[shape * m + r] > 0 and g.room[n * m + r] < (before + 1) * v.demand[shape * m + r]
        if helps and is_eligible_victim(v, g, k, b, kind) and not _is_picked(g, k, first, first + count):
            for run in range(g.runs[k].first, g.runs[k].last):
                if g.runs[run].node == n:
                    for r in range(m):
                        free[r] += has[r]
            at = first + min(count, FEW)
            while at > first and is_victim_before(v, g, k, g.picked[at - 1]):
                if at - first < FEW:
                    g.picked[at] = g.picked[at - 1]
                at -= 1
            if at - first < FEW:
                g.picked[at] = k
            count = min(count + 1, FEW)
    for r in range(m):
        if v.demand[shape * m + r] > 0 and free[r] < (before + 1) * v.demand[shape * m + r]:
            count = 0
            break
    release(v, mark)
    return count


cdef bint _is_picked(PreemptionPlan g, i64 k, i64 begin, i64 end) noexcept nogil:
    """Whether the gang of a run is picked."""
    for i in range(begin, end):
        if g.runs[g.picked[i]].first == g.runs[k].first:
            return True
    return False


cdef bint _suffices(View v, PreemptionPlan g, i64 n, i64 b, i64 kind, i64 first, i64 few, i64 chosen) noexcept nogil:
    """Whether those of the few whose bits are set may preempt together, and make room for one task more."""
    cdef bint fits
    shape, fits, paid = v.groups[b].shape_row, True, 0
    before = hosts(v, g, n, shape, UNLIMITED)
    for i in range(few):
        if chosen >> i & 1 and fits:
            fits = is_eligible_victim(v, g, g.picked[first + i], b, kind)
            if fits:
                preempt(v, g, g.picked[first + i], 1)
                paid |= <i64>1 << i
    fits = fits and hosts(v, g, n, shape, before + 1) > before
    for i in range(few):
        if paid >> i & 1:
            preempt(v, g, g.picked[first + i], -1)
    return fits


cdef i64 _spare(View v, PreemptionPlan g, i64 b, i64 count) noexcept nogil:
    """From the last to the first, spare all that the claim can do without; how many preempt then."""
    shape, wanted, kept = v.groups[b].shape_row, max(1, v.groups[b].gang), count
    for i in range(count - 1, -1, -1):
        preempt(v, g, g.picked[i], -1)
        if all_hosts(v, g, shape, wanted) < wanted or short_of(v, g, b) != NONE:
            preempt(v, g, g.picked[i], 1)
        else:
            g.picked[i] = NONE
            kept -= 1
    _close_up(g, 0, count)
    return kept


cdef void _settle_in(View v, PreemptionPlan g, i64 b, i64 count) noexcept nogil:
    """Write down where a claim goes, and keep that: where somebody pays before where nobody does."""
    cdef i64 m = g.cols_left
    shape, wanted = v.groups[b].shape_row, max(1, v.groups[b].gang)
    for n in range(g.len_hosts):
        g.hosts[n] = 0
    for i in range(count):
        for run in range(g.runs[g.picked[i]].first, g.runs[g.picked[i]].last):
            wanted -= _host(v, g, g.runs[run].node, shape, wanted)
    for n in range(v.counts[NODES]):
        wanted -= _host(v, g, n, shape, wanted)
    take_from(v, g.kept, v.groups[b].leaf, &v.demand[shape * m], -max(1, v.groups[b].gang))


cdef i64 _host(View v, PreemptionPlan g, i64 n, i64 shape, i64 most) noexcept nogil:
    cdef i64 m = v.len_total
    more = hosts(v, g, n, shape, most) if most > 0 else 0
    g.hosts[n] += more
    for r in range(m):
        g.room[n * m + r] -= more * v.demand[shape * m + r]
    return more


cdef i64 any_set(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """Find any set of runs that may preempt for a group's claim and suffice: how many are `picked`, and preempt; or NONE."""
    runs, shape = g.at[v.counts[NODES]], v.groups[b].shape_row
    most = g.work[0] // PART
    g.work[0] -= runs
    if most < runs:
        return NONE
    missing = max(1, v.groups[b].gang) - all_hosts(v, g, shape, max(1, v.groups[b].gang))
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
    View v, PreemptionPlan g, i64 b, i64 kind, i64 help_, i64 *units, i64 missing, i64 size, i64 most
) noexcept nogil:
    """Try all sets of at most so many units, in depth: how many are picked, and preempt, or NONE; and the work that it took.

    For class IDLE it is of importance in which order they preempt: all orders are tried.
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
            preempt(v, g, units[places[count]], -1)
            at = places[count] + 1
            continue
        k = units[at]
        if is_eligible_victim(v, g, k, b, kind):
            places[count], g.picked[count] = at, k
            gained[count + 1] = gained[count] + _preempt_and_count(v, g, k, b)
            work += v.counts[QUEUES] + 2 * g.runs[k].count
            count += 1
            if gained[count] >= missing and _may_together(v, g, b, kind, count):
                release(v, mark)
                return count, work
            if kind == IDLE:
                at = -1
        at += 1
    preempt_all(v, g, 0, count, -1)
    release(v, mark)
    return NONE, work


cdef bint _may_together(View v, PreemptionPlan g, i64 b, i64 kind, i64 count) noexcept nogil:
    """Whether a claim is within limits, and those that are picked get none; and before them, as it must be for a fair share."""
    if short_of(v, g, b) != NONE or any_claims_itself(v, g, b, kind, count):
        return False
    return kind != FAIR_SHARE or comes_first(v, g, b, count)


cdef i64 _preempt_and_count(View v, PreemptionPlan g, i64 k, i64 b) noexcept nogil:
    """A run pays with its gang: how many tasks more of a group's claim its nodes have room for then. `gains` are zeros."""
    shape, most, more = v.groups[b].shape_row, max(1, v.groups[b].gang), 0
    for run in range(g.runs[k].first, g.runs[k].last):
        n = g.runs[run].node
        if g.gains[n] == 0:
            g.gains[n] = 1
            more -= hosts(v, g, n, shape, most)
    preempt(v, g, k, 1)
    for run in range(g.runs[k].first, g.runs[k].last):
        n = g.runs[run].node
        if g.gains[n] == 1:
            g.gains[n] = 0
            more += hosts(v, g, n, shape, most)
    return more


cdef i64 _who_help(View v, PreemptionPlan g, i64 b, i64 kind, i64 missing, i64 *units) noexcept nogil:
    """Those who may preempt and help a claim that lacks room for so many tasks, one run of each gang: who helps most comes first.

    They are in `units`; how many.
    """
    cdef i64 m = v.len_total
    runs, count, mark = g.at[v.counts[NODES]], 0, v.scratches
    helps = <Ranked *>scratch(v, runs * sizeof(Ranked))
    over, idle_nonlendable = integers(v, v.counts[QUEUES] * m), integers(v, m)
    _limits(v, g, b, over, idle_nonlendable)
    for i in range(runs):
        k = g.by_node[i]
        if g.runs[k].first == k and is_eligible_victim(v, g, k, b, kind):
            help_ = _helps_below(v, g, k, over, idle_nonlendable)
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


cdef void _limits(View v, PreemptionPlan g, i64 b, i64 *over, i64 *idle_nonlendable) noexcept nogil:
    """By how much a claim would break limits, by queue and resource; and how much it would use that others do not lend."""
    cdef i64 m = v.len_total
    q = v.groups[b].leaf
    while q != NONE:
        for r in range(m):
            if v.demand[v.groups[b].shape_row * m + r] > 0:
                over[q * m + r] = lacks_limit(v, g, b, q, r)
                idle_nonlendable[r] = lacks_lent(v, g, b, r) if q == 0 else 0
        q = v.queues[q].parent


cdef double _helps_below(View v, PreemptionPlan g, i64 k, i64 *over, i64 *idle_nonlendable) noexcept nogil:
    """What part of that which a claim lacks under limits, and of what others do not lend, a run gives up with its gang."""
    cdef i64 m = v.len_total
    demand, q, part = &v.demand[v.jobs[g.runs[k].job].shape_row * m], g.runs[k].leaf, 0.0
    while q != NONE:
        for r in range(m):
            if over[q * m + r] > 0 and not g.runs[k].spare:
                part += min(1.0, <double>(g.runs[k].count * demand[r]) / over[q * m + r])
            if q == 0 and idle_nonlendable[r] > 0:
                part += min(1.0, <double>(g.runs[k].count * demand[r]) / idle_nonlendable[r])
        q = v.queues[q].parent
    return part


cdef double _helps_on_node(View v, PreemptionPlan g, i64 run, i64 b, i64 missing) noexcept nogil:
    """What part of what one task more of a claim lacks on a node a run there has; next to nothing, if it is of further ones."""
    cdef i64 m = v.len_total
    n, shape, part = g.runs[run].node, v.groups[b].shape_row, 0.0
    if missing <= 0 or could_hold(v, n, shape) == 0:
        return 0.0
    has, before = &v.demand[v.jobs[g.runs[run].job].shape_row * m], hosts(v, g, n, shape, max(1, v.groups[b].gang))
    for r in range(m):
        need = v.demand[shape * m + r]
        if need > 0 and has[r] > 0:
            if g.room[n * m + r] < (before + 1) * need:
                part += <double>min(has[r], (before + 1) * need - g.room[n * m + r]) / need
            elif g.room[n * m + r] < (before + missing) * need:
                part += LATER
    return part


cdef bint _may_suffice(View v, PreemptionPlan g, i64 b, i64 count, i64 *units) noexcept nogil:
    """Whether a claim had room, and were within limits, if all of some paid, as far as one who pays keeps no other from it."""
    cdef i64 m = v.len_total
    cdef bint enough
    wanted = max(1, v.groups[b].gang)
    _suppose(v, g, count, units, 1)
    enough, q = all_hosts(v, g, v.groups[b].shape_row, wanted) >= wanted, v.groups[b].leaf
    while q != NONE:
        for r in range(m):
            if v.demand[v.groups[b].shape_row * m + r] > 0 and lacks_limit(v, g, b, q, r) > 0:
                enough = False
        q = v.queues[q].parent
    _suppose(v, g, count, units, -1)
    return enough


cdef void _suppose(View v, PreemptionPlan g, i64 count, i64 *units, i64 sign) noexcept nogil:
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
