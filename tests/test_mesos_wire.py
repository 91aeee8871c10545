"""Mesos' wire: each status of its table, the stream byte for byte, and what becomes of tasks, by a client over plain sockets."""

import ast
import contextlib
import importlib
import json
import re
import socket
from base64 import b64decode, b64encode
from pathlib import Path
from random import Random

import pytest

from conftest import Live
from fairlead.service.mesos import events
from fairlead.service.mesos.encoding import PROTOBUF
from fairlead.service.mesos.messages.scheduler_pb2 import Call, Event
from mesos_wire import JSON, Wire, task

CONFIG = """
[scheduler]
offer_timeout = "1h"

[[queue]]
name = "A"
weight = 2
guarantee = { cpu = 1 }
limit = { cpu = 8, memory = "8Gi" }

[[queue]]
name = "B"
grace = 0

[[node]]
name = "n1"
capacity = { cpu = 9, memory = "18Gi", gpu = 0 }
labels = { zone = "east" }

[[node]]
name = "n2"
capacity = { cpu = 4, memory = "4Gi", disk = "100Gi" }
"""

STREAMS = 200
"""Frameworks that are subscribed at once; a thousand take the same path."""


def port_of(live: Live) -> int:
    """Where frameworks connect."""
    return int(re.findall(r"http://127.0.0.1:(\d+)", live.log.read_text())[-1])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("mesos")) as live:
        live.config.write_text(CONFIG)
        live.up("--mesos", "127.0.0.1:0")
        yield live


@pytest.fixture
def wire(world):
    wire = Wire(port_of(world))
    yield wire
    for each in wire.get("/frameworks")["frameworks"]:  # what a test left takes nothing from the next
        call = {"type": "TEARDOWN", "teardown": {"framework_id": {"value": each["id"]}}}
        assert wire.post(call, path="/api/v1").status in (200, 404)  # it may have gone by itself
    world.until(lambda: not any(queue["running"] for queue in world.ask("queues")["queues"]))


SUBSCRIBE = {"type": "SUBSCRIBE", "subscribe": {"framework_info": {"name": "test", "user": "", "role": "A"}}}


MASTER_PATHS = """
/version /health /state /state-summary /slaves /tasks /frameworks /roles /weights /quota /flags /redirect /metrics/snapshot
/create-volumes /destroy-volumes /reserve /unreserve /teardown /machine/down /machine/up /maintenance/schedule /maintenance/status
/files/browse /files/read /files/download /files/debug /logging/toggle /registrar(1)/registry /profiler/start /profiler/stop
/memory-profiler/start /memory-profiler/state /system/stats.json /help /__processes__ /
"""
MASTER_CALLS = """
GET_HEALTH GET_FLAGS GET_VERSION GET_METRICS GET_LOGGING_LEVEL SET_LOGGING_LEVEL LIST_FILES READ_FILE GET_STATE
GET_AGENTS GET_FRAMEWORKS GET_EXECUTORS GET_OPERATIONS GET_TASKS GET_ROLES GET_WEIGHTS UPDATE_WEIGHTS GET_MASTER
SUBSCRIBE RESERVE_RESOURCES UNRESERVE_RESOURCES CREATE_VOLUMES DESTROY_VOLUMES GROW_VOLUME SHRINK_VOLUME
GET_MAINTENANCE_STATUS GET_MAINTENANCE_SCHEDULE UPDATE_MAINTENANCE_SCHEDULE START_MAINTENANCE STOP_MAINTENANCE
DRAIN_AGENT DEACTIVATE_AGENT REACTIVATE_AGENT GET_QUOTA UPDATE_QUOTA SET_QUOTA REMOVE_QUOTA TEARDOWN MARK_AGENT_GONE
"""


