"""A Mesos master's roles, weights and quotas as fairlead.toml. Settings without a counterpart are listed.

A role becomes a queue at the same place in the tree; its weight and quota cover everything below it, as in Mesos. As in Mesos,
the frameworks of a role with roles below it are in a queue `path/.` of weight 1; the scheduler makes it when the first
subscribes.
"""

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from fairlead.imports.imported import Imported, document, toml_key
from fairlead.imports.mesos_state import Amounts, Role, State
from fairlead.model.documents import check_queue_name
from fairlead.model.quantity import parse_quantity, plain_number
from fairlead.model.specs import LEAST_WEIGHT, ancestors
from fairlead.plain_text import plain

RESOURCES = {"cpus": "cpu", "mem": "memory", "gpus": "gpu", "disk": "disk"}
"""Mesos' resource names to fairlead's; all others are the same."""
IN_MIB = ("mem", "disk")
ANYBODY, NAMED = "*", "default"
"""Mesos' default role, and its queue."""
MOST_WEIGHT = 1e9


def import_mesos(state: State, source: str) -> Imported:
    """Convert a master's state to a fairlead.toml.

    source : its origin, for the first line

    Examples
    --------
    >>> state = State(roles=[Role(name="ads", weight=2), Role(name="web")])
    >>> print(import_mesos(state, "state.json").text.strip())
    # Made from state.json of a Mesos master.
    <BLANKLINE>
    [[queue]]
    name = "/"
    policy = "drf"
    history = "none"  # Mesos counts only current allocations
    <BLANKLINE>
    [[queue]]  # role ads
    name = "ads"
    weight = 2.0  # its weight
    <BLANKLINE>
    [[queue]]  # role web
    name = "web"
    """
    left_out: list[str] = []
    blocks = ['[[queue]]\nname = "/"\npolicy = "drf"\nhistory = "none"  # Mesos counts only current allocations']
    roles = _roles(state, left_out)
    blocks += [_block(*each, left_out) for each in sorted(roles.items(), key=lambda item: item[0].split("/"))]
    left_out += _the_rest(state)
    version = f" {plain(state.version)}" if state.version else ""
    text = document(f"{plain(source)} of a Mesos{version} master", {"Left out": left_out}, blocks if roles else [])
    return Imported(text, left_out)


def _roles(state: State, left_out: list[str]) -> dict[str, Role]:
    """Return all roles by queue path: the declared, those of frameworks, and those above them."""
    by_name: dict[str, Role] = {}
    if state.roles is None:
        left_out.append("quota: /state does not report it: save /roles as well, and name it with --roles")
    for role in state.roles or ():
        if role.name in by_name:
            left_out.append(f"role {plain(role.name)}: it is named twice: the first holds")
        by_name.setdefault(role.name, role)
    for name, weight in _weights(state, left_out).items():
        if by_name.setdefault(name, Role(name=name, weight=weight)).weight != weight:
            left_out.append(f"flag weights: {plain(name)}={weight:g}: the master reports {by_name[name].weight:g}")
    for framework in state.frameworks:
        for name in framework.all_roles():
            by_name.setdefault(name, Role(name=name))
    roles: dict[str, Role] = {}
    for name, role in by_name.items():
        path = NAMED if name == ANYBODY else name
        is_used = role.frameworks or any(name in each.all_roles() for each in state.frameworks)
        if name == ANYBODY and not is_used and role.weight == 1:
            continue
        try:
            check_queue_name(path)
        except ValueError as error:
            left_out.append(f"role {plain(name)}: {plain(str(error))}")
            continue
        if path in roles or (name == ANYBODY and NAMED in by_name):
            left_out.append(f"role {plain(name)}: a role {NAMED!r} exists as well: rename one of them")
            continue
        roles[path] = role
    for path in list(roles):
        for up in ancestors(path):
            if up:
                roles.setdefault(up, Role(name=up))
    return roles


def _weights(state: State, left_out: list[str]) -> dict[str, float]:
    """Read the master's flag `--weights`: ``a=2,b=1``."""
    weights: dict[str, float] = {}
    for part in filter(None, str(state.flags.get("weights") or "").split(",")):
        name, _, weight = part.partition("=")
        try:
            number = Role(name=name, weight=float(plain_number(weight))).weight
        except ValueError:
            left_out.append(f"flag weights: {plain(part)}: not ROLE=WEIGHT")
            continue
        if name in weights:
            left_out.append(f"flag weights: {plain(part)}: it is named twice: the first holds")
        weights.setdefault(name, number)
    return weights


def _block(path: str, role: Role, left_out: list[str]) -> str:
    lines = [f"[[queue]]  # role {plain(role.name)}", f"name = {json.dumps(path)}"]
    if not LEAST_WEIGHT <= role.weight <= MOST_WEIGHT:
        left_out.append(f"role {plain(role.name)}: weight {role.weight:g}: not from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}")
    elif role.weight != 1:
        lines.append(f"weight = {role.weight!r}  # its weight")
    for key, amounts in (("guarantee", role.quota.guarantee), ("limit", role.quota.limit)):
        if amounts:
            lines.append(f"{key} = {_table(role, amounts, left_out)}  # its quota's {key}")
    return "\n".join(lines)


def _table(role: Role, amounts: Amounts, left_out: list[str]) -> str:
    parts = []
    for name, amount in amounts.items():
        ours = RESOURCES.get(name, name)
        text = f'"{_mebibytes(amount)}"' if name in IN_MIB else _number(amount)
        try:
            parse_quantity(ours, text.strip('"'))
        except ValueError as error:
            left_out.append(f"role {plain(role.name)}: quota of {plain(name)}: {plain(str(error))}")
            continue
        parts.append(f"{toml_key(ours)} = {text}")
    return "{ " + ", ".join(parts) + " }"


def _number(value: float) -> str:
    """Format a number to Mesos' three decimals."""
    return f"{Decimal(repr(value)).quantize(Decimal('0.001')).normalize():f}"


def _mebibytes(value: float) -> str:
    """Format memory or disk; Mesos' MB are MiB."""
    return f"{_number(value / 1024)}Gi" if value % 1024 == 0 else f"{_number(value)}Mi"


def _the_rest(state: State) -> Iterator[str]:
    """Yield notes on what else has no counterpart."""
    reserved: dict[str, Counter[str]] = {}
    for agent in state.agents:
        for role, amounts in agent.reserved_resources.items():
            reserved.setdefault(role, Counter()).update(amounts)
    for role, sums in reserved.items():
        parts = ", ".join(f"{name} {_number(amount)}" for name, amount in sums.items() if amount)
        if parts:
            yield (
                f"reserved for {plain(role)}: {plain(parts)}: on Mesos' agents: its frameworks reserve again from their "
                "offers, or an operator does with RESERVE_RESOURCES"
            )
    excluded = state.flags.get("fair_sharing_excluded_resource_names")
    if excluded:
        yield f"flag fair_sharing_excluded_resource_names={plain(str(excluded))}: all resources count"
    if state.flags.get("acls"):
        yield "flag acls: who may do what: write `submit` and `admin` of each queue"
