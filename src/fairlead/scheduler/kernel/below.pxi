"""How many queues are below what they are guaranteed, and have somebody waiting whom that is for."""


cpdef i64 below_guarantee(View v) noexcept nogil:
    """How many queues miss what they are guaranteed: a claim for it is open in them, whether room is coming back for it or not.

    It is so of the lowest queue on the way from a claim's leaf that is guaranteed some of what it needs; one with others below
    it counts where none of those does. What could not start whatever were revoked is no claim: what no node could hold, what is
    not the first of a strict leaf, and what a bound on how many tasks or jobs there are keeps waiting. With the order made.
    """
    cdef i64 m = v.len_total
    queues = v.counts[QUEUES]
    mark = v.scratches
    below, above, nothing = flags(v, queues), flags(v, queues), integers(v, queues * m)
    first = _first_in_line(v)
    for b in range(v.counts[BUCKETS]):
        leaf = v.buckets[b].leaf
        if (
            v.buckets[b].head == NONE
            or not v.queues[leaf].guarded
            or v.buckets[b].revocable
            or v.bucket_seats[b].hopeless
        ):
            continue
        if (v.queues[leaf].strict and first[leaf] != b) or waiting_tasks(v, b, 1) == 0:
            continue
        q, _, _ = guarded(v, b, nothing)
        tasks = tasks_at_once(v, b)
        if q != NONE and not below[q] and startable_of(v, b, tasks, NULL) == tasks:
            below[q] = True
    count = 0
    for q in range(queues - 1, 0, -1):  # the rows of queues below come after it
        count += (below[q] and not above[q])
        above[v.queues[q].parent] |= below[q] or above[q]
    release(v, mark)
    return count


cdef i64 *_first_in_line(View v) noexcept nogil:
    """Of each strict leaf, the bucket of the first that waits: by priority, then by number. It is scratch."""
    cdef bint ahead
    found = integers(v, v.counts[QUEUES])
    for q in range(v.counts[QUEUES]):
        found[q] = NONE
    for b in range(v.counts[BUCKETS]):
        leaf = v.buckets[b].leaf
        if v.queues[leaf].strict and v.buckets[b].head != NONE:
            other = found[leaf]
            ahead = other == NONE or v.buckets[b].priority > v.buckets[other].priority
            if not ahead and v.buckets[b].priority == v.buckets[other].priority:
                ahead = v.jobs[v.buckets[b].head].id < v.jobs[v.buckets[other].head].id
            if ahead:
                found[leaf] = b
    return found
