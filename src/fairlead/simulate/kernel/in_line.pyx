"""The baselines of the literature with all jobs in one line: strict order, EASY and conservative backfilling.

A **unit** is what starts at once: a whole gang, or one task of another job. It ends by its time limit, which for a gang is
the longest of its tasks'. At each moment tasks end, then jobs arrive, then units start, by one of three rules:

- **strict**: nobody bypasses the first of the line.
- **EASY** (Lifka 1995; Mu'alem and Feitelson 2001): the first that does not fit has a reservation for the earliest moment
  at which all of it fits, by the time limits of what runs. It has no nodes until then. In the order of the line, another
  unit starts if it fits now and either ends by that moment, or leaves room for the first there: on each node as many of
  the first's tasks fit at that moment as the room allows, and all nodes together must hold enough. If one cannot start,
  no other of its shape and size is tried in the same moment, except those that end in time. The reservation is made again
  when a task ends before its limit.
- **conservative**: see `reserved.pxi`.

Each task is placed on the first node that accepts it. With one task per node, or tasks that are all alike, that is the
literature's count of processors, whatever nodes they are on.

It drives the same simulated machines as the scheduler, and shares none of its code.
"""

from in_line_constants cimport *
from libc.math cimport INFINITY, nextafter
from libc.string cimport memcpy, memmove

from fairlead.engines.kernel.simulated cimport Runs, Truth, end_into, next_end, start, submit
from fairlead.scheduler.kernel.scheduling cimport Arrays, address_of, flag, floats, i64, integers, release

from fairlead.simulate.kernel.line import LINE

include "in_line_types.pxi"
include "reserved.pxi"


def advance(Truth truth, Runs runs, Line line, double until, i64 rule):
    """Advance to the last moment at or before `until`; True if anything follows."""
    cdef bint more
    with nogil:
        more = _advance(truth, runs, line, until, rule)
    return more


cdef bint _advance(Truth truth, Runs runs, Line line, double until, i64 rule) noexcept nogil:
    numbers = line.numbers
    while not numbers[FULL]:
        came = numbers[CAME]
        now = min(line.submit[came] if came < line.len_submit else INFINITY, next_end(truth, runs))
        if rule == CONSERVATIVE:
            now = min(now, line.least[1])
        line.at[NEXT] = now
        if now >= NEVER:
            return False
        if now > until:
            return True
        _count_idle(truth, line, max(0.0, now - max(line.at[NOW], line.at[SINCE])))
        line.at[NOW] = now
        ended = end_into(truth, runs, now, line.ends, line.cols_ends)
        early = _give_back(truth, runs, line, ended, now, rule)
        if rule == CONSERVATIVE and early:
            move_up(truth, line, now)
        while numbers[CAME] < line.len_submit and line.submit[numbers[CAME]] <= now:
            _append(truth, line, numbers[CAME], now, rule)
        if rule == CONSERVATIVE:
            start_reserved(truth, runs, line, now)
        else:
            numbers[PROMISED] = numbers[PROMISED] and not early
            _start_first(truth, runs, line, now)
            if rule == EASY and _first(line) != NONE:
                if not numbers[PROMISED]:
                    _promise(truth, runs, line)
                _start_others(truth, runs, line, now)
        numbers[STEPS] += 1
    return True


cdef bint _give_back(Truth truth, Runs runs, Line line, i64 ended, double now, i64 rule) noexcept nogil:
    """Give back the room of the tasks that just ended; True if any ended before its limit."""
    cdef bint early
    early = False
    for k in range(ended):
        run = runs.heap[truth.size[RUNNING] + k]  # free rows follow those in use
        j = runs.job[run]
        _take(line, j, runs.node[run], -1, False)
        limit = _limit(truth, line, j, runs.index[run])
        if not line.numbers[EXACT] and runs.since[run] + limit > now:
            early = True
            if rule == CONSERVATIVE:
                line.node[0] = runs.node[run]
                occupy(line, line.shape[j], 1, line.node, now, runs.since[run] + limit, -1)
    return early


