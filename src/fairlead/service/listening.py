"""Listening sockets (a Unix socket, and optionally a TCP port) and the limits of a connection.

A connection has little time to send a request, little room for its head, and little time to read its answer, so silent and slow
clients starve nobody. :mod:`fairlead.service.connection_slots` limits connections and concurrent requests. On the Unix socket
the kernel identifies the caller; each request has it as ``peer``.
"""

import asyncio
import contextlib
import json
import resource
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from fairlead.data_folder import check_folder
from fairlead.scheduler.admission import Refused
from fairlead.service.acceptor import Acceptor, peer_of
from fairlead.service.connection_slots import MOST_CONNECTIONS, ConnectionSlots, kind_of
from fairlead.sockets import is_loopback, socket_name

DEFAULT_PORT = 7373
FILES_PER_SLOT = 4
"""File descriptors per slot: most are for connections without one, which are asked to come back."""
LARGEST_HEAD = 64 * 2**10
"""Bytes of a request line with its headers."""
HEAD_SECONDS = 10.0
"""For a request's head to arrive, from the connection or its first byte on."""
WINDOW_SECONDS, LEAST_WINDOW_BYTES = 20.0, 64 * 2**10
"""A body must bring at least this many bytes in each window, and a client must read as many of its answer."""
KEEP_ALIVE_SECONDS = 5
"""For the next request to begin after an answer."""
GONE_SECONDS = 75.0
"""For sent data to be acknowledged: a machine without power does not hang up."""
LINGER_SECONDS = 1.0
"""For a refused client to read why."""

BACKLOG = 4096
"""Connections that may wait for the next iteration of the event loop; the kernel may allow fewer."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class CannotListen(OSError):
    """The address is in use, or cannot be listened on."""


class Where(NamedTuple):
    """The addresses to listen on.

    socket : path of the Unix socket.
    shared : True if everybody may connect to it, False for its owner only.
    host, port : TCP address; no port for none.
    certificate, key : files for TLS; None for plain HTTP.
    names : further names of this machine.
    mesos : host and port for Mesos frameworks; None for none.
    principals : the file of their names and secrets; None to identify them by their processes.
    """

    socket: Path
    shared: bool = False
    host: str = "127.0.0.1"
    port: int | None = None
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()
    mesos: tuple[str, int] | None = None
    principals: Path | None = None


def open_socket(path: Path, shared: bool) -> socket.socket:
    """Listen on a Unix socket, replacing one that a dead scheduler left. Raises CannotListen."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if shared else 0o700)
        for folder in (path.parent.resolve(), *path.parent.resolve().parents):
            check_folder(folder, path)
        with socket_name(path) as name:
            _make_way(path, name)
            listener.bind(name)
            Path(name).chmod(0o666 if shared else 0o600)  # before listening, so nobody connects with the old mode
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if isinstance(error, CannotListen):
            raise
        why = error.strerror or error
        raise CannotListen(f"cannot listen on {path}: {why}: choose another path with --socket") from None
    return listener


