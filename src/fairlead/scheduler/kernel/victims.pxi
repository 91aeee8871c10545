"""Victim selection: a minimal set of preemptions for a whole claim, from queues furthest above their entitlement.

**Rules**

- A queue is never preempted below its guarantee; for FAIR_SHARE, nor below its fair share.
- If no such victims make room for a GUARANTEE claim: oversized tasks, which their queues could not claim themselves.
- For FAIR_SHARE, the claim must go before all victims by the order that places tasks.
- For IDLE, victims are revocable jobs whose queue, or one above it, exceeds a limit; the queue must not get a
  claim for its guarantee or fair share.
- For PRIORITY, victims are in the claim's own leaf; no queue above falls below its guarantee, or further below, with
  the claim served. Once these bring the claim within its queue's fair share, others may be added, as for FAIR_SHARE.
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
6. Where greedy picks fail, swap one: those before it stay, those alike are barred, and greedy picks go on. First on a
   node that gains nothing, then in the whole plan; the last pick first, within a bounded number of steps.
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
    g.wider[0] = False
    count = _pick_with_swaps(v, g, b, kind)
    if count == NONE and (kind == GUARANTEE or (kind == PRIORITY and g.asks[v.groups[b].leaf])):
        g.wider[0] = True
        count = _pick_with_swaps(v, g, b, kind)
    if rescinds:
        restore_unneeded_offers(v, g, b, count != NONE)
    if count != NONE:
        _assign_nodes(v, g, b, count)
    return count


cdef i64 _pick_with_swaps(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """Pick victims, greedily or with one pick swapped; return their count, or NONE (plan unchanged) if they do not suffice."""
    runs = g.at[v.counts[NODES]]
    g.work[1] = g.work[0] // CLAIM_STEPS_DIVISOR
    g.work[0] -= g.work[1]
    count = _pick_greedily(v, g, b, kind, 0)
    picked = -1 - count
    mark, before = v.scratches, integers(v, max(1, picked))
    memcpy(before, g.picked, max(0, picked) * sizeof(i64))
    for i in range(picked - 1, -1, -1):
        if count >= 0 or g.work[1] <= 0:
            break
        g.work[1] -= runs
        memcpy(g.picked, before, i * sizeof(i64))
        preempt_all(v, g, 0, i, 1)
        _bar(v, g, before[i], 0, runs, True)
        count = _pick_greedily(v, g, b, kind, i)
        _bar(v, g, before[i], 0, runs, False)
    release(v, mark)
    g.work[0] += max(0, g.work[1])
    return count if count >= 0 else NONE


cdef i64 _pick_greedily(View v, PreemptionPlan g, i64 b, i64 kind, i64 first) noexcept nogil:
    """Greedily pick victims after the `first` that are preempted; return the count of all.

    If they do not suffice, -1 less the count, and none is preempted.
    """
    cdef bint looks
    shape, wanted, count = v.groups[b].shape_row, max(1, v.groups[b].gang), first
    while blocking_queue(v, g, b) != NONE:
        k = _next_within_limits(v, g, b, kind)
        if k == NONE:
            return _undo_picks(v, g, count)
        preempt(v, g, k, 1)
        g.picked[count] = k
        count += 1
    leaf = v.groups[b].leaf
    most = g.entitled[leaf] * (1 + ENTITLEMENT_TOLERANCE) if g.wider[0] and kind == PRIORITY else INFINITY
    while _share_with_claim(v, g, leaf, b, NULL, 0) > most:
        k = _next_in_leaf(v, g, b)
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
        more = _evaluate(v, g, n, b, kind, missing, count) if n != NONE else _swap_on_a_node(v, g, b, kind, count)
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
    count = _spare_unneeded(v, g, b, kind, count)
    if any_would_claim(v, g, b, kind, count) or (FAIR_SHARE <= kind <= PRIORITY and not claim_goes_first(v, g, b, count)):
        return _undo_picks(v, g, count)
    return count


cdef i64 _undo_picks(View v, PreemptionPlan g, i64 count) noexcept nogil:
    preempt_all(v, g, 0, count, -1)
    return -1 - count


cdef i64 _next_within_limits(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """Return the next victim that brings a claim within the limit, or lendable quota, that it exceeds; NONE."""
    cdef i64 m = v.len_total
    cdef bint helps
    q, found, need = blocking_queue(v, g, b), NONE, &v.demand[v.groups[b].shape_row * m]
    mark, over, idle_nonlendable = v.scratches, flags(v, m), flags(v, m)
    for r in range(m):
        over[r] = need[r] > 0 and is_over_limit(v, g, b, q, r)
        idle_nonlendable[r] = need[r] > 0 and q == 0 and is_over_lendable(v, g, b, r)
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


cdef i64 _next_in_leaf(View v, PreemptionPlan g, i64 b) noexcept nogil:
    """Return the next victim of lower priority in a claim's leaf, on any node; NONE."""
    found = NONE
    for k in range(g.at[v.counts[NODES]]):
        if g.runs[k].leaf == v.groups[b].leaf and (found == NONE or is_victim_before(v, g, k, found)):
            if is_eligible_victim(v, g, k, b, PRIORITY):
                found = k
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
    before = fitting(v, g, n, shape, UNLIMITED)
    wanted = at_most_here(v, shape, before + missing)
    g.gains[n] = 0
    if capacity_for(v, n, shape) == 0 or wanted == before:
        return 0
    count = _pick_on_node(v, g, n, b, kind, wanted, first)
    gain = fitting(v, g, n, shape, wanted) - before
    kept = count
    for i in range(count - 1, first - 1, -1):
        preempt(v, g, g.picked[i], -1)
        if gain > 0 and (fitting(v, g, n, shape, before + gain) < before + gain or not is_justified(v, g, b, kind, count)):
            preempt(v, g, g.picked[i], 1)
        else:
            g.picked[i] = NONE
            kept -= 1
    g.gains[n] = gain
    _close_up(g, first, count)
    _set_key(v, g, n, first, kept)
    preempt_all(v, g, first, kept, -1)
    return kept - first


