"""Asset fairness: equal aggregate shares, as if resources had prices and everybody the same budget.

Ghodsi et al., NSDI 2011, section 4.1.1. By default one percent of a resource is worth one percent of any other: a price is the
inverse of the capacity. It lacks the sharing incentive; it is here for comparison.
"""

from fractions import Fraction

from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem
from fairlead.model.quantity import plain_number
from fairlead.policies.contract import PolicyError
from fairlead.policies.drf import inverse, weighted_shares
from fairlead.policies.filling import ByFilling


def speed(problem: Problem, worth: dict[str, Fraction] | None = None) -> Numbers:
    """Return each user's tasks per unit of weighted aggregate share; `worth` prices whole resources (default 1 each)."""
    total = problem.tasks * 0
    for j, column in weighted_shares(problem):
        factor = (worth or {}).get(problem.resources[j], Fraction(1))
        total = total + column * (factor if column.dtype == object else float(factor))
    return inverse(total)


LEAST_PRICE = Fraction(1, 10**9)


def policy(*prices: str) -> ByFilling:
    """Asset fairness, divisible. Prices are those of whole resources, as in ``asset:cpu=2:memory=1``."""
    worth: dict[str, Fraction] = {}
    for word in prices:
        resource, _, price = word.partition("=")
        try:
            worth[resource] = Fraction(plain_number(price))
        except (ValueError, ZeroDivisionError):
            raise PolicyError(f"asset: {word!r} is not a price: write RESOURCE=NUMBER, such as asset:cpu=2") from None
        if not LEAST_PRICE <= worth[resource] <= 1 / LEAST_PRICE:
            raise PolicyError(f"asset: {word!r}: a price is a number from 1e-9 to 1e9")

    def priced(problem: Problem) -> Numbers:
        unknown = sorted(set(worth) - set(problem.resources))
        if unknown:
            raise PolicyError(f"asset: there is no {unknown[0]!r} to price: use one of {', '.join(problem.resources)}")
        return speed(problem, worth)

    return ByFilling(":".join(["asset", *prices]), "equal sums of the shares of all resources", priced)
