"""Wakes coroutines that wait for an event in the scheduler's thread, or for an answer from it.

A waiter listens first, then checks, then waits, so it misses nothing in between.
"""

import asyncio
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Wakeups:
    """Waiters by key: ("job", number) for a job's end, ("session", id) for events of calls, "facts" for more facts,
    ("token", id) for the end of a token.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening: dict[Hashable, set[asyncio.Event]] = {}

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wake(self, keys: Iterable[Hashable] | None = None) -> None:
        """Wake the waiters of these keys, or all. Thread-safe.

        A waiter that begins to listen meanwhile has not checked yet, and finds what has happened.
        """
        heard = None if keys is None else [key for key in keys if key in self._listening]
        if self._loop is not None and heard != []:
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._wake, heard)

    def _wake(self, keys: list[Hashable] | None) -> None:
        for key in self._listening if keys is None else keys:
            for heard in self._listening.get(key, ()):
                heard.set()

    @contextmanager
    def listen(self, keys: Iterable[Hashable]) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever one of these keys is woken."""
        heard = asyncio.Event()
        keys = set(keys)
        for key in keys:
            self._listening.setdefault(key, set()).add(heard)
        try:
            yield heard
        finally:
            for key in keys:
                self._listening[key].discard(heard)
                if not self._listening[key]:
                    del self._listening[key]


class Answers:
    """Answers of the scheduler's thread to coroutines. Those that come together wake the event loop once.

    together : how many came together last
    """

    def __init__(self) -> None:
        self._given = deque[tuple[asyncio.Future[Any], Any, BaseException | None]]()
        self._waking = False
        self.together = 0

    def give(self, future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
        """Set the result of a future. Thread-safe."""
        self._given.append((future, value, error))
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the event loop has ended
                future.get_loop().call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        self._waking = False  # first: what is given from now on wakes again
        self.together = len(self._given)
        while self._given:
            future, value, error = self._given.popleft()
            if future.done():  # the caller has gone
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)


class Answer:
    """One answer for a coroutine: what a thread needs of a :class:`concurrent.futures.Future`, at a tenth of its cost."""

    def __init__(self, answers: Answers) -> None:
        self.future = asyncio.get_running_loop().create_future()
        self._answers, self._open = answers, [True]

    def set_running_or_notify_cancel(self) -> bool:
        """Return False if nobody waits any more."""
        return self.give_up() and not self.future.cancelled()

    def give_up(self) -> bool:
        """Return True if the question is not taken yet; then it never is."""
        try:
            return self._open.pop()  # only one thread gets it
        except IndexError:
            return False

    def set_result(self, value: Any) -> None:
        self._answers.give(self.future, value, None)

    def set_exception(self, error: BaseException) -> None:
        self._answers.give(self.future, None, error)


async def heard_within(heard: asyncio.Event, seconds: float) -> bool:
    """Wait up to `seconds` to be woken; return True if woken."""
    try:
        await asyncio.wait_for(heard.wait(), max(0.0, seconds))
    except TimeoutError:
        return False
    heard.clear()
    return True
