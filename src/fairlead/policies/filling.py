"""Progressive filling: raise all users' levels together until something stops each.

A policy of this family is its *speed*: each user's tasks per level. DRF, asset fairness, task share fairness, max-min on one
resource and slots differ only in that. Every user rises at its speed from its floor (what a guarantee gave it before). It stops
when its demand or limit is met, or a resource that it needs is saturated; the others go on.

The loop takes one event after another: a user starts to rise, a user is satisfied, a resource is saturated. That makes at most
two events per user and one per resource. An event costs O(resources), a saturation O(users x resources).

The loop exists twice. `kernel/filling.pyx` is compiled, for float64; it keeps sums in two parts (Knuth's two-sum), so that a
million additions and subtractions lose nothing. :func:`loop` takes whole numbers of any size, to which fractions are scaled; it
compares levels by cross-multiplication, so it never reduces a fraction.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem
from fairlead.policies.contract import DEMAND, LIMIT, NOT_TAKEN, Division, Order
from fairlead.policies.discrete import by_rate
from fairlead.policies.kernel import filling as kernel
from fairlead.policies.machines import divide_machines

_WAITS, _RISES, _STOPPED = 0, 1, 2
_START, _END, _SATURATED = 1, 2, 3


@dataclass(frozen=True)
class ByFilling:
    """A policy of the progressive-filling family, made of its speed: tasks per level of each user."""

    name: str
    summary: str
    speed: Callable[[Problem], Numbers]

    def divide(self, problem: Problem) -> Division:
        """Fill users below a guarantee first, then all."""
        speed = self.speed(problem)
        if problem.machines is not None:
            return divide_machines(problem, speed)
        most, limited = problem.most()
        return fill(problem.capacity, problem.demand, speed, most, filled_to_guarantees(problem, speed), limited)

    def indivisible(self, problem: Problem) -> tuple[Problem, Order]:
        """Serve whole tasks to the lowest level."""
        return problem, by_rate(1 / self.speed(problem))


def filled_to_guarantees(problem: Problem, speed: Numbers) -> Numbers:
    """Return the tasks of each user once those below a guarantee are filled, shape (users,)."""
    promised, nothing = problem.promised(), problem.tasks * 0
    if not (promised > 0).any():
        return nothing
    return fill(problem.capacity, problem.demand, speed * (promised > 0), promised, nothing, problem.most()[1]).tasks


def fill(
    capacity: Numbers, demand: Numbers, speed: Numbers, most: Numbers, floor: Numbers, limited: NDArray[np.bool_]
) -> Division:
    """Fill progressively, in O((users log users) + users x resources^2) for float64.

    capacity : shape (resources,)
    demand : shape (users, resources): of one task. A user that needs a resource of capacity 0 gets nothing.
    speed : shape (users,): tasks per level; 0 for a user that takes no part
    most : shape (users,): tasks that a user can use or may have; -1: any number
    floor : shape (users,): tasks that a user has from the start. Together they must fit.
    limited : bool, shape (users,): True if `most` is the user's limit, not its demand
    """
    n = len(speed)
    exact = demand.dtype == object
    x, rounds, takes_part = floor.copy(), np.zeros(n, np.int64), speed > 0
    stop = stopped_at_once(capacity, demand, takes_part, most, floor, limited)
    rows = np.flatnonzero(takes_part)
    if not len(rows):
        return Division(x, stop, rounds)
    left = capacity.copy()
    for i in np.flatnonzero(~takes_part & (floor > 0)):
        left -= demand[i] * floor[i]
    d, v, m, f = (demand, speed, most, floor) if len(rows) == n else (demand[rows], speed[rows], most[rows], floor[rows])
    starts, ends = np.flatnonzero(f > 0), np.flatnonzero(m >= 0)
    starts = starts[np.argsort(f[starts] / v[starts], kind="stable")]
    ends = ends[np.argsort(m[ends] / v[ends], kind="stable")]
    if exact:
        (c, d, w, m_, f), unit = _as_whole_numbers(left, d, v, m, f)
        result = loop(c, d, w, m_, f, starts, ends)
        levels = [Fraction(a, b) * unit for a, b in zip(*result[3:], strict=True)]
    else:
        result = kernel.loop(left, d, v, np.where(m < 0, -1.0, m), f, starts, ends)
        levels = (result[3] / result[4]).tolist()
    why, at, rose = result[:3]
    met, risen = why == DEMAND, rose & (why >= 0)
    x[rows[met]] = m[met]
    x[rows[risen]] = (
        [v[i] * levels[at[i] - 1] for i in np.flatnonzero(risen)] if exact else v[risen] * np.array(levels)[at[risen] - 1]
    )
    stop[rows] = np.where(met & limited[rows], LIMIT, why)
    rounds[rows] = at
    return Division(x, stop, rounds)


def stopped_at_once(capacity: Numbers, demand: Numbers, takes_part: Any, most: Numbers, floor: Numbers, limited: Any) -> Any:
    """Take out who needs a resource of capacity 0 or has all from the start, in `takes_part`; return why, shape (users,)."""
    stop = np.full(len(floor), NOT_TAKEN, np.int64)
    for j in np.flatnonzero(capacity == 0):
        hopeless = takes_part & (demand[:, j] > 0)
        stop[hopeless] = j
        takes_part &= ~hopeless
    full = takes_part & (most >= 0) & (most <= floor)
    stop[full] = np.where(limited[full], LIMIT, DEMAND)
    takes_part &= ~full
    return stop


def _as_whole_numbers(capacity: Numbers, demand: Numbers, speed: Numbers, most: Numbers, floor: Numbers) -> tuple[Any, Fraction]:
    """Scale the problem to whole numbers. Also return the factor that turns its levels into the problem's."""
    tasks = lcm(*(x.denominator for x in (*most, *floor)))
    each = lcm(*(x.denominator for x in speed))
    columns = [lcm(c.denominator, *(x.denominator for x in column)) for c, column in zip(capacity, demand.T, strict=True)]

    def whole(values: Numbers, scale: int) -> Numbers:
        return np.array([int(x * scale) for x in values], object)

    scaled = np.array([whole(column, k) for column, k in zip(demand.T, columns, strict=True)], object).T
    room = np.array([int(c * k * tasks) for c, k in zip(capacity, columns, strict=True)], object)
    none = most < 0
    ceiling = whole(most, tasks)
    ceiling[none] = -1
    return (room, scaled.reshape(demand.shape), whole(speed, each), ceiling, whole(floor, tasks)), Fraction(each, tasks)


