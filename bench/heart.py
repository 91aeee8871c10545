"""Cost per task of the scheduler's core: one-task jobs on one machine and on many, and jobs that all differ.

The peer is a plain Python loop of DRF as a prototype has it: a heap of ends, dictionaries, only the first job of each queue.
Compare only figures of the same run on the same machine.
"""

from __future__ import annotations

import heapq
import time
from typing import Any

import numpy as np

from bench.simulate import timed, workload
from fairlead.engines.simulated import SimulatedCluster
from fairlead.engines.step import Scheduler
from fairlead.journal import Unrecorded
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler import admission
from fairlead.scheduler.facts import Configured
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, Workload, synthetic_nodes


def one_task_jobs(count: int, load: float, seed: int = 0) -> Workload:
    """Return one-task jobs of 20 users and 128 shapes on one machine; `load` is relative to its capacity."""
    rng = np.random.default_rng(seed)
    shapes = [{"cpu": int(rng.integers(1, 9)) * 1000, "memory": int(rng.integers(1, 17)) << 30} for _ in range(128)]
    gap = max(4.5 * 105 / 110, 8.5 * 105 / 190) / load
    jobs = Jobs()
    for k in range(count):
        jobs.add(k * gap, f"u{rng.integers(20):02}", shapes[rng.integers(128)], float(rng.uniform(10, 200)))
    return jobs.workload("one-task jobs", synthetic_nodes(1, "cpu=110,memory=190GiB"), [])


def burst(count: int, seed: int = 0) -> Workload:
    """Return `count` one-task jobs submitted at once, each of its own shape, in 100 queues, for 100 machines."""
    rng = np.random.default_rng(seed)
    jobs = Jobs()
    for k in range(count):
        demand = {"cpu": 500 + int(rng.integers(0, 8000)), "memory": (1 << 28) + 4096 * k + int(rng.integers(0, 8 << 30))}
        jobs.add(0.0, f"q{k % 100:02}", demand, float(rng.integers(10, 100)))
    return jobs.workload("burst", synthetic_nodes(100, "cpu=32,memory=64GiB"), [])


def in_python(case: Workload) -> int:
    """Run one-task jobs on one machine by DRF, only the first job of each queue; return the number of ended jobs."""
    capacity = list(case.nodes[0].capacity.values())
    names = list(case.nodes[0].capacity)
    free = list(capacity)
    demand = [[shape.get(name, 0) for name in names] for shape in case.demands]
    waiting: dict[str, list[int]] = {name: [] for name in case.queue}
    used = {name: [0] * len(names) for name in waiting}
    first = dict.fromkeys(waiting, 0)
    ends: list[tuple[float, int]] = []
    arrivals, coming, done = case.submit.tolist(), 0, 0
    shape, duration = case.shape.tolist(), case.duration.tolist()
    while coming < len(arrivals) or ends:
        now = min(arrivals[coming] if coming < len(arrivals) else np.inf, ends[0][0] if ends else np.inf)
        while ends and ends[0][0] == now:
            job = heapq.heappop(ends)[1]
            for r, q in enumerate(demand[shape[job]]):
                free[r] += q
                used[case.queue[job]][r] -= q
            done += 1
        while coming < len(arrivals) and arrivals[coming] == now:
            waiting[case.queue[coming]].append(coming)
            coming += 1
        heap = [
            (max(u / c for u, c in zip(used[name], capacity, strict=True)), name)
            for name, jobs in waiting.items()
            if first[name] < len(jobs)
        ]
        heapq.heapify(heap)
        while heap:
            _, name = heapq.heappop(heap)
            job = waiting[name][first[name]]
            need = demand[shape[job]]
            if all(q <= f for q, f in zip(need, free, strict=True)):
                for r, q in enumerate(need):
                    free[r] -= q
                    used[name][r] += q
                heapq.heappush(ends, (now + duration[job], job))
                first[name] += 1
                if first[name] < len(waiting[name]):
                    heapq.heappush(heap, (max(u / c for u, c in zip(used[name], capacity, strict=True)), name))
    return done


def cpu_seconds(case: Workload) -> tuple[float, Any]:
    began = time.process_time()
    found = simulate(case, samples=50)
    return time.process_time() - began, found


def live_step(steps: int = 2000) -> float:
    """Return the median seconds of a step that sees one end and places one task, without a journal."""
    nodes = [Node(f"n{k}", {"cpu": 8000}) for k in range(20)]
    row = np.arange(steps + 500)
    cluster = SimulatedCluster(
        nodes, np.full((20, 1), 8000), np.full((len(row), 1), 1000), np.zeros(len(row), np.int64), 1,
        np.ones(len(row), np.int64), 1000.0 + row, row, np.zeros(len(row), np.int64), False,
    )  # fmt: skip
    scheduler = Scheduler(Unrecorded(), cluster, lambda: cluster.now, repeat_after=np.inf)
    queues = [Queue(f"q{k}") for k in range(20)]
    scheduler.step([lambda state, now: [Configured(at=now, queues=queues, settings=Settings())]])
    number = 0

    def submit(state: Any, now: float) -> Any:
        nonlocal number
        cluster.submit(number, 1)
        number += 1
        return admission.submit(state, [Job(f"q{number % 20}", {"cpu": 1000})], now)

    while cluster.next_event() <= cluster.now or number < 160:
        scheduler.step([submit] if number < 160 else [])
    took = []
    for _ in range(steps):
        scheduler.step([submit])  # waits: the machines are full
        cluster.now = cluster.next_event()
        began = time.perf_counter()
        scheduler.step()
        took.append(time.perf_counter() - began)
        scheduler.step()
    return float(np.median(took))


def run(scale: float = 1.0) -> None:
    """Print the costs."""
    print("## The heart")
    simulate(one_task_jobs(50, 0.8))  # warm up
    for load in (0.8, 4.0):
        took, found = cpu_seconds(one_task_jobs(round(200_000 * scale), load))
        few = one_task_jobs(round(20_000 * scale), load)
        began = time.process_time()
        theirs = in_python(few) / (time.process_time() - began)
        print(
            f"one-task jobs, 20 queues, 1 machine, at {load:.0%} load: {found.completed / took:,.0f} tasks/CPU s; "
            f"a plain Python loop {theirs:,.0f}/s"
        )
    case = workload(10_000, 1000, round(200_000 * scale), tasks=1)
    took, found = timed(case)
    print(f"one-task jobs, 1,000 queues, 10,000 machines: {found.completed / took:,.0f}/s")
    sizes = [max(10 * (k + 1), round(count * scale)) for k, count in enumerate((2000, 8000, 32_000, 100_000))]
    seconds: list[float] = []
    for count in sizes:
        took, _ = cpu_seconds(burst(count))
        growth = f", n^{np.log(took / seconds[-1]) / np.log(count / sizes[len(seconds) - 1]):.2f}" if seconds else ""
        print(f"a burst of {count:,} different one-task jobs, 100 queues, 100 machines: {took:.2f} s{growth}")
        seconds.append(took)
    print(f"a live step that sees one end and places one task: {live_step(max(50, round(2000 * scale))) * 1e6:.0f} us, median")
