"""The results of a run: a summary, a table of jobs, and a table of samples."""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.audit.over_time import one_task, standing
from fairlead.failure import failing
from fairlead.simulate.run import Run
from fairlead.simulate.workload import F64, TraceError

BINS = (1, 10, 100, 1000, 10_000)
"""Bins of jobs by number of tasks: up to each of these, and above the last."""
BIN_NAMES = ["1", *(f"{low + 1}-{high}" for low, high in itertools.pairwise(BINS)), f"over {BINS[-1]}"]


def summary(run: Run, seed: int = 0) -> dict[str, Any]:
    """Summarize a run as plain data.

    With a warm-up, only jobs submitted after it count, and only what happened after it: but `tasks`, `decisions` and `steps` are
    those of the whole run.

    Returns
    -------
    dict
        - ``makespan``: seconds from the first submission, or the end of the warm-up, to the last end: the run.
        - ``completion``, ``wait``, ``slowdown``: mean, median, p95 and p99 over the jobs that ended. Completion is from
          submission to last end, wait the mean over tasks, slowdown completion over the duration of the longest task.
        - ``by size``: number and mean completion of the jobs in each bin.
        - ``utilisation``: mean over the run, exact.
        - ``unfairness``: mean over samples of half the sum over queues of the distance of dominant from fair share.
        - ``over time``: see :func:`over_time`.
        - ``idle for promises``: of each resource, the fraction of capacity times makespan kept free by reservations and claims.
        - ``offers``: by outcome, None without offers; ``offered``: the fraction in unanswered offers.
        - ``lost``: work of preempted tasks, in seconds of the whole cluster.
        - ``below guarantee``: seconds below guarantee with demand that a claim could serve, summed over queues, from samples. Of
          nested queues the lowest count.
        - ``replay``: how far tasks start from their real starts, None if these are unknown; see :class:`Run`.
        - ``seconds``: real time of the simulation, without reading and preparation. No other number differs from run to run.
    """
    counted = run.submitted >= run.since
    over = counted & ~np.isnan(run.ended)
    completion, wait, slowdown = (values[over] for values in _of_jobs(run))
    size = np.searchsorted(BINS, run.workload.tasks[over])
    by_size = {
        name: {"jobs": int((size == k).sum()), "mean completion": float(completion[size == k].mean())}
        for k, name in enumerate(BIN_NAMES)
        if (size == k).any()
    }
    return {
        "workload": run.workload.name, "policy": run.policy, "seed": seed, "jobs": int(counted.sum()), "ended": int(over.sum()),
        "refused": int(run.refused[counted].sum()), "tasks": int(run.completed), "makespan": _lasted(run),
        "completion": _spread(completion), "wait": _spread(wait), "slowdown": _spread(slowdown), "by size": by_size,
        "utilisation": _part_of_all(run, dict(zip(run.resources, run.used.sum(axis=0).tolist(), strict=True))),
        "over time": over_time(run), "unfairness": float(unfairness(run).mean()) if len(run.at) else 0.0,
        "idle for promises": idle_for_promises(run), "offers": run.offers, "offered": _part_of_all(run, run.offered),
        "revoked": run.revoked, "revokes": run.revokes, "lost": run.lost, "below guarantee": run.missed,
        "decisions": run.decisions, "steps": run.steps, "replay": run.replay, "notes": [*run.workload.notes, *run.notes],
        "seconds": round(run.seconds, 3),
    }  # fmt: skip


def _of_jobs(run: Run) -> tuple[F64, F64, F64]:
    """Return each job's completion, wait and slowdown."""
    completion = run.ended - run.submitted
    wait = run.waited / np.maximum(1, run.workload.tasks)
    return completion, wait, completion / np.maximum(longest_task(run), 1e-9)


def _lasted(run: Run) -> float:
    return max(0.0, float(np.nanmax(run.ended, initial=run.since) - run.since))


def idle_for_promises(run: Run) -> dict[str, float]:
    """Return, of each resource, the fraction of capacity times makespan kept free by reservations and claims."""
    return _part_of_all(run, dict(zip(run.resources, run.idled.tolist(), strict=True)))


def _part_of_all(run: Run, amounts: Mapping[str, float]) -> dict[str, float]:
    """Divide amounts (base units times seconds) by capacity times makespan."""
    lasted = _lasted(run)
    there = zip(run.resources, run.workload.capacity.sum(axis=0).tolist(), strict=True)
    return {name: amounts.get(name, 0.0) / (all_of * lasted) if all_of and lasted else 0.0 for name, all_of in there}


def unfairness(run: Run) -> F64:
    """Return, per sample, the share of the cluster that would change hands if all got their fair dominant shares."""
    return np.abs(run.shares - run.fair).sum(axis=1) / 2


