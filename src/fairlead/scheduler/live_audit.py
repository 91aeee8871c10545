"""Is what runs now fair? The audit of the state as it is, within one task, and of this moment only.

Each leaf queue that runs or waits for something counts as one user, whose task is the mean of what it runs and waits for,
and whose part is its weight among the siblings that run or wait for something, times its parent's part. So the numbers compare
with `fairlead audit` on a problem, and a queue that is wronged there is one of whom the table says why.
"""

from dataclasses import replace

import numpy as np

from fairlead.audit.allocation import check_allocation, own_part
from fairlead.audit.findings import Finding
from fairlead.audit.given import Given
from fairlead.model.api_types import FairnessInfo, FairQueue
from fairlead.model.arrays import Numbers
from fairlead.model.problems import Problem
from fairlead.policies import drf
from fairlead.scheduler.cluster import offered_of, tasks_that_fit
from fairlead.scheduler.decide import Cycle, run_cycle
from fairlead.scheduler.divided_queues import problem_of, wanted_by
from fairlead.scheduler.entitled import parts_of
from fairlead.scheduler.kernel.constants import LIMIT, MAX_JOBS, MAX_TASKS, NO_NODE, WITHHELD
from fairlead.scheduler.never import never_starting
from fairlead.scheduler.reserved import describe_kept
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import F64, I64, NONE, Bools
from fairlead.scheduler.why_short import Shortfalls, Started

MOST_COMPARED = 500
"""Queues, at most, that are compared pair by pair."""
MOST_WAITING = 100
"""Queues, at most, of which it is asked who was served while they waited: the scheduler waits for the answer."""


def audit_state(state: State, now: float) -> FairnessInfo:
    """Say of each leaf queue what it has, what it is entitled to, and why it has less where it does; and what is kept for whom.

    Returns
    -------
    FairnessInfo
        ``fair`` is None where it is at this moment, but somebody has waited while others, who had no less, were served: whether
        they take turns a moment does not tell.
        ``why`` of a queue that is below is "no demand", "limit", "constraint", "fragmentation", "reservations", "offers",
        "about to start" or "not yet converged"; the findings are those of
        :func:`fairlead.audit.allocation.check_allocation`, within one task.
    """
    never = never_starting(state)
    wanted, tasks = wanted_by(state, never)
    inner = set(state.queues.parent[: state.queues.n].tolist())
    leaves = np.array([q for q in range(state.queues.n) if q not in inner and tasks[q] > 0], np.int64)
    if not len(leaves):
        return {"fair": True, "queues": [], "findings": [], "reservations": []}
    problem = _problem(state, leaves, wanted, tasks)
    one_task = _shares(problem, problem.demand)
    used = _shares(problem, state.queues.used[leaves].astype(np.float64))
    has = np.divide(used, one_task, out=np.zeros(len(leaves)), where=one_task > 0)
    findings = check_allocation(Given(problem, has, has, whole=True)) if len(leaves) <= MOST_COMPARED else []
    own = own_part(problem)
    result = run_cycle(state)
    # Over machines only the scheduling cycle knows whether another task fits.
    more = (
        f"{len(result.job):,} tasks that wait have room on a node"
        if len(result.job)
        else "no task that waits has room on a node"
    )
    pareto = Finding("pareto-efficiency", not len(result.job), more)
    findings = [pareto if finding.property == pareto.property else finding for finding in findings]
    findings = [_with_parts(finding, problem, used) if finding.property == "gap" else finding for finding in findings]
    largest = _largest_task(state, leaves)
    free = np.where(state.nodes.up & ~state.nodes.draining, 1, 0)[: state.nodes.n] @ state.nodes.free[: state.nodes.n]
    queues: list[FairQueue] = []
    turns = _turns(state, result)
    never_of = np.bincount(state.jobs.queue[: state.jobs.n][never], minlength=state.queues.n) > 0
    for place, q in enumerate(leaves):
        entitled = float(min(own[place], problem.tasks[place]) * one_task[place]) if own is not None else None
        share = float(used[place])
        below = entitled is not None and share + largest < entitled
        column = drf.dominant_resource(state.queues.used[q], state.cluster.total, np.ones(len(state.resources)))
        running = int(state.queues.tasks[q])
        queues.append(
            {
                "name": state.called(state.tree.names[q]),
                "dominant_share": share,
                "dominant_resource": state.resources[column] if column >= 0 else None,
                "entitled": entitled,
                "status": "below" if below else "fair",
                "why": _why(state, int(q), result, free, never)
                if below or running < tasks[q] or never_of[q]
                else "no demand",
                "running": running,
                "waiting": int(tasks[q]) - running,
                "waits_since": turns[int(q)][0] if int(q) in turns else None,
                "passed_over_for": turns[int(q)][1] if int(q) in turns else [],
            }
        )
    plain = [f.to_dict() for f in findings]
    fair = all(f["holds"] is not False for f in plain) and all(q["status"] == "fair" for q in queues)
    return {
        "fair": None if fair and turns else fair,
        "queues": queues,
        "findings": plain,
        "reservations": describe_kept(state, now),
    }


