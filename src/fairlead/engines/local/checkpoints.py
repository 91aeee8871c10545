"""Named pipes by which tasks say that they have kept what they did so far: one an attempt, and touching it says so.

They are in the supervisor's folder `checkpoints`, or where a link of that name leads: where tasks run as people, to a place that
people may enter. A task owns its own and may do with it what it likes; a pipe keeps nothing on that disk, cannot be run, leased
or made larger, and its open end here never makes anybody wait. Whatever is written there is thrown away.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from fairlead.engines.local.messages import Person, Task

VARIABLE = "FAIRLEAD_CHECKPOINT"
"""In the environment of a task: the path of its pipe."""
MOST_READ = 2**16
"""Bytes that are thrown away at one look, so that nobody who writes on and on keeps us."""
_OUR_END = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Checkpoints:
    """The pipes of this supervisor's tasks. `folder` is the supervisor's."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder / "checkpoints")
        self._open: dict[Task, int] = {}

    def make(self, task: Task, person: Person | None) -> str:
        """Make a task's pipe, which it may touch, and nobody else; returns its path."""
        self.remove([task])
        path = self._path(task)
        try:
            os.mkfifo(path, 0o600)
        except FileNotFoundError:  # somebody has taken the folder away
            os.makedirs(self._folder, 0o711, exist_ok=True)
            os.mkfifo(path, 0o600)
        fd = self._open[task] = os.open(path, _OUR_END)
        os.utime(fd, (0, 0))
        if person is not None:
            os.fchown(fd, person.uid, -1)
        return path

    def look(self, task: Task) -> int | None:
        """For how many milliseconds a task has kept what it did, where it has said so since the last look."""
        fd = self._open[task]
        changed = 0
        with contextlib.suppress(OSError):  # nothing was written, or the disk that it is on is not there
            changed = os.fstat(fd).st_mtime_ns
            if changed:
                os.utime(fd, (0, 0))
            os.read(fd, MOST_READ)
        if not changed:
            return None
        return max(0, (time.time_ns() - changed) // 10**6)

    def remove(self, tasks: Iterable[Task]) -> None:
        """Take away the pipes of tasks that have ended."""
        for task in tasks:
            fd = self._open.pop(task, None)
            if fd is not None:
                os.close(fd)
            with contextlib.suppress(OSError):  # somebody has taken it away, or put a folder there
                os.unlink(self._path(task))

    def _path(self, task: Task) -> str:
        return os.path.join(self._folder, ".".join(map(str, task)))
