"""The pages of `fairlead top`, as pure functions of a snapshot and of the keys pressed."""

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fairlead.cli.job import job_lines
from fairlead.cli.tables import how_busy, job_table, listed_cards, node_table, plain_table, why_lines
from fairlead.cli.usage import added_up, resources_of, usage_table
from fairlead.model.quantity import round_quantity, total_of
from fairlead.plain_text import plain, plain_lines
from fairlead.text_tables import in_lines, printed

HISTORY = 600
"""Samples kept of each queue's share."""
LEVELS = " ▁▂▃▄▅▆▇█"
MOST_NODES = 4
"""Nodes of which the cards are shown."""
PAGE = 10
"""Rows that PageUp and PageDown scroll by."""
Seen = dict[str, Any]
"""A snapshot of the scheduler: its status, queues, nodes and jobs."""
History = dict[str, deque[float]]

QUEUE_ORDERS: dict[str, Callable[[Any], Any]] = {
    "name": lambda queue: queue["name"].split("/"),
    "share": lambda queue: (-queue["dominant_share"], queue["name"]),
    "running": lambda queue: (-queue["running"], queue["name"]),
    "waiting": lambda queue: (-queue["waiting"], queue["name"]),
}
JOB_ORDERS: dict[str, Callable[[Any], Any]] = {
    "status": lambda job: 0,  # the order of fetching: running, waiting, others
    "newest": lambda job: -job["id"],
    "queue": lambda job: (job["queue"], -job["id"]),
    "tasks": lambda job: (-job["tasks"], -job["id"]),
}
PAGES = {"1": "cluster", "2": "nodes", "3": "people", "4": "gpus"}
_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)
_MOVES = {
    "\x1b[A": -1, "\x1bOA": -1, "k": -1, "\x1b[B": 1, "\x1bOB": 1, "j": 1, "\x1b[5~": -PAGE, "\x1b[6~": PAGE, " ": PAGE,
    "\x1b[H": -(10**9), "g": -(10**9), "\x1b[F": 10**9, "G": 10**9,
}  # fmt: skip


@dataclass(frozen=True)
class View:
    """The state of the screen that keys change.

    which : the table that keys scroll and sort: 0 for queues, 1 for jobs.
    page : "cluster", "nodes", "people", "gpus", or "job", the job `job` with the end of its `stream`.
    cancels : "asked" once `c` was pressed for the job, "yes" once that was confirmed.
    row : the first row shown of a page other than the cluster's.
    first : the chosen row of each table.
    order : the order of each table.
    wanted : the filter: text in a queue's name, or in a job's name, queue or user.
    typing : True while the filter is being typed.
    idle : True to show queues without running and pending tasks.
    """

    which: int = 1
    page: str = "cluster"
    job: int | None = None
    stream: str = "out"
    cancels: str = ""
    row: int = 0
    first: tuple[int, int] = (0, 0)
    order: tuple[str, str] = ("name", "status")
    wanted: str = ""
    typing: bool = False
    idle: bool = False


def keys_in(text: str) -> list[str]:
    """Split a terminal's input into keys: characters and escape sequences."""
    return _KEY.findall(text)


def pressed(view: View, key: str, seen: Seen) -> View | None:
    """Return the view after a key; None to quit."""
    if view.typing:
        return _typed(view, key)
    if view.cancels:
        return replace(view, cancels="yes" if key == "y" else "")
    if key in ("q", "Q"):
        return None
    if key in PAGES:
        return replace(view, page=PAGES[key], job=None, row=0)
    if view.page != "cluster":
        return _on_page(view, key)
    if key in ("\r", "\n") and view.which and (jobs := chosen(view, seen)[1]):
        return replace(view, page="job", job=jobs[min(view.first[1], len(jobs) - 1)]["id"], row=0)
    if key == "\t":
        return replace(view, which=1 - view.which)
    if key == "s":
        orders = [*(JOB_ORDERS if view.which else QUEUE_ORDERS)]
        following = orders[(orders.index(view.order[view.which]) + 1) % len(orders)]
        return replace(view, order=_with(view.order, view.which, following))
    if key == "i":
        return replace(view, idle=not view.idle, first=(0, view.first[1]))
    if key == "/":
        return replace(view, typing=True)
    if key == "\x1b":
        return replace(view, wanted="", first=(0, 0))
    if key in _MOVES:
        last = max(0, len(chosen(view, seen)[view.which]) - 1)
        first = max(0, min(last, view.first[view.which] + _MOVES[key]))
        return replace(view, first=_with(view.first, view.which, first))
    return view


