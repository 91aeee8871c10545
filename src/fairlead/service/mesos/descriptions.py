"""Descriptions of frameworks: from Mesos' FrameworkInfo to the scheduler's record, and back."""

import re

from google.protobuf import json_format

from fairlead.model.specs import Framework
from fairlead.people.accounts import Person
from fairlead.scheduler.admission import Refused
from fairlead.service.mesos.encoding import JSON as IN_JSON
from fairlead.service.mesos.encoding import encode
from fairlead.service.mesos.messages.mesos_pb2 import FrameworkInfo

Capability = FrameworkInfo.Capability
LONGEST_ID = 255
MOST_ROLES = 1000
LARGEST_INFO = 64 * 2**10
LONGEST_SECONDS = 2**63 / 1e9
"""The most seconds that Mesos can count in nanoseconds; it refuses more, and treats negative values as 0."""
_ID = re.compile(r"[A-Za-z0-9_.:@=+-]+")


def has(info: FrameworkInfo, capability: FrameworkInfo.Capability.Type) -> bool:
    return any(each.type == capability for each in info.capabilities)


def roles_of(info: FrameworkInfo) -> list[str]:
    """Return the roles of a framework without duplicates; ``*`` if it names none."""
    if has(info, Capability.MULTI_ROLE) or info.roles:
        return list(dict.fromkeys(info.roles))
    return [info.role or "*"]


def check_id(identity: str) -> str:
    """Return a framework's id. Raises Refused for an invalid one."""
    if len(identity) > LONGEST_ID or not _ID.fullmatch(identity) or identity in (".", ".."):
        raise Refused(f"{identity[:50]!r} is not a valid id of a framework")
    return identity


def to_framework(info: FrameworkInfo, person: Person, principal: str) -> Framework:
    """Convert a description to the scheduler's record. Raises Refused."""
    roles = roles_of(info)
    if len(roles) > MOST_ROLES:
        raise Refused(f"{len(roles)} roles: {MOST_ROLES} at most")
    if not abs(info.failover_timeout) <= LONGEST_SECONDS:
        message = f"The framework failover_timeout ({info.failover_timeout:g}) is invalid: at most {LONGEST_SECONDS:.0f} seconds"
        raise Refused(message)
    kept = FrameworkInfo()
    kept.CopyFrom(info)
    kept.user, kept.name = info.user or person.name, info.name
    if info.failover_timeout < 0:
        kept.failover_timeout = 0.0
    kept.ClearField("id")
    if principal:
        kept.principal = principal
    told = encode(IN_JSON, kept).decode("ascii")
    if len(told) > LARGEST_INFO:
        raise Refused(f"the description of the framework is larger than {LARGEST_INFO >> 10} KiB")
    return Framework(
        name=info.name, user=person.name, uid=person.uid, gid=person.gid, principal=principal, roles=roles,
        revocable=has(info, Capability.REVOCABLE_RESOURCES), failover_timeout=kept.failover_timeout,
        partition_aware=has(info, Capability.PARTITION_AWARE), info=told,
    )  # fmt: skip


def info_of(framework: Framework, identity: str) -> FrameworkInfo:
    """Convert the scheduler's record back to a description, with its id."""
    info = json_format.Parse(framework.info or "{}", FrameworkInfo(), ignore_unknown_fields=True)
    info.id.value = identity
    if not info.HasField("user"):
        info.user = framework.user
    if not info.HasField("name"):
        info.name = framework.name
    return info
