"""The supervisor's connection to the scheduler: one at a time, the latest from one that is obeyed; lines of JSON both ways.

:mod:`fairlead.engines.local.messages` parses what comes; a line that it refuses is logged and ignored. What we send
waits in `outbox` while the scheduler does not read. A supervisor of a cluster also listens on a port under TLS
(:mod:`fairlead.engines.local.tls`): without the scheduler's key nobody gets past the handshake.
"""

import contextlib
import json
import selectors
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.engines.local.member import read_listen_address, write_address
from fairlead.engines.local.messages import Greet, Message, read
from fairlead.sockets import socket_name

if TYPE_CHECKING:
    from fairlead.engines.local.tls import TLSConnection

LONGEST_LINE = 64 * 2**20
LONGEST_GREETING = 4096
PAUSE = 0.01
"""Seconds until the next accept when no descriptor is free."""
MOST_UNIDENTIFIED = 16
"""Connections that have not sent a greeting; one more closes the oldest."""


class _Unidentified:
    """A connection whose greeting is incomplete, and what it sent so far."""

    def __init__(self, connection: "socket.socket | TLSConnection") -> None:
        self.connection, self.received = connection, bytearray()


class SchedulerConnection:
    """Listens on FOLDER/socket.

    Parameters
    ----------
    refuses : callable
        Returns why a scheduler is not obeyed, by its greeting; empty if it is.
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
        self._connection: socket.socket | TLSConnection | None = None
        self._unidentified: list[_Unidentified] = []
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._listener = _listen(folder)
        selector.register(self._listener, selectors.EVENT_READ, lambda: self._accept(self._listener, lambda line: line))
        self._listen_for_others(folder)

    def _listen_for_others(self, folder: Path) -> None:
        """Listen on a port if member.json exists, and write down how this supervisor is reached."""
        how = read_listen_address(folder)
        host, port = "", 0
        if how is not None:
            from fairlead.engines.local import tls

            context = tls.between(folder / "own.pem", (folder / "scheduler.pem").read_text(), at_supervisor=True)
            listener = socket.create_server((how["host"], 0), family=_family(how["host"]), backlog=16)
            listener.setblocking(False)
            host, port = listener.getsockname()[:2]

            def accept() -> None:
                self._accept(listener, lambda line: tls.TLSConnection(line, context))

            self._selector.register(listener, selectors.EVENT_READ, accept)
        write_address(folder, host, port)

    def is_open(self) -> bool:
        """Return whether a scheduler is connected."""
        return self._connection is not None

    def report(self, saw: str, **what: Any) -> None:
        """Queue a message to the scheduler; dropped if none is connected."""
        if self._connection:
            self._outbox += json.dumps({"saw": saw, **what}).encode() + b"\n"
            if len(self._outbox) > 65536:
                self.flush()

    def flush(self) -> None:
        """Send what the socket accepts now."""
        if not self._connection:
            return
        try:
            while self._outbox:
                sent = self._connection.send(self._outbox)
                del self._outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.hang_up()
            return
        want = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        if self._selector.get_key(self._connection).events != want:
            self._selector.modify(self._connection, want, self._receive)

    def _accept(
        self, listener: socket.socket, over: "Callable[[socket.socket], socket.socket | TLSConnection]"
    ) -> None:
        try:
            line, _ = listener.accept()
        except OSError:  # no free descriptor until a task ends; select returns at once, so pause
            time.sleep(PAUSE)
            return
        line.setblocking(False)
        if line.family != socket.AF_UNIX:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while len(self._unidentified) >= MOST_UNIDENTIFIED:
            self._send_away(self._unidentified[0])
        try:
            peer = _Unidentified(over(line))
        except OSError:  # it disconnected
            line.close()
            return
        self._unidentified.append(peer)
        self._selector.register(peer.connection, selectors.EVENT_READ, lambda: self._identify(peer))

    def _identify(self, peer: _Unidentified) -> None:
        """Read a greeting: replace the current connection, or answer why not. The rest of the data is parsed after it."""
        if peer not in self._unidentified:  # closed since select
            return
        try:
            data = peer.connection.recv(LONGEST_GREETING)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        peer.received += data
        line, whole, rest = peer.received.partition(b"\n")
        if data and not whole and len(peer.received) < LONGEST_GREETING:
            return
        try:
            greet = read(line) if whole else None
        except ValueError:
            greet = None
        if not isinstance(greet, Greet):
            self._send_away(peer)
            return
        if why := self._refuses(greet):
            with contextlib.suppress(OSError):
                peer.connection.send(json.dumps({"saw": "refused", "why": why}).encode() + b"\n")
            self._send_away(peer)
            return
        self.hang_up()
        self._unidentified.remove(peer)
        self._connection, self._inbox, self._outbox = peer.connection, bytearray(), bytearray()
        self._selector.modify(self._connection, selectors.EVENT_READ, self._receive)
        self._hear(greet)
        self._take_in(rest)

    def _send_away(self, peer: _Unidentified) -> None:
        self._unidentified.remove(peer)
        self._selector.unregister(peer.connection)
        peer.connection.close()

    def hang_up(self) -> None:
        """Close the connection, if any; data under way is dropped."""
        if self._connection:
            self._selector.unregister(self._connection)
            self._connection.close()
            self._connection = None

    def _receive(self) -> None:
        if self._connection is None:  # closed since select
            return
        try:
            data = self._connection.recv(1 << 20)
        except BlockingIOError:
            self.flush()
            return
        except OSError:
            data = b""
        if not data or len(self._inbox) > LONGEST_LINE:
            self.hang_up()
            return
        self._take_in(data)

    def _take_in(self, data: bytes | bytearray) -> None:
        self._inbox += data
        *lines, self._inbox = self._inbox.split(b"\n")
        was = self._connection
        for line in lines:
            try:
                message = read(line)
            except ValueError as error:
                with contextlib.suppress(OSError):  # the log is on a full disk
                    sys.stderr.write(f"fairlead: cannot parse a message: {error}: {bytes(line[:200])!r}\n")
            else:
                self._hear(message)
            if self._connection is not was:  # disconnected or replaced: drop the rest
                return


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _listen(folder: Path) -> socket.socket:
    (folder / "socket").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket_name(folder / "socket") as name:
        listener.bind(name)
    listener.listen(4)
    return listener
