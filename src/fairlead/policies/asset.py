"""Asset fairness: equal aggregate shares, as if resources had prices and everybody the same budget.

Ghodsi et al., NSDI 2011, section 4.1.1. By default one percent of a resource is worth one percent of any other: a price is
the inverse of the capacity. It lacks the sharing incentive, and is here to be compared with.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairlead.policies.drf import inverse, weighted_shares

if TYPE_CHECKING:
    from fairlead.model.problems import Numbers, Problem
    from fairlead.policies.contract import ByFilling


def aggregate_share(used: NDArray[np.int64], capacity: NDArray[np.int64], weight: NDArray[np.float64]) -> float:
    """Compute the sum over resources of used / capacity / weight; see :func:`fairlead.policies.drf.dominant_share`."""
    total = 0.0
    for r in range(used.shape[0]):
        if capacity[r] > 0:
            total += used[r] / capacity[r] / weight[r]
    return total


def speed(problem: "Problem") -> "Numbers":
    """Tasks per unit of weighted aggregate share."""
    worth = problem.tasks * 0
    for column in weighted_shares(problem):
        worth = worth + column
    return inverse(worth)


def policy() -> "ByFilling":
    """Asset fairness, divisible."""
    from fairlead.policies.contract import ByFilling

    return ByFilling("asset", "equal sums of the shares of all resources", speed)
