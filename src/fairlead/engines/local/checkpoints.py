"""Named pipes by which tasks say that they have kept what they did so far: one an attempt, and touching it says so.

They are in the supervisor's folder `checkpoints`, or where a link of that name leads: where tasks run as people, to a place that
people may enter. A task owns its own and may do with it what it likes; a pipe keeps nothing on that disk, cannot be run, leased
or made larger, and its open end here never makes anybody wait. Whatever is written there is thrown away.

To make one and take it away costs more than to start a process, since a file system looks for room that nobody had just now: so
those of tasks that are nobody else's are kept under other names, for tasks that come.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from fairlead.data_folder import remove_folder
from fairlead.engines.local.messages import Person, Task

VARIABLE = "FAIRLEAD_CHECKPOINT"
"""In the environment of a task: the path of its pipe."""
MOST_READ = 2**16
"""Bytes that are thrown away at one look, so that nobody who writes on and on keeps us."""
IDLE = "idle."
"""What the names of those begin with that wait for a task."""
MOST_IDLE = 64
_OUR_END = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Checkpoints:
    """The pipes of this supervisor's tasks. `folder` is the supervisor's."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder / "checkpoints")
        self._open: dict[Task, int] = {}
        self._ours: set[Task] = set()  # whose pipe is nobody else's
        self._idle: list[tuple[str, int]] = []
        self._made = 0
        with contextlib.suppress(OSError):  # there is no such folder yet
            for name in os.listdir(self._folder):
                if name.startswith(IDLE):  # of a supervisor before this one
                    os.unlink(os.path.join(self._folder, name))

    def make(self, task: Task, person: Person | None) -> str:
        """Make a task's pipe, which it may touch, and nobody else; returns its path."""
        self.remove([task])
        path = self._path(task)
        if person is None:
            self._ours.add(task)
            if self._take_idle(task, path):
                return path
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

    def _take_idle(self, task: Task, path: str) -> bool:
        """Give a task a pipe that waits for one, if one does."""
        while self._idle:
            idle, fd = self._idle.pop()
            try:
                os.rename(idle, path)
                os.utime(fd, (0, 0))
            except OSError:  # somebody has taken it away
                os.close(fd)
                continue
            self._open[task] = fd
            return True
        return False

    def _keep(self, task: Task, fd: int) -> bool:
        """Have a pipe wait for another task, if it is as it was made and empty; whether it does."""
        if task not in self._ours or len(self._idle) >= MOST_IDLE:
            return False
        idle = os.path.join(self._folder, f"{IDLE}{self._made}")
        try:
            there, own = os.lstat(self._path(task)), os.fstat(fd)
            if (there.st_ino, there.st_dev) != (own.st_ino, own.st_dev) or own.st_mode != stat.S_IFIFO | 0o600:
                return False
            if len(os.read(fd, MOST_READ)) == MOST_READ:
                return False
            os.rename(self._path(task), idle)
        except OSError:  # BlockingIOError: somebody has it open to write
            return False
        self._made += 1
        self._idle.append((idle, fd))
        return True

    def drop_idle(self) -> None:
        """Take away those that wait for a task."""
        for idle, fd in self._idle:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(idle)
        self._idle = []

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
            kept = fd is not None and self._keep(task, fd)
            self._ours.discard(task)
            if kept:
                continue
            if fd is not None:
                os.close(fd)
            with contextlib.suppress(OSError):  # somebody has taken it away, or put a folder there
                os.unlink(self._path(task))

    def _path(self, task: Task) -> str:
        return os.path.join(self._folder, ".".join(map(str, task)))


def make_checkpoints(place: Path, elsewhere: Path | None) -> None:
    """Have a folder for the files by which tasks say that they have kept what they did: there, or elsewhere with a link there."""
    if place.is_symlink():
        place.unlink()
    if elsewhere is None:
        place.mkdir(exist_ok=True, mode=0o711)
        return
    if place.exists():
        remove_folder(place)
    elsewhere.mkdir(exist_ok=True, mode=0o711)
    if elsewhere.is_symlink() or elsewhere.stat().st_uid != os.geteuid():
        raise PermissionError(f"{elsewhere}: is not a folder of this scheduler's: move it away")
    elsewhere.chmod(0o711)
    place.symlink_to(elsewhere.resolve())
