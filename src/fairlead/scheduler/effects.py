"""Apply facts to the state: `EFFECTS` has a function for each class of fact.

Tasks are updated in compiled code (:mod:`fairlead.scheduler.kernel`), all columns of a fact at once. Here is what follows for
jobs that are more than their tasks: gangs, dependencies.
"""

from collections.abc import Callable, Set
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from fairlead.model.cards import cards_of, words_of
from fairlead.model.quantity import LARGEST
from fairlead.model.specs import ROOT, Job
from fairlead.outcomes import Outcome
from fairlead.scheduler.facts import (
    FIXED_WHILE_RUNNING,
    Attempts,
    ClaimsPutOff,
    Configured,
    Contradiction,
    Fact,
    FactsLost,
    Ints,
    JobCancelled,
    JobEdited,
    JobHeld,
    JobReleased,
    JobsForgotten,
    JobsPassedOver,
    JobSubmitted,
    NodeDrained,
    NodeForgotten,
    NodeJoined,
    NodeLost,
    NodeResumed,
    NodesClaimed,
    NodesReserved,
    ReservationDropped,
    Revocation,
    SharesLooked,
    TasksCheckpointed,
    TasksExpired,
    TasksFact,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
    TasksStarted,
)
from fairlead.scheduler.frameworks import reservations as role_reservations
from fairlead.scheduler.frameworks.effects import (
    OFFER_EFFECTS,
    drop_offers_on,
    launched,
    make_way,
    note_ended,
    note_placed,
    note_started,
    queues_configured,
)
from fairlead.scheduler.growth import (
    compact,
    ensure_queue,
    ensure_resources,
    ensure_shape,
    group_of,
    rows_of_kinds,
    set_ended,
    write_jobs,
    write_queue,
)
from fairlead.scheduler.history import begin_ticks, coarsen, reset_changed_history, share_evenly
from fairlead.scheduler.job_caps import admit, count_admitted, leave
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.view import BEGAN, CLAIM_DUE, CYCLE, ENDED, NEXT_TICK
from fairlead.scheduler.queue_tree import mark_exact
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import CANCEL, EXPIRE, IMPOSSIBLE, JOB, PLACED, REVOKE, REVOKING, SUCCEEDED, TRANSITIONS, WAITING
from fairlead.scheduler.tables import CHANGED, GUARANTEE, I64, NONE, RESERVATION, WHY, Bools, vector

COMPACT_FROM = 100_000
"""Rows of tasks of forgotten jobs from which on the tables are compacted."""

_AFTER = np.array(TRANSITIONS, np.int8)


class Learned(NamedTuple):
    """What a cycle cached in the order about free nodes. Valid once its placements were applied.

    Attributes
    ----------
    cycle : int
        Number of the cycle; a later cycle overwrites its notes.
    version : int
        Version of the state that it read.
    placed : TasksPlaced
    more : bool
        True if there was more to decide at once.
    """

    cycle: int
    version: int
    placed: TasksPlaced
    more: bool


def new_state() -> State:
    """Return the state before the first fact: only the root queue."""
    state = State()
    ensure_queue(state, ROOT)
    return state


def apply(state: State, fact: Fact, learned: Learned | None = None) -> None:
    """Apply a fact to the state.

    Parameters
    ----------
    state : State
    fact : Fact
    learned : Learned, optional
        What the cycle that decided this fact learned; used only if the fact is its placements.

    Raises
    ------
    Contradiction
        The fact is impossible in this state, such as a second placement or the end of an attempt that is not current.
    """
    if type(fact.at) is not float:  # a fact written by hand
        fact = replace(fact, at=float(fact.at))
    state.version += 1
    effect = EFFECTS.get(type(fact))
    if effect is None:
        raise Contradiction(f"{type(fact).__name__} is not a fact of the scheduler")
    if not fact.at < state.times[NEXT_TICK]:
        if np.isnan(state.times[BEGAN]):
            state.times[BEGAN] = fact.at
        scheduling.fade(state.view(), fact.at)
    if state.days is not None:
        state.days.note(state, fact)
    effect(state, fact)
    if state.drained:
        _count_drained(state, fact.at)
    state.at = fact.at
    if (
        learned is not None
        and learned.placed is fact
        and learned.version == state.version - 1
        and learned.cycle == state.order.counts[CYCLE]
    ):
        scheduling.settle(state.view(), learned.more)


