"""Holds: what a node keeps free for the holds' owners.

A hold needs its amount at its start. Tasks that are expected to end by then give part of it back. For hold i on a node

    required_i    = amounts of all holds that start by i's start - what tasks have given back by then (`back`)
    held          = max(0, required_i over all i); free - held is open to everybody
    kept(until)   = the same over holds that start before `until`; free - kept is open to a task that ends by then

for each resource. When a task ends early, free and held grow alike, so nobody else gets what was counted on. When a
task enters that ends in time, both fall alike.

- **Order**: an owner is kept from its room only by holds that come before its own: claims, the last one first, then those that
  start earlier, then those of lines that are owed more. If all held it back, none might start.
- **Idle**: a hold idles what is free and held, beyond what earlier holds keep already. The budget pays for reservations.
"""


cpdef void link_holds(View v) noexcept nogil:
    """Link each node's holds by start, claims first; :func:`unlink_holds` must be called before rows change."""
    for h in range(v.counts[HOLDS]):
        n, before, after = v.holds[h].node, NONE, v.nodes[v.holds[h].node].hold
        while after != NONE and starts_at(v, after) <= starts_at(v, h):
            before, after = after, v.holds[after].after
        v.holds[h].after = after
        if before == NONE:
            v.nodes[n].hold = h
        else:
            v.holds[before].after = h


cdef double starts_at(View v, i64 h) noexcept nogil:
    """Return when a hold needs its amount; a claim's needs it at once."""
    return v.holds[h].start if v.holds[h].kind == RESERVATION else -INFINITY


cdef void unlink_holds(View v) noexcept nogil:
    """Unlink the holds from all nodes."""
    for h in range(v.counts[HOLDS]):
        v.nodes[v.holds[h].node].hold = NONE


cdef bint is_same(View v, i64 h, i64 k) noexcept nogil:
    """Return True if two holds are of one reservation, or of one group's claims."""
    return v.holds[h].group == v.holds[k].group and v.holds[h].number == v.holds[k].number


cdef i64 next_promise(View v, i64 h) noexcept nogil:
    """Return the first hold of the promise after hold h's; the rows of one are adjacent."""
    k = h
    while k < v.counts[HOLDS] and is_same(v, k, h):
        k += 1
    return k


cdef bint is_for_safe(View v, i64 h) noexcept nogil:
    """Return True if a hold is for a task that is no victim for a guarantee once it has started (rule: once-per-run)."""
    head = v.groups[v.holds[h].group].head
    return head != NONE and next_is_safe(v, head)


cdef bint _binds(View v, i64 k, i64 own, i64 b) noexcept nogil:
    """Return True if a hold binds the owner of hold `own`, or group b that has a claim against some owners (NONE: everybody)."""
    group = v.holds[k].group
    if own == NONE:
        if b == NONE or group == b or v.holds[k].kind != RESERVATION or is_for_safe(v, k):
            return True
        if v.groups[group].leaf == v.groups[b].leaf:  # a claim of its own queue would take that room, and preempt who is in it
            first, _, _ = guarded(v, b, v.claimed)
            return first == NONE
        return not claims_from(v, b, v.groups[group].leaf) or claims_from(v, group, v.groups[b].leaf)
    if k == own or starts_at(v, k) != starts_at(v, own):
        return k != own and starts_at(v, k) < starts_at(v, own)
    if v.holds[k].kind != RESERVATION:
        return k > own
    one, other = v.queues[line_of(v, v.groups[group].leaf)].debt, v.queues[line_of(v, v.groups[v.holds[own].group].leaf)].debt
    return one > other if one != other else k < own


cpdef i64 kept(View v, i64 n, i64 r, double until, i64 own, i64 b) noexcept nogil:
    """Return what a task that ends by `until` must leave free on a node, by the rule above; `own` and b as in `_binds`."""
    cdef i64 m = v.len_total
    amount, most, h = 0, 0, v.nodes[n].hold
    while h != NONE and starts_at(v, h) < until:
        k = h
        while k != NONE and starts_at(v, k) == starts_at(v, h):
            if (own == NONE and b == NONE) or _binds(v, k, own, b):
                amount += v.amount[k * m + r]
            k = v.holds[k].after
        while h != k:
            if (own == NONE and b == NONE) or _binds(v, h, own, b):
                most = max(most, amount - v.back[h * m + r])
            h = v.holds[h].after
        if own != NONE and h != NONE and starts_at(v, h) > starts_at(v, own):
            break
    return most


