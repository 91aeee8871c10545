"""Apply facts to the state. A class of facts names its function: `_job_submitted` applies JobSubmitted.

Tasks are updated in compiled code (:mod:`fairlead.scheduler.kernel`), all columns of a fact at once. Here is what follows for
jobs that are more than their tasks: gangs, dependencies.
"""

import re
from collections.abc import Callable, Iterable, Set
from heapq import heappop, heappush
from typing import NamedTuple, get_args

import numpy as np
from msgspec.structs import replace

from fairlead.model.cards import cards_of, words_of
from fairlead.model.quantity import LARGEST
from fairlead.model.specs import ROOT, Job
from fairlead.outcomes import Outcome
from fairlead.scheduler import facts, growth
from fairlead.scheduler.frameworks import effects as of_frameworks
from fairlead.scheduler.frameworks import reservations as role_reservations
from fairlead.scheduler.history import begin_ticks, coarsen, reset_changed_history, share_evenly
from fairlead.scheduler.job_caps import admit, count_admitted, leave
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.view import BEGAN, CLAIM_DUE, CYCLE, DEBTS_AT, ENDED, IDLE_BUDGET, LEAVING, NEXT_TICK
from fairlead.scheduler.preemption.oversized import forget_oversized, note_oversized
from fairlead.scheduler.queue_tree import mark_exact
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import (
    CANCEL,
    EXPIRE,
    IMPOSSIBLE,
    JOB,
    PLACED,
    REVOKE,
    REVOKING,
    RUNNING,
    SUCCEEDED,
    TRANSITIONS,
    WAITING,
)
from fairlead.scheduler.tables import APART, GUARANTEE, I64, NONE, RESERVATION, WHY, Bools, vector

LONGEST_DELAY = 3600.0
"""Seconds to which the delays between a task's attempts grow."""
COMPACT_FROM = 100_000
"""Rows of tasks of forgotten jobs from which on the tables are compacted."""

_AFTER = np.array(TRANSITIONS, np.int8)


class Learned(NamedTuple):
    """What a cycle cached in the order about free nodes. Valid once its placements were applied.

    cycle : number of the cycle; a later cycle overwrites its notes
    version : version of the state that it read
    """

    cycle: int
    version: int
    placed: facts.TasksPlaced


ASKED = (
    facts.Configured,
    facts.JobCancelled,
    facts.JobEdited,
    facts.JobHeld,
    facts.JobReleased,
    facts.NodeDrained,
    facts.NodeJoined,
    facts.NodeLost,
    facts.NodeResumed,
)
"""Debts are counted before these: until now all is as it was. A replay has them in another order within a moment."""


def new_state() -> State:
    """Return the state before the first fact: only the root queue."""
    state = State()
    growth.ensure_queue(state, ROOT)
    return state


def apply(state: State, fact: facts.Fact, learned: Learned | None = None) -> None:
    """Apply a fact to the state.

    Raises Contradiction if it is impossible in this state, such as a second placement or the end of an attempt that is not
    current.

    learned : what the cycle that decided this fact learned; used only if the fact is its placements
    """
    if type(fact.at) is not float:  # a fact written by hand
        fact = replace(fact, at=float(fact.at))
    state.version += 1
    effect = EFFECTS.get(type(fact))
    if effect is None:
        raise facts.Contradiction(f"{type(fact).__name__} is not a fact of the scheduler")
    if not fact.at < state.times[NEXT_TICK]:
        if np.isnan(state.times[BEGAN]):
            state.times[BEGAN] = fact.at
        scheduling.fade(state.view(), fact.at)
    if state.days is not None:
        state.days.note(state, fact)
    if isinstance(fact, ASKED) and state.queues.n:
        scheduling.begin_moment(state.view(), fact.at)
    effect(state, fact)
    if state.drained:
        _count_drained(state, fact.at)
    if state.cluster.closed and state.cluster.count_closed(state.nodes):
        _nodes_changed(state, fact.at)
    state.at = fact.at
    if (
        learned is not None
        and learned.placed is fact
        and learned.version == state.version - 1
        and learned.cycle == state.order.counts[CYCLE]
    ):
        scheduling.settle(state.view(), learned.placed.more)


