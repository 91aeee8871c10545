"""Taking back: what is revoked for whom, so that everybody has what they are guaranteed when they need it.

A **claim** is a waiting task, or whole gang, that others make room for: :mod:`~fairlead.scheduler.kernel` says who has
one, and when it is due. :mod:`~fairlead.scheduler.kernel` plans for one claim whole what is revoked for it, and where it
goes. What comes back there is kept for it (a hold of its class), so it counts as served from then on, and nothing is revoked for
it twice.

It ends. What is revoked for a guarantee is not placed again before that claim is served: whoever has such a claim goes before
all whom others would be revoked of for it, by the order that places, out of the same group
(:func:`~fairlead.scheduler.kernel.scheduling.exact_below`), also where room is reserved for these
(:func:`~fairlead.scheduler.kernel.scheduling.may_enter`). So between two facts from outside nobody is placed who would preempt for a
claim that is open, and each task is revoked at most once for it. Let the measure of a state be how many claims are open, by
class: GUARANTEE, then FAIR_SHARE, then PRIORITY from the highest priority down, and then IDLE (:func:`measure`). Each plan
makes it fall, in the order of a dictionary, and nothing but an outside fact makes it rise: a plan serves one claim of its
class, and opens none of that or one before: nobody pays who would claim a guarantee then, for itself. For a queue pays down to
its guarantee only, and for FAIR_SHARE to its fair share as well, so nobody below it is within those afterwards who was not
before (a queue above both gains the claim, and loses no more than leaves it what it is guaranteed); and for PRIORITY pays who
is of lower priority, and not so much that its queues sink below a guarantee. For IDLE preempt revocable jobs alone, which have no
claims, and not so much that others of their queue would get one.
"""

from typing import Any, NamedTuple

import numpy as np

from fairlead.policies.drf import dominant_share
from fairlead.scheduler.entitlements import parts_of
from fairlead.scheduler.facts import (
    Claim,
    ClaimsPutOff,
    Fact,
    NodesClaimed,
    OffersRescinded,
    ReservationDropped,
    SharesLooked,
    TasksRevoked,
)
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import (
    ENTITLEMENT_TOLERANCE,
    KEY_COLUMNS_AFTER_QUEUES,
    MAX_CANDIDATES,
    MAX_SEARCH_STEPS,
    NOT_REACHED,
    NOW_RESCINDED,
    RESCINDED,
)
from fairlead.scheduler.kernel.scheduling import PreemptionPlan, over_limits
from fairlead.scheduler.kernel.view import CLAIM_DUE
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, RUNNING
from fairlead.scheduler.tables import FAIR_SHARE, GUARANTEE, I64, IDLE, NONE, PRIORITY, RESERVATION, WHY

OPEN = 2.0**61
"""A moment at which all claims are due that are open: before NEVER."""
MOST_CLAIMS = 100
"""That are served in one decision; the next one goes on."""
SOONEST, PATIENCE, LATEST = 1.0, 0.25, 60.0
"""A claim that nothing makes room for is tried again after this part of the time that it has waited, within these seconds."""


class Due(NamedTuple):
    """A claim that is due: of which group, of which class, and since when it has been open."""

    kind: int
    since: float
    group: int


class Taken(NamedTuple):
    """What came of looking at claims: new facts, and whether some are left for the next decision."""

    facts: list[Fact]
    more: bool


