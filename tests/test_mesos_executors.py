"""Custom executors: the real pymesos as one, and what a client over plain sockets may not."""

import base64
import json
import re
import socket
import ssl
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import trustme

from conftest import Live
from mesos_wire import JSON, Subscribed, Wire
from test_mesos_wire import CONFIG, port_of

EXECUTOR = Path(__file__).with_name("mesos_executor.py")


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def amounts(cpus, mem):
    each = {"cpus": cpus, "mem": mem}
    return [{"name": name, "type": "SCALAR", "scalar": {"value": value}} for name, value in each.items()]


def executor(name="e", command=f"exec {sys.executable} {EXECUTOR}", **more):
    return {
        "type": "CUSTOM",
        "executor_id": {"value": name},
        "command": {"value": command},
        "resources": amounts(0.5, 256),
        "shutdown_grace_period": {"nanoseconds": 2 * 10**8},
        **more,
    }


def task(name, does, offer, **more):
    return {
        "name": name,
        "task_id": {"value": name},
        "agent_id": offer["agent_id"],
        "resources": amounts(0.1, 16),
        "data": encoded(does),
        "executor": executor(),
        **more,
    }


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("executors")) as world:
        world.config.write_text(CONFIG)
        world.up("--mesos", "127.0.0.1:0")
        yield world


@pytest.fixture
def framework(live):
    with Wire(port_of(live)).subscribed({"failover_timeout": 600.0, "roles": ["B"]}) as framework:
        yield framework.welcome()
        assert framework.call("TEARDOWN").status == 202
    live.until(lambda: not any(queue["running"] for queue in live.ask("queues")["queues"]))


def offer_on(framework, node):
    """An offer of a node; the others are declined."""
    while True:
        offers = framework.wait_for("OFFERS")["offers"]
        others = [offer["id"] for offer in offers if offer["agent_id"]["value"] != node]
        if others:
            framework.call("DECLINE", offer_ids=others, filters={"refuse_seconds": 3600})
        if len(others) < len(offers):
            return next(offer for offer in offers if offer["id"] not in others)


def test_tasks_in_an_executor(live, framework):
    offer = offer_on(framework, "n1")
    assert framework.launch(offer, task("a", "wait", offer), task("b", "wait", offer), task("c", "this", offer)).status == 202
    running = [framework.status(name) for name in "abc"]
    assert [each["state"] for each in running] == ["TASK_RUNNING"] * 3
    assert len({each["data"] for each in running}) == 1  # one process
    assert {each["executor_id"]["value"] for each in running} == {"e"}
    finished = framework.status("c")
    assert (finished["state"], finished["message"]) == ("TASK_FINISHED", "this is done")

    offer = offer_on(framework, "n1")
    assert offer["executor_ids"] == [{"value": "e"}]
    (used,) = [each["used_resources"] for each in framework.wire.get("/slaves")["slaves"] if each["id"] == "n1"]
    assert (used["cpus"], used["mem"]) == (0.7, 288)  # its own, and those of two tasks
    assert framework.launch(offer, task("d", "wait", offer)).status == 202
    assert framework.status("d")["data"] == running[0]["data"]

    assert {each["executor_id"] for each in framework.wire.get("/tasks")["tasks"]} == {"e"}
    where = {"agent_id": offer["agent_id"], "executor_id": {"value": "e"}}
    assert framework.call("MESSAGE", **where, data=encoded("hello")).status == 202
    assert framework.wait_for("MESSAGE") == {**where, "data": encoded("hello")}

    framework.call("KILL", task_id={"value": "a"}, agent_id=offer["agent_id"])
    assert framework.status("a")["state"] == "TASK_KILLED"
    assert framework.call("SHUTDOWN", **where).status == 202
    assert framework.wait_for("FAILURE")["executor_id"] == {"value": "e"}
    ends = [framework.status(name) for name in "bd"]
    assert {(end["state"], end["reason"]) for end in ends} == {("TASK_FAILED", "REASON_EXECUTOR_TERMINATED")}


