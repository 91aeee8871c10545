"""Claims in trees of queues: what a queue above both sides keeps, and that nobody is placed who would be revoked again."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.outcomes import Outcome
from fairlead.scheduler import admission
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Claim,
    Configured,
    JobSubmitted,
    NodesClaimed,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
    TasksStarted,
)
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.reports.audits import audit_history
from fairlead.scheduler.reports.explain import explain
from fairlead.scheduler.reports.listings import describe_job, list_queues
from fairlead.scheduler.statuses import RUNNING
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs
from random_cases import cases
from test_claims import Story


def whose(story):
    """How often each task was revoked."""
    return Counter(task for fact in story.of(TasksRevoked) for task in zip(fact.job.tolist(), fact.index.tolist(), strict=True))


@pytest.mark.parametrize("batch", [{}, {"cpu": 4}])
@pytest.mark.parametrize("gang", [True, False])
def test_a_queue_above_both_pays_a_large_task_for_a_guarantee_below_it_once_in_its_usual_time(batch, gang):
    """Research uses its eight. With the one that b is guaranteed, a task of eight is more than a could claim."""
    queues = [Queue("research", guarantee={"cpu": 8}), Queue("research/a"), Queue("research/b", guarantee={"cpu": 1})]
    story = Story([{"cpu": 12}], [*queues, Queue("batch", guarantee=batch)])
    story.job(0.0, "research/a", 5000.0, 8 if gang else 2, cpu=1 if gang else 4, gang=gang)
    story.job(0.0, "batch", 5000.0, 12, cpu=1)
    story.job(100.0, "research/b", 5000.0, cpu=1)
    story.until(400.0)
    assert story.revoked() == [(130.0, [1] * (8 if gang else 1))]
    assert (story.runs("research/a"), story.runs("research/b")) == ((0, 1) if gang else (1, 1))


def test_a_queue_above_both_pays_what_it_gains():
    """Of single tasks one goes for one: research has its eight then as before."""
    queues = [Queue("research", guarantee={"cpu": 8}), Queue("research/a"), Queue("research/b", guarantee={"cpu": 1})]
    story = Story([{"cpu": 12}], [*queues, Queue("batch")])
    story.job(0.0, "research/a", 5000.0, 8, cpu=1)
    story.job(0.0, "batch", 5000.0, 12, cpu=1)
    story.job(100.0, "research/b", 5000.0, cpu=1)
    story.until(400.0)
    assert story.revoked() == [(130.0, [1])]
    assert (story.runs("research"), story.runs("research/b")) == (8, 1)


def test_a_claim_against_siblings_is_told_as_theirs_who_claim():
    """Above both is a queue that has less of what it is guaranteed: it is the victims' as well."""
    queues = [Queue("research", guarantee={"cpu": 1, "gpu": 4}), Queue("research/a", guarantee={"gpu": 1}), Queue("research/b")]
    story = Story([{"cpu": 2, "gpu": 4}], queues)
    story.job(0.0, "research/b", 5000.0, 2, cpu=1)
    story.job(10.0, "research/a", 5000.0, cpu=1, gpu=1)
    story.until(400.0)
    (fact,) = story.of(TasksRevoked)
    assert (fact.claim.queue, fact.claim.resource, fact.claim.has) == ("research/a", "gpu", 0)


def test_a_queue_above_both_keeps_its_fair_share():
    queues = [Queue("research", fair_share_timeout=20.0, fair_share_threshold=1.0), Queue("research/a")]
    story = Story([{"cpu": 12}], [*queues, Queue("research/b"), Queue("batch")])
    story.job(0.0, "research/a", 5000.0, 6, cpu=1, gang=True)
    story.job(0.0, "batch", 5000.0, 12, cpu=1)
    story.job(100.0, "research/b", 5000.0, cpu=1)
    story.until(400.0)
    assert story.revoked() == []


CIRCLES = {
    "who comes first in the queue needs something else": (
        [Queue("team", guarantee={"cpu": 4}), Queue("team/a"), Queue("team/b")],
        "team/a",
        "team/b",
    ),
    "so does the first job of the leaf": ([Queue("team", guarantee={"cpu": 4})], "team", "team"),
    "the queue above is guaranteed nothing": (
        [Queue("team"), Queue("team/a", guarantee={"cpu": 3}), Queue("team/b")],
        "team/a",
        "team/b",
    ),
    "as YARN compares": (
        [Queue("", policy="yarn-fair"), Queue("team"), Queue("team/a", guarantee={"cpu": 3})],
        "team/a",
        "team/a",
    ),
}


