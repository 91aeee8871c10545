"""How what queues used before is counted: the ticks that a half-life makes, and how fine amounts are.

The counting itself is in :mod:`fairlead.scheduler.kernel_history`.
"""

import numpy as np

from fairlead.policies.arithmetic import dominant_share
from fairlead.scheduler.kernel_history import MOMENTS, WHOLE
from fairlead.scheduler.tables import F64, I64, Queues

TICKS = 1024
"""Ticks of a half-life, where that is not too short for them."""
SHORTEST_TICK = 1.0
"""Seconds."""
LARGEST_AMOUNT = 49
"""Binary digits of what is counted."""


def ticks_of(half_life: float) -> tuple[float, int]:
    """How long a tick is, in seconds, and what is left after one, in parts of 2**32; 0 and 0 for a half-life of 0: no history."""
    if not half_life:
        return 0.0, 0
    tick = max(SHORTEST_TICK, half_life / TICKS)
    return tick, round(WHOLE * 2.0 ** (-tick / half_life))


def begin_ticks(queues: Queues, before: F64, elapsed: float) -> None:
    """Where queues' ticks are others than before, begin with the one that runs now.

    What was used since the last one was over is forgotten; where there are no ticks any more, all.

    Parameters
    ----------
    queues : Queues
    before : float64, shape (queues,)
        The seconds of a tick before; there may be more queues now.
    elapsed : float
        Seconds since ticks are counted.
    """
    tick = queues.tick[: queues.n]
    others = tick != np.concatenate([before, np.zeros(len(tick) - len(before))])
    queues.ticks[: queues.n][others] = np.floor_divide(elapsed, tick, out=np.zeros(len(tick)), where=tick > 0)[others]
    parent = queues.parent[1 : queues.n]
    queues.recent[1 : queues.n][others[parent]] = 0
    queues.moment[1 : queues.n][others[parent]] = 0
    queues.mean[1 : queues.n][tick[parent] == 0] = 0


def share_over_time(queues: Queues, row: int, grain: I64, total: I64) -> float:
    """The dominant share of what a queue used before, over its weight; of all that, not only of what it is charged for."""
    return float(dominant_share((queues.mean[row] // MOMENTS) << grain, total, queues.weight[row]))


def coarsen(queues: Queues, grain: I64, total: I64) -> None:
    """Have amounts be counted so coarsely that all of a cluster can be: `grain` is how many binary digits are cut off."""
    digits = [int(quantity).bit_length() for quantity in total]
    coarser = np.maximum(grain, np.array(digits, np.int64) - LARGEST_AMOUNT)
    queues.mean >>= coarser - grain
    queues.recent >>= coarser - grain
    grain[:] = coarser
