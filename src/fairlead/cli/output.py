"""Copies the output of tasks to standard output and standard error, and waits for jobs with a progress bar."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, BinaryIO

from fairlead.client.connection import Connection
from fairlead.client.jobs import OVER
from fairlead.client.service_error import ServiceError
from fairlead.model.api_types import JobInfo

UNAVAILABLE = 503
"""HTTP status of output on a node that does not answer."""
REFRESH_SECONDS = 1.0
"""Time between updates of the progress bar."""


def wait_with_progress(connection: Connection, jobs: list[int], timeout: float | None) -> list[JobInfo] | None:
    """Wait until jobs have ended, with a progress bar on a terminal; None after `timeout` seconds."""
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
            left = REFRESH_SECONDS if until is None else max(0.01, min(REFRESH_SECONDS, until - time.monotonic()))
            first = connection.get(f"/v1/jobs/{going[0]}", wait=left)
            others = {job: connection.get(f"/v1/jobs/{job}") for job in going[1:]}
            found = [{going[0]: first, **others}.get(job["id"], job) for job in found]


class TaskOutput:
    """Copies a task's output to standard output and standard error; `copy` resumes where it stopped.

    Output is read by offset, so a restart of the scheduler loses nothing.
    """

    def __init__(self, connection: Connection, job: int, index: int) -> None:
        self._connection, self._tasks = connection, f"/v1/jobs/{job}/tasks"
        self._job, self._index = job, index
        self._offsets = {"out": 0, "err": 0}
        self._last = {"out": b"", "err": b""}
        # where further attempts begin, and their numbers
        self._begins: dict[str, list[tuple[int, int]]] = {"out": [], "err": []}
        self._known = 1

    def over(self, connection: Connection) -> "TaskOutput":
        """Return a copy that reads the rest over another connection."""
        rest = TaskOutput(connection, self._job, self._index)
        rest._offsets, rest._begins, rest._known, rest._last = self._offsets, self._begins, self._known, self._last
        return rest

    def copy(self, follow: bool, on_poll: Callable[[dict[str, Any]], None] = lambda task: None) -> dict[str, Any]:
        """Copy the output so far, or with `follow` until the task ends. Return the task as it is then.

        `on_poll` is called with the task at each poll.
        """
        pause = 0.01
        while True:
            # Read the status first: the output of a task that has ended is complete.
            found = self._connection.get(self._tasks, first=self._index, limit=1)["tasks"]
            task: dict[str, Any] = found[0] if found else {"index": self._index, "status": "none", "attempt": 0}
            on_poll(task)
            self._find_attempts(task["attempt"])
            goes_on = follow and task["status"] not in OVER
            moved = [self._copy(stream, retry=goes_on) for stream in ("out", "err")]
            if not goes_on:
                return task
            pause = 0.01 if any(moved) else min(0.2, pause * 1.5)
            time.sleep(pause)

    def print_tail(self, lines: int) -> None:
        """Print the last lines of each stream so far; `copy` resumes after them."""
        for stream, target in (("out", sys.stdout.buffer), ("err", sys.stderr.buffer)):
            path = f"{self._tasks}/{self._index}/output/{stream}"
            kept, self._offsets[stream] = _last_lines(self._connection, path, lines)
            target.write(b"".join(kept))
            target.flush()

    def _copy(self, stream: str, retry: bool) -> bool:
        """Copy new output; return True if there was some. `retry` tolerates a node that does not answer."""
        target = sys.stdout.buffer if stream == "out" else sys.stderr.buffer
        before = self._offsets[stream]
        while True:
            path = f"{self._tasks}/{self._index}/output/{stream}"
            try:
                piece = self._connection.get_bytes(path, offset=self._offsets[stream])
            except ServiceError as error:
                if not retry or error.status != UNAVAILABLE:
                    raise
                piece = b""
            if not piece:
                return self._offsets[stream] != before
            self._offsets[stream] += len(piece)
            self._write(stream, target, piece)
            target.flush()

    def _write(self, stream: str, target: BinaryIO, piece: bytes) -> None:
        """Write the piece that ends at the stream's offset; on a terminal with a line before each further attempt."""
        begin = self._offsets[stream] - len(piece)
        written = 0
        for at, number in self._begins[stream]:
            if begin <= at < self._offsets[stream] and target.isatty():
                before = piece[: at - begin] or self._last[stream]
                end_of_line = b"" if before[-1:] in (b"", b"\n") else b"\n"
                target.write(piece[written : at - begin] + end_of_line + f"--- attempt {number} ---\n".encode())
                written = at - begin
        target.write(piece[written:])
        self._last[stream] = piece[-1:]

    def _find_attempts(self, attempt: int) -> None:
        """Read where attempts begin, if there are more of them than before."""
        if attempt > self._known and (sys.stdout.isatty() or sys.stderr.isatty()):
            with suppress(ServiceError):  # unknown to an older scheduler; its node does not answer
                found = self._connection.get_bytes(f"{self._tasks}/{self._index}/output/attempts")
                lines = [[int(word) for word in line.split()] for line in found.splitlines()]
                self._begins = {"out": [(at, n) for n, at, _ in lines], "err": [(at, n) for n, _, at in lines]}
        self._known = attempt


def print_all(connection: Connection, job: int, tail: int | None) -> None:
    """Print the output of all tasks of a job, or its last `tail` lines each, prefixed with the task's index.

    If a node does not answer, the others' output is printed before the first such ServiceError is raised.
    """
    unread: ServiceError | None = None
    for index in range(connection.get(f"/v1/jobs/{job}")["tasks"]):
        for stream, target in (("out", sys.stdout.buffer), ("err", sys.stderr.buffer)):
            try:
                lines, _ = _last_lines(connection, f"/v1/jobs/{job}/tasks/{index}/output/{stream}", tail)
            except ServiceError as error:
                if error.status != UNAVAILABLE:
                    raise
                unread = unread or error
                continue
            for line in lines:
                target.write(f"{index}: ".encode() + line.removesuffix(b"\n") + b"\n")
            target.flush()
    if unread is not None:
        raise unread


def _last_lines(connection: Connection, path: str, most: int | None) -> tuple[Iterable[bytes], int]:
    """Return the last `most` lines of an output (all if None), and its length in bytes."""
    kept: deque[bytes] = deque(maxlen=most)
    offset, begun = 0, b""
    while piece := connection.get_bytes(path, offset=offset):
        offset += len(piece)
        *whole, begun = (begun + piece).split(b"\n")
        kept.extend(line + b"\n" for line in whole)
    if begun:
        kept.append(begun)
    return kept, offset
