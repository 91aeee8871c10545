"""Baselines without queues: all jobs in one line, and who may start before the first of it.

`fifo-strict`: nobody. `easy`: EASY backfilling. `conservative`: each job has a reservation. The rules are in
`kernel/in_line.pyx`. Backfilling goes by time limits:

- ``easy``, ``easy:true``: the durations;
- ``easy:F``: F times the durations, as user estimates in the literature;
- ``easy:requested``: those that the jobs declare; without one, a job is taken to run without end.

``easy:POLICY``, such as ``easy:drf``, is no line: the scheduler serves its queues in the order of that policy, with EASY's rule
and its own forecasts in place of reservations (`scheduler/kernel/easy.pxi`), and nothing is preempted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fairlead.engines.simulated import SimulatedCluster
from fairlead.model.quantity import plain_number
from fairlead.policies.contract import PolicyError
from fairlead.policies.registry import find_policy
from fairlead.scheduler.cluster import meets, tasks_that_fit
from fairlead.simulate.kernel import line as kernel
from fairlead.simulate.kernel.in_line import Line, advance
from fairlead.simulate.workload import F64, I64, Bools, Once, Workload, most_at_once

MOST_BYTES = 2**31
"""Bytes for the steps of reservations, at most."""


class Baseline(NamedTuple):
    """A baseline without queues."""

    rule: int
    """STRICT, EASY or CONSERVATIVE."""
    longer: float = 1.0
    """Time limit of a task, as a multiple of its duration; NaN for the one that its job declares."""


RULES = {"fifo-strict": kernel.STRICT, "easy": kernel.EASY, "conservative": kernel.CONSERVATIVE}
BASELINES = tuple(RULES)
LIMITS = {"": 1.0, "true": 1.0, "requested": np.nan}


def order_of(policy: str) -> str:
    """Return the policy in whose order EASY's rule is applied; empty if the name is no such baseline."""
    name, _, order = policy.partition(":")
    try:
        found = find_policy(order) if name == "easy" and order else None
    except PolicyError:
        return ""
    return order if found is not None else ""


def baseline_of(policy: str) -> Baseline | None:
    """Return the baseline without queues of this name, or None. Raises PolicyError for a wrong suffix."""
    name, colon, suffix = policy.partition(":")
    if name not in RULES or order_of(policy):
        return None
    if not colon:
        return Baseline(RULES[name])
    if name == "fifo-strict":
        raise PolicyError(f"{policy!r}: fifo-strict takes no suffix: write fifo-strict")
    try:
        longer = LIMITS[suffix] if suffix in LIMITS and suffix else float(plain_number(suffix))
    except ValueError:
        longer = 0.0
    if longer < 1.0 or longer == np.inf:
        raise PolicyError(
            f"{policy}: {suffix!r} is neither true, requested nor a factor of 1 or more between time limits and durations"
            f"{', nor a policy' * (name == 'easy')}: write {name}, {name}:requested or {name}:2"
        )
    return Baseline(RULES[name], longer)


def limits_of(workload: Workload, baseline: Baseline) -> F64:
    """Return the time limit of each task, indexed as durations; those of a gang are the longest of its tasks'."""
    lengths = np.where(workload.varied == 1, workload.tasks, 1)
    limits: F64 = baseline.longer * workload.duration
    if np.isnan(baseline.longer):
        limits = np.maximum(workload.duration, np.repeat(workload.time_limit, lengths))
    return np.where(np.repeat(workload.gang, lengths), np.repeat(np.maximum.reduceat(limits, workload.first), lengths), limits)


def notes_on(workload: Workload, policy: str, baseline: Baseline) -> list[str]:
    """Return notes on the choices of a baseline. Raises PolicyError for a workload that it cannot run."""
    refuse_bounds(workload, policy)
    notes = [f"{policy}: all jobs are in one line; queues and priorities do not count"]
    without = int(np.isinf(workload.time_limit).sum()) if np.isnan(baseline.longer) else 0
    if without == len(workload.submit):
        name = policy.partition(":")[0]
        raise PolicyError(f"{policy}: no job of {workload.name} has a time limit: write {name}, or {name}:2")
    if without:
        notes.append(f"{policy}: {without:,} jobs have no time limit: they are taken to run without end")
    return notes


def refuse_bounds(workload: Workload, policy: str) -> None:
    """Refuse a queue tree with guarantees or limits under a policy without them."""
    if any(q.guarantee or q.limit or q.guarantee_percent or q.limit_percent for q in workload.queues):
        raise PolicyError(f"{policy}: cannot guarantee or limit quantities: remove them from the queues")


def held_when_empty(workload: Workload) -> I64:
    """Return how many tasks of each shape all machines hold together, shape (shapes,)."""
    held = zip(_allowed(workload), workload.needs, strict=True)
    return np.array([tasks_that_fit(workload.capacity[nodes], need) for nodes, need in held], np.int64)


