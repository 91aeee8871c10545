"""Search for a case that violates a property of a policy, and shrink it until it is readable.

Cases are small problems in whole numbers. They are drawn at random from patterns in which policies differ (complementary needs,
one resource scarce for all, users nearly alike, one user with small needs), or are mutations of the cases closest to a
violation. A quick check is in floating point; a violation counts only if fractions confirm it. Then users, resources, weights
and digits are removed as long as it persists.

All users need some of every resource, as the DRF paper's proofs assume ("strictly positive demands"), unless `zeros` is set: with
demands of 0 even DRF lacks population monotonicity.

The same seed gives the same cases and the same answer.
"""

import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from fairlead.audit.allocation import CLOSE
from fairlead.audit.findings import Finding
from fairlead.audit.given import give, give_floats
from fairlead.audit.policy import Lie, check
from fairlead.model.arrays import exact_array
from fairlead.model.problems import Problem
from fairlead.policies.contract import DividingPolicy, PolicyError
from fairlead.policies.tree import knows_trees

NAMES = "ABCDEF"
RESOURCES = ("cpu", "memory", "gpu")
CLEARLY = 1e-5
"""Least margin of a violation in floats to check in fractions."""
POOL = 12
"""Number of closest cases kept for mutation."""
LIES = 6
"""Lies per user and case; one more about a finite demand."""


@dataclass(frozen=True)
class Case:
    """A small problem in whole numbers; see :class:`fairlead.model.problems.Problem`."""

    capacity: tuple[int, ...]
    demand: tuple[tuple[int, ...], ...]
    tasks: tuple[int, ...]
    weight: tuple[int, ...]
    queues: tuple[str, ...]
    lie: tuple[int, tuple[int, ...]] | None = None  # a user, and the demand that it claims

    def problem(self) -> Problem:
        """Return the case as a problem in fractions."""
        n, m = len(self.demand), len(self.capacity)

        def table(rows: Any) -> Any:
            return exact_array(Fraction(x) for row in rows for x in row).reshape(n, m)

        return Problem(
            resources=RESOURCES[:m], users=list(NAMES[:n]), capacity=exact_array(map(Fraction, self.capacity)),
            demand=table(self.demand), tasks=exact_array(map(Fraction, self.tasks)),
            weight=table([w] * m for w in self.weight), guarantee=table([0] * m for _ in range(n)),
            limit=table([-1] * m for _ in range(n)), priority=np.zeros(n, np.int64), queues=list(self.queues),
        )  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """The result of a search.

    tested : the property
    cases, lies : numbers tried
    seconds : duration; the only field that the seed does not decide
    found : the violation in fractions, or None; its case is `case`
    error : the exception that the policy raised, if any
    """

    policy: str
    tested: str
    cases: int
    lies: int
    seconds: float
    found: Finding | None = None
    case: Case | None = None
    error: str = ""

    @property
    def name(self) -> str:
        return f"{self.policy}/{self.tested}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        holds = None if self.error or not self.cases else self.found is None
        found: dict[str, Any] = {"policy": self.policy, "property": self.tested, "name": self.name, "holds": holds}
        found |= {"cases": self.cases, "lies": self.lies, "seconds": round(self.seconds, 3)}
        if self.error:
            found["error"] = self.error
        if self.found is not None and self.case is not None:
            case = self.case
            found["counterexample"] = {
                **self.found.to_dict(),
                "capacity": case.capacity,
                "users": [
                    {
                        "name": NAMES[i],
                        "demand": row,
                        "tasks": case.tasks[i] if case.tasks[i] >= 0 else None,
                        "weight": case.weight[i],
                        "queue": case.queues[i],
                    }
                    for i, row in enumerate(case.demand)
                ],
            }
            if case.lie:
                found["counterexample"]["lie"] = {"user": NAMES[case.lie[0]], "demand": case.lie[1]}
        return found


@dataclass
class _Search:
    policy: DividingPolicy
    property: str
    rng: np.random.Generator
    least: int  # least demand
    lies: int = 0
    pool: list[tuple[float, int, Case]] = field(default_factory=list)

    def look(self, case: Case) -> Finding | None:
        """Check a case in floats; None if the policy cannot divide it."""
        problem = case.problem().floats()
        try:
            finding = check(self.property, problem, partial(give_floats, policy=self.policy), self._lies(case, problem))
        except PolicyError:
            return None
        self.lies += finding.tried if self.property == "strategy-proofness" else 0
        return finding

    def _lies(self, case: Case, problem: Problem) -> Iterator[Lie]:
        if self.property != "strategy-proofness":
            return
        top = max(map(max, case.demand)) * 2
        for i, true in enumerate(case.demand):
            for _ in range(LIES):
                claimed = list(true)
                j = int(self.rng.integers(len(true)))
                claimed[j] = int(self.rng.integers(self.least, top + 1))
                if self.rng.random() < 0.3:
                    claimed = [int(x) for x in self.rng.integers(self.least, top + 1, len(true))]
                if any(claimed):
                    yield i, np.array(claimed, float), problem.tasks[i]
            if case.tasks[i] >= 0:
                yield i, problem.demand[i], -1.0

    def is_certain(self, case: Case) -> Finding | None:
        """Return a case's violation in fractions, or None."""
        problem = case.problem()
        lies = [(case.lie[0], exact_array(map(Fraction, case.lie[1])), problem.tasks[case.lie[0]])] if case.lie else []
        try:
            finding = check(self.property, problem, lambda p: give(p, self.policy), lies, around=False)
        except PolicyError:
            return None
        return finding if finding.holds is False else None


