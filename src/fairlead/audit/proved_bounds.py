"""Proved bounds in fractions of CEEI's numbers, which are roots of polynomials.

Krawczyk's test ("Newton-Algorithmen zur Bestimmung von Nullstellen mit Fehlerschranken", Computing 4, 1969), in fractions,
proves that a box around Newton's prices contains exactly one equilibrium. If it proves nothing (for example if prices are not
unique), there are no bounds.
"""

from fractions import Fraction

import numpy as np

from fairlead.model.arrays import Numbers, exact_array
from fairlead.model.problems import Problem
from fairlead.policies.contract import Division

BOX = Fraction(1, 10**8)
"""Half the width of the box around prices, relative to their sum."""


def equilibrium_bounds(problem: Problem, found: Division) -> tuple[Numbers, Numbers] | None:
    """Prove bounds on the users' tasks under CEEI: low and high in fractions, shape (users,); None if the test proves nothing.

    problem : in fractions
    found : its division in floating point, with its prices
    """
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
    low = [most[i] if full[i] else Fraction(0) for i in range(n)]
    high = [*low]
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
            return None  # no user is left to pay for scarce resources
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
    """Return a box of prices with exactly one solution of sum_i budget_i rows_ij / (prices . rows_i) = left_j, or None."""
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

    gap = [left[a] - sum((w * row[a] / c for w, row, c in zip(budget, rows, middle, strict=True)), Fraction(0)) for a in range(k)]
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
