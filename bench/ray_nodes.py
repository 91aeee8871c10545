"""Commands and Python calls on four real Ray nodes: through fairlead, by plain actors, and as Ray tasks; and on four that joined.

All run on this machine with the same parallelism. The actors, one per node, fork commands in batches, without limits, output
files or journal: the upper bound. A plain Ray task runs the command in a Ray worker. Further results: the latency of one
command on an idle cluster, CPU time by component, and the time until a killed scheduler places tasks again while many run.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

import fairlead
from bench.calls import measure, square
from bench.end_to_end import FAIRLEAD, through_xargs
from bench.ray_trial import Trial
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError

NODES, EACH = 4, 4
"""Nodes, and declared CPUs of each."""
BATCH = 50
"""Commands per call of an actor."""
PLAIN_WITHIN = 300.0
"""Timeout of the plain Ray program, in seconds."""

PLAIN = """
import json, subprocess, sys, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as At
address, tasks, calls, each, batch = sys.argv[1], *map(int, sys.argv[2:])
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

@ray.remote(num_cpus=1)
def square(x):
    return x * x

def timed(what):
    began = time.perf_counter()
    ray.get(what())
    return time.perf_counter() - began

agents = [Agent.options(scheduling_strategy=At(n["NodeID"], soft=False)).remote() for n in ray.nodes()]
share = tasks // len(agents)
ray.get([agent.run.remote(1) for agent in agents])
found = {"actors": timed(lambda: [a.run.remote(min(batch, share - k)) for a in agents for k in range(0, share, batch)])}
ray.get([one.remote() for _ in range(4 * each)])
found["tasks"] = timed(lambda: [one.remote() for _ in range(tasks)])
ray.get([square.remote(x) for x in range(4 * each)])
found["one_call"] = sorted(timed(lambda: square.remote(x)) for x in range(20))[10]
found["calls"] = timed(lambda: [square.remote(x) for x in range(calls)])
print(json.dumps(found))
"""


class World(NamedTuple):
    """Four Ray nodes, and a scheduler that can be killed and restarted."""

    home: Path
    address: str
    up: Callable[[], object]
    kill: Callable[[], object]


@contextmanager
def cluster() -> Iterator[World]:
    """Run a world while the context is open."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir(mode=0o700)
        env = {**os.environ, "FAIRLEAD_HOME": str(home)}
        trial = Trial(home, [(EACH, 2**32)] * NODES)
        running: list[subprocess.Popen[bytes]] = []
        try:
            with _variable("FAIRLEAD_HOME", str(home)):  # agents and supervisors have their folders there
                address = trial.start(NODES)

            def up() -> None:
                words = ["up", "--engine", "ray", "--ray-address", address]
                running.append(subprocess.Popen([FAIRLEAD, *words], env=env, stderr=subprocess.DEVNULL))
                _wait_for_nodes(home)

            def kill() -> None:
                running[-1].kill()
                running[-1].wait()

            try:
                up()
                yield World(home, address, up, kill)
            finally:
                subprocess.run([FAIRLEAD, "down", "--now"], env=env, check=False, stdout=subprocess.DEVNULL)
                running[-1].wait()
        finally:
            trial.end()


@contextmanager
def joined() -> Iterator[Path]:
    """Run a scheduler over four nodes that joined, without Ray, while the context is open; return its home."""
    with tempfile.TemporaryDirectory() as folder:
        home, running = Path(folder, "home"), list[subprocess.Popen[bytes]]()
        env = {**os.environ, "FAIRLEAD_HOME": str(home)}
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = "{}:{}".format(*free.getsockname())

        def start(name: str, capacity: str, *words: str) -> None:
            config = Path(folder, f"{name}.toml")
            config.write_text(f'[[node]]\nname = "{name}"\ncapacity = {{ {capacity} }}\n')
            command = [FAIRLEAD, *words, "--config", str(config)]
            running.append(subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL))

        try:
            start("here", "scheduler = 1", "up", "--nodes", address)
            _wait_for_nodes(home, 1)
            for k in range(NODES):
                token = subprocess.check_output([FAIRLEAD, "node", "token"], env=env, text=True, stderr=subprocess.DEVNULL)
                there = str(home / f"n{k}")
                start(f"n{k}", f'cpu = {EACH}, memory = "4Gi"', "node", "join", address, token.strip(), "--home", there)
            _wait_for_nodes(home, 1 + NODES)
            yield home
        finally:
            for process in reversed(running):
                process.send_signal(signal.SIGINT)
                process.wait()


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _wait_for_nodes(home: Path, count: int = NODES) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            nodes = Connection(home, retry_seconds=0).get("/v1/nodes")["nodes"]
        except ServiceError:
            nodes = []
        if sum(node["status"] == "up" for node in nodes) == count:
            return
        time.sleep(0.02)
    raise SystemExit(f"{count} nodes did not come")


