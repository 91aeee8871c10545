"""Mesos' operator APIs: JSON at the old endpoints, and the calls of version 1."""

import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import fairlead
from fairlead.model.specs import Quantities, Ranges
from fairlead.people.rules import check_operates, check_reaches, operates, reaches, seen_queue, sees_framework
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.framework_index import Member, plus, queue_of
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.frameworks.reservations import joined
from fairlead.scheduler.state import State
from fairlead.service.api.state_client import StateClient
from fairlead.service.mesos import cluster_view, events, shares
from fairlead.service.mesos.authenticator import FrameworkCaller
from fairlead.service.mesos.cluster_view import AgentView, ClusterView, Completed, FrameworkView, RoleView, TaskView
from fairlead.service.mesos.descriptions import info_of
from fairlead.service.mesos.encoding import as_json, missing_body
from fairlead.service.mesos.messages import mesos_pb2
from fairlead.service.mesos.messages.master_pb2 import Call, Response
from fairlead.service.mesos.messages.quota_pb2 import QuotaStatus
from fairlead.service.mesos.resources import THEIRS, ports_of, resources_of, resources_of_reservation, to_mesos

BUILT = f"fairlead {fairlead.__version__}"
ALWAYS = ("cpu", "memory", "disk", "gpu")
"""Reported even if zero."""
NANOSECONDS = 1_000_000_000
NO_PORTS: Ranges = []

GAUGES = (mesos_pb2.TASK_STAGING, mesos_pb2.TASK_STARTING, mesos_pb2.TASK_RUNNING)
"""States of which the metrics show how many tasks are in them."""
COUNTERS = (mesos_pb2.TASK_FINISHED, mesos_pb2.TASK_FAILED, mesos_pb2.TASK_KILLED, mesos_pb2.TASK_LOST, mesos_pb2.TASK_GONE)
"""States of which the metrics count the tasks that ended in them since the scheduler started."""
DEFAULT_TASKS = 100
"""Tasks in one answer, unless `limit` is given."""
Query = Mapping[str, str]
"""The query parameters of a request."""
View = Callable[[Any, Query], Any]
"""Makes the JSON of a GET endpoint from a :class:`ClusterView`."""
SetApart = Callable[[FrameworkCaller, str, mesos_pb2.Offer.Operation], Awaitable[None]]
"""Applies an operation on reservations on an agent, for a caller."""


