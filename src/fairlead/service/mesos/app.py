"""Mesos' HTTP APIs, version 1, for frameworks, executors and operators. Statuses and messages are those of Mesos.

Thin: authenticate, decode, ask :class:`~fairlead.service.mesos.calls.Calls` or the operators' API, answer.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from fairlead.engines.step import Stalled
from fairlead.people.rules import Forbidden
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.service.api.answers import retry_after
from fairlead.service.connections.listening import is_accepted, name_in
from fairlead.service.loop import Busy, no_threads
from fairlead.service.mesos import encoding
from fairlead.service.mesos.authenticator import CallRefused, FrameworkAuthenticator, FrameworkCaller, executor_token
from fairlead.service.mesos.calls import Calls
from fairlead.service.mesos.executors import HEARTBEAT, ExecutorCalls, check_status
from fairlead.service.mesos.messages import executor_pb2, master_pb2, scheduler_pb2
from fairlead.service.mesos.operators import ON_RESERVATIONS, Operators
from fairlead.service.mesos.streams import Stream

log = logging.getLogger("fairlead")

LARGEST_BODY = 16 * 2**20
LARGE = 64 * 2**10
"""Bytes of a body above which it is decoded in a thread."""
LONGEST_WAIT_SECONDS = 10.0
"""How long a call may wait for a framework's rate limit."""
TEXT = "text/plain; charset=utf-8"


