"""The search for the next group: the best that waits, found from the root of the queue tree down.

A queue's exact key depends on which of its groups is served, so it is known only when that group is found. The trees
store the smallest that a key can be. The search goes on until nothing left could come before the best so far. Usually
that is one path down.

A queue goes first with groups whose next task, or whole gang, stays within its guarantee of what it needs, and offers
those before its other groups. Otherwise a sibling would get the guarantee because the queue's first group cannot use it. So:

- a group with a claim for a guarantee is served before every group that would be preempted for it, by the same order;
- no task is placed that would be preempted for that claim at once.
"""


cdef void visit_freed_nodes(View v) noexcept nogil:
    """Compute the most free of each resource on any freed node, if there are many, and the most free on freed nodes with holds.

    Called at the start of a cycle.
    """
    cdef i64 m = v.len_total
    v.counts[FITTING] = v.counts[OPEN] = v.counts[SCANNED] = 0
    for r in range(m):
        v.most[r] = v.most_kept[r] = 0
    if v.counts[FREED] > MAX_SCANNED_NODES:
        for k in range(v.counts[FREED]):
            n = v.node_cache[k].freed
            for r in range(m):
                v.most[r] = max(v.most[r], v.free[n * m + r] - v.held[n * m + r])
    v.times[LAST_HOLD_START] = -INFINITY
    for k in range(v.counts[FREED] if v.counts[HOLDS] > 0 else 0):
        n = v.node_cache[k].freed
        h = v.nodes[n].hold
        for r in range(m if h != NONE else 0):
            v.most_kept[r] = max(v.most_kept[r], v.free[n * m + r])
        while h != NONE:
            v.times[LAST_HOLD_START] = max(v.times[LAST_HOLD_START], v.holds[h].start)
            h = v.holds[h].after


cdef bint nobody_can_be_served(View v) noexcept nogil:
    """Return True if no group can have room: none waits, or all are parked and no node was freed."""
    top = v.queue_cache[0].base + 1
    return v.trees[top].best == NONE or not (v.trees[top].may_fit or v.counts[FREED] > 0 or v.queue_cache[0].maybe_stale)


cdef i64 find_next(View v, i64 scope) noexcept nogil:
    """Find the group that is next in a scope (ANY_PENDING, IN_LINE or SERVABLE); NONE if there is none.

    Each queue on the way has a frame: the part of its tree still to be searched, on the stack from `bottom` on, and the
    best group so far. When that part is empty, the best group becomes the queue's candidate among its siblings.
    """
    cdef bint left, mine, leaf
    if scope == SERVABLE and nobody_can_be_served(v):
        return NONE
    b = _follow_best(v, scope)
    if b != NONE:
        return b
    depth, top = 0, _enter(v, 0, 0, 0)
    while True:
        frame = &v.frames[depth]
        q = frame.queue
        tree, slots, leaf = v.queue_cache[q].base, v.queue_cache[q].slots, is_leaf(v, q)
        while top > frame.bottom:
            top -= 1
            i = v.stack[top]
            if not _may_improve(v, depth, tree + i, leaf, scope):
                continue
            child = v.trees[tree + i].best
            if i < slots:
                # Search the half with the better top first.
                left = v.trees[tree + 2 * i].best == child
                v.stack[top], v.stack[top + 1] = (2 * i + 1, 2 * i) if left else (2 * i, 2 * i + 1)
                if v.queues[q].strict:
                    v.stack[top] = v.stack[top + 1]
                top += 1 if v.queues[q].strict else 2
            elif not leaf:
                if scope != IN_LINE or not v.queue_cache[child].keeping:
                    depth += 1
                    v.frames[depth].maybe_stale = frame.maybe_stale
                    v.frames[depth].only = v.queue_cache[child].below == 0
                    top = _enter(v, depth, child, top)
                    b = v.trees[v.queue_cache[child].base + 1].best
                    mine = is_leaf(v, child) and b != NONE and _satisfies_only(v, depth, b)
                    if mine and _can_be_served(v, b, scope, v.frames[depth].maybe_stale):
                        v.frames[depth].group = v.frames[depth].child = b
                        top = v.frames[depth].bottom
                    break
            elif v.group_cache[child].out or not _satisfies_only(v, depth, child):
                continue
            elif scope != ANY_PENDING and _must_skip(v, depth, child):
                if not skip_to_started(v, child):
                    stop(v, child, MAX_JOBS)
                depth, top = 0, _enter(v, 0, 0, 0)
                break
            elif not _may_be_served(v, depth, child, scope):
                if scope == SERVABLE and lacks_lent(v, child) and owes(v, child):  # as below
                    frame.group = frame.child = child
            elif scope == SERVABLE and not has_room(v, child):
                if owes(v, child):  # in its turn, which is no earlier than if it had room
                    frame.group = frame.child = child
                elif not _pass_by(v, child):
                    stop(v, child, NO_NODE)
                    depth, top = 0, _enter(v, 0, 0, 0)
                    break
            else:
                frame.group = frame.child = child
        else:
            if depth == 0:
                return frame.group
            if frame.only and frame.group == NONE and _may_come_yet(v, depth):
                frame.only = False
                top = _enter(v, depth, q, top)
            else:
                depth -= 1
                if frame.group != NONE:
                    _consider(v, depth, q, frame.group)