class Operators:
    """Answers operators.

    views : GET endpoints by path
    leader : the URL of the leading master, without a scheme
    """

    def __init__(self, client: StateClient, master: mesos_pb2.MasterInfo, completed: Completed, set_apart: SetApart) -> None:
        self._client, self._master, self._since, self._set_apart = client, master, time.time(), set_apart
        self._completed, self.leader = completed, f"//{master.hostname}:{master.port}"
        self.views: Mapping[str, View] = {
            "/version": self._version, "/health": lambda found, query: None, "/state": self._state,
            "/state-summary": self._summary, "/flags": self._flags, "/slaves": self._slaves, "/tasks": self._tasks,
            "/frameworks": self._frameworks, "/roles": lambda found, query: {"roles": [_role(role) for role in found.roles]},
            "/weights": lambda found, query: _weights(found),
            "/quota": lambda found, query: {"infos": [], "configs": [], **as_json(_quota(found))},
            "/metrics/snapshot": lambda found, query: self._metrics(found),
        }  # fmt: skip

    async def look(self, view: View, who: FrameworkCaller | None, query: Query) -> Any:
        """Return what a view shows to a caller; without one it needs no state."""
        return view(await self._cluster_view(who) if who is not None else None, query)

    async def _cluster_view(self, who: FrameworkCaller) -> ClusterView:
        rules, caller = self._client.authenticator.rules, who.caller

        def sees(member: Member) -> bool:
            if not all(reaches(caller, queue_of(role)) for role in member.framework.roles):
                return False
            if member.framework.uid == caller.person.uid:
                return True
            return operates(rules, caller) and sees_framework(rules, caller, member.framework)

        def hidden(queue: str) -> bool:
            return not reaches(caller, queue) or seen_queue(rules, caller, queue) != queue

        return await self._client.ask(
            lambda state, now: ([], cluster_view.cluster_view(state, self._completed, sees, hidden, now))
        )

    # -- looking ---------------------------------------------------------------------------------------------------

    def _version(self, found: ClusterView | None, query: Query) -> dict[str, Any]:
        return {"version": events.VERSION, "build_user": BUILT, "build_time": 0.0, "build_date": ""}

    def _state(self, found: ClusterView, query: Query) -> dict[str, Any]:
        master, active = self._master, sum(agent.active for agent in found.agents)
        return {
            **self._version(found, {}), "start_time": self._since, "elected_time": self._since, "id": master.id,
            "pid": master.pid, "hostname": master.hostname, "leader": master.pid,
            "leader_info": {"id": master.id, "pid": master.pid, "port": master.port, "hostname": master.hostname},
            "capabilities": [], **self._flags(found, {}), "activated_slaves": active,
            "deactivated_slaves": len(found.agents) - active, "unreachable_slaves": 0, **self._slaves(found, {}),
            **self._frameworks(found, {}), "orphan_tasks": [],
        }  # fmt: skip

    def _flags(self, found: ClusterView, query: Query) -> dict[str, Any]:
        frameworks, tasks = str(cluster_view.MOST_FRAMEWORKS), str(cluster_view.MOST_TASKS)
        most = {"max_completed_frameworks": frameworks, "max_completed_tasks_per_framework": tasks}
        here = {"hostname": self._master.hostname, "port": str(self._master.port)}
        return {"flags": {**here, **most, "offer_timeout": f"{found.offer_timeout:g}secs"}}

    def _summary(self, found: ClusterView, query: Query) -> dict[str, Any]:
        """Return agents and frameworks with their numbers of tasks by state, without the tasks."""
        of_agents: dict[str, dict[str, list[TaskView]]] = {}
        for each in found.frameworks:
            for task in each.tasks:
                of_agents.setdefault(task.launched.node, {}).setdefault(each.id, []).append(task)
        slaves = [
            {**self._slave(agent), **_counts(chain(*tasks.values())), "framework_ids": list(tasks)}
            for agent in found.agents
            for tasks in [of_agents.get(agent.node.name, {})]
        ]
        lists = ("tasks", "unreachable_tasks", "completed_tasks", "executors", "offers")
        told = []
        for each in found.frameworks:
            summary = {name: value for name, value in self._framework(each).items() if name not in lists}
            agents = dict.fromkeys(task.launched.node for task in each.tasks if task.launched.node)
            told.append({**summary, **_counts(each.tasks), "slave_ids": list(agents)})
        return {"hostname": self._master.hostname, "slaves": slaves, "frameworks": told}

    def _slaves(self, found: ClusterView, query: Query) -> dict[str, Any]:
        asked = [self._slave(agent) for agent in found.agents if _is_asked(query, "slave_id", agent.node.name)]
        return {"slaves": asked, "recovered_slaves": []}

    def _slave(self, agent: AgentView) -> dict[str, Any]:
        node = agent.node
        return {
            "id": node.name, "hostname": node.name, "port": self._master.port,
            "pid": f"slave(1)@{self._master.hostname}:{self._master.port}", "attributes": dict(node.labels),
            "registered_time": self._since, "resources": amounts(agent.capacity, agent.ports.all),
            "used_resources": amounts(agent.used, agent.ports.used),
            "offered_resources": amounts(agent.offered, agent.ports.offered), "reserved_resources": _reserved(agent),
            "unreserved_resources": amounts(agent.unreserved, agent.ports.all), "active": agent.active,
            "version": events.VERSION, "capabilities": ["MULTI_ROLE", "HIERARCHICAL_ROLE"],
        }  # fmt: skip

    def _tasks(self, view: ClusterView, query: Query) -> dict[str, Any]:
        """Return tasks, latest first unless `order` is ``asc``, from `offset` on, at most `limit`."""
        found = [
            (each.id, task)
            for each in chain(view.frameworks, view.completed)
            for task in each.tasks
            if _is_asked(query, "framework_id", each.id) and _is_asked(query, "task_id", task.id)
        ]
        found.sort(key=lambda one: one[1].launched.at, reverse=query.get("order") != "asc")
        begin = _number(query, "offset", 0)
        end = begin + _number(query, "limit", DEFAULT_TASKS)
        return {"tasks": [self._task(each, task) for each, task in found[begin:end]]}

    def _task(self, who: str, task: TaskView) -> dict[str, Any]:
        launched, state = task.launched, mesos_pb2.TaskState.Name(task.state)
        return {
            "id": task.id, "name": task.name, "framework_id": who, "executor_id": launched.executor,
            "slave_id": launched.node, "state": state, "resources": amounts(launched.demand, task.ports),
            "role": launched.role, "statuses": [{"state": state, "timestamp": self._client.clock.wall(launched.at)}],
        }  # fmt: skip

    def _frameworks(self, found: ClusterView, query: Query) -> dict[str, Any]:
        here, gone = (
            [self._framework(each) for each in of if _is_asked(query, "framework_id", each.id)]
            for of in (found.frameworks, found.completed)
        )
        return {"frameworks": here, "completed_frameworks": gone, "unregistered_frameworks": []}

    def _framework(self, each: FrameworkView) -> dict[str, Any]:
        info, member = info_of(each.member.framework, each.id), each.member
        left_at = member.away_since if each.gone_at is None else each.gone_at
        used = amounts(each.used, joined(chain(*(task.ports for task in each.tasks if not task.launched.over))))
        return {
            "id": each.id, "name": info.name, "user": info.user, "principal": member.framework.principal,
            "hostname": info.hostname, "webui_url": info.webui_url, "checkpoint": info.checkpoint,
            "failover_timeout": info.failover_timeout,
            "capabilities": [mesos_pb2.FrameworkInfo.Capability.Type.Name(one.type) for one in info.capabilities],
            "roles": list(member.framework.roles), "role": member.framework.roles[0], "active": each.connected,
            "connected": each.connected, "recovered": False, "registered_time": self._client.clock.wall(member.since),
            "unregistered_time": 0.0 if left_at is None else self._client.clock.wall(left_at), "resources": used,
            "used_resources": used,
            "offered_resources": amounts(each.offered, joined(chain(*(offer.ports for offer in each.offers)))),
            "tasks": [self._task(each.id, task) for task in each.tasks if not task.launched.over], "unreachable_tasks": [],
            "completed_tasks": [self._task(each.id, task) for task in each.tasks if task.launched.over], "executors": [],
            "offers": [events.offer_name(offer.id) for offer in each.offers],
        }  # fmt: skip

    # -- the API of version 1 --------------------------------------------------------------------------------------

    async def call(self, who: FrameworkCaller, call: Call) -> Response | None:
        """Answer a call; None for an empty answer. Raises Refused."""
        if call.type == Call.TEARDOWN:
            await self._tear_down(who, call.teardown.framework_id.value)
            return None
        if call.type in (Call.UPDATE_WEIGHTS, Call.UPDATE_QUOTA):
            if body := missing_body(call):
                raise Refused(f"Failed to validate master::Call: Expecting '{body}' to be present")
            await self._update(who, call)
            return None
        name = Call.Type.Name(call.type)
        if name in ON_RESERVATIONS:
            query, (kind, things) = getattr(call, name.lower()), ON_RESERVATIONS[name]
            operation = mesos_pb2.Offer.Operation(type=kind.upper())
            getattr(getattr(operation, kind), things).extend(getattr(query, things))
            await self._set_apart(who, query.agent_id.value, operation)
            return None
        answers = self._answers()
        if name not in answers:
            raise Refused(f"{name} is not supported")
        found = None if name in _WITHOUT_STATE else await self._cluster_view(who)
        return Response(type=name, **{name.lower(): answers[name](found)})

    def _answers(self) -> Mapping[str, Callable[[Any], Any]]:
        """Return what makes the answer to each call that has one."""
        since, version = self._since, {"version": events.VERSION, "build_user": BUILT}
        of_state = ("get_agents", "get_frameworks", "get_tasks", "get_executors")
        answers: dict[str, Callable[[Any], Any]] = {
            "GET_HEALTH": lambda _: {"healthy": not self._client.loop.stalled},
            "GET_VERSION": lambda _: {"version_info": version},
            "GET_MASTER": lambda _: {"master_info": self._master, "start_time": since, "elected_time": since},
            "GET_FLAGS": lambda found: {"flags": _pairs(self._flags(found, {})["flags"])},
            "GET_METRICS": lambda found: {"metrics": _pairs(self._metrics(found))},
            "GET_STATE": lambda found: {name: answers[name.upper()](found) for name in of_state},
            "GET_AGENTS": lambda found: {"agents": [self._agent_message(agent) for agent in found.agents]},
            "GET_FRAMEWORKS": self._framework_messages,
            "GET_EXECUTORS": lambda found: {},
            "GET_TASKS": self._task_messages,
            "GET_ROLES": lambda found: {"roles": [_role_message(role) for role in found.roles]},
            "GET_WEIGHTS": lambda found: {"weight_infos": _weights(found)},
            "GET_QUOTA": lambda found: {"status": _quota(found)},
        }
        return answers

    def _time(self, at: float) -> dict[str, int]:
        return {"nanoseconds": int(self._client.clock.wall(at) * NANOSECONDS)}

    def _agent_message(self, agent: AgentView) -> dict[str, Any]:
        name, total = agent.node.name, resources_of(agent.unreserved)
        for mark, its in agent.told.items():
            total += resources_of_reservation(mark, its.said, its.amount, None, refined=True)
        amounts = (total, resources_of(agent.used), resources_of(agent.offered))
        whole, used, offered = (of + ports_of(ports, None, False) for of, ports in zip(amounts, agent.ports, strict=True))
        info = {"id": {"value": name}, "hostname": name, "port": self._master.port, "resources": resources_of(agent.capacity)}
        return {
            "active": agent.active, "version": events.VERSION, "total_resources": whole, "allocated_resources": used,
            "offered_resources": offered, "registered_time": {"nanoseconds": int(self._since * NANOSECONDS)},
            "agent_info": {**info, "attributes": events.attributes_of(agent.node.labels)},
        }  # fmt: skip

    def _framework_messages(self, found: ClusterView) -> dict[str, Any]:
        agents, told = {agent.row: agent for agent in found.agents}, []
        for each in chain(found.frameworks, found.completed):
            offers = [
                events.to_offer(offer, agent.node, each.member.framework, agent.role_reservations)
                for offer in each.offers
                for agent in [agents[offer.node]]
            ]
            made = {
                "framework_info": info_of(each.member.framework, each.id), "active": each.connected,
                "connected": each.connected, "recovered": False, "registered_time": self._time(each.member.since),
                "unregistered_time": None if each.gone_at is None else self._time(each.gone_at), "offers": offers,
                "allocated_resources": resources_of(each.used), "offered_resources": resources_of(each.offered),
            }  # fmt: skip
            told.append(made)
        here = len(found.frameworks)
        return {"frameworks": told[:here], "completed_frameworks": told[here:]}

    def _task_messages(self, found: ClusterView) -> dict[str, Any]:
        told: dict[str, list[Any]] = {"tasks": [], "completed_tasks": []}
        for each in chain(found.frameworks, found.completed):
            for task in each.tasks:
                launched, at = task.launched, self._client.clock.wall(task.launched.at)
                resources = resources_of(launched.demand, role=launched.role) + ports_of(task.ports, launched.role, False)
                made = {
                    "name": task.name, "state": task.state, "task_id": {"value": task.id}, "framework_id": {"value": each.id},
                    "agent_id": {"value": launched.node}, "resources": resources,
                    "statuses": [events.status(task.id, task.state, launched.node, at=at)],
                }  # fmt: skip
                told["completed_tasks" if launched.over else "tasks"].append(made)
        return told

    def _metrics(self, found: ClusterView) -> dict[str, float]:
        told = {"master/uptime_secs": time.time() - self._since, "master/elected": 1.0}
        told |= {"master/slaves_active": 0.0, "master/slaves_inactive": 0.0, "master/slaves_connected": 0.0}
        for agent in found.agents:
            told["master/slaves_active" if agent.active else "master/slaves_inactive"] += 1
            told["master/slaves_connected"] += 1
        now = Counter(task.state for each in found.frameworks for task in each.tasks if not task.launched.over)
        told |= {_metric(state): float(now[state]) for state in GAUGES}
        told |= {_metric(state): float(found.ended.get(state, 0)) for state in COUNTERS}
        connected = sum(each.member.away_since is None for each in found.frameworks)
        told["master/frameworks_active"] = told["master/frameworks_connected"] = float(connected)
        told["master/frameworks_disconnected"] = float(len(found.frameworks) - connected)
        told["master/outstanding_offers"] = float(sum(len(each.offers) for each in found.frameworks))
        for name in ALWAYS:
            theirs = THEIRS[name]
            total = to_mesos(theirs, sum(agent.capacity.get(name, 0) for agent in found.agents))
            used = to_mesos(theirs, sum(agent.used.get(name, 0) for agent in found.agents))
            told[f"master/{theirs}_total"], told[f"master/{theirs}_used"] = total, used
            told[f"master/{theirs}_percent"] = used / total if total else 0.0
        return told

    async def _update(self, who: FrameworkCaller, call: Call) -> None:
        check_operates(self._client.authenticator.rules, who.caller)

        def question(state: State, now: float) -> tuple[list[Fact], None]:
            if call.type == Call.UPDATE_WEIGHTS:
                fact = shares.with_weights(state, call.update_weights.weight_infos, now)
            else:
                fact = shares.with_quota(state, call.update_quota.quota_configs, call.update_quota.force, now)
            return ([fact] if fact else []), None

        await self._client.ask(question, changes=True, by=who.by)

    async def _tear_down(self, who: FrameworkCaller, identity: str) -> None:
        """Remove a framework: the caller's own, if their principal covers all its roles; an operator may remove any."""
        rules = self._client.authenticator.rules

        def question(state: State, now: float) -> tuple[list[Fact], None]:
            member = state.frameworks.members.get(identity)
            if member is None:
                raise Unknown("Framework cannot be found")
            if member.framework.uid != who.caller.person.uid:
                check_operates(rules, who.caller)
            for role in member.framework.roles:
                check_reaches(who.caller, queue_of(role))
            return frameworks.tear_down(state, identity, now), None

        await self._client.ask(question, changes=True, by=who.by)


