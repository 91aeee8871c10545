"""Writes a running scheduler's messages to its terminal and its log, from threads of their own.

A held terminal (Ctrl-S), a pipe without a reader or a log that cannot be opened must not stop the scheduler. So logging
neither blocks nor fails; lines that do not fit in the queue are dropped.
"""

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

MOST_LINES = 1000
"""Lines in the queue, at most."""
FLUSH_SECONDS = 1.0
"""Time that `close` waits for queued lines to be written."""


class Background:
    """Writes lines from a thread, with a function that may block or fail.

    Parameters
    ----------
    write : callable
        Writes one line. OSError and ValueError (a closed file) are ignored.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_LINES)
        self._write = write
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """Queue a line."""
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
    """Writes log records through a Background."""

    def __init__(self, background: Background, formatter: logging.Formatter) -> None:
        super().__init__()
        self._background = background
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record."""
        self._background.say(self.format(record))
