"""Reservations: what they promise, in virtual time. Each story is a history that says what starts when."""

import math
import random
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fairlead.audit.over_time_report import over_time_text
from fairlead.model.specs import ROOT, Job, Node, Queue, Settings
from fairlead.scheduler import snapshot
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Configured,
    Fact,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodesReserved,
    TasksFinished,
    TasksPlaced,
    TasksStarted,
)
from fairlead.scheduler.kernel.constants import EDGES, PATIENCE
from fairlead.scheduler.kernel.view import ASKED_AT, DEBTS_AT, DUE_AT, LEAST_PATIENCE, MOMENT
from fairlead.scheduler.reports.audits import audit_history, audit_state
from fairlead.scheduler.reports.explain import explain
from fairlead.scheduler.reports.reservations import describe_holds, idled_queues
from fairlead.service.metrics import exposition
from fairlead.simulate.measure import summary
from fairlead.simulate.report import runs_text
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, Workload, synthetic_nodes
from random_cases import cases, is_tried
from worlds import check_invariants, placed_keeping_promises, planned_as_naively, same


class Story:
    """A cluster on paper: jobs come when it is said, tasks last as long as it is said, and each is checked after each fact."""

    def __init__(self, nodes: list[dict[str, int]], queues: list[Queue] | None = None, **more) -> None:
        self.state, self.facts, self.now, self.decisions = new_state(), [], 0.0, 0
        self.coming: list[tuple[float, Job, float]] = []
        self.ends: list[tuple[float, int, int, int]] = []
        self.lasts: dict[int, float] = {}
        self.begun: dict[int, float] = {}
        self.idled = self.rate = np.zeros((0, 0))
        self.happen(Configured(at=0.0, queues=queues or [Queue("*")], settings=Settings(**more)))
        for k, capacity in enumerate(nodes):
            self.happen(NodeJoined(at=0.0, node=Node(f"n{k}", capacity)))

    def happen(self, fact: Fact) -> None:
        self._count_idle(fact.at)
        if isinstance(fact, TasksPlaced):
            placed_keeping_promises(self.state, fact)
        else:
            apply(self.state, fact)
        self.facts.append(fact)
        self.rate = self._by_leaf(self.state.holds.idle[: self.state.holds.n])
        check_invariants(self.state)

    def _by_leaf(self, amounts: np.ndarray) -> np.ndarray:
        """Sums of what is said by hold, by leaf."""
        queues, holds = self.state.queues, self.state.holds
        found = np.zeros((queues.n, amounts.shape[1]))
        np.add.at(found, self.state.groups.leaf[holds.group[: holds.n]], amounts)
        return found

    def _count_idle(self, at: float) -> None:
        """What lay free for holds until now, added up by leaf, is what the state says of it, now that the next fact comes."""
        queues, holds, n = self.state.queues, self.state.holds, self.state.holds.n
        grown = np.zeros((queues.n, holds.idle.shape[1]))
        grown[: self.idled.shape[0], : self.idled.shape[1]] = self.idled
        grown[: self.rate.shape[0], : self.rate.shape[1]] += self.rate * (at - (self.facts[-1].at if self.facts else at))
        said = holds.idled[:n] + holds.idle[:n] * (at - holds.counted[:n, None])
        leaves = ~np.isin(np.arange(queues.n), queues.parent[: queues.n])
        assert np.allclose((self._by_leaf(said) + queues.idled_before[: queues.n])[leaves], grown[leaves])
        self.idled = grown

    def job(self, at: float, queue: str, cpu: int, lasts: float, tasks: int = 1, **more) -> None:
        self.coming.append((at, Job(queue, {"cpu": cpu}, tasks, **more), lasts))

    def until(self, end: float, every: float = 1.0) -> None:
        """Go on to a moment; besides whenever something happens, it is decided each second."""
        while self.coming or self.ends or (self.state.groups.head[: self.state.groups.n] >= 0).any():
            moments = [self.now + every, *(c[0] for c in self.coming), *(e[0] for e in self.ends)]
            now = min(moments)
            if now > end:
                return
            self.now = max(self.now, now)
            self._step()

    def _step(self) -> None:
        for end in sorted(e for e in self.ends if e[0] <= self.now):
            self.ends.remove(end)
            one = {"job": np.array([end[1]]), "index": np.array([end[2]]), "attempt": np.array([end[3]])}
            zero = np.zeros(1, np.int64)
            self.happen(TasksFinished(at=self.now, **one, outcome=zero, code=zero))
        for c in [c for c in self.coming if c[0] <= self.now]:
            self.coming.remove(c)
            number = self.state.index.last + 1
            self.lasts[number] = c[2]
            self.happen(JobSubmitted(at=self.now, id=number, job=c[1]))
        more, decisions = True, 0
        while more:
            decisions += 1
            assert decisions < 200, "decisions of one moment have an end"
            decision = decide(self.state, self.now)
            self.decisions += bool(decision.facts or self.state.holds.n)
            if (decision.facts or self.state.holds.n) and is_tried(self.decisions):
                recovered = decide(snapshot.load(snapshot.dump(self.state)), self.now)
                assert str(recovered.facts) == str(decision.facts), "a recovered state decides otherwise"
            for fact in decision.facts:
                if isinstance(fact, NodesReserved):
                    planned_as_naively(self.state, self.now, fact)
                self.happen(fact)
                if isinstance(fact, TasksPlaced):
                    self._start(fact)
            more = decision.more

    def _start(self, fact: TasksPlaced) -> None:
        columns = {"job": fact.job, "index": fact.index, "attempt": fact.attempt}
        self.happen(TasksStarted(at=self.now, **columns))
        for job, index, attempt in zip(*(c.tolist() for c in columns.values()), strict=True):
            self.begun.setdefault(job, self.now)
            lasts = self.lasts[job]
            limit = self.state.jobs.time_limit[self.state.job_row(job)]
            self.ends.append((self.now + min(lasts, limit), job, index, attempt))

    def of(self, kind: type[Fact]) -> list[Fact]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def places(self, job: int) -> list[int]:
        return [n for f in self.of(TasksPlaced) for j, n in zip(f.job, f.node, strict=True) if j == job]


def starve() -> Workload:
    """A task that holds a CPU for a day, small tasks that keep five others busy, and two gangs of four, the same queue's."""
    jobs = Jobs()
    one = {"cpu": 1000}
    jobs.add(0.0, "x", one, 100_000.0)
    for at in (0.0, 2.0, 4.0, 6.0, 8.0):
        jobs.add(at, "y", one, 10.0)
    jobs.add(8.5, "y", one, 10.0, 20)
    for _ in range(2):
        jobs.add(9.0, "g", one, 10.0, 4, gang=True)
    return jobs.workload("starve", synthetic_nodes(3, "cpu=2"), [])


