"""Accounting for holds: how facts about reservations and claims make, replace, use and drop them."""


cdef void keep_room(
    View v, i64 group, i64 job, i64 count, i64 *nodes, i64 *tasks, i64 kind, double start, i64 slips, i64 aparts, i64 *apart,
    double at,
) noexcept nogil:
    """Keep room on nodes (rising rows) for tasks of a job row, in place of the group's earlier holds. There are rows for that.

    Ends of tasks of the leaves in `apart` are not counted on.

    Claims come before all reservations, which are replanned around them. If the new plan equals the old one, the other
    reservations stay as they are.
    """
    cdef i64 m = v.len_total
    cdef bint claimed
    rank = next_rank(v) if kind == RESERVATION else first_rank(v)
    end = start + p90_duration(v, job) if kind == RESERVATION else INFINITY
    has_changed = not _is_kept(v, group, count, nodes, tasks, start, end)
    mark = v.scratches
    made, since, idled, ran = at, at, floats(v, m), v.queues[v.groups[group].leaf].tasks
    changed, claimed = flags(v, v.counts[NODES]), kind != RESERVATION
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == group:
            changed[v.holds[h].node] = True
            claimed |= v.holds[h].kind != RESERVATION
            if (v.holds[h].kind == RESERVATION) == (kind == RESERVATION):
                rank, made, ran = v.holds[h].rank, v.holds[h].made, v.holds[h].ran
            since = v.holds[h].since if v.holds[h].slips == slips else at
            count_idle(v, v.holds[h].node, at)
            for r in range(m):
                idled[r] += v.idled[h * m + r]
    _remove_holds(v, group, NONE)
    for k in range(count):
        count_idle(v, nodes[k], at)
    unlink_holds(v)
    first, place = v.counts[HOLDS], _free_place(v) if kind == RESERVATION else NONE
    for k in range(aparts):
        v.queues[apart[k]].apart |= <i64>1 << place
    if claimed:
        v.times[CLAIM_DUE] = -INFINITY
    for k in range(count):
        h = v.counts[HOLDS]
        v.counts[HOLDS] += 1
        v.holds[h].kind, v.holds[h].node, v.holds[h].group, v.holds[h].job = kind, nodes[k], group, v.jobs[job].id
        v.holds[h].tasks, v.holds[h].rank, v.holds[h].slips, v.holds[h].start = tasks[k], rank, slips, start
        v.holds[h].end, v.holds[h].made, v.holds[h].since = end, made, since
        v.holds[h].planned = v.holds[h].counted = at
        v.holds[h].change, v.holds[h].place = SAME, place
        v.holds[h].ran = ran
        for r in range(m):
            v.amount[h * m + r] = tasks[k] * v.demand[v.groups[group].shape_row * m + r]
            v.idle[h * m + r], v.idled[h * m + r] = 0, 0.0
        count_claim(v, h, tasks[k])
        changed[nodes[k]] = True
    for r in range(m):
        v.idled[first * m + r] = idled[r]
    link_holds(v)
    _update_nonlendable(v, group)
    if kind == RESERVATION and isnan(v.groups[group].bypassed_since):
        note_bypassed(v, group, at)
    if has_changed:
        _note_changed(v, changed, rank)
    for n in range(v.counts[NODES]):
        if changed[n]:
            _set_expected_ends(v, n, at)
    _update_nodes(v, changed)
    release(v, mark)
    if v.counts[IN_ORDER]:
        v.group_cache[group].keeping = v.queue_cache[v.groups[group].leaf].keeping = True
        touch_group(v, group)


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


cdef void _update_nonlendable(View v, i64 group) noexcept nogil:
    """Update the idle non-lendable quota of a group's queues after its holds changed."""
    if v.queues[0].has_nonlendable:
        set_idle_nonlendable(v, v.groups[group].leaf)


cdef bint _is_kept(View v, i64 group, i64 count, i64 *nodes, i64 *tasks, double start, double end) noexcept nogil:
    """Return True if a group's holds are exactly these: tasks by node, start and end."""
    cdef bint same
    k, same = 0, True
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == group:
            same &= k < count and v.holds[h].start == start and v.holds[h].end == end
            same = same and v.holds[h].node == nodes[k] and v.holds[h].tasks == tasks[k]
            k += 1
    return same and k == count


