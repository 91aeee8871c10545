"""What holds keep of a node: as much as their owners need at their starts, less what tasks there give back until then.

For hold i on a node let claim_i be what it and all others need that lie over its start, less what tasks are taken to have given
back by then (`back`). A task that still runs at that start must leave free as much as that; one that has ended before may have
all that is free now. So

    held          = the largest claim, or 0: free - held is what anybody may take
    kept(until)   = the largest claim of holds that start before `until`: free - kept is for a task that has ended then

The rule holds for each resource. When a task ends early, free and held grow alike, and nobody else gets what was counted on. When
one enters that ends before, both fall alike. So held is never to be corrected, but when a reservation is planned anew.

Whoever has a hold need leave nothing for those of higher rank, which were planned around it and are planned anew if it is late.

A hold is charged to its owner for what it idles: what is free and held, and that no hold that starts before it keeps already.
"""


cpdef void link_holds(View v) noexcept nogil:
    """Link the holds of each node, in the order of their rows; `unlink_holds` is to be called before rows change."""
    for h in range(v.counts[HOLDS] - 1, -1, -1):
        n = v.holds[h].node
        v.holds[h].after, v.nodes[n].hold = v.nodes[n].hold, h


cdef void unlink_holds(View v) noexcept nogil:
    """Have no node know of its holds."""
    for h in range(v.counts[HOLDS]):
        v.nodes[v.holds[h].node].hold = NONE


cdef i64 next_reservation(View v, i64 h) noexcept nogil:
    """The first hold of the reservation after that of hold h; the rows of one lie together."""
    group = v.holds[h].group
    while h < v.counts[HOLDS] and v.holds[h].group == group:
        h += 1
    return h


cdef i64 claim(View v, i64 h, i64 r, i64 rank) noexcept nogil:
    """What must be left at a hold's start beside what is given back until then, for reservations of lower rank than this."""
    cdef i64 m = v.len_total
    holds = v.holds
    needed, k = -v.back[h * m + r], v.nodes[holds[h].node].hold
    while k != NONE:
        if holds[k].start <= holds[h].start < holds[k].end and holds[k].rank < rank:
            needed += v.amount[k * m + r]
        k = holds[k].after
    return needed


cpdef i64 kept(View v, i64 n, i64 r, double until, i64 rank) noexcept nogil:
    """What a task on a node that has ended at a time has to leave free for lower ranks: the largest claim that starts before."""
    most, h = 0, v.nodes[n].hold
    while h != NONE:
        if v.holds[h].start < until and v.holds[h].rank < rank:
            most = max(most, claim(v, h, r, rank))
        h = v.holds[h].after
    return most


cdef void set_held(View v, i64 n) noexcept nogil:
    """Work out what all holds keep of a node."""
    cdef i64 m = v.len_total
    for r in range(m):
        v.held[n * m + r] = kept(v, n, r, INFINITY, ALL)


cdef bint fits_beside(View v, i64 n, i64 shape, double until, i64 rank) noexcept nogil:
    """Whether a node takes a task of a shape that has ended at a time, beside what is kept for lower ranks."""
    cdef i64 m = v.len_total
    if not v.nodes[n].up or v.nodes[n].draining or not v.masks[v.shapes[shape].mask * v.cols_masks + n]:
        return False
    for r in range(m):
        demand = v.demand[shape * m + r]
        if demand > 0 and (demand > v.free[n * m + r] or demand > v.free[n * m + r] - kept(v, n, r, until, rank)):
            return False
    return True


cdef bint counts_on(View v, i64 h, i64 q) noexcept nogil:
    """Whether a hold counts on what tasks of a leaf give back."""
    return v.holds[h].place == NONE or not (v.queues[q].apart >> v.holds[h].place) & 1


cdef bint is_beside(View v, i64 h, i64 node, i64 tasks, double at) noexcept nogil:
    """Whether a task that is placed on a node at a time leaves a reservation for it where it is; its leaf runs so many then.

    So it is where the reservation does not count on what tasks of the leaf give back, the leaf has no more than before, and the
    room that is kept is elsewhere, or still to come.
    """
    b = v.holds[h].group
    if v.groups[b].gang > 0 or counts_on(v, h, v.groups[b].leaf) or tasks > v.holds[h].ran:
        return False
    return v.holds[h].node != node or at < v.holds[h].start


cdef void give_back_at(View v, i64 n, i64 q, i64 shape, double until, i64 sign) noexcept nogil:
    """A task of a leaf more (or less, -1) will have ended at a time on a node with holds; NaN: that is not known."""
    cdef i64 m = v.len_total
    h = v.nodes[n].hold
    while h != NONE:
        if until <= v.holds[h].start and counts_on(v, h, q):
            for r in range(m):
                v.back[h * m + r] += sign * v.demand[shape * m + r]
        h = v.holds[h].after
    set_held(v, n)


