"""One scheduling cycle: serve the next pending group until none can be served.

A cycle takes room in the tables themselves, so everything that it reads is consistent. It records what it placed in the
`planned_*` arrays and undoes all of it at the end: the caller sees unchanged tables. The cycle also learns which groups
fit on no node. That holds once its placements have happened, and :func:`settle` keeps it then.

Within a cycle room only shrinks and use only grows, so a group that was stopped once stays out. Under hdrf
(:mod:`fairlead.policies.tree`) two things can still change keys:

- children that can still be served count as if all had the smallest of their shares, others count as they are;
- saturated resources do not count. When one saturates, all keys are computed again, so every pending group is tried in
  turn.

A **thorough** cycle also finds the reason for each group that was not served: it tries all of them at its end.
"""


cdef Plan plan_cycle(View v, bint thorough, i64 most, double now) noexcept nogil:
    """Decide the next step: what to place, or which reservation to make or drop before anything is placed.

    Room is reserved for a group in its turn: the cycle ends there, and if it placed anything before that, the next begins there.
    Where none can be reserved, the group is skipped and the cycle goes on.

    Parameters
    ----------
    v : View
        Unchanged afterwards, but its order is brought up to date, unless a single task waits and has room.
    thorough : bool
        Try all pending groups, and record in the cache why each was not served (see `stop`). Nothing is reserved.
    most : int
        At most this many tasks are placed; a gang may exceed it.
    now : float
        Seconds; infinite if unknown; then no task is assumed to end.

    Returns
    -------
    what : int
        SERVE, KEEP or DROP.
    count : int
        Used length of the `planned_*` arrays: placements, or nodes to reserve.
    about : int
        Row of the job that gets the reservation; the hold whose reservation to drop; NONE.
    more : bool
        True if there is more to decide at once.
    start : float
        Start of the reservation, seconds.
    slips : int
        How often that start has slipped.
    number : int
        The reservation's number among those of its group.
    passed : int
        Number of job rows in `passed_list`: no room can be kept for these, before anything else is done.
    """
    cdef bint promises
    if v.counts[BY_EASY] and not thorough:
        return plan_by_easy(v, most, now)
    v.counts[NEWS] += now != v.times[NOW]
    v.times[NOW], v.counts[OFFERED], v.counts[PASSED] = now, 0, 0
    promises = not thorough and now < INFINITY and v.times[IDLE_BUDGET] > 0.0
    plan = Plan(SERVE, 0, NONE, False, now, 0, NONE, 0)
    if not thorough and v.counts[HOLDS] == 0 and _decide_without_order(v, &plan):
        return plan
    _begin(v)
    v.counts[RESERVES] = 1 if promises else 0
    if promises:
        count_promises(v)
    if not thorough and v.counts[HOLDS] > 0:
        plan = review(v, now)
    if plan.what == SERVE:
        for k in range(v.queues[0].listed if promises and v.counts[PROMISES] < MAX_RESERVATIONS else 0):
            ask_oldest(v, v.queues[k + 1].line)
        placed, more = _serve(v, thorough, most, &plan)
        if plan.what == SERVE:
            plan.count, plan.more = placed, more
    v.counts[RESERVES], plan.passed = 0, v.counts[PASSED]
    _undo_cycle(v, plan.count if plan.what == SERVE else 0)  # the search may have listed groups that it skipped
    return plan


cdef bint _decide_without_order(View v, Plan *plan) noexcept nogil:
    """Decide if nobody waits, or a single task that has room; False, and nothing is decided, otherwise."""
    v.counts[CYCLE] += 2
    v.counts[OUT] = v.counts[STOPS] = 0
    plan.count = v.queues[0].waits == 1 and _place_alone(v, v.queues[0].who_waits)
    return plan.count == v.queues[0].waits


