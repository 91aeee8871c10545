"""Machines that join by the real command: a scheduler and nodes as processes of their own, with homes of their own.

A proxy of these tests stands between, so that a link can be cut.
"""

import contextlib
import json
import re
import signal
import socket
import subprocess
import threading
import time

import psutil
import pytest

import fairlead
from conftest import FAIRLEAD, Live, supervisor_of
from fairlead.cli.top_pages import page_rows


class Proxy:
    """Passes connections on to a port until it is cut; then it is silent, as a network that lost a cable."""

    def __init__(self, port):
        self.port, self.is_cut, self.delay = port, False, 0.0
        self.lines = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                here, _ = self.listener.accept()
                if self.is_cut:
                    self.lines.append(here)
                    continue
                try:
                    there = socket.create_connection(("127.0.0.1", self.port))
                except OSError:
                    here.close()
                    continue
                self.lines += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    def copy(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                time.sleep(self.delay)
                while self.is_cut:
                    time.sleep(0.02)
                other.sendall(data)
        if not self.is_cut:
            for line in (one, other):
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)

    def mend(self):
        """What was on its way is lost."""
        for line in self.lines:
            line.close()
        self.lines, self.is_cut = [], False

    def close(self):
        self.listener.close()
        self.mend()


class Lab(Live):
    """A scheduler that takes nodes, and nodes `lab2` and `lab3`, each behind a proxy."""

    def __init__(self, folder):
        super().__init__(folder)
        self.config.write_text('[[node]]\nname = "lab1"\ncapacity = { cpu = 2, memory = "4Gi" }\n')
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.proxies, self.joins = {}, {}

    def start_up(self):
        self.up("--nodes", f"127.0.0.1:{self.port}", "--lost-after", "2")

    def token(self, *more):
        return self.ok("node", "token", *more).strip()

    def join(self, name, *more, program=FAIRLEAD):
        """Start the command that makes a node of this machine, as if it were another."""
        proxy = self.proxies.get(name) or Proxy(self.port)
        self.proxies[name] = proxy
        home = self.folder / name
        config = self.folder / f"{name}.toml"
        config.write_text(f'[[node]]\nname = "{name}"\ncapacity = {{ cpu = 2, memory = "2Gi" }}\nlabels = {{ at = "{name}" }}\n')
        command = [program, "node", "join", proxy.address, *more, "--home", str(home), "--config", str(config)]
        log = (self.folder / f"{name}.log").open("ab")
        self.joins[name] = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)

    def said(self, name):
        return (self.folder / f"{name}.log").read_text()

    def status(self, name):
        return next((node["status"] for node in self.ask("nodes")["nodes"] if node["name"] == name), None)

    def supervisor_on(self, name):
        (found,) = supervisor_of(self.folder / name / "node")
        return found

    def task(self, job, index=0):
        return next(task for task in self.ask(f"jobs/{job}/tasks")["tasks"] if task["index"] == index)

    def waits_for(self, job, node):
        """A job that waits for a file, and writes down each start."""
        self.until(lambda: self.task(job)["status"] == "running")
        assert self.task(job)["node"] == node

    def long(self, node, mark):
        words = f"echo $FAIRLEAD_NUMBER >> {mark}; until test -e {mark}.go; do sleep 0.05; done"
        job = self.submit("--on", f"at={node}", "--cpu", "1", "--", "sh", "-c", words)
        self.waits_for(job, node)
        return job

    def close(self):
        for process in self.joins.values():
            process.kill()
            process.wait()
        for name in self.proxies:
            for process in supervisor_of(self.folder / name / "node"):
                for child in process.children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
                process.resume()
                process.kill()
        super().close()
        for proxy in self.proxies.values():
            proxy.close()


@pytest.mark.timeout(300)
def test_three_machines(tmp_path):
    """What works on one machine works over those that joined; links are cut, and processes killed, in turn."""
    with Lab(tmp_path) as lab:
        lab.start_up()
        for name in ("lab2", "lab3"):
            lab.join(name, lab.token())
        lab.until(lambda: lab.status("lab2") == lab.status("lab3") == "up", 30)
        machines_join_by_a_command_and_run_tasks(lab)
        a_token_is_for_one_machine_and_for_a_while(lab)
        a_node_rotates_its_key_while_tasks_run_on(lab)
        no_task_runs_twice_over_a_slow_link_that_breaks(lab)
        tasks_run_on_while_the_scheduler_is_away_and_are_adopted(lab)
        what_ran_on_a_node_that_was_cut_off_ends_there_and_then_runs_again(lab)
        a_node_whose_supervisor_dies_starts_another_and_one_that_stands_still_is_lost(lab)
        a_node_leaves_when_it_is_empty_or_ends_what_runs(lab)


