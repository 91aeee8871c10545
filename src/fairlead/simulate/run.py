"""Run a workload through the live scheduler with a virtual clock.

A moment is one or more steps of the live scheduler (:mod:`fairlead.engines.step`): tasks end, jobs arrive, and it decides until
no decision is left. Unless somebody watches or frameworks take offers, many moments run in compiled code
(:mod:`fairlead.simulate.many_steps`), with the same facts.

Slots are a different cluster: each machine has k of a resource `slot` and nothing else, each task needs one, whatever it really
uses, and slots are shared max-min.
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
from fairlead.model.documents import Configuration
from fairlead.model.quantity import check_total
from fairlead.model.specs import ROOT, USERS, Node, Quantities, Queue, Settings
from fairlead.policies import code_of, resources_of
from fairlead.policies.codes import HDRF
from fairlead.policies.contract import PolicyError
from fairlead.policies.fading import OverTime
from fairlead.policies.registry import find_policy
from fairlead.policies.slots import Slots
from fairlead.scheduler.admission import Refused, check_queues
from fairlead.scheduler.effects import apply
from fairlead.scheduler.facts import Configured, Fact
from fairlead.scheduler.kernel.view import BY_EASY
from fairlead.scheduler.reports.reservations import idled_by_queue
from fairlead.scheduler.state import State
from fairlead.simulate.baselines import (
    BASELINES,
    Baseline,
    baseline_of,
    by_line,
    notes_on,
    order_of,
    refuse_bounds,
    too_large_gangs,
)
from fairlead.simulate.configured import ABOUT_NODES, names_users, own_policy, reconfigured, unused
from fairlead.simulate.many_steps import by_many_steps
from fairlead.simulate.offers import Answers, OfferedCluster, Offers
from fairlead.simulate.steps import Recorder, Sampler, Simulation, Watch, by_steps, job_of
from fairlead.simulate.workload import F64, I64, Bools, TraceError, Workload, check_leaves

SAMPLES = 400
"""Samples of shares and utilisation while jobs are submitted; sampling goes on at the same rate after that."""
SLOT = "slot"
KEEP_JOBS = 20_000
"""Ended jobs to keep, whatever is configured: few, but enough that not every other step forgets some. No decision reads an ended
job: forecasts have histograms of their own, and who comes after it may start."""


@dataclass(frozen=True)
class Run:
    """The outcome of a workload under one policy.

    Attributes
    ----------
    workload : Workload
    policy : str
    submitted, begun, ended : float64, shape (jobs,)
        Seconds; NaN if it did not happen.
    waited : float64, shape (jobs,)
        Seconds between submission and start, summed over the job's tasks.
    refused : bool, shape (jobs,)
        Jobs not run, because no empty machine (or slot, without overcommit) holds a task.
    queues, resources : list of str
    at : float64, shape (samples,)
    utilisation : float64, shape (samples, resources)
        Real use as a fraction of capacity; over 1 where slots overcommit.
    shares, fair : float64, shape (samples, queues)
        Actual and entitled dominant shares (:mod:`fairlead.scheduler.entitlements`): DRF down the tree, over running and pending
        tasks.
    since : float
        When the measured time begins: at the first submission, or after the warm-up. What follows is of that time.
    got, short : float64, shape (queues,)
        Dominant shares times seconds: what each queue had, exactly; and what it was entitled to less that, from samples.
    used : float64, shape (queues, resources)
        What each queue used, exactly, in base units times seconds.
    every : float
        Seconds that a sample of `short` stands for; 0 where every moment was measured.
    running, waiting : int64, shape (samples,)
    completed, withdrawn, decisions, steps, revoked : int
    revokes : bool
        True if preemption for guarantees and fair shares was on.
    lost : float
        Work of preempted tasks, in seconds of the whole cluster: seconds times dominant share.
    missed : float
        Seconds below guarantee, summed over the queues, from samples: pending jobs would have been within it
        (:func:`fairlead.scheduler.kernel.scheduling.below_guarantee`).
    idled : float64, shape (resources,)
        Free resources kept idle by reservations and claims, in base units times seconds.
    seconds : float
        Real time that the simulation took, without its preparation.
    offers : dict of str to int, or None
        Offers by outcome: made, accepted, declined, expired, rescinded; None without offers.
    offered : mapping of str to float
        Resources in unanswered offers, in base units times seconds.
    replay : dict of str to float, or None
        How far tasks start from their real starts; None if no real start is known. ``tasks``: how many have both; ``median``
        and ``p90``: of the distance, in seconds; ``not begun``: how many really began, and not here.
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
    since: float
    got: F64
    used: F64
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
    replay: dict[str, float] | None = None


