"""Executors: programs of frameworks that run tasks inside themselves. Their streams, and what is sent to and heard from them.

The engine starts an executor as a job. Its tasks are jobs that no engine starts: each is sent to the executor, which reports its
status. A report is recorded, then acknowledged, then passed to the framework like any update. An executor that reconnects after a
restart of the scheduler lists its tasks; missing ones are sent again.

`Executors` is used in the scheduler's thread, its streams and `ExecutorCalls` in the event loop.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from hmac import compare_digest

import numpy as np
from google.protobuf import json_format

from fairlead.engines.step import with_graces
from fairlead.model.specs import Job
from fairlead.outcomes import Outcome
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Attempts, Fact, JobCancelled, TasksExpired, TasksFinished, TasksPlaced, TasksRevoked
from fairlead.scheduler.framework_index import Executor
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, RUNNING, STOPPING
from fairlead.service.api.state_client import StateClient
from fairlead.service.mesos import events, tasks
from fairlead.service.mesos.authenticator import CallRefused
from fairlead.service.mesos.descriptions import info_of
from fairlead.service.mesos.messages import mesos_pb2
from fairlead.service.mesos.messages.executor_pb2 import Call, Event
from fairlead.service.mesos.resources import resources_of
from fairlead.service.mesos.streams import Stream, Streams
from fairlead.service.mesos.subscriptions import Subscriptions

ABSENT_SECONDS = 60.0
"""How long an executor may run without being subscribed."""
HEARTBEAT = Event(type=Event.HEARTBEAT)
ONGOING = {mesos_pb2.TASK_STARTING: "starting", mesos_pb2.TASK_RUNNING: "running", mesos_pb2.TASK_KILLING: "running"}
"""States of an unfinished task, in the scheduler's words."""
Make = Callable[[State, float], list[Fact]]
"""Makes facts to be recorded."""
ABSENT_CHECK_SECONDS = 5.0
"""Between two searches for executors that do not connect."""


