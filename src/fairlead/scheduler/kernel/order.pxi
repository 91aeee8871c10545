"""The order: each queue's tree of its children, kept up to date from the groups to the root.

Accounting and cycles only mark the queues and groups that they touch. :func:`refresh` updates the trees along the paths
from those to the root; :func:`rebuild` makes all trees from the tables. Both give the same result.
"""


cpdef void touch_queue(View v, i64 q) noexcept nogil:
    """Note that a leaf's use has changed."""
    if not v.queue_cache[q].touched:
        v.queue_cache[q].touched = True
        v.queue_cache[v.counts[TOUCHED_QUEUES]].touched_list = q
        v.counts[TOUCHED_QUEUES] += 1


cpdef void touch_group(View v, i64 b) noexcept nogil:
    """Note that what waits in a group has changed."""
    if not v.group_cache[b].touched:
        v.group_cache[b].touched = True
        v.group_cache[v.counts[TOUCHED_GROUPS]].touched_list = b
        v.counts[TOUCHED_GROUPS] += 1


cdef i64 current_job(View v, i64 b) noexcept nogil:
    """Return a group's next job; in a cycle, what the cycle has advanced to."""
    if v.group_cache[b].cycle == v.counts[CYCLE]:
        return v.group_cache[b].current
    return v.groups[b].head


cdef i64 startable(View v, i64 job) noexcept nogil:
    """Return how many tasks of a job may start by its own bound: all not delayed, or as many as may still run at once."""
    most, waiting = v.jobs[job].at_most, v.jobs[job].waiting - v.jobs[job].delayed
    return waiting if most == 0 else max(0, min(waiting, most - v.jobs[job].holding))


cdef i64 tasks_left(View v, i64 b) noexcept nogil:
    """Return how many tasks of a group's next job may start."""
    if v.group_cache[b].cycle == v.counts[CYCLE]:
        return v.group_cache[b].left
    return startable(v, v.groups[b].head)


cdef bint is_started(View v, i64 b) noexcept nogil:
    """Return True if a group's next job runs already, counting tasks placed in this cycle."""
    job = current_job(v, b)
    if job == NONE:
        return False
    return v.jobs[job].holding > 0 or tasks_left(v, b) < startable(v, job)


cpdef bint set_group(View v, i64 b) noexcept nogil:
    """Update a group's place in its leaf's tree; return True if the leaf's candidate may have changed."""
    cdef i64 m = v.len_total
    cdef bint changed
    cache, resources = v.group_cache, m
    leaf = v.groups[b].leaf
    base, place = v.queue_cache[leaf].base, v.queue_cache[leaf].slots + cache[b].slot
    first, job, node = v.trees[base + 1].best, current_job(v, b), &v.trees[base + place]
    if (job == NONE and not v.groups[b].is_framework) or cache[b].out:
        cache[b].lasts_known = False  # not invalidated while the group is outside the tree
        if node.best == NONE:
            return False
        _clear(v, base + place)
    else:
        cache[b].number, shortest = v.groups[b].number, INFINITE
        if job != NONE:
            cache[b].number = v.jobs[job].id
            shortest = max(0, <i64>min(1e15, 1e6 * lasts(v, b, job)) - 1)  # less 1 µs, so that rounding excludes no group
        if cache[b].keeping or v.queues[leaf].guarded:
            shortest = -1  # any duration may use its own hold, or room of those that its guarantee precedes
        least, shape = &v.least[(base + place) * v.cols_least], v.groups[b].shape_row
        changed = node.best != b or node.may_fit == cache[b].parked
        for r in range(resources):
            changed |= _put(least, r, v.demand[shape * m + r])
        changed |= _put(least, resources + JOBS_NEEDED, 0 if v.groups[b].started > 0 or is_started(v, b) else 1)
        changed |= _put(least, resources + NEGATIVE_PRIORITY, -v.groups[b].priority)
        changed |= _put(least, resources + NUMBER, cache[b].number)
        changed |= _put(least, resources + SHORTEST, shortest)
        needs, cell = needs_of(v, shape), _cell_of(v, shape)
        changed |= node.needs != needs or node.cells != cell
        if not changed:
            return False
        node.best, node.may_fit, node.needs, node.cells = b, not cache[b].parked, needs, cell
    changed = _climb_tree(v, leaf, base, place, b)
    if v.queues[leaf].strict:
        # The tree may be new, and its first group not the one that was first.
        _unpark_unless_first(v, leaf, base, first)
        _unpark_unless_first(v, leaf, base, b)
    return changed


