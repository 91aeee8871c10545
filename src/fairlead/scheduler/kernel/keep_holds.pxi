"""Accounting for holds: how facts about reservations and claims make, replace, use and drop them."""


cdef void keep_room(
    View v, i64 group, i64 job, i64 count, i64 *nodes, i64 *tasks, i64 kind, double start, i64 slips, i64 number, i64 aparts,
    i64 *apart, double at,
) noexcept nogil:
    """Keep room on nodes (rising rows) for tasks of a job row. There are rows for that.

    Reservation `number` of the group is replaced; without a number, and for a claim, all that is kept for the group. Ends of
    tasks of the leaves in `apart` are not counted on.
    """
    cdef i64 m = v.len_total
    cdef bint claimed, in_order, reserves, saved
    reserves, mark, x = kind == RESERVATION, v.scratches, line_of(v, v.groups[group].leaf)
    made, idled, changed, allowance = at, floats(v, m), flags(v, v.counts[NODES]), -1.0
    claimed, in_order, saved = not reserves, False, reserves and has_saved(v, x, 0.0, at)
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == group and (not reserves or number == NONE or v.holds[h].number == number):
            changed[v.holds[h].node] = True
            claimed |= v.holds[h].kind != RESERVATION
            count_idle(v, v.holds[h].node, at)
            if (v.holds[h].kind == RESERVATION) == reserves:
                made, allowance, in_order = v.holds[h].made, v.holds[h].allowance, v.holds[h].in_order
            for r in range(m):
                idled[r] += v.idled[h * m + r]
    _remove_holds(v, group, NONE, number if reserves else NONE)
    if reserves and number == NONE:
        number = next_number(v)
    for k in range(count):
        count_idle(v, nodes[k], at)
    if reserves and allowance < 0:
        in_order = has_its_part(v, x, group) and not is_owed_a_task(v, x, group, job)
        v.queues[x].put_off = 0.0
    unlink_holds(v)
    first, place = v.counts[HOLDS], _free_place(v) if reserves else NONE
    for k in range(aparts):
        v.queues[apart[k]].apart |= <i64>1 << place
    if claimed:
        v.times[CLAIM_DUE] = -INFINITY
    for k in range(count):
        h = v.counts[HOLDS]
        v.counts[HOLDS] += 1
        v.holds[h].kind, v.holds[h].node, v.holds[h].group, v.holds[h].job = kind, nodes[k], group, v.jobs[job].id
        v.holds[h].tasks, v.holds[h].slips, v.holds[h].start, v.holds[h].made = tasks[k], slips, start, made
        v.holds[h].end = start + p90_duration(v, job) if reserves else INFINITY
        v.holds[h].planned = v.holds[h].counted = at
        v.holds[h].place, v.holds[h].number, v.holds[h].in_order = place, number if reserves else NONE, in_order
        v.holds[h].allowance = max(0.0, allowance)
        for r in range(m):
            v.amount[h * m + r] = tasks[k] * v.demand[v.groups[group].shape_row * m + r]
            v.idle[h * m + r], v.idled[h * m + r], v.cost[h * m + r] = 0, 0.0, 0.0
        count_claim(v, h, tasks[k])
        changed[nodes[k]] = True
    for r in range(m):
        v.idled[first * m + r] = idled[r]
    v.counts[NEWS] += 1
    link_holds(v)
    _note_claimed(v, group)
    for n in range(v.counts[NODES]):
        if changed[n]:
            _set_expected_ends(v, n, at)
    _update_nodes(v, changed)
    if reserves:
        _pay(v, first, v.queues[x].wasted if allowance < 0 else 0.0, allowance < 0 and saved, at)
    release(v, mark)
    if v.counts[IN_ORDER]:
        v.group_cache[group].keeping = v.queue_cache[v.groups[group].leaf].keeping = True
        touch_group(v, group)


cdef void _pay(View v, i64 first, double least, bint saved, double at) noexcept nogil:
    """Compute what a reservation is expected to idle, at least a share `least`; if it needs what its line has `saved`, give it an allowance."""
    cdef i64 m = v.len_total
    mark, cost = v.scratches, floats(v, m)
    for h in range(first, v.counts[HOLDS]):
        set_cost(v, h, at)
        for r in range(m):
            cost[r] += v.cost[h * m + r] - v.idled[h * m + r]
    for r in range(m):
        more = max(0.0, least * v.total[r] - cost[r]) if cost[r] > 0.0 else 0.0
        cost[r], v.cost[first * m + r] = cost[r] + more, v.cost[first * m + r] + more
    if saved and in_shares(v, cost) > 0.0 and is_overspent(v, at):
        for h in range(first, v.counts[HOLDS]):
            v.holds[h].allowance = ALLOWANCE * in_shares(v, cost)
    release(v, mark)


