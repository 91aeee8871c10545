"""Offers in the state machine: what frameworks are offered, answer and lose, and what becomes of their tasks."""

import os
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.updates import acknowledge, unacknowledged

from fairlead.model.specs import ROOT, Framework, Job, Node, Queue, Settings
from fairlead.outcomes import Outcome
from fairlead.scheduler import admission, snapshot
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.entitlements import write_entitled
from fairlead.scheduler.facts import (
    Contradiction,
    FrameworkGone,
    JobCancelled,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    OffersAccepted,
    OffersMade,
    OffersRescinded,
    ResourcesReserved,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
    TasksStarted,
    encode,
)
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.frameworks.reservations import Move, Moves
from fairlead.scheduler.kernel.view import MIN_OFFER
from fairlead.scheduler.reports.audits import audit_history, audit_state
from fairlead.scheduler.reports.explain import explain
from fairlead.scheduler.reports.frameworks import list_frameworks
from fairlead.scheduler.reports.listings import describe_job, list_queues
from fairlead.scheduler.tables import UNLIMITED
from fairlead.simulate.outlook import outlook
from random_cases import cases, is_tried
from test_state_machine import Histories, rarely, trees
from worlds import check_invariants, replay, same

G = 2**30


class Cluster:
    """A state machine with nodes of 4 CPUs and 8 GiB, and the answers of frameworks."""

    def __init__(self, *queues, nodes=1, **options):
        self.state, self.now, self.facts, self.decisions, self.happened = new_state(), 0.0, [], 0, 0
        self.happen(admission.configure(self.state, [Queue(ROOT), *queues], Settings(**options), 0.0))
        for k in range(nodes):
            self.happen(NodeJoined(at=0.0, node=Node(f"n{k}", {"cpu": 4000, "memory": 8 * G})))

    def happen(self, *facts):
        for fact in facts:
            apply(self.state, fact)
            self.facts.append(fact)
        self.happened += 1
        if is_tried(self.happened, 100):
            check_invariants(self.state)

    def decide(self, seconds=0.0):
        self.now += seconds
        found = []
        while True:
            self.decisions += 1
            before = same(self.state) if is_tried(self.decisions) else None
            decision = decide(self.state, self.now)
            if before is not None:
                assert same(self.state) == before, "deciding changed the state"
                recovered = decide(snapshot.load(snapshot.dump(self.state)), self.now)
                assert [encode(fact) for fact in decision.facts] == [encode(fact) for fact in recovered.facts]
            self.happen(*decision.facts)
            found += decision.facts
            if not decision.more:
                return found

    def offers(self, seconds=0.0):
        return [offer for fact in self.decide(seconds) if isinstance(fact, OffersMade) for offer in fact.offers]

    def join(self, name, *roles, name_="", **more):
        framework = Framework(name_ or name, roles=[*roles] or ["*"], **more)
        self.happen(*frameworks.subscribe(self.state, framework, name, [], self.now))

    def ask(self, what, *arguments):
        """One of the requests of a framework."""
        self.happen(*getattr(frameworks, what)(self.state, *arguments, self.now))

    def launch(self, offer, *tasks, demand=None, refuse=5.0):
        jobs = [Job("", demand or {"cpu": 1000, "memory": G}, task=task) for task in tasks]
        facts, refused = frameworks.accept(self.state, offer.framework, [offer.id], jobs, refuse, self.now)
        self.happen(*facts)
        return {invalid.task: str(invalid) for invalid in refused}

    def job(self, who, task):
        return frameworks.tasks_of(self.state, who)[task].job

    def end(self, job, outcome=Outcome.EXITED, code=0):
        columns = {"job": np.array([job]), "index": np.array([0]), "attempt": np.array([1])}
        ends = {"outcome": np.array([int(outcome)]), "code": np.array([code])}
        self.happen(TasksFinished(at=self.now, **columns, **ends))

    def updates(self, who):
        return [(told.task, told.update.number, told.update.what) for told in unacknowledged(self.state, who)]

    def offered(self, queue):
        return self.state.quantities(self.state.queues.offered[self.state.tree.rows[queue]])

    def used(self, queue):
        return self.state.quantities(self.state.queues.used[self.state.tree.rows[queue]])


WHOLE = {"cpu": 4000, "memory": 8 * G}


def test_a_framework_is_offered_no_more_than_its_limit_where_revocable_jobs_go_above_theirs():
    """Under hdrf a cycle asks anybody, also one that serves revocable jobs alone."""
    c = Cluster(Queue("web", limit={"cpu": 1500}), Queue("batch", limit={"cpu": 500}), Queue("t", policy="hdrf"), Queue("t/a"))
    c.join("f", "web")
    c.happen(*admission.submit(c.state, [Job("batch", {"cpu": 500}, 2, revocable=True)], c.now))
    c.decide()
    assert c.offered("web")["cpu"] == 1500
    assert c.used("batch") == {"cpu": 1000}


def test_an_offer_counts_as_used_until_it_is_answered():
    c = Cluster(Queue("web"))
    c.join("f", "web")
    (offer,) = c.offers()
    assert (offer.id, offer.framework, offer.role, offer.node, offer.amount) == (1, "f", "web", 0, WHOLE)
    assert c.used("web") == c.offered("web") == c.used(ROOT) == WHOLE
    assert c.launch(offer, "t") == {}
    assert (c.used("web"), c.offered("web")) == ({"cpu": 1000, "memory": G}, {})
    assert c.offers() == [], "the rest was refused"
    assert [offer.amount for offer in c.offers(5.0)] == [{"cpu": 3000, "memory": 7 * G}]


def test_what_is_offered_and_not_answered_is_told_as_the_reason_of_who_waits():
    c = Cluster(Queue("web"), Queue("b"))
    c.join("f", "web")
    c.offers()
    c.happen(JobSubmitted(at=1.0, id=c.state.index.last + 1, job=Job("b", {"cpu": 1000, "memory": G}, 3)))
    assert [(queue["name"], queue["why"]) for queue in audit_state(c.state, 5.0)["queues"]] == [("b", "offers")]
    (short,) = audit_history(new_state(), c.facts, 0.0, 100.0, 0)["queues"]
    assert (short["name"], [*short["through"]]) == ("b", ["offers"])


def test_a_declined_node_is_offered_again_when_there_is_more_of_it_or_the_time_is_over():
    c = Cluster()
    c.join("f")
    (offer,) = c.offers()
    c.launch(offer, "t", refuse=60.0)
    assert c.offers(1.0) == []
    c.end(c.job("f", "t"))
    (offer,) = c.offers()
    assert offer.amount == WHOLE, "more than what was refused"
    c.ask("decline", "f", [offer.id, 77], -1.0)
    assert c.offers(4.9) == []
    assert [o.amount for o in c.offers(0.1)] == [WHOLE], "a negative time is five seconds"


def test_revive_clears_what_was_refused_and_suppress_keeps_what_is_offered():
    c = Cluster(nodes=2)
    c.join("f")
    one, other = c.offers()
    c.ask("suppress", "f", [])
    c.ask("decline", "f", [one.id], 1e9)
    assert c.state.offers.n == 1
    assert c.offers(10.0) == []
    c.ask("revive", "f", [])
    (again,) = c.offers()
    assert (again.node, again.id) == (one.node, other.id + 1)


def test_a_queue_that_drains_is_offered_nothing():
    """What is launched there would be refused, and held from others for nothing until then."""
    open_again = Queue("dr", weight=2.0)
    c = Cluster(Queue("dr", draining=True), nodes=2)
    c.join("f", "dr/team")
    assert c.offers() == []
    c.happen(admission.configure(c.state, [Queue(ROOT), open_again], Settings(), c.now))
    assert len(c.offers()) == 2
    c.happen(admission.configure(c.state, [Queue(ROOT), Queue("dr", draining=True)], Settings(), c.now))
    c.ask("decline", "f", c.state.offers.id[:2].tolist(), 0.0)
    assert c.offers(10.0) == []


def test_an_offer_that_is_not_answered_is_another_s():
    c = Cluster(offer_timeout=10.0)
    c.join("slow")
    (offer,) = c.offers()
    c.join("f")
    assert c.offers(9.9) == []
    rescinded, made = c.decide(0.1)
    assert isinstance(rescinded, OffersRescinded)
    assert (rescinded.ids, rescinded.why) == ([offer.id], "expired")
    assert [offer.framework for offer in made.offers] == ["f"]
    with pytest.raises(frameworks.InvalidOffers, match="1"):
        frameworks.accept(c.state, "slow", [offer.id], [], None, c.now)


