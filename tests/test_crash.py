"""Seeded histories in which everything goes wrong that can: the scheduler is killed at every step between decide,
record and act, the power fails, the disk lies, rots, is full or slow, the clock jumps, the engine tears, blocks and repeats,
machines come and go, two schedulers run at once, an older journal is put back, while people ask for things all the time.

What was acknowledged holds, nothing runs twice, and every answer is explained by the order of the facts. A failing history is
made as small as it can be, and printed; run it again with FAIRLEAD_HISTORY=SEED:ROUNDS:KINDS pytest tests/test_crash.py
"""

import os
from collections import Counter
from random import Random
from typing import NamedTuple

import pytest
from msgspec.structs import replace
from tests.updates import acknowledge, unacknowledged

from fairlead.engines.contract import Superseded
from fairlead.engines.step import Scheduler, Stalled
from fairlead.journal import Journal, JournalError, JournalFull
from fairlead.journal.store import TakenOver
from fairlead.model.specs import Framework, Job, Node, Queue, Settings
from fairlead.scheduler import admission
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import JobCancelled, JobSubmitted, ResourcesReserved, decode
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.frameworks.reservations import Move, Moves
from fairlead.scheduler.kernel.view import MIN_OFFER
from fairlead.scheduler.statuses import CANCELLED, FAILED, STATUS_NAMES, SUCCEEDED
from fake_engine import ENGINE_KINDS, Attempt, FakeEngine, Faults, Killed
from simulated_disk import Disk, DiskStore
from worlds import check_invariants, list_jobs, same

KINDS = sorted(ENGINE_KINDS | {"killed", "power", "lies", "rot", "full", "slow", "clock", "second", "older"})
ROUNDS = 12
HISTORIES = int(os.environ.get("FAIRLEAD_FUZZ", "104"))
PLACES = {
    "before deciding", "before recording", "after recording", "in the middle of acting", "before acknowledging",
    "before the snapshot", "within the snapshot",
}  # fmt: skip


class History(NamedTuple):
    """One history: what it is drawn from, how long things go wrong in it, and which things."""

    seed: int
    rounds: int
    kinds: frozenset

    def __str__(self):
        return f"FAIRLEAD_HISTORY='{self.seed}:{self.rounds}:{','.join(sorted(self.kinds))}'"


class MortalJournal(Journal):
    """Kills its scheduler just before or just after a commit, finds the disk full or slow, and snapshots often or never."""

    def __init__(self, world):
        super().__init__(DiskStore(world.disk))
        self.world, self.saved_at = world, self.position

    def append(self, facts, by=()):
        world = self.world
        world.engine.tick("before recording")
        world.disk.full = bool(facts) and world.faults.happens("full", 0.04)
        if world.faults.happens("slow", 0.05):
            world.engine.now += world.faults.rng("slow").expovariate(1)
        super().append(facts, by)
        if facts:
            world.acknowledged[self.position] = self._checksum
        world.engine.tick("after recording")

    def snapshot_due(self):
        return bool(self.world.every) and self.position - self.saved_at >= self.world.every

    def save(self, state):
        self.world.engine.tick("before the snapshot")
        self.world.disk.full = self.world.faults.happens("full", 0.2)
        position = self.position
        for _ in super().save(state):
            yield
            self.world.engine.tick("within the snapshot")
            self.world.disk.full = False
        self.saved_at = position