def over_time(run: Run) -> dict[str, Any]:
    """Compare what each queue was entitled to and got, in hours of the whole cluster, as `fairlead audit --over` does.

    ``short``: the sum of shortfalls over the sum of entitlements. ``every``: seconds that a sample of the entitlements stands
    for, 0 where every moment was measured. ``queues``: of each, most wronged first, ``name``, ``entitled``, ``got`` (exact),
    ``short``, ``status``, ``share`` (mean dominant share over the run, exact), ``used`` (of each resource, exact), ``jobs``,
    ``ended``, and ``completion`` and ``wait`` as in :func:`summary`.
    """
    got = run.got / 3600
    entitled, lasted = np.maximum(0.0, got + run.short / 3600), _lasted(run)
    tolerances = _one_task(run) / 3600
    queue = np.where(run.submitted < run.since, len(run.queues), run.workload.leaf)
    jobs = np.split(np.argsort(queue, kind="stable"), np.cumsum(np.bincount(queue, minlength=len(run.queues) + 1)))
    completion, wait, _ = _of_jobs(run)
    found: list[dict[str, Any]] = []
    for k, name in enumerate(run.queues):
        due, has = float(entitled[k]), float(got[k])
        mine = jobs[k]
        over = mine[~np.isnan(run.ended[mine])]
        if due > 0 or has > 0 or len(mine):
            used = _part_of_all(run, dict(zip(run.resources, run.used[k].tolist(), strict=True)))
            found.append({
                "name": name, "entitled": due, "got": has, "short": due - has,
                "status": standing(due - has, due, float(tolerances[k])),
                "share": 3600 * has / lasted if lasted else 0.0, "used": used, "jobs": len(mine), "ended": len(over),
                "completion": _spread(completion[over]), "wait": _spread(wait[over]),
            })  # fmt: skip
    found.sort(key=lambda queue: -queue["short"])
    entitled_in_all = sum(queue["entitled"] for queue in found)
    return {
        "short": sum(max(0.0, queue["short"]) for queue in found) / entitled_in_all if entitled_in_all else 0.0,
        "every": run.every,
        "queues": found,
    }


def _one_task(run: Run) -> F64:
    """Return the largest started task of each queue: dominant share times seconds."""
    workload = run.workload
    total = np.maximum(1, workload.capacity.sum(axis=0))
    share = (workload.needs / total).max(axis=1, initial=0.0)[workload.shape]
    began = ~np.isnan(run.begun)
    found = np.zeros(len(run.queues))
    np.maximum.at(found, workload.leaf[began], one_task(share, longest_task(run))[began])
    return found


def longest_task(run: Run) -> F64:
    """Return the duration of the longest task of each job, in seconds."""
    workload = run.workload
    return np.maximum.reduceat(workload.duration, workload.first) if len(workload.first) else np.zeros(0)


def _spread(values: F64) -> dict[str, float]:
    if not len(values):
        return {}
    median, p95, p99 = np.percentile(values, [50, 95, 99])
    return {"mean": float(values.mean()), "median": float(median), "p95": float(p95), "p99": float(p99)}


def over_seeds(found: Sequence[Any]) -> Any:
    """Merge what several seeds gave.

    Of numbers ``{"mean", "interval"}``, the latter from :func:`half_width`; of tables, and of lists of tables with a ``name``,
    the same by key and name; of anything else, the first if all are equal, or None.
    """
    first = found[0]
    if all(isinstance(each, dict) for each in found):
        keys = dict.fromkeys(key for each in found for key in each)
        return {key: over_seeds([each[key] for each in found if key in each]) for key in keys}
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in found):
        mean, off = float(np.mean(found)), half_width(found)
        return {"mean": mean, "interval": None if off is None else [mean - off, mean + off]}
    if all(isinstance(each, list) and all(isinstance(row, dict) for row in each) for each in found) and any(found):
        named = [{row["name"]: row for row in each} for each in found]
        names = dict.fromkeys(name for each in named for name in each)
        return [{**over_seeds([each[name] for each in named if name in each]), "name": name} for name in names]
    return first if all(each == first for each in found) else None


def half_width(values: Sequence[float]) -> float | None:
    """Return half the width of the 95% confidence interval of a mean, by Student's t; None for less than two values.

    The values are independent draws, one a seed. The t interval is exact if they are normal.
    """
    if len(values) < 2:
        return None
    return _t95(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))


@cache
def _t95(freedom: int) -> float:
    """Return t with P(-t < T < t) = 0.95 (Abramowitz and Stegun, 26.7.3 and 26.7.4), by bisection of the angle."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        cosine, term, total = math.cos(angle), 1.0, 0.0
        if freedom % 2:
            term = cosine
        for k in range(freedom % 2, freedom - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        part = math.sin(angle) * total
        inside = 2 / math.pi * (angle + part) if freedom % 2 else part
        low, high = (angle, high) if inside < 0.95 else (low, angle)
    return math.tan(low) * math.sqrt(freedom)


def write_parquet(runs: Sequence[Run], folder: Path, seeds: Sequence[int] = ()) -> None:
    """Write `jobs.parquet`, a row per job and run, and `moments.parquet`, a row per sample, run and queue or resource.

    Raises TraceError if pyarrow is not installed, or the folder cannot be written.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise TraceError("Parquet needs pyarrow: pip install 'fairlead[simulate]'") from None
    jobs, moments = [], []
    for run, seed in zip(runs, seeds or [0] * len(runs), strict=True):
        n, m = len(run.submitted), len(run.at)
        jobs.append(pa.table({
            "policy": [run.policy] * n, "seed": np.full(n, seed), "job": np.arange(n), "queue": run.workload.queue,
            "tasks": run.workload.tasks, "submitted": run.submitted, "begun": pa.array(run.begun, from_pandas=True),
            "ended": pa.array(run.ended, from_pandas=True), "waited": run.waited / np.maximum(1, run.workload.tasks),
            "refused": run.refused,
        }))  # fmt: skip
        by_resource, shares, fair = (run.resources, run.utilisation), (run.queues, run.shares), (run.queues, run.fair)
        for what, (names, values) in (("utilisation", by_resource), ("share", shares), ("fair share", fair)):
            count = m * len(names)
            moments.append(pa.table({
                "policy": [run.policy] * count, "seed": np.full(count, seed), "at": np.repeat(run.at, len(names)),
                "what": [what] * count, "of": names * m, "value": values.ravel(),
            }))  # fmt: skip
    with failing(f"{folder}: cannot be written: ", OSError, to=TraceError):
        folder.mkdir(parents=True, exist_ok=True)
        for name, tables in (("jobs", jobs), ("moments", moments)):
            parquet.write_table(pa.concat_tables(tables), folder / f"{name}.parquet")
