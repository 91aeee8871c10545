"""Slurm's Fair Tree: all users of an under-served account go before any user of the next account.

Slurm's documentation, "Fair Tree Fairshare Algorithm" (Cox and Morrison, 2014), and "Multifactor Priority Plugin" for how usage
fades. The level fairshare of a child is its fraction of the account's shares over its fraction of the account's usage. A
depth-first walk, largest level first, ranks the users. Ranks are computed in fractions, so that ties are exact.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fairlead.policies.contract import PolicyError
from fairlead.policies.fading import Amount, OverTime, check_half_life

TOP = -1
"""Parent of the rows at the top of the tree."""
PERIOD = 300.0
"""PriorityCalcPeriod, in seconds: how often usage fades and ranks are computed."""
HALF_LIFE = 7 * 86_400.0
"""PriorityDecayHalfLife, in seconds."""


def usage(before: Amount, rate: Amount, elapsed: float, half_life: float = HALF_LIFE) -> Amount:
    """Advance the raw usage over one period, as Slurm does: add the period's use, then fade the sum.

    Parameters
    ----------
    before : float or float64 array
        Raw usage: seconds of what is billed (CPUs, unless TRESBillingWeights is set).
    rate : float or float64 array
        Billed amount, on average over the period.
    elapsed : float
        Seconds since the last call, usually :data:`PERIOD`.
    half_life : float
        Seconds, 1 or more. A second leaves ``1 - 0.693 / half_life``, Slurm's approximation of ``0.5 ** (1 / half_life)``.

    Raises
    ------
    PolicyError
        Negative `elapsed`; or a half-life that is infinite, or 0 (with which Slurm never fades usage).

    Notes
    -----
    New usage fades with the old, so the result depends slightly on the length of a period. Siblings fade alike.
    """
    return left_after(elapsed, half_life) * (before + rate * elapsed)


def left_after(elapsed: float, half_life: float) -> float:
    """Return the fraction of the raw usage left after `elapsed` seconds, as Slurm computes it; see :func:`usage`."""
    if not elapsed >= 0:
        raise PolicyError(f"{elapsed:g} s have passed: time does not go back")
    return float((1.0 - 0.693 / check_half_life(half_life, least=1.0)) ** elapsed)


@dataclass(frozen=True)
class Ranking:
    """The ranking of a tree of accounts and users.

    `level` is the level fairshare of each row: above 1 is under-served, below 1 over-served. `order` has the rows of the users,
    the first to be served first. `fairshare` is of each row, too: a user's rank over the number of users, where 1 is the first;
    0 for an account.
    """

    level: list[Any]
    order: list[int]
    fairshare: list[Fraction]


def rank(parent: Sequence[int], shares: Sequence[Any], used: Sequence[Any], is_user: Sequence[bool]) -> Ranking:
    """Rank the users of a tree of accounts.

    Parameters
    ----------
    parent : sequence of int, length (rows,)
        Row of the account above, which must come first; :data:`TOP` for rows at the top.
    shares : sequence of numbers, length (rows,)
        More than 0.
    used : sequence of numbers, length (rows,)
        Faded usage, 0 or more.
    is_user : sequence of bool, length (rows,)
        False for an account.

    Raises
    ------
    PolicyError
        Shares not above 0 (the row would always be last), a negative usage, or rows that form no tree.

    Notes
    -----
    Users who tie have the same rank. A user goes before an account that it ties with; the account's first user has the same rank.
    Accounts that tie are ranked as one account. Equals keep the order of their rows.

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
            raise PolicyError(f"row {row} has {shares[row]} shares: write a number above 0")
        if not 0 <= used[row] < math.inf:
            raise PolicyError(f"row {row} used {used[row]}: write 0 or more")
        if not TOP <= above < row or (above != TOP and is_user[above]):
            raise PolicyError(f"row {row} is in row {above}: its account must come before it, or be {TOP}")
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
    """Yield the users in and below these rows in order, each with True if it ties with the one before."""
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
    """Fair Tree among queues. CPUs are billed by default; ``fairtree:gpu`` bills GPUs."""
    name = "fairtree" if resource == "cpu" else f"fairtree:{resource}"
    return OverTime(name, "least recent use for its weight first, as in Slurm", resource=resource, for_trees=True)
