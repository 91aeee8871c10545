"""What people did that is no fact: what they were refused, the tokens that they made, that they stopped the scheduler.

Lines of JSON in files of the scheduler's folder: each person has one for what they did and one for what they were refused, and an
older one of each, so that these never take more than four times `LARGEST` bytes, and nobody drives out what was noted of
another, or what they were refused by what they do. Strangers have theirs together. Somebody who is refused all the time gets so
many lines a minute, and then one that counts the rest.
"""

import heapq
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from fairlead.data_folder import open_private

log = logging.getLogger("fairlead")

LARGEST = 2**20
LINES_A_MINUTE = 30
LONGEST = 500
"""Characters of what is noted, at most."""
PIECE = 16 * 2**10
"""Bytes that are read of a file at once, from its end on."""
STRANGERS = "@strangers"
"""The name of their files: no account has it."""

Outcome = Literal["done", "refused"]


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that somebody did, or tried.

    at : seconds since the epoch.
    by : a person's name, or what else is known of who it was.
    why : for what was refused, the reason.
    """

    at: float
    by: str
    what: str
    outcome: Outcome
    queue: str = ""
    why: str = ""


class Deeds:
    """The folder of deeds. Threads may share one."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        folder.mkdir(mode=0o700, exist_ok=True)
        self._minutes: dict[str, tuple[int, int]] = {}  # by person: the minute, and their lines in it

    def done(self, by: str, what: str, queue: str = "") -> None:
        """Note what a person did."""
        self._write(by, Deed(time.time(), by[:LONGEST], what[:LONGEST], "done", queue))

    def refused(self, by: str, what: str, why: str, queue: str = "", stranger: bool = False) -> None:
        """Note what a person, or a stranger, was refused."""
        now, whose = time.time(), STRANGERS if stranger else by
        with self._lock:
            if len(self._minutes) > 1000:
                self._minutes = {}
            minute, lines = self._minutes.get(by, (0, 0))
            this = int(now // 60)
            left_out = max(0, lines - LINES_A_MINUTE) if minute != this else 0
            lines = 1 if minute != this else lines + 1
            self._minutes[by] = this, lines
        if left_out:
            more = Deed(now, by[:LONGEST], f"{left_out} requests more", "refused", "", "too many to note each")
            self._write(whose, more)
        if lines <= LINES_A_MINUTE:
            self._write(whose, Deed(now, by[:LONGEST], what[:LONGEST], "refused", queue, why[:LONGEST]))

    def newest_first(self, by: str | None = None, since: float = 0.0, before: float | None = None) -> Iterator[Deed]:
        """What was noted since a moment, and before another, the newest first; of one person, if one is named.

        Read as it is asked for.
        """
        theirs = (f"{by}.done", f"{by}.refused", f"{STRANGERS}.refused")
        names = [name for name in self._names() if by is None or name in theirs]
        for deed in heapq.merge(*map(self._deeds_in, names), key=lambda deed: -deed.at):
            if deed.at < since:
                return
            if (before is None or deed.at < before) and by in (None, deed.by):
                yield deed

    def _names(self) -> list[str]:
        if not self._folder.is_dir():  # somebody removed it
            return []
        return sorted({path.name.removesuffix(".older") for path in self._folder.iterdir()})

    def _deeds_in(self, name: str) -> Iterator[Deed]:
        for path in (self._folder / name, self._folder / f"{name}.older"):
            for line in _lines_from_the_end(path):
                try:
                    yield msgspec.json.decode(line, type=Deed)
                except msgspec.DecodeError:  # cut off, as the machine went down
                    continue

    def _write(self, whose: str, deed: Deed) -> None:
        line = msgspec.json.encode(deed) + b"\n"
        path = self._folder / f"{whose}.{deed.outcome}"
        with self._lock:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                with open_private(path) as file:
                    file.write(line)
                    full = file.tell() > LARGEST
                if full:
                    path.replace(self._folder / f"{path.name}.older")
            except OSError as error:  # a full disk; what people ask for goes on
                log.warning("%s: cannot be written: %s", path, error.strerror)


def _lines_from_the_end(path: Path) -> Iterator[bytes]:
    """The lines of a file, the last first; none where there is no file. It is not held open: there may be many."""
    try:
        end, rest = path.stat().st_size, b""
        while end > 0:
            begin = max(0, end - PIECE)
            with path.open("rb") as file:
                file.seek(begin)
                rest, *lines = (file.read(end - begin) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line)
            end = begin
        yield from [rest] if rest else []
    except FileNotFoundError:
        return
