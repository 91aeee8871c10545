"""Reservations: for whom room is kept, where, and from when on.

A reservation is all holds of one bucket: for its next task, or whole gang. Its start is the earliest moment at which the
forecasts have all of it fit, over all nodes together, beside the reservations of lower rank, which were made before it. To find
that, the ends that are expected of what runs are gone through in their order (:func:`plan_start`). On each node only what is
needed at the start is kept, there where room is soonest. See :mod:`fairlead.scheduler.kernel_holds` for what that excludes.

It is planned anew when it has slipped (its start is over and it did not fit), when one before it took what it counted on, and,
now and then, when tasks ended that it did not expect, or did not end that it did.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.policies.codes import DIVIDED, FIFO, HDRF, PRIORITY
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_forecasts import duration, set_tails
from fairlead.scheduler.kernel_holds import FIXED, counts_on, next_reservation
from fairlead.scheduler.kernel_keys import (
    below_on_path,
    compares_as_yarn,
    exact_below,
    queue_goes_before,
    set_key,
    set_level,
)
from fairlead.scheduler.kernel_line import is_in_line
from fairlead.scheduler.kernel_nodes import could_hold
from fairlead.scheduler.kernel_order import current_job, is_leaf, tasks_left
from fairlead.scheduler.kernel_room import INDEX, NODE
from fairlead.scheduler.statuses import PLACED, RUNNING
from fairlead.scheduler.tables import BINS, BROKEN, CHANGED, F64, I64, NONE, RESERVATION
from fairlead.scheduler.view import HOLDS, NOBODY, NODES, QUEUES

MOST = 16
"""Reservations at once."""
SOON = 1.0
"""Seconds in which no task that runs is expected to have ended; and between two plans for one reservation, at least."""
PATIENCE = 0.5
"""A plan that may be improved is made anew when this part of the time that it foresaw is over."""
SELDOM = 0.1
"""Plans are looked at again, where nothing happens, when this part of the time is over since something did."""

_ODDS = 0.5
"""Of all on a node having ended by when each is expected to: a plan that needs the whole of it comes true as often as not."""


@compiled
def next_to_plan(v: View, now: float) -> int:
    """The first reservation by rank that is to be planned anew: its bucket, NONE."""
    found, least = NONE, 0
    for h in range(v.counts[HOLDS]):
        if (found == NONE or v.holds.rank[h] < least) and _is_stale(v, h, now):
            found, least = v.holds.bucket[h], v.holds.rank[h]
    return int(found)


@compiled
def _is_stale(v: View, h: int, now: float) -> bool:
    """Whether a reservation is to be planned anew, as far as one of its holds can tell."""
    holds = v.holds
    if holds.kind[h] != RESERVATION:
        return False
    if holds.change[h] == BROKEN:
        return True
    if now > holds.start[h]:
        return bool(now >= holds.planned[h] + SOON)
    patience = max(SOON, PATIENCE * (holds.start[h] - holds.planned[h]))
    return bool((holds.change[h] == CHANGED or now > holds.review[h]) and now >= holds.planned[h] + patience)


@compiled
def next_review(v: View, now: float, happened: float) -> float:
    """When reservations are looked at again for being planned anew, if nothing happens until then; infinite: not only for that.

    That is in a second at the soonest, as with a scheduler that runs (`IDLE` of :mod:`fairlead.service.loop`), and the more
    seldom the longer ago it is that something happened: an end may be far away.
    """
    holds, first = v.holds, np.inf
    for h in range(v.counts[HOLDS]):
        if holds.kind[h] == RESERVATION:
            planned, start = holds.planned[h], holds.start[h]
            at = max(np.nextafter(start, np.inf), planned + SOON)
            early = planned + max(SOON, PATIENCE * (start - planned))
            if holds.change[h] != CHANGED:
                early = max(np.nextafter(holds.review[h], np.inf), early)
            at = min(at, early)
            if now < at < first:
                first = at
    return float(max(first, now + max(SOON, SELDOM * (now - happened))))


@compiled
def slips_of(v: View, b: int, now: float, reserve_after: float) -> int:
    """How often the start of a bucket's reservation has passed in vain, with this time; once in `reserve_after` counts."""
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == b:
            late = now > v.holds.start[h] and now - v.holds.since[h] >= reserve_after
            return int(v.holds.slips[h]) + int(late)
    return 0


