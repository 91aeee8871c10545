"""One step of a scheduler: observe, decide, record, act. In that order, whatever happens.

Nothing is acted on, answered or acknowledged before the journal has it, so the process may be killed between any two lines.
After a restart, what was recorded is carried out, and what was not has never happened. The engine never runs an attempt twice
and is asked again for whatever it may have missed.
"""

import logging
import os
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from math import inf

import numpy as np
from msgspec.structs import replace

from fairlead.engines import contract
from fairlead.engines.contract import NO_ATTEMPTS, NOWHERE, Attempts, Ends, Engine, Launches, NodeDraining, NodeUp, Seen, Where
from fairlead.journal import ENGINE, Journal, JournalFull, JournalLost, Unrecorded, named_node
from fairlead.model.specs import Job
from fairlead.scheduler import admission, facts
from fairlead.scheduler.decide import decide, next_step, settle_first
from fairlead.scheduler.effects import Learned, apply
from fairlead.scheduler.facts import Fact, Ints, Outcome
from fairlead.scheduler.frameworks.requests import demand_with_tasks
from fairlead.scheduler.invariants import check_invariants
from fairlead.scheduler.kernel.scheduling import first_mentions
from fairlead.scheduler.reports.preemptions import RevocationCheck, startable_claims
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import FAILED, PLACED, RUNNING, STOPPING, SUCCEEDED
from fairlead.scheduler.tables import F64, I64, NONE, Bools

log = logging.getLogger("fairlead")

