"""Who goes next, and how much each should have. One file a policy.

Each offers what it can of: a divisible solution (`policy()`), and an order for indivisible tasks. The keys of live queues are in
`scheduler/kernel/keys.pxi`: the child with the smallest is served first.
"""

from collections.abc import Iterable, Sequence

from fairlead.model.specs import Policy
from fairlead.policies.codes import (
    ASSET,
    DIVIDED,
    DRF,
    FAIRTREE,
    FIFO,
    HDRF,
    HTCONDOR,
    MAXMIN,
    MESOS,
    PRIORITY,
    SDRF,
    YARN_DRF,
    YARN_FAIR,
)

CODES: dict[Policy, int] = {
    "drf": DRF, "fifo": FIFO, "priority": PRIORITY, "asset": ASSET, "hdrf": HDRF, "sdrf": SDRF, "yarn-drf": YARN_DRF,
    "mesos": MESOS,
}  # fmt: skip
OF_ONE_RESOURCE = {"maxmin": MAXMIN, "fairtree": FAIRTREE, "htcondor": HTCONDOR, "yarn-fair": YARN_FAIR}
"""Policies that look at one resource, as ``maxmin:memory``; where they name none, at CPUs, and YARN's at memory."""
YARN = ("yarn-fair", "yarn-drf")
"""Those that compare as YARN does: minimums are floors of the comparison, not promises, and a weight may be 0."""

HALF_LIVES = {"fairtree": 7 * 86400.0, "htcondor": 86400.0, "sdrf": 86400.0}
"""Of the policies that go by what was used before, in seconds, where a queue does not say otherwise."""


def code_of(policy: Policy, resources: Sequence[str]) -> int:
    """Write a policy as a number."""
    for resource in resources_of(policy):
        return OF_ONE_RESOURCE[policy.partition(":")[0]] + resources.index(resource)
    return CODES.get(policy, DIVIDED)


def resources_of(policy: Policy) -> Iterable[str]:
    """The resources that a policy names."""
    name, _, resource = policy.partition(":")
    usual = "memory" if name in YARN else "cpu"
    return [resource or usual] if name in OF_ONE_RESOURCE else []
