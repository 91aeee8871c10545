"""Connections wait at the door, for less than a second: so everybody has an answer in that time, if only when to come back.

The event loop by itself accepts one connection in each of its turns, and answers it: of ten thousand that come at once the last
would wait until all before it are answered. Here all are accepted when they come, at hardly any cost, and wait in a line for each
party; some are let in in each turn, from each line in turn. Who has waited for long has its request looked at: it is told when to
come back. Who asks for health is let in at once; and who has not said anything yet when its time is over, to wait for a place.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable

from fairlead.people.door import Peer
from fairlead.service.places import Party, Places
from fairlead.sockets import uid_of_peer

IN_A_TURN = 20
"""Connections that are let in in one turn of the event loop: more would ask for more at once than there is room for."""
PATIENCE = 0.6
"""Seconds that one waits in line."""
MOST_IN_LINE = 10_000
"""Connections that wait; one that comes when there are more is told so at once."""
PAUSE = 0.5
"""Seconds to wait where no more files can be open."""
FOR_HEALTH = (b"GET /healthz ", b"GET /readyz ")
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOG = logging.getLogger(__name__)


def peer_of(connection: socket.socket, address: object) -> Peer:
    """Who is at the other end of a connection; `address` is what `accept` said of it."""
    if connection.family == socket.AF_UNIX:
        return Peer(uid_of_peer(connection), "this machine")
    return Peer(None, str(address[0]) if isinstance(address, tuple) and address else "somewhere")


class Acceptor:
    """Accepts the connections of one listening socket, in the event loop.

    Parameters
    ----------
    listener : socket
    make : callable
        Makes the protocol of a connection.
    tls : ssl.SSLContext, optional
        Where there is one nothing can be read or told before a handshake: who has waited for long is let in.
    places : Places
        Knows who counts as one party.
    refusal : callable
        Bytes of an answer that says when to come back.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        places: Places,
        refusal: Callable[[], bytes],
    ) -> None:
        self._listener, self._make, self._tls, self._places, self._refusal = listener, make, tls, places, refusal
        self._loop = asyncio.get_running_loop()
        self._coming: set[asyncio.Task[None]] = set()
        self._arrived: deque[tuple[float, socket.socket]] = deque()  # some of them have gone in already
        self._lines: dict[Party, deque[socket.socket]] = {}  # these too; the party whose turn it is first
        self._waiting: set[socket.socket] = set()
        self._turning = self._closed = False
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())
            for connection in self._waiting:
                connection.close()
            self._waiting.clear()

    async def wait_closed(self) -> None:
        """Wait until it is closed: it is, at once."""

    def _accept(self) -> None:
        """Take in all that are there."""
        for _ in range(MOST_IN_LINE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._pause()
                break
            connection.setblocking(False)
            if len(self._waiting) >= MOST_IN_LINE or _asks_for_health(connection):
                self._let_in_or_away(connection)
                continue
            self._waiting.add(connection)
            self._arrived.append((self._loop.time(), connection))
            self._lines.setdefault(self._places.party_of(peer_of(connection, address)), deque()).append(connection)
        if not self._turning:
            self._turn()

    def _turn(self) -> None:
        """Tell those that have waited for long, and let some in."""
        over = self._loop.time() - (PATIENCE if self._places.patience is None else self._places.patience)
        while self._arrived and (self._arrived[0][0] <= over or self._arrived[0][1] not in self._waiting):
            connection = self._arrived.popleft()[1]
            if connection in self._waiting:
                self._waiting.discard(connection)
                self._let_in_or_away(connection)
        for _ in range(min(IN_A_TURN, len(self._waiting))):
            self._let_in(self._next())
        self._turning = bool(self._waiting)
        if self._turning:
            self._loop.call_soon(self._turn)
        else:
            self._lines.clear()

    def _next(self) -> socket.socket:
        """Take the one out that has waited longest of the party whose turn it is; there is one that waits."""
        while True:
            party, line = next(iter(self._lines.items()))
            del self._lines[party]
            connection = line.popleft()
            if line:
                self._lines[party] = line
            if connection in self._waiting:
                self._waiting.discard(connection)
                return connection

    def _pause(self) -> None:
        _LOG.warning("no more files can be open: connections wait")
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(PAUSE, self._go_on)

    def _go_on(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _let_in(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._connect(connection))
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connection, ssl=self._tls)
        except (TimeoutError, OSError):  # its other end is gone, or speaks no TLS
            connection.close()

    def _let_in_or_away(self, connection: socket.socket) -> None:
        """Tell one that has asked for something to come back later."""
        if self._tls is not None:
            self._let_in(connection)
            return
        try:
            asked = connection.recv(64, socket.MSG_PEEK)
            if asked.startswith(FOR_HEALTH):
                self._let_in(connection)
                return
            if asked:
                connection.send(self._refusal())
                connection.recv(65536)  # what is not read would have the answer thrown away
                connection.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            self._let_in(connection)
            return
        except OSError as error:
            _LOG.debug("gone while it waited: %s", error)
        connection.close()


def _asks_for_health(connection: socket.socket) -> bool:
    try:
        return connection.recv(64, socket.MSG_PEEK).startswith(FOR_HEALTH)
    except OSError:  # nothing is there yet, or nobody any more
        return False
