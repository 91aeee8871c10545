"""Find waiting jobs that can never start as configured. They count neither for shares nor for turns.

A job never starts if the nodes that take tasks could not hold it even when empty, if it needs more at once than a queue above it
may have, if it is behind such a job in a strict leaf, or if it comes after one.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.quantity import format_quantity, round_quantity
from fairlead.model.specs import path_to_root
from fairlead.scheduler.cluster import tasks_that_fit
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.queue_tree import amounts_of
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import APART, I64, NONE, UNLIMITED, Bools


class Bound(NamedTuple):
    """A bound of a queue that one job exceeds by itself.

    kind : ``limit``, ``max tasks`` or ``max jobs``
    text : what exceeds it, and the bound, as text
    more : the values in the text, in base units
    """

    kind: str
    text: str
    more: dict[str, str | int]


def never_starting_groups(state: State) -> Bools:
    """Return, per group, whether its jobs can never start: for lack of nodes, or because of a bound of a queue above."""
    state.order.ready(state, 1)
    b, queues = state.groups, state.queues
    n = b.n
    found: Bools = state.order.groups.hopeless[:n].copy()
    demand, count = state.shapes.demand[b.shape_row[:n]], np.maximum(1, b.gang[:n])
    may_exceed = b.revocable[:n] & state.settings.revoke  # may exceed limits
    q = b.leaf[:n].astype(np.int64)
    while (there := q != NONE).any():
        limit = queues.limit[q]
        over = ((demand > limit // count[:, None]) & (demand > 0) & (limit != UNLIMITED)).any(axis=1) & ~may_exceed
        found |= there & (over | (count > queues.max_tasks[q]) | (queues.max_jobs[q] == 0))
        q = np.where(there, queues.parent[q], NONE)
    return found


def hosts(state: State, shape: int, room: I64, drained: bool = False) -> int:
    """Count the tasks of a shape that fit in this room of all nodes that take them; `room` has shape (nodes, resources).

    With `drained`, nodes that are drained count, too.
    """
    nodes, n = state.nodes, state.nodes.n
    takes = nodes.up[:n] & (drained | ~nodes.draining[:n]) & state.cluster.masks[state.shapes.mask[shape], :n]
    return tasks_that_fit(room[takes], state.shapes.demand[shape], bool(state.shapes.fit[shape] == APART))


def over_bound(state: State, row: int) -> Bound | None:
    """Return the first bound on the path to the root that a job exceeds by itself, if any."""
    jobs = state.jobs
    count = int(jobs.waiting[row]) if jobs.gang[row] else 1
    demand = state.shapes.demand[jobs.shape_row[row]]
    return bound_over(state, state.tree.names[jobs.queue[row]], demand, count, bool(jobs.revocable[row]))


def bound_over(state: State, leaf: str, demand: I64, count: int, revocable: bool) -> Bound | None:
    """Return the first bound that `count` tasks of this demand exceed by themselves; the leaf need not exist yet."""
    gang = f"a gang of {count} tasks" if count > 1 else ""
    for name in path_to_root(leaf):
        spec, queue = state.tree.spec_of(name), state.display_name(name)
        limit = amounts_of(spec.limit, spec.limit_percent, state.resources, state.cluster.total, UNLIMITED)
        for r in np.flatnonzero((demand > limit // count) & (demand > 0) & (limit != UNLIMITED)).tolist():
            if not (revocable and state.settings.revoke):  # else it may exceed limits
                resource, needed = state.resources[r], int(demand[r]) * count
                what = f"{gang or 'a task of it'} needs {round_quantity(resource, needed)} {resource}{' at once' * bool(gang)}"
                text = f"{what}, and queue {queue} is limited to {format_quantity(resource, int(limit[r]))}"
                more: dict[str, str | int] = {"resource": resource, "limit": int(limit[r]), "needed": needed}
                return Bound("limit", text, {"queue": queue, **more})
        if spec.max_tasks is not None and spec.max_tasks < count:
            text = f"{gang}, and queue {queue} may run {spec.max_tasks} at once" if gang else f"queue {queue} may run no tasks"
            return Bound("max tasks", text, {"queue": queue, "limit": spec.max_tasks, "needed": count})
        if spec.max_jobs == 0:
            return Bound("max jobs", f"queue {queue} may run no jobs", {"queue": queue, "limit": 0, "needed": 1})
    return None


def never_starting(state: State) -> Bools:
    """Return, per job, whether it waits in a group and can never start."""
    jobs, n = state.jobs, state.jobs.n
    waits = jobs.group[:n] != NONE
    found: Bools = waits.copy()
    found[waits] = never_starting_groups(state)[jobs.group[:n][waits]]
    for leaf in np.unique(jobs.queue[:n][found & state.queues.strict[jobs.queue[:n]]]).tolist():
        first = first_never_starting(state, leaf, found)
        mine = waits & (jobs.queue[:n] == leaf)
        priority, number = jobs.priority[:n], jobs.id[:n]
        found |= mine & ((priority < priority[first]) | ((priority == priority[first]) & (number > number[first])))
    return found


def first_never_starting(state: State, leaf: int, found: Bools) -> int:
    """Return the row of the first of a leaf's jobs that are in `found`, else NONE."""
    rows = np.flatnonzero(found & (state.jobs.queue[: state.jobs.n] == leaf))
    if not len(rows):
        return NONE
    return int(min(rows.tolist(), key=lambda row: (-state.jobs.priority[row], state.jobs.id[row])))


