"""Sums of the use of several users or queues."""

from collections.abc import Mapping
from typing import Any

from fairlead.model.api_types import UsedBy

ADDED = ("tasks", "waiting", "failed", "cpu_hours", "calls", "call_hours", "entitled", "got")


def together(one: UsedBy, other: UsedBy) -> UsedBy:
    """Add two sums. The result has the queue and user of the first."""
    peaks = [row["peak_memory"] for row in (one, other) if row["peak_memory"] is not None]
    added: Any = _sum(*({name: row.get(name, 0) for name in ADDED} for row in (one, other)))  # an older scheduler has not all
    amounts: Any = {"asked": _sum(one["asked"], other["asked"]), "lost": _sum(one["lost"], other["lost"])}
    return {**one, **added, **amounts, "peak_memory": max(peaks, default=None)}


def _sum(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
