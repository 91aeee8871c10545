"""Indivisible tasks: one whole task after another, to the user with the smallest key, as Algorithm 1 of the DRF paper.

A user whose next task fits nowhere is out; the others go on until no task fits. Ties go to the user listed first. With several
machines, a task goes where it would strand the least of what some machines lack; among those to the first with room, the one that
it fills most (best fit), or least (worst fit). All arithmetic is in fractions, so that ties are exact.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import inf
from typing import Any, Literal

import numpy as np

from fairlead.model.arrays import Numbers, exact_array
from fairlead.model.problems import Problem
from fairlead.policies.contract import DEMAND, LIMIT, NO_SLOT, SLOT, Division, Order, OrderingPolicy, PolicyError

MOST_STEPS = 1_000_000
"""Most tasks placed."""
MOST_TRACED = 100
"""Most users for which each step keeps everybody's tasks."""
Placement = Literal["first", "best", "worst"]

Key = Callable[[int, int], Any]
"""Key of a user with a number of tasks. The smallest is served next."""


class ByKey:
    """Serves the user with the smallest key, the first listed among equals."""

    def __init__(self, key: Key, users: int) -> None:
        self._key = key
        self._tasks: list[int | None] = [0] * users  # None: out
        self._heap = [(key(i, 0), i, 0) for i in range(users)]
        heapq.heapify(self._heap)

    def choose(self) -> int | None:
        while self._heap and self._tasks[self._heap[0][1]] != self._heap[0][2]:  # outdated
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def served(self, user: int, tasks: int) -> None:
        self._tasks[user] = tasks
        heapq.heappush(self._heap, (self._key(user, tasks), user, tasks))

    def out(self, user: int, saturated: int | None) -> None:
        self._tasks[user] = None


def by_rate(rate: Numbers) -> ByKey:
    """Return the order by keys that grow by a user's rate with each task."""
    return ByKey(lambda i, tasks: rate[i] * tasks, len(rate))


@dataclass(frozen=True)
class Step:
    """One placed task: its user and machine, and the state after it.

    tasks : shape (users,); empty with more than MOST_TRACED users
    used : shape (resources,), over all machines
    """

    user: int
    node: int
    tasks: tuple[int, ...]
    used: tuple[Any, ...]


def place(problem: Problem, policy: OrderingPolicy, placement: Placement = "first") -> tuple[Division, list[Step]]:
    """Serve whole tasks until nothing more fits. Raises PolicyError if more than MOST_STEPS tasks fit.

    problem : in fractions; without `machines`, its capacity is that of `problem.nodes` equal machines
    """
    seen, order = policy.indivisible(problem)
    n = len(seen.users)
    free, usable = _machines_of(seen)
    demand = [[(j, amount) for j, amount in enumerate(row) if amount > 0] for row in seen.demand]
    machines = _by_waste(demand, free, usable, placement)
    most, limited = seen.most()
    tasks, used = [0] * n, list(seen.capacity * 0)
    stop = np.full(n, DEMAND, np.int64)
    steps: list[Step] = []

    def serve(i: int) -> int | None:
        """Place one more task of a user; return the lacking resource if none fits."""
        node = _node_for(demand[i], free, machines(i), placement)
        if node is None:
            return _lacking(demand[i], [free[k] for alike in machines(i) for k in alike] or [[0] * len(used)])
        if len(steps) == MOST_STEPS:
            raise PolicyError(f"more than {MOST_STEPS:,} tasks fit: divide it instead, or ask for larger tasks")
        tasks[i] += 1
        for j, amount in demand[i]:
            free[node][j] -= amount
            used[j] += amount
        steps.append(Step(i, node, tuple(tasks), tuple(used)) if n <= MOST_TRACED else Step(i, node, (), ()))
        return None

    _serve_promised(seen.promised(), tasks, order, serve)
    going = set(range(n))
    while (chosen := order.choose()) is not None:
        lacking = None
        if 0 <= most[chosen] < tasks[chosen] + 1:
            stop[chosen] = LIMIT if limited[chosen] else DEMAND
        else:
            lacking = serve(chosen)
            if lacking is None:
                order.served(chosen, tasks[chosen])
                continue
            stop[chosen] = lacking
        going.discard(chosen)
        order.out(chosen, lacking if lacking is not None and _is_saturated(lacking, free, seen.demand, going) else None)
    whole = problem.tasks * 0 + exact_array(tasks)
    if seen.resources != problem.resources:  # slots
        too_large = (seen.demand > seen.capacity).any(axis=1)
        stop[stop >= 0] = SLOT
        stop[too_large] = NO_SLOT - (problem.demand * seen.capacity > problem.capacity)[too_large].argmax(axis=1)
    return Division(whole, stop, np.zeros(n, np.int64)), steps


