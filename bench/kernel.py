"""Throughput of the scheduling cycle in placements per second, beside the same algorithm in plain Python."""

import heapq
import time

import numpy as np

from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeJoined
from fairlead.scheduler.state import State

RESOURCES = ("cpu", "memory", "gpu", "disk")


def make_state(nodes: int, queues: int, tasks: int) -> State:
    """Return a cluster of `nodes` machines in four sizes, and `queues` leaves with `tasks` pending tasks in total."""
    rng = np.random.default_rng(7)
    state = new_state()
    leaves = [Queue(f"q{i:04}") for i in range(queues)]
    apply(state, Configured(at=0, queues=leaves, settings=Settings()))
    for i in range(nodes):
        size = int(rng.integers(1, 5))
        capacity = {"cpu": 32_000 * size, "memory": (128 << 30) * size, "gpu": 4000 * size, "disk": (1 << 40) * size}
        apply(state, NodeJoined(at=0, node=Node(f"n{i:05}", capacity)))
    for i, leaf in enumerate(leaves):
        demand = {
            "cpu": 250 * int(rng.integers(1, 9)),
            "memory": (1 << 28) * int(rng.integers(1, 9)),
            "gpu": 10 * int(rng.integers(0, 3)),
            "disk": (1 << 30) * int(rng.integers(1, 9)),
        }
        apply(state, JobSubmitted(at=0, id=i + 1, job=Job(leaf.name, demand, tasks=tasks // queues)))
    return state


def place_in_python(state: State, count: int) -> int:
    """Place `count` tasks by the same rules, one by one: a heap of dominant shares, first fit with a cursor per job."""
    total = state.cluster.total.astype(float)
    free = state.nodes.free[: state.nodes.n].tolist()
    jobs = [(state.jobs.queue[j], state.shapes.demand[state.jobs.shape_row[j]].tolist()) for j in range(state.jobs.n)]
    used = [[0] * len(total) for _ in jobs]
    heap = [(0.0, j) for j in range(len(jobs))]
    cursor = [0] * len(jobs)
    placed = 0
    while heap and placed < count:
        _, j = heapq.heappop(heap)
        demand = jobs[j][1]
        while cursor[j] < len(free) and any(f < d for f, d in zip(free[cursor[j]], demand, strict=True)):
            cursor[j] += 1
        if cursor[j] == len(free):
            continue
        room = free[cursor[j]]
        for r, d in enumerate(demand):
            room[r] -= d
            used[j][r] += d
        placed += 1
        heapq.heappush(heap, (max(u / t for u, t in zip(used[j], total, strict=True)), j))
    return placed


def run(nodes: int = 10_000, queues: int = 1_000, tasks: int = 1_000_000) -> None:
    """Print placements per second: the kernel alone, with facts applied, and in plain Python."""
    state = make_state(2, 2, 2)
    for fact in decide(state, 1.0).facts:  # warm up
        apply(state, fact)
    state = make_state(nodes, queues, tasks)
    began = time.perf_counter()
    decision = decide(state, 1.0, tasks)
    kernel = time.perf_counter() - began
    placed = len(decision.facts[0].job)
    began = time.perf_counter()
    for fact in decision.facts:
        apply(state, fact)
    applied = time.perf_counter() - began

    few = min(50_000, placed)
    fresh = make_state(nodes, queues, tasks)
    began = time.perf_counter()
    place_in_python(fresh, few)
    python = few / (time.perf_counter() - began)
    speed = placed / kernel
    print(f"kernel     {nodes:,} nodes, {queues:,} queues, {len(RESOURCES)} resources: {placed:,} tasks placed")
    print(f"           decided {speed:>12,.0f} tasks/s   decided and applied {placed / (kernel + applied):>12,.0f} tasks/s")
    print(f"           plain Python, same rules {python:>10,.0f} tasks/s: the kernel is {speed / python:.0f} times faster")
