"""Check each preemption against the rules of :mod:`fairlead.scheduler.preemption.claims`, from the tables alone.

For tests, audits, and FAIRLEAD_CHECK. Checked are `revocable`, `keeps-guarantee`, `no-counter-claim`, `enough`, `none-spared`,
`stays` and `progress`; and that a claim is served once what was freed for it is free, unless it lapsed.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.scheduler.effects import Learned, apply
from fairlead.scheduler.facts import Fact, NodesClaimed, TasksPlaced, TasksRevoked
from fairlead.scheduler.feasibility import hosts
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import NOT_REACHED
from fairlead.scheduler.kernel.scheduling import over_limits
from fairlead.scheduler.preemption import claims
from fairlead.scheduler.queue_tree import beside, up_to_root
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, REVOKING, RUNNING
from fairlead.scheduler.tables import GUARANTEE, I64, NONE, PRIORITY, RESERVATION, WHY

UNSERVED_SECONDS, UNSERVED_MOMENTS = 10.0, 5
"""A claim is reported as unserved if it could start for this long, and at this many moments.

Several moments, since at one of them a scheduler may just be restarting.
"""


class BrokenRule(AssertionError):
    """A preemption breaks a rule; the message says which."""


class RevocationCheck:
    """Checks facts as they are applied: :meth:`before` and :meth:`after` each."""

    def __init__(self) -> None:
        self._revoked: TasksRevoked | None = None
        self._safe = np.zeros(0, np.int64)
        self._measure = claims.Measure(0, 0, 0, [], 0)
        self._waits: dict[int, tuple[float, int]] = {}
        self._waited: list[int] = []
        self._served: set[int] = set()
        self._first: list[set[int]] = []

    def happen(self, state: State, fact: Fact, learned: Learned | None = None) -> str:
        """Apply a fact; returns what is wrong with the preemption, or an empty string."""
        fault = ""
        try:
            self.before(state, fact)
        except BrokenRule as broken:
            fault = str(broken)
        apply(state, fact, learned)
        try:
            self.after(state, fact)
        except BrokenRule as broken:
            fault = fault or str(broken)
        return fault

    def before(self, state: State, fact: Fact) -> None:
        """Check a fact that is about to be applied. Raises BrokenRule."""
        if isinstance(fact, TasksRevoked) and fact.claim is not None:
            _check_guarantees(state, fact)
            if fact.claim.job:  # for a framework, nothing is kept
                self._revoked, self._measure = fact, claims.measure(state, fact.at)
                self._safe = _safe_groups(state)
        if isinstance(fact, TasksPlaced):
            self._waited = [b for b in _waits_guarded(state) if claims.is_next(state, b)]
            self._served, self._first, h = set(), [], state.holds
            if self._waited:
                kept = np.isin(state.jobs.group[state.job_rows(fact.job)], h.group[: h.n][h.kind[: h.n] != RESERVATION])
                self._served, self._first = set(fact.job[kept].tolist()), _going_first(state, fact)

    def after(self, state: State, fact: Fact) -> None:
        """Check a fact that was applied. Raises BrokenRule."""
        if isinstance(fact, TasksPlaced):  # a node that shrinks may have less than its tasks take
            _must(bool((state.nodes.free[fact.node] >= 0).all()), "tasks were placed on a node that has no room for them")
        if isinstance(fact, TasksPlaced) and self._waited:
            _check_stays(state, fact, self._waited, self._served, self._first)
        if self._revoked is not None and isinstance(fact, NodesClaimed):
            revoked, self._revoked = self._revoked, None
            _check_enough(state, revoked, fact, self._safe)
            _check_no_counter_claim(state, revoked)
            # rule: progress
            fault = f"what was revoked for job {fact.id} did not reduce the open claims from {self._measure}"
            _must(claims.measure(state, revoked.at) < self._measure, fault)

    def pass_time(self, state: State, seconds: float) -> list[str]:
        """Note that nothing happens for this long; returns claims that could start but do not, each once."""
        waits, faults = {}, []
        for job in startable_claims(state) if state.holds.n else []:
            before, moments = self._waits.get(job, (0.0, 0))
            waits[job] = before + seconds, moments + 1
            if waits[job][0] >= UNSERVED_SECONDS and waits[job][1] >= UNSERVED_MOMENTS:
                faults.append(f"room freed for job {job} is available, but the job is not placed")
                waits[job] = -np.inf, 0  # reported once
        self._waits = waits
        return faults


def startable_claims(state: State) -> list[int]:
    """Return the jobs whose claims could start in what is held for them."""
    h, v, found = state.holds, state.order.ready(state, 1), []
    for group in np.unique(h.group[: h.n][h.kind[: h.n] != RESERVATION]).tolist():
        if over_limits(v, group) != NOT_REACHED or not claims.is_next(state, group):
            continue
        gang, demand = state.groups.gang[group], state.shapes.demand[state.groups.shape_row[group]]
        mine, there = np.flatnonzero(h.group[: h.n] == group).tolist(), []
        for k in mine:
            n = int(h.node[k])
            kept = [scheduling.kept(v, n, r, np.inf, k, NONE) for r in range(len(demand))]
            wanted = (h.tasks[k] if gang else 1) * demand
            there.append(bool((wanted <= state.nodes.free[n] - kept)[demand > 0].all()))
        if all(there) if gang else any(there):
            found.append(int(h.job[mine[0]]))
    return found


def _must(holds: object, otherwise: str) -> None:
    if not holds:
        raise BrokenRule(otherwise)


def _safe_groups(state: State) -> I64:
    """Return the groups whose next task is no victim once it has started: what is reserved for it is no claim's."""
    view, heads = state.view(), state.groups.head[: state.groups.n].tolist()
    return np.array([b for b, head in enumerate(heads) if head != NONE and scheduling.next_is_safe(view, head)], np.int64)


