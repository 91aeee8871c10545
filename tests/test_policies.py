"""The policies: the numbers of the literature, to the last digit; linear programs, cvxpy and certificates beside them."""

import json
import math
from dataclasses import replace
from fractions import Fraction as F  # noqa: N817 written a hundred times

import numpy as np
import pytest
import scipy  # whose parts are read when they are asked for
from hypothesis import given, settings
from hypothesis import strategies as st

import fairlead
from fairlead.model.problems import Machines
from fairlead.policies import discrete, drf
from fairlead.policies.contract import DEMAND, LIMIT
from fairlead.policies.filling import ByFilling
from fairlead.policies.linear_programs import dense, solve
from fairlead.policies.registry import HERE, find_policy
from random_cases import cases

make = fairlead.Problem.from_arrays

FAMILY = ["drf", "asset", "maxmin:r0"]


def paper():
    """<9 CPU, 18 GB>; A's tasks need <1, 4>, B's <3, 1>: Ghodsi et al., NSDI 2011, section 4."""
    return make([9, 18], [[1, 4], [3, 1]], users=["A", "B"], resources=["cpu", "memory"])


# -- the numbers of the literature ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "exact"), [("drf", [F(3), F(2)]), ("asset", [F(63, 25), F(54, 25)])])
def test_the_papers_example_to_the_last_digit(policy, exact):
    assert fairlead.allocate(paper(), policy, exact=True).tasks.tolist() == exact
    assert fairlead.allocate(paper(), policy).tasks == pytest.approx([float(x) for x in exact], rel=1e-12)


def test_ceei_in_the_papers_example():
    """Section 4.1.2: 45/11 and 18/11."""
    found = fairlead.allocate(paper(), "ceei")
    assert found.tasks == pytest.approx([45 / 11, 18 / 11], rel=1e-9)
    assert found.division.prices @ found.problem.capacity == pytest.approx(2), "all budgets are spent"


def test_asset_fairness_lacks_the_sharing_incentive():
    """Section 5.1.1, Theorem 5: with <30, 30>, <1, 3> and <1, 1>, user 2 gets 12 of each, less than the half of 15."""
    assert fairlead.allocate(make([30, 30], [[1, 3], [1, 1]]), "asset", exact=True).tasks.tolist() == [6, 12]


def test_asset_fairness_with_prices():
    """CPU is worth twice as much: A's task is 2/9 + 2/9 of the whole, B's 6/9 + 1/18; until CPU is gone."""
    found = fairlead.allocate(paper(), "asset:cpu=2", exact=True)
    assert found.tasks[0] * (F(2, 9) + F(2, 9)) == found.tasks[1] * (F(6, 9) + F(1, 18))
    assert found.left[0] == 0
    assert fairlead.allocate(paper(), "asset:cpu=3:memory=3", exact=True).tasks.tolist() == [F(63, 25), F(54, 25)]


def test_ceei_can_be_lied_to():
    """Section 5.1.2, Theorem 6: with <100, 100>, <16, 1> and <1, 2>, user 1 gains by claiming <16, 8>."""
    honest = fairlead.allocate(make([100, 100], [[16, 1], [1, 2]]), "ceei").tasks
    assert honest == pytest.approx([100 / 31, 1500 / 31], rel=1e-9)
    lied = fairlead.allocate(make([100, 100], [[16, 8], [1, 2]]), "ceei").tasks
    assert lied == pytest.approx([25 / 6, 100 / 3], rel=1e-9)


def test_table_1_of_the_paper():
    """The order of services, the shares and what is used: B, A, A, B, A, up to the tie at the start."""
    found = fairlead.allocate(paper(), "drf", discrete=True)
    assert found.tasks.tolist() == [3, 2]
    served = [found.problem.users[step.user] for step in found.steps]
    assert served == ["A", "B", "A", "B", "A"]
    last = found.steps[-1]
    assert [u / c for u, c in zip(last.used, found.problem.capacity, strict=True)] == [1, F(14, 18)]


# -- by hand -------------------------------------------------------------------------------------------------------


def test_weights_of_one_number_and_of_one_a_resource():
    """Equal users with weights 2 and 1 get two parts and one; per resource, a share counts divided by that resource's weight."""
    assert fairlead.allocate(make([12], [[1], [1]], weight=[2, 1]), exact=True).tasks.tolist() == [8, 4]
    problem = make([12, 12], [[2, 1], [1, 2]], weight=[[2, 1], [1, 1]])
    # A's dominant share is 1/12 a task at both (2/12/2 and 1/12), B's 2/12: A rises twice as fast; 5 x = 12 of resource 0.
    assert fairlead.allocate(problem, exact=True).tasks.tolist() == [F(24, 5), F(12, 5)]


def test_what_a_satisfied_user_leaves_goes_on_to_the_others():
    found = fairlead.allocate(make([12], [[1], [1], [1]], tasks=[1, 3, -1]), exact=True)
    assert found.tasks.tolist() == [1, 3, 8]
    assert [found.stopped_by(i) for i in range(3)] == ["its demand is met"] * 2 + ["r0 is saturated (round 1)"]


def test_who_needs_nothing_of_a_saturated_resource_goes_on():
    found = fairlead.allocate(make([10, 10], [[1, 0], [1, 1], [0, 1]]), exact=True)
    assert found.tasks.tolist() == [5, 5, 5]
    found = fairlead.allocate(make([10, 10], [[1, 0], [1, F(1, 10)], [0, 1]]), exact=True)
    assert found.tasks.tolist() == [5, 5, F(19, 2)]
    assert found.division.round.tolist() == [1, 1, 2]


