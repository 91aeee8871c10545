"""The audit over time: held against a slow integration in fractions; the reasons one by one; who starves."""

import asyncio
import json
import re
from fractions import Fraction

import numpy as np
import pytest
from tests.memory_store import MemoryStore

from conftest import Live
from fairlead.audit.over_time_report import over_time_text
from fairlead.client.connection import ServiceError
from fairlead.journal import Journal, JournalError, read_history
from fairlead.journal import journal as journals
from fairlead.journal.separate import audit_journal
from fairlead.journal.sql import SqlStore
from fairlead.model.problems import Problem
from fairlead.model.specs import After, Job, Node, Queue, Settings
from fairlead.people.accounts import Person
from fairlead.people.rules import Caller
from fairlead.policies.registry import find_policy
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Configured,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodesReserved,
    TasksFinished,
    TasksPlaced,
    TasksStarted,
)
from fairlead.scheduler.reports import audits as audit_over_time
from fairlead.scheduler.reports.audits import audit_history
from fairlead.service.journal_reports import JournalReports
from fairlead.service.loop import Busy

CALLERS = {uid: Caller(Person(f"p{uid}", uid, uid)) for uid in (1, 2)}


class Story:
    """A history written by hand: who is placed when and where is said, not decided."""

    def __init__(self, queues, *nodes, **settings):
        self.facts = [Configured(at=0.0, queues=queues, settings=Settings(**settings))]
        for i, node in enumerate(nodes):
            capacity, labels = node if isinstance(node, tuple) else (node, {})
            self.facts.append(NodeJoined(at=0.0, node=Node(f"n{i}", capacity, labels)))
        self.jobs, self.next = 0, {}

    def submit(self, at, queue, demand, tasks=1, **more):
        self.jobs += 1
        self.next[self.jobs] = 0
        self.facts.append(JobSubmitted(at=at, id=self.jobs, job=Job(queue, demand, tasks, **more)))
        return self.jobs

    def place(self, at, job, node=0, count=1):
        index = np.arange(self.next[job], self.next[job] + count)
        self.next[job] += count
        task = {"job": np.full(count, job), "index": index, "attempt": np.ones(count, np.int64)}
        self.facts.append(TasksPlaced(at=at, **task, node=np.full(count, node)))
        self.facts.append(TasksStarted(at=at, **task))
        return task

    def end(self, at, task):
        nothing = np.zeros(len(task["job"]), np.int64)
        self.facts.append(TasksFinished(at=at, **task, outcome=nothing, code=nothing))

    def run(self, begin, end, job, node=0, count=1):
        task = self.place(begin, job, node, count)
        self.end(end, task)

    def audit(self, end, begin=0.0, moments=0, **more):
        facts = sorted(self.facts, key=lambda fact: (fact.at, not isinstance(fact, TasksFinished)))
        return audit_history(new_state(), facts, begin, end, moments, **more)


def by_name(found):
    return {queue["name"]: queue for queue in found["queues"]}


CPU = 1000


def slots(count):
    return {"cpu": count * CPU}


def one_after_another(story, job, begin, end, each=1.0):
    """Tasks of a job, each as soon as the one before has ended."""
    at = begin
    while at < end:
        story.run(at, min(end, at + each), job)
        at += each


def ties_by_name(until=600.0, each=1.0):
    """Two slots, three people: the last by name has had one task when the others come, and then none."""
    story = Story([Queue("*")], slots(2))
    zoe, bob, alice = (story.submit(at, name, slots(1), 5000) for at, name in ((0, "zoe"), (0.5, "bob"), (0.5, "alice")))
    story.run(0, 1, zoe)
    one_after_another(story, bob, 0.5, until, each)
    one_after_another(story, alice, 1, until, each)
    return story


