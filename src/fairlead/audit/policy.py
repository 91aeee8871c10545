"""Is a policy fair on a case? Lies, departures, more capacity, and single resources.

Ghodsi et al., NSDI 2011, section 3. Every function divides the case and variants of it, and reports the variant that wrongs a
user most. `divide` divides: to fractions with bounds, or to floats for a quick check.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from fairlead.audit.allocation import envy_freeness, gap, nothing, pareto_efficiency, part, sharing_incentive
from fairlead.audit.findings import PROPERTIES, Finding, format_number, format_tasks, more
from fairlead.audit.given import Given
from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem, tasks_with
from fairlead.policies.allocation import amount
from fairlead.policies.contract import PolicyError
from fairlead.policies.tree import NAIVE

Divide = Callable[[Problem], Given | None]
Lie = tuple[int, Numbers, Any]
"""A user, the demand that it claims, and the number of tasks that it claims (-1: any number)."""
Variant = tuple[str, str | None, Iterable[int], Problem]
"""A change of a problem: in words, the user who leaves, the rows of those who stay, and the problem then."""
UNKNOWN = "the policy's numbers are not certain here"


def check_policy(problem: Problem, divide: Divide, lies: int = 200) -> list[Finding]:
    """Check all eight properties on one case, in the paper's order, and report the gap between shares.

    problem : in fractions
    divide : from a problem to the policy's allocation; None if that is not certain
    lies : lies to try per user
    """
    given = divide(problem)
    if given is None:
        return [Finding("allocation", None, UNKNOWN)]
    return [*(check(name, problem, divide, lies_of(problem, lies)) for name in PROPERTIES), gap(given)]


def check(name: str, problem: Problem, divide: Divide, lies: Iterable[Lie] = (), around: bool = True) -> Finding:
    if name == "strategy-proofness":
        return strategy_proofness(problem, divide, lies, around)
    static = {"sharing-incentive": sharing_incentive, "envy-freeness": envy_freeness, "pareto-efficiency": pareto_efficiency}
    if name in static:
        given = divide(problem)
        return static[name](given) if given is not None else Finding(name, None, UNKNOWN)
    dynamic = {
        "single-resource": single_resource,
        "bottleneck": bottleneck,
        "population-monotonicity": population_monotonicity,
        "resource-monotonicity": resource_monotonicity,
    }
    return dynamic[name](problem, divide)


def strategy_proofness(problem: Problem, divide: Divide, lies: Iterable[Lie], around: bool = True) -> Finding:
    """No user runs more of its true tasks by claiming another demand; `around` searches for better lies near the best one.

    Ghodsi et al., NSDI 2011, section 3: "users should not be able to benefit by lying about their resource demands". A lie is
    worth the true tasks that run with its result, up to the user's true demand.
    """
    name = "strategy-proofness"
    truth = divide(problem)
    if truth is None:
        return Finding(name, None, UNKNOWN)
    best, tried = None, 0
    for lie in lies:
        found = _tell(problem, divide, truth, *lie)
        if found is not None:
            tried += 1
            if best is None or found[0].margin > best[0].margin:
                best = found
    if best is None or best[0].margin <= nothing(problem):
        margin = best[0].margin if best else float("-inf")
        return Finding(name, True, f"none of {tried:,} lies brings its user more", margin=margin, tried=tried)
    for step in (Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)) if around else ():
        for j in range(len(problem.resources)):
            for factor in (1 + step, 1 - step):
                i, claimed, tasks = best[1]
                claimed = claimed.copy()
                claimed[j] = claimed[j] * (factor if claimed.dtype == object else float(factor))
                found = _tell(problem, divide, truth, i, claimed, tasks)
                if found is not None:
                    tried += 1
                    if found[0].margin > best[0].margin:
                        best = found
    return replace(best[0], tried=tried)


def _tell(problem: Problem, divide: Divide, truth: Given, i: int, claimed: Numbers, tasks: Any) -> tuple[Finding, Lie] | None:
    """Return the result of a lie; None if the policy's answer is not certain."""
    demand, count = problem.demand.copy(), problem.tasks.copy()
    demand[i], count[i] = claimed, tasks
    found = _try(divide, replace(problem, demand=demand, tasks=count)) if (claimed > 0).any() else None
    if found is None:
        return None
    most, _ = problem.most()
    worth = tasks_with(found.low[i] * claimed, problem.demand[i])
    if most[i] >= 0:
        worth = min(worth, most[i])
    has, who = truth.high[i], problem.users[i]
    amounts = [amount(problem, j, x) if problem.quantities else format_number(x) for j, x in enumerate(claimed)]
    asks = ", ".join(f"{x} {r}" for x, r in zip(amounts, problem.resources, strict=True))
    also = "" if tasks == problem.tasks[i] else " and any number of tasks" if tasks < 0 else f" and {format_tasks(tasks)}"
    runs = f"runs {format_number(worth)} true tasks instead of {format_number(has)}"
    text = f"{who} claims <{asks}> a task{also} and {runs}{more(has, worth)}"
    margin = part(worth - has, has)
    return Finding("strategy-proofness", False, text, who, None, has, worth, margin, truth, found), (i, claimed, tasks)


