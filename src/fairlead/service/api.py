"""The HTTP API. Thin: check the token, validate, ask the loop, answer JSON.

Errors are one JSON object, `{"error": "..."}`: 400 for what is refused, 401 without the token, 404 for what is not there, 409
for what contradicts an earlier request, 410 for facts that are gone, 413 and 422 for a body that is too large or not what it
should be, 429 and 503 for a scheduler that cannot take more now.
"""

import asyncio
import base64
import hashlib
import hmac
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import fairlead
from fairlead.engines import calls
from fairlead.journal import Forgotten, Journal
from fairlead.model.answers import (
    Cancelled,
    Changed,
    Events,
    JobInfo,
    JobPage,
    JobStatus,
    NodeList,
    QueueList,
    SessionInfo,
    Status,
    Submitted,
    SubmittedMany,
    TaskPage,
    Why,
)
from fairlead.model.documents import Configuration, DocumentError
from fairlead.model.specs import Call, Work
from fairlead.scheduler import admission, report
from fairlead.scheduler.admission import Conflict, Refused, Unknown
from fairlead.scheduler.explain import explain
from fairlead.scheduler.facts import Configured, Fact
from fairlead.scheduler.state import State
from fairlead.service import metrics
from fairlead.service.bell import Bell, heard_within
from fairlead.service.loop import Busy, Loop, Question
from fairlead.service.requests import (
    CallsJob,
    CallsRequest,
    CancelManyRequest,
    CancelRequest,
    DownRequest,
    JobAsked,
    JobRequest,
    JobsRequest,
    SessionRequest,
)
from fairlead.service.scheduler import Stalled
from fairlead.service.sessions import Sessions, unfinished_calls, with_results

LARGEST_BODY = 16 * 2**20
ANSWER_WITHIN = 30.0
"""Seconds after which a request is told to come back."""
MOST_WAITERS = 2000
"""Requests that wait for something to happen, at once: long polls and streams."""
LONGEST_WAIT = 60.0
PAGE_OF_FACTS = 500
MOST_EVENTS = 1000
MANY_CALLS = 20
SMALL_RESULT = 64 * 2**10
"""Bytes of a result that is told with its event; a larger one is asked for by itself."""

Number = Annotated[int, PathParameter(ge=0, le=2**53)]
NodeName = Annotated[str, PathParameter(max_length=253)]
Identity = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{32}$")]
Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for it to end; 0: answer at once.")]


class Error(BaseModel):
    """What was wrong, and what would be right."""

    error: str


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    schema = {"application/json": {"schema": Error.model_json_schema()}}
    return {code: {"description": HTTPStatus(code).phrase, "content": schema} for code in codes}


class Asker:
    """Asks the loop from the event loop."""

    def __init__(self, loop: Loop, bell: Bell) -> None:
        self.loop, self.bell = loop, bell
        self._waiters = 0

    async def ask(self, question: Question, changes: bool = False) -> Any:
        return await asyncio.wait_for(asyncio.wrap_future(self.loop.ask(question, changes)), ANSWER_WITHIN)

    async def read(self, view: Callable[[State], Any]) -> Any:
        return await self.ask(lambda state, now: ([], view(state)))

    async def change(self, make: Callable[[State, float], Fact | None]) -> bool:
        """Let a fact happen, if there is one; returns whether there was."""

        def question(state: State, now: float) -> tuple[list[Fact], bool]:
            fact = make(state, now)
            return ([fact] if fact else []), fact is not None

        changed: bool = await self.ask(question, changes=True)
        return changed

    @contextmanager
    def waiter(self) -> Iterator[None]:
        """Count one that waits; too many are turned away."""
        if self._waiters >= MOST_WAITERS:
            raise Busy(f"{MOST_WAITERS} requests wait for something to happen already: try again in a moment")
        self._waiters += 1
        try:
            yield
        finally:
            self._waiters -= 1


