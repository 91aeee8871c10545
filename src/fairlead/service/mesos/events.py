"""Events and statuses for frameworks, as Mesos messages."""

import struct
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from fairlead.model.specs import Framework, Node, Offer
from fairlead.service.mesos.descriptions import Capability, has, info_of
from fairlead.service.mesos.messages import mesos_pb2
from fairlead.service.mesos.messages.mesos_pb2 import Attribute, OperationState, TaskState, TaskStatus, Value
from fairlead.service.mesos.messages.scheduler_pb2 import Event
from fairlead.service.mesos.reservations import resources_of_reservation
from fairlead.service.mesos.resources import ports_of, resources_of
from fairlead.service.mesos.streams import HEARTBEAT_SECONDS

VERSION = "1.11.0"
"""The Mesos version whose API this implements."""
_UUID = struct.Struct(">QQ")


class Knows(NamedTuple):
    """The capabilities of a framework that change the messages it gets."""

    roles: bool
    refined: bool
    revocable: bool


def knows(framework: Framework) -> Knows:
    return Knows(*_of_roles(framework.info), framework.revocable)


@lru_cache(maxsize=10_000)
def _of_roles(info: str) -> tuple[bool, bool]:
    """True if a description has the capabilities for roles, and for stacked reservations."""
    said = info_of(Framework("", info=info), "")
    return has(said, Capability.MULTI_ROLE), has(said, Capability.RESERVATION_REFINEMENT)


def subscribed(framework: str, master: mesos_pb2.MasterInfo) -> Event:
    event = Event(type=Event.SUBSCRIBED)
    event.subscribed.framework_id.value = framework
    event.subscribed.heartbeat_interval_seconds = HEARTBEAT_SECONDS
    event.subscribed.master_info.CopyFrom(master)
    return event


def offer_name(number: int) -> str:
    return f"O{number}"


def offer_number(name: str) -> int:
    """Return the number of an offer from its id; -1 for an invalid id."""
    digits = name[1:]
    return int(digits) if name[:1] == "O" and digits.isascii() and digits.isdigit() and len(digits) < 18 else -1


def to_offer(offer: Offer, node: Node, known: Knows, said: Mapping[str, str], executors: Iterable[str] = ()) -> mesos_pb2.Offer:
    """Convert an offer to a message.

    `said` describes each of its reservations, by mark; `executors` are those of the framework on the node.
    """
    made = mesos_pb2.Offer()
    made.id.value = offer_name(offer.id)
    made.framework_id.value = offer.framework
    made.agent_id.value = made.hostname = node.name
    role = offer.role if known.roles else None
    made.resources.extend(resources_of(offer.amount, role=role, revocable=known.revocable, refined=known.refined))
    if offer.ports:
        made.resources.append(ports_of(offer.ports, role, known.refined))
    for mark, amount in offer.apart.items():
        made.resources.extend(resources_of_reservation(mark, said.get(mark, ""), amount, role, known.refined))
    made.attributes.extend(attributes_of(node.labels))
    made.executor_ids.extend(mesos_pb2.ExecutorID(value=name) for name in executors)
    if known.roles:
        made.allocation_info.role = offer.role
    return made


def attributes_of(labels: Mapping[str, str]) -> list[Attribute]:
    return [Attribute(name=name, type=Value.TEXT, text=Value.Text(value=value)) for name, value in labels.items()]


def offers(made: Iterable[mesos_pb2.Offer]) -> Event:
    event = Event(type=Event.OFFERS)
    event.offers.offers.extend(made)
    return event


def rescind(number: int) -> Event:
    event = Event(type=Event.RESCIND)
    event.rescind.offer_id.value = offer_name(number)
    return event


def failure(agent: str, executor: str = "", status: int | None = None) -> Event:
    """Make the event that an agent is lost, or that an executor on it has ended with this wait status."""
    event = Event(type=Event.FAILURE)
    event.failure.agent_id.value = agent
    if executor:
        event.failure.executor_id.value = executor
        event.failure.status = -1 if status is None else status
    return event


def message(agent: str, executor: str, data: bytes) -> Event:
    """Make the event that an executor sends its framework a message."""
    event = Event(type=Event.MESSAGE)
    event.message.agent_id.value, event.message.executor_id.value, event.message.data = agent, executor, data
    return event


def operation_status(operation: str, state: OperationState, message: str, agent: str = "") -> Event:
    """Make the event with the result of an operation that has an id."""
    event = Event(type=Event.UPDATE_OPERATION_STATUS)
    told = event.update_operation_status.status
    told.operation_id.value, told.state, told.message = operation, state, message
    if agent:
        told.agent_id.value = agent
    return event


def error_event(message: str) -> Event:
    return Event(type=Event.ERROR, error=Event.Error(message=message))


def update(status: TaskStatus) -> Event:
    return Event(type=Event.UPDATE, update=Event.Update(status=status))


def status(
    task: str,
    state: TaskState,
    *,
    agent: str = "",
    source: TaskStatus.Source = TaskStatus.SOURCE_MASTER,
    reason: "TaskStatus.Reason | None" = None,
    message: str = "",
    at: float | None = None,
    uuid: bytes = b"",
    executor: str = "",
) -> TaskStatus:
    """Make the status of a task; `at` is wall clock time in seconds, by default now.

    The executor of a command is named after its task.
    """
    made = TaskStatus(state=state, source=source, timestamp=time.time() if at is None else at)
    made.task_id.value = task
    if agent:
        made.agent_id.value = agent
    if reason is not None:
        made.reason = reason
    if message:
        made.message = message
    if uuid:
        made.uuid = uuid
    if source == TaskStatus.SOURCE_EXECUTOR:
        made.executor_id.value = executor or task
    return made


def uuid_of(job: int, number: int) -> bytes:
    """Return the uuid of an update: its task's job and its number."""
    return _UUID.pack(job, number)


def update_of(uuid: bytes) -> tuple[int, int]:
    job, number = _UUID.unpack(uuid)
    return job, number
