"""The order kept up to date: places in the queues' trees, from groups up to the root.

Account and cycle only note which queues and groups they touched; :func:`refresh` brings the trees up to date along the paths
from those to the root, and :func:`rebuild` makes them all anew. Both lead to the same.
"""


cpdef void touch_queue(View v, i64 q) noexcept nogil:
    """Note that what a leaf uses has changed."""
    if not v.queue_cache[q].touched:
        v.queue_cache[q].touched = True
        v.queue_cache[v.counts[TOUCHED_QUEUES]].touched_list = q
        v.counts[TOUCHED_QUEUES] += 1


cpdef void touch_group(View v, i64 b) noexcept nogil:
    """Note that what waits in a group has changed."""
    if not v.group_cache[b].touched:
        v.group_cache[b].touched = True
        v.group_cache[v.counts[TOUCHED_GROUPS]].touched_list = b
        v.counts[TOUCHED_GROUPS] += 1


cdef i64 current_job(View v, i64 b) noexcept nogil:
    """The job of a group that is next: in a cycle, what that has come to."""
    if v.group_cache[b].cycle == v.counts[CYCLE]:
        return v.group_cache[b].current
    return v.groups[b].head


cdef i64 startable(View v, i64 job) noexcept nogil:
    """How many tasks of a job may start, as far as it says itself: all that wait, or as many as may run at once besides."""
    most, waiting = v.jobs[job].at_most, v.jobs[job].waiting
    return waiting if most == 0 else max(0, min(waiting, most - v.jobs[job].holding))


cdef i64 tasks_left(View v, i64 b) noexcept nogil:
    """How many tasks of that job may start."""
    if v.group_cache[b].cycle == v.counts[CYCLE]:
        return v.group_cache[b].left
    return startable(v, v.groups[b].head)


cdef bint is_started(View v, i64 b) noexcept nogil:
    """Whether that job runs already, if only on paper."""
    job = current_job(v, b)
    if job == NONE:
        return False
    return v.jobs[job].holding > 0 or tasks_left(v, b) < startable(v, job)


cpdef bint set_group(View v, i64 b) noexcept nogil:
    """Bring a group's place in its leaf's tree up to date; whether what its leaf has to offer may be another now."""
    cdef i64 m = v.len_total
    cdef bint changed
    cache, resources = v.group_cache, m
    leaf = v.groups[b].leaf
    base, place = v.queue_cache[leaf].base, v.queue_cache[leaf].slots + cache[b].slot
    first, job = v.best[base + 1], current_job(v, b)
    if (job == NONE and not v.groups[b].is_framework) or cache[b].out:
        cache[b].lasts_known = False  # nobody tells those who are not in the tree
        if v.best[base + place] == NONE:
            return False
        _clear(v, base + place)
    else:
        cache[b].number, shortest = v.groups[b].number, NOBODY
        if job != NONE:
            cache[b].number = v.jobs[job].id
            shortest = max(0, <i64>min(1e15, 1e6 * lasts(v, b, job)) - 1)  # so that rounding leaves nobody out
        if cache[b].keeping or v.queues[leaf].guarded:
            shortest = (
                -1
            )  # however long it takes, it may go where room is kept for it, or for whom its guarantee comes before
        least, shape = &v.least[(base + place) * v.cols_least], v.groups[b].shape_row
        changed = v.best[base + place] != b or v.may_fit[base + place] == cache[b].parked
        for r in range(resources):
            changed |= _put(least, r, v.demand[shape * m + r])
        changed |= _put(least, resources + JOBS_NEEDED, 0 if v.groups[b].started > 0 or is_started(v, b) else 1)
        changed |= _put(least, resources + NEGATIVE_PRIORITY, -v.groups[b].priority)
        changed |= _put(least, resources + NUMBER, cache[b].number)
        changed |= _put(least, resources + SHORTEST, shortest)
        changed |= v.needs[base + place] != needs_of(v, shape)
        if not changed:
            return False
        v.may_fit[base + place] = not cache[b].parked
        v.best[base + place], v.needs[base + place] = b, needs_of(v, shape)
    changed = _climb_tree(v, leaf, base, place, b)
    if v.queues[leaf].strict:
        # The tree may be new, and the first not have been the first in it.
        _unpark_unless_first(v, leaf, base, first)
        _unpark_unless_first(v, leaf, base, b)
    return changed


cdef i64 needs_of(View v, i64 shape) noexcept nogil:
    """A bit for each resource that a task of a shape needs; all of them where that is nothing."""
    cdef i64 m = v.len_total
    bits = 0
    for r in range(m):
        if v.demand[shape * m + r] > 0:
            bits |= needs_bit(r)
    return bits if bits else -1