def simulate(
    workload: Workload,
    policy: str = "",
    *,
    settings: Settings | None = None,
    history: float | None = None,
    samples: int = SAMPLES,
    warm_up: float = 0.0,
    watch: Watch | None = None,
    record: Callable[[Sequence[Fact]], None] | None = None,
    progress: Callable[[float], None] | None = None,
    compiled: bool = True,
    offers: Answers | None = None,
) -> Run:
    """Run a workload under a policy.

    Long because it documents every parameter.

    Parameters
    ----------
    workload : Workload
    policy : str
        Policy of the root, by default that of the tree, and inherited where the tree names no other: any live policy;
        ``slots``, ``slots:K`` and ``slots:K:overcommit``; or a baseline without queues, such as ``easy``
        (:mod:`fairlead.simulate.baselines`), which uses only `samples`, `warm_up` and `progress` of the parameters below.
    settings : Settings, optional
        Of the scheduler throughout. Default: those of the workload.
    history : float, optional
        Half-life of past usage at the root, in seconds; 0 for none. Default: that of the tree, else a day.
    samples : int
        Samples of shares while jobs are submitted.
    warm_up : float
        Seconds from the start of the workload that are simulated but not measured.
    watch : function, optional
        Called after each moment with the state and its facts; turns compiled steps off.
    record : function, optional
        Called with all facts, in order.
    progress : function, optional
        Called now and then with the fraction of tasks that have ended.
    compiled : bool
        Allows compiled steps where possible; the facts are the same.
    offers : Answers, optional
        How frameworks answer offers (:mod:`fairlead.simulate.offers`); turns compiled steps off.

    Returns
    -------
    Run

    Raises
    ------
    TraceError
        No machines or no jobs; or a job in an inner queue, or that no framework could launch.
    PolicyError
        The policy is unknown, or cannot run this workload.
    """
    if not workload.nodes:
        raise TraceError(f"{workload.name}: there are no machines: name some with --nodes and --node, or --config")
    try:
        check_total(node.capacity for node in workload.nodes)
    except ValueError as error:
        raise TraceError(f"{workload.name}: {error}") from None
    if not len(workload.submit):
        raise TraceError(f"{workload.name}: there are no jobs in this part of it")
    asked, policy = policy, policy or own_policy(workload)
    if warm_up > workload.submit[-1]:
        last = f"the last job comes at {workload.submit[-1]:g} s"
        raise TraceError(f"{workload.name}: a warm-up of {warm_up:g} s leaves nothing to measure: {last}")
    baseline = baseline_of(policy)
    by_easy = order_of(policy)
    if baseline is None:
        check_leaves(workload)
    seen, scheduling, notes, overcommitted = _as_scheduled(workload, policy)
    notes += unused(workload, offers is not None) if baseline is None else []
    workload = _as_asked(workload, scheduling if asked else "", settings, history, offers)
    names = workload.leaves
    cluster = _cluster(workload, seen, names, overcommitted, SimulatedCluster if offers is None else OfferedCluster)
    refused = ~_can_be_held(seen)
    if baseline is not None:
        refused |= too_large_gangs(workload)
    else:
        notes += _refuse(workload, refused)
    for job in sorted(workload.after):  # nor what depends on a refused job
        refused[job] |= refused[workload.after[job]].any()
    total = int(workload.tasks[~refused].sum())
    least = _least_seconds(workload, ~refused, cluster.truth.total)
    since = max(float(workload.submit[0]), warm_up)
    sampler = Sampler(cluster, workload, names, least, samples, total, since)
    starts = np.full(len(workload.begun), np.nan) if baseline is None and len(workload.begun) else None

    def on_progress() -> None:
        if progress is not None:
            progress(cluster.completed / max(1, total))

    if baseline is not None:
        if watch is not None or record is not None:
            raise PolicyError(f"{policy}: has no scheduler to watch, and no facts: it is a baseline")
        _check_baseline(workload, policy, offers)
        began = time.perf_counter()
        decisions, steps, idled = _run_baseline(workload, cluster, baseline, refused, sampler, on_progress)
        totals = _Totals(idled)
    else:
        if by_easy:
            _check_order(workload, policy, offers)
        tree = workload.queues
        if tree[0].history == 0.0 and isinstance(find_policy(scheduling), OverTime):
            raise PolicyError(f"{policy}: needs usage history: name a half-life such as 7d, not none")
        driven = None
        if offers is not None and isinstance(cluster, OfferedCluster):
            driven = Offers(offers, seen, cluster, workload.settings.offer_timeout)
        settings = workload.settings
        if by_easy:  # nothing is preempted for a baseline
            settings = msgspec.structs.replace(settings, revoke=False)
        scheduler, recorder = _scheduler(cluster, tree, settings, record, starts)
        scheduler.state.order.counts[BY_EASY] = bool(by_easy)
        sampler.state = scheduler.state
        plain = (
            compiled and watch is None and driven is None and not workload.changes and not workload.settings.max_jobs_of
        )
        go = by_many_steps if plain else by_steps
        simulation = Simulation(
            seen, workload, scheduler, cluster, refused, sampler, recorder, watch, on_progress, driven
        )
        sampler.on_begin = lambda: _count_from(simulation, since)
        began = time.perf_counter()
        steps, decisions = go(simulation), recorder.decisions
        totals = _Totals(
            _idled(scheduler.state, workload, cluster.now) - recorder.idled_before, recorder.revoked, recorder.lost
        )
        if driven is not None:
            totals = totals._replace(offers=dict(driven.counts), offered=driven.offered)
    seconds = time.perf_counter() - began
    notes += _notes(cluster, refused, slots=scheduling == f"maxmin:{SLOT}")
    truth = cluster.truth
    return Run(
        workload=workload, policy=policy, submitted=workload.submit, begun=truth.begun, ended=truth.ended,
        waited=truth.waited, refused=refused, queues=names, resources=workload.resources, **sampler.columns(), since=since,
        completed=cluster.completed, withdrawn=cluster.withdrawn, revokes=workload.settings.revoke, **totals._asdict(),
        decisions=decisions, steps=steps, seconds=seconds, notes=notes,
        replay=None if starts is None else _replay(workload, starts),
    )  # fmt: skip


