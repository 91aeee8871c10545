"""Offers: what a node has left, kept for a framework until it answers.

- **Accounting**: an offer takes room of its node and counts as used by its leaf and all queues above, like a task; but
  it is no task.
- **Amount**: all that the node has left. Bounds are limits (with what is kept for claims), others' non-lendable quotas,
  and the most that one framework may be offered at once (`offer_most`).
- **Node order**: from a start, by a step coprime to the number of nodes; both follow from the offer's id. So each node
  comes once, in an order that differs by offer.
- **Parking**: a framework that no node has anything for is parked like a group of jobs, unless a limit bounds its
  offers. It is tried again when a node is freed, or when something it refused may be offered again.
"""


cdef bint find_offer(View v, i64 b) noexcept nogil:
    """Find a node with something to offer to a group's framework; set `entered` to it."""
    cdef bint refused
    v.group_cache[b].wake = INFINITY
    if v.counts[LAST_PASS] == 0 and _goes_last(v, b):
        v.group_cache[b].bounded = True  # not to be parked: the last pass has not tried it yet
        return False
    if not _set_room(v, b) or not _is_anything_left(v):
        return False
    count, leaf = v.counts[NODES], v.groups[b].leaf
    refused = v.queues[leaf].refusal > 0
    if refused:
        v.group_cache[b].wake = _note_refusals(v, leaf)
    if v.group_cache[b].parked and not _may_be_stale(v, leaf) and not _has_freed_offer(v, refused):
        return False
    n, step = _first_and_step(v.counts[LAST_OFFER] + v.counts[OFFERED] + 1, count)
    nothing = True
    for _ in range(count):
        if _can_be_offered(v, n, refused):
            v.group_cache[b].entered = n
            return True
        nothing &= not _is_worth(v, n)
        n = (n + step) % count
    if nothing and not v.group_cache[b].bounded:
        set_bounds(v)  # exact bounds spare others the search
    return False


cdef bint is_in_pass(View v, i64 b) noexcept nogil:
    """Return True if the running cycle serves a group."""
    if v.counts[LAST_PASS] == 0:
        return True
    return (v.groups[b].revocable and v.counts[LAST_PASS] == 1) or _goes_last(v, b)


cdef bint _goes_last(View v, i64 b) noexcept nogil:
    """Return True if a group's framework is only offered what nobody else can use."""
    return v.groups[b].is_framework and v.queues[v.groups[b].leaf].last_until > v.times[NOW]


cdef bint _may_be_stale(View v, i64 q) noexcept nogil:
    """Return True if parked groups of a leaf may have room on nodes that were not freed."""
    while q != NONE:
        if v.queue_cache[q].maybe_stale:
            return True
        q = v.queues[q].parent
    return False


cdef bint _has_freed_offer(View v, bint refused) noexcept nogil:
    """Return True if some freed node has something to offer."""
    for k in range(v.counts[FREED]):
        if _can_be_offered(v, v.node_cache[k].freed, refused):
            return True
    return False


cdef bint _can_be_offered(View v, i64 n, bint refused) noexcept nogil:
    up = v.nodes[n].up and not v.nodes[n].draining
    return up and _is_worth(v, n) and not (refused and _is_refused(v, n))


cdef void wake_frameworks(View v) noexcept nogil:
    """Unpark frameworks whose refusals have expired."""
    v.times[OFFER_WAKE] = INFINITY
    for b in range(v.counts[GROUPS]):
        if v.groups[b].is_framework and v.group_cache[b].parked:
            if v.group_cache[b].wake <= v.times[NOW]:
                v.group_cache[b].parked = False
                touch_group(v, b)
            else:
                v.times[OFFER_WAKE] = min(v.times[OFFER_WAKE], v.group_cache[b].wake)


cdef void park_framework(View v, i64 b) noexcept nogil:
    """Park a framework for which nothing was found, until something changes."""
    v.group_cache[b].parked = not v.group_cache[b].bounded
    if v.group_cache[b].parked:
        v.times[OFFER_WAKE] = min(v.times[OFFER_WAKE], v.group_cache[b].wake)
    touch_group(v, b)


