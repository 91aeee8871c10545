"""What is divided down a tree, held against fractions, and against serving tiny tasks one by one."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.problems import Problem
from fairlead.policies.registry import find_policy
from fairlead.scheduler.entitlements import TreeDivision
from random_cases import cases

INF = np.inf


def divide(parent, capacity, leaves, demand, most, weight=None, guarantee=None, limit=None, max_tasks=None):
    n, m = len(parent), len(capacity)
    there = np.asarray(capacity, float)
    weight = np.ones((n, m)) if weight is None else weight
    guarantee = np.zeros((n, m)) if guarantee is None else guarantee
    limit = np.full((n, m), INF) if limit is None else limit
    max_tasks = np.full(n, INF) if max_tasks is None else max_tasks
    tree = (np.asarray(parent), weight, guarantee, limit, max_tasks)
    return TreeDivision(there, *tree, np.asarray(leaves)).divide(np.asarray(demand, float), np.asarray(most, float))


small = st.integers(0, 6)


@settings(max_examples=cases(25), deadline=None)
@given(st.data())
def test_without_a_tree_it_is_what_drf_divides(data):
    """Weights, guarantees, limits and finite demands; compared in fractions."""
    n, m = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    table = st.lists(st.lists(small, min_size=m, max_size=m), min_size=n, max_size=n)
    demand = np.array(data.draw(table))
    demand[~demand.any(axis=1), 0] = 1
    capacity = np.array(data.draw(st.lists(st.integers(0, 30), min_size=m, max_size=m)))
    most = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    weight = 1.0 + np.array(data.draw(table))
    guarantee = np.array(data.draw(table)) * data.draw(st.integers(0, 1))
    limit = np.where(np.array(data.draw(table)) < 4, -1, guarantee + np.array(data.draw(table)))
    if (guarantee.sum(axis=0) > capacity).any():
        guarantee[:] = 0
    problem = Problem.from_arrays(
        capacity, demand, tasks=most, weight=weight, guarantee=guarantee, limit=limit
    ).exact()  # fmt: skip
    expected = find_policy("drf").divide(problem).tasks
    root = np.zeros((1, m))
    found = divide(
        [-1] + [0] * n, capacity, np.arange(1, n + 1), demand, most, np.vstack([root + 1, weight]),
        np.vstack([root, guarantee]), np.vstack([root + INF, np.where(limit < 0, INF, limit)]),
    )  # fmt: skip
    assert found == pytest.approx([float(x) for x in expected], abs=1e-7)


PLACES = ["", "a", "b", "a/x", "a/y", "b/x"]


@settings(max_examples=cases(25), deadline=None)
@given(st.data())
def test_down_a_tree_it_is_what_the_naive_tree_divides(data):
    """Without weights, guarantees and limits of inner queues, which a problem does not have; compared in fractions."""
    n, m = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 3))
    places = data.draw(st.lists(st.sampled_from(PLACES), min_size=n, max_size=n))
    table = st.lists(st.lists(small, min_size=m, max_size=m), min_size=n, max_size=n)
    demand = np.array(data.draw(table))
    demand[~demand.any(axis=1), 0] = 1
    capacity = np.array(data.draw(st.lists(st.integers(1, 30), min_size=m, max_size=m)))
    most = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    weight = 1.0 + np.array(data.draw(table))
    problem = Problem.from_arrays(capacity, demand, tasks=most, weight=weight, queues=places).exact()
    expected = find_policy("naive").divide(problem).tasks
    k = len(PLACES)
    parent = [-1, 0, 0, 1, 1, 2, *(PLACES.index(place) for place in places)]
    all_weights = np.vstack([np.ones((k, m)), weight])
    found = divide(parent, capacity, k + np.arange(n), demand, most, all_weights)
    assert found == pytest.approx([float(x) for x in expected], abs=1e-7)


def served_in_crumbs(parent, capacity, demand, most, weight, guarantee, limit, max_tasks, crumb):
    """Serve crumbs of tasks one after another, as a scheduler does: below a guarantee first, then the least share."""
    n, m = len(parent), len(capacity)
    used, tasks = np.zeros((n, m)), np.zeros(n)
    count = np.zeros(n)
    out = set()

    def path(q):
        return [q] if parent[q] < 0 else [q, *path(parent[q])]

    def next_of(q):
        children = [c for c in range(n) if parent[c] == q]
        if not children:
            return q if demand[q].any() and q not in out else None
        options = []
        for c in children:
            leaf = next_of(c)
            if leaf is not None:
                wants = {i for i in range(n) if i not in out and demand[i].any() and c in path(i)}
                below = any(used[c, r] < guarantee[c, r] and any(demand[i, r] for i in wants) for r in range(m))
                options.append((not below, max(used[c] / capacity / weight[c]), c, leaf))
        return min(options)[3] if options else None

    while (leaf := next_of(0)) is not None:
        step = demand[leaf] * crumb[leaf]
        line = path(leaf)
        full = any((demand[leaf] > 0)[r] and used[q, r] + step[r] > limit[q, r] + 1e-9 for q in line for r in range(m))
        full |= any(count[q] + crumb[leaf] > max_tasks[q] + 1e-9 for q in line)
        if full or tasks[leaf] + crumb[leaf] > most[leaf] + 1e-9 or (used[0] + step > capacity + 1e-9)[demand[leaf] > 0].any():
            out.add(leaf)
            continue
        tasks[leaf] += crumb[leaf]
        for q in line:
            used[q] += step
            count[q] += crumb[leaf]
    return tasks


@pytest.mark.parametrize("seed", range(12))
def test_bounds_of_inner_queues_are_those_of_serving_crumbs(seed):
    """Weights, guarantees, limits and max_tasks at every level, within what a few crumbs of everybody come to."""
    rng = np.random.default_rng(seed)
    parent = [-1, 0, 0, 1, 1, 2, 2, 0]
    n, m, leaves = len(parent), 2, [3, 4, 5, 6, 7]
    capacity = np.array([12.0, 18.0])
    demand = np.zeros((n, m))
    demand[leaves] = rng.integers(0, 4, (len(leaves), m))
    demand[leaves, 0] += ~demand[leaves].any(axis=1)
    most = rng.integers(1, 15, n).astype(float)
    weight = rng.integers(1, 4, (n, 1)) * np.ones((1, m))
    guarantee = np.where(rng.random((n, m)) < 0.2, rng.integers(1, 3, (n, m)), 0).astype(float)
    limit = np.where(rng.random((n, m)) < 0.3, guarantee + rng.integers(2, 8, (n, m)), INF)
    limit[0] = INF
    max_tasks = np.where(rng.random(n) < 0.2, rng.integers(1, 6, n), INF)
    crumb = np.zeros(n)
    crumb[leaves] = 0.004 / (demand[leaves] / capacity / weight[leaves]).max(axis=1)
    expected = served_in_crumbs(parent, capacity, demand, most, weight, guarantee, limit, max_tasks, crumb)[leaves]
    found = divide(parent, capacity, leaves, demand[leaves], most[leaves], weight, guarantee, limit, max_tasks)
    shares = (demand[leaves] / capacity).max(axis=1)
    assert found * shares == pytest.approx(expected * shares, abs=0.04)


def test_the_paper_s_example_in_a_tree():
    """Two teams share evenly, and of one of them twice as much goes to one of its two users."""
    found = divide([-1, 0, 0, 1, 1], [8], [2, 3, 4], [[1], [1], [1]], [100] * 3, np.array([[1.0], [1], [1], [2], [1]]))
    assert found == pytest.approx([4, float(Fraction(8, 3)), float(Fraction(4, 3))])
