"""Run a workload through the state machine that runs live, with a virtual clock.

One step is one moment at which something happens: tasks end, jobs are submitted, and then the scheduler decides, as often as it
has more to decide. The facts are the live scheduler's; only the engine and the clock are others.

Slots are another cluster: every machine has k of a resource `slot` and nothing else, and every task needs one of them, whatever
it really uses; they are shared max-min.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fairlead.engines.simulated import SimulatedCluster
from fairlead.model.problems import Problem
from fairlead.model.specs import ROOT, USERS, Job, Node, Quantities, Queue, Settings, settings_for
from fairlead.policies import drf, resources_of
from fairlead.policies.contract import PolicyError
from fairlead.policies.registry import find_policy
from fairlead.policies.slots import Slots
from fairlead.scheduler.decide import decide
from fairlead.scheduler.facts import (
    Configured,
    Fact,
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
)
from fairlead.scheduler.state import State
from fairlead.simulate.workload import F64, I64, TraceError, Workload

SAMPLES = 400
"""Moments at which shares and utilisation are looked at while jobs are submitted; it goes on at the same pace after that."""
SLOT = "slot"

Watch = Callable[[State, list[Fact]], None]


@dataclass(frozen=True)
class Run:
    """What came of a workload under one policy.

    Attributes
    ----------
    workload : Workload
    policy : str
    submitted, begun, ended : float64, shape (jobs,)
        Seconds; NaN for what did not happen.
    waited : float64, shape (jobs,)
        Seconds between submission and start, added up over the job's tasks.
    refused : bool, shape (jobs,)
        No machine could hold a task, even empty (or a slot, where slots do not overcommit): not run at all.
    queues, resources : list of str
    at : float64, shape (samples,)
    utilisation : float64, shape (samples, resources)
        What tasks really use, in parts of the capacity; over 1 where slots promise more than there is.
    shares, fair : float64, shape (samples, queues)
        Dominant shares of the cluster: what each queue has, and what it would have if what runs and waits were divided by DRF.
    running, waiting : int64, shape (samples,)
    completed, withdrawn, revoked, decisions, steps : int
    seconds : float
        That the simulation took.
    """

    workload: Workload
    policy: str
    submitted: F64
    begun: F64
    ended: F64
    waited: F64
    refused: Any
    queues: list[str]
    resources: list[str]
    at: F64
    utilisation: F64
    shares: F64
    fair: F64
    running: I64
    waiting: I64
    completed: int
    withdrawn: int
    revoked: int
    decisions: int
    steps: int
    seconds: float
    notes: list[str] = field(default_factory=list)


def simulate(
    workload: Workload,
    policy: str = "drf",
    *,
    reserve_after: float = Settings().reserve_after,
    samples: int = SAMPLES,
    watch: Watch | None = None,
    told: Callable[[float], None] | None = None,
) -> Run:
    """Run a workload under a policy.

    Parameters
    ----------
    workload : Workload
    policy : str
        Among the queues at the top (and below, where the tree names no other): any that the live scheduler takes; ``slots``,
        ``slots:K`` and ``slots:K:overcommit``.
    reserve_after : float
        Seconds, as in the live scheduler's settings.
    samples : int
        Moments at which shares are looked at, while jobs are submitted.
    watch : function, optional
        Called after each step with the state and the step's facts.
    told : function, optional
        Called now and then with the part of all tasks that has ended.

    Returns
    -------
    Run

    Raises
    ------
    TraceError
        There are no machines, or no jobs.
    PolicyError
        There is no such policy, or it does not divide what runs and waits.
    """
    began = time.perf_counter()
    if not workload.nodes:
        raise TraceError(f"{workload.name}: there are no machines: name some with --nodes and --node, or --config")
    if not len(workload.submit):
        raise TraceError(f"{workload.name}: there are no jobs in this part of it")
    seen, scheduling, notes, overcommitted = _as_seen(workload, policy)
    state = State()
    apply = state.apply  # once: to bind it costs more than some facts do
    happened: list[Fact] = []

    def happen(fact: Fact) -> None:
        apply(fact)
        if watch is not None:
            happened.append(fact)

    settings = Settings(reserve_after=reserve_after, keep_jobs=0)
    happen(Configured(at=0.0, queues=_tree(workload.queues, scheduling), settings=settings))
    for node in seen.nodes:
        happen(NodeJoined(at=0.0, node=node))
    resources = workload.resources
    names = list(dict.fromkeys(workload.queue))
    number = {name: k for k, name in enumerate(names)}
    capacity = np.array([[node.capacity.get(r, 0) for r in resources] for node in workload.nodes], np.int64)
    needs = np.array([[demand.get(r, 0) for r in resources] for demand in workload.demands], np.int64)
    cluster = SimulatedCluster(
        capacity, needs[workload.shape], np.array([number[name] for name in workload.queue], np.int64), len(names),
        workload.duration, workload.first, workload.varied, overcommitted,
    )  # fmt: skip
    kinds = list({(tuple(n.capacity.items()), tuple(n.labels.items())): n for n in seen.nodes}.values())
    fits = np.array([_fits(kinds, seen.demands[s], workload.places[s]) for s in range(len(needs))])
    refused = ~fits[workload.shape]
    sampler = _Sampler(cluster, workload, names, capacity.sum(axis=0), samples)
    total = int(workload.tasks[~refused].sum())
    submit, jobs = workload.submit, len(workload.submit)
    leaving = np.argsort(workload.withdrawn, kind="stable")
    leaving = leaving[np.isfinite(workload.withdrawn[leaving])]
    revoked = decisions = steps = upcoming = gone = 0
    look_again = 0
    while True:
        now = min(submit[upcoming] if upcoming < jobs else np.inf, cluster.next_end())
        if gone < len(leaving):
            now = min(now, max(workload.withdrawn[leaving[gone]], submit[leaving[gone]]))
        if now == np.inf:
            break
        sampler.until(now)
        steps += 1
        if cluster.next_end() == now:
            job, index, attempt = cluster.ends()
            zeros = np.zeros(len(job), np.int64)
            happen(TasksFinished(at=now, job=job + 1, index=index, attempt=attempt, outcome=zeros, code=zeros))
        while upcoming < jobs and submit[upcoming] == now:
            if not refused[upcoming]:
                cluster.submit(upcoming, int(workload.tasks[upcoming]), now)
                happen(JobSubmitted(at=now, id=upcoming + 1, job=_job(seen, upcoming)))
            upcoming += 1
        while gone < len(leaving) and max(workload.withdrawn[leaving[gone]], submit[leaving[gone]]) <= now:
            j = int(leaving[gone])
            if cluster.left[j] > 0:  # else it has ended, and may be forgotten
                waits = int(state.jobs.waiting[state.job_row(j + 1)])
                cluster.withdraw(j, waits, now)
                happen(JobCancelled(at=now, id=j + 1))
            gone += 1
        while True:
            decision = decide(state, now, strict=True)
            for fact in decision.facts:
                happen(fact)
                if isinstance(fact, TasksPlaced):
                    cluster.start(fact.job - 1, fact.index, fact.attempt, fact.node, now)
                    decisions += len(fact.job)
                elif isinstance(fact, TasksRevoked):
                    revoked += len(fact.job)
            if not decision.more:
                break
        if watch is not None:
            watch(state, happened)
            happened = []
        if told is not None and steps >= look_again:
            told(cluster.completed / max(1, total))
            look_again = steps + 200
    stuck = int(((cluster.left > 0) & ~refused).sum())
    if refused.any():
        what = "slot" if seen is not workload else "machine"
        notes.append(f"{int(refused.sum()):,} jobs were refused: no {what} holds a task of theirs")
    if stuck:
        notes.append(f"{stuck:,} jobs never ended: a limit, or a gang that does not fit, kept them waiting")
    return Run(
        workload=workload, policy=policy, submitted=workload.submit, begun=cluster.begun, ended=cluster.ended,
        waited=cluster.waited, refused=refused, queues=names, resources=resources, **sampler.columns(),
        completed=cluster.completed, withdrawn=cluster.withdrawn, revoked=revoked, decisions=decisions, steps=steps,
        seconds=time.perf_counter() - began, notes=notes,
    )  # fmt: skip


def _as_seen(workload: Workload, policy: str) -> tuple[Workload, str, list[str], bool]:
    """The workload as the scheduler sees it, the policy that it follows, what was chosen, and whether machines overcommit."""
    notes: list[str] = []
    if policy.partition(":")[0] != "slots":
        find_policy(policy)
        unknown = sorted(set(resources_of(policy)) - set(workload.resources))
        if unknown:
            raise PolicyError(
                f"{policy}: there is no {unknown[0]!r} to share: use one of {', '.join(workload.resources)}"
            )
        return workload, policy, notes, False
    if policy == "slots":
        policy = f"slots:{_usual_slots(workload)}:overcommit"
        notes.append(
            f"slots: {policy.split(':')[1]} a machine, as many median tasks as fit on the first; what is larger overcommits"
        )
    chosen: Any = find_policy(policy)
    assert isinstance(chosen, Slots)
    if any(queue.guarantee or queue.limit for queue in workload.queues):
        raise PolicyError("slots: cannot guarantee or limit quantities: remove them from the queues")
    size: Quantities = {}
    for node in workload.nodes:
        for resource, amount in node.capacity.items():
            size[resource] = max(size.get(resource, 0), amount // chosen.slots)
    nodes = [Node(node.name, {SLOT: chosen.slots * 1000}, node.labels) for node in workload.nodes]
    holds = [all(q <= size.get(r, 0) for r, q in demand.items()) for demand in workload.demands]
    demands = [{SLOT: 1000 if fits or chosen.overcommit else 10**15} for fits in holds]
    return replace(workload, nodes=nodes, demands=demands), f"maxmin:{SLOT}", notes, chosen.overcommit


def _usual_slots(workload: Workload) -> int:
    """How many of the median task fit on the first machine."""
    node = workload.nodes[0].capacity
    fit = [min((node.get(r, 0) // q for r, q in d.items() if q), default=1) for d in workload.demands]
    each = np.array(fit)[workload.shape]
    by_size = np.argsort(each, kind="stable")
    reached = np.cumsum(workload.tasks[by_size])
    return max(1, int(each[by_size][np.searchsorted(reached, reached[-1] / 2)]))


def _tree(queues: list[Queue], policy: str) -> list[Queue]:
    """The tree with the policy at its root; without one, a leaf for each name."""
    root = next((queue for queue in queues if queue.name == ROOT), Queue(ROOT))
    rest = [queue for queue in queues if queue.name != ROOT] or [Queue(USERS)]
    return [Queue(ROOT, max_jobs=root.max_jobs, max_tasks=root.max_tasks, policy=policy), *rest]


def _job(workload: Workload, j: int) -> Job:
    shape = workload.shape[j]
    return Job(
        queue=workload.queue[j],
        demand=workload.demands[shape],
        tasks=int(workload.tasks[j]),
        on=workload.places[shape],
        priority=int(workload.priority[j]),
        gang=bool(workload.gang[j]),
    )


def _fits(nodes: list[Node], demand: Quantities, on: dict[str, list[str]]) -> bool:
    """Whether some machine could hold a task, were it empty."""
    return any(
        all(node.capacity.get(r, 0) >= q for r, q in demand.items())
        and all(node.labels.get(label) in values for label, values in on.items())
        for node in nodes
    )


class _Sampler:
    """Looks at shares and utilisation at even moments."""

    def __init__(
        self, cluster: SimulatedCluster, workload: Workload, names: list[str], total: I64, samples: int
    ) -> None:
        self._cluster, self._total = cluster, total
        span = float(workload.submit[-1] - workload.submit[0])
        self._every, self._most = max(span / samples, 1.0), 10 * max(samples, 100)
        self._next = float(workload.submit[0])
        self._rows: list[tuple[float, F64, F64, F64, int, int]] = []
        self._fair_share = drf.policy()
        declared = {queue.name: queue for queue in workload.queues}
        resources = workload.resources
        self._weight = np.array([_weight(name, declared, resources) for name in names])

    def until(self, now: float) -> None:
        """Look at all the moments before `now`: nothing has happened since the last step."""
        row = None
        while self._next < now:
            if len(self._rows) >= self._most:
                # It lasts much longer than jobs were submitted: every other moment will do.
                self._rows = self._rows[::2]
                self._every *= 2
                self._next = self._rows[-1][0] + self._every
                continue
            row = row or self._look()
            self._rows.append((self._next, *row))
            self._next += self._every

    def _look(self) -> tuple[F64, F64, F64, int, int]:
        cluster, total = self._cluster, self._total
        there = np.where(total > 0, total, 1)
        shares = (cluster.used / there).max(axis=1)
        fair = np.zeros(len(shares))
        count = cluster.running + cluster.waiting
        rows = np.flatnonzero(count > 0)
        if len(rows):
            each = (cluster.used[rows] + cluster.waits[rows]) / count[rows, None]
            problem = Problem.from_arrays(total, each, tasks=count[rows], weight=self._weight[rows])
            fair[rows] = (each * self._fair_share.divide(problem).tasks[:, None] / there).max(axis=1)
        return cluster.used.sum(axis=0) / there, shares, fair, int(cluster.running.sum()), int(cluster.waiting.sum())

    def columns(self) -> dict[str, Any]:
        """What was seen, as arrays."""
        at, utilisation, shares, fair, running, waiting = zip(*self._rows, strict=True) if self._rows else ((),) * 6
        resources, queues = len(self._total), len(self._weight)
        return {
            "at": np.array(at, float),
            "utilisation": np.array(utilisation, float).reshape(len(at), resources),
            "shares": np.array(shares, float).reshape(len(at), queues),
            "fair": np.array(fair, float).reshape(len(at), queues),
            "running": np.array(running, np.int64),
            "waiting": np.array(waiting, np.int64),
        }


def _weight(name: str, declared: dict[str, Queue], resources: list[str]) -> list[float]:
    """A leaf's weight for each resource."""
    spec = settings_for(name, declared)
    weight = spec.weight if spec is not None else 1.0
    return [weight.get(r, 1.0) if isinstance(weight, dict) else float(weight) for r in resources]