@pytest.mark.parametrize("idle_budget", [0.0, 0.02], ids=["", "with reservations"])
@pytest.mark.parametrize("why", CIRCLES)
def test_nobody_is_placed_who_would_be_revoked_again(why, idle_budget):
    queues, first, other = CIRCLES[why]
    story = Story([{"cpu": 4, "gpu": 20}], [*queues, Queue("batch")], idle_budget=idle_budget)
    story.job(0.0, other, 7.0, 400, gpu=1)
    story.job(0.0, first, 90.5, 20, cpu=1)
    story.job(0.0, "batch", 140.0, 40, cpu=1)
    story.until(200.0)
    assert max(whose(story).values(), default=0) <= 1, story.revoked()
    assert all(at <= 60.0 for at, _ in story.revoked()), "what is guaranteed is theirs from then on"
    assert story.runs(first) >= 3


def test_only_what_stays_within_its_guarantee_goes_first():
    """Of a's two jobs the first, of two CPUs, is beyond its one: it would be revoked at once for the five of b."""
    story = Story([{"cpu": 6}], [Queue("a", guarantee={"cpu": 1}), Queue("b", guarantee={"cpu": 5})])
    story.job(0.0, "a", 100.0, cpu=2)
    story.job(0.0, "a", 100.0, cpu=1)
    story.job(0.0, "b", 100.0, cpu=5)
    story.until(90.0)
    assert (story.began[2], story.began[3]) == ([0.0], [0.0])
    assert not story.revoked()


def test_of_two_that_stay_within_their_guarantees_one_may_pay_for_the_other():
    """A's first task is on the only node for b when its second goes beyond the guarantee: the first may pay, once."""
    nodes = [{"cpu": 1, "gpu": 1}, {"cpu": 1}]
    queues = [Queue("a", guarantee={"cpu": 1}), Queue("b", guarantee={"cpu": 1, "gpu": 1})]
    story = Story(nodes, queues)
    story.job(0.0, "a", 100.0, 2, cpu=1)
    story.job(0.0, "b", 100.0, cpu=1, gpu=1)
    story.until(90.0)
    assert story.runs("b") == 1
    assert len(story.revoked()) <= 1


def test_a_queue_does_not_go_first_with_who_would_pay_for_another_below_it():
    """P is guaranteed the two CPUs that b waits for, but no second gpu for a. A is guaranteed a CPU of them, against b."""
    queues = [Queue("p", guarantee={"cpu": 2, "gpu": 1}), Queue("p/a", guarantee={"cpu": 1}), Queue("p/b"), Queue("c")]
    story = Story([{"cpu": 2, "gpu": 2}], queues)
    story.job(0.0, "c", 10.0, 2, cpu=1)
    story.job(0.0, "p/a", 1e6, gpu=1)
    story.job(1.0, "p/a", 1e6, cpu=1, gpu=1)
    story.job(1.0, "p/b", 1e6, cpu=2)
    story.until(100.0)
    assert story.began[3] == [10.0]
    assert not story.revoked()


class World:
    """A random tree of three levels on paper, with jobs that come at random."""

    def __init__(self, seed):
        rng = random.Random(seed)
        resources = ["cpu", "gpu"][: rng.randint(1, 2)]
        nodes = [{r: rng.randint(2, 6) for r in resources} for _ in range(rng.randint(1, 2))]
        total = {r: sum(node[r] for node in nodes) for r in resources}
        self.queues, self.leaves = [], []
        self._grow("", 0, total, rng)
        self.story = Story(nodes, self.queues, idle_budget=rng.choice([0.02, 0.0]))
        for _ in range(rng.randint(4, 9)):
            demand = {r: rng.randint(1, 2) for r in resources if rng.random() < 0.7} or {"cpu": 1}
            tasks = rng.choice([1, 2, 5])
            gang, revocable = rng.random() < 0.3, rng.random() < 0.15
            at, lasts = float(rng.randint(0, 60)), float(rng.choice([15, 80, 400]))
            queue, priority = rng.choice(self.leaves), rng.randint(0, 1)
            self.story.job(at, queue, lasts, tasks, gang=gang, priority=priority, revocable=revocable, **demand)

    def _grow(self, path, depth, left, rng):
        left = dict(left)
        for k in range(rng.randint(1 + (depth == 0), 2)):
            name = f"{path}/q{k}".lstrip("/")
            some = {r: rng.randint(1, most) for r, most in left.items() if most and rng.random() < 0.6}
            left = {r: most - some.get(r, 0) for r, most in left.items()}
            more = {"priority_revokes": True} if rng.random() < 0.2 else {}
            more |= {"min_runtime": 10.0} if rng.random() < 0.2 else {}
            more |= {"max_tasks": rng.randint(1, 4)} if rng.random() < 0.1 else {}
            more |= {"guarantee_timeout": rng.choice([0.0, 10.0])} if rng.random() < 0.5 else {}
            more |= {"fair_share_timeout": 5.0, "fair_share_threshold": 1.0} if rng.random() < 0.2 else {}
            strict = depth == 2 and rng.random() < 0.2
            self.queues.append(Queue(name, guarantee=some, strict=strict, **more))
            if depth < 2 and rng.random() < 0.6:
                self._grow(name, depth + 1, some or left, rng)
                if not any(leaf.startswith(f"{name}/") for leaf in self.leaves):
                    self.leaves.append(name)
            else:
                self.leaves.append(name)


