"""The other pages of `fairlead top`: a job, nodes, people and GPUs, as pure functions of a snapshot."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.cli.job import job_lines
from fairlead.cli.tables import how_busy, node_table, plain_table, why_lines
from fairlead.cli.usage import added_up, resources_of, usage_table
from fairlead.model.quantity import round_quantity
from fairlead.plain_text import plain, plain_lines
from fairlead.text_tables import in_lines

Seen = dict[str, Any]


def page_rows(page: str, seen: Seen, first: int, width: int, height: int) -> list[Text]:
    """Return the lines of a page that fit, from `first` on."""
    made = {"job": _job, "nodes": _nodes, "people": _people, "gpus": _cards}[page](seen, width)
    begin = max(0, min(first, len(made) - height))
    return [Text(line, no_wrap=True, overflow="ellipsis") for line in made[begin : begin + height]]


def _lines(table: Table, empty: str, width: int) -> list[str]:
    """Return a table as lines of text."""
    if not table.row_count:
        return [empty]
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


def _job(seen: Seen, width: int) -> list[str]:
    found = seen["job"]
    sentences = why_lines(found["why"]) if found["why"] else []
    waits = [line for each in sentences for line in in_lines(plain(each), width).splitlines()]
    log = f"the end of what task {found['task']} wrote to std{found['stream']}:\n{plain_lines(found['log'])}"
    return [*job_lines(found["job"]), "", *waits, *([""] if waits else []), *log.splitlines()]


def _nodes(seen: Seen, width: int) -> list[str]:
    return _lines(node_table(seen["nodes"]), "no nodes yet", width)


def _people(seen: Seen, width: int) -> list[str]:
    sums = added_up(seen["usage"], ["user"])
    return ["over the last day", *_lines(usage_table(sums, ["user"], resources_of(sums)), "no usage", width)]


def _cards(seen: Seen, width: int) -> list[str]:
    table = plain_table("node", ">card", "status", "job", "user", "queue", ">busy", ">memory")
    for node in seen["nodes"]:
        for card in node.get("cards", []):  # a scheduler of an older version reports none
            job = "" if card["job"] is None else f"{card['job']}.{card['task']}"
            memory = card.get("memory") and "/".join(round_quantity("memory", card[x]) for x in ("memory_used", "memory"))
            whose = card["user"] or "", card["queue"] or ""
            table.add_row(node["name"], str(card["card"]), card["status"], job, *whose, how_busy([card]), memory or "unknown")
    return _lines(table, "no node has GPUs", width)
