"""Routes for programs that call Python functions: sessions, leases, events and relays."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, BinaryIO
from weakref import WeakValueDictionary

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from fairlead.calls.parcel import MOST_BYTES
from fairlead.calls.payloads import LARGEST_PAYLOAD
from fairlead.calls.stream import LARGEST_BYTES
from fairlead.engines.step import Stalled
from fairlead.model.api_types import Cancelled, Changed, Events, SessionInfo, SubmittedMany
from fairlead.model.specs import Call, Work
from fairlead.people.bounds import default_bounds
from fairlead.people.rules import Caller, check_acts
from fairlead.scheduler.admission import cancel
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State
from fairlead.service.api.access import Known
from fairlead.service.api.answers import BYTES_BODY, Bytes, Json
from fairlead.service.api.requests import LONGEST_WAIT, Identity, Key, LeasesRequest, Number, SessionRequest
from fairlead.service.api.state_client import StateClient
from fairlead.service.api.submitting import JobSubmission, Submitter
from fairlead.service.loop import Busy
from fairlead.service.sessions import Sessions, open_result

log = logging.getLogger("fairlead")

MOST_EVENTS = 1000
SILENT_CHECK_SECONDS = 10.0
"""Between two searches for sessions whose program is gone."""
DUE_CHECK_SECONDS = 0.25
"""Between two searches for leases that are due to others."""
PIECE_BYTES = 2**20

NOBODY = -1
"""The uid under which sessions of vanished programs are closed."""


_turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()


async def in_turn(uid: int, what: Callable[[], None]) -> None:
    """Do something in a thread, after the earlier ones of a person, so nobody takes more than one of the shared threads."""
    async with _turns.setdefault(uid, asyncio.Lock()):
        await asyncio.to_thread(what)


def add_calls(api: APIRouter, client: StateClient, submitter: Submitter, sessions: Sessions) -> None:
    @api.post("/v1/sessions", status_code=201, response_model=SessionInfo)
    async def open_session(request: SessionRequest, caller: Known) -> Response:
        """Open a session for a program that calls Python functions. It lasts while the program asks for its events."""
        most = default_bounds(client.authenticator.rules, caller).programs
        return Json({"id": await asyncio.to_thread(sessions.create, request.model_dump(), caller.person, most)}, 201)

    @api.put(
        "/v1/sessions/{session}/payloads/{payload}",
        response_model=Changed,
        max_body_size=LARGEST_PAYLOAD,
        openapi_extra=BYTES_BODY,
    )
    async def put_payload(session: Identity, payload: Identity, request: Request, caller: Known) -> Response:
        """Upload the packed code of a program, or a folder that is sent with jobs."""
        await _check(client, sessions, session, caller)
        with sessions.putting(session, caller.person, payload) as write:
            async for piece in request.stream():
                await asyncio.to_thread(write, piece)
        return Json({"changed": True})

    @api.post("/v1/sessions/{session}/leases", status_code=201, response_model=SubmittedMany)
    async def lease(session: Identity, request: LeasesRequest, caller: Known, key: Key = "") -> Response:
        """Request leases: a job each, whose task is a worker that takes calls from the program."""
        await _check(client, sessions, session, caller)
        asked = [
            JobSubmission(job, 1, False, Work([job.name or "python"], call=Call(session, str(job.lease))), {})
            for job in request.jobs
        ]
        return Json({"jobs": await submitter.submit(caller, asked, key)}, 201)

    @api.get("/v1/sessions/{session}/events", response_model=Events)
    async def events(
        session: Identity,
        caller: Known,
        epoch: str = "",
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 0,
        sent: Annotated[int | None, Query(ge=0, le=2**53, description="Calls that workers have.")] = None,
        waiting: Annotated[int, Query(ge=0, le=2**53, description="Calls that wait.")] = 0,
    ) -> Response:
        """Return what happened to the leases. Events before `after` count as seen."""
        await _check(client, sessions, session, caller)
        if sent is not None:
            sessions.note_calls(session, sent, waiting)
        look = partial(sessions.events, session, caller.person.uid, epoch, after, MOST_EVENTS)
        until = time.monotonic() + wait
        with client.listening(caller, ("session", session)) as heard:
            while True:
                following, found = look()
                relays, left = sessions.relays.wait_for(session), until - time.monotonic()
                if found or relays or left <= 0 or client.loop.stopped.is_set():
                    break
                caller = await client.heard_within(caller, heard, left)
        await _check(client, sessions, session, caller)  # leases may have been added meanwhile
        return Json({"epoch": sessions.epoch, "next": following, "events": found, "relays": relays})

    @api.delete("/v1/sessions/{session}", response_model=Cancelled)
    async def close_session(session: Identity, caller: Known) -> Response:
        """Close a session: cancel its leases, and end its workers."""
        await _check(client, sessions, session, caller)
        return Json({"cancelled": await end_session(client, sessions, session, caller)})


def add_relays(api: APIRouter, client: StateClient, sessions: Sessions) -> None:
    @api.get("/v1/sessions/{session}/relays", response_class=Bytes)
    async def received(session: Identity, caller: Known) -> Response:
        """Return what the relays of the program's workers send, as it comes."""
        await _check(client, sessions, session, caller)

        async def pieces() -> AsyncIterator[bytes]:
            with client.wakeups.listen([("token", caller.token)]) as heard:
                async for piece in sessions.relays.received(session):
                    if heard.is_set() and await client.authenticator.reauthenticate(caller) is None:
                        return
                    yield piece

        return StreamingResponse(pieces(), media_type=Bytes.media_type)

    @api.put(
        "/v1/sessions/{session}/relays/{lease}", response_model=Changed, max_body_size=LARGEST_BYTES, openapi_extra=BYTES_BODY
    )
    async def send(session: Identity, lease: Number, request: Request, caller: Known) -> Response:
        """Send messages to a relay. They are ignored if it is not connected: it asks for them when it is."""
        await _check(client, sessions, session, caller)
        return Json({"changed": await sessions.relays.send(session, lease, request.stream())})


