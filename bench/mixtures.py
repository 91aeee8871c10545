"""Random mixtures of newcomers: what the worst one has of what packing allows.

Somebody has all nodes with tasks of one CPU. Then 1 to 20 others come, of weights 1 to 10, with tasks of 1 CPU up to a whole node
that last 1 to 100% as long. What each uses is measured once three of the longest tasks have passed, for twelve of the longest
turns, or fifteen tasks of the first if that is longer. A turn is how long a queue's part works on one of its tasks.

Two more tables have newcomers who ran tasks before, so that it is known how long these last, and queues whose jobs are gangs of
2 to 6 tasks that end at different times.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import scipy  # whose parts are read when they are asked for

from bench.newcomers import means, used
from fairlead.model.specs import Node, Queue, Settings
from fairlead.scheduler.facts import Fact, JobSubmitted, TasksFinished, TasksPlaced
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs

Kind = tuple[float, int, float]
"""A queue: its weight, and CPUs and seconds of its tasks."""


def packings(room: int, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all ways to fill room with tasks of these sizes that leave no room for one of the last."""
    if not sizes:
        yield ()
        return
    for k in range(room // sizes[0], -1 if sizes[1:] else room // sizes[0] - 1, -1):
        for rest in packings(room - k * sizes[0], sizes[1:]):
            yield (k, *rest)


def possible(nodes: list[int], queues: list[tuple[float, int]], lent: float | None = None) -> float:
    """Return the largest t, 1 at most, for which each queue (weight, CPUs of a task) can have t of its part as a mean.

    A linear program over how long each node is filled in which way. All use what is `lent` at most, by default all there is.
    """
    sizes, weights, total = sorted({cpu for _, cpu in queues}, reverse=True), sum(w for w, _ in queues), lent or sum(nodes)
    ways = [(kind, way) for kind in sorted(set(nodes)) for way in packings(kind, sizes)]
    most = [[float(kind == of) for of, _ in ways] + [0.0] for kind in sorted(set(nodes))]
    enough = [
        [-way[k] * size for _, way in ways] + [sum(w for w, cpu in queues if cpu == size) * total / weights]
        for k, size in enumerate(sizes)
    ]
    whole = [float(sum(k * size for k, size in zip(way, sizes, strict=True))) for _, way in ways] + [0.0]
    limits = [float(nodes.count(kind)) for kind in sorted(set(nodes))] + [0.0] * len(sizes) + [float(total)]
    found = scipy.optimize.linprog(
        [0.0] * len(ways) + [-1.0], [*most, *enough, whole], limits, bounds=[(0, None)] * len(ways) + [(0, 1)]
    )
    return float(found.x[-1])


def size_of(cpu: int) -> dict[str, int]:
    """Return a node's or a task's resources: as much memory as CPUs."""
    return {"cpu": 1000 * cpu, "memory": cpu << 30}


class World:
    """Somebody has all nodes with small tasks, and others come; what each uses, and when each begins, in CPUs and seconds."""

    def __init__(
        self, nodes: list[int], first: tuple[int, float], others: Sequence[Kind], begins: float, lasts: float, seed: int,
        beside: Sequence[Kind] = (), come: float | None = None, quotas: Sequence[Queue] = (), policy: str = "",
        keeper: Sequence[tuple[float, str, int, float]] = (), idle_budget: float = 0.02,
    ) -> None:  # fmt: skip
        """`first` is (CPUs, seconds) of a task, `others` are (weight, CPUs, seconds), `beside` too, who are there from the start.

        Tasks last 50 to 150% of that. `come` is when the others come, by default after three of the longest tasks. Use is
        measured `begins` of these later, for `lasts` seconds. `quotas` are queues with nothing to run, but for what `keeper`
        says by (time, queue, CPUs, seconds). All need as much memory as CPUs.
        """
        rng, jobs, self.total = random.Random(seed), Jobs(), sum(nodes)
        self.longest = 1.5 * max(first[1], *(seconds for *_, seconds in (*others, *beside)))
        named = {f"old{k}": old for k, old in enumerate(beside)} | {f"new{k}": new for k, new in enumerate(others)}
        self.weights = {"first": 1.0} | {name: weight for name, (weight, *_) in named.items()}
        come = come or 3 * self.longest
        self.use, self.mean, self.at = dict.fromkeys(self.weights, 0), dict.fromkeys(self.weights, 0.0), 0.0
        self.begun: dict[str, float] = {}
        self.behind = self.most_behind = 0.0
        self.fell = False
        self.span = come + begins * self.longest, come + begins * self.longest + lasts
        asked = [("first", 0.0, *first)]
        asked += [(name, come if name.startswith("new") else 0.0, cpu, seconds) for name, (_, cpu, seconds) in named.items()]
        for at, queue, cpu, seconds in keeper:
            jobs.add(at, queue, size_of(cpu), seconds)
        for queue, at, cpu, seconds in asked:
            count = int(2 * (self.span[1] - at) / seconds * self.total / cpu) + self.total
            jobs.add(at, queue, size_of(cpu), [rng.uniform(0.5, 1.5) * seconds for _ in range(count)], tasks=count)
        queues = [Queue(name, weight=weight) for name, weight in self.weights.items()] + [*quotas]
        self.case = jobs.workload("bounds", [Node(f"n{k}", size_of(cpu)) for k, cpu in enumerate(nodes)], queues)
        self.come, self.jobs, self.facts = come, dict[int, tuple[str, int]](), list[Fact]()
        with contextlib.suppress(StopIteration):
            given = Settings(revoke=False, idle_budget=idle_budget)
            simulate(self.case, policy, record=self._note, settings=given, samples=20)

    def _note(self, facts: Sequence[Fact]) -> None:
        begin, end = self.span
        self.facts += facts
        for fact in facts:
            if isinstance(fact, JobSubmitted):
                self.jobs[fact.id] = fact.job.queue, fact.job.demand["cpu"] // 1000
            elif isinstance(fact, TasksPlaced | TasksFinished):
                passed = min(fact.at, end) - max(self.at, begin)
                if self.at >= self.come:
                    self._note_half(fact.at - self.at)
                for queue, cpu in self.use.items() if passed > 0 else ():
                    self.mean[queue] = self.mean.get(queue, 0.0) + cpu * passed / (end - begin)
                self.at = fact.at
                for job in fact.job.tolist():
                    queue, cpu = self.jobs[job]
                    self.use[queue] = self.use.get(queue, 0) + (cpu if isinstance(fact, TasksPlaced) else -cpu)
                    if fact.at >= self.come:
                        self.begun.setdefault(queue, fact.at - self.come)
        if self.at > end:
            raise StopIteration

    def _note_half(self, passed: float) -> None:
        """Add up what the first lacks of half of its part, from when it first does, in parts of that half: seconds."""
        half = self.part("first") / 2
        self.fell |= self.use["first"] < half
        self.behind += passed * (1 - self.use["first"] / half) if self.fell else 0.0
        self.most_behind = max(self.most_behind, self.behind)

    def part(self, queue: str) -> float:
        """Return what a queue is entitled to while all wait, in CPUs."""
        return self.weights[queue] / sum(self.weights.values()) * self.total


def mixture(seed: int, idle_budget: float = 0.02) -> tuple[float, float]:
    """Return what the worst newcomer of a random mixture has, and who was there first and a task, of what packing allows each."""
    rng = random.Random(seed)
    cpus = rng.choice([4, 6, 8, 16, 24, 40])
    nodes, long = [cpus] * rng.randint(1, max(1, min(10, 60 // cpus))), rng.choice([30.0, 100.0, 1000.0, 3600.0])
    sizes = sorted({1, 2, 3, cpus // 2, cpus})
    others = [(float(rng.randint(1, 10)), rng.choice(sizes), long * rng.uniform(0.01, 1.0)) for _ in range(rng.randint(1, 20))]
    weights = 1.0 + sum(weight for weight, *_ in others)
    turn = max(cpu * seconds * weights / weight / sum(nodes) for weight, cpu, seconds in others)
    most = possible(nodes, [(weight, cpu) for weight, cpu, _ in others] + [(1.0, 1)])
    world = World(nodes, (1, long), others, 3, max(15 * long, 12 * turn), seed, idle_budget=idle_budget)
    has = {queue: world.mean[queue] / world.part(queue) / most for queue in world.weights}
    return min(has[f"new{k}"] for k in range(len(others))), has["first"] + 1 / world.part("first") / most


def returning(seed: int) -> float:
    """Return what the worst of 10 to 20 newcomers who come back has of what packing allows: tasks of 3 to 6 of 40 CPUs."""
    rng = random.Random(seed)
    count, cpu, long = rng.choice([10, 15, 20]), rng.randint(3, 6), rng.choice([30.0, 100.0, 300.0])
    return worst_returning(count, cpu, long, long * rng.choice([0.1, 0.2, 0.3, 0.5]), seed)


def worst_returning(count: int, cpu: int, long: float, lasts: float, seed: int) -> float:
    """Return what the worst of equal newcomers who ran small tasks before has of what packing allows, on 40 CPUs."""
    before = [(long / 2 * k, f"new{q}", 1, lasts * (1 + k / 100)) for q in range(count) for k in range(12)]
    begins, turn = 20 * long, cpu * lasts * (count + 1) / 40
    new = [(1.0, cpu, lasts)] * count
    world = World([40], (1, long), new, 3, max(15 * long, 12 * turn), seed, come=begins, keeper=before)
    most = possible([40], [(1.0, cpu)] * count + [(1.0, 1)])
    return min(world.mean[f"new{q}"] / world.part(f"new{q}") for q in range(count)) / most


def gangs(seed: int) -> float:
    """Return what the worst of one to five queues has of its part if its jobs are gangs, beside small tasks on 40 CPUs."""
    rng, jobs = random.Random(seed), Jobs()
    nodes, long, count = rng.choice([[40], [10] * 4, [4] * 10]), rng.choice([50.0, 100.0, 400.0]), rng.randint(1, 5)
    jobs.add(0.0, "first", size_of(1), [rng.uniform(0.5, 1.5) * long for _ in range(2400)], tasks=2400)
    for q in range(count):
        cpu = rng.randint(1, min(4, nodes[0]))
        tasks, lasts = min(rng.randint(2, 6), 20 // cpu), long * rng.choice([0.1, 0.3, 1.0])
        for _ in range(int(2000 * long / tasks / cpu / lasts / count) + 5):
            each = [rng.uniform(0.5, 1.5) * lasts for _ in range(tasks)]
            jobs.add(5 * long, f"gangs{q}", size_of(cpu), each, tasks=tasks, gang=True)
    case = jobs.workload("gangs", [Node(f"n{k}", size_of(cpu)) for k, cpu in enumerate(nodes)], [])
    found = means(used(case, Settings().idle_budget)[0], 10 * long, 30 * long)
    return min(found.get(f"gangs{q}", 0.0) for q in range(count)) * (count + 1) / 40


def run(scale: float = 1.0) -> None:
    """Print how many of 300 mixtures are how good, of 200 worlds of newcomers who come back, and of 100 with gangs."""
    count, back, beside = (max(2, round(worlds * scale)) for worlds in (300, 200, 100))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        worst, first = zip(*pool.map(mixture, range(count), chunksize=max(1, count // 100)), strict=True)
        show(f"{count} random mixtures of newcomers: what the worst one has of what packing allows", worst)
        print(f"who was there first has less than half of its part in {sum(has < 0.5 for has in first)}")
        show(f"{back} worlds of newcomers who come back: the same", [*pool.map(returning, range(back))])
        show(f"{beside} worlds of queues with gangs: what the worst one has of its part", [*pool.map(gangs, range(beside))])


def show(title: str, worst: Sequence[float]) -> None:
    print(f"## {title}")
    print(f"at least 80% in {sum(has >= 0.8 for has in worst)}, below 60% in {sum(has < 0.6 for has in worst)}, ", end="")
    print(f"below 40% in {sum(has < 0.4 for has in worst)}; {sum(worst) / len(worst):.0%} on average, {min(worst):.0%} at least")
