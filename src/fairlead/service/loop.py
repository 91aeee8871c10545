"""The scheduler's thread: it runs one step after another while there is work.

Other threads submit questions with :meth:`Loop.ask`. An answer is given after the step that handled the question was recorded, so
callers may rely on it. Questions are handled in batches, with one commit per batch.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple

from fairlead.disk_room import Reserve
from fairlead.engines.contract import Superseded
from fairlead.engines.step import Lost, Request, Scheduler, Stalled
from fairlead.journal.store import TakenOver
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact, TasksRevoked
from fairlead.scheduler.reports.listings import whom
from fairlead.scheduler.state import State
from fairlead.service import metrics

log = logging.getLogger("fairlead")

MOST_QUESTIONS = 1000
"""Limit on waiting reads, and separately on waiting changes; more are refused."""
IDLE_SECONDS = 1.0
"""Time between steps at most, when nothing happens, for what depends on time alone."""
LEAST_SECONDS = 0.01
"""Time until a step for what becomes due, at least: a clock may step back."""

Question = Callable[[State, float], tuple[list[Fact], Any]]


class _PendingQuestion(NamedTuple):
    question: Question
    changes: bool
    takes_on: bool
    by: str
    answer: Future[Any]


class HappensLater(Stalled):
    """The change was accepted but is not recorded yet. It happens later, unless the scheduler ends first."""


class Busy(RuntimeError):
    """Too many questions wait already."""


class Loop(threading.Thread):
    """Runs a scheduler until it is stopped.

    Parameters
    ----------
    make : callable
        Makes the scheduler, in this thread, given a function that wakes the loop.
    on_record : callable
        Called in this thread with the state and the facts just recorded.
    reserve : Reserve, optional
        Disk space kept free; nothing is placed while it runs low.

    Attributes
    ----------
    position : int
        Of the last recorded fact.
    stepped_at : float
        End of the last step, in seconds of the monotonic clock.
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
        self._inboxes: dict[bool, queue.Queue[_PendingQuestion]] = {
            changes: queue.Queue(MOST_QUESTIONS) for changes in (True, False)
        }
        self._awake = threading.Event()
        self.stopping = False
        self._drained: Callable[[State], bool] | None = None
        self.stalled: str | None = None
        self._stalled_since: float | None = None
        self._lost = False
        self._patience = inf

    def ask(self, question: Question, changes: bool = False, by: str = "", takes_on: bool = False) -> "Future[Any]":
        """Submit a question to the scheduler's thread.

        Parameters
        ----------
        question : callable
            Gets the state and the time; returns facts to record, and the answer.
        changes : bool
            True if it may return facts: refused while the journal cannot be written.
        by : str
            The author, if known; recorded with the facts.
        takes_on : bool
            True if it adds work: refused while disk space is low.
        """
        answer: Future[Any] = Future()
        try:
            self._inboxes[changes].put_nowait(_PendingQuestion(question, changes, takes_on, by, answer))
        except queue.Full:
            raise Busy(f"{MOST_QUESTIONS} requests wait already: try again in a moment") from None
        self.wake()
        if self.stopped.is_set():
            self._turn_away()
        return answer

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
            scheduler = self._make(self.wake)
        except BaseException as error:
            self.ready.set_exception(error)
            return
        self.position = scheduler.journal.position

        def recorded(facts: Sequence[Fact]) -> None:
            self.position = scheduler.journal.position
            metrics.count(facts)
            _log_revocations(scheduler.state, facts)
            self._on_record(scheduler.state, facts)

        scheduler.on_record = recorded
        try:
            self._step(scheduler)
            self.ready.set_result(None)
            while True:
                if not scheduler.more or scheduler.stalled:
                    self._awake.wait(max(LEAST_SECONDS, scheduler.idle_for(IDLE_SECONDS)))
                self._awake.clear()
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
        for asked in self._taken():
            if asked.answer.set_running_or_notify_cancel():
                asked.answer.set_exception(Busy("the scheduler has ended: try again in a moment, if it restarts"))

    def _step(self, scheduler: Scheduler) -> None:
        low = self._look_at_room()
        scheduler.placing = not self.stopping and not low
        answers: list[tuple[Future[Any], Any, bool]] = []
        requests, names = [], []
        for question, changes, takes_on, by, answer in self._taken():
            if not answer.set_running_or_notify_cancel():
                continue  # the caller has gone away
            if changes and scheduler.stalled:
                kind = Lost if self._lost else Stalled
                answer.set_exception(kind(self.stalled or "the journal cannot be written"))
            elif takes_on and low:
                answer.set_exception(Stalled(low))
            else:
                requests.append(_request(question, answer, answers))
                names.append(by)
        metrics.questions.set(sum(inbox.qsize() for inbox in self._inboxes.values()))
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
            if not answers:  # the step did not begin
                for request in requests:
                    _consume(request, scheduler)
        self.stepped_at = time.monotonic()
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

    def _taken(self) -> Iterator[_PendingQuestion]:
        """Take the questions that wait now, changes first."""
        for inbox in self._inboxes.values():
            with suppress(queue.Empty):
                for _ in range(MOST_QUESTIONS):
                    yield inbox.get_nowait()

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


def _log_revocations(state: State, facts: Sequence[Fact]) -> None:
    for fact in facts:
        if isinstance(fact, TasksRevoked) and fact.claim is not None:
            jobs = ", ".join(str(job) for job in dict.fromkeys(fact.job.tolist()))
            tasks = "1 task" if len(fact.job) == 1 else f"{len(fact.job)} tasks"
            log.info("revoked %s of job %s %s", tasks, jobs, whom(state, fact.claim))


def _request(question: Question, answer: "Future[Any]", answers: list[tuple["Future[Any]", Any, bool]]) -> Request:
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


def _consume(request: Request, scheduler: Scheduler) -> None:
    """Answer a read while the journal cannot be written."""
    facts = list(request(scheduler.state, scheduler.clock()))
    if facts:
        raise AssertionError("a question that changes the state was asked with changes=False")
