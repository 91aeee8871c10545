"""The web server: uvicorn, with limits on each connection.

A connection has little time to send a request, little room for its head, and little time to read its answer, so silent and slow
clients starve nobody. :mod:`fairlead.service.connections.slots` limits connections and concurrent requests. On a Unix socket the
kernel identifies the caller; each request has it as ``peer``.
"""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from types import SimpleNamespace

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from fairlead.service.connections.acceptor import Acceptor, peer_of
from fairlead.service.connections.slots import ConnectionSlots, kind_of

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


class WebServer:
    """A uvicorn server whose connections an `Acceptor` makes; uvicorn itself listens on nothing.

    keep_alive : seconds that a connection may be silent between two requests
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
            log_level="error",  # invalid requests from strangers would fill the log
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
        make = partial(Connection, self._config, self._server.server_state, slots)
        refusal = partial(_refusal, slots.full, "too many connections come at once: try again in a moment", "close", slots)
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
        if self.peer.uid is None:  # the kernel closes a connection that does not acknowledge what is sent
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * GONE_SECONDS))
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
        self._in_head, self._told, self._has_host = True, 0, False
        if self._timer is None:
            self._wait_for_head()

    def on_url(self, url: bytes) -> None:
        self._tell(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._tell(len(name) + len(value) + 4)
        if name.lower() == b"host":
            if self._has_host:  # a proxy might go by the other one
                self._refusal = (400, "the request has several Host headers: send one")
                raise ValueError("several Host headers")  # as in `_tell`
            self._has_host = True
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
        # Stands for the request, which is answered.
        self.cycle = SimpleNamespace(response_complete=True, message_event=asyncio.Event())  # type: ignore[assignment]
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
