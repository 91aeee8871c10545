"""Reads processes and memory under /proc, and signals processes. A process that is gone has no children, environment or memory.

One descriptor is kept in reserve (`keep_spare`), so that tasks that hold all others cannot blind us. If that is not enough the
OSError is raised: seeing nothing is not the same as nothing there.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
GONE = (FileNotFoundError, NotADirectoryError, ProcessLookupError, PermissionError)
"""Raised if a process is gone or not ours to inspect."""
_spare: list[int] = []


def keep_spare() -> None:
    """Reserve a descriptor, if none is and one is free."""
    if not _spare:
        with contextlib.suppress(OSError):
            _spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def with_spare(look: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Call `look`, which opens one file at a time; on EMFILE call it once more with the reserved descriptor."""
    try:
        return look(*args, **more)
    except OSError as error:
        if error.errno != errno.EMFILE or not _spare:
            raise
    os.close(_spare.pop())
    try:
        return look(*args, **more)
    finally:
        keep_spare()


@contextlib.contextmanager
def unless_missing() -> Iterator[None]:
    """Suppress errors of missing files, but not those of missing resources: these do not mean that the file is absent."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise


def _read(path: str) -> bytes:
    return with_spare(Path(path).read_bytes)


def processes() -> list[int]:
    return [int(name) for name in with_spare(os.listdir, "/proc") if name.isdigit()]


def children() -> list[int]:
    return list(map(int, _read(f"/proc/self/task/{os.getpid()}/children").split()))


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    new = [pid]
    while new:
        parent = new.pop()
        try:
            below = set(map(int, _read(f"/proc/{parent}/task/{parent}/children").split()))
        except GONE:
            continue
        new += below - found
        found |= below
    return found


def _stat(pid: int) -> list[bytes]:
    """Return the fields of proc(5) from the state on; empty if the process is gone."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except GONE:
        return []


def environment(pid: int) -> bytes | None:
    """Return the environment at exec: NAME=VALUE, each ended by a NUL. None while nobody can tell whose the process is.

    A process has no environment between two programs, in the middle of exec, nor while it ends. On a busy machine that may last.
    """
    while True:
        try:
            if found := _read(f"/proc/{pid}/environ"):
                return found + b"\0"
        except ProcessLookupError:  # it has no memory any more
            pass
        except GONE:
            return b""
        stat = _stat(pid)
        if not stat or stat[0] in b"ZX":
            return b""
        code, start, end = stat[24], stat[47], stat[48]  # where its code ends, and where its environment begins and ends
        if b"0" in (code, end):  # exec notes the code last: before that, the environment may seem to be empty
            return None
        if start == end:  # it was given none
            return b""


def session(pid: int) -> int:
    """Return the session of a process; 0 if it is gone, or a thread of the kernel."""
    stat = _stat(pid)
    return int(stat[3]) if stat else 0


def status_of_zombie(pid: int) -> int | None:
    """Return the wait status of an unreaped process whose threads have all ended; None if it runs or is gone."""
    try:
        threads = with_spare(os.listdir, f"/proc/{pid}/task")
        stats = [_read(f"/proc/{pid}/task/{thread}/stat") for thread in threads]
        if any(text.rpartition(b")")[2].split()[0] not in b"ZX" for text in stats):
            return None
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[-1])
    except GONE:
        return None


def signal_each(pids: Iterable[int], number: int) -> None:
    """Signal processes, without those that are gone, or became another user's, such as sudo."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def stands_still(pid: int) -> bool:
    """Return True if a process is stopped, or has ended."""
    stat = _stat(pid)
    return not stat or stat[0] in b"TtZX"


def resident(pid: int) -> int:
    """Return the memory of a process in bytes."""
    try:
        return int(_read(f"/proc/{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except GONE:
        return 0


def cpu_time(pid: int) -> int:
    """Return the CPU time of a process and its reaped children, in milliseconds."""
    return sum(map(int, _stat(pid)[11:15])) * 1000 // os.sysconf("SC_CLK_TCK")


def most_resident(pid: int) -> int:
    """Return the peak memory of a process since the last reset, in bytes."""
    with contextlib.suppress(*GONE):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def forget_most_resident(pid: int) -> None:
    """Reset the peak memory of a process, if permitted."""
    with contextlib.suppress(OSError):
        with_spare(Path(f"/proc/{pid}/clear_refs").write_text, "5")


def available_memory() -> int:
    """Return the memory available without swapping, in bytes."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) * 1024
    return sys.maxsize
