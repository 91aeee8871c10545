"""Leased workers: calls go to them over Unix sockets of this machine, or over relays. See docs/calls.md.

One thread hears workers and decides how many leases are needed; threads that submit calls also send them. No future is resolved
while the lock is held, because callbacks may submit more calls.
"""

import math
import os
import selectors
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from typing import Any

from fairlead.calls import wire
from fairlead.calls.direct import DirectWorker, close
from fairlead.calls.stream import PATIENCE, Frame
from fairlead.calls.wire import SLICE_SECONDS
from fairlead.client.call_future import CallFuture
from fairlead.client.growth import Shape
from fairlead.client.lease import MOST_AHEAD, Lease, Leased, RelayedWorker
from fairlead.client.mapped import Mapped
from fairlead.client.options import Options
from fairlead.client.results import CallFailed, SchedulerGone, fail, failed, raised_in_worker
from fairlead.client.service_error import ServiceError
from fairlead.sockets import abstract_names, uid_of_peer

IDLE_SECONDS = 0.2
"""How long a lease is kept without calls."""
SHORTEST_SECONDS = 0.5
"""How long a lease lasts at least, while it has calls, although others are due."""
LONGEST_SECONDS = 3600.0
"""How long a lease lasts at most, between two calls: the journal has its calls when it ends."""
TEND_SECONDS = 0.005
"""Between two decisions about how many leases are needed."""


