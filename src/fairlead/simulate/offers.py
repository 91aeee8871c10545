"""Simulated frameworks, which launch the jobs of some queues in offers.

Each such queue is a role with one framework. It answers an offer after a delay, launches the pending jobs that fit, by priority
and then submission, and refuses the rest for a while. With nothing pending it suppresses offers; a hoarding framework keeps
them until a job fits into all that it keeps of a machine, or until they are rescinded. Each launched task is a job of the
scheduler, so job numbers differ from the workload's: :class:`OfferedCluster` maps them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from fairlead.engines.contract import NOWHERE, Attempts, Launches, Seen, Where
from fairlead.engines.kernel.declared import RUNNING, STARTED
from fairlead.engines.simulated import SimulatedCluster
from fairlead.engines.step import Request
from fairlead.model.quantity import parse_percent, parse_seconds
from fairlead.model.specs import Framework, Job
from fairlead.scheduler import facts
from fairlead.scheduler.cluster import meets
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.kernel.view import MIN_OFFER
from fairlead.scheduler.state import State
from fairlead.simulate.workload import I64, TraceError, Workload

IDLE_ROUNDS = 10
"""Rounds of offers without a start, with no other event pending, after which the simulation ends."""


class Answers(NamedTuple):
    """How frameworks answer.

    queues : those whose jobs are launched in offers; None for all
    hold : seconds until an offer is answered
    refuse : seconds for which unused resources are refused
    hoards : True to keep unused offers
    timeout : seconds until an offer expires, in place of `offer_timeout` of the configuration; None: as there
    most : percentage of the cluster offered to a framework at once, at most, in place of `offer` there; None: as there
    """

    queues: frozenset[str] | None = None
    hold: float = 1.0
    refuse: float = 5.0
    hoards: bool = False
    timeout: float | None = None
    most: float | None = None


class OfferedCluster(SimulatedCluster):
    """A simulated cluster whose scheduler numbers jobs itself, and each task that a framework launches."""

    def reset(self) -> None:
        self._what: dict[int, tuple[int, int, int]] = {}
        self._latest = np.zeros(len(self.truth.last), np.int64)
        self.number_of: dict[int, int] = {}

    def assign(self, number: int, job: int, index: int | None = None) -> None:
        """Give a number to a job of the workload, or to one of its tasks."""
        if index is None:
            tasks = slice(int(self.truth.task[job]), int(self.truth.task[job] + self.truth.left[job]))
            self._what[number], self.number_of[job] = (job, 0, 0), number
        else:
            tasks = slice(int(self.truth.task[job] + index), int(self.truth.task[job] + index + 1))
            self._what[number] = (job, index, int(self.truth.last[tasks][0]))
        self._latest[tasks] = number

    def really(self, attempts: Attempts) -> Attempts:
        """Return attempts in the workload's numbers."""
        job, index, earlier = self._of(attempts.job)
        return Attempts(job + 1, attempts.index + index, attempts.number + earlier)

    def _as_numbered(self, attempts: Attempts) -> Attempts:
        number = self._latest[self.truth.task[attempts.job - 1] + attempts.index]
        _, index, earlier = self._of(number)
        return Attempts(number, attempts.index - index, attempts.number - earlier)

    def _of(self, numbers: I64) -> I64:
        return np.array([self._what[number] for number in numbers.tolist()], np.int64).reshape(-1, 3).T

    def start(self, launches: Launches) -> None:
        super().start(launches._replace(attempts=self.really(launches.attempts)))

    def stop(self, attempts: Attempts, grace: float, where: Where = NOWHERE) -> None:
        super().stop(self.really(attempts), grace, where)

    def poll(self) -> Seen:
        seen = super().poll()
        known = None if seen.known is None else self._as_numbered(seen.known)
        ended = seen.ended._replace(attempts=self._as_numbered(seen.ended.attempts))
        return seen._replace(known=known, started=self._as_numbered(seen.started), ended=ended)

    def acknowledge(self, attempts: Attempts) -> None:
        super().acknowledge(self.really(attempts))


@dataclass
class _Waiting:
    """Pending tasks of a framework as (job, index), by priority and shape; and the offers that it keeps."""

    tasks: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)


