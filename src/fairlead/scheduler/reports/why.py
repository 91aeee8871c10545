"""Why a queue has less than its part: from what stops its next task in the scheduling cycle, and who was served.

The cycle says whether a limit stopped it, or no node had room. In that case the reason follows from who holds the room: it is
held for others or offered to them; it is fragmented over several nodes; or queues that have more than their part use it. If
such a task was placed while this queue waited, where its own would have fit, the other queue was served instead: out of order,
on a tie, or because it had less and tasks are whole. Else it waits for older tasks to end.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from fairlead.audit.over_time import LIMITS, NOT_DECIDED, OFFERS, ORDER, PLACEMENT, RESERVATIONS, RUNNING_TASKS, TIES, WHOLE_TASKS
from fairlead.policies.codes import FIFO, PRIORITY
from fairlead.scheduler import facts
from fairlead.scheduler.cluster import offered_of
from fairlead.scheduler.decide import Cycle
from fairlead.scheduler.entitlements import Parts
from fairlead.scheduler.feasibility import hosts, never_starting_groups
from fairlead.scheduler.kernel.constants import NO_NODE
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import F64, I64, NONE, Bools

SHARE_TOLERANCE = 1e-9
"""Dominant shares that differ by less are equal."""
_INDEX_BITS = 24


class Started:
    """The order of events as far as the state knows it: when tasks started and ended, in microseconds.

    Tasks that have not started count as started last.
    """

    def __init__(self, state: State) -> None:
        tasks = slice(state.tasks.n)
        self._last = np.full(state.queues.n, NONE)
        begun = np.flatnonzero(state.tasks.attempt[tasks] > 0)
        leaf = state.jobs.queue[state.job_rows_of(begun)]
        ended = state.tasks.finished_at[begun]
        np.maximum.at(self._last, leaf, np.where(np.isnan(ended), self.placed_by(state, begun), _microseconds(ended)))

    def last_of(self, state: State) -> I64:
        """Return when each queue's use changed last: a task of it started, or ended for good."""
        return self._last

    def placed_by(self, state: State, tasks: I64) -> I64:
        """Return when tasks started."""
        return _microseconds(state.tasks.started_at[tasks])

    def ready(self, state: State, row: int) -> tuple[int, float]:
        """Return since when a job may start, as far as known: submitted, and its dependencies ended."""
        at = ready_at(state, row)
        return int(_microseconds(np.array([at]))[0]), at


def _microseconds(at: F64) -> I64:
    return np.where(np.isnan(at), 2.0**62, at * 1e6).astype(np.int64)


def ready_at(state: State, row: int) -> float:
    """Return when a job was submitted, its time had come, and its dependencies had ended."""
    spec = state.index.specs[int(state.jobs.id[row])]
    after = spec.after
    rows = state.job_rows(np.array([each.job for each in after], np.int64))
    ended = state.jobs.finished_at[rows[rows != NONE]]
    return max(float(state.jobs.submitted_at[row]), spec.begin or -np.inf, float(ended.max(initial=-np.inf)))


