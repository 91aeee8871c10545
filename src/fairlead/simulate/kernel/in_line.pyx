"""The baselines of the literature with all jobs in one line: first come, first served, and EASY backfill.

Nobody bypasses the first of the line. Under EASY (Lifka 1995; Mu'alem and Feitelson 2001) the first has a reservation:
the earliest moment at which all of it fits, by the limits of what runs. Others start before it if they do not delay it:
they end by then, or use only resources there that it does not need. Jobs behind the first have no reservation. The
first is its next task, or the whole gang. Tasks are placed by first fit.

It drives the same simulated machines as the scheduler, and shares none of its code.
"""

from in_line_constants cimport *
from libc.math cimport INFINITY

from fairlead.engines.kernel.simulated cimport Runs, Truth, end_into, next_end, start, submit
from fairlead.scheduler.kernel.scheduling cimport Arrays, address_of, flag, floats, i64, integers, release

from fairlead.simulate.kernel.line import LINE

include "in_line_types.pxi"



def advance(Truth truth, Runs runs, Line line, double until, bint backfill, double longer):
    """Advance to the last moment at or before `until`; True if anything follows. Limits are durations times `longer`."""
    cdef bint more
    with nogil:
        more = _advance(truth, runs, line, until, backfill, longer)
    return more


cdef bint _advance(Truth truth, Runs runs, Line line, double until, bint backfill, double longer) noexcept nogil:
    numbers = line.numbers
    while True:
        came = numbers[CAME]
        now = min(line.submit[came] if came < line.len_submit else INFINITY, next_end(truth, runs))
        line.at[NEXT] = now
        if now == INFINITY:
            return False
        if now > until:
            return True
        _count_idle(truth, line, now - line.at[NOW])
        line.at[NOW] = now
        ended = end_into(truth, runs, now, line.ends, line.cols_ends)
        while numbers[CAME] < line.len_submit and line.submit[numbers[CAME]] <= now:
            _append(truth, line, numbers[CAME], now)
        if ended > 0 and longer != 1.0:
            numbers[PROMISED] = 0  # a task ended before its limit
        _start_first(truth, runs, line, now)
        if backfill and numbers[HEAD] != NONE:
            if not numbers[PROMISED]:
                _promise(truth, runs, line, longer)
            _start_others(truth, runs, line, now, longer)
        numbers[STEPS] += 1


cdef void _count_idle(Truth truth, Line line, double seconds) noexcept nogil:
    """Add up free room that is kept for the first: unused by tasks that would run beyond its start."""
    cdef i64 m = truth.cols_demand
    if not line.numbers[PROMISED]:
        return
    for n in range(line.len_kept):
        if line.kept[n]:
            for r in range(line.len_idled):
                free = truth.capacity[n * m + r] - truth.load[n * m + r]
                line.idled[r] += seconds * max(0, free - line.spare[n * m + r])


cdef void _append(Truth truth, Line line, i64 j, double now) noexcept nogil:
    """Append an arriving job to the line."""
    line.numbers[CAME] += 1
    if not line.comes[j]:
        return
    submit(truth, j, line.tasks[j], now)
    line.left[j], line.after[j] = line.tasks[j], NONE
    if line.numbers[HEAD] == NONE:
        line.numbers[HEAD] = j
    else:
        line.after[line.numbers[TAIL]] = j
    line.numbers[TAIL] = j


cdef void _start_first(Truth truth, Runs runs, Line line, double now) noexcept nogil:
    """Start the first of the line while it has room."""
    numbers = line.numbers
    while numbers[HEAD] != NONE:
        j = numbers[HEAD]
        if not _start_where_free(truth, runs, line, j, now, INFINITY, False):
            return
        numbers[PROMISED] = 0
        if line.left[j] == 0:
            numbers[HEAD] = line.after[j]


cdef void _start_others(Truth truth, Runs runs, Line line, double now, double longer) noexcept nogil:
    """Start, in the order of the line, jobs that do not delay the first."""
    line.numbers[PASS] += 1
    before = line.numbers[HEAD]
    if not line.gang[before]:
        line.tried[line.shape[before]] = line.numbers[PASS]
    j = line.after[before]
    while j != NONE:
        while line.left[j] > 0 and line.tried[line.shape[j]] != line.numbers[PASS]:
            if not _start_where_free(truth, runs, line, j, now, longer, True):
                break
        if line.left[j] == 0:
            line.after[before] = line.after[j]
            if line.numbers[TAIL] == j:
                line.numbers[TAIL] = before
        else:
            before = j
        j = line.after[j]


