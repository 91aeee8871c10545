"""A client of the HTTP API: one method per kind of request, plain dictionaries as answers.

It uses http.client, because commands must start quickly: urllib3 takes three times as long to import, httpx twelve times.
"""

import contextlib
import json
import os
import random
import select
import ssl
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from fairlead.client.address import connect_to, find, is_local_port, is_starting, tls_context, trusted_host
from fairlead.client.service_error import ServiceError
from fairlead.data_folder import SYSTEM_HOME, SYSTEM_SOCKET, home_folder

RETRY_SECONDS = 10.0
"""How long requests are retried when a scheduler stops answering: it may be restarting."""
TIMEOUT_SECONDS = 90.0
"""How long one answer may take."""
MOST_IDLE = 8
"""Connections kept open between requests, at most."""
STREAM_BYTES = 2**18


class Body(Protocol):
    """Bytes, or an object that yields its bytes in pieces, as often as it is sent."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(contextlib.AbstractContextManager["Connection"]):
    """A connection to a scheduler: that of a data folder, or the one that :mod:`fairlead.client.address` finds.

    Threads may share one. Raises ServiceError if no scheduler runs, or if it cannot be trusted. Requests are retried while the
    scheduler restarts. A repeated submission has the same key, so the scheduler accepts it once; other requests may be repeated.
    """

    def __init__(
        self,
        home: Path | None = None,
        retry_seconds: float = RETRY_SECONDS,
        timeout: float = TIMEOUT_SECONDS,
        on_starting: Callable[[], None] = lambda: None,
    ) -> None:
        self.home, self.retry_seconds, self._on_starting = home, retry_seconds, on_starting
        self._timeout = timeout
        self._answered = False
        self._idle: deque[HTTPConnection] = deque(maxlen=MOST_IDLE)
        self._process = os.getpid()
        self.address = find(home)
        self._tls = tls_context() if self.address.tls else None

    def get(self, path: str, **query: Any) -> Any:
        """GET a JSON document; parameters that are None are omitted."""
        return json.loads(self.get_bytes(path, **query))

    def get_bytes(self, path: str, **query: Any) -> bytes:
        """GET bytes; parameters that are None are omitted."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._request("GET", f"{path}?{urlencode(given)}" if given else path, {})

    def post(self, path: str, body: dict[str, Any], key: str | None = None) -> Any:
        """POST a JSON document, with an idempotency key for a submission."""
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        return json.loads(self._request("POST", path, headers, json.dumps(body).encode()))

    def submit(self, path: str, body: dict[str, Any]) -> Any:
        """POST a submission with a new idempotency key."""
        return self.post(path, body, key=uuid.uuid4().hex)

    def put(self, path: str, body: Body, **query: Any) -> Any:
        where = f"{path}?{urlencode(query)}" if query else path
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(len(body))}
        return json.loads(self._request("PUT", where, headers, body))

    def stream(self, path: str) -> Iterator[bytes]:
        """GET bytes as they come; the request is not repeated. Raises ServiceError, HTTPException, OSError."""
        connection = self._open()
        try:
            connection.request("GET", path, headers=self._bearer())
            response = connection.getresponse()
            if response.status >= 300:
                _checked(response.status, response.read(), has_token=bool(self._bearer()))
            while data := response.read1(STREAM_BYTES):
                yield data
        finally:
            connection.close()

    def delete(self, path: str) -> Any:
        return json.loads(self._request("DELETE", path, {}))

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, method: str, path: str, headers: dict[str, str], body: Body | None = None) -> bytes:
        until = time.monotonic() + self.retry_seconds
        if not self._answered:
            self._await_start(until)
        bearer = self._bearer()
        while True:
            try:
                response, content = self._exchange(method, path, headers | bearer, body)
                self._answered = True
                if response.status != 429 or time.monotonic() > until:
                    return _checked(response.status, content, has_token=bool(bearer))
                after = response.headers.get("Retry-After", "")
                least = min(float(after) if after.isdigit() else 0.0, max(0.0, until - time.monotonic()))
                time.sleep(least + random.uniform(0.05, 0.5))  # noqa: S311 spreads the retries of many clients
            except (HTTPException, OSError) as error:
                if not self._answered or time.monotonic() > until:
                    raise self._unreachable(error) from None
                time.sleep(0.2)

    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.address.token}"} if self.address.token else {}

    def _await_start(self, until: float) -> None:
        """Wait while the scheduler is starting. Raises ServiceError after `until`."""
        socket = self.address.socket
        if socket is None or not is_starting(socket):
            return
        self._on_starting()
        while is_starting(socket):
            if time.monotonic() > until:
                message = f"the scheduler at {socket} is starting: try again, or wait longer with `fairlead --wait SECONDS`"
                raise ServiceError(message)
            time.sleep(0.02)

    def _exchange(self, method: str, path: str, headers: dict[str, str], body: Body | None) -> tuple[HTTPResponse, bytes]:
        """Send one request, over an idle connection or a new one. Raises ServiceError, HTTPException, OSError."""
        connection = self._open()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close or len(self._idle) >= MOST_IDLE:
            connection.close()
        else:
            self._idle.append(connection)
        return response, content

    def _open(self) -> HTTPConnection:
        if self._process != os.getpid():  # forked: the idle ones are its parent's
            self._process, self._idle = os.getpid(), deque(maxlen=MOST_IDLE)
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread took it
                connection = self._idle.pop()
                if not _has_ended(connection):
                    return connection
                connection.close()
        where = self.address
        if where.socket is not None:
            return _SocketConnection(where.socket, self._timeout)
        if self._tls is not None:
            return HTTPSConnection(where.host, where.port, timeout=self._timeout, context=self._tls)
        kind = _CheckedConnection if is_local_port(where) else HTTPConnection
        return kind(where.host, where.port or None, timeout=self._timeout)

    def _unreachable(self, error: Exception) -> ServiceError:
        where = self.address
        if isinstance(error, ssl.SSLError):
            why = f"its certificate is not trusted ({error}): name the certificate's CA with FAIRLEAD_CA"
            return ServiceError(f"{where.host}:{where.port}: {why}")
        cause = error if isinstance(error, OSError) else OSError(str(error))
        if isinstance(cause, PermissionError):
            return ServiceError(f"{where.socket}: permission denied: it is another user's scheduler")
        if where.socket is None:
            return ServiceError(f"no scheduler answers at {where.host}:{where.port}: {cause.strerror or cause}")
        if where.socket.name == "socket" and where.socket.parent == (self.home or home_folder()):
            if self.home is None and SYSTEM_HOME.exists():
                return ServiceError(
                    f"the scheduler of this machine ({SYSTEM_SOCKET}) does not answer: ask its administrator; "
                    "`fairlead up` starts your own"
                )
            return ServiceError(f"no scheduler runs in {where.socket.parent}: start one with `fairlead up`")
        return ServiceError(f"no scheduler answers at {where.socket}: is it running?")


class _SocketConnection(HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = connect_to(self._path, self.timeout)


class _CheckedConnection(HTTPConnection):
    """A connection to a local port whose owner the kernel reports."""

    def connect(self) -> None:
        self.host = trusted_host(self.host, self.port)
        super().connect()
        trusted_host(self.host, self.port)  # it may have been taken meanwhile


def _has_ended(connection: HTTPConnection) -> bool:
    """Return True if the server has closed an idle connection."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _checked(status: int, content: bytes, has_token: bool) -> bytes:
    if status < 300:
        return content
    if status == 401:
        raise ServiceError(
            ("the scheduler rejects this token" if has_token else "this scheduler requires a token")
            + ": set FAIRLEAD_TOKEN to one made there by `fairlead token new`",
            401,
        )
    try:
        message = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError):
        message = f"the scheduler answered {status}: check that it is a fairlead of the same version"
    raise ServiceError(message, status)
