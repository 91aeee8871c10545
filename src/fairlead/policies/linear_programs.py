"""Linear programs, solved by HiGHS, and exactly if the numbers are fractions.

HiGHS works in floating point, but finds a basis: which columns and rows are at which bound. From the basis FLINT computes the
values and the row prices in fractions, by solving equations. If all values are within their bounds and all prices have the
right sign, the solution is optimal by duality. QSopt_ex proves its answers likewise (Applegate, Cook, Dash and Espinoza, "Exact
solutions to linear programming problems", Operations Research Letters 35, 2007).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from fairlead.model.arrays import Numbers, exact_array
from fairlead.policies.contract import PolicyError

TOO_CLOSE = "some numbers differ by too little for a linear program to tell them apart: round them"


@dataclass(frozen=True)
class Program:
    """Minimise cost @ x subject to least <= x <= most and row_least <= A @ x <= row_most.

    Column j of A has `values[starts[j] : starts[j + 1]]` in the rows `index[starts[j] : starts[j + 1]]`. Numbers are floats, or
    fractions in object arrays; a bound may be infinite. Keep them near 1: HiGHS takes 10^20 as infinite.
    """

    cost: Numbers
    least: Numbers
    most: Numbers
    row_least: Numbers
    row_most: Numbers
    starts: Any
    index: Any
    values: Numbers


def dense(cost: Numbers, matrix: Numbers, upper: Numbers, least: Numbers, most: Numbers) -> Program:
    """Make the program: minimise cost @ x subject to matrix @ x <= upper and least <= x <= most."""
    across, down = np.nonzero(matrix.T)
    return Program(
        cost=cost, least=least, most=most, row_least=np.full(len(upper), -np.inf), row_most=upper,
        starts=np.concatenate([[0], np.cumsum(np.bincount(across, minlength=len(cost)))]), index=down,
        values=matrix[down, across],
    )  # fmt: skip


@dataclass(frozen=True)
class Optimum:
    """The solution x, shape (columns,), and the dual price of each row, shape (rows,)."""

    x: Numbers
    prices: Numbers


def solve(program: Program) -> Optimum | None:
    """Solve a linear program; return None if it is infeasible.

    In fractions, raises PolicyError if the floating-point optimum is not one, because numbers differ by too little.
    """
    import highspy

    h: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    h.silent()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.cost), len(program.row_least)
    lp.col_cost_ = program.cost.astype(np.float64)
    lp.col_lower_, lp.col_upper_ = program.least.astype(np.float64), program.most.astype(np.float64)
    lp.row_lower_, lp.row_upper_ = program.row_least.astype(np.float64), program.row_most.astype(np.float64)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.asarray(program.starts, np.int32)
    lp.a_matrix_.index_ = np.asarray(program.index, np.int32)
    lp.a_matrix_.value_ = program.values.astype(np.float64)
    h.passModel(lp)
    h.run()
    if h.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    if program.cost.dtype != object:
        solution = h.getSolution()
        return Optimum(np.asarray(solution.col_value), np.asarray(solution.row_dual))
    basis, kinds = h.getBasis(), highspy.HighsBasisStatus
    sides = {kinds.kLower: -1, kinds.kUpper: 1, kinds.kBasic: 0}
    return _in_fractions(program, [sides.get(s, -1) for s in basis.col_status], [sides.get(s, -1) for s in basis.row_status])


def _in_fractions(program: Program, columns: list[int], rows: list[int]) -> Optimum:
    """Compute the optimum of a basis. `columns` and `rows` are -1 at the lower bound, 1 at the upper, 0 if basic."""
    from flint import fmpq, fmpq_mat

    def rational(value: Any) -> Any:
        return fmpq(value.numerator, value.denominator)

    place = {int(j): k for k, j in enumerate(np.flatnonzero(np.array(columns) == 0))}  # basic columns, to solve for
    given = {int(r): k for k, r in enumerate(np.flatnonzero(np.array(rows)))}  # rows at a bound
    x = [
        Fraction(0) if side == 0 else Fraction(program.least[j] if side < 0 else program.most[j])
        for j, side in enumerate(columns)
    ]
    of_column = [
        list(zip(program.index[a:b], program.values[a:b], strict=True))
        for a, b in zip(program.starts[:-1], program.starts[1:], strict=True)
    ]
    size = len(place)
    matrix = fmpq_mat(size, size)
    bound = [Fraction(program.row_least[r] if rows[r] < 0 else program.row_most[r]) for r in given]
    for j, entries in enumerate(of_column):
        for r, value in entries:
            if r in given:
                if j in place:
                    matrix[given[r], place[j]] = rational(value)
                else:
                    bound[given[r]] -= value * x[j]
    try:
        values = matrix.solve(fmpq_mat(size, 1, [rational(b) for b in bound]))
        costs = matrix.transpose().solve(fmpq_mat(size, 1, [rational(program.cost[j]) for j in place]))
    except ZeroDivisionError:
        raise PolicyError(TOO_CLOSE) from None
    for j, k in place.items():
        x[j] = Fraction(int(values[k, 0].p), int(values[k, 0].q))
    prices = [Fraction(0)] * len(rows)
    for r, k in given.items():
        prices[r] = Fraction(int(costs[k, 0].p), int(costs[k, 0].q))

    sums = [Fraction(0)] * len(rows)
    right = all(low <= value <= high for low, value, high in zip(program.least, x, program.most, strict=True))
    for j, entries in enumerate(of_column):
        reduced = program.cost[j]
        for r, value in entries:
            sums[r] += value * x[j]
            reduced -= value * prices[r]
        right &= _may_be(reduced, columns[j], program.least[j], program.most[j])
    for r, side in enumerate(rows):
        low, high = program.row_least[r], program.row_most[r]
        right &= bool(low <= sums[r] <= high) and _may_be(prices[r], side, low, high)
    if not right:
        raise PolicyError(TOO_CLOSE)
    return Optimum(exact_array(x), exact_array(prices))


def _may_be(price: Any, side: int, low: Any, high: Any) -> bool:
    """Return True if the price fits the bound: moving away from the bound must not improve the objective."""
    return bool(low == high or price == 0 or (price > 0) == (side < 0))
