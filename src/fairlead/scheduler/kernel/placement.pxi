"""Placement of a group's next task, or whole gang, into the `planned_*` arrays.

Room is tried in this order:

1. the group's own holds, of a reservation only if nothing is running that it counts on; it ends with that. A gang uses those of one;
2. room open to everybody, by first fit;
3. what its other reservations keep. They stay (`hold_to_use`): room that others give back must not end what is half kept;
4. room held for others from a later start on. A task may enter if it ends in time, or if its group has a claim for a
   guarantee against the holders: their tasks would be preempted for it.
"""


cdef bint find_room(View v, i64 b, i64 count, i64 placed) noexcept nogil:
    """Find nodes for `count` tasks of a group and take their room, or change nothing."""
    if v.groups[b].gang == 0 or not v.group_cache[b].keeping:
        return _find_room(v, b, count, placed, own_hold(v, b, True) if v.group_cache[b].keeping else NONE)
    own = next_promise_of(v, b, NONE, True)
    while own != NONE and not _find_room(v, b, count, placed, own):
        own = next_promise_of(v, b, own, True)
    return own != NONE or _find_room(v, b, count, placed, NONE)


cdef bint _find_room(View v, i64 b, i64 count, i64 placed, i64 own) noexcept nogil:
    """Find room as :func:`find_room`, first by hold `own` (NONE: none) and those of its promise after it.

    Room only shrinks meanwhile, so each hold is passed once.
    """
    cdef bint apart, is_open
    shape = v.groups[b].shape_row
    before, found, h, apart = v.shape_cache[shape], 0, 0, v.shapes[shape].fit == APART
    other, last = next_promise_of(v, b, NONE, False) if v.group_cache[b].keeping else NONE, next_promise(v, own) if own != NONE else 0
    while found < count:
        while own != NONE and not _may_use(v, b, own, placed, found, apart):
            own = own + 1 if own + 1 < last else NONE
        n, mine = first_fit(v, shape) if own == NONE else v.holds[own].node, own
        is_open = own == NONE and n < v.counts[NODES]
        if is_open:
            n = by_fit(v, shape, n)
            if apart:
                v.shape_cache[shape].cursor = _next_node(v, shape, n + 1, v.shape_cache[shape].kinds)
        elif own == NONE:
            while other != NONE and not _may_use(v, b, other, placed, found, apart):
                other = next_own_hold(v, b, other, False)
            mine = other
            h = hold_to_enter(v, b, h) if mine == NONE else h
            if h == v.counts[HOLDS]:
                v.shape_cache[shape] = before
                give_room_back(v, b, found, placed)
                return False
            n = v.holds[h if mine == NONE else mine].node
        if apart and mine == NONE and is_planned(v, n, placed, found):
            h += 0 if is_open else 1
            continue
        if mine != NONE:
            _keep(v, mine, -1)
        _take(v, b, n, mine, placed + found)
        found += 1
    if apart:
        v.shape_cache[shape] = before
    return True


cdef bint _may_use(View v, i64 b, i64 h, i64 placed, i64 count, bint apart) noexcept nogil:
    """Return True if hold h of a group has room for a task, and if these go apart, none of `count` recorded from `placed` on is there."""
    return has_own_room(v, b, h) and not (apart and is_planned(v, v.holds[h].node, placed, count))


cdef bint is_planned(View v, i64 n, i64 first, i64 count) noexcept nogil:
    """Return True if a node has one of the `count` tasks recorded from `first` on."""
    for at in range(first, first + count):
        if v.planned_node[at] == n:
            return True
    return False


cdef void _keep(View v, i64 h, i64 tasks) noexcept nogil:
    """Grow a hold by a number of tasks (negative: shrink it)."""
    cdef i64 m = v.len_total
    shape = v.groups[v.holds[h].group].shape_row
    v.holds[h].tasks += tasks
    count_claim(v, h, tasks)
    for r in range(m):
        v.amount[h * m + r] += tasks * v.demand[shape * m + r]
    set_held(v, v.holds[h].node)


cdef i64 hold_to_enter(View v, i64 b, i64 h) noexcept nogil:
    """Return the first hold from h on whose node a task of a group may enter, where no room is open; the number of holds if none."""
    cdef double last = -INFINITY
    for k in range(v.counts[HOLDS]):
        last = max(last, v.holds[k].start)
    if ended_by(v, b) > last and not v.queues[v.groups[b].leaf].guarded:
        return v.counts[HOLDS]
    while h < v.counts[HOLDS] and not may_enter(v, b, v.holds[h].node):
        h += 1
    return h


