"""The cluster of the model of promises: tasks that start and end, queues, what they used before, and their parts."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

DAY = 86400.0
EPS = 1e-9
HISTOGRAM = 256  # durations remembered by queue


@dataclass(eq=False)
class Job:
    """Tasks of one demand; `durations` is cycled over its tasks."""

    submit: float
    leaf: str
    demand: tuple[float, ...]
    durations: np.ndarray
    tasks: int = 1
    gang: bool = False
    large: bool = False
    nodes: frozenset[int] | None = None
    number: int = 0
    begun: int = 0
    waited: float = 0.0
    seen: Durations | None = None


@dataclass
class World:
    name: str
    nodes: list[tuple[float, ...]]
    jobs: list[Job]
    weights: dict[str, float] = field(default_factory=dict)
    until: float = math.inf


@dataclass(eq=False)
class Task:
    job: Job
    leaf: int
    node: int
    began: float
    ends: float
    due: float  # expected


class Durations:
    """The last durations seen, ascending."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.order: deque[float] = deque()

    def observe(self, seconds: float) -> None:
        insort(self.seen, seconds)
        self.order.append(seconds)
        if len(self.order) > HISTOGRAM:
            del self.seen[bisect_left(self.seen, self.order.popleft())]

    def lasts(self, age: float, odds: float) -> float | None:
        """Return the duration that tasks older than `age` stay below with these odds; None if unknown."""
        k, n = bisect_left(self.seen, age), len(self.seen)
        if n == 0:
            return None
        if k == n:
            return age / max(0.05, 1 - odds)
        return self.seen[min(n - 1, k + int(odds * (n - k)))]


class Queue:
    """A queue of the tree: children, or groups of equal tasks in order of submission."""

    def __init__(self, row: int, parent: Queue | None, weight: float, m: int) -> None:
        self.row, self.parent, self.weight = row, parent, weight
        self.children: list[Queue] = []
        self.groups: dict[Any, deque[Job]] = {}
        self.used, self.mean, self.part, self.charge = ([0.0] * m for _ in range(4))
        self.waits = self.running = 0  # tasks
        self.debt = self.lack = self.integral = self.key = self.retry = self.since = 0.0
        self.turn = 0
        self.parked: set[Any] = set()
        self.busy: dict[Job, int] = {}  # running tasks, by job
        self.line: list[Any] = []
        self.blocked = False
        self.active = self.open = False
        self.times = Durations()