cpdef bint drop_holds(View v, i64 group, double at) noexcept nogil:
    """Drop all holds of a group; return True if there were any."""
    cdef i64 m = v.len_total
    cdef bint claimed
    mark = v.scratches
    changed, found, leaf = flags(v, v.counts[NODES]), False, v.groups[group].leaf
    rank, claimed = 0, False
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == group:
            found, rank, claimed = True, v.holds[h].rank, v.holds[h].kind != RESERVATION
            changed[v.holds[h].node] = True
            count_idle(v, v.holds[h].node, at)
            for r in range(m):
                v.idled_before[leaf * m + r] += v.idled[h * m + r]
    if found:
        _remove_holds(v, group, NONE)
        _update_nonlendable(v, group)
        _note_changed(v, changed, rank)
        _update_nodes(v, changed)
        v.groups[group].bypassed_since = NAN
        if claimed:
            v.times[CLAIM_DUE] = -INFINITY
        if v.counts[IN_ORDER]:
            v.group_cache[group].keeping = False
            v.queue_cache[leaf].keeping = _keeps(v, leaf)
            touch_group(v, group)
    release(v, mark)
    return found


cdef bint _keeps(View v, i64 leaf) noexcept nogil:
    """Return True if a leaf has any hold."""
    for h in range(v.counts[HOLDS]):
        if v.groups[v.holds[h].group].leaf == leaf:
            return True
    return False


cdef bint use_hold(View v, i64 group, i64 node, double at) noexcept nogil:
    """Use a group's holds for a task placed on a node: end its reservation, or shrink its claims' hold there by a task.

    Return True if the reservation stays: the task took room that the reservation does not rely on.
    """
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == group:
            if is_beside(v, h, node, v.queues[v.groups[group].leaf].tasks, at):
                return True
            if v.holds[h].kind == RESERVATION or v.groups[group].gang > 0 or served_tasks(v, group) == 1:
                since = v.groups[group].bypassed_since
                drop_holds(v, group, at)
                v.groups[group].bypassed_since = since
                return False
            if v.holds[h].node == node:
                _shrink_hold(v, h, at)
                return False
    return False


cdef void hand_on(View v, i64 group) noexcept nogil:
    """Give a group's reservation to the job that is first in it now."""
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == group and v.holds[h].kind == RESERVATION:
            v.holds[h].job = v.jobs[v.groups[group].head].id


cdef void _shrink_hold(View v, i64 h, double at) noexcept nogil:
    """Shrink a hold by one task."""
    cdef i64 m = v.len_total
    n, group = v.holds[h].node, v.holds[h].group
    count_idle(v, n, at)
    v.holds[h].tasks -= 1
    count_claim(v, h, -1)
    _update_nonlendable(v, group)
    for r in range(m):
        v.amount[h * m + r] -= v.demand[v.groups[group].shape_row * m + r]
    if v.holds[h].tasks == 0:
        for r in range(m):
            v.idled_before[v.groups[group].leaf * m + r] += v.idled[h * m + r]
        _remove_holds(v, group, n)
    set_held(v, n)
    set_idle(v, n)
    if v.counts[IN_ORDER]:
        touch_queue(v, v.groups[group].leaf)
        room_came_back(v, n)
        touch_group(v, group)


cpdef void drop_holds_on(View v, i64 node, double at) noexcept nogil:
    """Drop all holds on a node that is no longer available; their groups stay in line, and are due for a new plan at once."""
    while v.nodes[node].hold != NONE:
        owner = v.holds[v.nodes[node].hold].group
        since = v.groups[owner].bypassed_since
        drop_holds(v, owner, at)
        v.groups[owner].bypassed_since = since


