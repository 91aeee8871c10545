"""The simulator: the live state machine with a virtual clock, against numbers by hand, simpy, and the live scheduler itself."""

import html
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import psutil
import pytest
from bench.simpy_model import Model
from bench.simulate import workload as crowded
from hypothesis import given, settings
from hypothesis import strategies as st

import fairlead
import forked
from called import Counted, until_it_is_there, with_first
from conftest import FAIRLEAD
from fairlead.journal import read_history
from fairlead.journal.sql import SqlStore
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.processes import on_all_cores
from fairlead.scheduler.entitlements import wanted_by
from fairlead.scheduler.facts import JobCancelled, JobHeld, JobReleased, NodesReserved, TasksFinished, TasksPlaced, encode
from fairlead.simulate.measure import summary, unfairness, write_parquet
from fairlead.simulate.report import ALWAYS, runs_text, sweep_text
from fairlead.simulate.run import simulate
from fairlead.simulate.sweep import Point, sweep
from fairlead.simulate.traces import Derivation, read_trace
from fairlead.simulate.workload import Jobs, TraceError, cut, synthetic_nodes
from random_cases import cases
from worlds import check_invariants

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("FAIRLEAD_DATA", ROOT.parent / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no traces in {DATA}: set FAIRLEAD_DATA")
FB_2009 = DATA / "facebook" / "FB-2009_samples_24_times_1hr_0.tsv"

sys.path.insert(0, str(ROOT / "examples"))


def two_users():
    """One machine of 4 CPUs; A and B ask for 8 tasks of 1 CPU and 10 seconds each, B 5 seconds later."""
    jobs = Jobs()
    jobs.add(0.0, "A", {"cpu": 1000}, 10.0, 8)
    jobs.add(5.0, "B", {"cpu": 1000}, 10.0, 8)
    return jobs.workload("two", synthetic_nodes(1, "cpu=4"), [])


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_two_users_on_one_machine():
    """At 10 A's four end: two each; at 20 again; at 30 A has had 8, B has 4 left; done at 40."""
    run = simulate(two_users(), samples=5)
    assert run.ended.tolist() == [30.0, 40.0]
    assert run.begun.tolist() == [0.0, 10.0]
    assert run.waited.tolist() == [4 * 0 + 2 * 10 + 2 * 20, 2 * 5 + 2 * 15 + 4 * 25]
    assert (run.completed, run.decisions, run.steps) == (16, 16, 6)
    found = summary(run)
    assert found["makespan"] == 40
    assert found["completion"]["mean"] == 32.5
    assert found["slowdown"]["median"] == 3.25
    assert found["by size"] == {"2-10": {"jobs": 2, "mean completion": 32.5}}
    fifo = simulate(two_users(), "fifo")
    assert fifo.ended.tolist() == [20.0, 40.0]


def test_shares_and_what_they_should_be():
    run = simulate(two_users(), samples=40)
    at = {t: (shares.tolist(), fair.tolist()) for t, shares, fair in zip(run.at, run.shares, run.fair, strict=True)}
    assert at[0] == ([1, 0], [1, 0])
    assert at[7] == ([1, 0], [0.5, 0.5]), "B has come and waits"
    assert at[15] == ([0.5, 0.5], [0.5, 0.5])
    assert unfairness(run)[7] == 0.5
    assert run.utilisation[run.at < 40].tolist() == [[1.0]] * 40


def test_what_lasts_for_years_is_looked_at_a_bounded_number_of_times():
    jobs = Jobs()
    jobs.add(0.0, "a", {"cpu": 1000}, 3e8)
    jobs.add(1e8, "a", {"cpu": 1000}, [1.0, 3e8], 2)
    run = simulate(jobs.workload("long", synthetic_nodes(1, "cpu=1"), []), samples=5)
    assert run.ended.tolist() == [3e8, 6e8 + 1]
    assert len(run.at) < 1000
    assert np.ptp(np.diff(run.at)) < 1e-3, "even moments"
    assert run.utilisation.min() == 1


def test_gangs_priorities_places_and_different_durations():
    jobs = Jobs()
    jobs.add(0.0, "a", {"cpu": 1000}, [1.0, 2.0, 3.0], 3)
    jobs.add(0.0, "b", {"cpu": 1000}, 5.0, 4, gang=True)
    jobs.add(0.0, "c", {"cpu": 1000}, 5.0, 1, on={"zone": ["east"]}, priority=1)
    nodes = [Node("w", {"cpu": 4000}, {"zone": "west"}), Node("e", {"cpu": 2000}, {"zone": "east"})]
    run = simulate(jobs.workload("mixed", nodes, []))
    assert run.begun.tolist() == [0.0, 0.0, 0.0], "one of a, the four of b, one of c: six CPUs"
    assert run.ended.tolist() == [6.0, 5.0, 5.0], "a has one CPU until 5: 1, then 2, then 3 seconds"


def test_what_is_cancelled_ends_and_what_fits_nowhere_is_refused():
    jobs = Jobs()
    jobs.add(0.0, "a", {"cpu": 1000}, 10.0, 8)
    jobs.add(0.0, "a", {"cpu": 9000}, 10.0, 1)
    jobs.add(2.0, "b", {"gpu": 1000}, 10.0, 1)
    cancelled = JobCancelled(at=15.0, id=1, indices=[4, 5, 6, 7])
    run = simulate(replace(jobs.workload("w", synthetic_nodes(1, "cpu=2"), []), changes=[cancelled]))
    assert run.refused.tolist() == [False, True, True]
    assert (run.completed, run.withdrawn, run.ended[0]) == (4, 4, 20.0)
    assert "2 jobs were refused" in run.notes[0]


def test_a_trees_limits_hold_and_what_can_never_run_is_told():
    jobs = Jobs()
    jobs.add(0.0, "x/a", {"cpu": 1000}, 10.0, 4)
    jobs.add(0.0, "x/b", {"cpu": 1000}, 10.0, 4)
    jobs.add(0.0, "y", {"cpu": 2000}, 10.0, 1)
    queues = [Queue("x", limit={"cpu": 2000}), Queue("x/a"), Queue("x/b"), Queue("y", limit={"cpu": 1000})]
    run = simulate(jobs.workload("tree", synthetic_nodes(1, "cpu=8"), queues), "hdrf")
    assert run.ended[:2].tolist() == [40.0, 40.0]
    assert np.isnan(run.ended[2])
    assert any("1 job never ended" in note for note in run.notes)


@pytest.mark.parametrize(
    ("name", "others", "declared", "below"),
    [("c", [], ["c", "c/x"], "c/x"), ("c", ["c/y/x"], [], "c/y/x"), ("c", [], ["c/*"], "c/<any name>"), ("", ["a"], [], "a")],
)
def test_jobs_in_a_queue_with_others_below_are_refused(name, others, declared, below):
    jobs = Jobs()
    for number, queue in enumerate([*others, name]):
        jobs.add(float(number), queue, {"cpu": 1000}, 1.0)
    workload = jobs.workload("w", synthetic_nodes(1, "cpu=2"), [Queue(each) for each in declared])
    where = f"w: job {len(others) + 1}, submitted at {len(others)} s: '{name or '/'}'"
    for policy in ("drf", "slots:2"):
        with pytest.raises(TraceError, match=re.escape(f"{where} is not a leaf queue: choose one below it: {below}")):
            simulate(workload, policy)
    assert simulate(workload, "fifo-strict").completed == len(others) + 1, "which has no queues"


def test_slots_refuse_overcommit_and_slow_down():
    """Two slots of <2 CPUs, 4 GB>: a task of 3 CPUs does not fit one; what overcommits goes on as fast as there is room."""
    jobs = Jobs()
    jobs.add(0.0, "large", {"cpu": 3000, "memory": 10**9}, 10.0, 2)
    jobs.add(0.0, "small", {"cpu": 1000, "memory": 10**9}, 10.0, 2)
    workload = jobs.workload("slots", synthetic_nodes(1, "cpu=4,memory=8G"), [])
    refused = simulate(workload, "slots:2")
    assert refused.refused.tolist() == [True, False]
    assert "no slot holds a task" in refused.notes[0]
    over = simulate(workload, "slots:4:overcommit")
    assert over.ended.tolist() == [20.0, 20.0], "8 of 4 CPUs: half as fast"
    assert over.utilisation[0].tolist() == [2.0, 0.5]
    jobs.add(16.0, "late", {"cpu": 4000, "memory": 10**9}, 1.0)
    later = simulate(jobs.workload("slots", synthetic_nodes(1, "cpu=4,memory=8G"), []), "slots:5:overcommit")
    # Two seconds of work are left at 16; at a third of the speed the late one ends at 19, when the others have one second left.
    assert later.ended.tolist() == [21.0, 21.0, 19.0]
    assert "slots: 1 a machine" in simulate(workload, "slots").notes[0]


# -- the machine -------------------------------------------------------------------------------------------------------


@st.composite
def workloads(draw):
    jobs = Jobs()
    amounts = st.fixed_dictionaries({"cpu": st.integers(1, 5)}, optional={"memory": st.integers(1, 5)})
    submit = sorted(draw(st.lists(st.integers(0, 20), min_size=1, max_size=12)))
    for k, at in enumerate(submit):
        jobs.add(
            float(at),
            draw(st.sampled_from(["a/x", "a/y", "b"])),
            draw(amounts),
            float(draw(st.integers(0, 9))),
            draw(st.integers(1, 8)),
            on=draw(st.sampled_from([{}, {}, {"zone": ["east"]}])),
            gang=draw(st.sampled_from([False, False, False, True])),
            priority=draw(st.integers(0, 1)),
            after=draw(st.lists(st.integers(0, k - 1), max_size=2)) if k and draw(st.booleans()) else (),
        )
    capacity = st.fixed_dictionaries({"cpu": st.integers(2, 9), "memory": st.integers(2, 9)})
    nodes = [Node(f"n{k}", draw(capacity), {"zone": "east" if k else "west"}) for k in range(draw(st.integers(1, 3)))]
    queues = [Queue("a", weight=2.0), Queue("a/x"), Queue("a/y", max_tasks=draw(st.sampled_from([None, 2]))), Queue("b")]
    return jobs.workload("random", nodes, draw(st.sampled_from([queues, []])))


def wanted(state):
    """What runs and waits in each queue, and below it, job by job."""
    amounts, tasks = state.queues.used[: state.queues.n].tolist(), state.queues.tasks[: state.queues.n].tolist()
    for row in np.flatnonzero(state.jobs.group[: state.jobs.n] != -1).tolist():
        q = int(state.jobs.queue[row])
        while q != -1:
            tasks[q] += int(state.jobs.waiting[row])
            demand = state.shapes.demand[state.jobs.shape_row[row]] * state.jobs.waiting[row]
            amounts[q] = [a + b for a, b in zip(amounts[q], demand.tolist(), strict=True)]
            q = int(state.queues.parent[q])
    return [amounts, tasks]


@settings(max_examples=cases(20), deadline=None)
@given(
    workload=workloads(),
    policy=st.sampled_from(["drf", "hdrf", "fifo", "asset", "ceei", "slots:2:overcommit"]),
    asked=st.lists(st.tuples(st.integers(0, 25), st.integers(1, 12), st.sampled_from([JobHeld, JobReleased])), max_size=4),
)
def test_invariants_hold_at_every_step_and_each_task_ends_once(workload, policy, asked):
    changes = [kind(at=float(at), id=job) for at, job, kind in asked if job <= len(workload.submit)]
    workload = replace(workload, changes=sorted(changes, key=lambda fact: fact.at))
    ends: set[tuple[int, int]] = set()
    books: list[np.ndarray] = []

    def watch(state, facts):
        check_invariants(state)
        for fact in facts:
            if isinstance(fact, TasksFinished):
                for job, index in zip(fact.job.tolist(), fact.index.tolist(), strict=True):
                    assert (job, index) not in ends
                    ends.add((job, index))
        books.append(state.queues.used[0].copy())
        assert [each.tolist() for each in wanted_by(state)] == wanted(state)

    run = simulate(workload, policy, settings=Settings(idle_budget=0.02), history=2.0, watch=watch)
    assert len(ends) == run.completed == run.decisions
    stuck = int(workload.tasks[~run.refused & np.isnan(run.ended)].sum())
    total = int(workload.tasks[~run.refused].sum())
    assert run.completed + run.withdrawn <= total <= run.completed + run.withdrawn + stuck
    assert not books[-1].any(), "all room came back"


def facts_of(workload, policy, compiled, **more):
    """All facts of a simulation in their written form, and what came of it."""
    facts = []
    run = simulate(workload, policy, compiled=compiled, record=lambda new: facts.extend(map(encode, new)), **more)
    return facts, run


@settings(max_examples=cases(20), deadline=None)
@given(
    workload=workloads(),
    policy=st.sampled_from(
        ["drf", "hdrf", "sdrf", "ceei", "fifo", "asset", "priority", "maxmin:cpu", "slots:2", "slots:2:overcommit"]
    ),
    idle_budget=st.sampled_from([0.0, 0.02, 0.5]),
    keep=st.sampled_from([0, 2, 1000]),
    history=st.sampled_from([None, 0.0, 1.0, 3000.0]),
    chunk=st.sampled_from([1, 3, 1000]),
)
def test_many_steps_in_compiled_code_make_the_same_facts_as_one_after_another(
    workload, policy, idle_budget, keep, history, chunk
):
    """However many jobs are written at once, and however soon those that are forgotten leave the tables."""
    if policy == "sdrf" and history == 0.0:
        history = 3.0
    with (
        mock.patch("fairlead.simulate.run.KEEP_JOBS", keep),
        mock.patch("fairlead.simulate.many_steps.CHUNK_JOBS", chunk),
        mock.patch("fairlead.scheduler.effects.COMPACT_FROM", 2),
    ):
        same = {"settings": Settings(idle_budget=idle_budget), "history": history, "samples": 3}
        many, run = facts_of(workload, policy, True, **same)
        single, other = facts_of(workload, policy, False, **same)
    assert many == single
    assert summary(run) | {"seconds": 0} == summary(other) | {"seconds": 0}
    assert np.array_equal(run.ended, other.ended, equal_nan=True)


@pytest.mark.parametrize("policy", ["drf", "hdrf", "sdrf", "ceei", "asset", "guarantees"])
def test_many_steps_make_the_same_facts_where_queues_appear_and_jobs_depend_on_others(policy):
    queues = []
    if policy == "guarantees":  # scaled, the more queues there are
        policy, queues = "drf", [Queue("*", guarantee={"cpu": 3000}, guarantee_timeout=1.0)]
    for seed in range(cases(4)):
        rng, jobs, at = np.random.default_rng(seed), Jobs(), 0.0
        for k in range(60):
            at += int(rng.integers(3)) // 2
            jobs.add(
                at,
                f"q{rng.integers(k // 6 + 1)}",
                {"cpu": int(rng.integers(1, 5)) * 1000},
                float(rng.integers(1, 10)),
                int(rng.integers(1, 4)),
                gang=bool(rng.random() < 0.2),
                after=[int(rng.integers(k))] if k and rng.random() < 0.2 else (),
                like=Job(queue="", demand={}, user=f"user{min(2, rng.integers(9))}"),
            )
        crowd = jobs.workload("crowd", synthetic_nodes(2, "cpu=6"), queues)
        with mock.patch("fairlead.simulate.run.KEEP_JOBS", 7):
            many, run = facts_of(crowd, policy, True, history=10.0, settings=Settings(idle_budget=0.02))
            single, other = facts_of(crowd, policy, False, history=10.0, settings=Settings(idle_budget=0.02))
        assert many == single
        assert summary(run) | {"seconds": 0} == summary(other) | {"seconds": 0}
        assert any(b'"after":[{' in fact for fact in many)
        assert any(b"JobsForgotten" in fact for fact in many)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_reservation_is_made_at_once_when_room_has_to_be_gathered(compiled):
    """No single end of a task of a is enough for b, which comes at 0.5 s; nothing but one task ends before 50 s."""
    jobs, facts = Jobs(), []
    jobs.add(0.0, "a", {"cpu": 1000}, [1.0, 50.0, 50.0, 50.0], 4)
    jobs.add(0.5, "b", {"cpu": 2000}, 9.0)
    jobs.add(0.5, "a", {"cpu": 1000}, 50.0, 4)
    small = jobs.workload("small", synthetic_nodes(1, "cpu=4"), [])
    simulate(small, settings=Settings(idle_budget=0.02), history=0.0, compiled=compiled, record=facts.extend)
    assert next(fact.at for fact in facts if isinstance(fact, NodesReserved)) == 0.5


def test_more_tasks_start_at_one_moment_than_one_decision_places():
    jobs = Jobs()
    for k in range(60):
        jobs.add(0.0, f"q{k % 3}", {"cpu": 1000}, 5.0, 1000)
    run = simulate(jobs.workload("crowd", synthetic_nodes(600, "cpu=100"), []))
    assert (run.completed, run.decisions, set(run.ended.tolist())) == (60_000, 60_000, {5.0})


def test_as_many_tasks_run_at_once_as_need_different_things():
    """Ten that need CPUs and ten that need memory on each machine, though only ten of either fit."""
    jobs = Jobs()
    for resource, amount in (("cpu", 1000), ("memory", 10**9)):
        jobs.add(0.0, resource, {resource: amount}, 5.0, 4000)
    jobs.add(1.0, "cpu", {"cpu": 1000}, 5.0, 4000)
    run = simulate(jobs.workload("complements", synthetic_nodes(400, "cpu=10,memory=10G"), []))
    assert run.ended.tolist() == [5.0, 5.0, 10.0]


def test_many_steps_make_the_same_facts_when_the_machine_is_overloaded_for_long():
    """Reservations, forgetting and smaller tables in between."""
    rng = np.random.default_rng(5)
    jobs = Jobs()
    for k in range(800):
        demand = {"cpu": int(rng.integers(1, 9)) * 1000, "memory": int(rng.integers(1, 17)) << 30}
        jobs.add(float(k), f"u{rng.integers(20)}", demand, float(rng.uniform(10, 200)))
    crowd = jobs.workload("crowd", synthetic_nodes(1, "cpu=110,memory=190GiB"), [])
    with (
        mock.patch("fairlead.simulate.run.KEEP_JOBS", 100),
        mock.patch("fairlead.simulate.many_steps.CHUNK_JOBS", 150),
        mock.patch("fairlead.scheduler.effects.COMPACT_FROM", 200),
    ):
        many, _ = facts_of(crowd, "drf", True)
        single, _ = facts_of(crowd, "drf", False)
    kinds = {json.loads(fact)["type"] for fact in many}
    assert {"NodesReserved", "JobsForgotten"} <= kinds
    assert many == single


@settings(max_examples=cases(20), deadline=None)
@given(workload=workloads(), slots=st.integers(1, 6))
def test_an_overcommitted_machine_does_as_much_as_it_can(workload, slots):
    """From the starts and ends alone: what a task did at the speed that its machine's load left it is its work."""
    found: dict[tuple[int, int], list[float]] = {}

    def watch(_, facts):
        for fact in facts:
            if isinstance(fact, TasksPlaced):
                for job, index, node in zip(fact.job.tolist(), fact.index.tolist(), fact.node.tolist(), strict=True):
                    found[job, index] = [fact.at, np.inf, node]
            if isinstance(fact, TasksFinished):
                for job, index in zip(fact.job.tolist(), fact.index.tolist(), strict=True):
                    found[job, index][1] = fact.at

    simulate(workload, f"slots:{slots}:overcommit", watch=watch)
    demand = {task: workload.demands[workload.shape[task[0] - 1]] for task in found}
    moments = sorted({at for start, end, _ in found.values() for at in (start, end)})
    done = dict.fromkeys(found, 0.0)
    for begin, end in itertools.pairwise(moments):
        for place, node in enumerate(workload.nodes):
            here = [task for task, (a, b, n) in found.items() if n == place and a <= begin and b >= end]
            load = max((sum(demand[t].get(r, 0) for t in here) / q for r, q in node.capacity.items()), default=0)
            for task in here:
                done[task] += (end - begin) / max(1.0, load)
    for (job, _), work in done.items():
        assert work == pytest.approx(workload.duration[workload.first[job - 1]], rel=1e-9)


@settings(max_examples=cases(13), deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 6))
def test_a_model_in_simpy_agrees(seed, nodes):
    small = crowded(nodes, 4, 30, tasks=5, busy=1.5, seed=seed)
    ours = simulate(small, settings=Settings(idle_budget=0.0), history=0.0)
    theirs = Model(small).go()
    assert ours.ended.tolist() == theirs.ended.tolist()


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write_parquet([simulate(crowded(10, 5, 40, seed=3), policy) for policy in ("drf", "slots")], tmp_path / name)
    for file in ("jobs.parquet", "moments.parquet"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_live_and_simulated_place_the_same_tasks_in_the_same_order(live):
    """The same jobs at the same times on the real scheduler, with tasks that sleep; then its journal, simulated.

    Not only the order is the same, but each placement's moment to the last bit: so a machine that is slow or busy, on which
    tasks take long to start, changes what is recorded but not that it is replayed.
    """
    live.ok("submit", "-q", "A", "--cpu", "3", "--memory", "1Gi", "--tasks", "5", "--", "sleep", "1.0")
    live.ok("submit", "-q", "B", "--cpu", "1", "--memory", "4Gi", "--tasks", "6", "--", "sleep", "0.55")
    live.ok("submit", "-q", "A", "--cpu", "2", "--memory", "2Gi", "--tasks", "3", "--priority", "1", "--", "sleep", "0.7")
    live.ok("submit", "-q", "B", "--hold", "--", "true")
    live.ok("wait", "1", "2", "3")
    live.end()
    path = live.home / "journal.db"

    def placements(facts):
        return [
            (fact.at, *one)
            for fact in facts
            if isinstance(fact, TasksPlaced)
            for one in zip(fact.job.tolist(), fact.index.tolist(), fact.node.tolist(), strict=True)
        ]

    there = placements(read_history(SqlStore(path, to_read=True)).facts)
    here = []

    def watch(_, facts):
        here.extend(placements(facts))

    recorded = read_trace(path)
    assert recorded.notes == [f"{path}: 1 task has not ended: it takes as long as the median of the others of the job, or of all"]
    assert recorded.skipped == 0, "no row is wrong"
    run = simulate(recorded, "drf", watch=watch)
    assert len(there) == 14
    assert here == there
    assert run.completed == 14


# -- traces ----------------------------------------------------------------------------------------------------------


@needs_data
def test_openb():
    found = read_trace(DATA / "openb")
    assert (len(found.nodes), len(found.submit), found.skipped) == (1523, 8152, 0)
    assert {node.labels.get("model") for node in found.nodes} >= {"T4", "P100", None}
    one = found.demands[found.shape[1]]
    assert one == {"cpu": 6000, "memory": 12288 << 20, "gpu": 460}
    specs = read_trace(DATA / "openb" / "openb_pod_list_gpuspec33.csv")
    assert any(place for place in specs.places)
    run = simulate(cut(found, end=3e6), samples=20)
    assert run.completed == len(run.submitted)
    with pytest.raises(TraceError, match=r"multigpu50.csv:1: has no times"):
        read_trace(DATA / "openb" / "openb_pod_list_multigpu50.csv")


def test_more_than_can_be_counted_is_refused():
    jobs = Jobs()
    jobs.add(0.0, "A", {"cpu": 1000}, 10.0)
    workload = jobs.workload("large", synthetic_nodes(10, "cpu=4,memory=1048576Ti"), [])
    with pytest.raises(TraceError, match="the nodes have too much memory together"):
        simulate(workload)


def test_the_pictures_have_as_many_moments_as_were_asked_for_though_all_arrives_at_once():
    jobs = Jobs()
    for k in range(3000):
        jobs.add(0.0, f"q{k % 7}", {"cpu": 1000}, float(10 + k % 13))
    run = simulate(jobs.workload("burst", synthetic_nodes(1, "cpu=4"), []), samples=50)
    assert run.ended.max() > 10_000
    assert 50 <= len(run.at) <= 60


@needs_data
def test_swim():
    found = read_trace(FB_2009)
    assert len(found.submit) == 5894
    assert found.tasks[0] == 2, "740,773 bytes in are one map, 2,339,561 shuffled one reduce"
    assert found.duration[0] == 6.0, "5 s and 3.7 MB at 20 MB/s over two tasks, rounded up"
    again, other = read_trace(FB_2009), read_trace(FB_2009, derivation=Derivation(seed=1))
    assert again.queue == found.queue != other.queue
    with pytest.raises(TraceError, match="there are no machines"):
        simulate(found)


SWF = """; MaxProcs: 8
; Note: a comment
1 0 5 100 4 -1 -1 4 -1 2048 1 7 -1 -1 -1 -1 -1 -1
2 10 -1 50 -1 -1 -1 2 -1 -1 1 8 -1 -1 -1 -1 -1 -1
3 20 -1 -1 -1 -1 -1 2 -1 -1 5 8 -1 -1 -1 -1 -1 -1
"""


def test_swf(tmp_path):
    path = tmp_path / "small.swf"
    path.write_text(SWF)
    found = read_trace(path)
    assert (len(found.nodes), found.queue, found.tasks.tolist()) == (8, ["user7", "user8"], [4, 2])
    assert found.gang.tolist() == [True, True]
    assert found.demands[found.shape[0]] == {"cpu": 1000, "memory": 2 << 20}
    assert simulate(found).ended.tolist() == [100.0, 60.0]


TABLE = """submit,job,after,duration,tasks,cpu,on
0,prepare,,10,1,1,
0,train,prepare,5 20,,1,zone=a|b
1,other,,4,,1,zone=b
2,report,train other,1,1,1,
"""


def test_tasks_of_a_table_have_labels_durations_and_jobs_before_them(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(TABLE)
    found = replace(read_trace(path), nodes=[Node("a", {"cpu": 1000}, {"zone": "a"}), Node("b", {"cpu": 1000}, {"zone": "b"})])
    assert found.tasks.tolist() == [1, 2, 1, 1]
    assert found.after == {1: [0], 3: [1, 2]}
    run = simulate(found)
    # `train` begins when `prepare` has ended, on both machines: 5 s on the one, 20 s on the other; `other` has b before that.
    assert run.begun.tolist() == [0, 10, 1, 30]
    assert run.ended.tolist() == [10, 30, 5, 31]
    at = {float(t): int(waits) for t, waits in zip(run.at, run.waiting, strict=True)}
    assert at[6.0] == 0, "what cannot start before others have ended does not wait for room"
    alone = simulate(replace(found, nodes=found.nodes[:1]))
    assert np.isnan(alone.ended[2:]).all(), "nor does what comes after what no machine holds"
    assert alone.refused.tolist() == [False, False, True, True]
    twice = cut(found, scale=2.0)
    assert twice.after == {2: [0], 3: [1], 6: [2, 4], 7: [3, 5]}
    assert cut(found, start=1.0).after == {1: [0]}, "what was before is over"


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("0,a,nobody,1,1,1,", "after: 'nobody' is not a job above: a job comes after earlier ones"),
        ("0,a,late,1,1,1,", "after: 'late' is submitted later: a job comes after earlier ones"),
        ("0,late,,1,1,1,", "job: 'late' exists already: choose another name"),
        ("0,a,,1 2 3,2,1,", "duration: 3 durations for 2 tasks"),
        ("0,a,,,1,1,", "duration: write a number, not ''"),
        ("0,a,,1,1,1,zone", "on: 'zone': write LABEL=VALUE, or LABEL=VALUE|VALUE"),
        ("0,a,,1,1,1,zone=a|", "on: 'zone=a|': write LABEL=VALUE, or LABEL=VALUE|VALUE"),
    ],
)
def test_what_a_table_cannot_say_is_refused(tmp_path, row, wrong):
    path = tmp_path / "jobs.csv"
    path.write_text(f"submit,job,after,duration,tasks,cpu,on\n9,late,,1,1,1,\n{row}\n")
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value) == f"{path}:3: {wrong} (--skip-bad skips such rows)"


