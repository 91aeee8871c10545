"""Connections to supervisors, in one thread: messages go out and come in, and no caller waits.

The supervisors of nodes dial (:mod:`fairlead.engines.local.dialing`); that of this machine is dialed, and the connection is
renewed when it breaks. Messages that a supervisor does not read wait in memory up to a bound. Beyond it they
are dropped, and so are those that wait when a connection breaks; after either the supervisor is asked for an inventory. So a slow
or stopped supervisor delays no other.
"""

import asyncio
import contextlib
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from fairlead.engines.local.member import spawn
from fairlead.sockets import socket_name

log = logging.getLogger("fairlead")

MOST_UNSENT = 16 * 2**20
"""Bytes of messages that wait for one supervisor."""
FLUSH_BYTES = 2**20
"""Bytes waiting for one supervisor, beyond which the thread is woken although more may come."""
LONGEST_LINE = 64 * 2**20
"""Most bytes of a supervisor's message."""
HANDSHAKE_WITHIN = 10.0
"""Seconds for a handshake, and for a stranger's request."""
START_WITHIN = 10.0
"""Seconds for a new supervisor of this machine to accept connections."""
PAUSE = 0.1
"""Seconds until the next accept when no descriptor is free."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to connect, doubled each time, with jitter."""
MOST_UNIDENTIFIED = 1024
"""Connections whose handshake or request is incomplete; one more closes the oldest."""
LONGEST_REQUEST = 64 * 2**10
"""Most bytes of a stranger's request."""
PIECE_BYTES = 2**16
"""Bytes of a relay that are copied at once."""
HANG_UP_WITHIN = 2.0
"""Seconds for closed connections to send what waits."""


