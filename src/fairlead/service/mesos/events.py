"""Events and statuses for frameworks, as Mesos messages."""

import struct
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache

from fairlead.model.specs import Framework, Node, Offer
from fairlead.scheduler.framework_index import RoleReservation
from fairlead.service.mesos.descriptions import Capability, has, info_of
from fairlead.service.mesos.messages import mesos_pb2
from fairlead.service.mesos.messages.mesos_pb2 import Attribute, OperationState, TaskState, TaskStatus, Value
from fairlead.service.mesos.messages.scheduler_pb2 import Event
from fairlead.service.mesos.resources import ports_of, resources_of, resources_of_reservation
from fairlead.service.mesos.streams import HEARTBEAT_SECONDS

VERSION = "1.11.0"
"""The Mesos version whose API this implements."""
UUID = struct.Struct(">QQ")
"""Of an update: its task's job and its number."""


@lru_cache(maxsize=10_000)
def _capabilities(info: str) -> tuple[bool, bool]:
    """Return whether a framework of this description knows roles, and stacked reservations, which changes what it is sent."""
    said = info_of(Framework("", info=info), "")
    return has(said, Capability.MULTI_ROLE), has(said, Capability.RESERVATION_REFINEMENT)


def subscribed(framework: str, master: mesos_pb2.MasterInfo) -> Event:
    about = {"framework_id": {"value": framework}, "heartbeat_interval_seconds": HEARTBEAT_SECONDS, "master_info": master}
    return Event(type=Event.SUBSCRIBED, subscribed=about)


def offer_name(number: int) -> str:
    return f"O{number}"


def offer_number(name: str) -> int:
    """Return the number of an offer from its id; -1 for an invalid id."""
    digits = name[1:]
    return int(digits) if name[:1] == "O" and digits.isascii() and digits.isdigit() and len(digits) < 18 else -1


def to_offer(
    offer: Offer, node: Node, framework: Framework, reservations: Mapping[str, RoleReservation], executors: Iterable[str] = ()
) -> mesos_pb2.Offer:
    """Convert an offer to a message.

    `reservations` are those on the node, by mark; `executors` are those of the framework on the node.
    """
    knows_roles, refined = _capabilities(framework.info)
    role = offer.role if knows_roles else None
    resources = resources_of(offer.amount, role=role, revocable=framework.revocable, refined=refined)
    resources += ports_of(offer.ports, role, refined)
    for mark, amount in offer.apart.items():
        said = reservations[mark].said if mark in reservations else ""
        resources += resources_of_reservation(mark, said, amount, role, refined)
    return mesos_pb2.Offer(
        id={"value": offer_name(offer.id)}, framework_id={"value": offer.framework}, agent_id={"value": node.name},
        hostname=node.name, resources=resources, attributes=attributes_of(node.labels),
        executor_ids=[{"value": name} for name in executors], allocation_info={"role": role} if knows_roles else None,
    )  # fmt: skip


def attributes_of(labels: Mapping[str, str]) -> list[Attribute]:
    return [Attribute(name=name, type=Value.TEXT, text={"value": value}) for name, value in labels.items()]


def rescind(number: int) -> Event:
    return Event(type=Event.RESCIND, rescind={"offer_id": {"value": offer_name(number)}})


def failure(agent: str, executor: str = "", status: int | None = None) -> Event:
    """Make the event that an agent is lost, or that an executor on it has ended with this wait status."""
    ended = {"executor_id": {"value": executor}, "status": -1 if status is None else status} if executor else {}
    return Event(type=Event.FAILURE, failure={"agent_id": {"value": agent}, **ended})


def message(agent: str, executor: str, data: bytes) -> Event:
    """Make the event that an executor sends its framework a message."""
    return Event(type=Event.MESSAGE, message={"agent_id": {"value": agent}, "executor_id": {"value": executor}, "data": data})


def operation_status(operation: str, state: OperationState, message: str, agent: str = "") -> Event:
    """Make the event with the result of an operation that has an id."""
    told = {"operation_id": {"value": operation}, "state": state, "message": message, "agent_id": _id(agent)}
    return Event(type=Event.UPDATE_OPERATION_STATUS, update_operation_status={"status": told})


def error_event(message: str) -> Event:
    return Event(type=Event.ERROR, error={"message": message})


def update(status: TaskStatus) -> Event:
    return Event(type=Event.UPDATE, update={"status": status})


def _id(name: str) -> dict[str, str] | None:
    return {"value": name} if name else None


def status(
    task: str, state: TaskState, agent: str, reason: "TaskStatus.Reason | None" = None, message: str = "", at: float | None = None
) -> TaskStatus:
    """Make the status of a task, as the master tells it; `at` is wall clock time in seconds, by default now."""
    return TaskStatus(
        task_id={"value": task}, state=state, source=TaskStatus.SOURCE_MASTER, timestamp=time.time() if at is None else at,
        agent_id=_id(agent), reason=reason, message=message or None,
    )  # fmt: skip
