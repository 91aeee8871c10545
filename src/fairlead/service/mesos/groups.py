"""Task groups: launched together; when one task fails or is killed, the others are stopped.

A task's group is in its environment, and so in the journal. A restarted scheduler finds groups that broke while it was down.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from fairlead.model.specs import Job
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import CANCELLED, FAILED

VARIABLE = "MESOS_TASK_GROUP"
"""The environment variable with the name of a task's group."""
Group = tuple[str, str]
"""A framework, and the name of a group of its tasks."""


def member(job: Job, group: str, executor: str) -> Job:
    """Make a job a task of a group, with the group's executor."""
    more = {VARIABLE: group, "MESOS_EXECUTOR_ID": executor}
    return replace(job, work=replace(job.work, env={**job.work.env, **more}))


def group_of(state: State, job: int) -> Group | None:
    spec = state.index.specs.get(job)
    group = spec.work.env.get(VARIABLE, "") if spec is not None and spec.framework else ""
    return (spec.framework, group) if spec is not None and group else None


def broken_groups(state: State, jobs: Iterable[int]) -> set[Group]:
    """Return the groups in which one of these jobs has failed or was killed."""
    found = set()
    for job in jobs:
        group = group_of(state, job)
        if group is not None and state.tasks.status[state.jobs.first[state.index.find(job)]] in (FAILED, CANCELLED):
            found.add(group)
    return found


def end_with(state: State, who: str, task: str, now: float) -> list[Fact]:
    """Return facts that stop the rest of a task's group."""
    group = group_of(state, frameworks.tasks_of(state, who)[task].job)
    return [] if group is None else end_all(state, {group}, now, but=task)


def end_all(state: State, groups: set[Group], now: float, but: str = "") -> list[Fact]:
    """Return facts that stop all unfinished tasks of these groups."""
    facts: list[Fact] = []
    for who in {who for who, _ in groups} & state.frameworks.members.keys():
        for task, launched in frameworks.tasks_of(state, who).items():
            if task != but and not launched.over and group_of(state, launched.job) in groups:
                facts += frameworks.kill(state, who, task, now)
    return facts
