"""Max-min fairness on one resource, which YARN calls fair. Use of other resources does not count.

A user that needs none of the resource always has share 0, so it goes first: such users are filled before the others, by dominant
share.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.problems import Problem
from fairlead.policies import drf
from fairlead.policies.contract import Division, Order, PolicyError
from fairlead.policies.discrete import by_rate
from fairlead.policies.filling import fill, filled_to_guarantees


@dataclass(frozen=True)
class MaxMin:
    """Max-min fairness on a resource, as ``maxmin:memory``."""

    resource: str = ""

    def __post_init__(self) -> None:
        if not self.resource:
            raise PolicyError("maxmin: names no resource: write maxmin:RESOURCE, such as maxmin:memory")

    @property
    def name(self) -> str:
        return f"maxmin:{self.resource}"

    @property
    def summary(self) -> str:
        return f"equal shares of {self.resource}, whatever else is used"

    def divide(self, problem: Problem) -> Division:
        """Fill users below a guarantee, then those that need none of the resource, then all others by their share of it."""
        column = self._column(problem)
        needs = problem.demand[:, column] > 0
        there = problem.capacity[column] > 0
        share = problem.demand[:, column] / problem.weight[:, column]
        speed = np.where(needs, drf.inverse(share / problem.capacity[column] if there else share), drf.speed(problem))
        most, limited = problem.most()
        first = filled_to_guarantees(problem, speed)
        floor = fill(problem.capacity, problem.demand, speed * ~needs, most, first, limited)
        rest = fill(problem.capacity, problem.demand, speed * needs, most, floor.tasks, limited)
        return Division(rest.tasks, np.where(needs, rest.stop, floor.stop), rest.round)

    def indivisible(self, problem: Problem) -> tuple[Problem, Order]:
        """Serve whole tasks to the smallest share of the resource."""
        column = self._column(problem)
        there = problem.capacity[column] if problem.capacity[column] > 0 else problem.capacity[column] + 1
        return problem, by_rate(problem.demand[:, column] / problem.weight[:, column] / there)

    def _column(self, problem: Problem) -> int:
        if self.resource not in problem.resources:
            raise PolicyError(f"maxmin: there is no {self.resource!r} to share: use one of {', '.join(problem.resources)}")
        return problem.resources.index(self.resource)
