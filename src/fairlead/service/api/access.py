"""Access control: one table of all routes and of who may call them, and its enforcement.

A route without a line in the table cannot be created. The caller is authenticated, and refused if the line says so, before the
body is read, and again with each piece of it. Permissions on the job or queue of a request are checked in the scheduler's
thread by :mod:`fairlead.people.rules`; the line only names them.
"""

from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.people.audit_log import AuditRecords
from fairlead.people.authenticator import Authenticator, Stranger
from fairlead.people.bounds import DEFAULT, Rates, default_bounds
from fairlead.people.rules import Caller, Forbidden, check_operates
from fairlead.service.api.answers import refusal, retry_after
from fairlead.service.api.large_bodies import LargeBody
from fairlead.service.api.state_client import OnePerPerson, as_now
from fairlead.service.connections.listening import is_accepted, name_in


class Who(Enum):
    """Who may call a route; the value is shown in the documentation."""

    ANYBODY = "anybody, without authentication"
    PEOPLE = "everybody with an account"
    SEEN = "everybody with an account; others' jobs show only that they exist"
    SUBMITTERS = "those who may submit to the queue, under their own name"
    OWNERS = "the job's owner, the admins of its queue, root"
    SESSION = "who opened the session"
    TOKENS = "everybody for themselves; root for others"
    AUDIT_LOG = "everybody for their own actions and for those on their jobs; operators for all"
    OPERATORS = "operators, root"


class Line(NamedTuple):
    """A line of the table: who may call a route, and whether it changes anything, which a read-only token may not."""

    who: Who
    changes: bool


READ, CHANGE = False, True

COSTS = {("POST", "/v1/tokens"): 100, ("POST", "/v1/nodes/tokens"): 100, ("POST", "/v1/page"): 20}
"""Requests that count as several in the rate limit, since each adds stored data."""

_LINES: dict[tuple[Who, bool], str] = {
    (Who.ANYBODY, READ): "GET /healthz, GET /readyz, GET /docs, GET /openapi.json",
    (Who.PEOPLE, READ): "GET /v1/status, GET /v1/queues, GET /v1/frameworks, GET /v1/nodes, GET /v1/audit, "
    "GET /v1/audit/over-time, GET /v1/usage, GET /metrics, POST /v1/page",
    (Who.PEOPLE, CHANGE): "POST /v1/sessions",
    (Who.SEEN, READ): "GET /v1/facts, GET /v1/jobs, GET /v1/jobs/{job}, GET /v1/jobs/{job}/tasks, GET /v1/jobs/{job}/why, "
    "GET /v1/jobs/{job}/when",
    (Who.SUBMITTERS, READ): "POST /v1/when",
    (Who.SUBMITTERS, CHANGE): "POST /v1/jobs, POST /v1/bulk",
    (Who.OWNERS, READ): "GET /v1/jobs/{job}/tasks/{index}/output/{stream}, GET /v1/jobs/{job}/tasks/{index}/files",
    (Who.OWNERS, CHANGE): "POST /v1/cancel, POST /v1/jobs/{job}/cancel, POST /v1/jobs/{job}/hold, POST /v1/jobs/{job}/release, "
    "POST /v1/jobs/{job}/edit, POST /v1/jobs/{job}/rerun, PUT /v1/jobs/{job}/tasks/{index}/input, "
    "GET /v1/jobs/{job}/tasks/{index}/port, POST /v1/jobs/{job}/tasks/{index}/streams, "
    "GET /v1/jobs/{job}/tasks/{index}/streams/{name}, DELETE /v1/jobs/{job}/tasks/{index}/streams/{name}",
    (Who.SESSION, CHANGE): "PUT /v1/sessions/{session}/payloads/{payload}, POST /v1/sessions/{session}/leases, "
    "GET /v1/sessions/{session}/events, GET /v1/sessions/{session}/relays, PUT /v1/sessions/{session}/relays/{lease}, "
    "DELETE /v1/sessions/{session}",
    (Who.OPERATORS, CHANGE): "POST /v1/nodes/{node}/drain, POST /v1/nodes/{node}/resume, POST /v1/nodes/{node}/forget, "
    "POST /v1/nodes/tokens, POST /v1/reload, POST /v1/down",
    (Who.TOKENS, READ): "GET /v1/tokens",
    (Who.TOKENS, CHANGE): "POST /v1/tokens, DELETE /v1/tokens/{token}",
    (Who.AUDIT_LOG, READ): "GET /v1/log",
}
ROUTES: dict[tuple[str, str], Line] = {
    (method, path): Line(*line)
    for line, routes in _LINES.items()
    for method, _, path in (route.partition(" ") for route in routes.split(", "))
}
"""The line of each route, by method and path."""


