"""The scheduler's thread: it runs one step after another while there is work.

Other threads submit questions with :meth:`Loop.ask`. A change is answered after the step that made it was recorded, so callers
may rely on it; changes are made in batches, with one commit per batch. A read is answered between two steps, from the recorded
state: it needs no step, and waits for no decision and no commit but those of the step that runs.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple, Protocol

from fairlead.disk_room import Reserve
from fairlead.engines.contract import Superseded
from fairlead.engines.step import Lost, Request, Scheduler, Stalled
from fairlead.journal.store import TakenOver
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact, TasksFinished, TasksRevoked
from fairlead.scheduler.reports.listings import whom
from fairlead.scheduler.state import State
from fairlead.service import metrics

log = logging.getLogger("fairlead")

MOST_QUESTIONS = 1000
"""Limit on waiting reads, and separately on waiting changes; more are refused."""
IDLE_SECONDS = 1.0
"""Time between steps at most, when nothing happens, for what depends on time alone."""
READING_SECONDS = 0.02
"""Time for reads between two steps, if they wait for longer."""
LEAST_SECONDS = 0.01
"""Time until a step for what becomes due, at least: a clock may step back."""
LONGEST_REST = 0.05
"""Time from a step until the engine's reports begin another: as long as the step took, and at most LONGEST_REST seconds.

