"""No task is revoked for room that is only offered: the offers are rescinded first, and whoever has the claim goes before others.

That is asked for a claim's single task, on one node; a gang's room may come from many. An offer made in this very moment is
left: so at one moment each is taken back once at most, and what it gave room for is decided before anything else is.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.scheduler.facts import Fact, OffersRescinded, TasksRevoked
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import I64, NONE, Bools


def rescinded_instead(state: State, facts: Sequence[Fact], now: float) -> list[Fact]:
    """The offers to rescind, where these facts are to revoke tasks for which that makes room; nothing where none does."""
    may_go = _may_go(state, now) if state.offers.n else np.zeros(0, np.bool_)
    if not may_go.any():
        return []
    for fact in facts:
        if isinstance(fact, TasksRevoked) and fact.claim is not None:
            row = state.job_row(fact.claim.job)
            chosen = may_go & (state.offers.leaf[: state.offers.n] != state.jobs.queue[row])
            ids = [] if state.jobs.gang[row] else _offers_on_a_node_for(state, row, np.flatnonzero(chosen))
            if ids:
                return [OffersRescinded(at=now, ids=ids, why="claimed")]
    return []


def _may_go(state: State, now: float) -> Bools:
    """Of each offer, whether it was made before, and to nobody who is below a guarantee."""
    queues, offers, n = state.queues, state.offers, state.offers.n
    below: Bools = np.any(queues.used[: queues.n] < queues.guarantee[: queues.n], axis=1)
    for row in range(1, queues.n):
        below[row] |= below[queues.parent[row]] if queues.parent[row] != NONE else False
    made_before: Bools = offers.made[:n] < now
    return made_before & ~below[offers.leaf[:n]]


def _offers_on_a_node_for(state: State, row: int, chosen: I64) -> list[int]:
    """The ids of some of these offers that, all on one node, leave room for a task of a job row when they are gone."""
    offers, nodes = state.offers, state.nodes
    demand = state.shapes.demand[state.jobs.shape_row[row]]
    masks = state.cluster.masks[state.shapes.mask[state.jobs.shape_row[row]]]
    for node in np.unique(offers.node[chosen]).tolist():
        here = chosen[offers.node[chosen] == node]
        room = nodes.free[node] - nodes.held[node] + offers.rest[here].sum(axis=0)
        if masks[node] and not nodes.draining[node] and (demand <= room)[demand > 0].all():
            return offers.id[here].tolist()
    return []
