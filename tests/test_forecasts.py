"""Forecasts of when tasks end: what is counted, what follows from it; that it is bounded, and the same wherever it is made."""

import re
from dataclasses import replace
from unittest import mock

import msgspec
import numpy as np
import pytest
from bench import forecasts as bench
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.cli.job import show_job
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler import snapshot
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Configured,
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    Outcome,
    TasksExpired,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
    TasksStarted,
)
from fairlead.scheduler.forecasts import CAUTIOUS, EXPECTED, durations, ends
from fairlead.scheduler.invariants import check_invariants
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.tables import OF_FAMILY, OF_JOB, OF_QUEUE, SETS, WAYS
from fairlead.simulate import run as simulator
from fairlead.simulate.dry_runs import dry_run_of
from fairlead.simulate.kernel import advance
from fairlead.simulate.traces import read_trace
from fairlead.simulate.workload import cut
from random_cases import cases
from test_scheduling import World
from test_simulate import DATA, needs_data, workloads
from worlds import replay, same

EDGES = [0.0, *[2.0**octave * (1 + part / 4) for octave in range(-4, 28) for part in range(4)][1:], 2.0**28]
"""Where bins begin, written another way than in the kernels."""


def bin_of(seconds):
    return min(len(EDGES) - 2, int(np.searchsorted(EDGES, seconds, side="right")) - 1)


class History(World):
    """One roomy node, and tasks that take as long as they are told to; time goes on by itself."""

    def __init__(self, *names):
        super().__init__([Queue(name) for name in names or "A"], {"cpu": 10**9}, keep_jobs=10**6)

    def happen(self, fact):
        apply(self.state, fact)

    def one(self, what, job, indices, attempt=1, **more):
        columns = {"job": np.full(len(indices), job), "index": np.array(indices, np.int64)}
        columns["attempt"] = np.full(len(indices), attempt)
        self.happen(what(at=self.now, **columns, **{k: np.full(len(indices), v) for k, v in more.items()}))

    def start(self, job, *indices, attempt=1):
        self.one(TasksPlaced, job, indices, attempt, node=0)
        self.one(TasksStarted, job, indices, attempt)

    def run(self, job, seconds, first=0):
        """Tasks of a job run, one after another."""
        for index, length in enumerate(seconds, first):
            self.now = float(np.ceil(self.now))  # so that no digits are lost
            self.start(job, index)
            self.now += length
            self.one(TasksFinished, job, [index], outcome=0, code=0)

    def ran(self, *seconds, queue="A", name="", cpu=1000):
        """A job of tasks that took so long."""
        job = self.submit(queue, {"cpu": cpu}, max(1, len(seconds)), name=name)
        self.run(job, seconds)
        return job

    def durations(self, job, ages, chance):
        row = self.state.job_row(job)
        ages = np.atleast_1d(np.asarray(ages, float))
        return durations(self.state, np.full(len(ages), row), ages, chance)

    def counted(self, about):
        """How many durations the sketches of one sort of thing hold, largest first."""
        n, sketches = self.state.histograms.n, self.state.histograms
        return sorted(sketches.total[:n][sketches.about[:n] == about].tolist(), reverse=True)


# -- what follows from what is known ------------------------------------------------------------------------------------


def test_without_history_as_long_again_as_it_has_run_is_counted_on_and_nobody_is_told_so():
    world = History()
    job = world.submit("A", {"cpu": 1000}, 2)
    world.start(job, 0)
    began = world.now
    for age in (0.0, 0.01, 1.0, 77.0, 1e6, 1e9):
        rows = world.state.held_rows()
        assert world.durations(job, age, EXPECTED) == pytest.approx([2 * age])
        for chance in (EXPECTED, CAUTIOUS):
            assert ends(world.state, rows, began + age, chance) == np.inf, "nothing is known of how long such tasks take"


