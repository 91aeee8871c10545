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
    cdef bint protected, recovering
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
        protected, recovering, lost, begun = False, False, 0.0, INFINITY
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
            runs[k].recovering = v.tasks[t].oversized and now - started < v.jobs[j].safe_for
            protected |= runs[k].protected
            recovering |= runs[k].recovering
            lost += runs[k].lost
            begun = min(begun, started)
            k += 1
        if v.jobs[j].gang:
            for run in range(first, k):
                g.runs[run].first, g.runs[run].last, g.runs[run].count = first, k, k - first
                g.runs[run].lost, g.runs[run].begun = lost, begun
                g.runs[run].protected, g.runs[run].recovering = protected, recovering
    _by_node(v, g, k)
    _keep_for_claims(v, g)
    for q in range(v.counts[QUEUES]):
        set_above(v, g, q)


cpdef bint next_is_safe(View v, i64 j) noexcept nogil:
    """Return True if a job's next task was preempted as oversized before: it is no victim for a guarantee once it has started."""
    if v.jobs[j].safe_for == 0 or not v.jobs[j].irregular:
        return False
    for t in range(v.jobs[j].first, v.jobs[j].first + v.jobs[j].tasks):
        if v.tasks[t].status == WAITING and not v.tasks[t].delayed:
            return v.tasks[t].oversized
    return False


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
    """Deduct what is kept for claims from the plan's room, and for who is no victim; other reservations are planned around claims."""
    cdef i64 m = v.len_total
    for h in range(v.counts[HOLDS]):
        if v.holds[h].kind != RESERVATION or is_for_safe(v, h):
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

    For PRIORITY that is the claim's leaf, for IDLE all with revocable jobs; for all others, and for PRIORITY too if there
    are such, siblings of the queues from `first` to `last` on the path.
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
    cdef bint shared, apart
    job, count, q = g.runs[k].job, g.runs[k].count, g.runs[k].leaf
    demand, apart = &v.demand[v.jobs[job].shape_row * m], kind == PRIORITY and q != v.groups[b].leaf
    if g.runs[k].preempted or g.runs[k].barred or g.runs[k].protected:  # rule: min-runtime
        return False
    if g.runs[k].recovering and (kind <= FAIR_SHARE or apart):  # rule: once-per-run
        return False
    if not g.is_eligible_victim[q]:  # rule: revocable
        return False
    if kind == PRIORITY and not apart and v.jobs[job].priority >= v.groups[b].priority:  # rule: lower-priority
        return False
    if apart and not (g.wider[0] and _is_within_share(v, g, b, q) and not _outranks(v, g, k)):  # rules: mixed, no-counter-claim
        return False
    if kind == IDLE and not (g.runs[k].revocable and _is_above_limit(v, g, q, demand)):  # rule: above-limit
        return False
    shared = kind == FAIR_SHARE or apart or (kind == IDLE and v.queues[q].share_timeout < INFINITY)
    if g.wider[0] and kind == GUARANTEE:  # rule: oversized
        return not _is_guaranteed(v, g, k, b) and _stays_behind(v, g, k, b)
    while v.queues[q].parent != NONE:  # rules: keeps-guarantee, keeps-share
        if q == v.groups[b].leaf or g.own_child[q] != NONE:
            if falls_further(v, g, q, demand, count, b) or (shared and _loses_fair_share(v, g, q, demand, count, b)):
                return False
        elif falls_below(v, g, q, demand, count) or (shared and not keeps_fair_share(v, g, q, demand, count)):
            return False
        q = v.queues[q].parent
    return not would_claim(v, g, k, b, kind) and (kind != GUARANTEE or _stays_behind(v, g, k, b))  # rule: no-counter-claim


cdef bint _outranks(View v, PreemptionPlan g, i64 k) noexcept nogil:
    """Return True if a run would have a claim by its priority if it were preempted."""
    for other in range(g.at[g.len_at - 1] if v.queues[g.runs[k].leaf].priority_revokes else 0):
        if g.runs[other].leaf == g.runs[k].leaf and not g.runs[other].preempted:
            if v.jobs[g.runs[other].job].priority < v.jobs[g.runs[k].job].priority:
                return True
    return False


