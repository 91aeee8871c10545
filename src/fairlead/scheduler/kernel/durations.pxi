"""What is kept of how long tasks lasted: counts by duration, of a job, of a family of jobs, of a leaf queue.

Of a job with very many tasks only some count for its family and its queue, evenly chosen by their index: not those that end
first, which are the short ones. A histogram that is full is halved, so that old durations weigh less and less.

Only so many histograms are kept. Each has its place in one set of a few, and a new one takes there that of a job that has ended,
or one that is free, or of the one that was added to longest ago; a queue's goes last. All of it follows from the facts alone.
"""


cpdef i64 bin_of(double seconds) noexcept nogil:
    """The bin of a duration, from the digits of the number, so that it is the same on every machine."""
    if seconds < EDGES[1] or seconds >= EDGES[BINS]:
        return 0 if seconds < EDGES[1] else BINS - 1
    cdef int octave
    fraction = frexp(seconds, &octave)  # seconds == fraction * 2**octave, and 0.5 <= fraction < 1
    return 4 * (octave + 3) + <i64>(8 * fraction) - 4


cpdef i64 note_duration(View v, i64 j, i64 index, double seconds, double at) noexcept nogil:
    """A task of job row j ended by itself after so many seconds, NaN where it never ran.

    Returns whose usual duration may be another now: NOBODYS, FAMILYS (or the job's own), QUEUES or EVERYBODYS; FORGIVEN,
    where the queue may be trusted again as well.
    """
    cdef bint full
    whose = NOBODYS
    if not seconds >= 0.0:
        return whose
    jobs, forgotten = v.jobs, v.counts[FORGOTTEN_HISTOGRAMS]
    b = bin_of(seconds)
    if jobs[j].tasks > 1 and _count(v, _row_for(v, OF_JOB, jobs[j].id, at), b, at):
        whose = FAMILYS
    if index % max(1, jobs[j].tasks // OF_ONE_JOB) == 0:
        if jobs[j].family != 0 and _count(v, _row_for(v, OF_FAMILY, jobs[j].family, at), b, at):
            whose = FAMILYS
        row = _row_for(v, OF_QUEUE, jobs[j].queue, at)
        full = v.histograms[row].total == FULL
        if _count(v, row, b, at):
            whose = FORGIVEN if full else LEAFS
    return EVERYBODYS if v.counts[FORGOTTEN_HISTOGRAMS] > forgotten else whose


cdef void let_go(View v, i64 job) noexcept nogil:
    """A job has ended: its own histogram makes room first."""
    row = find(v, OF_JOB, job)
    if row != NONE:
        v.histograms[row].used = -INFINITY


cdef i64 find(View v, i64 about, i64 key) noexcept nogil:
    """The row of a histogram, NONE where there is none."""
    histograms, places, s = v.histograms, v.histogram_places, set_of(about, key)
    for way in range(WAYS):
        row = places[s * WAYS + way]
        if row != NONE and histograms[row].key == key and histograms[row].about == about:
            return row
    return NONE


cpdef i64 set_of(i64 about, i64 key) noexcept nogil:
    """The set that a histogram has its place in."""
    return (((4 * key + about) * SPREAD_KEYS) >> 40) & (SETS - 1)


cdef i64 _row_for(View v, i64 about, i64 key, double at) noexcept nogil:
    """The row of a histogram, which is made where there is none."""
    row = find(v, about, key)
    if row != NONE:
        return row
    histograms, places, s = v.histograms, v.histogram_places, set_of(about, key)
    free, victim = NONE, NONE
    for way in range(WAYS):
        other = places[s * WAYS + way]
        if other == NONE:
            free = way
        elif victim == NONE or _makes_room_before(v, other, victim):
            victim = other
    if victim == NONE or (free != NONE and histograms[victim].used > -INFINITY):
        victim = v.counts[HISTOGRAMS]
        v.counts[HISTOGRAMS] += 1
        places[s * WAYS + free] = victim
    elif histograms[victim].used > -INFINITY:
        v.counts[FORGOTTEN_HISTOGRAMS] += (histograms[victim].p90 != NONE)
    histograms[victim].about, histograms[victim].key, histograms[victim].total = about, key, 0
    histograms[victim].p90, histograms[victim].beyond = NONE, 0
    for b in range(BINS):
        histograms[victim].counts[b] = 0
    return victim


cdef bint _makes_room_before(View v, i64 row, i64 other) noexcept nogil:
    """Whether a histogram makes room before another."""
    cdef bint last, other_last
    histograms = v.histograms
    last, other_last = histograms[row].about == OF_QUEUE, histograms[other].about == OF_QUEUE
    if last != other_last:
        return other_last
    if histograms[row].used != histograms[other].used:
        return histograms[row].used < histograms[other].used
    return row < other


cdef bint _count(View v, i64 row, i64 b, double at) noexcept nogil:
    """Count a duration in a histogram; whether what is usual is another now, or who did not keep to it is forgiven."""
    cdef bint full
    histograms, full = v.histograms, v.histograms[row].total == FULL
    if full:
        _halve(v, row)
    histograms[row].counts[b] += 1
    histograms[row].total += 1
    histograms[row].used = at
    was = histograms[row].p90
    if was != NONE and b > was:
        histograms[row].beyond += 1
    _set_usual(v, row)
    return full or histograms[row].p90 != was


cdef void _set_usual(View v, i64 row) noexcept nogil:
    """Go from what was usual to what is.

    Of N durations and one to come each is equally likely to be the k-th longest, so the next is longer than the k-th longest of N
    with a chance of k in N + 1, whatever they are like; k is the most for which that is no more than one in ten.
    """
    histograms, counts = v.histograms, v.histograms[row].counts
    allowed = (histograms[row].total + 1) // IN_TEN
    if allowed == 0:
        histograms[row].p90, histograms[row].beyond = NONE, 0
        return
    b, beyond = histograms[row].p90, histograms[row].beyond
    if b == NONE:
        b, beyond = BINS - 1, 0
    while beyond >= allowed:
        b += 1
        beyond -= counts[b]
    while beyond + counts[b] < allowed:
        beyond += counts[b]
        b -= 1
    histograms[row].p90, histograms[row].beyond = b, beyond


cpdef void find_p90s(View v) noexcept nogil:
    """Work out what is usual in all histograms."""
    for row in range(v.counts[HISTOGRAMS]):
        v.histograms[row].p90, v.histograms[row].beyond = NONE, 0
        _set_usual(v, row)


cdef double usual(View v, i64 about, i64 key) noexcept nogil:
    """The seconds that nine in ten of a histogram lasted no longer than; NaN where there are too few, or none."""
    row = find(v, about, key)
    if row == NONE or v.histograms[row].p90 == NONE:
        return NAN
    return <double>EDGES[v.histograms[row].p90 + 1] if v.histograms[row].p90 < BINS - 1 else INFINITY


cdef void _halve(View v, i64 row) noexcept nogil:
    """Keep half of the durations; of those longer than any, half as well, but for one."""
    counts, rest = v.histograms[row].counts, 0
    for b in range(BINS - 1, -1, -1):
        both = counts[b] + rest
        counts[b] = both // 2
        rest = both % 2
    v.histograms[row].total //= 2
    v.histograms[row].p90, v.histograms[row].beyond = NONE, 0
    if v.histograms[row].about == OF_QUEUE:  # who did not keep to forecasts that were made of them is forgiven by and by
        q = v.histograms[row].key
        v.queues[q].trusted //= 2
        v.queues[q].overran //= 2


cpdef void find_places(View v) noexcept nogil:
    """Give all histograms their places anew."""
    places = v.histogram_places
    for place in range(SETS * WAYS):
        places[place] = NONE
    for row in range(v.counts[HISTOGRAMS]):
        s, way = set_of(v.histograms[row].about, v.histograms[row].key), 0
        while places[s * WAYS + way] != NONE:
            way += 1
        places[s * WAYS + way] = row


cdef double set_tails(View v, i64 j, double *tails) noexcept nogil:
    """Set `tails[about * TAIL + b]` to how many durations in each histogram of job row j are in bin b or longer ones.

    Returns what none is longer than.
    """
    longest = 0
    for about in range(3):
        key = v.jobs[j].id if about == OF_JOB else v.jobs[j].family if about == OF_FAMILY else v.jobs[j].queue
        row = find(v, about, key)
        tails[about * TAIL + BINS] = 0.0
        for b in range(BINS - 1, -1, -1):
            count = v.histograms[row].counts[b] if row != NONE else 0
            tails[about * TAIL + b] = tails[about * TAIL + b + 1] + count
            if count > 0:
                longest = max(longest, b + 1)
    return <double>EDGES[longest]


cdef double duration(double *tails, double longest, double age, double part, double far) noexcept nogil:
    """The seconds that only a part of those last longer than that last longer than `age`, by tails as `set_tails` makes them.

    Infinite where it would be more than `far` times as long as anything that was seen.
    """
    cdef double[3] weight
    b = bin_of(age)
    within = max(0.0, (EDGES[b + 1] - age) / (EDGES[b + 1] - EDGES[b]))
    rest = 1.0
    for about in range(3):
        longer = tails[about * TAIL + b + 1] + within * (tails[about * TAIL + b] - tails[about * TAIL + b + 1])
        weight[about] = rest / (longer + BELIEF[about])
        rest *= BELIEF[about] / (longer + BELIEF[about])
    if rest >= part:
        return max(age, longest) * rest / part if rest <= far * part else INFINITY
    begin, before = age, 1.0
    while before > part:
        end, after = EDGES[b + 1], rest
        for about in range(3):
            after += weight[about] * tails[about * TAIL + b + 1]
        if after <= part:
            return begin + (end - begin) * (before - part) / (before - after)
        begin, before, b = end, after, b + 1
    return begin


cdef void set_durations(View v, i64 count, i64 *jobs, double *ages, double *parts, double far, double *found) noexcept nogil:
    """`duration` of tasks of these job rows, never beyond their time limit. Cheapest where tasks of a job lie together."""
    cdef double[TAILS] tails
    known, longest = NONE, 0.0
    for k in range(count):
        if jobs[k] != known:
            known, longest = jobs[k], set_tails(v, jobs[k], tails)
        most = min(v.jobs[jobs[k]].time_limit, duration(tails, longest, ages[k], parts[k], far))
        found[k] = max(ages[k], most)


cdef double usual_duration(View v, i64 j) noexcept nogil:
    """How long a task of job row j lasts in nine of ten cases, or at most; infinite: not known.

    By its job's own, else by its family's, else by its queue's: the first of them that have as many as it takes to say it. It
    changes only when one of few numbers does, so that those who wait can be told when it has; `duration` with every end.
    """
    seconds = usual(v, OF_JOB, v.jobs[j].id) if v.jobs[j].tasks > 1 else NAN
    if isnan(seconds) and v.jobs[j].family != 0:
        seconds = usual(v, OF_FAMILY, v.jobs[j].family)
    if isnan(seconds):
        seconds = usual(v, OF_QUEUE, v.jobs[j].queue)
    return v.jobs[j].time_limit if isnan(seconds) else min(v.jobs[j].time_limit, seconds)


def durations(View v, const i64[::1] jobs, const double[::1] ages, const double[::1] parts, double far):
    """:func:`set_durations` as an array."""
    found = np.empty(jobs.shape[0])
    cdef double[::1] to = found
    set_durations(v, jobs.shape[0], <i64 *>&jobs[0], <double *>&ages[0], <double *>&parts[0], far, &to[0])
    return found
