"""A lease of a worker as its program sees it, and the messages with calls that it is sent. See docs/calls.md."""

import os
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from typing import Any

from fairlead.calls import wire
from fairlead.calls.lease import FLUSH, SLICE_SECONDS
from fairlead.client.calls_under_way import CallFuture

MOST_AHEAD = 64
"""Messages sent to one worker, at most."""


class Kind:
    """Calls whose time is measured together: all that were submitted singly, or those of one map."""

    def __init__(self) -> None:
        self.waiting: deque[Leased] = deque()
        self.mean: float | None = None  # seconds that a call takes

    def count(self) -> int:
        """Return how many of its calls are not sent."""
        return len(self.waiting)

    def learn(self, seconds: float) -> None:
        """Take into account how long a call took."""
        self.mean = seconds if self.mean is None else 0.8 * self.mean + 0.2 * seconds

    def seconds(self, count: int) -> float:
        """Estimate how long its calls take; an unknown one a slice."""
        return count * (SLICE_SECONDS if self.mean is None else self.mean)


class Leased:
    """A message for a leased worker: a call, or several of a map."""

    def __init__(self, kind: Kind, future: CallFuture[Any], packed: wire.Packed) -> None:
        self.kind, self.future, self.packed = kind, future, packed
        self.began = self.hurried = False  # its future is running; its worker was asked for what it has
        self.seconds = 0.0  # estimated when it was sent

    def count(self) -> int:
        """Return how many calls it has."""
        return 1

    def partly(self, message: wire.Message) -> None:
        """Receive the results of its calls so far; the worker starts no more of them."""


class Lease:
    """A lease, from the request on; `task` is the future of its task.

    line, process : from the worker, and its pidfd; None and -1 while not connected
    calls, copy : where calls are sent, and a copy of the worker's end
    sent : the messages that are not answered, by number
    ahead : the seconds that they take, by estimate
    lost : started messages of a worker that is gone
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.task: CallFuture[Any]
        self.line: socket.socket | None = None
        self.calls: socket.socket | None = None
        self.copy: socket.socket | None = None
        self.process = -1
        self.sent: dict[int, Leased] = {}
        self.ahead = 0.0
        self.lost: list[Leased] = []
        self.given_up = self.connected = False
        self.since = self.heard_at = 0.0

    def connect(self, line: socket.socket, process: int) -> None:
        """Give a worker the socket that its calls come from."""
        calls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        calls.setblocking(False)
        theirs.setblocking(False)
        with suppress(OSError):  # it has ended, which is heard
            socket.send_fds(line, [b"\0"], [theirs.fileno()])
        line.setblocking(False)
        self.line, self.calls, self.copy, self.process = line, calls, theirs, process
        self.connected, self.since, self.heard_at = True, time.monotonic(), time.monotonic()

    def takes_calls(self) -> bool:
        return self.calls is not None

    def has_room(self, seconds: float) -> bool:
        """Return whether a message that takes so long may be sent."""
        return not self.sent or (len(self.sent) < MOST_AHEAD and self.ahead + seconds <= SLICE_SECONDS)

    def send(self, number: int, leased: Leased) -> bool:
        """Send a message; return False if its socket is full, or it has ended, which is heard."""
        assert self.calls is not None
        try:
            wire.send(self.calls, number, wire.CALL, leased.packed)
        except OSError:
            return False
        if not self.sent:
            self.heard_at, self.ahead = time.monotonic(), 0.0
        leased.future.task, leased.hurried = self.task.task, False
        leased.seconds = leased.kind.seconds(leased.count())
        self.ahead += leased.seconds
        self.sent[number] = leased
        return True

    def answered(self, number: int) -> Leased | None:
        """Remove a message that was answered."""
        self.heard_at = time.monotonic()
        leased = self.sent.pop(number, None)
        if leased is not None:
            self.ahead -= leased.seconds
        return leased

    def withdraw(self) -> list[Leased]:
        """Take back the messages that the worker has not read."""
        unread: list[Leased] = []
        while self.copy is not None:
            try:
                message = socket.recv_fds(self.copy, wire.HEAD_BYTES, 1)
            except OSError:
                break
            for fd in message[1]:
                os.close(fd)
            if not message[0]:
                break
            unread.append(self.sent.pop(wire.number(message[0])))
            self.ahead -= unread[-1].seconds
        return unread

    def running(self) -> Leased | None:
        """Return the message whose calls the worker makes."""
        return next(iter(self.sent.values()), None)

    def may_be_hurried(self) -> bool:
        running = self.running()
        return running is not None and running.count() > 1 and not running.hurried

    def hurry(self) -> None:
        """Ask the worker for the results that it has, and to start no more calls of its message."""
        running = self.running()
        if running is not None:
            running.hurried = True
        with suppress(OSError):
            signal.pidfd_send_signal(self.process, FLUSH)

    def finish(self) -> None:
        """Send no more calls; the worker answers those that it has, and ends the lease."""
        if self.calls is not None:
            self.calls.close()
            self.calls = None

    def disconnect(self) -> None:
        """Close all sockets: the worker has ended, and what it had started is lost."""
        self.finish()
        self.lost += self.sent.values()
        self.sent = {}
        for each in (self.line, self.copy):
            if each is not None:
                each.close()
        if self.process >= 0:
            os.close(self.process)
        self.line, self.copy, self.process = None, None, -1
