"""One scheduling cycle on paper: who is served next, and where, until nobody can be.

A cycle takes room in the tables themselves, so that all it reads is true at once, writes down what it placed, and gives all of it
back at the end: seen from outside nothing has changed. What it learned (which groups have room nowhere) is true once its
placements have happened, and :func:`settle` keeps it then.

Room only shrinks within a cycle and use only grows, so a group that was stopped once stays out of it. Under hdrf
(:mod:`fairlead.policies.tree`) the children that can still be served count as if all had the least of their shares, the others
as they are, and resources that are saturated do not count: when one is, all keys are worked out again, so everybody that waits
is tried in turn. Where the reason of each group is asked for, the cycle is **thorough**: all that could not be served are gone
through at its end.
"""


cdef Plan plan_cycle(
    View v, bint thorough, i64 most, double now, double reserve_after
) noexcept nogil:
    """Decide what is next: what is placed, or what is kept or dropped before anything is.

    Parameters
    ----------
    v : View
        As it was, afterwards, but for the order, which is brought up to date.
    thorough : bool
        Try all that wait, and say of each group in its cache why it was not served on (see `stop`).
    most : int
        Tasks placed, at most; a gang may go over it.
    now, reserve_after : float
        Seconds; now is infinite where that is not known, and nobody is taken to end then. A job that was in line and passed over
        for so long gets nodes kept for it.

    Returns
    -------
    what : int
        SERVE, KEEP or DROP.
    count : int
        Of columns in `chosen`: placements, or nodes to keep with how many tasks each.
    job : int
        The row of the job that was passed over, or that nodes are kept for; the hold that is dropped; NONE.
    more : bool
        Whether there is more to decide at once.
    start : float
        From when on nodes are to be kept, seconds.
    slips : int
        How often that was put off.
    """
    v.times[NOW], v.counts[OFFERED] = now, 0
    h = 0
    while not thorough and h < v.counts[HOLDS]:
        if v.holds[h].kind == RESERVATION and over_limits(v, v.holds[h].group) != NOT_REACHED:
            return Plan(DROP, 0, h, True, now, 0)
        h = next_reservation(v, h)
    _begin(v, thorough)
    line = NONE
    if not thorough and (reserve_after < INFINITY or not nobody_can_be_served(v)):
        line = find_next(v, IN_LINE)
    if not thorough:
        plan = _reserve(v, line, now, reserve_after)
        if plan.what != SERVE:
            _give_back(v, 0)  # the search may have noted on paper whom it skipped
            return plan
    placed, more = _serve(v, thorough, most)
    passed = NONE
    if (
        line != NONE
        and placed + v.counts[OFFERED] > 0
        and isnan(v.groups[line].passed_since)
        and not _was_served(v, line)
        and _is_passed(v, line, placed)
    ):
        passed = v.groups[line].head
    served_kept = _give_back(v, placed)
    return Plan(SERVE, placed, passed, more or served_kept, now, 0)


cdef (i64, bint) plan_over_limit_cycle(View v, i64 most, double now) noexcept nogil:
    """Place revocable jobs above their limits, where nobody else can be served; see `plan`.

    Nothing is learned from it but who of them has room nowhere, and that only where nothing is placed.

    Returns
    -------
    count : int
        Of columns in `chosen`.
    more : bool
        Whether there is more to decide at once.
    """
    v.times[NOW], v.counts[OVER_LIMIT_PASS] = now, 1
    _begin(v, False)
    placed, more = _serve(v, False, most)
    _give_back(v, placed)
    v.counts[OVER_LIMIT_PASS] = 0
    if placed + v.counts[OFFERED] == 0:
        _park(v)
    return placed, more


cdef Plan _reserve(View v, i64 line, double now, double reserve_after) noexcept nogil:
    """Decide whether a reservation is to be made, planned anew or dropped before anybody is served: see `plan`."""
    cdef bint waits
    b = next_to_plan(v, now) if v.counts[HOLDS] > 0 else NONE
    if b != NONE and not has_room(v, b):
        slips = slips_of(v, b, now, reserve_after)
        count, start = plan_anew(v, b, slips, now)
        if count == 0:
            return Plan(DROP, 0, _first_hold(v, b), True, now, 0)
        return Plan(KEEP, count, current_job(v, b), True, start, slips)
    waits = line != NONE and now - in_line_since(v, line, now) >= reserve_after  # not for NaN
    if waits and not has_room(v, line) and is_still_due(v, line, now):
        h = overtaken(v, line)
        if h != NONE:
            return Plan(DROP, 0, h, True, now, 0)
        if how_many(v) < min(MOST, v.counts[NODES]):
            count, start = plan_new(v, line, now)
            if count > 0:
                return Plan(KEEP, count, current_job(v, line), True, start, 0)
    return Plan(SERVE, 0, NONE, False, now, 0)