class Ask:
    """Something that somebody asks for until there is an answer."""

    def __init__(self, what, key, about=None):
        self.what, self.key, self.about = what, key, about
        self.since = self.until = None  # positions of the journal when it was first asked, and when it was answered
        self.answer = self.drawn = None

    def __call__(self, state, now):
        try:
            return self.facts(state, now)
        except admission.Refused:
            self.drawn = "refused"
            return []

    def facts(self, state, now):
        match self.what:
            case "submit":
                known = admission.repeated(state, self.key, "")
                facts = admission.submit(state, [self.about], now) if known is None else []
                self.drawn = facts[0].id if facts else known
                return facts
            case "cancel":
                fact = admission.cancel(state, self.about, None, now)
            case "hold":
                fact = admission.hold(state, self.about, now)
            case "release":
                fact = admission.release(state, self.about, now)
            case "look":
                fact, self.drawn = None, seen(state)
            case "framework":
                return self.of_a_framework(state, now)
        return [fact] if fact else []

    def of_a_framework(self, state, now):
        """It comes, answers offers, says that it has heard, or loses its connection, whatever it did before."""
        who, rng = self.about, Random(self.key)
        member = state.frameworks.members.get(who)
        if member is None or member.away_since is not None:
            if who in state.frameworks.gone:
                return []
            return frameworks.subscribe(state, Framework(who, roles=["d", "a"], failover_timeout=60.0), who, [], now)
        told = [each for each in unacknowledged(state, who) if rng.random() < 0.5]
        if told:
            return acknowledge(state, who, told[0].task, told[0].update.number, now)
        mine = [offer for offer in state.offers.id[: state.offers.n].tolist() if frameworks.whose(state, offer) == who]
        if not mine or rng.random() < 0.1:
            return frameworks.disconnect(state, who, now) if rng.random() < 0.3 else frameworks.revive(state, who, [], now)
        said = [(job, rng.choice([None, (0, 0), (0, 1)])) for job in state.frameworks.inside if rng.random() < 0.3]
        if said:
            job, end = said[0]
            return frameworks.report_status(state, job, "running", "{}", str(self.key), now, end)
        within = "e" if rng.random() < 0.4 else ""
        kept = state.frameworks.offered_apart.get(mine[0], {})
        job = Job("", {"cpu": 1}, task=f"t{self.key}", key=f"t{self.key}", executor=within)
        if "r" in kept and rng.random() < 0.7:
            job = replace(job, apart={"r": {"cpu": 1}})
        if rng.random() < 0.5:
            job = replace(job, ports=[(31000 + self.key % 3, 31001 + self.key % 3)])
        moves = [Moves(0, [Move({"cpu": 1}, mark="r", role="d")])] if rng.random() < 0.3 else []
        executors = {"e": Job("", {"cpu": 1} if rng.random() < 0.5 else {}, executor="e", key=f"e{self.key}")}
        asked = [*moves, *([job] if rng.random() < 0.7 else [])]
        return frameworks.accept(state, who, mine[:1], asked, 1.0, now, executors)[0]


def given_back(state, now):
    """What roles have reserved, and nobody uses, is everybody's again."""
    rows = state.cluster.rows
    parcels = [
        (rows[node], mark, each) for node, here in state.frameworks.role_reservations.items() for mark, each in here.items()
    ]
    idle = [(row, mark, each.idle) for row, mark, each in parcels if each.there and each.idle]
    return [ResourcesReserved(at=now, node=row, amount=amount, of=mark) for row, mark, amount in idle]


def seen(state):
    """What a list of the jobs says of them."""
    return {job["id"]: (job["status"] == "cancelled", job["tasks"]) for job in list_jobs(state)["jobs"]}


