"""The baselines that have no queues: `fifo-strict`, one line that nobody passes, and `easy`, the same with EASY backfill.

What they do is in `kernel/in_line.pyx`. `easy` knows how long each task takes; `easy:F` goes by time limits that
are F times as long, as people's estimates are in the literature, and looks again when a task ends before its limit.
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
class InLine:
    """Which of the two it is.

    backfill : whether others may start before the first, where that does not delay it
    longer : how many times as long as a task takes its limit is
    """

    backfill: bool
    longer: float = 1.0


IN_LINE = ("fifo-strict", "easy")
"""The names of these baselines."""


def in_line(policy: str) -> InLine | None:
    """The baseline that is named so, if it is one.

    Raises
    ------
    PolicyError
        What is written behind `easy:` is no factor; or something is behind `fifo-strict`.
    """
    name, _, factor = policy.partition(":")
    if name == "fifo-strict":
        if ":" in policy:
            raise PolicyError(f"{policy!r}: fifo-strict is written fifo-strict")
        return InLine(backfill=False)
    if name != "easy":
        return None
    try:
        longer = float(plain_number(factor)) if ":" in policy else 1.0
        if not 1.0 <= longer < np.inf:
            raise ValueError
    except ValueError:
        raise PolicyError(
            f"{policy}: {factor!r} is not how many times as long as a task its limit is: write easy, or easy:2"
        ) from None
    return InLine(True, longer)


def refuse_bounds(workload: Workload, policy: str) -> None:
    """Refuse a queue tree with guarantees or limits under a policy that knows of none."""
    if any(q.guarantee or q.limit or q.guarantee_percent or q.limit_percent for q in workload.queues):
        raise PolicyError(f"{policy}: cannot guarantee or limit quantities: remove them from the queues")


def too_large_gangs(workload: Workload) -> Bools:
    """Of each job, whether it is a gang for which all machines together have no room, even empty."""
    allowed, resources = _allowed(workload), workload.resources
    capacity = np.array([[node.capacity.get(r, 0) for r in resources] for node in workload.nodes], np.int64)
    most = np.full(len(workload.demands), np.iinfo(np.int64).max)
    for k in np.unique(workload.shape[workload.gang]):
        demand = np.array([workload.demands[k].get(r, 0) for r in resources], np.int64)
        most[k] = tasks_that_fit(capacity[allowed[k]], demand)
    found: Bools = workload.gang & (workload.tasks > most[workload.shape])
    return found


def _allowed(workload: Workload) -> Bools:
    """Of each shape, and each node, whether its tasks may run there: shape (shapes, nodes)."""
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
    baseline: InLine,
    comes: Bools,
    look: Callable[[float], float],
) -> tuple[int, int, F64]:
    """Run a workload in one line.

    Parameters
    ----------
    workload : Workload
    cluster : SimulatedCluster
        Of the same jobs and nodes, all of which are there.
    baseline : InLine
    comes : bool, shape (jobs,)
        Whether a job is run at all; one that no machine holds would stop all others.
    look : function
        Called with the next moment at which something happens before it does, and says when it is to be called again.

    Returns
    -------
    decisions, steps : int
        Tasks that were started, and moments.
    idled : float64, shape (resources,)
        Base units times seconds that lay free for whoever was first.
    """
    truth = cluster.truth
    most = min(int(workload.tasks[comes].sum()), most_at_once(truth.demand[comes], truth.capacity.sum(axis=0)))
    cluster.make_room(most)
    line = _line(workload, comes, most)
    until = look(-np.inf)
    while advance(truth, cluster.runs, line, until, baseline.backfill, baseline.longer):
        cluster.now = float(line.at[kernel.NOW])
        until = look(float(line.at[kernel.NEXT]))
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