class Served:
    """The order of events, noted from facts before they are applied, since the state does not keep it.

    Facts are numbered from 1; NONE is anything before the first.
    """

    def __init__(self) -> None:
        self._number = 0
        self._last = np.zeros(0, np.int64)
        self._placed: dict[int, int] = {}
        self._ready: dict[int, int] = {}
        self._released: dict[int, float] = {}

    def note(self, state: State, fact: facts.Fact) -> I64:
        """Note a fact that is about to be applied; returns the rows of queues of which a task is placed."""
        self._number += 1
        if isinstance(fact, facts.TasksPlaced):
            self._placed.update(dict.fromkeys(_keys(fact.job, fact.index), self._number))
            queues: I64 = np.unique(state.jobs.queue[state.job_rows(fact.job)])
            self.last_of(state)[queues] = self._number
            return queues
        if isinstance(fact, facts.TasksFinished):
            for key in _keys(fact.job, fact.index):
                self._placed.pop(key, None)
            rows = state.job_rows(fact.job)
            self.last_of(state)[state.jobs.queue[rows]] = self._number
            for job in fact.job[~state.jobs.plain[rows]].tolist():  # others may depend on it
                self._ready[job] = self._number
        elif isinstance(fact, facts.JobSubmitted):
            self._ready.update(dict.fromkeys(range(fact.id, fact.id + 1 + len(fact.more)), self._number))
        elif isinstance(fact, facts.JobsDue):
            self._ready.update(dict.fromkeys(fact.ids, self._number))
        elif isinstance(fact, facts.JobReleased | facts.JobEdited):
            self._ready[fact.id], self._released[fact.id] = self._number, fact.at
        elif isinstance(fact, facts.JobsForgotten):
            for job in fact.ids:
                self._ready.pop(job, None)
                self._released.pop(job, None)
        return np.zeros(0, np.int64)

    def last_of(self, state: State) -> I64:
        """Return the fact that last changed each queue's use: a task of it was placed, or ended."""
        if len(self._last) < state.queues.n:
            self._last = np.concatenate([self._last, np.full(state.queues.n - len(self._last), NONE)])
        return self._last

    def placed_by(self, state: State, tasks: I64) -> I64:
        """Return the facts that placed tasks that hold resources."""
        columns = state.task_columns(tasks)
        return np.array([self._placed.get(key, NONE) for key in _keys(columns["job"], columns["index"])], np.int64)

    def ready(self, state: State, row: int) -> tuple[int, float]:
        """Return since which fact, and when, a job may start: submitted, released, dependencies ended."""
        job = int(state.jobs.id[row])
        others = [after.job for after in state.index.specs[job].after]
        at = max(ready_at(state, row), self._released.get(job, -np.inf))
        return max(self._ready.get(each, NONE) for each in [job, *others]), at


def _keys(job: facts.Ints, index: facts.Ints) -> list[int]:
    return ((job << _INDEX_BITS) | index).tolist()


class Short(NamedTuple):
    """Why a queue has less than its part.

    reason : see :data:`fairlead.audit.over_time.REASONS`
    ready_at : seconds: since when its next job may start
    others : rows of the queues served instead: they had no less, and a task placed since then still runs. "Since then" is
        since this queue's use last changed, and since its next job may start.
    started : float64: start of the last such task of each; NaN: not started yet
    """

    reason: int
    ready_at: float
    others: I64
    started: F64


class _Holders(NamedTuple):
    """The tasks that hold resources, in the order they were placed: by which fact, and when they started."""

    by: I64
    started: F64
    leaf: I64
    node: I64
    demand: I64


