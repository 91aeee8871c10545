"""What each leaf queue is entitled to at a moment, and what it has: DRF over all that runs and could run.

One definition for the audit over time, live and simulated, under any policy. Each leaf queue with work is a user. Its task is the
mean of what it runs and waits for, and it can use as many as it has. The cluster is divided down the tree by least weighted
dominant share, within guarantees and limits (including max_tasks). Jobs that fit on no node, even an empty one, do not count.
"""

import logging
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import ArrayLike

from fairlead.model.problems import Problem
from fairlead.model.specs import ROOT
from fairlead.policies import drf
from fairlead.policies.codes import DIVIDED
from fairlead.policies.contract import PolicyError
from fairlead.policies.registry import find_policy
from fairlead.scheduler.feasibility import never_starting
from fairlead.scheduler.kernel.scheduling import Tree, add_waiting, fill_tree
from fairlead.scheduler.kernel.view import DIVIDED_SOMEWHERE
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import F64, I64, NONE, UNLIMITED, Bools, with_all_above

FLAT_FROM_LEAVES = 200
"""Leaves directly below the root from which on an unbounded division ignores the tree: the same result, faster."""


@dataclass(frozen=True)
class Parts:
    """The leaf queues that have work, a row each, and what they are entitled to.

    queues : int64, shape (leaves,): rows of the state's queues
    waiting : int64, shape (leaves,): waiting tasks that fit on some empty node
    entitled, has : float64, shape (leaves,): unweighted dominant shares of the cluster; `entitled` is at most what the leaf
        runs and waits for
    resource : int64, shape (leaves,): the dominant resource of `entitled`
    amounts : float64, shape (leaves, resources): what the leaf is entitled to, by resource
    """

    queues: I64
    waiting: I64
    entitled: F64
    has: F64
    resource: I64
    amounts: F64


def parts_of(state: State, frameworks: bool = False, only_lent: bool = False) -> Parts:
    """Divide the cluster among the leaf queues that have work, with what `frameworks` that want offers are taken to want.

    only_lent : True to leave out idle quota that others do not lend, see :func:`most_now`
    """
    n, total = state.queues.n, state.cluster.total.astype(np.float64)
    waiting, waits = _waiting_demand(state)
    if frameworks:
        wants = state.groups.leaf[: state.groups.n][state.groups.is_framework[: state.groups.n]]
        waiting[wants] += FRAMEWORK_TASKS
        waits[wants] += total
    used, running = state.queues.used[:n].astype(np.float64), state.queues.tasks[:n]
    is_leaf = np.ones(n, np.bool_)
    is_leaf[state.queues.parent[1:n]] = False
    leaves = np.flatnonzero(is_leaf & (running + waiting > 0))
    count = (running + waiting)[leaves]
    each = (used[leaves] + waits[leaves]) / count[:, None]
    tasks = TreeDivision(
        total, state.queues.parent[:n], state.queues.weight[:n], state.queues.guarantee[:n],
        most_now(state) if only_lent else bounds(state.queues.limit[:n]), bounds(state.queues.max_tasks[:n]), leaves,
    ).divide(each, count)  # fmt: skip
    size = np.where(total > 0, total, 1)
    shares = each * tasks[:, None] / size
    resource = shares.argmax(axis=1) if len(total) else np.zeros(len(leaves), np.int64)
    has = (used[leaves] / size).max(axis=1, initial=0.0)
    return Parts(leaves, waiting[leaves], shares.max(axis=1, initial=0.0), has, resource, each * tasks[:, None])


def _waiting_demand(state: State) -> tuple[I64, F64]:
    """Return, per queue, its own waiting tasks that fit on some node, and their total demand."""
    jobs = state.jobs
    rows = np.flatnonzero((jobs.group[: jobs.n] != NONE) & ~never_starting(state))
    n, leaf, count = state.queues.n, jobs.queue[rows], jobs.startable(rows)
    demand = state.shapes.demand[jobs.shape_row[rows]] * count[:, None].astype(np.float64)
    waits = np.zeros((n, demand.shape[1]))
    for r in range(demand.shape[1]):
        waits[:, r] = np.bincount(leaf, demand[:, r], n)
    return np.bincount(leaf, count, n).astype(np.int64), waits