cdef void note_end(View v, i64 j, i64 t, double at) noexcept nogil:
    """Note whether a task that ends on a node with holds did what they counted on.

    A task that was expected before a start changes no plan: its end is included there already, and a new plan would be
    the same.
    """
    h, until = v.nodes[v.tasks[t].node].hold, v.tasks[t].until
    _note_overrun(v, j, t, at)
    while h != NONE and at < until:
        if until >= v.holds[h].start and counts_on(v, h, v.jobs[j].queue):
            v.holds[h].change = max(v.holds[h].change, CHANGED)
        h = v.holds[h].after


cdef void _note_overrun(View v, i64 j, i64 t, double at) noexcept nogil:
    """Count a task that outlasts its cautious forecast against its queue, once."""
    if v.tasks[t].trusted and at > v.tasks[t].until:
        v.queues[v.jobs[j].queue].overran += 1
        v.tasks[t].trusted = False


cdef void _remove_holds(View v, i64 group, i64 node) noexcept nogil:
    """Remove a group's holds (on one node, or NONE: all) from the table, with their charges."""
    cdef i64 m = v.len_total
    unlink_holds(v)
    left = 0
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == group and (node == NONE or v.holds[h].node == node):
            count_claim(v, h, -v.holds[h].tasks)
            for r in range(m):
                charge_promise(v, h, r, -v.idle[h * m + r])
            if v.holds[h].place != NONE:
                for q in range(v.counts[QUEUES]):
                    v.queues[q].apart &= ~(<i64>1 << v.holds[h].place)
        else:
            v.holds[left] = v.holds[h]
            for r in range(m):
                v.amount[left * m + r], v.back[left * m + r] = v.amount[h * m + r], v.back[h * m + r]
                v.idle[left * m + r], v.idled[left * m + r] = v.idle[h * m + r], v.idled[h * m + r]
            left += 1
    for h in range(left, v.counts[HOLDS]):
        for r in range(m):
            v.back[h * m + r] = 0
    v.counts[HOLDS] = left
    link_holds(v)
    if v.counts[IN_ORDER]:
        touch_queue(v, v.groups[group].leaf)


cdef void _note_changed(View v, flag *changed, i64 rank) noexcept nogil:
    """Note that a reservation's holds on some nodes changed: higher ranks there must be replanned, lower ones may be."""
    for h in range(v.counts[HOLDS]):
        if changed[v.holds[h].node] and v.holds[h].rank != rank:
            change = BROKEN if v.holds[h].rank > rank else CHANGED
            v.holds[h].change = max(v.holds[h].change, change)


cdef void _set_expected_ends(View v, i64 n, double at) noexcept nogil:
    """Set when a node's tasks are expected to end, and what they give back to its holds."""
    cdef i64 m = v.len_total
    cdef double[TAILS] tails
    h = v.nodes[n].hold
    while h != NONE:
        for r in range(m):
            v.back[h * m + r] = 0
        v.holds[h].review = INFINITY
        h = v.holds[h].after
    t, part = v.nodes[n].task, part_left(v, n)
    while t != NONE:
        j = v.tasks[t].job
        _note_overrun(v, j, t, at)
        until = expected_end(v, t, at, part, tails)
        if until != v.tasks[t].until:
            v.tasks[t].until, v.tasks[t].trusted = until, False
        _count_on(v, j, t)
        t = v.tasks[t].after


cdef void _count_on(View v, i64 j, i64 t) noexcept nogil:
    """Count a task for the holds on its node that start after its expected end, and set when to review them."""
    cdef i64 m = v.len_total
    h = v.nodes[v.tasks[t].node].hold
    while h != NONE:
        if v.tasks[t].until <= v.holds[h].start and counts_on(v, h, v.jobs[j].queue):
            for r in range(m):
                v.back[h * m + r] += v.demand[v.jobs[j].shape_row * m + r]
            v.holds[h].review = min(v.holds[h].review, v.tasks[t].until)
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
    View v, i64 group, i64 job, const i64[::1] nodes, const i64[::1] tasks, i64 kind, double start, i64 slips,
    const i64[::1] apart, double at,
):
    """Call :func:`keep_room`."""
    keep_room(
        v, group, job, nodes.shape[0], <i64 *>&nodes[0], <i64 *>&tasks[0], kind, start, slips,
        apart.shape[0], <i64 *>&apart[0], at,
    )
