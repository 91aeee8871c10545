"""Loops of the policies over all users, for float64.

`fairlead.policies.filling` and `fairlead.policies.in_turn` have the same loops for whole numbers of any size. Sums with a million
additions and subtractions are kept in two parts (Knuth's two-sum).
"""

from libc.math cimport INFINITY, fabs, log

import numpy as np

ctypedef long long i64

cdef enum:
    DEMAND = -1
    WAITS = 0
    RISES = 1
    STOPPED = 2
    START = 1
    END = 2
    SATURATED = 3


cdef inline void add(double *high, double *low, double x) noexcept nogil:
    """Add to a sum in two parts: the rounding error of the first goes to the second."""
    cdef double total = high[0] + x
    cdef double part = total - high[0]
    low[0] += (high[0] - (total - part)) + (x - part)
    high[0] = total


def loop(
    double[::1] capacity, const double[:, ::1] demand, const double[::1] speed, const double[::1] most,
    const double[::1] floor, const i64[::1] starts, const i64[::1] ends,
):
    """Same as `fairlead.policies.filling.loop`. `capacity` is overwritten."""
    cdef i64 n = demand.shape[0], m = demand.shape[1], i, j, s = 0, e = 0, rounds = 0, kind, which
    cdef double a, b, rate, room
    status_, why_, at_, rose_ = np.zeros(n, np.int8), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    sums, tops_ = np.zeros((6, m)), np.zeros(m)
    cdef signed char[::1] status = status_
    cdef unsigned char[::1] rose = rose_.view(np.uint8)
    cdef i64[::1] why = why_, at = at_
    cdef double[::1] fixed = sums[0], fixed_low = sums[1], slope = sums[2], slope_low = sums[3]
    cdef double[::1] frozen = sums[4], freezing = sums[5], tops = tops_
    with nogil:
        for i in range(n):
            if floor[i] == 0:  # it rises from the start
                status[i], rose[i] = RISES, True
                for j in range(m):
                    add(&slope[j], &slope_low[j], demand[i, j] * speed[i])
            else:
                for j in range(m):
                    add(&fixed[j], &fixed_low[j], demand[i, j] * floor[i])
        while True:
            while s < starts.shape[0] and status[starts[s]] != WAITS:
                s += 1
            while e < ends.shape[0] and status[ends[e]] == STOPPED:
                e += 1
            # The next event, at level a/b.
            kind, which, a, b = 0, 0, 0.0, 0.0
            if s < starts.shape[0]:
                kind, which, a, b = START, starts[s], floor[starts[s]], speed[starts[s]]
            if e < ends.shape[0]:
                i = ends[e]
                if kind == 0 or most[i] * b < a * speed[i]:
                    kind, which, a, b = END, i, most[i], speed[i]
            for j in range(m):
                rate = slope[j] + slope_low[j]
                if rate > 0:
                    room = (capacity[j] - fixed[j]) - fixed_low[j]
                    if room < 0:
                        room = 0.0
                    if kind == 0 or room * b < a * rate:
                        kind, which, a, b = SATURATED, j, room, rate
            if kind == 0:
                break
            if kind == START:
                status[which], rose[which] = RISES, True
                for j in range(m):
                    if demand[which, j] > 0:
                        add(&fixed[j], &fixed_low[j], -(demand[which, j] * floor[which]))
                        add(&slope[j], &slope_low[j], demand[which, j] * speed[which])
            elif kind == END:
                status[which], why[which], at[which] = STOPPED, DEMAND, rounds
                for j in range(m):
                    if demand[which, j] > 0:
                        add(&fixed[j], &fixed_low[j], demand[which, j] * most[which])
                        add(&slope[j], &slope_low[j], -(demand[which, j] * speed[which]))
            else:
                rounds += 1
                for j in range(m):
                    frozen[j] = freezing[j] = 0.0
                for i in range(n):
                    if status[i] != STOPPED and demand[i, which] > 0:
                        if status[i] == RISES:
                            for j in range(m):
                                add(&frozen[j], &freezing[j], demand[i, j] * speed[i])
                        status[i], why[i], at[i] = STOPPED, which, rounds
                tops[rounds - 1] = a / b
                for j in range(m):
                    add(&fixed[j], &fixed_low[j], frozen[j] * (a / b))
                    add(&fixed[j], &fixed_low[j], freezing[j] * (a / b))
                    add(&slope[j], &slope_low[j], -frozen[j])
                    add(&slope[j], &slope_low[j], -freezing[j])
                slope[which], slope_low[which] = 0.0, 0.0
    return why_, at_, rose_, tops_[:rounds], np.ones(rounds)


def take(
    double[::1] left, const double[:, ::1] demand, const double[::1] most, const i64[::1] order, double[::1] tasks, i64[::1] stop
):
    """Same as `fairlead.policies.in_turn._take`."""
    cdef i64 i, j, k, why, m = left.shape[0]
    cdef double more, room
    cdef bint bounded
    with nogil:
        for k in range(order.shape[0]):
            i = order[k]
            bounded, more, why = most[i] >= 0, most[i] - tasks[i], DEMAND
            for j in range(m):
                if demand[i, j] > 0:
                    room = left[j] / demand[i, j]
                    if not bounded or room < more:
                        bounded, more, why = True, room, j
            more = max(more, 0.0)
            tasks[i] += more
            stop[i] = why
            for j in range(m):
                left[j] = max(left[j] - demand[i, j] * more, 0.0)


