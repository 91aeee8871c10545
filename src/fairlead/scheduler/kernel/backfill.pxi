"""Reservations: which groups get room kept, where, and from when on; others are backfilled around it.

A reservation is all holds of one group, for its next task or whole gang. Its start is the earliest moment at which, by
the forecasts, all of it fits beside the reservations of lower rank. :func:`plan_start` finds it by going through the
expected ends of running tasks in order. Each node keeps only what is needed at the start, on the nodes that have room
soonest. `kernel/holds.pxi` says what that excludes.

A reservation is replanned when

- it has slipped: its start is over and it did not fit;
- one of lower rank took what it counted on;
- tasks ended unexpectedly, or failed to end as expected, but not too often.
"""


cdef i64 next_to_plan(View v, double now) noexcept nogil:
    """Return the group of the first reservation by rank that must be replanned; NONE."""
    found, least = NONE, 0
    for h in range(v.counts[HOLDS]):
        if (found == NONE or v.holds[h].rank < least) and _is_stale(v, h, now):
            found, least = v.holds[h].group, v.holds[h].rank
    return found


cdef bint _is_stale(View v, i64 h, double now) noexcept nogil:
    """Return True if a hold's reservation must be replanned."""
    holds = v.holds
    if holds[h].kind != RESERVATION:
        return False
    if holds[h].change == BROKEN:
        return True
    if now > holds[h].start:
        return now >= holds[h].planned + MIN_FORECAST_SECONDS
    patience = max(MIN_FORECAST_SECONDS, REPLAN_FRACTION * (holds[h].start - holds[h].planned))
    return (holds[h].change == CHANGED or now > holds[h].review) and now >= holds[h].planned + patience


cpdef (double, double) next_step(
    View v, double event, bint claims, double now, double happened, double reserve_after
) noexcept nogil:
    """Return when the next step is due, and when something happened last by then. Nothing comes from outside before `event`.

    A step is due at the event, when a claim is (if `claims`), when a reservation for a bypassed job is, and when
    reservations are reviewed.
    """
    due, review = min(event, next_passed(v, now, reserve_after)), _next_review(v, now, happened)
    if claims:
        due = min(due, next_claim(v, now))
    if due <= review:
        return due, due
    return review, happened


cdef double _next_review(View v, double now, double happened) noexcept nogil:
    """Return the time of the next reservation review if nothing happens until then.

    That is at least MIN_FORECAST_SECONDS away, as in the live scheduler (`IDLE_SECONDS` of :mod:`fairlead.service.loop`),
    and further the longer nothing has happened.
    """
    holds, first = v.holds, INFINITY
    for h in range(v.counts[HOLDS]):
        if holds[h].kind == RESERVATION:
            planned, start = holds[h].planned, holds[h].start
            at = max(nextafter(start, INFINITY), planned + MIN_FORECAST_SECONDS)
            early = planned + max(MIN_FORECAST_SECONDS, REPLAN_FRACTION * (start - planned))
            if holds[h].change != CHANGED:
                early = max(nextafter(holds[h].review, INFINITY), early)
            at = min(at, early)
            if now < at < first:
                first = at
    return max(first, now + max(MIN_FORECAST_SECONDS, REVIEW_FRACTION * (now - happened)))


cdef i64 slips_of(View v, i64 b, double now, double reserve_after) noexcept nogil:
    """Return how often the start of a group's reservation has slipped, including now; at most once per `reserve_after`."""
    cdef bint late
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == b:
            late = now > v.holds[h].start and now - v.holds[h].since >= reserve_after
            return v.holds[h].slips + late
    return 0


