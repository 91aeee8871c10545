"""`fairlead top`: the cluster, the queues with their shares over time, and the newest jobs, on a full screen."""

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fairlead.cli.top_screen import History, Seen, View, frame, keys_in, pressed, remember
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.plain_text import plain

MOST_JOBS = 200
"""Jobs of each status that are fetched; scrolling ends there."""


def run_top(connection: Connection, interval: float, once: bool) -> None:
    """Show the screen until `q` is pressed; with `once`, print it once."""
    history: History = {}
    console = Console(highlight=False)
    if once or not console.is_terminal:
        seen = _look(connection)
        remember(seen, history)
        console.print(frame(seen, history, View(), console.width, 1000, interval, keys=False))
        return
    view: View | None = View()
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while view is not None:
            until = time.monotonic() + interval
            try:
                seen = _look(connection)
            except ServiceError as error:  # it may come back
                live.update(Text(plain(f"fairlead: {error}"), style="red"), refresh=True)
                if "q" in _typed(interval):
                    return
                continue
            remember(seen, history)
            view = _shown(live, console, seen, history, view, interval, until)


def _shown(
    live: Live, console: Console, seen: Seen, history: History, view: View, interval: float, until: float
) -> View | None:
    """Draw the snapshot, again after each key, until the next update is due."""
    going: View | None = view
    while going is not None:
        live.update(frame(seen, history, going, console.width, console.height, interval), refresh=True)
        typed = _typed(max(0.05, until - time.monotonic()))
        if not typed:
            return going
        for key in keys_in(typed):
            going = pressed(going, key, seen)
            if going is None:
                return None
    return None


def _look(connection: Connection) -> Seen:
    found: Seen = {"status": connection.get("/v1/status"), "jobs": []}
    for what in ("queues", "nodes"):
        found[what] = connection.get(f"/v1/{what}")[what]
    for status in ("running", "waiting", "held"):
        found["jobs"] += connection.get("/v1/jobs", status=status, limit=MOST_JOBS)["jobs"]
    if len(found["jobs"]) < 50:
        known = {job["id"] for job in found["jobs"]}
        found["jobs"] += [job for job in connection.get("/v1/jobs", limit=50)["jobs"] if job["id"] not in known]
    return found


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Read single keys without Enter, and restore the terminal afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _typed(seconds: float) -> str:
    """Wait up to `seconds` for keys; empty if none was pressed."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return ""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 1024).decode(errors="replace") if ready else ""
