"""Guarantees that exceed what there is: scaled alike, at every level, and never a lock."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import ROOT, Queue, ancestors
from fairlead.scheduler import snapshot
from fairlead.scheduler.decide import decide
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeDrained, NodeLost, NodeResumed, TasksPlaced
from fairlead.scheduler.reports.fair_shares import fair_shares
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE
from test_claims import Story

KEEPS = {"cpu": 0}


def guarantees(story: Story, state: State | None = None) -> dict[str, int]:
    """What each queue is guaranteed now, in the order of their names."""
    state = state or story.state
    r = state.resources.index("cpu")
    return {name: int(state.queues.guarantee[row, r]) for name, row in sorted(state.tree.rows.items()) if name}


def test_two_that_are_guaranteed_everything_and_lend_nothing_have_halves():
    queues = [Queue(name, guarantee={"cpu": 4}, lend=KEEPS) for name in "ab"]
    story = Story([{"cpu": 4}], queues)
    story.job(0.0, "a", 1000.0, 4, cpu=1)
    story.job(0.0, "b", 1000.0, 4, cpu=1)
    story.until(0.0)
    assert (story.runs("a"), story.runs("b")) == (2, 2)


def test_fair_shares_are_what_scaled_guarantees_are_rounded_to():
    """Eight of nine parts: what rounding leaves, less than a unit of each, goes to nobody."""
    story = Story([{"cpu": 8000}], [Queue("a", guarantee={"cpu": 8000}), Queue("b", guarantee={"cpu": 1000})])
    state = story.state
    assert state.queues.guarantee[1:3, 0].tolist() == fair_shares(state).steady[1:3, 0].tolist() == [7111, 888]


@pytest.mark.parametrize("had_jobs", [False, True])
def test_a_queue_that_is_removed_is_guaranteed_nothing_and_keeps_nothing_from_others(had_jobs):
    story = Story([{"cpu": 16}], [Queue("b", guarantee={"cpu": 14}, lend=KEEPS), Queue("c", guarantee={"cpu": 10}), Queue("e")])
    if had_jobs:
        story.job(0.0, "b", 5.0, 2, cpu=1)
    story.until(1.0)
    assert guarantees(story)["c"] < 10
    story.happen(Configured(at=2.0, queues=[Queue("c", guarantee={"cpu": 10}), Queue("e")], settings=story.state.settings))
    assert guarantees(story) == {"b": 0, "c": 10, "e": 0}
    story.job(3.0, "e", 1000.0, 30, cpu=1)
    story.until(30.0)
    assert story.runs("e") == 16
    assert guarantees(story, snapshot.load(snapshot.dump(story.state)))["c"] == 10


def test_guarantees_follow_a_lost_node_and_its_return():
    """What a queue lends is scaled with its guarantee: b keeps one of two, then half of one."""
    queues = [Queue("a", guarantee={"cpu": 6}), Queue("b", guarantee={"cpu": 2}, lend={"cpu": 1})]
    story = Story([{"cpu": 4}, {"cpu": 4}], queues)
    assert guarantees(story) == {"a": 6, "b": 2}
    story.happen(NodeLost(at=1.0, node="n1"))
    assert guarantees(story) == {"a": 3, "b": 1}
    story.job(1.0, "a", 1000.0, 8, cpu=1)
    story.until(1.0)
    assert story.runs("a") == 4  # of one, b keeps a half, and tasks are whole
    story.job(2.0, "b", 1000.0, 8, cpu=1)
    story.until(60.0)
    assert (story.runs("a"), story.runs("b")) == (3, 1)


def test_a_node_that_drains_is_guaranteed_to_nobody():
    """Who uses all of the other node gives half of it back, though what they have is within their guarantee as declared."""
    story = Story([{"cpu": 4}, {"cpu": 4}], [Queue(name, guarantee={"cpu": 4}) for name in "ab"])
    story.happen(NodeDrained(at=0.0, node="n1"))
    assert guarantees(story) == {"a": 2, "b": 2}
    story.job(1.0, "b", 1000.0, 8, cpu=1)
    story.job(2.0, "a", 1000.0, 8, cpu=1)
    story.until(60.0)
    assert (story.runs("a"), story.runs("b")) == (2, 2)
    story.happen(NodeResumed(at=60.0, node="n1"))
    assert guarantees(story) == {"a": 4, "b": 4}


@pytest.mark.parametrize("mesos", [True, False])
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_quota_that_is_not_lent_is_free_where_tasks_are_placed(mesos, data):
    """Whatever drains, and is resumed or lost: others leave it free, and its owner has it at once.

    Only where all that takes tasks is quota one task of others runs in it, as documented.
    """
    nodes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    quota = data.draw(st.integers(1, sum(nodes)))
    queues = [Queue("", policy="mesos" if mesos else "drf"), Queue("a", guarantee={"cpu": quota}, lend={} if mesos else KEEPS)]
    queues.append(Queue("b"))
    story = Story([{"cpu": cpus} for cpus in nodes], queues, revoke=False)
    state, there = story.state, dict(enumerate(nodes))
    for at in range(1, 12):
        n, what = data.draw(st.sampled_from(range(len(nodes)))), data.draw(st.sampled_from([NodeDrained, NodeResumed, NodeLost]))
        if state.nodes.up[n] and (what is not NodeLost or state.nodes.task[n] == NONE):
            story.happen(what(at=float(at), node=f"n{n}"))
            there.pop(n, None)
            there |= {n: nodes[n]} if what is NodeResumed else {}
        queue, before = data.draw(st.sampled_from("ab")), {name: story.runs(name) for name in "ab"}
        story.job(float(at), queue, data.draw(st.floats(0.5, 9.0)), data.draw(st.integers(1, 4)), cpu=1)
        story.until(float(at))
        free = sum(int(state.nodes.free[k, state.resources.index("cpu")]) for k in there)
        kept = min(quota, sum(there.values()))
        if story.runs("b") > before["b"] and kept < sum(there.values()):
            assert free >= kept - story.runs("a")
        jobs = state.jobs
        waits = jobs.waiting[: jobs.n][jobs.queue[: jobs.n] == state.tree.rows["a"]].sum()
        assert not waits or free == 0


def test_where_mesos_shares_two_quotas_of_everything_do_not_lock():
    queues = [Queue("", policy="mesos"), Queue("a", guarantee={"cpu": 4}), Queue("b", guarantee={"cpu": 4})]
    story = Story([{"cpu": 4}], queues)
    story.job(0.0, "a", 1000.0, 4, cpu=1)
    story.until(0.0)
    assert story.runs("a") == 2


def test_each_new_user_of_a_queue_for_users_shares_what_there_is():
    story = Story([{"cpu": 4}], [Queue("lab", guarantee={"cpu": 4}), Queue("lab/*", guarantee={"cpu": 2})])
    for k, name in enumerate("abcd"):
        story.job(float(k), f"lab/{name}", 1000.0, 4, cpu=1)
    story.until(100.0)
    assert guarantees(story) == {"lab": 4, "lab/a": 1, "lab/b": 1, "lab/c": 1, "lab/d": 1}
    assert [story.runs(f"lab/{name}") for name in "abcd"] == [1, 1, 1, 1]


def test_a_queue_guaranteed_nothing_passes_on_what_those_below_it_are():
    queues = [
        Queue("o"),
        Queue("o/a", guarantee={"cpu": 6}),
        Queue("o/b", guarantee={"cpu": 2}),
        Queue("c", guarantee={"cpu": 8}),
    ]
    assert guarantees(Story([{"cpu": 8}], queues)) == {"c": 4, "o": 0, "o/a": 3, "o/b": 1}


@pytest.mark.parametrize("lends", [{}, KEEPS])
def test_an_idle_cluster_withholds_nothing(lends):
    """B needs three of four; two are a's, who needs none and lends none."""
    story = Story([{"cpu": 4}], [Queue("a", guarantee={"cpu": 2}, lend=lends), Queue("b")])
    story.job(0.0, "b", 10.0, 2, cpu=3)
    story.until(100.0)
    assert story.began[1] == [0.0, 10.0]


