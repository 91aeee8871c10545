"""Dominant Resource Fairness: the child with the smallest weighted dominant share goes next.

Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011, Algorithm 1; weights as
in its section 4.3: a share of resource j counts divided by the weight for resource j.
"""

import numpy as np
from numpy.typing import NDArray


def dominant_share(used: NDArray[np.int64], capacity: NDArray[np.int64], weight: NDArray[np.float64]) -> float:
    """Compute max over resources of used / capacity / weight.

    Parameters
    ----------
    used, capacity : int64 array, shape (resources,)
        Base units. A resource that the cluster has none of has no share.
    weight : float64 array, shape (resources,)
        Positive.
    """
    largest = 0.0
    for r in range(used.shape[0]):
        if capacity[r] > 0:
            share = used[r] / capacity[r] / weight[r]
            largest = max(largest, share)
    return largest


def dominant_resource(used: NDArray[np.int64], capacity: NDArray[np.int64], weight: NDArray[np.float64]) -> int:
    """Find the column that :func:`dominant_share` is reached at, the first of equals; -1 where nothing is used."""
    largest, column = 0.0, -1
    for r in range(used.shape[0]):
        if capacity[r] > 0 and used[r] / capacity[r] / weight[r] > largest:
            largest, column = used[r] / capacity[r] / weight[r], r
    return column
