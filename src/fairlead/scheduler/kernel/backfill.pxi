"""Reservations: who gets room kept, where, and from when on; others are backfilled around it.

A reservation is for a group's next task or whole gang. A line may have several, each in turn, as long as it is owed more than
the tasks reserved for it. Its start is the earliest moment at which, by the forecasts, all of it fits on a node beside the
amounts of all holds there. Which ends of tasks count is in `plan`. Of several nodes a task takes that with the least loss: what
idles there until the start, and its own size for as long. A gang takes those that are soonest.

A reservation ends when a task starts in it and all that it counted on has ended, or its line is not owed that much any more; never by
time, or by being served elsewhere. One that is late is planned again from anywhere.
"""


cdef i64 tasks_next(View v, i64 b) noexcept nogil:
    """Return how many tasks of a group start next: one, or a whole gang."""
    return tasks_left(v, b) if v.groups[b].gang > 0 else 1


cdef void count_promises(View v) noexcept nogil:
    """Count all reservations, and those of each line that has any."""
    v.counts[PROMISES] = h = 0
    while h < v.counts[HOLDS]:
        if v.holds[h].kind == RESERVATION:
            x = line_of(v, v.groups[v.holds[h].group].leaf)
            v.queue_cache[x].promises = _promises_of(v, x) + 1
            v.queue_cache[x].counted = v.counts[CYCLE]
            v.counts[PROMISES] += 1
        h = next_promise(v, h)


cdef i64 _promises_of(View v, i64 x) noexcept nogil:
    """Return how many reservations a line has."""
    return v.queue_cache[x].promises if v.queue_cache[x].counted == v.counts[CYCLE] else 0