def lies_of(problem: Problem, each: int) -> Iterator[Lie]:
    """Yield lies worth trying: more or less of one resource, another dominant resource, and random ones nearby."""
    m = len(problem.resources)
    factors = [Fraction(each) for each in ("1/4", "1/2", "3/4", "9/10", "11/10", "5/4", "3/2", "2", "3", "4", "8")]
    for i in range(len(problem.users)):
        true = problem.demand[i]
        found: list[Lie] = []
        if problem.tasks[i] >= 0:
            found.append((i, true, problem.tasks[i] * 0 - 1))
        for j in range(m):
            for factor in factors:
                claimed = true.copy()
                claimed[j] = true[j] * factor if true[j] > 0 else problem.capacity[j] * factor / 100
                found.append((i, claimed, problem.tasks[i]))
        parts = [true[j] / problem.capacity[j] if problem.capacity[j] > 0 else true[j] * 0 for j in range(m)]
        for j in range(m):  # make resource j the dominant one, or nearly
            for factor in (Fraction(9, 10), Fraction(1), Fraction(11, 10)):
                claimed = true.copy()
                claimed[j] = max(parts) * problem.capacity[j] * factor
                found.append((i, claimed, problem.tasks[i]))
        rng = np.random.default_rng(i)
        while len(found) < each:
            claimed = true.copy()
            for j in range(m):
                factor = Fraction(int(rng.integers(1, 40)), 10)
                claimed[j] = true[j] * factor if true[j] > 0 or rng.random() < 0.7 else problem.capacity[j] * factor / 100
            found.append((i, claimed, problem.tasks[i]))
        floats = problem.demand.dtype != object
        for user, claimed, tasks in found[:each]:
            if (claimed > 0).any():
                yield user, claimed.astype(np.float64) if floats else claimed, tasks


def single_resource(problem: Problem, divide: Divide) -> Finding:
    """With one resource alone the policy is max-min fair: checked for each resource of the case.

    Ghodsi et al., NSDI 2011, section 3: "for a single resource, the solution should reduce to max-min fairness". With
    constraints on machines, that is constrained max-min fairness (Ghodsi et al., "Choosy", EuroSys 2013): the least share is
    raised as far as any placement allows, then the next.
    """
    name = "single-resource"
    worst, tried = None, 0
    for j, resource in enumerate(problem.resources):
        users = np.flatnonzero(problem.demand[:, j] > 0)
        if not len(users) or problem.capacity[j] == 0:
            continue
        alone = _part_of(problem, users, [j])
        found = _try(divide, alone)
        if found is None:
            continue
        tried += 1
        worst = _further(worst, _unlike_maxmin(name, alone, found, alone, f"with {resource} alone"))
    if not tried:
        return Finding(name, None, "the policy cannot divide a single resource of this case")
    return replace(worst or Finding(name, True, "max-min fair on each resource alone"), tried=tried)


def bottleneck(problem: Problem, divide: Divide) -> Finding:
    """If all users have the same dominant resource, it is shared max-min fairly.

    Ghodsi et al., NSDI 2011, section 3: "if there is one resource that is percent-wise demanded most of by every user, then the
    solution should reduce to max-min fairness for that resource".
    """
    name = "bottleneck"
    if problem.machines is not None:
        return Finding(name, None, "machines differ: no resource is scarce everywhere")
    shared = np.ones(len(problem.resources), bool)
    there = problem.capacity > 0
    if (problem.demand[:, ~there] > 0).any():
        return Finding(name, None, "a user needs a resource of capacity 0")
    for i in range(len(problem.users)):
        parts = np.where(there, problem.demand[i] / np.where(there, problem.capacity, 1) / problem.weight[i], -1)
        shared &= parts == max(parts)
    if not shared.any() or not len(problem.users):
        return Finding(name, None, "no resource is everybody's dominant one")
    j = int(np.argmax(shared))
    found = _try(divide, problem)
    if found is None:
        return Finding(name, None, UNKNOWN)
    alone = _part_of(problem, np.arange(len(problem.users)), [j])
    worst = _unlike_maxmin(name, problem, found, alone, f"where {problem.resources[j]} is everybody's dominant resource")
    if worst is not None:
        return worst
    return Finding(name, True, f"{problem.resources[j]} is everybody's dominant resource, and shared max-min fairly", margin=-1.0)


def population_monotonicity(problem: Problem, divide: Divide) -> Finding:
    """When a user leaves, no other loses.

    Ghodsi et al., NSDI 2011, section 3: "when a user leaves the system and relinquishes her resources, none of the allocations
    of the remaining users should decrease".
    """
    name = "population-monotonicity"
    if len(problem.users) < 2:
        return Finding(name, None, "no user would stay")
    stays = [(user, np.delete(np.arange(len(problem.users)), k)) for k, user in enumerate(problem.users)]
    everything = range(len(problem.resources))
    left = ((f"when {user} leaves", user, stay, _part_of(problem, stay, everything)) for user, stay in stays)
    return _monotonicity(name, problem, divide, left, "nobody loses when another leaves")