cdef void _count_idle(Truth truth, Line line, double seconds) noexcept nogil:
    """Add up free room that is kept for the first: if other units took it beyond its start, it would not fit."""
    cdef i64 m = line.cols_room
    numbers = line.numbers
    if not numbers[PROMISED]:
        return
    shape, kept = line.shape[numbers[HEAD]], numbers[WANTED] - numbers[FITTING]
    mark = line.scratches
    later = integers(line, line.len_fits * m)
    for k in range(line.len_fits * m):
        later[k] = line.spare[k] - line.room[k]
    for n in range(line.len_fits):
        kept += line.fits[n] - _how_many(line, shape, n, &later[n * m], NONE)
    for n in range(line.len_fits):
        without = _how_many(line, shape, n, &later[n * m], NONE)
        here = max(0, min(kept, line.fits[n] - without))
        kept -= here
        for r in range(m if here > 0 else 0):
            beside = line.spare[n * m + r] - (without + here) * line.need[shape * m + r]
            idle = min(line.room[n * m + r], max(0, line.room[n * m + r] - beside))
            if not numbers[SLOTS]:
                line.idled[r] += seconds * idle
            else:
                for of in range(line.len_idled):
                    line.idled[of] += seconds * idle * truth.demand[numbers[HEAD] * line.len_idled + of]
    release(line, mark)


cdef void _append(Truth truth, Line line, i64 j, double now, i64 rule) noexcept nogil:
    """Append an arriving job to the line."""
    line.numbers[CAME] += 1
    if not line.comes[j]:
        return
    submit(truth, j, line.tasks[j], now)
    line.left[j] = line.tasks[j]
    if rule == CONSERVATIVE:
        for index in range(1 if line.gang[j] else line.tasks[j]):
            reserve(truth, line, j, index, now)
    elif rule == EASY:
        line.waits[line.kind[j]] += 1
        _list(truth, line, j)


cdef void _list(Truth truth, Line line, i64 j) noexcept nogil:
    """Note the time limit of a job's next unit, if one waits."""
    if line.left[j] > 0:
        limit = _limit(truth, line, j, line.tasks[j] - line.left[j])
        set_least(line, line.place[j], min(NEVER, limit))
    else:
        line.waits[line.kind[j]] -= 1
        set_least(line, line.place[j], INFINITY)


cdef double _limit(Truth truth, Line line, i64 j, i64 index) noexcept nogil:
    return line.limit[truth.first[j] + index % truth.several[j]]


cdef i64 _first(Line line) noexcept nogil:
    """Return the first job of the line; NONE."""
    numbers = line.numbers
    while numbers[HEAD] < numbers[CAME] and line.left[numbers[HEAD]] == 0:
        numbers[HEAD] += 1
    return numbers[HEAD] if numbers[HEAD] < numbers[CAME] else NONE


cdef void _start_first(Truth truth, Runs runs, Line line, double now) noexcept nogil:
    """Start the first of the line while it has room."""
    j = _first(line)
    while j != NONE and place_unit(line, j, False):
        line.numbers[PROMISED] = 0
        start_unit(truth, runs, line, j, line.tasks[j] - line.left[j], now)
        if line.len_least > 0:
            _list(truth, line, j)
        j = _first(line)


