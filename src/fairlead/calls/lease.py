"""What a leased worker does: it takes calls from its program until the program ends the lease.

The program sends calls on a socket of which it keeps a copy of this end. So a call has started exactly if the worker has read
it: the program can take back the others, also from a worker that died.
"""

import os
import socket
import struct
import sys
import time
import traceback
from typing import Any

from fairlead.calls import wire
from fairlead.calls.payloads import LARGEST_RESULT, ResultTooLarge

CONNECT_SECONDS = 20.0
"""How long a worker waits for the program's answer."""
LONGEST_WAIT_SECONDS = 1e6


class Unreachable(OSError):
    """The program cannot be reached from here."""


def serve(address: str, lease: int) -> tuple[int, float]:
    """Take calls from the program that listens at an abstract address. Return how many calls it made, and their seconds."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.connect(f"\0{address}")
    except OSError as error:
        raise Unreachable(f"the program that calls is not on this machine: {error}") from None
    if peer_uid(line) != os.geteuid():
        raise Unreachable("another person listens at the address of the program")
    wire.send(line, lease, wire.HELLO, wire.Packed(b""))
    line.settimeout(CONNECT_SECONDS)
    _, files, _, _ = socket.recv_fds(line, 1, 1)
    line.settimeout(None)
    made, spent = 0, 0.0
    if not files:
        return made, spent
    with line, socket.socket(fileno=files[0]) as calls:
        calls.set_inheritable(False)
        calls.settimeout(LONGEST_WAIT_SECONDS)  # it polls, since the program's copy does not block
        while (message := wire.receive(calls)) is not None:
            began = time.monotonic()
            kind, packed = _answer(message)
            seconds = time.monotonic() - began
            made, spent = made + 1, spent + seconds
            sys.stdout.flush()
            sys.stderr.flush()
            wire.send(line, message.number, kind, packed, seconds)
            del message, packed
    return made, spent


def peer_uid(line: socket.socket) -> int:
    """Return the uid of the other process of a Unix socket, by the kernel."""
    _, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def _answer(message: wire.Message) -> tuple[int, wire.Packed]:
    try:
        function, arguments, named = message.value()
        packed = wire.pack(function(*arguments, **named))
        if wire.size(packed) > LARGEST_RESULT:
            raise ResultTooLarge(f"a result of {wire.size(packed) >> 20} MiB: write it to a file")
    except BaseException as error:
        trace = traceback.format_exc()
        sys.stderr.write(trace)
        return wire.RAISED, _pack_failure(error, trace)
    return wire.RETURNED, packed


def _pack_failure(error: BaseException, trace: str) -> wire.Packed:
    import cloudpickle

    def packed(raised: Any) -> wire.Packed:  # pickled by itself: the traceback is readable if it cannot be unpickled
        return wire.pack((cloudpickle.dumps(raised), trace))

    try:
        return packed(error)
    except BaseException as why:
        return packed(RuntimeError(f"{type(error).__name__}: {error} (the exception itself cannot be pickled: {why})"))
