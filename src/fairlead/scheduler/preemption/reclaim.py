"""What revocable tasks use above limits is asked back for frameworks within their share, as for jobs (class IDLE).

A framework has no demand that could be a claim, so it is a node that is asked back: as much of it as its framework may have
by its limits and its share. Nothing is asked back while it has an offer of more than it refused before, nor a node of which it
refused as much since it launched a task, revived its role or subscribed.
"""

import numpy as np

from fairlead.scheduler.facts import Claim, Fact, TasksRevoked
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import ENTITLEMENT_TOLERANCE
from fairlead.scheduler.kernel.scheduling import PreemptionPlan
from fairlead.scheduler.preemption.claims import preemption_plan_of, revoked_rows
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import I64, IDLE, NONE, WHY, Bools


def ask_back(state: State, now: float) -> list[Fact]:
    """Return the tasks that are revoked for the first framework that wants offers and may have what they use."""
    v, b, queues, offers = state.order.ready(state, 1), state.groups, state.queues, state.offers
    if not scheduling.idle_is_used(v, v.used):
        return []
    leaves = b.leaf[: b.n]
    wants = b.is_framework[: b.n] & ~b.revocable[: b.n] & (queues.last_until[leaves] <= now)
    open_offers = offers.leaf[: offers.n]
    unknown = open_offers[(offers.rest[: offers.n] > queues.declined[open_offers]).any(axis=1)]
    groups = np.flatnonzero(wants & ~np.isin(leaves, unknown))
    if not len(groups):
        return []
    plan = preemption_plan_of(state, now, frameworks=True)
    for group in groups[np.argsort(queues.served[leaves[groups]], kind="stable")].tolist():
        count = _reclaimed(state, plan, group, now)
        if count:
            role = queues.parent[queues.parent[leaves[group]]]
            claim = Claim(job=0, why=WHY[IDLE], queue=state.tree.names[role])
            return [TasksRevoked(at=now, **state.task_columns(revoked_rows(plan, count)), claim=claim)]
    return []


def _reclaimed(state: State, plan: PreemptionPlan, group: int, now: float) -> int:
    """Pick and preempt, in the plan, what makes an offer of a node to a framework; return how many are picked."""
    v, n, leaf = state.view(), state.nodes.n, int(state.groups.leaf[group])
    bound, worth = np.zeros(len(state.resources), np.int64), state.order.min_offer
    scheduling.bound_room(v, group, False, bound)
    total, path = state.cluster.total, up_to_root(state.queues, leaf)[:-1]
    left = [plan.entitled[q] * (1 + ENTITLEMENT_TOLERANCE) * total - plan.left[q] - plan.kept[q] for q in path]
    most = np.minimum(bound, np.min(left, axis=0).astype(np.int64))  # within the share of the leaf, and of each queue above
    takes = state.nodes.up[:n] & ~state.nodes.draining[:n]

    def wanted() -> Bools:
        rest = np.minimum(bound, np.maximum(0, plan.room[:n] - state.nodes.held[:n]))
        unknown = (rest > state.queues.declined[leaf]).any(axis=1)
        return takes & unknown & (rest >= worth).any(axis=1) & ~refused_on(state, leaf, rest, now)

    if (most < worth).all() or wanted().any():  # it is offered that, or will be when it is back
        return 0
    runs, size = plan.runs, np.zeros(n)
    demand = state.shapes.demand[state.jobs.shape_row[runs["job"]]] / np.maximum(1, state.cluster.total)
    np.add.at(size, runs["node"], demand.max(axis=1) * runs["revocable"])
    scheduling.find_eligible(v, plan, group, IDLE, NONE, NONE)
    for node in np.argsort(-size, kind="stable")[: np.count_nonzero(size)].tolist():
        count = int(scheduling.pick_reclaimed(v, plan, group, node, most))
        if wanted()[node]:
            return count
        scheduling.spare_all(v, plan, count)
    return 0


def refused_on(state: State, leaf: int, rest: I64, now: float) -> Bools:
    """Return, per node, whether a framework has refused all that could be offered."""
    found = np.zeros(state.nodes.n, np.bool_)
    table, n = state.refusals, state.refusals.n
    for f in np.flatnonzero((table.leaf[:n] == leaf) & (table.until[:n] > now)).tolist():
        node = int(table.node[f])
        found[node] |= bool((rest[node] <= table.refused[f]).all())
    return found