cdef bint _are_reservations_used_up(View v, i64 x) noexcept nogil:
    """Return True if there are as many reservations as there can be, or a line has its part of these (rule: most)."""
    return v.counts[PROMISES] >= MAX_RESERVATIONS or _promises_of(v, x) >= max(1, MAX_RESERVATIONS // max(1, v.queues[0].line))


cdef i64 next_number(View v) noexcept nogil:
    """Return a number that no reservation has."""
    number = 0
    for h in range(v.counts[HOLDS]):
        number = max(number, v.holds[h].number + 1)
    return number


cdef bint owes(View v, i64 b) noexcept nogil:
    """Return True if room is to be gathered for a group whose turn failed."""
    x = line_of(v, v.groups[b].leaf)
    if v.queue_cache[x].asked != v.counts[CYCLE] or v.queue_cache[x].oldest != b or not _may_owe(v, b) or _has_claim(v, b):
        return False
    if x == v.groups[b].leaf or not _awaits_turn(v, b, x):
        return True
    return not _one_end_helps(v, b, x, not _is_owed(v, b, x), lacks(v, b, x))


cdef bint _may_owe(View v, i64 b) noexcept nogil:
    """Return True if a group, its line's oldest, is owed more than what is reserved for the line, and no end alone helps.

    Of a line of several leaves the oldest has its turn even if an end helps: then no other of them is asked. The answer is kept
    until there is news: a line that is put off changes no other's.
    """
    x = line_of(v, v.groups[b].leaf)
    if not v.counts[RESERVES] or not is_asked(v) or not v.queues[x].in_list or v.times[NOW] < v.queues[x].put_off:
        return False
    job = current_job(v, b)
    if v.groups[b].is_framework or v.groups[b].revocable or v.group_cache[b].hopeless or job == NONE:
        return False
    if v.group_cache[b].asked != v.counts[NEWS] or v.group_cache[b].asked_job != job:
        v.group_cache[b].owing = _is_owing(v, b, x, job)
        v.group_cache[b].asked, v.group_cache[b].asked_job = v.counts[NEWS], job
    return v.group_cache[b].owing


cdef bint _is_owing(View v, i64 b, i64 x, i64 job) noexcept nogil:
    """Compute what :func:`_may_owe` returns for the oldest group of a line; the cheapest questions first."""
    cdef bint owed, first
    first = v.queues[x].reserved == 0 and v.times[NOW] - v.jobs[job].submitted_at >= lasts(v, b, job)
    if not first and v.queues[x].debt < patience(v, x):
        return False
    lack = lacks(v, b, x) if x == v.groups[b].leaf else 0.0
    if x == v.groups[b].leaf and _still_helps(v, b, x, False, lack) and _awaits_turn(v, b, x):
        return False
    if size_of(v, b) == 0.0 or (v.group_cache[b].keeping and served_tasks(v, b) > 0):
        return False
    owed = _is_owed(v, b, x)
    if not owed and not first:
        return False
    if _is_kept_out(v, b, what_stops(v, b)):
        return False
    if _are_reservations_used_up(v, x) or (v.group_cache[b].keeping and _are_all_reserved(v, b, NONE)):
        return False
    if not owed and due_in_order(v, x, b) <= LEAST_SHARE:
        return False
    return x != v.groups[b].leaf or not (_awaits_turn(v, b, x) and _one_end_helps(v, b, x, not owed, lack))


cdef bint _is_kept_out(View v, i64 b, i64 why) noexcept nogil:
    """Return True if what stops a group is not that there is no room."""
    return why != NOT_REACHED and why != NO_NODE and not (why == MAX_JOBS and v.groups[b].started > 0)  # then it skips to one that runs


cdef bint _awaits_turn(View v, i64 b, i64 x) noexcept nogil:
    """Return True if a line is left to its turn where one end makes room.

    It is not owed a whole task's work, or its siblings do not go by their shares, and their order stands.
    """
    return x == 0 or not compares_shares(v.queues[v.queues[x].parent].policy) or not is_owed_a_task(v, x, b, current_job(v, b))


cdef bint _is_owed(View v, i64 b, i64 x) noexcept nogil:
    """Return True if a line is owed more than what is reserved for it (rule: owed), not only in order."""
    reserved = v.queues[x].reserved * size_of(v, b) / max(1, v.groups[b].gang)
    return v.queues[x].debt >= patience(v, x) and due_to(v, x, b) > reserved + LEAST_SHARE


cdef bint _one_end_helps(View v, i64 b, i64 x, bint own, double lack) noexcept nogil:
    """Return True if a group's next fits once a task has ended whose line then lacks less than `lack` (or x's own, if `own`).

    Then no room has to be gathered (rule: gathered). What is free counts, but not where it has room for more of a leaf that runs there
    and waits, or is a framework's. Reservations are ignored, or each would make the next one necessary.
    """
    cdef bint free
    shape = v.groups[b].shape_row
    if v.groups[b].gang > 0 or _still_helps(v, b, x, own, lack):
        return v.groups[b].gang == 0
    for n in range(v.counts[NODES]):
        t, free = v.nodes[n].task if capacity_for(v, n, shape) > 0 else NONE, True
        while t != NONE:
            given = v.jobs[v.tasks[t].job].shape_row
            if _fits_with(v, n, shape, given, free) and _leaves_room(v, b, t, x, own, lack) and _lends(v, b, given):
                if _fits_with(v, n, shape, given, False):
                    v.group_cache[b].helped_by = t
                    return True
                free = not _is_refilled(v, n, x)
                if free:
                    return True
            t = v.tasks[t].after
    return False


cdef bint _still_helps(View v, i64 b, i64 x, bint own, double lack) noexcept nogil:
    """Return True if the last task found whose end makes room for a group's next, without what is free, would still do so."""
    t, shape = v.group_cache[b].helped_by, v.groups[b].shape_row
    if v.groups[b].gang > 0 or t >= v.len_tasks or not PLACED <= v.tasks[t].status <= REVOKING:
        return False
    n, given = v.tasks[t].node, v.jobs[v.tasks[t].job].shape_row
    return _fits_with(v, n, shape, given, False) and capacity_for(v, n, shape) > 0 and _leaves_room(v, b, t, x, own, lack) and _lends(v, b, given)


cdef bint _lends(View v, i64 b, i64 given) noexcept nogil:
    """Return True if as much is lent to a group as its next task needs, or is once a task of shape `given` has ended (rule: not lent)."""
    cdef i64 m = v.len_total
    needs, gives = &v.demand[v.groups[b].shape_row * m], &v.demand[given * m]
    for r in range(m if v.queues[0].has_nonlendable else 0):
        if needs[r] > 0 and is_ever_lent(v, b, r, 1):
            lent = lent_to(v, b, r)
            if needs[r] > max(lent, gives[r] + min(0, lent)):
                return False
    return True


cdef bint _leaves_room(View v, i64 b, i64 t, i64 x, bint own, double lack) noexcept nogil:
    """Return True if group b has the room: the task's line then lacks less than `lack`, or does not wait; or it is x and `own`."""
    j = v.tasks[t].job
    return own if line_of(v, v.jobs[j].queue) == x else not _goes_first(v, b, j, NULL) and not _takes_back(_lacks_without(v, j), lack)


cdef double lacks(View v, i64 b, i64 x) noexcept nogil:
    """Return what a line lacks of what a group needs, in parts."""
    return in_parts(v, x, lack_of(v, x, needs_of(v, v.groups[b].shape_row)))


cdef bint _is_refilled(View v, i64 n, i64 x) noexcept nogil:
    """Return True if a leaf that runs a task on a node, and is not of line x, waits and has room for another like it there."""
    t = v.nodes[n].task
    while t != NONE:
        q = v.jobs[v.tasks[t].job].queue
        if v.queues[q].pending > 0 and line_of(v, q) != x:
            if v.jobs[v.tasks[t].job].once or is_free(v, n, v.jobs[v.tasks[t].job].shape_row):
                return True
        t = v.tasks[t].after
    return False


cdef bint _fits_with(View v, i64 n, i64 shape, i64 given, bint free) noexcept nogil:
    """Return True if a task fits into what one of shape `given` leaves, and what is free on a node, if that counts."""
    cdef i64 m = v.len_total
    needs, gives, is_free = &v.demand[shape * m], &v.demand[given * m], &v.free[n * m]
    for r in range(m):
        if needs[r] > 0 and needs[r] - gives[r] - (is_free[r] if free else 0) > 0:
            return False
    return True


cdef bint _takes_back(double without, double lack) noexcept nogil:
    """Return True if an end is no help to who lacks so much of their part: its own line would lack as much (`_lacks_without`)."""
    return without > 0.0 and without > lack - LEAST_SHARE


cdef double _lacks_without(View v, i64 j) noexcept nogil:
    """Return what the line of job row j lacks, in parts, once its task, or whole gang, has ended; 0 if it waits for nothing."""
    x = line_of(v, v.jobs[j].queue)
    if v.queues[v.jobs[j].queue].pending == 0:
        return 0.0
    know(v, x)
    without = size_held(v, j) + v.queue_cache[x].lack
    return without / v.queue_cache[x].due_share if without > LEAST_SHARE else 0.0


cdef bint _has_claim(View v, i64 b) noexcept nogil:
    """Return True if others are preempted for a group's next: what is below its guarantee claims, and reserves nothing."""
    leaf = v.groups[b].leaf
    if not v.queues[leaf].guarded or v.queues[leaf].guarantee_timeout == INFINITY:
        return False
    mark = v.scratches
    first, _, _ = guarded(v, b, kept_by_queue(v))
    release(v, mark)
    return first != NONE


cdef void ask_oldest(View v, i64 x) noexcept nogil:
    """At the start of a cycle, ask whether the oldest group of a line on the list may owe; then it has its turn, though it was parked.

    Nobody is asked later in the cycle: that would depend on who is parked.
    """
    if not is_asked(v) or v.times[NOW] < v.queues[x].put_off:
        return
    b = _oldest_that_may_owe(v, x, x)
    v.queue_cache[x].oldest, v.queue_cache[x].asked = b, v.counts[CYCLE]
    if b != NONE and v.group_cache[b].parked:
        v.group_cache[b].parked = False
        set_may_fit(v, b, True)


cdef i64 _oldest_that_may_owe(View v, i64 q, i64 x) noexcept nogil:
    """Return the group that goes first, of those of a queue of line x that may owe, and that only lack room; NONE."""
    base, slots, found = v.queue_cache[q].base, v.queue_cache[q].slots, NONE
    if not v.queue_cache[q].inner:
        b = _first_that_lacks_room(v, q)
        return b if b != NONE and _may_owe(v, b) else NONE
    for place in range(base + slots, base + 2 * slots if is_by_jobs(v, q) else 0):
        b = _oldest_that_may_owe(v, v.trees[place].best, x) if v.trees[place].best != NONE else NONE
        if b != NONE and (found == NONE or _is_older(v, x, b, found)):
            found = b
    return found


cdef i64 _first_that_lacks_room(View v, i64 q) noexcept nogil:
    """Return the group of a leaf that goes first, of those that only lack room; of a strict leaf, the first of all; NONE."""
    base, slots, found = v.queue_cache[q].base, v.queue_cache[q].slots, NONE
    first = v.trees[base + 1].best
    if first == NONE or v.queues[q].strict or not _is_kept_out(v, first, what_stops(v, first)):
        return first
    for place in range(base + slots, base + 2 * slots):
        b = v.trees[place].best
        if b != NONE and not _is_kept_out(v, b, what_stops(v, b)) and (found == NONE or _is_older(v, q, b, found)):
            found = b
    return found


cdef bint _is_older(View v, i64 x, i64 b, i64 other) noexcept nogil:
    """Return True if a group of line x goes before another."""
    if v.queues[x].policy == BY_PRIORITY and v.groups[b].priority != v.groups[other].priority:
        return v.groups[b].priority > v.groups[other].priority
    return v.group_cache[b].number < v.group_cache[other].number


cdef bint reserves(View v, i64 b, Plan *found) noexcept nogil:
    """Decide what to do for a group that is owed: reserve, end a reservation that is in the way, or, if False, pass it over."""
    cdef bint paid, awaits
    now, x, mark, cost = v.times[NOW], line_of(v, v.groups[b].leaf), v.scratches, floats(v, v.len_total)
    count, start = plan(v, b, x, now, cost)
    paid = count > 0 and start > now and (is_paid(v, cost, v.queues[x].wasted, now) or has_saved(v, x, in_shares(v, cost), now))
    release(v, mark)
    if paid:
        found[0] = Plan(KEEP, count, current_job(v, b), True, start, 0, next_number(v), 0)
        return True
    awaits = _awaits_turn(v, b, x) and _one_end_helps(v, b, x, True, INFINITY)
    h = _in_the_way(v, b, x, now) if not awaits else NONE
    if h != NONE:
        found[0] = Plan(DROP, 0, h, True, now, 0, NONE, 0)
        return True
    v.queue_cache[x].oldest, v.group_cache[v.counts[PASSED]].passed_list = NONE, current_job(v, b)
    v.counts[PASSED] += 1
    return False


cdef i64 _in_the_way(View v, i64 b, i64 x, double now) noexcept nogil:
    """Return a hold of a line that is owed clearly less, if without such holds on its nodes a group has room (rule: gives way); NONE."""
    cdef bint some = False, paid
    mark, cost, found = v.scratches, floats(v, v.len_total), NONE
    less, here = flags(v, v.counts[HOLDS]), flags(v, v.counts[NODES])
    for h in range(v.counts[HOLDS]):
        owed = v.queues[line_of(v, v.groups[v.holds[h].group].leaf)].debt
        if v.holds[h].kind == RESERVATION and v.queues[x].debt > GIVES_WAY * max(0.0, owed):
            less[h], v.holds[h].kind, some = True, ABSENT, True
    if some:
        count, start = plan(v, b, x, now, cost)
    else:
        count, start = 0, now
    for k in range(count):
        here[v.planned_node[k]] = True
    for h in range(v.counts[HOLDS]):
        if less[h] and not here[v.holds[h].node]:
            v.holds[h].kind = RESERVATION
    paid = count > 0 and (start <= now or is_paid(v, cost, v.queues[x].wasted, now) or has_saved(v, x, in_shares(v, cost), now))
    for h in range(v.counts[HOLDS]):
        if less[h] and v.holds[h].kind == ABSENT:
            v.holds[h].kind = RESERVATION
            if paid and found == NONE:
                found = h
    release(v, mark)
    return found


cdef Plan review(View v, double now) noexcept nogil:
    """Decide which reservation to drop or to plan again, if any (rule: ends).

    Whether it is still owed is asked in a moment in which lines are, and once it is late or may idle only an allowance. In a strict leaf
    only the first group may start: the reservation of any other ends at once.
    """
    cdef bint asked, behind
    late, h, asked = NONE, 0, is_asked(v)
    while h < v.counts[HOLDS]:
        b = v.holds[h].group
        behind = _is_behind(v, b)
        if v.holds[h].kind == RESERVATION and (asked or behind or now > v.holds[h].start or v.holds[h].allowance > 0.0):
            why = what_stops(v, b)
            if behind or _is_kept_out(v, b, why) or _is_over(v, h, now):
                return Plan(DROP, 0, h, True, now, 0, NONE, 0)
            if _is_late(v, h, why, now) and (late == NONE or _owes_more(v, h, late)):
                late = h
        h = next_promise(v, h)
    h = _least_owed(v) if is_overspent(v, now) else NONE
    if h != NONE:
        return Plan(DROP, 0, h, True, now, 0, NONE, 0)
    return Plan(SERVE, 0, NONE, False, now, 0, NONE, 0) if late == NONE else _plan_again(v, late, now)


cdef bint _is_behind(View v, i64 b) noexcept nogil:
    """Return True if another group goes first in a strict leaf: nobody would use the room of this one."""
    return v.queues[v.groups[b].leaf].strict and v.trees[v.queue_cache[v.groups[b].leaf].base + 1].best != b


cdef bint _is_late(View v, i64 h, i64 why, double now) noexcept nogil:
    """Return True if a reservation's start has passed and its job, stopped by `why`, has no room."""
    return now > v.holds[h].start and now >= v.holds[h].planned + MIN_FORECAST_SECONDS and (why == NO_NODE or not is_there(v, h))


cdef i64 _least_owed(View v) noexcept nogil:
    """Return the reservation of the least-owed line that the budget pays for, if that idles anything; NONE."""
    least, h = NONE, 0
    while h < v.counts[HOLDS]:
        if is_paid_for(v, h) and _idles(v, h) and (least == NONE or not _owes_more(v, h, least)):
            least = h
        h = next_promise(v, h)
    return least


cdef bint _idles(View v, i64 h) noexcept nogil:
    """Return True if a promise idles something, or is expected to; `h` is its first hold."""
    for i in range(h * v.len_total, next_promise(v, h) * v.len_total):
        if v.idle[i] > 0 or v.cost[i] > v.idled[i]:
            return True
    return False


cdef bint _owes_more(View v, i64 h, i64 k) noexcept nogil:
    """Return True if the line of one hold is owed more than that of another, or as much and it was made before."""
    one, other = line_of(v, v.groups[v.holds[h].group].leaf), line_of(v, v.groups[v.holds[k].group].leaf)
    if v.queues[one].debt != v.queues[other].debt:
        return v.queues[one].debt > v.queues[other].debt
    return v.holds[h].made < v.holds[k].made


cdef bint _is_over(View v, i64 h, double now) noexcept nogil:
    """Return True if a reservation has idled all its allowance, or its line is not owed it any more and has none that starts later."""
    b = v.holds[h].group
    if v.holds[h].allowance > 0.0:
        return idled_by(v, h, now) > v.holds[h].allowance
    if v.holds[h].in_order:
        return False
    x, k = line_of(v, v.groups[b].leaf), 0
    while _promises_of(v, x) > 1 and k < v.counts[HOLDS]:
        if k != h and v.holds[k].kind == RESERVATION and line_of(v, v.groups[v.holds[k].group].leaf) == x:
            if v.holds[k].start > v.holds[h].start or (v.holds[k].start == v.holds[h].start and k > h):
                return False
        k = next_promise(v, k)
    if _are_all_reserved(v, b, h):
        return True
    return due_to(v, x, b) <= (<double>v.queues[x].reserved / max(1, v.groups[b].gang) - HYSTERESIS) * size_of(v, b)


cdef bint _are_all_reserved(View v, i64 b, i64 but) noexcept nogil:
    """Return True if a group has a reservation for each task, or gang, that waits, without that of hold `but`."""
    tasks, h = 0, 0
    while h < v.counts[HOLDS] and (but == NONE or _promises_of(v, line_of(v, v.groups[b].leaf)) > 1):
        if v.holds[h].group == b and v.holds[h].kind == RESERVATION and h != but:
            tasks += max(1, v.groups[b].gang)
        h = next_promise(v, h)
    return waiting_tasks(v, b, tasks + 1) <= tasks


cdef Plan _plan_again(View v, i64 h, double now) noexcept nogil:
    """Decide again when and where a reservation starts; drop it if it never does, or cannot be paid."""
    b = v.holds[h].group
    count, start, paid = _plan_without(v, h, b, now)
    if count == 0 or start <= now or not (paid or v.holds[h].allowance > 0.0):
        return Plan(DROP, 0, h, True, now, 0, NONE, 0)
    return Plan(KEEP, count, current_job(v, b), True, start, v.holds[h].slips + (now > v.holds[h].start), v.holds[h].number, 0)


cdef (i64, double, bint) _plan_without(View v, i64 h, i64 b, double now) noexcept nogil:
    """Plan a group's reservation as if that of hold h were not there; see `plan`. Also return whether the budget pays for it."""
    cdef bint paid
    last, mark, cost = next_promise(v, h), v.scratches, floats(v, v.len_total)
    for k in range(h, last):
        v.holds[k].kind = ABSENT
    count, start = plan(v, b, line_of(v, v.groups[b].leaf), now, cost)
    paid = count > 0 and is_paid(v, cost, 0.0, now)
    for k in range(h, last):
        v.holds[k].kind = RESERVATION
    release(v, mark)
    return count, start, paid


cdef (i64, double) plan(View v, i64 b, i64 x, double now, double *cost) noexcept nogil:
    """Plan a group's reservation (see `_plan_with`), and mark the leaves whose ends do not count (`apart`).

    - A line that is owed a whole task's work, and may stay (`_may_stay`), has room for which nothing idles, by ends of its own tasks and of
      all but those of who is owed more, and would lack some of their part. So room that was gathered stays together until who is owed as
      much has had it (rule: kept together).
    - Else ends count that leave it their room (rule: helps): of lines that do not wait, would have their part, or are not owed more and
      would then lack less.
    - Else ends of all but those who are owed more, and its own. If one end of any would do, it has that in its turn, unless it is owed a whole
      task's work; then its own do not count (rule: most-owed).
    """
    cdef bint some = False, one, owed, own = v.groups[b].gang > 0 and in_gangs(v, x) > 0.0
    lack, mark = lacks(v, b, x), v.scratches
    kept, taken = flags(v, v.counts[QUEUES]), flags(v, v.counts[QUEUES])
    before, gone = flags(v, v.counts[QUEUES]), relied_on(v, b)  # `before`: who is owed more, and would lack some of its part
    for q in range(v.counts[QUEUES]):
        taken[q] = not own and v.queues[q].tasks > 0 and line_of(v, q) == x
        some |= taken[q]
    for n in range(v.counts[NODES]):
        t = v.nodes[n].task
        while t != NONE:
            q = v.jobs[v.tasks[t].job].queue
            if not kept[q] and _goes_first(v, b, v.tasks[t].job, NULL):
                taken[q] = kept[q] = True
            without = _lacks_without(v, v.tasks[t].job) if not (taken[q] and before[q]) else 0.0
            if without > 0.0 and _is_owed_more(v, line_of(v, q), x):
                before[q] = taken[q] = some = True
            elif _takes_back(without, lack) and not (own and line_of(v, q) == x):
                taken[q] = some = True
            t = v.tasks[t].after
    count, start, owed = 0, INFINITY, not _awaits_turn(v, b, x)
    if owed and _may_stay(v, b, x):
        for q in range(v.counts[QUEUES]):
            v.queue_cache[q].apart = kept[q] or before[q]
        count, start = _plan_with(v, b, now, cost, gone)
        if count > 0 and (start <= now or in_shares(v, cost) > LEAST_SHARE):
            count = 0
    if count == 0:
        for q in range(v.counts[QUEUES]):
            v.queue_cache[q].apart = taken[q]
        count, start = _plan_with(v, b, now, cost, gone)
        if count == 0 and some:
            one = _one_end_helps(v, b, x, True, INFINITY)
            if not one or owed:
                for q in range(v.counts[QUEUES]):
                    v.queue_cache[q].apart = taken[q] and (one if line_of(v, q) == x else kept[q] or before[q])
                count, start = _plan_with(v, b, now, cost, gone)
    release(v, mark)
    return count, start


cdef bint _may_stay(View v, i64 b, i64 x) noexcept nogil:
    """Return True if room may stay together for a line: another waits, it lacks some of its part, or would without one of its tasks."""
    return v.queues[0].waits > v.queues[x].pending and lack_of(v, x, needs_of(v, v.groups[b].shape_row)) + size_of(v, b) > LEAST_SHARE


cdef bint _is_owed_more(View v, i64 y, i64 x) noexcept nogil:
    """Return True if line y is owed more than line x, by more than a moment: debts are not all counted in the same one."""
    return v.queues[y].debt > v.queues[x].debt + MIN_FORECAST_SECONDS


cdef (i64, double) _plan_with(View v, i64 b, double now, double *cost, i64 *gone) noexcept nogil:
    """Find nodes and a start for a group's next task, or whole gang; set what it is expected to idle, by resource.

    `gone` is as in :func:`relied_on`.

    Returns
    -------
    count : int
        Length of `planned_node`, rising, and `planned_tasks`. 0 if it never fits.
    start : float
        Seconds, as in the facts; `now` if it fits at once.
    """
    mark = v.scratches
    ends = <Ranked *>scratch(v, v.queues[0].tasks * sizeof(Ranked))
    if v.groups[b].gang > 0:
        count, start = _plan_gang(v, b, now, cost, ends, gone)
    else:
        count, start = _plan_task(v, b, now, cost, ends, gone)
    release(v, mark)
    return count, start


cdef (i64, double) _plan_task(View v, i64 b, double now, double *cost, Ranked *ends, i64 *gone) noexcept nogil:
    """Find the node and start with the least loss for a task; see `_plan_with`."""
    cdef i64 m = v.len_total
    shape, size, best, start = v.groups[b].shape_row, size_of(v, b), INFINITY, INFINITY
    room, here, lent = integers(v, m), floats(v, m), _lent_at(v, b, now, ends, gone)
    for n in range(v.counts[NODES]):
        if capacity_for(v, n, shape) == 0:
            continue
        _open_to(v, n, NONE, room)
        at, k, left = now, 0, 0
        if _fits(v, room, shape) == 0:
            if not _fits_once_ended(v, n, room, shape):
                continue
            _open_to(v, n, NONE, room)
            left = _ends_on(v, b, n, NONE, now, ends, gone)
            while k < left and _fits(v, room, shape) == 0:
                at, t = ends[k].key, ends[k].row
                _give_back_task(v, t, room)
                k += 1
            if _fits(v, room, shape) == 0:
                continue
            _open_to(v, n, NONE, room)
        at = max(at, lent)
        if size * (at - now) >= best:
            continue
        for r in range(m):
            here[r] = 0.0
        _expect_idle(v, 1, shape, room, ends, left, now, at, here)
        loss = in_shares(v, here) + size * (at - now)
        if loss < best:
            best, start, v.planned_node[0], v.planned_tasks[0] = loss, at, n, 1
            memcpy(cost, here, m * sizeof(double))
    return 1 if best < INFINITY else 0, start


cdef bint _fits_once_ended(View v, i64 n, i64 *room, i64 shape) noexcept nogil:
    """Return True if a task fits on a node once all have ended that a plan may count on, whenever that is; `room` grows by these."""
    t = v.nodes[n].task
    while t != NONE:
        if not v.queue_cache[v.jobs[v.tasks[t].job].queue].apart:
            _give_back_task(v, t, room)
        t = v.tasks[t].after
    return _fits(v, room, shape) > 0


cdef (i64, double) _plan_gang(View v, i64 b, double now, double *cost, Ranked *ends, i64 *gone) noexcept nogil:
    """Find the nodes that are soonest for a gang; see `_plan_with`."""
    cdef i64 m = v.len_total
    shape, wanted, room = v.groups[b].shape_row, tasks_next(v, b), integers(v, m)
    count, start, chosen, mark = 0, now, integers(v, v.counts[NODES]), v.scratches
    lent = _lent_at(v, b, now, ends, gone)
    steps = <Ranked *>scratch(v, (v.queues[0].tasks + v.counts[NODES]) * sizeof(Ranked))
    for n in range(v.counts[NODES]):
        most = min(wanted, capacity_for(v, n, shape))
        if most == 0:
            continue
        _open_to(v, n, NONE, room)
        left, fits, k, at = _ends_on(v, b, n, NONE, now, ends, gone), 0, 0, now
        while True:
            more = min(most, _fits(v, room, shape)) - fits
            if more > 0:
                steps[count].key, steps[count].place, steps[count].row = at, n, more
                count, fits = count + 1, fits + more
            if k == left or fits == most:
                break
            at = ends[k].key
            _give_back_task(v, ends[k].row, room)
            k += 1
    qsort(steps, count, sizeof(Ranked), compare_ranked)
    for k in range(count):
        if wanted > 0:
            start, more = steps[k].key, min(wanted, steps[k].row)
            chosen[steps[k].place] += more
            wanted -= more
    release(v, mark)
    start = max(start, lent)
    if wanted > 0 or start == INFINITY:
        return 0, INFINITY
    count = 0
    for r in range(m):
        cost[r] = 0.0
    for n in range(v.counts[NODES]):
        if chosen[n] > 0:
            v.planned_node[count], v.planned_tasks[count], count = n, chosen[n], count + 1
            _open_to(v, n, NONE, room)
            left = _ends_on(v, b, n, NONE, now, ends, gone)
            if gone != NULL and not _relies_on(v, chosen[n], shape, room, ends, left, gone):
                return 0, INFINITY
            _open_to(v, n, NONE, room)
            _expect_idle(v, chosen[n], shape, room, ends, left, now, start, cost)
    return count, start


cdef double _lent_at(View v, i64 b, double now, Ranked *ends, i64 *gone) noexcept nogil:
    """Return when, by the ends that count, as much is lent to a group as its next task, or whole gang, needs beside all holds; inf if never."""
    cdef i64 m = v.len_total
    if not v.queues[0].has_nonlendable:
        return now
    mark, shape, count, room = v.scratches, v.groups[b].shape_row, tasks_next(v, b), integers(v, m)
    for r in range(m):
        room[r] = lent_to(v, b, r)
        for h in range(v.counts[HOLDS]):
            room[r] -= v.amount[h * m + r] if v.holds[h].kind == RESERVATION else 0
        if not is_ever_lent(v, b, r, count):  # then it may use what others do not lend
            room[r] = count * v.demand[shape * m + r]
    at, k, left = now, 0, 0
    for n in range(v.counts[NODES]):
        left += _ends_on(v, b, n, NONE, now, ends + left, NULL)
    qsort(ends, left, sizeof(Ranked), compare_ranked)
    left = left if gone == NULL else _without_kept(v, b, ends, left, gone)
    while k < left and _fits(v, room, shape) < count:
        at = ends[k].key
        _give_back_task(v, ends[k].row, room)
        k += 1
    if _fits(v, room, shape) < count:
        at = INFINITY
    release(v, mark)
    return at


cdef i64 _ends_on(View v, i64 b, i64 n, i64 own, double now, Ranked *ends, i64 *gone) noexcept nogil:
    """List the ends of tasks on a node that a group's hold (NONE: a plan) counts on, the first first; return how many they are.

    Ends whose room a guarantee takes back are left out; `gone` is as in :func:`relied_on`. For a line that runs nothing, no task is
    expected to outlast the longest known (rule: soon), and one that has, to last more than as long again.
    """
    cdef bint counts, soon
    count, t, part, soon = 0, v.nodes[n].task, part_left(v, n), v.queues[line_of(v, v.groups[b].leaf)].tasks == 0
    while t != NONE:
        q = v.jobs[v.tasks[t].job].queue
        counts = not v.queue_cache[q].apart if own == NONE else counts_on(v, own, q)
        at = expected_end(v, t, now, part) if counts else INFINITY
        if counts and soon:
            longest = longest_known(v, v.tasks[t].job)
            age = max(0.0, now - v.tasks[t].started_at) if v.tasks[t].status == RUNNING else 0.0
            at = min(at, now + max(MIN_FORECAST_SECONDS, longest - age if age < longest else age))
        if at < INFINITY:
            ends[count].key, ends[count].place, ends[count].row = at, t, t
            count += 1
        t = v.tasks[t].after
    qsort(ends, count, sizeof(Ranked), compare_ranked)
    return count if gone == NULL else _without_kept(v, b, ends, count, gone)


cdef void _open_to(View v, i64 n, i64 own, i64 *room) noexcept nogil:
    """Set what a node has free, less the amounts of all its holds but one (NONE: of all)."""
    cdef i64 m = v.len_total
    memcpy(room, &v.free[n * m], m * sizeof(i64))
    h = v.nodes[n].hold
    while h != NONE:
        if h != own and v.holds[h].kind != ABSENT:
            for r in range(m):
                room[r] -= v.amount[h * m + r]
        h = v.holds[h].after


cdef i64 _fits(View v, i64 *room, i64 shape) noexcept nogil:
    """Return how many tasks of a shape fit into room."""
    cdef i64 m = v.len_total
    most = INFINITE
    for r in range(m):
        if v.demand[shape * m + r] > 0:
            most = min(most, floor_div(room[r], v.demand[shape * m + r]))
    return max(0, most)


cdef void _give_back_task(View v, i64 t, i64 *room) noexcept nogil:
    """Add a task's demand to room."""
    cdef i64 m = v.len_total
    for r in range(m):
        room[r] += v.demand[v.jobs[v.tasks[t].job].shape_row * m + r]


cdef void _expect_idle(
    View v, i64 count, i64 shape, i64 *room, Ranked *ends, i64 left, double now, double start, double *cost
) noexcept nogil:
    """Add to `cost` what room for tasks of a shape idles until a start; `room` is open now, and becomes what is open then."""
    cdef i64 m = v.len_total
    before = now
    for k in range(left + 1):
        until = min(start, ends[k].key) if k < left else start
        for r in range(m):
            cost[r] += max(0, min(room[r], count * v.demand[shape * m + r])) * (until - before)
        before = until
        if k == left or ends[k].key >= start:
            return
        _give_back_task(v, ends[k].row, room)


cdef void set_cost(View v, i64 h, double at) noexcept nogil:
    """Compute what a hold is expected to have idled by its start."""
    cdef i64 m = v.len_total
    mark, n, b = v.scratches, v.holds[h].node, v.holds[h].group
    ends, room = <Ranked *>scratch(v, tasks_on(v, n) * sizeof(Ranked)), integers(v, m)
    _open_to(v, n, h, room)
    for r in range(m):
        v.cost[h * m + r] = v.idled[h * m + r]
    left = _ends_on(v, b, n, h, at, ends, NULL)
    _expect_idle(v, v.holds[h].tasks, v.groups[b].shape_row, room, ends, left, at, v.holds[h].start, &v.cost[h * m])
    v.times[FUNDED] = -INFINITY
    release(v, mark)


cdef double part_left(View v, i64 n) noexcept nogil:
    """Return the chance that each task of a node may outlast its forecast, so that all end in time at NODE_FREE_ODDS."""
    return 1.0 - NODE_FREE_ODDS ** (1.0 / max(1, tasks_on(v, n)))


cdef i64 tasks_on(View v, i64 n) noexcept nogil:
    """Return how many tasks a node has."""
    count, t = 0, v.nodes[n].task
    while t != NONE:
        count += 1
        t = v.tasks[t].after
    return count


cdef double expected_end(View v, i64 t, double now, double part) noexcept nogil:
    """Return when all but a fraction `part` of tasks like this have ended; an earlier forecast stays until it is over."""
    tasks = v.tasks
    if now < tasks[t].until < INFINITY:
        return tasks[t].until
    if tasks[t].status != PLACED and tasks[t].status != RUNNING:  # it is being stopped
        return now + MIN_FORECAST_SECONDS
    j = tasks[t].job
    age = max(0.0, now - tasks[t].started_at) if tasks[t].status == RUNNING else 0.0
    tails = tails_of(v, j)
    lasts = max(age, min(v.jobs[j].time_limit, duration(tails.of, tails.longest, age, part, INFINITY)))
    return now + max(MIN_FORECAST_SECONDS, lasts - age)


cpdef (double, double) next_step(View v, double event, bint claims, double now, double happened) noexcept nogil:
    """Return when the next step is due, and when something happened last by then. Nothing comes from outside before `event`.

    A step is due at the event, when a claim is (if `claims`), and when a reservation is late.
    """
    due = min(event, next_claim(v, now)) if claims else event
    review = _next_review(v, due, now, happened)
    if due <= review:
        return due, due
    return review, happened


cdef double _next_review(View v, double before, double now, double happened) noexcept nogil:
    """Return the time of the next review of reservations if nothing happens until then: one is late, or the budget is overspent.

    Only one that is earlier than `before` need be exact.

    The first is at least MIN_FORECAST_SECONDS away, as in the live scheduler (`IDLE_SECONDS` of :mod:`fairlead.service.loop`),
    and further the longer nothing has happened.
    """
    holds, first = v.holds, INFINITY
    for h in range(v.counts[HOLDS]):
        if holds[h].kind == RESERVATION and holds[h].start < before:
            at = max(nextafter(holds[h].start, INFINITY), holds[h].planned + MIN_FORECAST_SECONDS)
            if now < at < first:
                first = at
    first = max(first, now + max(MIN_FORECAST_SECONDS, REVIEW_FRACTION * (now - happened)))
    if v.times[IDLE_BUDGET] <= 0.0 or min(first, before) <= v.times[FUNDED]:
        return first
    return min(first, max(overspent_at(v, now), now) + MIN_FORECAST_SECONDS)
