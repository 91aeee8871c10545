"""`fairlead doctor`: each thing that is wrong is found, with what helps; and nothing is changed by looking."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

import fairlead
from fairlead.cli.commands.journal import check as check_journal
from fairlead.cli.doctor import examine_all
from fairlead.data_folder import SYSTEM_HOME, SYSTEM_SOCKET, socket_of
from fairlead.journal import Journal
from fairlead.journal.sql import SqlStore
from fairlead.model.specs import Node, Queue, Settings
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, NodeDrained, NodeJoined
from fairlead.scheduler.reports.listings import list_queues
from fairlead.service.clock import Clock


@pytest.fixture
def home(tmp_path):
    """A data folder in which a scheduler ran."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    Clock(home / "clock.json")
    with closing(Journal(SqlStore(home / "journal.db"))) as journal:
        journal.recover()
        journal.begin()
        journal.append([NodeJoined(at=1.0, node=Node("n", {"cpu": 1000})), *[NodeDrained(at=1.0, node="n")] * 2])
    return home


def found(home):
    return {finding.thing: finding for finding in examine_all(home)}


def test_where_nothing_ran_yet(tmp_path):
    seen = found(tmp_path / "none")
    assert [seen[thing].how for thing in ("home", "journal", "scheduler")] == ["look"] * 3
    assert not (tmp_path / "none").exists()


def test_all_is_well(home):
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    seen = found(home)
    assert {thing for thing, finding in seen.items() if finding.how == "wrong"} == set()
    assert (seen["journal"].what, seen["home"].how, seen["clocks"].what) == ("3 facts proved", "well", "agree")
    assert {name: (home / name).read_bytes() for name in before} == before


def open_to_others(home, monkeypatch):
    home.chmod(0o755)


def damaged(home, monkeypatch):
    content = bytearray((home / "journal.db").read_bytes())
    at = content.index(b'"NodeDrained"')
    content[at + 3] ^= 1
    (home / "journal.db").write_bytes(content)


def full(home, monkeypatch):
    real = os.statvfs
    few = SimpleNamespace(f_bavail=10, f_frsize=4096, f_files=1000, f_favail=1000)
    monkeypatch.setattr(os, "statvfs", lambda path: few if str(path) == str(home) else real(path))


def no_more_files(home, monkeypatch):
    none = SimpleNamespace(f_bavail=10**9, f_frsize=4096, f_files=1000, f_favail=3)
    monkeypatch.setattr(os, "statvfs", lambda path: none)


@pytest.mark.parametrize(
    ("spoil", "thing", "says", "helps"),
    [
        (open_to_others, "home", "mode 755", "chmod 700"),
        (damaged, "journal", "damaged", "fairlead journal check"),
        (full, "disk", "0.0 GiB", "free space"),
        (no_more_files, "disk", "only 3 more files", "remove files"),
    ],
)
def test_what_is_wrong_is_found_with_what_helps(home, monkeypatch, spoil, thing, says, helps):
    spoil(home, monkeypatch)
    seen = found(home)
    assert [name for name, finding in seen.items() if finding.how == "wrong"] == [thing]
    assert says in seen[thing].what
    assert helps in seen[thing].help


def test_a_clock_with_another_digit_is_told(home):
    told = json.loads((home / "clock.json").read_text())
    (home / "clock.json").write_text(json.dumps({**told, "begin": told["begin"] + 2e9}))
    assert found(home)["clocks"].what == "clock.json is unreadable"


def test_a_clock_that_was_set_is_told(home, monkeypatch):
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + 7200)
    assert "was set by +7,200 s" in found(home)["clocks"].what


def test_one_that_runs_and_one_whose_supervisor_is_stopped(idle):
    seen = json.loads(idle.ok("doctor", "--json"))["found"]
    assert {each["thing"]: each["how"] for each in seen if each["how"] == "wrong"} == {}
    (supervisor,) = idle.supervisor()
    assert f"runs, as process {supervisor.pid}" in str(seen)
    os.kill(supervisor.pid, signal.SIGSTOP)
    try:
        result = idle.call("doctor")
    finally:
        os.kill(supervisor.pid, signal.SIGCONT)
    assert result.returncode == 1
    assert f"kill -CONT {supervisor.pid}" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert idle.ok("jobs") is not None, "looking took nobody's place"


def test_it_checks_a_folder_here_and_no_scheduler_elsewhere(idle):
    result = idle.call("--url", "https://lab1:7373", "doctor")
    why = "doctor checks a data folder of this machine: name it with --home, or --system, instead of --url"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"fairlead: {why}\n")


def test_the_scheduler_of_the_machine_is_asked_where_it_answers():
    assert socket_of(SYSTEM_HOME) == SYSTEM_SOCKET


def test_another_ones_folder(home):
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    os.chown(home, 12345, 12345)
    assert "belongs to uid 12345" in found(home)["home"].what


