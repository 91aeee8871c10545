"""Throughput and latency of small Python calls: through fairlead, a ProcessPoolExecutor, and as Ray tasks.

Two workers each. A ProcessPoolExecutor passes calls through a pipe; fairlead journals each, shares fairly, isolates tasks and
enforces limits.
"""

import concurrent.futures
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairlead
from bench.end_to_end import scheduler


def square(x: int) -> int:
    return x * x


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


def run(calls: int = 3000) -> None:
    """Print all three; Ray's only if it is installed."""
    print(f"calls      {calls:,} calls of a small Python function, two workers")
    with (
        tempfile.TemporaryDirectory() as folder,
        scheduler(Path(folder), cpus=2) as home,
        fairlead.Client(home, queue="A", memory=0) as client,
    ):
        measure("fairlead", lambda x: client.submit(square, x).result(), lambda xs: list(client.map(square, xs)), calls)
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
