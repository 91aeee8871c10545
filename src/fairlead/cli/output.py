"""Copies the output of tasks to standard output and standard error, and waits for jobs with a progress bar."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from fairlead.client.connection import Connection
from fairlead.client.jobs import OVER, SubmittedJob
from fairlead.client.service_error import ServiceError
from fairlead.failure import failing
from fairlead.model.api_types import JobInfo

UNAVAILABLE = 503
"""HTTP status of output on a node that does not answer."""
REFRESH_SECONDS = 1.0
"""Time between updates of the progress bar."""
MOST_READ = 2**20
"""Bytes of output in an answer, at most."""
MOST_BARS = 20
"""Jobs with a progress bar of their own, at most."""
Targets = dict[str, BinaryIO]
"""Where to copy standard output (`out`) and standard error (`err`)."""


def standard_targets() -> Targets:
    return {"out": sys.stdout.buffer, "err": sys.stderr.buffer}


@contextmanager
def targets_of(path: Path | None) -> Iterator[Targets]:
    """Give the file for both streams; without one, this command's own streams. Raises Failure."""
    if path is None:
        yield standard_targets()
        return
    with failing(f"{path}: cannot be written: ", OSError):
        file = path.open("wb")
    with file:
        yield {"out": file, "err": file}


def wait_with_progress(connection: Connection, jobs: list[int], timeout: float | None) -> list[JobInfo] | None:
    """Wait until jobs have ended, with a progress bar on a terminal; None after `timeout` seconds."""
    from fairlead.client.progress import progress_bars

    until = time.monotonic() + timeout if timeout is not None else None
    with progress_bars() as progress:
        found: dict[int, JobInfo] = {job: connection.get(f"/v1/jobs/{job}") for job in jobs}
        few = len(jobs) <= MOST_BARS
        bars = [progress.add_task(f"job {job}", total=found[job]["tasks"]) for job in jobs] if few else []
        together = None if few else progress.add_task("jobs", total=len(jobs))
        while True:
            for bar, job in zip(bars, found.values(), strict=False):
                progress.update(bar, completed=job["succeeded"] + job["failed"] + job["cancelled"])
            going = [number for number, job in found.items() if job["status"] not in OVER]
            if together is not None:
                progress.update(together, completed=len(jobs) - len(going))
            if not going:
                return [*found.values()]
            if until is not None and time.monotonic() > until:
                return None
            left = REFRESH_SECONDS if until is None else max(0.01, min(REFRESH_SECONDS, until - time.monotonic()))
            found[going[0]] = connection.get(f"/v1/jobs/{going[0]}", wait=left)
            for number in going[1:MOST_BARS]:
                found[number] = connection.get(f"/v1/jobs/{number}")


class TaskOutput:
    """Copies a task's output to standard output and standard error; `copy` resumes where it stopped.

    Output is read by offset, so a restart of the scheduler loses nothing, and another connection may read the rest.
    """

    def __init__(self, connection: Connection, job: int, index: int, targets: Targets | None = None) -> None:
        self.connection, self._tasks = connection, f"/v1/jobs/{job}/tasks"
        self._job, self._index = job, index
        self._targets = targets or standard_targets()
        self._offsets = {"out": 0, "err": 0}
        self._last = {"out": b"", "err": b""}
        # where further attempts begin, and their numbers
        self._begins: dict[str, list[tuple[int, int]]] = {"out": [], "err": []}
        self._known = 1

    def copy(self, follow: bool, on_poll: Callable[[dict[str, Any]], None] = lambda task: None) -> dict[str, Any]:
        """Copy the output so far, or with `follow` until the task ends. Return the task as it is then.

        `on_poll` is called with the task at each poll.
        """
        pause = 0.01
        while True:
            # Read the status first: the output of a task that has ended is complete.
            found = self.connection.get(self._tasks, first=self._index, limit=1)["tasks"]
            task: dict[str, Any] = found[0] if found else {"index": self._index, "status": "none", "attempt": 0}
            on_poll(task)
            self._find_attempts(task["attempt"])
            goes_on = follow and task["status"] not in OVER
            moved = [self._copy(stream, retry=goes_on) for stream in ("out", "err")]
            if not goes_on:
                return task
            pause = 0.01 if any(moved) else min(0.2, pause * 1.5)
            time.sleep(pause)

    def print_part(self, out: int, out_end: int, err: int, err_end: int) -> None:
        """Print only these bytes of each stream."""
        for stream, begin, end in (("out", out, max(out, out_end)), ("err", err, max(err, err_end))):
            path = f"{self._tasks}/{self._index}/output/{stream}"
            left = end - begin
            while left and (piece := self.connection.get_bytes(path, offset=end - left, limit=min(left, MOST_READ))):
                self._targets[stream].write(piece)
                left -= len(piece)
            self._targets[stream].flush()

    def print_tail(self, lines: int) -> None:
        """Print the last lines of each stream so far; `copy` resumes after them."""
        tail = TaskLines(self.connection, self._job, self._index, "", self._targets)
        tail.copy(to_the_end=True, most=lines)
        self._offsets = tail.offsets

    def _copy(self, stream: str, retry: bool) -> bool:
        """Copy new output; return True if there was some. `retry` tolerates a node that does not answer."""
        target = self._targets[stream]
        before = self._offsets[stream]
        path = f"{self._tasks}/{self._index}/output/{stream}"
        try:
            while piece := self.connection.get_bytes(path, offset=self._offsets[stream]):
                self._offsets[stream] += len(piece)
                self._write(stream, target, piece)
                target.flush()
        except ServiceError as error:
            if not retry or error.status != UNAVAILABLE:
                raise
        return self._offsets[stream] != before

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
        if attempt > self._known and any(target.isatty() for target in self._targets.values()):
            with suppress(ServiceError):  # unknown to an older scheduler; its node does not answer
                found = self.connection.get_bytes(f"{self._tasks}/{self._index}/output/attempts")
                lines = [[int(word) for word in line.split()] for line in found.splitlines()]
                self._begins = {"out": [(at, n) for n, at, _ in lines], "err": [(at, n) for n, _, at in lines]}
        self._known = attempt