def test_the_end_of_an_executor_is_that_of_its_tasks(framework):
    offer = offer_on(framework, "n1")
    framework.launch(offer, task("a", "wait", offer))
    assert framework.status("a")["state"] == "TASK_RUNNING"
    offer = offer_on(framework, "n1")
    framework.launch(offer, task("b", "die", offer))
    failure = framework.wait_for("FAILURE")
    assert failure == {"agent_id": offer["agent_id"], "executor_id": {"value": "e"}, "status": 3 << 8}
    for name in "ab":
        end = framework.status(name)
        assert (end["state"], end["source"]) == ("TASK_FAILED", "SOURCE_AGENT")


def test_an_executor_is_held_to_what_it_asks_for_with_its_tasks(framework):
    small = executor(resources=amounts(0.1, 64))
    offer = offer_on(framework, "n1")
    framework.launch(offer, task("a", "wait", offer, executor=small))
    assert framework.status("a")["state"] == "TASK_RUNNING"
    for name, does, mem, ends in (("b", "eat 150", 250, "TASK_FINISHED"), ("c", "eat 600", 16, None)):
        offer = offer_on(framework, "n1")
        framework.launch(offer, task(name, does, offer, executor=small, resources=amounts(0.1, mem)))
        assert framework.status(name)["state"] == "TASK_RUNNING"
        if ends:
            assert framework.status(name)["state"] == ends
    assert framework.wait_for("FAILURE")["status"] == 9
    assert framework.status("a")["state"] == "TASK_FAILED"


def test_executors_live_on_while_the_scheduler_is_away(live, tmp_path):
    """And what checks the health of a command tells later that it was killed, when nobody is left of it."""
    described = {"failover_timeout": 600.0, "roles": ["B"]}
    port = port_of(live)
    with Wire(port).subscribed(described) as framework:
        offer = offer_on(framework.welcome(), "n1")
        line = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/pid; wait; wait"
        ill = checked("ill", line, f"test -s {tmp_path}/pid -a ! -e {tmp_path}/away", offer)
        ill["kill_policy"] = {"grace_period": {"nanoseconds": 10**8}}
        ill["health_check"]["grace_period_seconds"] = 60
        framework.launch(offer, task("a", "wait", offer), ill)
        before = framework.status("a")
        assert health(framework, "ill") == ("TASK_RUNNING", True)
        left = psutil.Process(int((tmp_path / "pid").read_text()))
        live.kill()
    (tmp_path / "away").touch()
    left.wait(60)
    live.up("--mesos", f"127.0.0.1:{port}")
    with Wire(port).subscribed({**described, "id": {"value": framework.id}}) as framework:
        offer = offer_on(framework.welcome(), "n1")
        said = [health(framework, "ill")]  # the last before the kill may come once more
        while said[-1][0] == "TASK_RUNNING":
            said.append(health(framework, "ill"))
        assert said[-3:] == [("TASK_RUNNING", False), ("TASK_RUNNING", False), ("TASK_KILLED", False)]
        framework.launch(offer, task("b", "wait", offer))
        assert framework.status("b")["data"] == before["data"]  # the same process
        framework.call("KILL", task_id={"value": "a"})
        told = framework.status("a")
        if told["uuid"] == before["uuid"]:  # acknowledged just before the kill, which may not have been recorded: told once more
            told = framework.status("a")
        assert told["state"] == "TASK_KILLED"
        framework.call("TEARDOWN")
    live.until(lambda: not any(queue["running"] for queue in live.ask("queues")["queues"]))


def test_a_group_for_a_custom_executor(framework):
    offer = offer_on(framework, "n1")
    tasks = [task(name, "", offer) for name in "ab"]
    for each in tasks:
        each["command"] = {"value": "true"}
        del each["executor"]
    group = {"executor": executor(), "task_group": {"tasks": tasks}}
    operation = {"type": "LAUNCH_GROUP", "launch_group": group}
    framework.call("ACCEPT", offer_ids=[offer["id"]], operations=[operation])
    assert [framework.status(name)["message"] for name in "ab"] == ["one of 2"] * 2