def test_swf_says_which_field_is_missing_and_takes_more_than_there_should_be(tmp_path):
    path = tmp_path / "small.swf"
    row = "1 0 5 {} {} -1 -1 {} -1 -1 1 1 1 1 1 1 -1 -1"
    path.write_text(row.format(-1, 8, 8) + "\n")
    with pytest.raises(TraceError, match=r"small.swf:1: does not say how long it ran: field 4 is -1"):
        read_trace(path)
    path.write_text(row.format(10, -1, -1) + "\n")
    with pytest.raises(TraceError, match=r"small.swf:1: does not say how many processors it had: field 8 is -1"):
        read_trace(path)
    path.write_text(row.format(10, 8, 8) + " 7 more\n")
    assert read_trace(path).tasks.tolist() == [8]


SWF_ROW = "1 {} 5 10 2 -1 -1 {} -1 {} 1 {} 1 1 1 1 -1 -1\n"


def test_a_table_of_ones_own(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("submit,queue,duration,tasks,cpu,memory\n0,a,10,2,0.5,1GiB\n5,b,20,,2,\n")
    found = read_trace(path)
    assert [found.demands[s] for s in found.shape] == [{"cpu": 500, "memory": 1 << 30}, {"cpu": 2000}]
    assert found.tasks.tolist() == [2, 1]
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"submit": [0, 5], "queue": ["a", "b"], "duration": [10, 20], "tasks": [2, 1], "cpu": [0.5, 2]}
    parquet.write_table(pa.table(columns), tmp_path / "jobs.parquet")
    other = read_trace(tmp_path / "jobs.parquet")
    assert other.tasks.tolist() == [2, 1]
    assert other.demands[other.shape[0]] == {"cpu": 500}
    assert simulate(replace(other, nodes=synthetic_nodes(1, "cpu=1"))).refused.tolist() == [False, True]


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("t.csv", "submit,duration,cpu\n0,ten,1\n", r"t.csv:2: duration: write a number, not 'ten'"),
        ("t.csv", "submit,duration,cpu\n0,10,1\n-1,10,1\n", r"t.csv:3: submit: use 0 or more, not '-1'"),
        ("t.csv", "submit,cpu\n0,1\n", r"t.csv:1: there is no column 'duration'"),
        ("t.csv", "submit,duration,cpu\n0,10,lots\n", r"t.csv:2: .*lots"),
        ("t.csv", "submit,duration,cpu\n0,10,0\n", r"t.csv:2: asks for nothing"),
        ("t.csv", "submit,duration,cpu,queue\n0,10,1,a b\n", r"t.csv:2: 'a b' is not a queue path"),
        ("t.csv", "submit,duration,cpu\n", r"t.csv: contains no jobs"),
        ("t.tsv", "job0\t1\t2\n", r"t.tsv:1: 3 columns: needs 6"),
        ("t.tsv", "job0\t1\t2\t3\tnan\t5\n", r"t.tsv:1: shuffle: write a finite number, not 'nan'"),
        ("t.swf", "1 2 3\n", r"t.swf:1: 3 fields: needs 18"),
        ("t.csv", "submit,duration,cpu\n0,10,1\ninf,10,1\n", r"t.csv:3: submit: write a finite number, not 'inf'"),
        ("t.csv", "submit,duration,cpu\n1e308,10,1\n", r"t.csv:2: submit: use 100000000000 or less, not '1e308'"),
        ("t.swf", SWF_ROW.format("inf", 2, -1, 7), r"t.swf:1: submit: write a finite number"),
        ("t.swf", SWF_ROW.format(0, 2.7, -1, 7), r"t.swf:1: asked: write a whole number, not '2.7'"),
        ("t.swf", SWF_ROW.format(0, 2, "inf", 7), r"t.swf:1: memory: write a finite number"),
        ("t.swf", SWF_ROW.format(0, 2, 1, "inf"), r"t.swf:1: user: write a finite number"),
        ("t.swf", ";\n; MaxProcs: 1" + 20 * "0" + "\n" + SWF_ROW, r"t.swf:2: MaxProcs: 10+ is more than 1,000,000 machines"),
        ("t.swf", "; MaxProcs: \xb2\n", r"t.swf: contains no jobs"),
        ("t.db", "nonsense", r"t.db: is not a journal"),
        ("t.txt", "jobs", r"unknown format: choose one with --format"),
        ("t.txt", "", r"t.txt: is empty: name a file with jobs"),
        ("t.parquet", "nonsense", r"t.parquet: not Parquet"),
    ],
)  # fmt: skip
def test_a_wrong_trace_is_refused_with_its_line(tmp_path, name, text, wrong):
    (tmp_path / name).write_text(text)
    with pytest.raises(TraceError, match=wrong) as refused:
        read_trace(tmp_path / name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["nothing", "nothing.csv"])
