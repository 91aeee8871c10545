"""The preemption plan: the state as it will be when all preemptions have happened, and who may be a victim.

`kernel/claims.pxi` says which claims are due, `kernel/victims.pxi` picks their victims. This file has, in order:

1. the plan itself (:func:`gather`), and how a preemption changes it (:func:`preempt`);
2. the rules: which runs are eligible victims (:func:`find_eligible`, :func:`is_eligible_victim`), and in which order
   (:func:`is_victim_before`);
3. what still blocks a claim: nodes (:func:`fits`), limits and non-lendable quotas (:func:`blocking_queue`);
4. offers that are rescinded for a claim before any task is preempted.

A **run** is a task that starts or runs; the runs of a gang are preempted together.
"""


cpdef void gather(View v, PreemptionPlan g, double now) noexcept nogil:
    """Fill the plan. `entitled` and `depth` are set; all else is zeros and long enough."""
    cdef i64 m = v.len_total
    cdef bint protected
    resources, k = m, 0
    for q in range(v.counts[QUEUES]):
        for r in range(resources):
            g.left[q * m + r] = v.used[q * m + r]
            g.bound[q * m + r] = v.used[q * m + r] - v.spare[q * m + r]
    for n in range(v.counts[NODES]):
        for r in range(resources):
            g.room[n * m + r] = v.free[n * m + r]
    for j in range(v.len_jobs):
        left, first = v.jobs[j].holding, k
        protected, lost, begun = False, 0.0, INFINITY
        shape, leaf = v.jobs[j].shape_row, v.jobs[j].queue
        for t in range(v.jobs[j].first, v.jobs[j].first + v.jobs[j].tasks):
            if left == 0:
                break
            status, n = v.tasks[t].status, v.tasks[t].node
            if status < PLACED or status > REVOKING:
                continue
            left -= 1
            if status == STOPPING or status == EXPIRING or status == REVOKING:
                for r in range(resources):
                    g.room[n * m + r] += v.demand[shape * m + r]
                subtract(v, g.left, leaf, &v.demand[shape * m], 1)
                if not v.jobs[j].revocable:
                    subtract(v, g.bound, leaf, &v.demand[shape * m], 1)
                continue
            started = v.tasks[t].started_at if status == RUNNING else now
            runs = g.runs
            runs[k].task, runs[k].job, runs[k].leaf, runs[k].node = t, j, leaf, n
            runs[k].first, runs[k].last, runs[k].count, runs[k].begun = k, k + 1, 1, started
            runs[k].lost = max(0.0, now - max(started, v.tasks[t].kept_at)) * _largest(v, &v.demand[shape * m])
            runs[k].revocable = v.jobs[j].revocable
            # rule: min-runtime
            runs[k].protected = now - started < v.queues[leaf].min_runtime
            protected |= runs[k].protected
            lost += runs[k].lost
            begun = min(begun, started)
            k += 1
        if v.jobs[j].gang:
            for run in range(first, k):
                g.runs[run].first, g.runs[run].last, g.runs[run].count = first, k, k - first
                g.runs[run].lost, g.runs[run].begun, g.runs[run].protected = lost, begun, protected
    _by_node(v, g, k)
    _keep_for_claims(v, g)
    for q in range(v.counts[QUEUES]):
        set_above(v, g, q)


cdef void _by_node(View v, PreemptionPlan g, i64 count) noexcept nogil:
    """List the runs of each node."""
    for k in range(count):
        g.at[g.runs[k].node + 1] += 1
    for n in range(v.counts[NODES]):
        g.at[n + 1] += g.at[n]
    mark, place = v.scratches, integers(v, v.counts[NODES])
    memcpy(place, g.at, v.counts[NODES] * sizeof(i64))
    for k in range(count):
        n = g.runs[k].node
        g.by_node[place[n]] = k
        place[n] += 1
    release(v, mark)