cdef i64 _free_place(View v) noexcept nogil:
    """Return the first bit that no reservation uses in `apart`."""
    taken = 0
    for h in range(v.counts[HOLDS]):
        if v.holds[h].place != NONE:
            taken |= <i64>1 << v.holds[h].place
    place = 0
    while (taken >> place) & 1:
        place += 1
    return place


cdef void _note_claimed(View v, i64 group) noexcept nogil:
    """Update the keys and idle non-lendable quotas of a group's queues after its holds changed."""
    if v.queues[0].has_nonlendable:
        set_idle_nonlendable(v, v.groups[group].leaf)
    q = v.groups[group].leaf
    if v.counts[IN_ORDER]:
        touch_queue(v, q)
    while q != 0:
        if v.queues[q].guaranteed:
            let_in(v, q)
        q = v.queues[q].parent


cpdef bint drop_holds(View v, i64 group, i64 number, double at) noexcept nogil:
    """Drop a group's reservation of this number (NONE: all its holds); return True if there was any.

    What it idled beyond what its tasks use counts as if its line had used it (rule: charged).
    """
    cdef i64 m = v.len_total
    cdef bint claimed
    cdef double beyond = 0.0
    mark, x = v.scratches, line_of(v, v.groups[group].leaf)
    changed, found, leaf = flags(v, v.counts[NODES]), False, v.groups[group].leaf
    claimed = False
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == group and (number == NONE or v.holds[h].number == number):
            found, claimed = True, v.holds[h].kind != RESERVATION
            changed[v.holds[h].node] = True
            count_idle(v, v.holds[h].node, at)
            if v.holds[h].kind == RESERVATION:
                beyond += idled_beyond(v, h)
                v.queues[x].wasted = max(v.queues[x].wasted, idled_by(v, h, at))
                if v.holds[h].planned == at:  # put off: the decisions of one moment have an end
                    v.queues[x].put_off = max(v.queues[x].put_off, at + MIN_FORECAST_SECONDS)
                    enlist(v, x)
            for r in range(m):
                v.idled_before[leaf * m + r] += v.idled[h * m + r]
    if found:
        if beyond > 0.0 and v.queues[x].debt > 0.0:
            v.queues[x].debt = max(0.0, v.queues[x].debt - beyond / _part_and_lack(v, x)[0])
        _remove_holds(v, group, NONE, number)
        _note_claimed(v, group)
        _update_nodes(v, changed)
        if claimed:
            v.times[CLAIM_DUE] = -INFINITY
        elif v.queues[leaf].strict:  # another of it may go first now, and is asked before others have the room
            enlist(v, line_of(v, leaf))
            v.times[ASKED_AT] = at
        _note_kept(v, group)
    release(v, mark)
    return found


cdef void _note_kept(View v, i64 group) noexcept nogil:
    """Note for the order whether anything is kept for a group, and its leaf, after some of it was dropped."""
    leaf = v.groups[group].leaf
    if v.counts[IN_ORDER]:
        v.group_cache[group].keeping = v.queue_cache[leaf].keeping = False
        for h in range(v.counts[HOLDS]):
            v.group_cache[group].keeping |= v.holds[h].group == group
            v.queue_cache[leaf].keeping |= v.groups[v.holds[h].group].leaf == leaf
        touch_group(v, group)


cdef void use_hold(View v, i64 group, i64 node, i64 used, double at) noexcept nogil:
    """Use a group's holds for a task placed on a node: end reservation `used`, or shrink its claims' hold there by a task."""
    h = used if used != NONE and v.holds[used].kind == RESERVATION else _first_claim(v, group, node)
    if h == NONE:
        return
    if v.holds[h].kind == RESERVATION or v.groups[group].gang > 0 or served_tasks(v, group) == 1:
        kind = v.holds[h].kind
        drop_holds(v, group, v.holds[h].number, at)
        if kind == RESERVATION:
            x = line_of(v, v.groups[group].leaf)
            v.queues[x].wasted = v.queues[x].put_off = 0.0
            if v.groups[group].gang > 0:  # its line has one for each gang of its part: it needs the next
                v.queues[0].events = INFINITE
    elif v.holds[h].node == node:
        _shrink_hold(v, h, at)


cdef i64 _first_claim(View v, i64 group, i64 node) noexcept nogil:
    """Return the hold of a group's claims on a node, else its first; NONE."""
    found = NONE
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == group and v.holds[h].kind != RESERVATION and (found == NONE or v.holds[h].node == node):
            found = h
    return found


cdef void hand_on(View v, i64 group, double at) noexcept nogil:
    """Give a group's reservations to the job that is first in it now; one that was made in order is over."""
    h = 0
    while h < v.counts[HOLDS]:
        if v.holds[h].group == group and v.holds[h].kind == RESERVATION:
            if v.holds[h].in_order:
                drop_holds(v, group, v.holds[h].number, at)
                continue
            v.holds[h].job = v.jobs[v.groups[group].head].id
        h += 1