def _configured(state: State, fact: Configured) -> None:
    caps_before, state.settings = state.settings.max_jobs_of, fact.settings
    n, below = state.queues.n, _below_guarantee(state)
    before, policies = state.queues.tick[:n].copy(), state.queues.policy[:n].copy()
    state.tree.configure(fact.queues)
    state.tree.add((queue.name for queue in fact.queues if not queue.name.endswith("*")), state.queues)
    for row in range(state.queues.n):
        write_queue(state, row)
    state.tree.write_guarantees(state.queues, state.cluster.total)
    _note_below(state, below, fact.at)
    begin_ticks(state.queues, before, fact.at - state.times[BEGAN])
    reset_changed_history(state.queues, policies)
    share_evenly(state.queues, state.cluster.total)
    mark_exact(state.queues)
    queues_configured(state)
    state.order.invalidate()
    _admit_by_caps(state, caps_before, fact.at)


def _below_guarantee(state: State) -> Bools:
    """Mark each queue and resource of which it has less than its guarantee."""
    n = state.queues.n
    found: Bools = state.queues.used[:n] < state.queues.guarantee[:n]
    return found


def _note_below(state: State, before: Bools, at: float) -> None:
    """Note the moment for queues that a change of guarantees put below theirs; `before` is from before it."""
    now = _below_guarantee(state)[: len(before)]
    now[:, : before.shape[1]] &= ~before
    state.queues.below_since[: len(now)][now] = at


def _admit_by_caps(state: State, before: dict[str, int], at: float) -> None:
    """Admit waiting jobs after the caps on users' jobs changed. Jobs that are in stay in."""
    if state.settings.max_jobs_of != before:
        waited = sorted(job for jobs in state.job_caps.waits.values() for job in jobs)
        for job in count_admitted(state) or waited:
            enter_group_if_ready(state, state.job_row(job), at)


def _node_joined(state: State, fact: NodeJoined) -> None:
    ensure_resources(state, fact.node.capacity)
    row = state.cluster.rows.get(fact.node.name)
    before = state.nodes.capacity[row] * state.nodes.up[row] if row is not None else 0
    if (state.cluster.total - before >= LARGEST - vector(fact.node.capacity, state.resources)).any():
        raise Contradiction(f"node {fact.node.name} would raise a resource's total above the largest that can be counted")
    before = state.cluster.closed_to, state.cluster.only_to
    row = state.cluster.join(fact.node, state.nodes, state.resources)
    _capacity_changed(state, row, fact.at)
    if (state.cluster.closed_to, state.cluster.only_to) != before:
        _constrain_again(state, fact.at)


def _constrain_again(state: State, at: float) -> None:
    """Constrain waiting jobs to the nodes that are open to their users."""
    for number, job in sorted(state.index.specs.items(), key=lambda item: item[0]):
        row = state.job_row(number)
        if np.isnan(state.jobs.finished_at[row]) and ensure_shape(state, job) != state.jobs.shape_row[row]:
            _reshape(state, row, job, at)


def _capacity_changed(state: State, row: int, at: float) -> None:
    if (state.nodes.free[row] < 0).any() or role_reservations.are_absent(state, state.cluster.specs[row].name):
        drop_offers_on(state, row, "node changed", at)
    role_reservations.node_joined(state, row, at)
    _nodes_changed(state, at)


def _node_drained(state: State, fact: NodeDrained) -> None:
    row = _node_row(state, fact.node)
    if fact.cards:
        _set_drained(state, row, {*state.drained_cards(row), *fact.cards})
        state.drained.add(row)
        drop_offers_on(state, row, "node changed", fact.at)
        return
    state.nodes.draining[row] = True
    scheduling.drop_holds_on(state.view(), row, fact.at)
    state.count_rows()
    state.order.invalidate()