@pytest.mark.parametrize("compiled", [True, False])
def test_one_long_task_does_not_keep_a_gang_from_the_other_nodes(compiled):
    """Without, the gangs start at 56 and 66; with, as soon as four have ended; and all is over as soon but for 2 s.

    Of five CPUs one comes back each two seconds from 10 on. That of 10 is y's again, as nobody is owed any before an end has
    shown how long tasks last; those of 12, 14, 16 and 18 are kept. The second gang of the queue starts where the first ends.
    """
    without = simulate(starve(), settings=Settings(idle_budget=0.0), compiled=compiled)
    run = simulate(starve(), settings=Settings(), compiled=compiled)
    assert without.begun[-2:].tolist() == [56.0, 66.0]
    assert run.begun[-2:].tolist() == [18.0, 28.0]
    assert (np.nanmax(run.ended[1:]), np.nanmax(without.ended[1:])) == (78.0, 76.0)
    used = without.waited.sum() - run.waited.sum()
    assert abs(used) <= 10.0 * 8, "nobody waits longer in all than the gangs wait less, but for one round of tasks"


def test_a_gang_gets_its_room_though_small_tasks_keep_coming():
    """Four CPUs, one of which ends each second: there would never be three at once.

    Whoever runs when room is kept has ended four seconds later, and the story looks once a second: five in all.
    """
    story = Story([{"cpu": 2000}, {"cpu": 2000}])
    for second in range(200):
        story.job(float(second), "small", 1000, 4.0)
    story.job(20.0, "large", 1000, 5.0, 3, gang=True)
    story.until(60.0)
    gang = next(f.id for f in story.of(NodesReserved))
    made = story.of(NodesReserved)[0]
    assert made.at == 20.0
    assert story.begun[gang] <= made.at + 5.0, "as soon as three of them have ended"
    small = [at for job, at in story.begun.items() if job != gang]
    assert sum(at >= story.begun[gang] + 5.0 for at in small) >= 20, "then it is the turn of others again"


def backfilled(time_limit: float | None, lasts: float, known: bool) -> Story:
    """A gang of two whole nodes waits for a task that ends at 100; the other node is free. A small task comes at 40."""
    story = Story([{"cpu": 1000}, {"cpu": 1000}])
    for k in range(12 if known else 0):
        story.job(0.0 + 2 * k, "small", 1000, lasts / 10, name="fit")
    story.job(0.0, "long", 1000, 100.0, time_limit=100.0)
    story.job(24.5, "large", 1000, 10.0, 2, gang=True)
    story.job(40.0, "small", 1000, lasts / 10 if known else lasts, time_limit=time_limit, name="fit")
    story.until(130.0)
    return story


def test_who_ends_before_by_a_time_limit_may_run_in_room_that_is_kept():
    """The long task's age is 24.5 when room is kept: by even odds it ends at 49, and from 49 on, late, at its limit of 100.

    At 40 a limit of 5 ends by 49; limits of 10 and 30 end by 100 once that is planned at 50; 90 and none do not.
    """
    for limit, begins in ((5.0, 40.0), (10.0, 50.0), (30.0, 50.0), (90.0, 110.0), (None, 110.0)):
        story = backfilled(limit, 9.0, known=False)
        gang = story.of(NodesReserved)[0].id
        last = story.state.index.last
        assert story.begun[gang] == 100.0
        assert story.begun[last] == begins, limit


def test_who_ends_before_by_a_cautious_forecast_may_run_there_too():
    story = backfilled(None, 10.0, known=True)
    gang = story.of(NodesReserved)[0].id
    assert story.begun[story.state.index.last] == 40.0
    assert story.begun[gang] == 100.0
    assert story.state.queues.trusted[story.state.tree.rows["small"]] >= 1


def test_who_does_not_keep_to_forecasts_is_trusted_no_more():
    """Tasks that took a second until now take thirty from now on: two overrun, and then none enters any more."""
    story = Story([{"cpu": 1000}, {"cpu": 1000}])
    for k in range(40):
        story.job(2.0 * k, "small", 1000, 1.0, name="fit")
    story.job(0.0, "long", 1000, 1000.0, time_limit=1000.0)
    story.job(79.5, "large", 1000, 10.0, 2, gang=True)
    for k in range(12):
        story.job(80.0 + 31 * k, "small", 1000, 30.0, name="fit")
    story.until(600.0)
    small = story.state.tree.rows["small"]
    assert story.state.queues.overran[small] * 10 > story.state.queues.trusted[small] + 10
    entered = [at for at in story.begun.values() if at >= 80.0]
    assert 2 <= len(entered) <= 5, "then all the others wait for the gang"


def test_a_forecast_that_is_wrong_again_and_again_postpones_a_reservation():
    """A task goes on for ever, with no history at all; the gang that waits for it starts at once when it ends."""
    story = Story([{"cpu": 1000}, {"cpu": 1000}])
    story.job(0.0, "long", 1000, 400.0)
    for k in range(10):
        story.job(float(k), "small", 1000, 0.5, name="fit")
    story.job(10.0, "large", 1000, 10.0, 2, gang=True)
    story.job(10.5, "small", 1000, 1.0, name="fit")
    story.job(260.0, "small", 900, 0.5, name="fit", time_limit=1.0)
    story.until(420.0)
    large = story.of(NodesReserved)[0].id
    made = [f for f in story.of(NodesReserved) if f.id == large]
    assert [f.slips for f in made] == sorted(f.slips for f in made)
    assert made[-1].slips >= 2
    assert story.begun[story.state.index.last] < 262.0
    assert story.begun[large] == 400.0


def test_what_nobody_can_tell_the_end_of_idles_no_machine_for_tasks_that_are_over_in_a_moment():
    """A gang needs the CPU of a task that nobody knows anything of: while that runs the others' short ones go on.

    Ten of them have ended when it comes, enough to know that they end in time. With fewer none may enter, within the budget.
    """
    jobs = Jobs()
    jobs.add(0.0, "x", {"cpu": 1000}, 1000.0)
    jobs.add(0.0, "y", {"cpu": 1000}, 10.0, tasks=400)
    jobs.add(29.0, "g", {"cpu": 1000}, 10.0, tasks=6, gang=True)
    workload = jobs.workload("idle", [Node(f"n{k}", {"cpu": 2000}) for k in range(3)], [])
    begun, ended = {}, {}

    def note(facts):
        for fact in facts:
            if isinstance(fact, TasksPlaced):
                begun.update(dict.fromkeys(fact.job.tolist(), fact.at))
            elif isinstance(fact, TasksFinished):
                ended.update(dict.fromkeys(fact.job.tolist(), fact.at))

    simulate(workload, record=note)
    assert begun[3] < 1020.0, "the gang starts when it can"
    assert ended[2] < 1000.0, "five CPUs would have been done with them after 800 s"


