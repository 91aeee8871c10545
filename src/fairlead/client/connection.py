"""The HTTP API from the other side: one function a request, plain dictionaries back.

Python's own http.client, because a command must answer at once: urllib3 takes three times as long to import, httpx twelve times.
"""

import contextlib
import json
import random
import select
import ssl
import time
import uuid
from collections import deque
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from fairlead.client.address import NotTrusted, check_port, connect_to, find, is_checked, is_starting, tls_context
from fairlead.client.service_error import ServiceError
from fairlead.data_folder import SYSTEM_HOME, SYSTEM_SOCKET, home_folder

PATIENCE = 10.0
"""Seconds that a scheduler which stopped answering is waited for: it may be on its way back."""
TIMEOUT = 90.0
"""Seconds that one answer may take."""
KEPT = 8
"""Connections that are kept open between requests, at most."""


class Connection:
    """A connection to the scheduler of a data folder, or to the one that is meant where none is named:
    see :mod:`fairlead.client.address`.
    Threads may share one.

    Raises ServiceError where none runs, or one that is not to be trusted. A request is repeated for a while when the
    scheduler goes away in the middle, so that a restart is not noticed. Most may be heard twice without harm; a submission
    has a key, by which the scheduler knows it again.
    """

    def __init__(
        self,
        home: Path | None = None,
        patience: float = PATIENCE,
        timeout: float = TIMEOUT,
        on_starting: Callable[[], None] = lambda: None,
    ) -> None:
        self.home, self.patience, self._on_starting = home, patience, on_starting
        self._timeout = timeout
        self._answered = False
        self._kept: deque[HTTPConnection] = deque(maxlen=KEPT)
        try:
            self._address = find(home)
            self._tls = tls_context() if self._address.tls else None
        except NotTrusted as error:
            raise ServiceError(str(error)) from None

    def get(self, path: str, **query: Any) -> Any:
        """Ask for JSON."""
        return json.loads(self.get_bytes(path, **query))

    def get_bytes(self, path: str, **query: Any) -> bytes:
        """Ask for bytes."""
        asked = {name: value for name, value in query.items() if value is not None}
        return self._request("GET", f"{path}?{urlencode(asked)}" if asked else path, {})

    def post(self, path: str, body: dict[str, Any], key: str | None = None) -> Any:
        """Ask for something to happen; a submission under a key of its own."""
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        return json.loads(self._request("POST", path, headers, json.dumps(body).encode()))

    def submit(self, path: str, body: dict[str, Any]) -> Any:
        """Submit under a new key."""
        return self.post(path, body, key=uuid.uuid4().hex)

    def put(self, path: str, body: bytes, **query: Any) -> Any:
        """Put bytes."""
        where = f"{path}?{urlencode(query)}" if query else path
        return json.loads(self._request("PUT", where, {"Content-Type": "application/octet-stream"}, body))

    def delete(self, path: str) -> Any:
        """Ask for something to go."""
        return json.loads(self._request("DELETE", path, {}))

    def close(self) -> None:
        while self._kept:
            self._kept.pop().close()

    def is_here(self) -> bool:
        """Whether it runs on this machine, as far as its address tells."""
        return self._address.socket is not None

    def is_there(self) -> bool:
        """Whether its socket still has a name; that of a port cannot be told."""
        return self._address.socket is not None and self._address.socket.exists()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(self, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> bytes:
        until = time.monotonic() + self.patience
        if not self._answered:
            self._await_start(until)
        bearer = {"Authorization": f"Bearer {self._address.token}"} if self._address.token else {}
        while True:
            try:
                response, said = self._exchange(method, path, headers | bearer, body)
                self._answered = True
                if response.status != 429 or time.monotonic() > until:
                    return _checked(response.status, said, has_token=bool(bearer))
                asked = response.headers.get("Retry-After", "")
                least = min(float(asked) if asked.isdigit() else 0.0, max(0.0, until - time.monotonic()))
                time.sleep(least + random.uniform(0.05, 0.5))  # noqa: S311 so that not all come back at once
            except NotTrusted as error:
                raise ServiceError(str(error)) from None
            except (HTTPException, OSError) as error:
                if not self._answered or time.monotonic() > until:
                    raise self._nobody(error) from None
                time.sleep(0.2)

    def _await_start(self, until: float) -> None:
        """Wait while the scheduler starts. Raises ServiceError where that takes longer."""
        socket = self._address.socket
        if socket is None or not is_starting(socket):
            return
        self._on_starting()
        while is_starting(socket):
            if time.monotonic() > until:
                raise ServiceError(
                    f"the scheduler at {socket} is starting: ask again, or wait for longer with `fairlead --wait SECONDS`"
                )
            time.sleep(0.02)

    def _exchange(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[HTTPResponse, bytes]:
        """Ask once, over a connection that was kept or a new one. Raises NotTrusted, HTTPException, OSError."""
        connection = self._open()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            said = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close or len(self._kept) >= KEPT:
            connection.close()
        else:
            self._kept.append(connection)
        return response, said

    def _open(self) -> HTTPConnection:
        while self._kept:
            with contextlib.suppress(IndexError):  # another thread was faster
                connection = self._kept.pop()
                if not _has_ended(connection):
                    return connection
                connection.close()
        where = self._address
        if where.socket is not None:
            return _SocketConnection(where.socket, self._timeout)
        if self._tls is not None:
            return HTTPSConnection(where.host, where.port, timeout=self._timeout, context=self._tls)
        kind = _CheckedConnection if is_checked(where) else HTTPConnection
        return kind(where.host, where.port or None, timeout=self._timeout)

    def _nobody(self, error: Exception) -> ServiceError:
        where = self._address
        if isinstance(error, ssl.SSLError):
            return ServiceError(
                f"{where.host}:{where.port}: not known to be the scheduler that is meant ({error}): "
                "name the authority of its certificate with FAIRLEAD_CA"
            )
        cause = error if isinstance(error, OSError) else OSError(str(error))
        if isinstance(cause, PermissionError):
            return ServiceError(f"{where.socket}: is not yours to connect to: it is another person's scheduler")
        if where.socket is None:
            return ServiceError(f"no scheduler answers at {where.host}:{where.port}: {cause.strerror or cause}")
        if where.socket.name == "socket" and where.socket.parent == (self.home or home_folder()):
            if self.home is None and SYSTEM_HOME.exists():
                return ServiceError(
                    f"the scheduler of this machine ({SYSTEM_SOCKET}) does not answer: ask who looks after it; "
                    "`fairlead up` starts one of your own"
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
    """A connection to a port of this machine, whose owner the kernel tells."""

    def connect(self) -> None:
        check_port(self.host, self.port)
        super().connect()
        check_port(self.host, self.port)


def _has_ended(connection: HTTPConnection) -> bool:
    """Whether a connection that waits for no answer was closed at the other end."""
    there = select.poll()
    there.register(connection.sock, select.POLLIN)
    return bool(there.poll(0))


def _checked(status: int, said: bytes, has_token: bool) -> bytes:
    if status < 300:
        return said
    if status == 401:
        raise ServiceError(
            ("the scheduler does not take this token" if has_token else "a token is needed to call this scheduler")
            + ": set FAIRLEAD_TOKEN to one that `fairlead token new` made there",
            401,
        )
    try:
        message = json.loads(said)["error"]
    except (ValueError, KeyError, TypeError):
        message = f"the scheduler answered {status}: is it a fairlead of another version?"
    raise ServiceError(message, status)
