"""Who is subscribed, and what each of them is told: facts become events when they are recorded, and not before.

All of it is used in the scheduler's thread; the streams themselves are told things in the event loop.
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

TELL_AGAIN = 10.0
"""Seconds after which an update that is not acknowledged is told again."""
TOLD_OF_RESCINDED = ("expired", "node lost", "node drained", "node changed", "limit", "claimed")
"""Why offers are rescinded that their framework believes to hold; it knows itself that it went, or came back."""


class Subscriptions:
    """The streams of the frameworks that are connected.

    Attributes
    ----------
    streams : dict of str to Stream
        By framework.
    on_broken : callable
        Told, in the event loop, the groups of tasks of which one has ended as it should not.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self.streams: dict[str, Stream] = {}
        self._offered: dict[int, str] = {}  # whose an offer is
        self.on_broken: Callable[[set[Group]], object] = lambda groups: None
        self._told: dict[int, tuple[int, float]] = {}  # by job, the update that its framework was told last, and when

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say in which event loop the streams are."""
        self._loop = loop

    def begin(self, who: str, stream: Stream) -> None:
        """A framework is to be told things over this stream, and no more over an older one."""
        older = self.streams.get(who)
        self.streams[who] = stream
        if older is not None:
            self._end(older, [events.error_event("Framework failed over")])

    def end(self) -> None:
        """Nobody is told anything any more; from any thread."""
        for stream in list(self.streams.values()):
            self._soon(stream.end)

    def drop(self, who: str, stream: Stream) -> bool:
        """Nothing more can be told over a stream; whether its framework has no other."""
        if self.streams.get(who) is not stream:
            return False
        del self.streams[who]
        return True

    def only_tell(self, stream: Stream, told: Sequence[Event]) -> None:
        """Tell who is not subscribed something, and no more."""
        self._end(stream, told)

    def tell(self, who: str, told: Sequence[Event]) -> None:
        """Tell a framework something, if it is there."""
        stream = self.streams.get(who)
        if stream is not None and told:
            self._soon(stream.tell, told)

    def _end(self, stream: Stream, told: Sequence[Event]) -> None:
        self._soon(stream.tell, told)
        self._soon(stream.end)

    def _soon(self, what: object, *arguments: object) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended, and all streams with it
                self._loop.call_soon_threadsafe(what, *arguments)  # type: ignore[arg-type]

    def welcome(self, state: State, who: str) -> None:
        """Tell a framework that has come all updates that it has not acknowledged, of each task the first."""
        tasks = state.frameworks.tasks.get(who, {})
        for launched in tasks.values():
            self._told.pop(launched.job, None)
        self._tell_updates(state, [launched.job for launched in tasks.values()])

    def recorded(self, state: State, facts: Sequence[Fact]) -> None:
        """Tell what was recorded."""
        changed: dict[int, None] = {}
        for fact in facts:
            if isinstance(fact, OffersMade):
                self._offers_made(state, fact)
            elif isinstance(fact, OffersAccepted | OffersDeclined):
                for number in fact.ids:
                    self._offered.pop(number, None)
            elif isinstance(fact, OffersRescinded):
                self._rescinded(fact)
            elif isinstance(fact, TasksPlaced | TasksStarted | TasksFinished) and state.frameworks.have_tasks:
                changed |= dict.fromkeys(fact.job.tolist())
                if isinstance(fact, TasksFinished) and (broken := broken_groups(state, fact.job.tolist())):
                    self._soon(self.on_broken, broken)
            elif isinstance(fact, TaskSaid):
                changed[fact.job] = None
            elif isinstance(fact, UpdatesAcknowledged):
                changed |= dict.fromkeys(fact.jobs)
            elif isinstance(fact, NodeLost):
                changed |= dict.fromkeys(state.frameworks.task_of)
                for who in self.streams:
                    self.tell(who, [events.failure(fact.node)])
            elif isinstance(fact, FrameworkGone):
                self._gone(fact.id)
        self._tell_updates(state, changed)

    def executor_ended(self, who: str, agent: str, executor: str, status: int) -> None:
        """An executor of a framework has ended, with a wait status."""
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
                    for said in [
                        {mark: p.said for mark, p in state.frameworks.role_reservations.get(node.name, {}).items()}
                    ]
                ]
                self.tell(who, [events.offers(made)])

    def _rescinded(self, fact: OffersRescinded) -> None:
        for number in fact.ids:
            who = self._offered.pop(number, None)
            if who is not None and fact.why in TOLD_OF_RESCINDED:
                self.tell(who, [events.rescind(number)])

    def _gone(self, who: str) -> None:
        stream = self.streams.pop(who, None)
        if stream is not None:
            self._soon(stream.end)

    def _tell_updates(self, state: State, jobs: Iterable[int], again_before: float = -1.0) -> None:
        """Tell of each job the first update that its framework has not acknowledged, if it was not told that, or long ago."""
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
        """Tell again what was told some time ago, and is not acknowledged."""
        self._tell_updates(state, list(self._told), time.monotonic() - TELL_AGAIN)