def _with_parts(gap: Finding, problem: Problem, used: Numbers) -> Finding:
    """How far apart shares are; where parts are not the same, as the table tells it: shares beside the parts of those queues."""
    if (problem.weight == problem.weight[0]).all():
        return gap
    if gap.user is None or gap.other is None:  # the same, where there is a margin; else nobody could use more
        return replace(gap, text="all who could use more have as much for their parts") if gap.margin == 0 else gap
    least, most = (problem.users.index(name) for name in (gap.user, gap.other))
    parts = problem.weight.max(axis=1) / len(problem.users)
    text = (
        f"of those who could use more, {gap.user} has the least for its part, {used[least]:.1%} where that is "
        f"{parts[least]:.1%}, and {gap.other} the most, {used[most]:.1%} where it is {parts[most]:.1%}"
    )
    return replace(gap, text=text)


def _turns(state: State, cycle: Cycle) -> dict[int, tuple[float, list[str]]]:
    """The leaf queues that wait while others, who had no less before it, were served: since when, and who; rows of queues.

    Of many that wait those with the least shares are looked at.
    """
    parts, started = parts_of(state), Started(state)
    why = Shortfalls(state, started, parts, cycle)
    found = {}
    waiting = np.flatnonzero(parts.waiting > 0)
    for q in parts.queues[waiting[np.argsort(parts.has[waiting], kind="stable")]][:MOST_WAITING].tolist():
        short = why.of(q)
        if len(short.others):
            names = sorted(state.called(state.tree.names[other]) for other in short.others)
            found[q] = (max(short.ready_at, float(started.last_of(state)[q]) / 1e6), names)
    return found


def _problem(state: State, leaves: I64, wanted: F64, tasks: I64) -> Problem:
    """The leaves as users, in floating point: within one task that is near enough, and the scheduler waits for this."""
    weight = np.array([_part(state, int(q), len(leaves), tasks) for q in leaves])
    problem = problem_of(state, leaves, wanted, tasks, weight)
    # Who needs what there is nothing of can use nothing.
    hopeless = ((problem.demand > 0) & (problem.capacity == 0)).any(axis=1)
    most = np.minimum(tasks[leaves], state.queues.max_tasks[leaves])
    return replace(problem, tasks=np.where(hopeless, 0.0, most))


def _part(state: State, q: int, leaves: int, tasks: I64) -> list[float]:
    """A queue's part of each resource: its weight among its siblings that are active, times its parent's part.

    Over what an equal part would be, so that shares of queues that weigh the same are what they are.
    """
    queues = state.queues
    part = np.full(len(state.resources), float(leaves))
    while queues.parent[q] != NONE:
        siblings = np.flatnonzero((queues.parent[: queues.n] == queues.parent[q]) & (tasks > 0))
        part *= queues.weight[q] / queues.weight[siblings].sum(axis=0)
        q = int(queues.parent[q])
    found: list[float] = part.tolist()
    return found


def _shares(problem: Problem, amounts: Numbers) -> Numbers:
    """Dominant shares of the cluster, not weighed."""
    there = problem.capacity > 0
    shares: Numbers = (amounts[:, there] / problem.capacity[there]).max(axis=1, initial=0.0)
    return shares


def _largest_task(state: State, leaves: I64) -> float:
    """The dominant share of the largest task that runs or waits: what the last one placed may have cost another."""
    jobs = state.jobs
    live = np.flatnonzero((jobs.waiting[: jobs.n] > 0) | (jobs.holding[: jobs.n] > 0))
    demand = state.shapes.demand[np.unique(jobs.shape_row[live])]
    return max((float(drf.dominant_share(d, state.cluster.total, np.ones(len(d)))) for d in demand), default=0.0)


def _why(state: State, q: int, result: Cycle, free: I64, never: Bools) -> str:
    """Why a queue has no more, from what the scheduling cycle says of its buckets; never-starting ones where all are."""
    buckets, jobs, nodes = state.buckets, state.jobs, state.nodes
    waits = np.flatnonzero((buckets.leaf[: buckets.n] == q) & (buckets.head[: buckets.n] != NONE))
    mine = waits[~never[buckets.head[waits]]]
    if not len(waits):
        return "no demand"
    if not len(mine):
        return "constraint" if state.order.buckets.hopeless[waits].any() else "limit"
    if np.isin(jobs.queue[result.job], q).any():
        return "about to start"
    stops = result.stop[mine]
    if np.isin(stops, (LIMIT, MAX_TASKS, MAX_JOBS, WITHHELD)).all():
        return "limit"
    full = mine[stops == NO_NODE]
    for b in full[np.argsort(result.stop_order[full])]:
        demand, count = state.shapes.demand[buckets.shape_row[b]], max(1, int(buckets.gang[b]))
        allowed = state.cluster.masks[state.shapes.mask[buckets.shape_row[b]], : nodes.n]
        allowed = allowed & nodes.up[: nodes.n] & ~nodes.draining[: nodes.n]
        if tasks_that_fit(nodes.free[: nodes.n][allowed], demand) >= count:
            return "reservations"
        if tasks_that_fit((nodes.free[: nodes.n] + offered_of(state.offers, nodes.n))[allowed], demand) >= count:
            return "offers"
        if (free // count >= demand)[demand > 0].all():
            return "fragmentation"
    return "not yet converged"
