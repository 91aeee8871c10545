"""History: a fading mean of what queues used before, and how much of it is charged.

- **Tick**: time advances in ticks, 1024 per half-life, counted from the first fact. A tick has 4096 moments. When a
  tick is over, the use in it is merged into `mean` with weights that are the same for every tick.
- **Recent**: within a tick, `recent` is the use until `moment`, when a task last started or ended.
- **Exactness**: everything is an integer, quantity times 4096 moments, so the same facts give the same rounding, and a
  mean of nothing reaches zero. Amounts drop their last `grain` bits to stay below 2**49: none for clusters below half a
  petabyte.
- **No timer**: each fact first advances the history to the last tick that is over. Nothing changes between facts, so n
  ticks at once are the first, then n - 1 equal ones.
- **Charge**: a quarter of the mean, including what `recent` will add. The cap is the cluster, times half of what the weight entitles to
  among **active** siblings (those that wait or run), for the queue and each above. docs/fair-over-time.md gives the reason.
"""


cpdef void count_use(View v, i64 q, double at) noexcept nogil:
    """Count what queue q has used until now; called before its use changes."""
    cdef i64 m = v.len_total
    p = v.queues[q].parent
    elapsed = ((at - v.times[BEGAN]) / v.queues[p].tick - v.queues[p].ticks) * MOMENTS_PER_TICK
    moment = <i64>min(elapsed, MOMENTS_PER_TICK)
    if moment > v.queues[q].moment:  # a clock may step back
        for r in range(m):
            v.recent[q * m + r] += remembered(v, q, r) * (moment - v.queues[q].moment)
        v.queues[q].moment = moment


cdef i64 remembered(View v, i64 q, i64 r) noexcept nogil:
    """Return what counts for history: a queue's use; under sdrf, its use beyond an even part."""
    cdef i64 m = v.len_total
    used = v.used[q * m + r]
    if v.queues[v.queues[q].parent].policy == SDRF:
        used = max(0, used - v.even[q * m + r])
    return used >> v.grain[r]


cdef i64 _part(i64 amount, i64 part) noexcept nogil:
    """Return amount * part / 2**32, rounded down."""
    return <i64>((<u128><u64>amount * <u64>part) >> 32)


cdef i64 _after(i64 mean, i64 used, i64 remains) noexcept nogil:
    """Return the mean after one or more ticks; `remains` is the weight of the old mean."""
    return _part(mean, remains) + _part(used, FIXED_POINT_ONE - remains)


cdef i64 remains_after(i64 remains, i64 ticks) noexcept nogil:
    """Return the weight left after `ticks` ticks, given that after one."""
    left, power = FIXED_POINT_ONE, remains
    while ticks > 0:
        if ticks & 1:
            left = _part(left, power)
        power = _part(power, power)
        ticks >>= 1
    return left


cpdef void fade(View v, double at) noexcept nogil:
    """Advance the history to the last tick that is over at a time; a clock that steps back changes nothing."""
    cdef i64 m = v.len_total
    if at < v.times[NEXT_TICK]:
        return
    queues = v.queues
    mark = v.scratches
    new_ticks, later = integers(v, v.counts[QUEUES]), integers(v, v.counts[QUEUES])
    v.times[NEXT_TICK] = INFINITY
    for p in range(v.counts[QUEUES]):
        tick = queues[p].tick
        if tick > 0.0:
            ticks_over = <i64>floor((at - v.times[BEGAN]) / tick)  # also before the first fact
            if ticks_over > queues[p].ticks:
                new_ticks[p] = ticks_over - queues[p].ticks
                later[p] = remains_after(queues[p].remains, new_ticks[p] - 1)
                queues[p].ticks = ticks_over
            v.times[NEXT_TICK] = min(v.times[NEXT_TICK], v.times[BEGAN] + (queues[p].ticks + 1) * tick)
    for q in range(1, v.counts[QUEUES]):
        p = queues[q].parent
        if new_ticks[p] > 0:
            for r in range(m):
                used = remembered(v, q, r)
                if used != 0 or v.recent[q * m + r] != 0 or v.mean[q * m + r] != 0:
                    in_tick = v.recent[q * m + r] + used * (MOMENTS_PER_TICK - queues[q].moment)
                    mean = _after(v.mean[q * m + r], in_tick, queues[p].remains)
                    v.mean[q * m + r] = _after(mean, used * MOMENTS_PER_TICK, later[p]) if new_ticks[p] > 1 else mean
                    v.recent[q * m + r] = 0
            queues[q].moment = 0
    release(v, mark)
    if v.counts[IN_ORDER]:
        v.counts[HISTORY_MOVED] = 1


