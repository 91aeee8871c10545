"""Guarantees beside reservations: which ends of tasks free no room, since a guarantee takes it back.

A task that stays within a guarantee goes first, in reserved room too (rule: stays). Take a queue that waits, and uses U of what it
is guaranteed G of. Let E be the tasks whose ends all reservations count on. The end of one more frees room only if

    U - E > G    for something that is guaranteed; at U - E <= G the queue's next such task would take that room at once

So each resource's guarantee leaves the others what its queue uses beyond it, and what nobody would take back is all that is reserved.
"""


cdef bint _goes_first(View v, i64 b, i64 j, i64 *gone) noexcept nogil:
    """Return True if a task like one of job row j goes before group b by its guarantee once that has ended (rule: guaranteed).

    All queues on its path that are guaranteed what it needs, and are not above b, stay within that with it, or its gang. `gone`, shape
    (queues, resources), has ended before. A task that no claim preempts (rule: once-per-run) has its reserved room for itself.
    """
    cdef i64 m = v.len_total
    cdef bint named = False
    q = v.jobs[j].queue
    if not v.queues[q].guarded or v.queues[q].pending == 0 or next_is_safe(v, v.groups[b].head):
        return False
    needs, count = &v.demand[v.jobs[j].shape_row * m], v.jobs[j].holding if v.jobs[j].gang else 1
    while not is_at_or_below(v, v.groups[b].leaf, q):
        for r in range(m if v.queues[q].guaranteed else 0):
            i = q * m + r
            if v.guarantee[i] > 0 and needs[r] > 0:
                named = True
                if max(v.used[i] - (gone[i] if gone != NULL else 0), count * needs[r]) > v.guarantee[i]:
                    return False
        q = v.queues[q].parent
    return named


cdef i64 *relied_on(View v, i64 b) noexcept nogil:
    """Return what reservations count on of queues with guarantees, `gone`: shape (queues, resources). NULL without guarantees. It is scratch."""
    cdef bint some = False
    for q in range(v.counts[QUEUES]):
        some |= v.queues[q].guaranteed
    if not some:
        return NULL
    gone = integers(v, v.counts[QUEUES] * v.len_total)
    for n in range(v.counts[NODES]):
        t = v.nodes[n].task if v.nodes[n].hold != NONE else NONE
        while t != NONE:
            if _is_relied_on(v, t):
                _add_end(v, t, gone, 1)
            t = v.tasks[t].after
    return gone


cdef bint _is_relied_on(View v, i64 t) noexcept nogil:
    """Return True if a reservation counts on the end of a task."""
    h = v.nodes[v.tasks[t].node].hold
    while h != NONE:
        if v.holds[h].kind == RESERVATION and v.tasks[t].until <= v.holds[h].start and counts_on(v, h, v.jobs[v.tasks[t].job].queue):
            return True
        h = v.holds[h].after
    return False


cdef void _add_end(View v, i64 t, i64 *gone, i64 sign) noexcept nogil:
    """Add what a task frees (sign 1) to `gone`, or remove it (-1)."""
    cdef i64 m = v.len_total
    j = v.tasks[t].job
    q = v.jobs[j].queue if v.queues[v.jobs[j].queue].guarded else NONE
    while q != NONE:
        for r in range(m):
            gone[q * m + r] += sign * v.demand[v.jobs[j].shape_row * m + r]
        q = v.queues[q].parent


cdef i64 _without_kept(View v, i64 b, Ranked *ends, i64 count, i64 *gone) noexcept nogil:
    """Leave out ends, the first first, that free no room for a group: return how many remain. What is relied on already remains."""
    left = 0
    for k in range(count):
        t = ends[k].row
        if not _is_relied_on(v, t):
            if _goes_first(v, b, v.tasks[t].job, gone):
                v.counts[KEPT_BY] = v.jobs[v.tasks[t].job].queue
                continue
            _add_end(v, t, gone, 1)
        ends[left] = ends[k]
        left += 1
    for k in range(left):
        if not _is_relied_on(v, ends[k].row):
            _add_end(v, ends[k].row, gone, -1)
    return left


cdef bint _relies_on(View v, i64 count, i64 shape, i64 *room, Ranked *ends, i64 left, i64 *gone) noexcept nogil:
    """Add the ends that make room on a node for `count` tasks of a gang to `gone`; return False if there are too few. `room` grows."""
    k = 0
    while k < left and _fits(v, room, shape) < count:
        _give_back_task(v, ends[k].row, room)
        if not _is_relied_on(v, ends[k].row):
            _add_end(v, ends[k].row, gone, 1)
        k += 1
    return _fits(v, room, shape) >= count


def kept_by_guarantee(View v, i64 b):
    """Return the leaf whose tasks within a guarantee leave no room for a group's next task, or whole gang, whatever else ends; NONE."""
    mark, cost, gone = v.scratches, floats(v, v.len_total), relied_on(v, b)
    v.counts[KEPT_BY] = NONE
    for q in range(v.counts[QUEUES]):
        v.queue_cache[q].apart = False
    count, _ = _plan_with(v, b, v.times[MOMENT], cost, gone)
    most, _ = _plan_with(v, b, v.times[MOMENT], cost, NULL)
    release(v, mark)
    return v.counts[KEPT_BY] if count < most else NONE
