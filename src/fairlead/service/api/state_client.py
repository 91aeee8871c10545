"""StateClient: questions to the scheduler's thread on behalf of callers, and limits per person."""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from fastapi import HTTPException

from fairlead.engines.step import Stalled
from fairlead.model.api_types import JobInfo
from fairlead.model.specs import Job
from fairlead.people.authenticator import Authenticator
from fairlead.people.bounds import default_bounds
from fairlead.people.rules import Caller, check_acts, hidden_leaves, job_as_seen, without
from fairlead.scheduler import admission
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.state import State
from fairlead.service.api.answers import by_wall_clock
from fairlead.service.clock import Clock
from fairlead.service.loop import Answerable, Busy, HappensLater, Loop, Question
from fairlead.service.wakeups import Answer, Answers, Wakeups, heard_within

T = TypeVar("T")
ANSWER_SECONDS = 30.0
"""After which a request without an answer is refused."""
GATHER_SECONDS, GATHER_EACH_SECONDS, MOST_GATHER_SECONDS = 0.004, 0.0004, 0.02
"""Wait for more changes, as a commit costs as much as several requests: at least, for each answer given last, and at most."""
RETRY_SECONDS = 1.0
"""Between two attempts to record something."""
MOST_WAITERS = 2000
"""Concurrent requests that wait for an event: long polls and streams."""