class TestStatuses:
    def test_another_method(self, wire):
        answer = wire.ask("GET", "/api/v1/scheduler")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")

    def test_no_content_type(self, wire):
        assert wire.ask("POST", "/api/v1/scheduler", b"{}").status == 400

    def test_another_content_type(self, wire):
        assert wire.ask("POST", "/api/v1/scheduler", b"{}", {"Content-Type": "text/plain"}).status == 415

    def test_what_accepts_neither_kind(self, wire):
        assert wire.post(SUBSCRIBE, {"Accept": "text/html"}).status == 406

    def test_what_is_no_message(self, wire):
        for body in (b"", b"{", b"[]", b"[" * 10_000, b'{"type": "KILL", "kill": 3}', b'{"type": 3.5}',
            b'{"type": "SUPPRESS", "suppress": "x"}', b'{"type": "SUBSCRIBE", "subscribe": "x"}',
            b'{"type": "SUBSCRIBE", "subscribe": {"framework_info": "x"}}',
            b'{"type": "ACCEPT", "accept": {"offer_ids": {"value": "1"}}}',
        ):  # fmt: skip
            assert wire.ask("POST", "/api/v1/scheduler", body, JSON).status == 400, body
        assert wire.ask("POST", "/api/v1/scheduler", b"\xff\xff", {"Content-Type": PROTOBUF}).status == 400

    def test_a_call_without_a_type(self, wire):
        assert wire.post({}).status == 400

    def test_a_call_without_its_body(self, wire):
        with wire.subscribed() as framework:
            framework.welcome()
            for kind in ("ACCEPT", "DECLINE", "KILL", "SHUTDOWN", "ACKNOWLEDGE", "RECONCILE", "MESSAGE", "UPDATE_FRAMEWORK"):
                assert framework.call(kind).status == 400, kind
            info = {"name": "f", "user": "", "roles": ["A"], "id": {"value": "another"}}
            answer = framework.call("UPDATE_FRAMEWORK", framework_info=info)
            assert answer.status == 400
            assert b"'framework_id' differs from 'update_framework.framework_info.id'" in answer.body

    def test_roles_that_a_framework_has_not(self, wire, world):
        """The call is taken and passed over, also for those that it has."""
        with wire.subscribed() as framework:
            framework.welcome()
            for role in ("B", "a//b"):
                assert framework.call("SUPPRESS", roles=["A", role]).status == 202
                assert framework.call("REVIVE", roles=[role, "A"]).status == 202
            log = [each["what"] for each in world.ask("log")["log"] if framework.id in each["what"]]
            assert log == [f"subscribed framework {framework.id}"]

    def test_another_principal(self, wire):
        with wire.subscribed({"principal": "one"}) as framework:
            framework.welcome()
            for said, status in ((None, 202), ("two", 400), ("one", 202)):
                info = {"name": "f", "user": "", "roles": ["A"], **({"principal": said} if said else {})}
                answer = framework.call("UPDATE_FRAMEWORK", framework_info=info)
                assert answer.status == status, answer.raw
                assert status == 202 or b"Changing framework's principal is not allowed" in answer.body

    def test_subscribe_with_a_stream_id(self, wire):
        assert wire.post(SUBSCRIBE, {"Mesos-Stream-Id": "x"}).status == 400

    def test_subscribe_with_two_ids(self, wire):
        info = {**SUBSCRIBE["subscribe"]["framework_info"], "id": {"value": "a"}}
        call = {"type": "SUBSCRIBE", "framework_id": {"value": "b"}, "subscribe": {"framework_info": info}}
        assert wire.post(call).status == 400

    @pytest.mark.parametrize("missing", ["user", "name"])
    def test_subscribe_without_a_user_or_a_name(self, wire, missing):
        info = {"user": "", "name": "test", "roles": ["A"]}
        for without in ({k: v for k, v in info.items() if k != missing}, {**info, missing: None}):
            answer = wire.post({"type": "SUBSCRIBE", "subscribe": {"framework_info": without}})
            assert answer.status == 400
            assert f"Missing required fields: subscribe.framework_info.{missing}".encode() in answer.body
        call = Call(type=Call.SUBSCRIBE)
        call.subscribe.framework_info.roles.append("A")
        answer = wire.ask(
            "POST", "/api/v1/scheduler", call.SerializePartialToString(), {"Content-Type": PROTOBUF, "Accept": PROTOBUF}
        )
        assert answer.status == 400
        assert b"subscribe.framework_info.user" in answer.body
        labels = {"user": "", "name": "test", "roles": ["A"], "labels": {"labels": [{}]}}
        answer = wire.post({"type": "SUBSCRIBE", "subscribe": {"framework_info": labels}})
        assert (answer.status, b"Missing required fields: subscribe.framework_info.labels" in answer.body) == (400, True)

    def test_an_unknown_framework(self, wire):
        answer = wire.post({"type": "TEARDOWN", "framework_id": {"value": "nobody"}}, {"Mesos-Stream-Id": "x"})
        assert (answer.status, answer.body) == (400, b"Framework cannot be found")

    def test_no_framework(self, wire):
        assert wire.post({"type": "TEARDOWN"}).status == 400

    def test_a_missing_or_wrong_stream_id(self, wire):
        with wire.subscribed() as framework:
            framework.welcome()
            call = {"type": "REVIVE", "framework_id": {"value": framework.id}}
            assert [wire.post(call).status, wire.post(call, {"Mesos-Stream-Id": "x"}).status] == [400, 400]
            assert wire.post(call, {"Mesos-Stream-Id": framework.stream}).status == 202

    def test_not_subscribed(self, wire, world):
        with wire.subscribed({"failover_timeout": 60.0}) as framework:
            framework.welcome()
        world.until(lambda: not wire.get("/frameworks")["frameworks"][0]["connected"])
        assert framework.call("REVIVE").status == 403

    def test_an_unknown_call(self, wire):
        with wire.subscribed() as framework:
            framework.welcome()
            assert [framework.call(kind).status for kind in ("UNKNOWN", "FLY_TO_THE_MOON")] == [501, 501]

    def test_taken(self, wire):
        with wire.subscribed() as framework:
            framework.welcome()
            answer = framework.call("REQUEST", requests=[])
            assert (answer.status, answer.body, answer.headers["content-length"]) == (202, b"", "0")

    def test_a_body_that_is_too_large(self, wire):
        with wire.connect() as connection:
            head = {**JSON, "Content-Length": str(2**30)}
            wire.send(connection, "POST", "/api/v1/scheduler", b"", head)
            with contextlib.suppress(OSError):
                for _ in range(20):
                    connection.sendall(b" " * 2**20)
            assert b" 413 " in connection.recv(100)

    def test_another_host(self, wire):
        assert wire.ask("GET", "/version", headers={"Host": "evil.example"}).status == 421