cdef void _keep_for_claims(View v, PreemptionPlan g) noexcept nogil:
    """Deduct what is kept for claims from the plan's room. Reservations are not deducted: they are planned around claims."""
    cdef i64 m = v.len_total
    for h in range(v.counts[HOLDS]):
        if v.holds[h].kind != RESERVATION:
            for r in range(m):
                g.room[v.holds[h].node * m + r] -= v.amount[h * m + r]


cdef double _largest(View v, i64 *amounts) noexcept nogil:
    """Return the dominant share of amounts."""
    cdef i64 m = v.len_total
    share = 0.0
    for r in range(m):
        if v.total[r] > 0:
            share = max(share, <double>amounts[r] / v.total[r])
    return share


cdef void set_above(View v, PreemptionPlan g, i64 q) noexcept nogil:
    """Compute how far a queue will be above its entitlement."""
    cdef i64 m = g.cols_left
    g.above[q] = floor((_largest(v, &g.left[q * m]) - g.entitled[q]) * SHARE_STEPS + 0.5)


cdef void subtract(View v, i64 *amounts, i64 leaf, i64 *demand, i64 times) noexcept nogil:
    """Subtract `times` demands from what a leaf and all above it have."""
    cdef i64 m = v.len_total
    q = leaf
    while q != NONE:
        for r in range(m):
            amounts[q * m + r] -= times * demand[r]
        q = v.queues[q].parent


cdef void preempt(View v, PreemptionPlan g, i64 k, i64 sign) noexcept nogil:
    """Preempt a run with its gang in the plan; undo that with sign -1."""
    cdef i64 m = v.len_total
    leaf = g.runs[k].leaf
    demand = &v.demand[v.jobs[g.runs[k].job].shape_row * m]
    for run in range(g.runs[k].first, g.runs[k].last):
        g.runs[run].preempted = sign > 0
        n = g.runs[run].node
        for r in range(m):
            g.room[n * m + r] += sign * demand[r]
    subtract(v, g.left, leaf, demand, sign * g.runs[k].count)
    if not g.runs[k].revocable:
        subtract(v, g.bound, leaf, demand, sign * g.runs[k].count)
    q = leaf
    while q != NONE:
        set_above(v, g, q)
        q = v.queues[q].parent


cdef void preempt_all(View v, PreemptionPlan g, i64 begin, i64 end, i64 sign) noexcept nogil:
    """Preempt the picked runs from `begin` to `end`; undo that with sign -1."""
    for i in range(begin, end):
        preempt(v, g, g.picked[i], sign)


cpdef void find_eligible(View v, PreemptionPlan g, i64 b, i64 kind, i64 first, i64 last) noexcept nogil:
    """Set which leaves may have victims for a claim, and what queues have before any preemption.

    For PRIORITY that is the claim's leaf, for IDLE all with revocable jobs, else siblings of the queues from `first` to
    `last` on the path.
    """
    cdef i64 m = g.cols_left
    cdef bint asking
    for q in range(g.len_left):
        for r in range(m):
            g.had[q * m + r] = g.left[q * m + r] + g.kept[q * m + r]
        g.own_child[q], g.asks[q], g.is_eligible_victim[q] = NONE, False, False
    leaf = v.groups[b].leaf
    q, asking = leaf, False
    while v.queues[q].parent != NONE:
        asking |= q == first
        g.own_child[v.queues[q].parent] = q
        g.asks[q] = asking
        asking &= q != last
        q = v.queues[q].parent
    if kind == PRIORITY:
        g.is_eligible_victim[leaf] = v.queues[leaf].revocable
        return
    for other in range(1, v.counts[QUEUES]):
        if kind == IDLE:
            g.is_eligible_victim[other] = v.queues[other].revocable and v.queues[other].spare_tasks > 0
        elif g.own_child[other] == NONE and other != leaf and v.queues[other].revocable:
            q = other
            while g.own_child[q] == NONE:
                q = v.queues[q].parent
            g.is_eligible_victim[other] = g.asks[g.own_child[q]]


