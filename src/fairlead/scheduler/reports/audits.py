"""Audit fairness over time: facts are replayed, and what each queue was entitled to and had is added up.

Nothing changes between two facts. If there are few moments, each is sampled and the sums are exact. Else one sample is taken in
each of many intervals of equal length, at an offset that differs from interval to interval, so that periodic events are not
always met at the same phase. What was used is also added up exactly; the error is how far the samples are from that.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fairlead.audit.allocation import envy_freeness, own_part
from fairlead.audit.findings import Finding
from fairlead.audit.given import Given
from fairlead.audit.over_time import NOT_KNOWN, STARVED_AFTER, OverTime, Revocations, Starved
from fairlead.model.api_types import FairnessInfo, FairQueue
from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem
from fairlead.policies import drf
from fairlead.scheduler.cluster import offered_of
from fairlead.scheduler.decide import Cycle, run_cycle
from fairlead.scheduler.effects import apply
from fairlead.scheduler.entitlements import Parts, most_now, parts_of, problem_of, wanted_by
from fairlead.scheduler.facts import Attempts, Fact, NodesClaimed, TasksFinished, TasksRevoked
from fairlead.scheduler.feasibility import hosts, never_starting
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import LIMIT, MAX_JOBS, MAX_TASKS, NO_NODE, NONLENDABLE
from fairlead.scheduler.preemption.claims import FAR_FUTURE, next_claim_may_start
from fairlead.scheduler.queue_tree import by_weight
from fairlead.scheduler.reports.explain import leaves_in_turn
from fairlead.scheduler.reports.preemptions import RevocationCheck
from fairlead.scheduler.reports.reservations import Promises, describe_holds
from fairlead.scheduler.reports.why import SHARE_TOLERANCE, Served, Short, Shortfalls, Started
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import WAITING
from fairlead.scheduler.tables import F64, GUARANTEE, I64, NONE, Bools

MOST_SAMPLES = 2000
"""Maximum samples; fewer if many queues make each slow."""
MOST_SAMPLE_WORK = 200_000_000
"""Sum over samples of the squared number of queues with work, after which the remaining intervals are doubled."""
MOST_EXPLAINED = 60
"""Queues per sample whose shortfall is explained; others keep their last reason."""
_GOLDEN = 0.6180339887498949


@dataclass
class _Waits:
    """A queue that waits, has less than its part, and was not served.

    since, seen : the first and the last sample of that
    others : rows of queues that had no less and were served when it was starved already
    reason : why it has less than its part, at the first sample
    """

    since: float
    seen: float
    others: set[int]
    reason: int


def _attempts(columns: Attempts) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _share_of_a_task(state: State, jobs: I64) -> F64:
    """Return the dominant share of one task of each of these jobs, given by row."""
    return (state.shapes.demand[state.jobs.shape_row[jobs]] / np.maximum(1, state.cluster.total)).max(axis=1, initial=0.0)


class Auditor:
    """Applies facts to a state, and adds up what each queue was entitled to and had.

    state : before the first fact
    begin, end : seconds as in the facts: the time that is audited
    moments : number of facts in that time; above MOST_SAMPLES, not every moment is sampled
    starved_after : seconds; see :data:`fairlead.audit.over_time.STARVED_AFTER`
    """

    def __init__(self, state: State, begin: float, end: float, moments: int, starved_after: float = STARVED_AFTER) -> None:
        self.state, self.begin, self.end, self.sums = state, begin, end, OverTime()
        self.every = max(0.0, end - begin) / MOST_SAMPLES if moments > MOST_SAMPLES else 0.0
        self._now = -np.inf
        self._stretch, self._number, self._work = begin, 0, 0
        self._used = np.zeros((2, 0, 0))  # exactly, and as sampled
        # By queue: why it is short, and the sample that was found at.
        self._reason, self._explained_at = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._served, self._waits, self._starved_after = Served(), dict[int, _Waits](), starved_after
        self._check, self.revocations, self.promises = RevocationCheck(), Revocations(), Promises(state)
        self._revoked: dict[tuple[int, ...], float] = {}  # attempts revoked for claims that have not ended: when

    def feed(self, fact: Fact) -> None:
        """Apply a fact. If the clock was set back, time stands still until it catches up."""
        if fact.at > self._now:
            self._pass_until(fact.at)
        for queue in self._served.note(self.state, fact).tolist():
            self._close(queue, fact.at)
        if fact.at >= self.begin and isinstance(fact, TasksFinished):
            rows = self.state.job_rows(fact.job)
            self._tolerate(rows, fact.at - self.state.tasks.started_at[self.state.jobs.first[rows] + fact.index])
        if fact.at >= self.begin and isinstance(fact, TasksRevoked | NodesClaimed):
            self._check_revocation(fact)
        else:
            apply(self.state, fact)
            if self._revoked and isinstance(fact, TasksFinished):
                self._note_ends(fact)
        self.promises.happened(self.state, fact)

    def _check_revocation(self, fact: TasksRevoked | NodesClaimed) -> None:
        """Apply the fact, count what it revokes, and note a broken rule."""
        if isinstance(fact, TasksRevoked) and fact.claim is not None:
            self.revocations.add(fact.claim.why, len(fact.job))
            self._revoked |= dict.fromkeys(_attempts(fact.attempts), fact.at)
        fault = self._check.happen(self.state, fact)
        if fault:
            self.revocations.faults.append((fact.at, fault))

    def _note_ends(self, fact: TasksFinished) -> None:
        """Add the lost work of revoked tasks that ended; none if they are done or cancelled."""
        until = np.array([self._revoked.pop(attempt, np.nan) for attempt in _attempts(fact.attempts)])
        rows = self.state.jobs.first[self.state.job_rows(fact.job)] + fact.index
        mine = ~np.isnan(until) & (self.state.tasks.status[rows] == WAITING)
        self._add_lost(rows[mine], until[mine])

    def _add_lost(self, rows: I64, until: F64) -> None:
        """Add what the latest attempts of tasks did since their last checkpoint, until they were asked to stop.

        One that was asked to stop before its start was known did nothing.
        """
        tasks = self.state.tasks
        since = np.where(np.isnan(tasks.started_at[rows]), until, np.fmax(tasks.started_at[rows], tasks.kept_at[rows]))
        share = _share_of_a_task(self.state, self.state.job_rows_of(rows))
        self.revocations.lost += float((np.maximum(0, until - since) * share).sum())

    def _tolerate(self, jobs: I64, seconds: F64) -> None:
        """Note the durations of tasks of these jobs; NaN if they were never seen to start."""
        self.sums.tolerate(self.state.jobs.queue[jobs], _share_of_a_task(self.state, jobs), np.nan_to_num(seconds))

    def finish(self) -> OverTime:
        """Continue to the end, and return the sums."""
        self._pass_until(self.end)
        jobs = self.state.jobs
        left = np.flatnonzero((jobs.group[: jobs.n] != NONE) | (jobs.holding[: jobs.n] > 0))
        self._tolerate(left, np.zeros(len(left)))  # their durations are not known
        rows = [self.state.jobs.first[self.state.job_row(job)] + index for job, index, _ in self._revoked]
        self._add_lost(np.array(rows, np.int64), np.array([*self._revoked.values()], float))
        self._revoked.clear()
        for queue in list(self._waits):
            self._close(queue, self.end)
        return self.sums

    def error(self) -> float:
        """Return the error of what was used as sampled, relative to what was used."""
        exactly, sampled = self._used.sum(axis=2) / 3600
        return float(np.abs(sampled - exactly).sum() / max(exactly.sum(), 1e-300))

    def _pass_until(self, now: float) -> None:
        """Advance to this time, up to which nothing changes."""
        begin, end = max(self._now, self.begin), min(now, self.end)
        self._now = max(self._now, now)
        if end <= begin:
            return
        self.revocations.faults += [(begin, fault) for fault in self._check.pass_time(self.state, end - begin)]
        self._count(0, end - begin)
        self.promises.pass_time(self.state, end - begin)
        if not self.every:
            self._sample(begin, end - begin)
            return
        stands_for, first = 0.0, end
        while (at := self._next_sample()) < end:
            first = min(first, at)
            stands_for += min(self.every, self.end - self._stretch)
            self._stretch += self.every
            self._number += 1
        if stands_for:
            self._sample(first, stands_for)

    def _next_sample(self) -> float:
        """Return when the sample of this interval is due; after the end, inf."""
        if self._stretch >= self.end:
            return np.inf
        place = (0.5 + self._number * _GOLDEN) % 1.0
        return self._stretch + place * min(self.every, self.end - self._stretch)

    def _count(self, which: int, seconds: float) -> None:
        """Add what is used now for this long, in parts of the cluster."""
        n, m = self.state.queues.n, len(self.state.resources)
        if self._used.shape[1:] != (n, m):
            more = n - self._used.shape[1], m - self._used.shape[2]
            self._used = np.pad(self._used, ((0, 0), (0, more[0]), (0, more[1])))
        self._used[which] += self.state.queues.used[:n] * (seconds / np.maximum(1, self.state.cluster.total))

    def _sample(self, at: float, seconds: float) -> None:
        """Add what each queue is entitled to and has now, for this long."""
        self._count(1, seconds)
        parts = parts_of(self.state, only_lent=True)
        waits = parts.waiting > 0
        short = np.flatnonzero(waits & (parts.entitled > parts.has + SHARE_TOLERANCE))
        reason = np.full(len(parts.queues), NOT_KNOWN, np.int64)
        if len(short):
            reason[short] = self._why(parts, parts.queues[short], at)
        capacity = self.state.cluster.total.astype(np.float64)
        self.sums.add(at, seconds, capacity, parts.queues, parts.entitled, parts.has, parts.resource, waits, reason)
        for queue in [q for q, waited in self._waits.items() if waited.seen < at]:
            self._close(queue, at)
        self._work += len(parts.queues) ** 2
        if self._work > MOST_SAMPLE_WORK:
            self._work, self._number, self._stretch = 0, 0, max(self._stretch, at + seconds)
            self.every = 2 * max(self.every, (self.end - self.begin) / MOST_SAMPLES)

    def _why(self, parts: Parts, queues: I64, at: float) -> I64:
        """Return why queues have less than their parts; of many, only those explained longest ago are explained again.

        The others keep their last reason.
        """
        more = self.state.queues.n - len(self._reason)
        self._reason = np.concatenate([self._reason, np.full(more, NOT_KNOWN)])
        self._explained_at = np.concatenate([self._explained_at, np.full(more, NONE)])
        chosen = queues[np.argsort(self._explained_at[queues], kind="stable")[:MOST_EXPLAINED]]
        self._explained_at[chosen] = self.sums.looks
        why = Shortfalls(self.state, self._served, parts, run_cycle(self.state))
        found = {queue: why.of(queue) for queue in chosen.tolist()}
        self._reason[chosen] = [each.reason for each in found.values()]
        for queue, reason in zip(queues.tolist(), self._reason[queues].tolist(), strict=True):
            self._waits.setdefault(queue, _Waits(at, at, set(), reason)).seen = at
        for queue, each in found.items():
            self._wait(queue, at, each)
        return self._reason[queues]

    # -- who starves ---------------------------------------------------------------------------------------------------

    def _wait(self, queue: int, at: float, why: Short) -> None:
        """Note which queues that had no less were served although this one was starved."""
        known = self._waits[queue]
        late = ~(why.started <= known.since + self._starved_after)  # includes tasks that have not started
        if at > known.since + self._starved_after and late.any():
            known.reason = why.reason if not known.others else known.reason
            known.others.update(why.others[late].tolist())

    def _close(self, queue: int, at: float) -> None:
        """Note that a queue no longer waits, or was served."""
        waited = self._waits.pop(queue, None)
        if waited is not None and waited.others and self.sums.owed(queue) > 0:
            self.sums.starved.append(Starved(queue, waited.since, at, sorted(waited.others), waited.reason))


def audit_history(
    state: State,
    facts: Iterable[Fact],
    begin: float,
    end: float,
    moments: int,
    starved_after: float = STARVED_AFTER,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Audit a history: :class:`fairlead.model.api_types.OverTimeInfo` without `chosen` and `complete`.

    state : before the facts; modified
    begin, end : seconds as in the facts
    moments : number of facts in that time
    starved_after : seconds
    progress : called now and then with the number of facts applied
    """
    auditor = Auditor(state, begin, end, moments, starved_after)
    for number, fact in enumerate(facts, 1):
        auditor.feed(fact)
        if number % 500 == 0:
            progress(number)
    sums, revoked = auditor.finish(), auditor.revocations.told()
    promises, reservations = auditor.promises.summary(begin, max(begin, end), state.resources)
    found = sums.told([state.display_name(name) for name in state.tree.names], state.resources)
    return found | {
        "fair": found["fair"] and not revoked["faults"], "revocations": revoked, "since": begin, "until": max(begin, end),
        "starved_after": starved_after, "every": auditor.every, "error": auditor.error() if auditor.every else 0.0,
        "promises": promises, "reservations": reservations,
    }  # fmt: skip


