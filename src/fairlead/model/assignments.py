"""Assignments such as ``queue.research/vision.weight=2``, which change single keys of a configuration document."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from fairlead.failure import WrongUsage
from fairlead.model.documents import Configuration, DocumentError, NodeTable, QueueTable, Table, configuration_of
from fairlead.model.faults import shortened
from fairlead.model.quantity import format_quantity
from fairlead.model.specs import NEVER, USERS, Queue, Settings, settings_for, written

NAMED: dict[str, type[Table]] = {"queue": QueueTable, "node": NodeTable}
"""Lists of tables whose members an assignment finds by name."""
SECONDS = ("history", "guarantee_timeout", "fair_share_timeout", "min_runtime", "grace")
OUTER = ("operators", "root_tasks", "bounds", "placement")
"""Settings that are tables and keys of their own in a document, not keys of ``[scheduler]``."""


def with_changes(raw: dict[str, Any], changes: Sequence[str], check_policy: Callable[[str], object]) -> Configuration:
    """Change keys of a document, as TOML or JSON gives it, in place, and validate it as a whole.

    Each change is ``KEY=VALUE``: ``scheduler.idle_budget=0.05``, ``queue./.min_runtime=10min``, ``queue.lab.limit.cpu=8``. Values
    are TOML; text needs no quotes. Raises WrongUsage if one is malformed; DocumentError if one names an unknown queue or node, or
    makes the document invalid.
    """
    for change in changes:
        key, equals, value = change.partition("=")
        path = _path(key.strip())
        if not equals or not all(path):
            raise WrongUsage(f"--set {shortened(change)}: write KEY=VALUE, such as scheduler.idle_budget=0.05")
        _assign(raw, path, _value(value.strip()), f"--set {shortened(change)}")
    return configuration_of(raw, check_policy, " ".join(f"--set {shortened(change)}" for change in changes))


def _path(key: str) -> list[str]:
    """Split a key at its dots; a queue or node is one part, though its name may have dots."""
    first, *rest = key.split(".")
    if first not in NAMED or len(rest) < 2:
        return [first, *rest]
    fields = NAMED[first].model_fields
    end = next((k for k in range(1, len(rest)) if rest[k] in fields), len(rest) - 1)
    return [first, ".".join(rest[:end]), *rest[end:]]


def _value(text: str) -> Any:
    try:
        found = tomllib.loads(f"x = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["x"] if len(found) == 1 else text


def _assign(table: Any, path: Sequence[str], value: Any, where: str) -> None:
    if path[0] in NAMED and len(path) > 1:
        table, path = _named(table, path[0], path[1], where), path[2:]
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise DocumentError(f"{where}: {part} is not a table: write it as a whole")
    if not path:
        raise WrongUsage(f"{where}: names no key: write KEY=VALUE, such as queue.NAME.weight=2")
    table[path[-1]] = value


def _named(raw: dict[str, Any], kind: str, name: str, where: str) -> dict[str, Any]:
    """Return the table of a queue or node; that of the root or of a user's leaf is added."""
    tables: list[dict[str, Any]] = raw.setdefault(kind, [])
    if kind == "queue" and not tables:
        tables.append({"name": USERS})
    name = name if name == "/" else name.strip("/")
    for table in tables:
        if table.get("name") == name:
            return table
    declared = {table.get("name", ""): Queue(table.get("name", "")) for table in tables}
    if kind == "node" or (name != "/" and settings_for(name, declared) is None):
        some = ", ".join(list(declared)[:10]) + ", ..." * (len(declared) > 10)
        there = f"choose one of {some}" if declared else f"there are no [[{kind}]] tables"
        raise DocumentError(f"{where}: there is no {kind} {name!r}: {there}")
    tables.append({"name": name})
    return tables[-1]


def as_document(queues: Sequence[Queue], settings: Settings) -> dict[str, Any]:
    """Return queues and settings as the document that :func:`configuration_of` makes them of."""
    scheduler = msgspec.to_builtins(settings)
    outer = {key: scheduler.pop(key) for key in OUTER if key in scheduler}
    if "bounds" in outer:
        outer["bounds"] = {written(name): own for name, own in outer["bounds"].items()}
    if "ports" in scheduler:
        scheduler["ports"] = ",".join(f"{first}-{last}" for first, last in settings.ports)
    _write_offer(scheduler)
    return {"queue": [_table(queue) for queue in queues], "scheduler": scheduler, **outer}


def _table(queue: Queue) -> dict[str, Any]:
    found = {**msgspec.to_builtins(queue), "name": written(queue.name)}
    for key in ("guarantee", "limit"):
        percent = {name: f"{amount:.9f}%" for name, amount in found.pop(f"{key}_percent", {}).items()}
        if amounts := {**_amounts(found.get(key, {})), **percent}:
            found[key] = amounts
    for key in ("largest_task", "borrow", "lend"):
        if key in found:
            found[key] = _amounts(found[key])
    for key in SECONDS:
        if found.get(key) is not None:
            words = {NEVER: "never"} | ({0.0: "none"} if key == "history" else {})
            found[key] = words.get(found[key], found[key])
    _write_offer(found)
    return found


def _write_offer(table: dict[str, Any]) -> None:
    if "offer_most" in table:
        table["offer"] = {"most": f"{table.pop('offer_most'):.9f}%"}


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: format_quantity(name, amount) for name, amount in amounts.items()}
