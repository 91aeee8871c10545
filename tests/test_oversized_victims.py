"""Guarantees against tasks that are larger than what their queues have left of theirs: who pays, how often, and that it ends."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import NEVER, Queue
from fairlead.scheduler.effects import new_state
from fairlead.scheduler.facts import Configured, NodesReserved, TasksRevoked
from fairlead.scheduler.reports.audits import audit_history
from fairlead.scheduler.reports.explain import explain
from fairlead.scheduler.tables import NONE
from random_cases import cases
from test_claims import Story


def test_one_task_larger_than_its_guarantee_pays_and_then_runs_its_usual_time():
    """It has nine of nine cpus. It ran 130 s, so it runs 260 s before it pays again, whoever comes meanwhile."""
    story = Story([{"cpu": 9}], [Queue("a", guarantee={"cpu": 3}), Queue("b", guarantee={"cpu": 6})])
    story.job(0.0, "a", 5000.0, cpu=9)
    story.job(100.0, "b", 50.0, cpu=1)
    story.job(250.0, "b", 50.0, cpu=1)
    story.until(300.0)
    assert story.revoked() == [(130.0, [1])]
    assert story.of(TasksRevoked)[0].claim.oversized
    assert story.began == {1: [0.0, 185.0], 2: [135.0]}
    assert "not run for their usual time since" in explain(story.state, 3, 300.0)["claim"]
    assert "until it has run for 260 s, it is not preempted" in explain(story.state, 1, 300.0)["safety"]
    story.until(600.0)
    assert story.revoked() == [(130.0, [1]), (445.0, [1])]
    assert story.began == {1: [0.0, 185.0, 500.0], 2: [135.0], 3: [450.0]}
    assert audit_history(new_state(), story.facts, 0.0, 600.0, 100)["revocations"]["faults"] == []


def test_a_task_that_leaves_no_room_for_guarantees_is_preempted_once_in_its_run_time_though_its_queue_has_none():
    """C's task needs all nine. B comes every 100 s; it waits while c's runs for twice as long as it ran before."""
    story = Story([{"cpu": 9}], [Queue("b", guarantee={"cpu": 6}), Queue("c")])
    story.job(0.0, "c", 5000.0, cpu=9)
    for k in range(90):
        story.job(100.0 * k + 50, "b", 20.0, cpu=1)
    story.until(20000.0)
    began, ended = story.began[1], [at for at, _ in story.revoked()]
    assert len(ended) < 9
    assert began[-1] + 5000.0 < 12000.0, "it gets done"
    ran = [end - begin for begin, end in zip(began, ended, strict=False)]
    assert all(later >= 2 * earlier for earlier, later in itertools.pairwise(ran)), ran


def test_a_task_that_runs_beside_all_guarantees_is_preempted_whenever_they_are_claimed():
    """Two of three tasks of c must end whenever b comes; there is no promise that it runs for its usual time."""
    story = Story([{"cpu": 9}], [Queue("b", guarantee={"cpu": 6}), Queue("c")])
    story.job(0.0, "c", 5000.0, 3, cpu=3)
    for k in range(3):
        story.job(100.0 * k + 50, "b", 20.0, cpu=6)
    story.until(400.0)
    assert [at for at, _ in story.revoked()] == [80.0, 180.0, 280.0]


def test_small_tasks_are_no_safer_once_one_was_preempted_where_others_are_guaranteed_all_there_is():
    """One of 24 equal tasks pays for the first of g, eight more for the next, as soon as g has waited its second."""
    own = {"guarantee": {"cpu": 12}, "guarantee_timeout": 1.0}
    story = Story([{"cpu": 8}] * 3, [Queue("g", **own), Queue("h", **own), Queue("small")])
    story.job(0.0, "small", 10**6, 24, cpu=1)
    story.job(1000.0, "g", 10**6, cpu=1)
    story.job(1010.0, "g", 10**6, 8, cpu=1)
    story.until(1020.0)
    assert (story.runs("g"), story.runs("small")) == (9, 15)


def test_room_that_is_kept_for_a_task_that_was_preempted_as_oversized_becomes_its_own():
    """Somebody of b comes every 40 s for 70 s, within b's guarantee. A is owed its part, so its room is gathered."""
    queues = [Queue("a", guarantee={"cpu": 3}), Queue("b", guarantee={"cpu": 6})]
    story = Story([{"cpu": 9}], queues, idle_budget=0.02)
    story.job(0.0, "a", 1000.0, cpu=9)
    for k in range(100):
        story.job(100.0 + 40 * k, "b", 70.0, cpu=1)
    story.until(4000.0)
    ended = [at for at, _ in story.revoked()]
    assert len(ended) == 3
    assert all(end - begin >= 100.0 * 2**k for k, (begin, end) in enumerate(zip(story.began[1], ended, strict=False)))
    assert story.began[1][-1] + 1000.0 < 4000.0, "it gets done while b still comes"


