"""How past use is counted: ticks per half-life, and the precision of amounts. The kernels do the counting itself."""

from collections.abc import Iterable

import numpy as np

from fairlead.policies.codes import FAIRTREE, SDRF
from fairlead.policies.drf import dominant_share
from fairlead.scheduler.kernel.constants import MOMENTS_PER_TICK, QUARTER_SHIFT
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.tables import F64, I64, Queues

LARGEST_AMOUNT_BITS = 49
"""Binary digits of a counted amount."""


def reset_changed_history(queues: Queues, before: I64) -> None:
    """Clear history that changed its meaning: under sdrf it only counts use beyond an even share.

    before : int64, shape (queues,): the policies before; there may be more queues now
    """
    policy = queues.policy[: queues.n]
    others = (policy == SDRF) != (np.concatenate([before, policy[len(before) :]]) == SDRF)
    rows = np.flatnonzero(others[queues.parent[1 : queues.n]]) + 1
    queues.mean[rows] = queues.recent[rows] = 0


def share_evenly(queues: Queues, total: I64, parents: Iterable[int] | None = None) -> None:
    """Write what children of sdrf queues are entitled to by their weight among all their siblings, active or not."""
    if parents is None:
        parents = np.flatnonzero(queues.policy[: queues.n] == SDRF).tolist()
    for parent in (up for up in parents if queues.policy[up] == SDRF):
        rows = np.flatnonzero(queues.parent[: queues.n] == parent)
        weight = queues.weight[rows]
        queues.even[rows] = (total * (weight / weight.sum(axis=0))).astype(np.int64)


def begin_ticks(queues: Queues, before: F64, elapsed: float) -> None:
    """Start the current tick of queues whose ticks changed.

    Use since the last tick that ended is forgotten; all history is, if there are no ticks any more.

    before : float64, shape (queues,): seconds per tick before; there may be more queues now
    elapsed : seconds since ticks are counted
    """
    tick = queues.tick[: queues.n]
    others = tick != np.concatenate([before, np.zeros(len(tick) - len(before))])
    queues.ticks[: queues.n][others] = np.floor_divide(elapsed, tick, out=np.zeros(len(tick)), where=tick > 0)[others]
    parent = queues.parent[1 : queues.n]
    queues.recent[1 : queues.n][others[parent]] = 0
    queues.moment[1 : queues.n][others[parent]] = 0
    queues.mean[1 : queues.n][tick[parent] == 0] = 0


def share_over_time(queues: Queues, row: int, grain: I64, total: I64) -> float:
    """Return the dominant share of a queue's whole past use, over its weight."""
    return float(dominant_share(queues.mean[row] / MOMENTS_PER_TICK * 2.0**grain, total, queues.divisor(row)))


def goes_by_history(queues: Queues, row: int) -> bool:
    """True if a policy above a queue compares past use, however small."""
    policies = queues.policy[up_to_root(queues, row)[1:]]
    return bool(((policies == SDRF) | (policies >= FAIRTREE)).any())


def coarsen(queues: Queues, grain: I64, total: I64) -> None:
    """Raise `grain`, the binary digits dropped from amounts, until the whole cluster can be counted."""
    if not (total >> (grain + LARGEST_AMOUNT_BITS)).any():
        return
    digits = [int(quantity).bit_length() for quantity in total]
    coarser = np.maximum(grain, np.array(digits, np.int64) - LARGEST_AMOUNT_BITS)
    queues.mean >>= coarser - grain
    queues.recent >>= coarser - grain
    grain[:] = coarser


def fine_digits(most: I64, grain: I64) -> I64:
    """Return the binary digits after the point that charges have, per resource: up to all of a quarter of a mean.

    Without them, a queue that used little would be charged for resources counted in bytes, but not for those in thousandths.
    `most` is an upper bound of the total charge, in base units.
    """
    digits = np.array([int(quantity).bit_length() for quantity in most], np.int64)
    return np.where(grain > 0, 0, np.clip(LARGEST_AMOUNT_BITS - digits, 0, QUARTER_SHIFT))
