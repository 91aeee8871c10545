"""The calls of a `map`: what takes some 20 ms is sent together, and results are yielded in order.

The first call is sent alone, to measure it. A worker returns the calls that it did not start within a slice; if a call takes much
longer than expected, it sends the results that it has, and others get the rest.
"""

import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from fairlead.calls import wire
from fairlead.calls.lease import Results, call_many
from fairlead.calls.payloads import LARGEST_PAYLOAD
from fairlead.calls.wire import SLICE_SECONDS
from fairlead.client.call_future import CallFuture
from fairlead.client.lease import Kind, Leased
from fairlead.client.results import raised_in_worker
from fairlead.interrupts import wait_until

MOST_BYTES = 4 * 2**20
"""Bytes of several calls in one message."""


class Mapped(Kind):
    """A map. `whole` is done when nothing of it will run any more; `lock` is that of the pool.

    `items` are the calls that are in no message, as ranges of places in order; a call's arguments are dropped once it was made.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        elements: Iterable[tuple[Any, ...]],
        make_future: Callable[[], CallFuture[Any]],
        lock: Any,
        on_arrival: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__()
        self._function: Callable[..., Any] | wire.Kept = function
        self._make_future, self.lock, self._on_arrival = make_future, lock, on_arrival
        self._process = os.getpid()
        self._arguments = list(elements)
        self.total = self._left = len(self._arguments)
        self.items = deque([range(self.total)] if self.total else [])
        self.pickled = range(0)  # the calls whose message is being made
        self.pack_arguments: Callable[[Any], wire.Packed] = wire.pack
        self.on_made: Callable[[int, bool], object] = lambda made, failed: None
        self._size = 1
        self.under_way: set[CallFuture[Any]] = set()
        self._dropped = self._over = self._is_packed = False
        self.is_left = False  # it is to be cancelled
        self._arrived = SimpleQueue[tuple[int, Results, BaseException | None]]()
        self._ready: dict[int, tuple[Results, BaseException | None]] = {}
        self._position = 0
        self.whole: CallFuture[Any] = CallFuture(lambda _: self.cancel(), lambda _: self.cancel(stop=True))
        self.whole.add_done_callback(self._ended)

    def count(self) -> int:
        return len(self.pickled) + sum(map(len, self.items)) + sum(each.count() for each in self.waiting)

    def learn(self, seconds: float, calls: int) -> None:
        super().learn(seconds, calls)
        self._size = max(1, min(16 * self._size, int(SLICE_SECONDS / max(seconds, 1e-7))))

    def take(self, most: int | None = None) -> range:
        """Take the calls of the next message, which are consecutive. The lock is held."""
        there, size = self.items.popleft(), most or self._size
        if len(there) > size:
            self.items.appendleft(there[size:])
        self.pickled = there[:size]
        return self.pickled

    def pack(self, items: range) -> "Chunk | None":
        """Pickle calls, which runs code of the program: the lock is not held. Return None if there is no message of them."""
        packed = None
        try:
            if not self._is_packed:
                self._is_packed, function = True, wire.pack(self._function)
                self._function = wire.Kept(function) if wire.size(function) > wire.MAPPED_BYTES else self._function
            packed = self.pack_arguments((call_many, (self._function, self._arguments[items.start : items.stop]), {}))
            if wire.size(packed) > LARGEST_PAYLOAD // 2:
                packed = None
                raise ValueError(f"a call of more than {LARGEST_PAYLOAD >> 21} MiB: pass the name of a file")
        except Exception as error:
            if len(items) == 1:
                with self.lock:
                    self.pickled = range(0)
                self.receive(items, 1, [], error)
                return None
        if packed is None or (len(items) > 1 and wire.size(packed) > MOST_BYTES):
            self._size = max(1, len(items) // 4)
            return None
        return Chunk(self, self._make_future(), packed, items)

    def place(self, chunk: "Chunk | None") -> None:
        """Let the message of what was pickled wait, or take that back if there is none. The lock is held."""
        items, self.pickled = self.pickled, range(0)
        if chunk is None or self._dropped:
            self.put_back(items)
        else:
            self.under_way.add(chunk.future)
            self.waiting.append(chunk)

    def put_back(self, items: range) -> None:
        """Take back calls that did not start. The lock is held."""
        if self._dropped or self.whole.done():
            self._left -= len(items)
        elif items:
            joins = self.items and self.items[0].start == items.stop
            self.items.appendleft(range(items.start, self.items.popleft().stop) if joins else items)

    def receive(self, items: range, made: int, results: Results, failure: BaseException | None) -> None:
        """Receive the outcomes of the first `made` calls of a message."""
        if items and (results or failure is not None):
            self._arrived.put((items.start, results, failure))
            self._on_arrival()
        self.on_made(made, failure is not None)
        with self.lock:
            self._left -= made
            self._arguments[items.start : items.start + made] = [()] * made
        self.finish()

    def cancel(self, stop: bool = False) -> bool:
        """Cancel the calls that have not started; with `stop`, end those that run as well. Return True if all are cancelled."""
        if self._process != os.getpid():  # forked: a thread that is not here may hold the lock, and the calls are its parent's
            return False
        with self.lock:
            self._left -= sum(map(len, self.items))
            self.items.clear()
            self._dropped, under_way = True, list(self.under_way)
        for future in under_way:
            if stop:
                future.stop()
            else:
                future.cancel()
        self.finish()
        return self.whole.cancelled()

    def finish(self) -> None:
        """End the map if nothing of it is left."""
        with self.lock:
            over = not self._left and not self._over and not self.whole.done()
            self._over |= over
        if over and self._dropped:
            self.whole.cancel_here()
        if over and self.whole.set_running_or_notify_cancel():
            self.whole.set_result(None)

    def _ended(self, whole: Future[Any]) -> None:
        self._arrived.put((-1, [], CancelledError() if whole.cancelled() else whole.exception(0)))
        self._on_arrival()

    # -- results ----------------------------------------------------------------------------------------------------

    def results(self, timeout: float | None) -> Iterator[Any]:
        """Yield the results in order; see :meth:`concurrent.futures.Executor.map`."""
        until = None if timeout is None else time.monotonic() + timeout
        return self._results(until)

    def _results(self, until: float | None) -> Iterator[Any]:
        try:
            while not self.is_over():
                yield from self.ready()
                if not self.is_over():
                    self._wait(until)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Cancel what is left. If the garbage collector says so in code that holds the lock, a thread does it later."""
        try:
            threading.Condition(self.lock).notify()
        except RuntimeError:  # this thread does not hold it
            self.cancel()
        else:
            self.is_left = True

    def is_over(self) -> bool:
        return self._position >= self.total

    def ready(self) -> Iterator[Any]:
        """Yield the next results that have arrived, or raise."""
        while not self._arrived.empty():
            self._hear(self._arrived.get())
        while not self.is_over() and (self._position in self._ready or -1 in self._ready):
            results, failure = self._ready.pop(self._position if self._position in self._ready else -1)
            self._position += len(results)
            for value in results:
                yield pickle.loads(value[0]) if type(value) is tuple else value  # noqa: S301 the person's own
            if failure is not None:
                raise failure

    def _wait(self, until: float | None) -> None:
        def arrived(seconds: float) -> bool:
            if until is not None:
                seconds = max(0.0, min(seconds, until - time.monotonic()))
            try:
                self._hear(self._arrived.get(timeout=seconds))
            except Empty:
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError from None
                return False
            return True

        wait_until(arrived)

    def _hear(self, arrived: tuple[int, Results, BaseException | None]) -> None:
        first, results, failure = arrived
        if results or failure is not None:
            self._ready[first] = results, failure


class Chunk(Leased):
    """Consecutive calls of a map in one message."""

    def __init__(self, mapped: Mapped, future: CallFuture[Any], packed: wire.Packed, items: range) -> None:
        super().__init__(mapped, future, packed)
        self._mapped, self._items = mapped, items
        future.add_done_callback(self.ended)

    def count(self) -> int:
        return len(self._items)

    def partly(self, message: wire.Message) -> Callable[[], None]:
        results = message.value()
        with self._mapped.lock:
            made, left = self._items[: len(results)], self._items[len(results) :]
            self._items = left[:1]
            self._mapped.put_back(left[1:])
        return partial(self._mapped.receive, made, len(results), results, None)

    def ended(self, future: Future[Any]) -> None:
        with self._mapped.lock:
            self._mapped.under_way.discard(future)
        error: BaseException | None = CancelledError() if future.cancelled() else future.exception(0)
        if error is not None:
            self._mapped.receive(self._items, len(self._items), [], error)
            return
        results, failure = future.result(0)
        made = len(results) + (failure is not None)
        with self._mapped.lock:
            self._mapped.put_back(self._items[made:])
        self._mapped.receive(self._items, made, results, None if failure is None else raised_in_worker(self.future.log, *failure))
