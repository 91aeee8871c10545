"""Throughput of the simulator beside a simpy model and as the cluster grows; reading beside a plain Python loop."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.simpy_model import Model
from fairlead.simulate.run import simulate
from fairlead.simulate.traces import read_trace
from fairlead.simulate.workload import Jobs, Workload, cut, synthetic_nodes

SIZES = ((100, 10), (1000, 10), (1000, 100), (10_000, 100), (10_000, 1000))
"""Nodes and queues of clusters that grow."""


def workload(nodes: int, queues: int, jobs: int, tasks: int = 100, busy: float = 0.95, seed: int = 0) -> Workload:
    """Return jobs of identical tasks at a load of `busy`; each queue has its own demand, times are whole seconds."""
    rng = np.random.default_rng(seed)
    demand = [{"cpu": int(rng.integers(1, 5)) * 1000, "memory": int(rng.integers(1, 9)) << 30} for _ in range(queues)]
    span = max(1, round(jobs * tasks * 55 / (nodes * 5.5 * busy)))
    found = Jobs()
    for _ in range(jobs):
        q = int(rng.integers(queues))
        found.add(float(rng.integers(0, span)), f"q{q:04}", demand[q], float(rng.integers(10, 100)), tasks)
    return found.workload(f"{nodes} nodes, {queues} queues", synthetic_nodes(nodes, "cpu=16,memory=64GiB"), [])


def timed(case: Workload, policy: str = "drf", samples: int = 50) -> tuple[float, Any]:
    began = time.perf_counter()
    found = simulate(case, policy, samples=samples)
    return time.perf_counter() - began, found


def write_trace(path: Path, jobs: int) -> None:
    """Write one-task jobs of 20 queues, each with its own demand, for 100 nodes with 16 CPUs and 64 GiB, at 95% load."""
    rng = np.random.default_rng(0)
    demand = rng.integers(1, (5, 9), (20, 2))
    gap = demand[:, 0].mean() * 304.5 / (100 * 16 * 0.95)
    submit = np.cumsum(rng.exponential(gap, jobs)).round().astype(int).tolist()
    queue, duration = rng.integers(20, size=jobs).tolist(), rng.integers(10, 600, jobs).tolist()
    texts = [f"{cpu},{memory}GiB" for cpu, memory in demand.tolist()]
    rows = (f"{at},q{q:02},{lasts},{texts[q]}\n" for at, q, lasts in zip(submit, queue, duration, strict=True))
    path.write_text("submit,queue,duration,cpu,memory\n" + "".join(rows))


def child_seconds(*command: str) -> tuple[float, float]:
    """Run a command; return its CPU seconds, and the largest memory in MiB that a child had so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024


def reading(scale: float) -> None:
    """Print the CPU seconds of reading a table, and of the whole command beside :mod:`bench.plain_drf`."""
    with TemporaryDirectory() as folder:
        for jobs in (round(100_000 * scale), round(1_000_000 * scale)):
            trace = Path(folder) / f"{jobs}.csv"
            write_trace(trace, jobs)
            began = time.process_time()
            read_trace(trace)
            took = time.process_time() - began
            command = [str(Path(sys.executable).with_name("fairlead")), "simulate", str(trace), "--nodes", "100"]
            ours, memory = child_seconds(*command, "--node", "cpu=16,memory=64GiB")
            theirs, _ = child_seconds(sys.executable, "-m", "bench.plain_drf", str(trace), "100", "16", "64")
            print(
                f"a table of {jobs:,} one-task rows: read in {took:.2f} CPU s; the whole command {ours:.2f} s, "
                f"at most {memory:.0f} MiB; a plain Python loop {theirs:.2f} s: {ours / theirs:.2f} of that"
            )


def run_without_cliff(scale: float) -> None:
    """Compare what needs more than each queue's own use with plain drf: CPU time of a task, in the same run."""
    count = max(100, round(50_000 * min(1.0, scale)))
    print(f"{count:,} jobs of one task on 100 nodes, CPU microseconds a task, and times as long as drf with 1,000 queues:")
    print("queues    drf           one `after`   hdrf          sdrf          ceei")
    base = 0.0
    for queues, policies in ((1000, ("drf", "drf", "hdrf", "sdrf", "ceei")), (10_000, ("drf", "drf"))):
        case = workload(100, queues, count, tasks=1)
        cells = []
        for k, policy in enumerate(policies):
            began = time.process_time()
            found = simulate(replace(case, after={count - 1: [0]}) if k == 1 else case, policy, samples=50)
            took = (time.process_time() - began) / found.completed * 1e6
            base = base or took
            cells.append(f"{took:.1f} ({took / base:.1f})")
        print(f"{queues:<9,} {' '.join(f'{cell:<13}' for cell in cells)}".rstrip())


def run(scale: float = 1.0) -> None:
    print("## Simulator")
    timed(workload(10, 5, 20))  # warm up
    took, found = timed(workload(1000, 100, max(20, round(20_000 * scale))))
    rate = f"{found.completed / took:,.0f} completions/s"
    print(f"1,000 nodes, 100 queues, jobs of 100 tasks: {rate} ({found.steps:,} steps, {took:.1f} s)")

    small = workload(50, 10, max(20, round(200 * scale)), tasks=20)
    took, found = timed(small)
    began = time.perf_counter()
    model = Model(small).go()
    theirs = time.perf_counter() - began
    ours, other = found.completed / took, model.completed / theirs
    print(f"50 nodes, 10 queues: {ours:,.0f}/s; simpy {other:,.0f}/s: {theirs / took:.0f} times as long")

    print("as nodes and queues grow tenfold (tasks in the same ratio), in microseconds:")
    print("nodes    queues   a completion   a step   completions a step")
    for nodes, queues in SIZES:
        case = workload(nodes, queues, max(20, round(nodes * 10 * min(1.0, scale))))
        took, found = timed(case)
        each, step, many = took / found.completed * 1e6, took / found.steps * 1e6, found.completed / found.steps
        print(f"{nodes:<8,} {queues:<8,} {each:<14.2f} {step:<8.0f} {many:.1f}")

    reading(scale)
    run_without_cliff(scale)

    data = Path(os.environ.get("FAIRLEAD_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (data / "openb").is_dir():
        print(f"no traces in {data}: set FAIRLEAD_DATA to measure them")
        return
    began = time.perf_counter()
    found = simulate(read_trace(data / "openb"), "drf")
    print(f"openb, read and simulated: {time.perf_counter() - began:.2f} s for {found.completed:,} tasks")
    began = time.perf_counter()
    trace = read_trace(data / "facebook" / "FB-2010_samples_24_times_1hr_0.tsv")
    day = replace(cut(trace, end=86400 * min(1.0, scale)), nodes=synthetic_nodes(400, "cpu=12,memory=48GiB"))
    found = simulate(day, "drf")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"FB-2010, 400 nodes: {time.perf_counter() - began:.1f} s for {found.completed:,} tasks; at most {peak:.2f} GiB so far")
