"""The API as one caller may use it, called inside this process.

The page has no rights of its own: all that it shows and does is an answer of the API to the caller of the visit.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.types import ASGIApp, Message

from fairlead.people.audit_records import AuditRecords
from fairlead.people.authenticator import Authenticator
from fairlead.people.rules import Caller


class Declined(Exception):
    """The API's answer was an error: its status, and what it says."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def number_in(text: str) -> int | None:
    """Return the number that a URL or a form gives; None if it is none, or is too long for one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


class Asking:
    """Calls the API in the name of callers that are authenticated already."""

    def __init__(self, api: ASGIApp, authenticator: Authenticator, audit_records: AuditRecords) -> None:
        self._api, self._authenticator, self._records = api, authenticator, audit_records

    async def __call__(self, caller: Caller, path: str, query: Mapping[str, object] | None = None, body: object = None) -> Any:
        """Get, or with a body post; return the JSON of the answer, or its bytes. Raises Declined."""
        method, data = ("GET", b"") if body is None else ("POST", msgspec.json.encode(body))
        given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path, "root_path": "",
            "raw_path": quote(path).encode(), "query_string": urlencode(given).encode(), "client": None, "server": None,
            "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())],
            "caller": caller, "authenticator": self._authenticator, "audit_records": self._records,
        }  # fmt: skip
        pieces: list[bytes] = []
        head: dict[str, Any] = {}

        async def receive() -> Message:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                head.update(message)
            else:
                pieces.append(message.get("body", b""))

        await self._api(scope, receive, send)
        answer = b"".join(pieces)
        if (b"content-type", b"application/json") not in head["headers"]:
            return answer
        found = msgspec.json.decode(answer)
        if head["status"] >= 400:
            raise Declined(head["status"], found["error"])
        return found
