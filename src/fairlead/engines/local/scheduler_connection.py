"""The supervisor's connection to the scheduler: one at a time, the latest from one that is obeyed; lines of JSON both ways.

:mod:`fairlead.engines.local.messages` parses what comes; a line that it refuses is logged and ignored. What we send
waits in `outbox` while the scheduler does not read. The supervisor of a node dials its scheduler
(:mod:`fairlead.engines.local.dialing`); on either connection the scheduler speaks first, with its greeting.
"""

import contextlib
import json
import selectors
import socket
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.engines.local.messages import Greet, Message, read
from fairlead.sockets import socket_name

if TYPE_CHECKING:
    from fairlead.engines.local.dialing import Dialer
    from fairlead.tls import TLSConnection

LONGEST_LINE = 64 * 2**20
LONGEST_GREETING = 4096
MOST_AT_ONCE = 2**16
"""Bytes of one read: for a larger buffer, each read would map memory."""
PAUSE = 0.01
"""Seconds until the next accept when no descriptor is free."""
MOST_UNIDENTIFIED = 16
"""Connections that have not sent a greeting; one more closes the oldest."""


class SchedulerConnection:
    """Listens on FOLDER/socket, and dials if FOLDER has a membership.

    refuses : returns why a scheduler is not obeyed, by its greeting; empty if it is
    hear : called with each message of the scheduler
    """

    def __init__(
        self, folder: Path, selector: selectors.BaseSelector, refuses: Callable[[Greet], str], hear: Callable[[Message], None]
    ) -> None:
        self._selector, self._refuses, self._hear = selector, refuses, hear
        self._connection: socket.socket | TLSConnection | None = None
        self._unidentified: dict[socket.socket | TLSConnection, bytearray] = {}  # what each sent of its greeting
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._listener = _listen(folder)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._dialer: Dialer | None = None
        self._dialed: TLSConnection | None = None
        if (folder / "member.json").exists():
            from fairlead.engines.local import dialing

            self._dialer = dialing.Dialer(folder, selector, self._reached)

    def is_open(self) -> bool:
        return self._connection is not None

    @property
    def about(self) -> dict[str, Any]:
        """What this node says of itself; empty for the local engine's."""
        return self._dialer.about if self._dialer is not None else {}

    def keep_dialing(self) -> float:
        """Dial if that is due, and renew a stale connection. Return the seconds until the next call."""
        dialer = self._dialer
        if dialer is None:
            return inf
        if self._connection is not None and dialer.is_stale():
            self.hang_up()
        if self._connection is not None:
            return inf  # a heartbeat is due before
        if dialer.until_due() <= 0:
            if self._dialed is not None and self._dialed in self._unidentified:
                self._send_away(self._dialed)
            dialer.dial()
        return dialer.until_due()

    def _reached(self, connection: "TLSConnection") -> None:
        self._dialed = connection
        self._expect_greeting(connection)
        self._identify(connection)  # begins the handshake

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

    def _accept(self) -> None:
        try:
            line, _ = self._listener.accept()
        except OSError:  # no free descriptor until a task ends; select returns at once, so pause
            time.sleep(PAUSE)
            return
        line.setblocking(False)
        self._expect_greeting(line)

    def _expect_greeting(self, peer: "socket.socket | TLSConnection") -> None:
        while len(self._unidentified) >= MOST_UNIDENTIFIED:
            self._send_away(next(iter(self._unidentified)))
        self._unidentified[peer] = bytearray()
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._identify(peer))

    def _identify(self, peer: "socket.socket | TLSConnection") -> None:
        """Read a greeting: replace the current connection, or answer why not. The rest of the data is parsed after it."""
        received = self._unidentified.get(peer)
        if received is None:  # closed since select
            return
        try:
            data = peer.recv(LONGEST_GREETING)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        received += data
        line, whole, rest = received.partition(b"\n")
        if data and not whole and len(received) < LONGEST_GREETING:
            return
        try:
            greet = read(line) if whole else None
        except ValueError:
            greet = None
        if not isinstance(greet, Greet):
            self._send_away(peer)
            return
        try:
            why = self._refuses(greet)
        except OSError:  # no descriptor: it connects again
            self._send_away(peer)
            raise
        if why:
            with contextlib.suppress(OSError):
                peer.send(json.dumps({"saw": "refused", "why": why}).encode() + b"\n")
            self._send_away(peer)
            return
        self.hang_up()
        if self._dialer is not None:
            self._dialer.succeeded()
        del self._unidentified[peer]
        self._connection, self._inbox, self._outbox = peer, bytearray(), bytearray()
        self._selector.modify(peer, selectors.EVENT_READ, self._receive)
        self._hear(greet)
        self._take_in(rest)

    def _send_away(self, peer: "socket.socket | TLSConnection") -> None:
        del self._unidentified[peer]
        self._selector.unregister(peer)
        peer.close()
        if self._dialer is not None and peer is self._dialed:
            self._dialer.failed()

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
            data = self._connection.recv(MOST_AT_ONCE)
        except BlockingIOError:
            self.flush()
            return
        except OSError:
            data = b""
        if not data or len(self._inbox) > LONGEST_LINE:
            self.hang_up()
            return
        if self._dialer is not None:
            self._dialer.heard_at = time.monotonic()
        self._take_in(data)

    def _take_in(self, data: bytes | bytearray) -> None:
        self._inbox += data
        if b"\n" not in data:  # a long line comes in many pieces, and splitting copies all of it
            return
        *lines, self._inbox = self._inbox.split(b"\n")
        was = self._connection
        for line in lines:
            try:
                message = read(line)
            except ValueError as error:
                with contextlib.suppress(OSError):  # the log is on a full disk
                    sys.stderr.write(f"fairlead: cannot parse a message: {error}: {bytes(line[:200])!r}\n")
            else:
                try:
                    self._hear(message)
                except OSError:  # no descriptor: what is not heard is repeated over the next connection
                    self.hang_up()
                    raise
            if self._connection is not was:  # disconnected or replaced: drop the rest
                return


def _listen(folder: Path) -> socket.socket:
    (folder / "socket").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket_name(folder / "socket") as name:
        listener.bind(name)
    listener.listen(4)
    return listener
