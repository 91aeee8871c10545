"""Who is next: the best of all that wait, found from the root of the queue tree down.

Which bucket a queue would serve depends on what can be served, so a queue's key is known for certain only when its bucket is
found: the trees keep the smallest that it can be, and a search goes on until nothing that is left could come before what it has.
Mostly that is one path down.

A queue that is below its guarantee of something goes first with whoever needs that, and offers those before all others, whoever
of them would be next without: what it is guaranteed is not for a sibling because somebody else in it comes first, and cannot use
it. So whoever has a claim for a guarantee is served before all whom others would be revoked of for it, by the same order and out
of the same bucket; and nobody is placed who would be revoked for that claim again.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.policies.codes import FIFO, PRIORITY
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_keys import (
    below_on_path,
    bucket_goes_before,
    exact_below,
    may_go_first,
    queue_goes_before,
)
from fairlead.scheduler.kernel_nodes import holds_task
from fairlead.scheduler.kernel_order import climb, current_job, is_leaf, is_started, set_bucket, startable, tasks_left
from fairlead.scheduler.kernel_room import has_room, may_enter, may_use_hold
from fairlead.scheduler.kernel_stops import EXHAUSTED, MAX_JOBS, NO_NODE, NOT_REACHED, over_limits
from fairlead.scheduler.tables import NONE, UNLIMITED
from fairlead.scheduler.view import (
    BEYOND,
    CYCLE,
    FRESH,
    HOLDS,
    JOBS_NEEDED,
    LAST_START,
    LIMITED,
    NOW,
    OUT,
    SHORTEST,
    STOPS,
)

ANYBODY, IN_LINE, SERVABLE = range(3)
"""Whom a search is for: all that wait; those within limits who are in line for room (none is kept for their queue, and nodes
could hold them); those who can be served, as far as can be told before it is tried."""

FEW = 128
"""So many nodes with fresh room are looked at one by one; of more, only the most that any has of each resource."""


@compiled
def look_at_fresh(v: View) -> None:
    """Work out the most that any fresh node has, where there are more than a few, and what lies free on those with holds.

    To be called when a cycle begins.
    """
    v.most[:] = 0
    if v.counts[FRESH] > FEW:
        for k in range(v.counts[FRESH]):
            n = v.node_seats.fresh[k]
            for r in range(v.total.shape[0]):
                v.most[r] = max(v.most[r], v.free[n, r] - v.held[n, r])
    v.most_kept[:] = 0
    v.times[LAST_START] = -np.inf
    for k in range(v.counts[FRESH] if v.counts[HOLDS] > 0 else 0):
        n = v.node_seats.fresh[k]
        h = v.nodes.hold[n]
        for r in range(v.total.shape[0] if h != NONE else 0):
            v.most_kept[r] = max(v.most_kept[r], v.free[n, r])
        while h != NONE:
            v.times[LAST_START] = max(v.times[LAST_START], v.holds.start[h])
            h = v.holds.after[h]


@compiled
def nobody_can_be_served(v: View) -> bool:
    """Whether it is plain that nobody has room: all that wait are parked, and none came back."""
    return not v.able[v.queue_seats.base[0] + 1] and v.counts[FRESH] == 0 and not v.queue_seats.unsure[0]


@compiled
def find_next(v: View, whom: int) -> int:
    """Find the bucket that is next; NONE where there is none.

    Every queue on the way has a frame: the part of its tree that is still to be looked at, on the stack from its `bottom` on, and
    the best that was found. When nothing is left to look at, the best is what that queue has to offer to the one above.
    """
    if whom == SERVABLE and nobody_can_be_served(v):
        return NONE
    b = _follow_best(v, whom)
    if b != NONE:
        return b
    depth, top = 0, _enter(v, 0, 0, 0)
    while True:
        q = v.frames.queue[depth]
        if top > v.frames.bottom[depth]:
            top -= 1
            i = v.stack[top]
            child = v.best[v.queue_seats.base[q] + i]
            if not _is_worth_a_look(v, depth, i, whom):
                continue
            if i < v.queue_seats.slots[q]:
                # The half that has the better on top is looked at first.
                left = v.best[v.queue_seats.base[q] + 2 * i] == child
                v.stack[top], v.stack[top + 1] = (2 * i + 1, 2 * i) if left else (2 * i, 2 * i + 1)
                if v.queues.strict[q]:
                    v.stack[top] = v.stack[top + 1]
                top += 1 if v.queues.strict[q] else 2
            elif not is_leaf(v, q):
                if whom != IN_LINE or not v.queue_seats.keeping[child]:
                    depth += 1
                    v.frames.unsure[depth] = v.frames.unsure[depth - 1]
                    v.frames.only[depth] = v.queue_seats.below[child] == 0
                    top = _enter(v, depth, child, top)
                    b = v.best[v.queue_seats.base[child] + 1]
                    mine = is_leaf(v, child) and b != NONE and _is_looked_for(v, depth, b)
                    if mine and _can_be_served(v, b, whom, v.frames.unsure[depth]):
                        v.frames.bucket[depth] = v.frames.child[depth] = b
                        top = v.frames.bottom[depth]
            elif not _is_looked_for(v, depth, child):
                continue
            elif whom != ANYBODY and _must_skip(v, depth, child):
                if not skip_to_started(v, child):
                    stop(v, child, MAX_JOBS)
                depth, top = 0, _enter(v, 0, 0, 0)
            elif not _may_be_served(v, depth, child, whom):
                continue
            elif whom == SERVABLE and not has_room(v, child):
                stop(v, child, NO_NODE)
                depth, top = 0, _enter(v, 0, 0, 0)
            else:
                v.frames.bucket[depth] = v.frames.child[depth] = child
        elif depth == 0:
            return int(v.frames.bucket[0])
        elif v.frames.only[depth] and v.frames.bucket[depth] == NONE and _may_come_yet(v, depth):
            v.frames.only[depth] = False
            top = _enter(v, depth, q, top)
        else:
            depth -= 1
            if v.frames.bucket[depth + 1] != NONE:
                _consider(v, depth, v.frames.queue[depth + 1], v.frames.bucket[depth + 1])


@compiled
def _follow_best(v: View, whom: int) -> int:
    """Go down by the best of each tree alone, which is mostly enough.

    Returns the bucket that is next, if that can be served and its keys are what they seem; else NONE.
    """
    q = 0
    while True:
        child = v.best[v.queue_seats.base[q] + 1]
        if child == NONE:
            return NONE
        if is_leaf(v, q):
            break
        if whom == IN_LINE and v.queue_seats.keeping[child]:
            return NONE
        q = child
    unsure = v.queue_seats.unsure[0]
    while q != 0:
        if not _is_sure_key(v, q, child):
            return NONE
        unsure |= v.queue_seats.unsure[q]
        q = v.queues.parent[q]
    return int(child) if _can_be_served(v, child, whom, unsure) else NONE


@compiled
def _can_be_served(v: View, b: int, whom: int, unsure: bool) -> bool:
    """Whether a bucket is one that the search is for; `unsure` where a queue on the path is."""
    if whom == ANYBODY:
        return True
    if (v.counts[BEYOND] and not v.buckets.revocable[b]) or over_limits(v, b) != NOT_REACHED:
        return False
    if whom == IN_LINE:
        return _is_in_line(v, b)
    return _may_have_room(v, b, unsure) and has_room(v, b)


@compiled
def _is_sure_key(v: View, q: int, b: int) -> bool:
    """Whether a queue's key is what it seems, if this bucket is what it has to offer."""
    seats, policy = v.queue_seats, v.queues.policy[v.queues.parent[q]]
    if (policy == FIFO or policy == PRIORITY) and seats.level[q] != float(v.bucket_seats.number[b]):
        return False
    if policy == PRIORITY and seats.first[q] != -v.buckets.priority[b]:
        return False
    return bool(seats.below[q] != 0 or below_on_path(v, q, v.buckets.leaf[b], v.buckets.shape_row[b]) == 0)


