"""What users of one machine who always have tasks have of its DRF shares: with tasks that can be divided, and with whole ones.

DRF serves who has the smallest dominant share and a task that fits. So only few numbers of running tasks follow each other, and
over time users have a mixture of these. A linear program finds the best one.
"""

from fractions import Fraction

import numpy as np
import scipy  # whose parts are read when they are asked for


def dominant(capacity, demands):
    """Return the dominant share of one task of each user."""
    return [max(Fraction(d, c) for d, c in zip(demand, capacity, strict=True)) for demand in demands]


def divided(capacity, demands):
    """Return the dominant share of each user under DRF, by progressive filling."""
    rates = [[Fraction(d, c) / each for d, c in zip(demand, capacity, strict=True)]
             for demand, each in zip(demands, dominant(capacity, demands), strict=True)]  # fmt: skip
    shares, growing, left = [Fraction(0)] * len(demands), set(range(len(demands))), [Fraction(1)] * len(capacity)
    while growing:
        total = [sum(rates[k][r] for k in growing) for r in range(len(capacity))]
        step = min(left[r] / total[r] for r in range(len(capacity)) if total[r])
        left = [left[r] - step * total[r] for r in range(len(capacity))]
        for k in growing:
            shares[k] += step
        growing = {k for k in growing if all(left[r] or not rates[k][r] for r in range(len(capacity)))}
    return shares


def reached(capacity, demands):
    """Return the numbers of running tasks that DRF reaches: from the empty machine, and after the end of any one task."""
    sizes, users = dominant(capacity, demands), range(len(demands))

    def filled(tasks):
        room = [c - sum(n * demand[r] for n, demand in zip(tasks, demands, strict=True)) for r, c in enumerate(capacity)]
        fit = [k for k in users if all(d <= free for d, free in zip(demands[k], room, strict=True))]
        least = min((tasks[k] * sizes[k] for k in fit), default=None)
        after = [tuple(n + (j == k) for j, n in enumerate(tasks)) for k in fit if tasks[k] * sizes[k] == least]
        return set().union(*map(filled, after)) if fit else {tasks}

    found, new = set(), filled((0,) * len(demands))
    while new:
        found |= new
        ends = {tuple(n - (j == k) for j, n in enumerate(tasks)) for tasks in new for k in users if tasks[k]}
        new = set().union(*map(filled, ends)) - found
    return found


def attainable(capacity, demands):
    """Return the most that the worst-off user has of their part, by DRF with whole tasks over time."""
    sizes = np.array(dominant(capacity, demands), float) / np.array(divided(capacity, demands), float)
    levels = np.array(sorted(reached(capacity, demands))) * sizes
    count = len(levels)
    worst = np.hstack([-levels.T, np.ones((len(demands), 1))])
    return -scipy.optimize.linprog(np.eye(count + 1)[count] * -1, worst, np.zeros(len(demands)), [[1] * count + [0]], [1]).fun
