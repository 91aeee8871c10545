"""What a policy offers: how it divides a problem. A user's own is any object that does.

An entry point in the group `fairlead.policies` gives it a name; what it points to is called with the words after the name
(``maxmin:memory`` calls it with "memory") and returns the policy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from fairlead.model.problems import Numbers, Problem
from fairlead.policies.filling import Filling, fill
from fairlead.policies.keys import ByKey, Order, by_rate


class PolicyError(ValueError):
    """A policy that there is not, or a problem that it does not divide; the message says what would be right."""


@dataclass(frozen=True)
class Division:
    """How a policy divides a problem.

    tasks : shape (users,)
    stop : int64, shape (users,)
        Why no more: a resource's column, or DEMAND, LIMIT, NOT_TAKEN of :mod:`fairlead.policies.filling`.
    round : int64, shape (users,)
        How many resources were saturated when the user stopped; 0 where there are no rounds.
    prices : shape (resources,), optional
        In equilibrium.
    notes : list of str
        What a reader must know.
    placed : shape (users, kinds), optional
        On which of the machines that differ the tasks are.
    """

    tasks: Numbers
    stop: Any
    round: Any
    prices: Numbers | None = None
    notes: list[str] = field(default_factory=list)
    placed: Numbers | None = None


class DividingPolicy(Protocol):
    """A policy with a divisible solution."""

    name: str
    summary: str

    def divide(self, problem: Problem) -> Division:
        """Divide a problem, whose numbers are float64 or fractions; the answer is in the same."""


@dataclass(frozen=True)
class ByFilling:
    """A policy of the progressive-filling family, from the speed at which each user's tasks rise with the level."""

    name: str
    summary: str
    speed: Callable[[Problem], Numbers]

    def divide(self, problem: Problem) -> Division:
        """Fill: first those below a guarantee of something that they need, then all."""
        speed = self.speed(problem)
        if problem.machines is not None:
            from fairlead.policies.machines import divide_machines

            return divide_machines(problem, speed)
        most, limited = problem.most()
        promised = problem.promised()
        floor = problem.tasks * 0
        if (promised > 0).any():
            taking = speed * (promised > 0)
            floor = fill(problem.capacity, problem.demand, taking, promised, floor, limited).tasks
        return _division(fill(problem.capacity, problem.demand, speed, most, floor, limited))

    def indivisible(self, problem: Problem) -> tuple[Problem, Order]:
        """Whole tasks go to the lowest level."""
        return problem, ByKey(by_rate(1 / self.speed(problem)), len(problem.users))


def _division(filling: Filling) -> Division:
    return Division(filling.tasks, filling.stop, filling.round)