class TestStream:
    def test_the_first_bytes(self, wire):
        with wire.subscribed({"name": "tést"}) as framework:
            assert framework.head.raw.startswith(b"HTTP/1.1 200 OK\r\n")
            assert framework.head.headers["content-type"] == "application/json"
            assert framework.head.headers["transfer-encoding"] == "chunked"
            first = framework.record()
            assert first.isascii()
            assert b"\n" not in first
            told = json.loads(first)
            assert list(told) == ["type", "subscribed"]
            assert set(told["subscribed"]) == {"framework_id", "heartbeat_interval_seconds", "master_info"}
            assert told["subscribed"]["heartbeat_interval_seconds"] == 15.0
            assert tuple(map(int, told["subscribed"]["master_info"]["version"].split("."))) >= (1, 9, 0)
            assert framework.chunk() == b'20\n{"type":"HEARTBEAT"}'

    def test_an_offer(self, wire):
        with wire.subscribed() as framework:
            event = framework.welcome().wait_for("OFFERS")
        offer = next(each for each in event["offers"] if each["hostname"] == "n1")
        assert offer["agent_id"] == {"value": "n1"}
        assert offer["attributes"] == [{"name": "zone", "type": "TEXT", "text": {"value": "east"}}]
        assert offer["allocation_info"] == {"role": "A"}
        cpus = offer["resources"][0]
        assert (cpus["name"], cpus["type"], cpus["role"]) == ("cpus", "SCALAR", "*")
        assert cpus["scalar"]["value"] <= 8.0
        assert cpus["allocation_info"] == {"role": "A"}

    def test_who_knows_no_roles_is_told_none(self, wire):
        with wire.subscribed({"roles": [], "role": "B", "capabilities": []}) as framework:
            offer = framework.welcome().offer()
        assert "allocation_info" not in offer
        assert not any("allocation_info" in each for each in offer["resources"])

    def test_binary(self, wire):
        call = Call(type=Call.SUBSCRIBE)
        call.subscribe.framework_info.name = call.subscribe.framework_info.user = ""
        call.subscribe.framework_info.role = "A"
        with wire.connect() as connection:
            head = {"Content-Type": PROTOBUF, "Accept": PROTOBUF}
            wire.send(connection, "POST", "/api/v1/scheduler", call.SerializePartialToString(), head)
            raw = bytearray()
            while raw.count(b"\r\n") < 10:
                raw += connection.recv(65536)
        assert f"content-type: {PROTOBUF}".encode() in raw.lower()
        body = raw.partition(b"\r\n\r\n")[2]
        chunk = body.partition(b"\r\n")[2]
        length, _, data = chunk.partition(b"\n")
        event = Event.FromString(bytes(data[: int(length)]))
        assert event.type == Event.SUBSCRIBED
        assert event.subscribed.framework_id.value

    def test_unknown_fields_are_passed_over(self, wire):
        info = {"hovercraft": {"eels": 3}, "capabilities": [{"type": "MULTI_ROLE"}, {"type": "TELEPATHY"}]}
        with wire.subscribed(info, also="this") as framework:
            framework.welcome()

    def test_a_role_that_cannot_be_is_an_error_of_the_stream(self, wire):
        with wire.subscribed({"roles": ["a//b"]}) as framework:
            assert framework.head.status == 200
            assert "a//b" in framework.event()["error"]["message"]
            assert framework.chunk() == b""

    @pytest.mark.parametrize("seconds", ["Infinity", "-Infinity", "NaN", 1e308, 1e10])
    def test_a_failover_timeout_that_cannot_be_is_an_error_of_the_stream(self, wire, seconds):
        with wire.subscribed({"failover_timeout": seconds}) as framework:
            assert "failover_timeout" in framework.event()["error"]["message"]
        assert wire.get("/frameworks")["frameworks"] == []

    def test_a_failover_timeout_below_none_is_none(self, wire):
        with wire.subscribed({"failover_timeout": -5}) as framework:
            framework.welcome()
            assert wire.get("/frameworks")["frameworks"][0]["failover_timeout"] == 0.0

    def test_two_requests_over_one_connection(self, wire):
        with wire.connect() as connection:
            for _ in range(2):
                wire.send(connection, "GET", "/version", headers={"Connection": "keep-alive"})
                answer = b""
                while not answer.endswith(b"}"):
                    answer += connection.recv(65536)
                assert b'"version":"1.11.0"' in answer

    def test_who_does_not_read_is_cut_off_and_others_are_not(self, wire, world):
        with wire.connect() as silent, wire.subscribed() as framework:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            call = {"type": "SUBSCRIBE", "subscribe": {"framework_info": {"name": "silent", "user": "", "role": "B"}}}
            body = json.dumps(call).encode()
            wire.send(silent, "POST", "/api/v1/scheduler", body, JSON)
            framework.welcome()
            world.until(lambda: len(wire.get("/frameworks")["frameworks"]) == 2)
            who = next(f["id"] for f in wire.get("/frameworks")["frameworks"] if f["name"] == "silent")
            raw = silent.recv(400)
            stream = re.search(rb"(?i)mesos-stream-id: (\S+)", raw)[1].decode()
            tasks = [{"task_id": {"value": f"{'x' * 200}{n}"}} for n in range(2000)]
            ask = {"type": "RECONCILE", "framework_id": {"value": who}, "reconcile": {"tasks": tasks}}
            for _ in range(30):
                if wire.post(ask, {"Mesos-Stream-Id": stream}).body == b"Framework cannot be found":
                    break
            else:
                pytest.fail("megabytes wait for a reader that does not read")
            assert framework.call("REVIVE").status == 202

    def test_many_streams(self, wire):
        with contextlib.ExitStack() as closing:
            streams = []
            for n in range(STREAMS):
                streams.append(closing.enter_context(wire.subscribed({"name": f"f{n}", "roles": ["B"]}, suppressed_roles=["B"])))
            for framework in streams:
                framework.welcome()
            assert len({framework.id for framework in streams}) == STREAMS


