"""Preemption: its overhead while all guarantees are met, and the time of a preemption plan on many machines.

The overhead is the CPU time of the same work with and without preemption, in turns, so that other load affects both.
"""

import time
from dataclasses import replace

import numpy as np

from bench.heart import one_task_jobs
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeJoined, NodesClaimed, TasksPlaced, TasksStarted
from fairlead.scheduler.preemption.claims import preempt_for_claims
from fairlead.scheduler.state import State
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Workload


def idle(jobs: int) -> Workload:
    """Return one-task jobs of 20 queues, all with a guarantee that is met."""
    case = one_task_jobs(jobs, load=0.8)
    names = sorted(set(case.queue))
    return replace(case, queues=[Queue(name, guarantee={"cpu": 5000}, guarantee_timeout=1e6) for name in names])


def times(case: Workload, compiled: bool, rounds: int) -> tuple[float, float]:
    """Return CPU seconds with preemption and without: the minimum of several rounds, in turns."""
    took: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        for revoke, seconds in took.items():
            began = time.process_time()
            simulate(case, settings=Settings(revoke=revoke), samples=10, compiled=compiled)
            seconds.append(time.process_time() - began)
    return min(took[True]), min(took[False])


def crowded(nodes: int, tasks: int) -> State:
    """Return machines full of one queue's tasks, and another queue below its guarantee."""
    state, each = new_state(), tasks // nodes
    queues = [Queue("a", guarantee={"cpu": 1000 * nodes}, guarantee_timeout=0.0), Queue("b")]
    apply(state, Configured(at=0.0, queues=queues, settings=Settings(reserve_after=1e9)))
    for k in range(nodes):
        apply(state, NodeJoined(at=0.0, node=Node(f"n{k}", {"cpu": 1000 * each})))
    apply(state, JobSubmitted(at=0.0, id=1, job=Job("b", {"cpu": 1000}, tasks)))
    columns = {"job": np.ones(tasks, np.int64), "index": np.arange(tasks), "attempt": np.ones(tasks, np.int64)}
    apply(state, TasksPlaced(at=1.0, **columns, node=np.arange(tasks) // each))
    apply(state, TasksStarted(at=1.0, **columns))
    apply(state, JobSubmitted(at=2.0, id=2, job=Job("a", {"cpu": 4000})))
    return state


def run(jobs: int = 20_000, rounds: int = 5, nodes: int = 10_000, tasks: int = 100_000) -> None:
    print("## Taking back")
    simulate(idle(100))
    for compiled, what in ((False, "step by step"), (True, "many steps in compiled code")):
        on, off = times(idle(jobs if compiled else jobs // 10), compiled, rounds)
        print(f"nobody misses anything, {what}: {on / off - 1:+.1%} of CPU time with revocation")
    preempt_for_claims(crowded(2, 20), 5.0)  # warm up
    state = crowded(nodes, tasks)
    state.order.ready(state, 1)
    took = []
    for _ in range(3):
        began = time.process_time()
        facts, _ = preempt_for_claims(state, 5.0)
        took.append(time.process_time() - began)
    if not any(isinstance(fact, NodesClaimed) for fact in facts):
        raise AssertionError("nothing was made room for")
    print(f"a plan over {nodes:,} nodes and {tasks:,} running tasks: {1000 * min(took):.0f} ms")


if __name__ == "__main__":
    run()