cdef void set_may_fit(View v, i64 b, bint may) noexcept nogil:
    """Change only `may_fit` of a group's place, and above it as far as that changes."""
    q = v.groups[b].leaf
    i, base = v.queue_cache[q].slots + v.group_cache[b].slot, v.queue_cache[q].base
    while v.trees[base + i].may_fit != may:
        v.trees[base + i].may_fit = may
        if not may and (v.trees[base + (i ^ 1)].may_fit if i > 1 else v.queue_cache[q].maybe_stale):
            return
        i >>= 1
        if i == 0:
            if q == 0:
                return
            i, q = v.queue_cache[q].slot, v.queues[q].parent
            i, base = v.queue_cache[q].slots + i, v.queue_cache[q].base


cdef i64 needs_of(View v, i64 shape) noexcept nogil:
    """Return a bit for each resource that a task of a shape needs; all bits if it needs none."""
    cdef i64 m = v.len_total
    bits = 0
    for r in range(m):
        if v.demand[shape * m + r] > 0:
            bits |= needs_bit(r)
    return bits if bits else -1


cdef i64 _cell_of(View v, i64 shape) noexcept nogil:
    """Return the bit of a shape's cell: one of its own, or if there are no more, that of the most similar shapes."""
    cdef i64 m = v.len_total
    cdef double nearest = INFINITY, far
    cdef bint lowered = False
    cell, demand = v.shape_cache[shape].cell, &v.demand[shape * m]
    if cell == NONE and v.counts[CELLS] < MOST_CELLS:
        cell = v.counts[CELLS]
        v.counts[CELLS] += 1
        memcpy(&v.cell_least[cell * m], demand, m * sizeof(i64))
        _sort_cells(v)
    elif cell == NONE:
        for c in range(MOST_CELLS):
            far = 0.0
            for r in range(m):
                other = v.cell_least[c * m + r]
                if other != demand[r]:
                    far += abs(<double>other - demand[r]) / max(other, demand[r])
            if far < nearest:
                cell, nearest = c, far
        for r in range(m):
            lowered |= demand[r] < v.cell_least[cell * m + r]
            v.cell_least[cell * m + r] = min(v.cell_least[cell * m + r], demand[r])
        if lowered:
            _sort_cells(v)
    v.shape_cache[shape].cell = cell
    return <i64>1 << cell


cdef void _sort_cells(View v) noexcept nogil:
    """Sort the cells by what they need of each resource, so that :func:`cells_within` is one search per resource."""
    cdef i64 m = v.len_total
    for r in range(m):
        steps, sets = &v.cell_steps[r * (MOST_CELLS + 1)], &v.cell_sets[r * (MOST_CELLS + 1)]
        for c in range(v.counts[CELLS]):
            least, k = v.cell_least[c * m + r], c
            while k > 0 and steps[k - 1] > least:
                steps[k], sets[k + 1] = steps[k - 1], sets[k] | <i64>1 << c
                k -= 1
            steps[k], sets[k + 1] = least, sets[k] | <i64>1 << c


cdef i64 cells_within(View v, i64 *room, i64 *held) noexcept nogil:
    """Return the bits of the cells of which some task may fit into this room, less what is held (NULL: nothing)."""
    cells = <i64>-1
    for r in range(v.len_total):
        steps, k, half = &v.cell_steps[r * (MOST_CELLS + 1)], 0, (MOST_CELLS + 1) // 2
        most = max(0, room[r] - (held[r] if held != NULL else 0))
        while half > 0:
            k += half if steps[k + half - 1] <= most else 0
            half >>= 1
        cells &= v.cell_sets[r * (MOST_CELLS + 1) + k]
    return cells


cdef void _unpark_unless_first(View v, i64 leaf, i64 base, i64 b) noexcept nogil:
    """Unpark a group that is not the first of its strict leaf: only the first is searched for room."""
    if b == NONE or v.trees[base + 1].best == b or not v.group_cache[b].parked:
        return
    v.group_cache[b].parked = False
    place = v.queue_cache[leaf].slots + v.group_cache[b].slot
    if v.trees[base + place].best == b:
        v.trees[base + place].may_fit = True
        _climb_tree(v, leaf, base, place, b)


cdef double lasts(View v, i64 b, i64 job) noexcept nogil:
    """Return the p90 duration of a task of a group's job, seconds; note if it or the job's time limit fell."""
    cache = v.group_cache
    before = cache[b].lasts_job
    if before != job or not cache[b].lasts_known:
        seconds = p90_duration(v, job)
        if before != NONE and (seconds < cache[b].lasts or v.jobs[job].time_limit < v.jobs[before].time_limit):
            cache[b].shorter = True
        cache[b].lasts, cache[b].lasts_job, cache[b].lasts_known = seconds, job, True
    return cache[b].lasts


