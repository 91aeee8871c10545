"""What is kept for whom, whole: reservations, and room that is coming back for claims. And what that idles.

A hold is of one node (:mod:`fairlead.scheduler.tables`); all those of a bucket are one promise to its first job.
"""

from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from fairlead.model.api_types import ReservationInfo
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import F64, I64, RESERVATION, WHY

RESERVED = "reservation"
"""Why room is kept that is not for a claim."""


class Kept(NamedTuple):
    """Room for `tasks[k]` tasks of a job on node row `nodes[k]`, until its bucket uses it.

    leaf : the row of its queue
    why : RESERVED, or as of :class:`fairlead.scheduler.facts.Claim`
    made, start, end : seconds: when something was first kept for it, when it is expected to start, and to be over
    slips : how often the start passed in vain
    idle : int64, shape (resources,): free room that is kept for it from others; `idled`, what that has been so far, times seconds
    """

    job: int
    bucket: int
    leaf: int
    why: str
    made: float
    start: float
    end: float
    slips: int
    nodes: list[int]
    tasks: list[int]
    idle: I64
    idled: F64


def all_kept(state: State, now: float) -> list[Kept]:
    """All that is kept, as it is at a moment after which nothing has happened."""
    holds = state.holds
    idled = idled_by_hold(state, now)
    found = []
    for bucket, group in groupby(range(holds.n), key=lambda h: int(holds.bucket[h])):  # rows of one lie together
        rows = list(group)
        first, kind = rows[0], int(holds.kind[rows[0]])
        made = float(holds.made[first] or holds.since[first])  # snapshots of before it was noted have 0
        found.append(
            Kept(
                int(holds.job[first]), bucket, int(state.buckets.leaf[bucket]), RESERVED if kind == RESERVATION else WHY[kind],
                made, float(holds.start[first]), float(holds.end[first]), int(holds.slips[first]),
                holds.node[rows].tolist(), holds.tasks[rows].tolist(), holds.idle[rows].sum(axis=0), idled[rows].sum(axis=0),
            )
        )  # fmt: skip
    return found


def idled_by_hold(state: State, now: float) -> F64:
    """What each hold has idled until a moment after which nothing has happened: shape (holds, resources)."""
    holds, n = state.holds, state.holds.n
    lasted = np.maximum(0.0, now - holds.counted[:n])
    found: F64 = holds.idled[:n] + holds.idle[:n] * lasted[:, None]
    return found


def idled_by_queue(state: State, now: float) -> F64:
    """What lay free for all promises to each leaf, base units times seconds: shape (queues, resources)."""
    found = state.queues.idled_before[: state.queues.n].copy()
    leaves = state.buckets.leaf[state.holds.bucket[: state.holds.n]]
    np.add.at(found, leaves, idled_by_hold(state, now))
    return found


def describe_kept(state: State, now: float) -> list[ReservationInfo]:
    """All that is kept, for people and programs."""
    return [
        {
            "job": kept.job,
            "queue": state.called(state.tree.names[kept.leaf]),
            "why": kept.why,
            "made": kept.made,
            "start": kept.start,
            "slips": kept.slips,
            "nodes": len(kept.nodes),
            "tasks": sum(kept.tasks),
            "idle": state.quantities(kept.idle),
            "idled": hours(state, kept.idled),
        }
        for kept in all_kept(state, now)
    ]


def idled_queues(state: State, now: float) -> list[dict[str, Any]]:
    """The leaves for which something lay free, each with what: base units x hours."""
    idled = idled_by_queue(state, now)
    rows = np.flatnonzero(idled.any(axis=1)).tolist()
    return [{"name": state.called(state.tree.names[row]), "idled": hours(state, idled[row])} for row in rows]


def hours(state: State, idled: F64) -> dict[str, float]:
    """Base units x hours by resource, of base units times seconds."""
    return {name: float(x) / 3600 for name, x in zip(state.resources, idled, strict=True) if x > 0}