@compiled
def plan_anew(v: View, b: int, slips: int, now: float) -> tuple[int, float]:
    """Plan a bucket's reservation anew, on its own nodes where these are fixed; see `_plan`."""
    rank, place, most = 0, NONE, np.zeros(v.counts[NODES], np.int64)
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == b:
            rank, place = v.holds.rank[h], v.holds.place[h]
            most[v.holds.node[h]] = v.holds.tasks[h]
    own = place != NONE and bool((v.queues.apart[v.buckets.leaf[b]] >> place) & 1)
    if slips >= FIXED:
        count, start = _plan(v, b, rank, most, own, now)
        if count > 0:
            return count, start
    most[:] = tasks_left(v, b)
    return _plan(v, b, rank, most, own, now)


@compiled
def plan_new(v: View, b: int, now: float) -> tuple[int, float]:
    """Plan a reservation for a bucket that has none; see `_plan`.

    If its leaf was just served, and is the first in line all the same, and short, it is to have more than it has. Where only its
    own tasks could bring it that, nothing is planned until others pass it again.
    """
    own = _is_short(v, v.buckets.leaf[b], now)
    count, start = _plan(v, b, next_rank(v), np.full(v.counts[NODES], tasks_left(v, b)), own, now)
    if own and not v.queue_seats.apart[v.buckets.leaf[b]] and np.isnan(v.buckets.passed_since[b]):
        return 0, now
    return count, start


@compiled
def _plan(v: View, b: int, rank: int, most: I64, own: bool, now: float) -> tuple[int, float]:
    """Plan a start (see `plan_start`), and say in the seats of the queues of which leaves it counts on no task.

    What a task gives back of a leaf that is to have more than it has is taken by others of the leaf at once. So it is with those
    that were in line when they were served and are short, with those that have a gang more and go before this one when that which
    runs is over, and with those for whom there is a reservation and who will still be before this one when they have what is kept
    for them; and with its own leaf, where that is said. Only a plan that comes to nothing without them counts on them.
    """
    apart, mine, some = v.queue_seats.apart, v.buckets.leaf[b], own
    for q in range(v.counts[QUEUES]):
        apart[q] = own if q == mine else _is_short(v, q, now) or _comes_back(v, q, b)
        some |= apart[q]
    h = 0
    while h < v.counts[HOLDS]:
        leaf = v.buckets.leaf[v.holds.bucket[h]]
        if v.holds.kind[h] == RESERVATION and leaf != mine and not apart[leaf]:
            apart[leaf] = not counts_on(v, h, leaf) or _stays_before(v, h, b)
            some |= apart[leaf]
        h = next_reservation(v, h)
    count, start = plan_start(v, b, rank, most, now)
    if some and count == 0:
        apart[: v.counts[QUEUES]] = False
        return plan_start(v, b, rank, most, now)
    _leave_those_there(v, mine, count)
    return count, start


@compiled
def is_still_due(v: View, b: int, now: float) -> bool:
    """Whether a bucket that is first in line was passed over, and not only its leaf, which was served; or that is short."""
    return bool(not np.isnan(v.buckets.passed_since[b]) or _is_short(v, v.buckets.leaf[b], now))


@compiled
def _is_short(v: View, leaf: int, now: float) -> bool:
    """Whether a leaf was in line a short while ago, and served, and with its next task or gang would still go before another."""
    b = v.best[v.queue_seats.base[leaf] + 1] if is_leaf(v, leaf) and is_in_line(v, leaf, now) else NONE
    if b == NONE:
        return False
    x, shape, count = leaf, v.buckets.shape_row[b], _tasks_next(v, b)
    while x > 0:
        if not _is_by_jobs(v, x):
            _use_more(v, x, shape, count)
            short = _goes_before_another(v, x, _below(v, x, b), shape)
            _use_more(v, x, shape, -count)
            if short:
                return True
        x = v.queues.parent[x]
    return False


@compiled
def _use_more(v: View, x: int, shape: int, count: int) -> None:
    """Work out the keys of a queue as if it used so many tasks of a shape more."""
    for r in range(v.total.shape[0]):
        v.used[x, r] += count * v.demand[shape, r]
        v.counts_as[x, r] += count * v.demand[shape, r]
    _set_keys(v, x)


@compiled
def _goes_before_another(v: View, x: int, x_below: int, shape: int) -> bool:
    """Whether a queue goes before any sibling that runs something, its own keys having been worked out for this."""
    for y in range(1, v.counts[QUEUES]):
        if v.queues.parent[y] == v.queues.parent[x] and y != x and v.queues.tasks[y] > 0:
            if v.best[v.queue_seats.base[y] + 1] == NONE:  # else they are kept
                _set_keys(v, y)
            if _is_before(v, x, x_below, y, exact_below(v, y, shape, 1)):
                return True
    return False


