"""The results of a run: a summary, a table of jobs, and a table of samples."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.audit.over_time import one_task, standing
from fairlead.simulate.run import Run
from fairlead.simulate.workload import F64, TraceError

BINS = (1, 10, 100, 1000, 10_000)
"""Bins of jobs by number of tasks: up to each of these, and above the last."""


def bin_names() -> list[str]:
    """Return the names of the bins."""
    return ["1", *(f"{low + 1}-{high}" for low, high in itertools.pairwise(BINS)), f"over {BINS[-1]}"]


def bins(tasks: Any) -> Any:
    """Return the bin of each job."""
    return np.searchsorted(BINS, tasks)


def summary(run: Run) -> dict[str, Any]:
    """Summarize a run as plain data.

    Returns
    -------
    dict
        - ``makespan``: seconds from the first submission to the last end.
        - ``completion``, ``wait``, ``slowdown``: mean, median, p95 and p99 over the jobs that ended. Completion is from
          submission to last end, wait the mean over tasks, slowdown completion over the duration of the longest task.
        - ``by size``: number and mean completion of the jobs in each bin.
        - ``utilisation``: mean while jobs were submitted.
        - ``unfairness``: mean over time of half the sum over queues of the distance of dominant from fair share.
        - ``over time``: see :func:`over_time`.
        - ``idle for promises``: of each resource, the fraction of capacity times makespan kept free by reservations and claims.
        - ``offers``: by outcome, None without offers; ``offered``: the fraction in unanswered offers.
        - ``lost``: work of preempted tasks, in seconds of the whole cluster.
        - ``below guarantee``: seconds below guarantee with demand that a claim could serve, summed over queues, from samples. Of
          nested queues the lowest count.
        - ``replay``: how far tasks start from their real starts, None if these are unknown; see :class:`Run`.
        - ``seconds``: real time of the simulation, the only number that differs from run to run.
    """
    over = ~np.isnan(run.ended)
    completion = (run.ended - run.submitted)[over]
    wait = (run.waited / np.maximum(1, run.workload.tasks))[over]
    slowdown = completion / np.maximum(longest_task(run)[over], 1e-9)
    size = bins(run.workload.tasks[over])
    while_submitted = run.at <= run.submitted[-1]
    by_size = {
        name: {"jobs": int((size == k).sum()), "mean completion": float(completion[size == k].mean())}
        for k, name in enumerate(bin_names())
        if (size == k).any()
    }
    used = run.utilisation[while_submitted]
    return {
        "workload": run.workload.name,
        "policy": run.policy,
        "jobs": len(run.submitted),
        "ended": int(over.sum()),
        "refused": int(run.refused.sum()),
        "tasks": int(run.completed),
        "makespan": float(np.nanmax(run.ended) - run.submitted[0]) if over.any() else 0.0,
        "completion": _spread(completion),
        "wait": _spread(wait),
        "slowdown": _spread(slowdown),
        "by size": by_size,
        "utilisation": dict(zip(run.resources, used.mean(axis=0).tolist() if len(used) else [], strict=False)),
        "over time": over_time(run),
        "unfairness": float(unfairness(run).mean()) if len(run.at) else 0.0,
        "idle for promises": idle_for_promises(run),
        "offers": run.offers,
        "offered": _part_of_all(run, run.offered),
        "revoked": run.revoked,
        "revokes": run.revokes,
        "lost": run.lost,
        "below guarantee": run.missed,
        "decisions": run.decisions,
        "steps": run.steps,
        "replay": run.replay,
        "notes": [*run.workload.notes, *run.notes],
        "seconds": round(run.seconds, 3),
    }


def idle_for_promises(run: Run) -> dict[str, float]:
    """Return, of each resource, the fraction of capacity times makespan kept free by reservations and claims."""
    return _part_of_all(run, dict(zip(run.resources, run.idled.tolist(), strict=True)))


def _part_of_all(run: Run, amounts: Mapping[str, float]) -> dict[str, float]:
    """Divide amounts (base units times seconds) by capacity times makespan."""
    lasted = float(np.nanmax(run.ended, initial=run.submitted[0]) - run.submitted[0])
    there = {resource: sum(node.capacity.get(resource, 0) for node in run.workload.nodes) for resource in run.resources}
    return {
        resource: amounts.get(resource, 0.0) / (there[resource] * lasted) if there[resource] and lasted else 0.0
        for resource in run.resources
    }


def unfairness(run: Run) -> F64:
    """Return, per sample, the share of the cluster that would change hands if all got their fair dominant shares."""
    return np.abs(run.shares - run.fair).sum(axis=1) / 2


def over_time(run: Run) -> dict[str, Any]:
    """Compare what each queue was entitled to and got, in hours of the whole cluster, as `fairlead audit --over` does.

    Returns
    -------
    dict
        ``short``: the sum of shortfalls over the sum of entitlements. ``queues``: ``name``, ``entitled``, ``got`` (exact),
        ``short`` and ``status`` of each, most wronged first. ``every``: seconds that a sample of the entitlements stands for, 0
        where every moment was measured.
    """
    got = run.got / 3600
    entitled = np.maximum(0.0, got + run.short / 3600)
    tolerances = _one_task(run) / 3600
    found = [
        {
            "name": name, "entitled": due, "got": has, "short": due - has,
            "status": standing(due - has, due, tolerated),
        }
        for name, due, has, tolerated in zip(
            run.queues, entitled.tolist(), got.tolist(), tolerances.tolist(), strict=True
        )
        if due > 0 or has > 0
    ]  # fmt: skip
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
    total = np.array([sum(node.capacity.get(r, 0) for node in workload.nodes) for r in run.resources], float)
    needs = np.array([[demand.get(r, 0) for r in run.resources] for demand in workload.demands], float)
    share = (needs / np.where(total > 0, total, 1)).max(axis=1, initial=0.0)[workload.shape]
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


def write_parquet(runs: list[Run], folder: Path) -> list[Path]:
    """Write `jobs.parquet`, a row per job and run, and `moments.parquet`, a row per sample, run and queue or resource.

    Raises TraceError if pyarrow is not installed, or the folder cannot be written.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise TraceError("Parquet needs pyarrow: pip install 'fairlead[simulate]'") from None
    jobs, moments = [], []
    for run in runs:
        n, m = len(run.submitted), len(run.at)
        jobs.append(
            pa.table(
                {
                    "policy": [run.policy] * n,
                    "job": np.arange(n),
                    "queue": run.workload.queue,
                    "tasks": run.workload.tasks,
                    "submitted": run.submitted,
                    "begun": pa.array(run.begun, from_pandas=True),
                    "ended": pa.array(run.ended, from_pandas=True),
                    "waited": run.waited / np.maximum(1, run.workload.tasks),
                    "refused": run.refused,
                }
            )
        )
        named = [
            ("utilisation", run.resources, run.utilisation),
            ("share", run.queues, run.shares),
            ("fair share", run.queues, run.fair),
        ]
        for what, names, values in named:
            moments.append(
                pa.table(
                    {
                        "policy": [run.policy] * (m * len(names)),
                        "at": np.repeat(run.at, len(names)),
                        "what": [what] * (m * len(names)),
                        "of": names * m,
                        "value": values.ravel(),
                    }
                )
            )
    found = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, tables in (("jobs", jobs), ("moments", moments)):
            found.append(folder / f"{name}.parquet")
            parquet.write_table(pa.concat_tables(tables), found[-1])
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from None
    return found