class TestTasks:
    def test_from_launch_to_end(self, wire, world):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            command = {
                "value": "echo here; pwd; echo $MESOS_TASK_ID $GREETING >&2",
                "environment": {"variables": [{"name": "GREETING", "value": "hi"}]},
            }
            assert framework.launch(offer, task("t1", command, offer)).status == 202
            states = []
            while not states or states[-1]["state"] != "TASK_FINISHED":
                states.append(framework.status("t1"))
            assert [each["state"] for each in states] == ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]
            for each in states:
                assert each["agent_id"] == offer["agent_id"]
                assert each["source"] == "SOURCE_EXECUTOR"
            job = world.newest()
            assert world.ok("logs", str(job)).splitlines()[0] == "here"
            sandbox = Path(world.ok("logs", str(job)).splitlines()[1])
            assert sandbox.is_dir()
            assert (sandbox / "stdout").read_text().startswith("here")

    def test_booleans_as_text(self, wire):
        """As frameworks on avmesos launch; what has a container is refused with the reason."""
        with wire.subscribed({"checkpoint": "true"}) as framework:
            offer = framework.welcome().offer()
            docker = {"image": "x", "force_pull_image": "true", "privileged": "false"}
            within = {"type": "DOCKER", "docker": docker}
            plain = task("plain", {"shell": "true", "value": "test -n here"}, offer)
            assert framework.launch(offer, plain, task("docker", "true", offer, container=within)).status == 202
            refused = framework.last("docker")
            assert (refused["state"], refused["reason"]) == ("TASK_ERROR", "REASON_TASK_INVALID")
            assert "containers are not supported" in refused["message"]
            assert framework.last("plain")["state"] == "TASK_FINISHED"

    def test_arguments_without_a_shell(self, wire, world):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            command = {"shell": False, "value": "/bin/echo", "arguments": ["echo", "$HOME", "a b"]}
            framework.launch(offer, task("t2", command, offer))
            assert framework.last("t2")["state"] == "TASK_FINISHED"
            assert "$HOME a b" in world.ok("logs", str(world.newest()))

    @pytest.mark.parametrize(
        ("command", "state", "message"),
        [
            ("exit 3", "TASK_FAILED", "Command exited with status 3"),
            ("kill -9 $$", "TASK_FAILED", "Command terminated with signal Killed"),
            ({"shell": False, "value": "/no/such"}, "TASK_FAILED", "Command could not be executed: see its output"),
        ],
    )
    def test_ends(self, wire, command, state, message):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("end", command, offer))
            found = framework.last("end")
            assert (found["state"], found["message"]) == (state, message)

    def test_kill(self, wire):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            policy = {"grace_period": {"nanoseconds": 10**9}}
            framework.launch(offer, task("k", "sleep 60", offer, kill_policy=policy))
            while framework.status("k")["state"] != "TASK_RUNNING":
                pass
            assert framework.call("KILL", task_id={"value": "k"}).status == 202
            assert framework.last("k")["state"] == "TASK_KILLED"
            assert framework.call("KILL", task_id={"value": "k"}, agent_id={"value": "n1"}).status == 202
            found = framework.status("k")
            assert (found["state"], found["reason"]) == ("TASK_LOST", "REASON_RECONCILIATION")
            assert "uuid" not in found

    def test_a_task_has_the_grace_of_its_kill_policy_where_its_framework_kills_it(self, wire, world):
        """Not that of its queue, which is for what is revoked, and for people who cancel."""
        command = "trap 'sleep 0.2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        policy = {"grace_period": {"nanoseconds": 60 * 10**9}}
        with wire.subscribed({"roles": ["B"]}) as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, *(task(name, command, offer, kill_policy=policy) for name in ("kept", "cut")))
            jobs = [world.newest() - 1, world.newest()]
            for name in ("kept", "cut"):
                while framework.status(name)["state"] != "TASK_RUNNING":
                    pass
            world.until(lambda: all(world.call("logs", str(job)).stdout == "ready\n" for job in jobs))
            assert framework.call("KILL", task_id={"value": "kept"}).status == 202
            world.ok("cancel", str(jobs[1]))
            assert framework.last("kept")["state"] == framework.last("cut")["state"] == "TASK_KILLED"
        assert [world.ok("logs", str(job)) for job in jobs] == ["ready\nsaved\n", "ready\n"]

    def test_updates_come_again_until_they_are_acknowledged(self, wire, world):
        with wire.subscribed({"failover_timeout": 60.0}) as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("u", "true", offer))
            first = framework.status("u", acknowledge=False)
        with wire.subscribed({"failover_timeout": 60.0, "id": {"value": framework.id}}) as again:
            again.welcome()
            assert again.status("u", acknowledge=False)["uuid"] == first["uuid"]
            for uuid in ("!!", "", "AAAA"):
                answer = again.acknowledge({**first, "uuid": uuid})
                assert answer.status == 400
            assert answer.body == b"Failed to validate scheduler::Call: Not a valid UUID"
            world.until(lambda: world.job(world.newest())["status"] == "succeeded")
            job = int.from_bytes(b64decode(first["uuid"])[:8], "big")
            untold = [{**first, "uuid": b64encode(events.UUID.pack(job, number)).decode()} for number in (2, 3)]
            for not_known in (*untold, {**first, "agent_id": {"value": "another"}}):
                assert again.acknowledge(not_known).status == 202
        with wire.subscribed({"failover_timeout": 60.0, "id": {"value": framework.id}}) as again:
            again.welcome()
            assert again.status("u", acknowledge=False)["uuid"] == first["uuid"], "it is not known yet"
            assert again.acknowledge(first).status == 202
            assert again.acknowledge(first).status == 202
            told = again.status("u", acknowledge=False)
            assert told["state"] == "TASK_RUNNING"
            assert again.acknowledge(told).status == 202
            assert again.status("u")["state"] == "TASK_FINISHED"

    def test_what_is_left_may_be_refused_and_revived(self, wire):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            assert framework.launch(offer, task("l", "true", offer), refuse_seconds=3600).status == 202
            assert framework.last("l")["state"] == "TASK_FINISHED"
            framework.call("REVIVE")
            assert framework.offer()["resources"]

    def test_offers_that_do_not_hold(self, wire):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            assert framework.launch({**offer, "id": {"value": "O999999"}}, task("i", "true", offer)).status == 202
            found = framework.status("i")
            assert (found["state"], found["reason"], found["source"]) == ("TASK_LOST", "REASON_INVALID_OFFERS", "SOURCE_MASTER")
            assert framework.call("DECLINE", offer_ids=[{"value": "O999999"}, {"value": "?"}]).status == 202

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"container": {"type": "DOCKER", "docker": {"image": "busybox"}}}, "containers"),
            ({"container": {"type": "MESOS"}}, "containers"),
            ({"resources": []}, "no resources"),
            ({"agent_id": {"value": "elsewhere"}}, "invalid agent"),
            ({"command": None}, "CommandInfo"),
            ({"command": {"value": "true", "user": "somebody-else"}}, "run as"),
            ({"command": {"value": "true", "uris": [{"value": "hdfs://x/y"}]}}, "http, https and files"),
            ({"command": {"value": "true", "uris": [{"value": "/x", "output_file": "../y"}]}}, "sandbox"),
            ({"task_id": {"value": "a/b"}}, "not a valid id"),
            ({"health_check": {"type": "HTTP"}}, "health check"),
            ({"resources": [{"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 2}]}}]}, "no resources"),
            ({"resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1000}}]}, "left"),
            ({"resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": "NaN"}}]}, "not a valid amount"),
        ],
    )
    def test_an_invalid_task_is_an_error_and_the_others_run(self, wire, change, why):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            wrong = {**task("wrong", "true", offer), **change}
            framework.launch(offer, wrong, task("right", "true", offer))
            found = framework.status(wrong["task_id"]["value"])
            assert (found["state"], found["reason"]) == ("TASK_ERROR", "REASON_TASK_INVALID")
            assert why in found["message"]
            assert framework.last("right")["state"] == "TASK_FINISHED"

    def test_a_task_that_runs_for_longer_than_it_may(self, wire):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("long", "sleep 60", offer, max_completion_time={"nanoseconds": 10**8}))
            found = framework.last("long")
            assert (found["state"], found["reason"]) == ("TASK_FAILED", "REASON_MAX_COMPLETION_TIME_REACHED")
            assert found["message"] == "Maximum completion time reached"

    def test_of_two_tasks_of_one_id_the_first_is_launched(self, wire):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("two", "exit 3", offer), task("two", "true", offer))
            found = framework.status("two")
            assert (found["state"], found["message"]) == ("TASK_ERROR", "Task has duplicate ID: two")
            assert framework.last("two")["message"] == "Command exited with status 3"

    def test_uris(self, wire, world, tmp_path):
        (tmp_path / "run me.sh").write_text("#!/bin/sh\necho fetched $(cat deep/file)\n")
        pack = tmp_path / "pack"
        world.shell(f"mkdir -p {pack}/deep && echo packed > {pack}/deep/file && tar -C {pack} -czf {pack}.tgz deep")
        uris = [
            {"value": f"file://{tmp_path}/run%20me.sh", "executable": True, "output_file": "run.sh"},
            {"value": f"{tmp_path}/pack.tgz"},
        ]
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("uris", {"value": "./run.sh", "uris": uris}, offer))
            assert framework.last("uris")["state"] == "TASK_FINISHED"
            assert world.ok("logs", str(world.newest())) == "fetched packed\n"
            framework.call("REVIVE")
            offer = framework.offer()
            framework.launch(offer, task("none", {"value": "true", "uris": [{"value": "/no/such"}]}, offer))
            found = framework.last("none")
            assert (found["state"], found["reason"]) == ("TASK_FAILED", "REASON_CONTAINER_LAUNCH_FAILED")
            assert "cannot fetch /no/such: " in found["message"]
            assert "/no/such" in world.call("logs", str(world.newest())).stderr

    def group(self, framework, offer, *tasks):
        executor = {"type": "DEFAULT", "executor_id": {"value": "pod"}, "resources": task("", "", offer)["resources"]}
        launch = {"executor": executor, "task_group": {"tasks": list(tasks)}}
        operation = {"type": "LAUNCH_GROUP", "launch_group": launch}
        filters = {"refuse_seconds": 0}
        assert framework.call("ACCEPT", offer_ids=[offer["id"]], operations=[operation], filters=filters).status == 202

    def test_a_group_lives_and_dies_together(self, wire):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            self.group(framework, offer, task("g1", "true", offer), task("g2", "sleep 60", offer), task("g3", "sleep 60", offer))
            assert framework.last("g1")["state"] == "TASK_FINISHED"
            while framework.status("g2")["state"] != "TASK_RUNNING":
                pass
            assert framework.call("KILL", task_id={"value": "g2"}).status == 202
            assert framework.last("g2")["state"] == "TASK_KILLED"
            assert framework.last("g3")["state"] == "TASK_KILLED"
            offer = framework.offer()
            self.group(framework, offer, task("g4", "sleep 1; exit 3", offer), task("g5", "sleep 60", offer))
            assert framework.last("g4")["state"] == "TASK_FAILED"
            assert framework.last("g5")["state"] == "TASK_KILLED"

    def test_of_a_group_all_are_launched_or_none(self, wire):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            for wrong in (task("h1", "true", offer, cpus=1000), task("h1", "true", offer, container={"type": "MESOS"})):
                self.group(framework, offer, task("h0", "true", offer), wrong, task("h2", "true", offer))
                for name in ("h0", "h1", "h2"):
                    found = framework.status(name)
                    assert (found["state"], found["reason"]) == ("TASK_ERROR", "REASON_TASK_GROUP_INVALID")
                offer = framework.offer()

    @pytest.mark.parametrize("aware", [True, False])
    def test_reconciliation(self, wire, aware):
        """`mesos-reconcile-table` of the conformance cases, as far as there are such agents here."""
        capabilities = [{"type": "MULTI_ROLE"}, *([{"type": "PARTITION_AWARE"}] if aware else [])]
        with wire.subscribed({"capabilities": capabilities}) as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("known", "sleep 60", offer))
            while framework.status("known")["state"] != "TASK_RUNNING":
                pass
            asked = {"known": None, "unknown": offer["agent_id"]["value"], "elsewhere": "no-such-agent", "nowhere": None}
            tasks = [{"task_id": {"value": t}, **({"agent_id": {"value": a}} if a else {})} for t, a in asked.items()]
            assert framework.call("RECONCILE", tasks=tasks).status == 202
            found = {name: framework.status(name, acknowledge=False) for name in asked}
            gone, unknown = ("TASK_GONE", "TASK_UNKNOWN") if aware else ("TASK_LOST", "TASK_LOST")
            assert [found[name]["state"] for name in asked] == ["TASK_RUNNING", gone, unknown, unknown]
            assert all(each["reason"] == "REASON_RECONCILIATION" and "uuid" not in each for each in found.values())
            assert framework.call("RECONCILE", tasks=[]).status == 202
            assert framework.status("known", acknowledge=False)["reason"] == "REASON_RECONCILIATION"


