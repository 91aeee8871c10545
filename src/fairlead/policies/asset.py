"""Asset fairness: equal aggregate shares, as if resources had prices and everybody the same budget.

Ghodsi et al., NSDI 2011, section 4.1.1. By default one percent of a resource is worth one percent of any other: a price is
the inverse of the capacity. It lacks the sharing incentive, and is here to be compared with.
"""

from fairlead.model.problems import Numbers, Problem
from fairlead.policies.contract import ByFilling
from fairlead.policies.drf import inverse, weighted_shares


def speed(problem: Problem) -> Numbers:
    """Tasks per unit of weighted aggregate share."""
    worth = problem.tasks * 0
    for column in weighted_shares(problem):
        worth = worth + column
    return inverse(worth)


def policy() -> ByFilling:
    """Asset fairness, divisible."""
    return ByFilling("asset", "equal sums of the shares of all resources", speed)