class Cluster:
    """Runs a world. A subclass decides: it places tasks in :meth:`decide`, after each moment at which something happened."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.m = m = len(world.nodes[0])
        self.capacity = [max(EPS, sum(node[r] for node in world.nodes)) for r in range(m)]
        self.free = np.array(world.nodes, float)
        self.size = np.array(world.nodes, float)
        self.running: list[list[Task]] = [[] for _ in world.nodes]
        self.queues: list[Queue] = [Queue(0, None, 1.0, m)]
        self.leaves: dict[str, Queue] = {}
        for job in world.jobs:
            self._leaf(job.leaf)
        self.now, self.turns, self.serial = 0.0, 0, 0
        self.events: list[tuple[float, int, int, Any]] = []
        self.dirty: set[int] = set()  # nodes with new room, since the last cycle
        self.seen = Durations()  # of all queues
        self.watch: list[tuple[float, dict[str, float]]] = []

    def _leaf(self, path: str) -> Queue:
        if path not in self.leaves:
            parent = self.queues[0]
            if "/" in path:
                parent = self._leaf(path.rsplit("/", 1)[0])
            queue = Queue(len(self.queues), parent, self.world.weights.get(path, 1.0), self.m)
            parent.children.append(queue)
            self.queues.append(queue)
            self.leaves[path] = queue
        return self.leaves[path]

    # --- events ---

    def run(self, sample: float = math.inf) -> Self:
        for number, job in enumerate(self.world.jobs):
            job.number = number
            self._push(job.submit, 1, job)
        following = sample
        while self.events and self.events[0][0] <= self.world.until:
            at = self.events[0][0]
            while following <= at:
                self._advance(following)
                self.watch.append((following, {path: q.integral for path, q in self.leaves.items()}))
                following += sample
            self._advance(at)
            while self.events and self.events[0][0] <= at + EPS:
                _, kind, _, what = heapq.heappop(self.events)
                if kind == 0:
                    self._end(what)
                elif kind == 1:
                    self._submit(what)
            self.decide()
        return self

    def decide(self) -> None:
        raise NotImplementedError

    def pay(self, at: float) -> None:
        """Count what is kept free until a time."""

    def expected(self, leaf: Queue, job: Job, node: int, lasts: float) -> float:
        """Return how long a new task is expected to take on a node; infinite if nobody asks."""
        return math.inf

    def _push(self, at: float, kind: int, what: Any) -> None:
        self.serial += 1
        heapq.heappush(self.events, (at, kind, self.serial, what))

    def _submit(self, job: Job) -> None:
        leaf = self.leaves[job.leaf]
        group = (job.demand, job.gang and job.tasks, job.nodes)
        leaf.groups.setdefault(group, deque()).append(job)
        leaf.waits += job.tasks

    def _start(self, leaf: Queue, group: Any, nodes: dict[int, int]) -> None:
        job = leaf.groups[group][0]
        for n, count in nodes.items():
            for _ in range(count):
                lasts = float(job.durations[job.begun % len(job.durations)])
                task = Task(job, leaf.row, n, self.now, self.now + lasts, math.inf)
                task.due = self.now + self.expected(leaf, job, n, lasts)
                self.running[n].append(task)
                self.free[n] -= job.demand
                self._push(task.ends, 0, task)
                job.begun += 1
                leaf.busy[job] = leaf.busy.get(job, 0) + 1
                job.waited += self.now - job.submit
        count = sum(nodes.values())
        self.turns += 1
        self._use(leaf, job.demand, count)
        leaf.waits -= count
        if job.begun == job.tasks:
            leaf.groups[group].popleft()
            if not leaf.groups[group]:
                del leaf.groups[group]
                leaf.parked.discard(group)

    def _end(self, task: Task) -> None:
        leaf = self.queues[task.leaf]
        self.running[task.node].remove(task)
        self.free[task.node] += task.job.demand
        self.dirty.add(task.node)
        self._use(leaf, task.job.demand, -1)
        leaf.busy[task.job] -= 1
        if leaf.busy[task.job] == 0:
            del leaf.busy[task.job]
        lasted = task.ends - task.began
        if not leaf.times.seen:
            leaf.parked.clear()  # its tasks may now be known to be short
        leaf.times.observe(lasted)
        self.seen.observe(lasted)
        if task.job.tasks > 1:
            task.job.seen = task.job.seen or Durations()
            task.job.seen.observe(lasted)

    def _use(self, leaf: Queue, demand: tuple[float, ...], count: int) -> None:
        q: Queue | None = leaf
        while q is not None:
            for r, d in enumerate(demand):
                q.used[r] += count * d
            q.running += count
            if count > 0:
                q.turn = self.turns
            self._set_key(q)
            q = q.parent

    def _advance(self, at: float) -> None:
        """Add up debts, past use and what is spent until a time."""
        dt = at - self.now
        if dt <= 0:
            return
        fade = 0.5 ** (dt / DAY)
        for q in self.queues:
            q.integral += self._share(q) * dt
            if q.running or q.waits or q.mean[0]:
                q.mean = [x * fade + u * (1 - fade) for x, u in zip(q.mean, q.used, strict=True)]
            if not q.children:
                q.debt = max(0.0, q.debt + q.lack * dt) if q.running or q.waits else 0.0
        self.pay(at)
        self.now = at

    def _share(self, q: Queue) -> float:
        return max(u / c for u, c in zip(q.used, self.capacity, strict=True))

    # --- order and parts ---

    def _set_key(self, q: Queue) -> None:
        q.key = max((q.used[r] + q.charge[r]) / self.capacity[r] for r in range(self.m)) / q.weight

    def _set_parts(self) -> None:
        """Compute all parts, charges and keys from the root down, and what each leaf lacks."""
        for q in reversed(self.queues):
            if q.children:
                q.waits = sum(child.waits for child in q.children)
            q.active = q.waits > 0 or q.running > 0
        self.queues[0].part = list(self.capacity)
        for p in self.queues:
            active = [q for q in p.children if q.active]
            if not active:
                continue
            weight = sum(q.weight for q in active)
            hungry = [q for q in active if q.waits]
            for r in range(self.m):
                for q in active:
                    most = q.weight / weight * self.capacity[r] / 2
                    q.charge[r] = min(q.mean[r] / 4, most)
                level = (p.part[r] + sum(q.charge[r] for q in active)) / weight
                if hungry:
                    rest = p.part[r] - sum(q.used[r] for q in active if not q.waits) + sum(q.charge[r] for q in hungry)
                    level = max(level, rest / sum(q.weight for q in hungry))
                for q in active:
                    q.part[r] = max(0.0, level * q.weight - q.charge[r])
        for q in self.queues:
            self._set_key(q)
            if not q.children:
                self._set_lack(q)

    def _set_lack(self, q: Queue) -> None:
        """Set what a leaf lacks, in parts of the capacity; a leaf that waits for nothing lacks nothing."""
        need = self._oldest(q)[0] if q.groups else None
        lacks = [(q.part[r] - q.used[r]) / self.capacity[r] for r in range(self.m) if (need[r] > 0 if need else q.used[r] > 0)]
        q.lack = min(lacks) if lacks else 0.0
        if not need:
            q.lack = min(q.lack, 0.0)
        if need and q.lack <= EPS and self._oldest(q) in q.parked:
            q.lack = min(self._lacks_in_order(q), self._size(self._oldest(q)))
        if q.lack <= EPS:
            q.since = self.now

    def _lacks_in_order(self, q: Queue) -> float:
        """Return what a leaf lacks if only tasks count whose jobs are not behind the oldest that waits."""
        group = self._oldest(q)
        first, used = q.groups[group][0].number, [0.0] * self.m
        for job, count in q.busy.items():
            if job.number <= first:
                used = [x + count * d for x, d in zip(used, job.demand, strict=True)]
        return min((q.part[r] - used[r]) / self.capacity[r] for r in range(self.m) if group[0][r] > 0)

    def _size(self, group: Any) -> float:
        """Return the dominant share of a group's next task or gang."""
        return float((group[1] or 1) * max(d / c for d, c in zip(group[0], self.capacity, strict=True)))

    @staticmethod
    def _oldest(leaf: Queue) -> Any:
        return min(leaf.groups, key=lambda g: leaf.groups[g][0].number)

    def _next(self, p: Queue) -> Queue | None:
        """Return the leaf whose turn it is below a queue, of those that can still be served."""
        while p.children:
            best = None
            for q in p.children:
                if q.open and (best is None or (q.key, q.turn) < (best.key, best.turn)):
                    best = q
            if best is None:
                return None
            p = best
        return p

    def _close(self, leaf: Queue) -> None:
        q: Queue | None = leaf
        while q is not None and not (q.children and any(child.open for child in q.children)):
            q.open = False
            q = q.parent
