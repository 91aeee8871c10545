"""Routes for programs that call Python functions: sessions, calls, events and results."""

import asyncio
import base64
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO
from weakref import WeakValueDictionary

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from fairlead.calls import payloads
from fairlead.data_folder import NotPlain, open_plain
from fairlead.engines.step import Stalled
from fairlead.model.api_types import Cancelled, Changed, Event, Events, SessionInfo, SubmittedMany
from fairlead.model.specs import Call, Work
from fairlead.people.accounts import Person
from fairlead.people.bounds import default_bounds
from fairlead.people.rules import Caller, check_acts
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State
from fairlead.service.api.access import Known
from fairlead.service.api.answers import Bytes, Json
from fairlead.service.api.requests import (
    LARGEST_BODY,
    LONGEST_WAIT,
    CallsJob,
    CallsRequest,
    Identity,
    Key,
    Number,
    SessionRequest,
)
from fairlead.service.api.state_client import StateClient, spec_of
from fairlead.service.api.submitting import JobSubmission, Submitter
from fairlead.service.loop import Busy
from fairlead.service.sessions import Sessions, calls_of, open_result, unfinished_calls, with_results
from fairlead.service.wakeups import heard_within

log = logging.getLogger("fairlead")

MOST_EVENTS = 1000
MANY_CALLS = 20
SILENT_CHECK_SECONDS = 10.0
"""Between two searches for sessions whose program is gone."""
PIECE_BYTES = 2**20
SMALL_RESULT = 64 * 2**10
"""Bytes of a result that its event includes; a larger one is fetched separately."""

NOBODY = -1
"""The uid under which sessions of vanished programs are closed."""


class SerialPerPerson:
    """Something done in threads, one at a time per person, so nobody takes more than one of the shared threads."""

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def do(self, uid: int, what: Callable[[], None]) -> None:
        """Do it for a person, after their earlier ones."""
        turn = self._turns.setdefault(uid, asyncio.Lock())
        async with turn:
            await asyncio.to_thread(what)


_closing = SerialPerPerson()


def add_calls(api: APIRouter, client: StateClient, submitter: Submitter, sessions: Sessions) -> None:
    @api.post("/v1/sessions", status_code=201, response_model=SessionInfo)
    async def open_session(request: SessionRequest, caller: Known) -> Response:
        """Open a session for a program that calls Python functions. It lasts while the program asks for its events."""
        most = default_bounds(client.authenticator.rules, caller).programs
        return Json({"id": await asyncio.to_thread(sessions.create, request.model_dump(), caller.person, most)}, 201)

    @api.put(
        "/v1/sessions/{session}/payloads/{payload}",
        response_model=Changed,
        max_body_size=payloads.LARGEST_PAYLOAD,
        openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}},
    )
    async def put_payload(session: Identity, payload: Identity, request: Request, caller: Known) -> Response:
        """Upload a payload that is too large to submit with its calls."""
        await _check(client, sessions, session, caller)
        with sessions.putting(session, caller.person, payload) as write:
            async for piece in request.stream():
                await asyncio.to_thread(write, piece)
        return Json({"changed": True})

    @api.post("/v1/sessions/{session}/calls", status_code=201, response_model=SubmittedMany)
    async def call(session: Identity, request: CallsRequest, caller: Known, key: Key = "") -> Response:
        """Submit calls: jobs whose tasks are calls of Python functions."""
        await _check(client, sessions, session, caller)
        folder = sessions.touch(session, caller.person.uid)
        put = partial(_put, sessions, session, caller.person, folder)
        counts = await asyncio.to_thread(lambda: [put(job) for job in request.jobs])
        asked = [
            JobSubmission(job, count, False, Work([job.name or "python"], call=Call(session, job.payload)), {})
            for job, count in zip(request.jobs, counts, strict=True)
        ]
        return Json({"jobs": await submitter.submit(caller, asked, key)}, 201)

    @api.get("/v1/sessions/{session}/events", response_model=Events)
    async def events(
        session: Identity,
        caller: Known,
        epoch: str = "",
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 0,
    ) -> Response:
        """Return what happened to the calls. Events before `after` count as seen; their results are deleted."""
        await _check(client, sessions, session, caller)
        look = partial(sessions.events, session, caller.person.uid, epoch, after, MOST_EVENTS)
        following, found = await _first_events(client, caller, sessions, session, look, wait)
        if found:
            await _check(client, sessions, session, caller)  # calls may have been added meanwhile
            folder = sessions.touch(session, caller.person.uid)
            found = await asyncio.to_thread(with_results, found, folder, caller.person.uid, SMALL_RESULT, LARGEST_BODY)
        return Json({"epoch": sessions.epoch, "next": following, "events": found})

    @api.get("/v1/sessions/{session}/results/{job}/{index}", response_class=Bytes)
    async def result(session: Identity, job: Number, index: Number, caller: Known) -> Response:
        """Return the pickled result of a call."""
        await _check(client, sessions, session, caller)
        uid = caller.person.uid
        file = await asyncio.to_thread(open_result, sessions.touch(session, uid), uid, job, index)
        if file is None:
            raise Unknown(f"call {job}.{index} has no result")
        size = os.fstat(file.fileno()).st_size
        headers = {"Content-Length": str(size)}
        return StreamingResponse(_pieces(file, size), media_type="application/octet-stream", headers=headers)

    @api.delete("/v1/sessions/{session}", response_model=Cancelled)
    async def close_session(session: Identity, caller: Known) -> Response:
        """Close a session: cancel its unfinished calls, delete its results, end its workers."""
        await _check(client, sessions, session, caller)
        return Json({"cancelled": await end_session(client, sessions, session, caller)})


