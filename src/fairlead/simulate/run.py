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
from typing import Any

import msgspec
import numpy as np

from fairlead.engines.simulated import SimulatedCluster
from fairlead.engines.step import Scheduler
from fairlead.failure import failing
from fairlead.journal import Unrecorded
from fairlead.model.documents import Configuration
from fairlead.model.quantity import check_total
from fairlead.model.specs import ROOT, USERS, Node, Queue, Settings
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
from fairlead.simulate import baselines
from fairlead.simulate.configured import ABOUT_NODES, names_users, own_policy, reconfigured, unused
from fairlead.simulate.many_steps import by_many_steps
from fairlead.simulate.offers import Answers, OfferedCluster, Offers
from fairlead.simulate.steps import Recorder, Sampler, Simulation, Watch, by_steps, job_of
from fairlead.simulate.workload import F64, I64, Bools, TraceError, Workload, check_leaves, moved

Record = Callable[[Sequence[Fact]], None]
SAMPLES = 400
"""Samples of shares and utilisation while jobs are submitted; sampling goes on at the same rate after that."""
SLOT = "slot"
KEEP_JOBS = 20_000
"""Ended jobs to keep, whatever is configured: few, but enough that not every other step forgets some. No decision reads an ended
job: forecasts have histograms of their own, and who comes after it may start."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The outcome of a workload under one policy. Sums over time are of the measured time, which begins at `since`.

    submitted, begun, ended : float64, shape (jobs,): seconds; NaN if it did not happen
    waited : float64, shape (jobs,): seconds between submission and start, summed over the job's tasks
    refused : bool, shape (jobs,): jobs not run, because no empty machine (or slot, without overcommit) holds a task
    at : float64, shape (samples,)
    utilisation : float64, shape (samples, resources): real use as a fraction of capacity; over 1 where slots overcommit
    shares, fair : float64, shape (samples, queues): actual and entitled dominant shares (:mod:`fairlead.scheduler.entitlements`):
        DRF down the tree, over running and pending tasks
    waiting : int64, shape (samples,): pending tasks
    since : the first submission, or the end of the warm-up
    got, short : float64, shape (queues,): dominant shares times seconds: what each queue had, exactly; and what it was entitled
        to less that, from samples
    used : float64, shape (queues, resources): what each queue used, exactly, in base units times seconds
    every : seconds that a sample of `short` stands for; 0 where every moment was measured
    revokes : True if preemption for guarantees and fair shares was on
    lost : work of preempted tasks, in seconds of the whole cluster: seconds times dominant share
    missed : seconds below guarantee, summed over the queues, from samples: pending jobs would have been within it
        (:func:`fairlead.scheduler.kernel.scheduling.below_guarantee`)
    idled : float64, shape (resources,): free resources kept idle by reservations and claims, in base units times seconds
    seconds : real time that the simulation took, without its preparation
    offers : offers by outcome: made, accepted, declined, expired, rescinded; None without offers
    offered : resources in unanswered offers, in base units times seconds
    replay : how far tasks start from their real starts; None if no real start is known. ``tasks``: how many have both; ``median``
        and ``p90``: of the distance, in seconds; ``not begun``: how many really began, and not here
    """

    workload: Workload
    policy: str
    queues: list[str]
    resources: list[str]
    submitted: F64
    begun: F64
    ended: F64
    waited: F64
    refused: Any
    at: F64
    utilisation: F64
    shares: F64
    fair: F64
    waiting: I64
    since: float
    got: F64
    used: F64
    short: F64
    every: float
    missed: float
    completed: int
    withdrawn: int
    decisions: int
    steps: int
    revokes: bool
    idled: F64
    seconds: float
    revoked: int = 0
    lost: float = 0.0
    offers: dict[str, int] | None = None
    offered: Mapping[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    replay: dict[str, float] | None = None


def simulate(
    workload: Workload, policy: str = "", *, settings: Settings | None = None, history: float | None = None,
    samples: int = SAMPLES, warm_up: float = 0.0, watch: Watch | None = None, record: Record | None = None,
    progress: Callable[[float], None] | None = None, compiled: bool = True, offers: Answers | None = None,
) -> Run:  # fmt: skip
    """Run a workload under a policy.

    Long because it documents every parameter.

    Raises TraceError for no machines or no jobs, or a job in an inner queue, or that no framework could launch; PolicyError for a
    policy that is unknown, or cannot run this workload.

    policy : of the root, by default that of the tree, and inherited where the tree names no other: any live policy; ``slots``,
        ``slots:K`` and ``slots:K:overcommit``; or a baseline without queues, such as ``easy``
        (:mod:`fairlead.simulate.baselines`), which uses only `samples`, `warm_up` and `progress` of the parameters below
    settings : of the scheduler throughout; by default those of the workload
    history : half-life of past usage at the root, in seconds; 0 for none. By default that of the tree, else a day
    samples : samples of shares while jobs are submitted
    warm_up : seconds from the start of the workload that are simulated but not measured
    watch : called after each moment with the state and its facts; turns compiled steps off
    record : called with all facts, in order
    progress : called now and then with the fraction of tasks that have ended
    compiled : allows compiled steps where possible; the facts are the same
    offers : how frameworks answer offers (:mod:`fairlead.simulate.offers`); turns compiled steps off
    """
    asked, policy = policy, policy or own_policy(workload)
    _check(workload, warm_up)
    origin, workload = workload.origin, moved(workload, workload.origin)
    baseline, by_easy = baselines.baseline_of(policy), bool(baselines.order_of(policy))
    if baseline is None:
        check_leaves(workload)
    seen, scheduling, notes, overcommitted = _as_scheduled(workload, policy)
    notes += unused(workload, offers is not None) if baseline is None else []
    workload = _as_asked(workload, scheduling if asked else "", settings, history, offers)
    held = baselines.held_when_empty(seen)[seen.shape]
    refused, too_large = held == 0, seen.gang & (seen.tasks > held)
    cluster = (SimulatedCluster if offers is None else OfferedCluster)(
        seen.nodes, workload.capacity, workload.needs[workload.shape], workload.leaf, len(workload.leaves), workload.tasks,
        workload.duration, workload.first, workload.varied, overcommitted, too_large,
    )  # fmt: skip
    cluster.now = origin
    if baseline is not None:
        refused |= too_large
    else:
        notes += _refuse(workload, refused)
    for job in sorted(workload.after):  # nor what depends on a refused job
        refused[job] |= refused[workload.after[job]].any()
    total = int(workload.tasks[~refused].sum())
    since = max(float(workload.submit[0]), warm_up + origin)
    least = _least_seconds(workload, ~refused, cluster.truth.total)
    sampler = Sampler(cluster, workload, least, samples, total, since)
    starts = np.full(len(workload.begun), np.nan) if baseline is None and len(workload.begun) else None

    def on_progress() -> None:
        if progress is not None:
            progress(cluster.completed / max(1, total))

    if baseline is not None or by_easy:
        _check_baseline(workload, policy, baseline, offers)
    if baseline is not None:
        if watch is not None or record is not None:
            raise PolicyError(f"{policy}: has no scheduler to watch, and no facts: it is a baseline")

        def sample(now: float) -> float:
            sampler.advance(now)
            on_progress()
            return sampler.pause

        began = time.perf_counter()
        counted = baselines.by_line(workload, cluster, baseline, ~refused, sample, since)
    else:
        if workload.queues[0].history == 0.0 and isinstance(find_policy(scheduling), OverTime):
            raise PolicyError(f"{policy}: needs usage history: name a half-life such as 7d, not none")
        driven = None
        if offers is not None and isinstance(cluster, OfferedCluster):
            driven = Offers(offers, seen, cluster, workload.settings.offer_timeout)
        scheduler, recorder = _scheduler(cluster, workload, by_easy, record, starts)
        sampler.state = scheduler.state
        live = Simulation(seen, workload, scheduler, cluster, refused, sampler, recorder, watch, on_progress, driven)
        sampler.on_begin = lambda: _count_from(live, since)
        began = time.perf_counter()
        counted = _by_scheduler(live, compiled)
    seconds = time.perf_counter() - began
    notes += _notes(cluster, refused, slots=scheduling == f"maxmin:{SLOT}")
    truth = cluster.truth
    return Run(
        workload=moved(workload, -origin), policy=policy, queues=workload.leaves, resources=workload.resources,
        submitted=workload.submit - origin, begun=truth.begun - origin, ended=truth.ended - origin, waited=truth.waited,
        refused=refused, since=since - origin, **sampler.columns(origin), completed=cluster.completed,
        withdrawn=cluster.withdrawn, revokes=workload.settings.revoke, **counted,
        seconds=seconds, notes=notes, replay=None if starts is None else _replay(workload, starts),
    )  # fmt: skip


def _check(workload: Workload, warm_up: float) -> None:
    """Raise TraceError for a workload with nothing to simulate or to measure."""
    name = workload.name
    if not workload.nodes:
        raise TraceError(f"{name}: there are no machines: name some with --nodes and --node, or --config")
    with failing(f"{name}: ", ValueError, to=TraceError):
        check_total(node.capacity for node in workload.nodes)
    if not len(workload.submit):
        raise TraceError(f"{name}: there are no jobs in this part of it")
    if warm_up > workload.submit[-1]:
        last = f"the last job comes at {workload.submit[-1]:g} s"
        raise TraceError(f"{name}: a warm-up of {warm_up:g} s leaves nothing to measure: {last}")


def _check_baseline(workload: Workload, policy: str, baseline: baselines.Baseline | None, offers: Answers | None) -> None:
    """Raise PolicyError if a baseline, or EASY's rule in the order of a policy, cannot run this."""
    if baseline is not None and workload.after:
        raise PolicyError(f"{policy}: does not support jobs that come after others: it is a baseline")
    if offers is not None:
        raise PolicyError(f"{policy}: makes no offers: it is a baseline")
    policies = [queue.policy for queue in workload.queues if queue.policy and baseline is None]
    if any(code_of(each, workload.resources) == HDRF for each in policies):
        raise PolicyError(f"{policy}: cannot serve queues by hdrf: choose another order")


def _by_scheduler(s: Simulation, compiled: bool) -> dict[str, Any]:
    """Run a simulation with the live scheduler; return what was counted, as :class:`Run` names it."""
    w, recorder, offers = s.workload, s.recorder, s.offers
    plain = compiled and s.watch is None and offers is None and not w.changes and not w.settings.max_jobs_of
    steps = (by_many_steps if plain else by_steps)(s)
    idled = _idled(s.scheduler.state, w, s.cluster.now) - recorder.idled_before
    of_offers = {} if offers is None else {"offers": dict(offers.counts), "offered": offers.offered}
    return {
        "decisions": recorder.decisions, "steps": steps, "idled": idled, "revoked": recorder.revoked, "lost": recorder.lost,
        **of_offers,
    }  # fmt: skip


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


def _refuse(workload: Workload, refused: Bools) -> list[str]:
    """Mark the jobs that the scheduler would not accept; return a note. If the configuration changes, it accepted all."""
    if not any(queue.draining or queue.largest_task is not None for queue in workload.queues) or any(
        isinstance(fact, Configured) for fact in workload.changes
    ):
        return []
    state = State()
    apply(state, Configured(at=0.0, queues=workload.queues, settings=workload.settings))
    by_name = np.unique(workload.leaves, return_inverse=True)[1][workload.leaf]
    _, first, which = np.unique(by_name * len(workload.demands) + workload.shape, return_index=True, return_inverse=True)
    bad, notes = np.zeros(len(first), np.bool_), []
    for kind, job in enumerate(first.tolist()):
        try:
            check_queues(state, job_of(workload, job))
        except Refused as why:
            bad[kind] = True
            count, leaf = int((which == kind).sum()), workload.leaves[workload.leaf[job]]
            notes.append(f"{count:,} of the jobs of {leaf} were refused: {why}")
    refused |= bad[which]
    return notes


def _count_from(s: Simulation, at: float) -> None:
    """Forget what was counted until `at`, up to which nothing changes."""
    s.recorder.revoked, s.recorder.lost = 0, 0.0
    s.recorder.idled_before = _idled(s.scheduler.state, s.workload, at)
    if s.offers is not None:
        s.offers.count_from(s.scheduler.state, at)


def _scheduler(
    cluster: SimulatedCluster, workload: Workload, by_easy: bool, record: Record | None, starts: F64 | None
) -> tuple[Scheduler, Recorder]:
    """Return a configured scheduler that knows the cluster's nodes, and the recorder of its decisions."""
    settings = workload.settings
    if by_easy:  # nothing is preempted for a baseline
        settings = msgspec.structs.replace(settings, revoke=False)
    scheduler = Scheduler(Unrecorded(), cluster, lambda: cluster.now, repeat_after=np.inf, strict=True)
    recorder = Recorder(record, scheduler.state, cluster, starts)
    scheduler.on_record = recorder
    scheduler.step([lambda state, now: [Configured(at=now, queues=workload.queues, settings=settings)]])
    while cluster.next_event() == cluster.now:
        scheduler.step()
    scheduler.state.order.counts[BY_EASY] = by_easy
    return scheduler, recorder


def _idled(state: State, workload: Workload, now: float) -> F64:
    """Return what reservations and claims kept idle, base units times seconds; slots count as their part of a machine."""
    idled = dict(zip(state.resources, idled_by_queue(state, now).sum(axis=0).tolist(), strict=True))
    if workload.nodes and SLOT in idled and SLOT not in workload.resources:
        part = idled[SLOT] / max(1, int(state.cluster.total[state.resources.index(SLOT)]))
        return part * workload.capacity.sum(axis=0)
    return np.array([idled.get(resource, 0.0) for resource in workload.resources])


def _notes(cluster: SimulatedCluster, refused: Bools, slots: bool) -> list[str]:
    """Say what did not run, and why."""
    notes, stuck = [], int(((cluster.truth.left > 0) & ~refused).sum())
    if refused.any():
        what = "slot" if slots else "machine"
        are, theirs = ("jobs were", "theirs") if refused.sum() > 1 else ("job was", "it")
        notes.append(f"{int(refused.sum()):,} {are} refused: no {what} holds a task of {theirs}")
    if stuck:
        which, them = ("jobs", "them") if stuck > 1 else ("job", "it")
        notes.append(f"{stuck:,} {which} never ended: a limit, kept room, or a gang that does not fit, kept {them} waiting")
    return notes


def _least_seconds(workload: Workload, which: Bools, capacity: I64) -> float:
    """Return a lower bound of the time for these jobs: until the last submission, and by work over capacity."""
    needs = workload.needs[workload.shape[which]].astype(float)
    work = workload.work[which] @ needs / np.maximum(capacity, 1)
    return max(float(workload.submit[-1] - workload.submit[0]), float(work.max(initial=0.0)))


def check_policy(policy: str) -> None:
    """Raise PolicyError for a policy that :func:`simulate` never accepts."""
    if policy != "slots" and baselines.baseline_of(policy) is None:
        find_policy(baselines.order_of(policy) or policy, baselines.BASELINES)


def _as_scheduled(workload: Workload, policy: str) -> tuple[Workload, str, list[str], bool]:
    """Return the workload and the policy as the scheduler sees them, notes on choices, and True for overcommit."""
    notes: list[str] = []
    baseline = baselines.baseline_of(policy)
    if baseline is not None:
        if workload.changes:
            raise PolicyError(
                f"{policy}: cannot replay machines, jobs or a configuration that change, as those of {workload.name}: it is a "
                "baseline"
            )
        return workload, policy, baselines.notes_on(workload, policy, baseline), False
    changes, policy = workload.changes, baselines.order_of(policy) or policy
    if policy.partition(":")[0] != "slots":
        if not hasattr(find_policy(policy, baselines.BASELINES), "divide"):
            raise PolicyError(f"{policy}: has no method divide(problem), by which queues are ordered: it only allocates")
        if policy == "fairtree" and "cpu" not in workload.resources:
            policy = f"fairtree:{workload.resources[0]}"
            notes.append(f"fairtree: there are no CPUs, so it bills {workload.resources[0]}")
        unknown = sorted(set(resources_of(policy)) - set(workload.resources))
        if unknown:
            raise PolicyError(f"{policy}: unknown resource {unknown[0]!r}: use one of {', '.join(workload.resources)}")
        return workload, policy, notes, False
    if policy == "slots":
        policy = f"slots:{_default_slots(workload)}:overcommit"
        many = policy.split(":")[1]
        notes.append(f"slots: {many} a machine, as many median tasks as fit on the first; larger tasks overcommit")
    chosen: Any = find_policy(policy)
    assert isinstance(chosen, Slots)
    if any(isinstance(fact, ABOUT_NODES) for fact in changes):
        raise PolicyError(f"{policy}: cannot replay machines that come and go, as those of {workload.name}: use --nodes")
    baselines.refuse_bounds(workload, "slots")
    nodes = [Node(node.name, {SLOT: chosen.slots * 1000}, node.labels) for node in workload.nodes]
    holds = (workload.needs <= workload.capacity.max(axis=0) // chosen.slots).all(axis=1)
    demands = [{SLOT: 1000 if fits or chosen.overcommit else 10**15} for fits in holds.tolist()]
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
