"""The HTTP API from the other side: one function a request, plain dictionaries back.

urllib3, because a command must answer at once: it is imported in a quarter of the time that httpx takes.
"""

import json
import random
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3

from fairlead.client.service_error import ServiceError
from fairlead.data_folder import Address, home_folder, read_address

PATIENCE = 10.0
"""Seconds that a scheduler which stopped answering is waited for: it may be on its way back."""
TIMEOUT = 90.0
"""Seconds that one answer may take."""


class Connection:
    """A connection to the scheduler of a data folder, or to the one that `$FAIRLEAD_URL` names. Threads may share one.

    Raises ServiceError where none runs. A request is repeated for a while when the scheduler goes away in the middle, so that a
    restart is not noticed. Most may be heard twice without harm; a submission has a key, by which the scheduler knows it again.
    """

    def __init__(self, home: Path | None = None, patience: float = PATIENCE, timeout: float = TIMEOUT) -> None:
        self.home, self.patience = home, patience
        self._answered = False
        self._address = self._find()
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout, maxsize=8)

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

    def put(self, path: str, body: bytes) -> Any:
        """Put bytes."""
        return json.loads(self._request("PUT", path, {"Content-Type": "application/octet-stream"}, body=body))

    def delete(self, path: str) -> Any:
        """Ask for something to go."""
        return json.loads(self._request("DELETE", path, {}))

    def close(self) -> None:
        self._pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _find(self) -> Address:
        address = read_address(self.home)
        if address is None:
            raise self._nobody()
        return address

    def _request(self, method: str, path: str, headers: dict[str, str], **what: Any) -> bytes:
        until = time.monotonic() + self.patience
        while True:
            bearer = {"Authorization": f"Bearer {self._address.token}"}
            try:
                response = self._pool.request(method, self._address.url + path, headers=headers | bearer, **what)
                self._answered = True
                if response.status != 429 or time.monotonic() > until:
                    return _checked(response)
                time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 so that not all come back at once
            except urllib3.exceptions.HTTPError:
                if not self._answered or time.monotonic() > until:
                    raise self._nobody() from None
                time.sleep(0.2)
                self._address = read_address(self.home) or self._address

    def _nobody(self) -> ServiceError:
        return ServiceError(f"no scheduler runs in {self.home or home_folder()}: start one with `fairlead up`")


def _checked(response: urllib3.BaseHTTPResponse) -> bytes:
    if response.status < 300:
        return response.data
    if response.status == 401:
        raise ServiceError(
            "the scheduler does not take this token: use the one in its folder, or set FAIRLEAD_TOKEN", 401
        )
    try:
        message = json.loads(response.data)["error"]
    except (ValueError, KeyError, TypeError):
        message = f"the scheduler answered {response.status}: is it a fairlead of another version?"
    raise ServiceError(message, response.status)