def test_whoever_is_last_by_name_is_wronged_through_ties():
    """Two thirds of a slot each: the issue of ties that are always broken alike, by hand."""
    found = ties_by_name(601.0).audit(601.0)
    queues = by_name(found)
    assert not found["fair"]
    assert found["queues"][0] is queues["zoe"]
    # Entitled to both slots... of which one task: alone until 0.5, then two thirds of a slot of both.
    entitled = 2 * 0.5 + Fraction(2, 3) * Fraction(1201, 2)
    hours = float(entitled * CPU / 3600)
    assert queues["zoe"]["entitled"] == pytest.approx(hours)
    assert queues["zoe"]["got"] == pytest.approx(1 * CPU / 3600)
    assert queues["zoe"]["short"] == pytest.approx(hours - CPU / 3600)
    assert queues["zoe"]["resource"] == "cpu"
    assert queues["zoe"]["status"] == "wronged"
    assert next(iter(queues["zoe"]["through"])) == "ties"
    assert queues["zoe"]["through"]["ties"] > 0.99 * queues["zoe"]["short"]
    assert [queues[name]["status"] for name in ("alice", "bob")] == ["ahead", "ahead"]
    (starved,) = found["starved"]
    assert (starved["queue"], starved["others"], starved["through"]) == ("zoe", ["alice", "bob"], "ties")
    assert starved["until"] == 601.0
    assert starved["since"] == 1.0, "that is when her only task ended"
    short = ties_by_name(200.0, each=4.0)
    assert not short.audit(200.0)["starved"], "not for five minutes yet"
    assert short.audit(200.0, starved_after=60.0)["starved"]


# -- the sums, in fractions --------------------------------------------------------------------------------------------


def random_story(seed):
    """Placements that nobody decided: whatever fits, at random, for a while; all times are whole numbers."""
    rng = np.random.default_rng(seed)
    queues = [Queue(name, weight=float(rng.integers(1, 4))) for name in "abc"]
    if seed % 3 == 0:
        queues[0] = Queue("a", limit={"cpu": 3 * CPU})
    capacity = {"cpu": 6 * CPU, "memory": 8}
    story, running, used = Story(queues, capacity), [], {"cpu": 0, "memory": 0}
    for at in range(40):
        for task, demand in [each for each in running if rng.random() < 0.3]:
            story.end(float(at), task)
            running = [each for each in running if each[0] is not task]
            used = {name: used[name] - demand[name] for name in used}
        if rng.random() < 0.4 and at < 30:
            demand = {"cpu": int(rng.integers(1, 4)) * CPU, "memory": int(rng.integers(1, 4))}
            story.submit(float(at), "abc"[rng.integers(3)], demand, int(rng.integers(1, 5)))
        for fact in [fact for fact in story.facts if isinstance(fact, JobSubmitted)]:
            fits = all(used[name] + fact.job.demand[name] <= capacity[name] for name in used)
            if story.next[fact.id] < fact.job.tasks and fits and rng.random() < 0.5:
                running.append((story.place(float(at), fact.id), fact.job.demand))
                used = {name: used[name] + fact.job.demand[name] for name in used}
    return story, capacity


def integrated(story, capacity, begin, end):
    """Entitled and got, share-seconds of each queue, second by second, in fractions."""
    specs = {queue.name: queue for queue in story.facts[0].queues}
    sums = {name: [Fraction(0), Fraction(0)] for name in specs}
    for at in range(begin, end):
        jobs, waiting, running = {}, {}, {}
        for fact in story.facts:
            if fact.at > at:
                continue
            if isinstance(fact, JobSubmitted):
                jobs[fact.id], waiting[fact.id], running[fact.id] = fact.job, fact.job.tasks, 0
            elif isinstance(fact, TasksPlaced):
                for job in fact.job.tolist():
                    waiting[job] -= 1
                    running[job] += 1
            elif isinstance(fact, TasksFinished):
                for job in fact.job.tolist():
                    running[job] -= 1

        def of(name, r, *counts, jobs=jobs):
            return sum(jobs[j].demand[r] * count[j] for count in counts for j in jobs if jobs[j].queue == name)

        active = [name for name in specs if any(jobs[j].queue == name and waiting[j] + running[j] for j in jobs)]
        if not active:
            continue
        count = [sum(waiting[j] + running[j] for j in jobs if jobs[j].queue == name) for name in active]
        each = [[Fraction(of(name, r, waiting, running), k) for r in capacity] for name, k in zip(active, count, strict=True)]
        problem = Problem.from_arrays(
            np.array([Fraction(capacity[r]) for r in capacity], object), np.array(each, object),
            tasks=np.array([Fraction(k) for k in count], object),
            weight=np.array([[Fraction(int(specs[name].weight))] * 2 for name in active], object),
            limit=np.array([[Fraction(specs[name].limit.get(r, -1)) for r in capacity] for name in active], object),
        )  # fmt: skip
        tasks = find_policy("drf").divide(problem).tasks
        for k, name in enumerate(active):
            due = max(tasks[k] * each[k][r] / capacity[name_of] for r, name_of in enumerate(capacity))
            has = max(Fraction(of(name, r, running), capacity[r]) for r in capacity)
            waits = any(jobs[j].queue == name and waiting[j] for j in jobs)
            sums[name][0] += due if waits else min(due, has)
            sums[name][1] += has
    return sums


