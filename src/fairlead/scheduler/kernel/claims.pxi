"""Claims: pending tasks, or whole gangs, that others are preempted for, and when they are due.

| class | the claim | who may be preempted |
| --- | --- | --- |
| GUARANTEE | stays within the queue's guarantee | siblings along the path, see below |
| FAIR_SHARE | stays within the queue's fair share | as for GUARANTEE, with the leaf as the lowest queue |
| PRIORITY | has a higher priority than jobs of its leaf | jobs of its leaf; with these, also as for FAIR_SHARE |
| IDLE | needs what revocable jobs use above their queues' limits | those jobs |

Revocable jobs have no claims.

For GUARANTEE, let `first` be the lowest queue on the path from the leaf that is guaranteed something the task needs. Let
`last` be the highest such that it, and all below it on the path, stay within their guarantees of what the task needs; a
queue without such a guarantee bounds nothing. Victims are siblings of the queues from `first` to `last`. Each of these
queues goes before its siblings with that task (`kernel/keys.pxi`). So what is preempted does not return to the victims
while the claim lasts. Under YARN's policies that only holds for a queue below the minimum it is compared by; others
preempt nothing there.

What is kept for a queue's claims counts as its own: those claims are served. A claim is due after the longest timeout
from the leaf to `first`. It runs while the group waits and `first` misses its guarantee of what the task needs. Queues
above `first` decide who is a victim, not when.

`times[CLAIM_DUE]` is never later than the first moment at which a claim may be due, so most steps need no check. Events
that may open a claim lower it (:func:`expect_claim`, :func:`note_fall`); :func:`find_due` computes it.
"""


cdef void expect_claim(View v, i64 group, double at) noexcept nogil:
    """Note that a job waits in a group from now on: a claim may be due after its leaf's timeout.

    If all earlier tasks of the group have holds, the claim is as old as the group's.
    """
    leaf = v.groups[group].leaf
    if v.groups[group].revocable:
        return
    if v.queues[leaf].guarded:
        since = v.groups[group].since if v.counts[HOLDS] > 0 and served_tasks(v, group) > 0 else at
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], since + v.queues[leaf].guarantee_timeout)
    if v.queues[leaf].share_timeout < INFINITY:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)
    if v.queues[leaf].priority_revokes or v.queues[0].spare_tasks > 0:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)


cdef void note_fall(View v, i64 q, i64 *demand, double at) noexcept nogil:
    """Note that a queue with a guarantee has just released what a task needed."""
    cdef i64 m = v.len_total
    below = False
    for r in range(m):
        if demand[r] > 0 and v.used[q * m + r] < v.guarantee[q * m + r]:
            below = True
            if v.used[q * m + r] + demand[r] >= v.guarantee[q * m + r]:
                v.below_since[q * m + r] = at
    if below:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)
        let_in(v, q)


cdef void let_in(View v, i64 q) noexcept nogil:
    """Note that a queue may use more of its guarantee: on each node it may now have room that is reserved for those it may preempt."""
    if v.counts[HOLDS] > 0 and v.counts[IN_ORDER]:
        note_limited(v, q)
        v.queue_cache[q].maybe_stale = True


cdef i64 tasks_at_once(View v, i64 b) noexcept nogil:
    """Return how many tasks of a group are one claim."""
    return max(1, v.groups[b].gang)


cdef i64 *kept_by_queue(View v) noexcept nogil:
    """Return what is kept for claims: shape (queues, resources). It is scratch."""
    cdef i64 m = v.len_total
    kept = integers(v, v.counts[QUEUES] * m)
    for h in range(v.counts[HOLDS]):
        if v.holds[h].kind != RESERVATION:
            q = v.groups[v.holds[h].group].leaf
            while q != NONE:
                for r in range(m):
                    kept[q * m + r] += v.amount[h * m + r]
                q = v.queues[q].parent
    return kept


cpdef void count_claimed(View v) noexcept nogil:
    """Compute `claimed`: what is kept for claims."""
    mark = v.scratches
    memcpy(v.claimed, kept_by_queue(v), v.counts[QUEUES] * v.len_total * sizeof(i64))
    release(v, mark)