def take_back(state: State, now: float) -> Taken:
    """Serve the claims that are due: what is revoked for each, what is kept for it, and which nothing makes room for yet."""
    due = _due(state, now)
    if not due:
        return Taken([], False)
    v, preemption_plan = state.view(), ledger_of(state, now)
    facts: list[Fact] = []
    if due[-1].kind == NONE:
        facts.append(SharesLooked(at=now, short=_short(state, preemption_plan)))
        due.pop()
    kept: dict[int, dict[int, int]] = {}  # of each group, tasks by node
    tasks_kept = _tasks_kept(state)
    left, planned = [], 0
    for looked_at in due:
        claim = _as_it_is(state, preemption_plan, looked_at)
        waits = unserved = _unserved(state, claim.group)
        if waits and claim.kind == NONE:
            left.append(looked_at)
            continue
        most = _may_start(state, claim.group, unserved, tasks_kept)
        while unserved and planned < MOST_CLAIMS and _is_open(state, preemption_plan, claim):
            asked = asked_for(state, preemption_plan, claim)
            count = _plan(v, preemption_plan, claim, asked) if waits - unserved < most else NONE
            if count == NONE:
                left.append(looked_at)  # and so those of all classes after it
                break
            planned += 1
            unserved -= 1
            facts += [
                *_rescinded(state, preemption_plan, now),
                *_revoked(state, preemption_plan, claim, asked[1], count, now),
            ]
            where = kept.setdefault(claim.group, _held(state, claim.group))
            for n in np.flatnonzero(preemption_plan.hosts).tolist():
                where[n] = where.get(n, 0) + int(preemption_plan.hosts[n])
            facts.append(_claimed(state, claim.group, where, WHY[claim.kind], now))
            tasks_kept[claim.group] = sum(where.values())
        else:
            if unserved and claim.kind in (PRIORITY, IDLE) and planned < MOST_CLAIMS:
                left.append(looked_at)  # that it outranks nobody is not looked at before
    facts += _put_off(state, preemption_plan, left, now)
    return Taken(facts, planned == MOST_CLAIMS)


def _as_it_is(state: State, preemption_plan: PreemptionPlan, claim: Due) -> Due:
    """A claim that is due, as one of the first class that it really is of; of class NONE where it is of none.

    A queue may be short of its fair share, and its next task be more than that: which of these, a look does not ask.
    """
    if claim.kind != FAIR_SHARE or _is_open(state, preemption_plan, claim):
        return claim
    leaf = int(state.groups.leaf[claim.group])
    if state.queues.priority_revokes[leaf]:
        return claim._replace(kind=PRIORITY)
    v = state.view()
    return claim._replace(kind=IDLE if scheduling.idle_is_used(v, v.used) else NONE)


def next_due(state: State, now: float) -> float:
    """When the first claim is due, of those that are open: now or later; infinite where none is."""
    if state.times[CLAIM_DUE] <= now:
        _due(state, now)
    return max(now, float(state.times[CLAIM_DUE]))


def withdrawn(state: State, now: float) -> list[Fact]:
    """Holds for claims that are none any more: fewer wait, or may start, or less is guaranteed.

    What is kept for a claim is served: what else its queue has since then does not count against it, but it against that.
    """
    h, tasks_kept = state.holds, _tasks_kept(state)
    facts: list[Fact] = []
    for group in np.flatnonzero(tasks_kept).tolist():
        where = _held(state, group)
        most = _still_claimed(state, group, tasks_kept)
        if most == sum(where.values()):
            continue
        first = np.flatnonzero(h.group[: h.n] == group)[0]
        job, kind = int(h.job[first]), int(h.kind[first])  # it may be another job's turn since it was kept
        fewer: dict[int, int] = {}
        for n, tasks in where.items():
            fewer[n] = min(tasks, most - sum(fewer.values()))
        fewer = {n: tasks for n, tasks in fewer.items() if tasks}
        facts += [
            _claimed(state, group, fewer, WHY[kind], now) if fewer else ReservationDropped(at=now, id=job)
        ]  # fmt: skip
    return facts


def claims_by_leaf(state: State) -> dict[int, list[str]]:
    """Why others may be revoked for what waits in a leaf, by its row; "coming back" where they were, and room is on its way."""
    h = state.holds
    found: dict[int, set[str]] = {}
    for group in np.unique(h.group[: h.n][h.kind[: h.n] != RESERVATION]).tolist():
        found.setdefault(int(state.groups.leaf[group]), set()).add("coming back")
    for claim in _due(state, OPEN) if state.cluster.total.any() else []:
        if claim.kind != NONE and may_have_more(state, claim.group):
            found.setdefault(int(state.groups.leaf[claim.group]), set()).add(WHY[claim.kind])
    return {leaf: sorted(why) for leaf, why in found.items()}