ON_RESERVATIONS = {
    "RESERVE_RESOURCES": ("reserve", "resources"),
    "UNRESERVE_RESOURCES": ("unreserve", "resources"),
    "CREATE_VOLUMES": ("create", "volumes"),
    "DESTROY_VOLUMES": ("destroy", "volumes"),
}
"""The calls on reservations: the framework operation of each, and its field with the resources."""
_WITHOUT_STATE = ("GET_HEALTH", "GET_VERSION", "GET_MASTER")
"""Calls whose answer says nothing of the cluster."""


def _pairs(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in said.items()]


def _weights(found: ClusterView) -> list[dict[str, Any]]:
    return [{"role": role.name, "weight": weight(role)} for role in found.roles]


def _quota(found: ClusterView) -> QuotaStatus:
    """Return guarantees and limits, in the newer form and in the older one of guarantees alone."""
    told = QuotaStatus()
    for role in found.roles:
        queue = role.queue
        if queue.guarantee or queue.limit:
            guarantees, limits = ({n: {"value": v} for n, v in _theirs(said).items()} for said in (queue.guarantee, queue.limit))
            told.configs.add(role=role.name, guarantees=guarantees, limits=limits)
        if queue.guarantee:
            told.infos.add(role=role.name, guarantee=resources_of(queue.guarantee))
    return told


