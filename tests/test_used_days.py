"""Use by day: exact against the facts, bounded, and known for longer than the facts are kept."""

import json
from collections import defaultdict

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.memory_store import MemoryStore

from fairlead.journal import journal as journals
from fairlead.journal import used_days
from fairlead.journal.journal import Journal
from fairlead.journal.separate import usage_of_journal, used_rows
from fairlead.journal.used_days import DAY, UsedDays
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler import snapshot
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Configured,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    Outcome,
    TasksFinished,
    TasksPlaced,
    TasksStarted,
)
from random_cases import cases

HOUR = 3600.0
SETUP = [
    Configured(at=0.0, queues=[Queue("a"), Queue("b")], settings=Settings()),
    NodeJoined(at=0.0, node=Node("n0", {"cpu": 64_000, "memory": 64 << 30})),
    NodeJoined(at=0.0, node=Node("n1", {"cpu": 64_000, "memory": 64 << 30})),
]


def rows(job, indices):
    one = np.ones(len(indices), np.int64)
    return {"job": one * job, "index": np.array(indices, np.int64), "attempt": one}


def played(jobs, lost):
    """The facts of jobs: (queue, user, cpu, one (start, seconds, code) a task); the second node is lost at a time."""
    facts = [(0.0, JobSubmitted(at=0.0, id=k, job=Job(queue, {"cpu": cpu}, tasks=len(tasks), user=user)))
             for k, (queue, user, cpu, tasks) in enumerate(jobs, 1)]  # fmt: skip
    for k, (*_, tasks) in enumerate(jobs, 1):
        for index, (start, seconds, code) in enumerate(tasks):
            node, end = np.array([(index + k + 1) % 2]), start + seconds
            if index > 2 or (node[0] and start >= lost):  # the others wait
                continue
            facts += [
                (start, TasksPlaced(at=start, **rows(k, [index]), node=node)),
                (start, TasksStarted(at=start, **rows(k, [index]))),
            ]
            if not node[0] or end < lost:
                how = {
                    "outcome": np.array([int(Outcome.EXITED)]),
                    "code": np.array([code]),
                    "cpu": np.array([1000]),
                    "peak": np.array([7]),
                }
                facts.append((end, TasksFinished(at=end, **rows(k, [index]), **how)))
    facts.append((lost, NodeLost(at=lost, node="n1")))
    return [*SETUP, *(fact for _, fact in sorted(facts, key=lambda pair: pair[0]))]