@compiled
def _enter(v: View, depth: int, q: int, top: int) -> int:
    """Begin to look below a queue: from the root of its tree, and within its limits; revocable jobs have others.

    What is kept for claims is left out here, for it is kept from all but some: who is found is asked (`over_limits`).
    """
    caps, resources = v.caps[depth], v.total.shape[0]
    v.frames.queue[depth], v.frames.bottom[depth] = q, top
    if depth == 0:
        v.frames.unsure[depth] = v.frames.only[depth] = False
    v.frames.unsure[depth] |= v.queue_seats.unsure[q]
    v.frames.bucket[depth] = v.frames.child[depth] = NONE
    for r in range(resources):
        # What needs nothing of a resource is not stopped by a limit of it, even one that is passed.
        caps[r] = UNLIMITED
        if v.limit[q, r] != UNLIMITED and not v.counts[BEYOND]:
            caps[r] = max(0, v.limit[q, r] - v.used[q, r] + v.spare[q, r])
    caps[resources] = 1 if v.queues.jobs[q] < v.queues.max_jobs[q] else 0
    caps[resources + 1] = v.queues.max_tasks[q] - v.queues.tasks[q]
    if depth > 0:
        for r in range(resources + 2):
            caps[r] = min(caps[r], v.caps[depth - 1, r])
    v.stack[top] = 1
    return top + 1


