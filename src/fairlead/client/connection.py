"""The HTTP API from the other side: one function a request, plain dictionaries back.

urllib3, because a command must answer at once: it is imported in a quarter of the time that httpx takes.
"""

import json
import random
import time
import uuid
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import urllib3

from fairlead.client.address import Address, NotTrusted, check_port, connect_to, find, is_checked, tls_context
from fairlead.client.service_error import ServiceError
from fairlead.data_folder import SYSTEM_HOME, SYSTEM_SOCKET, home_folder

PATIENCE = 10.0
"""Seconds that a scheduler which stopped answering is waited for: it may be on its way back."""
TIMEOUT = 90.0
"""Seconds that one answer may take."""


class Connection:
    """A connection to the scheduler of a data folder, or to the one that is meant where none is named:
    see :mod:`fairlead.client.address`.
    Threads may share one.

    Raises ServiceError where none runs, or one that is not to be trusted. A request is repeated for a while when the
    scheduler goes away in the middle, so that a restart is not noticed. Most may be heard twice without harm; a submission
    has a key, by which the scheduler knows it again.
    """

    def __init__(self, home: Path | None = None, patience: float = PATIENCE, timeout: float = TIMEOUT) -> None:
        self.home, self.patience = home, patience
        self._answered = False
        try:
            self._address = find(home)
            self._pool = _pool(self._address, timeout)
        except NotTrusted as error:
            raise ServiceError(str(error)) from None

    def get(self, path: str, **query: Any) -> Any:
        """Ask for JSON."""
        return json.loads(self.get_bytes(path, **query))

    def get_bytes(self, path: str, **query: Any) -> bytes:
        """Ask for bytes."""
        asked = {name: value for name, value in query.items() if value is not None}
        return self._request("GET", path, {}, fields=asked)

    def post(self, path: str, body: dict[str, Any], key: str | None = None) -> Any:
        """Ask for something to happen; a submission under a key of its own."""
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        return json.loads(self._request("POST", path, headers, body=json.dumps(body)))

    def submit(self, path: str, body: dict[str, Any]) -> Any:
        """Submit under a new key."""
        return self.post(path, body, key=uuid.uuid4().hex)

    def put(self, path: str, body: bytes, **query: Any) -> Any:
        """Put bytes."""
        where = f"{path}?{urlencode(query)}" if query else path
        return json.loads(self._request("PUT", where, {"Content-Type": "application/octet-stream"}, body=body))

    def delete(self, path: str) -> Any:
        """Ask for something to go."""
        return json.loads(self._request("DELETE", path, {}))

    def close(self) -> None:
        self._pool.close()

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

    def _request(self, method: str, path: str, headers: dict[str, str], **what: Any) -> bytes:
        until = time.monotonic() + self.patience
        bearer = {"Authorization": f"Bearer {self._address.token}"} if self._address.token else {}
        while True:
            try:
                response = self._pool.request(method, path, headers=headers | bearer, **what)
                self._answered = True
                if response.status != 429 or time.monotonic() > until:
                    return _checked(response, has_token=bool(bearer))
                asked = response.headers.get("Retry-After", "")
                least = min(float(asked) if asked.isdigit() else 0.0, max(0.0, until - time.monotonic()))
                time.sleep(least + random.uniform(0.05, 0.5))  # noqa: S311 so that not all come back at once
            except NotTrusted as error:
                raise ServiceError(str(error)) from None
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if not self._answered or time.monotonic() > until:
                    raise self._nobody(error) from None
                time.sleep(0.2)

    def _nobody(self, error: Exception) -> ServiceError:
        where = self._address
        if isinstance(error, urllib3.exceptions.SSLError):
            return ServiceError(
                f"{where.host}:{where.port}: not known to be the scheduler that is meant ({error}): "
                "name the authority of its certificate with FAIRLEAD_CA"
            )
        cause = _cause(error)
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


class _SocketConnection(urllib3.connection.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, *arguments: Any, path: Path, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.path = path

    def connect(self) -> None:
        self.sock = connect_to(self.path, self.timeout)


class _CheckedConnection(urllib3.connection.HTTPConnection):
    """A connection to a port of this machine, whose owner the kernel tells."""

    def connect(self) -> None:
        check_port(self.host, self.port)
        super().connect()
        check_port(self.host, self.port)


def _pool(address: Address, timeout: float) -> urllib3.HTTPConnectionPool:
    """The connections that are kept to a scheduler."""
    what: dict[str, Any] = {"retries": False, "timeout": timeout, "maxsize": 8}
    if address.tls:
        return urllib3.HTTPSConnectionPool(address.host, address.port, ssl_context=tls_context(), **what)
    pool = urllib3.HTTPConnectionPool(address.host, address.port or None, **what)
    if address.socket is not None:
        pool.ConnectionCls = partial(_SocketConnection, path=address.socket)  # type: ignore[assignment]
    elif is_checked(address):
        pool.ConnectionCls = _CheckedConnection
    return pool


def _cause(error: Exception) -> OSError:
    """What the system said, where that is what an error of urllib3's is about."""
    said = (each for each in (error, *error.args, error.__cause__, error.__context__) if isinstance(each, OSError))
    return next(said, OSError(str(error)))


def _checked(response: urllib3.BaseHTTPResponse, has_token: bool) -> bytes:
    if response.status < 300:
        return response.data
    if response.status == 401:
        raise ServiceError(
            ("the scheduler does not take this token" if has_token else "a token is needed to call this scheduler")
            + ": set FAIRLEAD_TOKEN to one that `fairlead token new` made there",
            401,
        )
    try:
        message = json.loads(response.data)["error"]
    except (ValueError, KeyError, TypeError):
        message = f"the scheduler answered {response.status}: is it a fairlead of another version?"
    raise ServiceError(message, response.status)
