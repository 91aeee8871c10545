"""Tables for people: at most 80 columns where that is possible, readable without colour."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.cli.terminal import say, width
from fairlead.model.quantity import format_share, round_quantity
from fairlead.model.specs import written
from fairlead.plain_text import listed, plain
from fairlead.policies import HALF_LIVES
from fairlead.text_tables import PlainTable, folded, printed, with_names_cut

WITHOUT_TERMINAL = 200
"""Columns of a listing that is read by no person, most likely."""

MOST_OF_ONE = 40
"""Leaves of one queue that are shown on a terminal, unless all are asked for."""
MOST_PASSED = 10
"""Sentences about who waits while others are served, alike."""


def most_of_one(show_all: bool) -> int | None:
    """How many leaves of one queue are shown; None: all, as where nobody reads along."""
    return None if show_all or not sys.stdout.isatty() else MOST_OF_ONE


def show(table: Table, empty: str) -> None:
    """Print a table, or say that there is nothing to show."""
    if not table.row_count:
        print(empty)
        return
    Console(width=width(WITHOUT_TERMINAL), highlight=False).print(table)


def job_table(jobs: list[dict[str, Any]], long: bool = False) -> Table:
    """A line a job, with whose it is where they are of several; `long` adds that, and what was used beside what was asked for."""
    told = long or len({job["user"] for job in jobs}) > 1
    more = (*(["user"] if told else []), *([">cpu time", ">peak"] if long else []))
    table = plain_table("job", "name", "queue", "status", ">tasks", "each", *more, ">age")
    for (
        column
    ) in table.columns:  # those that may be wrapped are made narrow where there is too little room, the widest first
        column.no_wrap = str(column.header) not in ("name", "queue", "each")
        column.min_width = len(str(column.header))
    for job in jobs:
        over = job["succeeded"] + job["failed"] + job["cancelled"]
        progress = f"{over}/{job['tasks']}" if job["tasks"] > 1 else "1"
        name = job["name"] or " ".join(job["argv"])[:24] or "(another's)"
        used = (cpu_time(job["cpu_seconds"]), memory(job["peak_memory"])) if long else ()
        table.add_row(
            str(job["id"]),
            _in_one_line(name),
            _in_one_line(job["queue"]),
            job["status"],
            progress,
            _in_one_line(quantities(job["demand"])),
            *([job["user"]] if told else []),
            *used,
            age(job["submitted_at"]),
        )
    return table


def _in_one_line(text: str) -> Text:
    """A cell that is cut where its column is too narrow."""
    return Text(plain(text), no_wrap=True, overflow="ellipsis")


def cpu_time(seconds: float | None) -> str:
    """Seconds of CPU in little room; nothing where they are not known."""
    return "" if seconds is None else f"{seconds:.1f}s" if seconds < 60 else span(seconds)


def memory(amount: int | None) -> str:
    """Bytes in little room; nothing where they are not known."""
    return "" if amount is None else round_quantity("memory", amount)


def queue_table(queues: list[dict[str, Any]], width: int) -> Table:
    """The tree of queues; guarantees, limits and shares over time have a column where there are any, and room in so many columns.

    Numbers are never cut: vectors are folded between their resources, and what then finds no room is left out.
    """
    columns = _queue_columns(queues)
    for name in _LEFT_OUT:
        if sum(map(_least, columns, columns.values())) + GAP * (len(columns) - 1) > width:
            columns.pop(name, None)
    table = plain_table(*columns)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    spare = width - sum(map(_least, columns, columns.values())) - GAP * (len(columns) - 1)
    for column, (name, cells) in zip(table.columns, columns.items(), strict=True):
        least = _least(name, cells)
        column.width = least + max(0, min(spare, max(map(len, cells)) - least))
        spare -= column.width - least
    return table


_LEFT_OUT = (">over time", "", "offered", "guarantee", "limit")
"""Columns of the queues that are left out where there is no room, the first first."""
_WHERE_ANY = ("offered", "guarantee", "limit", "claims")
_VECTORS = ("used", "offered", "guarantee", "limit")
GAP = 2
"""Columns of the terminal between two of a table."""
LONGEST_NAME = 30


def _least(name: str, cells: list[str]) -> int:
    """The columns of the terminal that a column of the queues needs at least."""
    header = len(name.removeprefix(">"))
    if name == "queue":
        return max(header, min(LONGEST_NAME, max(map(len, cells))))
    parts = (word for cell in cells for word in (cell.split() if name in _VECTORS else [cell]))
    return max(header, *map(len, parts), 0)


def _queue_columns(queues: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The columns of the tree of queues, as :func:`plain_table` names them, each with a cell for every queue."""
    depths = [0 if queue["name"] == "/" else queue["name"].count("/") + 1 for queue in queues]
    closed = [f" ({queue['status']})" if queue["status"] != "open" else "" for queue in queues]
    names = [queue["framework"] or queue["name"].rpartition("/")[2] or "/" for queue in queues]
    columns = {
        "queue": ["  " * depth + name + more for depth, name, more in zip(depths, names, closed, strict=True)],
        ">share": [
            f"{queue['dominant_share']:.1%}" if depth else "" for depth, queue in zip(depths, queues, strict=True)
        ],
        "": [(queue["dominant_resource"] or "") if depth else "" for depth, queue in zip(depths, queues, strict=True)],
        ">over time": [
            format_share(queue["share_over_time"]) if depth else "" for depth, queue in zip(depths, queues, strict=True)
        ],
        "used": [quantities(queue["used"]) for queue in queues],
        "offered": [quantities(queue["offered"]) for queue in queues],
        ">running": [str(queue["running"]) for queue in queues],
        ">waiting": [str(queue["waiting"]) for queue in queues],
        "guarantee": [quantities(queue["guarantee"]) for queue in queues],
        "limit": [_limits(queue) for queue in queues],
        "claims": [", ".join(queue["claims"]) for queue in queues],
    }
    by_history = any((queue["policy"] or "").partition(":")[0] in HALF_LIVES for queue in queues)
    if not any(queue["share_over_time"] >= (1e-12 if by_history else 0.0005) for queue in queues[1:]):
        del columns[">over time"]
    return {name: cells for name, cells in columns.items() if name not in _WHERE_ANY or any(cells)}


