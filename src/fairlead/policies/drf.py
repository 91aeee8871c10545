"""Dominant Resource Fairness: the child with the smallest weighted dominant share is served next.

Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011, Algorithm 1. Weights are those
of section 4.3: the share of resource j is divided by the weight for resource j.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem
from fairlead.policies.filling import ByFilling


def dominant_share(used: NDArray[np.int64], capacity: NDArray[np.int64], weight: NDArray[np.float64]) -> float:
    """Compute max over resources of used / capacity / weight, each of shape (resources,); a resource of capacity 0 is ignored."""
    return max((used[r] / capacity[r] / weight[r] for r in range(len(used)) if capacity[r] > 0), default=0.0)


def dominant_resource(used: NDArray[np.int64], capacity: NDArray[np.int64], weight: NDArray[np.float64]) -> int:
    """Return the column of the dominant share, the first among equals; -1 if nothing is used."""
    largest, column = 0.0, -1
    for r in range(used.shape[0]):
        if capacity[r] > 0 and used[r] / capacity[r] / weight[r] > largest:
            largest, column = used[r] / capacity[r] / weight[r], r
    return column


def speed(problem: Problem) -> Numbers:
    """Return each user's tasks per unit of weighted dominant share. A resource of capacity 0 is ignored."""
    largest = problem.tasks * 0
    for _, column in weighted_shares(problem):
        largest = np.maximum(largest, column)
    return inverse(largest)


def weighted_shares(problem: Problem) -> Iterator[tuple[int, Numbers]]:
    """Yield each resource with capacity: its column, and each user's share of it for one task, over the weight."""
    for j in np.flatnonzero(problem.capacity > 0):
        column, weight = problem.demand[:, j] / problem.capacity[j], problem.weight[:, j]
        yield int(j), column if weight.strides == (0,) and weight[0] == 1 else column / weight


def inverse(values: Numbers) -> Numbers:
    """Return 1/x. A 0 gives 1: that user needs only resources of capacity 0, and gets nothing anyway."""
    return 1 / np.where(values > 0, values, values * 0 + 1)


POLICY = ByFilling("drf", "equal dominant shares: each one's share of what it uses most of", speed)
"""Dominant Resource Fairness, divisible: progressive filling of the weighted dominant shares."""
