"""Slots: each machine is cut into k equal slots, and slots are shared max-min; a task takes one, whatever it needs.

The baseline of the DRF paper's section 6 (Hadoop's fair scheduler). A task that needs more than a slot is refused, or, with
``slots:K:overcommit``, takes one all the same, and machines promise more than they have.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.problems import Problem
from fairlead.policies.contract import Division, PolicyError
from fairlead.policies.filling import NOT_TAKEN, fill

SLOT = -4
"""Stopped because all slots are taken."""


@dataclass(frozen=True)
class Slots:
    """See the module."""

    slots: int
    overcommit: bool

    @property
    def name(self) -> str:
        return f"slots:{self.slots}" + (":overcommit" if self.overcommit else "")

    @property
    def summary(self) -> str:
        return f"{self.slots} equal slots a machine, shared equally; a task takes one"

    def divide(self, problem: Problem) -> Division:
        """Share the slots max-min; weights must be one number a user. A guarantee means nothing here and is refused."""
        if (problem.guarantee > 0).any():
            raise PolicyError("slots: cannot guarantee quantities: remove the guarantees")
        if (problem.weight != problem.weight[:, :1]).any():
            raise PolicyError("slots: a weight is one number a user here")
        one = problem.tasks * 0 + 1
        number = problem.capacity[:1] * 0 + self.slots * problem.nodes
        size = problem.capacity / number[0]
        fits = np.array([bool((row <= size).all()) for row in problem.demand]) if not self.overcommit else one > 0
        most, limited = problem.most()
        found = fill(number, one[:, None], problem.weight[:, 0] * fits, most, one * 0, limited)
        too_large = [int(np.argmax(row > size)) for row in problem.demand[~fits]] if not self.overcommit else []
        stop = np.where(found.stop == 0, SLOT, found.stop)
        stop[~fits & (found.stop == NOT_TAKEN)] = too_large
        notes = [f"{int((~fits).sum())} users' tasks do not fit a slot"] if not fits.all() else []
        return Division(found.tasks, stop, found.round, notes=notes)


def policy(slots: str = "", how: str = "") -> Slots:
    """Slots, as ``slots:4`` or ``slots:4:overcommit``."""
    if not slots.isdigit() or not 0 < int(slots) <= 10**6 or how not in ("", "overcommit"):
        raise PolicyError("slots: write slots:K or slots:K:overcommit, K the number of slots a machine")
    return Slots(int(slots), how == "overcommit")
