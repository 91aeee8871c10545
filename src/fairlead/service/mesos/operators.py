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
from fairlead.service.mesos import events, shares
from fairlead.service.mesos.authenticator import FrameworkCaller
from fairlead.service.mesos.cluster_view import AgentView, ClusterView, FrameworkView, RoleView, cluster_view
from fairlead.service.mesos.completed import MOST_FRAMEWORKS, MOST_TASKS, Completed, TaskView
from fairlead.service.mesos.descriptions import info_of
from fairlead.service.mesos.encoding import as_json, missing_body
from fairlead.service.mesos.messages import mesos_pb2
from fairlead.service.mesos.messages.master_pb2 import Call, Response
from fairlead.service.mesos.reservations import resources_of_reservation
from fairlead.service.mesos.resources import THEIRS, ports_of, resources_of, to_mesos

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
Handler = Callable[[FrameworkCaller | None, Query], Awaitable[Any]]
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
        self.views: Mapping[str, Handler] = {
            "/version": self._version, "/health": self._health, "/state": self._state, "/state-summary": self._summary,
            "/flags": self._flags, "/slaves": self._slaves, "/tasks": self._tasks, "/frameworks": self._frameworks,
            "/roles": self._roles, "/weights": self._weights, "/quota": self._quota, "/metrics/snapshot": self._metrics,
        }  # fmt: skip

    async def _cluster_view(self, who: FrameworkCaller | None) -> ClusterView:
        assert who is not None, "endpoints without authentication need no state"
        rules, caller = self._client.authenticator.rules, who.caller

        def sees(member: Member) -> bool:
            if not all(reaches(caller, queue_of(role)) for role in member.framework.roles):
                return False
            if member.framework.uid == caller.person.uid:
                return True
            return operates(rules, caller) and sees_framework(rules, caller, member.framework)

        def hidden(queue: str) -> bool:
            return not reaches(caller, queue) or seen_queue(rules, caller, queue) != queue

        found: ClusterView = await self._client.ask(
            lambda state, now: ([], cluster_view(state, self._completed, sees, hidden, now))
        )
        return found

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _version(self, who: FrameworkCaller | None, query: Query) -> Any:
        return {"version": events.VERSION, "build_user": BUILT, "build_time": 0.0, "build_date": ""}

    async def _health(self, who: FrameworkCaller | None, query: Query) -> Any:
        return None

    async def _state(self, who: FrameworkCaller | None, query: Query) -> Any:
        found, master = await self._cluster_view(who), self._master
        active = sum(agent.active for agent in found.agents)
        return {
            **await self._version(who, query), "start_time": self._since, "elected_time": self._since, "id": master.id,
            "pid": master.pid, "hostname": master.hostname, "leader": master.pid,
            "leader_info": {"id": master.id, "pid": master.pid, "port": master.port, "hostname": master.hostname},
            "capabilities": [], **await self._flags(who, query), "activated_slaves": active,
            "deactivated_slaves": len(found.agents) - active, "unreachable_slaves": 0, **self._slaves_of(found),
            **self._frameworks_of(found), "orphan_tasks": [],
        }  # fmt: skip

    async def _flags(self, who: FrameworkCaller | None, query: Query) -> Any:
        timeout = await self._client.read(lambda state: state.settings.offer_timeout)
        most = {"max_completed_frameworks": str(MOST_FRAMEWORKS), "max_completed_tasks_per_framework": str(MOST_TASKS)}
        here = {"hostname": self._master.hostname, "port": str(self._master.port)}
        return {"flags": {**here, **most, "offer_timeout": f"{timeout:g}secs"}}

    async def _summary(self, who: FrameworkCaller | None, query: Query) -> Any:
        """Return agents and frameworks with their numbers of tasks by state, without the tasks."""
        found = await self._cluster_view(who)
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

    async def _slaves(self, who: FrameworkCaller | None, query: Query) -> Any:
        found = await self._cluster_view(who)
        return self._slaves_of(
            found._replace(agents=[each for each in found.agents if _is_asked(query, "slave_id", each.node.name)])
        )

    def _slaves_of(self, found: ClusterView) -> dict[str, Any]:
        return {"slaves": [self._slave(agent) for agent in found.agents], "recovered_slaves": []}

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

    async def _tasks(self, who: FrameworkCaller | None, query: Query) -> Any:
        """Return tasks, latest first unless `order` is ``asc``, from `offset` on, at most `limit`."""
        view = await self._cluster_view(who)
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
            "role": launched.role,
            "statuses": [{"state": mesos_pb2.TaskState.Name(task.state), "timestamp": self._client.clock.wall(launched.at)}],
        }  # fmt: skip

    async def _frameworks(self, who: FrameworkCaller | None, query: Query) -> Any:
        found = await self._cluster_view(who)
        return self._frameworks_of(
            found._replace(
                frameworks=[each for each in found.frameworks if _is_asked(query, "framework_id", each.id)],
                completed=[each for each in found.completed if _is_asked(query, "framework_id", each.id)],
            )
        )

    def _frameworks_of(self, found: ClusterView) -> dict[str, Any]:
        here, gone = ([self._framework(each) for each in of] for of in (found.frameworks, found.completed))
        return {"frameworks": here, "completed_frameworks": gone, "unregistered_frameworks": []}

    def _framework(self, each: FrameworkView) -> dict[str, Any]:
        info, member = info_of(each.member.framework, each.id), each.member
        connected = each.gone_at is None and member.away_since is None
        left_at = member.away_since if each.gone_at is None else each.gone_at
        used = amounts(each.used, joined(chain(*(task.ports for task in each.tasks if not task.launched.over))))
        return {
            "id": each.id, "name": info.name, "user": info.user, "principal": member.framework.principal,
            "hostname": info.hostname, "webui_url": info.webui_url, "checkpoint": info.checkpoint,
            "failover_timeout": info.failover_timeout,
            "capabilities": [mesos_pb2.FrameworkInfo.Capability.Type.Name(one.type) for one in info.capabilities],
            "roles": list(member.framework.roles), "role": member.framework.roles[0], "active": connected,
            "connected": connected, "recovered": False, "registered_time": self._client.clock.wall(member.since),
            "unregistered_time": 0.0 if left_at is None else self._client.clock.wall(left_at), "resources": used,
            "used_resources": used,
            "offered_resources": amounts(each.offered, joined(chain(*(offer.ports for offer in each.offers)))),
            "tasks": [self._task(each.id, task) for task in each.tasks if not task.launched.over], "unreachable_tasks": [],
            "completed_tasks": [self._task(each.id, task) for task in each.tasks if task.launched.over], "executors": [],
            "offers": [events.offer_name(offer.id) for offer in each.offers],
        }  # fmt: skip

    async def _roles(self, who: FrameworkCaller | None, query: Query) -> Any:
        return {"roles": [_role(role) for role in (await self._cluster_view(who)).roles]}

    async def _weights(self, who: FrameworkCaller | None, query: Query) -> Any:
        return [{"role": role.name, "weight": weight(role)} for role in (await self._cluster_view(who)).roles]

    async def _quota(self, who: FrameworkCaller | None, query: Query) -> Any:
        told = self._quota_status(await self._cluster_view(who))
        return {"infos": [as_json(info) for info in told.infos], "configs": [as_json(one) for one in told.configs]}

    @staticmethod
    def _quota_status(found: ClusterView) -> Any:
        told = Response().get_quota.status
        for role in found.roles:
            if role.queue.guarantee or role.queue.limit:
                config = told.configs.add(role=role.name)
                for kept, said in ((config.guarantees, role.queue.guarantee), (config.limits, role.queue.limit)):
                    for name, amount in said.items():
                        theirs = THEIRS.get(name, name)
                        kept[theirs].value = to_mesos(theirs, amount)
            if role.queue.guarantee:
                told.infos.add(role=role.name, guarantee=resources_of(role.queue.guarantee))
        return told

    async def _metrics(self, who: FrameworkCaller | None, query: Query) -> Any:
        return _metrics_of(await self._cluster_view(who), time.time() - self._since)

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
        if name not in _ANSWERED:
            raise Refused(f"{name} is not supported")
        told = Response(type=name)
        if call.type == Call.GET_HEALTH:
            told.get_health.healthy = not self._client.loop.stalled
        elif call.type == Call.GET_VERSION:
            told.get_version.version_info.version = events.VERSION
            told.get_version.version_info.build_user = BUILT
        elif call.type == Call.GET_MASTER:
            told.get_master.master_info.CopyFrom(self._master)
            told.get_master.start_time = told.get_master.elected_time = self._since
        elif call.type == Call.GET_FLAGS:
            for flag, value in (await self._flags(who, {}))["flags"].items():
                told.get_flags.flags.add(name=flag, value=value)
        else:
            self._fill(told, name.lower(), await self._cluster_view(who))
        return told

    def _fill(self, told: Any, name: str, found: ClusterView) -> None:
        """Fill the field of an answer that has this name."""
        field = getattr(told, name)
        field.SetInParent()
        match name:
            case "get_state":
                for each in ("get_agents", "get_frameworks", "get_tasks", "get_executors"):
                    self._fill(field, each, found)
            case "get_agents":
                self._fill_agents(field, found)
            case "get_frameworks":
                self._fill_frameworks(field, found)
            case "get_tasks":
                self._fill_tasks(field, found)
            case "get_roles":
                for role in found.roles:
                    made = field.roles.add(name=role.name, weight=weight(role), resources=resources_of(role.used))
                    made.frameworks.extend(mesos_pb2.FrameworkID(value=who) for who in role.frameworks)
            case "get_weights":
                for role in found.roles:
                    field.weight_infos.add(role=role.name, weight=weight(role))
            case "get_quota":
                field.status.CopyFrom(self._quota_status(found))
            case "get_metrics":
                for metric, value in _metrics_of(found, time.time() - self._since).items():
                    field.metrics.add(name=metric, value=value)

    def _fill_agents(self, told: Response.GetAgents, found: ClusterView) -> None:
        for agent in found.agents:
            made = told.agents.add(active=agent.active, version=events.VERSION)
            made.agent_info.id.value = made.agent_info.hostname = agent.node.name
            made.agent_info.port = self._master.port
            made.agent_info.resources.extend(resources_of(agent.capacity))
            made.agent_info.attributes.extend(events.attributes_of(agent.node.labels))
            made.registered_time.nanoseconds = int(self._since * NANOSECONDS)
            made.total_resources.extend(resources_of(agent.unreserved))
            for mark, its in agent.told.items():
                made.total_resources.extend(resources_of_reservation(mark, its.said, its.amount, None, refined=True))
            made.allocated_resources.extend(resources_of(agent.used))
            made.offered_resources.extend(resources_of(agent.offered))
            told_of = (made.total_resources, made.allocated_resources, made.offered_resources)
            for resources, ports in zip(told_of, agent.ports, strict=True):
                resources.extend([ports_of(ports, None, refined=False)] if ports else [])

    def _fill_frameworks(self, told: Response.GetFrameworks, found: ClusterView) -> None:
        agents = {agent.row: agent for agent in found.agents}
        for each in chain(found.frameworks, found.completed):
            connected = each.gone_at is None and each.member.away_since is None
            rows = told.frameworks if each.gone_at is None else told.completed_frameworks
            made = rows.add(active=connected, connected=connected, recovered=False)
            made.framework_info.CopyFrom(info_of(each.member.framework, each.id))
            made.registered_time.nanoseconds = int(self._client.clock.wall(each.member.since) * NANOSECONDS)
            if each.gone_at is not None:
                made.unregistered_time.nanoseconds = int(self._client.clock.wall(each.gone_at) * NANOSECONDS)
            known = events.knows(each.member.framework)
            for offer in each.offers:
                agent = agents[offer.node]
                said = {mark: reservation.said for mark, reservation in agent.role_reservations.items()}
                made.offers.append(events.to_offer(offer, agent.node, known, said))
            made.allocated_resources.extend(resources_of(each.used))
            made.offered_resources.extend(resources_of(each.offered))

    def _fill_tasks(self, told: Response.GetTasks, found: ClusterView) -> None:
        for each in chain(found.frameworks, found.completed):
            for task in each.tasks:
                rows = told.completed_tasks if task.launched.over else told.tasks
                made = rows.add(name=task.name, state=task.state)
                made.task_id.value, made.framework_id.value = task.id, each.id
                made.agent_id.value = task.launched.node
                made.resources.extend(resources_of(task.launched.demand, role=task.launched.role))
                made.resources.extend([ports_of(task.ports, task.launched.role, refined=False)] if task.ports else [])
                at = self._client.clock.wall(task.launched.at)
                made.statuses.append(events.status(task.id, task.state, agent=task.launched.node, at=at))

    async def _update(self, who: FrameworkCaller, call: Call) -> None:
        check_operates(self._client.authenticator.rules, who.caller)

        def question(state: State, now: float) -> tuple[list[Fact], None]:
            if call.type == Call.UPDATE_WEIGHTS:
                fact = shares.with_weights(state, call.update_weights.weight_infos, now)
            else:
                fact = shares.with_quota(state, call.update_quota.quota_configs, call.update_quota.force, now)
            return ([fact] if fact else []), None

        await self._client.ask(question, changes=True, by=who.name or who.caller.person.name)

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

        await self._client.ask(question, changes=True, by=who.name or who.caller.person.name)


