"""One user after another takes all that it can use: what first in, first out and strict priority have in common."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model.problems import Problem
from fairlead.policies.contract import Division
from fairlead.policies.filling import DEMAND, LIMIT
from fairlead.policies.kernel import filling
from fairlead.policies.orders import ByKey, Order


@dataclass(frozen=True)
class InTurn:
    """In the order of listing, or by priority first. Who is below a guarantee goes before all others, in the same order."""

    name: str
    summary: str
    by_priority: bool

    def divide(self, problem: Problem) -> Division:
        """Serve each in turn."""
        order = np.argsort(-problem.priority, kind="stable") if self.by_priority else np.arange(len(problem.users))
        most, limited = problem.most()
        promised = problem.promised()
        take = _take if problem.demand.dtype == object else filling.take
        left, tasks = problem.capacity.copy(), problem.tasks * 0
        stop = np.full(len(order), DEMAND, np.int64)
        take(left, problem.demand, promised, order[promised[order] > 0], tasks, stop)
        take(left, problem.demand, most, order, tasks, stop)
        return Division(tasks, np.where((stop == DEMAND) & limited, LIMIT, stop), np.zeros(len(order), np.int64))

    def indivisible(self, problem: Problem) -> tuple[Problem, Order]:
        """Whole tasks go to whoever is first."""
        if self.by_priority:
            return problem, ByKey(lambda i, tasks: -int(problem.priority[i]), len(problem.users))
        return problem, ByKey(lambda i, tasks: i, len(problem.users))


def _take(left: Any, demand: Any, most: Any, order: Any, tasks: Any, stop: Any) -> None:
    """Give each in turn, on top of what it has, as much as is left for it up to `most` (-1: any number)."""
    for i in order:
        bounded, more, why = most[i] >= 0, most[i] - tasks[i], DEMAND
        for j in range(len(left)):
            if demand[i, j] > 0:
                room = left[j] / demand[i, j]
                if not bounded or room < more:
                    bounded, more, why = True, room, j
        more = max(more, more * 0)
        tasks[i] += more
        stop[i] = why
        for j in range(len(left)):
            left[j] = max(left[j] - demand[i, j] * more, left[j] * 0)
