"""The filling family on machines that differ, some of which only some users can use.

DRFH (Wang, Li and Liang, "Dominant Resource Fairness in Cloud Computing Systems with Heterogeneous Servers", INFOCOM 2014): a
user's share is of the whole cluster, wherever its tasks run. The least share is raised as far as possible, then the next. Each
round solves one linear program over users and classes of machines. Equal machines are one class, since dividing them is
symmetric.
"""

from typing import Any

import numpy as np

from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem
from fairlead.policies.contract import DEMAND, LIMIT, Division, PolicyError
from fairlead.policies.linear_programs import TOO_CLOSE, Program, solve

TOLERANCE = 1e-9


def divide_machines(problem: Problem, speed: Any) -> Division:
    """Raise the least level, fix the users that can go no further, and repeat. `speed` is each user's tasks per level.

    Each round solves one linear program with users x classes variables, and fixes at least one user. All users whose level has a
    price in the optimum are fixed (complementary slackness), so rounds are usually few.
    """
    most, limited = problem.most()
    promised = problem.promised()
    floor = promised * 0
    if (promised > 0).any():
        floor = _fill(problem, speed, promised, floor, limited).tasks
    return _fill(problem, speed, most, floor, limited)


def _fill(problem: Problem, speed: Numbers, most: Numbers, floor: Numbers, limited: Any) -> Division:
    """Fill up to `most` (-1: any number), with no user below its floor."""
    machines = problem.machines
    assert machines is not None
    n, kinds = machines.allowed.shape
    close = 0 if problem.demand.dtype == object else TOLERANCE
    ceiling = np.where(most < 0, np.inf, most)
    room = machines.capacity * machines.count[:, None]
    can = machines.allowed & np.array([[not (d[room[k] <= 0] > 0).any() for k in range(kinds)] for d in problem.demand])
    whole = np.where(problem.capacity > 0, problem.capacity, problem.capacity + 1)
    level = floor / speed
    stop = np.full(n, DEMAND, np.int64)
    rounds = np.zeros(n, np.int64)
    at_once = ceiling <= floor
    nowhere = ~at_once & ~can.any(axis=1)
    stop[nowhere] = problem.demand[nowhere].argmax(axis=1)
    stop[at_once & limited] = LIMIT
    free = ~nowhere & ~at_once
    placed, at = np.full((n, kinds), problem.capacity[0] * 0), 0
    while free.any():
        at += 1
        top, placed, pull, prices = _raise_least(problem, speed, ceiling, floor, can, room, level, free)
        own = np.maximum(top, floor / speed)  # a user that starts above the level waits for it
        full = free & (own * speed >= ceiling * (1 - close))
        stuck = full | (free & (pull > close) & (own <= top * (1 + close)))
        if not stuck.any():  # degenerate optimum: fix all
            stuck = free.copy()
        level[stuck] = own[stuck]
        free &= ~stuck
        rounds[stuck] = at
        stop[full] = np.where(limited[full], LIMIT, DEMAND)
        for i in np.flatnonzero(stuck & ~full):
            stop[i] = int((prices[:, can[i]].sum(axis=1) * problem.demand[i] / whole).argmax())
    tasks = np.minimum(placed.sum(axis=1), ceiling) if at else level * speed
    return Division(tasks, stop, rounds, placed=placed)


def _raise_least(
    problem: Problem, speed: Numbers, ceiling: Numbers, floor: Numbers, can: Any, room: Numbers, level: Numbers, free: Any
) -> tuple[Any, Numbers, Any, Numbers]:  # fmt: skip
    """Find the highest level that all free users can have at once.

    Also return tasks, shape (users, kinds), and prices of users, shape (users,), and of resources, shape (resources, kinds). A
    price above 0 marks a user that holds the level down, or a scarce resource.
    """
    n, kinds = can.shape
    m = len(problem.capacity)
    users, classes = np.nonzero(can)
    zero = problem.capacity[0] * 0
    size = np.where(room > 0, room, zero + 1)
    # A solver takes 10^-9 as 0, so scale near 1: levels by the level that all would reach on one big machine, and tasks by what a
    # user has at that level.
    there = problem.capacity > 0
    unit = 1 / ((problem.demand[:, there] * speed[:, None]).sum(axis=0) / problem.capacity[there]).max()
    scale = speed * unit
    columns = len(users) + 1
    # Rows: the resources of each class of machines, then each user's level, then its bounds.
    index: list[int] = []
    values: list[Any] = []
    starts = [0]
    for i, k in zip(users, classes, strict=True):
        takes = np.flatnonzero(problem.demand[i])
        index += [*(k * m + takes).tolist(), kinds * m + int(i), kinds * m + n + int(i)]
        values += [*(problem.demand[i, takes] * scale[i] / size[k, takes]), *[zero + 1] * 2]
        starts.append(len(index))
    index += (kinds * m + np.flatnonzero(free)).tolist()
    values += [zero - 1] * int(free.sum())
    starts.append(len(index))
    nothing = np.full(columns - 1, zero)
    # A satisfied user ends the round for all.
    none = np.full(n, np.inf)
    lowest, highest = np.where(free, floor / scale, -none), np.where(free, ceiling / scale, none)
    program = Program(
        cost=np.append(nothing, zero - 1),
        least=np.append(nothing, zero),
        most=np.full(columns, np.inf),
        row_least=np.concatenate([np.full(kinds * m, -np.inf), np.where(free, zero, level / unit), lowest]),
        row_most=np.concatenate([np.where(room > 0, zero + 1, zero).ravel(), np.where(free, np.inf, level / unit), highest]),
        starts=starts,
        index=index,
        values=np.array(values),
    )
    found = solve(program)
    if found is None:  # the last round's solution is feasible, so this is rounding
        raise PolicyError(TOO_CLOSE)
    placed = np.full((n, kinds), zero)
    placed[users, classes] = found.x[:-1] * scale[users]
    prices = np.abs(found.prices)
    return found.x[-1] * unit, placed, prices[kinds * m : kinds * m + n], prices[: kinds * m].reshape(kinds, m).T