@pytest.mark.parametrize("seed", range(12))
def test_the_sums_are_those_of_a_slow_integration_in_fractions(seed):
    story, capacity = random_story(seed)
    begin, end = (0, 40) if seed % 2 else (7, 33)
    expected = integrated(story, capacity, begin, end)
    found = story.audit(float(end), float(begin))
    queues = by_name(found)
    for name, (entitled, got) in expected.items():
        if name not in queues:
            assert entitled == got == 0
            continue
        queue = queues[name]
        size = capacity[queue["resource"]] / 3600
        assert queue["entitled"] == pytest.approx(float(entitled * size), abs=1e-9)
        assert queue["got"] == pytest.approx(float(got * size), abs=1e-9)
        assert queue["short"] == pytest.approx(queue["entitled"] - queue["got"])
        assert sum(queue["through"].values()) == pytest.approx(max(0.0, queue["short"]) + queue["made_up"])
        assert queue["share_hours"]["entitled"] == pytest.approx(float(entitled) / 3600)
    drawn = {each["name"]: each for each in found["series"]["queues"]}
    assert set(drawn) == set(queues)


def test_many_moments_are_looked_at_here_and_there_and_the_error_is_told(monkeypatch):
    """Tasks of 0.1 s, a slot changing hands a thousand times: every look might meet the same phase, and does not."""
    story = Story([Queue("*")], slots(1))
    a, b = (story.submit(0, name, slots(1), 10_000) for name in "ab")
    monkeypatch.setattr(audit_over_time, "MOST_SAMPLES", 200)
    for k in range(500):
        story.run(2 * k / 10, (2 * k + 1) / 10, a)
        story.run((2 * k + 1) / 10, (2 * k + 2) / 10, b)
    exact, looked = story.audit(100.0), story.audit(100.0, moments=201)
    assert exact["every"] == exact["error"] == 0
    assert looked["every"] == 0.5
    assert looked["looks"] <= 200
    assert 0 <= looked["error"] < 0.02
    for name in "ab":
        each, other = by_name(exact)[name], by_name(looked)[name]
        assert other["got"] == pytest.approx(each["got"], abs=2 * looked["error"] * each["got"] + 1e-9)
        assert other["entitled"] == pytest.approx(each["entitled"])
        assert each["status"] == other["status"] == "even"
    assert exact["fair"]
    assert looked["fair"]


# -- through what --------------------------------------------------------------------------------------------------------


def test_through_a_limit():
    """Two tasks may run at once; since that is a part of what it is entitled to, only what is less than a task is short."""
    story = Story([Queue("a", limit={"cpu": 2500}), Queue("b")], slots(8))
    a, b = story.submit(0, "a", slots(1), 9), story.submit(0, "b", slots(1), 9)
    story.place(0, a, count=2)
    story.place(0, b, count=6)
    found = by_name(story.audit(3600.0))
    assert found["a"]["entitled"] == 2500
    assert found["a"]["through"] == {"limits": 500}
    assert found["b"]["status"] == "ahead"


def test_through_running_tasks():
    """Whoever comes late waits for what was there before."""
    story = Story([Queue("*")], slots(4))
    a = story.submit(0, "a", slots(1), 9)
    story.place(0, a, count=4)
    story.submit(1800, "b", slots(1), 9)
    found = story.audit(3600.0)
    assert by_name(found)["b"]["through"] == {"running tasks": 1000}
    assert by_name(found)["b"]["status"] == "wronged"
    assert not found["starved"], "nobody was served instead"


def test_through_placement():
    """One CPU is free on each of three nodes, and a task needs two; then holes that are too small go to others."""
    story = Story([Queue("*")], slots(4), slots(4), slots(4))
    a = story.submit(0, "a", slots(3), 3)
    for node in range(3):
        story.place(0, a, node)
    story.submit(0, "b", slots(2), 9)
    assert by_name(story.audit(3600.0))["b"]["through"].keys() == {"placement"}

    holes = Story([Queue("*")], slots(4))
    a = holes.submit(0, "a", slots(1), 5000)
    tasks = [holes.place(0, a) for _ in range(4)]
    holes.submit(0.5, "b", slots(2), 9)
    for k in range(4, 1000, 4):
        holes.end(float(k), tasks.pop(0))
        tasks.append(holes.place(float(k), a))
    found = holes.audit(1000.0)
    assert by_name(found)["b"]["through"]["placement"] > 0.99 * by_name(found)["b"]["short"]
    assert [each["queue"] for each in found["starved"]] == ["b"]


