"""Preemption: which tasks are revoked for which claims, so that each queue gets its guarantee when it needs it.

A **claim** is a waiting task, or whole gang, that may preempt. Its class is GUARANTEE, FAIR_SHARE, PRIORITY or IDLE. The kernel
finds the claims that are due (`kernel/claims.pxi`), the eligible victims (`kernel/preemption.pxi`), and for one claim at a time
the victims and nodes (`kernel/victims.pxi`). The code cites these rules by name; docs/guarantees.md explains them.

====================  ==========================================================================================================
rule                  meaning
====================  ==========================================================================================================
within-own            A claim, once served, leaves its queue within its guarantee or fair share, at every level that has one.
startable             No preemption for a claim that could not start for another reason: max tasks, max jobs, strict order.
revocable             No victim in or below a queue that is not revocable.
min-runtime           No victim that started less than `min_runtime` ago.
keeps-guarantee       No queue is a victim below its guarantee; one above the claim ends no lower than before, if below it.
oversized             If that leaves no victims for a GUARANTEE claim: a task that its queue could not claim may be one.
once-per-run          A task that was preempted as oversized is no victim for a guarantee or share before it ran its usual time.
keeps-share           For FAIR_SHARE, no queue is a victim below its fair share either.
lower-priority        For PRIORITY, victims have lower priority, in the same leaf.
mixed                 If these bring the claim within its queue's fair share, others are victims too, as for FAIR_SHARE.
above-limit           For IDLE, victims are revocable jobs of queues above a limit.
no-counter-claim      No victim would have a claim for a guarantee itself once the claim is served.
enough                All victims of a claim together make room for it.
none-spared           No victim of a claim can be spared.
once                  What victims free is held for the claim, which counts as served: nothing is preempted for it twice.
holds-lapse           What is held for a claim is released when it is no claim any more.
stays                 Nothing is placed beyond its guarantee that an open claim for a guarantee would preempt.
progress              Each plan reduces the open claims (:func:`measure`), so preemption ends.
====================  ==========================================================================================================

Preemption ends. By `stays` (:func:`~fairlead.scheduler.kernel.scheduling.exact_below`,
:func:`~fairlead.scheduler.kernel.scheduling.may_enter`, :func:`keep_for_claims`), each task is preempted at most once for a claim
between outside facts. Each plan serves a claim of its class, and opens none of that class or a more urgent one; but one with
oversized victims may. Then these are recorded (:mod:`~fairlead.scheduler.preemption.oversized`), and fewer tasks can still be
recorded. So that number, and those of the open claims, most urgent class first, decrease lexicographically; only outside facts
and time increase them.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from fairlead.policies.drf import dominant_share
from fairlead.scheduler import facts
from fairlead.scheduler.entitlements import parts_of
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.kernel import constants, scheduling
from fairlead.scheduler.kernel.scheduling import PreemptionPlan, over_limits
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, REVOKING, RUNNING
from fairlead.scheduler.tables import APART, FAIR_SHARE, GUARANTEE, I64, IDLE, NONE, PRIORITY, RESERVATION, WHY, Bools

FAR_FUTURE = 2.0**61
"""Seconds: a time when all open claims are due; before NEVER."""
MOST_CLAIMS = 100
"""Claims that one decision serves at most; the next decision continues."""
RETRY_LEAST_SECONDS, RETRY_PART_OF_WAIT, RETRY_MOST_SECONDS = 1.0, 0.25, 60.0
"""A claim without possible victims is retried after this part of the time it has waited, within these seconds."""


class Due(NamedTuple):
    """A claim that is due: its class, when it opened, and its group."""

    kind: int
    since: float
    group: int


def preempt_for_claims(state: State, now: float) -> tuple[list[Fact], bool]:
    """Serve the claims that are due: revoke tasks, hold what they free, put off claims without possible victims.

    Returns new facts, and True if claims are left for the next decision.
    """
    due = _due_claims(state, now)
    if not due:
        return [], False
    v, preemption_plan = state.view(), preemption_plan_of(state, now)
    found: list[Fact] = []
    if due[-1].kind == NONE:
        found.append(facts.SharesLooked(at=now, short=_short_leaves(state, preemption_plan)))
        due.pop()
    kept: dict[int, dict[int, int]] = {}  # by group: tasks by node
    tasks_kept = _tasks_kept(state)
    before = tasks_kept.copy()
    left: dict[int, Due] = {}  # by group: the first class that serves nothing
    planned = 0
    for claim in due:
        waits = unserved = max(0, _unserved(state, claim.group) - int(tasks_kept[claim.group] - before[claim.group]))
        most = _may_start(state, claim.group, unserved, tasks_kept)  # rule: startable
        while unserved and planned < MOST_CLAIMS and _is_open(state, preemption_plan, claim):
            asked = asking_queues(state, preemption_plan, claim, now)
            count, room = NONE, preemption_plan.room.copy()
            if waits - unserved < most:
                scheduling.find_eligible(v, preemption_plan, claim.group, claim.kind, *asked)
                count = int(scheduling.plan_claim(v, preemption_plan, claim.group, claim.kind))
            if count == NONE:
                left.setdefault(claim.group, claim)
                break
            left.pop(claim.group, None)
            planned += 1
            unserved -= 1
            found += _rescinded(state, preemption_plan, now)
            found += _revoked(state, preemption_plan, claim, asked[1], room, count, now)
            where = kept.setdefault(claim.group, _held(state, claim.group))
            for n in np.flatnonzero(preemption_plan.hosts).tolist():
                where[n] = where.get(n, 0) + int(preemption_plan.hosts[n])
            found.append(_claimed(state, claim.group, where, WHY[claim.kind], now))
            tasks_kept[claim.group] = sum(where.values())
        else:
            if unserved and claim.kind != GUARANTEE and planned < MOST_CLAIMS:
                left.setdefault(claim.group, claim)  # the kernel knows only of a guarantee whether the claim is open
    if planned < MOST_CLAIMS:  # else later classes of these were not tried
        found += _put_off(state, preemption_plan, [*left.values()], now)
    return found, planned == MOST_CLAIMS


def keep_for_claims(state: State, planned: int, now: float) -> tuple[int, list[Fact]]:
    """Keep room for a claim for a guarantee, or by priority, that needs no victims, if planned tasks would take it (rule: stays).

    The order serves a claim for a guarantee first, but its room is not there yet. Or a queue, one above or its leaf, goes first
    with others, and not with the claim. Who is placed in that room would be preempted.

    planned : number of tasks that a cycle has just planned

    Returns how many of them may be placed now, and new facts; if there are any, or fewer may, another cycle must follow.
    """
    if not (planned and scheduling.may_await_room(state.view())):
        return planned, []
    v, after = state.view(), list[tuple[Due, Bools]]()
    for claim in _due_claims(state, FAR_FUTURE):
        behind = np.zeros(planned, np.bool_)
        if claim.kind == GUARANTEE and scheduling.awaits_room(v, claim.group):
            scheduling.planned_after(v, claim.group, behind)
        elif claim.kind == PRIORITY and scheduling.goes_after_lower(v, claim.group):
            jobs, b = state.order.planned["planned_job"][:planned], state.groups
            behind = (state.jobs.queue[jobs] == b.leaf[claim.group]) & (state.jobs.priority[jobs] < b.priority[claim.group])
        if behind.any():
            after.append((claim, behind))
    if after:
        preemption_plan = preemption_plan_of(state, now)
        after = [each for each in after if scheduling.fits(v, preemption_plan, each[0].group)]
    first = min((int(behind.argmax()) for _, behind in after), default=planned)
    if first:  # who goes before the rest is placed first, and takes what is free
        return first, []
    for claim, behind in after:
        before, beside = (_without_victims(state, claim, which, now) for which in (~behind, np.ones(planned, np.bool_)))
        if sum(before.values()) > sum(beside.values()):
            where = Counter(_held(state, claim.group)) + before
            return 0, [_claimed(state, claim.group, where, WHY[claim.kind], now)]
    return planned, []


def _without_victims(state: State, claim: Due, placed: Bools, now: float) -> Counter[int]:
    """Return for how many tasks of a group's claims there will be room, by node, once stopping tasks have ended.

    placed : which of the tasks that a cycle planned are placed before
    """
    v, preemption_plan, found = state.view(), preemption_plan_of(state, now), Counter[int]()
    scheduling.place_planned(v, preemption_plan, placed)
    most = _may_start(state, claim.group, min(_unserved(state, claim.group), MOST_CLAIMS), _tasks_kept(state))
    for _ in range(most):
        is_open = claim.kind == PRIORITY or _is_open(state, preemption_plan, claim)  # the planned tasks are lower
        if not (is_open and scheduling.fits(v, preemption_plan, claim.group)):
            break
        scheduling.plan_claim(v, preemption_plan, claim.group, claim.kind)
        for n in np.flatnonzero(preemption_plan.hosts).tolist():
            found[n] += int(preemption_plan.hosts[n])
    return found


def withdraw_claims(state: State, now: float) -> list[Fact]:
    """Release or reduce holds for claims that are none any more: fewer tasks wait or may start, or less is guaranteed.

    Also those for cards that were drained since, and so do not come back. Rule: holds-lapse. What else the queue got since
    counts after the hold, so it does not end the claim.
    """
    h, tasks_kept = state.holds, _tasks_kept(state)
    found: list[Fact] = []
    short: list[int] = []  # nodes with drained cards, where more is kept for claims than comes back
    gpu = state.resources.index("gpu") if "gpu" in state.resources else NONE
    if state.drained and tasks_kept.any() and gpu != NONE:
        room = preemption_plan_of(state, now).room
        short = [n for n in state.drained if room[n, gpu] < 0]
    for group in dict.fromkeys(h.group[: h.n].tolist()):  # by when they were held, not by the rows of groups
        if not tasks_kept[group]:
            continue
        where, most = _held(state, group), _still_claimed(state, group, tasks_kept)
        if short and state.shapes.demand[state.groups.shape_row[group], gpu]:
            where = {n: tasks for n, tasks in where.items() if n not in short}
            most = min(most, sum(where.values()))
            most = 0 if most < tasks_kept[group] and state.groups.gang[group] else most
        if most == tasks_kept[group]:
            continue
        first = np.flatnonzero(h.group[: h.n] == group)[0]
        job, kind = int(h.job[first]), int(h.kind[first])  # the group's first job may be another by now
        fewer: dict[int, int] = {}
        for n, tasks in where.items():
            fewer[n] = min(tasks, most - sum(fewer.values()))
        fewer = {n: tasks for n, tasks in fewer.items() if tasks}
        found.append(_claimed(state, group, fewer, WHY[kind], now) if fewer else facts.ReservationDropped(at=now, id=job))
    return found


def claims_by_leaf(state: State) -> dict[int, list[str]]:
    """Return why each leaf, by row, may preempt; "coming back" if something is held for a claim of it."""
    h = state.holds
    found: dict[int, set[str]] = {}
    for group in np.unique(h.group[: h.n][h.kind[: h.n] != RESERVATION]).tolist():
        found.setdefault(int(state.groups.leaf[group]), set()).add("coming back")
    claims = _due_claims(state, FAR_FUTURE) if state.cluster.total.any() else []
    for claim in {claim.group: claim for claim in reversed(claims)}.values():  # the first class of each group
        if claim.kind != NONE and next_claim_may_start(state, claim.group):
            found.setdefault(int(state.groups.leaf[claim.group]), set()).add(WHY[claim.kind])
    return {leaf: sorted(why) for leaf, why in found.items()}


def _tasks_kept(state: State) -> I64:
    """Return the number of tasks of each group for which claims hold something."""
    h, found = state.holds, np.zeros(state.groups.n, np.int64)
    claims = np.flatnonzero(h.kind[: h.n] != RESERVATION)
    np.add.at(found, h.group[claims], h.tasks[claims])
    return found


def _still_claimed(state: State, group: int, tasks_kept: I64) -> int:
    """Return how many of the tasks of a group that something is held for are still claims."""
    v, tasks = state.order.ready(state, 1), int(tasks_kept[group])
    if not is_next(state, group) or _is_over_limits_for_good(state, group):
        return 0
    kind = int(state.holds.kind[: state.holds.n][state.holds.group[: state.holds.n] == group][0])
    most = scheduling.waiting_tasks(v, group, tasks)
    most = int(scheduling.may_start(v, group, most, tasks_kept))
    while kind == GUARANTEE and most and not _is_guaranteed(state, group, tasks - most):  # rule: within-own
        most -= 1
    return 0 if most < tasks and state.groups.gang[group] else most


def _may_start(state: State, group: int, claims: int, tasks_kept: I64) -> int:
    """Return how many of a group's claims would start if there were room (rule: startable).

    Not if they also wait for the number of tasks or jobs, which a limit may hide, or for the first job of a strict leaf.
    """
    if not is_next(state, group):
        return 0
    gang, served = int(state.groups.gang[group]), int(tasks_kept[group])
    most = int(scheduling.may_start(state.view(), group, gang or served + claims, tasks_kept))
    return int(most == gang) if gang else max(0, most - served)


def next_claim_may_start(state: State, group: int) -> bool:
    """True if a group's next claim lacks nothing but room or a resource limit (rule: startable)."""
    unserved = _unserved(state, group)
    return bool(unserved and _may_start(state, group, unserved, _tasks_kept(state)))


