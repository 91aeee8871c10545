"""The order kept up to date: places in the queues' trees, from buckets up to the root.

Account and cycle only note which queues and buckets they touched; :func:`refresh` brings the trees up to date along the paths
from those to the root, and :func:`rebuild` makes them all anew. Both lead to the same.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.policies.codes import DIVIDED, HDRF
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_forecasts import usual_duration
from fairlead.scheduler.kernel_keys import (
    bucket_goes_before,
    compares_shares,
    has_history,
    needs_bit,
    queue_goes_before,
    set_key,
    set_level,
)
from fairlead.scheduler.kernel_sketches import EVERYBODYS, FAMILYS, FORGIVEN
from fairlead.scheduler.tables import I64, NONE
from fairlead.scheduler.view import (
    BUCKETS,
    CYCLE,
    HDRF_SOMEWHERE,
    HISTORY_MOVED,
    HOLDS,
    JOBS_NEEDED,
    MOVED,
    NEGATIVE_PRIORITY,
    NOBODY,
    NOW,
    NUMBER,
    QUEUES,
    SHORTEST,
    TOUCHED_BUCKETS,
    TOUCHED_QUEUES,
)


@compiled
def touch_queue(v: View, q: int) -> None:
    """Note that what a leaf uses has changed."""
    if not v.queue_seats.touched[q]:
        v.queue_seats.touched[q] = True
        v.queue_seats.touched_list[v.counts[TOUCHED_QUEUES]] = q
        v.counts[TOUCHED_QUEUES] += 1


@compiled
def touch_bucket(v: View, b: int) -> None:
    """Note that what waits in a bucket has changed."""
    if not v.bucket_seats.touched[b]:
        v.bucket_seats.touched[b] = True
        v.bucket_seats.touched_list[v.counts[TOUCHED_BUCKETS]] = b
        v.counts[TOUCHED_BUCKETS] += 1


@compiled
def current_job(v: View, b: int) -> int:
    """The job of a bucket that is next: in a cycle, what that has come to."""
    if v.bucket_seats.cycle[b] == v.counts[CYCLE]:
        return int(v.bucket_seats.current[b])
    return int(v.buckets.head[b])


@compiled
def startable(v: View, job: int) -> int:
    """How many tasks of a job may start, as far as it says itself: all that wait, or as many as may run at once besides."""
    most, waiting = v.jobs.at_most[job], v.jobs.waiting[job]
    return int(waiting if most == 0 else max(0, min(waiting, most - v.jobs.holding[job])))


@compiled
def tasks_left(v: View, b: int) -> int:
    """How many tasks of that job may start."""
    if v.bucket_seats.cycle[b] == v.counts[CYCLE]:
        return int(v.bucket_seats.left[b])
    return startable(v, v.buckets.head[b])


@compiled
def is_started(v: View, b: int) -> bool:
    """Whether that job runs already, if only on paper."""
    job = current_job(v, b)
    if job == NONE:
        return False
    return v.jobs.holding[job] > 0 or tasks_left(v, b) < startable(v, job)


@compiled
def set_bucket(v: View, b: int) -> bool:
    """Bring a bucket's place in its leaf's tree up to date; whether what its leaf has to offer may be another now."""
    seats, resources = v.bucket_seats, v.total.shape[0]
    leaf = v.buckets.leaf[b]
    base, place = v.queue_seats.base[leaf], v.queue_seats.slots[leaf] + seats.slot[b]
    first, job = v.best[base + 1], current_job(v, b)
    if (job == NONE and not v.buckets.wants[b]) or seats.out[b]:
        seats.lasts_known[b] = False  # nobody tells those who are not in the tree
        if v.best[base + place] == NONE:
            return False
        _clear(v, base + place)
    else:
        seats.number[b], shortest = v.buckets.number[b], NOBODY
        if job != NONE:
            seats.number[b] = v.jobs.id[job]
            shortest = max(0, int(min(1e15, 1e6 * lasts(v, b, job))) - 1)  # so that rounding leaves nobody out
        if seats.keeping[b] or v.queues.guarded[leaf]:
            shortest = (
                -1
            )  # however long it takes, it may go where room is kept for it, or for whom its guarantee comes before
        least, shape = v.least[base + place], v.buckets.shape_row[b]
        changed = v.best[base + place] != b or v.able[base + place] == seats.parked[b]
        for r in range(resources):
            changed |= _put(least, r, v.demand[shape, r])
        changed |= _put(least, resources + JOBS_NEEDED, 0 if v.buckets.started[b] > 0 or is_started(v, b) else 1)
        changed |= _put(least, resources + NEGATIVE_PRIORITY, -v.buckets.priority[b])
        changed |= _put(least, resources + NUMBER, seats.number[b])
        changed |= _put(least, resources + SHORTEST, shortest)
        changed |= v.needs[base + place] != needs_of(v, shape)
        if not changed:
            return False
        v.able[base + place] = not seats.parked[b]
        v.best[base + place], v.needs[base + place] = b, needs_of(v, shape)
    changed = _climb_tree(v, leaf, base, place, b)
    if v.queues.strict[leaf]:
        for other in (first, b):  # the tree may be new, and the first not have been the first in it
            if other != NONE and v.best[base + 1] != other and seats.parked[other]:
                _unpark(v, leaf, base, other)
    return changed


@compiled
def needs_of(v: View, shape: int) -> int:
    """A bit for each resource that a task of a shape needs; all of them where that is nothing."""
    bits = 0
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > 0:
            bits |= needs_bit(r)
    return bits if bits else -1


@compiled
def _unpark(v: View, leaf: int, base: int, b: int) -> None:
    """Take it that a bucket may have room, for in a strict leaf nobody looks for any but for the first."""
    v.bucket_seats.parked[b] = False
    place = v.queue_seats.slots[leaf] + v.bucket_seats.slot[b]
    if v.best[base + place] == b:
        v.able[base + place] = True
        _climb_tree(v, leaf, base, place, b)


@compiled
def lasts(v: View, b: int, job: int) -> float:
    """How long a task of a bucket's job lasts as is usual; notes where that, or its time limit, is less than it was."""
    seats = v.bucket_seats
    before = seats.lasts_job[b]
    if before != job or not seats.lasts_known[b]:
        seconds = usual_duration(v, job)
        if before != NONE and (seconds < seats.lasts[b] or v.jobs.time_limit[job] < v.jobs.time_limit[before]):
            seats.shorter[b] = True
        seats.lasts[b], seats.lasts_job[b], seats.lasts_known[b] = seconds, job, True
    return float(seats.lasts[b])


