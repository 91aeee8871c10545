"""The output of tasks on the machine where they ran: FOLDER/output/JOB/INDEX.out and .err. Standard library only.

INDEX.attempts says where further attempts begin in them.
"""

import contextlib
import errno
import os
from pathlib import Path
from typing import BinaryIO

from fairlead.data_folder import open_plain
from fairlead.engines.local.messages import Person


def open_output(path: str, person: Person | None) -> list[int]:
    """Open `path`.out and .err to append, which only the task's user can read. Raises OSError, also for special files."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    files: list[int] = []
    try:
        for name in (f"{path}.out", f"{path}.err"):
            files.append(os.open(name, flags, 0o600))
            os.set_blocking(files[-1], True)
            if person is not None and os.fstat(files[-1]).st_uid != person.uid:
                os.fchown(files[-1], person.uid, -1)
    except OSError:
        for fd in files:
            os.close(fd)
        raise
    return files


def read_piece(output: Path, job: int, index: int, stream: str, offset: int, most: int) -> bytes | None:
    """Return a piece of a task's output; None if there is none (yet). Raises NotPlain for anything but a regular file.

    It ends where a hole begins or ends, so that a reader who meets only zeros knows where to ask for the next data.
    """
    try:
        with open_plain(output / str(job) / f"{index}.{stream}") as file:
            if offset >= os.fstat(file.fileno()).st_size:  # it may exceed what a disk can hold
                return b""
            end = _seek(file, offset, os.SEEK_HOLE)
            if end == offset:
                end = _seek(file, offset, os.SEEK_DATA)
            return os.pread(file.fileno(), most if end == offset else min(most, end - offset), offset)
    except FileNotFoundError:  # not started
        return None


def note_attempt(path: str, number: int) -> None:
    """Note in `path`.attempts where a further attempt's output begins, if there is any before: its number, and both lengths."""
    sizes = [0, 0]
    for k, stream in enumerate(("out", "err")):
        with contextlib.suppress(FileNotFoundError):
            sizes[k] = os.stat(f"{path}.{stream}").st_size
    if any(sizes):
        with contextlib.suppress(OSError), Path(f"{path}.attempts").open("a") as file:  # a full disk
            file.write(f"{number} {sizes[0]} {sizes[1]}\n")


def next_data(output: Path, job: int, index: int, stream: str, offset: int) -> int:
    """Return where a task's output has data at or after `offset`; its end if nowhere.

    A hole was never written and takes no space: a task may set the size of its file. Raises NotPlain and other OSError.
    """
    with open_plain(output / str(job) / f"{index}.{stream}") as file:
        return _seek(file, offset, os.SEEK_DATA)


def _seek(file: BinaryIO, offset: int, whence: int) -> int:
    """Return where data or a hole begins at or after `offset`: the end of the file if nowhere, `offset` if unknown."""
    try:
        return os.lseek(file.fileno(), offset, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return max(offset, os.fstat(file.fileno()).st_size)
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # this file system knows of no holes
            return offset
        raise
