"""The arithmetic of policies over one row of whole numbers, in the part of Python that numba compiles.

The scheduler's kernels call these as they stand; nothing else is in this file, so that whatever else is edited compiles nothing
anew.
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


def times_priority(used: float, priority: float) -> float:
    """Say how far somebody is along to the slots that it deserves, as HTCondor has it: in inverse proportion to its priority.

    Parameters
    ----------
    used : float
        Slots that it has, in any unit.
    priority : float
        Effective user priority: positive, smaller is better.

    Returns
    -------
    float
        The one with the smallest is the furthest below what it deserves; of those with nothing, the one with the best priority.
    """
    return used * priority if used > 0 else -1.0 / priority