def what_all_have(state):
    """What each queue will have when all that is stopping has ended and all that is kept for claims is used."""
    used = state.queues.used[: state.queues.n] + state.queues.claimed[: state.queues.n]
    rows = state.held_rows()
    for row, job in zip(rows.tolist(), state.job_rows_of(rows).tolist(), strict=True):
        if state.tasks.status[row] > RUNNING:
            for q in up_to_root(state.queues, int(state.jobs.queue[job])):
                used[q] -= state.shapes.demand[state.jobs.shape_row[job]]
    return used


@settings(max_examples=cases(4), deadline=None)
@given(st.integers(0, 10**9))
def test_no_queue_is_brought_below_its_guarantee_and_nobody_is_placed_in_vain(seed):
    """At no level, by what is revoked for a claim with that served. The check in each story looks at what is placed."""
    story = World(seed).story
    story.until(150.0)
    state, before, revoked = new_state(), None, None
    for fact in story.facts:
        if isinstance(fact, TasksRevoked) and fact.claim is not None:
            before, revoked = what_all_have(state), fact
        apply(state, fact)
        if isinstance(fact, NodesClaimed) and revoked is not None:
            after, least = what_all_have(state), state.queues.guarantee[: state.queues.n]
            fallen = ((after < least) & (after < before))[1:] & (not revoked.claim.oversized)
            assert not fallen.any(), f"{np.argwhere(fallen)} by {revoked} in {story.state.tree.names}"
            revoked = None


def test_a_leaf_shortens_no_timeout_of_the_queue_above():
    queues = [Queue("team", guarantee={"cpu": 2}, guarantee_timeout=100.0), Queue("team/a", guarantee_timeout=0.0)]
    story = Story([{"cpu": 2}], [*queues, Queue("batch")])
    story.job(0.0, "batch", 5000.0, 2, cpu=1)
    story.job(10.0, "team/a", 50.0, cpu=1)
    story.until(105.0)
    assert story.revoked() == []
    assert "once that has lasted 100 s" in explain(story.state, 2, 105.0)["claim"]
    story.until(120.0)
    assert story.revoked() == [(110.0, [1])]


def test_what_a_bound_of_its_own_stops_is_no_claim():
    story = Story([{"cpu": 2}], [Queue("a", guarantee={"cpu": 2}, max_tasks=1), Queue("b")])
    story.job(0.0, "a", 5000.0, cpu=1)
    story.job(1.0, "b", 5000.0, 2, cpu=1)
    story.job(2.0, "a", 5000.0, cpu=1)
    story.until(100.0)
    assert story.revoked() == []
    assert "claim" not in explain(story.state, 3, 100.0)
    assert {each["name"]: each["claims"] for each in list_queues(story.state)} == {"/": [], "a": [], "b": []}


def test_how_safe_a_job_is_says_what_may_really_be_taken():
    """Of two tasks of four one may go, for a guarantee of four; both, of which it could claim none, for one of three."""
    for least, gang, said in (
        (4000, False, "may preempt 4 cpu of its queue"),
        (3000, False, "may preempt 8 cpu of its queue"),
        (0, True, "may preempt 8 cpu of its queue"),
        (7000, True, "may preempt 8 cpu of its queue"),
        (8000, True, "within its guarantee"),
    ):
        story = Story([{"cpu": 12_000}], [Queue("a", guarantee={"cpu": least}), Queue("b", guarantee={"cpu": 4000})])
        story.job(0.0, "a", 5000.0, 2, cpu=4000, gang=gang)
        story.until(10.0)
        assert said in explain(story.state, 1, 10.0)["safety"]


