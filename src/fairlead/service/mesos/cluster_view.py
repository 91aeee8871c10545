"""The cluster as Mesos operators see it: agents, frameworks with tasks and offers, roles.

Tasks that ended and frameworks that were removed are kept in memory, bounded in number and time, as by Mesos. The numbers of
ended tasks by state are counters since the scheduler started: they never fall. All else is pure functions over the state.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from fairlead.model.specs import OWN, Framework, Node, Offer, Quantities, Queue, Ranges
from fairlead.scheduler.facts import Fact, FrameworkGone, FrameworkSubscribed, NodeLost, TasksFinished, TasksPlaced
from fairlead.scheduler.framework_index import Launched, Member, RoleReservation, plus, queue_of
from fairlead.scheduler.frameworks.reservations import joined
from fairlead.scheduler.reports.fair_shares import listed_queues
from fairlead.scheduler.state import State
from fairlead.service.mesos.messages.mesos_pb2 import TASK_KILLED, TaskState
from fairlead.service.mesos.statuses import latest

MOST_FRAMEWORKS = 50
"""Removed frameworks that are kept; Mesos' default."""
MOST_TASKS = 1000
"""Ended tasks that are kept of a framework; Mesos' default."""
MOST_TASKS_OF_ALL = 10_000
KEPT_SECONDS = 86_400.0
"""How long an ended task or a removed framework is kept."""
Sees = Callable[[Member], bool]
Hidden = Callable[[str], bool]
"""True if a queue must not be shown."""


class TaskView(NamedTuple):
    """A task of a framework, and its state."""

    id: str
    name: str
    launched: Launched
    state: TaskState
    ports: Ranges


def task_view(state: State, task: str, launched: Launched, framework: Framework) -> TaskView:
    spec = state.index.specs.get(launched.job)
    name, ports = (spec.name, spec.ports) if spec else (task, [])
    return TaskView(task, name, launched, latest(state, launched, framework), ports)


class Completed:
    """What ended. For the scheduler's thread.

    ended : tasks that ended, by state
    """

    def __init__(self) -> None:
        self.ended: Counter[TaskState] = Counter()
        self._tasks: deque[tuple[float, str, TaskView]] = deque(maxlen=MOST_TASKS_OF_ALL)  # when; of which framework
        self._frameworks: deque[tuple[float, str, Member]] = deque(maxlen=MOST_FRAMEWORKS)
        self._seeded, self._members = False, dict[str, Member]()
        self._open: dict[int, tuple[str, str, Launched]] = {}  # by job: framework, name and record of a task

    def recorded(self, state: State, facts: Sequence[Fact]) -> None:
        if not self._seeded:  # with what was there when the scheduler started
            self._seeded, self._members = True, dict(state.frameworks.members)
            tasks = [launched for of in state.frameworks.tasks.values() for launched in of.values()]
            self._placed(state, [launched.job for launched in tasks if not launched.over])
        for fact in facts:
            if isinstance(fact, FrameworkSubscribed):
                if (member := state.frameworks.members.get(fact.id)) is not None:
                    self._members[fact.id] = member
            elif isinstance(fact, TasksPlaced) and state.frameworks.task_of:
                self._placed(state, fact.job.tolist())
            elif isinstance(fact, TasksFinished) and self._open:
                for job in fact.job.tolist():
                    self._end(state, job, fact.at)
            elif isinstance(fact, NodeLost):
                for job in [job for job, (_, _, launched) in self._open.items() if launched.over]:
                    self._end(state, job, fact.at)
            elif isinstance(fact, FrameworkGone):
                for job in [job for job, (who, _, _) in self._open.items() if who == fact.id]:
                    self._end(state, job, fact.at)
                if (gone := self._members.pop(fact.id, None)) is not None:
                    self._frameworks.append((fact.at, fact.id, gone))

    def _placed(self, state: State, jobs: list[int]) -> None:
        for job in jobs:
            who, task = state.frameworks.task_of.get(job, ("", ""))
            if who:
                self._open[job] = who, task, state.frameworks.tasks[who][task]

    def _end(self, state: State, job: int, at: float) -> None:
        """Note the end of a task; one of a framework that is removed was killed, as by Mesos."""
        who, task, launched = self._open.pop(job, ("", "", None))
        if launched is None:
            return
        over, member = launched.over, self._members[who]
        view = task_view(state, task, launched, member.framework)
        view = view._replace(launched=replace(launched, over=True), state=view.state if over else TASK_KILLED)
        self.ended[view.state] += 1
        self._tasks.append((at, who, view))

    def tasks(self, now: float) -> dict[str, list[TaskView]]:
        """Return the ended tasks by framework, the oldest first."""
        while self._tasks and self._tasks[0][0] < now - KEPT_SECONDS:
            self._tasks.popleft()
        found: dict[str, list[TaskView]] = {}
        for _, who, task in self._tasks:
            found.setdefault(who, []).append(task)
        return {who: tasks[-MOST_TASKS:] for who, tasks in found.items()}

    def frameworks(self, now: float) -> list[tuple[float, str, Member]]:
        """Return the removed frameworks, each after when it was and its id, the oldest first."""
        while self._frameworks and self._frameworks[0][0] < now - KEPT_SECONDS:
            self._frameworks.popleft()
        return list(self._frameworks)


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
        _framework(state, who, member, [], ended.get(who, []), hidden)._replace(gone_at=at)
        for at, who, member in completed.frameworks(now)
        if sees(member)
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
    listed, _ = listed_queues(state)
    there = zip(state.tree.names, listed.tolist(), strict=True)
    names = {name for name, is_there in there if is_there and name and OWN not in name.split("/")}
    names |= {name for name in state.tree.declared if name and not name.endswith("*")}
    names = {name for name in names if not hidden(name)} | set(frameworks)
    found = []
    for name in sorted(names):
        row = state.tree.rows.get(queue_of(name))
        used = state.quantities(state.queues.used[row]) if row is not None else {}
        found.append(RoleView(name, state.tree.spec_of(queue_of(name)), used, frameworks.get(name, [])))
    return found