@compiled
def _is_looked_for(v: View, depth: int, b: int) -> bool:
    """Whether a bucket of the leaf that a search is in is such as each queue on the path looks for."""
    lowest = depth
    while lowest > 0 and not v.frames.only[lowest]:
        lowest -= 1
    if lowest == 0:
        return True
    below = 1
    for d in range(depth, 0, -1):
        below = exact_below(v, v.frames.queue[d], v.buckets.shape_row[b], below)
        if v.frames.only[d] and below != 0:
            return False
    return True


@compiled
def _may_come_yet(v: View, depth: int) -> bool:
    """Whether a queue that goes first with nobody who can be served might come before the best of its siblings so far."""
    seat, frames, q = v.queue_seats, v.frames, v.frames.queue[depth]
    above = depth - 1
    found = frames.child[above]
    if found == NONE:
        return True
    key = frames.below[above], frames.first[above], frames.level[above]
    return bool(queue_goes_before(v, q, 1, seat.first[q], seat.level[q], found, key[0], key[1], key[2]))


@compiled
def _is_worth_a_look(v: View, depth: int, i: int, whom: int) -> bool:
    """Whether somebody below a node of a tree could be served, and before the best that was found."""
    q = v.frames.queue[depth]
    node = v.queue_seats.base[q] + i
    child = v.best[node]
    if child == NONE or (v.frames.only[depth] and not may_go_first(v, q, node)):
        return False
    found = v.frames.child[depth]
    if found != NONE:
        if is_leaf(v, q):
            if not bucket_goes_before(v, child, found):
                return False
        else:
            seat, frames = v.queue_seats, v.frames
            if not queue_goes_before(
                v, child, seat.below[child], seat.first[child], seat.level[child],
                found, frames.below[depth], frames.first[depth], frames.level[depth],
            ):  # fmt: skip
                return False
    if whom == ANYBODY:
        return True
    if whom == SERVABLE and not v.able[node] and not v.frames.unsure[depth] and not _may_fit_fresh(v, node):
        return False
    resources = v.total.shape[0]
    within = v.least[node, resources + JOBS_NEEDED] <= v.caps[depth, resources] and v.caps[depth, resources + 1] >= 1
    for r in range(resources):
        within &= v.least[node, r] <= v.caps[depth, r]
    if not within and whom == SERVABLE:
        note_limited(v, q)
    return bool(within)