def fewer(queues: list[dict[str, Any]], most: int | None) -> tuple[list[dict[str, Any]], list[str]]:
    """The same queues but for those beyond so many leaves of one queue, and a line for each queue that has more.

    Shown are those of which is most to be told: somebody is wronged, or they have much, or wait for it.
    """
    leaves: dict[str, list[dict[str, Any]]] = {}
    inner = {_above(queue["name"]) for queue in queues}
    for queue in queues:
        if queue["name"] not in inner:
            leaves.setdefault(_above(queue["name"]), []).append(queue)
    left_out, lines = set(), []
    for above, mine in leaves.items():
        if most is not None and len(mine) > most:
            rest = sorted(mine, key=_interest)[most:]
            left_out |= {queue["name"] for queue in rest}
            lines.append(f"… and {len(rest):,} more of {plain(above)}; --all shows them")
    return [queue for queue in queues if queue["name"] not in left_out], lines


def _above(name: str) -> str:
    """The queue above one, as it is written."""
    return name.rpartition("/")[0] or "/"


def _interest(queue: dict[str, Any]) -> tuple[Any, ...]:
    """Sorts queues by how much there is to tell of them, the most first."""
    wronged = queue.get("status") == "below" or bool(queue.get("passed_over_for"))
    return not wronged, -queue["dominant_share"], -queue["running"], -queue["waiting"]


def share_table(queues: list[dict[str, Any]]) -> Table:
    """What each queue of the tree should have of each resource, a line each."""
    table = plain_table("queue", "resource", ">used", ">steady", ">now", ">of demand")
    for queue in queues:
        depth = 0 if queue["name"] == "/" else queue["name"].count("/") + 1
        name = "  " * depth + (queue["name"].rpartition("/")[2] or "/")
        kinds = [queue["used"], *(queue["fair_share"][kind] for kind in ("steady", "instantaneous", "within_demand"))]
        for resource in queues[0]["fair_share"]["steady"]:
            amounts = (round_quantity(resource, kind.get(resource, 0)) for kind in kinds)
            table.add_row(name, resource, *amounts)
            name = ""
    return table


def _limits(queue: dict[str, Any]) -> str:
    limits = [quantities(queue["limit"])] if queue["limit"] else []
    limits += [f"{queue[most]} {most[4:]}" for most in ("max_tasks", "max_jobs") if queue[most] is not None]
    limits += ["strict"] if queue["strict"] else []
    return " ".join(limits)


def framework_table(frameworks: list[dict[str, Any]]) -> Table:
    """What frameworks have, and what they are offered."""
    table = plain_table("framework", "roles", "status", ">tasks", "used", ">offers", "offered")
    for each in frameworks:
        status = each["status"] if not each["hoards"] else "hoards offers"
        used, offered = quantities(each["used"]), quantities(each["offered"])
        table.add_row(
            each["name"], ", ".join(each["roles"]), status, str(each["tasks"]), used, str(each["offers"]), offered
        )
    for column in table.columns:
        column.no_wrap = str(column.header) not in ("framework", "roles", "used", "offered")
    return table


def node_table(nodes: list[dict[str, Any]]) -> Table:
    table = plain_table("node", "status", ">tasks", "used", "labels")
    for node in nodes:
        used = " ".join(
            f"{name}={round_quantity(name, node['used'].get(name, 0))}/{round_quantity(name, amount)}"
            for name, amount in node["capacity"].items()
        )
        labels = " ".join(f"{k}={v}" for k, v in node["labels"].items())
        status = node["status"] if node["silent"] is None else f"{node['status']}, silent for {span(node['silent'])}"
        table.add_row(node["name"], status, str(node["tasks"]), used, labels)
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


def exact_span(seconds: float) -> str:
    """A time as it may be asked for: whole in the largest unit that it is."""
    units = (("d", 86400), ("h", 3600), ("min", 60))
    unit, size = next(((unit, size) for unit, size in units if seconds and seconds % size == 0), ("s", 1))
    return f"{seconds / size:g}{unit}"


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


