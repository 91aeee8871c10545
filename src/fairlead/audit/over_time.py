"""Fairness over time: what each queue was entitled to and got, summed over the time in which it had work.

A sample is a moment, and the time that it stands for. A queue's entitlement and its use are dominant shares of the
cluster. Both are summed per resource, in share x capacity x seconds, and reported for the resource that the share was mostly
of. So amounts are resource-hours, and entitled - got = short exactly. Surplus at one time makes up for a shortfall at another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

REASONS = (
    "limits", "reservations", "offers", "placement", "ties", "order", "whole tasks", "running tasks", "not decided", "not known",
)  # fmt: skip
"""Why a queue had less than its share; docs/commands/audit.md explains each."""
LIMITS, RESERVATIONS, OFFERS, PLACEMENT, TIES, ORDER, WHOLE_TASKS, RUNNING_TASKS, NOT_DECIDED, NOT_KNOWN = range(len(REASONS))

WRONGED = 0.05
"""A queue is wronged if it got less by more than this fraction of its entitlement, and by more than one of its own tasks."""
DECISION = 10.0
"""Seconds to decide and start a task on a busy machine; shorter tasks count as this long."""
LONGEST = 10 * 365 * 86400.0
"""Longest period to audit, in seconds."""
STARVED_AFTER = 300.0
"""Seconds without a start, while queues with no smaller share were served, after which a queue starves."""
MOST_DRAWN = 12
"""Most queues with a series of shares; those furthest from their entitlement come first."""
MOST_MOMENTS = 400
"""Most points of a series; more samples are averaged."""
ENTITLED, GOT = 0, 1
_WIDTH = 2


def one_task(share: F64, seconds: F64) -> F64:
    """Return the shortfall that wrongs nobody, because tasks are whole: one task's share times its seconds."""
    return share * np.maximum(seconds, DECISION)


def standing(short: float, entitled: float, tolerated: float) -> str:
    """Return "wronged", "ahead" or "even" for a queue with this shortfall; all arguments in the same unit."""
    if short > max(WRONGED * entitled, tolerated):
        return "wronged"
    return "ahead" if -short > WRONGED * entitled else "even"


@dataclass(frozen=True)
class Starved:
    """A queue (row) without a start from `since` to `until`, while `others` (rows) with no smaller share were served."""

    queue: int
    since: float
    until: float
    others: list[int]
    reason: int


@dataclass
class Revocations:
    """Preemptions for claims: tasks by reason, the number of claims, and the loss in seconds of the whole cluster.

    faults : preemptions that broke a rule: when, and which rule
    """

    tasks: dict[str, int] = field(default_factory=dict)
    claims: int = 0
    lost: float = 0.0
    faults: list[tuple[float, str]] = field(default_factory=list)

    def add(self, why: str, tasks: int) -> None:
        """Add the preemptions for one claim."""
        self.tasks[why] = self.tasks.get(why, 0) + tasks
        self.claims += 1

    def told(self) -> dict[str, Any]:
        faults = [{"at": at, "text": text} for at, text in self.faults]
        return {"claims": self.claims, "tasks": self.tasks, "lost": self.lost, "faults": faults}


