"""Commands over four real Ray nodes: through fairlead, by one plain actor a node that forks them, and as plain Ray tasks.

All on this machine, with as many at a time. The actors get the commands in batches and only wait for them: no limits, no output
files, no journal; it is what machines can do at most. A plain Ray task starts the command in a worker of Ray's. And the latency
of one command, from its submission to its end, when nothing else waits.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.end_to_end import FAIRLEAD
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.engines.ray.trial import Trial

NODES, EACH = 4, 4
"""And CPUs that each says it has."""
BATCH = 50
"""Commands that an actor is handed at once."""

PLAIN = """
import subprocess, sys, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as At
address, how, tasks, each, batch = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
ray.init(address=address, log_to_driver=False, configure_logging=False)

@ray.remote(num_cpus=0)
class Agent:
    def run(self, count):
        left, running = count, []
        while left or running:
            while left and len(running) < each:
                running.append(subprocess.Popen(["true"]))
                left -= 1
            running.pop(0).wait()
        return count

@ray.remote(num_cpus=1)
def one():
    return subprocess.call(["true"])

if how == "actors":
    agents = [Agent.options(scheduling_strategy=At(n["NodeID"], soft=False)).remote() for n in ray.nodes()]
    ray.get([agent.run.remote(1) for agent in agents])
    began = time.perf_counter()
    share = tasks // len(agents)
    ray.get([agent.run.remote(min(batch, share - k)) for agent in agents for k in range(0, share, batch)])
else:
    ray.get([one.remote() for _ in range(4 * each)])
    began = time.perf_counter()
    ray.get([one.remote() for _ in range(tasks)])
print(time.perf_counter() - began)
"""


@contextmanager
def cluster() -> Iterator[tuple[Path, str]]:
    """Four Ray nodes, and a scheduler over them: its data folder, and the head's address."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir(mode=0o700)
        env = {**os.environ, "FAIRLEAD_HOME": str(home)}
        trial = Trial(home, [(EACH, 2**32)] * NODES)
        try:
            address = trial.start(NODES)
            words = ["up", "--engine", "ray", "--ray-address", address]
            server = subprocess.Popen([FAIRLEAD, *words], env=env, stderr=subprocess.DEVNULL)
            try:
                _wait_for_nodes(home)
                yield home, address
            finally:
                subprocess.run([FAIRLEAD, "down", "--now"], env=env, check=False, stdout=subprocess.DEVNULL)
                server.wait()
        finally:
            trial.end()


def _wait_for_nodes(home: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            nodes = Connection(home).get("/v1/nodes")["nodes"]
        except ServiceError:
            nodes = []
        if sum(node["status"] == "up" for node in nodes) == NODES:
            return
        time.sleep(0.1)
    raise SystemExit(f"{NODES} nodes did not come")


def _through_fairlead(connection: Connection, tasks: int, **more: Any) -> float:
    work = {"argv": ["true"], "demand": {"cpu": 1}, "tasks": tasks, "env": {"PATH": os.environ["PATH"]}, **more}
    began = time.perf_counter()
    job = connection.post("/v1/jobs", work)["id"]
    while connection.get(f"/v1/jobs/{job}", wait=30)["succeeded"] < tasks:
        pass
    return time.perf_counter() - began


def _plain(address: str, how: str, tasks: int) -> float:
    words = [sys.executable, "-c", PLAIN, address, how, str(tasks), str(EACH), str(BATCH)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return float(done.stdout.split()[-1])


def run(tasks: int = 2000, one_by_one: int = 20) -> None:
    """Print commands a second for all three, and the latency of one."""
    with cluster() as (home, address):
        connection = Connection(home)
        _through_fairlead(connection, NODES * EACH)
        fairlead = tasks / _through_fairlead(connection, tasks)
        latency = sorted(_through_fairlead(connection, 1) for _ in range(one_by_one))[one_by_one // 2]
        actors, plain = (tasks / _plain(address, how, tasks) for how in ("actors", "tasks"))
    print(
        f"ray {tasks:,} x `true` over {NODES} nodes, {NODES * EACH} at a time: {fairlead:,.0f} tasks/s through fairlead, "
        f"{actors:,.0f} by an actor a node that forks them ({fairlead / actors:.0%}), {plain:,.0f} as Ray's own tasks; "
        f"one alone takes {1000 * latency:.0f} ms through fairlead"
    )
