"""The HTTP API from the other side: one function a request, plain dictionaries back.

urllib3, because a command must answer at once: it is imported in a quarter of the time that httpx takes.
"""

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3

from fairlead.home import Address, home_folder, read_address

PATIENCE = 10.0
"""Seconds that a scheduler which stopped answering is waited for: it may be on its way back."""


class ServiceError(RuntimeError):
    """The scheduler refused, or there is none. The message is one line: what, and what to do."""


class Connection:
    """A connection to the scheduler of a data folder, or to the one that `$FAIRLEAD_URL` names.

    Raises ServiceError where none runs. A request that only looks is repeated for a while when the scheduler goes away in the
    middle, so that a restart is not noticed; one that changes something is not, since it may have been heard.
    """

    def __init__(self, home: Path | None = None) -> None:
        self._home = home
        self._answered = False
        self._address = self._find()
        self._pool = urllib3.PoolManager(retries=False, timeout=60)

    def get(self, path: str, **query: Any) -> Any:
        """Ask for JSON."""
        return json.loads(self._look(path, query))

    def get_bytes(self, path: str, **query: Any) -> bytes:
        """Ask for bytes."""
        return self._look(path, query)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Ask for something to happen."""
        try:
            # Plain ASCII: an argument that is no UTF-8 text reaches the server, which refuses it by name.
            headers = {**self._headers(), "Content-Type": "application/json"}
            text = json.dumps(body)
            response = self._pool.request("POST", self._address.url + path, body=text, headers=headers)
        except urllib3.exceptions.NewConnectionError:
            raise self._nobody() from None
        except urllib3.exceptions.HTTPError as error:
            raise ServiceError(
                f"the scheduler went away in the middle ({error}): see `fairlead jobs` whether it was heard"
            ) from None
        return json.loads(_checked(response))

    def close(self) -> None:
        self._pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _find(self) -> Address:
        address = read_address(self._home)
        if address is None:
            raise self._nobody()
        return address

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._address.token}"}

    def _look(self, path: str, query: dict[str, Any]) -> bytes:
        asked = {name: value for name, value in query.items() if value is not None}
        until = time.monotonic() + PATIENCE
        while True:
            try:
                response = self._pool.request("GET", self._address.url + path, fields=asked, headers=self._headers())
                self._answered = True
                return _checked(response)
            except urllib3.exceptions.HTTPError:
                if not self._answered or time.monotonic() > until:
                    raise self._nobody() from None
                time.sleep(0.2)
                self._address = read_address(self._home) or self._address

    def _nobody(self) -> ServiceError:
        return ServiceError(f"no scheduler runs in {self._home or home_folder()}: start one with `fairlead up`")


def _checked(response: urllib3.BaseHTTPResponse) -> bytes:
    if response.status < 300:
        return response.data
    if response.status == 401:
        raise ServiceError("the scheduler does not take this token: use the one in its folder, or set FAIRLEAD_TOKEN")
    try:
        message = json.loads(response.data)["error"]
    except (ValueError, KeyError, TypeError):
        message = f"the scheduler answered {response.status}: is it a fairlead of another version?"
    raise ServiceError(message)
