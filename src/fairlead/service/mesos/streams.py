"""Event streams of frameworks and executors: one queue of records each.

A client that does not read affects only itself: if too much waits for it, its stream ends.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable

from google.protobuf.message import Message

from fairlead.service.mesos.encoding import record
from fairlead.service.mesos.messages.scheduler_pb2 import Event

HEARTBEAT_SECONDS = 15.0
"""Between two heartbeats."""
MOST_UNREAD = 8 * 2**20
"""Bytes of records that may wait for a client; a single larger record is allowed."""
HEARTBEAT = Event(type=Event.HEARTBEAT)


class Stream:
    """The stream of a framework or an executor. For the event loop.

    Parameters
    ----------
    kind : str
        The content type of its records.
    whose : tuple
        The principal's name and the uid of the reader.
    heartbeat : Message
        Sent when nothing else was sent for a while.

    Attributes
    ----------
    id : str
        What the client sends with each call.
    ended : bool
        True if no more events are added.
    cut_off : asyncio.Event
        Set when the stream ends because the client does not read; pending records are dropped.
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