cdef void _unpark_unless_first(View v, i64 leaf, i64 base, i64 b) noexcept nogil:
    """Take it that a group may have room, for in a strict leaf nobody looks for any but for the first."""
    if b == NONE or v.best[base + 1] == b or not v.group_cache[b].parked:
        return
    v.group_cache[b].parked = False
    place = v.queue_cache[leaf].slots + v.group_cache[b].slot
    if v.best[base + place] == b:
        v.may_fit[base + place] = True
        _climb_tree(v, leaf, base, place, b)


cdef double lasts(View v, i64 b, i64 job) noexcept nogil:
    """How long a task of a group's job lasts as is usual; notes where that, or its time limit, is less than it was."""
    cache = v.group_cache
    before = cache[b].lasts_job
    if before != job or not cache[b].lasts_known:
        seconds = usual_duration(v, job)
        if before != NONE and (seconds < cache[b].lasts or v.jobs[job].time_limit < v.jobs[before].time_limit):
            cache[b].shorter = True
        cache[b].lasts, cache[b].lasts_job, cache[b].lasts_known = seconds, job, True
    return cache[b].lasts


cdef void wake_if_shorter(View v, i64 b) noexcept nogil:
    """A group whose tasks last less long than when it was parked may enter room that it could not."""
    cache, job, h = v.group_cache, current_job(v, b), 0
    if job != NONE:
        least = min(lasts(v, b, job), v.jobs[job].time_limit)
        while cache[b].shorter and cache[b].parked and h < v.counts[HOLDS]:
            cache[b].parked = v.times[NOW] + least > v.holds[h].start and v.times[NOW] < INFINITY
            h += 1
    cache[b].shorter = False


cdef void invalidate_estimates(View v, i64 j, i64 whose) noexcept nogil:
    """How long tasks like those of job row j usually last is another now: those who wait may be let in because of that."""
    if whose == EVERYBODYS:
        for b in range(v.counts[GROUPS]):
            _forget_lasts(v, b)
        return
    leaf = v.jobs[j].queue
    base, slots = v.queue_cache[leaf].base, v.queue_cache[leaf].slots
    for place in range(base + slots, base + 2 * slots):
        b = v.best[place]
        if b != NONE:
            waits = v.groups[b].head
            if whose != FAMILYS or (waits != NONE and (waits == j or v.jobs[waits].family == v.jobs[j].family)):
                _forget_lasts(v, b)
                if whose == FORGIVEN:
                    v.group_cache[b].parked = False


cdef void _forget_lasts(View v, i64 b) noexcept nogil:
    v.group_cache[b].lasts_known = False
    touch_group(v, b)


cdef bint _put(i64 *row, i64 at, i64 value) noexcept nogil:
    """Write down a number; whether it is another than before."""
    cdef bint changed
    changed = row[at] != value
    row[at] = value
    return changed


cdef void _clear(View v, i64 node) noexcept nogil:
    v.best[node] = NONE
    v.may_fit[node] = False
    for r in range(v.cols_least):
        v.least[node * v.cols_least + r] = NOBODY
    v.needs[node] = 0


cdef bint _set_node(View v, i64 q, i64 base, i64 i, bint is_leaf) noexcept nogil:
    """Work out a node of queue q's tree from the two below it; whether it is another now."""
    cdef bint changed
    left, right = base + 2 * i, base + 2 * i + 1
    a, b = v.best[left], v.best[right]
    best = a
    if a == NONE:
        best = b
    elif b != NONE:
        if is_leaf:
            first = bucket_goes_before(v, a, b)
        else:
            cache = v.queue_cache
            first = queue_goes_before(
                v, a, cache[a].below, cache[a].first, cache[a].level, b, cache[b].below, cache[b].first, cache[b].level
            )
        best = a if first else b
    changed = v.best[base + i] != best
    v.best[base + i] = best
    if v.queues[q].strict:  # the others do not pass it
        left = right = left if best == a else right
    able = v.may_fit[left] or v.may_fit[right]
    changed |= v.may_fit[base + i] != able
    v.may_fit[base + i] = able
    needs = v.needs[left] | v.needs[right]
    changed |= v.needs[base + i] != needs
    v.needs[base + i] = needs
    for r in range(v.cols_least):
        least = min(v.least[left * v.cols_least + r], v.least[right * v.cols_least + r])
        changed |= v.least[(base + i) * v.cols_least + r] != least
        v.least[(base + i) * v.cols_least + r] = least
    return changed


