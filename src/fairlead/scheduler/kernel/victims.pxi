"""Victim selection: a minimal set of preemptions for a whole claim, from queues furthest above their entitlement.

**Rules**

- A queue is never preempted below its guarantee; for FAIR_SHARE, nor below its fair share.
- For FAIR_SHARE, the claim must go before all victims by the order that places tasks.
- For IDLE, victims are revocable jobs whose queue, or one above it, exceeds a limit; the queue must not get a
  claim for its guarantee or fair share.
- For PRIORITY, victims are in the claim's own leaf; no queue above falls below its guarantee, or further below, with
  the claim served.
- No victim may itself have a claim for a guarantee afterwards; for PRIORITY, nor one for a fair share.

**Order of victims**: revocable jobs first. Between queues: the queue further above its entitlement, of the two siblings
where the paths part; then the later name. Within a leaf: lower priority, less lost work, fewer tasks, later start,
later job, later task. Each preemption lowers its queues, so the order is computed again.

**Algorithm**

1. Rescind offers that make room (`kernel/preemption.pxi`).
2. Pick victims until the claim is within limits.
3. On each node, pick victims that use what is missing until it has room; then spare, last to first, those not needed.
4. Take the node that fits most of the claim. Ties: victims whose queues remain further above their entitlements, from
   the root down; then lower priority, less lost work, fewer tasks, later start, node order. Repeat until the whole claim
   fits.
5. Spare, last to first, every victim that the whole claim does not need.
6. If greedy picks fail, search sets of victims within a bounded number of steps (:func:`search_sets`).
"""


