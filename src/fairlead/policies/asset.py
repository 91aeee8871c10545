"""Asset fairness: equal aggregate shares, as if resources had prices and everybody the same budget.

Ghodsi et al., NSDI 2011, section 4.1.1. By default one percent of a resource is worth one percent of any other: a price is
the inverse of the capacity. It lacks the sharing incentive, and is here to be compared with.
"""

from fractions import Fraction
from typing import TYPE_CHECKING

from fairlead.model.quantity import plain_number
from fairlead.policies.drf import inverse, weighted_shares

if TYPE_CHECKING:
    from fairlead.model.arrays import Numbers
    from fairlead.model.problems import Problem
    from fairlead.policies.by_filling import ByFilling


def speed(problem: "Problem", worth: dict[str, Fraction] | None = None) -> "Numbers":
    """Tasks per unit of weighted aggregate share; `worth` says what the whole of a resource is worth, if not 1."""
    total = problem.tasks * 0
    for j, column in weighted_shares(problem):
        factor = (worth or {}).get(problem.resources[j], Fraction(1))
        total = total + column * (factor if column.dtype == object else float(factor))
    return inverse(total)


LEAST_PRICE = Fraction(1, 10**9)


def policy(*prices: str) -> "ByFilling":
    """Asset fairness, divisible; with prices, as ``asset:cpu=2:memory=1``: what the whole of a resource is worth."""
    from fairlead.policies.by_filling import ByFilling
    from fairlead.policies.contract import PolicyError

    worth: dict[str, Fraction] = {}
    for word in prices:
        resource, _, price = word.partition("=")
        try:
            worth[resource] = Fraction(plain_number(price))
        except (ValueError, ZeroDivisionError):
            raise PolicyError(f"asset: {word!r} is no price: write RESOURCE=NUMBER, such as asset:cpu=2") from None
        if not LEAST_PRICE <= worth[resource] <= 1 / LEAST_PRICE:
            raise PolicyError(f"asset: {word!r}: a price is a number from 1e-9 to 1e9")

    def priced(problem: "Problem") -> "Numbers":
        unknown = sorted(set(worth) - set(problem.resources))
        if unknown:
            raise PolicyError(f"asset: there is no {unknown[0]!r} to price: use one of {', '.join(problem.resources)}")
        return speed(problem, worth)

    return ByFilling(":".join(["asset", *prices]), "equal sums of the shares of all resources", priced)