MOST_COMPARED = 500
"""Maximum queues that are compared pairwise."""
MOST_WAITING = 100
"""Maximum queues for which it is checked who was served while they waited: the scheduler waits for the answer."""


def audit_state(state: State, now: float) -> FairnessInfo:
    """Report what each leaf queue has and is entitled to, why it has less if it does, and what is held for whom.

    ``fair`` is None if it is fair at this moment, but a queue waited while others that had no less were served: one moment cannot
    show whether they take turns. ``why`` of a queue that is below is "no demand", "limit", "quota", "constraint",
    "fragmentation", "reservations", "offers", "about to start" or "not yet converged". The findings are of the
    properties that :func:`fairlead.audit.allocation.check_allocation` checks, by shares and within one task.
    """
    never = never_starting(state)
    wanted, tasks = wanted_by(state, never)
    inner = set(state.queues.parent[: state.queues.n].tolist())
    leaves = np.array([q for q in np.flatnonzero((tasks > 0) & wanted.any(axis=1)) if q not in inner], np.int64)
    if not len(leaves):
        return {"fair": True, "queues": [], "findings": [], "reservations": []}
    problem = _problem(state, leaves, wanted, tasks)
    one_task = _shares(problem, problem.demand)
    used = _shares(problem, state.queues.used[leaves].astype(np.float64))
    has = np.divide(used, one_task, out=np.zeros(len(leaves)), where=one_task > 0)
    most, _ = problem.most()
    entitled = np.minimum(own_part(problem), most) * one_task
    late = np.isin(leaves, _late_for_guarantees(state, now))
    below, sharing = _below(problem, used, entitled, _largest_task(state, never), late)
    result = run_cycle(state)
    starting = np.isin(leaves, state.jobs.queue[result.job])
    many = len(leaves) > MOST_COMPARED
    findings = [
        sharing,
        *([] if many else [envy_freeness(Given(problem, has, has, whole=True))]),
        # Over nodes, only a scheduling cycle knows whether another task fits.
        Finding("pareto-efficiency", not starting.any(), _room(len(result.job) if starting.any() else 0)),
        _gap(problem, used, entitled, has < most),
    ]
    envious = {name for finding in findings for name in finding.wronged}
    status: list[Literal["fair", "below", "envies", "startable"]] = [
        "below" if short else "envies" if name in envious else "startable" if starts else "fair"
        for name, short, starts in zip(problem.users, below, starting, strict=True)
    ]
    free = np.where(state.nodes.up & ~state.nodes.draining, 1, 0)[: state.nodes.n] @ state.nodes.free[: state.nodes.n]
    queues: list[FairQueue] = []
    turns = _turns(state, result)
    in_turn = {leaf: place for place, leaf in enumerate(leaves_in_turn(state, result), 1)}
    never_of = np.bincount(state.jobs.queue[: state.jobs.n][never], minlength=state.queues.n) > 0
    for place, q in enumerate(leaves):
        column = drf.dominant_resource(state.queues.used[q], state.cluster.total, np.ones(len(state.resources)))
        running = int(state.queues.tasks[q])
        has_all = running >= tasks[q] and not below[place] and not never_of[q]
        queues.append(
            {
                "name": problem.users[place], "dominant_share": float(used[place]),
                "dominant_resource": state.resources[column] if column >= 0 else None,
                "entitled": float(entitled[place]),
                "status": status[place],
                "why": "no demand" if has_all else _why(state, int(q), result, free, never),
                "running": running, "waiting": int(tasks[q]) - running, "turn": in_turn.get(int(q)),
                "waits_since": turns[int(q)][0] if int(q) in turns else None,
                "passed_over_for": turns[int(q)][1] if int(q) in turns else [],
            }
        )  # fmt: skip
    fair = all(each == "fair" for each in status)
    return {
        "fair": None if fair and turns else fair,
        "queues": queues,
        "findings": [finding.to_dict() for finding in findings],
        "reservations": describe_holds(state, now),
    }


