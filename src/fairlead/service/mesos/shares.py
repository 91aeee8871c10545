"""Weights and quota set over Mesos' API: pure functions from the current configuration to a new one.

Such settings last until fairlead.toml is reloaded; write permanent ones there.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from fairlead.model.quantity import format_quantities
from fairlead.model.specs import ROOT, USERS, Quantities, Queue, ancestors
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Configured
from fairlead.scheduler.framework_index import queue_of
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.queue_tree import amounts_of
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import vector
from fairlead.service.mesos.messages.mesos_pb2 import Value, WeightInfo
from fairlead.service.mesos.messages.quota_pb2 import QuotaConfig
from fairlead.service.mesos.resources import NAMES, to_base

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-6, 1e6


def with_weights(state: State, infos: Iterable[WeightInfo], now: float) -> Configured | None:
    """Return the fact that sets weights of roles; None if nothing changes. Raises Refused."""
    queues = dict(state.tree.declared)
    for info in infos:
        if not LEAST_WEIGHT <= info.weight <= LARGEST_WEIGHT:
            message = f"role {info.role!r}: weight {info.weight:g} is out of range: use {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
            raise Refused(message)
        name = _declared(queues, info.role)
        queues[name] = replace(queues[name], weight=info.weight)
    return _configured(state, queues, now)


def with_quota(state: State, configs: Iterable[QuotaConfig], force: bool, now: float) -> Configured | None:
    """Return the fact that sets guarantees and limits of roles, all or none; None if nothing changes. Raises Refused."""
    queues = dict(state.tree.declared)
    for config in configs:
        role = config.role
        if "/" in role or role == USERS:
            raise Refused(f"role {role!r}: quota is only for named roles of the first level")
        guarantee, limit = _amounts(config.guarantees), _amounts(config.limits)
        above = [name for name, amount in guarantee.items() if amount > limit.get(name, amount)]
        if above:
            raise Refused(f"role {role!r}: the guarantee of {above[0]} is above the limit")
        used = frameworks.exceeded(state, role, limit)
        if used is not None and not force:
            raise Refused(f"role {role!r} uses more than that limit already: wait until it uses less, or set force")
        name = _declared(queues, role)
        queues[name] = replace(queues[name], guarantee=guarantee, limit=limit, guarantee_percent={}, limit_percent={})
    if not force:
        _check_there_is_as_much(state, queues)
    return _configured(state, queues, now)


def _check_there_is_as_much(state: State, queues: Mapping[str, Queue]) -> None:
    """Raise Refused if guarantees exceed the capacity of the nodes that take tasks."""
    first = [queue for name, queue in queues.items() if name != ROOT and "/" not in name]
    capacity = state.quantities(state.cluster.open)
    names = sorted({*capacity, *(name for queue in first for name in queue.guarantee)})
    total = vector(capacity, names)
    sums = sum((amounts_of(queue.guarantee, queue.guarantee_percent, names, total, 0) for queue in first), 0 * total)
    if (sums > total).any():
        guaranteed = {name: int(amount) for name, amount in zip(names, sums, strict=True) if amount}
        raise Refused(
            f"Invalid QuotaConfig: total quota guarantees '{format_quantities(guaranteed)}' exceed cluster capacity "
            f"'{format_quantities(capacity)}' (use 'force' flag to bypass this check)"
        )


def _amounts(said: Mapping[str, Value.Scalar]) -> Quantities:
    return {NAMES.get(name, name): to_base(name, scalar.value) for name, scalar in said.items()}


def _declared(queues: dict[str, Queue], role: str) -> str:
    """Declare the queue of a role and those above it; return its name."""
    fault = frameworks.check_role(role)
    if fault:
        raise Refused(fault)
    name = queue_of(role)
    for each in (name, *ancestors(name)):
        if each != ROOT:
            queues.setdefault(each, Queue(each))
    return name


def _configured(state: State, queues: Mapping[str, Queue], now: float) -> Configured | None:
    if queues == state.tree.declared:
        return None
    ordered = sorted(queues.values(), key=lambda queue: (queue.name.count("/"), queue.name))
    return admission.configure(state, ordered, state.settings, now)
