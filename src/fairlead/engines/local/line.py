"""The line to the scheduler: one connection at a time, the latest; lines of JSON both ways.

What it says is read into records by :mod:`fairlead.engines.local.messages`; a line that cannot be read is noted in the log,
and the next one is heard. What we say waits in `outbox` for as long as the scheduler does not listen.
"""

import contextlib
import json
import selectors
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead.engines.local.messages import Message, read
from fairlead.sockets import socket_name

LONGEST_LINE = 64 * 2**20


class Line:
    """Listens on FOLDER/socket.

    Parameters
    ----------
    hear : callable
        Called with each message of the scheduler.
    """

    def __init__(self, folder: Path, selector: selectors.BaseSelector, hear: Callable[[Message], None]) -> None:
        self._selector, self._hear = selector, hear
        self._connection: socket.socket | None = None
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
        connection, _ = self._listener.accept()
        if self._connection:
            self._hang_up()
        connection.setblocking(False)
        self._connection, self._inbox, self._outbox = connection, bytearray(), bytearray()
        self._selector.register(connection, selectors.EVENT_READ, self._receive)

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
