"""HTCondor's user priorities: who used least lately goes first, and deserves slots in inverse proportion to what it used.

HTCondor's manual, "User Priorities and Negotiation". The real user priority (RUP) is an average of the cores that somebody uses,
that fades by half in PRIORITY_HALFLIFE and is never below 0.5; the effective one (EUP) is that times a factor, and smaller is
better. (The manual says of a factor of 2000 that it grants twice the cores that 1000 does; by its own formulas it is a half of
them.)
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from fairlead.policies.contract import PolicyError
from fairlead.policies.fading import Amount, average
from fairlead.policies.over_time import OverTime

FLOOR = 0.5
"""The real priority of who has not used anything, in cores."""
FACTOR = 1000.0
"""DEFAULT_PRIO_FACTOR: what weight 1 comes to. Who weighs twice as much has a half of it."""
HALF_LIFE = 86_400.0
"""PRIORITY_HALFLIFE, in seconds."""


def real_priority(before: Amount, cores: Amount, elapsed: float, half_life: float = HALF_LIFE) -> Amount:
    """Carry a real user priority on over a time in which somebody used so many cores.

    Parameters
    ----------
    before, cores : float or float64 array
        Cores; who is new starts at :data:`FLOOR`.
    elapsed, half_life : float
        Seconds.

    Returns
    -------
    float or float64 array
        At least :data:`FLOOR`. Above that it does not hang on how often it is worked out.

    Raises
    ------
    PolicyError
        Time goes back, or by this half-life nothing fades.
    """
    after = average(before, cores, elapsed, half_life)
    return after + (FLOOR - after) * (after < FLOOR)


def effective_priority(real: Amount, factor: float = FACTOR) -> Amount:
    """Work out the effective user priority: the real one times a factor, of 1 or more as HTCondor has it.

    Raises PolicyError for a factor below 1: with 0, whatever somebody uses would count as nothing.
    """
    if not 1.0 <= factor < math.inf:
        raise PolicyError(
            f"a priority factor of {factor:g} is none: write a number from 1 up; {FACTOR:g} is everybody's"
        )
    return real * factor


def slots(effective: Sequence[Any], total: Any, wanted: Sequence[Any] | None = None) -> list[Fraction]:
    """Divide slots in inverse proportion to effective priorities; what somebody does not want is divided among the others alike.

    Parameters
    ----------
    effective : sequence of numbers, length (users,)
        More than 0.
    total : number
        Slots there are.
    wanted : sequence of numbers, length (users,), optional
        The most that each can use; without it, all of them.

    Returns
    -------
    list of Fraction, length (users,)
        What each deserves, exactly.

    Raises
    ------
    PolicyError
        A priority is not a number above 0, or slots are not 0 or more.
    """
    part = []
    for i, priority in enumerate(effective):
        if not 0 < priority < math.inf:
            raise PolicyError(f"user {i} has the effective priority {priority}: it is a number above 0")
        part.append(1 / Fraction(priority))
    wants = [total] * len(part) if wanted is None else wanted
    for name, amount in [("there", total), *((f"wanted by user {i}", each) for i, each in enumerate(wants))]:
        if not 0 <= amount < math.inf:
            raise PolicyError(f"{amount} slots are {name}: it is 0 or more")
    most = [Fraction(each) for each in wants]
    found, left, parts = [Fraction(0)] * len(part), Fraction(total), sum(part, Fraction(0))
    # Whoever is content first, when all are given slots in proportion to their parts, is the first to be taken out.
    for i in sorted(range(len(part)), key=lambda i: most[i] / part[i]):
        found[i] = min(most[i], left * part[i] / parts)
        left, parts = left - found[i], parts - part[i]
    return found


def policy() -> OverTime:
    """HTCondor's user priorities among queues; what counts is cores."""
    return OverTime("htcondor", "parts in inverse proportion to what was used lately", "cpu")
