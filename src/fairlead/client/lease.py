"""A lease of a worker as its program sees it, and the messages with calls that it is sent. See docs/calls.md."""

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fairlead.calls import wire
from fairlead.calls.direct import DirectWorker
from fairlead.calls.stream import PATIENCE, Frame, Stream
from fairlead.calls.wire import SLICE_SECONDS
from fairlead.client.call_future import CallFuture, TaskId

PRIOR_CALLS = 4
"""The mean so far weighs as much as this many calls."""
MOST_AHEAD = 64
"""Messages sent to one worker, at most."""
AGAIN_SECONDS = 5 * SLICE_SECONDS
"""Seconds until a worker is asked again for the results that it has."""
MOST_KEPT_BYTES = 8 * 2**30
"""Bytes of values that a program has put, at most."""


class Kind:
    """Calls whose time is measured together: all that were submitted singly, or those of one map."""

    def __init__(self) -> None:
        self.waiting: deque[Leased] = deque()
        self.mean: float | None = None  # seconds that a call takes

    def count(self) -> int:
        return len(self.waiting)

    def learn(self, seconds: float, calls: int) -> None:
        """Update the mean with calls that took this long each."""
        before = seconds if self.mean is None else self.mean
        self.mean = before + (seconds - before) * calls / (calls + PRIOR_CALLS)

    def seconds(self, count: int) -> float:
        """Estimate how long its calls take; an unknown one a slice."""
        return count * (SLICE_SECONDS if self.mean is None else self.mean)


class Leased:
    """A message for a leased worker: a call, or several of a map."""

    def __init__(self, kind: Kind, future: CallFuture[Any], packed: wire.Packed, retries: int = 0) -> None:
        self.kind, self.future, self.packed, self.retries = kind, future, packed, retries
        self.began = False  # its future is running
        self.hurried_at = 0.0  # when its worker was last asked for what it has
        self.seconds = 0.0  # estimated when it was sent
        self.is_stopped = False  # it is to be taken back from a relay, or stopped if it still runs

    def count(self) -> int:
        return 1

    def partly(self, message: wire.Message) -> Callable[[], None]:
        """Take the results of its calls so far; the worker starts no more of them. Return what follows, without the lock."""
        return lambda: None


class RelayedWorker:
    """A worker that is reached over a relay; what it has not read it returns as UNREAD when it is asked.

    `id` is its relay's. `changed` is called when there is something to send.
    """

    def __init__(self, relay: int, changed: Callable[[], None]) -> None:
        self.id, self._changed = relay, changed
        self.stream, self.heard_at = Stream(), time.monotonic()
        self._is_asked = False
        self._stopped = 0

    def ask_for_life(self) -> None:
        """Send a relay that is silent what it has to answer: the number of a message."""
        if time.monotonic() - self.heard_at > PATIENCE / 4 and not self.stream.owes():
            self._say(0, wire.SEEN)

    def pieces(self, frames: list[Frame]) -> Iterator[bytes]:
        """Yield the bytes of messages. The relay takes them, so it is alive."""
        for frame in frames:
            for piece in frame.pieces(self.stream.seen):
                yield piece
                self.heard_at = time.monotonic()

    def send(self, number: int, kind: int, packed: wire.Packed) -> bool:
        self._is_asked = False
        self._say(number, kind, packed)
        return True

    def withdraw(self) -> list[wire.Message]:
        if not self._is_asked:
            self._is_asked = True
            self._say(0, wire.WITHDRAW)
        return []

    def stop(self, number: int) -> None:
        """Ask, once, whether its worker still makes a call: WITHDRAW with its number comes after an answer that is on its way."""
        if self._stopped != number:
            self._stopped = number
            self._say(number, wire.WITHDRAW)

    def hurry(self) -> None:
        self._say(0, wire.HURRY)

    def finish(self) -> None:
        self._is_asked = True
        self._say(0, wire.FINISH)

    def close(self) -> None:
        self.stream.cut()

    def _say(self, number: int, kind: int, packed: wire.Packed = wire.EMPTY) -> None:
        self.stream.send(number, kind, packed)
        self._changed()