def _node_resumed(state: State, fact: NodeResumed) -> None:
    row = _node_row(state, fact.node)
    if fact.cards:
        _set_drained(state, row, {*state.drained_cards(row)} - {*fact.cards})
        return
    state.nodes.draining[row] = False
    state.order.invalidate()


def _set_drained(state: State, row: int, cards: Set[int]) -> None:
    state.nodes.set_cards("drained_cards", np.array([row]), np.array([words_of(cards)], np.int64))


def _count_drained(state: State, at: float) -> None:
    """Adjust the capacity of nodes with drained cards to which of these are in use now."""
    for row in list(state.drained):
        in_use: set[int] = set()
        task = int(state.nodes.task[row])
        while task != NONE:
            in_use |= {*cards_of(state.tasks.cards[task].tolist())}
            task = int(state.tasks.after[task])
        if state.cluster.count_drained(row, in_use, state.nodes, state.resources) and state.nodes.up[row]:
            _capacity_changed(state, row, at)
        if not state.drained_cards(row):
            state.drained.discard(row)


def _node_lost(state: State, fact: NodeLost) -> None:
    row = _node_row(state, fact.node)
    if not state.nodes.up[row]:
        raise Contradiction(f"node {fact.node} is lost already")
    scheduling.drop_holds_on(state.view(), row, fact.at)
    drop_offers_on(state, row, "node lost", fact.at)
    rows = state.held_rows()
    rows = rows[state.tasks.node[rows] == row]
    outcome, code = np.full(len(rows), Outcome.LOST, np.int64), np.zeros(len(rows), np.int64)
    _finish(state, state.attempts_of(rows), outcome, code, fact.at)
    role_reservations.node_lost(state, row, fact.at)
    state.nodes.up[row] = False
    state.cluster.count(state.nodes)
    _nodes_changed(state, fact.at)


def _node_forgotten(state: State, fact: NodeForgotten) -> None:
    row = _node_row(state, fact.node)
    if state.nodes.up[row] or state.nodes.forgotten[row]:
        raise Contradiction(f"node {fact.node} is up, or forgotten already")
    state.nodes.forgotten[row] = True


def _job_submitted(state: State, fact: JobSubmitted) -> None:
    job = fact.job
    if fact.id <= state.index.last or job.tasks < 1:
        raise Contradiction(f"job {fact.id} with {job.tasks} tasks after job {state.index.last}")
    row, groups = write_jobs(state, np.array([fact.id]), [job], np.zeros(1, np.int64))
    state.jobs.submitted_at[row] = fact.at
    state.index.add(fact.id, job, row)
    if job.framework:
        launched(state, fact.id, job, fact.at)
    if job.after:
        _add_dependencies(state, row, fact)
    elif not job.held and (not state.settings.max_jobs_of or admit(state, row)):
        scheduling.enter_group(state.view(), row, int(groups[0]), fact.at)
        n = state.nodes.n if state.offers.n and not job.framework else 0
        if n and not (state.nodes.free[:n] >= state.shapes.demand[state.jobs.shape_row[row]]).all(axis=1).any():
            make_way(state, fact.at)


def _add_dependencies(state: State, row: int, fact: JobSubmitted) -> None:
    others = [after.job for after in fact.job.after]
    state.dependencies.add(fact.id, others)
    state.jobs.plain[row] = False
    for other in dict.fromkeys(others):
        before = state.job_row(other)
        state.jobs.plain[before] = False
        if not np.isnan(state.jobs.finished_at[before]):
            _release_dependents(state, other, fact.at)
    enter_group_if_ready(state, row, fact.at)


