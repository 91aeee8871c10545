"""Progressive filling: raise everybody's level together until something stops each.

A policy of this family says how many tasks of a user make one level: its *speed*. DRF, asset fairness, max-min on one
resource and slots differ in nothing else. All users rise at their speeds, from their floor on (what a guarantee gave them
before), until their demand or limit is met, or a resource that they need is saturated; those who need nothing of it go on.

The loop (:mod:`fairlead.policies.filling_loop`) takes one event after another: a user starts to rise, a user is satisfied, a
resource is saturated. There are at most two events a user and one a resource; each costs as many steps as there are resources, a
saturation as many as users.

It is one source for two kinds of numbers. Over float64 it is compiled where there is enough to do; sums are kept in two parts
(Knuth's two-sum), so that a million additions and subtractions lose nothing. Over whole numbers, to which fractions are scaled
beforehand, Python runs it as it stands, and no fraction is ever reduced: levels are compared by cross-multiplication.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.policies import filling_loop
from fairlead.policies.kernel import filling as kernel

Numbers = NDArray[Any]
"""float64, or Fraction in an object array."""

# Why a user rises no more; a resource's column, 0 and up, where that was saturated.
DEMAND, LIMIT, NOT_TAKEN, SLOT = filling_loop.DEMAND, -2, -3, -4
NO_SLOT = -5
"""A slot has too little for a task: of the first resource; one less for each that comes before it."""


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
        (c, d, w, m_, f), unit = _as_whole_numbers(left, d, v, m, f)
        result = filling_loop.loop(c, d, w, m_, f, starts, ends)
        levels = [Fraction(int(a), int(b)) * unit for a, b in zip(*result[3:], strict=True)]
    else:
        result = kernel.loop(left, d, v, np.where(m < 0, -1.0, m), f, starts, ends)
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
