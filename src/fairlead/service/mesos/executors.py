"""Executors: programs of frameworks that run tasks in themselves. Who of them is subscribed, and what each is told.

An executor is a job, which the engine starts; its tasks are jobs that no engine starts: each is told to the executor, which says
what becomes of it. What it says is recorded before it is told that it was heard, and then told to its framework, as what becomes
of any task. When it is back after the scheduler was killed, it says which tasks it knows of: the others are told it again.

All but the streams themselves is used in the scheduler's thread.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from hmac import compare_digest

import numpy as np
from google.protobuf import json_format

from fairlead.engines.step import with_graces
from fairlead.model.specs import Job
from fairlead.outcomes import Outcome
from fairlead.scheduler.facts import (
    Attempts,
    Fact,
    JobCancelled,
    TasksExpired,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
)
from fairlead.scheduler.framework_index import Executor
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, RUNNING, STOPPING
from fairlead.service.mesos import events, tasks
from fairlead.service.mesos.descriptions import info_of
from fairlead.service.mesos.messages.executor_pb2 import Call, Event
from fairlead.service.mesos.messages.mesos_pb2 import (
    TASK_FINISHED,
    TASK_KILLED,
    TASK_KILLING,
    TASK_RUNNING,
    TASK_STAGING,
    TASK_STARTING,
    AgentInfo,
    ExecutorInfo,
    TaskInfo,
    TaskStatus,
)
from fairlead.service.mesos.resources import resources_of
from fairlead.service.mesos.streams import Stream

AWAY = 60.0
"""Seconds that an executor may run without being subscribed."""
HEARTBEAT = Event(type=Event.HEARTBEAT)
ONGOING = {TASK_STARTING: "starting", TASK_RUNNING: "running", TASK_KILLING: "running"}
"""What an executor says of a task that is not over, as the scheduler's own words for it."""
Question = Callable[[State, float], tuple[list[Fact], None]]


class NotSaid(ValueError):
    """What an executor says cannot be; the message says why."""


