"""Throughput and latency of Python calls: through fairlead, a ProcessPoolExecutor, and as Ray tasks.

Two workers each. A ProcessPoolExecutor passes calls through a pipe; fairlead also shares fairly, isolates tasks and enforces
limits. Then `map` and joblib over more calls, in chunks as large as the pool's; and an array there and back.
How fairly: two programs with calls and a queue with jobs, each with more than fits, and what each had by the journal.
"""

import concurrent.futures
import importlib.util
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from joblib.externals.loky import get_reusable_executor

import fairlead
from bench.end_to_end import scheduler
from fairlead.journal.journal import read_history
from fairlead.journal.sql import SqlStore
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.entitlements import parts_of


def square(x: int) -> int:
    return x * x


def fairness(cpus: int, seconds: float = 10.0) -> None:
    """Print what two programs and a queue of jobs had, relative to what DRF gives them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        scheduler(Path(folder), cpus, queues=("A", "B", "jobs")) as home,
        fairlead.Client(home, queue="A", memory=0) as one,
        fairlead.Client(home, queue="B", memory=0) as other,
    ):
        for client in (one, other):
            for _ in range(round(30 * cpus * seconds)):
                client.submit(time.sleep, 0.05)
        job = one.submit_job(["sleep", "0.3"], tasks=round(10 * cpus * seconds), queue="jobs", cpu=1)
        time.sleep(seconds / 2)
        since = time.time()
        time.sleep(seconds)
        until = time.time()
        had, part = shares(home / "journal.db", since, until)
        job.cancel()
        for client in (one, other):
            client._caller.abandon()
    found = "  ".join(f"{queue} {100 * had[queue] / part[queue]:.1f}%" for queue in sorted(had))
    print(f"           two programs and a queue of jobs on {cpus} CPUs had of their parts: {found}")


def shares(journal: Path, since: float, until: float) -> tuple[Counter[str], Counter[str]]:
    """Return the dominant share that each queue had in a time, and the one that it was entitled to, times seconds."""
    had, part, at = Counter[str](), Counter[str](), since
    with closing(SqlStore(journal, to_read=True)) as store:
        known, _, facts = read_history(store, since)
        state = known or new_state()
        for fact in facts:
            now = min(max(fact.at, at), until)
            if now > at:
                parts = parts_of(state)
                for queue, has, entitled in zip(parts.queues.tolist(), parts.has, parts.entitled, strict=True):
                    had[state.tree.names[queue]] += float(has) * (now - at)
                    part[state.tree.names[queue]] += float(entitled) * (now - at)
            at = now
            apply(state, fact)
    return had, part


def measure(name: str, one: Callable[[int], Any], many: Callable[[range], list[int]], calls: int) -> None:
    """Print the throughput of many calls at once, and the latency of one at a time."""
    for x in range(20):
        one(x)
    took = []
    for x in range(max(20, calls // 10)):
        began = time.perf_counter()
        one(x)
        took.append(time.perf_counter() - began)
    began = time.perf_counter()
    if many(range(calls)) != [x * x for x in range(calls)]:
        raise AssertionError(f"{name} computes something else")
    speed = calls / (time.perf_counter() - began)
    p99 = sorted(took)[int(len(took) * 0.99)]
    print(f"{speed:>9,.0f} calls/s   one at a time p50 {statistics.median(took) * 1e3:.2f} ms  p99 {p99 * 1e3:.2f} ms  {name}")


def same(array: np.ndarray) -> np.ndarray:
    return array


def measure_together(home: Path, client: fairlead.Client, calls: int, chunk: int, mebibytes: int) -> None:
    """Print how long many calls in chunks take, and large data there and back, beside a pool of as many processes."""
    array, numbers = np.ones(mebibytes * 2**17), range(calls)

    def by_joblib() -> list[int]:
        return joblib.Parallel(n_jobs=2, batch_size=chunk)(joblib.delayed(square)(x) for x in numbers)

    def told(name: str, ours: float, theirs: float) -> None:
        print(f"{ours * 1e3:>9,.0f} ms, pool {theirs * 1e3:,.0f} ms: {ours / theirs:.2f} times   {name}")

    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        through = [_median(lambda by=by: list(by.map(square, numbers, chunksize=chunk))) for by in (client, pool)]
        told(f"{calls:,} calls by map, in chunks of {chunk}", *through)
        there = [_median(lambda by=by: by.submit(same, array).result()) for by in (client, pool)]
        told(f"{mebibytes} MiB there and back", *there)
    fairlead.register_joblib()
    with joblib.parallel_config("fairlead", home=home, queue="A", memory=0):
        ours = _median(by_joblib)
    with joblib.parallel_config("loky"):
        theirs = _median(by_joblib)
    told(f"{calls:,} calls by joblib, whose own processes are the pool", ours, theirs)
    get_reusable_executor().shutdown()  # they would stay for minutes


def _median(what: Callable[[], object]) -> float:
    """Return how long something takes: the median of five times, after one."""
    took = []
    for _ in range(6):
        began = time.perf_counter()
        what()
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def run(
    calls: int = 3000, seconds: float = 10.0, sizes: tuple[int, ...] = (3, 5), together: int = 10_000, mebibytes: int = 100
) -> None:
    """Print all; Ray's only if it is installed. Fairness is measured over some seconds, on so many CPUs."""
    print(f"calls      {calls:,} calls of a small Python function, two workers")
    with (
        tempfile.TemporaryDirectory() as folder,
        scheduler(Path(folder), cpus=2) as home,
        fairlead.Client(home, queue="A", memory=0) as client,
    ):
        measure("fairlead", lambda x: client.submit(square, x).result(), lambda xs: list(client.map(square, xs)), calls)
        measure_together(home, client, together, 100, mebibytes)
    for cpus in sizes:
        fairness(cpus, seconds)
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        measure("ProcessPoolExecutor", lambda x: pool.submit(square, x).result(), lambda xs: list(pool.map(square, xs)), calls)
    if importlib.util.find_spec("ray") is None:
        print("           Ray is not installed here: `make bench` installs it")
        return
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        remote = ray.remote(square)
        measure("Ray", lambda x: ray.get(remote.remote(x)), lambda xs: ray.get([remote.remote(x) for x in xs]), calls)
    finally:
        ray.shutdown()