cdef i64 used_before(View v, i64 q, i64 r) noexcept nogil:
    """Return a quarter of queue q's mean of resource r, in fixed point with `fine` fractional bits."""
    return (_mean_with_recent(v, q, r) >> (QUARTER_SHIFT - v.fine[r])) << v.grain[r]


cdef i64 _mean_with_recent(View v, i64 q, i64 r) noexcept nogil:
    cdef i64 m = v.len_total
    mean = v.mean[q * m + r]
    if v.recent[q * m + r] > 0:
        mean += _part(v.recent[q * m + r], FIXED_POINT_ONE - v.queues[v.queues[q].parent].remains)
    return mean


cdef double mean_now(View v, i64 q, i64 r) noexcept nogil:
    """Return the mean including what this tick will add, in base units."""
    return <double>_mean_with_recent(v, q, r) / MOMENTS_PER_TICK * (<i64>1 << v.grain[r])


cdef double mean_at_tick(View v, i64 q, i64 r) noexcept nogil:
    """Return the mean at the end of the last tick, in base units."""
    cdef i64 m = v.len_total
    return <double>v.mean[q * m + r] / MOMENTS_PER_TICK * (<i64>1 << v.grain[r])


cdef void charge(View v, i64 q) noexcept nogil:
    """Compute queue q's charge, and the active weight of its siblings above which the cap would lower it.

    That is the weight over the part of the cluster to which the queues above are entitled: see :func:`is_crowded`.
    """
    cdef i64 m = v.len_total
    cache, p = v.queue_cache, v.queues[q].parent
    for r in range(m):
        before = used_before(v, q, r)
        if before > 0:
            whole = <double>(v.total[r] << v.fine[r])
            most = whole * entitled_part(v, q, r, 0.5)
            if before > most:
                before = <i64>most
                cache[p].crowded = True
            else:
                cache[p].crowd = min(cache[p].crowd, 0.5 * whole * v.scaled_weight[q * m + r] / before * JUST_BELOW_ONE)
        v.charged[q * m + r] = (v.used[q * m + r] << v.fine[r]) + before


cdef bint is_crowded(View v, i64 p) noexcept nogil:
    """Return True if so much weight is active below a queue, or beside those above, that part of some child's past use may not count."""
    cdef i64 m = v.len_total
    if v.queue_cache[p].crowd < INFINITY:
        for r in range(m):
            if v.active_weight[p * m + r] > v.queue_cache[p].crowd * entitled_part(v, p, r, 0.5):
                return True
    return False


cdef double entitled_part(View v, i64 q, i64 r, double each) noexcept nogil:
    """Return the part of the cluster that the weights on a queue's path entitle it to, by who is active now, times `each` per level."""
    cdef i64 m = v.len_total
    part, x = 1.0, q
    while x > 0:
        p = v.queues[x].parent
        if not is_by_jobs(v, p):
            part *= each * v.scaled_weight[x * m + r] / max(v.scaled_weight[x * m + r], v.active_weight[p * m + r])
        x = p
    return part


cdef struct Wide:
    u64 first
    u64 middle
    u64 last


cdef Wide product(i64 a, i64 b, i64 c, i64 d) noexcept nogil:
    """Return a * b * c * d in 192 bits, most significant word first: a, b < 2**63; c, d < 2**30."""
    cdef Wide found
    cdef u128 both = <u128><u64>a * <u64>b
    cdef u64 factor = <u64>c * <u64>d
    cdef u128 lower = <u128><u64>both * factor
    cdef u128 upper = (both >> 64) * factor + (lower >> 64)
    found.first, found.middle, found.last = <u64>(upper >> 64), <u64>upper, <u64>lower
    return found


cdef i64 compare_wide(Wide a, Wide b) noexcept nogil:
    """Compare two products: -1, 0 or 1."""
    if a.first != b.first:
        return 1 if a.first > b.first else -1
    if a.middle != b.middle:
        return 1 if a.middle > b.middle else -1
    return (a.last > b.last) - (a.last < b.last)