cdef bint _set_room(View v, i64 b) noexcept nogil:
    """Compute how much a framework may be offered on any node; return True if that is worth an offer."""
    cdef i64 m = v.len_total
    cdef bint beyond, worth
    beyond = v.counts[LAST_PASS] == 1 and v.groups[b].revocable  # a cycle that may serve any group serves others too
    v.group_cache[b].bounded, worth = set_bounded_room(v, b, beyond, v.offer_room), False
    for r in range(m):
        worth |= v.offer_room[r] >= v.min_offer[r]
    return worth


cdef bint set_bounded_room(View v, i64 b, bint beyond, i64 *amount) noexcept nogil:
    """Compute how much a framework may be offered on any node; return True if anything bounds it.

    `amount`, shape (resources,), is set; `beyond` ignores limits, for a revocable framework.
    """
    cdef i64 m = v.len_total
    cdef bint bounded
    leaf, bounded = v.groups[b].leaf, False
    if has_enough(v, leaf):
        for r in range(m):
            amount[r] = 0
        return True
    for r in range(m):
        room = UNLIMITED
        if v.queues[leaf].offer_most > 0.0:
            room = <i64>(v.total[r] * v.queues[leaf].offer_most) - v.offered[leaf * m + r]
        if v.queues[0].has_nonlendable:
            room = min(room, lent_to(v, b, r) - reserved_from(v, b, r))
        q = NONE if beyond else leaf
        while q != NONE:
            room = min(room, left_under(v, b, q, r))
            q = v.queues[q].parent
        amount[r] = max(0, room)
        bounded |= room != UNLIMITED
    return bounded


cdef bint has_enough(View v, i64 leaf) noexcept nogil:
    """Return True if a framework is offered more than half its maximum of a resource that makes offers worthwhile.

    Such a framework gets no more offers, which prevents ever smaller, one-sided ones such as CPUs without memory.
    """
    cdef i64 m = v.len_total
    most = v.queues[leaf].offer_most
    for r in range(m):
        if most > 0.0 and v.min_offer[r] <= v.total[r] and 2 * v.offered[leaf * m + r] > <i64>(v.total[r] * most):
            return True
    return False


cpdef i64 left_under(View v, i64 b, i64 q, i64 r) noexcept nogil:
    """Return how much more of a resource a queue's limit allows a framework."""
    cdef i64 m = v.len_total
    if v.limit[q * m + r] == UNLIMITED:
        return UNLIMITED
    spare = 0 if v.groups[b].revocable else v.spare[q * m + r]
    return v.limit[q * m + r] - v.used[q * m + r] - v.claimed[q * m + r] + spare


cdef bint _is_anything_left(View v) noexcept nogil:
    """Return True if some node may have as much left as the smallest offer."""
    cdef i64 m = v.len_total
    for block in range(v.len_large_bounds):
        for r in range(m):
            if v.large_bounds[block * m + r] >= v.min_offer[r]:
                return True
    return False


cdef i64 _rest(View v, i64 n, i64 r) noexcept nogil:
    """Return what a node has to offer of a resource, within `offer_room`."""
    cdef i64 m = v.len_total
    return max(0, min(v.free[n * m + r] - v.held[n * m + r], v.offer_room[r]))


cdef bint _is_worth(View v, i64 n) noexcept nogil:
    cdef i64 m = v.len_total
    for r in range(m):
        if _rest(v, n, r) >= v.min_offer[r]:
            return True
    return False


cdef double _note_refusals(View v, i64 leaf) noexcept nogil:
    """Note with the nodes what a leaf's framework still refuses of them; return when the first refusal ends."""
    v.counts[OFFER_SEARCHES] += 1
    search, f, until = v.counts[OFFER_SEARCHES], v.queues[leaf].refusal, INFINITY
    while f > 0:
        if v.refusals[f - 1].until > v.times[NOW]:
            n, until = v.refusals[f - 1].node, min(until, v.refusals[f - 1].until)
            v.refusals[f - 1].beside = v.node_cache[n].refusal if v.node_cache[n].refusal_search == search else 0
            v.node_cache[n].refusal, v.node_cache[n].refusal_search = f, search
        f = v.refusals[f - 1].after
    return until


