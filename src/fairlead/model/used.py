"""Sums of the use of several users or queues."""

from collections.abc import Mapping

from fairlead.model.api_types import UsedBy


def together(one: UsedBy, other: UsedBy) -> UsedBy:
    """Add two sums. The result has the queue and user of the first."""
    peaks = [row["peak_memory"] for row in (one, other) if row["peak_memory"] is not None]
    return {
        **one,
        "tasks": one["tasks"] + other["tasks"],
        "waiting": one.get("waiting", 0) + other.get("waiting", 0),  # a scheduler of an older version reports none
        "failed": one["failed"] + other["failed"],
        "asked": _sum(one["asked"], other["asked"]),
        "lost": _sum(one["lost"], other["lost"]),
        "cpu_hours": one["cpu_hours"] + other["cpu_hours"],
        "peak_memory": max(peaks, default=None),
        "calls": one.get("calls", 0) + other.get("calls", 0),
        "call_hours": one.get("call_hours", 0.0) + other.get("call_hours", 0.0),
        "entitled": one.get("entitled", 0.0) + other.get("entitled", 0.0),
        "got": one.get("got", 0.0) + other.get("got", 0.0),
    }


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}
