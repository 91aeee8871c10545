"""Siblings' fair shares of one resource, by weights, minimums and maximums: YARN's fair share, without its rounding.

Each sibling gets ``min(max(weight x R, minimum), maximum)``. R is the level at which the shares add up to the total; if no R
does, each gets its maximum (Apache Hadoop, ComputeFairShares). This is progressive filling over one resource
(:mod:`fairlead.policies.filling`). Minimums that exceed the total are scaled down, so shares never add up to more than the
total.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from fairlead.policies.filling import fill

EXACT = 100
"""Most siblings with shares in fractions; with more, floating point saves time."""


def divide(total: Fraction, weight: Sequence[float], least: Sequence[int], most: Sequence[int | None]) -> list[Fraction]:
    """Divide a quantity of one resource among siblings.

    Parameters
    ----------
    total : Fraction
        0 or more; in any unit.
    weight : sequence of float
        0 or more. A sibling of weight 0 gets its minimum.
    least, most : sequence of int
        Minimums and maximums in the same unit; None for no maximum. A maximum below the minimum wins.

    Returns
    -------
    list of Fraction
        Exact for up to 100 siblings; with more, to about 15 digits.

    Examples
    --------
    >>> [str(share) for share in divide(Fraction(45), [2, 1, 1, 0.5], [0] * 4, [10, 11, 30, 20])]
    ['10', '11', '16', '8']
    """
    floor = [Fraction(low) if high is None else Fraction(min(low, high)) for low, high in zip(least, most, strict=True)]
    promised = sum(floor, Fraction(0))
    if promised >= total:
        return [total * low / promised if promised else low for low in floor]
    exact = len(weight) <= EXACT
    number = (lambda x: Fraction(repr(x)) if isinstance(x, float) else Fraction(x)) if exact else float
    kind = object if exact else float
    n = len(weight)

    def column(values: Sequence[float | Fraction]) -> np.ndarray:
        return np.array([number(value) for value in values], kind)

    filled = fill(
        column([total]),
        column([1] * n).reshape(n, 1),
        column(weight),
        column([-1 if high is None else high for high in most]),
        column(floor),
        np.ones(n, np.bool_),
    )
    return [Fraction(share) for share in filled.tasks.tolist()]
