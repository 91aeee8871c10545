"""Named pipes by which tasks report checkpoints: one per task that runs; touching it reports one.

They are in the supervisor's folder `checkpoints`. Where tasks run as people, that is a link to a folder that people may enter.
A task owns its pipe. A pipe stores nothing on that disk, cannot be executed, leased or enlarged, and our end never blocks. What
is written to it is discarded. It serves the next task of the same person, since a new one may cost much: ext4 without a journal
passes by each inode that was deleted in the last minutes.
"""

import contextlib
import errno
import hashlib
import itertools
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fairlead.data_folder import SYSTEM_SOCKET, remove_folder
from fairlead.engines.local.messages import Person, Task

VARIABLE = "FAIRLEAD_CHECKPOINT"
"""Environment variable of a task: the path of its pipe."""
MOST_READ = 2**16
"""Bytes discarded per check, so that a task that writes forever does not block us."""
MOST_SPARE = 64
"""Pipes kept for tasks to come."""
_OUR_END = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class _Pipe(NamedTuple):
    """A pipe, our end of it, and what stat says of it as long as nobody has changed it."""

    path: str
    fd: int
    made: tuple[int, ...]


class Checkpoints:
    """The pipes of this supervisor's tasks. `folder` is the supervisor's."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder / "checkpoints")
        self._of: dict[Task, _Pipe] = {}
        self._spare: list[_Pipe] = []
        self._names = map(str, itertools.count(1))

    def make(self, task: Task, person: Person | None) -> str:
        """Make a pipe that only this task may touch, or take that of an ended task of the same person. Return its path."""
        self.remove([task])
        uid = person.uid if person is not None else os.geteuid()
        pipe = self._spare_of(uid) or self._new(uid, person is not None)
        self._of[task] = pipe
        return pipe.path

    def _spare_of(self, uid: int) -> _Pipe | None:
        """Take a spare pipe of this uid's; remove those that somebody has changed since."""
        for pipe in [each for each in self._spare if each.made[-1] == uid]:
            self._spare.remove(pipe)
            with contextlib.suppress(OSError):  # its disk is gone
                if _is_as_made(pipe):
                    os.utime(pipe.fd, (0, 0))
                    return pipe
            _remove(pipe.path, pipe.fd)
        return None

    def _new(self, uid: int, give: bool) -> _Pipe:
        path = self._make_fifo()
        fd: int | None = None
        try:
            fd = os.open(path, _OUR_END)
            if give:
                os.fchown(fd, uid, -1)
            os.utime(fd, (0, 0))
            return _Pipe(path, fd, _identity(os.fstat(fd)))
        except BaseException:
            _remove(path, fd)
            raise

    def _make_fifo(self) -> str:
        while True:
            path = os.path.join(self._folder, next(self._names))
            try:
                os.mkfifo(path, 0o600)
            except FileNotFoundError:  # somebody removed the folder
                os.makedirs(self._folder, 0o711, exist_ok=True)
            except FileExistsError:  # somebody put it there
                continue
            else:
                return path

    def age(self, task: Task) -> int | None:
        """Return the age of a task's checkpoint in milliseconds; None if it reported none since the last call."""
        fd = self._of[task].fd
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
        """Keep the pipes of ended tasks for others, which take none that somebody has changed or has open; remove the oldest."""
        for task in tasks:
            if (pipe := self._of.pop(task, None)) is not None:
                self._spare.append(pipe)
                if len(self._spare) > MOST_SPARE:
                    _remove(*self._spare.pop(0)[:2])

    def give_up(self, task: Task, error: OSError) -> None:
        """Remove the pipe of a task that could not start; and those to spare, if it lacked their descriptors."""
        self.remove([task])
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            return
        for pipe in self._spare:
            _remove(pipe.path, pipe.fd)
        self._spare.clear()

    def clear(self) -> None:
        """Remove the pipes that an earlier supervisor left."""
        with contextlib.suppress(FileNotFoundError):  # somebody removed the folder
            for name in os.listdir(self._folder):
                with contextlib.suppress(OSError):  # somebody removed it, or put a folder there
                    os.unlink(os.path.join(self._folder, name))


def _remove(path: str, fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
    with contextlib.suppress(OSError):  # somebody removed it, or put a folder there
        os.unlink(path)


def _identity(there: os.stat_result) -> tuple[int, ...]:
    return there.st_dev, there.st_ino, there.st_mode, there.st_uid


def _is_as_made(pipe: _Pipe) -> bool:
    """Return whether the pipe is still at its path, with its mode and owner, and nobody has it open for writing."""
    try:
        os.read(pipe.fd, MOST_READ)
        return not os.read(pipe.fd, 1) and _identity(os.lstat(pipe.path)) == pipe.made
    except OSError:  # somebody has it open, or removed it
        return False


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
