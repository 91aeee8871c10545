"""How what was used fades: a half-life is the time after which a half of it is left.

What is averaged over time must fade, or it never moves: so a half-life that is 0, endless, or no number would turn fairness
over time off without a word, and is refused.
"""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fairlead.policies.contract import PolicyError

Amount = TypeVar("Amount", float, NDArray[np.float64])
"""One number, or an array of them, each faded alike."""


def check_half_life(half_life: float, least: float = 0.0) -> float:
    """Give a half-life back, in seconds, if things fade by it: more than 0, not below `least`, and not endless.

    Raises
    ------
    PolicyError
        It does not, so fairness over time would be off; the message says what to write.
    """
    if not least <= half_life < math.inf or half_life == 0:
        raise PolicyError(
            f"a half-life of {half_life:g} s turns fairness over time off: write {max(1.0, least):g} s or more, such as 7d"
        )
    return half_life


def left(elapsed: float, half_life: float) -> float:
    """Say what part is left of what was used so many seconds ago; time never goes back.

    Raises PolicyError for a half-life by which nothing fades.
    """
    if not elapsed >= 0:
        raise PolicyError(f"{elapsed:g} s have passed: time does not go back")
    return float(0.5 ** (elapsed / check_half_life(half_life)))


def average(before: Amount, used: Amount, elapsed: float, half_life: float) -> Amount:
    """Carry an average that fades on, over a time in which `used` did not change.

    Parameters
    ----------
    before, used : float or float64 array, in the same units
        The average at the start, and what was used all the time since.
    elapsed, half_life : float
        Seconds.

    Returns
    -------
    float or float64 array
        ``b * before + (1 - b) * used`` with ``b = 0.5 ** (elapsed / half_life)``. It lies between the two, and does not hang on
        how a time is cut into pieces.

    Raises
    ------
    PolicyError
        Time goes back, or nothing would fade.
    """
    b = left(elapsed, half_life)
    return b * before + (1.0 - b) * used
