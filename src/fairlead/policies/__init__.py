"""Who goes next, and how much each should have. One file a policy.

Each offers what it can of: a divisible solution (`policy()`), an order for indivisible tasks, and plain arithmetic over one row,
in the part of Python that numba compiles, which the scheduler's kernel calls as it stands: the child with the smallest key is
served first.
"""

from collections.abc import Iterable, Sequence

from fairlead.model.specs import Policy

CODES: dict[Policy, int] = {"drf": 0, "fifo": 1, "priority": 2, "asset": 3}
"""How a policy is written in the scheduler's arrays."""
MAXMIN = 16
"""Max-min on a resource is written as this plus the resource's column."""


def code_of(policy: Policy, resources: Sequence[str]) -> int:
    """Write a policy as a number."""
    return CODES[policy] if policy in CODES else MAXMIN + resources.index(policy.removeprefix("maxmin:"))


def name_of(code: int, resources: Sequence[str]) -> Policy:
    """Read what :func:`code_of` wrote."""
    return f"maxmin:{resources[code - MAXMIN]}" if code >= MAXMIN else next(n for n, c in CODES.items() if c == code)


def resources_of(policy: Policy) -> Iterable[str]:
    """The resources that a policy names."""
    return [policy.removeprefix("maxmin:")] if policy.startswith("maxmin:") else []