LATE = 1.0
"""Seconds of delay from which the end of a task is recorded at the time it happened, not when it was reported."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
REPEAT_AFTER = 5.0
"""Seconds after which an unanswered request to the engine is repeated."""
MOST_DECISIONS = 100
"""Decisions of one step at most; the next step continues."""

Request = Callable[[State, float], Iterable[Fact]]
"""A request of a person: takes the state and the time, and returns facts."""


class Stalled(RuntimeError):
    """The journal cannot be written: nothing new is accepted until it can."""


class Lost(Stalled):
    """This scheduler can never write the journal again, so it does nothing more; the next one continues."""


class Scheduler:
    """The state machine with its journal and its engine. Not thread-safe.

    After a start it requests an inventory from the engine; nothing is placed before that came.

    clock : seconds; may step back
    nodes : names of all nodes, if known: others were lost
    timed : takes "decide" or "commit" and returns a context to do that in
    repeat_after : seconds after which an unanswered request to the engine is repeated
    strict : True to raise PolicyError if a policy fails to divide; else that is logged, and its queues fall back

    reconciled : True once the engine sent its inventory
    placing : True if tasks are placed; set it to False to drain
    more : True if there is more to decide at once
    checking : True to check the state's invariants after each step, which is slow; see the variable FAIRLEAD_CHECK
    on_record : called with the facts just recorded, before they are acted on
    on_forget : called with the same; returns the forgotten jobs whose output may be removed
    """

    def __init__(
        self,
        journal: Journal | Unrecorded,
        engine: Engine,
        clock: Callable[[], float],
        nodes: Iterable[str] | None = None,
        timed: Callable[[str], AbstractContextManager[object]] = nullcontext,
        repeat_after: float = REPEAT_AFTER,
        strict: bool = False,
    ) -> None:
        self.journal, self.engine, self.clock = journal, engine, clock
        self.state = journal.recover()
        journal.begin()
        engine.serve(journal.id, journal.epoch)
        self.placing = True
        self.more = self.reconciled = False
        self.on_record: Callable[[Sequence[Fact]], None] = lambda found: None
        self.on_forget: Callable[[Sequence[Fact]], Iterable[int]] = forgotten_by
        self.checking = bool(os.environ.get("FAIRLEAD_CHECK"))
        self._there = None if nodes is None else set(nodes)
        self._timed, self._repeat_after, self._strict = timed, repeat_after, strict
        self._unsaved: list[Fact] = []
        self._unsaved_by: list[str] = []
        self._to_acknowledge: list[Attempts] = []
        self._to_repeat_at = -inf
        self._back: Set[str] = frozenset()  # nodes that sent an inventory, to be asked again at once
        self._saving: Iterator[None] | None = None

    @property
    def saving(self) -> bool:
        """True while a snapshot is being saved, of which each step saves a slice."""
        return self._saving is not None

    @property
    def stalled(self) -> bool:
        """True if the last step could not be recorded."""
        return bool(self._unsaved)

    def step(self, requests: Sequence[Request] = (), by: Sequence[str] = ()) -> None:
        """Apply requests and the engine's reports, decide, record, act. `by` names who made each request, if anybody.

        Raises Stalled if the journal cannot be written. Then nothing was acted on, the facts stay applied, and the next call
        first tries again to record them.
        """
        if self._unsaved:
            self._record()
        now = self.clock()
        if self._there is not None:
            nodes = zip(self.state.cluster.specs, self.state.nodes.up, strict=False)
            gone = [spec.name for spec, up in nodes if up and spec.name not in self._there]
            self._happen([facts.NodeLost(at=now, node=name) for name in gone], "")
            self._there = None
        self._observe(now)
        if now >= self._to_repeat_at or now < self._to_repeat_at - 2 * self._repeat_after:
            self._to_repeat_at = now + self._repeat_after
            if self.reconciled:  # unanswered requests were recorded by an earlier step
                tell_again(self.state, self.engine)
            else:
                self.engine.take_inventory()
        elif self._back:
            tell_again(self.state, self.engine, self._back)
        self._back = frozenset()
        for request, who in zip(requests, by or [""] * len(requests), strict=True):
            self._happen(request(self.state, now), who)
        self.more = False
        if self.placing and self.reconciled:
            with self._timed("decide"):
                self._decide(now)
        elif self.reconciled:
            self._happen(settle_first(self.state, now), "")
        self._record()
        if self.checking:
            check_invariants(self.state)
            if self.placing and self.reconciled and not self.more and (jobs := startable_claims(self.state)):
                raise AssertionError(f"room freed for jobs {jobs} is available, and they are not placed")
        if self.saving or self.journal.snapshot_due():
            self._save_some()

    def idle_for(self, most: float) -> float:
        """Return for how many seconds there is nothing to do if nothing happens, at most `most`."""
        if self.stalled:
            return most
        if self.saving:
            return 0.0
        if not (self.placing and self.reconciled):
            return most
        now = self.clock()
        return next_step(self.state, now + most, now, now)[0] - now

    def _decide(self, now: float) -> None:
        """Decide until tasks are placed, or there is no more to decide: no placement waits for the commit of a reservation."""
        for _ in range(MOST_DECISIONS):
            decision = decide(self.state, now, strict=self._strict)
            self._happen(decision.facts, "", decision.learned)
            self.more = decision.more
            if not self.more or any(isinstance(fact, facts.TasksPlaced) for fact in decision.facts):
                break

    def _happen(self, found: Iterable[Fact], by: str, learned: Learned | None = None) -> None:
        check = RevocationCheck() if self.checking else None
        for fact in found:
            if check is None:
                apply(self.state, fact, learned)
            elif fault := check.happen(self.state, fact, learned):
                raise AssertionError(fault)
            self._unsaved.append(fact)
            self._unsaved_by.append(_author(fact, by))

    def _observe(self, now: float) -> None:
        seen = self.engine.poll()
        found, strays = observe(self.state, seen, now)
        if len(strays.job):
            self.engine.stop(strays, GRACE)
        self._happen(found, ENGINE)
        if len(seen.ended.outcome):
            self._to_acknowledge.append(seen.ended.attempts)
        if seen.known is not None:
            self.reconciled = True
            if seen.of is None:
                self._to_repeat_at = -inf
            else:
                self._back = seen.of

    def _record(self) -> None:
        if self._unsaved:
            try:
                with self._timed("commit"):
                    self.journal.append(self._unsaved, self._unsaved_by)
            except JournalLost as error:
                raise Lost(str(error)) from None
            except JournalFull as error:
                raise Stalled(str(error)) from None
        found, self._unsaved, self._unsaved_by = self._unsaved, [], []
        if found:
            self.on_record(found)
        acknowledged, self._to_acknowledge = self._to_acknowledge, []
        for attempts in acknowledged:
            self.engine.acknowledge(attempts)
        act(self.state, self.engine, found, self.on_forget)

    def _save_some(self) -> None:
        """Save a slice of a snapshot: nobody waits for all of it."""
        if self._saving is None:
            self._saving = self.journal.save(self.state)
        try:
            for _ in self._saving:  # one slice, if any is left
                return
            self._saving = None
        except JournalFull as error:
            self._saving = None
            # Nothing is lost without it: the journal has the facts, and the next step tries again.
            log.warning("no snapshot: %s", error)


def _author(fact: Fact, by: str) -> str:
    """Return who caused a fact: a node that leaves by itself does so in its own name."""
    if by == ENGINE and isinstance(fact, facts.NodeForgotten | facts.NodeLeft):
        return named_node(fact.node)
    return by


def observe(state: State, seen: Seen, now: float) -> tuple[list[Fact], Attempts]:
    """Turn the engine's reports into facts, without what is already known or no longer true.

    Also return the attempts that run and must not: unknown to the journal, or over.
    """
    all_ended = seen.ended.attempts
    late, seen = _late_ends(state, seen, now)
    found: list[Fact] = [*late]
    started, since, cards, (ended, outcome, code, *used) = seen.started, seen.since, seen.cards, seen.ended
    strays = []
    if len(started.job):
        rows = state.current_tasks(started)
        chosen = first_mentions(state.view(), rows, PLACED)
        if len(chosen) < len(rows):
            strays.append(contract.pick(started, rows == NONE))
            started, (since, cards) = contract.pick(started, chosen), _those([since, cards], chosen)
        if len(chosen):
            cards = cards.ravel() if cards.any() else NO_ATTEMPTS.job
            found.append(facts.TasksStarted(at=now, **_columns(started), ago=since, cards=cards))
    if len(seen.ago):
        rows = state.current_tasks(seen.checkpointed)
        news = (rows != NONE) & (state.tasks.kept_at[rows] < now - seen.ago / 1000)
        if news.any():
            found.append(facts.TasksCheckpointed(at=now, **_columns(contract.pick(seen.checkpointed, news)), ago=seen.ago[news]))
    if len(outcome):
        over = state.current_tasks(ended)
        chosen = first_mentions(state.view(), over, NONE)
        if len(chosen) < len(over):
            ended, outcome, code = contract.pick(ended, chosen), outcome[chosen], code[chosen]
            used = _those(used, chosen)
    if seen.known is not None:
        rows = state.current_tasks(seen.known)
        strays.append(contract.pick(seen.known, rows == NONE))
        lost = _lost(state, np.concatenate([rows, state.current_tasks(all_ended)]), seen.of)
        ended = contract.joined([ended, lost])
        outcome = np.concatenate([outcome, np.full(len(lost.job), Outcome.LOST, np.int64)])
        unknown = np.zeros(len(lost.job), np.int64)
        code = np.concatenate([code, unknown])
        used = [np.concatenate([column, unknown]) if len(column) else column for column in used]
    if len(outcome):
        outcome, code = _led(state, ended, outcome, code)
        found.append(facts.TasksFinished(at=now, **_columns(ended), outcome=outcome, code=code, **_used(used)))
    if seen.nodes:
        found += _changed_nodes(state, seen, now)
    return found, contract.joined(strays)


def _late_ends(state: State, seen: Seen, now: float) -> tuple[list[facts.TasksFinished], Seen]:
    """Backdate late ends to the second they happened, as far as known. Also return the rest.

    Else their queues would be charged for what nobody had. A task without a reported start counts from the last fact.
    """
    ends = seen.ended
    if not len(ends.ran) or state.at == -inf:
        return [], seen
    rows = state.current_tasks(ends.attempts)
    began = np.where(state.tasks.status[rows] >= RUNNING, state.tasks.started_at[rows], state.at)
    at = np.maximum(began + ends.ran / 1000, state.at)
    late = (ends.ran > 0) & (at < now - LATE)
    if not late.any():
        return [], seen
    first = np.zeros(len(rows), np.bool_)
    first[first_mentions(state.view(), rows, NONE)] = True
    late &= first
    outcome, code = _led(state, ends.attempts, ends.outcome, ends.code)
    found, at = [], np.maximum(state.at, np.floor(at / LATE) * LATE)
    for when in np.unique(at[late]).tolist():
        which = late & (at == when)
        what = {"outcome": outcome[which], "code": code[which], **_used(_those(ends[3:], which))}
        found.append(facts.TasksFinished(at=when, **_columns(contract.pick(ends.attempts, which)), **what))
    others = ~np.isin(rows, rows[late])  # an end may be reported twice
    rest = Ends(contract.pick(ends.attempts, others), *_those(ends[1:], others))
    goes_on = ~np.isin(state.current_tasks(seen.started), rows[late])
    since, cards = _those([seen.since, seen.cards], goes_on)
    return found, seen._replace(ended=rest, started=contract.pick(seen.started, goes_on), since=since, cards=cards)


def _used(columns: Sequence[I64]) -> dict[str, I64]:
    """Name the columns of what was used; there are no calls but of leases."""
    used = dict(zip(Ends._fields[3:], columns, strict=True))
    return used if used["calls"].any() else {**used, "calls": NO_ATTEMPTS.job, "called": NO_ATTEMPTS.job}


def _those(columns: Sequence[I64], which: np.ndarray) -> list[I64]:
    """Select rows of columns; empty columns stay empty."""
    return [column[which] if len(column) else column for column in columns]


def forgotten_by(found: Iterable[Fact]) -> list[int]:
    return [job for fact in found if isinstance(fact, facts.JobsForgotten) for job in fact.ids]


def act(
    state: State, engine: Engine, found: Sequence[Fact], may_go: Callable[[Sequence[Fact]], Iterable[int]] = forgotten_by
) -> None:
    """Have the engine carry out what was recorded; `may_go` returns the forgotten jobs whose output it may remove."""
    for fact in found:
        match fact:
            case facts.TasksPlaced():
                _start(state, engine, fact.attempts, fact.node)
                _limit(state, engine, fact.attempts)
            case facts.TasksFinished():
                _limit(state, engine, fact.attempts)
                _let_the_led_go(state, engine, fact)
            case facts.TasksRevoked() | facts.TasksExpired():
                _stop(state, engine, fact.attempts)
            case facts.JobCancelled(id=job):
                stopping = state.attempts_of(_stopping_rows(state, job))
                if len(stopping.job):
                    _stop(state, engine, stopping)
    if gone := list(may_go(found)):
        engine.forget(gone)


def tell_again(state: State, engine: Engine, machines: Set[str] | None = None) -> None:
    """Repeat requests that the engine did not answer, for some nodes or all."""
    rows = _held_rows(state, machines)
    status = state.tasks.status[rows]
    waiting = rows[status == PLACED]
    if len(waiting):
        _start(state, engine, state.attempts_of(waiting), state.tasks.node[waiting])
    if state.frameworks.inside:
        _limit(state, engine, state.attempts_of(rows))
    stopping = rows[status >= STOPPING]
    if len(stopping):
        _stop(state, engine, state.attempts_of(stopping))


def with_graces(state: State, attempts: Attempts) -> Iterator[tuple[Attempts, float]]:
    """Yield attempts with their grace in seconds: what their jobs request within their queues' limit, or their framework."""
    graces = graces_of(state, attempts.job)
    for grace in np.unique(graces).tolist():
        yield contract.pick(attempts, graces == grace), grace


