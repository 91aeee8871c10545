"""Forwards this program's standard input to a task, piece by piece, as the task reads it."""

import contextlib
import os
import select
import stat
import sys
import termios
import threading
import tty
from typing import Any, Literal

from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError

PIECE_BYTES = 256 * 2**10

Kind = Literal["", "pipe", "terminal"]


class InputLost(Exception):
    """A task starts again, and its input cannot be read again."""


class TerminalGone(Exception):
    """The forwarded terminal is gone."""


def kind_of_input() -> Kind:
    """Return "pipe" if standard input is a file, a pipe or a socket, otherwise ""."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # it is closed
        return ""
    return "pipe" if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else ""


class StandardInput:
    """Forwards standard input in a thread while the task runs, with a terminal in raw mode.

    If the task starts again, it reads the input from its beginning, if that is a file.
    """

    def __init__(self, connection: Connection, job: int, kind: Kind, index: int = 0, **query: str) -> None:
        self._connection, self._path, self._kind = connection, f"/v1/jobs/{job}/tasks/{index}/input", kind
        self._query: dict[str, Any] = query  # of each request
        self._attempt = 0
        self._closing = False
        self._trouble: Exception | None = None
        self._thread: threading.Thread | None = None
        self._wakeups, self._wakeup = os.pipe()
        self._saved_mode = termios.tcgetattr(0) if kind == "terminal" else None
        self._begin: int | None = None
        with contextlib.suppress(OSError):  # it is not seekable
            self._begin = os.lseek(0, 0, os.SEEK_CUR) if kind == "pipe" else None

    def close(self) -> None:
        self._closing = True
        self.wake()
        if self._saved_mode is not None:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(0, termios.TCSADRAIN, self._saved_mode)

    def update(self, task: Any) -> None:
        """Start forwarding when the task starts. Raises InputLost, TerminalGone, or the error of the thread."""
        if self._trouble is not None:
            raise TerminalGone if self._kind == "terminal" and isinstance(self._trouble, OSError) else self._trouble
        if self._saved_mode is not None and self._thread is None and task["status"] != "waiting":  # also if it has ended already
            try:
                tty.setraw(0, termios.TCSADRAIN)
            except termios.error:
                raise TerminalGone from None
        if self._kind and task["status"] in ("starting", "running") and task["attempt"] != self._attempt:
            self._attempt = task["attempt"]
            self.wake()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="input", daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Wake the thread: the terminal's size or the attempt has changed, or forwarding ends."""
        os.write(self._wakeup, b".")

    def _run(self) -> None:
        try:
            while not self._closing:
                attempt = self._attempt
                self._forward(attempt)
                while not self._closing and self._attempt == attempt:
                    os.read(self._wakeups, 4096)
                if not self._closing and self._kind == "pipe":
                    if self._begin is None:
                        raise InputLost
                    os.lseek(0, self._begin, os.SEEK_SET)
        except (InputLost, ServiceError, OSError) as error:
            self._trouble = error

    def _forward(self, attempt: int) -> None:
        """Feed an attempt until it ends, the input ends, or another attempt starts."""
        offset, piece, end = 0, b"", False
        while not self._closing and self._attempt == attempt:
            size = size_of_terminal() if self._kind == "terminal" else {}
            answer = self._connection.put(self._path, piece, offset=offset, end=end, **size, **self._query)
            if answer["attempt"] != attempt or answer["over"]:
                return
            taken = max(offset, answer["taken"])
            offset, piece = taken, piece[taken - offset :]
            if end and not piece:
                return
            if not piece:
                ready, _, _ = select.select([0, self._wakeups], [], [])
                if self._wakeups in ready:
                    os.read(self._wakeups, 4096)
                if 0 in ready:
                    piece = os.read(0, PIECE_BYTES)
                    end = not piece


def size_of_terminal() -> dict[str, int]:
    """Return the size of this terminal, as requests have it."""
    now = os.get_terminal_size(0)
    return {"rows": max(1, now.lines), "columns": max(1, now.columns)}


def is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
