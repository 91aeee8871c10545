"""Conversion between the resources of Mesos and of fairlead.

Mesos counts CPUs and GPUs in ones, memory and disk in MiB, with three decimal digits. Fairlead counts thousandths and bytes, as
integers. Amounts for Mesos are rounded down to its precision, so a framework can use all it was offered.
"""

import math
from collections.abc import Iterable, Mapping

from fairlead.model.specs import Ranges
from fairlead.scheduler.admission import Refused
from fairlead.service.mesos.messages.mesos_pb2 import Resource, Value

NAMES = {"cpus": "cpu", "mem": "memory", "disk": "disk", "gpus": "gpu"}
"""Fairlead's names by Mesos' names; others are the same."""
THEIRS = {ours: theirs for theirs, ours in NAMES.items()}
MIB = 2**20
IN_MIB = ("mem", "disk")
MOST_MIB, MOST = 2.0**62 / MIB, 2.0**53 / 1000
"""Limits: memory and disk, and all else."""


def to_mesos(name: str, amount: int) -> float:
    """Convert base units to Mesos' amount; `name` is Mesos' own."""
    if name in IN_MIB:  # round up within a base unit, so that an amount converted back is unchanged
        return ((amount + 1) * 1000 - 1) // MIB / 1000
    return amount / 1000


def to_base(name: str, value: float) -> int:
    """Convert Mesos' amount to base units. Raises Refused for an invalid amount."""
    if not math.isfinite(value) or not 0 <= value <= (MOST_MIB if name in IN_MIB else MOST):
        raise Refused(f"{name}: {value:g} is not a valid amount")
    thousandths = round(value * 1000)
    return thousandths * MIB // 1000 if name in IN_MIB else thousandths


def resources_of(
    amounts: Mapping[str, int], *, role: str | None = None, revocable: bool = False, refined: bool = False
) -> list[Resource]:
    """Convert amounts in base units to Mesos' resources, in the order of Mesos' names.

    amounts : amounts below Mesos' precision are left out
    role : the role they are allocated to, for clients that know roles
    revocable : True if they may be revoked
    refined : True for clients that know stacked reservations; for others, unreserved resources have the role ``*``
    """
    found = []
    for ours, amount in amounts.items():
        name = THEIRS.get(ours, ours)
        if (value := to_mesos(name, amount)) > 0:
            found.append(_allocated(Resource(name=name, type=Value.SCALAR, scalar={"value": value}), role, refined))
            if revocable:
                found[-1].revocable.SetInParent()
    order = list(NAMES)
    return sorted(found, key=lambda each: (order.index(each.name) if each.name in order else len(order), each.name))


def _allocated(made: Resource, role: str | None, refined: bool) -> Resource:
    if not refined:
        made.role = "*"
    if role is not None:
        made.allocation_info.role = role
    return made


def ports_of(ranges: Ranges, role: str | None, refined: bool) -> list[Resource]:
    """Convert ports to a Mesos resource, if there are any; `role` and `refined` as in :func:`resources_of`."""
    ports = {"range": [{"begin": first, "end": last} for first, last in ranges]}
    return [_allocated(Resource(name="ports", type=Value.RANGES, ranges=ports), role, refined)] if ranges else []


def base_of(resource: Resource) -> tuple[str, int]:
    """Return a resource's name and amount in base units. Raises Refused for an invalid one."""
    if resource.type != Value.SCALAR:
        raise Refused(f"{resource.name}: only scalars, and ranges of ports, are supported")
    return NAMES.get(resource.name, resource.name), to_base(resource.name, resource.scalar.value)


def are_revocable(resources: Iterable[Resource]) -> bool:
    return any(each.HasField("revocable") for each in resources)
