"""What all of the API's parts share: asking the scheduler's thread, answering in JSON, saying what is wrong."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import Header, Query, Response
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from fairlead.model.api_types import JobInfo
from fairlead.model.specs import Job
from fairlead.people.door import Door
from fairlead.people.rules import Caller, as_seen, check_acts
from fairlead.scheduler import admission, report
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State
from fairlead.service.clock import Clock
from fairlead.service.loop import Busy, Loop, Question
from fairlead.service.wakeups import Wakeups

LARGEST_BODY = 16 * 2**20
ANSWER_WITHIN = 30.0
"""Seconds after which a request is told to come back."""
MOST_WAITERS = 2000
"""Requests that wait for something to happen, at once: long polls and streams."""
LONGEST_WAIT = 60.0
MOMENTS = ("submitted_at", "started_at", "finished_at", "expected_end", "cautious_end", "earliest", "latest")
"""What is told of jobs and tasks in seconds of the scheduler's clock."""

Number = Annotated[int, PathParameter(ge=0, le=2**53)]
NodeName = Annotated[str, PathParameter(max_length=253)]
Identity = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{32}$")]
Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for it to end; 0: answer at once.")]
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key", max_length=200, description="The same key again gives the same jobs, and no new ones."
    ),
]


class Error(BaseModel):
    """What was wrong, and what would be right."""

    error: str


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    schema = {"application/json": {"schema": Error.model_json_schema()}}
    return {code: {"description": HTTPStatus(code).phrase, "content": schema} for code in codes}


class Asker:
    """Asks the loop from the event loop, as somebody."""

    def __init__(self, loop: Loop, wakeups: Wakeups, door: Door, clock: Clock) -> None:
        self.loop, self.wakeups, self.door, self.clock = loop, wakeups, door, clock
        self._waiters = 0

    async def ask(self, question: Question, changes: bool = False, by: str = "") -> Any:
        return await asyncio.wait_for(asyncio.wrap_future(self.loop.ask(question, changes, by)), ANSWER_WITHIN)

    async def read(self, view: Callable[[State], Any]) -> Any:
        return await self.ask(lambda state, now: ([], view(state)))

    async def change(self, caller: Caller, make: Callable[[State, float], Fact | None]) -> bool:
        """Let a fact happen, if there is one; returns whether there was."""

        def question(state: State, now: float) -> tuple[list[Fact], bool]:
            fact = make(state, now)
            return ([fact] if fact else []), fact is not None

        changed: bool = await self.ask(question, changes=True, by=caller.person.name)
        return changed

    async def change_job(self, caller: Caller, job: int, make: Callable[[State, float], Fact | None]) -> bool:
        """As `change`, about a job that must be theirs."""

        def checked(state: State, now: float) -> Fact | None:
            check_acts(self.door.rules, caller, job, spec_of(state, job))
            return make(state, now)

        return await self.change(caller, checked)

    async def read_job(self, caller: Caller, job: int) -> JobInfo:
        """A job, as far as it is for them to see."""

        def view(state: State) -> Any:
            return as_seen(self.door.rules, caller, spec_of(state, job), report.describe_job(state, job))  # type: ignore[arg-type]

        found: JobInfo = by_wall_clock(await self.read(view), self.clock)
        return found

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


class Json(JSONResponse):
    """Written by msgspec, which takes a tenth of the time."""

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


class Bytes(Response):
    media_type = "application/octet-stream"


def by_wall_clock(told: Any, clock: Clock) -> Any:
    """The same about a job or a task, with its moments as the wall clock has them."""
    moments = {name: clock.wall(told[name]) for name in MOMENTS if told.get(name) is not None}
    return {**told, **moments}


def spec_of(state: State, job: int) -> Job:
    """What was asked for with a job; refuses one that is not known (any more)."""
    admission.job_row(state, job)
    return state.index.specs[job]


def refusal(code: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, code, headers)