def test_guarantees_come_first_and_limits_last():
    found = fairlead.allocate(make([12], [[1], [1], [1]], guarantee=[[8], [0], [0]]), exact=True)
    assert found.tasks.tolist() == [8, 2, 2]
    found = fairlead.allocate(make([12], [[1], [1], [1]], limit=[[1], [-1], [-1]]), exact=True)
    assert found.tasks.tolist() == [1, F(11, 2), F(11, 2)]
    assert found.division.stop.tolist() == [LIMIT, 0, 0]
    found = fairlead.allocate(make([12], [[1], [1]], guarantee=[[8], [0]], tasks=[3, -1]), exact=True)
    assert (found.tasks.tolist(), found.division.stop.tolist()) == ([3, 9], [DEMAND, 0])


def test_guarantees_that_do_not_fit_together_are_filled_together():
    assert fairlead.allocate(make([12], [[1], [1]], guarantee=[[12], [12]]), exact=True).tasks.tolist() == [6, 6]


def test_maxmin_on_one_resource_does_not_see_the_others():
    """Memory alone is shared: 4 to A's one task, 1 to B's; CPU runs out first."""
    assert fairlead.allocate(paper(), "maxmin:memory", exact=True).tasks.tolist() == [F(9, 13), F(36, 13)]
    found = fairlead.allocate(make([9, 18], [[1, 0], [3, 1]]), "maxmin:r1", exact=True)
    assert found.tasks.tolist() == [9, 0], "who needs nothing of it has no share of it, and always goes first"
    found = fairlead.allocate(make([9, 18], [[1, 0], [3, 1]], guarantee=[[0, 0], [6, 0]]), "maxmin:r1", exact=True)
    assert found.tasks.tolist() == [3, 2], "but for who is below a guarantee"


def test_slots_underuse_or_overcommit():
    problem = make([12, 48], [[1, 2], [1, 20]], nodes=1)
    refused = fairlead.allocate(problem, "slots:4", exact=True)
    assert refused.tasks.tolist() == [4, 0]
    assert refused.stopped_by(0) == "no slot left"
    assert "r1" in refused.stopped_by(1)
    whole = fairlead.allocate(problem, "slots:4", discrete=True)
    assert (whole.tasks.tolist(), whole.stopped_by(1)) == ([4, 0], "a slot has too little r1 for a task")
    over = fairlead.allocate(problem, "slots:6:overcommit", exact=True)
    assert over.tasks.tolist() == [3, 3]
    assert over.left.tolist() == [6, -18]
    assert fairlead.allocate(problem, "slots:6:overcommit", discrete=True).tasks.tolist() == [3, 3]


def test_fifo_and_priority_serve_one_after_another():
    problem = make([10, 10], [[1, 0], [1, 1], [0, 1]], tasks=[4, -1, -1], priority=[0, 5, 0])
    assert fairlead.allocate(problem, "fifo", exact=True).tasks.tolist() == [4, 6, 4]
    assert fairlead.allocate(problem, "priority", exact=True).tasks.tolist() == [0, 10, 0]
    assert fairlead.allocate(problem, "fifo").tasks.tolist() == [4, 6, 4]
    assert fairlead.allocate(problem, "priority", discrete=True).tasks.tolist() == [0, 10, 0]


def test_the_most_tasks_is_the_linear_programs():
    rng = np.random.default_rng(3)
    for _ in range(20):
        demand, capacity = rng.integers(1, 9, (6, 3)), rng.integers(20, 60, 3)
        found = fairlead.allocate(make(capacity, demand), "tasks")
        truth = scipy.optimize.linprog(-np.ones(6), demand.T, capacity)
        assert found.tasks.sum() == pytest.approx(-truth.fun, rel=1e-9)
        assert (found.left >= -1e-9).all()


def in_a_tree():
    """Bhattacharya et al., SoCC 2013, section 4.2: n1 needs GPUs; below n2, n2.1 needs CPUs and n2.2 GPUs."""
    demand = [[0, 1], [1, 0], [0, 1]]
    return make([10, 10], demand, users=["n1", "n2.1", "n2.2"], queues=["", "n2", "n2"], resources=["cpu", "gpu"])


@pytest.mark.parametrize(("policy", "served"), [("hdrf", "n2.2"), ("naive", "n1")])
def test_the_naive_tree_starves_and_hdrf_does_not(policy, served):
    """n2.1's CPUs make n2 look rich; each GPU of n2.2 that ends goes to n1, until n2.2 has none."""
    problem = in_a_tree().exact()
    if policy == "hdrf":
        assert fairlead.allocate(problem, policy, discrete=True).tasks.tolist() == [5, 10, 5]
    _, order = find_policy(policy).indivisible(problem)
    for user, tasks in enumerate([5, 10, 5]):
        order.served(user, tasks)
        order.out(user, 0 if user == 1 else 1)
    tasks = {0: 5, 2: 5}
    for _ in range(4):  # one of n2.2's tasks ends, and both who need GPUs want it
        tasks[2] -= 1
        order.served(2, tasks[2])
        order.back(0)
        order.back(2)
        chosen = order.choose()
        assert problem.users[chosen] == served
        tasks[chosen] += 1
        order.served(chosen, tasks[chosen])
        order.out(0, 1)
        order.out(2, 1)
    assert tasks == ({0: 5, 2: 5} if policy == "hdrf" else {0: 9, 2: 1})


def test_hdrf_leaves_blocked_nodes_and_saturated_resources_out():
    """Section 4.3.2: CPUs are gone at a third each; the GPUs are then halved between n3.2 and n4, not given to n3.2 alone."""
    demand = [[1, 0], [1, 0], [1, 0], [0, 1], [0, 1]]
    problem = make([30, 30], demand, users=["n1", "n2", "n3.1", "n3.2", "n4"], queues=["", "", "n3", "n3", ""])
    assert fairlead.allocate(problem, "hdrf", discrete=True).tasks.tolist() == [10, 10, 10, 15, 15]
    assert fairlead.allocate(problem, "hdrf", exact=True).tasks.tolist() == [10, 10, 10, 15, 15]