def test_nothing_lasts_longer_than_its_limit_and_nothing_ended_before_now():
    world = History()
    job = world.submit("A", {"cpu": 1000}, 4, time_limit=100.0)
    world.start(job, 0)
    assert world.durations(job, [20.0, 60.0, 500.0], EXPECTED).tolist() == [40.0, 100.0, 500.0]
    assert ends(world.state, world.state.held_rows(), world.now + 60, CAUTIOUS).tolist() == [world.now + 100]
    late = world.now + 500  # it should have been stopped long ago
    assert ends(world.state, world.state.held_rows(), late, CAUTIOUS).tolist() == [late]
    world.one(TasksPlaced, job, [1], node=0)
    world.start(job, 2)
    world.one(TasksRevoked, job, [2])
    rows = world.state.jobs.first[world.state.job_row(job)] + np.arange(4)
    world.now += 10
    expected = ends(world.state, rows, world.now)
    assert expected[:3].tolist() == [np.inf, np.inf, world.now], "running, about to start, told to stop"
    assert np.isnan(expected[3]), "it waits"
    assert ends(world.state, rows, world.now, CAUTIOUS)[1] == world.now + 100


@pytest.mark.parametrize("count", [30, 200, 1000])
@pytest.mark.parametrize("age", [0.0, 50.0])
def test_a_forecast_is_a_quantile_of_what_lasted_longer_within_a_bin(count, age):
    rng = np.random.default_rng(count)
    seconds = rng.lognormal(4, 1.5, count)
    world = History()
    for k, length in enumerate(seconds):
        world.ran(length, name=f"{k}")  # families of their own, so that it is for the queue's sketch alone to say
    new = world.submit("A", {"cpu": 1000}, name="new")
    longer = np.sort(seconds[[bin_of(length) > bin_of(age) for length in seconds]] if age else seconds)
    begun = bin_of(age)
    for chance in (0.1, 0.25, 0.5, 0.75, 0.9):
        (found,) = world.durations(new, age, chance)
        if bin_of(found) == begun:
            continue  # it hangs on where in the bin they lie
        # The one that runs may be the longest of all.
        last = EDGES[begun + 1] - age
        inside = np.sum((seconds >= EDGES[begun]) & (seconds < EDGES[begun + 1])) * last / (EDGES[begun + 1] - EDGES[begun])
        total = len(longer) + (inside if age else 0)
        place = len(longer) - ((1 - chance) * (total + 1) - 1)
        low, high = (longer[int(np.clip(k, 0, len(longer) - 1))] for k in (np.floor(place) - 1, np.ceil(place)))
        assert EDGES[bin_of(low)] <= found <= EDGES[bin_of(high) + 1], (chance, low, found, high)


def test_a_job_knows_better_than_its_kind_and_that_better_than_its_queue():
    world = History("A", "B")
    for k in range(50):
        world.ran(10.0, name=f"some{k}")
    for _ in range(50):
        world.ran(100.0, name="train")
    median = {name: world.durations(world.submit("A", {"cpu": 1000}, name=name), 0, 0.5)[0] for name in ("train", "new")}
    assert median["train"] == pytest.approx(100, rel=0.15)
    assert median["new"] < 112
    job = world.submit("A", {"cpu": 1000}, 60, name="train")
    world.run(job, [1000.0] * 50)
    assert world.durations(job, 0, 0.5) == pytest.approx([1000], rel=0.15)
    assert world.durations(job, 2000, 0.5) == pytest.approx([4000]), "longer than all there was: as long again"
    other_shape = world.submit("A", {"cpu": 2000}, name="train")
    other_queue = world.submit("B", {"cpu": 1000}, name="train")
    assert world.durations(other_shape, 0, 0.5) == world.durations(world.submit("A", {"cpu": 1000}, name="x"), 0, 0.5)
    assert world.durations(other_queue, 7, 0.5) == pytest.approx([14]), "nothing is known of queue B"


lengths = st.lists(st.floats(0.001, 1e7), max_size=40)


