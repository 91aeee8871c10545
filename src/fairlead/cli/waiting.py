"""Shows on standard error why a job waits, as `fairlead run` does: one line that changes on a terminal, otherwise one line."""

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from fairlead.cli.tables import span
from fairlead.cli.terminal import width
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.plain_text import plain

FIRST_SECONDS = 1.0
"""A job that starts sooner is not said to wait."""
REFRESH_SECONDS = 5.0
"""Time between questions why and until when; the line shows the seconds meanwhile."""


class WaitingLine:
    """The line about one job; `update` is called with its task at each poll, and the end of the block removes the line."""

    def __init__(self, connection: Connection, job: int) -> None:
        self._connection, self._job = connection, job
        self._since, self._asked, self._drawn = time.monotonic(), 0.0, 0.0
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._clear()

    def update(self, task: dict[str, Any]) -> None:
        """Show the line if the task has waited for a second; remove it once the task starts."""
        now = time.monotonic()
        if task["status"] not in ("none", "waiting"):
            self._clear()
            self._since = now  # it may be preempted, and wait again
            return
        if now - self._since < FIRST_SECONDS:
            return
        if not sys.stderr.isatty():
            if not self._text:
                self._text = self._reason()
                print(f"fairlead: {self._text}", file=sys.stderr, flush=True)
            return
        if now - self._asked >= REFRESH_SECONDS:
            self._text, self._asked, self._drawn = self._reason(), now, 0.0
        if now - self._drawn >= 1.0:
            line = f"fairlead: {span(now - self._since)}: {self._text}"
            most = width() - 1
            shown = line if len(line) <= most else line[: most - 1] + "…"
            print(f"\r\033[K{shown}", end="", file=sys.stderr, flush=True)
            self._drawn = now

    def _reason(self) -> str:
        with suppress(ServiceError):  # it may have started just now
            why = self._connection.get(f"/v1/jobs/{self._job}/why")
            when = self._connection.get(f"/v1/jobs/{self._job}/when")
            expected = "" if when["reason"] in ("over", "running") else f"; expected: {when['text']}"
            return plain(f"job {self._job} waits: {why['text']}{expected}")
        return f"job {self._job} waits"

    def _clear(self) -> None:
        if self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._drawn = self._asked = 0.0
