"""Makes a program's calls: on leased workers, or as tasks, which are sent and whose results are received in a thread each.

A call is a task if it needs what only a task has, or if workers cannot reach this program: see docs/calls.md.
Both threads start with the first call, and end when no more can come. A program that is interrupted cancels all its calls and
waits for none.
"""

import atexit
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from fairlead.calls import wire
from fairlead.calls.payloads import LARGEST_PAYLOAD
from fairlead.client.calls_under_way import CallFuture, CallsUnderWay, Waiting, alike
from fairlead.client.connection import Connection
from fairlead.client.jobs import OVER
from fairlead.client.leases import Leased, Leases
from fairlead.client.options import Options
from fairlead.client.results import SchedulerGone, fail, set_outcome
from fairlead.client.service_error import ServiceError
from fairlead.client.session import Session
from fairlead.interrupts import handle_interrupts, wait_until

if TYPE_CHECKING:
    from fairlead.client.code_folder import PackedCode

T = TypeVar("T")
CLOSE_SECONDS = 0.8
"""How long an interrupted program waits to close its session; the scheduler also closes silent sessions."""


class Caller:
    """Sends the calls of one program over a connection, which it closes at the end; `code` is sent with them."""

    def __init__(self, connection: Connection, code: "PackedCode | None" = None) -> None:
        self._connection = connection
        self.session = Session(connection, code)
        self._calls = CallsUnderWay()
        self.leases = Leases(self._ask, self._tasks_waiting, self._as_task, self._guard)
        self._closed = False
        self._ended = False  # no call will change any more
        self._end = SimpleQueue[None]()  # an interrupt can leave an Event locked, but not this
        self._threads: list[threading.Thread] = []
        atexit.register(_shut_down, weakref.ref(self))
        handle_interrupts(self.abandon)

    def call(self, options: Options, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFuture[T]:
        """Submit a call; see :meth:`fairlead.Client.submit`."""
        packed = wire.pack((fn, args, kwargs))
        if wire.size(packed) > LARGEST_PAYLOAD // 2:
            raise ValueError(
                f"a call of {wire.size(packed) >> 20} MiB: at most {LARGEST_PAYLOAD >> 21} MiB: pass the name of a file"
            )
        name = (getattr(fn, "__qualname__", None) or type(fn).__qualname__)[:256]
        future: CallFuture[T] = CallFuture(self.cancel, self.stop)
        if self._can_lease(options):
            self.leases.add(options, name, Leased(future, packed))
        else:
            self._as_task(options, name, Leased(future, packed))
        return future

    def _can_lease(self, options: Options) -> bool:
        alone = options.retries or options.time_limit is not None or options.gpu or "gpu" in options.resources
        return not alone and self._connection.is_local() and not self.leases.unreachable

    def _ask(self, options: Options, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> CallFuture[Any]:
        """Submit a task that is a lease."""
        leased: Leased = Leased(CallFuture(self.cancel, self.stop), wire.pack((function, arguments, {})))
        self._as_task(options, name, leased)
        return leased.future

    def _as_task(self, options: Options, name: str, leased: Leased) -> None:
        """Submit a call as a task of its own."""
        parts = wire.parts(leased.packed)
        call = parts[0] if len(parts) == 1 else pickle.dumps((wire.call, (parts,), {}))
        with self._calls.changed:  # so that shutdown finds the threads of accepted calls
            self._calls.add(Waiting(leased.future, call, options, name))
            if not self._threads:
                self._threads = [
                    threading.Thread(target=self._guard, args=(target,), name=f"fairlead-{role}", daemon=True)
                    for role, target in (("send", self._send), ("hear", self._hear))
                ]
                for thread in self._threads:
                    thread.start()

    def _tasks_waiting(self) -> int:
        """Return how many tasks wait at the scheduler."""
        return int(self._connection.get("/v1/status")["waiting"])

    def cancel(self, future: CallFuture[Any]) -> bool:
        """Cancel a call that has not started. Return True if it is cancelled."""
        if not self._withdraw(future) and not future.done():
            assert future.task is not None
            try:
                if future.running() or not self.session.cancel(future.task):
                    return future.cancelled()
            except ServiceError:  # unknown: its events will tell
                return future.cancelled()
        self._cancelled(future)
        return future.cancelled()

    def stop(self, future: CallFuture[Any]) -> bool:
        """Cancel a call, or stop its process if it runs. Return True if there was something to stop."""
        if self._withdraw(future):
            self._cancelled(future)
            return True
        if future.done():
            return False
        stopped = self.leases.stop(future)
        if stopped is not None:
            return stopped
        assert future.task is not None
        try:
            return self.session.cancel(future.task, only_waiting=False)
        except ServiceError:  # unknown: its events will tell
            return False

    def _withdraw(self, future: CallFuture[Any]) -> bool:
        return self.leases.withdraw(future) or self._calls.withdraw(future)

    def stop_all(self, futures: Iterable[CallFuture[Any]]) -> None:
        """Stop the calls that are not done, in the background."""
        left = [future for future in futures if not future.done()]
        if left:
            threading.Thread(target=lambda: [future.stop() for future in left], name="fairlead-stop", daemon=True).start()

    def abandon(self) -> None:
        """Cancel all calls, including running ones, without waiting: the program is interrupted."""
        why = "the program was interrupted"
        for future in self.leases.break_off(SchedulerGone(why)) | self._calls.break_off(why):
            if future.running():
                fail(future, CancelledError("the program was interrupted while it ran"))
            else:
                self._cancelled(future)
        self._set_ended()
        closing = threading.Thread(target=self.session.close, name="fairlead-close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        """Accept no more calls; see :meth:`concurrent.futures.Executor.shutdown`."""
        after = RuntimeError("cannot schedule new futures after shutdown")
        self.leases.close(after, self._close)
        if cancel_futures:
            for pending in (self.leases.pending, self._calls.pending):
                for future in pending():
                    future.cancel()
        threads = {*self._threads, self.leases.thread}
        if wait and threads != {None} and threading.current_thread() not in threads:  # a callback cannot wait for itself
            try:
                wait_until(self._has_ended)
                wait_until(self.leases.have_ended)  # one of their threads may still close the session
            except KeyboardInterrupt:
                self.abandon()
                raise

    def _close(self) -> None:
        """Accept no more tasks: all leases have ended."""
        self._calls.close()
        self._close_if_over()
        if not self._threads:
            self._set_ended()

    def _set_ended(self) -> None:
        self._ended = True
        self._end.put(None)

    def _has_ended(self, seconds: float) -> bool:
        if not self._ended:
            with suppress(Empty):
                self._end.get(timeout=seconds)
        return self._ended

    def _guard(self, work: Callable[[], None]) -> None:
        """Run a thread's work; if it fails, fail all futures rather than let them wait for ever."""
        try:
            work()
            if work == self._hear:
                self._set_ended()
        except ServiceError as error:
            self._break_off(str(error))
        except BaseException as error:
            self._break_off(f"internal error of fairlead: {error!r}")
            raise

    def _break_off(self, why: str) -> None:
        for future in self.leases.break_off(SchedulerGone(why)) | self._calls.break_off(why):
            fail(future, SchedulerGone(why))
        self._set_ended()

    def _send(self) -> None:
        while batch := self._calls.next_batch():
            if self.session.id is None:
                self.session.open()
                with self._calls.changed:
                    self._calls.changed.notify_all()
            groups = alike(batch)
            try:
                self._submit(groups)
            except ServiceError:
                if len(groups) == 1:
                    raise
                for group in groups:  # find the one that is refused
                    self._submit([group])

    def _submit(self, groups: list[list[Waiting]]) -> None:
        try:
            jobs = self.session.submit(groups)
        except ServiceError as error:
            if error.status is None or len(groups) > 1:
                raise
            self._calls.refused(groups[0])
            for waiting in groups[0]:
                fail(waiting.future, error)
        else:
            self._calls.placed(groups, jobs)

    def _hear(self) -> None:
        with self._calls.changed:
            while self.session.id is None and not self._calls.broken and not self._calls.are_over():
                self._calls.changed.wait()
        while not self._calls.broken and not self._close_if_over():
            try:
                events = self.session.next_events()
            except ServiceError:
                if self._closed:
                    return
                raise
            ready = []
            for event in events:
                event["body"] = self.session.result(event)
                future = self._calls.at((event["job"], event["index"]))
                if future is not None:
                    ready.append((future, event))
            for future, event in ready:
                self._happened(future, event)
            self._calls.over(future for future, event in ready if event["status"] in OVER)

    def _happened(self, future: CallFuture[Any], event: dict[str, Any]) -> None:
        if future.done():
            return
        if event["status"] not in OVER and future.running():
            future.on_restart()
        if event["status"] == "waiting":
            return
        if event["status"] == "cancelled":
            self._cancelled(future)
        elif not future.running() and not future.set_running_or_notify_cancel():
            return
        if event["status"] == "cancelled" and not future.done():
            future.set_exception(CancelledError(f"call {event['job']}.{event['index']} was cancelled while it ran"))
        elif event["status"] in ("succeeded", "failed"):
            set_outcome(future, event)

    def _cancelled(self, future: CallFuture[Any]) -> None:
        """Mark a call that will never run as cancelled."""
        if future.cancel_here():
            with self._calls.changed:
                if future._state == "CANCELLED":
                    future.set_running_or_notify_cancel()
                self._calls.over([future])

    def _close_if_over(self) -> bool:
        """Close the session if no call can come any more. Return True if so."""
        with self._calls.changed:
            over, first = self._calls.are_over() or bool(self._calls.broken), not self._closed
            self._closed = over
        if over and first:
            if not self._calls.broken:
                self.session.close()
            if not self._threads:
                self._connection.close()
        return over


def _shut_down(caller: "weakref.ref[Caller]") -> None:
    found = caller()
    if found is None:
        return
    if issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt):  # an interrupt ends the program
        found.abandon()
    else:
        found.shutdown(wait=True, cancel_futures=False)