@settings(max_examples=cases(8), deadline=None)
@given(data=st.data())
def test_down_a_tree_divided_is_the_limit_of_ever_smaller_tasks(data):
    """Floats agree with fractions; whole tasks of a 200th of the size come out within a few of them of the division."""
    problem = data.draw(problems(most_users=6))
    queues = data.draw(st.lists(st.sampled_from(["", "a", "b", "a/x", "a/y", "b/z"]), min_size=6, max_size=6))
    problem = replace(problem, queues=queues[: len(problem.users)])
    policy = data.draw(st.sampled_from(["hdrf", "naive"]))
    exact = fairlead.allocate(problem, policy, exact=True)
    assert fairlead.allocate(problem, policy).tasks == pytest.approx(exact.tasks.astype(float), rel=1e-9, abs=1e-9)
    many = 200
    if exact.tasks.sum() * many < 8000:
        tasks = np.where(problem.tasks < 0, problem.tasks, problem.tasks * many)
        limit = np.where(problem.limit < 0, problem.limit, problem.limit * many)
        fine = replace(problem, capacity=problem.capacity * many, tasks=tasks, limit=limit)
        whole = fairlead.allocate(fine, policy, discrete=True).tasks
        assert whole.astype(float) / many == pytest.approx(exact.tasks.astype(float), abs=0.06 * len(queues))


def test_guarantees_come_first_down_a_tree_too():
    """A.1 has its 4 before anybody; B rises alone until it is even with A, whose own lowest is A.2."""
    problem = make([10], [[1], [1], [1]], guarantee=[[4], [0], [0]], queues=["A", "A", "B"], users=["A.1", "A.2", "B.1"])
    assert fairlead.allocate(problem, "naive", exact=True).tasks.tolist() == [4, 1, 5]
    # Under hdrf A.1's surplus does not count against A.2: it counts as if it had A.2's level.
    assert fairlead.allocate(problem, "hdrf", exact=True).tasks.tolist() == [4, 2, 4]


def test_a_queue_whose_saturated_resource_counts_no_more_catches_up_alone():
    """CPUs are gone when A and B have a half each; A then counts as A.3's memory alone, which comes up to C's, then both rise."""
    demand = [[1, 0], [1, 0], [0, 1], [1, 0], [0, 1]]
    problem = make([10, 12], demand, users=["A.1", "A.2", "A.3", "B", "C"], queues=["A", "A", "A", "", ""])
    found = fairlead.allocate(problem, "hdrf", exact=True)
    assert found.tasks.tolist() == [F(5, 2), F(5, 2), 6, 5, 6]
    assert [found.stopped_by(i) for i in (0, 2)] == ["r0 is saturated (round 1)", "r1 is saturated (round 2)"]


@pytest.mark.parametrize("policy", ["hdrf", "naive"])
def test_queues_that_have_alike_children_are_told_apart(policy):
    """x/p and y/r have all that they can use at once, and are alike but for that; x/q and y/s share the rest."""
    demand = [[1, 1], [1, 2], [1, 1], [1, 2]]
    problem = make([20, 20], demand, tasks=[1, -1, 1, -1], queues=["x/p", "x/q", "y/p", "y/q"])
    assert fairlead.allocate(problem, policy, exact=True).tasks.tolist() == [1, F(9, 2), 1, F(9, 2)]


def test_without_a_tree_hdrf_is_drf():
    rng = np.random.default_rng(2)
    for _ in range(30):
        problem = make(rng.integers(20, 60, 3), rng.integers(1, 9, (4, 3)), weight=rng.integers(1, 4, 4))
        assert (
            fairlead.allocate(problem, "hdrf", discrete=True).tasks.tolist()
            == fairlead.allocate(problem, discrete=True).tasks.tolist()
        )
        assert fairlead.allocate(problem, "hdrf").tasks.tolist() == fairlead.allocate(problem).tasks.tolist()


def test_the_collapsed_tree_is_drf_with_weights_multiplied():
    """n1 weighs a half, n2.1 and n2.2 a quarter each: n1 gets two GPUs for each of n2.2's."""
    found = fairlead.allocate(in_a_tree(), "collapsed", exact=True)
    assert found.tasks.tolist() == [F(20, 3), 10, F(10, 3)]
    assert fairlead.allocate(in_a_tree(), "collapsed", discrete=True).tasks.tolist() == [7, 10, 3]


def test_guarantees_and_limits_of_whole_tasks():
    problem = make([12], [[1], [1], [1]], guarantee=[[8], [0], [0]], limit=[[-1], [1], [-1]])
    found = fairlead.allocate(problem, "drf", discrete=True)
    assert found.tasks.tolist() == [8, 1, 3]
    assert [found.stopped_by(i) for i in range(3)] == [
        "too little r0 for another task",
        "its limit",
        "too little r0 for another task",
    ]


def two_servers(**more):
    """Wang, Li and Liang, INFOCOM 2014, section III: 2 CPUs and 12 GB, 12 CPUs and 2 GB; <0.2, 1> and <1, 0.2>."""
    machines = fairlead.model.problems.Machines(np.array([[2.0, 12], [12, 2]]), np.array([1, 1]), np.ones((2, 2), bool))
    return make([14, 14], [[0.2, 1], [1, 0.2]], machines=machines, **more)


def test_drf_over_machines_that_differ():
    """Each user gets the server that suits it: 10 tasks and a share of 5/7; cut by servers, each would get 6."""
    found = fairlead.allocate(two_servers(), "drf")
    assert found.tasks == pytest.approx([10, 10], rel=1e-9)
    assert found.dominant_shares == pytest.approx([5 / 7, 5 / 7], rel=1e-9)
    exact = fairlead.allocate(two_servers(), "drf", exact=True)
    assert (exact.tasks.tolist(), exact.dominant_shares.tolist()) == ([10, 10], [F(5, 7), F(5, 7)])
    assert exact.left.tolist() == [2, 2], "all that anybody could use is used"
    found = fairlead.allocate(two_servers(tasks=[3, -1]), "drf")
    assert found.tasks[0] == pytest.approx(3)
    assert found.tasks[1] > 11
    assert found.stopped_by(0) == "its demand is met"
    assert fairlead.allocate(two_servers(), "drf", discrete=True, placement="worst").tasks.tolist() == [10, 10]


