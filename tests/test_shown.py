"""What commands show and refuse that ask no scheduler."""

import json
import time
from fractions import Fraction
from pathlib import Path

import pytest

from fairlead.audit.over_time_report import over_time_text
from fairlead.cli.commands.cluster import _silent_nodes
from fairlead.cli.tables import fewer, kept_for_it, kept_until, show_fairness
from fairlead.cli.terminal import print_sentence
from fairlead.policies.allocation import number

PROBLEM = 'capacity = { cpu = 9, memory = "18Gi" }\n' + "".join(
    f'[[user]]\nname = "{name}"\ndemand = {{ cpu = {cpu}, memory = "{memory}Gi" }}\n'
    for name, cpu, memory in (("A", 1, 4), ("B", 3, 1))
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(63, 25), "63/25"),
        (Fraction(10**20 + 1, 3 * 10**20), "≈0.3333"),
        (Fraction(1, 10**20), "≈1e-20"),
        (-0.00001, "0"),
        (2.5, "2.5"),
        (0, "0"),
    ],
)
def test_a_number_is_exact_or_says_that_it_is_not(value, text):
    assert number(value) == text


def test_steps_are_in_the_json_that_asks_for_them(command):
    Path("problem.toml").write_text(PROBLEM)
    (found,) = json.loads(command("allocate", "problem.toml", "--steps", "--json").stdout)["results"]
    assert [step["serves"] for step in found["steps"]] == ["A", "B", "A", "B", "A"]
    (found,) = json.loads(command("allocate", "problem.toml", "--discrete", "--json").stdout)["results"]
    assert "steps" not in found


def test_what_an_audit_of_what_ran_would_not_look_at_is_refused(command):
    for how in (("--over", "1h"), ("--live",)):
        refused = command("audit", *how, "--policy", "drf")
        assert refused.stderr == f"fairlead: --policy: has no effect with {how[0]}: omit it\n"


def test_a_service_is_not_installed_with_a_configuration_that_would_not_start(command):
    assert "missing.toml: no such file" in command("service", "install", "--config", "missing.toml").stderr
    Path("wrong.toml").write_text("queues = 3\n")
    refused = command("service", "install", "--config", "wrong.toml")
    assert (refused.returncode, refused.stderr) == (1, "fairlead: wrong.toml:1: queues: no such key here: did you mean queue?\n")


def test_an_audit_over_time_fits_into_80_columns():
    through = {"whole tasks": 3.0, "running tasks": 2.0, "reservations": 1.0}
    queue = {
        "name": "research/vision", "resource": "memory", "entitled": 123456.0 * 2**30, "got": 1234.0 * 2**30,
        "short": 122222.0 * 2**30, "status": "even", "through": {name: x * 1e5 * 2**30 for name, x in through.items()},
    }  # fmt: skip
    kept = {
        "job": 1234567, "queue": "research/vision", "made": 10.0, "until": 400_000.0, "slips": 2, "used": True,
        "idled": {"cpu": 123456.0, "memory": 1234.0 * 2**30}, "share_hours": 3.0,
    }  # fmt: skip
    found = {
        "since": 0.0, "until": 1e6, "asked": 1e6, "complete": True, "looks": 10, "every": 0.0, "error": 0.0, "fair": True,
        "queues": [queue], "starved": [], "starved_after": 300.0,
        "promises": {"count": 1, "idled": kept["idled"], "share_hours": 3.0}, "reservations": [kept],
        "revocations": {"claims": 2, "tasks": {"guarantee": 3}, "lost": 9000.0, "faults": []},
    }  # fmt: skip
    assert max(map(len, over_time_text(found, 80).splitlines())) <= 80


