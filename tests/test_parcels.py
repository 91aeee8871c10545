"""Room of nodes that is set apart for roles: who is offered it, what it counts for, and what becomes of it."""

import pytest

from fairlead.model.documents import DocumentError, read_configuration
from fairlead.model.specs import ROOT, Job, Node, Queue
from fairlead.policies.registry import find_policy
from fairlead.scheduler import admission
from fairlead.scheduler.effects import apply
from fairlead.scheduler.facts import Contradiction, NodeJoined, NodeLost, ResourcesReserved, TasksPlaced
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.frameworks.reservations import Move, Moves
from fairlead.scheduler.reports.listings import list_queues
from fairlead.scheduler.snapshot import copy_of
from test_offers import WHOLE, Cluster, G
from worlds import check_invariants, replay

HALF = {"cpu": 2000, "memory": 4 * G}


def answer(cluster, offer, *asked, refuse=0.0, ids=None):
    """Accept an offer; what is refused, by its reason."""
    facts, refused = frameworks.accept(cluster.state, offer.framework, ids or [offer.id], asked, refuse, cluster.now)
    cluster.happen(*facts)
    return [str(each) for each in refused]


def reserve(role, amount=HALF, mark=None):
    return Moves(0, [Move(amount, mark=mark or role, role=role)])


def task(name, apart=None, **demand):
    return Job("", demand or {"cpu": 1000}, task=name, apart=apart or {})


@pytest.fixture
def c():
    """Half a node is set apart for role web; nobody is offered anything."""
    cluster = Cluster(Queue("web"), Queue("batch"), Queue("jobs"))
    cluster.join("f", "web", failover_timeout=1e6)
    (offer,) = cluster.offers()
    assert answer(cluster, offer, reserve("web")) == []
    return cluster


def test_what_is_set_apart_counts_for_its_role_and_is_offered_to_nobody_else(c):
    assert c.used("web") == HALF
    c.ask("suppress", "f", [])
    c.join("g", "batch")
    (offer,) = c.offers()
    assert (offer.framework, offer.amount, offer.apart) == ("g", HALF, {})
    c.happen(*admission.submit(c.state, [Job("jobs", {"cpu": 3000})], c.now))
    assert not [fact for fact in c.decide() if isinstance(fact, TasksPlaced)], "nor do jobs have it"
    c.ask("revive", "f", [])
    (offer,) = c.offers()
    assert (offer.framework, offer.amount, offer.apart) == ("f", {}, {"web": HALF}), "by itself, where there is no more"
    assert (c.used("web"), c.offered("web")) == (HALF, {}), "it counts once"


def test_tasks_run_in_it_and_give_it_back_to_their_role(c):
    (offer,) = c.offers()
    assert (offer.amount, offer.apart) == (HALF, {"web": HALF})
    inside = task("t", {"web": {"cpu": 2000}}, cpu=3000)
    too_much = task("u", {"web": {"cpu": 1000}}, cpu=1000)
    assert answer(c, offer, inside, too_much) == ["task 'u' needs cpu=1; the reservation that it names has memory=4Gi left"]
    assert c.used("web") == {"cpu": 3000, "memory": 4 * G}
    (offer,) = c.offers()
    assert (offer.amount, offer.apart) == ({"cpu": 1000, "memory": 4 * G}, {"web": {"memory": 4 * G}})
    c.ask("decline", "f", [offer.id], 100.0)
    assert c.offers(1.0) == []
    c.end(c.job("f", "t"))
    (offer,) = c.offers()
    assert (offer.amount, offer.apart) == (HALF, {"web": HALF}), "more than it refused"


def test_what_was_refused_of_it_is_not_offered_again_for_a_while(c):
    c.join("g", "batch")
    offers = {each.framework: each for each in c.offers()}
    assert (offers["g"].amount, offers["f"].apart) == (HALF, {"web": HALF})
    c.ask("decline", "f", [offers["f"].id], 10.0)
    assert c.offers(9.0) == []
    (offer,) = c.offers(1.0)
    assert (offer.framework, offer.amount, offer.apart) == ("f", {}, {"web": HALF})
    c.ask("decline", "f", [offer.id], 1e6)
    c.ask("revive", "f", ["web"])
    assert [each.apart for each in c.offers()] == [{"web": HALF}]


def test_roles_below_have_it_too_each_in_turn(c):
    c.ask("suppress", "f", [])
    for name in ("g", "h"):
        c.join(name, f"web/{name}")
    c.join("i", "website")
    got = []
    for _ in range(4):
        offers = [each for each in c.offers(10.0) if each.apart]
        got += [each.framework for each in offers]
        for each in offers:
            c.ask("decline", each.framework, [each.id], 0.0)
    assert set(got) == {"g", "h"}


