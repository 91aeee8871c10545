"""The keys of queues, and how they are compared: which sibling goes before which.

| policy | key | comparison |
| --- | --- | --- |
| drf, maxmin | largest share | exact: products of integers where floats are too close |
| YARN's | share or part of the minimum, by resource | exact; then by the next largest |
| others | one level | rounded to 40 binary digits; equal levels tie |

So the order is total, whichever two siblings are compared first.
"""


cpdef i64 compare_shares(View v, i64 a, i64 ra, i64 b, i64 rb) noexcept nogil:
    """Compare queue a's weighted share of resource ra with b's of rb, exactly: -1, 0 or 1."""
    cdef i64 m = v.len_total
    x, y = v.charged[a * m + ra], v.charged[b * m + rb]
    if x == 0 or y == 0:
        return (x > y) - (x < y)
    if ra == rb and v.part[a * m + ra] == v.part[b * m + rb] and v.whole[a * m + ra] == v.whole[b * m + rb]:
        return (x > y) - (x < y)
    one = product(x, v.total[rb] << v.fine[rb], v.whole[a * m + ra], v.part[b * m + rb])
    other = product(y, v.total[ra] << v.fine[ra], v.whole[b * m + rb], v.part[a * m + ra])
    return compare_wide(one, other)


cdef double _share(View v, i64 q, i64 r) noexcept nogil:
    """Return the weighted share of a resource that a queue is charged."""
    cdef i64 m = v.len_total
    return <double>v.charged[q * m + r] / (max(1, v.total[r]) << v.fine[r]) / v.weight[q * m + r]


cdef double dominant_share(i64 m, i64 *used, i64 *capacity, double *weight) noexcept nogil:
    """Return the largest used / capacity / weight; a resource without capacity has no share."""
    largest = 0.0
    for r in range(m):
        if capacity[r] > 0:
            largest = max(largest, <double>used[r] / capacity[r] / weight[r])
    return largest


cdef double _times_priority(double used, double priority) noexcept nogil:
    """Return use times priority, see :func:`fairlead.policies.htcondor`: slots in inverse proportion to priority."""
    return used * priority if used > 0 else -1.0 / priority


cdef double _rounded(double x) noexcept nogil:
    """Round to 40 binary digits."""
    if not isfinite(x):
        return x
    t = x * ROUNDING_FACTOR
    return t - (t - x)


cdef bint compares_shares(i64 policy) noexcept nogil:
    """Return True if past use is part of the keys under a policy."""
    return policy == DRF or policy == ASSET or policy == HDRF or MAXMIN <= policy < YARN_FAIR


cdef bint has_history(i64 policy) noexcept nogil:
    """Return True if keys under a policy change when past use does."""
    return compares_shares(policy) or policy == SDRF or policy >= FAIRTREE


cpdef void set_key(View v, i64 q) noexcept nogil:
    """Compute queue q's key among its siblings from its charge; hdrf and divisions also need :func:`set_level`."""
    cdef i64 m = v.len_total
    cache = v.queue_cache
    p = v.queues[q].parent
    policy = v.queues[p].policy
    cache[q].below = (not _may_go_first(v, q, cache[q].base + 1))
    cache[q].first = 0
    cache[q].column = NONE
    if compares_shares(policy):
        charge(v, q)
    if policy == DRF:
        _set_dominant(v, q, v.queues[p].exact)
    elif policy == MESOS:  # ignores past use
        for r in range(m):
            v.charged[q * m + r] = v.used[q * m + r] << v.fine[r]
        _set_dominant(v, q, v.queues[p].exact)
    elif policy == SDRF:
        cache[q].level = _rounded(_stateful_share(v, q))
    elif policy >= HTCONDOR:
        r = policy - HTCONDOR
        priority = max(LEAST_PRIORITY, mean_now(v, q, r)) / v.weight[q * m + r]
        cache[q].level = _rounded(_times_priority(<double>v.used[q * m + r], priority))
    elif policy >= FAIRTREE:
        r = policy - FAIRTREE
        cache[q].level = _rounded(mean_at_tick(v, q, r) / v.weight[q * m + r])
    elif policy >= YARN_FAIR or policy == YARN_DRF:
        _set_as_yarn(v, q, policy)
    elif policy >= MAXMIN:
        r = policy - MAXMIN
        level = _share(v, q, r)
        cache[q].column = r if v.total[r] > 0 and v.queues[p].exact else NONE
        cache[q].level = level if cache[q].column != NONE else _rounded(level)
    elif policy == ASSET:
        level = 0.0
        for r in range(m):
            level += _share(v, q, r) if v.total[r] > 0 else 0.0
        cache[q].level = _rounded(level)
    elif policy == FIFO or policy == BY_PRIORITY:
        # The least of anything below; the exact key is known when the search finds the group.
        least = &v.least[(v.queue_cache[q].base + 1) * v.cols_least]
        resources = m
        cache[q].first = least[resources + NEGATIVE_PRIORITY] if policy == BY_PRIORITY else 0
        cache[q].level = <double>least[resources + NUMBER]