def make_api(
    asker: Asker,
    journal: Journal,
    sessions: Sessions,
    home: Path,
    token: str,
    down: Callable[[bool], None],
    read_again: Callable[[], Configuration],
) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    asker : Asker
    journal : Journal
        Where past facts are read.
    sessions : Sessions
        Of the programs that call Python functions here.
    home : Path
        The data folder; output of tasks is under it.
    token : str
        What every request must bear.
    down : callable
        Stops the scheduler; its argument tells whether running tasks are stopped as well.
    read_again : callable
        Reads the configuration; raises DocumentError.
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
        default_response_class=_Json,
    )
    _answer_errors_in_one_line(app)
    checks = [Depends(_authentication(token)), Depends(_refusing_unknown_queries(app))]
    authenticated = APIRouter(dependencies=checks, responses=_errors(400, 401, 404, 409, 413, 422, 429, 503))
    _add_jobs(authenticated, asker, home)
    _add_cluster(authenticated, asker, down, read_again)
    _add_facts(authenticated, asker, journal)
    _add_calls(authenticated, asker, sessions)
    app.include_router(authenticated)
    _add_health(app, asker.loop)
    return app


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
                answer = _error(413, f"the body is larger than {LARGEST_BODY >> 20} MiB")
                await answer(scope, receive, send)
            elif not refused:
                await send(message)

        await self._app(scope, receive, send_on)


class _Bytes(Response):
    media_type = "application/octet-stream"


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


class _Json(JSONResponse):
    """Written by msgspec, which takes a tenth of the time."""

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def _authentication(token: str) -> Callable[..., Awaitable[None]]:
    expected = token.encode()
    bearer = HTTPBearer(auto_error=False)

    async def authenticate(given: Annotated[Any, Depends(bearer)]) -> None:
        if given is None or not hmac.compare_digest(given.credentials.encode("utf-8", "replace"), expected):
            raise HTTPException(
                401, "a token is needed: send 'Authorization: Bearer TOKEN' with the one in the token file"
            )

    return authenticate


Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key", max_length=200, description="The same key again gives the same jobs, and no new ones."
    ),
]


async def _submit(asker: Asker, asked: Sequence[tuple[JobAsked, int, bool, Work]], key: str) -> list[Submitted]:
    """Submit jobs, each with its number of tasks, whether they are a gang, and their work: all or none."""
    digest = _digest(asked) if key else ""

    def question(state: State, now: float) -> tuple[list[Fact], list[Submitted]]:
        jobs = []
        for number, (request, tasks, gang, work) in enumerate(asked):
            try:
                leaf = admission.leaf_for(state, request.queue, request.user)
                jobs.append(request.to_job(leaf, tasks, gang, work, digest))
                warning = admission.too_large(state, jobs[-1])
                if warning and request.strict:
                    raise Refused(warning.partition(": ")[0])
            except Refused as refused:
                raise type(refused)(f"jobs.{number}: {refused}") if len(asked) > 1 else refused from None
        first = admission.repeated(state, key, digest)
        facts: list[Fact] = []
        if first is None:
            first = state.last_job + 1
            jobs[0] = msgspec.structs.replace(jobs[0], key=key)
            facts += admission.submit(state, jobs, now)
        answers: list[Submitted] = [
            {"id": number, "queue": job.queue, "warning": admission.too_large(state, job)}
            for number, job in enumerate(jobs, first)
        ]
        return facts, answers

    answers: list[Submitted] = await asker.ask(question, changes=True)
    return answers


def _commands(request: JobRequest) -> tuple[JobAsked, int, bool, Work]:
    return request, 1 if request.tasks is None else request.tasks, request.gang, request.work()


def _digest(asked: Sequence[tuple[JobAsked, int, bool, Work]]) -> str:
    digest = hashlib.sha256()
    for request, *_ in asked:
        digest.update(request.model_dump_json().encode() + b"\n")
    return digest.hexdigest()