class World:
    """A disk, an engine, people, and the scheduler that there is."""

    def __init__(self, history):
        self.rng = rng = Random(history.seed)
        self.faults = Faults(history.seed, set(history.kinds))
        self.answers = Random(-1 - history.seed).choice([0, 0, 12])  # of frameworks
        more = MIN_OFFER["memory"] if self.answers else 0
        capacity = [{"cpu": rng.randint(2, 8), "memory": rng.randint(2, 8) + more} for _ in range(rng.randint(1, 4))]
        self.engine = FakeEngine(rng, [Node(f"n{i}", each) for i, each in enumerate(capacity)], self.faults)
        self.disk = Disk(self.faults)
        self.disk.lies_of = rng.choice(["log", "head"])
        self.every = rng.choice([0, 8])
        self.acknowledged = {}  # checksums of the last facts of what was recorded, by position
        self.images = []  # of the disk, as each scheduler found it
        self.killed, self.refused = Counter(), Counter()
        self.jump = 0.0
        self.asked, self.answered = [], []
        self.keys, self.wanted = 0, rng.randint(3, 8)
        self.scheduler = None
        self.start()

    def start(self):
        """Start a scheduler: after each thing that goes wrong, again."""
        while True:
            try:
                self.scheduler = self.make()
                return
            except Killed as where:
                self.die(where)
            except (Stalled, JournalFull):
                pass

    def make(self):
        self.disk.full = False
        try:
            journal = MortalJournal(self)
            self.images.append(self.disk.image())
            scheduler = Scheduler(journal, self.engine.connect(), lambda: self.engine.now + self.jump)
        except (JournalFull, TakenOver):
            raise
        except JournalError as refusal:
            if not self.disk.lied and not self.faults.count["rot"]:
                raise AssertionError("nothing was wrong, and it was refused") from refusal
            self.refused[type(refusal).__name__] += 1
            self.disk.put_back(self.disk.image())  # somebody has a copy
            return self.make()
        self.prove(journal)
        if not scheduler.state.tree.declared:
            queues = [Queue("a"), Queue("b", weight=2.0), Queue("c")]
            settings = Settings(idle_budget=0.02, max_losses=50, keep_jobs=1000)
            scheduler.step([lambda state, now: [admission.configure(state, queues, settings, now)]])
        return scheduler

    def prove(self, journal):
        """All that was recorded is there: else the journal would have refused itself."""
        if self.acknowledged:
            last = max(self.acknowledged)
            assert journal.position >= last, f"facts {journal.position + 1} to {last} are gone without a word"
            (record,) = journal._store.read(last - 1, 1)
            assert record.envelope.checksum == self.acknowledged[last], f"fact {last} is another, without a word"

    def die(self, where):
        self.killed[str(where)] += 1
        self.engine.kill_after = None
        if self.faults.happens("power", 0.4):
            self.disk.lose_power()
            if not self.disk.lied and self.faults.happens("rot", 0.3):  # one lie at a time: nothing proves what lies twice
                self.disk.rot()

    def round(self):
        """People ask, the scheduler steps, time passes."""
        if self.faults.happens("killed", 0.3):
            self.engine.kill_after = self.faults.rng("killed").randint(0, 6)
        if self.faults.happens("clock", 0.1):
            self.jump += self.faults.rng("clock").choice([-86400.0, -3.0, 3.0, 3600.0])
        if self.faults.happens("second", 0.04):
            self.two_at_once()
        if self.faults.happens("older", 0.03):
            self.put_an_older_one_back()
        self.people_ask()
        self.step(self.scheduler)
        self.engine.pass_time(self.rng.expovariate(2))

    def people_ask(self):
        """Each of three asks for one thing at a time, and again until there is an answer."""
        while len(self.asked) < 3 and self.rng.random() < 0.4:
            self.keys += 1
            jobs = sorted(self.scheduler.state.index.specs)
            if self.answers and self.rng.random() < 0.5:
                self.answers -= 1
                self.asked.append(Ask("framework", self.keys, self.rng.choice("fg")))
            elif self.wanted and (not jobs or self.rng.random() < 0.6):
                self.wanted -= 1
                key, gang = f"k{self.keys}", self.rng.random() < 0.2
                most = 1 if gang else 2  # so that it fits on any machine
                demand = {"cpu": self.rng.randint(1, most), "memory": self.rng.randint(0, most)}
                job = Job(self.rng.choice("abc"), demand, 2 if gang else self.rng.randint(1, 4), gang=gang, key=key)
                job = replace(job, led=gang and self.keys % 2 == 0)
                self.asked.append(Ask("submit", key, job))
            elif jobs:
                what = self.rng.choice(["look", "look", "look", "cancel", "hold", "release"])
                self.asked.append(Ask(what, "", self.rng.choice(jobs)))

    def step(self, scheduler):
        """One step with all that is asked for; what it answers holds from now on."""
        asked = [] if scheduler.stalled or not scheduler.state.resources else list(self.asked)
        before = scheduler.journal.position
        for ask in asked:
            ask.since = before if ask.since is None else ask.since
        try:
            scheduler.step(asked)
        except Killed as where:
            self.die(where)
            self.start()
        except Stalled:
            pass
        else:
            for ask in asked:
                ask.until, ask.answer = scheduler.journal.position, ask.drawn
                if ask.what == "cancel":
                    ask.answer = attempts_of(scheduler.state, ask.about)
                self.asked.remove(ask)
                self.answered.append(ask)
            return
        for ask in asked:
            if ask.what != "submit":  # it may have happened or not: a submission alone has a key to ask again with
                self.asked.remove(ask)

    def two_at_once(self):
        """Somebody took the lock away, and another scheduler starts beside this one, which goes on for a while."""
        first = self.scheduler
        self.start()
        if self.scheduler is first:
            return
        for _ in range(3):
            try:
                first.step([Ask("submit", "", Job("a", {"cpu": 1}))])
            except (Superseded, TakenOver):
                return
            except Killed as where:
                self.die(where)
                self.start()
                return
            except Stalled:
                continue
        raise AssertionError("two schedulers go on side by side")

    def put_an_older_one_back(self):
        """The journal of an earlier start is put back with its head: its scheduler is turned away, and the right one is back."""
        if len(self.images) < 2:
            return
        right, kill_after = self.disk.image(), self.engine.kill_after
        self.engine.kill_after = None
        self.disk.put_back(self.faults.rng("older").choice(self.images[:-1]))
        kinds, self.faults.kinds = self.faults.kinds, set()
        acknowledged, self.acknowledged = self.acknowledged, {}
        try:
            with pytest.raises(Superseded):
                self.make().step()
        finally:
            self.images.pop()
            self.faults.kinds, self.acknowledged = kinds, acknowledged
        self.refused["older"] += 1
        self.disk.put_back(right)
        self.engine.kill_after = kill_after
        self.start()

    def come_to_an_end(self):
        """From now on nothing goes wrong, and all that was asked for is done."""
        self.faults.kinds, self.engine.kill_after, self.disk.full = set(), None, False
        self.engine.mend()
        for _ in range(400):
            self.step(self.scheduler)
            state = self.scheduler.state
            while state.frameworks.members:  # one that is away may go by itself meanwhile
                who = min(state.frameworks.members)
                self.scheduler.step([lambda state, now, who=who: gone(state, who, now)])
            if given_back(state, 0.0):
                self.scheduler.step([given_back])
            for job in state.index.specs:  # nobody is left to release it
                fact = admission.release(state, job, self.engine.now + self.jump)
                if fact:
                    self.scheduler.step([lambda state, now, fact=fact: [fact]])
            self.engine.pass_time(2.0)
            if len(state.ended_jobs()) == state.index.last and not self.engine.ended and not self.asked:
                return
        raise AssertionError("it does not come to an end")