class TestFailover:
    def test_who_comes_back_has_its_tasks_and_the_older_stream_ends(self, wire):
        with wire.subscribed({"failover_timeout": 60.0}) as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("f", "sleep 60", offer))
            while framework.status("f")["state"] != "TASK_RUNNING":
                pass
            with wire.subscribed({"failover_timeout": 60.0, "id": {"value": framework.id}}) as again:
                again.welcome()
                assert again.id == framework.id
                assert framework.wait_for("ERROR") == {"message": "Framework failed over"}
                assert framework.chunk() == b""
                assert framework.call("REVIVE").status == 400
                again.call("RECONCILE", tasks=[])
                assert again.status("f")["state"] == "TASK_RUNNING"
                assert again.offer()["framework_id"]["value"] == framework.id

    def test_who_does_not_come_back_loses_its_tasks(self, wire, world):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("g", "sleep 60", offer))
            while framework.status("g")["state"] != "TASK_RUNNING":
                pass
        world.until(lambda: not wire.get("/frameworks")["frameworks"])
        world.until(lambda: not any(queue["running"] for queue in world.ask("queues")["queues"]))
        with wire.subscribed({"id": {"value": framework.id}}) as again:
            assert "gone" in again.event()["error"]["message"]

    def test_the_scheduler_is_killed_and_starts_again(self, tmp_path):
        with Live(tmp_path) as live:
            live.config.write_text(CONFIG)
            live.up("--mesos", "127.0.0.1:0")
            wire = Wire(port_of(live))
            with wire.subscribed({"failover_timeout": 60.0}) as framework:
                offer = framework.welcome().offer()
                framework.launch(offer, task("k1", "sleep 60", offer), task("k2", "true", offer))
                while framework.status("k1")["state"] != "TASK_RUNNING":
                    pass
                live.kill()
            live.up("--mesos", "127.0.0.1:0")
            wire = Wire(port_of(live))
            with wire.subscribed({"failover_timeout": 60.0, "id": {"value": framework.id}}) as again:
                again.welcome()
                again.others = framework.others  # what was acknowledged before is not told again
                assert again.last("k2")["state"] == "TASK_FINISHED"
                again.call("RECONCILE", tasks=[])
                assert again.status("k1")["state"] == "TASK_RUNNING"
                again.call("KILL", task_id={"value": "k1"})
                assert again.last("k1")["state"] == "TASK_KILLED"
                assert again.call("TEARDOWN").status == 202
                assert again.ends()