cdef i64 _first_hold(View v, i64 b) noexcept nogil:
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == b:
            return h
    return NONE


cdef void _begin(View v, bint thorough) noexcept nogil:
    v.counts[CYCLE] += 1
    v.counts[OUT] = v.counts[STOPS] = v.counts[OFFERED] = 0
    if v.times[NOW] >= v.times[OFFER_WAKE]:
        wake_frameworks(v)
    if v.counts[HDRF_SOMEWHERE] or v.counts[DIVIDED_SOMEWHERE]:
        for r in range(v.len_counted):
            v.counted[r] = True
        if v.counts[HDRF_SOMEWHERE]:
            if _any_is_strict(v):  # who is first in them is looked up
                rebuild(v)
            _leave_out_saturated(v, NONE)
        rebuild(v)
    else:
        refresh(v)
    visit_freed_nodes(v)


cdef (i64, bint) _serve(View v, bint thorough, i64 most) noexcept nogil:
    """Place tasks and make offers until nobody can be served, or `most` are placed, or there is no room for offers more."""
    cdef i64 m = v.len_total
    cdef bint found, more
    whom = ANYBODY if v.counts[HDRF_SOMEWHERE] else SERVABLE
    placed = 0
    b = find_next(v, whom)
    while b != NONE and placed < most and (not v.groups[b].is_framework or v.counts[OFFERED] < v.len_offered_rest):
        why = over_limits(v, b) if whom == ANYBODY else NOT_REACHED
        if why == MAX_JOBS and v.groups[b].started > 0 and skip_to_started(v, b):
            b = find_next(v, whom)
            continue
        count = tasks_left(v, b) if v.groups[b].gang > 0 else 1
        if why == NOT_REACHED:
            if v.groups[b].is_framework:
                found = whom == SERVABLE or find_offer(v, b)
            elif whom == SERVABLE and is_single(v, b):
                take_found(v, b, placed)
                found = True
            else:
                found = find_room(v, b, count, placed)
            if found and v.groups[b].is_framework:
                offer_found(v, b)
            elif found:
                _place(v, b, count, placed)
                placed += count
            else:
                why = NO_NODE
        if why != NOT_REACHED:
            stop(v, b, why)
            if why == NO_NODE and v.counts[HDRF_SOMEWHERE] and _leave_out_saturated(v, b):
                rebuild(v)
        else:
            if v.groups[b].is_framework:
                remember(v, b)
            elif current_job(v, b) == NONE:
                take_out(v, b, EXHAUSTED)
            elif v.planned_begins[placed - count] or v.group_cache[b].number != v.jobs[current_job(v, b)].id:
                wake_if_shorter(v, b)
                set_group(v, b)
            climb(v, v.groups[b].leaf)
        b = find_next(v, whom)
    more = b != NONE
    if thorough and whom != ANYBODY:
        _try_the_rest(v)
    return placed, more


cdef void _try_the_rest(View v) noexcept nogil:
    """Go through all that could not be served in the order in which they would be, and write down what stops each."""
    v.counts[STOPS] = 0
    for k in range(v.counts[OUT]):
        b = v.group_cache[k].out_list
        if v.group_cache[b].out and v.group_cache[b].stop == NO_NODE:
            v.group_cache[b].out = v.queue_cache[v.groups[b].leaf].shut = False
            if set_group(v, b) or v.queues[v.groups[b].leaf].strict:
                climb(v, v.groups[b].leaf)
    b = find_next(v, ANYBODY)
    while b != NONE:
        why = over_limits(v, b)
        if why != MAX_JOBS or v.groups[b].started == 0 or not skip_to_started(v, b):
            stop(v, b, why if why != NOT_REACHED else NO_NODE)
        b = find_next(v, ANYBODY)


cdef void _take_share(View v, i64 b, i64 count, i64 jobs) noexcept nogil:
    """So many tasks of a group more, or less, count for its leaf and the queues above it; room is another matter."""
    cdef i64 m = v.len_total
    shape, q, turn = v.groups[b].shape_row, v.groups[b].leaf, v.queue_cache[0].last_served + 1
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
        set_withheld(v, v.groups[b].leaf)


