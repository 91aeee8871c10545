"""How long a simulation says that queues were below their guarantee: by hand, and against who looks at each job by itself."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import Node, Queue, Settings
from fairlead.outcomes import Outcome
from fairlead.scheduler.facts import JobSubmitted, TasksFinished, TasksPlaced, TasksRevoked
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs
from random_cases import cases


def below(queues, *jobs, cpu=10, **how):
    """Seconds of one machine of so many cpus, all of which batch uses from 0 to 1000; nobody is revoked."""
    coming = Jobs()
    coming.add(0.0, "batch", {"cpu": cpu * 1000}, 1000.0, 1)
    for at, queue, each, tasks in jobs:
        coming.add(at, queue, {"cpu": each * 1000}, 50.0, tasks, **how)
    workload = coming.workload("by hand", [Node("n", {"cpu": cpu * 1000})], [*queues, Queue("batch")])
    return simulate(workload, settings=Settings(revoke=False)).missed


@pytest.mark.parametrize(
    ("queue", "jobs", "seconds"),
    [
        (Queue("a", guarantee={"cpu": 6000}), [(100.0, "a", 6, 1)], 900.0),
        (Queue("a", guarantee={"cpu": 6000}), [(100.0, "a", 7, 1)], 0.0),
        (Queue("a", guarantee={"cpu": 6000}), [(100.0, "a", 7, 1), (300.0, "a", 1, 1)], 700.0),
        (Queue("a", guarantee={"cpu": 6000}, strict=True), [(100.0, "a", 7, 1), (300.0, "a", 1, 1)], 0.0),
        (Queue("a", guarantee={"cpu": 6000}, max_tasks=0), [(100.0, "a", 6, 1)], 0.0),
        (Queue("a", guarantee={"cpu": 6000}), [(100.0, "b", 6, 1)], 0.0),
    ],
    ids=["within", "beyond", "one behind it within", "not the first of a strict queue", "bounded", "guaranteed nothing"],
)
def test_what_counts_is_what_a_claim_could_serve(queue, jobs, seconds):
    assert below([queue, Queue("b")], *jobs) == seconds


def test_a_gang_counts_whole():
    queue = Queue("a", guarantee={"cpu": 6000})
    assert below([queue], (100.0, "a", 2, 4), gang=True) == 0.0
    assert below([queue], (100.0, "a", 2, 3), gang=True) == 900.0


def test_what_a_queue_uses_counts_though_its_next_task_is_small():
    """The field case: it has 8 of its 10, and waits with tasks of 3."""
    jobs = Jobs()
    jobs.add(0.0, "a", {"cpu": 8000}, 1000.0, 1)
    jobs.add(0.0, "b", {"cpu": 4000}, 1000.0, 1)
    jobs.add(100.0, "a", {"cpu": 3000}, 50.0, 5)
    queues = [Queue("a", guarantee={"cpu": 10_000}), Queue("b")]
    for revoke in (True, False):
        done = simulate(jobs.workload("field", [Node("n", {"cpu": 12_000})], queues), settings=Settings(revoke=revoke))
        assert (done.missed, done.revoked) == (0.0, 0)


def test_of_queues_in_each_other_the_lowest_counts():
    """p/a misses its own; p/b, which is guaranteed nothing, what p is; both at once are one."""
    queues = [Queue("p", guarantee={"cpu": 6000}), Queue("p/a", guarantee={"cpu": 2000}), Queue("p/b")]
    assert below(queues, (100.0, "p/a", 2, 1)) == 900.0
    assert below(queues, (100.0, "p/b", 4, 1)) == 900.0
    assert below(queues, (100.0, "p/a", 2, 1), (100.0, "p/b", 4, 1)) == 900.0
    assert below(queues, (100.0, "p/a", 3, 1)) == 0.0
    assert below([*queues[1:], Queue("p/c", guarantee={"cpu": 2000})], (100.0, "p/a", 2, 1), (300.0, "p/c", 2, 1)) == 1600.0


def world(seed):
    """A random tree of two levels, and more to do than the machines can."""
    rng, jobs, queues, leaves = random.Random(seed), Jobs(), [], []
    resources = ["cpu", "gpu"][: rng.randint(1, 2)]
    nodes = [Node(f"n{k}", dict.fromkeys(resources, 4000)) for k in range(rng.randint(1, 3))]
    left = dict.fromkeys(resources, 4 * len(nodes))

    def declare(name, bound):
        some = {r: rng.randint(1, most) for r, most in bound.items() if most and rng.random() < 0.6}
        bound.update({r: bound[r] - most for r, most in some.items()})
        more = {"max_tasks": rng.randint(1, 4)} if rng.random() < 0.2 else {}
        more |= {"max_jobs": rng.randint(1, 2)} if rng.random() < 0.2 else {}
        queues.append(Queue(name, guarantee={r: 1000 * q for r, q in some.items()}, strict=rng.random() < 0.2, **more))
        return some

    for name in ("p", "q", "r")[: rng.randint(2, 3)]:
        some = declare(name, left)
        inside = [f"{name}/{k}" for k in "ab" if rng.random() < 0.4]
        for each in inside:
            declare(each, some)
        leaves += inside or [name]
    for _ in range(rng.randint(5, 12)):
        demand = {r: 1000 * rng.randint(1, 3) for r in resources if rng.random() < 0.7} or {"cpu": 1000}
        tasks = rng.choice([1, 2, 3])
        gang = tasks <= len(nodes) and rng.random() < 0.4  # what the nodes could never hold is no claim
        at, lasts = float(rng.randint(0, 100)), float(rng.choice([15, 80, 400]))
        jobs.add(at, rng.choice(leaves), demand, lasts, tasks, gang=gang, priority=rng.randint(0, 1))
    return jobs.workload("world", nodes, queues)


class Looking:
    """What runs and waits, by the facts of a run; who is below a guarantee, asked of each job by itself."""

    def __init__(self, queues):
        self.queues, self.jobs = {queue.name: queue for queue in queues}, {}
        self.waits, self.runs, self.revoked = Counter(), Counter(), set()
        self.now = self.missed = 0.0

    def happen(self, fact):
        self.missed += self.below() * (fact.at - self.now) if fact.at > self.now else 0
        self.now = fact.at
        if isinstance(fact, JobSubmitted):
            self.jobs[fact.id], self.waits[fact.id] = fact.job, fact.job.tasks
        elif isinstance(fact, TasksPlaced):
            self.waits.subtract(fact.job.tolist())
            self.runs.update(fact.job.tolist())
        elif isinstance(fact, TasksRevoked):
            self.revoked |= set(zip(fact.job.tolist(), fact.index.tolist(), fact.attempt.tolist(), strict=True))
        elif isinstance(fact, TasksFinished):
            for *attempt, outcome in zip(
                *(getattr(fact, c).tolist() for c in ("job", "index", "attempt", "outcome")), strict=True
            ):
                self.runs[attempt[0]] -= 1
                self.waits[attempt[0]] += tuple(attempt) in self.revoked and outcome != int(Outcome.EXITED)

    def below(self):
        missing = {self.misses(job) for job in self.jobs if self.is_next(job)} - {None}
        return sum(not any(other.startswith(f"{name}/") for other in missing) for name in missing)

    def is_next(self, job):
        """Whether it waits, and nobody goes first whatever room there is."""
        mine = self.jobs[job]
        waits = [k for k in self.jobs if self.waits[k] > 0 and not (self.jobs[k].gang and self.runs[k])]
        line = [k for k in waits if self.jobs[k].queue == mine.queue]
        first = min(line, key=lambda k: (-self.jobs[k].priority, k), default=None)
        return job in line and (not self.queues[mine.queue].strict or job == first)

    def misses(self, job):
        """The lowest queue above a job that is guaranteed some of what it needs, where it would stay within that."""
        mine, found = self.jobs[job], None
        tasks = self.waits[job] if mine.gang else 1
        for name in itertools.accumulate(mine.queue.split("/"), "{}/{}".format):
            queue = self.queues.get(name, Queue(name))
            inside = [k for k in self.jobs if f"{self.jobs[k].queue}/".startswith(f"{name}/")]
            if queue.max_tasks is not None and sum(self.runs[k] for k in inside) + tasks > queue.max_tasks:
                return None
            if queue.max_jobs is not None and sum(self.runs[k] > 0 for k in inside) + (self.runs[job] == 0) > queue.max_jobs:
                return None
            needs = {r: tasks * q for r, q in mine.demand.items() if q and queue.guarantee.get(r)}
            if needs:
                used = {r: sum(self.runs[k] * self.jobs[k].demand.get(r, 0) for k in inside) for r in needs}
                found = name if all(used[r] + q <= queue.guarantee[r] for r, q in needs.items()) else None
        return found


@settings(max_examples=cases(20), deadline=None)
@given(st.integers(0, 10**9), st.booleans(), st.booleans())
def test_it_is_what_one_sees_who_looks_at_each_job(seed, revoke, compiled):
    workload = world(seed)
    looking = Looking(workload.queues)
    done = simulate(
        workload, settings=Settings(revoke=revoke), compiled=compiled, record=lambda new: [looking.happen(fact) for fact in new]
    )
    assert done.missed == pytest.approx(looking.missed)
