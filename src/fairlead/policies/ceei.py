"""Competitive equilibrium from equal incomes: all users have the same budget and buy tasks at prices that clear the market.

For demands in fixed proportions it maximises the product of the users' tasks (Nash). It is solved through the dual, whose
variables are the prices: one per resource, for any number of users. At prices p, a user with budget w buys x = w / (p . d)
tasks, or as many as it can use. The dual

    minimise  p . C + sum_i max_x (w_i log x - x p . d_i)   over p >= 0

is convex; its gradient is what is left of each resource. Newton's method, with an active set for prices of zero, solves it in a
few dozen passes over the users. Ghodsi et al., NSDI 2011, section 4.1.2; Varian, "Equity, envy, and efficiency", 1974. It lacks
strategy-proofness; it is here for comparison.
"""

import numpy as np

from fairlead.model.problems import Problem
from fairlead.policies.contract import DEMAND, LIMIT, Division, PolicyError
from fairlead.policies.kernel import filling as kernel

MOST_STEPS = 1000
ACCURACY = 1e-12


class Ceei:
    """Competitive equilibrium from equal incomes."""

    name = "ceei"
    summary = "equal budgets at equilibrium prices: the largest product of tasks"

    def divide(self, problem: Problem) -> Division:
        """Find the prices, and what each user buys. A weight is a user's budget."""
        if problem.demand.dtype == object:
            raise PolicyError("ceei: prices are roots of polynomials, and are computed only in floating point: leave out exact")
        if (problem.guarantee > 0).any():
            raise PolicyError("ceei: cannot guarantee anything: remove the guarantees")
        if (problem.weight != problem.weight[:, :1]).any():
            raise PolicyError("ceei: a weight is a budget: write one number per user")
        there = problem.capacity > 0
        most, limited = problem.most()
        hopeless = (problem.demand[:, ~there] > 0).any(axis=1)
        nothing = most == 0
        buys = ~hopeless & ~nothing
        tasks, stop = np.zeros(len(most)), np.full(len(most), DEMAND, np.int64)
        stop[limited] = LIMIT
        if hopeless.any():
            stop[hopeless] = np.flatnonzero(~there)[(problem.demand[hopeless][:, ~there] > 0).argmax(axis=1)]
        prices = np.zeros(len(problem.capacity))
        if buys.any():
            shares = np.ascontiguousarray(problem.demand[buys][:, there] / problem.capacity[there])
            largest = shares.max(axis=1)  # rescale tasks, so that one task takes all of some resource
            shares /= largest[:, None]
            usable = np.where(most[buys] >= 0, most[buys] * largest, -1.0)
            budget = np.ascontiguousarray(problem.weight[buys, 0])
            found = kernel.equilibrium(shares, budget, usable, MOST_STEPS, ACCURACY)
            cost = shares @ found
            bought = np.divide(budget, cost, out=np.full(len(cost), np.inf), where=cost > 0)
            full = (usable >= 0) & (usable <= bought)
            tasks[buys] = np.where(full, most[buys], bought / largest)
            stop[buys] = np.where(full, stop[buys], np.flatnonzero(there)[(shares * found).argmax(axis=1)])
            prices[there] = found / problem.capacity[there]
        return Division(tasks, stop, np.zeros(len(stop), np.int64), prices=prices)