def _replay(workload: Workload, starts: F64) -> dict[str, float] | None:
    """Compare when tasks start with when they really did; see :class:`Run`."""
    really = ~np.isnan(workload.begun)
    apart = np.abs(starts - workload.begun)[really & ~np.isnan(starts)]
    if not len(apart):
        return None
    median, p90 = np.percentile(apart, [50, 90]).tolist()
    return {"tasks": len(apart), "median": median, "p90": p90, "not begun": int((really & np.isnan(starts)).sum())}


def _as_asked(
    workload: Workload, policy: str, settings: Settings | None, history: float | None, offers: Answers | None
) -> Workload:
    """Return a workload with the whole queue tree and the settings that its scheduler gets; see :func:`simulate`."""

    def change(own: list[Queue], its: Settings) -> Configuration:
        its = msgspec.structs.replace(settings or its, keep_jobs=KEEP_JOBS)
        if not names_users(workload):
            its = msgspec.structs.replace(its, max_jobs_of={})
        if offers is not None and offers.timeout is not None:
            its = msgspec.structs.replace(its, offer_timeout=offers.timeout)
        if offers is not None and offers.most is not None:
            its = msgspec.structs.replace(its, offer_most=offers.most)
        return Configuration(_tree(own, policy, history), [], its)

    return reconfigured(workload, change)


def _check_baseline(workload: Workload, policy: str, offers: Answers | None) -> None:
    """Raise PolicyError if a baseline cannot run this."""
    if workload.after:
        raise PolicyError(f"{policy}: does not support jobs that come after others: it is a baseline")
    if offers is not None:
        raise PolicyError(f"{policy}: makes no offers: it is a baseline")


def _check_order(workload: Workload, policy: str, offers: Answers | None) -> None:
    """Raise PolicyError if EASY's rule in the order of a policy cannot run this."""
    if offers is not None:
        raise PolicyError(f"{policy}: makes no offers: it is a baseline")
    if any(queue.policy and code_of(queue.policy, workload.resources) == HDRF for queue in workload.queues):
        raise PolicyError(f"{policy}: cannot serve queues by hdrf: choose another order")