cpdef i64 plan_claim(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """Plan a group's next claim, after :func:`find_eligible`; see the head of this file.

    Returns
    -------
    int
        Number of victims in `picked`. `hosts` then says where the claim goes, and the plan is as if all had happened.
        NONE if no victims suffice; then the plan is unchanged.
    """
    cdef bint rescinds
    rescinds = g.len_rescinded > 0 and not fits(v, g, b)
    if rescinds:
        rescind_all(v, g, b, kind)
    count = _pick_greedily(v, g, b, kind)
    if count == NONE:
        count = search_sets(v, g, b, kind)
        count = _spare_unneeded(v, g, b, count) if count != NONE else NONE
    if rescinds:
        restore_unneeded_offers(v, g, b, count != NONE)
    if count != NONE:
        _assign_nodes(v, g, b, count)
    return count


cdef i64 _pick_greedily(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """Greedily pick victims; return their count, or NONE (plan unchanged) if they do not suffice."""
    cdef bint looks
    shape, wanted, count = v.groups[b].shape_row, max(1, v.groups[b].gang), 0
    while blocking_queue(v, g, b) != NONE:
        k = _next_within_limits(v, g, b, kind)
        if k == NONE:
            return _undo_picks(v, g, count)
        preempt(v, g, k, 1)
        g.picked[count] = k
        count += 1
    missing, at = wanted - all_fitting(v, g, shape, wanted), 0
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
        more = _evaluate(v, g, n, b, kind, missing, count) if n != NONE else _search_subsets(v, g, b, kind, count)
        if more == 0 and n == NONE:
            release(v, mark)
            return _undo_picks(v, g, count)
        if n != NONE and (looks or g.gains[n] != gain or not _is_key(g, n, key)):
            continue  # evaluated before the last preemptions: the best node may differ now
        preempt_all(v, g, count, count + more, 1)
        count += more
        missing, at = wanted - all_fitting(v, g, shape, wanted), 0
        if n != NONE:
            g.gains[n] = UNLIMITED
    release(v, mark)
    count = _spare_unneeded(v, g, b, count)
    if any_would_claim(v, g, b, kind, count) or (kind == FAIR_SHARE and not claim_goes_first(v, g, b, count)):
        return _undo_picks(v, g, count)
    return count


cdef i64 _undo_picks(View v, PreemptionPlan g, i64 count) noexcept nogil:
    preempt_all(v, g, 0, count, -1)
    return NONE


cdef i64 _next_within_limits(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """Return the next victim that brings a claim within the limit, or lendable quota, that it exceeds; NONE."""
    cdef i64 m = v.len_total
    cdef bint helps
    q, found, need = blocking_queue(v, g, b), NONE, &v.demand[v.groups[b].shape_row * m]
    mark, over, idle_nonlendable = v.scratches, flags(v, m), flags(v, m)
    for r in range(m):
        over[r] = need[r] > 0 and over_limit_by(v, g, b, q, r) > 0
        idle_nonlendable[r] = need[r] > 0 and q == 0 and over_lendable_by(v, g, b, r) > 0
    for k in range(g.at[v.counts[NODES]]):
        x = g.runs[k].leaf
        while x != NONE and x != q:
            x = v.queues[x].parent
        has, helps = &v.demand[v.jobs[g.runs[k].job].shape_row * m], False
        for r in range(m):
            helps |= has[r] > 0 and (idle_nonlendable[r] or (over[r] and not g.runs[k].revocable))
        if x == q and helps and (found == NONE or is_victim_before(v, g, k, found)) and is_eligible_victim(v, g, k, b, kind):
            found = k
    release(v, mark)
    return found


cdef i64 _next_on_node(View v, PreemptionPlan g, i64 n, i64 b, i64 kind, i64 wanted) noexcept nogil:
    """Return a node's next victim so that it has room for `wanted` tasks of the claim; NONE."""
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
    """Compute how many of the `missing` tasks of a claim a node would gain, and its key.

    Its victims are in `picked` from `first` on. Return how many they are; all else is unchanged.
    """
    shape = v.groups[b].shape_row
    before, count = fitting(v, g, n, shape, UNLIMITED), first
    g.gains[n] = 0
    if capacity_for(v, n, shape) == 0:
        return 0
    while fitting(v, g, n, shape, before + missing) < before + missing:
        k = _next_on_node(v, g, n, b, kind, before + missing)
        if k == NONE:
            break
        preempt(v, g, k, 1)
        g.picked[count] = k
        count += 1
    gain = fitting(v, g, n, shape, before + missing) - before
    kept = count
    for i in range(count - 1, first - 1, -1):
        preempt(v, g, g.picked[i], -1)
        if gain > 0 and fitting(v, g, n, shape, before + gain) < before + gain:
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
    """Remove the gaps from `picked`."""
    kept = first
    for i in range(first, end):
        if g.picked[i] != NONE:
            g.picked[kept] = g.picked[i]
            kept += 1


cdef void _set_key(View v, PreemptionPlan g, i64 n, i64 first, i64 end) noexcept nogil:
    """Set a node's key by its victims: smaller comes first."""
    key = &g.keys[n * g.cols_keys]
    deepest = g.cols_keys - KEY_COLUMNS_AFTER_QUEUES
    for i in range(deepest):
        key[i] = -INFINITY
    key[0] = 0.0
    key[deepest], key[deepest + 1], key[deepest + 2], key[deepest + 3] = -INFINITY, 0.0, 0.0, -INFINITY
    for i in range(first, end):
        k = g.picked[i]
        q = g.runs[k].leaf
        if not g.runs[k].revocable:
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
    """Return the node that gains most; ties by the smaller key; NONE."""
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


cdef i64 _search_subsets(View v, PreemptionPlan g, i64 b, i64 kind, i64 first) noexcept nogil:
    """Find victims on one node that make room for one more task, when greedy picks block each other.

    A pick may bring its queue down to its guarantee and not suffice, where another pick would have. So all subsets of
    the first few candidates are tried, those that spare the last candidates first. Return how many are `picked` from
    `first` on; all else is unchanged.
    """
    tried = 0
    for n in range(v.counts[NODES]):
        candidates = _pick_candidates(v, g, n, b, kind, first)
        if candidates > 0 and tried < MAX_SUBSET_NODES:
            tried += 1
            for mask in range(1, <i64>1 << candidates):
                if _subset_suffices(v, g, n, b, kind, first, candidates, mask):
                    count = 0
                    for i in range(candidates):
                        if mask >> i & 1:
                            g.picked[first + count] = g.picked[first + i]
                            count += 1
                    return count
    return 0


cdef i64 _pick_candidates(View v, PreemptionPlan g, i64 n, i64 b, i64 kind, i64 first) noexcept nogil:
    """Pick a node's first few candidates, in the order of victims; 0 if all its candidates would not make room."""
    cdef i64 m = g.cols_left
    cdef bint helps
    shape, count = v.groups[b].shape_row, 0
    if capacity_for(v, n, shape) == 0:
        return 0
    before = fitting(v, g, n, shape, UNLIMITED)
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
            at = first + min(count, MAX_CANDIDATES)
            while at > first and is_victim_before(v, g, k, g.picked[at - 1]):
                if at - first < MAX_CANDIDATES:
                    g.picked[at] = g.picked[at - 1]
                at -= 1
            if at - first < MAX_CANDIDATES:
                g.picked[at] = k
            count = min(count + 1, MAX_CANDIDATES)
    for r in range(m):
        if v.demand[shape * m + r] > 0 and free[r] < (before + 1) * v.demand[shape * m + r]:
            count = 0
            break
    release(v, mark)
    return count


cdef bint _is_picked(PreemptionPlan g, i64 k, i64 begin, i64 end) noexcept nogil:
    """Return True if a run's gang is picked."""
    for i in range(begin, end):
        if g.runs[g.picked[i]].first == g.runs[k].first:
            return True
    return False


cdef bint _subset_suffices(View v, PreemptionPlan g, i64 n, i64 b, i64 kind, i64 first, i64 candidates, i64 mask) noexcept nogil:
    """Return True if the candidates of a bit mask may be preempted together and make room for one more task."""
    cdef bint fits
    shape, fits, preempted = v.groups[b].shape_row, True, 0
    before = fitting(v, g, n, shape, UNLIMITED)
    for i in range(candidates):
        if mask >> i & 1 and fits:
            fits = is_eligible_victim(v, g, g.picked[first + i], b, kind)
            if fits:
                preempt(v, g, g.picked[first + i], 1)
                preempted |= <i64>1 << i
    fits = fits and fitting(v, g, n, shape, before + 1) > before
    for i in range(candidates):
        if preempted >> i & 1:
            preempt(v, g, g.picked[first + i], -1)
    return fits


cdef i64 _pick_reclaimed(View v, PreemptionPlan g, i64 b, i64 n, i64 *most) noexcept nogil:
    """Pick and preempt what a node's revocable runs use above limits, as long as at most `most` is free there.

    For a framework, of which only is known how much it may have. Return how many are `picked`.
    """
    cdef i64 m = g.cols_left
    cdef bint within
    count, best = 0, 0
    while best != NONE:
        best = NONE
        for i in range(g.at[n], g.at[n + 1]):
            k = g.by_node[i]
            if not is_eligible_victim(v, g, k, b, IDLE) or (best != NONE and is_victim_before(v, g, best, k)):
                continue
            within, demand = True, &v.demand[v.jobs[g.runs[k].job].shape_row * m]
            preempt(v, g, k, 1)
            for r in range(m):
                within &= demand[r] == 0 or g.room[n * m + r] <= most[r]
            preempt(v, g, k, -1)
            if within:
                best = k
        if best != NONE:
            preempt(v, g, best, 1)
            g.picked[count] = best
            count += 1
    return count


cdef i64 _spare_unneeded(View v, PreemptionPlan g, i64 b, i64 count) noexcept nogil:
    """Spare, last to first, all that the claim does not need; return how many victims remain."""
    shape, wanted, kept = v.groups[b].shape_row, max(1, v.groups[b].gang), count
    for i in range(count - 1, -1, -1):
        preempt(v, g, g.picked[i], -1)
        if all_fitting(v, g, shape, wanted) < wanted or blocking_queue(v, g, b) != NONE:  # rule: none-spared
            preempt(v, g, g.picked[i], 1)
        else:
            g.picked[i] = NONE
            kept -= 1
    _close_up(g, 0, count)
    return kept


cdef void _assign_nodes(View v, PreemptionPlan g, i64 b, i64 count) noexcept nogil:
    """Record where a claim goes and keep that room: first on nodes with victims."""
    cdef i64 m = g.cols_left
    shape, wanted = v.groups[b].shape_row, max(1, v.groups[b].gang)
    for n in range(g.len_hosts):
        g.hosts[n] = 0
    for i in range(count):
        for run in range(g.runs[g.picked[i]].first, g.runs[g.picked[i]].last):
            wanted -= _assign(v, g, g.runs[run].node, shape, wanted)
    for n in range(v.counts[NODES]):
        wanted -= _assign(v, g, n, shape, wanted)
    subtract(v, g.kept, v.groups[b].leaf, &v.demand[shape * m], -max(1, v.groups[b].gang))


cdef i64 _assign(View v, PreemptionPlan g, i64 n, i64 shape, i64 most) noexcept nogil:
    cdef i64 m = v.len_total
    more = fitting(v, g, n, shape, most) if most > 0 else 0
    g.hosts[n] += more
    for r in range(m):
        g.room[n * m + r] -= more * v.demand[shape * m + r]
    return more


cdef i64 search_sets(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """Search sets of victims for a group's claim; return how many are `picked` and preempted, or NONE.

    Sizes 1, 2 and 3, then any size, within the claim's part of the decision's steps.
    """
    runs, shape = g.at[v.counts[NODES]], v.groups[b].shape_row
    most = g.work[0] // CLAIM_STEPS_DIVISOR
    g.work[0] -= runs
    if most < runs:
        return NONE
    missing = max(1, v.groups[b].gang) - all_fitting(v, g, shape, max(1, v.groups[b].gang))
    mark, units = v.scratches, integers(v, runs)
    help, found = _list_helpful(v, g, b, kind, missing, units), NONE
    if help > 0 and _may_suffice(v, g, b, help, units):
        for n in range(v.counts[NODES]):
            g.gains[n] = 0
        for size in range(1, 5):
            if found == NONE:
                found, work = _search_sets_of(v, g, b, kind, help, units, missing, size if size < 4 else help, most)
                g.work[0] -= work
                most -= work
    release(v, mark)
    return found


cdef (i64, i64) _search_sets_of(
    View v, PreemptionPlan g, i64 b, i64 kind, i64 help, i64 *units, i64 missing, i64 size, i64 most
) noexcept nogil:
    """Search all sets of at most `size` units depth first; return the count of victims or NONE, and the steps used.

    For IDLE the order of preemptions matters: all orders are tried.
    """
    at, work, count = 0, 0, 0
    mark, places, gained = v.scratches, integers(v, size), integers(v, size + 1)
    while work < most:
        work += 1
        if at == help or count == size:
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
            if gained[count] >= missing and _is_valid_set(v, g, b, kind, count):
                release(v, mark)
                return count, work
            if kind == IDLE:
                at = -1
        at += 1
    preempt_all(v, g, 0, count, -1)
    release(v, mark)
    return NONE, work


cdef bint _is_valid_set(View v, PreemptionPlan g, i64 b, i64 kind, i64 count) noexcept nogil:
    """Return True if the victims are valid together: within limits, none gets a claim, FAIR_SHARE goes first."""
    if blocking_queue(v, g, b) != NONE or any_would_claim(v, g, b, kind, count):
        return False
    return kind != FAIR_SHARE or claim_goes_first(v, g, b, count)


cdef i64 _preempt_and_count(View v, PreemptionPlan g, i64 k, i64 b) noexcept nogil:
    """Preempt a run with its gang; return how many more tasks of the claim its nodes then fit. `gains` is zeros."""
    shape, most, more = v.groups[b].shape_row, max(1, v.groups[b].gang), 0
    for run in range(g.runs[k].first, g.runs[k].last):
        n = g.runs[run].node
        if g.gains[n] == 0:
            g.gains[n] = 1
            more -= fitting(v, g, n, shape, most)
    preempt(v, g, k, 1)
    for run in range(g.runs[k].first, g.runs[k].last):
        n = g.runs[run].node
        if g.gains[n] == 1:
            g.gains[n] = 0
            more += fitting(v, g, n, shape, most)
    return more


cdef i64 _list_helpful(View v, PreemptionPlan g, i64 b, i64 kind, i64 missing, i64 *units) noexcept nogil:
    """List eligible victims that help a claim missing `missing` tasks in `units`, one run per gang, most helpful first.

    Return how many there are.
    """
    cdef i64 m = v.len_total
    runs, count, mark = g.at[v.counts[NODES]], 0, v.scratches
    helps = <Ranked *>scratch(v, runs * sizeof(Ranked))
    over, idle_nonlendable = integers(v, v.counts[QUEUES] * m), integers(v, m)
    _set_excess(v, g, b, over, idle_nonlendable)
    for i in range(runs):
        k = g.by_node[i]
        if g.runs[k].first == k and is_eligible_victim(v, g, k, b, kind):
            help = _help_under_limits(v, g, k, over, idle_nonlendable)
            for run in range(g.runs[k].first, g.runs[k].last):
                help += _helps_on_node(v, g, run, b, missing)
            if help > 0:
                helps[count].key, helps[count].row = -(help + (REVOCABLE_FIRST if g.runs[k].revocable else 0.0)), k
                helps[count].place = count
                count += 1
    qsort(helps, count, sizeof(Ranked), compare_ranked)
    for i in range(count):
        units[i] = helps[i].row
    release(v, mark)
    return count


cdef void _set_excess(View v, PreemptionPlan g, i64 b, i64 *over, i64 *idle_nonlendable) noexcept nogil:
    """Compute by how much a claim would exceed limits, by queue and resource, and how much non-lendable quota it would use."""
    cdef i64 m = v.len_total
    q = v.groups[b].leaf
    while q != NONE:
        for r in range(m):
            if v.demand[v.groups[b].shape_row * m + r] > 0:
                over[q * m + r] = over_limit_by(v, g, b, q, r)
                idle_nonlendable[r] = over_lendable_by(v, g, b, r) if q == 0 else 0
        q = v.queues[q].parent


cdef double _help_under_limits(View v, PreemptionPlan g, i64 k, i64 *over, i64 *idle_nonlendable) noexcept nogil:
    """Return which part of a claim's excess over limits and non-lendable quota a run's gang releases."""
    cdef i64 m = v.len_total
    demand, q, part = &v.demand[v.jobs[g.runs[k].job].shape_row * m], g.runs[k].leaf, 0.0
    while q != NONE:
        for r in range(m):
            if over[q * m + r] > 0 and not g.runs[k].revocable:
                part += min(1.0, <double>(g.runs[k].count * demand[r]) / over[q * m + r])
            if q == 0 and idle_nonlendable[r] > 0:
                part += min(1.0, <double>(g.runs[k].count * demand[r]) / idle_nonlendable[r])
        q = v.queues[q].parent
    return part


cdef double _helps_on_node(View v, PreemptionPlan g, i64 run, i64 b, i64 missing) noexcept nogil:
    """Return which part of one more task's missing demand a run has on its node; nearly 0 if only later tasks need it."""
    cdef i64 m = v.len_total
    n, shape, part = g.runs[run].node, v.groups[b].shape_row, 0.0
    if missing <= 0 or capacity_for(v, n, shape) == 0:
        return 0.0
    has, before = &v.demand[v.jobs[g.runs[run].job].shape_row * m], fitting(v, g, n, shape, max(1, v.groups[b].gang))
    for r in range(m):
        need = v.demand[shape * m + r]
        if need > 0 and has[r] > 0:
            if g.room[n * m + r] < (before + 1) * need:
                part += <double>min(has[r], (before + 1) * need - g.room[n * m + r]) / need
            elif g.room[n * m + r] < (before + missing) * need:
                part += LATER_TASK_HELP
    return part


cdef bint _may_suffice(View v, PreemptionPlan g, i64 b, i64 count, i64 *units) noexcept nogil:
    """Upper bound: could the claim fit if all these candidates were preempted?"""
    cdef i64 m = v.len_total
    cdef bint enough
    wanted = max(1, v.groups[b].gang)
    _suppose_preempted(v, g, count, units, 1)
    enough, q = all_fitting(v, g, v.groups[b].shape_row, wanted) >= wanted, v.groups[b].leaf
    while q != NONE:
        for r in range(m):
            if v.demand[v.groups[b].shape_row * m + r] > 0 and over_limit_by(v, g, b, q, r) > 0:
                enough = False
        q = v.queues[q].parent
    _suppose_preempted(v, g, count, units, -1)
    return enough


cdef void _suppose_preempted(View v, PreemptionPlan g, i64 count, i64 *units, i64 sign) noexcept nogil:
    """Release what candidates use, without the effects on eligibility; undo that with sign -1."""
    cdef i64 m = v.len_total
    for i in range(count):
        k = units[i]
        demand = &v.demand[v.jobs[g.runs[k].job].shape_row * m]
        for run in range(g.runs[k].first, g.runs[k].last):
            for r in range(m):
                g.room[g.runs[run].node * m + r] += sign * demand[r]
        if not g.runs[k].revocable:
            subtract(v, g.bound, g.runs[k].leaf, demand, sign * g.runs[k].count)


def pick_reclaimed(View v, PreemptionPlan g, i64 b, i64 n, const i64[::1] most):
    """Return :func:`_pick_reclaimed`."""
    return _pick_reclaimed(v, g, b, n, <i64 *>&most[0])


def spare_all(View v, PreemptionPlan g, i64 count):
    """Undo the preemption of the first `count` picked runs."""
    preempt_all(v, g, 0, count, -1)
