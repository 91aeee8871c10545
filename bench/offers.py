"""Offer cycles on the grid of Mesos' own benchmark, beside a plain loop; and tasks per second through the real pymesos.

Mesos' benchmark (`HierarchicalAllocator_BENCHMARK_Test.DeclineOffers`) measures the time until all agents are offered,
repeatedly, while each offer is declined. Here a framework declines an agent for an hour.
"""

import os
import random
import re
import signal
import subprocess
import tempfile
import threading
import time
from bisect import insort
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench import real_pymesos
from bench.end_to_end import FAIRLEAD
from fairlead.model.specs import ROOT, Framework, Node, Offer, Queue, Settings
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, NodeJoined, OffersMade
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.state import State

CAPACITY = {"cpu": 24_000, "memory": 64 << 30, "disk": 4 << 40}
"""Capacity of an agent, about as in Mesos' benchmark."""
HOUR = 3600.0


def make_state(agents: int, roles: int, count: int) -> State:
    """Return a cluster of `agents`, with `count` frameworks in `roles` roles, before the first offer."""
    state = new_state()
    apply(state, Configured(at=0, queues=[Queue(ROOT, policy="mesos")], settings=Settings(offer_timeout=HOUR)))
    for k in range(agents):
        apply(state, NodeJoined(at=0, node=Node(f"n{k}", CAPACITY)))
    for k in range(count):
        for fact in frameworks.subscribe(state, Framework(f"f{k}", roles=[f"r{k % roles}"]), f"f{k}", [], 0.0):
            apply(state, fact)
    return state


def cycle(state: State, now: float) -> list[Offer]:
    """Offer all resources; return the offers."""
    made: list[Offer] = []
    while True:
        decision = decide(state, now)
        for fact in decision.facts:
            apply(state, fact)
            made += fact.offers if isinstance(fact, OffersMade) else []
        if not decision.more:
            return made


def decline(state: State, offers: list[Offer], now: float) -> None:
    """Decline all offers, one call per framework."""
    by_framework: dict[str, list[int]] = {}
    for offer in offers:
        by_framework.setdefault(offer.framework, []).append(offer.id)
    for who, ids in by_framework.items():
        for fact in frameworks.decline(state, who, ids, HOUR, now):
            apply(state, fact)


def in_python(agents: int, roles: int, count: int, rounds: int) -> list[float]:
    """Return the seconds of each cycle of a plain loop by Mesos' rules, which records no facts.

    Agents are taken at random. Each goes to the role of least share, and there to the framework of least share that has not
    declined it.
    """
    rng, total = random.Random(7), {name: amount * agents for name, amount in CAPACITY.items()}
    refused, seconds = set[tuple[int, int]](), []
    members = [range(role, count, roles) for role in range(roles)]
    for _ in range(rounds):
        began = time.process_time()
        roles_use = [dict.fromkeys(total, 0) for _ in range(roles)]
        use = [dict.fromkeys(total, 0) for _ in range(count)]
        order, given = [(0.0, role) for role in range(roles)], []
        for agent in rng.sample(range(agents), agents):
            for place, (_, role) in enumerate(order):
                those = [f for f in members[role] if (f, agent) not in refused]
                if those:
                    chosen = min(those, key=lambda f: (_share(use[f], total), f))
                    for name, amount in CAPACITY.items():
                        use[chosen][name] += amount
                        roles_use[role][name] += amount
                    given.append((chosen, agent))
                    del order[place]
                    insort(order, (_share(roles_use[role], total), role))
                    break
        seconds.append(time.process_time() - began)
        refused |= set(given)
    return seconds


def _share(used: dict[str, int], total: dict[str, int]) -> float:
    return max(amount / total[name] for name, amount in used.items())


