"""Real accounts on one machine, and what they try: to be somebody else, to read what is not theirs, to take tokens. And those
from elsewhere.
"""

import asyncio
import contextlib
import functools
import grp
import http.client
import http.server
import json
import os
import pwd
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli.background import Background
from fairlead.client.address import Address, NotTrusted, find, trusted_host
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.data_folder import check_folder, make_home
from fairlead.model.documents import Configuration
from fairlead.model.quantity import Percent
from fairlead.model.specs import Call, Job, Queue, Settings, Work
from fairlead.people import audit_log
from fairlead.people.accounts import Accounts, Person
from fairlead.people.audit_log import LINES_A_MINUTE, AuditRecord, AuditRecords, Position
from fairlead.people.rules import Caller, Forbidden, Rules
from fairlead.people.tokens import Tokens
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.service.api.access import ROUTES, Who
from fairlead.service.api.calls import end_session
from fairlead.service.configuration_warnings import configuration_warnings
from fairlead.service.connections.listening import CannotListen, open_socket
from forked import run
from machine import PEOPLE, SOCKET


def fork_as(uid, work):
    """Do something in a child process of another uid; returns its pid."""
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            work()
        finally:
            os._exit(0)
    return child


def as_somebody(uid, work):
    """Do something in a child process of another uid; what it returns, as JSON."""
    reading, writing = os.pipe()
    child = fork_as(uid, lambda: os.write(writing, json.dumps(work()).encode()))
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other people")


# -- on the socket -----------------------------------------------------------------------------------------------------


def test_the_kernel_says_who_one_is_whatever_the_environment_says(machine):
    bob = machine["bob"]
    number = bob.ok("submit", "-q", "people", "--cpu", "100", "--", "true", USER="alice", LOGNAME="alice").strip()
    status, found = bob.http("GET", f"/v1/jobs/{number}")
    assert (status, found["user"], found["queue"]) == (200, "bob", "people/bob")
    asked = {"argv": ["true"], "demand": {"cpu": 1}}
    assert bob.http("POST", "/v1/jobs", {**asked, "user": "alice", "queue": "people/alice"})[0] == 403
    assert bob.http("POST", "/v1/jobs", {**asked, "queue": "people/made-up"})[0] == 403
    assert {q["name"] for q in bob.http("GET", "/v1/queues")[1]["queues"]} == {
        "/",
        "vision",
        "secret",
        "hidden",
        "people",
        "people/bob",
    }
    headers = {"Authorization": "Bearer x", "X-Remote-User": "alice"}
    assert bob.http("GET", "/v1/status", headers=headers)[1]["you"] == "bob"
    facts = machine["root"].http("GET", "/v1/facts?after=0&follow=false")[1]
    job = next(
        fact["job"] for fact in map(json.loads, re.findall("^data: (.*)$", facts, re.MULTILINE)) if fact.get("id") == int(number)
    )
    assert (job["uid"], job["gid"]) == (PEOPLE["bob"], PEOPLE["bob"])


def test_the_command_finds_the_scheduler_of_the_machine_by_itself(machine):
    alice = machine["alice"]
    assert "vision" in alice.ok("queues")
    for named in ({"FAIRLEAD_HOME": "/nowhere"}, {"FAIRLEAD_URL": "unix:///nowhere/socket"}):
        assert "no scheduler" in alice.run("queues", **named).stderr
    assert "vision" in alice.ok("--url", f"unix://{SOCKET}", "queues", FAIRLEAD_HOME="/nowhere")


def test_a_private_queue_hides_whose_its_jobs_are(machine):
    number = machine["alice"].ok("submit", "-q", "secret", "--name", "xyzzy", "--cpu", "100", "--no-check", "--", "plugh").strip()
    for who, sees in (("alice", True), ("bob", False), ("carol", False), ("root", True)):
        actor = machine[who]
        told = [actor.http("GET", f"/v1/jobs/{number}")[1], actor.http("GET", "/v1/facts?after=0&follow=false")[1]]
        told += [actor.http("GET", f"/v1/jobs?queue=secret&user={user}")[1] for user in ("alice", "bob")]
        assert ("xyzzy" in str(told[0])) is ("xyzzy" in told[1]) is bool(told[2]["jobs"]) is sees
        assert told[3]["jobs"] == []
        seen = actor.ok("jobs", "-q", "secret")
        assert ("xyzzy" in seen, number in seen) == (sees, True)


def test_a_leaf_in_a_private_queue_is_named_to_nobody_else(machine):
    alice, bob = machine["alice"], machine["bob"]
    number = alice.ok("submit", "-q", "hidden", "--cpu", "100m", "--memory", "64Mi", "--", "sleep", "600").strip()
    for who, sees in ((alice, True), (bob, False), (machine["olga"], False), (machine["root"], True)):
        routes = [f"/v1/jobs/{number}", "/v1/jobs", "/v1/queues", "/v1/audit", "/metrics", "/v1/facts?after=0&follow=false"]
        assert ["hidden/alice" in str(who.http("GET", route)[1]) for route in routes] == [sees] * len(routes), who.name
        assert bool(who.http("GET", "/v1/jobs?queue=hidden/alice")[1]["jobs"]) is sees
        assert ("/alice" in who.ok("jobs", "-q", "hidden"), number in who.ok("jobs", "-q", "hidden")) == (sees, True)
        later = [f"/v1/jobs/{number}/why", f"/v1/jobs/{number}/when", "/v1/audit/over-time?seconds=60", "/v1/usage"]
        assert sees or all("hidden/alice" not in str(who.http("GET", route)[1]) for route in later)
    used = {queue["name"]: queue["used"] for queue in bob.http("GET", "/v1/queues")[1]["queues"]}
    assert used["hidden"]["cpu"] == 100, "what they have together is told"
    refused = bob.run("cancel", number)
    assert "admins of queue 'hidden' may do that, not bob" in refused.stderr
    alice.ok("cancel", number)