def _machines_of(problem: Problem) -> tuple[list[list[Any]], list[list[int]] | None]:
    """Return free quantities per machine, and the machines that each user may use (None: all)."""
    kinds = problem.machines
    if kinds is None:
        return [list(problem.capacity / problem.nodes) for _ in range(problem.nodes)], None
    of_kind = np.repeat(np.arange(len(kinds.count)), kinds.count)
    return [list(kinds.capacity[k]) for k in of_kind], [np.flatnonzero(row[of_kind]).tolist() for row in kinds.allowed]


def _by_waste(
    demand: list[list[tuple[int, Any]]], free: list[list[Any]], usable: list[list[int]] | None, placement: Placement
) -> Callable[[int], list[list[int]]]:
    """Return what groups a user's machines by what a task would strand on each, the least first.

    A task takes the part of a machine that is its largest demand / capacity. It strands what that part has and it does not
    need, as a part of all there is, summed over the resources that some machines lack; if none is, for first fit, over all.
    Capacities count as parts of the largest machine's, rounded up to a half, a quarter, an eighth, and so on, so that machines
    that are nearly alike are alike.
    """
    by_resource = list(zip(*free, strict=True))
    largest, total = [Fraction(max(c)) for c in by_resource], [Fraction(sum(c)) for c in by_resource]
    some = [j for j in range(len(total)) if total[j]]
    scarce = [j for j in some if not all(by_resource[j])] or (some if placement == "first" else [])
    about = [
        tuple(big / 2 ** (int(big // c).bit_length() - 1) if c else Fraction(0) for big, c in zip(largest, room, strict=True))
        for room in free
    ]

    def waste(user: int, there: tuple[Fraction, ...]) -> Fraction | float:
        if not all(there[j] for j, _ in demand[user]):
            return inf
        needs = dict(demand[user])
        taken = max((Fraction(amount) / there[j] for j, amount in demand[user]), default=Fraction(0))
        return sum(((taken * there[j] - Fraction(needs.get(j, 0))) / total[j] for j in scarce), Fraction(0))

    @cache
    def groups(user: int) -> list[list[int]]:
        found: dict[Fraction | float, list[int]] = {}
        wastes = {there: waste(user, there) for there in set(about)}
        for node in range(len(free)) if usable is None else usable[user]:
            found.setdefault(wastes[about[node]], []).append(node)
        return [found[each] for each in sorted(found)]

    return groups


def _serve_promised(promised: Any, tasks: list[int], order: Order, serve: Callable[[int], int | None]) -> None:
    """Serve users below a guarantee first, the smallest fraction of it next."""
    ahead = [i for i in range(len(tasks)) if promised[i] > 0]
    while ahead:
        first = min(ahead, key=lambda i: (Fraction(tasks[i]) / promised[i], i))
        if serve(first) is not None:
            ahead.remove(first)
            continue
        order.served(first, tasks[first])
        if tasks[first] >= promised[first]:
            ahead.remove(first)


def _node_for(demand: list[tuple[int, Any]], free: list[list[Any]], groups: list[list[int]], placement: Placement) -> int | None:
    """Return a machine with room in the first group that has one, by the placement rule; None if none has."""
    choose = min if placement == "best" else max
    for group in groups:
        fitting = (node for node in group if all(free[node][j] >= amount for j, amount in demand))
        if placement == "first":
            node = next(fitting, None)
        else:  # how full a machine gets: the tasks that would still fit after this one
            node = choose(fitting, key=lambda node: min((free[node][j] - a) / a for j, a in demand), default=None)
        if node is not None:
            return node
    return None


def _is_saturated(j: int, free: list[list[Any]], demand: Any, going: set[int]) -> bool:
    """Return True if no active user could use what is left of a resource."""
    least = min((demand[i, j] for i in going if demand[i, j] > 0), default=None)
    return least is None or max(room[j] for room in free) < least


def _lacking(demand: list[tuple[int, Any]], free: list[list[Any]]) -> int:
    """Return the resource most lacking on the machine closest to having room."""
    closest = min(free, key=lambda room: max((amount - room[j]) / amount for j, amount in demand))
    return max(demand, key=lambda need: (need[1] - closest[need[0]]) / need[1])[0]
