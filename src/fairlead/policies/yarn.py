"""What YARN's fair scheduler orders queues by: who is below its minimum, and else who has least for its weight.

Apache Hadoop, FairSharePolicy and DominantResourceFairnessPolicy. Of two queues the one that is below its minimum goes first;
of two that both are, the one that has the smaller part of it; else the one with the smaller share over its weight. ``yarn-fair``
goes by memory alone; ``yarn-drf`` by the resource that is the queue's dominant one, and where that says nothing by its next, in
descending order of its shares. What was used before does not count. A queue of weight 0 goes after all others, but where it is
below its minimum.

Live queues are ordered by :mod:`fairlead.scheduler.kernel`; what a queue should have by its weight, minimum and maximum is
:mod:`fairlead.policies.fair_shares`.
"""

from dataclasses import dataclass

from fairlead.model.problems import Problem
from fairlead.policies.contract import Division, PolicyError


@dataclass(frozen=True)
class AsYarn:
    """One of the two, by its name.

    has_floors : minimums of siblings may be more than there is, and a weight may be 0
    """

    name: str
    summary: str
    has_floors: bool = True

    def divide(self, problem: Problem) -> Division:
        """Refuse to: YARN works out a fair share of each resource for itself, which makes no whole tasks."""
        raise PolicyError(
            f"{self.name}: orders queues, and divides no problem: name it in fairlead.toml; `drf` divides by the same shares"
        )