def _configured(state: State, fact: facts.Configured) -> None:
    caps_before, state.settings = state.settings.max_jobs_of, fact.settings
    state.times[IDLE_BUDGET] = fact.settings.idle_budget
    if not fact.settings.idle_budget:  # then nobody is owed room
        state.times[DEBTS_AT], state.queues.debt[:], state.queues.owed[:] = -np.inf, 0.0, 0
    n, below = state.queues.n, _below_guarantee(state)
    before, policies = state.queues.tick[:n].copy(), state.queues.policy[:n].copy()
    guarded = state.queues.guarded[:n].copy()
    state.tree.configure(fact.queues)
    state.named = None
    state.tree.add((queue.name for queue in fact.queues if not queue.name.endswith("*")), state.queues)
    for row in range(state.queues.n):
        growth.write_queue(state, row)
    state.tree.write_guarantees(state.queues, state.cluster.open)
    state.queues.standing[0] = NONE
    _note_below(state, below, fact.at)
    forget_oversized(state, guarded & ~state.queues.guarded[:n])
    begin_ticks(state.queues, before, fact.at - state.times[BEGAN])
    reset_changed_history(state.queues, policies)
    share_evenly(state.queues, state.cluster.total)
    mark_exact(state.queues)
    of_frameworks.queues_configured(state)
    scheduling.count_pending(state.view())  # the lines may be others
    state.order.invalidate()
    if state.settings.max_jobs_of != caps_before:  # jobs that are in stay in
        waited = sorted(job for jobs in state.job_caps.waits.values() for job in jobs)
        enter_all(state, count_admitted(state) or waited, fact.at)


def _below_guarantee(state: State) -> Bools:
    """Mark each queue and resource of which it has less than its guarantee."""
    n = state.queues.n
    return state.queues.used[:n] < state.queues.guarantee[:n]


def _note_below(state: State, before: Bools, at: float) -> None:
    """Note the moment for queues that a change of guarantees put below theirs; `before` is from before it."""
    now = _below_guarantee(state)[: len(before)]
    now[:, : before.shape[1]] &= ~before
    state.queues.below_since[: len(now)][now] = at


def _node_joined(state: State, fact: facts.NodeJoined) -> None:
    growth.ensure_resources(state, fact.node.capacity)
    row = state.cluster.rows.get(fact.node.name)
    before = state.nodes.capacity[row] * state.nodes.up[row] if row is not None else 0
    if (state.cluster.capacity - before >= LARGEST - vector(fact.node.capacity, state.resources)).any():
        raise facts.Contradiction(f"node {fact.node.name} would raise a resource's total above the largest that can be counted")
    before = state.cluster.closed_to, state.cluster.only_to, state.cluster.older
    if row is not None and state.cluster.specs[row] != fact.node:  # what was kept there may not fit any more, or be refused
        scheduling.drop_holds_on(state.view(), row, fact.at)
    row = state.cluster.join(fact.node, state.nodes, state.resources)
    state.named = None
    _capacity_changed(state, row, fact.at)
    if (state.cluster.closed_to, state.cluster.only_to, state.cluster.older) != before:
        state.kinds.clear()
        for number, job in sorted(state.index.specs.items(), key=lambda item: item[0]):
            row = state.job_row(number)
            if np.isnan(state.jobs.finished_at[row]) and growth.ensure_shape(state, job) != state.jobs.shape_row[row]:
                _reshape(state, row, job, fact.at)  # it waits for the nodes that are open to its user


def _capacity_changed(state: State, row: int, at: float) -> None:
    reserved = state.frameworks.role_reservations.get(state.cluster.specs[row].name, {}).values()
    if (state.nodes.free[row] < 0).any() or not all(reservation.there for reservation in reserved):
        of_frameworks.drop_offers_on(state, row, "node changed", at)
    role_reservations.node_joined(state, row, at)
    _nodes_changed(state, at)


def _node_drained(state: State, fact: facts.NodeDrained) -> None:
    row = _node_row(state, fact.node)
    if fact.cards:
        _set_drained(state, row, {*state.drained_cards(row), *fact.cards})
        state.drained.add(row)
        of_frameworks.drop_offers_on(state, row, "node changed", fact.at)
        return
    state.nodes.draining[row] = True
    scheduling.drop_holds_on(state.view(), row, fact.at)
    state.cluster.count(state.nodes)
    _nodes_changed(state, fact.at)


def _node_resumed(state: State, fact: facts.NodeResumed) -> None:
    row = _node_row(state, fact.node)
    if fact.cards:
        _set_drained(state, row, {*state.drained_cards(row)} - {*fact.cards})
        return
    state.nodes.draining[row] = False
    state.cluster.count(state.nodes)
    _nodes_changed(state, fact.at)