@st.composite
def histories(draw):
    """A world with a job that has some of its own, its family and its queue, and which job it is."""
    world = History()
    for length in draw(lengths):
        world.ran(length, name="other")
    for length in draw(lengths):
        world.ran(length, name="alike")
    own = draw(lengths)
    limit = draw(st.sampled_from([None, None, 50.0, 1e5]))
    job = world.submit("A", {"cpu": 1000}, len(own) + 2, name="alike", time_limit=limit)
    world.run(job, own)
    return world, job, limit or np.inf


@settings(max_examples=cases(50), deadline=None)
@given(histories(), st.lists(st.floats(0, 1e9), min_size=2, max_size=8), st.lists(st.floats(0.01, 0.99), min_size=2))
def test_later_for_what_is_older_and_for_who_is_more_cautious(history, ages, chances):
    world, job, limit = history
    ages = np.sort(ages)
    found = np.array([world.durations(job, ages, chance) for chance in sorted(chances)])
    assert (found >= ages).all(), "it would have ended"
    assert (found <= np.maximum(ages, limit)).all()
    with np.errstate(invalid="ignore"):  # infinity less infinity
        assert not (np.diff(found, axis=0) < -1e-9 * found[1:]).any(), "more cautious, and earlier"
        assert not (np.diff(found, axis=1) < -1e-9 * found[:, 1:]).any(), "older, and earlier"


def longer_than(counts, t):
    """How many durations are longer than t, if they lie evenly in their bins."""
    b = bin_of(t)
    within = max(0.0, (EDGES[b + 1] - t) / (EDGES[b + 1] - EDGES[b]))
    return within * counts[b] + sum(counts[b + 1 :])


def part_beyond(sketches, age, t):
    """What the pages say, of the sketches of the job, of its family and of its queue: the part that goes on beyond t."""
    longest = max([0.0] + [EDGES[b + 1] for counts in sketches for b in range(128) if counts[b]])
    part = min(1.0, max(age, longest) / t)
    for counts, weight in reversed(list(zip(sketches, (4, 4, 1), strict=True))):
        part = (longer_than(counts, t) + weight * part) / (longer_than(counts, age) + weight)
    return part


@settings(max_examples=cases(50), deadline=None)
@given(histories(), st.floats(0.001, 1e8), st.floats(0.01, 0.99))
def test_a_forecast_leaves_as_many_behind_as_it_says(history, age, chance):
    world, job, limit = history
    state = world.state
    row = state.job_row(job)
    sketches = [np.zeros(128)] * 3
    for k in range(state.histograms.n):
        about = int(state.histograms.about[k])
        if state.histograms.key[k] == (job, state.jobs.family[row], state.jobs.queue[row])[about]:
            sketches[about] = state.histograms.counts[k]
    (found,) = world.durations(job, age, chance)
    if found == np.inf:
        known = max([age] + [EDGES[b + 1] for counts in sketches for b in range(128) if counts[b]])
        assert part_beyond(sketches, age, 4 * known) > 1 - chance
    elif found >= limit:
        assert found == max(age, limit)
        known = max([age] + [EDGES[b + 1] for counts in sketches for b in range(128) if counts[b]])
        behind = part_beyond(sketches, age, min(limit, 4 * known))  # beyond four times what is known only the limit is
        assert age >= limit or behind >= 1 - chance - 1e-9
    else:
        # Where nobody lasted longer by even odds than to any moment of a while, all of that while is right.
        assert part_beyond(sketches, age, found * (1 + 1e-9)) <= 1 - chance + 1e-6
        assert part_beyond(sketches, age, max(age, found * (1 - 1e-9))) >= 1 - chance - 1e-6