def graces_of(state: State, jobs: I64) -> F64:
    """Return the grace of each of these jobs, by number, in seconds."""
    numbers, which = np.unique(jobs, return_inverse=True)
    return np.array([grace_of(state, number) for number in numbers.tolist()], np.float64)[which]


def grace_of(state: State, job: int) -> float:
    asked = state.frameworks.graces.get(job)
    if asked is not None:
        return asked
    spec = state.index.specs[job]
    most = state.tree.inherited(spec.queue, "grace", GRACE)
    return most if spec.grace is None else min(spec.grace, most)


def _are_its(state: State, attempts: Attempts) -> Bools:
    """Return which attempts are the engine's: tasks inside an executor are not."""
    others = state.index.in_executors
    if not others:
        return np.ones(len(attempts.job), np.bool_)
    return np.array([job not in others for job in attempts.job.tolist()], np.bool_)


def _start(state: State, engine: Engine, attempts: Attempts, node: Ints) -> None:
    if state.index.in_executors:
        its = _are_its(state, attempts)
        attempts, node = contract.pick(attempts, its), node[its]
    if len(node):
        engine.start(_launches(state, attempts, node))


def _limit(state: State, engine: Engine, attempts: Attempts) -> None:
    """Set executors' limits to their demand with that of all tasks inside, if it may have changed."""
    f = state.frameworks
    if not f.executors:
        return
    within = {f.inside.get(job) or _executor_of(state, job) for job in attempts.job.tolist()} & f.executors.keys()
    numbers = sorted(number for number in within if number is not None and not f.executors[number].over)
    if numbers:
        jobs = np.array(numbers, np.int64)
        running = Attempts(jobs, np.zeros_like(jobs), np.ones_like(jobs))
        engine.limit(running, [demand_with_tasks(state, number) for number in numbers])


