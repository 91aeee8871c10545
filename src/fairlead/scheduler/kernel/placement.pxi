"""Room for a group's next task, or whole gang: where it is kept for it, then where anybody may go, and at last where it is kept
for others until later: for tasks that are known to end in time, and for those who have a claim for a guarantee to what whoever
has that reservation would take, for then that would be revoked for them again. Written to `chosen`.
"""


cdef bint find_room(View v, i64 b, i64 count, i64 placed) noexcept nogil:
    """Find nodes for all of so many tasks of a group and take their room, or change nothing."""
    shape = v.groups[b].shape_row
    cursor, cycle = v.shape_cache[shape].cursor, v.shape_cache[shape].cycle
    found = _use_holds(v, b, count, placed) if v.group_cache[b].keeping else 0
    h = 0
    while found < count:
        n = first_fit(v, shape)
        if n == v.counts[NODES]:
            h = hold_to_enter(v, b, h)
            if h == v.counts[HOLDS]:
                v.shape_cache[shape].cursor, v.shape_cache[shape].cycle = cursor, cycle
                give_room_back(v, b, found, placed)
                return False
            n = v.holds[h].node
        else:
            n = by_fit(v, shape, n)
        _take(v, b, n, NONE, placed + found)
        found += 1
    return True


cdef i64 _use_holds(View v, i64 b, i64 count, i64 placed) noexcept nogil:
    """Place tasks where room is kept for them: how many. What is used is kept no longer, task by task."""
    found = 0
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == b:
            n = v.holds[h].node
            while (
                v.holds[h].tasks > 0
                and found < count
                and fits_beside(v, n, v.groups[b].shape_row, INFINITY, v.holds[h].rank)
            ):
                used = NONE if is_beside(v, h, n, v.queues[v.groups[b].leaf].tasks + 1, v.times[NOW]) else h
                if used != NONE:
                    _keep(v, h, -1)
                _take(v, b, n, used, placed + found)
                found += 1
    return found


cdef void _keep(View v, i64 h, i64 tasks) noexcept nogil:
    """Have a hold keep room for so many tasks more, or less."""
    cdef i64 m = v.len_total
    shape = v.groups[v.holds[h].group].shape_row
    v.holds[h].tasks += tasks
    count_claim(v, h, tasks)
    for r in range(m):
        v.amount[h * m + r] += tasks * v.demand[shape * m + r]
    set_held(v, v.holds[h].node)


cdef i64 hold_to_enter(View v, i64 b, i64 h) noexcept nogil:
    """The first hold from h on whose node a task of a group may enter; the number of holds, if there is none."""
    while h < v.counts[HOLDS] and not may_enter(v, b, v.holds[h].node):
        h += 1
    return h


cpdef bint may_enter(View v, i64 b, i64 n) noexcept nogil:
    """Whether a task of a group may enter room that is kept on a node for others.

    For it will have ended before, or would have revoked for its guarantee what they place there.
    """
    shape = v.groups[b].shape_row
    if v.nodes[n].hold == NONE or not is_free(v, n, shape):
        return False
    until = _ended_by(v, b, n)
    if until < INFINITY and fits_beside(v, n, shape, until, ALL):
        return True
    return v.queues[v.groups[b].leaf].guarded and fits_beside(v, n, shape, INFINITY, _first_to_pass(v, b, n))


cdef i64 _first_to_pass(View v, i64 b, i64 n) noexcept nogil:
    """The lowest rank of the reservations on a node whose owners a group has a claim to; all after that are planned anew."""
    found, h = ALL, v.nodes[n].hold
    while h != NONE:
        other = v.holds[h].group
        if v.holds[h].kind == RESERVATION and other != b and claims_from(v, b, v.groups[other].leaf):
            found = min(found, v.holds[h].rank)
        h = v.holds[h].after
    h = v.nodes[n].hold
    while h != NONE:  # who may not be passed is not, though it comes later
        if v.holds[h].rank >= found and not claims_from(v, b, v.groups[v.holds[h].group].leaf):
            return ALL
        if v.holds[h].rank >= found and claims_from(v, v.holds[h].group, v.groups[b].leaf):
            return ALL
        h = v.holds[h].after
    return found