cdef void count_claim(View v, i64 h, i64 tasks) noexcept nogil:
    """A hold, if it is for a claim, keeps room for so many tasks more: that counts for its leaf and all above."""
    cdef i64 m = v.len_total
    q = v.groups[v.holds[h].group].leaf if v.holds[h].kind != RESERVATION else NONE
    while q != NONE:
        for r in range(m):
            v.claimed[q * m + r] += tasks * v.demand[v.groups[v.holds[h].group].shape_row * m + r]
        q = v.queues[q].parent


cdef bint is_trusted(View v, i64 q) noexcept nogil:
    """Whether tasks of a leaf may be taken to last no longer than is usual: nine in ten of them did not."""
    return 10 * v.queues[q].overran <= v.queues[q].trusted + TENTHS_FORGIVEN


cdef bint is_fixed(View v, i64 n) noexcept nogil:
    """Whether a reservation on a node has slipped so often that its nodes are fixed."""
    h = v.nodes[n].hold
    while h != NONE:
        if v.holds[h].slips >= FIXED:
            return True
        h = v.holds[h].after
    return False


cdef double lasts_at_most(View v, i64 j, i64 n, double usual) noexcept nogil:
    """How long a task of job row j is taken to last on a node with holds, so long being usual; infinite: not known."""
    if is_trusted(v, v.jobs[j].queue):
        return min(v.jobs[j].time_limit, DOUBTED * usual if is_fixed(v, n) else usual)
    return v.jobs[j].time_limit


cdef void count_idle(View v, i64 n, double at) noexcept nogil:
    """What is free and kept on a node is about to change: count what it has been until now."""
    cdef i64 m = v.len_total
    h = v.nodes[n].hold
    while h != NONE:
        if at > v.holds[h].counted:
            for r in range(m):
                v.idled[h * m + r] += v.idle[h * m + r] * (at - v.holds[h].counted)
            v.holds[h].counted = at
        h = v.holds[h].after


cdef void set_idle(View v, i64 n) noexcept nogil:
    """Work out what is free and kept on a node, by hold, and charge their owners."""
    cdef i64 m = v.len_total
    cdef bint changed
    h = v.nodes[n].hold
    while h != NONE:
        changed = False
        for r in range(m):
            before = _kept_before(v, h, r)
            idle = min(v.free[n * m + r], max(before, claim(v, h, r, ALL))) - min(v.free[n * m + r], before)
            changed |= idle != v.idle[h * m + r]
            charge_promise(v, h, r, idle - v.idle[h * m + r])
            v.idle[h * m + r] = idle
        if changed and v.counts[IN_ORDER]:
            touch_queue(v, v.groups[v.holds[h].group].leaf)
        h = v.holds[h].after


cdef i64 _kept_before(View v, i64 h, i64 r) noexcept nogil:
    """What is held on a hold's node for those that start before it; of those at the same time, for lower ranks."""
    holds, most = v.holds, 0
    k = v.nodes[holds[h].node].hold
    while k != NONE:
        if holds[k].start < holds[h].start or (holds[k].start == holds[h].start and holds[k].rank < holds[h].rank):
            most = max(most, claim(v, k, r, ALL))
        k = holds[k].after
    return most


cdef void charge_promise(View v, i64 h, i64 r, i64 amount) noexcept nogil:
    """So much more is kept idle by a hold, for its leaf and all above that."""
    cdef i64 m = v.len_total
    q = v.groups[v.holds[h].group].leaf if amount != 0 else NONE
    while q != NONE:
        v.promised[q * m + r] += amount
        q = v.queues[q].parent


cdef bint is_in_line(View v, i64 q, double at) noexcept nogil:
    """Whether a leaf was in line a short while ago, and served."""
    return at - v.queues[q].in_line_at <= SOON


cdef double in_line_since(View v, i64 b, double now) noexcept nogil:
    """Since when a group that is first in line waits for room, or its leaf did that was served last; NaN: since now."""
    q = v.groups[b].leaf
    return v.queues[q].in_line_since if is_in_line(v, q, now) else v.groups[b].passed_since


cpdef void pass_over(View v, i64 b, double at) noexcept nogil:
    """It is a group's turn and there is no room: it waits from now on, or since its leaf did that was served meanwhile."""
    q = v.groups[b].leaf
    v.groups[b].passed_since = at
    if is_in_line(v, q, at):
        v.groups[b].passed_since = min(at, v.queues[q].in_line_since)
        v.queues[q].in_line_at = at


cdef void note_served(View v, i64 b, double at) noexcept nogil:
    """A task of a group is placed: if it was passed over, its leaf keeps its place in line."""
    q, since = v.groups[b].leaf, v.groups[b].passed_since
    v.groups[b].passed_since = NAN
    if not isnan(since):
        v.queues[q].in_line_since = min(since, v.queues[q].in_line_since) if is_in_line(v, q, at) else since
        v.queues[q].in_line_at = at
