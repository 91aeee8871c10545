"""Named pipes by which tasks report checkpoints: one per attempt; touching it reports one.

They are in the supervisor's folder `checkpoints`. Where tasks run as people, that is a link to a folder that people may enter.
A task owns its pipe. A pipe stores nothing on that disk, cannot be executed, leased or enlarged, and our end never blocks. What
is written to it is discarded.

Creating and removing a pipe costs more than starting a process, because the file system searches for a free inode. So pipes of
tasks that run as the supervisor's user are reused under other names.
"""

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from fairlead.data_folder import SYSTEM_SOCKET, remove_folder
from fairlead.engines.local.messages import Person, Task

VARIABLE = "FAIRLEAD_CHECKPOINT"
"""Environment variable of a task: the path of its pipe."""
MOST_READ = 2**16
"""Bytes discarded per check, so that a task that writes forever does not block us."""
IDLE = "idle."
"""Prefix of the names of unused pipes."""
MOST_IDLE = 64
_OUR_END = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Checkpoints:
    """The pipes of this supervisor's tasks. `folder` is the supervisor's."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder / "checkpoints")
        self._open: dict[Task, int] = {}
        self._ours: set[Task] = set()  # their pipes may be reused
        self._idle: list[tuple[str, int]] = []
        self._made = 0
        with contextlib.suppress(OSError):  # no such folder yet
            for name in os.listdir(self._folder):
                if name.startswith(IDLE):  # left by the last supervisor
                    os.unlink(os.path.join(self._folder, name))

    def make(self, task: Task, person: Person | None) -> str:
        """Make a pipe that only this task may touch. Return its path."""
        self.remove([task])
        path = self._path(task)
        if person is None:
            self._ours.add(task)
            if self._take_idle(task, path):
                return path
        try:
            os.mkfifo(path, 0o600)
        except FileNotFoundError:  # somebody removed the folder
            os.makedirs(self._folder, 0o711, exist_ok=True)
            os.mkfifo(path, 0o600)
        fd = self._open[task] = os.open(path, _OUR_END)
        os.utime(fd, (0, 0))
        if person is not None:
            os.fchown(fd, person.uid, -1)
        return path

    def _take_idle(self, task: Task, path: str) -> bool:
        """Reuse an idle pipe, if there is one."""
        while self._idle:
            idle, fd = self._idle.pop()
            try:
                os.rename(idle, path)
                os.utime(fd, (0, 0))
            except OSError:  # somebody removed it
                os.close(fd)
                continue
            self._open[task] = fd
            return True
        return False

    def _keep(self, task: Task, fd: int) -> bool:
        """Keep a pipe for reuse if it is unchanged and empty. Return whether it was kept."""
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
        except OSError:  # BlockingIOError: a process has it open to write
            return False
        self._made += 1
        self._idle.append((idle, fd))
        return True

    def drop_idle(self) -> None:
        """Remove idle pipes."""
        for idle, fd in self._idle:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(idle)
        self._idle = []

    def age(self, task: Task) -> int | None:
        """Return the age of a task's checkpoint in milliseconds; None if it reported none since the last call."""
        fd = self._open[task]
        changed = 0
        with contextlib.suppress(OSError):  # nothing was written, or its disk is gone
            changed = os.fstat(fd).st_mtime_ns
            if changed:
                os.utime(fd, (0, 0))
            os.read(fd, MOST_READ)
        if not changed:
            return None
        return max(0, (time.time_ns() - changed) // 10**6)

    def remove(self, tasks: Iterable[Task]) -> None:
        """Remove the pipes of ended tasks."""
        for task in tasks:
            fd = self._open.pop(task, None)
            kept = fd is not None and self._keep(task, fd)
            self._ours.discard(task)
            if kept:
                continue
            if fd is not None:
                os.close(fd)
            with contextlib.suppress(OSError):  # somebody removed it, or put a folder there
                os.unlink(self._path(task))

    def _path(self, task: Task) -> str:
        return os.path.join(self._folder, ".".join(map(str, task)))


def shared_checkpoints(folder: Path) -> Path:
    """Return a folder that people may enter, for the node in `folder`."""
    SYSTEM_SOCKET.parent.mkdir(mode=0o755, exist_ok=True)
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return SYSTEM_SOCKET.parent / f"checkpoints-{name}"


def make_checkpoints(place: Path, elsewhere: Path | None) -> None:
    """Make the folder of checkpoint pipes: at `place`, or `elsewhere` with a link at `place`."""
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
