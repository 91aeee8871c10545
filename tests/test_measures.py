"""What a simulation measures, against sums over its facts; means over seeds; and the charts of its report."""

import itertools
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy  # whose parts are read when they are asked for
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.charts import WIDTH, Axis, Chart, Series, moment, number, percent, picture, span
from fairlead.model.specs import Queue
from fairlead.scheduler.facts import TasksFinished, TasksPlaced, TasksRevoked
from fairlead.simulate import sweep as sweeps
from fairlead.simulate.configured import configured
from fairlead.simulate.measure import half_width, over_seeds, summary
from fairlead.simulate.offers import parse_answers
from fairlead.simulate.report import page, queue_tables, runs_text, sweep_page, sweep_text
from fairlead.simulate.run import simulate
from fairlead.simulate.sweep import Point, merged, sweep
from fairlead.simulate.traces import Derivation, read_trace
from fairlead.simulate.workload import Jobs, TraceError, cut, synthetic_nodes
from fairlead.text_tables import printed
from random_cases import cases

ROOT = Path(__file__).parent.parent
TRACE = str(ROOT / "examples" / "trace.csv")

jobs = st.lists(
    st.tuples(
        st.integers(0, 30), st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 4), st.integers(1, 20), st.integers(1, 5)
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


def workload_of(drawn, queues=()):
    found = Jobs()
    for submit, queue, cpu, memory, duration, tasks in drawn:
        found.add(float(submit), queue, {"cpu": 1000 * cpu, "memory": 2**30 * memory}, float(duration), tasks)
    return found.workload("drawn", synthetic_nodes(2, "cpu=5,memory=5GiB"), list(queues))


def spans_of(facts):
    """The jobs, starts and ends of all attempts."""
    began, spans = {}, []
    for fact in facts:
        if isinstance(fact, TasksPlaced):
            for key in zip(fact.job.tolist(), fact.index.tolist(), fact.attempt.tolist(), strict=True):
                began[key] = fact.at
        elif isinstance(fact, TasksFinished):
            for key in zip(fact.job.tolist(), fact.index.tolist(), fact.attempt.tolist(), strict=True):
                spans.append((key[0] - 1, began.pop(key), fact.at))
    assert not began
    return spans


@settings(max_examples=cases(20), deadline=None)
@given(jobs, st.sampled_from([0.0, 3.5, 12.0]), st.booleans(), st.booleans())
def test_what_queues_use_is_the_integral_over_the_measured_time(drawn, warm_up, compiled, preempts):
    """Also with tasks that are revoked; the oracle adds up each attempt's time, moment by moment for dominant shares."""
    queues = [Queue("a", guarantee={"cpu": 4000}, guarantee_timeout=1.0)] if preempts else []
    workload = workload_of(drawn, [*queues, Queue("*")] if preempts else [])
    if warm_up > workload.submit[-1]:
        with pytest.raises(TraceError, match="leaves nothing to measure"):
            simulate(workload, warm_up=warm_up)
        return
    facts = []
    run = simulate(workload, warm_up=warm_up, compiled=compiled, record=facts.extend)
    plain = simulate(workload, compiled=compiled)
    assert run.ended.tolist() == plain.ended.tolist(), "measuring changes nothing"
    since = max(warm_up, workload.submit[0])
    assert run.since == since
    spans = [(job, max(begin, since), end) for job, begin, end in spans_of(facts) if end > since]
    need = np.array([[demand.get(r, 0) for r in run.resources] for demand in workload.demands], float)[workload.shape]
    total = np.array([10_000, 10 * 2**30])[: len(run.resources)]
    moments = sorted({since, *(at for _, begin, end in spans for at in (begin, end))})
    used, got = np.zeros((len(run.queues), len(run.resources))), np.zeros(len(run.queues))
    for q, name in enumerate(run.queues):
        mine = [one for one in spans if workload.queue[one[0]] == name]
        for begin, end in itertools.pairwise(moments):
            now = sum((need[job] for job, b, e in mine if b <= begin and e >= end), np.zeros(len(run.resources)))
            used[q] += now * (end - begin)
            got[q] += (now / total).max() * (end - begin)
    np.testing.assert_allclose(run.used, used, rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(run.got, got, rtol=1e-9, atol=1e-9)
    told = summary(run)
    lasts = np.nanmax(run.ended) - since
    if lasts > 0:
        assert told["utilisation"]["cpu"] == pytest.approx(used[:, 0].sum() / 10_000 / lasts)
    late = run.submitted >= since
    assert told["jobs"] == late.sum()
    completion = (run.ended - run.submitted)[late & ~np.isnan(run.ended)]
    assert told["completion"] == ({} if not len(completion) else told["completion"])
    if len(completion):
        assert told["completion"]["mean"] == pytest.approx(completion.mean())
    revoked = sum(len(fact.job) for fact in facts if isinstance(fact, TasksRevoked) and fact.at >= since)
    assert run.revoked == revoked
    for queue in told["over time"]["queues"]:
        which = late & np.array([name == queue["name"] for name in workload.queue])
        assert queue["jobs"] == which.sum()
        if queue["ended"]:
            assert queue["wait"]["mean"] == pytest.approx((run.waited / workload.tasks)[which & ~np.isnan(run.ended)].mean())


def test_what_is_kept_idle_counts_after_the_warm_up():
    """One of 4 CPUs is free beside 3 that run until 10, and is kept from 2 on for a job that wants all four then."""
    found = Jobs()
    found.add(0.0, "a", {"cpu": 3000}, 10.0, 1)
    found.add(2.0, "b", {"cpu": 1000}, 10.0, 4, gang=True)
    found.add(3.0, "c", {"cpu": 1000}, 50.0, 1)
    found.add(5.0, "c", {"cpu": 1000}, 50.0, 1)
    workload = found.workload("w", synthetic_nodes(1, "cpu=4"), [])
    whole, late, later = (simulate(workload, "easy", warm_up=after) for after in (0.0, 3.0, 4.5))
    assert whole.begun.tolist() == late.begun.tolist() == [0.0, 10.0, 20.0, 20.0]
    # From 3 on a CPU lies idle that c could use; before, from 2 on.
    assert [run.idled.tolist() for run in (whole, late, later)] == [[8000], [7000], [5500]]


def test_offers_are_counted_after_the_warm_up():
    """A machine of 4 CPUs: A takes 3 after two seconds, and B, who is offered the fourth then, thinks as long."""
    found = Jobs()
    found.add(0.0, "A", {"cpu": 3000}, 10.0, 1)
    found.add(0.0, "B", {"cpu": 1000}, 10.0, 1)
    found.add(3.0, "B", {"cpu": 1000}, 1.0, 1)
    workload = found.workload("w", synthetic_nodes(1, "cpu=4"), [])
    how = parse_answers("all", "hold=2s")
    whole, late = simulate(workload, offers=how), simulate(workload, offers=how, warm_up=3.0)
    assert late.ended.tolist() == whole.ended.tolist()
    assert whole.offered["cpu"] - late.offered["cpu"] == pytest.approx(2 * 4000 + 1 * 1000)
    assert late.offers["made"] < whole.offers["made"]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_intervals_are_those_of_student(values):
    expected = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
    assert half_width(values) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_means_over_seeds_go_by_name():
    found = over_seeds(
        [
            {"jobs": 4, "policy": "drf", "on": True, "queues": [{"name": "a", "x": 1.0}, {"name": "b", "x": 5.0}]},
            {"jobs": 6, "policy": "drf", "on": True, "queues": [{"name": "b", "x": 7.0}]},
        ]
    )
    assert found["jobs"]["mean"] == 5.0
    assert found["jobs"]["interval"] == pytest.approx([5 - 12.7062, 5 + 12.7062], rel=1e-5)
    assert (found["policy"], found["on"]) == ("drf", True)
    assert {each["name"]: each["x"]["mean"] for each in found["queues"]} == {"a": 1.0, "b": 6.0}
    assert found["queues"][0]["x"]["interval"] is None, "one seed has no interval"


def test_seeds_draw_what_the_documents_say(tmp_path, command):
    """SWIM's tasks and users, and parts of jobs; of anything else several seeds run once, and that is said."""
    trace = tmp_path / "t.tsv"
    trace.write_text("".join(f"job{k}\t{k}\t1\t{10**9 * (k + 1)}\t{10**8}\t{10**7}\n" for k in range(30)))
    read = [read_trace(trace, derivation=Derivation(seed=seed)) for seed in (0, 0, 1)]
    assert read[0].queue == read[1].queue != read[2].queue
    table = read_trace(Path(TRACE))
    assert cut(table, scale=2.0, seed=0).queue == cut(table, scale=2.0, seed=1).queue
    machines = ["--nodes", "4", "--node", "cpu=9,memory=18GiB", "--seed", "0,1,2"]
    once = command("simulate", TRACE, *machines, "--json")
    assert "--seed draws nothing at scale 1, so seed 0 is run alone" in once.stderr
    assert len(json.loads(once.stdout)["runs"]) == 1
    drawn = command("simulate", TRACE, *machines, "--scale", "2.5", "--json")
    assert drawn.stderr == ""
    told = json.loads(drawn.stdout)
    assert [run["seed"] for run in told["runs"]] == [0, 1, 2]
    assert len({run["tasks"] for run in told["runs"]}) > 1
    means = told["over seeds"][0]
    assert means["seed"] == [0, 1, 2]
    tasks = [run["tasks"] for run in told["runs"]]
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(tasks), scipy.stats.sem(tasks))
    assert means["tasks"] == {"mean": pytest.approx(np.mean(tasks)), "interval": pytest.approx([low, high])}
    assert (
        f"{np.mean(tasks):,.0f} ± {high - np.mean(tasks):,.0f}" in command("simulate", TRACE, *machines, "--scale", "2.5").stdout
    )


def test_a_sweep_over_configurations_histories_speeds_and_offers(tmp_path, monkeypatch):
    """Each point is the simulation with its inputs, and has a file of its own; the trace is read once, for all processes."""
    for name, weight in (("even", 1), ("uneven", 5)):
        (tmp_path / f"{name}.toml").write_text(
            f'[[queue]]\nname = "vision"\nweight = {weight}\n[[queue]]\nname = "*"\n'
            '[[node]]\nname = "n"\ncount = 4\ncapacity = { cpu = 9, memory = "18Gi" }\n'
        )
    trace = tmp_path / "t.csv"
    trace.write_text(Path(TRACE).read_text())
    configs = [str(tmp_path / "even.toml"), str(tmp_path / "uneven.toml")]
    first = Point(str(trace), "", "drf", 1.0, 1.0, 0.0, 1e9, 0, "", 0, config=configs[0])
    points = [
        first, replace(first, config=configs[1]), replace(first, history=0.0), replace(first, speed=3.0),
        replace(first, offers="all", framework="hold=2s"), replace(first, warm_up=60.0),
    ]  # fmt: skip
    assert len({point.name for point in points}) == len(points)

    def once(*arguments, **named):
        found = read_trace(*arguments, **named)
        trace.rename(tmp_path / "gone.csv")
        return found

    sweeps.read_source.cache_clear()
    with mock.patch.object(sweeps, "read_trace", once):
        found = sweep(points, tmp_path / "o", workers=2)
    workload = read_trace(tmp_path / "gone.csv")
    for point, each in zip(points, found, strict=True):
        seen = configured(cut(workload, speed=point.speed), 0, "", Path(point.config))
        run = simulate(
            seen, "drf", history=point.history, warm_up=point.warm_up,
            offers=parse_answers("all", point.framework) if point.offers else None,
        )  # fmt: skip
        expected = json.loads(json.dumps(summary(run)))
        for numbers in (expected, each["numbers"]):
            numbers.pop("seconds", None)
            del numbers["workload"]
        assert each["numbers"] == expected
    lines = sweep_text(found).splitlines()
    assert lines[0].split()[:5] == ["policy", "speed", "config", "history", "offers"]
    assert lines[3].split()[:3] == ["drf", "1", "uneven.toml"]
    drawn = sweep_page(found)
    assert "drf, config uneven.toml, history as configured, offers none" in drawn
    assert len(drawn) < 300_000


def test_points_that_differ_in_their_seeds_are_one_row(tmp_path):
    grid = [
        Point(TRACE, "", policy, 1.5, 1.0, 0.0, 1e9, 4, "cpu=9,memory=18GiB", seed)
        for policy in ("drf", "fifo")
        for seed in (1, 2, 3)
    ]
    found = sweep(grid, tmp_path / "o", workers=1)
    rows = [line.split() for line in sweep_text(found).splitlines()[2:]]
    assert [row[:2] for row in rows] == [["drf", "3"], ["fifo", "3"]]
    several = merged(found)
    assert [each["seeds"] for each in several] == [[1, 2, 3]] * 2
    mean = np.mean([each["numbers"]["completion"]["mean"] for each in found[:3]])
    assert several[0]["numbers"]["completion"]["mean"]["mean"] == pytest.approx(mean)


def many_queues(queues=40, each=60):
    random, found = np.random.default_rng(1), Jobs()
    for k in range(queues * each):
        cpu, memory = int(random.integers(1, 4)), int(random.integers(1, 9))
        queue = f"research/group-{k % queues:02}"
        found.add(float(k), queue, {"cpu": 1000 * cpu, "memory": memory * 2**30}, float(random.integers(5, 500)), 2)
    return found.workload("<many>", synthetic_nodes(10, "cpu=8,memory=32GiB"), [])


def test_runs_of_the_same_policy_are_columns_of_their_own():
    run = summary(simulate(many_queues(2, 2), "drf"))
    heads = runs_text([run, run, {**run, "seed": 1}], 80).splitlines()[0]
    assert heads.split() == ["drf", "drf", "(2)"]


def test_a_page_is_small_and_well_formed_and_loads_nothing():
    workload = many_queues()
    runs = [simulate(workload, policy) for policy in ("drf", "fifo", "slots", "easy")]
    made = page(runs, "settings: <none>")
    assert len(made) < 300_000
    assert "<script" not in made
    assert "http" not in made
    assert "&lt;many&gt;" in made
    charts = made.split('<svg class="chart"')[1:]
    assert len(charts) == 4 + 2 + 2 + 1 + 2
    for chart in charts:
        ET.fromstring('<svg class="chart"' + chart[: chart.index("</svg>")] + "</svg>")
    assert "29 others" in charts[0]
    found = [summary(run) for run in runs]
    text = printed(*queue_tables(found, 80), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "and 32 more queues, nearer to their entitlements" in text
    short = {(abs(queue["short"]), queue["name"]) for each in found for queue in each["over time"]["queues"]}
    assert max(short)[1][-5:] in text
    assert text in runs_text(found, 80)


SHAPES = ("line", "area", "points", "bar")
words = st.text(st.characters(exclude_characters="\ufffe\uffff"), max_size=90)
finite = st.floats(-1e9, 1e9)
forms = st.sampled_from([percent, number, span, moment])


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(words, st.lists(finite, min_size=1, max_size=30), st.sampled_from(SHAPES)),
        min_size=1, max_size=14,
    ),
    forms, forms, st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_charts_are_well_formed_and_within_their_frame(series, x_form, y_form, log, stacked, named):
    """Whatever the names and the values, also negative ones, one value alone, and a log axis without any above 0."""
    names = [f"<{k}>" for k in range(30)] if named else ()
    drawn = [
        Series(name, np.arange(1, len(values) + 1) - named, values, "line" if shape == "bar" and not named else shape)
        for name, values, shape in series
    ]
    drawn = [each for each in drawn if not (each.shape == "area" or stacked) or len(each.x) == len(drawn[0].x)] or drawn[:1]
    if log:
        drawn = [replace(each, shape="points", y=np.where(np.array(each.y) > 0, each.y, np.nan)) for each in drawn]
    chart = Chart("a & b", drawn, Axis("x", x_form, names=names), Axis(form=y_form, log=log), stacked=stacked and not log)
    for made in (ET.fromstring(str(chart)), ET.fromstring(picture([chart, chart]))):
        for each in made.iter():
            at = {key: float(each.get(key)) for key in ("x", "cx") if each.get(key)}
            assert all(-1 <= value <= WIDTH + 1 for value in at.values()), each.attrib
            tall = {key: float(each.get(key)) for key in ("y", "cy") if each.get(key)}
            assert all(-1 <= value <= 2 * chart.height + 11 for value in tall.values()), each.attrib
    ET.fromstring(chart.table())


@settings(deadline=None)
@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12), forms)
def test_ticks_are_few_and_within_the_axis(low, width, form):
    low, high = (abs(low) % 4e9, abs(low) % 4e9 + min(width, 1e9)) if form is moment else (low, low + width)
    if high <= low + 1e-9 * abs(low):
        return
    ticks = [value for value, _ in Axis(form=form).ticks(low, high)]
    assert len(ticks) <= 9
    assert ticks == sorted(set(ticks))
    assert all(low - 1e-6 * (high - low) <= value <= high + 1e-6 * (high - low) for value in ticks)


def test_fairtree_takes_what_there_is():
    found = Jobs()
    for queue in "ab":
        found.add(0.0, queue, {"memory": 2**30}, 10.0, 4)
    run = simulate(found.workload("m", synthetic_nodes(1, "memory=2GiB"), []), "fairtree")
    assert run.notes == ["fairtree: there are no CPUs, so it bills memory"]
    assert run.completed == 8
    assert abs(run.got[0] - run.got[1]) <= 10.0
