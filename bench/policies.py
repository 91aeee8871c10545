"""Time of the divisible solutions, beside cvxpy with Clarabel, and HiGHS called directly, on the same problems.

For the progressive filling family HiGHS solves the same lexicographic maximum, one linear program per round. For CEEI cvxpy
maximizes the Nash product. The largest difference between the answers is printed as well.
"""

import statistics
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import highspy
import numpy as np

import fairlead
from fairlead.policies import drf


def make(users: int, resources: int, seed: int = 7) -> fairlead.Problem:
    """Return weighted users who each need about half of the resources; a third have a finite demand."""
    rng = np.random.default_rng(seed)
    demand = rng.uniform(0.1, 1, (users, resources)) * (rng.random((users, resources)) < 0.5)
    demand[np.arange(users), rng.integers(0, resources, users)] += 0.1
    tasks = np.where(rng.random(users) < 1 / 3, rng.uniform(0.1, 3, users), -1.0)
    return fairlead.Problem.from_arrays(rng.uniform(0.5, 1, resources) * users, demand, tasks=tasks)


def in_a_tree(users: int, inner: int, seed: int = 7) -> fairlead.Problem:
    """Return users of three resources, half with a finite demand, spread over two levels of queues."""
    rng = np.random.default_rng(seed)
    demand = np.array([[Fraction(int(x)) for x in row] for row in rng.integers((1, 1, 0), (20, 20, 3), (users, 3))], object)
    tasks = np.array([Fraction(int(x)) if x < 60 else Fraction(-1) for x in rng.integers(1, 120, users)], object)
    capacity = np.array([Fraction(users * x) for x in (100, 120, 7)], object)
    above = max(1, round(inner**0.5))
    queues = [f"g{q % above}/q{q}" for q in rng.integers(inner, size=users).tolist()]
    return fairlead.Problem.from_arrays(capacity, demand, tasks=tasks, queues=queues)


def by_highs(problem: fairlead.Problem) -> np.ndarray:
    """Fill progressively by linear programs: maximize the common level, then fix the users that are saturated."""
    n, m = problem.demand.shape
    speed = drf.speed(problem)
    most, _ = problem.most()
    ceiling = np.where(most < 0, np.inf, most)
    fixed = np.full(n, np.nan)
    while np.isnan(fixed).any():
        free = np.isnan(fixed)
        used = problem.demand[~free].T @ fixed[~free] if (~free).any() else np.zeros(m)
        level = _highest_level(problem.demand[free], speed[free], ceiling[free], problem.capacity - used)
        x = np.minimum(ceiling[free], level * speed[free])
        full = used + problem.demand[free].T @ x >= problem.capacity * (1 - 1e-9)
        stuck = (problem.demand[free][:, full] > 0).any(axis=1) | (x >= ceiling[free] * (1 - 1e-9))
        rows = np.flatnonzero(free)
        fixed[rows[stuck]] = x[stuck]
        if not stuck.any():
            raise AssertionError("no user is stuck")
    return fixed


def _highest_level(demand: np.ndarray, speed: np.ndarray, ceiling: np.ndarray, room: np.ndarray) -> float:
    """Solve one linear program: x_i = t speed_i for users below their ceiling; a user at the ceiling ends the round."""
    n = len(speed)
    h = highspy.Highs()
    h.silent()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = n + 1, len(room) + n
    lp.col_cost_ = np.concatenate([np.zeros(n), [-1.0]])
    lp.col_lower_, lp.col_upper_ = np.zeros(n + 1), np.concatenate([ceiling, [highspy.kHighsInf]])
    lp.row_lower_ = np.concatenate([np.full(len(room), -highspy.kHighsInf), np.zeros(n)])
    lp.row_upper_ = np.concatenate([room, np.zeros(n)])
    rows, starts, values = [], [0], []
    for i in range(n):
        there = np.flatnonzero(demand[i])
        rows += [*there, len(room) + i]
        values += [*demand[i, there], 1.0]
        starts.append(len(rows))
    rows += range(len(room), len(room) + n)
    values += (-speed).tolist()
    starts.append(len(rows))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = starts, rows, values
    h.passModel(lp)
    h.run()
    return float(h.getSolution().col_value[n])


