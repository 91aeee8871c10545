"""Dominant Resource Fairness over a tree of queues by progressive filling, with weights, guarantees and limits at all levels.

All levels (dominant share / weight) rise together. At each inner queue the lowest children that can rise do so; those
below a guarantee of something they need go first. Between two events everything is linear. Events:

- a leaf has all it can use, a queue reaches a limit, or a resource is used up: those that need it are blocked;
- a queue reaches its guarantee;
- rising siblings reach a queue that waited;
- the dominant resource of an inner queue changes.

This is the compiled floating-point form of :mod:`fairlead.policies.tree_filling` for the naive tree. Each event visits
all queues: O(queues² x resources), milliseconds for hundreds of queues.
"""


cpdef bint fill_tree(Tree t) noexcept nogil:
    """Fill all leaves; return True if it converged, False only after a bug."""
    cdef i64 m = t.cols_demand
    n = t.len_queues
    _begin_tree(t)
    _block_what_is_reached(t)
    for _ in range(20 * n * (m + 2) + 100):
        if not t.queues[ROOT].free:
            return True
        for q in range(n - 1, -1, -1):
            t.queues[q].below = t.queues[q].free and _is_below_guarantee(t, q)
            if t.queues[q].free:
                _set_growth(t, q)
        t.queues[ROOT].rate = 1.0
        for q in range(1, n):
            up = t.queues[q].parent
            rises = t.queues[q].free and t.queues[q].rising
            t.queues[q].rate = t.queues[up].rate * t.queues[up].pace if rises else 0.0
        _advance_time(t, _next_event(t))
        _block_what_is_reached(t)
    return False


cdef void _begin_tree(Tree t) noexcept nogil:
    """Set the leaves' speeds, and count which leaves need what."""
    cdef i64 m = t.cols_demand
    cdef bint hopeless
    n = t.len_queues
    for leaf in range(n):
        share, hopeless = 0.0, False
        for r in range(m):
            if t.demand[leaf * m + r] > 0:
                hopeless |= t.capacity[r] == 0
                share = max(share, _share_of(t, leaf, r, t.demand[leaf * m + r]))
        if share > 0 and not hopeless and t.queues[leaf].most > 0:
            t.queues[leaf].speed = 1 / share
            q = leaf
            while q >= 0:
                t.queues[q].free = True
                for r in range(m):
                    t.needs[q * m + r] += t.demand[leaf * m + r] > 0
                q = t.queues[q].parent


cdef double _share_of(Tree t, i64 q, i64 r, double amount) noexcept nogil:
    cdef i64 m = t.cols_demand
    return amount / t.capacity[r] / t.weight[q * m + r] if t.capacity[r] > 0 else 0.0


cdef bint _is_below_guarantee(Tree t, i64 q) noexcept nogil:
    """Return True if a queue is below its guarantee of something it needs."""
    cdef i64 m = t.cols_demand
    for r in range(t.len_capacity):
        if t.needs[q * m + r] > 0 and t.used[q * m + r] < t.guarantee[q * m + r] * (1 - LEVEL_TOLERANCE):
            return True
    return False


cdef void _set_growth(Tree t, i64 q) noexcept nogil:
    """Compute a queue's level, and how it and the queue's use grow per unit of its time. Its children are computed already."""
    cdef i64 m = t.cols_demand
    m = t.len_capacity
    if t.queues[q].speed > 0:
        t.queues[q].level, t.queues[q].climb = t.queues[q].tasks / t.queues[q].speed, 1.0
        for r in range(m):
            t.growth[q * m + r] = t.demand[q * m + r] * t.queues[q].speed
        return
    _choose_rising(t, q)
    level = 0.0
    for r in range(m):
        level = max(level, _share_of(t, q, r, t.used[q * m + r]))
        t.growth[q * m + r] = 0.0
    for k in range(t.queues[q].first, t.queues[q].last):
        c = t.children[k]
        if t.queues[c].free and t.queues[c].rising:
            for r in range(m):
                t.growth[q * m + r] += t.growth[c * m + r]
    fastest = 0.0
    for r in range(m):
        if _share_of(t, q, r, t.used[q * m + r]) >= level * (1 - LEVEL_TOLERANCE):
            fastest = max(fastest, _share_of(t, q, r, t.growth[q * m + r]))
    t.queues[q].level = level
    t.queues[q].climb = 1.0 if fastest > 0 else 0.0
    t.queues[q].pace = 1 / fastest if fastest > 0 else 1.0
    for r in range(m):
        t.growth[q * m + r] *= t.queues[q].pace


