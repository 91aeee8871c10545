"""A policy's allocation in fractions: exact, or between bounds.

- A policy that divides fractions gives exact numbers.
- CEEI's numbers are roots of polynomials: their bounds are proved (:mod:`fairlead.audit.proved_bounds`), or there is no answer.
- Any other policy's floats count as accurate to 1e-6.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from fairlead.audit.proved_bounds import equilibrium_bounds
from fairlead.model.arrays import Numbers, exact_array
from fairlead.model.problems import Problem
from fairlead.policies.ceei import Ceei
from fairlead.policies.contract import DividingPolicy, OrderingPolicy
from fairlead.policies.discrete import place
from fairlead.policies.tree import knows_trees

WITHIN = Fraction(1, 10**6)
"""Assumed error of floating point, relative to the number or to a task."""


@dataclass(frozen=True)
class Given:
    """The tasks of each user of a problem.

    problem : Problem
        In fractions, or in floats if speed matters more than certainty.
    low, high : shape (users,)
        Bounds of the number of tasks; equal if it is exact.
    placed : shape (users, kinds), optional
        Tasks on each kind of machine.
    whole : bool
        True if tasks are indivisible: fair then means within one task.
    """

    problem: Problem
    low: Numbers
    high: Numbers
    placed: Numbers | None = None
    whole: bool = False


def suited(problem: Problem, policy: DividingPolicy) -> Problem:
    """Return the problem, without its tree if the policy ignores trees."""
    if knows_trees(policy) or not any(problem.queues):
        return problem
    return replace(problem, queues=[""] * len(problem.users))


def give(problem: Problem, policy: DividingPolicy) -> Given | None:
    """Divide a problem in fractions, and bound the numbers; None if that cannot be proved. Raises PolicyError, as `divide`."""
    if not len(problem.users):
        nothing = exact_array([])
        return Given(problem, nothing, nothing)
    if isinstance(policy, Ceei):
        bounds = equilibrium_bounds(problem, policy.divide(problem.floats()))
        return Given(problem, *bounds) if bounds else None
    try:
        exact = policy.divide(problem)
    except Exception:  # PolicyError: not in fractions; a user's own policy may raise anything. Try floats.
        exact = None
    if exact is not None and all(isinstance(x, Fraction | int) for x in exact.tasks):
        return Given(problem, exact.tasks, exact.tasks, exact.placed)
    division = policy.divide(problem.floats())
    tasks = [Fraction(float(x)) for x in division.tasks]
    off = [WITHIN * max(Fraction(1), x) for x in tasks]
    low = exact_array(max(Fraction(0), x - o) for x, o in zip(tasks, off, strict=True))
    high = exact_array(x + o for x, o in zip(tasks, off, strict=True))
    return Given(problem, low, high, division.placed)


def give_floats(problem: Problem, policy: DividingPolicy) -> Given:
    """Divide a problem in floating point, for a quick check."""
    division = policy.divide(problem)
    return Given(problem, division.tasks, division.tasks, division.placed)


def give_whole(problem: Problem, policy: OrderingPolicy) -> Given:
    """Serve whole tasks one after another."""
    tasks = place(problem, policy)[0].tasks
    return Given(problem, tasks, tasks, whole=True)


def taken(problem: Problem, tasks: Sequence[Any], whole: bool = False) -> Given:
    """Make a Given of an allocation from elsewhere; floats are read as their decimal notation."""
    numbers = exact_array(Fraction(x) if isinstance(x, int | Fraction) else Fraction(repr(float(x))) for x in tasks)
    rounded = any(isinstance(x, float) and not float(x).is_integer() for x in tasks)
    off = WITHIN if rounded else Fraction(0)
    low = exact_array(max(Fraction(0), x - off * max(1, x)) for x in numbers)
    high = exact_array(x + off * max(1, x) for x in numbers)
    return Given(problem, low, high, whole=whole)
