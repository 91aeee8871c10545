"""`fairlead allocate` and `fairlead policies`: what they print, and what they say to wrong input."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from conftest import FAIRLEAD
from fairlead.model.documents import DocumentError, read_configuration
from fairlead.policies.registry import find_policy

PROBLEM = """
capacity = { cpu = 9, memory = "18Gi" }

[[user]]
name = "A"
demand = { cpu = 1, memory = "4Gi" }

[[user]]
name = "B"
demand = { cpu = 3, memory = "1Gi" }
"""


@pytest.fixture
def call(command, tmp_path):
    (tmp_path / "problem.toml").write_text(PROBLEM)
    return command


def test_policies_side_by_side(call):
    result = call("allocate", "problem.toml", "--policy", "drf,asset,ceei")
    assert result.returncode == 0
    assert [line for line in result.stdout.splitlines() if line in ("drf", "asset", "ceei")] == ["drf", "asset", "ceei"]
    assert "0.6667 memory" in result.stdout
    found = json.loads(call("allocate", "problem.toml", "-p", "drf,asset", "--exact", "--json").stdout)["results"]
    assert [[user["tasks"] for user in each["users"]] for each in found] == [["3", "2"], ["63/25", "54/25"]]


def test_a_table_is_as_wide_as_there_is_room(call, tmp_path, monkeypatch):
    name = "somebody with quite a long name"
    (tmp_path / "problem.toml").write_text(PROBLEM.replace('"A"', f'"{name}"'))
    monkeypatch.setenv("COLUMNS", "60")
    told = [call(*words).stdout for words in (("audit", "problem.toml"), ("allocate", "problem.toml", "--exact"))]
    assert max(map(len, "".join(told).splitlines())) <= 60
    assert "somebody" in told[1]


def test_a_table_that_is_too_wide_is_in_parts_and_says_the_same(call, tmp_path, monkeypatch):
    names = ("cpu", "memory", "gpu", "disk", "network", "licences", "scratch", "iops")
    users = [{"name": f"user-{k}", "demand": {n: (i + k) % 4 + 1 for i, n in enumerate(names)}} for k in range(4)]
    (tmp_path / "wide.json").write_text(json.dumps({"capacity": dict.fromkeys(names, 99), "user": users}))
    for words in (("-p", "drf,ceei"), ("--exact",), ("--steps",)):
        told = {}
        for columns in ("80", "400"):
            monkeypatch.setenv("COLUMNS", columns)
            told[columns] = call("allocate", "wide.json", *words).stdout
        assert max(map(len, told["80"].splitlines())) <= 80
        assert "…" not in told["80"]
        assert {*told["400"].split()} - {*told["80"].split()} <= {"─" * len(line) for line in told["400"].splitlines()}
        assert told["80"].count("\n\n") > told["400"].count("\n\n")


def test_what_stops_a_user_is_what_is_missing_where_it_may_run(call, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    users = [{"name": "A", "demand": {"cpu": 1, "memory": "1Gi"}}, {"name": "B", "demand": {"cpu": 2, "memory": "4Gi"}}]
    nodes = [
        {"name": "left", "capacity": {"cpu": 4, "memory": "1Gi"}},
        {"name": "right", "capacity": {"cpu": 1, "memory": "16Gi"}},
    ]

    def stops(document, *words):
        (tmp_path / "two.json").write_text(json.dumps(document))
        (found,) = json.loads(call("allocate", "two.json", "--json", *words).stdout)["results"]
        return [user["stopped_by"] for user in found["users"]]

    two = {"node": nodes, "user": users}
    assert {*stops(two), *stops(two, "--exact")} == {"no machine has all that it needs (round 1)"}
    assert {*stops(two, "--discrete")} == {"no machine has room for another task"}
    nodes[1] |= {"labels": {"zone": "b"}}
    there = {"node": nodes, "user": [{"name": "A", "demand": {"cpu": 1}, "on": {"zone": "b"}}]}
    assert stops(there) == ["cpu is saturated where it may run (round 1)"]
    slots = {"capacity": {"cpu": 8, "memory": "8Gi"}, "user": [*users, {"name": "C", "demand": {"cpu": 1}}]}
    for how in ((), ("--discrete",)):
        assert stops(slots, "-p", "slots:8", *how)[1:] == ["a slot has too little cpu for a task", "no slot left"]


def test_nodes_that_a_count_names_are_not_there_twice(call, tmp_path):
    users = '\n[[user]]\nname = "A"\ndemand = { cpu = 1 }\n'
    tables = ['[[node]]\nname = "n1"\ncount = 2\n', '[[node]]\nname = "n1-1"\n']
    for said, order in (("a node 'n1-1'", tables), ("a node 'n1-1', made of 'n1' by count = 2,", tables[::-1])):
        text = "".join(table + "capacity = { cpu = 1 }\n" for table in order)
        (tmp_path / "problem.toml").write_text(text + users)
        (tmp_path / "fairlead.toml").write_text(text)
        wrong = call("allocate", "problem.toml")
        assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (1, "", 1)
        assert f"{said} already exists: choose another name" in wrong.stderr
        with pytest.raises(DocumentError, match=f"{said} already exists: choose another name"):
            read_configuration(tmp_path / "fairlead.toml", find_policy)


@pytest.mark.parametrize("policy", ["drf", "hdrf", "asset", "ceei", "maxmin:cpu", "tsf", "slots:4"])
def test_the_least_weight_may_be_written(call, tmp_path, policy):
    (tmp_path / "problem.toml").write_text(PROBLEM.replace('"A"', '"A"\nweight = 1e-9'))
    shown = call("allocate", "problem.toml", "-p", policy, "--json")
    assert (shown.returncode, shown.stderr) == (0, "")
    (tmp_path / "problem.toml").write_text(PROBLEM.replace('"A"', '"A"\nweight = 9e-10'))
    assert "use a number from 1e-9 to 1e9" in call("allocate", "problem.toml", "-p", policy).stderr


def test_steps_as_table_1_of_the_paper(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = call("allocate", "problem.toml", "--steps").stdout.splitlines()
    assert lines[3].split() == ["1", "A", "<1/9,", "2/9>", "2/9", "<0,", "0>", "0", "1/9", "2/9"]
    assert lines[7].split()[-2:] == ["1", "7/9"]


def test_a_picture_is_drawn(call, tmp_path):
    assert call("allocate", "problem.toml", "-p", "drf,asset", "--plot", "out.html").returncode == 0
    text = (tmp_path / "out.html").read_text()
    assert re.findall(r'aria-label="(\w+)"', text) == ["Table", "Table", "drf", "asset"]
    assert re.search('<th class="n">dominant share</th>', text)
    assert "<pre" not in text
    assert "<title>A, memory: " in text
    assert "<script" not in text
    wrong = call("allocate", "problem.toml", "--plot", "nowhere/out.html")
    assert (wrong.returncode, wrong.stderr) == (1, "fairlead: nowhere/out.html: cannot be written: No such file or directory\n")


def test_a_policy_of_ones_own_as_documented(call, tmp_path, monkeypatch):
    """The documented package, installed, allocates, simulates and sweeps; what it cannot do is refused by its name."""
    page = Path(__file__).parents[1].joinpath("docs/commands/allocate.md").read_text()
    code = re.search("<!-- policy -->\n```python(.*?)```", page, re.DOTALL)[1]
    (tmp_path / "equal_tasks.py").write_text(code + BROKEN)
    folder = tmp_path / "equal_tasks-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: equal-tasks\nVersion: 1.0\n")
    points = "equal-tasks = equal_tasks:policy\nwhole = equal_tasks:whole\nempty = equal_tasks:empty\nlost = nowhere:policy\n"
    (folder / "entry_points.txt").write_text(f"[fairlead.policies]\n{points}")
    assert 'equal-tasks = "equal_tasks:policy"' in page
    words = [FAIRLEAD, "allocate", "problem.toml", "-p", "equal-tasks", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    told = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False).stdout
    assert [user["tasks"] for user in json.loads(told)["results"][0]["users"]] == [2.25, 2.25]
    monkeypatch.syspath_prepend(tmp_path)  # and from here on in this process
    (tmp_path / "t.csv").write_text("submit,queue,tasks,duration,cpu\n0,big,40,10,3\n0,small,40,10,1\n")
    for command in (["simulate"], ["sweep", "--out", "o", "--workers", "1"]):
        numbers = [*command, "t.csv", "--nodes", "1", "--node", "cpu=8", "-p", "equal-tasks,drf", "--json"]
        told = json.loads(call(*numbers).stdout)
        runs = told.get("runs") or [each["numbers"] for each in told["points"]]
        share = [{queue["name"]: queue["share"] for queue in run["over time"]["queues"]} for run in runs]
        assert share[0]["big"] > share[1]["big"], "as many tasks, of three times the size"
    for words, status, why in [
        (
            ("allocate", "problem.toml", "-p", "lost"),
            2,
            "--policy: lost: its module nowhere cannot be loaded: ModuleNotFoundError",
        ),
        (("allocate", "problem.toml", "-p", "empty"), 2, "--policy: empty: is not a policy: it needs a name, and a method"),
        (("simulate", "t.csv", "--nodes", "1", "-p", "whole"), 1, "whole: has no method divide(problem), by which queues"),
        (("simulate", "t.csv", "--nodes", "1", "-p", "equal-tasks:a"), 2, "--policy: 'equal-tasks:a': equal-tasks is written"),
    ]:
        result = call(*words)
        assert (result.returncode, result.stdout) == (status, ""), words
        assert result.stderr.startswith(f"fairlead: {why}"), result.stderr
        assert result.stderr.count("\n") == 1


BROKEN = """
def empty():
    return object()