def test_it_can_be_given_back_and_used_in_the_same_answer(c):
    (offer,) = c.offers()
    back = Moves(1, [Move(HALF, of="web")])
    assert answer(c, offer, back, task("t", cpu=4000)) == []
    assert (c.used("web"), c.state.frameworks.role_reservations) == ({"cpu": 4000}, {})
    assert [each.amount for each in c.offers()] == [{"memory": 8 * G}]


def test_moves_are_made_whole_and_in_order(c):
    (offer,) = c.offers()
    two = Moves(3, [Move({"cpu": 1000}, mark="web", role="web"), Move({"gpu": 1}, mark="web", role="web")])
    assert answer(c, offer, two, Moves(4, [Move({"cpu": 3000}, of="web")])) == ["the offers contain less than that"] * 2
    assert c.used("web") == HALF


def test_a_volume_is_made_used_and_destroyed_as_a_whole(c):
    (offer,) = c.offers()
    make = Moves(0, [Move({"memory": G}, of="web", mark="v", role="web", said="here", whole=True)])
    again = make._replace(number=1)
    assert answer(c, offer, make, again) == ["the volume exists already, or existed before this call"]
    (offer,) = c.offers()
    assert offer.apart == {"web": {"cpu": 2000, "memory": 3 * G}, "v": {"memory": G}}
    part = Moves(0, [Move({"memory": 1}, of="v", mark="web", role="web")])
    other = task("s", {"v": {"memory": 1}}, cpu=1000, memory=1)
    user = task("t", {"v": {"memory": G}}, cpu=1000, memory=G)
    assert answer(c, offer, part, other, user) == [
        "a volume is destroyed as a whole",
        "task 's' needs cpu=1 memory=1; a volume is indivisible, and this one has memory=1Gi",
    ]
    (offer,) = c.offers()
    assert "v" not in offer.apart, "one task at a time has it"
    c.end(c.job("f", "t"))
    c.ask("revive", "f", [])
    ids = [each.id for each in (offer, *c.offers())]
    destroy = Moves(0, [Move({"memory": G}, of="v", mark="web", role="web")])
    assert answer(c, offer, destroy, ids=ids) == []
    assert {mark: each.amount for mark, each in c.state.frameworks.role_reservations["n0"].items()} == {"web": HALF}


def test_a_node_that_is_lost_comes_back_with_what_is_set_apart_on_it(c):
    (offer,) = c.offers()
    answer(c, offer, task("t", {"web": {"cpu": 2000}}, cpu=2000))
    c.happen(NodeLost(at=c.now, node="n0"))
    assert c.used(ROOT) == {}
    c.happen(NodeJoined(at=c.now, node=Node("n0", WHOLE)))
    assert c.used("web") == HALF
    c.happen(NodeLost(at=c.now, node="n0"), NodeJoined(at=c.now, node=Node("n0", {"cpu": 1000, "memory": 8 * G})))
    assert c.used("web") == {}
    assert all("web" not in each.apart for each in c.offers()), "there is too little for it now"
    c.happen(NodeJoined(at=c.now, node=Node("n0", WHOLE)))
    assert c.used("web") == HALF


def test_it_outlives_its_framework_and_the_scheduler(c):
    (offer,) = c.offers()
    answer(c, offer, task("t", {"web": {"cpu": 2000}}, cpu=2000))
    job = c.job("f", "t")
    c.ask("tear_down", "f")
    c.end(job)
    assert c.used("web") == HALF
    state = replay(c.facts)
    check_invariants(state)
    c.state = state
    c.join("g", "web")
    assert [each.apart for each in c.offers()] == [{"web": HALF}]
    (web,) = [queue for queue in list_queues(state) if queue["name"] == "web/./reserved"]
    assert web["used"] == HALF


def test_a_limit_bounds_what_is_set_apart_with_what_is_offered():
    c = Cluster(Queue("web", limit={"cpu": 3000}))
    c.join("f", "web")
    (offer,) = c.offers()
    answer(c, offer, reserve("web", {"cpu": 2000}))
    (offer,) = c.offers()
    assert (offer.amount["cpu"], offer.apart) == (1000, {"web": {"cpu": 2000}})


def test_what_cannot_be_set_apart_is_a_contradiction(c):
    for fact in (
        {"node": 0, "amount": {"cpu": 3000}, "mark": "x", "role": "web"},
        {"node": 0, "amount": {"cpu": 3000}, "of": "web"},
        {"node": 0, "amount": {"cpu": 1}, "of": "nothing"},
        {"node": 7, "amount": {"cpu": 1}, "mark": "x", "role": "web"},
    ):
        with pytest.raises(Contradiction):
            apply(copy_of(c.state), ResourcesReserved(at=c.now, **fact))