cdef i64 _follow_best(View v, i64 scope) noexcept nogil:
    """Follow the best child of each tree down, which usually suffices.

    Return the group that is next, if it can be served and the keys on its path are exact; else NONE.
    """
    q = 0
    while True:
        child = v.trees[v.queue_cache[q].base + 1].best
        if child == NONE:
            return NONE
        if is_leaf(v, q):
            break
        if scope == IN_LINE and v.queue_cache[child].keeping:
            return NONE
        q = child
    maybe_stale = v.queue_cache[0].maybe_stale
    while q != 0:
        if not _is_sure_key(v, q, child):
            return NONE
        maybe_stale |= v.queue_cache[q].maybe_stale
        q = v.queues[q].parent
    return child if _can_be_served(v, child, scope, maybe_stale) else NONE


cdef bint _can_be_served(View v, i64 b, i64 scope, bint maybe_stale) noexcept nogil:
    """Return True if a group is in the scope; `maybe_stale` if parked groups on its path may have room."""
    if scope == ANY_PENDING:
        return True
    if v.group_cache[b].out or not is_in_pass(v, b) or not (_is_in_line(v, b) if scope == IN_LINE else _may_have_room(v, b, maybe_stale)):
        return False
    return over_limits(v, b) == NOT_REACHED and (scope == IN_LINE or has_room(v, b))


cdef bint _is_sure_key(View v, i64 q, i64 b) noexcept nogil:
    """Return True if a queue's stored key is exact when this group is its candidate."""
    cache, policy = v.queue_cache, v.queues[v.queues[q].parent].policy
    if (policy == FIFO or policy == BY_PRIORITY) and cache[q].level != <double>v.group_cache[b].number:
        return False
    if policy == BY_PRIORITY and cache[q].first != -v.groups[b].priority:
        return False
    return cache[q].below != 0 or below_on_path(v, q, v.groups[b].leaf, v.groups[b].shape_row, tasks_at_once(v, b)) == 0


cdef i64 _enter(View v, i64 depth, i64 q, i64 top) noexcept nogil:
    """Start the search below a queue: at the root of its tree, and within its limits and those above.

    Revocable jobs have other limits, and what is kept for claims is not deducted here, since the claims' own groups may
    use it: `over_limits` checks both for each group found.
    """
    cdef i64 m = v.len_total
    caps, resources = &v.caps[depth * v.cols_caps], m
    v.frames[depth].queue, v.frames[depth].bottom = q, top
    if depth == 0:
        v.frames[depth].maybe_stale = v.frames[depth].only = v.frames[depth].bounded = False
    else:
        v.frames[depth].bounded = v.frames[depth - 1].bounded
    v.frames[depth].maybe_stale |= v.queue_cache[q].maybe_stale
    v.frames[depth].group = v.frames[depth].child = NONE
    for r in range(resources):
        # A limit does not stop what needs none of the resource, even when it is exceeded.
        caps[r] = UNLIMITED
        if v.limit[q * m + r] != UNLIMITED and not v.counts[LAST_PASS]:
            v.frames[depth].bounded = True
            caps[r] = max(0, v.limit[q * m + r] - v.used[q * m + r] + v.spare[q * m + r])
    caps[resources] = 1 if v.queues[q].jobs < v.queues[q].max_jobs else 0
    caps[resources + 1] = v.queues[q].max_tasks - v.queues[q].tasks
    v.frames[depth].bounded |= caps[resources] < 1 or caps[resources + 1] < 1
    if depth > 0:
        for r in range(resources + 2):
            caps[r] = min(caps[r], v.caps[(depth - 1) * v.cols_caps + r])
    v.stack[top] = 1
    return top + 1