FOLLOW_SECONDS = 0.2
"""Time between looks at all tasks, at least."""


class TaskLines:
    """Copies the output of one task by whole lines, each after `label`; each `copy` goes on where the last one stopped."""

    def __init__(self, connection: Connection, job: int, index: int, label: str, targets: Targets) -> None:
        self._connection, self._path = connection, f"/v1/jobs/{job}/tasks/{index}/output"
        self._label, self._targets = label.encode(), targets
        self.offsets = dict.fromkeys(targets, 0)
        self._begun = dict.fromkeys(targets, b"")

    def copy(self, to_the_end: bool, most: int | None = None) -> None:
        """Copy new lines, or the last `most` of them; `to_the_end` also copies a last line without a newline."""
        for stream, target in self._targets.items():
            lines = self._lines(stream, to_the_end)
            for line in lines if most is None else deque(lines, most):
                ends = not self._label or line.endswith(b"\n")
                target.write(self._label + line + (b"" if ends else b"\n"))
            target.flush()

    def _lines(self, stream: str, to_the_end: bool) -> Iterator[bytes]:
        while piece := self._connection.get_bytes(f"{self._path}/{stream}", offset=self.offsets[stream]):
            self.offsets[stream] += len(piece)
            *whole, self._begun[stream] = (self._begun[stream] + piece).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if to_the_end and self._begun[stream]:
            yield self._begun[stream]
            self._begun[stream] = b""


def copy_all(connection: Connection, jobs: list[int], targets: Targets, failed: bool, follow: bool, most: int | None) -> None:
    """Copy the output of all tasks of jobs, or of the failed ones, or its last `most` lines each; with `follow` until all end.

    If a node does not answer, the others' output is copied before the first such ServiceError is raised.
    """
    known: dict[tuple[int, int], TaskLines] = {}
    over: set[tuple[int, int]] = set()
    unread: ServiceError | None = None
    going = jobs
    while going:
        began = time.monotonic()
        ended = [job for job in going if connection.get(f"/v1/jobs/{job}")["status"] in OVER]  # before what they wrote
        for job in going:
            for task in SubmittedJob(connection, job).tasks("failed" if failed else None):
                place, is_over = (job, task["index"]), task["status"] in OVER
                if place in over or not task["attempt"]:
                    continue
                first = place not in known
                label = f"{job}.{task['known_as']}: " if len(jobs) > 1 else f"{task['known_as']}: "
                lines = known.setdefault(place, TaskLines(connection, *place, label, targets))
                try:
                    lines.copy(is_over or not follow, most if first else None)
                except ServiceError as error:
                    if error.status != UNAVAILABLE:
                        raise
                    if follow and not is_over:
                        continue
                    unread = unread or error
                over |= {place} if is_over else set()
        going = [job for job in going if job not in ended] if follow else []
        if going:
            time.sleep(max(FOLLOW_SECONDS, time.monotonic() - began))
    if unread is not None:
        raise unread
