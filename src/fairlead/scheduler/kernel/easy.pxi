"""EASY's rule in the queues' order: a baseline of the simulator, in place of reservations. A cycle keeps nothing for the next.

The first group in line without room is the **first**. It is expected to start at the earliest moment at which its next task,
or gang, fits, by the forecasts; it has no nodes until then. Another group is served if it has room and either ends by that
moment, or leaves room for the first then. If it does not, the next of its jobs that ends in time is tried.

The forecast of a task is its p90. One that runs longer ends when nine in ten tasks that old have ended.
"""


cdef struct First:
    i64 group  # NONE: all have had room so far
    double start
    i64 wanted  # its tasks
    i64 fitting  # how many of them fit at its start
    i64 *spare  # shape (nodes, resources): room then, for it too
    i64 *fits  # shape (nodes,)


cdef Plan plan_by_easy(View v, i64 most, double now) noexcept nogil:
    """Decide what to place; see `plan_cycle`."""
    cdef First first
    cdef bint found
    mark, placed, b = v.scratches, 0, NONE
    v.times[NOW], first.group = now, NONE
    _begin(v)
    while placed < most and not nobody_can_be_served(v):
        b = find_next(v, IN_LINE if first.group == NONE else SERVABLE)
        if b == NONE:
            break
        if first.group == NONE and not has_room(v, b):
            _expect(v, b, placed, &first)
            stop(v, b, NO_NODE)
            continue
        count = tasks_next(v, b)
        if first.group == NONE or _ends_by(v, current_job(v, b), first.start):
            found = find_room(v, b, count, placed)
        else:
            found = _find_beside(v, b, count, placed, &first)
        if found:
            _place(v, b, count, placed)
            placed += count
            if current_job(v, b) == NONE:
                exclude_group(v, b, EXHAUSTED)
            else:
                set_group(v, b)
            climb(v, v.groups[b].leaf)
        elif not _skip_to_end_by(v, b, first.start):
            stop(v, b, LIMIT)
    _undo_cycle(v, placed)
    release(v, mark)
    return Plan(SERVE, placed, NONE, placed >= most, now, 0, NONE, 0)


cdef bint _ends_by(View v, i64 job, double start) noexcept nogil:
    """Return True if a job's task, started now, is expected to end by the start of the first."""
    ends = v.times[NOW] + p90_duration(v, job)
    return ends <= start and ends < INFINITY


cdef bint _skip_to_end_by(View v, i64 b, double start) noexcept nogil:
    """Move a group on to its next job that is expected to end by the start of the first; False if there is none."""
    job = v.jobs[current_job(v, b)].after
    if v.queues[v.groups[b].leaf].strict:
        return False
    while job != NONE and not _ends_by(v, job, start):
        job = v.jobs[job].after
    if job == NONE:
        return False
    set_current(v, b, job)
    list_for_update(v, b)
    if set_group(v, b):
        climb(v, v.groups[b].leaf)
    return True


cdef bint _find_beside(View v, i64 b, i64 count, i64 placed, First *first) noexcept nogil:
    """Find nodes for tasks of a group that leave room for the first at its start, and take their room; or change nothing."""
    cdef i64 m = v.len_total
    found, n, shape, waits = 0, 0, v.groups[b].shape_row, v.groups[first.group].shape_row
    while found < count and n < v.counts[NODES]:
        fits = _fits_beside(v, n, waits, &first.spare[n * m], shape) if holds_task(v, n, shape) else -1
        if fits >= 0 and first.fitting - first.fits[n] + fits >= first.wanted:
            _take(v, b, n, NONE, placed + found)
            _use_spare(v, n, shape, 1, first)
            found += 1
            if v.shapes[shape].fit == APART:
                n += 1
        else:
            n += 1
    if found == count:
        return True
    for k in range(found):
        _use_spare(v, v.planned_node[placed + k], shape, -1, first)
    give_room_back(v, b, found, placed)
    return False


cdef void _use_spare(View v, i64 n, i64 shape, i64 sign, First *first) noexcept nogil:
    """Take a task's room at the start of the first (sign 1), or give it back (-1)."""
    cdef i64 m = v.len_total
    for r in range(m):
        first.spare[n * m + r] -= sign * v.demand[shape * m + r]
    fits = _fits_beside(v, n, v.groups[first.group].shape_row, &first.spare[n * m], NONE)
    first.fitting += fits - first.fits[n]
    first.fits[n] = fits


cdef i64 _fits_beside(View v, i64 n, i64 shape, i64 *room, i64 beside) noexcept nogil:
    """Return how many tasks of a shape fit into room of a node, beside a task of another shape (NONE: alone)."""
    cdef i64 m = v.len_total
    most = capacity_for(v, n, shape)
    for r in range(m if most > 0 else 0):
        if v.demand[shape * m + r] > 0:
            left = room[r] - (v.demand[beside * m + r] if beside != NONE else 0)
            most = min(most, max(0, left) // v.demand[shape * m + r])
    return most


cdef void _expect(View v, i64 b, i64 placed, First *first) noexcept nogil:
    """Make a group the first: find its expected start, and the room then."""
    cdef i64 m = v.len_total
    count, nodes = v.queues[0].tasks + placed, v.counts[NODES]
    ends = <Ranked *>scratch(v, count * sizeof(Ranked))
    shapes = integers(v, count)
    first.group, first.wanted, first.fitting, first.start = b, tasks_next(v, b), 0, v.times[NOW]
    first.spare, first.fits = integers(v, nodes * m), integers(v, nodes)
    count = 0
    for n in range(nodes):
        t = v.nodes[n].task
        while t != NONE:
            ends[count].key, ends[count].place, ends[count].row = _forecast(v, t), count, n
            shapes[count] = v.jobs[v.tasks[t].job].shape_row
            count, t = count + 1, v.tasks[t].after
        memcpy(&first.spare[n * m], &v.free[n * m], m * sizeof(i64))
        first.fits[n] = _fits_beside(v, n, v.groups[b].shape_row, &first.spare[n * m], NONE)
        first.fitting += first.fits[n]
    for k in range(placed):
        ends[count].key, ends[count].place = v.times[NOW] + p90_duration(v, v.planned_job[k]), count
        ends[count].row, shapes[count] = v.planned_node[k], v.jobs[v.planned_job[k]].shape_row
        count += 1
    qsort(ends, count, sizeof(Ranked), compare_ranked)
    for k in range(count):
        if first.fitting >= first.wanted and ends[k].key > first.start:
            break
        first.start = ends[k].key
        _use_spare(v, ends[k].row, shapes[ends[k].place], -1, first)


cdef double _forecast(View v, i64 t) noexcept nogil:
    """Return when a running task is expected to end."""
    j, now = v.tasks[t].job, v.times[NOW]
    began = v.tasks[t].started_at if v.tasks[t].status == RUNNING else now
    ends = began + p90_duration(v, j)
    if ends > now:
        return ends
    tails, age = tails_of(v, j), now - began
    return max(now, began + min(v.jobs[j].time_limit, duration(tails.of, tails.longest, age, 1.0 / P90_ONE_IN, INFINITY)))
