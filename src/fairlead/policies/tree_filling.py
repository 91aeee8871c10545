"""Divisible fairness over a tree: the levels of all queues rise together, from one event to the next.

In an inner queue the lowest unblocked children rise, all at the same speed; the others wait for them. Only leaves gain tasks.
An inner queue's level is a piecewise linear function of the levels below it, so between two events all levels change linearly.
Events:

- a leaf has all that it can use, or (with a guarantee) starts to rise;
- a resource is saturated, and the leaves that need it are blocked;
- rising siblings reach a queue that waited;
- the dominant resource of an inner queue changes.

Under hdrf an inner queue's level can fall when a resource is saturated, because that resource no longer counts; the queue then
rises alone until it is level again. A level can also stand still while a child rises, if others use its dominant resource; the
queue then rises alone too.

The unblocked leaves of one inner queue are always at the same level, so they form one group. Each inner queue has its own
clock, in which its level rises by 1 per unit of time (or stands still), and knows the time to the next event below it. So an
event concerns only the queues above it; other queues catch up with the passed time when they are next read. A saturation
concerns all queues.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem
from fairlead.policies import drf
from fairlead.policies.contract import DEMAND, LIMIT, Division
from fairlead.policies.filling import filled_to_guarantees, stopped_at_once

CLOSE = 1e-12
"""Relative difference below which two floating-point levels are equal."""


@dataclass
class Inner:
    """An inner queue, or a leaf if it has a user."""

    name: str
    user: int | None = None
    children: list["Inner"] = field(default_factory=list)
    used: list[Any] = field(default_factory=list)
    level: Any = 0  # weighted share
    blocked: bool = False


def plant(problem: Problem) -> Inner:
    """Make the tree of queues whose leaves are the problem's users. Inner queues weigh 1 each."""
    root = Inner("")
    inner = {"": root}
    for i, name in enumerate(problem.users):
        path = problem.queues[i]
        parts = path.split("/") if path else []
        above = root
        for depth in range(1, len(parts) + 1):
            place = "/".join(parts[:depth])
            if place not in inner:
                inner[place] = Inner(place)
                above.children.append(inner[place])
            above = inner[place]
        above.children.append(Inner(name, user=i))
    return root


@dataclass(eq=False)
class _Rows:
    """What a queue knows about its inner children, one row each.

    blocked : True if nothing below may rise any more
    level, used : the child's level, and the use that it counts as
    climb, growth, slope : change of the level, of `used`, and of the real use below, per unit of the child's time
    until : time to the next event below the child; inf if none
    passed : time that the child has yet to catch up with
    """

    blocked: Any
    level: Numbers
    used: Numbers
    climb: Numbers
    growth: Numbers
    slope: Numbers
    until: Any
    passed: Numbers


@dataclass(eq=False)
class _Queue:
    """An inner queue.

    rows : its inner children's rows
    up, place : its own row in its parent
    leaves : unblocked users: those that rise, and those that wait for the level to reach their floor
    level : level of the rising leaves
    ends, starts : users in reverse order of being satisfied, or of starting to rise
    even, fixed : use of all unblocked leaves per level, and use of the blocked ones, shape (resources,)
    rising, resting : use of the rising leaves per level, and use of the waiting ones
    need : number of unblocked leaves that need each resource
    moving, leaves_move : inner children that rise; True if the leaves rise
    pace : time of the rising children per unit of the queue's own time
    event, child : the next event; if "", it happens below that child
    """

    children: list["_Queue"]
    rows: _Rows
    up: _Rows
    place: int
    leaves: set[int]
    ends: list[int]
    starts: list[int]
    even: Numbers
    fixed: Numbers
    rising: Numbers
    resting: Numbers
    need: Any
    level: Any
    moving: Any = None
    leaves_move: bool = False
    pace: Any = 1
    event: str = ""
    child: int = 0


