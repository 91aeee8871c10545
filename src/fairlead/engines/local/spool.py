"""The spool: a file with a JSON line before and after each action of the supervisor.

From it, a supervisor that takes over from a killed one knows which tasks had begun and which ends were not acknowledged.
"""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from fairlead.engines.local.messages import Task

LARGE = 4 * 2**20

End = tuple[int, int, int, int, int]
"""Outcome and code; CPU time in milliseconds, peak memory in bytes, run time in milliseconds: 0 if unknown."""


class Spool:
    """The file FOLDER/spool, and lines that a full disk keeps back. Call `read` and `rewrite` before `note`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "spool"
        self._file = -1
        self._unwritten = bytearray()

    def read(self) -> tuple[set[Task], dict[Task, End]]:
        """Return the tasks that began and did not end, and unacknowledged ends."""
        begun: set[Task] = set()
        ended: dict[Task, End] = {}
        for line in self._path.read_bytes().split(b"\n") if self._path.exists() else []:
            try:
                what, job, index, number, *more = json.loads(line)
            except ValueError:  # the last line, torn when the last supervisor died
                continue
            task = (job, index, number)
            if what in ("starting", "started"):  # rewritten files and older supervisors have the latter
                begun.add(task)
            else:
                begun.discard(task)
                ended.pop(task, None)
                if what == "ended":
                    known = [*more, 0, 0, 0][:5]  # older supervisors wrote fewer fields
                    ended[task] = (known[0], known[1], known[2], known[3], known[4])
        return begun, ended

    def note(self, what: str, task: Task, *more: int) -> None:
        """Write a line. On a full disk it is kept and written when there is room."""
        self._unwritten += b'["%s"%s]\n' % (what.encode(), b", %d" * (3 + len(more)) % (*task, *more))
        with contextlib.suppress(OSError):
            while self._unwritten:
                del self._unwritten[: os.write(self._file, self._unwritten)]

    def is_large(self) -> bool:
        """Return whether it is time to rewrite it."""
        return os.fstat(self._file).st_size > LARGE

    def rewrite(self, running: Iterable[tuple[Task, int]], ended: dict[Task, End]) -> None:
        """Replace the file by one with only what still matters; keep it if the disk is full."""
        fresh = self._path.with_name("spool.new")
        lines = [["started", *task, pid] for task, pid in running]
        lines += [["ended", *task, *end] for task, end in ended.items()]
        try:
            fresh.write_text("".join(json.dumps(line) + "\n" for line in lines))
        except OSError:  # a full disk: keep appending to the old file
            fresh.unlink(missing_ok=True)
            if self._file >= 0:
                return
        else:
            fresh.rename(self._path)
            self._unwritten.clear()
        if self._file >= 0:
            os.close(self._file)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
