"""Resources as Mesos counts them and as fairlead does.

Mesos has CPUs and GPUs in ones, memory and disk in MiB, as numbers with three digits after the point; fairlead has thousandths
and bytes, as integers. What is told is rounded down to what Mesos can say, so that what is asked for of it is always there.
"""

import math
from collections.abc import Iterable, Mapping

from fairlead.model.specs import Ranges
from fairlead.service.mesos.messages.mesos_pb2 import Resource, Value

NAMES = {"cpus": "cpu", "mem": "memory", "disk": "disk", "gpus": "gpu"}
"""Mesos' name to fairlead's; others are called the same."""
THEIRS = {ours: theirs for theirs, ours in NAMES.items()}
MIB = 2**20
IN_MIB = ("mem", "disk")
MOST_MIB, MOST = 2.0**62 / MIB, 2.0**53 / 1000
"""Of memory and disk, and of all else, at most."""


class NoResource(ValueError):
    """What is asked for cannot be had here, or is no amount; the message says why."""


def to_mesos(name: str, amount: int) -> float:
    """An amount in base units as Mesos says it; `name` is Mesos' own."""
    if name in IN_MIB:  # the most that comes to no more in base units, so that what was said is said again
        return ((amount + 1) * 1000 - 1) // MIB / 1000
    return amount / 1000


def to_base(name: str, value: float) -> int:
    """An amount as Mesos says it in base units. Raises NoResource for what is no amount."""
    if not math.isfinite(value) or not 0 <= value <= (MOST_MIB if name in IN_MIB else MOST):
        raise NoResource(f"{name}: {value:g} is no amount")
    thousandths = round(value * 1000)
    return thousandths * MIB // 1000 if name in IN_MIB else thousandths


def resources_of(
    amounts: Mapping[str, int], *, role: str | None = None, revocable: bool = False, refined: bool = False
) -> list[Resource]:
    """Amounts in base units as Mesos' resources, in the order of Mesos' names.

    Parameters
    ----------
    amounts : mapping
        What is none of Mesos' digits is left out.
    role : str, optional
        To whom they are allocated, for those who know of that.
    revocable : bool
        Whether they may be taken back.
    refined : bool
        Whether who reads them knows reservations as stacks: for others they belong to the role ``*``.
    """
    found = []
    for ours, amount in amounts.items():
        name = THEIRS.get(ours, ours)
        value = to_mesos(name, amount)
        if value > 0:
            found.append(_resource(name, value, role, revocable, refined))
    order = list(NAMES)
    return sorted(found, key=lambda each: (order.index(each.name) if each.name in order else len(order), each.name))


def _resource(name: str, value: float, role: str | None, revocable: bool, refined: bool) -> Resource:
    made = Resource(name=name, type=Value.SCALAR, scalar=Value.Scalar(value=value))
    if not refined:
        made.role = "*"
    if role is not None:
        made.allocation_info.role = role
    if revocable:
        made.revocable.SetInParent()
    return made


def ports_of(ranges: Ranges, role: str | None, refined: bool) -> Resource:
    """Ports as Mesos' resource; `role` and `refined` as in :func:`resources_of`."""
    made = Resource(name="ports", type=Value.RANGES)
    for first, last in ranges:
        made.ranges.range.add(begin=first, end=last)
    if not refined:
        made.role = "*"
    if role is not None:
        made.allocation_info.role = role
    return made


def base_of(resource: Resource) -> tuple[str, int]:
    """The name of a resource and its amount in base units. Raises NoResource for what is no amount of anything."""
    if resource.type != Value.SCALAR:
        raise NoResource(f"{resource.name}: there are numbers of resources here, ranges of ports, and no sets")
    return NAMES.get(resource.name, resource.name), to_base(resource.name, resource.scalar.value)


def are_revocable(resources: Iterable[Resource]) -> bool:
    """Whether any may be taken back."""
    return any(each.HasField("revocable") for each in resources)