cdef (i64, double) replan(View v, i64 b, i64 slips, double now) noexcept nogil:
    """Replan a group's reservation, on its own nodes if these are fixed; see `_plan`."""
    cdef bint own
    mark = v.scratches
    # rules: rank, one-reservation
    rank, place, most = 0, NONE, integers(v, v.counts[NODES])
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == b:
            rank, place = v.holds[h].rank, v.holds[h].place
            most[v.holds[h].node] = v.holds[h].tasks
    own = place != NONE and ((v.queues[v.groups[b].leaf].apart >> place) & 1)
    if slips >= FIXED_AFTER_SLIPS:
        count, start = _plan(v, b, rank, most, own, now)
        if count > 0:
            release(v, mark)
            return count, start
    for n in range(v.counts[NODES]):
        most[n] = tasks_left(v, b)
    count, start = _plan(v, b, rank, most, own, now)
    release(v, mark)
    return count, start


cdef (i64, double) plan_new(View v, i64 b, double now) noexcept nogil:
    """Plan a reservation for a group that has none; see `_plan`.

    For a leaf that is served in line and short, plan without the ends of its own tasks. If only these would make room,
    plan nothing until the group is bypassed again.
    """
    mark = v.scratches
    own, most = _is_short(v, v.groups[b].leaf, now), integers(v, v.counts[NODES])
    for n in range(v.counts[NODES]):
        most[n] = tasks_left(v, b)
    count, start = _plan(v, b, next_rank(v), most, own, now)
    release(v, mark)
    if own and not v.queue_cache[v.groups[b].leaf].apart and isnan(v.groups[b].bypassed_since):
        return 0, now
    return count, start


cdef (i64, double) _plan(View v, i64 b, i64 rank, i64 *most, bint own, double now) noexcept nogil:
    """Plan a start (see `plan_start`), and mark in the cache the leaves whose tasks' ends it ignores (`apart`).

    Room freed by the tasks of these leaves goes back to them at once:

    - short: in line when served, and short (`_is_short`);
    - coming back: a pending gang would precede this group if its demand were freed (`_comes_back`);
    - staying before: has a reservation, and precedes this group even when charged for it (`_stays_before`);
    - own: the leaf of this group, if `own`.

    If there is no plan without their ends, plan with them.
    """
    cdef bint some
    cache, mine, some = v.queue_cache, v.groups[b].leaf, own
    for q in range(v.counts[QUEUES]):
        cache[q].apart = own if q == mine else _is_short(v, q, now) or _comes_back(v, q, b)
        some |= cache[q].apart
    h = 0
    while h < v.counts[HOLDS]:
        leaf = v.groups[v.holds[h].group].leaf
        if v.holds[h].kind == RESERVATION and leaf != mine and not cache[leaf].apart:
            cache[leaf].apart = not counts_on(v, h, leaf) or _stays_before(v, h, b)
            some |= cache[leaf].apart
        h = next_reservation(v, h)
    count, start = plan_start(v, b, rank, most, now)
    if some and count == 0:
        for q in range(v.counts[QUEUES]):
            cache[q].apart = False
        return plan_start(v, b, rank, most, now)
    _leave_those_there(v, mine, count)
    return count, start


cdef bint is_still_due(View v, i64 b, double now) noexcept nogil:
    """Return True if a group first in line was bypassed itself, or its leaf is short; not if only its leaf was served."""
    return not isnan(v.groups[b].bypassed_since) or _is_short(v, v.groups[b].leaf, now)


cdef bint _is_short(View v, i64 leaf, double now) noexcept nogil:
    """Return True if a leaf was served in line recently and with its next task or gang would still go before another."""
    b = v.best[v.queue_cache[leaf].base + 1] if is_leaf(v, leaf) and is_in_line(v, leaf, now) else NONE
    if b == NONE:
        return False
    x, shape, count = leaf, v.groups[b].shape_row, _tasks_next(v, b)
    while x > 0:
        if not _is_by_jobs(v, x):
            _use_more(v, x, shape, count)
            short = _goes_before_another(v, x, _below(v, x, b), shape)
            _use_more(v, x, shape, -count)
            if short:
                return True
        x = v.queues[x].parent
    return False