def _job_cancelled(state: State, fact: JobCancelled) -> None:
    row = state.job_row(fact.id)
    first, count = state.jobs.first[row], state.jobs.tasks[row]
    index = np.arange(count) if fact.indices is None else np.asarray(fact.indices, np.int64)
    if len(index) and (index.min() < 0 or index.max() >= count):
        raise Contradiction(f"job {fact.id} has {count} tasks, not index {index.min()} to {index.max()}")
    chosen = first + index
    status = state.tasks.status
    never = chosen[status[chosen] == WAITING]
    held = chosen[(status[chosen] >= PLACED) & (status[chosen] <= REVOKING)]
    status[never], status[held] = _AFTER[status[never], CANCEL], _AFTER[status[held], CANCEL]
    if fact.grace is not None and len(held):
        state.frameworks.graces[fact.id] = fact.grace
    if fact.by_admin:
        state.frameworks.charges.pop(fact.id, None)
    state.tasks.finished_at[never] = fact.at
    state.jobs.waiting[row] -= len(never)
    state.jobs.cancelled[row] += len(never)
    if len(never):
        state.jobs.irregular[row] = True
        _leave_group(state, row, fact.at)  # the size of a gang changed
        _after_tasks_changed(state, row, fact.at)


def _row_of_job(state: State, job: int, event: str) -> int:
    """Return the row of a job to which an event happens; refuse one that its lifecycle does not allow."""
    row = state.job_row(job)
    status = state.job_status(row)
    if not JOB.allows(event, status):
        raise Contradiction(f"job {job} is {status}: it cannot be {event}")
    return row


def _job_held(state: State, fact: JobHeld) -> None:
    row = _row_of_job(state, fact.id, "held")
    state.jobs.held[row] = True
    _leave_group(state, row, fact.at)
    _admit_others(state, row, fact.at)


def _job_released(state: State, fact: JobReleased) -> None:
    row = _row_of_job(state, fact.id, "released")
    state.jobs.held[row] = False
    _after_tasks_changed(state, row, fact.at)


def _job_edited(state: State, fact: JobEdited) -> None:
    row, spec = _row_of_job(state, fact.id, "edited"), state.index.specs[fact.id]
    job = fact.edited(spec)
    if state.jobs.holding[row] and any(getattr(job, name) != getattr(spec, name) for name in FIXED_WHILE_RUNNING):
        raise Contradiction(f"job {fact.id} cannot be edited: the field is fixed while it runs")
    _reshape(state, row, job, fact.at)
    state.index.specs[fact.id] = job


def _reshape(state: State, row: int, job: Job, at: float) -> None:
    """Let a job wait as what `job` asks for."""
    _leave_group(state, row, at)
    (new,), _ = rows_of_kinds(state, [job])
    for name in ("queue", "shape_row", "priority", "retries", "home", "time_limit", "family", "at_most"):
        getattr(state.jobs, name)[row] = new[name]
    _after_tasks_changed(state, row, at)


def _tasks_placed(state: State, fact: TasksPlaced) -> None:
    rows, view = state.job_rows(fact.job), state.view()
    bad = scheduling.placed(view, rows, fact.index, fact.attempt, fact.node, fact.at)
    _refuse(state, bad, fact.job, fact.index, "been placed")
    if "gpu" in state.resources:
        state.tasks.cards[state.jobs.first[rows] + fact.index] = 0  # those of the attempt before
    if state.frameworks.have_tasks:
        note_placed(state, rows, fact.node, fact.at)


def _tasks_started(state: State, fact: TasksStarted) -> None:
    rows, view = state.job_rows(fact.job), state.view()
    bad = scheduling.started(view, rows, fact.index, fact.attempt, fact.at)
    _refuse(state, bad, fact.job, fact.index, "been started")
    if len(fact.ago):
        state.tasks.started_at[state.jobs.first[rows] + fact.index] -= fact.ago / 1000
    if len(fact.cards):
        state.tasks.set_cards("cards", state.jobs.first[rows] + fact.index, fact.cards.reshape(len(rows), -1))
    if state.frameworks.have_tasks:
        note_started(state, rows, fact.at)
    for k in scheduling.limited(view, rows).tolist():
        until = float(state.tasks.started_at[state.jobs.first[rows[k]] + fact.index[k]] + state.jobs.time_limit[rows[k]])
        state.deadlines.add(until, (int(fact.job[k]), int(fact.index[k]), int(fact.attempt[k])))


