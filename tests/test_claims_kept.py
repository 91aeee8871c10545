"""What is kept for a claim is served: it counts for bounds and guarantees, offers go before tasks, and nobody pays in turn."""

import pytest
from msgspec.structs import replace

from fairlead.model.specs import NEVER, Job, Queue
from fairlead.scheduler import admission
from fairlead.scheduler.facts import JobSubmitted, NodesClaimed, OffersRescinded, ReservationDropped, TasksPlaced, TasksRevoked
from fairlead.scheduler.reports.explain import explain
from test_claims import Story
from test_offers import WHOLE, Cluster


@pytest.mark.parametrize("bound", ["max_tasks", "max_jobs", "at_most"])
def test_no_more_is_revoked_than_may_start(bound):
    bounds = {bound: 1} if bound != "at_most" else {}
    story = Story([{"cpu": 4}], [Queue("a", guarantee={"cpu": 4}, **bounds), Queue("b")])
    story.job(0.0, "b", 1e6, 4, cpu=1)
    jobs = [Job("a", {"cpu": 1})] * 4 if bound == "max_jobs" else [Job("a", {"cpu": 1}, 4)]
    story.coming += [(1.0, Job("a", {"cpu": 1}, 4, at_most=1) if bound == "at_most" else job, 50.0) for job in jobs]
    story.until(150.0)
    assert story.revoked() == [(31.0, [1])]
    assert [at for began in list(story.began.values())[1:] for at in began] == [36.0, 86.0, 136.0]


def test_what_is_kept_counts_for_the_tasks_that_others_may_run():
    queues = [Queue("a", max_tasks=1), Queue("a/x", guarantee={"cpu": 1}), Queue("a/y"), Queue("b")]
    story = Story([{"cpu": 1}, {"gpu": 1}], queues)
    story.job(0.0, "b", 1e6, cpu=1)
    story.job(1.0, "a/x", 50.0, cpu=1)
    story.job(32.0, "a/y", 10.0, gpu=1)
    story.until(34.0)
    assert story.revoked() == [(31.0, [1])]
    assert explain(story.state, 3)["text"] == ("queue a may run 1 task at once, and 0 run; room is kept for 1 of others")
    story.until(100.0)
    assert (story.began[2], story.began[3]) == ([36.0], [86.0])


@pytest.mark.parametrize("bound", [{"max_jobs": 1}, {"max_tasks": 1}])
def test_the_place_of_who_stops_is_for_the_claim_that_waits_for_it(bound):
    """Else c would have two CPUs of the first node beside what stops there, and be preempted for a when that has ended."""
    queues = [Queue("a", guarantee={"cpu": 6}, guarantee_timeout=2.0, **bound), Queue("c")]
    story = Story([{"cpu": 4}, {"cpu": 3}], queues)
    story.job(0.0, "a", 1e6, cpu=2)
    story.job(1.0, "a", 20.0, cpu=4)
    story.until(2.0).cancel(1)
    story.job(3.0, "c", 1e6, 5, cpu=1)
    story.until(60.0)
    assert (story.began[2], story.began[3]) == ([7.0], [3.0, 3.0, 3.0, 27.0, 27.0])
    assert not story.revoked()


@pytest.mark.parametrize("ranked", [False, True])
def test_what_a_queue_has_beside_does_not_take_back_what_was_revoked_for_its_guarantee(ranked):
    """While the two that gave up their room for a end, a has another task where there was room, or one of higher priority."""
    queues = [Queue("a", guarantee={"cpu": 2 + ranked}, priority_revokes=True), Queue("b")]
    story = Story([{"cpu": 4}, {"cpu": 1}], queues)
    story.job(0.0, "b", 1e6, 4, cpu=1)
    if ranked:
        story.job(0.0, "a", 1e6, cpu=1, priority=-1)
    story.job(1.0, "a", 1e6, cpu=2)
    story.job(32.0, "a", 1e6, cpu=1, priority=1)
    story.until(100.0)
    claimed, beside = (3, 4) if ranked else (2, 3)
    assert story.began[claimed] == [37.0 if ranked else 36.0], "of higher priority, the other has what is back first"
    assert story.began[beside] == [36.0 if ranked else 32.0]
    assert not story.of(ReservationDropped)


def test_who_has_room_kept_for_its_guarantee_does_not_go_first_for_the_same_guarantee():
    """Z has its two coming back, and is no more below its guarantee: what is free meanwhile is not for it before c."""
    queues = [Queue("z", guarantee={"cpu": 2}), Queue("b"), Queue("c")]
    story = Story([{"cpu": 4}, {"cpu": 1, "gpu": 1}], queues)
    story.job(0.0, "b", 1e6, 4, cpu=1)
    story.job(0.0, "b", 33.0, cpu=1, gpu=1)
    story.job(1.0, "z", 1e6, cpu=2)
    story.job(32.0, "z", 1e6, cpu=1)
    story.job(32.0, "c", 1e6, cpu=1)
    story.until(34.0)
    assert (story.runs("z"), story.runs("c")) == (0, 1)
    story.until(100.0)
    assert story.began[3] == [36.0]


def test_nobody_pays_for_a_priority_who_would_claim_a_guarantee_then():
    """Else another of a would start in its place, and b would pay for the one that was revoked."""
    queues = [Queue("a", guarantee={"cpu": 2}, priority_revokes=True), Queue("b")]
    for timeout, revoked in ((None, (40.0, [2])), (NEVER, (10.0, [1]))):  # who claims no guarantee pays as others do
        story = Story([{"cpu": 2}], [replace(queues[0], guarantee_timeout=timeout), queues[1]])
        story.job(0.0, "a", 1e6, cpu=1)
        story.job(0.0, "b", 1e6, cpu=1)
        story.job(10.0, "a", 1e6, cpu=1, priority=1)
        story.until(100.0)
        assert story.revoked() == [revoked]