cdef void _start_others(Truth truth, Runs runs, Line line, double now) noexcept nogil:
    """Start, in the order of the line, units that do not delay the first."""
    cdef i64 m = line.cols_room
    cdef bint fits, ends
    promise, kinds, mark = line.at[PROMISE], line.len_waits, line.scratches
    next, ending = integers(line, kinds), integers(line, kinds)  # by kind: who is tried next; True if it must end in time
    for k in range(kinds):
        next[k] = NONE
        if line.waits[k] > 0 and k != line.kind[line.numbers[HEAD]]:
            j, fits = line.job[line.begin[k]], True
            for r in range(m):
                fits &= tasks_of_unit(line, j) * line.need[line.shape[j] * m + r] <= line.total[r]
            if fits:
                next[k] = first_within(line, line.begin[k], line.begin[k + 1], NEVER)
    while True:
        best = NONE
        for k in range(kinds):
            if next[k] != NONE and (best == NONE or line.job[next[k]] < line.job[next[best]]):
                best = k
        if best == NONE:
            break
        place, j = next[best], line.job[next[best]]
        ends = _ends_in_time(truth, line, j, now)
        if place_unit(line, j, not ends):
            start_unit(truth, runs, line, j, line.tasks[j] - line.left[j], now)
            _list(truth, line, j)
        elif ends:
            next[best] = NONE
            continue
        else:
            ending[best] = True
        if not ending[best]:
            next[best] = first_within(line, place, line.begin[best + 1], NEVER)
            continue
        # Rounded up, so that who ends in time is found.
        most = min(nextafter(NEVER, 0.0), nextafter(nextafter(promise, INFINITY) - now, INFINITY))
        place = first_within(line, place, line.begin[best + 1], most)
        while place != NONE and not _ends_in_time(truth, line, line.job[place], now):
            place = first_within(line, place + 1, line.begin[best + 1], most)
        next[best] = place
    release(line, mark)


cdef bint _ends_in_time(Truth truth, Line line, i64 j, double now) noexcept nogil:
    """Return True if a job's next unit, started now, ends by the start of the first."""
    ends = now + _limit(truth, line, j, line.tasks[j] - line.left[j])
    return ends <= line.at[PROMISE] and ends < INFINITY


cdef i64 tasks_of_unit(Line line, i64 j) noexcept nogil:
    return line.tasks[j] if line.gang[j] else 1


cdef bint place_unit(Line line, i64 j, bint beside) noexcept nogil:
    """Take room for a unit and set its nodes, or change nothing; `beside`: it leaves room for the first."""
    found, n, count = 0, 0, tasks_of_unit(line, j)
    while found < count and n < line.len_fits:
        if _accepts(line, j, n, beside):
            _take(line, j, n, 1, beside)
            line.node[found] = n
            found += 1
        else:
            n += 1
    for k in range(found if found < count else 0):
        _take(line, j, line.node[k], -1, beside)
    return found == count


cdef bint _accepts(Line line, i64 j, i64 n, bint beside) noexcept nogil:
    """Return True if a node accepts a task of a job."""
    cdef i64 m = line.cols_room
    numbers, shape = line.numbers, line.shape[j]
    if not line.allowed[shape * line.cols_allowed + n]:
        return False
    for r in range(m):
        if line.need[shape * m + r] > line.room[n * m + r]:
            return False
    if not beside:
        return True
    fits = _how_many(line, line.shape[numbers[HEAD]], n, &line.spare[n * m], shape)
    return numbers[FITTING] - line.fits[n] + fits >= numbers[WANTED]


cdef void _take(Line line, i64 j, i64 n, i64 sign, bint beside) noexcept nogil:
    """Take a task's room on a node (sign 1), or give it back (-1); `beside`: also beyond the start of the first."""
    cdef i64 m = line.cols_room
    for r in range(m):
        need = sign * line.need[line.shape[j] * m + r]
        line.room[n * m + r] -= need
        line.total[r] -= need
        if beside:
            line.spare[n * m + r] -= need
    if beside:
        fits = _how_many(line, line.shape[line.numbers[HEAD]], n, &line.spare[n * m], NONE)
        line.numbers[FITTING] += fits - line.fits[n]
        line.fits[n] = fits