cdef void _use_more(View v, i64 x, i64 shape, i64 count) noexcept nogil:
    """Compute a queue's key as if it used `count` more tasks of a shape."""
    cdef i64 m = v.len_total
    for r in range(m):
        v.used[x * m + r] += count * v.demand[shape * m + r]
        v.counts_as[x * m + r] += count * v.demand[shape * m + r]
    _set_keys_of(v, x)


cdef bint _goes_before_another(View v, i64 x, i64 x_below, i64 shape) noexcept nogil:
    """Return True if a queue, its key computed for this, goes before any sibling with running tasks."""
    for y in range(1, v.counts[QUEUES]):
        if v.queues[y].parent == v.queues[x].parent and y != x and v.queues[y].tasks > 0:
            if v.best[v.queue_cache[y].base + 1] == NONE:  # else its key is up to date
                _set_keys_of(v, y)
            if _is_before(v, x, x_below, y, exact_below(v, y, shape, 1, 1)):
                return True
    return False


cdef bint _comes_back(View v, i64 leaf, i64 b) noexcept nogil:
    """Return True if a leaf that runs tasks has a gang and would precede a group if its demand were freed from the use."""
    cdef i64 m = v.len_total
    best = v.best[v.queue_cache[leaf].base + 1] if is_leaf(v, leaf) and v.queues[leaf].tasks > 0 else NONE
    if best == NONE or v.groups[best].gang == 0:
        return False
    x, y = _siblings(v, leaf, v.groups[b].leaf)
    if _is_by_jobs(v, x):
        return False
    mark, less = v.scratches, _next_in_all(v, best)
    for r in range(m):
        less[r] = -min(less[r], v.used[leaf * m + r])
    before = _goes_before_with(v, leaf, v.groups[best].shape_row, less, b, y, integers(v, m))
    release(v, mark)
    return before


cdef void _leave_those_there(View v, i64 mine, i64 count) noexcept nogil:
    """Keep `apart` only for the plan's own leaf and leaves with tasks on the chosen nodes."""
    mark = v.scratches
    there = flags(v, v.counts[QUEUES])
    there[mine] = True
    for k in range(count):
        t = v.nodes[v.planned_node[k]].task
        while t != NONE:
            there[v.jobs[v.tasks[t].job].queue] = True
            t = v.tasks[t].after
    for q in range(v.counts[QUEUES]):
        v.queue_cache[q].apart = v.queue_cache[q].apart and there[q]
    release(v, mark)


cdef i64 next_rank(View v) noexcept nogil:
    """Return a rank higher than all."""
    rank = 0
    for h in range(v.counts[HOLDS]):
        rank = max(rank, v.holds[h].rank + 1)
    return rank


cdef i64 first_rank(View v) noexcept nogil:
    """Return a rank lower than all."""
    rank = 0
    for h in range(v.counts[HOLDS]):
        rank = min(rank, v.holds[h].rank - 1)
    return rank


cdef i64 how_many(View v) noexcept nogil:
    """Return the number of reservations."""
    count, h = 0, 0
    while h < v.counts[HOLDS]:
        if v.holds[h].kind == RESERVATION:
            count += 1
        h = next_reservation(v, h)
    return count


