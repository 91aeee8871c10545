"""Conversion between the resources of Mesos and of fairlead, with reservations and volumes. Pure functions.

Mesos counts CPUs and GPUs in ones, memory and disk in MiB, with three decimal digits. Fairlead counts thousandths and bytes, as
integers. Amounts for Mesos are rounded down to its precision, so a framework can use all it was offered.

The mark of a reservation is what Mesos compares resources by: its role, principal and labels, and the id of a volume.
Further data of a volume, such as its container path, is kept beside the mark.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from google.protobuf import json_format

from fairlead.model.specs import Quantities, Ranges
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.framework_index import plus
from fairlead.scheduler.frameworks.reservations import Move, Moves, count_of, joined
from fairlead.service.mesos.messages.mesos_pb2 import Offer, Resource, Value, Volume

NAMES = {"cpus": "cpu", "mem": "memory", "disk": "disk", "gpus": "gpu"}
"""Fairlead's names by Mesos' names; others are the same."""
THEIRS = {ours: theirs for theirs, ours in NAMES.items()}
MIB = 2**20
IN_MIB = ("mem", "disk")
MOST_MIB, MOST = 2.0**62 / MIB, 2.0**53 / 1000
"""Limits: memory and disk, and all else."""
Operation = Offer.Operation
DONE = {Operation.RESERVE: "reserve", Operation.UNRESERVE: "unreserve", Operation.CREATE: "create", Operation.DESTROY: "destroy"}
"""The supported operations on reservations and volumes, and their fields with the resources."""
Reservation = Resource.ReservationInfo
"""The owner of reserved resources."""
LONGEST_MARK = 4096
LONGEST_VOLUME_ID = 255
LONGEST_PATH = 1024


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


class Mark(NamedTuple):
    """A reservation's mark, its role, and further data."""

    text: str
    role: str
    said: str = ""


def mark_of(resource: Resource) -> Mark | None:
    """Return the mark of a resource's reservation; None if it is not reserved. Raises Refused."""
    kept = _reservation(resource)
    if kept is None:
        if resource.HasField("disk"):
            raise Refused(f"{resource.name}: a volume must be on resources reserved for a role, on the agent's own disk")
        return None
    told: dict[str, Any] = {"role": kept.role}
    if kept.HasField("principal"):
        told["principal"] = kept.principal
    if kept.labels.labels:
        told["labels"] = [[each.key, each.value] if each.HasField("value") else [each.key] for each in kept.labels.labels]
    said = ""
    if resource.HasField("disk"):
        told["volume"], said = _volume(resource)
    text = json.dumps(told, separators=(",", ":"))
    if len(text) + len(said) > LONGEST_MARK:
        raise Refused(f"{resource.name}: the description of the reservation is too long")
    return Mark(text, kept.role, said)


def _reservation(resource: Resource) -> Reservation | None:
    """Return the reservation of a resource, in either form. Raises Refused."""
    if resource.HasField("shared"):
        raise Refused(f"{resource.name}: shared resources are not supported")
    if len(resource.reservations) > 1:
        raise Refused(f"{resource.name}: refined reservations, for a role below another, are not supported")
    kept = Reservation()
    if resource.reservations:
        kept.CopyFrom(resource.reservations[0])
    elif resource.role not in ("", "*"):
        if not resource.HasField("reservation"):
            raise Refused(f"{resource.name}: static reservations are not supported")
        kept.CopyFrom(resource.reservation)
        kept.role = resource.role
    elif resource.HasField("reservation"):
        raise Refused(f"{resource.name}: reservations for role '*' are not possible")
    else:
        return None
    if kept.role in ("", "*") or kept.type == Reservation.STATIC:
        raise Refused(f"{resource.name}: only dynamic reservations for a role are supported")
    return kept


def _volume(resource: Resource) -> tuple[str, str]:
    """Return the id of a volume, and its further data. Raises Refused."""
    disk = resource.disk
    if resource.name != "disk" or not disk.HasField("persistence") or disk.HasField("source"):
        raise Refused(f"{resource.name}: a volume must be persistent, on the agent's own disk")
    name = disk.persistence.id
    if not name or len(name) > LONGEST_VOLUME_ID or "/" in name or any(ord(each) < 0x21 for each in name):
        raise Refused(f"{name[:50]!r} is not a valid id of a volume")
    return name, json_format.MessageToJson(disk, preserving_proto_field_name=True, indent=None, sort_keys=True)


class ResourceRequest(NamedTuple):
    """The resources of a task: in total, by reservation, the container paths of volumes by mark, and ports."""

    demand: Quantities
    apart: dict[str, Quantities]
    volumes: dict[str, str]
    ports: Ranges


def request_of(resources: Iterable[Resource]) -> ResourceRequest:
    """Return the resources that a task asks for. Raises Refused for unsupported ones."""
    demand: Quantities = {}
    found = ResourceRequest(demand, {}, {}, [])
    for each in resources:
        if each.name == "ports" and each.type == Value.RANGES:
            found.ports.extend(_ports(each))
            continue
        mark, (name, amount) = mark_of(each), base_of(each)
        demand[name] = demand.get(name, 0) + amount
        if mark is not None and amount:
            found.apart[mark.text] = plus(found.apart.get(mark.text, {}), {name: amount})
        if mark is not None and each.HasField("disk"):
            if not each.disk.HasField("volume"):
                raise Refused(f"volume {each.disk.persistence.id!r}: name its path for the task in disk.volume.container_path")
            found.volumes[mark.text] = each.disk.volume.container_path
    if demand.get("gpu", 0) % 1000:
        raise Refused("gpus: fractions of a GPU are not supported: ask for a whole number")
    ports = joined(found.ports)
    if count_of(ports) < count_of(found.ports):
        raise Refused("ports: one is listed twice")
    return found._replace(demand={name: amount for name, amount in demand.items() if amount}, ports=ports)