def test_the_key_of_one_person_is_nothing_to_another(machine):
    asked = {"argv": ["true"], "demand": {"cpu": 100}, "queue": "people"}
    key = {"Idempotency-Key": "monday"}
    first, other = (machine[who].http("POST", "/v1/jobs", asked, key) for who in ("alice", "bob"))
    assert (first[0], other[0]) == (201, 201)
    assert first[1]["id"] != other[1]["id"]
    assert machine["alice"].http("POST", "/v1/jobs", asked, key) == first


def test_the_log_says_who_did_what_to_whom(machine):
    alice, carol = machine["alice"], machine["carol"]
    number = alice.ok("submit", "-q", "vision", "--cpu", "100", "--", "true").strip()
    carol.ok("cancel", number)
    said = f"cancelled job {number} of alice"
    assert said in alice.ok("log", "--user", "carol", "--queue", "vision", "--since", "1h", "--json")
    assert said in machine["olga"].ok("log", "--json")
    assert said not in machine["bob"].ok("log", "--json")
    assert said not in alice.ok("log", "--queue", "secret", "--json")
    assert alice.ok("log", "--since", "0").strip() == "nobody did anything with --since 0"
    machine["olga"].ok("drain", "n1")
    machine["olga"].ok("resume", "n1")
    assert [entry["what"] for entry in machine["root"].http("GET", "/v1/log?user=olga")[1]["log"]][-2:] == [
        "drained node n1",
        "resumed node n1",
    ]


def test_the_log_tells_operators_no_names_in_a_private_queue(machine):
    """They see what was done there, as they see the jobs; who it was, and their leaf, is for its people and root."""
    alice, olga = machine["alice"], machine["olga"]
    number = alice.ok("submit", "-q", "hidden", "--hold", "--name", "plan", "--", "true").strip()
    alice.ok("cancel", number)
    for who, sees in ((alice, True), (olga, False), (machine["root"], True)):
        told = [entry for entry in who.http("GET", "/v1/log")[1]["log"] if entry["job"] == int(number)]
        leaf, by, whose = ("hidden/alice", "alice", " of alice") if sees else ("hidden", "", "")
        assert [(entry["by"], entry["queue"], entry["what"]) for entry in told] == [
            (by, leaf, f"submitted job {number} to {leaf}: 1 task"),
            (by, leaf, f"cancelled job {number}{whose}"),
        ], who.name
        for query in ("user=alice", "queue=hidden/alice"):
            told = who.http("GET", f"/v1/log?{query}")[1]["log"]
            assert any(entry["job"] == int(number) for entry in told) is sees, (who.name, query)
    alice.http("POST", f"/v1/jobs/{number}/edit", {"queue": "hidden/bob"})
    assert "hidden/" not in str(olga.http("GET", "/v1/log"))


def test_a_token_is_made_listed_and_revoked(machine):
    alice, root = machine["alice"], machine["root"]
    options = ["--user", "alice", "--expires", "90d", "--queue", "vision", "--read-only", "--json"]
    told = json.loads(root.ok("token", "new", *options))
    assert (told["user"], told["queues"], told["read_only"]) == ("alice", ["vision"], True)
    assert told["token"].startswith(f"fairlead_{told['id']}_")
    assert told["token"].removeprefix(f"fairlead_{told['id']}_") not in (machine.home / "tokens.json").read_text()
    assert told["id"] in alice.ok("token", "list")
    assert "no queue 'vison'" in alice.run("token", "new", "--queue", "vison").stderr
    assert told["id"] not in machine["bob"].ok("token", "list")
    assert "no account" in root.run("token", "new", "--user", "nobody-such").stderr
    alice.ok("token", "revoke", told["id"])
    assert told["id"] not in root.ok("token", "list")
    log = root.ok("log", "--user", "alice")
    assert f"revoked token {told['id']} of alice" in log


