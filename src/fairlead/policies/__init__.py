"""Policies: who is served next, and how much each should have.

A policy offers a divisible solution (`divide()`), an order for whole tasks (`indivisible()`), or both. The keys of live queues
are in `scheduler/kernel/keys.pxi`: the child with the smallest key is served first.
"""

from collections.abc import Iterable, Sequence

from fairlead.model.specs import Policy
from fairlead.policies import codes

CODES: dict[Policy, int] = {
    "drf": codes.DRF, "fifo": codes.FIFO, "priority": codes.PRIORITY, "asset": codes.ASSET, "hdrf": codes.HDRF,
    "sdrf": codes.SDRF, "yarn-drf": codes.YARN_DRF, "mesos": codes.MESOS,
}  # fmt: skip
OF_ONE_RESOURCE = {"maxmin": codes.MAXMIN, "fairtree": codes.FAIRTREE, "htcondor": codes.HTCONDOR, "yarn-fair": codes.YARN_FAIR}
"""Policies that compare one resource, as ``maxmin:memory``. The default is CPUs; for YARN's, memory."""
YARN = ("yarn-fair", "yarn-drf")
"""Policies that compare as YARN does: minimums are floors of the comparison, not guarantees, and a weight may be 0."""
HALF_LIVES = {"fairtree": 7 * 86400.0, "htcondor": 86400.0, "sdrf": 86400.0}
"""Default half-life in seconds, for policies that count past use."""


def code_of(policy: Policy, resources: Sequence[str]) -> int:
    for resource in resources_of(policy):
        return OF_ONE_RESOURCE[policy.partition(":")[0]] + resources.index(resource)
    return CODES.get(policy, codes.DIVIDED)


def resources_of(policy: Policy) -> Iterable[str]:
    name, _, resource = policy.partition(":")
    default = "memory" if name in YARN else "cpu"
    return [resource or default] if name in OF_ONE_RESOURCE else []