class Whole:
    name, summary = "whole", "whole tasks only"
    def indivisible(self, problem):
        return problem, None

def whole():
    return Whole()
"""


@pytest.mark.parametrize("policy", ["fairtree", "htcondor", "sdrf", "yarn-fair", "mesos"])
@pytest.mark.parametrize("options", [(), ("--discrete",)])
def test_a_policy_that_only_orders_says_so_whatever_the_machines(call, tmp_path, policy, options):
    (tmp_path / "nodes.toml").write_text(
        '[[node]]\nname = "a"\ncapacity = { cpu = 9 }\n[[node]]\nname = "b"\ncapacity = { cpu = 4 }\n'
        '[[user]]\nname = "A"\ndemand = { cpu = 1 }\n'
    )
    result = call("allocate", "nodes.toml", "-p", policy, *options)
    assert result.returncode == 1
    assert re.match(rf"fairlead: {policy}: (counts past use|orders queues)", result.stderr), result.stderr


def test_the_policies_are_listed(call):
    lines = call("policies").stdout.splitlines()
    assert lines[0].startswith("drf ")
    assert {re.split(r"[:\[ ]", line)[0] for line in lines} >= {"asset", "ceei", "maxmin", "slots", "fifo", "priority", "tasks"}
    assert json.loads(call("policies", "--json").stdout)["policies"][0]["name"] == "drf"


@pytest.mark.parametrize(
    ("arguments", "status", "wrong"),
    [
        (["--", "--x.toml"], 1, "--x.toml: cannot be read: No such file or directory"),
        (["nothing.toml"], 1, "nothing.toml: cannot be read: No such file or directory"),
        (["problem.toml", "-p", "fair"], 2, "there is no policy 'fair': use one of drf"),
        (["problem.toml", "-p", "drf,"], 2, "there is no policy ''"),
        (["problem.toml", "-p", "ceei", "--discrete"], 1, "leave out discrete"),
        (["problem.toml", "--discrete", "--placement", "middle"], 2, "write first, best or worst"),
        (["problem.toml", "--placement", "worst"], 2, "--placement: needs --discrete"),
        (["problem.toml", "-p", "drf", "-p", "fair"], 2, "there is no policy 'fair'"),
    ],
)
def test_wrong_input_is_one_line(call, arguments, status, wrong):
    result = call("allocate", *arguments)
    assert (result.returncode, result.stdout) == (status, "")
    assert wrong in result.stderr
    assert result.stderr.count("\n") == 1


def test_wrong_input_in_a_process_of_its_own(tmp_path):
    result = subprocess.run(
        [FAIRLEAD, "allocate", "none.toml"], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "fairlead: none.toml: cannot be read: No such file or directory\n"


def test_a_table_in_a_process_of_its_own(tmp_path):
    (tmp_path / "problem.toml").write_text(PROBLEM)
    command = [FAIRLEAD, "allocate", "problem.toml", "--policy", "drf,asset,ceei"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "0.6667 memory" in result.stdout


def test_what_is_not_written_to_the_last_digit_is_marked(call, tmp_path):
    (tmp_path / "thirds.toml").write_text(
        'capacity = { cpu = 1, memory = "7Gi" }\n'
        + "".join(
            f'[[user]]\nname = "{name}"\ndemand = {{ cpu = 3, memory = {memory} }}\n'
            for name, memory in zip("ABC", (1, 1, 3), strict=True)
        )
    )
    rows = call("allocate", str(tmp_path / "thirds.toml"), "--exact").stdout.splitlines()
    assert rows[3].split()[:4] == ["A", "1/9", "≈0.333", "≈0.111"], rows
    assert rows[5].split()[:4] == ["C", "1/9", "≈0.333", "≈0.333"], rows
    assert rows[7].split() == ["used", "1", "≈1"], "1 2/3 bytes are two, or so"
    assert rows[8].split() == ["left", "0", "≈7Gi"]


def test_the_policies_that_can_be_exact_are_shown_beside_one_that_cannot(call):
    result = call("allocate", "problem.toml", "--exact", "--policy", "drf,ceei,asset")
    assert result.returncode == 1
    assert result.stderr.startswith("fairlead: ceei: prices are roots of polynomials")
    assert [line for line in result.stdout.splitlines() if line in ("drf", "ceei", "asset")] == ["drf", "asset"]
    result = call("allocate", "problem.toml", "--exact", "--policy", "drf,ceei", "--json")
    found = json.loads(result.stdout)
    assert ([each["policy"] for each in found["results"]], len(found["refused"])) == (["drf"], 1)


def test_the_steps_are_in_the_json_as_well(call):
    found = json.loads(call("allocate", "problem.toml", "--steps", "--json").stdout)["results"][0]
    assert [step["serves"] for step in found["steps"]] == ["A", "B", "A", "B", "A"]
    assert "-0.0" not in json.dumps(found)