cdef i64 _how_many(Line line, i64 shape, i64 n, i64 *room, i64 beside) noexcept nogil:
    """Return how many tasks of a shape fit into room of a node, beside a task of another shape (NONE: alone)."""
    cdef i64 m = line.cols_room
    if not line.allowed[shape * line.cols_allowed + n]:
        return 0
    most = line.len_node
    for r in range(m):
        need = line.need[shape * m + r]
        if need > 0:
            most = min(most, (room[r] - (line.need[beside * m + r] if beside != NONE else 0)) // need)
    return max(0, most)


cdef void start_unit(Truth truth, Runs runs, Line line, i64 j, i64 index, double now) noexcept nogil:
    """Start a unit whose nodes are set and whose room is taken."""
    room, count = line.cols_one, tasks_of_unit(line, j)
    for k in range(count):
        line.one[k], line.one[room + k], line.one[2 * room + k] = j, index + k, 1
    start(truth, runs, count, line.one, line.one + room, line.one + 2 * room, line.node, now)
    line.left[j] -= count
    line.numbers[DECISIONS] += count


cdef void _promise(Truth truth, Runs runs, Line line) noexcept nogil:
    """Find the earliest start of the first, by the limits of what runs, and the room at that moment."""
    cdef i64 m = line.cols_room
    numbers, j = line.numbers, line.numbers[HEAD]
    left, mark = truth.size[RUNNING], line.scratches
    running, limits = integers(line, left), floats(line, left)
    memcpy(line.spare, line.room, line.len_fits * m * sizeof(i64))
    numbers[WANTED], numbers[FITTING] = tasks_of_unit(line, j), 0
    for n in range(line.len_fits):
        line.fits[n] = _how_many(line, line.shape[j], n, &line.spare[n * m], NONE)
        numbers[FITTING] += line.fits[n]
    for k in range(left):
        running[k] = runs.heap[k]
        limits[k] = runs.since[running[k]] + _limit(truth, line, runs.job[running[k]], runs.index[running[k]])
    for k in range(left // 2 - 1, -1, -1):
        _sink(limits, running, k, left)
    while numbers[FITTING] < numbers[WANTED]:
        line.at[PROMISE] = limits[0]
        while left > 0 and limits[0] <= line.at[PROMISE]:
            n, shape = runs.node[running[0]], line.shape[runs.job[running[0]]]
            for r in range(m):
                line.spare[n * m + r] += line.need[shape * m + r]
            fits = _how_many(line, line.shape[j], n, &line.spare[n * m], NONE)
            numbers[FITTING] += fits - line.fits[n]
            line.fits[n] = fits
            left -= 1
            limits[0], running[0] = limits[left], running[left]
            _sink(limits, running, 0, left)
    release(line, mark)
    numbers[PROMISED] = 1


cdef void _sink(double *keys, i64 *rows, i64 place, i64 size) noexcept nogil:
    """Sift down the entry at a place of a heap with the smallest key first."""
    while 2 * place + 1 < size:
        down = 2 * place + 1
        if down + 1 < size and keys[down + 1] < keys[down]:
            down += 1
        if keys[place] <= keys[down]:
            return
        keys[place], keys[down] = keys[down], keys[place]
        rows[place], rows[down] = rows[down], rows[place]
        place = down


cdef void set_least(Line line, i64 place, double value) noexcept nogil:
    """Set an entry of the tree of minima."""
    i = line.len_least // 2 + place
    line.least[i] = value
    while i > 1:
        i //= 2
        line.least[i] = min(line.least[2 * i], line.least[2 * i + 1])


cdef i64 first_within(Line line, i64 begin, i64 end, double most) noexcept nogil:
    """Return the first place from `begin` to before `end` with an entry of at most `most`; NONE."""
    size = line.len_least // 2
    i = size + begin
    if begin >= end:
        return NONE
    while line.least[i] > most:
        while i & 1:
            i >>= 1  # nothing behind it below the same parent
        if i == 0:
            return NONE
        i += 1
    while i < size:
        i *= 2
        if line.least[i] > most:
            i += 1
    return i - size if i - size < end else NONE