def _late_for_guarantees(state: State, now: float) -> list[int]:
    """Return the leaves with a claim for a guarantee that is older than its timeout, and that nothing is kept for yet."""
    if not state.cluster.total.any():
        return []
    v, found = state.order.ready(state, 1), []
    kept = scheduling.kept_for_claims(v)
    for group, kind, since in zip(*scheduling.due_claims(v, FAR_FUTURE), strict=True):
        leaf = int(state.groups.leaf[group])
        if kind == GUARANTEE and next_claim_may_start(state, group):
            first, _, _ = scheduling.guarded_part(v, group, kept)
            found += [leaf] if since + scheduling.guarantee_timeout(v, leaf, first) < now else []
    return found


def _below(problem: Problem, used: Numbers, entitled: Numbers, largest: float, late: Bools) -> tuple[Bools, Finding]:
    """Return which queues are late for a guarantee, or short of what they are entitled to by more than the largest task.

    Also return the finding.
    """
    below, worst = used + largest < entitled, int(np.argmax(entitled - used))
    if below.any():
        name, lack = problem.users[worst], f"has {used[worst]:.1%} and is entitled to {entitled[worst]:.1%}"
        return below | late, Finding("sharing-incentive", False, f"{name} {lack}; the largest task takes {largest:.1%}", name)
    if late.any():
        name = problem.users[int(np.argmax(late))]
        text = f"{name} has waited for a task within its guarantee for longer than its timeout"
        return late, Finding("sharing-incentive", False, text, name)
    return late, Finding("sharing-incentive", True, "every queue has what it is entitled to, within one task")


