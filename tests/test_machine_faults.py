"""What fails on machines, links and keys: on real processes, most of it at the same time, each on a node of its own.

Each task holds a lock while it runs, so two attempts of it at once would be seen; each writes down its start.
"""

import contextlib
import json
import resource
import shutil
import ssl
import time

import psutil
import pytest

import fairlead
from fairlead import tls
from fairlead.engines.remote import keys
from lab import Lab, PreloadedClock
from test_remote_engine import answer

NODES = ("killed", "stopped", "cut", "off", "full")
HOUR = 3600
LOST_AFTER = 6
"""Seconds; a busy machine may keep a process waiting for some, and then its node is lost although nothing is wrong."""


@pytest.mark.timeout(300)
def test_no_fault_of_a_machine_loses_a_task_or_runs_one_twice(tmp_path, monkeypatch):
    with Lab(tmp_path) as lab:
        lab.start_up(LOST_AFTER)
        clock = PreloadedClock(tmp_path)
        clock.set(wall=5 * HOUR)
        for name in NODES:
            lab.join(name, lab.token(), env=clock.env if name == "off" else None)
        lab.until(lambda: all(lab.status(name) == "up" for name in NODES), 60)
        jobs = {name: lab.long(name, tmp_path / f"{name}.ran") for name in NODES}
        all_of_it_at_once(lab, clock, jobs)
        what_was_on_its_way_is_lost_over_a_slow_link(lab)
        clock.set(wall=5 * HOUR)
        the_scheduler_is_away_for_an_hour_and_then_for_longer(lab, clock)
        keys_expire(lab, monkeypatch)
        for name, job in jobs.items():
            (tmp_path / f"{name}.ran.go").touch()
            lab.ok("wait", str(job))
        for name in NODES:
            began = starts(lab, name)
            assert began == [str(number + 1) for number in range(len(began))], (
                f"{name}: each attempt began once, when the last had ended"
            )


def starts(lab, name):
    return (lab.folder / f"{name}.ran").read_text().split()


def a_call_that_runs_on(node, lab):
    """Over a relay; returns its client and future."""

    def mark(path):
        with path.open("a") as file:
            file.write("x")
        time.sleep(1000)

    client = fairlead.Client(lab.home, memory="256MiB", on={"at": node})
    client._caller.leases._begin()
    client._caller.leases.address = "nobody"
    call = client.submit(mark, lab.folder / "called")
    lab.until((lab.folder / "called").exists, 60)
    return client, call


def all_of_it_at_once(lab, clock, jobs):
    """A supervisor is killed, one stopped; a link is cut, a clock set back by a day, a disk full. Then all is mended."""
    assert "this clock is 18000 s ahead of the scheduler's: set both by NTP" in lab.said("off")
    (cut,) = lab.supervisor_on("cut").children()
    client, call = a_call_that_runs_on("cut", lab)
    stopped, full = lab.supervisor_on("stopped"), lab.supervisor_on("full")
    lab.supervisor_on("killed").kill()
    frozen = [stopped.parent(), stopped, *stopped.children()]
    for process in frozen:
        process.suspend()
    lab.proxies["cut"].is_cut = True
    clock.set(wall=-30 * HOUR)
    room = psutil.Process(full.pid).rlimit(resource.RLIMIT_FSIZE)
    full.rlimit(resource.RLIMIT_FSIZE, (0, room[1]))  # each write of it to a file fails; for this nobody needs to be root
    waits = lab.submit("--on", "at=full", "--cpu", "1", "--", "sh", "-c", f"echo started >> {lab.folder}/waits")
    lab.until(lambda: lab.status("stopped") == lab.status("cut") == "lost", 60)
    assert isinstance(call.exception(timeout=60), fairlead.CallFailed)
    assert (lab.folder / "called").read_text() == "x", "it started once"
    client.shutdown(cancel_futures=True)
    assert not cut.is_running() or cut.status() == psutil.STATUS_ZOMBIE, "it ended before it counts as lost"
    assert lab.ask(f"jobs/{jobs['cut']}/why")["text"].endswith("no node has at=cut; cut, which could hold it, is lost")
    (seen,) = [node for node in lab.ask("nodes")["nodes"] if node["name"] == "cut"]
    assert (seen["version"], seen["heard"] > 2) == (fairlead.__version__, True)
    found = {each["thing"]: each["what"] for each in json.loads(lab.call("doctor", "--json").stdout)["found"]}
    assert "lost: " in found["nodes"]
    assert "clock off: off (+18000 s)" in found["nodes"]
    assert starts(lab, "off") == ["1"], "no task depends on the clock of the wall"
    assert lab.task(waits)["status"] == "starting"
    assert not (lab.folder / "waits").exists(), "nothing starts of which the node can keep no record"
    assert starts(lab, "full") == ["1"]
    full.rlimit(resource.RLIMIT_FSIZE, room)
    for process in reversed(frozen):
        process.resume()
    lab.proxies["cut"].mend()
    lab.until(lambda: all(lab.status(name) == "up" for name in NODES), 60)
    lab.until(lambda: all(starts(lab, name)[-1] != "1" for name in ("killed", "stopped", "cut")), 60)
    lab.ok("wait", str(waits))
    assert (lab.folder / "waits").read_text() == "started\n"


