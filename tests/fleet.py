"""Several nodes on this machine, each with a real supervisor in a folder of its own, and one engine over all of them."""

import contextlib
import os
import time
from pathlib import Path

import numpy as np
import psutil

from conftest import pause, supervisor_of
from fairlead.engines.contract import Launches, NodeDown, Where
from fairlead.engines.local.member import Membership, start_member
from fairlead.engines.remote.engine import RemoteEngine, Serving
from fairlead.engines.remote.joined import JoinedEngine
from fairlead.engines.remote.members import LeasePolicy
from fairlead.model.specs import Job, Node, Work
from fake_engine import Attempt, columns, rows

SHORT_LEASE = LeasePolicy(lost_after=3.0, grace=0.3)
LONG_LEASE = LeasePolicy(lost_after=60.0, grace=5.0)


class Fleet:
    """Nodes `n0` to `n{count - 1}`, which dial the scheduler as if they were machines of their own."""

    def __init__(self, folder: Path, count: int, promise: LeasePolicy = LONG_LEASE) -> None:
        self.folder, self.promise = folder, promise
        self.names = [f"n{k}" for k in range(count)]
        self.home = folder / "home"
        self.home.mkdir()
        self.nodes = {name: Node(name, {"cpu": 4000, "memory": 8 << 30, "gpu": 2000}) for name in self.names}
        self.started, self.ended, self.known, self.news = set(), {}, {}, []
        self.serve()

    def place(self, name: str, engine: RemoteEngine | None = None, **shares) -> None:
        """The supervisor of a node runs, and dials a scheduler, by default the last."""
        to = engine or self.engine
        own, there = to._ring.made_for(name), {"version": "0", **shares}
        start_member(self.folder / name, Membership(own, to._ring.certificate, ["127.0.0.1"], to.port, there))

    def serve(self, **more) -> None:
        """A scheduler comes, the first or another."""
        self.engine = RemoteEngine(Serving(self.home, lambda: None, self.promise, ("127.0.0.1", 0), **more))
        self.engine.serve("fleet", time.monotonic_ns())
        for name in self.names:
            self.engine.admit(self.nodes[name], "127.0.0.1")
            self.place(name)
        self.until(lambda: {node.name for node in self.engine.nodes} == set(self.names))

    def job(self, *argv: str, env=None, **more) -> Job:
        demand = {"cpu": 1000} | more.pop("demand", {})
        given = {"input": more.pop("input", ""), "export": more.pop("export", "")}
        work = Work(list(argv), str(self.folder), {"PATH": os.environ["PATH"], **(env or {})}, **given)
        return Job("q", demand, work=work, **more)

    def start(self, job: Job, **places: list[Attempt]) -> None:
        """Start attempts of a job, by node."""
        names = list(places)
        attempts = [attempt for some in places.values() for attempt in some]
        node = np.repeat(np.arange(len(names)), [len(some) for some in places.values()])
        gangs = {attempt.job: [name for name, some in places.items() for _ in some] for attempt in attempts}
        self.engine.start(Launches(columns(attempts), node, names, {attempt.job: job for attempt in attempts}, gangs=gangs))

    def where(self, **counts: int) -> Where:
        """So many attempts on each node, in order."""
        return Where(np.repeat(np.arange(len(counts)), list(counts.values())), list(counts))

    def look(self) -> None:
        seen = self.engine.poll()
        if seen.known is not None:
            known = rows(seen.known)
            self.known |= {name: set(known) for name in seen.of if name in self.names}
        self.started.update(rows(seen.started))
        outcomes = zip(seen.ended.outcome.tolist(), seen.ended.code.tolist(), strict=True)
        self.ended.update(zip(rows(seen.ended.attempts), outcomes, strict=True))
        self.news += seen.nodes

    def until(self, condition, seconds: float = 60.0) -> None:
        began = time.monotonic()
        while not condition():
            assert time.monotonic() < began + seconds, (self.known, self.started, self.ended, self.news, self.engine.trouble)
            self.look()
            pause(began)

    def end_of(self, attempt: Attempt, seconds: float = 60.0):
        self.until(lambda: attempt in self.ended, seconds)
        return self.ended[attempt]

    def is_down(self, name: str) -> bool:
        told = [event for event in self.news if event == NodeDown(name) or event[0] == self.nodes[name]]
        return bool(told) and isinstance(told[-1], NodeDown)

    def supervisor(self, name: str) -> psutil.Process:
        (found,) = supervisor_of(self.folder / name)
        return found

    def wrote(self, attempt: Attempt, name: str, stream: str = "out") -> str:
        return (self.folder / name / "output" / str(attempt.job) / f"{attempt.task}.{stream}").read_text()

    def close(self) -> None:
        """End all that runs, however the test left it."""
        if not self.engine._connections._thread.is_alive():
            self.serve()  # so that supervisors leave in good order, with their cgroups
        for name in self.names:
            for process in supervisor_of(self.folder / name):
                for child in process.children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
                process.resume()
        self.engine.close(leave=True)
        self.engine.join(10)
        deadline = time.monotonic() + 3
        while (left := [p for name in self.names for p in supervisor_of(self.folder / name)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        for process in left:
            process.kill()


class JoinedFleet(Fleet):
    """The same nodes as members, which say themselves what they share; the scheduler's own machine is a node beside."""

    def place(self, name: str, engine: RemoteEngine | None = None, **shares) -> None:
        super().place(name, engine, capacity=self.nodes[name].capacity, labels={}, **shares)

    def serve(self, **more) -> None:
        serving = Serving(self.home, lambda: None, self.promise, ("127.0.0.1", 0), **more)
        self.engine = JoinedEngine(serving, Node("own", {"none": 1}), "me")
        self.engine.serve("fleet", time.monotonic_ns())
        self.engine.know({})
        for name in self.names:
            self.place(name)
        self.until(lambda: {*self.names} < {node.name for node in self.engine.nodes})
        self.nodes = {node.name: node for node in self.engine.nodes}