# -- from elsewhere ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def elsewhere(machine):
    """The machine's scheduler again, on a port with TLS; its URL, the file of its authority, and how a client asks."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    folder = machine.folder
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    machine["root"].ok("down", "--now")
    machine.process.wait(timeout=60)
    machine.forget_actors()
    machine.log.write_text("")
    machine.up("--listen", "127.0.0.1:0", "--tls-cert", str(folder / "server.pem"))
    url = re.search(r"https://\S+?:\d+", machine.log.read_text())[0].replace("127.0.0.1", "localhost")

    def ask(token, *command, **more):
        env = {**os.environ, "FAIRLEAD_URL": url, "FAIRLEAD_TOKEN": token, "FAIRLEAD_CA": str(folder / "authority.pem"), **more}
        return run(command, env=env, timeout=60)

    return url, ask


def test_one_is_known_by_a_token_over_tls(machine, elsewhere):
    _, ask = elsewhere
    token = machine["alice"].ok("token", "new").strip()
    done = ask(token, "submit", "-q", "people", "--cpu", "100", "--", "true")
    assert done.returncode == 0, done.stderr
    assert machine["alice"].http("GET", f"/v1/jobs/{done.stdout.strip()}")[1]["user"] == "alice"
    assert ask(token, "drain", "n1").returncode == 1
    wrong = ask(token[:-1] + ("a" if token[-1] != "a" else "b"), "jobs")
    assert "rejects this token" in wrong.stderr
    machine["alice"].ok("token", "revoke", token.split("_")[1])
    assert "rejects this token" in ask(token, "jobs").stderr


def test_a_token_is_for_what_it_says_until_when_it_says(machine, elsewhere):
    _, ask = elsewhere
    alice = machine["alice"]
    reading = alice.ok("token", "new", "--read-only").strip()
    assert ask(reading, "jobs").returncode == 0
    for command in (("submit", "-q", "people", "--", "true"), ("cancel", "-q", "people"), ("token", "new")):
        assert "this token is read-only" in ask(reading, *command).stderr
    limited = alice.ok("token", "new", "--queue", "vision").strip()
    assert ask(limited, "submit", "-q", "vision", "--cpu", "100", "--", "true").returncode == 0
    assert "this token is for vision only" in ask(limited, "submit", "-q", "people", "--", "true").stderr
    whole = alice.ok("token", "new").strip()
    for token in (limited, whole):
        assert "a token cannot make tokens: make one on the scheduler's machine" in ask(token, "token", "new").stderr
    own = alice.ok("submit", "-q", "people", "--cpu", "100m", "--", "true").strip()
    assert f"submitted job {own} " in ask(whole, "log", "--user", "alice").stdout
    told = json.loads(ask(limited, "log", "--json").stdout)["log"]
    assert {entry["queue"] for entry in told} == {"vision"}
    short = alice.ok("token", "new", "--expires", "0.001s").strip()
    time.sleep(0.01)
    assert "rejects this token" in ask(short, "jobs").stderr


def test_a_token_for_some_queues_sees_and_changes_no_session_with_calls_in_others(machine, elsewhere):
    url, _ = elsewhere
    alice = machine["alice"]
    context = ssl.create_default_context(cafile=machine.folder / "authority.pem")
    token = alice.ok("token", "new", "--queue", "vision").strip()
    payload = "a" * 32

    def ask(method, path, body):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url + path, body.encode(), headers, method=method)
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    for queue, is_for in (("people", False), ("vision", True)):
        job = {"lease": 1, "queue": queue, "demand": {"cpu": "100"}}
        session = f"/v1/sessions/{alice.http('POST', '/v1/sessions', {'argv': ['/bin/true']})[1]['id']}"
        assert alice.http("POST", f"{session}/leases", {"jobs": [job]})[0] == 201
        here = {**job, "queue": "vision", "lease": 2}
        for method, path, body, code in (
            ("PUT", f"/payloads/{payload}", "other", 200),
            ("POST", "/leases", json.dumps({"jobs": [here]}), 201),
            ("GET", "/events", "", 200),
            ("PUT", "/relays/1", "", 200),
            ("DELETE", "", "", 200),
        ):
            status, told = ask(method, session + path, body)
            assert status == (code if is_for else 403), (queue, method, path, told)
            assert is_for or "this token is for vision only" in told["error"]
        alice.http("DELETE", session)


def test_a_server_that_cannot_show_who_it_is_gets_no_token(machine, elsewhere):
    url, ask = elsewhere
    token = machine["alice"].ok("token", "new").strip()
    refused = ask(token, "jobs", FAIRLEAD_CA="")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "its certificate is not trusted" in refused.stderr
    other = trustme.CA()
    other.cert_pem.write_to_path(machine.folder / "other.pem")
    assert ask(token, "jobs", FAIRLEAD_CA=str(machine.folder / "other.pem")).returncode == 1
    plain = ask(token, "jobs", FAIRLEAD_URL=url.replace("https", "http"))
    assert plain.returncode == 1


def test_a_port_asks_for_the_token_before_anything_else(machine, elsewhere):
    url, _ = elsewhere
    host, _, port = url.removeprefix("https://").partition(":")
    context = ssl.create_default_context(cafile=str(machine.folder / "authority.pem"))

    def ask(head):
        with (
            socket.create_connection((host, int(port)), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=host) as wire,
        ):
            wire.sendall(head.encode())
            return wire.recv(65536).decode()

    # The body never comes: who calls is known, and refused, before it is waited for.
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
    assert ask(head).startswith("HTTP/1.1 401 ")
    assert ask(head.replace(f"Host: {host}", "Host: evil.example")).startswith("HTTP/1.1 421 ")
    assert ask("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic eDp5\r\n\r\n").startswith("HTTP/1.1 401 ")


@pytest.fixture
def begin(machine, elsewhere):
    """Send the head of a request until the scheduler waits for the body; what is returned sends that, and returns the answer."""
    url, _ = elsewhere
    host, _, port = url.removeprefix("https://").partition(":")
    context = ssl.create_default_context(cafile=machine.folder / "authority.pem")
    with contextlib.ExitStack() as opened:

        def begin(token, method, path, body):
            plain = opened.enter_context(socket.create_connection((host, int(port)), timeout=60))
            wire = opened.enter_context(context.wrap_socket(plain, server_hostname=host))
            said = {"Host": f"{host}:{port}", "Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            said |= {"Content-Length": len(body), "Expect": "100-continue", "Connection": "close"}
            head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
            wire.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())
            begun = wire.recv(65536)
            assert begun.startswith(b"HTTP/1.1 100 "), (method, path, begun)

            def finish():
                wire.sendall(body.encode())
                answer = http.client.HTTPResponse(wire)
                answer.begin()
                return answer.status, json.loads(answer.read())

            return finish

        yield begin


def test_a_token_that_is_revoked_while_a_body_comes_changes_nothing(machine, begin):
    alice = machine["alice"]
    token = alice.ok("token", "new").strip()
    session = alice.http("POST", "/v1/sessions", {"argv": ["true"]})[1]["id"]
    job = alice.ok("submit", "-q", "people", "--cpu", "100", "--", "true").strip()
    names = {"{session}": session, "{payload}": "0" * 32, "{job}": job, "{index}": "0", "{node}": "n1", "{lease}": "1"}
    finish = {}
    for route, methods in alice.http("GET", "/openapi.json")[1]["paths"].items():
        for method in (method.upper() for method, told in methods.items() if "requestBody" in told):
            if ROUTES[method, route].who is Who.OPERATORS:
                continue
            path = functools.reduce(lambda path, name: path.replace(name, names[name]), names, route)
            body = '{"argv": ["true"], "queue": "people"}' if route == "/v1/jobs" else "[]"
            finish[method, route] = begin(token, method, path, body)
    assert {("POST", "/v1/jobs"), ("PUT", "/v1/sessions/{session}/payloads/{payload}")} < set(finish)
    alice.ok("token", "revoke", token.split("_")[1])
    for route, finished in finish.items():
        status, told = finished()
        assert (status, "is revoked or expired" in str(told)) == (401, True), (route, status, told)
    assert alice.http("GET", "/v1/jobs?limit=1")[1]["jobs"][0]["id"] == int(job)


def test_one_who_is_no_operator_any_more_when_the_body_has_come_operates_nothing(machine, begin):
    token = machine["olga"].ok("token", "new").strip()
    finish = begin(token, "POST", "/v1/nodes/n1/drain", "{}")
    before = machine.config.read_text()
    try:
        machine.config.write_text(before.replace('operators = ["olga"]', "operators = []"))
        machine["root"].ok("reload")
        status, told = finish()
        assert (status, "does not operate this scheduler" in str(told)) == (403, True), told
    finally:
        machine.config.write_text(before)
        machine["root"].ok("reload")
    assert {node["status"] for node in machine["root"].http("GET", "/v1/nodes")[1]["nodes"]} == {"up"}


# -- servers that are not what they seem -------------------------------------------------------------------------------


@contextlib.contextmanager
def impostor(listener):
    """Somebody who listens and keeps what is sent; yields a function that tells it."""
    heard = []

    def listen():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.settimeout(1)
                with connection, contextlib.suppress(OSError):
                    heard.append(connection.recv(65536))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield lambda: b"".join(heard)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def listener_of(uid, make):
    """A listening socket that a process of a uid made, and gave to this one."""
    here, there = socket.socketpair()

    def hand_over():
        made = make()
        socket.send_fds(there, [b"x"], [made.fileno()])

    child = fork_as(uid, hand_over)
    there.close()
    with here:
        _, fds, _, _ = socket.recv_fds(here, 1, 1)
    os.waitpid(child, 0)
    return socket.socket(fileno=fds[0])


@needs_root
def test_whoever_takes_a_port_of_this_machine_gets_no_token(monkeypatch):
    def make():
        return socket.create_server(("127.0.0.1", 0))

    listener = listener_of(60002, make)
    port = listener.getsockname()[1]
    with impostor(listener) as heard:
        monkeypatch.setenv("FAIRLEAD_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("FAIRLEAD_TOKEN", "fairlead_secret")
        with Connection(retry_seconds=0) as connection, pytest.raises(ServiceError, match="uid 60002 listens there, not root"):
            connection.get("/v1/jobs")
        assert b"secret" not in heard()
    with pytest.raises(NotTrusted, match="nothing listens there"):
        trusted_host("127.0.0.1", port)


@needs_root
@pytest.mark.parametrize(
    ("mine", "others"),
    [
        ("127.0.0.1", ["127.0.0.2"]),
        ("127.0.0.1", ["::1"]),
        ("127.0.0.1", ["::"]),
        ("::1", ["127.0.0.1"]),
        ("0.0.0.0", ["::"]),
        ("::ffff:127.0.0.1", ["127.0.0.2", "::1"]),
    ],
)
def test_who_listens_on_another_address_of_the_port_stops_no_client(mine, others):
    def listen(host, port=0):
        made = socket.socket(family_of(host))
        if ":" in host:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, "ffff" not in host)
        made.bind((host, port))
        made.listen()
        return made

    with contextlib.ExitStack() as opened:
        try:
            port = opened.enter_context(listen(mine)).getsockname()[1]
            for host in others:
                opened.enter_context(listener_of(60002, lambda host=host: listen(host, port)))
        except OSError as error:
            pytest.skip(f"there is no such address here: {error}")
        where = "::1" if mine == "::1" else "127.0.0.1"
        assert trusted_host(where, port) == where
        for host in others:
            if host not in ("::", where):
                with pytest.raises(NotTrusted, match="uid 60002 listens there"):
                    trusted_host(host, port)


@needs_root
def test_whoever_takes_all_addresses_gets_no_token():
    for host in ("0.0.0.0", "::"):
        with listener_of(60002, lambda host=host: socket.create_server((host, 0), family=family_of(host))) as taken:
            for where in ("127.0.0.1", "127.0.0.2", "localhost"):
                with pytest.raises(NotTrusted, match=f"{where}:.* uid 60002 listens there"):
                    trusted_host(where, taken.getsockname()[1])


class Hello(http.server.BaseHTTPRequestHandler):
    """Answers every request, and keeps what it was asked."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@needs_root
