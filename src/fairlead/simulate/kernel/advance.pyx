"""Many steps of a simulation in compiled code, while only plain things happen: jobs arrive, tasks end.

It does what :class:`fairlead.engines.step.Scheduler` does step by step over a simulated cluster, with the same kernels
for accounting, planning and settling. It returns as soon as something needs Python. A test compares the facts of both:
on request, each fact is written to a log of integers.
"""

from advance_constants cimport *
from libc.math cimport INFINITY, isnan
from libc.stdlib cimport qsort
from scheduler_constants cimport (
    BINS, GROUPS, MAX_EXTRAPOLATION, PRIOR_DURATIONS, CLAIM_DUE, DIVIDED_SOMEWHERE, DROP, ENDED, HOLDS, KEEP, NONE, OF_JOB, QUEUES,
    RESERVATION, SERVE, WAITING,
)

from fairlead.engines.kernel.simulated cimport Runs, Truth, end_into, hold_back, next_end, start, submit
from fairlead.scheduler.kernel.scheduling cimport (
    Arrays, Plan, View, address_of, apply_finished, apply_placed, apply_started, censor_tails, drop_holds, duration, end_job,
    enter_group, fade, are_due, flag, floats, i64, integers, keep_room, leave_group, may_await_room, next_step, note_arrival,
    plan_cycle, plan_last_cycle, put_off, release, set_tails, settle, startable,
)

from fairlead.simulate.kernel.tape import TAPE

cdef enum:
    TAIL = 129  # the bins of a histogram, plus one

include "advance_types.pxi"


cdef int compare(const void *a, const void *b) noexcept nogil:
    """Compare by number, for qsort."""
    x, y = (<const i64 *>a)[0], (<const i64 *>b)[0]
    return -1 if x < y else x > y



def advance(
    View v, Truth truth, Runs runs, Tape tape, double until, i64 most, i64 max_losses, i64 keep_jobs
):
    """Advance to the last moment at or before `until`, or to where Python must act; return which."""
    cdef i64 why
    with nogil:
        why = _advance(v, truth, runs, tape, until, most, max_losses, keep_jobs)
    return why


cdef i64 _advance(
    View v, Truth truth, Runs runs, Tape tape, double until, i64 most, i64 max_losses, i64 keep_jobs
) noexcept nogil:
    """Run steps as the live scheduler does: apply what ends and arrives, decide once, start what was placed."""
    numbers = tape.numbers
    while True:
        if tape.len_log > 0 and _is_full(tape):
            return LOG_FULL
        now = tape.at[NOW]
        if not numbers[GOES_ON]:
            arrival = tape.submit[numbers[ARRIVED]] if numbers[ARRIVED] < tape.len_submit else INFINITY
            now = min(arrival, next_end(truth, runs))
            if now == INFINITY:
                return OVER
            now, happened = next_step(v, now, numbers[SERVES_CLAIMS], tape.at[NOW], tape.at[HAPPENED])
            if now > until:
                tape.at[NEXT] = now
                return UNTIL
            tape.at[HAPPENED] = happened
            tape.at[NOW] = now
        if next_end(truth, runs) <= now:
            _apply_ends(v, truth, runs, tape, now, max_losses)
            if numbers[RETURNED] > 0:
                numbers[GOES_ON] = 1
                return GANGS_BACK
        why = _needs_python(v, truth, tape, now)
        if why != NONE:
            numbers[GOES_ON] = 1
            return why
        numbers[GOES_ON] = _decide(v, truth, runs, tape, now, most, keep_jobs)
        if not numbers[GOES_ON]:
            if numbers[SERVES_CLAIMS] and now >= v.times[CLAIM_DUE] and are_due(v, now):
                return CLAIMS
            forget(v, tape, now, keep_jobs)
            numbers[STEPS] += 1


cdef i64 _needs_python(View v, Truth truth, Tape tape, double now) noexcept nogil:
    """Apply what arrives at this moment; return why Python must act before a decision, or NONE."""
    if not _apply_arrivals(v, truth, tape, now):
        return MORE_JOBS
    if tape.numbers[SERVES_CLAIMS] and (_keeps_for_claims(v) or may_await_room(v)):
        return CLAIMS
    if tape.numbers[SERVES_CLAIMS] and v.counts[DIVIDED_SOMEWHERE] and not tape.numbers[ENTITLED]:
        return DIVIDES
    return NONE