@pytest.mark.parametrize("placement", ["first", "best", "worst"])
def test_whole_tasks_leave_scarce_machines_to_those_who_need_them(placement):
    nodes = [{"name": "g", "capacity": {"cpu": 4, "gpu": 8}}, {"name": "c", "capacity": {"cpu": 4}}]
    users = [{"name": "A", "demand": {"cpu": 1}, "tasks": 4}, {"name": "B", "demand": {"cpu": 1, "gpu": 2}}]
    found = fairlead.allocate({"node": nodes, "user": users}, discrete=True, placement=placement)
    assert found.tasks.tolist() == [4, 4]
    assert {step.node for step in found.steps if step.user == 0} == {1}


def test_machines_that_are_alike_may_be_said_to_differ():
    rng = np.random.default_rng(4)
    for _ in range(25):
        n, m = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        demand = rng.integers(0, 6, (n, m)) + np.eye(m, dtype=int)[rng.integers(0, m, n)]
        each, tasks = rng.integers(3, 20, m), np.where(rng.random(n) < 0.4, rng.integers(1, 6, n), -1)
        machines = fairlead.model.problems.Machines(np.array([each, each], float), np.array([1, 2]), np.ones((n, 2), bool))
        alike = fairlead.allocate(make(each * 3, demand, tasks=tasks, nodes=3), "drf")
        found = fairlead.allocate(make(each * 3, demand, tasks=tasks, machines=machines), "drf")
        assert found.tasks == pytest.approx(alike.tasks, rel=1e-6, abs=1e-7)
        assert fairlead.allocate(make(each, demand), "tsf").tasks == pytest.approx(fairlead.allocate(make(each, demand)).tasks)


def test_guarantees_over_machines_that_differ():
    """B's 8 CPUs come first; A and C then rise to what is left, a third each of 9, which B has passed already."""
    kinds = Machines(np.array([[9.0], [8.0]]), np.array([1, 1]), np.array([[True, False], [True, True], [True, True]]))
    problem = make([17], [[1], [1], [1]], guarantee=[[0], [8], [0]], machines=kinds)
    assert fairlead.allocate(problem).tasks == pytest.approx([4.5, 8, 4.5])
    assert fairlead.allocate(problem, exact=True).tasks.tolist() == [F(9, 2), 8, F(9, 2)]
    capped = make([17], [[1], [1], [1]], guarantee=[[0], [6], [0]], limit=[[-1], [6], [2]], machines=kinds)
    found = fairlead.allocate(capped)
    assert found.tasks == pytest.approx([9, 6, 2])
    assert [found.stopped_by(i) for i in (1, 2)] == ["its limit", "its limit"]
    too_much = make([17], [[1], [1], [1]], guarantee=[[12], [8], [0]], machines=kinds)
    assert fairlead.allocate(too_much).tasks == pytest.approx([9, 8, 0]), "filled together as far as they go"


def test_users_who_can_use_some_machines_only(tmp_path):
    """Wang et al., SC 2016: where A is bound to one of two machines, B, who is not, uses the other and a part of that."""
    document = {
        "node": [
            {"name": "a", "capacity": {"cpu": 6}, "labels": {"zone": "east"}},
            {"name": "b", "capacity": {"cpu": 2}, "labels": {"zone": "west"}},
        ],
        "user": [{"name": "A", "demand": {"cpu": 1}, "on": {"zone": "west"}}, {"name": "B", "demand": {"cpu": 1}}],
    }
    for policy in ("drf", "tsf"):
        assert fairlead.allocate(document, policy).tasks == pytest.approx([2, 6])
        assert fairlead.allocate(document, policy, discrete=True).tasks.tolist() == [2, 6]
    nowhere = [{**document["user"][0], "on": {"zone": ["north"]}}, document["user"][1]]
    with pytest.raises(fairlead.DocumentError, match=r"user\[0\].on: no \[\[node\]\] has these labels"):
        fairlead.allocate({**document, "user": nowhere})
    for policy in ("ceei", "fifo", "slots:2", "maxmin:cpu"):
        with pytest.raises(fairlead.PolicyError, match="only machines that are alike"):
            fairlead.allocate(document, policy)
    del document["node"]
    document["capacity"] = {"cpu": 8}
    with pytest.raises(fairlead.DocumentError, match=r"user\[0\].on: there are no machines with labels"):
        fairlead.allocate(document)


# -- against independent truths --------------------------------------------------------------------------------------


@st.composite
def problems(draw, most_users=5):
    n, m = draw(st.integers(1, most_users)), draw(st.integers(1, 4))
    small = st.integers(0, 6)
    demand = [draw(st.lists(small, min_size=m, max_size=m)) for _ in range(n)]
    for row in demand:
        row[draw(st.integers(0, m - 1))] += 1
    demand = [[max(1, row[0]), *row[1:]] for row in demand]  # maxmin:r0 has everybody need r0
    capacity = draw(st.lists(st.integers(1, 40), min_size=m, max_size=m))
    tasks = draw(st.lists(st.one_of(st.just(-1), st.integers(0, 9)), min_size=n, max_size=n))
    weight = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    limit = [[draw(st.one_of(st.just(-1), st.just(-1), st.integers(0, 30))) for _ in range(m)] for _ in range(n)]
    return make(capacity, demand, tasks=tasks, weight=weight, limit=limit)


def rates(problem, policy):
    share = problem.demand / problem.capacity / problem.weight
    return {"drf": share.max(axis=1), "asset": share.sum(axis=1), "maxmin:r0": share[:, 0]}[policy]