cdef i64 reserved_on(View v, i64 n, i64 r, double until, i64 own, i64 b) noexcept nogil:
    """Return what :func:`kept` keeps free on a node for reservations, of what is free there."""
    cdef i64 m = v.len_total
    amount, h = min(v.free[n * m + r], kept(v, n, r, until, own, b)), v.nodes[n].hold
    while h != NONE and v.holds[h].kind != RESERVATION:
        amount -= v.amount[h * m + r]
        h = v.holds[h].after
    return max(0, amount)


cdef i64 slips_on(View v, i64 n) noexcept nogil:
    """Return how often a reservation on a node was late at most; INFINITE if it is paid from savings: then nobody enters its room."""
    h, slips = v.nodes[n].hold, 0
    while h != NONE:
        if v.holds[h].slips > 0:
            slips = max(slips, INFINITE if v.holds[h].allowance > 0.0 else v.holds[h].slips)
        h = v.holds[h].after
    return slips


cdef void set_held(View v, i64 n) noexcept nogil:
    """Compute what all holds keep of a node."""
    cdef i64 m = v.len_total
    for r in range(m):
        v.held[n * m + r] = kept(v, n, r, INFINITY, NONE, NONE)


cdef bint fits_beside(View v, i64 n, i64 shape, double until, i64 own, i64 b) noexcept nogil:
    """Return True if a node accepts a task that ends by `until`, beside what holds keep; `own` and b as in `_binds`."""
    cdef i64 m = v.len_total
    if not v.nodes[n].up or v.nodes[n].draining or not v.masks[v.shapes[shape].mask * v.cols_masks + n]:
        return False
    for r in range(m):
        demand = v.demand[shape * m + r]
        if demand > 0 and (demand > v.free[n * m + r] or demand > v.free[n * m + r] - kept(v, n, r, until, own, b)):
            return False
    return True


cdef bint is_there(View v, i64 h) noexcept nogil:
    """Return True if all room of a promise is there, on each of its nodes."""
    cdef i64 m = v.len_total
    for k in range(h, next_promise(v, h)):
        n = v.holds[k].node
        for r in range(m):
            if v.amount[k * m + r] > 0 and v.amount[k * m + r] > v.free[n * m + r] - kept(v, n, r, INFINITY, k, NONE):
                return False
    return True


cdef bint is_full(View v, i64 h) noexcept nogil:
    """Return True if nothing is running that a promise counts on."""
    cdef i64 m = v.len_total
    for i in range(h * m, next_promise(v, h) * m):
        if v.back[i] > 0:
            return False
    return True


cdef i64 own_hold(View v, i64 b, bint full) noexcept nogil:
    """Return a group's hold with room for a task, of a full promise if so asked; NONE.

    Of several the one that starts first: else room that comes back in turn would end a reservation that still drains its node.
    """
    h = next_promise_of(v, b, NONE, full)
    while h != NONE and not has_own_room(v, b, h):
        h = next_own_hold(v, b, h, full)
    return h


cdef i64 next_own_hold(View v, i64 b, i64 h, bint full) noexcept nogil:
    """Return a group's hold after its hold h, by start, and as in the table; of full promises only, if so asked; NONE."""
    return h + 1 if h + 1 < v.counts[HOLDS] and is_same(v, h + 1, h) else next_promise_of(v, b, h, full)


cdef bint has_own_room(View v, i64 b, i64 h) noexcept nogil:
    """Return True if a task of a group has room in its hold h."""
    return v.holds[h].tasks > 0 and fits_beside(v, v.holds[h].node, v.groups[b].shape_row, INFINITY, h, NONE)


cdef i64 hold_to_use(View v, i64 b, i64 j, i64 *nodes, i64 count, double at) noexcept nogil:
    """Return the first hold of the promise that ends when a group's next task, or whole gang, of job row j is placed on some nodes; NONE.

    It is a full one. Another stays, unless one of another group would then have too little at its start.
    """
    first = _first_on(v, b, nodes, count, False)
    found = _first_on(v, b, nodes, count, True) if first != NONE else NONE
    if first != NONE and found == NONE and _delays_another(v, b, nodes, count, at + lasts_at_most(v, j, p90_duration(v, j))):
        return first
    return found


cdef i64 _first_on(View v, i64 b, i64 *nodes, i64 count, bint full) noexcept nogil:
    """Return the first hold of a group's promise on some nodes, of several the one that starts first; a full one with room if so asked."""
    h = next_promise_of(v, b, NONE, full)
    while h != NONE and not (_is_on(v, h, nodes, count) and (not full or v.groups[b].gang > 0 or has_own_room(v, b, h))):
        h = next_promise_of(v, b, h, full)
    return h