@compiled
def wake_if_shorter(v: View, b: int) -> None:
    """A bucket whose tasks last less long than when it was parked may enter room that it could not."""
    seats, job, h = v.bucket_seats, current_job(v, b), 0
    if job != NONE:
        least = min(lasts(v, b, job), v.jobs.time_limit[job])
        while seats.shorter[b] and seats.parked[b] and h < v.counts[HOLDS]:
            seats.parked[b] = v.times[NOW] + least > v.holds.start[h] and v.times[NOW] < np.inf
            h += 1
    seats.shorter[b] = False


@compiled
def look_again(v: View, j: int, whose: int) -> None:
    """How long tasks like those of job row j usually last is another now: those who wait may be let in because of that."""
    if whose == EVERYBODYS:
        for b in range(v.counts[BUCKETS]):
            _forget_lasts(v, b)
        return
    leaf = v.jobs.queue[j]
    base, slots = v.queue_seats.base[leaf], v.queue_seats.slots[leaf]
    for place in range(base + slots, base + 2 * slots):
        b = v.best[place]
        if b != NONE:
            waits = v.buckets.head[b]
            if whose != FAMILYS or (waits != NONE and (waits == j or v.jobs.family[waits] == v.jobs.family[j])):
                _forget_lasts(v, b)
                if whose == FORGIVEN:
                    v.bucket_seats.parked[b] = False


@compiled
def _forget_lasts(v: View, b: int) -> None:
    v.bucket_seats.lasts_known[b] = False
    touch_bucket(v, b)


@compiled
def _put(row: I64, at: int, value: int) -> bool:
    """Write down a number; whether it is another than before."""
    changed = row[at] != value
    row[at] = value
    return bool(changed)


@compiled
def _clear(v: View, node: int) -> None:
    v.best[node] = NONE
    v.able[node] = False
    v.least[node] = NOBODY
    v.needs[node] = 0


@compiled
def _set_node(v: View, q: int, base: int, i: int, is_leaf: bool) -> bool:
    """Work out a node of queue q's tree from the two below it; whether it is another now."""
    left, right = base + 2 * i, base + 2 * i + 1
    a, b = v.best[left], v.best[right]
    best = a
    if a == NONE:
        best = b
    elif b != NONE:
        if is_leaf:
            first = bucket_goes_before(v, a, b)
        else:
            seat = v.queue_seats
            first = queue_goes_before(
                v, a, seat.below[a], seat.first[a], seat.level[a], b, seat.below[b], seat.first[b], seat.level[b]
            )
        best = a if first else b
    changed = v.best[base + i] != best
    v.best[base + i] = best
    if v.queues.strict[q]:  # the others do not pass it
        left = right = left if best == a else right
    able = v.able[left] or v.able[right]
    changed |= v.able[base + i] != able
    v.able[base + i] = able
    needs = v.needs[left] | v.needs[right]
    changed |= v.needs[base + i] != needs
    v.needs[base + i] = needs
    for r in range(v.least.shape[1]):
        least = min(v.least[left, r], v.least[right, r])
        changed |= v.least[base + i, r] != least
        v.least[base + i, r] = least
    return changed