def by_clarabel(problem: fairlead.Problem) -> np.ndarray:
    """Maximize the Nash product with cvxpy."""
    import cvxpy  # which takes a second to read

    most, _ = problem.most()
    x = cvxpy.Variable(len(most), nonneg=True)
    capped = np.flatnonzero(most >= 0)
    bounds = [x[capped] <= most[capped]] if len(capped) else []
    cvxpy.Problem(cvxpy.Maximize(cvxpy.sum(cvxpy.log(x))), [problem.demand.T @ x <= problem.capacity, *bounds]).solve(
        solver=cvxpy.CLARABEL
    )
    return np.asarray(x.value)


def timed(work: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """Return the median time of several runs, and the answer."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        answer = work()
        took.append(time.perf_counter() - began)
    return statistics.median(took), answer


def _compare(what: str, seconds: float, name: str, peer: float) -> None:
    print(f"           {what}: {seconds * 1e3:.1f} ms; {name} {peer:.2f} s: {peer / seconds:,.0f} times as long")


def run(many: int = 1_000_000, some: int = 10_000, few: int = 1_000) -> None:
    """Print seconds for `many` users, and ratios to the peers for `some`."""
    large = make(many, 8)
    for policy in ("drf", "asset", "ceei"):
        fairlead.allocate(large, policy)  # loads the compiled code
        seconds, found = timed(lambda policy=policy: fairlead.allocate(large, policy))
        least = float(np.abs(found.left / large.capacity).min())
        print(f"policies   {policy:<6} {many:>9,} users, 8 resources: {seconds:.2f} s ({least:.0e} left of the scarcest)")
    problem = make(some, 8)
    fairlead.allocate(problem, "drf")
    seconds, found = timed(lambda: fairlead.allocate(problem, "ceei"))
    peer, theirs = timed(lambda: by_clarabel(problem), 1)
    worst = float(np.abs(theirs - found.tasks).max() / found.tasks.max())
    _compare(f"ceei   {some:>9,} users", seconds, "cvxpy + Clarabel", peer)
    print(f"           (they differ by {worst:.0e} of the largest)")
    free = fairlead.Problem.from_arrays(problem.capacity, problem.demand)  # no demands: HiGHS needs a round a resource only
    seconds, found = timed(lambda: fairlead.allocate(free, "drf"))
    peer, theirs = timed(lambda: by_highs(free), 1)
    worst = float(np.abs(theirs - found.tasks).max() / found.tasks.max())
    _compare(f"drf    {some:>9,} users", seconds, "HiGHS, called directly", peer)
    print(f"           (they differ by {worst:.0e} of the largest)")
    rng = np.random.default_rng(3)
    demand = np.array([[Fraction(int(x)) for x in row] for row in rng.integers(1, 10**6, (few, 8))], object)
    capacity = np.array([Fraction(int(x)) for x in rng.integers(few * 10**5, few * 10**6, 8)], object)
    tasks = np.array([Fraction(int(x)) if x < 8 else Fraction(-1) for x in rng.integers(1, 24, few)], object)
    exact = fairlead.Problem.from_arrays(capacity, demand, tasks=tasks)
    seconds, _ = timed(lambda: fairlead.allocate(exact, "drf", exact=True))
    print(f"           drf    {few:>9,} users in fractions: {seconds:.2f} s")
    for users, inner, exactly in ((some, few, False), (few, max(1, few // 10), True)):
        tree = in_a_tree(users, inner)
        seconds, _ = timed(lambda tree=tree, exactly=exactly: fairlead.allocate(tree, "hdrf", exact=exactly), 1)
        how = "in fractions" if exactly else "in floats"
        print(f"           hdrf   {users:>9,} users below {inner:,} queues, {how}: {seconds:.2f} s")