cdef bint _is_refused(View v, i64 n) noexcept nogil:
    """Return True if all that a node has to offer was refused."""
    cdef i64 m = v.len_total
    cdef bint within
    f = v.node_cache[n].refusal if v.node_cache[n].refusal_search == v.counts[OFFER_SEARCHES] else 0
    while f > 0:
        within = True
        for r in range(m):
            within &= _rest(v, n, r) <= v.refused[(f - 1) * m + r]
        if within:
            return True
        f = v.refusals[f - 1].beside
    return False


cdef (i64, i64) _first_and_step(i64 offer, i64 count) noexcept nogil:
    """Return the first node and the coprime step for an offer."""
    first = _mixed(2 * offer) % count
    step = _mixed(2 * offer + 1) % count
    while _common_divisor(step, count) != 1:
        step = (step + 1) % count
    return first, step


cdef i64 _mixed(i64 x) noexcept nogil:
    """Hash an integer: the upper 31 bits of a product in 64 bits (Knuth's multiplicative hashing)."""
    return (<u64>x * <u64>0x9E3779B97F4A7C15) >> <u64>33


cdef i64 _common_divisor(i64 a, i64 b) noexcept nogil:
    while b:
        a, b = b, a % b
    return a


cdef void offer_found(View v, i64 b) noexcept nogil:
    """Make the offer that :func:`find_offer` found, within the cycle."""
    cdef i64 m = v.len_total
    cdef bint counts
    k, leaf, n = v.counts[OFFERED], v.groups[b].leaf, v.group_cache[b].entered
    v.counts[OFFERED] += 1
    v.offered_to[OFFERED_LEAF * v.cols_offered_to + k] = leaf
    v.offered_to[OFFERED_NODE * v.cols_offered_to + k] = n
    v.offered_to[OFFERED_REVOCABLE * v.cols_offered_to + k] = v.groups[b].revocable
    for r in range(m):
        v.offered_rest[k * m + r] = _rest(v, n, r)
    _move(v, leaf, n, &v.offered_rest[k * m], v.groups[b].revocable, 1, True)
    turn, q = v.queue_cache[0].last_served + 1, leaf
    while q != NONE:
        counts = q != 0 and v.queues[v.queues[q].parent].policy == MESOS
        v.queue_cache[q].last_served = v.queue_cache[q].last_served + 1 if counts else turn
        q = v.queues[q].parent


cdef void undo_offer(View v, i64 k) noexcept nogil:
    """Undo an offer of the cycle."""
    cdef i64 m = v.len_total
    q, n = v.offered_to[OFFERED_LEAF * v.cols_offered_to + k], v.offered_to[OFFERED_NODE * v.cols_offered_to + k]
    _move(v, q, n, &v.offered_rest[k * m], v.offered_to[OFFERED_REVOCABLE * v.cols_offered_to + k] > 0, -1, True)
    raise_bounds(v, n)
    touch_queue(v, q)
    while q != NONE:
        v.queue_cache[q].last_served = turn_of(v, q)
        q = v.queues[q].parent


cdef void _move(View v, i64 leaf, i64 n, i64 *amount, bint revocable, i64 sign, bint offered) noexcept nogil:
    """Move an amount of a node to a leaf's use and that of all above (sign 1), or back (-1); `offered`: as an offer."""
    cdef i64 m = v.len_total
    q = leaf
    v.counts[NEWS] += 1
    for r in range(m):
        v.free[n * m + r] -= sign * amount[r]
    while q != NONE:
        for r in range(m):
            v.used[q * m + r] += sign * amount[r]
            if offered:
                v.offered[q * m + r] += sign * amount[r]
            if revocable:
                v.spare[q * m + r] += sign * amount[r]
        q = v.queues[q].parent
    if v.queues[0].has_nonlendable:
        set_idle_nonlendable(v, leaf)


