"""Calls of what may never come back, as of a storage that is away: whoever asks waits for so long, and no longer.

No thread can be made to end. So each call is made in a thread apart, which holds no process back that ends; one that does not
come back is left alone, and there are so many of them at most.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

FREE_WITHIN = 1.0
"""Seconds that one waits for a thread where all are busy."""


class _Call:
    """What is called, what it comes to, and how long that is waited for: so many seconds, until a moment."""

    def __init__(self, what: Callable[[], Any], seconds: float) -> None:
        self.what, self.answer = what, Future[Any]()
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        self.seconds, self.until = seconds, time.monotonic() + seconds


_Inbox = queue.SimpleQueue[_Call]


class PatientCalls:
    """Makes calls, so many at once at most. For any thread."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._changed = threading.Condition()
        self._free: list[_Inbox] = []  # of the threads that have nothing to do
        self._threads = 0
        self._here = threading.local()

    def call(self, seconds: float, what: Callable[[], Any]) -> Any:
        """What a call comes to. Raises what it raises, and TimeoutError where it does not come back within so many seconds."""
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
        """Called within a call: it goes on, and is waited for so long from now on."""
        if (asked := getattr(self._here, "asked", None)) is not None:
            asked.allow(seconds)

    def _take(self) -> _Inbox:
        with self._changed:
            if not self._free and self._threads < self._most:
                self._threads += 1
                inbox: _Inbox = queue.SimpleQueue()
                threading.Thread(target=self._work, args=(inbox,), name=self._name, daemon=True).start()
                return inbox
            if not self._changed.wait_for(lambda: self._free, FREE_WITHIN):
                raise TimeoutError(f"it has not answered the {self._most} calls before yet")
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
