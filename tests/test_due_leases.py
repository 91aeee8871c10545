"""Leases that are due to others, over virtual time: sessions that always have calls, beside a stream of jobs."""

from collections import Counter
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.specs import Queue
from fairlead.scheduler.facts import TasksStarted
from fairlead.scheduler.reports import leases as reports
from fairlead.scheduler.reports.leases import due_leases
from fairlead.scheduler.statuses import PLACED, RUNNING
from test_scheduling import World
from whole_tasks import attainable, divided

TICK = 0.0625
CHECK, SHORTEST = 4, 8
"""Ticks between two looks at what is due, and that a lease lasts at least."""


class Sharing:
    """Sessions, each in a leaf of its own or with another, and a leaf with a stream of jobs that last `ticks` each."""

    def __init__(self, capacity, queues, leaves, demands, ticks=5, **stream):
        self.world, self.leaves, self.demands, self.ticks = World(queues, capacity), leaves, demands, ticks
        self.sessions, self.began, self.due, self.use, self.ended = {}, {}, set(), Counter(), []
        self.stream = self.world.submit("jobs", demands["jobs"], 2000, **stream) if "jobs" in demands else None

    def run(self, ticks, warm=0):
        for tick in range(ticks):
            self.tick(tick)
            if tick >= warm:
                used, state = self.world.state.queues.used, self.world.state
                total = state.cluster.total
                for leaf in self.demands:
                    row = state.tree.rows[leaf]
                    self.use[leaf] += (used[row] / total).max() / (ticks - warm)

    def tick(self, tick):
        state = self.world.state
        self.world.now += TICK
        for task, began in list(self.began.items()):
            lasts = self.ticks if task[0] == self.stream else SHORTEST
            if tick - began >= lasts and (task[0] == self.stream or (task[0], 1) in self.due):
                del self.began[task]
                self.ended += [task[0]] if task[0] != self.stream else []
                self.world.end(task[0])
        for name, leaf in self.leaves.items():
            if sum(state.jobs.waiting[state.job_row(job)] for job, of in self.sessions.items() if of == name) < 2:
                self.sessions[self.world.submit(leaf, self.demands[leaf])] = name
        self.world.decide(0)
        rows = np.flatnonzero(state.tasks.status[: state.tasks.n] == PLACED)
        if len(rows):
            columns = state.task_columns(rows)
            self.world.happen(TasksStarted(at=self.world.now, **columns))
            self.began |= dict.fromkeys(zip(columns["job"].tolist(), columns["index"].tolist(), strict=True), tick)
        if tick % CHECK == 0:
            self.due = due_leases(state, self.sessions, self.due)
            assert all(state.tasks.status[state.jobs.first[state.job_row(job)]] == RUNNING for job, _ in self.due)


@pytest.mark.parametrize("cpus", [2, 4, 5, 6])
def test_two_sessions_and_a_stream_of_jobs_have_their_parts(cpus):
    demands = {key: {"cpu": 1000} for key in ("A", "B", "jobs")}
    sharing = Sharing({"cpu": 1000 * cpus}, [Queue(name) for name in demands], {"one": "A", "two": "B"}, demands)
    sharing.run(480, warm=80)
    assert all(abs(3 * use - 1) < 0.03 for use in sharing.use.values()), sharing.use


@pytest.mark.parametrize(("cpus", "each"), [(4, (2, 1, 1)), (5, (1, 1, 3))])
def test_sessions_take_turns_as_jobs_do_where_demands_differ(cpus, each):
    """Whole tasks leave somebody below their part for as long as nothing ends: without turns up to half of it."""
    demands = {key: {"cpu": 1000 * cpu} for key, cpu in zip(("A", "B", "jobs"), each, strict=True)}
    sharing = Sharing({"cpu": 1000 * cpus}, [Queue(name) for name in demands], {"one": "A", "two": "B"}, demands)
    sharing.run(480, warm=80)
    assert all(abs(3 * use - 1) < 0.15 for use in sharing.use.values()), sharing.use


def test_sessions_and_jobs_of_any_demands_have_what_drf_gives_whole_tasks():
    random, machine = Random(7), (16, 32)
    cases = [[(1, 1), (1, 4), (2, 1)], *([(random.randint(1, 3), random.randint(1, 6)) for _ in range(3)] for _ in range(3))]
    found = []
    for case in cases:
        demands = {
            key: {"cpu": 1000 * cpu, "memory": memory * 2**30}
            for key, (cpu, memory) in zip(("A", "B", "jobs"), case, strict=True)
        }
        sharing = Sharing({"cpu": 16_000, "memory": 2**35}, [Queue(name) for name in demands], {"one": "A", "two": "B"}, demands)
        sharing.run(200, warm=40)
        parts = zip(sharing.use.values(), divided(machine, case), strict=True)
        found.append(min(use / part for use, part in parts) / attainable(machine, case))
    assert min(found) > 0.97, found