def _set_drained(state: State, row: int, cards: Set[int]) -> None:
    state.nodes.set_cards("drained_cards", np.array([row]), np.array([words_of(cards)], np.int64))


def _count_drained(state: State, at: float) -> None:
    """Adjust the capacity of nodes with drained cards to which of these are in use now."""
    for row in list(state.drained):
        in_use = {card for task in state.held_rows([row]) for card in cards_of(state.tasks.cards[task].tolist())}
        scheduling.count_idle(state.view(), row, at)
        if state.cluster.count_drained(row, in_use, state.nodes, state.resources) and state.nodes.up[row]:
            scheduling.set_idle(state.view(), row)
            _capacity_changed(state, row, at)
        if not state.drained_cards(row):
            state.drained.discard(row)


def _node_lost(state: State, fact: facts.NodeLost) -> None:
    row = _node_row(state, fact.node)
    if not state.nodes.up[row]:
        raise facts.Contradiction(f"node {fact.node} is lost already")
    scheduling.drop_holds_on(state.view(), row, fact.at)
    of_frameworks.drop_offers_on(state, row, "node lost", fact.at)
    rows = state.held_rows([row])
    outcome, code = np.full(len(rows), Outcome.LOST, np.int64), np.zeros(len(rows), np.int64)
    _finish(state, state.attempts_of(rows), outcome, code, fact.at)
    role_reservations.node_lost(state, row, fact.at)
    state.nodes.up[row] = False
    state.cluster.count(state.nodes)
    _nodes_changed(state, fact.at)


def _node_forgotten(state: State, fact: facts.NodeForgotten) -> None:
    row = _node_row(state, fact.node)
    if state.nodes.up[row] or state.nodes.forgotten[row]:
        raise facts.Contradiction(f"node {fact.node} is up, or forgotten already")
    state.nodes.forgotten[row] = True
    state.named = None
    state.cluster.members.pop(fact.node, None)


def _node_token_made(state: State, fact: facts.NodeTokenMade) -> None:
    known = state.cluster.node_tokens.items()
    valid = {each: (until, node) for each, (until, node) in known if until > fact.at}
    state.cluster.node_tokens = {**valid, fact.hash: (fact.until, fact.node)}


def _node_admitted(state: State, fact: facts.NodeAdmitted) -> None:
    if fact.token and state.cluster.node_tokens.pop(fact.token, None) is None:
        raise facts.Contradiction(f"node {fact.node} joins with a token that is unknown or used")
    state.cluster.members[fact.node] = fact.certificate


def _node_left(state: State, fact: facts.NodeLeft) -> None:
    if state.cluster.members.pop(fact.node, None) is None:
        raise facts.Contradiction(f"node {fact.node} leaves and is no member")


def _job_submitted(state: State, fact: facts.JobSubmitted) -> None:
    columns = fact.columns
    jobs, count = columns.jobs, len(columns.jobs)
    if fact.id <= state.index.last or columns.least < 1:
        raise facts.Contradiction(f"job {fact.id} with {columns.least} tasks after job {state.index.last}")
    rows, groups, which = growth.rows_of_jobs(state, columns)
    numbers, groups = np.arange(fact.id, fact.id + count), groups[which]
    first = growth.write_rows(state, numbers, rows, which)
    state.jobs.family[first : first + count] = columns.families
    state.jobs.submitted_at[first : first + count] = fact.at
    state.index.add(numbers, jobs, first + np.arange(count), columns.noted)
    if not (state.settings.max_jobs_of or state.offers.n or columns.special):
        scheduling.submitted(state.view(), first, groups, fact.at)
        return
    for row, (job, group) in enumerate(zip(jobs, groups.tolist(), strict=True), first):
        number = fact.id + row - first
        scheduling.note_arrival(state.view(), group, fact.at)
        if job.framework:
            of_frameworks.launched(state, number, job, fact.at)
        if job.after or job.singleton or job.begin is not None:
            _add_dependencies(state, row, number, job, fact.at)
        elif not job.held and (not state.settings.max_jobs_of or admit(state, row)):
            scheduling.enter_group(state.view(), row, group, fact.at)
            n = state.nodes.n if state.offers.n and not job.framework else 0
            if n and not (state.nodes.free[:n] >= state.shapes.demand[state.jobs.shape_row[row]]).all(axis=1).any():
                of_frameworks.make_way(state, fact.at)