def is_next(state: State, group: int) -> bool:
    """True if no job of the leaf must start before the group's next: in a strict leaf, only the first may start."""
    b, leaf = state.groups, int(state.groups.leaf[group])
    if state.queues.strict[leaf]:
        waits = np.flatnonzero((b.leaf[: b.n] == leaf) & (b.head[: b.n] != NONE))
        jobs = state.jobs.id[b.head[waits]]
        return bool(group == waits[np.lexsort((jobs, -b.priority[waits]))[0]])
    return True


def _is_over_limits_for_good(state: State, group: int) -> bool:
    """True if limits or quota that is not lent stop a group, and no task is stopping: the bounds changed."""
    if over_limits(state.view(), group) == constants.NOT_REACHED:
        return False
    return bool((state.tasks.status[state.held_rows()] <= RUNNING).all())


def _is_guaranteed(state: State, group: int, fewer: int) -> bool:
    """True if all holds for guarantee claims, less `fewer` tasks of a group, are within the guarantee (rule: within-own)."""
    demand, h = state.shapes.demand[state.groups.shape_row[group]], state.holds
    claims = np.flatnonzero(h.kind[: h.n] == GUARANTEE)
    for q in up_to_root(state.queues, int(state.groups.leaf[group])):
        bound = (demand > 0) & (state.queues.guarantee[q] > 0)
        if q and bound.any():
            mine = [k for k in claims.tolist() if q in up_to_root(state.queues, int(state.groups.leaf[h.group[k]]))]
            kept = h.amount[mine].sum(axis=0) - fewer * demand
            return bool((kept <= state.queues.guarantee[q])[bound].all())
    return False