class Offers:
    """The frameworks of a simulation.

    `counts` are offers by outcome: made, accepted, declined, expired, and rescinded for other reasons. `offered` are resources in
    unanswered offers until the last task ended, in base units times seconds.
    """

    def __init__(self, how: Answers, seen: Workload, cluster: OfferedCluster, timeout: float) -> None:
        self._how, self._seen, self.cluster, self._timeout = how, seen, cluster, timeout
        self._waiting = {name: _Waiting() for name in seen.leaves if how.queues is None or name in how.queues}
        self._check()
        self._due: list[tuple[float, str, int]] = []
        self._wakes: list[float] = []
        self._since = self._moved = 0.0
        self._started = 0
        self.counts: Counter[str] = Counter()
        self.offered: dict[str, float] = {}
        self._offered: dict[str, float] = {}
        self._completed = 0
        cluster.reset()

    def _check(self) -> None:
        """Refuse a workload that cannot be launched in offers."""
        seen = self._seen
        if seen.changes:
            raise TraceError(f"--offers: cannot replay machines, jobs or a configuration that change, as those of {seen.name}")
        if unknown := sorted((self._how.queues or set()) - {*seen.leaves}):
            raise TraceError(f"--offers: no job is in queue {unknown[0]!r}: name queues of the trace, or all")
        for name in self._waiting:
            if fault := frameworks.check_role(name):
                raise TraceError(f"--offers: queue {name!r} cannot be a role: {fault}")
        if not any(node.capacity.get(name) for node in seen.nodes for name in MIN_OFFER):
            raise TraceError(f"--offers: no machine has {' or '.join(MIN_OFFER)}, which an offer needs")
        for job in np.flatnonzero(seen.gang & (seen.tasks > 1)).tolist():
            if self.launches(job):
                name = self._leaf(job)
                raise TraceError(f"--offers: queue {name!r} has gangs, and an offer is of one machine: leave it out")
        for job in {*seen.after, *(other for others in seen.after.values() for other in others)}:
            if self.launches(job):
                raise TraceError(f"--offers: queue {self._leaf(job)!r} has job dependencies: leave it out")

    def launches(self, job: int) -> bool:
        return self._leaf(job) in self._waiting

    def _leaf(self, job: int) -> str:
        return self._seen.leaves[self._seen.leaf[job]]

    # -- submission ----------------------------------------------------------------------------------------------

    def submit(self, state: State, job: int, now: float) -> list[Fact]:
        for index in range(int(self.cluster.truth.left[job])):
            self._wait(job, index)
        return self._want(state, self._leaf(job), now)

    def number(self, state: State, job: int) -> int:
        """Assign the next number to a job without a framework."""
        number = state.index.last + 1
        self.cluster.assign(number, job)
        return number

    def _wait(self, job: int, index: int) -> None:
        key = -int(self._seen.priority[job]), int(self._seen.shape[job])
        heappush(self._waiting[self._leaf(job)].tasks.setdefault(key, []), (job, index))

    def _want(self, state: State, name: str, now: float) -> list[Fact]:
        """Subscribe or revive a framework, and reconsider the offers that it keeps."""
        mine, member = self._waiting[name], state.frameworks.members.get(name)
        for offer in sorted(mine.kept):
            heappush(self._due, (now + self._how.hold, name, offer))
        mine.kept.clear()
        if member is None:
            return frameworks.subscribe(state, Framework(name, roles=[name]), name, [], now)
        return frameworks.revive(state, name, [], now) if member.suppressed else []

    # -- time ----------------------------------------------------------------------------------------------------

    def next_event(self) -> float:
        """Return the time of the next answer, end of a refusal, or expiry of offers."""
        return min(self._due[0][0] if self._due else np.inf, self._wakes[0] if self._wakes else np.inf)

    def advance(self, state: State, now: float) -> None:
        """Integrate unanswered offers until `now`; nothing has changed since the last call."""
        if self.cluster.completed > self._completed:
            self._completed, self.offered = self.cluster.completed, dict(self._offered)
        for name, amount in state.quantities(state.queues.offered[0]).items():
            self._offered[name] = self._offered.get(name, 0.0) + amount * (now - self._since)
        self._since = now

    def count_from(self, state: State, at: float) -> None:
        """Forget what was counted until `at`, up to which nothing changes."""
        self.advance(state, at)
        self.counts.clear()
        self.offered, self._offered = {}, {}

    def is_over(self, now: float) -> bool:
        """True if nothing will start any more: no task runs, and none waits or none has started for `IDLE_ROUNDS`."""
        truth, how = self.cluster.truth, self._how
        if truth.size[STARTED] > self._started:
            self._started, self._moved = int(truth.size[STARTED]), now
        wait = IDLE_ROUNDS * (how.hold + how.refuse + self._timeout)
        return truth.size[RUNNING] == 0 and (not truth.waiting.any() or now > self._moved + wait)

    def answers(self, now: float) -> list[Request]:
        while self._wakes and self._wakes[0] <= now:
            heappop(self._wakes)
        found: list[Request] = []
        while self._due and self._due[0][0] <= now:
            _, name, offer = heappop(self._due)
            found.append(partial(self._answer, name, offer))
        return found

    def _answer(self, name: str, offer: int, state: State, now: float) -> list[Fact]:
        row, mine = frameworks.row_of_offer(state, offer), self._waiting[name]
        if row is None:  # rescinded meanwhile
            return []
        node = state.offers.node[row]
        rows = [row, *(r for o in sorted(mine.kept) if state.offers.node[r := _row(state, o)] == node)]
        chosen = self._chosen(state, rows, mine)
        if not chosen and self._how.hoards:
            mine.kept.add(offer)
            return []
        heappush(self._wakes, now + self._how.refuse)
        ids = state.offers.id[rows].tolist()
        mine.kept.difference_update(ids)
        found = self._launch(state, name, ids, chosen, now)
        if not any(mine.tasks.values()) and not self._how.hoards:
            found += frameworks.suppress(state, name, [], now)
        return found

    def _chosen(self, state: State, rows: Sequence[int], mine: _Waiting) -> list[tuple[int, int]]:
        """Take the pending tasks that fit into offers of one machine."""
        seen, labels = self._seen, state.cluster.specs[state.offers.node[rows[0]]].labels
        room, found = state.quantities(state.offers.rest[list(rows)].sum(axis=0)), []
        first = [
            (key[0], heap[0], key)
            for key, heap in mine.tasks.items()
            if heap and meets(labels, tuple((label, tuple(any_of)) for label, any_of in seen.places[key[1]].items()))
        ]
        heapify(first)
        while first:
            _, _, key = heappop(first)
            demand, heap = seen.demands[key[1]], mine.tasks[key]
            if any(amount > room.get(name, 0) for name, amount in demand.items()):
                continue
            found.append(heappop(heap))
            room = {name: amount - demand.get(name, 0) for name, amount in room.items()}
            if heap:
                heappush(first, (key[0], heap[0], key))
        return found

    def _launch(self, state: State, name: str, offers: list[int], chosen: Sequence[tuple[int, int]], now: float) -> list[Fact]:
        asked, seen = {}, self._seen
        for job, index in chosen:
            again = int(self.cluster.truth.last[self.cluster.truth.task[job] + index])
            task = f"{job}.{index}.{again}"
            asked[task] = Job("", seen.demands[seen.shape[job]], task=task)
        found, refused = frameworks.accept(state, name, offers, list(asked.values()), self._how.refuse, now)
        invalid = {each.task for each in refused if isinstance(each, frameworks.InvalidTask)}
        number = state.index.last
        for task, (job, index) in zip(asked, chosen, strict=True):
            if task in invalid:  # the queue is at its task limit
                self._wait(job, index)
            else:
                number += 1
                self.cluster.assign(number, job, index)
        return found

    # -- reactions -----------------------------------------------------------------------------------------------

    def on_facts(self, happened: Sequence[Fact], state: State, now: float) -> list[Request]:
        """React to facts: count offers, schedule answers to them, acknowledge updates, and queue stopped tasks again."""
        jobs: dict[int, None] = {}
        for fact in happened:
            if isinstance(fact, facts.TasksFact):
                jobs |= dict.fromkeys(number for number in fact.job.tolist() if number in state.frameworks.task_of)
            elif isinstance(fact, facts.OffersMade):
                for offer in fact.offers:
                    heappush(self._due, (now + self._how.hold, offer.framework, offer.id))
                heappush(self._wakes, now + self._timeout)
                self.counts["made"] += len(fact.offers)
            elif isinstance(fact, facts.OffersAccepted):
                self.counts["accepted"] += len(fact.ids)
            elif isinstance(fact, facts.OffersDeclined):
                self.counts["declined"] += len(fact.ids)
            elif isinstance(fact, facts.OffersRescinded):
                self.counts["expired" if fact.why == "expired" else "rescinded"] += len(fact.ids)
                for mine in self._waiting.values():
                    mine.kept.difference_update(fact.ids)
        return [partial(self._acknowledge, list(jobs))] if jobs else []

    def _acknowledge(self, jobs: Iterable[int], state: State, now: float) -> list[Fact]:
        f, known, found = state.frameworks, list[tuple[int, int]](), list[Fact]()
        for number in jobs:
            who, task = f.task_of[number]
            launched = f.tasks[who][task]
            known += [(number, update.number) for update in launched.updates]
            if launched.over and launched.updates[-1].what != "finished":
                job, index, _ = map(int, task.split("."))
                self._wait(job, index)
                found += self._want(state, who, now)
        numbers, updates = zip(*known, strict=True) if known else ((), ())
        return [*found, facts.UpdatesAcknowledged(at=now, jobs=list(numbers), updates=list(updates))] if known else found


