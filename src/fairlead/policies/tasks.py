"""The most tasks in total, whoever's they are: a linear program, as a yardstick of efficiency. It is not fair to anybody."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.problems import Problem
from fairlead.policies.contract import Division, PolicyError
from fairlead.policies.filling import DEMAND, LIMIT
from fairlead.policies.linear_programs import dense, solve


@dataclass(frozen=True)
class MostTasks:
    """Maximise the weighted number of tasks, guarantees are kept."""

    name: str = "tasks"
    summary: str = "the most tasks in total, whoever's: a yardstick, not fair"

    def divide(self, problem: Problem) -> Division:
        """Solve the linear program."""
        most, limited = problem.most()
        zero = problem.capacity[0] * 0
        there = problem.capacity > 0
        # In parts of the capacity: a solver takes numbers of 10^18 for infinite.
        size = np.where(there, problem.capacity, zero + 1)
        weight = problem.weight.sum(axis=1) / len(size)
        found = solve(
            dense(
                cost=-weight,
                matrix=(problem.demand / size).T,
                upper=np.where(there, zero + 1, zero),
                least=problem.promised(),
                most=np.where(most < 0, np.inf, most),
            )
        )
        if found is None:
            raise PolicyError("tasks: the guarantees do not fit together: lower one")
        full = (most >= 0) & (found.x >= most * (1 if problem.demand.dtype == object else 1 - 1e-9))
        tight = np.where(there, (problem.demand * found.x[:, None]).sum(axis=0) / size, zero + 1)
        needed = np.where(problem.demand > 0, tight, zero - 1)
        stop = np.where(full, np.where(limited, LIMIT, DEMAND), needed.argmax(axis=1))
        return Division(found.x, stop, np.zeros(len(stop), np.int64))


def policy() -> MostTasks:
    """The most tasks in total."""
    return MostTasks()