cdef void wake_if_shorter(View v, i64 b) noexcept nogil:
    """Unpark a group whose tasks have become shorter since it was parked: it may now fit before a hold."""
    cache, job, h = v.group_cache, current_job(v, b), 0
    if job != NONE:
        least = min(lasts(v, b, job), v.jobs[job].time_limit)
        while cache[b].shorter and cache[b].parked and h < v.counts[HOLDS]:
            cache[b].parked = v.times[NOW] + least > v.holds[h].start and v.times[NOW] < INFINITY
            h += 1
    cache[b].shorter = False


cdef void invalidate_estimates(View v, i64 j, i64 whose) noexcept nogil:
    """Note that the duration estimate of a job's family, queue or of any queue changed: check parked groups again."""
    if whose == P90_OF_ANY:
        for b in range(v.counts[GROUPS]):
            _forget_lasts(v, b)
        return
    leaf = v.jobs[j].queue
    base, slots = v.queue_cache[leaf].base, v.queue_cache[leaf].slots
    for place in range(base + slots, base + 2 * slots):
        b = v.trees[place].best
        if b != NONE:
            waits = v.groups[b].head
            if whose != P90_OF_FAMILY or (waits != NONE and (waits == j or v.jobs[waits].family == v.jobs[j].family)):
                _forget_lasts(v, b)
                if whose == P90_FORGIVEN:
                    v.group_cache[b].parked = False


cdef void _forget_lasts(View v, i64 b) noexcept nogil:
    v.group_cache[b].lasts_known = False
    touch_group(v, b)


cdef bint _put(i64 *row, i64 at, i64 value) noexcept nogil:
    """Store a number; return True if it changed."""
    cdef bint changed
    changed = row[at] != value
    row[at] = value
    return changed


cdef void _clear(View v, i64 node) noexcept nogil:
    v.trees[node].best, v.trees[node].may_fit, v.trees[node].needs, v.trees[node].cells = NONE, False, 0, 0
    for r in range(v.cols_least):
        v.least[node * v.cols_least + r] = INFINITE


cdef bint _set_node(View v, i64 q, i64 base, i64 i, bint is_leaf) noexcept nogil:
    """Compute a node of queue q's tree from its two children; return True if it changed."""
    cdef bint changed
    left, right, node = &v.trees[base + 2 * i], &v.trees[base + 2 * i + 1], &v.trees[base + i]
    a, b, columns = left.best, right.best, v.cols_least
    one, other, both, news = &v.least[(base + 2 * i) * columns], &v.least[(base + 2 * i + 1) * columns], &v.least[(base + i) * columns], 0
    best = a
    if a == NONE:
        best = b
    elif b != NONE:
        if is_leaf:
            first = group_goes_before(v, a, b)
        else:
            cache = v.queue_cache
            first = queue_goes_before(
                v, a, cache[a].below, cache[a].first, cache[a].level, b, cache[b].below, cache[b].first, cache[b].level
            )
        best = a if first else b
    if v.queues[q].strict:  # nothing behind the best is served
        if best == a:
            right, other = left, one
        else:
            left, one = right, other
    may_fit, needs, cells = left.may_fit or right.may_fit, left.needs | right.needs, left.cells | right.cells
    changed = node.best != best or node.may_fit != may_fit or node.needs != needs or node.cells != cells
    node.best, node.may_fit, node.needs, node.cells = best, may_fit, needs, cells
    if a == NONE or b == NONE:  # the usual case at a low load
        one = one if b == NONE else other
        if not changed and memcmp(both, one, columns * sizeof(i64)) == 0:
            return False
        memcpy(both, one, columns * sizeof(i64))
        return True
    for r in range(columns):
        least = min(one[r], other[r])
        news |= both[r] ^ least
        both[r] = least
    return changed or news != 0


cdef bint _climb_tree(View v, i64 q, i64 base, i64 place, i64 child) noexcept nogil:
    """After a change at one place, update the tree nodes above it while they change; True if the root was reached."""
    cdef bint was
    leaf = is_leaf(v, q)
    i = place >> 1
    while i > 0:
        was = v.trees[base + i].best == child
        if not _set_node(v, q, base, i, leaf) and not was:
            return False
        i >>= 1
    return True


cdef bint is_leaf(View v, i64 q) noexcept nogil:
    """Return True if a queue has groups below it, not queues."""
    return not v.queue_cache[q].inner


