"""Cost and benefit of reservations: real traces with and without gangs, beside no reservations and the baselines.

The cluster is small, so that jobs wait (:func:`bench.outlooks.busy`). Large jobs are openb's pods with eight GPUs, and in
Facebook's days those that take 5 to 50% of the cluster with all tasks at once. With gangs a large job starts as a whole; of
openb, `AT_ONCE` equal pods form a gang. A second table shows the CPU time that history, forecasts and reservations add.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bench.forecasts import data_folder
from bench.heart import one_task_jobs
from bench.outlooks import busy
from bench.simulate import workload as many_alike
from fairlead.model.specs import Settings
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.state import State
from fairlead.simulate.measure import idle_for_promises
from fairlead.simulate.run import Run, simulate
from fairlead.simulate.traces import read_trace
from fairlead.simulate.workload import Bools, Jobs, Workload, cut

NEVER = 1e15
AT_ONCE = 4
"""Pods of openb per gang."""

WAYS: dict[str, Callable[[Workload], Run]] = {
    "no reservations": lambda case: simulate(case, "drf", settings=Settings(reserve_after=NEVER), samples=20),
    "reservations": lambda case: simulate(case, "drf", samples=20),
    "reservations, one leaf": lambda case: simulate(in_one_leaf(case), "drf", samples=20),
    "fifo-strict": lambda case: simulate(case, "fifo-strict", samples=20),
    "easy": lambda case: simulate(case, "easy", samples=20),
    "easy, fair order and forecasts": lambda case: simulate(case, "easy:drf", samples=20),
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


def in_one_leaf(case: Workload) -> Workload:
    """Put all jobs into one leaf: first come, first served."""
    return replace(case, leaf=np.zeros_like(case.leaf), leaves=["all"], queues=[])


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


def line(name: str, runs: list[Run]) -> str:
    """Return a line for several runs: waits of all, large and other jobs, and idle resources."""
    wait = np.concatenate([run.waited / run.workload.tasks for run in runs])
    ran = np.concatenate([~np.isnan(run.ended) for run in runs])
    large = np.concatenate([large_jobs(run.workload) for run in runs])
    columns = []
    for which in (ran, ran & large, ran & ~large):
        columns += [wait[which].mean(), np.quantile(wait[which], 0.99)]
    idle = np.mean([max(idle_for_promises(run).values()) for run in runs])
    return f"{name:<40}" + "".join(f"{x:>13,.0f}" for x in columns) + f"{idle:>9.2%}{int((~ran).sum()):>8,}"


def cases(scale: float) -> list[tuple[str, list[Workload]]]:
    """Return the available traces; openb on twelve sets of its machines, because few machines make results noisy."""
    found = []
    for name, case in busy(scale):
        if name == "openb":
            nodes = read_trace(data_folder() / "openb").nodes
            found.append((name, [replace(case, nodes=nodes[k::24]) for k in range(0, 24, 2)]))
        else:
            found.append((name, [case]))
    return found


def shown(scale: float) -> None:
    """Print a line for each trace, with and without gangs, and each way to schedule."""
    heads = ("mean wait, s", "p99", "of large", "p99", "of others", "p99")
    print(f"{'':<40}" + "".join(f"{head:>13}" for head in heads) + f"{'idle':>9}{'not run':>8}")
    for name, traces in cases(scale):
        for gangs in (False, True):
            chosen = [with_gangs(trace) if gangs else trace for trace in traces]
            large, jobs = int(large_jobs(chosen[0]).sum()), len(chosen[0].submit)
            print(f"{name}{', gangs' * gangs}: {large:,} of {jobs:,} jobs are large")
            for way, how in WAYS.items():
                print(line(f"  {way}", [how(case) for case in chosen]), flush=True)


def seconds(case: Workload, **more: Any) -> float:
    began = time.process_time()
    simulate(case, samples=20, **more)
    return time.process_time() - began


def added(case: Workload, rounds: int = 5) -> tuple[float, float]:
    """Return what reservations alone, and with history, add to CPU time: medians of paired runs, as fractions."""
    ratios = []
    for _ in range(rounds):
        bare = seconds(case, settings=Settings(reserve_after=NEVER), history=0.0)
        both = seconds(case), seconds(case, history=0.0)
        ratios.append((both[1] / bare - 1, both[0] / bare - 1))
    without, found = np.median(np.array(ratios), axis=0).tolist()
    return without, found


def _note(view: Any, rows: Any, lasted: Any) -> None:
    for k in range(len(rows)):
        scheduling.note_duration(view, rows[k], 0, lasted[k], 1.0 * k)


def noting(case: Workload, count: int = 200_000) -> float:
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


def costs(scale: float) -> None:
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
        bare = seconds(case, settings=Settings(reserve_after=NEVER), history=0.0)
        without, both = added(case)
        noted = noting(case) * float(case.tasks.sum())
        forecasts = noted / max(1e-9, bare - noted)
        print(f"{name:<40}{without:>14.0%}{both:>14.0%}{forecasts:>14.0%}{(1 + both) * (1 + forecasts) - 1:>10.0%}", flush=True)


def gangs_of_2010(scale: float) -> list[tuple[str, Workload]]:
    return [(name, with_gangs(case)) for name, case in busy(scale) if name == "FB-2010"]


def run(scale: float = 1.0) -> None:
    """Print both tables."""
    print("## Promises")
    shown(scale)
    costs(scale)
