"""Look at the state and decide: what to place where, what to revoke, what to keep free, what to forget.

`decide` is pure: the same state gives the same facts, and nothing that a fact or a decision can tell is changed by it. The caller
writes the facts to the journal, lets them happen in the state, and then has the engine carry them out. What a decision learned is
kept in the state's order, which is a cache: at once where nothing was placed, else once these very placements happened.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.scheduler import kernel_cycle
from fairlead.scheduler.divided_queues import write_entitled
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
from fairlead.scheduler.kernel_cycle import DROP, KEEP
from fairlead.scheduler.kernel_room import INDEX, JOB, NODE
from fairlead.scheduler.kernel_stops import NOT_REACHED
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, RUNNING, WAITING
from fairlead.scheduler.tables import I64, NONE
from fairlead.scheduler.view import CYCLE

MOST_PLACEMENTS = 20_000
"""A decision places no more tasks than this, so that facts stay small; the next one goes on."""


@dataclass(frozen=True)
class Decision:
    """New facts, and whether there is more to decide at once."""

    facts: list[Fact]
    more: bool = False


@dataclass(frozen=True)
class Plan:
    """What one run of the kernel found; rows of the state's tables.

    what : see kernel_cycle
    job, index, node : of what is placed, or to be kept (then `index` is how many tasks)
    about : the job that was passed over, or nodes are kept for; the hold that is to be dropped
    """

    what: int
    job: I64
    index: I64
    node: I64
    about: int
    more: bool

    def led_to(self, rows: I64, fact: TasksPlaced) -> bool:
        """Whether this is what happened."""
        return np.array_equal(self.job, rows) and np.array_equal(self.node, fact.node)


@dataclass(frozen=True)
class Cycle:
    """What came of all that wait: who would be placed, and of each bucket why it was not served on.

    stop, stop_order, stop_job : for each bucket, see :class:`fairlead.scheduler.view.BucketSeats`
    """

    job: I64
    stop: I64
    stop_order: I64
    stop_job: I64


def run_cycle(state: State, most: int = MOST_PLACEMENTS) -> Cycle:
    """Serve the queues in the order that their policies give, on paper: nothing is changed."""
    plan = _plan(state, most, 0.0, thorough=True, strict=False)
    n = state.buckets.n
    seats = state.order.buckets
    mine = seats.stop_cycle[:n] == state.order.counts[CYCLE] - 1
    stop = np.where(mine, seats.stop[:n], NOT_REACHED)
    return Cycle(
        plan.job,
        stop,
        np.where(mine, seats.stop_order[:n], 0),
        np.where(mine, seats.stop_job[:n], NONE),
    )


def _plan(state: State, most: int, now: float, thorough: bool, strict: bool) -> Plan:
    state.learned = None  # by the cycle before: its notes are written over
    view = state.order.ready(state, most)
    write_entitled(state, strict)
    what, count, about, more = kernel_cycle.plan(view, thorough, most, now, state.settings.reserve_after)
    chosen = state.order.chosen
    return Plan(
        what,
        chosen[JOB, :count].copy(),
        chosen[INDEX, :count].copy(),
        chosen[NODE, :count].copy(),
        about,
        more,
    )


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
    facts = _settled_before(state, now)
    plan = _plan(state, most, now, thorough=False, strict=strict)
    if plan.what == KEEP:
        nodes, tasks = plan.node.tolist(), plan.index.tolist()
        facts.append(NodesReserved(at=now, id=int(state.jobs.id[plan.about]), nodes=nodes, tasks=tasks))
    elif plan.what == DROP:
        facts.append(ReservationDropped(at=now, id=int(state.holds.job[plan.about])))
    elif len(plan.job):
        state.learned = (state.version, plan)
        facts.append(_placed(state, plan, now))
        if plan.about != NONE:
            facts.append(JobsPassedOver(at=now, ids=[int(state.jobs.id[plan.about])]))
    else:
        kernel_cycle.settle(state.view(), plan.more)
    ended = state.ended_jobs()
    surplus = len(ended) - state.settings.keep_jobs
    if surplus > max(0, state.settings.keep_jobs // 20):
        facts.append(JobsForgotten(at=now, ids=ended[:surplus].tolist()))
    return Decision(facts, plan.more or bool(state.dependencies.doomed))


def _settled_before(state: State, now: float) -> list[Fact]:
    """What follows from the state whoever is served next."""
    facts: list[Fact] = []
    if state.broken_gangs:
        revoked = _revoke_broken_gangs(state, now)
        facts += [revoked] if revoked is not None else []
    late = state.deadlines.over(now, state.runs)
    if late:
        job, index, attempt = np.array(late, np.int64).T
        facts.append(TasksExpired(at=now, job=job, index=index, attempt=attempt))
    facts += [JobCancelled(at=now, id=job) for job in sorted(state.dependencies.doomed)]
    return facts


def _placed(state: State, plan: Plan, now: float) -> TasksPlaced:
    """The placements as a fact."""
    index = _indices(state, plan.job, plan.index)
    tasks = state.jobs.first[plan.job] + index
    attempt = state.tasks.attempt[tasks].astype(np.int64) + 1
    return TasksPlaced(at=now, job=state.jobs.id[plan.job], index=index, attempt=attempt, node=plan.node)


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
