"""What jobs and people used, and how jobs and their tasks are shown."""

import csv
import io
import json

import numpy as np
import pytest

from fairlead.journal.separate import used_rows
from fairlead.journal.used_days import UsedDays
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Configured,
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    Outcome,
    TasksFinished,
    TasksPlaced,
    TasksStarted,
)

HOUR = 3600.0


def task(job, index=0, attempt=1):
    return {"job": np.array([job]), "index": np.array([index]), "attempt": np.array([attempt])}


def ended(ran):
    zero = np.zeros(1, np.int64)
    return {"outcome": zero + int(Outcome.EXITED), "code": zero, "ran": zero + ran}


def history():
    """Two hours of a job that succeeds, one of one that fails, one of one that is lost, and one that still runs."""
    zero = np.zeros(1, np.int64)
    facts = [
        Configured(at=0.0, queues=[Queue("a"), Queue("b")], settings=Settings()),
        NodeJoined(at=0.0, node=Node("n0", {"cpu": 8000, "memory": 8 << 30})),
        NodeJoined(at=0.0, node=Node("n1", {"cpu": 8000, "memory": 8 << 30})),
        JobSubmitted(at=0.0, id=1, job=Job("a", {"cpu": 2000}, user="ada")),
        JobSubmitted(at=0.0, id=2, job=Job("a", {"cpu": 1000, "memory": 1 << 30}, user="bo")),
        JobSubmitted(at=0.0, id=3, job=Job("b", {"cpu": 4000}, user="ada")),
        JobSubmitted(at=0.0, id=4, job=Job("b", {"cpu": 1000}, user="ada")),
    ]
    for job, node in ((1, 0), (2, 0), (3, 1), (4, 0)):
        facts += [TasksPlaced(at=0.0, **task(job), node=np.array([node])), TasksStarted(at=HOUR, **task(job))]
    exited = np.array([int(Outcome.EXITED)])
    facts += [
        TasksFinished(
            at=2 * HOUR, **task(2), outcome=exited, code=np.array([1]), cpu=np.array([1_800_000]), peak=np.array([1 << 20])
        ),
        NodeLost(at=2 * HOUR, node="n1"),
        TasksFinished(at=3 * HOUR, **task(1), outcome=exited, code=zero, cpu=np.array([3_600_000]), peak=np.array([5 << 20])),
    ]
    return sorted(facts, key=lambda fact: fact.at)


def used(begin, end):
    state = counting(begin, end)
    for fact in history():
        apply(state, fact)
    return {(row["queue"], row["user"]): row for row in used_rows(state, end) if row["user"]}


def counting(begin, end):
    state = new_state()
    state.days = UsedDays(begin, end)
    return state


def test_usage_adds_up_what_was_held_and_for_how_long():
    found = used(0, 4 * HOUR)
    ada, bo, other = found["a", "ada"], found["a", "bo"], found["b", "ada"]
    assert (ada["tasks"], ada["failed"], ada["asked"], ada["lost"]) == (1, 0, {"cpu": 4000.0}, {})
    assert (ada["cpu_hours"], ada["peak_memory"]) == (1.0, 5 << 20)
    assert (bo["tasks"], bo["failed"], bo["cpu_hours"]) == (1, 1, 0.5)
    assert bo["asked"] == bo["lost"] == {"cpu": 1000.0, "memory": float(1 << 30)}
    assert (other["asked"], other["lost"]) == ({"cpu": 4000.0 + 3000.0}, {"cpu": 4000.0})


def test_who_cancels_a_task_has_not_had_it_fail():
    facts = history()[:-1]
    facts += [
        JobCancelled(at=2.5 * HOUR, id=1),
        TasksFinished(at=3 * HOUR, **task(1), **{**ended(ran=3_600_000), "outcome": np.array([int(Outcome.SIGNALLED)])}),
    ]
    state = counting(0, 4 * HOUR)
    for fact in facts:
        apply(state, fact)
    (row,) = [row for row in used_rows(state, 4 * HOUR) if (row["queue"], row["user"]) == ("a", "ada")]
    assert (row["tasks"], row["failed"], row["lost"]) == (1, 0, {"cpu": 2000.0})


def test_usage_counts_what_lies_in_the_time_that_is_asked_for():
    found = used(1.5 * HOUR, 2.5 * HOUR)
    assert found["a", "ada"]["asked"] == {"cpu": 2000.0}
    assert found["a", "bo"]["asked"]["cpu"] == 500.0
    assert found["b", "ada"]["asked"] == {"cpu": 2000.0 + 1000.0}


def test_a_task_ran_for_as_long_as_was_measured_however_late_that_is_heard_of():
    facts = [
        TasksStarted(at=1.5 * HOUR, **task(1), ago=np.array([600_000])),
        TasksFinished(at=3 * HOUR, **task(1), **ended(ran=1_800_000)),
        TasksFinished(at=3 * HOUR, **task(4), **ended(ran=900_000)),
    ]
    state = new_state()
    for fact in history()[:7]:
        apply(state, fact)
    for job in (1, 4):
        apply(state, TasksPlaced(at=0.0, **task(job), node=np.array([0])))
    state.days = UsedDays(0, 4 * HOUR)
    apply(state, facts[0])
    row = state.jobs.first[state.job_rows(np.array([1]))[0]]
    assert state.tasks.started_at[row] == 1.5 * HOUR - 600
    for fact in facts[1:]:
        apply(state, fact)
    found = {(row["queue"], row["user"]): row["asked"] for row in used_rows(state, 4 * HOUR) if row["user"]}
    assert found == {("a", "ada"): {"cpu": 2000 / 2}, ("a", "bo"): {"cpu": 0.0, "memory": 0.0}, ("b", "ada"): {"cpu": 1000 / 4}}
    one, other = (state.jobs.first[row] for row in state.job_rows(np.array([1, 4])))
    assert (state.tasks.started_at[one], state.tasks.finished_at[one]) == (2.5 * HOUR, 3 * HOUR)
    assert (state.tasks.started_at[other], state.tasks.finished_at[other]) == (2.75 * HOUR, 3 * HOUR)


