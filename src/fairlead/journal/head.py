"""The head of a journal, stored a second time: its last record, in a small file beside it.

A database that lost its newest commits (a damaged or missing write-ahead log, an older copy) is consistent and does not show
the loss. So after each commit, before anybody learns of it, the number and checksum of the last record are written here and
synced. A journal that ends before its head was rolled back, cut or replaced. One that goes beyond it was killed between commit
and head, and nobody learned of the rest.

The file has two slots, a disk sector each, written in turn, so a torn write leaves the previous one. A scheduler locks this
file. It also identifies the journal's file, so that a copy is not mistaken for the journal.
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

_SLOT = 512
_FORMAT = struct.Struct("<8sQ32s32sQQQQI")
_MAGIC = b"fairhead"


class Head(NamedTuple):
    """The last record of a journal.

    id : the journal's.
    machine : id of its machine; empty if that has none.
    inode : of the journal's file there.
    epoch : of the scheduler run that wrote it.
    sequence, checksum : of the last record; if none, 0 and the checksum that the first record follows.
    """

    id: str
    machine: str
    inode: int
    epoch: int
    sequence: int
    checksum: int


def path_of(journal: Path) -> Path:
    return journal.with_name(journal.name + ".head")


def this_machine() -> str:
    """Return the machine's id, which lasts as long as its installation; empty if it has none."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()[:32]
    except (OSError, ValueError):
        return ""


def read(journal: Path) -> Head | None:
    """Read the current head; None if there is none. Raises JournalError if the file cannot be read."""
    try:
        with os.fdopen(_open(path_of(journal), os.O_RDONLY), "rb") as file:
            found = newest(file.read(2 * _SLOT))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path_of(journal)}: cannot be read: {error.strerror}: {_remedy(error)}") from None
    return found[1] if found else None


def _remedy(error: OSError) -> str:
    """Say what to do about a file that cannot be opened."""
    if error.errno in (errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENOTDIR):
        return "move away what is in its place, and restore a copy of the file"
    return "check who may write it and its folder"


def _open(path: Path, how: int) -> int:
    """Open a regular file; others, such as pipes, would block."""
    file = os.open(path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def is_of_another(head: Head | None, journal: Path) -> bool:
    """Return True if a head belongs to another file than the journal beside it, which is a copy then."""
    return head is not None and (head.machine, head.inode) != (this_machine(), journal.stat().st_ino)


class HeadFile:
    """The file, open and locked by this process; made if missing, with its folder.

    Raises JournalError if that fails or another process has the lock.
    """

    def __init__(self, journal: Path) -> None:
        self.path = path_of(journal)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = _open(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be opened: {error.strerror}: {_remedy(error)}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise JournalError(f"{journal}: another scheduler has it open: stop that one, or use another --home") from None
        self.head: Head | None
        self._count, self.head = newest(os.pread(self._file, 2 * _SLOT, 0)) or (0, None)

    def write(self, head: Head) -> None:
        """Store a head durably. Raises OSError on failure."""
        os.pwrite(self._file, *packed(head, self._count + 1))
        os.fdatasync(self._file)
        self._count, self.head = self._count + 1, head

    def is_in_place(self) -> bool:
        """Return whether the file is still at its path."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file))
        except OSError:
            return False

    def close(self) -> None:
        """Close the file and release the lock."""
        os.close(self._file)


def packed(head: Head, count: int) -> tuple[bytes, int]:
    """Encode a head as write number `count`. Return it with its offset."""
    fields = [head.id.encode(), head.machine.encode(), *head[2:]]
    body = _FORMAT.pack(_MAGIC, count, *fields, 0)[:-4]
    return (body + struct.pack("<I", zlib.crc32(body))).ljust(_SLOT, b"\0"), count % 2 * _SLOT


def newest(content: bytes) -> tuple[int, Head] | None:
    """Return the newer slot with its write count; None if neither is valid."""
    found = []
    for slot in (content[:_SLOT], content[_SLOT : 2 * _SLOT]):
        body = slot[: _FORMAT.size]
        if len(body) == _FORMAT.size and _FORMAT.unpack(body)[-1] == zlib.crc32(body[:-4]) and body.startswith(_MAGIC):
            _, count, name, machine, *numbers, _ = _FORMAT.unpack(body)
            found.append((count, Head(name.rstrip(b"\0").decode(), machine.rstrip(b"\0").decode(), *numbers)))
    return max(found, default=None)