def _room(tasks: int) -> str:
    return f"{f'{tasks:,}' if tasks else 'no'} task{'s that wait have' if tasks > 1 else ' that waits has'} room on a node"


def _gap(problem: Problem, used: Numbers, entitled: Numbers, wanting: Bools) -> Finding:
    """Report which queues with unmet demand have the least and the most of what they are entitled to."""
    rows = np.flatnonzero(wanting & (entitled > 0))
    if not len(rows):
        return Finding("gap", None, "every queue has all that it can use")
    ratio = used[rows] / entitled[rows]
    least, most = int(rows[np.argmin(ratio)]), int(rows[np.argmax(ratio)])
    low, high = (f"{problem.users[row]}, {used[row]:.1%} of {entitled[row]:.1%}" for row in (least, most))
    if len(rows) == 1:
        return Finding("gap", None, f"share/entitlement of the only queue with unmet demand: {low}")
    if np.isclose(ratio.min(), ratio.max()):
        return Finding("gap", None, "all queues with unmet demand have the same share/entitlement")
    text = f"share/entitlement of queues with unmet demand: lowest {low}; highest {high}"
    return Finding("gap", None, text, problem.users[least], problem.users[most])


def _turns(state: State, cycle: Cycle) -> dict[int, tuple[float, list[str]]]:
    """Return the leaf queues that wait while others that had no less were served: since when, and the names of the others.

    If many wait, only those with the least shares are checked.
    """
    parts, started = parts_of(state, only_lent=True), Started(state)
    why = Shortfalls(state, started, parts, cycle)
    found = {}
    waiting = np.flatnonzero(parts.waiting > 0)
    for q in parts.queues[waiting[np.argsort(parts.has[waiting], kind="stable")]][:MOST_WAITING].tolist():
        short = why.of(q)
        if len(short.others):
            names = sorted(state.display_name(state.tree.names[other]) for other in short.others)
            found[q] = (max(short.ready_at, float(started.last_of(state)[q]) / 1e6), names)
    return found