@settings(max_examples=cases(10), deadline=None)
@given(histories(), st.integers(0, 2**32 - 1))
def test_durations_that_are_drawn_are_spread_as_forecasts_say(history, seed):
    world, job, limit = history
    row, many = world.state.job_row(job), 2000
    for age in (0.0, 20.0):
        parts = 1 - np.random.default_rng(seed).random(many)
        first = scheduling.durations(world.state.view(), np.full(many, row), np.full(many, age), parts, np.inf)
        assert (first >= age).all()
        assert (first <= max(age, limit)).all()
        for chance in (0.25, 0.5, 0.75):
            (found,) = world.durations(job, age, chance)
            if np.isfinite(found):
                assert (first < found * (1 - 1e-9)).mean() <= chance + 0.06
                assert (first <= found * (1 + 1e-9)).mean() >= chance - 0.06


# -- what is counted ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "outcome", "code", "counts"),
    [
        (None, Outcome.EXITED, 0, True),
        (None, Outcome.EXITED, 1, True),
        (None, Outcome.SIGNALLED, 11, True),
        (None, Outcome.OUT_OF_MEMORY, 9, True),
        (None, Outcome.LOST, 0, False),
        (None, Outcome.NOT_STARTED, 2, False),
        ("cancelled", Outcome.SIGNALLED, 15, False),
        ("cancelled", Outcome.STOPPED, 0, False),
        ("cancelled", Outcome.EXITED, 0, True),
        ("revoked", Outcome.SIGNALLED, 15, False),
        ("revoked", Outcome.EXITED, 0, True),
        ("expired", Outcome.SIGNALLED, 15, True),
        ("expired", Outcome.STOPPED, 0, True),
        ("never started", Outcome.EXITED, 0, False),
    ],
)
def test_what_ended_by_itself_or_ran_out_of_time_counts_and_what_was_cut_does_not(told, outcome, code, counts):
    world = History()
    job = world.submit("A", {"cpu": 1000}, 2)
    world.one(TasksPlaced, job, [0], node=0)
    if told != "never started":
        world.one(TasksStarted, job, [0])
    world.now += 10
    if told == "cancelled":
        world.happen(JobCancelled(at=world.now, id=job))
    elif told in ("revoked", "expired"):
        world.one(TasksRevoked if told == "revoked" else TasksExpired, job, [0])
    world.one(TasksFinished, job, [0], outcome=int(outcome), code=code)
    for about in (OF_JOB, OF_FAMILY, OF_QUEUE):
        assert world.counted(about) == [1] * counts


def test_what_is_lost_with_its_node_and_what_a_clock_that_went_back_says_do_not_count():
    world = History()
    job = world.submit("A", {"cpu": 1000}, 2)
    world.start(job, 0, 1)
    world.now -= 5
    world.one(TasksFinished, job, [0], outcome=0, code=0)
    world.happen(NodeLost(at=world.now + 20, node="n0"))
    assert world.state.histograms.n == 0


def test_of_a_large_job_some_tasks_count_for_others_chosen_evenly():
    world = History()
    world.ran(*[1.0] * 640)
    (own,), (family,), (queue,) = (world.counted(about) for about in (OF_JOB, OF_FAMILY, OF_QUEUE))
    assert (own, family, queue) == (640, 32, 32)
    for _ in range(3):
        world.ran(*[1000.0] * 63)
    assert world.counted(OF_FAMILY) == world.counted(OF_QUEUE) == [32 + 3 * 63]
    new = world.submit("A", {"cpu": 1000})
    assert world.durations(new, 0, 0.5) == pytest.approx([1000], rel=0.15), "the large one does not say all"