def test_an_end_that_is_far_away_is_simulated_in_few_steps():
    """For two months nothing happens but that a promise cannot be kept."""
    jobs = Jobs()
    jobs.add(0.0, "x", {"cpu": 1000}, 60 * 86400.0)
    jobs.add(0.0, "y", {"cpu": 1000}, 10.0, tasks=40)
    jobs.add(9.0, "g", {"cpu": 1000}, 10.0, tasks=6, gang=True)
    facts = []
    simulate(jobs.workload("far", [Node(f"n{k}", {"cpu": 2000}) for k in range(3)], []), record=facts.extend)
    assert [f.at for f in facts if isinstance(f, TasksPlaced)][-1] == 60 * 86400.0
    assert 5 < len([f for f in facts if isinstance(f, NodesReserved)]) < 500


def test_gangs_of_two_leaves_have_a_reservation_each_and_the_second_delays_not_the_first():
    """Two nodes of two: each gang needs one of them whole. The second is planned where the first is not."""
    story = Story([{"cpu": 2500}, {"cpu": 2500}])
    for k, lasts in enumerate((50.0, 50.0, 80.0, 80.0)):
        story.job(0.0, f"w{k}", 1000, lasts, time_limit=lasts)
    for second in range(1, 100):
        story.job(float(second), "small", 500, 3.0)
    story.job(2.0, "a", 2000, 20.0, 1)
    story.job(3.0, "b", 2000, 20.0, 1)
    story.until(120.0)
    gangs = {f.id for f in story.of(NodesReserved) if story.lasts[f.id] == 20.0}
    assert len(gangs) == 2
    assert sorted(story.begun[job] for job in gangs) == [50.0, 70.0]


def test_other_gangs_of_the_leaf_start_where_there_is_room():
    story = Story([{"cpu": 4000}, {"cpu": 1000}])
    story.job(0.0, "w", 1000, 100.0, time_limit=100.0)
    story.job(0.0, "v", 1000, 8.0, time_limit=8.0)
    story.job(1.0, "g", 4000, 10.0, 1, gang=True)
    for second in range(1, 30):
        story.job(float(second), "small", 1000, 1.0, time_limit=2.0)
    story.job(30.0, "g", 500, 5.0, 2, gang=True)
    story.until(60.0)
    assert story.state.holds.n
    assert story.begun[story.state.index.last] == 30.0


def test_a_plan_is_made_anew_at_once_when_its_node_is_drained():
    story = Story([{"cpu": 2000}, {"cpu": 2000}])
    story.job(0.0, "w", 750, 50.0, 2, time_limit=50.0)
    story.job(0.0, "v", 750, 70.0, 2, time_limit=70.0)
    story.job(1.0, "large", 2000, 10.0)
    for second in range(1, 60):
        story.job(float(second), "small", 500, 1.0)
    story.until(20.0)
    before = story.of(NodesReserved)[-1]
    story.happen(NodeDrained(at=story.now, node=f"n{before.nodes[0]}"))
    story.until(21.0)
    after = story.of(NodesReserved)[-1]
    assert after.nodes == [1 - before.nodes[0]]


def test_what_a_reservation_idles_is_counted_while_it_lasts():
    """One CPU of two lies free from 10 to 14 and from 24 to 60: 40,000 thousandths times seconds, charged to nobody.

    Nobody knows how long tasks last: the plans are for 2, 3.4, 8, 13.7, 28, 58 and 60, the long task's limit. A small task with
    a limit of 10 has no room at 10, as it would end at 20, after 13.7; at 14 it has, as it ends by 28.
    """
    story = Story([{"cpu": 2000}], queues=[Queue("", history=0.0), Queue("*")])
    story.job(0.0, "long", 1000, 60.0, time_limit=60.0)
    story.job(0.0, "small", 1000, 10.0, 1, time_limit=10.0)
    story.job(1.0, "large", 2000, 5.0)
    story.job(10.0, "small", 1000, 10.0, 1, time_limit=10.0)
    story.job(11.0, "small", 1000, 100.0, 5)
    state = story.state
    story.until(19.0)
    large = state.tree.rows["large"]
    assert state.holds.n == 1
    assert not state.holds.idle[:1].any(), "it is kept, and is not free"
    story.until(40.0)
    assert state.holds.idle[0].tolist() == [1000]
    assert state.queues.used[large].tolist() == [0]
    (told,) = audit_state(state, 40.0)["reservations"]
    assert (told["job"], told["queue"], told["why"]) == (3, "large", "reservation")
    # Planned at 29, when the long task ran alone for 29 s: it is expected to last as long again. Five plans were late.
    assert told["start"] == pytest.approx(58.0)
    assert (told["nodes"], told["tasks"], told["slips"], told["idle"]) == (1, 1, 5, {"cpu": 1000})
    assert told["made"] == story.of(NodesReserved)[0].at
    assert told["idled"]["cpu"] * 3600 == pytest.approx(20_000.0)
    shown = exposition([], [], idled_queues(state, 40.0), describe_holds(state, 40.0)).decode().splitlines()
    assert f'fairlead_reservation_start_seconds{{job="3",queue="large",why="reservation"}} {told["start"]}' in shown
    whose = '{job="3",queue="large",resource="cpu",why="reservation"}'
    assert f"fairlead_reservation_idle{whose} 1.0" in shown
    assert f"fairlead_reservation_idled{whose} 20.0" in shown
    assert 'fairlead_queue_idled_total{queue="large",resource="cpu"} 20.0' in shown
    story.until(64.0)
    assert audit_state(state, 64.0)["reservations"] == []
    shown = exposition([], [], idled_queues(state, 64.0), describe_holds(state, 64.0)).decode().splitlines()
    assert 'fairlead_queue_idled_total{queue="large",resource="cpu"} 40.0' in shown
    assert not [line for line in shown if line.startswith("fairlead_reservation_idle")]
    assert state.queues.idled_before[large].tolist() == [40_000.0]
    assert same(snapshot.load(snapshot.dump(state))) == same(state)


