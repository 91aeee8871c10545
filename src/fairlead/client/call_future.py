"""The future of a call."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from itertools import chain
from typing import Any, TypeVar

from fairlead.interrupts import wait_until

T = TypeVar("T")
TaskId = tuple[int, int]
"""Job and index."""


class CallFuture(Future[T]):
    """A future of a call; see :class:`concurrent.futures.Future`."""

    def __init__(self, cancel: "Callable[[CallFuture[Any]], bool]", stop: "Callable[[CallFuture[Any]], bool]") -> None:
        super().__init__()
        self._cancel, self._stop = cancel, stop
        self.task: TaskId | None = None  # that runs it, once known
        self.wrote: tuple[tuple[int, int], tuple[int, int]] | None = None  # bytes of out and err before and after it

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

    @property
    def log(self) -> str:
        """What `fairlead logs` takes to print what the call wrote: its task and, once it has ended, where in its output."""
        if self.task is None:
            return ""
        place = "@{}-{},{}-{}".format(*chain(*zip(*self.wrote, strict=True))) if self.wrote else ""
        return f"{self.task[0]}.{self.task[1]}{place}"

    def cancel_here(self) -> bool:
        """Cancel only the future, not the call."""
        return super().cancel()
