"""What a leased worker does: it takes calls from its program until the program ends the lease.

The program sends calls on a socket of which it keeps a copy of this end. So a call has started exactly if the worker has read
it: the program can take back the others, also from a worker that died.
"""

import os
import pickle
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from fairlead.calls import wire
from fairlead.calls.payloads import LARGEST_RESULT, ResultTooLarge

CONNECT_SECONDS = 20.0
"""How long a worker waits for the program's answer."""
LONGEST_WAIT_SECONDS = 1e6
SLICE_SECONDS = 0.02
"""Work that is sent in one message or ahead to a worker, and that justifies one more lease."""
FLUSH = signal.SIGURG
"""Asks a worker for the results that it has, and to start no more calls of its message; ignored by default."""
PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
"""Types of results that are sent as they are; others are pickled by themselves when they are made, each in a tuple."""
Results = list[Any]


class Unreachable(OSError):
    """The program cannot be reached from here."""


class _Worker:
    """What a worker does now. `results` are those of the calls of its message, if it may have several."""

    def __init__(self, line: socket.socket | None = None) -> None:
        self._line = line
        self.number = self.made = self._flushed = 0
        self.results: Results | None = None
        self._flush = False

    def make(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> tuple[Results, Any]:
        """Make calls until one fails, a slice is over, or the program asks for the results."""
        self._flushed, self._flush, results, until = 0, False, Results(), time.monotonic() + SLICE_SECONDS
        self.results, failure = results, None
        try:
            for each in arguments:
                value = function(*each)
                results.append(value if type(value) in PLAIN else (_pickled(value),))
                if self._flush or time.monotonic() > until:
                    break
        except BaseException as error:
            failure = _failure(error)
        self.results, self.made = None, len(results) + (failure is not None)
        return results[self._flushed :], failure

    def flush(self, *_: object) -> None:
        """Send the results that there are. Runs as a signal's handler, between two instructions of a call."""
        if self._line is not None and self.results is not None and not self._flush:
            self._flush, self._flushed = True, len(self.results)
            wire.send(self._line, self.number, wire.PARTLY, wire.pack(self.results))


_working = [_Worker()]
"""What this process does."""


def serve(address: str, lease: int) -> tuple[int, float]:
    """Take calls from the program that listens at an abstract address. Return how many calls it made, and their seconds."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.connect(f"\0{address}")
    except OSError as error:
        raise Unreachable(f"the program that calls is not on this machine: {error}") from None
    if peer(line)[1] != os.geteuid():
        raise Unreachable("another person listens at the address of the program")
    wire.send(line, lease, wire.HELLO, wire.Packed(b""))
    line.settimeout(CONNECT_SECONDS)
    _, files, _, _ = socket.recv_fds(line, 1, 1)
    line.settimeout(None)
    made, spent = 0, 0.0
    if not files:
        return made, spent
    worker = _working[0] = _Worker(line)
    signal.signal(FLUSH, worker.flush)
    signal.siginterrupt(FLUSH, False)
    with line, socket.socket(fileno=files[0]) as calls:
        calls.set_inheritable(False)
        calls.settimeout(LONGEST_WAIT_SECONDS)  # it polls, since the program's copy does not block
        while (message := wire.receive(calls)) is not None:
            worker.number, worker.made, began = message.number, 1, time.monotonic()
            kind, packed = _answer(message)
            seconds = time.monotonic() - began
            made, spent = made + worker.made, spent + seconds
            sys.stdout.flush()
            sys.stderr.flush()
            wire.send(line, message.number, kind, packed, seconds / max(1, worker.made))
            del message, packed
    signal.signal(FLUSH, signal.SIG_IGN)
    return made, spent


def call_many(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> tuple[Results, Any]:
    """Make calls one after another. Return the results of the first, and how the next one failed, if it did."""
    return _working[0].make(function, arguments)


def peer(line: socket.socket) -> tuple[int, int]:
    """Return the pid and uid of the other process of a Unix socket, by the kernel."""
    pid, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        import cloudpickle

        return bytes(cloudpickle.dumps(value, protocol=5))


def _failure(error: BaseException) -> tuple[bytes, str]:
    """Return a pickled exception, and its traceback, which is readable if the exception cannot be unpickled."""
    import cloudpickle

    trace = traceback.format_exc()
    sys.stderr.write(trace)
    try:
        return cloudpickle.dumps(error), trace
    except BaseException as why:
        text = f"{type(error).__name__}: {error} (the exception itself cannot be pickled: {why})"
        return cloudpickle.dumps(RuntimeError(text)), trace


def _answer(message: wire.Message) -> tuple[int, wire.Packed]:
    try:
        function, arguments, named = message.value()
        packed = wire.pack(function(*arguments, **named))
        if wire.size(packed) > LARGEST_RESULT:
            raise ResultTooLarge(f"a result of {wire.size(packed) >> 20} MiB: write it to a file")
    except BaseException as error:
        return wire.RAISED, wire.pack(_failure(error))
    return wire.RETURNED, packed
