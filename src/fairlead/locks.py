"""Who holds a lock on a file, and whether they stand still: for those who look and change nothing."""

from collections.abc import Iterator
from pathlib import Path


def holding(file: Path) -> Iterator[int]:
    """The processes that hold a lock (of `flock`) on a file, or on one of its number on another disk; none where it is not."""
    try:
        number = file.stat().st_ino
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except FileNotFoundError:
        return
    for fields in held:
        if fields[1] == "FLOCK" and fields[5].endswith(f":{number}"):
            yield int(fields[4])


def is_stopped(pid: int) -> bool:
    """Whether a process stands still, by SIGSTOP or a debugger. Raises OSError where it has ended."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "Tt"