cdef bint _satisfies_only(View v, i64 depth, i64 b) noexcept nogil:
    """Return True if a group satisfies `only` of every queue on the path: each goes first with it."""
    lowest = depth
    while lowest > 0 and not v.frames[lowest].only:
        lowest -= 1
    if lowest == 0:
        return True
    below = 1
    for d in range(depth, 0, -1):
        shape, count = v.groups[b].shape_row, tasks_at_once(v, b)
        if v.frames[d].only and exact_below(v, v.frames[d].queue, shape, count, below) != 0:
            return False
        below = below_above(v, v.frames[d].queue, shape, count, below)
    return True


cdef bint _may_come_yet(View v, i64 depth) noexcept nogil:
    """Return True if a queue without its guarantee's precedence could still come before the best of its siblings."""
    cache, frames, q = v.queue_cache, v.frames, v.frames[depth].queue
    above = depth - 1
    found = frames[above].child
    if found == NONE:
        return True
    key = frames[above].below, frames[above].first, frames[above].level
    return queue_goes_before(v, q, 1, cache[q].first, cache[q].level, found, key[0], key[1], key[2])


cdef bint _may_improve(View v, i64 depth, i64 node, bint leaf, i64 scope) noexcept nogil:
    """Return True if something below a tree node, of a leaf or not, might be in the scope and come before the best so far."""
    cdef i64 m = v.len_total
    cdef bint within, parked
    frame, child = &v.frames[depth], v.trees[node].best
    if child == NONE or (frame.only and not may_go_first(v, frame.queue, node)):
        return False
    parked = scope == SERVABLE and not v.trees[node].may_fit and not frame.maybe_stale
    if parked and not _any_fits(v, v.trees[node].cells, node):
        return False
    if frame.child != NONE:
        if leaf:
            if not group_goes_before(v, child, frame.child):
                return False
        else:
            cache = &v.queue_cache[child]
            if not queue_goes_before(
                v, child, cache.below, cache.first, cache.level, frame.child, frame.below, frame.first, frame.level
            ):
                return False
    if scope == ANY_PENDING:
        return True
    if parked and not _may_fit_freed(v, node):
        return False
    if not frame.bounded:
        return True
    resources = m
    least, caps = &v.least[node * v.cols_least], &v.caps[depth * v.cols_caps]
    within = least[resources + JOBS_NEEDED] <= caps[resources] and caps[resources + 1] >= 1
    for r in range(resources):
        within &= least[r] <= caps[r]
    if not within and scope == SERVABLE:
        note_limited(v, frame.queue)
    return within


cdef bint _may_enter_held(View v, i64 node) noexcept nogil:
    """Return True if something below a tree node may use room that is held on a freed node: its own, by a guarantee, or as it ends in time."""
    shortest = v.least[node * v.cols_least + v.len_total + SHORTEST]
    return shortest < 0 or v.times[NOW] + shortest / 1e6 <= v.times[LAST_HOLD_START]


cdef inline bint _any_fits(View v, i64 cells, i64 node) noexcept nogil:
    """Return True if the least that tasks of one of these cells need is free on a freed node, and if held, some below `node` may use it.

    Freed nodes are looked at as needed.
    """
    while not cells & v.counts[OPEN] and not (cells & v.counts[FITTING] and (node == NONE or _may_enter_held(v, node))):
        if v.counts[SCANNED] >= v.counts[FREED]:
            return False
        _scan_freed(v)
    return True


cdef void _scan_freed(View v) noexcept nogil:
    """Note what fits on the next freed node, or on any if there are many."""
    if v.counts[FREED] > MAX_SCANNED_NODES:
        v.counts[OPEN], v.counts[SCANNED] = cells_within(v, v.most, NULL), v.counts[FREED]
        v.counts[FITTING] = v.counts[OPEN] | cells_within(v, v.most_kept, NULL)
    else:
        n = v.node_cache[v.counts[SCANNED]].freed
        v.counts[OPEN] |= cells_within(v, &v.free[n * v.len_total], &v.held[n * v.len_total])
        v.counts[FITTING] |= cells_within(v, &v.free[n * v.len_total], NULL)
        v.counts[SCANNED] += 1


cdef bint _fits_freed(View v, i64 *demand) noexcept nogil:
    """Return True if a demand is free on a freed node, kept or not; of many nodes, if their most free exceeds it."""
    cdef i64 m = v.len_total
    cdef bint fits, kept
    if v.counts[FREED] > MAX_SCANNED_NODES:
        fits = kept = True
        for r in range(m):
            fits &= demand[r] <= v.most[r]
            kept &= demand[r] <= v.most_kept[r]
        return fits or kept
    for k in range(v.counts[FREED]):
        free, fits = &v.free[v.node_cache[k].freed * m], True
        for r in range(m):
            fits &= demand[r] == 0 or demand[r] <= free[r]
        if fits:
            return True
    return False