cpdef i64 served_tasks(View v, i64 b) noexcept nogil:
    """Return for how many tasks of a group room is kept, for claims."""
    count = 0
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == b and v.holds[h].kind != RESERVATION:
            count += v.holds[h].tasks
    return count


cpdef i64 waiting_tasks(View v, i64 b, i64 most) noexcept nogil:
    """Return how many tasks of a group may start by their jobs' bounds, at most `most`."""
    count, j = 0, v.groups[b].head
    while j != NONE and count < most:
        count += startable(v, j)
        j = v.jobs[j].after
    return min(count, most)


cdef bint has_unserved(View v, i64 b) noexcept nogil:
    """Return True if a group has a pending task that no room is kept for."""
    if v.groups[b].head == NONE:
        return False
    served = served_tasks(v, b) if v.counts[HOLDS] > 0 else 0
    if v.groups[b].gang > 0:
        return served == 0
    return waiting_tasks(v, b, served + 1) > served


cdef (i64, i64, double) guarded(View v, i64 b, i64 *kept) noexcept nogil:
    """Return `first` and `last` for a group's next claim of class GUARANTEE, and since when `first` misses its guarantee.

    NONE, NONE if there is no such claim. `kept`, shape (queues, resources), is what is kept for claims.
    """
    cdef i64 m = v.len_total
    demand, count = &v.demand[v.groups[b].shape_row * m], tasks_at_once(v, b)
    first, last, since = NONE, NONE, v.groups[b].since
    q = v.groups[b].leaf
    while v.queues[q].parent != NONE:
        named, missed = False, since
        for r in range(m if v.queues[q].guaranteed else 0):
            if demand[r] > 0 and v.guarantee[q * m + r] > 0:
                if demand[r] > floor_div(v.guarantee[q * m + r] - v.used[q * m + r] - kept[q * m + r], count):  # avoids overflow
                    return first, last, since
                named, missed = True, max(missed, v.below_since[q * m + r])
        if named and not misses_as_compared(v, q, kept):
            if first != NONE:
                return first, last, since
        elif named and first == NONE:
            first, since = q, missed
        if first != NONE:
            last = q
        q = v.queues[q].parent
    return first, last, since


cdef bint claims_from(View v, i64 b, i64 leaf) noexcept nogil:
    """Return True if a group's next claim for a guarantee could preempt tasks of another leaf."""
    cdef bint asks
    if not v.queues[v.groups[b].leaf].guarded:
        return False
    first, last, _ = guarded(v, b, v.claimed)
    q, asks = v.groups[b].leaf, False
    while first != NONE and not is_at_or_below(v, leaf, q):
        asks |= q == first
        if is_at_or_below(v, leaf, v.queues[q].parent):
            return asks
        asks &= q != last
        q = v.queues[q].parent
    return False


cdef bint is_at_or_below(View v, i64 q, i64 top) noexcept nogil:
    """Return True if queue q is `top`, or below it."""
    while q != NONE and q != top:
        q = v.queues[q].parent
    return q == top


cdef bint is_above_limit(View v, i64 *used, i64 q) noexcept nogil:
    """Return True if `used` exceeds a limit of queue q because of revocable jobs."""
    cdef i64 m = v.len_total
    for r in range(m):
        if v.spare[q * m + r] > 0 and used[q * m + r] > v.limit[q * m + r]:
            return True
    return False


cdef bint is_idle_used(View v, i64 *used) noexcept nogil:
    """Return True if, with `used`, any queue is above a limit because of revocable jobs that may be preempted."""
    if v.queues[0].spare_tasks > 0 and v.queues[0].revocable:
        for q in range(v.counts[QUEUES]):
            if v.queues[q].spare_tasks > 0 and is_above_limit(v, used, q):
                return True
    return False


cpdef bint may_await_room(View v) noexcept nogil:
    """Return True if :func:`awaits_room` or :func:`goes_after_lower` is True of some group."""
    for b in range(v.counts[GROUPS] if v.counts[LEAVING] > 0 or v.counts[LAST_INNER] > 0 else 0):
        if awaits_room(v, b):
            return True
    for b in range(v.counts[GROUPS] if v.counts[RANKED] > 0 else 0):
        if goes_after_lower(v, b):
            return True
    return False


