"""Subscribed frameworks, and the events they get: made from facts once these are recorded.

For the scheduler's thread; the streams themselves are used in the event loop.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from fairlead.scheduler.facts import (
    Fact,
    FrameworkGone,
    NodeLost,
    OffersAccepted,
    OffersDeclined,
    OffersMade,
    OffersRescinded,
    TaskSaid,
    TasksFinished,
    TasksPlaced,
    TasksStarted,
    UpdatesAcknowledged,
)
from fairlead.scheduler.state import State
from fairlead.service.clock import Clock
from fairlead.service.mesos import events, statuses
from fairlead.service.mesos.groups import Group, broken_groups
from fairlead.service.mesos.messages.scheduler_pb2 import Event
from fairlead.service.mesos.streams import Stream

RESEND_SECONDS = 10.0
"""After which an unacknowledged update is sent again."""
REPORTED_RESCINDED = ("expired", "node lost", "node drained", "node changed", "others first", "limit", "claimed")
"""Why offers are rescinded that their framework believes valid; it knows itself about its own disconnection."""


class Subscriptions:
    """The streams of connected frameworks.

    Attributes
    ----------
    streams : dict of str to Stream
        By framework.
    on_broken : callable
        Called in the event loop with the groups in which a task has failed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self.streams: dict[str, Stream] = {}
        self._offered: dict[int, str] = {}  # frameworks by offer
        self.on_broken: Callable[[set[Group]], object] = lambda groups: None
        self._told: dict[int, tuple[int, float]] = {}  # by job, the last update sent to its framework, and when

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def begin(self, who: str, stream: Stream) -> None:
        """Subscribe a framework to a stream, ending an older one."""
        older = self.streams.get(who)
        self.streams[who] = stream
        if older is not None:
            self._end(older, [events.error_event("Framework failed over")])

    def end(self) -> None:
        """End all streams. Thread-safe."""
        for stream in list(self.streams.values()):
            self._soon(stream.end)

    def drop(self, who: str, stream: Stream) -> bool:
        """Remove a stream; return True if it was its framework's current one."""
        if self.streams.get(who) is not stream:
            return False
        del self.streams[who]
        return True

    def only_tell(self, stream: Stream, told: Sequence[Event]) -> None:
        """Send something to a client that is not subscribed, and end its stream."""
        self._end(stream, told)

    def tell(self, who: str, told: Sequence[Event]) -> None:
        """Send events to a framework, if it is connected."""
        stream = self.streams.get(who)
        if stream is not None and told:
            self._soon(stream.tell, told)

    def _end(self, stream: Stream, told: Sequence[Event]) -> None:
        self._soon(stream.tell, told)
        self._soon(stream.end)

    def _soon(self, what: object, *arguments: object) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(what, *arguments)  # type: ignore[arg-type]

    def welcome(self, state: State, who: str) -> None:
        """Send a framework that has subscribed the first unacknowledged update of each task."""
        tasks = state.frameworks.tasks.get(who, {})
        for launched in tasks.values():
            self._told.pop(launched.job, None)
        self._tell_updates(state, [launched.job for launched in tasks.values()])

    def recorded(self, state: State, facts: Sequence[Fact]) -> None:
        """Send what these facts mean; updates first, so that no offer comes before the end of a task that made room for it."""
        changed: dict[int, None] = {}
        for fact in facts:
            if isinstance(fact, TasksPlaced | TasksStarted | TasksFinished) and state.frameworks.have_tasks:
                changed |= dict.fromkeys(fact.job.tolist())
            elif isinstance(fact, TaskSaid):
                changed[fact.job] = None
            elif isinstance(fact, UpdatesAcknowledged):
                changed |= dict.fromkeys(fact.jobs)
            elif isinstance(fact, NodeLost):
                changed |= dict.fromkeys(state.frameworks.task_of)
        self._tell_updates(state, changed)
        for fact in facts:
            if isinstance(fact, OffersMade):
                self._offers_made(state, fact)
            elif isinstance(fact, OffersAccepted | OffersDeclined):
                for number in fact.ids:
                    self._offered.pop(number, None)
            elif isinstance(fact, OffersRescinded):
                self._rescinded(fact)
            elif isinstance(fact, TasksFinished) and state.frameworks.have_tasks:
                if broken := broken_groups(state, fact.job.tolist()):
                    self._soon(self.on_broken, broken)
            elif isinstance(fact, NodeLost):
                for who in self.streams:
                    self.tell(who, [events.failure(fact.node)])
            elif isinstance(fact, FrameworkGone):
                self._gone(fact.id)

    def executor_ended(self, who: str, agent: str, executor: str, status: int) -> None:
        """Report the end of a framework's executor, with its wait status."""
        self.tell(who, [events.failure(agent, executor, status)])

    def _offers_made(self, state: State, fact: OffersMade) -> None:
        by_framework, executors = defaultdict(list), state.frameworks.executors_by_place()
        for offer in fact.offers:
            self._offered[offer.id] = offer.framework
            by_framework[offer.framework].append(offer)
        for who, offers in by_framework.items():
            member = state.frameworks.members.get(who)
            if member is not None and who in self.streams:
                known = events.knows(member.framework)
                made = [
                    events.to_offer(offer, node, known, said, executors.get((who, node.name), []))
                    for offer in offers
                    for node in [state.cluster.specs[offer.node]]
                    for said in [{mark: p.said for mark, p in state.frameworks.role_reservations.get(node.name, {}).items()}]
                ]
                self.tell(who, [events.offers(made)])

    def _rescinded(self, fact: OffersRescinded) -> None:
        for number in fact.ids:
            who = self._offered.pop(number, None)
            if who is not None and fact.why in REPORTED_RESCINDED:
                self.tell(who, [events.rescind(number)])

    def _gone(self, who: str) -> None:
        stream = self.streams.pop(who, None)
        if stream is not None:
            self._soon(stream.end)

    def _tell_updates(self, state: State, jobs: Iterable[int], again_before: float = -1.0) -> None:
        """Send the first unacknowledged update of each job, unless it was sent since `again_before`."""
        known = state.frameworks
        for job in jobs:
            who, task = known.task_of.get(job, ("", ""))
            launched = known.tasks[who][task] if who else None
            if launched is None or not launched.updates or who not in self.streams:
                self._told.pop(job, None)
                continue
            first = launched.updates[0]
            number, at = self._told.get(job, (0, 0.0))
            if number != first.number or at < again_before:
                self._told[job] = first.number, time.monotonic()
                framework = known.members[who].framework
                told = statuses.of_update(launched, task, first, framework, self._clock.wall)
                self.tell(who, [events.update(told)])

    def tell_again(self, state: State) -> None:
        """Send unacknowledged updates again after a while."""
        self._tell_updates(state, list(self._told), time.monotonic() - RESEND_SECONDS)
