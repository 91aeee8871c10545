"""Worlds for the model of promises: newcomers beside a long-running queue, and real traces."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.forecasts import data_folder
from bench.promises import large_jobs, with_gangs
from bench.promises_cluster import Job, World
from bench.promises_model import Model, Rules
from fairlead.simulate.traces import Derivation, read_swim, read_trace
from fairlead.simulate.workload import Workload, cut, synthetic_nodes

FOREVER = 10**9


@dataclass(frozen=True)
class Kind:
    """Tasks that a queue always has: `size` is one task's demand, `lasts` seconds, `sigma` of its logarithm."""

    size: tuple[float, ...]
    lasts: float
    sigma: float = 0.0
    gang: int = 0

    def durations(self, rng: np.random.Generator, count: int = 997) -> np.ndarray:
        return self.lasts * np.exp(self.sigma * rng.standard_normal(count) - self.sigma**2 / 2)


def always(leaf: str, kind: Kind, at: float, rng: np.random.Generator, gangs: int = 4000) -> list[Job]:
    """Return jobs that never run out."""
    if kind.gang:
        return [Job(at, leaf, kind.size, kind.durations(rng, kind.gang), kind.gang, True) for _ in range(gangs)]
    return [Job(at, leaf, kind.size, kind.durations(rng), FOREVER)]


def newcomers(
    name: str,
    nodes: list[tuple[float, ...]],
    first: Kind,
    later: dict[str, Kind],
    seed: int = 0,
    weights: dict[str, float] | None = None,
    longest: float | None = None,
    times: float = 30.0,
) -> tuple[World, float, float]:
    """Return a world in which queue a has all, its tasks out of phase, until others come; when that is, and the longest task."""
    rng = np.random.default_rng(seed)
    fill = math.floor(min(sum(n[r] for n in nodes) / d for r, d in enumerate(first.size) if d > 0))
    phases = first.lasts * rng.uniform(0.02, 1, fill)
    longest = longest or max(k.lasts for k in (first, *later.values()))
    at = 2.0 * longest
    jobs = [Job(0.0, "a", first.size, phases, fill), *always("a", first, 0.0, rng)]
    for leaf, kind in later.items():
        jobs += always(leaf, kind, at, rng)
    return World(name, nodes, jobs, weights or {}, at + times * longest), at, longest


@dataclass
class Shares:
    """What came of newcomers: parts of what they should have, by window."""

    worst: float
    reached: float  # longest tasks until the worst has its 80%
    at_zero: float  # longest tasks until all newcomers had started
    kept: float  # a's part
    idle: float
    plans: int


def shares_of(case: tuple[World, float, float], rules: Rules, fair: dict[str, float], enough: float = 0.8) -> Shares:
    """Run, and compare what each has with `fair`, its part of the cluster."""
    world, at, longest = case
    step = longest / 4
    model = Model(world, rules).run(step)
    times = np.array([t for t, _ in model.watch])
    have = np.array([[row[leaf] for leaf in fair] for _, row in model.watch]) / np.array(list(fair.values()))
    half = np.searchsorted(times, (at + times[-1]) / 2)
    rate = (have[-1] - have[half]) / (times[-1] - times[half])
    leaves = list(fair)
    news = [k for k, leaf in enumerate(leaves) if leaf != "a"]
    window = 12  # three of the longest tasks
    reached = math.inf
    for k in range(np.searchsorted(times, at), len(times) - window):
        if ((have[k + window] - have[k])[news] / (times[k + window] - times[k])).min() >= enough:
            reached = (times[k] - at) / longest
            break
    started = [times[np.argmax(have[:, k] > 0)] if have[-1, k] > 0 else math.inf for k in news]
    return Shares(
        rate[news].min(),
        reached,
        (max(started) - at) / longest,
        rate[leaves.index("a")] if "a" in fair else math.nan,
        day_idle(model),
        model.plans,
    )


def day_idle(model: Model) -> float:
    """Return the most that was idle for promises over any day, of the worst resource."""
    log = [*model.idle_log, (model.now, model.idle)]
    times = np.array([t for t, _ in log])
    idle = np.array([x for _, x in log]) / np.array(model.capacity)
    before = np.maximum(np.searchsorted(times, times - 86400.0), 0)
    return float(((idle - idle[before]) / 86400.0).max())