def _add_jobs(api: APIRouter, asker: Asker, home: Path) -> None:
    @api.post("/v1/jobs", status_code=201, response_model=Submitted)
    async def submit(request: JobRequest, key: Key = "") -> Response:
        """Submit a job. It is in the journal when this answers."""
        (answer,) = await _submit(asker, [_commands(request)], key)
        return _Json(answer, 201)

    @api.post("/v1/bulk", status_code=201, response_model=SubmittedMany)
    async def submit_many(request: JobsRequest, key: Key = "") -> Response:
        """Submit jobs together: all of them, or none and say which is wrong."""
        return _Json({"jobs": await _submit(asker, [_commands(job) for job in request.jobs], key)}, 201)

    @api.get("/v1/jobs", response_model=JobPage)
    async def jobs(
        queue: str | None = None,
        user: str | None = None,
        status: JobStatus | None = None,
        before: Annotated[int | None, Query(ge=0, le=2**53, description="Of those with a lower number.")] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    ) -> Response:
        """The newest jobs, newest first; `next` is the `before` of the next page."""
        return _Json(
            await asker.read(
                lambda s: report.list_jobs(s, queue=queue, user=user, status=status, before=before, limit=limit)
            )
        )

    @api.get("/v1/jobs/{job}", response_model=JobInfo)
    async def job(job: Number, wait: Wait = 0) -> Response:
        """One job; with `wait`, as soon as it has ended, or as it is after so many seconds."""
        until = time.monotonic() + wait
        with asker.waiter(), asker.bell.listen([("job", job)]) as heard:
            while True:
                found = await asker.read(lambda s: report.describe_job(s, job))
                left = until - time.monotonic()
                if found["finished_at"] is not None or left <= 0 or asker.loop.stopped.is_set():
                    return _Json(found)
                await heard_within(heard, left)

    @api.get("/v1/jobs/{job}/tasks", response_model=TaskPage)
    async def tasks(
        job: Number,
        first: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """Tasks of a job by index."""
        return _Json(await asker.read(lambda s: report.describe_tasks(s, job, first, limit)))

    @api.get("/v1/jobs/{job}/tasks/{index}/output/{stream}", response_class=_Bytes)
    async def output(
        job: Number,
        index: Number,
        stream: Literal["out", "err"],
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=2**20)] = 2**20,
    ) -> Response:
        """A piece of what a task wrote, as bytes, from an offset on; empty where there is no more yet."""
        count = (await asker.read(lambda s: report.describe_job(s, job)))["tasks"]
        if not 0 <= index < count:
            raise Unknown(f"job {job} has no task {index}: its tasks are 0 to {count - 1}")
        path = home / "output" / str(job) / f"{index}.{stream}"
        return _Bytes(await asyncio.to_thread(_piece, path, offset, limit))

    @api.post("/v1/jobs/{job}/cancel", response_model=Changed)
    async def cancel(job: Number, request: CancelRequest) -> Response:
        """Cancel a job, or some of its tasks. What runs is told to end; what waits never starts."""
        chosen, only_waiting = request.indices, request.only_waiting
        return _Json(
            {"changed": await asker.change(lambda s, now: admission.cancel(s, job, chosen, now, only_waiting))}
        )

    @api.post("/v1/cancel", response_model=Cancelled)
    async def cancel_many(request: CancelManyRequest) -> Response:
        """Cancel jobs by number, or all of a queue. An unknown number refuses the whole."""

        def question(state: State, now: float) -> tuple[list[Fact], list[int]]:
            chosen = list(dict.fromkeys(request.jobs))
            if request.queue is not None:
                chosen += admission.unfinished(state, request.queue, request.user)
            facts: list[Fact] = [f for f in (admission.cancel(state, job, None, now) for job in chosen) if f]
            return facts, [fact.id for fact in facts]  # type: ignore[attr-defined]

        return _Json({"cancelled": await asker.ask(question, changes=True)})

    @api.get("/v1/jobs/{job}/why", response_model=Why)
    async def why(job: Number) -> Response:
        """What a job waits for, now."""
        return _Json(await asker.read(lambda s: explain(s, job)))

    @api.post("/v1/jobs/{job}/hold", response_model=Changed)
    async def hold(job: Number) -> Response:
        """Keep the tasks of a job that wait from starting."""
        return _Json({"changed": await asker.change(lambda s, now: admission.hold(s, job, now))})

    @api.post("/v1/jobs/{job}/release", response_model=Changed)
    async def release(job: Number) -> Response:
        """Undo a hold."""
        return _Json({"changed": await asker.change(lambda s, now: admission.release(s, job, now))})


