"""Who is next: the best of all that wait, found from the root of the queue tree down.

Which group a queue would serve depends on what can be served, so a queue's key is known for certain only when its group is
found: the trees keep the smallest that it can be, and a search goes on until nothing that is left could come before what it has.
Mostly that is one path down.

A queue that is below its guarantee of something goes first with whoever needs that, and offers those before all others, whoever
of them would be next without: what it is guaranteed is not for a sibling because somebody else in it comes first, and cannot use
it. So whoever has a claim for a guarantee is served before all whom others would be revoked of for it, by the same order and out
of the same group; and nobody is placed who would be revoked for that claim again.
"""


cdef void visit_freed_nodes(View v) noexcept nogil:
    """Work out the most that any fresh node has, where there are more than a few, and what lies free on those with holds.

    To be called when a cycle begins.
    """
    cdef i64 m = v.len_total
    for r in range(m):
        v.most[r] = v.most_kept[r] = 0
    if v.counts[FREED] > FEW_NODES:
        for k in range(v.counts[FREED]):
            n = v.node_cache[k].freed
            for r in range(m):
                v.most[r] = max(v.most[r], v.free[n * m + r] - v.held[n * m + r])
    v.times[LAST_START] = -INFINITY
    for k in range(v.counts[FREED] if v.counts[HOLDS] > 0 else 0):
        n = v.node_cache[k].freed
        h = v.nodes[n].hold
        for r in range(m if h != NONE else 0):
            v.most_kept[r] = max(v.most_kept[r], v.free[n * m + r])
        while h != NONE:
            v.times[LAST_START] = max(v.times[LAST_START], v.holds[h].start)
            h = v.holds[h].after


cdef bint nobody_can_be_served(View v) noexcept nogil:
    """Whether it is plain that nobody has room: all that wait are parked, and none came back."""
    return not v.may_fit[v.queue_cache[0].base + 1] and v.counts[FREED] == 0 and not v.queue_cache[0].maybe_stale


cdef i64 find_next(View v, i64 whom) noexcept nogil:
    """Find the group that is next; NONE where there is none.

    Every queue on the way has a frame: the part of its tree that is still to be looked at, on the stack from its `bottom` on, and
    the best that was found. When nothing is left to look at, the best is what that queue has to offer to the one above.
    """
    cdef bint left, mine
    if whom == SERVABLE and nobody_can_be_served(v):
        return NONE
    b = _follow_best(v, whom)
    if b != NONE:
        return b
    depth, top = 0, _enter(v, 0, 0, 0)
    while True:
        q = v.frames[depth].queue
        if top > v.frames[depth].bottom:
            top -= 1
            i = v.stack[top]
            child = v.best[v.queue_cache[q].base + i]
            if not _is_worth_a_look(v, depth, i, whom):
                continue
            if i < v.queue_cache[q].slots:
                # The half that has the better on top is looked at first.
                left = v.best[v.queue_cache[q].base + 2 * i] == child
                v.stack[top], v.stack[top + 1] = (2 * i + 1, 2 * i) if left else (2 * i, 2 * i + 1)
                if v.queues[q].strict:
                    v.stack[top] = v.stack[top + 1]
                top += 1 if v.queues[q].strict else 2
            elif not is_leaf(v, q):
                if whom != IN_LINE or not v.queue_cache[child].keeping:
                    depth += 1
                    v.frames[depth].maybe_stale = v.frames[depth - 1].maybe_stale
                    v.frames[depth].only = v.queue_cache[child].below == 0
                    top = _enter(v, depth, child, top)
                    b = v.best[v.queue_cache[child].base + 1]
                    mine = is_leaf(v, child) and b != NONE and _is_looked_for(v, depth, b)
                    if mine and _can_be_served(v, b, whom, v.frames[depth].maybe_stale):
                        v.frames[depth].group = v.frames[depth].child = b
                        top = v.frames[depth].bottom
            elif not _is_looked_for(v, depth, child):
                continue
            elif whom != ANYBODY and _must_skip(v, depth, child):
                if not skip_to_started(v, child):
                    stop(v, child, MAX_JOBS)
                depth, top = 0, _enter(v, 0, 0, 0)
            elif not _may_be_served(v, depth, child, whom):
                continue
            elif whom == SERVABLE and not has_room(v, child):
                stop(v, child, NO_NODE)
                depth, top = 0, _enter(v, 0, 0, 0)
            else:
                v.frames[depth].group = v.frames[depth].child = child
        elif depth == 0:
            return v.frames[0].group
        elif v.frames[depth].only and v.frames[depth].group == NONE and _may_come_yet(v, depth):
            v.frames[depth].only = False
            top = _enter(v, depth, q, top)
        else:
            depth -= 1
            if v.frames[depth + 1].group != NONE:
                _consider(v, depth, v.frames[depth + 1].queue, v.frames[depth + 1].group)