cdef bint _is_within_share(View v, PreemptionPlan g, i64 b, i64 leaf) noexcept nogil:
    """Return True if, with a group's claim served, each queue on its path is within its fair share, up to where a leaf's path parts."""
    y, q = leaf, v.groups[b].leaf
    while g.own_child[v.queues[y].parent] == NONE:
        y = v.queues[y].parent
    while q != v.queues[y].parent:
        if _share_with_claim(v, g, q, b, NULL, 0) > g.entitled[q] * (1 + ENTITLEMENT_TOLERANCE):
            return False
        q = v.queues[q].parent
    return True


cdef double _share_with_claim(View v, PreemptionPlan g, i64 q, i64 b, i64 *demand, i64 count) noexcept nogil:
    """Return the dominant share that a queue will have with a group's claim served, and `count` tasks more."""
    cdef i64 m = v.len_total
    share = 0.0
    for r in range(m):
        if v.total[r] > 0:
            more = count * demand[r] if count != 0 else 0
            share = max(share, <double>(_with_claim(v, g, q, b, r) + more) / v.total[r])
    return share


cdef bint is_justified(View v, PreemptionPlan g, i64 b, i64 kind, i64 count) noexcept nogil:
    """Return True if a claim by priority, once served, is within its fair share beside all picked runs of other leaves."""
    for i in range(count if kind == PRIORITY else 0):
        k = g.picked[i]
        if k != NONE and g.runs[k].preempted and g.runs[k].leaf != v.groups[b].leaf:
            if not _is_within_share(v, g, b, g.runs[k].leaf):
                return False
    return True


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
    least = min(g.entitled[q], _largest(v, &g.had[q * g.cols_left]))
    return floor((_share_with_claim(v, g, q, b, demand, -count) - least) * SHARE_STEPS + 0.5) < 0


cdef bint would_claim(View v, PreemptionPlan g, i64 k, i64 b, i64 kind) noexcept nogil:
    """Return True if a run preempted for a claim would itself have a claim for a guarantee, with the first claim served.

    For a PRIORITY claim, also one for its fair share. So no victim causes further preemptions.
    """
    leaf, demand = g.runs[k].leaf, &v.demand[v.jobs[g.runs[k].job].shape_row * v.len_total]
    if g.runs[k].revocable:
        return False
    if kind == PRIORITY and v.queues[leaf].share_timeout < INFINITY:
        share = _share_with_claim(v, g, leaf, b, demand, g.runs[k].count if g.runs[k].preempted else 0)
        if share <= g.entitled[leaf] * (1 + ENTITLEMENT_TOLERANCE):
            return True
    first = _first_within(v, g, k, b)
    return first != NONE and guarantee_timeout(v, leaf, first) < INFINITY


cdef i64 _first_within(View v, PreemptionPlan g, i64 k, i64 b) noexcept nogil:
    """Return the lowest queue above a run with a guarantee for it, with the claim served, if the run is within it; NONE.

    If it is within, the run is among what that queue could claim if it waited. If not, it is oversized: larger than
    what the queue has left of its guarantee.
    """
    cdef i64 m = v.len_total
    cdef bint named
    demand, back = &v.demand[v.jobs[g.runs[k].job].shape_row * m], g.runs[k].count if g.runs[k].preempted else 0
    q, first = g.runs[k].leaf, NONE
    while v.queues[q].guarded:
        named = False
        for r in range(m):
            if demand[r] > 0 and v.guarantee[q * m + r] > 0:
                if _with_claim(v, g, q, b, r) + back * demand[r] > v.guarantee[q * m + r]:
                    return first
                named = True
        if named and first == NONE:
            first = q
        q = v.queues[q].parent
    return first