def _add_cluster(
    api: APIRouter, asker: Asker, down: Callable[[bool], None], read_again: Callable[[], Configuration]
) -> None:
    @api.get("/v1/status", response_model=Status)
    async def status() -> Response:
        """Whether the scheduler is well: its version, how much it knows, and why it is stalled, if it is."""
        counts = await asker.read(
            lambda s: {
                "nodes": int(s.nodes.up[: s.nodes.n].sum()),
                "jobs": len(s.specs),
                "running": int(s.queues.tasks[0]),
            }
        )
        loop = asker.loop
        about = {
            "version": fairlead.__version__,
            "pid": os.getpid(),
            "stalled": loop.stalled,
            "position": loop.position,
        }
        return _Json({**about, **counts})

    @api.get("/v1/queues", response_model=QueueList)
    async def queues() -> Response:
        """The queue tree with what each uses."""
        return _Json({"queues": await asker.read(report.list_queues)})

    @api.get("/v1/nodes", response_model=NodeList)
    async def nodes() -> Response:
        """The nodes with what is used of each."""
        return _Json({"nodes": await asker.read(report.list_nodes)})

    @api.post("/v1/nodes/{node}/drain", response_model=Changed)
    async def drain(node: NodeName) -> Response:
        """Let a node finish what it has and take no more."""
        return _Json({"changed": await asker.change(lambda s, now: admission.drain(s, node, now))})

    @api.post("/v1/nodes/{node}/resume", response_model=Changed)
    async def resume(node: NodeName) -> Response:
        """Undo a drain."""
        return _Json({"changed": await asker.change(lambda s, now: admission.resume(s, node, now))})

    @api.post("/v1/reload", response_model=Changed)
    async def reload_configuration() -> Response:
        """Read the configuration file again: its queues and settings. One that is wrong is refused whole."""
        try:
            configuration = await asyncio.to_thread(read_again)
        except DocumentError as error:
            raise Refused(str(error)) from None
        return _Json({"changed": await asker.change(lambda s, now: configure(s, configuration, now))})

    @api.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        """What Prometheus reads."""
        text = await asker.read(lambda s: metrics.exposition(report.list_queues(s), report.list_nodes(s)))
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @api.post("/v1/down", status_code=202, response_model=Changed)
    async def stop(request: DownRequest) -> Response:
        """Stop the scheduler: when what runs has ended, or now, and then what runs is stopped and will start again."""
        down(request.now)
        return _Json({"changed": True}, 202)


def _add_facts(api: APIRouter, asker: Asker, journal: Journal) -> None:
    async def begin(
        after: Annotated[
            int | None, Query(ge=0, le=2**53, description="Those after this position. Default: new ones.")
        ] = None,
        last_event_id: Annotated[
            int | None, Header(ge=0, le=2**53, description="As `after`: where a stream broke off.")
        ] = None,
    ) -> int:
        chosen = last_event_id if last_event_id is not None else after
        position = chosen if chosen is not None else asker.loop.position
        await asyncio.to_thread(journal.look, position, 1)  # tells before the stream begins if they are gone
        return position

    @api.get("/v1/facts", response_class=EventSourceResponse, responses=_errors(410))
    async def facts(
        after: Annotated[int, Depends(begin)],
        follow: Annotated[bool, Query(description="Whether to wait for more at the end.")] = True,
    ) -> AsyncIterator[ServerSentEvent]:
        """A stream of facts: everything that happened, in order, each with its position as its id.

        It is read from the journal as fast as the reader takes it, so that a slow reader costs nothing. The oldest facts are
        dropped from the journal after a while: 410 then.
        """
        with asker.waiter(), asker.bell.listen(["facts"]) as heard:
            while True:
                page = await asyncio.to_thread(journal.look, after, PAGE_OF_FACTS)
                for position, body in page:
                    after = position
                    kind = msgspec.json.decode(body, type=_Tagged).type
                    yield ServerSentEvent(raw_data=body.decode(), event=kind, id=str(position))
                if asker.loop.stopped.is_set() or (not follow and len(page) < PAGE_OF_FACTS):
                    return
                if not page:
                    await heard_within(heard, LONGEST_WAIT)