def _tasks_finished(state: State, fact: TasksFinished) -> None:
    if len(fact.ran):
        rows = _current(state, fact, "ended")
        state.tasks.started_at[rows] = fact.began(state.tasks.started_at[rows])
    _finish(state, fact.attempts, fact.outcome, fact.code, fact.at)
    if len(fact.cpu):
        rows = state.jobs.first[state.job_rows(fact.job)] + fact.index
        state.tasks.cpu[rows] += fact.cpu / 1000
        state.tasks.peak[rows] = np.maximum(state.tasks.peak[rows], fact.peak)


def _tasks_checkpointed(state: State, fact: TasksCheckpointed) -> None:
    rows = _current(state, fact, "checkpointed")
    state.tasks.kept_at[rows] = np.maximum(state.tasks.kept_at[rows], fact.at - fact.ago / 1000)


def _tasks_revoked(state: State, fact: TasksRevoked) -> None:
    _change_status(state, fact, REVOKE, "been revoked")
    state.broken_gangs.difference_update(fact.job.tolist())
    if fact.claim is not None:
        for job, count in zip(*np.unique(fact.job, return_counts=True), strict=True):
            before = state.revocations.get(int(job))
            tasks = int(count) + (before.tasks if before else 0)
            state.revocations[int(job)] = Revocation(fact.at, tasks, fact.claim)


def _tasks_expired(state: State, fact: TasksExpired) -> None:
    _change_status(state, fact, EXPIRE, "run out of time")


def _jobs_passed_over(state: State, fact: JobsPassedOver) -> None:
    for job in fact.ids:
        group = state.jobs.group[state.job_row(job)]
        if group != NONE:
            scheduling.note_bypassed(state.view(), group, fact.at)


def _nodes_reserved(state: State, fact: NodesReserved) -> None:
    start = fact.at if fact.start is None else fact.start
    if not all(leaf in state.tree.rows for leaf in fact.apart):
        raise Contradiction(f"some of queues {fact.apart} are unknown")
    apart = [state.tree.rows[leaf] for leaf in fact.apart]
    _keep_nodes(state, fact, RESERVATION, start, fact.slips, np.array(apart, np.int64))


def _nodes_claimed(state: State, fact: NodesClaimed) -> None:
    _keep_nodes(state, fact, _claim_kind(fact.why), fact.at, 0, np.zeros(0, np.int64))


def _claim_kind(why: str) -> int:
    for kind, known in WHY.items():
        if why == known:
            return kind
    raise Contradiction(f"unknown class of claims: {why!r}")


def _keep_nodes(state: State, fact: NodesReserved | NodesClaimed, kind: int, start: float, slips: int, apart: I64) -> None:
    group = int(state.jobs.group[state.job_row(fact.id)])
    nodes, tasks = np.asarray(fact.nodes, np.int64), np.asarray(fact.tasks, np.int64)
    n = state.holds.n
    if group == NONE or (nodes < 0).any() or (nodes >= state.nodes.n).any() or (tasks < 1).any():
        raise Contradiction(f"nodes {fact.nodes} cannot be reserved for job {fact.id}")
    state.holds.extend(len(nodes))
    state.holds.n = n
    order = np.argsort(nodes, kind="stable")
    row = state.job_row(fact.id)
    scheduling.keep_nodes(state.view(), group, row, nodes[order], tasks[order], kind, start, slips, apart, fact.at)
    state.count_rows()


def _shares_looked(state: State, fact: SharesLooked) -> None:
    rows = [state.tree.rows[name] for name in fact.short if name in state.tree.rows]
    if len(rows) < len(fact.short):
        raise Contradiction(f"some of queues {fact.short} are unknown")
    since = state.queues.short_since
    before = since[rows].copy()
    since[1 : state.queues.n] = np.inf
    since[rows] = np.minimum(before, fact.at)
    since[0] = fact.at
    state.times[CLAIM_DUE] = -np.inf


def _claims_put_off(state: State, fact: ClaimsPutOff) -> None:
    kind = _claim_kind(fact.why) if fact.why else GUARANTEE
    for job in fact.ids:
        group = state.jobs.group[state.job_row(job)]
        if group != NONE:
            state.groups.retry_at[group], state.groups.retry_from[group] = fact.until, kind


