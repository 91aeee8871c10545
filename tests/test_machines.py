"""Machines that join by the real command, share, and leave; `test_machine_faults` breaks them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

import fairlead
from conftest import supervisor_of
from fairlead.cli.top_screen import page_rows
from fairlead.engines.remote.joining import Request, ask_to_join
from fairlead.engines.remote.keys import certificate_in, make_certificate
from fairlead.people.accounts import myself
from lab import Lab


@pytest.mark.timeout(300)
def test_three_machines(tmp_path):
    """What works on one machine works over those that joined; links are cut, and processes killed, in turn."""
    with Lab(tmp_path) as lab:
        lab.start_up(lost_after=10)  # a busy machine may keep a process waiting for some seconds
        for name in ("lab2", "lab3"):
            lab.join(name, lab.token())
        lab.until(lambda: lab.status("lab2") == lab.status("lab3") == "up")
        machines_join_by_a_command_and_run_tasks(lab)
        a_gang_runs_on_nodes_of_its_own_and_its_tasks_find_each_other(lab)
        a_token_is_for_one_machine_and_for_a_while(lab)
        a_copy_of_a_node_does_not_join(lab)
        a_node_rotates_its_key_while_tasks_run_on(lab)
        a_node_leaves_when_it_is_empty_or_ends_what_runs(lab)
        a_machine_that_is_forgotten_ends_and_says_so(lab)


def machines_join_by_a_command_and_run_tasks(lab):
    nodes = {node["name"]: node for node in lab.ask("nodes")["nodes"]}
    assert nodes.keys() == {"lab1", "lab2", "lab3"}
    assert nodes["lab2"]["labels"] == {"at": "lab2", "host": "127.0.0.1"}
    seen = nodes["lab2"]
    assert seen["heard"] < 10
    assert abs(seen["clock_ahead"]) < 60
    assert [nodes["lab1"][key] for key in ("heard", "version")] == [None, None]
    assert re.search(rf"lab2 .*\d+s ago +{re.escape(fairlead.__version__)} +[+-]\d\.\ds", lab.ok("nodes"))
    shown = page_rows("nodes", lab.ask("nodes"), 0, 100, 10)
    assert any(re.search(rf"lab2 .* ago +{re.escape(fairlead.__version__)} ", line.plain) for line in shown)
    entries = [(entry["by"], entry["what"]) for entry in lab.http("GET", "/v1/log")[1]["log"]]
    assert entries.count(("node lab2", "joined as node lab2")) == 1
    own = lab.config.read_text()
    lab.config.write_text(own.replace("cpu = 2", "cpu = 3"))
    assert lab.ok("reload") == "the configuration is in force\n"
    lab.until(lambda: [each["capacity"]["cpu"] for each in lab.ask("nodes")["nodes"] if each["name"] == "lab1"] == [3000])
    lab.config.write_text(f'{own}\n[[node]]\nname = "more"\ncapacity = {{ cpu = 1 }}\n')
    assert "with --nodes this machine is one node: name one" in lab.call("reload").stderr
    lab.config.write_text(own)
    lab.ok("reload")
    metrics = lab.http("GET", "/metrics")[1]
    assert f'fairlead_node_info{{node="lab2",version="{fairlead.__version__}"}} 1.0' in metrics
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
    calls_go_over_a_relay(lab)
    gang = lab.submit("--gang", "-n", "3", "--cpu", "2", "--", "sh", "-c", "echo $FAIRLEAD_RANK $FAIRLEAD_MASTER")
    lab.ok("wait", str(gang))
    assert [lab.ok("logs", f"{gang}.{index}") for index in range(3)] == [f"{index} 127.0.0.1\n" for index in range(3)]
    assert json.loads(lab.call("journal", "check", "--json").stdout)["members"] == ["lab2", "lab3"]
    for path in (lab.home / "keys").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def calls_go_over_a_relay(lab):
    """Of a program that no worker reaches."""
    with fairlead.Client(lab.home, memory="256MiB", on={"at": "lab2"}) as client:
        client._caller.leases._begin()
        client._caller.leases.address = "nobody"
        futures = [client.submit(pow, x, 2) for x in range(50)]
        assert [future.result(timeout=60) for future in futures] == [x * x for x in range(50)]
        assert client.submit(bytes.upper, b"x" * 2**22).result(timeout=60) == b"X" * 2**22


REDUCE = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(("", where[1])) as listener:
        others = [listener.accept()[0] for _ in range(size - 1)]
        total = 1 + sum(int(other.recv(9)) for other in others)
        for other in others:
            other.sendall(b"%d" % total)
else:
    while True:
        try:
            line = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    line.sendall(b"%d" % (rank + 1))
    total = int(line.recv(9))
print(total, rank, [os.environ[f"FAIRLEAD_{name}"] for name in ("RANK", "SIZE", "HOSTS")], os.environ["NODE_RANK"])
"""