@pytest.mark.parametrize(("mine", "others"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
def test_localhost_is_the_address_where_the_scheduler_listens(monkeypatch, mine, others):
    class Server(http.server.HTTPServer):
        address_family, asked = family_of(mine), []

    try:
        server = Server((mine, 0), Hello)
    except OSError as error:
        pytest.skip(f"there is no such address here: {error}")
    port = server.server_port
    answering = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    answering.start()
    there = listener_of(60002, lambda: socket.create_server((others, port), family=family_of(others)))
    try:
        with impostor(there) as heard:
            monkeypatch.setenv("FAIRLEAD_URL", f"http://localhost:{port}")
            monkeypatch.setenv("FAIRLEAD_TOKEN", "fairlead_secret")
            for path in ("/v1/jobs", "/v1/queues"):
                with Connection(retry_seconds=0) as connection:
                    assert connection.get(path) == {}
            assert heard() == b""
        assert server.asked == [(path, "Bearer fairlead_secret") for path in ("/v1/jobs", "/v1/queues")]
    finally:
        server.shutdown()
        answering.join(5)
        server.server_close()


def family_of(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@needs_root
def test_whoever_takes_the_place_of_a_socket_hears_nothing(tmp_path, monkeypatch):
    path = tmp_path / "socket"
    for folder in tmp_path.parents:
        if folder.name.startswith(("pytest-", "popen-")):
            folder.chmod(0o755)
    tmp_path.chmod(0o777)

    def make():
        taken = socket.socket(socket.AF_UNIX)
        taken.bind(str(path))
        taken.listen()
        return taken

    with impostor(listener_of(60002, make)) as heard:
        monkeypatch.setenv("FAIRLEAD_URL", f"unix://{path}")
        with Connection(retry_seconds=0) as connection, pytest.raises(ServiceError, match="uid 60002 answers there"):
            connection.post("/v1/jobs", {"env": {"SECRET": "swordfish"}})
        assert heard() == b""


@needs_root
def test_a_data_folder_that_somebody_planted_is_refused(shared, tmp_path):
    planted = tmp_path / "planted"
    planted.mkdir()
    os.chown(planted, 60002, 60002)
    refused = shared.call("up", "--home", str(planted))
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "belongs to uid 60002, not to you" in refused.stderr
    within = planted / "within"
    within.mkdir()
    opened = tmp_path / "opened"
    (opened / "home").mkdir(parents=True)
    opened.chmod(0o777)
    filled = tmp_path / "filled"
    filled.mkdir()
    (filled / "tokens.json").write_text("[]")
    os.chown(filled / "tokens.json", 60002, 60002)
    team = tmp_path / "team"
    (team / "home").mkdir(parents=True)
    os.chown(team, 0, 60100)
    team.chmod(0o2775)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    os.chown(link, 60002, 60002, follow_symlinks=False)
    for home, why in (
        (within, "belongs to uid 60002, who could replace it"),
        (opened / "home", "everybody may write to"),
        (team / "home", f"group 60100 may write to .*run chmod g-w {team}"),
        (filled, "so this scheduler did not make it"),
        (link, "belongs to uid 60002, not to you"),
    ):
        with pytest.raises(PermissionError, match=why):
            make_home(home)
    with pytest.raises(CannotListen, match="everybody may write to"):
        open_socket(opened / "socket", shared=True)
    with pytest.raises(CannotListen, match="group 60100 may write to"):
        open_socket(team / "run" / "socket", shared=True)
    for gid, mode in ((60100, 0o3775), (0, 0o775)):  # where nobody takes away what is another's, and root's own group
        os.chown(team, 0, gid)
        team.chmod(mode)
        make_home(team / "home")
    with pytest.raises(NotADirectoryError, match="is not a folder: name another with --home"):
        make_home(filled / "tokens.json" / "home")
    with pytest.raises(OSError, match="cannot be made: No such file or directory: name another"):
        make_home(Path("/proc/none"))
    make_home(tmp_path / "new" / "home")
    assert (tmp_path / "new" / "home").stat().st_mode & 0o777 == 0o700


def test_a_persons_own_group_is_nobody_else(monkeypatch, tmp_path):
    """As many systems give everybody one, and let it write by default."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    gid = 54321
    found = list(tmp_path.stat())
    found[:1], found[5:6] = [0o040775], [gid]
    folder = SimpleNamespace(stat=lambda: os.stat_result(found))
    for name, members, alone in ((me, [], True), (me, [me], True), (me, [me, "bob"], False), ("team", [me], False)):
        group = grp.struct_group((name, "x", gid, members))
        monkeypatch.setattr("grp.getgrgid", lambda number, group=group: group)
        if alone:
            check_folder(folder, tmp_path)
        else:
            with pytest.raises(PermissionError, match="group 54321 may write to"):
                check_folder(folder, tmp_path)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://192.0.2.1:7373", "others on the network could read everything"),
        ("ftp://localhost", "not the URL of a scheduler"),
        ("unix://relative/path", "not the URL of a scheduler"),
        ("http://localhost:x", "not the URL of a scheduler"),
    ],
)
def test_a_url_that_will_not_do(url, why, monkeypatch):
    monkeypatch.setenv("FAIRLEAD_URL", url)
    with pytest.raises(NotTrusted, match=why):
        find(None)
    with pytest.raises(ServiceError, match=why):
        Connection()


def test_plain_http_from_elsewhere_only_by_saying_so(monkeypatch):
    monkeypatch.setenv("FAIRLEAD_URL", "http://192.0.2.1:7373")
    monkeypatch.setenv("FAIRLEAD_INSECURE", "1")
    monkeypatch.setenv("FAIRLEAD_TOKEN", "t")
    assert find(None) == Address(None, "192.0.2.1", 7373, False, "t")


# -- one's own scheduler -----------------------------------------------------------------------------------------------


@needs_root
def test_another_persons_scheduler_is_not_said_to_be_none(shared):
    def ask():
        with pytest.raises(ServiceError) as refused:
            Connection(shared.home, retry_seconds=0).get("/v1/status")
        return str(refused.value)

    said = f"{shared.home}/socket: permission denied: it is another user's scheduler"
    assert as_somebody(60002, ask) == said


@needs_root
def test_ones_own_scheduler_lets_nobody_else_in(shared):
    """Not even where the folder is opened by mistake: the kernel says who it is."""
    path = shared.home / "socket"
    opened = {
        path: 0o777,
        shared.home: 0o777,
        **dict.fromkeys(shared.home.parents[:4], 0o755),
    }  # the parents are other tests', too
    before = [each.stat().st_mode for each in opened]
    try:
        for each, mode in opened.items():
            each.chmod(mode)

        def ask():
            with socket.socket(socket.AF_UNIX) as wire:
                wire.connect(str(path))
                wire.sendall(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return b"".join(iter(lambda: wire.recv(65536), b"")).decode()

        answer = as_somebody(60002, ask)
    finally:
        for each, mode in zip(opened, before, strict=True):
            each.chmod(mode)
    assert answer.startswith("HTTP/1.1 403 ")
    assert "you are uid 60002" in answer


def test_a_port_of_ones_own_scheduler_takes_a_token(live):
    live.end()
    live.up("--port", "0")
    _, url = live.ask("status")["urls"]
    env = {**live.env, "FAIRLEAD_URL": url, "FAIRLEAD_HOME": "/nowhere"}

    def jobs(token):
        return run(["jobs"], env={**env, "FAIRLEAD_TOKEN": token}, timeout=60)

    assert jobs(live.ok("token", "new").strip()).returncode == 0
    for token, why in (("x", "rejects this token"), ("", "this scheduler requires a token: set FAIRLEAD_TOKEN")):
        refused = jobs(token)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert why in refused.stderr


@pytest.mark.parametrize(
    ("options", "status", "why"),
    [
        (["--listen", "0.0.0.0:0"], 2, "others on the network could read everything"),
        (["--listen", "nonsense"], 2, "write HOST:PORT"),
        (["--mesos", ":5050"], 2, "--mesos ':5050': write HOST:PORT"),
        (["--nodes", ":7374"], 2, "--nodes ':7374': write HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--port", "0"], 2, "write one of them"),
        (["--tls-cert", "x.pem"], 2, "for which port"),
        (["--tls-key", "x.pem"], 2, "needs the certificate"),
        (["--name", "a.example"], 2, "--name: needs --listen HOST:PORT"),
        (["--insecure"], 2, "--insecure: needs --listen or --mesos, without --tls-cert"),
        (["--lost-after", "9"], 2, "--lost-after: needs --nodes or --engine ray"),
        (["--listen", "127.0.0.1:0", "--tls-cert", "x.pem"], 1, "x.pem: not a certificate"),
    ],
)
def test_a_place_to_listen_that_will_not_do(options, status, why, shared, tmp_path):
    refused = shared.call("up", "--home", str(tmp_path / "home"), *options)
    assert (refused.returncode, refused.stderr.count("\n")) == (status, 1)
    assert why in refused.stderr


def test_without_systemd_the_unit_is_printed(command, monkeypatch):
    monkeypatch.setattr("fairlead.cli.systemd.RUNNING", Path("/nowhere"))
    Path("fairlead.toml").touch()
    shown = command("service", "install", "--config", "fairlead.toml").stdout
    assert "ExecStart=" in shown
    assert "up --system" in shown
    assert "systemctl disable" in command("service", "remove").stdout


@pytest.fixture
def unit(tmp_path, monkeypatch):
    """Where the unit is written, as if systemd ran; what it is told is in `unit.told`."""
    unit = SimpleNamespace(path=tmp_path / "fairlead.service", told=[])
    monkeypatch.setattr("fairlead.cli.systemd.RUNNING", tmp_path)
    monkeypatch.setattr("fairlead.cli.systemd._check_root", lambda: None)
    monkeypatch.setattr("fairlead.cli.systemd._systemctl", lambda *words: unit.told.append(words[0]))
    monkeypatch.setattr("fairlead.cli.commands.people.UNIT", unit.path)
    return unit


def test_an_installed_service_is_started_anew_with_what_it_was_installed_with(command, unit, tmp_path):
    trustme.CA().issue_cert("server.example").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    Path("fairlead.toml").touch()
    options = ["--listen=0.0.0.0:7373", "--tls-cert=server.pem", "--name=a.example", "--name=b.example"]
    for more in ([], options):
        unit.told.clear()
        assert command("service", "install", "--config", "fairlead.toml", *more).returncode == 0
        assert unit.told == ["daemon-reload", "enable", "restart"]
    started = re.search("^ExecStart=(.*)", unit.path.read_text(), re.MULTILINE)[1].split()
    assert started[1:] == [
        "up",
        "--system",
        f"--config={tmp_path}/fairlead.toml",
        "--listen=0.0.0.0:7373",
        f"--tls-cert={tmp_path}/server.pem",
        "--name=a.example",
        "--name=b.example",
    ]


@pytest.mark.parametrize(
    ("text", "options", "status", "why"),
    [
        (None, [], 1, "no such file"),
        ("nonsense = [", [], 1, "fairlead.toml: not TOML"),
        ("[[queue]]\nname = 'a/b'", [], 1, "has no parent queue"),
        ("", ["--listen", "0.0.0.0:7373"], 2, "give a certificate with --tls-cert"),
        ("", ["--listen", "0.0.0.0:7373", "--tls-cert", "none.pem"], 1, "none.pem: not a certificate"),
    ],
)
def test_what_up_would_refuse_is_not_installed(command, unit, text, options, status, why):
    if text is not None:
        Path("fairlead.toml").write_text(text)
    refused = command("service", "install", "--config", "fairlead.toml", *options)
    assert (refused.returncode, refused.stderr.count("\n")) == (status, 1)
    assert why in refused.stderr
    assert (unit.path.exists(), unit.told) == (False, [])


def test_a_scheduler_for_everybody_is_roots_to_start_which_is_said_at_once(command, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 60001)
    refused = command("up", "--system")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "only root may start a machine-wide scheduler: use sudo" in refused.stderr


def test_who_says_something_waits_for_no_terminal_and_fails_with_none():
    held, written = threading.Event(), []

    def write(line):
        if line == "no":
            raise BrokenPipeError
        held.wait(60)
        written.append(line)

    says = Background(write)
    for line in ["no", "a", "no", *map(str, range(2000))]:
        says.say(line)
    held.set()
    says.close()
    assert written[0] == "a"
    assert len(written) >= 900


@pytest.mark.parametrize("name", ["{}/notify", "@{}"])
def test_systemd_is_told_when_it_is_ready(command, monkeypatch, tmp_path, name):
    address = name.format(tmp_path)
    engine = SimpleNamespace(nodes=[], limits={"memory": True, "tracking": True}, elastic=False)
    monkeypatch.setattr("fairlead.cli.up.serve", lambda *_, on_ready, **more: on_ready(["unix:///x"], engine))
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address.replace("@", "\0"))
        systemd.setblocking(False)
        assert command("up", "--home", str(tmp_path)).returncode == 0
        assert systemd.recv(100) == b"READY=1"


def test_what_is_most_likely_not_meant_is_said():
    queues = [
        Queue("vision", submit=["@visoin", "root", "*"], admin=["al1ce"], guarantee={"cpu": 6000}),
        Queue("people", guarantee={"cpu": 4000}),
        Queue("people/*", guarantee={"cpu": 1000}),
    ]
    there = Configuration(queues, [], Settings(operators=["root", "@root", "0lga"]))
    assert configuration_warnings(there, {"cpu": 9000}, Accounts()) == [
        "all queues together are guaranteed 10 cpu, but usable nodes have 9: each has 90% of its guarantee",
        "queue 'vision': submit names '@visoin', a group that does not exist here",
        "queue 'vision': admin names 'al1ce', an account that does not exist here",
        "operators names '0lga', an account that does not exist here",
    ]
    assert configuration_warnings(there, {"cpu": 10000}, None) == []
    assert configuration_warnings(there, {"cpu": 5000}, None) == [
        "all queues together are guaranteed 10 cpu, but usable nodes have 5: each has 50% of its guarantee"
    ]
    there = Configuration(
        [Queue("a", guarantee_percent={"cpu": Percent(10)}), Queue("a/b", guarantee={"cpu": 8000})], [], Settings()
    )
    assert configuration_warnings(there, {"cpu": 90_000}, None) == []
    assert configuration_warnings(there, {"cpu": 40_000}, None) == [
        "queue 'a': is guaranteed 4 cpu, and those below it 8: each has 50% of its guarantee"
    ]
    mixed = {"guarantee_percent": {"cpu": Percent(100), "memory": Percent(100)}}
    there = Configuration([Queue("a", **mixed), Queue("b", guarantee={"cpu": 8000, "memory": 2**30})], [], Settings())
    assert configuration_warnings(there, {"cpu": 206_400, "memory": 10**12}, None) == [
        "all queues together are guaranteed 214.4 cpu, but usable nodes have 206.4: each has 96.3% of its guarantee",
        "all queues together are guaranteed 932.3Gi memory, but usable nodes have 931.3Gi: each has 99.9% of its guarantee",
    ]
    there = Configuration([Queue("a", guarantee={"memory": 2**40 + 2**20})], [], Settings())
    assert configuration_warnings(there, {"memory": 2**40}, None) == [
        "all queues together are guaranteed 1048577Mi memory, but usable nodes have 1Ti: each has 100% of its guarantee"
    ]
    there = Configuration([Queue("a", weight={"cpu": 1.0, "gpus": 2.0}, limit={"disk": 1})], [], Settings())
    assert configuration_warnings(there, {"cpu": 5000}, None) == [
        "queue 'a': weight names 'gpus', which no node has",
        "queue 'a': limit names 'disk', which no node has",
    ]


def test_a_reload_says_what_is_doubtful_and_that_groups_are_looked_up_anew(machine):
    root, before = machine["root"], machine.config.read_text()
    same = "the configuration has not changed; accounts and groups are looked up again\n"
    assert root.ok("reload") == same
    machine.config.write_text(before.replace('"@vision"', '"@vision", "@visoin"'))
    done = root.run("reload")
    machine.config.write_text(before)
    assert root.ok("reload") == "the configuration is in force\n"
    assert done.stdout == "the configuration is in force\n"
    assert done.stderr == "fairlead: queue 'vision': submit names '@visoin', a group that does not exist here\n"


# -- what is kept ------------------------------------------------------------------------------------------------------

ALICE = Person("alice", 1001, 1001)


def test_tokens_are_kept_and_known_again(tmp_path):
    path = tmp_path / "tokens.json"
    token, secret = Tokens(path).new(ALICE, seconds=1000)
    assert Tokens(path).find(secret) == token
    assert path.stat().st_mode & 0o077 == 0
    for wrong in ("", "x", secret[:-1], f"fairlead_{token.id}_", secret.replace(token.id, "0" * 12), "fairlead_\udcff_\udcff"):
        assert Tokens(path).find(wrong) is None
    with pytest.raises(Forbidden, match="another person's"):
        Tokens(path).revoke(token.id, Person("bob", 1002, 1002))
    kept = Tokens(path)
    assert kept.revoke(token.id, ALICE) == token
    assert kept.find(secret) is Tokens(path).find(secret) is None
    with pytest.raises(Unknown, match="no token"):
        kept.revoke(token.id, None)
    path.write_text("[{]")
    with pytest.raises(Refused, match="not a scheduler's token file"):
        Tokens(path)
    path.write_text("[]")
    path.chmod(0o666)
    with pytest.raises(Refused, match="others may write to it"):
        Tokens(path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="is a link: move it away"):
        Tokens(path)


def test_a_token_for_some_queues_closes_no_session_with_calls_in_others():
    session = "0" * 32
    jobs = {1: Job("q/a", {"cpu": 1}, user="alice", uid=1001, work=Work(["f"], call=Call(session, "1" * 32)))}
    state = SimpleNamespace(index=SimpleNamespace(specs=jobs))

    class Asked:
        authenticator = SimpleNamespace(rules=Rules({"q": Queue("q"), "q/a": Queue("q/a")}))

        async def ask(self, question, changes, by):
            return question(state, 0.0)

    closed = []
    with pytest.raises(Forbidden, match="this token is for other only, and job 1 is in queue 'q/a'"):
        asyncio.run(end_session(Asked(), SimpleNamespace(close=closed.append), session, Caller(ALICE, ("other",))))
    assert closed == []


def test_deeds_are_kept_and_nobody_fills_the_file(tmp_path, monkeypatch):
    audit_records = AuditRecords(tmp_path / "audit_records")
    audit_records.done("alice", "made a token")
    for number in range(1000):
        audit_records.refused("bob", f"GET /{number}", "no")
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 61)
    audit_records.refused("bob", "GET /again", "no")
    found = list(AuditRecords(tmp_path / "audit_records").newest_first())[::-1]
    assert [record.by for record in found] == ["alice", *["bob"] * (LINES_A_MINUTE + 2)]
    assert f"{1000 - LINES_A_MINUTE} more requests" in [record.what for record in found]
    assert {record.what for record in audit_records.newest_first(since=time.time() - 50)} == {
        f"{1000 - LINES_A_MINUTE} more requests",
        "GET /again",
    }
    monkeypatch.setattr("fairlead.people.audit_log.MOST_FILE_BYTES", 1000)
    for _ in range(50):
        audit_records.done("carol", "x" * 100)
    assert sum(path.stat().st_size for path in (tmp_path / "audit_records").iterdir()) < 20_000
    with (tmp_path / "audit_records" / "carol.done").open("ab") as file:
        file.write(b'{"at": 1, "by"')
    assert next(audit_records.newest_first()).by == "carol"


def test_what_one_does_drives_out_nobody_elses_deeds_and_nothing_that_was_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fairlead.people.audit_log.MOST_FILE_BYTES", 1000)
    monkeypatch.setattr("fairlead.people.audit_log.READ_BYTES", 64)  # several a line, and lines that end where a piece does
    now = iter(range(1, 10_000))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    audit_records = AuditRecords(tmp_path / "audit_records")
    audit_records.done("alice", "made a token")
    audit_records.refused("uid 7", "GET /v1/jobs", "no account", stranger=True)
    audit_records.refused("bob", "POST /v1/down", "not his")
    for number in range(300):
        audit_records.done("bob", f"made token {number}")
    found = list(audit_records.newest_first())
    assert [record.at for record in found] == sorted((record.at for record in found), reverse=True)
    kept = [record.what for record in found if record.what.startswith("made token ")]
    assert kept == [f"made token {number}" for number in range(299, 299 - len(kept), -1)]
    assert {record.by for record in found} == {"alice", "bob", "uid 7"}
    assert [record.what for record in found if record.outcome == "refused"] == ["POST /v1/down", "GET /v1/jobs"]
    assert [record.by for record in audit_records.newest_first("uid 7")] == ["uid 7"]
    assert {record.by for record in audit_records.newest_first("bob", since=3.0, before=200.0)} == {"bob"}
    (tmp_path / "x.done").write_text('{"at":1,"by":"x","what":"y","outcome":"done"}')
    assert list(audit_records.newest_first("../x")) == []


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.booleans()), max_size=40),
    st.integers(1, 7),
    st.integers(1, 400),
)
def test_the_log_page_by_page_is_the_log(made, most, largest):
    """Facts and audit_records, each the newest first, of which some are for others: the pages are what is left, and all of it."""
    facts, audit_records = [], []
    for at, (what, half, is_deed) in enumerate(made):
        if is_deed:
            audit_records.insert(0, AuditRecord(at + half / 100, "ada", what, "done"))
        else:
            entry = {"at": float(at), "by": "ada", "what": what, "outcome": "done", "why": "", "job": None, "queue": None}
            facts.insert(0, (at, entry, None))

    def allows(entry, job):
        return entry["what"] != "c"

    found, before = [], Position.read("-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_log, "MOST_PAGE_BYTES", largest)
        for _ in range(1000):
            rest = iter([record for record in audit_records if before.record is None or record.at < before.record])
            page = audit_log.Page(allows, rest, before, most)
            page.add_facts(each for each in facts if before.fact is None or each[0] < before.fact)
            told = page.told(not page.is_full and page.add_records())
            assert len(told["log"]) <= most
            found = told["log"] + found
            if told["next"] is None:
                break
            before = Position.read(told["next"])
    right = [each for _, each, _ in facts] + [audit_log.record_entry(record) for record in audit_records]
    right = [each for each in right if allows(each, None)]
    assert sorted(found, key=lambda each: each["at"]) == found
    assert sorted(map(str, found)) == sorted(map(str, right))
