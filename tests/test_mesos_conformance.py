"""What Mesos' allocator decides: each conformance case under its id, played to the state machine under the policy `mesos`.

The cases say what Mesos' own tests do (tests/../shared/data/conformance/mesos.json); where fairlead differs the test says so. The
table of reconciliation answers is the wire's.
"""

import json
import os
from math import inf
from pathlib import Path

import numpy as np
import pytest

from fairlead.model.specs import ROOT, Framework, Job, Node, Queue, Settings, ancestors, path_to_root
from fairlead.scheduler import admission
from fairlead.scheduler.decide import decide, run_cycle
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    FrameworkGone,
    FrameworkSubscribed,
    NodeJoined,
    NodeLost,
    OffersMade,
    OffersRescinded,
    RolesRevived,
    RolesSuppressed,
)
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.frameworks.reservations import Move, Moves
from worlds import check_invariants

DATA = Path(os.environ.get("FAIRLEAD_DATA", Path(__file__).parents[2] / "shared" / "data"))
M = 2**20
NAMES = {"cpus": ("cpu", 1000), "mem": ("memory", M), "disk": ("disk", M), "gpus": ("gpu", 1000), "ports": ("ports", 1)}


def cases():
    path = DATA / "conformance" / "mesos.json"
    if not path.exists():
        pytest.skip(f"{path} is not there: set FAIRLEAD_DATA", allow_module_level=True)
    return {case["id"]: case for case in json.loads(path.read_text())}


CASES = cases()
PLAYED = [case for case in CASES if case.startswith("mesos-sorter-") and "ops" in CASES[case]["setup"]]


def quantities(resources):
    """Mesos' resources as fairlead has them, from the keys and sizes that the cases use."""
    return {NAMES[name][0]: round(amount * NAMES[name][1]) for name, amount in resources.items()}


class Sorter:
    """Mesos' sorter: clients are roles, and what they are allocated is written into the tables, as no offer could be made so."""

    def __init__(self):
        self.state, self.weights, self.amounts = new_state(), {}, {}
        self.configure()

    def configure(self):
        names = {path for name in self.weights for path in path_to_root(name)} | {ROOT}
        queues = [Queue(name, weight=self.weights.get(name, 1.0), policy="" if name else "mesos") for name in sorted(names)]
        apply(self.state, admission.configure(self.state, queues, Settings(), 0.0))

    def play(self, op):
        client, kind = op.get("client"), op["op"]
        if kind == "add_agent":
            apply(self.state, NodeJoined(at=0.0, node=Node(op["agent"], quantities(op["total"]))))
            self.state.nodes.free[self.state.cluster.rows[op["agent"]]] = 0  # it counts, and nothing of it is offered
            self.state.order.invalidate()
        elif kind == "remove_agent":
            apply(self.state, NodeLost(at=0.0, node=op["agent"]))
        elif kind == "add":
            apply(
                self.state,
                FrameworkSubscribed(at=0.0, id=client, framework=Framework(client, roles=[client]), suppressed=[client]),
            )
            self.amounts[client] = {}
        elif kind in ("activate", "deactivate"):
            change = RolesRevived if kind == "activate" else RolesSuppressed
            apply(self.state, change(at=0.0, id=client, roles=[client]))
        elif kind == "remove":
            self.change(client, {name: -amount for name, amount in self.amounts.pop(client).items()})
            apply(self.state, FrameworkGone(at=0.0, id=client))
        elif kind == "weight":
            self.weights[op["path"]] = op["weight"]
            self.configure()
        elif kind in ("allocated", "unallocated"):
            sign = 1 if kind == "allocated" else -1
            self.allocate(client, {n: sign * amount for n, amount in quantities(op["resources"]).items()}, sign > 0)
        elif kind == "update":
            old, new = quantities(op["old"]), quantities(op["new"])
            self.allocate(client, {name: new[name] - old[name] for name in old}, False)
        elif kind == "expect_order":
            assert self.order() == op["order"]
        elif kind == "expect_count":
            assert len(self.state.frameworks.members) == op["value"]
        else:
            assert kind == "expect_contains"
            assert (client in self.state.frameworks.members) == op["value"]

    def allocate(self, client, amount, counts=True):
        for name, more in amount.items():
            self.amounts[client][name] = self.amounts[client].get(name, 0) + more
        self.change(client, amount, int(counts))

    def change(self, client, amount, times=0):
        leaf = self.state.frameworks.members[client].leaves[client]
        for path in path_to_root(leaf):
            row = self.state.tree.rows[path]
            self.state.queues.allocations[row] += times
            for name, more in amount.items():
                self.state.queues.used[row, self.state.resources.index(name)] += more
        self.state.order.invalidate()

    def order(self):
        """Who is tried one after the other, nobody being given anything."""
        cycle, b = run_cycle(self.state), self.state.groups
        waiting = np.flatnonzero(b.is_framework[: b.n])
        leaves = b.leaf[waiting[np.argsort(cycle.stop_order[waiting])]].tolist()
        return [self.state.frameworks.at[self.state.tree.names[leaf]][1] for leaf in leaves]


