"""Many steps of a simulation in compiled code, where all that happens is plain: jobs arrive, tasks end.

It does what :class:`fairlead.engines.step.Scheduler` does step by step over a simulated cluster, with the very same kernels
that account, plan and settle, and comes back as soon as something is to be done that only that can do. A test holds the two to
the same facts: what would have been one is written to a log of whole numbers, where that is asked for.
"""

from typing import ClassVar

import numpy as np

from fairlead.engines.kernel_simulated import Runs, Truth, end_into, next_end, start, submit
from fairlead.kernel_cache import compiled, unlocked
from fairlead.scheduler.compiled_view import Arrays, View
from fairlead.scheduler.kernel_account import (
    end_job,
    enter_bucket,
    finished,
    placed,
    started,
)
from fairlead.scheduler.kernel_claims import look
from fairlead.scheduler.kernel_cycle import DROP, KEEP, SERVE, plan, plan_beyond, settle
from fairlead.scheduler.kernel_history import fade
from fairlead.scheduler.kernel_keep import drop_holds, keep_nodes
from fairlead.scheduler.kernel_line import pass_over
from fairlead.scheduler.kernel_order import startable
from fairlead.scheduler.kernel_reservations import next_review
from fairlead.scheduler.kernel_room import INDEX, JOB, NODE
from fairlead.scheduler.statuses import WAITING
from fairlead.scheduler.tables import I64, NONE, RESERVATION
from fairlead.scheduler.view import BUCKETS, CLAIM_DUE, ENDED, HOLDS, QUEUES


class Course(Arrays):
    """What is to come, and how far it has.

    row, bucket, submit : of each job, in the order of arrival, its row, its bucket, and when; NONE where it is refused
    after : shape (n, 2): rows of jobs, and of one that comes after each, sorted; `lacks` is how many jobs a row's comes after yet
    at : float64, shape (3,): the moment that has been reached, the next one, and when something happened last
    ends : int64, shape (5, n): room for what ends at one moment
    rows, attempts : int64: room for rows of jobs and numbers of attempts, of what ends or is placed in one step
    log : int64: facts as their kind, what they are about, how many rows and columns, and these; empty where nobody asks for them
    moments, starts : float64: when each of them happened, and when what is reserved is to start
    returned : int64: room for the rows of gangs that wait again
    numbers : int64: see below
    """

    ARRAYS: ClassVar = {
        "row": ("i8", 1), "bucket": ("i8", 1), "submit": ("f8", 1), "at": ("f8", 1), "ends": ("i8", 2), "after": ("i8", 2),
        "lacks": ("i8", 1),
        "rows": ("i8", 1), "attempts": ("i8", 1), "log": ("i8", 1), "moments": ("f8", 1), "starts": ("f8", 1),
        "returned": ("i8", 1), "numbers": ("i8", 1),
    }  # fmt: skip


# Numbers in `numbers`: jobs that have arrived, jobs that may; how many facts and whole numbers are in the log; tasks placed,
# moments that are over; how many of the jobs that ended are forgotten; whether there is more to do at the moment reached; how
# many gangs are in `returned`; whether whoever called serves claims (:mod:`fairlead.scheduler.claims`): else nothing is revoked;
# whether revocable jobs go above their limits into what is idle.
ARRIVED, COMING, FACTS, LOGGED, DECISIONS, STEPS, FORGOTTEN, GOES_ON, RETURNED, SERVES_CLAIMS, GOES_BEYOND = range(11)
NUMBERS = 11

LONGEST = 16
"""Whole numbers in the log for each task or job that something happens to in one step, at most."""

# Why it came back.
OVER, UNTIL, LOG_FULL, MORE_JOBS, GANGS_BACK, CLAIMS = range(6)

# Kinds of facts in the log.
FINISHED, SUBMITTED, PLACED, PASSED_OVER, RESERVED, DROPPED, STARTED, FORGOT = range(8)