def _due_claims(state: State, now: float) -> list[Due]:
    """Return the claims that are due, in the order they are served; last, with class NONE, a check of fair shares."""
    v, b = state.order.ready(state, 1), state.groups
    found = [
        Due(kind, begun, group)
        for group, kind, begun in zip(*(column.tolist() for column in scheduling.due_claims(v, now)), strict=True)
    ]
    check = [found.pop()] if found and found[-1].kind == NONE else []
    return sorted(found, key=lambda due: (due.kind, due.since, -b.priority[due.group], state.jobs.id[b.head[due.group]])) + check


def _short_leaves(state: State, preemption_plan: PreemptionPlan) -> list[str]:
    """Return the leaves with pending jobs that are below their fair share, or below a queue that is."""
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


def preemption_plan_of(state: State, now: float, frameworks: bool = False) -> PreemptionPlan:
    """Return a new plan: what will be free once stopping tasks have ended, and who may be preempted."""
    queues, n, resources = state.queues.n, state.nodes.n, len(state.resources)
    depth = np.array([name.count("/") + bool(name) for name in state.tree.names], np.int64)
    runs, marks = int(state.queues.tasks[0]), 1 + max(1, int(depth.max())) + constants.KEY_COLUMNS_AFTER_QUEUES
    preemption_plan = PreemptionPlan(
        left=np.zeros((queues, resources), np.int64), bound=np.zeros((queues, resources), np.int64),
        kept=np.zeros((queues, resources), np.int64), room=np.zeros((n, resources), np.int64),
        entitled=entitled_by_queue(state, frameworks), above=np.zeros(queues), depth=depth,
        runs=np.zeros(runs, PreemptionPlan.ARRAYS["runs"][0]), at=np.zeros(n + 1, np.int64), by_node=np.zeros(runs, np.int64),
        own_child=np.zeros(queues, np.int64), asks=np.zeros(queues, np.bool_), is_eligible_victim=np.zeros(queues, np.bool_),
        picked=np.zeros(runs + 1, np.int64), gains=np.zeros(n, np.int64), keys=np.zeros((n, marks)),
        hosts=np.zeros(n, np.int64), had=np.zeros((queues, resources), np.int64), work=np.array([constants.MAX_SEARCH_STEPS, 0]),
        rescinded=np.zeros(state.offers.n, np.int64), wider=np.zeros(1, np.bool_),
    )  # fmt: skip
    v = state.view()
    scheduling.gather(v, preemption_plan, now)
    preemption_plan.room -= not_coming_back(state)
    preemption_plan.kept[:] = scheduling.kept_for_claims(v)
    return preemption_plan