def _on_page(view: View, key: str) -> View:
    """Return the view after a key on another page than the cluster's."""
    if key == "\x1b":
        return replace(view, page="cluster", job=None)
    if view.page == "job" and key in ("c", "l"):
        return replace(view, cancels="asked") if key == "c" else replace(view, stream="out" if view.stream == "err" else "err")
    return replace(view, row=max(0, view.row + _MOVES.get(key, 0)))


def _typed(view: View, key: str) -> View:
    if key in ("\r", "\n"):
        return replace(view, typing=False)
    if key == "\x1b":
        return replace(view, typing=False, wanted="", first=(0, 0))
    if key in ("\x7f", "\b"):
        return replace(view, wanted=view.wanted[:-1], first=(0, 0))
    return replace(view, wanted=view.wanted + key, first=(0, 0)) if key.isprintable() and len(key) == 1 else view


def _with(pair: tuple[Any, Any], which: int, value: Any) -> tuple[Any, Any]:
    return (value, pair[1]) if which == 0 else (pair[0], value)


def chosen(view: View, seen: Seen) -> tuple[list[Any], list[Any]]:
    """Return the filtered queues and jobs, in their order."""
    text = view.wanted.lower()
    queues = [
        queue
        for queue in seen["queues"]
        if queue["name"] != "/" and text in queue["name"].lower() and (view.idle or not _is_idle(queue))
    ]
    jobs = [
        job
        for job in seen["jobs"]
        if any(text in part.lower() for part in (job["name"] or " ".join(job["argv"]), job["queue"], job["user"]))
    ]
    return sorted(queues, key=QUEUE_ORDERS[view.order[0]]), sorted(jobs, key=JOB_ORDERS[view.order[1]])


def _is_idle(queue: Any) -> bool:
    return not queue["running"] and not queue["waiting"]


def remember(seen: Seen, history: History) -> None:
    for queue in seen["queues"]:
        history.setdefault(queue["name"], deque(maxlen=HISTORY)).append(queue["dominant_share"])


