"""Fair over time: what queues used before is a part of their keys. Stories in virtual time, and the rule against fractions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler import snapshot
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Configured,
    Fact,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeResumed,
    TasksFinished,
    TasksPlaced,
)
from fairlead.scheduler.state import State
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs
from random_cases import cases
from test_histories import allowed, one_by_one
from worlds import same

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


class Story:
    """People with work for ever on one machine, and what they have had of it."""

    def __init__(self, capacity: dict[str, int], queues: list[Queue] | None = None) -> None:
        self.jobs, self.nodes, self.queues = Jobs(), [Node("n", capacity)], queues or []

    def works(self, who: str, demand: dict[str, int], seconds: float, tasks: int, at: float = 0.0) -> None:
        self.jobs.add(at, who, demand, seconds, tasks)

    def run(self, policy: str = "drf", **more) -> Story:
        """Have it happen. `pieces` are who ran a task, from when to when, and what it took, in the order of their ends."""
        self.facts: list[Fact] = []
        workload = self.jobs.workload("story", self.nodes, self.queues)
        who = dict(enumerate(workload.queue, 1))
        simulate(workload, policy, record=self.facts.extend, samples=1, **more)
        self.who, self.pieces = set(who.values()), []
        began: dict[tuple[int, int], float] = {}
        for fact in self.facts:
            if isinstance(fact, TasksPlaced | TasksFinished):
                for job, index in zip(fact.job.tolist(), fact.index.tolist(), strict=True):
                    if isinstance(fact, TasksPlaced):
                        began[job, index] = fact.at
                    else:
                        demand = workload.demands[workload.shape[job - 1]]
                        self.pieces.append((who[job], began.pop((job, index)), fact.at, demand))
        return self

    def served(self, begin: float, end: float) -> dict[str, int]:
        """How many tasks of each ended in a while."""
        ended = Counter(who for who, _, at, _ in self.pieces if begin <= at < end)
        return {who: ended[who] for who in self.who}

    def used(self, begin: float, end: float, resource: str = "cpu") -> dict[str, float]:
        """How many CPUs each had on average."""
        found = dict.fromkeys(self.who, 0.0)
        for who, b, e, demand in self.pieces:
            found[who] += max(0.0, min(end, e) - max(begin, b)) * demand[resource]
        return {who: amount / (end - begin) / 1000 for who, amount in found.items()}


def test_who_comes_last_by_name_has_as_much_as_the_others():
    story = Story({"cpu": 2000, "memory": 2**33})
    for k, who in enumerate(("zoe", "bob", "alice")):
        story.works(who, {"cpu": 1000, "memory": 2**26}, 0.3, 2000, at=0.05 * k)
    story.run()
    for begin, end in ((0.0, 30.0), (0.0, 420.0), (390.0, 420.0)):
        served = story.served(begin, end)
        assert max(served.values()) - min(served.values()) <= 2, served


@pytest.mark.parametrize("half_life", [3600.0, DAY, 30 * DAY])
def test_little_use_is_charged_of_all_resources_alike(half_life):
    """A thousandth of a GPU is no coarser than a byte of memory: who asks for more of that has as much of the GPU."""
    story = Story({"gpu": 1000, "memory": 2**39})
    story.works("small", {"gpu": 1000, "memory": 2**26}, 1.0, 300)
    story.works("large", {"gpu": 1000, "memory": 2**30}, 1.0, 300)
    story.run(history=half_life)
    for end in (30.0, 120.0, 600.0):
        used = story.used(0.0, end, "gpu")
        assert abs(used["small"] - used["large"]) <= 6.0 / end + 1e-9, (end, used)


def test_a_weight_counts_among_more_people_than_slots():
    story = Story({"cpu": 2000}, [Queue("ann", weight=10.0), Queue("bob"), Queue("cid")])
    for who in ("ann", "bob", "cid"):
        story.works(who, {"cpu": 1000}, 60.0, 6000)
    story.run()
    used = story.used(0.5 * DAY, 1.5 * DAY)
    assert used["ann"] > 0.99, used
    assert used["bob"] == pytest.approx(used["cid"], rel=0.02)


def test_asking_for_a_little_less_gains_a_little_only():
    story = Story({"cpu": 3000})
    story.works("less", {"cpu": 999}, 100.0, 5000)
    story.works("more", {"cpu": 1000}, 100.0, 5000)
    story.run()
    used = story.used(0.0, 2 * DAY)
    assert abs(used["less"] - used["more"]) < 0.03, used
    without = Story({"cpu": 3000})
    without.works("less", {"cpu": 999}, 100.0, 5000)
    without.works("more", {"cpu": 1000}, 100.0, 5000)
    without.run(history=0.0)
    assert without.used(0.0, DAY)["less"] < 1.6, "without history debts do it"


def test_a_newcomer_gets_ahead_for_a_while_and_shuts_nobody_out():
    story = Story({"cpu": 12000})
    week = 7 * DAY
    for who in ("ann", "bob"):
        story.works(who, {"cpu": 1000}, 600.0, 12_000)
    story.works("new", {"cpu": 1000}, 600.0, 6000, at=week)
    story.run()
    first = story.used(week + HOUR, week + 4 * HOUR)
    assert first["new"] > 4.5, first
    assert min(first["ann"], first["bob"]) >= 2.0, first
    later = story.used(week + 5 * DAY, week + 7 * DAY)
    assert max(later.values()) - min(later.values()) < 0.3, later


def test_a_former_hog_among_ten_newcomers_keeps_half_of_what_it_is_entitled_to():
    story = Story({"cpu": 44000})
    story.works("hog", {"cpu": 1000}, 600.0, 52_000)
    for k in range(10):
        story.works(f"new{k}", {"cpu": 1000}, 600.0, 700, at=7 * DAY)
    story.run()
    for hour in range(1, 24):
        used = story.used(7 * DAY + hour * HOUR, 7 * DAY + (hour + 1) * HOUR)
        assert used["hog"] >= 1.99, (hour, used)
    assert used["hog"] < min(used[f"new{k}"] for k in range(10))


def test_turns_go_by_hours_and_not_by_the_number_of_tasks():
    story = Story({"cpu": 1000})
    story.works("short", {"cpu": 1000}, 10.0, 20_000)
    story.works("long", {"cpu": 1000}, 1000.0, 200)
    story.run()
    used = story.used(0.0, DAY)
    assert used["short"] == pytest.approx(used["long"], rel=0.1), used
    assert story.served(0.0, DAY)["short"] > 50 * story.served(0.0, DAY)["long"]


def test_teams_take_turns_and_people_within_them():
    people = ["big/ann", "big/bob", "big/cid", "mid/dan", "mid/eve", "one/flo"]
    tree = [Queue(team) for team in ("big", "mid", "one")] + [Queue(name) for name in people]
    story = Story({"cpu": 2000}, tree)
    for who in people:
        story.works(who, {"cpu": 1000}, 300.0, 1000)
    story.run()
    used = story.used(0.0, 1.5 * DAY)
    for team, size in (("big", 3), ("mid", 2), ("one", 1)):
        each = [amount for who, amount in used.items() if who.startswith(team)]
        assert sum(each) == pytest.approx(2 / 3, rel=0.02)
        assert each == pytest.approx([2 / 3 / size] * size, rel=0.05)


def test_without_history_or_with_another_half_life_below():
    tree = [Queue("", history=0.0), Queue("now"), Queue("now/*"), Queue("then", history=HOUR), Queue("then/*")]
    state = scheduler({"cpu": 4000}, tree)
    for who in ("now/ann", "then/bob"):
        submit(state, 0.0, who, {"cpu": 1000})
    for fact in decide(state, 0.0).facts:
        apply(state, fact)
    submit(state, 3 * HOUR, "now/ann", {"cpu": 1000})
    mean = {name: int(state.queues.mean[row, 0]) / 4096 for name, row in state.tree.rows.items()}
    assert mean.pop("then/bob") == pytest.approx(875, abs=2)
    assert set(mean.values()) == {0.0}


# -- the rule -------------------------------------------------------------------------------------------------------


def scheduler(capacity: dict[str, int], queues: list[Queue], at: float = 0.0) -> State:
    state = new_state()
    apply(state, Configured(at=at, queues=queues, settings=Settings(idle_budget=0.0)))
    apply(state, NodeJoined(at=at, node=Node("n", capacity)))
    return state


def submit(state: State, at: float, who: str, demand: dict[str, int], tasks: int = 1) -> None:
    apply(state, JobSubmitted(at=at, id=state.index.last + 1, job=Job(who, demand, tasks)))


def end(state: State, at: float, job: int) -> None:
    one = np.array([0])
    apply(state, TasksFinished(at=at, job=np.array([job]), index=one, attempt=one + 1, outcome=one, code=one))


@settings(max_examples=cases(8), deadline=None)
@given(
    half_life=st.sampled_from([1.0, 30.0, 5000.0]),
    tasks=st.lists(
        st.tuples(st.sampled_from(["a/x", "a/y", "b"]), st.integers(1, 5), st.floats(0, 300), st.sampled_from([0.3, 20.0, 4e4])),
        min_size=1,
        max_size=12,
    ),
    began=st.sampled_from([0.0, 1.7e9]),
    coarse=st.sampled_from([1, 2**54]),
)
def test_the_mean_is_what_was_used_faded_tick_by_tick(half_life, tasks, began, coarse):
    """Against a sum over ticks in floating point, of what ran in each of them."""
    tree = [Queue("", history=half_life), Queue("a"), Queue("a/*"), Queue("b")]
    state = scheduler({"cpu": 100 * coarse, "memory": 100}, tree, began)
    happens = [(at, 1, k) for k, (_, _, at, _) in enumerate(tasks)]
    happens += [(at + seconds, 0, k) for k, (_, _, at, seconds) in enumerate(tasks)]
    number = {}
    for at, begins, k in sorted(happens):
        if begins:
            submit(state, began + at, tasks[k][0], {"cpu": tasks[k][1] * coarse})
            number[k] = state.index.last
            for fact in decide(state, began + at).facts:
                apply(state, fact)
        else:
            end(state, began + at, number[k])
    last = max(happens)[0]
    tick = max(1.0, half_life / 1024)
    over = int(((began + last) - began) / tick)
    kept = 2.0 ** (-tick / half_life)
    for name, row in state.tree.rows.items():
        if name:
            expected = 0.0
            for who, cpu, at, seconds in tasks:
                if f"{who}/".startswith(f"{name}/"):
                    for k in range(int(at / tick), min(over, int((at + seconds) / tick) + 1)):
                        part = max(0.0, min(at + seconds, (k + 1) * tick) - max(at, k * tick)) / tick
                        expected += cpu * part * (1 - kept) * kept ** (over - 1 - k)
            found = (int(state.queues.mean[row, 0]) << int(state.grain[0])) / 4096 / coarse
            assert found == pytest.approx(expected, abs=0.01 + (0.05 if began else 0)), name
    assert same(snapshot.load(snapshot.dump(state))) == same(state)
    before = state.queues.mean.copy()
    submit(state, began + last + 40 * 64 * half_life, "b", {"memory": 1})
    assert not state.queues.mean.any() or (coarse == 1 and state.queues.mean.max() < before.max())


def test_what_was_used_once_is_forgotten_wholly_in_the_end():
    state = scheduler({"cpu": 4000, "memory": 2**50}, [Queue("*")])
    submit(state, 0.0, "ann", {"cpu": 4000, "memory": 2**50})
    for fact in decide(state, 0.0).facts:
        apply(state, fact)
    end(state, 30 * DAY, 1)
    assert state.queues.mean[state.tree.rows["ann"]].all()
    submit(state, 100 * DAY, "bob", {"cpu": 1})
    assert not state.queues.mean.any()


def test_a_clock_that_steps_back_takes_nothing_away():
    state = scheduler({"cpu": 4000}, [Queue("*")], at=1000.0)
    submit(state, 2000.0, "ann", {"cpu": 1000})
    for fact in decide(state, 2000.0).facts:
        apply(state, fact)
    submit(state, 4000.0, "bob", {"cpu": 1000})
    mean = state.queues.mean.copy()
    end(state, 10.0, 1)
    assert (state.queues.mean == mean).all()
    assert (state.queues.recent >= 0).all()
    submit(state, 4100.0, "bob", {"cpu": 1000})
    assert (state.queues.mean >= 0).all()


def test_a_reload_keeps_history_and_another_half_life_goes_on_from_it():
    state = scheduler({"cpu": 4000}, [Queue("*")])
    submit(state, 0.0, "ann", {"cpu": 4000})
    for fact in decide(state, 0.0).facts:
        apply(state, fact)
    submit(state, DAY, "bob", {"cpu": 1000})
    row = state.tree.rows["ann"]
    assert state.queues.mean[row, 0] / 4096 == pytest.approx(2000, rel=0.01)
    mean = state.queues.mean[row, 0]
    apply(state, Configured(at=DAY, queues=[Queue("*", weight=2.0)], settings=Settings()))
    assert state.queues.mean[row, 0] == mean
    apply(state, Configured(at=DAY, queues=[Queue("", history=HOUR), Queue("*")], settings=Settings()))
    assert state.queues.mean[row, 0] == mean
    submit(state, DAY + HOUR, "bob", {"cpu": 1000})
    assert state.queues.mean[row, 0] / 4096 == pytest.approx(3000, rel=0.01)
    apply(state, Configured(at=DAY + HOUR, queues=[Queue("", history=0.0), Queue("*")], settings=Settings()))
    assert not state.queues.mean.any()


@settings(max_examples=cases(10), deadline=None)
@given(data=st.data(), resources=st.integers(1, 3), policy=st.sampled_from(["drf", "drf", "hdrf"]))
def test_nobody_with_work_is_below_half_of_what_the_weight_entitles_to(data, resources, policy):
    """Whatever was used before: tasks that are small beside the cluster, several resources, weights; one level."""
    names = ["cpu", "gpu", "memory"][:resources]
    size = 20_000
    demand = st.fixed_dictionaries({name: st.integers(0, 20) for name in names}).filter(lambda d: any(d.values()))
    people = data.draw(st.lists(st.tuples(st.integers(1, 5), demand), min_size=2, max_size=6))
    queues = [Queue("", policy=policy), *(Queue(f"q{k}", weight=float(w)) for k, (w, _) in enumerate(people))]
    state = scheduler(dict.fromkeys(names, size), queues)
    for k, (_, need) in enumerate(people):
        submit(state, 0.0, f"q{k}", need, 20_000)
        for r in range(len(state.resources)):
            state.queues.mean[state.tree.rows[f"q{k}"], r] = data.draw(st.integers(0, size)) * 4096
    state.order.invalidate()
    decision = decide(state, 0.0, most=10**6)
    for fact in decision.facts:
        apply(state, fact)
    everybody = sum(weight for weight, _ in people)
    for k, (weight, need) in enumerate(people):
        share = max(state.queues.used[state.tree.rows[f"q{k}"]]) / size
        assert share >= weight / everybody / 2 - 2 * max(need.values()) / size, f"q{k}"


@settings(max_examples=cases(10), deadline=None)
@given(data=st.data())
def test_nobody_in_a_tree_is_below_half_of_what_the_weight_entitles_to_of_what_the_parent_has(data):
    size, paths = 20_000, ["p", "q", "q/a", "q/b", "q/b/c", "q/b/d"]
    weights = {path: float(data.draw(st.integers(1, 9))) for path in paths}
    state = scheduler({"cpu": size}, [Queue(path, weight=weight) for path, weight in weights.items()])
    for leaf in ("p", "q/a", "q/b/c", "q/b/d"):
        submit(state, 0.0, leaf, {"cpu": 10}, 4000)
    for path in paths:
        state.queues.mean[state.tree.rows[path], 0] = data.draw(st.sampled_from([0, size // 10, size])) * 4096
    state.order.invalidate()
    for fact in decide(state, 0.0, most=10**6).facts:
        apply(state, fact)
    for path in paths:
        q = state.tree.rows[path]
        siblings = [other for other in paths if state.queues.parent[state.tree.rows[other]] == state.queues.parent[q]]
        entitled = weights[path] / sum(weights[other] for other in siblings) * state.queues.used[state.queues.parent[q], 0]
        assert state.queues.used[q, 0] >= entitled / 2 - 20, path


@settings(max_examples=cases(4), deadline=None)
@given(slots=st.integers(1, 6), people=st.lists(st.tuples(st.integers(1, 4), st.integers(20, 400)), min_size=2, max_size=6))
def test_who_always_has_work_comes_to_within_a_task_of_the_others_by_weight(slots, people):
    queues = [Queue(f"q{k}", weight=float(weight)) for k, (weight, _) in enumerate(people)]
    story = Story({"cpu": 1000 * slots}, queues)
    half_life, span = 2 * HOUR, 24 * HOUR
    for k, (_, seconds) in enumerate(people):
        story.works(f"q{k}", {"cpu": 1000}, float(seconds), int(slots * span / seconds) + slots)
    story.run(history=half_life)
    used = story.used(0.5 * span, 0.9 * span)
    by_weight = [used[f"q{k}"] / weight for k, (weight, _) in enumerate(people)]
    assert max(by_weight) - min(by_weight) <= 1.0, by_weight


@settings(max_examples=cases(8), deadline=None)
@given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 20), st.sampled_from(["a/x", "a/y", "b", "c"]), st.integers(1, 5), st.integers(0, 4), st.integers(1, 6)
        ),
        min_size=1,
        max_size=12,
    )
)
def test_without_history_each_placement_is_one_that_shares_alone_allow(jobs):
    """But for exact ties: by the rules of tests/test_histories.py, which look at nothing else."""
    tree = [Queue("a", weight=2.0), Queue("a/x"), Queue("a/y"), Queue("b"), Queue("c", weight=0.5)]
    story = Story({"cpu": 8, "memory": 8}, tree)
    for at, who, cpu, memory, tasks in jobs:
        story.works(who, {"cpu": cpu, "memory": memory}, 3.0 + cpu, tasks, at=float(at))
    story.run(history=0.0, settings=Settings(idle_budget=0.0))
    state = new_state()
    for fact in story.facts:
        for part in one_by_one(fact) if isinstance(fact, TasksPlaced) else [fact]:
            if isinstance(part, TasksPlaced):
                assert state.index.find(int(part.job[0])) in allowed(state, 0)
            apply(state, part)


def test_a_clock_that_steps_to_before_the_first_fact_is_recovered_as_it_was():
    """Ticks are counted from the first fact on, and have numbers below 0 before it: each is over at its end, not at its begin."""
    state = new_state()
    apply(state, Configured(at=1000.0, queues=[Queue("a/x", weight=1.0)], settings=Settings()))
    apply(state, NodeJoined(at=1000.0, node=Node("n", {"cpu": 1000})))
    tick = 3600.0 / 1024
    apply(state, Configured(at=1000.0 - 9.9 * tick, queues=[Queue("a", history=3600.0), Queue("a/x")], settings=Settings()))
    apply(state, NodeDrained(at=1000.0 - 9.8 * tick, node="n"))
    recovered = snapshot.load(snapshot.dump(state))
    for each in (state, recovered):
        apply(each, NodeResumed(at=1000.0 - 9.1 * tick, node="n"))
    assert same(recovered) == same(state)
    assert state.queues.ticks[state.tree.rows["a"]] == -10