cdef i64 _pick_on_node(View v, PreemptionPlan g, i64 n, i64 b, i64 kind, i64 wanted, i64 count) noexcept nogil:
    """Greedily pick and preempt, after the first `count`, until a node fits `wanted` tasks of the claim; return the count."""
    while fitting(v, g, n, v.groups[b].shape_row, wanted) < wanted:
        k = _next_on_node(v, g, n, b, kind, wanted)
        if k == NONE:
            break
        preempt(v, g, k, 1)
        g.picked[count] = k
        count += 1
    return count


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


cdef i64 _swap_on_a_node(View v, PreemptionPlan g, i64 b, i64 kind, i64 first) noexcept nogil:
    """Find victims on one node that make room for one more task, when greedy picks block each other.

    A pick may bring its queue down to its guarantee and not suffice, where another would have. So each is swapped, the
    last first: those before it stay, those alike are barred. Return how many are `picked` from `first` on; all else is
    unchanged.
    """
    shape = v.groups[b].shape_row
    for n in range(v.counts[NODES]):
        if g.work[1] <= 0 or capacity_for(v, n, shape) == 0:
            continue
        end = _pick_on_node(v, g, n, b, kind, fitting(v, g, n, shape, UNLIMITED) + 1, first)
        preempt_all(v, g, first, end, -1)
        for i in range(end - 1, first - 1, -1):
            if g.work[1] <= 0:
                break
            g.work[1] -= g.at[n + 1] - g.at[n]
            k = g.picked[i]
            preempt_all(v, g, first, i, 1)
            _bar(v, g, k, g.at[n], g.at[n + 1], True)
            more = _evaluate(v, g, n, b, kind, 1, i)
            _bar(v, g, k, g.at[n], g.at[n + 1], False)
            preempt_all(v, g, first, i, -1)
            if g.gains[n] > 0:
                return i - first + more
    return 0


cdef void _bar(View v, PreemptionPlan g, i64 k, i64 begin, i64 end, bint barred) noexcept nogil:
    """Bar a run, and all alike of those from `begin` to `end` by node, from being picked; or no more."""
    job = g.runs[k].job
    for i in range(begin, end):
        other = g.by_node[i]
        j = g.runs[other].job
        if g.runs[other].leaf == g.runs[k].leaf and v.jobs[j].shape_row == v.jobs[job].shape_row:
            if g.runs[other].count == g.runs[k].count and g.runs[other].revocable == g.runs[k].revocable:
                g.runs[other].barred = barred


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


cdef i64 _spare_unneeded(View v, PreemptionPlan g, i64 b, i64 kind, i64 count) noexcept nogil:
    """Spare, last to first, all that the claim does not need; return how many victims remain."""
    shape, wanted, kept = v.groups[b].shape_row, max(1, v.groups[b].gang), count
    for i in range(count - 1, -1, -1):
        preempt(v, g, g.picked[i], -1)
        if (
            all_fitting(v, g, shape, wanted) < wanted or blocking_queue(v, g, b) != NONE
            or not is_justified(v, g, b, kind, count)
        ):  # rule: none-spared
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
    more = 0
    if most > 0 and (g.hosts[n] == 0 or v.shapes[shape].fit != APART):
        more = fitting(v, g, n, shape, most)
    g.hosts[n] += more
    for r in range(m):
        g.room[n * m + r] -= more * v.demand[shape * m + r]
    return more


def pick_reclaimed(View v, PreemptionPlan g, i64 b, i64 n, const i64[::1] most):
    """Return :func:`_pick_reclaimed`."""
    return _pick_reclaimed(v, g, b, n, <i64 *>&most[0])


def spare_all(View v, PreemptionPlan g, i64 count):
    """Undo the preemption of the first `count` picked runs."""
    preempt_all(v, g, 0, count, -1)