def _allowed(workload: Workload) -> Bools:
    """Mark the nodes whose labels match, for each shape: shape (shapes, nodes)."""
    kinds = Once(lambda _: len(kinds))
    kind = kinds.column(tuple(node.labels.items()) for node in workload.nodes)
    places = [tuple((label, tuple(any_of)) for label, any_of in on.items()) for on in workload.places]
    found = np.array([[meets(dict(labels), on) for labels in kinds] for on in places], np.bool_)
    return np.ascontiguousarray(found.reshape(len(places), len(kinds))[:, kind])


def slots_of(room: I64, need: I64, allowed: Bools) -> I64 | None:
    """Return how many tasks each node holds, shape (nodes,), if that is the same for any tasks; else None.

    `room` and `need` have a column per resource, `allowed` one per node, and a row per node or shape.
    """
    least, most = need.min(axis=0), need.max(axis=0)
    if not least.any() or (allowed != allowed[0]).any():
        return None
    slots: I64 = (room[:, least > 0] // least[least > 0]).min(axis=1)
    any_fit: Bools = (slots[:, None] * most <= room).all(axis=1)
    return slots * allowed[0] if any_fit[allowed[0]].all() else None


def by_line(
    workload: Workload, cluster: SimulatedCluster, baseline: Baseline, comes: Bools, sample: Callable[[float], float],
    since: float,
) -> dict[str, Any]:  # fmt: skip
    """Run a workload as one line of jobs; return the decisions, steps, and resources that idled from `since` on.

    `cluster` has the same jobs and nodes, all up; `comes` marks the jobs to run, since one that fits nowhere would block all
    others. `sample` is called before each event with its time, and returns the time of its next call. Raises PolicyError for more
    reservations than there is memory for.
    """
    truth = cluster.truth
    most = min(int(workload.tasks[comes].sum()), most_at_once(truth.demand[comes], truth.capacity.sum(axis=0)))
    cluster.make_room(most)
    line = _line(workload, cluster, baseline, comes, most)
    line.at[kernel.SINCE] = since
    until = sample(-np.inf)
    while advance(truth, cluster.runs, line, until, baseline.rule):
        if line.numbers[kernel.FULL]:
            raise PolicyError(
                f"{workload.name}: conservative: more than {len(line.steps) // 2:,} tasks and gangs wait or run at once, "
                "and each has a reservation: use easy, fewer nodes or a part of the trace"
            )
        cluster.now = float(line.at[kernel.NOW])
        until = sample(float(line.at[kernel.NEXT]))
    cluster.now = float(line.at[kernel.NOW])
    decisions, steps = line.numbers[[kernel.DECISIONS, kernel.STEPS]].tolist()
    return {"decisions": decisions, "steps": steps, "idled": line.idled}


def _line(workload: Workload, cluster: SimulatedCluster, baseline: Baseline, comes: Bools, most: int) -> Line:
    truth, jobs = cluster.truth, len(workload.submit)
    need = workload.needs
    room, allowed, shape = truth.capacity.copy(), _allowed(workload), workload.shape
    used = np.unique(shape[comes])
    slots = slots_of(room, need[used], allowed[used]) if len(used) else None
    if slots is not None:
        room, need, allowed = slots[:, None].copy(), np.ones((1, 1), np.int64), allowed[used[:1]]
        shape = np.zeros(jobs, np.int64)
    limit = limits_of(workload, baseline)
    units = np.where(workload.gang, workload.tasks, 1)
    kinds, kind = np.unique(np.stack([shape, units]), axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    job = np.argsort(kind, kind="stable")
    wide = 1 if slots is not None else room.size
    tasks = int(workload.tasks.sum()) if baseline.rule == kernel.CONSERVATIVE else 0
    leaves = {kernel.STRICT: 0, kernel.EASY: jobs, kernel.CONSERVATIVE: tasks}[baseline.rule]
    steps = min(2 * tasks + 4, max(4, MOST_BYTES // (8 * wide + 8)))

    def numbers(*shape: int) -> I64:
        return np.zeros(shape, np.int64)

    found = Line(
        submit=workload.submit, comes=comes, tasks=workload.tasks, shape=shape, allowed=allowed, gang=workload.gang,
        limit=limit, need=need, room=room, total=room.sum(axis=0), left=numbers(jobs),
        node=numbers(int(units.max())), one=numbers(3, int(units.max())), ends=numbers(5, most), spare=numbers(*room.shape),
        fits=numbers(len(room)), at=np.zeros(4), idled=np.zeros(len(workload.resources)), kind=kind,
        begin=np.searchsorted(kind[job], np.arange(kinds.shape[1] + 1)), place=np.argsort(job), job=job,
        waits=numbers(kinds.shape[1]), least=np.full(2 << (leaves - 1).bit_length() if leaves else 0, np.inf),
        pinned=numbers(tasks), steps=np.zeros(steps), free=numbers(steps, wide), numbers=numbers(kernel.NUMBERS),
    )  # fmt: skip
    found.steps[0], found.free[0] = -np.inf, room.sum() if slots is not None else room.reshape(-1)
    found.numbers[kernel.USED], found.numbers[kernel.SLOTS] = 1, slots is not None
    found.numbers[kernel.EXACT] = np.array_equal(limit, workload.duration)
    return found
