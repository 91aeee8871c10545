"""Room on the disk of a data folder: how little is too little, and a reserve for when nothing is left.

Below the *floor* tasks that write output are paused and nothing new is taken on; from twice as much on all goes on. So the room
that is left is the journal's. Where even that is gone, because something else fills the disk, the *reserve* is given back: a file
that only takes room, a piece at a time, so that whoever writes on meanwhile does not get all of it. What ends tasks, cancels,
drains and stops is little, and is written so.

Only the standard library: the tasks' supervisor looks here too.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

LARGEST_FLOOR = 64 * 2**20
"""Bytes of the floor; on a small disk it is a sixteenth of that."""
FEWEST_FILES = 500
"""Files that there must be room for; on a disk for few it is a sixteenth of all."""
PIECES = 4
"""In which the reserve is given back."""
LOOK_EVERY = 0.5
"""Seconds between two looks at the disk."""


class Room(NamedTuple):
    """Bytes that are free on a disk, and the floor under which that is too little; and files that can be made, in the same way.

    Where a disk has no bound on files both are 0.
    """

    free: int
    floor: int
    files: int = 0
    least_files: int = 0

    def is_low(self, was_low: bool) -> bool:
        """Whether it is too little; once it was, there must be twice the floor."""
        times = 2 if was_low else 1
        return self.free < times * self.floor or self.lacks_files(was_low)

    def lacks_files(self, was_low: bool) -> bool:
        """Whether files are what there is too little of."""
        return self.files < (2 if was_low else 1) * self.least_files


def room_on(folder: Path | str) -> Room:
    """The room on the disk of a folder. Raises OSError."""
    disk = os.statvfs(folder)
    floor = min(LARGEST_FLOOR, disk.f_blocks * disk.f_frsize // 16)
    return Room(disk.f_bavail * disk.f_frsize, floor, disk.f_favail, min(FEWEST_FILES, disk.f_files // 16))


class Reserve:
    """The file ``reserve`` of a data folder, half as large as the floor. One thread uses it.

    Attributes
    ----------
    low : str
        Why nothing new is to be taken on; empty while there is room. Any thread may read it.
    free, held : int
        Bytes that are free, and that the file holds.
    """

    def __init__(self, home: Path) -> None:
        self._home, self._path = home, home / "reserve"
        self.low = ""
        self.free, self.held = room_on(home).free, 0
        with suppress(FileNotFoundError):
            self.held = self._path.stat().st_size
        self._looked_at = -LOOK_EVERY

    def make_way(self) -> None:
        """Give back as much as it takes to open a journal on a full disk."""
        room = room_on(self._home)
        while room.free < room.floor // 2 // PIECES and self.release():
            room = room_on(self._home)

    def look(self) -> str:
        """See how much room there is, twice a second; where it is enough, take the reserve again. Returns `low`."""
        if time.monotonic() - self._looked_at < LOOK_EVERY:
            return self.low
        self._looked_at = time.monotonic()
        try:
            room = room_on(self._home)
        except OSError as error:
            self.low = f"{self._home}: {error.strerror}: nothing new is taken on until it is there again"
            return self.low
        self.free = room.free
        if not room.is_low(bool(self.low)):
            self.low = ""
            if self.held < room.floor // 2 and room.free > 2 * room.floor + room.floor // 2:
                self._take(room.floor // 2)
        else:
            files = room.lacks_files(bool(self.low))
            there = f"{room.files:,} more files can be made" if files else f"{_size(room.free)} are free"
            enough = f"{2 * room.least_files:,} can" if files else f"{_size(2 * room.floor)} are"
            self.low = (
                f"{there} on the disk of {self._home}: nothing new is taken on and what writes output is "
                f"paused until {enough}; make room on its disk, or cancel what fills it"
            )
        return self.low

    def release(self) -> bool:
        """Give back a piece, on a disk that is full; whether there was one."""
        room = room_on(self._home)
        if not self.held or not room.is_low(True):
            return False
        left = max(0, self.held - max(1, room.floor // 2 // PIECES))
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # somebody removed it, to make room: there is none to give back
            self.held = 0
            return False
        try:
            os.ftruncate(file, left)
            os.fsync(file)  # the room is there only when the file system has written that down
        finally:
            os.close(file)
        self.held = left
        return True

    def _take(self, size: int) -> None:
        """Take room, as far as there is some: who was faster is seen at the next look."""
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                with suppress(OSError):
                    os.posix_fallocate(file, 0, size)
                self.held = os.fstat(file).st_size
            finally:
                os.close(file)


def _size(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
