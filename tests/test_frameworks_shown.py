"""What people are told of frameworks, of what they are offered, and of who waits for that."""

import pytest

from fairlead.cli.tables import framework_table, queue_table
from fairlead.model.specs import ROOT, Job, Queue
from fairlead.scheduler import admission
from fairlead.scheduler.effects import new_state
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.frameworks.reservations import Move
from fairlead.scheduler.reports.audits import audit_history
from fairlead.scheduler.reports.explain import explain
from fairlead.scheduler.reports.fair_shares import fair_shares
from fairlead.scheduler.reports.frameworks import list_frameworks
from fairlead.scheduler.reports.listings import list_nodes, list_queues
from fairlead.service import metrics
from fairlead.simulate.outlook import outlook
from fairlead.text_tables import printed
from test_offers import Cluster, G
from worlds import list_jobs

WHOLE = {"cpu": 4000, "memory": 8 * G}


def told(c, who):
    return next(each for each in list_frameworks(c.state, c.now) if each["id"] == who)


def test_what_a_framework_has_and_does_not_answer():
    c = Cluster(Queue("web"))
    c.join("spark", "web", user="ada", principal="spark-ada")
    (offer,) = c.offers()
    c.launch(offer, "t1", refuse=0.0)
    (rest,) = c.offers(1.0)
    found = told(c, "spark")
    assert (found["roles"], found["status"], found["user"]) == (["web"], "connected", "ada")
    assert (found["tasks"], found["used"]) == (1, {"cpu": 1000, "memory": G})
    assert (found["offers"], found["offered"], found["offered_since"]) == (1, rest.amount, 1.0)
    assert found["text"] == "has not answered 1 offer of 3 cpu and 7Gi memory on n0 for 0 s"
    web = next(queue for queue in list_queues(c.state) if queue["name"] == "web")
    assert (web["used"], web["offered"]) == (WHOLE, rest.amount)
    lines = printed(queue_table(list_queues(c.state), 100), width=100).splitlines()
    assert "offered" in lines[0]
    assert any(line.split()[:1] == ["spark"] for line in lines)
    assert "spark" in printed(framework_table([found]), width=80)
    text = metrics.exposition(
        list_queues(c.state), [{**each, "version": None, "cards": []} for each in list_nodes(c.state)]
    ).decode()
    assert 'fairlead_queue_offered{queue="web",resource="cpu"} 3.0\n' in text


def names(c, status="open"):
    """The queues that are told of with a status; no row is told of without the one above it."""
    found = list_queues(c.state)
    there = {queue["name"] for queue in found}
    assert {name.rpartition("/")[0] or "/" for name in there - {"/"}} <= there
    return [queue["name"] for queue in found if queue["status"] == status]


@pytest.mark.parametrize("more", [[], [Queue("*")]], ids=["", "where each person has a queue"])
def test_a_role_is_told_of_while_somebody_has_anything_of_it_with_all_above_it(more):
    c = Cluster(Queue("lab"), *more)
    c.join("spark", "org/web/front")
    role = ["org", "org/web", "org/web/front", "org/web/front/.", "org/web/front/./1"]
    assert names(c) == ["/", "lab", *role]
    c.launch(c.offers()[0], "t1")
    c.ask("tear_down", "spark")
    assert names(c) == ["/", "lab", *role], "its task still runs"
    c.end(1)
    assert names(c) == ["/", "lab"]
    assert fair_shares(c.state).steady[c.state.tree.rows["lab"]].tolist() == list(WHOLE.values())
    (parcel,) = frameworks.reserve(c.state, "n0", [Move({"cpu": 1000}, mark="m", role="org/web")], c.now)
    c.happen(parcel)
    assert names(c) == ["/", "lab", "org", "org/web", "org/web/.", "org/web/./reserved"]
    c.happen(*frameworks.reserve(c.state, "n0", [Move({"cpu": 1000}, of="m")], c.now))
    c.happen(admission.configure(c.state, [Queue(ROOT), Queue("lab", weight=2.0), *more], c.state.settings, c.now))
    assert names(c) == ["/", "lab"]
    c.join("flink", "org/web/front")
    assert names(c) == ["/", "lab", *role], "and never was any of it removed"
    assert names(c, "removed") == []


def test_a_queue_is_removed_that_was_declared_and_has_something():
    c = Cluster(Queue("lab"), Queue("org/web"))
    c.happen(*admission.submit(c.state, [Job("org/web", {"cpu": 1000})], c.now))
    c.happen(admission.configure(c.state, [Queue(ROOT), Queue("lab")], c.state.settings, c.now))
    assert (names(c), names(c, "removed")) == (["/", "lab"], ["org", "org/web"])
    c.join("spark", "org/web")
    assert names(c) == ["/", "lab", "org", "org/web", "org/web/.", "org/web/./1", "org/web/./jobs"]
    c.ask("tear_down", "spark")
    assert (names(c), names(c, "removed")) == (["/", "lab"], ["org", "org/web"])


