"""One step: what an engine saw becomes facts, facts become orders, and nothing is ordered that is not recorded."""

import itertools
from contextlib import contextmanager
from random import Random

import numpy as np
import pytest
from tests.memory_store import MemoryStore

from fairlead.engines.contract import NO_ATTEMPTS, NO_ENDS, NOWHERE, Attempts, Ends, NodeDown, NodeDraining, NodeUp, Seen
from fairlead.engines.step import GRACE, REPEAT_AFTER, Scheduler, Stalled, act, observe
from fairlead.journal import Journal, JournalFull
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler import admission, snapshot
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Configured,
    JobCancelled,
    JobsForgotten,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    Outcome,
    TasksFinished,
    TasksRevoked,
    TasksStarted,
)
from fairlead.scheduler.invariants import check_invariants, check_order
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.snapshot import copy_of
from fairlead.scheduler.statuses import PLACED, RUNNING, SUCCEEDED, WAITING
from fairlead.scheduler.tables import NONE
from fake_engine import Attempt, FakeEngine, columns, ends, rows
from worlds import same

NOTHING = Seen(None, NO_ATTEMPTS, NO_ENDS, [])


class Told(FakeEngine):
    """Writes down what it is told."""

    def __init__(self):
        super().__init__(Random(1), [Node("n", {"cpu": 3000})], faults=False)
        self.told = []

    def start(self, launches):
        names = [launches.nodes[place] for place in launches.node]
        self.told.append(("start", rows(launches.attempts), names))
        super().start(launches)

    def stop(self, attempts, grace, where=NOWHERE):
        self.told.append(("stop", rows(attempts), grace))
        super().stop(attempts, grace, where)

    def acknowledge(self, attempts):
        self.told.append(("acknowledge", rows(attempts)))
        super().acknowledge(attempts)

    def limit(self, attempts, demands):
        pass

    def take_inventory(self):
        self.told.append(("inventory",))
        super().take_inventory()

    def forget(self, jobs):
        self.told.append(("forget", list(jobs)))


class World:
    def __init__(self, **more):
        self.engine, self.journal = Told(), Journal(MemoryStore())
        self.make(**more)
        self.submit(5)

    def make(self, **more):
        self.scheduler = Scheduler(self.journal, self.engine, lambda: self.engine.now, **more)

    @property
    def state(self):
        return self.scheduler.state

    def submit(self, tasks):
        job = Job("A", {"cpu": 1000}, tasks)

        def ask(state, now):
            if not state.tree.declared:
                yield admission.configure(state, [Queue("A")], Settings(), now)
            yield from admission.submit(state, [job], now)

        self.scheduler.step([ask])

    def statuses(self):
        return self.state.tasks.status[: self.state.tasks.n].tolist()


@pytest.fixture
def world():
    return World()


@pytest.fixture
def running():
    """Three of five tasks run."""
    world = World()
    for _ in range(3):
        world.scheduler.step()
    assert world.statuses() == [RUNNING] * 3 + [WAITING] * 2
    world.engine.told.clear()
    return world


def test_nothing_is_placed_before_the_engine_told_what_it_knows(world):
    assert world.engine.told == [("inventory",)]
    assert not world.scheduler.reconciled
    world.scheduler.step()
    assert world.scheduler.reconciled
    assert world.engine.told[1:] == [("start", [Attempt(1, i, 1) for i in range(3)], ["n"] * 3)], "and told once"


def test_an_engine_that_does_not_tell_is_asked_again(world):
    world.engine.line.clear()
    for _ in range(3):
        world.engine.now += REPEAT_AFTER / 2
        world.scheduler.step()
    assert world.engine.told[:2] == [("inventory",), ("inventory",)]
    assert world.scheduler.reconciled


def test_time_limits_hold_while_nothing_is_placed(world):
    job = Job("A", {"cpu": 1000}, time_limit=2.0)
    running = [lambda state, now: admission.submit(state, [job], now)]
    world.scheduler.step([lambda state, now: [admission.cancel(state, 1, None, now)], *running])
    for _ in range(3):
        world.scheduler.step()
    assert world.statuses()[-1] == RUNNING
    world.scheduler.placing = False
    world.engine.now += 3.0
    world.scheduler.step()
    assert world.engine.told[-1] == ("stop", [(2, 0, 1)], GRACE)


def test_what_was_told_and_not_answered_to_is_told_again(world):
    world.scheduler.step()
    world.engine.line.clear()
    world.engine.told.clear()
    world.scheduler.step()
    assert world.engine.told == []
    world.engine.now += REPEAT_AFTER
    world.scheduler.step()
    assert world.engine.told == [("start", [Attempt(1, i, 1) for i in range(3)], ["n"] * 3)]


