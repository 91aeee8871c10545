"""The engine of many machines, with a real supervisor for each: what one does, is slow at or dies of is nobody else's.

A machine is lost when nothing can run there any more, and no sooner.
"""

import base64
import contextlib
import errno
import hashlib
import json
import os
import pwd
import signal
import socket
import time
import uuid
import zlib
from types import SimpleNamespace

import psutil
import pytest

import leased
from conftest import supervisor_of
from fairlead import tls
from fairlead.client.code_folder import pack_folder
from fairlead.engines import ray
from fairlead.engines.contract import NodeUp, Superseded, Unreachable
from fairlead.engines.local import fetching, lease, member, messages
from fairlead.engines.local.instructions import FIRST_PORT, PORTS
from fairlead.engines.local.lease import Lease
from fairlead.engines.local.member import start_member, supervisor_in
from fairlead.engines.local.reports import PieceRequest
from fairlead.engines.remote import engine as remote_engine
from fairlead.engines.remote.engine import RemoteEngine, Serving
from fairlead.engines.remote.keys import KeyRing, certificate_in, make_certificate
from fairlead.engines.remote.members import LeasePolicy, Member, MemberState
from fairlead.engines.remote.transfer import read_requested
from fairlead.model.specs import Call, Job, Node, Work
from fairlead.people.accounts import myself
from fairlead.scheduler.facts import Outcome
from fairlead.service.sessions import Sessions
from fairlead.service.wakeups import Wakeups
from fake_engine import Attempt, columns
from fleet import LONG_LEASE, SHORT_LEASE, Fleet, JoinedFleet


@pytest.fixture
def fleet(request, tmp_path):
    made, kind = [], getattr(request, "param", JoinedFleet)

    def make(*arguments, **more):
        made.append(kind(tmp_path, *arguments, **more))
        return made[0]

    yield make
    for each in made:
        each.close()


ADMITTED = pytest.mark.parametrize("fleet", [Fleet], indirect=True)
"""Nodes whose source admits and removes them, as Ray's; all others have joined."""


def test_a_decision_goes_to_each_machine_its_part_and_what_they_saw_comes_together(fleet):
    many = fleet(3)
    a, b, c = (Attempt(1, index, 1) for index in range(3))
    show = "echo $FAIRLEAD_INDEX $FAIRLEAD_RANK/$FAIRLEAD_SIZE at $FAIRLEAD_MASTER on $CUDA_VISIBLE_DEVICES; read x; "
    show += "echo $x; exit $x"
    job = many.job("sh", "-c", show, tasks=3, gang=True, demand={"gpu": 1000}, input="pipe")
    many.start(job, n0=[a], n1=[b], n2=[c])
    many.until(lambda: many.started >= {a, b, c})
    for attempt in (a, b, c):
        piece = {"stream": "", "offset": 0, "data": base64.b64encode(b"%d\n" % (attempt.task + 3)).decode(), "end": True}
        many.engine.ask_stream(tuple(attempt), "feed", **piece, size=None).result(60)
    assert [many.end_of(each) for each in (a, b, c)] == [(Outcome.EXITED, code) for code in (3, 4, 5)]
    for index, name in enumerate(many.names):
        master = "127.0.0.1"
        expected = f"{index} {index}/3 at {master} on 0\n{index + 3}\n".encode()
        assert many.engine.read_output(1, index, "out", 0, 1000, name) == expected
        assert many.engine.read_output(1, index, "out", 2, 3, name) == expected[2:5]
    assert many.engine.read_output(1, 0, "out", 0, 10, "n1") is None, "it ran elsewhere"
    (many.folder / "n0" / "output" / "9").write_text("where a folder of outputs should be")
    with pytest.raises(Unreachable, match=r"^node n0: Not a directory$"):
        many.engine.read_output(9, 0, "out", 0, 10, "n0")
    with (many.folder / "n0" / "output" / "1" / "0.out").open("ab") as file:
        file.truncate(2**30)
        file.write(b"end")
    data = many.engine.next_data(1, 0, "out", 2**20, "n0")
    assert (data, many.engine.next_data(1, 0, "out", data, "n0")) == (2**30, data), "a hole is not read"
    assert many.engine.next_data(1, 0, "out", 2**30 + 3, "n0") == 2**30 + 3
    many.engine.acknowledge(columns([a, b]))
    many.engine.forget([1])
    many.engine.take_inventory()
    many.known = {}
    many.until(lambda: many.known.keys() == set(many.names))
    assert {task for known in many.known.values() for task in known} == {c}, "the others are acknowledged"
    many.until(lambda: not (many.folder / "n0" / "output" / "1").exists())