class _Tagged(msgspec.Struct):
    type: str


def _add_calls(api: APIRouter, asker: Asker, sessions: Sessions) -> None:
    @api.post("/v1/sessions", status_code=201, response_model=SessionInfo)
    async def open_session(request: SessionRequest) -> Response:
        """Open a session for a program that calls Python functions. It lasts as long as its events are asked for."""
        return _Json({"id": await asyncio.to_thread(sessions.create, request.model_dump())}, 201)

    @api.put(
        "/v1/sessions/{session}/payloads/{payload}",
        response_model=Changed,
        max_body_size=calls.LARGEST_PAYLOAD,
        openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}},
    )
    async def put_payload(session: Identity, payload: Identity, request: Request) -> Response:
        """Put a payload that is too large to be submitted with its calls."""
        fresh = sessions.touch(session) / f"{payload}.{uuid.uuid4().hex}"
        try:
            with fresh.open("wb") as file:
                async for piece in request.stream():
                    await asyncio.to_thread(file.write, piece)
            fresh.rename(fresh.with_suffix(""))
        finally:
            fresh.unlink(missing_ok=True)
        return _Json({"changed": True})

    @api.post("/v1/sessions/{session}/calls", status_code=201, response_model=SubmittedMany)
    async def call(session: Identity, request: CallsRequest, key: Key = "") -> Response:
        """Submit calls: jobs whose tasks are calls of Python functions."""
        folder = sessions.touch(session)
        counts = await asyncio.to_thread(lambda: [_put(folder, job) for job in request.jobs])
        asked = [
            (job, count, False, Work([job.name or "python"], call=Call(session, job.payload)))
            for job, count in zip(request.jobs, counts, strict=True)
        ]
        return _Json({"jobs": await _submit(asker, asked, key)}, 201)

    @api.get("/v1/sessions/{session}/events", response_model=Events)
    async def events(
        session: Identity,
        epoch: str = "",
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 0,
    ) -> Response:
        """What happened to the calls; those before `after` were seen, and their results are dropped."""
        until = time.monotonic() + wait
        with asker.waiter(), asker.bell.listen([("session", session)]) as heard:
            while True:
                following, found = sessions.events(session, epoch, after, MOST_EVENTS)
                if found and wait and all(event["status"] == "running" for event in found):
                    # A small call ends in a moment: tell both at once.
                    heard.clear()
                    await heard_within(heard, 0.005)
                    following, found = sessions.events(session, epoch, after, MOST_EVENTS)
                elif found and wait and sessions.going(session) > MANY_CALLS:
                    # It has enough to do without these: tell more at once.
                    await asyncio.sleep(0.01)
                    following, found = sessions.events(session, epoch, after, MOST_EVENTS)
                left = until - time.monotonic()
                if found or left <= 0 or asker.loop.stopped.is_set():
                    break
                await heard_within(heard, left)
        if found:
            folder = sessions.touch(session)
            found = await asyncio.to_thread(with_results, found, folder, SMALL_RESULT, LARGEST_BODY)
        return _Json({"epoch": sessions.epoch, "next": following, "events": found})

    @api.get("/v1/sessions/{session}/results/{job}/{index}", response_class=_Bytes)
    async def result(session: Identity, job: Number, index: Number) -> Response:
        """The pickled result of a call."""
        path = sessions.touch(session) / calls.result_name(job, index)
        if not path.exists():
            raise Unknown(f"call {job}.{index} has no result here")
        return FileResponse(path, media_type="application/octet-stream")

    @api.delete("/v1/sessions/{session}", response_model=Cancelled)
    async def close_session(session: Identity) -> Response:
        """Close a session: what it still asks for is cancelled, its results are dropped and its workers end."""
        sessions.touch(session)
        return _Json({"cancelled": await _close(asker, sessions, session)})


