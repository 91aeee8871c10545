"""What one connection may take: time, room, and how many there are; over the real web server, in a thread of this process."""

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from fairlead.service import listening
from fairlead.service.listening import CannotListen, Listener, Where, make_server, names_of, open_socket


async def app(scope, receive, send):
    """Answers with how much came, and who sent it."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    body = json.dumps({"size": size, "uid": scope["peer"].uid}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def serving(tmp_path):
    """A server on a Unix socket; connects to it."""
    path = tmp_path / "socket"
    listener = open_socket(path, shared=False)
    server = make_server(app, None)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    with contextlib.ExitStack() as opened:

        def connect():
            wire = opened.enter_context(socket.socket(socket.AF_UNIX))
            wire.settimeout(30)
            wire.connect(str(path))
            return wire

        yield connect
    server.should_exit = True
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
    monkeypatch.setattr(listening, "HEAD_WITHIN", 0.2)
    wire = serving()
    wire.sendall(said)
    assert answer(wire).startswith("HTTP/1.1 408 ")


def test_drop_by_drop_is_no_way_around_that(serving, monkeypatch):
    monkeypatch.setattr(listening, "HEAD_WITHIN", 0.4)
    wire = serving()
    with contextlib.suppress(BrokenPipeError):
        for character in b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 1000:
            wire.send(bytes([character]))
            time.sleep(0.01)
    with contextlib.suppress(ConnectionResetError):
        assert answer(wire).startswith("HTTP/1.1 408 ")


def test_a_body_that_does_not_come_is_not_waited_for(serving, monkeypatch):
    monkeypatch.setattr(listening, "BODY_WINDOW", 0.2)
    wire = serving()
    wire.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
    assert answer(wire).startswith("HTTP/1.1 408 ")


def test_a_body_that_comes_is_waited_for(serving, monkeypatch):
    monkeypatch.setattr(listening, "BODY_WINDOW", 0.5)
    monkeypatch.setattr(listening, "BODY_LEAST", 2)
    wire = serving()
    wire.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 24\r\n\r\n")
    for _ in range(24):
        wire.sendall(b"x")
        time.sleep(0.05)
    assert json.loads(answer(wire).partition("\r\n\r\n")[2])["size"] == 24


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000,
        b"GET /" + b"x" * 300_000,
        b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * 50_000,
    ],
)
def test_a_head_has_a_largest_size(serving, head):
    wire = serving()
    with contextlib.suppress(BrokenPipeError):
        wire.sendall(head)
    with contextlib.suppress(ConnectionResetError):  # not all that was sent was read
        assert answer(wire).startswith("HTTP/1.1 431 ")


def test_what_is_no_http_is_refused_as_all_is(serving):
    wire = serving()
    wire.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    head, _, body = answer(wire).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 ")
    assert set(json.loads(body)) == {"error"}


def test_one_person_has_so_many_connections(serving, monkeypatch):
    monkeypatch.setattr(listening, "MOST_OF_ONE", 3)
    kept = [serving() for _ in range(3)]
    refused = serving()
    assert answer(refused).startswith("HTTP/1.1 429 ")
    kept.pop().close()
    deadline = time.monotonic() + 20
    while True:
        wire = serving()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            wire.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            if answer(wire).startswith("HTTP/1.1 200 "):
                break
        assert time.monotonic() < deadline, "the place of one that was closed is free"


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
    with pytest.raises(CannotListen, match="a file that is no socket"):
        open_socket(path, shared=False)


def test_the_name_of_a_socket_goes_with_it(tmp_path):
    where = Where(tmp_path / "socket", port=0)
    with listening.listening(where) as found:
        assert [type(each) for each in found] == [Listener, Listener]
        assert found[0].url == f"unix://{tmp_path}/socket"
        assert found[1].url.startswith("http://127.0.0.1:")
    assert not where.socket.exists()


def test_the_hosts_that_are_answered_for():
    assert names_of(Where(Path("s"))) == {"localhost"}
    assert names_of(Where(Path("s"), port=1)) == {"localhost", "127.0.0.1", "::1"}
    named = names_of(Where(Path("s"), host="0.0.0.0", port=1, names=("Server.Example.",)))
    assert {"server.example", socket.gethostname().lower()} <= named
