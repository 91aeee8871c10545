"""Duration histograms: how long tasks lasted, by job, by family of jobs and by leaf queue, and the forecasts made from them.

- **Sampling**: of a large job, only tasks at even steps of the index count for its family and queue. The first to end
  would be the short ones.
- **Ageing**: a full histogram is halved, so old durations count less.
- **Room**: the table is a set-associative cache of SETS x WAYS places. A new histogram replaces one of an ended job,
  takes a free place, or replaces the least recently updated; queues' go last. It depends on the facts alone.
- **p90**: nine in ten durations are at most this. Entering held room relies on it.
- **duration()**: any quantile of the time that a task still runs, from all three histograms with priors.
"""


cpdef i64 bin_of(double seconds) noexcept nogil:
    """Return a duration's bin, from the bits of the number: the same on every machine."""
    if seconds < EDGES[1] or seconds >= EDGES[BINS]:
        return 0 if seconds < EDGES[1] else BINS - 1
    cdef int octave
    fraction = frexp(seconds, &octave)  # seconds == fraction * 2**octave, and 0.5 <= fraction < 1
    return 4 * (octave + 3) + <i64>(8 * fraction) - 4


cpdef i64 note_duration(View v, i64 j, i64 index, double seconds, double at) noexcept nogil:
    """Count the duration of a task of job row j that ended by itself; NaN if it never ran.

    Return whose p90 may have changed: P90_SAME, P90_OF_FAMILY (or of the job), P90_OF_QUEUE or P90_OF_ANY; P90_FORGIVEN
    if the queue may also be trusted again.
    """
    cdef bint full
    whose = P90_SAME
    if not seconds >= 0.0:
        return whose
    v.counts[NOTED] += 1
    jobs, forgotten = v.jobs, v.counts[FORGOTTEN_HISTOGRAMS]
    b = bin_of(seconds)
    if jobs[j].tasks > 1 and _count(v, _row_for(v, OF_JOB, jobs[j].id), b, at):
        whose = P90_OF_FAMILY
    if index % max(1, jobs[j].tasks // SAMPLES_PER_JOB) == 0:
        if jobs[j].family != 0 and _count(v, _row_for(v, OF_FAMILY, jobs[j].family), b, at):
            whose = P90_OF_FAMILY
        row = _row_for(v, OF_QUEUE, jobs[j].queue)
        full = v.histograms[row].total == HISTOGRAM_CAPACITY
        if _count(v, row, b, at):
            whose = P90_FORGIVEN if full else P90_OF_QUEUE
    known = p90_known(v, j)
    v.queues[line_of(v, jobs[j].queue)].lasts = known if known < INFINITY else 0.0  # not for NaN
    return P90_OF_ANY if v.counts[FORGOTTEN_HISTOGRAMS] > forgotten else whose


cdef void expire_histogram(View v, i64 job) noexcept nogil:
    """Let an ended job's own histogram be replaced first."""
    row = find(v, OF_JOB, job)
    if row != NONE:
        v.histograms[row].used = -INFINITY


cdef i64 find(View v, i64 about, i64 key) noexcept nogil:
    """Return a histogram's row, NONE if there is none."""
    histograms, places, s = v.histograms, v.histogram_places, set_of(about, key)
    for way in range(WAYS):
        row = places[s * WAYS + way]
        if row != NONE and histograms[row].key == key and histograms[row].about == about:
            return row
    return NONE


cpdef i64 set_of(i64 about, i64 key) noexcept nogil:
    """Return the set of the cache that a histogram belongs to."""
    return (((4 * key + about) * HASH_FACTOR) >> 40) & (SETS - 1)


cdef i64 _row_for(View v, i64 about, i64 key) noexcept nogil:
    """Return a histogram's row; create it if there is none."""
    row = find(v, about, key)
    if row != NONE:
        return row
    histograms, places, s = v.histograms, v.histogram_places, set_of(about, key)
    free, victim = NONE, NONE
    for way in range(WAYS - 1, -1, -1):  # the first free one, where it is found soonest
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
    """Return True if a histogram is replaced before another."""
    cdef bint last, other_last
    histograms = v.histograms
    last, other_last = histograms[row].about == OF_QUEUE, histograms[other].about == OF_QUEUE
    if last != other_last:
        return other_last
    if histograms[row].used != histograms[other].used:
        return histograms[row].used < histograms[other].used
    return row < other


cdef bint _count(View v, i64 row, i64 b, double at) noexcept nogil:
    """Count a duration in a histogram; True if its p90 changed, or if it was halved, which forgives overruns."""
    cdef bint full
    histograms, full = v.histograms, v.histograms[row].total == HISTOGRAM_CAPACITY
    if full:
        _halve(v, row)
    histograms[row].counts[b] += 1
    histograms[row].total += 1
    histograms[row].used = at
    was = histograms[row].p90
    if was != NONE and b > was:
        histograms[row].beyond += 1
    _set_p90(v, row)
    return full or histograms[row].p90 != was


cdef void _set_p90(View v, i64 row) noexcept nogil:
    """Move a histogram's p90 from its last value to the current one.

    Of N durations and the next, each is equally likely to be the k-th longest. So the next is longer than the k-th
    longest of N with probability k / (N + 1), for any distribution. k is the largest with at most one in ten.
    """
    histograms, counts = v.histograms, v.histograms[row].counts
    allowed = (histograms[row].total + 1) // P90_ONE_IN
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
    """Compute the p90 of all histograms."""
    for row in range(v.counts[HISTOGRAMS]):
        v.histograms[row].p90, v.histograms[row].beyond = NONE, 0
        _set_p90(v, row)


cdef double p90_of(View v, i64 about, i64 key) noexcept nogil:
    """Return a histogram's p90, seconds; NaN if it has too few durations or does not exist."""
    row = find(v, about, key)
    if row == NONE or v.histograms[row].p90 == NONE:
        return NAN
    return <double>EDGES[v.histograms[row].p90 + 1] if v.histograms[row].p90 < BINS - 1 else INFINITY


cdef void _halve(View v, i64 row) noexcept nogil:
    """Halve the counts, carrying remainders to shorter bins: the number of durations longer than any is halved, rounded down."""
    counts, rest = v.histograms[row].counts, 0
    for b in range(BINS - 1, -1, -1):
        both = counts[b] + rest
        counts[b] = both // 2
        rest = both % 2
    v.histograms[row].total //= 2
    v.histograms[row].p90, v.histograms[row].beyond = NONE, 0
    if v.histograms[row].about == OF_QUEUE:  # forgives overruns gradually
        q = v.histograms[row].key
        v.queues[q].trusted //= 2
        v.queues[q].overran //= 2


cpdef void find_places(View v) noexcept nogil:
    """Compute the places of all histograms."""
    places = v.histogram_places
    for place in range(SETS * WAYS):
        places[place] = NONE
    for row in range(v.counts[HISTOGRAMS]):
        s, way = set_of(v.histograms[row].about, v.histograms[row].key), 0
        while places[s * WAYS + way] != NONE:
            way += 1
        places[s * WAYS + way] = row


cdef i64 row_about(View v, i64 j, i64 about) noexcept nogil:
    """Return the row of the histogram of job row j, its family or its leaf queue, NONE if there is none."""
    return find(v, about, v.jobs[j].id if about == OF_JOB else v.jobs[j].family if about == OF_FAMILY else v.jobs[j].queue)


cdef double set_tails(View v, i64 j, double *tails) noexcept nogil:
    """Set `tails[about * TAIL + b]` to the number of durations in bin b or longer, for each histogram of job row j.

    Return an upper bound of all of them, seconds.
    """
    longest = 0
    memset(tails, 0, 3 * TAIL * sizeof(double))
    for about in range(3):
        row, b = row_about(v, j, about), 0
        left = v.histograms[row].total if row != NONE else 0
        while left > 0:
            tails[about * TAIL + b] = left
            left -= v.histograms[row].counts[b]
            b += 1
        longest = max(longest, b)
    return <double>EDGES[longest]


cdef double longest_known(View v, i64 j) noexcept nogil:
    """Return an upper bound of all durations in the histograms of job row j, seconds; found from their p90s up."""
    longest = 0
    for about in range(3):
        row = row_about(v, j, about)
        if row != NONE:
            b, left = 0, v.histograms[row].total
            if v.histograms[row].p90 != NONE:
                b, left = v.histograms[row].p90 + 1, v.histograms[row].beyond
            while left > 0:
                left -= v.histograms[row].counts[b]
                b += 1
            longest = max(longest, b)
    return <double>EDGES[longest]


cdef View_tails *tails_of(View v, i64 j) noexcept nogil:
    """Return the tails of job row j, by :func:`set_tails` unless they were found since a duration was noted last."""
    cdef View_tails *found = &v.tails[j % TAILS_KEPT]
    if found.job != v.jobs[j].id or found.noted != v.counts[NOTED]:
        found.job, found.noted = v.jobs[j].id, v.counts[NOTED]
        found.longest = set_tails(v, j, found.of)
    return found


cdef double censor_tails(View v, i64 j, double *tails, const int *running, double longest) noexcept nogil:
    """Add running tasks, as durations of which only a lower bound is known, to the tails of job row j.

    `running` has their ages by row of the histogram and bin; see :func:`count_running`. The tails become Kaplan and Meier's
    estimate (Journal of the American Statistical Association, 1958). Return the new upper bound, seconds.
    """
    cdef double longer, stays
    for about in range(3):
        row, tail = row_about(v, j, about), tails + about * TAIL
        if row == NONE:
            continue
        ages, longer = running + row * BINS, 0.0
        for b in range(BINS - 1, -1, -1):
            longer += ages[b]
            tail[b] += longer
            if ages[b] > 0:
                longest = max(longest, EDGES[b + 1])
        stays = tail[0]
        for b in range(BINS):
            longer, tail[b] = tail[b], stays
            if longer > 0.0:
                stays *= 1.0 - v.histograms[row].counts[b] / longer
        tail[BINS] = stays
    return longest


def count_running(View v, const i64[::1] jobs, const i64[::1] index, const double[::1] ages, int[:, ::1] found):
    """Add the ages of running tasks, seconds, to the histograms that will count their durations, by row and bin.

    Not to those of queues: they are halved often, which thins the ended tasks but not those that run.
    """
    cdef i64 k, about, row
    for k in range(jobs.shape[0]):
        for about in range(OF_QUEUE):
            row = row_about(v, jobs[k], about)
            if row != NONE and (about == OF_JOB or index[k] % max(1, v.jobs[jobs[k]].tasks // SAMPLES_PER_JOB) == 0):
                found[row, bin_of(ages[k])] += 1


cdef double duration(double *tails, double longest, double age, double part, double far) noexcept nogil:
    """Return the duration, seconds, that a fraction `part` of tasks older than `age` exceeds, by tails from :func:`set_tails`.

    inf if it would exceed `far` times the longest duration seen.
    """
    cdef double[3] weight
    b = bin_of(age)
    within = max(0.0, (EDGES[b + 1] - age) / (EDGES[b + 1] - EDGES[b]))
    rest = 1.0
    for about in range(3):
        longer = tails[about * TAIL + b + 1] + within * (tails[about * TAIL + b] - tails[about * TAIL + b + 1])
        weight[about] = rest / (longer + PRIOR_DURATIONS[about])
        rest *= PRIOR_DURATIONS[about] / (longer + PRIOR_DURATIONS[about])
    beyond = rest  # longer than all that is known
    for about in range(3):
        beyond += weight[about] * tails[about * TAIL + BINS]
    if beyond >= part:
        return max(age, longest) * beyond / part if beyond <= far * part else INFINITY
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
    """Set `found` to :func:`duration` of tasks, at most their time limits. Cheapest if a job's tasks are adjacent."""
    for k in range(count):
        tails = tails_of(v, jobs[k])
        most = min(v.jobs[jobs[k]].time_limit, duration(tails.of, tails.longest, ages[k], parts[k], far))
        found[k] = max(ages[k], most)


cpdef double p90_duration(View v, i64 j) noexcept nogil:
    """Return the p90 of a task of job row j, at most its time limit, seconds; the time limit (or inf) if unknown.

    Unlike :func:`duration` it changes rarely, so that pending groups can be checked again when it does.
    """
    seconds = p90_known(v, j)
    return v.jobs[j].time_limit if isnan(seconds) else min(v.jobs[j].time_limit, seconds)


cdef double p90_known(View v, i64 j) noexcept nogil:
    """Return a job's own p90, else its family's, else its queue's: the first with enough durations; NaN if none has."""
    seconds = p90_of(v, OF_JOB, v.jobs[j].id) if v.jobs[j].tasks > 1 else NAN
    if isnan(seconds) and v.jobs[j].family != 0:
        seconds = p90_of(v, OF_FAMILY, v.jobs[j].family)
    return p90_of(v, OF_QUEUE, v.jobs[j].queue) if isnan(seconds) else seconds


def durations(View v, const i64[::1] jobs, const double[::1] ages, const double[::1] parts, double far):
    """Return :func:`set_durations` as an array."""
    found = np.empty(jobs.shape[0])
    cdef double[::1] to = found
    set_durations(v, jobs.shape[0], <i64 *>&jobs[0], <double *>&ages[0], <double *>&parts[0], far, &to[0])
    return found
