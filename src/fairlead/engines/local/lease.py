"""The lease by which a supervisor that is one of many may run tasks: without it they are ended, so that they can start elsewhere.

The supervisor says a number, and notes when; the scheduler says that number back, and from when it was *said* the lease lasts
for `lost_after` seconds. So nothing that was long on its way renews it: neither what a machine that was frozen finds in its
buffers, nor what a network kept back. Who has heard a number knows, by their own clock, that no lease lasts longer than
`lost_after` from then. Somebody else may vouch for the machine: who writes to the file ``vouched`` when, by the clock of
the machine since it was started, they began to ask whether it is alive, and were told that it is.

Time counts while the machine sleeps. Only the standard library.
"""

import contextlib
import os
import time
from pathlib import Path

ASKS = 5
"""Numbers that are said in the time that a lease lasts."""
LONGEST_PAUSE = 2.0
"""Seconds between two numbers, at most."""

LONGEST_LOOK = 10.0
"""Seconds until somebody looks again where nothing is expected."""


def clock() -> float:
    """Seconds since the machine was started, with those that it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def vouch(folder: Path, asked_at: float) -> None:
    """Have the lease of a folder's supervisor last from a moment of :func:`clock`; for who knows that its machine is alive."""
    fresh = folder / f"vouched.{os.getpid()}"
    fresh.write_text(repr(asked_at))
    fresh.rename(folder / "vouched")


class Lease:
    """Whether tasks may run here.

    Parameters
    ----------
    folder : Path
        The supervisor's, where somebody may vouch.
    lost_after : float
        Seconds that it lasts.
    grace : float
        Seconds that tasks have to end when it is over.
    """

    def __init__(self, folder: Path, lost_after: float, grace: float) -> None:
        self._vouched = folder / "vouched"
        self.lost_after, self.grace = lost_after, grace
        self._until = 0.0
        self._said: dict[int, float] = {}  # numbers, and when
        self._number = 0
        self._next_at = 0.0

    def number(self) -> int | None:
        """The number that is to be said now, if one is."""
        now = clock()
        if now < self._next_at:
            return None
        self._next_at = now + min(LONGEST_PAUSE, self.lost_after / ASKS)
        self._number += 1
        self._said[self._number] = now
        if len(self._said) > 2 * ASKS + self.lost_after / LONGEST_PAUSE:
            del self._said[next(iter(self._said))]
        return self._number

    def said_back(self, number: int) -> None:
        """A number came back; one that was not said, or long ago, or came before, renews nothing."""
        said_at = self._said.pop(number, None)
        if said_at is not None:
            self._until = max(self._until, said_at + self.lost_after)

    def greeted(self) -> None:
        """Somebody new is there: a number is to be said at once, and none that another was told counts."""
        self._said.clear()
        self._next_at = 0.0

    def is_over(self) -> bool:
        """Whether no task may run."""
        now = clock()
        if now < self._until:
            return False
        with contextlib.suppress(OSError, ValueError):  # nobody vouches
            self._until = max(self._until, min(float(self._vouched.read_text()), now) + self.lost_after)
        return now >= self._until

    def next_look(self, heard: bool) -> float:
        """In how many seconds there is something to do for it, at most; `heard` says whether there is whom to say a number."""
        now = clock()
        times = [self._until] * (self._until > now) + [self._next_at] * heard
        return max(0.0, min(times) - now) if times else LONGEST_LOOK