def test_a_queue_becomes_a_role_while_its_job_runs(wire, world):
    number = world.submit("-q", "B", "--", "sleep", "600")
    world.until(lambda: world.job(number)["running"] == 1)
    with wire.subscribed({"roles": ["B"]}) as framework:
        offer = framework.welcome().offer()
        framework.launch(offer, task("beside", "true", offer))
        assert framework.last("beside")["state"] == "TASK_FINISHED"
        queue = next(each for each in world.ask("queues")["queues"] if each["name"] == "B/./jobs")
        assert (queue["running"], world.job(number)["queue"]) == (1, "B"), "people know it by that name"
        world.ok("cancel", str(number))
        world.until(lambda: world.job(number)["status"] == "cancelled")
        assert framework.call("TEARDOWN").status == 202
    again = int(world.ok("rerun", str(number)).split()[-1])
    world.until(lambda: world.job(again)["running"] == 1)
    assert "." not in "".join(queue["name"] for queue in world.ask("queues")["queues"]), "no framework is there any more"
    world.ok("cancel", str(again))


class TestOperators:
    def test_what_there_is_to_look_at(self, wire):
        assert wire.get("/version")["version"] == "1.11.0"
        assert wire.ask("GET", "/health").status == 200
        with wire.subscribed({"failover_timeout": 60.0}) as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("seen", "sleep 60", offer))
            while framework.status("seen")["state"] != "TASK_RUNNING":
                pass
            for path in ("/state", "/master/state", "/master/state.json"):
                state = wire.get(path)
                assert [each["id"] for each in state["frameworks"]] == [framework.id]
                assert {each["hostname"] for each in state["slaves"]} == {"n1", "n2"}
            mine = f"/tasks?framework_id={framework.id}"  # those of frameworks that have gone stay for a while
            (found,) = wire.get(mine)["tasks"]
            assert (found["id"], found["state"], found["role"], found["resources"]["cpus"]) == ("seen", "TASK_RUNNING", "A", 0.1)
            assert wire.get("/slaves")["slaves"][0]["resources"]["mem"] == 18 * 1024
            for agent, hosts in (("n2", ["n2"]), ("nobody", [])):
                found = wire.get(f"/master/slaves?slave_id={agent}")
                assert [each["hostname"] for each in found["slaves"]] == hosts
            for who, count in ((framework.id, 1), ("nobody", 0)):
                for path in ("frameworks", "tasks"):
                    assert len(wire.get(f"/{path}?framework_id={who}")[path]) == count
            for asked, count in (("task_id=seen", 1), ("task_id=x", 0), ("offset=1", 0), ("limit=0", 0), ("limit=x", 1)):
                assert len(wire.get(f"{mine}&{asked}")["tasks"]) == count, asked
            roles = {each["name"]: each for each in wire.get("/roles")["roles"]}
            assert roles["A"]["frameworks"] == [framework.id]
            assert roles["A"]["weight"] == 2.0
            assert {"role": "A", "weight": 2.0} in wire.get("/weights")
            (quota,) = wire.get("/quota")["configs"]
            assert quota["guarantees"] == {"cpus": {"value": 1.0}}
            assert quota["limits"]["mem"] == {"value": 8192.0}
            assert wire.get("/metrics/snapshot")["master/tasks_running"] == 1.0
        assert wire.ask("GET", "/nothing").status == 404
        assert wire.ask("POST", "/state", b"").status == 405

    def test_what_ended_stays_visible_and_counts(self, wire, world):
        finished = wire.get("/metrics/snapshot")["master/tasks_finished"]
        killed = wire.get("/metrics/snapshot")["master/tasks_killed"]
        with wire.subscribed({"name": "ends"}) as framework:
            offer = framework.welcome().offer()
            assert framework.launch(offer, task("done", "true", offer), task("runs", "sleep 60", offer)).status == 202
            assert framework.last("done")["state"] == "TASK_FINISHED"
            while framework.status("runs")["state"] != "TASK_RUNNING":
                pass
            (found,) = wire.get("/frameworks")["frameworks"]
            assert [(each["id"], each["state"]) for each in found["completed_tasks"]] == [("done", "TASK_FINISHED")]
            (summary,) = wire.get("/state-summary")["frameworks"]
            assert (summary["TASK_FINISHED"], summary["TASK_RUNNING"], "tasks" in summary) == (1, 1, False)
            assert summary["slave_ids"] == [offer["agent_id"]["value"]]
            slaves = {each["id"]: each for each in wire.get("/state-summary")["slaves"]}
            assert slaves[offer["agent_id"]["value"]]["framework_ids"] == [framework.id]
            assert slaves[offer["agent_id"]["value"]]["TASK_RUNNING"] == 1
            assert framework.call("TEARDOWN").status == 202
        for path in ("/state", "/frameworks", f"/frameworks?framework_id={framework.id}"):
            state = wire.get(path)
            assert state["frameworks"] == []
            gone = state["completed_frameworks"][-1]
            assert (gone["id"], gone["name"], gone["active"], gone["tasks"]) == (framework.id, "ends", False, [])
            assert gone["unregistered_time"] > gone["registered_time"]
            ends = {each["id"]: each["state"] for each in gone["completed_tasks"]}
            assert ends == {"done": "TASK_FINISHED", "runs": "TASK_KILLED"}
        told = wire.get(f"/tasks?framework_id={framework.id}")["tasks"]
        assert {each["id"]: each["state"] for each in told} == ends
        answer = wire.post({"type": "GET_STATE"}, path="/api/v1").json()["get_state"]
        assert answer["get_frameworks"]["completed_frameworks"][-1]["framework_info"]["name"] == "ends"
        world.until(lambda: not any(queue["running"] for queue in world.ask("queues")["queues"]))
        metrics = wire.get("/metrics/snapshot")
        assert (metrics["master/tasks_finished"], metrics["master/tasks_killed"]) == (finished + 1, killed + 1)
        assert metrics["master/tasks_running"] == 0.0

    def test_redirect_and_flags(self, wire):
        for path in ("/redirect", "/master/redirect"):
            answer = wire.ask("GET", path)
            assert (answer.status, answer.headers["location"]) == (307, f"//127.0.0.1:{wire.port}")
        flags = wire.get("/flags")["flags"]
        assert flags == wire.get("/state")["flags"]
        assert (flags["offer_timeout"], flags["port"]) == ("3600secs", str(wire.port))
        told = wire.post({"type": "GET_FLAGS"}, path="/api/v1").json()["get_flags"]["flags"]
        assert {each["name"]: each["value"] for each in told} == flags

    def test_jsonp_is_refused_since_any_web_page_could_read_the_answer(self, wire):
        for path in ("/flags", "/state", "/master/slaves"):
            answer = wire.ask("GET", f"{path}?jsonp=read")
            assert (answer.status, b"jsonp is not supported" in answer.raw) == (400, True)

    def test_each_path_and_call_of_mesos_masters_is_documented_as_it_answers(self, wire):
        """Those of Mesos 1.11's master and its processes; a `*` in the docs stands for the rest of a path."""
        page = (Path(__file__).parent.parent / "docs" / "mesos.md").read_text().partition("## For operators")[2]
        answering, _, missing = page.partition("These do not answer:")
        missing = missing.partition("| an agent's own paths")[0] + missing.partition("below `/slave(1)`")[2]
        patterns = {each: re.escape(each).replace(r"\*", ".*") for each in re.findall(r"`(/[^` ]*)`", missing)}
        for path in MASTER_PATHS.split():
            status = wire.ask("GET", path).status
            documented = [each for each, pattern in patterns.items() if re.fullmatch(pattern, path)]
            if f"`{path}`" in answering:
                assert status in (200, 307), path
            else:
                assert (status in (404, 405), bool(documented)) == (True, True), (path, status)
        for call in MASTER_CALLS.split():
            answer = wire.post({"type": call}, path="/api/v1")
            assert answer.raw.endswith(f"{call} is not supported".encode()) == (call not in answering), answer.raw

    def test_the_log_tells_in_words_what_frameworks_do(self, wire, world):
        with wire.subscribed() as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("told", "true", offer))
            assert framework.last("told")["state"] == "TASK_FINISHED"
            framework.call("DECLINE", offer_ids=[framework.offer()["id"]])
            for call in ("SUPPRESS", "REVIVE", "TEARDOWN"):
                assert framework.call(call).status == 202
        log = [each["what"] for each in world.ask("log")["log"] if framework.id in each["what"]]
        assert log == [
            f"subscribed framework {framework.id}",
            f"accepted 1 offer of framework {framework.id}: 1 task",
            f"declined 1 offer of framework {framework.id}",
            f"suppressed offers to framework {framework.id}",
            f"revived offers to framework {framework.id}",
            f"tore down framework {framework.id}",
        ]
        assert not [each["what"] for each in world.ask("log")["log"] if re.search("[a-z][A-Z]", each["what"])]

    def test_the_api_of_version_1(self, wire):
        with wire.subscribed() as framework:
            framework.welcome()
            for kind in (
                "STATE",
                "AGENTS",
                "FRAMEWORKS",
                "TASKS",
                "ROLES",
                "METRICS",
                "VERSION",
                "HEALTH",
                "QUOTA",
                "WEIGHTS",
                "MASTER",
            ):
                answer = wire.post({"type": f"GET_{kind}"}, path="/api/v1")
                assert answer.status == 200, (kind, answer.raw)
                assert answer.json()["type"] == f"GET_{kind}"
                assert f"get_{kind.lower()}" in answer.json()
        assert wire.post({"type": "GET_LUNCH"}, path="/api/v1").status == 501
        assert wire.post({"type": "LIST_FILES"}, path="/api/v1").status == 400
        assert wire.post({}, path="/api/v1").status == 400
        for name in ("UPDATE_WEIGHTS", "UPDATE_QUOTA"):
            answer = wire.post({"type": name}, path="/api/v1")
            assert answer.status == 400
            assert f"Expecting '{name.lower()}' to be present".encode() in answer.body

    def test_weights_and_quota(self, wire, world):
        """What is set so goes into force at once, all of a call or nothing, and is gone when the configuration is read again."""
        weights = {"weight_infos": [{"role": "B", "weight": 3.0}, {"role": "eng/web", "weight": 0.5}]}
        assert wire.post({"type": "UPDATE_WEIGHTS", "update_weights": weights}, path="/api/v1").status == 200
        told = {each["role"]: each["weight"] for each in wire.get("/weights")}
        assert (told["A"], told["B"], told["eng"], told["eng/web"]) == (2.0, 3.0, 1.0, 0.5)
        limits = {"role": "B", "guarantees": {"cpus": {"value": 1}}, "limits": {"cpus": {"value": 2}, "mem": {"value": 512}}}
        assert wire.post(_quota(limits), path="/api/v1").status == 200
        queue = next(each for each in world.ask("queues")["queues"] if each["name"] == "B")
        assert (queue["weight"]["cpu"], queue["guarantee"], queue["limit"]) == (
            3.0,
            {"cpu": 1000},
            {"cpu": 2000, "memory": 512 * 2**20},
        )
        with wire.subscribed({"roles": ["B"]}) as framework:
            offer = framework.welcome().offer()
            framework.launch(offer, task("q", "sleep 60", offer, cpus=1.5))
            while framework.status("q")["state"] != "TASK_RUNNING":
                pass
            less = {"role": "B", "limits": {"cpus": {"value": 1}}}
            assert wire.post(_quota(less), path="/api/v1").status == 400
            assert wire.post(_quota(less, force=True), path="/api/v1").status == 200
        more = {"role": "B", "guarantees": {"cpus": {"value": 12.5}}}
        answer = wire.post(_quota(more), path="/api/v1")
        assert (answer.status, answer.body[:56]) == (400, b"Invalid QuotaConfig: total quota guarantees 'cpu=13500m'")
        assert wire.post(_quota({**more, "guarantees": {"cpus": {"value": 12}}}), path="/api/v1").status == 200
        assert wire.post(_quota(more, force=True), path="/api/v1").status == 200
        for wrong in ({"role": "A/x"}, {"role": "A", "limits": {"cpus": {"value": -1}}}, {"role": "-"}):
            assert wire.post(_quota({"role": "B"}, wrong), path="/api/v1").status == 400
        assert (
            wire.post(
                {"type": "UPDATE_WEIGHTS", "update_weights": {"weight_infos": [{"role": "A", "weight": 0}]}}, path="/api/v1"
            ).status
            == 400
        )
        world.ok("reload")
        assert {each["role"]: each["weight"] for each in wire.get("/weights")}["B"] == 1.0


