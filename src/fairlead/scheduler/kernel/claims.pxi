"""Who may have others revoked for it, and when: claims, of three classes.

A claim is a waiting task, or whole gang, whose service would keep its queue within its guarantee (GUARANTEE), within its fair
share (FAIR_SHARE), or that has a higher priority than what its leaf runs (PRIORITY), or that needs what revocable jobs use above
the limits of their queues, which was idle before (IDLE). Revocable jobs have no claims.

GUARANTEE holds between a queue on the path from the leaf to the root and its siblings. Let `last` be the highest queue on the
path so that it, and all below it there, stay within what they are guaranteed of whatever the task needs; a queue that is
guaranteed nothing of that bounds nothing. Let `first` be the lowest that is guaranteed some of it. Then the siblings of all
queues from `first` to `last` may be asked, and nobody where there are none. Each of these queues goes before its siblings with
that task, as `kernel/keys.pxi` says; so what was revoked for it is not theirs again as long as
it has a claim. Among queues that compare as YARN does it is so only for who is below its minimum by that comparison: the others
ask nobody there.

What a queue has counts with the room that is kept for its claims already: those are served. A claim is due when its group has
waited, and what `first` is guaranteed of what it needs has been missing, for the longest timeout from the leaf to that. Whether
those above miss theirs says who may be asked, and not when: else a claim would be due sooner when one of them has no more to
miss.

Nothing of that is looked at in a step in which nobody can be due: `times[CLAIM_DUE]` is never later than the first moment at
which somebody may be. Events that may begin a claim lower it (:func:`expect_claim`, :func:`note_fall`), a look works it out
(:func:`look`).
"""


cdef void expect_claim(View v, i64 group, double at) noexcept nogil:
    """Somebody waits in a group from now on: there may be a claim when its leaf's timeout is over.

    Where all that waited there is served, and waits for the room that is coming back, it has waited as long as they.
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
    """A queue with a guarantee has just given back what a task needed."""
    cdef i64 m = v.len_total
    below = False
    for r in range(m):
        if demand[r] > 0 and v.used[q * m + r] < v.guarantee[q * m + r]:
            below = True
            if v.used[q * m + r] + demand[r] >= v.guarantee[q * m + r]:
                v.below_since[q * m + r] = at
    if below:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)


cdef i64 tasks_at_once(View v, i64 b) noexcept nogil:
    """How many tasks are one claim of a group."""
    return max(1, v.groups[b].gang)


cdef i64 *kept_by_queue(View v) noexcept nogil:
    """What is kept for claims, by queue and resource: shape (queues, resources). It is scratch."""
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
    """Work out what is kept for claims, in `claimed`."""
    mark = v.scratches
    memcpy(v.claimed, kept_by_queue(v), v.counts[QUEUES] * v.len_total * sizeof(i64))
    release(v, mark)


cpdef i64 served_tasks(View v, i64 b) noexcept nogil:
    """How many tasks of a group room is kept for, for claims."""
    count = 0
    for h in range(v.counts[HOLDS]):
        if v.holds[h].group == b and v.holds[h].kind != RESERVATION:
            count += v.holds[h].tasks
    return count


cpdef i64 waiting_tasks(View v, i64 b, i64 most) noexcept nogil:
    """How many tasks wait in a group and may start, as far as their jobs say; no more than are asked for."""
    count, j = 0, v.groups[b].head
    while j != NONE and count < most:
        count += startable(v, j)
        j = v.jobs[j].after
    return min(count, most)


cdef bint has_unserved(View v, i64 b) noexcept nogil:
    """Whether somebody waits in a group that no room is kept for yet."""
    if v.groups[b].head == NONE:
        return False
    served = served_tasks(v, b) if v.counts[HOLDS] > 0 else 0
    if v.groups[b].gang > 0:
        return served == 0
    return waiting_tasks(v, b, served + 1) > served


cdef (i64, i64, double) guarded(View v, i64 b, i64 *kept) noexcept nogil:
    """The queues `first` and `last` whose siblings may be asked for a group's next claim of class GUARANTEE.

    The third is since when `first` misses what it is guaranteed. NONE, NONE where there is no such claim.
    """
    cdef i64 m = v.len_total
    demand, count = &v.demand[v.groups[b].shape_row * m], tasks_at_once(v, b)
    first, last, since = NONE, NONE, v.groups[b].since
    q = v.groups[b].leaf
    while v.queues[q].parent != NONE:
        named, missed = False, since
        for r in range(m if v.queues[q].guaranteed else 0):
            if demand[r] > 0 and v.guarantee[q * m + r] > 0:
                if demand[r] > floor_div(v.guarantee[q * m + r] - v.used[q * m + r] - kept[q * m + r], count):  # a product might be too large
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
    """Whether a group's next has a claim for a guarantee for which what runs in another leaf might preempt."""
    cdef i64 m = v.len_total
    cdef bint asks
    if not v.queues[v.groups[b].leaf].guarded:
        return False
    first, last, _ = guarded(v, b, v.claimed)
    q, asks = v.groups[b].leaf, False
    while first != NONE and not _is_at_or_below(v, leaf, q):
        asks |= q == first
        if _is_at_or_below(v, leaf, v.queues[q].parent):
            return asks
        asks &= q != last
        q = v.queues[q].parent
    return False


