"""How long tasks last, from how long others lasted.

Of tasks that have run for `age` seconds, the part that goes on beyond t seconds is, by a sketch with n(t) durations longer than
t and by what is believed without it,

    part(t) = (n(t) + w * believed(t)) / (n(age) + w)

so what is believed counts as much as w durations, all of them longer than the age. A job's own sketch is taken so with what its
family's says, that with what its queue's says, and that with the rule for where nothing is known: what has lasted longer than all
that was seen, L, goes on beyond t with chance L / t, so by even odds it lasts as long again. (That is the mean of Dirichlet
processes one above the other, Teh et al., JASA 2006, here of what is longer than the age.)

As n(age) never rises with the age, no part(t) falls: what goes on is never expected to end earlier than it was before.
"""


cdef double set_tails(View v, i64 j, double *tails) noexcept nogil:
    """Set `tails[about * TAIL + b]` to how many durations in each sketch of job row j are in bin b or longer ones.

    Returns what none is longer than.
    """
    longest = 0
    for about in range(3):
        key = v.jobs[j].id if about == OF_JOB else v.jobs[j].family if about == OF_FAMILY else v.jobs[j].queue
        row = find(v, about, key)
        tails[about * TAIL + BINS] = 0.0
        for b in range(BINS - 1, -1, -1):
            count = v.sketches[row].counts[b] if row != NONE else 0
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