cdef i64 _follow_best(View v, i64 whom) noexcept nogil:
    """Go down by the best of each tree alone, which is mostly enough.

    Returns the group that is next, if that can be served and its keys are what they seem; else NONE.
    """
    q = 0
    while True:
        child = v.best[v.queue_cache[q].base + 1]
        if child == NONE:
            return NONE
        if is_leaf(v, q):
            break
        if whom == IN_LINE and v.queue_cache[child].keeping:
            return NONE
        q = child
    unsure = v.queue_cache[0].maybe_stale
    while q != 0:
        if not _is_sure_key(v, q, child):
            return NONE
        unsure |= v.queue_cache[q].maybe_stale
        q = v.queues[q].parent
    return child if _can_be_served(v, child, whom, unsure) else NONE


cdef bint _can_be_served(View v, i64 b, i64 whom, bint unsure) noexcept nogil:
    """Whether a group is one that the search is for; `unsure` where a queue on the path is."""
    if whom == ANYBODY:
        return True
    if (v.counts[OVER_LIMIT_PASS] and not v.groups[b].revocable) or over_limits(v, b) != NOT_REACHED:
        return False
    if whom == IN_LINE:
        return _is_in_line(v, b)
    return _may_have_room(v, b, unsure) and has_room(v, b)


cdef bint _is_sure_key(View v, i64 q, i64 b) noexcept nogil:
    """Whether a queue's key is what it seems, if this group is what it has to offer."""
    cache, policy = v.queue_cache, v.queues[v.queues[q].parent].policy
    if (policy == FIFO or policy == BY_PRIORITY) and cache[q].level != <double>v.group_cache[b].number:
        return False
    if policy == BY_PRIORITY and cache[q].first != -v.groups[b].priority:
        return False
    return cache[q].below != 0 or below_on_path(v, q, v.groups[b].leaf, v.groups[b].shape_row) == 0


cdef i64 _enter(View v, i64 depth, i64 q, i64 top) noexcept nogil:
    """Begin to look below a queue: from the root of its tree, and within its limits; revocable jobs have others.

    What is kept for claims is left out here, for it is kept from all but some: who is found is asked (`over_limits`).
    """
    cdef i64 m = v.len_total
    caps, resources = &v.caps[depth * v.cols_caps], m
    v.frames[depth].queue, v.frames[depth].bottom = q, top
    if depth == 0:
        v.frames[depth].maybe_stale = v.frames[depth].only = False
    v.frames[depth].maybe_stale |= v.queue_cache[q].maybe_stale
    v.frames[depth].group = v.frames[depth].child = NONE
    for r in range(resources):
        # What needs nothing of a resource is not stopped by a limit of it, even one that is passed.
        caps[r] = UNLIMITED
        if v.limit[q * m + r] != UNLIMITED and not v.counts[OVER_LIMIT_PASS]:
            caps[r] = max(0, v.limit[q * m + r] - v.used[q * m + r] + v.spare[q * m + r])
    caps[resources] = 1 if v.queues[q].jobs < v.queues[q].max_jobs else 0
    caps[resources + 1] = v.queues[q].max_tasks - v.queues[q].tasks
    if depth > 0:
        for r in range(resources + 2):
            caps[r] = min(caps[r], v.caps[(depth - 1) * v.cols_caps + r])
    v.stack[top] = 1
    return top + 1


cdef bint _is_looked_for(View v, i64 depth, i64 b) noexcept nogil:
    """Whether a group of the leaf that a search is in is such as each queue on the path looks for."""
    lowest = depth
    while lowest > 0 and not v.frames[lowest].only:
        lowest -= 1
    if lowest == 0:
        return True
    below = 1
    for d in range(depth, 0, -1):
        below = exact_below(v, v.frames[d].queue, v.groups[b].shape_row, below)
        if v.frames[d].only and below != 0:
            return False
    return True


cdef bint _may_come_yet(View v, i64 depth) noexcept nogil:
    """Whether a queue that goes first with nobody who can be served might come before the best of its siblings so far."""
    cache, frames, q = v.queue_cache, v.frames, v.frames[depth].queue
    above = depth - 1
    found = frames[above].child
    if found == NONE:
        return True
    key = frames[above].below, frames[above].first, frames[above].level
    return queue_goes_before(v, q, 1, cache[q].first, cache[q].level, found, key[0], key[1], key[2])