def _add_dependencies(state: State, row: int, number: int, job: Job, at: float) -> None:
    state.dependencies.add(number, job, at)
    state.jobs.plain[row] = False
    if any(after.how == "index" for after in job.after):
        _delay(state, row, np.arange(job.tasks))
    starts = {after.job for after in job.after if after.how == "start"}
    for other in dict.fromkeys(after.job for after in job.after):
        before = state.job_row(other)
        state.jobs.plain[before] = False
        if other in state.dependencies.paired:
            _tasks_ended(state, other, np.arange(state.jobs.tasks[before]), at)
        if not np.isnan(state.jobs.finished_at[before]):
            _release_dependents(state, other, at)
        elif other in starts:
            tasks = slice(state.jobs.first[before], state.jobs.first[before] + state.jobs.tasks[before])
            if not np.isnan(state.tasks.started_at[tasks]).all():
                enter_all(state, state.dependencies.started(other, state.index.specs), at)
    enter_group_if_ready(state, row, at)


def _delay(state: State, row: int, places: I64) -> None:
    """Keep waiting tasks of a job, by their places, from starting."""
    state.tasks.delayed[state.jobs.first[row] + places] = True
    state.jobs.delayed[row] += len(places)
    state.jobs.irregular[row] = True


def _undelay(state: State, row: int, places: I64, at: float) -> None:
    tasks = state.jobs.first[row] + places
    tasks = tasks[state.tasks.delayed[tasks]]
    state.tasks.delayed[tasks] = False
    state.jobs.delayed[row] -= len(tasks)
    _leave_group(state, row, at)
    enter_group_if_ready(state, row, at)


def _jobs_due(state: State, fact: facts.JobsDue) -> None:
    for job, places in state.dependencies.take_due(fact.ids, fact.at).items():
        row = state.index.find(job)
        if row != NONE:
            _undelay(state, row, np.array(places, np.int64), fact.at)


def _tasks_ended(state: State, number: int, places: I64, at: float) -> None:
    """Let the tasks start that wait for these of a job, as far as those have ended; they are doomed if one did not succeed."""
    first, work = state.jobs.first[state.job_row(number)], state.index.specs[number].work
    status = state.tasks.status[first + places]
    over = status >= SUCCEEDED
    numbers, success = [work.known_as(place) for place in places[over].tolist()], status[over] == SUCCEEDED
    for other in list(state.dependencies.paired[number]):
        row = state.job_row(other)
        mine = np.array(state.index.specs[other].work.places_of(numbers, int(state.jobs.tasks[row])), np.int64)
        if lost := mine[(mine >= 0) & ~success].tolist():
            doomed = state.dependencies.doomed_tasks
            doomed[other] = sorted({*doomed.get(other, ()), *lost})
        _undelay(state, row, mine[(mine >= 0) & success], at)


def _job_cancelled(state: State, fact: facts.JobCancelled) -> None:
    row = state.job_row(fact.id)
    first, count = state.jobs.first[row], state.jobs.tasks[row]
    index = np.arange(count) if fact.indices is None else np.asarray(fact.indices, np.int64)
    if len(index) and (index.min() < 0 or index.max() >= count):
        raise facts.Contradiction(f"job {fact.id} has {count} tasks, not index {index.min()} to {index.max()}")
    chosen = first + index
    status = state.tasks.status
    never = chosen[status[chosen] == WAITING]
    held = chosen[(status[chosen] >= PLACED) & (status[chosen] <= REVOKING)]
    state.order.counts[LEAVING] += len(np.unique(held[status[held] <= RUNNING]))
    status[never], status[held] = _AFTER[status[never], CANCEL], _AFTER[status[held], CANCEL]
    if fact.grace is not None and len(held):
        state.frameworks.graces[fact.id] = fact.grace
    if fact.by_admin:
        state.frameworks.charges.pop(fact.id, None)
    state.tasks.finished_at[never] = fact.at
    state.jobs.delayed[row] -= state.tasks.delayed[never].sum()
    state.tasks.delayed[never] = False
    if lost := {*state.dependencies.doomed_tasks.pop(fact.id, ())} - {*index.tolist()}:
        state.dependencies.doomed_tasks[fact.id] = sorted(lost)
    state.jobs.waiting[row] -= len(never)
    state.jobs.cancelled[row] += len(never)
    if len(never):
        state.jobs.irregular[row] = True
        _leave_group(state, row, fact.at)  # the size of a gang changed
        if fact.id in state.dependencies.paired:
            _tasks_ended(state, fact.id, index, fact.at)
        _after_tasks_changed(state, row, fact.at)


