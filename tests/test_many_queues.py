"""Queues that are created together have the rows that they would have if they came one after another."""

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import ROOT, Node, Queue, Settings
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, NodeJoined
from fairlead.scheduler.growth import ensure_queue, ensure_queues
from fairlead.scheduler.invariants import check_invariants

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


@settings(max_examples=60, deadline=None)
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
    order = [together.tree.rows[name] for name in single.tree.names]
    assert sorted(together.tree.names) == sorted(single.tree.names)
    for column in {*together.queues.FIELDS.names, *together.queues.WIDE} - {"parent"}:
        mine, other = getattr(together.queues, column)[order], getattr(single.queues, column)[: single.queues.n]
        assert np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f"), column
    parents = [[state.tree.names[p] for p in state.queues.parent[1 : state.queues.n]] for state in (together, single)]
    at = dict(zip(together.tree.names[1:], parents[0], strict=True))
    assert [at[name] for name in single.tree.names[1:]] == parents[1]
