"""Progressive filling: raise all users' levels together until something stops each.

A policy of this family is its *speed*: each user's tasks per level. DRF, asset fairness, task share fairness, max-min on one
resource and slots differ only in that. Every user rises at its speed from its floor (what a guarantee gave it before). It stops
when its demand or limit is met, or a resource that it needs is saturated; the others go on.

The loop takes one event after another: a user starts to rise, a user is satisfied, a resource is saturated. That makes at most
two events per user and one per resource. An event costs O(resources), a saturation O(users x resources).

The loop exists twice, with the same arithmetic. `kernel/filling.pyx` is compiled, for float64; it keeps sums in two parts
(Knuth's two-sum), so that a million additions and subtractions lose nothing. :func:`loop` takes whole numbers of any size, to
which fractions are scaled; it compares levels by cross-multiplication, so it never reduces a fraction.
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
from fairlead.policies.discrete import ByKey, by_rate
from fairlead.policies.kernel import filling as kernel
from fairlead.policies.machines import divide_machines

_WAITS, _RISES, _STOPPED = 0, 1, 2
_START, _END, _SATURATED = 1, 2, 3


@dataclass(frozen=True)
class Filling:
    """What each user gets, and why no more.

    tasks : shape (users,)
    stop : int64, shape (users,)
        DEMAND, LIMIT, NOT_TAKEN, or the column of the saturated resource.
    round : int64, shape (users,)
        Number of resources saturated when the user stopped.
    levels : list
        The level at the end of each round.
    """

    tasks: Numbers
    stop: NDArray[np.int64]
    round: NDArray[np.int64]
    levels: list[Any]


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
        promised = problem.promised()
        floor = problem.tasks * 0
        if (promised > 0).any():
            taking = speed * (promised > 0)
            floor = fill(problem.capacity, problem.demand, taking, promised, floor, limited).tasks
        found = fill(problem.capacity, problem.demand, speed, most, floor, limited)
        return Division(found.tasks, found.stop, found.round)

    def indivisible(self, problem: Problem) -> tuple[Problem, Order]:
        """Serve whole tasks to the lowest level."""
        return problem, ByKey(by_rate(1 / self.speed(problem)), len(problem.users))


def fill(
    capacity: Numbers, demand: Numbers, speed: Numbers, most: Numbers, floor: Numbers, limited: NDArray[np.bool_]
) -> Filling:
    """Fill progressively.

    Parameters
    ----------
    capacity : shape (resources,)
    demand : shape (users, resources)
        Demand of one task. A user that needs a resource of capacity 0 gets nothing.
    speed : shape (users,)
        Tasks per level; 0 for a user that takes no part.
    most : shape (users,)
        Tasks that a user can use or may have; -1: any number.
    floor : shape (users,)
        Tasks that a user has from the start. Together they must fit.
    limited : bool, shape (users,)
        True if `most` is the user's limit, not its demand.

    Returns
    -------
    Filling

    Notes
    -----
    O((users log users) + users x resources^2) for float64.
    """
    n = len(speed)
    exact = demand.dtype == object
    x = floor.copy()
    stop, rounds = np.full(n, NOT_TAKEN, np.int64), np.zeros(n, np.int64)
    takes_part = speed > 0
    for j in np.flatnonzero(capacity == 0):
        hopeless = takes_part & (demand[:, j] > 0)
        stop[hopeless] = j
        takes_part &= ~hopeless
    full = takes_part & (most >= 0) & (most <= floor)
    stop[full] = np.where(limited[full], LIMIT, DEMAND)
    takes_part &= ~full
    rows = np.flatnonzero(takes_part)
    if not len(rows):
        return Filling(x, stop, rounds, [])
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
        levels = [Fraction(int(a), int(b)) * unit for a, b in zip(*result[3:], strict=True)]
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
    return Filling(x, stop, rounds, levels)


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
    """Process events in the order of their levels until no user rises. `capacity` is overwritten.

    Long because all events change the same few sums: split up, each part would take ten arrays.

    Returns
    -------
    why, at, rose : shape (users,)
        Why each stopped (a resource's column or DEMAND), after how many saturations, and True if it rose at all.
    tops, bottoms : shape (saturations,)
        The level of each saturation: numerator and denominator.
    """
    n, m = demand.shape
    zero = capacity[0] * 0
    status = np.zeros(n, np.int8)
    why, at, rose = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    # Use at a level is fixed + level * slope; each is a sum in two parts.
    fixed, fixed_low, slope, slope_low = capacity * 0, capacity * 0, capacity * 0, capacity * 0
    for i in range(n):
        if floor[i] == 0:  # it rises from the start
            status[i], rose[i] = _RISES, True
            for j in range(m):
                slope[j], slope_low[j] = _add(slope[j], slope_low[j], demand[i, j] * speed[i])
        else:
            for j in range(m):
                fixed[j], fixed_low[j] = _add(fixed[j], fixed_low[j], demand[i, j] * floor[i])
    # After a saturation at level a/b, all amounts are multiplied by b, so that whole numbers stay whole.
    scale = zero + 1
    tops, bottoms = capacity[:0].copy(), capacity[:0].copy()
    frozen, freezing = capacity * 0, capacity * 0
    s = e = rounds = 0
    while True:
        while s < len(starts) and status[starts[s]] != _WAITS:
            s += 1
        while e < len(ends) and status[ends[e]] == _STOPPED:
            e += 1
        # The next event, at level a/b.
        kind, which, a, b = 0, 0, zero, zero
        if s < len(starts):
            kind, which, a, b = _START, starts[s], floor[starts[s]] * scale, speed[starts[s]]
        if e < len(ends):
            i = ends[e]
            if kind == 0 or most[i] * scale * b < a * speed[i]:
                kind, which, a, b = _END, i, most[i] * scale, speed[i]
        for j in range(m):
            rate = slope[j] + slope_low[j]
            if rate > 0:
                room = (capacity[j] - fixed[j]) - fixed_low[j]
                if room < 0:
                    room = zero
                if kind == 0 or room * b < a * rate:
                    kind, which, a, b = _SATURATED, j, room, rate
        if kind == 0:
            break
        if kind == _START:
            status[which], rose[which] = _RISES, True
            for j in range(m):
                if demand[which, j] > 0:
                    fixed[j], fixed_low[j] = _add(fixed[j], fixed_low[j], -(demand[which, j] * floor[which]) * scale)
                    slope[j], slope_low[j] = _add(slope[j], slope_low[j], demand[which, j] * speed[which])
        elif kind == _END:
            status[which], why[which], at[which] = _STOPPED, DEMAND, rounds
            for j in range(m):
                if demand[which, j] > 0:
                    fixed[j], fixed_low[j] = _add(fixed[j], fixed_low[j], demand[which, j] * most[which] * scale)
                    slope[j], slope_low[j] = _add(slope[j], slope_low[j], -(demand[which, j] * speed[which]))
        else:
            rounds += 1
            for j in range(m):
                frozen[j] = freezing[j] = zero
            for i in range(n):
                if status[i] != _STOPPED and demand[i, which] > 0:
                    if status[i] == _RISES:
                        for j in range(m):
                            frozen[j], freezing[j] = _add(frozen[j], freezing[j], demand[i, j] * speed[i])
                    status[i], why[i], at[i] = _STOPPED, which, rounds
            top, bottom = _level(a, b)
            tops = np.append(tops, top)
            bottoms = np.append(bottoms, bottom * scale)
            for j in range(m):
                capacity[j] = capacity[j] * bottom
                fixed[j], fixed_low[j] = fixed[j] * bottom, fixed_low[j] * bottom
                fixed[j], fixed_low[j] = _add(fixed[j], fixed_low[j], frozen[j] * top)
                fixed[j], fixed_low[j] = _add(fixed[j], fixed_low[j], freezing[j] * top)
                slope[j], slope_low[j] = _add(slope[j], slope_low[j], -frozen[j])
                slope[j], slope_low[j] = _add(slope[j], slope_low[j], -freezing[j])
            slope[which], slope_low[which] = zero, zero
            scale = scale * bottom
    return why, at, rose, tops, bottoms


def _level(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a/b as numerator and denominator: whole numbers in lowest terms, floats over 1."""
    if isinstance(a, float):
        return a / b, 1.0
    common = gcd(a, b)
    return a // common, b // common


def _add(high: Any, low: Any, x: Any) -> tuple[Any, Any]:
    """Add to a sum in two parts: the rounding error of the first goes to the second."""
    total = high + x
    part = total - high
    return total, low + ((high - (total - part)) + (x - part))
