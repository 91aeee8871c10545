"""EASY's rule in the scheduler's own order: with one queue, first come first served, and forecasts that are right, it is EASY."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import Job, Node, Queue
from fairlead.policies.contract import PolicyError
from fairlead.scheduler.invariants import check_invariants
from fairlead.scheduler.kernel.constants import EDGES
from fairlead.scheduler.kernel.scheduling import bin_of
from fairlead.simulate.offers import Answers
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, Workload
from random_cases import cases

LASTS = [3.0, 7.0, 10.0, 33.0, 100.0]
"""Seconds; a family of jobs for each."""
LEARNS = 12
"""Tasks of a family before the others: enough to know its p90."""


def families(jobs, processors: int, nodes: int, limits: dict[float, float]) -> Workload:
    """Gangs as (submit, processors, seconds, queue), after a time in which one task at a time runs of each family and queue."""
    found, now = Jobs(), 0.0

    def add(submit: float, size: int, lasts: float, queue: str) -> None:
        like = Job(queue="", demand={}, name=f"lasts{lasts:g}")
        found.add(submit, queue, {"cpu": 1000}, lasts, size, gang=True, time_limit=limits.get(lasts, np.inf), like=like)

    for queue in sorted({job[3] for job in jobs}):
        for lasts in LASTS:
            for _ in range(LEARNS):
                add(now, 1, lasts, queue)
                now += lasts
    for submit, size, lasts, queue in jobs:
        add(now + submit, size, lasts, queue)
    machines = [Node(f"n{k}", {"cpu": 1000 * processors // nodes}, {}) for k in range(nodes)]
    return found.workload("families", machines, [])


def loads(size: int, queues: str):
    job = st.tuples(st.integers(0, size).map(float), st.integers(1, size), st.sampled_from(LASTS), st.sampled_from(list(queues)))
    return st.lists(job, min_size=1, max_size=60).map(sorted)


CLUSTERS = [(12, 1), (40, 10), (120, 120)]
RIGHT = {lasts: lasts for lasts in LASTS}
P90 = {lasts: EDGES[bin_of(lasts) + 1] for lasts in LASTS}
"""What is forecast for tasks that all take equally long."""


@settings(deadline=None, max_examples=cases(10))
@given(data=st.data(), cluster=st.sampled_from(CLUSTERS))
def test_in_one_queue_with_right_forecasts_it_is_easy(cluster, data):
    processors, nodes = cluster
    jobs = data.draw(loads(processors, "a"))
    case = families(jobs, processors, nodes, RIGHT)
    begun = simulate(case, "easy").begun.tolist()
    for policy in ("easy:fifo", "easy:drf"):
        assert simulate(case, policy).begun.tolist() == begun, policy


@settings(deadline=None, max_examples=cases(10))
@given(data=st.data(), cluster=st.sampled_from(CLUSTERS))
def test_in_one_queue_it_is_easy_by_the_p90_of_each_family(cluster, data):
    processors, nodes = cluster
    jobs = data.draw(loads(processors, "a"))
    forecast = simulate(families(jobs, processors, nodes, {}), "easy:fifo")
    declared = simulate(families(jobs, processors, nodes, P90), "easy:requested")
    assert forecast.begun.tolist() == declared.begun.tolist()


@settings(deadline=None, max_examples=cases(6))
@given(data=st.data(), policy=st.sampled_from(["easy:drf", "easy:tasks", "easy:fifo", "easy:sdrf", "easy:priority"]))
def test_it_keeps_the_invariants_of_the_scheduler_and_compiled_steps_come_to_the_same(data, policy):
    jobs = data.draw(loads(12, "abc"))
    case = families(jobs, 12, 4, {})

    def watch(state, facts) -> None:
        check_invariants(state)

    watched, compiled = simulate(case, policy, watch=watch), simulate(case, policy)
    assert watched.begun.tolist() == compiled.begun.tolist()
    assert watched.completed == case.tasks.sum(), "nobody starves"
    assert watched.idled.tolist() == [0.0], "it keeps no room on nodes"


def test_the_first_is_the_first_by_shares():
    """Of four CPUs `a` has three. `b` has none, so its gang of four is first: only what ends by 10 s goes before it."""
    jobs = [(0.0, 3, 10.0, "a"), (1.0, 1, 33.0, "a"), (1.0, 1, 7.0, "a"), (1.0, 4, 3.0, "b")]
    begun = {}
    for policy in ("easy:drf", "easy:fifo"):
        run = simulate(families(jobs, 4, 1, RIGHT), policy)
        begun[policy] = (run.begun[-4:] - run.submitted[-4]).tolist()
    assert begun["easy:drf"] == [0.0, 13.0, 1.0, 10.0]
    assert begun["easy:fifo"] == [0.0, 1.0, 10.0, 34.0]


def test_what_it_cannot_do_is_refused():
    case = families([(0.0, 1, 3.0, "a")], 4, 1, {})
    with pytest.raises(PolicyError, match="easy:hdrf: cannot serve queues by hdrf: choose another order"):
        simulate(case, "easy:hdrf")
    with pytest.raises(PolicyError, match="easy:drf: makes no offers"):
        simulate(case, "easy:drf", offers=Answers(["a"]))
    with pytest.raises(PolicyError, match="easy:drff: 'drff' is neither true, requested nor a factor of 1 or more"):
        simulate(case, "easy:drff")


def test_a_strict_queue_lets_nobody_pass_its_first():
    """Others of the queue could end before it, and other queues' jobs do."""
    jobs = [(0.0, 3, 10.0, "a"), (1.0, 4, 3.0, "a"), (2.0, 1, 3.0, "a"), (3.0, 1, 3.0, "b")]
    case = families(jobs, 4, 1, RIGHT)
    case.queues[:] = [Queue("a", strict=True), Queue("b")]
    run = simulate(case, "easy:fifo")
    assert (run.begun[-4:] - run.submitted[-4]).tolist() == [0.0, 10.0, 13.0, 3.0]
