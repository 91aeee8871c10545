"""Lines to many supervisors, in one thread: messages go out and come in, and nobody who uses them waits.

Each line mends itself. What a supervisor does not read waits in memory up to a bound; beyond it messages are dropped, and so are
those that wait when a line breaks: after either it is asked for everything anew. So one that is slow or stopped keeps nobody
from the others. A line carries messages from when it was opened: before, whoever is at its other end has not shown who it is,
and what it knows.
"""

import asyncio
import contextlib
import random
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from fairlead.engines.local.member import Address, is_here
from fairlead.sockets import socket_name

MOST_UNSENT = 16 * 2**20
"""Bytes of messages that wait for one supervisor."""
LONGEST_LINE = 64 * 2**20
"""Bytes that a message of a supervisor has at most."""
CONNECT_WITHIN = 10.0
"""Seconds for a connection, with all that is said before the first message."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between tries to reach one; each is twice the one before, and not the same for all."""
MOST_AT_ONCE = 64
"""Connections that are made at once, of those that could be made before; and as many of those that could not."""
HANG_UP_WITHIN = 2.0
"""Seconds that closed lines are given to send what they were told."""


class Endpoint(NamedTuple):
    """How a supervisor is reached: its address, and the keys for one on another machine."""

    address: Address
    context: ssl.SSLContext | None


class _Link(asyncio.Protocol):
    """One supervisor: what waits to be sent to it, and the connection, while there is one."""

    def __init__(self, name: str, place: Endpoint, links: "Links") -> None:
        self.name, self.place, self.links = name, place, links
        self.outbox = bytearray()
        self.accepts = self.dropped = False
        self.trouble = ""
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._torn = b""
        self._broken = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def keep(self) -> None:
        """Be connected, until that is cancelled."""
        pause = 0.0
        while True:
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311
            heard = self.links.heard_of(self.name)
            try:
                async with self.links.turns[bool(self.trouble)]:
                    await asyncio.wait_for(self._connect(), CONNECT_WITHIN)
            except (OSError, TimeoutError) as error:
                self.trouble = str(error) or f"no answer within {CONNECT_WITHIN:g} s"
            else:
                await self._broken.wait()
            heard = self.links.heard_of(self.name) > heard
            pause = 0.0 if heard else min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * pause))

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        address, context = self.place
        self._broken.clear()
        if is_here(address):
            with socket_name_of(address.socket) as path:
                await loop.create_unix_connection(lambda: self, path)
        elif address.port and context is not None:
            await loop.create_connection(lambda: self, address.host, address.port, ssl=context)
        else:
            raise OSError(f"{address.socket} is not on this machine, and it listens on no port")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._paused, self._torn = cast("asyncio.Transport", transport), False, b""
        with self.links.lock:
            self.outbox, self.dropped, self.accepts = bytearray(), False, False
        self._transport.write(self.links.greeting)

    def data_received(self, data: bytes) -> None:
        if b"\n" not in data:
            self._torn += data
            if len(self._torn) > LONGEST_LINE:
                self.trouble = "it sent a line without an end"
                self.hang_up()
            return
        *lines, self._torn = (self._torn + data).split(b"\n")
        self.trouble = ""
        self.links.hear(self.name, lines)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        with self.links.lock:
            self.accepts = False
        self._broken.set()
        if not self.closed:
            self.links.broken(self.name)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def flush(self) -> None:
        """Send what waits, unless the other side is still to read what was sent."""
        if self._transport is None or self._paused:
            return
        with self.links.lock:
            data, self.outbox = self.outbox, bytearray()
            if self.dropped:
                self.dropped = False
                data += self.links.again
        if data:
            self._transport.write(bytes(data))

    def answer(self, message: bytes) -> None:
        """Send something at once, in the thread of the lines."""
        if self._transport is not None:
            self._transport.write(message)

    def hang_up(self, at_once: bool = True) -> None:
        """Close the connection, if there is one; what is on its way is lost where it is closed at once."""
        if self._transport is not None:
            self._transport.abort() if at_once else self._transport.close()

    def is_sending(self) -> bool:
        return self._transport is not None and (bool(self.outbox) or self._transport.get_write_buffer_size() > 0)