def _theirs(said: Quantities) -> dict[str, float]:
    """Convert amounts to Mesos' names and units."""
    return {theirs: to_mesos(theirs, amount) for name, amount in said.items() for theirs in [THEIRS.get(name, name)]}


def _is_asked(query: Query, name: str, identity: str) -> bool:
    """True if a request asks for this id, or for any."""
    return query.get(name, identity) == identity


def _number(query: Query, name: str, otherwise: int) -> int:
    """Return a numeric parameter; as in Mesos, an invalid one counts as missing."""
    said = query.get(name, "")
    return int(said) if re.fullmatch("[0-9]{1,18}", said) else otherwise


def amounts(said: Quantities, ports: Ranges = NO_PORTS) -> dict[str, float | str]:
    """Format amounts and ports as the old endpoints do."""
    told: dict[str, float | str] = {**_theirs({**dict.fromkeys(ALWAYS, 0), **said})}
    return told | ({"ports": f"[{', '.join(f'{first}-{last}' for first, last in ports)}]"} if ports else {})


def _reserved(agent: AgentView) -> dict[str, dict[str, float | str]]:
    by_role: dict[str, Quantities] = {}
    for reservation in agent.told.values():
        by_role[reservation.role] = plus(by_role.get(reservation.role, {}), reservation.amount)
    return {role: amounts(found) for role, found in by_role.items()}


