"""What queues used before: a mean that fades, and what of it counts.

Time goes in **ticks**, 1024 a half-life, counted from the first fact on; a tick has 4096 moments. When a tick is over, what a
queue used in it, added up moment by moment, and the mean of what it used before become one, by parts that are the same for each
tick. All of it is in whole numbers, a quantity times the 4096 moments of a tick: the same facts lose the same to rounding, and a
mean of nothing gets to zero. Amounts do without their last `grain` binary digits, so that they stay below 2**49; that is all of
them for less than half a petabyte in the cluster.

Within a tick, `recent` is what was used in it until `moment`, when a task started or ended last. Each fact brings all to the
last tick that was over when it happened, before it happens: between facts nothing changes, so many ticks at once are the first of
them, and then the same one again and again. No fact is needed for that, and nobody has to wake up.

What is charged is a quarter of the mean, with what `recent` will add to it, but never more than a quarter of twice what the
queue's weight entitles it to, among the weights of the siblings that wait or run (those **at work**): docs/fair-over-time.md
says why.
"""


cpdef void count_use(View v, i64 q, double at) noexcept nogil:
    """What queue q uses is about to change: count what it has used until now."""
    cdef i64 m = v.len_total
    p = v.queues[q].parent
    passed = ((at - v.times[BEGAN]) / v.queues[p].tick - v.queues[p].ticks) * MOMENTS
    moment = <i64>min(passed, MOMENTS)
    if moment > v.queues[q].moment:  # a clock may step back
        for r in range(m):
            v.recent[q * m + r] += remembered(v, q, r) * (moment - v.queues[q].moment)
        v.queues[q].moment = moment


cdef i64 remembered(View v, i64 q, i64 r) noexcept nogil:
    """What history is made of: all that a queue uses; under sdrf, what is beyond an even part."""
    cdef i64 m = v.len_total
    used = v.used[q * m + r]
    if v.queues[v.queues[q].parent].policy == SDRF:
        used = max(0, used - v.even[q * m + r])
    return used >> v.grain[r]


cdef i64 _part(i64 amount, i64 part) noexcept nogil:
    """So many parts of 2**32 of an amount, rounded down."""
    return <i64>((<u128><u64>amount * <u64>part) >> 32)


cdef i64 _after(i64 mean, i64 used, i64 remains) noexcept nogil:
    """The mean after a tick or several, `remains` being what is left of what was before."""
    return _part(mean, remains) + _part(used, WHOLE - remains)


cdef i64 remains_after(i64 remains, i64 ticks) noexcept nogil:
    """What is left after so many ticks of what is left after one."""
    left, power = WHOLE, remains
    while ticks > 0:
        if ticks & 1:
            left = _part(left, power)
        power = _part(power, power)
        ticks >>= 1
    return left


cpdef void fade(View v, double at) noexcept nogil:
    """Bring what queues used before to the last tick that is over at a time; a clock that steps back changes nothing."""
    cdef i64 m = v.len_total
    if at < v.times[NEXT_TICK]:
        return
    queues = v.queues
    mark = v.scratches
    passed, later = integers(v, v.counts[QUEUES]), integers(v, v.counts[QUEUES])
    v.times[NEXT_TICK] = INFINITY
    for p in range(v.counts[QUEUES]):
        tick = queues[p].tick
        if tick > 0.0:
            over = <i64>floor((at - v.times[BEGAN]) / tick)  # of a time before all, too
            if over > queues[p].ticks:
                passed[p] = over - queues[p].ticks
                later[p] = remains_after(queues[p].remains, passed[p] - 1)
                queues[p].ticks = over
            v.times[NEXT_TICK] = min(v.times[NEXT_TICK], v.times[BEGAN] + (queues[p].ticks + 1) * tick)
    for q in range(1, v.counts[QUEUES]):
        p = queues[q].parent
        if passed[p] > 0:
            for r in range(m):
                used = remembered(v, q, r)
                if used != 0 or v.recent[q * m + r] != 0 or v.mean[q * m + r] != 0:
                    in_tick = v.recent[q * m + r] + used * (MOMENTS - queues[q].moment)
                    mean = _after(v.mean[q * m + r], in_tick, queues[p].remains)
                    v.mean[q * m + r] = _after(mean, used * MOMENTS, later[p]) if passed[p] > 1 else mean
                    v.recent[q * m + r] = 0
            queues[q].moment = 0
    release(v, mark)
    if v.counts[IN_ORDER]:
        v.counts[HISTORY_MOVED] = 1


cdef i64 used_before(View v, i64 q, i64 r) noexcept nogil:
    """A quarter of the mean of what queue q used of resource r before, with `fine` binary digits after the point."""
    return (_mean_with_recent(v, q, r) >> (QUARTER_DIGITS - v.fine[r])) << v.grain[r]


cdef i64 _mean_with_recent(View v, i64 q, i64 r) noexcept nogil:
    cdef i64 m = v.len_total
    mean = v.mean[q * m + r]
    if v.recent[q * m + r] > 0:
        mean += _part(v.recent[q * m + r], WHOLE - v.queues[v.queues[q].parent].remains)
    return mean


cdef double mean_now(View v, i64 q, i64 r) noexcept nogil:
    """The mean of what history is made of, with what this tick will add to it, in base units."""
    return <double>_mean_with_recent(v, q, r) / MOMENTS * (<i64>1 << v.grain[r])


cdef double mean_at_tick(View v, i64 q, i64 r) noexcept nogil:
    """The same as it was at the end of the last tick."""
    cdef i64 m = v.len_total
    return <double>v.mean[q * m + r] / MOMENTS * (<i64>1 << v.grain[r])


cdef void charge(View v, i64 q) noexcept nogil:
    """Work out what queue q is charged, and with how much of its siblings at work that would be less."""
    cdef i64 m = v.len_total
    cache, p = v.queue_cache, v.queues[q].parent
    for r in range(m):
        before = used_before(v, q, r)
        if before > 0:
            half = 0.5 * (v.total[r] << v.fine[r])
            most = half * (<double>v.weighs[q * m + r] / max(1, v.at_work[p * m + r]))
            if before > most:
                before = <i64>most
                cache[p].crowded = True
            else:
                cache[p].crowd = min(cache[p].crowd, half * v.weighs[q * m + r] / before * LITTLE_LESS)
        v.charged[q * m + r] = ((v.used[q * m + r] + v.promised[q * m + r]) << v.fine[r]) + before


cdef struct Wide:
    u64 first
    u64 middle
    u64 last


cdef Wide product(i64 a, i64 b, i64 c, i64 d) noexcept nogil:
    """The product of four numbers in 192 bits, most significant first: a and b below 2**63, c and d below 2**30."""
    cdef Wide found
    cdef u128 both = <u128><u64>a * <u64>b
    cdef u64 factor = <u64>c * <u64>d
    cdef u128 lower = <u128><u64>both * factor
    cdef u128 upper = (both >> 64) * factor + (lower >> 64)
    found.first, found.middle, found.last = <u64>(upper >> 64), <u64>upper, <u64>lower
    return found


cdef i64 compare_wide(Wide a, Wide b) noexcept nogil:
    """-1, 0 or 1."""
    if a.first != b.first:
        return 1 if a.first > b.first else -1
    if a.middle != b.middle:
        return 1 if a.middle > b.middle else -1
    return (a.last > b.last) - (a.last < b.last)
