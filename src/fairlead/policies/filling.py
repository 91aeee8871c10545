"""Progressive filling: raise everybody's level together until something stops each.

A policy of this family says how many tasks of a user make one level: its *speed*. DRF, asset fairness, max-min on one
resource and slots differ in nothing else. All users rise at their speeds, from their floor on (what a guarantee gave them
before), until their demand or limit is met, or a resource that they need is saturated; those who need nothing of it go on.

The loop below takes one event after another: a user starts to rise, a user is satisfied, a resource is saturated. There are at
most two events a user and one a resource; each costs as many steps as there are resources, a saturation as many as users.

It is one source for two kinds of numbers. Over float64 it is compiled; sums are kept in two parts (Knuth's two-sum), so that a
million additions and subtractions lose nothing. Over whole numbers, to which fractions are scaled beforehand, Python runs it
as it stands, and no fraction is ever reduced: levels are compared by cross-multiplication.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.compiled import compiled

Numbers = NDArray[Any]
"""float64, or Fraction in an object array."""

# Why a user rises no more; a resource's column, 0 and up, where that was saturated.
DEMAND, LIMIT, NOT_TAKEN = -1, -2, -3

_WAITS, _RISES, _STOPPED = 0, 1, 2
_START, _END, _SATURATED = 1, 2, 3


@dataclass(frozen=True)
class Filling:
    """What each user gets, and why no more.

    tasks : shape (users,)
    stop : int64, shape (users,)
        DEMAND or LIMIT where that was met, NOT_TAKEN where the user took no part, else the column of the saturated resource.
    round : int64, shape (users,)
        How many resources were saturated when the user stopped.
    levels : list
        The level at which each round ended.
    """

    tasks: Numbers
    stop: NDArray[np.int64]
    round: NDArray[np.int64]
    levels: list[Any]


def fill(
    capacity: Numbers, demand: Numbers, speed: Numbers, most: Numbers, floor: Numbers, limited: NDArray[np.bool_]
) -> Filling:
    """Fill progressively.

    Parameters
    ----------
    capacity : shape (resources,)
    demand : shape (users, resources)
        Of one task. A user that needs what there is nothing of gets nothing.
    speed : shape (users,)
        Tasks per level; 0 for one that takes no part.
    most : shape (users,)
        Tasks that it can use or may have; -1: any number.
    floor : shape (users,)
        Tasks that it has from the start; must fit together.
    limited : bool, shape (users,)
        Whether `most` is the user's limit, not its demand.

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
    d, v, m, f = (
        (demand, speed, most, floor) if len(rows) == n else (demand[rows], speed[rows], most[rows], floor[rows])
    )
    starts, ends = np.flatnonzero(f > 0), np.flatnonzero(m >= 0)
    starts = starts[np.argsort(f[starts] / v[starts], kind="stable")]
    ends = ends[np.argsort(m[ends] / v[ends], kind="stable")]
    if exact:
        wholes, unit = _as_whole_numbers(left, d, v, m, f)
        result = _loop(_reduced, _add)(*wholes, starts, ends)
        levels = [Fraction(int(a), int(b)) * unit for a, b in zip(*result[3:], strict=True)]
    else:
        result = _compiled_loop()(left, d, v, np.where(m < 0, -1.0, m), f, starts, ends)
        levels = (result[3] / result[4]).tolist()
    why, at, rose = result[:3]
    met, risen = why == DEMAND, rose & (why >= 0)
    x[rows[met]] = m[met]
    x[rows[risen]] = (
        [v[i] * levels[at[i] - 1] for i in np.flatnonzero(risen)]
        if exact
        else v[risen] * np.array(levels)[at[risen] - 1]
    )
    stop[rows] = np.where(met & limited[rows], LIMIT, why)
    rounds[rows] = at
    return Filling(x, stop, rounds, levels)


def _as_whole_numbers(
    capacity: Numbers, demand: Numbers, speed: Numbers, most: Numbers, floor: Numbers
) -> tuple[Any, Fraction]:
    """The same problem in whole numbers, and what its levels must be multiplied by to be levels of the problem."""
    tasks = lcm(*(x.denominator for x in (*most, *floor)))
    each = lcm(*(x.denominator for x in speed))
    columns = [
        lcm(c.denominator, *(x.denominator for x in column)) for c, column in zip(capacity, demand.T, strict=True)
    ]

    def whole(values: Numbers, scale: int) -> Numbers:
        return np.array([int(x * scale) for x in values], object)

    scaled = np.array([whole(column, k) for column, k in zip(demand.T, columns, strict=True)], object).T
    room = np.array([int(c * k * tasks) for c, k in zip(capacity, columns, strict=True)], object)
    none = most < 0
    ceiling = whole(most, tasks)
    ceiling[none] = -1
    return (room, scaled.reshape(demand.shape), whole(speed, each), ceiling, whole(floor, tasks)), Fraction(each, tasks)


