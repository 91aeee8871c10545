"""What takes long for the page, as reports on past time do: each is made once for all who may see the same, and kept a while."""

import asyncio
import time
from collections.abc import Hashable
from contextlib import nullcontext
from typing import Any

from fairlead.people.rules import Caller
from fairlead.service.page.asking import Asking, Declined

PATIENCE_SECONDS, LESS_PATIENCE_SECONDS, STREAM_PATIENCE_SECONDS = 1.0, 0.1, 5.0
"""How long a page waits for its first report of the journal, and for all else; and a stream. It is shown later then."""
FRESH_SECONDS, FRESH_FACTOR = 5.0, 20.0
"""An answer is kept at least this long, and this many times as long as it took to make."""
MOST_KEPT = 128

Key = tuple[Hashable, str, float | None]


class Past:
    """Answers by what was asked. For the event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._kept: dict[Key, tuple[float, Any]] = {}
        self._making: dict[Key, asyncio.Task[None]] = {}
        self._one = asyncio.Lock()  # for reports of the journal

    async def __call__(self, rights: Hashable, caller: Caller, streams: bool, path: str, seconds: float | None = None) -> Any:
        """Return the newest answer of the API's `path`; None while the first is being made.

        It has `at`, when it was made, and if it cannot be made, `failed`, with the reason. With `seconds` it is a report of the
        journal over that time: the same for all who have the same `rights`.
        """
        key = (caller if seconds is None else rights, path, seconds)
        until, found = self._kept.get(key, (0.0, None))
        if time.monotonic() >= until:
            if key not in self._making:
                self._making[key] = asyncio.create_task(self._make(key, caller))
            patience = LESS_PATIENCE_SECONDS if seconds is None or found else PATIENCE_SECONDS
            await asyncio.wait([self._making[key]], timeout=STREAM_PATIENCE_SECONDS if streams else patience)
            found = self._kept.get(key, (0.0, None))[1]
        return found

    async def _make(self, key: Key, caller: Caller) -> None:
        begin = time.monotonic()
        try:
            async with nullcontext() if key[2] is None else self._one:
                begin = time.monotonic()
                found = await self._asking(caller, key[1], {"seconds": key[2]})
        except Declined as declined:  # another is being made for the caller, or the journal cannot be read now
            found = {"failed": str(declined)}
        finally:
            del self._making[key]
        self._kept.pop(key, None)
        if len(self._kept) >= MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))
        now = time.monotonic()
        self._kept[key] = now + max(FRESH_SECONDS, FRESH_FACTOR * (now - begin)), found | {"at": time.time()}