def test_output_is_read_although_the_connection_is_just_renewed(fleet):
    many = fleet(1)
    many.start(many.job("echo", "out"), n0=[Attempt(1, 0, 1)])
    many.end_of(Attempt(1, 0, 1))
    for _ in range(3):
        many.engine._connections.renew("n0")
        assert many.engine.read_output(1, 0, "out", 0, 10, "n0") == b"out\n"


def test_a_gang_whose_port_is_taken_starts_again_with_another(fleet):
    """By another program, or by a gang that has not opened it yet; only the first task's machine counts."""
    many = fleet(2)
    job = many.job("sh", "-c", "echo $FAIRLEAD_PORT $FAIRLEAD_HOSTS $RANK; sleep 0.5", tasks=2, gang=True, fit="apart")
    port = FIRST_PORT + zlib.crc32(b"fleet 1 1") % PORTS
    with socket.create_server(("", port)):
        many.start(job, n0=[Attempt(1, 0, 1)], n1=[Attempt(1, 1, 1)])
        assert many.end_of(Attempt(1, 0, 1)) == (Outcome.LOST, 0)
    many.end_of(Attempt(1, 1, 1))
    many.start(job, n0=[Attempt(1, 0, 2)], n1=[Attempt(1, 1, 2)])
    many.until(lambda: Attempt(1, 0, 2) in many.started)
    for attempt in (Attempt(1, 0, 2), Attempt(1, 1, 2)):
        assert many.end_of(attempt) == (Outcome.EXITED, 0)
    said = many.engine.read_output(1, 1, "out", 0, 1000, "n1").decode().splitlines()
    other = FIRST_PORT + zlib.crc32(b"fleet 1 2") % PORTS
    assert said == [f"{port} 127.0.0.1,127.0.0.1 1", f"{other} 127.0.0.1,127.0.0.1 1"]


def test_what_is_started_as_soon_as_a_machine_is_there_starts_at_once(fleet):
    """Its lease lasts before it is said to be there, the first time and when it comes back: nothing is passed over."""
    many = fleet(1, LONG_LEASE)
    job = many.job("true")
    many.start(job, n0=[Attempt(1, 0, 1)])
    many.end_of(Attempt(1, 0, 1))
    for number in (2, 3):
        many.engine.close()
        many.engine.join(10)
        many.serve()
        many.start(many.job("true"), n0=[Attempt(number, 0, 1)])
        many.end_of(Attempt(number, 0, 1))


def test_an_environment_that_is_kept_apart_goes_to_whoever_cannot_read_it(fleet):
    many = fleet(1)
    kept = many.home / "exports" / "kept"
    kept.parent.mkdir()
    kept.write_text('{"SECRET": "word", "Y": "exported"}')
    a, b = Attempt(1, 0, 1), Attempt(2, 0, 1)
    show = ("sh", "-c", "echo $SECRET $Y")
    many.start(many.job(*show, env={"Y": "own"}, export="kept"), n0=[a])
    many.start(many.job(*show, export="gone"), n0=[b])
    assert many.end_of(a) == (Outcome.EXITED, 0)
    assert many.wrote(a, "n0") == "word own\n"
    assert many.end_of(b) == (Outcome.NOT_STARTED, errno.ENOENT)
    assert "its stored environment cannot be read" in many.wrote(b, "n0", "err")


def test_what_a_machine_tells_of_the_tasks_of_another_is_not_believed(fleet, caplog):
    many = fleet(2)
    a = Attempt(1, 0, 1)
    many.start(many.job("sh", "-c", "until test -e go; do sleep 0.02; done"), n0=[a])
    many.until(lambda: a in many.started)
    many.engine._hear("n1", [b'{"saw": "ended", "task": [1, 0, 1], "outcome": 0, "code": 0, "cpu": 0, "peak": 0}'])
    many.look()
    assert a not in many.ended
    assert "node n1 reports task 1.0, which is on another node" in caplog.text
    (many.folder / "go").touch()
    assert many.end_of(a) == (Outcome.EXITED, 0)


def test_what_another_machine_tells_first_after_a_restart_is_not_believed(fleet, caplog):
    many, a = fleet(2), Attempt(1, 0, 1)
    many.engine.close()
    many.engine.join(10)
    many.engine = RemoteEngine(Serving(many.home, lambda: None, LONG_LEASE, ("127.0.0.1", 0)))
    many.engine.expect({"n0": [a], "n1": []})
    many.engine.serve("another", 1)
    many.engine._hear("n1", [b'{"saw": "ended", "task": [1, 0, 1], "outcome": 0, "code": 0, "cpu": 0, "peak": 0}'])
    assert not len(many.engine.poll().ended.attempts.job)
    assert "node n1 reports task 1.0, which is on another node" in caplog.text