def weight(role: RoleView) -> float:
    """Return a role's weight; the largest one if it has weights by resource."""
    said = role.queue.weight
    return float(max(said.values(), default=1.0)) if isinstance(said, dict) else float(said)


def _role_message(role: RoleView) -> dict[str, Any]:
    frameworks = [{"value": who} for who in role.frameworks]
    return {"name": role.name, "weight": weight(role), "resources": resources_of(role.used), "frameworks": frameworks}


def _role(role: RoleView) -> dict[str, Any]:
    used, limit = amounts(role.used), _theirs(role.queue.limit)
    told = {"name": role.name, "weight": weight(role), "frameworks": role.frameworks, "resources": used, "allocated": used}
    quota = {"role": role.name, "guarantee": amounts(role.queue.guarantee), "limit": limit, "consumed": used}
    return told | ({"quota": quota} if role.queue.guarantee or limit else {})


def _counts(tasks: Iterable[TaskView]) -> dict[str, int]:
    found = Counter(task.state for task in tasks)
    return {mesos_pb2.TaskState.Name(state): found[state] for state in (*GAUGES, *COUNTERS)}


def _metric(state: mesos_pb2.TaskState) -> str:
    return f"master/{mesos_pb2.TaskState.Name(state).lower().replace('task_', 'tasks_')}"
