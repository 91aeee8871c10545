"""Large buffers of arguments that come again: they are sent to each worker once, as values of `put` are."""

import threading
from collections import OrderedDict
from typing import Any

from fairlead.calls import wire
from fairlead.calls.payloads import LARGEST_PAYLOAD

MOST_BYTES, MOST_BUFFERS = LARGEST_PAYLOAD // 2, 64
"""Bytes of messages that are remembered, and buffers, at most: those sent last. Workers forget with the program."""
SAMPLES = 64
"""Bytes of a buffer by which it is looked up, before it is compared."""
PIECE_BYTES = 2**20
Key = tuple[int, bytes]


class Repeated:
    """Remembers the buffers of messages by their content. Thread-safe."""

    def __init__(self) -> None:
        self._parts: OrderedDict[Key, wire.Part] = OrderedDict()
        self._lock = threading.Lock()

    def pack(self, value: Any) -> wire.Packed:
        """Pickle a value, without the buffers that were sent before."""
        fresh: list[Key] = []

        def known(buffer: memoryview) -> wire.Part | None:
            key = buffer.nbytes, bytes(buffer[:: max(1, buffer.nbytes // SAMPLES)])
            with self._lock:
                found = self._parts.get(key)
            if found is None or not _are_equal(buffer, found):
                fresh.append(key)
                return None
            with self._lock:
                self._parts[key] = found
                self._parts.move_to_end(key)
            return wire.Part(found.kept, found.place)  # pickle makes equal buffers one only if the Part is one

        packed = wire.pack(value, known)
        if fresh:
            kept = wire.Kept(packed._replace(needs=()))
            with self._lock:
                for place, key in enumerate(fresh, 1):
                    self._parts[key] = wire.Part(kept, place)
                    self._parts.move_to_end(key)
                while len(self._parts) > MOST_BUFFERS or self._bytes() > MOST_BYTES:
                    self._parts.popitem(last=False)
        return packed

    def _bytes(self) -> int:
        return sum(wire.size(kept.packed) for kept in {part.kept for part in self._parts.values()})


def _are_equal(buffer: memoryview, part: wire.Part) -> bool:
    _, file, sizes, _ = part.kept.packed
    assert file is not None
    there = file.mapped(sizes, writable=False)[part.place]
    places = range(0, buffer.nbytes, PIECE_BYTES)
    return all(bytearray(buffer[k : k + PIECE_BYTES]) == there[k : k + PIECE_BYTES] for k in places)
