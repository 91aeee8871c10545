"""Mesos' DRF: by dominant share over weight, then by number of allocations, then by name.

Source: Mesos' DRF sorter. Past use does not count. A guarantee is a Mesos quota: kept for its owner even while unused, unless
`lend` is set.
"""

from dataclasses import dataclass

from fairlead.model.problems import Problem
from fairlead.policies.contract import Division, PolicyError


@dataclass(frozen=True)
class Mesos:
    """Mesos' DRF. Inner queues that name no policy inherit it."""

    name: str = "mesos"
    summary: str = "drf, ties by how often each was served: as in Mesos"

    def divide(self, problem: Problem) -> Division:
        """Refuse: it differs from drf only in ties and in guarantees kept for idle queues."""
        raise PolicyError(
            f"{self.name}: orders queues and divides no problem: name it in fairlead.toml; `drf` divides by the same shares"
        )


def policy() -> Mesos:
    """Mesos' DRF among queues."""
    return Mesos()