def test_an_attempt_is_stopped_where_the_journal_has_it_and_where_it_was_seen(fleet):
    many = fleet(2)
    a, b = Attempt(1, 0, 1), Attempt(2, 0, 1)
    many.start(many.job("sleep", "60"), n0=[a], n1=[b])
    many.until(lambda: many.started >= {a, b})
    many.engine.stop(columns([a]), 5.0, many.where(n0=1))
    many.engine.stop(columns([b]), 5.0)
    assert many.end_of(a) == many.end_of(b) == (Outcome.SIGNALLED, signal.SIGTERM)


def test_tasks_outlive_the_scheduler_and_the_next_one_adopts_them_all(fleet):
    many = fleet(2)
    a, b = Attempt(1, 0, 1), Attempt(1, 1, 1)
    many.start(many.job("sh", "-c", "until test -e go; do sleep 0.02; done; exit 7"), n0=[a], n1=[b])
    many.until(lambda: many.started >= {a, b})
    before = [many.supervisor(name).pid for name in many.names]
    many.engine.close()
    many.engine.join(10)
    many.started, many.known = set(), {}
    many.serve()
    many.until(lambda: many.known.keys() == set(many.names))
    assert {task for known in many.known.values() for task in known} == {a, b}
    (many.folder / "go").touch()
    assert many.end_of(a) == many.end_of(b) == (Outcome.EXITED, 7)
    assert [many.supervisor(name).pid for name in many.names] == before
    assert many.supervisor("n0").ppid() not in (0, psutil.Process().pid), "it is nobody's child here"


