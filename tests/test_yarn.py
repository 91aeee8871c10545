"""YARN's fair scheduler read as it is: each conformance case under its id, and what queues do by its rules.

The cases say what YARN's own tests do (tests/../shared/data/conformance/yarn.json); where fairlead differs the test says so.
"""

import json
import os
import re
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.model.specs import ROOT, Job, Node, Placement, Queue, Settings
from fairlead.people.accounts import Person
from fairlead.people.placing import leaf_of
from fairlead.people.rules import Caller, Forbidden, Rules, check_submits, rules_of
from fairlead.scheduler import admission, snapshot
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Configured,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    SharesLooked,
)
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.preemption.claims import preempt_for_claims
from fairlead.scheduler.reports import fair_shares as fair_shares_module
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.reports.explain import explain
from fairlead.scheduler.reports.fair_shares import divide, fair_shares
from fairlead.scheduler.tables import FAIR_SHARE, GUARANTEE, NONE
from fairlead.service import metrics
from test_claims import Story
from worlds import placements

DATA = Path(os.environ.get("FAIRLEAD_DATA", Path(__file__).parents[2] / "shared" / "data"))
M = 2**20


def cases():
    path = DATA / "conformance" / "yarn.json"
    if not path.exists():
        pytest.skip(f"{path} is not there: set FAIRLEAD_DATA", allow_module_level=True)
    return {case["id"]: case for case in json.loads(path.read_text())}


CASES = cases()


def of(prefix):
    return pytest.mark.parametrize("case", [pytest.param(CASES[i], id=i) for i in CASES if i.startswith(prefix)])


class World:
    """A cluster of one node with queues; what is submitted is of this many megabytes and thousandths of a core."""

    def __init__(self, queues, memory, cores=0):
        self.state = new_state()
        self.happen(Configured(at=0.0, queues=queues, settings=Settings(keep_jobs=10)))
        self.join("n", memory, cores)

    def happen(self, *facts):
        for fact in facts:
            apply(self.state, fact)

    def join(self, name, memory, cores=0):
        self.happen(NodeJoined(at=0.0, node=Node(name, {"memory": memory * M, "cpu": cores * 1000})))

    def ask(self, queue, memory, cores=0, tasks=1):
        demand = {"memory": memory * M, "cpu": cores * 1000}
        number = self.state.index.last + 1
        self.happen(JobSubmitted(at=0.0, id=number, job=Job(queue, {k: v for k, v in demand.items() if v}, tasks)))
        return number

    def served(self, most=10_000):
        """The queues whose tasks are placed next, in order."""
        facts = decide(self.state, 1.0, most=most).facts
        self.happen(*facts)
        return [self.state.index.specs[job].queue for job, _ in placements(facts)][:most]

    def shares(self, kind, resource="memory"):
        """Fair shares by queue, in megabytes or cores."""
        column, unit = self.state.resources.index(resource), M if resource == "memory" else 1000
        found = getattr(fair_shares(self.state), kind)[:, column]
        return {name: Fraction(int(share), unit) for name, share in zip(self.state.tree.names, found, strict=True)}


# -- fair shares -----------------------------------------------------------------------------------------------------


@of("yarn-shares-")
def test_shares_of_siblings(case):
    setup = case["setup"]
    queues = setup["schedulables"]
    shares = divide(
        Fraction(setup["total"]),
        [q["weight"] for q in queues],
        [q["min_share"] for q in queues],
        [q["max_share"] for q in queues],
    )
    assert shares == case["expected"]["fair_shares"]


def test_fair_shares_are_worked_out_again_only_where_something_of_theirs_has_changed():
    world = World(parents_and_children(), 10_000)
    with mock.patch("fairlead.scheduler.reports.fair_shares.exact_shares", wraps=fair_shares_module.exact_shares) as worked_out:
        fair_shares(world.state)
        assert worked_out.call_count == 3
        assert fair_shares(world.state) is fair_shares(world.state)
        job = world.ask("parentA/childA1", 2048)
        before = fair_shares(world.state)
        assert worked_out.call_count == 5, "the steady ones are as they were"
        world.happen(JobHeld(at=1.0, id=job), JobReleased(at=1.0, id=job))
        assert fair_shares(world.state).within_demand is before.within_demand
        assert worked_out.call_count == 5
        world.join("m", 1000)
        found = fair_shares(world.state)
    again = fair_shares(snapshot.load(snapshot.dump(world.state)))
    for kind in ("steady", "instantaneous", "within_demand"):
        assert (getattr(found, kind) == getattr(again, kind)).all()


