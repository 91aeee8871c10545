"""What a policy gives, in fractions: exactly where it can, else between bounds.

- A policy that divides fractions gives exact numbers.
- CEEI's are roots of polynomials. The prices that Newton's method finds are put in a box, and Krawczyk's test
  ("Newton-Algorithmen zur Bestimmung von Nullstellen mit Fehlerschranken", Computing 4, 1969), in fractions, proves that exactly
  one equilibrium lies in it. Where it proves nothing (as where prices are not unique) there is no answer.
- Any other policy's floats are taken for right to a millionth.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from fairlead.model.problems import Numbers, Problem, exact_array
from fairlead.policies.ceei import Ceei
from fairlead.policies.contract import DividingPolicy, Division
from fairlead.policies.discrete import OrderingPolicy, place
from fairlead.policies.tree import Collapsed, Tree

WITHIN = Fraction(1, 10**6)
"""How far off, in parts of the number or of a task, floating point may be."""
BOX = Fraction(1, 10**8)
"""Half the width of the box around prices, in parts of their sum."""


@dataclass(frozen=True)
class Given:
    """Who has how many tasks of a problem.

    problem : Problem
        In fractions, or in floats where speed matters more than certainty.
    low, high : shape (users,)
        Bounds of the number of tasks; the same where it is known exactly.
    placed : shape (users, kinds), optional
        On which of the machines that differ.
    whole : bool
        Whether tasks are indivisible: fair then means within one task.
    how : str
        How certain the numbers are.
    """

    problem: Problem
    low: Numbers
    high: Numbers
    placed: Numbers | None = None
    whole: bool = False
    how: str = "exact"


def suited(problem: Problem, policy: DividingPolicy) -> Problem:
    """The problem without its tree, for a policy that takes no notice of it."""
    if isinstance(policy, Tree | Collapsed) or not any(problem.queues):
        return problem
    return replace(problem, queues=[""] * len(problem.users))


def give(problem: Problem, policy: DividingPolicy) -> Given | None:
    """Divide a problem and say between which bounds the numbers lie.

    Parameters
    ----------
    problem : Problem
        In fractions.
    policy : DividingPolicy

    Returns
    -------
    Given, or None
        None where no bounds could be proved.

    Raises
    ------
    PolicyError
        The policy does not divide such a problem.
    """
    if not len(problem.users):
        nothing = exact_array([])
        return Given(problem, nothing, nothing)
    if isinstance(policy, Ceei):
        bounds = _equilibrium(problem, policy.divide(problem.floats()))
        return Given(problem, *bounds, how="within proved bounds") if bounds else None
    try:
        exact = policy.divide(problem)
    except Exception:  # not in fractions, says a PolicyError; somebody else's may raise anything: its floats are next
        exact = None
    if exact is not None and all(isinstance(x, Fraction | int) for x in exact.tasks):
        return Given(problem, exact.tasks, exact.tasks, exact.placed)
    division = policy.divide(problem.floats())
    tasks = [Fraction(float(x)) for x in division.tasks]
    off = [WITHIN * max(Fraction(1), x) for x in tasks]
    low = exact_array(max(Fraction(0), x - o) for x, o in zip(tasks, off, strict=True))
    high = exact_array(x + o for x, o in zip(tasks, off, strict=True))
    return Given(problem, low, high, division.placed, how="in floating point, taken for right to a millionth")


def give_floats(problem: Problem, policy: DividingPolicy) -> Given:
    """Divide a problem in floating point, for a first look."""
    division = policy.divide(problem)
    return Given(problem, division.tasks, division.tasks, division.placed)


def give_whole(problem: Problem, policy: OrderingPolicy) -> Given:
    """Serve whole tasks one after another."""
    tasks = place(problem, policy)[0].tasks
    return Given(problem, tasks, tasks, whole=True)


def taken(problem: Problem, tasks: Sequence[Any], whole: bool = False) -> Given:
    """An allocation from elsewhere; floats count as the decimals that they are written as."""
    numbers = exact_array(Fraction(x) if isinstance(x, int | Fraction) else Fraction(repr(float(x))) for x in tasks)
    rounded = any(isinstance(x, float) and not float(x).is_integer() for x in tasks)
    off = WITHIN if rounded else Fraction(0)
    low = exact_array(max(Fraction(0), x - off * max(1, x)) for x in numbers)
    high = exact_array(x + off * max(1, x) for x in numbers)
    how = "as given, decimals to a millionth" if rounded else "as given"
    return Given(problem, low, high, whole=whole, how=how)


def _equilibrium(problem: Problem, found: Division) -> tuple[Numbers, Numbers] | None:
    """Bounds of CEEI's tasks, proved; None where the test proves nothing."""
    n, m = problem.demand.shape
    assert found.prices is not None
    most, _ = problem.most()
    there = [j for j in range(m) if problem.capacity[j] > 0]
    shares = [[problem.demand[i, j] / problem.capacity[j] for j in there] for i in range(n)]
    budget = [problem.weight[i, 0] for i in range(n)]
    hopeless = [any(problem.demand[i, j] > 0 for j in range(m) if j not in there) or most[i] == 0 for i in range(n)]
    prices = [Fraction(float(found.prices[j])) * problem.capacity[j] for j in there]
    total = sum(prices, Fraction(0))
    scarce = [j for j in range(len(there)) if prices[j] > total * BOX]
    cost = [sum((shares[i][j] * prices[j] for j in scarce), Fraction(0)) for i in range(n)]
    full = [not hopeless[i] and most[i] >= 0 and most[i] * cost[i] <= budget[i] for i in range(n)]
    free = [i for i in range(n) if not hopeless[i] and not full[i]]
    low, high = [Fraction(0)] * n, [Fraction(0)] * n
    for i in range(n):
        if full[i]:
            low[i] = high[i] = most[i]
    at = [prices[j] for j in scarce]
    rows = {i: [shares[i][j] for j in scarce] for i in range(n)}
    if free:
        if any(not any(rows[i]) for i in free):
            return None
        left = [1 - sum((low[i] * rows[i][a] for i in range(n) if full[i]), Fraction(0)) for a in range(len(scarce))]
        box = _krawczyk(at, [rows[i] for i in free], [budget[i] for i in free], left)
        if box is None:
            return None
        for i in free:
            dear = sum((s * top for s, (_, top) in zip(rows[i], box, strict=True)), Fraction(0))
            cheap = sum((s * bottom for s, (bottom, _) in zip(rows[i], box, strict=True)), Fraction(0))
            low[i], high[i] = budget[i] / dear, budget[i] / cheap
            if 0 <= most[i] < high[i]:
                return None
    else:
        box = [(p, p) for p in at]
        if at:
            return None  # nobody is left to pay for what is scarce
    for i in range(n):
        dear = sum((s * top for s, (_, top) in zip(rows[i], box, strict=True)), Fraction(0))
        if full[i] and most[i] * dear > budget[i]:
            return None
    for j in range(len(there)):
        if j not in scarce and sum((high[i] * shares[i][j] for i in range(n)), Fraction(0)) > 1:
            return None
    return exact_array(low), exact_array(high)


