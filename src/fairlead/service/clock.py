"""The scheduler's clock: it counts seconds, and nobody sets it.

Time limits, waits and history go by differences, so a wall clock that is set (by hand, by NTP after a boot without one, by a
virtual machine that was asleep) would end tasks too early or never. This one starts with what the wall clock says and then counts
with the machine's own clock since its boot, asleep or not. Over a restart of the scheduler it goes on where it was; over a boot
it starts with the wall clock again, but never behind what has happened already.

What people are shown is what happened by the wall clock as it is set now: :meth:`Clock.wall`.
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
    """Seconds that never step; call it.

    Parameters
    ----------
    path : Path
        The file that says where it was in this boot; made where there is none.
    not_before : float
        Seconds that it has shown already.
    """

    def __init__(self, path: Path, not_before: float = -inf) -> None:
        boot, now = self.boot(), time.clock_gettime(time.CLOCK_BOOTTIME)
        known = _read(path, boot)
        self._begin = max(time.time() - now if known is None else known, not_before - now)
        if self._begin != known:
            try:
                write_private(
                    path,
                    json.dumps({"boot": boot, "begin": self._begin, "check": _check(boot, self._begin)}),
                    durable=True,
                )
            except OSError as error:  # it can run without: its next start takes the wall clock's word instead
                log.warning("%s: cannot be written: %s", path, error.strerror)

    def __call__(self) -> float:
        return self._begin + time.clock_gettime(time.CLOCK_BOOTTIME)

    @staticmethod
    def boot() -> str:
        """Which boot of the machine this is; empty where it does not say."""
        try:
            return _BOOT.read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def wall(self, at: float) -> float:
        """What the wall clock, as it is set now, would have shown at a moment of this one: whole seconds of difference count."""
        return at + round(time.time() - self())


def _check(boot: object, begin: float) -> int:
    """What tells a file that is as it was written: a bit that flips in it would end tasks, or let them run for years."""
    return zlib.crc32(f"{boot} {begin!r}".encode())


def _read(path: Path, boot: str) -> float | None:
    """Where the clock began in this boot; None where that is not known."""
    try:
        known, begin = read_clock(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s: cannot be read (%s): going by the wall clock", path, error)
        return None
    return begin if boot and known == boot and isfinite(begin) else None


def read_clock(path: Path) -> tuple[str, float]:
    """In which boot a clock was begun, and at which second of that. Raises OSError, ValueError where it is not as written."""
    try:
        told = json.loads(path.read_text())
        boot, begin = told["boot"], float(told["begin"])
        if told["check"] != _check(boot, begin):
            raise ValueError("it is not what was written")
    except (KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    return boot, begin
