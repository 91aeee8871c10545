"""Who goes next, and how much each should have. One file a policy.

Each offers what it can of: a divisible solution (`policy()`), an order for indivisible tasks, and plain arithmetic over one row,
in the part of Python that numba compiles, which the scheduler's kernel calls as it stands: the child with the smallest key is
served first.
"""

from collections.abc import Iterable, Sequence

from fairlead.model.specs import Policy
from fairlead.policies.codes import ASSET, DIVIDED, DRF, FIFO, HDRF, MAXMIN, PRIORITY

CODES: dict[Policy, int] = {"drf": DRF, "fifo": FIFO, "priority": PRIORITY, "asset": ASSET, "hdrf": HDRF}


def code_of(policy: Policy, resources: Sequence[str]) -> int:
    """Write a policy as a number."""
    if policy.startswith("maxmin:"):
        return MAXMIN + resources.index(policy.removeprefix("maxmin:"))
    return CODES.get(policy, DIVIDED)


def resources_of(policy: Policy) -> Iterable[str]:
    """The resources that a policy names."""
    return [policy.removeprefix("maxmin:")] if policy.startswith("maxmin:") else []
