"""An ACCEPT: which tasks it launches, and what is told of those that it cannot."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from fairlead.model.specs import Job
from fairlead.people.accounts import Person
from fairlead.people.bounds import Load, check_load, output_limit
from fairlead.people.rules import Caller, Rules
from fairlead.scheduler import admission, frameworks
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact, JobSubmitted
from fairlead.scheduler.frameworks import InvalidOffers, InvalidTask
from fairlead.scheduler.state import State
from fairlead.service.mesos import events, statuses, tasks
from fairlead.service.mesos.messages.mesos_pb2 import Offer, TaskInfo, TaskStatus
from fairlead.service.mesos.messages.scheduler_pb2 import Call
from fairlead.service.mesos.sandboxes import Sandboxes
from fairlead.service.unfinished import Unfinished, load_of

Operation = Offer.Operation


class Task(NamedTuple):
    """A task that is asked for: its id, its agent, and the job that it is, or what is wrong with it and of which kind that is."""

    id: str
    agent: str
    job: Job | None
    wrong: str = ""
    reason: TaskStatus.Reason = TaskStatus.REASON_TASK_INVALID


def asked_for(accept: Call.Accept, who: str, person: Person, endpoint: str, sandboxes: Sandboxes) -> list[Task]:
    """The tasks of a call, each with a sandbox that is made; blocks for that."""
    found = []
    for operation in accept.operations:
        if operation.type == Operation.LAUNCH:
            found += [_asked(info, who, person, endpoint, sandboxes) for info in operation.launch.task_infos]
        elif operation.type == Operation.LAUNCH_GROUP:
            why, kind = (
                "task groups are not run here: launch the tasks one by one",
                TaskStatus.REASON_TASK_GROUP_INVALID,
            )
            group = operation.launch_group.task_group.tasks
            found += [Task(info.task_id.value, info.agent_id.value, None, why, kind) for info in group]
    return found


def _asked(info: TaskInfo, who: str, person: Person, endpoint: str, sandboxes: Sandboxes) -> Task:
    task, agent = info.task_id.value, info.agent_id.value
    sandbox = sandboxes.name()
    try:
        job = tasks.job_of(info, person, tasks.Home(who, agent, endpoint), sandbox)
    except tasks.InvalidTask as error:
        return Task(task, agent, None, str(error))
    sandboxes.make(sandbox, person)
    return Task(task, agent, job)


def settle_sandboxes(asked: Sequence[Task], launched: Mapping[str, int], sandboxes: Sandboxes) -> None:
    """Remove the sandboxes of tasks that were not launched; have what the others write seen in theirs."""
    for task in asked:
        if task.job is not None:
            path = Path(task.job.work.cwd)
            if task.job.work.cwd in launched:
                sandboxes.link_output(path, launched[task.job.work.cwd])
            else:
                sandboxes.drop(path)


class Place(NamedTuple):
    """Where tasks are to go: the leaf queue and the node of their offers."""

    leaf: str
    node: str


def place_of(state: State, offers: Sequence[int]) -> Place | None:
    """The place of the first of some offers; None where that does not hold any more."""
    ids = state.offers.id[: state.offers.n]
    row = int(np.searchsorted(ids, offers[0])) if offers else len(ids)
    if row == len(ids) or ids[row] != offers[0]:
        return None
    leaf, node = int(state.offers.leaf[row]), int(state.offers.node[row])
    return Place(state.tree.names[leaf], state.cluster.specs[node].name)


class Launcher(NamedTuple):
    """Launches tasks for a caller, in the scheduler's thread."""

    rules: Rules
    caller: Caller
    unfinished: Unfinished
    tell: Callable[[list[TaskStatus]], None]

    def launch(
        self, state: State, now: float, who: str, accept: Call.Accept, asked: Sequence[Task]
    ) -> tuple[list[Fact], dict[str, int]]:
        """The facts of an ACCEPT, and the sandboxes of what it launches, with the numbers of the jobs; what is wrong is told."""
        offers = [events.offer_number(each.value) for each in accept.offer_ids]
        seconds = accept.filters.refuse_seconds if accept.HasField("filters") else None
        wrong = [(task, task.wrong) for task in asked if task.job is None]
        place = place_of(state, offers)
        jobs = {
            task.id: self._as_theirs(state, task, place) for task in asked if task.job is not None and place is not None
        }
        wrong += self._elsewhere(jobs, asked, place)
        try:
            facts, refused = self._accepted(state, now, who, offers, jobs, seconds)
        except InvalidOffers as error:
            member = state.frameworks.members[who].framework
            self.tell([statuses.dropped(task.id, task.agent, str(error), member) for task in asked])
            return frameworks.decline(state, who, offers, 0.0, now), {}
        by_id = {task.id: task for task in asked}
        wrong += [(by_id[error.task], str(error)) for error in refused]
        self.tell([statuses.invalid(task.id, task.agent, why, task.reason) for task, why in wrong])
        launched = [fact for fact in facts if isinstance(fact, JobSubmitted)]
        for fact in launched:
            self.unfinished.begin(fact.id, fact.job, load_of(fact.job, self.unfinished.exports))
        return facts, {fact.job.work.cwd: fact.id for fact in launched}

    def _as_theirs(self, state: State, task: Task, place: Place) -> Job:
        """A task's job, bounded as every job is to be where others share the machine."""
        assert task.job is not None
        job = task.job if self.rules.personal else admission.with_usual(state, task.job)
        return replace(job, output_limit=output_limit(self.rules, place.leaf))

    @staticmethod
    def _elsewhere(jobs: dict[str, Job], asked: Sequence[Task], place: Place | None) -> list[tuple[Task, str]]:
        """Take out the tasks for other agents than that of the offers, and those whose name another of the call has."""
        wrong, seen = [], set()
        for task in asked:
            if task.job is None or place is None:
                continue
            if task.id in seen:
                wrong.append((task, f"Task has duplicate ID: {task.id}"))
            elif task.agent != place.node:
                wrong.append((task, f"Task uses invalid agent {task.agent} while agent {place.node} is expected"))
                jobs.pop(task.id, None)
            seen.add(task.id)
        return wrong

    def _accepted(
        self, state: State, now: float, who: str, offers: Sequence[int], jobs: dict[str, Job], seconds: float | None
    ) -> tuple[list[Fact], list[InvalidTask]]:
        """The facts of the tasks that can be launched, and what is wrong with the others. Raises InvalidOffers."""
        facts, refused = frameworks.accept(state, who, offers, list(jobs.values()), seconds, now)
        try:
            self._check_load([fact for fact in facts if isinstance(fact, JobSubmitted)])
        except Refused as error:
            facts, _ = frameworks.accept(state, who, offers, [], seconds, now)
            refused = [InvalidTask(task, str(error)) for task in jobs]
        return facts, refused

    def _check_load(self, facts: Sequence[JobSubmitted]) -> None:
        """Refuse more than somebody may have."""
        new: dict[str, Load] = {}
        for fact in facts:
            load = load_of(fact.job, self.unfinished.exports)
            new[fact.job.queue] = new.get(fact.job.queue, Load()).plus(load)
        uid = self.caller.person.uid
        check_load(self.rules, self.caller, lambda queue: self.unfinished.load(uid, queue), new)