cdef bint _may_fit_freed(View v, i64 node) noexcept nogil:
    """Return True if the least needed below a tree node is free on a freed node, beside what is kept until its tasks end.

    Called where :func:`_any_fits`.
    """
    cdef i64 m = v.len_total
    cdef bint within
    if v.counts[HOLDS] == 0:
        return v.counts[CELLS] < MOST_CELLS or _fits_freed(v, &v.least[node * v.cols_least])
    least, shortest = &v.least[node * v.cols_least], v.least[node * v.cols_least + m + SHORTEST]
    until = v.times[NOW] + shortest / 1e6
    if v.counts[FREED] > MAX_SCANNED_NODES:
        within = shortest < 0 or until <= v.times[LAST_HOLD_START]
        for r in range(m if within else 0):
            within &= least[r] <= v.most_kept[r]
        if within:
            return True
        for r in range(m):
            if least[r] > v.most[r]:
                return False
        return True
    for k in range(v.counts[FREED]):
        n = v.node_cache[k].freed
        fits = True
        for r in range(m):
            if least[r] > 0 and least[r] > v.free[n * m + r] - v.held[n * m + r] and (
                shortest >= 0 and (until > v.times[LAST_HOLD_START] or least[r] > v.free[n * m + r] - kept(v, n, r, until, NONE, NONE))
                or least[r] > v.free[n * m + r]
            ):
                fits = False
                break
        if fits:
            return True
    return False


cdef bint _must_skip(View v, i64 depth, i64 b) noexcept nogil:
    """Return True if no more jobs may start and the group's next job would start, while others of the group run."""
    cdef i64 m = v.len_total
    if v.groups[b].started == 0 or is_started(v, b):
        return False
    return v.caps[depth * v.cols_caps + m] == 0 or (_any_claim_kept(v) and over_limits(v, b) == MAX_JOBS)


cdef bint skip_to_started(View v, i64 b) noexcept nogil:
    """Move a group on to its next running job for the rest of the cycle; False if there is none."""
    note_limited(v, v.groups[b].leaf)  # the skipped jobs were not tried; they may have room when others of the group end
    if v.queues[v.groups[b].leaf].strict:
        return False
    job = v.jobs[current_job(v, b)].after
    while job != NONE and v.jobs[job].holding == 0:
        job = v.jobs[job].after
    if job == NONE:
        return False
    set_current(v, b, job)
    list_for_update(v, b)
    if set_group(v, b):
        climb(v, v.groups[b].leaf)
    return True


cdef void stop(View v, i64 b, i64 why) noexcept nogil:
    """Stop serving a group in this cycle; in a strict leaf, all its groups."""
    if exclude_group(v, b, why):
        climb(v, v.groups[b].leaf)


cdef bint exclude_group(View v, i64 b, i64 why) noexcept nogil:
    """Stop a group like :func:`stop`, but leave the queues above; True if its leaf's candidate may have changed."""
    _note_stop(v, b, why)
    if v.queues[v.groups[b].leaf].strict and why != EXHAUSTED:
        v.queue_cache[v.groups[b].leaf].shut = True
        return True
    return set_group(v, b)


cdef bint _pass_by(View v, i64 b) noexcept nogil:
    """Stop a group without room where no queue's key depends on who waits below: its place only counts as parked. False elsewhere."""
    q = v.groups[b].leaf
    if v.queues[q].strict or v.queues[q].guarded or v.groups[b].is_framework or v.counts[HDRF_SOMEWHERE]:
        return False
    while q != 0:
        q = v.queues[q].parent
        if is_by_jobs(v, q):
            return False
    _note_stop(v, b, NO_NODE)
    set_may_fit(v, b, False)
    return True


cdef void _note_stop(View v, i64 b, i64 why) noexcept nogil:
    cache = v.group_cache
    list_for_update(v, b)
    cache[b].out = True
    cache[b].stop_cycle, cache[b].stop_order = v.counts[CYCLE], v.counts[STOPS]
    cache[b].stop, cache[b].stop_job = why, current_job(v, b)
    v.counts[STOPS] += 1


cdef void note_limited(View v, i64 q) noexcept nogil:
    """Note that a limit, or parking, hid something below a queue from the search: whether that has room is unknown."""
    if v.queue_cache[q].limited == NONE:
        v.queue_cache[v.counts[LIMITED]].limited_list = q
        v.counts[LIMITED] += 1
    v.queue_cache[q].limited = v.counts[CYCLE]


