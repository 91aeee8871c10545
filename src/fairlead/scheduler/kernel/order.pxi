"""The order kept up to date: places in the queues' trees, from buckets up to the root.

Account and cycle only note which queues and buckets they touched; :func:`refresh` brings the trees up to date along the paths
from those to the root, and :func:`rebuild` makes them all anew. Both lead to the same.
"""


cpdef void touch_queue(View v, i64 q) noexcept nogil:
    """Note that what a leaf uses has changed."""
    if not v.queue_seats[q].touched:
        v.queue_seats[q].touched = True
        v.queue_seats[v.counts[TOUCHED_QUEUES]].touched_list = q
        v.counts[TOUCHED_QUEUES] += 1


cpdef void touch_bucket(View v, i64 b) noexcept nogil:
    """Note that what waits in a bucket has changed."""
    if not v.bucket_seats[b].touched:
        v.bucket_seats[b].touched = True
        v.bucket_seats[v.counts[TOUCHED_BUCKETS]].touched_list = b
        v.counts[TOUCHED_BUCKETS] += 1


cdef i64 current_job(View v, i64 b) noexcept nogil:
    """The job of a bucket that is next: in a cycle, what that has come to."""
    if v.bucket_seats[b].cycle == v.counts[CYCLE]:
        return v.bucket_seats[b].current
    return v.buckets[b].head


cdef i64 startable(View v, i64 job) noexcept nogil:
    """How many tasks of a job may start, as far as it says itself: all that wait, or as many as may run at once besides."""
    most, waiting = v.jobs[job].at_most, v.jobs[job].waiting
    return waiting if most == 0 else max(0, min(waiting, most - v.jobs[job].holding))


cdef i64 tasks_left(View v, i64 b) noexcept nogil:
    """How many tasks of that job may start."""
    if v.bucket_seats[b].cycle == v.counts[CYCLE]:
        return v.bucket_seats[b].left
    return startable(v, v.buckets[b].head)


cdef bint is_started(View v, i64 b) noexcept nogil:
    """Whether that job runs already, if only on paper."""
    job = current_job(v, b)
    if job == NONE:
        return False
    return v.jobs[job].holding > 0 or tasks_left(v, b) < startable(v, job)


cpdef bint set_bucket(View v, i64 b) noexcept nogil:
    """Bring a bucket's place in its leaf's tree up to date; whether what its leaf has to offer may be another now."""
    cdef i64 m = v.len_total
    cdef bint changed
    seats, resources = v.bucket_seats, m
    leaf = v.buckets[b].leaf
    base, place = v.queue_seats[leaf].base, v.queue_seats[leaf].slots + seats[b].slot
    first, job = v.best[base + 1], current_job(v, b)
    if (job == NONE and not v.buckets[b].wants) or seats[b].out:
        seats[b].lasts_known = False  # nobody tells those who are not in the tree
        if v.best[base + place] == NONE:
            return False
        _clear(v, base + place)
    else:
        seats[b].number, shortest = v.buckets[b].number, NOBODY
        if job != NONE:
            seats[b].number = v.jobs[job].id
            shortest = max(0, <i64>min(1e15, 1e6 * lasts(v, b, job)) - 1)  # so that rounding leaves nobody out
        if seats[b].keeping or v.queues[leaf].guarded:
            shortest = (
                -1
            )  # however long it takes, it may go where room is kept for it, or for whom its guarantee comes before
        least, shape = &v.least[(base + place) * v.cols_least], v.buckets[b].shape_row
        changed = v.best[base + place] != b or v.able[base + place] == seats[b].parked
        for r in range(resources):
            changed |= _put(least, r, v.demand[shape * m + r])
        changed |= _put(least, resources + JOBS_NEEDED, 0 if v.buckets[b].started > 0 or is_started(v, b) else 1)
        changed |= _put(least, resources + NEGATIVE_PRIORITY, -v.buckets[b].priority)
        changed |= _put(least, resources + NUMBER, seats[b].number)
        changed |= _put(least, resources + SHORTEST, shortest)
        changed |= v.needs[base + place] != needs_of(v, shape)
        if not changed:
            return False
        v.able[base + place] = not seats[b].parked
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
    """Take it that a bucket may have room, for in a strict leaf nobody looks for any but for the first."""
    if b == NONE or v.best[base + 1] == b or not v.bucket_seats[b].parked:
        return
    v.bucket_seats[b].parked = False
    place = v.queue_seats[leaf].slots + v.bucket_seats[b].slot
    if v.best[base + place] == b:
        v.able[base + place] = True
        _climb_tree(v, leaf, base, place, b)


cdef double lasts(View v, i64 b, i64 job) noexcept nogil:
    """How long a task of a bucket's job lasts as is usual; notes where that, or its time limit, is less than it was."""
    seats = v.bucket_seats
    before = seats[b].lasts_job
    if before != job or not seats[b].lasts_known:
        seconds = usual_duration(v, job)
        if before != NONE and (seconds < seats[b].lasts or v.jobs[job].time_limit < v.jobs[before].time_limit):
            seats[b].shorter = True
        seats[b].lasts, seats[b].lasts_job, seats[b].lasts_known = seconds, job, True
    return seats[b].lasts