def test_the_jobs_of_a_role_are_one_queue_over_time():
    """They go on in another leaf when a framework comes, which is no queue more to those whose jobs they are."""
    c = Cluster(Queue("a"), Queue("b"))
    c.happen(*admission.submit(c.state, [Job(queue, {"cpu": 1000}, 100) for queue in "ab"], c.now))
    c.decide()
    c.now = 100.0
    c.join("spark", "a")
    c.happen(*admission.submit(c.state, [Job("a/./jobs", {"cpu": 1000})], c.now))
    assert {job["queue"] for job in list_jobs(c.state)["jobs"]} == {"a", "b"}
    c.now = 200.0
    found = audit_history(new_state(), c.facts, 0.0, 200.0, 0)
    assert sorted((queue["name"], queue["worked"]) for queue in found["queues"]) == [("a", 200.0), ("b", 200.0)]


@pytest.mark.parametrize(("nodes", "tasks", "cpu", "on"), [(1, 1, 4000, "n0"), (1, 2, 2000, "n0"), (2, 4, 2000, "n0 and n1")])
def test_room_in_offers_of_several_is_told_and_no_start_is_expected_now(nodes, tasks, cpu, on):
    c = Cluster(Queue("web"), Queue("org"), Queue("lab"), nodes=nodes, offer_most=50.0)
    c.join("spark", "web")
    c.join("flink", "org")
    assert len(c.offers()) == 2
    c.happen(*admission.submit(c.state, [Job("lab", {"cpu": cpu}, tasks, gang=tasks > 1)], c.now))
    c.decide()
    text = explain(c.state, 1, c.now)["text"]
    assert text.endswith(f"; the open offers on {on} to frameworks of org and web would be enough")
    when = outlook(c.state, 1, c.now)
    assert when.text.startswith("at once, when frameworks answer")
    assert (when.earliest, when.latest) == (0.0, None)


def test_why_says_how_much_of_what_a_queue_uses_is_only_offered():
    c = Cluster(Queue("web", limit={"cpu": 3000}))
    c.join("spark", "web")
    c.offers()
    c.happen(*admission.submit(c.state, [Job("web/./jobs", {"cpu": 1000})], c.now))
    said = "queue web is limited to 3 cpu: it uses 3, of which 3 is in open offers; the job needs 1 more"
    assert explain(c.state, 1, c.now)["text"] == said


def test_who_keeps_others_waiting_hoards():
    c = Cluster(Queue("web"), Queue("lab"))
    c.join("spark", "web")
    c.offers()
    c.happen(*admission.submit(c.state, [Job("lab", {"cpu": 1000})], c.now))
    c.decide(5.0)
    assert not told(c, "spark")["hoards"], "it has had little time"
    assert explain(c.state, 1, c.now)["text"].endswith("; the open offers on n0 to frameworks of web would be enough")
    c.decide(10.0)
    assert told(c, "spark")["hoards"]
    assert told(c, "spark")["text"].endswith("for 15 s; others wait for what is offered: it hoards")
    c.happen(*[fact for fact in [admission.cancel(c.state, 1, None, c.now)] if fact])
    assert not told(c, "spark")["hoards"], "nobody else wants it"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("refused", "it refused what is left on n0"),
        ("refused one", "it refused what is left on n0; n1 has nothing left"),
        ("full", "no node has enough left for an offer"),
        ("limit", "queue web is at its limit of 1 cpu"),
        ("suppressed", "wants no offers: it has suppressed all of its roles"),
        ("away", "its connection is lost: its tasks are stopped in 20 s, unless it comes back"),
    ],
)
def test_why_a_framework_gets_nothing(how, said):
    limit = {"cpu": 1000, "memory": G} if how == "limit" else {}
    c = Cluster(Queue("web", limit=limit), Queue("lab"), nodes=2 if how == "refused one" else 1)
    c.join("spark", "web", failover_timeout=30.0)
    offers = {offer.node: offer for offer in c.offers()}
    if how == "refused one":
        c.launch(offers[1], "all", demand=WHOLE, refuse=0.0)
    if how in ("refused", "refused one"):
        c.ask("decline", "spark", [offers[0].id], 100.0)
    elif how == "full":
        c.launch(offers[0], "all", demand=WHOLE)
    elif how == "limit":
        c.launch(offers[0], "all", demand={"cpu": 1000, "memory": G})
    elif how == "suppressed":
        c.ask("decline", "spark", [offers[0].id], 0.0)
        c.ask("suppress", "spark", [])
    else:
        c.happen(*frameworks.disconnect(c.state, "spark", c.now))
    assert c.offers(10.0) == []
    assert told(c, "spark")["text"] == said


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("not lent", "all free resources are quota that others do not lend, or held for claims of others"),
        ("beyond its limit", "no node has enough left for an offer"),
        ("most", "its open offers have reached the maximum per framework"),
    ],
)
def test_why_a_framework_gets_nothing_is_what_the_scheduler_goes_by(how, said):
    lend = {"cpu": 0, "memory": 0} if how == "not lent" else {}
    limit = {"cpu": 1000, "memory": G} if how == "beyond its limit" else {}
    c = Cluster(Queue("web", limit=limit, offer_most=1e-9 if how == "most" else None), Queue("lab", guarantee=WHOLE, lend=lend))
    c.join("spark", "web", revocable=how == "beyond its limit")
    while offers := c.offers(1.0):
        for offer in offers:
            c.launch(offer, f"t{offer.id}", demand=offer.amount)
    assert c.used("web") == (WHOLE if how == "beyond its limit" else {})
    assert told(c, "spark")["text"] == said