def test_leases_stay_while_everybody_has_their_part():
    demands = {"A": {"cpu": 1000, "memory": 2**28}, "B": {"cpu": 500, "memory": 2**29}, "jobs": {"cpu": 500, "memory": 2**28}}
    sharing = Sharing({"cpu": 5000, "memory": 5 * 2**29}, [Queue(name) for name in demands], {"one": "A", "two": "B"}, demands)
    sharing.run(160, warm=80)
    before = len(sharing.ended)
    sharing.run(400)
    assert len(sharing.ended) == before
    assert all(abs(use - 0.4) < 0.012 for use in (sharing.use[name] / 2 for name in demands)), sharing.use


def test_leases_stay_while_nobody_else_waits():
    sharing = Sharing({"cpu": 9000}, [Queue("A"), Queue("B")], {"one": "A"}, {"A": {"cpu": 5000}})
    sharing.run(80)
    assert not sharing.ended
    assert sharing.use["A"] == pytest.approx(5 / 9)


def test_a_large_job_gets_room_from_leases():
    sharing = Sharing({"cpu": 9000}, [Queue("A"), Queue("B")], {"one": "A"}, {"A": {"cpu": 1000}})
    sharing.run(20)
    job = sharing.world.submit("B", {"cpu": 6000})
    sharing.run(20)
    assert sharing.world.running()[job] == 1
    assert sum(sharing.world.running().values()) == 4


def test_one_job_takes_one_lease():
    sharing = Sharing({"cpu": 6000}, [Queue("A"), Queue("B")], {"one": "A"}, {"A": {"cpu": 1000}})
    sharing.run(40)
    job = sharing.world.submit("B", {"cpu": 1000})
    sharing.run(40)
    assert sharing.world.running()[job] == 1
    assert len(sharing.ended) == 1


@pytest.mark.parametrize(("policy", "leaves"), [("drf", "AA"), ("fifo", "AB"), ("fairtree", "AB")])
def test_sessions_take_turns_where_parts_do_not_say_who_is_next(policy, leaves):
    queues = [Queue("", policy=policy), Queue("A"), Queue("B")]
    demands = {key: {"cpu": 1000} for key in leaves}
    sharing = Sharing({"cpu": 1000}, queues, dict(zip(("one", "two"), leaves, strict=True)), demands)
    sharing.run(200)
    ran = Counter(sharing.sessions[job] for job in sharing.ended)
    assert min(ran["one"], ran["two"]) > 5


@given(st.data())
def test_leases_that_go_to_other_queues_are_those_of_the_rule_step_by_step(data):
    count = data.draw(st.integers(1, 5))
    part, leaf = st.integers(0, 32).map(lambda k: k / 32), st.integers(0, count - 1)
    has, entitled = (data.draw(st.lists(part, min_size=count, max_size=count)) for _ in range(2))
    waiting = data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    parts = SimpleNamespace(has=np.array(has), entitled=np.array(entitled), waiting=np.array(waiting))
    shares = data.draw(st.lists(st.tuples(leaf, st.sampled_from([1 / 32, 1 / 16, 1 / 8])), max_size=20))
    leases = [reports._Lease((k, 1), leaf, "", share) for k, (leaf, share) in enumerate(shares)]
    ending = {each.name for each in leases if data.draw(st.integers(0, 9)) == 0}
    assert reports._due_to_others(parts, leases, ending) == by_the_rule(parts, leases, ending)


def by_the_rule(parts, leases, ending):
    """Look through all leases for each that is given up."""
    due, has, gains, entitled = set(ending), parts.has.copy(), set(), np.maximum(parts.entitled, 1e-12)
    freed = 0.0
    for each in leases:
        if each.name in due:
            has[each.leaf] -= each.share
            freed += each.share
    while True:
        short = [k for k in range(len(has)) if parts.waiting[k] and has[k] < parts.entitled[k] * (1 - reports.TOLERANCE)]
        if not short:
            return due
        needy = min(short, key=lambda k: has[k] / entitled[k])
        gains.add(needy)
        if freed > 0:
            lacks = parts.entitled[needy] - has[needy]
            has[needy], freed = has[needy] + min(lacks, freed), freed - lacks
            continue
        kept = {each: (has[each.leaf] - each.share) / entitled[each.leaf] for each in leases if each.name not in due}
        kept = {each: level for each, level in kept.items() if each.leaf not in gains}
        gives = max(kept, key=kept.__getitem__, default=None)
        if gives is None or kept[gives] < has[needy] / entitled[needy] - reports.TOLERANCE:
            turns = [each.name for each in leases if any(parts.waiting[k] for k in range(len(has)) if k != each.leaf)]
            return due or set(turns[:1])
        due.add(gives.name)
        has[gives.leaf] -= gives.share
        has[needy] += gives.share
