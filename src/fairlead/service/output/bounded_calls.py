"""Calls with a deadline, to something that may never return, such as an unavailable storage.

A thread cannot be stopped. So each call runs in a daemon thread. A call that does not return is abandoned, and the number of
threads is bounded.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

FREE_THREAD_SECONDS = 1.0
"""How long to wait for room if all threads are busy."""


class _Call:
    """A call, its result, and its deadline."""

    def __init__(self, what: Callable[[], Any], seconds: float) -> None:
        self.what, self.answer = what, Future[Any]()
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        self.seconds, self.until = seconds, time.monotonic() + seconds


class BoundedCalls:
    """Makes at most `most` calls at the same time, each in a thread of its own. Thread-safe."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._room, self._here = threading.Semaphore(most), threading.local()

    def call(self, seconds: float, what: Callable[[], Any]) -> Any:
        """Call a function and return its result. Raises what it raises, and TimeoutError after `seconds`."""
        if not self._room.acquire(timeout=FREE_THREAD_SECONDS):
            raise TimeoutError(f"it has not answered the last {self._most} calls yet")
        asked = _Call(what, seconds)
        try:
            threading.Thread(target=self._make, args=(asked,), name=self._name, daemon=True).start()
        except RuntimeError:  # no thread can be started
            self._room.release()
            raise
        while not asked.answer.done():
            left = asked.until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"it does not answer within {asked.seconds:.0f} s")
            wait([asked.answer], left)
        return asked.answer.result()

    def allow(self, seconds: float) -> None:
        """From within a call: move its deadline to `seconds` from now."""
        if (asked := getattr(self._here, "asked", None)) is not None:
            asked.allow(seconds)

    def _make(self, asked: _Call) -> None:
        self._here.asked = asked
        try:
            asked.answer.set_result(asked.what())
        except BaseException as error:
            asked.answer.set_exception(error)
        finally:
            self._room.release()