def _executor_of(state: State, job: int) -> int | None:
    """Return the number of the executor that a job's task ran in, if it still exists."""
    spec = state.index.specs.get(job)
    if spec is None or not (spec.executor and spec.task):
        return None
    node = state.tasks.node[state.jobs.first[state.job_row(job)]]
    return state.frameworks.executor_on(spec.framework, spec.executor, state.cluster.specs[node].name)


def _stop(state: State, engine: Engine, attempts: Attempts) -> None:
    its = _are_its(state, attempts) & ~_still_led(state, attempts)
    for some, grace in with_graces(state, contract.pick(attempts, its)):
        engine.stop(some, grace, _where(state, some))


def _led(state: State, ended: Attempts, outcome: I64, code: I64) -> tuple[I64, I64]:
    """Correct the outcomes of gang members that only held room: they succeed if their leader is over."""
    gangs = _led_among(state, ended.job)
    well = [job for job in gangs if state.tasks.status[_leader_of(state, job)] in (SUCCEEDED, FAILED)]
    if not well:
        return outcome, code
    led = np.isin(ended.job, well) & (ended.index > 0)
    return np.where(led, Outcome.EXITED, outcome), np.where(led, 0, code)


def _still_led(state: State, attempts: Attempts) -> np.ndarray:
    """Return which attempts only hold room for a leader that still runs: they are stopped after it."""
    gangs = _led_among(state, attempts.job)
    lead = [job for job in gangs if PLACED <= state.tasks.status[_leader_of(state, job)] < SUCCEEDED]
    return np.isin(attempts.job, lead) & (attempts.index > 0)


