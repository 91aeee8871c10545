"""The HTTP API. Thin: check the token, validate, ask the loop, answer JSON.

Errors are one JSON object, `{"error": "..."}`: 400 for what is refused, 401 without the token, 404 for what is not there, 413 and
422 for a body that is too large or not what it should be, 429 and 503 for a scheduler that cannot take more now.
"""

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException as StarletteHTTPException

import fairlead
from fairlead.model.documents import Configuration, DocumentError, read_quantities
from fairlead.model.specs import After, Job, Work
from fairlead.scheduler import admission, report
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.explain import explain
from fairlead.scheduler.facts import Configured, Fact
from fairlead.scheduler.state import State
from fairlead.service.loop import Busy, Loop, Question
from fairlead.service.scheduler import Stalled

LARGEST_BODY = 16 * 2**20
LARGEST_ENVIRONMENT = 512 * 2**10
ANSWER_WITHIN = 30.0
"""Seconds after which a request is told to come back."""


def _check_text(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"{text!r} has a NUL byte")
    return text


Text = Annotated[str, Field(max_length=4096), AfterValidator(_check_text)]
Argument = Annotated[str, Field(max_length=131_071), AfterValidator(_check_text)]

Number = Annotated[int, PathParameter(ge=0, le=2**53)]


def _check_environment(values: dict[str, str]) -> dict[str, str]:
    if sum(len(k) + len(v) + 2 for k, v in values.items()) > LARGEST_ENVIRONMENT:
        raise ValueError(f"the environment is larger than {LARGEST_ENVIRONMENT >> 10} KiB")
    for name in values:
        if not name or "=" in name:
            raise ValueError(f"{name!r} is no name of an environment variable")
    return values


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class AfterRequest(BaseModel):
    """A job that must have ended before."""

    model_config = ConfigDict(extra="forbid")

    job: Annotated[int, Field(ge=0, le=2**53)]
    how: Literal["success", "failure", "end"] = "success"


class JobRequest(BaseModel):
    """A job as it is submitted."""

    model_config = ConfigDict(extra="forbid")

    argv: Annotated[list[Argument], Field(min_length=1, max_length=100_000)]
    cwd: Text = "/"
    env: Annotated[dict[Text, Argument], AfterValidator(_check_environment)] = Field(default_factory=dict)
    demand: Annotated[dict[str, int], BeforeValidator(read_quantities), Field(max_length=64)]
    queue: Text | None = None
    user: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$")] = "nobody"
    name: Annotated[str, Field(max_length=256), AfterValidator(_check_text)] = ""
    tasks: int = 1
    priority: int = 0
    gang: bool = False
    retries: int = 0
    time_limit: float | None = None
    after: Annotated[list[AfterRequest], Field(max_length=1000)] = Field(default_factory=list)
    on: Annotated[
        dict[Text, Annotated[list[Text], BeforeValidator(_as_list), Field(min_length=1, max_length=100)]],
        Field(max_length=100),
    ] = Field(default_factory=dict)


class CancelRequest(BaseModel):
    """Which tasks; all where none are named."""

    model_config = ConfigDict(extra="forbid")

    indices: list[Annotated[int, Field(ge=0, lt=admission.MOST_TASKS)]] | None = Field(
        default=None, max_length=admission.MOST_TASKS
    )


class DownRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    now: bool = False


