"""What queues used before: a mean that fades, and what of it counts.

Time goes in **ticks**, 1024 a half-life, counted from the first fact on; a tick has 4096 moments. When a tick is over, what a
queue used in it, added up moment by moment, and the mean of what it used before become one, by parts that are the same for each
tick. All of it is in whole numbers, a quantity times the 4096 moments of a tick: the same facts lose the same to rounding, and a
mean of nothing gets to zero. Amounts do without their last `grain` binary digits, so that they stay below 2**49; that is all of
them for less than half a petabyte in the cluster.

Within a tick, `recent` is what was used in it until `moment`, when a task started or ended last. Each fact brings all to the
last tick that was over when it happened, before it happens: between facts nothing changes, so many ticks at once are the first of
them, and then the same one again and again. No fact is needed for that, and nobody has to wake up.

What is charged is a quarter of the mean, with what `recent` will add to it, but never more than a quarter of twice what the
queue's weight entitles it to, among the weights of the siblings that wait or run (those **at work**): docs/fair-over-time.md
says why.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.policies.codes import SDRF
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_wide import high
from fairlead.scheduler.view import BEGAN, HISTORY_MOVED, IN_ORDER, NEXT_TICK, QUEUES

MOMENTS = 2**12
"""Parts of a tick."""
WHOLE = 2**32
"""What `remains` is a part of."""
QUARTER_DIGITS = np.int64(14)
"""A quarter of what is counted in moments of a tick, in binary digits."""
_HALF = np.uint64(32)
_LITTLE_LESS = 1.0 - 1e-12


@compiled
def count_use(v: View, q: int, at: float) -> None:
    """What queue q uses is about to change: count what it has used until now."""
    p = v.queues.parent[q]
    passed = ((at - v.times[BEGAN]) / v.queues.tick[p] - v.queues.ticks[p]) * MOMENTS
    moment = int(min(passed, MOMENTS))
    if moment > v.queues.moment[q]:  # a clock may step back
        for r in range(v.total.shape[0]):
            v.recent[q, r] += remembered(v, q, r) * (moment - v.queues.moment[q])
        v.queues.moment[q] = moment


@compiled
def remembered(v: View, q: int, r: int) -> int:
    """What history is made of: all that a queue uses; under sdrf, what is beyond an even part."""
    used = v.used[q, r]
    if v.queues.policy[v.queues.parent[q]] == SDRF:
        used = max(0, used - v.even[q, r])
    return int(used >> v.grain[r])


@compiled
def _part(amount: int, part: int) -> int:
    """So many parts of 2**32 of an amount, rounded down."""
    a, b = np.uint64(amount), np.uint64(part)
    return int(np.int64((high(a, b) << _HALF) | ((a * b) >> _HALF)))


@compiled
def _after(mean: int, used: int, remains: int) -> int:
    """The mean after a tick or several, `remains` being what is left of what was before."""
    return _part(mean, remains) + _part(used, WHOLE - remains)


@compiled
def remains_after(remains: int, ticks: int) -> int:
    """What is left after so many ticks of what is left after one."""
    left, power = WHOLE, remains
    while ticks > 0:
        if ticks & 1:
            left = _part(left, power)
        power = _part(power, power)
        ticks >>= 1
    return left


@compiled
def fade(v: View, at: float) -> None:
    """Bring what queues used before to the last tick that is over at a time; a clock that steps back changes nothing."""
    if at < v.times[NEXT_TICK]:
        return
    queues = v.queues
    passed, later = np.zeros(v.counts[QUEUES], np.int64), np.zeros(v.counts[QUEUES], np.int64)
    v.times[NEXT_TICK] = np.inf
    for p in range(v.counts[QUEUES]):
        tick = queues.tick[p]
        if tick > 0.0:
            over = int(np.floor((at - v.times[BEGAN]) / tick))  # of a time before all, too
            if over > queues.ticks[p]:
                passed[p] = over - queues.ticks[p]
                later[p] = remains_after(queues.remains[p], passed[p] - 1)
                queues.ticks[p] = over
            v.times[NEXT_TICK] = min(v.times[NEXT_TICK], v.times[BEGAN] + (queues.ticks[p] + 1) * tick)
    for q in range(1, v.counts[QUEUES]):
        p = queues.parent[q]
        if passed[p] > 0:
            for r in range(v.total.shape[0]):
                used = remembered(v, q, r)
                if used != 0 or v.recent[q, r] != 0 or v.mean[q, r] != 0:
                    in_tick = v.recent[q, r] + used * (MOMENTS - queues.moment[q])
                    mean = _after(v.mean[q, r], in_tick, queues.remains[p])
                    v.mean[q, r] = _after(mean, used * MOMENTS, later[p]) if passed[p] > 1 else mean
                    v.recent[q, r] = 0
            queues.moment[q] = 0
    if v.counts[IN_ORDER]:
        v.counts[HISTORY_MOVED] = 1


@compiled
def used_before(v: View, q: int, r: int) -> int:
    """A quarter of the mean of what queue q used of resource r before, with `fine` binary digits after the point."""
    return int((_mean_with_recent(v, q, r) >> (QUARTER_DIGITS - v.fine[r])) << v.grain[r])


@compiled
def _mean_with_recent(v: View, q: int, r: int) -> int:
    mean = v.mean[q, r]
    if v.recent[q, r] > 0:
        mean += _part(v.recent[q, r], WHOLE - v.queues.remains[v.queues.parent[q]])
    return int(mean)


@compiled
def mean_now(v: View, q: int, r: int) -> float:
    """The mean of what history is made of, with what this tick will add to it, in base units."""
    return float(_mean_with_recent(v, q, r)) / MOMENTS * (1 << v.grain[r])


@compiled
def mean_at_tick(v: View, q: int, r: int) -> float:
    """The same as it was at the end of the last tick."""
    return float(v.mean[q, r]) / MOMENTS * (1 << v.grain[r])


@compiled
def charge(v: View, q: int) -> None:
    """Work out what queue q is charged, and with how much of its siblings at work that would be less."""
    seats, p = v.queue_seats, v.queues.parent[q]
    for r in range(v.total.shape[0]):
        before = used_before(v, q, r)
        if before > 0:
            half = 0.5 * (v.total[r] << v.fine[r])
            most = half * (v.weighs[q, r] / max(1, v.at_work[p, r]))
            if before > most:
                before = int(most)
                seats.crowded[p] = True
            else:
                seats.crowd[p] = min(seats.crowd[p], half * v.weighs[q, r] / before * _LITTLE_LESS)
        v.charged[q, r] = ((v.used[q, r] + v.promised[q, r]) << v.fine[r]) + before
