"""Calls of frameworks, as questions to the scheduler's thread; checked and answered as Mesos does."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from fairlead.engines.step import Stalled
from fairlead.people.rules import check_operates, check_submits
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.framework_index import queue_of
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.state import State
from fairlead.service.api.state_client import StateClient
from fairlead.service.loop import Busy, HappensLater, Question
from fairlead.service.mesos import events, groups, launching, statuses
from fairlead.service.mesos.authenticator import CallRefused, FrameworkCaller
from fairlead.service.mesos.descriptions import check_id, info_of, roles_of, to_framework
from fairlead.service.mesos.encoding import missing_body
from fairlead.service.mesos.executors import Executors
from fairlead.service.mesos.messages import executor_pb2, mesos_pb2
from fairlead.service.mesos.messages.scheduler_pb2 import Call
from fairlead.service.mesos.resources import is_volume, moves_of
from fairlead.service.mesos.sandboxes import Sandboxes
from fairlead.service.mesos.streams import HEARTBEAT, Stream
from fairlead.service.mesos.subscriptions import Acknowledgements, Subscriptions
from fairlead.service.unfinished_jobs import UnfinishedJobs

log = logging.getLogger("fairlead")

RECONNECT_SECONDS = 60.0
"""The least time that frameworks have to reconnect after a restart of the scheduler before they are removed."""
QUEUE_SECONDS, QUEUE_PAUSE_SECONDS = 5.0, 0.05
"""How long a call waits for room among the questions to the scheduler, and between two attempts."""
RECONCILE_BATCH = 1000
"""Tasks reconciled before other calls are answered."""


class Calling(NamedTuple):
    """A call in the scheduler's thread: state, time, framework, caller and message."""

    state: State
    now: float
    who: str
    caller: FrameworkCaller
    call: Call