cdef bint _is_guaranteed(View v, PreemptionPlan g, i64 k, i64 b) noexcept nogil:
    """Return True if what a run uses is guaranteed to its queue, with the claim served. What revocable jobs use never is."""
    return not g.runs[k].revocable and _first_within(v, g, k, b) != NONE


cdef i64 _with_claim(View v, PreemptionPlan g, i64 q, i64 b, i64 r) noexcept nogil:
    """Return what a queue will have of a resource with a group's claim served."""
    cdef i64 m = g.cols_left
    has = g.left[q * m + r] + g.kept[q * m + r]
    if b != NONE and (q == v.groups[b].leaf or g.own_child[q] != NONE):
        has += max(1, v.groups[b].gang) * v.demand[v.groups[b].shape_row * m + r]
    return has


cdef bint any_would_claim(View v, PreemptionPlan g, i64 b, i64 kind, i64 count) noexcept nogil:
    """Return True if any picked run would have a claim itself, with all of them preempted; or could, if oversized ones may.

    For a claim by priority that is not served by its leaf alone, also if somebody else would then have one that goes before.
    """
    for i in range(count):
        k = g.picked[i]
        if would_claim(v, g, k, b, kind) or (g.wider[0] and kind == GUARANTEE and _is_guaranteed(v, g, k, b)):
            return True
        if kind == PRIORITY and g.runs[k].leaf != v.groups[b].leaf:
            if _outranks(v, g, k) or _opens_claims(v, g, b, g.runs[k].leaf) or _opens_claims(v, g, b, v.groups[b].leaf):
                return True
    return False


cdef bint _opens_claims(View v, PreemptionPlan g, i64 b, i64 leaf) noexcept nogil:
    """Return True if somebody who waits in a leaf would have a claim for its fair share, with a group's claim served."""
    cdef i64 m = v.len_total
    for other in range(v.counts[GROUPS] if v.queues[leaf].share_timeout < INFINITY else 0):
        if v.groups[other].leaf == leaf and v.groups[other].head != NONE and not v.groups[other].revocable:
            if other != b or (v.groups[b].gang == 0 and waiting_tasks(v, b, served_tasks(v, b) + 2) > served_tasks(v, b) + 1):
                share = _share_with_claim(v, g, leaf, b, &v.demand[v.groups[other].shape_row * m], tasks_at_once(v, other))
                if share <= g.entitled[leaf] * (1 + ENTITLEMENT_TOLERANCE):
                    return True
    return False


cdef bint add_releasable(View v, PreemptionPlan g, i64 leaf, i64 job, i64 *amounts) noexcept nogil:
    """Add up what tasks of a leaf can release, one after another, for a claim outside all queues above it.

    Only guarantees are checked. Return True if some task of `job` may be the first victim.
    """
    cdef i64 m = v.len_total
    mine = False
    for k in range(g.at[g.len_at - 1]):
        if g.runs[k].job == job and not _is_guaranteed(v, g, k, NONE):
            mine = True
    for k in range(g.at[g.len_at - 1] - 1, -1, -1):
        if g.runs[k].leaf == leaf and not g.runs[k].preempted and not _is_guaranteed(v, g, k, NONE):
            preempt(v, g, k, 1)
            for r in range(m):
                amounts[r] += g.runs[k].count * v.demand[v.jobs[g.runs[k].job].shape_row * m + r]
    return mine


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
        if y == v.groups[b].leaf:
            continue
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
    mark, less, claimed, more = v.scratches, integers(v, m), integers(v, m), integers(v, m)
    for r in range(resources):
        less[r], claimed[r] = v.used[y * m + r] - g.left[y * m + r], v.claimed[x * m + r]
        more[r] = g.kept[x * m + r] + (g.left[x * m + r] - v.used[x * m + r])
        v.claimed[x * m + r] = 0  # it is part of g.kept
        v.used[x * m + r] += more[r]
        v.used[y * m + r] -= less[r]
        v.counts_as[x * m + r] += more[r]
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
        v.used[x * m + r] -= more[r]
        v.used[y * m + r] += less[r]
        v.counts_as[x * m + r] -= more[r]
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
    most = at_most_here(v, shape, most)
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