cdef bint is_victim_before(View v, PreemptionPlan g, i64 one, i64 other) noexcept nogil:
    """Return True if a run is preempted before another, by the order in `kernel/victims.pxi`."""
    if g.runs[one].revocable != g.runs[other].revocable:
        return g.runs[one].revocable
    x, y = g.runs[one].leaf, g.runs[other].leaf
    if x != y:
        while v.queues[x].parent != v.queues[y].parent:
            if g.depth[x] >= g.depth[y]:
                x = v.queues[x].parent
            else:
                y = v.queues[y].parent
        if g.above[x] != g.above[y]:
            return g.above[x] > g.above[y]
        return v.queues[x].rank > v.queues[y].rank
    i, j = g.runs[one].job, g.runs[other].job
    if v.jobs[i].priority != v.jobs[j].priority:
        return v.jobs[i].priority < v.jobs[j].priority
    if g.runs[one].lost != g.runs[other].lost:
        return g.runs[one].lost < g.runs[other].lost
    if g.runs[one].count != g.runs[other].count:
        return g.runs[one].count < g.runs[other].count
    if g.runs[one].begun != g.runs[other].begun:
        return g.runs[one].begun > g.runs[other].begun
    return one > other  # the order of their jobs and tasks


cpdef bint is_eligible_victim(View v, PreemptionPlan g, i64 k, i64 b, i64 kind) noexcept nogil:
    """Return True if a run may be preempted for a group's claim, given the preemptions already in the plan."""
    cdef i64 m = v.len_total
    cdef bint shared
    if g.runs[k].preempted or g.runs[k].barred or g.runs[k].protected:  # rule: min-runtime
        return False
    if not g.is_eligible_victim[g.runs[k].leaf]:  # rule: revocable
        return False
    job, count = g.runs[k].job, g.runs[k].count
    demand, q = &v.demand[v.jobs[job].shape_row * m], g.runs[k].leaf
    if kind == PRIORITY and v.jobs[job].priority >= v.groups[b].priority:  # rule: lower-priority
        return False
    if kind == IDLE and not (g.runs[k].revocable and _is_above_limit(v, g, q, demand)):  # rule: above-limit
        return False
    shared = kind == FAIR_SHARE or (kind == IDLE and v.queues[q].share_timeout < INFINITY)
    while v.queues[q].parent != NONE:  # rules: keeps-guarantee, keeps-share
        if q == v.groups[b].leaf or g.own_child[q] != NONE:
            if falls_further(v, g, q, demand, count, b) or (shared and _loses_fair_share(v, g, q, demand, count, b)):
                return False
        elif falls_below(v, g, q, demand, count) or (shared and not keeps_fair_share(v, g, q, demand, count)):
            return False
        q = v.queues[q].parent
    return not would_claim(v, g, k, b, kind) and (kind != GUARANTEE or _stays_behind(v, g, k, b))  # rule: no-counter-claim


cdef bint _stays_behind(View v, PreemptionPlan g, i64 k, i64 b) noexcept nogil:
    """Return True if a GUARANTEE claim still goes before a run preempted for it while the claim is unserved.

    It always does, except among queues compared by YARN's rule: one below its minimum goes first with any demand, and
    would get back what it gave up.
    """
    y = g.runs[k].leaf
    while g.own_child[v.queues[y].parent] == NONE:
        y = v.queues[y].parent
    if not compares_as_yarn(v, y):
        return True
    preempt(v, g, k, 1)
    first = _claim_goes_before(v, g, b, g.own_child[v.queues[y].parent], y, g.runs[k].job, True)
    preempt(v, g, k, -1)
    return first


cdef bint falls_below(View v, PreemptionPlan g, i64 q, i64 *demand, i64 count) noexcept nogil:
    """Return True if a queue off the claim's path would be below its guarantee without `count` such tasks."""
    cdef i64 m = v.len_total
    for r in range(m):
        if demand[r] > 0 and v.guarantee[q * m + r] > 0 and g.left[q * m + r] - count * demand[r] < v.guarantee[q * m + r]:
            return True
    return False