def gone(state, who, now):
    """A framework goes for good, if it is still there."""
    return frameworks.tear_down(state, who, now) if who in state.frameworks.members else []


def attempts_of(state, job):
    """How often each task of a job was placed."""
    row = state.job_row(job)
    first = state.jobs.first[row]
    return state.tasks.attempt[first : first + state.jobs.tasks[row]].tolist()


def run(history):
    """Let a history happen, and check all that was promised; returns the world as it is in the end."""
    world = World(history)
    for number in range(history.rounds):
        world.round()
        if number % 8 == 0:
            check_invariants(world.scheduler.state)
    world.come_to_an_end()
    state = world.scheduler.state
    cancelled = check_answers(world, state)
    check_tasks(world.engine, state, cancelled)
    assert same(MortalJournal(world).recover()) == same(state)
    return world


def check_answers(world, state):
    """What was acknowledged holds, and each answer is explained by the facts in their order; returns the cancelled jobs."""
    facts = [decode(body) for _, body in world.scheduler.journal.look(0, 10**6)]
    submitted = {fact.job.key: (at, fact.id) for at, fact in enumerate(facts, 1) if isinstance(fact, JobSubmitted)}
    assert len(submitted) == sum(isinstance(fact, JobSubmitted) for fact in facts), "a submission happened twice"
    replayed, seen_at = new_state(), {}
    looks = {at for ask in world.answered if ask.what == "look" for at in range(ask.since, ask.until + 1)}
    for at, fact in enumerate(facts, 1):
        apply(replayed, fact)
        if at in looks:
            seen_at[at] = seen(replayed)
    for ask in world.answered:
        if ask.what == "submit":
            at, number = submitted[ask.key]
            assert (number, ask.since < at <= ask.until) == (ask.answer, True), f"{ask.key} was answered otherwise"
        elif ask.what == "cancel":
            assert attempts_of(state, ask.about) == ask.answer, f"job {ask.about} started again after it was cancelled"
        elif ask.what == "look":
            assert ask.answer in [seen_at.get(at) for at in range(ask.since, ask.until + 1)], "no moment explains an answer"
    return {fact.id for fact in facts if isinstance(fact, JobCancelled)}