def add_files(api: APIRouter, client: StateClient, sessions: Sessions) -> None:
    @api.get("/v1/jobs/{job}/tasks/{index}/files", response_class=Bytes)
    async def files(job: Number, index: Number, caller: Known) -> Response:
        """Return the files that came back from a task of a job with a sent folder, as tar.gz; empty if there are none."""
        call, uid = await client.read_of(caller, job, lambda _, spec: (spec.work.call, spec.uid))
        file = None
        if call is not None and call.fetch and uid is not None:
            file = await asyncio.to_thread(open_result, sessions.folder / call.session, uid, job, index)
        size = os.fstat(file.fileno()).st_size if file is not None else 0
        if file is None or size > 2 * MOST_BYTES:  # no task packs that
            return Bytes(b"")
        return StreamingResponse(_pieces(file, size), headers={"Content-Length": str(size)})


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield `size` bytes of a file in pieces, then close it."""
    with file:
        while size and (piece := file.read(min(size, PIECE_BYTES))):
            size -= len(piece)
            yield piece


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


async def report_due_leases(client: StateClient, sessions: Sessions) -> None:
    """Report the leases that are due to others, for ever, and cancel those whose program does not hear of it."""
    late: list[int] = []

    def cancelled(state: State, now: float) -> tuple[list[Fact], None]:
        return [fact for job in late if (fact := cancel(state, job, None, now))], None

    while True:
        await asyncio.sleep(DUE_CHECK_SECONDS)
        if sessions.leases():
            try:
                late = await client.read(sessions.report_due)
                if late:
                    await client.ask(cancelled, changes=True)
            except (Stalled, Busy, TimeoutError):  # try again next time
                pass
            except Exception:  # leases of others may still be due
                log.exception("cannot tell which leases are due")


async def end_session(client: StateClient, sessions: Sessions, session: str, caller: Caller | None = None) -> list[int]:
    """Close a session, for a caller or because its program is gone; raises Forbidden if their token misses a queue."""

    def question(state: State, now: float) -> tuple[list[Fact], list[int]]:
        specs = state.index.specs.items()
        calls = [job for job, spec in specs if spec.work.call is not None and spec.work.call.session == session]
        if caller is not None:
            _check_queues(client, state, caller, calls)
        facts = [fact for job in calls if (fact := cancel(state, job, None, now))]
        return list(facts), [fact.id for fact in facts]

    by = caller.person.name if caller is not None else ""
    cancelled: list[int] = await client.ask(question, changes=True, by=by)
    await in_turn(caller.person.uid if caller is not None else NOBODY, partial(sessions.close, session))
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