class Entrance:
    """The outermost layer of the application: checks the Host header and authenticates the caller.

    audit_records : logs refusals
    hosts : the accepted host names, in lower case, without a port
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator, audit_records: AuditRecords, hosts: set[str]) -> None:
        self._app, self._authenticator, self._records, self._hosts = app, authenticator, audit_records, hosts
        self._rates = Rates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        host = name_in(headers.get(b"host", b"").decode("latin-1"))
        if not is_accepted(host, self._hosts):
            some = ", ".join(sorted(self._hosts)[:5])
            answer = refusal(421, f"{host or 'no host'!r} is not a name of this scheduler: it answers for {some}")
            await answer(scope, receive, send)
            return
        try:
            shown = headers.get(b"authorization", b"").decode("latin-1")
            scope["caller"] = await self._authenticator.caller(scope["peer"], shown)
        except Stranger as stranger:
            scope["caller"] = stranger
        wait = self._wait(scope["caller"], COSTS.get((scope["method"], scope["path"]), 1))
        if wait:
            answer = refusal(429, "too many requests from one person: slow down", retry_after(wait))
            await answer(scope, receive, send)
            return
        scope["authenticator"], scope["audit_records"] = self._authenticator, self._records
        await self._app(scope, receive, send)

    def _wait(self, caller: Caller | Stranger, count: int) -> float:
        """Return the seconds until a caller may make a request of cost `count`; 0 for now."""
        if isinstance(caller, Stranger):
            return self._rates.wait(caller.by, DEFAULT.requests, count)
        return self._rates.wait(caller.person.uid, default_bounds(self._authenticator.rules, caller).requests, count)


_large_bodies = OnePerPerson("a large request of yours is being read already")


class HeldRoute(APIRoute):
    """A route that enforces its line of the table. Raises KeyError when created without one."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        lines = {method: ROUTES[method, self.path] for method in self.methods or ()}
        model: Any = self.body_field.field_info.annotation if self.body_field is not None else None

        async def admitted(request: Request) -> Response:
            line, scope = lines[request.method], request.scope
            _admit(request, line)

            async def receive() -> Message:
                message = await request.receive()
                scope["caller"] = await as_now(scope["authenticator"], scope["caller"])
                _admit(request, line)
                return message

            checked = Request(scope, receive)
            return await handle(LargeBody(checked, model, _large_bodies) if model is not None else checked)

        return admitted


def _admit(request: Request, line: Line) -> None:
    """Raise HTTPException for a caller who may not call a route at all: FastAPI hides other errors while it reads a body."""
    caller = request.scope["caller"]
    if line.who is Who.ANYBODY:
        return
    if isinstance(caller, Stranger):
        raise HTTPException(403 if caller.known else 401, str(caller))
    if line.changes and caller.read_only:
        raise HTTPException(403, "this token is read-only: use one made without --read-only")
    if line.who is Who.OPERATORS:
        try:
            check_operates(request.scope["authenticator"].rules, caller)
        except Forbidden as error:
            raise HTTPException(403, str(error)) from None


def note_refusal(request: Request, why: str) -> None:
    caller = request.scope["caller"]
    unknown = isinstance(caller, Stranger)
    by = caller.by if unknown else caller.person.name
    request.scope["audit_records"].refused(by, f"{request.method} {request.url.path}", why, stranger=unknown)


async def _known(request: Request) -> Caller:
    return request.scope["caller"]


Known = Annotated[Caller, Depends(_known)]
"""The caller of a request."""