def test_machines_that_are_not_there_any_more_are_lost_at_a_start(running):
    running.make(nodes=["other"])
    running.scheduler.step()
    assert running.statuses() == [WAITING] * 5
    assert b'"NodeLost"' in running.journal.look(running.journal.position - 1, 1)[0][1]


def test_parts_of_the_step_are_timed():
    entered = []

    @contextmanager
    def timed(what):
        entered.append(what)
        yield

    world = World(timed=timed)
    world.scheduler.step()
    assert entered == ["commit", "decide", "commit"]


def test_an_inventory_tells_what_was_lost_and_what_is_a_stray(running):
    known = columns([(1, 0, 1), (1, 1, 2), (9, 0, 1), (1, 77, 1), (1, -1, 1)])
    (fact,), strays = observe(running.state, NOTHING._replace(known=known), 7.0)
    assert rows(strays) == [(1, 1, 2), (9, 0, 1), (1, 77, 1), (1, -1, 1)]
    assert isinstance(fact, TasksFinished)
    assert rows(fact.attempts) == [(1, 1, 1), (1, 2, 1)]
    assert fact.outcome.tolist() == [Outcome.LOST] * 2
    apply(running.state, fact)


def test_an_inventory_of_some_nodes_says_nothing_of_what_others_run():
    """However many sent theirs since the last look, as after a restart."""
    state = new_state()
    happened = [admission.configure(state, [Queue("A")], Settings(), 0.0)]
    happened += [NodeJoined(at=0.0, node=Node(f"n{k}", {"cpu": 1000})) for k in range(5)]
    for fact in happened:
        apply(state, fact)
    for fact in admission.submit(state, [Job("A", {"cpu": 1000}, 5)], 0.0):
        apply(state, fact)
    for fact in decide(state, 1.0).facts:
        apply(state, fact)
    (started,), _ = observe(state, NOTHING._replace(started=state.attempts_of(np.arange(5))), 2.0)
    apply(state, started)
    on = {state.cluster.specs[node].name: task for task, node in enumerate(state.tasks.node[:5])}
    for names in itertools.chain.from_iterable(itertools.combinations(on, count) for count in range(6)):
        facts, _ = observe(state, NOTHING._replace(known=NO_ATTEMPTS, of=set(names)), 3.0)
        lost = [index for fact in facts for index in fact.index.tolist()]
        assert sorted(lost) == sorted(on[name] for name in names)


def test_what_ended_after_the_inventory_was_not_lost(running):
    seen = Seen(columns([(1, 0, 1)]), NO_ATTEMPTS, ends([((1, 1, 1), (0, 3)), ((1, 0, 1), (0, 0))]), [])
    (fact,), strays = observe(running.state, seen, 7.0)
    assert not len(strays.job)
    assert rows(fact.attempts) == [(1, 1, 1), (1, 0, 1), (1, 2, 1)]
    assert fact.outcome.tolist() == [Outcome.EXITED, Outcome.EXITED, Outcome.LOST]
    assert fact.code.tolist() == [3, 0, 0]


def test_what_was_not_seen_to_start_is_not_lost_for_it_may_start_yet(world):
    world.scheduler.step()
    world.engine.line.clear()  # the starts are on their way
    assert world.statuses()[:3] == [PLACED] * 3
    facts, strays = observe(world.state, NOTHING._replace(known=NO_ATTEMPTS), 7.0)
    assert (facts, len(strays.job)) == ([], 0)
    apply(world.state, TasksRevoked(at=7.0, **world.state.task_columns(np.arange(3))))
    assert observe(world.state, NOTHING._replace(known=NO_ATTEMPTS), 7.0)[0] == []


def test_what_is_told_twice_happens_once(world):
    world.scheduler.step()
    a, b = (1, 2, 1), (1, 0, 1)
    twice = Seen(
        None,
        columns([a, b, a, (3, 0, 1)]),
        ends([(b, (Outcome.EXITED, 1)), (b, (Outcome.SIGNALLED, 9)), ((3, 0, 1), (0, 0))]),
        [NodeUp(Node("n", {"cpu": 3000})), NodeUp(Node("m", {"cpu": 1})), NodeDown("m"), NodeDown("x"), NodeDown("n")],
    )
    (started, finished, *nodes), strays = observe(world.state, twice, 7.0)
    assert isinstance(started, TasksStarted)
    assert rows(started.attempts) == [a, b]
    assert rows(strays) == [(3, 0, 1)]
    assert rows(finished.attempts) == [b]
    assert (finished.outcome.tolist(), finished.code.tolist()) == ([Outcome.EXITED], [1]), "the first word counts"
    assert [type(fact) for fact in nodes] == [NodeJoined, NodeLost, NodeLost]
    for fact in (started, finished, *nodes):
        apply(world.state, fact)
    again, _ = observe(world.state, twice._replace(nodes=[]), 8.0)
    assert again == [], "nothing of it is new"


