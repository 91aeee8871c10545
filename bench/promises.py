"""Cost and benefit of reservations: real traces with and without gangs, beside no reservations and the baselines.

Arrivals are so fast that the most-used resource has each of LOADS, with SEEDS samples of each trace. Large jobs are openb's pods
with eight GPUs, and in
Facebook's days those that take 5 to 50% of the cluster with all tasks at once. With gangs a large job starts as a whole; of
openb, `AT_ONCE` equal pods form a gang. A second table shows the CPU time that history, forecasts and reservations add.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bench.heart import one_task_jobs
from bench.outlooks import busy, seeded
from bench.simulate import workload as many_alike
from fairlead.model.specs import Settings
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.state import State
from fairlead.simulate.measure import idle_for_promises
from fairlead.simulate.run import Run, simulate
from fairlead.simulate.workload import Bools, Jobs, Workload, cut

AT_ONCE = 4
"""Pods of openb per gang."""

LOADS, SEEDS = (0.75, 0.95, 2.0), 3

WAYS: dict[str, Callable[[Workload], Run]] = {
    "no reservations": lambda case: simulate(case, "drf", settings=Settings(idle_budget=0.0), samples=20),
    "reservations": lambda case: simulate(case, "drf", samples=20),
    "easy:drf": lambda case: simulate(case, "easy:drf", samples=20),
    "easy": lambda case: simulate(case, "easy", samples=20),
}


def large_jobs(case: Workload) -> Bools:
    """Mark the large jobs: shape (jobs,)."""
    gpus = np.array([demand.get("gpu", 0) for demand in case.demands])[case.shape]
    if gpus.any():
        return np.asarray(gpus * case.tasks >= 8000)
    total = [sum(node.capacity.get(r, 0) for node in case.nodes) for r in case.resources]
    need = np.array([[demand.get(r, 0) for r in case.resources] for demand in case.demands])[case.shape]
    share = (need * case.tasks[:, None] / np.maximum(1, total)).max(axis=1)
    return np.asarray((share >= 0.05) & (share <= 0.5))


def with_gangs(case: Workload) -> Workload:
    """Make gangs of large jobs; one-task jobs form gangs of `AT_ONCE` equal ones."""
    large = large_jobs(case)
    if (case.tasks > 1).any():
        return replace(case, gang=large & (case.tasks > 1))
    found, gathered = Jobs(), defaultdict[tuple[str, int], list[int]](list)
    for j in range(len(case.submit)):
        alike = gathered[case.queue[j], int(case.shape[j])] if large[j] else [j]
        if large[j]:
            alike.append(j)
        if not large[j] or len(alike) == AT_ONCE:
            lasts = [float(case.duration[case.first[k]]) for k in alike]
            shape = int(case.shape[j])
            found.add(
                float(case.submit[j]), case.queue[j], case.demands[shape], lasts, len(lasts), case.places[shape],
                gang=len(lasts) > 1, priority=int(case.priority[j]),
            )  # fmt: skip
            if large[j]:
                alike.clear()
    return found.workload(f"{case.name} with gangs", case.nodes, case.queues)


def at_load(case: Workload, load: float) -> Workload:
    """Return a workload that arrives so fast that its tasks, while jobs arrive, are this multiple of the most-used resource."""
    lasts = np.where(case.varied == 1, case.tasks, 1)
    each = (case.needs[case.shape] / case.capacity.sum(axis=0))[np.repeat(np.arange(len(lasts)), lasts)]
    each = each * np.repeat(np.where(case.varied == 1, 1, case.tasks), lasts)[:, None]
    low, high = 1e-3, 1e3
    while high > 1.001 * low:
        speed = (low * high) ** 0.5
        arrives = case.submit[-1] / speed
        found = float((np.minimum(case.duration, arrives)[:, None] * each).sum(axis=0).max()) / arrives
        low, high = (speed, high) if found < load else (low, speed)
    return cut(case, speed=low)


def shown(scale: float) -> None:
    """Print a line for each trace, with and without gangs, and each load: means over the samples."""
    columns = ("mean wait: none", *list(WAYS)[1:], "of the better", "large: none", "reservations", "of none", "idle")
    print(f"| trace | load | {' | '.join(columns)} |\n" + "| --- " * (len(columns) + 2) + "|")
    samples = [seeded(seed, scale) for seed in range(SEEDS)]
    for traces in zip(*samples, strict=True):
        for gangs in (False, True):
            for load in LOADS:
                chosen = [at_load(with_gangs(case) if gangs else case, load) for _, case in traces]
                runs = {way: [how(case) for case in chosen] for way, how in WAYS.items()}
                print(row(traces[0][0].split()[0] + ", gangs" * gangs, load, runs), flush=True)


def row(name: str, load: float, runs: dict[str, list[Run]]) -> str:
    """Return a line of the table: mean waits in seconds of all and of large jobs, and ratios."""
    every = {way: mean_wait(found, large=False) for way, found in runs.items()}
    none, kept = (mean_wait(runs[way], large=True) for way in ("no reservations", "reservations"))
    better = min(every["no reservations"], every["easy:drf"])
    idle = max(max(idle_for_promises(run).values()) for run in runs["reservations"])
    waits = " | ".join(f"{wait:,.0f}" for wait in every.values())
    ratios = f"{every['reservations'] / max(1e-9, better):.2f} | {none:,.0f} | {kept:,.0f} | {kept / max(1e-9, none):.2f}"
    return f"| {name} | {load:.0%} | {waits} | {ratios} | {idle:.2%} |"


def mean_wait(runs: list[Run], large: bool) -> float:
    """Return the mean wait of the jobs that ran, or of the large ones; a job's is the mean of its tasks'."""
    found = [(run.waited / run.workload.tasks)[~np.isnan(run.ended) & (large_jobs(run.workload) | (not large))] for run in runs]
    return float(np.concatenate(found).mean())


def seconds(case: Workload, **more: Any) -> float:
    began = time.process_time()
    simulate(case, samples=20, **more)
    return time.process_time() - began


def added(case: Workload, rounds: int = 5) -> tuple[float, float]:
    """Return what reservations alone, and with history, add to CPU time: medians of paired runs, as fractions."""
    ratios = []
    for _ in range(rounds):
        bare = seconds(case, settings=Settings(idle_budget=0.0), history=0.0)
        both = seconds(case), seconds(case, history=0.0)
        ratios.append((both[1] / bare - 1, both[0] / bare - 1))
    without, found = np.median(np.array(ratios), axis=0).tolist()
    return without, found


def _note(view: Any, rows: Any, lasted: Any) -> None:
    for k in range(len(rows)):
        scheduling.note_duration(view, rows[k], 0, lasted[k], 1.0 * k)


def noting(case: Workload, count: int) -> float:
    """Return the CPU seconds to record a task's duration: the cost of forecasts that nobody reads."""
    states: list[State] = []
    few = cut(case, end=float(case.submit[min(100, len(case.submit) - 1)]) + 1)
    simulate(few, watch=lambda state, facts: states.append(state), samples=1)
    state, rng = states[-1], np.random.default_rng(0)
    rows, lasted = rng.integers(0, state.jobs.n, count), rng.uniform(10, 200, count)
    _note(state.view(), rows[:1], lasted[:1])  # warm up
    began = time.process_time()
    _note(state.view(), rows, lasted)
    return (time.process_time() - began) / count


