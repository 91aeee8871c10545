"""What all of the API's parts share: asking the scheduler's thread, answering in JSON, saying what is wrong."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from math import ceil
from typing import Annotated, Any
from weakref import WeakValueDictionary

import msgspec
from fastapi import Header, Query, Response
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from fairlead.model.api_types import JobInfo
from fairlead.model.specs import Job
from fairlead.people.bounds import default_bounds
from fairlead.people.door import Door
from fairlead.people.rules import Caller, check_acts
from fairlead.people.telling import hidden_leaves, job_as_seen, without
from fairlead.scheduler import admission
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.state import State
from fairlead.service.clock import Clock
from fairlead.service.loop import Busy, HappensLater, Loop, Question
from fairlead.service.wakeups import Wakeups

LARGEST_BODY = 16 * 2**20
ANSWER_WITHIN = 30.0
"""Seconds after which a request is told to come back."""
MOST_WAITERS = 2000
"""Requests that wait for something to happen, at once: long polls and streams."""
LONGEST_WAIT = 60.0
MOMENTS = (
    "submitted_at", "started_at", "finished_at", "checkpointed_at", "expected_end", "cautious_end", "earliest", "latest",
    "waits_since", "made", "start", "end", "since", "away_since", "offered_since",
)  # fmt: skip
"""What is told of jobs, tasks, queues and reservations in seconds of the scheduler's clock."""

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
    """What was wrong, and what would be right; whether what was asked for may happen all the same, since it was taken."""

    error: str
    may_happen: bool = False


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    schema = {"application/json": {"schema": Error.model_json_schema()}}
    return {code: {"description": HTTPStatus(code).phrase, "content": schema} for code in codes}


class Asker:
    """Asks the loop from the event loop, as somebody."""

    def __init__(self, loop: Loop, wakeups: Wakeups, door: Door, clock: Clock) -> None:
        self.loop, self.wakeups, self.door, self.clock = loop, wakeups, door, clock
        self._waiters: Counter[int] = Counter()

    async def ask(self, question: Question, changes: bool = False, by: str = "", takes_on: bool = False) -> Any:
        answer = self.loop.ask(question, changes, by, takes_on)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), ANSWER_WITHIN)
        except TimeoutError:
            if changes and not answer.cancelled():
                raise HappensLater(
                    "the scheduler is too busy to answer now; what was asked for may happen yet"
                ) from None
            raise

    async def read(self, view: Callable[[State], Any]) -> Any:
        return await self.ask(lambda state, now: ([], view(state)))

    async def read_seen(self, caller: Caller, view: Callable[[State], Any]) -> Any:
        """As `read`, without the leaves of others in private queues."""
        return await self.read_seen_at(caller, lambda state, now: view(state))

    async def read_seen_at(self, caller: Caller, view: Callable[[State, float], Any]) -> Any:
        """As `read_seen`, of the state and what time it is."""

        def question(state: State, now: float) -> tuple[list[Fact], Any]:
            return [], without(view(state, now), hidden_leaves(self.door.rules, caller, state.tree.names))

        return await self.ask(question)

    async def told_to(self, caller: Caller, told: Any, names: Iterable[str] = ()) -> Any:
        """An answer without the leaves of others in private queues: of those that there are, and of `names`."""
        there = await self.read(lambda state: list(state.tree.names))
        return without(told, hidden_leaves(self.door.rules, caller, [*there, *names]))

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
            return job_as_seen(self.door.rules, caller, spec_of(state, job), report.describe_job(state, job))

        found: JobInfo = by_wall_clock(await self.read(view), self.clock)
        return found

    @contextmanager
    def waiter(self, caller: Caller) -> Iterator[None]:
        """Count one of somebody's that waits; too many, theirs or in all, are turned away."""
        uid, most = caller.person.uid, default_bounds(self.door.rules, caller).streams
        if most is not None and self._waiters[uid] >= most:
            raise Busy(f"{most} requests of yours wait for something to happen already: end some of them")
        if self._waiters.total() >= MOST_WAITERS:
            raise Busy(f"{MOST_WAITERS} requests wait for something to happen already: try again in a moment")
        self._waiters[uid] += 1
        try:
            yield
        finally:
            self._waiters[uid] -= 1
            if not self._waiters[uid]:
                del self._waiters[uid]


class OneEach:
    """What is done for each person one at a time: another is turned away."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._for: set[int] = set()

    @contextmanager
    def of(self, caller: Caller) -> Iterator[None]:
        """Do it for somebody; raises Busy where it is done for them already."""
        uid = caller.person.uid
        if uid in self._for:
            raise Busy(f"{self._what}: wait until that is done")
        self._for.add(uid)
        try:
            yield
        finally:
            self._for.remove(uid)


class InTurn:
    """What is done for each person in a thread, one after another: nobody takes more than one of the threads that all share."""

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def do(self, uid: int, what: Callable[[], None]) -> None:
        """Do it for somebody when it is their turn."""
        turn = self._turns.setdefault(uid, asyncio.Lock())
        async with turn:
            await asyncio.to_thread(what)


class Json(JSONResponse):
    """Written by msgspec, which takes a tenth of the time."""

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


class Bytes(Response):
    media_type = "application/octet-stream"


def by_wall_clock(told: Any, clock: Clock) -> Any:
    """The same about one thing, with its moments as the wall clock has them."""
    moments: dict[str, Any] = {name: clock.wall(told[name]) for name in MOMENTS if told.get(name) is not None}
    if told.get("revoked") is not None:
        moments["revoked"] = {**told["revoked"], "at": clock.wall(told["revoked"]["at"])}
    return {**told, **moments}


def spec_of(state: State, job: int) -> Job:
    """What was asked for with a job; refuses one that is not known (any more)."""
    admission.job_row(state, job)
    return state.index.specs[job]


def retry_after(seconds: float) -> dict[str, str]:
    """The header that says when a request may be made again."""
    return {"Retry-After": str(ceil(seconds))}


def refusal(code: int, message: str, headers: Mapping[str, str] | None = None, **more: object) -> JSONResponse:
    return JSONResponse({"error": message, **more}, code, headers)