def a_gang_runs_on_nodes_of_its_own_and_its_tasks_find_each_other(lab):
    """A program as of torchrun, which adds up over the gang's port; the nodes have room for two tasks each."""
    (lab.folder / "reduce.py").write_text(REDUCE)
    python = [sys.executable, str(lab.folder / "reduce.py")]
    hosts = ",".join(["127.0.0.1"] * 3)
    done = lab.call("run", "--nodes", "3", "--", *python)
    assert (done.returncode, done.stdout) == (0, f"6 0 ['0', '3', '{hosts}'] 0\n"), done.stderr
    first = lab.ask("jobs")["jobs"][0]["id"]
    found = lab.ask(f"jobs/{first}/tasks")["tasks"]
    assert {task["node"] for task in found} == {"lab1", "lab2", "lab3"}
    assert [lab.ok("logs", f"{first}.{rank}").split()[:2] for rank in range(3)] == [["6", str(rank)] for rank in range(3)]
    job = lab.submit("--nodes", "2", "--on", "at=lab2|lab3", "--env", "RANK=own", "--", "sh", "-c", "echo $RANK")
    lab.ok("wait", str(job))
    assert lab.ok("logs", f"{job}.1") == "own\n"
    done = lab.call("run", "--nodes", "2", "--", "sh", "-c", "[ $RANK = 0 ] && exec sleep 1000; exit 5")
    assert done.returncode == 5
    job = lab.ask("jobs")["jobs"][0]["id"]
    assert {task["status"] for task in lab.ask(f"jobs/{job}/tasks")["tasks"]} == {"cancelled", "failed"}
    assert lab.ask(f"jobs/{job}")["status"] == "failed"
    words = "[ $RANK = 0 ] && exit 0; [ $FAIRLEAD_NUMBER = 2 ] && exec echo $FAIRLEAD_HOSTS; "
    words += "until test -e over; do sleep 0.02; done; exit 1"
    job = lab.submit("--nodes", "2", "--retries", "1", "--", "sh", "-c", words)
    lab.until(lambda: lab.task(job)["status"] == "succeeded")
    (lab.folder / "over").touch()
    lab.ok("wait", str(job))
    assert lab.ok("logs", f"{job}.1") == ",127.0.0.1\n", "the first is over"
    done = lab.call("run", "--nodes", "2", "--led", "--", "sh", "-c", "[ $RANK = 0 ] || exec sleep infinity; echo led")
    assert (done.returncode, done.stdout) == (0, "led\n")
    assert lab.ask("jobs")["jobs"][0]["status"] == "succeeded"
    (lab.folder / "jobs").write_text('{"command": ["echo", "{index}"], "nodes": 2}\n')
    job = lab.ok("submit", "--jobs", str(lab.folder / "jobs")).strip()
    lab.ok("wait", job)
    assert lab.ok("logs", f"{job}.1") == "1\n"
    with fairlead.Client(lab.home) as client:
        job = client.submit_job(["true"], nodes=3, cpu=1, memory="64MiB")
        assert job.wait()["fit"] == "apart"
        assert {task["node"] for task in job.tasks()} == {"lab1", "lab2", "lab3"}
    assert "now" in lab.ok("submit", "--when", "--nodes", "3", "--led", "--", "true")
    assert "now" in lab.ok("when", "--nodes", "3")
    assert "never" in lab.ok("when", "--nodes", "4")
    assert "--tasks and --nodes exclude each other" in lab.call("when", "--nodes", "2", "-n", "2").stderr
    for words, why in (
        (["--nodes", "0"], "--nodes: use 1 or more"),
        (["--nodes", "2", "-n", "2"], "--tasks, --array, --nodes and ::: exclude each other: give one of them"),
        (["--nodes", "2", "--pack"], "--pack: tasks of --nodes go to different nodes: omit one of them"),
        (["--nodes", "2", "--at-most", "1"], "--at-most: a gang starts all its tasks at once: omit it"),
        (["--nodes", "2", "--ray"], "--tasks, --array, --nodes and ::: exclude each other: give one of them"),
    ):
        assert lab.call("submit", *words, "--", "true").stderr == f"fairlead: {why}\n"
    script = lab.folder / "two.sh"
    lines = ["#!/bin/bash", "#SBATCH --nodes=2 --ntasks-per-node=1 --mem=1G", "first=$(scontrol show hostnames | head -n 1)"]
    lines += ['srun sh -c "echo $first $SLURM_PROCID of $SLURM_NTASKS on $SLURM_NNODES, $SLURM_CPUS_PER_TASK each"']
    script.write_text("\n".join(lines))
    said = lab.call("submit", str(script))
    assert "the whole script runs on each node" in said.stderr
    lab.ok("wait", said.stdout.strip())
    logs = [lab.ok("logs", f"{said.stdout.strip()}.{rank}") for rank in range(2)]
    assert logs == [f"127.0.0.1 {rank} of 2 on 2, 1 each\n" for rank in range(2)]
    said = lab.call("submit", "--nodes", "4", "--", "true")
    assert said.stderr == "fairlead: 3 nodes could hold a task of cpu=1 memory=1Gi, not 4: the job waits for more to join\n"
    job = int(said.stdout)
    text = "a gang of 4, each on a node of its own, and all nodes, even empty, hold at most 3 of its tasks"
    assert text in lab.ask(f"jobs/{job}/why")["text"]
    lab.ok("cancel", str(job))
    said = lab.call("submit", "--nodes", "4", "--strict", "--", "true")
    assert (said.returncode, said.stdout) == (1, "")


