"""Messages between a program and the workers that it leases: one datagram of a Unix socket each.

A large message is a sealed memfd with its parts: the pickle, and buffers of pickle protocol 5 that the receiver maps instead of
copying. A private mapping is writable, and nobody else sees what is written.
"""

import fcntl
import itertools
import mmap
import os
import pickle
import signal
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairlead.calls.payloads import LARGEST_RESULT

FLUSH = signal.SIGURG
"""Asks a worker for the results that it has, and to start no more calls of its message; ignored by default."""
SLICE_SECONDS = 0.02
"""Work that is sent in one message or ahead to a worker, and that justifies one more lease."""
INLINE_BYTES = 32 * 2**10
"""Bytes of a message in its datagram; a larger one is a memfd."""
MAPPED_BYTES = 2**20
"""Bytes from which on a buffer is mapped rather than copied."""
MOST_MAPPED = 1000
"""Mapped buffers in one message, at most."""

_HEAD = struct.Struct("<QBdI")  # number, kind, seconds, parts in the memfd
_FD = struct.Struct("i")
_PAGE = mmap.PAGESIZE
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL

HELLO, CALL, KEEP, DROP, RETURNED, RAISED, PARTLY, UNREAD, WITHDRAW, HURRY, FINISH, RESUME, RESUMED, SEEN, GONE = range(15)
"""Kinds of messages; those from UNREAD on are between a program and a relay: see :mod:`fairlead.calls.stream`."""


class Memfd:
    """A memfd that is closed with this object."""

    def __init__(self, fd: int = -1) -> None:
        self.fd = fd if fd >= 0 else os.memfd_create("fairlead", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.bytes = os.fstat(fd).st_size if fd >= 0 else 0

    def append(self, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data)
        while left:
            written = os.pwrite(self.fd, left, self.bytes)
            self.bytes, left = self.bytes + written, left[written:]

    def seal(self) -> None:
        """Let nobody change it any more."""
        os.ftruncate(self.fd, max(1, self.bytes))
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)

    def is_message(self, sizes: Sequence[int]) -> bool:
        """Return whether it can be read as parts of these sizes."""
        sealed = fcntl.fcntl(self.fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
        return sealed and sum(map(_whole_pages, sizes[:-1])) + sizes[-1] <= self.bytes and sum(sizes) <= LARGEST_RESULT

    def mapped(self, sizes: Sequence[int], writable: bool) -> list[memoryview]:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        there = memoryview(mmap.mmap(self.fd, 0, flags=mmap.MAP_PRIVATE, prot=protection))
        parts, place = [], 0
        for each in sizes:
            parts.append(there[place : place + each])
            place += _whole_pages(each)
        return parts

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)


class Packed(NamedTuple):
    """A pickled value: in `body`, or with its buffers in the memfd `file`, whose parts have these `sizes`.

    `needs` are the values that workers keep for it.
    """

    body: bytes
    file: Memfd | None = None
    sizes: tuple[int, ...] = ()
    needs: "tuple[Kept, ...]" = ()


EMPTY = Packed(b"")


class Kept:
    """A value that is sent to a worker once. Calls that it is given to get the value; see :meth:`fairlead.Client.put`."""

    def __init__(self, packed: Packed) -> None:
        self.number, self.packed = next(_numbers), packed

    def __reduce__(self) -> tuple[Any, ...]:
        _meet(self)
        return _value_of, (self.number,)


class Part:
    """A buffer of a message that workers keep, where it comes again: each call gets a copy of its own."""

    def __init__(self, kept: Kept, place: int) -> None:
        self.kept, self.place = kept, place

    def __reduce__(self) -> tuple[Any, ...]:
        _meet(self.kept)
        return _part_of, (self.kept.number, self.place)


class _Assembled:
    """A pickle, and its buffers, some of which workers have."""

    def __init__(self, body: bytes, buffers: "Sequence[memoryview | Part]") -> None:
        self._body, self._buffers = body, buffers

    def __reduce__(self) -> tuple[Any, ...]:
        buffers = [each if isinstance(each, Part) else pickle.PickleBuffer(each) for each in self._buffers]
        return _unpickled, (self._body, buffers)


def _meet(kept: Kept) -> None:
    """Note a value that the thread meets in what it pickles."""
    met = getattr(_packing, "needs", None)
    if met is not None:
        met.append(kept)


def _part_of(number: int, place: int) -> memoryview:
    _, file, sizes, _ = kept[number].packed  # type: ignore[union-attr]  # it is no value, which would be unpickled
    assert file is not None
    return file.mapped(sizes, writable=True)[place]