def test_why_names_who_holds_what_a_job_could_have_and_does_not_answer():
    c = Cluster(Queue("jobs"), offer_timeout=10.0)
    c.join("f", name_="spark")
    c.offers()
    c.decide(10.0)
    assert len(c.offers(10.0)) == 1
    c.happen(*admission.submit(c.state, [Job("jobs", {"cpu": 1000})], c.now))
    text = explain(c.state, 1, c.now)["text"]
    assert "n0, the closest, lacks 1 cpu" in text
    assert text.endswith("; the open offers on n0 to frameworks of default would be enough")
    (spark,) = list_frameworks(c.state, c.now)
    assert "; 1 earlier offer expired unanswered; others wait for what is offered: it hoards" in spark["text"]
    (queue,) = [each for each in list_queues(c.state) if each["name"] == "default/./1"]
    assert (queue["offered"], queue["status"]) == (WHOLE, "open")
    assert audit_state(c.state, c.now)["queues"]
    assert outlook(c.state, 1, c.now).reason in ("unknown", "expected")
    c.ask("decline", "f", [2], 1.0)
    assert c.state.frameworks.members["f"].unanswered == 0


def test_one_framework_is_offered_a_part_of_the_cluster_at_once():
    c = Cluster(Queue("web", offer_most=50.0), nodes=4, offer_most=25.0)
    c.join("f", "web")
    assert len(c.offers()) == 2
    c.join("g")
    (offer,) = c.offers()
    c.launch(offer, "t")
    (more,) = c.offers()
    assert more.node != offer.node, "what it runs is not offered any more"


def test_offers_are_not_cut_to_one_resource_by_others_that_are_not_answered():
    """Four nodes with a CPU and 7 GiB left each, and half of the memory of them all for one framework."""
    c = Cluster(Queue("h", offer_most=100.0), nodes=4, offer_most=50.0)
    c.join("g", "h")
    while offers := c.offers():
        for offer in offers:
            c.launch(offer, f"t{offer.id}", demand={"cpu": 3000, "memory": G}, refuse=3600.0)
    c.join("f", "web")
    offers = c.offers()
    assert [offer.amount for offer in offers] == [{"cpu": 1000, "memory": 7 * G}] * 2
    assert c.offers(1.0) == []
    c.ask("decline", "f", [offers[0].id], 3600.0)
    assert [offer.amount for offer in c.offers()] == [{"cpu": 1000, "memory": 7 * G}]


def test_jobs_and_frameworks_are_in_one_order():
    c = Cluster(Queue("web"), Queue("jobs"), nodes=4)
    c.happen(*admission.submit(c.state, [Job("jobs", WHOLE, tasks=9)], 0.0))
    c.join("f", "web")
    placed, made = c.decide()
    assert isinstance(placed, TasksPlaced)
    assert (len(placed.job), len(made.offers)) == (2, 2)


def test_who_is_below_a_guarantee_goes_first_and_a_limit_chops_what_is_offered():
    c = Cluster(Queue("web", guarantee={"cpu": 1000}, limit={"cpu": 1500}), Queue("other"))
    c.join("g", "other")
    c.join("f", "web")
    first, second = c.offers()
    assert (first.framework, first.amount) == ("f", {"cpu": 1500, "memory": 8 * G})
    assert (second.framework, second.amount) == ("g", {"cpu": 2500})


@pytest.mark.parametrize(
    "policy", ["drf", "ceei", "asset", "maxmin:cpu", "hdrf", "sdrf", "fifo", "priority", "mesos", "yarn-drf"]
)
def test_any_policy_says_who_is_offered_what(policy):
    """Two frameworks that take all that they are offered, in roles of the same weight: each gets a half, where shares decide."""
    c = Cluster(nodes=8)
    queues = [Queue(ROOT, policy=policy, history=0.0), Queue("x"), Queue("y")]
    c.happen(admission.configure(c.state, queues, Settings(), 0.0))
    c.join("f", "x")
    c.join("g", "y")
    for _ in range(8):
        for offer in c.offers(1.0):
            c.launch(offer, f"t{offer.id}", demand=WHOLE)
    assert c.state.queues.tasks[0] == 8
    assert c.used("x") == c.used("y")


def test_frameworks_of_a_role_are_in_order_of_their_own_shares():
    c = Cluster(nodes=2)
    for name in "fg":
        c.join(name, "web")
    one, other = c.offers()
    assert {one.framework, other.framework} == {"f", "g"}
    c.launch(one, "t", demand={"cpu": 3000}, refuse=0.0)
    c.ask("decline", other.framework, [other.id], 0.0)
    assert c.offers()[0].framework == other.framework


def test_jobs_of_a_role_have_a_leaf_beside_its_frameworks():
    c = Cluster(Queue("web"), nodes=2)
    c.join("f", "web")
    assert admission.leaf_for(c.state, "web", "ada") == "web/./jobs"
    c.happen(*admission.submit(c.state, [Job("web/./jobs", WHOLE, tasks=2)], 0.0))
    placed, made = c.decide()
    assert (len(placed.job), [offer.framework for offer in made.offers]) == (1, ["f"])


def test_a_job_whose_leaf_became_a_role_meanwhile_is_in_the_leaf_of_its_jobs():
    c = Cluster(Queue("a"))
    job = Job(admission.leaf_for(c.state, "a", ""), {"cpu": 1000})
    c.join("f", "a")
    (submitted,) = admission.submit(c.state, [job], c.now)
    assert submitted.job.queue == "a/./jobs"


def test_a_queue_with_jobs_becomes_a_role_and_they_go_on_beside_its_framework():
    c = Cluster(Queue("web", strict=True), Queue("other"), nodes=4, idle_budget=0.02)
    c.happen(*admission.submit(c.state, [Job("web", WHOLE, tasks=8), Job("web", {"cpu": 1000})], 0.0))
    (placed,) = c.decide()
    c.happen(TasksStarted(at=0.0, job=placed.job, index=placed.index, attempt=placed.attempt))
    c.now = 1000.0
    c.join("f", "web/front")
    c.join("g", "web")
    assert (c.used("web"), c.used("web/./jobs"), c.used("web/front")) == ({k: 4 * v for k, v in WHOLE.items()},) * 2 + ({},)
    assert [c.state.index.specs[job].queue for job in (1, 2)] == ["web/./jobs"] * 2
    assert c.decide(1.0) == []
    offers = []
    for index in range(3):  # what comes back is for web/front until the jobs and g, together, have less
        columns = {"job": np.array([1]), "index": np.array([index]), "attempt": np.array([1])}
        ends = {"outcome": np.array([int(Outcome.EXITED)]), "code": np.array([0])}
        c.happen(TasksFinished(at=c.now, **columns, **ends))
        offers += c.offers(1.0)
    assert [offer.framework for offer in offers] == ["f", "f", "g"]
    assert same(replay(c.facts)) == same(c.state)
    table = {queue["name"]: queue for queue in list_queues(c.state)}
    assert (table["web/./jobs"]["running"], table["web/./jobs"]["waiting"]) == (1, 5)


def test_a_task_runs_at_most_once():
    for outcome, code, what in ((Outcome.LOST, 0, "lost"), (Outcome.EXITED, 1, "failed"), (Outcome.EXITED, 0, "finished")):
        c = Cluster()
        c.join("f")
        c.launch(c.offers()[0], "t")
        c.end(c.job("f", "t"), outcome, code)
        assert c.updates("f") == [("t", 1, "starting"), ("t", 2, what)]
        c.decide()
        assert len(c.state.ended_jobs()) == 1, "it waits for nothing"


def test_a_revoked_task_is_over():
    c = Cluster()
    c.join("f")
    c.launch(c.offers()[0], "t")
    columns = {"job": np.array([1]), "index": np.array([0]), "attempt": np.array([1])}
    c.happen(TasksStarted(at=0.0, **columns), TasksRevoked(at=1.0, **columns))
    c.end(1, Outcome.STOPPED)
    assert [what for *_, what in c.updates("f")] == ["starting", "running", "revoked"]
    assert c.state.ended_jobs().tolist() == [1]


def test_updates_are_kept_until_they_are_acknowledged():
    c = Cluster()
    c.join("f")
    c.launch(c.offers()[0], "t")
    c.ask("kill", "f", "t")
    c.end(1, Outcome.SIGNALLED, 15)
    c.state = snapshot.load(snapshot.dump(c.state))
    assert c.updates("f") == [("t", 1, "starting"), ("t", 2, "killed")]
    c.happen(*acknowledge(c.state, "f", "t", 2, c.now))
    c.happen(*acknowledge(c.state, "f", "t", 2, c.now))
    assert c.updates("f") == [("t", 1, "starting")]
    c.happen(*acknowledge(c.state, "f", "t", 1, c.now))
    assert frameworks.tasks_of(c.state, "f") == {}
    with pytest.raises(admission.Unknown, match="no task 't'"):
        c.ask("kill", "f", "t")


def test_a_framework_comes_back_to_its_tasks():
    c = Cluster(nodes=2)
    c.join("f", failover_timeout=60.0)
    c.launch(c.offers()[0], "t")
    c.join("f", failover_timeout=60.0)
    assert (c.state.offers.n, [*frameworks.tasks_of(c.state, "f")]) == (0, ["t"])
    assert len(c.offers()) == 2, "what it had refused is forgotten with its connection"
    c.ask("disconnect", "f")
    assert c.state.offers.n == 0
    assert c.decide(59.0) == []
    c.join("f", failover_timeout=60.0)
    assert len(c.offers(600.0)) == 2


