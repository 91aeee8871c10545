"""What a running scheduler says, to its terminal and to its log: written by threads of their own.

A terminal that is held (Ctrl-S), a pipe that nobody reads any more, a log that cannot be opened: none of that is the scheduler's
business. So who says something never waits for it to be written, and never fails; what there is no room for is left out.
"""

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

MOST_LINES = 1000
"""Lines that wait to be written."""
END_WITHIN = 1.0
"""Seconds that the end waits for what was said to be written."""


class Background:
    """Says lines by a function that may take long or fail.

    Parameters
    ----------
    write : callable
        Writes one line; what it raises is passed over if it is an OSError or a ValueError, as of a closed file.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_LINES)
        self._write = write
        self._thread = threading.Thread(target=self._run, name="says", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """Have a line written, soon."""
        with suppress(queue.Full):
            self._lines.put_nowait(line)

    def close(self) -> None:
        """Wait a moment for what was said."""
        with suppress(queue.Full):
            self._lines.put(None, timeout=END_WITHIN)
            self._thread.join(END_WITHIN)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            with suppress(OSError, ValueError):
                self._write(line)


class InBackground(logging.Handler):
    """Log records as lines."""

    def __init__(self, background: Background, formatter: logging.Formatter) -> None:
        super().__init__()
        self._background = background
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Say a record."""
        self._background.say(self.format(record))