def _let_the_led_go(state: State, engine: Engine, fact: facts.TasksFinished) -> None:
    """Stop the members of gangs whose leader ended, if they are to be stopped."""
    for job in _led_among(state, fact.job[fact.index == 0]) if state.index.led else ():
        first, status = _leader_of(state, job), state.tasks.status
        own = status[first : first + int(state.jobs.tasks[state.job_row(job)])]
        stopping = first + np.flatnonzero((own >= STOPPING) & (own < SUCCEEDED))
        if len(stopping):
            _stop(state, engine, state.attempts_of(stopping))


def _led_among(state: State, jobs: Ints) -> list[int]:
    return sorted(state.index.led.intersection(jobs.tolist())) if state.index.led else []


def _leader_of(state: State, job: int) -> int:
    return int(state.jobs.first[state.job_row(job)])


def _where(state: State, attempts: Attempts) -> Where:
    """Return the nodes of attempts; NOWHERE if any holds no resources."""
    held = state.current_tasks(attempts)
    if (held == NONE).any():
        return NOWHERE
    return _places(state, state.tasks.node[held])


def _places(state: State, node: np.ndarray) -> Where:
    rows: dict[int, int] = {}  # mostly one or two, for which numpy takes longer
    place = np.array([rows.setdefault(row, len(rows)) for row in node.tolist()], np.int64)
    return Where(place, [state.cluster.specs[row].name for row in rows])