cdef bint falls_further(View v, PreemptionPlan g, i64 q, i64 *demand, i64 count, i64 b) noexcept nogil:
    """Return True if a queue on the claim's path would fall below its guarantee, and further than before.

    It loses `count` such tasks and gains the claim.
    """
    cdef i64 m = v.len_total
    for r in range(m):
        if demand[r] > 0 and v.guarantee[q * m + r] > 0:
            after = _with_claim(v, g, q, b, r) - count * demand[r]
            if after < min(v.guarantee[q * m + r], g.had[q * m + r]):
                return True
    return False


cdef bint _loses_fair_share(View v, PreemptionPlan g, i64 q, i64 *demand, i64 count, i64 b) noexcept nogil:
    """Return :func:`falls_further` for its fair share."""
    cdef i64 m = v.len_total
    had, share = 0.0, 0.0
    for r in range(m):
        if v.total[r] > 0:
            had = max(had, <double>g.had[q * m + r] / v.total[r])
            share = max(share, <double>(_with_claim(v, g, q, b, r) - count * demand[r]) / v.total[r])
    return floor((share - min(g.entitled[q], had)) * SHARE_STEPS + 0.5) < 0


cdef bint would_claim(View v, PreemptionPlan g, i64 k, i64 b, i64 kind) noexcept nogil:
    """Return True if a run preempted for a claim would itself have a claim for a guarantee, with the first claim served.

    For a PRIORITY claim, also one for its fair share. So no victim causes further preemptions.
    """
    cdef i64 m = v.len_total
    leaf, job = g.runs[k].leaf, g.runs[k].job
    if g.runs[k].revocable:
        return False
    demand, back = &v.demand[v.jobs[job].shape_row * m], g.runs[k].count if g.runs[k].preempted else 0
    if kind == PRIORITY and v.queues[leaf].share_timeout < INFINITY:
        share = 0.0
        for r in range(m):
            if v.total[r] > 0:
                share = max(share, <double>(_with_claim(v, g, leaf, b, r) + back * demand[r]) / v.total[r])
        if share <= g.entitled[leaf] * (1 + ENTITLEMENT_TOLERANCE):
            return True
    q, within = leaf, False
    while v.queues[q].guarded and (within or v.queues[q].guarantee_timeout < INFINITY):
        named = False
        for r in range(m):
            if demand[r] > 0 and v.guarantee[q * m + r] > 0:
                if _with_claim(v, g, q, b, r) + back * demand[r] > v.guarantee[q * m + r]:
                    return within
                named = True
        within |= named
        q = v.queues[q].parent
    return within


cdef i64 _with_claim(View v, PreemptionPlan g, i64 q, i64 b, i64 r) noexcept nogil:
    """Return what a queue will have of a resource with a group's claim served."""
    cdef i64 m = g.cols_left
    has = g.left[q * m + r] + g.kept[q * m + r]
    if q == v.groups[b].leaf or g.own_child[q] != NONE:
        has += max(1, v.groups[b].gang) * v.demand[v.groups[b].shape_row * m + r]
    return has


cdef bint any_would_claim(View v, PreemptionPlan g, i64 b, i64 kind, i64 count) noexcept nogil:
    """Return True if any picked run would have a claim itself, with all of them preempted."""
    for i in range(count):
        if would_claim(v, g, g.picked[i], b, kind):
            return True
    return False


cdef bint add_releasable(View v, PreemptionPlan g, i64 leaf, i64 job, i64 *amounts) noexcept nogil:
    """Add up what tasks of a leaf can release, one after another, for a claim outside all queues above it.

    Only guarantees are checked. Return True if some task of `job` may be the first victim.
    """
    cdef i64 m = v.len_total
    mine = False
    for k in range(g.at[g.len_at - 1]):
        if g.runs[k].job == job and _keeps_guarantees(v, g, k):
            mine = True
    for k in range(g.at[g.len_at - 1] - 1, -1, -1):
        if g.runs[k].leaf == leaf and not g.runs[k].preempted and _keeps_guarantees(v, g, k):
            preempt(v, g, k, 1)
            for r in range(m):
                amounts[r] += g.runs[k].count * v.demand[v.jobs[g.runs[k].job].shape_row * m + r]
    return mine