def search(policy: DividingPolicy, name: str, seed: int = 0, cases: int = 600, zeros: bool = False) -> Verdict:
    """Search for a case that violates a property of a policy.

    name : one of :data:`fairlead.audit.findings.PROPERTIES`
    cases : most cases to try
    zeros : True if demands may be 0
    """
    began = time.monotonic()
    rng = np.random.default_rng([seed, zlib.crc32(f"{policy.name} {name}".encode())])
    least = 0 if zeros else 1
    hunt = _Search(policy, name, rng, least)
    in_trees = knows_trees(policy)
    tried = 0
    for number in range(cases):
        close = hunt.pool and number % 3 == 2
        close_one = hunt.pool[int(rng.integers(len(hunt.pool)))][2] if close else None
        case = _changed(close_one, least, rng) if close_one else _drawn(name, in_trees, least, rng)
        finding = hunt.look(case)
        if finding is None or finding.holds is None:
            continue
        tried += 1
        if finding.holds is False and finding.margin > CLEARLY:
            suspect = _with_lie(case, finding)
            if suspect is not None and (certain := hunt.is_certain(suspect)) is not None:
                small, certain = _shrunk(suspect, certain, hunt)
                return Verdict(policy.name, name, tried, hunt.lies, time.monotonic() - began, certain, small)
        if np.isfinite(finding.margin) and finding.margin < CLOSE:
            hunt.pool = sorted([*hunt.pool, (-finding.margin, number, case)], key=lambda entry: entry[:2])[:POOL]
    return Verdict(policy.name, name, tried, hunt.lies, time.monotonic() - began)


def _with_lie(case: Case, finding: Finding) -> Case | None:
    """Return the case with the found lie, all in a finer unit so that the lie is in whole numbers."""
    if finding.property != "strategy-proofness":
        return case
    lied, i = finding.after.problem, list(finding.after.problem.users).index(finding.user)
    if lied.tasks[i] != case.tasks[i]:
        return None
    finer = 64
    claimed = tuple(max(1, round(float(x) * finer)) if x > 0 else 0 for x in lied.demand[i])
    demand = tuple(tuple(x * finer for x in row) for row in case.demand)
    return replace(case, capacity=tuple(c * finer for c in case.capacity), demand=demand, lie=(i, claimed))


# -- cases ----------------------------------------------------------------------------------------------------------