def _problem(state: State, leaves: I64, wanted: F64, tasks: I64) -> Problem:
    """Return the leaves as users, in floating point: exact enough within one task, and fast."""
    # Relative to an equal part, so that shares of queues with equal weights stay as they are.
    equal = np.full(len(state.resources), float(len(leaves)))
    weight = np.array([by_weight(state.queues, int(q), tasks > 0, equal) for q in leaves])
    problem = problem_of(state, leaves, wanted, tasks, weight)
    # A queue that needs a resource of which the cluster has none can use nothing.
    hopeless = ((problem.demand > 0) & (problem.capacity == 0)).any(axis=1)
    most = np.minimum(tasks[leaves], state.queues.max_tasks[leaves])
    names = [state.display_name(name) for name in problem.users]
    limit = most_now(state)[leaves]
    # What a queue may claim: the tasks with which it is within its guarantee of each resource.
    named = (problem.guarantee > 0) & (problem.demand > 0)
    within = np.divide(problem.guarantee, problem.demand, out=np.full(named.shape, np.inf), where=named).min(axis=1)
    guarantee = np.multiply(problem.demand, within[:, None], out=np.zeros(named.shape), where=named)
    limit = np.where(limit < np.inf, limit, -1)
    return replace(problem, tasks=np.where(hopeless, 0.0, most), users=names, limit=limit, guarantee=guarantee)


