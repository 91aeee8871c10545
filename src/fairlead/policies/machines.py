"""Machines that differ, and users who can use some of them only: the filling family over classes of alike machines.

DRFH (Wang, Li and Liang, "Dominant Resource Fairness in Cloud Computing Systems with Heterogeneous Servers", INFOCOM 2014): a
user's share is of the whole cluster, wherever its tasks are, and the least share is raised as far as it goes, then the next.
Where a task may run is a matter of one linear program a round, over users and classes; alike machines are one class, since
dividing them is symmetric. Solved by HiGHS, in floating point.
"""

from typing import Any

import numpy as np

from fairlead.model.problems import Problem
from fairlead.policies.contract import Division, PolicyError
from fairlead.policies.filling import DEMAND, LIMIT

TOLERANCE = 1e-9


def divide_machines(problem: Problem, speed: Any) -> Division:
    """Raise the least level of all, fix those who can go no further, and again.

    Parameters
    ----------
    problem : Problem
        In float64, with machines.
    speed : shape (users,)
        Tasks per level.

    Notes
    -----
    One linear program a round with users x classes variables; each round fixes a user at least. Whoever's level has a price in
    the optimum is fixed (complementary slackness), so that mostly there are few rounds.
    """
    machines = problem.machines
    assert machines is not None
    if problem.demand.dtype == object:
        raise PolicyError(
            "machines that differ are divided by linear programs, in floating point only: leave out exact"
        )
    most, limited = problem.most()
    promised = problem.promised()
    floor = promised * 0
    if (promised > 0).any():
        floor = _fill(problem, speed, promised, floor, limited).tasks
    return _fill(problem, speed, most, floor, limited)


def _fill(problem: Problem, speed: Any, most: Any, floor: Any, limited: Any) -> Division:
    """Fill up to `most` (-1: any number), with nobody below the floor."""
    machines = problem.machines
    assert machines is not None
    n, kinds = len(problem.users), len(machines.count)
    ceiling = np.where(most < 0, np.inf, most)
    room = machines.capacity * machines.count[:, None]
    can = machines.allowed & np.array([[not (d[room[k] <= 0] > 0).any() for k in range(kinds)] for d in problem.demand])
    level = np.full(n, np.nan)
    stop = np.full(n, DEMAND, np.int64)
    rounds = np.zeros(n, np.int64)
    nowhere = ~can.any(axis=1) | (ceiling <= floor)
    level[nowhere] = (floor / speed)[nowhere]
    for i in np.flatnonzero(nowhere & (ceiling > floor)):
        stop[i] = int(problem.demand[i].argmax())
    stop[nowhere & (ceiling <= floor) & limited] = LIMIT
    placed, at = np.zeros((n, kinds)), 0
    while np.isnan(level).any():
        at += 1
        top, placed, tight, prices = _raise_least(problem, speed, ceiling, floor, can, room, level)
        free = np.isnan(level)
        own = np.maximum(top, floor / speed)  # who starts above the level stays there until that has come up
        full = free & (own * speed >= ceiling * (1 - TOLERANCE))
        stuck = full | (free & tight & (own <= top * (1 + TOLERANCE)))
        if not stuck.any():  # degenerate: the least that is tight is all of them
            stuck = free
        level[stuck] = own[stuck]
        rounds[stuck] = at
        stop[full] = np.where(limited[full], LIMIT, DEMAND)
        for i in np.flatnonzero(stuck & ~full):
            stop[i] = int((prices[:, can[i]].sum(axis=1) * problem.demand[i]).argmax())
    tasks = np.minimum(placed.sum(axis=1), ceiling) if at else level * speed
    return Division(tasks, stop, rounds, placed=placed)


def _raise_least(
    problem: Problem, speed: Any, ceiling: Any, floor: Any, can: Any, room: Any, level: Any
) -> tuple[float, Any, Any, Any]:
    """The highest level that all who are free can have at once; with who can go no further, and what is scarce."""
    import highspy

    n, kinds = can.shape
    m = len(problem.capacity)
    users, classes = np.nonzero(can)
    size = np.where(room > 0, room, 1.0)
    free = np.isnan(level)
    unit = np.nanmax(np.where(np.isfinite(1 / speed), 1 / speed, np.nan))  # levels near 1, whatever the numbers are
    columns = len(users) + 1
    # Rows: what a class of machines has of each resource, then each user's level, then its floor.
    rows: list[int] = []
    values: list[float] = []
    starts = [0]
    for i, k in zip(users, classes, strict=True):
        there = np.flatnonzero(problem.demand[i])
        rows += [*(k * m + there), kinds * m + i, kinds * m + n + i]
        values += [*(problem.demand[i, there] / size[k, there]), *[1 / speed[i] / unit] * 2]
        starts.append(len(rows))
    rows += (kinds * m + np.flatnonzero(free)).tolist()
    values += [-1.0] * int(free.sum())
    starts.append(len(rows))
    h: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    h.silent()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns, kinds * m + 2 * n
    lp.col_cost_ = np.concatenate([np.zeros(columns - 1), [-1.0]])
    lp.col_lower_ = np.zeros(columns)
    # A user who is satisfied ends the round for all.
    ends = (ceiling / speed / unit)[free].min(initial=np.inf)
    lp.col_upper_ = np.concatenate(
        [np.full(columns - 1, highspy.kHighsInf), [ends if np.isfinite(ends) else highspy.kHighsInf]]
    )
    none = np.full(n, highspy.kHighsInf)
    lowest = np.where(free, floor / speed / unit, -none)
    lp.row_lower_ = np.concatenate([np.full(kinds * m, -highspy.kHighsInf), np.where(free, 0.0, level / unit), lowest])
    lp.row_upper_ = np.concatenate(
        [(room > 0).astype(float).ravel(), np.where(free, highspy.kHighsInf, level / unit), none]
    )
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = starts, rows, values
    h.passModel(lp)
    h.run()
    solution = h.getSolution()
    values_found, duals = np.asarray(solution.col_value), np.asarray(solution.row_dual)
    placed = np.zeros((n, kinds))
    placed[users, classes] = values_found[:-1]
    tight = np.abs(duals[kinds * m : kinds * m + n]) > TOLERANCE
    return float(values_found[-1]) * unit, placed, tight, np.abs(duals[: kinds * m]).reshape(kinds, m).T
