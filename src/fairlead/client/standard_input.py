"""This program's standard input, handed on to a task: read here, and sent piece by piece as the task takes them."""

import contextlib
import os
import select
import stat
import sys
import termios
import threading
import tty
from types import TracebackType
from typing import Any, Literal, Self

from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError

PIECE = 256 * 2**10

Kind = Literal["", "pipe", "terminal"]


class InputLost(Exception):
    """A task starts again, and what it had read cannot be read again."""


class TerminalGone(Exception):
    """The terminal that is handed on is there no more."""


def kind_of_input() -> Kind:
    """What a task is to read of this program's: a pipe where that is a file or a pipe, else nothing."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # it is closed
        return ""
    return "pipe" if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else ""


class StandardInput:
    """Hands it on, in a thread, while its task runs; while it is entered, a terminal is as the task wants it.

    A task that starts again reads from where this program's input began, if that is a file.
    """

    def __init__(self, connection: Connection, job: int, kind: Kind) -> None:
        self._connection, self._path, self._kind = connection, f"/v1/jobs/{job}/tasks/0/input", kind
        self._attempt = 0
        self._closing = False
        self._trouble: Exception | None = None
        self._thread: threading.Thread | None = None
        self._ear, self._bell = os.pipe()
        self._as_it_was = termios.tcgetattr(0) if kind == "terminal" else None
        self._begin = _position() if kind == "pipe" else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self.ring()
        if self._as_it_was is not None:
            with contextlib.suppress(termios.error):  # it is gone
                termios.tcsetattr(0, termios.TCSADRAIN, self._as_it_was)

    def look(self, task: Any) -> None:
        """Take note of how far the task is, which may be such as to begin. Raises InputLost, TerminalGone, or what went wrong."""
        if self._trouble is not None:
            raise TerminalGone if self._kind == "terminal" and isinstance(self._trouble, OSError) else self._trouble
        if self._kind and task["status"] in ("starting", "running") and task["attempt"] != self._attempt:
            self._attempt = task["attempt"]
            self.ring()
            if self._thread is None:
                if self._as_it_was is not None:
                    try:
                        tty.setraw(0, termios.TCSADRAIN)
                    except termios.error:
                        raise TerminalGone from None
                self._thread = threading.Thread(target=self._run, name="input", daemon=True)
                self._thread.start()

    def ring(self) -> None:
        """Have the thread look at what has changed: the size of the terminal, the attempt, or that it is over."""
        os.write(self._bell, b".")

    def _run(self) -> None:
        try:
            while not self._closing:
                attempt = self._attempt
                self._hand_on(attempt)
                while not self._closing and self._attempt == attempt:
                    os.read(self._ear, 4096)
                if not self._closing and self._kind == "pipe":
                    if self._begin is None:
                        raise InputLost
                    os.lseek(0, self._begin, os.SEEK_SET)
        except (InputLost, ServiceError, OSError) as error:
            self._trouble = error

    def _hand_on(self, attempt: int) -> None:
        """Feed an attempt until it takes no more, there is no more, or there is another."""
        offset, piece, end = 0, b"", False
        while not self._closing and self._attempt == attempt:
            answer = self._put(offset, piece, end)
            if answer["attempt"] != attempt or answer["over"]:
                return
            taken = max(offset, answer["taken"])
            offset, piece = taken, piece[taken - offset :]
            if end and not piece:
                return
            if not piece:
                ready, _, _ = select.select([0, self._ear], [], [])
                if self._ear in ready:
                    os.read(self._ear, 4096)
                if 0 in ready:
                    piece = os.read(0, PIECE)
                    end = not piece

    def _put(self, offset: int, piece: bytes, end: bool) -> Any:
        size: dict[str, int] = {}
        if self._kind == "terminal":
            now = os.get_terminal_size(0)
            size = {"rows": max(1, now.lines), "columns": max(1, now.columns)}
        return self._connection.put(self._path, piece, offset=offset, end=end, **size)


def _position() -> int | None:
    """How far standard input was read before; None where it cannot be read again."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        return None


def is_terminal() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()