def test_where_smaller_tasks_make_room_no_task_pays_that_is_larger_than_what_is_left_of_its_guarantee():
    story = Story([{"cpu": 12}], [Queue("a", guarantee={"cpu": 3}), Queue("b", guarantee={"cpu": 6}), Queue("c")])
    story.job(0.0, "a", 5000.0, cpu=9)
    story.job(0.0, "c", 5000.0, 3, cpu=1)
    story.job(100.0, "b", 50.0, 2, cpu=1)
    story.until(200.0)
    assert [jobs for _, jobs in story.revoked()] == [[2], [2]]


def test_a_queue_keeps_what_it_could_claim_though_its_guarantee_is_never_claimed():
    """A guarantee of four protects two tasks of two cpus from five others, with or without a claim of its own."""
    queues = [Queue("a", guarantee={"cpu": 5}, guarantee_timeout=NEVER), Queue("b", guarantee={"cpu": 5})]
    story = Story([{"cpu": 10}], queues)
    story.job(0.0, "a", 5000.0, 5, cpu=2)
    story.job(100.0, "b", 5000.0, 5, cpu=1)
    story.until(1000.0)
    assert (story.runs("a"), story.runs("b")) == (2, 5)


@settings(max_examples=cases(15), deadline=None)
@given(st.data())
def test_whoever_is_within_its_guarantee_waits_for_a_usual_time_at_most_and_preemption_ends(data):
    """One node, guarantees that add up to it, tasks of any size that never end: all that could be claimed runs in the end."""
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    least = [draw(0, 6) for _ in range(3)]
    size = max(1, sum(least) + draw(0, 3))
    story = Story([{"cpu": size}], [Queue(name, guarantee={"cpu": n}) for name, n in zip("abc", least, strict=True)])
    for _ in range(draw(2, 6)):
        story.job(float(draw(0, 200)), "abc"[draw(0, 2)], 10**8, draw(1, 3), cpu=draw(1, size))
    story.until(10**6)
    spent = [at for at, _ in story.revoked()]
    state, queues = story.state, story.state.queues
    for number, began in story.began.items():
        job, ended = state.index.specs[number], [at for at, jobs in story.revoked() if number in jobs]
        others = sum(n for name, n in zip("abc", least, strict=True) if name != job.queue)
        if job.tasks == 1 and job.demand["cpu"] > max(size - others, size / 2):
            ran = [end - begin for begin, end in zip(began, ended, strict=False)]
            assert all(later >= 2 * before for before, later in itertools.pairwise(ran)), f"{number} is preempted after {ran} s"
    for b in np.flatnonzero(state.groups.head[: state.groups.n] != NONE).tolist():
        q, need = int(state.groups.leaf[b]), int(state.shapes.demand[state.groups.shape_row[b], 0])
        assert queues.used[q, 0] + need > queues.guarantee[q, 0], f"{queues.guarantee[q, 0]} guaranteed, {need} waits for ever"
    assert spent[-1:] < [10**5], spent


def test_a_timer_that_is_over_meanwhile_makes_no_preemption_a_fault():
    """C's large task is no victim until it has run 160 s again, which is over before b's next claim takes one of d."""
    story = Story([{"cpu": 9}] * 2, [Queue("a", revocable=False), Queue("b", guarantee={"cpu": 12}), Queue("c"), Queue("d")])
    story.job(0.0, "c", 20000.0, cpu=9)
    story.job(0.0, "a", 152.0, 9, cpu=1)
    story.job(50.0, "b", 70.0, cpu=9)
    story.job(156.0, "d", 20000.0, 9, cpu=1)
    story.job(290.0, "b", 50.0, cpu=1)
    story.until(400.0)
    assert [jobs for _, jobs in story.revoked()] == [[1], [4]]
    assert audit_history(new_state(), story.facts, 0.0, 400.0, 100)["revocations"]["faults"] == []


def test_tasks_of_two_resources_pay_one_after_another_where_their_queue_has_less_than_its_guarantee_of_one():
    """A runs eight tasks with a gpu each and is guaranteed four, and 32 cpus of which it uses 16. B takes its gpus, twice."""
    own = {"guarantee": {"cpu": 32, "gpu": 4}}
    story = Story([{"cpu": 64, "gpu": 8}], [Queue("a", **own), Queue("b", **own)])
    story.job(0.0, "a", 10**7, 8, cpu=2, gpu=1)
    for begin in (36000.0, 80000.0):
        for k in range(4):
            story.job(begin + 600 * k, "b", 10000.0, cpu=2, gpu=1)
    story.until(90000.0)
    assert [story.began[k] for k in range(2, 10)] == [[36035.0 + 600 * k] for k in range(4)] + [
        [80035.0 + 600 * k] for k in range(4)
    ]
    assert story.state.jobs.safe_for[story.state.job_row(1)] == 0.0, "none of them is protected"


def test_only_the_task_that_its_queue_could_not_claim_is_protected_and_its_siblings_pay_again():
    """A runs four tasks of two cpus and is guaranteed three: when b has all five of its own, a cannot keep its last but one."""
    story = Story([{"cpu": 8}], [Queue("a", guarantee={"cpu": 3}), Queue("b", guarantee={"cpu": 5})])
    story.job(0.0, "a", 10**7, 4, cpu=2)
    for begin in (36000.0, 80000.0):
        story.job(begin, "b", 10000.0, 5, cpu=1)
    story.until(85000.0)
    assert story.began[2] == [36035.0] * 5
    assert story.began[3] == [80035.0] * 5
    assert np.count_nonzero(story.state.tasks.oversized[: story.state.tasks.n]) == 2, "one each time"


