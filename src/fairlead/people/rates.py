"""Request rate limits: a rate per second with a burst. A refusal states when to retry."""

import time
from collections.abc import Callable, Hashable

BURST_SECONDS = 4.0
"""The burst is this many seconds' worth of requests."""
MOST_REMEMBERED = 10_000


class Rates:
    """Counts requests by caller. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_at: dict[Hashable, float] = {}  # when a caller could use the whole burst again

    def wait(self, who: Hashable, a_second: float | None, count: int = 1) -> float:
        """Count a request with weight `count`; return 0 if it is allowed now, otherwise the seconds to wait.

        Without a limit `a_second`, all are allowed. A request heavier than the whole burst is allowed after a pause.
        """
        if a_second is None:
            return 0.0
        now, takes = self._clock(), count / a_second
        full_at = max(self._full_at.get(who, now), now)
        wait = full_at - now - max(0.0, BURST_SECONDS - takes)
        if wait > 0:
            return wait
        if len(self._full_at) >= MOST_REMEMBERED:
            self._full_at = {each: at for each, at in self._full_at.items() if at > now}
        self._full_at[who] = full_at + takes
        return 0.0
