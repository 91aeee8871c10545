"""Makes a program's calls on leased workers, whose tasks are requested and heard of in a thread each.

Both threads start with the first call, and end when no more can come. A program that is interrupted cancels all its calls and
waits for none.
"""

import atexit
import math
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from fairlead.calls import wire
from fairlead.calls.payloads import LARGEST_PAYLOAD
from fairlead.client.call_future import CallFuture, TaskId
from fairlead.client.connection import Connection
from fairlead.client.jobs import OVER
from fairlead.client.lease import MOST_KEPT_BYTES, Lease
from fairlead.client.leases import Leases
from fairlead.client.mapped import Mapped
from fairlead.client.options import Options
from fairlead.client.relays import PAUSE_SECONDS, Relays
from fairlead.client.repeated import Repeated
from fairlead.client.results import SchedulerGone, error_of, fail
from fairlead.client.service_error import ServiceError
from fairlead.client.session import Session
from fairlead.client.waiting import sentence_of_waiting
from fairlead.interrupts import handle_interrupts, wait_until

if TYPE_CHECKING:
    from fairlead.client.code_folder import PackedCode
    from fairlead.client.progress import ProgressBar

T = TypeVar("T")
CLOSE_SECONDS = 0.8
"""How long an interrupted program waits to close its session; the scheduler also closes silent sessions."""
PATIENCE_SECONDS = 3.0
"""After which a program says why its first call waits; it looks whenever it has heard the scheduler."""
Asked = tuple[Lease, Options, str]