class AsExecutor(Subscribed):
    """An executor over a plain socket, with the secret of one that does nothing by itself."""

    SLEEPS = "env > it && mv it env && exec sleep 600"

    def __init__(self, wire, connection, framework, sandbox, **subscribe):
        told = dict(line.split("=", 1) for line in (sandbox / "env").read_text().splitlines())
        self.secret = {"Authorization": f"Bearer {told['MESOS_EXECUTOR_AUTHENTICATION_TOKEN']}"}
        self.framework, self.wire, self.connection = framework, wire, connection
        self.buffer, self.events, self.others = bytearray(), [], []
        body = self.said("SUBSCRIBE", **subscribe)
        wire.send(connection, "POST", "/api/v1/executor", json.dumps(body).encode(), {**JSON, **self.secret})

    def event(self):
        return json.loads(self.record())

    def said(self, kind, **body):
        said = {"type": kind, "framework_id": {"value": self.framework.id}, "executor_id": {"value": "e"}}
        return {**said, kind.lower(): body}

    def call(self, kind, headers=None, **body):
        headers = self.secret if headers is None else headers
        return self.wire.post(self.said(kind, **body), headers, path="/slave(1)/api/v1/executor")

    def update(self, task, state, uuid=b"u" * 16, **more):
        status = {"task_id": {"value": task}, "state": state, "source": "SOURCE_EXECUTOR", **more}
        if uuid:
            status["uuid"] = base64.b64encode(uuid).decode()
        return {"status": status}


def sandbox_of(live, framework):
    """Of the executor, which is there when it has written its environment."""
    folder = live.home / "sandboxes"
    live.until(lambda: [*folder.glob("*/env")])
    (found,) = folder.glob("*/env")
    return found.parent


def test_what_an_executor_may(live, framework):
    offer = offer_on(framework, "n1")
    sleeps = executor(command=AsExecutor.SLEEPS)
    limited = {"max_completion_time": {"nanoseconds": 10**8}, "kill_policy": {"grace_period": {"nanoseconds": 10**8}}}
    framework.launch(offer, *(task(name, "", offer, executor=sleeps) for name in "ab"))
    framework.call("KILL", task_id={"value": "b"})
    assert framework.status("b")["state"] == "TASK_KILLED"  # it was told to nobody
    wire, sandbox = framework.wire, sandbox_of(live, framework)
    with wire.connect() as connection:
        it = AsExecutor(wire, connection, framework, sandbox)
        told = it.event()["subscribed"]
        assert told["executor_info"]["framework_id"] == told["framework_info"]["id"] == {"value": framework.id}
        assert told["agent_info"]["id"] == offer["agent_id"]
        assert it.wait_for("LAUNCH")["task"]["task_id"] == {"value": "a"}

        running = it.update("a", "TASK_RUNNING", healthy=True)
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert it.call("UPDATE", headers, **running).status == 401
        for wrong in (it.update("a", "TASK_STAGING"), it.update("a", "TASK_RUNNING", b"")):
            assert it.call("UPDATE", **wrong).status == 400
        assert it.call("FLY").status == 501
        assert it.call("UPDATE", **running).status == 202
        assert it.wait_for("ACKNOWLEDGED")["uuid"] == running["status"]["uuid"]
        assert it.call("UPDATE", **running).status == 202  # it had not heard
        assert it.call("UPDATE", **it.update("unknown", "TASK_RUNNING")).status == 202
        status = framework.status("a")
        assert status["state"] == "TASK_RUNNING"
        assert status["healthy"]
    with wire.connect() as connection:  # it comes back, and has more to say
        more = [it.update("a", "TASK_FINISHED", b"v" * 16)]
        it = AsExecutor(wire, connection, framework, sandbox, unacknowledged_updates=[running, *more])
        assert it.event()["type"] == "SUBSCRIBED"
        assert framework.status("a")["state"] == "TASK_FINISHED"
        offer = offer_on(framework, "n1")
        framework.launch(offer, task("c", "", offer, executor=sleeps, **limited))
        assert it.wait_for("LAUNCH")["task"]["task_id"] == {"value": "c"}
        it.call("UPDATE", **it.update("c", "TASK_RUNNING"))
        assert it.wait_for("KILL")["kill_policy"] == limited["kill_policy"]
        assert it.wait_for("SHUTDOWN") == {}  # it did not end the task in time
    assert framework.status("c")["state"] == "TASK_RUNNING"
    assert framework.status("c")["state"] == "TASK_FAILED"


