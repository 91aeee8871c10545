"""Run a workload through the state machine that runs live, with a virtual clock.

One moment is one or more steps of the live scheduler (:mod:`fairlead.engines.step`) with another engine and another clock: tasks
end, jobs are submitted, and it decides, as often as there is more to decide. Where all that happens is plain, many moments are
gone through in compiled code (:mod:`fairlead.simulate.many_steps`), with the same facts.

Slots are another cluster: every machine has k of a resource `slot` and nothing else, and every task needs one of them, whatever
it really uses; they are shared max-min.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fairlead.engines.simulated import SimulatedCluster
from fairlead.engines.step import Scheduler
from fairlead.journal import Unrecorded
from fairlead.model.quantity import check_total
from fairlead.model.specs import ROOT, USERS, Node, Quantities, Queue, Settings
from fairlead.policies import code_of, resources_of
from fairlead.policies.codes import DIVIDED, HDRF, SDRF
from fairlead.policies.contract import PolicyError
from fairlead.policies.fading import OverTime
from fairlead.policies.registry import find_policy
from fairlead.policies.slots import Slots
from fairlead.scheduler.facts import Configured, Fact
from fairlead.scheduler.reports.reservations import idled_by_queue
from fairlead.scheduler.state import State
from fairlead.simulate.line import IN_LINE, InLine, by_line, in_line, refuse_bounds, too_large_gangs
from fairlead.simulate.many_steps import by_many_steps
from fairlead.simulate.offers import Answers, OfferedCluster, Offers
from fairlead.simulate.steps import Sampler, Simulation, Tally, Watch, by_steps
from fairlead.simulate.workload import F64, I64, Bools, TraceError, Workload, check_leaves

SAMPLES = 400
"""Moments at which shares and utilisation are looked at while jobs are submitted; it goes on at the same pace after that."""
SLOT = "slot"
KEEP_JOBS = 20_000
"""Jobs that have ended and are remembered: as few as go without forgetting some in every other step."""


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
        Dominant shares of the cluster: what each queue has, and what it is entitled to
        (:mod:`fairlead.scheduler.entitlements`): what runs and waits, divided by DRF down the tree.
    got, short : float64, shape (queues,)
        Dominant shares times seconds: what each queue had, exactly; and what it was entitled to less what it had, by looks.
    every : float
        Seconds for which such a look stands; 0 where each moment was looked at.
    running, waiting : int64, shape (samples,)
    completed, withdrawn, decisions, steps, revoked : int
    revokes : bool
        Whether tasks were revoked for others who were below what is theirs.
    lost : float
        What tasks did that were revoked: their seconds times the dominant share of each, so seconds of the whole cluster.
    missed : float
        Seconds in which queues were below their guarantee, as looked at, added up over the queues: what waited there would have
        been within it (:func:`fairlead.scheduler.kernel.scheduling.below_guarantee`).
    idled : float64, shape (resources,)
        Free room that was kept for somebody from others, in base units times seconds.
    seconds : float
        That the simulation took.
    offers : dict of str to int, or None
        Offers by what became of them: made, accepted, declined, expired, rescinded; None where none are made.
    offered : mapping of str to float
        What was offered and not answered, of each resource, in base units times seconds.
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
    got: F64
    short: F64
    every: float
    running: I64
    waiting: I64
    completed: int
    withdrawn: int
    revoked: int
    decisions: int
    steps: int
    revokes: bool
    lost: float
    missed: float
    idled: F64
    seconds: float
    offers: dict[str, int] | None = None
    offered: Mapping[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def simulate(
    workload: Workload,
    policy: str = "drf",
    *,
    reserve_after: float = Settings().reserve_after,
    history: float | None = None,
    revoke: bool = True,
    samples: int = SAMPLES,
    watch: Watch | None = None,
    record: Callable[[Sequence[Fact]], None] | None = None,
    told: Callable[[float], None] | None = None,
    compiled: bool = True,
    offers: Answers | None = None,
) -> Run:
    """Run a workload under a policy.

    Long because each of its parameters is told here.

    Parameters
    ----------
    workload : Workload
    policy : str
        Among the queues at the top (and below, where the tree names no other): any that the live scheduler takes; ``slots``,
        ``slots:K`` and ``slots:K:overcommit``; and ``fifo-strict``, ``easy`` and ``easy:F``, which have neither queues nor the
        scheduler (:mod:`fairlead.simulate.line`), so that of what is below only `samples` and `told` matter there.
    reserve_after : float
        Seconds, as in the live scheduler's settings.
    history : float, optional
        The half-life, in seconds, of what queues used before, where the tree names no other below the root; 0 for none. Without,
        it is what the root says, and a day where that says nothing, as in the live scheduler.
    revoke : bool
        Whether tasks are revoked for others, as in the live scheduler's settings.
    samples : int
        Moments at which shares are looked at, while jobs are submitted.
    watch : function, optional
        Called after each moment with the state and the facts of it; every step is taken one by one then.
    record : function, optional
        Told all facts, in order.
    told : function, optional
        Called now and then with the part of all tasks that has ended.
    compiled : bool
        Whether many steps may be taken at once in compiled code, where what happens is plain; the facts are the same.
    offers : Answers, optional
        How frameworks answer, where jobs are launched in offers (:mod:`fairlead.simulate.offers`); every step is taken one by
        one then.

    Returns
    -------
    Run

    Raises
    ------
    TraceError
        There are no machines, or no jobs, or some in a queue with others below it, or that no framework here could launch.
    PolicyError
        There is no such policy, or it does not divide what runs and waits.
    """
    began = time.perf_counter()
    if not workload.nodes:
        raise TraceError(f"{workload.name}: there are no machines: name some with --nodes and --node, or --config")
    try:
        check_total(node.capacity for node in workload.nodes)
    except ValueError as error:
        raise TraceError(f"{workload.name}: {error}") from None
    if not len(workload.submit):
        raise TraceError(f"{workload.name}: there are no jobs in this part of it")
    baseline = in_line(policy)
    if baseline is None:
        check_leaves(workload)
    seen, scheduling, notes, overcommitted = _as_seen(workload, policy)
    names = list(dict.fromkeys(workload.queue))
    cluster = _cluster(workload, seen, names, overcommitted, SimulatedCluster if offers is None else OfferedCluster)
    refused = ~_can_be_held(seen)
    for job in sorted(workload.after):  # what comes after what never runs does not run either
        refused[job] |= refused[workload.after[job]].any()
    if baseline is not None:
        refused |= too_large_gangs(workload)
    total_capacity = cluster.truth.capacity.sum(axis=0)
    total = int(workload.tasks[~refused].sum())
    least = _least_seconds(workload, ~refused, total_capacity)
    sampler = Sampler(cluster, workload, names, total_capacity, least, samples, total)

    def tell() -> None:
        if told is not None:
            told(cluster.completed / max(1, total))

    if baseline is not None:
        if watch is not None or record is not None:
            raise PolicyError(f"{policy}: has no scheduler to watch, and no facts: it is a baseline")
        if workload.after:
            raise PolicyError(f"{policy}: knows no jobs that come after others: it is a baseline")
        if offers is not None:
            raise PolicyError(f"{policy}: makes no offers: it is a baseline")
        did = _run_in_line(workload, cluster, baseline, refused, sampler, tell)
    else:
        tree = _tree(workload.queues, scheduling, history)
        if tree[0].history == 0.0 and isinstance(find_policy(scheduling), OverTime):
            raise PolicyError(f"{policy}: goes by what was used before: name a half-life such as 7d, not none")
        settings = Settings(reserve_after=reserve_after, keep_jobs=KEEP_JOBS, revoke=revoke)
        if offers is not None:
            settings = msgspec.structs.replace(settings, offer_timeout=offers.timeout, offer_most=offers.most)
        driven = Offers(offers, seen, cluster) if offers is not None and isinstance(cluster, OfferedCluster) else None
        scheduler, tally = _scheduler(cluster, tree, settings, record)
        sampler.state = scheduler.state
        plain = (
            compiled
            and watch is None
            and driven is None
            and not np.isfinite(workload.withdrawn).any()
            and not workload.after
        )
        go = by_many_steps if plain and not _looks_around(tree, seen.resources) else by_steps
        steps = go(Simulation(seen, workload, scheduler, cluster, refused, sampler, tally, watch, tell, driven))
        did = _Did(tally.decisions, steps, _idled(scheduler.state, workload, cluster.now), tally.revoked, tally.lost)
        if driven is not None:
            did = did._replace(offers=dict(driven.counts), offered=driven.offered)
    notes += _notes(cluster, refused, slots=scheduling == f"maxmin:{SLOT}")
    truth = cluster.truth
    return Run(
        workload=workload, policy=policy, submitted=workload.submit, begun=truth.begun, ended=truth.ended,
        waited=truth.waited, refused=refused, queues=names, resources=workload.resources, **sampler.columns(),
        completed=cluster.completed, withdrawn=cluster.withdrawn, revokes=revoke, **did._asdict(),
        seconds=time.perf_counter() - began, notes=notes,
    )  # fmt: skip


class _Did(NamedTuple):
    """What was done in a run; see :class:`Run`."""

    decisions: int
    steps: int
    idled: F64
    revoked: int = 0
    lost: float = 0.0
    offers: dict[str, int] | None = None
    offered: Mapping[str, float] = MappingProxyType({})


def _scheduler(
    cluster: SimulatedCluster, tree: list[Queue], settings: Settings, record: Callable[[Sequence[Fact]], None] | None
) -> tuple[Scheduler, Tally]:
    """The scheduler of a simulated cluster, which knows its nodes, and what counts its decisions."""
    scheduler = Scheduler(Unrecorded(), cluster, lambda: cluster.now, repeat_after=np.inf, strict=True)
    tally = Tally(record, scheduler.state, cluster)
    scheduler.on_record = tally
    scheduler.step([lambda state, now: [Configured(at=0.0, queues=tree, settings=settings)]])
    while cluster.next_event() == 0.0:
        scheduler.step()
    return scheduler, tally


def _idled(state: State, workload: Workload, now: float) -> F64:
    """What lay free for promises, of each resource, times seconds; a slot that did is so large a part of a machine."""
    idled = dict(zip(state.resources, idled_by_queue(state, now).sum(axis=0).tolist(), strict=True))
    if workload.nodes and SLOT in idled and SLOT not in workload.resources:
        part = idled[SLOT] / max(1, int(state.cluster.total[state.resources.index(SLOT)]))
        return np.array([part * sum(n.capacity.get(r, 0) for n in workload.nodes) for r in workload.resources])
    return np.array([idled.get(resource, 0.0) for resource in workload.resources])


def _run_in_line(
    workload: Workload, cluster: SimulatedCluster, baseline: InLine, refused: Bools, sampler: Sampler, tell: Callable[[], None]
) -> _Did:  # fmt: skip
    """Run a workload under a baseline without queues."""

    def look(now: float) -> float:
        sampler.until(now)
        tell()
        return sampler.pause

    return _Did(*by_line(workload, cluster, baseline, ~refused, look))


def _notes(cluster: SimulatedCluster, refused: Bools, slots: bool) -> list[str]:
    """What did not run, and why."""
    notes, stuck = [], int(((cluster.truth.left > 0) & ~refused).sum())
    if refused.any():
        what = "slot" if slots else "machine"
        are, theirs = ("jobs were", "theirs") if refused.sum() > 1 else ("job was", "it")
        notes.append(f"{int(refused.sum()):,} {are} refused: no {what} holds a task of {theirs}")
    if stuck:
        which, them = ("jobs", "them") if stuck > 1 else ("job", "it")
        notes.append(f"{stuck:,} {which} never ended: a limit, or a gang that does not fit, kept {them} waiting")
    return notes


def _cluster(
    workload: Workload, seen: Workload, names: list[str], overcommitted: bool, kind: type[SimulatedCluster]
) -> SimulatedCluster:
    resources = workload.resources
    number = {name: k for k, name in enumerate(names)}
    capacity = np.array([[node.capacity.get(r, 0) for r in resources] for node in workload.nodes], np.int64)
    needs = np.array([[demand.get(r, 0) for r in resources] for demand in workload.demands], np.int64)
    return kind(
        seen.nodes, capacity, needs[workload.shape], np.array([number[name] for name in workload.queue], np.int64), len(names),
        workload.tasks, workload.duration, workload.first, workload.varied, overcommitted,
        too_large_gangs(seen),
    )  # fmt: skip


def _least_seconds(workload: Workload, which: Bools, capacity: I64) -> float:
    """How long some jobs take at least: until the last is submitted, and until all that they need has been given."""
    sums = np.concatenate([[0.0], np.cumsum(workload.duration)])
    alike = np.where(workload.varied, 1, workload.tasks)
    seconds = (sums[workload.first + np.where(workload.varied, workload.tasks, 1)] - sums[workload.first]) * alike
    needs = np.array([[demand.get(r, 0) for r in workload.resources] for demand in workload.demands], float)
    work = seconds[which] @ needs[workload.shape[which]] / np.maximum(capacity, 1)
    return max(float(workload.submit[-1] - workload.submit[0]), float(work.max(initial=0.0)))


def _can_be_held(seen: Workload) -> Bools:
    """Of each job, whether some machine could hold a task of it."""
    kinds = list({(tuple(n.capacity.items()), tuple(n.labels.items())): n for n in seen.nodes}.values())
    fits = [_fits(kinds, demand, place) for demand, place in zip(seen.demands, seen.places, strict=True)]
    return np.array(fits)[seen.shape]


def _looks_around(queues: list[Queue], resources: list[str]) -> bool:
    """Whether a policy looks at more than what each queue uses: what all use, or how many queues have had jobs so far."""
    return any(queue.policy and code_of(queue.policy, resources) in (HDRF, DIVIDED, SDRF) for queue in queues)


def check_policy(policy: str) -> None:
    """Raise PolicyError for one that :func:`simulate` does not take, whatever the workload."""
    if policy != "slots" and in_line(policy) is None:
        find_policy(policy, IN_LINE)


def _as_seen(workload: Workload, policy: str) -> tuple[Workload, str, list[str], bool]:
    """The workload as the scheduler sees it, the policy that it follows, what was chosen, and whether machines overcommit."""
    notes: list[str] = []
    if in_line(policy) is not None:
        refuse_bounds(workload, policy)
        if np.isfinite(workload.withdrawn).any():
            raise PolicyError(
                f"{policy}: cannot replay jobs that are withdrawn while they wait, as {workload.name} has"
            )
        return workload, policy, [f"{policy}: all jobs are in one line; queues and priorities do not count"], False
    if policy.partition(":")[0] != "slots":
        find_policy(policy, IN_LINE)
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
    refuse_bounds(workload, "slots")
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


def _tree(queues: list[Queue], policy: str, history: float | None) -> list[Queue]:
    """The tree with the policy, and perhaps another half-life, at its root; without one, a leaf for each name."""
    root = next((queue for queue in queues if queue.name == ROOT), Queue(ROOT))
    rest = [queue for queue in queues if queue.name != ROOT] or [Queue(USERS)]
    half_life = root.history if history is None else history
    return [
        Queue(
            ROOT,
            max_jobs=root.max_jobs,
            max_tasks=root.max_tasks,
            policy=policy,
            history=half_life,
            offer_most=root.offer_most,
        ),
        *rest,
    ]


def _fits(nodes: list[Node], demand: Quantities, on: dict[str, list[str]]) -> bool:
    """Whether some machine could hold a task, were it empty."""
    return any(
        all(node.capacity.get(r, 0) >= q for r, q in demand.items())
        and all(node.labels.get(label) in values for label, values in on.items())
        for node in nodes
    )