def machines_join_by_a_command_and_run_tasks(lab):
    nodes = {node["name"]: node for node in lab.ask("nodes")["nodes"]}
    assert nodes.keys() == {"lab1", "lab2", "lab3"}
    assert nodes["lab2"]["labels"] == {"at": "lab2", "host": "127.0.0.1"}
    seen = nodes["lab2"]
    assert seen["heard"] < 10
    assert abs(seen["clock_ahead"]) < 60
    assert [nodes["lab1"][key] for key in ("heard", "version")] == [None, None]
    assert re.search(r"lab2 .*\d+s ago +0\.1\.0 +[+-]\d\.\ds", lab.ok("nodes"))
    shown = page_rows("nodes", lab.ask("nodes"), 0, 100, 10)
    assert any(re.search(r"lab2 .* ago +0\.1\.0 ", line.plain) for line in shown)
    metrics = lab.http("GET", "/metrics")[1]
    assert 'fairlead_node_info{node="lab2",version="0.1.0"} 1.0' in metrics
    assert re.search(r'fairlead_node_heard_seconds{node="lab2"} \d', metrics)
    assert re.search(r'fairlead_node_clock_ahead_seconds{node="lab2"} -?\d', metrics)
    found = {each["thing"]: each["what"] for each in json.loads(lab.call("doctor", "--json").stdout)["found"]}
    assert found["nodes"] == "3 nodes are heard, with the same fairlead and clocks"
    assert "node lab2 shares cpu 2  memory 2Gi" in lab.said("lab2")
    for name in ("lab2", "lab3"):
        done = lab.call("run", "--on", f"at={name}", "--", "sh", "-c", "read x; echo $x; exit 3", input="word\n")
        assert (done.returncode, done.stdout) == (3, "word\n")
    sent = lab.folder / "sent"
    sent.mkdir()
    (sent / "in").write_text("word")
    words = ["--on", "at=lab2", "--send", str(sent), "--cwd", str(sent), "--fetch", "o", "--", "sh", "-c", "mkdir o; cp in o/x"]
    job = lab.submit(*words)
    lab.ok("wait", str(job))
    lab.ok("fetch", str(job), "--to", str(lab.folder / "back"))
    assert (lab.folder / "back" / "o" / "x").read_text() == "word"
    gang = lab.submit("--gang", "-n", "3", "--cpu", "2", "--", "sh", "-c", "echo $FAIRLEAD_RANK $FAIRLEAD_MASTER")
    lab.ok("wait", str(gang))
    assert [lab.ok("logs", f"{gang}.{index}") for index in range(3)] == [f"{index} 127.0.0.1\n" for index in range(3)]
    kept = (lab.home / "keys" / "tokens.json").read_text()
    assert json.loads(kept) == [], "each was used up"
    for path in (lab.home / "keys").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def a_token_is_for_one_machine_and_for_a_while(lab):
    named, short = lab.token("--name", "lab9"), lab.token("--expires", "0.01s")
    secret = named.split(".")[1]
    assert secret not in (lab.home / "keys" / "tokens.json").read_text()

    def join(token, *more):
        return lab.call("node", "join", f"127.0.0.1:{lab.port}", token, "--home", str(lab.folder / "other"), *more)

    refused = {
        short: "the token is unknown, used or expired: make another with `fairlead node token`",
        "word": "this is no token that `fairlead node token` printed",
        f"{named[:-4]}AAAA": f"127.0.0.1:{lab.port} is not the scheduler that made the token: check the address",
    }
    for token, why in refused.items():
        done = join(token)
        assert (done.returncode, done.stderr) == (1, f"fairlead: {why}\n")
    done = join(lab.token(), "--name", "lab2")
    assert "there is a node 'lab2' already: give another name with --name" in done.stderr
    done = lab.call("node", "join", "127.0.0.1:1", named, "--home", str(lab.folder / "other"))
    assert done.stderr == "fairlead: 127.0.0.1:1: no scheduler takes nodes there: Connection refused\n"
    done = lab.call("node", "join", "127.0.0.1:1", "--home", str(lab.folder / "other"))
    assert "this machine is no node yet" in done.stderr


def a_node_rotates_its_key_while_tasks_run_on(lab):
    place = lab.folder / "lab2" / "node" / "supervisor"
    before, mark = (place / "own.pem").read_text(), lab.folder / "rotated"
    job = lab.long("lab2", mark)
    for _ in range(2):
        was = (place / "own.pem").read_text()
        done = lab.call("node", "rotate", "--home", str(lab.folder / "lab2"))
        assert (done.returncode, done.stderr) == (0, "fairlead: node lab2 has a new key; its tasks run on\n")
        assert (place / "own.pem").read_text() != was
    assert (place / "own.pem").stat().st_mode & 0o077 == 0
    (place / "own.pem").rename(place / "kept.pem")
    (place / "own.pem").write_text(before)
    done = lab.call("node", "rotate", "--home", str(lab.folder / "lab2"))
    assert "its certificate is unknown or has expired: join with a token" in done.stderr
    (place / "kept.pem").rename(place / "own.pem")
    assert lab.ok("run", "--on", "at=lab2", "--", "echo", "there") == "there\n"
    (lab.folder / "rotated.go").touch()
    lab.ok("wait", str(job))
    assert mark.read_text() == "1\n"


