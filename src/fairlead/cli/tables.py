"""Tables and sentences that commands print: at most 80 columns if possible, readable without colour."""

import sys
import time
from collections.abc import Collection
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.cli.terminal import print_sentence, width
from fairlead.client.waiting import why_text
from fairlead.model.quantity import format_share, round_quantity
from fairlead.model.specs import parent_of, written
from fairlead.plain_text import listed, moment, plain, span
from fairlead.policies import HALF_LIVES
from fairlead.text_tables import GAP, PlainTable, folded, printed, with_names_cut

WITHOUT_TERMINAL = 200
"""Columns of a listing that goes to a pipe or a file."""
MOST_LEAVES = 40
"""Leaves of one queue shown on a terminal without --all."""
MOST_SKIPPED = 10
"""Sentences about queues that wait while others are served, without --all."""


def most_leaves(show_all: bool) -> int | None:
    """Return how many leaves of one queue to show; None for all, as outside a terminal."""
    return None if show_all or not sys.stdout.isatty() else MOST_LEAVES


def show(table: Table, empty: str) -> None:
    """Print a table, or `empty` if it has no rows."""
    if not table.row_count:
        print(empty)
        return
    Console(width=width(WITHOUT_TERMINAL), highlight=False).print(table)


def job_table(jobs: list[dict[str, Any]], long: bool = False) -> Table:
    """Return a row per job; with users if there are several, or with `long`, which adds CPU time and peak memory."""
    users = long or len({job["user"] for job in jobs}) > 1
    more = ["user"] * users + [">cpu time", ">peak"] * long
    wraps = "name", "queue", "each"  # Rich shrinks these, the widest first
    table = plain_table("job", "name", "queue", "status", ">tasks", "each", *more, ">age", wraps=wraps)
    for job in jobs:
        over = job["succeeded"] + job["failed"] + job["cancelled"]
        progress = f"{over}/{job['tasks']}" if job["tasks"] > 1 else "1"
        words = job["name"] or " ".join(job["argv"])[:24] or "(another's)", job["queue"], quantities(job["demand"])
        name, queue, each = map(_in_one_line, words)
        told = [job["user"]] * users + ([cpu_time(job["cpu_seconds"]), memory(job["peak_memory"])] if long else [])
        table.add_row(str(job["id"]), name, queue, job["status"], progress, each, *told, age(job["submitted_at"]))
    return table


def _in_one_line(text: str) -> Text:
    """Return a cell that is cut if its column is too narrow."""
    return Text(plain(text), no_wrap=True, overflow="ellipsis")


def cpu_time(seconds: float | None) -> str:
    """Format CPU seconds; empty if unknown."""
    return "" if seconds is None else f"{seconds:.1f}s" if seconds < 60 else span(seconds)


def memory(amount: int | None) -> str:
    """Format bytes; empty if unknown."""
    return "" if amount is None else round_quantity("memory", amount)


