"""The parts of Mesos' wire by themselves: messages, amounts, what is fetched, principals, streams."""

import asyncio
import gzip
import io
import json
import socket
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import numpy as np
import pytest
from google.protobuf.message import EncodeError
from hypothesis import given
from hypothesis import strategies as st
from tests.updates import acknowledge

from fairlead.engines.step import GRACE, Stalled, with_graces
from fairlead.model.documents import DocumentError
from fairlead.model.specs import Framework, Job, Node, Queue, Settings, Work
from fairlead.people.accounts import myself
from fairlead.people.principals import Principals
from fairlead.people.rules import Caller, rules_of
from fairlead.scheduler import snapshot
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Attempts,
    Configured,
    JobsForgotten,
    JobSubmitted,
    NodeForgotten,
    NodeJoined,
    NodeLost,
    OffersMade,
    OffersRescinded,
    TasksFinished,
    TasksStarted,
    UpdatesAcknowledged,
)
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.service.api import state_client
from fairlead.service.loop import Busy
from fairlead.service.mesos import calls, cluster_view, events, fetch, groups, streams, subscriptions
from fairlead.service.mesos.app import MesosApp
from fairlead.service.mesos.authenticator import CallRefused, FrameworkCaller
from fairlead.service.mesos.calls import Calls
from fairlead.service.mesos.cluster_view import Completed
from fairlead.service.mesos.encoding import JSON, PROTOBUF, Malformed, accepted_kind, as_json, decode, encode, record
from fairlead.service.mesos.executors import ExecutorCalls, Executors
from fairlead.service.mesos.fetch import CannotFetch, bring
from fairlead.service.mesos.messages.executor_pb2 import Call as ExecutorCall
from fairlead.service.mesos.messages.master_pb2 import Call as MasterCall
from fairlead.service.mesos.messages.mesos_pb2 import TASK_FINISHED, TASK_RUNNING, MasterInfo, Offer, Resource, TaskStatus, Value
from fairlead.service.mesos.messages.scheduler_pb2 import Call, Event
from fairlead.service.mesos.operators import Operators
from fairlead.service.mesos.resources import request_of, resources_of
from fairlead.service.mesos.streams import HEARTBEAT, Stream
from fairlead.service.mesos.subscriptions import Acknowledgements, Subscriptions
from fairlead.service.mesos.tasks import TOKEN


def test_the_numbers_of_fields_are_mesos_own():
    """Some of the odd ones, as bytes that Mesos' own clients send."""
    call = Call.FromString(bytes.fromhex("0a030a0161100c8201030a0141"))
    assert (call.framework_id.value, call.type, list(call.suppress.roles)) == ("a", Call.SUPPRESS, ["A"])
    status = TaskStatus.FromString(bytes.fromhex("0a030a017410015a02aabb5009"))
    assert (status.state, status.uuid, status.reason) == (TASK_RUNNING, b"\xaa\xbb", TaskStatus.REASON_RECONCILIATION)
    assert Offer.Operation.LAUNCH_GROUP == 6


def test_json_is_as_mesos_writes_it():
    event = Event(type=Event.UPDATE)
    event.update.status.task_id.value = "é"
    event.update.status.state = TASK_RUNNING
    event.update.status.uuid = b"\xff\xfe"
    event.update.status.unreachable_time.nanoseconds = 2**60
    told = '{"type":"UPDATE","update":{"status":{"task_id":{"value":"\\u00e9"},"state":"TASK_RUNNING","uuid":"//4=",'
    assert encode(JSON, event).decode() == told + '"unreachable_time":{"nanoseconds":1152921504606846976}}}}'
    ports = Resource(name="ports", type=Value.RANGES)
    ports.ranges.range.add(begin=1, end=2**40)
    assert as_json(ports)["ranges"] == {"range": [{"begin": 1, "end": 2**40}]}
    amounts = [float("inf"), float("-inf"), float("nan"), 0.5]
    told = [as_json(Value.Scalar(value=each))["value"] for each in amounts]
    assert told == ["Infinity", "-Infinity", "NaN", 0.5]
    assert decode(PROTOBUF, encode(PROTOBUF, event), Event()) == event


def test_what_a_message_must_have_is_sent_or_nothing():
    event = Event(type=Event.RESCIND)
    event.rescind.SetInParent()
    for kind in (JSON, PROTOBUF):
        with pytest.raises(EncodeError):
            encode(kind, event)


