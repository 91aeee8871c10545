"""`fairlead job`: one job, and its most interesting tasks."""

import re
import shlex
import time
from typing import Any, get_args

from fairlead.cli.tables import age, cpu_time, exact_span, memory, plain_table, quantities, show
from fairlead.client.connection import Connection
from fairlead.client.jobs import SubmittedJob
from fairlead.failure import Failure, WrongUsage
from fairlead.model.api_types import TaskStatus
from fairlead.plain_text import moment, plain, span

ORDER = ("failed", "stopping", "expiring", "revoking", "running", "starting", "cancelled", "succeeded")
"""Statuses in the order in which tasks are shown; pending tasks have nothing to show."""
HOLDING = ("stopping", "expiring", "revoking", "running", "starting")
HOW = {"success": "if it succeeds", "failure": "if it fails", "end": "when it has ended", "start": "when it has started"}
HOW |= {"index": "task by task"}


def find_tasks(
    connection: Connection, job: dict[str, Any], status: str | None, indices: str | None, most: int
) -> tuple[list[dict[str, Any]], int]:
    """Return at most `most` tasks, and the number left out.

    With `indices`, tasks are ordered by index, otherwise by status as in `ORDER`. Raises Failure for options that are wrong.
    """
    if status is not None and status not in get_args(TaskStatus):
        raise WrongUsage(f"--status {status!r}: write one of {', '.join(get_args(TaskStatus))}")
    path = f"/v1/jobs/{job['id']}/tasks"
    if indices is not None:
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", indices)
        if match is None:
            raise WrongUsage(f"--tasks {indices!r}: write an index, or a range such as 100-200")
        first, last = int(match[1]), int(match[2] or match[1])
        if job["indices"]:
            everything: list[Any] = SubmittedJob(connection, job["id"]).tasks(status)
            return [task for task in everything if first <= task["known_as"] <= last][:10_000], 0
        if first >= job["tasks"] or last < first:
            raise Failure(f"job {job['id']} has no task {indices}: its tasks are 0 to {job['tasks'] - 1}")
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
    """Print a job, an attribute per line, then its tasks."""
    print("\n".join(job_lines(job)))
    _show_tasks(tasks)
    if left:
        print(f"and {left} more: show others with `fairlead job {job['id']} --tasks 0-99` or `--status succeeded`")


def job_lines(job: dict[str, Any]) -> list[str]:
    """Describe a job, an attribute per line."""
    counts = ", ".join(f"{job[what]} {what}" for what in ("waiting", "running", "succeeded", "failed", "cancelled") if job[what])
    used = [cpu_time(job["cpu_seconds"]) and f"{cpu_time(job['cpu_seconds'])} of CPU", memory(job["peak_memory"])]
    bounds = f", at most {job['at_most']} at once" if job["at_most"] else ""
    ray = ", the bundles of a Ray program" if job["ray"] else ""
    indices = f" ({job['indices']})" if job.get("indices") else ""
    lines = {
        "job": f"{job['id']} {job['name']}".strip(),
        "group": job.get("group", ""),  # a scheduler of an older version reports neither
        "status": job["status"],
        "tasks": f"{job['tasks']}{indices}: {counts}" + (", a gang" * (job["gang"] and not job["ray"])) + ray + bounds,
        "queue": job["queue"],
        "user": job["user"],
        "each": quantities(job["demand"]),
        "used": ", at most ".join(filter(None, used)) + (" of memory each" if used[1] else ""),
        "calls": f"{job['calls']:,}, in {exact_span(job['call_seconds'])}" if job.get("calls") else "",
        "on": " ".join(f"{label}={'|'.join(values)}" for label, values in job["on"].items()),
        "begin": moment(job["begin"]) if job.get("begin") else "",
        "prefers": " ".join(f"{label}={'|'.join(values)}" for label, values in job.get("prefer", {}).items()),
        "after": "; ".join(
            ["the jobs of its name"] * bool(job.get("singleton"))
            + [f"job {after['job']}, {HOW[after['how']]}" for after in job["after"]]
        ),
        "to": {"pack": "the fullest nodes with room", "spread": "the emptiest nodes with room", "apart": "a node each"}.get(
            job["fit"], ""
        ),
        "priority": str(job["priority"]) if job["priority"] else "",
        "retries": f"{job['retries']} of each task that fails" * bool(job["retries"])
        + f", after {exact_span(job.get('retry_delay') or 0)} and longer" * bool(job.get("retry_delay")),
        "time limit": f"{exact_span(job['time_limit'])} each" if job["time_limit"] is not None else "",
        "grace": f"{exact_span(job['grace'])}, up to its queue's maximum" if job["grace"] is not None else "",
        "done by": "exit 0, also when preempted" if job["exit_done"] else "",
        "stops by": job["signal"] if job["signal"] != "SIGTERM" else "",
        "revocable": "before jobs that are not" if job["revocable"] else "",
        "revoked": _revoked(job["revoked"]) if job["revoked"] else "",
        "command": shlex.join(job["argv"]),
        "folder": job["cwd"],
        "submitted": f"{age(job['submitted_at'])} ago",
        "ended": f"{age(job['finished_at'])} ago" if job["finished_at"] else "",
    }
    return [f"{name:<10} {plain(value)}" for name, value in lines.items() if value]


def _revoked(last: dict[str, Any]) -> str:
    """When its tasks were last preempted, for whom and why, and how many tasks in all."""
    then = time.localtime(last["at"])
    when = time.strftime("%H:%M" if time.time() - last["at"] < 86400 else "%Y-%m-%d %H:%M", then)
    more = f"; {last['tasks']} tasks in all" if last["tasks"] > 1 else ""
    return f"at {when} {last['text'].removeprefix('revoked ')}{more}"


def _show_tasks(tasks: list[dict[str, Any]]) -> None:
    now = time.time()
    left = (">ends in", ">p90") if any(task["status"] in HOLDING for task in tasks) else ()
    cards = any(task.get("cards") for task in tasks)  # a scheduler of an older version reports none
    table = plain_table(">task", "status", ">exit", "reason", "node", *["cards"] * cards, ">attempt", ">seconds", *left)
    for task in tasks:
        code = "" if task["exit"] is None else str(task["exit"])
        where = [task["node"] or "", *([",".join(map(str, task["cards"]))] if cards else [])]
        seconds = f"{(task['finished_at'] or now) - task['started_at']:.1f}" if task["started_at"] else ""
        ends = [_left(task, end, now) for end in ("expected_end", "cautious_end")[: len(left)]]
        known, attempt = str(task["known_as"]), str(task["attempt"])
        table.add_row(known, task["status"], code, task["reason"] or "", *where, attempt, seconds, *ends)
    if table.row_count:
        print()
        show(table, "")


def _left(task: dict[str, Any], end: str, now: float) -> str:
    """Time until a running task is expected to end; empty if it does not run, ``?`` if unknown."""
    if task["status"] not in HOLDING:
        return ""
    return "?" if task[end] is None else span(task[end] - now)