def test_a_framework_that_does_not_come_back_is_gone_and_its_leaf_another_s():
    c = Cluster()
    c.join("f", failover_timeout=10.0)
    c.launch(c.offers()[0], "t")
    c.ask("disconnect", "f")
    gone, cancelled = c.decide(10.0)
    assert (type(gone), type(cancelled), cancelled.id) == (FrameworkGone, JobCancelled, 1)
    with pytest.raises(admission.Refused, match="framework f is gone"):
        c.join("f")
    c.join("g")
    assert c.state.frameworks.members["g"].leaves == {"*": "default/./2"}, "its task still runs in the other"
    c.end(1, Outcome.SIGNALLED, 9)
    c.join("h")
    assert c.state.frameworks.members["h"].leaves == {"*": "default/./1"}


def test_offers_of_a_node_that_is_lost_or_drained_are_rescinded():
    c = Cluster(nodes=3)
    c.join("f")
    c.offers()
    c.happen(NodeLost(at=1.0, node="n0"), NodeDrained(at=1.0, node="n1"))
    assert sorted(fact.why for fact in c.decide()) == ["node drained", "node lost"]
    c.happen(NodeJoined(at=2.0, node=Node("n0", WHOLE)))
    assert [offer.node for offer in c.offers()] == [0]


def test_what_is_reserved_on_a_lost_node_does_not_count_though_a_drained_card_is_free_now():
    c = Cluster(Queue("q"))
    gpu = Job("q", {"cpu": 1000, "gpu": 1000})
    c.happen(
        NodeJoined(at=0.0, node=Node("n0", {"cpu": 4000, "gpu": 2000})),
        ResourcesReserved(at=0.0, node=0, amount={"cpu": 1000}, mark="m", role="q"),
        JobSubmitted(at=0.0, id=1, job=gpu),
    )
    one = {"job": np.array([1]), "index": np.array([0]), "attempt": np.array([1])}
    c.happen(
        TasksPlaced(at=0.0, **one, node=np.array([0])),
        TasksStarted(at=1.0, **one, ago=np.array([0]), cards=np.array([1])),
        NodeDrained(at=2.0, node="n0", cards=[0]),
        NodeLost(at=3.0, node="n0"),
    )
    assert not c.state.frameworks.role_reservations["n0"]["m"].there


def test_what_cannot_be_launched_is_refused_task_by_task():
    c = Cluster(Queue("web", max_tasks=2))
    c.join("f", "web")
    (offer,) = c.offers()
    jobs = [
        Job("", {"cpu": 5000}, task="large"),
        Job("", {"cpu": 1000}, task="t"),
        Job("", {"cpu": 1000}, task="t"),
        Job("", {"rocks": 1}, task="odd"),
        Job("", {}, task="empty"),
        Job("", {"cpu": 1000}),
        Job("", {"cpu": 3000}, task="u"),
        Job("", {"memory": 1}, task="v"),
    ]
    facts, refused = frameworks.accept(c.state, "f", [offer.id], jobs, 0.0, c.now)
    assert [invalid.task for invalid in refused] == ["large", "t", "odd", "empty", "", "v"]
    assert "maximum of 2 tasks" in str(refused[-1])
    c.happen(*facts)
    assert c.used("web") == {"cpu": 4000}


def test_a_role_has_no_nul_in_its_name():
    assert frameworks.check_role("a\0b") == r"role 'a\x00b' may not contain '\x00'"


def test_offers_that_are_accepted_together_are_of_one_node_and_role():
    c = Cluster(nodes=2)
    c.join("f")
    c.join("g")
    one, other = c.offers()
    for offers in ([], [one.id, other.id], [99]):
        with pytest.raises(frameworks.InvalidOffers):
            frameworks.accept(c.state, one.framework, offers, [Job("", {"cpu": 1}, task="t")], None, 0.0)
    assert c.state.offers.n == 2


def test_for_a_guarantee_offers_are_taken_back_before_tasks_are():
    c = Cluster(Queue("lab", guarantee={"cpu": 4000}, guarantee_timeout=5.0), Queue("web"), nodes=2, offer_timeout=1e9)
    c.join("f", "web")
    one, other = c.offers()
    c.launch(one, "t", demand=WHOLE)
    c.happen(*admission.submit(c.state, [Job("lab", {"cpu": 4000}, tasks=2)], 0.0))
    assert c.decide() == []
    rescinded, _, placed, *_ = c.decide(5.0)
    assert (type(rescinded), rescinded.ids, rescinded.why) == (OffersRescinded, [other.id], "claimed")
    assert placed.job.tolist() == [2]
    assert c.decide(60.0) == [], "it has what it is guaranteed"


def test_a_task_of_a_framework_is_revoked_for_a_guarantee():
    c = Cluster(Queue("lab", guarantee={"cpu": 4000}, guarantee_timeout=5.0), Queue("web"))
    c.join("f", "web")
    c.launch(c.offers()[0], "t", demand=WHOLE)
    c.happen(*admission.submit(c.state, [Job("lab", {"cpu": 4000})], 0.0))
    (revoked, *_) = [fact for fact in c.decide(6.0) if isinstance(fact, TasksRevoked)]
    assert (revoked.job.tolist(), revoked.claim.why) == ([1], "guarantee")
    c.end(1, Outcome.SIGNALLED, 15)
    assert c.updates("f")[-1][-1] == "revoked"
    assert [fact.job.tolist() for fact in c.decide() if isinstance(fact, TasksPlaced)] == [[2]]


def test_an_offer_counts_in_the_half_life_and_is_not_counted_twice():
    c = Cluster(Queue("web"), Queue("b"))
    c.join("f", "web")
    (offer,) = c.offers()
    c.now = 100.0
    c.launch(offer, "t", demand=WHOLE)
    leaf = c.state.tree.rows["web"]
    assert c.state.queues.recent[leaf].any() or c.state.queues.mean[leaf].any()
    with pytest.raises(Contradiction):
        apply(c.state, OffersAccepted(at=100.0, framework="f", ids=[offer.id], jobs=[], left={}, until=0.0))


def test_frameworks_keep_a_job_from_starving_no_longer_than_it_is_passed_over():
    """A node is kept for a job that needs more than is ever free at once, and offers do not reach into it."""
    c = Cluster(Queue("jobs"), Queue("web"), nodes=1, idle_budget=0.02)
    c.join("f", "web")
    (offer,) = c.offers()
    c.launch(offer, "t", demand={"cpu": 2000}, refuse=0.0)
    c.happen(*admission.submit(c.state, [Job("jobs", {"cpu": 3000})], 0.0))
    (offer,) = c.offers()
    c.ask("decline", "f", [offer.id], 0.0)
    (offer,) = c.offers(11.0)
    c.ask("decline", "f", [offer.id], 0.0)
    c.decide(1.0)
    assert c.state.holds.n == 1
    c.end(1)
    assert [fact.job.tolist() for fact in c.decide() if isinstance(fact, TasksPlaced)] == [[2]]


ROLES = ["web", "web/front", "*", "a/x", "b", "c/u"]


