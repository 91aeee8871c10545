"""Reservations and volumes as Mesos describes them, and the parcels that they are: pure functions.

The mark of a parcel is what Mesos compares resources by: for whose role they are reserved, by which principal and with which
labels, and the id of a volume. What else is said of a volume, such as where a task would like to see it, is what is said of the
parcel.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from google.protobuf import json_format

from fairlead.model.specs import Quantities, Ranges
from fairlead.scheduler.framework_index import plus
from fairlead.scheduler.frameworks.reservations import Move, Moves, count_of, joined
from fairlead.service.mesos.messages.mesos_pb2 import Offer, Resource, Value, Volume
from fairlead.service.mesos.resources import THEIRS, NoResource, base_of, to_mesos

Operation = Offer.Operation
DONE = {
    Operation.RESERVE: "reserve",
    Operation.UNRESERVE: "unreserve",
    Operation.CREATE: "create",
    Operation.DESTROY: "destroy",
}
"""The operations on reservations and volumes that are done, and the fields that say on what."""
Reservation = Resource.ReservationInfo
"""For whom a resource is reserved."""
LONGEST_MARK = 4096
LONGEST_VOLUME_ID = 255
LONGEST_PATH = 1024


class InvalidOperation(ValueError):
    """An operation that cannot be done; the message says why."""


class Mark(NamedTuple):
    """What a parcel is known by, whose it is, and what is said of it."""

    text: str
    role: str
    said: str = ""


def mark_of(resource: Resource) -> Mark | None:
    """The mark of the parcel that a resource is of; None for one that is reserved for nobody. Raises NoResource."""
    kept = _reservation(resource)
    if kept is None:
        if resource.HasField("disk"):
            raise NoResource(f"{resource.name}: a volume is of what is reserved for a role, on the agent's own disk")
        return None
    told: dict[str, Any] = {"role": kept.role}
    if kept.HasField("principal"):
        told["principal"] = kept.principal
    if kept.labels.labels:
        told["labels"] = [
            [each.key, each.value] if each.HasField("value") else [each.key] for each in kept.labels.labels
        ]
    said = ""
    if resource.HasField("disk"):
        told["volume"], said = _volume(resource)
    text = json.dumps(told, separators=(",", ":"))
    if len(text) + len(said) > LONGEST_MARK:
        raise NoResource(f"{resource.name}: what is said of the reservation is too long")
    return Mark(text, kept.role, said)


def _reservation(resource: Resource) -> Reservation | None:
    """For whom a resource is reserved, said in the one way or the other. Raises NoResource."""
    if resource.HasField("shared"):
        raise NoResource(f"{resource.name}: nothing is shared here")
    if len(resource.reservations) > 1:
        raise NoResource(f"{resource.name}: what is reserved is not reserved again here, for a role below")
    kept = Reservation()
    if resource.reservations:
        kept.CopyFrom(resource.reservations[0])
    elif resource.role not in ("", "*"):
        if not resource.HasField("reservation"):
            raise NoResource(f"{resource.name}: there are no static reservations here")
        kept.CopyFrom(resource.reservation)
        kept.role = resource.role
    elif resource.HasField("reservation"):
        raise NoResource(f"{resource.name}: nothing is reserved for role '*'")
    else:
        return None
    if kept.role in ("", "*") or kept.type == Reservation.STATIC:
        raise NoResource(f"{resource.name}: only dynamic reservations for a role are made here")
    return kept


def _volume(resource: Resource) -> tuple[str, str]:
    """The id of a volume, and what is said of it. Raises NoResource."""
    disk = resource.disk
    if resource.name != "disk" or not disk.HasField("persistence") or disk.HasField("source"):
        raise NoResource(f"{resource.name}: a volume is persistent, on the agent's own disk")
    name = disk.persistence.id
    if not name or len(name) > LONGEST_VOLUME_ID or "/" in name or any(ord(each) < 0x21 for each in name):
        raise NoResource(f"{name[:50]!r} is no id of a volume")
    return name, json_format.MessageToJson(disk, preserving_proto_field_name=True, indent=None, sort_keys=True)


class Asked(NamedTuple):
    """What is asked for: in all, of which parcels, where volumes are to be seen, by their marks, and which ports."""

    demand: Quantities
    apart: dict[str, Quantities]
    volumes: dict[str, str]
    ports: Ranges


def asked_of(resources: Iterable[Resource]) -> Asked:
    """What a task asks for. Raises NoResource for what there is none of here."""
    demand: Quantities = {}
    found = Asked(demand, {}, {}, [])
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
                raise NoResource(
                    f"volume {each.disk.persistence.id!r}: say where the task is to see it: disk.volume.container_path"
                )
            found.volumes[mark.text] = each.disk.volume.container_path
    if demand.get("gpu", 0) % 1000:
        raise NoResource("gpus: a part of a GPU cannot be given here: ask for a whole number")
    ports = joined(found.ports)
    if count_of(ports) < count_of(found.ports):
        raise NoResource("ports: one is asked for twice")
    return found._replace(demand={name: amount for name, amount in demand.items() if amount}, ports=ports)


def _ports(resource: Resource) -> Ranges:
    """The ports that a resource is. Raises NoResource."""
    if mark_of(resource) is not None:
        raise NoResource("ports: none are reserved here")
    found = [(each.begin, each.end) for each in resource.ranges.range]
    if any(not 0 <= first <= last < 2**16 for first, last in found):
        raise NoResource("ports: a range goes from a port to the same or a higher one, below 65536")
    return found


def resources_of_parcel(mark: str, said: str, amount: Quantities, role: str | None, refined: bool) -> list[Resource]:
    """A parcel as Mesos' resources, allocated to a role for those who know of that; `refined` as in `resources_of`."""
    told, found = json.loads(mark), []
    for ours, value in amount.items():
        name = THEIRS.get(ours, ours)
        made = Resource(name=name, type=Value.SCALAR)
        made.scalar.value = to_mesos(name, value)
        kept = made.reservations.add(type=Reservation.DYNAMIC, role=told["role"]) if refined else made.reservation
        if not refined:
            made.role = told["role"]
            kept.SetInParent()
        if "principal" in told:
            kept.principal = told["principal"]
        for key, *values in told.get("labels", ()):
            kept.labels.labels.add(key=key, **dict(zip(("value",), values, strict=False)))
        if said:
            json_format.Parse(said, made.disk)
        if role is not None:
            made.allocation_info.role = role
        found.append(made)
    return found