def test_a_scheduler_that_stands_still_was_not_killed(home):
    program = "import sys, time; from pathlib import Path; from fairlead.journal.head import HeadFile\n"
    program += "file = HeadFile(Path(sys.argv[1])); print('there', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", program, home / "journal.db"], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout.readline() == b"there\n"
            assert found(home)["scheduler"].how == "look"
            holder.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
            assert found(home)["scheduler"][1:] == ("wrong", f"process {holder.pid} is stopped", f"kill -CONT {holder.pid}")
        finally:
            holder.kill()


def test_a_copy_is_told_as_one(home, tmp_path, capsys):
    copy = shutil.copytree(home, tmp_path / "copy")
    assert found(copy)["journal"][1:] == ("look", "3 facts proved; it is a copy", f"fairlead journal adopt --home {copy}")
    check_journal(copy, as_json=False)
    assert "until you run `fairlead journal adopt`" in capsys.readouterr().out
    check_journal(home, as_json=False)
    assert "adopt" not in capsys.readouterr().out


def test_a_journal_that_was_moved_away_is_missed(home):
    (home / "journal.db").rename(home / "elsewhere")
    seen = found(home)
    assert seen["journal"][1:] == (
        "wrong",
        f"{home}/journal.db is missing, and journal.db.head records 3 facts of it",
        "put it back; to start afresh instead, without its jobs, move journal.db.head away as well",
    )
    (home / "journal.db.head").rename(home / "elsewhere.head")
    seen = found(home)
    assert seen["journal"][1:] == (
        "look",
        f"{home}/journal.db is missing, though a scheduler ran here",
        f"put it back, with journal.db.head; `fairlead up --home {home}` starts afresh, without its jobs",
    )


def test_a_folder_that_was_renamed_is_looked_for_and_found_under_its_new_name(home, monkeypatch):
    new = home.rename(home.with_name("re named"))
    seen = found(home)
    for thing in "home", "journal":
        assert seen[thing][1:] == (
            "look",
            "does not exist yet",
            f"`fairlead up --home {home}` makes it; one that was moved is named with --home",
        )
    seen = found(new)
    assert (seen["journal"].what, seen["scheduler"].help) == ("3 facts proved", f"fairlead up --home '{new}'")
    monkeypatch.setenv("FAIRLEAD_HOME", str(new))
    assert found(new)["scheduler"].help == "fairlead up", "it is the one that commands use by default"


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ("rw", "look"),
        ("rw,hidepid=off", "look"),
        ("rw,hidepid=1", "well"),
        ("rw,gid=5,hidepid=invisible", "well"),
        ("rw,hidepid=ptraceable", "well"),
    ],
)
def test_on_a_shared_scheduler_it_says_who_sees_the_arguments_of_commands(home, monkeypatch, tmp_path, options, how):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 27 0:21 / /proc rw,relatime shared:5 - proc proc {options}\n")
    monkeypatch.setattr("fairlead.cli.doctor.MOUNTS", mounts)
    (finding,) = (each for each in examine_all(home, shared=True) if each.thing == "arguments")
    assert finding.how == how
    assert finding.help == ("mount -o remount,hidepid=2 /proc, and in /etc/fstab" if how == "look" else "")
    assert ("every account sees the arguments of all commands" in finding.what) == (how == "look")
    assert "arguments" not in found(home)


def test_scaled_guarantees_are_named(home, monkeypatch):
    class Answers:
        def __init__(self, *_, **__): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def get(self, path):
            return (
                {"queues": list_queues(state)}
                if path == "/v1/queues"
                else {"step": 0.0, "output": None, "version": fairlead.__version__, "pid": 1}
            )

    state = new_state()
    queues = [Queue("a", guarantee={"cpu": 6000}), Queue("b", guarantee={"cpu": 2000})]
    apply(state, Configured(at=0.0, queues=queues, settings=Settings()))
    apply(state, NodeJoined(at=0.0, node=Node("n", {"cpu": 4000})))
    monkeypatch.setattr("fairlead.cli.doctor.Connection", Answers)
    seen = found(home)["guarantees"]
    assert (seen.how, seen.what) == ("look", "scaled to what there is: a has 3 of 6 cpu, b has 1 of 2 cpu")
    apply(state, NodeJoined(at=0.0, node=Node("m", {"cpu": 4000})))
    assert found(home)["guarantees"].how == "well"


def test_a_node_is_heard_once_it_has_answered_this_scheduler(home, monkeypatch):
    (home / "keys").mkdir()
    known = {"status": "up", "silent": None, "version": None, "clock_ahead": None}
    nodes = [{**known, "name": "a", "unheard": None}, {**known, "name": "b", "unheard": 3.0, "silent": 12.0}]
    monkeypatch.setattr("fairlead.cli.doctor._asked", lambda home, what: {"nodes": nodes, "queues": [], "output": None})
    seen = found(home)["nodes"]
    assert (seen.how, seen.what) == ("look", "not heard since the scheduler's restart: b (3s)")
    nodes.pop()
    assert found(home)["nodes"].how == "well"
