"""Fairlead over a real Ray cluster: three raylets on this machine, which are started once, for what is one test."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import psutil
import pytest
import yaml
from bench import ray_nodes
from bench.ray_trial import Trial
from typer.main import get_command

from conftest import FAIRLEAD, Live
from fairlead.cli.main import app
from fairlead.engines.ray import Agent, Agents, RayEngine, seen_as
from fairlead.engines.remote.engine import Serving
from fairlead.engines.remote.members import LeasePolicy
from ray_cluster import Cluster, ended, is_of
from ray_torture import FAULTS, VICTIM
from ray_torture import NODES as TORTURED
from test_ray_authentication import what_is_in_a_home_changes_nothing

NODES = 3
LONG = "FAIRLEAD_LONG" in os.environ
"""Whether `make ray-torture` runs it: what takes seconds to be read by one more program of Ray is done there."""

PROGRAM = """
import sys, time
import ray
import fairlead.ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
@ray.remote
def node():
    return ray.get_runtime_context().get_node_id()
@ray.remote(num_cpus=0)
def nested():
    return ray.get(node.remote())
with fairlead.ray.session(current="beside" not in sys.argv, log_to_driver=False) as group:
    names = {each["NodeID"]: each["NodeName"] for each in ray.nodes()}
    asked = [node.remote(), nested.remote()]
    if "wait" in sys.argv:  # in a group of its own within the job's
        room = fairlead.ray.inside(group, {"CPU": 1})
        own = PlacementGroupSchedulingStrategy(ray.util.placement_group([room]))
        asked = [node.options(num_cpus=0, resources=room, scheduling_strategy=own).remote()]
    ran_on = ray.get(asked)
    print(*sorted({names[each] for each in ran_on}), *group.bundle_specs[0].items(), len(group.bundle_specs), flush=True)
    try:
        while "wait" in sys.argv:
            time.sleep(1)
    except KeyboardInterrupt:
        print("told")