class Launcher:
    """A pymesos framework that launches `tasks` tasks in any offers, and waits for their ends."""

    def __init__(self, tasks: int) -> None:
        self.left, self.running = tasks, tasks
        self.began = self.ended = 0.0
        self.over = threading.Event()
        self.failed: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        """Ignore all other callbacks."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: None

    def resourceOffers(self, driver: Any, offers: list[Any]) -> None:
        """Launch as many tasks as fit."""
        self.began = self.began or time.perf_counter()
        for offer in offers:
            room = {each["name"]: each["scalar"]["value"] for each in offer["resources"] if "scalar" in each}
            fitting = min(self.left, int(room.get("cpus", 0) / 0.1 + 1e-6))
            tasks = [_task(f"t{self.left - k}", offer) for k in range(fitting)]
            self.left -= fitting
            driver.launchTasks(offer["id"], tasks, {"refuse_seconds": 0 if self.left else HOUR})

    def statusUpdate(self, driver: Any, status: Any) -> None:
        """Count the ends."""
        if status["state"] not in ("TASK_STARTING", "TASK_RUNNING"):
            self.running -= 1
            if status["state"] != "TASK_FINISHED":
                self.failed.append(status)
            if not self.running:
                self.ended = time.perf_counter()
                self.over.set()


def _task(name: str, offer: Any) -> Any:
    resources = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}}]
    named = {"task_id": {"value": name}, "agent_id": offer["agent_id"], "name": name}
    return {**named, "resources": resources, "command": {"value": "true"}}


@contextmanager
def master(folder: Path, cpus: float) -> Iterator[tuple[str, psutil.Process]]:
    """Run a scheduler for frameworks; yield its address and process."""
    config = folder / "fairlead.toml"
    config.write_text(f'[[node]]\nname = "here"\ncapacity = {{ cpu = {cpus} }}\n')
    log = folder / "log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [FAIRLEAD, "up", "--config", config, "--mesos", "127.0.0.1:0"],
            env={**os.environ, "FAIRLEAD_HOME": str(folder / "home")},
            stderr=file,
            stdout=file,
        )
    try:
        until = time.monotonic() + 60
        while not (found := re.findall(r"http://(127.0.0.1:\d+)", log.read_text())):
            if time.monotonic() > until or server.poll() is not None:
                raise RuntimeError(f"the scheduler does not begin: {log.read_text()}")
            time.sleep(0.05)
        yield found[-1], psutil.Process(server.pid)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def through_pymesos(tasks: int, at_once: int) -> tuple[float, float]:
    """Return seconds from the first ACCEPT to the last TASK_FINISHED, and CPU seconds of the scheduler's process."""
    pymesos = real_pymesos.load()
    with tempfile.TemporaryDirectory() as folder, master(Path(folder), at_once / 10) as (where, scheduler):
        launcher = Launcher(tasks)
        described = {"user": "", "name": "bench", "roles": ["bench"], "capabilities": [{"type": "MULTI_ROLE"}]}
        driver = pymesos.MesosSchedulerDriver(launcher, described, where)
        before = sum(scheduler.cpu_times()[:2])
        driver.start()
        try:
            if not launcher.over.wait(600) or launcher.failed:
                raise RuntimeError(f"{launcher.running} tasks have not ended, and wrongly {launcher.failed[:3]}")
            taken = sum(scheduler.cpu_times()[:2]) - before
        finally:
            driver.stop()
            driver.join()
    return launcher.ended - launcher.began, taken


def run(agents: int = 4000, roles: int = 1000, count: int = 2000, rounds: int = 5, tasks: int = 2000, at_once: int = 16) -> None:
    """Print the time of cycles, and tasks per second."""
    decide(make_state(2, 1, 2), 1.0)  # warm up
    state, seconds = make_state(agents, roles, count), []
    for k in range(rounds):
        began = time.process_time()
        offers = cycle(state, 1.0 + k)
        seconds.append(time.process_time() - began)
        if len(offers) != agents:
            raise RuntimeError(f"{len(offers)} offers over {agents} agents")
        decline(state, offers, 1.0 + k)
    plain = in_python(agents, roles, count, rounds)
    print(f"offers     {agents:,} agents, {roles:,} roles, {count:,} frameworks, all declined {rounds} times")
    ours, theirs = sum(seconds) / rounds, sum(plain) / rounds
    print(f"           a cycle {ours:8.3f} s   a plain Python loop {theirs:8.3f} s   {theirs / ours:6.1f} times as fast")
    wall, taken = through_pymesos(tasks, at_once)
    print(
        f"           {tasks:,} commands through pymesos, {at_once} at once: {tasks / wall:,.0f} tasks/s (200 wanted), "
        f"{1000 * taken / tasks:.1f} ms of the scheduler's CPU time each"
    )