class Frameworks(Histories):
    """Random facts with frameworks among them; what is offered is nobody else's, and was not refused."""

    @initialize(queues=trees(), seconds=st.sampled_from([3.0, 1e9]), most=st.sampled_from([None, None, 30.0]))
    def begin(self, queues, seconds, most):
        self.now, self.facts, self.state, self.prefix = 0.0, [], new_state(), (0, b"")
        self.settings = Settings(max_losses=2, offer_timeout=seconds, offer_most=most)
        self.refused, self.not_before = [], {}
        self.happen(admission.configure(self.state, queues, self.settings, self.now))
        for i in range(2):
            self.join(i, {"cpu": 40, "gpu": 8, "memory": 16}, "east")

    def happen(self, *facts):
        for fact in facts:
            if fact is not None:
                self.facts.append(fact)
                apply(self.state, fact)

    @rule(k=st.integers(0, 3), roles=st.sets(st.sampled_from(ROLES), min_size=1, max_size=2), revocable=rarely)
    def subscribe(self, k, roles, revocable):
        name = next(name for name in (f"f{k}", f"g{k}", f"h{k}", "") if name not in self.state.frameworks.gone)
        framework = Framework(name, roles=sorted(roles), failover_timeout=float(k), revocable=revocable)
        if name:
            self.happen(*frameworks.subscribe(self.state, framework, name, [], self.now))
            self.forget(name)

    def forget(self, name, roles=ROLES):
        self.refused = [each for each in self.refused if each[0] != name or each[1] not in roles]

    @precondition(lambda self: self.state.frameworks.members)
    @rule(data=st.data(), what=st.sampled_from(["suppress", "revive", "revive", "disconnect", "tear_down"]), really=rarely)
    def change(self, data, what, really):
        name = data.draw(st.sampled_from(sorted(self.state.frameworks.members)))
        if what in ("suppress", "revive"):
            role = data.draw(st.sampled_from(self.state.frameworks.members[name].framework.roles))
            self.happen(*getattr(frameworks, what)(self.state, name, [role], self.now))
            if what == "revive":
                self.forget(name, [role])
        elif really:
            self.happen(*getattr(frameworks, what)(self.state, name, self.now))
            self.forget(name)

    @precondition(lambda self: self.state.offers.n)
    @rule(data=st.data(), seconds=st.sampled_from([0.0, 2.0, 8.0]), cpu=st.integers(0, 20))
    def answer(self, data, seconds, cpu):
        row = data.draw(st.integers(0, self.state.offers.n - 1))
        offer, leaf = int(self.state.offers.id[row]), int(self.state.offers.leaf[row])
        who, role = self.state.frameworks.at[self.state.tree.names[leaf]]
        node, rest = int(self.state.offers.node[row]), self.state.offers.rest[row].copy()
        job = Job("", {"cpu": cpu}, task=f"t{len(self.facts)}")
        facts, _ = frameworks.accept(self.state, who, [offer], [job] if cpu else [], seconds, self.now)
        if isinstance(facts[0], OffersAccepted):
            rest[self.state.resources.index("cpu")] -= cpu
        self.happen(*facts)
        self.refused.append((who, role, node, rest, self.now + seconds))

    @precondition(lambda self: self.state.offers.n)
    @rule(data=st.data(), cpu=st.integers(1, 6), launch=st.booleans(), volume=rarely)
    def set_apart(self, data, cpu, launch, volume):
        """Room of an offer becomes the role's, or what is its becomes everybody's; a task may run in it."""
        offer = int(data.draw(st.sampled_from(self.state.offers.id[: self.state.offers.n].tolist())))
        row = frameworks.row_of_offer(self.state, offer)
        who, role = self.state.frameworks.at[self.state.tree.names[self.state.offers.leaf[row]]]
        mark = data.draw(st.sampled_from([role, f"{role} too"]))
        here = self.state.frameworks.offered_apart.get(offer, {})
        if mark in here and data.draw(st.booleans()):
            move = Move(here[mark], of=mark)
        elif volume:
            move = Move({"cpu": cpu}, of=mark, mark=f"{mark} volume", role=role, whole=True)
        else:
            move = Move({"cpu": cpu}, mark=mark, role=role)
        job = Job("", {"cpu": 2}, task=f"r{len(self.facts)}", apart={mark: {"cpu": 1}}, ports=[(31000 + cpu, 31006)])
        asked = [Moves(0, [move])] if role != "*" else []
        facts, _ = frameworks.accept(self.state, who, [offer], [*asked, *([job] if launch else [])], 0.0, self.now)
        self.happen(*facts)

    @precondition(lambda self: self.state.frameworks.task_of)
    @rule(data=st.data(), kill=st.booleans())
    def hear(self, data, kill):
        job = data.draw(st.sampled_from(sorted(self.state.frameworks.task_of)))
        who, task = self.state.frameworks.task_of[job]
        update = data.draw(st.integers(1, 3))
        ask = (frameworks.kill, ()) if kill else (acknowledge, (update,))
        self.happen(*ask[0](self.state, who, task, *ask[1], self.now))

    def decide(self, seconds):
        self.now += seconds
        before = same(self.state)
        decision, again = decide(self.state, self.now), decide(self.state, self.now)
        recovered = decide(snapshot.load(snapshot.dump(self.state)), self.now)
        told = [encode(fact) for fact in decision.facts]
        assert told == [encode(fact) for fact in again.facts] == [encode(fact) for fact in recovered.facts]
        assert same(self.state) == before, "deciding changed the state"
        for fact in decision.facts:
            if isinstance(fact, OffersRescinded) and fact.why == "expired":
                self.note_expired(fact)
            self.happen(fact)
            if isinstance(fact, FrameworkGone):
                self.forget(fact.id)
            for offer in fact.offers if isinstance(fact, OffersMade) else []:
                self.is_right(offer)
        if not decision.facts:
            self.nothing_is_left()

    def note_expired(self, fact):
        """Nothing of their nodes is offered to that framework in that role for a while."""
        offers = self.state.offers
        for row in (frameworks.row_of_offer(self.state, offer) for offer in fact.ids):
            who, role = self.state.frameworks.at[self.state.tree.names[offers.leaf[row]]]
            everything = np.full(len(self.state.resources), UNLIMITED)
            self.refused.append((who, role, int(offers.node[row]), everything, fact.until))

    def is_right(self, offer):
        amount = np.array([offer.amount.get(name, 0) for name in self.state.resources])
        for mark in offer.apart:
            parcel = self.state.frameworks.role_reservations[self.state.cluster.specs[offer.node].name][mark]
            assert f"{offer.role}/".startswith(f"{parcel.role}/"), "it is another role's"
        if offer.apart and not offer.amount:
            return
        assert any(offer.amount.get(name, 0) >= least for name, least in MIN_OFFER.items())
        assert not self.state.nodes.draining[offer.node]
        for refused in self.refused:
            assert not self.covers(refused, offer.framework, offer.role, offer.node, amount), "it was refused"
        leaf = self.state.frameworks.members[offer.framework].leaves[offer.role]
        for path in [leaf, *frameworks.path_to_root(leaf)]:
            row = self.state.tree.rows[path]
            over = self.state.queues.used[row] - self.state.queues.spare[row] > self.state.queues.limit[row]
            assert not (over & (amount > 0)).any(), "it is above a limit"

    def covers(self, refused, who, role, node, amount):
        whose, for_role, where, rest, until = refused
        return (whose, for_role, where) == (who, role, node) and until > self.now and (amount <= rest).all()

    def nothing_is_left(self):
        """Whoever wants offers has refused what there is, or may not have it."""
        s, q = self.state, self.state.queues
        for who, member in s.frameworks.members.items():
            if member.away_since is not None or member.framework.revocable:
                continue
            for role in {*member.framework.roles} - {*member.suppressed}:
                leaf = s.tree.rows[member.leaves[role]]
                path = [s.tree.rows[name] for name in frameworks.path_to_root(member.leaves[role])]
                if any(q.tasks[p] >= q.max_tasks[p] or q.jobs[p] >= q.max_jobs[p] for p in path):
                    continue
                room = np.full(len(s.resources), UNLIMITED)
                for p in path:
                    within = np.where(q.limit[p] == UNLIMITED, UNLIMITED, q.limit[p] - q.used[p] - q.claimed[p] + q.spare[p])
                    room = np.minimum(room, within)
                if self.settings.offer_most:
                    part = (s.cluster.total * (self.settings.offer_most / 100)).astype(np.int64)
                    room = np.minimum(room, part - q.offered[leaf])
                    columns = [s.resources.index(name) for name in MIN_OFFER if name in s.resources]
                    if any(MIN_OFFER[s.resources[r]] <= s.cluster.total[r] and 2 * q.offered[leaf, r] > part[r] for r in columns):
                        continue
                if q.has_nonlendable[0]:
                    continue
                for node in np.flatnonzero(s.nodes.up[: s.nodes.n] & ~s.nodes.draining[: s.nodes.n]).tolist():
                    rest = np.maximum(0, np.minimum(s.nodes.free[node] - s.nodes.held[node], room))
                    worth = any(rest[s.resources.index(name)] >= least for name, least in MIN_OFFER.items())
                    refused = any(self.covers(each, who, role, node, rest) for each in self.refused)
                    assert not worth or refused, f"{rest} of node {node} could be offered to {who} for {role}"

    def teardown(self):
        if not hasattr(self, "state"):
            return
        for name in [*self.state.frameworks.members]:
            self.happen(*frameworks.tear_down(self.state, name, self.now))
        assert not self.state.queues.offered.any()
        assert not self.state.frameworks.task_of
        for node, here in [*self.state.frameworks.role_reservations.items()]:
            row = self.state.cluster.rows[node]
            for who in {self.state.tasks.node[task] for task in self.state.held_rows().tolist()} & {row}:
                self.happen(NodeLost(at=self.now, node=self.state.cluster.specs[who].name))
            if not self.state.nodes.up[row] or any(not each.there for each in here.values()):
                self.happen(NodeJoined(at=self.now, node=Node(node, {"cpu": 10**6, "gpu": 10**6, "memory": 10**6})))
            for mark, parcel in [*here.items()]:
                self.happen(ResourcesReserved(at=self.now, node=row, amount=parcel.amount, of=mark))
        super().teardown()
        assert replay(self.facts).frameworks.gone == self.state.frameworks.gone


