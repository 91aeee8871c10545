"""What each queue's fair share of each resource is at a moment, from the root of the tree down.

Each inner queue's share is divided among its children by their weights, guarantees and limits, each resource by itself
(:mod:`fairlead.policies.fair_shares`). These are YARN's numbers, whatever policy the queues are served by; what DRF would give by
what everybody asks for, as whole tasks, is :mod:`fairlead.scheduler.entitled`.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np

from fairlead.policies.fair_shares import divide
from fairlead.scheduler.divided_queues import wanted_by
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import I64, UNLIMITED

Shares = list[list[Fraction]]
"""By row of the state's queues, by resource."""


@dataclass(frozen=True)
class FairShares:
    """Fair shares in base units, rounded down; int64, shape (queues, resources).

    steady : among all queues that there are.
    instantaneous : among those at work, which have something that runs or waits; 0 for the others.
    within_demand : the same, but nobody gets more than all that it runs and waits for: the rest is the others'.
    """

    steady: I64
    instantaneous: I64
    within_demand: I64


def fair_shares(state: State) -> FairShares:
    """Work out the fair shares of all queues."""
    wanted, tasks = wanted_by(state)
    there = np.array([state.tree.is_declared(name) for name in state.tree.names], np.bool_)
    at_work = tasks > 0
    demand = [[int(amount) for amount in row] for row in wanted]
    kinds = (exact_shares(state, there), exact_shares(state, at_work), exact_shares(state, at_work, demand))
    return FairShares(*(_rounded_down(shares, len(state.resources)) for shares in kinds))


def exact_shares(state: State, takes_part: np.ndarray, demand: list[list[int]] | None = None) -> Shares:
    """Divide what the cluster has among the queues that take part, who get no more than they demand where that is said."""
    queues, n = state.queues, state.queues.n
    shares: Shares = [[Fraction(0)] * len(state.resources) for _ in range(n)]
    shares[0] = [Fraction(int(amount)) for amount in state.cluster.total]
    if demand is not None:
        shares[0] = [min(share, Fraction(asked)) for share, asked in zip(shares[0], demand[0], strict=True)]
    children: dict[int, list[int]] = {}
    for row in range(1, n):
        if takes_part[row]:
            children.setdefault(int(queues.parent[row]), []).append(row)
    for parent in sorted(children):  # parents come before their children
        rows = children[parent]
        for r in range(len(state.resources)):
            weight = [0.0 if queues.weightless[q] else float(queues.weight[q, r]) for q in rows]
            least = [int(queues.guarantee[q, r]) for q in rows]
            most = [None if queues.limit[q, r] == UNLIMITED else int(queues.limit[q, r]) for q in rows]
            if demand is not None:
                asked = [demand[q][r] for q in rows]
                most = [a if high is None else min(a, high) for a, high in zip(asked, most, strict=True)]
            for q, share in zip(rows, divide(shares[parent][r], weight, least, most), strict=True):
                shares[q][r] = share
    return shares


def _rounded_down(shares: Shares, resources: int) -> I64:
    return np.array([[floor(share) for share in row] for row in shares], np.int64).reshape(len(shares), resources)
