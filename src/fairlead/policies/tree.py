"""Fairness over a tree of queues: from the root down, the child with the smallest share goes next.

The variants define an inner queue's share differently (Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter
Workloads", SoCC 2013):

- naive: the dominant share of all use below it. This starves leaves: a child that uses much of one resource raises its parent's
  share, and its siblings, which need another resource, get nothing.
- hdrf: no leaf starves. Children that are not blocked count as if all had the least of their shares. Blocked children (demand
  met, or a needed resource saturated) count in full. Saturated resources are ignored.
- collapsed: no tree. A leaf's weight is its fraction of its parent's, multiplied down the path.

A user is a leaf under the queue that it names.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from fairlead.model.arrays import exact_array
from fairlead.model.problems import Problem
from fairlead.policies import drf
from fairlead.policies.contract import DividingPolicy, Division, Order
from fairlead.policies.filling import ByFilling
from fairlead.policies.tree_filling import Inner, TreeFilling, plant


class TreeOrder:
    """The order of users in a tree: hdrf with `rescale`, else the naive tree."""

    def __init__(self, problem: Problem, rescale: bool) -> None:
        self._problem, self._rescale = problem, rescale
        self._capacity = [c if c > 0 else c + 1 for c in problem.capacity]
        self._root = plant(problem)
        self.tasks = [0] * len(problem.users)
        self._out: set[int] = set()
        self._saturated: set[int] = set()

    def choose(self) -> int | None:
        """Return the next active user; None if all are out."""
        self._share_out(self._root)
        if self._root.blocked:
            return None
        at = self._root
        while at.user is None:
            at = min((child for child in at.children if not child.blocked), key=lambda child: child.level)
        return at.user

    def served(self, user: int, tasks: int) -> None:
        self.tasks[user] = tasks

    def out(self, user: int, saturated: int | None) -> None:
        """Stop serving a user: it needs the `saturated` resource, or (None) cannot use more."""
        self._out.add(user)
        if saturated is not None:
            self._saturated.add(saturated)

    def back(self, user: int) -> None:
        """Serve a user again. Saturated resources stay saturated."""
        self._out.discard(user)

    def _share_out(self, node: Inner) -> None:
        if node.user is not None:
            node.used = [amount * self.tasks[node.user] for amount in self._problem.demand[node.user]]
            node.blocked = node.user in self._out
            # A leaf that is not blocked needs no saturated resource, unless room came back.
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
    """DRF over a tree of queues."""

    name: str
    summary: str
    rescale: bool

    def divide(self, problem: Problem) -> Division:
        """Raise all levels together. If all users are in the root, this is DRF."""
        if not any(problem.queues):
            return ByFilling(self.name, self.summary, drf.speed).divide(problem)
        return TreeFilling(problem, self.rescale).divide()

    def indivisible(self, problem: Problem) -> tuple[Problem, Order]:
        """Serve whole tasks down the tree."""
        return problem, TreeOrder(problem, self.rescale)


def flattened(problem: Problem) -> Problem:
    """Return the problem without its tree: a user's weight is its fraction of its parent's weight, multiplied down the path."""
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
        """Return a user's weight; an inner queue weighs 1."""
        return 1 if node.user is None else problem.weight[node.user].min()

    descend(plant(problem), one)
    weight = exact_array(weights).astype(problem.demand.dtype)
    return replace(problem, weight=np.broadcast_to(weight[:, None], problem.demand.shape))


HDRF = Tree("hdrf", "drf down a tree of queues, so that no leaf starves", rescale=True)
"""Hierarchical DRF."""
NAIVE = Tree("naive", "drf at each inner queue as if it were a user: starves", rescale=False)
"""DRF at each inner queue over all that is used below its children; it starves leaves."""
COLLAPSED = ByFilling(
    "collapsed", "drf without the tree: weights multiplied down each path", lambda problem: drf.speed(flattened(problem))
)
"""DRF over the leaves alone, with weights multiplied down the tree."""


def knows_trees(policy: DividingPolicy) -> bool:
    """True if a policy takes the tree of queues into account."""
    return isinstance(policy, Tree) or policy.name == COLLAPSED.name
