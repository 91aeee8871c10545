"""`fairlead job`: one job, and those of its tasks that matter first."""

import re
import shlex
import time
from typing import Any, get_args

from fairlead.cli.failure import Failure
from fairlead.cli.tables import age, cpu_time, exact_span, memory, plain_table, quantities, show, span
from fairlead.client.connection import Connection
from fairlead.model.api_types import TaskStatus
from fairlead.plain_text import plain

ORDER = ("failed", "stopping", "expiring", "revoking", "running", "starting", "cancelled", "succeeded")
"""Whose tasks are shown first; those that wait have nothing to show."""
HOW = {"success": "if it succeeds", "failure": "if it fails", "end": "when it has ended"}


def find_tasks(
    connection: Connection, job: dict[str, Any], status: str | None, indices: str | None, most: int
) -> tuple[list[dict[str, Any]], int]:
    """The tasks that are asked for, `most` of them, and how many are left out: by index where one says which, else by status."""
    if status is not None and status not in get_args(TaskStatus):
        raise Failure(f"--status {status!r}: there are {', '.join(get_args(TaskStatus))}")
    path = f"/v1/jobs/{job['id']}/tasks"
    if indices is not None:
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", indices)
        if match is None:
            raise Failure(f"--tasks {indices!r}: write an index, or a range such as 100-200")
        first, last = int(match[1]), int(match[2] or match[1])
        if first >= job["tasks"] or last < first:
            raise Failure(f"--tasks {indices!r}: the tasks of job {job['id']} are 0 to {job['tasks'] - 1}")
        found = connection.get(path, first=first, limit=min(10_000, last - first + 1), status=status)["tasks"]
        return [task for task in found if task["index"] <= last], 0
    wanted = ORDER if status is None else (status,)
    tasks: list[dict[str, Any]] = []
    for each in wanted:
        if len(tasks) < most:
            tasks += connection.get(path, limit=most - len(tasks), status=each)["tasks"]
    total = job["tasks"] - job["waiting"] if status is None else job.get(status, 0)
    return tasks, max(0, total - len(tasks))


def show_job(job: dict[str, Any], tasks: list[dict[str, Any]], left: int) -> None:
    """Print one job: a line each for what it is, then its tasks."""
    counts = ", ".join(
        f"{job[what]} {what}" for what in ("waiting", "running", "succeeded", "failed", "cancelled") if job[what]
    )
    used = [cpu_time(job["cpu_seconds"]) and f"{cpu_time(job['cpu_seconds'])} of CPU", memory(job["peak_memory"])]
    bounds = f", at most {job['at_most']} at once" if job["at_most"] else ""
    ray = ", the bundles of a program of Ray" if job["ray"] else ""
    lines = {
        "job": f"{job['id']} {job['name']}".strip(),
        "status": job["status"],
        "tasks": f"{job['tasks']}: {counts}" + (", a gang" * (job["gang"] and not job["ray"])) + ray + bounds,
        "queue": job["queue"],
        "user": job["user"],
        "each": quantities(job["demand"]),
        "used": ", at most ".join(filter(None, used)) + (" of memory each" if used[1] else ""),
        "on": " ".join(f"{label}={'|'.join(values)}" for label, values in job["on"].items()),
        "after": "; ".join(f"job {after['job']}, {HOW[after['how']]}" for after in job["after"]),
        "to": {"pack": "the fullest nodes with room", "spread": "the emptiest nodes with room"}.get(job["fit"], ""),
        "priority": str(job["priority"]) if job["priority"] else "",
        "retries": f"{job['retries']} of each task that fails" if job["retries"] else "",
        "time limit": f"{exact_span(job['time_limit'])} each" if job["time_limit"] is not None else "",
        "grace": f"{exact_span(job['grace'])}, if its queue gives as much" if job["grace"] is not None else "",
        "done by": "exit 0, also when it is stopped to make room" if job["exit_done"] else "",
        "stops by": job["signal"] if job["signal"] != "SIGTERM" else "",
        "revocable": "before jobs that are not" if job["revocable"] else "",
        "revoked": _revoked(job["revoked"]) if job["revoked"] else "",
        "command": shlex.join(job["argv"]),
        "folder": job["cwd"],
        "submitted": f"{age(job['submitted_at'])} ago",
        "ended": f"{age(job['finished_at'])} ago" if job["finished_at"] else "",
    }
    for name, value in lines.items():
        if value:
            print(f"{name:<10} {plain(value)}")
    _show_tasks(tasks)
    if left:
        print(f"and {left} more: `fairlead job {job['id']} --tasks 0-99` or `--status succeeded` shows others")


def _revoked(told: dict[str, Any]) -> str:
    """When tasks of it were revoked for others, for whom and why; and how many, where it was more than one."""
    then = time.localtime(told["at"])
    when = time.strftime("%H:%M" if time.time() - told["at"] < 86400 else "%Y-%m-%d %H:%M", then)
    more = f"; {told['tasks']} tasks in all" if told["tasks"] > 1 else ""
    return f"at {when} {told['text'].removeprefix('revoked ')}{more}"


def _show_tasks(tasks: list[dict[str, Any]]) -> None:
    now = time.time()
    repeats = any(task["known_as"] != task["index"] for task in tasks)
    forecast = any(task["expected_end"] is not None for task in tasks)
    left = (">ends in", ">cautiously") if forecast else ()
    table = plain_table(
        ">task", *([">repeats"] if repeats else []), "status", ">exit", "reason", "node", ">attempt", ">seconds", *left
    )
    for task in tasks:
        seconds = (task["finished_at"] or now) - task["started_at"] if task["started_at"] else None
        table.add_row(
            str(task["index"]),
            *([str(task["known_as"])] if repeats else []),
            task["status"],
            "" if task["exit"] is None else str(task["exit"]),
            task["reason"] or "",
            task["node"] or "",
            str(task["attempt"]),
            "" if seconds is None else f"{seconds:.1f}",
            *(_left(task, end, now) for end in ("expected_end", "cautious_end")[: len(left)]),
        )
    if table.row_count:
        print()
        show(table, "")


def _left(task: dict[str, Any], end: str, now: float) -> str:
    """How long until a task is expected to end; nothing for one that does not run, ``?`` where nobody knows."""
    if task["expected_end"] is None:
        return ""
    return "?" if task[end] is None else span(task[end] - now)
