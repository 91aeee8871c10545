"""What people did that is no fact: what they were refused, the tokens that they made, that they stopped the scheduler.

Lines of JSON in a file of the scheduler's folder, and one older file beside it, so that they never take more than twice `LARGEST`
bytes. Somebody who is refused all the time gets so many lines a minute, and then one that counts the rest, so that nobody can
drive out what was noted of them before.
"""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from fairlead.data_folder import open_private

log = logging.getLogger("fairlead")

LARGEST = 8 * 2**20
LINES_A_MINUTE = 30
LONGEST = 500
"""Characters of what is noted, at most."""


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that somebody did, or tried.

    at : seconds since the epoch.
    by : a person's name, or what else is known of who it was.
    why : for what was refused, the reason.
    """

    at: float
    by: str
    what: str
    outcome: Literal["done", "refused"]
    queue: str = ""
    why: str = ""


class Deeds:
    """The file of deeds. Threads may share one."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._minutes: dict[str, tuple[int, int]] = {}  # by person: the minute, and their lines in it

    def done(self, by: str, what: str, queue: str = "") -> None:
        """Note what somebody did."""
        self._write(Deed(time.time(), by[:LONGEST], what[:LONGEST], "done", queue))

    def refused(self, by: str, what: str, why: str, queue: str = "") -> None:
        """Note what somebody was refused."""
        now = time.time()
        with self._lock:
            if len(self._minutes) > 1000:
                self._minutes = {}
            minute, lines = self._minutes.get(by, (0, 0))
            this = int(now // 60)
            left_out = max(0, lines - LINES_A_MINUTE) if minute != this else 0
            lines = 1 if minute != this else lines + 1
            self._minutes[by] = this, lines
        if left_out:
            self._write(Deed(now, by[:LONGEST], f"{left_out} requests more", "refused", "", "too many to note each"))
        if lines <= LINES_A_MINUTE:
            self._write(Deed(now, by[:LONGEST], what[:LONGEST], "refused", queue, why[:LONGEST]))

    def since(self, at: float) -> Iterator[Deed]:
        """What was noted since a moment, the oldest first."""
        for path in (self._older, self._path):
            try:
                lines = path.read_bytes().splitlines()
            except FileNotFoundError:
                continue
            for line in lines:
                try:
                    deed = msgspec.json.decode(line, type=Deed)
                except msgspec.DecodeError:  # cut off, as the machine went down
                    continue
                if deed.at >= at:
                    yield deed

    @property
    def _older(self) -> Path:
        return self._path.with_name(self._path.name + ".1")

    def _write(self, deed: Deed) -> None:
        line = msgspec.json.encode(deed) + b"\n"
        with self._lock:
            try:
                with open_private(self._path) as file:
                    file.write(line)
                    full = file.tell() > LARGEST
                if full:
                    self._path.replace(self._older)
            except OSError as error:  # a full disk; what people ask for goes on
                log.warning("%s: cannot be written: %s", self._path, error.strerror)