def parents_and_children():
    names = {"parentA": [f"childA{k}" for k in range(1, 5)], "parentB": ["childB1", "childB2"]}
    weight = {"parentA": 8.0}
    queues = [Queue(ROOT, policy="yarn-fair")]
    for parent, children in names.items():
        queues.append(Queue(parent, weight=weight.get(parent, 1.0), policy="yarn-fair"))
        queues += [Queue(f"{parent}/{child}") for child in children]
    return [*queues, Queue("default")]


@st.composite
def siblings(draw):
    n = draw(st.integers(1, 6))
    weights = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 3.7])
    return (
        Fraction(draw(st.integers(0, 60))),
        draw(st.lists(weights, min_size=n, max_size=n)),
        draw(st.lists(st.integers(0, 20), min_size=n, max_size=n)),
        draw(st.lists(st.none() | st.integers(0, 25), min_size=n, max_size=n)),
    )


def at_level(level, weight, least, most):
    """The definition: what each gets at one level."""
    raised = [max(Fraction(repr(w)) * level, low) for w, low in zip(weight, least, strict=True)]
    return [share if high is None else min(share, high) for share, high in zip(raised, most, strict=True)]


@given(siblings())
def test_shares_are_what_everybody_gets_at_one_level(case):
    """By trying the level at which each one who is between its bounds has its share; and at none, all have their bounds."""
    total, weight, least, most = case
    shares = divide(*case)
    lowest, highest = at_level(0, weight, least, most), at_level(10**9, weight, least, most)
    if sum(lowest) >= total:
        assert sum(shares) == total
        assert [share * sum(lowest) for share in shares] == [low * total for low in lowest]
        return
    levels = [share / Fraction(repr(w)) for share, w in zip(shares, weight, strict=True) if w] + [Fraction(10**9)]
    assert shares in [at_level(level, weight, least, most) for level in levels]
    assert sum(shares) == total or shares == highest


def test_many_siblings_share_as_few_do():
    few = divide(Fraction(10**12), [1.0, 2.0, 0.0] * 30, [0, 3 * 10**10, 7] * 30, [None, 5 * 10**10, None] * 30)
    many = divide(Fraction(2 * 10**12), [1.0, 2.0, 0.0] * 60, [0, 3 * 10**10, 7] * 60, [None, 5 * 10**10, None] * 60)
    assert [float(share) for share in many[:90]] == pytest.approx([float(share) for share in few], rel=1e-12)


