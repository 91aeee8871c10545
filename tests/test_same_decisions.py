"""The same facts give the same decisions: recovered or not, asked once or twice, compiled or not, whatever people ask."""

import os
import random
from typing import Any

import numpy as np
import pytest

from fairlead.engines import step
from fairlead.model.specs import Node, Queue, Settings
from fairlead.scheduler import snapshot
from fairlead.scheduler.decide import Decision, decide
from fairlead.scheduler.facts import Fact, encode
from fairlead.scheduler.reports.explain import explain
from fairlead.scheduler.state import State
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, Workload

LEAVES = (["a", "b", "c"], ["a/x", "a/y", "b"], [f"u{k}" for k in range(6)], ["p/a", "p/b", "q/a", "q/b"])


def demand(rng: random.Random, cpus: int, resources: list[str]) -> dict[str, int]:
    return {name: 1000 * rng.choice([1, 1, 2, cpus] if name == "memory" else [1, 1, 1, 2, cpus // 2, cpus]) for name in resources}


def queue(rng: random.Random, name: str, leaves: list[str], cpus: int) -> Queue:
    more: dict[str, Any] = {"weight": rng.choice([1.0, 1.0, 2.0, 5.0])}
    if rng.random() < 0.25:
        more["guarantee"] = {"cpu": 1000 * rng.randint(1, cpus)}
        more |= {"lend": {"cpu": 0}} if rng.random() < 0.6 else {}
    more |= {"limit": {"cpu": 2000 * cpus}} if rng.random() < 0.15 else {}
    more |= {"max_tasks": rng.randint(1, 8)} if rng.random() < 0.15 else {}
    more |= {"policy": "fifo"} if name not in leaves and rng.random() < 0.3 else {}
    return Queue(name, **more)


def world(seed: int) -> tuple[Workload, Settings]:
    """Return a workload with whatever the compiled steps do: gangs, trees, guarantees, limits, equal times, tasks of no time."""
    rng, jobs = random.Random(seed), Jobs()
    cpus, nodes, unit = rng.choice([4, 8, 16]), rng.randint(1, 4), rng.choice([1.0, 60.0, 3600.0])
    resources, leaves = ["cpu", "memory"][: rng.randint(1, 2)], rng.choice(LEAVES)
    for _ in range(rng.randint(5, 50)):
        gang = rng.random() < 0.25
        tasks = rng.randint(2, 2 * nodes) if gang else rng.choice([1, 1, 5, 20])
        lasts = [rng.choice([0.0, 0.5, 1.0, 1.0, 2.0, 10.0, rng.uniform(0, 3)]) * unit for _ in range(tasks)]
        jobs.add(
            rng.choice([0.0, rng.randint(0, 20), rng.uniform(0, 20)]) * unit, rng.choice(leaves), demand(rng, cpus, resources),
            lasts, tasks=tasks, gang=gang, priority=rng.choice([0, 0, 1]), time_limit=rng.choice([np.inf, np.inf, 30 * unit]),
        )  # fmt: skip
    names = sorted({name for leaf in leaves for name in (leaf.split("/")[0], leaf)})
    root = Queue("", policy=rng.choice(["", "", "hdrf", "fifo", "priority"]), history=rng.choice([0.0, 0.0, 3600.0]))
    there = [Node(f"n{k}", {name: 1000 * rng.choice([cpus, cpus, 2 * cpus]) for name in resources}) for k in range(nodes)]
    case = jobs.workload("world", there, [root, *(queue(rng, name, leaves, cpus) for name in names)])
    return case, Settings(idle_budget=rng.choice([0.001, 0.02, 0.02, 0.5, 1.0]), revoke=rng.random() < 0.3)


def facts_of(case: Workload, settings: Settings, **more: Any) -> list[bytes]:
    found: list[bytes] = []
    simulate(case, settings=settings, samples=20, record=lambda new: found.extend(map(encode, new)), **more)
    return found


SEEDS = range(int(os.environ["FAIRLEAD_FUZZ"]) // 100) if "FAIRLEAD_FUZZ" in os.environ else range(12, 24)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_facts_give_the_same_decisions(seed, monkeypatch):
    rng = random.Random(seed)

    def checked(state: State, now: float, **more: Any) -> Decision:
        recovered = decide(snapshot.load(snapshot.dump(state)), now, **more) if rng.random() < 0.5 else None
        found = decide(state, now, **more)
        if recovered is not None:
            assert str(recovered.facts) == str(found.facts), "a recovered state decides otherwise"
            assert str(decide(state, now, **more).facts) == str(found.facts), "who is asked twice answers otherwise"
        return found

    def ask(state: State, _: list[Fact]) -> None:
        waits = state.jobs.id[: state.jobs.n][state.jobs.waiting[: state.jobs.n] > 0]
        for job in waits[waits > 0][:2].tolist():
            explain(state, job)

    case, settings = world(seed)
    compiled = facts_of(case, settings)
    monkeypatch.setattr(step, "decide", checked)
    assert facts_of(case, settings, compiled=False) == compiled
    assert facts_of(case, settings, compiled=False, watch=ask) == compiled, "what people ask changes a decision"
