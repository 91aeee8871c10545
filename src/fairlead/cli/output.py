"""A task's output, copied to this terminal as it comes."""

import sys
import time
from typing import Any

from fairlead.client.connection import Connection
from fairlead.client.jobs import OVER
from fairlead.model.api_types import JobInfo

LOOK_AGAIN = 1.0
"""Seconds between looks at how far jobs are that somebody waits for."""


def wait_with_progress(connection: Connection, jobs: list[int], timeout: float | None) -> list[JobInfo] | None:
    """Wait until jobs have ended, with a progress bar on a terminal; None where the time was over before."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    terminal = Console(stderr=True)
    until = time.monotonic() + timeout if timeout is not None else None
    with Progress(*columns, console=terminal, disable=not terminal.is_terminal) as progress:
        found: list[JobInfo] = [connection.get(f"/v1/jobs/{job}") for job in jobs]
        bars = [progress.add_task(f"job {job['id']}", total=job["tasks"]) for job in found]
        while True:
            for bar, job in zip(bars, found, strict=True):
                progress.update(bar, completed=job["succeeded"] + job["failed"] + job["cancelled"])
            going = [job["id"] for job in found if job["status"] not in OVER]
            if not going:
                return found
            if until is not None and time.monotonic() > until:
                return None
            left = LOOK_AGAIN if until is None else max(0.01, min(LOOK_AGAIN, until - time.monotonic()))
            first = connection.get(f"/v1/jobs/{going[0]}", wait=left)
            others = {job: connection.get(f"/v1/jobs/{job}") for job in going[1:]}
            found = [{going[0]: first, **others}.get(job["id"], job) for job in found]


def stream_task(connection: Connection, job: int, index: int, follow: bool) -> dict[str, Any]:
    """Copy what a task wrote to standard output and standard error; with `follow`, until it is over.

    Returns the task as it is then. Its output is read on by offset, so a scheduler that is restarted meanwhile is no matter.
    """
    offsets = {"out": 0, "err": 0}
    pause = 0.01
    while True:
        # The status first: what a task that is over wrote is there already.
        found = connection.get(f"/v1/jobs/{job}/tasks", first=index, limit=1)["tasks"]
        task: dict[str, Any] = found[0] if found else {"index": index, "status": "none"}
        moved = False
        for stream, target in (("out", sys.stdout.buffer), ("err", sys.stderr.buffer)):
            while True:
                piece = connection.get_bytes(f"/v1/jobs/{job}/tasks/{index}/output/{stream}", offset=offsets[stream])
                if not piece:
                    break
                moved = True
                offsets[stream] += len(piece)
                target.write(piece)
                target.flush()
        if task["status"] in OVER or not follow:
            return task
        pause = 0.01 if moved else min(0.2, pause * 1.5)
        time.sleep(pause)