cdef void _choose_rising(Tree t, i64 q) noexcept nogil:
    """Choose a queue's rising children: the lowest, those below a guarantee first; those with a standing level rise alone."""
    cdef bint eligible, promised, standing
    first, last = t.queues[q].first, t.queues[q].last
    promised, lowest, standing = False, INFINITY, False
    for k in range(first, last):
        promised |= t.queues[t.children[k]].below
    for k in range(first, last):
        c = t.children[k]
        if t.queues[c].free and t.queues[c].below == promised:
            lowest = min(lowest, t.queues[c].level)
    for k in range(first, last):
        c = t.children[k]
        eligible = t.queues[c].free and t.queues[c].below == promised
        t.queues[c].rising = eligible and t.queues[c].level <= lowest * (1 + LEVEL_TOLERANCE)
        standing |= t.queues[c].rising and t.queues[c].climb == 0
    for k in range(first, last):
        c = t.children[k]
        if standing and t.queues[c].climb > 0:
            t.queues[c].rising = False
    t.queues[q].promised, t.queues[q].low = promised, INFINITY if standing else lowest


cdef double _next_event(Tree t) noexcept nogil:
    """Return the root's time until the next event."""
    cdef i64 m = t.cols_demand
    cdef bint waits
    n = t.len_queues
    step = INFINITY
    for q in range(n):
        rate, level, climb = t.queues[q].rate, t.queues[q].level, t.queues[q].climb
        if rate > 0 and t.queues[q].speed > 0:
            step = min(step, (t.queues[q].most - t.queues[q].tasks) / (t.queues[q].speed * rate))
        for r in range(m):
            grows, used = t.growth[q * m + r] * rate, t.used[q * m + r]
            if rate <= 0 or grows <= 0:
                continue
            if t.bound[q * m + r] < INFINITY:
                step = min(step, (t.bound[q * m + r] - used) / grows)
            if t.queues[q].below and used < t.guarantee[q * m + r] * (1 - LEVEL_TOLERANCE):
                step = min(step, (t.guarantee[q * m + r] - used) / grows)
            share, slope = _share_of(t, q, r, used), _share_of(t, q, r, t.growth[q * m + r])
            if t.queues[q].speed == 0 and share < level * (1 - LEVEL_TOLERANCE) and slope > climb * (1 + LEVEL_TOLERANCE):
                step = min(step, (level - share) / ((slope - climb) * rate))
        up = t.queues[q].parent
        waits = up >= 0 and t.queues[q].free and not t.queues[q].rising
        if waits and t.queues[q].below == t.queues[up].promised and t.queues[up].rate > 0 and level > t.queues[up].low:
            step = min(step, (level - t.queues[up].low) / (t.queues[up].rate * t.queues[up].pace))
    return max(step, 0.0)


cdef void _advance_time(Tree t, double step) noexcept nogil:
    """Advance by `step` of the root's time."""
    cdef i64 m = t.cols_demand
    n = t.len_queues
    for q in range(n):
        elapsed = t.queues[q].rate * step
        if elapsed > 0:
            for r in range(m):
                t.used[q * m + r] += t.growth[q * m + r] * elapsed
            t.queues[q].tasks += t.queues[q].speed * elapsed


cdef void _block_what_is_reached(Tree t) noexcept nogil:
    """Block leaves that have all they can use, or need something that a queue above has no more of."""
    cdef i64 m = t.cols_demand
    cdef bint blocked
    n = t.len_queues
    for leaf in range(n - 1, -1, -1):
        if not t.queues[leaf].free or t.queues[leaf].speed == 0:
            continue
        blocked = t.queues[leaf].tasks >= t.queues[leaf].most * (1 - LEVEL_TOLERANCE)
        q = leaf
        while q >= 0 and not blocked:
            for r in range(m):
                blocked |= t.demand[leaf * m + r] > 0 and t.used[q * m + r] >= t.bound[q * m + r] * (1 - LEVEL_TOLERANCE)
            q = t.queues[q].parent
        q = leaf
        while q >= 0 and blocked:
            least = 0
            for r in range(m):
                t.needs[q * m + r] -= t.demand[leaf * m + r] > 0
                least = max(least, t.needs[q * m + r])
            t.queues[q].free = least > 0
            q = t.queues[q].parent