def test_a_task_whose_loss_opens_a_claim_of_its_queue_is_protected():
    """A is left with 14 of 32 cpus, so that somebody there who waits for 18 is within its guarantee."""
    own = {"guarantee": {"cpu": 32, "gpu": 4}}
    story = Story([{"cpu": 64, "gpu": 8}], [Queue("a", **own), Queue("b", **own), Queue("c")])
    story.job(0.0, "c", 10**7, 4, cpu=11)
    story.job(0.0, "a", 10**7, 8, cpu=2, gpu=1)
    story.job(1.0, "a", 10**7, cpu=18)
    story.job(100.0, "b", 10**7, cpu=2, gpu=1)
    story.until(131.0)
    assert story.state.jobs.safe_for[story.state.job_row(2)] == 260.0
    story.until(1000.0)
    assert (story.began[4], len(story.began[3])) == ([135.0], 1)


def test_a_queue_without_a_guarantee_protects_nothing_from_when_it_had_one():
    queues = [Queue("a", guarantee={"cpu": 3}), Queue("b", guarantee={"cpu": 5})]
    story = Story([{"cpu": 8}], queues)
    story.job(0.0, "a", 10**7, 1, cpu=4)
    story.job(0.0, "a", 10**7, 1, cpu=4)
    story.job(36000.0, "b", 100.0, 5, cpu=1)
    story.until(40000.0)
    assert [len(began) for job, began in story.began.items() if job < 3] == [2, 2]
    story.happen(Configured(at=story.now, queues=[Queue("a"), queues[1]], settings=story.state.settings))
    story.job(40000.0, "b", 100.0, 5, cpu=1)
    story.until(41000.0)
    assert story.began[4] == [40035.0] * 5


def test_room_that_is_reserved_for_a_sibling_of_an_oversized_task_is_no_room_of_its_own():
    """One of a's tasks is protected. Its fifth task never ran, so that for one cpu of b only one more has to end."""
    queues = [Queue("a", guarantee={"cpu": 3}), Queue("b", guarantee={"cpu": 5})]
    story = Story([{"cpu": 8}], queues, idle_budget=1.0)
    story.job(0.0, "a", 10**7, 6, cpu=2)
    story.job(100.0, "b", 50.0, 5, cpu=1)
    story.until(190.0)
    assert (story.runs("a"), np.count_nonzero(story.state.tasks.oversized[: story.state.tasks.n])) == (4, 1)
    story.happen(NodesReserved(at=190.0, id=1, nodes=[0], tasks=[1], start=500.0))
    story.job(200.0, "b", 50.0, 1, cpu=1)
    story.until(240.0)
    assert [jobs for at, jobs in story.revoked() if at > 190.0] == [[1]]
    assert story.began[3] == [235.0]


def test_a_claim_names_the_resource_that_no_node_has_for_it():
    """B has more of its gpus than of its cpus, but there are cpus. What others are preempted for is told as the same."""
    own = {"guarantee": {"cpu": 32000, "gpu": 4000}}
    story = Story([{"cpu": 64000, "gpu": 8000}], [Queue("a", **own, min_runtime=500.0), Queue("b", **own)])
    story.job(0.0, "b", 10**7, cpu=2000, gpu=1000)
    story.job(0.0, "a", 10**7, 7, cpu=2000, gpu=1000)
    story.job(100.0, "b", 10**7, cpu=2000, gpu=1000)
    story.until(200.0)
    assert explain(story.state, 3, 200.0)["claim"] == (
        "queue b has 1 of its 4 guaranteed gpu; no eligible victims make room so far; "
        "other tasks: started less than 500 s ago (7 tasks)"
    )
    story.until(1000.0)
    claim = story.of(TasksRevoked)[0].claim
    assert (claim.resource, claim.has, claim.of) == ("gpu", 1000, 4000)


@settings(max_examples=cases(15), deadline=None)
@given(st.data())
def test_preemption_ends_among_tasks_of_two_resources_that_never_end(data):
    """One node that holds all guarantees, and some that need what another is guaranteed and never have it."""
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    least = {name: {"cpu": draw(0, 6), "gpu": draw(0, 4)} for name in "abc"}
    size = {r: max(1, sum(one[r] for one in least.values()) + draw(0, 3)) for r in ("cpu", "gpu")}
    story = Story([size], [Queue(name, guarantee={r: n for r, n in one.items() if n}) for name, one in least.items()])
    for _ in range(draw(2, 8)):
        needs = {"cpu": draw(1, size["cpu"]), "gpu": draw(0, size["gpu"])}
        story.job(float(draw(0, 200)), "abc"[draw(0, 2)], 10**8, draw(1, 4), **{r: n for r, n in needs.items() if n})
    story.until(10000.0)
    spent = [at for at, _ in story.revoked()]
    assert spent[-1:] < [5000.0], spent
