"""YARN's fair scheduler: queues below their minimum first, then the one with the least for its weight.

Apache Hadoop, FairSharePolicy and DominantResourceFairnessPolicy. Of two queues:

- the one below its minimum goes first; if both are, the one with the smaller fraction of its minimum;
- else the one with the smaller share over its weight.

``yarn-fair`` compares memory only. ``yarn-drf`` compares the dominant resource, and on a tie the next in descending order of
shares. Past use does not count. A queue of weight 0 goes last, unless it is below its minimum.

:mod:`fairlead.scheduler.kernel` orders live queues; :mod:`fairlead.policies.fair_shares` computes fair shares.
"""

from dataclasses import dataclass

from fairlead.model.problems import Problem
from fairlead.policies.contract import Division, PolicyError


@dataclass(frozen=True)
class AsYarn:
    """One of YARN's two policies.

    has_floors : siblings' minimums may exceed the capacity, and a weight may be 0
    """

    name: str
    summary: str
    has_floors: bool = True

    def divide(self, problem: Problem) -> Division:
        """Refuse: YARN computes the fair share of each resource on its own, which makes no whole tasks."""
        raise PolicyError(
            f"{self.name}: orders queues and divides no problem: name it in fairlead.toml; `drf` divides by the same shares"
        )


def fair() -> AsYarn:
    """YARN's fair policy: the least memory for its weight."""
    return AsYarn("yarn-fair", "below its minimum first, then least memory: as in YARN")


def drf() -> AsYarn:
    """YARN's DRF: the smallest dominant share, then the next share."""
    return AsYarn("yarn-drf", "below its minimum first, then drf: as in YARN")