class Calls:
    """Handles the calls of all frameworks.

    master : describes the scheduler to frameworks
    certificate : the certificate that executors trust, as PEM; empty without TLS
    """

    def __init__(
        self,
        client: StateClient,
        subscriptions: Subscriptions,
        executors: Executors,
        unfinished: UnfinishedJobs,
        sandboxes: Sandboxes,
        master: mesos_pb2.MasterInfo,
        certificate: str = "",
    ) -> None:
        self._client, self._subscriptions, self._unfinished = client, subscriptions, unfinished
        self._sandboxes, self._master = sandboxes, master
        self._endpoint = f"{master.hostname}:{master.port}", certificate
        self._executors = executors
        executors.happen = lambda make: self._do(client.record(make))
        self._whose: dict[Stream, str] = {}
        self._volumes = asyncio.Lock()
        self._doing: set[asyncio.Task[None]] = set()
        subscriptions.on_broken = lambda broken: self._do(client.record(lambda state, now: groups.end_all(state, broken, now)))
        self._acknowledgements = Acknowledgements(client)

    @property
    def recovering(self) -> bool:
        """True if no call can be answered now."""
        return self._client.loop.stopped.is_set() or not self._client.loop.ready.done()

    # -- coming and going ------------------------------------------------------------------------------------------

    async def subscribe(self, who: FrameworkCaller, call: Call, stream: Stream) -> None:
        """Subscribe a framework to a stream; errors in its description are sent over the stream. Raises Refused."""
        info = call.subscribe.framework_info
        named = {each.value for each in (info.id, call.framework_id) if each.value}
        if len(named) > 1:
            raise Refused("'framework_id' differs from 'subscribe.framework_info.id'")
        if who.principal is not None and info.HasField("principal") and info.principal != who.name:
            raise Refused(_mismatch(who.name, info.principal))
        identity = check_id(named.pop()) if named else str(uuid.uuid4())
        await self._ask(
            who, lambda state, now: (self._subscribed(Calling(state, now, identity, who, call), stream), None), takes_on=True
        )

    def _subscribed(self, calling: Calling, stream: Stream) -> list[Fact]:
        who, caller, subscriptions = calling.who, calling.caller, self._subscriptions
        self._whose[stream] = who  # first: a client that goes after the next line is disconnected after this
        if stream.ended:
            self._whose.pop(stream, None)
            return []
        member = calling.state.frameworks.members.get(who)
        if member is not None and (member.framework.principal, member.framework.uid) != caller.identity:
            raise Refused(_mismatch(caller.by, member.framework.principal))
        try:
            facts = self._description(calling, calling.call.subscribe)
        except Refused as error:
            subscriptions.end_with(stream, [events.error_event(str(error))])
            return []
        subscriptions.begin(who, stream)
        subscriptions.tell(who, [events.subscribed(who, self._master), HEARTBEAT])
        subscriptions.welcome(calling.state, who)
        return facts

    def _description(self, calling: Calling, asked: Any, update: bool = False) -> list[Fact]:
        """Return the facts of a framework's description. Raises Refused, also for roles that its account may not use."""
        state, now, who, caller, _ = calling
        for role in roles_of(asked.framework_info):
            check_submits(self._client.authenticator.rules, caller.caller, queue_of(role), None)
        framework = to_framework(asked.framework_info, caller.caller.person, caller.name)
        return frameworks.subscribe(state, framework, who, list(asked.suppressed_roles), now, update)

    def leave(self, stream: Stream) -> None:
        """Handle the end of a stream: disconnect its framework, unless it has another."""
        stream.end()
        who = self._whose.pop(stream, None)
        if who is not None:
            self._do(self._client.record(partial(self._left, who, stream)))

    def _left(self, who: str, stream: Stream, state: State, now: float) -> list[Fact]:
        if not self._subscriptions.drop(who, stream) or who not in state.frameworks.members:
            return []
        return frameworks.disconnect(state, who, now)

    def end_groups_of_before(self, state: State, now: float) -> list[Fact]:
        """Stop the rest of groups in which a task failed while the scheduler was down."""
        return groups.end_all(state, groups.broken_groups(state, list(state.index.specs)), now)

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(what)
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)

    def disconnect_those_gone(self, state: State, now: float) -> list[Fact]:
        """Disconnect frameworks that have not come back since a restart: they get no offers until they do."""
        streams, members = self._subscriptions.streams, state.frameworks.members
        away = [who for who, member in members.items() if member.away_since is None and who not in streams]
        return [fact for who in away for fact in frameworks.disconnect(state, who, now, now + RECONNECT_SECONDS)]

    # -- calls -----------------------------------------------------------------------------------------------------

    async def take(self, caller: FrameworkCaller, call: Call, stream: str | None) -> None:
        if call.type not in (Call.REVIVE, Call.SUPPRESS) and (body := missing_body(call)):  # these two mean all roles without one
            raise Refused(f"Expecting '{body}' to be present")
        if call.type == Call.ACKNOWLEDGE and len(call.acknowledge.uuid) != 16:
            raise Refused("Not a valid UUID")
        if call.type == Call.ACCEPT:
            await self._accept(caller, call, stream)
        elif call.type == Call.RECONCILE:
            await self._reconcile(caller, call, stream)
        elif call.type == Call.ACKNOWLEDGE and self._is_current(caller, call, stream):
            self._acknowledgements.note(call)
        else:
            await self._ask(caller, partial(self._handled, caller, call, stream))

    def _handled(
        self, caller: FrameworkCaller, call: Call, stream: str | None, state: State, now: float
    ) -> tuple[list[Fact], None]:
        calling = self._calling(state, now, caller, call, stream)
        handle = self._handlers().get(call.type)
        if handle is None:
            raise CallRefused(501)
        return handle(calling), None

    async def _ask(self, caller: FrameworkCaller, question: Question, takes_on: bool = False) -> Any:
        """Ask the scheduler. If it is busy, wait for room, since clients treat a refusal as an error."""
        by, until = caller.by, time.monotonic() + QUEUE_SECONDS
        while True:
            try:
                return await self._client.ask(question, changes=True, by=by, takes_on=takes_on)
            except Busy:
                if time.monotonic() > until or self._client.loop.stopped.is_set():
                    raise
                await asyncio.sleep(QUEUE_PAUSE_SECONDS)

    def _is_current(self, caller: FrameworkCaller, call: Call, stream: str | None) -> bool:
        """True if a call comes from the client that reads its framework's stream."""
        current = self._subscriptions.streams.get(call.framework_id.value)
        return current is not None and (current.id, current.whose) == (stream, caller.identity)

    def _calling(self, state: State, now: float, caller: FrameworkCaller, call: Call, stream: str | None) -> Calling:
        """Return a call in the scheduler's thread. Raises CallRefused if any call of this caller is refused now."""
        who = call.framework_id.value
        member, current = state.frameworks.members.get(who), self._subscriptions.streams.get(who)
        if member is None:
            raise CallRefused(400, "Framework cannot be found")
        if (member.framework.principal, member.framework.uid) != caller.identity:
            raise CallRefused(400, _mismatch(caller.by, member.framework.principal))
        if current is None:
            raise CallRefused(403, "Framework is not subscribed")
        if stream is None:
            raise CallRefused(400, "All non-subscribe calls should include the 'Mesos-Stream-Id' header")
        if stream != current.id:
            raise CallRefused(
                400,
                f"The stream ID {stream[:100]!r} included in this request didn't match the stream ID currently associated "
                f"with framework ID {who}",
            )
        return Calling(state, now, who, caller, call)

    async def _reconcile(self, caller: FrameworkCaller, call: Call, stream: str | None) -> None:
        """Send the states of the named tasks, or of all unfinished ones, in batches."""
        who, asked = call.framework_id.value, [(each.task_id.value, each.agent_id.value) for each in call.reconcile.tasks]

        def unfinished(state: State, now: float) -> tuple[list[Fact], list[tuple[str, str]]]:
            self._calling(state, now, caller, call, stream)
            return [], [(task, known.node) for task, known in frameworks.tasks_of(state, who).items() if not known.over]

        def question(part: list[tuple[str, str]], state: State, now: float) -> tuple[list[Fact], None]:
            self._calling(state, now, caller, call, stream)
            self._tell(who, [statuses.reconciled(state, who, task, agent) for task, agent in part])
            return [], None

        asked = asked or await self._ask(caller, unfinished)
        for start in range(0, len(asked), RECONCILE_BATCH):
            await self._ask(caller, partial(question, asked[start : start + RECONCILE_BATCH]))

    async def _accept(self, caller: FrameworkCaller, call: Call, stream: str | None) -> None:
        """Launch tasks; their sandboxes are created before it is known whether they can be launched."""
        if len(launching.infos_of(call.accept)) > launching.MOST_TASKS:
            raise Refused(f"more than {launching.MOST_TASKS} tasks in one call")
        # So that no volume is created or used while it is removed.
        async with self._volumes if launching.touches_volumes(call.accept) else nullcontext():
            await self._accepted(caller, call, stream)

    async def _accepted(self, caller: FrameworkCaller, call: Call, stream: str | None) -> None:
        asked: list[launching.Task] = []
        who = call.framework_id.value
        if self._is_current(caller, call, stream):
            maker = launching.JobMaker(who, caller.caller.person, self._endpoint, self._sandboxes)
            asked = await asyncio.to_thread(launching.requested_tasks, call.accept, maker)

        def question(state: State, now: float) -> tuple[list[Fact], launching.AcceptResult]:
            self._calling(state, now, caller, call, stream)
            rules, tell = self._client.authenticator.rules, partial(self._tell, who)
            launcher = launching.Launcher(rules, caller.caller, caller.name, self._unfinished, tell)
            return launcher.launch(state, now, who, call.accept, asked)

        try:
            result: launching.AcceptResult = await self._ask(caller, question, takes_on=True)
        except (HappensLater, TimeoutError):  # they may still be launched; if not, the sandboxes are swept later
            raise
        except (Stalled, Busy, Refused):
            await asyncio.to_thread(launching.settle_sandboxes, asked, {}, self._sandboxes)
            raise
        await asyncio.to_thread(launching.settle_sandboxes, asked, result.launched, self._sandboxes)
        for mark in result.destroyed:
            await asyncio.to_thread(self._sandboxes.drop_volume, self._sandboxes.volume(result.node, mark))
        self._tell_operations(call, result.operations, result.node)

    async def set_apart(self, who: FrameworkCaller, node: str, operation: mesos_pb2.Offer.Operation) -> None:
        """Apply an operation on reservations or volumes for an operator. Raises Refused."""
        check_operates(self._client.authenticator.rules, who.caller)
        moves = moves_of(0, operation, None, who.name).moves
        async with self._volumes:
            await self._ask(who, lambda state, now: (frameworks.reserve(state, node, moves, now), None))
            for move in moves:
                if move.of and is_volume(move.of):
                    await asyncio.to_thread(self._sandboxes.drop_volume, self._sandboxes.volume(node, move.of))

    def _tell_operations(self, call: Call, known: Mapping[int, str | None], node: str) -> None:
        """Report the results of operations with an id; as in Mesos, others get no report."""
        told = []
        for number, operation in enumerate(call.accept.operations):
            if operation.type in launching.LAUNCHES:
                continue
            wrong = known.get(number, f"{_name_of(operation)} is not supported")
            if wrong is not None:
                log.info("framework %s: %s: %s", call.framework_id.value, _name_of(operation), wrong)
            if operation.HasField("id"):
                state = mesos_pb2.OPERATION_FINISHED if wrong is None else mesos_pb2.OPERATION_ERROR
                told.append(events.operation_status(operation.id.value, state, wrong or "", node))
        self._subscriptions.tell(call.framework_id.value, told)

    def _reconcile_operations(self, calling: Calling) -> list[Fact]:
        """Report operations as unknown: the result of each was sent when it was done, and then forgotten."""
        why = "Reconciliation: Operation is unknown"
        told = [
            events.operation_status(each.operation_id.value, mesos_pb2.OPERATION_UNKNOWN, why, each.agent_id.value)
            for each in calling.call.reconcile_operations.operations
        ]
        self._subscriptions.tell(calling.who, told)
        return []

    def _tell(self, who: str, told: list[mesos_pb2.TaskStatus]) -> None:
        self._subscriptions.tell(who, [events.update(status) for status in told])

    def _handlers(self) -> Mapping[int, Callable[[Calling], list[Fact]]]:
        return {
            Call.TEARDOWN: lambda c: frameworks.tear_down(c.state, c.who, c.now),
            Call.DECLINE: _decline,
            Call.REVIVE: lambda c: _of_roles(c, c.call.revive.roles, frameworks.revive),
            Call.SUPPRESS: lambda c: _of_roles(c, c.call.suppress.roles, frameworks.suppress),
            Call.KILL: self._kill,
            Call.SHUTDOWN: self._shutdown,
            Call.MESSAGE: self._message,
            **dict.fromkeys((Call.ACKNOWLEDGE, Call.REQUEST, Call.ACKNOWLEDGE_OPERATION_STATUS), _nothing),
            **dict.fromkeys((Call.ACCEPT_INVERSE_OFFERS, Call.DECLINE_INVERSE_OFFERS), _nothing),
            Call.RECONCILE_OPERATIONS: self._reconcile_operations,
            Call.UPDATE_FRAMEWORK: self._update_framework,
        }

    def _kill(self, calling: Calling) -> list[Fact]:
        """Stop a task; for an unknown one, send what its reconciliation would."""
        kill = calling.call.kill
        try:
            facts = frameworks.kill(calling.state, calling.who, kill.task_id.value, calling.now)
            return facts + groups.end_with(calling.state, calling.who, kill.task_id.value, calling.now)
        except Unknown:
            told = statuses.reconciled(calling.state, calling.who, kill.task_id.value, kill.agent_id.value)
            self._tell(calling.who, [told])
            return []

    def _shutdown(self, calling: Calling) -> list[Fact]:
        """Stop an executor: that of a command is named after its task."""
        task, agent = calling.call.shutdown.executor_id.value, calling.call.shutdown.agent_id.value
        known = frameworks.tasks_of(calling.state, calling.who)
        number = calling.state.frameworks.executor_on(calling.who, task, agent)
        if number is not None:
            return frameworks.shut_down(calling.state, number, calling.now, by_framework=True)
        return frameworks.kill(calling.state, calling.who, task, calling.now) if task in known else []

    def _message(self, calling: Calling) -> list[Fact]:
        asked, f = calling.call.message, calling.state.frameworks
        number = f.executor_on(calling.who, asked.executor_id.value, asked.agent_id.value)
        if number is not None:
            self._executors.tell(number, [executor_pb2.Event(type=executor_pb2.Event.MESSAGE, message={"data": asked.data})])
        return []

    def _update_framework(self, calling: Calling) -> list[Fact]:
        asked = calling.call.update_framework
        if asked.framework_info.id.value not in ("", calling.who):
            raise Refused("'framework_id' differs from 'update_framework.framework_info.id'")
        info, framework = asked.framework_info, calling.state.frameworks.members[calling.who].framework
        principal = info_of(framework, calling.who).principal
        if info.HasField("principal") and info.principal != principal:
            raise Refused("FrameworkInfo update is not valid: Changing framework's principal is not allowed.")
        if principal:
            info.principal = principal
        return self._description(calling, asked, update=True)


def _decline(calling: Calling) -> list[Fact]:
    decline = calling.call.decline
    offers = [events.offer_number(each.value) for each in decline.offer_ids]
    seconds = decline.filters.refuse_seconds if decline.HasField("filters") else None
    return frameworks.decline(calling.state, calling.who, offers, seconds, calling.now)


def _of_roles(calling: Calling, roles: Iterable[str], change: Callable[[State, str, list[str], float], list[Fact]]) -> list[Fact]:
    """Change the offers of some roles; if the framework lacks one, the call is accepted and ignored, as by Mesos."""
    for role in roles:
        if role not in calling.state.frameworks.members[calling.who].framework.roles:
            log.info("framework %s: it has no role %r: call ignored", calling.who, role[:100])
            return []
    return change(calling.state, calling.who, list(roles), calling.now)


def _nothing(calling: Calling) -> list[Fact]:
    return []


def _name_of(operation: mesos_pb2.Offer.Operation) -> str:
    return mesos_pb2.Offer.Operation.Type.Name(operation.type)


def _mismatch(who: str, principal: str) -> str:
    return f"Authenticated principal '{who}' does not match principal '{principal}' set in `FrameworkInfo`"