def make_api(
    loop: Loop, home: Path, token: str, down: Callable[[bool], None], read_again: Callable[[], Configuration]
) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    loop : Loop
    home : Path
        The data folder; output of tasks is under it.
    token : str
        What every request must bear.
    down : callable
        Stops the scheduler; its argument tells whether running tasks are stopped as well.
    read_again : callable
        Reads the configuration; raises DocumentError.
    """
    expected = f"Bearer {token}".encode()

    async def authenticate(authorization: Annotated[str, Header()] = "") -> None:
        if not hmac.compare_digest(authorization.encode(), expected):
            raise HTTPException(
                401, "a token is needed: send 'Authorization: Bearer TOKEN' with the one in the token file"
            )

    app = FastAPI(title="fairlead", version=fairlead.__version__, dependencies=[Depends(authenticate)])
    app.middleware("http")(_bound_the_body)
    _answer_errors_in_one_line(app)

    async def ask(question: Question, changes: bool = False) -> Any:
        return await asyncio.wait_for(asyncio.wrap_future(loop.ask(question, changes)), ANSWER_WITHIN)

    async def change(make: Callable[[State, float], Fact | None]) -> bool:
        """Let a fact happen, if there is one; returns whether there was."""

        def question(state: State, now: float) -> tuple[list[Fact], bool]:
            fact = make(state, now)
            return ([fact] if fact else []), fact is not None

        changed: bool = await ask(question, changes=True)
        return changed

    async def read(view: Callable[[State], Any]) -> Any:
        return await ask(lambda state, now: ([], view(state)))

    @app.get("/v1/status")
    async def status() -> dict[str, Any]:
        """Whether the scheduler is well: its version, how much it knows, and why it is stalled, if it is."""
        counts = await read(
            lambda s: {
                "nodes": int(s.nodes.up[: s.nodes.n].sum()),
                "jobs": len(s.specs),
                "running": int(s.queues.tasks[0]),
            }
        )
        return {"version": fairlead.__version__, "pid": os.getpid(), "stalled": loop.stalled, **counts}

    @app.post("/v1/jobs", status_code=201)
    async def submit(request: JobRequest) -> dict[str, Any]:
        """Submit a job. It is in the journal when this answers."""
        if request.demand.get("gpu", 0) % 1000:
            raise Refused("gpu: a part of a GPU cannot be given here: ask for a whole number")

        def question(state: State, now: float) -> tuple[list[Fact], dict[str, Any]]:
            leaf = admission.leaf_for(state, request.queue, request.user)
            work = Work(request.argv, request.cwd, request.env)
            job = Job(
                queue=leaf,
                demand=request.demand,
                tasks=request.tasks,
                on=request.on,
                priority=request.priority,
                gang=request.gang,
                retries=request.retries,
                time_limit=request.time_limit,
                after=[After(after.job, after.how) for after in request.after],
                name=request.name,
                user=request.user,
                work=work,
            )
            fact = admission.submit(state, job, now)
            return [fact], {"id": fact.id, "queue": leaf, "warning": admission.too_large(state, job)}

        answer: dict[str, Any] = await ask(question, changes=True)
        return answer

    @app.get("/v1/jobs")
    async def jobs(
        queue: str | None = None,
        user: str | None = None,
        status: Literal["waiting", "held", "running", "succeeded", "failed", "cancelled"] | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    ) -> dict[str, Any]:
        """The newest jobs, newest first."""
        return {"jobs": await read(lambda s: report.list_jobs(s, queue=queue, user=user, status=status, limit=limit))}

    @app.get("/v1/jobs/{job}")
    async def job(job: Number) -> dict[str, Any]:
        """One job."""
        found: dict[str, Any] = await read(lambda s: report.describe_job(s, job))
        return found

    @app.get("/v1/jobs/{job}/tasks")
    async def tasks(
        job: Number,
        first: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> dict[str, Any]:
        """Tasks of a job by index."""
        return {"tasks": await read(lambda s: report.describe_tasks(s, job, first, limit))}

    @app.get("/v1/jobs/{job}/tasks/{index}/output/{stream}")
    async def output(
        job: Number,
        index: Number,
        stream: Literal["out", "err"],
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=2**20)] = 2**20,
    ) -> Response:
        """A piece of what a task wrote, as bytes, from an offset on; empty where there is no more yet."""
        count = (await read(lambda s: report.describe_job(s, job)))["tasks"]
        if not 0 <= index < count:
            raise Refused(f"job {job} has no task {index}: its tasks are 0 to {count - 1}")
        path = home / "output" / str(job) / f"{index}.{stream}"
        return Response(await asyncio.to_thread(_piece, path, offset, limit), media_type="application/octet-stream")

    @app.post("/v1/jobs/{job}/cancel")
    async def cancel(job: Number, request: CancelRequest) -> dict[str, Any]:
        """Cancel a job, or some of its tasks. What runs is told to end; what waits never starts."""
        return {"id": job, "cancelled": await change(lambda s, now: admission.cancel(s, job, request.indices, now))}

    @app.get("/v1/jobs/{job}/why")
    async def why(job: Number) -> dict[str, Any]:
        """What a job waits for, now."""
        found: dict[str, Any] = await read(lambda s: explain(s, job))
        return found

    @app.post("/v1/jobs/{job}/hold")
    async def hold(job: Number) -> dict[str, Any]:
        """Keep the tasks of a job that wait from starting."""
        return {"id": job, "changed": await change(lambda s, now: admission.hold(s, job, now))}

    @app.post("/v1/jobs/{job}/release")
    async def release(job: Number) -> dict[str, Any]:
        """Undo a hold."""
        return {"id": job, "changed": await change(lambda s, now: admission.release(s, job, now))}

    @app.post("/v1/nodes/{node}/drain")
    async def drain(node: str) -> dict[str, Any]:
        """Let a node finish what it has and take no more."""
        return {"name": node, "changed": await change(lambda s, now: admission.drain(s, node, now))}

    @app.post("/v1/nodes/{node}/resume")
    async def resume(node: str) -> dict[str, Any]:
        """Undo a drain."""
        return {"name": node, "changed": await change(lambda s, now: admission.resume(s, node, now))}

    @app.post("/v1/reload")
    async def reload_configuration() -> dict[str, Any]:
        """Read the configuration file again: its queues and settings. One that is wrong is refused whole."""
        try:
            configuration = await asyncio.to_thread(read_again)
        except DocumentError as error:
            raise Refused(str(error)) from None
        return {"changed": await change(lambda s, now: configure(s, configuration, now))}

    @app.get("/v1/queues")
    async def queues() -> dict[str, Any]:
        """The queue tree with what each uses."""
        return {"queues": await read(report.list_queues)}

    @app.get("/v1/nodes")
    async def nodes() -> dict[str, Any]:
        """The nodes with what is used of each."""
        return {"nodes": await read(report.list_nodes)}

    @app.post("/v1/down", status_code=202)
    async def stop(request: DownRequest) -> dict[str, Any]:
        """Stop the scheduler: when what runs has ended, or now, and then what runs is stopped and will start again."""
        down(request.now)
        return {"stopping": True}

    return app


def configure(state: State, configuration: Configuration, now: float) -> Configured | None:
    """The fact that a configuration comes to; None if it is in force already."""
    same = list(state.declared.values()) == configuration.queues and state.settings == configuration.settings
    return None if same else admission.configure(state, configuration.queues, configuration.settings, now)


def _piece(path: Path, offset: int, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError:  # it has not started
        return b""


async def _bound_the_body(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Refuse a large body before reading it; a body of unknown length is not taken at all."""
    length = request.headers.get("content-length")
    if request.method == "POST" and (length is None or not length.isdigit() or int(length) > LARGEST_BODY):
        return _error(413, f"the body must say its length, at most {LARGEST_BODY >> 20} MiB")
    return await call_next(request)


def _error(code: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=code)


def _answer_errors_in_one_line(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def _(request: Request, error: Refused) -> JSONResponse:
        return _error(404 if isinstance(error, Unknown) else 400, str(error))

    @app.exception_handler(Busy)
    async def _(request: Request, error: Busy) -> JSONResponse:
        return _error(429, str(error))

    @app.exception_handler(Stalled)
    async def _(request: Request, error: Stalled) -> JSONResponse:
        return _error(503, str(error))

    @app.exception_handler(TimeoutError)
    async def _(request: Request, error: TimeoutError) -> JSONResponse:
        return _error(503, "the scheduler is too busy to answer now: try again in a moment")

    @app.exception_handler(StarletteHTTPException)
    async def _(request: Request, error: StarletteHTTPException) -> JSONResponse:
        return _error(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> JSONResponse:
        return _error(500, f"a fault of fairlead's own, which its log tells more of: {type(error).__name__}")

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
        reason = str(first["msg"]).removeprefix("Value error, ")
        if first["type"] == "string_unicode":
            reason = "is not UTF-8 text"
        return _error(422, f"{place}: {reason}" if place and not reason.startswith(f"{place}:") else reason)
