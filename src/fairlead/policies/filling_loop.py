"""The loop of progressive filling: one event after another; see :mod:`fairlead.policies.filling`.

It serves whole numbers of any size, and small problems in float64. `kernel/filling.pyx` is the same, compiled, for large ones.
"""

from math import gcd
from typing import Any

import numpy as np

DEMAND = -1
_WAITS, _RISES, _STOPPED = 0, 1, 2
_START, _END, _SATURATED = 1, 2, 3


def loop(
    capacity: Any, demand: Any, speed: Any, most: Any, floor: Any, starts: Any, ends: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """Serve one event after another, at the levels at which they come, until nobody rises any more.

    Long because all events change the same few sums: taken apart, each part would be handed ten arrays.

    Returns
    -------
    why, at, rose : shape (users,)
        Where each stopped: a resource's column or DEMAND, after how many saturations, and whether it rose at all.
    tops, bottoms : shape (saturations,)
        The level of each saturation, as a fraction.
    """
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
            top, bottom = level(a, b)
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


def level(a: Any, b: Any) -> tuple[Any, Any]:
    """a/b as a fraction: of whole numbers in lowest terms; of floats over 1."""
    if isinstance(a, float):
        return a / b, 1.0
    common = gcd(a, b)
    return a // common, b // common


def add(high: Any, low: Any, x: Any) -> tuple[Any, Any]:
    """Add to a sum in two parts; what the first cannot hold goes to the second."""
    total = high + x
    part = total - high
    return total, low + ((high - (total - part)) + (x - part))
