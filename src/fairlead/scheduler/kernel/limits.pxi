"""Limits: which bound of a queue on its path a group's next task, or whole gang, would exceed.

Three kinds of bounds stop a group, in this order:

1. **limit** of a queue, by resource: LIMIT. Use by revocable jobs does not count against others. In the last
   pass, revocable jobs ignore limits.
2. **max_tasks, max_jobs** of a queue: MAX_TASKS, MAX_JOBS.
3. **non-lendable quota** of other queues: NONLENDABLE. It is guaranteed to them, idle, and not lent. A task that is
   larger than all that is ever lent to its queue may use it, one such at a time.

What is kept for claims of other groups counts as used in all three. In the third, so does what is kept for reservations that go before
a group: idle quota that is not lent always fits beside all reserved room, so that neither waits for the other.

The file ends with :func:`below_guarantee`, a measure that reports use: queues with an open claim for their guarantee.
"""


cpdef i64 over_limits(View v, i64 b) noexcept nogil:
    """Return which bound on the path to the root a group's next task, or whole gang, would exceed; NOT_REACHED if none."""
    why = what_stops(v, b)
    return NONLENDABLE if why == NO_NODE else why


cdef i64 what_stops(View v, i64 b) noexcept nogil:
    """Return :func:`over_limits`, but NO_NODE for lack of what is lent to the group and in use now: it waits for that as for room on a node."""
    cdef i64 m = v.len_total
    cdef bint beyond
    demand, beyond = &v.demand[v.groups[b].shape_row * m], v.counts[LAST_PASS] == 1 and v.groups[b].revocable
    count = tasks_left(v, b) if v.groups[b].gang > 0 else 1
    q = NONE if beyond else v.groups[b].leaf
    while q != NONE:
        for r in range(m):
            if demand[r] > 0 and v.limit[q * m + r] != UNLIMITED:
                room = v.limit[q * m + r] - v.used[q * m + r] + (0 if v.groups[b].revocable else v.spare[q * m + r])
                if demand[r] > floor_div(room - _kept_for_others(v, b, q, r), count):  # avoids overflow
                    return LIMIT
        q = v.queues[q].parent
    why = over_counts(v, b)
    return _exceeds_lent_now(v, b, count) if why == NOT_REACHED and v.queues[0].has_nonlendable else why


cdef i64 _kept_for_others(View v, i64 b, i64 q, i64 r) noexcept nogil:
    """Return how much of a resource is kept for claims below a queue on the group's path, less the group's own."""
    cdef i64 m = v.len_total
    kept = v.claimed[q * m + r]
    if kept > 0:
        kept -= served_tasks(v, b) * v.demand[v.groups[b].shape_row * m + r]
    return kept


cdef i64 over_counts(View v, i64 b) noexcept nogil:
    """Return which bound on tasks or jobs a group's next task, or whole gang, would exceed; NOT_REACHED if none.

    Tasks that room is kept for, for claims of other groups, count as running.
    """
    cdef bint kept = v.counts[HOLDS] > 0
    count = tasks_left(v, b) if v.groups[b].gang > 0 else 1
    q = v.groups[b].leaf
    while q != NONE:
        tasks, jobs = v.queues[q].tasks, v.queues[q].jobs
        if kept and _is_counted(v, q):
            more = kept_beside(v, b, q)
            tasks, jobs = tasks + more[0], jobs + more[1]
        if tasks + count > v.queues[q].max_tasks:
            return MAX_TASKS
        if jobs >= v.queues[q].max_jobs and not is_started(v, b):
            return MAX_JOBS
        q = v.queues[q].parent
    return NOT_REACHED


cdef bint _is_counted(View v, i64 q) noexcept nogil:
    """Return True if a queue has a bound on running tasks or jobs."""
    return v.queues[q].max_tasks < UNLIMITED or v.queues[q].max_jobs < UNLIMITED


cpdef (i64, i64) kept_beside(View v, i64 b, i64 q) noexcept nogil:
    """Return for how many tasks and new jobs below a queue room is kept, for claims of groups other than b."""
    tasks, jobs = 0, 0
    for h in range(v.counts[HOLDS]):
        other = v.holds[h].group
        if other != b and v.holds[h].kind != RESERVATION and is_at_or_below(v, v.groups[other].leaf, q):
            tasks += v.holds[h].tasks
            if h == 0 or v.holds[h - 1].group != other:  # the holds of a group are adjacent
                jobs += _jobs_to_begin(v, other, served_tasks(v, other))
    return tasks, jobs


cdef i64 _jobs_to_begin(View v, i64 b, i64 tasks) noexcept nogil:
    """Return how many jobs start with the next `tasks` tasks of a group."""
    cdef bint started
    count, j = 0, current_job(v, b)
    left, started = tasks_left(v, b), is_started(v, b)
    while j != NONE and tasks > 0:
        count += (not started)
        tasks -= left
        j = v.jobs[j].after
        if j != NONE:
            left, started = startable(v, j), v.jobs[j].holding > 0
    return count