class Executors:
    """The streams of the executors that are connected.

    Attributes
    ----------
    streams : dict of int to Stream
        By the number of the executor's job.
    on_ended : callable
        Told the agent, the executor and its wait status when one has ended, with its framework before them.
    happen : callable
        Has something happen as soon as it can be recorded; called in the event loop.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.streams: dict[int, Stream] = {}
        self.on_ended: Callable[[str, str, str, int], None] = lambda who, agent, name, status: None
        self.happen: Callable[[Question], object] = lambda question: None
        self._told: dict[int, set[int]] = {}  # of which tasks an executor was told, where that is known
        self._absent: dict[int, float] = {}

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say in which event loop the streams are."""
        self._loop = loop

    def end(self) -> None:
        """Nobody is told anything any more; from any thread."""
        for stream in list(self.streams.values()):
            self._soon(stream.end)

    def _soon(self, what: object, *arguments: object) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended, and all streams with it
                self._loop.call_soon_threadsafe(what, *arguments)  # type: ignore[arg-type]

    def tell(self, number: int, told: Sequence[Event]) -> bool:
        """Tell an executor something; whether it is there."""
        stream = self.streams.get(number)
        if stream is not None and told:
            self._soon(stream.tell, told)
        return stream is not None

    def find(self, state: State, framework: str, name: str, token: str) -> int | None:
        """The number of the job of an executor of that name, or of such a command, that has a secret; None where none has."""
        f = state.frameworks
        numbers = [n for n, each in f.executors.items() if (each.framework, each.name) == (framework, name)]
        command = f.tasks.get(framework, {}).get(name)
        if command is not None and not command.executor:
            numbers.append(command.job)
        for number in numbers:
            secret = state.index.specs[number].work.env.get(tasks.TOKEN, "")
            if secret and compare_digest(secret.encode(), token.encode()):
                return number
        return None

    # -- coming and going ------------------------------------------------------------------------------------------

    def begin(self, state: State, number: int, call: Call.Subscribe, stream: Stream, now: float) -> list[Fact]:
        """An executor is to be told things over this stream, and no more over an older one; the facts of what it says."""
        older = self.streams.get(number)
        self.streams[number] = stream
        if older is not None:
            self._soon(older.end)
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
                facts += _never_told(state, job, now)
        self._launch(state, number, fresh)
        said = [fact for update in call.unacknowledged_updates for fact in self.say(state, number, update.status, now)]
        if _status(state, number) >= STOPPING:
            self.tell(number, [Event(type=Event.SHUTDOWN)])
        return facts + said

    def drop(self, stream: Stream) -> None:
        """Nothing more can be told over a stream."""
        for number in [number for number, each in self.streams.items() if each is stream]:
            del self.streams[number]

    def end_absent(self, state: State, now: float) -> list[Fact]:
        """What stops executors that have run for a while without being subscribed."""
        there = {n for n in state.frameworks.executors if n not in self.streams and _status(state, n) == RUNNING}
        at = time.monotonic()
        self._absent = {number: self._absent.get(number, at) for number in there}
        late = [number for number, since in self._absent.items() if at - since > AWAY]
        return [fact for number in late for fact in frameworks.shut_down(state, number, now)]

    # -- what they are told ----------------------------------------------------------------------------------------

    def recorded(self, state: State, facts: Iterable[Fact]) -> None:
        """Tell what was recorded."""
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
        """Tell an executor of tasks; of those of a group together."""
        grouped: dict[str, list[TaskInfo]] = {}
        for job in jobs:
            spec = state.index.specs[job]
            self._told[number].add(job)
            group = spec.work.env.get(tasks.GROUP, "")
            info = _task_info(spec, state.index.specs[number])
            grouped.setdefault(group or f"/{job}", []).append(info)
        told = []
        for group, infos in grouped.items():
            if group.startswith("/"):
                told.append(Event(type=Event.LAUNCH, launch=Event.Launch(task=infos[0])))
            else:
                event = Event(type=Event.LAUNCH_GROUP)
                event.launch_group.task_group.tasks.extend(infos)
                told.append(event)
        self.tell(number, told)

    def _stopped(self, state: State, jobs: Iterable[int]) -> None:
        for job in jobs:
            if job in state.frameworks.executors:
                self.tell(job, [Event(type=Event.SHUTDOWN)])
            elif job in state.frameworks.inside and not self._tell_to_end(state, job):
                self._soon(self.happen, partial(_end_never_told, job))

    def _tell_to_end(self, state: State, job: int) -> bool:
        """Have an executor end a task, now or when it is back; whether it was ever told of that."""
        number = state.frameworks.inside[job]
        if number in self._told and job not in self._told[number]:
            return False
        spec = state.index.specs[job]
        event = Event(type=Event.KILL)
        event.kill.task_id.value = spec.task
        if spec.grace is not None:
            event.kill.kill_policy.grace_period.nanoseconds = int(spec.grace * 1e9)
        self.tell(number, [event])
        return True

    def _must_end(self, state: State, attempts: Attempts) -> None:
        """Have the executor ended of a task that is to make room, or is out of time, and does not end within its grace."""
        for some, grace in with_graces(state, attempts):
            inside = [job for job in some.job.tolist() if job in state.frameworks.inside]
            if inside and self._loop is not None:
                self._soon(self._loop.call_later, grace, self.happen, partial(_end_executors_of, inside))

    def end_those_of_before(self, state: State, now: float) -> tuple[list[Fact], None]:
        """The same of what was stopped before the scheduler began."""
        f = state.frameworks
        late = [job for job in f.inside if _status(state, job) > STOPPING]
        if late:
            rows = state.job_rows(np.array(late, np.int64))
            self._must_end(state, state.attempts_of(state.jobs.first[rows]))
        return [], None

    def _ended(self, state: State, fact: TasksFinished) -> None:
        for job, outcome, code in zip(fact.job.tolist(), fact.outcome.tolist(), fact.code.tolist(), strict=True):
            spec = state.index.specs.get(job)
            if spec is not None and spec.executor and not spec.task:
                self._told.pop(job, None)
                stream = self.streams.pop(job, None)
                if stream is not None:
                    self._soon(stream.end)
                node = state.cluster.specs[state.tasks.node[state.jobs.first[state.job_row(job)]]].name
                ended_itself = outcome in (Outcome.EXITED, Outcome.STOPPED)
                self.on_ended(spec.framework, node, spec.executor, code << 8 if ended_itself else code)

    # -- what they say ---------------------------------------------------------------------------------------------

    def say(self, state: State, number: int, status: TaskStatus, now: float) -> list[Fact]:
        """The facts of what an executor says of a task; none of one that is not its, or over. Raises NotSaid."""
        check_status(status)
        job = self._job_of(state, number, status.task_id.value)
        if job is None:
            return []
        end = None
        if status.state not in ONGOING:
            end = int(Outcome.EXITED), int(status.state != TASK_FINISHED)
            if status.state == TASK_KILLED:
                end = int(Outcome.SIGNALLED), 15
        said = TaskStatus()
        said.CopyFrom(status)
        said.ClearField("uuid")
        text = json_format.MessageToJson(said, preserving_proto_field_name=True, indent=None)
        return frameworks.say(state, job, ONGOING.get(status.state, "ending"), text, status.uuid.hex(), now, end)

    def _job_of(self, state: State, number: int, task: str) -> int | None:
        """The job of a task of an executor's; an executor of a command has one task."""
        executor = state.frameworks.executors.get(number)
        if executor is None:
            return number
        launched = state.frameworks.tasks.get(executor.framework, {}).get(task)
        return launched.job if launched is not None and launched.job in executor.tasks else None