def test_a_trace_that_does_not_exist_is_said_not_to_whatever_its_name(tmp_path, name):
    with pytest.raises(TraceError, match=f"{name}: cannot be read: No such file"):
        read_trace(tmp_path / name)


def test_wrong_rows_are_counted_where_they_are_to_be_skipped(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("submit,duration,cpu\n0,10,1\n1,ten,1\n2,10,1\n3,10\n")
    found = read_trace(path, skip_bad=True)
    assert (found.submit.tolist(), found.skipped) == ([0.0, 2.0], 2)
    with pytest.raises(TraceError, match=r"none.csv: cannot be read"):
        read_trace(tmp_path / "none.csv")


def test_a_part_of_a_workload_faster_or_more_of_it():
    jobs = Jobs()
    for k in range(10):
        jobs.add(10.0 * k, "a", {"cpu": 1000}, [1.0 + k, 2.0 + k], 2)
    whole = jobs.workload("w", synthetic_nodes(1, "cpu=4"), [])
    part = cut(whole, 20, 60, speed=2)
    assert part.submit.tolist() == [0, 5, 10, 15]
    assert part.duration.tolist() == [3, 4, 4, 5, 5, 6, 6, 7]
    assert len(cut(whole, scale=2.5, seed=1).submit) == len(cut(whole, scale=2.5, seed=1).submit) > 20
    assert cut(whole, scale=3).submit.tolist() == np.repeat(whole.submit, 3).tolist()
    assert whole.work.tolist() == [3.0 + 2 * k for k in range(10)]


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def call(tmp_path):
    (tmp_path / "trace.csv").write_text((ROOT / "examples" / "trace.csv").read_text())

    def run(*arguments):
        return forked.run(arguments, cwd=tmp_path, timeout=100)

    return run


MACHINES = ("--nodes", "4", "--node", "cpu=9,memory=18GiB")


@pytest.mark.parametrize(("wrong", "said"), [(1, "1 row was"), (2, "2 rows were")])
def test_how_many_rows_were_left_out_is_said(call, tmp_path, wrong, said):
    (tmp_path / "t.csv").write_text("submit,duration,cpu\n0,1,1\n" + "x,1,1\n" * wrong)
    assert call("simulate", "t.csv", *MACHINES, "--skip-bad").stderr == f"fairlead: t.csv: {said} invalid and skipped\n"


def test_policies_are_compared_written_and_drawn(call, tmp_path):
    result = call(
        "simulate", "trace.csv", *MACHINES, "-p", "drf,slots,fifo,maxmin:memory", "--report", "out.html", "--out", "found"
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"jobs ended +5 +5 +5 +5\n", result.stdout)
    page = (tmp_path / "out.html").read_text()
    assert all(title in page for title in ("Dominant shares over time", "Completion times", "Utilisation", "Unfairness"))
    assert sorted(path.name for path in (tmp_path / "found").iterdir()) == ["jobs.parquet", "moments.parquet"]
    many = ["drf", "hdrf", "tsf", "asset", "fifo", "priority", "maxmin:cpu", "maxmin:memory", "slots:3:overcommit"]
    shown = call("simulate", "trace.csv", *MACHINES, "-p", ",".join(many)).stdout
    assert max(map(len, shown.splitlines())) <= 100
    assert "…" not in shown, "several tables rather than numbers that are cut off"
    shown = shown[: shown.index("\n\nqueue ")]
    assert [word for line in shown.splitlines() if not line[:4].strip() for word in line.split()] == many
    told = json.loads(call("simulate", "trace.csv", *MACHINES, "--json").stdout)
    command = shlex.join(["fairlead", "simulate", "trace.csv", *MACHINES, "--json"])
    assert told["made"] == {"fairlead": fairlead.__version__, "command": command, "machines": "4 of cpu=9 memory=18Gi"}
    runs = told["runs"]
    assert runs[0]["tasks"] == 451
    assert runs[0]["unfairness"] < 0.1


def test_machines_and_the_tree_come_from_a_configuration(call, tmp_path):
    (tmp_path / "lab.toml").write_text('[[queue]]\nname = "*"\n[[node]]\nname = "n"\ncapacity = { cpu = 36, memory = "72Gi" }\n')
    assert call("simulate", "trace.csv", "--config", "lab.toml").returncode == 0
    (tmp_path / "lab.toml").write_text('[[queue]]\nname = "vision"\n[[node]]\nname = "n"\ncapacity = { cpu = 36 }\n')
    result = call("simulate", "trace.csv", "--config", "lab.toml")
    assert "has no leaf queue for 'guests' of the trace: declare it, or *" in result.stderr
    (tmp_path / "inner.csv").write_text("submit,queue,duration,cpu\n0,c/x,5,1\n0,c,5,1\n")
    for command in (["simulate"], ["sweep", "--out", "none"]):
        result = call(*command, "inner.csv", *MACHINES)
        wrong = "inner: job 2, submitted at 0 s: 'c' is not a leaf queue: choose one below it: c/x"
        assert (result.returncode, result.stderr) == (1, f"fairlead: {wrong}\n")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "wrong"),
    [
        (["simulate", "none.csv"], 1, "none.csv: cannot be read"),
        (["simulate", "trace.csv"], 1, "there are no machines: name some with --nodes and --node"),
        (["simulate", "trace.csv", *MACHINES, "-p", "fair"], 2, "there is no policy 'fair'"),
        (["simulate", "trace.csv", *MACHINES, "-p", "EASY"], 2, "yarn-drf, mesos, fifo-strict, easy, conservative"),
        (["simulate", "trace.csv", *MACHINES, "-p", "fifo-strict:2"], 2, "fifo-strict takes no suffix: write fifo-strict"),
        (["simulate", "trace.csv", *MACHINES, "-p", "maxmin:gpu"], 1, "maxmin:gpu: unknown resource 'gpu': use one of cpu"),
        (
            ["simulate", "trace.csv", *MACHINES, "-p", "asset:gpu=2"],
            1,
            "policy asset:gpu=2 fails: PolicyError: asset: there is no 'gpu'",
        ),
        (["simulate", "trace.csv", "--nodes", "2", "--node", "cpu"], 2, "--node 'cpu'"),
        (["simulate", "trace.csv", "--node", "cpu=3"], 2, "--node cpu=3: needs --nodes, the number of such machines"),
        (["sweep", "trace.csv", "--out", "o", "--node", "cpu=3"], 2, "--node cpu=3: needs --nodes"),
        (["simulate", "trace.csv", "--nodes", "2", "--node", "cpu=0"], 2, "is not a capacity"),
        (["simulate", "trace.csv", *MACHINES, "--from", "soon"], 2, "--from 'soon'"),
        (["simulate", "trace.csv", *MACHINES, "--from", "9h"], 1, "there are no jobs in this part"),
        (["simulate", "trace.csv", *MACHINES, "--format", "csv"], 2, "'--format': write openb or swim or swf or"),
        (["simulate", "trace.csv", *MACHINES, "--columns", "none.toml"], 1, "--columns none.toml: No such file or directory"),
        (["simulate", "trace.csv", "--columns", "google", "--format", "swf"], 2, "google: is for tables, not --format swf: omit"),
        (["simulate", "trace.csv", *MACHINES, "--offers", "nobody"], 1, "--offers: no job is in queue 'nobody': name queues"),
        (["simulate", "trace.csv", *MACHINES, "--report", "nowhere/out.html"], 1, "folder nowhere does not exist: make it"),
        (["sweep", "trace.csv", "--out", "o", "--report", "nowhere/out.html"], 1, "folder nowhere does not exist: make it"),
        (["sweep", "trace.csv", "--out", "o", "--nodes", "2,x"], 2, "--nodes '2,x': write numbers"),
        (["sweep", "trace.csv", "--out", "trace.csv"], 1, "trace.csv: File exists"),
        (["sweep", "trace.csv", "--out", "o", "--revoke", "maybe"], 2, "--revoke 'maybe': write on, off, or on,off"),
        (["sweep", "trace.csv", "--out", "o", "--nodes", "2", "--config", "x.toml"], 1, "x.toml: cannot be read"),
        (["simulate", "trace.csv", "--set", "scheduler.revoke"], 2, "--set scheduler.revoke: write KEY=VALUE, such as"),
        (
            ["simulate", "trace.csv", "--nodes", "2", "--set", "scheduler.reserve_after=soon"],
            1,
            "--set scheduler.reserve_after=soon: scheduler.reserve_after: 'soon' is not a duration: write seconds, or",
        ),
        (
            ["simulate", "trace.csv", "--nodes", "2", "--set", "queue.nowhere.weight=2"],
            1,
            "--set queue.nowhere.weight=2: there is no queue 'nowhere': choose one of",
        ),
        (
            ["sweep", "trace.csv", "--out", "o", "--nodes", "2", "--set", "sheduler.revoke=false"],
            1,
            "--set sheduler.revoke=false: sheduler: ",
        ),
        (
            ["sweep", "trace.csv", "--out", "o", "--nodes", "2", "--engine", "slurm"],
            2,
            "'--engine': write local or ray, not 'slurm'",
        ),
    ],
)
def test_wrong_input_is_one_line(call, arguments, status, wrong):
    result = call(*arguments)
    assert result.returncode == status
    assert wrong in result.stderr
    assert result.stderr.count("\n") == 1, result.stderr