ON_RESERVATIONS = {
    "RESERVE_RESOURCES": ("reserve", "resources"),
    "UNRESERVE_RESOURCES": ("unreserve", "resources"),
    "CREATE_VOLUMES": ("create", "volumes"),
    "DESTROY_VOLUMES": ("destroy", "volumes"),
}
"""The calls on reservations: the framework operation of each, and its field with the resources."""
_ANSWERED = {
    "GET_HEALTH", "GET_FLAGS", "GET_VERSION", "GET_METRICS", "GET_STATE", "GET_AGENTS", "GET_FRAMEWORKS", "GET_EXECUTORS",
    "GET_TASKS", "GET_ROLES", "GET_WEIGHTS", "GET_MASTER", "GET_QUOTA",
}  # fmt: skip
"""The supported calls with an answer."""


def _is_asked(query: Query, name: str, identity: str) -> bool:
    """True if a request asks for this id, or for any."""
    return query.get(name, identity) == identity


def _number(query: Query, name: str, otherwise: int) -> int:
    """Return a numeric parameter; as in Mesos, an invalid one counts as missing."""
    said = query.get(name, "")
    return int(said) if re.fullmatch("[0-9]{1,18}", said) else otherwise


def amounts(said: Quantities, ports: Ranges = NO_PORTS) -> dict[str, float | str]:
    """Format amounts and ports as the old endpoints do."""
    every = {**dict.fromkeys(ALWAYS, 0), **said}
    told: dict[str, float | str] = {}
    told |= {THEIRS.get(name, name): to_mesos(THEIRS.get(name, name), amount) for name, amount in every.items()}
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