def test_what_no_node_could_hold_entitles_to_nothing():
    story = Story([Queue("*")], slots(4), slots(4))
    a = story.submit(0, "a", slots(1), 8)
    story.place(0, a, 0, 4)
    story.place(0, a, 1, 4)
    story.submit(0, "b", slots(5), 9)
    story.submit(0, "c", slots(1), 9, on={"zone": ["west"]})
    found = story.audit(3600.0)
    assert found["fair"]
    assert set(by_name(found)) == {"a"}


def test_through_a_reservation():
    """A node is kept for a gang; a task that would fit there has to wait."""
    story = Story([Queue("*")], slots(4))
    a = story.submit(0, "a", slots(1), 2)
    story.place(0, a, count=2)
    gang = story.submit(0, "g", slots(1), 4, gang=True)
    story.submit(0, "b", slots(1), 9)
    story.facts.append(NodesReserved(at=0.0, id=gang, nodes=[0], tasks=[4]))
    assert by_name(story.audit(3600.0))["b"]["through"].keys() == {"reservations"}


def test_through_whole_tasks():
    """Three slots, two people: whoever asks for a little less has two of them, though always served when it had less."""
    story = Story([Queue("*")], slots(3))
    a, b = story.submit(0, "a", {"cpu": 999}, 5000), story.submit(0, "b", slots(1), 5000)
    story.place(0, b)
    tasks = [story.place(0.0, a), story.place(0.0, a)]
    for k in range(4, 1000, 4):
        story.end(float(k), tasks.pop(0))
        tasks.append(story.place(float(k), a))
    found = by_name(story.audit(1000.0))
    assert found["b"]["status"] == "wronged"
    assert found["b"]["through"]["whole tasks"] > 0.99 * found["b"]["short"]


def test_through_the_order():
    """First come, first served: whoever has more goes on being served."""
    story = Story([Queue("", policy="fifo"), Queue("*")], slots(2))
    a, _ = story.submit(0, "a", slots(1), 5000), story.submit(1.5, "b", slots(1), 5000)
    tasks = [story.place(0.0, a), story.place(0.0, a)]
    for k in range(4, 1000, 4):
        story.end(float(k), tasks.pop(0))
        tasks.append(story.place(float(k), a))
    found = story.audit(1000.0)
    assert by_name(found)["b"]["through"]["order"] > 0.99 * by_name(found)["b"]["short"]
    assert [(each["queue"], each["through"]) for each in found["starved"]] == [("b", "order")]


@pytest.mark.parametrize("policy", ["fifo", "priority", "drf"])
def test_of_equal_shares_the_policy_of_their_queue_decides(policy):
    """Two below one queue, of which always the same is served: where shares are nothing to its policy, that is no tie."""
    story = Story([Queue("small"), Queue("top", policy=policy), Queue("top/x"), Queue("top/y")], slots(2))
    small, x = story.submit(0, "small", slots(1), 5000), story.submit(0, "top/x", slots(1), 5000)
    story.submit(0, "top/y", slots(1), 5000)
    one_after_another(story, small, 0, 100.0)
    one_after_another(story, x, 0, 100.0)
    assert next(iter(by_name(story.audit(100.0))["top/y"]["through"])) == ("ties" if policy == "drf" else "order")


def test_names_are_cut_and_numbers_never():
    story = Story([Queue("*")], {"cpu": 2000, "memory": 64 << 30})
    name = "maximiliane-mustermann-of-the-quantum-gravity-group-at-the-department-of-physics"
    for queue in (name, "b"):
        job = story.submit(0, queue, {"cpu": 1000, "memory": 3 << 30}, 5000)
        one_after_another(story, job, 0, 100.0)
    found = {**story.audit(3600.0), "complete": True, "asked": 3600.0}
    for width in (60, 80, 200):
        text = over_time_text(found, width)
        table = text[text.index("queue") : text.index("\n\n", text.index("queue"))]
        assert max(map(len, table.split("\n"))) <= width
        assert not re.search(r"\d\.?…", table)
        assert all(word in table for word in ("entitled", "got", "short"))
        assert (name in table) == (width == 200)
        assert "maxi" in table
        assert "ics" in table