def costs(scale: float, rounds: int) -> None:
    """Print the CPU overhead of history, forecasts and reservations."""
    cases = {
        "one-task jobs, 1 machine, 80% load": one_task_jobs(round(60_000 * scale), 0.8),
        "one-task jobs, 1 machine, 400% load": one_task_jobs(round(60_000 * scale), 4.0),
        "jobs of 100 tasks, 1,000 machines": many_alike(1000, 100, round(10_000 * scale)),
        "Facebook 2010, 150 machines, gangs": dict(gangs_of_2010(scale)).get("FB-2010"),
    }
    print(f"{'added to the CPU time of a step':<40}{'reservations':>14}{'history too':>14}{'forecasts':>14}{'in all':>10}")
    for name, case in cases.items():
        if case is None:
            continue
        simulate(case, samples=20)
        bare = seconds(case, settings=Settings(idle_budget=0.0), history=0.0)
        without, both = added(case, rounds)
        noted = noting(case, round(200_000 * min(1.0, scale))) * float(case.tasks.sum())
        forecasts = noted / max(1e-9, bare - noted)
        print(f"{name:<40}{without:>14.0%}{both:>14.0%}{forecasts:>14.0%}{(1 + both) * (1 + forecasts) - 1:>10.0%}", flush=True)


def gangs_of_2010(scale: float) -> list[tuple[str, Workload]]:
    return [(name, with_gangs(case)) for name, case in busy(scale) if name == "FB-2010"]


def run(scale: float = 1.0, rounds: int = 5) -> None:
    """Print both tables; costs are medians of this many rounds."""
    print("## Promises")
    shown(scale)
    costs(scale, rounds)