def _tasks_kept(state: State) -> I64:
    """For how many tasks of each group room is kept, for claims."""
    h, found = state.holds, np.zeros(state.groups.n, np.int64)
    claims = np.flatnonzero(h.kind[: h.n] != RESERVATION)
    np.add.at(found, h.group[claims], h.tasks[claims])
    return found


def _still_claimed(state: State, group: int, tasks_kept: I64) -> int:
    """How many of the tasks of a group that room is kept for are claims yet."""
    v, tasks = state.order.ready(state, 1), int(tasks_kept[group])
    if not is_next(state, group) or _is_over_for_good(state, group):
        return 0
    kind = int(state.holds.kind[: state.holds.n][state.holds.group[: state.holds.n] == group][0])
    most = scheduling.waiting_tasks(v, group, tasks)
    most = int(scheduling.may_start(v, group, most, tasks_kept))
    while kind == GUARANTEE and most and not _is_guaranteed(state, group, tasks - most):
        most -= 1
    return 0 if most < tasks and state.groups.gang[group] else most


def _may_start(state: State, group: int, claims: int, tasks_kept: I64) -> int:
    """How many of so many claims of a group would be served if there were room.

    Nobody is revoked for what waits for something else as well: a bound on how many tasks or jobs there are, which a limit may
    hide, or the first of a strict leaf.
    """
    if not is_next(state, group):
        return 0
    gang, served = int(state.groups.gang[group]), int(tasks_kept[group])
    most = int(scheduling.may_start(state.view(), group, gang or served + claims, tasks_kept))
    return int(most == gang) if gang else max(0, most - served)


def may_have_more(state: State, group: int) -> bool:
    """Whether a group has a next claim that nothing but want of room, or a limit of resources, keeps from being served."""
    unserved = _unserved(state, group)
    return bool(unserved and _may_start(state, group, unserved, _tasks_kept(state)))


def is_next(state: State, group: int) -> bool:
    """Whether nobody goes before a group's next whatever room there is: in a strict leaf, the first that waits."""
    b, leaf = state.groups, int(state.groups.leaf[group])
    if state.queues.strict[leaf]:
        waits = np.flatnonzero((b.leaf[: b.n] == leaf) & (b.head[: b.n] != NONE))
        jobs = state.jobs.id[b.head[waits]]
        return bool(group == waits[np.lexsort((jobs, -b.priority[waits]))[0]])
    return True


def _is_over_for_good(state: State, group: int) -> bool:
    """Whether limits, or what others do not lend, stop a group, and nobody is stopping: they are others than they were."""
    if over_limits(state.view(), group) == NOT_REACHED:
        return False
    return bool((state.tasks.status[state.held_rows()] <= RUNNING).all())


def _is_guaranteed(state: State, group: int, fewer: int) -> bool:
    """Whether all that is kept for claims for a guarantee is within that, but for so many tasks of a group."""
    demand, h = state.shapes.demand[state.groups.shape_row[group]], state.holds
    claims = np.flatnonzero(h.kind[: h.n] == GUARANTEE)
    for q in up_to_root(state.queues, int(state.groups.leaf[group])):
        bound = (demand > 0) & (state.queues.guarantee[q] > 0)
        if q and bound.any():
            mine = [k for k in claims.tolist() if q in up_to_root(state.queues, int(state.groups.leaf[h.group[k]]))]
            kept = h.amount[mine].sum(axis=0) - fewer * demand
            return bool((kept <= state.queues.guarantee[q])[bound].all())
    return False