def test_tasks_that_no_executor_runs(framework):
    offer = offer_on(framework, "n1")
    wrong = {
        "both": {"command": {"value": "true"}},
        "default": {"executor": executor(type="DEFAULT")},
        "empty": {"executor": {"executor_id": {"value": "e"}}},
        "another's": {"executor": executor(framework_id={"value": "another"})},
        "contained": {"executor": executor(container={"type": "MESOS"})},
        "first": {"executor": executor(command="sleep 60")},
        "second": {},
    }
    framework.launch(offer, *(task(name, "", offer, **more) for name, more in wrong.items()))
    assert {framework.status(name)["state"] for name in wrong if name != "first"} == {"TASK_ERROR"}
    offer = offer_on(framework, "n1")
    framework.launch(offer, task("third", "", offer))
    assert "different description" in framework.status("third")["message"]
    framework.call("SHUTDOWN", executor_id={"value": "e"}, agent_id=offer["agent_id"])
    offer = offer_on(framework, "n1")
    framework.launch(offer, task("fourth", "", offer, executor=executor(command="sleep 60")))
    assert framework.status("fourth")["reason"] == "REASON_EXECUTOR_TERMINATED"


def checked(name, command, check, offer, **more):
    """A command with a health check."""
    times = {"delay_seconds": 0, "interval_seconds": 0.05, "grace_period_seconds": 0, "consecutive_failures": 2}
    asked = {"type": "COMMAND", "command": {"value": check}} if check is not None else {}
    check = {**asked, **times, **more}
    found = task(name, "", offer, command={"value": command}, health_check=check)
    del found["executor"], found["data"]
    found["resources"] = amounts(0.1, 32)
    return found


def health(framework, name):
    """Whether it is said to be healthy, and how that came; updates that do not say are passed over."""
    while "healthy" not in (status := framework.status(name)):
        assert status["state"] in ("TASK_STARTING", "TASK_RUNNING")
    return status["state"], status["healthy"]


def test_the_health_of_commands(framework):
    offer = offer_on(framework, "n1")
    ill = checked("ill", "trap '' TERM; sleep 600 & wait; wait", "test ! -e ill && touch ill", offer)
    ill["kill_policy"] = {"grace_period": {"nanoseconds": 10**8}}
    slow = checked("slow", "sleep 600", "sleep 600", offer, timeout_seconds=0.05, consecutive_failures=1)
    ended = checked("ended", "kill -USR1 $$", "true", offer, delay_seconds=600)
    well = checked("well", "test $X = 1 && sleep 600", "test $X$Y = 12", offer)
    for words, where in (("X", well["command"]), ("Y", well["health_check"]["command"])):
        where["environment"] = {"variables": [{"name": words, "value": str(" XY".index(words))}]}
    framework.launch(offer, ill, slow, ended, well)
    assert [health(framework, "ill") for _ in range(4)] == [
        ("TASK_RUNNING", True),
        ("TASK_RUNNING", False),
        ("TASK_RUNNING", False),
        ("TASK_KILLED", False),
    ]
    assert [health(framework, "slow") for _ in range(2)] == [("TASK_RUNNING", False), ("TASK_KILLED", False)]
    assert framework.last("ended")["message"] == "Command terminated with signal User defined signal 1"
    assert health(framework, "well") == ("TASK_RUNNING", True)
    framework.call("KILL", task_id={"value": "well"})
    assert framework.last("well")["state"] == "TASK_KILLED"


