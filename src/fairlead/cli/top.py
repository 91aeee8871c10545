"""`fairlead top`: the cluster, the queues with their shares over time, and the newest jobs, on a full screen."""

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fairlead.cli.top_screen import History, Seen, View, frame, keys_in, pressed, remember
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.plain_text import plain

MOST_JOBS = 200
"""Jobs of each status that are fetched; scrolling ends there."""
USAGE_SECONDS = 30.0
"""How long usage is shown before it is fetched again: the scheduler reads its journal for it."""
LOG_BYTES = 4096


def run_top(connection: Connection, interval: float, once: bool) -> None:
    """Show the screen until `q` is pressed; with `once`, print it once."""
    history: History = {}
    console = Console(highlight=False)
    if once or not console.is_terminal:
        seen = _look(connection, View(), {})
        remember(seen, history)
        console.print(frame(seen, history, View(), console.width, 1000, interval, keys=False))
        return
    view: View | None = View()
    seen = {}
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while view is not None:
            until = time.monotonic() + interval
            try:
                if view.cancels == "yes":
                    view = replace(view, cancels="")
                    connection.post(f"/v1/jobs/{view.job}/cancel", {})
                seen = _look(connection, view, seen)
            except ServiceError as error:  # it may come back
                live.update(Text(plain(f"fairlead: {error}"), style="red"), refresh=True)
                if "q" in _typed(interval):
                    return
                continue
            remember(seen, history)
            view = _shown(live, console, seen, history, view, interval, until)


def _shown(live: Live, console: Console, seen: Seen, history: History, view: View, interval: float, until: float) -> View | None:
    """Draw the snapshot, again after each key, until the next update is due, or a key asks for what it lacks."""
    going: View | None = view
    while going is not None and _wanted(going) == _wanted(view):
        live.update(frame(seen, history, going, console.width, console.height, interval), refresh=True)
        typed = _typed(max(0.05, until - time.monotonic()))
        if not typed:
            return going
        for key in keys_in(typed):
            going = pressed(going, key, seen)
            if going is None:
                return None
    return going


def _wanted(view: View) -> tuple[object, ...]:
    return view.page, view.job, view.stream, view.cancels == "yes"


def _look(connection: Connection, view: View, before: Seen) -> Seen:
    """Fetch what a view shows; reports on the past are kept from `before` for a while."""
    found: Seen = {"status": connection.get("/v1/status"), "jobs": []}
    found |= {what: connection.get(f"/v1/{what}")[what] for what in ("queues", "nodes")}
    for status in ("running", "waiting", "held"):
        found["jobs"] += connection.get("/v1/jobs", status=status, limit=MOST_JOBS)["jobs"]
    if len(found["jobs"]) < 50:
        known = {job["id"] for job in found["jobs"]}
        found["jobs"] += [job for job in connection.get("/v1/jobs", limit=50)["jobs"] if job["id"] not in known]
    if view.page == "job":
        found["job"] = _job(connection, f"/v1/jobs/{view.job}", view.stream)
    found |= {name: before[name] for name in ("usage", "usage_at") if name in before}
    if view.page == "people" and time.monotonic() > found.get("usage_at", 0.0) + USAGE_SECONDS:
        found["usage"], found["usage_at"] = connection.get("/v1/usage", seconds=86400)["usage"], time.monotonic()
    return found


def _job(connection: Connection, path: str, stream: str) -> Seen:
    """Fetch a job, why it waits, and the end of the log of a task that failed, runs, or ran."""
    job = connection.get(path)
    why = {**connection.get(f"{path}/why"), "when": connection.get(f"{path}/when")} if job["waiting"] else {}
    tasks = [connection.get(f"{path}/tasks", status=status, limit=1)["tasks"] for status in ("failed", "running", "succeeded")]
    task = next((some[0] for some in tasks if some), {"index": 0, "known_as": 0})
    try:
        data = connection.get_bytes(f"{path}/tasks/{task['index']}/output/{stream}", last=LOG_BYTES) if any(tasks) else b""
        log = data.decode(errors="replace")
    except ServiceError as error:  # it is another's
        log = str(error)
    return {"job": job, "why": why, "task": task["known_as"], "stream": stream, "log": log}


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