sys.exit(3)
"""


@pytest.mark.timeout(900)
def test_three_raylets(tmp_path, capsys, monkeypatch):
    """What works on one machine works over nodes; who is killed is the scheduler, then a raylet."""
    monkeypatch.setattr(ray_nodes, "NODES", NODES)
    monkeypatch.setattr(ray_nodes, "EACH", 1)
    with ended(Cluster(tmp_path)) as cluster:
        cluster.env |= {"HOME": str(tmp_path)}
        cluster.env.pop("RAY_AUTH_MODE", None)
        cluster.start_up(NODES)
        what_runs_is_seen_as_it_runs(cluster)
        a_gang_knows_its_ranks_and_where_its_first_task_is(cluster)
        a_drained_node_takes_no_more_and_a_cancelled_job_ends(cluster)
        python_functions_are_called(cluster)
        what_lets_anybody_in_is_not_for_everybody(cluster)
        what_it_costs_is_measured(cluster, capsys)
        a_program_of_ray_runs_in_a_group_on_the_nodes_that_were_chosen(cluster)
        if LONG:
            the_doctor_knows_of_the_cluster(cluster)
            a_sweep_is_the_same_there(cluster)
            what_is_in_a_home_changes_nothing(cluster).unlink()
            a_program_that_waits_for_room_outside_its_group_is_stopped(cluster)
        what_runs_goes_on_while_the_head_stands_still(cluster)
        what_ran_under_a_supervisor_that_was_killed_runs_again(cluster)
        job = one_task_on_each_node(cluster)
        if LONG:
            the_next_scheduler_adopts_what_runs(cluster, job)
        what_ran_on_a_node_that_died_runs_elsewhere_once_it_has_ended_there(cluster, job)
        a_node_that_ray_drains_takes_no_more_and_what_runs_there_goes_on(cluster)
        tasks_live_on_when_the_head_has_died(cluster)
        assert cluster.end() == 0
        assert [p for p in psutil.pids() if is_of(cluster, p)] == [], "nothing is left of a trial"
        assert not Trial(cluster.home)._folder.exists(), "a trial leaves nothing behind"


def what_runs_is_seen_as_it_runs(cluster):
    assert {node["labels"]["host"] for node in cluster.ask("nodes")["nodes"]} == {os.uname().nodename}
    result = cluster.call("run", "--", "sh", "-c", "echo out; echo err >&2; read x; echo got $x; exit 3", input="word\n")
    assert (result.returncode, result.stdout) == (3, "out\ngot word\n")
    assert "err\n" in result.stderr
    (number,) = {job["id"] for job in cluster.ask("jobs")["jobs"]}
    assert cluster.ok("logs", str(number)) == "out\ngot word\n"


def a_gang_knows_its_ranks_and_where_its_first_task_is(cluster):
    told = "echo $FAIRLEAD_RANK/$FAIRLEAD_SIZE $FAIRLEAD_MASTER"
    job = cluster.submit("--gang", "-n", "3", "--cpu", "1", "--", "sh", "-c", told)
    cluster.ok("wait", str(job))
    first = cluster.tasks(job)[0]["node"]
    assert len({task["node"] for task in cluster.tasks(job).values()}) == 3
    master = f"127.0.0.{int(first.removeprefix('try-')) + 1}"
    assert [cluster.ok("logs", f"{job}.{index}") for index in range(3)] == [f"{i}/3 {master}\n" for i in range(3)]


def a_drained_node_takes_no_more_and_a_cancelled_job_ends(cluster):
    cluster.ok("drain", "try-2")
    job = cluster.submit("-n", "3", "--cpu", "1", "--", "sleep", "1000")
    cluster.until(lambda: sum(task["status"] == "running" for task in cluster.tasks(job).values()) == 2)
    assert "try-2" not in {task["node"] for task in cluster.tasks(job).values()}
    cluster.ok("cancel", str(job))
    cluster.until(lambda: cluster.job(job)["status"] == "cancelled" and cluster.job(job)["running"] == 0)
    cluster.ok("resume", "try-2")


def python_functions_are_called(cluster):
    program = "import fairlead\nwith fairlead.Client() as client: print(sum(client.map(lambda x: x * x, range(5))))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=cluster.env, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "30\n"


def a_sweep_is_the_same_there(cluster):
    """A simulation on a node, beside fairlead's tasks."""
    asked = [str(Path(__file__).parents[1] / "examples" / "trace.csv"), "--nodes", "4", "--scale", "0.5", "--seed", "0"]
    there = subprocess.run(
        [FAIRLEAD, "sweep", *asked, "--engine", "ray", "--out", cluster.folder / "there"],
        env=cluster.env | {"RAY_ADDRESS": cluster.address}, capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    here = cluster.ok("sweep", *asked, "--out", str(cluster.folder / "here"))
    assert there.stdout.replace("there", "here") == here
    found = [{path.name: path.read_text() for path in (cluster.folder / name).iterdir()} for name in ("there", "here")]
    assert found[0] == found[1]
    assert len(found[0]) >= 1


def what_lets_anybody_in_is_not_for_everybody(cluster):
    """Whoever may run a task on it could be root there; a cluster that asks for tokens lets in who has one."""
    if os.geteuid() == 0:
        address = cluster.address
        home = ["--home", str(cluster.folder / "system"), "--socket", str(cluster.folder / "socket")]
        result = cluster.call("up", "--system", "--engine", "ray", "--ray-address", address, *home)
        assert result.returncode == (2 if result.stderr.startswith("fairlead: --") else 1)
        assert f"the Ray cluster at {address} asks for no token, so anybody who reaches it can run" in result.stderr


def what_it_costs_is_measured(cluster, capsys):
    """As `python -m bench ray_nodes` does it, without Ray's own tasks and actors beside."""
    world = ray_nodes.World(cluster.home, cluster.address, cluster.start_up, cluster.kill)
    plain = {"actors": 1.0, "tasks": 1.0, "one_call": 1.0, "calls": 1.0}
    ray_nodes.commands(world, 12, 1, plain)
    ray_nodes.calls(world, 20, plain)
    shown = capsys.readouterr().out
    for words in ("12 x `true` over 3 nodes", "µs of supervisors", "calls/s"):
        assert words in shown


def the_doctor_knows_of_the_cluster(cluster):
    def lines():
        found = {each["thing"]: (each["how"], each["what"]) for each in cluster.doctor()}
        return found["supervisor"], found["ray"]

    supervisor, (how, what) = lines()
    assert supervisor == ("well", "none is needed here: each Ray node has its own, see `ray`")
    assert how == "well", what
    assert what.endswith(f" at {cluster.address}, {NODES} nodes")
    (cluster.home / "ray_address").write_text("127.0.0.1:1")
    assert lines()[1] == ("wrong", "no Ray cluster answers at 127.0.0.1:1: [Errno 111] Connection refused")
    (cluster.home / "ray_address").write_text(cluster.address)


def a_node_that_ray_drains_takes_no_more_and_what_runs_there_goes_on(cluster):
    node = cluster.nodes("up")[0]
    (ours,) = [each["labels"]["ray.io/node-id"] for each in cluster.ask("nodes")["nodes"] if each["name"] == node]
    job = cluster.submit("--on", f"ray.io/node-id={ours}", "--", "sh", "-c", "until test -e gone; do sleep 0.05; done")
    cluster.until(lambda: cluster.tasks(job)[0]["status"] == "running")
    ray = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", "--address", cluster.address, "--node-id", ours]
    why = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot", "--deadline-remaining-seconds", "600"]
    subprocess.run([*ray, *why], check=True, timeout=60, env=cluster.env | {"RAY_AUTH_MODE": "disabled"})
    cluster.until(lambda: cluster.nodes("draining") == [node])
    other = cluster.submit("-n", "4", "--cpu", "1", "--", "true")
    cluster.until(lambda: cluster.job(other)["status"] == "succeeded")
    assert node not in {task["node"] for task in cluster.tasks(other).values()}
    (cluster.folder / "gone").touch()
    cluster.ok("wait", str(job))
    assert cluster.tasks(job)[0]["attempt"] == 1


def a_program_of_ray_runs_in_a_group_on_the_nodes_that_were_chosen(cluster):
    """And is told to stop before its group goes; who holds room for it ends with it."""
    program = cluster.folder / "program.py"
    program.write_text(PROGRAM)
    asked = ["--ray", "--bundle", "cpu=1,memory=400Mi", "--bundles", "2", "--signal", "INT", "--", sys.executable]
    ends = [cluster.submit(*asked, str(program))] if LONG else []
    waits = cluster.submit(*asked, str(program), "wait")
    for job in (*ends, waits):
        cluster.until(lambda job=job: has_written(cluster, job), 60)
        nodes = sorted(task["node"] for task in cluster.tasks(job).values())
        said, _, group = cluster.ok("logs", str(job)).partition(" (")
        assert set(said.split()) <= set(nodes)
        assert len(set(nodes)) == 2
        assert "'CPU', 1.0)" in group
        assert f"'memory', {400 * 2**20}.0)" in group
        assert ") 2\n" in group
    for job in ends:
        cluster.until(lambda job=job: cluster.job(job)["status"] == "failed", 60)
        assert [task["exit"] for task in cluster.tasks(job).values()] == [3, 0]
    cluster.ok("cancel", str(waits))
    cluster.until(lambda: cluster.job(waits)["running"] == 0)
    assert cluster.ok("logs", str(waits)).endswith("told\n")
    assert {task["status"] for task in cluster.tasks(waits).values()} == {"cancelled"}


def has_written(cluster, job):
    status, text = cluster.http("GET", f"/v1/jobs/{job}/tasks/0/output/out")
    return status == 200 and text


def a_program_that_waits_for_room_outside_its_group_is_stopped(cluster):
    """All CPUs are the job's, and what it asks for beside its group can never be there."""
    cpus = {node["capacity"]["cpu"] for node in cluster.ask("nodes")["nodes"]}
    bundle = ["--bundle", f"cpu={max(cpus)}m", "--bundles", str(NODES), "--env", "FAIRLEAD_RAY_PATIENCE=2"]
    stuck = cluster.submit("--ray", *bundle, "--", sys.executable, str(cluster.folder / "program.py"), "beside")
    after = cluster.submit("--cpu", "1", "--", "true")
    cluster.until(lambda: cluster.job(stuck)["status"] == "failed")
    reason = "for 2 s this program asked Ray for room outside its placement group, got none, and used none of the group"
    assert f"fairlead: stopped: {reason}: " in cluster.call("logs", str(stuck)).stderr
    assert cluster.tasks(stuck)[0]["exit"] == 128 + signal.SIGALRM
    assert "it asked Ray for room outside its placement group, got none, and used" in cluster.ok("why", str(stuck))
    cluster.ok("wait", str(after))


def what_runs_goes_on_while_the_head_stands_still(cluster):
    job = cluster.submit("--cpu", "1", "--", "sh", "-c", "until test -e go; do sleep 0.05; done")
    cluster.until(lambda: cluster.tasks(job)[0]["status"] == "running")
    head = cluster.process_of("gcs_server")
    head.suspend()
    assert cluster.ok("run", "--cpu", "1", "--", "echo", "meanwhile") == "meanwhile\n"
    head.resume()
    (cluster.folder / "go").touch()
    cluster.ok("wait", str(job))
    assert cluster.tasks(job)[0]["attempt"] == 1


def what_ran_under_a_supervisor_that_was_killed_runs_again(cluster):
    job = cluster.submit("--cpu", "1", "--", "sh", "-c", "test $FAIRLEAD_NUMBER = 2 || sleep 100")
    cluster.until(lambda: cluster.tasks(job)[0]["status"] == "running")
    cluster.supervisor_on(cluster.tasks(job)[0]["node"]).kill()
    cluster.until(lambda: cluster.job(job)["status"] == "succeeded")
    assert cluster.tasks(job)[0]["attempt"] == 2


def one_task_on_each_node(cluster):
    words = f"echo $FAIRLEAD_INDEX $FAIRLEAD_NUMBER >> {cluster.folder}/ran; sleep 1000"
    job = cluster.submit("-n", str(NODES), "--cpu", "1", "--", "sh", "-c", words)
    cluster.until(lambda: sum(task["status"] == "running" for task in cluster.tasks(job).values()) == NODES)
    return job


def the_next_scheduler_adopts_what_runs(cluster, job):
    """Even where a supervisor stood still meanwhile, which is told."""
    frozen = cluster.supervisor_on("try-2")
    frozen.suspend()  # it is silent, and its lease lasts
    cluster.until(lambda: "up, silent for " in cluster.ok("nodes"), 60)
    (told,) = [each for each in json.loads(cluster.call("doctor", "--json").stdout)["found"] if each["thing"] == "ray"]
    assert told["how"] == "wrong"
    assert f"{NODES} nodes; no contact with the supervisor on try-2" in told["what"]
    (there,) = [index for index, task in cluster.tasks(job).items() if task["node"] == "try-2"]
    logs = cluster.call("logs", f"{job}.{there}")
    assert logs.returncode == 1
    assert f"the output of task {job}.{there} cannot be read: no message from node try-2 for " in logs.stderr
    cluster.kill()
    frozen.resume()
    cluster.start_up(NODES)
    cluster.until(lambda: all(node["silent"] is None for node in cluster.ask("nodes")["nodes"]), 60)
    assert sorted((cluster.folder / "ran").read_text().splitlines()) == [f"{index} 1" for index in range(NODES)]
    assert {task["status"] for task in cluster.tasks(job).values()} == {"running"}


def tasks_live_on_when_the_head_has_died(cluster):
    """And what comes is started: the scheduler's own lines hold the nodes. That Ray is gone is said."""
    cluster.process_of("gcs_server").kill()
    (child,) = [p for p in psutil.Process(cluster.process.pid).children() if "fairlead.engines.ray" in p.cmdline()]
    child.kill()
    cluster.until(lambda: "neither join nor leave until it can be reached" in cluster.log.read_text(), 60)
    assert cluster.ok("run", "--cpu", "1", "--", "echo", "still") == "still\n"


def what_ran_on_a_node_that_died_runs_elsewhere_once_it_has_ended_there(cluster, job):
    dead = next(task["node"] for task in cluster.tasks(job).values() if task["index"] == 2)
    keep = next(task["node"] for task in cluster.tasks(job).values() if task["index"] == 0)
    assert keep != dead
    cluster.raylet(dead).send_signal(signal.SIGKILL)
    cluster.until(lambda: dead in cluster.nodes("lost"), 60)
    (told,) = [each for each in cluster.doctor() if each["thing"] == "nodes"]
    assert (told["how"], told["what"]) == ("look", f"lost: {dead}")
    sleeping = [p for p in psutil.process_iter(["environ"]) if (p.info["environ"] or {}).get("FAIRLEAD_JOB") == str(job)]
    ours = [p for p in sleeping if (p.info["environ"] or {}).get("FAIRLEAD_ATTEMPT", "").startswith(f"{job}.2.")]
    assert not [p for p in ours if str(cluster.home) in p.info["environ"].get("FAIRLEAD_CHECKPOINT", "")]
    other = cluster.submit("--cpu", "1", "--", "true")
    cluster.ok("cancel", str(other))
    cluster.until(lambda: cluster.tasks(job)[2]["status"] == "waiting")
    cluster.ok("cancel", str(job))
    cluster.until(lambda: cluster.job(job)["running"] == 0)


def test_what_ray_torture_does_is_known_by_name():
    """It runs for minutes, by `make ray-torture` alone: here it is loaded."""
    assert len({fault.__name__ for fault in FAULTS}) == len(FAULTS) == 6
    assert VICTIM in TORTURED[1:], "the head's own node is another fault"


def test_a_head_that_is_not_there_is_said_soon(tmp_path):
    with Live(tmp_path) as world:
        world.config.write_text("")
        result = world.call("up", "--config", str(world.config), "--engine", "ray", "--ray-address", "127.0.0.1:1")
        assert result.returncode == (2 if result.stderr.startswith("fairlead: --") else 1)
        assert "no Ray cluster answers at 127.0.0.1:1: " in result.stderr.splitlines()[-1]
        assert "tried again" not in result.stderr


def test_who_asks_ray_for_agents_connects_again_when_its_own_node_has_ended():
    """A head that finds its state on disk again starts no actor for a program at a node that it knows as dead."""
    own = SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "first"))
    agents = Agents(own, "cluster", lambda **what: None)
    agents.keep({"first", "other"})
    with pytest.raises(SystemExit, match="the Ray node on this machine has ended"):
        agents.keep({"again", "other"})


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_program_of_ray_that_was_ended_by_a_signal_is_said_to_be(number):
    end = f"from fairlead.ray import end_by; end_by({int(number)})"
    assert subprocess.run([sys.executable, "-c", end], timeout=60, check=False).returncode == -number


