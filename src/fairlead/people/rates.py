"""How many requests one may make: so many a second, and after a pause some more at once. Whoever asks for more is told when."""

import time
from collections.abc import Callable, Hashable

AT_ONCE = 4.0
"""Seconds whose requests may come together."""
MOST_REMEMBERED = 10_000


class Rates:
    """Counts requests by who makes them. Used in one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_at: dict[Hashable, float] = {}  # when somebody could make all at once again

    def wait(self, who: Hashable, a_second: float, count: int = 1) -> float:
        """Take note of a request, which counts as so many; 0 where it may be made, else the seconds until one may be.

        One that counts as more than may ever come together is made when nothing else was asked for in a while.
        """
        now, takes = self._clock(), count / a_second
        full_at = max(self._full_at.get(who, now), now)
        wait = full_at - now - max(0.0, AT_ONCE - takes)
        if wait > 0:
            return wait
        if len(self._full_at) >= MOST_REMEMBERED:
            self._full_at = {each: at for each, at in self._full_at.items() if at > now}
        self._full_at[who] = full_at + takes
        return 0.0