def loop(capacity: Any, demand: Any, speed: Any, most: Any, floor: Any, starts: Any, ends: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Process events in the order of their levels until no user rises, in whole numbers.

    Returns why each user stopped (a resource's column or DEMAND), after how many saturations, and True if it rose at all, each of
    shape (users,); then the numerators and the denominators of the level of each saturation.
    """
    rose = (floor == 0).astype(np.bool_)  # these rise from the start
    status, why, at = np.where(rose, _RISES, _WAITS), np.zeros(len(rose), np.int64), np.zeros(len(rose), np.int64)
    # Use at a level is fixed + level * slope.
    taken = demand * speed[:, None]
    fixed, slope = (demand * floor[:, None]).sum(axis=0), taken[rose].sum(axis=0)
    # After a saturation at level a/b, all amounts are multiplied by b, so that whole numbers stay whole.
    scale, tops, bottoms = 1, list[int](), list[int]()
    s = e = 0
    while True:
        while s < len(starts) and status[starts[s]] != _WAITS:
            s += 1
        while e < len(ends) and status[ends[e]] == _STOPPED:
            e += 1
        which: Any
        kind, which, a, b = 0, 0, 0, 0  # the next event, at level a/b
        if s < len(starts):
            kind, which, a, b = _START, starts[s], floor[starts[s]] * scale, speed[starts[s]]
        if e < len(ends):
            i = ends[e]
            if kind == 0 or most[i] * scale * b < a * speed[i]:
                kind, which, a, b = _END, i, most[i] * scale, speed[i]
        for j in np.flatnonzero(slope > 0):
            room = capacity[j] - fixed[j]
            if kind == 0 or room * b < a * slope[j]:
                kind, which, a, b = _SATURATED, j, room, slope[j]
        if kind == 0:
            return why, at, rose, tops, bottoms
        if kind == _START:
            status[which], rose[which] = _RISES, True
            fixed, slope = fixed - demand[which] * floor[which] * scale, slope + taken[which]
        elif kind == _END:
            status[which], why[which], at[which] = _STOPPED, DEMAND, len(tops)
            fixed, slope = fixed + demand[which] * most[which] * scale, slope - taken[which]
        else:
            stopped = (status != _STOPPED) & (demand[:, which] > 0)
            frozen = taken[stopped & (status == _RISES)].sum(axis=0)
            top, bottom = a // gcd(a, b), b // gcd(a, b)
            tops.append(top)
            bottoms.append(bottom * scale)
            status[stopped], why[stopped], at[stopped] = _STOPPED, which, len(tops)
            capacity, fixed, slope = capacity * bottom, fixed * bottom + frozen * top, slope - frozen
            scale *= bottom