def _row_of_job(state: State, job: int, event: str) -> int:
    """Return the row of a job to which an event happens; refuse one that its lifecycle does not allow."""
    row = state.job_row(job)
    status = state.job_status(row)
    if not JOB.allows(event, status):
        raise facts.Contradiction(f"job {job} is {status}: it cannot be {event}")
    return row


def _job_held(state: State, fact: facts.JobHeld) -> None:
    row = _row_of_job(state, fact.id, "held")
    state.jobs.held[row] = True
    _leave_group(state, row, fact.at)
    _admit_others(state, row, fact.at)


def _job_released(state: State, fact: facts.JobReleased) -> None:
    row = _row_of_job(state, fact.id, "released")
    state.jobs.held[row] = False
    _after_tasks_changed(state, row, fact.at)


def _job_edited(state: State, fact: facts.JobEdited) -> None:
    row, spec = _row_of_job(state, fact.id, "edited"), state.index.specs[fact.id]
    job = fact.edited(spec)
    if state.jobs.holding[row] and any(getattr(job, name) != getattr(spec, name) for name in facts.FIXED_WHILE_RUNNING):
        raise facts.Contradiction(f"job {fact.id} cannot be edited: the field is fixed while it runs")
    if fact.begin is not None:
        state.jobs.plain[row] = False
        state.dependencies.begin(fact.id, fact.begin, fact.at)
    _reshape(state, row, job, fact.at)
    state.index.specs[fact.id] = job


def _reshape(state: State, row: int, job: Job, at: float) -> None:
    """Let a job wait as what `job` asks for."""
    _leave_group(state, row, at)
    (new,), _ = growth.rows_of_kinds(state, [job])
    for name in ("queue", "shape_row", "priority", "retries", "home", "time_limit", "family", "at_most"):
        getattr(state.jobs, name)[row] = new[name]
    _after_tasks_changed(state, row, at)


def _tasks_placed(state: State, fact: facts.TasksPlaced) -> None:
    rows, view = state.job_rows(fact.job), state.view()
    bad = scheduling.placed(view, rows, fact.index, fact.attempt, fact.node, fact.more, fact.at)
    _refuse(state, bad, fact.job, fact.index, "been placed")
    if "gpu" in state.resources:
        state.tasks.cards[state.jobs.first[rows] + fact.index] = 0  # those of the attempt before
    if state.frameworks.have_tasks:
        of_frameworks.note_placed(state, rows, fact.node, fact.at)


def _tasks_started(state: State, fact: facts.TasksStarted) -> None:
    rows, view = state.job_rows(fact.job), state.view()
    bad = scheduling.started(view, rows, fact.index, fact.attempt, fact.at)
    _refuse(state, bad, fact.job, fact.index, "been started")
    if len(fact.ago):
        state.tasks.started_at[state.jobs.first[rows] + fact.index] -= fact.ago / 1000
    if len(fact.cards):
        state.tasks.set_cards("cards", state.jobs.first[rows] + fact.index, fact.cards.reshape(len(rows), -1))
    if state.frameworks.have_tasks:
        of_frameworks.note_started(state, rows, fact.at)
    for job in state.dependencies.followers and sorted(state.dependencies.followers.keys() & {*fact.job.tolist()}):
        enter_all(state, state.dependencies.started(job, state.index.specs), fact.at)
    for k in scheduling.limited(view, rows).tolist():
        until = float(state.tasks.started_at[state.jobs.first[rows[k]] + fact.index[k]] + state.jobs.time_limit[rows[k]])
        heappush(state.deadlines, (until, (int(fact.job[k]), int(fact.index[k]), int(fact.attempt[k]))))


def _tasks_finished(state: State, fact: facts.TasksFinished) -> None:
    if len(fact.ran):
        rows = _current(state, fact, "ended")
        state.tasks.started_at[rows] = fact.began(state.tasks.started_at[rows])
    _finish(state, fact.attempts, fact.outcome, fact.code, fact.at)
    if len(fact.cpu):
        rows = state.jobs.first[state.job_rows(fact.job)] + fact.index
        state.tasks.cpu[rows] += fact.cpu / 1000
        state.tasks.peak[rows] = np.maximum(state.tasks.peak[rows], fact.peak)
    for k in np.flatnonzero(fact.calls).tolist():
        calls, called = state.calls.get(int(fact.job[k]), (0, 0))
        state.calls[int(fact.job[k])] = calls + int(fact.calls[k]), called + int(fact.called[k])


