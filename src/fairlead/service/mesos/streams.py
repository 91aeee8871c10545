"""What subscribed frameworks are told, and executors: one stream of records for each, which grows while its reader reads.

A reader that does not read costs itself only: when too much waits for it, its stream ends.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable

from google.protobuf.message import Message

from fairlead.service.mesos.encoding import record
from fairlead.service.mesos.messages.scheduler_pb2 import Event

BEAT_EVERY = 15.0
"""Seconds between two heartbeats."""
MOST_UNREAD = 8 * 2**20
"""Bytes of records that may wait for a reader, or else one record."""
HEARTBEAT = Event(type=Event.HEARTBEAT)


class Stream:
    """The stream of one framework, or of one executor. It is made and read in the event loop, and told things there.

    Parameters
    ----------
    kind : str
        The content type of its records.
    whose : tuple
        The principal's name and the uid of who reads it.
    heartbeat : Message
        What is told when nothing else was for a while.

    Attributes
    ----------
    id : str
        What its reader shows with each of its calls.
    ended : bool
        Whether nothing more comes.
    cut_off : asyncio.Event
        That it has ended as its reader does not read, and not even that is to be sent which it had.
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
        """Add events; the stream ends with the first for which there is no room."""
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
        """Have it end after what is in it."""
        self.ended = True
        self._more.set()

    async def records(self) -> AsyncIterator[bytes]:
        """The records, as they come, and a heartbeat when it is time."""
        loop = asyncio.get_running_loop()
        beats_at = loop.time() + BEAT_EVERY
        while True:
            while self._waiting:
                made = self._waiting.popleft()
                self._size -= len(made)
                yield made
            if self.ended:
                return
            if loop.time() >= beats_at:
                beats_at = loop.time() + BEAT_EVERY
                yield record(self.kind, self._heartbeat)
                continue
            self._more.clear()
            beat = loop.call_at(beats_at, self._more.set)
            try:
                await self._more.wait()
            finally:
                beat.cancel()