@pytest.mark.parametrize("body", [b'{"type": "KILL", "kill": {"task_id": {"value": "\\ud800"}}}', b'{"a":' * 5000, b"1"])
def test_what_is_no_message(body):
    with pytest.raises(Malformed):
        decode(JSON, body, Call())


@pytest.mark.parametrize(
    ("accept", "kind"),
    [(None, JSON), ("*/*", JSON), (PROTOBUF, PROTOBUF), (f"{PROTOBUF}, */*;q=0.1", JSON), (f"{JSON};q=0, {PROTOBUF}", PROTOBUF)],
)
def test_what_is_accepted(accept, kind):
    assert accepted_kind(accept) == kind
    assert accepted_kind("text/html") is None


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "disk", "gpu", "fpga"]), st.integers(0, 2**52)))
def test_what_is_offered_is_there_when_it_is_asked_for(amounts):
    """Rounded down to what Mesos can say, and not by more than a thousandth of its unit."""
    amounts = {name: amount // 1000 * 1000 if name == "gpu" else amount for name, amount in amounts.items()}
    asked = request_of(decode(JSON, encode(JSON, each), Resource()) for each in resources_of(amounts))
    for name, amount in amounts.items():
        unit = 1050 if name in ("memory", "disk") else 1
        assert amount - unit < asked.demand.get(name, 0) <= amount


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    folder = tmp_path / "sandbox"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def tar(path, *members):
    with tarfile.open(path, "w:gz") as file:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(data) if kind == tarfile.REGTYPE else 0
            if kind != tarfile.REGTYPE:
                info.linkname = data.decode()
            file.addfile(info, io.BytesIO(data) if kind == tarfile.REGTYPE else None)
    return {"value": str(path)}


@pytest.mark.parametrize(
    "members",
    [
        [("../out", tarfile.REGTYPE, b"x")],
        [("link", tarfile.SYMTYPE, b"../.."), ("link/out", tarfile.REGTYPE, b"x")],
        [("link", tarfile.SYMTYPE, b"/etc/passwd")],
        [("hard", tarfile.LNKTYPE, b"../secret")],
        [("pipe", tarfile.FIFOTYPE, b"")],
    ],
)
def test_nothing_in_an_archive_leaves_the_sandbox(sandbox, tmp_path, members):
    with pytest.raises(CannotFetch):
        bring([tar(tmp_path / "evil.tgz", *members)], 2**20)
    assert not (tmp_path / "out").exists()


def test_archives_and_single_files(sandbox, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("in/a", "zipped")
        file.writestr("../../out", "kept within")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"packed"))
    (tmp_path / "c.tgz").write_bytes(b"as it is")
    uris = [{"value": str(tmp_path / name)} for name in ("a.zip", "b.gz")]
    bring([*uris, {"value": f"file://{tmp_path}/c.tgz", "extract": False, "output_file": "sub/c"}], 2**20)
    assert (sandbox / "in/a").read_text() == "zipped"
    assert (sandbox / "b").read_text() == "packed"
    assert (sandbox / "sub/c").read_text() == "as it is"
    assert not (tmp_path / "out").exists()
    assert not (tmp_path.parent / "out").exists()


def test_what_is_fetched_is_bounded(sandbox, tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(2**22)))
    with pytest.raises(CannotFetch, match="exceeds the limit of 1048576 bytes"):
        bring([{"value": str(tmp_path / "bomb.gz")}], 2**20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a", bytes(2**22))
    with pytest.raises(CannotFetch, match="exceeds"):
        bring([{"value": str(tmp_path / "bomb.zip")}], 2**20)
    with pytest.raises(CannotFetch):
        bring([{"value": "/dev/zero"}], 2**20)
    assert sum(path.stat().st_size for path in sandbox.rglob("*")) < 2**21


def test_a_link_in_the_place_of_a_file_is_not_written_through(sandbox, tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "data").write_text("theirs")
    (sandbox / "data").symlink_to(tmp_path / "precious")
    bring([{"value": str(tmp_path / "data")}], 2**20)
    assert (tmp_path / "precious").read_text() == "mine"


def test_over_http(sandbox):
    class Serves(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/x/y%20z?q" else 404)
            self.end_headers()
            self.wfile.write(b"served")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Serves) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        bring([{"value": f"{address}/x/y%20z?q", "executable": True}], 2**20)
        assert (sandbox / "y z").read_text() == "served"
        assert (sandbox / "y z").stat().st_mode & 0o111
        with pytest.raises(CannotFetch, match="404"):
            bring([{"value": f"{address}/none"}], 2**20)
        server.shutdown()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nbegun",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n",
        b"no HTTP\r\n\r\n",
    ],
)
def test_what_breaks_off_is_not_taken_for_the_whole(sandbox, answer):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(CannotFetch, match=r"stopped .* before the end|invalid or incomplete answer"):
            bring([{"value": f"http://127.0.0.1:{server.getsockname()[1]}/a"}], 2**20)


