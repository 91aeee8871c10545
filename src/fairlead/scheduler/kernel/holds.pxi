"""Holds: what a node keeps free for the holds' owners, and how that is charged.

A hold needs its amount at its start. Tasks that are expected to end by then give part of it back. For hold i on a node

    required_i    = amounts of all holds that cover i's start - what tasks have given back by then (`back`)
    held          = max(0, required_i over all i); free - held is open to everybody
    kept(until)   = the same over holds that start before `until`; free - kept is open to a task that ends by then

for each resource. When a task ends early, free and held grow alike, so nobody else gets what was counted on. When a
task enters that ends in time, both fall alike. So held is only corrected when a reservation is replanned.

- **Rank**: a hold leaves nothing for higher ranks. They were planned around it, and are replanned if it is late.
- **Charge**: a hold charges its owner for what it idles: what is free and held, beyond what earlier starts hold
  already.
- **Line**: the end of the file tracks how long a leaf has been first in line without room (`bypassed_since`,
  `in_line_since`).
"""


cpdef void link_holds(View v) noexcept nogil:
    """Link each node's holds in row order; :func:`unlink_holds` must be called before rows change."""
    for h in range(v.counts[HOLDS] - 1, -1, -1):
        n = v.holds[h].node
        v.holds[h].after, v.nodes[n].hold = v.nodes[n].hold, h


cdef void unlink_holds(View v) noexcept nogil:
    """Unlink the holds from all nodes."""
    for h in range(v.counts[HOLDS]):
        v.nodes[v.holds[h].node].hold = NONE


cdef i64 next_reservation(View v, i64 h) noexcept nogil:
    """Return the first hold of the reservation after hold h's; the rows of one are adjacent."""
    group = v.holds[h].group
    while h < v.counts[HOLDS] and v.holds[h].group == group:
        h += 1
    return h


cdef i64 required_at_start(View v, i64 h, i64 r, i64 rank) noexcept nogil:
    """Return what lower ranks require at a hold's start, beyond what is given back by then."""
    cdef i64 m = v.len_total
    holds = v.holds
    needed, k = -v.back[h * m + r], v.nodes[holds[h].node].hold
    while k != NONE:
        if holds[k].start <= holds[h].start < holds[k].end and holds[k].rank < rank:
            needed += v.amount[k * m + r]
        k = holds[k].after
    return needed


cpdef i64 kept(View v, i64 n, i64 r, double until, i64 rank) noexcept nogil:
    """Return what a task that ends by `until` must leave free on a node for lower ranks, by the rule above."""
    most, h = 0, v.nodes[n].hold
    while h != NONE:
        if v.holds[h].start < until and v.holds[h].rank < rank:
            most = max(most, required_at_start(v, h, r, rank))
        h = v.holds[h].after
    return most


cdef void set_held(View v, i64 n) noexcept nogil:
    """Compute what all holds keep of a node."""
    cdef i64 m = v.len_total
    for r in range(m):
        v.held[n * m + r] = kept(v, n, r, INFINITY, ABOVE_ANY_RANK)


cdef bint fits_beside(View v, i64 n, i64 shape, double until, i64 rank) noexcept nogil:
    """Return True if a node accepts a task that ends by `until`, beside what lower ranks keep."""
    cdef i64 m = v.len_total
    if not v.nodes[n].up or v.nodes[n].draining or not v.masks[v.shapes[shape].mask * v.cols_masks + n]:
        return False
    for r in range(m):
        demand = v.demand[shape * m + r]
        if demand > 0 and (demand > v.free[n * m + r] or demand > v.free[n * m + r] - kept(v, n, r, until, rank)):
            return False
    return True


cdef bint counts_on(View v, i64 h, i64 q) noexcept nogil:
    """Return True if a hold relies on ending tasks of leaf q."""
    return v.holds[h].place == NONE or not (v.queues[q].apart >> v.holds[h].place) & 1


cdef bint is_beside(View v, i64 h, i64 node, i64 tasks, double at) noexcept nogil:
    """Return True if a task placed now leaves its group's reservation unchanged; its leaf then runs `tasks`.

    That needs a reservation that does not rely on the leaf's tasks, and a leaf that runs no more than when it was made.
    The task must be on another node, or placed before the start.
    """
    b = v.holds[h].group
    if v.groups[b].gang > 0 or counts_on(v, h, v.groups[b].leaf) or tasks > v.holds[h].ran:
        return False
    return v.holds[h].node != node or at < v.holds[h].start


cdef void give_back_at(View v, i64 n, i64 q, i64 shape, double until, i64 sign) noexcept nogil:
    """Add a task (sign 1) of a leaf that ends by `until` to what a node's holds count on, or remove it (-1); NaN: unknown."""
    cdef i64 m = v.len_total
    h = v.nodes[n].hold
    while h != NONE:
        if until <= v.holds[h].start and counts_on(v, h, q):
            for r in range(m):
                v.back[h * m + r] += sign * v.demand[shape * m + r]
        h = v.holds[h].after
    set_held(v, n)


cdef void count_claim(View v, i64 h, i64 tasks) noexcept nogil:
    """Count `tasks` more for a hold's claim in its leaf and all above; no effect for a reservation."""
    cdef i64 m = v.len_total
    q = v.groups[v.holds[h].group].leaf if v.holds[h].kind != RESERVATION else NONE
    while q != NONE:
        for r in range(m):
            v.claimed[q * m + r] += tasks * v.demand[v.groups[v.holds[h].group].shape_row * m + r]
        q = v.queues[q].parent