@dataclass
class OverTime:
    """Sums over samples.

    sums : float64, shape (queues, 2 + reasons, resources): dominant share x capacity x seconds: entitled, got, then the
        shortfalls by reason
    of : float64, shape (queues, resources): entitled dominant share x seconds, by dominant resource
    working, waiting : float64, shape (queues,): seconds with work, and with pending work
    tolerated : float64, shape (queues,): shortfall that wrongs nobody: the largest ended task, as share x seconds
    """

    sums: F64 = field(default_factory=lambda: np.zeros((0, _WIDTH + len(REASONS), 0)))
    of: F64 = field(default_factory=lambda: np.zeros((0, 0)))
    working: F64 = field(default_factory=lambda: np.zeros(0))
    waiting: F64 = field(default_factory=lambda: np.zeros(0))
    tolerated: F64 = field(default_factory=lambda: np.zeros(0))
    starved: list[Starved] = field(default_factory=list)
    looks: int = 0
    _moments: list[tuple[float, float, I64, F64, F64]] = field(default_factory=list)

    def add(
        self, at: float, seconds: float, capacity: F64, queues: I64, entitled: F64, got: F64, of: I64, waits: Any, reason: I64
    ) -> None:  # fmt: skip
        """Add one sample, of the queues with work.

        at, seconds : its begin, and the time that it stands for
        capacity : shape (resources,)
        queues : int64, shape (queues with work,), as all that follow: rows
        entitled, got : float64: dominant shares of the cluster
        of : int64: dominant resource of `entitled`
        waits : bool: True if it has pending work that could run
        reason : int64: why it has less than its share, if it has and `waits`
        """
        self._fit(int(queues.max(initial=-1)) + 1, len(capacity))
        self.looks += 1
        size = capacity * seconds
        # A queue with tasks of different shapes can run all of them and still have less than its entitlement.
        entitled = np.where(waits, entitled, np.minimum(entitled, got))
        self.sums[queues, ENTITLED] += entitled[:, None] * size
        self.sums[queues, GOT] += got[:, None] * size
        short = np.flatnonzero(entitled > got)
        self.sums[queues[short], _WIDTH + reason[short]] += (entitled - got)[short, None] * size
        if len(capacity):
            self.of[queues, of] += entitled * seconds
        self.working[queues] += seconds
        self.waiting[queues] += seconds * waits
        self._moments.append((at, seconds, queues, entitled, got))

    def tolerate(self, queues: I64, share: F64, seconds: F64) -> None:
        """Add ended tasks of these queues: their dominant shares, and their seconds."""
        self._fit(int(queues.max(initial=-1)) + 1, 0)
        np.maximum.at(self.tolerated, queues, one_task(share, seconds))

    def owed(self, queue: int) -> float:
        """Return what a queue was entitled to so far, less what it got; positive if it is short."""
        return float((self.sums[queue, ENTITLED] - self.sums[queue, GOT]).sum()) if queue < len(self.sums) else 0.0

    def _fit(self, queues: int, resources: int) -> None:
        """Grow the arrays to this many queues and resources."""
        more = max(0, queues - len(self.sums)), max(0, resources - self.of.shape[1])
        if any(more):
            self.sums = np.pad(self.sums, ((0, more[0]), (0, 0), (0, more[1])))
            self.of = np.pad(self.of, ((0, more[0]), (0, more[1])))
            columns = self.working, self.waiting, self.tolerated
            self.working, self.waiting, self.tolerated = (np.pad(x, (0, more[0])) for x in columns)

    def told(self, names: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
        """Return the sums as plain data. `names` are the queues' by row; rows of one name are one queue."""
        self._join(names)
        queues, starved = self._queues(names, resources), self._starvation(names)
        furthest = sorted(queues, key=lambda queue: -abs(queue["share_hours"]["short"]))[:MOST_DRAWN]
        return {
            "fair": not starved and all(queue["status"] != "wronged" for queue in queues),
            "looks": self.looks,
            "queues": queues,
            "starved": starved,
            "series": self._series(names, sorted(queue["name"] for queue in furthest)),
        }

    def _join(self, names: Sequence[str]) -> None:
        """Merge the rows of one name into the first; they never have work at the same time."""
        first = {name: row for row, name in reversed([*enumerate(names)])}
        if len(first) == len(names):
            return
        rows = np.array([first[name] for name in names], np.int64)
        here = rows[: len(self.sums)]
        for what, add in (
            (self.sums, np.add), (self.of, np.add), (self.working, np.add), (self.waiting, np.add), (self.tolerated, np.maximum),
        ):  # fmt: skip
            before = what.copy()
            what[:] = 0
            add.at(what, here, before)
        self._moments = [(at, seconds, rows[queues], due, has) for at, seconds, queues, due, has in self._moments]
        self.starved = [
            replace(each, queue=int(rows[each.queue]), others=np.unique(rows[np.array(each.others, np.int64)]).tolist())
            for each in self.starved
        ]

    def _queues(self, names: Sequence[str], resources: Sequence[str]) -> list[dict[str, Any]]:
        """Return the result of each queue that had work, the most wronged first (by its shortfall in the cluster).

        Amounts are in base units x hours of `resource`; `share_hours` are in cluster hours.
        """
        found = []
        for q in np.flatnonzero(self.working > 0).tolist():
            column = int(self.of[q].argmax()) if self.of.shape[1] else 0
            amounts = (self.sums[q, :, column] if self.sums.shape[2] else self.sums[q].sum(axis=1)) / 3600
            entitled, got = float(amounts[ENTITLED]), float(amounts[GOT])
            by_reason = zip(REASONS, amounts[_WIDTH:], strict=True)
            through = {name: float(x) for name, x in by_reason if x > 1e-9 * max(entitled, 1e-300)}
            share_hours = float(self.of[q].sum()) / 3600
            short = entitled - got
            share_short = share_hours * (short / entitled) if entitled > 0 else 0.0
            standing_of = standing(share_short, share_hours, float(self.tolerated[q]) / 3600)
            found.append(
                {
                    "name": names[q], "resource": resources[column] if resources else None, "entitled": entitled, "got": got,
                    "short": short, "status": standing_of if entitled > 0 else "ahead" if got > 0 else "even",
                    "through": dict(sorted(through.items(), key=lambda item: -item[1])),
                    "made_up": max(0.0, sum(through.values()) - max(0.0, short)),
                    "share_hours": {"entitled": share_hours, "short": share_short}, "worked": float(self.working[q]),
                    "waited": float(self.waiting[q]),
                }
            )  # fmt: skip
        return sorted(found, key=lambda queue: -queue["share_hours"]["short"])

    def _starvation(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return who starved, when, and who was served meanwhile; the longest first."""
        found = [
            {
                "queue": names[each.queue], "since": each.since, "until": each.until, "seconds": each.until - each.since,
                "through": REASONS[each.reason], "others": sorted(names[other] for other in each.others),
            }
            for each in self.starved
        ]  # fmt: skip
        return sorted(found, key=lambda each: -each["seconds"])

    def _series(self, names: Sequence[str], chosen: Sequence[str]) -> dict[str, Any]:
        """Return the dominant shares of some queues over time, as means over at most MOST_MOMENTS runs of samples."""
        rows = [names.index(name) for name in chosen]
        per = max(1, -(-len(self._moments) // MOST_MOMENTS))
        at, entitled, got = [], [], []
        for begin in range(0, len(self._moments), per):
            some = self._moments[begin : begin + per]
            total = sum(seconds for _, seconds, *_ in some)
            sums = np.zeros((2, len(names)))
            for _, seconds, queues, due, has in some:
                sums[0, queues] += due * seconds
                sums[1, queues] += has * seconds
            at.append(some[0][0])
            entitled.append(sums[0, rows] / max(total, 1e-300))
            got.append(sums[1, rows] / max(total, 1e-300))
        shares = (np.array(each).reshape(len(at), len(rows)).T for each in (entitled, got))
        columns = zip(chosen, *shares, strict=True)
        return {"at": at, "queues": [{"name": n, "entitled": e.tolist(), "got": g.tolist()} for n, e, g in columns]}