class Executors(Streams[int]):
    """The streams of connected executors.

    on_ended : called with framework, agent, executor and wait status when an executor has ended
    happen : records facts as soon as possible; called in the event loop
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_ended: Callable[[str, str, str, int], None] = lambda who, agent, name, status: None
        self.happen: Callable[[Make], object] = lambda make: None
        self._told: dict[int, set[int]] = {}  # by executor, the tasks sent to it, if known
        self._absent: dict[int, float] = {}

    # -- coming and going ------------------------------------------------------------------------------------------

    def begin(self, state: State, number: int, call: Call.Subscribe, stream: Stream, now: float) -> list[Fact]:
        """Subscribe an executor to a stream, ending an older one; return the facts of what it reports."""
        self.end_with(self.streams.get(number))
        self.streams[number] = stream
        executor, facts = state.frameworks.executors[number], list[Fact]()
        known = {info.task_id.value for info in call.unacknowledged_tasks}
        self.tell(number, [_subscribed(state, executor)])
        told = self._told[number] = set()
        fresh = []
        for job in executor.tasks:
            row = state.jobs.first[state.job_row(job)]
            status, begun = state.tasks.status[row], state.tasks.started_at[row] == state.tasks.started_at[row]
            if begun or state.index.specs[job].task in known:
                told.add(job)
            if status == PLACED and job not in told:
                fresh.append(job)
            elif status >= STOPPING and not self._tell_to_end(state, job):
                facts += _never_told(job, state, now)
        self._launch(state, number, fresh)
        said = [fact for update in call.unacknowledged_updates for fact in self.say(state, number, update.status, now)]
        if _status(state, number) >= STOPPING:
            self.tell(number, [Event(type=Event.SHUTDOWN)])
        return facts + said

    def drop(self, stream: Stream, state: State, now: float) -> list[Fact]:
        """Forget a stream that has ended, which is no fact."""
        for number in [number for number, each in self.streams.items() if each is stream]:
            del self.streams[number]
        return []

    def end_absent(self, state: State, now: float) -> list[Fact]:
        """Return facts that stop executors which have run too long without being subscribed."""
        there = {n for n in state.frameworks.executors if n not in self.streams and _status(state, n) == RUNNING}
        at = time.monotonic()
        self._absent = {number: self._absent.get(number, at) for number in there}
        late = [number for number, since in self._absent.items() if at - since > ABSENT_SECONDS]
        return [fact for number in late for fact in frameworks.shut_down(state, number, now)]

    # -- events to them --------------------------------------------------------------------------------------------

    def recorded(self, state: State, facts: Iterable[Fact]) -> None:
        f = state.frameworks
        for fact in facts:
            if isinstance(fact, TasksFinished):
                self._ended(state, fact)
            if not f.executors:
                continue
            if isinstance(fact, TasksPlaced):
                self._placed(state, fact.job.tolist())
            elif isinstance(fact, JobCancelled):
                self._stopped(state, [fact.id])
            elif isinstance(fact, TasksRevoked | TasksExpired):
                self._stopped(state, fact.job.tolist())
                self._must_end(state, fact.attempts)

    def _placed(self, state: State, jobs: Iterable[int]) -> None:
        by_executor: dict[int, list[int]] = {}
        for job in jobs:
            if job in state.frameworks.executors:
                self._told[job] = set()
            elif job in state.frameworks.inside:
                by_executor.setdefault(state.frameworks.inside[job], []).append(job)
        for number, some in by_executor.items():
            if number in self.streams:
                self._launch(state, number, some)

    def _launch(self, state: State, number: int, jobs: Iterable[int]) -> None:
        grouped: dict[str, list[mesos_pb2.TaskInfo]] = {}
        for job in jobs:
            spec = state.index.specs[job]
            self._told[number].add(job)
            group = spec.work.env.get(tasks.GROUP, "")
            info = json_format.Parse(spec.info, mesos_pb2.TaskInfo(), ignore_unknown_fields=True)
            if not group:
                info.executor.CopyFrom(_executor_info(state.index.specs[number]))
            grouped.setdefault(group or f"/{job}", []).append(info)
        told = []
        for group, infos in grouped.items():
            if group.startswith("/"):
                told.append(Event(type=Event.LAUNCH, launch={"task": infos[0]}))
            else:
                told.append(Event(type=Event.LAUNCH_GROUP, launch_group={"task_group": {"tasks": infos}}))
        self.tell(number, told)

    def _stopped(self, state: State, jobs: Iterable[int]) -> None:
        for job in jobs:
            if job in state.frameworks.executors:
                self.tell(job, [Event(type=Event.SHUTDOWN)])
            elif job in state.frameworks.inside and not self._tell_to_end(state, job):
                self._soon(self.happen, partial(_never_told, job))

    def _tell_to_end(self, state: State, job: int) -> bool:
        """Ask an executor to end a task, now or when it reconnects; return False if it never got the task."""
        number = state.frameworks.inside[job]
        if number in self._told and job not in self._told[number]:
            return False
        spec = state.index.specs[job]
        policy = None if spec.grace is None else {"grace_period": {"nanoseconds": int(spec.grace * 1e9)}}
        self.tell(number, [Event(type=Event.KILL, kill={"task_id": {"value": spec.task}, "kill_policy": policy})])
        return True

    def _must_end(self, state: State, attempts: Attempts) -> None:
        """End the executors of preempted or expired tasks that do not end within their grace period."""
        for some, grace in with_graces(state, attempts):
            inside = [job for job in some.job.tolist() if job in state.frameworks.inside]
            if inside and self._loop is not None:
                self._soon(self._loop.call_later, grace, self.happen, partial(_end_executors_of, inside))

    def end_those_of_before(self, state: State, now: float) -> list[Fact]:
        """Do the same for tasks that were stopped before the scheduler started."""
        f = state.frameworks
        late = [job for job in f.inside if _status(state, job) > STOPPING]
        if late:
            rows = state.job_rows(np.array(late, np.int64))
            self._must_end(state, state.attempts_of(state.jobs.first[rows]))
        return []

    def _ended(self, state: State, fact: TasksFinished) -> None:
        for job, outcome, code in zip(fact.job.tolist(), fact.outcome.tolist(), fact.code.tolist(), strict=True):
            spec = state.index.specs.get(job)
            if spec is not None and spec.executor and not spec.task:
                self._told.pop(job, None)
                self.end_with(self.streams.pop(job, None))
                node = state.cluster.specs[state.tasks.node[state.jobs.first[state.job_row(job)]]].name
                ended_itself = outcome in (Outcome.EXITED, Outcome.STOPPED)
                self.on_ended(spec.framework, node, spec.executor, code << 8 if ended_itself else code)

    # -- reports from them -----------------------------------------------------------------------------------------

    def say(self, state: State, number: int, status: mesos_pb2.TaskStatus, now: float) -> list[Fact]:
        """Return the facts of a status report; none if the task is over or not the executor's. Raises Refused."""
        check_status(status)
        job = self._job_of(state, number, status.task_id.value)
        if job is None:
            return []
        end = None
        if status.state not in ONGOING:
            end = int(Outcome.EXITED), int(status.state != mesos_pb2.TASK_FINISHED)
            if status.state == mesos_pb2.TASK_KILLED:
                end = int(Outcome.SIGNALLED), 15
        said = mesos_pb2.TaskStatus()
        said.CopyFrom(status)
        said.ClearField("uuid")
        text = json_format.MessageToJson(said, preserving_proto_field_name=True, indent=None)
        return frameworks.report_status(state, job, ONGOING.get(status.state, "ending"), text, status.uuid.hex(), now, end)

    def _job_of(self, state: State, number: int, task: str) -> int | None:
        """Return the job of an executor's task; a command's executor has one task."""
        executor = state.frameworks.executors.get(number)
        if executor is None:
            return number
        launched = state.frameworks.tasks.get(executor.framework, {}).get(task)
        return launched.job if launched is not None and launched.job in executor.tasks else None