def most_now(state: State) -> F64:
    """Return the most that each queue may use now, by its limit and beside idle quota that others do not lend; inf for none."""
    queues, n = state.queues, state.queues.n
    limit = bounds(queues.limit[:n])
    if not queues.has_nonlendable[0]:
        return limit
    kept = np.zeros((n, len(state.resources)), np.int64)
    for q in range(1, n):  # parents come first
        p = queues.parent[q]
        kept[q] = kept[p] + queues.idle_nonlendable_below[p] - queues.idle_nonlendable[q]
    return np.minimum(limit, np.where(kept > 0, state.cluster.total - kept, np.inf))


def bounds(limits: I64) -> F64:
    """Return limits as floats, inf for none."""
    return np.where(limits == UNLIMITED, np.inf, limits)


class TreeDivision:
    """Divides capacity among leaves of a tree by DRF: prepared once, for any number of demands.

    See :mod:`fairlead.scheduler.kernel`.

    capacity : shape (resources,)
    parent : int64, shape (queues,): rows, parents before children; the root is the first, its parent NONE
    weight, guarantee, limit : shape (queues, resources)
    max_tasks : shape (queues,): inf for none, as in `limit`
    leaves : int64, shape (leaves,): rows of the leaves that take part
    """

    def __init__(
        self, capacity: F64, parent: I64, weight: F64, guarantee: ArrayLike, limit: F64, max_tasks: F64, leaves: I64
    ) -> None:  # fmt: skip
        plain = not np.asarray(guarantee).any() and np.isinf(limit).all() and np.isinf(max_tasks).all()
        flat = len(leaves) >= FLAT_FROM_LEAVES and plain and not parent[leaves].any()
        self._capacity, self._flat_weight = capacity, weight[leaves] if flat else None
        if flat:
            return
        chosen = np.zeros(len(parent), np.bool_)
        chosen[0] = chosen[leaves] = True
        chosen = with_all_above(chosen, parent)
        rows, place = np.flatnonzero(chosen), np.cumsum(chosen) - 1  # and where each queue is among these
        n, m = len(rows), len(capacity)
        queues = np.zeros(n, Tree.ARRAYS["queues"][0])
        queues["parent"] = np.where(parent[rows] == NONE, NONE, place[parent[rows]])
        children = np.argsort(queues["parent"], kind="stable")
        queues["first"] = np.searchsorted(queues["parent"][children], np.arange(n))
        queues["last"] = np.searchsorted(queues["parent"][children], np.arange(n), side="right")

        def wide(fill: float, values: ArrayLike, for_tasks: ArrayLike) -> F64:
            """Add a column for the number of tasks, which is bounded like a resource but has no share."""
            found = np.full((n, m + 1), fill)
            found[:, :m], found[:, m] = values, for_tasks
            return found

        bound = wide(np.inf, limit[rows], max_tasks[rows])
        bound[0, :m] = np.minimum(bound[0, :m], capacity)
        self._place, self._queues = place[leaves], queues
        self._tree = Tree(
            queues=queues.copy(), demand=np.zeros((n, m + 1)), weight=wide(1.0, weight[rows], 1.0),
            guarantee=wide(0.0, np.asarray(guarantee)[rows], 0.0), bound=bound, used=np.zeros((n, m + 1)),
            growth=np.zeros((n, m + 1)), needs=np.zeros((n, m + 1), np.int64), capacity=np.append(capacity, np.inf),
            children=children,
        )  # fmt: skip

    def divide(self, demand: F64, most: ArrayLike) -> F64:
        """Return the tasks of each leaf.

        demand, most : shape (leaves, resources), (leaves,): demand of one task, and how many tasks each leaf can use
        """
        if self._flat_weight is not None:
            problem = Problem.from_arrays(self._capacity, demand, tasks=most, weight=self._flat_weight)
            return drf.POLICY.divide(problem).tasks
        tree, place = self._tree, self._place
        tree.queues[:] = self._queues
        tree.queues["most"][place] = most
        tree.demand[place, :-1], tree.demand[place, -1] = demand, demand.any(axis=1)
        tree.used[:] = tree.growth[:] = tree.needs[:] = 0
        if not fill_tree(tree):
            raise AssertionError("the division of the tree did not terminate")
        return tree.queues["tasks"][place]


