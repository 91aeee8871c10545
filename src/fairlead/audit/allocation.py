"""Is one allocation fair? Checked without asking how it came about.

What a user has is worth to it the tasks that it can run with it: min over what a task needs of amount / demand, and never more
than it can use (its finite demand, or its limit). The definitions are those of Ghodsi et al. (NSDI 2011, section 3), with

- *weights* (section 4.3): a user who weighs twice as much brought twice as much of the resource;
- *finite demands*: who has all that it can use is not wronged;
- *guarantees*: what a user is promised comes before anybody's equal part, so the split that a user compares with gives each what
  its promise takes, and nobody envies what is promised;
- *trees*: a queue's part is its part of its parent's; envy is among users of the same queue, since an inner queue's own share is
  the sum of what is below it;
- *machines that differ* (Wang et al., INFOCOM 2014): a split gives each its part of every machine;
- *whole tasks*: nobody is wronged by what is not more than the largest task, which is what the last one placed may take.
"""

from typing import Any

import numpy as np

from fairlead.audit.findings import Finding, more, said, tasks_said
from fairlead.audit.given import Given
from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem
from fairlead.policies import drf
from fairlead.policies.linear_programs import dense, solve
from fairlead.policies.tree import flattened

CLOSE = 1e-7
"""In floating point, what is not more than this part of the number is nothing."""


def check_allocation(given: Given) -> list[Finding]:
    """Check the three properties of an allocation, and tell the gap between shares.

    Parameters
    ----------
    given : Given

    Returns
    -------
    list of Finding
        Sharing incentive, envy-freeness, Pareto efficiency; the last, "gap", has no `holds`.
    """
    return [sharing_incentive(given), envy_freeness(given), pareto_efficiency(given), gap(given)]


def sharing_incentive(given: Given) -> Finding:
    """Nobody has fewer tasks than on its own part of every resource.

    Ghodsi et al., NSDI 2011, section 3: "each user should be better off sharing the cluster, than exclusively using her own
    partition of the cluster". See the module for weights, guarantees, trees and machines that differ.
    """
    name, problem = "sharing-incentive", given.problem
    own = own_part(problem)
    if own is None:
        return Finding(name, None, "the guarantees do not fit together, so there is no split to compare with")
    own = _capped(problem, own)
    slack = _slack(given)
    i, margin = _worst(given.high, own, slack)
    who = _name(problem, i)
    if margin <= _nothing(given):
        least = "within one task" if given.whole else "or more"
        return Finding(name, True, f"everybody has what its own part would give, {least}", margin=margin)
    gives = f"its own part of everything would give {said(own[i])}, {more(given.high[i], own[i])}"
    text = f"{who} has {tasks_said(given.high[i])}; {gives}"
    return Finding(name, False, text, who, None, given.high[i], own[i], margin, given)


def envy_freeness(given: Given) -> Finding:
    """Nobody could run more tasks with what another has, weighed.

    Ghodsi et al., NSDI 2011, section 3, after Varian (1974): "a user should not prefer the allocation of another user"; with
    weights, the other's bundle counts in the proportion of the weights. What was promised to the other is not envied.
    """
    name, problem = "envy-freeness", given.problem
    n = len(problem.users)
    if problem.machines is not None and given.placed is None:
        return Finding(
            name, None, "machines differ and it is not said where whose tasks are: what a bundle is worth is not known"
        )
    most, _ = problem.most()
    promised = problem.promised()
    slack = _slack(given)
    worst: tuple[float, int, int, Any] = (float("-inf"), 0, 0, 0)
    zero = problem.capacity[0] * 0
    queues = np.array(list(problem.queues), object)
    for i in range(n):
        worth = _worth_of_others(given, i)
        if most[i] >= 0:
            worth = np.where(worth > most[i], most[i], worth)
        envied = (queues == queues[i]) & ((promised <= 0) | (given.low > promised))
        envied[i] = False
        if not envied.any():
            continue
        k = int(np.argmax(np.where(envied, worth, zero - 1)))
        margin = _margin(given.high[i], worth[k], slack[i])
        if margin > worst[0]:
            worst = (margin, i, k, worth[k])
    margin, i, k, worth_it = worst
    if margin <= _nothing(given):
        return Finding(
            name,
            True,
            "nobody could do more with what another has" + (", but for one task" if given.whole else ""),
            margin=margin,
        )
    who, other = _name(problem, i), _name(problem, k)
    weighed = "" if (problem.weight[i] == problem.weight[k]).all() else ", weighed,"
    with_it = f"with what {other} has{weighed} it would run {said(worth_it)}, {more(given.high[i], worth_it)}"
    text = f"{who} has {tasks_said(given.high[i])}; {with_it}"
    return Finding(name, False, text, who, other, given.high[i], worth_it, margin, given)