rounds = int(os.environ.get("FAIRLEAD_FUZZ", "0")) // 20 or 8
TestFrameworks = Frameworks.TestCase
TestFrameworks.settings = settings(
    max_examples=rounds, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestExecutors:
    """Programs of frameworks that run tasks in themselves."""

    def cluster(self):
        cluster = Cluster(nodes=2)
        cluster.join("f", failover_timeout=100.0)
        return cluster

    def launch(self, cluster, offer, *tasks, info=""):
        jobs = [Job("", {"cpu": 1000}, task=task, executor="e") for task in tasks]
        executor = Job("", {"cpu": 500, "memory": G}, executor="e", info=info)
        answer = frameworks.accept(cluster.state, "f", [offer.id], jobs, 0.0, cluster.now, {"e": executor})
        cluster.happen(*answer[0])
        return {invalid.task: invalid for invalid in answer[1]}

    def taken(self, cluster):
        offered = cluster.offered("default")
        return {name: amount - offered.get(name, 0) for name, amount in cluster.used("default").items()}

    def say(self, cluster, task, what, end=None, uuid=""):
        said = frameworks.report_status(cluster.state, cluster.job("f", task), what, what, uuid or what, cluster.now, end)
        cluster.happen(*said)
        return said

    def test_one_on_each_node_whose_tasks_it_tells_of(self):
        cluster = self.cluster()
        there, elsewhere = cluster.offers()
        assert not self.launch(cluster, there, "a", "b")
        assert not self.launch(cluster, elsewhere, "c")
        assert not self.launch(cluster, cluster.offers()[0], "d")
        f = cluster.state.frameworks
        assert len(f.executors) == 2
        assert sum(len(each.tasks) for each in f.executors.values()) == 4
        assert self.taken(cluster) == {"cpu": 5000, "memory": 2 * G}
        assert cluster.updates("f") == []  # nobody has said anything
        assert self.say(cluster, "a", "running")
        assert not self.say(cluster, "a", "running")  # the same, once more
        self.say(cluster, "a", "ending", (0, 0))
        assert cluster.updates("f") == [("a", 1, "running"), ("a", 2, "finished")]
        assert [each.update.said for each in unacknowledged(cluster.state, "f")] == ["running", "ending"]
        assert self.taken(cluster)["cpu"] == 4000
        assert same(cluster.state) == same(replay(cluster.facts))

    def test_its_end_is_that_of_its_tasks(self):
        cluster = self.cluster()
        self.launch(cluster, cluster.offers()[0], "a", "b")
        (number,) = cluster.state.frameworks.executors
        self.say(cluster, "a", "running")
        cluster.ask("kill", "f", "b")
        cluster.end(number, Outcome.SIGNALLED, 9)
        cluster.decide()
        assert cluster.updates("f") == [("a", 1, "running"), ("a", 2, "failed"), ("b", 1, "killed")]
        assert not cluster.state.frameworks.executors
        assert not any(self.taken(cluster).values())

    def test_one_that_is_another_or_ends_takes_no_more(self):
        cluster = self.cluster()
        self.launch(cluster, cluster.offers()[0], "a")
        (number,) = cluster.state.frameworks.executors
        offer = next(offer for offer in cluster.offers() if cluster.state.tasks.node[0] == offer.node)
        assert "with a different description" in str(self.launch(cluster, offer, "b", info="of another kind")["b"])
        cluster.happen(*frameworks.shut_down(cluster.state, number, cluster.now))
        offer = next(offer for offer in cluster.offers() if cluster.state.tasks.node[0] == offer.node)
        assert isinstance(self.launch(cluster, offer, "c")["c"], frameworks.ExecutorEnds)

    def test_only_its_framework_launches_a_task_again(self):
        cluster = self.cluster()
        self.launch(cluster, cluster.offers()[0], "a")
        with pytest.raises(admission.Refused, match="only it can launch the task again"):
            admission.again(cluster.state, cluster.job("f", "a"), failed=False)

    def test_it_goes_with_its_framework_or_its_node(self):
        for goes in (
            lambda cluster: cluster.ask("tear_down", "f"),
            lambda cluster: cluster.happen(NodeLost(at=0.0, node="n0"), NodeLost(at=0.0, node="n1")),
        ):
            cluster = self.cluster()
            self.launch(cluster, cluster.offers()[0], "a")
            (number,) = cluster.state.frameworks.executors
            goes(cluster)
            if cluster.state.frameworks.executors:
                cluster.end(number, Outcome.SIGNALLED, 9)
                cluster.decide()
            assert not cluster.state.frameworks.executors
            assert cluster.state.frameworks.inside == {}


MOMENT = 0.01
"""Seconds that the fastest answer takes."""


class Crowd(Cluster):
    """Nine CPUs, frameworks that behave badly from the fourth second on, and one that always has nine tasks to run.

    Each bad one is a behaviour, the seconds that it holds an offer or keeps its role, and a role: its own unless given. All
    times are multiplied by `scale`; every quarter of a second all have their turn. An answer takes a moment.
    """

    def __init__(self, *bad, nodes=3, timeout=5.0, lasts=4.0, scale=1.0):
        super().__init__(Queue("*"), nodes=0, offer_timeout=timeout * scale)
        for k in range(nodes):
            self.happen(NodeJoined(at=0.0, node=Node(f"m{k}", {"cpu": 9000 // nodes, "memory": 9 // nodes * G})))
        self.bad, self.lasts, self.scale, self.count = bad, lasts, scale, 0
        self.ids, self.changes, self.ends, self.kept, self.ran, self.busy = {}, {}, {}, [], 0.0, 0
        self.join("honest", "honest")

    def happen(self, *facts):
        for fact in facts:
            apply(self.state, fact)

    def decide(self, seconds=0.0):
        self.now, facts, more = self.now + seconds, [], True
        while more:
            found, more, _ = decide(self.state, self.now)
            self.happen(*found)
            facts += found
        return facts

    def change(self, k):
        """Let a bad framework come, or come again in another role, or revive its role."""
        how, _, role = self.bad[k]
        if k in self.ids and how == "reviving":
            self.ask("revive", self.ids[k], [])
        if k in self.ids and how == "fresh":
            self.ask("tear_down", self.ids.pop(k))
        if k in self.ids and how != "renamed":
            return
        self.count += 1
        who, update = self.ids.setdefault(k, f"b{self.count}.{k}"), k in self.changes and how == "renamed"
        framework = Framework(who, roles=[role or f"r{self.count}"])
        self.happen(*frameworks.subscribe(self.state, framework, who, [], self.now, update=update))

    def misuse(self, offer, how):
        """Answer as a bad framework does: with nothing, or with what is over a quarter of a second later."""
        cpu, memory = offer.amount.get("cpu", 0), offer.amount.get("memory", 0)
        launched = {
            "crumb": {"cpu": min(cpu, 1), "memory": min(memory, G >> 10)},
            "all CPUs": {"cpu": cpu, "memory": min(memory, G >> 10)},
            "all memory": {"cpu": min(cpu, 1), "memory": memory},
        }.get(how)
        if launched is None:
            self.ask("decline", offer.framework, [offer.id], 0.0)
            return
        demand = {name: amount for name, amount in launched.items() if amount}
        assert self.launch(offer, f"t{offer.id}", demand=demand, refuse=0.0) == {}
        self.ends[self.job(offer.framework, f"t{offer.id}")] = (self.now + 0.25 * self.scale, offer.framework)

    def use(self, offer):
        cpus, memory = offer.amount.get("cpu", 0) // 1000, offer.amount.get("memory", 0) // (G >> 5)
        tasks = [f"t{offer.id}.{k}" for k in range(min(cpus, 9 - self.busy, memory))]
        if not tasks:
            self.ask("decline", "honest", [offer.id], 0.5 * self.scale)
            return
        assert self.launch(offer, *tasks, demand={"cpu": 1000, "memory": G >> 5}, refuse=0.0) == {}
        for job in (self.job("honest", task) for task in tasks):
            self.ends[job] = (self.now + self.lasts * self.scale * (90 + job * 7 % 20) / 100, "honest")
        self.busy += len(tasks)

    def step(self):
        for job, (at, who) in [*self.ends.items()]:
            if at <= self.now + 1e-6 and self.state.index.specs.get(job) is not None:
                self.busy -= who == "honest"
                if job in self.state.frameworks.task_of and not self.is_over(job):
                    self.end(job)
                del self.ends[job]
        for k, (_, seconds, _) in enumerate(self.bad) if self.now >= 4.0 * self.scale else []:
            if self.now >= self.changes.get(k, 0.0) - 1e-6:
                self.change(k)
                self.changes[k] = self.now + max(seconds, 0.5) * self.scale
        self.answer_late()
        start = self.now
        for _ in range(9):
            offers = self.offers()
            for offer in offers:
                if offer.framework == "honest":
                    self.use(offer)
                else:
                    self.kept.append((offer, self.now, self.bad[int(offer.framework.partition(".")[2])]))
            if not offers:
                break
            self.now += MOMENT * self.scale
            self.answer_late(at_once=True)
        self.ran += self.busy / 4 if self.now >= 4.0 * self.scale else 0.0
        self.now = start + 0.25 * self.scale

    def is_over(self, job):
        who, task = self.state.frameworks.task_of[job]
        return self.state.frameworks.tasks[who][task].over

    def answer_late(self, at_once=False):
        kept = self.kept
        self.kept = []
        for offer, since, (how, seconds, role) in kept:
            if frameworks.whose(self.state, offer.id) != offer.framework:
                continue
            answers = how in ("late", "crumb", "all CPUs", "all memory") and (seconds == 0.0 or not at_once)
            if answers and since + seconds * self.scale <= self.now + 1e-6:
                self.misuse(offer, how)
            else:
                self.kept.append((offer, since, (how, seconds, role)))

    def run(self, seconds=110):
        """Return how many tasks of the honest one ran on average, beside the bad ones."""
        for _ in range(4 * (seconds + 4)):
            self.step()
        return self.ran / seconds


HOLDS = st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0, 4.5, 4.9])
HOW = st.sampled_from(["silent", "late", "reviving", "crumb", "all CPUs", "all memory", "fresh", "renamed"])
BAD = st.lists(st.tuples(HOW, HOLDS, st.sampled_from(["", "one", "honest"])), min_size=1, max_size=6)


@settings(max_examples=cases(4), deadline=None)
@given(bad=BAD, nodes=st.sampled_from([1, 3, 9]), lasts=st.sampled_from([1.0, 4.0]))
def test_whatever_others_do_with_their_offers_a_framework_that_uses_its_own_has_its_share(bad, nodes, lasts):
    """In 22 times `offer_timeout`, for which each may hold one offer."""
    assert Crowd(*bad, nodes=nodes, lasts=lasts).run() >= 0.8 * 9 / (1 + len(bad))


@pytest.mark.parametrize(
    ("how", "seconds", "count", "scale"),
    [
        ("silent", 0.0, 4, 120.0),
        ("late", 4.5, 4, 0.2),
        ("reviving", 0.5, 4, 0.2),
        ("fresh", 1.0, 5, 120.0),
        ("renamed", 1.0, 2, 0.2),
        ("crumb", 4.5, 4, 120.0),
        ("all CPUs", 4.5, 4, 0.2),
        ("all memory", 4.5, 4, 120.0),
    ],
)
def test_what_is_held_and_not_used_is_others_whatever_ends_it(how, seconds, count, scale):
    """Each holds one offer before it goes last; together they hold a sixteenth afterwards: 7.9 of nine are left."""
    assert Crowd(*[(how, seconds, "")] * count, scale=scale).run() >= 0.95 * 7.9


def test_what_always_runs_on_a_node_however_small_costs_others_the_task_that_does_not_fit_beside_it():
    """As a small job does: of three tasks of a CPU on each node of three, two fit."""
    assert Crowd(*[("crumb", 0.0, "")] * 4).run(30) >= 6.0


def last_until(c, leaf):
    return float(c.state.queues.last_until[c.state.tree.rows[leaf]])


def waiting(*queues, nodes=2, **options):
    """A cluster with offers to f in the role web, and a job that waits for a node after they were made."""
    c = Cluster(Queue("web"), Queue("jobs"), *queues, nodes=nodes, offer_timeout=60.0, **options)
    c.join("f", "web")
    offers = c.offers()
    c.happen(*admission.submit(c.state, [Job("jobs", WHOLE, 9)], c.now))
    return c, *offers


def test_a_task_that_runs_shorter_than_its_offer_was_held_is_charged():
    c, one, two = waiting()  # each is half of the cluster: 8 seconds for each
    c.now = 30.0
    assert c.launch(one, "short", demand=WHOLE) == {}
    assert c.launch(two, "long", demand={"cpu": 4000}) == {}
    assert last_until(c, "web/./1") == 0.0
    c.now = 31.0
    c.end(c.job("f", "short"))
    assert last_until(c, "web/./1") == 31.0 + 8 * 29.0
    c.join("renamed", "elsewhere")
    c.join("another's", "elsewhere", principal="somebody")
    assert last_until(c, "elsewhere/./1") == 31.0 + 8 * 29.0, "what comes for the same account has its past"
    assert last_until(c, "elsewhere/./2") == 0.0
    c.now = 70.0
    c.end(c.job("f", "long"))
    assert last_until(c, "web/./1") == 31.0 + 8 * 29.0, "a task that ran as long takes nothing off"
    assert last_until(c, "elsewhere/./1") == 31.0 + 8 * 29.0


@pytest.mark.parametrize("by_admin", [False, True])
def test_what_an_administrator_cancels_is_not_the_end_that_its_framework_chose(by_admin):
    c, one, _ = waiting()
    c.now = 30.0
    assert c.launch(one, "t", demand=WHOLE) == {}
    job = c.job("f", "t")
    c.happen(JobCancelled(at=31.0, id=job, by_admin=by_admin))
    c.now = 31.0
    c.end(job, Outcome.SIGNALLED, 15)
    assert last_until(c, "web/./1") == (0.0 if by_admin else 31.0 + 8 * 29.0)


def test_what_nobody_else_waits_for_or_could_use_is_held_for_nothing():
    c = Cluster(Queue("web"), Queue("jobs"), nodes=2, offer_timeout=60.0)
    c.join("f", "web")
    c.ask("decline", "f", [offer.id for offer in c.offers()], 0.0)
    one, two = c.offers(1.0)
    c.now = 30.0
    c.ask("decline", "f", [one.id, two.id], 0.0)
    assert last_until(c, "web/./1") == 0.0, "nobody waits"
    c.ask("suppress", "f", [])
    c.happen(*admission.submit(c.state, [Job("jobs", {"cpu": 4000, "memory": G}, 9)], c.now))
    c.decide()
    c.ask("revive", "f", [])
    offers = c.offers()
    assert [[*offer.amount] for offer in offers] == [["memory"], ["memory"]]
    c.now = 60.0
    c.ask("decline", "f", [offer.id for offer in offers], 0.0)
    assert last_until(c, "web/./1") == 0.0, "others can use no memory without CPUs"


@pytest.mark.parametrize("how", ["job", "framework", "revive"])
def test_what_is_offered_to_one_that_goes_last_costs_nothing_and_gives_way_to_others_that_come(how):
    c, *offers = waiting(nodes=1)
    c.join("g", "other", principal="somebody")
    c.ask("suppress", "g", [])
    c.ask("decline", "f", [offer.id for offer in offers], 0.0)
    c.happen(JobCancelled(at=0.0, id=1))
    c.state.queues.last_until[c.state.tree.rows["web/./1"]] = 9.0
    (last,) = c.offers(1.0)
    assert (last.framework, last.cost) == ("f", 0.0)
    c.now = 20.0
    if how == "job":
        c.happen(*admission.submit(c.state, [Job("jobs", WHOLE)], c.now))
    elif how == "framework":
        c.join("h", "another", principal="somebody")
    else:
        c.ask("revive", "g", [])
    found = c.decide()
    assert [(fact.ids, fact.why) for fact in found if isinstance(fact, OffersRescinded)] == [([last.id], "others first")]
    assert last_until(c, "web/./1") == 9.0


def test_a_role_has_twenty_levels_at_most():
    c = Cluster()
    c.join("f", "/".join("a" * 20))
    with pytest.raises(frameworks.Refused, match="a role of 21 levels: use at most 20"):
        c.join("g", "/".join("a" * 21))


def test_what_goes_last_makes_way_when_a_task_ends_on_its_node_and_others_wait():
    c = Cluster(nodes=1, offer_timeout=60.0)
    c.join("f", "web")
    (offer,) = c.offers()
    c.join("g", "busy", principal="somebody")
    c.now = 5.0
    c.ask("decline", "f", [offer.id], 0.0)
    (offer,) = c.offers()
    assert c.launch(offer, "t", demand={"cpu": 4000}) == {}
    (rest,) = c.offers()
    assert (rest.framework, [*rest.amount]) == ("f", ["memory"]), "g has refused it"
    c.end(c.job("g", "t"))
    found = c.decide()
    assert [(fact.ids, fact.why) for fact in found if isinstance(fact, OffersRescinded)] == [([rest.id], "others first")]
    assert [offer.framework for fact in found if isinstance(fact, OffersMade) for offer in fact.offers] == ["g"]


def test_frameworks_that_use_what_they_are_offered_have_equal_parts():
    """Nobody comes last: neither who accepts all, nor who declines at once what is too small for it."""
    c = Cluster(Queue("x"), Queue("y"), nodes=8)
    c.join("f", "x")
    c.join("g", "y")
    for round_ in range(12):
        for offer in c.offers(10.0):
            if offer.framework == "g" and round_ % 2:
                c.ask("decline", "g", [offer.id], 0.0)
            else:
                c.launch(offer, f"t{offer.id}", demand=WHOLE)
    assert c.used("x") == c.used("y")
    assert not c.state.queues.last_until[: c.state.queues.n].any()


def test_who_held_offers_in_vain_is_offered_what_nobody_else_wants():
    c = Cluster(Queue("web"), Queue("busy"), nodes=2, offer_timeout=60.0)
    c.join("f", "web")
    one, two = c.offers()
    c.join("g", "busy", principal="somebody")
    c.now = 30.0
    c.ask("decline", "f", [one.id, two.id], 0.0)
    assert last_until(c, "web/./1") == 30.0 + 16 * 30.0, "held all of the cluster, and alone goes last"
    first = c.offers()
    assert [offer.framework for offer in first] == ["g", "g"]
    c.ask("decline", "g", [offer.id for offer in first], 3600.0)
    again = c.offers()
    assert [offer.framework for offer in again] == ["f", "f"]
    c.now = 31.0
    assert c.launch(again[0], "t", demand={"cpu": 4000}) == {}
    assert last_until(c, "web/./1") == 510.0, "what is offered to one that goes last costs nothing"
    assert "it goes after all others for 479 s" in list_frameworks(c.state, c.now)[0]["text"]


class Reserving(Crowd):
    """Bad ones that reserve all that they are offered, and as `gives_back` says unreserve it at the next offer."""

    gives_back = False

    def misuse(self, offer, how):
        asked = [Moves(0, [Move(amount, of=mark)]) for mark, amount in offer.apart.items()] if self.gives_back else []
        if offer.amount and not asked:
            asked.append(Moves(0, [Move(dict(offer.amount), mark=f"m{offer.id}", role=offer.role)]))
        self.happen(*frameworks.accept(self.state, offer.framework, [offer.id], asked, 0.0, self.now)[0])

    def step(self):
        if self.fresh and self.now % 1.0 == 0.0:
            for k in [*self.ids]:
                self.ask("tear_down", self.ids.pop(k))
        super().step()


@pytest.mark.parametrize(
    ("count", "fresh", "gives_back", "hold"),
    [(1, True, False, 0.0), (1, True, True, 0.0), (4, False, True, 0.0), (4, False, True, 2.0), (2, False, True, 4.5)],
)
def test_who_reserves_has_no_more_than_its_part(count, fresh, gives_back, hold):
    c = Reserving(*[("crumb", hold, "")] * count)
    c.fresh, c.gives_back = fresh, gives_back
    assert c.run(55) >= 0.8 * 9 / (1 + count)


@pytest.mark.parametrize("stays", [False, True])
def test_what_one_reserved_alone_ends_beyond_its_part_when_others_wait_for_it(stays):
    c = Cluster(Queue("web"), Queue("jobs"), nodes=2, offer_timeout=60.0)
    c.join("f", "web")
    for offer in c.offers():
        asked = [Moves(0, [Move(dict(offer.amount), mark=f"m{offer.id}", role="web")])]
        c.happen(*frameworks.accept(c.state, "f", [offer.id], asked, 0.0, c.now)[0])
    c.happen(*frameworks.suppress(c.state, "f", [], c.now))
    c.decide(600.0)
    assert len(c.state.frameworks.role_reservations) == 2, "nobody waits"
    if not stays:
        c.ask("tear_down", "f")
    (job,) = admission.submit(c.state, [Job("jobs", {"cpu": 1000, "memory": G}, 8)], c.now)
    c.happen(job)
    assert re.search("the reservations of web on n[01] are idle and would be enough", explain(c.state, job.id, c.now)["text"])
    c.decide()
    assert c.used("jobs")["cpu"] == (4000 if stays else 8000)
    assert c.used("web/./reserved").get("cpu", 0) == (4000 if stays else 0)


class Sleepers(Crowd):
    """Bad ones that answer nothing, and suppress their role while they go last."""

    def step(self):
        self.asleep = getattr(self, "asleep", set())
        for who in self.ids.values():
            (leaf,) = self.state.frameworks.members[who].leaves.values()
            if (last_until(self, leaf) > self.now) != (who in self.asleep):
                self.ask("revive" if who in self.asleep else "suppress", who, [])
                self.asleep ^= {who}
        super().step()


def test_who_suppresses_its_role_while_it_goes_last_sheds_nothing():
    c = Sleepers(*[("silent", 0.0, "")] * 60)
    c.run(200)  # each holds a third once
    c.ran = 0.0
    assert c.run(196) >= 0.8 * 9 * 15 / 16


class Honest(Cluster):
    """Nine CPUs, a framework that answers late and one that answers at once: both use all CPUs that they are offered."""

    happen, decide = Crowd.happen, Crowd.decide

    def __init__(self, answer, lasts, memory):
        super().__init__(Queue("*"), nodes=0, offer_timeout=60.0)
        for k in range(3):
            self.happen(NodeJoined(at=0.0, node=Node(f"m{k}", {"cpu": 3000, "memory": memory // 3 * G})))
        self.join("slow", "slow", principal="a")
        self.join("quick", "quick", principal="b")
        self.after, self.lasts = {"slow": answer, "quick": 0.0}, {"slow": lasts, "quick": 4.0}

    def use(self, offer):
        cpus = offer.amount.get("cpu", 0) // 1000
        if not cpus:
            self.ask("decline", offer.framework, [offer.id], 5.0)
            return
        tasks = [f"t{offer.id}.{k}" for k in range(cpus)]
        assert self.launch(offer, *tasks, demand={"cpu": 1000, "memory": G >> 2}, refuse=5.0) == {}
        for job in (self.job(offer.framework, task) for task in tasks):
            self.ends[job] = (self.now + self.lasts[offer.framework] * (90 + job * 7 % 20) / 100, offer.framework)

    def run(self, seconds):
        """Return how many tasks of the slow one ran on average."""
        self.ends, kept, ran = {}, [], 0
        while self.now < seconds:
            for job in [job for job, (at, _) in self.ends.items() if at <= self.now]:
                self.end(job)
                del self.ends[job]
            due = [offer for offer, at in kept if at + 1.0e-6 >= self.now - 0.25 and at <= self.now + 1.0e-6]
            kept = [(offer, at) for offer, at in kept if at > self.now + 1.0e-6]
            for offer in due:
                if frameworks.whose(self.state, offer.id):
                    self.use(offer)
            start = self.now
            while offers := self.offers():
                self.now += 0.002
                for offer in offers:
                    if late := self.after[offer.framework]:
                        kept.append((offer, self.now + late))
                    else:
                        self.use(offer)
            self.now = start + 0.25
            ran += sum(who == "slow" for _, who in self.ends.values())
        return ran * 0.25 / seconds


@pytest.mark.parametrize("memory", [9, 36])
@pytest.mark.parametrize(("answer", "lasts"), [(0.25, 4.0), (1.0, 4.0), (1.0, 60.0)])
def test_a_framework_that_answers_late_has_its_part_as_long_as_its_tasks_run_longer(answer, lasts, memory):
    """Half of nine tasks, less the time that what it uses is only offered to it."""
    assert Honest(answer, lasts, memory).run(200.0) >= 0.8 * 4.5 * lasts / (lasts + answer)


def test_frameworks_that_want_nothing_owe_nothing_however_many():
    c = Crowd(nodes=9)
    for k in range(40):
        c.join(f"h{k}", f"role{k}")
    c.ask("tear_down", "honest")
    while c.now < 60.0:
        offers = c.offers()
        c.now += 0.05 if offers else 0.5
        for offer in offers:
            c.ask("decline", offer.framework, [offer.id], 5.0)
    assert max(c.state.queues.last_until[: c.state.queues.n]) <= c.now, "what the first offers cost has passed"


def filled(*queues, nodes=1, memory=0, **options):
    """A cluster of which revocable tasks of a queue, each of a CPU, use all CPUs, above its limit."""
    c = Cluster(Queue("batch", limit={"cpu": 1000}), Queue("web"), *queues, nodes=nodes, **options)
    c.happen(*admission.submit(c.state, [Job("batch", {"cpu": 1000, "memory": memory}, 4 * nodes, revocable=True)], c.now))
    c.decide()
    assert c.used("batch")["cpu"] == 4000 * nodes
    return c


def open_offers(c):
    """The offers that are not answered yet."""
    made = [offer for fact in c.facts if isinstance(fact, OffersMade) for offer in fact.offers]
    return [offer for offer in made if offer.id in c.state.offers.id[: c.state.offers.n]]


def asked_back(c, seconds=1.0):
    """The tasks that are revoked by the next decisions, which end at once."""
    revoked = [fact for fact in c.decide(seconds) if isinstance(fact, TasksRevoked)]
    for fact in revoked:
        assert (fact.claim.job, fact.claim.why) == (0, "idle")
        columns = {"job": fact.job, "index": fact.index, "attempt": fact.attempt}
        zeros = np.zeros(len(fact.job), np.int64)
        c.happen(TasksFinished(at=c.now, **columns, outcome=zeros + int(Outcome.SIGNALLED), code=zeros + 15))
    return sum(len(fact.job) for fact in revoked)


def test_revocable_use_above_a_limit_is_asked_back_for_a_framework_within_its_share():
    c = filled()
    c.join("f", "web")
    (offer,) = c.offers()
    assert "cpu" not in offer.amount
    c.ask("decline", "f", [offer.id], 5.0)
    assert asked_back(c) == 3, "down to the limit"
    (offer,) = c.offers()
    assert (offer.framework, offer.amount) == ("f", {"cpu": 3000, "memory": 8 * G})
    assert c.launch(offer, "a", "b", demand={"cpu": 1000, "memory": G}, refuse=3600.0) == {}
    assert asked_back(c) == 0, "it refused a CPU"
    assert c.used("batch") == {"cpu": 2000}, "who uses it again"
    assert asked_back(c, 60.0) == 0
    assert audit_history(new_state(), c.facts, 0.0, 100.0, 0)["revocations"]["faults"] == []
    assert "for a framework of web, which reclaims idle resources" in describe_job(c.state, 1)["revoked"]["text"]
    assert same(c.state) == same(replay(c.facts))


@pytest.mark.parametrize("how", ["suppresses", "declines all", "lets offers expire", "is revocable", "is away", "at its limit"])
def test_nothing_is_asked_back_for_a_framework_that_wants_nothing(how):
    """What it is offered at first has no CPUs. If it declines that, more of a node is asked back for it, and once only."""
    c = filled(Queue("bound", limit={"cpu": 0, "memory": 0}), offer_timeout=10.0)
    c.join("f", "bound" if how == "at its limit" else "web", revocable=how == "is revocable", failover_timeout=1e6)
    revoked = 0
    for _ in range(20):
        if how == "suppresses":
            c.ask("suppress", "f", [])
        if how == "is away" and c.state.frameworks.members["f"].away_since is None:
            c.happen(*frameworks.disconnect(c.state, "f", c.now))
        mine = c.state.offers.id[: c.state.offers.n].tolist()
        if mine and how != "lets offers expire":
            c.ask("decline", "f", mine, 0.0)
        revoked += asked_back(c, 5.0)
    assert revoked == (3 if how == "declines all" else 0)


def test_a_framework_has_what_was_asked_back_as_soon_as_the_tasks_have_ended_and_nothing_more_is_meanwhile():
    c = filled(nodes=2, memory=2 * G)
    c.join("f", "web")
    (revoked,) = c.decide()
    assert isinstance(revoked, TasksRevoked)
    assert c.decide(1.0) == c.decide(1.0) == [], "they have their grace"
    columns = {"job": revoked.job, "index": revoked.index, "attempt": revoked.attempt}
    zeros = np.zeros(len(revoked.job), np.int64)
    c.happen(TasksFinished(at=c.now, **columns, outcome=zeros + int(Outcome.SIGNALLED), code=zeros + 15))
    (offer,) = c.offers()
    assert (offer.framework, offer.amount) == ("f", WHOLE)
    assert c.decide(1.0) == [], "it may take the offer"


def test_no_more_is_asked_back_than_the_share_of_the_framework():
    """Of twelve CPUs, eleven are used above a limit: each of three frameworks is entitled to three and two thirds."""
    c = filled(Queue("x"), Queue("y"), nodes=3, memory=2 * G)
    for role in ("web", "x", "y"):
        c.join(role, role)
    revoked = 0
    for k in range(30):
        revoked += asked_back(c)
        for n, offer in enumerate(open_offers(c)):
            cpus = offer.amount.get("cpu", 0) // 1000
            c.launch(offer, *[f"t{k}.{n}.{i}" for i in range(cpus)], demand={"cpu": 1000, "memory": 2 * G}, refuse=1.0)
    used = [c.used(role).get("cpu", 0) for role in ("web", "x", "y", "batch")]
    assert sum(used) == 12000
    assert max(used[:3]) <= 4000
    assert min(used[:3]) >= 3000
    assert revoked <= 11


def silent(**options):
    """A framework that has not answered an offer of one node yet."""
    c = Cluster(Queue("web"), offer_timeout=60.0, **options)
    c.join("f", "web")
    assert len(c.offers()) == 1
    return c


def expired(c):
    """The times from one offer of a node to the next, with none answered."""
    made, found = [0.0], []
    while len(found) < 7:
        c.now += 30.0
        if c.offers():
            made.append(c.now)
            found.append(made[-1] - made[-2])
    return found


def test_each_offer_that_expires_doubles_the_time_without_offers_of_its_node_up_to_a_bound():
    times = [60.0 * 2**k for k in (0, 1, 2, 3, 4, 4, 4)]
    assert expired(silent()) == [60.0 + each for each in times]


def test_what_a_node_grows_by_is_not_offered_either_while_its_expired_offer_counts_as_refused():
    c = Cluster(offer_timeout=60.0)
    c.join("f", "web")
    assert c.offers()
    (expired,) = c.decide(60.0)
    c.happen(NodeLost(at=60.0, node="n0"), NodeJoined(at=60.0, node=Node("n0", {"cpu": 9000, "memory": 9 * G})))
    assert c.offers(1.0) == []
    assert [offer.amount["cpu"] for offer in c.offers(expired.until - c.now)] == [9000]


def test_an_answer_ends_the_doubling_and_reviving_forgets_what_expired():
    c = silent()
    assert c.offers(60.0) == []
    c.ask("revive", "f", ["web"])
    (offer,) = c.offers()
    c.ask("decline", "f", [offer.id], 0.0)
    assert frameworks.tasks_of(c.state, "f") == {}
    assert c.state.frameworks.members["f"].unanswered == 0
    (offer,) = c.offers()
    assert c.offers(60.0) == []
    assert c.offers(59.0) == []
    assert len(c.offers(1.0)) == 1


@pytest.mark.parametrize("how", ["a task", "a small part"])
def test_a_reservation_of_which_little_is_used_or_changed_is_still_idle(how):
    """What is idle of it counts as idle for as long as it was on average: a thousandth that comes and goes changes little."""
    c = Cluster(nodes=1)
    c.join("f", "web")
    (offer,) = c.offers()
    moves = [Moves(0, [Move({"cpu": 4000}, mark="web", role="web")])]
    c.happen(*frameworks.accept(c.state, "f", [offer.id], moves, 0.0, c.now)[0])
    (reservation,) = c.state.frameworks.role_reservations["n0"].values()
    for _ in range(40):
        c.now += 1.0
        if how == "a task":
            (offer,) = [each for each in c.offers() if "web" in each.apart]
            job = Job("", {"cpu": 1}, task=f"t{c.now}", apart={"web": {"cpu": 1}})
            c.happen(*frameworks.accept(c.state, "f", [offer.id], [job], 0.0, c.now)[0])
            c.now += 0.25
            c.end(c.job("f", f"t{c.now - 0.25}"))
        else:
            c.happen(ResourcesReserved(at=c.now, node=0, amount={"cpu": 1}, of="web"))
            c.happen(ResourcesReserved(at=c.now, node=0, amount={"cpu": 1}, mark="web", role="web", account=reservation.account))
    assert reservation.since < 1.0


def test_a_framework_whose_queue_drains_is_listed_with_why():
    c = Cluster(Queue("web", draining=True))
    c.join("f", "web")
    c.decide()
    assert "drains" in list_frameworks(c.state, c.now)[0]["text"]


def test_offers_that_expired_in_an_older_journal_refuse_nothing():
    c = silent()
    (made,) = [offer for fact in c.facts if isinstance(fact, OffersMade) for offer in fact.offers]
    c.now = 60.0
    c.happen(OffersRescinded(at=60.0, ids=[made.id], why="expired"))
    assert len(c.offers()) == 1


def test_the_roles_of_one_user_do_not_fill_the_tree_for_others():
    c = Cluster(Queue("people"), Queue("people/*"))
    refused = ""
    for k in range(20):
        try:
            c.join(f"f{k}", *(f"people/eve/{k}-{i}" for i in range(100)))
        except frameworks.Refused as error:
            refused = str(error)
            break
        c.ask("tear_down", f"f{k}")
    assert 1 < k < 11
    assert "queue 'people/eve' would have" in refused
    assert "queues below it: 1000 at most" in refused
    c.join("again", "people/eve/0-0")  # an old role is used again
    c.join("ann", "people/ann")
    assert admission.leaf_for(c.state, "people/ben", "ben") == "people/ben"


def test_a_queue_with_offers_and_no_task_has_its_part_where_a_policy_divides():
    c = Cluster(Queue("x"), Queue("y"), Queue("z"))
    queues = [Queue(ROOT, policy="ceei", history=0.0), *(Queue(name) for name in "xyz")]
    c.happen(admission.configure(c.state, queues, Settings(), 0.0))
    c.join("f", "x")
    assert c.offers()
    c.ask("suppress", "f", [])
    for name in "yz":
        c.happen(*admission.submit(c.state, [Job(name, {"cpu": 1000}, 20)], c.now))
    with np.errstate(all="raise"):
        c.decide()
        write_entitled(c.state, strict=True)
    parts = [c.state.order.queues.entitled[c.state.tree.rows[name]] for name in "xyz"]
    assert np.allclose(parts, 1 / 3, rtol=1e-6)


def test_an_offer_beyond_a_limit_opens_claims_to_what_revocable_tasks_use_whoever_looks_before():
    """Listing the queues computes when a claim is due next: never. The offer changes that, as a placement does."""
    c = Cluster(Queue("web", limit={"cpu": 3000}), Queue("jobs"), reserve_after=1e9)
    c.join("f", "web")
    c.ask("suppress", "f", [])
    leaf = admission.leaf_for(c.state, "web", "ann")
    c.happen(JobSubmitted(at=0.0, id=1, job=Job(leaf, {"cpu": 2000}, revocable=True)))
    c.decide(1.0)
    c.happen(JobSubmitted(at=1.0, id=2, job=Job("jobs", {"cpu": 4000})))
    c.decide(1.0)
    list_queues(c.state)
    c.ask("revive", "f", [])
    assert "ClaimsPutOff" in [type(fact).__name__ for fact in c.decide(1.0)]
