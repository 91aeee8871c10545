"""Reservations and what is held for claims, per job; and the resources they idle.

A hold is of one node (:mod:`fairlead.scheduler.tables`); all holds of a group are one promise to its first job.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from fairlead.model.api_types import PromisesInfo, ReservationInfo, ReservationOverTime
from fairlead.scheduler.facts import Fact, NodesReserved, TasksPlaced
from fairlead.scheduler.forecasts import any_end_known
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.reports.claims import KEPT
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import RESERVATION as RESERVATION_LIFECYCLE
from fairlead.scheduler.tables import F64, I64, NONE, RESERVATION, WHY

RESERVED = "reservation"
"""Why resources are held that are not for a claim."""
PLANNED, _ = RESERVATION_LIFECYCLE.statuses


class JobHolds(NamedTuple):
    """Resources for `tasks[k]` tasks of a job on node row `nodes[k]`, held until its group uses them.

    Of several gangs these are for the one that starts first, as all of this but what idles.

    leaf : row of its queue
    why : RESERVED, or as in :class:`fairlead.scheduler.facts.Claim`
    made, start, end : seconds: when it was first made; its expected start and end
    slips : how often the start passed without success
    idle : int64, shape (resources,): free resources that it keeps from others
    idled : float64, shape (resources,): what it kept idle so far, times seconds
    """

    job: int
    group: int
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


def holds_by_job(state: State, now: float) -> list[JobHolds]:
    """Return all that is held, per job; `now` is a time since which nothing has happened."""
    holds = state.holds
    idled = idled_by_hold(state, now)
    found = []
    for group, members in groupby(range(holds.n), key=lambda h: int(holds.group[h])):  # its rows are adjacent
        rows = list(members)
        first = min(rows, key=lambda h: float(holds.start[h]))
        kind, made = int(holds.kind[first]), float(holds.made[first])
        shown = [h for h in rows if holds.number[h] == holds.number[first]] if state.groups.gang[group] else rows
        nodes, place = np.unique(holds.node[shown], return_inverse=True)  # several reservations may be on one
        tasks = np.bincount(place, holds.tasks[shown])
        found.append(
            JobHolds(
                int(holds.job[first]), group, int(state.groups.leaf[group]), RESERVED if kind == RESERVATION else WHY[kind],
                made, float(holds.start[first]), float(holds.end[first]), int(holds.slips[first]),
                nodes.tolist(), tasks.astype(int).tolist(), holds.idle[rows].sum(axis=0), idled[rows].sum(axis=0),
            )
        )  # fmt: skip
    return found


def kept_by_guarantee(state: State, group: int) -> str:
    """Return as the end of a sentence whose tasks within a guarantee leave a group no room; nothing if there is room."""
    leaf = int(scheduling.kept_by_guarantee(state.view(), group))
    if leaf == NONE:
        return ""
    return f"; no room is reserved for it: tasks of {state.tree.names[leaf]} within a guarantee go first, and leave it too little"


def idled_by_hold(state: State, now: float) -> F64:
    """Return what each hold has idled until `now`, since when nothing has happened; shape (holds, resources)."""
    holds, n = state.holds, state.holds.n
    lasted = np.maximum(0.0, now - holds.counted[:n])
    return holds.idled[:n] + holds.idle[:n] * lasted[:, None]


def idled_by_queue(state: State, now: float) -> F64:
    """Return what was idle for all promises to each leaf, base units times seconds; shape (queues, resources)."""
    found = state.queues.idled_before[: state.queues.n].copy()
    leaves = state.groups.leaf[state.holds.group[: state.holds.n]]
    np.add.at(found, leaves, idled_by_hold(state, now))
    return found


def describe_holds(state: State, now: float) -> list[ReservationInfo]:
    """Return all that is held, for people and programs."""
    return [
        {
            "job": kept.job, "queue": state.display_name(state.tree.names[kept.leaf]), "why": kept.why, "made": kept.made,
            "start": kept.start, "slips": kept.slips, "status": PLANNED if kept.why == RESERVED else KEPT,
            "nodes": len(kept.nodes), "tasks": sum(kept.tasks), "idle": state.quantities(kept.idle),
            "idled": hours(state.resources, kept.idled),
        }
        for kept in holds_by_job(state, now)
    ]  # fmt: skip


def idled_queues(state: State, now: float) -> list[dict[str, Any]]:
    """Return the leaves for which something was idle, with base units x hours."""
    idled = idled_by_queue(state, now)
    rows = np.flatnonzero(idled.any(axis=1)).tolist()
    return [{"name": state.display_name(state.tree.names[row]), "idled": hours(state.resources, idled[row])} for row in rows]


def hours(resources: list[str], idled: F64) -> dict[str, float]:
    """Convert base units times seconds to base units x hours, by resource."""
    return {name: float(x) / 3600 for name, x in zip(resources, idled, strict=False) if x > 0}


MOST_LISTED = 50
"""Reservations that are listed, most idle first."""


@dataclass
class _Promise:
    """What was held for a job: see :class:`fairlead.model.api_types.ReservationOverTime`.

    idled : float64, shape (resources,): base units times seconds
    share : the largest idle part of any resource, times seconds
    """

    job: int
    queue: str
    why: str
    made: float
    start: float
    slips: int
    idled: Any
    share: float = 0.0
    until: float | None = None
    used: bool | None = None
    passed: int = 0  # slips, also while nobody knew when it starts


class Promises:
    """Adds up what is idle for each promise. The idle part of a hold changes only with facts."""

    def __init__(self, state: State) -> None:
        self._open: dict[int, _Promise] = {}
        self._over: list[_Promise] = []
        self._jobs = np.zeros(0, np.int64)  # by hold
        self._rows: I64 = self._jobs
        self._numbers: I64 = self._jobs
        self._update(state, None)

    def pass_time(self, state: State, seconds: float) -> None:
        """Add what is idle for this long."""
        if not len(self._jobs):
            return
        idle = np.zeros((len(self._numbers), len(state.resources)))
        np.add.at(idle, self._rows, state.holds.idle[: state.holds.n])
        shares = (idle / np.maximum(1, state.cluster.total)).max(axis=1)
        for k in np.flatnonzero(shares).tolist():
            promise = self._open[int(self._numbers[k])]
            more = len(state.resources) - len(promise.idled)
            promise.idled = np.pad(promise.idled, (0, more)) + idle[k] * seconds
            promise.share += float(shares[k]) * seconds

    def happened(self, state: State, fact: Fact) -> None:
        """Note a fact that was applied."""
        if state.holds.n != len(self._jobs) or not np.array_equal(state.holds.job[: state.holds.n], self._jobs):
            self._update(state, fact)
        elif isinstance(fact, NodesReserved):
            self._note(state, fact.at)

    def _update(self, state: State, fact: Fact | None) -> None:
        """Update the promises: new ones, and those that are over."""
        self._jobs = state.holds.job[: state.holds.n].copy()
        self._numbers, self._rows = np.unique(self._jobs, return_inverse=True)
        for job in [job for job in self._open if job not in self._numbers]:
            promise = self._open.pop(job)
            promise.until = fact.at if fact is not None else None
            promise.used = isinstance(fact, TasksPlaced) and bool((fact.job == job).any())
            self._over.append(promise)
        if len(self._jobs):
            self._note(state, fact.at if fact is not None else -np.inf)

    def _note(self, state: State, at: float) -> None:
        for kept in holds_by_job(state, at):
            known = self._open.setdefault(
                kept.job,
                _Promise(
                    kept.job, state.display_name(state.tree.names[kept.leaf]), kept.why, kept.made, kept.start, 0,
                    np.zeros(len(state.resources)),
                ),
            )  # fmt: skip
            known.why, known.start = kept.why, kept.start
            if kept.slips > known.passed:
                known.slips += (kept.slips - known.passed) * any_end_known(state, at)
                known.passed = kept.slips

    def summary(self, begin: float, end: float, resources: list[str]) -> tuple[PromisesInfo, list[ReservationOverTime]]:
        """Return the total of what was held between two times, and the promises that idled most."""
        over = [p for p in self._over if p.until is not None and p.until >= begin]
        chosen = [p for p in [*over, *self._open.values()] if p.made <= end]
        idled = np.zeros(len(resources))
        for promise in chosen:
            idled[: len(promise.idled)] += promise.idled
        totals: PromisesInfo = {
            "count": len(chosen),
            "idled": hours(resources, idled),
            "share_hours": sum(promise.share for promise in chosen) / 3600,
        }
        chosen.sort(key=lambda promise: (-promise.share, promise.made, promise.job))
        return totals, [_row(promise, end, resources) for promise in chosen[:MOST_LISTED]]


def _row(promise: _Promise, end: float, resources: list[str]) -> ReservationOverTime:
    is_over = promise.until is not None and promise.until <= end
    return {
        "job": promise.job, "queue": promise.queue, "why": promise.why, "made": promise.made,
        "until": promise.until if is_over else None, "start": promise.start, "slips": promise.slips,
        "used": promise.used if is_over else None, "idled": hours(resources, promise.idled),
        "share_hours": promise.share / 3600,
    }  # fmt: skip