def _make_way(path: Path, name: str) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise CannotListen(f"cannot listen on {path}: that file is no socket: move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(2.0)
        try:
            caller.connect(name)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
    raise CannotListen(f"cannot listen on {path}: another scheduler answers there: stop it, or use another --socket")


def open_port(host: str, port: int) -> socket.socket:
    """Listen on a TCP port; 0 for any free one. Raises CannotListen."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(
            f"cannot listen on {host}:{port}: {error.strerror}: name another port, or 0 for any"
        ) from None
    return listener


class Listener(NamedTuple):
    """A listening socket, its URL, and its TLS context, if any."""

    socket: socket.socket
    url: str
    tls: ssl.SSLContext | None = None


@contextlib.contextmanager
def listening(where: Where) -> Iterator[list[Listener]]:
    """Listen; on exit remove the Unix socket. Raises CannotListen, Refused."""
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


@contextlib.contextmanager
def listening_for_frameworks(where: Where) -> Iterator[Listener | None]:
    """Listen for Mesos frameworks, if configured. Raises CannotListen, Refused."""
    if where.mesos is None:
        yield None
        return
    tls = tls_context(where.certificate, where.key) if where.certificate is not None else None
    host = where.mesos[0] if ":" not in where.mesos[0] else f"[{where.mesos[0]}]"
    with open_port(*where.mesos) as port:
        yield Listener(port, f"{'https' if tls else 'http'}://{host}:{port.getsockname()[1]}", tls)


def make_room() -> int:
    """Raise the limit on open files for the maximum of connections; return the number of slots.

    Call it after the tasks' supervisor has started: tasks must keep the normal limit, which some programs depend on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_PER_SLOT * MOST_CONNECTIONS
    wanted = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted // FILES_PER_SLOT


def names_of(where: Where) -> set[str]:
    """Return the host names of requests to accept; ``*.example`` is any one label before it, as in certificates."""
    names = {*where.names, "localhost"}
    if where.certificate is not None:
        names |= set(certified_names(where.certificate, where.key))
    if where.port is not None:
        names |= {where.host, *LOOPBACK} | (
            {socket.gethostname(), socket.getfqdn()} if not is_loopback(where.host) else set()
        )
    return {name.lower().rstrip(".") for name in names}


def tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a port. Raises Refused for a certificate that does not match the key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or error
        raise Refused(f"{certificate}: not a certificate that matches the key {key or 'in it'}: {why}") from None
    return context


def certified_names(certificate: Path, key: Path | None) -> list[str]:
    """Return the names and addresses in a certificate (its subjectAltName); raises Refused for an invalid one.

    Python parses only the certificate of a verified peer, so this makes a handshake with itself.
    """
    server = tls_context(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(certificate)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True))
    for end in (*ends, *ends):
        with contextlib.suppress(ssl.SSLWantReadError):  # the other end must continue
            end.do_handshake()
    said: Any = (ends[0].getpeercert() or {}).get("subjectAltName", ())
    return [str(ip_address(name)) if kind == "IP Address" else name for kind, name in said if kind in _KINDS]