cdef bint _climb_tree(View v, i64 q, i64 base, i64 place, i64 child) noexcept nogil:
    """After a change at one place: the nodes above it, as far as it makes a difference; whether that is up to the top."""
    cdef bint was
    leaf = is_leaf(v, q)
    i = place >> 1
    while i > 0:
        was = v.best[base + i] == child
        if not _set_node(v, q, base, i, leaf) and not was:
            return False
        i >>= 1
    return True


cdef bint is_leaf(View v, i64 q) noexcept nogil:
    """Whether a queue has groups, not queues, below it."""
    return not v.queue_cache[q].inner


cpdef void set_queue(View v, i64 q) noexcept nogil:
    """Work out a queue's key, and bring its place among its siblings up to date."""
    cache = v.queue_cache
    p = v.queues[q].parent
    top = cache[q].base + 1
    base, place = cache[p].base, cache[p].slots + cache[q].slot
    if v.counts[HDRF_SOMEWHERE]:
        _count_up(v, q)
    if v.best[top] == NONE or cache[q].shut:
        _clear(v, base + place)
        _climb_tree(v, p, base, place, q)
        return
    set_key(v, q)
    if v.queues[p].policy == HDRF or v.queues[p].policy == DIVIDED:
        set_level(v, q, is_leaf(v, q))
    able = v.may_fit[top] or cache[q].maybe_stale
    if v.best[base + place] == q and v.may_fit[base + place] == able and _is_same_least(v, base + place, top):
        _climb_by_key(v, base, place, q)
        return
    for r in range(v.cols_least):
        v.least[(base + place) * v.cols_least + r] = v.least[top * v.cols_least + r]
    v.may_fit[base + place] = able
    v.best[base + place], v.needs[base + place] = q, v.needs[top]
    _climb_tree(v, p, base, place, q)


cdef bint _is_same_least(View v, i64 one, i64 other) noexcept nogil:
    if v.needs[one] != v.needs[other]:
        return False
    for r in range(v.cols_least):
        if v.least[one * v.cols_least + r] != v.least[other * v.cols_least + r]:
            return False
    return True


cdef void _climb_by_key(View v, i64 base, i64 place, i64 child) noexcept nogil:
    """After a change of a queue's key and of nothing else, which is the usual: who comes first above it."""
    cache, best, i = v.queue_cache, child, place
    while i > 1:
        other = v.best[base + (i ^ 1)]
        i >>= 1
        if other != NONE and queue_goes_before(
            v, other, cache[other].below, cache[other].first, cache[other].level,
            best, cache[best].below, cache[best].first, cache[best].level,
        ):  # fmt: skip
            best = other
        was = v.best[base + i]
        if was == best and was != child:
            return
        v.best[base + i] = best


cdef void climb(View v, i64 q) noexcept nogil:
    """Bring the keys on the path from a queue to the root up to date."""
    while q != 0:
        set_queue(v, q)
        q = v.queues[q].parent


cpdef void refresh(View v) noexcept nogil:
    """Bring the order up to date where something was touched, and where what is charged for what was used before has changed."""
    for k in range(v.counts[TOUCHED_GROUPS]):
        b = v.group_cache[k].touched_list
        v.group_cache[b].touched = False
        leaf = v.groups[b].leaf
        wake_if_shorter(v, b)
        # What a cycle took out of a tree may be gone for good by now, which changes nothing in the tree any more.
        if set_group(v, b) or v.queue_cache[leaf].works != _is_at_work(v, leaf):
            touch_queue(v, leaf)
    v.counts[TOUCHED_GROUPS] = 0
    for k in range(v.counts[TOUCHED_QUEUES]):
        q = v.queue_cache[k].touched_list
        v.queue_cache[q].touched = False
        while q != 0:
            _set_works(v, q, _is_at_work(v, q))
            set_queue(v, q)
            q = v.queues[q].parent
    v.counts[TOUCHED_QUEUES] = 0
    for k in range(v.counts[MOVED]):
        p = v.queue_cache[k].moved_list
        v.queue_cache[p].moved = False
        if not v.counts[HISTORY_MOVED] and (v.queue_cache[p].crowded or _is_crowded(v, p)):
            _set_children(v, p)
    if v.counts[HISTORY_MOVED]:
        for p in range(v.counts[QUEUES]):
            if v.queue_cache[p].inner and has_history(v.queues[p].policy):
                _set_children(v, p)
    v.counts[MOVED] = v.counts[HISTORY_MOVED] = 0


cdef bint _is_at_work(View v, i64 q) noexcept nogil:
    """Whether something below a queue waits or runs, as its tree and the tables say; not to be asked in a cycle."""
    return v.queues[q].tasks > 0 or v.best[v.queue_cache[q].base + 1] != NONE