@compiled
def _comes_back(v: View, leaf: int, b: int) -> bool:
    """Whether a leaf that runs something has a gang waiting, and goes before a bucket when as much as that has ended."""
    best = v.best[v.queue_seats.base[leaf] + 1] if is_leaf(v, leaf) and v.queues.tasks[leaf] > 0 else NONE
    if best == NONE or v.buckets.gang[best] == 0:
        return False
    x, y = _siblings(v, leaf, v.buckets.leaf[b])
    if _is_by_jobs(v, x):
        return False
    less = _next_in_all(v, best)
    for r in range(v.total.shape[0]):
        less[r] = -min(less[r], v.used[leaf, r])
    return _goes_before_with(v, leaf, v.buckets.shape_row[best], less, b, y, _nothing(v))


@compiled
def _leave_those_there(v: View, mine: int, count: int) -> None:
    """Of the leaves that stand apart, leave a plan's own, and those that run something on the nodes that were chosen."""
    apart = v.queue_seats.apart
    there = np.zeros(v.counts[QUEUES], np.bool_)
    there[mine] = True
    for k in range(count):
        t = v.nodes.task[v.chosen[NODE, k]]
        while t != NONE:
            there[v.jobs.queue[v.tasks.job[t]]] = True
            t = v.tasks.after[t]
    for q in range(v.counts[QUEUES]):
        apart[q] &= there[q]


@compiled
def next_rank(v: View) -> int:
    """A rank higher than all."""
    rank = 0
    for h in range(v.counts[HOLDS]):
        rank = max(rank, v.holds.rank[h] + 1)
    return rank


@compiled
def first_rank(v: View) -> int:
    """A rank lower than all."""
    rank = 0
    for h in range(v.counts[HOLDS]):
        rank = min(rank, v.holds.rank[h] - 1)
    return rank


@compiled
def how_many(v: View) -> int:
    """How many reservations there are."""
    count, h = 0, 0
    while h < v.counts[HOLDS]:
        count += v.holds.kind[h] == RESERVATION
        h = next_reservation(v, h)
    return count


@compiled
def plan_start(v: View, b: int, rank: int, most: I64, now: float) -> tuple[int, float]:
    """Find the earliest start of a bucket's next task, or whole gang, beside all reservations of lower rank.

    Parameters
    ----------
    v : View
    b : int
    rank : int
    most : int64, shape (nodes,)
        Tasks for which room may be kept on each node, at most; those that take none are left out here.
    now : float

    Tasks of leaves that stand apart in the seats of the queues are not counted on.

    Returns
    -------
    count : int
        Of columns in `chosen`: NODE, rising, and INDEX for how many tasks each. 0 where it never fits.
    start : float
        Seconds, as in the facts; `now` where it fits at once.
    """
    shape = v.buckets.shape_row[b]
    wanted = _tasks_next(v, b)
    for n in range(v.counts[NODES]):
        most[n] = min(most[n], could_hold(v, n, shape))
    times, nodes, tasks = _events(v, most, rank, now)
    back, fits = np.zeros(v.free.shape, np.int64), np.zeros(v.counts[NODES], np.int64)
    total, start, left = 0, now, len(times)
    for n in range(v.counts[NODES]):
        if most[n] > 0:
            fits[n] = min(most[n], _fits_at(v, n, shape, rank, back, now))
            total += fits[n]
    at_once = fits.copy()
    while total < wanted and left > 0:
        start, before = times[0], left
        while left > 0 and times[0] == start:
            left -= 1
            _put_behind(times, nodes, tasks, left)
            _give_back(v, tasks[left], back[nodes[left]])
        for n in nodes[left:before]:
            total -= fits[n]
            fits[n] = min(most[n], _fits_at(v, n, shape, rank, back, start))
            total += fits[n]
    if total < wanted:
        return 0, np.inf
    _choose(v, shape, rank, most, wanted, times[left:], nodes[left:], tasks[left:], at_once, fits)
    count = 0
    for n in range(v.counts[NODES]):
        if at_once[n] > 0:
            v.chosen[NODE, count], v.chosen[INDEX, count] = n, at_once[n]
            count += 1
    return count, start