cdef bint _place_alone(View v, i64 b) noexcept nogil:
    """Place the only task of a group, without taking its room; False if it has none, or more tasks wait."""
    job, shape = v.groups[b].head, v.groups[b].shape_row
    if v.groups[b].is_framework or job != v.groups[b].tail or startable(v, job) != 1 or over_limits(v, b) != NOT_REACHED:
        return False
    n = first_fit(v, shape)
    if n == v.counts[NODES]:
        return False
    v.planned_job[0], v.planned_index[0], v.planned_begins[0] = job, v.jobs[job].next, v.jobs[job].holding == 0
    v.planned_node[0], v.planned_hold[0], v.planned_until[0] = by_fit(v, shape, n), NONE, INFINITY
    return True


cdef (i64, bint) plan_last_cycle(View v, i64 most, double now, bint beyond) noexcept nogil:
    """Serve frameworks that go last and, if `beyond`, revocable jobs above their limits: nobody else can be; see `plan_cycle`.

    The cycle only learns which of these groups fit nowhere, and only if it places nothing.

    Returns
    -------
    count : int
        Used length of the `planned_*` arrays.
    more : bool
        True if there is more to decide at once.
    """
    v.counts[NEWS] += now != v.times[NOW]
    v.times[NOW], v.counts[LAST_PASS], v.counts[RESERVES] = now, 1 if beyond else 2, 0
    _begin(v)
    placed, more = _serve(v, False, most, NULL)
    _undo_cycle(v, placed)
    v.counts[LAST_PASS] = 0
    if placed + v.counts[OFFERED] == 0:
        _park(v)
    return placed, more


cdef void _begin(View v) noexcept nogil:
    v.counts[CYCLE] += 1
    v.counts[OUT] = v.counts[STOPS] = v.counts[OFFERED] = 0
    if v.times[NOW] >= v.times[OFFER_WAKE]:
        wake_frameworks(v)
    if v.counts[HDRF_SOMEWHERE] or v.counts[DIVIDED_SOMEWHERE]:
        for r in range(v.len_counted):
            v.counted[r] = True
        if v.counts[HDRF_SOMEWHERE]:
            if _any_is_strict(v):  # their first group is looked up in the tree
                rebuild(v)
            _leave_out_saturated(v, NONE)
        rebuild(v)
    else:
        refresh(v)
    visit_freed_nodes(v)


cdef (i64, bint) _serve(View v, bint thorough, i64 most, Plan *plan) noexcept nogil:
    """Place tasks and make offers until no group can be served, `most` tasks are placed, the offer arrays are full, or `plan` reserves."""
    cdef i64 m = v.len_total
    cdef bint found, more
    scope = ANY_PENDING if v.counts[HDRF_SOMEWHERE] else SERVABLE
    placed = 0
    b = find_next(v, scope)
    while b != NONE and placed < most and (not v.groups[b].is_framework or v.counts[OFFERED] < v.len_offered_rest):
        why = over_limits(v, b) if scope == ANY_PENDING or v.queues[0].has_nonlendable else NOT_REACHED
        if why == MAX_JOBS and v.groups[b].started > 0 and skip_to_started(v, b):
            b = find_next(v, scope)
            continue
        count = tasks_left(v, b) if v.groups[b].gang > 0 else 1
        if why == NOT_REACHED:
            if v.groups[b].is_framework:
                found = scope == SERVABLE or find_offer(v, b)
            elif scope == SERVABLE and places_singly(v, b):
                found = take_found(v, b, placed)
            else:
                found = find_room(v, b, count, placed)
            if found and v.groups[b].is_framework:
                offer_found(v, b)
            elif found:
                _place(v, b, count, placed)
                placed += count
                if v.group_cache[b].keeping and not thorough and _may_end_a_hold(v, b, placed - count, placed):
                    return placed, True  # with that gone others may have more room than before
            else:
                why = NO_NODE
        if (why == NO_NODE or why == NONLENDABLE) and owes(v, b) and (placed + v.counts[OFFERED] > 0 or reserves(v, b, plan)):
            return placed, True
        if why != NOT_REACHED:
            stop(v, b, why)
            if why == NO_NODE and v.counts[HDRF_SOMEWHERE] and _leave_out_saturated(v, b):
                rebuild(v)
        else:
            if v.groups[b].is_framework:
                list_for_update(v, b)
            elif current_job(v, b) == NONE:
                exclude_group(v, b, EXHAUSTED)
            elif v.planned_begins[placed - count] or v.group_cache[b].number != v.jobs[current_job(v, b)].id:
                wake_if_shorter(v, b)
                set_group(v, b)
            climb(v, v.groups[b].leaf)
        b = find_next(v, scope)
    more = b != NONE
    if thorough and scope != ANY_PENDING:
        _try_the_rest(v)
    return placed, more