cpdef void set_queue(View v, i64 q) noexcept nogil:
    """Compute a queue's key and update its place among its siblings."""
    cache = v.queue_cache
    p = v.queues[q].parent
    top = cache[q].base + 1
    base, place = cache[p].base, cache[p].slots + cache[q].slot
    if v.counts[HDRF_SOMEWHERE]:
        _count_up(v, q)
    if v.trees[top].best == NONE or cache[q].shut:
        _clear(v, base + place)
        _climb_tree(v, p, base, place, q)
        return
    _set_keys_of(v, q)
    may_fit, node = v.trees[top].may_fit or cache[q].maybe_stale, &v.trees[base + place]
    if node.best == q and node.may_fit == may_fit and _is_same_least(v, base + place, top):
        _climb_by_key(v, base, place, q)
        return
    for r in range(v.cols_least):
        v.least[(base + place) * v.cols_least + r] = v.least[top * v.cols_least + r]
    node.best, node.may_fit, node.needs, node.cells = q, may_fit, v.trees[top].needs, v.trees[top].cells
    _climb_tree(v, p, base, place, q)


cdef void _set_keys_of(View v, i64 q) noexcept nogil:
    """Compute a queue's key among its siblings."""
    set_key(v, q)
    policy = v.queues[v.queues[q].parent].policy
    if policy == HDRF or policy == DIVIDED:
        set_level(v, q, is_leaf(v, q))


cdef bint _is_same_least(View v, i64 one, i64 other) noexcept nogil:
    if v.trees[one].needs != v.trees[other].needs or v.trees[one].cells != v.trees[other].cells:
        return False
    for r in range(v.cols_least):
        if v.least[one * v.cols_least + r] != v.least[other * v.cols_least + r]:
            return False
    return True


cdef void _climb_by_key(View v, i64 base, i64 place, i64 child) noexcept nogil:
    """After a change of a queue's key alone, the usual case, update the best children above it."""
    cache, best, i = v.queue_cache, child, place
    while i > 1:
        other = v.trees[base + (i ^ 1)].best
        i >>= 1
        if other != NONE and queue_goes_before(
            v, other, cache[other].below, cache[other].first, cache[other].level,
            best, cache[best].below, cache[best].first, cache[best].level,
        ):  # fmt: skip
            best = other
        was = v.trees[base + i].best
        if was == best and was != child:
            return
        v.trees[base + i].best = best


cdef void set_turn(View v, i64 q) noexcept nogil:
    """Update a queue's place among its siblings where only their ties change."""
    p = v.queues[q].parent
    base, place = v.queue_cache[p].base, v.queue_cache[p].slots + v.queue_cache[q].slot
    if v.trees[base + place].best == q:
        _climb_by_key(v, base, place, q)


cdef void climb(View v, i64 q) noexcept nogil:
    """Update the keys on the path from a queue to the root."""
    while q != 0:
        set_queue(v, q)
        q = v.queues[q].parent


cpdef void refresh(View v) noexcept nogil:
    """Update the order where something was touched, and where the charge for past use has changed."""
    for k in range(v.counts[TOUCHED_GROUPS]):
        b = v.group_cache[k].touched_list
        v.group_cache[b].touched = False
        leaf = v.groups[b].leaf
        if v.trees[v.queue_cache[leaf].base + v.queue_cache[leaf].slots + v.group_cache[b].slot].best != b:
            v.group_cache[b].lasts_known = False  # a report may have looked at it
        wake_if_shorter(v, b)
        # A group that a cycle excluded may be gone for good, which leaves the tree unchanged.
        if set_group(v, b) or v.queue_cache[leaf].active != _is_active(v, leaf):
            touch_queue(v, leaf)
    v.counts[TOUCHED_GROUPS] = 0
    for k in range(v.counts[TOUCHED_QUEUES]):
        q = v.queue_cache[k].touched_list
        v.queue_cache[q].touched = False
        while q != 0:
            _set_active(v, q, _is_active(v, q))
            set_queue(v, q)
            q = v.queues[q].parent
    v.counts[TOUCHED_QUEUES] = 0
    for k in range(v.counts[MOVED]):
        p = v.queue_cache[k].moved_list
        v.queue_cache[p].moved = False
        for q in range(p, v.counts[LAST_INNER] + 1 if not v.counts[HISTORY_MOVED] else 0):
            if v.queue_cache[q].inner and is_at_or_below(v, q, p) and (v.queue_cache[q].crowded or is_crowded(v, q)):
                _set_children(v, q)
    if v.counts[HISTORY_MOVED]:
        for p in range(v.counts[QUEUES]):
            if v.queue_cache[p].inner and has_history(v.queues[p].policy):
                _set_children(v, p)
    v.counts[MOVED] = v.counts[HISTORY_MOVED] = 0


