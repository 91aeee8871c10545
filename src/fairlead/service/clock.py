"""The scheduler's clock: a monotonic count of seconds that nobody can set.

Time limits, waits and history use differences. A wall clock that steps (set by hand, by NTP after boot, or in a resumed virtual
machine) would end tasks too early or never. This clock starts at the wall clock's time and then counts CLOCK_BOOTTIME, including
suspension. It continues across restarts of the scheduler. After a boot it starts at the wall clock's time again, but never before
the last recorded fact.

People see times of the wall clock as it is set now: :meth:`Clock.wall`.
"""

import json
import logging
import time
import zlib
from math import inf, isfinite
from pathlib import Path

from fairlead.data_folder import write_private

log = logging.getLogger("fairlead")

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    """Seconds that never step; call it to read them.

    path : the file that stores the clock's start in this boot; created if missing
    not_before : the earliest time it may show, in seconds
    """

    def __init__(self, path: Path, not_before: float = -inf) -> None:
        boot, now = self.boot(), time.clock_gettime(time.CLOCK_BOOTTIME)
        known = _read(path, boot)
        self._begin = max(time.time() - now if known is None else known, not_before - now)
        if self._begin != known:
            try:
                kept = {"boot": boot, "begin": self._begin, "check": _check(boot, self._begin)}
                write_private(path, json.dumps(kept), durable=True)
            except OSError as error:  # it works without; the next start uses the wall clock instead
                log.warning("%s: cannot be written: %s", path, error.strerror)

    def __call__(self) -> float:
        return self._begin + time.clock_gettime(time.CLOCK_BOOTTIME)

    @staticmethod
    def boot() -> str:
        """Return the id of this boot; empty if unknown."""
        try:
            return _BOOT.read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def wall(self, at: float) -> float:
        """Convert a time of this clock to the wall clock as set now, to whole seconds of difference."""
        return at + round(time.time() - self())


def _check(boot: object, begin: float) -> int:
    """Return a checksum: a flipped bit in the file would end tasks, or let them run for years."""
    return zlib.crc32(f"{boot} {begin!r}".encode())


def _read(path: Path, boot: str) -> float | None:
    """Return the clock's start in this boot; None if unknown."""
    try:
        known, begin = read_clock(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s: cannot be read (%s): using the wall clock", path, error)
        return None
    return begin if boot and known == boot and isfinite(begin) else None


def read_clock(path: Path) -> tuple[str, float]:
    """Return the boot and the start of a stored clock. Raises OSError, or ValueError if it is damaged."""
    try:
        told = json.loads(path.read_text())
        boot, begin = told["boot"], float(told["begin"])
        if told["check"] != _check(boot, begin):
            raise ValueError("the checksum does not match")
    except (KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    return boot, begin