def _drawn(name: str, in_trees: bool, least: int, rng: np.random.Generator) -> Case:
    """Draw a case from one of the patterns."""
    n, m = int(rng.integers(2, 5)), int(rng.integers(1, 4)) if name != "single-resource" else 1
    top = int(rng.choice([3, 6, 20]))
    demand = rng.integers(0, top + 1, (n, m))
    capacity = rng.integers(top, 6 * top, m)
    pattern = int(rng.integers(6))
    if pattern == 0:  # complementary needs
        demand = rng.integers(0, max(2, top // 4) + 1, (n, m))
        demand[np.arange(n), np.arange(n) % m] = rng.integers(top // 2 + 1, top + 1, n)
    elif pattern == 1 or (name == "bottleneck" and pattern < 4):  # one resource is scarce for all
        demand[:, 0] = rng.integers(1, top + 1, n)
        capacity[:] = capacity[0]
        demand = np.minimum(demand, demand[:, :1])
    elif pattern == 2:  # nearly alike
        demand[:] = demand[0]
        demand += rng.integers(0, 2, (n, m))
    elif pattern == 3:  # one user with small needs
        demand[0] = 1
    elif pattern == 4:
        capacity[:] = capacity[0]
    demand = np.maximum(demand, least)
    for row in demand:
        if not row.any():
            row[int(rng.integers(m))] = 1
    tasks = np.where(rng.random(n) < (0.35 if rng.random() < 0.5 else 0.0), rng.integers(0, 9, n), -1)
    weight = rng.integers(1, 4, n) if rng.random() < 0.3 else np.ones(n, np.int64)
    places = ["", "x", "y", "x/u"] if in_trees and rng.random() < 0.7 else [""]
    queues = [places[int(rng.integers(len(places)))] for _ in range(n)]
    rows = tuple(map(tuple, demand.tolist()))
    return Case(tuple(capacity.tolist()), rows, tuple(tasks.tolist()), tuple(weight.tolist()), tuple(queues))


def _changed(case: Case, least: int, rng: np.random.Generator) -> Case:
    """Mutate a case: change one to three numbers."""
    capacity, demand = list(case.capacity), [list(row) for row in case.demand]
    tasks, weight = list(case.tasks), list(case.weight)
    for _ in range(int(rng.integers(1, 4))):
        i, j = int(rng.integers(len(demand))), int(rng.integers(len(capacity)))
        what = rng.random()
        if what < 0.6:
            demand[i][j] = max(least, demand[i][j] + int(rng.choice([-3, -1, 1, 3])) if rng.random() < 0.7 else demand[i][j] * 2)
            if not any(demand[i]):
                demand[i][j] = 1
        elif what < 0.85:
            capacity[j] = max(1, capacity[j] + int(rng.choice([-5, -1, 1, 5])))
        elif what < 0.95:
            tasks[i] = max(-1, int(rng.integers(-9, 9)))
        else:
            weight[i] = int(rng.integers(1, 4))
    return Case(tuple(capacity), tuple(map(tuple, demand)), tuple(tasks), tuple(weight), case.queues)


# -- shrinking ------------------------------------------------------------------------------------------------------


def _shrunk(case: Case, finding: Finding, hunt: _Search) -> tuple[Case, Finding]:
    going = True
    while going:
        going = False
        for smaller in _smaller(case, hunt.least):
            if _size(smaller) < _size(case):
                certain = hunt.is_certain(smaller)
                if certain is not None and certain.margin > CLEARLY:
                    case, finding, going = smaller, certain, True
                    break
    return case, finding


def _size(case: Case) -> tuple[int, int, int]:
    numbers = [*case.capacity, *(x for row in case.demand for x in row), *(case.lie[1] if case.lie else ())]
    odd = sum(t >= 0 for t in case.tasks) + sum(w != 1 for w in case.weight) + sum(map(bool, case.queues))
    return (len(case.demand) * len(case.capacity), odd, sum(numbers) + sum(max(t, 0) for t in case.tasks) + sum(case.weight))


def _smaller(case: Case, least: int) -> Iterator[Case]:
    """Yield simpler cases, the simplest first."""
    n, m = len(case.demand), len(case.capacity)
    for i in range(n if n > 1 else 0):
        if case.lie is None or case.lie[0] != i:
            yield _without_user(case, i)
    for j in range(m if m > 1 else 0):
        rows = tuple(row[:j] + row[j + 1 :] for row in case.demand)
        lie = (case.lie[0], case.lie[1][:j] + case.lie[1][j + 1 :]) if case.lie else None
        if all(map(any, rows)) and (lie is None or any(lie[1])):
            yield Case(case.capacity[:j] + case.capacity[j + 1 :], rows, case.tasks, case.weight, case.queues, lie)
    for i in range(n):
        if case.tasks[i] >= 0:
            yield replace(case, tasks=(*case.tasks[:i], -1, *case.tasks[i + 1 :]))
        if case.weight[i] != 1:
            yield replace(case, weight=(*case.weight[:i], 1, *case.weight[i + 1 :]))
        if case.queues[i]:
            yield replace(case, queues=(*case.queues[:i], "/".join(case.queues[i].split("/")[:-1]), *case.queues[i + 1 :]))
    common = np.gcd.reduce([*case.capacity, *(x for row in case.demand for x in row), *(case.lie[1] if case.lie else ())])
    for by in sorted({int(common), 2, 3, 5}, reverse=True):
        if by > 1:  # all numbers in a coarser unit
            rows = tuple(tuple(max(least, round(x / by)) for x in row) for row in case.demand)
            lie = (case.lie[0], tuple(max(least, round(x / by)) for x in case.lie[1])) if case.lie else None
            if all(map(any, rows)) and (lie is None or any(lie[1])):
                yield Case(tuple(max(1, round(c / by)) for c in case.capacity), rows, case.tasks, case.weight, case.queues, lie)
    for j in range(m):
        for less in _less(case.capacity[j], 1):
            yield replace(case, capacity=(*case.capacity[:j], less, *case.capacity[j + 1 :]))
    for i in range(n):
        for j in range(m):
            for less in _less(case.demand[i][j], least):
                row = (*case.demand[i][:j], less, *case.demand[i][j + 1 :])
                if any(row):
                    yield replace(case, demand=(*case.demand[:i], row, *case.demand[i + 1 :]))
        if case.tasks[i] > 0:
            for less in _less(case.tasks[i], 0):
                yield replace(case, tasks=(*case.tasks[:i], less, *case.tasks[i + 1 :]))
        if case.weight[i] > 2:
            yield replace(case, weight=(*case.weight[:i], 2, *case.weight[i + 1 :]))
    for j in range(m if case.lie else 0):
        assert case.lie is not None
        for less in _less(case.lie[1][j], least):
            claimed = (*case.lie[1][:j], less, *case.lie[1][j + 1 :])
            if any(claimed):
                yield replace(case, lie=(case.lie[0], claimed))


def _less(number: int, least: int) -> list[int]:
    tried = dict.fromkeys((least, number // 2, number * 3 // 4, number - number % 10, number - 1))
    return [x for x in tried if least <= x < number]


def _without_user(case: Case, i: int) -> Case:
    def rest(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values[:i] + values[i + 1 :]

    lie = (case.lie[0] - (case.lie[0] > i), case.lie[1]) if case.lie else None
    return Case(case.capacity, rest(case.demand), rest(case.tasks), rest(case.weight), rest(case.queues), lie)