def test_ctrl_c_ends_a_simulation_quietly(tmp_path):
    """Wherever it hits, most likely in compiled code."""
    lines = ["submit,duration,tasks,cpu"] + [f"{k},{50 + k % 7},400,1" for k in range(20_000)]
    (tmp_path / "long.csv").write_text("\n".join(lines))
    command = ["simulate", "long.csv", "--nodes", "2000", "--node", "cpu=9"]
    for wait in (0.5, 0.9, 1.4):
        process = forked.Fairlead(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.parametrize("wait", [0.0, 0.7])
@pytest.mark.parametrize("command", ["properties", "sweep"])
def test_ctrl_c_ends_all_processes(tmp_path, command, wait):
    """As a terminal sends it, to all of them at once, from the first moment in which there are several; none goes on."""
    arguments = [FAIRLEAD, "properties", "--cases", "100000"]
    if command == "sweep":
        seeds = ",".join(map(str, range(300)))
        trace = str(ROOT / "examples" / "trace.csv")
        arguments = [FAIRLEAD, "sweep", trace, "--nodes", "4", "--seed", seeds, "--scale", "8.5", "--out", "o"]
    process = subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not psutil.Process(process.pid).children():  # the interpreter tells who interrupts it as it starts
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(wait)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (1, 130)
    assert out == ""
    assert err == "" or re.fullmatch(r"fairlead: interrupted: finished points are in o; .*\n", err)
    deadline = time.monotonic() + 60
    while [p for p in psutil.process_iter(["status"]) if group_of(p.pid) == process.pid and p.info["status"] != "zombie"]:
        assert time.monotonic() < deadline, "something goes on"
        time.sleep(0.05)


def test_an_interrupt_that_another_thread_receives_ends_the_wait(tmp_path):
    """It sets the flag of the main thread and does not wake it, as one does that arrives just before the wait begins."""
    over = tmp_path / "over"
    at = [
        threading.Timer(1.5, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)),
        threading.Timer(20, over.touch),
    ]
    for timer in at:
        timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(on_all_cores(until_it_is_there, [(over,), (over,)]))
    assert not over.exists(), "it waited for the calls"
    at[1].cancel()