class TreeFilling:
    """Fills down a tree: hdrf with `rescale`, else the naive tree."""

    def __init__(self, problem: Problem, rescale: bool) -> None:
        self._rescale = rescale
        self._problem = problem
        self._zero = problem.capacity[0] * 0
        self._exact = problem.demand.dtype == object
        self._size = np.where(problem.capacity > 0, problem.capacity, self._zero + 1)
        self._counted = problem.capacity > 0
        self._most, self._limited = problem.most()
        self._speed = drf.speed(problem)
        self._round = np.zeros(len(problem.users), np.int64)
        self._rounds = 0

    def divide(self) -> Division:
        """Fill until all leaves are blocked."""
        problem = self._problem
        floor = filled_to_guarantees(problem, self._speed)
        self._tasks, self._floor, self._takes_part = floor.copy(), floor, np.ones(len(floor), np.bool_)
        self._stop = stopped_at_once(problem.capacity, problem.demand, self._takes_part, self._most, floor, self._limited)
        self._used = (problem.demand * floor[:, None]).sum(axis=0)
        self._queues: list[_Queue] = []  # children before their parents
        top = self._unknown(1)
        root = self._grow(plant(problem), top, 0)
        for q in self._queues:
            self._look(q)
        while not top.blocked[0]:
            self._step(root)
        return Division(self._tasks, self._stop, self._round)

    def _grow(self, node: Inner, up: _Rows, place: int) -> _Queue:
        problem = self._problem
        inner = [child for child in node.children if child.user is None]
        rows = self._unknown(len(inner))
        children = [self._grow(child, rows, k) for k, child in enumerate(inner)]
        users = [child.user for child in node.children if child.user is not None]
        going = {i for i in users if self._takes_part[i]}
        none = problem.capacity * 0
        chosen = np.array(sorted(going), np.int64)
        speed = self._speed
        even = (problem.demand[chosen] * speed[chosen, None]).sum(axis=0) if going else none
        waiting = [i for i in going if self._floor[i] > 0]
        queue = _Queue(
            children=children,
            rows=rows,
            up=up,
            place=place,
            leaves=going,
            ends=sorted((i for i in going if self._most[i] >= 0), key=lambda i: self._most[i] / speed[i], reverse=True),
            starts=sorted(waiting, key=lambda i: self._floor[i] / speed[i], reverse=True),
            even=even,
            fixed=sum((problem.demand[i] * self._floor[i] for i in users if i not in going), none),
            rising=even - sum((problem.demand[i] * speed[i] for i in waiting), none),
            resting=sum((problem.demand[i] * self._floor[i] for i in waiting), none),
            need=(problem.demand[chosen] > 0).sum(axis=0) if going else np.zeros(len(none), np.int64),
            level=self._zero,
        )
        if len(waiting) == len(going):
            queue.rising = none
        self._queues.append(queue)
        return queue

    def _unknown(self, count: int) -> _Rows:
        """Make rows of zeros for `count` queues."""
        one, wide = np.full(count, self._zero), np.full((count, len(self._size)), self._zero)
        return _Rows(
            blocked=np.zeros(count, np.bool_), level=one, used=wide, climb=one.copy(), growth=wide.copy(),
            slope=wide.copy(), until=one.copy(), passed=one.copy(),
        )  # fmt: skip

    # -- where a queue stands, and how it moves ------------------------------------------------------------------

    def _look(self, q: _Queue) -> None:
        """Compute a queue's use and level, how they change, and the next event; store them in its parent's row."""
        rows, up, k = q.rows, q.up, q.place
        going = np.flatnonzero(~rows.blocked)
        up.blocked[k] = not len(going) and not q.leaves
        levels = rows.level[going]
        lowest = min([*levels, q.level] if q.leaves else levels, default=self._zero)
        is_lowest = self._are(levels, lowest)
        q.moving, higher = going[is_lowest], going[~is_lowest]

        used = q.fixed + (q.even * lowest if self._rescale else q.resting + q.rising * q.level)
        rest = q.fixed * 0  # use per level of the higher children
        if self._rescale and len(higher):
            rest = (rows.used[higher] / rows.level[higher][:, None]).sum(axis=0)
            used = used + rest * lowest + rows.used[rows.blocked].sum(axis=0) + rows.used[q.moving].sum(axis=0)
        elif len(q.children):
            used = used + rows.used.sum(axis=0)
        shares = used / self._size
        counted = np.flatnonzero(self._counted)
        level = max(shares[counted], default=self._zero)
        up.used[k], up.level[k] = used, level
        if up.blocked[k]:
            return

        q.leaves_move = bool(q.leaves) and bool(self._are(q.level, lowest))
        standing = q.moving[rows.climb[q.moving] == 0]
        if len(standing):  # their level stands still, so they rise alone
            q.moving, q.leaves_move = standing, False
        growth = rows.growth[q.moving].sum(axis=0) if len(q.moving) else q.fixed * 0
        if not len(standing):
            if self._rescale:
                growth = growth + q.even + rest
            elif q.leaves_move:
                growth = growth + q.rising
        slopes = growth / self._size
        dominant = counted[self._are(shares[counted], level)]
        climb = max(slopes[dominant], default=self._zero)
        q.pace = 1 / climb if climb > 0 else self._zero + 1
        up.climb[k] = self._zero + 1 if climb > 0 else self._zero
        up.growth[k] = growth * q.pace
        slope = rows.slope[q.moving].sum(axis=0) if len(q.moving) else q.fixed * 0
        up.slope[k] = (slope + q.rising if q.leaves_move else slope) * q.pace

        # The next event, in the time of the rising children.
        first: Any = np.inf
        q.event = ""
        for c in q.moving:
            if rows.until[c] < first:
                first, q.child = rows.until[c], int(c)
        for event, users, reached in (("end", q.ends, self._most), ("start", q.starts, self._floor)):
            if q.leaves_move and users:
                gap = max(reached[users[-1]] / self._speed[users[-1]] - q.level, self._zero)
                if gap < first:
                    first, q.event = gap, event
        if not len(standing):
            waits = [*rows.level[higher], q.level] if q.leaves and not q.leaves_move else rows.level[higher]
            gap = min(waits, default=np.inf) - lowest
            if gap < first:
                first, q.event = gap, "even"
        for j in counted:
            if slopes[j] > climb and j not in dominant:
                gap = max(level - shares[j], self._zero) / (slopes[j] - climb)
                if gap < first:
                    first, q.event = gap, "dominant"
        up.until[k] = first / q.pace

    def _are(self, some: Any, value: Any) -> Any:
        """Return which levels equal `value`."""
        if self._exact:
            return some == value
        return np.abs(some - value) <= CLOSE * np.maximum(np.abs(some), np.abs(value))

    def _pass(self, q: _Queue) -> None:
        """Advance what is directly below a queue by the time that the queue has to catch up with."""
        passed = q.up.passed[q.place]
        if passed == 0:
            return
        q.up.passed[q.place] = self._zero
        inner, rows = passed * q.pace, q.rows
        if q.leaves_move:
            q.level = q.level + inner
        if len(q.moving):
            rows.level[q.moving] += rows.climb[q.moving] * inner
            rows.used[q.moving] += rows.growth[q.moving] * inner
            rows.until[q.moving] -= inner
            rows.passed[q.moving] += inner

    # -- what happens --------------------------------------------------------------------------------------------

    def _step(self, root: _Queue) -> None:
        """Advance to the next event, and process it."""
        top = root.up
        slope, time, saturated = top.slope[0], top.until[0], None
        for j in np.flatnonzero(self._problem.capacity > 0):
            if slope[j] > 0:
                gap = max(self._problem.capacity[j] - self._used[j], self._zero) / slope[j]
                if gap < time:
                    time, saturated = gap, j
        self._used = self._used + slope * time
        top.passed[0] += time
        if saturated is not None:
            for q in reversed(self._queues):
                self._pass(q)
            self._saturate(int(saturated))
            for q in self._queues:
                self._look(q)
            return
        path = [root]
        self._pass(root)
        while not path[-1].event:
            path.append(path[-1].children[path[-1].child])
            self._pass(path[-1])
        q = path[-1]
        if q.event == "end":
            self._ends(q, q.ends.pop())
        elif q.event == "start":
            self._starts(q, q.starts.pop())
        for q in reversed(path):
            self._look(q)

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
        """Fix a leaf at `tasks`."""
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
        """Zero the sums of resources that no leaf needs (rounding errors), and drop blocked leaves from `ends` and `starts`."""
        none = q.need == 0
        for amounts in (q.even, q.rising, q.resting):
            amounts[none] = self._zero
        while q.ends and q.ends[-1] not in q.leaves:
            q.ends.pop()
        while q.starts and q.starts[-1] not in q.leaves:
            q.starts.pop()
