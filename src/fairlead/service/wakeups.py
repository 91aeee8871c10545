"""Wakes coroutines that wait for an event in the scheduler's thread.

A waiter listens first, then checks, then waits, so it misses nothing in between.
"""

import asyncio
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress


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


async def heard_within(heard: asyncio.Event, seconds: float) -> bool:
    """Wait up to `seconds` to be woken; return True if woken."""
    try:
        await asyncio.wait_for(heard.wait(), max(0.0, seconds))
    except TimeoutError:
        return False
    heard.clear()
    return True