def test_a_state_without_jobs_knows_no_attempt():
    assert new_state().current_tasks(columns([(1, 0, 1), (0, 0, 0)])).tolist() == [NONE, NONE]
    assert observe(new_state(), NOTHING, 0.0)[0] == []


def test_facts_become_orders(running):
    (fact,) = [admission.cancel(running.state, 1, [0, 4], 7.0)]
    apply(running.state, fact)
    told = running.engine.told
    revoked = TasksRevoked(at=7.0, **running.state.task_columns(np.array([1])))
    act(running.state, running.engine, [fact, revoked, JobsForgotten(at=7.0, ids=[3, 4])])
    assert told == [("stop", [(1, 0, 1)], GRACE), ("stop", [(1, 1, 1)], GRACE), ("forget", [3, 4])]
    act(running.state, running.engine, [JobCancelled(at=7.0, id=99)])
    assert len(told) == 3, "a job that was forgotten has nothing to stop"


def test_ends_are_acknowledged_once_they_are_recorded_old_ones_too(running):
    running.engine.ended = {Attempt(1, 0, 1): (0, 0), Attempt(8, 0, 1): (0, 0)}
    del running.engine.running[Attempt(1, 0, 1)]
    running.scheduler.step()
    assert running.engine.told[0] == ("acknowledge", [(1, 0, 1), (8, 0, 1)])
    assert running.engine.told[1] == ("start", [(1, 3, 1)], ["n"])


def test_an_engine_that_lost_its_memory_gets_its_tasks_again(running):
    running.engine.forgotten |= running.engine._end(lambda node: True)
    running.engine._report_inventory()
    running.scheduler.step()
    assert running.engine.told == [("start", [(1, 0, 2), (1, 1, 2), (1, 2, 2)], ["n"] * 3)]


def test_a_scheduler_that_checks_itself_ends_where_something_does_not_add_up(monkeypatch):
    monkeypatch.setenv("FAIRLEAD_CHECK", "1")
    scheduler = Scheduler(Journal(MemoryStore()), Told(), lambda: 0.0)
    scheduler.step([lambda state, now: [admission.configure(state, [Queue("A")], Settings(), now)]])
    scheduler.step([lambda state, now: admission.submit(state, [Job("A", {"cpu": 1000}, 9)], now)])
    scheduler.step()
    state = scheduler.state
    state.order.queues.level[state.tree.rows["A"]] += 1.0
    with pytest.raises(AssertionError, match="queue 'A': the order has level"):
        check_order(state)
    state.queues.used[state.tree.rows["A"]] += 1
    with pytest.raises(AssertionError, match="queue 'A': used is"):
        scheduler.step()


def led_gang(**more):
    """A gang of three that is led runs, alone."""
    world = World()
    world.scheduler.step([lambda state, now: [admission.cancel(state, 1, None, now)]])
    job = Job("A", {"cpu": 1000}, 3, gang=True, led=True, **more)
    world.scheduler.step([lambda state, now: admission.submit(state, [job], now)])
    for _ in range(4):
        world.scheduler.step()
    assert world.statuses()[-3:] == [RUNNING] * 3
    world.engine.told.clear()
    return world


def leader_ends(world, number, code):
    attempt = Attempt(2, 0, number)
    del world.engine.running[attempt]
    world.engine.ended[attempt] = (Outcome.EXITED, code)
    for _ in range(4):
        world.scheduler.step()


def test_each_step_saves_a_slice_of_a_snapshot_while_others_are_served(world, monkeypatch):
    monkeypatch.setattr("fairlead.journal.journal.SNAPSHOT_AFTER", 0)
    scheduler, store, steps = world.scheduler, world.journal._store, 0
    scheduler.step()
    begun = world.journal.position
    while scheduler.saving:
        assert (scheduler.idle_for(60.0), store.snapshots()) == (0.0, []), "the next slice waits for nothing"
        world.submit(1)
        steps += 1
        assert same(world.journal.recover()) == same(world.state)
    assert store.snapshots() == [begun]
    assert world.journal.position >= begun + steps > begun + 10
    assert same(world.journal.recover()) == same(world.state)


