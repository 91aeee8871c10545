"""What queues should have by a policy that only divides: CEEI, the most tasks, or one of a user's own.

Such a policy has no key for whole tasks. So what the children of its queue run and wait for is divided as a problem, as if each
were a user, and whoever is furthest below the dominant share that it would have so is served first.
"""

import logging
from functools import cache, lru_cache

import numpy as np

from fairlead.model.problems import Problem
from fairlead.model.specs import written
from fairlead.policies import DIVIDED
from fairlead.policies.contract import DividingPolicy, PolicyError
from fairlead.policies.drf import dominant_share
from fairlead.policies.registry import find_policy
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import F64, I64, NONE, UNLIMITED

log = logging.getLogger(__name__)


def entitled(state: State, strict: bool = False) -> F64:
    """The dominant share that each queue should have; 1 where its siblings do not share by a division.

    Notes
    -----
    A policy that fails (it may be anybody's) is logged, once for each thing that it says, and its queues share as under drf;
    or, where that is asked for, it is a PolicyError.
    """
    queues = state.queues
    found = np.ones(queues.n)
    divided = queues.policy[: queues.n] == DIVIDED
    if not divided.any():
        return found
    wanted, tasks = wanted_by(state)
    for q in np.flatnonzero(divided):
        rows = np.flatnonzero((queues.parent[: queues.n] == q) & (tasks > 0))
        if not len(rows):
            continue
        name = state.policy_of(int(q))
        try:
            division = _policy(name).divide(problem_of(state, rows, wanted, tasks, state.queues.weight[rows]))
            mine = (wanted[rows] / tasks[rows, None]) * np.asarray(division.tasks, np.float64)[:, None]
            found[rows] = [
                dominant_share(amounts, state.total, queues.weight[row])
                for amounts, row in zip(mine, rows, strict=True)
            ]
        except Exception as error:
            if strict:
                raise PolicyError(f"policy {name} fails: {type(error).__name__}: {error}") from error
            _tell(name, state.queue_names[q], f"{type(error).__name__}: {error}")
            found[rows] = 1.0
    return found


@cache
def _policy(name: str) -> DividingPolicy:
    return find_policy(name)


@lru_cache(maxsize=1000)
def _tell(policy: str, queue: str, what: str) -> None:
    log.error("policy %s of queue %r fails: its queues share as under drf: %s", policy, queue, what)


def wanted_by(state: State) -> tuple[F64, I64]:
    """What the tasks that run or wait need in each queue, and how many there are."""
    queues, jobs = state.queues, state.jobs
    wanted = queues.used[: queues.n].astype(np.float64)
    tasks = queues.tasks[: queues.n].copy()
    waits = np.flatnonzero(jobs.bucket[: jobs.n] != NONE)
    count, leaf = jobs.waiting[waits], jobs.queue[waits].copy()
    amounts = state.shapes.demand[jobs.shape[waits]] * count[:, None]
    while (there := leaf != NONE).any():
        np.add.at(wanted, leaf[there], amounts[there])
        np.add.at(tasks, leaf[there], count[there])
        leaf[there] = queues.parent[leaf[there]]
    return wanted, tasks


def problem_of(state: State, rows: I64, wanted: F64, tasks: I64, weight: F64) -> Problem:
    """Queues as users, whose task is the mean of what they run and wait for (see :func:`wanted_by`)."""
    queues = state.queues
    limit = queues.limit[rows].astype(np.float64)
    limit[queues.limit[rows] == UNLIMITED] = -1
    return Problem.from_arrays(
        state.total,
        wanted[rows] / tasks[rows, None],
        tasks=tasks[rows],
        weight=weight,
        guarantee=queues.guarantee[rows],
        limit=limit,
        users=[written(state.queue_names[row]) for row in rows],
        resources=state.resources,
        nodes=max(1, int(state.nodes.up[: state.nodes.n].sum())),
    )