cdef bint _is_at_or_below(View v, i64 q, i64 top) noexcept nogil:
    while q != NONE and q != top:
        q = v.queues[q].parent
    return q == top


cdef bint is_above_limit(View v, i64 *used, i64 q) noexcept nogil:
    """Whether a queue uses so much because of revocable jobs that it is above a limit of its."""
    cdef i64 m = v.len_total
    for r in range(m):
        if v.spare[q * m + r] > 0 and used[q * m + r] > v.limit[q * m + r]:
            return True
    return False


cdef bint is_idle_used(View v, i64 *used) noexcept nogil:
    """Whether any queue is above a limit because of revocable jobs, and gives that back; using so much."""
    if v.queues[0].spare_tasks > 0 and v.queues[0].revocable:
        for q in range(v.counts[QUEUES]):
            if v.queues[q].spare_tasks > 0 and is_above_limit(v, used, q):
                return True
    return False


cpdef double guarantee_timeout(View v, i64 leaf, i64 first) noexcept nogil:
    """How long a leaf waits for what a queue above, or itself, is guaranteed: as long as each from it to that one says."""
    longest, q = v.queues[leaf].guarantee_timeout, leaf
    while first != NONE and q != first:
        q = v.queues[q].parent
        longest = max(longest, v.queues[q].guarantee_timeout)
    return longest


cdef (double, double) _open_since(View v, i64 b, i64 kind, i64 *kept) noexcept nogil:
    """Since when a group has a claim of a class, infinite where it has none; and how long after that it is due."""
    leaf = v.groups[b].leaf
    if kind == GUARANTEE and v.queues[leaf].guarded:
        first, _, begun = guarded(v, b, kept)
        return (begun if first != NONE else INFINITY), guarantee_timeout(v, leaf, first)
    if kind == FAIR_SHARE and v.queues[leaf].share_timeout < INFINITY:
        return max(v.groups[b].since, v.queues[leaf].short_since), v.queues[leaf].share_timeout
    if kind == IDLE or (kind == PRIORITY and v.queues[leaf].priority_revokes):
        return v.groups[b].since, 0.0
    return INFINITY, 0.0


cdef i64 find_due(View v, double now, i64 *groups, i64 *kinds, double *open_since) noexcept nogil:
    """Write down the claims that are due, and set `times[CLAIM_DUE]`: when the first is, of these and all others that are open.

    Parameters
    ----------
    v : View
        With its order: which groups the nodes could never hold is known.
    now : float
        Seconds.
    groups, kinds : int64, shape (n,)
        Become their groups and classes; the last is NONE and NONE where fair shares are to be worked out again.
    open_since : float64, shape (n,)
        Since when each has been open; n is the number of groups, and one.

    Returns
    -------
    int
        How many are due.
    """
    cdef i64 m = v.len_total
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
        for kind in range(GUARANTEE, IDLE + 1):  # a group has a claim of one class at a time: the first that is due
            if kind == FAIR_SHARE and shared:
                shares = min(shares, v.queues[leaf].share_timeout)
            if kind == IDLE and not taken:
                continue
            begun, timeout = _open_since(v, b, kind, kept)
            at = begun + timeout
            if kind >= v.groups[b].put_off_from:
                at = max(at, v.groups[b].put_off)
            due = min(due, at)
            if at <= now:
                groups[count], kinds[count], open_since[count] = b, kind, begun
                count += 1
                break
    if shares < INFINITY:
        at = v.queues[0].short_since + max(SHORTEST_TIMEOUT, shares / 4)
        due = min(due, at)
        if at <= now:
            groups[count], kinds[count], open_since[count] = NONE, NONE, at
            count += 1
    v.times[CLAIM_DUE] = due
    release(v, mark)
    return count


def look(View v, double now, i64[:, ::1] found, double[::1] since):
    """:func:`find_due`; the rows of `found` become groups and classes."""
    cdef i64 count
    with nogil:
        count = find_due(v, now, &found[0, 0], &found[1, 0], &since[0])
    return count


def kept_for_claims(View v):
    """What is kept for claims: int64, shape (queues, resources)."""
    found = np.empty((v.counts[QUEUES], v.len_total), np.int64)
    cdef i64[:, ::1] rows = found
    mark = v.scratches
    memcpy(&rows[0, 0], kept_by_queue(v), found.nbytes)
    release(v, mark)
    return found


def guarded_part(View v, i64 b, const i64[:, ::1] kept):
    """:func:`guarded`."""
    return guarded(v, b, <i64 *>&kept[0, 0])


def idle_is_used(View v, const i64[:, ::1] used):
    """:func:`is_idle_used`."""
    return is_idle_used(v, <i64 *>&used[0, 0])