def _due(state: State, now: float) -> list[Due]:
    """The claims that are due, in the order in which they are served."""
    v, b = state.order.ready(state, 1), state.groups
    found, since = np.zeros((2, b.n + 1), np.int64), np.zeros(b.n + 1)
    count = scheduling.due_claims(v, now, found, since)
    look = [Due(NONE, float(since[count - 1]), NONE)] if count and found[1, count - 1] == NONE else []
    count -= len(look)
    claims = [Due(int(found[1, k]), float(since[k]), int(found[0, k])) for k in range(count)]
    jobs = state.jobs.id[b.head[found[0, :count]]].tolist()
    priority = b.priority[found[0, :count]].tolist()
    order = sorted(range(count), key=lambda k: (claims[k].kind, claims[k].since, -priority[k], jobs[k]))
    return [claims[k] for k in order] + look


def _short(state: State, preemption_plan: PreemptionPlan) -> list[str]:
    """The leaves where somebody waits who are short of their fair share, or below a queue that is."""
    b, queues = state.groups, state.queues
    leaves = np.unique(b.leaf[: b.n][b.head[: b.n] != NONE])
    found = []
    for leaf in leaves[queues.share_timeout[leaves] < np.inf].tolist():
        below_root = up_to_root(queues, leaf)[:-1]
        if any(_share(state, queues.used[q]) < queues.threshold[q] * preemption_plan.entitled[q] for q in below_root):
            found.append(state.tree.names[leaf])
    return sorted(found)


def _share(state: State, amounts: I64) -> float:
    return float(dominant_share(amounts, state.cluster.total, np.ones(len(amounts))))


def ledger_of(state: State, now: float) -> PreemptionPlan:
    """What there will be when all that was told to stop has ended, and who may be revoked."""
    queues, n, resources = state.queues.n, state.nodes.n, len(state.resources)
    parent = state.queues.parent[:queues]
    depth = np.zeros(queues, np.int64)
    for q in range(1, queues):
        depth[q] = depth[parent[q]] + 1
    runs, marks = int(state.queues.tasks[0]), 1 + max(1, int(depth.max())) + KEY_COLUMNS_AFTER_QUEUES
    preemption_plan = PreemptionPlan(
        left=np.zeros((queues, resources), np.int64), bound=np.zeros((queues, resources), np.int64),
        kept=np.zeros((queues, resources), np.int64), room=np.zeros((n, resources), np.int64),
        entitled=entitled_by_queue(state), above=np.zeros(queues), depth=depth,
        runs=np.zeros(runs, PreemptionPlan.ARRAYS["runs"][0]), at=np.zeros(n + 1, np.int64), by_node=np.zeros(runs, np.int64),
        own_child=np.zeros(queues, np.int64), asks=np.zeros(queues, np.bool_), is_eligible_victim=np.zeros(queues, np.bool_),
        picked=np.zeros(runs + MAX_CANDIDATES + 1, np.int64), gains=np.zeros(n, np.int64), keys=np.zeros((n, marks)),
        hosts=np.zeros(n, np.int64), had=np.zeros((queues, resources), np.int64), work=np.array([MAX_SEARCH_STEPS]),
        rescinded=np.zeros(state.offers.n, np.int64),
    )  # fmt: skip
    v = state.view()
    scheduling.gather(v, preemption_plan, now)
    preemption_plan.kept[:] = scheduling.kept_for_claims(v)
    return preemption_plan


def entitled_by_queue(state: State) -> np.ndarray:
    """The dominant share that each queue is entitled to now, by what it runs and waits for, and all below it."""
    parts = parts_of(state)
    amounts = np.zeros((state.queues.n, len(state.resources)))
    amounts[parts.queues] = parts.amounts
    for q in range(state.queues.n - 1, 0, -1):
        amounts[state.queues.parent[q]] += amounts[q]
    total = state.cluster.total
    return np.ascontiguousarray((amounts / np.where(total > 0, total, 1)).max(axis=1, initial=0.0))


def _unserved(state: State, group: int) -> int:
    """How many claims a group may have: tasks that wait, or one gang, that no room is kept for."""
    v = state.view()
    served = scheduling.served_tasks(v, group)
    if state.groups.gang[group]:
        return int(served == 0)
    return scheduling.waiting_tasks(v, group, served + MOST_CLAIMS) - served