def _ports(resource: Resource) -> Ranges:
    """Return the ports of a resource. Raises Refused."""
    if mark_of(resource) is not None:
        raise Refused("ports: they cannot be reserved")
    found = [(each.begin, each.end) for each in resource.ranges.range]
    if any(not 0 <= first <= last < 2**16 for first, last in found):
        raise Refused("ports: a range must go from a port to the same or a higher one, below 65536")
    return found


def resources_of_reservation(mark: str, said: str, amount: Quantities, role: str | None, refined: bool) -> list[Resource]:
    """Convert a reservation to Mesos' resources, allocated to `role` if clients know roles; `refined`: see `resources_of`."""
    told, found = json.loads(mark), []
    labels = [{"key": key, **dict(zip(("value",), values, strict=False))} for key, *values in told.get("labels", ())]
    kept = Reservation(principal=told.get("principal"), labels={"labels": labels} if labels else None)
    if refined:
        kept.type, kept.role = Reservation.DYNAMIC, told["role"]
    for ours, value in amount.items():
        name = THEIRS.get(ours, ours)
        made = Resource(name=name, type=Value.SCALAR, scalar={"value": to_mesos(name, value)})
        made.MergeFrom(Resource(reservations=[kept]) if refined else Resource(role=told["role"], reservation=kept))
        if said:
            json_format.Parse(said, made.disk)
        if role is not None:
            made.allocation_info.role = role
        found.append(made)
    return found


def moves_of(number: int, operation: Offer.Operation, role: str | None, principal: str) -> Moves:
    """Convert an operation to moves, on resources offered to a role, or on any if that is None. Raises Refused.

    Reservations and volumes must have the principal of the caller, if it has one.
    """
    field = DONE[operation.type]
    said = getattr(operation, field)
    if field == "reserve" and any(mark_of(each) is not None for each in said.source):
        raise Refused("reserved resources cannot be reserved again: unreserve them first")
    resources = said.volumes if field in ("create", "destroy") else said.resources
    if not resources:
        raise Refused("it names no resources")
    return Moves(number, [_move(operation, each, role, principal) for each in resources])


def _move(operation: Offer.Operation, resource: Resource, role: str | None, principal: str) -> Move:
    mark, (name, value) = mark_of(resource), base_of(resource)
    if mark is None or not value:
        raise Refused(f"{resource.name}: it is reserved for no role, or its amount is 0")
    if role not in (None, mark.role):
        raise Refused(f"{resource.name}: it is reserved for role {mark.role!r}, and was offered to {role!r}")
    if resource.HasField("revocable"):
        raise Refused(f"{resource.name}: revocable resources cannot be reserved")
    amount, below = {name: value}, _reserved_alone(resource)
    if operation.type in (Operation.RESERVE, Operation.UNRESERVE):
        if resource.HasField("disk"):
            raise Refused("a volume cannot be reserved or unreserved: create it from reserved resources, or destroy it")
        if operation.type == Operation.UNRESERVE:
            return Move(amount, of=mark.text)
        _check_principal(json.loads(mark.text).get("principal"), principal)
        return Move(amount, mark=mark.text, role=mark.role)
    if not resource.HasField("disk"):
        raise Refused(f"{resource.name}: it is not a volume: it has no disk.persistence")
    if operation.type == Operation.DESTROY:
        return Move(amount, of=mark.text, mark=below, role=mark.role)
    _check_volume(resource.disk, principal)
    return Move(amount, of=below, mark=mark.text, role=mark.role, said=mark.said, whole=True)


def _reserved_alone(resource: Resource) -> str:
    """Return the mark of the resources that a volume is made from."""
    plain = Resource()
    plain.CopyFrom(resource)
    plain.ClearField("disk")
    mark = mark_of(plain)
    assert mark is not None
    return mark.text


def _check_principal(said: str | None, principal: str) -> None:
    if principal and said != principal:
        raise Refused(f"its principal is {said!r}, but the caller is {principal!r}")


def _check_volume(disk: Resource.DiskInfo, principal: str) -> None:
    persistence = disk.persistence
    if not disk.HasField("volume") or disk.volume.HasField("host_path"):
        raise Refused("a volume needs its path for the task in disk.volume, and no host_path")
    if wrong := wrong_path(disk.volume.container_path):
        raise Refused(wrong)
    if disk.volume.mode == Volume.RO:
        raise Refused("a volume must be writable: mode RW")
    _check_principal(persistence.principal if persistence.HasField("principal") else None, principal)


def wrong_path(path: str) -> str:
    """Return what is wrong with a volume's path for the task; empty if nothing is."""
    if path.startswith("/"):
        return f"container_path {path!r}: without a container the path is in the sandbox: leave out the first /"
    if any(part in ("", ".", "..") or "\0" in part for part in path.split("/")) or len(path) > LONGEST_PATH:
        return f"container_path {path!r} is not a path in the sandbox"
    return ""


def is_volume(mark: str) -> bool:
    return "volume" in json.loads(mark)