def check_status(status: TaskStatus) -> None:
    """Raises NotSaid for what no executor may say."""
    if not status.uuid:
        raise NotSaid("Expecting 'uuid' to be present")
    if len(status.uuid) != 16:
        raise NotSaid("Not a valid UUID")
    if status.source != TaskStatus.SOURCE_EXECUTOR:
        raise NotSaid("The status source is not SOURCE_EXECUTOR")
    if status.state == TASK_STAGING:
        raise NotSaid("TASK_STAGING is not allowed")


def acknowledged(status: TaskStatus) -> Event:
    """That what an executor said is recorded."""
    event = Event(type=Event.ACKNOWLEDGED)
    event.acknowledged.task_id.CopyFrom(status.task_id)
    event.acknowledged.uuid = status.uuid
    return event


def _never_told(state: State, job: int, now: float) -> list[Fact]:
    """A task is over that was stopped before its executor was told of it."""
    stopped = job in state.frameworks.inside and _status(state, job) >= STOPPING
    return frameworks.ended_within(state, [job], Outcome.STOPPED, now) if stopped else []


def _end_never_told(job: int, state: State, now: float) -> tuple[list[Fact], None]:
    return _never_told(state, job, now), None


def _end_executors_of(jobs: list[int], state: State, now: float) -> tuple[list[Fact], None]:
    """Stop the executors of tasks that are to end, and have not."""
    inside = state.frameworks.inside
    late = {inside[job] for job in jobs if job in inside and _status(state, job) >= STOPPING}
    return [fact for number in sorted(late) for fact in frameworks.shut_down(state, number, now)], None


def _status(state: State, job: int) -> int:
    return int(state.tasks.status[state.jobs.first[state.job_row(job)]])


def _task_info(spec: Job, executor: Job) -> TaskInfo:
    """A task as its executor is told of it."""
    info = json_format.Parse(spec.info, TaskInfo(), ignore_unknown_fields=True)
    if not spec.work.env.get(tasks.GROUP):
        info.executor.CopyFrom(_executor_info(executor))
    return info


def _executor_info(spec: Job) -> ExecutorInfo:
    return json_format.Parse(spec.info, ExecutorInfo(), ignore_unknown_fields=True)


def _subscribed(state: State, executor: Executor) -> Event:
    """That an executor is, with what it is, for whom, and where."""
    event = Event(type=Event.SUBSCRIBED)
    event.subscribed.executor_info.CopyFrom(_executor_info(state.index.specs[executor.job]))
    member = state.frameworks.members[executor.framework].framework
    event.subscribed.framework_info.CopyFrom(info_of(member, executor.framework))
    node = state.cluster.specs[state.cluster.rows[executor.node]]
    event.subscribed.agent_info.CopyFrom(AgentInfo(hostname=node.name, resources=resources_of(node.capacity)))
    event.subscribed.agent_info.id.value = node.name
    event.subscribed.agent_info.attributes.extend(events.attributes_of(node.labels))
    return event
