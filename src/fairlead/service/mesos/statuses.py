"""Task statuses for frameworks, in updates and for reconciliation. Pure functions over the state.

Lost tasks, with their node or engine, never come back, so partition-aware frameworks get TASK_GONE.
"""

import signal
from collections.abc import Callable

from google.protobuf import json_format

from fairlead.model.specs import Framework
from fairlead.outcomes import Outcome
from fairlead.scheduler.framework_index import Launched, Update
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED
from fairlead.service.mesos import events
from fairlead.service.mesos.messages import mesos_pb2
from fairlead.service.mesos.messages.mesos_pb2 import TaskState, TaskStatus

STATES: dict[str, TaskState] = {
    "starting": mesos_pb2.TASK_STARTING, "running": mesos_pb2.TASK_RUNNING, "finished": mesos_pb2.TASK_FINISHED,
    "failed": mesos_pb2.TASK_FAILED, "killed": mesos_pb2.TASK_KILLED, "lost": mesos_pb2.TASK_LOST, "revoked": mesos_pb2.TASK_LOST,
}  # fmt: skip
"""Mesos' states of updates; partition-aware frameworks get TASK_GONE for TASK_LOST."""
LOSSES = {
    "lost": (TaskStatus.REASON_AGENT_REMOVED, "its agent was lost"),
    "revoked": (TaskStatus.REASON_CONTAINER_PREEMPTED, "it was preempted, to make room for others"),
}
"""Why a task is lost: reason and message."""
FAILURES = {
    Outcome.OUT_OF_MEMORY: (TaskStatus.REASON_CONTAINER_LIMITATION_MEMORY, "Memory limit exceeded"),
    Outcome.TIME_LIMIT: (TaskStatus.REASON_MAX_COMPLETION_TIME_REACHED, "Maximum completion time reached"),
    Outcome.NOT_STARTED: (TaskStatus.REASON_CONTAINER_LAUNCH_FAILED, "Command could not be executed: see its output"),
}
"""Why a command failed, unless by its exit status or a signal."""
Wall = Callable[[float], float]


def of_update(launched: Launched, task: str, update: Update, framework: Framework, wall: Wall) -> TaskStatus:
    """Convert an update to a status, with the uuid by which it is acknowledged."""
    if update.said and update.what not in LOSSES:
        told = json_format.Parse(update.said, TaskStatus(), ignore_unknown_fields=True)
        told.task_id.value, told.agent_id.value, told.executor_id.value = task, launched.node, launched.executor or task
        told.uuid = events.UUID.pack(launched.job, update.number)
        return told
    told = events.status(task, state_of(update.what, framework), launched.node, *_why(update, launched), wall(update.at))
    told.uuid, told.source = events.UUID.pack(launched.job, update.number), TaskStatus.SOURCE_AGENT
    if update.what not in LOSSES and not launched.executor:  # the executor of a command is named after its task
        told.source, told.executor_id.value = TaskStatus.SOURCE_EXECUTOR, task
    return told


def state_of(what: str, framework: Framework) -> TaskState:
    state = STATES[what]
    return mesos_pb2.TASK_GONE if state == mesos_pb2.TASK_LOST and framework.partition_aware else state


def _why(update: Update, launched: Launched) -> "tuple[TaskStatus.Reason | None, str]":
    """Return the reason and the message of an update; only failures and losses have a reason."""
    if update.what in ("starting", "running"):
        return None, ""
    if update.what in LOSSES:
        return LOSSES[update.what]
    failed, outcome, code = update.what == "failed", Outcome(update.outcome), update.code
    if launched.executor:
        ended = TaskStatus.REASON_EXECUTOR_TERMINATED, "Executor terminated"
        return ended if failed else (None, "It was not sent to its executor yet")
    said = f"Command exited with status {code}"
    if outcome is Outcome.SIGNALLED:
        said = f"Command terminated with signal {signal.strsignal(code) or code}"
    reason, said = FAILURES.get(outcome, (TaskStatus.REASON_COMMAND_EXECUTOR_FAILED, said))
    return reason if failed else None, said


def latest(state: State, launched: Launched, framework: Framework) -> TaskState:
    if launched.updates and launched.over:
        return of_update(launched, "", launched.updates[-1], framework, float).state
    row = state.index.find(launched.job)
    starts = row >= 0 and state.tasks.status[state.jobs.first[row]] == PLACED
    return (mesos_pb2.TASK_STAGING if launched.executor else mesos_pb2.TASK_STARTING) if starts else mesos_pb2.TASK_RUNNING


def reconciled(state: State, who: str, task: str, agent: str) -> TaskStatus:
    """Return the status for the reconciliation of a task; `agent` is where the framework believes it to be, or empty.

    Agents are registered or unknown here: a lost agent is unknown, and its tasks are over.
    """
    framework = state.frameworks.members[who].framework
    launched = state.frameworks.tasks.get(who, {}).get(task)
    if launched is not None:
        found, message, agent = latest(state, launched, framework), "Reconciliation: Latest task state", launched.node
    else:
        row = state.cluster.rows.get(agent)
        there = row is not None and bool(state.nodes.up[row])
        found = mesos_pb2.TASK_GONE if there else mesos_pb2.TASK_UNKNOWN
        found = found if framework.partition_aware else mesos_pb2.TASK_LOST
        message = f"Reconciliation: Task is unknown{' to the agent' if there else ''}"
    return events.status(task, found, agent, TaskStatus.REASON_RECONCILIATION, message)


def dropped(
    task: str, agent: str, message: str, framework: Framework, reason: TaskStatus.Reason = TaskStatus.REASON_INVALID_OFFERS
) -> TaskStatus:
    """Return the status of a task that was not launched because its offers are invalid, or its executor is ending."""
    found = mesos_pb2.TASK_DROPPED if framework.partition_aware else mesos_pb2.TASK_LOST
    return events.status(task, found, agent, reason, message)
