"""Who goes next, and how much each should have. One file a policy.

Each offers what it can of: a divisible solution (`policy()`), an order for indivisible tasks, and plain arithmetic over one row,
in the part of Python that numba compiles, which the scheduler's kernel calls as it stands: the child with the smallest key is
served first.
"""

from collections.abc import Iterable, Sequence

from fairlead.model.specs import Policy

CODES: dict[Policy, int] = {"drf": 0, "fifo": 1, "priority": 2, "asset": 3, "hdrf": 4}
"""How a policy is written in the scheduler's arrays."""
DIVIDED = 5
"""Any other policy: queues are served so that they come near to their parts of its division."""
MAXMIN = 16
"""Max-min on a resource is written as this plus the resource's column."""


def code_of(policy: Policy, resources: Sequence[str]) -> int:
    """Write a policy as a number."""
    if policy.startswith("maxmin:"):
        return MAXMIN + resources.index(policy.removeprefix("maxmin:"))
    return CODES.get(policy, DIVIDED)


def resources_of(policy: Policy) -> Iterable[str]:
    """The resources that a policy names."""
    return [policy.removeprefix("maxmin:")] if policy.startswith("maxmin:") else []