@compiled
def _may_fit_fresh(v: View, node: int) -> bool:
    """Whether the least that is needed below a node of a tree is there on a node with fresh room, or lies free and is kept."""
    resources = v.total.shape[0]
    shortest = v.least[node, resources + SHORTEST]
    if shortest < 0 or v.times[NOW] + shortest / 1e6 <= v.times[LAST_START]:
        within = True
        for r in range(resources):
            within &= v.least[node, r] <= v.most_kept[r]
        if within:
            return True
    if v.counts[FRESH] > FEW:
        for r in range(resources):
            if v.least[node, r] > v.most[r]:
                return False
        return True
    for k in range(v.counts[FRESH]):
        n = v.node_seats.fresh[k]
        fits = True
        for r in range(resources):
            if v.least[node, r] > 0 and v.least[node, r] > v.free[n, r] - v.held[n, r]:
                fits = False
                break
        if fits:
            return True
    return False


@compiled
def _must_skip(v: View, depth: int, b: int) -> bool:
    """Whether no more jobs may start, and the next of the bucket would; others in it run already."""
    if v.buckets.started[b] == 0 or is_started(v, b):
        return False
    return bool(v.caps[depth, v.total.shape[0]] == 0 or (_claims_are_kept(v) and over_limits(v, b) == MAX_JOBS))


@compiled
def skip_to_started(v: View, b: int) -> bool:
    """For the rest of a cycle, have a bucket go on with the next of its jobs that runs already; False where there is none."""
    note_limited(
        v, v.buckets.leaf[b]
    )  # those before it were not looked at, and may have room when others in it have ended
    if v.queues.strict[v.buckets.leaf[b]]:
        return False
    job = v.jobs.after[current_job(v, b)]
    while job != NONE and v.jobs.holding[job] == 0:
        job = v.jobs.after[job]
    if job == NONE:
        return False
    set_current(v, b, job)
    remember(v, b)
    if set_bucket(v, b):
        climb(v, v.buckets.leaf[b])
    return True


@compiled
def stop(v: View, b: int, why: int) -> None:
    """A bucket is not served any more in this cycle; nor is its leaf, where nobody passes the first."""
    if take_out(v, b, why):
        climb(v, v.buckets.leaf[b])


@compiled
def take_out(v: View, b: int, why: int) -> bool:
    """The same, but for the queues above; whether what the bucket's leaf has to offer may be another now."""
    seats = v.bucket_seats
    remember(v, b)
    seats.out[b] = True
    seats.stop_cycle[b], seats.stop_order[b] = v.counts[CYCLE], v.counts[STOPS]
    seats.stop[b], seats.stop_job[b] = why, current_job(v, b)
    v.counts[STOPS] += 1
    if v.queues.strict[v.buckets.leaf[b]] and why != EXHAUSTED:
        v.queue_seats.shut[v.buckets.leaf[b]] = True
        return True
    return set_bucket(v, b)


@compiled
def note_limited(v: View, q: int) -> None:
    """Note that a limit kept something below a queue from being looked at: where that has room is not known."""
    if v.queue_seats.limited[q] == NONE:
        v.queue_seats.limited_list[v.counts[LIMITED]] = q
        v.counts[LIMITED] += 1
    v.queue_seats.limited[q] = v.counts[CYCLE]


@compiled
def set_current(v: View, b: int, job: int) -> None:
    """For the rest of a cycle, this job of a bucket is next."""
    v.bucket_seats.cycle[b] = v.counts[CYCLE]
    v.bucket_seats.current[b] = job
    v.bucket_seats.left[b] = startable(v, job) if job != NONE else 0


@compiled
def remember(v: View, b: int) -> None:
    """Note that a bucket's place is to be brought up to date when the cycle is over."""
    if not v.bucket_seats.listed[b]:
        v.bucket_seats.listed[b] = True
        v.bucket_seats.out_list[v.counts[OUT]] = b
        v.counts[OUT] += 1