@pytest.mark.parametrize("case", PLAYED)
def test_a_sorter(case):
    sorter = Sorter()
    for op in CASES[case]["setup"]["ops"]:
        sorter.play(op)


def shares_of(total, *clients):
    """A sorter with one agent, and clients that are allocated so much: in turn, a letter each."""
    sorter = Sorter()
    sorter.play({"op": "add_agent", "agent": "s", "total": total})
    for client, resources in clients:
        sorter.play({"op": "add", "client": client})
        sorter.play({"op": "activate", "client": client})
        sorter.play({"op": "allocated", "client": client, "resources": resources})
    return sorter


def case_sorter_RevocableResources():
    """What is revocable is as any other: it counts in the total and in the share."""
    sorter = shares_of({"cpus": 10 + 10, "mem": 100}, ("a", {"cpus": 2, "mem": 1}), ("b", {"cpus": 1 + 9, "mem": 1}))
    assert sorter.order() == ["a", "b"]


def case_sorter_SameDominantSharedResourcesAcrossClients():
    """Nothing is shared between frameworks here; of what is, each is charged the whole, and it is in the total once."""
    total = {"cpus": 100, "mem": 100, "disk": 100 + 900}
    sorter = shares_of(total, ("b", {"cpus": 5, "mem": 20, "disk": 900}), ("c", {"cpus": 10, "mem": 6, "disk": 900}))
    assert sorter.order() == ["b", "c"]
    sorter.play({"op": "add", "client": "a"})
    sorter.play({"op": "activate", "client": "a"})
    sorter.play({"op": "allocated", "client": "a", "resources": {"cpus": 50, "mem": 40, "disk": 900}})
    assert sorter.order() == ["a", "b", "c"]


def case_sorter_SharedResourcesUnallocated():
    """Three copies are charged once, and no longer when the last is given back."""
    total = {"cpus": 100, "mem": 100, "disk": 900 + 100}
    sorter = shares_of(total, ("a", {"cpus": 2, "mem": 2, "disk": 100}), ("b", {"cpus": 6, "mem": 6}))
    assert sorter.order() == ["b", "a"]
    sorter.play({"op": "unallocated", "client": "a", "resources": {}})
    assert sorter.order() == ["b", "a"]
    sorter.play({"op": "unallocated", "client": "a", "resources": {"disk": 100}})
    assert sorter.order() == ["a", "b"]


