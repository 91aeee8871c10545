"""Queues that are created together have the rows that they would have if they came one after another."""

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import ROOT, Node, Queue, Settings
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, NodeJoined
from fairlead.scheduler.growth import ensure_queue, ensure_queues, write_queue
from fairlead.scheduler.history import share_evenly
from fairlead.scheduler.invariants import check_invariants
from fairlead.scheduler.queue_tree import mark_exact
from fairlead.scheduler.snapshot import copy_of
from random_cases import cases

NAMES = [f"{above}{leaf}" for above in ("", "a/", "b/", "b/c/") for leaf in ("x", "y", "z1", "z", "m")]


def configured(policy, guarantee):
    state = new_state()
    apply(state, NodeJoined(at=0.0, node=Node("n", {"cpu": 8000, "memory": 10**9})))
    percent = {"memory": 50.0} if guarantee else {}
    queues = [
        Queue(ROOT, policy=policy),
        Queue("*"),
        Queue("a", policy="drf" if policy == "sdrf" else "sdrf", weight=2.0, min_runtime=7.0),
        Queue("a/*", guarantee={"cpu": 100} if guarantee else {}, guarantee_percent=percent, weight={"cpu": 3.0}),
        Queue("a/m", limit={"gpu": 1000}),
        Queue("b", fair_share_timeout=9.0),
    ]
    apply(state, Configured(at=1.0, queues=queues, settings=Settings()))
    return state


def columns_of(state):
    return {*state.queues.FIELDS.names, *state.queues.WIDE}


def assert_declared(state):
    """Writing each queue's declaration again changes nothing."""
    queues = state.queues
    before = {name: getattr(queues, name)[: queues.n].copy() for name in columns_of(state)}
    for row in range(queues.n):
        write_queue(state, row)
    state.tree.write_guarantees(queues, state.cluster.total)
    share_evenly(queues, state.cluster.total)
    mark_exact(queues)
    for name, values in before.items():
        assert np.array_equal(values, getattr(queues, name)[: queues.n], equal_nan=values.dtype.kind == "f"), name


@settings(max_examples=cases(20), deadline=None)
@given(
    names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=20),
    policy=st.sampled_from(["drf", "sdrf", "mesos", "fairtree"]),
    guarantee=st.booleans(),
)
def test_queues_created_together_equal_those_created_one_by_one(names, policy, guarantee):
    together, single = configured(policy, guarantee), configured(policy, guarantee)
    with mock.patch("fairlead.scheduler.growth.MANY_KINDS", 0):
        ensure_queues(together, names)
    for name in names:
        ensure_queue(single, name)
    check_invariants(together)
    check_invariants(single)
    for state in (together, single):
        assert_declared(state)
    order = [together.tree.rows[name] for name in single.tree.names]
    assert sorted(together.tree.names) == sorted(single.tree.names)
    for column in columns_of(together) - {"parent", "rank"}:
        mine, other = getattr(together.queues, column)[order], getattr(single.queues, column)[: single.queues.n]
        assert np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f"), column
    parents = [[state.tree.names[p] for p in state.queues.parent[1 : state.queues.n]] for state in (together, single)]
    at = dict(zip(together.tree.names[1:], parents[0], strict=True))
    assert [at[name] for name in single.tree.names[1:]] == parents[1]


@settings(max_examples=cases(15), deadline=None)
@given(st.lists(st.text("abc-", min_size=1, max_size=9), min_size=1, max_size=300), st.integers(1, 40))
def test_queues_are_ranked_by_name_whatever_the_order_they_come_in(names, together):
    state = new_state()
    ensure_queues(state, (f"a{k:04}" for k in range(0, 8000, 8)))
    for k in range(0, len(names), together):
        ensure_queues(state, names[k : k + together])
    for k in range(40):  # all between the same two
        ensure_queue(state, f"a0008{'0' * (40 - k)}")
    check_invariants(state)
    copy = copy_of(state)
    ensure_queue(copy, "a0000-new")
    check_invariants(copy)
    check_invariants(state)