class Shortfalls:
    """Why queues have less than their parts at one moment, given its cycle."""

    def __init__(self, state: State, served: Served | Started, parts: Parts, cycle: Cycle) -> None:
        self._state, self._served, self._cycle = state, served, cycle
        self._has_more = np.zeros(state.queues.n, np.bool_)
        self._has_more[parts.queues] = parts.has > parts.entitled + SHARE_TOLERANCE
        b = state.groups
        self._group_leaf = np.where(b.head[: b.n] != NONE, b.leaf[: b.n], NONE)
        self._group_leaf[never_starting_groups(state)] = NONE
        self._next_leaves = state.jobs.queue[self._cycle.job]
        self._open = state.nodes.up[: state.nodes.n] & ~state.nodes.draining[: state.nodes.n]

    def of(self, q: int) -> Short:
        """Return why a leaf queue that waits has no more."""
        mine = np.flatnonzero(self._group_leaf == q)
        last = int(self._served.last_of(self._state)[q])
        full = mine[self._cycle.stop[mine] == NO_NODE]
        if (self._next_leaves == q).any() or not len(full):
            reason = NOT_DECIDED if (self._next_leaves == q).any() else LIMITS
            return Short(reason, -np.inf, np.zeros(0, np.int64), np.zeros(0))
        group = int(full[np.argmin(self._cycle.stop_order[full])])
        ready, ready_at = self._served.ready(self._state, int(self._cycle.stop_job[group]))
        held = self._holders
        begin = int(np.searchsorted(held.by, max(last, ready), "right"))
        since = begin + np.flatnonzero(held.leaf[begin:] != q)
        more, equal, ordered = self._served_instead(q, since)
        reason = self._reason_of(group, since, more | ordered, equal)
        before = since[more | equal][::-1]
        others, newest = np.unique(held.leaf[before], return_index=True)
        return Short(reason, ready_at, others, held.started[before[newest]])

    def _reason_of(self, group: int, since: I64, before: Bools, equal: Bools) -> int:
        """Return why no node has room for the next of a group; `since` are the holders placed while it waited.

        Of these, `before` marks those served although they had more, or by a policy that ignores shares; `equal` those that had
        as much.
        """
        state, held = self._state, self._holders
        shape = int(state.groups.shape_row[group])
        demand, count = state.shapes.demand[shape], max(1, int(state.groups.gang[group]))
        asked = demand > 0
        n = state.nodes.n
        allowed = self._open & state.cluster.masks[state.shapes.mask[shape], :n]
        free = state.nodes.free[:n]
        if hosts(state, shape, free) >= count:
            return RESERVATIONS
        richer = self._has_more[held.leaf[since]]
        room = (state.nodes.free - state.nodes.held)[held.node[since]] + held.demand[since]
        fits = richer & allowed[held.node[since]] & (room[:, asked] >= demand[asked]).all(axis=1)
        if (fits & before).any():
            return ORDER
        if (fits & equal).any():
            return TIES
        if hosts(state, shape, free + self._offered) >= count:
            return OFFERS
        in_pieces = (free[self._open][:, asked].sum(axis=0) >= count * demand[asked]).all()
        if in_pieces or (richer & ~fits).any():
            return PLACEMENT
        return WHOLE_TASKS if fits.any() else RUNNING_TASKS

    def _served_instead(self, q: int, tasks: I64) -> tuple[Bools, Bools, Bools]:
        """Compare q with the queue of each task, just before the task was placed; returns three arrays, one entry per task.

        more : the task's queue had more than q
        equal : it had as much
        ordered : the policy that chose between the two ignores shares

        The two siblings above them are compared, by the dominant shares of their present use less what was placed since. Tasks
        that ended since are unknown, so a queue may have had more than is seen here.
        """
        state, held, paths = self._state, self._holders, self._paths
        leaf, demand = held.leaf[tasks], held.demand[tasks]
        depth = (paths[:, leaf] != paths[:, [q]]).argmax(axis=0)
        theirs, mine = paths[depth, leaf], paths[depth, q]
        since_mine = np.zeros_like(demand)
        for above in np.unique(mine):
            compared = mine == above
            below = (paths[:, leaf] == above).any(axis=0)
            since_mine[compared] = np.cumsum((demand * below[:, None])[::-1], axis=0)[::-1][compared]  # and those after it
        by_queue = np.argsort(theirs, kind="stable")
        last = np.searchsorted(theirs[by_queue], theirs[by_queue], "right")
        before = np.concatenate([np.zeros((1, demand.shape[1]), np.int64), np.cumsum(demand[by_queue], axis=0)])
        since_theirs = np.empty_like(demand)
        since_theirs[by_queue] = before[last] - before[np.arange(len(tasks))]
        size = np.where(state.cluster.total > 0, state.cluster.total, 1)

        def shares(queues: I64, less: I64) -> F64:
            used = (state.queues.used[queues] - less) / size / state.queues.weight[queues]
            return used.max(axis=1, initial=0.0)

        had, own = shares(theirs, since_theirs), shares(mine, since_mine)
        ordered = np.isin(state.queues.policy[state.queues.parent[mine]], (FIFO, PRIORITY))
        return had > own + SHARE_TOLERANCE, np.abs(had - own) <= SHARE_TOLERANCE, ordered

    @cached_property
    def _offered(self) -> I64:
        return offered_of(self._state.offers, self._state.nodes.n)

    @cached_property
    def _holders(self) -> _Holders:
        state = self._state
        rows = state.held_rows()
        by = self._served.placed_by(state, rows)
        order = np.argsort(by, kind="stable")
        jobs = state.job_rows_of(rows[order])
        demand = state.shapes.demand[state.jobs.shape_row[jobs]]
        node, started = state.tasks.node[rows[order]].astype(np.int64), state.tasks.started_at[rows[order]]
        return _Holders(by[order], started, state.jobs.queue[jobs], node, demand)

    @cached_property
    def _paths(self) -> I64:
        """The queues from the root to each queue, a column each, padded with the queue itself."""
        parent = self._state.queues.parent[: self._state.queues.n]
        found = [np.arange(len(parent))]
        while (found[-1] > 0).any():
            up = found[-1]
            found.append(np.where(up > 0, parent[up], 0))
        paths = np.stack(found[::-1])
        depth = (paths > 0).argmax(axis=0)  # a column starts with one root per level that it is less deep
        rows = np.minimum(np.arange(len(paths))[:, None] + depth, len(paths) - 1)
        return np.take_along_axis(paths, rows, axis=0)
