"""Brings together programs and the relays of their leased workers: see docs/calls.md.

A relay connects, over the nodes' door or an abstract socket of this machine, and says which program's it is. The program receives
in one answer that does not end, and sends in requests. Bytes go through unread; if one side breaks, so does the other, and the
relay connects again. Runs in the event loop of the API, except :meth:`Relays.admit`.
"""

import asyncio
import json
import logging
import socket
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from fairlead.calls.stream import CLOSED_SESSION, ENVELOPE
from fairlead.service.wakeups import Wakeups
from fairlead.sockets import uid_of_peer

log = logging.getLogger("fairlead")

PIECE_BYTES = 2**16
MOST_PIECES = 16
"""Pieces that wait for one program, at most."""
PING_SECONDS = 5.0
"""Between two signs of life to a program that receives nothing."""
HELLO_SECONDS = 10.0
MOST_ARRIVING = 100
"""Connections of one person that have not said what they are, at most."""
MOST_LINES = 1000
"""Relays of one program, at most."""


class Line:
    """The connection of a relay, and the task that passes on what it sends, once its program is there."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.task: asyncio.Task[None] | None = None
        self.turn = asyncio.Lock()  # of requests that write

    def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self.writer.close()


class Relays:
    """All relays, by session and lease. `session_of` finds the session with a secret; empty for none."""

    def __init__(self, session_of: Callable[[str], str], wakeups: Wakeups) -> None:
        self._session_of, self._wakeups = session_of, wakeups
        self._lines: dict[str, dict[int, Line]] = defaultdict(dict)
        self._arriving = Counter[int]()  # by uid
        self._programs: dict[str, asyncio.Queue[bytes]] = {}  # by session that receives; b"" ends the answer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None  # nothing else keeps it from being collected

    async def listen(self, address: str) -> None:
        """Accept relays of this machine at an abstract address."""
        self._loop = asyncio.get_running_loop()
        try:
            self._server = await asyncio.start_unix_server(self._hear_hello, f"\0{address}")
        except OSError as error:  # another scheduler's, which ends
            log.warning("relays of this machine cannot connect: %s", error)

    async def _hear_hello(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None) -> None:
        assert writer is not None
        uid = uid_of_peer(writer.get_extra_info("socket"))
        self._arriving[uid] += 1
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(HELLO_SECONDS if self._arriving[uid] <= MOST_ARRIVING else 0.0):
                found = self._asked(await reader.readuntil())
            if found is not None:
                self._attach(*found, Line(reader, writer))
                writer = None
        self._arriving[uid] -= 1
        if writer is not None:
            writer.close()

    def admit(self, request: bytes) -> socket.socket | None:
        """Return the connection for a relay that asks for one at the nodes' door; None for any other request. Thread-safe."""
        found = self._asked(request)
        if found is None or self._loop is None:
            return None
        ours, theirs = socket.socketpair()
        asyncio.run_coroutine_threadsafe(self._attach_socket(*found, ours), self._loop)
        return theirs

    async def _attach_socket(self, session: str, lease: int, line: socket.socket) -> None:
        self._attach(session, lease, Line(*await asyncio.open_unix_connection(sock=line)))

    def _asked(self, request: bytes) -> tuple[str, int] | None:
        """Return the session and lease of a relay's request, an empty session if it was closed; None for any other request."""
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            asked = json.loads(request)
            session, lease = self._session_of(str(asked["relay"])), asked["lease"]
            if type(lease) is int and 0 < lease < 2**63:
                return session, lease
        return None

    def _attach(self, session: str, lease: int, line: Line) -> None:
        if not session:
            line.writer.write(CLOSED_SESSION)
            line.close()
            return
        if (before := self._lines[session].pop(lease, None)) is not None:
            before.close()
        if len(self._lines[session]) >= MOST_LINES:
            line.close()
            return
        self._lines[session][lease] = line
        if session in self._programs:
            self._pass_on(session, lease, line)
        else:
            self._wakeups.wake([("session", session)])

    def _pass_on(self, session: str, lease: int, line: Line) -> None:
        line.task = asyncio.create_task(self._pass(session, lease, line, self._programs[session]))

    async def _pass(self, session: str, lease: int, line: Line, queue: asyncio.Queue[bytes]) -> None:
        await queue.put(ENVELOPE.pack(lease, 0))
        with suppress(OSError):
            while data := await line.reader.read(PIECE_BYTES):
                await queue.put(ENVELOPE.pack(lease, len(data)) + data)
        self._drop(session, lease, line)

    def _drop(self, session: str, lease: int, line: Line) -> None:
        line.close()
        if self._lines[session].get(lease) is line:
            del self._lines[session][lease]

    def wait_for(self, session: str) -> bool:
        """Return whether relays wait for this program to receive."""
        return bool(self._lines.get(session)) and session not in self._programs

    async def received(self, session: str) -> AsyncIterator[bytes]:
        """Yield what the relays of a program send, until `close`. Its earlier answer ends."""
        self._end_answer(session)
        queue = self._programs[session] = asyncio.Queue[bytes](MOST_PIECES)
        try:
            for lease, line in list(self._lines[session].items()):
                if line.task is not None:  # what it sent last may be lost
                    self._drop(session, lease, line)
                else:
                    self._pass_on(session, lease, line)
            yield ENVELOPE.pack(0, 0)
            while True:
                data = ENVELOPE.pack(0, 0)
                with suppress(TimeoutError):
                    data = await asyncio.wait_for(queue.get(), PING_SECONDS)
                if not data:
                    return
                yield data
        finally:
            if self._programs.get(session) is queue:
                self.close(session)

    async def send(self, session: str, lease: int, pieces: AsyncIterator[bytes]) -> bool:
        """Send a relay whole messages; return False if it is not connected."""
        line = self._lines[session].get(lease)
        if line is not None and line.task is not None:
            async with line.turn:
                try:
                    async for piece in pieces:
                        line.writer.write(piece)
                        await line.writer.drain()
                    return True
                except (OSError, RuntimeError):  # the relay ended, or connects again: uvloop says so with RuntimeError
                    self._drop(session, lease, line)
                except BaseException:  # a part of a message is of no use
                    self._drop(session, lease, line)
                    raise
        async for _ in pieces:
            pass
        return False

    def close(self, session: str) -> None:
        """Break the connections of a program's relays, and end its answer."""
        self._end_answer(session)
        for line in self._lines.pop(session, {}).values():
            line.close()

    def close_soon(self, session: str) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self.close, session)

    def stop(self) -> None:
        """End all answers: the scheduler stops. Thread-safe."""
        if self._loop is not None:
            for session in list(self._programs):
                self.close_soon(session)

    def _end_answer(self, session: str) -> None:
        queue = self._programs.pop(session, None)
        if queue is not None:
            while queue.full():
                queue.get_nowait()
            queue.put_nowait(b"")