cdef void wake_if_shorter(View v, i64 b) noexcept nogil:
    """A bucket whose tasks last less long than when it was parked may enter room that it could not."""
    seats, job, h = v.bucket_seats, current_job(v, b), 0
    if job != NONE:
        least = min(lasts(v, b, job), v.jobs[job].time_limit)
        while seats[b].shorter and seats[b].parked and h < v.counts[HOLDS]:
            seats[b].parked = v.times[NOW] + least > v.holds[h].start and v.times[NOW] < INFINITY
            h += 1
    seats[b].shorter = False


cdef void look_again(View v, i64 j, i64 whose) noexcept nogil:
    """How long tasks like those of job row j usually last is another now: those who wait may be let in because of that."""
    if whose == EVERYBODYS:
        for b in range(v.counts[BUCKETS]):
            _forget_lasts(v, b)
        return
    leaf = v.jobs[j].queue
    base, slots = v.queue_seats[leaf].base, v.queue_seats[leaf].slots
    for place in range(base + slots, base + 2 * slots):
        b = v.best[place]
        if b != NONE:
            waits = v.buckets[b].head
            if whose != FAMILYS or (waits != NONE and (waits == j or v.jobs[waits].family == v.jobs[j].family)):
                _forget_lasts(v, b)
                if whose == FORGIVEN:
                    v.bucket_seats[b].parked = False


cdef void _forget_lasts(View v, i64 b) noexcept nogil:
    v.bucket_seats[b].lasts_known = False
    touch_bucket(v, b)


cdef bint _put(i64 *row, i64 at, i64 value) noexcept nogil:
    """Write down a number; whether it is another than before."""
    cdef bint changed
    changed = row[at] != value
    row[at] = value
    return changed


cdef void _clear(View v, i64 node) noexcept nogil:
    v.best[node] = NONE
    v.able[node] = False
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
            seat = v.queue_seats
            first = queue_goes_before(
                v, a, seat[a].below, seat[a].first, seat[a].level, b, seat[b].below, seat[b].first, seat[b].level
            )
        best = a if first else b
    changed = v.best[base + i] != best
    v.best[base + i] = best
    if v.queues[q].strict:  # the others do not pass it
        left = right = left if best == a else right
    able = v.able[left] or v.able[right]
    changed |= v.able[base + i] != able
    v.able[base + i] = able
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
    """Whether a queue has buckets, not queues, below it."""
    return not v.queue_seats[q].inner


