"""Whatever stands in arrays, they are a problem that every policy divides, or are refused in one line that names the place."""

import math
import os
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import fairlead

CASES = max(100, int(os.environ.get("FAIRLEAD_FUZZ", "0")) // 2)
long = settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
make = fairlead.Problem.from_arrays

odd = st.sampled_from(
    [
        0, -1, -0.5, 1, 2.5, True, None, "9", "x", 1j, [], [1, [2]], math.nan, math.inf, 1e308, 1e-300, 5e-324, 10**30, 10**400,
        10**5000, Fraction(1, 3), Decimal("NaN"), Decimal("0.1"), np.float32(0.1), np.int64(2**60 + 1), np.bool_(True),
        (1, 2, 3), [[1]],
    ]
)  # fmt: skip
wide = st.builds(lambda m, e: m * 10.0**e, st.integers(1, 9), st.integers(-59, 59))
near = st.integers(1, 9) | st.floats(0.01, 99)
POLICIES = [
    "drf", "hdrf", "naive", "collapsed", "asset", "ceei", "maxmin:r0", "slots:4", "slots:4:overcommit", "fifo", "priority",
    "tasks", "tsf",
]  # fmt: skip
KEYS = ["capacity", "demand", "tasks", "weight", "guarantee", "limit", "priority", "queues", "users", "resources", "nodes"]


@st.composite
def arrays(draw, numbers):
    """What `from_arrays` takes, with most of what may be left out left out."""
    n, m = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    row = st.lists(numbers, min_size=m, max_size=m)
    rows = st.lists(row, min_size=n, max_size=n)
    weights = st.lists(st.floats(1e-9, 1e9), min_size=n, max_size=n)
    queues = st.lists(st.sampled_from(["a", "b", "a/b", ""]), min_size=n, max_size=n)
    often = {"tasks": st.lists(numbers, min_size=n, max_size=n), "weight": weights, "limit": rows, "queues": queues}
    found = draw(st.fixed_dictionaries({"capacity": row, "demand": rows}, optional=often))
    if draw(st.booleans()):
        found["guarantee"] = [[x / 9 for x in found["capacity"]], *([[0] * m] * (n - 1))]
    return found


def problem_or_refusal(arguments):
    """A problem, or why it is none."""
    try:
        return make(**arguments), ""
    except ValueError as error:
        return None, str(error)


@long
@given(arrays(near), st.sampled_from(KEYS), odd, st.booleans())
def test_what_is_odd_is_taken_or_refused_in_one_line_with_its_key(given_, key, value, alone):
    was = given_.get(key)
    given_[key] = value if alone or not isinstance(was, list) else [value, *was[1:]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem, said = problem_or_refusal(given_)
        if problem is None:
            assert said.partition(":")[0].rpartition(".")[2].rstrip("s") in {"name", *(each.rstrip("s") for each in KEYS)}
            assert "\n" not in said
            assert len(said) < 400
            return
        found = fairlead.allocate(problem)
    assert all(0 <= tasks < math.inf for tasks in found.tasks.tolist())


@long
@given(arrays(wide), st.sampled_from(POLICIES))
@example({"capacity": [1e60], "demand": [[1e-60]]}, "tsf")
@example({"capacity": [1e-60, 1e60], "demand": [[1e60, 1e-60], [1e-60, 1e60]]}, "ceei")
def test_numbers_of_any_size_are_divided_without_a_warning(given_, policy):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem, said = problem_or_refusal(given_)
        if problem is None:
            assert "than the limit allows" in said or "not a number of tasks" in said
            return
        try:
            found = fairlead.allocate(problem, policy)
        except fairlead.PolicyError:  # of what it does not divide, such as guarantees
            assert "guarantee" in given_
            return
    assert np.isfinite(found.tasks).all()
    assert (found.tasks >= 0).all()
    assert np.isfinite(found.shares).all()
    str(found)
    found.to_dict()


@long
@given(arrays(wide))
def test_what_floats_cannot_be_trusted_with_is_computed_in_fractions(given_):
    problem, _ = problem_or_refusal(given_)
    if problem is None:
        return
    found, exact = fairlead.allocate(problem), fairlead.allocate(problem, exact=True)
    expected = [float(tasks) for tasks in exact.tasks]
    if problem.spread() > 1e20:
        assert found.tasks.tolist() == expected
        assert "computed in fractions" in found.division.notes[0]
    else:
        # What is left between sums is lost to rounding, and so is what somebody could have of it: in parts of the whole.
        assert found.shares.tolist() == [pytest.approx(row, rel=1e-9, abs=1e-12) for row in exact.shares.astype(float).tolist()]


WRONG = [
    ({"capacity": [math.nan]}, "capacity: r0: nan is not a finite number"),
    ({"demand": [[1e-300]]}, "user[0].demand: r0: 1e-300 is out of range: use 1e-60 to 1e+60, or 0"),
    ({"demand": [[0]]}, "user[0].demand: asks for nothing: name something of some resource"),
    ({"demand": [1]}, "demand: has shape (1,), not (users, resources)"),
    ({"demand": [[1], [1, 2]]}, "demand: has shape (2,), not (users, resources)"),
    ({"tasks": [-0.5]}, "user[0].tasks: -0.5 is not a number of tasks: use 0 or more, below 2**62; -1 for any number"),
    ({"tasks": [1, 2]}, "tasks: has shape (2,), not (1,)"),
    ({"limit": [[-0.5]]}, "user[0].limit: r0: -0.5 is not an amount: use 0 or more, or -1 for none"),
    ({"weight": ["2"]}, "user[0].weight: r0: '2' is not a number"),
    ({"weight": [True]}, "user[0].weight: r0: True is not a number"),
    ({"weight": 0}, "user[0].weight: r0: 0.0 is not a weight: use a number from 1e-9 to 1e9"),
    ({"priority": [1.5]}, "user[0].priority: 1.5 is not a priority: use a whole number from -1000000 to 1000000"),
    ({"queues": []}, "queues: 0 names for 1 users"),
    ({"queues": ["a/*"]}, "user[0].queue: 'a/*': a user of a problem is in one queue"),
    ({"users": ["\x1b[31m"]}, "user[0].name: '\\x1b[31m' has characters that cannot be printed"),
    ({"demand": [[1], [1]], "users": ["a", "a"]}, "user[1].name: a user 'a' already exists: choose another name"),
    ({"resources": ["a", "b"]}, "resources: 2 names for 1 columns of demand"),
    ({"nodes": 0}, "nodes: 0 is not a number of machines"),
    ({"nodes": 1.5}, "nodes: 1.5 is not a number of machines: use a whole number from 1 to"),
    ({"nodes": True}, "nodes: True is not a number of machines"),
    ({"machines": 3}, "machines: 3 is not a Machines object"),
    ({"limit": [[10**5000]]}, "user[0].limit: r0: a number of more digits than can be read is out of range"),
    ({"guarantee": [[5]], "limit": [[3]]}, "user[0].guarantee: guarantees more r0 than the limit allows"),
]


@pytest.mark.parametrize(("arguments", "expected"), WRONG, ids=[f"{list(a)[-1]}-{i}" for i, (a, _) in enumerate(WRONG)])
def test_wrong_arrays_are_refused_with_the_place(arguments, expected):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        make(**({"capacity": [9], "demand": [[1]]} | arguments))
    assert str(error.value).startswith(expected)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("policy", [p for p in POLICIES if not p.startswith(("slots", "ceei"))])
def test_more_guaranteed_than_there_is_is_said_and_shared_whoever_divides(policy, exact):
    problem = make([10], [[1], [1], [1]], guarantee=[[8], [8], [0]])
    found = fairlead.allocate(problem, policy, exact=exact)
    assert "more r0 is guaranteed than exists: guarantees are scaled down" in str(found)
    assert found.tasks.tolist() == ([8, 2, 0] if policy in ("fifo", "priority") else [5, 5, 0])
    assert "guaranteed" not in str(fairlead.allocate(make([10], [[1], [1]], guarantee=[[8], [2]]), policy, exact=exact))


def test_more_guaranteed_than_there_is_is_said_of_whole_tasks_too():
    found = fairlead.allocate(make([9], [[1], [1]], guarantee=[[20], [0]]), discrete=True)
    assert found.tasks.tolist() == [9, 0]
    assert "more r0 is guaranteed than exists: guarantees are scaled down" in str(found)


def test_whole_numbers_that_floats_do_not_hold_are_exact():
    large = 2**60 + 1
    for numbers in (np.array([[large]]), [[large]], np.array([[np.int64(large)]], object), [[Decimal(large)]]):
        found = fairlead.allocate(make([3], numbers), exact=True)
        assert found.tasks.tolist() == [Fraction(3, large)]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("policy", ["drf", "asset", "tsf"])
def test_a_task_of_next_to_nothing_has_its_share_of_machines_that_differ(policy, exact):
    """A byte of 704 GiB is less than what a solver takes for nothing: half of the memory is B's, in tasks of 64 GiB."""
    nodes = [{"name": name, "capacity": {"memory": size, "cpu": 9}} for name, size in (("a", "64Gi"), ("b", "640Gi"))]
    users = [{"name": name, "demand": {"memory": size}} for name, size in (("A", 1), ("B", "64Gi"))]
    found = fairlead.allocate({"node": nodes, "user": users}, policy, exact=exact)
    assert [float(x) for x in found.tasks] == pytest.approx([352 * 2**30, 5.5])


def test_the_most_tasks_are_counted_however_small_they_are():
    document = {"capacity": {"memory": "64Gi"}, "user": [{"name": "A", "demand": {"memory": 1}}]}
    assert fairlead.allocate(document, "tasks").tasks.tolist() == [64 * 2**30]


@pytest.mark.parametrize("what", [3, None, [1], b"x", 2.5, "a\0b"])
def test_what_is_no_problem_is_refused_in_one_line(what):
    with pytest.raises(fairlead.DocumentError, match=r"^.* is not a (problem: give a Problem, a path|path of a file)"):
        fairlead.allocate(what)


@pytest.mark.parametrize("policy", ["slots:" + "1" * 5000, "slots:\xb2", "asset:cpu=1" + "0" * 5000, 3, None])
def test_what_is_no_policy_is_refused_in_one_line(policy):
    with pytest.raises(fairlead.PolicyError, match=r"^.{1,400}$"):
        fairlead.allocate(make([9], [[1]]), policy)
    with pytest.raises(fairlead.PolicyError, match=r"^placement: 'any': write one of first, best, worst$"):
        fairlead.allocate(make([9], [[1]]), placement="any")