cdef bint is_trusted(View v, i64 q) noexcept nogil:
    """Return True if a leaf's tasks may be assumed to last their p90 at most: nine in ten did."""
    return 10 * v.queues[q].overran <= v.queues[q].trusted + OVERRUN_ALLOWANCE_TENTHS


cdef bint is_fixed(View v, i64 n) noexcept nogil:
    """Return True if a reservation on a node has slipped so often that its nodes are fixed."""
    h = v.nodes[n].hold
    while h != NONE:
        if v.holds[h].slips >= FIXED_AFTER_SLIPS:
            return True
        h = v.holds[h].after
    return False


cdef double lasts_at_most(View v, i64 j, i64 n, double p90) noexcept nogil:
    """Return how long a task of job row j is assumed to last on a node with holds, given its p90; inf if unknown."""
    if is_trusted(v, v.jobs[j].queue):
        return min(v.jobs[j].time_limit, SLIPPED_P90_FACTOR * p90 if is_fixed(v, n) else p90)
    return v.jobs[j].time_limit


cdef void count_idle(View v, i64 n, double at) noexcept nogil:
    """Add up a node's idle held room until now; called before it changes."""
    cdef i64 m = v.len_total
    h = v.nodes[n].hold
    while h != NONE:
        if at > v.holds[h].counted:
            for r in range(m):
                v.idled[h * m + r] += v.idle[h * m + r] * (at - v.holds[h].counted)
            v.holds[h].counted = at
        h = v.holds[h].after


cdef void set_idle(View v, i64 n) noexcept nogil:
    """Compute a node's idle held room by hold, and charge the owners."""
    cdef i64 m = v.len_total
    cdef bint changed
    h = v.nodes[n].hold
    while h != NONE:
        changed = False
        for r in range(m):
            before = _kept_before(v, h, r)
            free, most = v.free[n * m + r], max(before, required_at_start(v, h, r, ABOVE_ANY_RANK))
            idle = min(free, most) - min(free, before)
            changed |= idle != v.idle[h * m + r]
            charge_promise(v, h, r, idle - v.idle[h * m + r])
            v.idle[h * m + r] = idle
        if changed and v.counts[IN_ORDER]:
            touch_queue(v, v.groups[v.holds[h].group].leaf)
        h = v.holds[h].after


cdef i64 _kept_before(View v, i64 h, i64 r) noexcept nogil:
    """Return what holds with an earlier start keep on a hold's node; at the same start, those of lower rank."""
    holds, most = v.holds, 0
    k = v.nodes[holds[h].node].hold
    while k != NONE:
        if holds[k].start < holds[h].start or (holds[k].start == holds[h].start and holds[k].rank < holds[h].rank):
            most = max(most, required_at_start(v, k, r, ABOVE_ANY_RANK))
        k = holds[k].after
    return most


cdef void charge_promise(View v, i64 h, i64 r, i64 amount) noexcept nogil:
    """Charge a hold's leaf and all above for `amount` more idle room."""
    cdef i64 m = v.len_total
    q = v.groups[v.holds[h].group].leaf if amount != 0 else NONE
    while q != NONE:
        v.promised[q * m + r] += amount
        q = v.queues[q].parent


cdef bint is_in_line(View v, i64 q, double at) noexcept nogil:
    """Return True if a leaf was first in line, and served, within IN_LINE_SECONDS."""
    return at - v.queues[q].in_line_at <= IN_LINE_SECONDS


cdef double in_line_since(View v, i64 b, double now) noexcept nogil:
    """Return since when the first group in line, or its leaf that was served last, waits for room; NaN: since now."""
    q = v.groups[b].leaf
    return v.queues[q].in_line_since if is_in_line(v, q, now) else v.groups[b].bypassed_since


cpdef void note_bypassed(View v, i64 b, double at) noexcept nogil:
    """Note that a group is first in line without room: from now on, or since its leaf was that was served meanwhile."""
    q = v.groups[b].leaf
    v.groups[b].bypassed_since = at
    if is_in_line(v, q, at):
        v.groups[b].bypassed_since = min(at, v.queues[q].in_line_since)
        v.queues[q].in_line_at = at
    v.times[PASSED_SINCE] = min(v.times[PASSED_SINCE], v.groups[b].bypassed_since)


cdef double next_passed(View v, double now, double reserve_after) noexcept nogil:
    """Return when a reservation for a group, or a leaf that was served last, is due, if it is first in line then."""
    if v.times[PASSED_SINCE] + reserve_after <= now:
        first = INFINITY
        for b in range(v.counts[GROUPS]):
            if v.groups[b].bypassed_since + reserve_after > now:  # false for NaN
                first = min(first, v.groups[b].bypassed_since)
        for q in range(v.counts[QUEUES]):
            since = v.queues[q].in_line_since
            if since + reserve_after > now and is_in_line(v, q, since + reserve_after):
                first = min(first, since)
        v.times[PASSED_SINCE] = first
    return v.times[PASSED_SINCE] + reserve_after if reserve_after < INFINITY else INFINITY


cdef void note_served(View v, i64 b, double at) noexcept nogil:
    """Note that a task of a group is placed: if the group was bypassed, its leaf keeps its place in line."""
    q, since = v.groups[b].leaf, v.groups[b].bypassed_since
    v.groups[b].bypassed_since = NAN
    if not isnan(since):
        v.queues[q].in_line_since = min(since, v.queues[q].in_line_since) if is_in_line(v, q, at) else since
        v.queues[q].in_line_at = at
