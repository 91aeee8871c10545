"""Slots: each machine is cut into k equal slots, shared max-min. A task takes one slot, whatever it needs.

This is the baseline of the DRF paper's section 6 (Hadoop's fair scheduler). A task larger than a slot is refused; with
``slots:K:overcommit`` it takes one slot, and machines are overcommitted.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem
from fairlead.policies.contract import NO_SLOT, SLOT, Division, Order, PolicyError
from fairlead.policies.discrete import by_rate
from fairlead.policies.filling import fill


@dataclass(frozen=True)
class Slots:
    """Slots, shared max-min."""

    slots: int
    overcommit: bool

    @property
    def name(self) -> str:
        return f"slots:{self.slots}" + (":overcommit" if self.overcommit else "")

    @property
    def summary(self) -> str:
        return f"{self.slots} equal slots per machine, shared equally; a task takes one"

    def divide(self, problem: Problem) -> Division:
        """Share the slots max-min. A weight must be one number per user; guarantees are refused."""
        capacity, need, size, fits = self._slots(problem)
        most, limited = problem.most()
        found = fill(capacity, need[:, None], problem.weight[:, 0] * fits, most, need * 0, limited)
        stop = np.where(found.stop == 0, SLOT, found.stop)
        stop[~fits] = NO_SLOT - (problem.demand > size)[~fits].argmax(axis=1)
        small = int((~fits).sum())
        notes = [f"the tasks of {small} user{'s' * (small > 1)} do not fit a slot"] if small else []
        return Division(found.tasks, stop, found.round, notes=notes)

    def indivisible(self, problem: Problem) -> tuple[Problem, Order]:
        """Serve whole tasks to the user with the fewest slots for its weight."""
        capacity, need, _, fits = self._slots(problem)
        seen = replace(
            problem, resources=("slots",), capacity=capacity, demand=np.where(fits, need, capacity[0] + 1)[:, None],
            weight=problem.weight[:, :1], tasks=problem.most()[0], guarantee=need[:, None] * 0, limit=need[:, None] * 0 - 1,
        )  # fmt: skip
        return seen, by_rate(1 / problem.weight[:, 0])

    def _slots(self, problem: Problem) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return the number of slots, the slots per task of each user, the size of a slot, and whose tasks fit into one."""
        if (problem.guarantee > 0).any():
            raise PolicyError("slots: cannot guarantee quantities: remove the guarantees")
        if problem.machines is not None:
            raise PolicyError("slots: divides only machines that are alike, without constraints: use drf, tsf or asset")
        if (problem.weight != problem.weight[:, :1]).any():
            raise PolicyError("slots: a weight is one number per user")
        capacity, need = problem.capacity[:1] * 0 + self.slots * problem.nodes, problem.tasks * 0 + 1
        size = problem.capacity / capacity[0]
        return capacity, need, size, need > 0 if self.overcommit else (problem.demand <= size).all(axis=1)


def policy(slots: str = "", how: str = "") -> Slots:
    """Slots, as ``slots:4`` or ``slots:4:overcommit``."""
    if not re.fullmatch("[0-9]{1,7}", slots) or not 0 < int(slots) <= 10**6 or how not in ("", "overcommit"):
        raise PolicyError("slots: write slots:K or slots:K:overcommit, K the number of slots per machine")
    return Slots(int(slots), how == "overcommit")
