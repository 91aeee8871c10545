"""What a policy offers: how it divides a problem. A user's own is any object that does.

An entry point in the group `fairlead.policies` gives it a name; what it points to is called with the words after the name
(``maxmin:memory`` calls it with "memory") and returns the policy.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem


class PolicyError(ValueError):
    """A policy that there is not, or a problem that it does not divide; the message says what would be right."""


@dataclass(frozen=True)
class Division:
    """How a policy divides a problem.

    tasks : shape (users,)
    stop : int64, shape (users,)
        Why no more: a resource's column, or DEMAND, LIMIT, NOT_TAKEN, SLOT, NO_SLOT of :mod:`fairlead.policies.filling`.
    round : int64, shape (users,)
        How many resources were saturated when the user stopped; 0 where there are no rounds.
    prices : shape (resources,), optional
        In equilibrium.
    notes : list of str
        What a reader must know.
    placed : shape (users, kinds), optional
        On which of the machines that differ the tasks are.
    """

    tasks: Numbers
    stop: Any
    round: Any
    prices: Numbers | None = None
    notes: list[str] = field(default_factory=list)
    placed: Numbers | None = None


class DividingPolicy(Protocol):
    """A policy with a divisible solution."""

    name: str
    summary: str

    def divide(self, problem: Problem) -> Division:
        """Divide a problem, whose numbers are float64 or fractions; the answer is in the same."""
