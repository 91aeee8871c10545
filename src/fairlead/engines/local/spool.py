"""The spool: what the supervisor did, a line of JSON each, in a file before and after it is done.

A supervisor that takes over from a killed one reads there what was begun, and which ends nobody has acknowledged.
"""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from fairlead.engines.local.messages import Task

LARGE = 4 * 2**20

End = tuple[int, int, int, int, int]
"""Outcome and code; milliseconds of CPU, the most bytes of memory, and for how many milliseconds it ran: 0 where not known."""


class Spool:
    """The file FOLDER/spool, and what a full disk keeps from being written there. `read` and `rewrite` come before `note`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "spool"
        self._file = -1
        self._unwritten = bytearray()

    def read(self) -> tuple[set[Task], dict[Task, End]]:
        """The tasks that were begun and did not end, and those whose end was not acknowledged."""
        begun: set[Task] = set()
        ended: dict[Task, End] = {}
        for line in self._path.read_bytes().split(b"\n") if self._path.exists() else []:
            try:
                what, job, index, number, *more = json.loads(line)
            except ValueError:  # the last line, cut off where the last supervisor was
                continue
            task = (job, index, number)
            if what in ("starting", "started"):  # what was written anew, or by an older supervisor, is the latter
                begun.add(task)
            else:
                begun.discard(task)
                ended.pop(task, None)
                if what == "ended":
                    known = [*more, 0, 0, 0][:5]  # one that an older supervisor wrote has less to say
                    ended[task] = (known[0], known[1], known[2], known[3], known[4])
        return begun, ended

    def note(self, what: str, task: Task, *more: int) -> None:
        """Write a line; on a full disk what is not written is kept, and written when there is room."""
        self._unwritten += b'["%s"%s]\n' % (what.encode(), b", %d" * (3 + len(more)) % (*task, *more))
        with contextlib.suppress(OSError):
            while self._unwritten:
                del self._unwritten[: os.write(self._file, self._unwritten)]

    def is_large(self) -> bool:
        """Whether it is time to write it anew."""
        return os.fstat(self._file).st_size > LARGE

    def rewrite(self, running: Iterable[tuple[Task, int]], ended: dict[Task, End]) -> None:
        """Make the file anew from what still matters, or leave it as it is where the disk is full."""
        fresh = self._path.with_name("spool.new")
        lines = [["started", *task, pid] for task, pid in running]
        lines += [["ended", *task, *end] for task, end in ended.items()]
        try:
            fresh.write_text("".join(json.dumps(line) + "\n" for line in lines))
        except OSError:  # a full disk: go on in the old one
            fresh.unlink(missing_ok=True)
            if self._file >= 0:
                return
        else:
            fresh.rename(self._path)
            self._unwritten.clear()
        if self._file >= 0:
            os.close(self._file)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