cdef bint _keeps_guarantees(View v, PreemptionPlan g, i64 k) noexcept nogil:
    """Return True if all queues above a run keep their guarantees without it."""
    cdef i64 m = v.len_total
    q = g.runs[k].leaf
    while v.queues[q].parent != NONE:
        if falls_below(v, g, q, &v.demand[v.jobs[g.runs[k].job].shape_row * m], g.runs[k].count):
            return False
        q = v.queues[q].parent
    return True


cdef bint _is_above_limit(View v, PreemptionPlan g, i64 leaf, i64 *demand) noexcept nogil:
    """Return True if a leaf, or a queue above it, will exceed a limit of something its task uses."""
    cdef i64 m = v.len_total
    q = leaf
    while q != NONE:
        for r in range(m):
            if demand[r] > 0 and g.left[q * m + r] > v.limit[q * m + r]:
                return True
        q = v.queues[q].parent
    return False


cdef bint keeps_fair_share(View v, PreemptionPlan g, i64 q, i64 *demand, i64 count) noexcept nogil:
    """Return True if a queue keeps its fair share without `count` such tasks."""
    cdef i64 m = v.len_total
    share = 0.0
    for r in range(m):
        if v.total[r] > 0:
            share = max(share, <double>(g.left[q * m + r] - count * demand[r]) / v.total[r])
    return floor((share - g.entitled[q]) * SHARE_STEPS + 0.5) >= 0


cdef bint claim_goes_first(View v, PreemptionPlan g, i64 b, i64 count) noexcept nogil:
    """Return True if the served claim goes before all picked runs by the order that places tasks."""
    cdef i64 m = v.len_total
    claim, wanted, first = &v.demand[v.groups[b].shape_row * m], max(1, v.groups[b].gang), True
    subtract(v, g.kept, v.groups[b].leaf, claim, -wanted)
    for i in range(count):
        y = g.runs[g.picked[i]].leaf
        while g.own_child[v.queues[y].parent] == NONE:
            y = v.queues[y].parent
        if not _claim_goes_before(v, g, b, g.own_child[v.queues[y].parent], y, g.runs[g.picked[i]].job, False):
            first = False
            break
    subtract(v, g.kept, v.groups[b].leaf, claim, wanted)
    return first


cdef bint _claim_goes_before(View v, PreemptionPlan g, i64 b, i64 x, i64 y, i64 job, bint always) noexcept nogil:
    """Return True if queue x, with what is kept for its claims, goes before its sibling y that lost tasks of a job.

    Ties are broken by who was served last; `always` requires it without the tie-breaker.
    """
    cdef i64 m = v.len_total
    cdef bint first
    policy = v.queues[v.queues[x].parent].policy
    if policy == FIFO or policy == BY_PRIORITY:
        if policy == BY_PRIORITY and v.groups[b].priority != v.jobs[job].priority:
            return v.groups[b].priority > v.jobs[job].priority
        return v.jobs[current_job(v, b)].id < v.jobs[job].id
    resources = m
    mark, less, claimed = v.scratches, integers(v, m), integers(v, m)
    for r in range(resources):
        less[r], claimed[r] = v.used[y * m + r] - g.left[y * m + r], v.claimed[x * m + r]
        v.claimed[x * m + r] = 0  # it is part of g.kept
        v.used[x * m + r] += g.kept[x * m + r]
        v.used[y * m + r] -= less[r]
        v.counts_as[x * m + r] += g.kept[x * m + r]
        v.counts_as[y * m + r] -= less[r]
    _set_keys(v, x, y)
    cache = v.queue_cache
    one = below_on_path(v, x, v.groups[b].leaf, v.groups[b].shape_row, tasks_at_once(v, b))
    other = below_on_path(v, y, v.jobs[job].queue, v.jobs[job].shape_row, v.jobs[job].tasks if v.jobs[job].gang else 1)
    if always:
        order = compare_queues(v, x, one, cache[x].first, cache[x].level, y, other, cache[y].first, cache[y].level)
        first = order < 0
    else:
        first = queue_goes_before(v, x, one, cache[x].first, cache[x].level, y, other, cache[y].first, cache[y].level)
    for r in range(resources):
        v.claimed[x * m + r] = claimed[r]
        v.used[x * m + r] -= g.kept[x * m + r]
        v.used[y * m + r] += less[r]
        v.counts_as[x * m + r] -= g.kept[x * m + r]
        v.counts_as[y * m + r] += less[r]
    _set_keys(v, x, y)
    release(v, mark)
    return first