def test_names_in_the_sandbox():
    assert str(fetch.name_of({"value": "http://x/a/b.tgz?c=d"})) == "b.tgz"
    for uri in ({"value": "http://x/"}, {"value": "/a", "output_file": "/b"}, {"value": "/a", "output_file": "b/../../c"}):
        with pytest.raises(CannotFetch):
            fetch.name_of(uri)


def basic(text):
    import base64

    return "Basic " + base64.b64encode(text.encode()).decode()


def test_principals_are_read_again_when_they_change(tmp_path):
    path = tmp_path / "principals.json"
    path.write_text(json.dumps({"principal": [{"name": "a", "secret": "one", "roles": ["*", "x"]}]}))
    path.chmod(0o600)
    principals = Principals(path, personal=True)
    assert principals.find(basic("a:one")).roles == ["default", "x"]
    for wrong in ("", "Basic", "Basic ?", "Bearer x", basic("a"), basic("a:two"), basic("b:one"), basic(":")):
        assert principals.find(wrong) is None
    path.write_text(json.dumps({"principal": [{"name": "a", "secret": "two:and more"}]}))
    assert principals.find(basic("a:one")) is None
    assert principals.find(basic("a:two:and more")).roles is None
    path.chmod(0o640)
    with pytest.raises(Refused, match="chmod 600"):
        principals.find(basic("a:two:and more"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[principal]]\nname = "a"\n', "secret"),
        ('[[principal]]\nname = "a:b"\nsecret = "s"\n', "name"),
        ('[[principal]]\nname = "a"\nsecret = "s"\n' * 2, "more than once"),
        ('[[principal]]\nname = "a"\nsecret = "s"\n', "account"),
    ],
)
def test_principals_that_cannot_be(tmp_path, text, why):
    path = tmp_path / "principals.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(DocumentError, match=why) as error:
        Principals(path, personal=False)
    assert '"s"' not in str(error.value)


def test_a_stream_beats_and_is_cut_off_when_nobody_reads(monkeypatch):
    async def main():
        stream = Stream(JSON, ("", 0))
        records = stream.records()
        monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.05)
        assert await anext(records) == record(JSON, HEARTBEAT)
        stream.tell([HEARTBEAT])
        assert await anext(records) == b'20\n{"type":"HEARTBEAT"}'
        large = Event(type=Event.ERROR, error=Event.Error(message="x" * streams.MOST_UNREAD))
        stream.tell([large])
        assert not stream.ended, "one record may be as large as it is"
        stream.tell([HEARTBEAT])
        assert stream.ended
        assert stream.cut_off.is_set()
        assert [each async for each in records] == []

    asyncio.run(main())


@pytest.fixture
def state():
    """Of a framework that is offered a node."""
    found = new_state()
    queues, node = [Queue("A")], Node("n", {"cpu": 4000, "memory": 2**32})
    for fact in (Configured(at=0, queues=queues, settings=Settings()), NodeJoined(at=0, node=node)):
        apply(found, fact)
    apply_all(found, frameworks.subscribe(found, Framework("f", roles=["A"], failover_timeout=9.0), "F", [], 0.0))
    apply_all(found, decide(found, 0.0).facts)
    return found


def apply_all(state, facts):
    for fact in facts:
        apply(state, fact)
    return facts


class Asks:
    """Answers questions from a state, as the scheduler's thread does."""

    def __init__(self, state):
        self.state, self.loop, self.facts = state, SimpleNamespace(stopped=threading.Event()), []
        self.authenticator, self.clock = (SimpleNamespace(rules=rules_of(state, personal=True)), SimpleNamespace(wall=float))

    record = state_client.StateClient.record

    async def read(self, view):
        return view(self.state)

    async def ask(self, question, **_):
        facts, answer = question(self.state, 1.0)
        self.facts += apply_all(self.state, facts)
        return answer


def calls_of(client):
    return Calls(client, Subscriptions(SimpleNamespace(wall=float)), Executors(), None, None, MasterInfo())


