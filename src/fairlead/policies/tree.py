"""Fairness over a tree of queues: what there is goes down the tree, at each inner queue to the child with the smallest share.

What an inner queue's share is makes the difference (Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter
Workloads", SoCC 2013):

- naive: the dominant share of all that is used below it. It starves: a child that uses much of one resource makes its parent look
  rich, and its siblings, who need another one, go without.
- hdrf: the children that are not blocked count as if all had the least of their shares, those that are blocked (their demand is
  met, or what they need is saturated) as they are, and saturated resources are left out. So no leaf starves.
- collapsed: no tree at all; each leaf's weight is its part of its parent's, multiplied down the path.

A user is a leaf under the queue that it names.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from fairlead.model.arrays import exact_array
from fairlead.model.problems import Problem
from fairlead.policies import drf
from fairlead.policies.by_filling import ByFilling
from fairlead.policies.contract import Division
from fairlead.policies.orders import ByKey, Order, by_rate
from fairlead.policies.queue_tree import Inner, plant
from fairlead.policies.tree_filling import TreeFilling


class TreeOrder:
    """Who goes next in a tree; see the module. `rescale` makes the difference between hdrf and the naive tree."""

    def __init__(self, problem: Problem, rescale: bool) -> None:
        self._problem, self._rescale = problem, rescale
        self._capacity = [c if c > 0 else c + 1 for c in problem.capacity]
        self._root = plant(problem)
        self.tasks = [0] * len(problem.users)
        self._out: set[int] = set()
        self._saturated: set[int] = set()

    def choose(self) -> int | None:
        """The user that is next of those who are not out."""
        self._share_out(self._root)
        if self._root.blocked:
            return None
        at = self._root
        while at.user is None:
            at = min((child for child in at.children if not child.blocked), key=lambda child: child.level)
        return at.user

    def served(self, user: int, tasks: int) -> None:
        """The user has so many tasks now."""
        self.tasks[user] = tasks

    def out(self, user: int, saturated: int | None) -> None:
        """The user is served no more: for want of a resource, or because it has all that it can use."""
        self._out.add(user)
        if saturated is not None:
            self._saturated.add(saturated)

    def back(self, user: int) -> None:
        """There is room for the user again; what is saturated stays so."""
        self._out.discard(user)

    def _share_out(self, node: Inner) -> None:
        if node.user is not None:
            node.used = [amount * self.tasks[node.user] for amount in self._problem.demand[node.user]]
            node.blocked = node.user in self._out
            # A leaf that is not blocked needs nothing that is saturated, but for what came back.
            weight = self._problem.weight[node.user]
            node.level = max((u / c / w for u, c, w in zip(node.used, self._capacity, weight, strict=True)), default=0)
            return
        for child in node.children:
            self._share_out(child)
        going = [child for child in node.children if not child.blocked]
        node.blocked = not going
        least = min((child.level for child in going), default=0)
        node.used = [self._problem.capacity[0] * 0] * len(self._capacity)
        for child in node.children:
            factor: Any = 1
            if self._rescale and not child.blocked and child.level > 0:
                factor = least / child.level
            node.used = [a + b * factor for a, b in zip(node.used, child.used, strict=True)]
        counted = [j for j in range(len(self._capacity)) if not (self._rescale and j in self._saturated)]
        node.level = max((node.used[j] / self._capacity[j] for j in counted), default=0)


@dataclass(frozen=True)
class Tree:
    """By a tree of queues."""

    name: str
    summary: str
    rescale: bool

    def divide(self, problem: Problem) -> Division:
        """Raise all levels together; where all are in the root it is DRF."""
        if not any(problem.queues):
            return ByFilling(self.name, self.summary, drf.speed).divide(problem)
        return TreeFilling(problem, self.rescale).divide()

    def indivisible(self, problem: Problem) -> tuple[Problem, Order]:
        """Whole tasks go down the tree."""
        return problem, TreeOrder(problem, self.rescale)


@dataclass(frozen=True)
class Collapsed:
    """The tree flattened into weights."""

    name: str = "collapsed"
    summary: str = "drf without the tree: weights multiplied down each path"

    def divide(self, problem: Problem) -> Division:
        """DRF with those weights."""
        flat = flattened(problem)
        return ByFilling(self.name, self.summary, drf.speed).divide(flat)

    def indivisible(self, problem: Problem) -> tuple[Problem, Order]:
        """DRF with those weights."""
        flat = flattened(problem)
        return problem, ByKey(by_rate(1 / drf.speed(flat)), len(problem.users))


def flattened(problem: Problem) -> Problem:
    """The problem with each user's weight what the tree makes it: its part of its parent, times that one's part of its own."""
    one = problem.capacity[0] * 0 + 1
    weights: list[Any] = [one] * len(problem.users)

    def descend(node: Inner, share: Any) -> None:
        total = sum(weigh(child) for child in node.children)
        for child in node.children:
            part = share * (Fraction(1) * weigh(child) if isinstance(one, Fraction) else float(weigh(child))) / total
            if child.user is not None:
                weights[child.user] = part
            else:
                descend(child, part)

    def weigh(node: Inner) -> Any:
        """A user's weight; an inner queue weighs 1."""
        return 1 if node.user is None else problem.weight[node.user].min()

    descend(plant(problem), one)
    weight = exact_array(weights).astype(problem.demand.dtype)
    return replace(problem, weight=np.broadcast_to(weight[:, None], problem.demand.shape))
