"""Is one allocation fair, however it was made?

A bundle is worth the tasks that a user can run with it: min over the needed resources of amount / demand, up to its finite
demand or its limit. The definitions are those of Ghodsi et al. (NSDI 2011, section 3), extended:

- *weights* (section 4.3): a user of weight 2 contributed twice as much of the resource;
- *finite demands*: a user who has all that it can use is not wronged;
- *guarantees*: they come before equal shares, so the split to compare with gives each user at least its guarantee, and
  guarantees are not envied;
- *trees*: a queue's share is a fraction of its parent's. Envy is only among users of one queue, because an inner queue's share
  is the sum over those below it;
- *machines that differ* (Wang et al., INFOCOM 2014): a split gives each user its share of every machine;
- *whole tasks*: a difference of up to the largest task, which the last one placed may take, wrongs nobody.
"""

from typing import Any

import numpy as np

from fairlead.audit.findings import Finding, format_number, format_tasks, more
from fairlead.audit.given import Given
from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem, tasks_with
from fairlead.policies import drf
from fairlead.policies.filling import filled_to_guarantees
from fairlead.policies.linear_programs import dense, solve
from fairlead.policies.tree import flattened

CLOSE = 1e-7
"""Relative tolerance in floating point."""


def check_allocation(given: Given) -> list[Finding]:
    """Check sharing incentive, envy-freeness and Pareto efficiency of an allocation; the last finding, "gap", has no `holds`."""
    return [sharing_incentive(given), envy_freeness(given), pareto_efficiency(given), gap(given)]


def sharing_incentive(given: Given) -> Finding:
    """No user has fewer tasks than its own share of every resource would give.

    Ghodsi et al., NSDI 2011, section 3: "each user should be better off sharing the cluster, than exclusively using her own
    partition of the cluster". See the module for weights, guarantees, trees and machines that differ.
    """
    name, problem = "sharing-incentive", given.problem
    own, (most, _) = own_part(problem), problem.most()
    own = np.where((most >= 0) & (most < own), most, own)
    margins = [part(due - has - slack, has) for due, has, slack in zip(own, given.high, _slack(given), strict=True)]
    margin = max(margins, default=float("-inf"))
    if margin <= nothing(problem):
        least = "within one task" if given.whole else "or more"
        return Finding(name, True, f"everybody has what its own part would give, {least}", margin=margin)
    i = margins.index(margin)
    who = problem.users[i]
    gives = f"its own part of everything would give {format_number(own[i])}{more(given.high[i], own[i])}"
    text = f"{who} has {format_tasks(given.high[i])}; {gives}"
    return Finding(name, False, text, who, None, given.high[i], own[i], margin, given)


def envy_freeness(given: Given) -> Finding:
    """No user could run more tasks with another's resources, scaled by their weights.

    Ghodsi et al., NSDI 2011, section 3, after Varian (1974): "a user should not prefer the allocation of another user".
    Guarantees are not envied.
    """
    name, problem = "envy-freeness", given.problem
    n = len(problem.users)
    if problem.machines is not None and given.placed is None:
        return Finding(name, None, "machines differ, and the tasks' machines are not given: the worth of a bundle is unknown")
    most, _ = problem.most()
    promised = problem.promised()
    slack = _slack(given)
    found: list[tuple[float, int, int, Any]] = [(float("-inf"), 0, 0, 0)]
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
        found.append((part(worth[k] - given.high[i] - slack[i], given.high[i]), i, k, worth[k]))
    margin, i, k, worth_it = max(found, key=lambda each: each[0])
    if margin <= nothing(problem):
        within = ", within one task" if given.whole else ""
        return Finding(name, True, f"nobody could do more with what another has{within}", margin=margin)
    who, other = problem.users[i], problem.users[k]
    weighted = "" if (problem.weight[i] == problem.weight[k]).all() else ", weighted,"
    with_it = f"with what {other} has{weighted} it would run {format_number(worth_it)}{more(given.high[i], worth_it)}"
    text = f"{who} has {format_tasks(given.high[i])}; {with_it}"
    wronged = [problem.users[i] for margin, i, _, _ in found if margin > nothing(problem)]
    return Finding(name, False, text, who, other, given.high[i], worth_it, margin, given, wronged=wronged)


def pareto_efficiency(given: Given) -> Finding:
    """No user could have more without another having less: each has all that it can use, or lacks an exhausted resource.

    Ghodsi et al., NSDI 2011, section 3. On machines that differ, a linear program searches for a placement that gives a user
    more.
    """
    name, problem = "pareto-efficiency", given.problem
    if not len(problem.users):
        return Finding(name, True, "there are no users")
    if problem.machines is not None:
        return _pareto_over_machines(given)
    if given.whole and problem.nodes > 1:
        return Finding(name, None, "the tasks' machines are not given: it is unknown if another task fits")
    used = (problem.demand * given.high[:, None]).sum(axis=0)
    left = problem.capacity - used
    over = np.flatnonzero((problem.demand * given.low[:, None]).sum(axis=0) > problem.capacity * (1 + nothing(problem)))
    if len(over):
        resource = problem.resources[int(over[0])]
        return Finding(name, None, f"this gives more {resource} than exists: it is not feasible", margin=float("inf"))
    most, _ = problem.most()
    room = tasks_with(left, problem.demand)
    room = np.where((most >= 0) & (most - given.high < room), most - given.high, room)
    room = room // 1 if given.whole else room
    margins = [float(more) / max(1.0, float(has)) for more, has in zip(room, given.high, strict=True)]
    best, who_at = max(margins), int(np.argmax(margins))
    if best <= nothing(problem):
        what = " for a whole task" if given.whole else ""
        return Finding(name, True, f"nothing is left that anybody could use{what}", margin=best)
    who = problem.users[who_at]
    text = f"{who} has {format_tasks(given.high[who_at])} and could have {format_number(room[who_at])} more of what is left"
    return Finding(name, False, text, who, None, given.high[who_at], given.high[who_at] + room[who_at], best, given)