def add_files(api: APIRouter, client: StateClient, sessions: Sessions) -> None:
    @api.get("/v1/jobs/{job}/tasks/{index}/files", response_class=Bytes)
    async def files(job: Number, index: Number, caller: Known) -> Response:
        """Return the files that came back from a task of a job with a sent folder, as tar.gz; empty if there are none."""

        def view(state: State) -> tuple[Call | None, int | None]:
            spec = spec_of(state, job)
            check_acts(client.authenticator.rules, caller, job, spec)
            return spec.work.call, spec.uid

        call, uid = await client.read(view)
        file = None
        if call is not None and call.fetch and uid is not None:
            file = await asyncio.to_thread(open_result, sessions.folder / call.session, uid, job, index)
        if file is None:
            return Bytes(b"")
        size = os.fstat(file.fileno()).st_size
        return StreamingResponse(_pieces(file, size), headers={"Content-Length": str(size)})


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield `size` bytes of a file in pieces, then close it."""
    with file:
        while size and (piece := file.read(min(size, PIECE_BYTES))):
            size -= len(piece)
            yield piece


async def _first_events(
    client: StateClient,
    caller: Caller,
    sessions: Sessions,
    session: str,
    look: Callable[[], tuple[int, list[Event]]],
    wait: float,
) -> tuple[int, list[Event]]:
    """Return the available events, or wait up to `wait` seconds for the first."""
    until = time.monotonic() + wait
    with client.listening(caller, ("session", session)) as heard:
        while True:
            following, found = look()
            if found and wait and all(event["status"] == "running" for event in found):
                # A short call ends in a moment: report both events together.
                heard.clear()
                await heard_within(heard, 0.005)
                following, found = look()
            elif found and wait and sessions.going(session) > MANY_CALLS:
                # The program is busy without these: report more at once.
                await asyncio.sleep(0.01)
                following, found = look()
            left = until - time.monotonic()
            if found or left <= 0 or client.loop.stopped.is_set():
                return following, found
            caller = await client.heard_within(caller, heard, left)


async def close_silent_sessions(client: StateClient, sessions: Sessions) -> None:
    """Close sessions whose program is gone, for ever."""
    while True:
        await asyncio.sleep(SILENT_CHECK_SECONDS)
        for session in sessions.silent():
            try:
                await end_session(client, sessions, session)
            except (Stalled, Busy, TimeoutError):  # try again next time
                pass
            except Exception:  # still close the others
                log.exception("session %s cannot be closed", session)


async def end_session(client: StateClient, sessions: Sessions, session: str, caller: Caller | None = None) -> list[int]:
    """Close a session, for a caller or because its program is gone; raises Forbidden if their token misses a queue."""

    def question(state: State, now: float) -> tuple[list[Fact], list[int]]:
        if caller is not None:
            _check_queues(client, state, caller, calls_of(state, session))
        facts = unfinished_calls(state, session, now)
        return list(facts), [fact.id for fact in facts]

    by = caller.person.name if caller is not None else ""
    cancelled: list[int] = await client.ask(question, changes=True, by=by)
    await _closing.do(caller.person.uid if caller is not None else NOBODY, partial(sessions.close, session))
    return cancelled


async def _check(client: StateClient, sessions: Sessions, session: str, caller: Caller) -> None:
    """Raise Unknown for another person's session, Forbidden if the token misses a queue of its calls."""
    sessions.touch(session, caller.person.uid)
    if caller.queues is not None:
        calls = sessions.calls(session)
        await client.read(lambda state: _check_queues(client, state, caller, calls))


def _check_queues(client: StateClient, state: State, caller: Caller, numbers: Iterable[int]) -> None:
    if caller.queues is not None:
        for number in numbers:
            spec = state.index.specs.get(number)
            if spec is not None:
                check_acts(client.authenticator.rules, caller, number, spec)


def _put(sessions: Sessions, session: str, person: Person, folder: Path, job: CallsJob) -> int:
    """Store the payload that came with a job; return its number of calls."""
    try:
        if job.data is not None:
            with sessions.putting(session, person, job.payload) as write:
                write(base64.b64decode(job.data, validate=True))
        with open_plain(folder / job.payload, person.uid) as file:
            return payloads.count(file, os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        raise Unknown(f"payload {job.payload} is missing: put it first, or send it as data") from None
    except NotPlain:
        raise Refused(f"payload {job.payload}: cannot be read: put it again, under another name") from None
    except ValueError as error:
        raise Refused(f"payload {job.payload}: {error}") from None