log = logging.getLogger(__name__)

FRAMEWORK_TASKS = 100
"""Tasks that a framework that wants offers is taken to divide the whole cluster into."""


def write_entitled(state: State, strict: bool = False) -> None:
    """Write what each queue is entitled to into the state's order, as a dominant share, where siblings share by a division.

    A failing policy is logged, once per message, and its queues share as under drf; with `strict` it raises PolicyError.
    """
    if not state.order.counts[DIVIDED_SOMEWHERE]:
        return
    found, queues = state.order.queues.entitled, state.queues
    wanted, tasks = wanted_by(state)
    _add_frameworks(state, wanted, tasks)
    np.maximum(tasks, wanted.any(axis=1), out=tasks)  # what is only offered or reserved is as of one task
    asked = wanted.tobytes() + tasks.tobytes()
    if asked == state.order.divided:  # a placement moves demand from what waits to what runs
        return
    found[:] = 1.0
    for q in np.flatnonzero(queues.policy[: queues.n] == DIVIDED):
        rows = np.flatnonzero((queues.parent[: queues.n] == q) & wanted.any(axis=1))
        if len(rows):
            name = state.tree.policy_of(state.tree.names[q])
            try:
                found[rows] = _parts(state, name, rows, wanted, tasks)
            except Exception as error:
                if strict:
                    raise PolicyError(f"policy {name} fails: {type(error).__name__}: {error}") from error
                _log_failure(name, state.display_name(state.tree.names[q]), f"{type(error).__name__}: {error}")
                found[rows] = 1.0
    state.order.divided = asked


def _parts(state: State, policy: str, rows: I64, wanted: F64, tasks: I64) -> F64:
    """Return the dominant shares that a policy gives queues."""
    weight, total = state.queues.weight[rows], state.cluster.total
    division = _policy(policy).divide(problem_of(state, rows, wanted, tasks, weight))
    mine = (wanted[rows] / tasks[rows, None]) * np.asarray(division.tasks, np.float64)[:, None]
    there = total > 0
    return (mine[:, there] / total[there] / weight[:, there]).max(axis=1, initial=0.0)


_policy = cache(find_policy)


@lru_cache(maxsize=1000)
def _log_failure(policy: str, queue: str, what: str) -> None:
    log.error("policy %s of queue %r fails; its queues share as under drf: %s", policy, queue, what)


def wanted_by(state: State, but: Bools | None = None) -> tuple[F64, I64]:
    """Return, per queue, the total demand and number of tasks that run or wait; `but` excludes waiting tasks of some jobs."""
    n = state.queues.n
    wanted, tasks = state.queues.used[:n].astype(np.float64), state.queues.tasks[:n].copy()
    add_waiting(state.view(), np.zeros(0, np.bool_) if but is None else but, wanted, tasks)
    return wanted, tasks


def _add_frameworks(state: State, wanted: F64, tasks: I64) -> None:
    """Add the assumed demand of frameworks that want offers to their leaves and all queues above."""
    b = state.groups
    for leaf in b.leaf[: b.n][b.is_framework[: b.n]].tolist():
        for q in up_to_root(state.queues, leaf):
            wanted[q] += state.cluster.total
            tasks[q] += FRAMEWORK_TASKS


def problem_of(state: State, rows: I64, wanted: F64, tasks: I64, weight: F64) -> Problem:
    """Return queues, each with some demand, as users whose task is the mean of what they run and wait for."""
    queues = state.queues
    return Problem(  # the tables' numbers need no checks
        resources=tuple(state.resources),
        users=[state.tree.names[row] for row in rows.tolist()],
        capacity=state.cluster.total.astype(np.float64),
        demand=wanted[rows] / tasks[rows, None],
        tasks=tasks[rows].astype(np.float64),
        weight=weight,
        guarantee=queues.guarantee[rows].astype(np.float64),
        limit=np.where(queues.limit[rows] == UNLIMITED, -1.0, queues.limit[rows]),
        priority=np.zeros(len(rows), np.int64),
        queues=[ROOT] * len(rows),
        nodes=max(1, int(state.nodes.up[: state.nodes.n].sum())),
    )