def _reduced(a: Any, b: Any) -> tuple[Any, Any]:
    """a/b as a fraction in lowest terms, of whole numbers."""
    common = gcd(a, b)
    return a // common, b // common


def _divided(a: Any, b: Any) -> tuple[Any, Any]:
    """a/b as a fraction, of floats."""
    return a / b, 1.0


def _loop(
    level_of: Callable[[Any, Any], tuple[Any, Any]], add: Callable[[Any, Any, Any], tuple[Any, Any]]
) -> Callable[..., Any]:
    """Make the loop for one kind of numbers, from what makes a level of a quotient, and what adds to a sum in two parts."""

    def loop(
        capacity: Any, demand: Any, speed: Any, most: Any, floor: Any, starts: Any, ends: Any
    ) -> tuple[Any, Any, Any, Any, Any]:
        n, m = demand.shape
        zero = capacity[0] * 0
        status = np.zeros(n, np.int8)
        why, at, rose = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
        # What is used at a level is fixed + level * slope; each is a sum in two parts.
        fixed, fixed_low, slope, slope_low = capacity * 0, capacity * 0, capacity * 0, capacity * 0
        for i in range(n):
            if floor[i] == 0:  # it rises from the start
                status[i], rose[i] = _RISES, True
                for j in range(m):
                    slope[j], slope_low[j] = add(slope[j], slope_low[j], demand[i, j] * speed[i])
            else:
                for j in range(m):
                    fixed[j], fixed_low[j] = add(fixed[j], fixed_low[j], demand[i, j] * floor[i])
        # After a saturation at level a/b, everything is counted in bths: so whole numbers stay whole.
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
                        fixed[j], fixed_low[j] = add(fixed[j], fixed_low[j], -(demand[which, j] * floor[which]) * scale)
                        slope[j], slope_low[j] = add(slope[j], slope_low[j], demand[which, j] * speed[which])
            elif kind == _END:
                status[which], why[which], at[which] = _STOPPED, DEMAND, rounds
                for j in range(m):
                    if demand[which, j] > 0:
                        fixed[j], fixed_low[j] = add(fixed[j], fixed_low[j], demand[which, j] * most[which] * scale)
                        slope[j], slope_low[j] = add(slope[j], slope_low[j], -(demand[which, j] * speed[which]))
            else:
                rounds += 1
                for j in range(m):
                    frozen[j] = freezing[j] = zero
                for i in range(n):
                    if status[i] != _STOPPED and demand[i, which] > 0:
                        if status[i] == _RISES:
                            for j in range(m):
                                frozen[j], freezing[j] = add(frozen[j], freezing[j], demand[i, j] * speed[i])
                        status[i], why[i], at[i] = _STOPPED, which, rounds
                top, bottom = level_of(a, b)
                tops = np.append(tops, top)
                bottoms = np.append(bottoms, bottom * scale)
                for j in range(m):
                    capacity[j] = capacity[j] * bottom
                    fixed[j], fixed_low[j] = fixed[j] * bottom, fixed_low[j] * bottom
                    fixed[j], fixed_low[j] = add(fixed[j], fixed_low[j], frozen[j] * top)
                    fixed[j], fixed_low[j] = add(fixed[j], fixed_low[j], freezing[j] * top)
                    slope[j], slope_low[j] = add(slope[j], slope_low[j], -frozen[j])
                    slope[j], slope_low[j] = add(slope[j], slope_low[j], -freezing[j])
                slope[which], slope_low[which] = zero, zero
                scale = scale * bottom
        return why, at, rose, tops, bottoms

    return loop


def _add(high: Any, low: Any, x: Any) -> tuple[Any, Any]:
    """Add to a sum in two parts; what the first cannot hold goes to the second."""
    total = high + x
    part = total - high
    return total, low + ((high - (total - part)) + (x - part))


@cache
def _compiled_loop() -> Callable[..., Any]:
    return compiled(_loop(compiled(_divided), compiled(_add)))