cdef bint may_use_hold(View v, i64 b, i64 n) noexcept nogil:
    """Whether a task of a group has room where it is kept for it on a node."""
    h = v.nodes[n].hold if v.group_cache[b].keeping else NONE
    while h != NONE and v.holds[h].group != b:
        h = v.holds[h].after
    return h != NONE and fits_beside(v, n, v.groups[b].shape_row, INFINITY, v.holds[h].rank)


cdef bint is_free(View v, i64 n, i64 shape) noexcept nogil:
    """Whether a node has what a task of a shape needs, whoever it is kept for."""
    cdef i64 m = v.len_total
    for r in range(m):
        if v.demand[shape * m + r] > v.free[n * m + r]:
            return False
    return True


cdef double _ended_by(View v, i64 b, i64 n) noexcept nogil:
    """When a task of a group will have ended on a node with holds, if it is placed there now; infinite: not known."""
    job = current_job(v, b)
    return v.times[NOW] + lasts_at_most(v, job, n, lasts(v, b, job))


cdef void _take(View v, i64 b, i64 n, i64 h, i64 at) noexcept nogil:
    """Take room on a node for a group's task, by a hold or NONE, and write it down."""
    v.planned_node[at], v.planned_hold[at], v.planned_until[at] = n, h, INFINITY
    if v.nodes[n].hold != NONE:
        v.planned_until[at] = _ended_by(v, b, n)
    take_room(v, n, v.groups[b].leaf, v.groups[b].shape_row, v.planned_until[at], 1)


cdef void take_room(View v, i64 n, i64 q, i64 shape, double until, i64 sign) noexcept nogil:
    """A task of a leaf that is taken to have ended at a time takes room on a node, or gives it back (-1)."""
    cdef i64 m = v.len_total
    for r in range(m):
        v.free[n * m + r] -= sign * v.demand[shape * m + r]
    if v.nodes[n].hold != NONE:
        give_back_at(v, n, q, shape, until, sign)


cdef void untake(View v, i64 q, i64 shape, i64 at) noexcept nogil:
    """Undo what was written down of a task of a leaf."""
    n, h = v.planned_node[at], v.planned_hold[at]
    take_room(v, n, q, shape, v.planned_until[at], -1)
    if h != NONE:
        _keep(v, h, 1)
    raise_bounds(v, n)


cdef void give_room_back(View v, i64 b, i64 count, i64 placed) noexcept nogil:
    """Undo :func:`find_room`; the shape's cursor is the caller's."""
    for k in range(count):
        untake(v, v.groups[b].leaf, v.groups[b].shape_row, placed + k)


cdef bint has_room(View v, i64 b) noexcept nogil:
    """Whether there is room for a group's next task, or whole gang; for a single task :func:`take_found` can take it then.

    For a framework: whether there is something to offer.
    """
    if v.groups[b].is_framework:
        return find_offer(v, b)
    if is_single(v, b):
        if first_fit(v, v.groups[b].shape_row) < v.counts[NODES]:
            return True
        h = hold_to_enter(v, b, 0)
        if h < v.counts[HOLDS]:
            v.group_cache[b].entered = v.holds[h].node
        return h < v.counts[HOLDS]
    count, end = tasks_left(v, b) if v.groups[b].gang > 0 else 1, v.len_planned_node
    shape = v.groups[b].shape_row
    cursor, cycle = v.shape_cache[shape].cursor, v.shape_cache[shape].cycle
    if not find_room(v, b, count, end - count):
        return False
    give_room_back(v, b, count, end - count)
    v.shape_cache[shape].cursor, v.shape_cache[shape].cycle = cursor, cycle
    return True


cdef bint is_single(View v, i64 b) noexcept nogil:
    """Whether a group's tasks start one by one, and no nodes are kept for them."""
    return v.groups[b].gang == 0 and not v.group_cache[b].keeping


cdef void take_found(View v, i64 b, i64 placed) noexcept nogil:
    """Take the room for a single task that :func:`has_room` found: its shape's cursor stands there, or it may enter a node."""
    shape = v.groups[b].shape_row
    n = v.shape_cache[shape].cursor
    _take(v, b, by_fit(v, shape, n) if n < v.counts[NODES] else v.group_cache[b].entered, NONE, placed)