class Links:
    """All lines, by the names of their nodes.

    Parameters
    ----------
    greeting : bytes
        Messages that are sent first on each connection.
    again : bytes
        The message that is sent after some were dropped.
    hear : callable
        Given a name and whole lines that came, in the thread of the lines.
    broken : callable
        Given the name of a line that broke, in that thread.
    tick : callable
        Called in that thread, every so many seconds.
    every : float
        How many.

    Attributes
    ----------
    failure : BaseException or None
        What ended the thread, if that was a fault.
    """

    def __init__(
        self,
        greeting: bytes,
        again: bytes,
        hear: Callable[[str, list[bytes]], None],
        broken: Callable[[str], None],
        tick: Callable[[], None],
        every: float,
    ) -> None:
        self.greeting, self.again = greeting, again
        self.hear, self.broken = self._note(hear), broken
        self._tick, self._every = tick, every
        self.lock = threading.Lock()  # of the outboxes; held for moments
        self._links: dict[str, _Link] = {}
        self._heard: dict[str, int] = {}
        self._to_flush: set[_Link] = set()
        self._rung = False
        self.turns = {failed: asyncio.Semaphore(MOST_AT_ONCE) for failed in (False, True)}
        self._loop = uvloop.new_event_loop()
        self._closing = asyncio.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _note(self, hear: Callable[[str, list[bytes]], None]) -> Callable[[str, list[bytes]], None]:
        def noted(name: str, lines: list[bytes]) -> None:
            self._heard[name] = self._heard.get(name, 0) + 1
            hear(name, lines)

        return noted

    def heard_of(self, name: str) -> int:
        """How often something came from a node."""
        return self._heard.get(name, 0)

    # -- from any thread ----------------------------------------------------------------------------------------

    def connect(self, name: str, place: Endpoint) -> None:
        """Have a line to a node; one that it had is closed."""
        self._call(self._open, name, place)

    def disconnect(self, name: str) -> None:
        """Close a node's line at once, and have none."""
        self._call(self._drop, name)

    def mend(self, name: str) -> None:
        """Begin a line anew that seems to be dead."""

        def hang_up() -> None:
            if name in self._links:
                self._links[name].hang_up()

        self._call(hang_up)

    def accept(self, name: str, accepts: bool = True) -> None:
        """Whether a line takes messages on, as long as it does not break."""
        with self.lock:
            if name in self._links:
                self._links[name].accepts = accepts

    def tell(self, name: str, message: bytes) -> None:
        """Send a message, sooner or later or, where there is no open line or too much waits, never."""
        with self.lock:
            link = self._links.get(name)
            if link is None or not link.accepts:
                return
            if len(link.outbox) + len(message) > MOST_UNSENT:
                link.dropped = True
                return
            link.outbox += message
            self._to_flush.add(link)
            rung, self._rung = self._rung, True
        if not rung:
            self._call(self._flush)

    def do(self, what: Callable[[], object]) -> None:
        """Do something in the thread of the lines."""
        self._call(what)

    def trouble_of(self, name: str) -> str:
        """Why a node could not be reached when that was last tried; empty where it could."""
        with self.lock:
            link = self._links.get(name)
        return link.trouble if link else ""

    def close(self) -> None:
        """Send what waits, if that is soon done, and hang up on all."""
        self._call(self._closing.set)

    def join(self, timeout: float) -> None:
        """Wait until closed lines have hung up."""
        self._thread.join(timeout)

    # -- in the thread ------------------------------------------------------------------------------------------

    def answer(self, name: str, message: bytes) -> None:
        """Send something at once; from `hear` alone."""
        self._links[name].answer(message)

    def _call(self, what: Callable[..., object], *given: object) -> None:
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(what, *given)

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
        ticking, closing = asyncio.create_task(self._tick_on()), asyncio.create_task(self._closing.wait())
        await asyncio.wait({ticking, closing}, return_when=asyncio.FIRST_COMPLETED)
        if ticking.done():
            await ticking  # it only ends by a fault, which is raised here
        ticking.cancel()
        self._flush()
        until = time.monotonic() + HANG_UP_WITHIN
        while any(link.is_sending() for link in self._links.values()) and time.monotonic() < until:
            await asyncio.sleep(0.005)
        tasks = [link.task for link in self._links.values() if link.task is not None]
        for name in list(self._links):
            self._drop(name, at_once=False)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tick_on(self) -> None:
        while True:
            self._tick()
            await asyncio.sleep(self._every)

    def _open(self, name: str, place: Endpoint) -> None:
        self._drop(name)
        link = _Link(name, place, self)
        with self.lock:
            self._links[name] = link
        link.task = self._loop.create_task(link.keep())

    def _drop(self, name: str, at_once: bool = True) -> None:
        with self.lock:
            link = self._links.pop(name, None)
        if link is not None and link.task is not None:
            link.closed = True
            link.task.cancel()
            link.hang_up(at_once)

    def _flush(self) -> None:
        with self.lock:
            links, self._to_flush, self._rung = self._to_flush, set(), False
        for link in links:
            link.flush()


def socket_name_of(path: str) -> contextlib.AbstractContextManager[str]:
    """A name by which a socket is connected to, however long its path is."""
    return socket_name(Path(path))