def _quota(*configs, force=False):
    return {"type": "UPDATE_QUOTA", "update_quota": {"force": force, "quota_configs": list(configs)}}


PRINCIPALS = """
[[principal]]
name = "marathon"
secret = "wing"
roles = ["A"]
requests = 1000

[[principal]]
name = "aurora"
secret = "borealis"
"""


class TestPrincipals:
    def test_who_may(self, tmp_path):
        with Live(tmp_path) as live:
            live.config.write_text(CONFIG)
            secrets = tmp_path / "principals.toml"
            secrets.write_text(PRINCIPALS)
            refused = live.call("up", "--mesos", "127.0.0.1:0", "--mesos-principals", str(secrets))
            assert refused.returncode == 1
            assert f"chmod 600 {secrets}" in refused.stderr
            secrets.chmod(0o600)
            live.up("--mesos", "127.0.0.1:0", "--mesos-principals", str(secrets))
            port = port_of(live)
            unknown = Wire(port).post(SUBSCRIBE)
            assert (unknown.status, unknown.headers["www-authenticate"]) == (401, 'Basic realm="mesos-master-scheduler"')
            assert Wire(port, ("marathon", "wrong")).post(SUBSCRIBE).status == 401
            assert Wire(port, ("nobody", "")).post(SUBSCRIBE).status == 401
            assert Wire(port).ask("GET", "/state").status == 401
            assert Wire(port).ask("GET", "/version").status == 200
            marathon, aurora = Wire(port, ("marathon", "wing")), Wire(port, ("aurora", "borealis"))
            with marathon.subscribed({"principal": "aurora"}) as framework:
                assert framework.head.status == 400
            with marathon.subscribed({"roles": ["B"]}) as framework:
                assert "B" in framework.event()["error"]["message"]
            with marathon.subscribed() as framework:
                framework.welcome()
                call = {"type": "TEARDOWN", "framework_id": {"value": framework.id}}
                assert aurora.post(call, {"Mesos-Stream-Id": framework.stream}).status == 400
                assert aurora.post({**SUBSCRIBE, "framework_id": {"value": framework.id}}).status == 400
                offer = framework.offer()
                framework.launch(offer, task("p", "true", offer))
                assert framework.last("p")["state"] == "TASK_FINISHED"


