"""Updates of tasks that their frameworks have not acknowledged."""

from dataclasses import dataclass

from fairlead.scheduler.facts import Fact, UpdatesAcknowledged
from fairlead.scheduler.framework_index import Update
from fairlead.scheduler.frameworks.requests import tasks_of
from fairlead.scheduler.state import State


@dataclass(frozen=True)
class Unacknowledged:
    """A task's update that its framework has not acknowledged."""

    job: int
    task: str
    node: str
    update: Update


def acknowledge(state: State, who: str, task: str, update: int, now: float) -> list[Fact]:
    """Acknowledge an update of a task; ignored if unknown or acknowledged before."""
    launched = tasks_of(state, who).get(task)
    if launched is None or update not in [each.number for each in launched.updates]:
        return []
    return [UpdatesAcknowledged(at=now, jobs=[launched.job], updates=[update])]


def unacknowledged(state: State, who: str) -> list[Unacknowledged]:
    """Return a framework's unacknowledged updates, by task, oldest first."""
    return [
        Unacknowledged(launched.job, task, launched.node, update)
        for task, launched in tasks_of(state, who).items()
        for update in launched.updates
    ]
