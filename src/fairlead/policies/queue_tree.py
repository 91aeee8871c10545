"""The tree of queues that a problem's users are the leaves of."""

from dataclasses import dataclass, field
from typing import Any

from fairlead.model.problems import Problem


@dataclass
class Inner:
    """An inner queue, or a leaf where it has a user."""

    name: str
    user: int | None = None
    children: list["Inner"] = field(default_factory=list)
    used: list[Any] = field(default_factory=list)
    level: Any = 0  # its weighted share
    blocked: bool = False


def plant(problem: Problem) -> Inner:
    """Make the tree of a problem's users; inner queues weigh 1 each, users what they weigh."""
    root = Inner("")
    inner = {"": root}
    for i, name in enumerate(problem.users):
        path = problem.queues[i]
        parts = path.split("/") if path else []
        above = root
        for depth in range(1, len(parts) + 1):
            place = "/".join(parts[:depth])
            if place not in inner:
                inner[place] = Inner(place)
                above.children.append(inner[place])
            above = inner[place]
        above.children.append(Inner(name, user=i))
    return root
