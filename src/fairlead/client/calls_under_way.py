"""The calls of one program that are not over, and where each is: to be sent, sent, or placed, as a task of a job.

Two threads and all who submit and cancel share this. Whoever waits for one of them to come further waits for `changed`, which is
also the lock. No future is settled while it is held, since its callbacks may submit more.
"""

import itertools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from fairlead.client.options import Options
from fairlead.client.results import SchedulerGone
from fairlead.interrupts import LONGEST_DEAF, wait_until

T = TypeVar("T")
Place = tuple[int, int]
"""Job and index."""

MOST_AT_ONCE = 1000
"""Calls in one request, at most."""
LARGEST_AT_ONCE = 4 * 2**20
"""Bytes of pickled calls in one request, unless a single one is larger."""


class CallFuture(Future[T]):
    """A future of a call; see :class:`concurrent.futures.Future`."""

    def __init__(self, cancel: "Callable[[CallFuture[Any]], bool]", stop: "Callable[[CallFuture[Any]], bool]") -> None:
        super().__init__()
        self._cancel, self._stop = cancel, stop
        self.place: Place | None = None  # once it was submitted

    def cancel(self) -> bool:
        """Cancel the call if it has not started; whether it could be."""
        return self._cancel(self)

    def stop(self) -> bool:
        """Cancel the call, or stop it where it runs: its process is told to end. Whether there was something to stop.

        What it comes to is then :class:`concurrent.futures.CancelledError`.
        """
        return self._stop(self)

    def result(self, timeout: float | None = None) -> T:
        """What the call returned; raises what it raised. See :meth:`concurrent.futures.Future.result`."""
        self._wait(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the call raised; see :meth:`concurrent.futures.Future.exception`."""
        self._wait(timeout)
        return super().exception(timeout)

    def _wait(self, timeout: float | None) -> None:
        if timeout is None:
            wait_until(lambda seconds: self.done() or wait([self], seconds).done)

    def cancel_here(self) -> bool:
        """Cancel the future alone."""
        return super().cancel()


@dataclass
class Waiting:
    """A call that is to be sent."""

    future: CallFuture[Any]
    call: bytes
    options: Options
    name: str


class CallsUnderWay:
    """All of one program.

    Attributes
    ----------
    closing : bool
        Whether no more may come.
    broken : str or None
        Why none will ever be over, if so.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.closing = False
        self.broken: str | None = None
        self._to_send: list[Waiting] = []
        self._unanswered: set[CallFuture[Any]] = set()
        self._by_place: dict[Place, CallFuture[Any]] = {}
        self._newest = 0  # the newest job whose submission was answered; they are numbered in their order

    def add(self, waiting: Waiting) -> None:
        """Have a call sent; raises SchedulerGone or RuntimeError where none may come."""
        with self.changed:
            if self.broken:
                raise SchedulerGone(self.broken)
            if self.closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._to_send.append(waiting)
            self.changed.notify_all()

    def pending(self) -> set[CallFuture[Any]]:
        """The futures of all."""
        with self.changed:
            return {waiting.future for waiting in self._to_send} | self._unanswered | set(self._by_place.values())

    def are_over(self) -> bool:
        """Whether nothing is under way, and nothing more may come."""
        with self.changed:
            return self.closing and not self._to_send and not self._unanswered and not self._by_place

    def close(self) -> None:
        """Let no more come."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def break_off(self, why: str) -> set[CallFuture[Any]]:
        """None will ever be over; the futures of those that were under way."""
        with self.changed:
            pending = self.pending()
            self.broken = why
            self._to_send, self._unanswered = [], set()
            self._by_place.clear()
            self.changed.notify_all()
        return pending

    def next_batch(self) -> list[Waiting]:
        """Wait for calls to send: as many as go in one request; none if none will come."""
        with self.changed:
            while not self._to_send and not self.broken and not self.are_over():
                self.changed.wait()
            batch = _first(self._to_send)
            self._to_send = self._to_send[len(batch) :]
            self._unanswered |= {waiting.future for waiting in batch}
            return batch

    def placed(self, groups: list[list[Waiting]], jobs: list[int]) -> None:
        """Each group was submitted as a job."""
        with self.changed:
            for job, group in zip(jobs, groups, strict=True):
                self._newest = job
                for index, waiting in enumerate(group):
                    waiting.future.place = job, index
                    self._unanswered.discard(waiting.future)
                    self._by_place[job, index] = waiting.future
            self.changed.notify_all()

    def refused(self, group: list[Waiting]) -> None:
        """A group was not taken."""
        with self.changed:
            self._unanswered -= {waiting.future for waiting in group}
            self.changed.notify_all()

    def at(self, place: Place) -> CallFuture[Any] | None:
        """Whose call is there, if it is not over; waits while the answer to its submission is on its way."""
        with self.changed:
            while place[0] > self._newest and self._unanswered:
                self.changed.wait()
            return self._by_place.get(place)

    def over(self, futures: Iterable[CallFuture[Any]]) -> None:
        """Nothing more will happen to these."""
        with self.changed:
            for future in futures:
                if future.place is not None:
                    self._by_place.pop(future.place, None)
            self.changed.notify_all()

    def withdraw(self, future: CallFuture[Any]) -> bool:
        """Take a call back that was not sent; whether it was so. Else waits until it is placed, or done."""
        with self.changed:
            kept = [waiting for waiting in self._to_send if waiting.future is not future]
            found = len(kept) < len(self._to_send)
            self._to_send = kept
            while not found and future.place is None and not future.done():
                self.changed.wait(LONGEST_DEAF)
            return found


def alike(batch: list[Waiting]) -> list[list[Waiting]]:
    """Groups of calls one after another that can be one job: they ask for the same, and have the same name."""
    return [list(group) for _, group in itertools.groupby(batch, key=lambda w: (w.options.key(), w.name))]


def _first(waiting: list[Waiting]) -> list[Waiting]:
    """As many as go in one request."""
    size = 0
    for place, each in enumerate(waiting):
        size += len(each.call)
        if place and (size > LARGEST_AT_ONCE or place >= MOST_AT_ONCE):
            return waiting[:place]
    return waiting
