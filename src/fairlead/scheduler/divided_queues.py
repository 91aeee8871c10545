"""What queues should have by a policy that only divides: CEEI, the most tasks, or one of a user's own.

Such a policy has no key for whole tasks. So what the children of its queue run and wait for is divided as a problem, as if each
were a user, and whoever is furthest below the dominant share that it would have so is served first. A framework that wants offers
does not say how much: it counts as if it wanted all that there is, in hundredths.
"""

import logging
from functools import cache, lru_cache

import numpy as np

from fairlead.model.problems import Problem
from fairlead.policies.codes import DIVIDED
from fairlead.policies.contract import DividingPolicy, PolicyError
from fairlead.policies.drf import dominant_share
from fairlead.policies.registry import find_policy
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import F64, I64, NONE, UNLIMITED, Bools
from fairlead.scheduler.view import DIVIDED_SOMEWHERE

log = logging.getLogger(__name__)

HUNDREDTHS = 100


def write_entitled(state: State, strict: bool = False) -> None:
    """Write the dominant share that each queue should have, where siblings share by a division, into the state's order.

    Notes
    -----
    A policy that fails (it may be anybody's) is logged, once for each thing that it says, and its queues share as under drf;
    or, where that is asked for, it is a PolicyError.
    """
    if not state.order.counts[DIVIDED_SOMEWHERE]:
        return
    found = state.order.queues.entitled
    found[:] = 1.0
    queues = state.queues
    wanted, tasks = wanted_by(state)
    _add_frameworks(state, wanted, tasks)
    for q in np.flatnonzero(queues.policy[: queues.n] == DIVIDED):
        rows = np.flatnonzero((queues.parent[: queues.n] == q) & (tasks > 0))
        if len(rows):
            name = state.policy_of(int(q))
            try:
                found[rows] = _parts(state, name, rows, wanted, tasks)
            except Exception as error:
                if strict:
                    raise PolicyError(f"policy {name} fails: {type(error).__name__}: {error}") from error
                _tell(name, state.called(state.tree.names[q]), f"{type(error).__name__}: {error}")
                found[rows] = 1.0


def _parts(state: State, policy: str, rows: I64, wanted: F64, tasks: I64) -> list[float]:
    """The dominant shares that queues should have by a policy."""
    weight = state.queues.weight
    division = _policy(policy).divide(problem_of(state, rows, wanted, tasks, weight[rows]))
    mine = (wanted[rows] / tasks[rows, None]) * np.asarray(division.tasks, np.float64)[:, None]
    total = state.cluster.total
    return [dominant_share(amounts, total, weight[row]) for amounts, row in zip(mine, rows, strict=True)]


@cache
def _policy(name: str) -> DividingPolicy:
    return find_policy(name)


@lru_cache(maxsize=1000)
def _tell(policy: str, queue: str, what: str) -> None:
    log.error("policy %s of queue %r fails: its queues share as under drf: %s", policy, queue, what)


def wanted_by(state: State, but: Bools | None = None) -> tuple[F64, I64]:
    """What the tasks that run or wait need in each queue, and how many there are; `but` for the waiting of some of the jobs."""
    queues, jobs = state.queues, state.jobs
    wanted = queues.used[: queues.n].astype(np.float64)
    tasks = queues.tasks[: queues.n].copy()
    waiting = jobs.bucket[: jobs.n] != NONE
    waits = np.flatnonzero(waiting if but is None else waiting & ~but)
    count, leaf = jobs.startable(waits), jobs.queue[waits].copy()
    amounts = state.shapes.demand[jobs.shape_row[waits]] * count[:, None]
    while (there := leaf != NONE).any():
        np.add.at(wanted, leaf[there], amounts[there])
        np.add.at(tasks, leaf[there], count[there])
        leaf[there] = queues.parent[leaf[there]]
    return wanted, tasks


def _add_frameworks(state: State, wanted: F64, tasks: I64) -> None:
    """Add what frameworks that want offers are taken to want, to their leaves and all above."""
    b = state.buckets
    for leaf in b.leaf[: b.n][b.wants[: b.n]].tolist():
        for q in up_to_root(state.queues, leaf):
            wanted[q] += state.cluster.total
            tasks[q] += HUNDREDTHS


def problem_of(state: State, rows: I64, wanted: F64, tasks: I64, weight: F64) -> Problem:
    """Queues as users, whose task is the mean of what they run and wait for (see :func:`wanted_by`)."""
    queues = state.queues
    limit = queues.limit[rows].astype(np.float64)
    limit[queues.limit[rows] == UNLIMITED] = -1
    return Problem.from_arrays(
        state.cluster.total,
        wanted[rows] / tasks[rows, None],
        tasks=tasks[rows],
        weight=weight,
        guarantee=queues.guarantee[rows],
        limit=limit,
        users=[state.called(state.tree.names[row]) for row in rows],
        resources=state.resources,
        nodes=max(1, int(state.nodes.up[: state.nodes.n].sum())),
    )