def gap(given: Given) -> Finding:
    """Report the gap between the weighted dominant shares of users who could use more: a number, not a property."""
    problem = given.problem
    if not len(problem.users):
        return Finding("gap", None, "there are no users")
    shares = given.high / drf.speed(problem)
    most, _ = problem.most()
    wanting = (most < 0) | (given.high < most)
    if not wanting.any():
        return Finding("gap", None, "everybody has all that it can use")
    rows = np.flatnonzero(wanting)
    low, high = int(rows[np.argmin(shares[rows])]), int(rows[np.argmax(shares[rows])])
    if low == high or shares[low] == shares[high]:
        return Finding("gap", None, f"all who could use more have the same dominant share, {float(shares[low]):.1%}", margin=0.0)
    who, other = problem.users[low], problem.users[high]
    text = (
        f"of those who could use more, {who} has the least dominant share, {float(shares[low]):.1%}, "
        f"and {other} the largest, {float(shares[high]):.1%}"
    )
    return Finding("gap", None, text, who, other, margin=float(shares[high] - shares[low]))


def own_part(problem: Problem) -> Numbers:
    """Return the tasks that each user would run on its own share of every resource; guarantees that do not fit are cut first."""
    n = len(problem.users)
    if not n:
        return problem.tasks
    weight = flattened(problem).weight if any(problem.queues) else problem.weight
    promised, machines = filled_to_guarantees(problem, drf.speed(problem)), problem.machines
    if machines is not None:
        parts = weight / weight.sum(axis=0)
        own = problem.tasks * 0
        for capacity, count, allowed in zip(machines.capacity, machines.count, machines.allowed.T, strict=True):
            own[allowed] += (tasks_with(capacity * parts, problem.demand) * count)[allowed]
        return np.maximum(own, promised)
    parts = np.empty_like(problem.demand)
    for j in range(len(problem.capacity)):
        parts[:, j] = _split(problem.capacity[j], weight[:, j], problem.demand[:, j] * promised)
    return tasks_with(parts, problem.demand)


def _split(capacity: Any, weight: Numbers, promised: Numbers) -> Numbers:
    """Split a resource by weight, with no user below what it is promised."""
    rest = np.ones(len(weight), bool)
    while True:
        room = capacity - promised[~rest].sum()
        total = weight[rest].sum()
        parts = weight * (room / total) if total > 0 else weight * 0
        short = rest & (parts < promised)
        if not short.any():
            return np.where(rest, parts, promised)
        rest &= ~short


def _worth_of_others(given: Given, i: int) -> Numbers:
    """Return the tasks that user i could run with what each user has at least, scaled by the weights."""
    problem = given.problem
    ratio = problem.weight[i] / problem.weight
    if problem.machines is not None:
        placed = given.placed
        assert placed is not None
        total = problem.tasks * 0
        for k in np.flatnonzero(problem.machines.allowed[i]):
            total = total + tasks_with(problem.demand * placed[:, k, None] * ratio, problem.demand[i])
        return total
    return tasks_with(problem.demand * given.low[:, None] * ratio, problem.demand[i])


def _slack(given: Given) -> Numbers:
    """Return the tolerated shortfall in tasks: 0; with whole tasks, the share of the largest task."""
    problem = given.problem
    if not given.whole or not len(problem.users):
        return problem.tasks * 0
    rate = drf.speed(problem)
    return rate * max(1 / rate)


def nothing(problem: Problem) -> float:
    """Return the margin up to which nobody is wronged."""
    return CLOSE if problem.demand.dtype != object else 0.0


def part(loss: Any, has: Any) -> float:
    """Return a loss in tasks as a part of what its user has; as it is if that is nothing."""
    return float(loss) / max(1e-300, float(has)) if has > 0 else float(loss)


def _pareto_over_machines(given: Given) -> Finding:
    """Check if some placement adds tasks while every user keeps what it has."""
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
    least = np.full(len(users), zero)
    found = solve(dense(least - 1, matrix, upper, least, np.full(len(users), np.inf)))
    if found is None:
        return Finding(name, None, "this cannot be placed on the machines", margin=float("inf"))
    total = np.full(n, zero)
    np.add.at(total, users, found.x * scale[users])
    gain = (total - has) / scale
    best = int(np.argmax(gain))
    if gain[best] <= (1 / scale[best] if given.whole else 0 if exact else 1e-5):
        return Finding(name, True, "no placement gives one more without giving another less", margin=float(gain[best]))
    who = problem.users[best]
    gives = f"another placement gives it {format_number(total[best])}, and nobody less"
    text = f"{who} has {format_tasks(given.high[best])}, and {gives}"
    return Finding(name, False, text, who, None, given.high[best], total[best], float(gain[best]), given)
