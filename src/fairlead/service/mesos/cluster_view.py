"""The cluster as Mesos operators see it: agents, frameworks with tasks and offers, roles. Pure functions over the state."""

from collections.abc import Callable, Mapping
from functools import reduce
from itertools import chain
from typing import NamedTuple

import numpy as np

from fairlead.model.specs import OWN, Node, Offer, Quantities, Queue, Ranges
from fairlead.scheduler.framework_index import Member, RoleReservation, plus, queue_of
from fairlead.scheduler.frameworks.reservations import joined
from fairlead.scheduler.reports.usage import listed_queues
from fairlead.scheduler.state import State
from fairlead.service.mesos.completed import Completed, TaskView, task_view
from fairlead.service.mesos.messages.mesos_pb2 import TaskState

Sees = Callable[[Member], bool]
Hidden = Callable[[str], bool]
"""True if a queue must not be shown."""


class PortsView(NamedTuple):
    """The ports of a node: all, used by tasks, and offered."""

    all: Ranges
    used: Ranges
    offered: Ranges


class AgentView(NamedTuple):
    """A node: its resources, used and offered ones, its reservations by mark, and its ports.

    told : the reservations of roles that are shown
    """

    row: int
    node: Node
    active: bool
    capacity: Quantities
    used: Quantities
    offered: Quantities
    role_reservations: dict[str, RoleReservation]
    told: dict[str, RoleReservation]
    ports: PortsView

    @property
    def unreserved(self) -> Quantities:
        return reduce(lambda left, each: plus(left, each.amount, -1), self.role_reservations.values(), self.capacity)


class FrameworkView(NamedTuple):
    """A framework, with its tasks, ended ones included, and its offers.

    gone_at : when it was removed; None for one that is here
    """

    id: str
    member: Member
    tasks: list[TaskView]
    offers: list[Offer]
    used: Quantities
    offered: Quantities
    gone_at: float | None = None

    @property
    def connected(self) -> bool:
        return self.gone_at is None and self.member.away_since is None


class RoleView(NamedTuple):
    """A role: a queue that is declared or that frameworks use."""

    name: str
    queue: Queue
    used: Quantities
    frameworks: list[str]


class ClusterView(NamedTuple):
    """Agents, frameworks, removed frameworks and roles; `ended` counts ended tasks by state, `offer_timeout` is in seconds."""

    agents: list[AgentView]
    frameworks: list[FrameworkView]
    completed: list[FrameworkView]
    roles: list[RoleView]
    ended: Mapping[TaskState, int]
    offer_timeout: float


def cluster_view(state: State, completed: Completed, sees: Sees, hidden: Hidden, now: float) -> ClusterView:
    """Return what a caller may see: `sees` selects frameworks, `hidden` excludes queues."""
    offers = _offers(state)
    by_framework: dict[str, list[Offer]] = {}
    for offer in offers:
        by_framework.setdefault(offer.framework, []).append(offer)
    seen = {who: member for who, member in state.frameworks.members.items() if sees(member)}
    ended = completed.tasks(now)
    frameworks = [
        _framework(state, who, member, by_framework.get(who, []), ended.get(who, []), hidden) for who, member in seen.items()
    ]
    gone = [
        _framework(state, each.id, each.member, [], ended.get(each.id, []), hidden)._replace(gone_at=each.at)
        for each in completed.frameworks(now)
        if sees(each.member)
    ]
    agents, roles = _agents(state, hidden), _roles(state, seen, hidden)
    return ClusterView(agents, frameworks, gone, roles, completed.ended, state.settings.offer_timeout)


def _offers(state: State) -> list[Offer]:
    table, found = state.offers, []
    for row in range(table.n):
        who, role = state.frameworks.at[state.tree.names[table.leaf[row]]]
        amount, number = state.quantities(table.rest[row]), int(table.id[row])
        apart = state.frameworks.offered_apart.get(number, {})
        ports = state.frameworks.offered_ports.get(state.cluster.specs[table.node[row]].name, {}).get(number, [])
        found.append(Offer(number, who, role, int(table.node[row]), amount, apart, ports))
    return found


def _agents(state: State, hidden: Hidden) -> list[AgentView]:
    nodes, offers, found = state.nodes, state.offers, []
    offered = np.zeros_like(nodes.free[: nodes.n])
    np.add.at(offered, offers.node[: offers.n], offers.rest[: offers.n])
    taken = np.maximum(0, nodes.capacity[: nodes.n] - nodes.free[: nodes.n] - offered)
    for row, node in enumerate(state.cluster.specs):
        if nodes.forgotten[row]:
            continue
        active = bool(nodes.up[row] and not nodes.draining[row])
        capacity, used, promised = (state.quantities(each[row]) for each in (nodes.capacity, taken, offered))
        here = {mark: each for mark, each in state.frameworks.role_reservations.get(node.name, {}).items() if each.there}
        for reservation in here.values():
            used = plus(used, plus(reservation.amount, reservation.taken, -1), -1)
            promised = plus(promised, reservation.offered)
        told = {mark: each for mark, each in here.items() if not hidden(queue_of(each.role))}
        held = (state.frameworks.ports, state.frameworks.offered_ports)
        ports = PortsView(state.settings.ports, *(joined(chain(*each.get(node.name, {}).values())) for each in held))
        found.append(AgentView(row, node, active, capacity, used, promised, here, told, ports))
    return found


def _framework(
    state: State, who: str, member: Member, offers: list[Offer], ended: list[TaskView], hidden: Hidden
) -> FrameworkView:
    known = state.frameworks.tasks.get(who, {})
    tasks = [task_view(state, task, launched, member.framework) for task, launched in known.items()]
    unacknowledged = {task.launched.job for task in tasks}
    tasks = [each for each in ended if each.launched.job not in unacknowledged] + tasks
    tasks = [task for task in tasks if not hidden(queue_of(task.launched.role))]  # a role that it no longer has
    used: Quantities = reduce(plus, (task.launched.demand for task in tasks if not task.launched.over), {})
    offered: Quantities = reduce(plus, (amount for offer in offers for amount in (offer.amount, *offer.apart.values())), {})
    return FrameworkView(who, member, tasks, offers, used, offered)


def _roles(state: State, seen: dict[str, Member], hidden: Hidden) -> list[RoleView]:
    """Return all roles by name, without the leaf queues of frameworks."""
    frameworks: dict[str, list[str]] = {}
    for who, member in seen.items():
        for role in member.framework.roles:
            frameworks.setdefault(role, []).append(who)
    there = zip(state.tree.names, listed_queues(state).there.tolist(), strict=True)
    names = {name for name, is_there in there if is_there and name and OWN not in name.split("/")}
    names |= {name for name in state.tree.declared if name and not name.endswith("*")}
    names = {name for name in names if not hidden(name)} | set(frameworks)
    found = []
    for name in sorted(names):
        row = state.tree.rows.get(queue_of(name))
        used = state.quantities(state.queues.used[row]) if row is not None else {}
        found.append(RoleView(name, state.tree.spec_of(queue_of(name)), used, frameworks.get(name, [])))
    return found
