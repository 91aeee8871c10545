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
    assert found.prices is not None
    most, _ = problem.most()
    there, budget = problem.capacity > 0, problem.weight[:, 0]
    shares = problem.demand[:, there] / problem.capacity[there]
    hopeless = (problem.demand[:, ~there] > 0).any(axis=1) | (most == 0)
    prices = exact_array(map(Fraction, found.prices[there].tolist())) * problem.capacity[there]
    scarce = prices > prices.sum() * BOX
    at, rows = prices[scarce], shares[:, scarce]
    full = ~hopeless & (most >= 0) & (most * (rows @ at) <= budget)
    free = ~hopeless & ~full
    low = most * full
    high, dearest = low.copy(), at
    if free.any():
        if not (rows[free] > 0).any(axis=1).all():
            return None
        box = _krawczyk(at, rows[free], budget[free], 1 - low[full] @ rows[full])
        if box is None:
            return None
        cheapest, dearest = box
        low[free], high[free] = budget[free] / (rows[free] @ dearest), budget[free] / (rows[free] @ cheapest)
        if ((most >= 0) & (most < high))[free].any():
            return None
    elif len(at):
        return None  # no user is left to pay for scarce resources
    if (most * (rows @ dearest) > budget)[full].any() or ((high @ shares)[~scarce] > 1).any():
        return None
    return low, high


def _krawczyk(at: Numbers, rows: Numbers, budget: Numbers, left: Numbers) -> tuple[Numbers, Numbers] | None:
    """Return a box of prices with exactly one solution of sum_i budget_i rows_ij / (prices . rows_i) = left_j, or None.

    As its lowest and its highest prices.
    """
    radius = at.sum() * BOX
    middle, reach = rows @ at, rows.sum(axis=1) * radius
    if (at <= 2 * radius).any() or (middle <= reach).any():
        return None

    def slopes(costs: Numbers) -> Numbers:
        return (rows.T * (budget / costs**2)) @ rows

    try:
        inverse = np.linalg.inv(slopes(middle).astype(np.float64))
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(inverse).all():
        return None
    y = exact_array(map(Fraction, inverse.ravel().tolist())).reshape(inverse.shape)
    centre = at - y @ (left - (budget / middle) @ rows)
    ends = [y[:, :, None] * slopes(costs) for costs in (middle + reach, middle - reach)]
    off = [np.eye(len(at), dtype=np.int64) - end.sum(axis=1) for end in (np.maximum(*ends), np.minimum(*ends))]
    spread = np.maximum(*map(np.abs, off)).sum(axis=1) * radius
    if (np.abs(centre - at) + spread >= radius).any():
        return None
    return centre - spread, centre + spread