def queue_table(queues: list[dict[str, Any]], width: int) -> Table:
    """Return the tree of queues; optional columns appear if they have values and fit in `width`.

    Numbers are never cut: vectors wrap between resources, and columns of `_LEFT_OUT` that still do not fit are dropped.
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


_LEFT_OUT = (">past use", "", "offered", "guarantee", "limit")
"""Columns that are dropped if the table is too wide, in this order."""
_WHERE_ANY = ("offered", "guarantee", "limit", "claims")
_VECTORS = ("used", "offered", "guarantee", "limit")
LONGEST_NAME = 30


def _least(name: str, cells: list[str]) -> int:
    """Return the least width of a column of the queue table."""
    header = len(name.removeprefix(">"))
    if name == "queue":
        return max(header, min(LONGEST_NAME, max(map(len, cells))))
    parts = (word for cell in cells for word in (cell.split() if name in _VECTORS else [cell]))
    return max(header, *map(len, parts), 0)


def _queue_columns(queues: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the columns of the queue table by header, as of :func:`plain_table`, with a cell per queue."""
    depths = [0 if queue["name"] == "/" else queue["name"].count("/") + 1 for queue in queues]
    closed = [f" ({queue['status']})" if queue["status"] != "open" else "" for queue in queues]
    names = [queue["framework"] or queue["name"].rpartition("/")[2] or "/" for queue in queues]
    columns = {
        "queue": ["  " * depth + name + more for depth, name, more in zip(depths, names, closed, strict=True)],
        ">share": ["" if queue["name"] == "/" else f"{queue['dominant_share']:.1%}" for queue in queues],
        "": ["" if queue["name"] == "/" else queue["dominant_resource"] or "" for queue in queues],
        ">past use": ["" if queue["name"] == "/" else format_share(queue["share_over_time"]) for queue in queues],
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
        del columns[">past use"]
    return {name: cells for name, cells in columns.items() if name not in _WHERE_ANY or any(cells)}


def fewer(queues: list[dict[str, Any]], most: int | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Keep at most `most` leaves per queue, and return a line for each queue that has more.

    Leaves that are wronged come first, then those with the largest shares, then those with running and pending tasks.
    """
    leaves: dict[str, list[dict[str, Any]]] = {}
    inner = {parent_of(queue["name"]) or "/" for queue in queues}
    for queue in queues:
        if queue["name"] not in inner:
            leaves.setdefault(parent_of(queue["name"]) or "/", []).append(queue)
    left_out, lines = set(), []
    for above, mine in leaves.items():
        if most is not None and len(mine) > most:
            rest = sorted(mine, key=_interest)[most:]
            left_out |= {queue["name"] for queue in rest}
            lines.append(f"… and {len(rest):,} more of {plain(above)}; --all shows them")
    return [queue for queue in queues if queue["name"] not in left_out], lines


def _interest(queue: dict[str, Any]) -> tuple[Any, ...]:
    """Sort key: the most interesting queues first."""
    wronged = queue.get("status", "fair") != "fair" or bool(queue.get("passed_over_for"))
    return not wronged, -queue["dominant_share"], -queue["running"], -queue["waiting"]


def share_table(queues: list[dict[str, Any]]) -> Table:
    """Return the fair shares of each queue, a row per resource."""
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
    """Return a row per framework: what it uses, and what it is offered."""
    wraps = "framework", "roles", "used", "offered"
    table = plain_table("framework", "roles", "status", ">tasks", "used", ">offers", "offered", wraps=wraps)
    for each in frameworks:
        status = each["status"] if not each["hoards"] else "hoards offers"
        used, offered = quantities(each["used"]), quantities(each["offered"])
        table.add_row(each["name"], ", ".join(each["roles"]), status, str(each["tasks"]), used, str(each["offers"]), offered)
    return table


def node_table(nodes: list[dict[str, Any]]) -> Table:
    # A scheduler of an older version reports neither.
    with_cards, connect = any(node.get("cards") for node in nodes), any(node.get("version") for node in nodes)
    links, cards_too = [">heard", "version", ">clock"] * connect, ["cards", ">busy"] * with_cards
    table = plain_table("node", "status", ">tasks", "used", *cards_too, *links, "labels")
    for node in nodes:
        used = " ".join(
            f"{name}={round_quantity(name, node['used'].get(name, 0))}/{round_quantity(name, amount)}"
            for name, amount in node["capacity"].items()
        )
        labels = " ".join(f"{k}={v}" for k, v in node["labels"].items())
        status = node["status"] if node["silent"] is None else f"{node['status']}, silent for {span(node['silent'])}"
        if node.get("unheard") is not None:
            status = f"{node['status']}, not heard since the restart {span(node['unheard'])} ago"
        cards = [listed_cards(node.get("cards", [])), how_busy(node.get("cards", []))] if with_cards else []
        link = [""] * 3
        if node.get("version"):
            link = [f"{span(node['heard'])} ago", plain(node["version"]), f"{node['clock_ahead']:+.1f}s"]
        table.add_row(node["name"], status, str(node["tasks"]), used, *cards, *link * connect, labels)
    return table


def how_busy(cards: list[dict[str, Any]]) -> str:
    """Return the mean of the cards that say how busy they are, as a percentage."""
    known = [card["busy"] for card in cards if card.get("busy") is not None]  # an older scheduler reports none
    return f"{sum(known) / len(known):.0%}" if known else "unknown" * bool(cards)


def listed_cards(cards: list[dict[str, Any]]) -> str:
    """Say which task has which card: ``0-1: 12.0, 2: free, 3: drained``."""
    runs: list[tuple[str, list[int]]] = []
    for card in cards:
        whose = card["status"] if card["job"] is None else f"{card['job']}.{card['task']}"
        text = f"{whose} (draining)" if card["job"] is not None and card["status"] == "draining" else whose
        if runs and runs[-1][0] == text and runs[-1][1][-1] == card["card"] - 1:
            runs[-1][1].append(card["card"])
        else:
            runs.append((text, [card["card"]]))
    return ", ".join(f"{these[0]}{f'-{these[-1]}' * (len(these) > 1)}: {text}" for text, these in runs)


def quantities(values: dict[str, int]) -> str:
    """Format a vector: ``cpu=1 memory=4Gi``."""
    return " ".join(f"{name}={round_quantity(name, amount)}" for name, amount in values.items())


def age(since: float) -> str:
    return span(time.time() - since)


def exact_span(seconds: float) -> str:
    """Format a duration exactly, in the largest unit of which it is a whole number."""
    units = (("d", 86400), ("h", 3600), ("min", 60))
    unit, size = next(((unit, size) for unit, size in units if seconds and seconds % size == 0), ("s", 1))
    return f"{seconds / size:g}{unit}"


def plain_table(*columns: str, wraps: Collection[str] | None = None) -> Table:
    """Return an empty table; ``>`` before a column's name aligns it right. Columns in `wraps` may wrap; by default, words."""
    table = PlainTable()
    for column in columns:
        right = column.startswith(">")
        name = column.lstrip(">")
        whole = name not in wraps if wraps is not None else right or name in ("", "status", "when", "who")
        least = 12 if name == "used" else len(name)
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=whole, min_width=least)
    return table


def token_table(tokens: list[dict[str, Any]]) -> Table:
    table = plain_table("token", "user", "expires", "for")
    for token in tokens:
        queues = ", ".join(written(name) for name in token["queues"]) if token["queues"] is not None else ""
        expires = "never" if token["expires_at"] is None else moment(token["expires_at"])
        table.add_row(token["id"], token["user"], expires, f"{queues}{' read-only' * token['read_only']}".strip())
    return table


def log_table(entries: list[dict[str, Any]]) -> Table:
    """Return the audit log; a refused request has the reason below it."""
    table = plain_table("when", "who", "what")
    for entry in entries:
        table.add_row(moment(entry["at"]), entry["by"], entry["what"])
        if entry["outcome"] == "refused":
            table.add_row("", "", f"refused: {entry['why']}")
    return table


def why_lines(found: dict[str, Any]) -> list[str]:
    """Describe why a job waits, and when it should start."""
    lines = [
        f"job {found['job']}: {why_text(found)}",
        *(found[key] for key in ("calls", "claim", "safety", "output") if key in found),
    ]
    lines += [kept_for_it(found["reserved"])] if "reserved" in found else []
    lines += [kept_until(kept) for kept in found.get("kept", [])[:3]]
    return lines + [f"expected: {found['when']['text']}"] * (found["when"]["reason"] not in ("over", "running"))


def kept_until(kept: dict[str, Any]) -> str:
    """Describe a reservation of another job: for which job, and until when."""
    why = "" if kept["why"] == "reservation" else f" for its {kept['why']}"
    over = f", and to be used until {moment(kept['end'])}" if kept["start"] is not None and kept.get("end") is not None else ""
    return f"reserved for job {kept['job']} of {kept['queue']}{why}{_complete(kept)}{over}"


def kept_for_it(kept: dict[str, Any]) -> str:
    """Describe the job's own reservation: since when, and until when."""
    off = f", postponed {kept['slips']} time{'s' * (kept['slips'] > 1)}" if kept["slips"] else ""
    idle = f"; {_idle(kept)} is idle for it now" if kept["idle"] else ""
    before = "; it may start before, elsewhere or in its queue's turn" if kept["start"] is not None else ""
    return f"room is reserved for it since {moment(kept['made'])}{off}{_complete(kept)}{before}{idle}"


def _complete(kept: dict[str, Any]) -> str:
    """Return when all of what is reserved is expected to be free, as the end of a sentence; nothing if nobody knows."""
    if kept["start"] is None:
        return ""
    left = kept["start"] - time.time()
    soon = f"in {span(left)}, at {moment(kept['start'])}" if left > 1 else "any moment"
    return f": all of it is expected to be free {soon}"


def _idle(kept: dict[str, Any]) -> str:
    return " and ".join(f"{round_quantity(name, amount)} {name}" for name, amount in kept["idle"].items())


def _kept(kept: dict[str, Any]) -> str:
    tasks = f"{kept['tasks']} task{'s' * (kept['tasks'] > 1)} on {kept['nodes']} node{'s' * (kept['nodes'] > 1)}"
    return f"{tasks} {kept_until(kept)}; {_idle(kept) or 'nothing'} is idle for it now"


WHY_BELOW = {
    "about to start": "until tasks that are about to start have started",
    "not yet converged": "until others' tasks end",
    "fragmentation": "because no node has room for its next task",
    "reservations": "because of reservations for others",
    "offers": "until frameworks answer their offers",
    "limit": "because of a limit",
    "quota": "because of quota that others do not lend",
    "constraint": "because no node can hold its pending tasks",
}
"""Why queues have no more, as the end of a sentence."""
WRONGED = {
    "below": ("is below its share", "are below their shares"),
    "envies": ("could run more with what another has", "could run more with what others have"),
    "startable": ("waits beside free room", "wait beside free room"),
}


def _why_not_fair(queues: list[dict[str, Any]]) -> str:
    """Name the queues that are not fairly served, grouped by how and why."""
    wronged: dict[tuple[str, str], list[str]] = {}
    for queue in queues:
        if queue["status"] != "fair":
            wronged.setdefault((queue["status"], queue["why"]), []).append(queue["name"])
    return "; ".join(
        f"{listed(names)} {WRONGED[status][len(names) > 1]} {WHY_BELOW.get(why, '')}".rstrip()
        for (status, why), names in wronged.items()
    )


def _fairness_columns(queues: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the columns of what queues have and are entitled to, for :func:`fairlead.text_tables.folded`."""
    parts = [f"{queue['entitled']:.1%}" if queue["entitled"] is not None else "?" for queue in queues]
    return {
        "queue": [queue["name"] for queue in queues],
        ">share": [f"{queue['dominant_share']:.1%}" for queue in queues],
        "of": [queue["dominant_resource"] or "" for queue in queues],
        ">entitled": parts,
        "status": [queue["status"] for queue in queues],
        ">running": [str(queue["running"]) for queue in queues],
        ">waiting": [str(queue["waiting"]) for queue in queues],
        "limited by": [queue["why"] for queue in queues],
    }


def show_fairness(found: dict[str, Any], most: int | None = None) -> None:
    """Print the audit of what runs now, with at most `most` leaves per queue."""
    if not found["queues"]:
        print("nothing runs, and no pending job could start")
        return
    shown, more = fewer(found["queues"], most)
    columns, room, wraps = _fairness_columns(shown), width(WITHOUT_TERMINAL), ("limited by",)
    print(printed(*folded(with_names_cut(columns, room, wraps), room, wraps=wraps), width=room))
    print("\n".join([*more, ""]))
    signs = {True: "✓", False: "✗", None: " "}
    for finding in found["findings"]:
        print_sentence(f"{signs[finding['holds']]} {finding['text']}")
    skipped = [queue for queue in found["queues"] if queue["passed_over_for"]]
    for queue in skipped[: MOST_SKIPPED if most else None]:
        others, were = listed(queue["passed_over_for"]), "was" if len(queue["passed_over_for"]) == 1 else "were"
        waits = f"{queue['name']}, at {queue['dominant_share']:.1%}, has waited for {age(queue['waits_since'])}"
        print_sentence(f"– {waits}, while {others}, with no smaller share, {were} served")
    if most and len(skipped) > MOST_SKIPPED:
        print(f"– and {len(skipped) - MOST_SKIPPED:,} more wait like this; --all shows them")
    for kept in found["reservations"]:
        print_sentence(f"– {_kept(kept)}")
    if found["fair"] is False:
        print_sentence(f"not fair at this moment: {_why_not_fair(found['queues'])}")
    elif found["fair"]:
        print("fair at this moment, within one task")
    else:
        print_sentence("fair at this moment, within one task; `fairlead audit --over 1h` shows if queues take turns")
