"""Dominant Resource Fairness: the child with the smallest weighted dominant share goes next.

Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011, Algorithm 1; weights as
in its section 4.3: a share of resource j counts divided by the weight for resource j.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead.model.arrays import Numbers
    from fairlead.model.problems import Problem
    from fairlead.policies.by_filling import ByFilling


def dominant_resource(used: NDArray[np.int64], capacity: NDArray[np.int64], weight: NDArray[np.float64]) -> int:
    """Find the column that :func:`dominant_share` is reached at, the first of equals; -1 where nothing is used."""
    largest, column = 0.0, -1
    for r in range(used.shape[0]):
        if capacity[r] > 0 and used[r] / capacity[r] / weight[r] > largest:
            largest, column = used[r] / capacity[r] / weight[r], r
    return column


def speed(problem: "Problem") -> "Numbers":
    """Tasks per unit of weighted dominant share; a resource that there is nothing of has no share."""
    largest = problem.tasks * 0
    for _, column in weighted_shares(problem):
        largest = np.maximum(largest, column)
    return inverse(largest)


def weighted_shares(problem: "Problem") -> "Iterator[tuple[int, Numbers]]":
    """What one task of each user takes of each resource that there is any of, over its weight: columns with their places."""
    for j in np.flatnonzero(problem.capacity > 0):
        column, weight = problem.demand[:, j] / problem.capacity[j], problem.weight[:, j]
        yield int(j), column if weight.strides == (0,) and weight[0] == 1 else column / weight


def inverse(values: "Numbers") -> "Numbers":
    """1/x, and for 0, of a user who needs only what there is nothing of, 1: it gets nothing anyway."""
    return 1 / np.where(values > 0, values, values * 0 + 1)


def policy() -> "ByFilling":
    """Dominant Resource Fairness, divisible: progressive filling of the weighted dominant shares."""
    from fairlead.policies.by_filling import ByFilling

    return ByFilling("drf", "equal dominant shares: each one's share of what it uses most of", speed)
