"""The real `fairlead up`, over the real HTTP API and command line, killed and started again."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from conftest import FAIRLEAD, Live
from fairlead.data_folder import starting
from fairlead.disk_room import room_on
from fairlead.engines.local.machine import this_machine
from fairlead.model.documents import DocumentError, read_configuration
from fairlead.policies.registry import find_policy
from forked import Fairlead, run

ROOT = Path(__file__).parent.parent


def test_run_streams_output_and_exits_as_the_command_did(idle):
    result = idle.call("run", "-q", "A", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (result.returncode, result.stdout, result.stderr) == (7, "out\n", "err\n")
    result = idle.call("run", "-q", "A", "--no-check", "--", "no-such-command")
    assert result.returncode == 127
    assert "cannot run 'no-such-command'" in result.stderr
    result = idle.call("run", "-q", "A", "--", "sh", "-c", "kill -9 $$")
    assert (result.returncode, result.stderr) == (137, f"fairlead: job {idle.newest()}: ended by signal 9\n")


def test_run_uses_the_folder_and_the_environment_of_its_terminal(idle):
    idle.env["COLOUR"] = "blue"
    script = ["--", "sh", "-c", "pwd; echo ${COLOUR-none} $SIZE; test $HOME = ~"]
    result = idle.call("run", "-q", "A", "--env", "SIZE=9", *script)
    assert (result.returncode, result.stdout) == (0, f"{idle.folder}\nnone 9\n")
    for more in (["--env", "COLOUR"], ["--export-all"]):
        assert idle.call("run", "-q", "A", *more, *script).stdout == f"{idle.folder}\nblue\n"


def test_ctrl_c_cancels_a_run(idle):
    process = idle.start("run", "-q", "A", "--", "sh", "-c", "echo begun; sleep 60")
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    idle.until(lambda: idle.job(idle.newest())["status"] == "cancelled")


def test_an_array_of_tasks_its_logs_and_listings(live):
    square = "echo $((FAIRLEAD_INDEX * FAIRLEAD_INDEX))"
    assert live.ok("submit", "-q", "B", "--tasks", "12", "--name", "squares", "--", "sh", "-c", square) == "1\n"
    live.until(lambda: live.job(1)["status"] == "succeeded")
    assert live.ok("logs", "1.11") == "121\n"
    assert live.ok("logs", "-f", "1") == "0\n"
    listing = live.ok("jobs")
    assert re.search(r"1\s+squares\s+B\s+succeeded\s+12/12\s+cpu=1 memory=1Gi", listing)
    assert live.ok("jobs", "--queue", "A") == "no jobs with --queue A\n"
    assert "lab" in live.ok("queues")
    assert re.search(r"n1\s+up\s+0\s+cpu=0/9 memory=0/18Gi\s+zone=east", live.ok("nodes"))
    assert live.call("logs", "1.12").stderr == "fairlead: job 1 has no task 12: its tasks are 0 to 11\n"


def test_users_have_leaves_of_their_own(idle):
    job = idle.submit("-q", "lab", "--cpu", "3", "--tasks", "2", "--", "sleep", "30")
    idle.until(lambda: idle.job(job)["running"] == 1)
    queues = {q["name"]: q for q in json.loads(idle.ok("queues", "--json"))["queues"]}
    own = next(name for name in queues if name.startswith("lab/"))
    assert queues[own]["limit"] == {"cpu": 4000}
    assert (queues[own]["running"], queues[own]["waiting"], queues["lab"]["running"]) == (1, 1, 1)
    assert idle.ok("cancel", str(job)) == f"job {job} is cancelled\n"
    idle.until(lambda: idle.job(job)["status"] == "cancelled")
    assert idle.ok("cancel", str(job)) == f"job {job} had ended already\n"


def test_a_job_is_held_explained_released_and_waited_for(idle):
    large = idle.submit("-q", "A", "--cpu", "9", "--name", "large", "--", "sh", "-c", GATE)
    idle.until(lambda: idle.job(large)["running"] == 1)
    job = idle.submit("-q", "B", "--tasks", "2", "--on", "zone=east", "--", "sh", "-c", "exit $FAIRLEAD_INDEX")
    assert idle.ok("hold", f"{job}") == f"job {job} is held\n"
    assert idle.ok("hold", f"{job}") == f"job {job} was held already\n"
    why = idle.ok("why", f"{job}").splitlines()
    assert why[0] == f"job {job}: it is held: `fairlead release {job}` releases it"
    unknown = "unknown: no duration of such tasks is known yet"
    assert re.fullmatch(f"expected: (.* from when it is released.*|{unknown})", why[1])  # by what ran before
    (idle.folder / "go").touch()
    assert idle.ok("wait", f"{large}") == ""
    assert idle.job(job)["status"] == "held"
    assert idle.call("wait", "--timeout", "0.2", f"{job}").returncode == 124
    assert idle.ok("release", f"{job}") == f"job {job} is released\n"
    ended = idle.call("wait", f"{large}", f"{job}")
    said = f"fairlead: job {job} failed: 1 of 2 tasks failed: see fairlead job {job}\n"
    assert (ended.returncode, ended.stderr) == (1, said)
    shown = idle.ok("job", f"{job}")
    assert "2: 1 succeeded, 1 failed" in shown
    assert re.search(r"1\s+failed\s+1\s+exited\s+n1\s+1\s+0\.\d", shown)
    assert json.loads(idle.ok("job", f"{large}", "--json"))["task"][0]["status"] == "succeeded"
    over = json.loads(idle.ok("why", f"{large}", "--json"))
    assert (over["reason"], over["when"]["reason"], over["when"]["text"]) == ("over", "over", "it has ended")


def test_when_is_said_before_anything_is_submitted(idle):
    last = int(idle.ok("submit", "-q", "A", "--", "true"))
    idle.ok("wait", str(last))
    ask = ("-q", "A", "--cpu", "2", "--tasks", "3")
    # What is known may be a second old: that job may seem to run still.
    idle.until(lambda: idle.ok("when", *ask) == "now: there is room, and it is its turn\n")
    assert idle.ok("submit", *ask, "--when", "--", "true") == "now: there is room, and it is its turn\n"
    never = "never on the nodes that take tasks now: they could not hold a task of it, even empty\n"
    assert idle.ok("when", "-q", "A", "--cpu", "10") == never
    assert idle.ok("submit", *ask, "--hold", "--when", "--", "true").startswith("at once from when it is released")
    strict = idle.call("submit", "-q", "A", "--cpu", "10", "--strict", "--when", "--", "true")
    assert (strict.returncode, strict.stdout) == (1, "")
    assert strict.stderr.startswith("fairlead: no node is large enough for cpu=10")
    assert idle.call("when", "-q", "/").stderr.startswith("fairlead: '/' is the root of all queues, not a leaf queue: choose")
    assert json.loads(idle.ok("when", *ask, "--json"))["queue"] == "A"
    refused = idle.call("when", "-q", "nowhere")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("fairlead: there is no queue 'nowhere'")
    assert idle.newest() == last
    job = idle.submit("-q", "A", "--cpu", "9", "--tasks", "9", "--time-limit", "100s", "--", "sleep", "60")
    idle.until(lambda: idle.job(job)["running"] == 1)
    now = time.time()
    told = json.loads(idle.ok("when", "-q", "B", "--cpu", "9", "--json"))
    assert (told["job"], told["held"]) == (None, [])
    assert told["reason"] in ("expected", "unknown"), told
    if told["reason"] == "expected":
        assert now - 2 <= told["earliest"] <= now + 102, "what runs is stopped by then, and then it is B's turn"
    idle.ok("cancel", str(job))


def test_time_limits_retries_and_what_comes_after(idle):
    result = idle.call("run", "-q", "A", "--time-limit", "0.5s", "--", "sleep", "60")
    assert (result.returncode, result.stderr) == (124, f"fairlead: job {idle.newest()}: stopped at its time limit\n")
    tries = "echo $FAIRLEAD_NUMBER; test $FAIRLEAD_NUMBER = 3"
    job = idle.submit("-q", "A", "--retries", "2", "--", "sh", "-c", tries)
    then = idle.submit("-q", "A", "--after", f"{job}", "--", "echo", "then")
    never = idle.submit("-q", "A", "--after", f"{job}:failure", "--", "echo", "never")
    assert idle.call("wait", f"{job}", f"{then}", f"{never}").returncode == 1
    assert [idle.job(n)["status"] for n in (job, then, never)] == ["succeeded", "succeeded", "cancelled"]
    assert idle.ok("logs", f"{job}") == "1\n2\n3\n"
    for option, value in (("--after", "x"), ("--after", f"{job}:soon"), ("--time-limit", "soon")):
        assert idle.call("submit", "-q", "A", option, value, "--", "true").stderr.startswith(f"fairlead: {option}")
    missing = idle.newest() + 99
    refused = idle.call("submit", "-q", "A", "--after", f"{missing}", "--", "true")
    assert refused.stderr == f"fairlead: --after: there is no job {missing}\n"


def test_a_task_that_is_out_of_time_has_failed_even_if_it_exits_0(idle):
    polite = ("sh", "-c", "trap 'exit 0' TERM; sleep 60 & wait")
    job = idle.submit("-q", "A", "--time-limit", "1s", "--", *polite)
    too = idle.submit("-q", "A", "--time-limit", "1s", "--exit-done", "--", *polite)
    never = idle.submit("-q", "A", "--after", f"{job}", "--", "true")
    assert idle.call("wait", f"{job}", f"{too}", f"{never}").returncode == 1
    assert [idle.job(n)["status"] for n in (job, too, never)] == ["failed", "failed", "cancelled"]
    assert [idle.job(n)["exit_done"] for n in (job, too)] == [False, True]


@pytest.mark.parametrize("limit", [(), ("--time-limit", "1h")])
def test_why_and_the_audit_agree_whether_anybody_knows_when_a_reservation_starts(live, limit):
    live.submit("-q", "A", *limit, "--", "sleep", "1000")
    gang = live.submit("-q", "B", "--gang", "--tasks", "9", "--", "sleep", "1000")
    live.until(lambda: "reserved" in live.ask(f"jobs/{gang}/why"), 20)
    why, audit, metrics = live.ok("why", f"{gang}"), live.ok("audit", "--live"), live.http("GET", "/metrics")[1]
    assert ("expected: unknown" in why) == (not limit)
    assert f"reserved for job {gang} of B" in audit
    for text in (why, audit):
        assert ("expected to be free" in text) == bool(limit)
    for each in (*live.ask("audit")["reservations"], live.ask(f"jobs/{gang}/why")["reserved"]):
        assert (each["start"] is not None) == bool(limit)
        assert limit or each["slips"] == 0, "of a start that nobody was told"
    assert ("fairlead_reservation_start_seconds{" in metrics) == bool(limit)


def test_a_node_is_drained_and_resumed(live):
    assert live.ok("drain", "n1") == "node n1 takes no new tasks\n"
    live.ok("submit", "-q", "A", "--", "true")
    why = live.ok("why", "1").splitlines()
    back = "n1, which could hold it, is drained: `fairlead resume n1`"
    assert why[0] == f"job 1: there is no node that takes tasks; {back}"
    assert why[1].startswith("expected: never on the nodes that take tasks now")
    live.kill()
    live.up()
    assert "draining" in live.ok("nodes"), "a restart does not forget it"
    assert live.ok("resume", "n1") == "node n1 takes tasks again\n"
    live.ok("wait", "1")
    assert live.call("drain", "n9").stderr == "fairlead: there is no node 'n9': there is n1\n"


@pytest.fixture
def fresh(tmp_path):
    """A scheduler that the test configures before it starts it."""
    with Live(tmp_path) as world:
        yield world


def test_it_is_said_whose_each_card_is(fresh):
    fresh.config.write_text(fresh.config.read_text().replace("capacity = { ", "capacity = { gpu = 4, "))
    fresh.up()
    fresh.ok("submit", "-q", "A", "--gpu", "2", "--", "sh", "-c", GATE)
    fresh.ok("submit", "-q", "B", "--gpu", "1", "--", "sh", "-c", GATE)
    has = lambda: [(c["card"], c["status"], c["job"], c["queue"]) for c in fresh.ask("nodes")["nodes"][0]["cards"]]  # noqa: E731
    fresh.until(lambda: has()[2][1] == "used")
    assert has() == [(0, "used", 1, "A"), (1, "used", 1, "A"), (2, "used", 2, "B"), (3, "free", None, None)]
    assert "0-1: 1.0, 2: 2.0, 3: free" in fresh.ok("nodes")
    assert "n1 cards 0-1: 1.0, 2: 2.0, 3: free" in fresh.ok("top", "--once")
    assert fresh.ask("jobs/1/tasks")["tasks"][0]["cards"] == [0, 1]
    assert re.search(r"cards .*\n.*\n.* 0,1 ", fresh.ok("job", "1"))
    one = 'fairlead_node_card{card="2",job="2",node="n1",queue="B",status="used"'
    assert one in fresh.http("GET", "/metrics")[1]
    fresh.kill()
    fresh.up()
    assert has()[2] == (2, "used", 2, "B"), "a restart does not forget it"
    (fresh.folder / "go").write_text("")
    fresh.until(lambda: fresh.job(2)["status"] == "succeeded")
    assert has()[2] == (2, "free", None, None)
    assert fresh.ask("jobs/2/tasks")["tasks"][0]["cards"] == [2], "which it had"


def test_cards_are_numbered_on_over_the_nodes_of_a_machine_without_end(fresh):
    """The 70 cards of the first node do not hide whose those of the second are, before and after a restart."""
    before = fresh.config.read_text()
    more = '\n[[node]]\nname = "n2"\ncapacity = { gpu = 4, cpu = 9, memory = "18Gi" }\n'
    fresh.config.write_text(before.replace("capacity = { ", "capacity = { gpu = 70, ") + more)
    fresh.up()
    first, second = (fresh.submit("-q", "A", "--gpu", n, "--", "sh", "-c", GATE) for n in ("69", "3"))
    fresh.until(lambda: [fresh.job(job)["running"] for job in (first, second)] == [1, 1])
    fresh.ok("drain", "n2", "--gpu", "73")
    has = lambda: [[(c["card"], c["status"], c["job"]) for c in node["cards"]] for node in fresh.ask("nodes")["nodes"]]  # noqa: E731
    expected = [
        [*((k, "used", first) for k in range(69)), (69, "free", None)],
        [*((k, "used", second) for k in (70, 71, 72)), (73, "drained", None)],
    ]
    assert has() == expected
    assert f"70-72: {second}.0, 73: drained" in fresh.ok("nodes")
    assert f'fairlead_node_card{{card="72",job="{second}",node="n2"' in fresh.http("GET", "/metrics")[1]
    fresh.kill()
    fresh.up()
    assert has() == expected
    assert fresh.ask(f"jobs/{second}/tasks")["tasks"][0]["cards"] == [70, 71, 72]
    fresh.ok("resume", "n2", "--gpu", "73")
    assert has()[1][3] == (73, "free", None)
    fresh.config.write_text(before)


def test_one_card_of_a_node_is_drained_and_resumed(fresh):
    """What runs on it goes on; no task gets it until it is resumed, also after a restart."""
    fresh.config.write_text(fresh.config.read_text().replace("capacity = { ", "capacity = { gpu = 2, "))
    fresh.up()
    fresh.ok("submit", "-q", "A", "--gpu", "1", "--", "sh", "-c", GATE)
    fresh.until(lambda: fresh.ask("jobs/1/tasks")["tasks"][0]["status"] == "running")
    assert fresh.ok("drain", "n1", "--gpu", "0") == "card 0 of node n1 takes no new tasks\n"
    assert fresh.ok("drain", "n1", "--gpu", "0") == "card 0 of node n1 takes no new tasks\n"
    assert "0: 1.0 (draining), 1: free" in fresh.ok("nodes")
    (fresh.folder / "go").write_text("")
    fresh.ok("wait", "1")
    assert "0: drained, 1: free" in fresh.ok("nodes")
    assert fresh.ask("nodes")["nodes"][0]["capacity"]["gpu"] == 1000
    fresh.kill()
    fresh.up()
    fresh.ok("submit", "-q", "A", "--gpu", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    fresh.ok("submit", "-q", "A", "--gpu", "2", "--", "true")
    fresh.ok("wait", "2")
    assert fresh.ok("logs", "2") == "1\n"
    assert fresh.job(3)["status"] == "waiting"
    assert "drained card 0 of node n1" in fresh.ok("log")
    assert fresh.ok("resume", "n1", "--gpu", "0", "--gpu", "1") == "cards 0, 1 of node n1 take tasks again\n"
    fresh.ok("wait", "3")
    assert fresh.ask("jobs/3/tasks")["tasks"][0]["cards"] == [0, 1]
    assert fresh.call("drain", "n1", "--gpu", "2").stderr == "fairlead: node 'n1' has no card 2: it has 0, 1\n"
    fresh.config.write_text(fresh.config.read_text().replace("gpu = 2, ", ""))


def with_gpus(live, before, count):
    live.config.write_text(before.replace("capacity = { ", f"capacity = {{ gpu = {count}, "))


def test_a_reload_takes_how_many_cards_a_node_has(fresh):
    before = fresh.config.read_text()
    with_gpus(fresh, before, 3)
    fresh.up()
    cards = lambda: [card["card"] for card in fresh.ask("nodes")["nodes"][0]["cards"]]  # noqa: E731
    assert cards() == [0, 1, 2]
    with_gpus(fresh, before, 5)
    assert fresh.ok("reload") == "the configuration is in force\n"
    tell = "echo $CUDA_VISIBLE_DEVICES; " + GATE
    job = fresh.submit("-q", "A", "--gpu", "1", "--tasks", "7", "--", "sh", "-c", tell)
    out = lambda: [path.read_text() for path in (fresh.home / "output" / str(job)).glob("*.out")]  # noqa: E731
    fresh.until(lambda: all(given := out()) and len(given) == 5)
    assert sorted(out()) == [f"{card}\n" for card in range(5)]
    assert cards() == [0, 1, 2, 3, 4]
    (fresh.folder / "go").touch()
    fresh.ok("wait", str(job))
    assert (len(out()), {*out()}) == (7, {f"{card}\n" for card in range(5)})
    with_gpus(fresh, before, 1)
    assert fresh.ok("reload") == "the configuration is in force\n"
    assert cards() == [0]
    assert fresh.call("drain", "n1", "--gpu", "1").stderr == "fairlead: node 'n1' has no card 1: it has 0\n"
    waits = fresh.submit("-q", "A", "--gpu", "1", "--hold", "--", "true")
    fresh.config.write_text(before)
    assert fresh.ok("reload") == "the configuration is in force\n"
    refused = fresh.call("submit", "-q", "A", "--gpu", "1", "--", "true")
    assert refused.stderr == "fairlead: --gpu: no node has any: there is cpu, memory\n"
    fresh.ok("release", f"{waits}")
    assert "lacks 1 gpu" in fresh.ok("why", f"{waits}")


def test_a_drained_card_that_a_node_loses_is_forgotten(live):
    """It takes no other card with it, at a reload and at a restart, and takes tasks when it comes back."""
    before = live.config.read_text()
    free = lambda: [(card["card"], card["status"]) for card in live.ask("nodes")["nodes"][0]["cards"]]  # noqa: E731
    restart = lambda: (live.end(signal.SIGTERM), live.up())  # noqa: E731
    for again in (lambda: live.ok("reload"), restart):
        with_gpus(live, before, 2)
        restart()
        assert free() == [(0, "free"), (1, "free")]
        live.ok("drain", "n1", "--gpu", "1")
        with_gpus(live, before, 1)
        again()
        assert live.ask("nodes")["nodes"][0]["capacity"]["gpu"] == 1000
        assert live.ok("run", "-q", "A", "--gpu", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == "0\n"


def test_jobs_of_a_queue_that_others_were_below_are_called_by_its_name_everywhere(live):
    """In answers, facts, metrics and the log, of those who wait, run, claim and pay."""
    good = live.config.read_text()
    claims = good.replace('name = "A"', 'name = "A"\nstrict = true\nguarantee = { cpu = 6 }\nguarantee_timeout = 0')
    claims = claims.replace('name = "B"', 'name = "B"\ngrace = 0')
    for text in (good + '[[queue]]\nname = "A/x"\n', claims):
        live.config.write_text(text)
        live.ok("reload")
    live.ok("submit", "-q", "B", "--cpu", "3", "--tasks", "3", "--", "sleep", "1000")
    live.until(lambda: live.job(1)["running"] == 3)
    for cpu in ("6", "9", "1"):
        status, answer = live.http("POST", "/v1/jobs", {"queue": "A", "demand": {"cpu": cpu}, "argv": ["sleep", "1000"]})
        assert (status, answer["queue"]) == (201, "A")
    live.until(lambda: live.job(2)["running"] == 1)
    assert live.job(1)["revoked"]["queue"] == "A"
    live.ok("hold", "1")
    asked = ["status", "queues", "jobs", "audit", "audit/over-time", "usage", "log", "facts?after=0&follow=false"]
    asked += [f"jobs/{job}{more}" for job in (1, 2, 3, 4) for more in ("", "/why", "/tasks")]
    told = {path: live.http("GET", f"/v1/{path}") for path in asked} | {"metrics": live.http("GET", "/metrics")}
    told["when"] = live.http("POST", "/v1/when", {"queue": "A", "demand": {"cpu": "1"}})
    assert {path: status for path, (status, _) in told.items() if status != 200} == {}
    assert [path for path, (_, said) in told.items() if "/./" in str(said)] == []
    assert "queue A is strict" in told["jobs/4/why"][1]["text"]
    assert sorted(each["name"] for each in told["audit"][1]["queues"]) == ["A", "B"]
    assert "for A, which had 0 of its 6 guaranteed cpu" in live.log.read_text()
    assert "/./" not in live.log.read_text()


def test_the_configuration_is_reloaded_or_refused_whole(live):
    live.ok("submit", "-q", "A", "--cpu", "1", "--tasks", "4", "--", "sleep", "30")
    live.until(lambda: live.job(1)["running"] == 4)
    good = live.config.read_text()
    live.config.write_text(good + '[[queue]]\nname = "A/x"\n')
    assert "queue 'A' has jobs, so it must stay a leaf" in live.call("reload").stderr
    live.config.write_text(good + '[[queue]]\nname = "C"\nlimit = { cpu = -1 }\n')
    refused = live.call("reload")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert re.search(r"fairlead\.toml:\d+: queue\[4\]\.limit: cpu: -1 is negative", refused.stderr)
    assert live.call("run", "-q", "C", "--", "true").returncode == 1, "the running configuration stays"
    live.config.write_text(good + '[[queue]]\nname = "C"\nlimit = { cpu = 2 }\n')
    assert live.ok("reload") == "the configuration is in force\n"
    assert live.ok("reload") == "the configuration has not changed\n"
    assert live.call("run", "-q", "C", "--", "echo", "new").stdout == "new\n"
    assert live.job(1)["running"] == 4


def test_a_file_that_was_emptied_drops_no_queue(live):
    before = live.ask("queues")
    said = f"fairlead: {live.config}: declares no queue, and would drop A, B, lab/<any name>: restore the file"
    for text in ("", "# all gone\n", "[scheduler]\nkeep_jobs = 9\n"):
        live.config.write_text(text)
        refused = live.call("reload")
        assert (refused.returncode, refused.stderr.startswith(said), refused.stderr.count("\n")) == (1, True, 1)
        assert live.ask("queues") == before
    live.submit("-q", "B", "--hold", "--", "true")
    live.kill()
    refused = live.call("up", "--config", str(live.config))
    assert (refused.returncode, refused.stderr.splitlines()[-1].startswith(said)) == (1, True)
    live.config.write_text('[[queue]]\nname = "A"\n[[queue]]\nname = "B"\n')
    live.up()
    live.config.write_text('[[queue]]\nname = "A"\n')
    gone = "no longer declared: B: their jobs go on, and they take no new ones"
    assert gone in live.call("reload").stderr
    live.config.write_text('[[queue]]\nname = "*"\n')
    live.kill()
    live.up()
    live.config.write_text("")
    assert live.ok("reload") == "the configuration has not changed\n", "the same, and nothing is dropped"


def test_a_reload_takes_what_nodes_have_and_says_what_it_does_not_take(live):
    def has():
        (node,) = live.ask("nodes")["nodes"]
        return node["capacity"]["cpu"], node["status"]

    before = live.config.read_text()
    number = live.submit("-q", "A", "--cpu", "1", "--memory", "1Mi", "--tasks", "12", "--", "sh", "-c", GATE)
    live.until(lambda: live.job(number)["running"] == 9)
    live.config.write_text(before.replace("cpu = 9", "cpu = 11"))
    assert live.ok("reload") == "the configuration is in force\n"
    live.until(lambda: live.job(number)["running"] == 11)
    live.ok("drain", "n1")
    live.config.write_text(before.replace("cpu = 9", "cpu = 4"))
    assert live.ok("reload") == "the configuration is in force\n"
    assert live.ok("reload") == "the configuration has not changed\n"
    assert has() == (4000, "draining"), "it is what an operator made it"
    live.ok("resume", "n1")
    (supervisor,) = live.supervisor()
    supervisor.kill()  # its tasks start again, as many as there is room for; the node is known as it is now
    live.until(lambda: live.job(number)["running"] == 4)
    assert has() == (4000, "up")
    live.config.write_text(before.replace("cpu = 9", "cpu = 11"))
    live.ok("reload")
    live.until(lambda: live.job(number)["running"] == 11)
    live.config.write_text(before.replace("cpu = 9", "cpu = 4"))
    live.ok("reload")
    assert live.job(number)["running"] == 11, "what runs goes on"
    text = before.replace('"n1"', '"n2"').replace('name = "B"', 'name = "B"\nweight = 2')
    live.config.write_text("output = 'file:///tmp/elsewhere'\n" + text)
    done = live.call("reload")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "fairlead: node 'n2' is new in the file: restart the scheduler to add it",
        "fairlead: node 'n1' is gone from the file, and still up: drain it, and restart the scheduler",
        "fairlead: output = 'file:///tmp/elsewhere' takes effect when the scheduler is restarted",
    ]
    assert done.stdout == "the rest of the configuration is in force\n"
    assert has() == (4000, "up")
    assert next(queue for queue in live.ask("queues")["queues"] if queue["name"] == "B")["weight"]["cpu"] == 2
    (live.folder / "go").touch()


def test_run_fails_with_a_command_that_is_lost(live):
    live.config.write_text(live.config.read_text() + "[scheduler]\nmax_losses = 1\n")
    live.ok("reload")
    runs = live.start("run", "--", "sleep", "100", stderr=subprocess.PIPE)
    live.until(lambda: [job["running"] for job in live.ask("jobs")["jobs"]] == [1])
    live.until(lambda: live.ask("jobs/1/tasks")["tasks"][0]["status"] == "running")  # else it was never lost
    (supervisor,) = live.supervisor()
    supervisor.kill()
    assert runs.wait(60) == 1
    assert runs.stderr.read() == b"fairlead: job 1: lost\n"


def ledger(live):
    path = live.folder / "ledger"
    return path.read_text().splitlines() if path.exists() else []


GATE = "until test -e go; do sleep 0.05; done"
"""A command that ends when the test lets it."""

TASK = "echo start $FAIRLEAD_INDEX >> ledger; sleep 0.7; echo end $FAIRLEAD_INDEX >> ledger"


def test_killed_again_and_again_nothing_is_lost_and_nothing_runs_twice(live):
    live.ok("submit", "-q", "A", "--tasks", "30", "--memory", "4Gi", "--", "sh", "-c", TASK)
    for pause in (0.2, 0.9, 0.5):
        time.sleep(pause)
        live.kill()
        time.sleep(0.4)
        live.up()
    live.until(lambda: live.job(1)["status"] != "running" and live.job(1)["waiting"] == 0)
    assert live.job(1)["succeeded"] == 30
    assert sorted(ledger(live)) == sorted([f"start {i}" for i in range(30)] + [f"end {i}" for i in range(30)])


def test_sigterm_leaves_tasks_running_and_the_next_start_adopts_them(live):
    live.ok("submit", "-q", "A", "--", "sh", "-c", f"{GATE}; echo done; exit 3")
    live.until(lambda: live.job(1)["running"] == 1)
    assert live.end(signal.SIGTERM) == 0
    assert live.call("jobs").stderr.startswith("fairlead: no scheduler runs in ")
    (live.folder / "go").touch()
    live.up()
    assert live.ok("logs", "-f", "1") == "done\n"
    assert live.job(1)["failed"] == 1


def test_ctrl_c_stops_what_runs_and_the_next_start_runs_it_again(live):
    live.ok(
        "submit", "-q", "A", "--", "sh", "-c", "echo begun >> ledger; test $FAIRLEAD_NUMBER = 2 || sleep 60; echo ended >> ledger"
    )
    live.until(lambda: ledger(live) == ["begun"])
    assert live.end(signal.SIGINT) == 0
    deadline = time.monotonic() + 60
    while live.supervisor():
        assert time.monotonic() < deadline, "the supervisor is left behind"
        time.sleep(0.05)
    assert ledger(live) == ["begun"]
    live.up()
    live.until(lambda: live.job(1)["status"] == "succeeded")
    assert ledger(live) == ["begun", "begun", "ended"]


def test_down_waits_for_what_runs_and_keeps_what_waits(live):
    task = f"echo start >> ledger; {GATE}; echo end >> ledger"
    live.ok("submit", "-q", "A", "--cpu", "9", "--tasks", "2", "--", "sh", "-c", task)
    live.until(lambda: ledger(live) == ["start"])
    down = live.start("down", stderr=subprocess.PIPE)
    assert down.stderr.readline() == b"waiting for 1 task to end\n"
    (live.folder / "go").touch()
    assert down.communicate(timeout=60)[0] == b"the scheduler is down\n"
    assert live.process.wait(timeout=60) == 0
    assert ledger(live) == ["start", "end"]
    live.up()
    live.until(lambda: live.job(1)["status"] == "succeeded")
    assert ledger(live) == ["start", "end"] * 2


def test_down_now_does_not_wait(live):
    live.ok("submit", "-q", "A", "--", "sleep", "100")
    live.until(lambda: live.job(1)["running"] == 1)
    live.env["FAIRLEAD_WAIT"] = "1000s"  # who was told to go is not waited for as one who may come back
    live.ok("down", "--now")
    assert live.process.wait(timeout=60) == 0
    live.up()
    live.until(lambda: live.job(1)["running"] == 1)


def test_a_client_sees_through_a_restart(live):
    live.env["FAIRLEAD_WAIT"] = "100s"
    follower = live.start("run", "-q", "A", "--", "sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done")
    assert follower.stdout.readline() == b"1\n"
    live.kill()
    time.sleep(0.3)
    live.up()
    assert follower.stdout.read() == b"2\n3\n4\n5\n6\n"
    assert follower.wait(timeout=60) == 0


@contextlib.contextmanager
def on_a_disk(tmp_path, disk):
    """A scheduler whose folder is on a small file system of its own."""
    with Live(tmp_path) as world:
        world.home = disk / "home"
        world.env["FAIRLEAD_HOME"] = str(world.home)
        world.up()
        yield world


@pytest.fixture
def live_on_a_small_disk(tmp_path, small_disk):
    with on_a_disk(tmp_path, small_disk("2m")) as world:
        yield world


def test_a_full_disk_stops_new_work_loses_nothing_and_goes_on(live_on_a_small_disk):
    live = live_on_a_small_disk
    task = TASK.replace("ledger", f"{live.folder}/ledger")
    live.ok("submit", "-q", "A", "--cpu", "4", "--tasks", "20", "--", "sh", "-c", task)
    live.until(lambda: "start 0" in ledger(live))
    ballast = live.home.parent / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(512)):
            pass
    live.until(lambda: live.call("submit", "-q", "B", "--", "true").returncode == 1)
    refused = live.call("submit", "-q", "B", "--", "true")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "free space on" in refused.stderr
    time.sleep(1.5)  # what ran has ended meanwhile
    assert live.call("queues").returncode == 0, "listings still answer"
    begun = len([line for line in ledger(live) if line.startswith("start")])
    assert begun < 20, "nothing new is started"
    ballast.unlink()
    live.until(lambda: live.job(1)["status"] == "succeeded")
    assert sorted(ledger(live)) == sorted([f"{what} {i}" for what in ("start", "end") for i in range(20)])
    assert live.call("run", "-q", "B", "--", "echo", "again").stdout == "again\n"


def test_nothing_starts_after_a_restart_on_a_disk_that_is_nearly_full(live_on_a_disk):
    live = live_on_a_disk
    job = live.submit("-q", "A", "--hold", "--", "true")
    room, ballast = room_on(live.home), live.home.parent / "ballast"
    ballast.write_bytes(bytes(room.free - room.floor // 2))
    live.until(lambda: live.http("GET", "/readyz")[0] == 503)
    live.ok("release", str(job))
    live.kill()
    live.up()
    time.sleep(1)
    assert live.job(job)["status"] == "waiting"
    ballast.unlink()
    live.until(lambda: live.job(job)["status"] == "succeeded")


def test_a_log_that_was_deleted_is_said_and_keeps_nobody_from_going(live):
    running = live.submit("-q", "A", "--", "sleep", "1000")
    live.until(lambda: live.job(running)["status"] == "running")
    (live.home / "journal.db-wal").unlink()
    for _ in range(2):
        status, told = live.http("POST", "/v1/jobs", {"argv": ["true"], "demand": {"cpu": 1}, "queue": "A"})
        assert (status, told["may_happen"]) == (503, False)
        assert "journal.db-wal: was moved, deleted or cut while in use" in told["error"]
    assert live.http("GET", "/readyz")[0] == 503
    gone = live.call("down", "--now")
    assert (gone.returncode, gone.stdout) == (
        0,
        "the scheduler is down; running tasks go on, and the next `fairlead up` adopts them\n",
    )
    live.up()
    assert live.job(running)["status"] == "running"
    assert live.ok("down", "--now") == "the scheduler is down\n"


@pytest.fixture
def live_on_a_disk(tmp_path, small_disk):
    """As that, with room for a reserve."""
    with on_a_disk(tmp_path, small_disk("32m")) as world:
        world.until((world.home / "reserve").exists)
        yield world


def test_a_disk_that_an_output_fills_is_rescued(live_on_a_disk, tmp_path):
    live, gate = live_on_a_disk, tmp_path / "gate"
    fills = f"until test -e {gate}; do sleep 0.02; done; while :; do head -c 65536 /dev/zero; done"
    culprit = live.submit("-q", "A", "--", "sh", "-c", fills)
    waits = live.submit("-q", "B", "--cpu", "9", "--", "true")
    gate.touch()
    live.until(lambda: "fairlead_paused_tasks 1.0" in live.http("GET", "/metrics")[1])
    with contextlib.suppress(OSError), (live.home.parent / "ballast").open("wb", buffering=0) as ballast:
        for size in (2**16, 512):  # what somebody else writes, until nothing is left
            with contextlib.suppress(OSError):
                while True:
                    ballast.write(bytes(size))
    # The supervisor may see it a moment earlier than the scheduler.
    live.until(lambda: live.http("GET", "/readyz")[0] == 503)
    assert "1 tasks are paused" in live.http("GET", "/readyz")[1]["error"]
    assert "free space on" in live.call("jobs").stderr
    status, told = live.http("POST", "/v1/jobs", {"argv": ["true"], "demand": {"cpu": 1}, "queue": "B"})
    assert (status, told["may_happen"]) == (503, False)
    assert live.http("POST", f"/v1/jobs/{waits}/hold", {})[0] == 200
    assert live.http("POST", "/v1/nodes/n1/drain", {})[0] == 200
    live.kill()
    live.up()  # with the disk full, and the culprit there
    assert live.http("POST", f"/v1/jobs/{culprit}/cancel", {})[0] == 200
    live.until(lambda: live.job(culprit)["status"] == "cancelled")
    assert live.http("POST", "/v1/down", {"now": True})[0] == 202
    assert live.process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["run", "-q", "C", "--", "true"], 1, "there is no queue 'C': choose one of A, B, lab"),
        (["run", "-q", "A", "--cpu", "x", "--", "true"], 2, "cpu: 'x' is not a quantity"),
        (["run", "-q", "A", "--cpu", "-1", "--", "true"], 2, "cpu: -1 is negative"),
        (["run", "-q", "A", "--gpu", "0.5", "--", "true"], 2, "ask for a whole number"),
        (["run", "-q", "A", "--resource", "fpga=1", "--", "true"], 1, "--resource fpga: no node has any: there is cpu, memory"),
        (["run", "-q", "A", "--resource", "fpga", "--", "true"], 2, "write NAME=VALUE"),
        (["run", "-q", "A", "--on", "zone", "--", "true"], 2, "write NAME=VALUE"),
        (["submit", "-q", "A", "--tasks", "0", "--", "true"], 2, "--tasks: 0: use a number from 1 to 1,000,000"),
        (["submit", "-q", "A", "--tasks", "99999999", "--", "true"], 2, "--tasks: 99999999: use a number from 1"),
        (["submit", "-q", "A", "--priority", "1000001", "--", "true"], 2, "--priority: 1000001: use a number from -1000000"),
        (["jobs", "--status", "done"], 2, "--status 'done': write one of waiting, held, "),
        (["submit", "-q", "A", "--retries", "-1", "--", "true"], 2, "--retries: -1: use a number from 0 to 100"),
        (["submit", "-q", "A", "--time-limit", "0", "--", "true"], 2, "--time-limit: 0 seconds: use more than 0"),
        (["submit", "-q", "A", "--after", "77777", "--", "true"], 1, "--after: there is no job 77777"),
        (["submit", "-q", "A", "--gang", "--at-most", "2", "--", "true"], 2, "--at-most: a gang starts all its tasks"),
        (["cancel", "77777"], 1, "there is no job 77777"),
        (
            ["why", "spark"],
            1,
            "'spark' is not a job: write a number or name as listed by `fairlead jobs`, or 12.3 for a task; `fairlead framew",
        ),
        (["why", "1.3"], 2, "1.3: a job is explained as a whole: write 1"),
        (["logs", "77777"], 1, "there is no job 77777"),
        (["logs", "x.y"], 1, "'x.y' is not a job: write a number or name"),
        (["submit", "-q", "A", "--", "echo", ":::"], 2, "::: what? Write words after it"),
        (["submit", "-q", "A", "--", "echo", "::::", "/dev/null"], 1, ":::: /dev/null: is empty: name a file with a word per"),
        (["run", "-q", "A", "--", "echo", ":::", "a"], 2, "::: is for several tasks, and `run` has one: use `fairlead submit`"),
        (
            ["submit", "-q", "A", "--nodes", "2", "--strict", "--", "true"],
            1,
            "1 node could hold a task of cpu=1 memory=1Gi, not 2",
        ),
    ],
)
def test_bad_input_gets_one_line_and_changes_nothing(shared, command, monkeypatch, arguments, status, says):
    monkeypatch.setenv("FAIRLEAD_HOME", str(shared.home))
    before = shared.ask("jobs", limit=1000)
    result = command(*arguments)
    assert result.returncode == status
    assert re.search(re.escape(says), result.stderr), result.stderr
    assert result.stderr.startswith("fairlead: ")
    assert result.stderr.count("\n") == 1
    assert shared.ask("jobs", limit=1000) == before


def test_bad_input_in_a_process_of_its_own(shared):
    result = shared.call("cancel", "77777")
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "fairlead: there is no job 77777\n")


def test_a_demand_larger_than_any_node_waits_and_says_so(idle):
    result = idle.call("submit", "-q", "A", "--cpu", "1000", "--", "true")
    assert (result.returncode, result.stdout) == (0, f"{idle.newest()}\n")
    assert "no node is large enough for cpu=1000 memory=1Gi" in result.stderr
    assert idle.job(idle.newest())["waiting"] == 1


def test_a_second_scheduler_and_a_port_in_use_are_refused(shared):
    second = shared.call("up", "--port", "0")
    assert (second.returncode, second.stderr.count("\n")) == (1, 1)
    assert "another scheduler has it open" in second.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = shared.call("up", "--home", str(shared.folder / "other"), "--port", port)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in refused.stderr


def test_a_wrong_configuration_is_refused_whole(shared):
    wrong = shared.folder / "wrong.toml"
    wrong.write_text('[[queue]]\nname = "A"\nweight = -1\n')
    refused = shared.call("up", "--config", str(wrong), "--home", str(shared.folder / "third"))
    assert refused.returncode == 1
    assert refused.stderr == f"fairlead: {wrong}:3: queue[0].weight: -1 is not a weight: use a number from 1e-9 to 1e9\n"
    assert not (shared.folder / "third").exists()


def test_what_the_machine_keeps_for_itself_is_said_and_is_not_shared(tmp_path):
    whole = this_machine({}).capacity
    with Live(tmp_path) as world:
        world.config.write_text('system = { memory = "50%" }\n')
        world.up()
        world.until(lambda: "ready at" in world.log.read_text())
        (node,) = world.ask("nodes")["nodes"]
        assert node["capacity"]["memory"] == whole["memory"] - whole["memory"] // 2
        assert node["capacity"]["cpu"] == whole["cpu"]
        assert "memory" in world.log.read_text()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('system = "5%"', ':1: system: write a table such as { cpu = 0.5, memory = "5%" }, or {} to keep nothing'),
        ("system = { disk = 1 }", ":1: system: this machine has no 'disk' to keep: use cpu, memory, gpu"),
        ("system = { gpu = 0.5 }", ":1: system: gpu: a part of a GPU cannot be kept: write a whole number"),
        (
            'system = {}\n[[node]]\nname = "n"\ncapacity = { cpu = 1 }',
            ":1: system: applies only to a detected machine: here [[node]] tables declare the nodes",
        ),
    ],
)
def test_what_a_machine_cannot_keep_is_refused(tmp_path, text, wrong):
    path = tmp_path / "fairlead.toml"
    path.write_text(text)
    with pytest.raises(DocumentError) as error:
        read_configuration(path, find_policy)
    assert str(error.value) == f"{path}{wrong}"


def test_a_damaged_journal_is_refused(tmp_path):
    world = Live(tmp_path)
    world.home.mkdir()
    (world.home / "journal.db").write_text("no journal at all, but long enough to be looked at" * 20)
    refused = world.call("up")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "the journal is damaged" in refused.stderr


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("", "{}: it or a parent is not a folder: name another with --home"),
        ("deeds", "{}: is not a folder: move it away"),
        ("supervisor", "{}: is not a folder: move it away"),
    ],
)
def test_a_file_where_a_folder_belongs_is_one_line(tmp_path, place, said):
    world = Live(tmp_path)
    if place:
        world.home.mkdir()
    (world.home / place).write_text("something")
    refused = world.call("up", "--config", str(world.config))
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, f"fairlead: {said.format(world.home / place)}")
    assert "Traceback" not in refused.stderr
    if not place:
        refused = world.call("--wait", "0", "jobs")
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)


def test_the_api_bounds_what_it_takes(shared):
    for length in ({"Content-Length": str(17 << 20)}, {"Transfer-Encoding": "chunked"}):
        connection = shared.wire()
        connection.putrequest("POST", "/v1/jobs")
        for name, value in length.items():
            connection.putheader(name, value)
        connection.endheaders()
        if "Transfer-Encoding" in length:
            for _ in range(17):
                connection.send(b"100000\r\n" + b" " * 2**20 + b"\r\n")
        assert connection.getresponse().status == 413
        connection.close()
    for body in (
        b"{",
        b'{"argv": ["true"], "demand": {"cpu": NaN}}',
        b'{"argv": [], "demand": {"cpu": 1}}',
        b'{"argv": ["a\\u0000b"], "demand": {"cpu": 1}}',
    ):
        assert shared.http("POST", "/v1/jobs", body)[0] == 422
    assert shared.http("GET", "/v1/jobs?limit=0")[0] == 422
    assert shared.http("GET", "/v1/jobs/99999999999999999999")[0] in (404, 422)
    assert shared.http("GET", "/v1/jobs/1000000")[0] == 404
    assert shared.http("GET", "/v1/nothing")[0] == 404


def test_requests_are_refused_in_the_words_of_documents(shared):
    good = {"argv": ["true"], "demand": {"cpu": 1}}
    for more, said in (
        ({"tasks": True}, "tasks: write a whole number"),
        ({"tasks": "3"}, "tasks: write a whole number"),
        ({"hold": "yes"}, "hold: write true or false"),
        ({"hold": 1}, "hold: write true or false"),
        ({"priority": 2.5}, "priority: write a whole number"),
        ({"grace": -1}, "grace: use 0 or more"),
        ({"grace": 10**6}, "grace: use 86400 or less"),
        ({"fit": "x"}, "fit: write '', 'pack' or 'spread'"),
        ({"argv": []}, "argv: is empty: name one"),
        ({"name": "x" * 257}, "name: is longer than 256 characters"),
        ({"colour": 1}, "colour: no such key here"),
    ):
        answer = shared.http("POST", "/v1/jobs", {**good, **more})
        assert answer == (422, {"error": said}), more
    for body, said in (
        (b'{\n"argv": [,', "line 2: not JSON: column 10: a value is missing here"),
        (b"{}x", "line 1: not JSON: column 3: the value ends before this: remove what follows"),
        (b"[" * 200_000, "nested too deeply"),
    ):
        assert shared.http("POST", "/v1/jobs", body) == (422, {"error": said})
    for option, value, said in (
        ("--memory", "4Gx", "--memory: '4Gx' is not a quantity"),
        ("--signal", "KILL", "--signal: 'KILL' is not a signal"),
        ("--grace", "2d", "--grace: use 86400 or less"),
        ("--name", "x" * 257, "--name: is longer than 256 characters"),
    ):
        refused = shared.call("submit", "-q", "A", option, value, "--", "true").stderr
        assert refused.startswith(f"fairlead: {said}"), refused


def test_secrets_are_for_their_owner_alone(shared):
    shared.ok("token", "new")
    for name in ("socket", "tokens.json", "journal.db", "deeds"):
        assert (shared.home / name).stat().st_mode & 0o077 == 0
    assert shared.home.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["--version"],
        ["jobs", "--limit", "3"],
        ["token", "list"],
        ["run", "--cpu", "1", "--", "true"],
        ["submit", "--cpu", "2", "--", "true"],
        ["down"],
    ],
)
def test_a_client_imports_little(command, tmp_path):
    imported = modules_of(command, tmp_path)
    assert not imported & {"numpy", "fastapi", "sqlite3", "uvicorn", "pydantic", "urllib3"}


def test_jobs_imports_no_other_command(tmp_path):
    assert {name for name in modules_of(["jobs"], tmp_path) if name.startswith("fairlead")} == {
        "fairlead",
        "fairlead.data_folder",
        "fairlead.descriptors",
        "fairlead.interrupts",
        "fairlead.locks",
        "fairlead.plain_text",
        "fairlead.sockets",
        "fairlead.text_tables",
        "fairlead.cli",
        "fairlead.cli.main",
        "fairlead.cli.parsing",
        "fairlead.cli.option_values",
        "fairlead.cli.streams",
        "fairlead.failure",
        "fairlead.cli.commands",
        "fairlead.cli.commands.selected_jobs",
        "fairlead.cli.selection",
        "fairlead.model.ranges",
        "fairlead.cli.commands.options",
        "fairlead.cli.scheduler",
        "fairlead.cli.job_options",
        "fairlead.cli.tables",
        "fairlead.cli.terminal",
        "fairlead.client",
        "fairlead.client.address",
        "fairlead.client.connection",
        "fairlead.client.waiting",
        "fairlead.client.service_error",
        "fairlead.model",
        "fairlead.model.faults",
        "fairlead.model.quantity",
        "fairlead.model.specs",
        "fairlead.policies",
        "fairlead.policies.codes",
    }


def modules_of(command, folder):
    """The modules that a command imports where no scheduler runs."""
    program = (
        "import sys, atexit; sys.argv[0] = 'fairlead'; atexit.register(lambda: print('MODULES', *sys.modules)); "
        "from fairlead.cli.main import main; main()"
    )
    env = {**os.environ, "FAIRLEAD_HOME": str(folder / "none")}
    result = subprocess.run([sys.executable, "-c", program, *command], env=env, capture_output=True, text=True, check=False)
    assert "Traceback" not in result.stderr
    return set(result.stdout.rpartition("MODULES ")[2].split())


def test_a_scheduler_that_starts_is_said_to_and_waited_for(live):
    with starting(live.home / "socket", shared=False) as started:
        known = live.call("--wait", "0", "jobs")
        assert known.returncode == 1
        assert known.stderr.splitlines() == [
            "fairlead: the scheduler is starting",
            f"fairlead: the scheduler at {live.home / 'socket'} is starting: try again, or wait longer with "
            "`fairlead --wait SECONDS`",
        ]
        with subprocess.Popen([FAIRLEAD, "--wait", "60", "jobs"], env=live.env, stderr=subprocess.PIPE) as waiting:
            assert waiting.stderr.readline() == b"fairlead: the scheduler is starting\n"
            assert waiting.poll() is None
            started()
            assert waiting.wait(60) == 0
    assert live.call("jobs").stderr == ""


@pytest.mark.parametrize(
    ("wait", "said"), [("", ""), ("0s", ""), ("x", "FAIRLEAD_WAIT 'x' is not a duration"), ("-1", "FAIRLEAD_WAIT")]
)
def test_how_long_to_wait_is_said_by_the_environment(idle, wait, said):
    env = {**idle.env, "FAIRLEAD_WAIT": wait}
    done = run(["jobs"], env=env)
    assert (done.returncode != 0, said in done.stderr, done.stderr.count("\n")) == (bool(said), True, bool(said))
    assert idle.call("--wait", "0.5s", "jobs").returncode == 0
    assert idle.call("--wait", "soon", "jobs").stderr.startswith("fairlead: --wait")


def test_a_scheduler_that_cannot_start_leaves_no_folder(tmp_path):
    command = [FAIRLEAD, "up", "--home", tmp_path / "new", "--tls-key", "x"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(300)
def test_the_demo_shows_all_that_it_promises():
    """Its tasks last longer here: those of a round must be seen together, in five looks, also on a busy machine."""
    command, env = [sys.executable, ROOT / "examples" / "demo.py"], {**os.environ, "DEMO_SECONDS": "3.5"}
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("SEEN:") == 5
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_the_index_stands_for_itself_in_the_command(idle):
    many = idle.submit("-q", "A", "-n", "3", "--", "sh", "-c", "echo task {index} of $FAIRLEAD_JOB")
    one = idle.submit("-q", "A", "--", "echo", "{index}")
    idle.ok("wait", f"{many}", f"{one}")
    assert [idle.ok("logs", f"{many}.{i}") for i in range(3)] == [f"task {i} of {many}\n" for i in range(3)]
    assert idle.ok("logs", f"{one}") == "{index}\n", "a job of one task that was not asked to be numbered"


def test_jobs_tasks_and_queues_are_cancelled(idle):
    a, b, c = (idle.submit("-q", "A", "-n", "20", "--cpu", "1", "--", "sleep", "60") for _ in range(3))
    other = idle.submit("-q", "B", "--", "sleep", "60")
    said = f"task {a}.0 is cancelled\n3 tasks of job {b} are cancelled\n"
    assert idle.ok("cancel", f"{a}.0", f"{b}.3-5") == said
    log = idle.ok("log", "--json")
    assert f"cancelled 1 task of job {a}" in log
    assert f"cancelled 3 tasks of job {b}" in log
    idle.until(lambda: idle.job(a)["cancelled"] == 1)
    assert idle.job(b)["cancelled"] == 3
    assert idle.ok("cancel", f"{a}.0") == f"task {a}.0 had ended already\n"
    assert idle.ok("cancel", f"{a}", f"{c}") == f"job {a} is cancelled\njob {c} is cancelled\n"
    assert idle.ok("cancel", "--queue", "A") == f"job {b} is cancelled\n"
    idle.until(lambda: all(idle.job(n)["status"] == "cancelled" for n in (a, b, c)))
    assert idle.ok("cancel", "-q", "A") == "no jobs of yours that have not ended with --queue A\n"
    assert idle.ok("cancel", f"{a}") == f"job {a} had ended already\n"
    assert idle.job(other)["status"] == "running"
    nothing = "no jobs of yours that have not ended with --queue B --user nobody-here\n"
    assert idle.ok("cancel", "-q", "B", "--user", "nobody-here") == nothing
    missing = idle.newest() + 99
    assert idle.call("cancel", f"{other}", f"{missing}").stderr == f"fairlead: there is no job {missing}\n"
    assert idle.job(other)["status"] == "running", "all that were named, or none"
    for wrong, status in (([], 2), (["x"], 1), ([f"{a}.5-2"], 2), ([f"{a}."], 1)):
        result = idle.call("cancel", *wrong)
        assert (result.returncode, result.stderr.count("\n")) == (status, 1)
    assert "no queue 'Z'" in idle.call("cancel", "-q", "Z").stderr


def test_a_name_means_the_newest_job_that_has_not_ended(idle):
    first, second = (idle.submit("-q", "A", "--name", "same", "--begin", "now+1h", "--", "true") for _ in range(2))
    ended = idle.submit("-q", "A", "--name", "same", "--", "true")
    idle.ok("wait", str(ended))
    assert idle.ok("hold", "same") == f"job {second} is held\n"
    assert idle.ok("release", "same") == f"job {second} is released\n"
    assert idle.ok("cancel", "same") == f"job {second} is cancelled\n"
    assert idle.ok("cancel", "same") == f"job {first} is cancelled\n"
    assert idle.ok("cancel", "same") == f"job {ended} had ended already\n"
    assert json.loads(idle.ok("job", "same", "--json"))["id"] == ended, "what looks back takes the newest"
    idle.ok("wait", "same")


def test_names_that_look_like_numbers_are_refused_and_like_patterns_are_names(idle):
    for name in ("12", "12.3", "12.0-9"):
        refused = idle.call("submit", "-q", "A", "--name", name, "--", "true").stderr
        assert refused == f"fairlead: --name: {name} would be read as a job's number: add a letter, such as job-{name}\n"
    names = ["x[1]", "x1", "b*", "bar"]
    bracket, _, star, bar = (idle.submit("-q", "A", "--name", name, "--hold", "--", "true") for name in names)
    assert idle.ok("cancel", "b*", "x[1]") == f"job {bracket} is cancelled\njob {star} is cancelled\n"
    assert idle.ok("cancel", "--name", "b*") == f"job {bar} is cancelled\n"
    assert "x[1]" in idle.ok("jobs", "--name", "x[1]")
    said = "fairlead: 'fold-*' is not a job's name: `fairlead jobs --name 'fold-*'` lists the jobs like it\n"
    assert idle.call("cancel", "fold-*").stderr == said
    idle.ok("cancel", "x1")


def test_strict_refuses_what_no_node_could_hold(idle):
    refused = idle.call("submit", "--strict", "-q", "A", "--cpu", "1000", "--", "true")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "fairlead: no node is large enough for cpu=1000 memory=1Gi\n"
    gang = idle.call("submit", "--strict", "-q", "A", "--gang", "-n", "10", "--", "true")
    assert (gang.returncode, gang.stdout) == (1, "")
    assert gang.stderr == "fairlead: all nodes together could hold 9 tasks of cpu=1 memory=1Gi at once, not the 10 of this gang\n"
    assert idle.ok("submit", "--strict", "-q", "A", "--", "true") == f"{idle.newest()}\n"


def test_a_folder_to_run_in(idle):
    (idle.folder / "there").mkdir()
    assert idle.ok("run", "-q", "A", "--cwd", "there", "--", "pwd") == f"{idle.folder}/there\n"
    assert "cannot run" in idle.call("run", "-q", "A", "--no-check", "--cwd", "nowhere", "--", "pwd").stderr


def test_command_lines_with_any_bytes(idle):
    every = bytes(range(1, 256))
    command = [FAIRLEAD, "run", "-q", "A", "--env", b"ODD=\xff\xfe", "--", "sh", "-c", b'printf %s%s "$1" "$ODD"', "x", every]
    result = subprocess.run(command, env=idle.env, capture_output=True, check=True, cwd="/")
    assert result.stdout == every + b"\xff\xfe"
    folder = os.fsencode(idle.folder) + b"/\xfe"
    Path(os.fsdecode(folder)).mkdir()
    result = subprocess.run([FAIRLEAD, "run", "-q", "A", "--", "pwd"], env=idle.env, capture_output=True, check=True, cwd=folder)
    assert result.stdout == folder + b"\n"
    assert idle.ok("jobs")
    assert idle.call("run", "-q", "A", "--", "").stderr == "fairlead: argv: names no program: its first word is empty\n"


def test_a_hundred_thousand_tasks_in_one_job(idle):
    job = idle.submit("-q", "A", "--cpu", "9", "-n", "100000", "--", "sleep", "60")
    assert idle.job(job)["tasks"] == 100_000
    assert "100000" in idle.ok("job", f"{job}")
    assert idle.ok("cancel", f"{job}") == f"job {job} is cancelled\n"
    idle.until(lambda: idle.job(job)["status"] == "cancelled")


def test_large_outputs_and_slow_readers_cost_the_scheduler_nothing(live):
    megabytes = 300
    live.ok("submit", "-q", "A", "--", "sh", "-c", f"head -c {megabytes}M /dev/zero")
    live.ok("wait", "1")
    before = memory_of(live.process.pid)
    slow = live.start("logs", "1")
    time.sleep(1)
    assert live.ok("jobs"), "others are answered meanwhile"
    size = 0
    while piece := slow.stdout.read(1 << 20):
        size += len(piece)
    assert (slow.wait(), size) == (0, megabytes << 20)
    assert memory_of(live.process.pid) - before < 60 << 20
    quick = live.start("logs", "1", stderr=subprocess.PIPE)
    quick.stdout.read(10)
    quick.stdout.close()
    assert (quick.wait(), quick.stderr.read()) == (1, b""), "a reader that had enough"


def memory_of(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) << 10


def test_a_run_that_is_killed_has_its_job_cancelled_also_over_a_restart(live):
    for restarted in (False, True):
        run = live.start("run", "-q", "A", "--", "sh", "-c", "echo begun; exec sleep 600", stdin=subprocess.DEVNULL)
        assert run.stdout.readline() == b"begun\n"
        job = live.newest()
        if restarted:
            live.kill()
        run.kill()
        run.wait(timeout=60)
        assert run.stdout.read() == b"", "nobody else holds its standard output open"
        if restarted:
            live.up()
        live.until(lambda job=job: live.job(job)["status"] == "cancelled")


def _words_of(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return None


def test_what_tells_a_run_to_end_does_not_end_what_watches_over_it(idle):
    script = "echo begun; exec sleep 600"
    run = subprocess.Popen(
        [FAIRLEAD, "run", "-q", "A", "--", "sh", "-c", script],
        env=idle.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    idle.beside.append(run)
    assert run.stdout.readline() == b"begun\n"
    mine = psutil.Process(run.pid).cmdline()
    (guard,) = [each for each in psutil.process_iter() if each.pid != run.pid and mine == _words_of(each)]
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        guard.send_signal(number)
    run.kill()
    idle.until(lambda: idle.job(idle.newest())["status"] == "cancelled")
    guard.wait(60)


def test_output_that_cannot_be_written_is_one_line(idle):
    job = idle.submit("-q", "A", "--", "sh", "-c", "echo written")
    idle.ok("wait", str(job))
    commands = ("jobs", f"logs {job}", "jobs --json", f"job {job}", "policies", "submit -q A -- true", "--version")
    for where, why in (("> /dev/full", "no space left on device"), (">&-", "bad file descriptor")):
        for command in commands:
            result = idle.shell(f"fairlead {command} {where}; echo $? >&2")
            assert result.stderr == f"fairlead: standard output: cannot be written: {why}\n1\n", command
        assert idle.shell(f"fairlead run -q A -- sh -c 'echo a; exec sleep 600' {where}; echo $? >&2").stderr.endswith(
            f"cannot be written: {why}\n1\n"
        )
        assert idle.job(idle.newest())["status"] == "cancelled"
    for where in ("2>&-", "2> /dev/full"):
        assert idle.shell(f"fairlead run -q A -- sh -c 'echo a >&2; exit 3' {where}; echo $?").stdout == "3\n"
        assert idle.shell(f"fairlead jobs --no-such {where}; echo $?").stdout == "2\n"
    assert idle.shell("fairlead policies | head -n 0; fairlead jobs | head -n 1 > /dev/null").stderr == ""
    assert idle.shell("PYTHONIOENCODING=ascii fairlead jobs").stderr == ""
    assert "contains no job" in idle.shell("fairlead submit --jobs - <&-").stderr


def test_commands_go_on_when_the_scheduler_is_restarted_under_them(live):
    live.env |= {"FAIRLEAD_WAIT": "100s", "FORCE_COLOR": "1"}  # the bar of `wait` shows that it was answered
    wait = ["sh", "-c", "echo one; " + GATE + "; echo two; exit 5"]
    run = live.start("run", "-q", "A", "--", *wait)
    assert run.stdout.readline() == b"one\n"
    waiting = live.start("wait", "1", stderr=subprocess.PIPE)
    shown = b""
    while b"job 1" not in shown:
        shown += os.read(waiting.stderr.fileno(), 4096)
    del live.env["FORCE_COLOR"]
    live.kill()
    live.up()
    (live.folder / "go").touch()
    assert (run.stdout.read(), run.wait(timeout=60)) == (b"two\n", 5)
    waiting.communicate(timeout=60)
    assert waiting.returncode == 1


def test_top_shows_the_cluster(idle):
    job = idle.submit("-q", "A", "-n", "5", "--name", "many", "--cpu", "3", "--", "sleep", "60")
    idle.until(lambda: idle.job(job)["running"] == 3)
    idle.env["COLUMNS"] = "80"
    shown = idle.ok("top", "--once")
    assert re.search(r"1 node, 3 running, 2 waiting", shown)
    assert re.search(r"cpu\s+█+ 100% 9/9", shown)
    assert re.search(r"A\s+█+\s+100.0% cpu\s+█\s+3\s+2", shown)
    assert re.search(rf"{job}\s+many\s+A\s+running\s+0/5", shown)
    assert max(map(len, shown.splitlines())) <= 80


def test_listings_are_readable_at_80_columns(idle):
    idle.env["COLUMNS"] = "80"
    job = idle.submit("-q", "A", "--name", "a-job-with-quite-a-long-name-of-its-own", "--cpu", "500m", "--", "sleep", "60")
    for listing in ("jobs", "queues", "nodes"):
        lines = idle.ok(listing).splitlines()
        assert max(map(len, lines)) <= 80
        assert "\x1b" not in "".join(lines)
    (row,) = [line for line in idle.ok("jobs").splitlines() if line.startswith(f"{job} ")]
    assert "cpu=0.5" in row


def test_queues_are_added_changed_drained_and_removed(live):
    live.ok("submit", "-q", "A", "--cpu", "4", "-n", "3", "--", "sh", "-c", GATE)
    live.until(lambda: live.job(1)["running"] == 2)
    good = live.config.read_text()
    live.config.write_text(good.replace('name = "A"', 'name = "A"\ndraining = true') + '[[queue]]\nname = "C"\n')
    live.ok("reload")
    assert live.call("submit", "-q", "A", "--", "true").stderr == "fairlead: queue 'A' is draining: it takes no more jobs\n"
    assert re.search(r"A \(draining\)", live.ok("queues"))
    live.ok("submit", "-q", "C", "--cpu", "1", "--", "true")
    live.config.write_text(good.replace('[[queue]]\nname = "A"\n', ""))
    live.ok("reload")
    assert "no queue 'A'" in live.call("submit", "-q", "A", "--", "true").stderr
    assert re.search(r"A \(removed\)", live.ok("queues"))
    (live.folder / "go").touch()
    live.ok("wait", "1")
    assert live.job(1)["status"] == "succeeded", "what it had goes on"
    assert " A" not in live.ok("queues"), "then it is gone"
    live.config.write_text(good)
    live.ok("reload")
    assert live.call("run", "-q", "A", "--", "true").returncode == 0


def test_the_shell_completes_commands(tmp_path):
    world = Live(tmp_path)
    world.env |= {"_FAIRLEAD_COMPLETE": "complete_bash", "COMP_WORDS": "fairlead re", "COMP_CWORD": "1"}
    assert set(world.call().stdout.split()) == {"release", "reload", "rerun", "resume"}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("jobs --status ", ["waiting", "held", "running", "succeeded", "failed", "cancelled"]),
        ("job 1 --status su", ["succeeded"]),
        ("usage --by ", ["user", "queue", "job", "day", "week"]),
        ("up --engine ", ["local", "ray"]),
        ("simulate t.csv --format s", ["swim", "swf", "sacct"]),
        ("simulate t.csv --policy drf,fifo", ["drf,fifo", "drf,fifo-strict"]),
        ("allocate p.toml --policy cee", ["ceei"]),
        ("submit --queue B", ["B"]),
        ("drain ", ["n1"]),
        ("submit --tasks 12", ["12"]),
        ("submit --tasks ", [" "]),
        ("submit --name ", [" "]),
        ("up --config ", [""]),
        ("submit --jobs ", [""]),
    ],
)
def test_the_shell_offers_what_a_value_can_be_and_files_where_it_is_one(shared, typed, offered):
    """A blank is no file; of nothing at all shells make files."""
    words = {"COMP_WORDS": f"fairlead {typed}", "COMP_CWORD": f"{len(typed.split(' '))}"}
    told = run([], env={**shared.env, "_FAIRLEAD_COMPLETE": "complete_bash", **words}, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.removesuffix("\n").split("\n") == offered


def test_the_shell_offers_no_names_where_nobody_answers(tmp_path):
    world = Live(tmp_path)
    world.env |= {"_FAIRLEAD_COMPLETE": "complete_bash", "COMP_WORDS": "fairlead drain ", "COMP_CWORD": "2"}
    told = world.call()
    assert (told.stdout, told.stderr) == (" \n", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["jobs", "--limit", "1_0"], "write a whole number, in the digits 0 to 9, not '1_0'"),
        (["jobs", "--limit", "\uff11"], "write a whole number, in the digits 0 to 9, not '\uff11'"),
        (["jobs", "--limit", "0"], "use 1 or more, not '0'"),
        (["submit", "--tasks", "1.0", "--", "true"], "write a whole number, not '1.0'"),
        (["simulate", "t.csv", "--speed", "nan"], "write a finite number, not 'nan'"),
    ],
)
def test_a_number_that_is_typed_is_refused_as_one_in_a_document(command, arguments, says):
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fairlead: invalid value for '--")
    assert done.stderr.endswith(f": {says}; see `fairlead {arguments[0]} -h`\n")


STEERING = "\x1b]0;owned\x07\x9b31m\u202e[/] [bold]x"
"""Retitles a terminal, recolours it, turns text around; and markup that closes what was not opened."""


def test_nothing_that_somebody_named_steers_a_terminal(idle):
    submit = ("submit", "-q", "A", "--name", STEERING, "--on", f"zone={STEERING}", "--cwd", f"/tmp/{STEERING}")
    named = str(idle.submit(*submit, "--no-check", "--", "grep", "[/]", STEERING))
    unnamed = str(idle.submit("-q", "A", "--cpu", "99", "--no-check", "--", "[/]", STEERING))
    for number in (named, unnamed):
        for command in (["jobs"], ["job", number], ["why", number], ["top", "--once"], ["log"], ["audit", "--live"], ["queues"]):
            done = idle.call(*command)
            assert done.returncode == 0, (command, done.stderr)
            assert not steering(done), command
    assert "[/]" in idle.ok("jobs")
    assert "\\x1b]0;owned\\x07" in idle.ok("jobs")
    problem = {"capacity": {"cpu": 9}, "user": [{"name": STEERING, "demand": {"cpu": 1}}]}
    (idle.folder / "problem.json").write_text(json.dumps(problem))
    wrong = (
        ["submit", "-q", f"lab/{STEERING}", "--", "true"],
        ["submit", "-q", STEERING, "--", "true"],
        ["cancel", "-q", STEERING],
        ["drain", STEERING],
        ["logs", STEERING],
        ["--url", f"unix:///{STEERING}", "jobs"],
        ["allocate", "problem.json"],
        ["audit", "problem.json"],
        ["log", "--user", STEERING, "--since", STEERING],
        ["token", "revoke", STEERING],
    )
    for command in wrong:
        done = idle.call(*command)
        assert not steering(done), (command, done)
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") <= 1


def steering(done):
    """The characters of an answer that steer a terminal, but for line ends."""
    text = (done.stdout + done.stderr).replace("\n", "")
    return re.findall("[\x00-\x1f\x7f-\x9f\u2028-\u202e]", text)


def test_a_node_that_is_gone_or_renamed_loses_nothing_without_a_word(live):
    number = live.submit("-q", "A", "--", "sleep", "600")
    live.until(lambda: live.job(number)["running"] == 1)
    live.end(signal.SIGTERM)
    before = live.config.read_text()
    live.config.write_text(before.replace('"n1"', '"renamed"'))
    command = [FAIRLEAD, "up", "--config", str(live.config)]
    refused = subprocess.run(command, env=live.env, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        "fairlead: node 'n1' is gone from the configuration, and 1 task runs on it: put it back, and drain it before "
        "removing it; or stop what runs there, to start again elsewhere: fairlead up --drop-node n1"
    )
    command[-1:] = [str(live.config), "--drop-node", "n1", "--drop-node", "n11"]
    refused = subprocess.run(command, env=live.env, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        "fairlead: there is no node n11 to drop: the journal knows n1; name one of these, or leave out --drop-node"
    )
    live.config.write_text(before)
    live.up()
    assert live.job(number)["running"] == 1, "nothing was dropped"
    live.end(signal.SIGTERM)
    live.config.write_text(before.replace('"n1"', '"renamed"'))
    live.up("--drop-node", "n1")
    live.until(lambda: live.ask(f"jobs/{number}/tasks")["tasks"][0]["node"] == "renamed")
    live.ok("cancel", str(number))
    assert re.search(r"n1 .*lost", live.ok("nodes"))
    there = "fairlead: node 'renamed' is up: it can be forgotten when it is lost; `fairlead drain renamed` empties it\n"
    assert live.call("forget", "renamed").stderr == there
    assert live.ok("forget", "n1") == "node n1 is forgotten\n"
    assert "n1" not in live.ok("nodes")
    assert "n1" in live.call("forget", "n1").stderr
    live.end(signal.SIGTERM)
    live.config.write_text(before)
    live.up()
    assert [node["name"] for node in live.ask("nodes")["nodes"] if node["status"] == "up"] == ["n1"], "it is there again"


def test_it_stops_what_runs_though_nobody_reads_what_it_says_and_its_log_is_no_file(tmp_path):
    with Live(tmp_path) as world:
        world.home.mkdir(mode=0o700)
        (world.home / "log").mkdir()
        read, write = os.pipe()
        world.process = Fairlead(["up", "--config", str(world.config)], env=world.env, stdout=write, stderr=write)
        os.close(write)
        world.until(world.answers, 60)
        os.close(read)
        job = world.submit("-q", "A", "--", "sleep", "600")
        world.until(lambda: world.job(job)["running"] == 1)
        assert world.call("down", "--now").returncode == 0
        assert world.process.wait(60) == 0
