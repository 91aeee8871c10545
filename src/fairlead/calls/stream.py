"""The stream between a program and the relay of a leased worker: messages over connections that may break.

Messages are numbered, and kept until the other end has seen them. After each connection the relay sends RESUME with the last
number that it saw; the program answers RESUMED with its own, and both send again what the other has not seen. So nothing is lost
or taken twice. What belongs to one connection only (RESUME, RESUMED, SEEN) has the number 0. If the session was closed, the
scheduler answers GONE.
"""

import itertools
import os
import struct
from collections import deque
from collections.abc import Generator, Iterator

from fairlead.calls import wire
from fairlead.calls.payloads import LARGEST_RESULT

LARGEST_BYTES = LARGEST_RESULT + 2**24
"""Bytes of a message, at most: its parts begin at pages."""
PIECE_BYTES = 2**18
"""Bytes that are sent at once, at most."""
PATIENCE = 120.0
"""Seconds of silence after which a relay counts as gone; without a connection, also a program."""
ENVELOPE = struct.Struct("<QI")
"""Lease and bytes that follow, in the answer with what the relays of all leases send; 0 bytes begin a connection."""
_HEAD = struct.Struct("<QQQBdIQ")  # number in the stream, last one seen, message's number, kind, seconds, parts, bytes


class Frame:
    """A message on its way."""

    def __init__(self, place: int, number: int, kind: int, packed: wire.Packed, seconds: float) -> None:
        self.place, self.number, self.kind, self.packed, self.seconds = place, number, kind, packed, seconds

    def size(self) -> int:
        return _HEAD.size + 8 * len(self.packed.sizes) + (self.packed.file.bytes if self.packed.file else len(self.packed.body))

    def pieces(self, seen: int) -> Iterator[bytes]:
        """Yield its bytes. `seen` is the number of the last message from the other end."""
        body, file, sizes, _ = self.packed
        count = len(body) if file is None else file.bytes
        head = _HEAD.pack(self.place, seen, self.number, self.kind, self.seconds, len(sizes), count)
        yield head + struct.pack(f"<{len(sizes)}Q", *sizes) + body
        for begin in range(0, count if file is not None else 0, PIECE_BYTES):
            assert file is not None
            yield os.pread(file.fd, PIECE_BYTES, begin)


CLOSED_SESSION = b"".join(Frame(0, 0, wire.GONE, wire.EMPTY, 0.0).pieces(0))
"""What the scheduler sends a relay whose program is gone."""


class Stream:
    """One end of a stream. `seen` is the number of the last message from the other end; `live` is False between connections."""

    def __init__(self) -> None:
        self.seen = self.told = 0  # what the other end knows that we have seen
        self._places = itertools.count(1)
        self._kept: deque[Frame] = deque()
        self._outgoing: deque[Frame] = deque()
        self._received: list[wire.Message] = []
        self.cut()

    def send(self, number: int, kind: int, packed: wire.Packed = wire.EMPTY, seconds: float = 0.0) -> None:
        """Send a message, now or when there is a connection."""
        frame = Frame(next(self._places), number, kind, packed, seconds)
        self._kept.append(frame)
        if self.live:
            self._outgoing.append(frame)

    def say(self, kind: int, number: int = 0) -> None:
        """Send what belongs to this connection only."""
        self._outgoing.append(Frame(0, number, kind, wire.EMPTY, 0.0))

    def cut(self) -> None:
        self.live = False
        self._outgoing.clear()
        self._parser = self._parse()
        next(self._parser)

    def resume(self) -> None:
        """There is a connection, and the other end has said what it saw."""
        self.live = True
        self._outgoing += self._kept

    def owes(self) -> bool:
        """Return whether the other end has not seen all that was sent."""
        return bool(self._kept)

    def has_outgoing(self) -> bool:
        return bool(self._outgoing)

    def take(self, most: int) -> list[Frame]:
        """Take the next messages to send: one, or several of `most` bytes together; if there are none, what was seen."""
        taken: list[Frame] = []
        if self.live and not self._outgoing and self.told < self.seen:
            self.say(wire.SEEN)
        while self._outgoing and (not taken or sum(each.size() for each in taken) + self._outgoing[0].size() <= most):
            taken.append(self._outgoing.popleft())
        self.told = self.seen
        return taken

    def receive(self, data: bytes) -> list[wire.Message]:
        """Take bytes; return the messages that are complete. Raises ValueError: the connection is to be closed."""
        self._parser.send(data)
        received, self._received = self._received, []
        return received

    def _parse(self) -> Generator[None, bytes, None]:
        """Take bytes as they come."""
        data = bytearray()
        while True:
            while len(data) < _HEAD.size:
                data += yield
            place, seen, number, kind, seconds, count, size = _HEAD.unpack_from(data)
            if count > wire.MOST_MAPPED + 1 or size > (LARGEST_BYTES if count else wire.INLINE_BYTES):
                raise ValueError("not a message of a stream")
            while len(data) < _HEAD.size + 8 * count:
                data += yield
            sizes = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
            del data[: _HEAD.size + 8 * count]
            if count:
                file = wire.Memfd()
                while file.bytes < size:
                    piece = data[: size - file.bytes]
                    file.append(piece)
                    del data[: len(piece)]
                    if file.bytes < size:
                        data += yield
                file.seal()
                if not file.is_message(sizes):
                    raise ValueError("not a message of a stream")
                packed = wire.Packed(b"", file, sizes)
            else:
                while len(data) < size:
                    data += yield
                packed = wire.Packed(bytes(data[:size]))
                del data[:size]
            while self._kept and self._kept[0].place <= seen:
                self._kept.popleft()
            if place > self.seen + 1:
                raise ValueError("messages of a stream are missing")
            if place == self.seen + 1 or not place:  # else it was sent again
                self.seen = max(self.seen, place)
                self._received.append(wire.Message(number, kind, seconds, packed))
