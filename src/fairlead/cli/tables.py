"""Tables for people: at most 80 columns where that is possible, readable without colour."""

import os
import shlex
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from fairlead.model.quantity import round_quantity
from fairlead.model.specs import written
from fairlead.plain_text import plain
from fairlead.text_tables import PlainTable, listed


def show(table: Table, empty: str) -> None:
    """Print a table, or say that there is nothing to show."""
    if not table.row_count:
        print(empty)
        return
    wide = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(width=None if wide else 200, highlight=False).print(table)


def job_table(jobs: list[dict[str, Any]]) -> Table:
    table = plain_table("job", "name", "queue", "status", ">tasks", "each", ">age")
    for job in jobs:
        over = job["succeeded"] + job["failed"] + job["cancelled"]
        progress = f"{over}/{job['tasks']}" if job["tasks"] > 1 else "1"
        name = job["name"] or " ".join(job["argv"])[:24] or "(another's)"
        table.add_row(
            str(job["id"]),
            name,
            job["queue"],
            job["status"],
            progress,
            quantities(job["demand"]),
            age(job["submitted_at"]),
        )
    return table


def show_job(job: dict[str, Any], tasks: list[dict[str, Any]]) -> None:
    """Print one job: a line each for what it is, then its tasks."""
    counts = ", ".join(
        f"{job[what]} {what}" for what in ("waiting", "running", "succeeded", "failed", "cancelled") if job[what]
    )
    lines = {
        "job": f"{job['id']} {job['name']}".strip(),
        "status": job["status"],
        "tasks": f"{job['tasks']}: {counts}" + (", a gang" if job["gang"] else ""),
        "queue": job["queue"],
        "user": job["user"],
        "each": quantities(job["demand"]),
        "on": " ".join(f"{label}={'|'.join(values)}" for label, values in job["on"].items()),
        "priority": str(job["priority"]) if job["priority"] else "",
        "command": shlex.join(job["argv"]),
        "folder": job["cwd"],
        "submitted": f"{age(job['submitted_at'])} ago",
        "ended": f"{age(job['finished_at'])} ago" if job["finished_at"] else "",
    }
    for name, value in lines.items():
        if value:
            print(f"{name:<10} {plain(value)}")
    shown, now = [t for t in tasks if t["status"] != "waiting"][:30], time.time()
    forecast = any(task["expected_end"] is not None for task in shown)
    left = (">ends in", ">cautiously") if forecast else ()
    table = plain_table(">task", "status", ">exit", "reason", "node", ">attempt", ">seconds", *left)
    for task in shown:
        seconds = (task["finished_at"] or now) - task["started_at"] if task["started_at"] else None
        table.add_row(
            str(task["index"]),
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


def queue_table(queues: list[dict[str, Any]]) -> Table:
    """The tree of queues; guarantees, limits and shares over time have a column where there are any."""
    bounds = {
        "guarantee": [quantities(queue["guarantee"]) for queue in queues],
        "limit": [_limits(queue) for queue in queues],
    }
    bounds = {name: texts for name, texts in bounds.items() if any(texts)}
    before = any(queue["share_over_time"] >= 0.0005 for queue in queues[1:])
    table = plain_table(
        "queue", ">share", "", *([">over time"] if before else []), "used", ">running", ">waiting", *bounds
    )
    for row, queue in enumerate(queues):
        name = queue["name"]
        depth = 0 if name == "/" else name.count("/") + 1
        closed = f" ({queue['status']})" if queue["status"] != "open" else ""
        table.add_row(
            "  " * depth + (name.rpartition("/")[2] or "/") + closed,
            f"{queue['dominant_share']:.1%}" if depth else "",
            queue["dominant_resource"] if depth and queue["dominant_resource"] else "",
            *([f"{queue['share_over_time']:.1%}" if depth else ""] if before else []),
            quantities(queue["used"]),
            str(queue["running"]),
            str(queue["waiting"]),
            *(texts[row] for texts in bounds.values()),
        )
    return table


def _limits(queue: dict[str, Any]) -> str:
    limits = [quantities(queue["limit"])] if queue["limit"] else []
    limits += [f"{queue[most]} {most[4:]}" for most in ("max_tasks", "max_jobs") if queue[most] is not None]
    return " ".join(limits)


def node_table(nodes: list[dict[str, Any]]) -> Table:
    table = plain_table("node", "status", ">tasks", "used", "labels")
    for node in nodes:
        used = " ".join(
            f"{name}={round_quantity(name, node['used'].get(name, 0))}/{round_quantity(name, amount)}"
            for name, amount in node["capacity"].items()
        )
        labels = " ".join(f"{k}={v}" for k, v in node["labels"].items())
        table.add_row(node["name"], node["status"], str(node["tasks"]), used, labels)
    return table


def quantities(values: dict[str, int]) -> str:
    """A vector in little room: ``cpu=1 memory=4Gi``."""
    return " ".join(f"{name}={round_quantity(name, amount)}" for name, amount in values.items())


def age(since: float) -> str:
    """How long ago."""
    return span(time.time() - since)


def span(seconds: float) -> str:
    """A time in its largest unit: ``12s``, ``3min``, ``5h``, ``2d``."""
    seconds = max(0.0, seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def plain_table(*columns: str) -> Table:
    """A table with these columns; ``>`` before a name aligns it to the right. Numbers are never broken, words if need be."""
    table = PlainTable()
    for column in columns:
        right = column.startswith(">")
        name = column.lstrip(">")
        table.add_column(
            name,
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right or name in ("", "status", "when", "who"),
            min_width=12 if name in ("used", "each") else len(name),
        )
    return table


def token_table(tokens: list[dict[str, Any]]) -> Table:
    """Tokens, with what they are limited to."""
    table = plain_table("token", "user", "expires", "for")
    for token in tokens:
        queues = ", ".join(written(name) for name in token["queues"]) if token["queues"] is not None else ""
        expires = "never" if token["expires_at"] is None else moment(token["expires_at"])
        table.add_row(token["id"], token["user"], expires, f"{queues}{' to look only' * token['read_only']}".strip())
    return table


def log_table(entries: list[dict[str, Any]]) -> Table:
    """Who did what; what was refused, with the reason."""
    table = plain_table("when", "who", "what")
    for entry in entries:
        table.add_row(moment(entry["at"]), entry["by"], entry["what"])
        if entry["outcome"] == "refused":
            table.add_row("", "", f"refused: {entry['why']}")
    return table


def moment(at: float) -> str:
    """A moment in local time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def show_fairness(found: dict[str, Any]) -> None:
    """Print the audit of what runs now."""
    if not found["queues"]:
        print("nothing runs and nothing waits")
        return
    table = plain_table("queue", ">share", "of", ">entitled", "status", ">running", ">waiting", "has no more for")
    for queue in found["queues"]:
        entitled = f"{queue['entitled']:.1%}" if queue["entitled"] is not None else "?"
        table.add_row(
            queue["name"],
            f"{queue['dominant_share']:.1%}",
            queue["dominant_resource"] or "",
            entitled,
            queue["status"],
            str(queue["running"]),
            str(queue["waiting"]),
            queue["why"],
        )
    show(table, "")
    print()
    signs = {True: "✓", False: "✗", None: " "}
    for finding in found["findings"]:
        print(f"{signs[finding['holds']]} {plain(finding['text'])}")
    for queue in found["queues"]:
        if queue["passed_over_for"]:
            others = listed(queue["passed_over_for"])
            waits = f"{queue['name']}, at {queue['dominant_share']:.1%}, has waited for {age(queue['waits_since'])}"
            print(plain(f"– {waits}, while {others}, who had no less, were served"))
    if found["fair"] is False:
        print("not fair at this moment: see above")
    elif found["fair"]:
        print("fair at this moment, within one task")
    else:
        print("fair at this moment, within one task; whether they take turns, `fairlead audit --over 1h` says")