cpdef bint goes_after_lower(View v, i64 b) noexcept nogil:
    """Return True if lower priorities of its leaf, which a group may preempt, go before it by a guarantee that it would exceed."""
    leaf = v.groups[b].leaf
    if not v.queues[leaf].priority_revokes or not v.queues[leaf].guarded or v.groups[b].revocable or v.group_cache[b].hopeless:
        return False
    if not has_unserved(v, b) or guarded(v, b, v.claimed)[0] != NONE:
        return False
    for other in range(v.counts[GROUPS]):
        if v.groups[other].leaf == leaf and v.groups[other].head != NONE and v.groups[other].priority < v.groups[b].priority:
            return True
    return False


cpdef bint awaits_room(View v, i64 b) noexcept nogil:
    """Return True if nothing is kept yet for a group's claim for a guarantee, due now or later, and the order may serve who goes after it.

    It may while tasks are stopping, or where a queue above `last` is not within its guarantee with the claim, but with others.
    """
    leaf = v.groups[b].leaf
    if v.groups[b].head == NONE or not v.queues[leaf].guarded or v.groups[b].revocable or v.group_cache[b].hopeless:
        return False
    first, last, begun = guarded(v, b, v.claimed)
    if first == NONE or (v.counts[LEAVING] == 0 and v.queues[last].parent == 0):
        return False
    return has_unserved(v, b) and begun + guarantee_timeout(v, leaf, first) < INFINITY


cdef bint _goes_after(View v, i64 b, i64 job, i64 count) noexcept nogil:
    """Return True if `count` tasks of a job go after a group's next claim for a guarantee, which could preempt them."""
    leaf = v.jobs[job].queue
    if not claims_from(v, b, leaf):
        return False
    q = leaf
    while not is_at_or_below(v, v.groups[b].leaf, v.queues[q].parent):
        q = v.queues[q].parent
    return below_on_path(v, q, leaf, v.jobs[job].shape_row, count) != 0


cpdef double guarantee_timeout(View v, i64 leaf, i64 first) noexcept nogil:
    """Return the claim timeout of a leaf, seconds: the longest from the leaf up to the queue `first`."""
    longest, q = v.queues[leaf].guarantee_timeout, leaf
    while first != NONE and q != first:
        q = v.queues[q].parent
        longest = max(longest, v.queues[q].guarantee_timeout)
    return longest


cdef (double, double) _open_since(View v, i64 b, i64 kind, i64 *kept) noexcept nogil:
    """Return since when a group has a claim of a class, inf if none, and its timeout; seconds."""
    leaf = v.groups[b].leaf
    if kind == GUARANTEE and v.queues[leaf].guarded:
        first, _, begun = guarded(v, b, kept)
        return (begun if first != NONE else INFINITY), guarantee_timeout(v, leaf, first)
    if kind == FAIR_SHARE and v.queues[leaf].share_timeout < INFINITY:
        return max(v.groups[b].since, v.queues[leaf].short_since), v.queues[leaf].share_timeout
    if kind == IDLE or (kind == PRIORITY and v.queues[leaf].priority_revokes):
        return v.groups[b].since, 0.0
    return INFINITY, 0.0


cdef i64 most_due(View v) noexcept nogil:
    """Return how many claims may be due: one of each class for each group, and a look at fair shares."""
    return v.counts[GROUPS] * (IDLE + 1 - GUARANTEE) + 1


