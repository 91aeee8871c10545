"""Files by which tasks say that they have kept what they did so far: one an attempt, and touching it says so.

They are in the supervisor's folder `checkpoints`, or where a link of that name leads: where tasks run as people, to a place that
people may enter. Nothing is kept in them.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from fairlead.engines.local.messages import Person, Task

VARIABLE = "FAIRLEAD_CHECKPOINT"
"""In the environment of a task: the path of its file."""


_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Checkpoints:
    """The files of this supervisor's tasks. `folder` is the supervisor's."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder / "checkpoints")

    def make(self, task: Task, person: Person | None) -> str:
        """Make a task's file, which it may touch, and nobody else; returns its path."""
        path = self._path(task)
        try:
            fd = os.open(path, _NEW, 0o600)
        except FileNotFoundError:  # somebody has taken the folder away
            os.makedirs(self._folder, 0o711, exist_ok=True)
            fd = os.open(path, _NEW, 0o600)
        try:
            os.utime(fd, (0, 0))
            if person is not None:
                os.fchown(fd, person.uid, -1)
        finally:
            os.close(fd)
        return path

    def look(self, task: Task) -> int | None:
        """For how many milliseconds a task has kept what it did, where it has said so since the last look."""
        path = self._path(task)
        try:
            found = os.stat(path, follow_symlinks=False)
            if found.st_size:  # it is not a place to write to
                os.truncate(path, 0)
            if found.st_mtime_ns == 0:
                return None
            os.utime(path, (0, 0), follow_symlinks=False)
        except FileNotFoundError:  # somebody has taken it away
            return None
        return max(0, (time.time_ns() - found.st_mtime_ns) // 10**6)

    def remove(self, tasks: Iterable[Task]) -> None:
        """Take away the files of tasks that have ended."""
        for task in tasks:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(task))

    def _path(self, task: Task) -> str:
        return os.path.join(self._folder, ".".join(map(str, task)))