class Caller:
    """Makes the calls of one program over a connection, which it closes at the end; `code` is sent with them.

    `preload` are modules that workers import before they take calls.
    """

    def __init__(
        self, connection: Connection, code: "PackedCode | None" = None, progress: bool = False, preload: Sequence[str] = ()
    ) -> None:
        self._connection, self._bar = connection, _bar() if progress else None
        self.session = Session(connection, code, preload)
        self.leases = Leases(self._ask, self._cancel, self._guard)
        self._relays = Relays(connection, self.session, self.leases, self._guard)
        self._changed = threading.Condition()  # guards what follows
        self._to_ask: list[Asked] = []
        self._repeated = Repeated()
        self._put, self._dropped = 0, deque[int]()  # bytes of values that are kept, and of those dropped since
        self._unanswered = False  # a request is under way
        self._by_task: dict[TaskId, Lease] = {}
        self._ended = False  # no call will change any more
        self._end = SimpleQueue[None]()  # an interrupt can leave an Event locked, but not this
        self._threads: list[threading.Thread] = []
        atexit.register(_shut_down, weakref.ref(self))
        handle_interrupts(self.abandon)

    def call(self, options: Options, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFuture[T]:
        packed = _checked(self._repeated.pack((fn, args, kwargs)))
        future: CallFuture[T] = CallFuture(self.cancel, self.stop)
        if self._bar is not None:
            self._bar.add(1)
            future.add_done_callback(self._bar.future_ended)
        self.leases.add(options, _name(fn), future, packed)
        return future

    def start(self, options: Options) -> None:
        """Have a worker start before there are calls; if it cannot, they fail with the reason."""
        self.leases.add(options, "start", CallFuture(self.cancel, self.stop), wire.pack((str, (), {})))

    def put(self, value: Any) -> wire.Kept:
        """Keep a value at workers; see :meth:`fairlead.Client.put`."""
        kept = wire.Kept(_checked(wire.pack(value)))
        size = wire.size(kept.packed)
        with self._changed:
            while self._dropped:
                self._put -= self._dropped.popleft()
            if self._put + size > MOST_KEPT_BYTES:
                there = self._put >> 20
                raise ValueError(f"{there} MiB of values are kept, and at most {MOST_KEPT_BYTES >> 20} MiB can be: drop a handle")
            self._put += size
        weakref.finalize(kept, self._dropped.append, size).atexit = False
        return kept

    def map(
        self,
        options: Options,
        fn: Callable[..., Any],
        elements: Iterable[tuple[Any, ...]],
        on_arrival: Callable[[], object] = lambda: None,
    ) -> Mapped:
        mapped = Mapped(fn, elements, lambda: CallFuture(self.cancel, self.stop), self.leases.lock, on_arrival)
        mapped.pack_arguments = self._repeated.pack
        if self._bar is not None:
            self._bar.add(mapped.total)
            mapped.on_made = self._bar.ended
        if mapped.items:
            try:
                self.leases.add_map(options, _name(fn), mapped)
            except BaseException:  # nobody will hear of it
                mapped.cancel(stop=True)
                raise
        return mapped

    def cancel(self, future: CallFuture[Any]) -> bool:
        """Cancel a call that has not started. Return True if it is cancelled."""
        if not self.leases.are_forked() and self.leases.withdraw(future):
            _cancelled(future)
        return future.cancelled()

    def stop(self, future: CallFuture[Any]) -> bool:
        """Cancel a call, or stop its process if it runs. Return True if there was something to stop."""
        return self.cancel(future) or (not (self.leases.are_forked() or future.done()) and bool(self.leases.stop(future)))

    def stop_all(self, futures: Iterable[CallFuture[Any]]) -> None:
        left = [future for future in futures if not future.done()]
        if left:
            threading.Thread(target=lambda: [future.stop() for future in left], name="fairlead-stop", daemon=True).start()

    def abandon(self) -> None:
        """Cancel all calls, including running ones, without waiting: the program is interrupted."""
        if self.leases.are_forked():
            return
        for future in self.leases.break_off(SchedulerGone("the program was interrupted")):
            if future.running():
                fail(future, CancelledError("the program was interrupted while it ran"))
            else:
                _cancelled(future)
        self._set_ended()
        closing = threading.Thread(target=self.session.close, name="fairlead-close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        """Accept no more calls; see :meth:`concurrent.futures.Executor.shutdown`."""
        if self.leases.are_forked():
            return
        self.leases.close(RuntimeError("cannot schedule new futures after shutdown"), self._close)
        if cancel_futures:
            for future in self.leases.pending():
                future.cancel()
        own = {*self._threads, *self._relays.threads, self.leases.thread}
        is_callback = threading.current_thread() in own or self.leases.is_resolving_here()
        if wait and not is_callback:  # which cannot wait for itself
            try:
                wait_until(self._has_ended)
            except KeyboardInterrupt:
                self.abandon()
                raise

    def _close(self) -> None:
        """All leases have ended, and none will be requested."""
        self._set_ended()
        self.session.close()
        self._connection.close()

    def _set_ended(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._bar is not None:
            self._bar.stop()
        self._end.put(None)

    def _has_ended(self, seconds: float) -> bool:
        if not self._ended:
            with suppress(Empty):
                self._end.get(timeout=seconds)
        return self._ended and self.leases.have_ended(seconds)

    def _guard(self, work: Callable[[], None]) -> None:
        """Run a thread's work; if it fails, fail all futures rather than let them wait for ever."""
        try:
            work()
        except ServiceError as error:
            self._break_off(str(error))
        except BaseException as error:
            self._break_off(f"internal error of fairlead: {error!r}")
            raise

    def _break_off(self, why: str) -> None:
        for future in self.leases.break_off(SchedulerGone(why)):
            fail(future, SchedulerGone(why))
        self._set_ended()

    # -- leases -----------------------------------------------------------------------------------------------------

    def _ask(self, lease: Lease, options: Options, name: str) -> None:
        with self._changed:
            self._to_ask.append((lease, options, name))
            self._changed.notify_all()
            if not self._threads:
                self._threads = [
                    threading.Thread(target=self._guard, args=(target,), name=f"fairlead-{role}", daemon=True)
                    for role, target in (("send", self._send), ("hear", self._hear))
                ]
                for thread in self._threads:
                    thread.start()

    def _cancel(self, leases: list[Lease], only_waiting: bool) -> bool:
        """Cancel the tasks of leases once they are accepted; not those that run if `only_waiting`. Return whether one was."""
        with self._changed:
            while any(each.task is None and not each.over for each in leases) and not self._ended:
                self._changed.wait()
        with suppress(ServiceError):  # unknown: its events will tell
            return self.session.cancel([each.task[0] for each in leases if each.task is not None], only_waiting)
        return False

    def _send(self) -> None:
        while batch := self._next_batch():
            if self.session.id is None:
                self.session.open(self.leases.address, self.leases.secret)
            try:
                self._request(batch)
            except ServiceError:
                if len(batch) == 1:
                    raise
                for each in batch:  # find the one that is refused
                    self._request([each])
            with self._changed:
                self._unanswered = False
                self._changed.notify_all()

    def _next_batch(self) -> list[Asked]:
        """Wait for leases to request; return none if no more can come."""
        with self._changed:
            while not self._to_ask and not self._ended:
                self._changed.wait()
            batch, self._to_ask = self._to_ask, []
            self._unanswered = bool(batch)
            return batch if not self._ended else []

    def _request(self, batch: list[Asked]) -> None:
        try:
            jobs = self.session.request(batch)
        except ServiceError as error:
            if error.status is None or len(batch) > 1:
                raise
            self.leases.ended(batch[0][0], error)
            return
        with self._changed:
            for job, (lease, _, _) in zip(jobs, batch, strict=True):
                lease.task = job, 0
                self._by_task[job, 0] = lease
            self._changed.notify_all()

    def _hear(self) -> None:
        with self._changed:
            while self.session.id is None and not self._ended:
                self._changed.wait()
        say_at = time.monotonic() + PATIENCE_SECONDS
        while not self._ended:
            try:
                events, relays = self.session.next_events(*self.leases.counts())
            except ServiceError:
                if self._ended:
                    return
                raise
            if relays and not self._relays.begin() and not events:
                time.sleep(PAUSE_SECONDS)
            for event in events:
                self._happened(event)
            if not self.leases.had_worker and time.monotonic() > say_at:
                with suppress(ServiceError):  # its job is gone, or the scheduler: the next events will tell
                    say_at = math.inf if self._say_why() else say_at

    def _say_why(self) -> bool:
        """Say on standard error why the first call waits, unless this is a task itself. Return False if its job does not wait."""
        with self._changed:
            job = min((job for job, _ in self._by_task), default=None)
        if job is None or self._connection.get(f"/v1/jobs/{job}")["status"] not in ("waiting", "held"):
            return False
        if "FAIRLEAD_JOB" not in os.environ and sys.stderr is not None:
            with suppress(OSError, ValueError):  # it is closed
                sys.stderr.write(f"fairlead: {sentence_of_waiting(self._connection, job)}\n")
        return True

    def _happened(self, event: dict[str, Any]) -> None:
        task = event["job"], event["index"]
        with self._changed:
            while self._unanswered and task not in self._by_task and not self._ended:
                self._changed.wait()
            lease = self._by_task.pop(task, None) if event["status"] in OVER else self._by_task.get(task)
        error = error_of(event)
        if lease is not None and event["status"] in OVER:
            self.leases.ended(lease, error)
        elif lease is not None and event["reason"] is not None and error is not None:
            self.leases.ended_early(lease, error, waits=event["status"] == "waiting")
        elif lease is not None and event["status"] == "due":
            self.leases.is_due(lease)
        elif lease is not None and event["status"] == "preempted":
            lease.preempted = True


def _checked(packed: wire.Packed) -> wire.Packed:
    """Raise ValueError if what is to be sent is too large."""
    if wire.size(packed) > LARGEST_PAYLOAD // 2:
        raise ValueError(f"a call of {wire.size(packed) >> 20} MiB: at most {LARGEST_PAYLOAD >> 21} MiB: pass the name of a file")
    return packed


def _cancelled(future: CallFuture[Any]) -> None:
    """Mark a call that will never run as cancelled."""
    if future.cancel_here() and future._state == "CANCELLED":
        future.set_running_or_notify_cancel()


def _bar() -> "ProgressBar":
    from fairlead.client.progress import ProgressBar

    return ProgressBar()


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__qualname__", None) or type(fn).__qualname__)[:256]


def _shut_down(caller: "weakref.ref[Caller]") -> None:
    found = caller()
    if found is None:
        return
    if issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt):  # an interrupt ends the program
        found.abandon()
    else:
        found.shutdown(wait=True, cancel_futures=False)