def _tasks_checkpointed(state: State, fact: facts.TasksCheckpointed) -> None:
    rows = _current(state, fact, "checkpointed")
    state.tasks.kept_at[rows] = np.maximum(state.tasks.kept_at[rows], fact.at - fact.ago / 1000)


def _tasks_revoked(state: State, fact: facts.TasksRevoked) -> None:
    _change_status(state, fact, REVOKE, "been revoked")
    state.broken_gangs.difference_update(fact.job.tolist())
    if fact.claim is not None:
        for job, count in zip(*np.unique(fact.job, return_counts=True), strict=True):
            before = state.revocations.get(int(job))
            tasks = int(count) + (before.tasks if before else 0)
            state.revocations[int(job)] = facts.Revocation(fact.at, tasks, fact.claim)
        if fact.claim.why == WHY[GUARANTEE]:
            note_oversized(state, fact, fact.claim)


def _tasks_expired(state: State, fact: facts.TasksExpired) -> None:
    _change_status(state, fact, EXPIRE, "run out of time")


def _jobs_passed_over(state: State, fact: facts.JobsPassedOver) -> None:
    for job in fact.ids:
        group = state.jobs.group[state.job_row(job)]
        if group != NONE:
            scheduling.pass_over(state.view(), group, fact.at)


def _nodes_reserved(state: State, fact: facts.NodesReserved) -> None:
    start = fact.at if fact.start is None else fact.start
    if not all(leaf in state.tree.rows for leaf in fact.apart):
        raise facts.Contradiction(f"some of queues {fact.apart} are unknown")
    apart = [state.tree.rows[leaf] for leaf in fact.apart]
    _keep_nodes(state, fact, RESERVATION, start, np.array(apart, np.int64))


def _nodes_claimed(state: State, fact: facts.NodesClaimed) -> None:
    _keep_nodes(state, fact, _claim_kind(fact.why), fact.at, np.zeros(0, np.int64))


def _claim_kind(why: str) -> int:
    for kind, known in WHY.items():
        if why == known:
            return kind
    raise facts.Contradiction(f"unknown class of claims: {why!r}")


def _keep_nodes(state: State, fact: facts.NodesReserved | facts.NodesClaimed, kind: int, start: float, apart: I64) -> None:
    slips, number = (fact.slips, fact.number) if isinstance(fact, facts.NodesReserved) else (0, NONE)
    group = int(state.jobs.group[state.job_row(fact.id)])
    nodes, tasks = np.asarray(fact.nodes, np.int64), np.asarray(fact.tasks, np.int64)
    if group == NONE or (nodes < 0).any() or (nodes >= state.nodes.n).any() or (tasks < 1).any():
        raise facts.Contradiction(f"nodes {fact.nodes} cannot be reserved for job {fact.id}")
    state.holds.have_room(len(nodes))
    order = np.argsort(nodes, kind="stable")
    row = state.job_row(fact.id)
    scheduling.keep_nodes(state.view(), group, row, nodes[order], tasks[order], kind, start, slips, number, apart, fact.at)
    state.count_rows()


def _shares_looked(state: State, fact: facts.SharesLooked) -> None:
    rows = [state.tree.rows[name] for name in fact.short if name in state.tree.rows]
    if len(rows) < len(fact.short):
        raise facts.Contradiction(f"some of queues {fact.short} are unknown")
    since = state.queues.short_since
    before = since[rows].copy()
    since[1 : state.queues.n] = np.inf
    since[rows] = np.minimum(before, fact.at)
    since[0] = fact.at
    state.times[CLAIM_DUE] = -np.inf


def _claims_put_off(state: State, fact: facts.ClaimsPutOff) -> None:
    kind = _claim_kind(fact.why) if fact.why else GUARANTEE
    for job in fact.ids:
        group = state.jobs.group[state.job_row(job)]
        if group != NONE:
            state.groups.retry_at[group], state.groups.retry_from[group] = fact.until, kind