def lexicographic(problem, rate):
    """Levels by linear programs: raise the least level as far as it goes, fix those that can go no further, and again."""
    n = len(rate)
    most, _ = problem.most()
    bounds = [(0, None if m < 0 else m) for m in most]
    fixed = {}
    while len(fixed) < n:
        free = [i for i in range(n) if i not in fixed]
        # max t: x_i rate_i >= t for the free, >= their level for the fixed.
        a = np.hstack([problem.demand.T, np.zeros((len(problem.capacity), 1))])
        b = list(problem.capacity)
        for i in range(n):
            row = np.zeros(n + 1)
            row[i] = -rate[i]
            row[n] = 1.0 if i in free else 0.0
            a, b = np.vstack([a, row]), [*b, -fixed.get(i, 0.0) * (1 - 1e-10)]
        top = scipy.optimize.linprog([*np.zeros(n), -1.0], a, b, bounds=[*bounds, (0, None)])
        level = -top.fun
        stuck = []
        for i in free:
            at_least = np.array([level * (1 - 1e-10) if k in free else fixed[k] * (1 - 1e-10) for k in range(n)]) / rate
            room = [(lo, hi) for lo, (_, hi) in zip(at_least, bounds, strict=True)]
            more = scipy.optimize.linprog(-np.eye(n)[i], problem.demand.T, problem.capacity, bounds=room)
            if -more.fun * rate[i] <= level + 1e-6:
                stuck.append(i)
        assert stuck
        fixed |= dict.fromkeys(stuck, level)
    return np.array([fixed[i] for i in range(n)])


@settings(max_examples=cases(20), deadline=None)
@given(problem=problems(), policy=st.sampled_from(FAMILY))
def test_filling_is_the_lexicographic_maximum(problem, policy):
    rate = rates(problem, policy)
    found = fairlead.allocate(problem, policy)
    assert found.tasks * rate == pytest.approx(lexicographic(problem, rate), rel=1e-5, abs=1e-6)


@settings(max_examples=cases(50), deadline=None)
@given(problem=problems(most_users=8), policy=st.sampled_from([*FAMILY, "slots:7", "fifo"]))
def test_floats_agree_with_fractions(problem, policy):
    exact = fairlead.allocate(problem, policy, exact=True)
    floats = fairlead.allocate(problem, policy)
    assert floats.tasks == pytest.approx(exact.tasks.astype(float), rel=1e-9, abs=1e-12)
    assert all(isinstance(x, F) for x in exact.tasks)


@settings(max_examples=cases(25), deadline=None)
@given(problem=problems(most_users=8), policy=st.sampled_from(FAMILY), data=st.data())
def test_floats_agree_with_fractions_above_guarantees(problem, policy, data):
    n, m = problem.demand.shape
    guarantee = data.draw(st.lists(st.lists(st.integers(0, 10), min_size=m, max_size=m), min_size=n, max_size=n))
    problem = replace(problem, guarantee=np.array(guarantee, float))
    exact, floats = (fairlead.allocate(problem, policy, exact=exact) for exact in (True, False))
    assert floats.tasks == pytest.approx(exact.tasks.astype(float), rel=1e-9, abs=1e-12)


@settings(max_examples=cases(50), deadline=None)
@given(problem=problems(most_users=8), policy=st.sampled_from(FAMILY), data=st.data())
def test_whoever_is_stopped_by_a_resource_has_the_highest_level_there(problem, policy, data):
    """The certificate of max-min fairness, with guarantees: a bottleneck for each (Bertsekas and Gallager, 1992, section 6.5)."""
    n, m = problem.demand.shape
    guarantee = data.draw(st.lists(st.lists(st.integers(0, 10), min_size=m, max_size=m), min_size=n, max_size=n))
    problem = fairlead.model.problems.replace(problem, guarantee=np.array(guarantee, float))
    found = fairlead.allocate(problem, policy, exact=True)
    exact = found.problem
    assert (found.left >= 0).all()
    most, _ = exact.most()
    share = exact.demand[:, 0] / exact.weight[:, 0] / exact.capacity[0]
    rate = share if policy == "maxmin:r0" else 1 / find_policy(policy).speed(exact)
    level = found.tasks * rate
    promised = exact.guaranteed()
    for i in range(n):
        stop = found.division.stop[i]
        if stop < 0:
            assert found.tasks[i] == most[i]
            continue
        assert found.left[stop] == 0
        assert exact.demand[i, stop] > 0
        for k in range(n):
            if exact.demand[k, stop] > 0 and found.tasks[i] >= promised[i]:
                assert level[k] <= level[i] or found.tasks[k] <= promised[k]


@settings(max_examples=cases(20), deadline=None)
@given(problem=problems(most_users=4), data=st.data())
def test_alike_machines_with_guarantees_are_divided_as_one(problem, data):
    guarantee = (
        problem.demand * np.array(data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=4)))[: len(problem.users), None]
    )
    whole = replace(problem, capacity=problem.capacity * 3, guarantee=guarantee)
    kinds = Machines(problem.capacity[None, :], np.array([3]), np.ones((len(problem.users), 1), np.bool_))
    one = fairlead.allocate(whole).tasks
    assert fairlead.allocate(replace(whole, machines=kinds)).tasks == pytest.approx(one, rel=1e-6, abs=1e-6)
    exactly = fairlead.allocate(replace(whole, machines=kinds), exact=True).tasks.tolist()
    assert exactly == fairlead.allocate(whole, exact=True).tasks.tolist()