cdef bint _keeps_for_claims(View v) noexcept nogil:
    """Return True if room is kept for claims: before each decision these must be checked."""
    for h in range(v.counts[HOLDS]):
        if v.holds[h].kind != RESERVATION:
            return True
    return False


cdef void _apply_ends(View v, Truth truth, Runs runs, Tape tape, double now, i64 max_losses) noexcept nogil:
    """Apply what ends at this moment."""
    fade(v, now)
    tape.numbers[ENTITLED] = 0
    ends = tape.ends
    cdef i64 room = tape.cols_ends
    count = end_into(truth, runs, now, ends, room)
    rows, touched = tape.rows, tape.attempts
    for k in range(count):
        rows[k] = tape.row[ends[k]]
        ends[k] += 1  # the job's number
    apply_finished(
        v, count, rows, ends + room, ends + 2 * room, ends + 3 * room, ends + 4 * room, now, max_losses, touched
    )
    gangs = 0
    for k in range(count):
        if touched[k] != NONE:
            touched[gangs] = touched[k]
            gangs += 1
    if gangs > 0:
        qsort(touched, gangs, sizeof(i64), compare)  # the order in which fairlead.scheduler.state goes through them
        for k in range(gangs):
            j = touched[k]
            if v.jobs[j].waiting > 0:
                if v.jobs[j].gang and v.jobs[j].holding == 0 and tape.numbers[SERVES_CLAIMS]:
                    tape.returned[tape.numbers[RETURNED]] = j
                    tape.numbers[RETURNED] += 1
                else:
                    enter_if_ready(v, j, now)
            elif v.jobs[j].holding == 0 and isnan(v.jobs[j].finished_at):
                end_job(v, j, now)
                _release_followers(v, truth, tape, v.jobs[j].id - 1, now)
    for k in range(count if tape.len_paired > 0 else 0):
        if ends[4 * room + k] == 0:  # its exit code
            _release_paired(v, tape, ends[k] - 1, now)
    _log(tape, FINISHED, now, 0, count, 5)
    _log_columns(tape, ends, 5, room, count)


cpdef void enter_if_ready(View v, i64 j, double at) noexcept nogil:
    """Put a job that waits for no other into its group, unless it is in one, has nothing to start, is held, or is a gang that runs."""
    jobs = v.jobs
    if (
        jobs[j].group == NONE
        and jobs[j].home != NONE
        and not jobs[j].held
        and startable(v, j) > 0
        and not (jobs[j].gang and jobs[j].holding > 0)
    ):
        enter_group(v, j, jobs[j].home, at)


cdef i64 _first_pair(i64 *pairs, i64 count, i64 job) noexcept nogil:
    """Return where the pairs of a job begin among sorted pairs."""
    begin, end = 0, count
    while begin < end:
        k = (begin + end) // 2
        if pairs[k * 2] < job:
            begin = k + 1
        else:
            end = k
    return begin


cdef void _release_followers(View v, Truth truth, Tape tape, i64 ended, double now) noexcept nogil:
    """Let jobs wait that depended on the ended job and on no other; a gang returns to Python, which finds its group."""
    k = _first_pair(tape.after, tape.len_after, ended)
    while k < tape.len_after and tape.after[k * 2] == ended:
        follower = tape.after[k * 2 + 1]
        if tape.lacks[follower] > 0:
            tape.lacks[follower] -= 1
            if tape.lacks[follower] == 0:
                _release(v, truth, tape, follower, now)
        k += 1


cdef void _release(View v, Truth truth, Tape tape, i64 follower, double now) noexcept nogil:
    j = tape.row[follower]
    hold_back(truth, follower, -v.jobs[j].tasks)
    if v.jobs[j].home == NONE and tape.numbers[RETURNED] < tape.len_returned:
        tape.returned[tape.numbers[RETURNED]] = j
        tape.numbers[RETURNED] += 1
    else:
        enter_if_ready(v, j, now)


cdef void _release_paired(View v, Tape tape, i64 job, double now) noexcept nogil:
    """Release a task of each job whose tasks wait for those of a job, one of which has ended."""
    k = _first_pair(tape.paired, tape.len_paired, job)
    while k < tape.len_paired and tape.paired[k * 2] == job:
        release_task(v, tape, tape.paired[k * 2 + 1], now)
        k += 1


cpdef void release_task(View v, Tape tape, i64 job, double now) noexcept nogil:
    """Let a task wait for room that waited for something else."""
    j = tape.row[job]
    if v.jobs[j].delayed > 0:
        v.jobs[j].delayed -= 1
        if v.jobs[j].group != NONE:
            leave_group(v, j, now)
        if tape.lacks[job] == 0:
            enter_if_ready(v, j, now)


