"""Finds the processes that hold a file lock, and whether they are stopped, without taking the lock."""

from collections.abc import Iterator
from pathlib import Path


def holding(file: Path) -> Iterator[int]:
    """Yield the pids that hold a `flock` on a file, or on a file of the same inode number on another disk."""
    try:
        number = file.stat().st_ino
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except (FileNotFoundError, NotADirectoryError):
        return
    for fields in held:
        if fields[1] == "FLOCK" and fields[5].endswith(f":{number}"):
            yield int(fields[4])


def is_stopped(pid: int) -> bool:
    """Return True if a process is stopped by SIGSTOP or a debugger. Raises OSError if it has ended."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "Tt"
