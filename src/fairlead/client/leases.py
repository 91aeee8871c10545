"""Leased workers: calls go to them directly, over Unix sockets of this machine. See docs/calls.md.

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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from fairlead.calls import lease as worker_side
from fairlead.calls import wire
from fairlead.client.calls_under_way import CallFuture
from fairlead.client.options import Options
from fairlead.client.results import CallFailed, SchedulerGone, fail, raised_in_worker
from fairlead.client.service_error import ServiceError

SLICE_SECONDS = 0.02
"""Work that is sent ahead to a worker, and that justifies one more lease."""
IDLE_SECONDS = 0.2
"""How long a lease is kept without calls."""
SHORTEST_SECONDS = 0.5
"""How long a lease lasts at least, while it has calls, although others wait."""
TEND_SECONDS = 0.005
"""Between two decisions about how many leases are needed."""
MOST_ASKED = 50
"""Leases of one shape that wait to be granted, at most."""
MOST_AHEAD = 64
"""Calls sent to one worker, at most."""


class Leased:
    """A call for a leased worker."""

    def __init__(self, future: CallFuture[Any], packed: wire.Packed) -> None:
        self.future, self.packed = future, packed
        self.began: bool = False  # its future is running


class Lease:
    """A lease, from the request on; `task` is the future of its task.

    line : from the worker; None while not connected
    calls, copy : where calls are sent, and a copy of the worker's end
    sent : the calls that are not answered, by number
    lost : started calls of a worker that is gone
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.task: CallFuture[Any]
        self.line: socket.socket | None = None
        self.calls: socket.socket | None = None
        self.copy: socket.socket | None = None
        self.sent: dict[int, Leased] = {}
        self.lost: list[Leased] = []
        self.given_up = self.connected = False
        self.since = self.heard_at = 0.0

    def takes_calls(self) -> bool:
        return self.calls is not None

    def finish(self) -> None:
        """Send no more calls; the worker answers those that it has, and ends the lease."""
        if self.calls is not None:
            self.calls.close()
            self.calls = None

    def withdraw(self) -> Iterator[Leased]:
        """Take back the calls that the worker has not read."""
        while self.copy is not None:
            try:
                message = socket.recv_fds(self.copy, wire.HEAD_BYTES, 1)
            except OSError:
                return
            for fd in message[1]:
                os.close(fd)
            if not message[0]:
                return
            yield self.sent.pop(wire.number(message[0]))