class Allocator:
    """Mesos' hierarchical allocator: agents and frameworks, and what each is offered when something has happened.

    Offers are made whenever something happens, not once in an interval; an interval is a second here.
    """

    def __init__(self, *queues):
        self.state, self.now, self.queues = new_state(), 0.0, {ROOT: Queue(ROOT, policy="mesos")}
        self.open = {}
        self.quota(*queues)

    def quota(self, *queues):
        self.queues |= {queue.name: queue for queue in queues}
        settings = Settings(offer_timeout=inf)
        self.happen(admission.configure(self.state, list(self.queues.values()), settings, self.now))

    def happen(self, *facts):
        for fact in facts:
            apply(self.state, fact)
        check_invariants(self.state)

    def offered(self):
        """What is offered now: (agent, framework, resources as fairlead has them)."""
        found = []
        for fact in decide(self.state, self.now).facts:
            self.happen(fact)
            for offer in fact.offers if isinstance(fact, OffersMade) else []:
                agent = self.state.cluster.specs[offer.node].name
                self.open[offer.id] = offer
                found.append((agent, offer.framework, offer.amount))
        return found

    def agent(self, name, **resources):
        self.happen(NodeJoined(at=self.now, node=Node(name, quantities(resources))))
        return self.offered()

    def framework(self, name, role):
        self.happen(*frameworks.subscribe(self.state, Framework(name, roles=[role]), name, [], self.now))
        return self.offered()

    def decline(self, seconds, *agents):
        """Refuse what is open of agents, all where none is named."""
        for offer in [*self.open.values()]:
            if not agents or self.state.cluster.specs[offer.node].name in agents:
                del self.open[offer.id]
                self.happen(*frameworks.decline(self.state, offer.framework, [offer.id], seconds, self.now))

    def launch(self, agent, seconds=0.0, **resources):
        """Run a task in what is offered of an agent; the rest is refused for a time."""
        offer = next(o for o in self.open.values() if self.state.cluster.specs[o.node].name == agent)
        del self.open[offer.id]
        job = Job("", quantities(resources), task=f"on {agent}")
        facts, refused = frameworks.accept(self.state, offer.framework, [offer.id], [job], seconds, self.now)
        assert not refused
        self.happen(*facts)

    def after(self, seconds):
        self.now += seconds
        return self.offered()


def who(offers):
    return [(agent, framework) for agent, framework, _ in offers]


def unreserved(a, **gpus):
    """The events of UnreservedDRF."""
    assert a.agent("agent1", cpus=2, mem=1024, **gpus) == []
    assert who(a.framework("framework1", "role1")) == [("agent1", "framework1")]
    assert a.framework("framework2", "role2") == []
    assert who(a.agent("agent2", cpus=1, mem=512)) == [("agent2", "framework2")]
    assert who(a.agent("agent3", cpus=3, mem=2048)) == [("agent3", "framework2")]
    assert a.framework("framework3", "role1") == []
    assert who(a.agent("agent4", cpus=4, mem=4096)) == [("agent4", "framework3")]
    assert a.framework("framework4", "role1") == []
    assert who(a.agent("agent5", cpus=1, mem=512)) == [("agent5", "framework2")]


def case_alloc_UnreservedDRF():
    unreserved(Allocator())


def case_alloc_DRFWithFairnessExclusion():
    """What is not to count weighs so much that no share of it is the largest."""
    unreserved(Allocator(Queue("role1", weight={"gpu": 1e9}), Queue("role2", weight={"gpu": 1e9})), gpus=1)


def case_alloc_SameShareFairness():
    a = Allocator()
    a.framework("framework1", "*")
    a.framework("framework2", "*")
    offers = a.agent("agent", cpus=2, mem=1024)
    for _ in range(9):
        a.decline(0.0)
        offers += a.after(1.0)
    assert sorted(who(offers)) == [("agent", "framework1")] * 5 + [("agent", "framework2")] * 5


def case_alloc_SmallOfferFilterTimeout():
    """Mesos keeps a filter until the next allocation at least; here that is made at once, and the filter holds in it."""
    a = Allocator()
    a.framework("framework1", "role1")
    a.agent("agent1", cpus=1, mem=512)
    a.launch("agent1", cpus=1, mem=512)
    a.framework("framework2", "role2")
    assert who(a.agent("agent2", cpus=1, mem=512)) == [("agent2", "framework2")]
    a.decline(1.0)
    assert who(a.offered()) == [("agent2", "framework1")]


def case_alloc_UpdateWeight():
    a = Allocator()
    for k in range(6):
        a.agent(f"agent{k}", cpus=2, mem=1024)
    a.framework("framework1", "role1")
    a.framework("framework2", "role2")
    a.decline(0.0)
    counts = [agents_each(a.offered())]
    a.quota(Queue("role2", weight=2.0))
    assert a.offered() == [], "a weight alone makes no offers"
    a.decline(0.0)
    counts.append(agents_each(a.offered()))
    a.quota(Queue("role3", weight=3.0))
    a.framework("framework3", "role3")
    a.decline(0.0)
    counts.append(agents_each(a.offered()))
    assert counts == [[3, 3], [2, 4], [1, 2, 3]]