cdef bint _start_where_free(
    Truth truth, Runs runs, Line line, i64 j, double now, double longer, bint beside
) noexcept nogil:
    """Start a job's next task, or whole gang, or nothing if it does not fit; `beside`: without delaying the first."""
    room, count = line.cols_one, line.left[j] if line.gang[j] else 1
    index = line.tasks[j] - line.left[j]
    found = 0
    while found < count:
        until = now + longer * _duration(truth, j, index + found) if beside else INFINITY
        n = _first_fit(truth, line, j, until, beside)
        if n == NONE:
            break
        line.node[found] = n
        _take(truth, line, j, n, until, beside, 1)
        found += 1
    for k in range(found):
        until = now + longer * _duration(truth, j, index + k) if beside else INFINITY
        _take(truth, line, j, line.node[k], until, beside and found < count, -1)
    if found < count:
        return False
    for k in range(count):
        line.one[k], line.one[room + k], line.one[2 * room + k] = j, index + k, 1
    start(truth, runs, count, line.one, line.one + room, line.one + 2 * room, line.node, now)
    line.left[j] -= count
    line.numbers[DECISIONS] += count
    return True


cdef double _duration(Truth truth, i64 j, i64 index) noexcept nogil:
    return truth.duration[truth.first[j] + index % truth.several[j]]


cdef i64 _first_fit(Truth truth, Line line, i64 j, double until, bint beside) noexcept nogil:
    """Return the first node with room for a task of a job; `beside`: without delaying the first; NONE."""
    cdef i64 m = truth.cols_demand
    cdef bint free_somewhere = False, fits, spares
    for n in range(line.len_kept):
        if not line.allowed[line.shape[j] * line.cols_allowed + n]:
            continue
        fits, spares = True, not (beside and line.kept[n]) or until <= line.at[PROMISE]
        for r in range(m):
            if truth.demand[j * m + r] > truth.capacity[n * m + r] - truth.load[n * m + r]:
                fits = False
        if fits and not spares:
            spares = True
            for r in range(m):
                if truth.demand[j * m + r] > line.spare[n * m + r]:
                    spares = False
        if fits and spares:
            return n
        if fits:
            free_somewhere = True
    if beside and not free_somewhere and not line.gang[j]:
        line.tried[line.shape[j]] = line.numbers[PASS]
    return NONE


cdef void _take(Truth truth, Line line, i64 j, i64 n, double until, bint beside, i64 sign) noexcept nogil:
    """Take a task's room on a node (sign 1), or give it back (-1); beyond the first's start, also what is spare then."""
    cdef i64 m = truth.cols_demand
    cdef bint runs_beyond = beside and line.kept[n] and until > line.at[PROMISE]
    for r in range(m):
        truth.load[n * m + r] += sign * truth.demand[j * m + r]
        if runs_beyond:
            line.spare[n * m + r] -= sign * truth.demand[j * m + r]


cdef void _promise(Truth truth, Runs runs, Line line, double longer) noexcept nogil:
    """Find the earliest start of the first, by the limits of what runs, and its nodes."""
    cdef i64 m = truth.cols_demand
    j = line.numbers[HEAD]
    count = line.left[j] if line.gang[j] else 1
    left, mark = truth.size[RUNNING], line.scratches
    free, running, fits = integers(line, line.len_kept * m), integers(line, left), integers(line, line.len_kept)
    limits = floats(line, left)
    for k in range(line.len_kept * m):
        free[k] = truth.capacity[k] - truth.load[k]
    for k in range(left):
        running[k] = runs.heap[k]
        limits[k] = runs.since[running[k]] + longer * runs.work[running[k]]
    total = 0
    for n in range(line.len_kept):
        fits[n] = _how_many(truth, line, j, n, free)
        total += fits[n]
    for k in range(left // 2 - 1, -1, -1):
        _sink(limits, running, k, left)
    while total < count:
        moment = limits[0]
        line.at[PROMISE] = moment
        while left > 0 and limits[0] <= moment:
            run = running[0]
            n = runs.node[run]
            for r in range(m):
                free[n * m + r] += truth.demand[runs.job[run] * m + r]
            total -= fits[n]
            fits[n] = _how_many(truth, line, j, n, free)
            total += fits[n]
            left -= 1
            limits[0], running[0] = limits[left], running[left]
            _sink(limits, running, 0, left)
    for n in range(line.len_kept):
        here = min(fits[n], count)
        count -= here
        line.kept[n] = here > 0
        if here > 0:
            for r in range(m):
                line.spare[n * m + r] = free[n * m + r] - here * truth.demand[j * m + r]
    release(line, mark)
    line.numbers[PROMISED] = 1


cdef i64 _how_many(Truth truth, Line line, i64 j, i64 n, i64 *free) noexcept nogil:
    """Return how many of a job's tasks fit on a node."""
    cdef i64 m = truth.cols_demand
    if not line.allowed[line.shape[j] * line.cols_allowed + n]:
        return 0
    most = line.tasks[j]
    for r in range(m):
        if truth.demand[j * m + r] > 0:
            most = min(most, free[n * m + r] // truth.demand[j * m + r])
    return most


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

