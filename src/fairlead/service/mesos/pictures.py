"""The cluster as Mesos' operators see it: agents, frameworks with tasks and offers, roles. Pure functions over the state."""

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

import numpy as np

from fairlead.model.specs import Node, Offer, Quantities, Queue, Ranges
from fairlead.scheduler.framework_index import OWN, Launched, Member, RoleReservation, plus, queue_of
from fairlead.scheduler.frameworks.reservations import joined
from fairlead.scheduler.reports.usage import queues_there
from fairlead.scheduler.state import State
from fairlead.service.mesos.messages.mesos_pb2 import TaskState
from fairlead.service.mesos.statuses import latest

Sees = Callable[[Member], bool]
Hidden = Callable[[str], bool]
"""Whether a queue is not told of."""


class PortsPicture(NamedTuple):
    """The ports of a node: all, and those that tasks have and that are offered."""

    all: Ranges
    used: Ranges
    offered: Ranges


class AgentPicture(NamedTuple):
    """A node, by its row: what it has, what tasks and offers have of that, its parcels by their marks, and its ports.

    told : the parcels of roles that are told of
    """

    row: int
    node: Node
    active: bool
    capacity: Quantities
    used: Quantities
    offered: Quantities
    role_reservations: dict[str, RoleReservation]
    told: dict[str, RoleReservation]
    ports: PortsPicture

    @property
    def unreserved(self) -> Quantities:
        """What is in no parcel."""
        found = self.capacity
        for parcel in self.role_reservations.values():
            found = plus(found, parcel.amount, -1)
        return found


class TaskPicture(NamedTuple):
    """A task of a framework, and the state that it is in."""

    id: str
    name: str
    launched: Launched
    state: TaskState
    ports: Ranges


class FrameworkPicture(NamedTuple):
    """A framework, with its tasks and its offers."""

    id: str
    member: Member
    tasks: list[TaskPicture]
    offers: list[Offer]
    used: Quantities
    offered: Quantities


class RolePicture(NamedTuple):
    """A role: a queue that is declared, or that frameworks are in."""

    name: str
    queue: Queue
    used: Quantities
    frameworks: list[str]


class Picture(NamedTuple):
    """All of it."""

    agents: list[AgentPicture]
    frameworks: list[FrameworkPicture]
    roles: list[RolePicture]


def picture(state: State, sees: Sees, hidden: Hidden) -> Picture:
    """The cluster as somebody sees it: `sees` says of which frameworks they do, `hidden` from which queues they do not."""
    offers = _offers(state)
    by_framework: dict[str, list[Offer]] = {}
    for offer in offers:
        by_framework.setdefault(offer.framework, []).append(offer)
    seen = {who: member for who, member in state.frameworks.members.items() if sees(member)}
    frameworks = [_framework(state, who, member, by_framework.get(who, []), hidden) for who, member in seen.items()]
    return Picture(_agents(state, hidden), frameworks, _roles(state, seen, hidden))


def _offers(state: State) -> list[Offer]:
    table, found = state.offers, []
    for row in range(table.n):
        who, role = state.frameworks.at[state.tree.names[table.leaf[row]]]
        amount, number = state.quantities(table.rest[row]), int(table.id[row])
        apart = state.frameworks.offered_apart.get(number, {})
        ports = state.frameworks.offered_ports.get(state.cluster.specs[table.node[row]].name, {}).get(number, [])
        found.append(Offer(number, who, role, int(table.node[row]), amount, apart, ports))
    return found


def _agents(state: State, hidden: Hidden) -> list[AgentPicture]:
    nodes, offers, found = state.nodes, state.offers, []
    offered = np.zeros_like(nodes.free[: nodes.n])
    np.add.at(offered, offers.node[: offers.n], offers.rest[: offers.n])
    taken = np.maximum(0, nodes.capacity[: nodes.n] - nodes.free[: nodes.n] - offered)
    for row, node in enumerate(state.cluster.specs):
        if nodes.forgotten[row]:
            continue
        active = bool(nodes.up[row] and not nodes.draining[row])
        capacity, used, promised = (state.quantities(each[row]) for each in (nodes.capacity, taken, offered))
        here = {
            mark: each for mark, each in state.frameworks.role_reservations.get(node.name, {}).items() if each.there
        }
        for parcel in here.values():
            used = plus(used, plus(parcel.amount, parcel.taken, -1), -1)
            promised = plus(promised, parcel.offered)
        told = {mark: each for mark, each in here.items() if not hidden(queue_of(each.role))}
        found.append(AgentPicture(row, node, active, capacity, used, promised, here, told, _ports(state, node.name)))
    return found


def _ports(state: State, node: str) -> PortsPicture:
    f = state.frameworks
    used, offered = (joined(chain(*held.get(node, {}).values())) for held in (f.ports, f.offered_ports))
    return PortsPicture(state.settings.ports, used, offered)


def _framework(state: State, who: str, member: Member, offers: list[Offer], hidden: Hidden) -> FrameworkPicture:
    tasks = []
    for task, launched in state.frameworks.tasks.get(who, {}).items():
        if hidden(queue_of(launched.role)):  # which the framework has given up since
            continue
        spec = state.index.specs.get(launched.job)
        name, ports = (spec.name, spec.ports) if spec else (task, [])
        tasks.append(TaskPicture(task, name, launched, latest(state, launched, member.framework), ports))
    used = _sum([task.launched.demand for task in tasks if not task.launched.over])
    return FrameworkPicture(who, member, tasks, offers, used, _sum(_of_offers(offers)))


def _of_offers(offers: list[Offer]) -> list[Quantities]:
    return [amount for offer in offers for amount in (offer.amount, *offer.apart.values())]


def _roles(state: State, seen: dict[str, Member], hidden: Hidden) -> list[RolePicture]:
    """The roles that there are, by name; the queue that stands for a role itself is none."""
    frameworks: dict[str, list[str]] = {}
    for who, member in seen.items():
        for role in member.framework.roles:
            frameworks.setdefault(role, []).append(who)
    there = zip(state.tree.names, queues_there(state).there.tolist(), strict=True)
    names = {name for name, is_there in there if is_there and name and OWN not in name.split("/")}
    names |= {name for name in state.tree.declared if name and not name.endswith("*")}
    names = {name for name in names if not hidden(name)} | set(frameworks)
    found = []
    for name in sorted(names):
        row = state.tree.rows.get(queue_of(name))
        used = state.quantities(state.queues.used[row]) if row is not None else {}
        found.append(RolePicture(name, state.tree.spec_of(queue_of(name)), used, frameworks.get(name, [])))
    return found


def _sum(amounts: list[Quantities]) -> Quantities:
    total: Quantities = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total