def not_coming_back(state: State) -> I64:
    """Return what of drained cards is in use, and not free once that ends: shape (nodes, resources)."""
    found = np.zeros((state.nodes.n, len(state.resources)), np.int64)
    for node in state.drained if "gpu" in state.resources else ():
        gpu, whole = state.resources.index("gpu"), state.cluster.specs[node].capacity.get("gpu", 0)
        found[node, gpu] = state.nodes.capacity[node, gpu] - max(0, whole - 1000 * len(state.drained_cards(node)))
    return found


def entitled_by_queue(state: State, frameworks: bool = False) -> np.ndarray:
    """Return the dominant share that each queue is entitled to now, by all that it and those below run and wait for."""
    parts = parts_of(state, frameworks)
    amounts = np.zeros((state.queues.n, len(state.resources)))
    amounts[parts.queues] = parts.amounts
    for q in range(state.queues.n - 1, 0, -1):
        amounts[state.queues.parent[q]] += amounts[q]
    total = state.cluster.total
    return np.ascontiguousarray((amounts / np.where(total > 0, total, 1)).max(axis=1, initial=0.0))


def _unserved(state: State, group: int) -> int:
    """Count a group's claims that nothing is held for yet: waiting tasks, or one gang (rule: once)."""
    v = state.view()
    served = scheduling.served_tasks(v, group)
    if state.groups.gang[group]:
        return int(served == 0)
    return scheduling.waiting_tasks(v, group, served + MOST_CLAIMS) - served


