"""Usage over time: what attempts held, times how long, by user and queue, added up while facts are replayed."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fairlead.outcomes import Outcome
from fairlead.scheduler.effects import apply
from fairlead.scheduler.facts import Fact, NodeLost, TasksFinished
from fairlead.scheduler.framework_index import queue_of
from fairlead.scheduler.queue_tree import QueueTree
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import REVOKING, STOPPING
from fairlead.scheduler.tables import F64, I64, NONE, Bools


class _Sums:
    """Sums of one user in one queue. Amounts are base units x hours."""

    def __init__(self) -> None:
        self.ended = self.failed = self.waiting = self.cpu_ms = self.peak = 0
        self.asked: dict[str, float] = {}
        self.lost: dict[str, float] = {}


class Usage:
    """Adds up what attempts held between two times.

    Parameters
    ----------
    state : State
        Before the first fact.
    begin, end : float
        Seconds as in the facts.
    """

    def __init__(self, state: State, begin: float, end: float) -> None:
        self.state, self.begin, self.end = state, begin, end
        self._sums: dict[tuple[str, str], _Sums] = {}

    def feed(self, facts: Iterable[Fact]) -> None:
        """Apply facts."""
        for fact in facts:
            if isinstance(fact, TasksFinished) and fact.at >= self.begin:
                self._ended(fact)
            elif isinstance(fact, NodeLost) and fact.at >= self.begin:
                self._lost(fact)
            apply(self.state, fact)

    def finish(self) -> list[dict[str, Any]]:
        """Count what runs and what waits at the end; returns the sums by queue and user, sorted."""
        rows = self.state.held_rows()
        jobs = self.state.job_rows_of(rows)
        for job, hours in zip(jobs.tolist(), self._hours(self.state.tasks.started_at[rows], self.end).tolist(), strict=True):
            self._add(job, hours, came_to_nothing=False)
        waiting = self.state.jobs.waiting[: self.state.jobs.n]
        for job in np.flatnonzero(waiting).tolist():
            self._add(job, 0.0, came_to_nothing=False).waiting += int(waiting[job])
        return [
            {
                "queue": queue,
                "user": user,
                "tasks": sums.ended,
                "failed": sums.failed,
                "waiting": sums.waiting,
                "asked": sums.asked,
                "lost": sums.lost,
                "cpu_hours": round(sums.cpu_ms / 3_600_000, 6),
                "peak_memory": sums.peak or None,
            }
            for (queue, user), sums in sorted(self._sums.items())
        ]

    def _ended(self, fact: TasksFinished) -> None:
        rows = self.state.current_tasks(fact.attempts)
        good = (fact.outcome == Outcome.EXITED) & (fact.code == 0)
        stopped = np.isin(self.state.tasks.status[rows], (STOPPING, REVOKING))  # cancelled or preempted
        known = len(fact.cpu) > 0
        hours = self._hours(fact.began(self.state.tasks.started_at[rows]), fact.at)
        for k, job in enumerate(self.state.job_rows_of(rows).tolist()):
            sums = self._add(job, float(hours[k]), came_to_nothing=not good[k])
            sums.ended += 1
            sums.failed += not (good[k] or stopped[k])
            if known:
                sums.cpu_ms += int(fact.cpu[k])
                sums.peak = max(sums.peak, int(fact.peak[k]))

    def _lost(self, fact: NodeLost) -> None:
        rows = self.state.held_rows()
        rows = rows[self.state.tasks.node[rows] == self.state.cluster.rows[fact.node]]
        hours = self._hours(self.state.tasks.started_at[rows], fact.at).tolist()
        for job, each in zip(self.state.job_rows_of(rows).tolist(), hours, strict=True):
            self._add(job, each, came_to_nothing=True)

    def _hours(self, began: F64, ended: float) -> F64:
        """Return how long tasks held resources, within the time considered; 0 if they did not start."""
        found: F64 = np.nan_to_num(np.clip(min(ended, self.end) - np.maximum(began, self.begin), 0.0, None)) / 3600
        return found

    def _add(self, job: int, hours: float, came_to_nothing: bool) -> _Sums:
        spec = self.state.index.specs[int(self.state.jobs.id[job])]
        sums = self._sums.setdefault((self.state.display_name(spec.queue), spec.user), _Sums())
        for name, amount in spec.demand.items():
            if amount:
                sums.asked[name] = sums.asked.get(name, 0.0) + amount * hours
                if came_to_nothing:
                    sums.lost[name] = sums.lost.get(name, 0.0) + amount * hours
        return sums


class ListedQueues(NamedTuple):
    """Per queue row, whether to list it; and whether it was declared once, and is neither declared nor a role now."""

    there: Bools
    removed: Bools


def listed_queues(state: State) -> ListedQueues:
    """Find the queues to list, and those above: declared queues, roles of frameworks, and queues with tasks, offers or
    reservations.
    """
    tree, queues, jobs = state.tree, state.queues, state.jobs
    n = queues.n
    declared = np.array([_is_declared(tree, name) for name in tree.names], np.bool_)
    roles = np.zeros(n, np.bool_)
    roles[[tree.rows[leaf] for leaf in state.frameworks.at]] = True
    has = (queues.tasks[:n] > 0) | queues.used[:n].any(axis=1) | queues.offered[:n].any(axis=1)
    has[jobs.queue[: jobs.n][(jobs.id[: jobs.n] != NONE) & (jobs.waiting[: jobs.n] > 0)]] = True
    apart = {queue_of(reservation.role) for here in state.frameworks.role_reservations.values() for reservation in here.values()}
    has[[tree.rows[name] for name in apart if name in tree.rows]] = True
    roles, has = _with_all_above(roles, queues.parent[:n]), _with_all_above(has, queues.parent[:n])
    once = np.array([name in tree.removed for name in tree.names], np.bool_)
    there = declared | roles | has
    return ListedQueues(there, there & once & ~declared & ~roles)


def _is_declared(tree: QueueTree, name: str) -> bool:
    """True if a queue is declared by name, or is a user's leaf under a ``*``; one with others below it is a role."""
    by_name = name in tree.declared or name in tree.inner
    return by_name or (tree.is_declared(name) and tree.rows[name] not in tree.children)


def _with_all_above(those: Bools, parent: I64) -> Bools:
    """Return some queues and all above them; parents come before their children."""
    found, above = those.tolist(), parent.tolist()
    for row in range(len(found) - 1, 0, -1):
        if found[row]:
            found[above[row]] = True
    return np.array(found, np.bool_)
