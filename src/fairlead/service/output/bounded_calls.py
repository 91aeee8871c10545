"""Calls with a deadline, to something that may never return, such as an unavailable storage.

A thread cannot be stopped. So each call runs in a daemon thread. A call that does not return is abandoned, and the number of
threads is bounded.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

FREE_THREAD_SECONDS = 1.0
"""How long to wait for a thread if all are busy."""


class _Call:
    """A call, its result, and its deadline."""

    def __init__(self, what: Callable[[], Any], seconds: float) -> None:
        self.what, self.answer = what, Future[Any]()
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        self.seconds, self.until = seconds, time.monotonic() + seconds


_Inbox = queue.SimpleQueue[_Call]


class BoundedCalls:
    """Makes at most `most` calls at the same time. Thread-safe."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._changed = threading.Condition()
        self._free: list[_Inbox] = []  # of idle threads
        self._threads = 0
        self._here = threading.local()

    def call(self, seconds: float, what: Callable[[], Any]) -> Any:
        """Call a function and return its result. Raises what it raises, and TimeoutError after `seconds`."""
        inbox = self._take()
        asked = _Call(what, seconds)
        inbox.put(asked)
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

    def _take(self) -> _Inbox:
        with self._changed:
            if not self._free and self._threads < self._most:
                self._threads += 1
                inbox: _Inbox = queue.SimpleQueue()
                threading.Thread(target=self._work, args=(inbox,), name=self._name, daemon=True).start()
                return inbox
            if not self._changed.wait_for(lambda: self._free, FREE_THREAD_SECONDS):
                raise TimeoutError(f"it has not answered the last {self._most} calls yet")
            return self._free.pop()

    def _work(self, inbox: _Inbox) -> None:
        while True:
            asked = self._here.asked = inbox.get()
            try:
                asked.answer.set_result(asked.what())
            except BaseException as error:
                asked.answer.set_exception(error)
            del asked, self._here.asked
            with self._changed:
                self._free.append(inbox)
                self._changed.notify()
