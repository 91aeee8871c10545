"""Orders in which indivisible tasks are served."""

import heapq
from collections.abc import Callable
from typing import Any, Protocol

from fairlead.model.arrays import Numbers

Key = Callable[[int, int], Any]
"""From a user and how many tasks it has: who has the smallest goes next."""


class Order(Protocol):
    """Who is served next."""

    def choose(self) -> int | None:
        """The user that is next of those who are not out; None where all are."""

    def served(self, user: int, tasks: int) -> None:
        """The user has so many tasks now."""

    def out(self, user: int, saturated: int | None) -> None:
        """The user is served no more: for want of a resource, or because it has all that it can use."""


class ByKey:
    """The user with the smallest key, of equals the first that is listed."""

    def __init__(self, key: Key, users: int) -> None:
        self._key = key
        self._tasks: list[int | None] = [0] * users  # None: out
        self._heap = [(key(i, 0), i, 0) for i in range(users)]
        heapq.heapify(self._heap)

    def choose(self) -> int | None:
        while self._heap and self._tasks[self._heap[0][1]] != self._heap[0][2]:  # what was true once
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def served(self, user: int, tasks: int) -> None:
        self._tasks[user] = tasks
        heapq.heappush(self._heap, (self._key(user, tasks), user, tasks))

    def out(self, user: int, saturated: int | None) -> None:
        self._tasks[user] = None


def by_rate(rate: Numbers) -> Key:
    """A key that grows by the same with each task."""
    return lambda i, tasks: rate[i] * tasks