def no_task_runs_twice_over_a_slow_link_that_breaks(lab):
    """Each message takes a tenth of a second, and what is on its way is lost three times."""
    proxy, twice = lab.proxies["lab2"], lab.folder / "twice"
    proxy.delay = 0.1
    words = f"flock -n {lab.folder}/$FAIRLEAD_INDEX.lock sh -c 'sleep 0.3; echo $FAIRLEAD_INDEX' || touch {twice}"
    job = lab.submit("--on", "at=lab2", "--cpu", "1", "-n", "4", "--", "sh", "-c", words)
    for _ in range(3):
        time.sleep(0.4)
        proxy.mend()
    lab.ok("wait", str(job))
    lab.until(lambda: lab.status("lab2") == "up", 30)
    assert not twice.exists()
    for index in range(4):
        assert {*lab.ok("logs", f"{job}.{index}").split()} == {str(index)}
    proxy.delay = 0.0


def tasks_run_on_while_the_scheduler_is_away_and_are_adopted(lab):
    """For longer than the lease, since it said that it goes; and by one that was killed, if it is back in time."""
    mark = lab.folder / "away"
    job = lab.long("lab2", mark)
    lab.process.terminate()
    lab.process.wait(30)
    time.sleep(4)
    lab.start_up()
    lab.until(lambda: float((lab.home / "lost_after").read_text()) == 2.0)  # it knows that it is back
    lab.kill()
    lab.start_up()
    lab.until(lambda: lab.status("lab2") == "up")
    (lab.folder / "away.go").touch()
    lab.ok("wait", str(job))
    assert mark.read_text() == "1\n"


def what_ran_on_a_node_that_was_cut_off_ends_there_and_then_runs_again(lab):
    mark = lab.folder / "cut"
    lab.until(lambda: lab.status("lab2") == "up")
    job = lab.long("lab2", mark)
    (running,) = lab.supervisor_on("lab2").children()
    lab.proxies["lab2"].is_cut = True
    lab.until(lambda: lab.status("lab2") == "lost", 30)
    assert lab.ask(f"jobs/{job}/why")["text"].endswith("no node has at=lab2; lab2, which could hold it, is lost")
    (seen,) = [node for node in lab.ask("nodes")["nodes"] if node["name"] == "lab2"]
    assert (seen["version"], seen["heard"] > 2) == (fairlead.__version__, True)
    assert not running.is_running() or running.status() == psutil.STATUS_ZOMBIE
    assert mark.read_text() == "1\n"
    lab.proxies["lab2"].mend()
    lab.until(lambda: lab.status("lab2") == "up", 40)
    lab.until(lambda: mark.read_text() == "1\n2\n")
    (lab.folder / "cut.go").touch()
    lab.ok("wait", str(job))


def a_node_whose_supervisor_dies_starts_another_and_one_that_stands_still_is_lost(lab):
    mark = lab.folder / "killed"
    job = lab.long("lab3", mark)
    lab.supervisor_on("lab3").kill()
    lab.until(lambda: mark.read_text() == "1\n2\n", 40)
    frozen = lab.supervisor_on("lab3")
    frozen.suspend()
    lab.until(lambda: lab.status("lab3") == "lost", 30)
    frozen.resume()
    lab.until(lambda: lab.status("lab3") == "up", 30)
    lab.until(lambda: mark.read_text() == "1\n2\n3\n", 40)
    (lab.folder / "killed.go").touch()
    lab.ok("wait", str(job))


def a_node_leaves_when_it_is_empty_or_ends_what_runs(lab):
    mark = lab.folder / "leaves"
    job = lab.long("lab3", mark)
    leaving = lab.start("node", "leave", "--home", str(lab.folder / "lab3"))
    lab.until(lambda: lab.status("lab3") == "draining", 30)
    assert leaving.poll() is None
    (lab.folder / "leaves.go").touch()
    lab.ok("wait", str(job))
    leaving.wait(30)
    lab.joins["lab3"].wait(30)
    assert "this machine has left" in lab.said("lab3")
    lab.until(lambda: lab.status("lab3") == "lost")
    (found,) = [each for each in json.loads(lab.call("doctor", "--json").stdout)["found"] if each["thing"] == "nodes"]
    assert (found["how"], found["what"]) == ("look", "lost: lab3")
    assert not (lab.folder / "lab3" / "node").exists()
    other = lab.long("lab2", lab.folder / "ctrl-c")
    lab.joins["lab2"].send_signal(signal.SIGINT)
    assert lab.joins["lab2"].wait(30) == 0
    lab.until(lambda: lab.status("lab2") == "lost")
    assert lab.task(other)["status"] == "waiting"
    lab.join("lab2")
    lab.until(lambda: lab.status("lab2") == "up")
    lab.until(lambda: (lab.folder / "ctrl-c").read_text() == "1\n2\n", 40)
    (lab.folder / "ctrl-c.go").touch()
    lab.ok("wait", str(other))


@pytest.mark.parametrize("words", [["up"], ["node", "join", "lab1", "token"]])
def test_other_systems_are_told_in_a_line_that_they_cannot(command, monkeypatch, words):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    done = command(*words)
    assert done.returncode == 1
    assert done.stderr == (
        "fairlead: schedulers and nodes run on Linux, and this is Darwin: use WSL on Windows, or a scheduler elsewhere by "
        "FAIRLEAD_URL\n"
    )