def test_what_was_long_ago_weighs_less_and_less():
    world = History()
    rng = np.random.default_rng(1)
    world.ran(*rng.lognormal(2, 1, 1024))
    (row,) = np.flatnonzero(world.state.histograms.about[: world.state.histograms.n] == OF_JOB)
    full = world.state.histograms.counts[row].copy()
    other = world.submit("A", {"cpu": 1000}, 10_000)
    world.run(other, rng.lognormal(2, 1, 1024))
    (row,) = np.flatnonzero(world.state.histograms.key[: world.state.histograms.n] == other)
    full = world.state.histograms.counts[row].copy()
    world.run(other, [2.0**27], first=1024)
    halved = world.state.histograms.counts[row].copy()
    halved[bin_of(2.0**27)] -= 1
    tails = np.cumsum(full[::-1])
    assert np.array_equal(np.cumsum(halved[::-1]), tails // 2), "half of what is longer than any length"
    world.run(other, [1e5] * 1800, first=1025)
    assert world.durations(other, 0, 0.5) == pytest.approx([1e5], rel=0.15), "it follows what changes"
    assert world.state.histograms.total[row] <= 1024


# -- bounded, and the same everywhere ------------------------------------------------------------------------------------


def many_families(count, alike):
    """A history of so many jobs, each of another family but for some, one after another; and their names."""
    rng = np.random.default_rng(3)
    facts = [
        Configured(at=0, queues=[Queue("A"), Queue("quiet")], settings=Settings(keep_jobs=10**6)),
        NodeJoined(at=0, node=Node("n0", {"cpu": 10**9})),
        JobSubmitted(at=0, id=1, job=Job("quiet", {"cpu": 1000})),
        JobSubmitted(at=0, id=2, job=Job("A", {"cpu": 1000}, 2, name="several")),
    ]
    names = [f"job {k}" if k % alike else f"often {rng.integers(20)}" for k in range(count)]
    for k, name in enumerate(names):
        facts.append(JobSubmitted(at=1, id=k + 3, job=Job("A", {"cpu": 1000}, name=name)))
    job = np.array([1, 2, 2, *range(3, count + 3)])
    index = np.array([0, 0, 1, *[0] * count])
    ones, zeros = np.ones(len(job), np.int64), np.zeros(len(job), np.int64)
    facts.append(TasksPlaced(at=2, job=job, index=index, attempt=ones, node=zeros))
    facts.append(TasksStarted(at=2, job=job, index=index, attempt=ones))
    for k in range(0, len(job), 10):
        some = {"job": job[k : k + 10], "index": index[k : k + 10], "attempt": ones[k : k + 10]}
        facts.append(TasksFinished(at=3.0 + k, **some, outcome=zeros[k : k + 10], code=zeros[k : k + 10]))
    return facts, names


def test_so_many_sketches_are_kept_and_those_go_first_that_were_not_added_to_for_longest():
    facts, names = many_families(11_000, alike=10)
    state = new_state()
    for fact in facts:
        apply(state, fact)
    check_invariants(state)
    sketches, n = state.histograms, state.histograms.n
    assert 0.9 * SETS * WAYS < n <= SETS * WAYS
    kept = dict(zip(zip(sketches.about[:n].tolist(), sketches.key[:n].tolist(), strict=True), range(n), strict=True))
    assert {(OF_QUEUE, int(row)) for row in (state.tree.rows["A"], state.tree.rows["quiet"])} <= set(kept)
    assert (OF_JOB, 2) not in kept or sketches.used[kept[OF_JOB, 2]] == -np.inf, "it has ended: nobody asks again"
    families = {name: int(state.jobs.family[state.job_row(k + 3)]) for k, name in enumerate(names)}
    last = {name: k for k, name in enumerate(names)}
    there = np.array([(OF_FAMILY, family) in kept for family in families.values()])
    order = np.array([last[name] for name in families])
    assert there[order > len(names) - 2000].mean() > 0.99, "the last ones are kept"
    assert there[order < 1000].mean() < 0.4, "the first are not"
    often = [families[name] for name in families if name.startswith("often")]
    assert all(sketches.total[kept[OF_FAMILY, family]] > 30 for family in often)

    half = len(facts) - 500
    again = replay(facts[:half])
    recovered = snapshot.load(snapshot.dump(again))
    for fact in facts[half:]:
        apply(again, fact)
        apply(recovered, fact)
    check_invariants(recovered)
    assert same(again) == same(recovered) == same(state)


@settings(max_examples=cases(15), deadline=None)
@given(histories(), st.floats(0, 1e6))
def test_a_recovered_state_forecasts_alike(history, age):
    world, job, _ = history
    recovered = snapshot.load(snapshot.dump(world.state))
    rows, ages = np.array([world.state.job_row(job)]), np.array([age])
    for chance in (EXPECTED, CAUTIOUS):
        assert durations(recovered, rows, ages, chance) == durations(world.state, rows, ages, chance)
    check_invariants(recovered)
    before = same(world.state)
    ends(world.state, world.state.held_rows(), world.now)
    assert same(world.state) == before, "forecasts change nothing"


def test_a_snapshot_from_before_there_were_sketches_is_read():
    world = History()
    job = world.ran(5.0, 6.0)
    known, *pieces = (msgspec.msgpack.decode(piece) for piece in snapshot.dump(world.state))
    del known["rows"]["sketches"]
    pieces = [piece for piece in pieces if piece.get("table") != "sketches" and piece.get("column") != "family"]
    old = snapshot.load(map(msgspec.msgpack.encode, [known, *pieces]))
    check_invariants(old)
    assert (old.histograms.n, int(old.jobs.family[old.job_row(job)])) == (0, 0)
    world.state = old
    world.ran(5.0)
    assert world.counted(OF_FAMILY) == world.counted(OF_QUEUE) == [1]


@settings(max_examples=cases(20), deadline=None)
@given(workload=workloads(), keep=st.sampled_from([0, 1000]))
def test_many_steps_in_compiled_code_keep_the_same_sketches(workload, keep):
    plain = replace(workload, after={})
    kept = []
    for compiled in (True, False):
        with (
            mock.patch.object(simulator, "KEEP_JOBS", keep),
            mock.patch.object(simulator, "Simulation", wraps=simulator.Simulation) as simulation,
        ):
            run = simulator.simulate(plain, "drf", compiled=compiled)
        state = simulation.call_args.args[2].state
        check_invariants(state)
        rows = state.histograms.rows[: state.histograms.n].copy()
        of_queue = rows["about"] == OF_QUEUE  # queues may have other rows
        names = [hash(state.tree.names[row]) for row in rows["key"][of_queue].tolist()]
        rows["key"][of_queue] = names
        kept.append(rows.tobytes())
    assert kept[0] == kept[1]
    assert bool(kept[0]) == (run.completed > 0)


# -- what is told -------------------------------------------------------------------------------------------------------


def test_people_are_told_when_running_tasks_end(capsys):
    world = History()
    world.ran(*[60.0] * 5, name="train")
    job = world.submit("A", {"cpu": 1000}, 3, name="train")
    world.start(job, 0)
    world.now += 30
    first, second, _ = report.describe_tasks(world.state, job, world.now)["tasks"]
    assert 20 < first["expected_end"] - world.now < 40 <= 8 * (first["cautious_end"] - world.now)
    assert first["expected_end"] < first["cautious_end"]
    assert (second["expected_end"], second["cautious_end"]) == (None, None)
    found = report.describe_job(world.state, job)
    with mock.patch("time.time", return_value=world.now):
        show_job(found, [first, second], 0)
        told = capsys.readouterr().out
        assert re.search(r"ends in +p90", told)
        assert f"{first['expected_end'] - world.now:.0f}s" in told
        lonely = {**first, "cautious_end": None}
        show_job(found, [lonely], 0)
        assert "?" in capsys.readouterr().out.splitlines()[-1]
        show_job(found, [second], 0)
        assert "ends in" not in capsys.readouterr().out


def test_an_end_that_earlier_tasks_say_nothing_of_is_unknown(capsys):
    """Not "as long again as it has run": that is what the kernel counts on, for want of anything better."""
    world = History()
    world.start(world.submit("A", {"cpu": 1000}), 0)
    world.start(world.submit("A", {"cpu": 1000}, time_limit=600.0), 0)
    world.now += 120
    (lonely,), (limited,) = (report.describe_tasks(world.state, job, world.now)["tasks"] for job in (1, 2))
    assert (lonely["expected_end"], lonely["cautious_end"]) == (None, None)
    assert (limited["expected_end"], limited["cautious_end"]) == (None, 600.0), "nobody knows more than the limit"
    with mock.patch("time.time", return_value=world.now):
        for job, task, shown in ((1, lonely, ["?", "?"]), (2, limited, ["?", "8min"])):
            show_job(report.describe_job(world.state, job), [task], 0)
            assert capsys.readouterr().out.split()[-2:] == shown
    world.run(world.submit("A", {"cpu": 1000}), [100.0])
    (known,) = report.describe_tasks(world.state, 1, world.now)["tasks"]
    assert known["expected_end"] > world.now
    world.now += 1000.0
    (known,) = report.describe_tasks(world.state, 1, world.now)["tasks"]
    assert known["expected_end"] is None, "it has run ten times as long as any"


def test_the_bench_says_when_there_are_no_traces(capsys, monkeypatch):
    monkeypatch.setenv("FAIRLEAD_DATA", "/nonexistent")
    bench.run()
    assert "no traces in /nonexistent" in capsys.readouterr().out


@needs_data
def test_nine_in_ten_end_by_the_cautious_forecast():
    openb = cut(read_trace(DATA / "openb"), scale=0.5, seed=1)
    seen = bench.Forecasts(openb, every=1e5)
    simulator.simulate(openb, "drf", watch=seen)
    _, median, cautious, truth = np.concatenate(seen.young, axis=1)
    assert len(truth) == 4036
    assert 0.4 < (truth <= median).mean() < 0.6
    assert 0.85 < (truth <= cautious).mean() < 0.95
    assert np.isfinite(cautious).mean() > 0.95


@given(lasts=st.lists(st.tuples(st.integers(1, 10**5), st.booleans()), min_size=1, max_size=30), place=st.floats(0.01, 0.99))
def test_draws_count_running_tasks_as_kaplan_and_meier_do(lasts, place):
    """Tasks of one family, of which some run still: a draw is a quantile of the product of the bins' parts that go on."""
    history = History("A")
    lasts = sorted(lasts, reverse=True)
    jobs = [history.submit("A", {"cpu": 1}) for _ in lasts]
    end = 1.0 + max(seconds for seconds, _ in lasts)
    for job, (seconds, _) in zip(jobs, lasts, strict=True):
        history.now = end - seconds
        history.one(TasksPlaced, job, [0], node=0)
        history.one(TasksStarted, job, [0])
    history.now = end
    for job, (_, ended) in zip(jobs, lasts, strict=True):
        if ended:
            history.one(TasksFinished, job, [0], outcome=0, code=0)
    waits, bins = history.submit("A", {"cpu": 1}), [bin_of(seconds) for seconds, _ in lasts]
    dry_run = dry_run_of(history.state, history.state.job_row(waits), end)
    found, row = np.zeros(1), np.array([history.state.job_row(waits)])
    advance.draw(history.state.view(), row, np.zeros(1), np.array([[0.9, 0.9, place]]), dry_run.running, found)

    done = sorted(b for b, (_, ended) in zip(bins, lasts, strict=True) if ended)
    if not done:
        assert found[0] == 0.0, "nothing is known"
        return
    family, at = [1.0], 4 / (len(lasts) + 4)
    for b in range(len(EDGES) - 1):
        risk = sum(other >= b for other in bins)
        family.append(family[-1] * (1 - done.count(b) / risk if risk else 1.0))
    queue = [sum(b >= edge for b in done) / len(done) for edge in range(len(EDGES))]
    stays = [(1 - at) * one + at * (len(done) * other + 1) / (len(done) + 1) for one, other in zip(family, queue, strict=True)]
    longest = EDGES[max(bins) + 1]
    if 1 - place <= stays[-1]:
        assert found[0] == pytest.approx(longest * stays[-1] / (1 - place))
    else:
        b = next(b for b, part in enumerate(stays) if part <= 1 - place)
        assert EDGES[b - 1] * (1 - 1e-9) <= found[0] <= EDGES[b] * (1 + 1e-9)
