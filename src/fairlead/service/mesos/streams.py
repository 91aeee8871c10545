"""Event streams of frameworks and executors: one queue of records each.

A client that does not read affects only itself: if too much waits for it, its stream ends.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from google.protobuf.message import Message

from fairlead.service.mesos.encoding import record
from fairlead.service.mesos.messages.scheduler_pb2 import Event

HEARTBEAT_SECONDS = 15.0
"""Between two heartbeats."""
MOST_UNREAD = 8 * 2**20
"""Bytes of records that may wait for a client; a single larger record is allowed."""
HEARTBEAT = Event(type=Event.HEARTBEAT)
Key = TypeVar("Key", str, int)


class Stream:
    """The stream of a framework or an executor. For the event loop.

    kind : the content type of its records
    whose : the principal's name and the uid of the reader
    heartbeat : sent when nothing else was sent for a while

    id : what the client sends with each call
    ended : True if no more events are added
    cut_off : set when the stream ends because the client does not read; pending records are dropped
    """

    def __init__(self, kind: str, whose: tuple[str, int], heartbeat: Message = HEARTBEAT) -> None:
        self.id, self.kind, self.whose = str(uuid.uuid4()), kind, whose
        self._heartbeat = heartbeat
        self.ended = False
        self.cut_off = asyncio.Event()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._more = asyncio.Event()

    def tell(self, events: Iterable[Message]) -> None:
        """Add events; the stream ends if there is no room for one."""
        for event in events:
            if self.ended:
                return
            made = record(self.kind, event)
            if self._waiting and self._size + len(made) > MOST_UNREAD:
                self._waiting.clear()
                self.cut_off.set()
                self.end()
                return
            self._waiting.append(made)
            self._size += len(made)
        self._more.set()

    def end(self) -> None:
        """End the stream after its pending records."""
        self.ended = True
        self._more.set()

    async def records(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        beats_at = loop.time() + HEARTBEAT_SECONDS
        while True:
            while self._waiting:
                made = self._waiting.popleft()
                self._size -= len(made)
                yield made
            if self.ended:
                return
            if loop.time() >= beats_at:
                beats_at = loop.time() + HEARTBEAT_SECONDS
                yield record(self.kind, self._heartbeat)
                continue
            self._more.clear()
            beat = loop.call_at(beats_at, self._more.set)
            try:
                await self._more.wait()
            finally:
                beat.cancel()


class Streams(Generic[Key]):
    """The current streams by their readers. For the scheduler's thread; the streams themselves are used in the event loop.

    streams : by framework, or by the number of an executor's job
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.streams: dict[Key, Stream] = {}

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def end(self) -> None:
        """End all streams. Thread-safe."""
        for stream in list(self.streams.values()):
            self._soon(stream.end)

    def tell(self, who: Key, told: Sequence[Message]) -> None:
        """Send events to a reader, if it is connected."""
        stream = self.streams.get(who)
        if stream is not None and told:
            self._soon(stream.tell, told)

    def end_with(self, stream: Stream | None, told: Sequence[Message] = ()) -> None:
        """End a stream, if there is one, after some last events."""
        if stream is not None:
            self._soon(stream.tell, told)
            self._soon(stream.end)

    def _soon(self, what: object, *arguments: object) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(what, *arguments)  # type: ignore[arg-type]