cdef class _Dual:
    """The dual of `fairlead.policies.ceei`: its value, gradient and Hessian at prices, in one pass over the users."""

    cdef const double[:, ::1] shares
    cdef const double[::1] budget, most
    cdef double[::1] gradient, slope
    cdef double[:, ::1] hessian, block
    cdef double value, error

    def __init__(self, shares, budget, most):
        m = shares.shape[1]
        self.shares, self.budget, self.most = shares, budget, most
        self.gradient, self.slope = np.zeros(m), np.zeros(m)
        self.hessian, self.block = np.zeros((m, m)), np.zeros((m, m))

    cdef void at(self, const double[::1] prices) noexcept nogil:
        cdef i64 n = self.shares.shape[0], m = self.shares.shape[1], i, j, k
        cdef double cost, tasks, bend
        self.value = self.error = 0.0
        for j in range(m):
            self.value += prices[j]
            self.gradient[j] = 1.0
            for k in range(m):
                self.hessian[j, k] = 0.0
        for i in range(n):
            cost = 0.0
            for j in range(m):
                cost += prices[j] * self.shares[i, j]
            if self.most[i] >= 0 and self.most[i] * cost <= self.budget[i]:
                tasks, bend = self.most[i], 0.0
                self.value += self.budget[i] * log(tasks) - tasks * cost
            elif cost <= 0:
                self.value = INFINITY
                break
            else:
                tasks = self.budget[i] / cost
                bend = tasks / cost
                self.value += self.budget[i] * (log(tasks) - 1.0)
            for j in range(m):
                self.gradient[j] -= tasks * self.shares[i, j]
                if bend > 0 and self.shares[i, j] > 0:
                    for k in range(j + 1):
                        self.hessian[j, k] += bend * self.shares[i, j] * self.shares[i, k]
        for j in range(m):
            for k in range(j):
                self.hessian[k, j] = self.hessian[j, k]
            # The largest imbalance: surplus or deficit of a priced resource, or deficit of a free one.
            cost = fabs(self.gradient[j]) if prices[j] > 0 else max(-self.gradient[j], 0.0)
            self.error = cost if not cost <= self.error else self.error

    cdef void find_step(self, const double[::1] prices, double ridge, double least, double[::1] step) noexcept nogil:
        """Solve for Newton's step, over the resources that have a price or are short, with a ridge."""
        cdef i64 m = self.shares.shape[1], i, j, k
        cdef double trace = 0.0, factor
        cdef double[:, ::1] block = self.block
        for j in range(m):
            if prices[j] > 0 or self.gradient[j] < 0:
                trace += self.hessian[j, j]
        for j in range(m):
            self.slope[j] = self.gradient[j] if prices[j] > 0 or self.gradient[j] < 0 else 0.0
            for k in range(m):
                block[j, k] = 0.0
                if (prices[j] > 0 or self.gradient[j] < 0) and (prices[k] > 0 or self.gradient[k] < 0):
                    block[j, k] = self.hessian[j, k]
            block[j, j] += ridge * max(trace, least)
        for j in range(m):  # positive definite: needs no pivots
            for i in range(j + 1, m):
                factor = block[i, j] / block[j, j]
                for k in range(j, m):
                    block[i, k] -= factor * block[j, k]
                self.slope[i] -= factor * self.slope[j]
        for j in range(m - 1, -1, -1):
            for k in range(j + 1, m):
                self.slope[j] += block[j, k] * step[k]
            step[j] = -self.slope[j] / block[j, j]


def equilibrium(shares, budget, most, i64 steps, double accuracy):
    """Find the price of the whole of each resource: see `fairlead.policies.ceei`."""
    cdef i64 m = shares.shape[1], j, halving
    cdef _Dual here = _Dual(shares, budget, most), there = _Dual(shares, budget, most)
    cdef double total = budget.sum(), ridge = 1e-14, slope
    cdef bint enough, closer
    prices_, trial_, step_ = np.full(m, total / m), np.zeros(m), np.zeros(m)
    cdef double[::1] prices = prices_, trial = trial_, step = step_
    here.at(prices)
    for _ in range(steps):
        if here.error <= accuracy:
            break
        # With fewer kinds of users than resources the Hessian is singular; a ridge regularises it.
        here.find_step(prices, ridge, m / total, step)
        for halving in range(8):
            slope = 0.0
            for j in range(m):
                trial[j] = max(0.0, prices[j] + step[j] / (1 << halving))
                slope += here.gradient[j] * (trial[j] - prices[j])
            there.at(trial)
            enough = there.value <= here.value + 1e-4 * slope and there.value < here.value
            # Near the optimum rounding hides progress in the value, but not in the gradient.
            closer = there.error < 0.5 * here.error and there.value <= here.value + 1e-9 * max(fabs(here.value), total)
            if enough or closer:
                prices, trial, here, there = trial, prices, there, here
                ridge = max(1e-14, ridge / 100)
                break
        else:
            ridge *= 100
            if ridge > 1e8:  # no closer in floating point
                break
    return np.asarray(prices)