cdef bint _is_on(View v, i64 h, i64 *nodes, i64 count) noexcept nogil:
    """Return True if a promise has a hold on one of some nodes; `h` is its first hold."""
    for k in range(h, next_promise(v, h)):
        for i in range(count):
            if v.holds[k].node == nodes[i]:
                return True
    return False


cdef bint _delays_another(View v, i64 b, i64 *nodes, i64 count, double until) noexcept nogil:
    """Return True if tasks of a group on some nodes until `until` leave a hold of another, beside those of the group, too little."""
    cdef i64 m = v.len_total
    for i in range(count):
        placed, h = 0, v.nodes[nodes[i]].hold
        for k in range(count if h != NONE else 0):
            placed += 1 if nodes[k] == nodes[i] else 0
        while h != NONE and starts_at(v, h) < until:
            if v.holds[h].group != b:
                for r in range(m):
                    demand = v.demand[v.groups[b].shape_row * m + r]
                    if demand > 0 and kept(v, nodes[i], r, nextafter(starts_at(v, h), INFINITY), NONE, NONE) > v.free[nodes[i] * m + r] - placed * demand:
                        return True
            h = v.holds[h].after
    return False


cdef i64 next_promise_of(View v, i64 b, i64 before, bint full) noexcept nogil:
    """Return the first hold of a group's promise that starts next after that of hold `before` (NONE: first), a full one if so asked; NONE."""
    found, h = NONE, 0
    while h < v.counts[HOLDS]:
        if v.holds[h].group == b and (before == NONE or _is_before(v, before, h)) and (found == NONE or _is_before(v, h, found)):
            found = h if not full or is_full(v, h) else found
        h = next_promise(v, h)
    return found


cdef bint _is_before(View v, i64 h, i64 k) noexcept nogil:
    """Return True if hold h starts before hold k; of two that start at once, the first in the table."""
    return starts_at(v, h) < starts_at(v, k) or (starts_at(v, h) == starts_at(v, k) and h < k)


cdef bint counts_on(View v, i64 h, i64 q) noexcept nogil:
    """Return True if a hold relies on ending tasks of leaf q."""
    return v.holds[h].place == NONE or not (v.queues[q].apart >> v.holds[h].place) & 1


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
    """Count `tasks` more for a hold: for a claim in its leaf and all above, for a reservation in its line."""
    cdef i64 m = v.len_total
    q = v.groups[v.holds[h].group].leaf
    if v.holds[h].kind == RESERVATION:
        v.queues[line_of(v, q)].reserved += tasks
        q = NONE
    while q != NONE:
        for r in range(m):
            v.claimed[q * m + r] += tasks * v.demand[v.groups[v.holds[h].group].shape_row * m + r]
        q = v.queues[q].parent


cdef bint is_trusted(View v, i64 q) noexcept nogil:
    """Return True if a leaf's tasks may be assumed to last their p90 at most: nine in ten did."""
    return 10 * v.queues[q].overran <= v.queues[q].trusted + OVERRUN_ALLOWANCE_TENTHS


cdef double lasts_at_most(View v, i64 j, double p90) noexcept nogil:
    """Return how long a task of job row j is assumed to last on a node with holds, given its p90; inf if unknown."""
    return min(v.jobs[j].time_limit, p90) if is_trusted(v, v.jobs[j].queue) else v.jobs[j].time_limit


cpdef void count_idle(View v, i64 n, double at) noexcept nogil:
    """Add up a node's idle held room until now; called before it changes."""
    cdef i64 m = v.len_total
    h = v.nodes[n].hold
    while h != NONE:
        passed = at - v.holds[h].counted
        if passed > 0:
            for r in range(m):
                if v.idle[h * m + r] > 0:
                    v.idled[h * m + r] += v.idle[h * m + r] * passed
            if v.holds[h].kind == RESERVATION:
                spend(v, h, passed, at)
            v.holds[h].counted = at
        h = v.holds[h].after


cpdef void set_idle(View v, i64 n) noexcept nogil:
    """Compute a node's idle held room by hold: beyond what those before it keep."""
    cdef i64 m = v.len_total
    for r in range(m if v.nodes[n].hold != NONE else 0):
        amount, before, h, free = 0, 0, v.nodes[n].hold, v.free[n * m + r]
        while h != NONE:
            k = h
            while k != NONE and starts_at(v, k) == starts_at(v, h):
                amount += v.amount[k * m + r]
                k = v.holds[k].after
            while h != k:
                most = max(before, amount - v.back[h * m + r])
                v.idle[h * m + r] = min(free, most) - min(free, before)
                before, h = most, v.holds[h].after