cdef i64 _hold_back(View v, Truth truth, Tape tape, i64 follower) noexcept nogil:
    """Hold back an arriving job while others have not ended; return how many these are, and list them in `rows`."""
    count, k = 0, _first_pair(tape.before, tape.len_before, follower)
    while k < tape.len_before and tape.before[k * 2] == follower:
        other = tape.before[k * 2 + 1]
        if isnan(truth.ended[other]):
            v.jobs[tape.row[other]].plain = False
            tape.rows[count] = other
            count += 1
        k += 1
    if count > 0:
        v.jobs[tape.row[follower]].plain = False
        hold_back(truth, follower, v.jobs[tape.row[follower]].tasks)
        tape.lacks[follower] = count
    return count


cdef bint _apply_arrivals(View v, Truth truth, Tape tape, double now) noexcept nogil:
    """Apply what arrives at this moment; False if more jobs must be loaded first."""
    numbers = tape.numbers
    while numbers[ARRIVED] < tape.len_submit and tape.submit[numbers[ARRIVED]] == now:
        if numbers[ARRIVED] == numbers[COMING]:
            return False
        k = numbers[ARRIVED]
        row = tape.row[k]
        if row != NONE:  # else no machine could hold it
            fade(v, now)
            numbers[ENTITLED] = 0
            v.jobs[row].submitted_at = now
            note_arrival(v, tape.group[k], now)
            submit(truth, k, v.jobs[row].tasks, now)
            others = _hold_back(v, truth, tape, k)
            if others == 0 and not v.jobs[row].held:
                enter_group(v, row, tape.group[k], now)
            _log(tape, SUBMITTED, now, k, others, 1)
            _log_columns(tape, tape.rows, 1, 0, others)
        numbers[ARRIVED] += 1
    return True


cdef bint _decide(
    View v, Truth truth, Runs runs, Tape tape, double now, i64 most, i64 keep_jobs
) noexcept nogil:
    """Decide once and apply it; return True if there is more to do at this moment: another decision, or started tasks."""
    plan = plan_cycle(v, False, most, now)
    what, count, about, more, passed = plan.what, plan.count, plan.about, plan.more, plan.passed
    if what != SERVE or count > 0 or passed > 0:
        fade(v, now)
    if passed > 0:
        _pass_over(v, tape, now, passed)
    if what == KEEP:
        group, job = v.jobs[about].group, v.jobs[about].id
        nodes, tasks = v.planned_node, v.planned_tasks
        mark, alone = v.scratches, 0
        apart = integers(v, v.counts[QUEUES])
        for q in range(v.counts[QUEUES]):
            if v.queue_cache[q].apart:
                apart[alone] = q
                alone += 1
        _log_reserved(tape, now, job, count, nodes, tasks, plan, alone, apart)
        keep_room(v, group, about, count, nodes, tasks, RESERVATION, plan.start, plan.slips, plan.number, alone, apart, now)
        release(v, mark)
    elif what == DROP:
        _drop(v, tape, now, about)
    elif count > 0:
        done = _place(v, tape, now, count, more)
        if done < count:
            more, count = False, done
        settle(v, more)
    else:
        settle(v, more)
        if tape.numbers[GOES_OVER_LIMITS] and not more and passed > 0:
            more = True
        elif tape.numbers[GOES_OVER_LIMITS] and not more:
            count, more = plan_last_cycle(v, most, now, True)
            if count > 0:
                fade(v, now)
                done = _place(v, tape, now, count, more)
                if done < count:
                    more, count = False, done
    if more or what != SERVE or count > 0 or passed > 0:  # else a decision on claims may come first
        forget(v, tape, now, keep_jobs)
    if what == SERVE and count > 0:
        _start(v, truth, runs, tape, now, count)
        return more or tape.numbers[GOES_OVER_LIMITS] or next_end(truth, runs) <= now or _may_go_on(v)
    return more


cdef bint _may_go_on(View v) noexcept nogil:
    """Return True if there may be more to decide once all tasks were placed that have room: only of reservations and claims."""
    return v.counts[HOLDS] > 0 or may_await_room(v)