cdef (i64, double) plan_start(View v, i64 b, i64 rank, i64 *most, double now) noexcept nogil:
    """Find the earliest start of a group's next task, or whole gang, beside all reservations of lower rank.

    Ends of tasks of leaves marked `apart` are ignored.

    Parameters
    ----------
    v : View
    b : int
    rank : int
    most : int64, shape (nodes,)
        Tasks that each node may keep room for, at most; set to 0 where none fits.
    now : float

    Returns
    -------
    count : int
        Length of `planned_node`, rising, and `planned_tasks`. 0 if it never fits.
    start : float
        Seconds, as in the facts; `now` if it fits at once.
    """
    cdef i64 m = v.len_total
    shape = v.groups[b].shape_row
    wanted = _tasks_next(v, b)
    for n in range(v.counts[NODES]):
        most[n] = min(most[n], capacity_for(v, n, shape))
    mark = v.scratches
    events = _events(v, most, rank, now)
    times, nodes, tasks = events.times, events.nodes, events.tasks
    back, fits = integers(v, v.counts[NODES] * m), integers(v, v.counts[NODES])
    at_once = integers(v, v.counts[NODES])
    total, start, left = 0, now, events.count
    for n in range(v.counts[NODES]):
        if most[n] > 0:
            fits[n] = min(most[n], _fits_at(v, n, shape, rank, back, now))
            total += fits[n]
        at_once[n] = fits[n]
    while total < wanted and left > 0:
        start, before = times[0], left
        while left > 0 and times[0] == start:
            left -= 1
            _put_behind(times, nodes, tasks, left)
            _give_back_task(v, tasks[left], &back[nodes[left] * m])
        for k in range(left, before):
            n = nodes[k]
            total -= fits[n]
            fits[n] = min(most[n], _fits_at(v, n, shape, rank, back, start))
            total += fits[n]
    if total < wanted:
        release(v, mark)
        return 0, INFINITY
    _choose(v, shape, rank, most, wanted, events, left, at_once, fits)
    count = 0
    for n in range(v.counts[NODES]):
        if at_once[n] > 0:
            v.planned_node[count], v.planned_tasks[count] = n, at_once[n]
            count += 1
    release(v, mark)
    return count, start


cdef void _give_back_task(View v, i64 t, i64 *back) noexcept nogil:
    """Add a task's demand to `back`; nothing for NONE."""
    cdef i64 m = v.len_total
    if t != NONE:
        for r in range(m):
            back[r] += v.demand[v.jobs[v.tasks[t].job].shape_row * m + r]


cdef void _choose(
    View v, i64 shape, i64 rank, i64 *most, i64 wanted, Events events, i64 first, i64 *taken, i64 *fits
) noexcept nogil:
    """Set `taken`, initially what fits on each node at once, to what is kept there: on nodes with room soonest, out of `fits`.

    The events until all fits are those from `first` on in the order that :func:`_put_behind` leaves: the earliest is
    last.
    """
    cdef i64 m = v.len_total
    mark = v.scratches
    back, left = integers(v, v.counts[NODES] * m), wanted
    for n in range(v.counts[NODES]):
        taken[n] = min(taken[n], fits[n], left)
        left -= taken[n]
    for k in range(events.count - 1, first - 1, -1):
        n = events.nodes[k]
        _give_back_task(v, events.tasks[k], &back[n * m])
        if left > 0:
            more = min(fits[n], most[n], _fits_at(v, n, shape, rank, back, events.times[k])) - taken[n]
            if more > 0:
                taken[n] += min(more, left)
                left -= min(more, left)
    release(v, mark)


cdef i64 _fits_at(View v, i64 n, i64 shape, i64 rank, i64 *back, double at) noexcept nogil:
    """Return how many tasks of a shape fit on a node from a time on, with `back` freed, beside lower ranks."""
    cdef i64 m = v.len_total
    most = INFINITE
    for r in range(m):
        if v.demand[shape * m + r] > 0:
            room, h = v.free[n * m + r] + back[n * m + r] - _taken_at(v, n, r, rank, at), v.nodes[n].hold
            while h != NONE:
                if v.holds[h].rank < rank and v.holds[h].start > at:
                    room = min(room, v.free[n * m + r] + v.back[h * m + r] - _taken_at(v, n, r, rank, v.holds[h].start))
                h = v.holds[h].after
            most = min(most, floor_div(room, v.demand[shape * m + r]))
    return max(0, most)


cdef i64 _taken_at(View v, i64 n, i64 r, i64 rank, double at) noexcept nogil:
    """Return what reservations of lower rank take of a node at a time."""
    cdef i64 m = v.len_total
    taken, h = 0, v.nodes[n].hold
    while h != NONE:
        if v.holds[h].rank < rank and v.holds[h].start <= at < v.holds[h].end:
            taken += v.amount[h * m + r]
        h = v.holds[h].after
    return taken


