"""The HTTP API. Thin: check the token, validate, ask the loop, answer JSON.

Errors are one JSON object, `{"error": "..."}`: 400 for what is refused, 401 without the token, 404 for what is not there, 409
for what contradicts an earlier request, 410 for facts that are gone, 413 and 422 for a body that is too large or not what it
should be, 429 and 503 for a scheduler that cannot take more now.
"""

import hmac
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import fairlead
from fairlead.engines.step import Stalled
from fairlead.journal import Forgotten, Journal
from fairlead.model.documents import Configuration
from fairlead.scheduler.admission import Conflict, Refused, Unknown
from fairlead.service.api.asking import LARGEST_BODY, Asker, Json, errors, refusal
from fairlead.service.api.calls import add_calls
from fairlead.service.api.cluster import add_audits, add_cluster, add_facts, add_health
from fairlead.service.api.jobs import ReadOutput, add_jobs
from fairlead.service.loop import Busy
from fairlead.service.over_time import Audits
from fairlead.service.sessions import Sessions


def make_api(
    asker: Asker,
    journal: Journal,
    sessions: Sessions,
    read_output: ReadOutput,
    token: str,
    down: Callable[[bool], None],
    read_again: Callable[[], Configuration],
    audits: Audits,
) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    asker : Asker
    journal : Journal
        Where past facts are read.
    sessions : Sessions
        Of the programs that call Python functions here.
    read_output : callable
        The engine's, see :class:`fairlead.engines.contract.Engine`.
    token : str
        What every request must bear.
    down : callable
        Stops the scheduler; its argument tells whether running tasks are stopped as well.
    read_again : callable
        Reads the configuration; raises DocumentError.
    audits : Audits
        Looks back on the journal.
    """
    app = FastAPI(
        title="fairlead",
        version=fairlead.__version__,
        description="Dominant Resource Fairness for people who share machines. Every request but those for health bears the "
        "token of the scheduler's folder: `Authorization: Bearer TOKEN`. Quantities are asked for as text such as `4Gi`, and "
        "told in base units: bytes for memory and disk, thousandths for the rest.",
        max_body_size=LARGEST_BODY,
        docs_url="/docs",
        redoc_url=None,
        default_response_class=Json,
    )
    _answer_errors_in_one_line(app)
    checks = [Depends(_authentication(token)), Depends(_refusing_unknown_queries(app))]
    authenticated = APIRouter(dependencies=checks, responses=errors(400, 401, 404, 409, 413, 422, 429, 503))
    add_jobs(authenticated, asker, read_output)
    add_cluster(authenticated, asker, down, read_again)
    add_audits(authenticated, asker, audits)
    add_facts(authenticated, asker, journal)
    add_calls(authenticated, asker, sessions)
    app.include_router(authenticated)
    add_health(app, asker.loop)
    return app


def _authentication(token: str) -> Callable[..., Awaitable[None]]:
    expected = token.encode()
    bearer = HTTPBearer(auto_error=False)

    async def authenticate(given: Annotated[Any, Depends(bearer)]) -> None:
        if given is None or not hmac.compare_digest(given.credentials.encode("utf-8", "replace"), expected):
            raise HTTPException(
                401, "a token is needed: send 'Authorization: Bearer TOKEN' with the one in the token file"
            )

    return authenticate


def _refusing_unknown_queries(app: FastAPI) -> Callable[[Request], Awaitable[None]]:
    """A misspelt filter would be taken for none."""

    @cache
    def known(path: str, method: str) -> list[str]:
        parameters = app.openapi()["paths"][path][method.lower()].get("parameters", [])
        return sorted(each["name"] for each in parameters if each["in"] == "query")

    async def refuse(request: Request) -> None:
        for name in request.query_params:
            there = known(request.scope["route"].path, request.method)
            if name not in there:
                raise HTTPException(422, f"{name}: there is no such parameter: use {', '.join(there) or 'none'}")

    return refuse


class TooLargeInJson:
    """Starlette refuses a body that is too large in plain text, past every handler: say it as all errors are said."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = False

        async def send_on(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] == 413:
                refused = True
                answer = refusal(413, f"the body is larger than {LARGEST_BODY >> 20} MiB")
                await answer(scope, receive, send)
            elif not refused:
                await send(message)

        await self._app(scope, receive, send_on)


def _answer_errors_in_one_line(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def _(request: Request, error: Refused) -> JSONResponse:
        return refusal(404 if isinstance(error, Unknown) else 409 if isinstance(error, Conflict) else 400, str(error))

    @app.exception_handler(Busy)
    async def _(request: Request, error: Busy) -> JSONResponse:
        return refusal(429, str(error))

    @app.exception_handler(Forgotten)
    async def _(request: Request, error: Forgotten) -> JSONResponse:
        return refusal(410, str(error))

    @app.exception_handler(Stalled)
    async def _(request: Request, error: Stalled) -> JSONResponse:
        return refusal(503, str(error))

    @app.exception_handler(TimeoutError)
    async def _(request: Request, error: TimeoutError) -> JSONResponse:
        return refusal(503, "the scheduler is too busy to answer now: try again in a moment")

    @app.exception_handler(StarletteHTTPException)
    async def _(request: Request, error: StarletteHTTPException) -> JSONResponse:
        return refusal(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> JSONResponse:
        return refusal(500, f"a fault of fairlead's own, which its log tells more of: {type(error).__name__}")

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path", "header"))
        reason = str(first["msg"]).removeprefix("Value error, ")
        if first["type"] == "string_unicode":
            reason = "is not UTF-8 text"
        return refusal(422, f"{place}: {reason}" if place and not reason.startswith(f"{place}:") else reason)
