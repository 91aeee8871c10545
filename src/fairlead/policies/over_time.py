"""Policies that go by what was used over time: they order the queues of a live or simulated scheduler, and divide no problem."""

from dataclasses import dataclass

from fairlead.model.problems import Problem
from fairlead.policies.contract import Division, PolicyError


@dataclass(frozen=True)
class OverTime:
    """See the module.

    resource : the one whose use counts; none: all of them
    for_trees : whether inner queues that name no policy share as the queue above them does
    """

    name: str
    summary: str
    resource: str = ""
    for_trees: bool = False

    def divide(self, problem: Problem) -> Division:
        """Refuse to: a problem is one moment, with nothing before it."""
        raise PolicyError(
            f"{self.name}: goes by what was used before, and a problem has no past: name it in fairlead.toml, or for simulate"
        )