def pareto_efficiency(given: Given) -> Finding:
    """Nobody could have more without another having less: everybody has all that it can use, or lacks a resource that is gone.

    Ghodsi et al., NSDI 2011, section 3. Over machines that differ a linear program looks for another placement that gives
    somebody more.
    """
    name, problem = "pareto-efficiency", given.problem
    if not len(problem.users):
        return Finding(name, True, "there is nobody")
    if problem.machines is not None:
        return _pareto_over_machines(given)
    if given.whole and problem.nodes > 1:
        return Finding(name, None, "on which machine each task is was not said: whether another fits is not known")
    used = (problem.demand * given.high[:, None]).sum(axis=0)
    left = problem.capacity - used
    over = np.flatnonzero((problem.demand * given.low[:, None]).sum(axis=0) > problem.capacity * (1 + _nothing(given)))
    if len(over):
        resource = problem.resources[int(over[0])]
        return Finding(name, None, f"this gives more {resource} than there is: it cannot be had", margin=float("inf"))
    most, _ = problem.most()
    best, who_at = float("-inf"), 0
    extra: Any = 0
    for i in range(len(problem.users)):
        needs = problem.demand[i] > 0
        room = min(left[needs] / problem.demand[i, needs])
        if most[i] >= 0:
            room = min(room, most[i] - given.high[i])
        if given.whole:
            room = room // 1
        margin = float(room) / max(1.0, float(given.high[i]))
        if margin > best:
            best, who_at, extra = margin, i, room
    if best <= _nothing(given):
        return Finding(
            name,
            True,
            "nothing is left that anybody could use" + (" for a whole task" if given.whole else ""),
            margin=best,
        )
    who = _name(problem, who_at)
    text = f"{who} has {tasks_said(given.high[who_at])} and could have {said(extra)} more of what is left"
    return Finding(name, False, text, who, None, given.high[who_at], given.high[who_at] + extra, best, given)


def gap(given: Given) -> Finding:
    """How far apart the weighted dominant shares are of those who could use more. It is a number, not a property."""
    problem = given.problem
    if not len(problem.users):
        return Finding("gap", None, "there is nobody")
    shares = given.high / drf.speed(problem)
    most, _ = problem.most()
    wanting = (most < 0) | (given.high < most)
    if not wanting.any():
        return Finding("gap", None, "everybody has all that it can use")
    rows = np.flatnonzero(wanting)
    low, high = int(rows[np.argmin(shares[rows])]), int(rows[np.argmax(shares[rows])])
    if low == high or shares[low] == shares[high]:
        return Finding(
            "gap", None, f"all who could use more have the same dominant share, {float(shares[low]):.1%}", margin=0.0
        )
    text = (
        f"of those who could use more, {_name(problem, low)} has the least dominant share, {float(shares[low]):.1%}, "
        f"and {_name(problem, high)} the largest, {float(shares[high]):.1%}"
    )
    return Finding(
        "gap", None, text, _name(problem, low), _name(problem, high), margin=float(shares[high] - shares[low])
    )


def own_part(problem: Problem) -> Numbers | None:
    """The tasks that each would run on its own part of everything."""
    n = len(problem.users)
    if not n:
        return problem.tasks
    weight = flattened(problem).weight if any(problem.queues) else problem.weight
    machines = problem.machines
    if machines is not None:
        parts = weight / weight.sum(axis=0)
        own = problem.tasks * 0
        for i in range(n):
            needs = problem.demand[i] > 0
            for k in np.flatnonzero(machines.allowed[i]):
                own[i] += (
                    min(machines.capacity[k, needs] * parts[i, needs] / problem.demand[i, needs]) * machines.count[k]
                )
        return np.maximum(own, problem.promised())
    promised = problem.promised()
    parts = np.empty_like(problem.demand)
    for j in range(len(problem.capacity)):
        column = _split(problem.capacity[j], weight[:, j], problem.demand[:, j] * promised)
        if column is None:
            return None
        parts[:, j] = column
    return np.array([_worth(problem, i, parts[i]) for i in range(n)], dtype=problem.demand.dtype)


def _split(capacity: Any, weight: Numbers, promised: Numbers) -> Numbers | None:
    """Part a resource by weight, but with nobody below what its promise takes; None where the promises do not fit."""
    if promised.sum() > capacity:
        return None
    rest = np.ones(len(weight), bool)
    while True:
        room = capacity - promised[~rest].sum()
        total = weight[rest].sum()
        parts = weight * (room / total) if total > 0 else weight * 0
        short = rest & (parts < promised)
        if not short.any():
            return np.where(rest, parts, promised)
        rest &= ~short