def expected(jobs, lost, now):
    """What each day should have, task by task: tasks, failed, asked and lost CPU-hours."""
    found = defaultdict(lambda: [0, 0, 0.0, 0.0])
    for k, (queue, user, cpu, tasks) in enumerate(jobs, 1):
        for index, (start, seconds, code) in enumerate(tasks):
            end, is_lost = start + seconds, (index + k + 1) % 2 and start + seconds >= lost
            if index > 2 or start >= (lost if (index + k + 1) % 2 else now):
                continue
            ended, wasted = (lost, True) if is_lost else (end, code != 0)
            if ended > now:
                ended, wasted = now, False
            elif not is_lost:
                row = found[int(end // DAY), queue, user]
                row[0] += 1
                row[1] += code != 0
            for day in range(int(start // DAY), int(ended // DAY) + 1):
                held = cpu * max(0.0, min(ended, (day + 1) * DAY) - max(start, day * DAY)) / HOUR
                if held:
                    found[day, queue, user][2] += held
                    found[day, queue, user][3] += held * wasted
    return found


TASK = st.tuples(
    st.integers(0, 60).map(lambda n: n * 1.5 * HOUR), st.integers(1, 60).map(lambda n: n * HOUR + 0.5), st.sampled_from([0, 0, 1])
)
JOBS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(["ada", "bo"]),
        st.sampled_from([1000, 2500]),
        st.lists(TASK, min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=cases(20))
@given(JOBS, st.integers(1, 150), st.integers(0, 160), st.integers(0, 40))
def test_days_are_those_of_the_facts_wherever_they_are_folded(jobs, lost, now, folded):
    lost, now = lost * HOUR + 0.25, now * HOUR + 0.75
    facts = [fact for fact in played(jobs, lost) if fact.at <= now]
    state = new_state()
    state.days = UsedDays()
    for k, fact in enumerate(facts):
        if k == folded:
            state = snapshot.load(list(snapshot.dump(state)), msgspec.msgpack.Decoder(UsedDays).decode)
        apply(state, fact)
    found = {
        (row["day"], row["queue"], row["user"]): row
        for row in used_rows(state, now, by_day=True)
        if row["user"] and (row["tasks"] or any(row["asked"].values()))
    }
    wanted = expected(jobs, lost if lost <= now else np.inf, now)
    assert {(np.datetime64(day), *key) for day, *key in found} == {(np.datetime64(0, "D") + day, *key) for day, *key in wanted}
    for (day, queue, user), (tasks, failed, asked, wasted) in wanted.items():
        row = found[str(np.datetime64(0, "D") + day), queue, user]
        assert (row["tasks"], row["failed"]) == (tasks, failed)
        assert row["asked"].get("cpu", 0.0) == pytest.approx(asked)
        assert row["lost"].get("cpu", 0.0) == pytest.approx(wasted)
        assert row["cpu_hours"] == pytest.approx(tasks / 3600)


FOUR_DAYS = [("a", "ada", 32_000, [(12 * HOUR, 60 * HOUR, 0)] * 8), ("b", "bo", 32_000, [(36 * HOUR, 12 * HOUR, 1)])]


def kept(monkeypatch, keep, after=5 * DAY):
    """A journal whose snapshots dropped all facts but the last."""
    store = MemoryStore()
    monkeypatch.setattr(journals, "KEEP_HISTORY", keep)
    journal = Journal(store)
    state = journal.recover()
    journal.begin()
    for fact in [*played(FOUR_DAYS, 4 * DAY), JobSubmitted(at=after, id=3, job=Job("a", {"cpu": 1}))]:
        apply(state, fact)
        journal.append([fact])
        if fact.at > 3 * DAY:
            list(journal.save(state))
    return store


def test_days_are_known_when_facts_are_dropped(monkeypatch):
    whole, folded = kept(monkeypatch, 1 << 30), kept(monkeypatch, 1)
    assert len(folded.read(0, 100)) < 3 < len(whole.read(0, 100))
    before, after = (usage_of_journal(store, 6 * DAY, 5 * DAY, by_day=True) for store in (whole, folded))
    assert before == after
    assert before["complete"]
    some = usage_of_journal(folded, 1.5 * DAY, 5 * DAY, until=2.5 * DAY, by_day=True)
    assert (some["since"], some["until"], some["complete"]) == (DAY, 3 * DAY, True)
    assert some["usage"] == [row for row in before["usage"] if row["day"] in ("1970-01-02", "1970-01-03")]
    jobs = usage_of_journal(folded, 6 * DAY, 5 * DAY, by_job=True)
    assert not jobs["complete"]  # those are in the facts only


def test_queues_have_what_they_were_entitled_to_beside_what_they_had(monkeypatch):
    monkeypatch.setattr(used_days, "LOOK_EVERY", 0.0)
    found = defaultdict(lambda: np.zeros(2))
    for row in usage_of_journal(kept(monkeypatch, 1), 5 * DAY, 4 * DAY - 1, by_day=True)["usage"]:
        found[row["queue"], row["day"]] += row["entitled"], row["got"]
    # A has work for all of the cluster, and runs on three quarters from noon on; B needs a quarter, and has it a day later.
    assert found["a", "1970-01-01"] == pytest.approx((24 * 0.75, 12 * 0.75))
    assert found["b", "1970-01-01"] == pytest.approx((24 * 0.25, 0.0))
    assert found["b", "1970-01-02"] == pytest.approx((24 * 0.25, 12 * 0.25))
    assert found["a", "1970-01-03"] == pytest.approx((24.0, 24 * 0.75))


def test_days_are_bounded(monkeypatch):
    monkeypatch.setattr(used_days, "MOST_ROWS", 3)
    state = new_state()
    state.days = UsedDays()
    jobs = [("a", f"user{k}", 1000, [(k * 6 * HOUR, 25 * HOUR, 0)]) for k in range(40)]
    facts = played(jobs, 20 * DAY)
    for fact in facts:
        apply(state, fact)
        assert all(len(day) <= 3 + 1 for day in state.days.rows.values())
    held = sum(row["asked"].get("cpu", 0.0) for row in used_rows(state, 20 * DAY))
    assert held == pytest.approx(40 * 1000 * (25 * HOUR + 0.0) / HOUR)
    for day in range(21, 31):
        queues = [Queue("a"), Queue("b", weight=day)]
        apply(state, Configured(at=day * DAY, queues=queues, settings=Settings(history=2 * DAY)))
        apply(state, JobSubmitted(at=day * DAY, id=day * 10, job=Job("a", {"cpu": 1})))
        used_rows(state, (day + 0.5) * DAY)
    assert sorted(state.days.rows) == [29, 30]
    assert state.days.begin == 29 * DAY


def test_usage_is_asked_for_by_day_queue_and_job(idle):
    job = idle.submit("-q", "A", "--", "true")
    idle.ok("wait", str(job))
    lines = idle.ok("usage", "--by", "day,queue", "--since", "2020-01-01", "--csv").splitlines()
    assert lines[0].startswith("day,queue,tasks,failed,")
    assert lines[0].endswith("peak_memory_bytes,waiting,calls,call_hours,entitled_share_hours,had_share_hours")
    assert any(line.split(",")[1] == "A" for line in lines[1:])
    assert f"\n{job}," in idle.ok("usage", "--by", "job", "--csv")
    assert idle.ok("usage", "--by", "day", "--by", "queue", "--since", "2020-01-01", "--csv").splitlines()[0] == lines[0]
    assert "-W" in idle.ok("usage", "--by", "week")
    assert "entitled" in idle.ok("usage", "--by", "queue")
    told = json.loads(idle.ok("usage", "--since", "2020-01-01", "--until", "2020-02-01", "--json"))
    assert [row for row in told["usage"] if row["tasks"]] == []
    wrong = idle.call("usage", "--since", "2020-02-01", "--until", "2020-01-01")
    assert wrong.stderr == "fairlead: --since 2020-02-01: is not before --until 2020-01-01\n"
