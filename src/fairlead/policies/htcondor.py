"""HTCondor's user priorities: the user with the least recent use goes first; slots are inversely proportional to recent use.

HTCondor's manual, "User Priorities and Negotiation":

- The real user priority (RUP) is a fading average of a user's cores, with the half-life PRIORITY_HALFLIFE, and at least 0.5.
- The effective user priority (EUP) is the RUP times a factor. Smaller is better.

By these formulas a factor of 2000 grants half the cores of a factor of 1000. (The manual states twice.)
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from fairlead.policies.contract import PolicyError
from fairlead.policies.fading import Amount, OverTime, average

FLOOR = 0.5
"""Real priority of a user without past use, in cores."""
FACTOR = 1000.0
"""DEFAULT_PRIO_FACTOR: the factor for weight 1; weight 2 halves it."""
HALF_LIFE = 86_400.0
"""PRIORITY_HALFLIFE, in seconds."""


def real_priority(before: Amount, cores: Amount, elapsed: float, half_life: float = HALF_LIFE) -> Amount:
    """Advance a real user priority over a period in which the user used `cores` cores.

    Parameters
    ----------
    before, cores : float or float64 array
        Cores; a new user starts at :data:`FLOOR`.
    elapsed, half_life : float
        Seconds.

    Returns
    -------
    float or float64 array
        At least :data:`FLOOR`. Above that, it does not depend on how often it is computed.

    Raises
    ------
    PolicyError
        Negative `elapsed`, or an invalid half-life.
    """
    after = average(before, cores, elapsed, half_life)
    return after + (FLOOR - after) * (after < FLOOR)


def effective_priority(real: Amount, factor: float = FACTOR) -> Amount:
    """Compute the effective user priority: the real one times a factor of 1 or more, as HTCondor requires.

    Raises PolicyError for a smaller factor: with 0, use would not count.
    """
    if not 1.0 <= factor < math.inf:
        raise PolicyError(f"a priority factor of {factor:g} is not valid: write a number from 1 up; the default is {FACTOR:g}")
    return real * factor


def slots(effective: Sequence[Any], total: Any, wanted: Sequence[Any] | None = None) -> list[Fraction]:
    """Divide slots in inverse proportion to effective priorities. Slots that a user does not want go to the others likewise.

    Parameters
    ----------
    effective : sequence of numbers, length (users,)
        More than 0.
    total : number
        Slots in all.
    wanted : sequence of numbers, length (users,), optional
        Slots that each user can use; default: all.

    Returns
    -------
    list of Fraction, length (users,)
        Exact shares.

    Raises
    ------
    PolicyError
        A priority that is not above 0, or a negative or infinite number of slots.
    """
    part = []
    for i, priority in enumerate(effective):
        if not 0 < priority < math.inf:
            raise PolicyError(f"user {i} has the effective priority {priority}: write a number above 0")
        part.append(1 / Fraction(priority))
    wants = [total] * len(part) if wanted is None else wanted
    for name, amount in [("available", total), *((f"wanted by user {i}", each) for i, each in enumerate(wants))]:
        if not 0 <= amount < math.inf:
            raise PolicyError(f"{amount} slots are {name}: write 0 or more")
    most = [Fraction(each) for each in wants]
    found, left, parts = [Fraction(0)] * len(part), Fraction(total), sum(part, Fraction(0))
    # Users leave in the order in which proportional shares satisfy them.
    for i in sorted(range(len(part)), key=lambda i: most[i] / part[i]):
        found[i] = min(most[i], left * part[i] / parts)
        left, parts = left - found[i], parts - part[i]
    return found


POLICY = OverTime("htcondor", "shares in inverse proportion to recent use", resource="cpu")
"""HTCondor's user priorities among queues, by cores."""
