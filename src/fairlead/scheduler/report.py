"""The state as people and programs read it: plain dictionaries of jobs, queues and nodes."""

from math import isnan
from typing import Any

import numpy as np

from fairlead.model.specs import written
from fairlead.policies import CODES, drf
from fairlead.scheduler.admission import job_row
from fairlead.scheduler.facts import Outcome
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import (
    CANCELLED,
    FAILED,
    NONE,
    PLACED,
    REVOKING,
    STATUS_NAMES,
    SUCCEEDED,
    UNLIMITED,
    WAITING,
)


def describe_job(state: State, job: int) -> dict[str, Any]:
    """One job: what was asked for, and how many of its tasks do what. Refuses an unknown one."""
    return _job(state, job_row(state, job))


def list_jobs(
    state: State,
    *,
    queue: str | None = None,
    user: str | None = None,
    status: str | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """The newest jobs, newest first; `queue` means that queue and all below it."""
    found: list[dict[str, Any]] = []
    for row in range(state.jobs.n - 1, -1, -1):
        if len(found) == limit:
            break
        if state.jobs.id[row] == NONE:
            continue
        spec = state.specs[int(state.jobs.id[row])]
        if user is not None and spec.user != user:
            continue
        if queue is not None and spec.queue != queue and not spec.queue.startswith(queue + "/"):
            continue
        if status is not None and _status(state, row) != status:
            continue
        found.append(_job(state, row))
    return found


def describe_tasks(state: State, job: int, first: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
    """Tasks of a job by index, from `first` on."""
    row = job_row(state, job)
    begin, count = int(state.jobs.first[row]), int(state.jobs.tasks[row])
    tasks = state.tasks
    found = []
    for index in range(first, min(count, first + limit)):
        t = begin + index
        status = int(tasks.status[t])
        placed = PLACED <= status <= REVOKING
        over = status in (SUCCEEDED, FAILED, CANCELLED) and tasks.attempt[t] > 0
        found.append(
            {
                "index": index,
                "status": STATUS_NAMES[status],
                "attempt": int(tasks.attempt[t]),
                "node": state.node_specs[tasks.node[t]].name if placed or over else None,
                "exit": exit_status(int(tasks.outcome[t]), int(tasks.code[t])) if over else None,
                "reason": Outcome(int(tasks.outcome[t])).name.lower().replace("_", " ") if over else None,
                "started_at": _time(tasks.started_at[t]),
                "finished_at": _time(tasks.finished_at[t]),
            }
        )
    return found


def exit_status(outcome: int, code: int) -> int:
    """What a shell would say: the exit status, or 128 and the signal, 126 and 127 for what could not be run, 124 out of time."""
    if outcome == Outcome.TIME_LIMIT:
        return 124
    if outcome == Outcome.NOT_STARTED:
        return 127 if code == 2 else 126
    return 128 + code if outcome in (Outcome.SIGNALLED, Outcome.OUT_OF_MEMORY) else code


def list_queues(state: State) -> list[dict[str, Any]]:
    """The queue tree, parents before children, siblings by name."""
    waiting = np.zeros(state.queues.n, np.int64)
    known = state.jobs.id[: state.jobs.n] != NONE
    np.add.at(waiting, state.jobs.queue[: state.jobs.n][known], state.jobs.waiting[: state.jobs.n][known])
    for row in range(state.queues.n - 1, 0, -1):
        waiting[state.queues.parent[row]] += waiting[row]
    q = state.queues
    inner = set(q.parent[: q.n].tolist())
    found = []
    for row in np.argsort(q.rank[: q.n]):
        column = drf.dominant_resource(q.used[row], state.total, q.weight[row])
        own = q.limit[row] != UNLIMITED
        found.append(
            {
                "name": written(state.queue_names[row]),
                "policy": next(name for name, code in CODES.items() if code == q.policy[row]) if row in inner else None,
                "used": state.quantities(q.used[row]),
                "dominant_share": drf.dominant_share(q.used[row], state.total, q.weight[row]),
                "dominant_resource": state.resources[column] if column >= 0 else None,
                "weight": dict(zip(state.resources, map(float, q.weight[row]), strict=True)),
                "guarantee": state.quantities(q.guarantee[row]),
                "limit": {name: int(v) for name, v, o in zip(state.resources, q.limit[row], own, strict=True) if o},
                "max_tasks": _count(q.max_tasks[row]),
                "max_jobs": _count(q.max_jobs[row]),
                "running": int(q.tasks[row]),
                "waiting": int(waiting[row]),
            }
        )
    return found


def list_nodes(state: State) -> list[dict[str, Any]]:
    """The nodes, in the order they joined."""
    nodes = state.nodes
    held = state.tasks.node[state.held_rows()]
    tasks = np.bincount(held, minlength=nodes.n)
    found = []
    for row, spec in enumerate(state.node_specs):
        status = "draining" if nodes.draining[row] else "up"
        found.append(
            {
                "name": spec.name,
                "status": status if nodes.up[row] else "lost",
                "capacity": state.quantities(nodes.capacity[row]),
                "used": state.quantities(nodes.capacity[row] - nodes.free[row]),
                "labels": spec.labels,
                "tasks": int(tasks[row]),
            }
        )
    return found


def _job(state: State, row: int) -> dict[str, Any]:
    jobs = state.jobs
    spec = state.specs[int(jobs.id[row])]
    count, waiting, holding = int(jobs.tasks[row]), int(jobs.waiting[row]), int(jobs.holding[row])
    failed, cancelled = int(jobs.failed[row]), int(jobs.cancelled[row])
    return {
        "id": int(jobs.id[row]),
        "name": spec.name,
        "queue": spec.queue,
        "user": spec.user,
        "status": _status(state, row),
        "tasks": count,
        "waiting": waiting,
        "running": holding,
        "succeeded": count - waiting - holding - failed - cancelled,
        "failed": failed,
        "cancelled": cancelled,
        "demand": spec.demand,
        "on": spec.on,
        "priority": spec.priority,
        "gang": spec.gang,
        "retries": spec.retries,
        "time_limit": spec.time_limit,
        "after": [{"job": after.job, "how": after.how} for after in spec.after],
        "argv": spec.work.argv,
        "cwd": spec.work.cwd,
        "submitted_at": _time(jobs.submitted_at[row]),
        "finished_at": _time(jobs.finished_at[row]),
    }


def _status(state: State, row: int) -> str:
    jobs = state.jobs
    if not isnan(jobs.finished_at[row]):
        names = [(jobs.failed[row], FAILED), (jobs.cancelled[row], CANCELLED), (1, SUCCEEDED)]
        return STATUS_NAMES[next(status for count, status in names if count)]
    if jobs.holding[row]:
        return "running"
    return "held" if jobs.held[row] else STATUS_NAMES[WAITING]


def _count(value: int) -> int | None:
    return None if value == UNLIMITED else int(value)


def _time(value: float) -> float | None:
    return None if isnan(value) else float(value)
