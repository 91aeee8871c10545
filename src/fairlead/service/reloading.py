"""Reloads of the configuration: what of a file is applied at once, and what takes a restart.

Queues, settings, and the capacity and labels of known nodes are applied. What runs on a node that shrinks goes on; nothing new
starts there until there is room again. Nodes are neither added nor removed: one under another name would be counted twice.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from fairlead.engines.contract import LiveEngine
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.local.instructions import gpu_indices
from fairlead.engines.local.machine import this_machine
from fairlead.engines.remote.joined import JoinedEngine
from fairlead.model.documents import Configuration
from fairlead.model.specs import Node
from fairlead.scheduler import admission
from fairlead.scheduler.facts import Configured, Fact
from fairlead.scheduler.state import State


class Reloading:
    """Applies a configuration to a running scheduler.

    started : the one with which the scheduler was started
    """

    def __init__(self, started: Configuration, engine: LiveEngine) -> None:
        self._started, self._engine = started, engine

    def nodes(self, configuration: Configuration) -> Sequence[Node]:
        """Return the nodes of a configuration; this machine's look-up may block. Raises Refused, as a start does."""
        if isinstance(self._engine, JoinedEngine) and len(configuration.nodes) > 1:
            raise admission.Refused("[[node]]: with --nodes this machine is one node: name one")
        if configuration.nodes or not isinstance(self._engine, LocalEngine | JoinedEngine):
            return configuration.nodes
        found = this_machine(configuration.system)
        return [found if self._started.nodes else replace(found, name=self._engine.own_nodes[0].name)]

    def apply(
        self, state: State, configuration: Configuration, nodes: Sequence[Node], now: float
    ) -> tuple[list[Fact], list[str]]:
        """Return the facts that apply a configuration, and what of it takes a restart. For the scheduler's thread."""
        configured = configure(state, configuration, now)
        facts: list[Fact] = [configured] if configured else []
        missing = []
        if isinstance(self._engine, LocalEngine | JoinedEngine):
            here, there = ({node.name: node for node in some} for some in (self._engine.own_nodes, nodes))
            changed = [node for node in nodes if node.name in here and node != here[node.name]]
            joined = admission.change_nodes(state, changed, now)
            self._engine.change_nodes(changed)
            for name, cards in gpu_indices(self._engine.own_nodes).items():
                facts += admission.forget_cards(state, name, cards, now)
            facts += joined
            new, gone = sorted(there.keys() - here), sorted(here.keys() - there)
            missing += [f"node {name!r} is new in the file: restart the scheduler to add it" for name in new]
            what = "is gone from the file, and still up: drain it, and restart the scheduler"
            missing += [f"node {name!r} {what}" for name in gone]
        elif [*nodes] != [*self._started.nodes]:
            missing.append("[[node]]: with --engine ray, only the start reads these")
        for name in ("output", "page"):
            if (new := getattr(configuration, name)) != getattr(self._started, name):
                written = str(new).lower() if isinstance(new, bool) else repr(new)
                missing.append(f"{name} = {written} takes effect when the scheduler is restarted")
        return facts, missing


def configure(state: State, configuration: Configuration, now: float) -> Configured | None:
    """Return the fact that applies the queues and settings of a configuration; None if they are in force already.

    Raises Refused for a file without queues where some are declared.
    """
    declared = [*state.tree.declared.values()]
    if configuration.without_queues and declared not in ([], configuration.queues):
        names = admission.some(admission.declared_leaves(state))
        raise admission.Refused(
            f"{configuration.without_queues}: declares no queue, and would drop {names}: restore the file; if each user "
            'shall have a queue of their own instead, write [[queue]] name = "*"'
        )
    same = declared == configuration.queues and state.settings == configuration.settings
    return None if same else admission.configure(state, configuration.queues, configuration.settings, now)


def dropped(state: State, configuration: Configuration) -> list[str]:
    """Return a warning of the queues with unfinished jobs that are declared, and no longer are in a configuration."""
    names, jobs = {queue.name for queue in configuration.queues}, state.jobs
    live = (jobs.waiting[: jobs.n] > 0) | (jobs.holding[: jobs.n] > 0)
    queues = {state.tree.names[row] for row in np.unique(jobs.queue[: jobs.n][live]).tolist()}
    gone = [name for name in admission.declared_leaves(state) if name in queues - names]
    return [f"no longer declared: {admission.some(gone)}: their jobs go on, and they take no new ones"] if gone else []
