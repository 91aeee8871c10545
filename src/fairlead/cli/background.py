"""Writes a running scheduler's messages to its terminal and its log, from threads of their own.

A held terminal (Ctrl-S), a pipe without a reader or a log that cannot be opened must not stop the scheduler. So logging
neither blocks nor fails; lines that do not fit in the queue are dropped. Repeated lines are folded, and the log on disk is
bounded: a message that others can cause again and again fills neither queue nor disk.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MOST_LINES = 1000
"""Lines in the queue, at most."""
FLUSH_SECONDS = 1.0
"""Time that `close` waits for queued lines to be written."""
FOLD_SECONDS = 60.0
"""How often the number of repetitions is written while a line repeats."""
LARGEST_LOG_BYTES = 4 * 2**20
"""Size of a log file, at most; the one before it is kept, too."""


class Background:
    """Writes lines from a thread, with a function that may block or fail.

    write : writes one line. OSError and ValueError (a closed file) are ignored.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_LINES)
        self._write = write
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        with suppress(queue.Full):
            self._lines.put_nowait(line)

    def close(self) -> None:
        """Wait briefly for the queued lines."""
        with suppress(queue.Full):
            self._lines.put(None, timeout=FLUSH_SECONDS)
            self._thread.join(FLUSH_SECONDS)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            with suppress(OSError, ValueError):
                self._write(line)


class BackgroundHandler(logging.Handler):
    """Writes log records through a Background. Of equal records in a row it writes the first, and how often it was repeated."""

    def __init__(self, background: Background, formatter: logging.Formatter) -> None:
        super().__init__()
        self._background = background
        self.setFormatter(formatter)
        self._last, self._written_at = "", 0.0
        self._repeated: logging.LogRecord | None = None
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, or count it if it is equal to the one before."""
        what = _without_time(record)
        if what == self._last:
            self._repeated, self._count = record, self._count + 1
            if time.monotonic() - self._written_at >= FOLD_SECONDS:
                self._write_count()
            return
        self._write_count()
        self._last, self._written_at = what, time.monotonic()
        self._background.say(self.format(record))

    def close(self) -> None:
        self.acquire()
        try:
            self._write_count()
        finally:
            self.release()
        super().close()

    def _write_count(self) -> None:
        if self._repeated is None:
            return
        times = f"last line repeated {self._count:,} time{'s' * (self._count > 1)}"
        fields = {**self._repeated.__dict__, "msg": times, "args": (), "exc_info": None, "exc_text": None, "stack_info": None}
        self._repeated, self._count, self._written_at = None, 0, time.monotonic()
        self._background.say(self.format(logging.makeLogRecord(fields)))


def _without_time(record: logging.LogRecord) -> str:
    """Return all that a record says, except when; a Formatter would keep the traceback in the record for the next handler."""
    failed = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
    return "\n".join((record.levelname, record.name, record.getMessage(), failed))


def append(path: Path, line: str) -> None:
    """Append a line to a log file; one that is full is renamed to NAME.1 first, in place of an older one. Raises OSError."""
    data = line.encode(errors="backslashreplace")[: LARGEST_LOG_BYTES - 1] + b"\n"
    with suppress(FileNotFoundError):
        if path.stat().st_size + len(data) > LARGEST_LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
    with path.open("ab") as file:
        file.write(data)