def frame(seen: Seen, history: History, view: View, width: int, height: int, interval: float, keys: bool = True) -> Group:
    """Draw a snapshot on `width` columns and `height` lines."""
    status, nodes = seen["status"], seen["nodes"]
    root = seen["queues"][0]
    up = [node for node in nodes if node["status"] != "lost"]
    unheard = sum(node.get("unheard") is not None for node in nodes)  # a scheduler of an older version reports none
    head = Text.assemble(
        ("fairlead", "bold"),
        f"  {len(up)} node{'s' * (len(up) != 1)}{f' ({unheard} not heard since the restart)' * bool(unheard)}, "
        f"{root['running']} running, {root['waiting']} waiting",
        (f"  every {interval:g} s, q quits" if keys else "", "dim"),
    )
    parts: list[Any] = [head]
    if status["stalled"]:
        parts.append(Text(plain(f"stalled: {status['stalled']}"), style="bold red"))
    if view.page != "cluster":
        rows = page_rows(view.page, seen, view.row, width, height - 4 - bool(status["stalled"]))
        return Group(*parts, Text(), *rows, _line(_keys(view)))
    bars, cards = _bars(up, root["used"], width), _cards(up)
    queues, jobs = chosen(view, seen)
    left = max(6, height - bars.row_count - len(cards) - 9 - bool(status["stalled"]))  # lines for the rows of both tables
    most = max(3, left // 2, left - len(jobs))
    queue_rows = _from(queues, view.first[0], most)
    room = max(3, left - min(len(queues), most))
    job_rows = _from(jobs, view.first[1], room)
    parts += [bars, *cards, Text(), _queue_table(queue_rows, history, view.order[0] == "name", width), Text()]
    table = job_table(job_rows)
    if keys and view.which and job_rows:
        table.rows[min(view.first[1] - max(0, min(view.first[1], len(jobs) - room)), len(job_rows) - 1)].style = "reverse"
    parts.append(table)
    foot = [_left_out(view, seen, len(queues) - len(queue_rows), len(jobs) - len(job_rows)), _keys(view) if keys else ""]
    return Group(*parts, *(_line(line) for line in foot if line))


def _line(text: str) -> Text:
    return Text(plain(text), style="dim", no_wrap=True)


def _from(rows: list[Any], first: int, most: int) -> list[Any]:
    """Return at most `most` rows from `first` on, or the last ones."""
    begin = max(0, min(first, len(rows) - most))
    return rows[begin : begin + most]


def _bars(up: list[Any], used: dict[str, int], width: int) -> Table:
    bars = Table.grid(padding=(0, 1))
    for name, amount in total_of(node["capacity"] for node in up).items():
        share = used.get(name, 0) / amount if amount else 0.0
        text = f"{round_quantity(name, used.get(name, 0))}/{round_quantity(name, amount)}"
        bars.add_row(Text(plain(name)), bar(share, max(10, min(50, width - 40))), f"{share:4.0%}", text)
    return bars


def _cards(up: list[Any]) -> list[Text]:
    """Say whose the cards of nodes are, a line for each of a few nodes."""
    with_cards = [node for node in up if node.get("cards")]
    lines = [f"{node['name']} cards {listed_cards(node['cards'])}" for node in with_cards[:MOST_NODES]]
    more = len(with_cards) - len(lines)
    lines += [f"{more} more node{'s' * (more > 1)} with cards: see `fairlead nodes`"] if more else []
    return [Text(plain(line), no_wrap=True, overflow="ellipsis") for line in lines]


def _queue_table(queues: list[Any], history: History, as_tree: bool, width: int) -> Table:
    table = plain_table("queue", "share", ">now", "over time", ">running", ">waiting")
    room = max(8, min(60, width - 74))
    over_time = {queue["name"]: list(history[queue["name"]])[-room:] for queue in queues}
    largest = max((share for shares in over_time.values() for share in shares), default=0.0)
    shown: set[str] = set()
    for queue in queues:
        # A queue is indented below its parent if that is shown above it; otherwise it has its full name.
        parent, _, last = queue["name"].rpartition("/")
        name = "  " * queue["name"].count("/") + last if as_tree and parent in shown else queue["name"]
        shown.add(queue["name"])
        share = bar(queue["dominant_share"], 12), f"{queue['dominant_share']:.1%} {queue['dominant_resource'] or ''}".strip()
        past = sparkline(over_time[queue["name"]], largest)
        table.add_row(name, *share, past, str(queue["running"]), str(queue["waiting"]))
    return table


def _left_out(view: View, seen: Seen, more_queues: int, more_jobs: int) -> str:
    idle = 0 if view.idle else sum(_is_idle(queue) for queue in seen["queues"] if queue["name"] != "/")
    parts = [
        f"{count} {what}{'s' * (count != 1)}{more}"
        for count, what, more in (
            (more_queues, "more queue", ""), (more_jobs, "more job", ""), (idle, "idle queue", " hidden"),
        )
        if count
    ]  # fmt: skip
    return ", ".join(parts)


def _keys(view: View) -> str:
    if view.typing:
        return f"/{view.wanted}▏  Enter keeps it, Esc clears it"
    if view.cancels:
        return f"cancel job {view.job}? y cancels it, any other key does not"
    if view.page != "cluster":
        own = f"  c cancels it  l shows {'errors' if view.stream == 'out' else 'output'}" if view.page == "job" else ""
        return f"↑↓ scroll{own}  Esc back  1-4 cluster, nodes, people, GPUs  q quits"
    only = f" {view.wanted!r}, Esc clears it" if view.wanted else ""
    pages = "  Enter opens a job" * view.which + "  2-4 nodes, people, GPUs"
    return f"↑↓ {('queues', 'jobs')[view.which]} (tab)  s by {view.order[view.which]}  i idle  / only{only}{pages}  q quits"


def bar(share: float, width: int) -> Text:
    """Draw a bar of `width` characters, filled to a share; red above 1, which a weighted share may exceed."""
    full = min(width, round(share * width))
    return Text("█" * full, style="red" if share > 1.0005 else "green") + Text("░" * (width - full), style="dim")


def sparkline(values: Iterable[float], top: float) -> str:
    return "".join(LEVELS[round(value / top * (len(LEVELS) - 1))] if top else LEVELS[0] for value in values)


def page_rows(page: str, seen: Seen, first: int, width: int, height: int) -> list[Text]:
    """Return the lines of a page that fit, from `first` on."""
    made = {"job": _job, "nodes": _nodes, "people": _people, "gpus": _card_page}[page](seen, width)
    return [Text(line, no_wrap=True, overflow="ellipsis") for line in _from(made, first, height)]


def _lines(table: Table, empty: str, width: int) -> list[str]:
    return printed(table, width=width).splitlines() if table.row_count else [empty]


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
    return ["over the last day", *_lines(usage_table(sums, ["user"], resources_of(sums), width), "no usage", width)]


def _card_page(seen: Seen, width: int) -> list[str]:
    table = plain_table("node", ">card", "status", "job", "user", "queue", ">busy", ">memory")
    for node in seen["nodes"]:
        for card in node.get("cards", []):  # a scheduler of an older version reports none
            job = "" if card["job"] is None else f"{card['job']}.{card['task']}"
            memory = card.get("memory") and "/".join(round_quantity("memory", card[x]) for x in ("memory_used", "memory"))
            whose = card["user"] or "", card["queue"] or ""
            table.add_row(node["name"], str(card["card"]), card["status"], job, *whose, how_busy([card]), memory or "unknown")
    return _lines(table, "no node has GPUs", width)