class Lease:
    """A lease, from the request on.

    task : its task, once it is accepted; `over` once that has ended, and `error` why
    worker : None while not connected
    relayed : the worker, if a relay ever connected
    sent : the messages that are not answered, by number
    ahead : the seconds that they take, by estimate
    kept : the values that its worker has, by number
    dropped : those that the program dropped, which the worker is to drop
    lost : started messages of a worker that is gone
    early : why the worker before ended, if its task started again
    stopped : how its process ended, once it was ended for what it did
    due : True once others are due: it ends between two calls
    preempted : True once it is cancelled for others, as the program did not hear that it was due
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.task: TaskId | None = None
        self.over = False
        self.early: BaseException | None = None
        self.error: BaseException | None = None
        self.worker: DirectWorker | RelayedWorker | None = None
        self.relayed: RelayedWorker | None = None
        self.sent: dict[int, Leased] = {}
        self.kept: dict[int, weakref.ref[wire.Kept]] = {}
        self.dropped: deque[int] = deque()
        self.ahead = 0.0
        self.lost: list[Leased] = []
        self.given_up = self.connected = self.finished = self.due = self.preempted = False
        self.stopped = ""
        self.since = self.heard_at = 0.0

    def name(self) -> str:
        return "{}.{}".format(*self.task or (0, 0))

    def connect(self, worker: DirectWorker | RelayedWorker) -> None:
        self.worker, self.finished, self.kept, self.dropped = worker, False, {}, deque()
        self.connected, self.since, self.heard_at = True, time.monotonic(), time.monotonic()
        self.early = None

    def takes_calls(self) -> bool:
        return self.worker is not None and not self.finished

    def has_room(self, seconds: float) -> bool:
        """Return whether a message that takes so long may be sent."""
        if not self.sent:
            return True
        late = time.monotonic() - self.heard_at > SLICE_SECONDS
        return not late and len(self.sent) < MOST_AHEAD and self.ahead + seconds <= SLICE_SECONDS

    def send(self, number: int, leased: Leased) -> bool:
        """Send a message; return False if there is no room for it, or the worker has ended, which is heard."""
        assert self.worker is not None
        if not self._send_drops(self.worker) or not self._send_kept(self.worker, leased.packed):
            return False
        if not self.worker.send(number, wire.CALL, leased.packed):
            return False
        if not self.sent:
            self.heard_at, self.ahead = time.monotonic(), 0.0
        leased.hurried_at = 0.0
        leased.seconds = leased.kind.seconds(leased.count())
        self.ahead += leased.seconds
        self.sent[number] = leased
        return True

    def _send_kept(self, worker: DirectWorker | RelayedWorker, packed: wire.Packed) -> bool:
        """Send the values that a message needs; return False if there is no room for one."""
        for value in packed.needs:
            if value.number not in self.kept:
                if not self._send_kept(worker, value.packed) or not worker.send(value.number, wire.KEEP, value.packed):
                    return False
                self.kept[value.number] = weakref.ref(value, partial(_drop, self.dropped, value.number))
        return True

    def _send_drops(self, worker: DirectWorker | RelayedWorker) -> bool:
        """Let the worker drop the values that the program dropped; return False if there is no room."""
        while self.dropped:
            if not worker.send(self.dropped[0], wire.DROP, wire.EMPTY):
                return False
            self.kept.pop(self.dropped.popleft(), None)
        return True

    def answered(self, number: int) -> Leased | None:
        self.heard_at = time.monotonic()
        return self.unread(number)

    def unread(self, number: int) -> Leased | None:
        """Remove a message that its worker did not start."""
        leased = self.sent.pop(number, None)
        if leased is not None:
            self.ahead -= leased.seconds
        return leased

    def withdraw(self) -> list[Leased]:
        """Take back the messages that the worker has not read, or ask a relay for them."""
        unread = self.worker.withdraw() if self.worker is not None else []
        return [leased for message in unread if (leased := self.unread(message.number)) is not None]

    def running(self) -> Leased | None:
        return next(iter(self.sent.values()), None)

    def may_be_hurried(self) -> bool:
        """Return True if it is time to ask the worker, perhaps again: it hears nothing before it begins a message."""
        running = self.running()
        return running is not None and running.count() > 1 and time.monotonic() - running.hurried_at > AGAIN_SECONDS

    def hurry(self) -> None:
        """Ask the worker for the results that it has, and to start no more calls of its message."""
        running = self.running()
        if running is not None:
            running.hurried_at = time.monotonic()
        if self.worker is not None:
            self.worker.hurry()

    def finish(self) -> None:
        """Send no more calls; the worker answers those that it has, and ends the lease."""
        if self.takes_calls() and self.worker is not None:
            self.worker.finish()
        self.finished = True

    def disconnect(self) -> None:
        """The worker has ended, and what it had started is lost."""
        self.lost += self.sent.values()
        self.sent = {}
        if self.worker is not None:
            self.worker.close()
        self.worker = None


def _drop(dropped: deque[int], number: int, _: object) -> None:
    dropped.append(number)