class MesosApp:
    """The application.

    hosts : the accepted host names; empty for all
    """

    def __init__(
        self,
        authenticator: FrameworkAuthenticator,
        calls: Calls,
        executor_calls: ExecutorCalls,
        operators: Operators,
        hosts: set[str],
    ) -> None:
        self._authenticator, self._calls, self._executor_calls = authenticator, calls, executor_calls
        self._operators, self._hosts = operators, hosts
        self._apis = {
            "/api/v1/scheduler": ("scheduler", self._scheduler),
            "/api/v1/executor": ("executor", self._executor),
            "/api/v1": ("master", self._operator),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = scope["path"].removeprefix("/master").removeprefix("/slave(1)").rstrip("/")
        kind, take = self._apis.get(path, ("", None))
        host = name_in(request.headers.get("host", ""))
        try:
            if self._hosts and not is_accepted(host, self._hosts):  # a foreign web page, by DNS rebinding
                raise CallRefused(421, f"{host or 'no host'!r} is not a name of this scheduler: start it with --name {host}")
            if take is not None:
                await take(request, send)
            elif path == "/redirect":
                await answer(send, 307, b"", {"Location": self._operators.leader, "Content-Type": TEXT})
            else:
                await self._look(path, request, send)
        except CallRefused as refused:
            await answer(send, refused.status, str(refused).encode(), {"Content-Type": TEXT, **refused.headers})
        except Refused as refused:
            await answer(send, 400, f"Failed to validate {kind}::Call: {refused}".encode(), {"Content-Type": TEXT})
        except (Stalled, Busy, TimeoutError) as error:
            await answer(send, 503, (str(error) or "the scheduler is too busy").encode(), {"Content-Type": TEXT})
        except (OSError, RuntimeError) as error:
            if not (said := no_threads(error)):
                raise
            await answer(send, 503, said.encode(), {"Content-Type": TEXT, "Retry-After": "1"})

    async def _look(self, path: str, request: Request, send: Send) -> None:
        name, open_to_all = path.removesuffix(".json"), ("/version", "/health")  # which need no state
        who = None if path in open_to_all else await self._authenticated(request)
        view = self._operators.views.get(name)
        if view is None:
            raise CallRefused(404)
        if request.method not in ("GET", "HEAD"):
            raise CallRefused(405, f"Expecting one of {{ 'GET' }}, but received '{request.method}'", {"Allow": "GET"})
        query = dict(request.query_params)
        if "jsonp" in query:
            raise CallRefused(400, "jsonp is not supported, since any web page could read the answer: leave it out and read JSON")
        told = await self._operators.look(view, None if name in open_to_all else who, query)
        body = b"" if told is None else json.dumps(told, separators=(",", ":")).encode("ascii")
        await answer(send, 200, body, {"Content-Type": encoding.JSON})

    async def _operator(self, request: Request, send: Send) -> None:
        who, call = await self._read_of(request, master_pb2.Call())
        accepts = _accepted(request)
        try:
            told = await self._operators.call(who, call)
        except Refused as error:
            status = 403 if isinstance(error, Forbidden) else 404 if isinstance(error, Unknown) else 400
            raise CallRefused(status, str(error)) from None
        if told is None:
            await answer(send, 202 if master_pb2.Call.Type.Name(call.type) in ON_RESERVATIONS else 200, b"", {})
        else:
            await answer(send, 200, encoding.encode(accepts, told), {"Content-Type": accepts})

    async def _scheduler(self, request: Request, send: Send) -> None:
        who, call = await self._read_of(request, scheduler_pb2.Call())
        if call.type == scheduler_pb2.Call.SUBSCRIBE:
            await self._subscribe(who, call, request, send)
            return
        if not call.framework_id.value:
            raise Refused("Expecting 'framework_id' to be present")
        while wait := self._authenticator.wait(who, call.framework_id.value):
            if wait > LONGEST_WAIT_SECONDS:
                raise CallRefused(503, "too many calls from this framework: slow down", retry_after(1.0))
            await asyncio.sleep(wait)
        await self._calls.take(who, call, request.headers.get("mesos-stream-id"))
        await answer(send, 202, b"", {})

    async def _subscribe(self, who: FrameworkCaller, call: scheduler_pb2.Call, request: Request, send: Send) -> None:
        """Answer with a stream, for as long as the framework reads it."""
        if encoding.missing_body(call):
            raise Refused("Expecting 'subscribe' to be present")
        accepts = _accepted(request)
        if "mesos-stream-id" in request.headers:
            raise CallRefused(400, "Subscribe calls should not include the 'Mesos-Stream-Id' header")
        stream = Stream(accepts, who.identity)
        try:
            await self._calls.subscribe(who, call, stream)
            await _answer_with(stream, request.receive, send)
        finally:
            self._calls.leave(stream)  # also after an error: it may still get subscribed

    async def _executor(self, request: Request, send: Send) -> None:
        token = await executor_token(request.scope, request.headers.get("authorization", ""))
        call = await self._read(request, executor_pb2.Call())
        if call.type == executor_pb2.Call.UNKNOWN:
            raise CallRefused(501)
        if wanted := encoding.missing_body(call):
            raise Refused(f"Expecting '{wanted}' to be present")
        if call.type != executor_pb2.Call.SUBSCRIBE:
            await self._executor_calls.take(call, token)
            await answer(send, 202, b"", {})
            return
        for update in call.subscribe.unacknowledged_updates:
            check_status(update.status)
        stream = Stream(_accepted(request), ("", 0), HEARTBEAT)
        try:
            await self._executor_calls.subscribe(call, token, stream)
            await _answer_with(stream, request.receive, send)
        finally:
            await self._executor_calls.leave(stream)

    async def _authenticated(self, request: Request) -> FrameworkCaller:
        return await self._authenticator.authenticate(request.scope, request.headers.get("authorization", ""))

    async def _read_of(self, request: Request, into: Any) -> tuple[FrameworkCaller, Any]:
        """Read a call of a caller, authenticated before and after."""
        await self._authenticated(request)
        call = await self._read(request, into)
        return await self._authenticated(request), call

    async def _read(self, request: Request, into: Any) -> Any:
        """Read a call into an empty message; a large one is decoded in a thread, so that others are answered meanwhile."""
        if self._calls.recovering:
            raise CallRefused(503, "Master has not finished recovery")
        if request.method != "POST":
            raise CallRefused(405, f"Expecting one of {{ 'POST' }}, but received '{request.method}'", {"Allow": "POST"})
        if "content-type" not in request.headers:
            raise CallRefused(400, "Expecting 'Content-Type' to be present")
        kind = request.headers["content-type"].partition(";")[0].strip().lower()
        if kind not in encoding.KINDS:
            raise CallRefused(415, f"Expecting 'Content-Type' of {encoding.JSON} or {encoding.PROTOBUF}")
        body = await _body(request)
        try:
            large = len(body) > LARGE
            call = await asyncio.to_thread(encoding.decode, kind, body, into) if large else encoding.decode(kind, body, into)
        except encoding.Malformed as error:
            raise CallRefused(400, str(error)) from None
        if not call.HasField("type"):
            raise CallRefused(501) if encoding.type_is_unknown(kind, body, call) else Refused("Expecting 'type' to be present")
        return call


async def _answer_with(stream: Stream, receive: Receive, send: Send) -> None:
    await start(send, 200, {"Content-Type": stream.kind, "Mesos-Stream-Id": stream.id})
    parts = [_send_all(stream, send), _hung_up(receive), stream.cut_off.wait()]
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _send_all(stream: Stream, send: Send) -> None:
    async for record in stream.records():
        await send({"type": "http.response.body", "body": record, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > LARGEST_BODY:
                raise CallRefused(413, f"the body is larger than {LARGEST_BODY >> 20} MiB", {"Connection": "close"})
    except ClientDisconnect:
        raise CallRefused(400, "the request is incomplete") from None
    return bytes(body)


def _accepted(request: Request) -> str:
    kind = encoding.accepted_kind(",".join(request.headers.getlist("accept")) or None)
    if kind is None:
        raise CallRefused(406, f"Expecting 'Accept' to allow '{encoding.PROTOBUF}' or '{encoding.JSON}'")
    return kind


async def start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    raw = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def answer(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    await start(send, status, {**headers, "Content-Length": str(len(body))})
    await send({"type": "http.response.body", "body": body})