def test_who_outranks_nobody_has_nothing_kept():
    """What b's task gives up is for whose turn it is: the other job of a outranks nobody that runs."""
    story = Story([{"cpu": 4}], [Queue("a", priority_revokes=True), Queue("b"), Queue("c")])
    story.job(0.0, "b", 1e6, 4, cpu=1)
    story.job(1.0, "a", 1e6, 2, cpu=1, priority=3)
    story.until(5.0)
    story.happen(admission.cancel(story.state, 1, [0, 1], 5.0))
    story.until(8.0)
    story.happen(JobSubmitted(at=8.0, id=3, job=Job("c", {"cpu": 1})))
    story.decide()
    assert not story.of(NodesClaimed)


def test_a_claim_is_due_as_soon_where_a_queue_above_has_no_more_to_miss():
    """O falls below its guarantee at 12 and has it again at 13; o/a misses its own all the time. Each step of a story checks
    that who recovers at that moment decides the same.
    """
    queues = [
        Queue("o", guarantee={"cpu": 2}), Queue("o/a", guarantee={"cpu": 1}, guarantee_timeout=10.0), Queue("o/b"),
        Queue("z"),
    ]  # fmt: skip
    story = Story([{"cpu": 1}, {"cpu": 1, "gpu": 1}], queues)
    story.job(0.0, "o/b", 1e6, cpu=1, gpu=1)
    story.job(0.0, "o/b", 12.0, cpu=1)
    story.job(5.0, "o/a", 1e6, cpu=1, gpu=1)
    story.job(13.0, "o/b", 1e6, cpu=1)
    story.job(16.0, "z", 1.0, cpu=1)
    story.until(30.0)
    assert story.revoked() == [(15.0, [1])]


def test_who_joins_those_that_are_served_has_waited_as_long():
    """All that waited in a is served when another of its kind comes: that is due at once, for who was there all along as well."""
    story = Story([{"cpu": 4}], [Queue("a", guarantee={"cpu": 2}), Queue("b")])
    story.job(0.0, "b", 1e6, 4, cpu=1)
    story.job(1.0, "a", 1e6, cpu=1)
    story.job(33.0, "a", 1e6, cpu=1)
    story.until(100.0)
    assert story.revoked() == [(31.0, [1]), (33.0, [1])]


def test_room_that_is_kept_no_longer_is_given_in_the_same_step():
    """One of the two that the gang needs is back when another of its strict queue comes before it."""
    story = Story([{"cpu": 2}], [Queue("a", guarantee={"cpu": 2}, strict=True), Queue("b")])
    story.job(0.0, "b", 33.0, cpu=1)
    story.job(0.0, "b", 1e6, cpu=1)
    story.job(1.0, "a", 1e6, 2, cpu=1, gang=True)
    story.job(2.0, "b", 1e6, cpu=1)
    story.job(34.0, "a", 1e6, cpu=3, priority=1)
    story.until(34.0)
    assert len(story.revoked()) > 0
    assert story.began[4] == [34.0]


@pytest.mark.parametrize("runs", [False, True])
def test_for_a_gang_offers_are_taken_back_before_tasks_are(runs):
    """Both nodes are offered; or one is, and on the other somebody runs who pays for the rest."""
    c = Cluster(Queue("lab", guarantee={"cpu": 8000}, guarantee_timeout=5.0), Queue("web"), nodes=2, offer_timeout=1e9)
    c.join("f", "web")
    one, other = c.offers()
    if runs:
        c.launch(one, "t", demand=WHOLE)
    c.happen(*admission.submit(c.state, [Job("lab", {"cpu": 4000}, tasks=2, gang=True)], 0.0))
    facts = c.decide(5.0)
    (rescinded,) = [fact for fact in facts if isinstance(fact, OffersRescinded)]
    assert rescinded.ids == ([other.id] if runs else [one.id, other.id])
    revoked = [fact.job.tolist() for fact in facts if isinstance(fact, TasksRevoked)]
    assert revoked == ([[1]] if runs else [])
    if runs:
        c.end(1, code=1)
        facts = c.decide()
    assert [fact.node.tolist() for fact in facts if isinstance(fact, TasksPlaced)] == [[0, 1]]


def test_no_more_offers_are_taken_back_than_make_room():
    c = Cluster(Queue("lab", guarantee={"cpu": 8000}, guarantee_timeout=5.0), Queue("web"), nodes=3, offer_timeout=1e9)
    c.join("f", "web")
    assert len(c.offers()) == 3
    c.happen(*admission.submit(c.state, [Job("lab", WHOLE)], 0.0))
    (rescinded,) = [fact for fact in c.decide(5.0) if isinstance(fact, OffersRescinded)]
    assert len(rescinded.ids) == 1
    assert c.state.offers.n == 2


def test_an_offer_is_not_taken_back_from_who_would_be_below_its_guarantee_then():
    """What web is offered is all that it is guaranteed: who runs in batch pays."""
    queues = [Queue("lab", guarantee={"cpu": 4000}, guarantee_timeout=5.0), Queue("web", guarantee={"cpu": 4000})]
    c = Cluster(*queues, Queue("batch"), nodes=2, offer_timeout=1e9)
    c.happen(*admission.submit(c.state, [Job("batch", WHOLE)], 0.0))
    c.decide()
    c.join("f", "web")
    assert len(c.offers()) == 1
    c.happen(*admission.submit(c.state, [Job("lab", {"cpu": 4000})], 0.0))
    facts = c.decide(5.0)
    assert not [fact for fact in facts if isinstance(fact, OffersRescinded)]
    assert [fact.job.tolist() for fact in facts if isinstance(fact, TasksRevoked)] == [[1]]