def test_tasks_that_start_at_once_are_told_to_have_run_for_as_long_as_they_did(idle):
    job = idle.submit("-q", "A", "-n", "60", "--cpu", "0.01", "--memory", "1Mi", "--", "sleep", "1")
    assert idle.call("wait", f"{job}").returncode == 0
    tasks = json.loads(idle.ok("job", f"{job}", "--tasks", "0-59", "--json"))["task"]
    assert (
        min(task["finished_at"] - task["started_at"] for task in tasks) >= 0.95
    )  # the clocks of two processes differ by milliseconds


def test_what_a_task_really_used_is_told(idle):
    program = "x = bytearray(80_000_000)\nimport time\nwhile time.process_time() < 0.3: pass"
    job = idle.submit("-q", "A", "--name", "used", "--memory", "256Mi", "--", "python3", "-c", program)
    assert idle.call("wait", f"{job}").returncode == 0
    found = idle.job(job)
    assert 0.25 <= found["cpu_seconds"] < 20
    assert 80_000_000 <= found["peak_memory"] < 250_000_000
    assert "used       0." in idle.ok("job", f"{job}")
    assert " of memory each" in idle.ok("job", f"{job}")
    long = idle.ok("jobs", "--long", "--limit", "1")
    assert "cpu time" in long
    assert "Mi" in long
    rows = list(csv.DictReader(io.StringIO(idle.ok("usage", "--by", "queue", "--since", "1h", "--csv"))))
    assert any(row["queue"] == "A" and float(row["asked_cpu_hours"]) > 0 and int(row["tasks"]) for row in rows)
    said = "fairlead: --since '2026-13-01' is not a time: write 2h, 16:00, 2026-05-01 or 2026-05-01T16:00\n"
    assert idle.call("usage", "--since", "2026-13-01").stderr == said
    assert idle.call("usage", "--csv", "--json").stderr.endswith("--csv and --json exclude each other: give one of them\n")
    told = json.loads(idle.ok("usage", "--json"))["usage"]
    assert sum(row["cpu_hours"] for row in told) > 0
    assert "cpu·h" in idle.ok("usage", "--since", "1h")
    assert (
        idle.call("usage", "--by", "colour").stderr
        == "fairlead: --by 'colour': write one or more of user, queue, job, day, week, such as queue or day,user\n"
    )


def test_the_tasks_that_failed_are_shown_first(idle):
    script = "echo one; echo two; test $FAIRLEAD_INDEX != 35"
    job = idle.submit("-q", "A", "-n", "40", "--cpu", "0.1", "--memory", "32Mi", "--", "sh", "-c", script)
    assert idle.call("wait", f"{job}").returncode == 1
    shown = idle.ok("job", f"{job}").splitlines()
    rows = [line.split() for line in shown[shown.index("") + 3 :]]
    assert rows[0][:2] == ["35", "failed"]
    assert len(rows) == 31
    assert rows[30][:3] == ["and", "10", "more:"]
    assert [line.split()[0] for line in idle.ok("job", f"{job}", "--tasks", "33-36").splitlines()[-4:]] == [
        "33",
        "34",
        "35",
        "36",
    ]
    only = json.loads(idle.ok("job", f"{job}", "--status", "failed", "--json"))["task"]
    assert [each["index"] for each in only] == [35]
    assert "--status 'bad': write one of waiting" in idle.call("job", f"{job}", "--status", "bad").stderr
    assert "are 0 to 39" in idle.call("job", f"{job}", "--tasks", "50").stderr
    assert idle.ok("logs", f"{job}.3", "--tail", "1") == "two\n"
    every = idle.ok("logs", f"{job}", "--all", "--tail", "1").splitlines()
    assert every == [f"{index}: two" for index in range(40)]


def test_a_listing_is_a_line_a_job_at_80_columns(idle):
    name = "a-name-that-is-longer-than-there-is-room-for-here"
    idle.submit("-q", "A", "--cpu", "0.25", "--memory", "1500Mi", "--name", name, "--hold", "--", "true")
    idle.env["COLUMNS"] = "80"
    lines = idle.ok("jobs", "--limit", "3").splitlines()
    jobs = json.loads(idle.ok("jobs", "--limit", "3", "--json"))["jobs"]
    assert len(lines) == 2 + len(jobs), "a line each, below the two of the head"
    assert max(map(len, lines)) <= 80
    assert idle.ok("jobs", "--user", "zzz") == "no jobs with --user zzz\n"


@pytest.mark.parametrize("at", [1, 3])
def test_a_lost_node_is_forgotten_until_it_is_back(at):
    from fairlead.scheduler import admission
    from fairlead.scheduler.reports import listings as report
    from test_scheduling import World

    world = World([Queue("a")], {"cpu": 1000}, {"cpu": 1000})
    with pytest.raises(admission.Refused, match="is up: it can be forgotten when it is lost"):
        admission.forget(world.state, "n1", 0.0)
    world.happen(NodeLost(at=at, node="n1"))
    world.happen(admission.forget(world.state, "n1", at))
    assert [node["name"] for node in report.list_nodes(world.state)] == ["n0"]
    with pytest.raises(admission.Unknown, match="no node 'n1': there is n0"):
        admission.forget(world.state, "n1", at)
    world.happen(NodeJoined(at=at, node=Node("n1", {"cpu": 2000})))
    assert [node["name"] for node in report.list_nodes(world.state)] == ["n0", "n1"]