def _through_fairlead(home: Path, tasks: int, **more: Any) -> float:
    work = {"argv": ["true"], "demand": {"cpu": 1}, "tasks": tasks, "env": {"PATH": os.environ["PATH"]}, **more}
    with Connection(home) as connection:
        began = time.perf_counter()
        job = connection.post("/v1/jobs", work)["id"]
        while connection.get(f"/v1/jobs/{job}", wait=30)["succeeded"] < tasks:
            pass
        return time.perf_counter() - began


def by_ray(address: str, tasks: int, calls: int) -> dict[str, float]:
    """Return the seconds of plain actors and Ray tasks for the commands, and of Ray tasks for the calls and for one call."""
    words = [sys.executable, "-c", PLAIN, address, *map(str, (tasks, calls, EACH, BATCH))]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=PLAIN_WITHIN)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _cpu(home: Path) -> dict[str, float]:
    """Return the CPU seconds so far of the scheduler, the supervisors, and the commands that they reaped."""
    used = dict.fromkeys(("scheduler", "supervisors", "commands"), 0.0)
    for process in psutil.process_iter(["cmdline", "environ", "cpu_times"]):
        words, env, times = process.info["cmdline"] or [], process.info["environ"] or {}, process.info["cpu_times"]
        if env.get("FAIRLEAD_HOME") == str(home) and "up" in words:
            used["scheduler"] += times.user + times.system
        elif "fairlead.engines.local.supervisor" in words and str(home) in words[-1]:
            used["supervisors"] += times.user + times.system
            used["commands"] += times.children_user + times.children_system
    return used


class Speed(NamedTuple):
    """Commands per second, seconds of one alone, and CPU microseconds of each by component."""

    rate: float
    alone: float
    used: dict[str, float]