def _is_open(state: State, preemption_plan: PreemptionPlan, claim: Due) -> bool:
    """Whether a group's next is a claim of its class yet, after what was planned before it."""
    if claim.kind == IDLE:
        return bool(scheduling.idle_is_used(state.view(), preemption_plan.left))
    if claim.kind == PRIORITY:
        runs, b = preemption_plan.runs, state.groups
        mine = runs["job"][(runs["leaf"] == b.leaf[claim.group]) & ~runs["preempted"]]
        return bool((state.jobs.priority[mine] < b.priority[claim.group]).any())
    return asked_for(state, preemption_plan, claim)[0] != NONE


def _plan(v: Any, preemption_plan: PreemptionPlan, claim: Due, asked: tuple[int, int]) -> int:
    scheduling.find_eligible(v, preemption_plan, claim.group, claim.kind, *asked)
    return int(scheduling.plan_claim(v, preemption_plan, claim.group, claim.kind))


def asked_for(state: State, preemption_plan: PreemptionPlan, claim: Due) -> tuple[int, int]:
    """The lowest and the highest queue whose siblings may be asked for a claim."""
    if claim.kind == GUARANTEE:
        first, last, _ = scheduling.guarded_part(state.view(), claim.group, preemption_plan.kept)
        return first, last
    last, leaf = NONE, int(state.groups.leaf[claim.group])
    if claim.kind == FAIR_SHARE:
        demand = state.shapes.demand[state.groups.shape_row[claim.group]] * max(1, int(state.groups.gang[claim.group]))
        for q in up_to_root(state.queues, leaf)[:-1]:
            share = _share(state, state.queues.used[q] + preemption_plan.kept[q] + demand)
            if share > preemption_plan.entitled[q] * (1 + ENTITLEMENT_TOLERANCE):
                break
            last = q
    return (NONE if last == NONE else leaf), last


def _held(state: State, group: int) -> dict[int, int]:
    """Tasks of a group that room is kept for, for claims, by node."""
    h = state.holds
    rows = np.flatnonzero((h.group[: h.n] == group) & (h.kind[: h.n] != RESERVATION))
    return dict(zip(h.node[rows].tolist(), h.tasks[rows].tolist(), strict=True))


def _claimed(state: State, group: int, where: dict[int, int], why: str, now: float) -> NodesClaimed:
    job = int(state.jobs.id[state.groups.head[group]])
    nodes = sorted(where)
    return NodesClaimed(at=now, id=job, nodes=nodes, tasks=[where[n] for n in nodes], why=why)


def _rescinded(state: State, preemption_plan: PreemptionPlan, now: float) -> list[Fact]:
    """What is rescinded for a claim as a fact; none where no offer is."""
    rows = np.flatnonzero(preemption_plan.rescinded == NOW_RESCINDED)
    preemption_plan.rescinded[rows] = RESCINDED
    return [OffersRescinded(at=now, ids=state.offers.id[rows].tolist(), why="claimed")] if len(rows) else []


def _revoked(
    state: State, preemption_plan: PreemptionPlan, claim: Due, last: int, count: int, now: float
) -> list[Fact]:
    """What is revoked for a claim as a fact; none where what is coming back will do."""
    runs = preemption_plan.runs
    tasks = [runs["task"][runs["first"][k] : runs["last"][k]] for k in preemption_plan.picked[:count].tolist()]
    if not tasks:
        return []
    rows: I64 = np.sort(np.concatenate(tasks))
    return [TasksRevoked(at=now, **state.task_columns(rows), claim=told(state, preemption_plan, claim, last))]