cdef void _shrink_hold(View v, i64 h, double at) noexcept nogil:
    """Shrink a hold by one task."""
    cdef i64 m = v.len_total
    n, group = v.holds[h].node, v.holds[h].group
    count_idle(v, n, at)
    v.holds[h].tasks -= 1
    v.counts[NEWS] += 1
    count_claim(v, h, -1)
    _note_claimed(v, group)
    for r in range(m):
        v.amount[h * m + r] -= v.demand[v.groups[group].shape_row * m + r]
    if v.holds[h].tasks == 0:
        for r in range(m):
            v.idled_before[v.groups[group].leaf * m + r] += v.idled[h * m + r]
        _remove_holds(v, group, n, NONE)
    set_held(v, n)
    set_idle(v, n)
    if v.counts[IN_ORDER]:
        room_came_back(v, n)
        touch_group(v, group)


cpdef void drop_holds_on(View v, i64 node, double at) noexcept nogil:
    """Drop all promises with a hold on a node that is no longer available; all lines are asked in the next moment."""
    while v.nodes[node].hold != NONE:
        h = v.nodes[node].hold
        v.queues[0].events = INFINITE
        drop_holds(v, v.holds[h].group, v.holds[h].number, at)


cdef void note_overrun(View v, i64 j, i64 t, double at) noexcept nogil:
    """Count a task that outlasts its cautious forecast against its queue, once."""
    if v.tasks[t].trusted and at > v.tasks[t].until:
        v.queues[v.jobs[j].queue].overran += 1
        v.tasks[t].trusted = False


cdef void _remove_holds(View v, i64 group, i64 node, i64 number) noexcept nogil:
    """Remove a group's holds (on one node, or NONE: all; of one number, or NONE: all) from the table."""
    cdef i64 m = v.len_total
    unlink_holds(v)
    v.counts[NEWS] += 1
    left = 0
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == group and (node == NONE or v.holds[h].node == node) and (number == NONE or v.holds[h].number == number):
            count_claim(v, h, -v.holds[h].tasks)
            if v.holds[h].place != NONE:
                for q in range(v.counts[QUEUES]):
                    v.queues[q].apart &= ~(<i64>1 << v.holds[h].place)
        else:
            v.holds[left] = v.holds[h]
            for r in range(m if left < h else 0):
                v.amount[left * m + r], v.back[left * m + r] = v.amount[h * m + r], v.back[h * m + r]
                v.idle[left * m + r], v.idled[left * m + r] = v.idle[h * m + r], v.idled[h * m + r]
                v.cost[left * m + r] = v.cost[h * m + r]
            left += 1
    for h in range(left, v.counts[HOLDS]):
        for r in range(m):
            v.back[h * m + r] = 0
    v.counts[HOLDS] = left
    link_holds(v)


cdef void _set_expected_ends(View v, i64 n, double at) noexcept nogil:
    """Set when a node's tasks are expected to end, and what they give back to its holds."""
    cdef i64 m = v.len_total
    h = v.nodes[n].hold
    while h != NONE:
        for r in range(m):
            v.back[h * m + r] = 0
        h = v.holds[h].after
    t, part = v.nodes[n].task, part_left(v, n)
    while t != NONE:
        j = v.tasks[t].job
        note_overrun(v, j, t, at)
        until = expected_end(v, t, at, part)
        if until != v.tasks[t].until:
            v.tasks[t].until, v.tasks[t].trusted = until, False
        _count_on(v, j, t)
        t = v.tasks[t].after


cdef void _count_on(View v, i64 j, i64 t) noexcept nogil:
    """Count a task for the holds on its node that start after its expected end."""
    cdef i64 m = v.len_total
    h = v.nodes[v.tasks[t].node].hold
    while h != NONE:
        if v.tasks[t].until <= v.holds[h].start and counts_on(v, h, v.jobs[j].queue):
            for r in range(m):
                v.back[h * m + r] += v.demand[v.jobs[j].shape_row * m + r]
        h = v.holds[h].after


cdef void _update_nodes(View v, flag *changed) noexcept nogil:
    """Compute what some nodes hold, and note that pending groups may have more room there."""
    for n in range(v.counts[NODES]):
        if changed[n]:
            set_held(v, n)
            set_idle(v, n)
            if v.counts[IN_ORDER]:
                room_came_back(v, n)


def keep_nodes(
    View v, i64 group, i64 job, const i64[::1] nodes, const i64[::1] tasks, i64 kind, double start, i64 slips, i64 number,
    const i64[::1] apart, double at,
):
    """Call :func:`keep_room`."""
    keep_room(
        v, group, job, nodes.shape[0], <i64 *>&nodes[0], <i64 *>&tasks[0], kind, start, slips, number,
        apart.shape[0], <i64 *>&apart[0], at,
    )
