"""`fairlead top`: the cluster, the queues with their shares over time, and the newest jobs, on a full screen."""

import contextlib
import select
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlead.cli.tables import job_table, plain_table
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.model.quantity import round_quantity
from fairlead.plain_text import plain

HISTORY = 600
"""Samples of each queue's share that are kept."""
LEVELS = " ▁▂▃▄▅▆▇█"


def run_top(connection: Connection, interval: float, once: bool) -> None:
    """Show the screen until `q` is pressed; with `once`, print it a single time."""
    history: dict[str, deque[float]] = {}
    console = Console(highlight=False)
    if once or not console.is_terminal:
        console.print(frame(_look(connection), history, console.width, 1000, interval))
        return
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            try:
                seen = _look(connection)
            except ServiceError as error:  # it may be on its way back
                live.update(Text(plain(f"fairlead: {error}"), style="red"), refresh=True)
            else:
                live.update(frame(seen, history, console.width, console.height, interval), refresh=True)
            if _pressed_q(max(0.05, interval - (time.monotonic() - began))):
                return


def frame(seen: dict[str, Any], history: dict[str, deque[float]], width: int, height: int, interval: float) -> Group:
    """Draw what was seen; the history of shares is kept on."""
    status, queues, nodes, jobs = seen["status"], seen["queues"], seen["nodes"], seen["jobs"]
    for queue in queues:
        history.setdefault(queue["name"], deque(maxlen=HISTORY)).append(queue["dominant_share"])
    root = queues[0]
    up = [node for node in nodes if node["status"] != "lost"]
    head = Text.assemble(
        ("fairlead", "bold"),
        f"  {len(up)} node{'s' * (len(up) != 1)}, {root['running']} running, {root['waiting']} waiting",
        (f"  every {interval:g} s, q quits", "dim"),
    )
    parts: list[Any] = [head]
    if status["stalled"]:
        parts.append(Text(plain(f"stalled: {status['stalled']}"), style="bold red"))
    capacity: dict[str, int] = {}
    for node in up:
        for name, amount in node["capacity"].items():
            capacity[name] = capacity.get(name, 0) + amount
    bars = Table.grid(padding=(0, 1))
    for name, amount in capacity.items():
        used = root["used"].get(name, 0)
        share = used / amount if amount else 0.0
        text = f"{round_quantity(name, used)}/{round_quantity(name, amount)}"
        bars.add_row(Text(plain(name)), bar(share, max(10, min(50, width - 40))), f"{share:4.0%}", text)
    parts += [bars, Text()]

    rows = max(3, (height - len(capacity) - 8) // 2)
    table = plain_table("queue", "share", ">now", "over time", ">running", ">waiting")
    room = max(8, min(60, width - 74))
    shown = [queue for queue in queues if queue["name"] != "/"]
    shown = sorted(shown, key=lambda q: (-q["running"] - q["waiting"], q["name"]))[:rows]
    over_time = {queue["name"]: list(history[queue["name"]])[-room:] for queue in shown}
    largest = max((share for shares in over_time.values() for share in shares), default=0.0)
    for queue in sorted(shown, key=lambda q: q["name"].split("/")):
        depth = queue["name"].count("/")
        table.add_row(
            "  " * depth + queue["name"].rpartition("/")[2],
            bar(queue["dominant_share"], 12),
            f"{queue['dominant_share']:.1%} {queue['dominant_resource'] or ''}".strip(),
            sparkline(over_time[queue["name"]], largest),
            str(queue["running"]),
            str(queue["waiting"]),
        )
    parts += [table, Text()]
    parts.append(job_table(jobs[:rows]))
    return Group(*parts)


def bar(share: float, width: int) -> Text:
    """A bar of so many characters, filled to a share; red where it is over 1, as a weighted share may be."""
    full = min(width, round(share * width))
    return Text("█" * full, style="red" if share > 1.0005 else "green") + Text("░" * (width - full), style="dim")


def sparkline(values: Iterable[float], top: float) -> str:
    """Values from 0 to `top`, one a character."""
    return "".join(LEVELS[round(value / top * (len(LEVELS) - 1))] if top else LEVELS[0] for value in values)


def _look(connection: Connection) -> dict[str, Any]:
    found = {"status": connection.get("/v1/status"), "jobs": []}
    for what in ("queues", "nodes"):
        found[what] = connection.get(f"/v1/{what}")[what]
    for status in ("running", "waiting", "held"):
        found["jobs"] += connection.get("/v1/jobs", status=status, limit=50)["jobs"]
    if len(found["jobs"]) < 50:
        known = {job["id"] for job in found["jobs"]}
        found["jobs"] += [job for job in connection.get("/v1/jobs", limit=50)["jobs"] if job["id"] not in known]
    return found


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Have single keys without Enter, and the terminal as it was afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed_q(seconds: float) -> bool:
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and sys.stdin.read(1) in ("q", "Q")
