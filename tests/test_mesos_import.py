"""What a Mesos master says, as a fairlead.toml: it is one that a scheduler takes, and what is not in it is listed."""

import base64
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
from fairlead.model.specs import Framework
from fairlead.policies.registry import find_policy
from fairlead.scheduler import admission
from fairlead.scheduler import state as scheduler
from fairlead.scheduler.effects import apply
from fairlead.scheduler.frameworks import requests as frameworks

EXAMPLE = Path(__file__).parent.parent / "examples" / "mesos-state.json"


def imported(command, *more):
    done = command("import", "mesos", "--state", str(EXAMPLE), *more)
    Path("made.toml").write_text(done.stdout)
    return done, {queue.name: queue for queue in read_configuration(Path("made.toml"), find_policy).queues}


def test_roles_weights_and_quota_become_queues(command):
    done, queues = imported(command)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert list(queues) == ["", "ads", "default", "research", "research/vision"]
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
    assert "#   quota: /state does not report it" in alone
    assert 'name = "ads"\nweight = 2.0' in alone, "of the flag"
    both = command("import", "mesos", "--state", "state.json", "--roles", "roles.json").stdout
    assert both.splitlines()[1:] == imported(command)[0].stdout.splitlines()[1:]


def test_a_master_is_asked(command, tmp_path):
    state = json.loads(EXAMPLE.read_text())
    (tmp_path / "master").mkdir()
    (tmp_path / "master" / "roles").write_text(json.dumps({"roles": state.pop("roles")}))
    (tmp_path / "master" / "state").write_text(json.dumps(state))
    known = []
    remember = {"log_message": lambda handler, *_: known.append(handler.headers["Authorization"])}
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), remember)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=tmp_path)) as master:
        threading.Thread(target=master.serve_forever).start()
        url = f"http://127.0.0.1:{master.server_port}/master"
        asked = command("import", "mesos", "--state", f"{url}/state")
        known.clear()
        secretly = command("import", "mesos", "--state", f"{url.replace('//', '//me:top%40secret@')}/state")
        assert [base64.b64decode(each.removeprefix("Basic ")) for each in known] == [b"me:top@secret"] * 2
        missing = command("import", "mesos", "--state", f"{url.replace('//', '//me:secret@')}/nothing")
        master.shutdown()
    assert asked.stdout.splitlines()[1:] == imported(command)[0].stdout.splitlines()[1:]
    assert secretly.stdout == asked.stdout, "and no word of the password"
    assert missing.stderr == f"fairlead: {url}/nothing: answers 404 File not found: save the answer, and name the file\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot be read: No such file"),
        ("<html>", "s.json:1: not JSON: column 1: a value is missing here"),
        ("[]", "no JSON object"),
        ("{}", "it has no slaves and no frameworks"),
        ("[" * 100_000, "nested too deeply"),
        ('{"roles": [{"name": "a", "weight": -1}]}', "roles[0].weight: use more than 0, not -1"),
        ('{"roles": [{"name": "a", "quota": {"limit": {"cpus": NaN}}}]}', "roles[0].quota.limit.cpus: "),
        ('{"roles": [{}]}', "roles[0].name: is missing"),
        ('{"slaves": [], "slaves": []}', "slaves: is given twice: keep one of them"),
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


def test_what_is_said_twice_or_of_no_role_is_taken_or_listed():
    roles = [{"name": "a", "weight": 2}, {"name": "a", "weight": 3}, {"name": "b"}]
    found = import_mesos(State(roles=roles, flags={"weights": "a=2,b=x,b=4,c=5,c=6"}), "s")
    assert found.left_out == [
        "role a: it is named twice: the first holds",
        "flag weights: b=x: not ROLE=WEIGHT",
        "flag weights: c=6: it is named twice: the first holds",
        "flag weights: b=4: the master reports 1",
    ]
    assert 'name = "a"\nweight = 2.0' in found.text
    assert 'name = "c"\nweight = 5.0' in found.text


def test_the_frameworks_of_a_role_are_within_its_weight_and_quota(tmp_path):
    """Beside the roles below, in a queue that the scheduler makes: so none is written for them, whatever a role is called."""
    roles = [{"name": "a", "weight": 3, "quota": {"limit": {"cpus": 2}}}, {"name": "a/own", "weight": 2}]
    path = tmp_path / "fairlead.toml"
    path.write_text(import_mesos(State(roles=roles, frameworks=[{"roles": ["a"]}]), "s").text)
    made, live = read_configuration(path, find_policy), scheduler.State()
    apply(live, admission.configure(live, made.queues, made.settings, 0.0))
    for fact in frameworks.subscribe(live, Framework("x", roles=["a", "a/own"]), "f", [], 0.0):
        apply(live, fact)
    assert live.frameworks.members["f"].leaves == {"a": "a/./1", "a/own": "a/own/./1"}
    q, row = live.queues, live.tree.rows
    assert q.parent[row["a/."]] == q.parent[row["a/own"]] == row["a"]
    assert {float(each) for each in q.weight[row["a/."]]} == {1.0}


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