@pytest.mark.parametrize(
    ("started", "end", "done", "lost"),
    [(None, 15, False, 0.0), (1.0, 15, False, 9.0 / 4), (1.0, 0, True, 0.0), (1.0, 0, False, 9.0 / 4)],
    ids=["revoked before it was known to have started", "stopped", "done in its grace", "went on later"],
)
def test_an_audit_counts_what_was_really_lost(started, end, done, lost):
    """One task of four cpus' quarter, told to stop at 10."""
    story = Story([{"cpu": 4000}], [Queue("a", guarantee={"cpu": 4000}), Queue("b")])
    story.happen(JobSubmitted(at=0.0, id=1, job=Job("b", {"cpu": 1000}, 1, exit_done=done)))
    one = {"job": np.array([1]), "index": np.array([0]), "attempt": np.array([1])}
    story.happen(TasksPlaced(at=0.0, **one, node=np.array([0])))
    if started is not None:
        story.happen(TasksStarted(at=started, **one))
    story.happen(JobSubmitted(at=1.0, id=2, job=Job("a", {"cpu": 4000}, 1)))
    story.happen(TasksRevoked(at=10.0, **one, claim=Claim(job=2, why="guarantee", queue="a")))
    outcome = Outcome.STOPPED if end == 0 else Outcome.SIGNALLED
    story.happen(TasksFinished(at=14.0, **one, outcome=np.array([int(outcome)]), code=np.array([end])))
    found = audit_history(new_state(), story.facts, 0.0, 20.0, 100)["revocations"]
    assert found["lost"] == pytest.approx(lost)


def test_what_a_simulation_says_of_guarantees_is_of_queues_with_others_below_too():
    found = []
    for queues, name in (
        ([Queue("research", guarantee={"cpu": 8000})], "research"),
        ([Queue("research", guarantee={"cpu": 8000}), Queue("research/*")], "research/ada"),
    ):
        jobs = Jobs()
        jobs.add(0.0, "batch", {"cpu": 1000}, 500.0, 10)
        jobs.add(100.0, name, {"cpu": 1000}, 500.0, 8)
        workload = jobs.workload("x", [Node("n", {"cpu": 10_000})], [*queues, Queue("batch")])
        found.append(simulate(workload, "drf", settings=Settings(revoke=False)).missed)
    assert found[0] == found[1] > 0


def test_a_queue_whose_children_are_gone_is_a_leaf_in_everything():
    """Its jobs are called by its name, and its first is the first: though there were queues below it."""
    story = Story([{"cpu": 2}], [Queue("p"), Queue("p/a"), Queue("b")])
    story.job(0.0, "p/a", 5.0, cpu=1)
    story.until(10.0)
    changed = [Queue("p", strict=True, max_tasks=5), Queue("b")]
    story.happen(Configured(at=10.0, queues=changed, settings=story.state.settings))
    leaf = admission.leaf_for(story.state, "p", "ada")
    story.job(11.0, "b", 1000.0, cpu=1)
    story.job(12.0, leaf, 1000.0, cpu=2, priority=1)
    story.job(13.0, leaf, 1000.0, cpu=1)
    story.until(20.0)
    assert story.runs("p") == 0, "the second does not pass the first of a strict queue"
    assert describe_job(story.state, 3)["queue"] == "p"
    told = {each["name"]: each for each in list_queues(story.state)}
    assert set(told) == {"/", "p", "b"}
    assert (told["p"]["strict"], told["p"]["policy"], told["p"]["waiting"]) == (True, None, 2)


def test_an_audit_has_one_row_for_a_queue_that_others_were_below_meanwhile():
    """Half an hour of its two cpus before, and half an hour after."""
    story = Story([{"cpu": 2}], [Queue("p"), Queue("b")])
    story.job(0.0, "p", 1800.0, cpu=2)
    story.until(1800.0)
    for queues in ([Queue("p"), Queue("p/a"), Queue("b")], [Queue("p"), Queue("b")]):
        story.happen(Configured(at=1800.0, queues=queues, settings=story.state.settings))
    leaf = admission.leaf_for(story.state, "p", "ada")
    story.job(1900.0, leaf, 1800.0, cpu=2)
    story.job(1900.0, "b", 1800.0, cpu=2)
    story.until(6000.0)
    found = audit_history(new_state(), story.facts, 0.0, 6000.0, 1000)
    assert leaf != "p"
    assert sorted((queue["name"], round(queue["got"])) for queue in found["queues"]) == [("b", 1), ("p", 2)]
    worked = {queue["name"]: queue["worked"] for queue in found["queues"]}
    assert 3600 <= worked["p"] <= 5400
    assert [queue["name"] for queue in found["series"]["queues"]] == ["b", "p"]