def _reservation_dropped(state: State, fact: facts.ReservationDropped) -> None:
    for group in np.unique(state.holds.group[: state.holds.n][state.holds.job[: state.holds.n] == fact.id]):
        scheduling.drop_holds(state.view(), group, fact.number, fact.at)
    state.count_rows()


def _jobs_forgotten(state: State, fact: facts.JobsForgotten) -> None:
    ids = np.asarray(fact.ids, np.int64)
    rows = state.job_rows(ids)
    if (rows == NONE).any() or np.isnan(state.jobs.finished_at[rows]).any():
        raise facts.Contradiction(f"some of the jobs to forget, from {fact.ids[:1]} on, are unknown or have not ended")
    state.dead_tasks += int(state.jobs.tasks[rows].sum())
    state.jobs.id[rows] = NONE
    state.index.forget(ids)
    for kept in (state.revocations, state.calls):
        for job in fact.ids if kept else ():
            kept.pop(job, None)
    ended = state.ended_jobs()
    if not np.array_equal(ended[: len(ids)], ids):
        growth.set_ended(state, np.concatenate([ids, ended[~np.isin(ended, ids)]]))
        state.order.counts[ENDED], state.forgotten = len(ended), 0
    state.forgotten += len(ids)
    if state.dead_tasks > COMPACT_FROM and 2 * state.dead_tasks > state.tasks.n:
        growth.compact(state)


def _facts_lost(state: State, fact: facts.FactsLost) -> None:
    if fact.count < 1:
        raise facts.Contradiction(f"{fact.count} facts were lost")
    state.index.last += fact.count


def _refuse(state: State, bad: int, job: facts.Ints, index: facts.Ints, what: str) -> None:
    state.count_rows()
    if bad >= 0:
        raise facts.Contradiction(f"task {job[bad]}.{index[bad]} cannot have {what}: its status does not allow it")


def _current(state: State, fact: facts.TasksFact, what: str) -> I64:
    """Return the task rows of a fact about attempts that hold resources."""
    rows = state.current_tasks(fact.attempts)
    _refuse(state, int(np.argmax(rows == NONE)) if (rows == NONE).any() else -1, fact.job, fact.index, what)
    return rows


def _change_status(state: State, fact: facts.TasksRevoked | facts.TasksExpired, event: int, what: str) -> None:
    tasks = state.current_tasks(fact.attempts)
    there = tasks != NONE
    after = np.full(len(tasks), IMPOSSIBLE, np.int8)
    after[there] = _AFTER[state.tasks.status[tasks[there]], event]
    wrong = np.flatnonzero(after == IMPOSSIBLE)
    _refuse(state, int(wrong[0]) if len(wrong) else -1, fact.job, fact.index, what)
    state.tasks.status[tasks] = after
    state.order.counts[LEAVING] += len(np.unique(tasks))
    _drop_deadlines(state)


def _drop_deadlines(state: State) -> None:
    """Drop the first deadlines as far as they are of attempts that no longer run."""
    while state.deadlines and not state.runs(state.deadlines[0][1]):
        heappop(state.deadlines)


def _nodes_changed(state: State, at: float) -> None:
    """Recompute what depends on the cluster's capacity."""
    state.moves[0] += 1
    state.count_rows()
    below = _below_guarantee(state)
    state.tree.follow_total(state.queues, state.resources, state.cluster.total, state.cluster.open)
    state.queues.standing[0] = NONE
    _note_below(state, below, at)
    coarsen(state.queues, state.grain, state.cluster.total)
    share_evenly(state.queues, state.cluster.total)
    state.order.invalidate()


def _node_row(state: State, name: str) -> int:
    if name not in state.cluster.rows:
        raise facts.Contradiction(f"there is no node {name}")
    return state.cluster.rows[name]


def enter_group_if_ready(state: State, row: int, at: float) -> None:
    """Put a job into its group, unless it is in one, has nothing to start, is held, is a broken gang, or waits for other jobs."""
    jobs = state.jobs
    job = int(jobs.id[row])
    broken = job in state.broken_gangs or (jobs.gang[row] and jobs.holding[row])
    waits = broken or state.dependencies.waits(job, state.index.specs[job])
    if waits or jobs.held[row] or jobs.group[row] != NONE or not jobs.startable(row):
        return
    if state.settings.max_jobs_of and not admit(state, row):
        return
    group = growth.group_of(state, row)
    scheduling.enter_group(state.view(), row, group, at)


