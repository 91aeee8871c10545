"""What a policy offers. A user's own policy is any object with these methods.

An entry point in the group `fairlead.policies` names it. The entry point is called with the words after the name
(``maxmin:memory`` passes "memory") and returns the policy.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from fairlead.failure import Failure
from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem

# Why a user gets no more (`Division.stop`). A number from 0 up is the column of a saturated resource.
DEMAND, LIMIT, NOT_TAKEN, SLOT = -1, -2, -3, -4
NO_SLOT = -5
"""A slot has too little of the first resource for a task; -6: of the second, and so on."""


class PolicyError(Failure, ValueError):
    """An unknown policy, or a problem that it does not divide. The message says what to write instead."""


@dataclass(frozen=True)
class Division:
    """How a policy divides a problem.

    tasks : shape (users,)
    stop : int64, shape (users,)
        Why a user gets no more: a resource's column, or DEMAND, LIMIT, NOT_TAKEN, SLOT, NO_SLOT.
    round : int64, shape (users,)
        Number of resources saturated when the user stopped; 0 for policies without rounds.
    prices : shape (resources,), optional
        Equilibrium prices.
    notes : list of str
        Warnings for the reader.
    placed : shape (users, kinds), optional
        Tasks of each user on each kind of machine.
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
        """Divide a problem. The answer is in the problem's own numbers: float64 or fractions."""


@dataclass(frozen=True)
class QueueOrder:
    """A policy that only orders the queues of a scheduler, in its kernel.

    has_floors : siblings' minimums may exceed the capacity, and a weight may be 0
    """

    name: str
    summary: str
    has_floors: bool = False

    refusal = "orders queues and divides no problem: name it in fairlead.toml; `drf` divides by the same shares"

    def divide(self, problem: Problem) -> Division:
        raise PolicyError(f"{self.name}: {self.refusal}")


class Order(Protocol):
    """The order in which users are served whole tasks."""

    def choose(self) -> int | None:
        """Return the next active user; None if all are out."""

    def served(self, user: int, tasks: int) -> None:
        """Record that a user now has `tasks` tasks."""

    def out(self, user: int, saturated: int | None) -> None:
        """Stop serving a user: it needs the `saturated` resource, or (None) cannot use more."""


@runtime_checkable
class OrderingPolicy(Protocol):
    """A policy with an order for indivisible tasks."""

    name: str

    def indivisible(self, problem: Problem) -> tuple[Problem, Order]:
        """Return the problem as this policy sees it, in fractions, and its order."""
