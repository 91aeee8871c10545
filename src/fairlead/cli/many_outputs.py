"""Copies the output of many tasks, each line after its task."""

import time
from collections import deque
from collections.abc import Iterator

from fairlead.cli.output import UNAVAILABLE, Targets
from fairlead.cli.selection import all_tasks
from fairlead.client.connection import Connection
from fairlead.client.jobs import OVER
from fairlead.client.service_error import ServiceError

FOLLOW_SECONDS = 0.2
"""Time between looks at all tasks, at least."""


class TaskLines:
    """Copies the output of one task by whole lines, each after `label`; each `copy` goes on where the last one stopped."""

    def __init__(self, connection: Connection, job: int, index: int, label: str, targets: Targets) -> None:
        self._connection, self._path = connection, f"/v1/jobs/{job}/tasks/{index}/output"
        self._label, self._targets = label.encode(), targets
        self._offsets = dict.fromkeys(targets, 0)
        self._begun = dict.fromkeys(targets, b"")

    def copy(self, to_the_end: bool, most: int | None = None) -> None:
        """Copy new lines, or the last `most` of them; `to_the_end` also copies a last line without a newline."""
        for stream, target in self._targets.items():
            lines = self._lines(stream, to_the_end)
            for line in lines if most is None else deque(lines, most):
                target.write(self._label + line + b"\n")
            target.flush()

    def _lines(self, stream: str, to_the_end: bool) -> Iterator[bytes]:
        while piece := self._connection.get_bytes(f"{self._path}/{stream}", offset=self._offsets[stream]):
            self._offsets[stream] += len(piece)
            *whole, self._begun[stream] = (self._begun[stream] + piece).split(b"\n")
            yield from whole
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
            for task in all_tasks(connection, job, "failed" if failed else None):
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