def test_what_is_not_lent_is_scaled_where_guarantees_are_minimums():
    """Twelve CPUs are not lent, and there are four: still somebody else's task runs on an idle cluster."""
    queues = [Queue(ROOT, policy="yarn-drf"), Queue("a", guarantee={"cpu": 12}, lend=KEEPS), Queue("b")]
    story = Story([{"cpu": 4}], queues)
    assert guarantees(story) == {"a": 12, "b": 0}
    story.job(0.0, "b", 1000.0, 2, cpu=3)
    story.until(0.0)
    assert story.runs("b") == 1


def test_what_is_not_lent_does_not_stop_for_ever_what_never_fits_beside_it():
    """A's task of three fits beside what it runs, and b, whose two it takes one of, has nothing to run."""
    story = Story([{"cpu": 4}], [Queue(name, guarantee={"cpu": 2}, lend=KEEPS) for name in "ab"])
    story.job(0.0, "a", 1000.0, cpu=1)
    story.job(1.0, "a", 10.0, cpu=3)
    assert story.until(100.0).began == {1: [0.0], 2: [1.0]}


def test_of_tasks_that_never_fit_beside_what_is_not_lent_one_runs_at_a_time():
    """All is guaranteed and not lent: c has one that is idle; b has its two at once, and a its second when c gives it back."""
    queues = [*(Queue(name, guarantee={"cpu": 2}, lend=KEEPS) for name in "ab"), Queue("c")]
    story = Story([{"cpu": 4}], queues)
    story.job(0.0, "a", 1000.0, cpu=1)
    story.job(0.0, "c", 100.0, 3, cpu=1)
    assert story.until(150.0).began[2] == [0.0, 100.0]
    story.job(160.0, "b", 1000.0, 2, cpu=1)
    assert story.until(170.0).began[3] == [160.0, 160.0]
    story.job(180.0, "a", 10.0, 2, cpu=1)
    assert story.until(190.0).began.get(4, []) == []
    assert story.until(300.0).began[4][:1] == [200.0]