cdef i64 startable_of(View v, i64 b, i64 most, i64 *kept) noexcept nogil:
    """Return how many tasks of a group, at most `most`, may start by bounds on running tasks and jobs. Not valid in a cycle.

    `kept`, shape (groups,), is for how many tasks of each group room is kept for claims; those of other groups count as
    running, and tasks that are stopping as ended. If it is NULL, all that run or stop count.
    """
    tasks, jobs, q = most, INFINITE, v.groups[b].leaf
    while q != NONE:
        if _is_counted(v, q):
            others, begun = 0, 0
            if kept != NULL:
                ends, over = _leaving(v, q)
                others, begun = -ends, -over
            for other in range(v.counts[GROUPS] if kept != NULL else 0):
                if kept[other] > 0 and other != b and is_at_or_below(v, v.groups[other].leaf, q):
                    others += kept[other]
                    begun += _jobs_to_begin(v, other, kept[other])
            tasks = min(tasks, v.queues[q].max_tasks - v.queues[q].tasks - others)
            jobs = min(jobs, v.queues[q].max_jobs - v.queues[q].jobs - begun)
        q = v.queues[q].parent
    found, j = 0, v.groups[b].head
    while j != NONE and found < tasks:
        if v.jobs[j].holding > 0 or jobs > 0:
            if v.jobs[j].holding == 0:
                jobs -= 1
            found += startable(v, j)
        elif v.queues[v.groups[b].leaf].strict:
            break
        j = v.jobs[j].after
    return max(0, min(found, tasks))


cdef (i64, i64) _leaving(View v, i64 q) noexcept nogil:
    """Return how many tasks below a queue are stopping, and how many jobs hold only such tasks, and give their place back."""
    cdef bint keeps
    tasks, jobs = 0, 0
    for j in range(v.len_jobs if v.counts[LEAVING] > 0 else 0):
        left = v.jobs[j].holding
        if left == 0 or not is_at_or_below(v, v.jobs[j].queue, q):
            continue
        keeps = v.jobs[j].waiting > 0  # one that waits, or waits again, may start before the last has ended
        for t in range(v.jobs[j].first, v.jobs[j].first + v.jobs[j].tasks):
            status = v.tasks[t].status
            if left > 0 and PLACED <= status <= REVOKING:
                left -= 1
                if status > RUNNING:
                    tasks += 1
                keeps |= status <= RUNNING or (status == REVOKING and v.jobs[j].holding > 1)
        if not keeps:
            jobs += 1
    return tasks, jobs


cdef i64 _exceeds_lent_now(View v, i64 b, i64 count) noexcept nogil:
    """Return what stops `count` tasks of a group for what is not lent: NO_NODE, or NONLENDABLE if they need more than is ever lent."""
    cdef i64 m = v.len_total
    demand, why = &v.demand[v.groups[b].shape_row * m], NOT_REACHED
    for r in range(m):
        if demand[r] > 0:
            lent, kept = lent_to(v, b, r), _kept_for_others(v, b, 0, r)
            reserved = reserved_from(v, b, r) if v.counts[HOLDS] > 0 else 0
            if demand[r] <= floor_div(open_to(v, b, r, lent, reserved), count):  # avoids overflow
                continue
            if not is_ever_lent(v, b, r, count) and (lent < 0 or kept > 0):
                return NONLENDABLE
            if is_ever_lent(v, b, r, count) or reserved > 0:
                why = NO_NODE
    return why


cpdef i64 open_to(View v, i64 b, i64 r, i64 lent, i64 reserved) noexcept nogil:
    """Return how much of a resource a group may use now of what is `lent` to it, beside what is `reserved` for others.

    Its own queues' idle quota, which only they may use, is free beside all reserved room, and even if a task that is larger
    than what is ever lent uses some of others': else that task would be preempted for it, and placed again.
    """
    others = nonlendable_for(v, v.groups[b].leaf, r)
    return max(lent - reserved, min(lent + others, v.idle_nonlendable_below[r] - others))


cdef bint lacks_lent(View v, i64 b) noexcept nogil:
    """Return True if nothing but what others do not lend, or what is reserved beside it, stops a group."""
    return v.queues[0].has_nonlendable and what_stops(v, b) == NO_NODE


cdef i64 lent_to(View v, i64 b, i64 r) noexcept nogil:
    """Return how much of a resource is lent to a group now: free, and neither kept for claims of others nor their quota."""
    return v.total[r] - v.used[0 * v.len_total + r] - _kept_for_others(v, b, 0, r) - nonlendable_for(v, v.groups[b].leaf, r)


cdef bint is_ever_lent(View v, i64 b, i64 r, i64 count) noexcept nogil:
    """Return True if a group is lent as much of a resource as `count` of its tasks need when nobody uses anything."""
    cdef i64 m = v.len_total
    return v.demand[v.groups[b].shape_row * m + r] <= floor_div(v.total[r] - v.never_lent[v.groups[b].leaf * m + r], count)


