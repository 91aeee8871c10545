"""Use by day, queue and user: what attempts held, times how long, and what queues were entitled to, added up as facts happen.

The state of a live scheduler has one, which its snapshots keep: it is known for longer than facts are. Days are those of UTC.
"""

from collections.abc import Iterator
from math import inf, isnan, nan

import msgspec
import numpy as np

from fairlead.outcomes import Outcome
from fairlead.scheduler.entitlements import parts_of
from fairlead.scheduler.facts import Fact, NodeLost, TasksFinished
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import REVOKING, STOPPING
from fairlead.scheduler.tables import F64, I64, NONE, Bools

DAY = 86400.0
MOST_ROWS = 1000
"""Rows of a day, at most; the rest is added to one without names."""
LOOK_EVERY = 60.0
"""Seconds after which entitlements are divided again: those of that moment count since the last time."""


class Sums(msgspec.Struct):
    """Sums of one user in one queue: `asked` and `lost` in base units x hours, `entitled` and `got` in dominant share x hours.

    `calls` and `called_ms` are the calls of programs that workers made.
    """

    tasks: int = 0
    failed: int = 0
    cpu_ms: int = 0
    peak: int = 0
    asked: dict[str, float] = msgspec.field(default_factory=dict)
    lost: dict[str, float] = msgspec.field(default_factory=dict)
    entitled: float = 0.0
    got: float = 0.0
    waiting: int = 0
    calls: int = 0
    called_ms: int = 0


Key = tuple[str, str, int]
"""Queue, user and job; an empty user for what concerns the queue, and job 0 for all."""


class UsedDays(msgspec.Struct):
    """Sums by day since the epoch. They count from `begin`, and to `end`, in seconds as in the facts."""

    begin: float = -inf
    end: float = inf
    by_job: bool = False
    rows: dict[int, dict[Key, Sums]] = msgspec.field(default_factory=dict)
    looked: float = nan

    def note(self, state: State, fact: Fact) -> None:
        """Add what a fact ends. The state is the one before it."""
        if not fact.at - self.looked < LOOK_EVERY:
            self.look(state, fact.at)
        if isinstance(fact, TasksFinished):
            self._finish(state, fact)
        elif isinstance(fact, NodeLost) and fact.node in state.cluster.rows:
            rows = state.held_rows([state.cluster.rows[fact.node]])
            self.hold(state, rows, state.tasks.started_at[rows], fact.at, np.ones(len(rows), np.bool_))

    def look(self, state: State, at: float) -> None:
        """Add what queues are entitled to and have, since the last time."""
        since, self.looked = self.looked, at
        if isnan(since):
            return
        parts = parts_of(state)
        for day, hours in self._days(since, at):
            for queue, entitled, got in zip(parts.queues, parts.entitled.tolist(), parts.has.tolist(), strict=True):
                sums = self.sums(state, day, (state.display_name(state.tree.names[queue]), "", 0))
                sums.entitled += entitled * hours
                sums.got += got * hours

    def hold(self, state: State, rows: I64, began: F64, ended: float, wasted: Bools) -> list[tuple[Key, I64]]:
        """Add what tasks held since they began (NaN: never), and what came to nothing. Return which rows are of a key."""
        keys, starts = [], np.where(np.isnan(began), ended, began)
        jobs = state.job_rows_of(rows)
        order = np.argsort(jobs, kind="stable")
        for these in np.split(order, np.flatnonzero(np.diff(jobs[order])) + 1) if len(order) else []:
            number = int(state.jobs.id[jobs[these[0]]])
            spec = state.index.specs[number]
            keys.append(((state.display_name(spec.queue), spec.user, number if self.by_job else 0), these))
            for day, _ in self._days(float(starts[these].min()), ended):
                low, high = max(self.begin, day * DAY), min(ended, self.end, (day + 1) * DAY)
                hours = np.maximum(high - np.maximum(starts[these], low), 0.0) / 3600
                sums = self.sums(state, day, keys[-1][0])
                for name, amount in spec.demand.items():
                    for into, part in ((sums.asked, hours), (sums.lost, hours[wasted[these]])):
                        if amount and len(part):
                            into[name] = into.get(name, 0.0) + amount * float(part.sum())
        return keys

    def _finish(self, state: State, fact: TasksFinished) -> None:
        rows = state.current_tasks(fact.attempts)
        if (rows == NONE).any():  # a contradiction, which the effect refuses
            return
        by_itself = (fact.outcome == Outcome.EXITED) | (fact.outcome == Outcome.UNUSED)
        good, status = by_itself & (fact.code == 0), state.tasks.status[rows]
        failed = ~(good | (status == STOPPING) | (status == REVOKING))  # not cancelled or preempted
        keys = self.hold(state, rows, fact.began(state.tasks.started_at[rows]), fact.at, ~good)
        for key, these in keys if self.begin <= fact.at <= self.end else []:
            sums = self.sums(state, int(fact.at // DAY), key)
            sums.tasks += len(these)
            sums.failed += int(failed[these].sum())
            if len(fact.cpu):
                sums.cpu_ms += int(fact.cpu[these].sum())
                sums.peak = max(sums.peak, int(fact.peak[these].max()))
            if len(fact.calls):
                sums.calls += int(fact.calls[these].sum())
                sums.called_ms += int(fact.called[these].sum())

    def _days(self, since: float, until: float) -> Iterator[tuple[int, float]]:
        since, until = max(since, self.begin), min(until, self.end)
        day = since // DAY
        while since < until:
            yield int(day), (min(until, (day + 1) * DAY) - since) / 3600
            day += 1
            since = day * DAY

    def sums(self, state: State, day: int, key: Key) -> Sums:
        rows = self.rows.get(day)
        if rows is None:
            rows = self.rows[day] = {}
            oldest = day - max(1, int(state.settings.history // DAY))
            for old in [old for old in self.rows if old <= oldest and not self.by_job]:
                del self.rows[old]
                self.begin = max(self.begin, (old + 1) * DAY)
        if key not in rows and len(rows) >= MOST_ROWS and not self.by_job:
            key = "", "", 0
        return rows.setdefault(key, Sums())