def plain(
    n: int, nodes: int, cpus: int, a: Kind, b: Kind, seed: int = 0, times: float = 30.0
) -> tuple[tuple[World, float, float], dict[str, float]]:
    later = {f"n{k:02}": b for k in range(n)}
    total = nodes * cpus
    case = newcomers(f"{n} on {nodes}x{cpus}", [(float(cpus),)] * nodes, a, later, seed, times=times)
    packed = nodes * (cpus // b.size[0]) * b.size[0]
    part = min(1 / (n + 1), packed / n / total)
    return case, {"a": 1 / (n + 1), **dict.fromkeys(later, part)}


def others(seed: int) -> list[tuple[str, tuple[World, float, float], dict[str, float]]]:
    """Return worlds of several resources, weights, trees, gangs, durations that vary, whole nodes, and past use."""
    found = []
    one, news = Kind((1.0,), 100.0), [f"n{k:02}" for k in range(10)]
    even = dict.fromkeys(["a", *news], 1 / 11)
    ten = [(4.0,)] * 10
    varied = {leaf: Kind((2.0,), 20.0, 1.0) for leaf in news}
    found.append(("lognormal durations", newcomers("", ten, Kind((1.0,), 100.0, 1.0), varied, seed), even))
    mixed = {leaf: Kind((float(1 + k % 4),), 20.0 * (1 + k % 3)) for k, leaf in enumerate(news)}
    found.append(("sizes of 1 to 4", newcomers("", ten, one, mixed, seed), even))
    whole = {leaf: Kind((8.0,), 100.0) for leaf in news}
    found.append(("whole nodes (10x8)", newcomers("", [(8.0,)] * 10, Kind((1.0,), 100.0), whole, seed), even))
    weights = {"a": 1.0, **{leaf: float(1 + k % 3) for k, leaf in enumerate(news)}}
    total = sum(weights.values())
    weighted = {leaf: Kind((2.0,), 20.0) for leaf in news}
    found.append(("weights 1 to 3", newcomers("", ten, one, weighted, seed, weights), {q: w / total for q, w in weights.items()}))
    tree = {
        **{f"lab/{leaf}": Kind((2.0,), 20.0) for leaf in news[:4]},
        **{f"team/{leaf}": Kind((3.0,), 30.0) for leaf in news[4:7]},
    }
    parts = {"a": 1 / 3, **{q: 1 / 12 if q[:3] == "lab" else 1 / 9 for q in tree}}
    found.append(("a tree of two levels (1x40)", newcomers("", [(40.0,)], one, tree, seed), parts))
    gangs = {leaf: Kind((1.0,), 60.0, 0.0, 8) for leaf in news[:4]}
    found.append(("gangs of 8 over nodes", newcomers("", ten, one, gangs, seed), dict.fromkeys(["a", *gangs], 1 / 5)))
    node = (16.0, 64.0, 4.0)
    three = {
        **{leaf: Kind((2.0, 4.0, 1.0), 60.0, 0.5) for leaf in news[:3]},
        **{leaf: Kind((1.0, 12.0, 0.0), 40.0, 0.5) for leaf in news[3:6]},
        **{leaf: Kind((4.0, 8.0, 2.0), 80.0, 0.5) for leaf in news[6:9]},
    }
    case = newcomers("", [node] * 6, Kind((1.0, 4.0, 0.0), 100.0, 0.5), three, seed)
    found.append(("three resources", case, dict.fromkeys(["a", *three], 1 / 10)))
    return found


def converted(case: Workload, load: float, name: str, longest: float = 86400.0) -> World:
    """Return a trace as a world that offers `load` of the scarcest resource; no task lasts longer than `longest`."""
    resources = case.resources
    nodes = [tuple(float(n.capacity.get(r, 0)) for r in resources) for n in case.nodes]
    total = np.array(nodes).sum(axis=0)
    large, jobs, work = large_jobs(case), [], np.zeros(len(resources))
    for j, at in enumerate(case.submit.tolist()):
        demand = tuple(float(case.demands[case.shape[j]].get(r, 0)) for r in resources)
        count = int(case.tasks[j]) if case.varied[j] else 1
        lasts = np.minimum(longest, case.duration[case.first[j] : case.first[j] + count])
        if any(all(d <= c for d, c in zip(demand, node, strict=True)) for node in nodes):
            jobs.append(
                Job(
                    at, case.queue[j], demand, lasts, int(case.tasks[j]), bool(case.gang[j]) and case.tasks[j] > 1, bool(large[j])
                )
            )
            work += np.array(demand) * lasts.mean() * int(case.tasks[j])
    speed = load * (jobs[-1].submit - jobs[0].submit) / (work / np.maximum(1.0, total)).max()
    for job in jobs:
        job.submit = (job.submit - case.submit[0]) / speed
    return World(name, nodes, jobs)


def openb(load: float, seed: int, gangs: bool = False, steady: bool = True) -> World:
    """Return openb's pods on a 24th of its machines."""
    trace = read_trace(data_folder() / "openb")
    case = replace(trace, nodes=trace.nodes[seed * 11 % 72 :: 72])
    world = converted(with_gangs(case) if gangs else case, load, f"openb{', gangs' * gangs}")
    if steady:  # most pods come in the last days of the trace: whatever the load, these are far above it
        last = world.jobs[-1].submit
        times = np.sort(np.random.default_rng(seed).uniform(0, last, len(world.jobs)))
        for job, at in zip(world.jobs, times.tolist(), strict=True):
            job.submit = at
    return world


def facebook(load: float, seed: int, gangs: bool = False, minutes: float = 15.0, fewer: int = 8, machines: int = 12) -> World:
    """Return a quarter of an hour of Facebook's day of 2010, with an eighth of each job's tasks, by other users for each seed."""
    day = read_swim(data_folder() / "facebook" / "FB-2010_samples_24_times_1hr_0.tsv", how=Derivation(seed=seed))
    begin = 3600.0 * (1 + 3 * seed)
    case = replace(cut(day, begin, begin + 60 * minutes), nodes=synthetic_nodes(machines, "cpu=12,memory=48GiB"))
    case = replace(case, tasks=np.maximum(1, case.tasks // fewer))
    return converted(with_gangs(case) if gangs else case, load, f"Facebook 2010{', gangs' * gangs}")


def waits(world: World, rules: Rules) -> tuple[float, float, float, float, int]:
    """Return the mean wait of jobs, that of large ones, the most that idled over a day, and plans."""
    world = replace(world, jobs=[replace(job) for job in world.jobs])
    model = Model(world, rules).run()
    wait = np.array([job.waited / job.tasks for job in world.jobs])
    large = np.array([job.large for job in world.jobs])
    idle = max(x / c / model.now for x, c in zip(model.idle, model.capacity, strict=True))
    return wait.mean(), wait[large].mean(), idle, day_idle(model), model.plans


WAYS = {"none": Rules("none"), "EASY": Rules("easy"), "FIFO EASY, truth": Rules("easy", "fifo", True), "debt": Rules()}
TRACES = (openb, False), (openb, True), (facebook, True)
NEWCOMER_WAYS: tuple[str, ...] = ("EASY", "debt")
SHORT = Kind((1.0,), 100.0), Kind((2.0,), 20.0), 30.0
LONG = Kind((1.0,), 3600.0), Kind((3.0,), 600.0), 20.0


def shown_newcomers(seed: int) -> None:
    """Print a line for each case of newcomers, and for each other world."""
    print("| newcomers | way | the worst has | 80% after | all started after | a has | idle | plans |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    cases = []
    for a, b, times in (SHORT, LONG):
        for nodes, cpus in ((1, 40), (10, 4)):
            for n in (1, 3, 10, 20, 50):
                case, fair = plain(n, nodes, cpus, a, b, seed, times)
                cases.append((f"{n} on {nodes}x{cpus}, {a.lasts:g} s", case, fair))
    for name, case, fair in [*cases, *others(seed)]:
        for way in NEWCOMER_WAYS:
            world, at, longest = case
            fresh = replace(world, jobs=[replace(job) for job in world.jobs])
            s = shares_of((fresh, at, longest), WAYS[way], fair)
            print(
                f"| {name} | {way} | {s.worst:.0%} | {s.reached:.2f} | {s.at_zero:.2f} | {s.kept:.0%} "
                f"| {s.idle:.2%} | {s.plans:,} |",
                flush=True,
            )


def shown_traces(seeds: list[int], builds: Any = TRACES) -> None:
    """Print a line for each trace, load and way: sums over the seeds."""
    print("| trace | load | way | mean wait, s | of none | of large, s | of none | idle | of a day | plans |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for build, gangs in builds:
        for load in (0.75, 0.95, 2.0):
            rows = {way: np.array([waits(build(load, s, gangs), rules) for s in seeds]) for way, rules in WAYS.items()}
            none = rows["none"].mean(axis=0)
            for way, found in rows.items():
                x = found.mean(axis=0)
                print(
                    f"| {build.__name__}{', gangs' * gangs} | {load:.0%} | {way} | {x[0]:,.0f} | {x[0] / none[0]:.2f} "
                    f"| {x[1]:,.0f} | {x[1] / none[1]:.2f} | {x[2]:.2%} | {found[:, 3].max():.2%} | {x[4]:,.0f} |",
                    flush=True,
                )


def run(scale: float = 1.0) -> None:
    """Print both tables, for the seeds that nothing was tuned on."""
    shown_newcomers(seed=7)
    shown_traces([3, 4, 5])