def agents_each(offers):
    names = [framework for _, framework, _ in offers]
    return [names.count(name) for name in sorted({*names})]


def quota(name, **resources):
    """A role that is guaranteed so much, and has no more."""
    return Queue(name, guarantee=quantities(resources), limit=quantities(resources))


def case_alloc_QuotaProvidesGuarantee():
    a = Allocator(quota("quota-role", cpus=2, mem=1024))
    a.framework("framework1", "quota-role")
    a.framework("framework2", "no-quota-role")
    assert who(a.agent("agent1", cpus=1, mem=512)) == [("agent1", "framework1")]
    assert who(a.agent("agent2", cpus=1, mem=512)) == [("agent2", "framework1")]
    a.decline(2.0, "agent2")
    assert a.offered() == []
    assert a.after(1.0) == [], "what is guaranteed is held back"
    assert who(a.after(1.0)) == [("agent2", "framework1")]


def case_alloc_QuotaAllocationGranularity():
    a = Allocator(quota("quota-role", cpus=0.5, mem=200))
    a.framework("framework1", "quota-role")
    assert a.agent("agent", cpus=1, mem=512) == [("agent", "framework1", quantities({"cpus": 0.5, "mem": 200}))]
    assert a.framework("framework2", "no-quota-role") == [("agent", "framework2", quantities({"cpus": 0.5, "mem": 312}))]


def case_alloc_QuotaRoleAllocateNonQuotaResource():
    """Ports are a number here: how many there are."""
    a = Allocator(quota("quota-role-1", cpus=2))
    a.framework("framework1", "quota-role-1")
    whole = {"cpus": 1, "mem": 1024, "ports": 1001}
    assert a.agent("agent1", **whole) == [("agent1", "framework1", quantities(whole))]
    a.quota(quota("quota-role-2", mem=1024))
    assert a.agent("agent2", **whole) == [("agent2", "framework1", quantities({"cpus": 1, "ports": 1001}))]
    ((agent, framework, third),) = a.agent("agent3", **whole)[:1]
    assert framework == "framework1"
    if agent == "agent3":
        assert third == quantities({"mem": 1024, "ports": 1001})
    else:  # the memory that may be had is offered where it is, in an order of agents that is as good as random
        assert (agent, third) == ("agent2", quantities({"mem": 1024}))


def case_alloc_QuotaAgainstStarvation():
    a = Allocator()
    a.framework("framework1", "role1")
    assert who(a.agent("agent1", cpus=1, mem=512)) == [("agent1", "framework1")]
    a.launch("agent1", cpus=1, mem=512)
    a.framework("framework2", "role2")
    assert who(a.agent("agent2", cpus=1, mem=512)) == [("agent2", "framework2")]
    a.decline(0.0)
    assert who(a.after(1.0)) == [("agent2", "framework2")], "who refuses for no time is asked again and again"
    a.decline(0.0)
    a.quota(quota("role1", cpus=2, mem=1024))
    assert who(a.after(1.0)) == [("agent2", "framework1")]


def case_alloc_ReservationWithinQuota():
    """What is reserved for the role counts as what it runs elsewhere; a task that runs in it counts once."""
    a = Allocator(quota("quota-role", cpus=2, mem=256))
    a.framework("framework1", "quota-role")
    assert who(a.agent("agent1", cpus=8, mem=256)) == [("agent1", "framework1")]
    memory = quantities({"mem": 256})
    offer = a.open.popitem()[1]
    job = Job("", quantities({"cpus": 2, "mem": 256}), task="t", apart={"reserved": memory})
    asked = [Moves(0, [Move(memory, mark="reserved", role="quota-role")]), job]
    facts, refused = frameworks.accept(a.state, "framework1", [offer.id], asked, 0.0, a.now)
    assert not refused
    a.happen(*facts)
    assert a.framework("framework2", "no-quota-role") == [("agent1", "framework2", quantities({"cpus": 6}))]
    assert a.agent("agent2", cpus=4) == [("agent2", "framework2", quantities({"cpus": 4}))]