cdef i64 _place(View v, Tape tape, double now, i64 count, bint more) noexcept nogil:
    """Place what was planned; return how many tasks that are: fewer, rather than a write outside the tables."""
    _skip_gaps(v, count)
    rows, index, node = v.planned_job, v.planned_index, v.planned_node
    attempts, jobs = tape.attempts, tape.rows
    for k in range(count):
        attempts[k] = v.tasks[v.jobs[rows[k]].first + index[k]].attempt + 1
        jobs[k] = v.jobs[rows[k]].id
    _log(tape, PLACED, now, more, count, 4)
    _log_attempts(v, tape, count)
    _log_columns(tape, node, 1, 0, count)
    bad = apply_placed(v, count, rows, index, attempts, node, more, now)
    tape.numbers[DECISIONS] += count
    return count if bad < 0 else bad


cdef void _pass_over(View v, Tape tape, double now, i64 count) noexcept nogil:
    """Put off the lines of the jobs that the cycle found no room to keep for."""
    mark, ids = v.scratches, integers(v, count)
    for k in range(count):
        job = v.group_cache[k].passed_list
        ids[k] = v.jobs[job].id
        put_off(v, v.jobs[job].group, now)
    _log(tape, PASSED_OVER, now, 0, count, 1)
    _log_columns(tape, ids, 1, 0, count)
    release(v, mark)


cdef void _drop(View v, Tape tape, double now, i64 h) noexcept nogil:
    """Drop the reservation of a hold."""
    cdef i64 number = v.holds[h].number
    _log(tape, DROPPED, now, v.holds[h].job, 1, 1)
    _log_columns(tape, &number, 1, 0, 1)
    drop_holds(v, v.holds[h].group, number, now)


cdef void _skip_gaps(View v, i64 count) noexcept nogil:
    """Replace planned indices of jobs with gaps by the first tasks that wait."""
    gaps = False
    for k in range(count):
        if v.jobs[v.planned_job[k]].irregular:
            gaps = True
    if gaps:
        mark = v.scratches
        tried = integers(v, v.len_jobs)
        for k in range(count):
            j = v.planned_job[k]
            if v.jobs[j].irregular:
                while v.tasks[v.jobs[j].first + tried[j]].status != WAITING:
                    tried[j] += 1
                v.planned_index[k] = tried[j]
                tried[j] += 1
        release(v, mark)


cdef void _start(View v, Truth truth, Runs runs, Tape tape, double now, i64 count) noexcept nogil:
    """Start what was placed."""
    index, node = v.planned_index, v.planned_node
    attempts, jobs = tape.attempts, tape.rows
    _log(tape, STARTED, now, 0, count, 3)
    _log_attempts(v, tape, count)
    for k in range(count):
        jobs[k] -= 1
    start(truth, runs, count, jobs, index, attempts, node, now)
    apply_started(v, count, v.planned_job, index, attempts, now)