def test_what_all_processes_share_is_written_once_and_no_start_waits_until_it_is_read():
    """The start of processes defers an interrupt. Through a pipe, each start would last until the process before has read all."""
    assert sorted(on_all_cores(with_first, [(7,), (8,)], 2, [Counted()])) == [(0, ("Counted", 7)), (1, ("Counted", 8))]
    assert Counted.times == 1


@pytest.mark.parametrize("first", ["typer", "typing"])
def test_ctrl_c_while_the_program_is_imported_ends_it_quietly(tmp_path, first):
    (tmp_path / f"{first}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ran = subprocess.run(
        [FAIRLEAD, "policies"], env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def group_of(pid):
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


# -- sweeps ------------------------------------------------------------------------------------------------------------


def points(trace):
    return [
        Point(str(trace), "", policy, scale, 1.0, 0.0, 1e9, 4, "cpu=9,memory=18GiB", seed)
        for policy in ("drf", "slots:3:overcommit")
        for scale in (1.0, 2.0)
        for seed in (0, 1)
    ]


def test_a_sweep_is_the_same_on_any_number_of_processes_and_goes_on_where_it_was(tmp_path):
    trace = ROOT / "examples" / "trace.csv"
    one = sweep(points(trace), tmp_path / "one", workers=1)
    two = sweep(points(trace), tmp_path / "two", workers=2)
    assert one == two
    files = sorted((tmp_path / "one").iterdir())
    assert [f.read_bytes() for f in files] == [f.read_bytes() for f in sorted((tmp_path / "two").iterdir())]
    kept = {file: file.stat().st_mtime_ns for file in files[1:]}
    files[0].unlink()
    told = []
    assert sweep(points(trace), tmp_path / "one", progress=lambda done, of: told.append((done, of))) == one
    assert told == [(7, 8), (8, 8)]
    assert all(file.stat().st_mtime_ns == at for file, at in kept.items())


def test_a_sweep_with_and_without_revocation(tmp_path):
    """Guarantees are of a configuration; what is lost and what is missed stands side by side."""
    config, trace = tmp_path / "guarantees.toml", tmp_path / "jobs.csv"
    config.write_text(
        '[[queue]]\nname = "analytics"\nguarantee = { cpu = 9 }\nguarantee_timeout = 1\n[[queue]]\nname = "*"\n'
        '[[node]]\nname = "n"\ncount = 2\ncapacity = { cpu = 9, memory = "18Gi" }\n'
    )
    trace.write_text("submit,queue,tasks,duration,cpu\n0,batch,18,500,1\n10,analytics,9,20,1\n100,batch,5,20,1\n")
    grid = [
        Point(str(trace), "", "drf", 1.0, 1.0, 0.0, 1e9, 0, "", 0, config=str(config), changes=(f"scheduler.revoke={revoke}",))
        for revoke in ("true", "false")
    ]
    assert len({point.name for point in grid}) == 2
    found = sweep(grid, tmp_path / "o", workers=1)
    on, off = (each["numbers"] for each in found)
    assert (on["revokes"], off["revokes"]) == (True, False)
    assert (on["revoked"], off["revoked"], off["lost"]) == (9, 0, 0.0)
    assert on["below guarantee"] < off["below guarantee"]
    assert on["lost"] > 0
    narrow = sweep_text(found, width=60)
    assert max(map(len, narrow.splitlines())) <= 60
    assert {*sweep_text(found).split()} - {*narrow.split()} <= {"─" * len(line) for line in sweep_text(found).splitlines()}
    lines = sweep_text(found).splitlines()
    assert lines[0].split()[-3:] == ["revoked", "lost", "below"]
    assert [line.split()[:3] for line in lines[2:4]] == [["drf,", "revoke", "on"], ["drf,", "revoke", "off"]]


@pytest.mark.parametrize(
    ("grid", "lines", "mark"),
    [
        (("--nodes", "3,4,6", "--scale", "1,2"), ["drf, scale 1", "drf, scale 2", "fifo, scale 1", "fifo, scale 2"], "circle"),
        (("--nodes", "4", "--scale", "1.5", "--seed", "0,1"), ["drf", "fifo"], "rect"),
    ],
)  # fmt: skip
def test_a_sweep_is_drawn(call, tmp_path, monkeypatch, grid, lines, mark):
    """A chart a measure, with what varies most along its axis, and a line or a bar for each of the rest."""
    monkeypatch.setenv("COLUMNS", "200")
    result = call(
        "sweep", "trace.csv", *MACHINES[2:], "-p", "drf,fifo", *grid, "--workers", "1", "--out", "o", "--report", "out.html"
    )
    assert result.returncode == 0, result.stderr
    page = html.unescape((tmp_path / "out.html").read_text())
    charts = page.split("<figure>")[1:]
    assert len(charts) == ALWAYS
    for chart in charts:
        assert all(name in chart for name in lines)
        assert re.search(rf"<{mark}[^>]*><title>[^<]*{lines[0]}", chart)
        assert chart.count("<table") == 1
    assert ("±" in charts[1]) == ("--seed" in grid), "an interval over the seeds"
    assert all(cell in page for cell in re.split("  +", result.stdout.strip().splitlines()[-1])), "the numbers too"


def test_a_killed_sweep_goes_on(tmp_path):
    command = ["sweep", str(ROOT / "examples" / "trace.csv"), "--nodes", "4", "--node", "cpu=9,memory=18GiB"]
    command += ["--seed", ",".join(map(str, range(20))), "--scale", "2.5", "--out", "o", "--workers", "1"]
    process = forked.Fairlead(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "o").glob("*.json"))) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = {f.name: f.stat().st_mtime_ns for f in (tmp_path / "o").glob("*.json")}
    wide = {**os.environ, "COLUMNS": "200"}
    result = forked.run(command, cwd=tmp_path, timeout=100, env=wide)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"drf +20 .*", result.stdout.splitlines()[-1])
    after = {f.name: f.stat().st_mtime_ns for f in (tmp_path / "o").glob("*.json")}
    assert len(after) == 20
    assert before.items() <= after.items()


