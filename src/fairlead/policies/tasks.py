"""The most tasks in total, by a linear program: a yardstick of efficiency, not fair."""

from dataclasses import replace

import numpy as np

from fairlead.model.problems import Problem
from fairlead.policies import drf
from fairlead.policies.contract import DEMAND, LIMIT, Division, PolicyError
from fairlead.policies.filling import filled_to_guarantees
from fairlead.policies.linear_programs import TOO_CLOSE, dense, solve


class MostTasks:
    """Maximise the weighted number of tasks; guarantees are kept."""

    name = "tasks"
    summary = "the most tasks in total: a yardstick, not fair"

    def divide(self, problem: Problem) -> Division:
        """Solve the linear program."""
        most, limited = problem.most()
        zero = problem.capacity[0] * 0
        there = problem.capacity > 0
        # Scale by the capacity, and by what a user could have alone: a solver takes 10^18 as infinite, and 10^-9 as 0.
        size = np.where(there, problem.capacity, zero + 1)
        shares = problem.demand / size
        one = shares.max(axis=1)
        worth = problem.weight.sum(axis=1) / one
        program = dense(
            cost=-worth / worth.max(),
            matrix=(shares / one[:, None]).T,
            upper=np.where(there, zero + 1, zero),
            least=problem.promised() * one,
            most=np.where(most < 0, np.inf, most * one),
        )
        found = solve(program)
        if found is None:  # the guarantees do not fit together: fill them first, as all policies do
            found = solve(replace(program, least=filled_to_guarantees(problem, drf.speed(problem)) * one))
        if found is None:
            raise PolicyError(f"tasks: {TOO_CLOSE}")
        tasks = np.maximum(found.x, zero) / one
        full = (most >= 0) & (tasks >= most * (1 if problem.demand.dtype == object else 1 - 1e-9))
        tight = np.where(there, (problem.demand * tasks[:, None]).sum(axis=0) / size, zero + 1)
        needed = np.where(problem.demand > 0, tight, zero - 1)
        stop = np.where(full, np.where(limited, LIMIT, DEMAND), needed.argmax(axis=1))
        return Division(tasks, stop, np.zeros(len(stop), np.int64))
