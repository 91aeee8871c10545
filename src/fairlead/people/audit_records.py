"""Audit log of what is not a fact: refusals, new tokens, stopping the scheduler.

Entries are lines of JSON in the scheduler's folder. Each person has one file for actions and one for refusals, plus one older
file of each, so a person's entries take at most four times `MOST_FILE_BYTES`. Nobody can push out another person's entries, or
their own refusals by actions. Strangers share one file. Above `LINES_A_MINUTE`, refusals are only counted.
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

MOST_FILE_BYTES = 2**20
LINES_A_MINUTE = 30
MOST_CHARACTERS = 500
"""Of each text in an entry."""
READ_BYTES = 16 * 2**10
"""Bytes read at once, from the end of a file."""
STRANGERS = "@strangers"
"""The file name for strangers; no account can have it."""


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An action or a refused attempt.

    at : seconds since the epoch.
    by : a person's name, or what else identifies the caller.
    why : the reason of a refusal.
    """

    at: float
    by: str
    what: str
    outcome: Literal["done", "refused"]
    why: str = ""


class AuditRecords:
    """The folder of audit log files. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        folder.mkdir(mode=0o700, exist_ok=True)
        self._minutes: dict[str, tuple[int, int]] = {}  # by person: the current minute and their lines in it

    def done(self, by: str, what: str) -> None:
        self._write(by, AuditRecord(time.time(), by[:MOST_CHARACTERS], what[:MOST_CHARACTERS], "done"))

    def refused(self, by: str, what: str, why: str, stranger: bool = False) -> None:
        """Log a refusal to a person or a stranger."""
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
            more = AuditRecord(now, by[:MOST_CHARACTERS], f"{left_out} more requests", "refused", "too many to log each")
            self._write(whose, more)
        if lines <= LINES_A_MINUTE:
            found = AuditRecord(now, by[:MOST_CHARACTERS], what[:MOST_CHARACTERS], "refused", why[:MOST_CHARACTERS])
            self._write(whose, found)

    def newest_first(self, by: str | None = None, since: float = 0.0, before: float | None = None) -> Iterator[AuditRecord]:
        """Iterate over entries with ``since <= at < before``, newest first, optionally of one person. Reads lazily."""
        theirs = (f"{by}.done", f"{by}.refused", f"{STRANGERS}.refused")
        there = self._folder.iterdir() if self._folder.is_dir() else ()  # else removed by somebody
        names = sorted({path.name.removesuffix(".older") for path in there})
        names = [name for name in names if by is None or name in theirs]
        for record in heapq.merge(*map(self._records_in, names), key=lambda record: -record.at):
            if record.at < since:
                return
            if (before is None or record.at < before) and by in (None, record.by):
                yield record

    def _records_in(self, name: str) -> Iterator[AuditRecord]:
        for path in (self._folder / name, self._folder / f"{name}.older"):
            for line in _lines_from_the_end(path):
                try:
                    yield msgspec.json.decode(line, type=AuditRecord)
                except msgspec.DecodeError:  # truncated by a crash
                    continue

    def _write(self, whose: str, record: AuditRecord) -> None:
        line = msgspec.json.encode(record) + b"\n"
        path = self._folder / f"{whose}.{record.outcome}"
        with self._lock:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                with open_private(path) as file:
                    file.write(line)
                    full = file.tell() > MOST_FILE_BYTES
                if full:
                    path.replace(self._folder / f"{path.name}.older")
            except OSError as error:  # a full disk must not fail the request
                log.warning("%s: cannot be written: %s", path, error.strerror)


def _lines_from_the_end(path: Path) -> Iterator[bytes]:
    """Iterate over a file's lines, last first; none if it does not exist. Reopens it per piece: there may be many files."""
    try:
        end, rest = path.stat().st_size, b""
        while end > 0:
            begin = max(0, end - READ_BYTES)
            with path.open("rb") as file:
                file.seek(begin)
                rest, *lines = (file.read(end - begin) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line)
            end = begin
        yield from [rest] if rest else []
    except FileNotFoundError:
        return