def _row(state: State, offer: int) -> int:
    row = frameworks.row_of_offer(state, offer)
    assert row is not None, "a kept offer was rescinded"
    return row


def parse_answers(queues: str, text: str) -> Answers:
    """Parse ``hold=1s,refuse=5s,timeout=60s,most=25%,hoard``. Raises ValueError with the remedy."""
    found = Answers(None if queues == "all" else frozenset(queues.split(",")))
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key in ("hold", "refuse", "timeout"):
            seconds: dict[str, Any] = {key: parse_seconds(value)}
            found = found._replace(**seconds)
        elif key == "most":
            found = found._replace(most=float(parse_percent(value)))
            if not found.most:
                raise ValueError(f"{part!r}: write more than 0%, or nothing would be offered")
        elif part == "hoard":
            found = found._replace(hoards=True)
        else:
            raise ValueError(f"{part!r}: write hold=1s, refuse=5s, timeout=60s, most=25% or hoard, with commas between")
    if found.timeout is not None and found.hold >= found.timeout:
        raise ValueError(f"hold={found.hold:g}s: use less than timeout, {found.timeout:g}s, or no offer is answered")
    if not found.hold and not found.refuse:
        raise ValueError("hold=0,refuse=0: not both 0, or an offer is made and refused for ever at one moment")
    return found