def test_a_node_whose_ray_is_not_roots_takes_nothing_as_people(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("fairlead.data_folder.SYSTEM_HOME", tmp_path)
    with pytest.raises(PermissionError, match="Ray runs there as uid 1000, and only root") as refused:
        Agent().start("cluster", "weak", True, {})
    assert list(tmp_path.iterdir()) == []
    serving = Serving(tmp_path, lambda: None, LeasePolicy(30.0, 5.0), ("127.0.0.1", 0), as_people=True)
    engine = RayEngine(serving, "127.0.0.1:1")
    (node,) = seen_as([ray_says("1", "weak", "10.0.0.1")])
    engine._alive = {node.id: node}
    engine._hear_ray({"id": node.id, "why": str(refused.value)})
    assert engine.trouble == f"none of Ray's 1 nodes can be used: {node.node.name}: {refused.value}"
    assert not engine.ray, "Ray's own tasks would be root's"


NOT_TOGETHER = {
    "--ray-address a:1": "--ray-address: needs --engine ray",
    "--engine ray --ray-address head": "head: write the address of Ray's head as HOST:PORT, such as 10.0.0.1:6379",
    "--engine ray --ray-address 127.0.0.2:99999": "127.0.0.2:99999: write the address of Ray's head as HOST:PORT",
    "--engine ray --ray-address ray://127.0.0.1:10001": "ray://127.0.0.1:10001: is the address of Ray's client server",
    "--engine ray --ray-address auto": "auto: `ray start` has left no address in ",
    "--engine ray --config nodes.toml --ray-address a:1": "nodes.toml: [[node]]: with --engine ray the nodes are Ray's",
}


@pytest.mark.parametrize("words", NOT_TOGETHER)
def test_what_does_not_go_together_is_refused(command, tmp_path, monkeypatch, words):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where no cluster was started
    Path("nodes.toml").write_text('[[node]]\nname = "n"\ncapacity = { cpu = 1 }\n')
    result = command("up", "--home", str(tmp_path / "home"), *words.split())
    assert result.returncode == (2 if result.stderr.startswith("fairlead: --") else 1)
    assert NOT_TOGETHER[words] in result.stderr


def ray_says(node, name, address, **more):
    resources = {"CPU": 4.0, "memory": 1e9, "object_store_memory": 5e8, f"node:{address}": 1.0, **more}
    labels = {"ray.io/node-id": node, "zone": "a"}
    told = {"id": node, "name": name, "address": address, "host": "box", "resources": resources, "labels": labels}
    return {**told, "draining": False}


def test_how_nodes_of_ray_are_seen():
    given = [
        ray_says("1", "10.0.0.1", "10.0.0.1", GPU=2.0, **{"accelerator_type:A100": 1.0}),
        ray_says("2", "10.0.0.2", "10.0.0.2"),
        ray_says("3", "fast", "10.0.0.3", licence=1.5),
    ]
    one, two, three = (each.node for each in seen_as(given))
    assert [node.name for node in (one, two, three)] == ["box-10.0.0.1", "box-10.0.0.2", "fast"]
    assert one.capacity == {"cpu": 4000, "memory": 10**9, "gpu": 2000}
    assert one.labels == {"host": "box", "ray.io/node-id": "1", "zone": "a", "gpu_model": "A100"}
    assert three.capacity == {"cpu": 4000, "memory": 10**9, "licence": 1500}
    assert seen_as(given[:1])[0].node.name == "box", "it has the host's name where no other has"


EXAMPLES = Path(__file__).parent.parent / "examples"


def is_understood(words):
    """Whether the command line takes these words, as far as one sees without doing it."""
    assert words[0] == "fairlead"
    command = get_command(app).get_command(None, words[1])
    command.make_context(words[1], words[2:])


def test_the_machines_of_a_cloud_are_set_up_as_ray_takes_it():
    """By Ray's own schema; and by fairlead's own options."""
    import jsonschema

    config = yaml.safe_load((EXAMPLES / "ray-up.yaml").read_text())
    schema = Path(importlib.util.find_spec("ray").origin).parent / "autoscaler" / "ray-schema.json"
    jsonschema.validate(config, json.loads(schema.read_text()))
    (ours,) = [each for each in config["head_start_ray_commands"] if "fairlead" in each]
    is_understood(ours.removeprefix("nohup ").replace("$(hostname -I | cut -d' ' -f1)", "10.0.0.1").split(" > ")[0].split())
    assert config["head_node_type"] in config["available_node_types"]


def test_a_cluster_on_kubernetes_has_one_fairlead_beside_its_head_and_the_same_everywhere():
    """Names and types of the fields were checked against KubeRay's definition of a RayCluster, which is too large to be kept."""
    claim, cluster = yaml.safe_load_all((EXAMPLES / "kuberay.yaml").read_text())
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    workers = [group["template"]["spec"] for group in cluster["spec"]["workerGroupSpecs"]]
    containers = [container for pod in (head, *workers) for container in pod["containers"]]
    (ours,) = [container for container in containers if container["name"] == "fairlead"]
    assert ours in head["containers"]
    assert len({container["image"] for container in containers}) == 1
    is_understood([word.replace("$(POD_IP)", "10.0.0.1") for word in ours["command"]])
    (volume,) = head["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert ours["env"][-1] == {"name": "FAIRLEAD_HOME", "value": ours["command"][-1]}
    assert ours["command"][-1].startswith(ours["volumeMounts"][0]["mountPath"])


def test_a_picture_of_two_people_shows_who_had_how_many_cpus(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples"))
    two = importlib.import_module("two_ray_programs")
    spans = [two.Span("ada", 0.0, 4.0)] * 6 + [two.Span("ben", 2.0, 8.0)] * 2
    assert [two.at_work(spans, "ada", at) for at in (0, 3.9, 4)] == [6, 6, 0]
    drawn = ElementTree.fromstring(two.draw({"both": spans}))
    area = {
        who: sum(float(each.get("width")) * float(each.get("height")) for each in drawn if each.get("fill") == color)
        for who, color in two.COLORS.items()
    }
    key = 12 * 12  # of each color, in the legend
    assert (area["ada"] - key) / (area["ben"] - key) == pytest.approx(24 / 12, rel=0.01)