def test_nobody_is_preempted_again_and_again_for_a_queue_within_its_own_quota():
    """S runs in what is not lent, since its tasks are larger. A lacks a part of its guarantee that is no whole task."""
    queues = [Queue("a", guarantee={"cpu": 5}, lend=KEEPS), Queue("b", guarantee={"cpu": 4}, lend=KEEPS), Queue("s")]
    story = Story([{"cpu": 9}], queues)
    story.job(0.0, "a", 7.0, 10, cpu=2)
    story.job(1.0, "s", 1000.0, cpu=2)
    story.job(2.0, "a", 7.0, 90, cpu=2)
    story.until(200.0)
    assert len(story.began[2]) == 1
    assert len(story.began[1]) + len(story.began[3]) > 50


@pytest.mark.parametrize(("lends", "together"), [({}, True), (KEEPS, False)])
def test_quota_that_is_not_lent_stays_free_once_anything_is_used(lends, together):
    """One task of B runs in what is not A's; the next one would fit, in A's."""
    story = Story([{"cpu": 4}], [Queue("a", guarantee={"cpu": 2}, lend=lends), Queue("b")])
    story.job(0.0, "b", 10.0, 2, cpu=2)
    story.until(100.0)
    assert story.began[1] == ([0.0, 0.0] if together else [0.0, 10.0])


NAMES = ("a", "b", "a/x", "a/y", "b/x", "b/x/u", "c")


@given(
    declared=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2**58), min_size=1),
    total=st.integers(0, 2**60),
    later=st.integers(0, 2**60),
)
def test_scaled_guarantees_are_those_of_exact_fractions(declared, total, later):
    queues = [Queue(name, guarantee={"cpu": declared[name]} if name in declared else {}) for name in NAMES]
    story = Story([], queues)
    for capacity in (total, later):
        total = np.array([capacity] + [0] * (len(story.state.resources) - 1), np.int64)
        story.state.tree.follow_total(story.state.queues, story.state.resources, total, total)
        if not any(declared.values()):
            return
        expected = _scaled(declared, capacity)
        for name, amount in guarantees(story).items():
            assert amount <= expected[name]
            assert amount > expected[name] - 1 - len(ancestors(name))  # each level rounds down