def check_status(status: mesos_pb2.TaskStatus) -> None:
    """Raise Refused for a status that an executor may not report."""
    if not status.uuid:
        raise Refused("Expecting 'uuid' to be present")
    if len(status.uuid) != 16:
        raise Refused("Not a valid UUID")
    if status.source != mesos_pb2.TaskStatus.SOURCE_EXECUTOR:
        raise Refused("The status source is not SOURCE_EXECUTOR")
    if status.state == mesos_pb2.TASK_STAGING:
        raise Refused("TASK_STAGING is not allowed")


def acknowledged(status: mesos_pb2.TaskStatus) -> Event:
    return Event(type=Event.ACKNOWLEDGED, acknowledged={"task_id": status.task_id, "uuid": status.uuid})


def _never_told(job: int, state: State, now: float) -> list[Fact]:
    """Return the facts that end a task which was stopped before its executor got it."""
    stopped = job in state.frameworks.inside and _status(state, job) >= STOPPING
    return frameworks.ended_within([job], Outcome.STOPPED, now) if stopped else []


def _end_executors_of(jobs: list[int], state: State, now: float) -> list[Fact]:
    """Stop the executors of tasks that should have ended and have not."""
    inside = state.frameworks.inside
    late = {inside[job] for job in jobs if job in inside and _status(state, job) >= STOPPING}
    return [fact for number in sorted(late) for fact in frameworks.shut_down(state, number, now)]


def _status(state: State, job: int) -> int:
    return int(state.tasks.status[state.jobs.first[state.job_row(job)]])


def _executor_info(spec: Job) -> mesos_pb2.ExecutorInfo:
    return json_format.Parse(spec.info, mesos_pb2.ExecutorInfo(), ignore_unknown_fields=True)


