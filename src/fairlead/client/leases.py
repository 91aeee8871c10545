"""Leased workers: calls go to them directly, over Unix sockets of this machine. See docs/calls.md.

One thread hears workers and decides how many leases are needed; threads that submit calls also send them. No future is resolved
while the lock is held, because callbacks may submit more calls.
"""

import os
import selectors
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from fairlead.calls import lease as worker_side
from fairlead.calls import wire
from fairlead.calls.lease import SLICE_SECONDS
from fairlead.client.calls_under_way import CallFuture
from fairlead.client.growth import Shape
from fairlead.client.lease import MOST_AHEAD, Lease, Leased
from fairlead.client.mapped import Mapped
from fairlead.client.options import Options
from fairlead.client.results import CallFailed, SchedulerGone, fail, raised_in_worker
from fairlead.client.service_error import ServiceError

IDLE_SECONDS = 0.2
"""How long a lease is kept without calls."""
SHORTEST_SECONDS = 0.5
"""How long a lease lasts at least, while it has calls, although others wait."""
TEND_SECONDS = 0.005
"""Between two decisions about how many leases are needed."""
MOST_ASKED = 50
"""Leases of one shape that wait to be granted, at most."""


class Leases:
    """The leased workers of one program.

    Parameters
    ----------
    ask : callable
        Submits a task by options, name, function and arguments.
    others_wait : callable
        Returns how many tasks wait for resources in total.
    fall_back : callable
        Submits a call as a task of its own, if workers cannot reach this program.
    guard : callable
        Does a thread's work, and fails all calls if that fails.
    """

    def __init__(
        self,
        ask: Callable[[Options, str, Callable[..., Any], tuple[Any, ...]], CallFuture[Any]],
        others_wait: Callable[[], int],
        fall_back: Callable[[Options, str, CallFuture[Any], wire.Packed], None],
        guard: Callable[[Callable[[], None]], None],
    ) -> None:
        self._ask, self._others_wait, self._fall_back, self._guard = ask, others_wait, fall_back, guard
        self.lock = threading.RLock()
        self._shapes: dict[str, Shape] = {}
        self._by_number: dict[int, tuple[Shape, Lease]] = {}
        self._number = 0
        self.thread: threading.Thread | None = None
        self._waiting_tasks = 0
        self._broken = False  # all calls were given up
        self._packing = False  # a thread pickles messages of maps
        self._sleeps = False  # the thread may sleep for longer than a slice
        self._tend_at = 0.0
        self._resolving = 0  # threads that do what follows from a change
        self._then: list[Callable[[], None]] = []
        self._over: Callable[[], None] | None = None
        self.closed: Exception | None = None
        self.unreachable = False

    def add(self, options: Options, name: str, future: CallFuture[Any], packed: wire.Packed) -> None:
        """Queue a call. Raises the reason if no more are accepted."""
        with self._adding(options, name) as shape:
            shape.single.waiting.append(Leased(shape.single, future, packed))

    def add_map(self, options: Options, name: str, mapped: Mapped) -> None:
        """Queue the calls of a map. Raises the reason if no more are accepted."""
        with self._adding(options, name) as shape:
            shape.maps.append(mapped)

    @contextmanager
    def _adding(self, options: Options, name: str) -> Iterator[Shape]:
        with self._changing():
            if self.closed is not None:
                raise self.closed
            self._begin()
            shape = self._shapes.setdefault(options.key(), Shape(options, name))
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
        task = None
        with self._changing():
            for shape in self._shapes.values():
                for lease in shape.leases:
                    if any(leased.future is future for leased in lease.sent.values()):
                        shape.requeue(lease.withdraw())
                        task = lease.task
            if self._remove(future, began=True):
                self._then.append(lambda: fail(future, CancelledError("the call was cancelled while it ran")))
                return True
        return task.stop() if task is not None else None

    def pending(self) -> set[CallFuture[Any]]:
        """Return the futures of all unfinished calls."""
        with self.lock:
            shapes = self._shapes.values()
            wholes = {mapped.whole for shape in shapes for mapped in shape.maps if not mapped.whole.done()}
            return wholes | {leased.future for shape in shapes for leased in shape.messages()}

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
        self._address = f"fairlead-{uuid.uuid4().hex}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(f"\0{self._address}")
        self._listener.listen(128)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: os.eventfd_read(self._woken))
        self.thread = threading.Thread(target=self._guard, args=(self._run,), name="fairlead-leases", daemon=True)
        self.thread.start()
        threading.Thread(target=self._look, name="fairlead-look", daemon=True).start()

    def _wake(self) -> None:
        with self.lock:
            if self._woken >= 0:
                os.eventfd_write(self._woken, 1)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock; then do what must be done without it."""
        then: list[Callable[[], None]] = []
        try:
            with self.lock:
                self._resolving += 1
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
                    self._resolving -= 1

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
                line.close()  # also of workers that still run calls which were given up
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

    def _look(self) -> None:
        """Look up how many tasks wait, while there are leases."""
        while self.thread is not None and self.thread.is_alive():
            time.sleep(SHORTEST_SECONDS)
            if any(lease.connected for _, lease in list(self._by_number.values())):
                with suppress(ServiceError):  # it may be restarting
                    self._waiting_tasks = self._others_wait()

    def _tend(self, shape: Shape, now: float) -> None:
        """Ask for leases, and end those that are not needed, or are due."""
        due = self._waiting_tasks > shape.asked()
        for lease in shape.leases:
            if not lease.takes_calls():
                continue
            ran = now - lease.heard_at
            unneeded = not lease.sent and (ran > IDLE_SECONDS or self._over)
            if unneeded or (due and now - lease.since > SHORTEST_SECONDS):
                self._give_back(shape, lease)
            elif len(lease.sent) > 1 and ran > SLICE_SECONDS:
                shape.requeue(lease.withdraw())
            if ran > 2 * SLICE_SECONDS and lease.may_be_hurried():
                lease.hurry()
        shape.maps = [each for each in shape.maps if not each.whole.done()]
        self._serve(shape)
        alive = sum(lease.takes_calls() for lease in shape.leases)
        asked, wanted = shape.asked(), shape.wanted(now)
        for _ in range(min(wanted - alive, MOST_ASKED) - asked):
            self._then.append(lambda shape=shape: self._request(shape))  # type: ignore[misc]
        if asked and not wanted:
            self._give_up(shape)

    def _give_back(self, shape: Shape, lease: Lease) -> None:
        """End a lease between calls."""
        lease.finish()
        shape.requeue(lease.withdraw())

    def _give_up(self, shape: Shape) -> None:
        """Cancel the requests for leases: no call needs them any more."""
        late = [lease for lease in shape.leases if not lease.connected and not lease.given_up]
        for lease in late:
            lease.given_up = True
        futures = [lease.task for lease in late]
        threading.Thread(target=lambda: [each.cancel() for each in futures], name="fairlead-stop", daemon=True).start()

    def _request(self, shape: Shape) -> None:
        with self.lock:
            self._number += 1
            lease = Lease(self._number)
            try:
                lease.task = self._ask(shape.options, shape.name, worker_side.serve, (self._address, lease.number))
            except RuntimeError:  # no more are accepted: all calls are failed
                return
            shape.leases.append(lease)
            self._by_number[lease.number] = shape, lease
            lease.task.on_restart = lambda: self._restarted(lease)
        lease.task.add_done_callback(lambda task: self._ended(shape, lease))

    # -- workers ----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        line, _ = self._listener.accept()
        if worker_side.peer(line)[1] != os.geteuid():
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
        if found is None or found[1].line is not None:
            line.close()
            return
        shape, lease = found
        try:
            process = os.pidfd_open(worker_side.peer(line)[0])
        except OSError:  # it has ended, or the kernel has none
            process = -1
        lease.connect(line, process)
        self._selector.register(line, selectors.EVENT_READ, lambda: self._hear(shape, lease))
        self._serve(shape)

    def _serve(self, shape: Shape) -> None:
        """Send waiting calls to the workers that have the least."""
        free = [lease for lease in shape.leases if lease.takes_calls()]
        while free and (leased := shape.next()):
            lease = min(free, key=lambda lease: lease.ahead if lease.sent else -1.0)
            if not lease.has_room(leased.kind.seconds(leased.count())):
                shape.requeue([leased])
                break
            if not leased.began and not leased.future.set_running_or_notify_cancel():
                continue
            leased.began = True
            self._number += 1
            if not lease.send(self._number, leased):
                shape.requeue([leased])
                free.remove(lease)
        if not self._packing and shape.missing_chunk():
            self._packing = True
            self._then.append(lambda: self._pack(shape))

    def _pack(self, shape: Shape) -> None:
        """Pickle the next messages of maps."""
        while True:
            with self.lock:
                mapped = shape.missing_chunk()
                if mapped is None:
                    self._packing = False
                    return
                items = mapped.take()
            try:
                chunk = mapped.pack(items)
            except BaseException:  # an interrupt
                with self.lock:
                    mapped.put_back(items)
                    self._packing = False
                raise
            with self._changing():
                if chunk is not None:
                    mapped.waiting.append(chunk)
                self._serve(shape)

    def _hear(self, shape: Shape, lease: Lease) -> None:
        """Receive an answer, or the end of a worker."""
        assert lease.line is not None
        for _ in range(MOST_AHEAD):
            try:
                message = wire.receive(lease.line)
            except BlockingIOError:
                break
            except (OSError, ValueError):
                message = None
            if message is None:
                self._worker_ended(shape, lease)
                return
            if message.kind == wire.PARTLY:
                if message.number in lease.sent:
                    self._then.append(partial(lease.sent[message.number].partly, message))
                continue
            leased = lease.answered(message.number)
            if leased is not None:
                leased.kind.learn(message.seconds)
                self._then.append(partial(_resolve, leased.future, message))
        self._serve(shape)

    def _worker_ended(self, shape: Shape, lease: Lease) -> None:
        assert lease.line is not None
        self._selector.unregister(lease.line)
        self._give_back(shape, lease)
        lease.disconnect()
        self._settle(shape, lease)

    def _ended(self, shape: Shape, lease: Lease) -> None:
        """Handle the end of a lease's task."""
        with self._changing():
            self._settle(shape, lease)
        self._wake()

    def _restarted(self, lease: Lease) -> None:
        """Handle that a lease's task was preempted, and starts again."""
        with self._changing():
            lost, lease.lost = lease.lost, []
            task = "{}.{}".format(*lease.task.task or (0, 0))
            why = CallFailed(f"call {task}: its process was preempted: see `fairlead logs {task}`")
            self._then += [lambda each=each: fail(each.future, why) for each in lost]  # type: ignore[misc]

    def _settle(self, shape: Shape, lease: Lease) -> None:
        """Fail the calls that a lease leaves, once its worker and its task have ended."""
        if lease.line is not None or not lease.task.done() or lease not in shape.leases:
            return
        shape.leases.remove(lease)
        self._by_number.pop(lease.number, None)
        error = _error_of(lease)
        lost, lease.lost = [each.future for each in lease.lost], []
        if isinstance(error, worker_side.Unreachable):
            self.unreachable = True
            self._then.append(lambda: self._make_tasks(shape))
        elif not lease.connected and not lease.given_up and error is not None:
            every = isinstance(error, ServiceError | SchedulerGone | CancelledError)
            lost += self._drain(shape, None if every else 1)
        for each in lost:
            self._then.append(lambda each=each: fail_call(each, error))  # type: ignore[misc]

    def _drain(self, shape: Shape, most: int | None = None) -> list[CallFuture[Any]]:
        """Remove waiting calls; return their futures."""
        found: list[CallFuture[Any]] = []
        while most is None or len(found) < most:
            leased = shape.next()
            if leased is not None:
                found.append(leased.future)
            elif shape.maps:
                found.append(shape.maps.pop().whole)
            else:
                break
        return found

    def _make_tasks(self, shape: Shape) -> None:
        """Submit waiting calls as tasks of their own."""
        while True:
            with self.lock:
                leased = shape.next()
                mapped = next((each for each in shape.maps if each.items), None)
                items = mapped.take(1) if mapped is not None and leased is None else []
            if leased is None and mapped is None:
                return
            if leased is None and mapped is not None:
                leased = mapped.pack(items)
            if leased is not None:
                self._fall_back(shape.options, shape.name, leased.future, leased.packed)


def _error_of(lease: Lease) -> BaseException | None:
    """Return why a lease ended; None if it ended well."""
    if lease.task.cancelled():
        return CancelledError("its task was cancelled")
    return lease.task.exception(0)


def fail_call(future: CallFuture[Any], error: BaseException | None) -> None:
    """Fail a call whose worker is gone."""
    fail(future, error or CallFailed("its worker closed its connection: see `fairlead logs`"))


def _resolve(future: CallFuture[Any], message: wire.Message) -> None:
    """Set a call's result or exception."""
    try:
        value = message.value()
    except BaseException as why:
        fail(future, why)
        return
    if message.kind == wire.RETURNED:
        future.set_result(value)
    else:
        fail(future, raised_in_worker(*value))
