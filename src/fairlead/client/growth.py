"""The calls of a program with the same options, and how many leases they justify. See docs/calls.md."""

import math
import os
from collections.abc import Iterator

from fairlead.calls.wire import SLICE_SECONDS
from fairlead.client.lease import Kind, Lease, Leased
from fairlead.client.mapped import Mapped
from fairlead.client.options import Options

MOST_ASKED = 50
"""Leases of one shape that wait to be granted, at most."""


class Shape:
    """The calls with the same options, and their leases."""

    def __init__(self, options: Options, name: str) -> None:
        self.options, self.name = options, name
        self.single = Kind()
        self.maps: list[Mapped] = []
        self.leases: list[Lease] = []
        self.most_asked = MOST_ASKED
        self._turn = 0

    def kinds(self) -> "list[Kind]":
        return [self.single, *self.maps]

    def next(self) -> Leased | None:
        """Return the next message to send; kinds take turns."""
        kinds = self.kinds()
        for place in range(len(kinds)):
            kind = kinds[(self._turn + place) % len(kinds)]
            if kind.waiting:
                self._turn += place + 1
                return kind.waiting.popleft()
        return None

    def requeue(self, unsent: list[Leased]) -> None:
        for leased in reversed(unsent):
            leased.kind.waiting.appendleft(leased)

    def waits(self) -> bool:
        return any(kind.count() for kind in self.kinds())

    def messages(self) -> Iterator[Leased]:
        for kind in self.kinds():
            yield from kind.waiting
        for lease in self.leases:
            yield from lease.sent.values()
            yield from lease.lost

    def wanted(self, now: float) -> int:
        """Return how many leases the unfinished calls justify: one for a slice of work, and for each that runs longer."""
        running = sum(bool(lease.sent) and now - lease.heard_at > SLICE_SECONDS for lease in self.leases)
        left = {kind: kind.count() for kind in self.kinds()}
        for lease in self.leases:
            for leased in lease.sent.values():
                left[leased.kind] = left.get(leased.kind, 0) + leased.count()
        backlog, seconds, unknown = sum(left.values()), 0.0, 0
        for kind, count in left.items():
            if kind.mean is None:
                unknown += count if running else min(count, os.cpu_count() or 1)
            else:
                seconds += count * kind.mean
        return min(backlog, unknown + running + math.ceil(seconds / SLICE_SECONDS))

    def asked(self) -> list[Lease]:
        return [lease for lease in self.leases if not lease.connected and not lease.given_up]

    def withdraw(self) -> list[Lease]:
        """Give up the requests that wait, as others are due: the next one waits behind theirs. Return what is to be cancelled."""
        given_up = self.asked() if self.most_asked > 1 else []
        self.most_asked = 1
        for lease in given_up:
            lease.given_up = True
        return given_up

    def granted(self) -> None:
        """Let more requests wait: one was granted."""
        self.most_asked = min(MOST_ASKED, 2 * self.most_asked)

    def missing_chunk(self) -> "Mapped | None":
        """Return a map of which a worker could have more calls now."""
        idle = sum(lease.takes_calls() and not lease.sent for lease in self.leases)
        return next((each for each in self.maps if each.items and len(each.waiting) < max(1, idle)), None)