_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: an expired certificate still has its names."""
_KINDS = ("DNS", "IP Address")


class WebServer:
    """A uvicorn server whose connections an `Acceptor` makes; uvicorn itself listens on nothing.

    Parameters
    ----------
    app : ASGI application
    tls : ssl.SSLContext or None
    slots : ConnectionSlots
    keep_alive : int
        Seconds that a connection may be silent between two requests.
    """

    def __init__(
        self, app: ASGIApp, tls: ssl.SSLContext | None, slots: ConnectionSlots, keep_alive: int = KEEP_ALIVE_SECONDS
    ) -> None:
        async def leaving(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            finally:
                scope["leave"]()

        self._config = uvicorn.Config(
            leaving,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=keep_alive,
            lifespan="off",
            http="httptools",
            ws="none",
            server_header=False,
            proxy_headers=False,  # nobody may claim another identity
        )
        self._server, self._tls, self._slots = _Server(self._config), tls, slots
        self._closing: Callable[[], object] = lambda: None

    async def serve(self, listener: socket.socket) -> None:
        """Answer the connections of a listening socket until `stop`; then close it."""
        slots, loop = self._slots, asyncio.get_running_loop()

        def make() -> asyncio.Protocol:
            return Connection(self._config, self._server.server_state, slots)

        def refusal() -> bytes:
            return _refusal(slots.full, "too many connections come at once: try again in a moment", "close", slots)

        acceptor = Acceptor(listener, make, self._tls, slots, refusal)
        self._closing = partial(loop.call_soon_threadsafe, acceptor.close)
        try:
            await self._server.serve(sockets=[])
        finally:
            acceptor.close()

    def stop(self) -> None:
        """Accept no more connections, and end `serve` soon. Thread-safe."""
        self._server.should_exit = True
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._closing()


class _Server(uvicorn.Server):
    """uvicorn, with signal handling left to the scheduler."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Connection(HttpToolsProtocol):
    """One connection: its peer and its limits."""

    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _refused = False
    _head, _body, _unread, _in_head = 0, 0, 0, True
    _refusal = (400, "this is no HTTP request")

    def __init__(self, config: uvicorn.Config, state: ServerState, slots: ConnectionSlots) -> None:
        super().__init__(config, state, {})
        self._slots = slots

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = peer_of(transport.get_extra_info("socket"), transport.get_extra_info("peername"))
        _end_when_gone(transport.get_extra_info("socket"))
        self.noted: dict[str, object] = {}  # state of the connection, for the applications
        self._wait_for_head(HEAD_SECONDS if self._slots.connected(self) else LINGER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._slots.disconnected(self)
        self._stop_waiting()
        self._stop_looking()
        super().connection_lost(exc)

    def unread(self) -> int:
        return self.transport.get_write_buffer_size()

    def hang_up(self) -> None:
        self._stop_waiting()
        self.transport.abort()  # unread data would keep it open

    def pause_writing(self) -> None:
        super().pause_writing()
        self._slots.does_not_read(self)
        self._look_at_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._slots.reads(self)
        self._stop_looking()

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        if self._in_head:
            self._head += len(data)
        self._body += len(data)
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            return
        if self._in_head and self._head > LARGEST_HEAD:
            self._refuse(431, f"the head of the request is larger than {LARGEST_HEAD >> 10} KiB")
        elif self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["peer"] = self.peer  # type: ignore[typeddict-unknown-key]
        self.scope["noted"] = self.noted  # type: ignore[typeddict-unknown-key]
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
        self.scope["leave"] = lambda: None  # type: ignore[typeddict-unknown-key]
        if self.cycle is None or self.cycle.response_complete:  # a pipelined request waits for the one before it
            kind = kind_of(self.parser.get_method(), self.url)
            if why := self._slots.ask(self, kind):
                self._turn_away(f"{why}: try again in a moment")
                return
            self.scope["leave"] = partial(self._slots.answered, self.peer, kind)  # type: ignore[typeddict-unknown-key]
        self._wait_for_body()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        self._slots.is_silent(self)
        super().on_response_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._stop_waiting()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(*self._refusal)

    def _turn_away(self, why: str) -> None:
        """Refuse a request with Retry-After; a connection with a slot stays open."""
        if not self._slots.has_slot(self):
            self._refusal = (self._slots.full, why)
            raise ValueError(why)  # as in `_tell`
        self.transport.write(_refusal(self._slots.full, why, "keep-alive", self._slots))
        self.cycle = _Answered()  # type: ignore[assignment]
        self._wait_for_head()

    def _tell(self, size: int) -> None:
        self._told += size
        if self._told > LARGEST_HEAD:
            self._refusal = (431, f"the head of the request is larger than {LARGEST_HEAD >> 10} KiB")
            raise ValueError("too large")  # the parser stops, and calls `send_400_response`

    def _wait_for_head(self, seconds: float | None = None) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds or HEAD_SECONDS, self._too_slow)

    def _wait_for_body(self) -> None:
        self._body = 0
        self._timer = self.loop.call_later(WINDOW_SECONDS, self._look_at_body)

    def _look_at_body(self) -> None:
        if self._body >= LEAST_WINDOW_BYTES or self.flow.read_paused:  # we stopped reading ourselves
            self._wait_for_body()
        else:
            self._too_slow()

    def _look_at_unread(self) -> None:
        """Hang up on a client that has read too little since the last check."""
        unread = self.unread()
        if self._taking is not None and unread > self._unread - LEAST_WINDOW_BYTES:
            self.transport.abort()
            return
        self._unread = unread
        self._taking = self.loop.call_later(WINDOW_SECONDS, self._look_at_unread)

    def _stop_looking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._slots.has_slot(self):
            self._refuse(408, "the request did not come in time")
        else:
            self._refuse(self._slots.full, "too many connections are open: try again in a moment")

    def _refuse(self, status: int, message: str) -> None:
        """Answer by hand, unless an answer has begun, and hang up soon; further data is ignored."""
        self._stop_waiting()
        self._refused = True
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_refusal(status, message, "close", self._slots))
            if self.transport.can_write_eof():
                self.transport.write_eof()
                self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)
                return
        self.transport.close()


def _refusal(status: int, message: str, connection: str, slots: ConnectionSlots) -> bytes:
    """Return a complete answer, written by hand."""
    body = json.dumps({"error": message}).encode()
    again = f"retry-after: {slots.come_back()}\r\n" if status == slots.full else ""
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: {connection}\r\n{again}\r\n"
    )
    return head.encode() + body


def _end_when_gone(connection: socket.socket) -> None:
    """Let the kernel close a connection that does not acknowledge what is sent."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * GONE_SECONDS))


class _Answered:
    """Stands for a request that was answered by hand."""

    response_complete = True

    def __init__(self) -> None:
        self.message_event = asyncio.Event()