def _reservation_dropped(state: State, fact: ReservationDropped) -> None:
    for group in np.unique(state.holds.group[: state.holds.n][state.holds.job[: state.holds.n] == fact.id]):
        scheduling.drop_holds(state.view(), group, fact.at)
    state.count_rows()


def _jobs_forgotten(state: State, fact: JobsForgotten) -> None:
    ids = np.asarray(fact.ids, np.int64)
    rows = state.job_rows(ids)
    if (rows == NONE).any() or np.isnan(state.jobs.finished_at[rows]).any():
        raise Contradiction(f"some of the jobs to forget, from {fact.ids[:1]} on, are unknown or have not ended")
    state.dead_tasks += int(state.jobs.tasks[rows].sum())
    state.jobs.id[rows] = NONE
    state.index.forget(ids)
    for job in fact.ids:
        state.revocations.pop(job, None)
    ended = state.ended_jobs()
    if not np.array_equal(ended[: len(ids)], ids):
        set_ended(state, np.concatenate([ids, ended[~np.isin(ended, ids)]]))
        state.order.counts[ENDED], state.forgotten = len(ended), 0
    state.forgotten += len(ids)
    if state.dead_tasks > COMPACT_FROM and 2 * state.dead_tasks > state.tasks.n:
        compact(state)


def _facts_lost(state: State, fact: FactsLost) -> None:
    if fact.count < 1:
        raise Contradiction(f"{fact.count} facts were lost")
    state.index.last += fact.count


def _refuse(state: State, bad: int, job: Ints, index: Ints, what: str) -> None:
    state.count_rows()
    if bad >= 0:
        raise Contradiction(f"task {job[bad]}.{index[bad]} cannot have {what}: its status does not allow it")


def _current(state: State, fact: TasksFact, what: str) -> I64:
    """Return the task rows of a fact about attempts that hold resources."""
    rows = state.current_tasks(fact.attempts)
    _refuse(state, int(np.argmax(rows == NONE)) if (rows == NONE).any() else -1, fact.job, fact.index, what)
    return rows


def _change_status(state: State, fact: TasksRevoked | TasksExpired, event: int, what: str) -> None:
    tasks = state.current_tasks(fact.attempts)
    there = tasks != NONE
    after = np.full(len(tasks), IMPOSSIBLE, np.int8)
    after[there] = _AFTER[state.tasks.status[tasks[there]], event]
    wrong = np.flatnonzero(after == IMPOSSIBLE)
    _refuse(state, int(wrong[0]) if len(wrong) else -1, fact.job, fact.index, what)
    state.tasks.status[tasks] = after
    state.deadlines.clean(state.runs)


def _nodes_changed(state: State, at: float) -> None:
    """Recompute what depends on the cluster's capacity; plans for reservations may improve."""
    state.moves[0] += 1
    state.count_rows()
    if state.holds.n:
        state.holds.change[: state.holds.n] = np.maximum(state.holds.change[: state.holds.n], CHANGED)
    below = _below_guarantee(state)
    state.tree.follow_total(state.queues, state.resources, state.cluster.total)
    _note_below(state, below, at)
    coarsen(state.queues, state.grain, state.cluster.total)
    share_evenly(state.queues, state.cluster.total)
    state.order.invalidate()


def _node_row(state: State, name: str) -> int:
    if name not in state.cluster.rows:
        raise Contradiction(f"there is no node {name}")
    return state.cluster.rows[name]


def enter_group_if_ready(state: State, row: int, at: float) -> None:
    """Put a job into its group, unless it is in one, has nothing to start, is held, is broken, or waits for other jobs."""
    jobs = state.jobs
    job = int(jobs.id[row])
    waits = job in state.dependencies.waits_for or job in state.broken_gangs
    if jobs.group[row] != NONE or not jobs.startable(row) or jobs.held[row] or waits:
        return
    if state.settings.max_jobs_of and not admit(state, row):
        return
    group = group_of(state, row)
    scheduling.enter_group(state.view(), row, group, at)


def _leave_group(state: State, row: int, at: float) -> None:
    if state.jobs.group[row] != NONE:
        scheduling.leave_group(state.view(), row, at)
        state.count_rows()


