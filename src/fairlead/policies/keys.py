"""Keys of the order in which indivisible tasks are served."""

from collections.abc import Callable
from typing import Any

from fairlead.model.problems import Numbers

Key = Callable[[int, int], Any]
"""From a user and how many tasks it has: who has the smallest goes next."""


def by_rate(rate: Numbers) -> Key:
    """A key that grows by the same with each task."""
    return lambda i, tasks: rate[i] * tasks
