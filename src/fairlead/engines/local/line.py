"""The line to the scheduler: one connection at a time, the latest of one that is obeyed; lines of JSON both ways.

What it says is read into records by :mod:`fairlead.engines.local.messages`; a line that cannot be read is noted in the log,
and the next one is heard. What we say waits in `outbox` for as long as the scheduler does not listen.
"""

import contextlib
import json
import selectors
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead.engines.local.messages import Greet, Message, read
from fairlead.sockets import socket_name

LONGEST_LINE = 64 * 2**20
LONGEST_GREETING = 4096
PAUSE = 0.01
"""Seconds until who cannot be let in for want of a descriptor is looked at again."""


class Line:
    """Listens on FOLDER/socket.

    Parameters
    ----------
    refuses : callable
        Told who connects; why that one is not obeyed, or nothing.
    hear : callable
        Called with each message of the scheduler.
    """

    def __init__(
        self,
        folder: Path,
        selector: selectors.BaseSelector,
        refuses: Callable[[Greet], str],
        hear: Callable[[Message], None],
    ) -> None:
        self._selector, self._refuses, self._hear = selector, refuses, hear
        self._connection: socket.socket | None = None
        self._stranger: socket.socket | None = None  # who has connected, and not said who it is
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._listener = _listen(folder)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def is_open(self) -> bool:
        """Whether a scheduler is there."""
        return self._connection is not None

    def say(self, saw: str, **what: Any) -> None:
        """Tell the scheduler, if one is there."""
        if self._connection:
            self._outbox += json.dumps({"saw": saw, **what}).encode() + b"\n"
            if len(self._outbox) > 65536:
                self.flush()

    def flush(self) -> None:
        """Send what it takes now of what was said."""
        if not self._connection:
            return
        try:
            while self._outbox:
                sent = self._connection.send(self._outbox)
                del self._outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up()
            return
        want = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        self._selector.modify(self._connection, want, self._receive)

    def _accept(self) -> None:
        try:
            stranger, _ = self._listener.accept()
        except OSError:  # no descriptor is left, until a task ends; it is asked again at once, so not without a pause
            time.sleep(PAUSE)
            return
        self._send_away()
        stranger.setblocking(False)
        self._stranger = stranger
        self._selector.register(stranger, selectors.EVENT_READ, self._hear_stranger)

    def _hear_stranger(self) -> None:
        """Take the place of whoever is there, or be told why not. What else was said with the greeting is heard after it."""
        stranger = self._stranger
        if stranger is None:  # sent away since the selector saw it
            return
        try:
            line, whole, _ = stranger.recv(LONGEST_GREETING, socket.MSG_PEEK).partition(b"\n")
            greet = read(line) if whole else None
        except (OSError, ValueError):
            greet = None
        if not isinstance(greet, Greet):
            self._send_away()
            return
        stranger.recv(len(line) + 1)
        if why := self._refuses(greet):
            with contextlib.suppress(OSError):
                stranger.send(json.dumps({"saw": "refused", "why": why}).encode() + b"\n")
            self._send_away()
            return
        if self._connection:
            self._hang_up()
        self._connection, self._stranger, self._inbox, self._outbox = stranger, None, bytearray(), bytearray()
        self._selector.modify(stranger, selectors.EVENT_READ, self._receive)

    def _send_away(self) -> None:
        if self._stranger is not None:
            self._selector.unregister(self._stranger)
            self._stranger.close()
            self._stranger = None

    def _hang_up(self) -> None:
        assert self._connection
        self._selector.unregister(self._connection)
        self._connection.close()
        self._connection = None

    def _receive(self) -> None:
        if self._connection is None:  # hung up since the selector saw it
            return
        try:
            data = self._connection.recv(1 << 20)
        except BlockingIOError:
            self.flush()
            return
        except OSError:
            data = b""
        if not data or len(self._inbox) > LONGEST_LINE:
            self._hang_up()
            return
        self._inbox += data
        *lines, self._inbox = self._inbox.split(b"\n")
        for line in lines:
            try:
                message = read(line)
            except ValueError as error:
                with contextlib.suppress(OSError):  # the log is on a full disk
                    sys.stderr.write(f"fairlead: not understood: {error}: {bytes(line[:200])!r}\n")
            else:
                self._hear(message)


def _listen(folder: Path) -> socket.socket:
    (folder / "socket").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket_name(folder / "socket") as name:
        listener.bind(name)
    listener.listen(4)
    return listener
