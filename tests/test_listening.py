"""What one connection may take: time, room, and how many there are; over the real web server, in a thread of this process."""

import asyncio
import contextlib
import json
import os
import select
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme

from fairlead.client.address import connect_to
from fairlead.people.authenticator import Peer, Stranger
from fairlead.service.api.access import Entrance
from fairlead.service.connections import acceptor as acceptors
from fairlead.service.connections import listening, web_server
from fairlead.service.connections import slots as connection_slots
from fairlead.service.connections.listening import CannotListen, Listener, Where, accepted_names, open_socket
from fairlead.service.connections.slots import ROOM, ConnectionSlots, Kind, kind_of
from fairlead.service.connections.web_server import WebServer


async def app(scope, receive, send):
    """Answers with how much came, and who sent it; or with so many bytes."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    asked = dict(scope["headers"]).get(b"x-answer")
    body = bytes(int(asked)) if asked else json.dumps({"size": size, "uid": scope["peer"].uid}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def serving(tmp_path):
    """A server on a Unix socket; connects to it."""
    path = tmp_path / "socket"
    listener = open_socket(path, shared=False)
    server = WebServer(app, None, ConnectionSlots())
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(listener)))
    thread.start()
    with contextlib.ExitStack() as opened:

        def connect():
            wire = opened.enter_context(socket.socket(socket.AF_UNIX))
            wire.settimeout(60)
            wire.connect(str(path))
            return wire

        yield connect
    server.stop()
    thread.join(10)


def answer(wire):
    """All that is sent until it is hung up, or an answer is whole."""
    found = b""
    while piece := wire.recv(65536):
        found += piece
        head, _, body = found.partition(b"\r\n\r\n")
        if body and b"connection: close" not in head.lower():
            break
    return found.decode()


def test_the_peer_of_a_request_is_told(serving):
    wire = serving()
    for _ in range(2):  # a connection is used again
        wire.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        assert json.loads(answer(wire).partition("\r\n\r\n")[2]) == {"size": 3, "uid": os.geteuid()}


@pytest.mark.parametrize("said", [b"", b"\r\n", b"GET /", b"GET / HTTP/1.1\r\nHost:"])
def test_one_that_says_nothing_more_is_hung_up_on(serving, monkeypatch, said):
    monkeypatch.setattr(web_server, "HEAD_SECONDS", 1.0)
    wire = serving()
    wire.sendall(said)
    assert answer(wire).startswith("HTTP/1.1 408 ")


def test_drop_by_drop_is_no_way_around_that(serving, monkeypatch):
    monkeypatch.setattr(web_server, "HEAD_SECONDS", 0.4)
    wire = serving()
    with contextlib.suppress(BrokenPipeError):
        for character in b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 1000:
            wire.send(bytes([character]))
            time.sleep(0.01)
    with contextlib.suppress(ConnectionResetError):
        assert answer(wire).startswith("HTTP/1.1 408 ")


def test_a_body_that_does_not_come_is_not_waited_for(serving, monkeypatch):
    monkeypatch.setattr(web_server, "WINDOW_SECONDS", 0.2)
    wire = serving()
    wire.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
    assert answer(wire).startswith("HTTP/1.1 408 ")


def test_a_body_that_comes_is_waited_for(serving, monkeypatch):
    monkeypatch.setattr(web_server, "WINDOW_SECONDS", 1.5)
    monkeypatch.setattr(web_server, "LEAST_WINDOW_BYTES", 2)
    wire = serving()
    wire.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 24\r\n\r\n")
    for _ in range(24):
        wire.sendall(b"x")
        time.sleep(0.1)
    assert json.loads(answer(wire).partition("\r\n\r\n")[2])["size"] == 24


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000, b"GET /" + b"x" * 300_000, b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * 50_000]
)
def test_a_head_has_a_largest_size(serving, head):
    wire = serving()
    with contextlib.suppress(BrokenPipeError):
        wire.sendall(head)
    with contextlib.suppress(ConnectionResetError):  # not all that was sent was read
        assert answer(wire).startswith("HTTP/1.1 431 ")


def test_what_is_no_http_is_refused_as_all_is_and_fills_no_log(serving, caplog):
    wire = serving()
    wire.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    head, _, body = answer(wire).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 ")
    assert set(json.loads(body)) == {"error"}
    assert not caplog.records


@pytest.mark.parametrize("hosts", [b"Host: x\r\nHost: x\r\n", b"HOST: x\r\nX: y\r\nhost: evil.example\r\n"])
def test_a_request_has_one_host(serving, hosts):
    wire = serving()
    wire.sendall(b"GET / HTTP/1.1\r\n" + hosts + b"\r\n")
    head, _, body = answer(wire).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 ")
    assert json.loads(body) == {"error": "the request has several Host headers: send one"}
    wire = serving()
    for _ in range(2):
        wire.sendall(GET)
        assert answer(wire).startswith("HTTP/1.1 200 ")


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def test_one_too_many_is_told_when_to_come_back_or_takes_the_place_of_a_silent_one(serving, monkeypatch):
    monkeypatch.setattr(connection_slots, "MOST_OF_ONE", 3)
    kept = [serving() for _ in range(3)]
    fourth = serving()
    fourth.sendall(GET)
    head = answer(fourth).lower()
    assert head.startswith("http/1.1 429 ")
    assert "\r\nretry-after: 1\r\n" in head
    kept[0].sendall(GET)  # so it is not the one that is silent for the longest
    assert answer(kept[0]).startswith("HTTP/1.1 200 ")
    monkeypatch.setattr(connection_slots, "SILENT_SECONDS", 0.0)
    fifth = serving()
    fifth.sendall(GET)
    assert answer(fifth).startswith("HTTP/1.1 200 ")
    assert kept[1].recv(1) == b"", "it has lost its place"
    kept[0].sendall(GET)
    assert answer(kept[0]).startswith("HTTP/1.1 200 ")


def test_health_is_answered_where_nothing_else_is(serving, monkeypatch):
    monkeypatch.setattr(connection_slots, "MOST_OF_ONE", 0)
    wire = serving()
    wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer(wire).startswith("HTTP/1.1 200 ")


def test_one_who_does_not_read_is_hung_up_on_and_holds_up_nobody(serving, monkeypatch):
    monkeypatch.setattr(web_server, "WINDOW_SECONDS", 0.2)
    wire, other = serving(), serving()
    ask = b"POST / HTTP/1.1\r\nHost: x\r\nX-Answer: 20000000\r\nContent-Length: 0\r\n\r\n"
    wire.sendall(ask)
    other.sendall(GET)
    assert answer(other).startswith("HTTP/1.1 200 ")
    hung_up = select.poll()
    hung_up.register(wire, 0)
    assert hung_up.poll(60_000)
    size = 0
    with contextlib.suppress(ConnectionResetError):
        while piece := wire.recv(1 << 20):
            size += len(piece)
    assert size < 20_000_000


def test_one_that_loses_its_place_is_gone_whether_it_reads_or_not():
    connection, done = web_server.Connection.__new__(web_server.Connection), []
    connection.transport = SimpleNamespace(abort=lambda: done.append("gone"), close=lambda: done.append("when all is read"))
    connection.hang_up()
    assert done == ["gone"]


def test_one_who_reads_slowly_is_not_hung_up_on(serving, monkeypatch):
    monkeypatch.setattr(web_server, "WINDOW_SECONDS", 1.0)
    wire = serving()
    wire.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nX-Answer: 8000000\r\nContent-Length: 0\r\n\r\n")
    size = 0
    while size < 8_000_000:
        piece = wire.recv(200_000)
        assert piece, f"hung up after {size}"
        size += len(piece)
        time.sleep(0.05)


def test_one_that_is_turned_away_may_ask_again_over_its_connection(serving, monkeypatch):
    monkeypatch.setitem(ROOM, Kind.CHANGE, 0)
    wire = serving()
    for _ in range(2):
        wire.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        assert answer(wire).startswith("HTTP/1.1 429 ")
    wire.sendall(GET)
    assert answer(wire).startswith("HTTP/1.1 200 ")
    monkeypatch.setitem(ROOM, Kind.CHANGE, 2)
    wire.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
    assert answer(wire).startswith("HTTP/1.1 200 ")


class SlotHolder:
    """A connection on paper."""

    def __init__(self, uid, waits=0):
        self.peer, self.waits, self.over = Peer(uid, "here"), waits, False

    def unread(self):
        return self.waits

    def hang_up(self):
        self.over = True


def test_each_kind_has_room_of_its_own_and_one_person_half_of_it():
    crowd = ConnectionSlots()
    ada, bob, cleo = SlotHolder(1), SlotHolder(2), SlotHolder(3)
    assert all(crowd.connected(holder) for holder in (ada, bob, cleo))
    for _ in range(ROOM[Kind.CHANGE] // 2):
        assert crowd.ask(ada, Kind.CHANGE) == ""
    assert "change something" in crowd.ask(ada, Kind.CHANGE)
    assert crowd.ask(ada, Kind.READ) == ""
    for _ in range(ROOM[Kind.CHANGE] // 2):
        assert crowd.ask(bob, Kind.CHANGE) == ""
    assert "change something" in crowd.ask(cleo, Kind.CHANGE)
    assert crowd.ask(cleo, Kind.HEALTH) == ""
    crowd.answered(ada.peer, Kind.CHANGE)
    assert crowd.ask(cleo, Kind.CHANGE) == ""


def test_who_leaves_answers_unread_gets_no_more():
    crowd = ConnectionSlots(personal=True)
    slow, other = SlotHolder(1, connection_slots.MOST_UNREAD + 1), SlotHolder(1)
    assert crowd.connected(slow)
    assert crowd.connected(other)
    crowd.does_not_read(slow)
    assert "read them" in crowd.ask(other, Kind.READ)
    crowd.reads(slow)
    assert crowd.ask(other, Kind.READ) == ""


def test_silent_ones_of_whoever_has_most_free_slot_for_others(monkeypatch):
    crowd = ConnectionSlots(most=4)
    hog = [SlotHolder(1) for _ in range(3)]
    quiet = SlotHolder(2)
    assert all(crowd.connected(holder) for holder in (quiet, *hog))
    late = SlotHolder(3)
    assert not crowd.connected(late)
    assert crowd.ask(late, Kind.READ), "nobody was silent for long"
    monkeypatch.setattr(connection_slots, "SILENT_SECONDS", 0.0)
    assert crowd.ask(late, Kind.READ) == ""
    assert [holder.over for holder in (quiet, *hog)] == [False, True, False, False]
    crowd.disconnected(hog[1])
    assert crowd.connected(SlotHolder(4))


def test_uids_without_an_account_and_addresses_of_a_network_are_one_party_and_some_places_are_peoples(monkeypatch):
    monkeypatch.setattr(connection_slots, "MOST_OF_ONE", 3)
    known = {1, 2}
    crowd = ConnectionSlots(most=12, knows=known.__contains__)
    assert sum(crowd.connected(SlotHolder(100 + k)) for k in range(10)) == 3, "who knows whose they are"
    elsewhere = [SlotHolder(None) for _ in range(12)]
    addresses = [
        "127.0.0.1",
        "127.0.0.9",
        "::1",
        "::ffff:127.0.0.7",
        *(f"2001:db8::{k}" for k in range(4)),
        "2001:db8:0:1::",
        *"abc",
    ]
    for holder, address in zip(elsewhere, addresses, strict=True):
        holder.peer = Peer(None, address)
    assert [crowd.connected(holder) for holder in elsewhere] == [*[True, True, True, False] * 2, *[False] * 4], (
        "the rest is people's"
    )
    mine = [SlotHolder(uid) for uid in (1, 1, 1, 1, 2)]
    assert [crowd.connected(holder) for holder in mine] == [True, True, True, False, False]
    late = SlotHolder(3)
    assert not crowd.connected(late)
    crowd.disconnected(mine[0])
    assert crowd.ask(late, Kind.READ), "its account is not known yet"
    known.add(3)
    assert crowd.ask(late, Kind.READ) == ""


def test_who_is_found_to_have_an_account_counts_as_such_from_then_on(monkeypatch):
    monkeypatch.setattr(connection_slots, "MOST_OF_ONE", 1)
    known = set()
    crowd = ConnectionSlots(knows=known.__contains__)
    first, second = SlotHolder(1), SlotHolder(2)
    assert crowd.connected(first)
    assert not crowd.connected(second)
    known.add(1)
    assert crowd.ask(first, Kind.READ) == ""
    assert crowd.connected(second)
    for holder in (first, second):
        crowd.disconnected(holder)
    assert not crowd._party
    assert not crowd._holders
    assert crowd._others == 0


def test_those_who_are_refused_together_come_back_apart(monkeypatch):
    monkeypatch.setattr(connection_slots.time, "monotonic", lambda: 7.0)
    crowd = ConnectionSlots()
    told = [crowd.come_back() for _ in range(10 * connection_slots.RETRIES_PER_SECOND)]
    assert set(told[: connection_slots.RETRIES_PER_SECOND - 1]) == {1}
    assert set(range(1, 10)) <= set(told) <= set(range(1, 12))


@pytest.mark.parametrize(
    ("method", "url", "kind"),
    [
        (b"GET", b"/healthz", Kind.HEALTH),
        (b"GET", b"/v1/jobs?limit=3", Kind.READ),
        (b"GET", b"/v1/jobs/3?wait=3", Kind.WAIT),
        (b"GET", b"/v1/facts?after=3", Kind.WAIT),
        (b"POST", b"/v1/jobs", Kind.CHANGE),
        (b"DELETE", b"/v1/sessions/0", Kind.CHANGE),
    ],
)
def test_the_kind_of_a_request(method, url, kind):
    assert kind_of(method, url) is kind


def test_the_place_of_a_dead_scheduler_is_taken_and_that_of_a_living_one_is_not(tmp_path):
    path = tmp_path / ("deep" * 20) / ("folder" * 10) / "socket"  # longer than the kernel takes at once
    first = open_socket(path, shared=False)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(CannotListen, match="another scheduler answers there"):
        open_socket(path, shared=False)
    first.close()
    second = open_socket(path, shared=True)
    assert path.stat().st_mode & 0o777 == 0o666
    second.close()
    path.unlink()
    path.write_text("")
    with pytest.raises(CannotListen, match="that file is not a socket"):
        open_socket(path, shared=False)


def test_the_name_of_a_socket_goes_with_it(tmp_path):
    where = Where(tmp_path / "socket", port=0)
    with listening.listening(where) as found:
        assert [type(each) for each in found] == [Listener, Listener]
        assert found[0].url == f"unix://{tmp_path}/socket"
        assert found[1].url.startswith("http://127.0.0.1:")
    assert not where.socket.exists()


def test_the_hosts_that_are_answered_for():
    assert accepted_names(Where(Path("s"))) == {"localhost"}
    assert accepted_names(Where(Path("s"), port=1)) == {"localhost", "127.0.0.1", "::1"}
    named = accepted_names(Where(Path("s"), host="0.0.0.0", port=1, names=("Server.Example.",)))
    assert {"server.example", socket.gethostname().lower()} <= named


async def status_for(host, hosts):
    """What a request for a host is answered, where some are answered for."""

    async def call(peer, authorization):
        raise Stranger("who?", "nobody", known=False)

    told = []

    async def send(message):
        told.append(message)

    headers = [(b"host", f"{host}:7373".encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "peer": Peer(None, "x")}
    await Entrance(app, SimpleNamespace(caller=call), None, hosts)(scope, at_its_end, send)
    return told[0]["status"]


async def at_its_end():
    return {"type": "http.request", "body": b"", "more_body": False}


def test_what_a_certificate_is_for_is_answered_for(tmp_path):
    issued = trustme.CA().issue_cert("a.example", "*.b.example", "192.0.2.7", "2001:db8::1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    named = accepted_names(Where(Path("s"), host="0.0.0.0", port=1, certificate=tmp_path / "server.pem"))
    assert {"a.example", "*.b.example", "192.0.2.7", "2001:db8::1"} <= named
    asked = [(host, asyncio.run(status_for(host, named))) for host in ("a.example", "x.b.example", "b.example", "x.y.b.example")]
    assert asked == [("a.example", 200), ("x.b.example", 200), ("b.example", 421), ("x.y.b.example", 421)]


def test_who_has_waited_for_long_is_told_to_come_back_and_health_is_answered(serving, monkeypatch):
    monkeypatch.setattr(acceptors, "ADMITTED_AT_ONCE", 0)
    monkeypatch.setattr(acceptors, "MOST_WAIT_SECONDS", 1.0)
    silent, asks, healthy = serving(), serving(), serving()
    for wire, path in ((asks, "/v1/status"), (healthy, "/healthz")):
        wire.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert answer(healthy).startswith("HTTP/1.1 200")
    told = answer(asks)
    assert told.startswith("HTTP/1.1 429")
    assert "retry-after: 1" in told
    assert "too many connections come at once" in told
    silent.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer(silent).startswith("HTTP/1.1 200"), "it is let in, and may ask now"


def test_each_party_in_line_has_its_turn(monkeypatch):
    """Of six of one and then one of another, two are let in: one of each."""
    monkeypatch.setattr(acceptors, "ADMITTED_AT_ONCE", 2)
    monkeypatch.setattr(acceptors, "peer_of", lambda _, address: Peer(address, ""))
    pairs = [socket.socketpair() for _ in range(7)]
    came = [(theirs, 1001 if number < 6 else 1002) for number, (theirs, _) in enumerate(pairs)]
    listener, other = socket.socketpair()

    def accept():
        if not came:
            raise BlockingIOError
        return came.pop(0)

    async def main():
        fake = SimpleNamespace(fileno=listener.fileno, setblocking=listener.setblocking, accept=accept, close=listener.close)
        let_in = []
        acceptor = acceptors.Acceptor(fake, asyncio.Protocol, None, ConnectionSlots(), bytes)
        monkeypatch.setattr(acceptor, "_admit", let_in.append)
        acceptor._accept()
        acceptor.close()
        return [connection.fileno() for connection in let_in]

    with listener, other:
        numbers = [theirs.fileno() for theirs, _ in pairs]
        assert asyncio.run(main()) == [numbers[0], numbers[6]]
    for pair in pairs:
        for end in pair:
            end.close()


def test_one_that_connects_where_very_many_do_waits(tmp_path):
    """A timeout of Python's own has the kernel turn it away at once."""
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as opened:
        listener.bind(str(tmp_path / "socket"))
        listener.listen(0)
        opened.enter_context(connect_to(tmp_path / "socket", 5))
        with pytest.raises(TimeoutError, match="no answer within"):
            connect_to(tmp_path / "socket", 0.2)
        later = threading.Timer(0.2, lambda: opened.enter_context(listener.accept()[0]))
        later.start()
        opened.enter_context(connect_to(tmp_path / "socket", 20))
        later.join()
