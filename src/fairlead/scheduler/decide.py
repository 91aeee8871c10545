"""Look at the state and decide: what to place where, what to revoke, what to keep free, what to forget.

`decide` is pure: it changes nothing, and the same state gives the same facts. The caller writes them to the journal, lets
them happen in the state, and then has the engine carry them out.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.scheduler.entitled import entitled
from fairlead.scheduler.facts import (
    Fact,
    Ints,
    JobCancelled,
    JobsForgotten,
    JobsPassedOver,
    NodesReserved,
    ReservationDropped,
    TasksExpired,
    TasksPlaced,
    TasksRevoked,
)
from fairlead.scheduler.kernel_cycle import LIMIT, MAX_JOBS, MAX_TASKS, NO_NODE, cycle
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import I64, PLACED, RUNNING, WAITING, view

MOST_PLACEMENTS = 20_000
"""A decision places no more tasks than this, so that facts stay small; the next one goes on."""


@dataclass(frozen=True)
class Decision:
    """New facts, and whether there is more to decide at once."""

    facts: list[Fact]
    more: bool = False


@dataclass(frozen=True)
class Cycle:
    """What one run of the kernel found; rows of the state's tables.

    stop, stop_at, stop_order, stop_job : for each bucket why it was not served on (see kernel_cycle), how many placements
    and how many other buckets' ends came before, and the job that was tried.
    """

    job: I64
    index: I64
    node: I64
    stop: I64
    stop_at: I64
    stop_order: I64
    stop_job: I64
    cursors: I64
    more: bool


def run_cycle(state: State, most: int = MOST_PLACEMENTS, strict: bool = False) -> Cycle:
    """Serve the queues in the order that their policies give, on paper: nothing is changed."""
    node = bucket = tasks = np.zeros(0, np.int64)
    if state.reservations:
        kept = [(n, r.bucket, t) for r in state.reservations.values() for n, t in zip(r.nodes, r.tasks, strict=True)]
        node, bucket, tasks = (column.copy() for column in np.array(sorted(kept), np.int64).reshape(-1, 3).T)
    return Cycle(
        *cycle(
            view(state.nodes), view(state.queues), view(state.shapes), view(state.buckets), view(state.jobs),
            state.masks, state.total, node, bucket, tasks, entitled(state, strict), most,
        )
    )  # fmt: skip


def decide(state: State, now: float, most: int = MOST_PLACEMENTS, strict: bool = False) -> Decision:
    """Decide what follows from the state at this time.

    Parameters
    ----------
    state : State
        Not changed.
    now : float
        Seconds, as in the facts.
    most : int
        Placements at most.
    strict : bool
        Whether a policy that fails to divide is a PolicyError; a live scheduler logs it and goes on.
    """
    facts: list[Fact] = []
    revoked = _revoke_broken_gangs(state, now)
    if revoked is not None:
        facts.append(revoked)
    expired = _stop_expired(state, now)
    if expired is not None:
        facts.append(expired)
    facts += [JobCancelled(at=now, id=job) for job in sorted(state.doomed)]
    result = run_cycle(state, most, strict)
    if len(result.job):
        placed = TasksPlaced(
            at=now,
            job=state.jobs.id[result.job],
            index=_indices(state, result.job, result.index),
            attempt=np.zeros(len(result.job), np.int64),
            node=result.node,
        )
        tasks = state.jobs.first[result.job] + placed.index
        placed.attempt[:] = state.tasks.attempt[tasks] + 1
        state.expected = (placed, result.cursors)  # a cache: where first fit may go on once this has happened
        facts.append(placed)
    elif not facts:
        state.move_cursors(result.cursors)
    kept = _keep_room(state, now, result)
    facts += kept
    surplus = len(state.finished_jobs) - state.settings.keep_jobs
    if surplus > max(0, state.settings.keep_jobs // 20):
        oldest = iter(state.finished_jobs)
        facts.append(JobsForgotten(at=now, ids=[next(oldest) for _ in range(surplus)]))
    # A reservation that is used or dropped leaves room that nobody was offered yet; a job that is cancelled, followers.
    used = bool(state.reservations) and not state.reservations.keys().isdisjoint(state.jobs.bucket[result.job].tolist())
    unsettled = bool(state.doomed) or used or any(isinstance(fact, ReservationDropped) for fact in kept)
    return Decision(facts, result.more or unsettled)


def _indices(state: State, rows: I64, index: I64) -> Ints:
    """Which tasks of the jobs are placed: the kernel's answer, but for jobs whose waiting tasks have gaps between."""
    irregular = state.jobs.irregular[rows]
    if irregular.any():
        index = index.copy()
        for row in np.unique(rows[irregular]):
            first, count = state.jobs.first[row], state.jobs.tasks[row]
            waiting = np.flatnonzero(state.tasks.status[first : first + count] == WAITING)
            mine = rows == row
            index[mine] = waiting[: mine.sum()]
    return index


