"""A scheduler of 10, 100 and 1,000 nodes that joined, with 100 running tasks on each: what it costs, and how that grows.

    python -m bench.machines [NODES ...]

The nodes are those of :mod:`bench.fake_nodes`, in one process beside: they speak the protocol over TLS and run nothing. Journal
and membership are on disk. All times are CPU seconds of the scheduler's process, which others on the machine do not change. Each
number of nodes is measured in a process of its own.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from threading import Event

import psutil

from bench.remote import World
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
LEASE = LeasePolicy(30.0, 5.0)
"""The defaults of `fairlead up`."""


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
        serving = Serving(self.folder / "home", self.awake.set, LEASE, ("127.0.0.1", self.port))
        self.engine = JoinedEngine(serving, Node("here", {"none": 1}), "me")
        self.port = self.engine.port
        self.journal = Journal(SqlStore(self.folder / "journal.db"))
        self.scheduler = Scheduler(self.journal, self.engine, self.clock)
        self.engine.know(self.state.cluster.members)
        self.engine.expect(dict.fromkeys(self.state.cluster.members, True))

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

    def unheard(self) -> int:
        """Count nodes that have not said what runs there."""
        return sum(member.node is None for member in self.engine._members.values())

    def running(self) -> int:
        rows = self.state.held_rows()
        return int((self.state.tasks.status[rows] == RUNNING).sum())


def measure(count: int) -> dict[str, float]:
    """Measure with `count` nodes."""
    me = psutil.Process()
    found: dict[str, float] = {"nodes": count}

    def spent(name: str, what) -> None:
        before, began = me.cpu_times(), time.perf_counter()
        what()
        now = me.cpu_times()
        found[name] = now.user + now.system - before.user - before.system
        found[f"{name}_took"] = time.perf_counter() - began

    with tempfile.TemporaryDirectory() as folder:
        before = me.memory_info().rss
        lab = Lab(Path(folder), count)
        with closing(lab):
            tasks = count * EACH
            spent("join", lambda: lab.until(lambda: lab.up() == count + 1))
            found["memory"] = (me.memory_info().rss - before) / 2**20
            lab.step(JobSubmitted(at=lab.clock(), id=1, job=Job("q", {"cpu": 1000}, tasks, work=Work(["sleep"], "/"))))
            spent("start", lambda: lab.until(lambda: lab.running() == tasks))
            found["memory_full"] = (me.memory_info().rss - before) / 2**20
            until = time.monotonic() + IDLE
            spent("idle", lambda: lab.until(lambda: time.monotonic() > until))
            lab.end()
            spent("adopt", lambda: (lab.start(), lab.until(lambda: lab.up() == count + 1 and not lab.unheard())))
            if lab.running() != tasks:
                raise AssertionError(f"{lab.running()} of {tasks} tasks run on")
            lab.fakes.stdin.write("end 0\n")
            lab.fakes.stdin.flush()
            spent("finish", lambda: lab.until(lambda: lab.is_done(1)))
    return found


def run(counts: tuple[int, ...] = (10, 100, 1000)) -> None:
    """Print a line for each number of nodes."""
    print(f"nodes that joined, with {EACH} running tasks on each; CPU seconds of the scheduler, and seconds in brackets")
    for count in counts:
        done = subprocess.run([sys.executable, "-m", "bench.machines", str(count)], stdout=subprocess.PIPE, text=True, check=True)
        it = json.loads(done.stdout)
        tasks = count * EACH
        print(
            f"  {count:5} nodes: join {1000 * it['join'] / count:.1f} ms a node; "
            f"start {1e6 * it['start'] / tasks:.0f} µs a task, "
            f"end {1e6 * it['finish'] / tasks:.0f}; idle {it['idle'] / IDLE:.1%} of a CPU; a restart adopts {tasks:,} tasks in "
            f"{it['adopt']:.2f} s ({it['adopt_took']:.1f}); {it['memory']:.0f} MiB, {it['memory_full']:.0f} with its tasks"
        )


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(measure(int(sys.argv[1]))))