def _subscribed(state: State, executor: Executor) -> Event:
    member = state.frameworks.members[executor.framework].framework
    node = state.cluster.specs[state.cluster.rows[executor.node]]
    resources, attributes = resources_of(node.capacity), events.attributes_of(node.labels)
    agent = {"id": {"value": node.name}, "hostname": node.name, "resources": resources, "attributes": attributes}
    info, framework = _executor_info(state.index.specs[executor.job]), info_of(member, executor.framework)
    return Event(type=Event.SUBSCRIBED, subscribed={"executor_info": info, "framework_info": framework, "agent_info": agent})


class ExecutorCalls:
    """Handles the calls of all executors.

    subscriptions : of the frameworks, which get what their executors send
    """

    def __init__(self, client: StateClient, executors: Executors, subscriptions: Subscriptions) -> None:
        self._client, self._executors, self._subscriptions = client, executors, subscriptions

    async def subscribe(self, call: Call, token: str, stream: Stream) -> None:
        def question(state: State, now: float) -> tuple[list[Fact], None]:
            number = self._find(state, call, token)
            if number not in state.frameworks.executors or call.framework_id.value not in state.frameworks.members:
                raise CallRefused(403, "Only executors of a registered framework can subscribe")
            return self._executors.begin(state, number, call.subscribe, stream, now), None

        await self._client.ask(question, changes=True)
        stream.tell(acknowledged(update.status) for update in call.subscribe.unacknowledged_updates)

    async def leave(self, stream: Stream) -> None:
        stream.end()
        await self._client.record(partial(self._executors.drop, stream))

    async def take(self, call: Call, token: str) -> None:
        if call.type == Call.UPDATE:
            check_status(call.update.status)
        who, name = call.framework_id.value, call.executor_id.value

        def question(state: State, now: float) -> tuple[list[Fact], Stream | None]:
            number = self._find(state, call, token)
            stream, known = self._executors.streams.get(number), state.frameworks.executors.get(number)
            if known is not None and stream is None:
                raise CallRefused(403, "Executor is not subscribed")
            if call.type == Call.UPDATE:
                return self._executors.say(state, number, call.update.status, now), stream
            if call.type == Call.MESSAGE:
                agent = (known or state.frameworks.tasks[who][name]).node
                self._subscriptions.tell(who, [events.message(agent, name, call.message.data)])
            return [], None

        stream = await self._client.ask(question, changes=True)
        if stream is not None:
            stream.tell([acknowledged(call.update.status)])

    def _find(self, state: State, call: Call, token: str) -> int:
        """Return the job of the executor, or command, that makes a call. Raises CallRefused if there is none with this secret."""
        f, who, name = state.frameworks, call.framework_id.value, call.executor_id.value
        numbers = [number for number, each in f.executors.items() if (each.framework, each.name) == (who, name)]
        command = f.tasks.get(who, {}).get(name)
        if command is not None and not command.executor:
            numbers.append(command.job)
        for number in numbers:
            spec = state.index.specs.get(number)  # a forgotten command waits for the acknowledgement of its last update
            secret = "" if spec is None else spec.work.env.get(tasks.TOKEN, "")
            if secret and compare_digest(secret.encode(), token.encode()):
                return number
        if who not in f.members:
            raise CallRefused(400, "Framework cannot be found")
        if command is None and not numbers:
            raise CallRefused(400, "Executor cannot be found")
        why = "this executor's secret, MESOS_EXECUTOR_AUTHENTICATION_TOKEN, is needed: send 'Authorization: Bearer ...'"
        raise CallRefused(401, why)

    async def go_on(self) -> None:
        """End executors that do not connect, for ever; first those that a scheduler before was ending."""
        await self._client.record(self._executors.end_those_of_before)
        while True:
            await asyncio.sleep(ABSENT_CHECK_SECONDS)
            await self._client.record(self._executors.end_absent)
