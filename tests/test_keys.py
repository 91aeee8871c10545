"""Who goes before whom, exactly: the keys of queues against fractions."""

from fractions import Fraction
from functools import cmp_to_key
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeJoined
from fairlead.scheduler.invariants import check_order
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.view import CELLS, MOST_CELLS
from random_cases import cases
from worlds import placements

RESOURCES = ("cpu", "gpu", "memory")
NAMES = "abcde"

amounts = st.integers(0, 2**62) | st.integers(0, 30) | st.builds(lambda k: k * 2**56, st.integers(0, 60))
totals = st.integers(1, 2**62 - 1) | st.integers(1, 30)
weights = st.sampled_from([0.1, 0.3, 1 / 3, 2 / 3, 0.7, 1.0, 2.5, 3.0, 7.0, 2.0**30 - 1, 12345.678]) | st.integers(
    1, 2**30 - 1
).map(float)


def state_of(policy, capacity, declared):
    state = new_state()
    queues = [Queue(name, weight=weight) for name, weight in declared.items()]
    apply(state, Configured(at=0.0, queues=[Queue("", policy=policy), *queues], settings=Settings()))
    apply(state, NodeJoined(at=0.0, node=Node("n", capacity)))
    return state


def fraction(weight):
    return Fraction(repr(weight)).limit_denominator(2**30 - 1)


@st.composite
def siblings(draw, policy):
    """A state whose queues have keys, and the same keys as fractions."""
    capacity = {name: draw(totals) for name in RESOURCES}
    declared = {name: dict(zip(RESOURCES, draw(st.tuples(weights, weights, weights)), strict=True)) for name in NAMES}
    state = state_of(policy, capacity, declared)
    near, level = draw(st.booleans()), draw(st.fractions(0, 1, max_denominator=100))
    keys = {}
    for name in NAMES:
        q, shares = state.tree.rows[name], []
        for r, resource in enumerate(state.resources):
            even = int(capacity[resource] * fraction(declared[name][resource]) * level) + draw(st.integers(-1, 1))
            state.queues.used[q, r] = min(max(0, even), 2**62) if near else draw(amounts)
            share = Fraction(int(state.queues.used[q, r]), capacity[resource]) / fraction(declared[name][resource])
            if policy in ("drf", f"maxmin:{resource}"):
                shares.append(share)
        keys[q] = (max(shares), name)
    state.order.invalidate()
    v = state.order.ready(state, 1)
    for q in keys:
        scheduling.set_key(v, q)
    return state, v, keys


def goes_before(v, seats, a, b):
    key_a, key_b = ((seats.below[q], seats.first[q], seats.level[q]) for q in (a, b))
    return scheduling.queue_goes_before(v, a, *key_a, b, *key_b)


@pytest.mark.parametrize("policy", ["drf", "maxmin:memory"])
@settings(max_examples=cases(25), deadline=None)
@given(data=st.data())
def test_the_order_of_siblings_is_that_of_fractions(policy, data):
    state, v, keys = data.draw(siblings(policy))
    seats = state.order.queues
    for a in keys:
        for b in keys:
            if a != b:
                assert goes_before(v, seats, a, b) == (keys[a] < keys[b])
    in_order = sorted(keys, key=cmp_to_key(lambda a, b: -1 if goes_before(v, seats, a, b) else 1))
    assert in_order == sorted(keys, key=keys.get)


@settings(max_examples=cases(25), deadline=None)
@given(data=st.data())
def test_shares_of_different_resources_are_compared_as_fractions(data):
    state, v, keys = data.draw(siblings("drf"))
    a, b = list(keys)[:2]
    for ra in range(len(RESOURCES)):
        for rb in range(len(RESOURCES)):
            one, other = (
                Fraction(int(state.queues.used[q, r]), int(state.cluster.total[r])) / fraction(float(state.queues.weight[q, r]))
                for q, r in ((a, ra), (b, rb))
            )
            assert scheduling.compare_shares(v, a, ra, b, rb) == (one > other) - (one < other)


@pytest.mark.parametrize("policy", ["drf", "maxmin:cpu"])
@pytest.mark.parametrize(
    ("total", "first", "second"),
    [
        (22, (6, 3.0), (2, 1.0)),  # in floats 6/22/3 is less than 2/22
        (22, (2, 1.0), (6, 3.0)),
        (10, (3, 0.3), (1, 0.1)),
        (9, (1, 1 / 3), (3, 1.0)),
        (49, (10, 2.5), (4, 1.0)),
    ],
)
def test_equal_shares_are_a_tie_which_goes_to_who_was_served_longest_ago(policy, total, first, second):
    """All at one moment, so that nobody is owed more."""
    state = state_of(policy, {"cpu": total}, {"a": first[1], "b": second[1]})

    def place(count_a, count_b):
        for queue, count in (("a", count_a), ("b", count_b)):
            apply(state, JobSubmitted(at=0.0, id=state.index.last + 1, job=Job(queue, {"cpu": 1}, count)))

    place(first[0], second[0])
    facts = decide(state, 0.0).facts
    for fact in facts:
        apply(state, fact)
    last = placements(facts)[-1][0]
    assert state.queues.used[[state.tree.rows["a"], state.tree.rows["b"]], 0].tolist() == [first[0], second[0]]
    place(1, 1)
    assert [job for job, _ in placements(decide(state, 0.0).facts)] == ([4, 3] if last == 1 else [3, 4])


def test_a_sibling_whose_weight_is_too_large_to_be_exact_changes_how_all_are_compared():
    state = state_of("drf", {"cpu": 9}, {"u": 1.0, "u/a": 3.0, "u/*": 2.0**31})
    for queue, count in (("u/a", 2), ("u/b", 1)):
        apply(state, JobSubmitted(at=0.0, id=state.index.last + 1, job=Job(queue, {"cpu": 1}, count)))
        check_order(state)
        for fact in decide(state, 1.0, most=1).facts:
            apply(state, fact)
        check_order(state)


def test_the_cells_of_shapes_are_sorted_by_what_they_need():
    """Of more shapes than cells, so that some share a cell, whose least falls."""
    rng, counts = Random(5), []
    state = state_of("drf", {"cpu": 9, "memory": 2000}, {"a": 1.0})
    for k in range(100):
        demand = {"cpu": rng.randint(0, 9), "memory": rng.randint(1, 2000)}
        apply(state, JobSubmitted(at=float(k), id=k + 1, job=Job("a", demand)))
        decide(state, float(k))
        order, count = state.order, int(state.order.counts[CELLS])
        counts.append(count)
        for r in range(len(state.resources)):
            least, steps = order.cell_least[:count, r].tolist(), order.cell_steps[r].tolist()
            assert steps[:count] == sorted(least)
            for length, cells in enumerate(order.cell_sets[r, : count + 1].tolist()):
                assert sorted(least[c] for c in range(count) if cells >> c & 1) == steps[:length]
    assert counts[0] == 1
    assert counts[-1] == MOST_CELLS