def _is_open(state: State, preemption_plan: PreemptionPlan, claim: Due) -> bool:
    """True if a group's next still has a claim of this class, after what was planned before it."""
    if claim.kind == IDLE:
        return bool(scheduling.idle_is_used(state.view(), preemption_plan.left))
    if claim.kind == PRIORITY:
        runs, b = preemption_plan.runs, state.groups
        mine = runs["job"][(runs["leaf"] == b.leaf[claim.group]) & ~runs["preempted"]]
        return bool((state.jobs.priority[mine] < b.priority[claim.group]).any())  # rule: lower-priority
    return asking_queues(state, preemption_plan, claim)[0] != NONE


def asking_queues(state: State, preemption_plan: PreemptionPlan, claim: Due, now: float = 0.0) -> tuple[int, int]:
    """Return the lowest and highest queue that may preempt their siblings for a claim (rule: within-own).

    A claim by priority asks siblings only if it has waited as long as one for its fair share would.
    """
    if claim.kind == GUARANTEE:
        first, last, _ = scheduling.guarded_part(state.view(), claim.group, preemption_plan.kept)
        return first, last
    last, leaf = NONE, int(state.groups.leaf[claim.group])
    if claim.kind == PRIORITY and leaf and now - claim.since >= state.queues.share_timeout[leaf]:
        return leaf, up_to_root(state.queues, leaf)[-2]
    if claim.kind == FAIR_SHARE:
        demand = state.shapes.demand[state.groups.shape_row[claim.group]] * max(1, int(state.groups.gang[claim.group]))
        for q in up_to_root(state.queues, leaf)[:-1]:
            share = _share(state, state.queues.used[q] + preemption_plan.kept[q] + demand)
            if share > preemption_plan.entitled[q] * (1 + constants.ENTITLEMENT_TOLERANCE):
                break
            last = q
    return (NONE if last == NONE else leaf), last


def _held(state: State, group: int) -> dict[int, int]:
    """Return how many tasks of a group claims hold something for, by node."""
    h = state.holds
    rows = np.flatnonzero((h.group[: h.n] == group) & (h.kind[: h.n] != RESERVATION))
    return dict(zip(h.node[rows].tolist(), h.tasks[rows].tolist(), strict=True))