cdef bint _may_end_a_hold(View v, i64 b, i64 first, i64 end) noexcept nogil:
    """Return True if tasks of a group, recorded from `first` to before `end`, are the last of a job, are claims, or use a hold."""
    if current_job(v, b) != v.planned_job[first] or served_tasks(v, b) > 0:
        return True
    for k in range(first, end):
        if v.planned_hold[k] != NONE:
            return True
    return False


cdef void _try_the_rest(View v) noexcept nogil:
    """Go through all groups that were not served, in serving order, and record what stops each."""
    v.counts[STOPS] = 0
    for k in range(v.counts[OUT]):
        b = v.group_cache[k].out_list
        if v.group_cache[b].out and v.group_cache[b].stop == NO_NODE:
            v.group_cache[b].out = v.queue_cache[v.groups[b].leaf].shut = False
            if set_group(v, b) or v.queues[v.groups[b].leaf].strict:
                climb(v, v.groups[b].leaf)
    b = find_next(v, ANY_PENDING)
    while b != NONE:
        why = over_limits(v, b)
        if why != MAX_JOBS or v.groups[b].started == 0 or not skip_to_started(v, b):
            stop(v, b, why if why != NOT_REACHED else NO_NODE)
        b = find_next(v, ANY_PENDING)


cdef void _take_share(View v, i64 b, i64 count, i64 jobs) noexcept nogil:
    """Add tasks and jobs of a group (negative: remove them) to its leaf and all queues above; nodes are unchanged."""
    cdef i64 m = v.len_total
    shape, q, turn = v.groups[b].shape_row, v.groups[b].leaf, v.queue_cache[0].last_served + 1
    v.counts[NEWS] += 1
    while q != NONE:
        if count <= 0:
            v.queue_cache[q].last_served = turn_of(v, q)
        elif q != 0 and v.queues[v.queues[q].parent].policy == MESOS:
            v.queue_cache[q].last_served += count
        else:
            v.queue_cache[q].last_served = turn
        for r in range(m):
            v.used[q * m + r] += count * v.demand[shape * m + r]
            if v.groups[b].revocable:
                v.spare[q * m + r] += count * v.demand[shape * m + r]
        v.queues[q].tasks += count
        v.queues[q].jobs += jobs
        q = v.queues[q].parent
    if v.queues[0].has_nonlendable:
        set_idle_nonlendable(v, v.groups[b].leaf)


cdef void _place(View v, i64 b, i64 count, i64 placed) noexcept nogil:
    """Record the placed tasks; their nodes are recorded, and their room is taken, already."""
    job, left, new = current_job(v, b), tasks_left(v, b), not is_started(v, b)
    first = v.jobs[job].next + startable(v, job) - left
    for k in range(count):
        v.planned_job[placed + k], v.planned_index[placed + k], v.planned_begins[placed + k] = job, first + k, 0
    v.planned_begins[placed] = new
    _take_share(v, b, count, new)
    list_for_update(v, b)
    v.group_cache[b].taken += count
    v.group_cache[b].begun += new
    if left == count:
        set_current(v, b, v.jobs[job].after)
    else:
        set_current(v, b, job)
        v.group_cache[b].left = left - count