cdef void set_current(View v, i64 b, i64 job) noexcept nogil:
    """Make a job a group's next for the rest of the cycle."""
    v.group_cache[b].cycle = v.counts[CYCLE]
    v.group_cache[b].current = job
    v.group_cache[b].left = startable(v, job) if job != NONE else 0


cdef void list_for_update(View v, i64 b) noexcept nogil:
    """List a group for an update at the end of the cycle."""
    if not v.group_cache[b].listed:
        v.group_cache[b].listed = True
        v.group_cache[v.counts[OUT]].out_list = b
        v.counts[OUT] += 1


cdef bint _may_be_served(View v, i64 depth, i64 b, i64 scope) noexcept nogil:
    """Return True if a group's next task, or whole gang, is within all limits and may have room."""
    if scope == ANY_PENDING:
        return True
    shape, leaf = v.groups[b].shape_row, v.frames[depth].queue
    if not _is_within(v, depth, b, shape):
        if scope == SERVABLE:
            note_limited(v, leaf)
        return False
    if scope == IN_LINE:
        return _is_in_line(v, b)
    return _may_have_room(v, b, v.frames[depth].maybe_stale)


cdef bint _is_in_line(View v, i64 b) noexcept nogil:
    """Return True if a group is in line for room: it has no reservation, and empty nodes could hold its task or gang."""
    return not v.group_cache[b].keeping and not v.group_cache[b].hopeless and not v.groups[b].is_framework


cdef bint _may_have_room(View v, i64 b, bint maybe_stale) noexcept nogil:
    """Return True if a group may have room; a parked one only on a freed node, unless `maybe_stale`."""
    cdef i64 m = v.len_total
    cdef bint free, kept
    if not v.group_cache[b].parked or maybe_stale:
        return True
    shape = v.groups[b].shape_row
    if v.counts[FREED] > MAX_SCANNED_NODES:
        free, kept = True, v.group_cache[b].keeping or v.queues[v.groups[b].leaf].guarded
        kept = kept or v.times[NOW] + v.group_cache[b].lasts <= v.times[LAST_HOLD_START]
        for r in range(m):
            free &= v.demand[shape * m + r] <= v.most[r]
            kept &= v.demand[shape * m + r] <= v.most_kept[r]
        return free or kept
    for k in range(v.counts[FREED] if _any_fits(v, <i64>1 << v.shape_cache[shape].cell, NONE) else 0):
        n = v.node_cache[k].freed
        if holds_task(v, n, shape) or may_enter(v, b, n) or may_use_hold(v, b, n):
            return True
    return False


cdef bint _any_claim_kept(View v) noexcept nogil:
    """Return True if any room is kept for claims."""
    cdef i64 m = v.len_total
    for r in range(m):
        if v.claimed[0 * m + r] > 0:
            return True
    return False


cdef bint _is_within(View v, i64 depth, i64 b, i64 shape) noexcept nogil:
    """Return True if a group's next task, or whole gang, respects all limits and non-lendable quotas on its path."""
    cdef i64 m = v.len_total
    resources = m
    if not is_in_pass(v, b):
        return False
    if v.groups[b].revocable or v.queues[0].has_nonlendable or _any_claim_kept(v):
        return over_limits(v, b) == NOT_REACHED
    if v.caps[depth * v.cols_caps + resources] == 0 and not is_started(v, b):
        return False
    if v.groups[b].gang > 0:
        count = tasks_left(v, b)
        if count > v.caps[depth * v.cols_caps + (resources + 1)]:
            return False
        for r in range(resources):
            need = v.demand[shape * m + r]
            if need > 0 and need > floor_div(v.caps[depth * v.cols_caps + r], count):  # avoids overflow
                return False
    return True


cdef void _consider(View v, i64 depth, i64 child, i64 b) noexcept nogil:
    """Compare a queue, whose key is exact now, with the best of its siblings so far."""
    cache, frames = v.queue_cache, v.frames
    below, first, level = 0 if frames[depth + 1].only else 1, cache[child].first, cache[child].level
    policy = v.queues[frames[depth].queue].policy
    if policy == FIFO or policy == BY_PRIORITY:
        first = -v.groups[b].priority if policy == BY_PRIORITY else 0
        level = <double>v.group_cache[b].number
    if frames[depth].child == NONE or queue_goes_before(
        v, child, below, first, level,
        frames[depth].child, frames[depth].below, frames[depth].first, frames[depth].level,
    ):  # fmt: skip
        frames[depth].group, frames[depth].child = b, child
        frames[depth].below, frames[depth].first, frames[depth].level = below, first, level