def _krawczyk(
    at: list[Fraction], rows: list[list[Fraction]], budget: list[Fraction], left: list[Fraction]
) -> list[tuple[Fraction, Fraction]] | None:
    """A box of prices with exactly one solution of sum_i budget_i rows_ij / (prices . rows_i) = left_j, or None."""
    k = len(at)
    radius = sum(at, Fraction(0)) * BOX
    if any(p <= 2 * radius for p in at):
        return None
    middle = [sum((s * p for s, p in zip(row, at, strict=True)), Fraction(0)) for row in rows]
    lowest = [m - radius * sum(row, Fraction(0)) for m, row in zip(middle, rows, strict=True)]
    highest = [m + radius * sum(row, Fraction(0)) for m, row in zip(middle, rows, strict=True)]
    if any(x <= 0 for x in lowest):
        return None

    def slope(a: int, b: int, costs: list[Fraction]) -> Fraction:
        parts = (w * row[a] * row[b] / c**2 for w, row, c in zip(budget, rows, costs, strict=True))
        return sum(parts, Fraction(0))

    gap = [
        left[a] - sum((w * row[a] / c for w, row, c in zip(budget, rows, middle, strict=True)), Fraction(0))
        for a in range(k)
    ]
    matrix = np.array([[float(slope(a, b, middle)) for b in range(k)] for a in range(k)])
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(inverse).all():
        return None
    y = [[Fraction(float(x)) for x in row] for row in inverse]
    bounds = [[(slope(a, b, highest), slope(a, b, lowest)) for b in range(k)] for a in range(k)]
    box = []
    for a in range(k):
        centre = at[a] - sum((y[a][b] * gap[b] for b in range(k)), Fraction(0))
        spread = Fraction(0)
        for b in range(k):
            low = high = Fraction(int(a == b))
            for c in range(k):
                ends = (y[a][c] * bounds[c][b][0], y[a][c] * bounds[c][b][1])
                low, high = low - max(ends), high - min(ends)
            spread += max(abs(low), abs(high)) * radius
        if abs(centre - at[a]) + spread >= radius:
            return None
        box.append((centre - spread, centre + spread))
    return box