@unlocked
def advance(
    v: View,
    truth: Truth,
    runs: Runs,
    course: Course,
    until: float,
    most: int,
    reserve_after: float,
    max_losses: int,
    keep_jobs: int,
) -> int:
    """Go on to the last moment at or before `until`, or to where something else is to be done; says which.

    Each round is a step, as the live scheduler takes them: what ends and arrives, one decision, and what is placed starts.
    """
    numbers = course.numbers
    while True:
        if numbers[ARRIVED] == numbers[COMING] and numbers[COMING] < course.submit.shape[0]:
            return MORE_JOBS
        if course.log.shape[0] > 0 and _is_full(course):
            return LOG_FULL
        now = course.at[0]
        if not numbers[GOES_ON]:
            arrival = course.submit[numbers[ARRIVED]] if numbers[ARRIVED] < course.submit.shape[0] else np.inf
            now = min(arrival, next_end(truth, runs))
            if now == np.inf:
                return OVER
            if numbers[SERVES_CLAIMS]:
                now = min(now, _next_due(v, course.at[0]))
            looks = next_review(v, course.at[0], course.at[2])
            if min(now, looks) > until:
                course.at[1] = min(now, looks)
                return UNTIL
            if now <= looks:
                course.at[2] = now
            now = min(now, looks)
            course.at[0] = now
        if next_end(truth, runs) <= now:
            _end(v, truth, runs, course, now, max_losses)
            if numbers[RETURNED] > 0:
                numbers[GOES_ON] = 1
                return GANGS_BACK
        if not _arrive(v, truth, course, now):
            return MORE_JOBS
        if numbers[SERVES_CLAIMS] and _keeps_for_claims(v):
            return CLAIMS
        numbers[GOES_ON] = _decide(v, truth, runs, course, now, most, reserve_after, keep_jobs)
        if numbers[SERVES_CLAIMS] and not numbers[GOES_ON] and now >= v.times[CLAIM_DUE] and _are_due(v, now):
            return CLAIMS
        numbers[STEPS] += not numbers[GOES_ON]


@compiled
def _keeps_for_claims(v: View) -> bool:
    """Whether room is kept for claims: whether these are any yet is looked at before each decision."""
    for h in range(v.counts[HOLDS]):
        if v.holds.kind[h] != RESERVATION:
            return True
    return False


@compiled
def _next_due(v: View, now: float) -> float:
    """When the first claim is due, as :func:`fairlead.scheduler.claims.next_due` says."""
    if v.times[CLAIM_DUE] <= now:
        _are_due(v, now)
    return float(max(now, v.times[CLAIM_DUE]))


@compiled
def _are_due(v: View, now: float) -> bool:
    """Whether claims are due."""
    length = v.counts[BUCKETS] + 1
    return look(v, now, np.empty((2, length), np.int64), np.empty(length)) > 0


@compiled
def _end(v: View, truth: Truth, runs: Runs, course: Course, now: float, max_losses: int) -> None:
    """What ends at this moment has ended."""
    fade(v, now)
    ends = course.ends
    count = end_into(truth, runs, now, ends)
    rows, touched = course.rows[:count], course.attempts[:count]
    for k in range(count):
        rows[k] = course.row[ends[0, k]]
        ends[0, k] += 1  # the job's number
    finished(v, rows, ends[1, :count], ends[2, :count], ends[3, :count], ends[4, :count], now, max_losses, touched)
    gangs = 0
    for k in range(count):
        if touched[k] != NONE:
            touched[gangs] = touched[k]
            gangs += 1
    if gangs > 0:
        for j in np.sort(touched[:gangs]):  # in the order of their rows, as fairlead.scheduler.state goes through them
            if v.jobs.waiting[j] > 0:
                if v.jobs.gang[j] and v.jobs.holding[j] == 0 and course.numbers[SERVES_CLAIMS]:
                    course.returned[course.numbers[RETURNED]] = j
                    course.numbers[RETURNED] += 1
                else:
                    _wait_again(v, j, now)
            elif v.jobs.holding[j] == 0:
                end_job(v, j, now)
                _let_follow(v, course, j, now)
    _log(course, FINISHED, now, 0, count, 5)
    _log_columns(course, ends, count)