cpdef bint fits(View v, PreemptionPlan g, i64 b) noexcept nogil:
    """Return True if a group's claim fits on nodes and under limits with no more preemptions."""
    wanted = max(1, v.groups[b].gang)
    return all_fitting(v, g, v.groups[b].shape_row, wanted) >= wanted and blocking_queue(v, g, b) == NONE


cdef i64 blocking_queue(View v, PreemptionPlan g, i64 b) noexcept nogil:
    """Return the lowest queue on the path whose limit a claim would exceed; the root if it needs non-lendable quota; NONE."""
    cdef i64 m = v.len_total
    demand, q = &v.demand[v.groups[b].shape_row * m], v.groups[b].leaf
    while q != NONE:
        for r in range(m):
            if demand[r] > 0 and (is_over_limit(v, g, b, q, r) or (q == 0 and is_over_lendable(v, g, b, r))):
                return q
        q = v.queues[q].parent
    return NONE


cdef bint is_over_limit(View v, PreemptionPlan g, i64 b, i64 q, i64 r) noexcept nogil:
    """Return True if a claim would exceed a queue's limit of a resource that it needs."""
    cdef i64 m = v.len_total
    if v.limit[q * m + r] == UNLIMITED:
        return False
    room = v.limit[q * m + r] - g.bound[q * m + r] - g.kept[q * m + r]
    return v.demand[v.groups[b].shape_row * m + r] > floor_div(room, max(1, v.groups[b].gang))  # avoids overflow


cdef bint is_over_lendable(View v, PreemptionPlan g, i64 b, i64 r) noexcept nogil:
    """Return True if a claim would use non-lendable quota of others of a resource that it needs, and may not."""
    cdef i64 m = g.cols_left
    if not v.queues[0].has_nonlendable:
        return False
    unused, kept = v.total[r] - g.left[0 * m + r], g.kept[0 * m + r]
    lent = unused - kept - _nonlendable_after(v, g, v.groups[b].leaf, r)
    return exceeds_lent(v, b, r, max(1, v.groups[b].gang), lent, kept)


cdef i64 _nonlendable_after(View v, PreemptionPlan g, i64 leaf, i64 r) noexcept nogil:
    """Return how much idle quota of a resource others will not lend to a leaf; see `kernel/limits.pxi`."""
    cdef i64 m = v.len_total
    mark = v.scratches
    below, amount, q = integers(v, v.counts[QUEUES]), 0, leaf
    for q in range(v.counts[QUEUES] - 1, 0, -1):  # parents have smaller rows
        below[v.queues[q].parent] += _idle_nonlendable(v, g, q, r, below)
    q = leaf
    while v.queues[q].parent != NONE:
        amount += below[v.queues[q].parent] - _idle_nonlendable(v, g, q, r, below)
        q = v.queues[q].parent
    release(v, mark)
    return amount


cdef i64 _idle_nonlendable(View v, PreemptionPlan g, i64 q, i64 r, i64 *below) noexcept nogil:
    i = q * v.len_total + r
    return max(0, v.nonlendable[i] - g.left[i] - g.kept[i], below[q])


def place_planned(View v, PreemptionPlan g, const flag[::1] which):
    """Place, in the plan, those of the tasks that a cycle planned."""
    cdef i64 m = v.len_total
    for k in range(which.shape[0]):
        if which[k]:
            job, n = v.planned_job[k], v.planned_node[k]
            demand = &v.demand[v.jobs[job].shape_row * m]
            for r in range(m):
                g.room[n * m + r] -= demand[r]
            subtract(v, g.left, v.jobs[job].queue, demand, -1)
            if not v.jobs[job].revocable:
                subtract(v, g.bound, v.jobs[job].queue, demand, -1)


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