def a_token_is_for_one_machine_and_for_a_while(lab):
    named, short = lab.token("--name", "lab9"), lab.token("--expires", "0.01s")
    secret = named.split(".")[1].encode()
    assert "made a token for node lab9" in lab.ok("log")
    assert not any(secret in path.read_bytes() for path in lab.home.rglob("*") if path.is_file())

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
    assert "this machine is not a node yet" in done.stderr


def a_copy_of_a_node_does_not_join(lab):
    """Two of one node would both be sent its tasks."""
    copied = lab.folder / "copied"
    (copied / "node" / "supervisor").mkdir(parents=True)
    copied.chmod(0o700)
    for name in ("own.pem", "scheduler.pem", "member.json"):
        shutil.copy(lab.folder / "lab2" / "node" / "supervisor" / name, copied / "node" / "supervisor")
    config = ("--config", str(lab.folder / "lab2.toml"))
    done = lab.call("node", "join", lab.proxies["lab2"].address, "--home", str(copied), *config)
    assert done.returncode == 1
    assert "this is a copy of node lab2's folder: if both run, tasks run twice: join with a new token" in done.stderr


def a_node_rotates_its_key_while_tasks_run_on(lab):
    place = lab.folder / "lab2" / "node" / "supervisor"
    before, mark = (place / "own.pem").read_text(), lab.folder / "rotated"
    job = lab.long("lab2", mark)
    for _ in range(2):
        was = (place / "own.pem").read_text()
        done = lab.call("node", "rotate", "--home", str(lab.folder / "lab2"))
        assert (done.returncode, done.stderr) == (0, "fairlead: node lab2 has a new key; its tasks run on\n")
        assert (place / "own.pem").read_text() != was
    assert lab.ok("log").count("replaced the key of node lab2") == 2
    assert (place / "own.pem").stat().st_mode & 0o077 == 0
    (place / "own.pem").rename(place / "kept.pem")
    (place / "own.pem").write_text(before)
    done = lab.call("node", "rotate", "--home", str(lab.folder / "lab2"))
    assert "its certificate is unknown or has expired: join with a token" in done.stderr
    (place / "kept.pem").rename(place / "own.pem")
    (place / "next.pem").unlink()
    assert lab.ok("run", "--on", "at=lab2", "--", "echo", "there") == "there\n"
    (lab.folder / "rotated.go").touch()
    lab.ok("wait", str(job))
    assert mark.read_text() == "1\n"