def _mangled(random: Random, value):
    """A value with something in it changed, left out or put in the place of another."""
    odd = [None, 0, -1, 2**70, 1e308, "", "x" * 1000, "\0", [], {}, [[]], {"value": 3}, True, "NaN", "é\ud800"]
    if random.random() < 0.15:
        return random.choice(odd)
    if isinstance(value, dict):
        return {key: _mangled(random, each) for key, each in value.items() if random.random() > 0.1}
    if isinstance(value, list):
        return [_mangled(random, each) for each in value for _ in range(random.randint(0, 2))]
    return value


def test_calls_that_make_no_sense_change_nothing(wire, world):
    random = Random(16)
    with wire.subscribed() as framework:
        offer = framework.welcome().offer()
        whole = task("m", {"value": "true", "uris": [{"value": "/x"}]}, offer, kill_policy={"grace_period": {"nanoseconds": 1}})
        accept = {"offer_ids": [offer["id"]], "operations": [{"type": "LAUNCH", "launch": {"task_infos": [whole]}}]}
        bodies = {
            "ACCEPT": {**accept, "filters": {"refuse_seconds": 0}},
            "DECLINE": {"offer_ids": [{"value": "O1"}], "filters": {"refuse_seconds": 1}},
            "KILL": {"task_id": {"value": "m"}, "agent_id": {"value": "n1"}},
            "ACKNOWLEDGE": {"agent_id": {"value": "n1"}, "task_id": {"value": "m"}, "uuid": "AAAAAAAAAAEAAAAAAAAAAQ=="},
            "RECONCILE": {"tasks": [{"task_id": {"value": "m"}}]},
            "SUPPRESS": {"roles": ["A"]},
            "REVIVE": {"roles": ["A"]},
            "SHUTDOWN": {"executor_id": {"value": "m"}, "agent_id": {"value": "n1"}},
            "UPDATE_FRAMEWORK": {"framework_info": {"name": "f", "user": "", "roles": ["A"]}},
        }
        for _ in range(300):
            kind, body = random.choice(list(bodies.items()))
            call = {"type": kind, "framework_id": {"value": framework.id}, kind.lower(): _mangled(random, body)}
            call = _mangled(random, call) if random.random() < 0.2 else call
            answer = wire.post(call, {"Mesos-Stream-Id": framework.stream})
            assert answer.status in (202, 400, 501) or call.get("type") == "SUBSCRIBE", (call, answer.raw)
        assert framework.call("REVIVE").status == 202
    assert "a question could not be answered" not in world.log.read_text()
    log = world.home / "log"
    assert not log.exists() or "Traceback" not in log.read_text()


@pytest.mark.parametrize("name", ["executor", "master", "mesos", "quota", "scheduler"])
def test_messages_have_the_fields_of_their_types(name):
    """Both are made from the .proto files, by ``make messages``."""
    module = importlib.import_module(f"fairlead.service.mesos.messages.{name}_pb2")
    declared = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    found = [each for each in declared.body if isinstance(each, ast.ClassDef)]
    assert found
    for each in found:
        if ast.unparse(each.bases[0]) == "_message.Message":
            makes = next(line for line in each.body if isinstance(line, ast.FunctionDef))
            names = [argument.arg for argument in makes.args.args[1:]]
            assert names == [field.name for field in getattr(module, each.name).DESCRIPTOR.fields]
        else:
            named = [line for line in declared.body if isinstance(line, ast.AnnAssign)]
            values = [line.target.id for line in named if ast.unparse(line.annotation) == each.name]
            assert values == getattr(module, each.name).keys()
            assert [getattr(module, value) for value in values] == getattr(module, each.name).values()