def _revoke_broken_gangs(state: State, now: float) -> TasksRevoked | None:
    """A gang that lost a task starts again as a whole, so the rest of it is stopped."""
    found = []
    for job in sorted(state.broken_gangs):
        row = state.job_row(job)
        first, count = state.jobs.first[row], state.jobs.tasks[row]
        status = state.tasks.status[first : first + count]
        found += [first + np.flatnonzero((status == PLACED) | (status == RUNNING))]
    tasks = np.concatenate(found) if found else np.zeros(0, np.int64)
    return TasksRevoked(at=now, **state.task_columns(tasks)) if len(tasks) else None


def _stop_expired(state: State, now: float) -> TasksExpired | None:
    """The tasks that have run for as long as they may."""
    if not state.has_time_limits:
        return None
    tasks = state.held_rows()
    tasks = tasks[state.tasks.status[tasks] == RUNNING]
    late = tasks[now - state.tasks.started_at[tasks] >= state.jobs.time_limit[state.job_rows_of(tasks)]]
    return TasksExpired(at=now, **state.task_columns(late)) if len(late) else None


def _keep_room(state: State, now: float, result: Cycle) -> list[Fact]:
    """Keep large tasks and gangs from starving.

    A job is passed over when it was its turn, no node had room, and others were placed after it in the same cycle. One
    that has been passed over for `reserve_after` seconds gets nodes kept for it: whatever ends there is not given away
    until it fits. One reservation a leaf queue, one new one a cycle, so that room is kept only for those whose turn it is.
    """
    facts: list[Fact] = []
    buckets = state.buckets
    for bucket, reservation in sorted(state.reservations.items(), key=lambda item: item[1].job):
        if result.stop[bucket] in (LIMIT, MAX_TASKS, MAX_JOBS):
            facts.append(ReservationDropped(at=now, id=reservation.job))
    stopped = np.flatnonzero(result.stop == NO_NODE)
    if state.reservations:
        stopped = stopped[~np.isin(stopped, list(state.reservations))]
    if not len(stopped):
        return facts
    since = buckets.passed_since[stopped]
    new = stopped[(result.stop_at[stopped] < len(result.job)) & np.isnan(since)]
    if len(new):
        facts.append(JobsPassedOver(at=now, ids=np.sort(state.jobs.id[result.stop_job[new]]).tolist()))

    due = stopped[now - since >= state.settings.reserve_after]  # not for NaN
    if len(due):
        keeping = buckets.leaf[list(state.reservations)]
        due = due[~np.isin(buckets.leaf[due], keeping)]
        tried = state.jobs.id[result.stop_job[due]]
        for b, job in sorted(
            zip(due.tolist(), tried.tolist(), strict=True), key=lambda e: (result.stop_at[e[0]], e[1])
        ):
            chosen = _nodes_to_keep(state, int(result.stop_job[b]))
            if chosen is not None:
                facts.append(NodesReserved(at=now, id=job, nodes=chosen[0], tasks=chosen[1]))
                break
    return facts


def _nodes_to_keep(state: State, row: int) -> tuple[list[int], list[int]] | None:
    """The nodes where least has to end for all of a gang, or one task, to fit; None where even that is not enough."""
    jobs, nodes = state.jobs, state.nodes
    shape = jobs.shape[row]
    demand = state.shapes.demand[shape]
    wanted = int(jobs.waiting[row]) if jobs.gang[row] else 1
    n = nodes.n
    asked = demand > 0
    fits = (nodes.capacity[:n, asked] // demand[asked]).min(axis=1) if asked.any() else np.full(n, wanted, np.int64)
    usable = nodes.up[:n] & ~nodes.draining[:n] & state.masks[state.shapes.mask[shape], :n] & (fits > 0)
    for reservation in state.reservations.values():
        usable[reservation.nodes] = False
    missing = np.zeros(n)
    for r in np.flatnonzero(asked):
        short = np.maximum(0, demand[r] - nodes.free[:n, r])
        missing = np.maximum(missing, short / np.maximum(1, nodes.capacity[:n, r]))
    chosen: list[int] = []
    counts: list[int] = []
    for node in np.lexsort((np.arange(n), missing)):
        if usable[node] and wanted > 0:
            chosen.append(int(node))
            counts.append(min(wanted, int(fits[node])))
            wanted -= counts[-1]
    return (chosen, counts) if wanted == 0 else None