@settings(max_examples=cases(20), deadline=None)
@given(problem=problems(most_users=6), policy=st.sampled_from(["drf", "tsf", "asset"]), data=st.data())
def test_machines_that_differ_in_fractions(problem, policy, data):
    """What is placed fits, and is as many tasks as are said; floats agree; who shares no machine does not matter to another."""
    n, m = problem.demand.shape
    kinds = data.draw(st.integers(1, 3))
    capacity = np.array(data.draw(st.lists(st.lists(st.integers(1, 30), min_size=m, max_size=m), min_size=kinds, max_size=kinds)))
    count = np.array(data.draw(st.lists(st.integers(1, 4), min_size=kinds, max_size=kinds)))
    allowed = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=kinds, max_size=kinds), min_size=n, max_size=n)))
    everything = capacity * count[:, None]
    some = replace(
        problem, capacity=everything.sum(axis=0).astype(float), machines=Machines(capacity.astype(float), count, allowed)
    )
    found = fairlead.allocate(some, policy, exact=True)
    placed = found.division.placed
    assert (placed >= 0).all()
    assert (placed[~allowed] == 0).all()
    assert placed.sum(axis=1).tolist() == found.tasks.tolist()
    for k in range(kinds):
        assert ((found.problem.demand * placed[:, k, None]).sum(axis=0) <= everything[k]).all()
    assert fairlead.allocate(some, policy).tasks == pytest.approx(found.tasks.astype(float), rel=1e-7, abs=1e-7)

    own = np.array(data.draw(st.lists(st.integers(0, kinds - 1), min_size=n, max_size=n)))
    apart = replace(some, machines=replace(some.machines, allowed=own[:, None] == np.arange(kinds)))
    together = fairlead.allocate(apart, policy, exact=True).tasks
    speed = find_policy(policy).speed(apart.exact())
    for k in range(kinds):
        rows = np.flatnonzero(own == k)
        if len(rows):
            columns = ("demand", "tasks", "weight", "guarantee", "limit", "priority")
            mine = replace(
                problem,
                capacity=everything[k].astype(float),
                users=[problem.users[i] for i in rows],
                queues=[""] * len(rows),
                **{name: getattr(problem, name)[rows] for name in columns},
            )
            alone = ByFilling("alone", "", lambda _, speed=speed[rows]: speed)
            assert together[rows].tolist() == fairlead.allocate(mine, alone, exact=True).tasks.tolist()


def test_a_linear_program_in_fractions_is_proved_or_refused():
    """Minimise -x - y with 3 x + y <= 1 and x + 3 y <= 1; and one whose rows no float tells apart."""
    one, third = F(1), np.array([[F(3), F(1)], [F(1), F(3)]], object)
    nothing, no_bound = np.array([F(0), F(0)], object), np.array([np.inf, np.inf], object)
    found = solve(dense(nothing - 1, third, nothing + 1, nothing, no_bound))
    assert (found.x.tolist(), found.prices.tolist()) == ([F(1, 4)] * 2, [-F(1, 4)] * 2)
    none = dense(nothing - 1, third, nothing - 1, nothing, no_bound)
    assert solve(none) is None
    alike = np.array([[F(1)], [F(1)]], object)
    for less in (F(1, 10), F(1, 10**20)):
        program = dense(nothing[:1] - 1, alike, np.array([one, one - less], object), nothing[:1], no_bound[:1])
        if less > F(1, 100):
            assert solve(program).x.tolist() == [one - less]
        else:
            with pytest.raises(fairlead.PolicyError, match="too little for a linear program to tell them apart: round them"):
                solve(program)


@settings(max_examples=cases(20), deadline=None)
@given(problem=problems())
def test_ceei_meets_its_conditions(problem):
    """Prices are not negative, what costs something is sold out, and everybody spends the budget or has all it can use."""
    most, _ = problem.most()
    found = fairlead.allocate(problem, "ceei")
    prices, capacity = found.division.prices, problem.capacity
    assert (prices >= 0).all()
    assert (found.left >= -1e-9 * capacity).all()
    assert np.abs(prices * found.left).max() <= 1e-8 * max(1.0, problem.weight[:, 0].sum())
    spent = found.resources @ prices
    for i in range(len(most)):
        if most[i] >= 0 and found.tasks[i] >= most[i] * (1 - 1e-12):
            assert spent[i] <= problem.weight[i, 0] * (1 + 1e-8)
        else:
            assert spent[i] == pytest.approx(problem.weight[i, 0], rel=1e-7)