def _left(state: State, safe: Sequence[int] | I64 = ()) -> tuple[I64, I64, I64]:
    """Return what will be free beside holds for claims and for `safe` groups, and used by queues, once nobody is stopping.

    Third, the part of the stopping tasks' use that is of revocable jobs.
    """
    room, used = state.nodes.free[: state.nodes.n].copy(), state.queues.used[: state.queues.n].copy()
    rows = state.held_rows()
    rows = rows[state.tasks.status[rows] > RUNNING]
    jobs = state.job_rows_of(rows)
    demand = state.shapes.demand[state.jobs.shape_row[jobs]]
    np.add.at(room, state.tasks.node[rows], demand)
    q, spare = state.jobs.queue[jobs], np.zeros_like(used)
    revocable = demand * state.jobs.revocable[jobs][:, None]
    while (q != NONE).any():
        np.subtract.at(used, q[q != NONE], demand[q != NONE])
        np.add.at(spare, q[q != NONE], revocable[q != NONE])
        q = np.where(q != NONE, state.queues.parent[q], NONE)
    h = state.holds
    kept = np.flatnonzero((h.kind[: h.n] != RESERVATION) | np.isin(h.group[: h.n], safe))
    np.subtract.at(room, h.node[kept], h.amount[kept])
    return room - claims.not_coming_back(state), used, spare


def _check_guarantees(state: State, fact: TasksRevoked) -> None:
    """Check `revocable`, and `keeps-guarantee`: a queue above the claim gains it, and may stay as far below as it was."""
    assert fact.claim is not None
    _, used, _ = _left(state)
    row = state.job_row(fact.claim.job) if fact.claim.job else NONE
    leaf = state.tree.rows[fact.claim.queue] if row == NONE else int(state.jobs.queue[row])
    above, gains = up_to_root(state.queues, leaf), np.zeros(len(state.resources), np.int64)
    if row != NONE:
        gains = max(1, int(state.groups.gang[state.jobs.group[row]])) * state.shapes.demand[state.jobs.shape_row[row]]
    lost: dict[int, I64] = {}
    for job in state.job_rows_of(state.current_tasks(fact.attempts)).tolist():
        for q in up_to_root(state.queues, int(state.jobs.queue[job])):
            lost[q] = lost.get(q, 0) + state.shapes.demand[state.jobs.shape_row[job]]
            _must(state.queues.revocable[q], f"queue {state.tree.names[q]!r} is not revocable")
    for q, amounts in lost.items():
        least, has = state.queues.guarantee[q], used[q] - amounts
        if q in above:
            before = used[q] + state.queues.claimed[q]
            least, has = np.minimum(least, before), before - amounts + gains
        bound = (amounts > 0) & (state.queues.guarantee[q] > 0)
        kept = q == 0 or fact.claim.oversized or (has >= least)[bound].all()
        _must(kept, f"queue {state.tree.names[q]!r} is a victim below its guarantee for job {fact.claim.job}")


