"""Stateful DRF: who took more than an even part lately has committed itself, and that counts beside its dominant share.

Sadok, Campista and Costa, "Stateful DRF: Considering the Past in a Multi-Resource Allocation", IEEE Transactions on Computers
70(7), 2021, as the authors' simulator has it. Of each resource a user's commitment is an average, that fades, of what it took
beyond its even part of the whole. The smallest sum of dominant share and largest commitment goes next. While nobody takes more
than an even part this is DRF.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fairlead.policies.contract import PolicyError
from fairlead.policies.fading import average
from fairlead.policies.over_time import OverTime

F64 = NDArray[np.float64]


def half_life_of(delta: float) -> float:
    """Turn the paper's delta, what a second leaves of a commitment, into a half-life in seconds.

    Raises
    ------
    PolicyError
        It is not between 0 and 1: with 0 the past does not count, and with 1 a commitment never grows. Either is DRF by another
        name.
    """
    if not 0.0 < delta < 1.0:
        raise PolicyError(f"a delta of {delta:g} turns the past off: write a number between 0 and 1, such as 0.9999")
    return -math.log(2) / math.log(delta)


def commitment(before: F64, taken: F64, even_part: F64, elapsed: float, half_life: float) -> F64:
    """Carry commitments on over a time in which nobody took or gave back anything.

    Parameters
    ----------
    before : float64 array, shape (..., resources)
        In units of the resource.
    taken : float64 array, shape (..., resources)
        What somebody has of what is shared: what it uses, less what it brought itself. May be below 0.
    even_part : float64 array, shape (resources,) or as `taken`
        The whole over the number of users; or another part that somebody is entitled to, by its weight.
    elapsed, half_life : float
        Seconds.

    Returns
    -------
    float64 array, shape (..., resources)
        What is taken beyond the even part, averaged; see :func:`fairlead.policies.fading.average`.

    Raises
    ------
    PolicyError
        Time goes back, or by this half-life nothing fades.
    """
    return average(before, np.maximum(taken - even_part, 0.0), elapsed, half_life)


def priority(committed: F64, taken: F64, capacity: F64) -> F64:
    """Work out who goes next: the smallest dominant share and largest commitment together.

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
        There is nothing of a resource: nobody has a share of it, so leave it out.
    """
    share: F64 = _parts(taken, capacity).max(axis=-1) + _parts(committed, capacity).max(axis=-1)
    return share


def _parts(amounts: F64, capacity: F64) -> F64:
    """Amounts as parts of the whole."""
    if not (capacity > 0).all():
        raise PolicyError(f"resource {int(np.argmin(capacity > 0))} has a capacity that is not above 0: leave it out")
    parts: F64 = amounts / capacity
    return parts


def growth(committed: F64, taken: F64, even_part: F64, capacity: F64) -> F64:
    """Tell who of those with the same priority goes first: the one whose priority grows least.

    Returns
    -------
    float64 array, shape (users,)
        By how much the commitment of the dominant resource (of equals, the last) grows, in parts of the whole, in a time so short
        that it does not bend; a half-life's worth of it. Those who are the same here go in the order of their rows.
    """
    share = _parts(taken, capacity)
    dominant = share.shape[-1] - 1 - share[..., ::-1].argmax(axis=-1, keepdims=True)
    grows = _parts(np.maximum(taken - even_part, 0.0) - committed, capacity)
    chosen: F64 = np.take_along_axis(grows, dominant, axis=-1)[..., 0]
    return chosen


def goes_first(committed: F64, taken: F64, even_part: F64, capacity: F64) -> NDArray[np.int64]:
    """Put users in order: by priority, then by its growth, then by row.

    Returns
    -------
    int64 array, shape (users,)
        Rows, who is first before who is next.
    """
    found: NDArray[np.int64] = np.lexsort(
        (growth(committed, taken, even_part, capacity), priority(committed, taken, capacity))
    )
    return found


def policy() -> OverTime:
    """Stateful DRF among queues."""
    return OverTime("sdrf", "drf, and who took more than an even part lately goes later")
