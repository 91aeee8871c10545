"""The arithmetic of policies over one row of whole numbers."""

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
