"""One step of the live scheduler: observe, decide, record, act. In that order, whatever happens.

Nothing is acted on, answered or acknowledged before the journal has it, so the process may be killed between any two lines:
what was recorded is carried out after the restart, what was not has never happened, and the engine, which never runs an
attempt twice, is told again whatever it may have missed.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fairlead.engines.contract import Attempt, Ended, Engine, Event, Launch, NodeDown, NodeUp, Started
from fairlead.journal import Journal, JournalFull
from fairlead.scheduler.decide import decide
from fairlead.scheduler.facts import (
    Fact,
    JobCancelled,
    JobsForgotten,
    NodeJoined,
    NodeLost,
    Outcome,
    TasksExpired,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
    TasksStarted,
)
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, REVOKING, RUNNING, STOPPING
from fairlead.scheduler.tables import NONE
from fairlead.service import metrics

log = logging.getLogger("fairlead")

REPEAT_AFTER = 5.0
"""Seconds after which an engine that did not answer is told again."""


Request = Callable[[State, float], Iterable[Fact]]
"""Something that people ask for: looks at the state, at a time, and returns the facts that it comes to."""


class Stalled(RuntimeError):
    """The journal cannot be written: nothing new is taken on until it can."""


class Scheduler:
    """The state machine with its journal and its engine. Not thread-safe: one thread calls it.

    Parameters
    ----------
    journal : Journal
    engine : Engine
    clock : callable
        Seconds; a step back does no harm.
    nodes : iterable of str, optional
        The names of the machines that there are, where that is known: others were lost.
    """

    def __init__(
        self, journal: Journal, engine: Engine, clock: Callable[[], float], nodes: Iterable[str] | None = None
    ) -> None:
        self.journal, self.engine, self.clock = journal, engine, clock
        self.state = journal.recover()
        self.placing = True
        self.more = True
        self.on_record: Callable[[Sequence[Fact]], None] = lambda facts: None
        """Told what was just recorded, before it is acted on."""
        self._unsaved: list[Fact] = []
        self._to_acknowledge: list[Attempt] = []
        self._to_repeat_at = 0.0
        self._reconcile(nodes)

    @property
    def stalled(self) -> bool:
        """Whether the last step could not be recorded."""
        return bool(self._unsaved)

    def step(self, requests: Iterable[Request] = ()) -> None:
        """Take in what is asked for and what the engine saw, decide, record, act.

        Raises Stalled if the journal cannot be written; then nothing was acted on, the facts stay applied, and the next
        call tries again to record them before anything else.
        """
        if self.stalled:
            self._record()
        now = self.clock()
        events = self.engine.poll()
        new = self._observe(events, now)
        for fact in new:
            self.state.apply(fact)
        for request in requests:
            for fact in request(self.state, now):
                self.state.apply(fact)
                new.append(fact)
        if self.placing:
            with metrics.decide_seconds.time():
                decision = decide(self.state, now)
            for fact in decision.facts:
                self.state.apply(fact)
            new += decision.facts
            self.more = decision.more
        self._unsaved = new
        self._to_acknowledge += [event.attempt for event in events if isinstance(event, Ended)]
        self._record()
        if self.journal.snapshot_due():
            self._save_snapshot()
        if now >= self._to_repeat_at or now < self._to_repeat_at - 2 * REPEAT_AFTER:
            self._to_repeat_at = now + REPEAT_AFTER
            self._tell_again()

    def _record(self) -> None:
        if self._unsaved:
            try:
                with metrics.commit_seconds.time():
                    self.journal.append(self._unsaved)
            except JournalFull as error:
                raise Stalled(str(error)) from None
        facts, self._unsaved = self._unsaved, []
        if facts:
            metrics.count(facts)
            self.on_record(facts)
        acknowledged, self._to_acknowledge = self._to_acknowledge, []
        if acknowledged:
            self.engine.acknowledge(acknowledged)
        self._act(facts)

    def _save_snapshot(self) -> None:
        try:
            self.journal.save(self.state)
        except JournalFull as error:
            # Nothing is lost without it: the facts are there, and the next step tries again.
            log.warning("no snapshot: %s", error)

    def _observe(self, events: Sequence[Event], now: float) -> list[Fact]:
        """Turn what the engine saw into facts, leaving out what is known already or no longer true."""
        nodes: list[Fact] = []
        there = {node.name: node for node, up in zip(self.state.cluster.specs, self.state.nodes.up, strict=False) if up}
        started: dict[Attempt, None] = {}
        ended: dict[Attempt, Ended] = {}
        strays: list[Attempt] = []
        for event in events:
            match event:
                case NodeUp(node):
                    if there.get(node.name) != node:
                        there[node.name] = node
                        nodes.append(NodeJoined(at=now, node=node))
                case NodeDown(name):
                    if there.pop(name, None) is not None:
                        nodes.append(NodeLost(at=now, node=name))
                case Started(attempt):
                    if not self._is_current(attempt):
                        strays.append(attempt)
                    elif self._status(attempt) == PLACED:
                        started[attempt] = None
                case Ended(attempt):
                    if self._is_current(attempt):
                        ended.setdefault(attempt, event)
        if strays:
            self.engine.stop(strays)
        facts: list[Fact] = []
        if started:
            facts.append(TasksStarted(at=now, **_columns(list(started))))
        if ended:
            outcome = np.array([e.outcome for e in ended.values()], np.int64)
            code = np.array([e.code for e in ended.values()], np.int64)
            facts.append(TasksFinished(at=now, **_columns(list(ended)), outcome=outcome, code=code))
        return facts + nodes

    def _act(self, facts: Sequence[Fact]) -> None:
        """Have the engine do what was recorded."""
        state = self.state
        for fact in facts:
            match fact:
                case TasksPlaced():
                    self.engine.start([self._launch(a) for a in _attempts(fact) if self._is_current(a)])
                case TasksRevoked() | TasksExpired():
                    self.engine.stop(_attempts(fact))
                case JobCancelled(id=job):
                    rows = state.job_rows(np.array([job]))
                    if rows[0] != NONE:
                        first = int(state.jobs.first[rows[0]])
                        status = state.tasks.status[first : first + int(state.jobs.tasks[rows[0]])]
                        stopping = np.flatnonzero(status == STOPPING)
                        attempt = state.tasks.attempt
                        self.engine.stop([Attempt(job, int(i), int(attempt[first + i])) for i in stopping])
                case JobsForgotten(ids=ids):
                    self.engine.forget(ids)

    def _tell_again(self) -> None:
        """Repeat what the engine has not answered to."""
        rows = self.state.held_rows()
        status = self.state.tasks.status[rows]
        waiting = self._attempts_of(rows[status == PLACED])
        if waiting:
            self.engine.start([self._launch(a) for a in waiting])
        stopping = self._attempts_of(rows[status >= STOPPING])
        if stopping:
            self.engine.stop(stopping)

    def _reconcile(self, nodes: Iterable[str] | None) -> None:
        """After a start: what runs and is not in the journal is stopped; what should run and is gone was lost."""
        facts: list[Fact] = []
        if nodes is not None:
            there = set(nodes)
            for spec, up in zip(self.state.cluster.specs, self.state.nodes.up, strict=False):
                if up and spec.name not in there:
                    facts.append(NodeLost(at=self.clock(), node=spec.name))
            for fact in facts:
                self.state.apply(fact)
        known = self.engine.inventory()
        strays = [a for a in known if not self._is_current(a)]
        if strays:
            self.engine.stop(strays)
        rows = self.state.held_rows()
        gone = [a for a in self._attempts_of(rows) if a not in known and self._status(a) == RUNNING]
        if gone:
            ends = np.full(len(gone), Outcome.LOST, np.int64)
            code = np.zeros(len(gone), np.int64)
            facts.append(TasksFinished(at=self.clock(), **_columns(gone), outcome=ends, code=code))
            self.state.apply(facts[-1])
        self.journal.append(facts)
        self._tell_again()

    def _launch(self, attempt: Attempt) -> Launch:
        row = self.state.job_row(attempt.job)
        node = self.state.tasks.node[self.state.jobs.first[row] + attempt.task]
        return Launch(attempt, self.state.cluster.specs[node].name, self.state.index.specs[attempt.job])

    def _attempts_of(self, tasks: np.ndarray) -> list[Attempt]:
        columns = self.state.task_columns(tasks).values()
        return [Attempt(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def _task_row(self, attempt: Attempt) -> int:
        row = int(self.state.job_rows(np.array([attempt.job], np.int64))[0])
        if row == NONE or not 0 <= attempt.task < self.state.jobs.tasks[row]:
            return NONE
        return int(self.state.jobs.first[row]) + attempt.task

    def _is_current(self, attempt: Attempt) -> bool:
        row = self._task_row(attempt)
        if row == NONE or self.state.tasks.attempt[row] != attempt.number:
            return False
        return PLACED <= self.state.tasks.status[row] <= REVOKING

    def _status(self, attempt: Attempt) -> int:
        return int(self.state.tasks.status[self._task_row(attempt)])


def _columns(attempts: Sequence[Attempt]) -> dict[str, np.ndarray]:
    job, index, number = np.array(attempts, np.int64).reshape(-1, 3).T
    return {"job": job.copy(), "index": index.copy(), "attempt": number.copy()}


def _attempts(fact: TasksPlaced | TasksRevoked | TasksExpired) -> list[Attempt]:
    columns = (fact.job.tolist(), fact.index.tolist(), fact.attempt.tolist())
    return [Attempt(*row) for row in zip(*columns, strict=True)]