def test_an_offer_is_of_its_node_also_when_one_before_that_is_forgotten():
    found = new_state()
    for name in ("gone", "n"):
        apply(found, NodeJoined(at=0, node=Node(name, {"cpu": 4000}, {"is": name})))
    apply_all(found, [NodeLost(at=0, node="gone"), NodeForgotten(at=0, node="gone")])
    apply_all(found, frameworks.subscribe(found, Framework("f", roles=["A"]), "F", [], 0.0))
    apply_all(found, decide(found, 0.0).facts)
    me, operators = FrameworkCaller(Caller(myself())), Operators(Asks(found), MasterInfo(), Completed(), None)
    for kind in (MasterCall.GET_FRAMEWORKS, MasterCall.GET_STATE):
        told = asyncio.run(operators.call(me, MasterCall(type=kind)))
        told = told.get_state if kind == MasterCall.GET_STATE else told
        (offer,) = told.get_frameworks.frameworks[0].offers
        assert (offer.agent_id.value, offer.attributes[0].text.value) == ("n", "n")


def test_who_has_not_come_back_since_the_scheduler_has_is_offered_nothing_and_gone_after_a_minute_at_the_soonest(state):
    asker = Asks(state)
    asyncio.run(asker.record(calls_of(asker).disconnect_those_gone))
    assert [type(fact).__name__ for fact in asker.facts] == ["OffersRescinded", "FrameworkDisconnected"]
    soonest = 1.0 + calls.RECONNECT_SECONDS
    assert state.frameworks.members["F"].framework.failover_timeout < calls.RECONNECT_SECONDS
    assert apply_all(state, decide(state, soonest - 0.1).facts) == []
    gone = apply_all(state, decide(state, soonest).facts)
    assert "FrameworkGone" in [type(fact).__name__ for fact in gone]


def test_what_is_left_of_a_group_is_stopped_also_when_nobody_looked_as_it_broke(state):
    jobs = [groups.member(Job("", {"cpu": 100}, task=name, work=Work(["true"])), "g", "pod") for name in ("a", "b")]
    jobs.append(Job("", {"cpu": 100}, task="alone", work=Work(["true"])))
    facts, refused = frameworks.accept(state, "F", [1], jobs, 0.0, 0.0)
    assert not refused
    apply_all(state, facts)
    one = np.ones(1, np.int64)
    first = {"job": one * state.frameworks.tasks["F"]["a"].job, "index": 0 * one, "attempt": one}
    apply_all(state, [TasksStarted(at=0, **first), TasksFinished(at=0, **first, outcome=0 * one, code=one)])
    asker = Asks(state)
    asyncio.run(asker.record(calls_of(asker).end_groups_of_before))
    assert [fact.id for fact in asker.facts] == [state.frameworks.tasks["F"]["b"].job]


def test_the_grace_that_a_framework_gives_its_task_is_known_until_the_task_is_over(state):
    jobs = [Job("", {"cpu": 100}, task=name, grace=grace, work=Work(["true"])) for name, grace in (("a", 60.0), ("b", 1e5))]
    facts, _ = frameworks.accept(state, "F", [1], jobs, 0.0, 0.0)
    one = np.ones(1, np.int64)
    numbers = [each.id for each in apply_all(state, facts) if isinstance(each, JobSubmitted)]
    attempts = [Attempts(number * one, 0 * one, one) for number in numbers]
    assert [grace for each in attempts for _, grace in with_graces(state, each)] == [GRACE, GRACE]
    for name in ("a", "b"):
        apply_all(state, frameworks.kill(state, "F", name, 1.0))
    known = snapshot.load(snapshot.dump(state))
    assert [grace for each in attempts for _, grace in with_graces(known, each)] == [60.0, 3600.0]
    for number in numbers:
        apply(known, TasksFinished(at=2.0, job=number * one, index=0 * one, attempt=one, outcome=one, code=15 * one))
    assert not known.frameworks.graces


def test_an_executor_has_its_own_grace_where_its_framework_shuts_it_down(state):
    program = Job("", {}, executor="e", info="{}", grace=30.0, work=Work(["true"]))
    within = Job("", {"cpu": 100}, task="t", executor="e", info="{}")
    facts, refused = frameworks.accept(state, "F", [1], [within], 0.0, 0.0, {"e": program})
    assert not refused
    apply_all(state, facts)
    (number,) = state.frameworks.executors
    for by_framework, grace in ((False, None), (True, 30.0)):
        (stopped,) = frameworks.shut_down(state, number, 1.0, by_framework)
        assert (stopped.id, stopped.grace) == (number, grace)