cdef void _set_keys(View v, i64 x, i64 y) noexcept nogil:
    _set_keys_of(v, x)
    _set_keys_of(v, y)


cdef i64 fitting(View v, PreemptionPlan g, i64 n, i64 shape, i64 most) noexcept nogil:
    """Return how many tasks of a shape a node will have room for, at most `most`."""
    cdef i64 m = v.len_total
    if not v.nodes[n].up or v.nodes[n].draining or not v.masks[v.shapes[shape].mask * v.cols_masks + n]:
        return 0
    for r in range(m):
        if v.demand[shape * m + r] > 0:
            most = min(most, floor_div(g.room[n * m + r], v.demand[shape * m + r]))
    return max(0, most)


cdef i64 all_fitting(View v, PreemptionPlan g, i64 shape, i64 most) noexcept nogil:
    """Return how many tasks of a shape all nodes will have room for, at most `most`."""
    total = 0
    for n in range(v.counts[NODES]):
        if total < most:
            total += fitting(v, g, n, shape, most - total)
    return total


cdef bint fits(View v, PreemptionPlan g, i64 b) noexcept nogil:
    """Return True if a group's claim fits on nodes and under limits with no more preemptions."""
    wanted = max(1, v.groups[b].gang)
    return all_fitting(v, g, v.groups[b].shape_row, wanted) >= wanted and blocking_queue(v, g, b) == NONE


cdef i64 blocking_queue(View v, PreemptionPlan g, i64 b) noexcept nogil:
    """Return the lowest queue on the path whose limit a claim would exceed; the root if it needs non-lendable quota; NONE."""
    cdef i64 m = v.len_total
    demand, q = &v.demand[v.groups[b].shape_row * m], v.groups[b].leaf
    while q != NONE:
        for r in range(m):
            if demand[r] > 0 and (over_limit_by(v, g, b, q, r) > 0 or (q == 0 and over_lendable_by(v, g, b, r) > 0)):
                return q
        q = v.queues[q].parent
    return NONE


cdef i64 over_limit_by(View v, PreemptionPlan g, i64 b, i64 q, i64 r) noexcept nogil:
    """Return by how much a claim would exceed a queue's limit of a resource that it needs; 0 if it would not."""
    cdef i64 m = v.len_total
    if v.limit[q * m + r] == UNLIMITED:
        return 0
    return _excess_over(v, b, r, v.limit[q * m + r] - g.bound[q * m + r] - g.kept[q * m + r])


cdef i64 over_lendable_by(View v, PreemptionPlan g, i64 b, i64 r) noexcept nogil:
    """Return how much non-lendable quota of others a claim would use of a resource that it needs."""
    cdef i64 m = g.cols_left
    if not v.queues[0].has_nonlendable:
        return 0
    unused = v.total[r] - g.left[0 * m + r] - g.kept[0 * m + r]
    return _excess_over(v, b, r, unused - _nonlendable_after(v, g, v.groups[b].leaf, r))