def _lost(state: State, known: I64, machines: Set[str] | None) -> Attempts:
    """Return started tasks that hold resources, on some nodes or all, but are not in rows `known`: their engine lost them.

    A task without a reported start may still start: the engine is asked again to start or stop it.
    """
    there = np.zeros(state.tasks.n + 1, np.bool_)  # the last entry is for NONE
    there[known] = True
    rows = _held_rows(state, machines)
    lost = state.attempts_of(rows[~there[rows] & ~np.isnan(state.tasks.started_at[rows])])
    return contract.pick(lost, _are_its(state, lost))


def _held_rows(state: State, machines: Set[str] | None) -> I64:
    """Return the rows of tasks that hold resources, on some nodes or all: each node's inventory costs what it has."""
    if machines is None:
        return state.held_rows()
    nodes = [state.cluster.rows[name] for name in machines if name in state.cluster.rows]
    if len(nodes) <= len(state.cluster.specs) // 2:
        return state.held_rows(nodes)
    rows = state.held_rows()
    return rows[np.isin(state.tasks.node[rows], nodes)]


def _changed_nodes(state: State, seen: Seen, now: float) -> list[Fact]:
    found: list[Fact] = []
    names = {event.node.name if isinstance(event, NodeUp) else event.node for event in seen.nodes}
    rows = [state.cluster.rows[name] for name in names if name in state.cluster.rows]
    there = {state.cluster.specs[row].name: state.cluster.specs[row] for row in rows if state.nodes.up[row]}
    drained = {state.cluster.specs[row].name for row in rows if state.nodes.draining[row]}
    for event in seen.nodes:
        if isinstance(event, NodeUp):
            found += admission.forget_cards(state, event.node.name, event.cards, now)
            if there.get(event.node.name) != event.node:
                there[event.node.name] = event.node
                drained.discard(event.node.name)
                found.append(facts.NodeJoined(at=now, node=event.node))
        elif isinstance(event, NodeDraining):
            if event.node in there and event.node not in drained:
                drained.add(event.node)
                found.append(facts.NodeDrained(at=now, node=event.node))
        else:
            if there.pop(event.node, None) is not None:
                found.append(facts.NodeLost(at=now, node=event.node))
            if event.left and event.node in state.cluster.members:
                left = facts.NodeForgotten if event.node in state.cluster.rows else facts.NodeLeft  # or it never came up
                found.append(left(at=now, node=event.node))
    return found


def _stopping_rows(state: State, job: int) -> I64:
    """Return a job's tasks to be stopped; none for a forgotten job."""
    row = int(state.job_rows(np.array([job]))[0])
    if row == NONE:
        return np.zeros(0, np.int64)
    first = int(state.jobs.first[row])
    return first + np.flatnonzero(state.tasks.status[first : first + int(state.jobs.tasks[row])] == STOPPING)


def _launches(state: State, attempts: Attempts, node: Ints) -> Launches:
    jobs: Mapping[int, Job] = state.index.specs
    if any(executor.tasks for executor in state.frameworks.executors.values()):
        here = state.frameworks.executors.keys() & {*attempts.job.tolist()}
        more = {number: replace(jobs[number], demand=demand_with_tasks(state, number)) for number in here}
        jobs = ChainMap(more, state.index.specs)
    where = _places(state, node)
    drained = {name: cards for name in where.nodes if (cards := state.drained_cards(state.cluster.rows[name]))}
    rows = state.job_rows(attempts.job)
    gangs = {int(state.jobs.id[row]): _nodes_of(state, row) for row in {*rows[state.jobs.gang[rows]].tolist()}}
    return Launches(attempts, *where, jobs, drained, gangs)


def _nodes_of(state: State, row: int) -> list[str]:
    """Return the nodes of all tasks of a job, empty for those that are over."""
    mine = slice(int(state.jobs.first[row]), int(state.jobs.first[row] + state.jobs.tasks[row]))
    holds = (state.tasks.status[mine] >= PLACED) & (state.tasks.status[mine] < SUCCEEDED)
    nodes = zip(state.tasks.node[mine].tolist(), holds.tolist(), strict=True)
    return [state.cluster.specs[node].name if there else "" for node, there in nodes]


def _columns(attempts: Attempts) -> dict[str, Ints]:
    return {"job": attempts.job, "index": attempts.index, "attempt": attempts.number}