def test_while_nothing_was_decided():
    """There is room and it is its turn: the scheduler was not there."""
    story = Story([Queue("*")], slots(2))
    story.submit(0, "a", slots(1), 2)
    found = by_name(story.audit(3600.0))
    assert found["a"]["through"] == {"not decided": 2000}


def test_what_was_less_is_made_up_for():
    """An hour to one, an hour to the other: even, with what was short meanwhile and for what."""
    story = Story([Queue("*")], slots(1))
    a, b = story.submit(0, "a", slots(1), 9), story.submit(0, "b", slots(1), 9)
    story.run(0, 3600, a)
    story.run(3600, 7200, b)
    found = story.audit(7200.0)
    assert found["fair"]
    queues = by_name(found)
    assert [queues["b"][what] for what in ("entitled", "got", "short", "made_up")] == [1000, 1000, 0, 500]
    assert queues["b"]["through"] == {"ties": 500}, "the first turn had to be somebody's"
    assert not found["starved"]
    assert found["series"]["queues"][0] == {"name": "a", "entitled": [0.5, 0.5], "got": [1.0, 0.0]}


def test_what_was_held_or_comes_after_another_did_not_wait_before():
    """Room was given away while a job could not have used it: so it waits for tasks that were there before it."""
    for how in ("held", "after", "neither"):
        story = Story([Queue("*")], {**slots(3), "memory": 4})
        a, first = story.submit(0, "a", slots(1), 9), story.submit(0, "c", {"memory": 1})
        story.run(0, 10, first)
        more = {"after": [After(first, "end")]} if how == "after" else {}
        b = story.submit(1, "b", slots(1), 9, **more)
        if how == "held":
            story.facts.append(JobHeld(at=1.0, id=b))
            story.facts.append(JobReleased(at=10.0, id=b))
        story.place(2.0, a, count=3)
        through = by_name(story.audit(3610.0))["b"]["through"]
        assert ("order" in through) == (how == "neither"), how
        assert ("running tasks" in through) == (how != "neither"), how


def test_a_node_that_is_drained_entitles_to_what_still_runs_there():
    story = Story([Queue("*")], slots(4), slots(4))
    a = story.submit(0, "a", slots(1), 20)
    story.place(0, a, 0, 4)
    story.place(0, a, 1, 2)
    story.facts.append(NodeDrained(at=0.0, node="n1"))
    assert by_name(story.audit(3600.0))["a"]["entitled"] == 6000
    assert story.audit(3600.0)["fair"]


# -- of a journal --------------------------------------------------------------------------------------------------------


def kept(story, store, every=None):
    """Write a story into a store, with a snapshot after every so many facts; many at once: each commit waits for the disk."""
    journal, state = Journal(store), new_state()
    facts = sorted(story.facts, key=lambda fact: (fact.at, not isinstance(fact, TasksFinished)))
    step = every or 500
    for first in range(0, len(facts), step):
        some = facts[first : first + step]
        journal.append(some)
        for fact in some:
            apply(state, fact)
        if len(some) == every:
            list(journal.save(state))
    return journal


def test_a_journal_is_audited_from_any_snapshot_alike():
    story = ties_by_name(600.0, each=8.0)
    store, snapped = MemoryStore(), MemoryStore()
    kept(story, store)
    kept(story, snapped, every=25)
    assert len(snapped.snapshots()) > 10
    for over in (333.25, 1e9):
        found, other = audit_journal(store, over), audit_journal(snapped, over)
        assert found["complete"]
        assert (found["since"], found["until"]) == (max(0.0, 600.0 - over), 600.0)
        for mine, theirs in zip(found["queues"], other["queues"], strict=True):
            assert {name: mine[name] for name in ("name", "entitled", "got")} == pytest.approx(
                {name: theirs[name] for name in ("name", "entitled", "got")}
            )
    assert [each["queue"] for each in audit_journal(snapped, 400.0)["starved"]] == ["zoe"]
    assert audit_journal(store, 50.0, until=650.0)["until"] == 650.0