def _waits_guarded(state: State) -> list[int]:
    """Return the groups that may have a claim for a guarantee."""
    b = state.groups
    if not state.settings.revoke or not state.queues.guarded[: state.queues.n].any():
        return []
    waits = (b.head[: b.n] != NONE) & state.queues.guarded[b.leaf[: b.n]] & ~b.revocable[: b.n]
    return np.flatnonzero(waits).tolist()


def _going_first(state: State, placed: TasksPlaced) -> list[set[int]]:
    """Return the queues that go first with each task, placed after those before it: it stays within their guarantees."""
    queues, found = state.queues, []
    has = queues.used[: queues.n] + queues.claimed[: queues.n]
    for k, row in enumerate(state.job_rows(placed.job).tolist()):
        demand, first, goes = state.shapes.demand[state.jobs.shape_row[row]], False, set()
        count = int((placed.job[k:] == placed.job[k]).sum()) if state.jobs.gang[row] else 1
        for q in up_to_root(queues, int(state.jobs.queue[row])):
            named = (demand > 0) & (queues.guarantee[q] > 0)
            if named.any():
                first = bool((has[q] + count * demand <= queues.guarantee[q])[named].all())
            if first:
                goes.add(q)
            has[q] += demand
        found.append(goes)
    return found


def _check_stays(state: State, placed: TasksPlaced, waited: list[int], served: set[int], goes_first: list[set[int]]) -> None:
    """Check `stays`: no open claim for a guarantee would preempt only tasks that were just placed beyond their own guarantee.

    Regardless of `min_runtime` and timeouts, but for claims that are never due. Not checked are tasks that frameworks launch in
    offers, jobs `served` from holds for claims, and claims of groups that had not `waited`: some get in line only because of
    what was placed.
    """
    groups = [b for b in _waits_guarded(state) if b in waited]
    if not groups:
        return
    checked = [not state.index.specs[job].framework and job not in served for job in placed.job.tolist()]
    rows, first_with = state.job_rows(placed.job)[checked], [goes_first[k] for k in np.flatnonzero(checked)]
    new, v, b = state.jobs.first[rows] + placed.index[checked], state.order.ready(state, 1), state.groups
    for group in groups:
        claim = claims.Due(GUARANTEE, 0.0, group)
        if state.order.groups.hopeless[group] or not claims.next_claim_may_start(state, group):
            continue
        preemption_plan = claims.preemption_plan_of(state, placed.at)
        first, last = claims.asking_queues(state, preemption_plan, claim)
        if first == NONE or scheduling.guarantee_timeout(v, int(b.leaf[group]), first) == np.inf:
            continue
        runs, path = preemption_plan.runs, up_to_root(state.queues, int(b.leaf[group]))
        beyond = [not any(state.queues.parent[q] in path and q not in path for q in goes) for goes in first_with]
        runs["protected"] = ~np.isin(runs["task"], new[beyond])
        scheduling.find_eligible(v, preemption_plan, group, GUARANTEE, first, last)
        count = int(scheduling.plan_claim(v, preemption_plan, group, GUARANTEE))
        job = int(state.jobs.id[b.head[group]])
        _must(count <= 0, f"tasks placed at {placed.at:g} would be preempted at once for the guarantee of job {job}")


