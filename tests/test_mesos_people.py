"""Frameworks on a machine of many people: each is an account, by its secret or by whose process it is, and runs as that."""

import contextlib
import json
import re
import time

import pytest

from machine import Machine, why_not
from mesos_wire import JSON, Wire, task

PRINCIPALS = """
[[principal]]
name = "marathon"
secret = "wing"
account = "alice"

[[principal]]
name = "aurora"
secret = "borealis"
account = "bob"
roles = ["people"]

[[principal]]
name = "chronos"
secret = "time"
account = "alice"
roles = ["vision"]

[[principal]]
name = "olga"
secret = "sees"
account = "olga"
"""


@pytest.fixture(scope="module")
def crowd():
    """A machine where frameworks connect, and where."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    there = Machine()
    secrets = there.folder / "principals.toml"
    secrets.write_text(PRINCIPALS)
    secrets.chmod(0o600)
    try:
        there.up("--mesos", "127.0.0.1:0", "--mesos-principals", str(secrets))
        there.port = int(re.findall(r"http://127.0.0.1:(\d+)", there.log.read_text())[-1])
        yield there
    finally:
        there.close()


def test_tasks_run_as_the_account_of_their_framework(crowd):
    wire = Wire(crowd.port, ("marathon", "wing"))
    with wire.subscribed({"roles": ["vision"], "user": "root"}) as framework:
        offer = framework.welcome().offer()
        look = "id -un; pwd; stat -c %U:%a .; touch mine && ls ..; cat ../*/mine"
        framework.launch(offer, task("who", look, offer, mem=64))
        assert framework.last("who")["state"] == "TASK_FAILED"
        out = crowd["alice"].ok("logs", _newest(crowd)).splitlines()
        assert (out[0], out[2]) == ("alice", "alice:700")
        assert out[1].startswith(f"{crowd.home}-sandboxes/")
        assert len(out) == 3, "the names of others' sandboxes are not to be seen"
        framework.call("REVIVE")
        offer = framework.offer()
        framework.launch(offer, task("su", {"value": "true", "user": "root"}, offer))
        assert framework.status("su")["state"] == "TASK_ERROR"


def test_a_principal_that_is_removed_while_a_body_comes_calls_nothing(crowd):
    wire, secrets = Wire(crowd.port, ("aurora", "borealis")), crowd.folder / "principals.toml"
    body = json.dumps({"type": "GET_VERSION"}).encode()
    with wire.connect() as connection:
        headers = {**JSON, "Content-Length": str(len(body)), "Expect": "100-continue"}
        wire.send(connection, "POST", "/api/v1", headers=headers)
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        try:
            secrets.write_text(PRINCIPALS.replace("borealis", "sunrise"))
            connection.sendall(body)
            assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
        finally:
            secrets.write_text(PRINCIPALS)


def test_what_is_wrong_with_the_file_of_principals_is_for_its_owner_only(crowd):
    wire, secrets = Wire(crowd.port, ("aurora", "borealis")), crowd.folder / "principals.toml"
    assert wire.ask("GET", "/state").status == 200
    try:
        secrets.chmod(0o644)
        told = wire.ask("GET", "/state")
        assert (told.status, str(secrets) in told.body.decode()) == (503, False)
        while f"--mesos-principals: {secrets}: others may read or change it: chmod 600" not in crowd.log.read_text():
            time.sleep(0.05)  # the log is written in the background
    finally:
        secrets.chmod(0o600)
    assert wire.ask("GET", "/state").status == 200


def _newest(crowd):
    return str(crowd["alice"].http("GET", "/v1/jobs?limit=1")[1]["jobs"][0]["id"])


@pytest.mark.parametrize(
    ("who", "role"),
    [
        (("aurora", "borealis"), "vision"),
        (("aurora", "borealis"), "*"),
        (("aurora", "borealis"), "people/alice"),
        (("marathon", "wing"), "people/bob"),
        (("marathon", "wing"), "new"),
    ],
)
def test_roles_that_are_not_theirs(crowd, who, role):
    with Wire(crowd.port, who).subscribed({"roles": [role]}) as framework:
        assert framework.event()["type"] == "ERROR"


def test_others_frameworks_are_not_told(crowd):
    alice, bob = Wire(crowd.port, ("marathon", "wing")), Wire(crowd.port, ("aurora", "borealis"))
    with alice.subscribed({"roles": ["vision"]}) as framework:
        framework.welcome()
        assert [each["id"] for each in alice.get("/frameworks")["frameworks"]] == [framework.id]
        assert bob.get("/frameworks")["frameworks"] == bob.get("/tasks")["tasks"] == []
        call = {"type": "TEARDOWN", "teardown": {"framework_id": {"value": framework.id}}}
        assert bob.post(call, path="/api/v1").status == 403
        assert bob.post({"type": "UPDATE_WEIGHTS", "update_weights": {}}, path="/api/v1").status == 403


def test_who_is_bound_to_queues_sees_and_tears_down_what_is_in_these(crowd):
    everywhere, bound = Wire(crowd.port, ("marathon", "wing")), Wire(crowd.port, ("chronos", "time"))
    with contextlib.ExitStack() as open_:
        apart = open_.enter_context(everywhere.subscribed({"roles": ["secret"], "failover_timeout": 60.0}))
        offer = apart.welcome().offer()  # before the others are there: one of them might be offered the node
        both = open_.enter_context(everywhere.subscribed({"roles": ["vision", "secret"]}))
        within = open_.enter_context(everywhere.subscribed({"roles": ["vision"]}))
        whose = {"role": "secret", "reservation": {"principal": "marathon"}}
        reserved = {"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}, **whose}
        operations = [
            {"type": "RESERVE", "reserve": {"resources": [reserved]}},
            {"type": "LAUNCH", "launch": {"task_infos": [task("hush", "sleep 60", offer)]}},
        ]
        apart.call("ACCEPT", offer_ids=[offer["id"]], operations=operations)
        assert apart.status("hush")["state"] == "TASK_STARTING"
        both.welcome()
        within.welcome()
        for wire, seen in ((everywhere, [apart, both, within]), (bound, [within])):
            names = {framework.id for framework in seen}
            assert {each["id"] for each in wire.get("/frameworks")["frameworks"]} == names
            assert {each["id"] for each in wire.get("/state")["frameworks"]} == names
            for path in ("/state", "/tasks", "/roles", "/slaves", "/weights", "/quota"):
                assert ("secret" in str(wire.get(path))) == (wire is everywhere and path != "/quota"), path
            for kind in ("STATE", "TASKS", "FRAMEWORKS", "ROLES", "AGENTS", "WEIGHTS"):
                told = wire.post({"type": f"GET_{kind}"}, path="/api/v1").body
                assert (b"secret" in told) == (wire is everywhere), kind
        told = Wire(crowd.port, ("olga", "sees")).get("/state")
        assert [each["id"] for each in told["frameworks"]] == [within.id], "an operator sees nobody's names in private queues"
        for framework, status in ((apart, 403), (both, 403), (within, 200)):
            call = {"type": "TEARDOWN", "teardown": {"framework_id": {"value": framework.id}}}
            answer = bound.post(call, path="/api/v1")
            assert answer.status == status, answer.raw
            assert status == 200 or answer.body == b"this token is for vision only, not for queue 'secret'"
        assert apart.call("TEARDOWN").status == 202


def test_whose_process_it_is_is_enough_without_secrets(crowd):
    """Without principals, the kernel's word about a process of this machine."""
    there = Machine()
    try:
        there.up("--mesos", "127.0.0.1:0")
        port = int(re.findall(r"http://127.0.0.1:(\d+)", there.log.read_text())[-1])
        look = (
            "import http.client as h, json\n"
            f"c = h.HTTPConnection('127.0.0.1', {port})\n"
            "info = {'name': 'x', 'user': '', 'role': '%s'}\n"
            "body = json.dumps({'type': 'SUBSCRIBE', 'subscribe': {'framework_info': info}})\n"
            "c.request('POST', '/api/v1/scheduler', body, {'Content-Type': 'application/json'})\n"
            "a = c.getresponse()\n"
            "print(a.status, a.read(60))\n"
        )
        assert "SUBSCRIBED" in there["alice"].python(look % "vision").stdout
        assert "ERROR" in there["bob"].python(look % "vision").stdout
        assert there["stranger"].python(look % "vision").stdout.startswith("401")
    finally:
        there.close()
