"""What a leased worker does: it takes calls from its program until the program ends the lease.

The program sends calls on a socket of which it keeps a copy of this end. So a call has started exactly if the worker has read
it: the program can take back the others, also from a worker that died. The values that calls need come on another socket, before
them: a worker could read a call whose value was just taken back.
"""

import os
import pickle
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fairlead.calls import wire
from fairlead.calls.payloads import COUNTS, LARGEST_RESULT, ResultTooLarge
from fairlead.sockets import abstract_names, uid_of_peer

CONNECT_SECONDS = 20.0
"""How long a worker waits for the program's answer."""
PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
"""Types of results that are sent as they are; others are pickled by themselves when they are made, each in a tuple."""
SMALL_BYTES = 8 * 2**10
"""Size of a plain result up to which it is pickled without cloudpickle: a first call would wait for its import."""
Results = list[Any]


class _Worker:
    """What a worker does now. `results` are those of the calls of its message, if it may have several."""

    def __init__(self, line: socket.socket | None = None) -> None:
        self._line = line
        self.number = self.made = self._flushed = 0
        self.results: Results | None = None
        self._flush = False

    def make(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> tuple[Results, Any]:
        """Make calls until one fails, a slice is over, or the program asks for the results."""
        self._flushed, self._flush, results, until = 0, False, Results(), time.monotonic() + wire.SLICE_SECONDS
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


def serve(address: str, lease: int, dial: dict[str, Any], settle: Callable[[], None], counts: int) -> None:
    """Take calls from the program that listens at an abstract address of this machine, or over a relay.

    `settle` prepares this process; the program gets the exception if it fails. `dial` is as in :func:`relay.start`. `counts` is
    a file for :data:`fairlead.calls.payloads.COUNTS`.
    """
    line = _reached(address)
    if line is not None:
        return _take_calls(line, lease, settle, counts)
    if address.startswith(f"fairlead-{abstract_names()}-"):
        raise ConnectionError("the program has ended")
    from fairlead.calls import relay

    line, process = relay.start({**dial, "lease": lease})
    try:
        _take_calls(line, lease, settle, counts)
    finally:
        line.close()
        process.wait()


def _reached(address: str) -> socket.socket | None:
    """Connect to the program; return None if it is on another machine."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.connect(f"\0{address}")
        if uid_of_peer(line) == os.geteuid():
            return line
    except OSError:
        pass
    line.close()
    return None


def _take_calls(line: socket.socket, lease: int, settle: Callable[[], None], counts: int) -> None:
    try:
        settle()
    except BaseException as error:
        wire.send(line, lease, wire.HELLO, wire.EMPTY)
        wire.send(line, 0, wire.RAISED, wire.pack(_failure(error)))
        raise
    wire.send(line, lease, wire.HELLO, wire.EMPTY)
    line.settimeout(CONNECT_SECONDS)
    _, files, _, _ = socket.recv_fds(line, 1, 1)
    line.settimeout(None)
    if not files:
        return
    worker = _working[0] = _Worker(line)
    signal.signal(wire.FLUSH, worker.flush)
    signal.siginterrupt(wire.FLUSH, False)
    made, worked = 0, 0.0
    with line, socket.socket(fileno=files[0]) as calls:
        calls.set_inheritable(False)
        calls.setblocking(False)
        ready = select.poll()
        for each in (line, calls):
            ready.register(each, select.POLLIN)
        while (message := _next_call(ready, line, calls)) is not None:
            worker.number, worker.made, began = message.number, 1, time.monotonic()
            kind, packed = _answer(message)
            seconds = time.monotonic() - began
            made, worked = made + worker.made, worked + seconds
            os.pwrite(counts, COUNTS.pack(made, worked), 0)
            wire.send(line, message.number, kind, packed, seconds / max(1, worker.made))
            del message, packed
    signal.signal(wire.FLUSH, signal.SIG_IGN)
    wire.kept.clear()


def _next_call(ready: select.poll, line: socket.socket, calls: socket.socket) -> wire.Message | None:
    """Wait for a call, and take the values that came before it; None if no more come."""
    message, ended = None, False
    while message is None and not ended:
        ready.poll()
        with suppress(BlockingIOError):  # only values came, or it was taken back
            message = wire.receive(calls)
            ended = message is None
        ended |= not _take_values(line)
    return message


def _take_values(line: socket.socket) -> bool:
    """Keep and drop what the program said so far; return False if it is gone."""
    try:
        while (message := wire.receive(line, socket.MSG_DONTWAIT)) is not None:
            if message.kind == wire.KEEP:
                wire.kept[message.number] = message
            elif message.kind == wire.DROP:
                wire.kept.pop(message.number, None)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def call_many(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> tuple[Results, Any]:
    """Make calls one after another. Return the results of the first, and how the next one failed, if it did."""
    return _working[0].make(function, arguments)


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


def _sizes() -> tuple[int, int]:
    """Return the bytes of standard output and of standard error."""
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fstat(1).st_size, os.fstat(2).st_size


def _answer(message: wire.Message) -> tuple[int, wire.Packed]:
    """Make a call; return its result or how it failed, each with where its output begins and ends."""
    before = _sizes()
    try:
        function, arguments, named = message.value()
        value = function(*arguments, **named)
        result = value, (before, _sizes())
        is_small = type(value) in PLAIN and sys.getsizeof(value) <= SMALL_BYTES
        packed = wire.Packed(pickle.dumps(result, 5)) if is_small else wire.pack(result)
        if wire.size(packed) > LARGEST_RESULT:
            raise ResultTooLarge(f"a result of {wire.size(packed) >> 20} MiB: write it to a file")
    except BaseException as error:
        failure = _failure(error)
        return wire.RAISED, wire.pack((failure, (before, _sizes())))
    return wire.RETURNED, packed