cdef i64 needs_bit(i64 r) noexcept nogil:
    """Return a resource's bit in a tree's `needs`; all resources from the last bit on share it."""
    return <i64>1 << min(r, LAST_BIT)


cdef bint may_go_first(View v, i64 q, i64 node) noexcept nogil:
    """Return True if :func:`exact_below` may be 0 for queue q and some group below a node of its tree."""
    if v.queue_cache[q].column == AS_YARN and v.queues[q].guaranteed:
        return v.queue_cache[q].below == 0
    return _may_go_first(v, q, node)


cdef bint _may_go_first(View v, i64 q, i64 node) noexcept nogil:
    cdef i64 m = v.len_total
    cdef bint may
    may, least = False, &v.least[node * v.cols_least]
    for r in range(m if v.queues[q].guaranteed else 0):
        left = v.guarantee[q * m + r] - _has(v, q, r)
        if v.guarantee[q * m + r] > 0 and 0 < least[r] < INFINITE and least[r] > left:
            return False
        if left > 0 and v.trees[node].needs & needs_bit(r):
            may = True
    return may or _child_may_go_first(v, q, node)


cdef bint _child_may_go_first(View v, i64 q, i64 node) noexcept nogil:
    return v.queue_cache[q].inner and v.trees[node].best != NONE and v.queue_cache[v.trees[node].best].below == 0


cdef i64 _has(View v, i64 q, i64 r) noexcept nogil:
    """Return what a queue has towards its guarantee: its use, and what is kept for its claims."""
    cdef i64 m = v.len_total
    return v.used[q * m + r] + v.claimed[q * m + r]


cdef double _stateful_share(View v, i64 q) noexcept nogil:
    """Return the dominant share plus the largest commitment, which is the history under sdrf."""
    cdef i64 m = v.len_total
    share, committed = 0.0, 0.0
    for r in range(m):
        if v.total[r] > 0:
            share = max(share, <double>v.used[q * m + r] / v.total[r] / v.weight[q * m + r])
            committed = max(committed, mean_now(v, q, r) / v.total[r] / v.weight[q * m + r])
    return share + committed


cdef void _set_dominant(View v, i64 q, bint exact) noexcept nogil:
    """Set the dominant share and its resource; decide exactly where floats are too close."""
    cdef i64 m = v.len_total
    cdef bint larger
    largest, column = 0.0, NONE
    for r in range(m):
        if v.total[r] > 0 and v.charged[q * m + r] > 0:
            share = _share(v, q, r)
            if column == NONE or share > largest * (1.0 + SHARE_TOLERANCE):
                larger = True
            elif share < largest * (1.0 - SHARE_TOLERANCE) or not exact:
                larger = share > largest
            else:
                larger = compare_shares(v, q, r, q, column) > 0
            if larger:
                largest, column = share, r
    v.queue_cache[q].level = largest if exact else _rounded(largest)
    v.queue_cache[q].column = column if exact else NONE


cdef void _set_as_yarn(View v, i64 q, i64 policy) noexcept nogil:
    """Set YARN's key: below its minimum and the part of it that it has; else its share."""
    cdef i64 m = v.len_total
    cache = v.queue_cache
    for r in range(m):
        v.charged[q * m + r] = v.used[q * m + r] << v.fine[r]
    r = policy - YARN_FAIR if policy != YARN_DRF else _next_by_dominance(v, q, NONE)
    cache[q].below, cache[q].first, cache[q].level, cache[q].column = 1, v.queues[q].weightless, 0.0, AS_YARN
    if r != NONE and _has(v, q, r) < v.guarantee[q * m + r]:
        cache[q].below, cache[q].first, cache[q].level = 0, 0, <double>_has(v, q, r) / v.guarantee[q * m + r]
    elif r != NONE:
        level = _share(v, q, r)
        cache[q].level = level if v.queues[v.queues[q].parent].exact else _rounded(level)
    if not v.queues[q].guaranteed and _child_may_go_first(v, q, cache[q].base + 1):
        cache[q].below = 0


cdef bint compares_as_yarn(View v, i64 q) noexcept nogil:
    """Return True if a queue and its siblings are compared by YARN's rule."""
    policy = v.queues[v.queues[q].parent].policy
    return policy == YARN_DRF or YARN_FAIR <= policy < FAIRTREE