def answer(port, context, said=b""):
    """What one is told who connects where nodes do; nothing where they are not heard."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as closing:
        line = closing.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        if context is not None:
            line = closing.enter_context(context.wrap_socket(line))
        line.sendall(said)
        return line.recv(1000)
    return b""


def test_who_has_no_key_is_not_heard_and_a_key_speaks_for_its_own_node_alone(fleet, tmp_path):
    many = fleet(2)
    ring, port = many.engine._ring, many.engine.port
    before = {"before": ring.made_for("n1", "its first start"), "n1": ring.made_for("n1", "its second start")}
    pems = before | {"gone": ring.made_for("gone"), "other": make_certificate("other")}
    ring.remove("gone")
    for name, pem in pems.items():
        (tmp_path / f"{name}.pem").write_text(pem)
    contexts = {name: tls.dialing(tmp_path / f"{name}.pem", ring.certificate) for name in pems}
    nobody = tls.dialing(None, ring.certificate)
    ended = b'{"saw": "ended", "task": [1, 0, 1], "outcome": 0, "code": 0, "cpu": 0, "peak": 0}\n'
    for context in (None, nobody, contexts["before"], contexts["other"], contexts["gone"], KeyRing(tmp_path / "another").context):
        assert b"greet" not in answer(port, context, ended)
    a = Attempt(1, 0, 1)
    many.start(many.job("sh", "-c", "until test -e go; do sleep 0.02; done; exit 3"), n0=[a])
    many.until(lambda: a in many.started)
    assert b"greet" in answer(port, contexts["n1"], ended), "who has the key of a node is heard as that node"
    (many.folder / "go").touch()
    assert many.end_of(a) == (Outcome.EXITED, 3)
    (many.folder / "n0" / "supervisor" / "scheduler.pem").write_text(certificate_in(pems["other"]))
    b = Attempt(2, 0, 1)
    many.engine._connections.renew("n0")
    many.start(many.job("true"), n0=[b])
    with pytest.raises(AssertionError):
        many.end_of(b, 1)  # a node talks to no other scheduler


def test_one_that_does_not_read_keeps_nobody_from_the_others(fleet, monkeypatch):
    many = fleet(2)
    monkeypatch.setattr(many.engine._connections, "most_unsent", 300_000)
    stopped = many.supervisor("n0")
    stopped.suspend()
    lost = [Attempt(1, index, 1) for index in range(400)]
    for attempt in lost:
        many.start(many.job("true", env={"X": "x" * 20_000}), n0=[attempt])
    a = Attempt(2, 0, 1)
    many.start(many.job("true"), n1=[a])
    assert many.end_of(a) == (Outcome.EXITED, 0)
    many.known = {}
    stopped.resume()
    many.until(lambda: "n0" in many.known and not many.engine._connections._connections["n0"].is_sending())
    assert not many.known["n0"].issuperset(lost), "some were dropped, and it was asked for everything"
    many.start(many.job("true"), n0=[lost[-1]])
    assert many.end_of(lost[-1]) == (Outcome.EXITED, 0)


def test_when_the_supervisor_of_one_machine_is_killed_its_tasks_alone_are_lost(fleet):
    many = fleet(2)
    a, b = Attempt(1, 0, 1), Attempt(1, 1, 1)
    many.start(many.job("sleep", "60"), n0=[a], n1=[b])
    many.until(lambda: many.started >= {a, b})
    killed = many.supervisor("n0")
    killed.kill()
    killed.wait(60)
    many.known = {}
    many.engine.admit(many.nodes["n0"], "127.0.0.1")
    many.place("n0")
    assert many.end_of(a) == (Outcome.LOST, 0)
    assert b not in many.ended
    assert set(many.known) == {"n0"}, "nothing is said of the other"


def task_of(many):
    """The process of the one task on n0; beside it, another may measure cards."""
    (task,) = [each for each in many.supervisor("n0").children() if not each.name().startswith("python")]
    return task


def test_without_a_scheduler_tasks_end_when_their_lease_is_over_and_not_before(fleet):
    many = fleet(2, SHORT_LEASE)
    a = Attempt(1, 0, 1)
    many.start(many.job("sh", "-c", "trap 'echo ended' TERM; while :; do sleep 0.02; done"), n0=[a])
    many.until(lambda: a in many.started)
    task = task_of(many)
    began = time.monotonic()
    while time.monotonic() < began + 2 * SHORT_LEASE.lost_after:
        many.look()
        time.sleep(0.05)
    assert task.is_running(), "the scheduler's line renews it"
    many.engine.close()
    many.engine.join(10)
    task.wait(60)
    assert many.wrote(a, "n0") == "ended\n"
    many.serve()
    assert many.end_of(a) == (Outcome.LOST, 0)


@pytest.mark.parametrize("fleet", [Fleet, JoinedFleet], indirect=True)
def test_a_frozen_machine_is_lost_when_its_lease_is_over_and_starts_nothing_of_before_when_it_thaws(fleet):
    many = fleet(2, SHORT_LEASE)
    a, late = Attempt(1, 0, 1), Attempt(2, 0, 1)
    many.start(many.job("sleep", "60"), n0=[a])
    many.until(lambda: a in many.started)
    supervisor = many.supervisor("n0")
    frozen = [supervisor.parent(), supervisor]
    for process in frozen:
        process.suspend()
    for process in supervisor.children():  # it starts no more of them
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
            frozen.append(process)
    since = time.monotonic()
    many.start(many.job("touch", "ran"), n0=[late])
    many.until(lambda: many.is_down("n0"))
    assert time.monotonic() - since > SHORT_LEASE.lost_after + SHORT_LEASE.grace
    assert not many.is_down("n1")
    if type(many) is Fleet:
        many.engine.admit(many.nodes["n0"], "127.0.0.1")  # its source has found its supervisor
    for process in reversed(frozen):
        process.resume()
    with contextlib.suppress(psutil.TimeoutExpired):  # its guardian ends it, whose time is over, unless it was quicker itself
        supervisor.wait(2)
    many.place("n0")
    many.until(lambda: not many.is_down("n0"))
    assert many.end_of(a) == (Outcome.LOST, 0)
    assert late not in many.known["n0"]
    b = Attempt(3, 0, 1)
    many.start(many.job("true"), n0=[b])
    assert many.end_of(b) == (Outcome.EXITED, 0)
    assert not (many.folder / "ran").exists()


def test_what_runs_under_a_supervisor_that_stands_still_has_ended_before_it_counts_as_lost(fleet):
    many = fleet(1, SHORT_LEASE)
    a = Attempt(1, 0, 1)
    many.start(many.job("sh", "-c", "trap '' TERM; while :; do sleep 0.02; done"), n0=[a])
    many.until(lambda: a in many.started)
    task = task_of(many)
    many.supervisor("n0").suspend()
    many.until(lambda: many.is_down("n0"))
    assert not task.is_running() or task.status() == psutil.STATUS_ZOMBIE
    many.place("n0")
    assert many.end_of(a) == (Outcome.LOST, 0)


def test_what_is_fenced_has_ended_before_anything_starts_there_again(fleet):
    """Neither the supervisor nor its guardian was in time: both stood still until the node was lost."""
    many = fleet(1, SHORT_LEASE)
    a, other = Attempt(1, 0, 1), Attempt(2, 0, 1)
    words = "trap '' TERM; exec 9> lock; flock -n 9 && touch locked; while :; do sleep 0.02; done"
    many.start(many.job("sh", "-c", words), n0=[a])
    many.until((many.folder / "locked").exists)
    supervisor = many.supervisor("n0")
    guardian = supervisor.parent()
    guardian.suspend()
    supervisor.suspend()
    many.until(lambda: many.is_down("n0"))
    supervisor.resume()
    many.until(lambda: not many.is_down("n0"))
    many.start(many.job("flock", "-n", "lock", "true"), n0=[other])
    assert many.end_of(other) == (Outcome.EXITED, 0)
    assert many.end_of(a) == (Outcome.LOST, 0)
    guardian.resume()


@ADMITTED
def test_a_machine_that_is_said_to_be_gone_is_lost_as_soon_as_its_supervisor_has_ended_everything(fleet):
    many = fleet(2, LONG_LEASE._replace(grace=0.3))
    a, late = Attempt(1, 0, 1), Attempt(2, 0, 1)
    tidies = Attempt(4, 0, 1)
    many.start(many.job("sh", "-c", "trap '' TERM; sleep 60"), n0=[a])
    many.start(many.job("sh", "-c", "trap 'exit 0' TERM; touch ready; while :; do sleep 0.01; done"), n0=[tidies])
    many.until(lambda: a in many.started and (many.folder / "ready").exists())
    many.engine.part("n0")
    many.until(lambda: many.is_down("n0"), seconds=60)
    assert many.ended[a] == (Outcome.LOST, 0)
    assert many.ended[tidies] == (Outcome.STOPPED, 0), "its job says whether that is done"
    many.start(many.job("touch", "ran"), n0=[late])
    many.news = []
    many.engine.admit(many.nodes["n0"], "127.0.0.1")
    many.place("n0")
    many.until(lambda: many.news)
    b = Attempt(3, 0, 1)
    many.start(many.job("true"), n0=[b])
    assert many.end_of(b) == (Outcome.EXITED, 0), "it was admitted again"
    assert not (many.folder / "ran").exists()


def test_what_the_journal_believes_in_and_nobody_admits_is_lost_when_it_must_have_ended(fleet):
    many = fleet(1, SHORT_LEASE)
    engine = RemoteEngine(Serving(many.home, lambda: None, SHORT_LEASE, ("127.0.0.1", 0)))
    engine.serve("another", 1)
    engine.expect({"away": [(1, 0, 1)]})
    since, lost = time.monotonic(), []
    while not lost:
        seen = engine.poll()
        lost = seen.nodes
        assert seen.of is None or not seen.of
        time.sleep(0.02)
    assert time.monotonic() - since > 0.9 * SHORT_LEASE.over_within()
    engine.close()
    engine.join(10)


def test_what_a_scheduler_before_promised_for_longer_is_waited_for(tmp_path):
    for lost_after, waits in ((60.0, 60.0), (2.0, 60.0)):
        engine = RemoteEngine(Serving(tmp_path, lambda: None, LONG_LEASE._replace(lost_after=lost_after), ("127.0.0.1", 0)))
        engine.expect({"away": [(1, 0, 1)]})
        member = engine._members["away"]
        assert not member.is_lost(engine._policy, member.renewed_at + waits)
        assert member.is_lost(engine._policy, member.renewed_at + LONG_LEASE.over_within() + 0.1)


def test_a_node_that_is_heard_before_it_is_expected_has_the_new_terms(fleet):
    many = fleet(1)
    (many.home / "lost_after").write_text("7200.0")
    many.engine.expect({"n0": [(1, 0, 1)]})
    assert many.engine._members["n0"].promised == 0.0


def test_what_has_no_tasks_by_the_journal_is_lost_as_soon_as_it_is_gone(tmp_path):
    """Such as the nodes of a cluster that ended: for as long as a lease they were listed as up."""
    engine = RemoteEngine(Serving(tmp_path, lambda: None, LONG_LEASE, ("127.0.0.1", 0)))
    engine.expect({"busy": [(1, 0, 1)], "idle": []})
    for name, lost in (("busy", False), ("idle", True)):
        engine.part(name)
        member = engine._members[name]
        assert member.is_lost(engine._policy, member.renewed_at + 1) == lost


def test_a_node_that_is_gone_and_back_before_anybody_is_served_is_admitted(tmp_path):
    engine = RemoteEngine(Serving(tmp_path, lambda: None, LONG_LEASE, ("127.0.0.1", 0)))
    node = Node("n0", {"cpu": 1000})
    engine.admit(node, "127.0.0.1")
    engine.part("n0")
    engine.admit(node, "127.0.0.1")
    assert engine.names() == {"n0"}
    engine.close()


@ADMITTED
def test_what_is_placed_on_a_node_that_confirmed_its_end_does_not_keep_it_from_being_lost(fleet, monkeypatch):
    many = fleet(1)
    monkeypatch.setattr(Member, "is_lost", lambda member, policy, now: False)  # it is placed before anybody looks
    member = many.engine._members["n0"]
    many.engine.part("n0")
    deadline = time.monotonic() + 60
    while not member.fenced:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    many.start(many.job("true"), n0=[Attempt(1, 0, 1)])
    assert member.fenced


def test_a_newer_scheduler_takes_over_and_the_one_before_is_told(fleet):
    many = fleet(2)
    before = many.engine
    many.serve()
    many.place("n0", before)  # a copy of the scheduler asks for it
    with pytest.raises(Superseded, match="obeys another scheduler"):
        poll_for(before, 60)
    before.close()


def poll_for(engine, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        engine.poll()
        time.sleep(0.02)


PROMISE = LeasePolicy(lost_after=30.0, grace=5.0)


@pytest.mark.parametrize(
    ("standing", "gone_at", "fenced", "is_lost_after"),
    [
        (MemberState.UP, None, False, 36.6),
        (MemberState.UNHEARD, None, False, 36.6),
        (MemberState.UP, 20.0, False, 56.6),
        (MemberState.UP, 20.0, True, 20.0),
        (MemberState.LOST, None, False, 0.0),
    ],
)
def test_when_a_machine_is_lost(standing, gone_at, fenced, is_lost_after):
    """`is_lost_after`: seconds after it was heard last."""
    member = Member("n", None, 0.0)
    assert not member.is_lost(PROMISE, 1e9), "nobody believes in it"
    member.believed, member.standing, member.gone_at, member.fenced = True, standing, gone_at, fenced
    assert member.is_lost(PROMISE, is_lost_after + 0.01)
    if is_lost_after > 20:
        assert not member.is_lost(PROMISE, is_lost_after - 0.01)


def test_a_lease_lasts_from_when_its_number_was_said_however_late_that_comes_back(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(lease, "clock", lambda: now)
    held = Lease(10.0, 1.0)
    assert held.is_over()
    held.renew(1)
    assert held.is_over(), "it was not said"
    first = held.number()
    assert held.number() is None, "not so soon"
    now += 4
    second = held.number()
    held.renew(first)
    now += 5.9
    assert not held.is_over()
    now += 0.2
    assert held.is_over()
    held.renew(first)
    assert held.is_over(), "it came before"
    held.renew(second)
    assert not held.is_over()
    now += 3.9
    assert held.is_over()
    third = held.number()
    held.reset()
    held.renew(third)
    assert held.is_over(), "that was told another"


class Program:
    """A program that calls Python functions, by the session that the service keeps for it."""

    def __init__(self, many, code=None, **setup):
        self.sessions = Sessions(many.home / "calls", Wakeups())
        self.sessions.folder.mkdir(exist_ok=True)
        argv = ["/no/such/python", "-P", "/no/such/worker.py"]
        self.leases = leased.Program()
        asked = {"argv": argv, "cwd": "/no/such/folder", "env": {}, "encoding": "utf-8", "path": []}
        asked |= self.leases.setup | setup
        self.many, self.person = many, myself()
        if code is not None:
            asked |= {"code": code.name, "path": ["src", "/no/such/path"], "inside": ""}
        self.id = self.sessions.create(asked, self.person)
        self.folder = self.sessions.folder / self.id
        if code is not None:
            self.put(code.name, code.data)

    def put(self, name, data):
        with self.sessions.putting(self.id, self.person, name) as write:
            write(data)

    def job(self, tasks=1, lease=1):
        """The job of a lease."""
        return Job("q", {"cpu": 1000}, tasks=tasks, work=Work(["python"], call=Call(self.id, str(lease))))

    def call(self, function, *arguments):
        return self.leases.call(1, function, *arguments)


def test_what_workers_need_is_fetched_by_machines_that_do_not_see_the_schedulers_files(fleet, tmp_path):
    """In pieces; what is left goes with the session."""
    many = fleet(2)
    code = tmp_path / "code" / "src"
    code.mkdir(parents=True)
    (code / "travelled.py").write_text("from pathlib import Path\ndef told(): return Path('word').read_text() * 3\n")
    (code.parent / "word").write_text("again ")
    (code.parent / "large").write_bytes(os.urandom(600_000))
    packed = pack_folder(code.parent)
    program = Program(many, packed)
    a, b = Attempt(1, 0, 1), Attempt(1, 1, 1)

    def import_it():
        import travelled

        return travelled.told()

    many.start(program.job(), n0=[a])
    assert program.call(import_it) == "again again again "
    assert many.end_of(a) == (Outcome.EXITED, 0)
    there = many.folder / "n0" / "fetched" / program.id
    assert (there / "1.0.1").exists()
    many.engine.acknowledge(columns([a]))
    many.until(lambda: not (there / "1.0.1").exists())

    again = Program(many, packed)
    (again.folder / packed.name).unlink()  # it was sent there once
    b, c = Attempt(2, 0, 1), Attempt(3, 0, 1)
    many.start(again.job(), n0=[b])
    assert again.call(import_it) == "again again again "
    assert many.end_of(b) == (Outcome.EXITED, 0)
    many.start(again.job(), n1=[c])
    assert many.end_of(c) == (Outcome.NOT_STARTED, errno.ENOENT), "the other never had it"
    for each in (program, again):
        each.sessions.close(each.id)
    many.until(lambda: not any((many.folder / name / "fetched" / program.id).exists() for name in many.names))


def test_packed_code_is_kept_for_so_many_bytes_of_one_person_and_in_all_but_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "MOST_OF_ONE", 250)
    monkeypatch.setattr(fetching, "MOST_OF_ALL", 350)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    asked = []
    (tmp_path / "node").mkdir()
    fetched = fetching.FetchedSessions(tmp_path / "node", lambda **wanted: asked.append(PieceRequest(**wanted)))

    def bring(byte, uid):
        """The session of a program with 100 bytes of code, all of which has been fetched."""
        session, code = uuid.uuid4().hex, byte * 100
        name = hashlib.sha256(code).hexdigest()[:32]
        folder = tmp_path / "calls" / session
        (folder / "results").mkdir(parents=True)
        (folder / "setup.json").write_text(json.dumps({"code": name}))
        (folder / name).write_bytes(code)
        work = messages.Call(session, "1", "pool", True)
        start = messages.Start([(1, 0, 1)], work, None, messages.Person("x", uid), signal.SIGTERM, None)
        while fetched.local((1, 0, 1), start) is None:
            wanted = asked.pop()
            data, last = read_requested(tmp_path / "calls", wanted)
            piece = (wanted.session, wanted.name, wanted.at, wanted.offset, data, last)
            fetched.take(messages.Piece(*piece))
        came = len(list((tmp_path / "calls").iterdir()))
        os.utime(tmp_path / "node/archives" / f"{uid}-{name}", (came, came))  # the clock of files may not tell them apart
        return session

    def kept():
        return sorted((each.read_bytes()[:1], each.name.split("-")[0]) for each in (tmp_path / "node/archives").iterdir())

    needed = bring(b"a", 1)
    fetched.close(bring(b"b", 1))
    fetched.close(bring(b"c", 1))
    assert kept() == [(b"a", "1"), (b"c", "1")], "the oldest that nobody needs"
    fetched.close(bring(b"d", 2))
    assert len(kept()) == 3
    fetched.close(bring(b"e", 3))
    assert kept() == [(b"a", "1"), (b"d", "2"), (b"e", "3")]
    fetched.close(needed)
    fetched.close(bring(b"f", 3))
    assert kept() == [(b"d", "2"), (b"e", "3"), (b"f", "3")]


def test_a_call_that_cannot_be_made_on_another_machine_says_why(fleet):
    many = fleet(1)
    other, gone = Program(many, python="2.7"), Program(many)
    a, b = Attempt(1, 0, 1), Attempt(2, 0, 1)
    many.start(other.job(), n0=[a])
    with pytest.raises(RuntimeError, match=r"the program runs Python 2\.7, and "):
        other.call(os.getpid)
    assert many.end_of(a) == (Outcome.EXITED, 1)
    many.start(gone.job(), n0=[b])
    assert gone.call(os.listdir) == [], "it was called in an empty folder"
    assert many.end_of(b) == (Outcome.EXITED, 0)


def test_a_supervisor_that_was_frozen_is_found_again_when_it_thaws_however_often_it_was_asked(fleet, monkeypatch):
    """And the next scheduler adopts what runs there. Until then it is told that nothing is heard."""
    monkeypatch.setattr(remote_engine, "SILENT", 1.0)
    many = fleet(1)
    a = Attempt(1, 0, 1)
    many.start(many.job("sleep", "60"), n0=[a])
    many.until(lambda: a in many.started)
    frozen = many.supervisor("n0")
    frozen.suspend()
    with pytest.raises(TimeoutError, match=f"its supervisor, process {frozen.pid}, is stopped: kill -CONT {frozen.pid}"):
        [many.place("n0") for _ in range(100)]
    many.until(lambda: many.engine.silence.get("n0", 0.0) > 1.0)
    with pytest.raises(Unreachable, match="no message from node n0 for"):
        many.engine.read_output(1, 0, "out", 0, 10, "n0")
    many.engine.close()
    many.engine.join(10)
    frozen.resume()
    many.known = {}
    many.serve()
    assert many.supervisor("n0").pid == frozen.pid
    many.until(lambda: many.known.get("n0") == {a} and not many.engine.silence)


def test_a_supervisor_that_ends_while_it_is_asked_for_is_followed_by_another(fleet, monkeypatch):
    many = fleet(1)
    before = many.supervisor("n0")
    (many.folder / "n0" / "supervisor" / "socket").unlink()  # it takes nobody in any more, and is still there
    looked = []

    def look(place):
        looked.append(there := supervisor_in(place))
        if len(looked) == 3:
            before.kill()
            before.wait(60)
        return there

    monkeypatch.setattr(member, "supervisor_in", look)
    many.place("n0")
    assert [each.pid for each in looked[:3]] == [before.pid] * 3
    assert many.supervisor("n0").pid != before.pid


def test_an_agent_that_does_not_answer_is_ended_and_another_is_asked(monkeypatch):
    said, ended = [], []
    agents = ray.Agents(
        SimpleNamespace(wait=lambda asked, **_: ([], asked), kill=ended.append), "c", lambda **it: said.append(it)
    )
    agents._agents, agents._asked = {"id": "agent"}, {"request": ("id", time.monotonic())}
    agents.hear()
    assert not said
    monkeypatch.setattr(ray, "START_WITHIN", 0.0)
    agents.hear()
    assert said == [{"id": "id", "why": "its agent did not answer for 0 s; retrying"}]
    assert ended == ["agent"]
    assert not {**agents._agents, **agents._asked}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other people")
def test_tasks_run_as_the_people_who_submitted_them_on_each_machine(fleet):
    many = fleet(2)
    many.engine.close()
    many.engine.join(10)
    many.serve(as_people=True)
    nobody = pwd.getpwnam("nobody")
    a, b, c = Attempt(1, 0, 1), Attempt(1, 1, 1), Attempt(2, 0, 1)
    work = Work(["sh", "-c", "id -u; id -G; echo $HOME; cat /etc/shadow"], "/", {"PATH": os.environ["PATH"]})
    many.start(Job("q", {"cpu": 1000}, tasks=2, work=work, user="nobody", uid=nobody.pw_uid), n0=[a], n1=[b])
    many.start(Job("q", {"cpu": 1000}, work=work, user="nobody", uid=nobody.pw_uid + 1), n1=[c])
    assert many.end_of(a) == many.end_of(b) == (Outcome.EXITED, 1)
    for attempt, name in ((a, "n0"), (b, "n1")):
        assert many.wrote(attempt, name) == f"{nobody.pw_uid}\n{nobody.pw_gid}\n{nobody.pw_dir}\n"
        assert "Permission denied" in many.wrote(attempt, name, "err")
    assert many.end_of(c) == (Outcome.LOST, errno.EPERM), "it is not counted as a loss, and runs elsewhere"
    (told,) = [each.node for each in many.news if isinstance(each, NodeUp) and "account/nobody" in each.node.labels]
    assert (told.name, told.labels["account/nobody"]) == ("n1", "another uid")
    assert "is not their account here" in many.wrote(c, "n1", "err")


def test_where_tasks_run_as_people_they_reach_what_says_that_they_kept_what_they_did(tmp_path):
    there = tmp_path / "reached"
    start_member(tmp_path / "another", None, there)
    try:
        assert (tmp_path / "another" / "supervisor" / "checkpoints").resolve() == there
        assert there.stat().st_mode & 0o777 == 0o711
        start_member(tmp_path / "another", None, there)  # it runs, and is left as it is
    finally:
        for process in supervisor_of(tmp_path / "another"):
            process.kill()


def test_output_is_read_over_the_next_connection_if_one_breaks(fleet, monkeypatch):
    many = fleet(1)
    a = Attempt(1, 0, 1)
    many.start(many.job("echo", "word"), n0=[a])
    many.end_of(a)
    send, dropped = many.engine._connections.send, []

    def lose_the_first(name, line, now=True):
        if b'"read"' in line and not dropped:
            dropped.append(line)
            many.engine._connections.renew(name)
        else:
            send(name, line, now)

    monkeypatch.setattr(many.engine._connections, "send", lose_the_first)
    assert many.engine.read_output(1, 0, "out", 0, 10, "n0") == b"word\n"
    assert dropped


def test_an_end_is_acknowledged_although_nothing_else_is_sent(fleet):
    many, a = fleet(1), Attempt(1, 0, 1)
    many.start(many.job("true"), n0=[a])
    many.end_of(a)
    many.engine.acknowledge(columns([a]))
    many.until(lambda: b'["acknowledged", 1, 0, 1]' in (many.folder / "n0" / "supervisor" / "spool").read_bytes())


def test_a_node_is_unheard_until_it_has_told_this_scheduler_what_runs_there(fleet):
    many = fleet(1)
    many.engine.expect({"n0": [(1, 0, 1)], "away": []})
    assert many.engine.unheard.keys() == {"away"}