@compiled
def _may_be_served(v: View, depth: int, b: int, whom: int) -> bool:
    """Whether a bucket's next task, or whole gang, is within all limits, and may have room."""
    if whom == ANYBODY:
        return True
    shape, leaf = v.buckets.shape_row[b], v.frames.queue[depth]
    if not _is_within(v, depth, b, shape):
        if whom == SERVABLE:
            note_limited(v, leaf)
        return False
    if whom == IN_LINE:
        return _is_in_line(v, b)
    return _may_have_room(v, b, v.frames.unsure[depth])


@compiled
def _is_in_line(v: View, b: int) -> bool:
    """Whether a bucket is in line for room: none is kept for it, and the nodes could hold its task or gang."""
    return not v.bucket_seats.keeping[b] and not v.bucket_seats.hopeless[b] and not v.buckets.wants[b]


@compiled
def _may_have_room(v: View, b: int, unsure: bool) -> bool:
    """Whether there may be room for a bucket's next: if it is parked on a fresh node, unless a queue above is unsure of that."""
    if not v.bucket_seats.parked[b] or unsure:
        return True
    shape = v.buckets.shape_row[b]
    if v.counts[FRESH] > FEW:
        free, kept = (
            True,
            v.bucket_seats.keeping[b]
            or v.queues.guarded[v.buckets.leaf[b]]
            or bool(v.times[NOW] + v.bucket_seats.lasts[b] <= v.times[LAST_START]),
        )
        for r in range(v.total.shape[0]):
            free &= v.demand[shape, r] <= v.most[r]
            kept &= v.demand[shape, r] <= v.most_kept[r]
        return free or kept
    for k in range(v.counts[FRESH]):
        n = v.node_seats.fresh[k]
        if holds_task(v, n, shape) or may_enter(v, b, n) or may_use_hold(v, b, n):
            return True
    return False


@compiled
def _claims_are_kept(v: View) -> bool:
    """Whether anything is kept for a claim."""
    for r in range(v.total.shape[0]):
        if v.claimed[0, r] > 0:
            return True
    return False


@compiled
def _is_within(v: View, depth: int, b: int, shape: int) -> bool:
    """Whether a bucket's next task, or whole gang, is within the limits of all queues on the path, and not withheld from it."""
    resources = v.total.shape[0]
    if v.counts[BEYOND] and not v.buckets.revocable[b]:
        return False
    if v.buckets.revocable[b] or v.queues.lends[0] or _claims_are_kept(v):
        return bool(over_limits(v, b) == NOT_REACHED)
    if v.caps[depth, resources] == 0 and not is_started(v, b):
        return False
    if v.buckets.gang[b] > 0:
        count = tasks_left(v, b)
        if count > v.caps[depth, resources + 1]:
            return False
        for r in range(resources):
            if (
                v.demand[shape, r] > 0 and v.demand[shape, r] > v.caps[depth, r] // count
            ):  # a product might be too large
                return False
    return True


@compiled
def _consider(v: View, depth: int, child: int, b: int) -> None:
    """A queue offers a bucket: its key is known now, and if it is the best so far it is kept."""
    seat, frames = v.queue_seats, v.frames
    below, first, level = 0 if frames.only[depth + 1] else 1, seat.first[child], seat.level[child]
    policy = v.queues.policy[frames.queue[depth]]
    if policy == FIFO or policy == PRIORITY:
        first = -v.buckets.priority[b] if policy == PRIORITY else 0
        level = float(v.bucket_seats.number[b])
    if frames.child[depth] == NONE or queue_goes_before(
        v, child, below, first, level,
        frames.child[depth], frames.below[depth], frames.first[depth], frames.level[depth],
    ):  # fmt: skip
        frames.bucket[depth], frames.child[depth] = b, child
        frames.below[depth], frames.first[depth], frames.level[depth] = below, first, level
