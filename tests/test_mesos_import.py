"""What a Mesos master says, as a fairlead.toml: it is one that a scheduler takes, and what is not in it is listed."""

import doctest
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.imports import mesos
from fairlead.imports.mesos import import_mesos
from fairlead.imports.mesos_state import State
from fairlead.model.documents import read_configuration
from fairlead.policies.registry import find_policy

EXAMPLE = Path(__file__).parent.parent / "examples" / "mesos-state.json"


def imported(command, *more):
    done = command("import", "mesos", "--state", str(EXAMPLE), *more)
    Path("made.toml").write_text(done.stdout)
    return done, {queue.name: queue for queue in read_configuration(Path("made.toml"), find_policy).queues}


def test_roles_weights_and_quota_become_queues(command):
    done, queues = imported(command)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert list(queues) == ["", "ads", "default", "research", "research/own", "research/vision"]
    ads = queues["ads"]
    assert (ads.weight, ads.guarantee) == (2, {"cpu": 4000, "memory": 8 << 30})
    assert ads.limit == {"cpu": 12500, "memory": 16 << 30}
    assert queues["research/vision"].weight == 0.5
    assert "# Made from" in done.stdout
    assert "Mesos 1.11.0" in done.stdout
    assert "#   reserved for ads: cpus 2, mem 1024: " in done.stdout
    assert "#   flag fair_sharing_excluded_resource_names=gpus: " in done.stdout


def test_quota_that_is_not_told_is_said(command, tmp_path):
    state = json.loads(EXAMPLE.read_text())
    roles = {"roles": state.pop("roles")}
    Path("state.json").write_text(json.dumps(state))
    Path("roles.json").write_text(json.dumps(roles))
    alone = command("import", "mesos", "--state", "state.json").stdout
    assert "#   quota: /state does not tell it" in alone
    assert 'name = "ads"\nweight = 2.0' in alone, "of the flag"
    both = command("import", "mesos", "--state", "state.json", "--roles", "roles.json").stdout
    assert both.splitlines()[1:] == imported(command)[0].stdout.splitlines()[1:]


def test_a_master_is_asked(command, tmp_path):
    state = json.loads(EXAMPLE.read_text())
    (tmp_path / "master").mkdir()
    (tmp_path / "master" / "roles").write_text(json.dumps({"roles": state.pop("roles")}))
    (tmp_path / "master" / "state").write_text(json.dumps(state))
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=tmp_path)) as master:
        threading.Thread(target=master.serve_forever).start()
        url = f"http://127.0.0.1:{master.server_port}/master"
        asked = command("import", "mesos", "--state", f"{url}/state")
        missing = command("import", "mesos", "--state", f"{url}/nothing")
        master.shutdown()
    assert asked.stdout.splitlines()[1:] == imported(command)[0].stdout.splitlines()[1:]
    assert missing.stderr == f"fairlead: {url}/nothing: answers 404 File not found: save it, and name the file\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot be read: No such file"),
        ("<html>", "s.json:1: not JSON: column 1: a value is missing here"),
        ("[]", "no JSON object"),
        ("{}", "names no slaves and no frameworks"),
        ("[" * 100_000, "nested too deeply"),
        ('{"roles": [{"name": "a", "weight": -1}]}', "roles[0].weight: use more than 0, not -1"),
        ('{"roles": [{"name": "a", "quota": {"limit": {"cpus": NaN}}}]}', "roles[0].quota.limit.cpus: "),
        ('{"roles": [{}]}', "roles[0].name: is missing"),
        ('{"slaves": [], "slaves": []}', "slaves: is there twice: keep one of them"),
        ('{"slaves": 3}', "slaves: write a list, not 3"),
    ],
)
def test_what_is_none_of_mesos_is_refused_in_a_line(command, text, why):
    if text is not None:
        Path("s.json").write_text(text)
    done = command("import", "mesos", "--state", "s.json")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("fairlead: s.json:")
    assert why in done.stderr


def test_names_that_fairlead_does_not_take_are_listed():
    roles = [{"name": name} for name in (".hidden", "a/.b", "*", "default", "x")]
    found = import_mesos(State(roles=roles, frameworks=[{"roles": ["*"]}]), "s")
    assert [each.split(":")[0] for each in found.left_out] == ["role .hidden", "role a/.b", "role *"]


part = st.sampled_from(["a", "b", "own", ".c", "*", "default"])
amounts = st.dictionaries(st.sampled_from(["cpus", "mem", "gpus", "x y", "disk"]), st.floats(0, 1e6))
role = st.fixed_dictionaries(
    {
        "name": st.lists(part, min_size=1, max_size=3).map("/".join),
        "weight": st.floats(1e-12, 1e12),
        "quota": st.fixed_dictionaries({"limit": amounts}),
    }
)


@given(st.lists(role, max_size=6), st.lists(st.lists(part, min_size=1, max_size=2).map("/".join), max_size=3))
def test_whatever_a_master_says_what_is_made_of_it_is_taken(tmp_path_factory, roles, subscribed):
    state = State(roles=roles, frameworks=[{"roles": subscribed}] if subscribed else [])
    path = tmp_path_factory.getbasetemp() / "mesos.toml"
    path.write_text(import_mesos(state, "s").text)
    read_configuration(path, find_policy)


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(mesos).failed == 0