SERVER = """
import http.server, pathlib, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(self.path[1:] or 200))
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 1:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def serving(*certificate):
    """What answers with the status that is asked for; its port."""
    server = subprocess.Popen([sys.executable, "-c", SERVER, *certificate], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()


def test_health_by_http_and_tcp(framework, tmp_path):
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "pem"))
    with serving() as port, serving(str(tmp_path / "pem")) as secured, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        http = {"type": "HTTP"}
        checks = {
            "well": {**http, "http": {"port": port}},
            "moved": {**http, "http": {"port": port, "path": "/302"}},
            "named": {**http, "http": {"port": port, "path": "/500", "statuses": [500]}},
            "secure": {**http, "http": {"port": secured, "scheme": "https"}},
            "open": {"type": "TCP", "tcp": {"port": port}},
            "broken": {**http, "http": {"port": port, "path": "/500"}},
            "other": {**http, "http": {"port": port, "statuses": [201]}},
            "plain": {**http, "http": {"port": secured}},
            "closed": {"type": "TCP", "tcp": {"port": deaf.getsockname()[1]}},
        }
        offer = offer_on(framework, "n1")
        more = {"interval_seconds": 600, "consecutive_failures": 1}
        framework.launch(offer, *(checked(name, "sleep 600", None, offer, **more, **said) for name, said in checks.items()))
        found = {name: health(framework, name) for name in checks}
    assert [name for name, said in found.items() if said == ("TASK_RUNNING", True)] == [*checks][:5]
    assert [name for name, said in found.items() if said == ("TASK_RUNNING", False)] == [*checks][5:]


def test_checks_that_are_not_made(framework):
    offer = offer_on(framework, "n1")
    wrong = [
        checked("http", "true", "true", offer, type="HTTP", http={"port": 80, "path": "x"}),
        checked("tcp", "true", "true", offer, type="TCP", tcp={"port": 70000}),
        checked("nothing", "true", "true", offer, type="TCP"),
        checked("never", "true", "true", offer, delay_seconds=-1),
        checked("late", "true", "true", offer, delay_seconds=1e308),
        checked("seldom", "true", "true", offer, interval_seconds=1e300),
        checked("slow", "true", "true", offer, timeout_seconds=1e300),
        checked("lenient", "true", "true", offer, grace_period_seconds=1e10),
        checked("fetches", "true", "true", offer),
    ]
    wrong[-1]["health_check"]["command"]["uris"] = [{"value": "/etc/hosts"}]
    most = dict.fromkeys(("delay_seconds", "interval_seconds", "timeout_seconds", "grace_period_seconds"), 9223372036.0)
    framework.launch(offer, *wrong, checked("patient", "true", "true", offer, **most))
    for each in wrong:
        found = framework.status(each["name"])
        assert found["state"] == "TASK_ERROR"
        if each["name"] in ("never", "late", "seldom", "slow", "lenient"):
            assert found["message"].endswith("use 0 to 9223372036 seconds")
    assert framework.last("patient")["state"] == "TASK_FINISHED"


def test_operations_that_are_not_done_are_refused(framework):
    offer = offer_on(framework, "n1")
    grow = {"volume": offer["resources"][0], "addition": offer["resources"][0]}
    grow = {"type": "GROW_VOLUME", "id": {"value": "op"}, "grow_volume": grow}
    launch = {"type": "LAUNCH", "launch": {"task_infos": [task("a", "this", offer)]}}
    framework.call("ACCEPT", offer_ids=[offer["id"]], operations=[grow, launch])
    told = framework.wait_for("UPDATE_OPERATION_STATUS")["status"]
    assert (told["operation_id"], told["state"]) == ({"value": "op"}, "OPERATION_ERROR")
    assert told["message"] == "GROW_VOLUME is not supported"
    assert framework.last("a")["state"] == "TASK_FINISHED"
    framework.call("RECONCILE_OPERATIONS", operations=[{"operation_id": {"value": "op"}}])
    assert framework.wait_for("UPDATE_OPERATION_STATUS")["status"]["state"] == "OPERATION_UNKNOWN"


class Encrypted(Wire):
    """A master whose certificate nobody knows but who runs it."""

    def connect(self):
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        return trusting.wrap_socket(super().connect())


def test_health_is_told_to_who_has_the_certificate_of_the_scheduler(tmp_path):
    """And no web page reaches it by another name in that: without principals a caller is whose process, or browser, this is."""
    certificate = trustme.CA().issue_cert("localhost", "127.0.0.1", "*.lab.example")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    with Live(tmp_path) as live:
        live.config.write_text(CONFIG)
        live.up("--mesos", "127.0.0.1:0", "--tls-cert", str(tmp_path / "server.pem"))
        port = int(re.findall(r"https://127.0.0.1:(\d+)", live.log.read_text())[-1])
        assert Encrypted(port).ask("GET", "/version", headers={"Host": "web.lab.example"}).status == 421
        with Encrypted(port).subscribed({"roles": ["B"]}) as framework:
            offer = offer_on(framework.welcome(), "n1")
            framework.launch(offer, checked("well", "sleep 600", "true", offer))
            assert health(framework, "well") == ("TASK_RUNNING", True)
