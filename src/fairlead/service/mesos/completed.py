"""Tasks that ended and frameworks that were removed, for operators: kept in memory, bounded in number and time, as by Mesos.

The numbers of ended tasks by state are counters since the scheduler started: they never fall.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.model.specs import Framework, Ranges
from fairlead.scheduler.facts import Fact, FrameworkGone, FrameworkSubscribed, NodeLost, TasksFinished, TasksPlaced
from fairlead.scheduler.framework_index import Launched, Member
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


class EndedTask(NamedTuple):
    """A task that ended, its framework's id, and when."""

    framework: str
    task: TaskView
    at: float


class EndedFramework(NamedTuple):
    """A framework that was removed, and when."""

    id: str
    member: Member
    at: float


class Completed:
    """What ended. For the scheduler's thread.

    ended : tasks that ended, by state
    """

    def __init__(self) -> None:
        self.ended: Counter[TaskState] = Counter()
        self._tasks: deque[EndedTask] = deque()
        self._frameworks: deque[EndedFramework] = deque(maxlen=MOST_FRAMEWORKS)
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
                    self._frameworks.append(EndedFramework(fact.id, gone, fact.at))

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
        self._tasks.append(EndedTask(who, view, at))
        if len(self._tasks) > MOST_TASKS_OF_ALL:
            self._tasks.popleft()

    def tasks(self, now: float) -> dict[str, list[TaskView]]:
        """Return the ended tasks by framework, the oldest first."""
        while self._tasks and self._tasks[0].at < now - KEPT_SECONDS:
            self._tasks.popleft()
        found: dict[str, list[TaskView]] = {}
        for each in self._tasks:
            found.setdefault(each.framework, []).append(each.task)
        return {who: tasks[-MOST_TASKS:] for who, tasks in found.items()}

    def frameworks(self, now: float) -> list[EndedFramework]:
        """Return the removed frameworks, the oldest first."""
        while self._frameworks and self._frameworks[0].at < now - KEPT_SECONDS:
            self._frameworks.popleft()
        return list(self._frameworks)