cpdef void forget(View v, Tape tape, double now, i64 keep_jobs) noexcept nogil:
    """Log the ended jobs that are forgotten, as in :func:`fairlead.scheduler.decide.decide`; the tables still have them."""
    first = tape.numbers[FORGOTTEN]
    surplus = v.counts[ENDED] - first - keep_jobs
    if surplus > max(0, keep_jobs // 20):
        fade(v, now)
        _log(tape, FORGOT, now, 0, surplus, 1)
        _log_columns(tape, v.ended + first, 1, 0, surplus)
        tape.numbers[FORGOTTEN] += surplus


cdef bint _is_full(Tape tape) noexcept nogil:
    """Return True if one more step might not fit into the log."""
    at_once = MAX_LOG_NUMBERS * (tape.len_rows + tape.len_submit + tape.len_before)
    numbers = tape.numbers
    return tape.len_log - numbers[LOGGED] < at_once or tape.len_moments - numbers[FACTS] < at_once // 4


cdef void _log(Tape tape, i64 kind, double now, i64 about, i64 count, i64 columns) noexcept nogil:
    if tape.len_log > 0:
        numbers, at = tape.numbers, tape.numbers[LOGGED]
        tape.log[at], tape.log[at + 1], tape.log[at + 2], tape.log[at + 3] = kind, about, count, columns
        tape.moments[numbers[FACTS]] = now
        numbers[FACTS] += 1
        numbers[LOGGED] += 4


cdef void _log_columns(Tape tape, i64 *columns, i64 number, i64 apart, i64 count) noexcept nogil:
    """Log `number` columns of `count` numbers each, `apart` numbers from one to the next."""
    cdef i64 c, k
    if tape.len_log > 0:
        for c in range(number):
            at = tape.numbers[LOGGED]
            for k in range(count):
                tape.log[at + k] = columns[c * apart + k]
            tape.numbers[LOGGED] += count


cdef void _log_reserved(
    Tape tape, double now, i64 job, i64 count, i64 *nodes, i64 *tasks, Plan plan, i64 alone, i64 *apart
) noexcept nogil:
    """Log a reservation: nodes, tasks, slips and number, and the leaves whose tasks it ignores; columns are padded with NONE."""
    if tape.len_log > 0:
        length = max(2, count, alone)
        _log(tape, RESERVED, now, job, length, 4)
        tape.starts[tape.numbers[FACTS] - 1] = plan.start
        _log_filled(tape, nodes, count, length)
        _log_filled(tape, tasks, count, length)
        _log_filled(tape, &plan.slips, 1, 1)
        _log_filled(tape, &plan.number, 1, length - 1)
        _log_filled(tape, apart, alone, length)


cdef void _log_filled(Tape tape, i64 *column, i64 count, i64 length) noexcept nogil:
    cdef i64 k
    at = tape.numbers[LOGGED]
    for k in range(length):
        tape.log[at + k] = column[k] if k < count else NONE
    tape.numbers[LOGGED] += length


cdef void _log_attempts(View v, Tape tape, i64 count) noexcept nogil:
    """Log job numbers, indices and attempts of what was just planned."""
    _log_columns(tape, tape.rows, 1, 0, count)
    _log_columns(tape, v.planned_index, 1, 0, count)
    _log_columns(tape, tape.attempts, 1, 0, count)


# Durations drawn for one dry run. Tasks of one job are alike, known or not. So each draw for a job repeats an earlier
# draw of that job with the probability that its own durations would have against the prior (see the scheduler's
# forecasts). This is an urn to which each draw is added (Blackwell and MacQueen, Annals of Statistics 1973).


def draw(View v, const i64[::1] jobs, const double[::1] ages, const double[:, ::1] chances, const int[:, ::1] running, double[::1] found):
    """Draw how long tasks last in all that have run for `ages`.

    Parameters
    ----------
    v : View
    jobs : int64, shape (n,)
        Rows of their jobs, those of one job adjacent.
    ages : float64, shape (n,)
        Seconds; 0 for a task that does not run yet.
    chances : float64, shape (n, 3)
        Uniform in [0, 1).
    found : float64, shape (n,)
        Set to seconds; 0 if nothing is known of such tasks and they do not run yet. Tasks that have run `MAX_EXTRAPOLATION`
        times as long as all like them that ended last to their time limit.
    """
    cdef double[3 * TAIL] tails
    cdef i64 k, known = NONE, begin = 0, before
    cdef double longest = 0.0, limit, own = 0.0
    cdef double like = 0.0
    cdef bint limited
    with nogil:
        for k in range(jobs.shape[0]):
            if jobs[k] != known:
                known, begin, longest = jobs[k], k, set_tails(v, jobs[k], tails)
                own, like = tails[OF_JOB * TAIL], longest
                longest = censor_tails(v, jobs[k], tails, &running[0, 0], longest)
            before, limit = k - begin, v.jobs[jobs[k]].time_limit
            limited = limit < INFINITY and ages[k] > MAX_EXTRAPOLATION * like
            found[k] = limit if limited else -1.0
            if not limited and chances[k, 0] * (before + own + PRIOR_DURATIONS[OF_JOB]) < before:
                found[k] = found[begin + <i64>(chances[k, 1] * before)]
            if found[k] < ages[k] or (ages[k] > 0.0 and found[k] == ages[k]):
                found[k] = max(ages[k], min(limit, duration(tails, longest, ages[k], 1.0 - chances[k, 2], INFINITY)))


def fill_in(View v, const i64[::1] jobs, const double[:, ::1] chances, const double[::1] pool, double[::1] found):
    """Fill in unknown durations: from draws of the same job, else from a pool, else infinite."""
    cdef i64 k, begin = 0
    cdef double lasts
    with nogil:
        for k in range(jobs.shape[0]):
            if jobs[k] != jobs[begin]:
                begin = k
            if found[k] == 0.0:
                lasts = INFINITY
                if k > begin and found[begin] > 0.0:
                    lasts = found[begin + <i64>(chances[k, 1] * (k - begin))]
                elif pool.shape[0] > 0:
                    lasts = pool[<i64>(chances[k, 0] * pool.shape[0])]
                found[k] = min(v.jobs[jobs[k]].time_limit, lasts)
