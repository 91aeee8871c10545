"""The head of a journal, kept a second time: how far it had come, in a small file beside it.

A database that lost its newest commits (a damaged or missing write-ahead log, an older copy in its place) is whole in itself and
says nothing of what is missing. So after each commit, and before anybody is told that it happened, the number and the checksum of
its last record are written here and brought to the disk. A journal that does not come as far as its head was rolled back, cut or
exchanged; one that goes on beyond it was killed between the commit and this, and nobody was told of what is beyond.

The file has two places of a disk's sector each, written in turn, so that a torn write leaves the one before. It is also what a
scheduler locks, and it says which file the journal is, so that a copy of it is not taken for the journal itself.
"""

import errno
import fcntl
import os
import stat
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from fairlead.journal.store import JournalError

_PLACE = 512
_FORM = struct.Struct("<8sQ32s32sQQQQI")
_MAGIC = b"fairhead"


class Head(NamedTuple):
    """How far a journal had come.

    id : the journal's.
    machine : which machine it was on, as that calls itself; empty where it has no name.
    inode : of the journal's file there.
    epoch : of the run of the scheduler that wrote it.
    sequence, checksum : of the last record; of none, 0 and what the first record's is made from.
    """

    id: str
    machine: str
    inode: int
    epoch: int
    sequence: int
    checksum: int


def path_of(journal: Path) -> Path:
    """The file beside a journal."""
    return journal.with_name(journal.name + ".head")


def this_machine() -> str:
    """What this machine calls itself, for as long as it is installed; empty where it has no such name."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()[:32]
    except (OSError, ValueError):
        return ""


def read(journal: Path) -> Head | None:
    """The head that was written last; None where there is none.

    Raises JournalError where the file cannot be read.
    """
    try:
        file = _open(path_of(journal), os.O_RDONLY)
        try:
            found = newest(os.pread(file, 2 * _PLACE, 0))
        finally:
            os.close(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path_of(journal)}: cannot be read: {error.strerror}") from None
    return found[1] if found else None


def _open(path: Path, how: int) -> int:
    """Open it, if it is a file: a pipe, say, would be waited for."""
    file = os.open(path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no file: move it away")
    return file


def is_of_another(head: Head | None, journal: Path) -> bool:
    """Whether a head is of another file than the journal that it is beside: this is a copy, or was restored from one."""
    return head is not None and (head.machine, head.inode) != (this_machine(), journal.stat().st_ino)


class HeadFile:
    """The file, open and locked by this process; made where it does not exist, in a folder that is made as well.

    Raises JournalError where it cannot be, or where another process has it.
    """

    def __init__(self, journal: Path) -> None:
        self.path = path_of(journal)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = _open(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise JournalError(f"{journal}: cannot be opened: {self.path.name}: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise JournalError(
                f"{journal}: another scheduler has it open: stop that one, or use another --home"
            ) from None
        found = newest(os.pread(self._file, 2 * _PLACE, 0))
        self._count = found[0] if found else 0
        self.head = found[1] if found else None

    def write(self, head: Head) -> None:
        """Have it say this; on the disk when it returns. Raises OSError where that fails."""
        os.pwrite(self._file, *packed(head, self._count + 1))
        os.fdatasync(self._file)
        self._count, self.head = self._count + 1, head

    def is_there(self) -> bool:
        """Whether the file is still where it was made."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file))
        except OSError:
            return False

    def close(self) -> None:
        """Give it back, and the lock with it."""
        os.close(self._file)


def packed(head: Head, count: int) -> tuple[bytes, int]:
    """A head as it is written for the so-manieth time, and where."""
    told = [head.id.encode(), head.machine.encode(), *head[2:]]
    body = _FORM.pack(_MAGIC, count, *told, 0)[:-4]
    return (body + struct.pack("<I", zlib.crc32(body))).ljust(_PLACE, b"\0"), count % 2 * _PLACE


def newest(content: bytes) -> tuple[int, Head] | None:
    """The newer of the two places, with how often it was written; None where neither is whole."""
    found = []
    for place in (content[:_PLACE], content[_PLACE : 2 * _PLACE]):
        body = place[: _FORM.size]
        if len(body) == _FORM.size and _FORM.unpack(body)[-1] == zlib.crc32(body[:-4]) and body.startswith(_MAGIC):
            _, count, name, machine, *numbers, _ = _FORM.unpack(body)
            found.append((count, Head(name.rstrip(b"\0").decode(), machine.rstrip(b"\0").decode(), *numbers)))
    return max(found, default=None)
