"""Free space on the disk of a data folder: the floor below which work pauses, and a reserve for a full disk.

Below the *floor*, tasks that write output are paused and nothing new is accepted; work resumes at twice the floor. The remaining
space is for the journal. If other programs fill even that, the *reserve* is released: a file that only occupies space, released
in pieces so that other writers do not get all of it. Ending tasks, cancelling, draining and stopping write little, and go on.

It needs only the standard library, because the tasks' supervisor uses it.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fairlead.descriptors import opened

LARGEST_FLOOR = 64 * 2**20
"""Bytes of the floor; on a small disk the floor is a sixteenth of the disk."""
FEWEST_FILES = 500
"""Free inodes that are needed; on a disk with few inodes, a sixteenth of them."""
PIECES = 4
"""Number of pieces in which the reserve is released."""
CHECK_SECONDS = 0.5
"""Time between two checks of the disk."""


class Room(NamedTuple):
    """Free bytes of a disk and their floor, and free inodes and their floor.

    On a disk without a limit on inodes, the last two are 0.
    """

    free: int
    floor: int
    files: int = 0
    least_files: int = 0

    def is_low(self, was_low: bool) -> bool:
        """Return True if space or inodes are below the floor, or below twice the floor if they were low."""
        times = 2 if was_low else 1
        return self.free < times * self.floor or self.lacks_files(was_low)

    def lacks_files(self, was_low: bool) -> bool:
        """Return True if inodes are below the floor."""
        return self.files < (2 if was_low else 1) * self.least_files


def room_on(folder: Path | str) -> Room:
    """Return the free space of a folder's disk. Raises OSError."""
    disk = os.statvfs(folder)
    floor = min(LARGEST_FLOOR, disk.f_blocks * disk.f_frsize // 16)
    return Room(disk.f_bavail * disk.f_frsize, floor, disk.f_favail, min(FEWEST_FILES, disk.f_files // 16))


class Reserve:
    """The file ``reserve`` of a data folder, half as large as the floor. For one thread.

    low : why nothing new is accepted; empty while there is room. Any thread may read it.
    free, held : free bytes, and bytes of the file
    """

    def __init__(self, home: Path) -> None:
        self._home, self._path = home, home / "reserve"
        self.low = ""
        self.free, self.held = room_on(home).free, 0
        with suppress(FileNotFoundError):
            self.held = self._path.stat().st_size
        self._checked_at = -CHECK_SECONDS

    def make_way(self) -> None:
        """Release as much as it takes to open a journal on a full disk."""
        room = room_on(self._home)
        while room.free < room.floor // 2 // PIECES and self.release():
            room = room_on(self._home)

    def look(self) -> str:
        """Check the disk, at most once per `CHECK_SECONDS`; refill the reserve if there is room. Return `low`."""
        if time.monotonic() - self._checked_at < CHECK_SECONDS:
            return self.low
        self._checked_at = time.monotonic()
        try:
            room = room_on(self._home)
        except OSError as error:
            self.low = f"{self._home}: {error.strerror}: nothing new is accepted until it is available again"
            return self.low
        self.free = room.free
        if not room.is_low(bool(self.low)):
            self.low = ""
            if self.held < room.floor // 2 and room.free > 2 * room.floor + room.floor // 2:
                self._take(room.floor // 2)
        else:
            files = room.lacks_files(bool(self.low))
            left = f"{room.files:,} inodes are free" if files else f"{_size(room.free)} are free"
            enough = f"{2 * room.least_files:,}" if files else _size(2 * room.floor)
            self.low = (
                f"{left} on the disk of {self._home}: nothing new is accepted and tasks that write output are "
                f"paused until {enough} are; free space on the disk, or cancel the jobs that fill it"
            )
        return self.low

    def release(self) -> bool:
        """Release a piece if the disk is full. Return True if there was one."""
        room = room_on(self._home)
        if not self.held or not room.is_low(True):
            return False
        left = max(0, self.held - max(1, room.floor // 2 // PIECES))
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # somebody removed it to free space
            self.held = 0
            return False
        try:
            os.ftruncate(file, left)
            os.fsync(file)  # only then does the file system free the space
        finally:
            os.close(file)
        self.held = left
        return True

    def _take(self, size: int) -> None:
        """Grow the file as far as there is space; a race with other writers shows at the next check."""
        with suppress(OSError), opened(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600) as file:
            with suppress(OSError):
                os.posix_fallocate(file, 0, size)
            self.held = os.fstat(file).st_size


def _size(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
