"""Hundreds of seeded histories in which the scheduler is killed at every step between decide, record and act.

Nothing is lost, nothing runs twice, whatever the engine does. A failing seed is printed; run it again alone with
FAIRLEAD_SEED=n pytest tests/test_crash.py
"""

import os
from collections import Counter
from random import Random

import pytest

from fairlead.engines.step import Scheduler, Stalled
from fairlead.journal import Journal, JournalFull
from fairlead.journal.memory import MemoryStore
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler import admission
from fairlead.scheduler.statuses import CANCELLED, FAILED, STATUS_NAMES, SUCCEEDED
from fake_engine import Attempt, FakeEngine, Killed
from worlds import check_invariants, same

SEEDS = (
    [int(os.environ["FAIRLEAD_SEED"])]
    if "FAIRLEAD_SEED" in os.environ
    else range(int(os.environ.get("FAIRLEAD_FUZZ", "72")))
)


class MortalJournal(Journal):
    """Kills its scheduler just before or just after a commit, has a full disk now and then, and snapshots often or never."""

    def __init__(self, engine, rng):
        super().__init__(MemoryStore())
        self.every, self.saved_at = rng.choice([0, 8]), 0
        self.engine, self.rng = engine, rng

    def append(self, facts, by=()):
        self.engine.tick("before recording")
        if facts and self.engine.faults and self.rng.random() < 0.03:
            raise JournalFull("no room")
        super().append(facts, by)
        self.engine.tick("after recording")

    def snapshot_due(self):
        return bool(self.every) and self.position - self.saved_at >= self.every

    def save(self, state):
        self.engine.tick("before the snapshot")
        if self.engine.faults and self.rng.random() < 0.2:
            raise JournalFull("no room")
        super().save(state)
        self.saved_at = self.position


def history(seed):
    rng = Random(seed)
    nodes = [Node(f"n{i}", {"cpu": rng.randint(2, 8), "memory": rng.randint(2, 8)}) for i in range(rng.randint(1, 4))]
    engine = FakeEngine(rng, nodes)
    journal = MortalJournal(engine, rng)
    queues = [Queue("a"), Queue("b", weight=2.0), Queue("c")]
    settings = Settings(reserve_after=3.0, max_losses=50, keep_jobs=1000)
    killed = Counter()
    accepted, cancelled = {}, set()

    def make():
        while True:
            try:
                scheduler = Scheduler(journal, engine, lambda: engine.now)
                if not scheduler.state.tree.declared:
                    scheduler.step([lambda state, now: [admission.configure(state, queues, settings, now)]])
                return scheduler
            except Killed as where:
                killed[str(where)] += 1
            except (Stalled, JournalFull):
                pass

    scheduler = make()
    jobs_wanted = rng.randint(3, 12)
    for round_ in range(3000):
        if round_ == 300:
            engine.mend()
        if engine.faults and rng.random() < 0.3:
            engine.kill_after = rng.randint(0, 6)
        try:
            facts = []
            if (
                engine.faults
                and not scheduler.stalled
                and jobs_wanted > len(accepted)
                and rng.random() < 0.3
                and scheduler.state.resources
            ):
                demand = {"cpu": rng.randint(1, 2), "memory": rng.randint(0, 2)}
                job = Job(rng.choice("abc"), demand, rng.randint(1, 5), gang=rng.random() < 0.2)
                facts += admission.submit(scheduler.state, [job], engine.now)
            elif accepted and rng.random() < 0.03 and not scheduler.stalled:
                chosen = rng.choice(sorted(accepted))
                fact = admission.cancel(scheduler.state, chosen, None, engine.now)
                if fact:
                    facts.append(fact)
                    cancelled.add(chosen)
            scheduler.step([lambda state, now, facts=facts: facts])
            for fact in facts:
                if hasattr(fact, "job"):
                    accepted[fact.id] = fact.job
        except Killed as where:
            killed[str(where)] += 1
            engine.kill_after = None
            scheduler = make()
            for job in scheduler.state.index.specs:  # recorded before the kill, though nobody was told
                accepted.setdefault(job, scheduler.state.index.specs[job])
        except Stalled:
            pass
        if round_ % 5 == 0:
            check_invariants(scheduler.state)
        engine.pass_time(rng.expovariate(2) if engine.faults else 2.0)
        if not engine.faults and len(scheduler.state.ended_jobs()) == scheduler.state.index.last and not engine.ended:
            break
    engine.kill_after = None
    if scheduler.stalled:
        scheduler.step()

    state = scheduler.state
    assert set(accepted) <= set(state.index.specs), "a job was lost"
    for job, spec in state.index.specs.items():
        row = state.job_row(job)
        first = state.jobs.first[row]
        for index in range(spec.tasks):
            status = state.tasks.status[first + index]
            runs = [engine.runs[Attempt(job, index, n)] for n in range(1, int(state.tasks.attempt[first + index]) + 1)]
            assert status in (SUCCEEDED, FAILED, CANCELLED), f"{job}.{index} is {STATUS_NAMES[status]} at the end"
            assert all(r <= 1 for r in runs), f"an attempt of {job}.{index} ran twice: {runs}"
            assert engine.done[job, index] <= 1, f"{job}.{index} was done {engine.done[job, index]} times"
            assert (engine.done[job, index] == 1) == (status == SUCCEEDED)
            assert status != CANCELLED or job in cancelled
    assert not engine.running
    for job, index, number in engine.runs:
        assert 0 <= index < state.index.specs[job].tasks, f"{job}.{index} ran, and there is none"
        assert number >= 1, f"attempt {number} of {job}.{index} ran, and they are counted from 1"
    assert same(journal.recover()) == same(state)
    return killed


@pytest.mark.parametrize("block", range(8))
def test_no_kill_loses_or_repeats_a_task(block):
    killed = Counter()
    for seed in list(SEEDS)[block::8]:
        try:
            killed += history(seed)
        except BaseException:
            print(f"\nFAIRLEAD_SEED={seed}")
            raise
    if len(SEEDS) >= 240:
        everywhere = {
            "before deciding", "before recording", "after recording", "in the middle of acting",
            "before acknowledging", "before the snapshot",
        }  # fmt: skip
        assert set(killed) == everywhere, f"not killed everywhere: {killed}"