def test_an_update_is_told_when_it_is_recorded_and_the_next_when_it_is_acknowledged(state):
    told = []
    subscriptions = Subscriptions(SimpleNamespace(wall=float))
    subscriptions.attach(SimpleNamespace(call_soon_threadsafe=lambda what, *more: what(*more)))
    subscriptions.begin("F", SimpleNamespace(tell=told.extend, end=None))
    facts, _ = frameworks.accept(state, "F", [1], [Job("", {"cpu": 100}, task="t", work=Work(["true"]))], 0.0, 0.0)
    one = np.ones(1, np.int64)
    attempt = {"job": one * facts[1].id, "index": 0 * one, "attempt": one}
    ends = [TasksStarted(at=0, **attempt), TasksFinished(at=0, **attempt, outcome=0 * one, code=0 * one)]
    subscriptions.recorded(state, apply_all(state, facts))
    subscriptions.recorded(state, apply_all(state, ends))
    states = ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]
    for number in (1, 2, 3):
        seen = [as_json(each)["update"]["status"]["state"] for each in told if each.type == Event.UPDATE]
        assert seen == states[:number]
        subscriptions.recorded(state, apply_all(state, acknowledge(state, "F", "t", number, 0.0)))
    assert state.frameworks.tasks["F"] == {}


def test_an_executor_call_for_a_command_that_is_forgotten_has_no_secret(state):
    """As with `keep_jobs = 0`: the job of an ended command is forgotten before its last update is acknowledged."""
    work = Work(["true"], env={TOKEN: "secret"})
    facts, _ = frameworks.accept(state, "F", [1], [Job("", {"cpu": 100}, task="t", work=work)], 0.0, 0.0)
    apply_all(state, facts)
    executor_calls = ExecutorCalls(None, Executors(), None)
    call = ExecutorCall(framework_id={"value": "F"}, executor_id={"value": "t"})
    assert executor_calls._find(state, call, "secret") == facts[1].id
    one = np.ones(1, np.int64)
    attempt = {"job": one * facts[1].id, "index": 0 * one, "attempt": one}
    apply_all(state, [TasksFinished(at=0, **attempt, outcome=0 * one, code=0 * one), JobsForgotten(at=0, ids=[facts[1].id])])
    assert "t" in state.frameworks.tasks["F"]
    with pytest.raises(CallRefused, match="this executor's secret") as refused:
        executor_calls._find(state, call, "secret")
    assert refused.value.status == 401


def test_the_end_of_a_task_is_sent_before_what_it_made_room_for_is_offered(state):
    """Also where both are recorded at once; an offer that is rescinded with them is still made first."""
    facts, _ = frameworks.accept(state, "F", [1], [Job("", {"cpu": 100}, task="t", work=Work(["true"]))], 0.0, 0.0)
    apply_all(state, facts)
    told = []
    subscriptions = Subscriptions(SimpleNamespace(wall=float))
    subscriptions.attach(SimpleNamespace(call_soon_threadsafe=lambda what, *more: what(*more)))
    subscriptions.begin("F", SimpleNamespace(tell=told.extend, end=None))
    apply_all(state, acknowledge(state, "F", "t", 1, 0.0))
    one = np.ones(1, np.int64)
    ended = TasksFinished(at=0, job=one * facts[1].id, index=0 * one, attempt=one, outcome=0 * one, code=0 * one)
    apply(state, ended)
    (made,) = [fact for fact in apply_all(state, decide(state, 0.0).facts) if isinstance(fact, OffersMade)]
    ids = [offer.id for offer in made.offers]
    subscriptions.recorded(state, [made, ended, OffersRescinded(at=0, ids=ids, why="expired")])
    assert [each.type for each in told] == [Event.UPDATE, Event.OFFERS, Event.RESCIND]


