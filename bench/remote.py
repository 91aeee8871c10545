"""The scheduler's side of 10, 100 and 1,000 nodes, which speak the protocol over real sockets and run nothing.

Connections use TLS, as between machines. The journal is in memory; other benchmarks measure it on disk. One process
(:mod:`bench.fake_nodes`) plays all nodes, and is as busy as this one.
"""

import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import NamedTuple

import psutil

from fairlead.engines.remote.engine import RemoteEngine, Serving
from fairlead.engines.remote.members import LeasePolicy
from fairlead.engines.step import Scheduler
from fairlead.journal import Unrecorded
from fairlead.model.specs import Job, Node, Queue, Settings, Work
from fairlead.scheduler.facts import Configured, Fact, JobSubmitted
from fairlead.scheduler.reports.listings import describe_job
from fairlead.scheduler.state import State

LOST_AFTER = 10.0
"""Seconds of a lease: on a busy machine, 1,000 nodes in one process may be silent for two."""
CORES = 16


class Measured(NamedTuple):
    """Results for one number of nodes.

    joined, lost : seconds until all nodes are up, and from a node's silence until it is lost
    rate : tasks per second
    middle, slow : milliseconds from submission to end, median and p99
    memory : growth of this process, in MiB
    """

    joined: float
    rate: float
    middle: float
    slow: float
    lost: float
    memory: float


class World:
    """A scheduler over fake nodes."""

    def __init__(self, folder: Path, count: int, delay: float = 0.0, tears: float = 0.0, lost_after: float = LOST_AFTER) -> None:
        self.clock, self.awake = time.monotonic, Event()
        self.engine = RemoteEngine(Serving(folder, self.awake.set, _promise(lost_after), ("127.0.0.1", 0)))
        ring = self.engine._ring
        keys = {"scheduler": ring.certificate, "own": [ring.made_for(f"n{k}") for k in range(count)]}
        (folder / "fakes.json").write_text(json.dumps(keys))
        self.scheduler = Scheduler(Unrecorded(), self.engine, self.clock)
        self.jobs = 0
        self.step(Configured(at=self.clock(), queues=[Queue("q")], settings=Settings()))
        for k in range(count):
            self.engine.admit(Node(f"n{k}", {"cpu": 1000 * CORES, "memory": 2**36}), "127.0.0.1")
        options = [str(folder), str(self.engine.port), str(delay), str(tears)]
        self.fakes = subprocess.Popen([sys.executable, "-m", "bench.fake_nodes", *options], stdin=subprocess.PIPE, text=True)

    @property
    def state(self) -> State:
        return self.scheduler.state

    def step(self, *facts: Fact) -> None:
        self.scheduler.step([lambda state, now: facts] if facts else [])

    def until(self, condition, seconds: float = 600) -> float:
        """Step until the condition holds; return the seconds that it took."""
        began = time.perf_counter()
        while not condition():
            if time.perf_counter() - began > seconds:
                raise TimeoutError(f"not within {seconds} s")
            if not self.scheduler.more:
                self.awake.wait(0.05)
                self.awake.clear()
            self.step()
        return time.perf_counter() - began

    def up(self) -> int:
        return int(self.state.nodes.up[: self.state.nodes.n].sum())

    def submit(self, tasks: int) -> int:
        self.jobs += 1
        job = Job("q", {"cpu": 1000}, tasks, work=Work(["true"], "/", {"PATH": "/usr/bin:/bin"}))
        self.step(JobSubmitted(at=self.clock(), id=self.jobs, job=job))
        return self.jobs

    def is_done(self, job: int) -> bool:
        return describe_job(self.state, job)["finished_at"] is not None

    def freeze(self, node: int) -> None:
        self.fakes.stdin.write(f"freeze {node}\n")
        self.fakes.stdin.flush()

    def close(self) -> None:
        self.engine.close()
        self.engine.join(10)
        self.fakes.kill()
        self.fakes.wait()


@contextlib.contextmanager
def world(count: int, **more: float) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(World(Path(folder), count, **more)) as made:
        yield made


def _promise(lost_after: float) -> LeasePolicy:
    return LeasePolicy(lost_after, grace=0.5)


def measure(count: int, tasks: int, singles: int = 100, lost_after: float = LOST_AFTER) -> Measured:
    """Measure with `count` nodes."""
    me = psutil.Process()
    before = me.memory_info().rss
    with world(count, lost_after=lost_after) as over:
        joined = over.until(lambda: over.up() == count)
        memory = (me.memory_info().rss - before) / 2**20
        many = over.submit(tasks)
        rate = tasks / over.until(lambda: over.is_done(many))
        took = []
        for _ in range(singles):
            began = time.perf_counter()
            one = over.submit(1)
            over.until(lambda one=one: over.is_done(one))
            took.append(1000 * (time.perf_counter() - began))
        over.freeze(0)
        lost = over.until(lambda: over.up() == count - 1)
    took.sort()
    return Measured(joined, rate, statistics.median(took), took[int(0.99 * len(took))], lost, memory)


def run(counts: tuple[int, ...] = (10, 100, 1000), tasks: int = 50_000, lost_after: float = LOST_AFTER) -> None:
    """Print a line for each number of nodes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a connection and a port for each
    least = _promise(lost_after).over_within()
    print(f"many nodes, over TLS; leases of {lost_after:g} s: no loss is told before {least:.1f} s")
    measure(2, 10, 1, 1.0)  # warm up
    for count in counts:
        found = measure(count, tasks, lost_after=lost_after)
        print(
            f"  {count:5} nodes: there after {found.joined:.1f} s, {found.memory:.0f} MiB; {found.rate:,.0f} tasks a second; "
            f"from submission to end {found.middle:.1f} ms ({found.slow:.1f} at the 99th of 100); lost after {found.lost:.1f} s"
        )
