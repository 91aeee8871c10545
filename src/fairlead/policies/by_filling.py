"""Policies of the progressive-filling family: those that are a speed, at which each user's tasks rise with the level."""

from collections.abc import Callable
from dataclasses import dataclass

from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem
from fairlead.policies.contract import Division
from fairlead.policies.filling import Filling, fill
from fairlead.policies.machines import divide_machines
from fairlead.policies.orders import ByKey, Order, by_rate


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
