"""How what queues used before is counted: the ticks that a half-life makes, and how fine amounts are.

The counting itself is in :mod:`fairlead.scheduler.kernel`.
"""

import numpy as np

from fairlead.policies.codes import FAIRTREE, SDRF
from fairlead.policies.drf import dominant_share
from fairlead.scheduler.kernel.constants import MOMENTS_PER_TICK, QUARTER_SHIFT
from fairlead.scheduler.tables import F64, I64, NONE, Queues

LARGEST_AMOUNT = 49
"""Binary digits of what is counted."""


def forget_what_is_made_otherwise(queues: Queues, before: I64) -> None:
    """Where history is made of something else than before, begin anew: under sdrf it is made of what is beyond an even part.

    Parameters
    ----------
    queues : Queues
    before : int64, shape (queues,)
        The policies before; there may be more queues now.
    """
    policy = queues.policy[: queues.n]
    others = (policy == SDRF) != (np.concatenate([before, policy[len(before) :]]) == SDRF)
    rows = np.flatnonzero(others[queues.parent[1 : queues.n]]) + 1
    queues.mean[rows] = queues.recent[rows] = 0


def share_evenly(queues: Queues, total: I64) -> None:
    """Write what part of the whole the weight of a queue under sdrf entitles it to among all its siblings, whoever is at work."""
    for parent in np.flatnonzero(queues.policy[: queues.n] == SDRF):
        rows = np.flatnonzero(queues.parent[: queues.n] == parent)
        weight = queues.weight[rows]
        queues.even[rows] = (total * (weight / weight.sum(axis=0))).astype(np.int64)


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
    return float(dominant_share(queues.mean[row] / MOMENTS_PER_TICK * 2.0**grain, total, queues.divisor(row)))


def goes_by_history(queues: Queues, row: int) -> bool:
    """Whether some policy above a queue goes by what was used before, however little that is."""
    while queues.parent[row] != NONE:
        row = int(queues.parent[row])
        if queues.policy[row] == SDRF or queues.policy[row] >= FAIRTREE:
            return True
    return False


def coarsen(queues: Queues, grain: I64, total: I64) -> None:
    """Have amounts be counted so coarsely that all of a cluster can be: `grain` is how many binary digits are cut off."""
    if not (total >> (grain + LARGEST_AMOUNT)).any():
        return
    digits = [int(quantity).bit_length() for quantity in total]
    coarser = np.maximum(grain, np.array(digits, np.int64) - LARGEST_AMOUNT)
    queues.mean >>= coarser - grain
    queues.recent >>= coarser - grain
    grain[:] = coarser


def fine_digits(most: I64, grain: I64) -> I64:
    """How many binary digits after the point charges have, of each resource: all of a quarter of a mean, where there is room.

    Without, who has used little of what is counted in thousandths, and the same of what is counted in bytes, would be charged
    for the one alone.

    Parameters
    ----------
    most : int64, shape (resources,)
        What is charged in all, at most; base units.
    grain : int64, shape (resources,)
    """
    digits = np.array([int(quantity).bit_length() for quantity in most], np.int64)
    return np.where(grain > 0, 0, np.clip(LARGEST_AMOUNT - digits, 0, QUARTER_SHIFT))