cpdef bint may_enter(View v, i64 b, i64 n) noexcept nogil:
    """Return True if a task of a group may enter room that a node holds for others.

    Either it ends in time, or its guarantee would preempt what the holders place there. Once a reservation there was late, it
    must do so even if it takes as long as the longest known: else one of many tasks that end in time mostly would delay it each time.
    """
    shape = v.groups[b].shape_row
    if v.nodes[n].hold == NONE or not is_free(v, n, shape):
        return False
    until, late = ended_by(v, b), slips_on(v, n)
    if late > 0 and until < INFINITY:
        job = current_job(v, b)
        until = max(until, v.times[NOW] + min(v.jobs[job].time_limit, longest_known(v, job)))
    if until < INFINITY and late < INFINITE and fits_beside(v, n, shape, until, NONE, NONE):
        return True
    # rule: stays
    return v.queues[v.groups[b].leaf].guarded and fits_beside(v, n, shape, INFINITY, NONE, b)


cdef bint may_use_hold(View v, i64 b, i64 n) noexcept nogil:
    """Return True if a group has room in its own hold on a node."""
    h = v.nodes[n].hold if v.group_cache[b].keeping else NONE
    while h != NONE and (v.holds[h].group != b or not has_own_room(v, b, h)):
        h = v.holds[h].after
    return h != NONE


cdef bint is_free(View v, i64 n, i64 shape) noexcept nogil:
    """Return True if a node has a task's demand free, ignoring holds."""
    cdef i64 m = v.len_total
    for r in range(m):
        if v.demand[shape * m + r] > v.free[n * m + r]:
            return False
    return True


cdef double ended_by(View v, i64 b) noexcept nogil:
    """Return when a group's task is expected to have ended if placed beside holds now; inf if unknown."""
    job = current_job(v, b)
    return v.times[NOW] + lasts_at_most(v, job, lasts(v, b, job))


cdef void _take(View v, i64 b, i64 n, i64 h, i64 at) noexcept nogil:
    """Take room on a node for a group's task, by hold h or NONE, and record it."""
    v.planned_node[at], v.planned_hold[at], v.planned_until[at] = n, h, INFINITY
    if v.nodes[n].hold != NONE:
        v.planned_until[at] = ended_by(v, b)
    take_room(v, n, v.groups[b].leaf, v.groups[b].shape_row, v.planned_until[at], 1)


cdef void take_room(View v, i64 n, i64 q, i64 shape, double until, i64 sign) noexcept nogil:
    """Take a task's room on a node (sign 1), or give it back (-1); `until` is when the task is assumed to have ended."""
    cdef i64 m = v.len_total
    v.counts[FITTING] = v.counts[OPEN] = v.counts[SCANNED] = 0
    for r in range(m):
        v.free[n * m + r] -= sign * v.demand[shape * m + r]
    if v.nodes[n].hold != NONE:
        give_back_at(v, n, q, shape, until, sign)


cdef void undo_placement(View v, i64 q, i64 shape, i64 at) noexcept nogil:
    """Undo one recorded task of a leaf."""
    n, h = v.planned_node[at], v.planned_hold[at]
    take_room(v, n, q, shape, v.planned_until[at], -1)
    if h != NONE:
        _keep(v, h, 1)
    raise_bounds(v, n)


cdef void give_room_back(View v, i64 b, i64 count, i64 placed) noexcept nogil:
    """Undo :func:`find_room`; the caller restores the shape's cursor."""
    for k in range(count):
        undo_placement(v, v.groups[b].leaf, v.groups[b].shape_row, placed + k)


cdef bint has_room(View v, i64 b) noexcept nogil:
    """Return True if a group's next task, or whole gang, has room; a single task can then be taken by :func:`take_found`.

    For a framework: True if there is something to offer.
    """
    if v.groups[b].is_framework:
        return find_offer(v, b)
    if places_singly(v, b):
        if first_fit(v, v.groups[b].shape_row) < v.counts[NODES]:
            return True
        h = hold_to_enter(v, b, 0)
        v.group_cache[b].entered = v.holds[h].node if h < v.counts[HOLDS] else NONE
        return h < v.counts[HOLDS]
    count, end = tasks_left(v, b) if v.groups[b].gang > 0 else 1, v.len_planned_node
    shape = v.groups[b].shape_row
    before = v.shape_cache[shape]
    if not find_room(v, b, count, end - count):
        return False
    give_room_back(v, b, count, end - count)
    v.shape_cache[shape] = before
    return True


cdef bint places_singly(View v, i64 b) noexcept nogil:
    """Return True if a group's tasks start one by one and it has no holds."""
    return v.groups[b].gang == 0 and not v.group_cache[b].keeping


cdef bint take_found(View v, i64 b, i64 placed) noexcept nogil:
    """Take the room for a single task that :func:`has_room` found: at the shape's cursor, or a held node that it may enter."""
    shape = v.groups[b].shape_row
    n = v.shape_cache[shape].cursor
    n = by_fit(v, shape, n) if n < v.counts[NODES] else v.group_cache[b].entered
    if n == NONE:
        return False
    _take(v, b, n, NONE, placed)
    return True
