"""What the kernel says about processes and memory, under /proc. One that is gone has no children, environment or memory.

Who looks must see, also where tasks have all descriptors but one: that one is kept for it (`keep_spare`). Where it does not help
either the OSError is raised, since nothing seen is not the same as nobody there.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
GONE = (FileNotFoundError, NotADirectoryError, ProcessLookupError, PermissionError)
"""What is raised where a process is no more, or is not ours to look at."""
_spare: list[int] = []


def keep_spare() -> None:
    """Keep a descriptor for looking, if there is one to be had and none is kept."""
    if not _spare:
        with contextlib.suppress(OSError):
            _spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def with_spare(look: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Call what opens one file at a time and closes it again; once more with the spare descriptor, where there is no other."""
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


def _read(path: str) -> bytes:
    return with_spare(Path(path).read_bytes)


def processes() -> list[int]:
    """All of this machine."""
    return [int(name) for name in with_spare(os.listdir, "/proc") if name.isdigit()]


def children() -> list[int]:
    """Our own."""
    return list(map(int, _read(f"/proc/self/task/{os.getpid()}/children").split()))


def descendants(pid: int) -> set[int]:
    """The children of a process, theirs, and so on."""
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


def environment(pid: int) -> bytes:
    """As it was when the process was executed: NAME=VALUE, each ended by a NUL."""
    try:
        return _read(f"/proc/{pid}/environ") + b"\0"
    except GONE:
        return b""


def status_of_zombie(pid: int) -> int | None:
    """The wait status of a process of which no thread is left, though nobody has reaped it; None for one that runs or is gone."""
    try:
        threads = with_spare(os.listdir, f"/proc/{pid}/task")
        stats = [_read(f"/proc/{pid}/task/{thread}/stat") for thread in threads]
        if any(text.rpartition(b")")[2].split()[0] not in b"ZX" for text in stats):
            return None
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[-1])
    except GONE:
        return None


def resident(pid: int) -> int:
    """The memory that a process uses, in bytes."""
    try:
        return int(_read(f"/proc/{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except GONE:
        return 0


def cpu_time(pid: int) -> int:
    """The milliseconds of CPU that a process and the children that it waited for have used."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except GONE:
        return 0
    return sum(map(int, fields[11:15])) * 1000 // os.sysconf("SC_CLK_TCK")


def most_resident(pid: int) -> int:
    """The most memory that a process has used since it was asked to forget that, in bytes."""
    try:
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    except GONE:
        pass
    return 0


def forget_most_resident(pid: int) -> None:
    """Have what it uses now be the most; where that may not be asked for, it is not known."""
    with contextlib.suppress(OSError):
        with_spare(Path(f"/proc/{pid}/clear_refs").write_text, "5")


def available_memory() -> int:
    """What can be used without swapping, in bytes."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) * 1024
    return sys.maxsize