cdef bint misses_as_compared(View v, i64 q, i64 *kept) noexcept nogil:
    """Return True if a queue is below the minimum that it is compared by, with `kept` for claims; YARN compares one minimum."""
    cdef i64 m = v.len_total
    policy = v.queues[v.queues[q].parent].policy
    if not compares_as_yarn(v, q):
        return True
    for r in range(m):
        v.charged[q * m + r] = v.used[q * m + r] << v.fine[r]
    r = policy - YARN_FAIR if policy != YARN_DRF else _next_by_dominance(v, q, NONE)
    return r != NONE and v.used[q * m + r] + kept[q * m + r] < v.guarantee[q * m + r]


cdef i64 _next_by_dominance(View v, i64 q, i64 last) noexcept nogil:
    """Return the resource after `last` (NONE: first) by share, largest first; ties by the smaller part of a minimum."""
    cdef i64 m = v.len_total
    cdef bint later
    found = NONE
    for r in range(m):
        if v.total[r] > 0 and r != last:
            later = last == NONE or _is_more_dominant(v, q, last, r)
            if later and (found == NONE or _is_more_dominant(v, q, r, found)):
                found = r
    return found


cdef bint _is_more_dominant(View v, i64 q, i64 r, i64 s) noexcept nogil:
    order = _compare_weighed(v, q, r, q, s)
    if order == 0:
        order = -_compare_parts_of_minimum(v, q, r, q, s)
    return order > 0 or (order == 0 and r < s)


cdef i64 _compare_weighed(View v, i64 a, i64 ra, i64 b, i64 rb) noexcept nogil:
    """Compare weighted shares: -1, 0 or 1; exactly where the weights allow it, else rounded."""
    if v.queues[v.queues[a].parent].exact:
        return compare_shares(v, a, ra, b, rb)
    x = _rounded(_share(v, a, ra))
    y = _rounded(_share(v, b, rb))
    return (x > y) - (x < y)


cdef i64 _compare_parts_of_minimum(View v, i64 a, i64 ra, i64 b, i64 rb) noexcept nogil:
    """Compare which part of their minimums a uses of ra and b of rb, exactly; no minimum counts as the largest part."""
    cdef i64 m = v.len_total
    least_a, least_b = v.guarantee[a * m + ra], v.guarantee[b * m + rb]
    if least_a == 0 or least_b == 0:
        return (least_a == 0) - (least_b == 0)
    one, other = product(_has(v, a, ra), least_b, 1, 1), product(_has(v, b, rb), least_a, 1, 1)
    return compare_wide(one, other)


cdef i64 _compare_as_yarn(View v, i64 a, i64 b, bint needy) noexcept nogil:
    """Compare queue a with its sibling b by YARN's rule, both below their minimums or neither: -1, 0 or 1."""
    cdef i64 m = v.len_total
    policy = v.queues[v.queues[a].parent].policy
    if policy != YARN_DRF:
        r = policy - YARN_FAIR
        return _compare_parts_of_minimum(v, a, r, b, r) if needy else _compare_weighed(v, a, r, b, r)
    ra = rb = NONE
    order = 0
    for _ in range(m):
        ra, rb = _next_by_dominance(v, a, ra), _next_by_dominance(v, b, rb)
        if ra == NONE or order != 0:
            break
        order = _compare_parts_of_minimum(v, a, ra, b, rb) if needy else _compare_weighed(v, a, ra, b, rb)
    return order


cdef void set_level(View v, i64 q, bint leaf) noexcept nogil:
    """Set the rest of the key under policies that need more than queue q's use: hdrf, and divisions."""
    cdef i64 m = v.len_total
    level = now = 0.0
    if v.queues[v.queues[q].parent].policy == HDRF:
        for r in range(m):
            if v.total[r] > 0 and (leaf or v.counted[r]):
                before = <double>(v.charged[q * m + r] - (v.used[q * m + r] << v.fine[r])) / (<i64>1 << v.fine[r])
                now = max(now, v.counts_as[q * m + r] / v.total[r] / v.weight[q * m + r])
                level = max(level, (v.counts_as[q * m + r] + before) / v.total[r] / v.weight[q * m + r])
        v.queue_cache[q].level_now = _rounded(now)
    else:
        level = INFINITY
        if v.queue_cache[q].entitled > 0:
            level = dominant_share(m, &v.used[q * m], v.total, &v.weight[q * m]) / v.queue_cache[q].entitled
    v.queue_cache[q].first, v.queue_cache[q].level = 0, _rounded(level)
    v.queue_cache[q].column = NONE