cdef void _set_works(View v, i64 q, bint works) noexcept nogil:
    """Note whether something below a queue waits or runs; not to be called in a cycle."""
    cdef i64 m = v.len_total
    cache, p = v.queue_cache, v.queues[q].parent
    if cache[q].works != works:
        cache[q].works = works
        for r in range(m):
            v.at_work[p * m + r] += v.weighs[q * m + r] if works else -v.weighs[q * m + r]
        if not cache[p].moved and compares_shares(v.queues[p].policy):
            cache[p].moved = True
            cache[v.counts[MOVED]].moved_list = p
            v.counts[MOVED] += 1


cdef bint _is_crowded(View v, i64 p) noexcept nogil:
    """Whether so much is at work among a queue's children that what some of them used before may count in part only."""
    cdef i64 m = v.len_total
    for r in range(m):
        if v.at_work[p * m + r] > v.queue_cache[p].crowd:
            return True
    return False


cdef void _set_children(View v, i64 p) noexcept nogil:
    """Work out the keys of all of a queue's children that wait, and its tree."""
    v.queue_cache[p].crowd, v.queue_cache[p].crowded = INFINITY, False
    base, slots = v.queue_cache[p].base, v.queue_cache[p].slots
    for place in range(base + slots, base + 2 * slots):
        if v.best[place] != NONE:
            set_key(v, v.best[place])
    for i in range(slots - 1, 0, -1):
        _set_node(v, p, base, i, False)


cpdef void rebuild(View v) noexcept nogil:
    """Make all trees anew, from the groups up. Parents come before their children, so the last queue first."""
    for i in range(v.len_best):
        v.best[i], v.may_fit[i], v.needs[i] = NONE, False, 0
    for i in range(v.len_least * v.cols_least):
        v.least[i] = NOBODY
    for k in range(v.counts[TOUCHED_GROUPS]):
        v.group_cache[v.group_cache[k].touched_list].touched = False
    for k in range(v.counts[TOUCHED_QUEUES]):
        v.queue_cache[v.queue_cache[k].touched_list].touched = False
    for k in range(v.counts[MOVED]):
        v.queue_cache[v.queue_cache[k].moved_list].moved = False
    v.counts[TOUCHED_GROUPS] = v.counts[TOUCHED_QUEUES] = v.counts[MOVED] = v.counts[HISTORY_MOVED] = 0
    _count_work(v)
    for b in range(v.counts[GROUPS]):
        if current_job(v, b) != NONE or v.groups[b].is_framework:
            set_group(v, b)
    for q in range(v.counts[QUEUES] - 1, 0, -1):
        set_queue(v, q)


cdef void _count_work(View v) noexcept nogil:
    """Work out who works from the tables, which say it in a cycle as well, and what follows from that."""
    cdef i64 m = v.len_total
    cache = v.queue_cache
    for i in range(v.len_at_work * m):
        v.at_work[i] = 0
    for q in range(v.counts[QUEUES]):
        cache[q].works = v.queues[q].tasks > 0
        cache[q].crowd, cache[q].crowded = INFINITY, False
    for b in range(v.counts[GROUPS]):
        q = v.groups[b].leaf if v.groups[b].head != NONE or v.groups[b].is_framework else NONE
        while q != NONE:
            cache[q].works = True
            q = v.queues[q].parent
    for q in range(1, v.counts[QUEUES]):
        if cache[q].works:
            for r in range(m):
                v.at_work[v.queues[q].parent * m + r] += v.weighs[q * m + r]


cdef void _count_up(View v, i64 q) noexcept nogil:
    """Work out what queue q counts as among siblings under hdrf, from its children's levels."""
    cdef i64 m = v.len_total
    for r in range(m):
        v.counts_as[q * m + r] = v.used[q * m + r]
    if v.queues[q].policy != HDRF or is_leaf(v, q):
        return
    first = v.queue_cache[q].base + v.queue_cache[q].slots
    last = first + v.queue_cache[q].slots
    least = INFINITY
    for place in range(first, last):
        c = v.best[place]
        if c != NONE:
            least = min(least, v.queue_cache[c].level_now)
    for r in range(m):
        others = v.used[q * m + r]
        for place in range(first, last):
            c = v.best[place]
            if c != NONE:
                others -= v.used[c * m + r]
        amount = <double>others
        for place in range(first, last):
            c = v.best[place]
            if c != NONE:
                level = v.queue_cache[c].level_now
                if level > least:
                    amount += v.counts_as[c * m + r] * (least / level)
                else:
                    amount += v.counts_as[c * m + r]
        v.counts_as[q * m + r] = amount
