"""Fairness over a tree, divisible: the levels of all queues rise together, from one event to the next.

Within an inner queue the lowest of the children that are not blocked rise, all at the same speed, and the others wait until these
have come up to them. What is raised is the leaves' tasks; the level of an inner queue follows from what is below it, and is a
piecewise linear function of that, so that between two events everything moves in straight lines:

- a leaf has all that it can use, or (with a guarantee) starts to rise;
- a resource is saturated, and whoever needs it is blocked;
- a queue that waited is reached by its siblings;
- another resource becomes the dominant one of an inner queue.

Under hdrf an inner queue's level can fall when a resource is saturated, since that counts no more; it then rises alone until it
is even again. It can also stand still while a child rises, when what dominates it is in use by others; it is then alone too.

The leaves of one inner queue that are not blocked are always at the same level, so they are one group: an event costs as many
steps as there are inner queues and resources, a saturation as many as there are users.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairlead.model.problems import Numbers, Problem
from fairlead.policies import drf
from fairlead.policies.contract import Division
from fairlead.policies.filling import DEMAND, LIMIT, NOT_TAKEN, fill
from fairlead.policies.tree import Inner, plant

CLOSE = 1e-12
"""Levels in floating point that differ by less, in parts of the larger, are the same."""


@dataclass(eq=False)
class _Queue:
    """An inner queue.

    leaves : users that may rise yet, or wait for their floor to be reached
    level : of those that rise
    ends, starts : users in the order in which they are satisfied, or begin to rise
    even, fixed : what one level of all unblocked leaves takes, and what the blocked ones have, shape (resources,)
    rising, resting : what one level of those that rise takes, and what those have that do not yet
    need : how many unblocked leaves need each resource
    """

    children: list["_Queue"]
    leaves: set[int]
    ends: list[int]
    starts: list[int]
    even: Numbers
    fixed: Numbers
    rising: Numbers
    resting: Numbers
    need: Any
    level: Any
    blocked: bool = False
    own: Any = None  # its level among its siblings, and what it counts as, at this moment
    used: Any = None
    lowest: Any = None
    # How these move: the change of the leaves' level, of its own level and of what it counts as, in its own time.
    moving: list["_Queue | None"] = field(default_factory=list)
    stretch: Any = 1
    climb: Any = 0
    growth: Any = None


class TreeFilling:
    """Fill down a tree; `rescale` makes the difference between hdrf and the naive tree."""

    def __init__(self, problem: Problem, rescale: bool) -> None:
        self._rescale = rescale
        self._problem = problem
        self._zero = problem.capacity[0] * 0
        self._exact = problem.demand.dtype == object
        self._size = np.where(problem.capacity > 0, problem.capacity, self._zero + 1)
        self._counted = problem.capacity > 0
        self._most, self._limited = problem.most()
        self._speed = drf.speed(problem)
        n = len(problem.users)
        self._stop = np.full(n, NOT_TAKEN, np.int64)
        self._round = np.zeros(n, np.int64)
        self._rounds = 0

    def divide(self) -> Division:
        """Fill until all are blocked."""
        problem = self._problem
        promised = problem.promised()
        nothing = problem.tasks * 0
        floor = nothing
        if (promised > 0).any():
            taking = self._speed * (promised > 0)
            floor = fill(problem.capacity, problem.demand, taking, promised, nothing, self._limited).tasks
        self._tasks = floor.copy()
        self._floor = floor
        takes_part = np.ones(len(floor), np.bool_)
        for j in np.flatnonzero(problem.capacity == 0):
            hopeless = takes_part & (problem.demand[:, j] > 0)
            self._stop[hopeless] = j
            takes_part &= ~hopeless
        full = takes_part & (self._most >= 0) & (self._most <= floor)
        self._stop[full] = np.where(self._limited[full], LIMIT, DEMAND)
        self._takes_part = takes_part & ~full
        self._used = (problem.demand * floor[:, None]).sum(axis=0)
        self._queues: list[_Queue] = []
        root = self._grow(plant(problem))
        while True:
            self._look(root)
            if root.blocked:
                return Division(self._tasks, self._stop, self._round)
            self._move(root)
            self._step(root)

    def _grow(self, node: Inner) -> _Queue:
        problem = self._problem
        children = [self._grow(child) for child in node.children if child.user is None]
        users = [child.user for child in node.children if child.user is not None]
        going = [i for i in users if self._takes_part[i]]
        none = problem.capacity * 0
        rows = np.array(going, np.int64)
        speed = self._speed
        even = (problem.demand[rows] * speed[rows, None]).sum(axis=0) if going else none
        waiting = [i for i in going if self._floor[i] > 0]
        queue = _Queue(
            children=children,
            leaves=set(going),
            ends=sorted((i for i in going if self._most[i] >= 0), key=lambda i: self._most[i] / speed[i], reverse=True),
            starts=sorted(waiting, key=lambda i: self._floor[i] / speed[i], reverse=True),
            even=even,
            fixed=sum((problem.demand[i] * self._floor[i] for i in users if i not in set(going)), none),
            rising=even - sum((problem.demand[i] * speed[i] for i in waiting), none),
            resting=sum((problem.demand[i] * self._floor[i] for i in waiting), none),
            need=(problem.demand[rows] > 0).sum(axis=0) if going else np.zeros(len(none), np.int64),
            level=self._zero,
        )
        if len(waiting) == len(going):
            queue.rising = none
        self._queues.append(queue)
        return queue

    # -- where everything stands ---------------------------------------------------------------------------------

    def _look(self, q: _Queue) -> None:
        """Work out what a queue counts as, and its level."""
        for child in q.children:
            self._look(child)
        going = [child for child in q.children if not child.blocked]
        q.blocked = not going and not q.leaves
        levels = [child.own for child in going] + ([q.level] if q.leaves else [])
        q.lowest = min(levels, default=self._zero)
        used = q.fixed + (q.even * q.lowest if self._rescale else q.resting + q.rising * q.level)
        for child in q.children:
            rescaled = self._rescale and not child.blocked and not self._is(child.own, q.lowest)
            used = used + (child.used * (q.lowest / child.own) if rescaled else child.used)
        q.used = used
        shares = self._shares(used)
        q.own = max(shares[self._counts()], default=self._zero)

    def _shares(self, amounts: Numbers) -> Numbers:
        return amounts / self._size

    def _counts(self) -> Any:
        return np.flatnonzero(self._counted)

    def _is(self, a: Any, b: Any) -> bool:
        return bool(a == b) if self._exact else bool(abs(a - b) <= CLOSE * max(abs(a), abs(b)))

    # -- how it moves --------------------------------------------------------------------------------------------

    def _move(self, q: _Queue) -> None:
        """Work out how a queue moves: if it can, so that its own level grows by one in one unit of its time."""
        for child in q.children:
            if not child.blocked:
                self._move(child)
        going = [child for child in q.children if not child.blocked]
        q.moving = [child for child in going if self._is(child.own, q.lowest)]
        leaves_move = bool(q.leaves) and self._is(q.level, q.lowest)
        standing = [child for child in q.moving if child is not None and child.climb == 0]
        growth = q.fixed * 0
        if standing:  # they rise alone, since their level does not
            q.moving, leaves_move = list(standing), False
            for child in standing:
                growth = growth + child.growth
        else:
            for child in going:
                if child in q.moving:
                    growth = growth + child.growth
            if self._rescale:
                growth = growth + q.even
                for child in going:
                    if child not in q.moving:
                        growth = growth + child.used / child.own
            elif leaves_move:
                growth = growth + q.rising
        if leaves_move:
            q.moving.append(None)
        shares, slopes = self._shares(q.used), self._shares(growth)
        q.climb = max((slopes[j] for j in self._counts() if self._is(shares[j], q.own)), default=self._zero)
        q.stretch = 1 / q.climb if q.climb > 0 else self._zero + 1
        q.growth = growth * q.stretch
        q.climb = self._zero + 1 if q.climb > 0 else self._zero

    def _step(self, root: _Queue) -> None:
        """Go on to the next event, and let it happen."""
        pace: list[tuple[_Queue, Any]] = []  # queues whose leaves rise, and how fast
        slope = root.fixed * 0
        best: Any = None

        def offer(gap: Any, rate: Any, kind: str, what: Any) -> None:
            nonlocal best
            if rate > 0:
                time = max(gap, self._zero) / rate
                if best is None or time < best[0]:
                    best = (time, kind, what)

        def descend(q: _Queue, speed: Any) -> None:
            nonlocal slope
            inner = speed * q.stretch  # of the lowest level among its children
            rises_with_all = all(child is None or child.climb > 0 for child in q.moving)
            if None in q.moving:
                pace.append((q, inner))
                slope = slope + q.rising * inner
                if q.ends:
                    offer(self._most[q.ends[-1]] / self._speed[q.ends[-1]] - q.level, inner, "end", q)
                if q.starts:
                    offer(self._floor[q.starts[-1]] / self._speed[q.starts[-1]] - q.level, inner, "start", q)
            if rises_with_all:
                others = [c.own for c in q.children if not c.blocked and c not in q.moving]
                if q.leaves and None not in q.moving:
                    others.append(q.level)
                for level in others:
                    offer(level - q.lowest, inner, "even", None)
            shares, slopes = self._shares(q.used), self._shares(q.growth)
            for j in self._counts():
                if slopes[j] > q.climb and not self._is(shares[j], q.own):
                    offer(q.own - shares[j], (slopes[j] - q.climb) * speed, "dominant", None)
            for child in q.moving:
                if child is not None:
                    descend(child, inner)

        descend(root, self._zero + 1)
        for j in np.flatnonzero(self._problem.capacity > 0):
            offer(self._problem.capacity[j] - self._used[j], slope[j], "saturated", int(j))
        time, kind, what = best
        for q, rate in pace:
            q.level = q.level + rate * time
        self._used = self._used + slope * time
        if kind == "start":
            self._starts(what, what.starts.pop())
        elif kind == "end":
            self._ends(what, what.ends.pop())
        elif kind == "saturated":
            self._saturate(what)

    # -- what happens --------------------------------------------------------------------------------------------

    def _starts(self, q: _Queue, i: int) -> None:
        if i in q.leaves:
            demand = self._problem.demand[i]
            q.rising = q.rising + demand * self._speed[i]
            q.resting = q.resting - demand * self._floor[i]
            self._floor[i] = self._zero

    def _ends(self, q: _Queue, i: int) -> None:
        if i in q.leaves:
            self._block(q, i, self._most[i])
            self._stop[i] = LIMIT if self._limited[i] else DEMAND
            self._clean(q)

    def _saturate(self, j: int) -> None:
        self._rounds += 1
        self._used[j] = self._problem.capacity[j]
        for q in self._queues:
            for i in [i for i in q.leaves if self._problem.demand[i, j] > 0]:
                self._block(q, i, self._floor[i] if self._floor[i] > 0 else self._speed[i] * q.level)
                self._stop[i] = j
            self._clean(q)
        if self._rescale:
            self._counted = self._counted & (np.arange(len(self._counted)) != j)

    def _block(self, q: _Queue, i: int, tasks: Any) -> None:
        """A leaf has what it has."""
        demand = self._problem.demand[i]
        q.leaves.discard(i)
        q.need = q.need - (demand > 0)
        q.even = q.even - demand * self._speed[i]
        if self._floor[i] > 0:
            q.resting = q.resting - demand * self._floor[i]
        else:
            q.rising = q.rising - demand * self._speed[i]
        q.fixed = q.fixed + demand * tasks
        self._tasks[i] = tasks
        self._round[i] = self._rounds

    def _clean(self, q: _Queue) -> None:
        """What nobody needs is 0, whatever rounding left; who has ended is not looked at again."""
        none = q.need == 0
        for amounts in (q.even, q.rising, q.resting):
            amounts[none] = self._zero
        while q.ends and q.ends[-1] not in q.leaves:
            q.ends.pop()
        while q.starts and q.starts[-1] not in q.leaves:
            q.starts.pop()