def _worth(problem: Problem, i: int, amounts: Numbers) -> Any:
    needs = problem.demand[i] > 0
    return min(amounts[needs] / problem.demand[i, needs])


def _worth_of_others(given: Given, i: int) -> Numbers:
    """How many tasks user i could run with what each user surely has, in the proportion of the weights."""
    problem = given.problem
    needs = problem.demand[i] > 0
    ratio = problem.weight[i] / problem.weight
    if problem.machines is not None:
        placed = given.placed
        assert placed is not None
        total = problem.tasks * 0
        for k in np.flatnonzero(problem.machines.allowed[i]):
            amounts = problem.demand[:, needs] * placed[:, k, None] * ratio[:, needs]
            total = total + (amounts / problem.demand[i, needs]).min(axis=1)
        return total
    amounts = problem.demand[:, needs] * given.low[:, None] * ratio[:, needs]
    worth: Numbers = (amounts / problem.demand[i, needs]).min(axis=1)
    return worth


def _capped(problem: Problem, tasks: Numbers) -> Numbers:
    most, _ = problem.most()
    return np.where((most >= 0) & (most < tasks), most, tasks)


def _slack(given: Given) -> Numbers:
    """How many tasks less is nothing: none, or with whole tasks as many as the largest task of anybody takes the share of."""
    problem = given.problem
    if not given.whole or not len(problem.users):
        return problem.tasks * 0
    rate = drf.speed(problem)
    slack: Numbers = rate * max(1 / rate)
    return slack


def _nothing(given: Given) -> float:
    """The margin up to which nobody is wronged."""
    return CLOSE if given.problem.demand.dtype != object else 0.0


def _margin(has: Any, against: Any, slack: Any) -> float:
    short = against - has - slack
    return float(short) / max(1e-300, float(has)) if has > 0 else float(short)


def _worst(has: Numbers, against: Numbers, slack: Numbers) -> tuple[int, float]:
    margins = [_margin(h, a, s) for h, a, s in zip(has, against, slack, strict=True)]
    if not margins:
        return 0, float("-inf")
    i = int(np.argmax(margins))
    return i, margins[i]


def _name(problem: Problem, i: int) -> str:
    return str(problem.users[i]) if len(problem.users) else ""


def _pareto_over_machines(given: Given) -> Finding:
    """The largest number of tasks that can be added with everybody keeping what it has, over all placements."""
    name = "pareto-efficiency"
    exact = given.problem.demand.dtype == object and bool((given.low == given.high).all())
    problem = given.problem if exact else given.problem.floats()
    machines = problem.machines
    assert machines is not None
    n, kinds = machines.allowed.shape
    m = len(problem.resources)
    users, classes = np.nonzero(machines.allowed)
    zero = problem.capacity[0] * 0
    room = machines.capacity * machines.count[:, None]
    size = np.where(room > 0, room, zero + 1)
    has = given.low if exact else given.low.astype(np.float64)
    scale = np.maximum(has, zero + 1)
    matrix = np.full((kinds * m + 2 * n, len(users)), zero)
    for column, (i, k) in enumerate(zip(users, classes, strict=True)):
        matrix[k * m : (k + 1) * m, column] = problem.demand[i] / size[k] * scale[i]
        matrix[kinds * m + i, column] = zero - 1
        matrix[kinds * m + n + i, column] = zero + 1
    most = problem.most()[0]
    upper = np.concatenate(
        [
            np.where(room > 0, zero + 1, zero).ravel(),
            -has / scale * (1 if exact else 1 - 1e-9),
            np.where(most < 0, np.inf, most / scale),
        ]
    )
    nothing = np.full(len(users), zero)
    found = solve(dense(nothing - 1, matrix, upper, nothing, np.full(len(users), np.inf)))
    if found is None:
        return Finding(name, None, "this cannot be placed on the machines that there are", margin=float("inf"))
    total = np.full(n, zero)
    np.add.at(total, users, found.x * scale[users])
    gain = (total - has) / scale
    best = int(np.argmax(gain))
    if gain[best] <= (1 / scale[best] if given.whole else 0 if exact else 1e-5):
        return Finding(name, True, "no placement gives anybody more with nobody having less", margin=float(gain[best]))
    who = _name(problem, best)
    text = f"{who} has {tasks_said(given.high[best])}, and another placement gives it {said(total[best])} with nobody having less"
    return Finding(name, False, text, who, None, given.high[best], total[best], float(gain[best]), given)
