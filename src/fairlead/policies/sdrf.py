"""Stateful DRF: recent use beyond an even share counts in addition to the dominant share.

Sadok, Campista and Costa, "Stateful DRF: Considering the Past in a Multi-Resource Allocation", IEEE Transactions on Computers
70(7), 2021, as in the authors' simulator. A user's commitment of a resource is the fading average of its use beyond an even
share. The user with the smallest sum of dominant share and largest commitment goes next. While no user exceeds an even share,
this is DRF.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fairlead.policies.contract import PolicyError
from fairlead.policies.fading import OverTime, average

F64 = NDArray[np.float64]


def half_life_of(delta: float) -> float:
    """Convert the paper's delta, the fraction of a commitment that a second leaves, to a half-life in seconds.

    Raises
    ------
    PolicyError
        `delta` is not between 0 and 1. With 0 the past does not count; with 1 a commitment never grows. Both are plain DRF.
    """
    if not 0.0 < delta < 1.0:
        raise PolicyError(f"a delta of {delta:g} turns the past off: write a number between 0 and 1, such as 0.9999")
    return -math.log(2) / math.log(delta)


def commitment(before: F64, taken: F64, even_part: F64, elapsed: float, half_life: float) -> F64:
    """Advance commitments over a period of constant use.

    Parameters
    ----------
    before : float64 array, shape (..., resources)
        In units of the resource.
    taken : float64 array, shape (..., resources)
        A user's use, less what it contributed itself; may be negative.
    even_part : float64 array, shape (resources,) or as `taken`
        Capacity over the number of users, or a user's share by weight.
    elapsed, half_life : float
        Seconds.

    Returns
    -------
    float64 array, shape (..., resources)
        Average of the use beyond the even part; see :func:`fairlead.policies.fading.average`.

    Raises
    ------
    PolicyError
        Negative `elapsed`, or an invalid half-life.
    """
    return average(before, np.maximum(taken - even_part, 0.0), elapsed, half_life)


def priority(committed: F64, taken: F64, capacity: F64) -> F64:
    """Compute users' keys: dominant share plus largest commitment. The smallest is served next.

    Parameters
    ----------
    committed, taken : float64 array, shape (users, resources)
        See :func:`commitment`.
    capacity : float64 array, shape (resources,)
        More than 0.

    Returns
    -------
    float64 array, shape (users,)

    Raises
    ------
    PolicyError
        A resource has capacity 0: leave it out.
    """
    return _parts(taken, capacity).max(axis=-1) + _parts(committed, capacity).max(axis=-1)


def _parts(amounts: F64, capacity: F64) -> F64:
    if not (capacity > 0).all():
        raise PolicyError(f"resource {int(np.argmin(capacity > 0))} has a capacity that is not above 0: leave it out")
    return amounts / capacity


def growth(committed: F64, taken: F64, even_part: F64, capacity: F64) -> F64:
    """Compute the tie-breaker of equal priorities: the priority that grows least goes first.

    Returns
    -------
    float64 array, shape (users,)
        Initial growth of the commitment of the dominant resource (the last among equals), over capacity, per half-life. Equal
        users keep the order of their rows.
    """
    share = _parts(taken, capacity)
    dominant = share.shape[-1] - 1 - share[..., ::-1].argmax(axis=-1, keepdims=True)
    grows = _parts(np.maximum(taken - even_part, 0.0) - committed, capacity)
    return np.take_along_axis(grows, dominant, axis=-1)[..., 0]


def goes_first(committed: F64, taken: F64, even_part: F64, capacity: F64) -> NDArray[np.int64]:
    """Sort users by priority, then by its growth, then by row.

    Returns
    -------
    int64 array, shape (users,)
        Rows, the first to be served first.
    """
    return np.lexsort((growth(committed, taken, even_part, capacity), priority(committed, taken, capacity)))


POLICY = OverTime("sdrf", "drf, and recent use beyond an even share counts against a user")
"""Stateful DRF among queues."""