def _leave_group(state: State, row: int, at: float) -> None:
    if state.jobs.group[row] != NONE:
        scheduling.leave_group(state.view(), row, at)
        state.count_rows()


def _finish(state: State, attempts: facts.Attempts, outcome: facts.Ints, code: facts.Ints, at: float) -> None:
    rows, touched = state.job_rows(attempts.job), np.empty(len(outcome), np.int64)
    was = state.tasks.status[state.jobs.first[rows]] if state.frameworks.have_tasks else None
    failed = state.tasks.failures[state.jobs.first[rows] + attempts.index] if state.index.delayed else None
    most = state.settings.max_losses
    bad = scheduling.finished(state.view(), rows, attempts.index, attempts.number, outcome, code, at, most, touched)
    _refuse(state, bad, attempts.job, attempts.index, "ended")
    if was is not None:
        of_frameworks.note_ended(state, rows, was, outcome, code, at)
    if failed is not None:
        _delay_retries(state, attempts, failed, at)
    for job in state.dependencies.paired and state.dependencies.paired.keys() & {*attempts.job.tolist()}:
        _tasks_ended(state, job, attempts.index[attempts.job == job], at)
    of_frameworks.make_way(state, at, state.tasks.node[state.jobs.first[rows] + attempts.index])
    _drop_deadlines(state)
    changed = {*touched.tolist()} - {NONE}
    if state.index.led:
        changed |= {row for row in rows[attempts.index == 0].tolist() if ends_early(state, row)}
    for row in sorted(changed):
        _after_tasks_changed(state, row, at)


def _delay_retries(state: State, attempts: facts.Attempts, before: facts.Ints, at: float) -> None:
    """Let failed tasks wait before they start again, and a gang all of it; `before` is how often each had failed before."""
    for job, place, count in zip(attempts.job.tolist(), attempts.index.tolist(), before.tolist(), strict=True):
        row = state.job_row(job)
        if job not in state.index.delayed or state.tasks.failures[state.jobs.first[row] + place] == count:
            continue
        delay = state.index.specs[job].retry_delay
        until = at + max(delay, min(delay * 2.0**count, LONGEST_DELAY))
        if state.jobs.gang[row]:
            state.dependencies.wake(max(until, state.dependencies.begins.get(job, until)), job)
        else:
            state.dependencies.wake(until, job, place)
            _leave_group(state, row, at)
            _delay(state, row, np.array([place]))


def _after_tasks_changed(state: State, row: int, at: float) -> None:
    """Update a job after its tasks ended, came back or were cancelled: it ends, waits in its group, or is a broken gang."""
    jobs = state.jobs
    job = int(jobs.id[row])
    if ends_early(state, row) and (jobs.waiting[row] or jobs.holding[row]):
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
    """Admit other jobs of the same user, if this one has ended, is held, is a gang that is about to end, or waits for a time."""
    jobs, job = state.jobs, int(state.jobs.id[row])
    waits = not jobs.startable(row) or state.dependencies.waits(job, state.index.specs[job])
    stopped = jobs.held[row] or job in state.broken_gangs or waits
    over = not np.isnan(jobs.finished_at[row]) or (stopped and jobs.holding[row] == 0)
    if over and state.settings.max_jobs_of:
        enter_all(state, leave(state, row), at)


def ends_early(state: State, row: int) -> bool:
    """True if the rest of a gang is to end: its leader (its first task) has ended, or one of tasks that go apart has failed."""
    led, jobs = state.index.led, state.jobs
    if led and int(jobs.id[row]) in led and state.tasks.status[jobs.first[row]] >= SUCCEEDED:
        return True
    return bool(jobs.failed[row] and state.shapes.fit[jobs.shape_row[row]] == APART)


def _release_dependents(state: State, ended: int, at: float) -> None:
    row = state.job_row(ended)
    success = bool(state.jobs.failed[row] == 0 and state.jobs.cancelled[row] == 0)
    enter_all(state, state.dependencies.ended(ended, success, state.index.specs), at)


def enter_all(state: State, jobs: Iterable[int], at: float) -> None:
    """Put jobs into their groups, those that are ready."""
    for job in jobs:
        enter_group_if_ready(state, state.job_row(job), at)


_NAMED = {**vars(of_frameworks), **globals()}
EFFECTS: dict[type[facts.Fact], Callable[..., None]] = {
    fact: _NAMED[re.sub("(?=[A-Z])", "_", fact.__name__).lower()] for fact in get_args(facts.AnyFact)
}
