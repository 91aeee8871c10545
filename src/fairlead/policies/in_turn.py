"""First in, first out, and strict priority: one user after another takes all that it can use.

Live queues: under fifo, the child whose next task was submitted first goes next, whatever its priority. Under priority, the child
whose next task has the highest priority goes next, then the earliest; a leaf queue orders its jobs so.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model.problems import Problem
from fairlead.policies.contract import DEMAND, LIMIT, Division, Order
from fairlead.policies.discrete import ByKey
from fairlead.policies.kernel import filling


@dataclass(frozen=True)
class Sequential:
    """Serves in the order of listing, or by priority first. Users below a guarantee go before all others, in the same order."""

    name: str
    summary: str
    by_priority: bool

    def divide(self, problem: Problem) -> Division:
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
        """Serve whole tasks to the first user in order."""
        return problem, ByKey(lambda i, tasks: -int(problem.priority[i]) if self.by_priority else i, len(problem.users))


def _take(left: Any, demand: Any, most: Any, order: Any, tasks: Any, stop: Any) -> None:
    """Give each user in turn as much more as fits, up to `most` (-1: no bound). Changes `left`, `tasks` and `stop`."""
    for i in order:
        room = np.divide(left, demand[i], out=np.full(len(left), np.inf, object), where=demand[i] > 0)
        scarce = int(room.argmin())
        bounded = 0 <= most[i] <= tasks[i] + room[scarce]
        more = max(most[i] - tasks[i] if bounded else room[scarce], left[scarce] * 0)
        tasks[i] += more
        stop[i] = DEMAND if bounded else scarce
        left[:] = np.maximum(left - demand[i] * more, left * 0)


FIFO = Sequential("fifo", "each takes what it can, in the order of listing", by_priority=False)
"""First come, first served, in the order in which users are listed."""
PRIORITY = Sequential("priority", "each takes what it can, highest priority first", by_priority=True)
"""Strict priority; equals in the order in which users are listed."""