cpdef void set_queue(View v, i64 q) noexcept nogil:
    """Work out a queue's key, and bring its place among its siblings up to date."""
    seats = v.queue_seats
    p = v.queues[q].parent
    top = seats[q].base + 1
    base, place = seats[p].base, seats[p].slots + seats[q].slot
    if v.counts[HDRF_SOMEWHERE]:
        _count_up(v, q)
    if v.best[top] == NONE or seats[q].shut:
        _clear(v, base + place)
        _climb_tree(v, p, base, place, q)
        return
    set_key(v, q)
    if v.queues[p].policy == HDRF or v.queues[p].policy == DIVIDED:
        set_level(v, q, is_leaf(v, q))
    able = v.able[top] or seats[q].unsure
    if v.best[base + place] == q and v.able[base + place] == able and _is_same_least(v, base + place, top):
        _climb_by_key(v, base, place, q)
        return
    for r in range(v.cols_least):
        v.least[(base + place) * v.cols_least + r] = v.least[top * v.cols_least + r]
    v.able[base + place] = able
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
    seat, best, i = v.queue_seats, child, place
    while i > 1:
        other = v.best[base + (i ^ 1)]
        i >>= 1
        if other != NONE and queue_goes_before(
            v, other, seat[other].below, seat[other].first, seat[other].level,
            best, seat[best].below, seat[best].first, seat[best].level,
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
    for k in range(v.counts[TOUCHED_BUCKETS]):
        b = v.bucket_seats[k].touched_list
        v.bucket_seats[b].touched = False
        leaf = v.buckets[b].leaf
        wake_if_shorter(v, b)
        # What a cycle took out of a tree may be gone for good by now, which changes nothing in the tree any more.
        if set_bucket(v, b) or v.queue_seats[leaf].works != _is_at_work(v, leaf):
            touch_queue(v, leaf)
    v.counts[TOUCHED_BUCKETS] = 0
    for k in range(v.counts[TOUCHED_QUEUES]):
        q = v.queue_seats[k].touched_list
        v.queue_seats[q].touched = False
        while q != 0:
            _set_works(v, q, _is_at_work(v, q))
            set_queue(v, q)
            q = v.queues[q].parent
    v.counts[TOUCHED_QUEUES] = 0
    for k in range(v.counts[MOVED]):
        p = v.queue_seats[k].moved_list
        v.queue_seats[p].moved = False
        if not v.counts[HISTORY_MOVED] and (v.queue_seats[p].crowded or _is_crowded(v, p)):
            _set_children(v, p)
    if v.counts[HISTORY_MOVED]:
        for p in range(v.counts[QUEUES]):
            if v.queue_seats[p].inner and has_history(v.queues[p].policy):
                _set_children(v, p)
    v.counts[MOVED] = v.counts[HISTORY_MOVED] = 0


cdef bint _is_at_work(View v, i64 q) noexcept nogil:
    """Whether something below a queue waits or runs, as its tree and the tables say; not to be asked in a cycle."""
    return v.queues[q].tasks > 0 or v.best[v.queue_seats[q].base + 1] != NONE


cdef void _set_works(View v, i64 q, bint works) noexcept nogil:
    """Note whether something below a queue waits or runs; not to be called in a cycle."""
    cdef i64 m = v.len_total
    seats, p = v.queue_seats, v.queues[q].parent
    if seats[q].works != works:
        seats[q].works = works
        for r in range(m):
            v.at_work[p * m + r] += v.weighs[q * m + r] if works else -v.weighs[q * m + r]
        if not seats[p].moved and compares_shares(v.queues[p].policy):
            seats[p].moved = True
            seats[v.counts[MOVED]].moved_list = p
            v.counts[MOVED] += 1


cdef bint _is_crowded(View v, i64 p) noexcept nogil:
    """Whether so much is at work among a queue's children that what some of them used before may count in part only."""
    cdef i64 m = v.len_total
    for r in range(m):
        if v.at_work[p * m + r] > v.queue_seats[p].crowd:
            return True
    return False


cdef void _set_children(View v, i64 p) noexcept nogil:
    """Work out the keys of all of a queue's children that wait, and its tree."""
    v.queue_seats[p].crowd, v.queue_seats[p].crowded = INFINITY, False
    base, slots = v.queue_seats[p].base, v.queue_seats[p].slots
    for place in range(base + slots, base + 2 * slots):
        if v.best[place] != NONE:
            set_key(v, v.best[place])
    for i in range(slots - 1, 0, -1):
        _set_node(v, p, base, i, False)


cpdef void rebuild(View v) noexcept nogil:
    """Make all trees anew, from the buckets up. Parents come before their children, so the last queue first."""
    for i in range(v.len_best):
        v.best[i], v.able[i], v.needs[i] = NONE, False, 0
    for i in range(v.len_least * v.cols_least):
        v.least[i] = NOBODY
    for k in range(v.counts[TOUCHED_BUCKETS]):
        v.bucket_seats[v.bucket_seats[k].touched_list].touched = False
    for k in range(v.counts[TOUCHED_QUEUES]):
        v.queue_seats[v.queue_seats[k].touched_list].touched = False
    for k in range(v.counts[MOVED]):
        v.queue_seats[v.queue_seats[k].moved_list].moved = False
    v.counts[TOUCHED_BUCKETS] = v.counts[TOUCHED_QUEUES] = v.counts[MOVED] = v.counts[HISTORY_MOVED] = 0
    _count_work(v)
    for b in range(v.counts[BUCKETS]):
        if current_job(v, b) != NONE or v.buckets[b].wants:
            set_bucket(v, b)
    for q in range(v.counts[QUEUES] - 1, 0, -1):
        set_queue(v, q)


cdef void _count_work(View v) noexcept nogil:
    """Work out who works from the tables, which say it in a cycle as well, and what follows from that."""
    cdef i64 m = v.len_total
    seats = v.queue_seats
    for i in range(v.len_at_work * m):
        v.at_work[i] = 0
    for q in range(v.counts[QUEUES]):
        seats[q].works = v.queues[q].tasks > 0
        seats[q].crowd, seats[q].crowded = INFINITY, False
    for b in range(v.counts[BUCKETS]):
        q = v.buckets[b].leaf if v.buckets[b].head != NONE or v.buckets[b].wants else NONE
        while q != NONE:
            seats[q].works = True
            q = v.queues[q].parent
    for q in range(1, v.counts[QUEUES]):
        if seats[q].works:
            for r in range(m):
                v.at_work[v.queues[q].parent * m + r] += v.weighs[q * m + r]


cdef void _count_up(View v, i64 q) noexcept nogil:
    """Work out what queue q counts as among siblings under hdrf, from its children's levels."""
    cdef i64 m = v.len_total
    for r in range(m):
        v.counts_as[q * m + r] = v.used[q * m + r]
    if v.queues[q].policy != HDRF or is_leaf(v, q):
        return
    first = v.queue_seats[q].base + v.queue_seats[q].slots
    last = first + v.queue_seats[q].slots
    least = INFINITY
    for place in range(first, last):
        c = v.best[place]
        if c != NONE:
            least = min(least, v.queue_seats[c].level_now)
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
                level = v.queue_seats[c].level_now
                if level > least:
                    amount += v.counts_as[c * m + r] * (least / level)
                else:
                    amount += v.counts_as[c * m + r]
        v.counts_as[q * m + r] = amount
