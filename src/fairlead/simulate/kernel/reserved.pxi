"""Conservative backfilling (Mu'alem and Feitelson 2001): each unit has a reservation from its submission on.

That is the earliest start from which it fits until its time limit, beside all that runs and all other reservations. Who
reserves later delays nobody. When a task ends before its limit, the room until then is free, and all reservations are moved
up once, in the order of arrival: each is made again beside the others, which is never later.

If nodes count in slots, a reservation is of slots, and nodes are chosen at the start. Else it is of nodes: on each, the unit
fits throughout, and the first that have room are taken.
"""


cdef void reserve(Truth truth, Line line, i64 j, i64 index, double now) noexcept nogil:
    """Reserve the earliest start of a unit; none if it never fits by the time limits, which may be infinite."""
    begin, lasts = INFINITY, _limit(truth, line, j, index)
    if line.numbers[USED] + 2 >= line.len_steps:
        line.numbers[FULL] = 1
    else:
        begin = _earliest(line, j, lasts, now)
    unit, count = truth.task[j] + index, tasks_of_unit(line, j)
    set_least(line, unit, min(NEVER, begin))
    if begin < INFINITY:
        memcpy(&line.pinned[unit], line.node, count * sizeof(i64))
        occupy(line, line.shape[j], count, line.node, begin, begin + lasts, 1)


cdef void move_up(Truth truth, Line line, double now) noexcept nogil:
    """Make all reservations again, in the order of arrival."""
    u = first_within(line, 0, line.len_pinned, NEVER)
    while u != NONE:
        begin, j = line.least[line.len_least // 2 + u], _job_of(truth, line, u)
        if begin > now:
            if begin < NEVER:
                ends = begin + _limit(truth, line, j, u - truth.task[j])
                occupy(line, line.shape[j], tasks_of_unit(line, j), &line.pinned[u], begin, ends, -1)
            reserve(truth, line, j, u - truth.task[j], now)
        u = first_within(line, u + 1, line.len_pinned, NEVER)


cdef void start_reserved(Truth truth, Runs runs, Line line, double now) noexcept nogil:
    """Start the units whose reservations start."""
    over = _step_at(line, now)
    if over > line.numbers[USED] // 8:
        _remove_steps(line, 0, over)
    u = first_within(line, 0, line.len_pinned, now)
    while u != NONE:
        j = _job_of(truth, line, u)
        if line.numbers[SLOTS]:
            place_unit(line, j, False)
        else:
            memcpy(line.node, &line.pinned[u], tasks_of_unit(line, j) * sizeof(i64))
            for k in range(tasks_of_unit(line, j)):
                _take(line, j, line.node[k], 1, False)
        start_unit(truth, runs, line, j, u - truth.task[j], now)
        set_least(line, u, INFINITY)
        u = first_within(line, u + 1, line.len_pinned, now)


cdef i64 _job_of(Truth truth, Line line, i64 task) noexcept nogil:
    """Return the job of a task."""
    low, high = 0, line.len_tasks - 1
    while low < high:
        middle = (low + high + 1) // 2
        if truth.task[middle] <= task:
            low = middle
        else:
            high = middle - 1
    return low


cdef double _earliest(Line line, i64 j, double lasts, double now) noexcept nogil:
    """Return the earliest start from which a unit fits until its time limit, and set its nodes; INFINITY."""
    wide, count, mark, found = line.cols_free, tasks_of_unit(line, j), line.scratches, INFINITY
    low = integers(line, wide)
    first = _step_at(line, now)
    while first < line.numbers[USED]:
        begin = max(now, line.steps[first])
        memcpy(low, &line.free[first * wide], wide * sizeof(i64))
        k, fitting = first + 1, _fitting(line, j, low, count)
        while fitting == count and k < line.numbers[USED] and line.steps[k] < begin + lasts:
            if _lower(low, &line.free[k * wide], wide):
                fitting = _fitting(line, j, low, count)
            k += 1
        if fitting == count:
            found = begin
            break
        # On one node, nothing that begins before the step without room fits.
        first = k if wide == line.cols_room else first + 1
    release(line, mark)
    return found


cdef bint _lower(i64 *low, i64 *other, i64 wide) noexcept nogil:
    """Set each number to the lower of two; True if any fell."""
    cdef bint fell
    fell = False
    for k in range(wide):
        if other[k] < low[k]:
            low[k], fell = other[k], True
    return fell


cdef i64 _fitting(Line line, i64 j, i64 *room, i64 count) noexcept nogil:
    """Return how many tasks of a job fit into a room, at most `count`, and set their nodes."""
    found = 0
    for n in range(line.cols_free // line.cols_room):
        here = count - found
        if line.numbers[SLOTS]:
            here = min(here, room[0])
        else:
            here = min(here, _how_many(line, line.shape[j], n, &room[n * line.cols_room], NONE))
        for _ in range(here):
            line.node[found] = n
            found += 1
        if found == count:
            break
    return found


cdef void occupy(Line line, i64 shape, i64 count, i64 *node, double begin, double end, i64 sign) noexcept nogil:
    """Take room for tasks on nodes from a time to before another (sign 1), or give it back (-1)."""
    cdef i64 m = line.cols_room, wide = line.cols_free
    first, last = _cut_at(line, begin), _cut_at(line, end)
    for k in range(first, last):
        if line.numbers[SLOTS]:
            line.free[k] -= sign * count
            continue
        for i in range(count):
            for r in range(m):
                line.free[k * wide + node[i] * m + r] -= sign * line.need[shape * m + r]
    _merge_at(line, last)
    _merge_at(line, first)


cdef i64 _step_at(Line line, double at) noexcept nogil:
    """Return the last step that begins at a time or before."""
    low, high = 0, line.numbers[USED] - 1
    while low < high:
        middle = (low + high + 1) // 2
        if line.steps[middle] <= at:
            low = middle
        else:
            high = middle - 1
    return low


cdef i64 _cut_at(Line line, double at) noexcept nogil:
    """Return the step that begins at a time, cut from the one before if needed; the number of steps for INFINITY."""
    numbers, wide = line.numbers, line.cols_free
    if at == INFINITY:
        return numbers[USED]
    k = _step_at(line, at)
    if line.steps[k] == at:
        return k
    memmove(&line.steps[k + 2], &line.steps[k + 1], (numbers[USED] - k - 1) * sizeof(double))
    memmove(&line.free[(k + 1) * wide], &line.free[k * wide], (numbers[USED] - k) * wide * sizeof(i64))
    line.steps[k + 1] = at
    numbers[USED] += 1
    return k + 1


cdef void _merge_at(Line line, i64 k) noexcept nogil:
    """Merge a step with the one before if both leave the same."""
    wide = line.cols_free
    if 0 < k < line.numbers[USED]:
        for i in range(wide):
            if line.free[k * wide + i] != line.free[(k - 1) * wide + i]:
                return
        _remove_steps(line, k, 1)


cdef void _remove_steps(Line line, i64 first, i64 count) noexcept nogil:
    wide, left = line.cols_free, line.numbers[USED] - first - count
    memmove(&line.steps[first], &line.steps[first + count], left * sizeof(double))
    memmove(&line.free[first * wide], &line.free[(first + count) * wide], left * wide * sizeof(i64))
    line.numbers[USED] -= count