def _finish(state: State, attempts: Attempts, outcome: Ints, code: Ints, at: float) -> None:
    rows, touched = state.job_rows(attempts.job), np.empty(len(outcome), np.int64)
    was = state.tasks.status[state.jobs.first[rows]] if state.frameworks.have_tasks else None
    most = state.settings.max_losses
    bad = scheduling.finished(state.view(), rows, attempts.index, attempts.number, outcome, code, at, most, touched)
    _refuse(state, bad, attempts.job, attempts.index, "ended")
    if was is not None:
        note_ended(state, rows, was, outcome, code, at)
    make_way(state, at, state.tasks.node[state.jobs.first[rows] + attempts.index])
    state.deadlines.clean(state.runs)
    changed = {*touched.tolist()} - {NONE}
    if state.index.led:
        changed |= {row for row in rows[attempts.index == 0].tolist() if has_leader_ended(state, row)}
    for row in sorted(changed):
        _after_tasks_changed(state, row, at)


def _after_tasks_changed(state: State, row: int, at: float) -> None:
    """Update a job after its tasks ended, came back or were cancelled: it ends, waits in its group, or is a broken gang."""
    jobs = state.jobs
    job = int(jobs.id[row])
    if has_leader_ended(state, row) and (jobs.waiting[row] or jobs.holding[row]):
        _leave_group(state, row, at)
        state.broken_gangs.add(job)
    elif jobs.waiting[row] == 0:
        state.broken_gangs.discard(job)
        if jobs.holding[row] == 0 and np.isnan(jobs.finished_at[row]):
            scheduling.end_job(state.view(), row, at)
            _release_dependents(state, job, at)
    elif jobs.gang[row] and jobs.holding[row]:
        state.broken_gangs.add(job)
    else:
        state.broken_gangs.discard(job)
        enter_group_if_ready(state, row, at)
    _admit_others(state, row, at)


def _admit_others(state: State, row: int, at: float) -> None:
    """Admit other jobs of the same user, if this one has ended, is held, or is a gang that is about to end."""
    jobs = state.jobs
    stopped = jobs.held[row] or int(jobs.id[row]) in state.broken_gangs
    over = not np.isnan(jobs.finished_at[row]) or (stopped and jobs.holding[row] == 0)
    for job in leave(state, row) if over and state.settings.max_jobs_of else []:
        enter_group_if_ready(state, state.job_row(job), at)


def has_leader_ended(state: State, row: int) -> bool:
    """True if a job is a gang with a leader, and its leader (its first task) has ended."""
    led = state.index.led
    return bool(led) and int(state.jobs.id[row]) in led and bool(state.tasks.status[state.jobs.first[row]] >= SUCCEEDED)


def _release_dependents(state: State, ended: int, at: float) -> None:
    row = state.job_row(ended)
    success = bool(state.jobs.failed[row] == 0 and state.jobs.cancelled[row] == 0)
    for job in state.dependencies.ended(ended, success, state.index.specs):
        enter_group_if_ready(state, state.job_row(job), at)


EFFECTS: dict[type[Fact], Callable[..., None]] = {
    Configured: _configured,
    NodeJoined: _node_joined,
    NodeDrained: _node_drained,
    NodeResumed: _node_resumed,
    NodeLost: _node_lost,
    NodeForgotten: _node_forgotten,
    JobSubmitted: _job_submitted,
    JobCancelled: _job_cancelled,
    JobHeld: _job_held,
    JobReleased: _job_released,
    JobEdited: _job_edited,
    TasksPlaced: _tasks_placed,
    TasksStarted: _tasks_started,
    TasksFinished: _tasks_finished,
    TasksCheckpointed: _tasks_checkpointed,
    TasksRevoked: _tasks_revoked,
    TasksExpired: _tasks_expired,
    JobsPassedOver: _jobs_passed_over,
    NodesReserved: _nodes_reserved,
    ReservationDropped: _reservation_dropped,
    NodesClaimed: _nodes_claimed,
    SharesLooked: _shares_looked,
    ClaimsPutOff: _claims_put_off,
    JobsForgotten: _jobs_forgotten,
    FactsLost: _facts_lost,
    **OFFER_EFFECTS,
}