def check_tasks(engine, state, cancelled):
    """Each task came to its end, and ran as often as it should have."""
    for job, spec in state.index.specs.items():
        first = state.jobs.first[state.job_row(job)]
        for index in range(spec.tasks):
            status = state.tasks.status[first + index]
            runs = [engine.runs[Attempt(job, index, n)] for n in range(1, int(state.tasks.attempt[first + index]) + 1)]
            assert status in (SUCCEEDED, FAILED, CANCELLED), f"{job}.{index} is {STATUS_NAMES[status]} at the end"
            assert all(r <= 1 for r in runs), f"an attempt of {job}.{index} ran twice: {runs}"
            assert engine.done[job, index] <= 1, f"{job}.{index} was done {engine.done[job, index]} times"
            if not spec.led or index == 0:  # the others end well with their leader, whatever they do
                assert (engine.done[job, index] == 1) == (status == SUCCEEDED)
            assert status != CANCELLED or job in cancelled
    assert not engine.running
    for job, index, number in engine.runs:
        assert 0 <= index < state.index.specs[job].tasks, f"{job}.{index} ran, and there is none"
        assert number >= 1, f"attempt {number} of {job}.{index} ran, and they are counted from 1"


def fails(history):
    try:
        run(history)
    except Exception:
        return True
    return False


def smallest(history):
    """A history that fails, with as few things that go wrong, and as short, as can be found."""
    for kind in KINDS:
        less = history._replace(kinds=history.kinds - {kind})
        history = less if fails(less) else history
    while history.rounds > 1 and fails(half := history._replace(rounds=history.rounds // 2)):
        history = half
    while history.rounds > 1 and fails(less := history._replace(rounds=history.rounds - 1)):
        history = less
    return history


def histories(block):
    if "FAIRLEAD_HISTORY" in os.environ:
        seed, rounds, kinds = os.environ["FAIRLEAD_HISTORY"].split(":")
        return [History(int(seed), int(rounds), frozenset(filter(None, kinds.split(","))))][block:]
    # All at once, or a few of them: some things show only where others do not get in their way.
    found = []
    for seed in range(block, HISTORIES, 8):
        rng = Random(seed)
        kinds = KINDS if seed % 3 else rng.sample(KINDS, rng.randint(1, 6))
        found.append(History(seed, ROUNDS, frozenset(kinds)))
    return found


@pytest.mark.parametrize("block", range(8))
def test_whatever_goes_wrong_what_was_acknowledged_holds_and_nothing_runs_twice(block, caplog):
    caplog.set_level("ERROR")
    happened, killed, refused = Counter(), Counter(), Counter()
    for history in histories(block):
        try:
            world = run(history)
        except Exception:
            print(f"\n{history}\nthe smallest that fails: {smallest(history)}")
            raise
        caplog.clear()  # what is logged of an error holds all that it was raised in
        happened += world.faults.count
        killed += world.killed
        refused += world.refused
    if HISTORIES >= 20_000 and "FAIRLEAD_HISTORY" not in os.environ:
        assert set(happened) == set(KINDS) | {"rot"}, f"not everything went wrong: {happened}"
        assert set(killed) == PLACES, f"not killed everywhere: {killed}"
        assert {"Damaged", "older"} <= set(refused), f"nothing was refused: {refused}"