def _shares(problem: Problem, amounts: Numbers) -> Numbers:
    there = problem.capacity > 0
    return (amounts[:, there] / problem.capacity[there]).max(axis=1, initial=0.0)


def _largest_task(state: State, never: Bools) -> float:
    """Return the dominant share of the largest task, or gang, that runs or may start: the granularity of fairness."""
    jobs, n = state.jobs, state.jobs.n
    waits = (jobs.waiting[:n] > 0) & (jobs.group[:n] != NONE) & ~never
    live = np.flatnonzero(waits | (jobs.holding[:n] > 0))
    at_once = np.where(jobs.gang[live], jobs.tasks[live], 1)
    demand = np.unique(state.shapes.demand[jobs.shape_row[live]] * at_once[:, None], axis=0)
    return max((float(drf.dominant_share(d, state.cluster.total, np.ones(len(d)))) for d in demand), default=0.0)


def _why(state: State, q: int, result: Cycle, free: I64, never: Bools) -> str:
    """Return why a queue has no more, by what stopped its groups in the cycle; never-starting jobs only if it has no others."""
    groups, jobs, nodes = state.groups, state.jobs, state.nodes
    waits = np.flatnonzero((groups.leaf[: groups.n] == q) & (groups.head[: groups.n] != NONE))
    mine = waits[~never[groups.head[waits]]]
    if not len(waits):
        return "no demand"
    if not len(mine):
        return "constraint" if state.order.groups.hopeless[waits].any() else "limit"
    if np.isin(jobs.queue[result.job], q).any():
        return "about to start"
    stops = result.stop[mine]
    if np.isin(stops, (LIMIT, MAX_TASKS, MAX_JOBS, NONLENDABLE)).all():
        return "quota" if (stops == NONLENDABLE).any() else "limit"
    full = mine[stops == NO_NODE]
    for b in full[np.argsort(result.stop_order[full])]:
        shape, count = int(groups.shape_row[b]), max(1, int(groups.gang[b]))
        demand = state.shapes.demand[shape]
        if hosts(state, shape, nodes.free[: nodes.n]) >= count:
            return "reservations"
        if hosts(state, shape, nodes.free[: nodes.n] + offered_of(state.offers, nodes.n)) >= count:
            return "offers"
        if (free // count >= demand)[demand > 0].all():
            return "fragmentation"
    return "not yet converged"