def test_what_is_not_kept_any_more_is_said(monkeypatch):
    monkeypatch.setattr(journals, "KEEP_HISTORY", 20_000)
    store = MemoryStore()
    kept(ties_by_name(600.0), store, every=100)
    oldest = store.read(0, 1)[0].envelope.sequence
    assert oldest > 1
    found = audit_journal(store, 1e9)
    assert not found["complete"]
    assert 0 < found["since"] < 600
    assert found["queues"][0]["name"] == "zoe"
    assert audit_journal(store, 600 - found["since"] - 10)["complete"]
    assert read_history(store).position == oldest - 1
    with pytest.raises(JournalError, match="has no facts"):
        audit_journal(MemoryStore(), 60.0)


# -- the command ---------------------------------------------------------------------------------------------------------


def test_the_command_of_a_journal(command, tmp_path):
    kept(ties_by_name(600.0), SqlStore(tmp_path / "journal.db"))
    told = command("audit", "--over", "7d", "--journal", "journal.db", "--starved-after", "1min", "--report", "out.html")
    lines = told.stdout.splitlines()
    assert lines[0].startswith("10 min, from ")
    assert lines[0].endswith("in resource-seconds")
    assert lines[1] == "1,200 samples, at most one per 0.3 s; the sampled use is 0.0% off"
    assert [line.split()[0] for line in lines[3:8] if line.strip("─")][:2] == ["queue", "zoe"]
    assert any(line.startswith("✗ zoe was wronged by 40") and line.endswith(" of 401, through ties") for line in lines)
    assert any(line.startswith("✗ zoe starved: none of its tasks started for 9.98 min from ") for line in lines)
    assert lines[-1] == "not fair over this time: see above"
    page = (tmp_path / "out.html").read_text()
    assert "entitled" in page
    assert page.count("zoe") > 2
    found = json.loads(command("audit", "--over", "100s", "--journal", "journal.db", "--json").stdout)
    assert found["until"] - found["since"] == 100
    assert found["asked"] == 100
    assert found["complete"]
    assert found["queues"][0]["name"] == "zoe"
    assert not found["starved"]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--over", "7d", "--live"], 2, "audit one thing at a time: a problem file, --live, or --over with a period"),
        (["--journal", "journal.db", "--live"], 2, "--journal: has no effect with --live: omit it"),
        (["--over", "7d", "--journal", "none.db"], 1, "none.db: there is no journal"),
        (["--over", "7d", "--journal", "text.db"], 1, "text.db: is not a journal"),
        (["--over", "soon", "--journal", "none.db"], 2, "--over 'soon' is not a duration"),
        (["--over", "0s", "--journal", "none.db"], 2, "--over '0s': must be more than 0"),
        (["--over", "40000d"], 2, "--over '40000d': is longer than ten years: write at most 3650d"),
        (["--over", "7d", "--starved-after", "x"], 2, "--starved-after 'x' is not a duration"),
        (["--over", "7d", "--discrete"], 2, "--discrete: has no effect with --over"),
        (["--over", "7d"], 1, "no scheduler runs in "),
    ],
)
def test_what_cannot_be_audited_is_said_in_a_line(command, tmp_path, monkeypatch, arguments, status, says):
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "nobody"))
    (tmp_path / "text.db").write_text("hello")
    result = command("audit", *arguments)
    assert result.returncode == status
    assert result.stderr.count("\n") == 1
    assert says in result.stderr


def test_the_scheduler_that_runs_is_asked(tmp_path):
    """It has a process of its own read the journal, and answers others meanwhile."""
    with Live(tmp_path) as live:
        live.up()
        for queue in ("A", "B"):
            live.submit("--queue", queue, "--cpu", "3", "--memory", "1Gi", "--tasks", "20", "--", "sleep", "60")
        live.until(lambda: live.ask("status")["running"] == 3)
        found = live.ask("audit/over-time", seconds=3600.0)
        assert {queue["name"] for queue in found["queues"]} == {"A", "B"}
        assert found["complete"]
        assert found["until"] - found["since"] < 120
        assert "fair over this time" in live.ok("audit", "--over", "1h").splitlines()[-1]
        with pytest.raises(ServiceError, match="seconds"):
            live.ask("audit/over-time", seconds=-1)
        (live.home / "journal.db").rename(live.home / "moved.db")
        with pytest.raises(ServiceError, match=r"the journal cannot be audited: .*there is no journal"):
            live.ask("audit/over-time", seconds=60.0)
        (live.home / "moved.db").rename(live.home / "journal.db")