def what_was_on_its_way_is_lost_over_a_slow_link(lab):
    """Each message takes a tenth of a second, and what is on its way is lost three times."""
    proxy, twice = lab.proxies["full"], lab.folder / "twice"
    proxy.delay = 0.1
    words = f"flock -n {lab.folder}/$FAIRLEAD_INDEX.lock sh -c 'sleep 0.3; echo $FAIRLEAD_INDEX' || touch {twice}"
    job = lab.submit("--on", "at=full", "--cpu", "1", "-n", "2", "--", "sh", "-c", words)
    for _ in range(3):
        time.sleep(0.4)
        proxy.mend()
    lab.ok("wait", str(job))
    proxy.delay = 0.0
    lab.until(lambda: lab.status("full") == "up", 60)
    assert not twice.exists()
    for index in range(2):
        assert {*lab.ok("logs", f"{job}.{index}").split()} == {str(index)}


def the_scheduler_is_away_for_an_hour_and_then_for_longer(lab, clock):
    """It said that it goes: so tasks run on, for two hours. Each start of it has a certificate of its own.

    Then it is killed, and is back before a lease is over.
    """
    before = ssl.get_server_certificate(("127.0.0.1", lab.port))
    (task,) = lab.supervisor_on("off").children()
    lab.process.terminate()
    lab.process.wait(60)
    clock.set(-720 * HOUR, HOUR)  # the wall is a month back, from before the new certificate was made
    time.sleep(3)
    assert task.is_running()
    lab.start_up(LOST_AFTER)
    lab.until(lambda: float((lab.home / "lost_after").read_text()) == LOST_AFTER)  # it knows that it is back
    assert starts(lab, "off") == ["1"]
    assert ssl.get_server_certificate(("127.0.0.1", lab.port)) != before
    lab.process.terminate()
    lab.process.wait(60)
    clock.set(-720 * HOUR, 4 * HOUR)
    task.wait(60)
    lab.start_up(lost_after=60)
    lab.until(lambda: starts(lab, "off")[:2] == ["1", "2"])
    lab.until(lambda: all(lab.status(name) == "up" for name in NODES))
    before = {name: starts(lab, name) for name in NODES}
    lab.kill()
    lab.start_up(lost_after=60)
    lab.until(lambda: all(lab.status(name) == "up" for name in NODES))
    assert {name: starts(lab, name) for name in NODES} == before


def keys_expire(lab, monkeypatch):
    before = starts(lab, "killed")
    place = lab.folder / "killed" / "node" / "supervisor"
    scheduler = (place / "scheduler.pem").read_text()
    with monkeypatch.context() as expired:
        expired.setattr(keys, "YEARS", -1 / 365)
        (place / "next.pem").write_text(keys.make_certificate("expired"))
    lab.ok("node", "rotate", "--home", str(lab.folder / "killed"))
    assert answer(lab.port, tls.dialing(place / "own.pem", scheduler)) == b"", "it is not heard"
    done = lab.call("node", "rotate", "--home", str(lab.folder / "killed"))
    assert "its certificate has expired: join with a token of `fairlead node token --name NODE`" in done.stderr
    lab.joins["killed"].terminate()
    assert lab.joins["killed"].wait(60) == 0
    lab.join("killed", lab.token("--name", "killed"))

    def is_greeted():
        with contextlib.suppress(ssl.SSLError):  # its file was replaced after the certificate was read, and before the key was
            return "greet" in str(answer(lab.port, tls.dialing(place / "own.pem", scheduler)))

    lab.until(is_greeted, 60)
    lab.until(lambda: lab.status("killed") == "up", 60)
    assert starts(lab, "killed") == before, "what ran goes on"


@pytest.mark.timeout(180)
def test_who_joins_in_the_place_of_a_node_starts_nothing_before_its_tasks_have_ended(tmp_path):
    """One folder is removed while its supervisor runs, and joins again there; another node joins again in a second folder."""
    with Lab(tmp_path) as lab:
        lab.start_up(LOST_AFTER)
        for name in ("removed", "moved"):
            lab.join(name, lab.token())
        lab.until(lambda: all(lab.status(name) == "up" for name in ("removed", "moved")), 60)
        jobs = {name: lab.long(name, tmp_path / f"{name}.ran") for name in ("removed", "moved")}
        last = {name: lab.supervisor_on(name) for name in jobs}
        shutil.rmtree(tmp_path / "removed")
        assert lab.joins["removed"].wait(60) == 0
        lab.join("removed", lab.token("--name", "removed"))
        lab.join("again", lab.token("--name", "moved"), at="moved")
        for name in jobs:
            lab.until(lambda name=name: len(starts(lab, name)) > 1, 60)
            assert starts(lab, name) == ["1", "2"], f"{name}: the second began when the first had ended"
            lab.until(lambda name=name: not last[name].is_running(), 60)
        assert "node moved has joined again elsewhere" in lab.log.read_text()
        assert "the scheduler has forgotten node moved" in lab.said("moved")
        (tmp_path / "removed.ran.go").touch()
        lab.ok("wait", str(jobs["removed"]))
        it_runs_on_while_the_scheduler_is_away_and_another_joins_in_its_place(lab)


def it_runs_on_while_the_scheduler_is_away_and_another_joins_in_its_place(lab):
    """The next scheduler has not heard it, and knows nothing of where it is."""
    lab.process.terminate()
    lab.process.wait(60)
    lab.proxies["again"].is_cut = True
    lab.start_up(LOST_AFTER)
    lab.join("third", lab.token("--name", "moved"), at="moved")
    lab.until(lambda: lab.log.read_text().count("node moved has joined again elsewhere") == 2, 60)
    time.sleep(1)
    assert starts(lab, "moved") == ["1", "2"]
    lab.proxies["again"].mend()
    lab.until(lambda: "the scheduler has forgotten node moved" in lab.said("again"), 60)