cdef void note_happened(View v, i64 leaf, i64 n, i64 *amount, bint revocable, i64 sign, double at) noexcept nogil:
    """Account for an offer made (sign 1), or answered or rescinded (-1)."""
    _take_offer(v, leaf, n, amount, revocable, sign, True, at)
    q, turn = leaf, v.queues[0].served + 1
    while q != NONE and sign > 0:
        note_served(v, q, turn, True)
        q = v.queues[q].parent
    if revocable and sign > 0:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)
    _changed(v, leaf, n, sign)


cdef void note_set_apart(View v, i64 leaf, i64 n, i64 *amount, i64 sign, double at) noexcept nogil:
    """Account for an amount of a node reserved for the role of a leaf (sign 1), or unreserved (-1)."""
    _take_offer(v, leaf, n, amount, False, sign, False, at)
    _changed(v, leaf, n, sign)


cdef void _take_offer(
    View v, i64 leaf, i64 n, i64 *amount, bint revocable, i64 sign, bint offered, double at
) noexcept nogil:
    """Do what :func:`_move` does, and count what is counted over time."""
    q = leaf
    while q != NONE:
        p = v.queues[q].parent
        if p != NONE and v.queues[p].tick > 0.0:
            count_use(v, q, at)
        q = p
    if v.nodes[n].hold != NONE:
        count_idle(v, n, at)
    _move(v, leaf, n, amount, revocable, sign, offered)
    if v.nodes[n].hold != NONE:
        set_idle(v, n)
    q = leaf
    while q != NONE:
        if sign < 0 and v.queues[q].guaranteed:
            note_fall(v, q, amount, at)
        if sign > 0 and v.queues[q].spare_tasks > 0 and is_above_limit(v, v.used, q):
            v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)  # a pending job may claim what revocable tasks use now
        q = v.queues[q].parent


cdef void _changed(View v, i64 leaf, i64 n, i64 sign) noexcept nogil:
    """Note the change in the order."""
    if v.counts[IN_ORDER]:
        touch_queue(v, leaf)
        if sign < 0:
            room_came_back(v, n)


cdef bint _fits_amount(View v, i64 n, i64 *amount) noexcept nogil:
    """Return True if a node has an amount free."""
    cdef i64 m = v.len_total
    for r in range(m):
        if amount[r] < 0 or amount[r] > v.free[n * m + r]:
            return False
    return True


cpdef void link_refusals(View v, i64 count) noexcept nogil:
    """Link the first `count` refusals to their leaves, the last first."""
    for q in range(v.counts[QUEUES]):
        v.queues[q].refusal = 0
    for f in range(count):
        link_refusal(v, f)


cpdef void link_refusal(View v, i64 f) noexcept nogil:
    """Link a new refusal before the others of its leaf."""
    leaf = v.refusals[f].leaf
    v.refusals[f].after, v.queues[leaf].refusal = v.queues[leaf].refusal, f + 1


def bound_room(View v, i64 b, bint beyond, i64[::1] amount):
    """Return :func:`set_bounded_room`."""
    return set_bounded_room(v, b, beyond, &amount[0])


def happened(View v, i64 leaf, i64 n, const i64[::1] amount, bint revocable, i64 sign, double at):
    """Call :func:`note_happened`."""
    note_happened(v, leaf, n, <i64 *>&amount[0], revocable, sign, at)


def set_apart(View v, i64 leaf, i64 n, const i64[::1] amount, i64 sign, double at):
    """Call :func:`note_set_apart`."""
    note_set_apart(v, leaf, n, <i64 *>&amount[0], sign, at)


def amount_fits(View v, i64 n, const i64[::1] amount):
    """Return True if a node has an amount free."""
    return _fits_amount(v, n, <i64 *>&amount[0])