def _unpickled(body: Any, buffers: list[Any]) -> Any:
    return pickle.loads(body, buffers=buffers)  # noqa: S301 the person's own


_numbers = itertools.count(2**62)
_packing = threading.local()
"""`needs` are the values that the thread met in what it pickles, if anything."""
kept: "dict[int, Message | tuple[Any]]" = {}
"""Of a worker: the values that were sent, by number; in a tuple once unpickled."""


def _value_of(number: int) -> Any:
    found = kept.get(number)
    if found is None:
        raise LookupError("a value that was put is known in calls of its program only")
    if isinstance(found, Message):
        found = kept[number] = (found.value(writable=False),)
    return found[0]


class Message(NamedTuple):
    """A received message; `seconds` is how long the call took."""

    number: int
    kind: int
    seconds: float
    packed: Packed

    def value(self, writable: bool = True) -> Any:
        """Unpickle it; arrays of others are not `writable`."""
        body, file, sizes, _ = self.packed
        parts: list[Any] = [body] if file is None else [*file.mapped(sizes, writable)]
        return _unpickled(parts[0], parts[1:])

    def copied(self) -> Any:
        """Unpickle it into memory of this process, so that it needs no file and counts to nobody else."""
        body, file, sizes, _ = self.packed
        parts: list[Any] = [body] if file is None else [bytearray(each) for each in file.mapped(sizes, writable=False)]
        return _unpickled(parts[0], parts[1:])


def pack(value: Any, known: "Callable[[memoryview], Part | None]" = lambda buffer: None) -> Packed:
    """Pickle a value; it may change afterwards. `known` finds a buffer that workers keep."""
    import cloudpickle

    buffers: list[memoryview | Part] = []

    def keeps_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < MAPPED_BYTES or len(buffers) >= MOST_MAPPED:
            return True
        buffers.append(known(raw) or raw)
        return False

    before, met = getattr(_packing, "needs", None), list[Kept]()  # what is pickled may itself make a call
    _packing.needs = met
    try:
        body = cloudpickle.dumps(value, protocol=5, buffer_callback=keeps_in_pickle)
    finally:
        _packing.needs = before
    needs = tuple(met)
    if not buffers and len(body) <= INLINE_BYTES:
        return Packed(body, needs=needs)
    own = [buffer for buffer in buffers if not isinstance(buffer, Part)]
    if len(own) < len(buffers):
        packed = pack(_Assembled(body, buffers))
        return packed._replace(needs=(*needs, *packed.needs))
    file, sizes = Memfd(), (len(body), *(buffer.nbytes for buffer in own))
    for part in (body, *own):
        file.append(part)
        file.append(bytes(_whole_pages(len(part)) - len(part)))
    file.seal()
    return Packed(b"", file, sizes, needs)


def size(packed: Packed) -> int:
    return sum(packed.sizes) or len(packed.body)


def send(line: socket.socket, number: int, kind: int, packed: Packed, seconds: float = 0.0) -> None:
    """Send a message. Raises BlockingIOError if there is no room, and OSError if the receiver is gone."""
    head = _HEAD.pack(number, kind, seconds, len(packed.sizes))
    if packed.file is None:
        line.send(head + packed.body)
    else:
        socket.send_fds(line, [head, struct.pack(f"<{len(packed.sizes)}Q", *packed.sizes)], [packed.file.fd])


def receive(line: socket.socket, flags: int = 0) -> Message | None:
    """Receive a message; None if the sender is gone. Raises ValueError for what is not a message, and OSError."""
    size = _HEAD.size + INLINE_BYTES, socket.CMSG_LEN(_FD.size), flags
    try:
        data, files, _, _ = line.recvmsg(*size)  # recv_fds ignores flags
    except ConnectionResetError:  # raised once if the sender ended without reading all; what it had sent is still there
        data, files, _, _ = line.recvmsg(*size)
    if not data:
        return None
    held = [Memfd(*_FD.unpack(fd)) for _, _, fd in files if len(fd) == _FD.size]
    try:
        number, kind, seconds, count = _HEAD.unpack_from(data)
        if not count:
            return Message(number, kind, seconds, Packed(data[_HEAD.size :]))
        sizes = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
        if not held[0].is_message(sizes):
            raise ValueError("not a message: its memfd is not sealed, or too small or large")
        return Message(number, kind, seconds, Packed(b"", held[0], sizes))
    except (struct.error, IndexError) as error:
        raise ValueError(f"not a message: {error}") from None


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