def resource_monotonicity(problem: Problem, divide: Divide) -> Finding:
    """When the capacity of a resource grows, no user loses.

    Ghodsi et al., NSDI 2011, section 3: "if more resources are added to the system, none of the allocations of the existing
    users should decrease".
    """
    name = "resource-monotonicity"
    grown = ((f"with {what}", None, range(len(problem.users)), more_of_it) for what, more_of_it in _grown(problem))
    return _monotonicity(name, problem, divide, grown, "nobody loses when more is added")


def _monotonicity(name: str, problem: Problem, divide: Divide, variants: Iterable[Variant], good: str) -> Finding:
    before = _try(divide, problem)
    if before is None:
        return Finding(name, None, UNKNOWN)
    worst, tried = None, 0
    for when, other, stay, variant in variants:
        if (after := _try(divide, variant)) is not None:
            tried += 1
            for place, i in enumerate(stay):
                worst = _further(worst, _loss(name, before, after, i, place, when, other))
    if not tried:
        return Finding(name, None, "the policy cannot divide any variant of this case")
    if worst is None or worst.holds:
        return Finding(name, True, f"{good} ({tried} tried)", margin=worst.margin if worst else float("-inf"), tried=tried)
    return replace(worst, tried=tried)


def _grown(problem: Problem) -> Iterator[tuple[str, Problem]]:
    machines = problem.machines
    if machines is not None:
        for k in range(len(machines.count)):
            count = machines.count.copy()
            count[k] += 1
            more_of_it = problem.capacity + machines.capacity[k]
            grown = replace(problem, capacity=more_of_it, machines=replace(machines, count=count))
            yield f"one more machine of kind {k}", grown
        return
    for j, resource in enumerate(problem.resources):
        for factor, words in (
            (Fraction(11, 10), "a tenth more"),
            (Fraction(3, 2), "half as much more"),
            (Fraction(2), "twice the"),
            (Fraction(4), "four times the"),
        ):
            capacity = problem.capacity.copy()
            capacity[j] = capacity[j] * (factor if capacity.dtype == object else float(factor))
            if capacity[j] > problem.capacity[j]:
                yield f"{words} {resource}", replace(problem, capacity=capacity)


def _part_of(problem: Problem, users: Any, resources: Iterable[int]) -> Problem:
    """Return the problem of these users and these resources alone."""
    columns = list(resources)
    pick = np.ix_(users, columns)
    machines = problem.machines
    if machines is not None:
        machines = replace(machines, capacity=machines.capacity[:, columns], allowed=machines.allowed[users])
    return replace(
        problem, resources=tuple(problem.resources[j] for j in columns), users=[problem.users[i] for i in users],
        capacity=problem.capacity[columns], demand=problem.demand[pick], tasks=problem.tasks[users],
        weight=problem.weight[pick], guarantee=problem.guarantee[pick], limit=problem.limit[pick],
        priority=problem.priority[users], queues=[problem.queues[i] for i in users], machines=machines,
    )  # fmt: skip


def _try(divide: Divide, problem: Problem) -> Given | None:
    """Return the policy's allocation; None if it cannot divide this variant, or its numbers are not certain."""
    try:
        return divide(problem)
    except PolicyError:
        return None


def _unlike_maxmin(name: str, problem: Problem, found: Given, alone: Problem, where: str) -> Finding | None:
    """Return the finding for the user furthest below max-min fairness on the one resource."""
    fair = NAIVE.divide(alone).tasks  # with one resource this is max-min fairness, down the tree if there is one
    worst = None
    for i in range(len(problem.users)):
        margin = part(fair[i] - found.high[i], found.high[i])
        if margin > nothing(problem) and (worst is None or margin > worst.margin):
            who = problem.users[i]
            gives = f"max-min fairness gives it {format_number(fair[i])}{more(found.high[i], fair[i])}"
            text = f"{where}, {who} has {format_tasks(found.high[i])}; {gives}"
            worst = Finding(name, False, text, who, None, found.high[i], fair[i], margin, found)
    return worst


def _loss(name: str, before: Given, after: Given, i: int, place: int, when: str, other: str | None) -> Finding:
    had, has = before.low[i], after.high[place]
    margin = part(had - has, has)
    who = before.problem.users[i]
    if margin <= nothing(before.problem):
        return Finding(name, True, "", margin=margin)
    loses = f"it loses {float((had - has) / had):.1%} of what it had"
    text = f"{when}, {who} falls from {format_tasks(had)} to {format_number(has)}: {loses}"
    return Finding(name, False, text, who, other, has, had, margin, before, after)


def _further(worst: Finding | None, found: Finding | None) -> Finding | None:
    return found if found is not None and (worst is None or found.margin > worst.margin) else worst