class LocalEndpoint:
    """The supervisor of a folder on this machine, started as a child if none runs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._failed, self._reached = folder, False, False

    async def open(self, protocol: asyncio.Protocol) -> None:
        try:
            await self._reach(protocol)
        except OSError as error:
            reason = f"no supervisor could be started: {error.strerror or error}: see {self._folder}/log"
            if not self._failed:
                log.error("%s; retrying", reason)
            self._failed = True
            raise OSError(reason) from None
        self._failed, self._reached = False, True

    async def _reach(self, protocol: asyncio.Protocol) -> None:
        with contextlib.suppress(OSError):  # none runs
            return await self._connect(protocol)
        if self._reached and not self._failed:
            log.warning("no supervisor answers: starting another")
        started, until = spawn(self._folder), time.monotonic() + START_WITHIN
        while True:
            try:
                return await self._connect(protocol)
            except OSError:
                if started.poll() or time.monotonic() > until:
                    raise
                await asyncio.sleep(0.01)
                if started.poll() == 0:  # another one ran, and may be about to end
                    started = spawn(self._folder)

    async def _connect(self, protocol: asyncio.Protocol) -> None:
        with socket_name(self._folder / "socket") as path:
            await asyncio.get_running_loop().create_unix_connection(lambda: protocol, path)


class _Connection(asyncio.Protocol):
    """The connection to one supervisor, and what waits to be sent to it."""

    def __init__(self, name: str, connections: "SupervisorConnections", greeting: bytes) -> None:
        self.name, self.connections, self._greeting = name, connections, greeting
        self.outbox = bytearray()
        self.accepts = self.dropped = False
        self.trouble = ""
        self.closed = self.heard = False
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._torn = b""
        self._broken = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def keep(self, endpoint: LocalEndpoint) -> None:
        """Stay connected until cancelled."""
        pause = 0.0
        while True:
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311
            self.heard = False
            try:
                self._broken.clear()
                await endpoint.open(self)
            except OSError as error:
                self.trouble = str(error)
            else:
                await self._broken.wait()
            pause = 0.0 if self.heard else min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * pause))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._paused, self._torn = cast("asyncio.Transport", transport), False, b""
        with self.connections.lock:
            self.outbox, self.dropped, self.accepts = bytearray(), False, self.connections.accept_at_once
        self._transport.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        if b"\n" not in data:
            self._torn += data
            if len(self._torn) > LONGEST_LINE:
                self.trouble = "it sent a line without an end"
                self.hang_up()
            return
        *lines, self._torn = (self._torn + data).split(b"\n")
        self.trouble, self.heard = "", True
        self.connections.hear(self.name, lines)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        with self.connections.lock:
            self.accepts = False
        self._broken.set()
        if not self.closed and not self.connections.closing.is_set():
            self.connections.broken(self.name)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def flush(self) -> None:
        """Send what waits, unless the supervisor has yet to read what was sent."""
        if self._transport is None or self._paused:
            return
        with self.connections.lock:
            data, self.outbox = self.outbox, bytearray()
            if self.dropped:
                self.dropped = False
                data += self.connections.again
        if data:
            self._transport.write(bytes(data))

    def answer(self, message: bytes) -> None:
        """Send a message at once; in the thread of the connections."""
        if self._transport is not None:
            self._transport.write(message)

    def hang_up(self, at_once: bool = True) -> None:
        """Close the connection, if any; `at_once` drops what is unsent."""
        if self._transport is not None:
            self._transport.abort() if at_once else self._transport.close()

    def is_open(self) -> bool:
        return self._transport is not None

    def is_sending(self) -> bool:
        return self._transport is not None and (bool(self.outbox) or self._transport.get_write_buffer_size() > 0)


class Door(NamedTuple):
    """Who may connect.

    context : the scheduler's side of TLS.
    name_of : returns the name of the node that a certificate belongs to; empty if it may not connect.
    ask : answers the request of a stranger, who presented no certificate; called in a thread.
    admit_relay : returns the socket to connect a stranger with, if it is the relay of a leased worker; else None.
    """

    context: ssl.SSLContext
    name_of: Callable[[bytes], str]
    ask: Callable[[bytes], bytes]
    admit_relay: Callable[[bytes], socket.socket | None] = lambda request: None


class SupervisorConnections:
    """The connections to supervisors, by the names of their nodes.

    greeting : messages sent first on each connection, unless it has its own
    again : the message sent after some were dropped
    hear : called with a name and whole lines that came, in the thread of the connections
    broken : called with the name of a connection that broke, in that thread
    tick : called in that thread every `every` seconds
    most_unsent : bytes of messages that wait for one supervisor
    accept_at_once : True to send messages after the greeting; else only after :meth:`accept`, once the supervisor sent its
        inventory

    failure : what ended the thread, if it failed
    """

    def __init__(
        self,
        greeting: bytes,
        again: bytes,
        hear: Callable[[str, list[bytes]], None],
        broken: Callable[[str], None],
        tick: Callable[[], None],
        every: float,
        most_unsent: int = MOST_UNSENT,
        accept_at_once: bool = False,
    ) -> None:
        self._greeting, self.again = greeting, again
        self.hear, self.broken = hear, broken
        self.most_unsent, self.accept_at_once = most_unsent, accept_at_once
        self._tick, self._every = tick, every
        self.lock = threading.Lock()  # guards the outboxes; never held for long
        self._connections: dict[str, _Connection] = {}
        self._to_flush: set[_Connection] = set()
        self._rung = False
        self._arriving: dict[asyncio.Task[None], None] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # that listen, or relay
        self._loop = uvloop.new_event_loop()
        self.closing = asyncio.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="supervisors", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    # -- from any thread ----------------------------------------------------------------------------------------

    def connect(self, name: str, endpoint: LocalEndpoint, greeting: bytes = b"") -> None:
        """Connect to the supervisor of this machine, and stay connected."""
        self.do(self._open, name, endpoint, greeting or self._greeting)

    def listen(self, listener: socket.socket, door: "Door") -> None:
        listener.setblocking(False)
        self.do(lambda: self._begin(self._accept_on(listener, door)))

    def disconnect(self, name: str, at_once: bool = True) -> None:
        """Close a node's connection for good; `at_once` drops what is unsent."""
        self.do(self._drop, name, at_once)

    def renew(self, name: str) -> None:
        """Renew a connection that seems to be dead."""

        def hang_up() -> None:
            if name in self._connections:
                self._connections[name].hang_up()

        self.do(hang_up)

    def accept(self, name: str) -> None:
        """Accept messages for a connection until it breaks."""
        with self.lock:
            if name in self._connections:
                self._connections[name].accepts = True

    def send(self, name: str, message: bytes, now: bool = True) -> None:
        """Send a message; it is dropped without a connection that accepts, or if too much waits.

        One that need not go `now` goes with the next one to any supervisor, or at the next tick: waking the thread costs more.
        """
        with self.lock:
            connection = self._connections.get(name)
            if connection is None or not connection.accepts:
                return
            if connection.outbox and len(connection.outbox) + len(message) > self.most_unsent:
                connection.dropped = True
            if not connection.dropped:
                connection.outbox += message
            self._to_flush.add(connection)
            rung, self._rung = self._rung, self._rung or now
        if (now and not rung) or len(connection.outbox) > FLUSH_BYTES:
            self.do(self._flush)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Wake the thread once, at the end, for all that is sent in the block: it takes the interpreter lock from the sender."""
        with self.lock:
            rung, self._rung = self._rung, True
        try:
            yield
        finally:
            if not rung:
                self.do(self._flush)

    def do(self, what: Callable[..., object], *given: object) -> None:
        """Call a function in the thread of the connections."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(what, *given)

    def trouble_of(self, name: str) -> str:
        """Return why the last attempt to reach a node failed; empty if it did not."""
        with self.lock:
            connection = self._connections.get(name)
        return connection.trouble if connection else ""

    def close(self) -> None:
        """Send what waits, within HANG_UP_WITHIN seconds, and close all connections."""
        self.do(self.closing.set)

    def join(self, timeout: float) -> None:
        """Wait until the connections are closed."""
        self._thread.join(timeout)

    # -- in the thread ------------------------------------------------------------------------------------------

    def answer(self, name: str, message: bytes) -> None:
        """Send a message at once; only from `hear` and `tick`."""
        if name in self._connections:
            self._connections[name].answer(message)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._until_closed())
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self._loop.close()

    async def _until_closed(self) -> None:
        ticking, closing = asyncio.create_task(self._tick_on()), asyncio.create_task(self.closing.wait())
        await asyncio.wait({ticking, closing}, return_when=asyncio.FIRST_COMPLETED)
        if ticking.done():
            await ticking  # it ends only by a failure, which is raised here
        ticking.cancel()
        self._flush()
        until = time.monotonic() + HANG_UP_WITHIN
        while any(connection.is_sending() for connection in self._connections.values()) and time.monotonic() < until:
            await asyncio.sleep(0.005)
        connections = list(self._connections.values())
        tasks = [*self._arriving, *self._tasks, *(each.task for each in connections if each.task is not None)]
        for name in list(self._connections):
            self._drop(name, at_once=False)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while any(connection.is_open() for connection in connections) and time.monotonic() < until:
            await asyncio.sleep(0.005)

    async def _tick_on(self) -> None:
        while True:
            self._tick()
            self._flush()
            await asyncio.sleep(self._every)

    def _open(self, name: str, endpoint: LocalEndpoint, greeting: bytes) -> None:
        connection = self._made(name, greeting)
        connection.task = self._loop.create_task(connection.keep(endpoint))

    def _made(self, name: str, greeting: bytes) -> _Connection:
        """Make the connection of a node, replacing its last one."""
        self._drop(name)
        connection = _Connection(name, self, greeting)
        with self.lock:
            self._connections[name] = connection
        return connection

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_on(self, listener: socket.socket, door: "Door") -> None:
        with listener:
            while True:
                try:
                    line, _ = await self._loop.sock_accept(listener)
                except OSError:  # no descriptor is free
                    await asyncio.sleep(PAUSE)
                    continue
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while len(self._arriving) >= MOST_UNIDENTIFIED:
                    oldest = next(iter(self._arriving))
                    del self._arriving[oldest]
                    oldest.cancel()
                task = self._loop.create_task(self._admit(line, door))
                self._arriving[task] = None
                task.add_done_callback(lambda task: self._arriving.pop(task, None))

    async def _admit(self, line: socket.socket, door: "Door") -> None:
        """Connect the node that holds the key to a known certificate; hear a stranger's one request."""
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            async with asyncio.timeout(HANDSHAKE_WITHIN):
                reader = asyncio.StreamReader(LONGEST_REQUEST)
                protocol, joined = asyncio.StreamReaderProtocol(reader), False
                made = await self._loop.connect_accepted_socket(lambda: protocol, line, ssl=door.context)
                transport = cast("asyncio.Transport", made[0])
                certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
                try:
                    if certificate is None:
                        request = await reader.readuntil()
                        if (end := door.admit_relay(request)) is not None:
                            self._begin(_join(reader, protocol, transport, end))
                            joined = True
                            return
                        transport.write(await self._loop.run_in_executor(None, door.ask, request))
                    elif name := door.name_of(certificate):
                        transport.set_protocol(connection := self._made(name, self._greeting))
                        connection.connection_made(transport)
                        return
                finally:
                    if transport.get_protocol() is protocol and not joined:
                        transport.close()

    def _drop(self, name: str, at_once: bool = True) -> None:
        with self.lock:
            connection = self._connections.pop(name, None)
        if connection is not None:
            connection.closed = True
            if connection.task is not None:
                connection.task.cancel()
            connection.hang_up(at_once)

    def _flush(self) -> None:
        with self.lock:
            connections, self._to_flush, self._rung = self._to_flush, set(), False
        for connection in connections:
            connection.flush()


async def _join(
    reader: asyncio.StreamReader, protocol: asyncio.StreamReaderProtocol, transport: asyncio.Transport, end: socket.socket
) -> None:
    """Copy what a relay sends to a socket, and back, until one of them ends."""
    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
    there, back = await asyncio.open_unix_connection(sock=end)
    both = [asyncio.create_task(_copy(*each)) for each in ((reader, back), (there, writer))]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        transport.abort()
        back.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
