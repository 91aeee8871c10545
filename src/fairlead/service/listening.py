"""Where the scheduler is reached: a Unix socket, and a port where one is asked for; and what a connection may take.

A connection has little time to send a request and little room for its head, and one person or address has so many at once,
so that silent and slow ones starve nobody. On the socket the kernel tells who called; that goes with each request as
``peer``.
"""

import asyncio
import contextlib
import json
import resource
import socket
import ssl
import stat
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairlead.data_folder import check_folder
from fairlead.people.door import Peer
from fairlead.scheduler.admission import Refused
from fairlead.sockets import is_loopback, socket_name, uid_of_peer

DEFAULT_PORT = 7373
MOST_CONNECTIONS = 4000
"""Connections, or requests in the making, at once; others are answered 503."""
MOST_OF_ONE = 500
"""Connections of one person on this machine, or of one address elsewhere; others are answered 429."""
LARGEST_HEAD = 64 * 2**10
"""Bytes of a request line with its headers."""
HEAD_WITHIN = 10.0
"""Seconds for a request's head to be there, from the connection or its first byte on."""
BODY_WINDOW, BODY_LEAST = 20.0, 64 * 2**10
"""A body brings so many bytes in so many seconds, or ends."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class CannotListen(OSError):
    """Somebody else answers there, or it is no place to listen."""


class Where(NamedTuple):
    """Where to be reached.

    socket : a Unix socket's path.
    shared : whether everybody may connect to it, or its owner alone.
    host, port : where to listen besides; no port for nowhere.
    certificate, key : files for TLS; None for plain HTTP.
    names : what the machine is called by, besides the host.
    """

    socket: Path
    shared: bool = False
    host: str = "127.0.0.1"
    port: int | None = None
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()


def open_socket(path: Path, shared: bool) -> socket.socket:
    """Listen on a Unix socket; one that a dead scheduler left is taken away. Raises CannotListen."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if shared else 0o700)
        for folder in (path.parent.resolve(), *path.parent.resolve().parents):
            check_folder(folder, path)
        with socket_name(path) as name:
            _make_way(path, name)
            listener.bind(name)
            Path(name).chmod(0o666 if shared else 0o600)  # before it listens: nobody connects to it as it was
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if isinstance(error, CannotListen):
            raise
        why = error.strerror or error
        raise CannotListen(f"cannot listen on {path}: {why}: name another place with --socket") from None
    return listener


def _make_way(path: Path, name: str) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise CannotListen(f"cannot listen on {path}: there is a file that is no socket: move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(2.0)
        try:
            caller.connect(name)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
    raise CannotListen(
        f"cannot listen on {path}: another scheduler answers there: stop that one, or use another --socket"
    )


def open_port(host: str, port: int) -> socket.socket:
    """Listen on a port; 0 for any. Raises CannotListen."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise CannotListen(
            f"cannot listen on {host}:{port}: {error.strerror}: name another port, or 0 for any"
        ) from None
    return listener


class Listener(NamedTuple):
    """A place where requests come in: how it is called, and how it speaks TLS, if it does."""

    socket: socket.socket
    url: str
    tls: ssl.SSLContext | None = None


@contextlib.contextmanager
def listening(where: Where) -> Iterator[list[Listener]]:
    """Listen; at the end the socket's name goes. Raises CannotListen, Refused."""
    tls = tls_context(where.certificate, where.key) if where.certificate is not None else None
    found = []
    if where.port is not None:
        port = open_port(where.host, where.port)
        host = where.host if ":" not in where.host else f"[{where.host}]"
        found.append(Listener(port, f"{'https' if tls else 'http'}://{host}:{port.getsockname()[1]}", tls))
    found.append(Listener(open_socket(where.socket, where.shared), f"unix://{where.socket}"))
    try:
        yield found[::-1]
    finally:
        where.socket.unlink(missing_ok=True)
        for listener in found:
            listener.socket.close()


def make_room() -> None:
    """Let this process have as many files open as there may be connections, and as many again for all else.

    To be called once the tasks' supervisor runs: tasks are to have the usual number, which some programs count on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * MOST_CONNECTIONS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def names_of(where: Where) -> set[str]:
    """The hosts that requests may be for."""
    names = {*where.names, "localhost"}
    if where.port is not None:
        names |= {where.host, *LOOPBACK} | (
            {socket.gethostname(), socket.getfqdn()} if not is_loopback(where.host) else set()
        )
    return {name.lower().rstrip(".") for name in names}


def tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """How a port speaks TLS. Raises Refused for files that are no certificate and its key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or error
        raise Refused(f"{certificate}: no certificate with the key {key or 'in it'}: {why}") from None
    return context


def make_server(app: ASGIApp, tls: ssl.SSLContext | None) -> uvicorn.Server:
    """A web server for sockets that are of one kind."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        lifespan="off",
        http=Connection,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        server_header=False,
        proxy_headers=False,  # nobody says for another who they are
    )
    config.load()
    config.ssl = tls
    server = _Server(config)
    server.server_state.peers = Counter()  # type: ignore[attr-defined]
    return server


class _Server(uvicorn.Server):
    """uvicorn, with the signals left to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Connection(HttpToolsProtocol):
    """One connection: who is at its other end, and what it may take."""

    _timer: asyncio.TimerHandle | None = None
    _counted = False
    _head, _body, _in_head = 0, 0, True
    _refusal = (400, "this is no HTTP request")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = _peer(transport)
        self._peers: Counter[Any] = self.server_state.peers  # type: ignore[attr-defined]
        self._peers[self.peer] += 1
        self._counted = True
        if self._peers[self.peer] > MOST_OF_ONE:
            self._refuse(429, f"{MOST_OF_ONE} connections of yours are open already: close some")
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted:
            self._counted = False
            self._peers[self.peer] -= 1
            if not self._peers[self.peer]:
                del self._peers[self.peer]
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head += len(data)
        self._body += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._head > LARGEST_HEAD:
            self._refuse(431, f"the head of the request is larger than {LARGEST_HEAD >> 10} KiB")
        elif self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["peer"] = self.peer  # type: ignore[typeddict-unknown-key]
        self._in_head, self._told = True, 0
        if self._timer is None:
            self._wait_for_head()

    def on_url(self, url: bytes) -> None:
        self._tell(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._tell(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        self._stop_waiting()
        self._wait_for_body()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._stop_waiting()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(*self._refusal)

    def _tell(self, size: int) -> None:
        self._told += size
        if self._told > LARGEST_HEAD:
            self._refusal = (431, f"the head of the request is larger than {LARGEST_HEAD >> 10} KiB")
            raise ValueError("too large")  # the parser gives up, and says so to `send_400_response`

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(HEAD_WITHIN, self._too_slow)

    def _wait_for_body(self) -> None:
        self._body = 0
        self._timer = self.loop.call_later(BODY_WINDOW, self._look_at_body)

    def _look_at_body(self) -> None:
        if self._body >= BODY_LEAST or self.flow.read_paused:  # what is not read does not come
            self._wait_for_body()
        else:
            self._too_slow()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        self._refuse(408, "the request did not come in time")

    def _refuse(self, status: int, message: str) -> None:
        """Answer by hand, where no answer has begun, and hang up."""
        self._stop_waiting()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = json.dumps({"error": message}).encode()
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()


def _peer(transport: asyncio.Transport) -> Peer:
    connection = transport.get_extra_info("socket")
    if connection.family == socket.AF_UNIX:
        return Peer(uid_of_peer(connection), "this machine")
    name = transport.get_extra_info("peername")
    return Peer(None, str(name[0]) if name else "somewhere")