def test_the_audit_over_time_tells_what_each_promise_idled():
    """The same as the state has added up, promise by promise, of any part of the time; and what became of each."""
    story = Story([{"cpu": 4000}, {"cpu": 1000}])
    story.job(0.0, "w", 1000, 100.0, time_limit=100.0)
    story.job(1.0, "g", 1000, 10.0, 4, gang=True)
    story.job(1.0, "other", 4000, 3.0)
    for second in range(1, 40):
        story.job(float(second), "small", 1000, 1.0, time_limit=2.0)
    story.until(200.0)
    found = audit_history(new_state(), story.facts, 0.0, 200.0, 0)
    idled = dict.fromkeys(("g", "other", "small"), 0.0)
    for each in found["reservations"]:
        idled[each["queue"]] += each["idled"].get("cpu", 0.0) * 3600
        assert each["used"] == (each["until"] == story.begun[each["job"]])
    names = story.state.tree.rows
    kept = {name: story.state.queues.idled_before[names[name], 0] for name in idled}
    assert idled == pytest.approx(kept)
    assert sum(idled.values()) > 0
    assert found["promises"]["count"] == len(found["reservations"])
    assert found["promises"]["idled"]["cpu"] * 3600 == pytest.approx(sum(idled.values()))
    assert found["promises"]["share_hours"] * 3600 == pytest.approx(sum(idled.values()) / 5000)
    parts = [audit_history(new_state(), story.facts, a, b, 0) for a, b in ((0.0, 50.0), (50.0, 200.0))]
    seconds = sum(part["promises"]["idled"].get("cpu", 0.0) * 3600 for part in parts)
    assert seconds == pytest.approx(sum(idled.values()))
    assert {each["used"] for each in parts[0]["reservations"] if each["queue"] != "small"} == {None}, "they start at 100"
    assert "reservation" in over_time_text({**found, "asked": 200.0, "complete": True})


def test_a_simulation_tells_what_promises_idled():
    jobs = Jobs()
    jobs.add(0.0, "w", {"cpu": 1000}, 100.0)
    jobs.add(0.0, "v", {"cpu": 1000}, 50.0)
    jobs.add(1.0, "g", {"cpu": 2000}, 10.0)
    for second in range(2, 90):
        jobs.add(float(second), "small", {"cpu": 1000}, 5.0)
    case = jobs.workload("kept", synthetic_nodes(1, "cpu=2"), [])
    for compiled in (True, False):
        run = simulate(case, settings=Settings(), compiled=compiled)
        none = simulate(case, settings=Settings(idle_budget=0.0), compiled=compiled)
        assert run.idled[0] > 0
        assert not none.idled.any()
        lasted = np.nanmax(run.ended)
        found = summary(run)
        assert found["idle for promises"] == {"cpu": pytest.approx(run.idled[0] / (2000 * lasted))}
        assert "idle for promises" in runs_text([found])


def test_what_becomes_known_of_durations_lets_in_who_was_kept_out():
    """Eight tasks took a second when room is first kept, too few to say; when the ninth has ended the next may enter."""
    story = Story([{"cpu": 1000}, {"cpu": 2000}])
    story.job(0.0, "long", 1000, 500.0, time_limit=500.0)
    for k in range(6):
        story.job(1.2 * k, "small", 2000, 1.0)
    story.job(9.0, "large", 1000, 10.0, 3, gang=True)
    story.job(9.5, "small", 2000, 1.0, time_limit=2.0)
    story.job(9.6, "small", 2000, 1.0, time_limit=2.0)
    story.job(9.7, "small", 2000, 1.0, time_limit=2.0)
    story.job(9.8, "small", 2000, 1.0)
    story.until(60.0)
    last = story.state.index.last
    assert story.of(NodesReserved)[0].at <= story.begun[last - 1] < story.begun[last] < 20.0
    assert story.state.queues.trusted[story.state.tree.rows["small"]] == 1, "by what is usual; the one before it had a time limit"


@settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.data())
def test_nobody_waits_longer_than_a_bound_though_the_others_always_have_work(data):
    """Where no task runs for longer than L, a task or gang that would fit starts within L for each person, and three more.

    Who has nothing lacks all of its part, so that its debt grows fastest. L passes at most until a task ends and debts are
    counted: then room is kept. All that runs then has ended after another L, by its limits, and after a third what
    entered before the plan was made again because its start was late. Each of the others may be owed more until then, for
    one task that has not started: L for that. So the bound is L times (people + 3); the worst of 140 worlds took 3.25 L.
    """
    longest = 6.0
    nodes = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    story = Story([{"cpu": 1000 * n} for n in nodes], [Queue("", history=0.0), Queue("*")])
    people = data.draw(st.integers(2, 4))
    for k in range(people):
        lasts = float(data.draw(st.integers(1, int(longest))))
        cpu = data.draw(st.integers(1, max(nodes)))
        always = int(60.0 / lasts) * sum(n // cpu for n in nodes)  # enough, had they all there is
        story.job(0.0, f"p{k}", 1000 * cpu, lasts, always, time_limit=lasts)
    size = data.draw(st.integers(1, max(nodes)))
    most = sum(n // size for n in nodes)
    gang = data.draw(st.integers(1, most))
    story.job(10.5, "late", 1000 * size, 2.0, gang, gang=True, time_limit=2.0)
    bound = (people + 3) * longest
    story.until(10.5 + bound + 1.0)
    late = people + 1
    assert story.begun[late] - 10.5 <= bound


@settings(max_examples=cases(10), deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_no_reservation_delays_one_that_is_before_it(data):
    """What is placed leaves to each what it needs at its start, but to those after the one whose turn it is; and all start."""
    nodes = [{"cpu": data.draw(st.integers(2, 6)) * 1000} for _ in range(data.draw(st.integers(1, 3)))]
    story = Story(nodes)
    for _ in range(data.draw(st.integers(2, 12))):
        tasks = data.draw(st.integers(1, 4))
        cpu = data.draw(st.integers(1, 6)) * 500
        if sum(node["cpu"] // cpu for node in nodes) >= tasks:
            lasts = float(data.draw(st.integers(1, 20)))
            gang = data.draw(st.booleans())
            at, queue = float(data.draw(st.integers(0, 20))), data.draw(st.sampled_from("abcd"))
            story.job(at, queue, cpu, lasts, tasks, gang=gang, time_limit=lasts)
    story.until(400.0, every=3.0)
    jobs = {int(job) for f in story.of(TasksPlaced) for job in f.job}
    assert len(jobs) == story.state.index.last, "whoever comes, all have started in the end"


@pytest.mark.parametrize("cpu", [1000, 8000])
@pytest.mark.parametrize("lasts", [20.0, 60.0])
def test_a_job_that_passes_the_one_with_a_reservation_in_a_strict_queue_has_its_turn(cpu, lasts):
    """Only the first of a strict queue may start. Room stayed kept for one that no longer was: the whole cluster stood still."""
    rng, jobs = random.Random(1), Jobs()
    jobs.add(0.0, "a", {"cpu": 1000}, [rng.uniform(50.0, 150.0) for _ in range(400)], tasks=400)
    jobs.add(500.0, "s", {"cpu": 8000}, lasts)
    jobs.add(520.0, "s", {"cpu": cpu}, lasts, priority=1)
    run = simulate(jobs.workload("t", [Node("n", {"cpu": 8000})], [Queue("s", strict=True), Queue("a")]))
    assert not np.isnan(run.ended).any()
    large, urgent = run.ended[1] - lasts, run.ended[2] - lasts
    assert urgent <= large, "it is first in its queue"
    assert urgent <= 520.0 + 150.0
    assert large <= 500.0 + 2 * 150.0 + 2 * lasts


def test_three_newcomers_with_tasks_of_all_lengths_come_to_their_shares_by_weight():
    """Their own tasks end so often that each is served in its own room before it has waited for long."""
    rng, jobs, queues = random.Random(2), Jobs(), [Queue("hog", weight=2.0), Queue("*")]
    for queue, at, cpu, least, most, enough in (
        ("hog", 0.0, 2, 100.0, 900.0, 6000),
        ("a", 600.0, 4, 1.0, 9.0, 3000),
        ("b", 1800.0, 4, 9.0, 80.0, 3000),
        ("c", 1800.0, 6, 31.0, 275.0, 3000),
    ):
        count = int(144 * enough * 2 / cpu / (least + most))  # they would have all CPUs for so many seconds
        jobs.add(at, queue, {"cpu": 1000 * cpu}, [rng.uniform(least, most) for _ in range(count)], tasks=count)
    uses = _uses(jobs, [{"cpu": 24_000}] * 6, queues)
    means = _means(uses, 7200.0, 10_800.0)
    assert means == pytest.approx({"hog": 57.6, "a": 28.8, "b": 28.8, "c": 28.8}, rel=0.15)


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.data())
def test_small_gangs_whose_tasks_end_at_different_times_have_their_part_beside_small_tasks(data):
    """What each of their tasks gives back is too small for a gang. They had 10% of their part when only one was reserved for."""
    nodes, long = data.draw(st.sampled_from([[40], [10] * 4, [4] * 10])), data.draw(st.sampled_from([50.0, 100.0, 400.0]))
    gang, lasts = data.draw(st.integers(2, 4)), long * data.draw(st.sampled_from([0.1, 0.3, 1.0]))
    like = Job("", {}, fit="apart" if len(nodes) > 1 and data.draw(st.booleans()) else "")
    rng, jobs = random.Random(data.draw(st.integers(0, 9))), Jobs()
    jobs.add(0.0, "first", {"cpu": 1000}, [rng.uniform(0.5 * long, 1.5 * long) for _ in range(1200)], tasks=1200)
    for _ in range(int(40 * 25 * long / gang / lasts)):  # as many as could run on all CPUs
        own = [rng.uniform(0.5 * lasts, 1.5 * lasts) for _ in range(gang)]
        jobs.add(5 * long, "gangs", {"cpu": 1000}, own, tasks=gang, gang=True, like=like)
    means = _means(_uses(jobs, [{"cpu": 1000 * cpus} for cpus in nodes], []), 10 * long, 25 * long)
    assert means["gangs"] >= 0.85 * 20
    assert means["first"] >= 0.8 * 20


def test_of_several_gangs_that_room_is_reserved_for_the_first_is_shown():
    """Its nodes, its tasks and its start: not those of all gangs together."""
    story, rng, several = Story([{"cpu": 3000}] * 4), random.Random(3), 0
    for _ in range(200):
        story.job(0.0, "first", 1000, rng.uniform(20.0, 60.0))
    for _ in range(8):
        story.job(30.0, "gangs", 1000, rng.uniform(5.0, 10.0), 3, gang=True)
    for moment in range(30, 300):
        story.until(float(moment))
        holds = story.state.holds
        start, number, node = (column[: holds.n].tolist() for column in (holds.start, holds.number, holds.node))
        if len({*number}) > 1:
            several += 1
            first = min(start)
            nodes = {f"n{n}" for n, begins in zip(node, start, strict=True) if begins == first}
            shown = next(info for info in describe_holds(story.state, story.now) if info["queue"] == "gangs")
            assert (shown["tasks"], shown["start"]) == (3, first)
            reserved = explain(story.state, shown["job"]).get("reserved")
            assert reserved is None or (reserved["start"] == first and {*reserved["nodes"]} <= nodes)
    assert several > 10


def test_large_gangs_of_a_queue_keep_their_place_from_reservations_of_those_with_small_tasks():
    """While its gang runs the queue waits for nothing; when that ends the next goes first, so nobody is to count on its room.

    Until they have found what fits beside the others, some hours go by. Each world is chance.
    """
    found = [_large_gangs(seed) for seed in range(4)]
    assert sum(gangs for gangs, _ in found) > 4 * 13.0, "of 36 CPUs it is entitled to 18, and a gang takes 16"
    assert min(used for _, used in found) > 34.0


def _large_gangs(seed):
    """Return how many CPUs the gangs have, and all queues."""
    rng, jobs, queues = random.Random(seed), Jobs(), [Queue("gangs", weight=3.0), Queue("*")]
    for queue, at, cpu, least, most, gang in (
        ("a", 0.0, 1, 114.0, 1022.0, 1),
        ("b", 20.0, 2, 77.0, 695.0, 1),
        ("gangs", 3800.0, 4, 41.0, 122.0, 4),
        ("c", 4900.0, 2, 14.0, 43.0, 2),
    ):
        lasts = [rng.uniform(least, most) for _ in range(int(36 * 44_000 / cpu / gang / (least + most)))]
        if gang == 1:
            jobs.add(at, queue, {"cpu": 1000 * cpu}, lasts, tasks=len(lasts))
        for one in lasts if gang > 1 else []:
            jobs.add(at, queue, {"cpu": 1000 * cpu}, one, tasks=gang, gang=True)
    means = _means(_uses(jobs, [{"cpu": 12_000}] * 3, queues), 30_000.0, 40_000.0)
    return means["gangs"], sum(means.values())


@pytest.mark.parametrize("seed", [0, 1])
def test_one_long_task_in_twenty_does_not_delay_a_newcomer_for_ever(seed):
    """Most tasks end before each planned start; one in twenty lasts an hour. It waited until all was over, for 36 hours."""
    rng, jobs = random.Random(seed), Jobs()
    lasts = [rng.uniform(0.8, 1.0) * (3600.0 if rng.random() < 0.05 else 10.0) for _ in range(12_000)]
    jobs.add(0.0, "a", {"cpu": 1000}, lasts, tasks=len(lasts))
    jobs.add(3 * 3600.0, "b", {"cpu": 8000}, 600.0)
    run = simulate(
        jobs.workload("w", [Node(f"n{k}", {"cpu": 8000}) for k in range(2)], []), settings=Settings(revoke=False), samples=20
    )
    assert run.begun[1] - run.submitted[1] <= 3 * 3600.0


@pytest.mark.parametrize("runs", [True, False])
def test_a_limit_of_one_resource_keeps_nobody_from_room_for_jobs_that_do_not_need_it(runs):
    """B has as many GPUs as it may. Its job without them waited for eight hours, until A had no more work."""
    rng, jobs = random.Random(1), Jobs()
    jobs.add(0.0, "a", {"cpu": 1000}, [rng.uniform(50.0, 150.0) for _ in range(12_000)], tasks=12_000)
    jobs.add(1.0, "b", {"cpu": 1000, "gpu": 1000}, 40_000.0)
    if not runs:  # it waits, too
        jobs.add(1.0, "b", {"cpu": 1000, "gpu": 1000}, 100.0)
    jobs.add(1.0, "b", {"cpu": 1000}, 100.0, tasks=12)
    jobs.add(2000.0, "b", {"cpu": 16_000}, 100.0)
    queues = [Queue("a"), Queue("b", limit={"gpu": 1000})]
    run = simulate(jobs.workload("w", [Node("n", {"cpu": 40_000, "gpu": 4000})], queues), samples=20)
    assert run.begun[-1] - run.submitted[-1] <= 3 * 150.0


def test_a_large_job_is_not_passed_for_ever_by_younger_ones_of_its_own_queue():
    """Its queue has all there is. It waited for eight hours, until the last of them had ended."""
    rng, jobs = random.Random(1), Jobs()

    def lasts(count):
        return [rng.uniform(50.0, 150.0) for _ in range(count)]

    jobs.add(0.0, "a", {"cpu": 1000}, lasts(8), tasks=8)
    jobs.add(1.0, "a", {"cpu": 4000}, 100.0)
    for k in range(300):
        jobs.add(2.0 + 50 * k, "a", {"cpu": 1000}, lasts(4), tasks=4)
    run = simulate(
        jobs.workload("w", [Node("n", {"cpu": 4000})], []), settings=Settings(idle_budget=1.0, revoke=False), samples=20
    )
    assert run.begun[8] - 1.0 <= 10 * 150.0


def test_with_many_queues_each_is_asked_at_most_once_for_some_events_of_all():
    """A count takes as long as there are queues; while nobody knew how long tasks last, it was made at each event."""
    rng, jobs, asked, events = random.Random(1), Jobs(), set(), [0]
    for k in range(1000):
        jobs.add(1.0 * k, f"q{k % 100:02}", {"cpu": 1000 * rng.randint(1, 8)}, rng.uniform(10.0, 1000.0))

    def watch(state, facts):
        asked.add(float(state.times[ASKED_AT]))
        events[0] += sum(isinstance(fact, JobSubmitted | TasksPlaced | TasksFinished) for fact in facts)

    simulate(jobs.workload("w", [Node(f"n{k}", {"cpu": 8000}) for k in range(4)], []), samples=20, watch=watch)
    assert 10 < len(asked) <= events[0] / 8


def test_a_job_enters_kept_room_in_the_cycle_in_which_the_longer_one_before_it_starts():
    """Alike but for how long they may take, they wait together; where the first has no room, the next may have some."""
    story = Story([{"cpu": 2000}, {"cpu": 1000}, {"cpu": 2000}])
    story.job(0.0, "x", 2000, 100.0, time_limit=100.0)
    story.job(0.0, "y", 1000, 50.0, time_limit=50.0)
    story.job(1.0, "g", 2000, 10.0, 2, gang=True, time_limit=10.0)
    story.job(1.0, "z", 1000, 10.0, time_limit=10.0)
    story.job(2.0, "q", 1000, 1000.0, time_limit=1000.0)
    story.job(3.0, "q", 1000, 10.0, time_limit=10.0)
    story.until(70.0, every=10.0)
    assert (story.begun[5], story.begun[6]) == (50.0, 50.0)


def _mean_use(nodes: list[dict[str, int]], newcomers: int, gang: int, seed: int = 1) -> list[dict[str, float]]:
    """CPUs that queues use, as a mean over 1,000 s each: at 500 s newcomers come to one who has all, in small, longer tasks."""
    rng, jobs, cpus = random.Random(seed), Jobs(), sum(node["cpu"] for node in nodes)
    count = 40 * cpus // 1000
    jobs.add(0.0, "first", {"cpu": 1000}, [rng.uniform(50.0, 150.0) for _ in range(count)], tasks=count)
    for k in range(newcomers):
        for _ in range(cpus // 1000 * 80 if gang else 1):
            many = {"tasks": gang, "gang": True} if gang else {"tasks": cpus // 1000 * 100}
            jobs.add(500.0, f"new{k}", {"cpu": 1000 if gang else 2000}, 20.0, **many)
    uses = _uses(jobs, nodes, [])
    return [_means(uses, begin, begin + 1000.0) for begin in (1000.0, 2000.0)]


def _uses(jobs: Jobs, nodes: list[dict[str, int]], tree: list[Queue]) -> list[tuple[float, dict[str, float]]]:
    """How many CPUs each queue uses, from moment to moment."""
    uses, queues, total = [(0.0, {})], {}, {}

    def note(facts: list[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, JobSubmitted):
                queues[fact.id] = fact.job.queue, fact.job.demand["cpu"] / 1000
            elif isinstance(fact, TasksPlaced | TasksFinished):
                for job in fact.job.tolist():
                    queue, cpu = queues[job]
                    total[queue] = total.get(queue, 0.0) + (cpu if isinstance(fact, TasksPlaced) else -cpu)
                uses.append((fact.at, dict(total)))

    workload = jobs.workload("newcomers", [Node(f"n{k}", node) for k, node in enumerate(nodes)], tree)
    simulate(workload, "drf", record=note, settings=Settings(revoke=False))
    return uses


def _means(uses: list[tuple[float, dict[str, float]]], begin: float, end: float) -> dict[str, float]:
    """What each queue used as a mean over a while."""
    found = dict.fromkeys(uses[-1][1], 0.0)
    for (at, use), (after, _) in pairwise(uses):
        lasts = min(after, end) - max(at, begin)
        if lasts > 0:
            for queue, cpu in use.items():
                found[queue] += cpu * lasts / (end - begin)
    return found


@pytest.mark.parametrize(
    ("nodes", "newcomers", "gang"),
    [([{"cpu": 40_000}], 1, 0), ([{"cpu": 10_000}] * 4, 1, 0), ([{"cpu": 10_000}] * 8, 3, 4)],
    ids=["one-machine", "four-machines", "gangs-of-three"],
)
def test_a_newcomer_with_larger_and_shorter_tasks_comes_to_its_share(nodes, newcomers, gang):
    """Served in its own slot again and again, it is the first in line all the same: the next reservation is for more."""
    share = sum(node["cpu"] for node in nodes) / 1000 / (1 + newcomers)
    for means in _mean_use(nodes, newcomers, gang):
        assert means == pytest.approx(dict.fromkeys(means, share), rel=0.15)


def test_who_waits_beside_quota_that_is_not_lent_hears_what_is_kept_for_reservations():
    jobs, texts = Jobs(), {}
    for queue, at, cpu in [("a", 0.0, 1), ("new", 400.0, 8)]:
        jobs.add(at, queue, {"cpu": 1000 * cpu}, [50.0 + 13 * k % 50 for k in range(100)], tasks=100)
    quota = Queue("z", guarantee={"cpu": 1000}, lend={"cpu": 0})
    case = jobs.workload("w", [Node("n0", {"cpu": 16_000})], [Queue("a"), Queue("new"), quota])

    def watch(state, facts):
        if state.holds.n:
            texts.update({job: why["text"] for job in (1, 2) if "kept_for_reservations" in (why := explain(state, job))})

    simulate(case, settings=Settings(revoke=False), samples=20, watch=watch)
    assert "1 is quota that other queues do not lend, and " in texts[1]
    assert "is kept for reservations; the job needs 1" in texts[1]
    assert texts[2].endswith("the job needs 8; room on n0 is reserved for it")


def _patience(queues, q: int, lasts: float) -> float:
    """The debt from which a queue gets reservations, if its tasks last that long."""
    return lasts * (PATIENCE if queues.tasks[q] == 0 else 1.0)


def test_a_queue_is_asked_as_its_debt_passes_another_multiple_of_its_patience_or_its_own_tasks_start_or_end():
    """At a high load each queue waits, and its answer is mostly the one before."""
    rng, jobs, lasts = random.Random(1), Jobs(), min(edge for edge in EDGES if edge > 100.0)
    for k in range(300):
        jobs.add(5.0 * k, f"q{k % 12}", {"cpu": 1000 * rng.randint(1, 6)}, rng.uniform(106.0, 111.0))
    moved, before, found = set(), {}, []

    def watch(state, facts):
        here = set()
        for fact in facts:
            if isinstance(fact, TasksPlaced | TasksFinished):
                here.update(f"q{(job - 1) % 12}" for job in fact.job.tolist())
            elif isinstance(fact, JobSubmitted) and before.get(state.tree.rows[fact.job.queue], (0,))[-1] == 0:
                here.add(fact.job.queue)  # it begins to wait
        moved.update(here)
        queues = state.queues
        for q in range(1, queues.n):
            name, debt = state.tree.names[q], float(queues.debt[q])
            counted, off = max(float(queues.debt_at[q]), float(state.times[DEBTS_AT])), float(queues.put_off[q])
            was, then, off_then, _ = before.get(q, (0.0, 0.0, 0.0, 0))
            if counted > then:
                each = _patience(queues, q, lasts)
                if counted > 3000.0 and name not in moved and off_then == off == 0.0 and queues.pending[q] > 0:
                    step = each * 2 ** max(0, math.floor(math.log2(max(debt, each) / each)) - 2)  # an eighth to a quarter of it
                    found.append((max(was, 0.0) // step < debt // step, bool(queues.in_list[q])))
                was, then, off_then = debt, counted, off
                moved.difference_update({name} - here)  # the rest came after the count
            before[q] = was, then, off_then, int(queues.pending[q])

    simulate(jobs.workload("w", [Node("n0", {"cpu": 16_000})], []), samples=20, watch=watch)
    assert set(found) == {(False, False), (True, True)}


def test_debts_are_counted_within_the_patience_of_who_waits_and_not_where_nobody_does():
    """A count is due within that, and late by as much at most."""
    rng, jobs, lasts = random.Random(1), Jobs(), min(edge for edge in EDGES if edge > 100.0)
    for k in range(200):
        jobs.add(
            20.0 * k if k < 150 else 100.0 * k - 11_000.0,
            f"q{k % 3}",
            {"cpu": 1000 * rng.randint(1, 6)},
            rng.uniform(106.0, 111.0),
        )
    waits, before, quiet = dict[int, float](), 0.0, 0
    ages = list[float]()

    def watch(state, facts):
        nonlocal waits, before, quiet
        now, counted = state.times[[MOMENT, DEBTS_AT]].tolist()
        if now > 1500.0 and not waits and now > before:
            assert counted <= before
            quiet += 1
        waits = {q: waits.get(q, now) for q in range(1, state.queues.n) if state.queues.pending[q] > 0}
        for q, since in waits.items():
            if now > 1500.0:
                ages.append((now - max(since, counted, state.queues.debt_at[q])) / _patience(state.queues, q, lasts))
        before = now

    simulate(jobs.workload("w", [Node("n0", {"cpu": 16_000})], []), samples=20, watch=watch)
    assert quiet > 100
    assert 1.0 < max(ages) <= 2.0


def test_who_ran_between_two_counts_of_debts_is_not_owed_as_if_they_had_run_nothing():
    """Of 41 queues that want a node, one has it for 100 s, more than its part; debts are counted before and after that."""
    state = new_state()
    apply(state, Configured(at=0.0, queues=[Queue("*")], settings=Settings()))
    apply(state, NodeJoined(at=0.0, node=Node("n", {"cpu": 4000})))
    comes = [(0.0, f"q{k}", 2) for k in range(41)] + [(1.0, "q1", 2)]
    for number, (at, queue, tasks) in enumerate(comes, 1):
        apply(state, JobSubmitted(at=at, id=number, job=Job(queue, {"cpu": 4000}, tasks)))
    about = {name: np.zeros(1, np.int64) for name in ("index", "node")} | {
        "job": np.ones(1, np.int64),
        "attempt": np.ones(1, np.int64),
    }
    apply(state, TasksPlaced(at=10.0, **about))
    ended = {name: about[name] for name in ("job", "index", "attempt")} | {
        "outcome": np.zeros(1, np.int64),
        "code": np.zeros(1, np.int64),
    }
    apply(state, TasksFinished(at=110.0, **ended))
    for number in range(43, 60):
        apply(state, JobSubmitted(at=200.0 + number // 59, id=number, job=Job("q1", {"cpu": 4000})))
    assert state.queues.debt[state.tree.rows["q1"]] == pytest.approx(201.0)
    assert state.queues.debt[state.tree.rows["q0"]] == pytest.approx(91.0)


def test_who_comes_between_two_counts_of_debts_and_starts_at_once_is_owed_nothing():
    """Of 41 queues that run, one ends its task, and 99 s later has another that starts as it comes; it never waited."""
    state, one = new_state(), np.ones(1, np.int64)
    apply(state, Configured(at=0.0, queues=[Queue("*")], settings=Settings()))
    apply(state, NodeJoined(at=0.0, node=Node("n", {"cpu": 50_000})))
    for number in range(1, 42):
        apply(state, JobSubmitted(at=0.0, id=number, job=Job(f"q{number}", {"cpu": 1000})))
        apply(state, TasksPlaced(at=0.0, job=number * one, index=0 * one, attempt=one, node=0 * one))
    q = state.tree.rows["q1"]
    state.queues.lasts[:] = 0.25
    for number in (42, 43):  # nothing is counted before somebody waits
        apply(state, JobSubmitted(at=number - 41.0, id=number, job=Job("q2", {"cpu": 60_000})))
    assert state.queues.due[q].any()
    state.times[[DUE_AT, LEAST_PATIENCE]], state.queues.lasts[:] = (0.0, 104.0), 1000.0  # who waits has patience until 104
    apply(state, TasksFinished(at=3.0, job=one, index=0 * one, attempt=one, outcome=0 * one, code=0 * one))
    apply(state, JobSubmitted(at=102.0, id=44, job=Job("q1", {"cpu": 1000})))
    apply(state, JobSubmitted(at=102.0, id=45, job=Job("new", {"cpu": 1000})))
    apply(state, TasksPlaced(at=102.0, job=44 * one, index=0 * one, attempt=one, node=0 * one))
    assert state.times[DEBTS_AT] == 2.0
    assert state.queues.debt[q] == 0.0
    for number in range(46, 90):
        apply(state, JobSubmitted(at=103.0 + number // 89, id=number, job=Job("q2", {"cpu": 1000})))
    assert state.queues.debt[state.tree.rows["new"]] == pytest.approx(2.0)  # not since the count before it came


def test_a_snapshot_from_before_debts_were_counted_owes_nothing_for_the_time_until_now():
    state = new_state()
    apply(state, Configured(at=1e9, queues=[Queue("*")], settings=Settings()))
    apply(state, NodeJoined(at=1e9, node=Node("n", {"cpu": 4000})))
    apply(state, JobSubmitted(at=1e9, id=1, job=Job("q", {"cpu": 4000})))
    state.times[[MOMENT, DEBTS_AT]] = -np.inf
    older = snapshot.load(piece for piece in snapshot.dump(state) if b"debt_at" not in piece)
    apply(older, JobSubmitted(at=1e9 + 10.0, id=2, job=Job("q", {"cpu": 4000})))
    assert older.times[DEBTS_AT] == 1e9 + 10.0
    assert older.queues.debt[: older.queues.n].tolist() == [0.0, 0.0]


def starts_beside_small_tasks(queues, changes, *more, large, small):
    """Return when tasks of 8 of 8 CPUs start beside a queue of 1-CPU tasks, with the times from which both wait."""
    jobs, begun = Jobs(), []
    jobs.add(large, "large", {"cpu": 8000}, [100.0] * 99, tasks=99)
    jobs.add(small, "small", {"cpu": 1000}, [50.0 + 100.0 * ((k * 0.618) % 1) for k in range(1000)], tasks=1000)
    for at, queue, duration in more:
        jobs.add(at, queue, {"cpu": 8000}, duration)
    number = 1 if large < small else 2

    def record(facts):
        placed = [fact for fact in facts if isinstance(fact, TasksPlaced)]
        begun.extend(fact.at for fact in placed if number in fact.job.tolist())

    case = replace(jobs.workload("w", [Node("n", {"cpu": 8000})], queues), changes=changes)
    simulate(case, settings=Settings(revoke=False), samples=20, record=record)
    return begun


def test_who_had_more_than_a_part_that_was_small_for_a_moment_is_owed_room_again_soon():
    """A debt is a time, in which a part that has grown does more work."""
    queues = [Queue("large"), Queue("small"), Queue("visitor", weight=100.0)]
    begun = starts_beside_small_tasks(queues, [], (1502.0, "visitor", 10.0), large=0.0, small=1500.0)
    assert sum(3000.0 < at < 6000.0 for at in begun) >= 10


def test_a_root_that_served_jobs_in_order_owes_room_to_its_queues_once_it_compares_shares():
    names = [Queue("large"), Queue("small")]
    changes = [Configured(at=1000.0, queues=[Queue(ROOT), *names], settings=Settings(revoke=False))]
    begun = starts_beside_small_tasks([Queue(ROOT, policy="fifo"), *names], changes, large=300.0, small=0.0)
    assert sum(3000.0 < at < 6000.0 for at in begun) >= 10


def test_each_rule_of_the_page_is_named_where_the_kernel_follows_it():
    root = Path(__file__).parents[1]
    page, kernel = (root / "docs" / "reservations.md").read_text(), root / "src" / "fairlead" / "scheduler" / "kernel"
    rules = re.findall(r"^\| `([a-z -]+)` \|", page.split("| rule | meaning |")[1].split("\n\n")[0], re.MULTILINE)
    code = "\n".join(path.read_text() for path in kernel.glob("*.pxi"))
    assert len(rules) == 21
    assert [rule for rule in rules if f"(rule: {rule})" not in code] == []