@of("yarn-share-")
def test_steady_and_instantaneous_shares(case):
    memory = case["setup"]["node_memory_mb"]
    world = World(parents_and_children(), memory)
    active = [name.replace(".", "/") for name in case["setup"]["active_queues"] if "finishes" not in name]
    jobs = {name: world.ask(name, 2048) for name in active}

    def check_steady():
        steady = world.shares("steady")
        for name, share in steady.items():
            if "/child" in name:  # rounded down to bytes, where YARN rounds to megabytes
                part = case["expected"]["steady fraction"]["each childA" if "A" in name else "each childB"]
                assert share == Fraction(int(Fraction(repr(part)) * memory * M), M)
        return True

    now = world.shares("instantaneous")
    assert check_steady()
    expected = case["expected"]["instantaneous fraction of cluster"]
    if "all" in expected:
        assert {name for name, share in now.items() if share} == {ROOT}
    elif "each active" in expected:
        assert {name: share for name, share in now.items() if "/" in name and share} == {
            name: Fraction(memory * M // 3, M) for name in active
        }
    else:
        assert all(now[f"parentA/{name}"] == Fraction(part) * memory for name, part in expected["before"].items())
        world.happen(JobCancelled(at=1.0, id=jobs["parentA/childA1"]))
        now = world.shares("instantaneous")
        assert all(now[f"parentA/{name}"] == Fraction(part) * memory for name, part in expected["after"].items())
        assert check_steady()


def test_shares_within_demand_leave_the_rest_to_others():
    """Weights 1, 1 and 3 of 10 GiB: who asks for 1 GiB gets that, a limit of 2 GiB holds, and the rest goes to the third."""
    queues = [Queue(ROOT, policy="yarn-fair"), Queue("a"), Queue("b", limit={"memory": 2048 * M}), Queue("c", weight=3.0)]
    world = World(queues, 10240)
    world.ask("a", 1024)
    world.ask("b", 1024, tasks=100)
    world.ask("c", 1024, tasks=100)
    assert world.shares("instantaneous") == {"": 10240, "a": 2048, "b": 2048, "c": 6144}
    assert world.shares("within_demand") == {"": 10240, "a": 1024, "b": 2048, "c": 7168}


def test_no_child_has_more_than_its_parent_gives():
    queues = [Queue(ROOT, policy="yarn-drf"), Queue("p"), Queue("q", weight=3.0)]
    queues += [Queue(f"p/{n}", weight=w, guarantee={"memory": 3000 * M}) for n, w in (("a", 1.0), ("b", 0.0))]
    shares = World(queues, 4096).shares("steady")
    assert shares == {"": 4096, "p": 1024, "q": 3072, "p/a": 512, "p/b": 512}, "guarantees beyond it are scaled alike"


@of("yarn-fs-MinAlloc")
def test_a_minimum_is_a_floor_of_the_fair_share(case):
    floors = {"queueA": 1024, "queueB": 2048}
    queues = [Queue(ROOT, policy="yarn-fair"), *(Queue(n, guarantee={"memory": m * M}) for n, m in floors.items())]
    world = World(queues, case["setup"]["node_mb"])
    for name in floors:
        world.ask(name, case["setup"]["both ask"])
    shares = world.shares("instantaneous")
    assert {name: shares[name] for name in floors} == case["expected"]["fair_share_mb"]


@of("yarn-fs-SteadyReload")
def test_steady_shares_follow_the_configuration_and_the_nodes(case):
    def tree(**weights):
        return [Queue(ROOT, policy="yarn-drf"), Queue("default"), *(Queue(n, weight=w) for n, w in weights.items())]

    world = World(tree(child1=1.0, child2=1.0), case["setup"]["node_mb"])
    seen = [world.shares("steady")]
    reloaded = tree(child1=1.0, child2=2.0, child3=2.0)
    world.happen(admission.configure(world.state, reloaded, world.state.settings, 1.0))
    seen.append(world.shares("steady"))
    world.happen(NodeLost(at=2.0, node="n"))
    seen.append(world.shares("steady"))
    for shares, expected in zip(seen, case["expected"]["steady_mb"], strict=True):
        assert {name: shares[name] for name in expected} == expected


# -- who goes next ---------------------------------------------------------------------------------------------------


@of("yarn-drf-")
def test_who_goes_next_under_yarn_drf(case):
    """Two queues use what the case says; then each asks for one byte, and there is only one placement."""
    memory, cores = case["setup"]["cluster_mem_vcores"]
    both = {name: case["setup"][name] for name in ("s1", "s2")}
    queues = [Queue(ROOT, policy="yarn-drf")]
    for name, said in both.items():
        least, cpus = said["min_share_mem_vcores"]
        queues.append(Queue(name, weight=float(said["weight"]), guarantee={"memory": least * M, "cpu": 1000 * cpus}))
    world = World(queues, memory, cores)
    for name, said in both.items():
        world.ask(name, *said["usage_mem_vcores"])
    world.served()
    for name in both:
        number = world.state.index.last + 1
        world.happen(JobSubmitted(at=0.0, id=number, job=Job(name, {"memory": 1})))
    assert world.served(most=1) == [case["expected"]["first"]]


# -- taking back -----------------------------------------------------------------------------------------------------


def waiting_bucket(state, queue):
    """The bucket of a leaf in which somebody waits; None."""
    buckets, n = state.groups, state.groups.n
    mine = np.flatnonzero((buckets.leaf[:n] == state.tree.rows[queue]) & (buckets.head[:n] != NONE))
    return int(mine[0]) if len(mine) else None


def is_starved(state, queue, kind):
    """Whether a queue has a claim of this class open."""
    bucket = waiting_bucket(state, queue)
    if bucket is None:
        return False
    if kind == GUARANTEE:
        view = state.order.ready(state, 1)
        return bool(scheduling.guarded_part(view, bucket, scheduling.kept_for_claims(view))[0] != NONE)
    looked = [fact for fact in preempt_for_claims(state, 1e6)[0] if isinstance(fact, SharesLooked)]
    return queue in looked[0].short


@of("yarn-fs-Starved")
@pytest.mark.parametrize("kind", [GUARANTEE, FAIR_SHARE], ids=["min", "fair"])
def test_who_is_starved(case, kind):
    """YARN's words: below its minimum or fair share with more to ask for. Here: it has a claim of that class."""
    expected = case["expected"]["min" if kind == GUARANTEE else "fair"]
    least = {"guarantee": {"memory": 2048 * M}} if kind == GUARANTEE else {}
    weights = {"A": 1.0, "B": 1.0} if kind == GUARANTEE else {"A": 0.25, "B": 0.75}
    root = Queue(ROOT, policy="yarn-fair", fair_share_timeout=0.0 if kind == FAIR_SHARE else None)
    world = World([root, *(Queue(name, weight=w, **least) for name, w in weights.items())], 4096)
    world.ask("A", 3072)
    world.served()
    world.ask("B", 1024)
    assert {name: is_starved(world.state, name, kind) for name in "AB"} == {"A": expected["A"], "B": expected["B"]}
    world.served()
    after = "B after getting 1024" if kind == GUARANTEE else "B after demand met"
    assert is_starved(world.state, "B", kind) == expected[after]


TWO = ((4096, 12), (4096, 12))
MODES = pytest.mark.parametrize(
    ("mode", "policy"), [(mode, policy) for mode in ("min share", "fair share") for policy in ("yarn-fair", "yarn-drf")]
)


def taking_back(queues, nodes, policy="yarn-fair"):
    """A story on nodes of so many megabytes and cores; queues by the rules of YARN's fair scheduler."""
    root = Queue(ROOT, policy=policy, history=0.0, guarantee_timeout=0.0)
    return Story([{"memory": mb, "cpu": cores} for mb, cores in nodes], [root, *queues])


def preemptable(mode, policy, leaf=None):
    """The queues of YARN's own tests: each leaf with a minimum, or claiming its whole fair share, at once."""
    least = {"guarantee": {"memory": 4096, "cpu": 4}} if mode == "min share" else {}
    share = {} if least else {"fair_share_timeout": 0.0, "fair_share_threshold": 1.0}
    queues = [Queue("preemptable", policy=policy), Queue("nonpreemptable", policy=policy, revocable=False)]
    names = [f"{queue.name}/child-{k}" for queue in queues for k in (1, 2)]
    queues += [Queue(name, **least, **share, policy=policy if name == leaf else "") for name in names]
    return [*queues, Queue("preemptable-sibling", **least, **share)]


@of("yarn-preempt-NextRound")
def test_all_that_a_queue_is_short_of_is_taken_back_at_once(case):
    """YARN rounds the fair share of 3276.8 MB up, and takes three; here it is rounded nowhere, and three fit into it."""
    share = {"fair_share_timeout": float(case["setup"]["fairSharePreemptionTimeout_s"])}
    queues = [Queue("queueA", weight=8.0, policy="yarn-fair"), Queue("queueA/A1"), Queue("queueA/A2", **share)]
    story = taking_back([*queues, Queue("queueB", weight=2.0)], [(8192, 8)])
    story.job(0.0, "queueA/A1", 1e4, 7, memory=1024, cpu=1)
    story.job(0.0, "queueB", 1e4, 1, memory=1024, cpu=1)
    story.job(1.0, "queueA/A2", 1e4, 7, memory=1024, cpu=1)
    story.until(30.0)
    revoked = [job for _, jobs in story.revoked() for job in jobs]
    assert revoked == [1] * case["expected"]["containers preempted from A1"]
    assert len({at for at, _ in story.revoked()}) == 1, "not in a round each"
    assert (story.runs("queueA/A1"), story.runs("queueA/A2"), story.runs("queueB")) == (4, 3, 1)


@of("yarn-preempt-testPreemptionWithinSameLeafQueue")
@MODES
def test_within_a_leaf(case, mode, policy):
    """YARN shares a leaf between its jobs. Here these take turns; its users share it where each has a leaf of their own."""
    leaf = "preemptable/child-1"
    alone = taking_back(preemptable(mode, policy), TWO, policy)
    users = taking_back([*preemptable(mode, policy, leaf), Queue(f"{leaf}/*")], TWO, policy)
    for story, greedy, starving in ((alone, leaf, leaf), (users, f"{leaf}/greedy", f"{leaf}/starving")):
        story.job(0.0, greedy, 1e4, 8, memory=1024, cpu=1)
        story.job(1.0, starving, 1e4, 4, memory=2048, cpu=2)
        story.until(20.0)
    assert not alone.revoked()
    if mode == "min share":
        assert "no preemption" in case["expected"]["min-share modes"]
        assert not users.revoked()
    else:
        expected = case["expected"]["fair-share modes"]
        left = {"starved containers": users.runs(f"{leaf}/starving"), "greedy left": users.runs(f"{leaf}/greedy")}
        assert left == expected


@of("yarn-preempt-testPreemptionBetweenNonSiblingQueues")
@MODES
def test_between_queues_that_are_no_siblings(case, mode, policy):
    """What is not to be taken from may take from others."""
    story = taking_back(preemptable(mode, policy), TWO, policy)
    story.job(0.0, "preemptable/child-1", 1e4, 8, memory=1024, cpu=1)
    story.job(1.0, "nonpreemptable/child-1", 1e4, 4, memory=2048, cpu=2)
    story.until(20.0)
    (expected,) = case["expected"].values()
    left = {"starved containers": story.runs("nonpreemptable/child-1"), "greedy left": story.runs("preemptable/child-1")}
    assert left == expected


@of("yarn-preempt-testPreemptionSelectNonAMContainer")
@MODES
def test_what_others_hang_on_is_spared(case, mode, policy):
    """There are no application masters here; what is as dear has a higher priority, and goes after all others of its leaf."""
    assert "from both nodes" in case["expected"]["with 2 AM containers per node"]
    story = taking_back(preemptable(mode, policy), TWO, policy)
    for at, priority in ((0.0, 1), (0.1, 0), (0.2, 1), (0.3, 0)):  # two of each on each node
        story.job(at, "preemptable/child-1", 1e4, 2, priority=priority, memory=1024, cpu=1)
    story.job(1.0, "preemptable/child-2", 1e4, 4, memory=2048, cpu=2)
    story.until(20.0)
    assert sorted(job for _, jobs in story.revoked() for job in jobs) == [2, 2, 4, 4]
    assert (story.runs("preemptable/child-1"), story.runs("preemptable/child-2")) == (4, 2)


# -- placement -------------------------------------------------------------------------------------------------------

RULES = {
    "specified": Placement("asked", not_asked=["default"]),
    "user": Placement("user"),
    "primaryGroup": Placement("group"),
    "secondaryGroupExistingQueue": Placement("groups"),
    "default": Placement(queue="default"),
}


def placed_by(world, rules, user, asked):
    groups = [f"{user}{group}" for group in ("group", "subgroup1", "subgroup2")]
    queues = list(world.state.tree.declared.values())
    world.happen(admission.configure(world.state, queues, Settings(placement=rules), 0.0))
    return "root." + leaf_of(world.state, Rules({}), Caller(Person(user, 1, 1, frozenset(groups), groups[0])), asked, None)


@of("yarn-placement")
def test_rules_for_the_queues_of_jobs(case):
    """What an undeclared queue is made by is the ``*``, which stands for any name."""
    setup = case["setup"]
    world = World([*(Queue(name.removeprefix("root.")) for name in setup["queues"]), Queue("default"), Queue("*")], 1024)
    first = []
    for rule in setup["rules"]:
        name, _, create = rule.partition(" create=")
        first.append(replace(RULES[name], create=create == "true"))
    other = [RULES["user"], RULES["specified"], RULES["default"]]
    other[0] = replace(other[0], create=False)
    for asked, expected in case["expected"].items():
        rules = other if "(" in asked[1:] or asked.startswith("...") else first
        queue, user = asked[asked.index("(") + 1 : -1].split(",")
        assert placed_by(world, rules, user, queue) == expected, asked


@pytest.mark.parametrize(
    ("rules", "person", "asked", "expected"),
    [
        ([Placement("user", dot="_dot_")], "a.b", None, "a_dot_b"),
        ([Placement("group", own=True)], "ann", None, "anngroup/ann"),
        ([Placement("group", own=True), Placement(queue="default")], "bob", None, "default"),
        ([Placement("groups", own=True, create_own=False), Placement(queue="default")], "ann", None, "default"),
        ([Placement("asked", create=False), Placement(queue="default")], "ann", "nosuch", "default"),
        ([Placement("asked"), Placement(queue="default")], "ann", "anngroup", "anngroup/ann"),
    ],
)
def test_rules_of_each_kind(rules, person, asked, expected):
    """Ann's group has a queue with others below it, Bob's has a leaf, which is no place for leaves."""
    queues = ["default", "anngroup", "anngroup/*", "bobgroup", "a_dot_b"]
    world = World([Queue(name) for name in queues], 1024)
    assert placed_by(world, rules, person, asked) == f"root.{expected}"


def test_a_job_that_no_rule_places_is_refused():
    world = World([Queue("default"), Queue("*")], 1024)
    with pytest.raises(
        admission.Refused, match=r"no queue was requested, and no rule of \[\[placement\]\] finds a queue for ann"
    ):
        placed_by(world, [Placement("user", create=False)], "ann", None)
    with pytest.raises(admission.Refused, match=r"queue 'x' was requested, and no rule"):
        placed_by(world, [Placement("asked", create=False)], "ann", "x")


# -- how large, how many ---------------------------------------------------------------------------------------------


def test_the_nearest_queue_says_how_large_a_task_may_be():
    largest = {"memory": 512 * M}
    queues = [Queue("a", largest_task=largest), Queue("a/b"), Queue("a/c", largest_task={"memory": 1024 * M}), Queue("d")]
    world = World(queues, 4096)
    for queue, most in (("a/b", 512), ("a/c", 1024), ("d", 4096)):
        admission.submit(world.state, [Job(queue, {"memory": most * M})], 0.0)
        if queue != "d":
            with pytest.raises(admission.Refused, match=f"demand: memory: {most + 1}Mi for a task, and queue 'a"):
                admission.submit(world.state, [Job(queue, {"memory": (most + 1) * M})], 0.0)


def test_bounds_in_percent_follow_the_cluster():
    queues = [Queue("a", limit_percent={"*": 50.0}, guarantee_percent={"memory": 12.5}), Queue("b")]
    world = World(queues, 8192, 8)
    state, row = world.state, world.state.tree.rows["a"]

    def bounds():
        at = [state.resources.index(name) for name in ("memory", "cpu")]
        return state.queues.limit[row, at].tolist(), state.queues.guarantee[row, at].tolist()

    assert bounds() == ([4096 * M, 4000], [1024 * M, 0])
    world.ask("a", 1024, 1, tasks=8)
    assert world.served() == ["a"] * 4
    world.join("m", 8192 + 1, 2)
    assert bounds() == ([(16385 * M) // 2, 5000], [(16385 * M) // 8, 0]), "rounded down"
    assert world.served() == ["a"]
    recovered = snapshot.load(snapshot.dump(state))
    assert recovered.queues.limit[row].tolist() == state.queues.limit[row].tolist()
    world.happen(NodeLost(at=2.0, node="m"))
    assert bounds()[0] == [4096 * M, 4000]


def test_who_goes_first_by_a_minimum_of_memory_does_not_pay_with_its_cores():
    """B has none of the memory that it goes by, and asks for cores alone: it would have those again before a's next."""
    queues = [Queue("", policy="yarn-fair"), Queue("a", guarantee={"cpu": 4, "memory": 3}), Queue("b", guarantee={"memory": 6})]
    story = Story([{"cpu": 4, "memory": 10}], queues)
    story.job(0.0, "a", 1000.0, 2, cpu=2, memory=1)
    story.job(0.0, "b", 300.0, 2, cpu=1)
    story.until(200.0)
    assert (story.runs("a"), story.runs("b"), story.revoked()) == (1, 2, [])
    assert "other tasks: within their guarantee or share (2 tasks)" in explain(story.state, 1, 200.0)["claim"]
    story.until(300.0)
    assert story.runs("a") == 2
    more = Story([{"cpu": 4, "memory": 10}], [*queues[:2], Queue("b", guarantee={"memory": 1})])
    more.job(0.0, "b", 300.0, 2, cpu=2, memory=1)
    more.job(10.0, "a", 1000.0, 2, cpu=2, memory=1)
    more.until(60.0)
    assert more.revoked() == [(40.0, [1])], "beyond its minimum it pays, down to that"


def test_weight_zero_goes_after_all_others_unless_below_its_minimum():
    queues = [Queue(ROOT, policy="yarn-fair"), Queue("none", weight=0.0), Queue("least", weight=0.001)]
    world = World([*queues, Queue("some", weight=0.0, guarantee={"memory": 2048 * M})], 8192)
    for name in ("none", "least", "some"):
        world.ask(name, 1024, tasks=4)
    assert world.served() == ["some"] * 2 + ["least"] * 4 + ["none"] * 2


def test_a_star_at_the_top_bounds_its_leaves_and_not_the_whole():
    world = World([Queue("*", limit={"memory": 1024 * M}, largest_task={"memory": 512 * M}), Queue("big")], 4096)
    world.ask("big", 1024, tasks=3)
    assert world.served() == ["big"] * 3
    admission.submit(world.state, [Job("big", {"memory": 2048 * M})], 0.0)


def test_a_queue_that_is_not_theirs_is_no_reason_to_try_the_next_rule():
    world = World([Queue("default", submit=["*"]), Queue("anngroup", submit=["bob"])], 1024)
    rules = [Placement("group"), Placement(queue="default")]
    assert placed_by(world, rules, "ann", None) == "root.anngroup"
    ann = Caller(Person("ann", 1, 1, frozenset({"anngroup"}), "anngroup"))
    with pytest.raises(Forbidden, match="ann may not submit to queue 'anngroup': only bob may"):
        check_submits(rules_of(world.state, personal=False), ann, "anngroup", None)


def test_fair_shares_are_told_and_counted():
    queues = [Queue(ROOT, policy="yarn-drf"), Queue("a", weight=3.0), Queue("b", weight=0.0, guarantee={"memory": 24 * M})]
    world = World(queues, 1024, 4)
    world.ask("a", 100, 1, tasks=2)
    told = {queue["name"]: queue for queue in report.list_queues(world.state)}
    steady = {"memory": 1000 * M, "cpu": 4000}
    assert told["a"]["fair_share"]["steady"] == steady
    assert told["a"]["fair_share"]["within_demand"] == {"memory": 200 * M, "cpu": 2000}
    assert told["b"]["fair_share"] == {"steady": {"memory": 24 * M}, "instantaneous": {}, "within_demand": {}}
    assert set(told["b"]["weight"].values()) == {0.0}
    text = metrics.exposition(told.values(), []).decode()
    assert 'fairlead_queue_fair_share{kind="steady",queue="a",resource="cpu"} 4.0' in text
    (memory,) = re.findall(r'fairlead_queue_fair_share\{kind="steady",queue="b",resource="memory"\} (.*)', text)
    assert float(memory) == 24 * M