@compiled
def _climb_tree(v: View, q: int, base: int, place: int, child: int) -> bool:
    """After a change at one place: the nodes above it, as far as it makes a difference; whether that is up to the top."""
    leaf = is_leaf(v, q)
    i = place >> 1
    while i > 0:
        was = v.best[base + i] == child
        if not _set_node(v, q, base, i, leaf) and not was:
            return False
        i >>= 1
    return True


@compiled
def is_leaf(v: View, q: int) -> bool:
    """Whether a queue has buckets, not queues, below it."""
    return not v.queue_seats.inner[q]


@compiled
def set_queue(v: View, q: int) -> None:
    """Work out a queue's key, and bring its place among its siblings up to date."""
    seats = v.queue_seats
    p = v.queues.parent[q]
    top = seats.base[q] + 1
    base, place = seats.base[p], seats.slots[p] + seats.slot[q]
    if v.counts[HDRF_SOMEWHERE]:
        _count_up(v, q)
    if v.best[top] == NONE or seats.shut[q]:
        _clear(v, base + place)
        _climb_tree(v, p, base, place, q)
        return
    set_key(v, q)
    if v.queues.policy[p] == HDRF or v.queues.policy[p] == DIVIDED:
        set_level(v, q, is_leaf(v, q))
    able = v.able[top] or seats.unsure[q]
    if v.best[base + place] == q and v.able[base + place] == able and _is_same_least(v, base + place, top):
        _climb_by_key(v, base, place, q)
        return
    for r in range(v.least.shape[1]):
        v.least[base + place, r] = v.least[top, r]
    v.able[base + place] = able
    v.best[base + place], v.needs[base + place] = q, v.needs[top]
    _climb_tree(v, p, base, place, q)


@compiled
def _is_same_least(v: View, one: int, other: int) -> bool:
    if v.needs[one] != v.needs[other]:
        return False
    for r in range(v.least.shape[1]):
        if v.least[one, r] != v.least[other, r]:
            return False
    return True


@compiled
def _climb_by_key(v: View, base: int, place: int, child: int) -> None:
    """After a change of a queue's key and of nothing else, which is the usual: who comes first above it."""
    seat, best, i = v.queue_seats, child, place
    while i > 1:
        other = v.best[base + (i ^ 1)]
        i >>= 1
        if other != NONE and queue_goes_before(
            v, other, seat.below[other], seat.first[other], seat.level[other],
            best, seat.below[best], seat.first[best], seat.level[best],
        ):  # fmt: skip
            best = other
        was = v.best[base + i]
        if was == best and was != child:
            return
        v.best[base + i] = best


@compiled
def climb(v: View, q: int) -> None:
    """Bring the keys on the path from a queue to the root up to date."""
    while q != 0:
        set_queue(v, q)
        q = v.queues.parent[q]


@compiled
def refresh(v: View) -> None:
    """Bring the order up to date where something was touched, and where what is charged for what was used before has changed."""
    for k in range(v.counts[TOUCHED_BUCKETS]):
        b = v.bucket_seats.touched_list[k]
        v.bucket_seats.touched[b] = False
        leaf = v.buckets.leaf[b]
        wake_if_shorter(v, b)
        # What a cycle took out of a tree may be gone for good by now, which changes nothing in the tree any more.
        if set_bucket(v, b) or v.queue_seats.works[leaf] != _is_at_work(v, leaf):
            touch_queue(v, leaf)
    v.counts[TOUCHED_BUCKETS] = 0
    for k in range(v.counts[TOUCHED_QUEUES]):
        q = v.queue_seats.touched_list[k]
        v.queue_seats.touched[q] = False
        while q != 0:
            _set_works(v, q, _is_at_work(v, q))
            set_queue(v, q)
            q = v.queues.parent[q]
    v.counts[TOUCHED_QUEUES] = 0
    for k in range(v.counts[MOVED]):
        p = v.queue_seats.moved_list[k]
        v.queue_seats.moved[p] = False
        if not v.counts[HISTORY_MOVED] and (v.queue_seats.crowded[p] or _is_crowded(v, p)):
            _set_children(v, p)
    if v.counts[HISTORY_MOVED]:
        for p in range(v.counts[QUEUES]):
            if v.queue_seats.inner[p] and has_history(v.queues.policy[p]):
                _set_children(v, p)
    v.counts[MOVED] = v.counts[HISTORY_MOVED] = 0


