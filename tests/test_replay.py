"""A live journal, simulated under its own configuration, gives its own starts."""

import json
import os
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest

from fairlead.engines.simulated import SimulatedCluster
from fairlead.engines.step import Scheduler
from fairlead.journal import History, Journal, Unrecorded, read_history
from fairlead.journal.sql import SqlStore
from fairlead.model.specs import ROOT, After, Job, Node, Queue, Settings
from fairlead.policies.contract import PolicyError
from fairlead.scheduler import admission
from fairlead.scheduler.decide import next_step
from fairlead.scheduler.effects import apply
from fairlead.scheduler.facts import (
    Configured,
    JobCancelled,
    JobEdited,
    JobHeld,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeResumed,
    TasksPlaced,
    TasksRevoked,
)
from fairlead.simulate.configured import configured
from fairlead.simulate.measure import summary
from fairlead.simulate.report import runs_text
from fairlead.simulate.run import simulate
from fairlead.simulate.traces import journal as journals
from fairlead.simulate.traces import read_trace
from fairlead.simulate.workload import cut, moved

G = 2**30
NODES = [Node(f"n{k}", {"cpu": 4000, "memory": 8 * G}, {"zone": "east" if k < 2 else "west"}) for k in range(4)]
LARGER = Node("n1", {"cpu": 6000, "memory": 8 * G}, {"zone": "west"})
QUEUES = [
    Queue(ROOT, history=64.0),
    Queue("a", weight=2.0),
    Queue("b", guarantee={"cpu": 4000}, guarantee_timeout=1.0),
    Queue("lab", limit={"cpu": 12_000}),
    Queue("lab/ml", strict=True),
    Queue("lab/nlp", fair_share_timeout=4.0, min_runtime=2.0),
]
OTHERS = [Queue(ROOT, history=64.0), Queue("a"), Queue("b", weight=3.0, max_tasks=6), *QUEUES[3:]]
HOUR = 60.0
WORLDS = [*range(8), 57, 123, *range(200, 200 + int(os.environ.get("FAIRLEAD_FUZZ", "0")) // 100)]
"""Seeds. Of 57 and 123 decisions depend on the last bit of forecasts, so on the clock that these are counted on."""


class Hour:
    """An hour of mixed load, compressed into a minute, of the live scheduler on a virtual clock."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = Random(seed)
        self.plan: list[tuple[float, int, object]] = []
        self.jobs = [self.job(number) for number in range(1, 41)]
        tasks = np.array([job.tasks for job in self.jobs])
        self.cluster = SimulatedCluster(
            NODES, np.array([list(node.capacity.values()) for node in NODES]),
            np.array([[job.demand["cpu"], job.demand["memory"]] for job in self.jobs]), np.zeros(len(tasks), np.int64), 1,
            tasks, np.array([self.rng.randint(1, 60) / 4 for _ in range(tasks.sum())]), np.cumsum(tasks) - tasks,
            (tasks > 1).astype(np.int64), False,
        )  # fmt: skip
        for number, at in enumerate(sorted(self.moment() for _ in self.jobs)):
            self.ask(at, self.submission(number))
            self.meddle(number + 1, at)
        self.ask(0.0, lambda state, now: [admission.configure(state, QUEUES, Settings(reserve_after=2.0), now)])
        self.ask(25.0, lambda state, now: [admission.configure(state, OTHERS, Settings(reserve_after=4.0), now)])
        self.ask(10.0, lambda state, now: [admission.drain(state, "n0", now)])
        self.ask(30.0, lambda state, now: [admission.resume(state, "n0", now)])
        self.plan.append((18.0625, 1, lambda: self.cluster.lose("n3")))
        self.plan.append((35.0, 1, lambda: self.cluster.join(NODES[3], np.array(list(NODES[3].capacity.values())))))
        self.plan.append((40.0, 1, lambda: self.cluster.join(LARGER, np.array(list(LARGER.capacity.values())))))
        self.run(path)

    def moment(self) -> float:
        return self.rng.randint(0, 4 * int(HOUR)) / 4

    def job(self, number: int) -> Job:
        rng, tasks = self.rng, self.rng.randint(1, 4)
        gang = rng.random() < 0.25
        after = [After(rng.randint(1, number - 1), rng.choice(["success", "end"]))] if rng.random() < 0.2 and number > 1 else []
        return Job(
            rng.choice(["a", "b", "lab/ml", "lab/nlp"]), {"cpu": rng.randint(1, 3) * 1000, "memory": rng.randint(1, 4) * G},
            tasks, on={"zone": ["west"]} if rng.random() < 0.2 else {}, priority=rng.randint(0, 2), gang=gang, after=after,
            name=rng.choice(["", "train", "test"]), user=rng.choice(["ada", "bob"]), held=rng.random() < 0.1,
            at_most=2 if not gang and rng.random() < 0.2 else None, time_limit=30.0 if rng.random() < 0.3 else None,
            revocable=rng.random() < 0.1,
        )  # fmt: skip

    def ask(self, at, request) -> None:
        self.plan.append((at, 0 if at == 0.0 else 2, request))

    def submission(self, number: int):
        def submit(state, now):
            self.cluster.submit(number, self.jobs[number].tasks)
            return admission.submit(state, [self.jobs[number]], now)

        return submit

    def meddle(self, job: int, at: float) -> None:
        """What people ask about a job after it was submitted."""
        rng = self.rng
        if self.jobs[job - 1].held or rng.random() < 0.1:
            self.ask(at + 0.25, lambda state, now: [admission.hold(state, job, now)])
            self.ask(at + rng.randint(2, 40) / 4, lambda state, now: [admission.release(state, job, now)])
        if rng.random() < 0.15:
            indices = None if rng.random() < 0.5 else [rng.randrange(self.jobs[job - 1].tasks)]
            self.ask(at + rng.randint(1, 40) / 4, lambda state, now: [admission.cancel(state, job, indices, now)])
        if rng.random() < 0.15:
            edit = JobEdited(at=0.0, id=job, priority=rng.randint(0, 5))
            self.ask(
                at + rng.randint(1, 20) / 4,
                lambda state, now: [admission.edit(state, job, JobEdited(at=now, id=job, priority=edit.priority))],
            )

    def run(self, path: Path) -> None:
        """Step whenever something happens or is due, as a service on a real clock would at the earliest."""
        cluster, plan = self.cluster, sorted(self.plan, key=lambda each: each[:2])
        with closing(Journal(SqlStore(path))) as journal:
            scheduler = Scheduler(journal, cluster, lambda: cluster.now, repeat_after=np.inf, strict=True)
            happened = 0.0
            while True:
                while plan and plan[0][1] == 2 and not asks_something(plan[0][2], scheduler.state, plan[0][0]):
                    plan.pop(0)
                now = min([cluster.next_event(), *(at for at, *_ in plan[:1])])
                if now == np.inf:
                    break
                due, happened = next_step(scheduler.state, now, cluster.now, happened)
                cluster.now, requests = due, []
                while plan and plan[0][0] <= cluster.now:
                    _, kind, what = plan.pop(0)
                    if kind == 1:
                        what()
                    else:
                        requests.append(allowed(what))
                scheduler.step(requests)
                while scheduler.more or cluster.next_event() == cluster.now:
                    scheduler.step()


def asks_something(request, state, now) -> bool:
    """No step is made where nothing happens: it might review reservations early, and a simulation has none."""
    return request.__name__ == "submit" or bool(allowed(request)(state, now))


def allowed(request):
    """The request, if it is not refused."""

    def ask(state, now):
        try:
            return [fact for fact in request(state, now) if fact is not None]
        except admission.Refused:
            return []

    return ask


def placements(facts):
    return [
        (fact.at, *one)
        for fact in facts
        if isinstance(fact, TasksPlaced)
        for one in zip(fact.job.tolist(), fact.index.tolist(), fact.attempt.tolist(), fact.node.tolist(), strict=True)
    ]


def on_its_clock(workload):
    return moved(workload, workload.origin)


def facts_of(path):
    with closing(SqlStore(path, to_read=True)) as store:
        return list(read_history(store).facts)


@pytest.mark.parametrize("seed", WORLDS)
def test_a_journal_is_replayed_to_the_last_placement(seed, tmp_path):
    path = tmp_path / "journal.db"
    Hour(path, seed)
    there, here = facts_of(path), []
    run = simulate(read_trace(path), record=here.extend)
    assert placements(here) == placements(there)
    began = {one[1:3] for one in placements(there)}
    assert run.replay == {"tasks": len(began), "median": 0.0, "p90": 0.0, "not begun": 0}
    assert run.revoked == sum(len(fact.job) for fact in there if isinstance(fact, TasksRevoked))
    kinds = (NodeLost, NodeJoined, NodeDrained, NodeResumed, Configured, JobCancelled)
    assert {type(fact) for fact in here} >= {*kinds}, "what happened meanwhile is replayed too"
    others = [job for job in range(len(run.submitted)) if np.isnan(run.ended[job])]
    assert len(others) <= len(run.submitted) / 4, "those held for good, or after such"
    assert "replay error, median" in runs_text([summary(run)])


def test_a_scheduler_with_nothing_to_do_wakes_when_a_claim_is_due(tmp_path):
    jobs = [Job("a", {"cpu": 1000}, 4), Job("b", {"cpu": 2000}), Job("a", {"cpu": 1000}, 4)]
    cluster = SimulatedCluster(
        [Node("n", {"cpu": 4000})], np.array([[4000]]), np.array([[1000], [2000], [1000]]), np.zeros(3, np.int64), 1,
        np.array([4, 1, 4]), np.array([1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]), np.array([0, 4, 5]), np.array([1, 0, 1]),
        False,
    )  # fmt: skip
    scheduler = Scheduler(Unrecorded(), cluster, lambda: cluster.now, repeat_after=np.inf, strict=True)
    assert scheduler.idle_for(1.0) == 1.0, "before the nodes are known, nothing is decided"
    queues = [Queue(ROOT, history=0.0), Queue("a"), Queue("b", guarantee={"cpu": 2000}, guarantee_timeout=20.0)]

    def step(*requests):
        scheduler.step(requests)
        while scheduler.more or cluster.next_event() == cluster.now:
            scheduler.step()

    step(lambda state, now: [admission.configure(state, queues, Settings(reserve_after=5.0), now)])
    for number, job in enumerate(jobs):
        cluster.submit(number, job.tasks)
        step(lambda state, now, job=job: admission.submit(state, [job], now))
    assert scheduler.idle_for(60.0) == 20.0, "the claim of b"
    assert scheduler.idle_for(1.0) == 1.0
    cluster.now = 1.0
    step()
    assert scheduler.idle_for(60.0) == 19.0, "who can claim does not reserve"
    assert scheduler.state.holds.n == 0
    scheduler.placing = False
    assert scheduler.idle_for(60.0) == 60.0


def test_another_configuration_or_other_machines_replace_the_journal_s(tmp_path):
    path, file = tmp_path / "journal.db", tmp_path / "lab.toml"
    Hour(path, 3)
    found = read_trace(path)
    assert found.queues == QUEUES
    assert found.settings == Settings(reserve_after=2.0)
    assert [node.name for node in found.nodes] == ["n0", "n1", "n2", "n3"]
    assert {type(fact) for fact in configured(found, 3, "cpu=8,memory=16Gi").changes}.isdisjoint(
        {NodeLost, NodeJoined, NodeDrained, NodeResumed}
    )
    file.write_text("".join(f'[[queue]]\nname = "{name}"\n' for name in ("a", "b", "lab", "lab/*")))
    other = configured(found, config=file)
    assert not any(isinstance(fact, Configured) for fact in other.changes)
    assert other.settings == Settings()
    changed = configured(found, changes=["scheduler.reserve_after=1e6", "queue.a.weight=9"])
    later = next(fact for fact in changed.changes if isinstance(fact, Configured))
    assert changed.settings.reserve_after == later.settings.reserve_after == 1e6
    assert [[q.weight for q in some if q.name == "a"] for some in (changed.queues, later.queues)] == [[9], [9]]
    assert simulate(changed).replay["p90"] > 0
    for policy in ("easy", "slots:4"):
        with pytest.raises(PolicyError, match=f"{policy}: cannot replay"):
            simulate(found, policy)


def test_a_part_of_a_journal(tmp_path):
    path = tmp_path / "journal.db"
    Hour(path, 5)
    found = read_trace(path)
    part = cut(found, start=20.0, end=40.0)
    assert len(part.begun) == part.tasks.sum()
    assert all(fact.at >= 0 for fact in part.changes)
    assert {fact.id for fact in part.changes if isinstance(fact, JobCancelled | JobHeld)} <= set(range(1, len(part.submit) + 1))
    assert simulate(part).replay["tasks"] > 0
    twice = cut(found, speed=2.0)
    assert simulate(twice).replay is None


def test_what_a_snapshot_knows_is_replayed(tmp_path, monkeypatch):
    """Of a journal whose first facts are folded: jobs that it remembers, with what ran, waits or is held."""
    path = tmp_path / "journal.db"
    Hour(path, 4)
    whole, facts, known = on_its_clock(read_trace(path)), facts_of(path), Unrecorded().recover()
    half = next(k for k, fact in enumerate(facts) if isinstance(fact, NodeLost))
    for fact in facts[:half]:
        apply(known, fact)
    monkeypatch.setattr(journals, "read_history", lambda store: History(known, half, iter(facts[half:])))
    found = on_its_clock(read_trace(path))
    assert found.notes[0].startswith(f"{path}: begins with a snapshot: ")
    for name in ("submit", "queue", "tasks", "gang"):
        assert np.array_equal(getattr(found, name), getattr(whole, name)), name
    assert found.after == whole.after
    assert found.queues == whole.queues
    assert found.settings == whole.settings
    assert found.nodes == whole.nodes
    assert found.duration == pytest.approx(whole.duration, abs=15.0)
    assert (found.duration == whole.duration).mean() > 0.8, "but of attempts that the snapshot knows no more"
    real = ~np.isnan(found.begun)
    assert (found.begun == whole.begun)[real].mean() > 0.9
    replay = simulate(found).replay
    assert replay["tasks"] + replay["not begun"] == real.sum()


def test_a_real_hour_of_mixed_load_compressed_into_seconds(live):
    """The real scheduler on a real clock: a gang, dependencies, priorities, a reload, a hold; starts within a part of a task."""
    live.ok("submit", "-q", "A", "--cpu", "3", "--memory", "1Gi", "--tasks", "6", "--", "sleep", "0.8")
    live.ok("submit", "-q", "B", "--cpu", "1", "--memory", "2Gi", "--tasks", "8", "--", "sleep", "0.6")
    live.ok("submit", "-q", "B", "--cpu", "2", "--memory", "1Gi", "--tasks", "3", "--gang", "--", "sleep", "0.7")
    live.ok("submit", "-q", "A", "--cpu", "1", "--memory", "1Gi", "--priority", "2", "--hold", "--", "sleep", "0.5")
    live.ok("submit", "-q", "A", "--cpu", "1", "--memory", "1Gi", "--after", "2", "--", "sleep", "0.5")
    live.config.write_text(live.config.read_text().replace('name = "A"', 'name = "A"\nweight = 2', 1))
    live.ok("reload")
    live.ok("release", "4")
    live.ok("wait", "1", "2", "3", "4", "5")
    live.end()
    told = json.loads(live.ok("simulate", str(live.home / "journal.db"), "--json"))
    replay = told["runs"][0]["replay"]
    assert (replay["tasks"], replay["not begun"]) == (19, 0)
    assert replay["median"] <= 0.3, "half a task"
