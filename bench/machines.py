"""A scheduler of 10, 100 and 1,000 nodes that joined, with 100 running tasks on each: what it costs, and how that grows.

    python -m bench.machines [NODES ...]

The nodes are those of :mod:`bench.fake_nodes`, in one process beside: they speak the protocol over TLS and run nothing. Journal
and membership are on disk. All times are CPU time of the scheduler's process, which others on the machine do not change. Each
number of nodes is measured in a process of its own, which ends in time on a slow machine, too.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event

import psutil

from bench.remote import World
from fairlead.engines.remote import engine
from fairlead.engines.remote.engine import Serving
from fairlead.engines.remote.joined import JoinedEngine
from fairlead.engines.remote.keys import certificate_in, make_certificate
from fairlead.engines.remote.members import LeasePolicy
from fairlead.engines.step import Scheduler
from fairlead.journal import Journal
from fairlead.journal.sql import SqlStore
from fairlead.model.specs import Job, Node, Queue, Settings, Work
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeAdmitted
from fairlead.scheduler.statuses import RUNNING

EACH = 100
"""Tasks on each node."""
IDLE = 10.0
"""Seconds for which heartbeats alone are measured."""
LEASE = LeasePolicy(600.0, 5.0)
SILENT = 300.0
"""So long that no node of a slow machine is lost or dropped. Heartbeats come as often as with the defaults."""


class Lab(World):
    """A scheduler of nodes that joined; it can be started again."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count, self.port, self.jobs = folder, count, 0, 0
        (folder / "home").mkdir()
        own = [make_certificate(f"n{k}") for k in range(count)]
        self.members = {f"n{k}": certificate_in(each) for k, each in enumerate(own)}
        self.start()
        facts = [NodeAdmitted(at=self.clock(), node=node, certificate=each) for node, each in self.members.items()]
        self.step(Configured(at=self.clock(), queues=[Queue("q")], settings=Settings()), *facts)
        self.engine.recorded(facts)
        keys = {"scheduler": self.engine._ring.certificate, "own": own, "each": EACH}
        (folder / "fakes.json").write_text(json.dumps(keys))
        words = [sys.executable, "-m", "bench.fake_nodes", str(folder), str(self.port), "0", "0"]
        self.fakes = subprocess.Popen(words, stdin=subprocess.PIPE, text=True)

    def start(self) -> None:
        """Start the scheduler, the first or another."""
        self.clock, self.awake = time.monotonic, Event()
        engine.SILENT = SILENT
        serving = Serving(self.folder / "home", self.awake.set, LEASE, ("127.0.0.1", self.port))
        self.engine = JoinedEngine(serving, Node("here", {"none": 1}), "me")
        self.port = self.engine.port
        self.journal = Journal(SqlStore(self.folder / "journal.db"))
        self.scheduler = Scheduler(self.journal, self.engine, self.clock)
        self.engine.know(self.state.cluster.members)
        self.engine.expect({name: [(0, 0, 0)] for name in self.state.cluster.members})

    def close(self) -> None:
        self.engine.close(leave=True)  # the supervisor of this machine too
        self.engine.join(10)
        self.fakes.kill()
        self.fakes.wait()
        self.journal.close()

    def end(self) -> None:
        self.engine.close()
        self.engine.join(10)
        self.journal.close()

    def all_are_heard(self) -> bool:
        """Return whether all nodes have said what runs there."""
        return all(member.node is not None for member in self.engine._members.values())

    def running(self) -> int:
        rows = self.state.held_rows()
        return int((self.state.tasks.status[rows] == RUNNING).sum())


def measure(count: int, within: float) -> None:
    """Measure with `count` nodes for `within` seconds at most; print what is found after each phase, as JSON."""
    me, found, over_at = psutil.Process(), dict[str, float](), time.monotonic() + within
    with tempfile.TemporaryDirectory() as folder:
        before = me.memory_info().rss
        with closing(lab := Lab(Path(folder), count)):

            @contextmanager
            def measured(name: str) -> Iterator[None]:
                began = me.cpu_times()
                yield
                now = me.cpu_times()
                found[name] = now.user + now.system - began.user - began.system
                found[f"memory_{name}"] = (me.memory_info().rss - before) / 2**20
                print(json.dumps(found), flush=True)

            def until(condition) -> None:
                lab.until(condition, over_at - time.monotonic())

            with measured("join"):
                until(lambda: lab.up() == count + 1)
            with measured("start"):
                lab.step(JobSubmitted(at=lab.clock(), id=1, job=Job("q", {"cpu": 1000}, count * EACH, work=Work(["sleep"], "/"))))
                until(lambda: lab.running() == count * EACH)
            with measured("idle"):
                idle_until = time.monotonic() + IDLE
                until(lambda: time.monotonic() > idle_until)
            lab.end()
            with measured("adopt"):
                lab.start()
                until(lambda: lab.up() == count + 1 and lab.all_are_heard())
            if lab.running() != count * EACH:
                raise AssertionError(f"{lab.running()} of {count * EACH} tasks run on")
            with measured("end"):
                lab.fakes.stdin.write("end 0\n")
                lab.fakes.stdin.flush()
                until(lambda: lab.is_done(1))


def run(counts: tuple[int, ...] = (10, 100, 1000), within: float = 240.0) -> None:
    """Print a line for each number of nodes, measured for `within` seconds at most; `-` is what it did not come to."""
    print(f"nodes that joined, with {EACH} running tasks on each: CPU time of the scheduler, and growth of its memory")
    print("  nodes   join a node  start a task  end a task    idle  adopt after a restart     MiB  with its tasks")
    for count in counts:
        words = [sys.executable, "-m", "bench.machines", str(count), str(within)]
        lines = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        it = json.loads(lines[-1]) if lines else {}

        def cell(name: str, unit: str, times: float, width: int, it=it) -> str:
            return f"{f'{times * it[name]:.3g} {unit}' if name in it else '-':>{width}}"

        each = 1e6 / (count * EACH)
        cells = [cell("join", "ms", 1000 / count, 12), cell("start", "µs", each, 14), cell("end", "µs", each, 12)]
        cells += [cell("idle", "%", 100 / IDLE, 8), cell("adopt", "s", 1, 23)]
        print(f"  {count:5}", *cells, cell("memory_join", "", 1, 8), cell("memory_start", "", 1, 16), sep="")


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with suppress(TimeoutError):  # a slow machine: the rest is not known
        measure(int(sys.argv[1]), float(sys.argv[2]))