def test_a_stalled_scheduler_tries_again_after_a_while_also_while_it_saves_a_snapshot(world, monkeypatch):
    monkeypatch.setattr("fairlead.journal.journal.SNAPSHOT_AFTER", 0)

    def full(*_):
        raise JournalFull("no room")

    world.scheduler.step()
    assert world.scheduler.saving
    with monkeypatch.context() as patch:
        patch.setattr(world.journal, "append", full)
        with pytest.raises(Stalled):
            world.submit(1)
        assert (world.scheduler.saving, world.scheduler.idle_for(60.0)) == (True, 60.0)
    world.scheduler.step()
    assert (world.scheduler.saving, world.scheduler.idle_for(60.0)) == (True, 0.0)


def test_which_gangs_are_led_is_known_of_copies_and_recovered_states_until_they_are_forgotten():
    state = led_gang().state
    for known in (copy_of(state), snapshot.load(snapshot.dump(state))):
        assert known.index.led == {2}
        apply(known, JobCancelled(at=5.0, id=2))
        gone = {name: np.array(column, np.int64) for name, column in (("job", [2] * 3), ("index", [0, 1, 2]))}
        ends = {"attempt": np.ones(3, np.int64), "outcome": np.zeros(3, np.int64), "code": np.zeros(3, np.int64)}
        apply(known, TasksFinished(at=5.0, **gone, **ends))
        apply(known, JobsForgotten(at=6.0, ids=[2]))
        assert known.index.led == set()
        check_invariants(known)
    assert state.index.led == {2}


def test_a_copy_and_its_original_each_know_their_own_jobs():
    state = led_gang().state
    one, other, job = copy_of(state), copy_of(state), Job("A", {"cpu": 1000})
    known = range(1, state.index.last + 1)
    before = [state.index.find(number) for number in known]
    apply(one, admission.take(one, [job] * 5, 5.0))
    for each in (one, other):
        ended = JobsForgotten(at=6.0, ids=[1])
        apply(each, ended)
        assert each.index.find(1) == NONE
        check_invariants(each)
    assert [state.index.find(number) for number in known] == before
    apply(state, admission.take(state, [job] * 9, 7.0))
    for each, count in ((state, 9), (one, 5), (other, 0)):
        check_invariants(each)
        assert each.index.last == known[-1] + count
        assert all(each.index.find(number) != NONE for number in range(2, each.index.last + 1))


@pytest.mark.parametrize(("code", "status"), [(0, "succeeded"), (3, "failed")])
def test_a_gang_that_is_led_is_over_as_its_first_task_is(code, status):
    world = led_gang()
    leader_ends(world, 1, code)
    assert world.engine.running == {}
    job = report.describe_job(world.state, 2)
    assert (job["status"], job["succeeded"], job["failed"]) == (status, 3 - (code > 0), int(code > 0))


def test_a_gang_that_is_led_is_tried_again_as_a_whole_when_its_first_task_failed():
    world = led_gang(retries=1)
    leader_ends(world, 1, 3)
    assert sorted(world.engine.running) == [Attempt(2, index, 2) for index in range(3)]
    leader_ends(world, 2, 3)
    assert report.describe_job(world.state, 2)["status"] == "failed"


@pytest.mark.parametrize("why", ["cancelled", "lost"])
def test_who_is_led_holds_room_until_the_leader_is_over(why):
    """Told to stop is the leader; the others when it has ended, though they are told again meanwhile."""
    world, held = led_gang(), [Attempt(2, index, 1) for index in (1, 2)]
    stop = world.engine._stop
    world.engine._stop = lambda attempt: None if attempt.task == 0 else stop(attempt)  # it takes its time
    if why == "cancelled":
        world.scheduler.step([lambda state, now: [admission.cancel(state, 2, None, now)]])
    else:
        lost = held.pop()
        del world.engine.running[lost]
        world.engine.ended[lost] = (Outcome.LOST, 0)
    for _ in range(3):
        world.engine.now += REPEAT_AFTER
        world.scheduler.step()
    assert {attempt for told in world.engine.told if told[0] == "stop" for attempt in told[1]} == {Attempt(2, 0, 1)}
    assert sorted(world.engine.running)[1:] == held
    world.engine._stop = stop
    leader_ends(world, 1, 15)
    assert not set(held) & set(world.engine.running)
    assert report.describe_job(world.state, 2)["status"] == ("cancelled" if why == "cancelled" else "running")