def _refuse(workload: Workload, refused: Bools) -> list[str]:
    """Mark the jobs that the scheduler would not accept; return a note on them.

    Where the configuration changes meanwhile, all have been accepted.
    """
    if not any(queue.draining or queue.largest_task is not None for queue in workload.queues) or any(
        isinstance(fact, Configured) for fact in workload.changes
    ):
        return []
    state = State()
    apply(state, Configured(at=0.0, queues=workload.queues, settings=workload.settings))
    _, queue = np.unique(workload.queue, return_inverse=True)
    _, first, which = np.unique(queue * len(workload.demands) + workload.shape, return_index=True, return_inverse=True)
    bad, notes = np.zeros(len(first), np.bool_), []
    for kind, job in enumerate(first.tolist()):
        try:
            check_queues(state, job_of(workload, job))
        except Refused as why:
            bad[kind] = True
            notes.append(f"{int((which == kind).sum()):,} of the jobs of {workload.queue[job]} were refused: {why}")
    refused |= bad[which]
    return notes


class _Totals(NamedTuple):
    """Counts and sums of a run; see :class:`Run`."""

    idled: F64
    revoked: int = 0
    lost: float = 0.0
    offers: dict[str, int] | None = None
    offered: Mapping[str, float] = MappingProxyType({})


def _count_from(s: Simulation, at: float) -> None:
    """Forget what was counted until `at`, up to which nothing changes."""
    s.recorder.revoked, s.recorder.lost = 0, 0.0
    s.recorder.idled_before = _idled(s.scheduler.state, s.workload, at)
    if s.offers is not None:
        s.offers.count_from(s.scheduler.state, at)


def _scheduler(
    cluster: SimulatedCluster,
    tree: list[Queue],
    settings: Settings,
    record: Callable[[Sequence[Fact]], None] | None,
    starts: F64 | None,
) -> tuple[Scheduler, Recorder]:
    """Return a configured scheduler that knows the cluster's nodes, and the recorder of its decisions."""
    scheduler = Scheduler(Unrecorded(), cluster, lambda: cluster.now, repeat_after=np.inf, strict=True)
    recorder = Recorder(record, scheduler.state, cluster, starts)
    scheduler.on_record = recorder
    scheduler.step([lambda state, now: [Configured(at=0.0, queues=tree, settings=settings)]])
    while cluster.next_event() == 0.0:
        scheduler.step()
    return scheduler, recorder


def _idled(state: State, workload: Workload, now: float) -> F64:
    """Return what reservations and claims kept idle, base units times seconds; slots count as their part of a machine."""
    idled = dict(zip(state.resources, idled_by_queue(state, now).sum(axis=0).tolist(), strict=True))
    if workload.nodes and SLOT in idled and SLOT not in workload.resources:
        part = idled[SLOT] / max(1, int(state.cluster.total[state.resources.index(SLOT)]))
        return np.array([part * sum(n.capacity.get(r, 0) for n in workload.nodes) for r in workload.resources])
    return np.array([idled.get(resource, 0.0) for resource in workload.resources])


def _run_baseline(
    workload: Workload, cluster: SimulatedCluster, baseline: Baseline, refused: Bools, sampler: Sampler,
    on_progress: Callable[[], None],
) -> tuple[int, int, F64]:  # fmt: skip
    """Run a workload under a baseline without queues."""

    def sample(now: float) -> float:
        sampler.advance(now)
        on_progress()
        return sampler.pause

    return by_line(workload, cluster, baseline, ~refused, sample, sampler.since)


def _notes(cluster: SimulatedCluster, refused: Bools, slots: bool) -> list[str]:
    """Say what did not run, and why."""
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
    capacity = np.array([[node.capacity.get(r, 0) for r in resources] for node in workload.nodes], np.int64)
    needs = np.array([[demand.get(r, 0) for r in resources] for demand in workload.demands], np.int64)
    return kind(
        seen.nodes, capacity, needs[workload.shape], workload.leaf, len(names),
        workload.tasks, workload.duration, workload.first, workload.varied, overcommitted,
        too_large_gangs(seen),
    )  # fmt: skip


def _least_seconds(workload: Workload, which: Bools, capacity: I64) -> float:
    """Return a lower bound of the time for these jobs: until the last submission, and by work over capacity."""
    sums = np.concatenate([[0.0], np.cumsum(workload.duration)])
    alike = np.where(workload.varied, 1, workload.tasks)
    seconds = (sums[workload.first + np.where(workload.varied, workload.tasks, 1)] - sums[workload.first]) * alike
    needs = np.array([[demand.get(r, 0) for r in workload.resources] for demand in workload.demands], float)
    work = seconds[which] @ needs[workload.shape[which]] / np.maximum(capacity, 1)
    return max(float(workload.submit[-1] - workload.submit[0]), float(work.max(initial=0.0)))


