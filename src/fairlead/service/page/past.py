"""Reports on past time for the page: each is made once for all who may see the same, and kept while it is fresh enough."""

import asyncio
import time
from collections.abc import Hashable
from typing import Any

from fairlead.people.rules import Caller
from fairlead.service.page.asking import Asking, Declined

PATIENCE_SECONDS = 1.0
"""How long a page waits for a report; it is shown later if it takes longer."""
FRESH_SECONDS, FRESH_FACTOR = 60.0, 50.0
"""How long a report is kept: at least so long, and that many times as long as it took to make."""
MOST_KEPT = 64

Key = tuple[Hashable, str, float]


class Past:
    """Reports by what they cover. For the event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._kept: dict[Key, tuple[float, Any]] = {}
        self._making: dict[Key, asyncio.Task[None]] = {}
        self._one = asyncio.Lock()

    async def __call__(self, rights: Hashable, caller: Caller, path: str, seconds: float) -> Any:
        """Return the newest report of the API's `path` over the last `seconds`; None while the first is being made.

        If it cannot be made, it has one key, `failed`, with the reason.

        `rights` tells apart callers who may not see the same.
        """
        key = (rights, path, seconds)
        until, found = self._kept.get(key, (0.0, None))
        if time.monotonic() >= until:
            if key not in self._making:
                self._making[key] = asyncio.create_task(self._make(key, caller))
            if found is None:
                await asyncio.wait([self._making[key]], timeout=PATIENCE_SECONDS)
                found = self._kept.get(key, (0.0, None))[1]
        return found

    async def _make(self, key: Key, caller: Caller) -> None:
        try:
            async with self._one:
                begin = time.monotonic()
                found = await self._asking(caller, key[1], {"seconds": key[2]})
        except Declined as declined:  # another is being made for the caller, or the journal cannot be read now
            found, begin = {"failed": str(declined)}, time.monotonic()
        finally:
            del self._making[key]
        if len(self._kept) >= MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))
        took = time.monotonic() - begin
        self._kept[key] = time.monotonic() + max(FRESH_SECONDS, FRESH_FACTOR * took), found
