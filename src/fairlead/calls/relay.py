"""Carries calls to a leased worker, and their results back, if the worker cannot reach its program: see docs/calls.md.

A process of the worker's own task, which the worker starts and waits for. It does for the worker what the program does on its own
machine (:mod:`fairlead.client.lease`), on behalf of the program, which it reaches through the scheduler. It unpickles nothing.
Standard library only.
"""

import contextlib
import json
import math
import os
import random
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlead.calls import wire
from fairlead.calls.direct import DirectWorker
from fairlead.calls.stream import PATIENCE, PIECE_BYTES, Stream
from fairlead.sockets import uid_of_peer
from fairlead.tls import TLSConnection, dialing

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between attempts to connect, doubled each time, with jitter."""
CONNECT_WITHIN = 10.0
LINGER = 2.0
"""Seconds without progress after which a relay that was asked to stop gives up what its worker left."""


def start(dial: dict[str, Any]) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """Start a relay. Return the worker's line to it, as if to its program, and its process.

    `dial` says where the scheduler is: `hosts`, `port` and `scheduler`, its certificate; or `unix`, an abstract address of this
    machine, and the `uid` there. `relay` and `lease` say who connects.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    package = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {package!r}); from fairlead.calls import relay; relay.main()"
    with theirs:
        words = [sys.executable, "-S", "-c", code, str(theirs.fileno())]
        process = subprocess.Popen(words, pass_fds=[theirs.fileno()], cwd="/")
    ours.send(json.dumps(dial).encode())
    return ours, process


def main() -> None:
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # it ends with the worker
    line = socket.socket(fileno=int(sys.argv[1]))
    relay = Relay(line, json.loads(line.recv(2**16)))
    signal.signal(signal.SIGTERM, relay.hurry)
    relay.run()