def _can_be_held(seen: Workload) -> Bools:
    """Mark the jobs whose tasks fit on some empty machine."""
    kinds = list({(tuple(n.capacity.items()), tuple(n.labels.items())): n for n in seen.nodes}.values())
    fits = [_fits(kinds, demand, place) for demand, place in zip(seen.demands, seen.places, strict=True)]
    return np.array(fits)[seen.shape]


def check_policy(policy: str) -> None:
    """Raise PolicyError for a policy that :func:`simulate` never accepts."""
    if policy != "slots" and baseline_of(policy) is None:
        find_policy(order_of(policy) or policy, BASELINES)


def _as_scheduled(workload: Workload, policy: str) -> tuple[Workload, str, list[str], bool]:
    """Return the workload and the policy as the scheduler sees them, notes on choices, and True for overcommit."""
    notes: list[str] = []
    baseline = baseline_of(policy)
    if baseline is not None:
        if workload.changes:
            raise PolicyError(
                f"{policy}: cannot replay machines, jobs or a configuration that change, as those of {workload.name}: it is a "
                "baseline"
            )
        return workload, policy, notes_on(workload, policy, baseline), False
    changes, policy = workload.changes, order_of(policy) or policy
    if policy.partition(":")[0] != "slots":
        if not hasattr(find_policy(policy, BASELINES), "divide"):
            raise PolicyError(
                f"{policy}: has no method divide(problem), by which queues are ordered: it only allocates"
            )
        if policy == "fairtree" and "cpu" not in workload.resources:
            policy = f"fairtree:{workload.resources[0]}"
            notes.append(f"fairtree: there are no CPUs, so it bills {workload.resources[0]}")
        unknown = sorted(set(resources_of(policy)) - set(workload.resources))
        if unknown:
            raise PolicyError(f"{policy}: unknown resource {unknown[0]!r}: use one of {', '.join(workload.resources)}")
        return workload, policy, notes, False
    if policy == "slots":
        policy = f"slots:{_default_slots(workload)}:overcommit"
        notes.append(
            f"slots: {policy.split(':')[1]} a machine, as many median tasks as fit on the first; larger tasks overcommit"
        )
    chosen: Any = find_policy(policy)
    assert isinstance(chosen, Slots)
    if any(isinstance(fact, ABOUT_NODES) for fact in changes):
        raise PolicyError(
            f"{policy}: cannot replay machines that come and go, as those of {workload.name}: use --nodes"
        )
    refuse_bounds(workload, "slots")
    size: Quantities = {}
    for node in workload.nodes:
        for resource, amount in node.capacity.items():
            size[resource] = max(size.get(resource, 0), amount // chosen.slots)
    nodes = [Node(node.name, {SLOT: chosen.slots * 1000}, node.labels) for node in workload.nodes]
    holds = [all(q <= size.get(r, 0) for r, q in demand.items()) for demand in workload.demands]
    demands = [{SLOT: 1000 if fits or chosen.overcommit else 10**15} for fits in holds]
    return replace(workload, nodes=nodes, demands=demands), f"maxmin:{SLOT}", notes, chosen.overcommit


def _default_slots(workload: Workload) -> int:
    """Return how many median tasks fit on the first machine."""
    node = workload.nodes[0].capacity
    fit = [min((node.get(r, 0) // q for r, q in d.items() if q), default=1) for d in workload.demands]
    each = np.array(fit)[workload.shape]
    by_size = np.argsort(each, kind="stable")
    reached = np.cumsum(workload.tasks[by_size])
    return max(1, int(each[by_size][np.searchsorted(reached, reached[-1] / 2)]))


def _tree(queues: list[Queue], policy: str, history: float | None) -> list[Queue]:
    """Return the tree with this policy and half-life at its root, if given; without a tree, a leaf for each name."""
    root = next((queue for queue in queues if queue.name == ROOT), Queue(ROOT))
    rest = [queue for queue in queues if queue.name != ROOT] or [Queue(USERS)]
    asked = {**({"policy": policy} if policy else {}), **({} if history is None else {"history": history})}
    return [msgspec.structs.replace(root, **asked), *rest]


def _fits(nodes: list[Node], demand: Quantities, on: dict[str, list[str]]) -> bool:
    """True if some machine, empty, could hold a task."""
    return any(
        all(node.capacity.get(r, 0) >= q for r, q in demand.items())
        and all(node.labels.get(label) in values for label, values in on.items())
        for node in nodes
    )