cdef i64 find_due(View v, double now, i64 *groups, i64 *kinds, double *open_since) noexcept nogil:
    """Find the claims that are due, and set `times[CLAIM_DUE]`: when the first open claim is due.

    Parameters
    ----------
    v : View
        With its order: `hopeless` is known.
    now : float
        Seconds; far in the future for all that are open.
    groups, kinds : int64, shape (n,)
        Set to their groups and classes. A last pair of NONE means that fair shares must be computed again.
    open_since : float64, shape (n,)
        Set to when each opened, seconds. n is :func:`most_due`.

    Returns
    -------
    int
        How many are due.
    """
    cdef bint shared
    count, due, shares = 0, INFINITY, INFINITY
    mark, kept, taken = v.scratches, kept_by_queue(v), is_idle_used(v, v.used)
    for b in range(v.counts[GROUPS]):
        leaf = v.groups[b].leaf
        guarded, ranked = v.queues[leaf].guarded, v.queues[leaf].priority_revokes or taken
        shared = v.queues[leaf].share_timeout < INFINITY
        if not (guarded or ranked or shared) or v.groups[b].head == NONE or v.group_cache[b].hopeless:
            continue
        if v.groups[b].revocable:
            continue
        if not has_unserved(v, b):
            continue
        for kind in range(GUARANTEE, IDLE + 1):
            if kind == FAIR_SHARE and shared:
                shares = min(shares, v.queues[leaf].share_timeout)
            if kind == IDLE and not taken:
                continue
            begun, timeout = _open_since(v, b, kind, kept)
            at = begun + timeout
            if kind >= v.groups[b].retry_from:
                at = max(at, v.groups[b].retry_at)
            due = min(due, at)
            if at <= now:
                groups[count], kinds[count], open_since[count] = b, kind, begun
                count += 1
    if shares < INFINITY:
        at = v.queues[0].short_since + max(MIN_SHARES_SECONDS, shares / 4)
        due = min(due, at)
        if at <= now:
            groups[count], kinds[count], open_since[count] = NONE, NONE, at
            count += 1
    v.times[CLAIM_DUE] = due
    release(v, mark)
    return count


cdef bint are_due(View v, double now) noexcept nogil:
    """Return True if claims are due."""
    length, mark = most_due(v), v.scratches
    due = find_due(v, now, integers(v, length), integers(v, length), floats(v, length))
    release(v, mark)
    return due > 0


cpdef double next_claim(View v, double now) noexcept nogil:
    """Return when the first open claim is due, now or later; inf if none is open."""
    if v.times[CLAIM_DUE] <= now:
        are_due(v, now)
    return max(now, v.times[CLAIM_DUE])


def due_claims(View v, double now):
    """Return the groups, classes and beginnings that :func:`find_due` finds."""
    cdef i64 count
    groups, kinds, since = np.empty(most_due(v), np.int64), np.empty(most_due(v), np.int64), np.empty(most_due(v))
    cdef i64[::1] g = groups, k = kinds
    cdef double[::1] s = since
    with nogil:
        count = find_due(v, now, &g[0], &k[0], &s[0])
    return groups[:count], kinds[:count], since[:count]


def kept_for_claims(View v):
    """Return what is kept for claims: int64, shape (queues, resources)."""
    found = np.empty((v.counts[QUEUES], v.len_total), np.int64)
    cdef i64[:, ::1] rows = found
    mark = v.scratches
    memcpy(&rows[0, 0], kept_by_queue(v), found.nbytes)
    release(v, mark)
    return found


def guarded_part(View v, i64 b, const i64[:, ::1] kept):
    """Return :func:`guarded`."""
    return guarded(v, b, <i64 *>&kept[0, 0])


def idle_is_used(View v, const i64[:, ::1] used):
    """Return :func:`is_idle_used`."""
    return is_idle_used(v, <i64 *>&used[0, 0])


def planned_after(View v, i64 b, flag[::1] found):
    """Set which of the tasks that a cycle planned go after a group's next claim for a guarantee, by :func:`_goes_after`.

    Each is seen as placed after those before it.
    """
    cdef i64 m = v.len_total, count = found.shape[0]
    k = 0
    while k < count:
        job, first = v.planned_job[k], k
        while k < count and v.planned_job[k] == job and (k == first or v.jobs[job].gang):
            k += 1
        found[first:k] = _goes_after(v, b, job, k - first)
        subtract(v, v.used, v.jobs[job].queue, &v.demand[v.jobs[job].shape_row * m], first - k)
    for k in range(count):
        job = v.planned_job[k]
        subtract(v, v.used, v.jobs[job].queue, &v.demand[v.jobs[job].shape_row * m], 1)