class StateClient:
    """Asks the scheduler's loop questions on behalf of callers. For the event loop."""

    def __init__(self, loop: Loop, wakeups: Wakeups, authenticator: Authenticator, clock: Clock) -> None:
        self.loop, self.wakeups, self.authenticator, self.clock = loop, wakeups, authenticator, clock
        self._waiters: Counter[int] = Counter()
        self._answers, self._gathering = Answers(), False

    async def ask(self, question: Question, changes: bool = False, by: str = "", takes_on: bool = False) -> Any:
        answer = self.awaited()
        self.put(answer, question, changes, by, takes_on)
        return await self.answer(answer, changes)

    def put(self, answer: Answerable, question: Question, changes: bool, by: str, takes_on: bool) -> None:
        """Submit a question. While several are answered at a time, changes wait a moment for others, to be recorded with them."""
        self.loop.put(answer, question, changes, by, takes_on)
        if changes and not self._gathering:
            self._gathering = True
            together = self._answers.together
            seconds = min(max(GATHER_SECONDS, together * GATHER_EACH_SECONDS), MOST_GATHER_SECONDS) if together > 1 else 0.0
            asyncio.get_running_loop().call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._gathering = False
        self.loop.wake()

    def awaited(self) -> Answer:
        """Return a place for an answer, to be given to the scheduler's thread with a question."""
        return Answer(self._answers)

    async def answer(self, awaited: Answer, changes: bool) -> Any:
        """Wait for an answer; `changes` as in `ask`."""

        def give_up() -> None:
            if not awaited.give_up() and changes:
                awaited.set_exception(HappensLater("the scheduler is too busy to answer now; the request may still take effect"))
            else:
                awaited.set_exception(TimeoutError())

        timer = asyncio.get_running_loop().call_later(ANSWER_SECONDS, give_up)
        try:
            return await awaited.future
        finally:
            timer.cancel()

    async def record(self, make: Callable[[State, float], list[Fact]], by: str = "") -> None:
        """Record the facts that `make` returns as soon as possible, as caused by `by`."""
        while not self.loop.stopped.is_set():
            try:
                with suppress(HappensLater):
                    await self.ask(lambda state, now: (make(state, now), None), changes=True, by=by)
                return
            except (Stalled, Busy, TimeoutError):
                await asyncio.sleep(RETRY_SECONDS)

    async def read(self, view: Callable[[State], Any]) -> Any:
        return await self.ask(lambda state, now: ([], view(state)))

    async def read_seen(self, caller: Caller, view: Callable[[State, float], Any]) -> Any:
        """Like `read`, without other people's leaves in private queues; the view also gets the time."""

        def question(state: State, now: float) -> tuple[list[Fact], Any]:
            return [], without(view(state, now), hidden_leaves(self.authenticator.rules, caller, state.tree.names))

        return await self.ask(question)

    async def told_to(self, caller: Caller, told: Any, names: Iterable[str] = ()) -> Any:
        """Remove other people's leaves in private queues from an answer: existing ones, and those of `names`."""
        there = await self.read(lambda state: list(state.tree.names))
        return without(told, hidden_leaves(self.authenticator.rules, caller, [*there, *names]))

    async def change(self, caller: Caller, make: Callable[[State, float], Fact | None]) -> bool:
        """Record a fact, if `make` returns one; return True if so."""

        def question(state: State, now: float) -> tuple[list[Fact], bool]:
            fact = make(state, now)
            return ([fact] if fact else []), fact is not None

        return await self.ask(question, changes=True, by=caller.person.name)

    async def change_job(self, caller: Caller, job: int, make: Callable[[State, float], Fact | None]) -> bool:
        """Like `change`, for a job on which the caller may act."""

        def checked(state: State, now: float) -> Fact | None:
            check_acts(self.authenticator.rules, caller, job, spec_of(state, job))
            return make(state, now)

        return await self.change(caller, checked)

    async def read_of(self, caller: Caller, job: int, view: Callable[[State, Job], T]) -> T:
        """Like `read`, of a job on which the caller may act; the view also gets what it asked for."""

        def checked(state: State) -> T:
            spec = spec_of(state, job)
            check_acts(self.authenticator.rules, caller, job, spec)
            return view(state, spec)

        return await self.read(checked)

    async def read_job(self, caller: Caller, job: int) -> JobInfo:
        """Return a job's description as the caller may see it."""

        def view(state: State) -> Any:
            return job_as_seen(self.authenticator.rules, caller, spec_of(state, job), report.describe_job(state, job))

        return by_wall_clock(await self.read(view), self.clock)

    @contextmanager
    def waiter(self, caller: Caller) -> Iterator[None]:
        """Count a waiting request; raises Busy beyond the limits per person and in total."""
        uid, most = caller.person.uid, default_bounds(self.authenticator.rules, caller).streams
        if most is not None and self._waiters[uid] >= most:
            raise Busy(f"you have {most} pending long polls, the maximum: end some of them")
        if self._waiters.total() >= MOST_WAITERS:
            raise Busy(f"{MOST_WAITERS} long polls are pending, the maximum: try again in a moment")
        self._waiters[uid] += 1
        try:
            yield
        finally:
            self._waiters -= Counter([uid])

    @contextmanager
    def listening(self, caller: Caller, key: Hashable) -> Iterator[asyncio.Event]:
        """Count a waiting request, and yield an event that is set with `key`, and when the caller's token is revoked."""
        with self.waiter(caller), self.wakeups.listen([key, ("token", caller.token)]) as heard:
            yield heard

    async def heard_within(self, caller: Caller, heard: asyncio.Event, seconds: float) -> Caller:
        """Wait up to `seconds` to be woken. Return the caller as they are now; raises HTTPException if they have no access."""
        await heard_within(heard, seconds)
        return await as_now(self.authenticator, caller)


async def as_now(authenticator: Authenticator, caller: Caller) -> Caller:
    """Return an accepted caller as they are now; raises HTTPException if they have no access any more."""
    now = await authenticator.reauthenticate(caller)
    if now is None:
        raise HTTPException(401, "the token of this request is revoked or expired, or its account is gone: use another")
    return now


class OnePerPerson:
    """Something done for one request of each person at a time; others are refused."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._for: set[int] = set()

    @contextmanager
    def of(self, caller: Caller) -> Iterator[None]:
        """Do it for a person; raises Busy if it is being done for them already."""
        uid = caller.person.uid
        if uid in self._for:
            raise Busy(f"{self._what}: wait until it is done")
        self._for.add(uid)
        try:
            yield
        finally:
            self._for.remove(uid)


def spec_of(state: State, job: int) -> Job:
    admission.job_row(state, job)
    return state.index.specs[job]
