"""`fairlead allocate` and `fairlead policies`: what they print, and what they say to wrong input."""

import json
import re
import subprocess

import pytest

from conftest import FAIRLEAD

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


def test_steps_as_table_1_of_the_paper(call):
    lines = call("allocate", "problem.toml", "--steps").stdout.splitlines()
    assert lines[3].split() == ["1", "A", "<1/9,", "2/9>", "2/9", "<0,", "0>", "0", "1/9", "2/9"]
    assert lines[7].split()[-2:] == ["1", "7/9"]


def test_a_picture_is_drawn(call, tmp_path):
    assert call("allocate", "problem.toml", "-p", "drf,asset", "--plot", "out.html").returncode == 0
    text = (tmp_path / "out.html").read_text()
    assert "plotly" in text
    assert "asset" in text
    wrong = call("allocate", "problem.toml", "--plot", "nowhere/out.html")
    assert (wrong.returncode, wrong.stderr) == (
        1,
        "fairlead: nowhere/out.html: cannot be written: No such file or directory\n",
    )


def test_the_policies_are_listed(call):
    lines = call("policies").stdout.splitlines()
    assert lines[0].startswith("drf ")
    assert {re.split(r"[:\[ ]", line)[0] for line in lines} >= {
        "asset",
        "ceei",
        "maxmin",
        "slots",
        "fifo",
        "priority",
        "tasks",
    }
    assert json.loads(call("policies", "--json").stdout)["policies"][0]["name"] == "drf"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["nothing.toml"], "nothing.toml: cannot be read: No such file or directory"),
        (["problem.toml", "-p", "fair"], "there is no policy 'fair': use one of drf"),
        (["problem.toml", "-p", "drf,"], "there is no policy ''"),
        (["problem.toml", "-p", "ceei", "--discrete"], "leave out discrete"),
        (["problem.toml", "--discrete", "--placement", "middle"], "write first, best or worst"),
    ],
)
def test_wrong_input_is_one_line(call, arguments, wrong):
    result = call("allocate", *arguments)
    assert (result.returncode, result.stdout) == (1, "")
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