def _claimed(state: State, group: int, where: dict[int, int], why: str, now: float) -> facts.NodesClaimed:
    job = int(state.jobs.id[state.groups.head[group]])
    nodes = sorted(where)
    return facts.NodesClaimed(at=now, id=job, nodes=nodes, tasks=[where[n] for n in nodes], why=why)


def _rescinded(state: State, preemption_plan: PreemptionPlan, now: float) -> list[Fact]:
    rows = np.flatnonzero(preemption_plan.rescinded == constants.NOW_RESCINDED)
    preemption_plan.rescinded[rows] = constants.RESCINDED
    return [facts.OffersRescinded(at=now, ids=state.offers.id[rows].tolist(), why="claimed")] if len(rows) else []


def _revoked(
    state: State, preemption_plan: PreemptionPlan, claim: Due, last: int, room: I64, count: int, now: float
) -> list[Fact]:
    """Return the tasks revoked for a claim as a fact; none if what is coming back suffices."""
    if not count:
        return []
    rows, leaves = revoked_rows(preemption_plan, count), preemption_plan.runs["leaf"][preemption_plan.picked[:count]]
    if claim.kind == PRIORITY and (leaves != state.groups.leaf[claim.group]).any():  # rule: mixed
        claim = claim._replace(kind=FAIR_SHARE)
    details = claim_details(state, preemption_plan, claim, last, room)
    return [facts.TasksRevoked(at=now, **state.task_columns(rows), claim=details)]


def revoked_rows(preemption_plan: PreemptionPlan, count: int) -> I64:
    """Return the rows of the tasks that were picked, with their gangs."""
    runs = preemption_plan.runs
    tasks = [runs["task"][runs["first"][k] : runs["last"][k]] for k in preemption_plan.picked[:count].tolist()]
    return np.sort(np.concatenate(tasks))


def claim_details(state: State, preemption_plan: PreemptionPlan, claim: Due, last: int, room: I64) -> facts.Claim:
    """Return for whom and why, with the numbers of the resource with the lowest used / guarantee, or used / fair share.

    For a guarantee, of the queues up to `last`: those above it also contain the victims. A resource that the claim lacks goes
    before one of which there is enough. `room`, shape (nodes, resources), is what there was for it without victims.
    """
    job = int(state.jobs.id[state.groups.head[claim.group]])
    leaf = int(state.groups.leaf[claim.group])
    if claim.kind in (PRIORITY, IDLE):
        return facts.Claim(job=job, why=WHY[claim.kind], queue=state.tree.names[leaf])
    if claim.kind == FAIR_SHARE:
        total, used = state.cluster.total, state.queues.used[leaf]
        r = int((used / np.where(total > 0, total, 1)).argmax())
        of = int(preemption_plan.entitled[leaf] * int(total[r]))
        name, resource = state.tree.names[leaf], state.resources[r]
        return facts.Claim(job=job, why=WHY[FAIR_SHARE], queue=name, resource=resource, has=int(used[r]), of=of)
    demand, lacks, found = state.shapes.demand[state.groups.shape_row[claim.group]], _lacks(state, claim.group, room), []
    for q in up_to_root(state.queues, leaf):
        guarantee, used = state.queues.guarantee[q], state.queues.used[q]
        found += [(not lacks[r], used[r] / guarantee[r], q, r) for r in np.flatnonzero((demand > 0) & (guarantee > 0)).tolist()]
        if q == last:
            break
    *_, q, r = min(found)
    has, of = int(state.queues.used[q, r]), int(state.queues.guarantee[q, r])
    name, oversized = state.tree.names[q], bool(preemption_plan.wider[0])
    return facts.Claim(job=job, why="guarantee", queue=name, resource=state.resources[r], has=has, of=of, oversized=oversized)