def test_what_is_kept_for_whom_is_said_in_a_sentence(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    kept = {
        "job": 7, "queue": "lab/g", "why": "reservation", "made": 0.0, "start": time.time() + 190, "end": None, "slips": 1,
        "nodes": 2, "tasks": 4, "idle": {"cpu": 3000, "memory": 2**30}, "idled": {},
    }  # fmt: skip
    assert kept_until(kept).startswith("reserved for job 7 of lab/g: all of it is expected to be free in 3min, at 20")
    late = {**kept, "start": 0.0, "end": 86400.0 * 365, "why": "guarantee"}
    assert kept_until(late).startswith(
        "reserved for job 7 of lab/g for its guarantee: all of it is expected to be free any moment, and to be used until 197"
    )
    its = kept_for_it({**kept, "made": 86400.0 * 365})
    assert its.startswith("room is reserved for it since 197")
    assert ", postponed 1 time: all of it is expected to be free in 3min, at 20" in its
    assert "; it may start before, elsewhere or in its queue's turn; " in its, "as it is expected to, perhaps"
    assert its.endswith("; 3 cpu and 1Gi memory is idle for it now")
    assert "idle" not in kept_for_it({**kept, "idle": {}})
    assert kept_for_it({**kept, "idle": {}, "start": None}).endswith(", postponed 1 time"), "nobody knows when"
    assert kept_until({**kept, "start": None}) == "reserved for job 7 of lab/g"
    queue = {
        "name": "a", "dominant_share": 0.5, "dominant_resource": "cpu", "entitled": 0.5, "status": "fair", "running": 1,
        "waiting": 0, "why": "no demand", "passed_over_for": [],
    }  # fmt: skip
    show_fairness({"queues": [queue], "findings": [], "reservations": [kept], "fair": True})
    shown = capsys.readouterr().out.splitlines()
    assert any(line.startswith("– 4 tasks on 2 nodes reserved for job 7 of lab/g:") for line in shown)
    assert any(line.endswith("3 cpu and 1Gi memory is idle for it now") for line in shown)


def test_sentences_are_broken_between_words_and_names_of_the_audit_cut_where_there_is_a_terminal(capsys, monkeypatch):
    """Where nobody reads along each is a line; commands that somebody may copy are in one piece in any case."""
    name = "research/vision-and-language-models-of-the-institute"
    queue = {
        "name": name, "dominant_share": 0.5, "dominant_resource": "memory", "entitled": 0.5, "status": "fair", "running": 12345,
        "waiting": 1, "why": "not yet converged", "passed_over_for": [],
    }  # fmt: skip
    text = f"{name} has 3 tasks; its own part of everything would give it 12 tasks and more than that, a1-b2-c3-d4-e5-f6"
    found = {"queues": [queue], "findings": [{"holds": False, "text": text}], "reservations": [], "fair": None}
    for columns in (80, None):
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns:
            monkeypatch.setenv("COLUMNS", str(columns))
        show_fairness(found)
        lines = capsys.readouterr().out.splitlines()
        assert (max(map(len, lines)) <= 80) is (columns == 80)
        assert any(word in lines[2] for word in (["resea…", "12345"] if columns else [name])), lines[2]
        assert (f"✗ {text}" in lines) is (columns is None)
        assert sum(f"{word}" in line for word in ("a1-b2-c3-d4-e5-f6", "`fairlead audit --over 1h`") for line in lines) == 2
    print_sentence("is `quite long and kept`\x1b[2J " * 4)
    assert capsys.readouterr().out.count("\n") == 1
    monkeypatch.setenv("COLUMNS", "30")
    print_sentence("it is `quite long and kept`\x1b[2J 日本語 " * 2)
    assert capsys.readouterr().out.splitlines()[:3] == [
        "it is", "  `quite long and kept`\\x1b[2J", "  日本語 it is",
    ]  # fmt: skip


def test_why_it_is_not_fair_is_said(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    queue = {
        "dominant_share": 0.0, "dominant_resource": None, "entitled": 0.5, "running": 0, "waiting": 1, "passed_over_for": [],
    }  # fmt: skip
    whys = ("not yet converged", "about to start", "not yet converged")
    queues = [{**queue, "name": f"q{k}", "status": "below", "why": why} for k, why in enumerate(whys)]
    show_fairness({"queues": queues, "findings": [], "reservations": [], "fair": False})
    assert capsys.readouterr().out.splitlines()[-1] == (
        "not fair at this moment: q0 and q2 are below their shares until others' tasks end; "
        "q1 is below its share until tasks that are about to start have started"
    )


def test_a_leaf_with_hundreds_of_users_is_shown_in_short_on_a_terminal(capsys, monkeypatch):
    """Those that have most of each queue, and who is below; the others are counted, and so are sentences about who waits."""
    users = [
        {
            "name": f"lab/u{k}", "dominant_share": k / 1000, "dominant_resource": "cpu", "entitled": 0.5, "running": 1,
            "waiting": 1, "status": "below" if k == 7 else "fair", "why": "no demand", "waits_since": 0.0,
            "passed_over_for": ["lab/u999"] if k < 30 else [],
        }
        for k in range(1000)
    ]  # fmt: skip
    other = {**users[0], "name": "other", "passed_over_for": []}
    found = {"queues": [*users, other], "findings": [], "reservations": [], "fair": None}
    monkeypatch.delenv("COLUMNS", raising=False)
    show_fairness(found, 40)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) < 70
    assert "… and 960 more of lab; --all shows them" in shown
    assert {"lab/u7", "lab/u999", "other"} < {line.split()[0] for line in shown if line}
    assert "– and 20 more wait like this; --all shows them" in shown
    assert any(line.endswith("while lab/u999, with no smaller share, was served") for line in shown)
    show_fairness(found)
    assert len(capsys.readouterr().out.splitlines()) > 1030
    tree = [{**users[0], "name": "/"}, {**users[0], "name": "lab"}, *users, other]
    few, more = fewer(tree, 40)
    assert (len(few), more) == (43, ["… and 960 more of lab; --all shows them"])
    assert fewer(tree, None) == (tree, [])


def test_who_stops_is_told_which_nodes_are_not_heard_and_whether_they_are_waited_for():
    """Those where nothing runs keep nobody waiting; a scheduler of before knows none."""
    nodes = [
        {"name": "a", "tasks": 1, "silent": 12.0},
        {"name": "b", "tasks": 0, "silent": 12.0},
        {"name": "c", "tasks": 1, "silent": None},
        {"name": "d", "tasks": 1},
    ]
    assert _silent_nodes(nodes, now=True) == "no contact with a; not waiting for them"
    assert _silent_nodes(nodes, now=False) == "no contact with a; `fairlead down --now` does not wait for them"
    assert _silent_nodes(nodes[1:], now=False) == ""