def test_ceei_of_one_user_among_many_resources():
    """Few users and many resources make the dual's Hessian singular, and its value may be 0: both must not stop it early."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        n, m = int(rng.integers(1, 4)), int(rng.integers(2, 9))
        demand = rng.integers(0, 8, (n, m)) + np.eye(m, dtype=int)[rng.integers(0, m, n)]
        capacity = rng.integers(1, 40, m)
        found = fairlead.allocate(make(capacity, demand), "ceei")
        assert (found.left / capacity).min() == pytest.approx(0, abs=1e-9)


def test_ceei_is_what_clarabel_finds():
    import cvxpy  # which takes a second to read: not in each process that collects

    rng = np.random.default_rng(5)
    for _ in range(25):
        n, m = int(rng.integers(1, 7)), int(rng.integers(1, 5))
        demand = rng.integers(0, 6, (n, m)) + np.eye(m)[rng.integers(0, m, n)]
        capacity, weight = rng.integers(1, 30, m).astype(float), rng.integers(1, 4, n).astype(float)
        most = np.where(rng.random(n) < 0.3, rng.integers(1, 6, n), -1).astype(float)
        x = cvxpy.Variable(n, nonneg=True)
        bounds = [x[i] <= most[i] for i in range(n) if most[i] >= 0]
        goal = cvxpy.Maximize(cvxpy.sum(cvxpy.multiply(weight, cvxpy.log(x))))
        cvxpy.Problem(goal, [demand.T @ x <= capacity, *bounds]).solve(solver=cvxpy.CLARABEL)
        found = fairlead.allocate(make(capacity, demand, weight=weight, tasks=most), "ceei")
        assert found.tasks == pytest.approx(x.value, rel=2e-3, abs=2e-4)


@settings(max_examples=cases(20), deadline=None)
@given(data=st.data(), nodes=st.integers(1, 4), placement=st.sampled_from(["first", "best", "worst"]))
def test_whole_tasks_stay_within_one_task_of_each_other(data, nodes, placement):
    """Before somebody is out, dominant shares differ by one largest task at most (Ghodsi et al., NSDI 2011, section 5)."""
    n, m = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 3))
    demand = np.array([[data.draw(st.integers(1, 5)) for _ in range(m)] for _ in range(n)])
    capacity = demand.max(axis=0) * nodes * data.draw(st.integers(1, 6))
    problem = make(capacity, demand, nodes=nodes)
    found = fairlead.allocate(problem, "drf", discrete=True, placement=placement)
    rate = 1 / drf.speed(found.problem)
    largest = rate.max()
    for step in found.steps:
        shares = [tasks * r for tasks, r in zip(step.tasks, rate, strict=True)]
        if step.user != min(range(n), key=lambda i: (shares[i] - (rate[i] if i == step.user else 0), i)):
            break  # somebody is out
        assert max(shares) - min(shares) <= largest
    free = [[F(int(c), nodes) for c in capacity] for _ in range(nodes)]
    for step in found.steps:
        for j in range(m):
            free[step.node][j] -= int(demand[step.user, j])
            assert free[step.node][j] >= 0
    for i in range(n):
        assert not any(all(room[j] >= demand[i, j] for j in range(m)) for room in free), "nothing is left that somebody could use"


# -- what may come in ------------------------------------------------------------------------------------------------


def test_a_problem_document(tmp_path):
    path = tmp_path / "problem.toml"
    path.write_text(
        'capacity = { cpu = 9, memory = "18Gi" }\n[[user]]\nname = "A"\ndemand = { cpu = 1, memory = "4Gi" }\n'
        '[[user]]\nname = "B"\ndemand = { cpu = 3, memory = "1Gi" }\nweight = { cpu = 2 }\ntasks = 10\n'
    )
    found = fairlead.allocate(path)
    assert found.problem.users == ["A", "B"]
    again = tmp_path / "problem.json"
    document = {
        "node": [{"name": "n", "count": 3, "capacity": {"cpu": 3, "memory": "6Gi"}}],
        "user": [
            {"name": "A", "demand": {"cpu": 1, "memory": "4Gi"}},
            {"name": "B", "demand": {"cpu": 3, "memory": "1Gi"}, "weight": {"cpu": 2}, "tasks": 10},
        ],
    }
    again.write_text(json.dumps(document))
    assert fairlead.allocate(str(again)).tasks.tolist() == found.tasks.tolist()
    assert fairlead.allocate(document).tasks.tolist() == found.tasks.tolist()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "either capacity"),
        ("capacity = { cpu = 9 }", "there are no users"),
        ('capacity = { cpu = 9 }\n[[user]]\nname = "A"\ndemand = { gpu = 1 }', "demand: there is no 'gpu'"),
        ('capacity = { cpu = 9 }\n[[user]]\nname = "A"\ndemand = { cpu = 0 }', "asks for nothing"),
        ('capacity = { cpu = nan }\n[[user]]\nname = "A"\ndemand = { cpu = 1 }', "'nan' is not a quantity"),
        ('capacity = { cpu = -1 }\n[[user]]\nname = "A"\ndemand = { cpu = 1 }', "-1 is negative"),
        ('capacity = { cpu = 1 }\n[[user]]\nname = "A"\ndemand = { cpu = 1 }\ntasks = -2', "-2.* is not a number of tasks"),
        ('capacity = { cpu = 1 }\n[[user]]\nname = "A"\ndemand = { cpu = 1 }\nweight = 0', "is not a weight"),
        ('capacity = { cpu = 1 }\n[[user]]\nname = "A"\ndemand = { cpu = 1 }\ncolour = 1', "colour: no such key here"),
        ('capacity = { cpu = 1 }\n[[user]]\nname = "A"\ndemand = { cpu = 1e18 }', "too large"),
        ('capacity = { cpu = 1 }\n[[user]]\ndemand = { cpu = 1 }', "name: is missing"),
        ('capacity = { cpu = 1 }\n' + '[[user]]\nname = "A"\ndemand = { cpu = 1 }\n' * 2, "'A' already exists"),
        ('[[queue]]\nname = "a"', "is a scheduler's configuration"),
        ("capacity = ", "not TOML"),
    ],
)  # fmt: skip
def test_a_wrong_document_is_told_in_one_line(tmp_path, text, wrong):
    path = tmp_path / "problem.toml"
    path.write_text(text)
    with pytest.raises(fairlead.DocumentError, match=wrong) as told:
        fairlead.allocate(path)
    assert str(told.value).startswith(str(path))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("policy", ["drf", "asset", "ceei", "maxmin:r0", "slots:2", "fifo", "priority", "tasks"])
def test_odd_problems_are_answered(policy):
    for exact in (False, True) if policy != "ceei" else (False,):
        nobody = fairlead.allocate(make([4], np.zeros((0, 1))), policy, exact=exact)
        assert len(nobody.tasks) == 0
        assert "left" in str(nobody)
        alone = fairlead.allocate(make([4, 9], [[1, 2]]), policy, exact=exact)
        assert alone.tasks[0] == (2 if policy == "slots:2" else pytest.approx(4))
        nothing = fairlead.allocate(make([0, 4], [[1, 1], [0, 1]]), policy, exact=exact)
        assert nothing.tasks[0] == 0
        assert nothing.tasks[1] == (2 if policy == "slots:2" else 4)
        huge = fairlead.allocate(make([10**18, 10**18], [[10**17, 1], [1, 10**17]]), policy, exact=exact)
        assert float(huge.tasks.sum()) > 1
        too_much = fairlead.allocate(make([4], [[9], [1]]), policy, exact=exact)
        assert (too_much.left.astype(float) >= -1e-9).all()
        done = fairlead.allocate(make([4], [[1], [1]], tasks=[0, 1]), policy, exact=exact)
        assert [float(x) for x in done.tasks] == pytest.approx([0, 1])


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (([4], [[0]]), r"user\[0\].demand: asks for nothing"),
        (([4], [[-1]]), r"user\[0\].demand: r0: -1.0 is not an amount: use 0 or more"),
        (([math.nan], [[1]]), "capacity: r0: nan is not a finite number"),
        (([4], [[math.inf]]), r"user\[0\].demand: r0: inf is not a finite number"),
        (([4], [[1, 2]]), r"capacity: has shape \(1,\), not \(2,\)"),
    ],
)
def test_wrong_arrays_are_refused(arguments, wrong):
    with pytest.raises(ValueError, match=wrong):
        make(*arguments)


@pytest.mark.parametrize(
    ("policy", "wrong"),
    [
        ("nope", "no policy 'nope': use one of drf, hdrf"),
        ("maxmin", "names no resource"),
        ("maxmin:gpu", "there is no 'gpu'"),
        ("slots", "write slots:K"),
        ("slots:0", "write slots:K"),
        ("drf:3", "drf is written drf"),
        ("asset:cpu", "is not a price"),
        ("asset:cpu=0", "a price is a number from 1e-9"),
        ("asset:gpu=2", "there is no 'gpu' to price"),
    ],
)
def test_wrong_policies_are_refused(policy, wrong):
    with pytest.raises(fairlead.PolicyError, match=wrong):
        fairlead.allocate(paper(), policy)


def test_what_a_policy_cannot_do_it_says():
    with pytest.raises(fairlead.PolicyError, match="leave out exact"):
        fairlead.allocate(paper(), "ceei", exact=True)
    for policy in ("ceei", "tasks"):
        with pytest.raises(fairlead.PolicyError, match="leave out discrete"):
            fairlead.allocate(paper(), policy, discrete=True)
    with pytest.raises(fairlead.PolicyError, match="guarantee"):
        fairlead.allocate(make([4], [[1]], guarantee=[[1]]), "ceei")


def test_a_policy_of_ones_own():
    class Nobody:
        name, summary = "nobody", "nothing for anybody"

        def divide(self, problem):
            nothing = np.zeros(len(problem.users))
            return fairlead.policies.contract.Division(nothing, np.full(len(nothing), DEMAND), nothing.astype(int))

    found = fairlead.allocate(paper(), Nobody())
    assert (found.policy, found.tasks.tolist()) == ("nobody", [0, 0])


def test_another_packages_policy_is_found_by_name(other_package, monkeypatch):
    monkeypatch.syspath_prepend(
        other_package(
            "from fairlead.policies.filling import ByFilling\n"
            "def mine(times='1'):\n"
            "    return ByFilling('mine:' + times, 'as many for each', lambda problem: problem.tasks * 0 + int(times))\n",
            "mine",
        )
    )
    assert fairlead.allocate(paper(), "mine:2", exact=True).tasks.tolist() == [F(9, 4), F(9, 4)]
    with pytest.raises(fairlead.PolicyError, match="mine"):
        fairlead.allocate(paper(), "mine:1:2:3")


# -- what comes out ----------------------------------------------------------------------------------------------------


def test_the_result_explains_itself():
    document = {
        "capacity": {"cpu": 9, "memory": "18Gi"},
        "user": [{"name": "A", "demand": {"cpu": 1, "memory": "4Gi"}}, {"name": "B", "demand": {"cpu": 3, "memory": "1Gi"}}],
    }
    found = fairlead.allocate(document)
    assert str(found).splitlines()[0] == "drf"
    assert "0.6667 memory" in str(found)
    assert "cpu is saturated (round 1)" in str(found)
    a, _ = found.to_dict()["users"]
    assert (a["name"], a["tasks"], a["dominant_resource"], round(a["dominant_share"], 4)) == ("A", 3.0, "memory", 0.6667)
    assert a["shares"] == {"cpu": pytest.approx(1 / 3), "memory": pytest.approx(2 / 3)}
    exact = fairlead.allocate(document, "asset", exact=True).to_dict()
    assert [u["tasks"] for u in exact["users"]] == ["63/25", "54/25"]
    json.dumps(exact)
    frame = found.to_frame()
    assert frame.loc["B", "cpu share"] == pytest.approx(2 / 3)
    drawn = str(found.plot())
    assert drawn.count("<rect") >= 4
    assert all(name in drawn for name in ("A", "B", "cpu", "memory"))


def test_every_policy_has_a_line():
    for name in HERE:
        written = {"maxmin": "maxmin:cpu", "slots": "slots:2"}.get(name, name)
        assert 10 < len(find_policy(written).summary) < 80


def test_more_tasks_than_can_be_placed_one_by_one(monkeypatch):
    monkeypatch.setattr(discrete, "MOST_STEPS", 100)
    with pytest.raises(fairlead.PolicyError, match="divide it instead"):
        fairlead.allocate(make([1000], [[1]]), discrete=True)


def test_large_problems_take_the_compiled_way_and_agree():
    rng = np.random.default_rng(1)
    n, m = 1500, 4
    demand = rng.integers(0, 50, (n, m)) + np.eye(m, dtype=int)[rng.integers(0, m, n)]
    tasks = np.where(rng.random(n) < 0.5, rng.integers(1, 50, n), -1)
    problem = make(rng.integers(n, 20 * n, m), demand, tasks=tasks, weight=rng.integers(1, 5, n))
    for policy in ("drf", "asset", "fifo"):
        exact, floats = fairlead.allocate(problem, policy, exact=True), fairlead.allocate(problem, policy)
        assert floats.tasks == pytest.approx(exact.tasks.astype(float), rel=1e-9)
