"""Named pipes by which tasks report checkpoints: one per attempt; touching it reports one.

They are in the supervisor's folder `checkpoints`. Where tasks run as people, that is a link to a folder that people may enter.
A task owns its pipe. A pipe stores nothing on that disk, cannot be executed, leased or enlarged, and our end never blocks. What
is written to it is discarded.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from fairlead.data_folder import SYSTEM_SOCKET, remove_folder
from fairlead.engines.local.messages import Person, Task

VARIABLE = "FAIRLEAD_CHECKPOINT"
"""Environment variable of a task: the path of its pipe."""
MOST_READ = 2**16
"""Bytes discarded per check, so that a task that writes forever does not block us."""
_OUR_END = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Checkpoints:
    """The pipes of this supervisor's tasks. `folder` is the supervisor's."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder / "checkpoints")
        self._open: dict[Task, int] = {}

    def make(self, task: Task, person: Person | None) -> str:
        """Make a pipe that only this task may touch. Return its path."""
        self.remove([task])
        path = self._path(task)
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
            if (fd := self._open.pop(task, None)) is not None:
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
