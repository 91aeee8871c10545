"""What siblings should have of one resource, by their weights, minimums and maximums: YARN's fair share, without its rounding.

Everybody gets ``min(max(weight x R, minimum), maximum)`` for the level R at which that is all that there is, or else the maximum
of each (Apache Hadoop, ComputeFairShares). It is the progressive filling of :mod:`fairlead.policies.filling` over one resource.
Where the minimums alone are more than there is each gets the same part of its own; so shares never add up to more than there is.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from fairlead.policies.filling import fill

EXACT = 100
"""Siblings up to which shares are fractions; more are divided in floating point, or it would take too long."""


def divide(
    total: Fraction, weight: Sequence[float], least: Sequence[int], most: Sequence[int | None]
) -> list[Fraction]:
    """Divide so much of one resource among siblings.

    Parameters
    ----------
    total : Fraction
        0 or more; in any unit.
    weight : sequence of float
        0 or more. Who weighs 0 gets its minimum.
    least, most : sequence of int
        Minimums and maximums in the same unit; None for no maximum. One that is below the minimum holds.

    Returns
    -------
    list of Fraction
        Of up to 100 siblings to the last digit; of more to about the fifteenth.

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
