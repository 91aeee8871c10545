"""Mesos' DRF: by dominant share over weight, then by how often somebody was allocated to, then by name.

From Mesos' drf sorter. What was used before counts for nothing. What is guaranteed is kept for its owner even while that does not
want it, as quota is there; `lend` says otherwise.
"""

from dataclasses import dataclass

from fairlead.model.problems import Problem
from fairlead.policies.contract import Division, PolicyError


@dataclass(frozen=True)
class Mesos:
    """See the module. Inner queues that name no policy share as the queue above them does."""

    name: str = "mesos"
    summary: str = "drf, ties by how often each was served: as Mesos has it"

    def divide(self, problem: Problem) -> Division:
        """Refuse to: it differs from drf in what breaks ties only, and in what is kept for who wants nothing."""
        raise PolicyError(
            f"{self.name}: orders queues, and divides no problem: name it in fairlead.toml; `drf` divides by the same shares"
        )


def policy() -> Mesos:
    """Make it."""
    return Mesos()
