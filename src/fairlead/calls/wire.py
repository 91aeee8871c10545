"""Messages between a program and the workers that it leases: one datagram of a Unix socket each.

A large message is a sealed memfd with its parts: the pickle, and buffers of pickle protocol 5 that the receiver maps instead of
copying. A private mapping is writable, and nobody else sees what is written.
"""

import fcntl
import mmap
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from fairlead.calls.payloads import LARGEST_RESULT

INLINE_BYTES = 32 * 2**10
"""Bytes of a message in its datagram; a larger one is a memfd."""
MAPPED_BYTES = 2**20
"""Bytes from which on a buffer is mapped rather than copied."""
MOST_MAPPED = 1000
"""Mapped buffers in one message, at most."""

_HEAD = struct.Struct("<QBdI")  # number, kind, seconds, parts in the memfd
HEAD_BYTES = _HEAD.size
_PAGE = mmap.PAGESIZE
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL

HELLO, CALL, RETURNED, RAISED, PARTLY = range(5)
"""Kinds of messages."""


class Packed(NamedTuple):
    """A pickled value: in `body`, or with its buffers in the memfd `file`, whose parts have these `sizes`."""

    body: bytes
    file: "Memfd | None" = None
    sizes: tuple[int, ...] = ()


class Message(NamedTuple):
    """A received message; `seconds` is how long the call took."""

    number: int
    kind: int
    seconds: float
    parts: Sequence[bytes | memoryview]

    def value(self) -> Any:
        """Unpickle it."""
        return pickle.loads(self.parts[0], buffers=self.parts[1:])  # noqa: S301 the person's own


class Memfd:
    """A sealed memfd that is closed with this object."""

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        self.fd = os.memfd_create("fairlead", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        place = 0
        for part in parts:
            left = memoryview(part)
            while left:
                written = os.pwrite(self.fd, left, place + len(part) - len(left))
                left = left[written:]
            place = _after(place + len(part))
        os.ftruncate(self.fd, max(1, place))
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)


def pack(value: Any) -> Packed:
    """Pickle a value; it may change afterwards."""
    import cloudpickle

    buffers: list[memoryview] = []

    def keeps_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < MAPPED_BYTES or len(buffers) >= MOST_MAPPED:
            return True
        buffers.append(raw)
        return False

    body = cloudpickle.dumps(value, protocol=5, buffer_callback=keeps_in_pickle)
    if not buffers and len(body) <= INLINE_BYTES:
        return Packed(body)
    parts = [body, *buffers]
    return Packed(b"", Memfd(parts), tuple(map(len, parts)))


def size(packed: Packed) -> int:
    """Return the bytes of a pickled value."""
    return sum(packed.sizes) or len(packed.body)


def send(line: socket.socket, number: int, kind: int, packed: Packed, seconds: float = 0.0) -> None:
    """Send a message. Raises BlockingIOError if there is no room, and OSError if the receiver is gone."""
    head = _HEAD.pack(number, kind, seconds, len(packed.sizes))
    if packed.file is None:
        line.send(head + packed.body)
    else:
        socket.send_fds(line, [head, struct.pack(f"<{len(packed.sizes)}Q", *packed.sizes)], [packed.file.fd])


def receive(line: socket.socket) -> Message | None:
    """Receive a message; None if the sender is gone. Raises ValueError for what is not a message, and OSError."""
    data, files, _, _ = socket.recv_fds(line, _HEAD.size + INLINE_BYTES, 1)
    if not data:
        return None
    try:
        number, kind, seconds, count = _HEAD.unpack_from(data)
        if not count:
            return Message(number, kind, seconds, [memoryview(data)[_HEAD.size :]])
        sizes = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
        return Message(number, kind, seconds, _mapped(files[0], sizes))
    except (struct.error, IndexError) as error:
        raise ValueError(f"not a message: {error}") from None
    finally:
        for fd in files:
            os.close(fd)


def number(head: bytes) -> int:
    """Return the number of a message by its head."""
    return int(_HEAD.unpack(head)[0])


def parts(packed: Packed) -> list[bytes]:
    """Return copies of the parts of a pickled value, for :func:`call`."""
    if packed.file is None:
        return [packed.body]
    found, place = [], 0
    for each in packed.sizes:
        found.append(os.pread(packed.file.fd, each, place))
        place = _after(place + each)
    return found


def call(parts: Sequence[bytes]) -> Any:
    """Make the call of a message."""
    function, arguments, named = pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 the person's own
    return function(*arguments, **named)


def _mapped(fd: int, sizes: Sequence[int]) -> list[memoryview]:
    """Map the parts of a memfd."""
    whole = os.fstat(fd).st_size
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS or sum(sizes) > min(whole, LARGEST_RESULT):
        raise ValueError("not a message: its memfd is not sealed, or too small or large")
    there = memoryview(mmap.mmap(fd, whole, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    parts, place = [], 0
    for each in sizes:
        parts.append(there[place : place + each])
        place = _after(place + each)
    return parts


def _after(place: int) -> int:
    """Return the beginning of the next page."""
    return -(-place // _PAGE) * _PAGE
