"""Groups of tasks: they are launched together, and when one ends as it should not, or is killed, the others are stopped.

Which group a task is of is in its environment, and so in the journal; when the scheduler was killed in between, that is seen when
it starts again.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from fairlead.model.specs import Job
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import CANCELLED, FAILED

VARIABLE = "MESOS_TASK_GROUP"
"""In the environment of a task of a group: the group's name."""
Group = tuple[str, str]
"""A framework, and the name of a group of its tasks."""


def member(job: Job, group: str, executor: str) -> Job:
    """A job as a task of a group, which has an executor in common."""
    more = {VARIABLE: group, "MESOS_EXECUTOR_ID": executor}
    return replace(job, work=replace(job.work, env={**job.work.env, **more}))


def group_of(state: State, job: int) -> Group | None:
    """The group of a job that is known, if it is of one."""
    spec = state.index.specs.get(job)
    group = spec.work.env.get(VARIABLE, "") if spec is not None and spec.framework else ""
    return (spec.framework, group) if spec is not None and group else None


def broken_groups(state: State, jobs: Iterable[int]) -> set[Group]:
    """The groups of which one of these jobs has ended as it should not."""
    found = set()
    for job in jobs:
        group = group_of(state, job)
        if group is not None and state.tasks.status[state.jobs.first[state.index.find(job)]] in (FAILED, CANCELLED):
            found.add(group)
    return found


def end_with(state: State, who: str, task: str, now: float) -> list[Fact]:
    """What stops the others of the group of a task."""
    group = group_of(state, frameworks.tasks_of(state, who)[task].job)
    return [] if group is None else end_all(state, {group}, now, but=task)


def end_all(state: State, groups: set[Group], now: float, but: str = "") -> list[Fact]:
    """What stops all that is left of these groups."""
    facts: list[Fact] = []
    for who in {who for who, _ in groups} & state.frameworks.members.keys():
        for task, launched in frameworks.tasks_of(state, who).items():
            if task != but and not launched.over and group_of(state, launched.job) in groups:
                facts += frameworks.kill(state, who, task, now)
    return facts
