"""Slurm's Fair Tree: an account that has had less than its part goes first with all its users, before any of the next account.

Slurm's documentation, "Fair Tree Fairshare Algorithm" (Cox and Morrison, 2014), and "Multifactor Priority Plugin" for how usage
fades. In each account the level fairshare of a child is its part of the shares over its part of the usage. The tree is walked
depth first, the largest level first, and users are ranked as they are met. Everything about a rank is in fractions, so that a tie
is a tie.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fairlead.policies.contract import PolicyError
from fairlead.policies.fading import Amount, check_half_life
from fairlead.policies.over_time import OverTime

TOP = -1
"""The parent of those at the top of the tree."""
PERIOD = 300.0
"""PriorityCalcPeriod: usage fades, and ranks are found anew, so often. Seconds."""
HALF_LIFE = 7 * 86_400.0
"""PriorityDecayHalfLife, in seconds."""


def usage(before: Amount, rate: Amount, elapsed: float, half_life: float = HALF_LIFE) -> Amount:
    """Carry the raw usage on over one period, as Slurm does: add what was used in it, then fade all of it.

    Parameters
    ----------
    before : float or float64 array
        Raw usage: seconds of whatever is billed (CPUs, unless TRESBillingWeights says otherwise).
    rate : float or float64 array
        What is billed, on average over the period.
    elapsed : float
        Seconds since the last time; :data:`PERIOD` as a rule.
    half_life : float
        Seconds, 1 or more. A second leaves ``1 - 0.693 / half_life``, which is near to the half-life's own, not equal to it.

    Raises
    ------
    PolicyError
        Time goes back; or the half-life is 0, with which Slurm never fades anything, or endless.

    Notes
    -----
    Since what is new fades with what is old, usage hangs a little on how long a period is; siblings are faded alike.
    """
    return left_after(elapsed, half_life) * (before + rate * elapsed)


def left_after(elapsed: float, half_life: float) -> float:
    """Say what part of the raw usage is left after so many seconds, as Slurm works it out; see :func:`usage`."""
    if not elapsed >= 0:
        raise PolicyError(f"{elapsed:g} s have passed: time does not go back")
    return float((1.0 - 0.693 / check_half_life(half_life, least=1.0)) ** elapsed)


@dataclass(frozen=True)
class Ranking:
    """How a tree of accounts and users stands.

    level : list of Fraction or math.inf, one a row
        Level fairshare: above 1 is under-served, below 1 over-served.
    order : list of int
        The rows of the users, who is first before who is next.
    fairshare : list of Fraction, one a row
        Of a user its rank over the number of users: 1 is the first. Of an account 0.
    """

    level: list[Any]
    order: list[int]
    fairshare: list[Fraction]


def rank(parent: Sequence[int], shares: Sequence[Any], used: Sequence[Any], is_user: Sequence[bool]) -> Ranking:
    """Rank the users of a tree of accounts.

    Parameters
    ----------
    parent : sequence of int, length (rows,)
        The row of the account that a row is in, which comes before it; :data:`TOP` for those at the top.
    shares : sequence of numbers, length (rows,)
        More than 0.
    used : sequence of numbers, length (rows,)
        Faded usage, 0 or more.
    is_user : sequence of bool, length (rows,)
        False for an account.

    Returns
    -------
    Ranking

    Raises
    ------
    PolicyError
        Shares that are not above 0 (the row would come last whatever it used), a usage below 0, or no tree.

    Notes ----- Users who tie have the same rank. A user goes before an account that it ties with, whose first user has its rank.
    Accounts that tie have their children ranked as if they were one account's. Equals are in the order of their rows.

    Examples
    --------
    Two accounts with 40 and 60 shares that used 60 and 40; all users of the second come first.

    >>> found = rank([TOP, 0, 0, TOP, 3, 3], [40, 1, 1, 60, 1, 1], [60, 50, 10, 40, 40, 0], [0, 1, 1, 0, 1, 1])
    >>> found.order, [str(found.level[row]) for row in (0, 3)]
    ([5, 4, 2, 1], ['2/3', '3/2'])
    """
    children: dict[int, list[int]] = {TOP: []}
    for row, above in enumerate(parent):
        if not shares[row] > 0:
            raise PolicyError(f"row {row} has {shares[row]} shares: they are more than 0")
        if not 0 <= used[row] < math.inf:
            raise PolicyError(f"row {row} used {used[row]}: it is 0 or more")
        if not TOP <= above < row or (above != TOP and is_user[above]):
            raise PolicyError(f"row {row} is in row {above}: it is in an account that comes before it, or in {TOP}")
        children.setdefault(above, []).append(row)
    level: list[Any] = [math.inf] * len(parent)
    for rows in children.values():
        all_shares, all_used = sum(Fraction(shares[row]) for row in rows), sum(Fraction(used[row]) for row in rows)
        for row in rows:
            if used[row] > 0:
                level[row] = Fraction(shares[row]) / all_shares / (Fraction(used[row]) / all_used)
    met = list(_walk(children[TOP], False, children, level, is_user))
    fairshare, ranked = [Fraction(0)] * len(parent), 0
    for place, (row, tied) in enumerate(met):
        ranked = ranked if tied else len(met) - place
        fairshare[row] = Fraction(ranked, len(met))
    return Ranking(level, [row for row, _ in met], fairshare)


def _walk(
    rows: list[int], tied: bool, children: dict[int, list[int]], level: list[Any], is_user: Sequence[bool]
) -> Iterator[tuple[int, bool]]:
    """The users among these rows and below them in order, each with whether it ties with the one before it."""
    ordered = sorted(rows, key=lambda row: (-level[row], not is_user[row]))
    place = 0
    while place < len(ordered):
        row = ordered[place]
        tied = tied if place == 0 else level[ordered[place - 1]] == level[row]
        if is_user[row]:
            yield row, tied
            place += 1
            continue
        alike = [other for other in ordered[place:] if level[other] == level[row]]
        below = [child for account in alike for child in children.get(account, [])]
        yield from _walk(below, tied, children, level, is_user)
        place += len(alike)


def policy(resource: str = "cpu") -> OverTime:
    """Fair Tree among queues; as ``fairtree:gpu`` where it is not CPUs that are billed."""
    name = "fairtree" if resource == "cpu" else f"fairtree:{resource}"
    return OverTime(name, "who used least for its weight lately, as Slurm has it", resource, for_trees=True)