cdef void _place(View v, i64 b, i64 count, i64 placed) noexcept nogil:
    """Write down what was placed; the nodes are written down, and their room is taken, already."""
    job, left, new = current_job(v, b), tasks_left(v, b), not is_started(v, b)
    first = v.jobs[job].next + startable(v, job) - left
    for k in range(count):
        v.planned_job[placed + k], v.planned_index[placed + k], v.planned_begins[placed + k] = job, first + k, 0
    v.planned_begins[placed] = new
    _take_share(v, b, count, new)
    remember(v, b)
    v.group_cache[b].taken += count
    v.group_cache[b].begun += new
    if left == count:
        set_current(v, b, v.jobs[job].after)
    else:
        set_current(v, b, job)
        v.group_cache[b].left = left - count


cdef bint _is_passed(View v, i64 line, i64 placed) noexcept nogil:
    """Whether others were served than queues that go before all the same, which have reservations, and so no place in line."""
    leaf = v.groups[line].leaf
    for k in range(placed):
        job = v.planned_job[k]
        q = v.jobs[job].queue
        if q == leaf or not v.queue_cache[q].keeping or not is_before(v, q, v.jobs[job].shape_row, line):
            return True
    return v.counts[OFFERED] > 0


cdef bint _was_served(View v, i64 b) noexcept nogil:
    """Whether a group has less waiting than when the cycle began."""
    job = current_job(v, b)
    return job != v.groups[b].head or tasks_left(v, b) < startable(v, job)


cdef bint _give_back(View v, i64 placed) noexcept nogil:
    """Undo what the cycle took; whether it served one that nodes are kept for, so that there may be more to decide at once."""
    cdef bint served_kept
    served_kept, cache = False, v.group_cache
    for k in range(v.counts[OFFERED]):
        untake_offer(v, k)
    for k in range(placed):
        job = v.planned_job[k]
        untake(v, v.jobs[job].queue, v.jobs[job].shape_row, k)
    for k in range(v.counts[OUT]):
        b = cache[k].out_list
        if cache[b].taken > 0:
            _take_share(v, b, -cache[b].taken, -cache[b].begun)
            touch_queue(v, v.groups[b].leaf)
            served_kept |= cache[b].keeping
            cache[b].taken = cache[b].begun = 0
        cache[b].out = cache[b].listed = False
        if v.queue_cache[v.groups[b].leaf].shut:
            v.queue_cache[v.groups[b].leaf].shut = False
            touch_queue(v, v.groups[b].leaf)
        touch_group(v, b)
    v.counts[CYCLE] += 1  # what was next in it is so no more
    return served_kept


cpdef void settle(View v, bint more) noexcept nogil:
    """Keep what the last cycle learned, now that what it placed has happened: who has room on no node."""
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
    """Note of the groups that the last cycle stopped for want of room that they have none."""
    cache = v.group_cache
    for k in range(v.counts[OUT]):
        b = v.group_cache[k].out_list
        if cache[b].stop_cycle == v.counts[CYCLE] - 1 and cache[b].stop == NO_NODE and v.groups[b].is_framework:
            park_framework(v, b)
        elif cache[b].stop_cycle == v.counts[CYCLE] - 1 and cache[b].stop == NO_NODE:
            cache[b].parked = True
            touch_group(v, b)
    v.counts[OUT] = 0


cdef bint _is_out(View v, i64 b) noexcept nogil:
    """Whether a group is not served any more in this cycle."""
    leaf = v.groups[b].leaf
    if v.queues[leaf].strict:
        return v.queue_cache[leaf].shut or v.best[v.queue_cache[leaf].base + 1] != b
    return v.group_cache[b].out


cdef bint _leave_out_saturated(View v, i64 stopped) noexcept nogil:
    """Count no resource of which no node has what anybody needs who can still be served; whether that is news.

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
            least = NOBODY
            for b in range(v.counts[GROUPS]):
                need = v.demand[v.groups[b].shape_row * m + r]
                if need > 0 and not _is_out(v, b) and current_job(v, b) != NONE:
                    least = min(least, need)
            if least == NOBODY and stopped != NONE and v.demand[v.groups[stopped].shape_row * m + r] > 0:
                least = v.demand[v.groups[stopped].shape_row * m + r]
            if most == 0 or (least < NOBODY and most < least):
                v.counted[r] = False
                news = True
    return news


cdef bint _any_is_strict(View v) noexcept nogil:
    for q in range(v.counts[QUEUES]):
        if v.queues[q].strict:
            return True
    return False


def plan(View v, bint thorough, i64 most, double now, double reserve_after):
    """:func:`plan_cycle`."""
    with nogil:
        found = plan_cycle(v, thorough, most, now, reserve_after)
    return found


def plan_over_limit(View v, i64 most, double now):
    """:func:`plan_over_limit_cycle`."""
    with nogil:
        found = plan_over_limit_cycle(v, most, now)
    return found
