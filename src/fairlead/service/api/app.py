"""The HTTP API. Thin: authenticate, validate, ask the loop, answer JSON.

Errors are one JSON object, `{"error": "..."}`:

- 400 refused, 401 not authenticated, 403 forbidden, 404 not found
- 409 conflict with an earlier request, 410 facts no longer archive, 421 wrong host
- 413 body too large, 422 invalid whatever the state
- 429 and 503 too much load, or not ready

Its documentation is OpenAPI for programs, and a self-contained page for people.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import fairlead
from fairlead.engines.contract import LiveEngine, Unreachable
from fairlead.engines.step import Stalled
from fairlead.html_page import framed, render
from fairlead.journal import Forgotten, Journal
from fairlead.model.documents import Configuration
from fairlead.model.faults import shortened
from fairlead.people.audit_log import AuditRecords
from fairlead.people.rules import Forbidden
from fairlead.scheduler.admission import Conflict, Invalid, Refused, Unknown
from fairlead.service.api.access import ROUTES, HeldRoute, note_refusal
from fairlead.service.api.answers import Json, errors, refusal, retry_after
from fairlead.service.api.calls import add_calls, add_files, add_relays
from fairlead.service.api.cluster import add_cluster, add_facts, add_health, add_operating, add_reports
from fairlead.service.api.jobs import add_changing, add_listing, add_looking, add_outlooks, add_submitting, add_why
from fairlead.service.api.large_bodies import in_one_line
from fairlead.service.api.people import add_log, add_page, add_tokens
from fairlead.service.api.requests import LARGEST_BODY
from fairlead.service.api.state_client import StateClient
from fairlead.service.api.streams import add_input, add_streams
from fairlead.service.api.submitting import Submitter
from fairlead.service.feed import Feed
from fairlead.service.journal_reports import JournalReports
from fairlead.service.loop import Busy, HappensLater, no_threads
from fairlead.service.outlooks import Outlooks
from fairlead.service.output.archive import OutputArchive
from fairlead.service.page.door import Door
from fairlead.service.reloading import Reloading
from fairlead.service.sessions import Sessions
from fairlead.service.unfinished_jobs import UnfinishedJobs

log = logging.getLogger("fairlead")
_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


class Parts(NamedTuple):
    """The parts that the API uses.

    down : stops the scheduler, given whether to stop running tasks, and the caller's name.
    read_again : reads the configuration again; raises DocumentError.
    urls : where the API listens.
    """

    journal: Journal
    sessions: Sessions
    unfinished: UnfinishedJobs
    engine: LiveEngine
    audit_records: AuditRecords
    down: Callable[[bool, str], None]
    read_again: Callable[[], Configuration]
    reloading: Reloading
    urls: list[str]
    reports: JournalReports
    outlooks: Outlooks
    door: Door
    archive: OutputArchive | None = None


def make_api(client: StateClient, parts: Parts) -> FastAPI:
    """Make the application without authentication, which :class:`fairlead.service.api.access.Entrance` adds."""
    app = FastAPI(
        title="fairlead",
        version=fairlead.__version__,
        description="Dominant Resource Fairness for people who share machines. On the scheduler's Unix socket the kernel "
        "identifies the caller. Every other request, except health checks, carries a token made by `fairlead token new`: "
        "`Authorization: Bearer TOKEN`. Requests write quantities as text such as `4Gi`. Answers use base units: bytes for "
        "memory and disk, thousandths for the rest.",
        max_body_size=LARGEST_BODY,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    _answer_errors_in_one_line(app)
    checks = [Depends(HTTPBearer(auto_error=False)), Depends(_refusing_unknown_queries())]
    known = errors(400, 401, 403, 404, 409, 413, 422, 429, 431, 503)
    api = APIRouter(dependencies=checks, responses=known, route_class=HeldRoute, default_response_class=Json)
    submitter = Submitter(client, parts.unfinished)
    add_submitting(api, submitter, parts.engine, parts.sessions)
    add_listing(api, client)
    add_looking(api, client, parts.engine, parts.archive)
    add_why(api, client, parts.engine, parts.archive, parts.sessions)
    add_changing(api, client, submitter)
    add_input(api, client, parts.engine)
    add_streams(api, client, parts.engine, parts.audit_records)
    add_outlooks(api, client, parts.outlooks)
    add_cluster(api, client, parts.engine, parts.urls, parts.archive)
    add_operating(api, client, parts.engine, parts.audit_records, parts.down, parts.read_again, parts.reloading)
    add_reports(api, client, parts.reports)
    add_facts(api, client, Feed(parts.journal, client.authenticator, client.wakeups, client.loop))
    add_calls(api, client, submitter, parts.sessions)
    add_files(api, client, parts.sessions)
    add_relays(api, client, parts.sessions)
    add_tokens(api, client, parts.audit_records)
    add_page(api, parts.audit_records, parts.door)
    add_log(api, client, parts.journal, parts.audit_records)
    open_to_all = APIRouter(route_class=HeldRoute, default_response_class=Json)
    add_health(open_to_all, client.loop, parts.engine, parts.archive)

    @open_to_all.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Json(app.openapi())

    @open_to_all.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(_page(app.openapi()), headers=_HEADERS)

    # Added directly, since `include_router` would create each route a second time at the first request.
    app.router.routes += [*api.routes, *open_to_all.routes]
    return app


def _refusing_unknown_queries() -> Callable[[Request], Awaitable[None]]:
    """Refuse unknown or repeated query parameters, which would be ignored, and numbers such as 1_0."""
    known: dict[tuple[str, str], tuple[list[str], list[str]]] = {}

    async def refuse(request: Request) -> None:
        said = {**request.path_params, **request.query_params}
        if not said:
            return
        route, method = request.scope["route"], request.method
        if (route.path_format, method) not in known:
            known[route.path_format, method] = _parameters(route, method)
        there, numbers = known[route.path_format, method]
        for name in numbers:
            if name in said and ("_" in said[name] or not said[name].isascii()):
                raise HTTPException(422, f"{name}: write a number with the digits 0 to 9, not {shortened(repr(said[name]))}")
        for name in request.query_params:
            if name not in there:
                raise HTTPException(422, f"{name}: no such parameter: use {', '.join(there) or 'none'}")
            if len(request.query_params.getlist(name)) > 1:
                raise HTTPException(422, f"{name}: is given more than once")

    return refuse


def _parameters(route: APIRoute, method: str) -> tuple[list[str], list[str]]:
    """Return the query parameters of a route, and those of its parameters that are numbers, from its OpenAPI document."""
    path = route.path_format
    told = get_openapi(title=path, version="", routes=[route])  # for all routes it would take 0.1 s
    parameters = told["paths"][path].get(method.lower(), {}).get("parameters", [])
    there = sorted(each["name"] for each in parameters if each["in"] == "query")
    return there, [each["name"] for each in parameters if _is_number(each["schema"])]


def _is_number(schema: dict[str, Any]) -> bool:
    return any(each.get("type") in ("integer", "number") for each in [schema, *schema.get("anyOf", [])])


def too_large_in_json(app: ASGIApp) -> ASGIApp:
    """Turn Starlette's plain-text refusal of a too large body, which bypasses all handlers, into JSON."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        refused = False

        async def send_on(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] == 413:
                refused = True
                await refusal(413, f"the body is larger than {LARGEST_BODY >> 20} MiB")(scope, receive, send)
            elif not refused:
                await send(message)

        await app(scope, receive, send_on)

    return answer


