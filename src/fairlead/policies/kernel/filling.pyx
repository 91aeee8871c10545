"""Loops of the policies over all users, for float64.

`fairlead.policies.filling` and `fairlead.policies.in_turn` have the same loops for whole numbers of any size. Sums with a million
additions and subtractions are kept in two parts (Knuth's two-sum).
"""

from libc.math cimport INFINITY, log

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
    """Same as `fairlead.policies.filling.loop`, to the last bit. `capacity` is overwritten."""
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


def dual(const double[::1] prices, const double[:, ::1] shares, const double[::1] budget, const double[::1] most):
    """Compute the value, gradient and Hessian of the dual of `fairlead.policies.ceei`, in one pass over the users."""
    cdef i64 n = shares.shape[0], m = shares.shape[1], i, j, k
    cdef double value = 0.0, cost, tasks, bend
    gradient_, hessian_ = np.ones(m), np.zeros((m, m))
    cdef double[::1] gradient = gradient_
    cdef double[:, ::1] hessian = hessian_
    with nogil:
        for j in range(m):
            value += prices[j]
        for i in range(n):
            cost = 0.0
            for j in range(m):
                cost += prices[j] * shares[i, j]
            if most[i] >= 0 and most[i] * cost <= budget[i]:
                tasks = most[i]
                value += budget[i] * log(tasks) - tasks * cost
                for j in range(m):
                    gradient[j] -= tasks * shares[i, j]
            elif cost <= 0:
                value = INFINITY
                break
            else:
                tasks = budget[i] / cost
                value += budget[i] * (log(tasks) - 1.0)
                bend = tasks / cost
                for j in range(m):
                    gradient[j] -= tasks * shares[i, j]
                    if shares[i, j] > 0:
                        for k in range(j + 1):
                            hessian[j, k] += bend * shares[i, j] * shares[i, k]
        for j in range(m):
            for k in range(j):
                hessian[k, j] = hessian[j, k]
    return value, gradient_, hessian_