def test_acknowledgements_are_recorded_many_at_a_time_as_soon_as_that_can_be(state, monkeypatch):
    monkeypatch.setattr(state_client, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(subscriptions, "MOST_WAITING", 3)
    jobs = [Job("", {"cpu": 100}, task=f"t{k}", work=Work(["true"])) for k in range(3)]
    facts, _ = frameworks.accept(state, "F", [1], jobs, 0.0, 0.0)
    apply_all(state, facts)
    asked = [Call() for _ in jobs]
    for call, job, fact in zip(asked, jobs, (each for each in facts if isinstance(each, JobSubmitted)), strict=True):
        call.framework_id.value, call.acknowledge.task_id.value = "F", job.task
        call.acknowledge.uuid = events.UUID.pack(fact.id, 1)

    class Slow(Asks):
        tries = 0

        async def ask(self, question, **more):
            self.tries += 1
            if self.tries == 1:
                raise Stalled("the disk is full")
            if self.tries == 2:
                known.note(asked[2])
                with pytest.raises(Busy):
                    known.note(asked[2])
            return await super().ask(question, **more)

    async def acknowledge():
        known.note(asked[0])
        known.note(asked[1])
        while len(client.facts) < 2:
            await asyncio.sleep(0)

    client = Slow(state)
    known = Acknowledgements(client)
    asyncio.run(acknowledge())
    assert [len(fact.jobs) for fact in client.facts] == [2, 1]
    assert client.tries == 3


def _command(said):
    task = {"name": "t", "task_id": {"value": "t"}, "agent_id": {"value": "n"}, "resources": [], "command": said}
    return {"operations": [{"type": "LAUNCH", "launch": {"task_infos": [task]}}]}


@pytest.mark.parametrize(("said", "value"), [("true", True), (" false\n", False), (True, True), (None, True)])
def test_a_boolean_may_be_text(said, value):
    """As for Mesos' later reader; frameworks on avmesos send such."""
    accept = _command({"value": "x", "shell": said, "uris": [{"value": "/x", "extract": "false"}]})
    call = decode(JSON, json.dumps({"type": "ACCEPT", "accept": accept}).encode(), Call())
    (info,) = call.accept.operations[0].launch.task_infos
    assert (info.command.shell, info.command.uris[0].extract) == (value, False)


@pytest.mark.parametrize("said", ["True", "yes", "1", "", 1, ["true"]])
def test_other_text_is_no_boolean(said):
    accept = _command({"value": "x", "shell": said})
    with pytest.raises(Malformed, match="shell"):
        decode(JSON, json.dumps({"type": "ACCEPT", "accept": accept}).encode(), Call())


def test_what_ended_is_kept_for_a_while_and_counted_for_ever(state, monkeypatch):
    """Bounded in number and in time; the counters do not fall when tasks are acknowledged, forgotten or dropped."""
    monkeypatch.setattr(cluster_view, "MOST_TASKS", 2)
    kept, one = Completed(), np.ones(1, np.int64)
    kept.recorded(state, [])
    jobs = [Job("", {"cpu": 100}, task=name, work=Work(["true"])) for name in "abc"]
    facts, _ = frameworks.accept(state, "F", [1], jobs, 0.0, 0.0)
    kept.recorded(state, apply_all(state, facts))
    numbers = [each.id for each in facts if isinstance(each, JobSubmitted)]
    for number in numbers:
        attempt = {"job": number * one, "index": 0 * one, "attempt": one}
        ends = [TasksStarted(at=0, **attempt), TasksFinished(at=1.0, **attempt, outcome=0 * one, code=0 * one)]
        kept.recorded(state, apply_all(state, ends))
        apply(state, UpdatesAcknowledged(at=1.0, jobs=[number] * 3, updates=[1, 2, 3]))
    assert [task.id for task in kept.tasks(2.0)["F"]] == ["b", "c"]
    kept.recorded(state, apply_all(state, frameworks.tear_down(state, "F", 3.0)))
    assert [(at, who) for at, who, _ in kept.frameworks(4.0)] == [(3.0, "F")]
    later = 4.0 + cluster_view.KEPT_SECONDS
    assert (kept.tasks(later), kept.frameworks(later)) == ({}, [])
    assert dict(kept.ended) == {TASK_FINISHED: 3}


def test_a_scheduler_that_can_start_no_thread_asks_frameworks_to_come_again():
    async def look(view, who, query):
        raise RuntimeError("can't start new thread")

    sent = []

    async def send(message):
        sent.append(message)

    app = MesosApp(None, None, None, SimpleNamespace(views={"/health": {}}, look=look), set())
    scope = {"type": "http", "method": "GET", "path": "/health", "headers": [], "query_string": b""}
    asyncio.run(app(scope, None, send))
    assert (sent[0]["status"], (b"retry-after", b"1") in [(k.lower(), v) for k, v in sent[0]["headers"]]) == (503, True)