def _without_threads(error: BaseException | None) -> JSONResponse | None:
    """Return the answer to an error if no thread or process could be started; else None."""
    said = no_threads(error)
    return refusal(503, said, retry_after(1)) if said else None


def _answer_errors_in_one_line(app: FastAPI) -> None:
    @app.exception_handler(Forbidden)
    async def _(request: Request, error: Forbidden) -> JSONResponse:
        await asyncio.to_thread(note_refusal, request, str(error))
        return refusal(403, str(error))

    @app.exception_handler(Stalled)
    async def _(request: Request, error: Stalled) -> JSONResponse:
        return refusal(503, str(error), may_happen=isinstance(error, HappensLater))

    def refuse(kind: type[Exception], code: int, say: Callable[[Any], str] = str, headers: dict[str, str] | None = None) -> None:
        @app.exception_handler(kind)
        async def _(request: Request, error: Exception) -> JSONResponse:
            return refusal(code, say(error), headers)

    codes = {Refused: 400, Unknown: 404, Conflict: 409, Forgotten: 410, Invalid: 422, Unreachable: 503}
    for kind, code in codes.items():
        refuse(kind, code)
    refuse(Busy, 429, headers=retry_after(1))
    refuse(TimeoutError, 503, lambda error: "the scheduler is too busy to answer now: try again in a moment")
    refuse(RequestValidationError, 422, lambda error: in_one_line(error.errors()))

    @app.exception_handler(BlockingIOError)
    @app.exception_handler(RuntimeError)
    async def _(request: Request, error: Exception) -> JSONResponse:
        answer = _without_threads(error)
        if answer is None:
            raise error
        return answer

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> JSONResponse:  # also of the handlers here
        return _without_threads(error) or refusal(500, f"internal error, see the scheduler's log: {type(error).__name__}")

    @app.exception_handler(StarletteHTTPException)
    async def _(request: Request, error: StarletteHTTPException) -> JSONResponse:
        if answer := _without_threads(error.__cause__):  # FastAPI takes any error for one of the body
            return answer
        if error.status_code in (401, 403):
            await asyncio.to_thread(note_refusal, request, str(error.detail))
        return refusal(error.status_code, str(error.detail), error.headers)


def _page(document: dict[str, Any]) -> str:
    routes = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            given = operation.get("parameters", [])
            rows = [(each["name"], each["in"], each.get("description", ""), _kind(each["schema"])) for each in given]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            tables = [rows, _fields(document, body) if body is not None else []]
            who, told = ROUTES[method.upper(), path].who.value, operation.get("description", "")
            routes.append({"method": method.upper(), "path": path, "told": told, "who": who, "tables": tables})
    return framed("The API of fairlead", [render("api.html", about=document["info"]["description"], routes=routes)])


def _fields(document: dict[str, Any], schema: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the fields of a body: name, place, description, type."""
    found = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    needed = found.get("required", [])
    return [
        (name, "body" if name in needed else "body, optional", each.get("description", ""), _kind(each))
        for name, each in found.get("properties", {}).items()
    ]


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(str(each) for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