@compiled
def _wait_again(v: View, j: int, at: float) -> None:
    """Tasks of a job that is not plain came back: a gang waits for all of those."""
    jobs = v.jobs
    if (
        jobs.bucket[j] == NONE
        and jobs.home[j] != NONE
        and not jobs.held[j]
        and startable(v, j) > 0
        and not (jobs.gang[j] and jobs.holding[j] > 0)
    ):
        enter_bucket(v, j, jobs.home[j], at)


@compiled
def _let_follow(v: View, course: Course, ended: int, now: float) -> None:
    """A job has ended: those that come after it, and after no other any more, wait from now on."""
    after = course.after
    begin, end = 0, after.shape[0]
    while begin < end:
        k = (begin + end) // 2
        if after[k, 0] < ended:
            begin = k + 1
        else:
            end = k
    while begin < after.shape[0] and after[begin, 0] == ended:
        j = after[begin, 1]
        course.lacks[j] -= 1
        if course.lacks[j] == 0 and not v.jobs.held[j]:
            enter_bucket(v, j, v.jobs.home[j], now)
        begin += 1


@compiled
def _arrive(v: View, truth: Truth, course: Course, now: float) -> bool:
    """What arrives at this moment waits; whether the jobs that arrive are all there."""
    numbers = course.numbers
    while numbers[ARRIVED] < course.submit.shape[0] and course.submit[numbers[ARRIVED]] == now:
        if numbers[ARRIVED] == numbers[COMING]:
            return False
        k = numbers[ARRIVED]
        row = course.row[k]
        if row != NONE:  # else no machine could hold it
            fade(v, now)
            v.jobs.submitted_at[row] = now
            submit(truth, k, v.jobs.tasks[row], now)
            if not v.jobs.held[row]:
                enter_bucket(v, row, course.bucket[k], now)
            _log(course, SUBMITTED, now, k, 0, 0)
        numbers[ARRIVED] += 1
    return True


@compiled
def _decide(
    v: View, truth: Truth, runs: Runs, course: Course, now: float, most: int, reserve_after: float, keep_jobs: int
) -> bool:
    """Decide once, and let it happen; whether there is more to decide at this moment, or something to see: that tasks started."""
    what, count, about, more, start, slips = plan(v, False, most, now, reserve_after)
    if what != SERVE or count > 0:
        fade(v, now)
    if what == KEEP:
        bucket, job = v.jobs.bucket[about], v.jobs.id[about]
        nodes, tasks = v.chosen[NODE, :count], v.chosen[INDEX, :count]
        apart = np.flatnonzero(v.queue_seats.apart[: v.counts[QUEUES]])
        _log_reserved(course, now, job, nodes, tasks, start, slips, apart)
        keep_nodes(v, bucket, about, nodes, tasks, RESERVATION, start, slips, apart, now)
    elif what == DROP:
        _log(course, DROPPED, now, v.holds.job[about], 0, 0)
        drop_holds(v, v.holds.bucket[about], now)
    elif count > 0:
        if about != NONE:
            _pass_over(v, course, now, about)
        _place(v, course, now, count)
        settle(v, more)
    else:
        settle(v, more)
        if course.numbers[GOES_BEYOND] and not more:
            count, more = plan_beyond(v, most, now)
            if count > 0:
                fade(v, now)
                _place(v, course, now, count)
    forget(v, course, now, keep_jobs)
    if what == SERVE and count > 0:
        _start(v, truth, runs, course, now, count)
        return True
    return more


@compiled
def _place(v: View, course: Course, now: float, count: int) -> None:
    """What was planned is placed."""
    _skip_gaps(v, count)
    rows, index, node = v.chosen[JOB, :count], v.chosen[INDEX, :count], v.chosen[NODE, :count]
    attempts, jobs = course.attempts[:count], course.rows[:count]
    for k in range(count):
        attempts[k] = v.tasks.attempt[v.jobs.first[rows[k]] + index[k]] + 1
        jobs[k] = v.jobs.id[rows[k]]
    _log(course, PLACED, now, 0, count, 4)
    _log_attempts(v, course, count)
    _log_columns(course, v.chosen[NODE : NODE + 1], count)
    placed(v, rows, index, attempts, node, now)
    course.numbers[DECISIONS] += count