async def close_silent_sessions(asker: Asker, sessions: Sessions) -> None:
    """Close, for ever, the sessions whose program is gone."""
    while True:
        await asyncio.sleep(10)
        for session in sessions.silent():
            with suppress(Stalled, Busy, TimeoutError):  # the next time
                await _close(asker, sessions, session)


async def _close(asker: Asker, sessions: Sessions, session: str) -> list[int]:
    def question(state: State, now: float) -> tuple[list[Fact], list[int]]:
        facts = unfinished_calls(state, session, now)
        return list(facts), [fact.id for fact in facts]

    cancelled: list[int] = await asker.ask(question, changes=True)
    await asyncio.to_thread(sessions.close, session)
    return cancelled


def _put(folder: Path, job: CallsJob) -> int:
    """Put the payload that came with a job into its file; returns how many calls it holds."""
    path = folder / job.payload
    try:
        if job.data is not None:
            fresh = folder / f"{job.payload}.{uuid.uuid4().hex}"
            fresh.write_bytes(base64.b64decode(job.data, validate=True))
            fresh.rename(path)
        return calls.count(path)
    except FileNotFoundError:
        raise Unknown(f"payload {job.payload} is not there: put it first, or send it as data") from None
    except ValueError as error:
        raise Refused(f"payload {job.payload}: {error}") from None


def _add_health(app: FastAPI, loop: Loop) -> None:
    @app.get("/healthz", responses=_errors(503))
    async def healthy() -> dict[str, bool]:
        """Whether the scheduler runs. Needs no token."""
        if loop.stopped.is_set():
            raise HTTPException(503, "the scheduler has ended")
        return {"ok": True}

    @app.get("/readyz", responses=_errors(503))
    async def ready() -> dict[str, bool]:
        """Whether it takes work on: its thread answers, and its journal can be written. Needs no token."""
        if loop.stopped.is_set() or loop.stopping or loop.stalled:
            raise HTTPException(503, "the scheduler takes nothing on now")
        await asyncio.wait_for(asyncio.wrap_future(loop.ask(lambda state, now: ([], None))), ANSWER_WITHIN)
        return {"ok": True}


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


def _error(code: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, code, headers)


def _answer_errors_in_one_line(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def _(request: Request, error: Refused) -> JSONResponse:
        return _error(404 if isinstance(error, Unknown) else 409 if isinstance(error, Conflict) else 400, str(error))

    @app.exception_handler(Busy)
    async def _(request: Request, error: Busy) -> JSONResponse:
        return _error(429, str(error))

    @app.exception_handler(Forgotten)
    async def _(request: Request, error: Forgotten) -> JSONResponse:
        return _error(410, str(error))

    @app.exception_handler(Stalled)
    async def _(request: Request, error: Stalled) -> JSONResponse:
        return _error(503, str(error))

    @app.exception_handler(TimeoutError)
    async def _(request: Request, error: TimeoutError) -> JSONResponse:
        return _error(503, "the scheduler is too busy to answer now: try again in a moment")

    @app.exception_handler(StarletteHTTPException)
    async def _(request: Request, error: StarletteHTTPException) -> JSONResponse:
        return _error(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> JSONResponse:
        return _error(500, f"a fault of fairlead's own, which its log tells more of: {type(error).__name__}")

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path", "header"))
        reason = str(first["msg"]).removeprefix("Value error, ")
        if first["type"] == "string_unicode":
            reason = "is not UTF-8 text"
        return _error(422, f"{place}: {reason}" if place and not reason.startswith(f"{place}:") else reason)