def _check_enough(state: State, revoked: TasksRevoked, claimed: NodesClaimed, safe: I64) -> None:
    """Check `enough` and `none-spared`, after both facts were applied; groups were `safe` before that."""
    assert revoked.claim is not None
    row = state.job_row(claimed.id)
    group, shape = int(state.jobs.group[row]), int(state.groups.shape_row[state.jobs.group[row]])
    demand = state.shapes.demand[shape]
    room, used, spare_ends = _left(state, safe)
    _must((room[claimed.nodes] >= 0)[:, demand > 0].all(), f"what was revoked for job {claimed.id} does not make room for it")
    wanted = max(1, int(state.groups.gang[group]))
    room[claimed.nodes] += np.array(claimed.tasks)[:, None] * demand
    before = sum(claimed.tasks) - wanted  # claims of the same group that were served before
    tasks = state.current_tasks(revoked.attempts)
    jobs = state.job_rows_of(tasks)
    alike = np.where(state.jobs.gang[jobs], -1 - jobs, tasks)
    for unit in np.unique(alike):
        mine = tasks[alike == unit]
        assert ((state.tasks.status[mine] >= PLACED) & (state.tasks.status[mine] <= REVOKING)).all()
        needs = state.shapes.demand[state.jobs.shape_row[jobs[alike == unit]]]
        without = room.copy()
        np.subtract.at(without, state.tasks.node[mine], needs)
        job = int(jobs[alike == unit][0])
        if claimed.why == WHY[PRIORITY] != revoked.claim.why and state.jobs.queue[job] == state.jobs.queue[row]:
            continue  # rule: mixed; it brings the claim within its share
        back, bound = used.copy(), used - state.queues.spare[: state.queues.n] + spare_ends
        for q in up_to_root(state.queues, int(state.jobs.queue[job])):
            back[q] += needs.sum(axis=0)
            bound[q] += needs.sum(axis=0) * (not state.jobs.revocable[job])
        fits = hosts(state, shape, without) >= before + wanted and _within_limits(state, group, back, bound)
        task = f"{revoked.job[alike == unit][0]}.{revoked.index[alike == unit][0]}"
        _must(not fits, f"task {task} is revoked for nothing, for job {claimed.id}")


def _check_no_counter_claim(state: State, revoked: TasksRevoked) -> None:
    """Check `no-counter-claim`, after both facts were applied; and `oversized`, for which no timeout matters."""
    assert revoked.claim is not None
    _, used, _ = _left(state)
    has = used + state.queues.claimed[: state.queues.n]
    for row in np.unique(state.job_rows(revoked.job)).tolist():
        leaf, within = int(state.jobs.queue[row]), False
        count = int((revoked.job == state.jobs.id[row]).sum()) if state.jobs.gang[row] else 1
        demand = state.shapes.demand[state.jobs.shape_row[row]]
        has_claims = not state.jobs.revocable[row]
        for q in up_to_root(state.queues, leaf)[:-1] if has_claims else []:
            if not (within or revoked.claim.oversized) and state.queues.guarantee_timeout[q] == np.inf:
                break
            named = (demand > 0) & (state.queues.guarantee[q] > 0)
            if (has[q] + count * demand > state.queues.guarantee[q])[named].any():
                break
            within |= bool(named.any())
        what = f"job {state.jobs.id[row]} is a victim for job {revoked.claim.job}"
        _must(not within, f"{what}, and would then claim what queue {state.tree.names[leaf]!r} is guaranteed")


def _within_limits(state: State, group: int, used: I64, bound: I64) -> bool:
    """True if a group's claims are within the limits above it, and use nothing that others do not lend.

    `used` is what queues use without claims; `bound` is that without revocable jobs.
    """
    demand, leaf = state.shapes.demand[state.groups.shape_row[group]], int(state.groups.leaf[group])
    claimed, limit = state.queues.claimed[: len(used)], state.queues.limit[: len(used)]
    if (bound + claimed > limit)[up_to_root(state.queues, leaf)][:, demand > 0].any():
        return False
    if not state.queues.has_nonlendable[0]:
        return True
    has, need = used + claimed, demand * max(1, int(state.groups.gang[group]))
    return not any(_exceeds_lent(state, leaf, int(r), has, int(need[r])) for r in np.flatnonzero(demand))


def _exceeds_lent(state: State, leaf: int, r: int, has: I64, need: int) -> bool:
    """True if the last `need` of a resource that a leaf got is not lent to it, given what each queue has."""
    queues, total, parent = state.queues, int(state.cluster.total[r]), state.queues.parent[: len(has)]
    withheld = beside(np.maximum(0, queues.nonlendable[: len(has), r] - has[:, r]), parent)
    lent = total - int(has[0, r]) + need - int(withheld[leaf])
    fits_never = lent >= 0 and queues.claimed[0, r] <= need > total - int(queues.never_lent[leaf, r])
    return need > lent and not fits_never