cdef void _undo_cycle(View v, i64 placed) noexcept nogil:
    """Undo what the cycle took."""
    cache = v.group_cache
    for k in range(v.counts[OFFERED]):
        undo_offer(v, k)
    for k in range(placed):
        job = v.planned_job[k]
        undo_placement(v, v.jobs[job].queue, v.jobs[job].shape_row, k)
    for k in range(v.counts[OUT]):
        b = cache[k].out_list
        if cache[b].taken > 0:
            _take_share(v, b, -cache[b].taken, -cache[b].begun)
            touch_queue(v, v.groups[b].leaf)
            cache[b].taken = cache[b].begun = 0
        cache[b].out = cache[b].listed = False
        if v.queue_cache[v.groups[b].leaf].shut:
            v.queue_cache[v.groups[b].leaf].shut = False
            touch_queue(v, v.groups[b].leaf)
        touch_group(v, b)
    v.counts[CYCLE] += 1  # invalidates the groups' `current` and `left`


cpdef void settle(View v, bint more) noexcept nogil:
    """Keep what the last cycle learned, now that its placements have happened: which groups fit on no node."""
    _park(v)
    if more:
        return
    for k in range(v.counts[FREED]):
        v.node_cache[v.node_cache[k].freed].is_freed = False
    v.counts[FREED] = 0
    left = 0
    for k in range(v.counts[LIMITED]):
        q = v.queue_cache[k].limited_list
        v.queue_cache[q].maybe_stale = v.queue_cache[q].limited == v.counts[CYCLE] - 1
        touch_queue(v, q)
        if v.queue_cache[q].maybe_stale:
            v.queue_cache[left].limited_list = q
            left += 1
        else:
            v.queue_cache[q].limited = NONE
    v.counts[LIMITED] = left


cdef void _park(View v) noexcept nogil:
    """Mark as parked the groups that the last cycle stopped because no node had room; EASY's rule tries all in each cycle."""
    cache = v.group_cache
    for k in range(v.counts[OUT]):
        b = v.group_cache[k].out_list
        if cache[b].stop_cycle == v.counts[CYCLE] - 1 and cache[b].stop == NO_NODE and v.groups[b].is_framework:
            park_framework(v, b)
        elif cache[b].stop_cycle == v.counts[CYCLE] - 1 and cache[b].stop == NO_NODE and not v.counts[BY_EASY]:
            cache[b].parked = True
            touch_group(v, b)
    v.counts[OUT] = 0


cdef bint _is_out(View v, i64 b) noexcept nogil:
    """Return True if a group is not served any more in this cycle."""
    leaf = v.groups[b].leaf
    if v.queues[leaf].strict:
        return v.queue_cache[leaf].shut or v.trees[v.queue_cache[leaf].base + 1].best != b
    return v.group_cache[b].out


cdef bint _leave_out_saturated(View v, i64 stopped) noexcept nogil:
    """Stop counting each resource of which no node has enough for any group that can still be served; True if any was counted.

    `stopped` is a group that was just found to have no room, or NONE.
    """
    cdef i64 m = v.len_total
    news = False
    for r in range(m):
        if v.counted[r]:
            most = 0
            for n in range(v.counts[NODES]):
                if v.nodes[n].up and not v.nodes[n].draining:
                    most = max(most, v.free[n * m + r] - v.held[n * m + r])
            least = INFINITE
            for b in range(v.counts[GROUPS]):
                need = v.demand[v.groups[b].shape_row * m + r]
                if need > 0 and not _is_out(v, b) and current_job(v, b) != NONE:
                    least = min(least, need)
            if least == INFINITE and stopped != NONE and v.demand[v.groups[stopped].shape_row * m + r] > 0:
                least = v.demand[v.groups[stopped].shape_row * m + r]
            if most == 0 or (least < INFINITE and most < least):
                v.counted[r] = False
                news = True
    return news


cdef bint _any_is_strict(View v) noexcept nogil:
    for q in range(v.counts[QUEUES]):
        if v.queues[q].strict:
            return True
    return False


def decide_cycle(View v, bint thorough, i64 most, double now):
    """:func:`plan_cycle`."""
    with nogil:
        found = plan_cycle(v, thorough, most, now)
    return found


def plan_last(View v, i64 most, double now, bint beyond):
    """:func:`plan_last_cycle`."""
    with nogil:
        found = plan_last_cycle(v, most, now, beyond)
    return found