def kept_until(kept: dict[str, Any]) -> str:
    """For whom room is kept, and until when, in a sentence."""
    why = "" if kept["why"] == "reservation" else f" for its {kept['why']}"
    return f"kept for job {kept['job']} of {kept['queue']}{why}: {_expected(kept)}"


def kept_for_it(kept: dict[str, Any]) -> str:
    """Since when room is kept for the job that is asked about, and until when, in a sentence."""
    off = f", put off {kept['slips']} time{'s' * (kept['slips'] > 1)}" if kept["slips"] else ""
    idle = f"; {_idle(kept)} lies idle for it now" if kept["idle"] else ""
    return f"kept for it since {moment(kept['made'])}{off}: {_expected(kept)}{idle}"


def _expected(kept: dict[str, Any]) -> str:
    """When a job for which room is kept is expected to start, and to be over."""
    left, lasts = kept["start"] - time.time(), kept.get("end")
    start = f"in {span(left)}, at {moment(kept['start'])}" if left > 1 else "any moment"
    over = f", and to be over at {moment(lasts)}" if lasts is not None else ""
    return f"it is expected to start {start}{over}"


def _idle(kept: dict[str, Any]) -> str:
    """What lies idle for a job."""
    return " and ".join(f"{round_quantity(name, amount)} {name}" for name, amount in kept["idle"].items())


def _kept(kept: dict[str, Any]) -> str:
    """What is kept for a job, and what lies idle for it, in a sentence."""
    tasks = f"{kept['tasks']} task{'s' * (kept['tasks'] > 1)} on {kept['nodes']} node{'s' * (kept['nodes'] > 1)}"
    return f"{tasks} {kept_until(kept)}; {_idle(kept) or 'nothing'} lies idle for it now"


WHY_BELOW = {
    "about to start": "and what is about to start changes that",
    "not yet converged": "until others' tasks end",
    "fragmentation": "since no node has room for its next task",
    "reservations": "since room is kept for others",
    "offers": "until frameworks answer what they are offered",
    "limit": "by a limit",
    "constraint": "since no node can hold what waits",
}
"""How it is told why queues have less than their parts."""


def _why_not_fair(queues: list[dict[str, Any]]) -> str:
    """Who has less than their parts, and why, by the reasons; the findings say the rest."""
    below: dict[str, list[str]] = {}
    for queue in queues:
        if queue["status"] == "below" and queue["why"] in WHY_BELOW:
            below.setdefault(queue["why"], []).append(queue["name"])
    told = [
        f"{listed(names)} {'have less than their parts' if len(names) > 1 else 'has less than its part'} {WHY_BELOW[why]}"
        for why, names in below.items()
    ]
    return "; ".join(told) or "see above"


def _fairness_columns(queues: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The columns of what queues have and are entitled to, as :func:`fairlead.text_tables.folded` takes them."""
    parts = [f"{queue['entitled']:.1%}" if queue["entitled"] is not None else "?" for queue in queues]
    return {
        "queue": [queue["name"] for queue in queues],
        ">share": [f"{queue['dominant_share']:.1%}" for queue in queues],
        "of": [queue["dominant_resource"] or "" for queue in queues],
        ">entitled": parts,
        "status": [queue["status"] for queue in queues],
        ">running": [str(queue["running"]) for queue in queues],
        ">waiting": [str(queue["waiting"]) for queue in queues],
        "has no more for": [queue["why"] for queue in queues],
    }


def show_fairness(found: dict[str, Any], most: int | None = None) -> None:
    """Print the audit of what runs now; of more than so many leaves of one queue, these."""
    if not found["queues"]:
        print("nothing runs, and nothing waits that could start")
        return
    shown, more = fewer(found["queues"], most)
    columns, room, wraps = _fairness_columns(shown), width(WITHOUT_TERMINAL), ("has no more for",)
    print(printed(*folded(with_names_cut(columns, room, wraps), room, wraps=wraps), width=room))
    print("\n".join([*more, ""]))
    signs = {True: "✓", False: "✗", None: " "}
    for finding in found["findings"]:
        say(f"{signs[finding['holds']]} {finding['text']}")
    passed = [queue for queue in found["queues"] if queue["passed_over_for"]]
    for queue in passed[: MOST_PASSED if most else None]:
        others, were = listed(queue["passed_over_for"]), "was" if len(queue["passed_over_for"]) == 1 else "were"
        waits = f"{queue['name']}, at {queue['dominant_share']:.1%}, has waited for {age(queue['waits_since'])}"
        say(f"– {waits}, while {others}, who had no less, {were} served")
    if most and len(passed) > MOST_PASSED:
        print(f"– and {len(passed) - MOST_PASSED:,} more wait so; --all shows them")
    for kept in found["reservations"]:
        say(f"– {_kept(kept)}")
    if found["fair"] is False:
        say(f"not fair at this moment: {_why_not_fair(found['queues'])}")
    elif found["fair"]:
        print("fair at this moment, within one task")
    else:
        say("fair at this moment, within one task; whether they take turns, `fairlead audit --over 1h` says")