def moves_of(number: int, operation: Offer.Operation, role: str | None, principal: str) -> Moves:
    """What an operation on what is offered to a role comes to, or on any where that is None. Raises InvalidOperation.

    Where who asks has a principal, so have the reservations and volumes: the same.
    """
    try:
        found = [_move(operation, each, role, principal) for each in _resources_of(operation)]
    except NoResource as error:
        raise InvalidOperation(str(error)) from None
    if not found:
        raise InvalidOperation("it says nothing of resources")
    return Moves(number, found)


def _resources_of(operation: Offer.Operation) -> list[Resource]:
    field = DONE[operation.type]
    said = getattr(operation, field)
    if field == "reserve" and any(mark_of(each) is not None for each in said.source):
        raise InvalidOperation("what is reserved is not reserved again here: unreserve it first")
    return list(said.volumes if field in ("create", "destroy") else said.resources)


def _move(operation: Offer.Operation, resource: Resource, role: str | None, principal: str) -> Move:
    """What becomes of one resource."""
    mark, (name, value) = mark_of(resource), base_of(resource)
    if mark is None or not value:
        raise InvalidOperation(f"{resource.name}: it is reserved for no role, or it is nothing")
    if role not in (None, mark.role):
        raise InvalidOperation(f"{resource.name}: it is reserved for role {mark.role!r}, and was offered to {role!r}")
    if resource.HasField("revocable"):
        raise InvalidOperation(f"{resource.name}: what is revocable is not reserved")
    amount, below = {name: value}, _reserved_alone(resource)
    if operation.type in (Operation.RESERVE, Operation.UNRESERVE):
        if resource.HasField("disk"):
            raise InvalidOperation(
                "a volume is neither reserved nor unreserved: create it from what is reserved, or destroy it"
            )
        if operation.type == Operation.UNRESERVE:
            return Move(amount, of=mark.text)
        _check_principal(json.loads(mark.text).get("principal"), principal)
        return Move(amount, mark=mark.text, role=mark.role)
    if not resource.HasField("disk"):
        raise InvalidOperation(f"{resource.name}: it is no volume: it says no disk.persistence")
    if operation.type == Operation.DESTROY:
        return Move(amount, of=mark.text, mark=below, role=mark.role)
    _check_volume(resource.disk, principal)
    return Move(amount, of=below, mark=mark.text, role=mark.role, said=mark.said, whole=True)


def _reserved_alone(resource: Resource) -> str:
    """The mark of what a volume is made from."""
    plain = Resource()
    plain.CopyFrom(resource)
    plain.ClearField("disk")
    mark = mark_of(plain)
    assert mark is not None
    return mark.text


def _check_principal(said: str | None, principal: str) -> None:
    if principal and said != principal:
        raise InvalidOperation(f"it is of principal {said!r}, and asked for by {principal!r}")


def _check_volume(disk: Resource.DiskInfo, principal: str) -> None:
    persistence = disk.persistence
    if not disk.HasField("volume") or disk.volume.HasField("host_path"):
        raise InvalidOperation("a volume says in disk.volume where a task is to see it, and no host_path")
    if wrong := wrong_path(disk.volume.container_path):
        raise InvalidOperation(wrong)
    if disk.volume.mode == Volume.RO:
        raise InvalidOperation("a volume is made to be written to: mode RW")
    _check_principal(persistence.principal if persistence.HasField("principal") else None, principal)


def wrong_path(path: str) -> str:
    """What is wrong with where a task would see a volume; empty where nothing is."""
    if path.startswith("/"):
        return f"container_path {path!r}: without a container a volume is seen in the sandbox: leave out the first /"
    if any(part in ("", ".", "..") or "\0" in part for part in path.split("/")) or len(path) > LONGEST_PATH:
        return f"container_path {path!r} is no path in the sandbox"
    return ""


def is_volume(mark: str) -> bool:
    """Whether a parcel is a volume."""
    return "volume" in json.loads(mark)
