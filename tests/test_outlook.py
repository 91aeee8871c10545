"""When jobs are expected to start: dry runs held against real starts, and the calibration of intervals."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest
from bench import outlooks as bench
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engines.step import GRACE
from fairlead.model.specs import After, Job, Node, Queue, Settings
from fairlead.scheduler import admission, snapshot
from fairlead.scheduler.admission import Unknown
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Configured,
    JobCancelled,
    JobEdited,
    JobHeld,
    JobsForgotten,
    JobSubmitted,
    NodeJoined,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
    TasksStarted,
)
from fairlead.service import outlooks as service
from fairlead.service.loop import Busy
from fairlead.service.outlooks import Outlooks
from fairlead.simulate import dry_runs
from fairlead.simulate.dry_runs import Run, dry_run_of
from fairlead.simulate.outlook import MAX_OPEN, RUNS, Calibration, Outlook, outlook, span
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, synthetic_nodes
from random_cases import cases
from test_loop import submit, world  # noqa: F401 the fixture
from test_scheduling import World
from test_simulate import DATA, needs_data, workloads
from worlds import same

MINUTE = 60.0
BIN = 8 / 7
"""A minute is in a bin of a sketch from 56 to 64 seconds: nothing finer is known of durations."""


class Shop(World):
    """A few CPUs, and a history in which every task took a minute; it was long ago, unless that is said."""

    def __init__(self, queues, cpus=2, seen=20, ago=2 * 86400.0):
        super().__init__(queues, {"cpu": cpus * 1000, "memory": 10**6}, idle_budget=0.02)
        for name in [queue.name for queue in queues]:
            for _ in range(seen):
                job = self.submit(name, {"cpu": 1000})
                self.work()
                self.now += MINUTE
                self.end(job)
        self.now += ago

    def work(self):
        """Decide until there is nothing more to decide, and have all that was placed start."""
        while facts := self.decide(0.0):
            for fact in facts:
                if hasattr(fact, "node"):
                    self.happen(TasksStarted(at=self.now, job=fact.job, index=fact.index, attempt=fact.attempt))

    def spare(self, queue, demand):
        """Submit a revocable job."""
        self.happen(JobSubmitted(at=self.now, id=self.state.index.last + 1, job=Job(queue, demand, revocable=True)))
        return self.state.index.last

    def told(self, job, **more):
        return outlook(self.state, job, self.now, **more)

    def expected(self, job, **more):
        """The interval that is told, in seconds from now."""
        found = self.told(job, **more)
        assert found.reason == "expected", found
        assert found.runs == RUNS
        return found.earliest - self.now, np.inf if found.latest is None else found.latest - self.now


def about(seconds, interval):
    """Whether an interval has a moment in it, and is not wider than what is known of durations."""
    low, high = interval
    assert low - 1e-6 <= seconds <= high + 1e-6
    assert seconds / BIN - 1 <= low
    assert high <= seconds * BIN + 1
    return True


# -- stories ------------------------------------------------------------------------------------------------------------


def test_behind_others_of_its_queue_after_as_many_rounds_as_it_takes():
    shop = Shop([Queue("a")])
    jobs = [shop.submit("a", {"cpu": 1000}) for _ in range(12)]
    shop.work()
    for k in (2, 3, 6, 11):
        assert about(k // 2 * MINUTE, shop.expected(jobs[k]))
    shop.now += 50.0
    low, high = shop.expected(jobs[2])
    assert 6.0 - 1e-6 <= low <= high <= 14.0 + 1e-6, "what runs has between 6 and 14 seconds left"


def test_a_newcomer_is_served_before_who_has_a_lot_waiting():
    shop = Shop([Queue("a"), Queue("b")])
    many = shop.submit("a", {"cpu": 1000}, 100)
    shop.work()
    shop.now += 30.0
    new = shop.submit("b", {"cpu": 1000})
    low, high = shop.expected(new)
    assert 0 < low <= high <= 34.0 + 1e-6
    assert shop.expected(many)[0] >= low


def test_what_there_is_room_for_starts_now():
    shop = Shop([Queue("a")])
    job = shop.submit("a", {"cpu": 1000})
    found = shop.told(job)
    assert (found.earliest, found.latest) == (shop.now, shop.now)
    assert found.text == "now: there is room, and it is its turn"


def test_a_gang_starts_when_there_is_room_for_all_of_it(monkeypatch):
    monkeypatch.setattr(dry_runs, "DAY", -1.0)  # nothing comes in between
    shop = Shop([Queue("a"), Queue("b")], cpus=4)
    first = shop.submit("a", {"cpu": 1000}, 2)
    shop.work()
    shop.now += 40.0
    shop.submit("b", {"cpu": 1000}, 2)
    shop.work()
    gang = shop.submit("b", {"cpu": 1000}, 4, gang=True)
    low, high = shop.expected(gang)
    assert 1 / BIN <= low / MINUTE <= high / MINUTE <= BIN, "the last of several"
    one = shop.submit("a", {"cpu": 1000})
    assert shop.expected(one)[1] <= 24.0 + 1e-6, "the first two end before, and nothing is kept for the gang yet"
    assert shop.told(first).reason == "running"


def test_revocable_jobs_go_above_a_limit_into_what_is_idle(monkeypatch):
    monkeypatch.setattr(dry_runs, "DAY", -1.0)  # nothing comes in between
    shop = Shop([Queue("a", limit={"cpu": 1000}), Queue("b")])
    for queue in "ab":
        shop.submit(queue, {"cpu": 1000})
    shop.work()
    own, spare, large = shop.submit("a", {"cpu": 1000}), *(shop.spare("a", {"cpu": cpus * 1000}) for cpus in (1, 2))
    assert about(MINUTE, shop.expected(own))
    assert about(MINUTE, shop.expected(spare))
    assert about(2 * MINUTE, shop.expected(large))
    last = shop.submit("a", {"cpu": 1000})
    assert about(2 * MINUTE, shop.expected(last))


def test_a_limit_is_waited_for_as_well():
    shop = Shop([Queue("a", limit={"cpu": 1000}), Queue("b")], cpus=4)
    jobs = [shop.submit("a", {"cpu": 1000}) for _ in range(4)]
    shop.work()
    assert about(3 * MINUTE, shop.expected(jobs[3]))


def test_never_is_said_with_the_reason():
    shop = Shop([Queue("a", limit={"cpu": 1000}), Queue("b"), Queue("c", max_tasks=2)])
    large = shop.submit("b", {"cpu": 3000})
    assert shop.told(large)[1:3] == (
        "never",
        "never on the nodes that take tasks now: they could not hold a task of it, even empty",
    )
    gang = shop.submit("b", {"cpu": 1000}, 3, gang=True)
    assert "all 3 tasks at once" in shop.told(gang).text
    over = shop.submit("a", {"cpu": 2000})
    assert shop.told(over).text == "never: a task of it needs 2 cpu, and queue a is limited to 1"
    many = shop.submit("c", {"memory": 1}, 3, gang=True)
    assert shop.told(many).text == "never: a gang of 3 tasks, and queue c may run 2 at once"
    with pytest.raises(Unknown, match="no job 999"):
        shop.told(999)
    over = shop.submit("b", {"cpu": 1000})
    shop.work()
    shop.end(over)
    assert shop.told(over)[1:3] == ("over", "it has ended")


def test_what_is_held_starts_so_long_after_its_release():
    shop = Shop([Queue("a")])
    jobs = [shop.submit("a", {"cpu": 1000}) for _ in range(5)]
    shop.work()
    shop.happen(JobHeld(at=shop.now, id=jobs[4]))
    found = shop.told(jobs[4])
    assert found.held == (jobs[4],)
    assert " from when it is released, if tasks take as long" in found.text
    assert about(2 * MINUTE, (found.earliest - shop.now, found.latest - shop.now))


def test_what_comes_after_others_starts_when_these_have_ended():
    shop = Shop([Queue("a"), Queue("b")], cpus=4)
    first = shop.submit("a", {"cpu": 1000})
    shop.work()
    second = shop.submit("b", {"cpu": 1000}, 2, after=[After(first)])
    third = shop.submit("b", {"cpu": 1000}, 4, gang=True, after=[After(first, "end"), After(second, "end")])
    rescue = shop.submit("a", {"cpu": 1000}, after=[After(second, "failure")])
    assert about(MINUTE, shop.expected(second))
    assert about(2 * MINUTE, shop.expected(third))
    assert about(2 * MINUTE, shop.expected(rescue)), "if that fails"
    shop.happen(JobHeld(at=shop.now, id=second))
    found = shop.told(third)
    assert found.held == (second,)
    words = f" from when job {second} is released, when job {first} and job {second} are over, if tasks take as long"
    assert words in found.text
    assert f" from now, when job {first} is over, if tasks" in shop.told(shop.submit("b", {}, after=[After(first)])).text


def test_a_job_that_comes_after_the_one_before_it_in_its_line_waits_for_it_once():
    shop = Shop([Queue("a")], cpus=4)
    line = {"singleton": True, "name": "n"}
    first = shop.submit("a", {"cpu": 1000}, **line)
    shop.happen(JobHeld(at=shop.now, id=first))
    second = shop.submit("a", {"cpu": 1000}, after=[After(first)], **line)
    found = shop.told(second)
    assert found.held == (first,)
    assert f" from when job {first} is released, when job {first} is over, if tasks" in found.text


def test_what_comes_after_others_waits_for_their_time_to_begin():
    shop = Shop([Queue("a")], cpus=4)
    late = shop.submit("a", {"cpu": 1000}, begin=shop.now + 3600)
    after = shop.submit("a", {"cpu": 1000}, after=[After(late)])
    assert about(3600 + MINUTE, shop.expected(after))
    last = shop.submit("a", {"cpu": 1000}, begin=shop.now + 90 * 86400, after=[After(late)])
    assert about(90 * 86400.0, shop.expected(last))
    behind = shop.submit("a", {"cpu": 1000}, after=[After(last)])
    assert shop.told(behind).text.startswith("not within"), "a dry run ends after 60 days"
    line = [shop.submit("a", {"cpu": 1000}, singleton=True, name="n", begin=begin) for begin in (shop.now + 7200, None)]
    assert about(7200 + MINUTE, shop.expected(line[1]))


def test_what_failed_waits_in_dry_runs_too_until_it_starts_again():
    shop = Shop([Queue("a")], cpus=1)
    job = shop.submit("a", {"cpu": 1000}, retries=3, retry_delay=1800.0)
    shop.work()
    shop.end(job, code=1)
    after = shop.submit("a", {"cpu": 1000}, after=[After(job)])
    assert about(1800, shop.expected(job))
    assert about(1800 + MINUTE, shop.expected(after))
    for begin, starts in (900.0, 1800.0), (3600.0, 3600.0):  # it may come due with nothing to start
        shop.happen(admission.edit(shop.state, job, JobEdited(at=shop.now, id=job, begin=shop.now + begin)))
        assert about(starts, shop.expected(job))


@pytest.mark.parametrize("begin", [None, 10.0, 900.0])
def test_a_task_waits_for_that_of_its_index(begin):
    shop = Shop([Queue("a")], cpus=2)
    first = shop.submit("a", {"cpu": 1000}, 3)
    shop.work()
    job = shop.submit("a", {"cpu": 1000}, 2, after=[After(first, "index")], begin=begin and shop.now + begin)
    after = shop.submit("a", {"cpu": 1000}, after=[After(job)])
    starts = max(MINUTE, begin or 0.0)
    for number, at in (job, starts), (after, starts + (1 if begin == 900.0 else 2) * MINUTE):
        low, high = shop.expected(number)
        assert at / BIN - 1 <= low <= high <= at * BIN**2 + 1


def test_behind_a_held_job_of_the_same_indices_it_counts_from_its_release():
    shop = Shop([Queue("a")])
    held = shop.submit("a", {"cpu": 1000}, 2, held=True)
    job = shop.submit("a", {"cpu": 1000}, 2, after=[After(held, "index")])
    assert about(MINUTE, shop.expected(job))
    assert shop.told(job).held == (held,)
    assert f"from when job {held} is released" in shop.told(job).text


def test_a_task_that_is_being_stopped_has_all_of_its_grace():
    shop = Shop([Queue("a", grace=120.0), Queue("b")])
    shop.submit("a", {"cpu": 2000}, time_limit=10.0, grace=120.0)
    shop.work()
    shop.now += 10
    waits = shop.submit("b", {"cpu": 1000})
    shop.work()
    assert shop.expected(waits) == (120.0, 120.0)


def test_a_revoked_task_waits_again_and_a_broken_gang_starts_anew():
    shop = Shop([Queue("a", max_tasks=2), Queue("b")], cpus=2)
    job = shop.submit("a", {"cpu": 1000}, 3)
    shop.work()
    waits = shop.submit("b", {"cpu": 1000})
    row = shop.state.held_rows()[:1]
    shop.happen(TasksRevoked(at=shop.now, **shop.state.task_columns(row)))
    assert shop.expected(waits)[1] <= GRACE
    assert shop.expected(job)[0] <= MINUTE * BIN
    gang = shop.submit("b", {"cpu": 1000}, 2, gang=True)
    low, high = shop.expected(gang)
    assert 1 / BIN <= low / MINUTE <= high / MINUTE < np.inf


def test_where_nothing_is_known_it_is_said():
    first = World([Queue("a")], {"cpu": 1000})
    first.submit("a", {"cpu": 1000})
    first.decide()
    waits = first.submit("a", {"cpu": 1000})
    found = outlook(first.state, waits, first.now)
    assert (found.reason, found.earliest, found.latest) == ("unknown", None, None)
    assert "no duration of such tasks is known yet" in found.text


def test_behind_tasks_like_none_that_ended_and_without_a_time_limit_nothing_is_known():
    """Two tasks run that nothing is known of but that they have run for 5 s; they may take two minutes."""
    for limit, reason in ((None, "unknown"), (120.0, "expected")):
        first = World([Queue("a"), Queue("b")], {"cpu": 2000})
        first.submit("a", {"cpu": 1000}, 2, time_limit=limit)
        for fact in first.decide(0.0):
            first.happen(TasksStarted(at=0.0, job=fact.job, index=fact.index, attempt=fact.attempt))
        waits = first.submit("b", {"cpu": 1000})
        found = outlook(first.state, waits, 5.0)
        assert found.reason == reason
        assert (found.earliest, found.latest) == ((5.0, pytest.approx(120.0)) if limit else (None, None))
        assert limit is None or found.text == "within 1.9 min, by the time limits of what runs"
        first.now = 6.0
        first.end(1)
        waits = first.submit("b", {"cpu": 2000})
        assert outlook(first.state, waits, 6.0).text.endswith(", if tasks take as long as earlier ones did")


def test_what_runs_for_much_longer_than_all_that_ended_is_like_none_of_them():
    for limit, text in ((None, "unknown: no duration of such tasks"), (120.0, "within 1.8 min, by the time limits of what runs")):
        first = World([Queue("a")], {"cpu": 1000})
        for at, lasts in ((0.0, 1.0), (1.0, 9.0)):
            first.submit("a", {"cpu": 1000}, time_limit=limit)
            for fact in first.decide(at):
                first.happen(TasksStarted(at=at, job=fact.job, index=fact.index, attempt=fact.attempt))
            first.now = at + lasts
            if at == 0.0:
                first.end(1)
        waits = first.submit("a", {"cpu": 1000})
        assert outlook(first.state, waits, 3.0).text.endswith(", if tasks take as long as earlier ones did")
        assert outlook(first.state, waits, 10.0).text.startswith(text)


def test_what_came_in_the_last_day_may_come_again():
    """Jobs of a higher priority that keep coming delay who has a lower one; where none came, none will."""
    starts = []
    for priority in (-1, 1):
        shop = Shop([Queue("a")], cpus=1)
        for _ in range(30):
            shop.submit("a", {"cpu": 1000}, priority=priority)
            shop.work()
            shop.now += MINUTE
            shop.end(shop.state.index.last)
            shop.now += MINUTE
        shop.submit("a", {"cpu": 1000}, 30, priority=2)
        shop.work()
        waits = shop.submit("a", {"cpu": 1000})
        starts.append(shop.expected(waits))
    assert starts[0][0] < 30 * MINUTE * BIN
    assert starts[1][0] > 40 * MINUTE


def test_the_same_state_and_moment_give_the_same_answer_and_nothing_changes():
    shop = Shop([Queue("a"), Queue("b")])
    jobs = [shop.submit("ab"[k % 2], {"cpu": 1000}, 3) for k in range(9)]
    shop.work()
    before = same(shop.state)
    found = shop.told(jobs[5])
    assert shop.told(jobs[5]) == found
    assert outlook(snapshot.load(snapshot.dump(shop.state)), jobs[5], shop.now) == found
    assert same(shop.state) == before
    calibration = Calibration()
    for wait in (0.0, 1e6) * 3:
        calibration.record(found, shop.now)
        calibration.started(found.job, shop.now + wait)
    assert shop.told(jobs[5], calibration=calibration).latest > found.latest
    assert shop.told(jobs[5], calibration=calibration).earliest < found.earliest


@pytest.mark.parametrize("tasks", [1, 10_000])
def test_ten_thousand_tasks_that_wait_and_less_time_than_that_takes(tasks):
    shop = Shop([Queue("a"), Queue("b")])
    for k in range(10_000 // tasks):
        job = Job("ab"[k % 2], {"cpu": 1000}, tasks)
        apply(shop.state, JobSubmitted(at=shop.now, id=shop.state.index.last + 1, job=job))
    shop.work()
    last = shop.submit("a", {"cpu": 1000})
    full = shop.told(last, runs=9)
    assert (full.reason, full.runs) == ("expected", 9)
    short = shop.told(last, seconds=0.0)
    assert short.runs == 1
    assert short.latest is None
    assert short.earliest <= full.earliest


# -- runs on paper and what then happens ------------------------------------------------------------------------------------


@settings(max_examples=cases(20), deadline=None)
@given(workload=workloads(), policy=st.sampled_from(["drf", "fifo", "asset", "hdrf"]), seed=st.integers(0, 99))
def test_a_run_that_draws_the_truth_comes_to_what_really_happens(workload, policy, seed):
    """All durations true and nothing more arriving, the job that waits starts on paper when it will in the simulation.

    Without reservations: those are planned by forecasts, which a copy keeps in part.
    """
    rng = np.random.default_rng(seed)
    last = workload.submit[-1]
    expected = []

    def truth(self, source, ages):
        self._pool = np.ones(1)
        job = self._dry_run.before.jobs.id[source] - 1
        return workload.duration[workload.first[job]]

    def watch(state, facts):
        waiting = np.flatnonzero((state.jobs.waiting[: state.jobs.n] > 0) & (state.jobs.id[: state.jobs.n] > 0))
        if facts and facts[-1].at >= last and len(waiting) and len(expected) < 5:
            row, now = int(rng.choice(waiting)), facts[-1].at
            paper = dry_run_of(state, row, now)
            nothing = np.zeros(0, np.int64)
            none = paper.arrivals._replace(source=nothing, group=nothing, at=np.zeros(0))
            run = Run(replace(paper, arrivals=none), rng)
            while run.go_on(run.until + 1.0) and np.isnan(run.begun):
                pass
            expected.append((int(state.jobs.id[row]), now, run.begun))

    starts = []

    def record(facts):
        for fact in facts:
            if isinstance(fact, TasksStarted):
                starts.extend((int(job), fact.at) for job in np.unique(fact.job))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "_draw", truth)
        simulate(workload, policy, settings=Settings(idle_budget=0.0), history=2.0, watch=watch, record=record)
    for job, now, begun in expected:
        later = [at for j, at in starts if j == job and at > now]
        assert np.isnan(begun) if not later else begun == pytest.approx(min(later), abs=1e-6)


# -- calibration ------------------------------------------------------------------------------------------------------------


def expectation(job, low, high):
    return Outlook(job, "expected", "", low, high, dry=(low, high))


@settings(max_examples=cases(4), deadline=None)
@given(
    wrong=st.lists(st.tuples(st.floats(-1.0, 1.0), st.floats(0.1, 1.0)), min_size=1, max_size=3), seed=st.integers(0, 2**32 - 1)
)
def test_eight_in_ten_start_within_whatever_is_wrong_with_the_dry_runs(wrong, seed):
    """Waits are lognormal around another multiple of what is forecast for each order of magnitude, and vary more or less."""
    calibration, rng, within = Calibration(), np.random.default_rng(seed), []
    for job in range(1200):
        which = job % len(wrong)
        shift, spread = wrong[which]
        by = 100.0**which
        dry = 100 * by - 1, 400 * by - 1
        low, high = calibration.widened(*dry, 0.0)
        wait = float(np.exp(np.log(200 * by) + shift + spread * rng.normal()) - 1)
        calibration.record(Outlook(job, "expected", "", low, high, dry=dry), 0.0)
        within.append(calibration.started(job, wait))
        assert within[-1] is (low - 1 <= wait <= high + 1)
    for which in range(len(wrong)):
        assert np.mean(within[600 + which :: len(wrong)]) == pytest.approx(0.8, abs=0.12)
    assert np.mean(within[600:]) == pytest.approx(0.8, abs=0.06)


def test_outcomes_count_where_the_forecast_is_alike_and_the_dry_runs_hold_without_any():
    calibration = Calibration()
    assert calibration.widened(99.0, 199.0, 0.0) == pytest.approx((99.0, 199.0))
    for job in range(10):
        calibration.record(expectation(job, 99.0, 199.0), 0.0)
        assert calibration.started(job, 399.0) is False
    assert calibration.widened(99.0, 199.0, 0.0) == pytest.approx((49.0, 399.0))
    assert calibration.widened(0.0, 0.0, 0.0) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert calibration.widened(99.0, np.inf, 0.0)[1] == np.inf


def test_who_is_late_counts_before_they_start_and_not_too_much_is_remembered():
    calibration = Calibration()
    for job in range(MAX_OPEN + 50):
        calibration.record(expectation(job, 9.0, 99.0), 0.0)
    assert calibration.started(0, 50.0) is None
    before = calibration.widened(9.0, 99.0, 99.0)
    after = calibration.widened(9.0, 99.0, 999.0)
    assert after[1] == pytest.approx(999.0)
    assert before[1] == pytest.approx(99.0)
    assert calibration.started(50, 50.0) is True
    calibration.record(Outlook(-1, "expected", "", 0.0, 1.0, held=(-1,)), 0.0)
    calibration.record(Outlook(-2, "never", ""), 0.0)
    assert calibration.started(-1, 0.0) is calibration.started(-2, 0.0) is None
    for job in range(MAX_OPEN + 50):
        calibration.forget(job)
    assert not calibration


def test_of_those_who_wait_most_start_within_what_they_were_told(monkeypatch):
    """Tasks of very different lengths, jobs at random: the runs know neither, and are right eight times in ten all the same."""
    rng = np.random.default_rng(3)
    jobs = Jobs()
    at = np.cumsum(rng.exponential(40.0, 700))
    for k in range(700):
        jobs.add(float(at[k]), "abc"[k % 3], {"cpu": 1000}, float(rng.lognormal(5.0, 0.8)))
    workload = jobs.workload("busy", synthetic_nodes(5, "cpu=1"), [])
    monkeypatch.setattr(bench, "RUNS_BEFORE", 1)
    seen = bench.Outlooks(every=6, most=40)
    done = simulate(workload, watch=seen)
    told = bench.measured(seen, done.begun)["calibrated"]
    assert told.count > 30
    assert 0.7 < told.within < 0.95
    assert told.longer < 20


@needs_data
def test_the_measurement_on_traces(capsys, monkeypatch):
    monkeypatch.setenv("FAIRLEAD_DATA", str(DATA))
    monkeypatch.setattr(bench, "RUNS_BEFORE", 1)
    bench.run(scale=0.05, most=4, seeds=1)
    shown = capsys.readouterr().out
    assert shown.count("| calibrated |") + shown.count("nobody had to wait") == 3
    assert "FB-2010 0 | calibrated" in shown


def test_durations_as_people_read_them():
    for low, high, said in [
        (0, 12, "0 to 12 s"), (60, 60, "60 s"), (240, 640, "4 to 11 min"), (300, 300, "5 min"), (318, 318, "5.3 min"),
        (50, 200, "50 s to 3.4 min"), (7200, 9000, "2 to 2.5 h"), (3600, 400_000, "60 min to 4.7 days"),
    ]:  # fmt: skip
        assert span(low, high) == said


# -- for all who ask --------------------------------------------------------------------------------------------------------


def test_the_scheduler_goes_on_while_somebody_is_told(world, monkeypatch, tmp_path):  # noqa: F811
    loop, _, _ = world
    begun, go_on, copies = threading.Event(), threading.Event(), []
    copy_of = service.copy_of
    monkeypatch.setattr(service, "copy_of", lambda state: copies.append(1) or copy_of(state))
    outlooks = Outlooks(tmp_path / "outlooks.json")

    def slow(state, now, calibration, seconds):
        begun.set()
        assert go_on.wait(100)
        return Outlook(state.index.last, "expected", "")

    async def ask():
        job = await asyncio.wrap_future(loop.ask(submit, changes=True))
        first = [asyncio.ensure_future(outlooks.find(loop, "it", slow, job)) for _ in range(100)]
        others = [asyncio.ensure_future(outlooks.find(loop, k, slow)) for k in range(service.MOST_ASKED)]
        assert await asyncio.to_thread(begun.wait, 30)
        for _ in range(20):
            job = await asyncio.wait_for(asyncio.wrap_future(loop.ask(submit, changes=True)), 60)
        refused = (await asyncio.gather(others[-1], return_exceptions=True))[0]
        assert isinstance(refused, Busy)
        go_on.set()
        found = await asyncio.gather(*first)
        await asyncio.gather(*others[:-1])
        assert len({id(each) for each in found}) == 1, "the same is found once"
        return job

    assert asyncio.run(ask()) == 21
    assert len(copies) == 1
    outlooks.close()


def test_what_came_true_is_heard_of_and_a_new_job_is_looked_at(world, monkeypatch, tmp_path):  # noqa: F811
    loop, _, _ = world
    monkeypatch.setattr(service, "LEARN_SECONDS", 0.01)
    outlooks = Outlooks(tmp_path / "outlooks.json")
    loop._on_record = outlooks.recorded

    async def ask():
        for _ in range(4):
            job = await asyncio.wrap_future(loop.ask(submit, changes=True))
        learning = asyncio.ensure_future(outlooks.learn(loop))
        while not outlooks._found:
            await asyncio.sleep(0.01)
        (key,) = outlooks._found
        assert key == job
        found = await outlooks.of_job(loop, job)
        learning.cancel()
        return found

    found = asyncio.run(ask())
    assert found.reason in ("expected", "unknown", "running")
    outlooks._calibration.forget(found.job)
    outlooks._calibration.record(expectation(1, 0.0, 10.0), 0.0)
    one = np.ones(1, np.int64)
    outlooks.recorded(None, [JobSubmitted(at=0.0, id=9, job=None), TasksStarted(at=5.0, job=one, index=one, attempt=one)])
    assert not outlooks._calibration
    outlooks.close()


def test_who_holds_or_releases_a_job_is_told_what_holds_from_then_on(world, tmp_path):  # noqa: F811
    loop, _, _ = world
    outlooks = Outlooks(tmp_path / "outlooks.json")
    loop._on_record = outlooks.recorded

    def is_held(state, now, calibration, seconds):
        return bool(state.jobs.held[state.index.last - 1])

    async def ask():
        for _ in range(4):  # more than there is room for
            job = await asyncio.wrap_future(loop.ask(submit, changes=True))
        found = [await outlooks.find(loop, job, is_held, job)]
        for change in (admission.hold, admission.release):
            await asyncio.wrap_future(loop.ask(lambda s, now, change=change: ([change(s, job, now)], None), changes=True))
            found += [await outlooks.find(loop, job, is_held, job) for _ in range(2)]
        return found

    assert asyncio.run(ask()) == [False, True, True, False, False]
    outlooks.close()


def test_arrivals_are_drawn_from_what_is_remembered_and_no_more(monkeypatch):
    """What ended before the first end that is remembered may be forgotten: that time is not looked back on."""
    monkeypatch.setattr(dry_runs, "HOUR", 1.0)
    shop = Shop([Queue("a")], ago=0.0)
    row = shop.state.job_row(shop.submit("a", {"cpu": 1000}))
    whole = dry_run_of(shop.state, row, shop.now).arrivals
    assert len(whole.at) == 20
    assert whole.window == shop.now
    shop.happen(JobsForgotten(at=shop.now, ids=list(range(1, 16))))
    row = shop.state.job_row(21)
    last = dry_run_of(shop.state, row, shop.now).arrivals
    assert last.window == 4 * MINUTE, "since job 16 ended"
    assert shop.state.jobs.id[last.source].tolist() == [17, 18, 19, 20]
    monkeypatch.setattr(dry_runs, "DAY", 150.0)
    assert shop.state.jobs.id[dry_run_of(shop.state, row, shop.now).arrivals.source].tolist() == [19, 20]


def test_a_gang_whose_leader_is_over_while_another_of_it_waits_again_is_over():
    state = new_state()
    apply(state, Configured(at=0.0, queues=[Queue("*")], settings=Settings()))
    apply(state, NodeJoined(at=0.0, node=Node("n", {"cpu": 2000})))
    apply(state, JobSubmitted(at=0.0, id=1, job=Job("a", {"cpu": 1000}, 2, gang=True, led=True, retries=1)))
    both = {"job": np.array([1, 1]), "index": np.array([0, 1]), "attempt": np.array([1, 1])}
    apply(state, TasksPlaced(at=0.0, **both, node=np.array([0, 0])))
    apply(state, TasksFinished(at=1.0, **both, outcome=np.array([0, 1]), code=np.array([0, 9])))
    assert state.jobs.waiting[state.job_row(1)] == 1
    assert outlook(state, 1, 1.0).reason == "over"


def test_what_was_told_is_known_after_a_restart(tmp_path, caplog):
    """How far off it was of late, and of whom nothing has started; who started meanwhile is forgotten."""
    path = tmp_path / "outlooks.json"
    state = new_state()
    apply(state, Configured(at=0.0, queues=[Queue("*")], settings=Settings()))
    for number in (1, 2, 3):
        apply(state, JobSubmitted(at=0.0, id=number, job=Job("a", {"cpu": 1000})))
    before = Outlooks(path)
    for number in range(1, 40):
        latest = None if number == 3 else 20.0
        before._calibration.record(
            Outlook(number, "expected", "", earliest=10.0, latest=latest, dry=(10.0, latest or np.inf)), 0.0
        )
    for number in range(4, 40):
        before._calibration.started(number, 60.0)
    before.close()
    apply(state, JobCancelled(at=1.0, id=2))
    after = Outlooks(path)
    assert after._calibration.open_jobs() == [1, 2, 3]
    assert after._calibration.widened(10.0, 20.0, 9.0) == before._calibration.widened(10.0, 20.0, 9.0) != (10.0, 20.0)
    after.recover(state)
    assert after._calibration.open_jobs() == [1, 3]
    assert after._calibration.started(3, 1e9)
    after.close()

    path.write_text('{"open": [[1]]}')
    anew = Outlooks(path)
    assert (anew._calibration.open_jobs(), anew._calibration.as_text()) == ([], Calibration().as_text())
    assert "outlooks.json: cannot be read" in caplog.text
    anew.close()