cdef Events _events(View v, i64 *most, i64 rank, double now) noexcept nogil:
    """Return a heap of the events that change the candidates' use; tasks of leaves marked `apart` never end.

    The arrays are scratch. The task is NONE if a reservation of lower rank starts or ends; `_taken_at` gives what it
    takes.
    """
    cdef Events events
    cdef double[TAILS] tails
    length = v.queues[0].tasks + 2 * v.counts[HOLDS]
    times, nodes, tasks = floats(v, length), integers(v, length), integers(v, length)
    k = 0
    for n in range(v.counts[NODES]):
        if most[n] == 0:
            continue
        h = v.nodes[n].hold
        while h != NONE:
            if v.holds[h].rank < rank:
                k = _put_event(times, nodes, tasks, k, v.holds[h].start, now, n)
                k = _put_event(times, nodes, tasks, k, v.holds[h].end, now, n)
            h = v.holds[h].after
        t, part = v.nodes[n].task, part_left(v, n)
        while t != NONE:
            apart = v.queue_cache[v.jobs[v.tasks[t].job].queue].apart
            at = INFINITY if apart else expected_end(v, t, now, part, tails)
            if at < INFINITY:
                times[k], nodes[k], tasks[k] = at, n, t
                k += 1
            t = v.tasks[t].after
    for place in range(k // 2 - 1, -1, -1):
        _sink(times, nodes, tasks, place, k)
    events.count, events.times, events.nodes, events.tasks = k, times, nodes, tasks
    return events


cdef i64 _put_event(double *times, i64 *nodes, i64 *tasks, i64 k, double at, double now, i64 n) noexcept nogil:
    """Append the start or end of a hold to k events if it is finite and to come; return how many they are then."""
    if not now < at < INFINITY:
        return k
    times[k], nodes[k], tasks[k] = at, n, NONE
    return k + 1


cdef void _put_behind(double *times, i64 *nodes, i64 *tasks, i64 last) noexcept nogil:
    """Move the first of a heap of events behind the others, to the last place of the heap."""
    _exchange(times, nodes, tasks, 0, last)
    _sink(times, nodes, tasks, 0, last)


cdef void _sink(double *times, i64 *nodes, i64 *tasks, i64 place, i64 size) noexcept nogil:
    """Sift down the event at a place of a heap."""
    while 2 * place + 1 < size:
        down = 2 * place + 1
        if down + 1 < size and _comes_before(times, nodes, tasks, down + 1, down):
            down += 1
        if not _comes_before(times, nodes, tasks, down, place):
            return
        _exchange(times, nodes, tasks, down, place)
        place = down


cdef bint _comes_before(double *times, i64 *nodes, i64 *tasks, i64 a, i64 b) noexcept nogil:
    """Return True if event a comes before b: by time, then task row, so node lists' order has no effect."""
    if times[a] != times[b]:
        return times[a] < times[b]
    if tasks[a] != tasks[b]:
        return tasks[a] < tasks[b]
    return nodes[a] < nodes[b]


cdef void _exchange(double *times, i64 *nodes, i64 *tasks, i64 a, i64 b) noexcept nogil:
    times[a], times[b] = times[b], times[a]
    nodes[a], nodes[b] = nodes[b], nodes[a]
    tasks[a], tasks[b] = tasks[b], tasks[a]


cdef double part_left(View v, i64 n) noexcept nogil:
    """Return the chance that each task of a node may outlast its forecast, so that all end in time at NODE_FREE_ODDS."""
    count, t = 0, v.nodes[n].task
    while t != NONE:
        count += 1
        t = v.tasks[t].after
    return 1.0 - NODE_FREE_ODDS ** (1.0 / max(1, count))


cdef double expected_end(View v, i64 t, double now, double part, double *tails) noexcept nogil:
    """Return when all but a fraction `part` of tasks like this have ended; an earlier forecast stays until it is over.

    `tails`, shape (3, BINS + 1), is scratch.
    """
    tasks = v.tasks
    if now < tasks[t].until < INFINITY:
        return tasks[t].until
    if tasks[t].status != PLACED and tasks[t].status != RUNNING:  # it is being stopped
        return now + MIN_FORECAST_SECONDS
    j = tasks[t].job
    age = max(0.0, now - tasks[t].started_at) if tasks[t].status == RUNNING else 0.0
    longest = set_tails(v, j, tails)
    lasts = max(age, min(v.jobs[j].time_limit, duration(tails, longest, age, part, INFINITY)))
    return now + max(MIN_FORECAST_SECONDS, lasts - age)


cdef i64 overtaken(View v, i64 line) noexcept nogil:
    """Return a hold of a reservation whose queue no longer goes before that of the group `line`; NONE.

    Compare with `line`'s demand added and the other's charge for its reservation removed. Otherwise the two would drop
    each other's in turn.
    """
    h = 0
    while h < v.counts[HOLDS]:
        if v.holds[h].kind == RESERVATION and _goes_before_reservation(v, line, h):
            return h
        h = next_reservation(v, h)
    return NONE


cdef bint _goes_before_reservation(View v, i64 b, i64 first) noexcept nogil:
    """Return True if a group's queue clearly goes before that of the reservation with this first hold."""
    other, leaf = v.holds[first].group, v.groups[b].leaf
    x, y = _siblings(v, leaf, v.groups[other].leaf)
    if _is_by_jobs(v, x):
        if v.queues[v.queues[x].parent].policy == BY_PRIORITY and v.groups[b].priority != v.groups[other].priority:
            return v.groups[b].priority > v.groups[other].priority
        return v.jobs[current_job(v, b)].id < v.jobs[current_job(v, other)].id
    # Both wait, so their keys are up to date. A queue never goes sooner by having more, except under YARN's rule.
    if not compares_as_yarn(v, x) and not _is_before(v, x, _below(v, x, b), y, _below(v, y, other)):
        return False
    mark, more = v.scratches, _next_in_all(v, b)
    before = _goes_before_with(v, leaf, v.groups[b].shape_row, more, other, y, _kept_in_all(v, first, v.idle))
    release(v, mark)
    return before


cdef i64 *_next_in_all(View v, i64 b) noexcept nogil:
    """Return the total demand of a group's next task, or whole gang. It is scratch."""
    cdef i64 m = v.len_total
    count, shape = _tasks_next(v, b), v.groups[b].shape_row
    more = integers(v, m)
    for r in range(m):
        more[r] = count * v.demand[shape * m + r]
    return more


cdef i64 _tasks_next(View v, i64 b) noexcept nogil:
    """Return how many tasks of a group start next: one, or a whole gang."""
    return tasks_left(v, b) if v.groups[b].gang > 0 else 1


cdef bint _stays_before(View v, i64 first, i64 b) noexcept nogil:
    """Return True if a reservation's queue goes before a group's even with what is kept for it."""
    other = v.holds[first].group
    leaf = v.groups[other].leaf
    x, _ = _siblings(v, leaf, v.groups[b].leaf)
    if _is_by_jobs(v, x) or not _more_waits(v, first):
        return False
    mark, amount = v.scratches, _kept_in_all(v, first, v.amount)
    before = _goes_before_with(v, leaf, v.groups[other].shape_row, amount, b, x, _kept_in_all(v, first, v.idle))
    release(v, mark)
    return before


cdef bint _more_waits(View v, i64 first) noexcept nogil:
    """Return True if the leaf of a reservation has more waiting than what is kept."""
    b, kept = v.holds[first].group, 0
    for h in range(first, next_reservation(v, first)):
        kept += v.holds[h].tasks
    if v.jobs[v.groups[b].head].after != NONE or (v.groups[b].gang == 0 and tasks_left(v, b) > kept):
        return True
    base, slots = v.queue_cache[v.groups[b].leaf].base, v.queue_cache[v.groups[b].leaf].slots
    for place in range(base + slots, base + 2 * slots):
        if v.best[place] != NONE and v.best[place] != b:
            return True
    return False


cdef i64 *_kept_in_all(View v, i64 first, i64 *of) noexcept nogil:
    """Return a reservation's total over its holds of `amount` or `idle`. It is scratch."""
    cdef i64 m = v.len_total
    found = integers(v, m)
    for h in range(first, next_reservation(v, first)):
        for r in range(m):
            found[r] += of[h * m + r]
    return found


cdef bint is_before(View v, i64 one, i64 shape, i64 b) noexcept nogil:
    """Return True if a leaf with a task of a shape goes before a group, by their queues' use; False if jobs decide."""
    x, y = _siblings(v, one, v.groups[b].leaf)
    if _is_by_jobs(v, x):
        return False
    mark, nothing = v.scratches, integers(v, v.len_total)
    before = _goes_before_with(v, one, shape, nothing, b, y, nothing)
    release(v, mark)
    return before


cdef bint _is_by_jobs(View v, i64 x) noexcept nogil:
    """Return True if a queue and its siblings are ordered by their jobs, whatever they use."""
    policy = v.queues[v.queues[x].parent].policy
    return policy == FIFO or policy == BY_PRIORITY


cdef bint _goes_before_with(View v, i64 one, i64 shape, i64 *more, i64 b, i64 z, i64 *promised) noexcept nogil:
    """Return True if a leaf with a task of a shape goes before a group, if it used `more` and queue z's `promised` were less."""
    x, y = _siblings(v, one, v.groups[b].leaf)
    _suppose_more(v, x, 1, more, z, promised)
    _set_keys_of(v, y)
    before = _is_before(v, x, below_on_path(v, x, one, shape, 1), y, _below(v, y, b))
    _suppose_more(v, x, -1, more, z, promised)
    return before


cdef i64 _below(View v, i64 x, i64 b) noexcept nogil:
    """Return 0 if queue x goes first with a group's next task because of a guarantee; else 1."""
    return below_on_path(v, x, v.groups[b].leaf, v.groups[b].shape_row, tasks_at_once(v, b))


cdef bint _is_before(View v, i64 x, i64 x_below, i64 y, i64 y_below) noexcept nogil:
    """Return True if x goes before its sibling y by keys computed for this.

    Queues without pending jobs have no stored key, and `below` in the cache holds for any pending task.
    """
    cache = v.queue_cache
    return queue_goes_before(v, x, x_below, cache[x].first, cache[x].level, y, y_below, cache[y].first, cache[y].level)


cdef (i64, i64) _siblings(View v, i64 one, i64 other) noexcept nogil:
    """Return the two sibling queues on the paths from two leaves to the root."""
    x = one
    while True:
        y = other
        while y > 0 and v.queues[y].parent != v.queues[x].parent:
            y = v.queues[y].parent
        if y > 0:
            return x, y
        x = v.queues[x].parent


cdef void _suppose_more(View v, i64 x, i64 sign, i64 *more, i64 y, i64 *promised) noexcept nogil:
    """Compute two siblings' keys as if x used more and y were promised less (sign 1); undo that with -1."""
    cdef i64 m = v.len_total
    for r in range(m):
        v.used[x * m + r] += sign * more[r]
        v.counts_as[x * m + r] += sign * more[r]
        v.promised[y * m + r] -= sign * promised[r]
    _set_keys_of(v, x)
    _set_keys_of(v, y)


cdef void _set_keys_of(View v, i64 q) noexcept nogil:
    """Compute a queue's key among its siblings."""
    set_key(v, q)
    policy = v.queues[v.queues[q].parent].policy
    if policy == HDRF or policy == DIVIDED:
        set_level(v, q, is_leaf(v, q))