def _scaled(declared: dict[str, int], total: int) -> dict[str, Fraction]:
    """The definition, a level at a time, on exact fractions."""
    children = {up: [name for name in NAMES if ancestors(name)[0] == up] for up in ("", *NAMES)}

    def asked(name: str) -> int:
        return declared.get(name, 0) or sum(asked(child) for child in children[name])

    found = {}

    def divide(name: str, room: Fraction) -> None:
        sums = sum(asked(child) for child in children[name])
        for child in children[name]:
            granted = asked(child) * min(Fraction(1), room / sums) if sums else Fraction(0)
            found[child] = granted if declared.get(child) else Fraction(0)
            divide(child, granted)

    divide("", Fraction(total))
    return found


@settings(max_examples=20, deadline=None)
@given(size=st.integers(2, 9), data=st.data())
def test_nobody_waits_for_ever_who_fits_beside_what_runs_but_never_beside_what_is_not_lent(size, data):
    """One cpu runs for ever. Jobs of others are larger than all that is ever lent to them, and end one after another."""
    least = [data.draw(st.integers(1, size)) for _ in "abc"]
    story = Story([{"cpu": size}], [Queue(name, guarantee={"cpu": n}, lend=KEEPS) for name, n in zip("abc", least, strict=True)])
    has = guarantees(story)
    story.job(0.0, "c", 10.0**8, cpu=1)
    for _ in range(data.draw(st.integers(1, 4))):
        who = data.draw(st.sampled_from("ab"))
        lent = size - sum(has.values()) + has[who]
        tasks = data.draw(st.integers(1, size - 1))
        if lent // tasks < (size - 1) // tasks:
            cpus = data.draw(st.integers(lent // tasks + 1, (size - 1) // tasks))
            story.job(float(data.draw(st.integers(0, 20))), who, 10.0, tasks, gang=True, cpu=cpus)
    story.until(1000.0)
    waits = story.state.groups.head[: story.state.groups.n]
    assert not (waits != NONE).any(), [story.state.jobs.id[row] for row in waits]


@settings(deadline=None)
@given(data=st.data())
def test_no_configuration_idles_a_cluster_on_which_some_task_fits(data):
    amount = st.integers(0, 12)
    queues = []
    for name in data.draw(st.lists(st.sampled_from(("a", "b", "c", "d")), min_size=1, unique=True)):
        guarantee = {"cpu": data.draw(amount)}
        lend = {"cpu": data.draw(st.integers(0, guarantee["cpu"]))} if data.draw(st.booleans()) else {}
        queues.append(Queue(name, guarantee=guarantee, lend=lend))
    queues.append(Queue("", policy=data.draw(st.sampled_from(("drf", "mesos", "fifo", "yarn-drf")))))
    story = Story([{"cpu": cpus} for cpus in data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))], queues)
    largest = int(story.state.nodes.capacity.max())
    for name in data.draw(st.lists(st.sampled_from([queue.name for queue in queues if queue.name]), min_size=1)):
        story.job(0.0, name, 1000.0, data.draw(st.integers(1, 3)), cpu=data.draw(st.integers(1, largest)))
    for k, (_, job, _) in enumerate(story.coming):
        story.happen(JobSubmitted(at=0.0, id=k + 1, job=job))
    facts = decide(story.state, 0.0).facts
    assert any(isinstance(fact, TasksPlaced) for fact in facts)
    assert guarantees(story) == guarantees(story, snapshot.load(snapshot.dump(story.state)))


def test_a_queue_that_comes_later_is_never_lent_what_others_keep():
    """A recovered state knows it, so the state that goes on must: a task that needs all but what is kept waits for that much."""
    story = Story([{"cpu": 4}], [Queue("a", guarantee={"cpu": 3}, lend=KEEPS), Queue("b")])
    for number, queue in enumerate(["b", "c", "d/e"]):
        story.job(float(number), queue, 10.0, cpu=4)
    story.until(0.0)
    story.until(2.0)
    recovered = snapshot.load(snapshot.dump(story.state))
    assert (
        story.state.queues.never_lent[: story.state.queues.n].tolist()
        == recovered.queues.never_lent[: recovered.queues.n].tolist()
    )