@compiled
def _give_back(v: View, t: int, back: I64) -> None:
    """A task, if it is one, gives back what it has."""
    if t != NONE:
        for r in range(v.total.shape[0]):
            back[r] += v.demand[v.jobs.shape_row[v.tasks.job[t]], r]


@compiled
def _choose(
    v: View, shape: int, rank: int, most: I64, wanted: int, times: F64, nodes: I64, tasks: I64, taken: I64, fits: I64
) -> None:
    """Set `taken`, at first what fits on each node at once, to what is to be kept there: where room is soonest of what `fits`.

    What changes until all of it fits comes as :func:`_put_behind` leaves it: the first is the last.
    """
    back, left = np.zeros(v.free.shape, np.int64), wanted
    for n in range(v.counts[NODES]):
        taken[n] = min(taken[n], fits[n], left)
        left -= taken[n]
    for k in range(len(times) - 1, -1, -1):
        n = nodes[k]
        _give_back(v, tasks[k], back[n])
        if left > 0:
            more = min(fits[n], most[n], _fits_at(v, n, shape, rank, back, times[k])) - taken[n]
            if more > 0:
                taken[n] += min(more, left)
                left -= min(more, left)


@compiled
def _fits_at(v: View, n: int, shape: int, rank: int, back: I64, at: float) -> int:
    """How many tasks of a shape fit on a node from a time on, `back` having been given back, beside lower ranks."""
    most = NOBODY
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > 0:
            room, h = v.free[n, r] + back[n, r] - _taken_at(v, n, r, rank, at), v.nodes.hold[n]
            while h != NONE:
                if v.holds.rank[h] < rank and v.holds.start[h] > at:
                    room = min(room, v.free[n, r] + v.back[h, r] - _taken_at(v, n, r, rank, v.holds.start[h]))
                h = v.holds.after[h]
            most = min(most, room // v.demand[shape, r])
    return max(0, int(most))


@compiled
def _taken_at(v: View, n: int, r: int, rank: int, at: float) -> int:
    """What reservations of lower rank take of a node at a time."""
    taken, h = 0, v.nodes.hold[n]
    while h != NONE:
        if v.holds.rank[h] < rank and v.holds.start[h] <= at < v.holds.end[h]:
            taken += v.amount[h, r]
        h = v.holds.after[h]
    return int(taken)


@compiled
def _events(v: View, most: I64, rank: int, now: float) -> tuple[F64, I64, I64]:
    """When what is taken of the nodes that come into question changes, as a heap; tasks of leaves that stand apart go on.

    Returns the times, nodes, and tasks that will have ended then; NONE where a reservation of lower rank starts or ends, of which
    `_taken_at` says what it takes.
    """
    length = v.queues.tasks[0] + 2 * v.counts[HOLDS]
    times, nodes, tasks = np.empty(length), np.empty(length, np.int64), np.empty(length, np.int64)
    k, tails = 0, np.empty((3, BINS + 1))
    for n in range(v.counts[NODES]):
        if most[n] == 0:
            continue
        h = v.nodes.hold[n]
        while h != NONE:
            if v.holds.rank[h] < rank:
                for at in (v.holds.start[h], v.holds.end[h]):
                    if now < at < np.inf:
                        times[k], nodes[k], tasks[k] = at, n, NONE
                        k += 1
            h = v.holds.after[h]
        t, part = v.nodes.task[n], part_left(v, n)
        while t != NONE:
            apart = v.queue_seats.apart[v.jobs.queue[v.tasks.job[t]]]
            at = np.inf if apart else expected_end(v, t, now, part, tails)
            if at < np.inf:
                times[k], nodes[k], tasks[k] = at, n, t
                k += 1
            t = v.tasks.after[t]
    for place in range(k // 2 - 1, -1, -1):
        _sink(times, nodes, tasks, place, k)
    return times[:k], nodes[:k], tasks[:k]


@compiled
def _put_behind(times: F64, nodes: I64, tasks: I64, last: int) -> None:
    """Take the first out of a heap of events and put it behind the others, at the place that was the last of it."""
    _exchange(times, nodes, tasks, 0, last)
    _sink(times, nodes, tasks, 0, last)


@compiled
def _sink(times: F64, nodes: I64, tasks: I64, place: int, size: int) -> None:
    """Move what is at a place of a heap of events, so many of them, down to where it belongs."""
    while 2 * place + 1 < size:
        down = 2 * place + 1
        if down + 1 < size and _comes_before(times, nodes, tasks, down + 1, down):
            down += 1
        if not _comes_before(times, nodes, tasks, down, place):
            return
        _exchange(times, nodes, tasks, down, place)
        place = down


@compiled
def _comes_before(times: F64, nodes: I64, tasks: I64, a: int, b: int) -> bool:
    """By time; at one moment by the tasks' rows, however nodes have them in their lists."""
    if times[a] != times[b]:
        return bool(times[a] < times[b])
    if tasks[a] != tasks[b]:
        return bool(tasks[a] < tasks[b])
    return bool(nodes[a] < nodes[b])


@compiled
def _exchange(times: F64, nodes: I64, tasks: I64, a: int, b: int) -> None:
    times[a], times[b] = times[b], times[a]
    nodes[a], nodes[b] = nodes[b], nodes[a]
    tasks[a], tasks[b] = tasks[b], tasks[a]


@compiled
def part_left(v: View, n: int) -> float:
    """The chance of each task on a node to last longer than is expected of it, so that by even odds none of them does."""
    count, t = 0, v.nodes.task[n]
    while t != NONE:
        count += 1
        t = v.tasks.after[t]
    return float(1.0 - _ODDS ** (1.0 / max(1, count)))


@compiled
def expected_end(v: View, t: int, now: float, part: float, tails: F64) -> float:
    """When only a part of those like a task will not have ended; as was said before while that is not over.

    `tails`, shape (3, BINS + 1), is room to work in.
    """
    tasks = v.tasks
    if now < tasks.until[t] < np.inf:
        return float(tasks.until[t])
    if tasks.status[t] != PLACED and tasks.status[t] != RUNNING:  # it was told to stop
        return now + SOON
    j = tasks.job[t]
    age = max(0.0, now - tasks.started_at[t]) if tasks.status[t] == RUNNING else 0.0
    longest = set_tails(v, j, tails)
    lasts = max(age, min(v.jobs.time_limit[j], duration(tails, longest, age, part, np.inf)))
    return now + max(SOON, lasts - age)


@compiled
def overtaken(v: View, line: int) -> int:
    """A hold of one whose queue is due no longer, for that of the bucket `line`, which is due, goes before it; NONE.

    It must go before even when it has what it waits for, and without what the other is charged for its reservation, so that they
    do not take turns in dropping each other's.
    """
    h = 0
    while h < v.counts[HOLDS]:
        if v.holds.kind[h] == RESERVATION and _goes_before(v, line, h):
            return h
        h = next_reservation(v, h)
    return NONE


@compiled
def _goes_before(v: View, b: int, first: int) -> bool:
    """Whether a bucket's queue clearly goes before that for which there is the reservation whose first hold this is."""
    other, leaf = v.holds.bucket[first], v.buckets.leaf[b]
    x, y = _siblings(v, leaf, v.buckets.leaf[other])
    if _is_by_jobs(v, x):
        if v.queues.policy[v.queues.parent[x]] == PRIORITY and v.buckets.priority[b] != v.buckets.priority[other]:
            return bool(v.buckets.priority[b] > v.buckets.priority[other])
        return bool(v.jobs.id[current_job(v, b)] < v.jobs.id[current_job(v, other)])
    # Both wait, so their keys are kept; and who has more never goes before sooner, but where YARN goes by another resource then.
    if not compares_as_yarn(v, x) and not _is_before(v, x, _below(v, x, b), y, _below(v, y, other)):
        return False
    _, promised = _kept_in_all(v, first)
    return _goes_before_with(v, leaf, v.buckets.shape_row[b], _next_in_all(v, b), other, y, promised)


@compiled
def _next_in_all(v: View, b: int) -> I64:
    """What a bucket needs for its next task, or whole gang."""
    count, shape = _tasks_next(v, b), v.buckets.shape_row[b]
    more = np.zeros(v.total.shape[0], np.int64)
    for r in range(v.total.shape[0]):
        more[r] = count * v.demand[shape, r]
    return more


@compiled
def _tasks_next(v: View, b: int) -> int:
    """How many tasks of a bucket start next: one, or a whole gang."""
    return tasks_left(v, b) if v.buckets.gang[b] > 0 else 1


@compiled
def _nothing(v: View) -> I64:
    """Of all resources."""
    return np.zeros(v.total.shape[0], np.int64)


@compiled
def _stays_before(v: View, first: int, b: int) -> bool:
    """Whether the queue of a reservation (this is its first hold) goes before a bucket's even when it has what is kept for it."""
    other = v.holds.bucket[first]
    leaf = v.buckets.leaf[other]
    x, _ = _siblings(v, leaf, v.buckets.leaf[b])
    if _is_by_jobs(v, x) or not _more_waits(v, first):
        return False
    amount, promised = _kept_in_all(v, first)
    return _goes_before_with(v, leaf, v.buckets.shape_row[other], amount, b, x, promised)


@compiled
def _more_waits(v: View, first: int) -> bool:
    """Whether the leaf of a reservation has more waiting than what is kept."""
    b, kept = v.holds.bucket[first], 0
    for h in range(first, next_reservation(v, first)):
        kept += v.holds.tasks[h]
    if v.jobs.after[v.buckets.head[b]] != NONE or (v.buckets.gang[b] == 0 and tasks_left(v, b) > kept):
        return True
    base, slots = v.queue_seats.base[v.buckets.leaf[b]], v.queue_seats.slots[v.buckets.leaf[b]]
    for place in range(base + slots, base + 2 * slots):
        if v.best[place] != NONE and v.best[place] != b:
            return True
    return False


@compiled
def _kept_in_all(v: View, first: int) -> tuple[I64, I64]:
    """What a reservation keeps on all nodes, and how much of it lies free now."""
    amount, promised = np.zeros(v.total.shape[0], np.int64), np.zeros(v.total.shape[0], np.int64)
    for h in range(first, next_reservation(v, first)):
        for r in range(v.total.shape[0]):
            amount[r] += v.amount[h, r]
            promised[r] += v.idle[h, r]
    return amount, promised


@compiled
def is_before(v: View, one: int, shape: int, b: int) -> bool:
    """Whether a leaf with a task of a shape goes before a bucket by what their queues have, where that says it."""
    x, y = _siblings(v, one, v.buckets.leaf[b])
    return not _is_by_jobs(v, x) and _goes_before_with(v, one, shape, _nothing(v), b, y, _nothing(v))


@compiled
def _is_by_jobs(v: View, x: int) -> bool:
    """Whether a queue and its siblings are gone through by their jobs, whatever they have."""
    policy = v.queues.policy[v.queues.parent[x]]
    return bool(policy == FIFO or policy == PRIORITY)


@compiled
def _goes_before_with(v: View, one: int, shape: int, more: I64, b: int, z: int, promised: I64) -> bool:
    """Whether a leaf with a task of a shape goes before a bucket, if it had `more`, and `z` of the two were promised less."""
    x, y = _siblings(v, one, v.buckets.leaf[b])
    _suppose(v, x, more, z, promised)
    _set_keys(v, y)
    before = _is_before(v, x, below_on_path(v, x, one, shape), y, _below(v, y, b))
    _suppose(v, x, -more, z, -promised)
    return before


@compiled
def _below(v: View, x: int, b: int) -> int:
    """0 where a queue goes before its siblings with the next task of a bucket in it, for it is below its guarantee; else 1."""
    return below_on_path(v, x, v.buckets.leaf[b], v.buckets.shape_row[b])


@compiled
def _is_before(v: View, x: int, x_below: int, y: int, y_below: int) -> bool:
    """Whether one of two siblings goes before the other, their keys having been worked out for this.

    Where nothing waits they are not kept; nor may `below` in the seats be asked, which says what any task that waits may do.
    """
    seat = v.queue_seats
    return bool(
        queue_goes_before(v, x, x_below, seat.first[x], seat.level[x], y, y_below, seat.first[y], seat.level[y])
    )


@compiled
def _siblings(v: View, one: int, other: int) -> tuple[int, int]:
    """The queues on the paths from two leaves to the root that have the same parent."""
    x = one
    while True:
        y = other
        while y > 0 and v.queues.parent[y] != v.queues.parent[x]:
            y = v.queues.parent[y]
        if y > 0:
            return int(x), int(y)
        x = v.queues.parent[x]


@compiled
def _suppose(v: View, x: int, more: I64, y: int, promised: I64) -> None:
    """Work out the keys of two siblings as if one used more, and the other were promised less."""
    for r in range(v.total.shape[0]):
        v.used[x, r] += more[r]
        v.counts_as[x, r] += more[r]
        v.promised[y, r] -= promised[r]
    _set_keys(v, x)
    _set_keys(v, y)


@compiled
def _set_keys(v: View, q: int) -> None:
    """Work out the keys of a queue among its siblings."""
    set_key(v, q)
    policy = v.queues.policy[v.queues.parent[q]]
    if policy == HDRF or policy == DIVIDED:
        set_level(v, q, is_leaf(v, q))