@compiled
def _pass_over(v: View, course: Course, now: float, about: int) -> None:
    """Others are placed though it is the turn of a job."""
    _log(course, PASSED_OVER, now, v.jobs.id[about], 0, 0)
    pass_over(v, v.jobs.bucket[about], now)


@compiled
def _skip_gaps(v: View, count: int) -> None:
    """Which tasks are placed of jobs whose waiting tasks have gaps between: the first that wait."""
    gaps = False
    for k in range(count):
        gaps |= v.jobs.irregular[v.chosen[JOB, k]]
    if gaps:
        tried = np.zeros(len(v.jobs), np.int64)
        for k in range(count):
            j = v.chosen[JOB, k]
            if v.jobs.irregular[j]:
                while v.tasks.status[v.jobs.first[j] + tried[j]] != WAITING:
                    tried[j] += 1
                v.chosen[INDEX, k] = tried[j]
                tried[j] += 1


@compiled
def _start(v: View, truth: Truth, runs: Runs, course: Course, now: float, count: int) -> None:
    """What was placed starts."""
    index, node = v.chosen[INDEX, :count], v.chosen[NODE, :count]
    attempts, jobs = course.attempts[:count], course.rows[:count]
    _log(course, STARTED, now, 0, count, 3)
    _log_attempts(v, course, count)
    for k in range(count):
        jobs[k] -= 1
    start(truth, runs, jobs, index, attempts, node, now)
    started(v, v.chosen[JOB, :count], index, attempts, now)


@compiled
def forget(v: View, course: Course, now: float, keep_jobs: int) -> None:
    """Nobody asks any more for what ended long ago, as :func:`fairlead.scheduler.decide.decide` says; the tables have it yet."""
    first = course.numbers[FORGOTTEN]
    surplus = v.counts[ENDED] - first - keep_jobs
    if surplus > max(0, keep_jobs // 20):
        fade(v, now)
        _log(course, FORGOT, now, 0, surplus, 1)
        _log_columns(course, v.ended[first : first + surplus].reshape((1, -1)), surplus)
        course.numbers[FORGOTTEN] += surplus


@compiled
def _is_full(course: Course) -> bool:
    """Whether what may happen in one step may not fit into the log."""
    at_once = LONGEST * (course.rows.shape[0] + course.submit.shape[0])
    numbers = course.numbers
    return course.log.shape[0] - numbers[LOGGED] < at_once or course.moments.shape[0] - numbers[FACTS] < at_once // 4


@compiled
def _log(course: Course, kind: int, now: float, about: int, count: int, columns: int) -> None:
    if course.log.shape[0] > 0:
        numbers, at = course.numbers, course.numbers[LOGGED]
        course.log[at], course.log[at + 1], course.log[at + 2], course.log[at + 3] = kind, about, count, columns
        course.moments[numbers[FACTS]] = now
        numbers[FACTS] += 1
        numbers[LOGGED] += 4


@compiled
def _log_columns(course: Course, columns: I64, count: int) -> None:
    if course.log.shape[0] > 0:
        for c in range(columns.shape[0]):
            at = course.numbers[LOGGED]
            course.log[at : at + count] = columns[c, :count]
            course.numbers[LOGGED] += count


@compiled
def _log_reserved(
    course: Course, now: float, job: int, nodes: I64, tasks: I64, start: float, slips: int, apart: I64
) -> None:
    """Room is kept: where, when that is to start, how often it slipped, and without whose tasks; columns are filled with NONE."""
    if course.log.shape[0] > 0:
        length = max(nodes.shape[0], apart.shape[0])
        _log(course, RESERVED, now, job, length, 4)
        course.starts[course.numbers[FACTS] - 1] = start
        for column in (nodes, tasks, np.full(1, slips), apart):
            at = course.numbers[LOGGED]
            course.log[at : at + length] = NONE
            course.log[at : at + column.shape[0]] = column
            course.numbers[LOGGED] += length


@compiled
def _log_attempts(v: View, course: Course, count: int) -> None:
    """Jobs' numbers, indices and attempts of what was just planned."""
    _log_columns(course, course.rows.reshape((1, -1)), count)
    _log_columns(course, v.chosen[INDEX : INDEX + 1], count)
    _log_columns(course, course.attempts.reshape((1, -1)), count)
