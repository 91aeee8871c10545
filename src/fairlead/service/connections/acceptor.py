"""Accepts connections and queues them for less than a second, so everybody gets an answer in that time.

By itself the event loop accepts and answers one connection per iteration, so the last of ten thousand would wait for all others.
Here every connection is accepted at once, which is cheap, and waits in a queue per party. Each iteration admits some, round robin
over parties. A connection that has waited too long and has sent a request gets a refusal with Retry-After; if it has sent
nothing, it is admitted without a slot. Health checks are admitted at once.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.people.authenticator import Peer
from fairlead.service.connections.slots import ConnectionSlots, Party
from fairlead.sockets import account_of_caller, uid_of_caller, uid_of_peer

ADMITTED_AT_ONCE = 20
"""Connections admitted per iteration of the event loop; more would exceed the limits on concurrent requests."""
MOST_WAIT_SECONDS = 0.6
"""How long a connection may wait in its queue."""
MOST_IN_LINE = 10_000
"""Connections that may wait; more are refused at once."""
PAUSE_SECONDS = 0.5
"""How long to stop accepting when no more files can be open."""
FOR_HEALTH = (b"GET /healthz ", b"GET /readyz ")
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOG = logging.getLogger(__name__)


def peer_of(connection: socket.socket, address: object) -> Peer:
    """Return the other end of a connection; `address` is what `accept` returned."""
    if connection.family == socket.AF_UNIX:
        return Peer(uid_of_peer(connection), "this machine")
    if not isinstance(address, tuple) or not address:
        return Peer(None, "somewhere")
    return Peer(None, str(address[0]), account_of_caller(connection.getsockname(), address))


async def uid_of_client(scope: Mapping[str, Any]) -> int | None:
    """Return the uid at the other end of a request's local TCP connection, as the kernel reports it; None if unknown."""
    noted = scope["noted"]
    if "uid" not in noted:  # constant for a connection
        noted["uid"] = await asyncio.to_thread(uid_of_caller, scope["server"], scope["client"])
    return noted["uid"]


class Acceptor:
    """Accepts the connections of one listening socket, in the event loop.

    make : makes the protocol of a connection
    tls : with TLS nothing can be read or answered before a handshake, so connections that waited too long are admitted
    slots : maps a peer to its party
    refusal : returns the bytes of an answer with Retry-After
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        slots: ConnectionSlots,
        refusal: Callable[[], bytes],
    ) -> None:
        self._listener, self._make, self._tls, self._slots, self._refusal = listener, make, tls, slots, refusal
        self._loop = asyncio.get_running_loop()
        self._coming: set[asyncio.Task[None]] = set()
        self._lines: dict[Party, deque[socket.socket]] = {}  # may include admitted ones; the next party first
        self._waiting: OrderedDict[socket.socket, float] = OrderedDict()  # since when, the longest first
        self._iterating = self._closed = False
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Close the listening socket and the waiting connections."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            for connection in self._waiting:
                connection.close()
            self._waiting.clear()

    def _accept(self) -> None:
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
                self._admit_or_refuse(connection)
                continue
            self._waiting[connection] = self._loop.time()
            self._lines.setdefault(self._slots.party_of(peer_of(connection, address)), deque()).append(connection)
        if not self._iterating:
            self._iterate()

    def _iterate(self) -> None:
        """Refuse connections that have waited too long, and admit some others."""
        over = self._loop.time() - (MOST_WAIT_SECONDS if self._slots.max_wait is None else self._slots.max_wait)
        while self._waiting and next(iter(self._waiting.values())) <= over:
            self._admit_or_refuse(self._waiting.popitem(last=False)[0])
        for _ in range(min(ADMITTED_AT_ONCE, len(self._waiting))):
            self._admit(self._next())
        self._iterating = bool(self._waiting)
        if self._iterating:
            self._loop.call_soon(self._iterate)
        else:
            self._lines.clear()

    def _next(self) -> socket.socket:
        """Remove and return the oldest waiting connection of the next party; one must be waiting."""
        while True:
            party, line = next(iter(self._lines.items()))
            del self._lines[party]
            connection = line.popleft()
            if line:
                self._lines[party] = line
            if connection in self._waiting:
                del self._waiting[connection]
                return connection

    def _pause(self) -> None:
        _LOG.warning("no more files can be open: connections wait")
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _admit(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._connect(connection))
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connection, ssl=self._tls)
        except (TimeoutError, OSError):  # the other end is gone, or speaks no TLS
            connection.close()

    def _admit_or_refuse(self, connection: socket.socket) -> None:
        """Refuse a connection that has sent a request; admit any other."""
        if self._tls is not None:
            self._admit(connection)
            return
        try:
            asked = connection.recv(64, socket.MSG_PEEK)
            if asked.startswith(FOR_HEALTH):
                self._admit(connection)
                return
            if asked:
                connection.send(self._refusal())
                connection.recv(65536)  # unread data would make the kernel discard the answer
                connection.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            self._admit(connection)
            return
        except OSError as error:
            _LOG.debug("gone while it waited: %s", error)
        connection.close()


def _asks_for_health(connection: socket.socket) -> bool:
    try:
        return connection.recv(64, socket.MSG_PEEK).startswith(FOR_HEALTH)
    except OSError:  # nothing was sent yet, or the other end is gone
        return False
