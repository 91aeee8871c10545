"""What the kernel says about processes and memory, under /proc. One that is gone has no children, environment or memory."""

import contextlib
import os
import sys
from pathlib import Path


def processes() -> list[int]:
    """All of this machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children() -> list[int]:
    """Our own."""
    return list(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def descendants(pid: int) -> set[int]:
    """The children of a process, theirs, and so on."""
    found: set[int] = set()
    new = [pid]
    while new:
        parent = new.pop()
        try:
            below = set(map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()))
        except OSError:
            continue
        new += below - found
        found |= below
    return found


def environment(pid: int) -> bytes:
    """As it was when the process was executed: NAME=VALUE, each ended by a NUL."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return b""


def status_of_zombie(pid: int) -> int | None:
    """The wait status of a process of which no thread is left, though nobody has reaped it; None for one that runs or is gone."""
    try:
        threads = [Path(f"/proc/{pid}/task/{thread}/stat").read_text() for thread in os.listdir(f"/proc/{pid}/task")]
        if any(text.rpartition(")")[2].split()[0] not in "ZX" for text in threads):
            return None
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[-1])
    except OSError:
        return None


def resident(pid: int) -> int:
    """The memory that a process uses, in bytes."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def cpu_time(pid: int) -> int:
    """The milliseconds of CPU that a process and the children that it waited for have used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15])) * 1000 // os.sysconf("SC_CLK_TCK")


def most_resident(pid: int) -> int:
    """The most memory that a process has used since it was asked to forget that, in bytes."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def forget_most_resident(pid: int) -> None:
    """Have what it uses now be the most; where that may not be asked for, it is not known."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def available_memory() -> int:
    """What can be used without swapping, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return sys.maxsize
