"""The most tasks in total, whoever's they are: a linear program, as a yardstick of efficiency. It is not fair to anybody."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model.problems import Numbers, Problem
from fairlead.policies.contract import Division, PolicyError
from fairlead.policies.filling import DEMAND, LIMIT


@dataclass(frozen=True)
class MostTasks:
    """Maximise the weighted number of tasks, by HiGHS; guarantees are kept."""

    name: str = "tasks"
    summary: str = "the most tasks in total, whoever's: a yardstick, not fair"

    def divide(self, problem: Problem) -> Division:
        """Solve the linear program."""
        if problem.demand.dtype == object:
            raise PolicyError("tasks: is solved in floating point only: leave out exact")
        most, limited = problem.most()
        # In parts of the capacity: a solver takes numbers of 10^18 for infinite.
        size = np.where(problem.capacity > 0, problem.capacity, 1.0)
        there = (problem.capacity > 0).astype(np.float64)
        solution = solve(-problem.weight.mean(axis=1), (problem.demand / size).T, there, problem.promised(), most)
        if solution is None:
            raise PolicyError("tasks: the guarantees do not fit together: lower one")
        full = (most >= 0) & (solution >= most * (1 - 1e-9))
        used = problem.demand.T @ solution
        tight = np.where(problem.capacity > 0, used / np.where(problem.capacity > 0, problem.capacity, 1), 1)
        needed = np.where(problem.demand > 0, tight, -1)
        stop = np.where(full, np.where(limited, LIMIT, DEMAND), needed.argmax(axis=1))
        return Division(solution, stop, np.zeros(len(stop), np.int64))


def solve(cost: Numbers, matrix: Numbers, upper: Numbers, least: Numbers, most: Numbers) -> Numbers | None:
    """Minimise cost @ x subject to matrix @ x <= upper and least <= x <= most (-1: none), by HiGHS; None if infeasible."""
    import highspy

    rows, columns = matrix.shape
    h: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    h.silent()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns, rows
    lp.col_cost_ = cost.astype(np.float64)
    lp.col_lower_, lp.col_upper_ = least.astype(np.float64), np.where(most < 0, highspy.kHighsInf, most)
    lp.row_lower_, lp.row_upper_ = np.full(rows, -highspy.kHighsInf), upper.astype(np.float64)
    across, down = np.nonzero(matrix.T)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(across, minlength=columns))]).astype(np.int32)
    lp.a_matrix_.index_ = down.astype(np.int32)
    lp.a_matrix_.value_ = matrix[down, across].astype(np.float64)
    h.passModel(lp)
    h.run()
    if h.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return np.asarray(h.getSolution().col_value)


def policy() -> MostTasks:
    """The most tasks in total."""
    return MostTasks()