def test_no_worker_outlives_a_sweep_that_is_killed_alone(tmp_path):
    command = ["sweep", str(ROOT / "examples" / "trace.csv"), "--nodes", "4", "--node", "cpu=9,memory=18GiB"]
    command += ["--seed", ",".join(map(str, range(900))), "--scale", "8.5", "--out", "o", "--workers", "2"]
    process = forked.Fairlead(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "o").glob("*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    while [p.pid for p in psutil.process_iter() if group_of(p.pid) == process.pid and p.status() != "zombie"]:
        assert time.monotonic() < deadline, "a worker goes on"
        time.sleep(0.02)


def test_a_page_says_how_it_is_made_again(call, tmp_path):
    arguments = [*MACHINES, "-p", "drf,fifo", "--seed", "7", "--scale", "2", "--report", "it's.html"]
    result = call("simulate", "trace.csv", *arguments)
    assert result.returncode == 0, result.stderr
    page = html.unescape((tmp_path / "it's.html").read_text())
    command = shlex.join(["fairlead", "simulate", "trace.csv", *arguments])
    assert f"<footer>Made by fairlead {fairlead.__version__}: {command}</footer>" in page
    told = (
        "machines: 4 of cpu=9 memory=18Gi\npolicies: drf, fifo\n"
        "settings: from the start to the end, warm-up none, speed 1, scale 2, seed 7"
    )
    assert all(f"<p>{line}" in page for line in told.split("\n"))
    assert "<script" not in page
    assert len(page) < 150_000


# -- the paper's evaluation --------------------------------------------------------------------------------------------


def test_dynamic_sharing():
    """Section 6.1: shares are equal up to a task a machine, above a half where demands complement each other."""
    import dynamic_sharing

    shares = dynamic_sharing.settled(dynamic_sharing.run())
    for name, pair in shares.items():
        assert np.abs(pair[:, 0] - pair[:, 1]).max() < 0.1, name
    assert shares["0-2 min"].min() > 0.6
    assert shares["2-3 min"].min() >= 0.49, "both need CPUs most: a half each"
    assert shares["3-6 min"].min() > 0.6


def test_drf_and_slots_on_the_papers_machines():
    """Section 6.2: DRF finishes far more small jobs than any slots, and few large ones less; by CPUs alone these gain."""
    import drf_and_slots

    drf, cpus, *slots = drf_and_slots.compare(drf_and_slots.PAPER)
    assert [row["policy"] for row in slots] == [f"slots:{k}:overcommit" for k in range(3, 7)]
    assert drf["small"] > 1.5 * max(row["small"] for row in slots)
    assert drf["large"] >= 0.8 * max(row["large"] for row in slots)
    assert drf["small response"] < min(row["small response"] for row in slots)
    assert cpus["small"] < drf["small"]
    assert cpus["large"] > drf["large"]


def test_drf_and_slots_on_others():
    """No number of slots finishes as many small jobs; few leave CPUs unused, many slow everything down."""
    import drf_and_slots

    setting = drf_and_slots.OTHERS
    drf, _, two, _, _, _, six, *_ = drf_and_slots.compare(setting)
    work = {kind: setting.tasks[kind] * demand["cpu"] * seconds for kind, (demand, seconds) in drf_and_slots.KINDS.items()}

    def done(row):
        return sum(row[kind] * work[kind] for kind in work)

    assert done(two) < 0.8 * done(drf), "two slots leave CPUs unused"
    assert six["small response"] > 2 * drf["small response"], "six thrash"
    assert drf["small"] > 1.3 * max(two["small"], six["small"])


@needs_data
@pytest.mark.parametrize(("machines", "least"), [("PAPER", 0.1), ("OTHERS", 0.0)])
def test_the_facebook_months(machines, least):
    """Section 6.3, on the first three hours: jobs of every size end sooner under DRF than under slots, but for the largest."""
    import facebook_months

    runs = facebook_months.run(DATA, getattr(facebook_months, machines), hours=3)
    drf, slots = map(summary, runs)
    assert drf["completion"]["mean"] < slots["completion"]["mean"]
    sizes = [name for name in drf["by size"] if name != "over 10000"]
    assert all(drf["by size"][name]["mean completion"] <= slots["by size"][name]["mean completion"] for name in sizes)
    assert drf["unfairness"] < slots["unfairness"]
    shorter = facebook_months.shorter(runs)
    assert list(shorter)[:2] == ["1-500", "501-1000"]
    assert shorter["1-500"] > least


@needs_data
def test_guarantees_in_traces():
    """Where queues miss their guarantees for hours, they do so for less than half as long with preemption; little is lost.

    Half of the guide's table, in sum: on one eighth nearly all hours are of two pods. In FB-2010 next to nothing is preempted.
    """
    import guarantees_in_traces as example

    found, missed = example.run(example.openb(DATA, 1.0)[:4], looks=400), [0.0, 0.0]
    for off, on in zip(found[::2], found[1::2], strict=True):
        assert (off["revokes"], off["revoked"], off["lost"]) == (False, 0, 0.0)
        assert (on["revokes"], on["tasks"]) == (True, off["tasks"])
        missed = [missed[0] + off["below guarantee"], missed[1] + on["below guarantee"]]
        assert on["lost"] < 0.01 * max(on["utilisation"].values()) * on["makespan"]
    assert missed[1] < missed[0] / 2
    assert "of all work" in example.table(found)


def test_what_each_queue_is_short_of_over_time():
    """The same figure as the audit over time has: B waits for all of A's first task, and gets nothing back for it from fifo."""
    found = {policy: summary(simulate(two_users(), policy, samples=400))["over time"] for policy in ("drf", "fifo")}
    for policy, each in found.items():
        run = simulate(two_users(), policy, samples=400)
        seconds = np.diff(run.at).mean()
        for queue in each["queues"]:
            k = run.queues.index(queue["name"])
            assert queue["entitled"] == pytest.approx(run.fair[:, k].sum() * seconds / 3600)
            assert queue["got"] == pytest.approx(run.shares[:, k].sum() * seconds / 3600)
            assert queue["short"] == pytest.approx(queue["entitled"] - queue["got"])
    assert found["drf"]["short"] < found["fifo"]["short"]
    assert [(queue["name"], queue["status"]) for queue in found["fifo"]["queues"]] == [("B", "wronged"), ("A", "ahead")]


def test_entitled_follows_the_tree():
    """Two of a team of three weigh as much together as the one beside them."""
    jobs = Jobs()
    for queue in ("x/a", "x/b", "y"):
        jobs.add(0.0, queue, {"cpu": 1000}, 10.0, 40)
    run = simulate(
        jobs.workload("tree", synthetic_nodes(1, "cpu=8"), [Queue("x"), Queue("x/*", limit={"cpu": 1000}), Queue("y")])
    )
    assert run.fair[1].tolist() == [1 / 8, 1 / 8, 6 / 8]


STARVE = """submit,queue,tasks,duration,cpu,gang
0,x,1,100000,1,0
0,y,1,10,1,0
2,y,1,10,1,0
4,y,1,10,1,0
6,y,1,10,1,0
8,y,1,10,1,0
8.5,y,20,10,1,0
9,g,4,10,1,1
9,g,4,10,1,1
"""


def over_time_of(run):
    return {queue["name"]: queue for queue in summary(run)["over time"]["queues"]}


@pytest.mark.parametrize("policy", ["drf", "fifo-strict"])
def test_of_a_short_run_each_moment_is_looked_at(tmp_path, policy):
    """Its gangs run for a thousandth of the time: whoever looks now and then sees none of it.

    By drf they are owed room, and the others wait for 20 s; in order of submission it is the gangs that wait.
    """
    path = tmp_path / "starve.csv"
    path.write_text(STARVE)
    run = simulate(replace(read_trace(path), nodes=synthetic_nodes(3, "cpu=2")), policy)
    found = over_time_of(run)
    seconds = {name: queue["got"] * 3600 * 6 for name, queue in found.items()}
    assert seconds == pytest.approx({"x": 100_000, "y": 250, "g": 80})
    assert summary(run)["over time"]["every"] == 0
    waits = found["y" if policy == "drf" else "g"]
    assert 0 < waits["short"] < waits["entitled"] == pytest.approx(waits["got"] + waits["short"])
    assert sum(queue["entitled"] for queue in found.values()) <= run.ended.max() / 3600


@pytest.mark.parametrize("compiled", [True, False])
def test_of_a_long_run_what_queues_got_is_exact_and_that_their_parts_are_not_is_said(compiled):
    jobs = Jobs()
    jobs.add(0.0, "hog", {"cpu": 1000}, 100.0, 2100)
    jobs.add(5000.25, "a", {"cpu": 1000}, 0.5, 3)
    run = simulate(jobs.workload("long", synthetic_nodes(1, "cpu=2"), []), samples=50, compiled=compiled)
    found = over_time_of(run)
    assert {name: queue["got"] * 3600 * 2 for name, queue in found.items()} == pytest.approx({"hog": 210_000, "a": 1.5})
    every = summary(run)["over time"]["every"]
    assert every >= 2000
    assert f"every {every / 60:.1f} min" in runs_text([summary(run)])


def test_a_gang_that_never_fits_entitles_nobody_in_a_simulation():
    jobs = Jobs()
    jobs.add(0.0, "a", {"cpu": 1000}, 10.0, 20)
    jobs.add(0.0, "b", {"cpu": 1000}, 10.0, 5, gang=True)
    run = simulate(jobs.workload("never", synthetic_nodes(1, "cpu=2"), []))
    assert over_time_of(run)["b"]["entitled"] == over_time_of(run)["b"]["got"] == 0.0
    assert over_time_of(run)["a"]["status"] == "even"