def _lacks(state: State, group: int, room: I64) -> Bools:
    """Mark the resources of which a group's claim has too little on the nodes that it may use; `room` is what is on each."""
    shape, nodes = int(state.groups.shape_row[group]), state.nodes
    there = nodes.up[: nodes.n] & ~nodes.draining[: nodes.n] & state.cluster.masks[state.shapes.mask[shape], : nodes.n]
    demand, most = state.shapes.demand[shape], 1 if state.shapes.fit[shape] == APART else 2**62
    tasks = np.clip(room[there] // np.maximum(demand, 1), 0, most)
    return (demand > 0) & (tasks.sum(axis=0, dtype=float) < max(1, int(state.groups.gang[group])))


def _put_off(state: State, preemption_plan: PreemptionPlan, left: list[Due], now: float) -> list[Fact]:
    """Return until when claims without possible victims are put off."""
    if not left:
        return []
    runs = preemption_plan.runs
    min_runtime = state.queues.min_runtime[runs["leaf"]]  # rules: min-runtime, once-per-run
    safe_for = np.maximum(min_runtime * runs["protected"], state.jobs.safe_for[runs["job"]] * runs["recovering"])
    safe = (runs["begun"] + safe_for)[safe_for > 0]
    waited = now - max(claim.since for claim in left)
    until = now + min(max(RETRY_LEAST_SECONDS, RETRY_PART_OF_WAIT * waited), RETRY_MOST_SECONDS)
    until = min(until, max(now + RETRY_LEAST_SECONDS, float(safe.min(initial=np.inf))))
    by_kind: dict[int, list[int]] = {}
    for claim in left:
        by_kind.setdefault(claim.kind, []).append(int(state.jobs.id[state.groups.head[claim.group]]))
    return [facts.ClaimsPutOff(at=now, ids=sorted(ids), until=until, why=WHY[kind]) for kind, ids in sorted(by_kind.items())]


class Measure(NamedTuple):
    """What each plan decreases: first, how many tasks can still be oversized victims, then the open claims of each class.

    For PRIORITY, (priority, number), highest first.
    """

    oversized: int
    guarantee: int
    fair_share: int
    priority: list[tuple[int, int]]
    idle: int


def measure(state: State, at: float) -> Measure:
    """Count the open claims, and the tasks that can still be oversized victims, at a time (rule: progress)."""
    v, b = state.order.ready(state, 1), state.groups
    kept = scheduling.kept_for_claims(v)
    guarded = shared = idle = 0
    idle_is_used = scheduling.idle_is_used(v, v.used)
    ranked: dict[int, int] = {}
    preemption_plan = preemption_plan_of(state, 0.0) if (state.queues.share_timeout[: state.queues.n] < np.inf).any() else None
    for group in range(b.n):
        served = scheduling.served_tasks(v, group)
        waiting = scheduling.waiting_tasks(v, group, 2**40)
        count = int(served == 0 and waiting > 0) if b.gang[group] else waiting - served
        if count > 0 and not state.order.groups.hopeless[group] and not b.revocable[group]:
            leaf = int(b.leaf[group])
            if scheduling.guarded_part(v, group, kept)[0] != NONE:
                guarded += count
            elif preemption_plan is not None and asking_queues(state, preemption_plan, Due(FAIR_SHARE, 0.0, group))[0] != NONE:
                shared += count
            elif state.queues.priority_revokes[leaf] and lower_runs(state, leaf, int(b.priority[group])):
                ranked[int(b.priority[group])] = ranked.get(int(b.priority[group]), 0) + count
            elif idle_is_used:
                idle += count
    return Measure(_may_be_oversized(state, at), guarded, shared, sorted(ranked.items(), reverse=True), idle)


def _may_be_oversized(state: State, at: float) -> int:
    """Count the tasks that can still be oversized victims: those that never were, and those that ran their time since."""
    jobs, tasks, rows = state.jobs, state.tasks, state.held_rows()
    were = np.count_nonzero(tasks.oversized[: tasks.n] & (tasks.status[: tasks.n] <= REVOKING))
    runs = rows[tasks.oversized[rows] & (tasks.status[rows] == RUNNING)]
    over = at - tasks.started_at[runs] >= jobs.safe_for[state.job_rows_of(runs)]
    return int((jobs.waiting + jobs.holding)[: jobs.n][jobs.id[: jobs.n] != NONE].sum() - were + over.sum())


def lower_runs(state: State, leaf: int, priority: int) -> bool:
    """True if a leaf runs tasks of lower priority that are not stopping."""
    rows = state.held_rows()
    rows = rows[np.isin(state.tasks.status[rows], (PLACED, RUNNING))]
    jobs = state.job_rows_of(rows)
    return bool(((state.jobs.queue[jobs] == leaf) & (state.jobs.priority[jobs] < priority)).any())