def a_node_leaves_when_it_is_empty_or_ends_what_runs(lab):
    mark = lab.folder / "leaves"
    job = lab.long("lab3", mark)
    leaving = lab.start("node", "leave", "--home", str(lab.folder / "lab3"))
    lab.until(lambda: lab.status("lab3") == "draining")
    assert leaving.poll() is None
    (lab.folder / "leaves.go").touch()
    lab.ok("wait", str(job))
    leaving.wait(60)
    lab.joins["lab3"].wait(60)
    assert "this machine has left" in lab.said("lab3")
    lab.until(lambda: lab.status("lab3") is None)
    assert re.search("node lab3 +left +\n", lab.ok("log"))
    (found,) = [each for each in json.loads(lab.call("doctor", "--json").stdout)["found"] if each["thing"] == "nodes"]
    assert found["how"] == "well", "nobody misses a machine that left in good order"
    assert not (lab.folder / "lab3" / "node").exists()
    other = lab.long("lab2", lab.folder / "ctrl-c")
    lab.joins["lab2"].send_signal(signal.SIGINT)
    assert lab.joins["lab2"].wait(60) == 0
    lab.until(lambda: lab.status("lab2") == "lost")
    assert lab.task(other)["status"] == "waiting"
    lab.join("lab2")
    lab.until(lambda: lab.status("lab2") == "up")
    lab.until(lambda: (lab.folder / "ctrl-c").read_text() == "1\n2\n")
    (lab.folder / "ctrl-c.go").touch()
    lab.ok("wait", str(other))


def a_machine_that_is_forgotten_ends_and_says_so(lab):
    """Also one that has joined, and never came up."""
    lab.proxies["lab2"].is_cut = True
    lab.until(lambda: lab.status("lab2") == "lost")
    lab.ok("forget", "lab2")
    lab.proxies["lab2"].mend()
    assert lab.joins["lab2"].wait(60) == 0
    assert lab.said("lab2").endswith("the scheduler has forgotten node lab2: join with a token of `fairlead node token`\n")
    lab.until(lambda: not supervisor_of(lab.folder / "lab2" / "node"))
    asked = Request("", "lab8", certificate_in(make_certificate("lab8")), myself().name, myself().uid)
    assert ask_to_join("127.0.0.1", lab.port, lab.token(), asked).answer.name == "lab8"
    assert lab.ok("forget", "lab8") == "node lab8 is forgotten\n"
    assert "forgot node lab8" in lab.ok("log")
    assert "there is no node 'lab8'" in lab.call("forget", "lab8").stderr


ELSEWHERE = """
import sys, typer.main
sys.platform, gone, *sys.argv = sys.argv[1:]
sys.modules |= dict.fromkeys(gone.split())
from fairlead.cli.main import main
main()
"""
"""Runs a command as on another system, which lacks these modules. Typer is loaded before, since it has modules for Windows."""


@pytest.mark.parametrize(
    ("system", "gone", "words", "why"),
    [
        ("darwin", "", "up", "schedulers and nodes run on Linux, and this is macOS: use a scheduler elsewhere, by FAIRLEAD_URL"),
        (
            "darwin",
            "",
            "node join lab1 token",
            "schedulers and nodes run on Linux, and this is macOS: use a scheduler elsewhere, by ",
        ),
        ("darwin", "", "queues", "no scheduler runs in "),
        (
            "win32",
            "fcntl pwd grp termios resource uvloop",
            "up",
            "fairlead runs on Linux, and this is Windows: use WSL, a Linux ",
        ),
        (
            "win32",
            "fcntl pwd grp termios resource uvloop",
            "queues",
            "fairlead runs on Linux, and this is Windows: use WSL, a Linux ",
        ),
    ],
)
def test_other_systems_end_with_a_line_that_says_what_works_there(tmp_path, system, gone, words, why):
    command = [sys.executable, "-c", ELSEWHERE, system, gone, "fairlead", *words.split()]
    env = {**os.environ, "FAIRLEAD_HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"fairlead: {why}")
