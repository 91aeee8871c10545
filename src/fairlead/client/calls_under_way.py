"""The unfinished calls of one program: to be sent, sent, or accepted as a task of a job.

Shared by the two threads of a Caller and all threads that submit and cancel. `changed` is the lock, and signals progress. No
future is resolved while it is held, because callbacks may submit more calls.
"""

import itertools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from fairlead.client.options import Options
from fairlead.client.results import SchedulerGone
from fairlead.interrupts import LONGEST_WAIT_SECONDS, wait_until

T = TypeVar("T")
TaskId = tuple[int, int]
"""Job and index."""

MOST_PER_REQUEST = 1000
"""Calls in one request, at most."""
MOST_BYTES_PER_REQUEST = 4 * 2**20
"""Bytes of pickled calls in one request, at most, unless a single one is larger."""


class CallFuture(Future[T]):
    """A future of a call; see :class:`concurrent.futures.Future`."""

    def __init__(self, cancel: "Callable[[CallFuture[Any]], bool]", stop: "Callable[[CallFuture[Any]], bool]") -> None:
        super().__init__()
        self._cancel, self._stop = cancel, stop
        self.task: TaskId | None = None  # that runs it, once known
        self.on_restart: Callable[[], None] = lambda: None  # its task was preempted, and starts again

    def cancel(self) -> bool:
        """Cancel the call if it has not started. Return True if it is cancelled."""
        return self._cancel(self)

    def stop(self) -> bool:
        """Cancel the call, or stop its process if it runs. Return True if there was something to stop.

        The future then raises :class:`concurrent.futures.CancelledError`.
        """
        return self._stop(self)

    def result(self, timeout: float | None = None) -> T:
        """Return the call's result, or raise its exception; see :meth:`concurrent.futures.Future.result`."""
        self._wait(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the call's exception, or None; see :meth:`concurrent.futures.Future.exception`."""
        self._wait(timeout)
        return super().exception(timeout)

    def _wait(self, timeout: float | None) -> None:
        if timeout is None:
            wait_until(lambda seconds: self.done() or wait([self], seconds).done)

    def cancel_here(self) -> bool:
        """Cancel only the future, not the call."""
        return super().cancel()


@dataclass
class Waiting:
    """A call to send."""

    future: CallFuture[Any]
    call: bytes
    options: Options
    name: str


class CallsUnderWay:
    """All unfinished calls of one program.

    Attributes
    ----------
    closing : bool
        True if no more calls are accepted.
    broken : str or None
        Why no call will ever finish, if so.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.closing = False
        self.broken: str | None = None
        self._to_send: list[Waiting] = []
        self._unanswered: set[CallFuture[Any]] = set()
        self._by_task: dict[TaskId, CallFuture[Any]] = {}
        self._newest = 0  # the newest accepted job; job numbers rise

    def add(self, waiting: Waiting) -> None:
        """Queue a call. Raises SchedulerGone or RuntimeError if no more are accepted."""
        with self.changed:
            if self.broken:
                raise SchedulerGone(self.broken)
            if self.closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._to_send.append(waiting)
            self.changed.notify_all()

    def pending(self) -> set[CallFuture[Any]]:
        """Return the futures of all unfinished calls."""
        with self.changed:
            return {waiting.future for waiting in self._to_send} | self._unanswered | set(self._by_task.values())

    def are_over(self) -> bool:
        """Return True if no call is unfinished and no more are accepted."""
        with self.changed:
            return self.closing and not self._to_send and not self._unanswered and not self._by_task

    def close(self) -> None:
        """Accept no more calls."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def break_off(self, why: str) -> set[CallFuture[Any]]:
        """Give up on all calls. Return the futures of the unfinished ones."""
        with self.changed:
            pending = self.pending()
            self.broken = why
            self._to_send, self._unanswered = [], set()
            self._by_task.clear()
            self.changed.notify_all()
        return pending

    def next_batch(self) -> list[Waiting]:
        """Wait for calls to send; return as many as fit in one request, none if no more can come."""
        with self.changed:
            while not self._to_send and not self.broken and not self.are_over():
                self.changed.wait()
            batch = _first(self._to_send)
            self._to_send = self._to_send[len(batch) :]
            self._unanswered |= {waiting.future for waiting in batch}
            return batch

    def placed(self, groups: list[list[Waiting]], jobs: list[int]) -> None:
        """Record that each group was accepted as a job."""
        with self.changed:
            for job, group in zip(jobs, groups, strict=True):
                self._newest = job
                for index, waiting in enumerate(group):
                    waiting.future.task = job, index
                    self._unanswered.discard(waiting.future)
                    self._by_task[job, index] = waiting.future
            self.changed.notify_all()

    def refused(self, group: list[Waiting]) -> None:
        """Record that a group was refused."""
        with self.changed:
            self._unanswered -= {waiting.future for waiting in group}
            self.changed.notify_all()

    def at(self, task: TaskId) -> CallFuture[Any] | None:
        """Return the future of an unfinished call; wait while the answer to its submission is outstanding."""
        with self.changed:
            while task[0] > self._newest and self._unanswered:
                self.changed.wait()
            return self._by_task.get(task)

    def over(self, futures: Iterable[CallFuture[Any]]) -> None:
        """Record that these calls have finished."""
        with self.changed:
            for future in futures:
                if future.task is not None:
                    self._by_task.pop(future.task, None)
            self.changed.notify_all()

    def withdraw(self, future: CallFuture[Any]) -> bool:
        """Remove a call that was not sent, and return True. Otherwise wait until it is accepted or done."""
        with self.changed:
            kept = [waiting for waiting in self._to_send if waiting.future is not future]
            found = len(kept) < len(self._to_send)
            self._to_send = kept
            while not found and future.task is None and not future.done():
                self.changed.wait(LONGEST_WAIT_SECONDS)
            return found


def alike(batch: list[Waiting]) -> list[list[Waiting]]:
    """Group consecutive calls that can be one job: those with the same options and name."""
    return [list(group) for _, group in itertools.groupby(batch, key=lambda w: (w.options.key(), w.name))]


def _first(waiting: list[Waiting]) -> list[Waiting]:
    """Return as many calls as fit in one request."""
    size = 0
    for count, each in enumerate(waiting):
        size += len(each.call)
        if count and (size > MOST_BYTES_PER_REQUEST or count >= MOST_PER_REQUEST):
            return waiting[:count]
    return waiting