class Shape:
    """The calls with the same options, and their leases; `mean` is how many seconds a call takes."""

    def __init__(self, options: Options, name: str) -> None:
        self.options, self.name = options, name
        self.waiting: deque[Leased] = deque()
        self.leases: list[Lease] = []
        self.mean: float | None = None

    def backlog(self) -> int:
        return len(self.waiting) + sum(len(lease.sent) for lease in self.leases)

    def ahead(self) -> int:
        """Return how many calls a worker may have."""
        return 1 if self.mean is None else max(1, min(MOST_AHEAD, int(SLICE_SECONDS / max(self.mean, 1e-6))))

    def wanted(self, now: float) -> int:
        """Return how many leases the unfinished calls justify."""
        backlog = self.backlog()
        running = [now - lease.heard_at for lease in self.leases if lease.sent]
        long = sum(seconds > SLICE_SECONDS for seconds in running)
        if self.mean is None:  # nothing has ended
            return backlog if long else min(backlog, os.cpu_count() or 1)
        return min(backlog, long + math.ceil((backlog - long) * self.mean / SLICE_SECONDS))

    def asked(self) -> int:
        return sum(not lease.connected and not lease.given_up for lease in self.leases)


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
        fall_back: Callable[[Options, str, Leased], None],
        guard: Callable[[Callable[[], None]], None],
    ) -> None:
        self._ask, self._others_wait, self._fall_back, self._guard = ask, others_wait, fall_back, guard
        self._lock = threading.RLock()
        self._shapes: dict[str, Shape] = {}
        self._by_number: dict[int, tuple[Shape, Lease]] = {}
        self._number = 0
        self.thread: threading.Thread | None = None
        self._waiting_tasks = 0
        self._broken = False  # all calls were given up
        self._sleeps = False  # the thread may sleep for longer than a slice
        self._tend_at = 0.0
        self._resolving = 0  # threads that do what follows from a change
        self._then: list[Callable[[], None]] = []
        self._over: Callable[[], None] | None = None
        self.closed: Exception | None = None
        self.unreachable = False

    def add(self, options: Options, name: str, leased: Leased) -> None:
        """Queue a call. Raises the reason if no more are accepted."""
        with self._changing():
            if self.closed is not None:
                raise self.closed
            self._begin()
            shape = self._shapes.setdefault(options.key(), Shape(options, name))
            shape.waiting.append(leased)
            self._serve(shape)
            wakes = self._sleeps and bool(shape.waiting)
        if wakes:
            self._wake()

    def withdraw(self, future: CallFuture[Any]) -> bool:
        """Remove a call that was not sent; return True if it was found."""
        with self._lock:
            for shape in self._shapes.values():
                for leased in shape.waiting:
                    if leased.future is future and not leased.began:
                        shape.waiting.remove(leased)
                        return True
        return False

    def stop(self, future: CallFuture[Any]) -> bool | None:
        """Stop a call that was sent: take it back, or end the lease whose worker runs it. None for an unknown one."""
        task = None
        with self._changing():
            for shape in self._shapes.values():
                for lease in shape.leases:
                    if any(leased.future is future for leased in lease.sent.values()):
                        shape.waiting.extendleft(reversed(list(lease.withdraw())))
                        task = lease.task
                for leased in shape.waiting:
                    if leased.future is future:
                        shape.waiting.remove(leased)
                        self._then.append(lambda: fail(future, CancelledError("the call was cancelled while it ran")))
                        return True
        return task.stop() if task is not None else None

    def pending(self) -> set[CallFuture[Any]]:
        """Return the futures of all unfinished calls."""
        with self._lock:
            return {leased.future for shape in self._shapes.values() for leased in _all(shape)}

    def close(self, why: Exception, over: Callable[[], None]) -> None:
        """Accept no more calls; call `over` when all have ended."""
        with self._lock:
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
        with self._lock:
            pending, self.closed = self.pending(), why
            self._over, self._broken = self._over or (lambda: None), True
            for shape in self._shapes.values():
                shape.waiting.clear()
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
        with self._lock:
            if self._woken >= 0:
                os.eventfd_write(self._woken, 1)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock; then do what must be done without it."""
        then: list[Callable[[], None]] = []
        try:
            with self._lock:
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
                with self._lock:
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
            with self._lock:
                ends = over is not None and not self._resolving and not self.pending()
            if ends and over is not None:
                over()
                break
        lines = [key.fileobj for key in self._selector.get_map().values()]
        for line in lines:
            if isinstance(line, socket.socket):
                line.close()  # also of workers that still run calls which were given up
        self._selector.close()
        with self._lock:
            os.close(self._woken)
            self._woken = -1

    def _timeout(self) -> float | None:
        with self._lock:
            shapes = self._shapes.values()
            self._sleeps = not any(shape.waiting for shape in shapes)
            if not self._sleeps:
                return max(0.0, self._tend_at - time.monotonic())
            return IDLE_SECONDS / 2 if any(shape.leases for shape in shapes) or self._over else None

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
            if (not lease.sent and (ran > IDLE_SECONDS or self._over)) or (due and now - lease.since > SHORTEST_SECONDS):
                self._give_back(shape, lease)
            elif len(lease.sent) > 1 and ran > SLICE_SECONDS:
                shape.waiting.extendleft(reversed(list(lease.withdraw())))
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
        shape.waiting.extendleft(reversed(list(lease.withdraw())))

    def _give_up(self, shape: Shape) -> None:
        """Cancel the requests for leases: no call needs them any more."""
        late = [lease for lease in shape.leases if not lease.connected and not lease.given_up]
        for lease in late:
            lease.given_up = True
        futures = [lease.task for lease in late]
        threading.Thread(target=lambda: [each.cancel() for each in futures], name="fairlead-stop", daemon=True).start()

    def _request(self, shape: Shape) -> None:
        with self._lock:
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
        if worker_side.peer_uid(line) != os.geteuid():
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
        calls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        calls.setblocking(False)
        theirs.setblocking(False)
        with suppress(OSError):  # it has ended, which is heard
            socket.send_fds(line, [b"\0"], [theirs.fileno()])
        line.setblocking(False)
        lease.line, lease.calls, lease.copy = line, calls, theirs
        lease.connected, lease.since, lease.heard_at = True, time.monotonic(), time.monotonic()
        self._selector.register(line, selectors.EVENT_READ, lambda: self._hear(shape, lease))
        self._serve(shape)

    def _serve(self, shape: Shape) -> None:
        """Send waiting calls to the workers with the fewest."""
        ahead = shape.ahead()
        free = [lease for lease in shape.leases if lease.takes_calls() and len(lease.sent) < ahead]
        while shape.waiting and free:
            lease = min(free, key=lambda lease: len(lease.sent))
            leased = shape.waiting.popleft()
            if not leased.began and not leased.future.set_running_or_notify_cancel():
                continue
            leased.began = True
            if not self._send(lease, leased):
                shape.waiting.appendleft(leased)
                free.remove(lease)
            elif len(lease.sent) >= ahead:
                free.remove(lease)

    def _send(self, lease: Lease, leased: Leased) -> bool:
        self._number += 1
        assert lease.calls is not None
        try:
            wire.send(lease.calls, self._number, wire.CALL, leased.packed)
        except OSError:  # its socket is full, or it has ended, which is heard
            return False
        leased.future.task = lease.task.task
        if not lease.sent:
            lease.heard_at = time.monotonic()
        lease.sent[self._number] = leased
        return True

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
            leased = lease.sent.pop(message.number, None)
            lease.heard_at = time.monotonic()
            if leased is not None:
                shape.mean = message.seconds if shape.mean is None else 0.8 * shape.mean + 0.2 * message.seconds
                self._then.append(partial(_resolve, leased.future, message))
        self._serve(shape)

    def _worker_ended(self, shape: Shape, lease: Lease) -> None:
        assert lease.line is not None
        self._selector.unregister(lease.line)
        self._give_back(shape, lease)
        lease.lost += lease.sent.values()
        lease.sent = {}
        lease.line.close()
        if lease.copy is not None:
            lease.copy.close()
        lease.line = lease.copy = None
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
        lost, lease.lost = lease.lost, []
        if isinstance(error, worker_side.Unreachable):
            self.unreachable = True
            for each in self._drain(shape):
                self._then.append(lambda each=each: self._fall_back(shape.options, shape.name, each))  # type: ignore[misc]
        elif not lease.connected and not lease.given_up and error is not None:
            lost += (
                self._drain(shape) if isinstance(error, ServiceError | SchedulerGone | CancelledError) else self._drain(shape, 1)
            )
        for each in lost:
            self._then.append(lambda each=each: fail_call(each.future, error))  # type: ignore[misc]

    def _drain(self, shape: Shape, most: int | None = None) -> list[Leased]:
        count = len(shape.waiting) if most is None else min(most, len(shape.waiting))
        return [shape.waiting.popleft() for _ in range(count)]


def _all(shape: Shape) -> Iterable[Leased]:
    yield from shape.waiting
    for lease in shape.leases:
        yield from lease.sent.values()
        yield from lease.lost


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
