"""The lease under which the supervisor of a remote node may run tasks. When it expires, the tasks end, so they can start
elsewhere.

The supervisor sends a number (a heartbeat) and notes when. The scheduler echoes it. The echo renews the lease until
`lost_after` seconds after the number was *sent*. So delayed messages never renew it: neither what a frozen machine finds in its
buffers, nor what a network kept back. A receiver of a number knows, by its own clock, that the lease ends within
`lost_after` seconds of that.

Time counts while the machine sleeps. Standard library only.
"""

import time

HEARTBEATS_PER_LEASE = 5
"""Numbers sent per lease duration."""
LONGEST_PAUSE = 2.0
"""Most seconds between two numbers."""

LONGEST_IDLE = 10.0
"""Seconds until the next check when nothing is scheduled."""


def clock() -> float:
    """Return the seconds since boot, including suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """True as long as tasks may run here: see the module.

    lost_after : duration in seconds
    grace : seconds that tasks get to end after expiry

    until : when it expires, by :func:`clock`
    """

    def __init__(self, lost_after: float, grace: float) -> None:
        self.lost_after, self.grace = lost_after, grace
        self.until = self._renewed_at = 0.0
        self._sent_at: dict[int, float] = {}  # send time of each number
        self._number = 0
        self._next_at = 0.0

    def number(self) -> int | None:
        """Return the number to send now, or None if none is due."""
        now = clock()
        if now < self._next_at:
            return None
        self._next_at = now + min(LONGEST_PAUSE, self.lost_after / HEARTBEATS_PER_LEASE)
        self._number += 1
        self._sent_at[self._number] = now
        if len(self._sent_at) > 2 * HEARTBEATS_PER_LEASE + self.lost_after / LONGEST_PAUSE:
            del self._sent_at[next(iter(self._sent_at))]
        return self._number

    def renew(self, number: int) -> None:
        """Renew the lease by an echoed number. Unknown, old and repeated numbers renew nothing."""
        sent_at = self._sent_at.pop(number, None)
        if sent_at is not None:
            self._renewed_at = max(self._renewed_at, sent_at)
            self.until = max(self.until, sent_at + self.lost_after)

    def change(self, lost_after: float, grace: float) -> None:
        """Change the terms: a longer lease lasts from the last renewal, a shorter one at most from now."""
        self.lost_after, self.grace = lost_after, grace
        if not self.is_over():
            self.until = min(max(self.until, self._renewed_at + lost_after), clock() + lost_after)

    def reset(self) -> None:
        """A new connection: send a number at once; forget those sent on the last one."""
        self._sent_at.clear()
        self._next_at = 0.0

    def is_over(self) -> bool:
        return clock() >= self.until

    def next_check(self, heard: bool) -> float:
        """Return the seconds until the next check is due; `heard` is True if a scheduler is connected."""
        now = clock()
        times = [self.until] * (self.until > now) + [self._next_at] * heard
        return max(0.0, min(times) - now) if times else LONGEST_IDLE