def test_a_gang_whose_leader_ends_when_it_has_lost_somebody_does_not_wait_again():
    world = led_gang()
    for index, outcome in ((2, Outcome.LOST), (1, Outcome.LOST), (0, Outcome.EXITED)):
        del world.engine.running[Attempt(2, index, 1)]
        one = {"job": [2], "index": [index], "attempt": [1], "outcome": [outcome], "code": [0]}
        columns_of_one = {name: np.array(column, np.int64) for name, column in one.items()}
        apply(world.state, TasksFinished(at=world.engine.now, **columns_of_one))
        check_invariants(world.state)
    world.scheduler.step()
    assert world.statuses()[-3] == SUCCEEDED
    assert WAITING not in world.statuses()[-3:]


def test_a_machine_that_is_to_go_is_drained_and_one_that_is_gone_is_not():
    """Said once; and again when it has changed, for a node that joins takes tasks."""
    world = World()
    world.scheduler.step()
    changed = Node("n", {"cpu": 3000}, {"zone": "a"})
    for node, count in ((world.engine.nodes["n"], 1), (world.engine.nodes["n"], 0), (changed, 2)):
        seen = [NodeUp(node), NodeDraining("n"), NodeDraining("x")]
        facts, _ = observe(world.state, NOTHING._replace(nodes=seen), 1.0)
        assert len(facts) == count
        for fact in facts:
            apply(world.state, fact)
        assert [node["status"] for node in report.list_nodes(world.state)] == ["draining"]


def test_drained_cards_that_a_node_has_no_more_do_not_count(world):
    """Cards are numbered by machine, so a node may have the second and the third, and lose the third."""
    cards = Node("n", {"cpu": 3000, "gpu": 2000})

    def happen(*nodes):
        facts, _ = observe(world.state, NOTHING._replace(nodes=[*nodes]), 7.0)
        for fact in facts:
            apply(world.state, fact)
            check_invariants(world.state)
        (node,) = report.list_nodes(world.state)
        return node["capacity"].get("gpu", 0), [card["status"] for card in report.list_cards(world.state, there)["n"]]

    there = {"n": [1, 2]}
    happen(NodeUp(cards, [1, 2]))
    apply(world.state, admission.drain(world.state, "n", 7.0, [2], [1, 2]))
    assert happen(NodeUp(cards, [1, 2])) == (1000, ["free", "drained"])
    assert happen(NodeUp(cards)) == (1000, ["free", "drained"]), "an engine that does not know"
    assert happen(NodeDown("n")) == (1000, [])
    one, there = Node("n", {"cpu": 3000, "gpu": 1000}), {"n": [1]}
    assert happen(NodeUp(one, [1])) == (1000, ["free"])
    apply(world.state, NodeDrained(at=7.0, node="n", cards=[2]))  # as in journals from before
    assert happen() == (0, ["free"])
    assert happen(NodeUp(one, [1])) == (1000, ["free"])


def test_what_ended_while_nobody_listened_ended_when_it_did():
    """A scheduler was away from 10 to 100 s: nobody is charged for what nobody had then. One end is told twice."""
    state = new_state()
    for fact in (
        Configured(at=0.0, queues=[Queue("a")], settings=Settings()),
        NodeJoined(at=0.0, node=Node("n", {"cpu": 4000})),
        JobSubmitted(at=0.0, id=1, job=Job("a", {"cpu": 1000}, 4)),
    ):
        apply(state, fact)
    for fact in decide(state, 0.0).facts:
        apply(state, fact)
    known = Attempts(np.full(4, 1), np.arange(4), np.ones(4, np.int64))
    apply(state, TasksStarted(at=2.0, job=known.job[:3], index=known.index[:3], attempt=known.number[:3]))
    apply(state, NodeDrained(at=10.0, node="n"))
    none = np.zeros(4, np.int64)
    over = Attempts(*(column[[0, 1, 3, 0]] for column in known))
    ends = Ends(over, none, none, none, none, np.array([20_300, 97_900, 5_000, 20_300]))
    facts, strays = observe(state, Seen(known, NO_ATTEMPTS, ends, []), 100.0)
    assert [(fact.at, fact.index.tolist()) for fact in facts] == [(15.0, [3]), (22.0, [0]), (100.0, [1])]
    assert not len(strays.job)
    for fact in facts:
        apply(state, fact)
    assert state.tasks.status[:4].tolist() == [SUCCEEDED, SUCCEEDED, RUNNING, SUCCEEDED]
    assert state.tasks.finished_at[[3, 0, 1]].tolist() == [15.0, 22.0, 100.0]
