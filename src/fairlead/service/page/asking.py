"""The API as one caller may use it, called inside this process.

The page has no rights of its own: all that it shows and does is an answer of the API to the caller of the visit. What takes long,
as reports on past time do, is made once for all who may see the same, and kept a while.
"""

import asyncio
import time
from collections.abc import Hashable, Mapping
from contextlib import nullcontext
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.types import ASGIApp, Message

from fairlead.people.audit_log import AuditRecords
from fairlead.people.authenticator import Authenticator
from fairlead.people.rules import Caller

PATIENCE_SECONDS, LESS_PATIENCE_SECONDS, STREAM_PATIENCE_SECONDS = 1.0, 0.1, 5.0
"""How long a page waits for its first report of the journal, and for all else; and a stream. It is shown later then."""
FRESH_SECONDS, FRESH_FACTOR = 5.0, 20.0
"""An answer is kept at least this long, and this many times as long as it took to make."""
MOST_KEPT = 128
Key = tuple[Hashable, str, float | None]


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


class Past:
    """Answers by what was asked. For the event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._kept: dict[Key, tuple[float, Any]] = {}
        self._making: dict[Key, asyncio.Task[None]] = {}
        self._one = asyncio.Lock()  # for reports of the journal

    async def __call__(self, rights: Hashable, caller: Caller, streams: bool, path: str, seconds: float | None = None) -> Any:
        """Return the newest answer of the API's `path`; None while the first is being made.

        It has `at`, when it was made, and if it cannot be made, `failed`, with the reason. With `seconds` it is a report of the
        journal over that time: the same for all who have the same `rights`.
        """
        key = (caller if seconds is None else rights, path, seconds)
        until, found = self._kept.get(key, (0.0, None))
        if time.monotonic() >= until:
            if key not in self._making:
                self._making[key] = asyncio.create_task(self._make(key, caller))
            patience = LESS_PATIENCE_SECONDS if seconds is None or found else PATIENCE_SECONDS
            await asyncio.wait([self._making[key]], timeout=STREAM_PATIENCE_SECONDS if streams else patience)
            found = self._kept.get(key, (0.0, None))[1]
        return found

    async def _make(self, key: Key, caller: Caller) -> None:
        begin = time.monotonic()
        try:
            async with nullcontext() if key[2] is None else self._one:
                begin = time.monotonic()
                found = await self._asking(caller, key[1], {"seconds": key[2]})
        except Declined as declined:  # another is being made for the caller, or the journal cannot be read now
            found = {"failed": str(declined)}
        finally:
            del self._making[key]
        self._kept.pop(key, None)
        if len(self._kept) >= MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))
        now = time.monotonic()
        self._kept[key] = now + max(FRESH_SECONDS, FRESH_FACTOR * (now - begin)), found | {"at": time.time()}