class TestPorts:
    """Ports by number: each is one task's, or one offer's, at a time."""

    def task(self, name, *ports):
        return Job("", {"cpu": 500}, task=name, ports=[*ports])

    def test_tasks_take_some_and_the_rest_is_offered_on(self):
        c = Cluster(ports=[(100, 109), (200, 200)])
        c.join("f")
        (offer,) = c.offers()
        assert offer.ports == [(100, 109), (200, 200)]
        tasks = self.task("a", (101, 102)), self.task("b", (102, 103)), self.task("c", (200, 201)), self.task("d")
        refused = answer(c, offer, *tasks)
        assert refused[0].endswith("ports 102-102 are not offered; offered: 100-100,103-109,200-200")
        assert len(refused) == 2
        (offer,) = c.offers()
        assert offer.ports == [(100, 100), (103, 109), (200, 200)]
        c.end(c.job("f", "a"))
        (more,) = c.offers()
        assert more.ports == [(101, 102)], "what came back"
        c.ask("decline", "f", [offer.id, more.id], 0.0)
        assert [each.ports for each in c.offers()] == [[(100, 109), (200, 200)]]
        assert replay(c.facts).frameworks.offered_ports == c.state.frameworks.offered_ports

    def test_a_part_of_the_cluster_is_offered_with_a_part_of_its_ports(self):
        c = Cluster(ports=[(100, 107)], offer_most=25.0)
        c.join("f")
        c.join("g")
        assert [each.ports for each in c.offers()] == [[(100, 101)], [(102, 103)]]

    def test_a_task_keeps_its_ports_when_its_framework_is_gone_and_gives_them_back_with_its_node(self):
        c = Cluster(ports=[(100, 101)])
        c.join("f")
        (offer,) = c.offers()
        assert answer(c, offer, self.task("a", (100, 100))) == []
        c.ask("tear_down", "f")
        c.join("g")
        assert [each.ports for each in c.offers()] == [[(101, 101)]]
        c.happen(NodeLost(at=c.now, node="n0"))
        assert c.state.frameworks.ports == c.state.frameworks.offered_ports == {}


@pytest.mark.parametrize(
    ("said", "ports"),
    [('"31000-32000"', [(31000, 32000)]), ('"80, 443-444"', [(80, 80), (443, 444)]), ('""', []), (None, [(31000, 32000)])],
)
def test_ports_are_configured(tmp_path, said, ports):
    path = tmp_path / "fairlead.toml"
    path.write_text("[scheduler]\n" + (f"ports = {said}\n" if said is not None else ""))
    assert read_configuration(path, find_policy).settings.ports == ports


@pytest.mark.parametrize("said", ['"2-1"', '"0-3"', '"5-70000"', '"1-5,5-9"', '"many"', "80", '","'])
def test_what_are_no_ports_is_said(tmp_path, said):
    path = tmp_path / "fairlead.toml"
    path.write_text(f"[scheduler]\nports = {said}\n")
    with pytest.raises(DocumentError, match='is not a list of ports: write "31000-32000"'):
        read_configuration(path, find_policy)


def test_what_is_reserved_and_what_is_free_make_one_offer_also_where_the_latter_was_refused_by_itself():
    """As in Mesos, a refusal holds for all that it contains, and not for more."""
    c = Cluster(Queue("web"))
    c.join("f", "web")
    (offer,) = c.offers()
    c.ask("decline", "f", [offer.id], 60.0)
    c.happen(*frameworks.reserve(c.state, "n0", [Move({"cpu": 1000}, mark="m", role="web")], c.now))
    (both,) = c.offers()
    assert (both.amount, both.apart) == ({"cpu": 3000, "memory": 8 * G}, {"m": {"cpu": 1000}})
    c.ask("decline", "f", [both.id], 60.0)
    assert c.offers() == []


def test_what_goes_with_reservations_is_within_limits():
    c = Cluster(Queue("web", limit={"cpu": 2500}), nodes=2)
    c.join("f", "web")
    while offers := c.offers():
        c.ask("decline", "f", [each.id for each in offers], 60.0)
    for k in range(2):
        c.happen(*frameworks.reserve(c.state, f"n{k}", [Move({"cpu": 1000}, mark=f"m{k}", role="web")], c.now))
    made = c.offers()
    assert sum(each.amount.get("cpu", 0) for each in made) == 500
    assert c.used("web")["cpu"] == 2500
