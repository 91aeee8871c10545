"""Baselines without queues: `fifo-strict`, one line in strict order, and `easy`, the same with EASY backfill.

The algorithm is in `kernel/in_line.pyx`. `easy` knows the duration of each task. `easy:F` uses time limits of F times the
duration, as user estimates in the literature, and replans when a task ends before its limit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairlead.engines.simulated import SimulatedCluster
from fairlead.model.quantity import plain_number
from fairlead.policies.contract import PolicyError
from fairlead.scheduler.cluster import tasks_that_fit
from fairlead.scheduler.tables import NONE
from fairlead.simulate.kernel import line as kernel
from fairlead.simulate.kernel.in_line import Line, advance
from fairlead.simulate.workload import F64, I64, Bools, Workload, most_at_once


@dataclass(frozen=True)
class Baseline:
    """A baseline without queues.

    backfill : True if others may start before the first job where that does not delay it
    longer : time limit of a task, as a multiple of its duration
    """

    backfill: bool
    longer: float = 1.0


BASELINES = ("fifo-strict", "easy")


def baseline_of(policy: str) -> Baseline | None:
    """Return the baseline of this name, or None. Raises PolicyError for a wrong suffix."""
    name, _, factor = policy.partition(":")
    if name == "fifo-strict":
        if ":" in policy:
            raise PolicyError(f"{policy!r}: fifo-strict takes no suffix: write fifo-strict")
        return Baseline(backfill=False)
    if name != "easy":
        return None
    try:
        longer = float(plain_number(factor)) if ":" in policy else 1.0
        if not 1.0 <= longer < np.inf:
            raise ValueError
    except ValueError:
        raise PolicyError(
            f"{policy}: {factor!r} is no factor of 1 or more between time limits and durations: write easy, or easy:2"
        ) from None
    return Baseline(True, longer)


def refuse_bounds(workload: Workload, policy: str) -> None:
    """Refuse a queue tree with guarantees or limits under a policy without them."""
    if any(q.guarantee or q.limit or q.guarantee_percent or q.limit_percent for q in workload.queues):
        raise PolicyError(f"{policy}: cannot guarantee or limit quantities: remove them from the queues")


def too_large_gangs(workload: Workload) -> Bools:
    """Mark the gangs that do not fit on all machines together, even empty: shape (jobs,)."""
    allowed, resources = _allowed(workload), workload.resources
    capacity = np.array([[node.capacity.get(r, 0) for r in resources] for node in workload.nodes], np.int64)
    most = np.full(len(workload.demands), np.iinfo(np.int64).max)
    for k in np.unique(workload.shape[workload.gang]):
        demand = np.array([workload.demands[k].get(r, 0) for r in resources], np.int64)
        most[k] = tasks_that_fit(capacity[allowed[k]], demand)
    found: Bools = workload.gang & (workload.tasks > most[workload.shape])
    return found


def _allowed(workload: Workload) -> Bools:
    """Mark the nodes whose labels match, for each shape: shape (shapes, nodes)."""
    found: Bools = np.array(
        [
            [all(node.labels.get(label) in values for label, values in on.items()) for node in workload.nodes]
            for on in workload.places
        ]
    )
    return found


def by_line(
    workload: Workload,
    cluster: SimulatedCluster,
    baseline: Baseline,
    comes: Bools,
    sample: Callable[[float], float],
) -> tuple[int, int, F64]:
    """Run a workload as one line of jobs.

    Parameters
    ----------
    workload : Workload
    cluster : SimulatedCluster
        With the same jobs and nodes; all nodes are up.
    baseline : Baseline
    comes : bool, shape (jobs,)
        Jobs to run; one that fits no machine would block all others.
    sample : function
        Called before the next event with its time; returns the time of its next call.

    Returns
    -------
    decisions, steps : int
        Tasks started, and moments.
    idled : float64, shape (resources,)
        Free resources kept for the first job, base units times seconds.
    """
    truth = cluster.truth
    most = min(int(workload.tasks[comes].sum()), most_at_once(truth.demand[comes], truth.capacity.sum(axis=0)))
    cluster.make_room(most)
    line = _line(workload, comes, most)
    until = sample(-np.inf)
    while advance(truth, cluster.runs, line, until, baseline.backfill, baseline.longer):
        cluster.now = float(line.at[kernel.NOW])
        until = sample(float(line.at[kernel.NEXT]))
    cluster.now = float(line.at[kernel.NOW])
    return int(line.numbers[kernel.DECISIONS]), int(line.numbers[kernel.STEPS]), line.idled


def _line(workload: Workload, comes: Bools, most: int) -> Line:
    jobs, nodes, resources = len(workload.submit), len(workload.nodes), len(workload.resources)
    largest = int(np.where(workload.gang, workload.tasks, 1).max())

    def numbers(*shape: int) -> I64:
        return np.zeros(shape, np.int64)

    found = Line(
        submit=workload.submit, comes=comes, tasks=workload.tasks, shape=workload.shape, allowed=_allowed(workload),
        gang=workload.gang, left=numbers(jobs), after=np.full(jobs, NONE), node=numbers(largest), one=numbers(3, largest),
        ends=numbers(5, most), spare=numbers(nodes, resources), kept=np.zeros(nodes, np.bool_),
        at=np.zeros(3), idled=np.zeros(resources), tried=numbers(len(workload.demands)), numbers=numbers(kernel.NUMBERS),
    )  # fmt: skip
    found.numbers[[kernel.HEAD, kernel.TAIL]] = NONE
    return found