@compiled
def _is_at_work(v: View, q: int) -> bool:
    """Whether something below a queue waits or runs, as its tree and the tables say; not to be asked in a cycle."""
    return bool(v.queues.tasks[q] > 0 or v.best[v.queue_seats.base[q] + 1] != NONE)


@compiled
def _set_works(v: View, q: int, works: bool) -> None:
    """Note whether something below a queue waits or runs; not to be called in a cycle."""
    seats, p = v.queue_seats, v.queues.parent[q]
    if seats.works[q] != works:
        seats.works[q] = works
        for r in range(v.total.shape[0]):
            v.at_work[p, r] += v.weighs[q, r] if works else -v.weighs[q, r]
        if not seats.moved[p] and compares_shares(v.queues.policy[p]):
            seats.moved[p] = True
            seats.moved_list[v.counts[MOVED]] = p
            v.counts[MOVED] += 1


@compiled
def _is_crowded(v: View, p: int) -> bool:
    """Whether so much is at work among a queue's children that what some of them used before may count in part only."""
    for r in range(v.total.shape[0]):
        if v.at_work[p, r] > v.queue_seats.crowd[p]:
            return True
    return False


@compiled
def _set_children(v: View, p: int) -> None:
    """Work out the keys of all of a queue's children that wait, and its tree."""
    v.queue_seats.crowd[p], v.queue_seats.crowded[p] = np.inf, False
    base, slots = v.queue_seats.base[p], v.queue_seats.slots[p]
    for place in range(base + slots, base + 2 * slots):
        if v.best[place] != NONE:
            set_key(v, v.best[place])
    for i in range(slots - 1, 0, -1):
        _set_node(v, p, base, i, False)


@compiled
def rebuild(v: View) -> None:
    """Make all trees anew, from the buckets up. Parents come before their children, so the last queue first."""
    v.best[:] = NONE
    v.able[:] = False
    v.least[:, :] = NOBODY
    v.needs[:] = 0
    for k in range(v.counts[TOUCHED_BUCKETS]):
        v.bucket_seats.touched[v.bucket_seats.touched_list[k]] = False
    for k in range(v.counts[TOUCHED_QUEUES]):
        v.queue_seats.touched[v.queue_seats.touched_list[k]] = False
    for k in range(v.counts[MOVED]):
        v.queue_seats.moved[v.queue_seats.moved_list[k]] = False
    v.counts[TOUCHED_BUCKETS] = v.counts[TOUCHED_QUEUES] = v.counts[MOVED] = v.counts[HISTORY_MOVED] = 0
    _count_work(v)
    for b in range(v.counts[BUCKETS]):
        if current_job(v, b) != NONE or v.buckets.wants[b]:
            set_bucket(v, b)
    for q in range(v.counts[QUEUES] - 1, 0, -1):
        set_queue(v, q)


@compiled
def _count_work(v: View) -> None:
    """Work out who works from the tables, which say it in a cycle as well, and what follows from that."""
    seats = v.queue_seats
    v.at_work[:, :] = 0
    for q in range(v.counts[QUEUES]):
        seats.works[q] = v.queues.tasks[q] > 0
        seats.crowd[q], seats.crowded[q] = np.inf, False
    for b in range(v.counts[BUCKETS]):
        q = v.buckets.leaf[b] if v.buckets.head[b] != NONE or v.buckets.wants[b] else NONE
        while q != NONE:
            seats.works[q] = True
            q = v.queues.parent[q]
    for q in range(1, v.counts[QUEUES]):
        if seats.works[q]:
            for r in range(v.total.shape[0]):
                v.at_work[v.queues.parent[q], r] += v.weighs[q, r]


@compiled
def _count_up(v: View, q: int) -> None:
    """Work out what queue q counts as among siblings under hdrf, from its children's levels."""
    for r in range(v.total.shape[0]):
        v.counts_as[q, r] = v.used[q, r]
    if v.queues.policy[q] != HDRF or is_leaf(v, q):
        return
    first = v.queue_seats.base[q] + v.queue_seats.slots[q]
    places = v.best[first : first + v.queue_seats.slots[q]]
    least = np.inf
    for c in places:
        if c != NONE:
            least = min(least, v.queue_seats.level_now[c])
    for r in range(v.total.shape[0]):
        others = v.used[q, r]
        for c in places:
            if c != NONE:
                others -= v.used[c, r]
        amount = float(others)
        for c in places:
            if c != NONE:
                level = v.queue_seats.level_now[c]
                if level > least:
                    amount += v.counts_as[c, r] * (least / level)
                else:
                    amount += v.counts_as[c, r]
        v.counts_as[q, r] = amount