class Leases:
    """The leased workers of one program.

    ask : requests a task for a lease
    cancel : cancels the tasks of leases, but with `only_waiting` none that runs; returns whether it did cancel one
    guard : does a thread's work, and fails all calls if that fails
    """

    def __init__(
        self,
        ask: Callable[[Lease, Options, str], None],
        cancel: Callable[[list[Lease], bool], bool],
        guard: Callable[[Callable[[], None]], None],
    ) -> None:
        self._ask, self._cancel, self._guard = ask, cancel, guard
        self.address, self.secret = f"fairlead-{abstract_names()}-{uuid.uuid4().hex[:24]}", uuid.uuid4().hex
        self._process = os.getpid()
        self.to_send = threading.Event()  # there is something for relays
        self.lock = threading.RLock()
        self._shapes: dict[str, Shape] = {}
        self._by_number: dict[int, tuple[Shape, Lease]] = {}
        self._number = 0
        self.thread: threading.Thread | None = None
        self._broken = False  # all calls were given up
        self._packer: int | None = None  # the thread that pickles messages of maps
        self._sleeps = False  # the thread may sleep for longer than a slice
        self._tend_at = 0.0
        self._resolving: dict[object, int] = {}  # of each change, the thread that does what follows from it
        self._then: list[Callable[[], object]] = []
        self._over: Callable[[], None] | None = None
        self.closed: Exception | None = None
        self.had_worker = False  # a worker has connected

    def add(self, options: Options, name: str, future: CallFuture[Any], packed: wire.Packed) -> None:
        """Queue a call. Raises the reason if no more are accepted."""
        with self._adding(options, name) as shape:
            shape.single.waiting.append(Leased(shape.single, future, packed, options.retries))

    def add_map(self, options: Options, name: str, mapped: Mapped) -> None:
        """Queue the calls of a map. Raises the reason if no more are accepted."""
        with self._adding(options, name) as shape:
            shape.maps.append(mapped)

    def are_forked(self) -> bool:
        """Return True in a process that was forked from the program: the threads and the lock's owner are not there."""
        return os.getpid() != self._process

    @contextmanager
    def _adding(self, options: Options, name: str) -> Iterator[Shape]:
        if self.are_forked():
            raise RuntimeError("this client is of the process that this one was forked from: make one here")
        with self._changing():
            if self.closed is not None:
                raise self.closed
            self._begin()
            shape = self._shapes.setdefault(repr(options), Shape(options, name))
            yield shape
            self._serve(shape)
            wakes = self._sleeps and shape.waits()
        if wakes:
            self._wake()

    def withdraw(self, future: CallFuture[Any]) -> bool:
        """Remove a call that was not sent; return True if it was found."""
        with self.lock:
            return self._remove(future, began=False)

    def _remove(self, future: CallFuture[Any], began: bool) -> bool:
        for shape in self._shapes.values():
            for kind in shape.kinds():
                for leased in kind.waiting:
                    if leased.future is future and (began or not leased.began):
                        kind.waiting.remove(leased)
                        return True
        return False

    def stop(self, future: CallFuture[Any]) -> bool | None:
        """Stop a call that was sent: take it back, or end the lease whose worker runs it. None for an unknown one."""
        found, is_marked = None, False
        with self._changing():
            for shape in self._shapes.values():
                for lease in shape.leases:
                    if not any(leased.future is future for leased in lease.sent.values()):
                        continue
                    shape.requeue(lease.withdraw())
                    running = lease.running()
                    if running is None or (running.future is future and lease.relayed is None):
                        lease.finish()  # no other call is sent to it, also if the answer is on its way
                        found = lease
                        continue
                    for leased in lease.sent.values():  # behind another call, or its answer may be on its way
                        if leased.future is future:
                            leased.is_stopped, leased.retries, is_marked = True, 0, True
                    if running.is_stopped:
                        self._stop_call(shape, lease, running)
            if self._remove(future, began=True):
                self._then.append(lambda: fail(future, CancelledError("the call was cancelled while it ran")))
                return True
        return self._cancel([found], False) if found is not None else is_marked or None

    def pending(self) -> set[CallFuture[Any]]:
        with self.lock:
            shapes = self._shapes.values()
            wholes = {mapped.whole for shape in shapes for mapped in shape.maps if not mapped.whole.done()}
            return wholes | {leased.future for shape in shapes for leased in shape.messages()}

    def counts(self) -> tuple[int, int]:
        """Return how many calls workers have, and how many wait."""
        with self.lock:
            shapes = self._shapes.values()
            sent = sum(leased.count() for shape in shapes for lease in shape.leases for leased in lease.sent.values())
            return sent, sum(kind.count() for shape in shapes for kind in shape.kinds())

    def close(self, why: Exception, over: Callable[[], None]) -> None:
        """Accept no more calls; call `over` when all have ended."""
        with self.lock:
            self.closed = self.closed or why
            self._over = over
            there = self.thread is not None
        if there:
            self._wake()
        else:
            over()

    def have_ended(self, seconds: float) -> bool:
        """Wait until the thread has ended."""
        if self.thread is not None:
            self.thread.join(seconds)
        return self.thread is None or not self.thread.is_alive()

    def break_off(self, why: Exception) -> set[CallFuture[Any]]:
        """Give up on all calls and leases; return the futures of the calls."""
        with self.lock:
            pending, self.closed = self.pending(), why
            self._over, self._broken = self._over or (lambda: None), True
            for shape in self._shapes.values():
                for kind in shape.kinds():
                    kind.waiting.clear()
                for mapped in shape.maps:
                    mapped.items.clear()
                for lease in list(shape.leases):
                    lease.sent, lease.lost, lease.given_up = {}, [], True
                    lease.finish()
        if self.thread is not None:
            self._wake()
        return pending

    # -- the thread -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.thread is not None:
            return
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(f"\0{self.address}")
        self._listener.listen(128)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: os.eventfd_read(self._woken))
        self.thread = threading.Thread(target=self._guard, args=(self._run,), name="fairlead-leases", daemon=True)
        self.thread.start()

    def _wake(self) -> None:
        with self.lock:
            if self._woken >= 0:
                os.eventfd_write(self._woken, 1)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock; then do what must be done without it."""
        then: list[Callable[[], object]] = []
        change = object()
        try:
            with self.lock:
                self._resolving[change] = threading.get_ident()
                try:
                    yield
                finally:
                    then, self._then = self._then, []
        finally:
            try:
                for each in then:
                    each()
            finally:
                with self.lock:
                    self._resolving.pop(change, None)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select(self._timeout()):
                with self._changing():
                    key.data()
            now = time.monotonic()
            if now < self._tend_at:
                continue
            with self._changing():
                self._tend_at = now + TEND_SECONDS
                for shape in list(self._shapes.values()):
                    self._tend(shape, now)
                left = not self._broken and any(shape.leases for shape in self._shapes.values())
                over = None if left else self._over
            with self.lock:
                ends = over is not None and not self._resolving and not self.pending()
            if ends and over is not None:
                over()
                break
        lines = [key.fileobj for key in self._selector.get_map().values()]
        for line in lines:
            if isinstance(line, socket.socket):
                close(line)  # also of workers that still run calls which were given up
        self._selector.close()
        with self.lock:
            os.close(self._woken)
            self._woken = -1

    def _timeout(self) -> float | None:
        with self.lock:
            shapes = self._shapes.values()
            leases = [lease for shape in shapes for lease in shape.leases]
            self._sleeps = not any(shape.waits() for shape in shapes)
            if not self._sleeps or any(lease.may_be_hurried() for lease in leases):
                return max(0.0, self._tend_at - time.monotonic())
            return IDLE_SECONDS / 2 if leases or self._over else None

    def _tend(self, shape: Shape, now: float) -> None:
        """Ask for leases, and end those that are not needed, or are due."""
        pickles = any(each.pickled for each in shape.maps)
        for lease in shape.leases:
            if lease.worker is not None and lease.relayed is not None and now - lease.relayed.heard_at > PATIENCE:
                self._stop(lease, f"was stopped, as its relay did not answer for {PATIENCE:g} seconds")
            if not lease.takes_calls():
                continue
            ran = now - lease.heard_at
            unneeded = not lease.sent and not pickles and (ran > IDLE_SECONDS or self._over)
            if unneeded or now - lease.since > (SHORTEST_SECONDS if lease.due else LONGEST_SECONDS):
                self._give_back(shape, lease)
            elif len(lease.sent) > 1 and ran > SLICE_SECONDS:
                shape.requeue(lease.withdraw())
            if ran > 2 * SLICE_SECONDS and lease.may_be_hurried():
                lease.hurry()
            running = lease.running()
            if running is not None and running.is_stopped:
                self._stop_call(shape, lease, running)
            if lease.sent and ran > (shape.options.time_limit or math.inf):
                self._stop(lease, "was stopped at its time limit")
        shape.maps = [each for each in shape.maps if not each.whole.done()]
        for each in shape.maps:
            if each.is_left:
                each.is_left = False
                self._then.append(each.cancel)
        self._serve(shape)
        alive = sum(lease.takes_calls() for lease in shape.leases)
        asked, wanted = shape.asked(), shape.wanted(now)
        for _ in range(min(wanted - alive, shape.most_asked) - len(asked)):
            self._then.append(lambda shape=shape: self._request(shape))  # type: ignore[misc]
        if asked and not wanted:
            for lease in asked:
                lease.given_up = True
            self._cancel_soon(asked, only_waiting=True)

    def _stop_call(self, shape: Shape, lease: Lease, running: Leased) -> None:
        """End a lease for a call that is stopped; over a relay, once that has answered that its worker still makes it."""
        if lease.relayed is not None:
            lease.relayed.stop(next(number for number, leased in lease.sent.items() if leased is running))
        else:
            running.is_stopped = False
            self._give_back(shape, lease)
            self._cancel_soon([lease], only_waiting=False)

    def _stop(self, lease: Lease, how: str) -> None:
        """End a lease and what it runs, once; `how` its process ended."""
        if not lease.stopped:
            lease.stopped = how
            self._cancel_soon([lease], only_waiting=False)

    def _give_back(self, shape: Shape, lease: Lease) -> None:
        lease.finish()
        shape.requeue(lease.withdraw())

    def _cancel_soon(self, leases: list[Lease], only_waiting: bool) -> None:
        threading.Thread(target=self._cancel, args=(leases, only_waiting), name="fairlead-stop", daemon=True).start()

    def _request(self, shape: Shape) -> None:
        with self.lock:
            self._number += 1
            lease = Lease(self._number)
            shape.leases.append(lease)
            self._by_number[lease.number] = shape, lease
        self._ask(lease, shape.options, shape.name)

    # -- workers ----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        line, _ = self._listener.accept()
        if uid_of_peer(line) != os.geteuid():
            line.close()
            return
        self._selector.register(line, selectors.EVENT_READ, lambda: self._hear_hello(line))

    def _hear_hello(self, line: socket.socket) -> None:
        self._selector.unregister(line)
        try:
            message = wire.receive(line)
        except (OSError, ValueError):
            message = None
        found = self._by_number.get(message.number) if message is not None else None
        if found is None or found[1].worker is not None:
            line.close()
            return
        shape, lease = found
        self._connected(shape, lease, DirectWorker(line))
        self._selector.register(line, selectors.EVENT_READ, lambda: self._hear(shape, lease, line))
        self._serve(shape)

    def _connected(self, shape: Shape, lease: Lease, worker: DirectWorker | RelayedWorker) -> None:
        self._fail_lost(shape, lease)
        lease.connect(worker)
        self.had_worker = True
        shape.granted()

    def relayed(self, number: int, data: bytes) -> None:
        """Receive bytes from the relay of a lease; none begin a connection."""
        with self._changing():
            shape, lease = self._by_number.get(number, (None, None))
            if shape is None or lease is None:
                return
            worker = lease.relayed = lease.relayed or RelayedWorker(0, self.to_send.set)
            worker.heard_at = time.monotonic()
            if not data:
                worker.stream.cut()
                return
            for message in worker.stream.receive(data):
                if message.kind != wire.RESUME:
                    self._receive(shape, lease, message)
                    continue
                if worker.id != message.number:  # its first connection
                    self._worker_ended(shape, lease)
                    worker = lease.relayed = RelayedWorker(message.number, self.to_send.set)
                    self._connected(shape, lease, worker)
                worker.stream.say(wire.RESUMED)
                worker.stream.resume()
                self.to_send.set()
            self._serve(shape)

    def outgoing(self, most: int) -> list[tuple[int, RelayedWorker, list[Frame]]]:
        """Return what is to be sent to relays now, by lease; to each some `most` bytes."""
        with self.lock:
            self.to_send.clear()
            relayed = [(number, lease.relayed) for number, (_, lease) in self._by_number.items() if lease.relayed is not None]
            for _, worker in relayed:
                worker.ask_for_life()
            return [(number, worker, frames) for number, worker in relayed if (frames := worker.stream.take(most))]

    def cut(self) -> None:
        """All connections to relays broke."""
        with self.lock:
            for _, lease in self._by_number.values():
                if lease.relayed is not None:
                    lease.relayed.stream.cut()

    def is_resolving_here(self) -> bool:
        """Return True in a callback, or in what is pickled: the calls do not end before that does."""
        with self.lock:
            return threading.get_ident() in self._resolving.values()

    def are_over(self) -> bool:
        return self.closed is not None and (self.thread is None or not self.thread.is_alive())

    def _serve(self, shape: Shape) -> None:
        """Send waiting calls to the workers that have the least."""
        free = [lease for lease in shape.leases if lease.takes_calls()]
        while free and (leased := shape.next()):
            lease = min(free, key=lambda lease: lease.ahead if lease.sent else -1.0)
            if not lease.has_room(leased.kind.seconds(leased.count())):
                shape.requeue([leased])
                break
            leased.future.task = lease.task  # a call that runs has one
            if not leased.began and not leased.future.set_running_or_notify_cancel():
                continue
            leased.began = True
            self._number += 1
            if not lease.send(self._number, leased):
                shape.requeue([leased])
                free.remove(lease)
        if self._packer is None and shape.missing_chunk():
            self._then.append(lambda: self._pack(shape))

    def _pack(self, shape: Shape) -> None:
        mapped, here = None, threading.get_ident()
        try:
            with self.lock:
                if self._packer is not None:
                    return
                self._packer = here
            while True:
                with self.lock:
                    mapped = shape.missing_chunk()
                    if mapped is None:
                        self._packer = None
                        return
                    items = mapped.take()
                chunk = mapped.pack(items)
                with self._changing():
                    mapped.place(chunk)
                    self._serve(shape)
                mapped.finish()
        except BaseException as error:  # an interrupt, or raised by what is pickled
            with self.lock:
                if self._packer == here:
                    self._packer = None
                if mapped is not None:
                    mapped.place(None)
            if threading.current_thread() is not self.thread or mapped is None:
                raise
            fail(mapped.whole, error)
            mapped.cancel()

    def _hear(self, shape: Shape, lease: Lease, line: socket.socket) -> None:
        for _ in range(MOST_AHEAD):
            try:
                message = wire.receive(line)
            except BlockingIOError:
                break
            except (OSError, ValueError):
                message = None
            if message is None:
                self._selector.unregister(line)
                self._worker_ended(shape, lease)
                return
            self._receive(shape, lease, message)
        self._serve(shape)

    def _receive(self, shape: Shape, lease: Lease, message: wire.Message) -> None:
        if message.kind == wire.RAISED and not message.number:  # it cannot take calls
            lease.connected = False
            lease.error = raised_in_worker(lease.name(), *message.value())
        elif message.kind == wire.PARTLY:
            if message.number in lease.sent:
                self._then.append(lease.sent[message.number].partly(message))  # at once: another thread may hear the end
        elif message.kind == wire.WITHDRAW:
            if message.number in lease.sent:
                self._cancel_soon([lease], only_waiting=False)
        elif message.kind == wire.UNREAD:
            leased = lease.unread(message.number)
            if leased is not None and leased.is_stopped:
                self._then.append(partial(fail, leased.future, CancelledError("the call was cancelled while it ran")))
            else:
                shape.requeue([leased] if leased is not None else [])
        elif (leased := lease.answered(message.number)) is not None:
            leased.kind.learn(message.seconds, leased.count())
            if message.kind == wire.RAISED and leased.retries:
                leased.retries -= 1
                shape.requeue([leased])
            else:
                self._then.append(partial(_resolve, leased.future, message))

    def _worker_ended(self, shape: Shape, lease: Lease) -> None:
        if lease.worker is not None:
            self._give_back(shape, lease)
            lease.disconnect()
            self._settle(shape, lease)

    def ended(self, lease: Lease, error: BaseException | None) -> None:
        """Handle the end of a lease's task, and why it ended; None if it ended well."""
        with self._changing():
            shape = self._by_number[lease.number][0]
            lease.over, lease.error = True, lease.error or error
            if lease.relayed is not None:
                self._worker_ended(shape, lease)
            self._settle(shape, lease)
        self._wake()

    def is_due(self, lease: Lease) -> None:
        """Handle that a lease is to end between two calls: others are due, also before the requests that wait in its queue."""
        with self.lock:
            queue = self._by_number[lease.number][0].options.queue
            waiting = [each for shape in self._shapes.values() if shape.options.queue == queue for each in shape.withdraw()]
        if waiting:
            self._cancel(waiting, True)
        lease.due = True
        self._wake()

    def ended_early(self, lease: Lease, error: BaseException, waits: bool) -> None:
        """Handle that a lease's task starts again, or `waits` to, and why its last worker ended."""
        with self._changing():
            shape = self._by_number[lease.number][0]
            lease.due, lease.early = False, error
            if waits:
                if lease.relayed is not None:
                    self._worker_ended(shape, lease)
                lease.connected = False  # it is a request again, which is cancelled if no call needs it
            self._fail_lost(shape, lease)

    def _fail_lost(self, shape: Shape, lease: Lease) -> None:
        """Fail what the last worker of a lease had started, or start it again, once it is known why that ended."""
        if lease.early is not None:
            lost, lease.lost = lease.lost, []
            shape.requeue([each for each in lost if each.retries])
            self._then += [partial(fail, each.future, lease.early) for each in lost if not each.retries]

    def _settle(self, shape: Shape, lease: Lease) -> None:
        """Fail the calls that a lease leaves, or start them again, once its worker and its task have ended."""
        if lease.worker is not None or not lease.over or lease not in shape.leases:
            return
        shape.leases.remove(lease)
        self._by_number.pop(lease.number, None)
        if lease.preempted:
            lease.early = failed(lease.name(), "was preempted")
            self._fail_lost(shape, lease)
            return
        error, lost = lease.error, lease.lost
        if lease.stopped:
            error = failed(lease.name(), lease.stopped)
        error = error or CallFailed("its worker closed its connection: see `fairlead logs`")
        again = [each for each in lost if each.retries and isinstance(error, CallFailed)]
        for each in again:
            each.retries -= 1
        shape.requeue(again)
        futures = [each.future for each in lost if each not in again]
        if not lease.connected and not lease.given_up and lease.error is not None:
            every = isinstance(error, ServiceError | SchedulerGone | CancelledError)
            futures += self._drain(shape, None if every else 1)
        self._then += [partial(fail, each, error) for each in futures]

    def _drain(self, shape: Shape, most: int | None = None) -> list[CallFuture[Any]]:
        found: list[CallFuture[Any]] = []
        while most is None or len(found) < most:
            leased = shape.next()
            if leased is not None:
                found.append(leased.future)
                continue
            mapped = next((each for each in shape.maps if most is None or each.count()), None)
            if mapped is None:
                break
            shape.maps.remove(mapped)
            found.append(mapped.whole)
        return found


def _resolve(future: CallFuture[Any], message: wire.Message) -> None:
    try:
        value, future.wrote = message.copied()
    except BaseException as why:
        fail(future, why)
        return
    if message.kind == wire.RETURNED:
        future.set_result(value)
    else:
        fail(future, raised_in_worker(future.log, *value))