cdef bint _is_worth_a_look(View v, i64 depth, i64 i, i64 whom) noexcept nogil:
    """Whether somebody below a node of a tree could be served, and before the best that was found."""
    cdef i64 m = v.len_total
    cdef bint within
    q = v.frames[depth].queue
    node = v.queue_cache[q].base + i
    child = v.best[node]
    if child == NONE or (v.frames[depth].only and not may_go_first(v, q, node)):
        return False
    found = v.frames[depth].child
    if found != NONE:
        if is_leaf(v, q):
            if not bucket_goes_before(v, child, found):
                return False
        else:
            cache, frames = v.queue_cache, v.frames
            if not queue_goes_before(
                v, child, cache[child].below, cache[child].first, cache[child].level,
                found, frames[depth].below, frames[depth].first, frames[depth].level,
            ):  # fmt: skip
                return False
    if whom == ANYBODY:
        return True
    if whom == SERVABLE and not v.may_fit[node] and not v.frames[depth].maybe_stale and not _may_fit_fresh(v, node):
        return False
    resources = m
    within = v.least[node * v.cols_least + (resources + JOBS_NEEDED)] <= v.caps[depth * v.cols_caps + resources] and v.caps[depth * v.cols_caps + (resources + 1)] >= 1
    for r in range(resources):
        within &= v.least[node * v.cols_least + r] <= v.caps[depth * v.cols_caps + r]
    if not within and whom == SERVABLE:
        note_limited(v, q)
    return within


cdef bint _may_fit_fresh(View v, i64 node) noexcept nogil:
    """Whether the least that is needed below a node of a tree is there on a node with fresh room, or lies free and is kept."""
    cdef i64 m = v.len_total
    cdef bint within
    resources = m
    shortest = v.least[node * v.cols_least + (resources + SHORTEST)]
    if shortest < 0 or v.times[NOW] + shortest / 1e6 <= v.times[LAST_START]:
        within = True
        for r in range(resources):
            within &= v.least[node * v.cols_least + r] <= v.most_kept[r]
        if within:
            return True
    if v.counts[FREED] > FEW_NODES:
        for r in range(resources):
            if v.least[node * v.cols_least + r] > v.most[r]:
                return False
        return True
    for k in range(v.counts[FREED]):
        n = v.node_cache[k].freed
        fits = True
        for r in range(resources):
            if v.least[node * v.cols_least + r] > 0 and v.least[node * v.cols_least + r] > v.free[n * m + r] - v.held[n * m + r]:
                fits = False
                break
        if fits:
            return True
    return False


cdef bint _must_skip(View v, i64 depth, i64 b) noexcept nogil:
    """Whether no more jobs may start, and the next of the group would; others in it run already."""
    cdef i64 m = v.len_total
    if v.groups[b].started == 0 or is_started(v, b):
        return False
    return v.caps[depth * v.cols_caps + m] == 0 or (_claims_are_kept(v) and over_limits(v, b) == MAX_JOBS)


cdef bint skip_to_started(View v, i64 b) noexcept nogil:
    """For the rest of a cycle, have a group go on with the next of its jobs that runs already; False where there is none."""
    note_limited(
        v, v.groups[b].leaf
    )  # those before it were not looked at, and may have room when others in it have ended
    if v.queues[v.groups[b].leaf].strict:
        return False
    job = v.jobs[current_job(v, b)].after
    while job != NONE and v.jobs[job].holding == 0:
        job = v.jobs[job].after
    if job == NONE:
        return False
    set_current(v, b, job)
    remember(v, b)
    if set_group(v, b):
        climb(v, v.groups[b].leaf)
    return True


cdef void stop(View v, i64 b, i64 why) noexcept nogil:
    """A group is not served any more in this cycle; nor is its leaf, where nobody passes the first."""
    if take_out(v, b, why):
        climb(v, v.groups[b].leaf)


cdef bint take_out(View v, i64 b, i64 why) noexcept nogil:
    """The same, but for the queues above; whether what the group's leaf has to offer may be another now."""
    cache = v.group_cache
    remember(v, b)
    cache[b].out = True
    cache[b].stop_cycle, cache[b].stop_order = v.counts[CYCLE], v.counts[STOPS]
    cache[b].stop, cache[b].stop_job = why, current_job(v, b)
    v.counts[STOPS] += 1
    if v.queues[v.groups[b].leaf].strict and why != EXHAUSTED:
        v.queue_cache[v.groups[b].leaf].shut = True
        return True
    return set_group(v, b)


