"""One scheduling cycle on paper: who is served next, and where, until nobody can be.

A cycle takes room in the tables themselves, so that all it reads is true at once, writes down what it placed, and gives all of it
back at the end: seen from outside nothing has changed. What it learned (which buckets have room nowhere) is true once its
placements have happened, and :func:`settle` keeps it then.

Room only shrinks within a cycle and use only grows, so a bucket that was stopped once stays out of it. Under hdrf
(:mod:`fairlead.policies.tree`) the children that can still be served count as if all had the least of their shares, the others
as they are, and resources that are saturated do not count: when one is, all keys are worked out again, so everybody that waits
is tried in turn. Where the reason of each bucket is asked for, the cycle is **thorough**: all that could not be served are gone
through at its end.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.policies.codes import MESOS
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_holds import next_reservation
from fairlead.scheduler.kernel_keys import turn_of
from fairlead.scheduler.kernel_lending import set_withheld
from fairlead.scheduler.kernel_line import in_line_since
from fairlead.scheduler.kernel_offers import find_offer, offer_found, park_framework, untake_offer, wake_frameworks
from fairlead.scheduler.kernel_order import (
    climb,
    current_job,
    is_started,
    rebuild,
    refresh,
    set_bucket,
    startable,
    tasks_left,
    touch_bucket,
    touch_queue,
    wake_if_shorter,
)
from fairlead.scheduler.kernel_reservations import (
    MOST,
    how_many,
    is_before,
    is_still_due,
    next_to_plan,
    overtaken,
    plan_anew,
    plan_new,
    slips_of,
)
from fairlead.scheduler.kernel_room import (
    FRESH_JOB,
    INDEX,
    JOB,
    find_room,
    has_room,
    is_single,
    take_found,
    untake,
)
from fairlead.scheduler.kernel_search import (
    ANYBODY,
    IN_LINE,
    SERVABLE,
    find_next,
    look_at_fresh,
    nobody_can_be_served,
    remember,
    set_current,
    skip_to_started,
    stop,
    take_out,
)
from fairlead.scheduler.kernel_stops import EXHAUSTED, MAX_JOBS, NO_NODE, NOT_REACHED, over_limits
from fairlead.scheduler.tables import NONE, RESERVATION
from fairlead.scheduler.view import (
    BEYOND,
    BUCKETS,
    CYCLE,
    DIVIDED_SOMEWHERE,
    FRESH,
    HDRF_SOMEWHERE,
    HOLDS,
    LIMITED,
    NOBODY,
    NODES,
    NOW,
    OFFER_WAKE,
    OFFERED,
    OUT,
    QUEUES,
    STOPS,
)

# What a plan comes to: tasks placed (perhaps none), nodes to be kept for a job first, or a reservation to be dropped first.
SERVE, KEEP, DROP = range(3)


@compiled
def plan(
    v: View, thorough: bool, most: int, now: float, reserve_after: float
) -> tuple[int, int, int, bool, float, int]:
    """Decide what is next: what is placed, or what is kept or dropped before anything is.

    Parameters
    ----------
    v : View
        As it was, afterwards, but for the order, which is brought up to date.
    thorough : bool
        Try all that wait, and say of each bucket in its seat why it was not served on (see `stop`).
    most : int
        Tasks placed, at most; a gang may go over it.
    now, reserve_after : float
        Seconds; now is infinite where that is not known, and nobody is taken to end then. A job that was in line and passed over
        for so long gets nodes kept for it.

    Returns
    -------
    what : int
        SERVE, KEEP or DROP.
    count : int
        Of columns in `chosen`: placements, or nodes to keep with how many tasks each.
    job : int
        The row of the job that was passed over, or that nodes are kept for; the hold that is dropped; NONE.
    more : bool
        Whether there is more to decide at once.
    start : float
        From when on nodes are to be kept, seconds.
    slips : int
        How often that was put off.
    """
    v.times[NOW], v.counts[OFFERED] = now, 0
    h = 0
    while not thorough and h < v.counts[HOLDS]:
        if v.holds.kind[h] == RESERVATION and over_limits(v, v.holds.bucket[h]) != NOT_REACHED:
            return DROP, 0, h, True, now, 0
        h = next_reservation(v, h)
    _begin(v, thorough)
    line = NONE
    if not thorough and (reserve_after < np.inf or not nobody_can_be_served(v)):
        line = find_next(v, IN_LINE)
    if not thorough:
        what, count, about, start, slips = _reserve(v, line, now, reserve_after)
        if what != SERVE:
            _give_back(v, 0)  # the search may have noted on paper whom it skipped
            return what, count, about, True, start, slips
    placed, more = _serve(v, thorough, most)
    passed = NONE
    if (
        line != NONE
        and placed + v.counts[OFFERED] > 0
        and np.isnan(v.buckets.passed_since[line])
        and not _was_served(v, line)
        and _is_passed(v, line, placed)
    ):
        passed = v.buckets.head[line]
    served_kept = _give_back(v, placed)
    return SERVE, placed, passed, more or served_kept, now, 0


@compiled
def plan_beyond(v: View, most: int, now: float) -> tuple[int, bool]:
    """Place revocable jobs above their limits, where nobody else can be served; see `plan`.

    Nothing is learned from it but who of them has room nowhere, and that only where nothing is placed.

    Returns
    -------
    count : int
        Of columns in `chosen`.
    more : bool
        Whether there is more to decide at once.
    """
    v.times[NOW], v.counts[BEYOND] = now, 1
    _begin(v, False)
    placed, more = _serve(v, False, most)
    _give_back(v, placed)
    v.counts[BEYOND] = 0
    if placed + v.counts[OFFERED] == 0:
        _park(v)
    return placed, more


@compiled
def _reserve(v: View, line: int, now: float, reserve_after: float) -> tuple[int, int, int, float, int]:
    """Decide whether a reservation is to be made, planned anew or dropped before anybody is served: see `plan`."""
    b = next_to_plan(v, now) if v.counts[HOLDS] > 0 else NONE
    if b != NONE and not has_room(v, b):
        slips = slips_of(v, b, now, reserve_after)
        count, start = plan_anew(v, b, slips, now)
        if count == 0:
            return DROP, 0, _first_hold(v, b), now, 0
        return KEEP, count, current_job(v, b), start, slips
    waits = line != NONE and now - in_line_since(v, line, now) >= reserve_after  # not for NaN
    if waits and not has_room(v, line) and is_still_due(v, line, now):
        h = overtaken(v, line)
        if h != NONE:
            return DROP, 0, h, now, 0
        if how_many(v) < min(MOST, v.counts[NODES]):
            count, start = plan_new(v, line, now)
            if count > 0:
                return KEEP, count, current_job(v, line), start, 0
    return SERVE, 0, NONE, now, 0


@compiled
def _first_hold(v: View, b: int) -> int:
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == b:
            return h
    return NONE


@compiled
def _begin(v: View, thorough: bool) -> None:
    v.counts[CYCLE] += 1
    v.counts[OUT] = v.counts[STOPS] = v.counts[OFFERED] = 0
    if v.times[NOW] >= v.times[OFFER_WAKE]:
        wake_frameworks(v)
    if v.counts[HDRF_SOMEWHERE] or v.counts[DIVIDED_SOMEWHERE]:
        v.counted[:] = True
        if v.counts[HDRF_SOMEWHERE]:
            if v.queues.strict[: v.counts[QUEUES]].any():  # who is first in them is looked up
                rebuild(v)
            _leave_out_saturated(v, NONE)
        rebuild(v)
    else:
        refresh(v)
    look_at_fresh(v)


@compiled
def _serve(v: View, thorough: bool, most: int) -> tuple[int, bool]:
    """Place tasks and make offers until nobody can be served, or `most` are placed, or there is no room for offers more."""
    whom = ANYBODY if v.counts[HDRF_SOMEWHERE] else SERVABLE
    placed = 0
    b = find_next(v, whom)
    while b != NONE and placed < most and (not v.buckets.wants[b] or v.counts[OFFERED] < v.offered_rest.shape[0]):
        why = over_limits(v, b) if whom == ANYBODY else NOT_REACHED
        if why == MAX_JOBS and v.buckets.started[b] > 0 and skip_to_started(v, b):
            b = find_next(v, whom)
            continue
        count = tasks_left(v, b) if v.buckets.gang[b] > 0 else 1
        if why == NOT_REACHED:
            if v.buckets.wants[b]:
                found = whom == SERVABLE or find_offer(v, b)
            elif whom == SERVABLE and is_single(v, b):
                take_found(v, b, placed)
                found = True
            else:
                found = find_room(v, b, count, placed)
            if found and v.buckets.wants[b]:
                offer_found(v, b)
            elif found:
                _place(v, b, count, placed)
                placed += count
            else:
                why = NO_NODE
        if why != NOT_REACHED:
            stop(v, b, why)
            if why == NO_NODE and v.counts[HDRF_SOMEWHERE] and _leave_out_saturated(v, b):
                rebuild(v)
        else:
            if v.buckets.wants[b]:
                remember(v, b)
            elif current_job(v, b) == NONE:
                take_out(v, b, EXHAUSTED)
            elif v.chosen[FRESH_JOB, placed - count] or v.bucket_seats.number[b] != v.jobs.id[current_job(v, b)]:
                wake_if_shorter(v, b)
                set_bucket(v, b)
            climb(v, v.buckets.leaf[b])
        b = find_next(v, whom)
    more = b != NONE
    if thorough and whom != ANYBODY:
        _try_the_rest(v)
    return placed, more


@compiled
def _try_the_rest(v: View) -> None:
    """Go through all that could not be served in the order in which they would be, and write down what stops each."""
    v.counts[STOPS] = 0
    for k in range(v.counts[OUT]):
        b = v.bucket_seats.out_list[k]
        if v.bucket_seats.out[b] and v.bucket_seats.stop[b] == NO_NODE:
            v.bucket_seats.out[b] = v.queue_seats.shut[v.buckets.leaf[b]] = False
            if set_bucket(v, b) or v.queues.strict[v.buckets.leaf[b]]:
                climb(v, v.buckets.leaf[b])
    b = find_next(v, ANYBODY)
    while b != NONE:
        why = over_limits(v, b)
        if why != MAX_JOBS or v.buckets.started[b] == 0 or not skip_to_started(v, b):
            stop(v, b, why if why != NOT_REACHED else NO_NODE)
        b = find_next(v, ANYBODY)


@compiled
def _take_share(v: View, b: int, count: int, jobs: int) -> None:
    """So many tasks of a bucket more, or less, count for its leaf and the queues above it; room is another matter."""
    shape, q, turn = v.buckets.shape_row[b], v.buckets.leaf[b], v.queue_seats.turn[0] + 1
    while q != NONE:
        if count <= 0:
            v.queue_seats.turn[q] = turn_of(v, q)
        elif q != 0 and v.queues.policy[v.queues.parent[q]] == MESOS:
            v.queue_seats.turn[q] += count
        else:
            v.queue_seats.turn[q] = turn
        for r in range(v.total.shape[0]):
            v.used[q, r] += count * v.demand[shape, r]
            if v.buckets.revocable[b]:
                v.spare[q, r] += count * v.demand[shape, r]
        v.queues.tasks[q] += count
        v.queues.jobs[q] += jobs
        q = v.queues.parent[q]
    if v.queues.lends[0]:
        set_withheld(v, v.buckets.leaf[b])


@compiled
def _place(v: View, b: int, count: int, placed: int) -> None:
    """Write down what was placed; the nodes are written down, and their room is taken, already."""
    job, left, new = current_job(v, b), tasks_left(v, b), not is_started(v, b)
    first = v.jobs.next[job] + startable(v, job) - left
    for k in range(count):
        v.chosen[JOB, placed + k], v.chosen[INDEX, placed + k], v.chosen[FRESH_JOB, placed + k] = job, first + k, 0
    v.chosen[FRESH_JOB, placed] = int(new)
    _take_share(v, b, count, int(new))
    remember(v, b)
    v.bucket_seats.taken[b] += count
    v.bucket_seats.begun[b] += int(new)
    if left == count:
        set_current(v, b, v.jobs.after[job])
    else:
        set_current(v, b, job)
        v.bucket_seats.left[b] = left - count


@compiled
def _is_passed(v: View, line: int, placed: int) -> bool:
    """Whether others were served than queues that go before all the same, which have reservations, and so no place in line."""
    leaf = v.buckets.leaf[line]
    for k in range(placed):
        job = v.chosen[JOB, k]
        q = v.jobs.queue[job]
        if q == leaf or not v.queue_seats.keeping[q] or not is_before(v, q, v.jobs.shape_row[job], line):
            return True
    return bool(v.counts[OFFERED] > 0)


@compiled
def _was_served(v: View, b: int) -> bool:
    """Whether a bucket has less waiting than when the cycle began."""
    job = current_job(v, b)
    return job != v.buckets.head[b] or tasks_left(v, b) < startable(v, job)


@compiled
def _give_back(v: View, placed: int) -> bool:
    """Undo what the cycle took; whether it served one that nodes are kept for, so that there may be more to decide at once."""
    served_kept, seats = False, v.bucket_seats
    for k in range(v.counts[OFFERED]):
        untake_offer(v, k)
    for k in range(placed):
        job = v.chosen[JOB, k]
        untake(v, v.jobs.queue[job], v.jobs.shape_row[job], k)
    for k in range(v.counts[OUT]):
        b = seats.out_list[k]
        if seats.taken[b] > 0:
            _take_share(v, b, -seats.taken[b], -seats.begun[b])
            touch_queue(v, v.buckets.leaf[b])
            served_kept |= seats.keeping[b]
            seats.taken[b] = seats.begun[b] = 0
        seats.out[b] = seats.listed[b] = False
        if v.queue_seats.shut[v.buckets.leaf[b]]:
            v.queue_seats.shut[v.buckets.leaf[b]] = False
            touch_queue(v, v.buckets.leaf[b])
        touch_bucket(v, b)
    v.counts[CYCLE] += 1  # what was next in it is so no more
    return served_kept


@compiled
def settle(v: View, more: bool) -> None:
    """Keep what the last cycle learned, now that what it placed has happened: who has room on no node."""
    _park(v)
    if more:
        return
    for k in range(v.counts[FRESH]):
        v.node_seats.is_fresh[v.node_seats.fresh[k]] = False
    v.counts[FRESH] = 0
    left = 0
    for k in range(v.counts[LIMITED]):
        q = v.queue_seats.limited_list[k]
        v.queue_seats.unsure[q] = v.queue_seats.limited[q] == v.counts[CYCLE] - 1
        touch_queue(v, q)
        if v.queue_seats.unsure[q]:
            v.queue_seats.limited_list[left] = q
            left += 1
        else:
            v.queue_seats.limited[q] = NONE
    v.counts[LIMITED] = left


@compiled
def _park(v: View) -> None:
    """Note of the buckets that the last cycle stopped for want of room that they have none."""
    seats = v.bucket_seats
    for k in range(v.counts[OUT]):
        b = v.bucket_seats.out_list[k]
        if seats.stop_cycle[b] == v.counts[CYCLE] - 1 and seats.stop[b] == NO_NODE and v.buckets.wants[b]:
            park_framework(v, b)
        elif seats.stop_cycle[b] == v.counts[CYCLE] - 1 and seats.stop[b] == NO_NODE:
            seats.parked[b] = True
            touch_bucket(v, b)
    v.counts[OUT] = 0


@compiled
def _is_out(v: View, b: int) -> bool:
    """Whether a bucket is not served any more in this cycle."""
    leaf = v.buckets.leaf[b]
    if v.queues.strict[leaf]:
        return bool(v.queue_seats.shut[leaf] or v.best[v.queue_seats.base[leaf] + 1] != b)
    return bool(v.bucket_seats.out[b])


@compiled
def _leave_out_saturated(v: View, stopped: int) -> bool:
    """Count no resource of which no node has what anybody needs who can still be served; whether that is news.

    `stopped` is a bucket that was just found to have no room, or NONE.
    """
    news = False
    for r in range(v.total.shape[0]):
        if v.counted[r]:
            most = np.int64(0)
            for n in range(v.counts[NODES]):
                if v.nodes.up[n] and not v.nodes.draining[n]:
                    most = max(most, v.free[n, r] - v.held[n, r])
            least = np.int64(NOBODY)
            for b in range(v.counts[BUCKETS]):
                need = v.demand[v.buckets.shape_row[b], r]
                if need > 0 and not _is_out(v, b) and current_job(v, b) != NONE:
                    least = min(least, need)
            if least == NOBODY and stopped != NONE and v.demand[v.buckets.shape_row[stopped], r] > 0:
                least = v.demand[v.buckets.shape_row[stopped], r]
            if most == 0 or (least < NOBODY and most < least):
                v.counted[r] = False
                news = True
    return news