cdef bint _is_active(View v, i64 q) noexcept nogil:
    """Return True if something below a queue waits or runs, by its tree and the tables. Not valid in a cycle."""
    return v.queues[q].tasks > 0 or v.trees[v.queue_cache[q].base + 1].best != NONE


cdef void _set_active(View v, i64 q, bint active) noexcept nogil:
    """Store whether something below a queue waits or runs. Not to be called in a cycle."""
    cdef i64 m = v.len_total
    cache, p = v.queue_cache, v.queues[q].parent
    if cache[q].active != active:
        cache[q].active = active
        for r in range(m):
            v.active_weight[p * m + r] += v.scaled_weight[q * m + r] if active else -v.scaled_weight[q * m + r]
        if not cache[p].moved and not is_by_jobs(v, p):
            cache[p].moved = True
            cache[v.counts[MOVED]].moved_list = p
            v.counts[MOVED] += 1


cdef void _set_children(View v, i64 p) noexcept nogil:
    """Compute the keys of all pending children of a queue, and its tree."""
    v.queue_cache[p].crowd, v.queue_cache[p].crowded = INFINITY, False
    base, slots = v.queue_cache[p].base, v.queue_cache[p].slots
    for place in range(base + slots, base + 2 * slots):
        if v.trees[place].best != NONE:
            set_key(v, v.trees[place].best)
    for i in range(slots - 1, 0, -1):
        _set_node(v, p, base, i, False)


cpdef void rebuild(View v) noexcept nogil:
    """Make all trees from the groups up. Parents precede their children in the rows, so the last queue comes first."""
    for i in range(v.len_trees):
        _clear(v, i)
    for k in range(v.counts[TOUCHED_GROUPS]):
        v.group_cache[v.group_cache[k].touched_list].touched = False
    for k in range(v.counts[TOUCHED_QUEUES]):
        v.queue_cache[v.queue_cache[k].touched_list].touched = False
    for k in range(v.counts[MOVED]):
        v.queue_cache[v.queue_cache[k].moved_list].moved = False
    v.counts[TOUCHED_GROUPS] = v.counts[TOUCHED_QUEUES] = v.counts[MOVED] = v.counts[HISTORY_MOVED] = 0
    _count_active(v)
    for b in range(v.counts[GROUPS]):
        if current_job(v, b) != NONE or v.groups[b].is_framework:
            set_group(v, b)
    for q in range(v.counts[QUEUES] - 1, 0, -1):
        set_queue(v, q)


cdef void _count_active(View v) noexcept nogil:
    """Compute which queues are active from the tables, which are valid in a cycle too, and the weights that follow."""
    cdef i64 m = v.len_total
    cache = v.queue_cache
    for i in range(v.len_active_weight * m):
        v.active_weight[i] = 0
    for q in range(v.counts[QUEUES]):
        cache[q].active = v.queues[q].tasks > 0
        cache[q].crowd, cache[q].crowded = INFINITY, False
    for b in range(v.counts[GROUPS]):
        q = v.groups[b].leaf if v.groups[b].head != NONE or v.groups[b].is_framework else NONE
        while q != NONE:
            cache[q].active = True
            q = v.queues[q].parent
    for q in range(1, v.counts[QUEUES]):
        if cache[q].active:
            for r in range(m):
                v.active_weight[v.queues[q].parent * m + r] += v.scaled_weight[q * m + r]


cdef void _count_up(View v, i64 q) noexcept nogil:
    """Compute what queue q counts as using among its siblings under hdrf, from its children's levels."""
    cdef i64 m = v.len_total
    for r in range(m):
        v.counts_as[q * m + r] = v.used[q * m + r]
    if v.queues[q].policy != HDRF or is_leaf(v, q):
        return
    first = v.queue_cache[q].base + v.queue_cache[q].slots
    last = first + v.queue_cache[q].slots
    least = INFINITY
    for place in range(first, last):
        c = v.trees[place].best
        if c != NONE:
            least = min(least, v.queue_cache[c].level_now)
    for r in range(m):
        others = v.used[q * m + r]
        for place in range(first, last):
            c = v.trees[place].best
            if c != NONE:
                others -= v.used[c * m + r]
        amount = <double>others
        for place in range(first, last):
            c = v.trees[place].best
            if c != NONE:
                level = v.queue_cache[c].level_now
                if level > least:
                    amount += v.counts_as[c * m + r] * (least / level)
                else:
                    amount += v.counts_as[c * m + r]
        v.counts_as[q * m + r] = amount
