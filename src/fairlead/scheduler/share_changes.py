"""Who would gain and who would lose by another configuration: steady fair shares before and after, no scheduler needed."""

from typing import NamedTuple

from fairlead.model.documents import Configuration
from fairlead.model.specs import written
from fairlead.scheduler.facts import Configured, NodeJoined
from fairlead.scheduler.fair_shares import fair_shares
from fairlead.scheduler.state import State


class Change(NamedTuple):
    """A queue's steady fair share of a resource in base units; None where the queue is not there."""

    queue: str
    resource: str
    before: int | None
    after: int | None

    @property
    def gained(self) -> int:
        """How much more it is; less than 0 where it is less."""
        return (self.after or 0) - (self.before or 0)


def share_changes(old: Configuration, new: Configuration) -> list[Change]:
    """Compare two configurations, each on its own nodes.

    Queues that a ``*`` stands for are not there before somebody submits, so they have no share. The root comes first, as what
    there is; then all queues of the one and the other by name, those that stay the same among them.
    """
    before, after = (_shares(configuration) for configuration in (old, new))
    names = sorted({*before, *after}, key=lambda name: name.split("/") * bool(name))
    resources = sorted({resource for shares in (before, after) for row in shares.values() for resource in row})
    return [
        Change(
            written(name),
            resource,
            before[name].get(resource, 0) if name in before else None,
            after[name].get(resource, 0) if name in after else None,
        )
        for name in names
        for resource in resources
    ]


def _shares(configuration: Configuration) -> dict[str, dict[str, int]]:
    """The steady fair share of each queue, by resource."""
    state = State()
    state.apply(Configured(at=0.0, queues=configuration.queues, settings=configuration.settings))
    for node in configuration.nodes:
        state.apply(NodeJoined(at=0.0, node=node))
    steady = fair_shares(state).steady
    return {
        name: dict(zip(state.resources, steady[row].tolist(), strict=True)) for row, name in enumerate(state.tree.names)
    }
