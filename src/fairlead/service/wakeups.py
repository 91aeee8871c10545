"""Wakes those in the event loop who wait for something in the scheduler's thread to happen.

Whoever waits listens first, then looks, then waits: so nothing that happens in between is missed.
"""

import asyncio
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress


class Wakeups:
    """Who waits, by key: ("job", number) for a job that ends, ("session", id) for calls that move, "facts" for more facts."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening: dict[Hashable, set[asyncio.Event]] = {}

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say in which event loop those who wait are; before that nobody does."""
        self._loop = loop

    def wake(self, keys: Iterable[Hashable] | None = None) -> None:
        """Wake who listens for one of these, or everybody. From any thread, when what happened is there to be seen."""
        if (
            keys is not None
        ):  # to tell another thread costs as much as a fact; who listens from now on sees it by themselves
            keys = [key for key in keys if key in self._listening]
        if self._loop is not None and (keys is None or keys):
            with suppress(RuntimeError):  # the event loop has ended, and everybody with it
                self._loop.call_soon_threadsafe(self._wake, keys)

    def _wake(self, keys: list[Hashable] | None) -> None:
        for key in self._listening if keys is None else keys:
            for heard in self._listening.get(key, ()):
                heard.set()

    @contextmanager
    def listen(self, keys: Iterable[Hashable]) -> Iterator[asyncio.Event]:
        """Have an event that is set whenever one of these is woken."""
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
    """Wait to be woken, for so long at most; whether there was one."""
    try:
        await asyncio.wait_for(heard.wait(), max(0.0, seconds))
    except TimeoutError:
        return False
    heard.clear()
    return True