cpdef i64 reserved_from(View v, i64 b, i64 r) noexcept nogil:
    """Return how much of a resource reservations keep from a group on all nodes together; what binds it is as on one node.

    If its own reserved room is there, those that go before it; else all others that start before its task has ended.
    """
    own = own_hold(v, b, False) if v.group_cache[b].keeping else NONE
    if own != NONE and v.holds[own].kind != RESERVATION:
        return 0
    until, asks = INFINITY, NONE
    if own == NONE and not v.groups[b].is_framework:
        until, asks = ended_by(v, b), b if v.queues[v.groups[b].leaf].guarded else NONE
    amount = 0
    for h in range(v.counts[HOLDS]):
        if v.nodes[v.holds[h].node].hold == h:
            amount += reserved_on(v, v.holds[h].node, r, until, own, asks)
    return amount


cdef bint exceeds_lent(View v, i64 b, i64 r, i64 count, i64 lent, i64 kept) noexcept nogil:
    """Return True if `count` tasks of a group may not run in what is `lent` of a resource now, whatever is reserved.

    If they are larger than what is ever lent, they may, unless others like that run (then it is negative), or room is
    `kept` for claims.
    """
    if v.demand[v.groups[b].shape_row * v.len_total + r] <= floor_div(lent, count):  # avoids overflow
        return False
    return lent < 0 or kept > 0 or is_ever_lent(v, b, r, count)


def may_start(View v, i64 b, i64 most, const i64[::1] kept):
    """Return :func:`startable_of`."""
    return startable_of(v, b, most, <i64 *>&kept[0])


cdef void set_idle_nonlendable(View v, i64 leaf) noexcept nogil:
    """Update the idle non-lendable quota of a leaf and all queues above, after its use or what is kept for its claims changed."""
    cdef i64 m = v.len_total
    q = leaf
    while q != NONE:
        p = v.queues[q].parent
        for r in range(m):
            now = max(0, v.nonlendable[q * m + r] - v.used[q * m + r] - v.claimed[q * m + r], v.idle_nonlendable_below[q * m + r])
            if p != NONE:
                v.idle_nonlendable_below[p * m + r] += now - v.idle_nonlendable[q * m + r]
            v.idle_nonlendable[q * m + r] = now
        q = p


cpdef i64 nonlendable_for(View v, i64 leaf, i64 r) noexcept nogil:
    """Return how much idle quota of a resource other queues do not lend to a leaf."""
    cdef i64 m = v.len_total
    amount, q = 0, leaf
    while v.queues[q].parent != NONE:
        amount += v.idle_nonlendable_below[v.queues[q].parent * m + r] - v.idle_nonlendable[q * m + r]
        q = v.queues[q].parent
    return amount


cpdef i64 below_guarantee(View v) noexcept nogil:
    """Return how many queues miss their guarantee and have an open claim for it, whether served yet or not.

    A claim counts for the lowest queue on its path with a guarantee of something it needs. A queue with such queues
    below it counts only if none of them does. Claims that preemption cannot serve are ignored: tasks that fit no empty
    node, tasks behind the first of a strict leaf, and tasks stopped by max_tasks or max_jobs. The order must exist.
    """
    cdef i64 m = v.len_total
    queues = v.counts[QUEUES]
    mark = v.scratches
    below, above, nothing = flags(v, queues), flags(v, queues), integers(v, queues * m)
    first = _first_in_line(v)
    for b in range(v.counts[GROUPS]):
        leaf = v.groups[b].leaf
        if (
            v.groups[b].head == NONE
            or not v.queues[leaf].guarded
            or v.groups[b].revocable
            or v.group_cache[b].hopeless
        ):
            continue
        if (v.queues[leaf].strict and first[leaf] != b) or waiting_tasks(v, b, 1) == 0:
            continue
        q, _, _ = guarded(v, b, nothing)
        tasks = tasks_at_once(v, b)
        if q != NONE and not below[q] and startable_of(v, b, tasks, NULL) == tasks:
            below[q] = True
    count = 0
    for q in range(queues - 1, 0, -1):  # children have larger rows
        count += (below[q] and not above[q])
        above[v.queues[q].parent] |= below[q] or above[q]
    release(v, mark)
    return count


cdef i64 *_first_in_line(View v) noexcept nogil:
    """Return the first pending group of each strict leaf, by priority, then job number; NONE elsewhere. It is scratch."""
    cdef bint ahead
    found = integers(v, v.counts[QUEUES])
    for q in range(v.counts[QUEUES]):
        found[q] = NONE
    for b in range(v.counts[GROUPS]):
        leaf = v.groups[b].leaf
        if v.queues[leaf].strict and v.groups[b].head != NONE:
            other = found[leaf]
            ahead = other == NONE or v.groups[b].priority > v.groups[other].priority
            if not ahead and v.groups[b].priority == v.groups[other].priority:
                ahead = v.jobs[v.groups[b].head].id < v.jobs[v.groups[other].head].id
            if ahead:
                found[leaf] = b
    return found
