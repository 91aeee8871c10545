"""The ACCEPT call: launches tasks, and reports those that cannot be launched."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.data_folder import remove_folder
from fairlead.model.specs import Job
from fairlead.people.accounts import Person
from fairlead.people.bounds import output_limit
from fairlead.people.rules import Caller, Rules
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact, JobSubmitted, ResourcesReserved
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.frameworks.requests import ExecutorEnds, InvalidMoves, InvalidOffers, InvalidTask
from fairlead.scheduler.frameworks.reservations import Moves
from fairlead.scheduler.state import State
from fairlead.service.mesos import events, groups, statuses, tasks
from fairlead.service.mesos.messages.mesos_pb2 import TASK_ERROR, ExecutorInfo, Offer, TaskInfo, TaskStatus
from fairlead.service.mesos.messages.scheduler_pb2 import Call
from fairlead.service.mesos.resources import DONE, is_volume, moves_of
from fairlead.service.mesos.sandboxes import Sandboxes
from fairlead.service.unfinished_jobs import UnfinishedJobs, totals, unfinished

Operation = Offer.Operation
LAUNCHES = (Operation.LAUNCH, Operation.LAUNCH_GROUP)
INVALID_GROUP = TaskStatus.REASON_TASK_GROUP_INVALID
MOST_TASKS = 10_000
"""Tasks per call."""


class Task(NamedTuple):
    """A requested task: its id, agent, and job; or what is wrong with it, and the kind of error.

    Tasks of a group are launched all or none. A task inside an executor has the executor's job. `number` is its operation's.
    """

    id: str
    agent: str
    job: Job | None
    wrong: str = ""
    reason: TaskStatus.Reason = TaskStatus.REASON_TASK_INVALID
    group: str = ""
    executor: Job | None = None
    number: int = 0


class JobMaker:
    """Makes jobs of the tasks of one call, with sandboxes for them and their executors."""

    def __init__(self, who: str, person: Person, endpoint: tuple[str, str], sandboxes: Sandboxes) -> None:
        self._who, self._person, self._endpoint, self._sandboxes = who, person, endpoint, sandboxes
        self._executors: dict[tuple[str, str], Job] = {}

    def command(self, info: TaskInfo) -> Task:
        sandbox, home = self._sandboxes.name(), self._home(info)
        try:
            job = tasks.job_of(info, self._person, home, sandbox)
            volumes = tasks.volumes_of(info.resources)
        except Refused as error:
            return _wrong(info, str(error))
        self._sandboxes.make(sandbox, self._person, home.agent, volumes)
        return Task(info.task_id.value, info.agent_id.value, job)

    def within(self, info: TaskInfo, executor: ExecutorInfo, group: str = "") -> Task:
        try:
            job = tasks.job_within(info, executor, self._person, self._home(info), group)
            return Task(info.task_id.value, info.agent_id.value, job, executor=self._executor(executor, self._home(info)))
        except Refused as error:
            return _wrong(info, str(error))

    def _executor(self, info: ExecutorInfo, home: tasks.Home) -> Job:
        sandbox = self._sandboxes.name()
        job = tasks.executor_job(info, self._person, home, sandbox)
        known = self._executors.setdefault((home.agent, job.executor), job)
        if known.info != job.info:
            raise Refused(f"executor {job.executor!r} has two different descriptions in one call")
        if known is job:
            self._sandboxes.make(sandbox, self._person, home.agent, tasks.volumes_of(info.resources))
        return known

    def _home(self, info: TaskInfo) -> tasks.Home:
        return tasks.Home(self._who, info.agent_id.value, *self._endpoint)


def _wrong(info: TaskInfo, why: str) -> Task:
    return Task(info.task_id.value, info.agent_id.value, None, why)


def infos_of(accept: Call.Accept) -> list[TaskInfo]:
    return [info for each in accept.operations for info in (*each.launch.task_infos, *each.launch_group.task_group.tasks)]


def requested_tasks(accept: Call.Accept, maker: JobMaker) -> list[Task]:
    """Return the tasks of a call; blocks, since it creates their sandboxes."""
    found = []
    for number, operation in enumerate(accept.operations):
        made = []
        if operation.type == Operation.LAUNCH:
            for info in operation.launch.task_infos:
                apart = info.HasField("executor") and not info.HasField("command")
                made.append(maker.within(info, info.executor) if apart else maker.command(info))
        elif operation.type == Operation.LAUNCH_GROUP:
            made = _group(operation.launch_group, maker)
        found += [task._replace(number=number) for task in made]
    return found


def _group(asked: Offer.Operation.LaunchGroup, maker: JobMaker) -> list[Task]:
    """Return the tasks of a group. The resources of the default executor are added to the first task."""
    name, infos, executor = uuid.uuid4().hex, list(asked.task_group.tasks), asked.executor
    if any(info.HasField("executor") for info in infos):
        return [_wrong(info, "'TaskInfo.executor' must not be set")._replace(reason=INVALID_GROUP) for info in infos]
    if executor.HasField("command"):
        found = [maker.within(info, executor, name) for info in infos]
    elif executor.type == executor.CUSTOM or executor.HasField("container"):
        found = [_wrong(info, "the default executor cannot have a container, and a custom one needs a command") for info in infos]
    else:
        for info in infos[:1]:
            info.resources.extend(executor.resources)
        found = [maker.command(info) for info in infos]
        found = [
            task if task.job is None else task._replace(job=groups.member(task.job, name, executor.executor_id.value))
            for task in found
        ]
    return [task._replace(reason=INVALID_GROUP, group=name) for task in found]


def touches_volumes(accept: Call.Accept) -> bool:
    uses = any(one.HasField("disk") for info in infos_of(accept) for one in (*info.resources, *info.executor.resources))
    return uses or any(each.type in (Operation.CREATE, Operation.DESTROY) for each in accept.operations)


def settle_sandboxes(asked: Sequence[Task], launched: Mapping[str, int], sandboxes: Sandboxes) -> None:
    """Remove the sandboxes of tasks that were not launched; link the output of the others into theirs."""
    jobs = (job for task in asked for job in (task.job, task.executor) if job is not None)
    for cwd in dict.fromkeys(job.work.cwd for job in jobs if job.work.cwd):
        if cwd in launched:
            sandboxes.link_output(Path(cwd), launched[cwd])
        else:
            remove_folder(Path(cwd))


class Target(NamedTuple):
    """Where tasks launch: the leaf queue, the node and the role of their offers."""

    leaf: str
    node: str
    role: str


def target_of(state: State, offers: Sequence[int]) -> Target | None:
    """Return where the first of these offers is; None if it is no longer valid."""
    row = frameworks.row_of_offer(state, offers[0]) if offers else None
    if row is None:
        return None
    leaf, node = int(state.offers.leaf[row]), int(state.offers.node[row])
    name = state.tree.names[leaf]
    return Target(name, state.cluster.specs[node].name, state.frameworks.at[name][1])


Tasks = dict[str, Task]
"""Tasks that may be launched, by id."""
Wrong = list[tuple[Task, str]]
"""Tasks that cannot be launched, each with the error."""


def _sorted_out(asked: Sequence[Task], target: Target | None) -> tuple[Tasks, Wrong]:
    """Split tasks into those that may be launched at a target, and invalid ones; capacity is checked later."""
    good: Tasks = {}
    wrong: Wrong = []
    for task in asked:
        if task.job is None:
            wrong.append((task, task.wrong))
        elif task.id in good:
            wrong.append((task, f"Task has duplicate ID: {task.id}"))
        elif target is not None and task.agent != target.node:
            wrong.append((task, f"Task uses invalid agent {task.agent} while agent {target.node} is expected"))
        else:
            good[task.id] = task
    return _without_broken_groups(good, wrong)


def _without_broken_groups(good: Tasks, wrong: Wrong) -> tuple[Tasks, Wrong]:
    """Move all tasks of a group that has an invalid one to the invalid tasks."""
    broken = {task.group for task, _ in wrong} - {""}
    there = {id(task) for task, _ in wrong}  # by identity: a valid task may have the same name
    others = {name: task for name, task in good.items() if id(task) not in there}
    found = [(task, "another task of its group cannot be launched") for task in others.values() if task.group in broken]
    return {name: task for name, task in others.items() if task.group not in broken}, wrong + found


class AcceptResult(NamedTuple):
    """The result of an ACCEPT.

    launched : job numbers by sandbox.
    operations : errors of operations on reservations by their number; None for success.
    node : where its offers are.
    destroyed : marks of destroyed volumes.
    """

    launched: dict[str, int]
    operations: Mapping[int, str | None]
    node: str = ""
    destroyed: Sequence[str] = ()


class Launcher(NamedTuple):
    """Launches tasks for a caller, in the scheduler's thread."""

    rules: Rules
    caller: Caller
    principal: str
    unfinished: UnfinishedJobs
    tell: Callable[[list[TaskStatus]], None]

    def launch(
        self, state: State, now: float, who: str, accept: Call.Accept, asked: Sequence[Task]
    ) -> tuple[list[Fact], AcceptResult]:
        """Return the facts of an ACCEPT and its result; report invalid tasks."""
        offers = [events.offer_number(each.value) for each in accept.offer_ids]
        seconds = accept.filters.refuse_seconds if accept.HasField("filters") else None
        target = target_of(state, offers)
        node = target.node if target is not None else ""
        good, wrong = _sorted_out(asked, target)
        moves, operations = self._moves(state, who, accept, target)

        def accepted(good: Tasks) -> tuple[list[Fact], list[InvalidTask | InvalidMoves]]:
            """Return the facts of launched tasks and applied operations, and the errors of the others. Raises InvalidOffers."""
            numbered: list[tuple[int, Job | Moves]] = [(each.number, each) for each in moves]
            executors = {}
            limit = output_limit(self.rules, target.leaf) if target is not None else None
            for task in good.values() if target is not None else ():
                assert task.job is not None
                job = task.job if self.rules.personal else admission.with_default_demand(state, task.job)
                numbered.append((task.number, replace(job, output_limit=limit)))
                if task.executor is not None:
                    executors[task.executor.executor] = replace(task.executor, output_limit=limit)
            wanted = [each for _, each in sorted(numbered, key=lambda one: one[0])]
            facts, refused = frameworks.accept(state, who, offers, wanted, seconds, now, executors)
            try:
                jobs = [fact.job for fact in facts if isinstance(fact, JobSubmitted)]
                self.unfinished.check(self.rules, self.caller, totals(unfinished(job, self.unfinished.exports) for job in jobs))
            except Refused as error:
                facts, refused = frameworks.accept(state, who, offers, moves, seconds, now)
                refused += [InvalidTask(task, str(error)) for task in good]
            return facts, refused

        try:
            facts, refused = accepted(good)
            if any(good[error.task].group for error in _tasks(refused)):  # dropping these leaves no less room for the others
                wrong += [(good[error.task], str(error)) for error in _tasks(refused)]
                good, wrong = _without_broken_groups(good, wrong)
                facts, refused = accepted(good)
        except InvalidOffers as error:
            member = state.frameworks.members[who].framework
            self.tell([statuses.dropped(task.id, task.agent, str(error), member) for task in asked])
            failed = {number: str(error) for number in operations}
            return frameworks.decline(state, who, offers, 0.0, now), AcceptResult({}, failed, node)
        ending = [error for error in _tasks(refused) if isinstance(error, ExecutorEnds)]
        wrong += [(good[error.task], str(error)) for error in _tasks(refused) if error not in ending]
        self.tell([events.status(task.id, TASK_ERROR, task.agent, task.reason, why) for task, why in wrong])
        member, reason = state.frameworks.members[who].framework, TaskStatus.REASON_EXECUTOR_TERMINATED
        self.tell([statuses.dropped(each.task, good[each.task].agent, str(each), member, reason) for each in ending])
        launched = [fact for fact in facts if isinstance(fact, JobSubmitted)]
        for fact in launched:
            self.unfinished.add(fact.id, [unfinished(fact.job, self.unfinished.exports)])
        operations |= {error.moves.number: str(error) for error in refused if isinstance(error, InvalidMoves)}
        gone = [fact.of for fact in facts if isinstance(fact, ResourcesReserved) and fact.of and is_volume(fact.of)]
        sandboxes = {fact.job.work.cwd: fact.id for fact in launched if fact.job.work.cwd}
        return facts, AcceptResult(sandboxes, operations, node, gone)

    def _moves(
        self, state: State, who: str, accept: Call.Accept, target: Target | None
    ) -> tuple[list[Moves], dict[int, str | None]]:
        """Return the valid operations on reservations, and by number the error of each, or None."""
        found, known = [], dict[int, str | None]()
        for number, operation in enumerate(accept.operations):
            if operation.type not in DONE:
                continue
            known[number] = None
            try:
                if state.frameworks.members[who].framework.revocable:
                    raise Refused("a framework that takes revocable resources cannot reserve any")
                found.append(moves_of(number, operation, target.role if target is not None else "", self.principal))
            except Refused as error:
                known[number] = str(error)
        return found, known


def _tasks(refused: Sequence[InvalidTask | InvalidMoves]) -> list[InvalidTask]:
    return [error for error in refused if isinstance(error, InvalidTask)]