class Relay:
    """Between a worker's line and the program's stream.

    waiting : calls, and values that they need, that have not been sent to the worker
    """

    def __init__(self, line: socket.socket, dial: dict[str, Any]) -> None:
        self._line: socket.socket | None = line
        self._dial, self._stream = dial, Stream()
        self._worker: DirectWorker | None = None
        self._waiting: deque[wire.Message] = deque()
        self._net: TLSConnection | socket.socket | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._unsent = memoryview(b"")
        self._gone_at, self._late_at = time.monotonic() + PATIENCE, math.inf
        self._pause, self._id = 0.0, int.from_bytes(os.urandom(7))
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ, self._hear_worker)

    def run(self) -> None:
        """Run until the worker has ended, and the program has all results, or is gone."""
        while self._is_needed(time.monotonic()):
            if self._net is None:
                self._connect()
            if self._net is not None:
                wants = bool(self._unsent) or self._stream.has_outgoing()
                mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants else 0)
                self._selector.modify(self._net, mask, self._hear_or_send)
            for key, _ in self._selector.select(self._wait() if self._net is not None else 0.0):
                key.data()
            self._push()

    def _wait(self) -> float | None:
        """Return how long nothing has to be done; what waits may be values, which the worker takes without an answer."""
        if self._line is None:
            return LINGER / 2
        return wire.SLICE_SECONDS if self._waiting and self._worker is not None else None

    def _is_needed(self, now: float) -> bool:
        return now < self._gone_at and (self._line is not None or (self._stream.owes() and now < self._late_at))

    def hurry(self, *_: object) -> None:
        """Its task is to stop: wait for the worker, and little longer. A signal's handler."""
        self._late_at = time.monotonic() + LINGER

    # -- the worker -------------------------------------------------------------------------------------------------

    def _hear_worker(self) -> None:
        assert self._line is not None
        try:
            message = wire.receive(self._line)
        except (OSError, ValueError):
            message = None
        if message is None:
            self._selector.unregister(self._line)
            self._line.close()
            self._line = None
            if self._late_at < math.inf:  # it was asked to stop
                self._late_at = time.monotonic() + LINGER
            self._withdraw()
        elif message.kind == wire.HELLO:
            self._worker = DirectWorker(self._line)
        else:
            self._stream.send(message.number, message.kind, message.packed, message.seconds)
            self._push()

    def _push(self) -> None:
        """Send the worker the calls that its socket has room for."""
        while self._waiting and self._worker is not None:
            number, kind, _, packed = self._waiting[0]
            if not self._worker.send(number, kind, packed):
                break
            self._waiting.popleft()

    def _withdraw(self, stopped: int = 0) -> None:
        """Give back the calls that the worker has not read; answer if the worker still makes the call that is to be stopped."""
        unread = [*(self._worker.withdraw() if self._worker is not None else ()), *self._waiting]
        for message in reversed(unread):  # each goes before the others there
            if message.kind == wire.CALL:
                self._stream.send(message.number, wire.UNREAD)
        self._waiting = deque(message for message in unread if message.kind != wire.CALL)
        while stopped and self._line is not None and select.select([self._line], [], [], 0)[0]:
            self._hear_worker()
        if stopped:  # behind the answers
            self._stream.send(stopped, wire.WITHDRAW)
        self._push()

    # -- the program ------------------------------------------------------------------------------------------------

    def _hear_program(self, message: wire.Message) -> None:
        match message.kind:
            case wire.RESUMED:
                self._stream.resume()
                self._pause, self._gone_at = 0.0, math.inf
            case wire.GONE:
                self._gone_at = 0.0
            case wire.CALL | wire.KEEP | wire.DROP:
                self._waiting.append(message)
                self._push()
                if self._line is None:
                    self._withdraw()
            case wire.WITHDRAW:
                self._withdraw(message.number)
            case wire.HURRY if self._worker is not None:
                self._worker.hurry()
            case wire.FINISH if self._worker is not None:
                self._withdraw()
                self._worker.finish()

    def _hear_or_send(self) -> None:
        """Handle progress: there is something to read, or room for what is to be sent."""
        assert self._net is not None
        if self._stream.live and self._late_at < math.inf:
            self._late_at = time.monotonic() + LINGER
        try:
            with contextlib.suppress(BlockingIOError):
                data = self._net.recv(PIECE_BYTES)
                if not data:
                    raise OSError
                for message in self._stream.receive(data):
                    self._hear_program(message)
            with contextlib.suppress(BlockingIOError):
                while self._unsent or self._next_piece():
                    self._unsent = self._unsent[self._net.send(self._unsent) :]
        except (OSError, ValueError):
            self._disconnect()

    def _next_piece(self) -> bool:
        piece = next(self._pieces, b"")
        if not piece and (frames := self._stream.take(0)):
            self._pieces = frames[0].pieces(self._stream.seen)
            piece = next(self._pieces)
        self._unsent = memoryview(piece)
        return bool(piece)

    def _disconnect(self) -> None:
        if self._net is not None:
            self._selector.unregister(self._net)
            self._net.close()
        self._net, self._pieces, self._unsent = None, iter(()), memoryview(b"")
        if self._stream.live:
            self._gone_at = time.monotonic() + PATIENCE
        self._stream.cut()

    def _connect(self) -> None:
        try:
            self._net = self._reached()
        except OSError:
            self._pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self._pause))
            time.sleep(self._pause * random.uniform(0.7, 1.3))  # noqa: S311
            return
        self._selector.register(self._net, selectors.EVENT_READ, self._hear_or_send)
        self._stream.say(wire.RESUME, self._id)

    def _reached(self) -> "TLSConnection | socket.socket":
        dial = self._dial
        hello = json.dumps({"relay": dial["relay"], "lease": dial["lease"]}).encode() + b"\n"
        if not dial.get("hosts"):
            line = socket.socket(socket.AF_UNIX)
            line.settimeout(CONNECT_WITHIN)
            line.connect(f"\0{dial['unix']}")
            if uid_of_peer(line) != dial["uid"]:
                raise OSError("another person listens at the address of the scheduler")
            line.sendall(hello)
            line.setblocking(False)
            return line
        context = dialing(None, dial["scheduler"])
        for host in random.sample(dial["hosts"], len(dial["hosts"])):
            with contextlib.suppress(OSError):
                line = socket.create_connection((host, dial["port"]), CONNECT_WITHIN)
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = TLSConnection(line, context, handshake=True)
                connection.send(hello)
                return connection
        raise OSError("the scheduler does not answer")