A step costs nearly the same for one end of a task and for many, so those that come meanwhile share one. It rests only if several
ended in it: one command alone waits for nothing.
"""

Question = Callable[[State, float], tuple[list[Fact], Any]]


class Answerable(Protocol):
    """Where an answer is awaited, as in a :class:`concurrent.futures.Future`."""

    def set_running_or_notify_cancel(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class _PendingQuestion(NamedTuple):
    question: Question
    takes_on: bool
    by: str
    answer: Answerable


class HappensLater(Stalled):
    """The change was accepted but is not recorded yet. It happens later, unless the scheduler ends first."""


class Busy(RuntimeError):
    """Too many questions wait already."""


def no_threads(error: BaseException | None) -> str:
    """Return what to tell a client if an error is that no thread or process could be started; else an empty string."""
    if not (isinstance(error, BlockingIOError) or "start new thread" in str(error)):
        return ""
    log.error("%s: raise the limit on its processes and threads, such as TasksMax of its service", error)
    return "the scheduler's machine allows it no more threads now"


class Loop(threading.Thread):
    """Runs a scheduler until it is stopped.

    make : makes the scheduler, in this thread, given a function that the engine calls when it has reports
    on_record : called in this thread with the state and the facts just recorded
    reserve : disk space kept free; nothing is placed while it runs low

    position : of the last recorded fact
    stepped_at : end of the last step, in seconds of the monotonic clock
    """

    def __init__(
        self,
        make: Callable[[Callable[[], None]], Scheduler],
        on_record: Callable[[State, Sequence[Fact]], None] = lambda state, facts: None,
        reserve: Reserve | None = None,
    ) -> None:
        super().__init__(name="scheduler", daemon=True)
        self.ready: Future[None] = Future()
        self.failure: BaseException | None = None
        self.stopped = threading.Event()
        self.on_stop: Callable[[], object] = lambda: None
        self.position = 0
        self.stepped_at = time.monotonic()
        self._make, self._on_record, self._reserve = make, on_record, reserve
        self._inboxes: dict[bool, deque[_PendingQuestion]] = {True: deque(), False: deque()}  # by whether they change
        self._awake, self._due = threading.Event(), False  # set for anything; and for what needs a step at once
        self._reported, self._rested_at = False, 0.0  # what needs a step from then on
        self._ended = 0  # tasks, in the last step
        self.stopping = False
        self._drained: Callable[[State], bool] | None = None
        self.stalled: str | None = None
        self._stalled_since: float | None = None
        self._lost = False
        self._patience = inf

    def ask(self, question: Question, changes: bool = False, by: str = "", takes_on: bool = False) -> "Future[Any]":
        """Submit a question to the scheduler's thread; see :meth:`put`."""
        answer: Future[Any] = Future()
        self.put(answer, question, changes, by, takes_on)
        if changes:
            self.wake()
        return answer

    def put(self, answer: Answerable, question: Question, changes: bool = False, by: str = "", takes_on: bool = False) -> None:
        """Submit a question to the scheduler's thread; one that changes something waits for `wake`. Raises Busy if too many wait.

        question : gets the state and the time; returns facts to record, and the answer
        changes : True if it may return facts: refused while the journal cannot be written
        by : the author, if known; recorded with the facts
        takes_on : True if it adds work: refused while disk space is low
        """
        if len(self._inboxes[changes]) >= MOST_QUESTIONS:
            raise Busy(f"{MOST_QUESTIONS} requests wait already: try again in a moment")
        self._inboxes[changes].append(_PendingQuestion(question, takes_on, by, answer))
        if not changes and not self._awake.is_set():
            self._awake.set()
        if self.stopped.is_set():
            self._turn_away()

    @property
    def low(self) -> str:
        """A message while disk space is low; otherwise empty."""
        return self._reserve.low if self._reserve else ""

    @property
    def takes_nothing_on(self) -> str | None:
        """Why no new work is accepted: the journal cannot be written, or disk space is low. None if it is."""
        return self.stalled or self.low or None

    @property
    def stalled_for(self) -> float:
        """For how many seconds the journal could not be written; 0 if it can."""
        since = self._stalled_since
        return 0.0 if since is None else time.monotonic() - since

    def wake(self) -> None:
        """Let the next step come now. Thread-safe."""
        self._due = True
        if not self._awake.is_set():  # else the thread has yet to look at what came before
            self._awake.set()

    def hear(self) -> None:
        """Let the next step come once the last one's rest is over, for reports of the engine. Thread-safe."""
        if not self._reported:
            self._reported = True
            self._awake.set()

    def stop(self, when: Callable[[State], bool] | None = None, patience: float = inf) -> None:
        """End the loop: now, or once `when` is true of the state. No more tasks are placed.

        If the journal cannot be written for longer than `patience` seconds, or ever, the loop does not wait for `when`.
        """
        self._drained, self._patience = when, patience
        self.stopping = True
        self.wake()

    def run(self) -> None:
        try:
            scheduler = self._make(self.hear)
        except BaseException as error:
            self.ready.set_exception(error)
            return
        self.position = scheduler.journal.position

        def recorded(facts: Sequence[Fact]) -> None:
            self.position = scheduler.journal.position
            self._ended = sum(len(fact.job) for fact in facts if isinstance(fact, TasksFinished))
            metrics.count(facts, scheduler.state)
            _log_revocations(scheduler.state, facts)
            self._on_record(scheduler.state, facts)

        scheduler.on_record = recorded
        try:
            self._step(scheduler)
            self.ready.set_result(None)
            while True:
                self._read_until_due(scheduler)
                stopping = self.stopping
                self._step(scheduler)
                if stopping and self._is_over(scheduler):
                    break
        except BaseException as error:
            self.failure = error
            if isinstance(error, (Superseded, TakenOver)):
                log.error("%s", error)
            else:
                log.exception("the scheduler failed")
        finally:
            self.stopped.set()
            self._turn_away()
            self.on_stop()

    def _read_until_due(self, scheduler: Scheduler) -> None:
        """Answer reads until a step is due."""
        busy = scheduler.more and not scheduler.stalled
        until = time.monotonic() + (0.0 if busy else max(LEAST_SECONDS, scheduler.idle_for(IDLE_SECONDS)))
        while True:
            if not self._inboxes[False]:
                self._awake.wait(max(0.0, (min(until, self._rested_at) if self._reported else until) - time.monotonic()))
            self._awake.clear()
            began = time.monotonic()
            while self._inboxes[False] and time.monotonic() < began + READING_SECONDS:
                self._read(scheduler, self._inboxes[False].popleft())
            if self._due or time.monotonic() >= (min(until, self._rested_at) if self._reported else until):
                self._due = self._reported = False
                return

    def _read(self, scheduler: Scheduler, asked: _PendingQuestion) -> None:
        answers: list[tuple[Answerable, Any, bool]] = []
        if asked.answer.set_running_or_notify_cancel():
            if any(_request(asked.question, asked.answer, answers)(scheduler.state, scheduler.clock())):
                raise AssertionError("a question that changes the state was asked with changes=False")
            self._give(answers)

    def _is_over(self, scheduler: Scheduler) -> bool:
        """True if a stopping loop may end. What could not be recorded was not acted on, so it never happened."""
        if self._drained is None:
            return True
        if not scheduler.stalled:
            return self._drained(scheduler.state)
        if self._lost or self.stalled_for > self._patience:
            log.error("%s: stopping without it: running tasks go on, and the next scheduler adopts them", self.stalled)
            return True
        return False

    def _turn_away(self) -> None:
        """Refuse questions after the loop has ended."""
        for asked in (*_taken(self._inboxes[True]), *_taken(self._inboxes[False])):
            if asked.answer.set_running_or_notify_cancel():
                asked.answer.set_exception(Busy("the scheduler has ended: try again in a moment, if it restarts"))

    def _step(self, scheduler: Scheduler) -> None:
        low, began = self._look_at_room(), time.monotonic()
        scheduler.placing = not self.stopping and not low
        answers: list[tuple[Answerable, Any, bool]] = []
        requests, names, self._ended = [], [], 0
        for question, takes_on, by, answer in _taken(self._inboxes[True]):
            if not answer.set_running_or_notify_cancel():
                continue  # the caller has gone away
            if scheduler.stalled:
                kind = Lost if self._lost else Stalled
                answer.set_exception(kind(self.stalled or "the journal cannot be written"))
            elif takes_on and low:
                answer.set_exception(Stalled(low))
            else:
                requests.append(_request(question, answer, answers))
                names.append(by)
        metrics.questions.set(sum(map(len, self._inboxes.values())))
        try:
            with metrics.step_seconds.time():
                scheduler.step(requests, names)
            if self.stalled:
                log.warning("the journal can be written again: continuing")
            self.stalled = self._stalled_since = None
            self._lost = False
            metrics.journal_lag.set(0)
        except Stalled as error:
            self._stalled_since = self._stalled_since or time.monotonic()
            metrics.journal_lag.set(self.stalled_for)
            if self.stalled is None:
                later = "" if isinstance(error, Lost) else ": nothing new is started until then, nothing is lost"
                log.error("%s%s", error, later)
            self.stalled, self._lost = str(error), isinstance(error, Lost)
        self.stepped_at = time.monotonic()
        self._rested_at = self.stepped_at + (min(LONGEST_REST, self.stepped_at - began) if self._ended > 1 else 0.0)
        self._give(answers)

    def _give(self, answers: Iterable[tuple[Answerable, Any, bool]]) -> None:
        for answer, value, changed in answers:
            if self._lost and changed:
                answer.set_exception(Lost(f"{self.stalled}; the request does not take effect: repeat it at the next scheduler"))
            elif self.stalled and changed:
                answer.set_exception(
                    HappensLater(
                        f"{self.stalled}; the request was accepted, and takes effect once there is room, unless the scheduler "
                        "ends first: do not repeat it"
                    )
                )
            elif isinstance(value, BaseException):
                answer.set_exception(value)
            else:
                answer.set_result(value)

    def _look_at_room(self) -> str:
        """Measure disk space; return why no new work is accepted, if it is low."""
        if self._reserve is None:
            return ""
        was, now = self._reserve.low, self._reserve.look()
        metrics.disk_free.set(self._reserve.free)
        metrics.reserve.set(self._reserve.held)
        if bool(was) != bool(now):
            log.warning(now or "there is enough disk space again: continuing")
        return now


def _taken(inbox: deque[_PendingQuestion]) -> Iterator[_PendingQuestion]:
    """Take the questions that wait now."""
    with suppress(IndexError):  # after the end, threads that ask take them, too
        for _ in range(min(len(inbox), MOST_QUESTIONS)):
            yield inbox.popleft()


def _log_revocations(state: State, facts: Sequence[Fact]) -> None:
    for fact in facts:
        if isinstance(fact, TasksRevoked) and fact.claim is not None:
            jobs = ", ".join(str(job) for job in dict.fromkeys(fact.job.tolist()))
            tasks = "1 task" if len(fact.job) == 1 else f"{len(fact.job)} tasks"
            log.info("revoked %s of job %s %s", tasks, jobs, whom(state, fact.claim))


def _request(question: Question, answer: Answerable, answers: list[tuple[Answerable, Any, bool]]) -> Request:
    def request(state: State, now: float) -> Iterable[Fact]:
        try:
            facts, value = question(state, now)
        except Refused as refused:
            facts, value = [], refused
        except Exception as fault:  # a question changes nothing by itself, so the others can go on
            log.exception("a question could not be answered: %r", fault)
            facts, value = [], fault
        answers.append((answer, value, bool(facts)))
        return facts

    return request