def case_alloc_DisproportionateQuotaVsAllocation():
    a = Allocator(quota("quota-role", cpus=4, mem=1024))
    a.framework("framework1", "quota-role")
    assert a.agent("agent1", cpus=2, mem=1024) == [("agent1", "framework1", quantities({"cpus": 2, "mem": 1024}))]
    assert a.agent("agent2", cpus=2, mem=1024) == [("agent2", "framework1", quantities({"cpus": 2}))]


def case_alloc_UpdateSlaveOversubscribedResources():
    """What an agent has beyond what it had is offered. Where it has less than is offered, the offers hold no longer: in Mesos the
    revocable part of them; here all of them, which are made anew.
    """
    a = Allocator()
    a.framework("framework1", "role1")
    a.agent("agent", cpus=100, mem=100, disk=100)
    more = [a.agent("agent", cpus=100 + revocable, mem=100, disk=100) for revocable in (10, 12)]
    assert more == [[("agent", "framework1", quantities({"cpus": cpus}))] for cpus in (10, 2)]
    a.happen(NodeJoined(at=a.now, node=Node("agent", quantities({"cpus": 105, "mem": 100, "disk": 100}))))
    rescinded, made = decide(a.state, a.now).facts
    assert (type(rescinded), rescinded.ids, rescinded.why) == (OffersRescinded, [*a.open], "node changed")
    assert [offer.amount for offer in made.offers] == [quantities({"cpus": 105, "mem": 100, "disk": 100})]


def case_alloc_RecoverOversubscribedResources():
    a = Allocator()
    a.framework("framework1", "role1")
    a.agent("agent", cpus=100 + 10, mem=100)
    a.launch("agent", cpus=110 - 6 - 2, mem=100)
    assert a.offered() == [("agent", "framework1", quantities({"cpus": 6 + 2}))]


def case_quota_ValidateLimitAgainstConsumed():
    """Who asks for less than is used is told what is; by force the limit holds for what comes, and offers are taken back."""
    a = Allocator()
    a.framework("framework1", "role1")
    a.agent("agent", cpus=3, mem=2048)
    a.launch("agent", cpus=2, mem=1024)
    assert who(a.offered()) == [("agent", "framework1")]
    a.decline(60.0)
    used = quantities({"cpus": 2, "mem": 1024})
    assert [frameworks.exceeded(a.state, "role1", quantities({"cpus": cpus})) for cpus in (1, 2)] == [used, None]
    a.after(61.0)
    a.quota(Queue("role1", limit=quantities({"cpus": 1})))
    (rescinded,) = decide(a.state, a.now).facts
    assert (type(rescinded), rescinded.ids, rescinded.why) == (OffersRescinded, [*a.open], "limit")


def case_role_validate():
    expected = CASES["mesos-role-validate"]["expected"]
    assert [role for role in expected["valid"] if frameworks.check_role(role)] == []
    assert [role for role in expected["invalid"] if not frameworks.check_role(role)] == []
    assert ancestors("a/b/c/d")[:-1] == expected["ancestors(a/b/c/d)"]
    assert ancestors("role")[:-1] == expected["ancestors(role)"]
    for text, roles in expected["parse"].items():
        found = [role for role in text.split(",") if role]
        assert roles == ("error" if any(map(frameworks.check_role, found)) else found)
    within = {f"{one} of {other}": other in ancestors(one) for one, other in ROLES_WITHIN}
    assert within == expected["strict_subrole"]


ROLES_WITHIN = [("foo/bar", "foo"), ("foo", "foo"), ("foobar", "foo")]
WRITTEN = {
    "mesos-" + name.removeprefix("case_").replace("_", "-"): case
    for name, case in [*globals().items()]
    if name.startswith("case_")
}
THE_WIRES = {"mesos-reconcile-table"}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_case(case):
    WRITTEN[case]()


def test_each_case_is_played():
    assert {*PLAYED, *WRITTEN, *THE_WIRES} == {*CASES}