def told(state: State, preemption_plan: PreemptionPlan, claim: Due, last: int) -> Claim:
    """For whom, why, and the numbers: of the resource of which the queue has the least part of what is its.

    Of a guarantee, of the queues up to the `last` whose siblings are asked: those above are the victims' own.
    """
    job = int(state.jobs.id[state.groups.head[claim.group]])
    leaf = int(state.groups.leaf[claim.group])
    if claim.kind in (PRIORITY, IDLE):
        return Claim(job=job, why=WHY[claim.kind], queue=state.tree.names[leaf])
    if claim.kind == FAIR_SHARE:
        total, used = state.cluster.total, state.queues.used[leaf]
        r = int((used / np.where(total > 0, total, 1)).argmax())
        of = int(preemption_plan.entitled[leaf] * int(total[r]))
        name, resource = state.tree.names[leaf], state.resources[r]
        return Claim(job=job, why=WHY[FAIR_SHARE], queue=name, resource=resource, has=int(used[r]), of=of)
    demand, found = state.shapes.demand[state.groups.shape_row[claim.group]], []
    for q in up_to_root(state.queues, leaf):
        guarantee, used = state.queues.guarantee[q], state.queues.used[q]
        found += [(used[r] / guarantee[r], q, r) for r in np.flatnonzero((demand > 0) & (guarantee > 0)).tolist()]
        if q == last:
            break
    _, q, r = min(found)
    has, of = int(state.queues.used[q, r]), int(state.queues.guarantee[q, r])
    return Claim(job=job, why="guarantee", queue=state.tree.names[q], resource=state.resources[r], has=has, of=of)


def _put_off(state: State, preemption_plan: PreemptionPlan, left: list[Due], now: float) -> list[Fact]:
    """When claims that nothing makes room for are tried again."""
    if not left:
        return []
    runs = preemption_plan.runs
    safe = runs["begun"][runs["protected"]] + state.queues.min_runtime[runs["leaf"][runs["protected"]]]
    waited = now - max(claim.since for claim in left)
    until = now + min(max(SOONEST, PATIENCE * waited), LATEST)
    until = min(until, max(now + SOONEST, float(safe.min(initial=np.inf))))
    by_kind: dict[int, list[int]] = {}
    for claim in left:
        by_kind.setdefault(claim.kind, []).append(int(state.jobs.id[state.groups.head[claim.group]]))
    return [ClaimsPutOff(at=now, ids=sorted(ids), until=until, why=WHY[kind]) for kind, ids in sorted(by_kind.items())]


class Measure(NamedTuple):
    """How many claims are open, by class; of PRIORITY each priority with how many, from the highest down."""

    guarantee: int
    fair_share: int
    priority: list[tuple[int, int]]
    idle: int


def measure(state: State) -> Measure:
    """Count the claims that are open."""
    v, b = state.order.ready(state, 1), state.groups
    kept = scheduling.kept_for_claims(v)
    guarded = shared = idle = 0
    idle_is_used = scheduling.idle_is_used(v, v.used)
    ranked: dict[int, int] = {}
    preemption_plan = ledger_of(state, 0.0) if (state.queues.share_timeout[: state.queues.n] < np.inf).any() else None
    for group in range(b.n):
        served = scheduling.served_tasks(v, group)
        waiting = scheduling.waiting_tasks(v, group, 2**40)
        count = int(served == 0 and waiting > 0) if b.gang[group] else waiting - served
        if count > 0 and not state.order.groups.hopeless[group] and not b.revocable[group]:
            leaf = int(b.leaf[group])
            if scheduling.guarded_part(v, group, kept)[0] != NONE:
                guarded += count
            elif (
                preemption_plan is not None
                and asked_for(state, preemption_plan, Due(FAIR_SHARE, 0.0, group))[0] != NONE
            ):
                shared += count
            elif state.queues.priority_revokes[leaf] and lower_runs(state, leaf, int(b.priority[group])):
                ranked[int(b.priority[group])] = ranked.get(int(b.priority[group]), 0) + count
            elif idle_is_used:
                idle += count
    return Measure(guarded, shared, sorted(ranked.items(), reverse=True), idle)


def lower_runs(state: State, leaf: int, priority: int) -> bool:
    """Whether a leaf runs tasks of a lower priority that were not told to stop."""
    rows = state.held_rows()
    rows = rows[np.isin(state.tasks.status[rows], (PLACED, RUNNING))]
    jobs = state.job_rows_of(rows)
    return bool(((state.jobs.queue[jobs] == leaf) & (state.jobs.priority[jobs] < priority)).any())