cdef i64 _excess_over(View v, i64 b, i64 r, i64 room) noexcept nogil:
    """Return how much of a group's claim exceeds `room`."""
    cdef i64 m = v.len_total
    need, count = v.demand[v.groups[b].shape_row * m + r], max(1, v.groups[b].gang)
    if need <= floor_div(room, count):  # avoids overflow
        return 0
    return max(1, min(floor_div(INFINITE, count), need) * count - room)


cdef i64 _nonlendable_after(View v, PreemptionPlan g, i64 leaf, i64 r) noexcept nogil:
    """Return how much idle quota of a resource others will not lend to a leaf; see `kernel/limits.pxi`."""
    cdef i64 m = v.len_total
    mark = v.scratches
    below, above = integers(v, v.counts[QUEUES]), flags(v, v.counts[QUEUES])
    amount, q = 0, leaf
    while q != NONE:
        above[q] = True
        q = v.queues[q].parent
    for q in range(v.counts[QUEUES] - 1, 0, -1):  # parents have smaller rows
        idle_nonlendable = max(0, v.nonlendable[q * m + r] - g.left[q * m + r] - g.kept[q * m + r], below[q])
        if not above[q]:
            if above[v.queues[q].parent]:
                amount += idle_nonlendable
            below[v.queues[q].parent] += idle_nonlendable
    release(v, mark)
    return amount


def releasable(View v, PreemptionPlan g, i64 leaf, i64 job, i64[::1] amounts):
    """Return :func:`add_releasable`."""
    return add_releasable(v, g, leaf, job, &amounts[0])


cdef void rescind_all(View v, PreemptionPlan g, i64 b, i64 kind) noexcept nogil:
    """Rescind, in the plan, all offers that may be rescinded for a group's claim."""
    for k in range(g.len_rescinded):
        if g.rescinded[k] == KEPT and _may_be_rescinded(v, g, k, b, kind):
            _rescind(v, g, k, 1)


cdef void restore_unneeded_offers(View v, PreemptionPlan g, i64 b, bint planned) noexcept nogil:
    """Restore the offers rescinded just now that the claim does not need; all of them if there is no plan."""
    for k in range(g.len_rescinded - 1, -1, -1):
        if g.rescinded[k] == NOW_RESCINDED:
            _rescind(v, g, k, -1)
            if planned and not fits(v, g, b):
                _rescind(v, g, k, 1)


cdef bint _may_be_rescinded(View v, PreemptionPlan g, i64 k, i64 b, i64 kind) noexcept nogil:
    """Return True if an offer's role, and all queues above, keep what is theirs without it; the claim's path gains the claim."""
    cdef i64 m = v.len_total
    q, rest = v.offers[k].leaf, &v.rest[k * m]
    for r in range(m):
        if rest[r] > 0:
            break
    else:
        return False
    while v.queues[q].parent != NONE:
        if q == v.groups[b].leaf or g.own_child[q] != NONE:
            if falls_further(v, g, q, rest, 1, b):
                return False
        elif falls_below(v, g, q, rest, 1) or (kind != GUARANTEE and not keeps_fair_share(v, g, q, rest, 1)):
            return False
        q = v.queues[q].parent
    return True


cdef void _rescind(View v, PreemptionPlan g, i64 k, i64 sign) noexcept nogil:
    """Rescind an offer in the plan; undo that with sign -1."""
    cdef i64 m = v.len_total
    leaf, rest = v.offers[k].leaf, &v.rest[k * m]
    g.rescinded[k] = NOW_RESCINDED if sign > 0 else KEPT
    for r in range(m):
        g.room[v.offers[k].node * m + r] += sign * rest[r]
    subtract(v, g.left, leaf, rest, sign)
    if not v.offers[k].revocable:
        subtract(v, g.bound, leaf, rest, sign)
    while leaf != NONE:
        set_above(v, g, leaf)
        leaf = v.queues[leaf].parent