cdef i64 turn_of(View v, i64 q) noexcept nogil:
    """Return the tie-breaker of queue q among its siblings: when it was last served; under Mesos' policy, how often.

    What is owed goes before, the most first: see `kernel/debts.pxi`.
    """
    p = v.queues[q].parent
    if p != NONE and v.queues[p].policy == MESOS:
        return v.queues[q].allocations
    return -v.queues[q].owed if v.queues[q].owed > 0 else v.queues[q].served


cdef void note_served(View v, i64 q, i64 turn, bint counts) noexcept nogil:
    """Note that queue q was served at this turn, and whether that counts as one more placement or offer."""
    v.queues[q].served, v.queues[q].owed = turn, 0
    v.queues[q].allocations += counts
    if v.counts[IN_ORDER]:
        v.queue_cache[q].last_served = turn_of(v, q)


cpdef bint queue_goes_before(
    View v, i64 a, i64 a_below, i64 a_first, double a_level, i64 b, i64 b_below, i64 b_first, double b_level
) noexcept nogil:
    """Return True if queue a goes before its sibling b with these keys."""
    order = compare_queues(v, a, a_below, a_first, a_level, b, b_below, b_first, b_level)
    if order != 0:
        return order < 0
    cache = v.queue_cache
    if cache[a].last_served != cache[b].last_served:
        return cache[a].last_served < cache[b].last_served
    return v.queues[a].rank < v.queues[b].rank


cdef i64 compare_queues(
    View v, i64 a, i64 a_below, i64 a_first, double a_level, i64 b, i64 b_below, i64 b_first, double b_level
) noexcept nogil:
    """Compare two siblings by these keys alone, without the tie-breaker: -1 if a goes first, 0 or 1."""
    if a_below != b_below:
        return -1 if a_below < b_below else 1
    if a_first != b_first:
        return -1 if a_first < b_first else 1
    ra, rb = v.queue_cache[a].column, v.queue_cache[b].column
    if ra != NONE and rb != NONE and abs(a_level - b_level) <= SHARE_TOLERANCE * (a_level + b_level):
        return compare_shares(v, a, ra, b, rb) if ra > NONE else _compare_as_yarn(v, a, b, a_below == 0)
    return (a_level > b_level) - (a_level < b_level)


cdef bint group_goes_before(View v, i64 a, i64 b) noexcept nogil:
    """Return True if group a goes before b of the same leaf: by priority, then by the number of the next job."""
    if v.groups[a].priority != v.groups[b].priority:
        return v.groups[a].priority > v.groups[b].priority
    return v.group_cache[a].number < v.group_cache[b].number


cdef i64 exact_below(View v, i64 q, i64 shape, i64 count, i64 under) noexcept nogil:
    """Return 0 if queue q goes first with `count` tasks of a shape: they stay within its guarantee of what they need; else 1.

    A queue that is guaranteed nothing the task needs takes the value `under` of the queue below it on the path (1 for a
    leaf). So a guarantee counts among the siblings of all queues above it, until one of them names its own.
    `kernel/claims.pxi` preempts along the same path, so a claim is served with what is preempted for it.

    A queue with a minimum under YARN's key uses that minimum.
    """
    if v.queue_cache[q].column == AS_YARN and v.queues[q].guaranteed:
        return v.queue_cache[q].below
    return _beyond_guarantee(v, q, shape, count, under)


cdef i64 below_above(View v, i64 q, i64 shape, i64 count, i64 under) noexcept nogil:
    """Return what the queue above queue q takes as `under`: under YARN's key the tasks must stay within the guarantee as well."""
    return max(exact_below(v, q, shape, count, under), _beyond_guarantee(v, q, shape, count, under))


cdef i64 _beyond_guarantee(View v, i64 q, i64 shape, i64 count, i64 under) noexcept nogil:
    """Return 0 if `count` tasks stay within a queue's guarantee of what they need, else 1; `under` if nothing they need is guaranteed.

    A task without demands, of a framework, counts as needing everything, and goes first while the guarantee of anything is missed.
    """
    cdef i64 m = v.len_total
    cdef bint anything
    anything, named = True, False
    for r in range(m):
        anything &= v.demand[shape * m + r] == 0
    for r in range(m):
        if v.guarantee[q * m + r] > 0 and (anything or v.demand[shape * m + r] > 0):
            left = v.guarantee[q * m + r] - _has(v, q, r)
            if anything and left > 0:
                return 0
            if v.demand[shape * m + r] > floor_div(left, count):  # avoids overflow
                return 1
            named = True
    return <i64>anything if named else under


cdef i64 below_on_path(View v, i64 q, i64 leaf, i64 shape, i64 count) noexcept nogil:
    """Return :func:`exact_below` of queue q for tasks that wait in a leaf below it."""
    below, x = 1, leaf
    while x != q:
        below = below_above(v, x, shape, count, below)
        x = v.queues[x].parent
    return exact_below(v, q, shape, count, below)