cdef void note_limited(View v, i64 q) noexcept nogil:
    """Note that a limit kept something below a queue from being looked at: where that has room is not known."""
    if v.queue_cache[q].limited == NONE:
        v.queue_cache[v.counts[LIMITED]].limited_list = q
        v.counts[LIMITED] += 1
    v.queue_cache[q].limited = v.counts[CYCLE]


cdef void set_current(View v, i64 b, i64 job) noexcept nogil:
    """For the rest of a cycle, this job of a group is next."""
    v.group_cache[b].cycle = v.counts[CYCLE]
    v.group_cache[b].current = job
    v.group_cache[b].left = startable(v, job) if job != NONE else 0


cdef void remember(View v, i64 b) noexcept nogil:
    """Note that a group's place is to be brought up to date when the cycle is over."""
    if not v.group_cache[b].listed:
        v.group_cache[b].listed = True
        v.group_cache[v.counts[OUT]].out_list = b
        v.counts[OUT] += 1


cdef bint _may_be_served(View v, i64 depth, i64 b, i64 whom) noexcept nogil:
    """Whether a group's next task, or whole gang, is within all limits, and may have room."""
    if whom == ANYBODY:
        return True
    shape, leaf = v.groups[b].shape_row, v.frames[depth].queue
    if not _is_within(v, depth, b, shape):
        if whom == SERVABLE:
            note_limited(v, leaf)
        return False
    if whom == IN_LINE:
        return _is_in_line(v, b)
    return _may_have_room(v, b, v.frames[depth].maybe_stale)


cdef bint _is_in_line(View v, i64 b) noexcept nogil:
    """Whether a group is in line for room: none is kept for it, and the nodes could hold its task or gang."""
    return not v.group_cache[b].keeping and not v.group_cache[b].hopeless and not v.groups[b].is_framework


cdef bint _may_have_room(View v, i64 b, bint unsure) noexcept nogil:
    """Whether there may be room for a group's next: if it is parked on a fresh node, unless a queue above is unsure of that."""
    cdef i64 m = v.len_total
    cdef bint free, kept
    if not v.group_cache[b].parked or unsure:
        return True
    shape = v.groups[b].shape_row
    if v.counts[FREED] > FEW_NODES:
        free, kept = (
            True,
            v.group_cache[b].keeping
            or v.queues[v.groups[b].leaf].guarded
            or (v.times[NOW] + v.group_cache[b].lasts <= v.times[LAST_START]),
        )
        for r in range(m):
            free &= v.demand[shape * m + r] <= v.most[r]
            kept &= v.demand[shape * m + r] <= v.most_kept[r]
        return free or kept
    for k in range(v.counts[FREED]):
        n = v.node_cache[k].freed
        if holds_task(v, n, shape) or may_enter(v, b, n) or may_use_hold(v, b, n):
            return True
    return False


cdef bint _claims_are_kept(View v) noexcept nogil:
    """Whether anything is kept for a claim."""
    cdef i64 m = v.len_total
    for r in range(m):
        if v.claimed[0 * m + r] > 0:
            return True
    return False


cdef bint _is_within(View v, i64 depth, i64 b, i64 shape) noexcept nogil:
    """Whether a group's next task, or whole gang, is within the limits of all queues on the path, and not idle_nonlendable from it."""
    cdef i64 m = v.len_total
    resources = m
    if v.counts[OVER_LIMIT_PASS] and not v.groups[b].revocable:
        return False
    if v.groups[b].revocable or v.queues[0].has_nonlendable or _claims_are_kept(v):
        return over_limits(v, b) == NOT_REACHED
    if v.caps[depth * v.cols_caps + resources] == 0 and not is_started(v, b):
        return False
    if v.groups[b].gang > 0:
        count = tasks_left(v, b)
        if count > v.caps[depth * v.cols_caps + (resources + 1)]:
            return False
        for r in range(resources):
            if (
                v.demand[shape * m + r] > 0 and v.demand[shape * m + r] > floor_div(v.caps[depth * v.cols_caps + r], count)
            ):  # a product might be too large
                return False
    return True


cdef void _consider(View v, i64 depth, i64 child, i64 b) noexcept nogil:
    """A queue offers a group: its key is known now, and if it is the best so far it is kept."""
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