def test_nothing_in_the_folder_or_the_environment_has_a_part_in_the_audit(tmp_path, monkeypatch):
    """A scheduler may run as root, and may have been started where others write."""
    kept(ties_by_name(600.0, each=10.0), SqlStore(tmp_path / "journal.db"))
    trap, sprung = tmp_path / "trap", tmp_path / "sprung"
    for package in ("fairlead", "json"):
        (trap / package).mkdir(parents=True)
        (trap / package / "__init__.py").write_text(f"open({str(sprung)!r}, 'w')")
    monkeypatch.chdir(trap)
    monkeypatch.setenv("PYTHONPATH", str(trap))
    found = asyncio.run(JournalReports(tmp_path / "journal.db", lambda: 600.0)(CALLERS[1], "over-time", 100.0, 60.0))
    assert found["queues"][0]["name"] == "zoe"
    assert not sprung.exists()


def test_nobody_has_others_wait_for_more_than_one_audit(tmp_path):
    kept(ties_by_name(600.0, each=10.0), SqlStore(tmp_path / "journal.db"))

    async def main():
        audits = JournalReports(tmp_path / "journal.db", lambda: 600.0)
        calls = [audits(CALLERS[uid], "over-time", 100.0, 60.0) for uid in (1, 1, 2, 1)]
        first = await asyncio.gather(*calls, return_exceptions=True)
        return [*first, await audits(CALLERS[1], "over-time", 100.0, 60.0)]

    found = asyncio.run(main())
    assert [type(each) for each in found] == [dict, Busy, dict, Busy, dict]


def test_shares_are_compared_as_they_were_when_others_were_served():
    """What was placed since is left out: of those who were served, and of the team of the one who was not."""
    story = Story([Queue("*")], (slots(1), {"zone": "east"}), slots(4))
    b = story.submit(0, "b", slots(1), 5000)
    story.submit(0, "a", slots(1), 5000, on={"zone": ["east"]})
    story.place(1.0, b, 0)
    story.place(2.0, b, 1, 4)
    late = story.audit(1000.0, 2.0)
    assert by_name(late)["a"]["through"].keys() == {"ties"}, "nobody had anything when that node was given away"

    story = Story([Queue("x"), Queue("x/*"), Queue("y")], slots(3))
    y = story.submit(0, "y", slots(1), 5000)
    story.place(0, y)
    story.submit(0.5, "x/a", slots(1), 5000)
    story.place(1.0, y)
    c = story.submit(1.5, "x/c", slots(1), 5000)
    story.place(2.0, c)
    late = story.audit(1000.0, 2.0)
    assert by_name(late)["x/a"]["through"].keys() == {"order"}, "y had one when it was served, and x nothing"


def test_who_waits_for_less_than_one_task_is_not_wronged():
    """A task that lasts a hundredth of a second and waits for a tenth; and who waits for as long as a task of its own takes."""
    story = Story([Queue("*")], slots(1))
    job = story.submit(0, "quick", slots(1))
    story.run(0.1, 0.11, job)
    found = story.audit(1.0)
    assert (found["fair"], by_name(found)["quick"]["status"]) == (True, "even")
    assert by_name(found)["quick"]["short"] > 0
    for waited, wronged in ((9.0, False), (60.0, True)):
        story = Story([Queue("*")], slots(1))
        story.run(0, waited, story.submit(0, "a", slots(1), 2))
        story.run(waited, waited + 10, story.submit(0, "b", slots(1)))
        assert (by_name(story.audit(waited + 10))["b"]["status"] == "wronged") == wronged


def test_of_many_that_are_short_all_are_told_why():
    """A hundred people wait beside one who has all; more than are asked at one look."""
    story = Story([Queue("*")], slots(2))
    one_after_another(story, story.submit(0, "hog", slots(2), 500), 0, 200, each=2.0)
    for k in range(100):
        story.submit(0.5, f"u{k:02}", slots(1), 5)
    found = story.audit(200.0)
    queues = by_name(found)
    assert len(queues) == 101
    told = [queues[f"u{k:02}"]["through"] for k in range(100)]
    assert {next(iter(through)) for through in told} == {"ties"}
    assert all(through.get("not known", 0.0) < 0.02 * sum(through.values()) for through in told)
    text = over_time_text({**found, "asked": 200.0, "complete": True})
    assert "and 61 more" in text
    assert len(text.splitlines()) < 200
