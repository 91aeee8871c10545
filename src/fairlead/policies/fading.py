"""How past use fades: after one half-life, half of it is left.

A half-life that is 0, infinite or no number would silently turn fairness over time off, so it is refused.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fairlead.policies.contract import PolicyError, QueueOrder

Amount = TypeVar("Amount", float, NDArray[np.float64])
"""One number, or an array whose elements fade alike."""


def check_half_life(half_life: float, least: float = 0.0) -> float:
    """Return a half-life in seconds if it is more than 0, at least `least`, and finite.

    Raises
    ------
    PolicyError
        It is not; the message says what to write.
    """
    if not least <= half_life < math.inf or half_life == 0:
        message = f"a half-life of {half_life:g} s turns fairness over time off: write {max(1.0, least):g} s or more, such as 7d"
        raise PolicyError(message)
    return half_life


def left(elapsed: float, half_life: float) -> float:
    """Return the fraction left of what was used `elapsed` seconds ago.

    Raises PolicyError if `elapsed` is negative or the half-life is invalid.
    """
    if not elapsed >= 0:
        raise PolicyError(f"{elapsed:g} s have passed: time does not go back")
    return float(0.5 ** (elapsed / check_half_life(half_life)))


def average(before: Amount, used: Amount, elapsed: float, half_life: float) -> Amount:
    """Advance a fading average over a period of constant use.

    Parameters
    ----------
    before, used : float or float64 array, in the same units
        The average at the start, and the use during the period.
    elapsed, half_life : float
        Seconds.

    Returns
    -------
    float or float64 array
        ``b * before + (1 - b) * used`` with ``b = 0.5 ** (elapsed / half_life)``. Cutting the period into pieces gives the same.

    Raises
    ------
    PolicyError
        Negative `elapsed`, or an invalid half-life.
    """
    b = left(elapsed, half_life)
    return b * before + (1.0 - b) * used


@dataclass(frozen=True)
class OverTime(QueueOrder):
    """A policy that counts past use: a problem is one moment, without a past.

    resource : the resource whose use counts; empty: all
    for_trees : True if inner queues that name no policy inherit it
    """

    resource: str = ""
    for_trees: bool = False

    refusal = "counts past use, and a problem has no past: name it in fairlead.toml, or for simulate"