def speed(home: Path, tasks: int, one_by_one: int) -> Speed:
    """Measure commands through a scheduler."""
    _through_fairlead(home, NODES * EACH)
    before = _cpu(home)
    rate = tasks / _through_fairlead(home, tasks)
    used = {name: 1e6 * (now - before[name]) / tasks for name, now in _cpu(home).items()}
    return Speed(rate, sorted(_through_fairlead(home, 1) for _ in range(one_by_one))[one_by_one // 2], used)


def commands(world: World, tasks: int, one_by_one: int, plain: dict[str, float]) -> None:
    """Print commands per second of all three, CPU time by component, and the latency of one command."""
    ours, latency, used = speed(world.home, tasks, one_by_one)
    actors, rays = tasks / plain["actors"], tasks / plain["tasks"]
    print(
        f"ray {tasks:,} x `true` over {NODES} nodes, {NODES * EACH} at a time: {ours:,.0f} tasks/s through fairlead, "
        f"{actors:,.0f} by an actor a node that forks them ({ours / actors:.0%}), {rays:,.0f} as Ray's own tasks; "
        f"one alone takes {1000 * latency:.0f} ms through fairlead"
    )
    print("    CPU of each: " + ", ".join(f"{used[name]:,.0f} µs of {name}" for name in used))


def joining(world: World, tasks: int, one_by_one: int, turns: int = 5) -> None:
    """Print commands per second over nodes that joined, beside those over Ray's, in turns; the median of each counts."""
    with joined() as home:
        both = [(speed(world.home, tasks, one_by_one), speed(home, tasks, one_by_one)) for _ in range(turns)]
    theirs, ours = (sorted(each)[turns // 2] for each in zip(*both, strict=True))
    print(
        f"the same over {NODES} nodes that joined, without Ray: {ours.rate:,.0f} tasks/s, {theirs.rate:,.0f} over Ray's nodes "
        f"({ours.rate / theirs.rate:.0%}); one alone {1000 * ours.alone:.0f} ms ({1000 * theirs.alone:.0f})"
    )
    print(
        "    CPU of each: " + ", ".join(f"{ours.used[name]:,.0f} ({theirs.used[name]:,.0f}) µs of {name}" for name in ours.used)
    )


def beside_xargs(tasks: int = 5000, turns: int = 3) -> None:
    """Print commands over nodes that joined beside `xargs -P` on this machine, in turns: the medians of clock and CPU time."""
    with joined() as home:
        _through_fairlead(home, NODES * EACH)
        ours, theirs = list[tuple[float, float, dict[str, float]]](), list[tuple[float, float]]()
        for _ in range(turns):
            before, took, now = _cpu(home), _through_fairlead(home, tasks), _cpu(home)
            used = {name: 1e6 * (now[name] - before[name]) / tasks for name in now}
            ours.append((took, sum(used.values()), used))
            spent = os.times()
            took, after = through_xargs(tasks, NODES * EACH), os.times()
            cpu = after.children_user + after.children_system - spent.children_user - spent.children_system
            theirs.append((took, 1e6 * cpu / tasks))
    (took, cpu), (their_took, their_cpu) = (np.median([each[:2] for each in both], axis=0) for both in (ours, theirs))
    used = sorted(ours, key=lambda each: each[1])[turns // 2][2]
    print(
        f"{tasks:,} x `true` over {NODES} nodes that joined, {NODES * EACH} at a time: {tasks / took:,.0f} tasks/s, "
        f"{tasks / their_took:,.0f} through xargs -P {NODES * EACH} ({their_took / took:.0%}); "
        f"CPU of each {cpu:,.0f} µs and {their_cpu:,.0f} ({their_cpu / cpu:.0%})"
    )
    print("    CPU of each: " + ", ".join(f"{used[name]:,.0f} µs of {name}" for name in used))


def calls(world: World, count: int, plain: dict[str, float]) -> None:
    """Print throughput and latency of Python calls, through fairlead and as Ray tasks."""
    with fairlead.Client(world.home, memory=0) as client:
        measure("fairlead", lambda x: client.submit(square, x).result(), lambda xs: list(client.map(square, xs)), count)
    print(f"{count / plain['calls']:>9,.0f} calls/s   one at a time p50 {1000 * plain['one_call']:.2f} ms  Ray")


def adopting(world: World, tasks: int) -> None:
    """Print the time until a killed scheduler runs a command again, with `tasks` running tasks to adopt."""
    if tasks:
        _start_sleeping(world.home, tasks)
    world.kill()
    began = time.perf_counter()
    world.up()
    _through_fairlead(world.home, 1)
    print(f"a scheduler that was killed runs commands again after {time.perf_counter() - began:.2f} s, with {tasks:,} to adopt")
    with Connection(world.home) as connection:
        for job in [job for job in connection.get("/v1/jobs")["jobs"] if job["running"]]:
            found = connection.get(f"/v1/jobs/{job['id']}/tasks", limit=tasks)["tasks"]
            if job["running"] != tasks or any(task["attempt"] != 1 for task in found):
                raise AssertionError(f"of {tasks} tasks {job['running']} run, and some may have begun again")
            connection.post(f"/v1/jobs/{job['id']}/cancel", {})


def _start_sleeping(home: Path, tasks: int) -> None:
    with Connection(home) as connection:
        cpus = sum(node["capacity"]["cpu"] for node in connection.get("/v1/nodes")["nodes"])
        demand = {"cpu": f"{cpus // 2 // tasks}m"}  # leave half of the CPUs free
        work = {"argv": ["sleep", "3600"], "demand": demand, "tasks": tasks, "env": {"PATH": os.environ["PATH"]}}
        job = connection.post("/v1/jobs", work)["id"]
        while connection.get(f"/v1/jobs/{job}")["running"] < tasks:
            time.sleep(0.02)  # the API waits only for a job's end


def run(tasks: int = 2000, one_by_one: int = 20, count: int = 2000, adopted: int = 1000) -> None:
    """Print all results."""
    beside_xargs()
    with cluster() as world:
        plain = by_ray(world.address, tasks, count)
        commands(world, tasks, one_by_one, plain)
        joining(world, tasks, one_by_one)
        calls(world, count, plain)
        adopting(world, 0)
        adopting(world, adopted)
