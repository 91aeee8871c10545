"""What queues used before: a mean that fades, and what of it counts.

Time goes in **ticks**, 1024 a half-life, counted from the first fact on; a tick has 4096 moments. When a tick is over, what a
queue used in it, added up moment by moment, and the mean of what it used before become one, by parts that are the same for each
tick. All of it is in whole numbers, a quantity times the 4096 moments of a tick: the same facts lose the same to rounding, and a
mean of nothing gets to zero. Amounts do without their last `grain` binary digits, so that they stay below 2**49; that is all of
them for less than half a petabyte in the cluster.

Within a tick only `recent` changes, and only where a task starts or ends: what is used at the end counts as if it had been used
from the beginning, and `recent` is what has to be added to that for tasks that have ended, and taken from it for those that began
later. Each fact brings all to the last tick that was over when it happened, before it happens: between facts nothing changes, so
many ticks at once are the first of them, and then the same one again and again.

What is charged for it is a quarter of the mean, but never more than a quarter of twice what the queue's weight entitles it to,
among the weights of the siblings that wait or run (those **at work**): docs/fair-over-time.md says why.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_wide import high
from fairlead.scheduler.tables import I64
from fairlead.scheduler.view import BEGAN, HISTORY_MOVED, IN_ORDER, NEXT_TICK, QUEUES

MOMENTS = 2**12
"""Parts of a tick."""
WHOLE = 2**32
"""What `remains` is a part of."""
QUARTER_DIGITS = np.int64(14)
"""A quarter of what is counted in moments of a tick, in binary digits."""
_HALF = np.uint64(32)


@compiled
def count_use(v: View, q: int, demand: I64, sign: int, at: float) -> None:
    """A task of queue q begins to use its demand (sign 1), or uses it no more (-1): note how much of the tick had passed."""
    p = v.queues.parent[q]
    passed = ((at - v.times[BEGAN]) / v.queues.tick[p] - v.queues.ticks[p]) * MOMENTS
    moment = int(min(max(passed, 0.0), MOMENTS))  # a clock may step back
    for r in range(demand.shape[0]):
        v.recent[q, r] -= sign * (demand[r] >> v.grain[r]) * moment


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
            over = int((at - v.times[BEGAN]) / tick)
            if over > queues.ticks[p]:
                passed[p] = over - queues.ticks[p]
                later[p] = remains_after(queues.remains[p], passed[p] - 1)
                queues.ticks[p] = over
            v.times[NEXT_TICK] = min(v.times[NEXT_TICK], v.times[BEGAN] + (queues.ticks[p] + 1) * tick)
    for q in range(1, v.counts[QUEUES]):
        p = queues.parent[q]
        if passed[p] > 0:
            for r in range(v.total.shape[0]):
                used = (v.used[q, r] >> v.grain[r]) * MOMENTS
                if used != 0 or v.recent[q, r] != 0 or v.mean[q, r] != 0:
                    mean = _after(v.mean[q, r], max(0, used + v.recent[q, r]), queues.remains[p])
                    v.mean[q, r] = _after(mean, used, later[p]) if passed[p] > 1 else mean
                    v.recent[q, r] = 0
    if v.counts[IN_ORDER]:
        v.counts[HISTORY_MOVED] = 1


@compiled
def counted_before(v: View, q: int, r: int) -> int:
    """What queue q is charged of resource r for what it used before."""
    before = (v.mean[q, r] >> QUARTER_DIGITS) << v.grain[r]
    if before == 0:
        return 0
    return int(min(before, int(entitled_half(v, q, r))))


@compiled
def entitled_half(v: View, q: int, r: int) -> float:
    """Half of the resource, times queue q's weight among those of the siblings that are at work."""
    at_work = max(1, v.at_work[v.queues.parent[q], r])
    return 0.5 * v.total[r] * (v.weighs[q, r] / at_work)


@compiled
def crowd_for(v: View, q: int, r: int) -> float:
    """With more weight of siblings at work than this, not all of what queue q used before counts; a little less, to be sure."""
    before = (v.mean[q, r] >> QUARTER_DIGITS) << v.grain[r]
    return np.inf if before == 0 else (1.0 - 1e-12) * (0.5 * v.total[r] * v.weighs[q, r] / before)