def _role(role: RoleView) -> dict[str, Any]:
    used, limit = amounts(role.used), {THEIRS.get(n, n): to_mesos(THEIRS.get(n, n), a) for n, a in role.queue.limit.items()}
    told = {"name": role.name, "weight": weight(role), "frameworks": role.frameworks, "resources": used, "allocated": used}
    quota = {"role": role.name, "guarantee": amounts(role.queue.guarantee), "limit": limit, "consumed": used}
    return told | ({"quota": quota} if role.queue.guarantee or limit else {})


def _counts(tasks: Iterable[TaskView]) -> dict[str, int]:
    found = Counter(task.state for task in tasks)
    return {mesos_pb2.TaskState.Name(state): found[state] for state in (*GAUGES, *COUNTERS)}


def _metric(state: mesos_pb2.TaskState) -> str:
    return f"master/{mesos_pb2.TaskState.Name(state).lower().replace('task_', 'tasks_')}"


def _metrics_of(found: ClusterView, uptime: float) -> dict[str, float]:
    told = {"master/uptime_secs": uptime, "master/elected": 1.0}
    told |= {"master/slaves_active": 0.0, "master/slaves_inactive": 0.0, "master/slaves_connected": 0.0}
    for agent in found.agents:
        told["master/slaves_active" if agent.active else "master/slaves_inactive"] += 1
        told["master/slaves_connected"] += 1
    now = Counter(task.state for each in found.frameworks for task in each.tasks if not task.launched.over)
    for state in GAUGES:
        told[_metric(state)] = float(now[state])
    for state in COUNTERS:
        told[_metric(state)] = float(found.ended.get(state, 0))
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