def blocked_forever_by(state: State, leaf: int, priority: int, number: int) -> int:
    """Return the row of the never-starting job that blocks a job of this priority and number in a strict leaf, else NONE."""
    if not state.queues.strict[leaf]:
        return NONE
    first = first_never_starting(state, leaf, never_starting(state))
    if first == NONE or (-state.jobs.priority[first], state.jobs.id[first]) >= (-priority, number):
        return NONE
    return first


def why_never(state: State, job: int) -> str:
    """Return why a waiting job can never start as configured, to follow "never"; empty if it can.

    Jobs that it comes after count, directly or indirectly.
    """
    to_see = [job]
    for number in to_see:  # grows
        row = state.index.find(number)
        why = _alone(state, row) if row != NONE else ""
        if why:
            return why if number == job else f": it comes after job {number}, which can never start{why}"
        behind = state.dependencies.behind(number, state.index.specs[number])
        to_see += [other for other in behind if other not in to_see]
    return ""


def _alone(state: State, row: int) -> str:
    """Like :func:`why_never`, regardless of dependencies."""
    jobs = state.jobs
    if not jobs.waiting[row]:
        return ""
    state.order.ready(state, 1)
    count = int(jobs.waiting[row]) if jobs.gang[row] else 1
    if not scheduling.could_ever_hold(state.view(), int(jobs.shape_row[row]), count):
        apart = " on nodes of their own" * bool(state.shapes.fit[jobs.shape_row[row]] == APART)
        what = f"all {count} tasks at once{apart}" if count > 1 else "a task of it"
        return f" on the nodes that take tasks now: they could not hold {what}, even empty"
    bound = over_bound(state, row)
    if bound is not None:
        return f": {bound.text}"
    leaf = int(jobs.queue[row])
    first = blocked_forever_by(state, leaf, int(jobs.priority[row]), int(jobs.id[row]))
    if first == NONE:
        return ""
    name, bound = state.display_name(state.tree.names[leaf]), over_bound(state, first)
    ahead = f"job {jobs.id[first]}"
    why = (
        f"the nodes that take tasks could not hold {ahead}, even empty"
        if bound is None
        else f"{ahead} can never start ({bound.text})"
    )
    return f" while {ahead} is ahead in the strict queue {name}: {why}"
