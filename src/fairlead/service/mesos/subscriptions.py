"""Subscribed frameworks: the events they get, and their acknowledgements.

Events are made from facts once these are recorded, in the scheduler's thread; the streams themselves are used in the event loop.

Acknowledgements of task updates are accepted at once, and recorded soon after, many at a time. The next update of a task is sent
once the acknowledgement of the one before is recorded. A scheduler that is killed in between may send a task's last update again;
as in Mesos, the framework then acknowledges it again. What cannot be recorded yet is recorded later. If too much waits,
acknowledgements are refused.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from fairlead.scheduler import facts
from fairlead.scheduler.facts import Fact, UpdatesAcknowledged
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.state import State
from fairlead.service.api.state_client import StateClient
from fairlead.service.clock import Clock
from fairlead.service.loop import Busy
from fairlead.service.mesos import events, statuses
from fairlead.service.mesos.groups import Group, broken_groups
from fairlead.service.mesos.messages.scheduler_pb2 import Call, Event
from fairlead.service.mesos.streams import Stream, Streams

RESEND_SECONDS = 10.0
"""After which an unacknowledged update is sent again."""
REPORTED_RESCINDED = ("expired", "node lost", "node drained", "node changed", "others first", "limit", "claimed")
"""Why offers are rescinded that their framework believes valid; it knows itself about its own disconnection."""
MOST_WAITING = 10_000
"""Acknowledgements that wait to be recorded."""


class Subscriptions(Streams[str]):
    """The streams of connected frameworks.

    on_broken : called in the event loop with the groups in which a task has failed
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._offered: dict[int, str] = {}  # frameworks by offer
        self.on_broken: Callable[[set[Group]], object] = lambda groups: None
        self._told: dict[int, tuple[int, float]] = {}  # by job, the last update sent to its framework, and when

    def begin(self, who: str, stream: Stream) -> None:
        """Subscribe a framework to a stream, ending an older one."""
        self.end_with(self.streams.get(who), [events.error_event("Framework failed over")])
        self.streams[who] = stream

    def drop(self, who: str, stream: Stream) -> bool:
        """Remove a stream; return True if it was its framework's current one."""
        if self.streams.get(who) is not stream:
            return False
        del self.streams[who]
        return True

    def welcome(self, state: State, who: str) -> None:
        """Send a framework that has subscribed the first unacknowledged update of each task."""
        tasks = state.frameworks.tasks.get(who, {})
        for launched in tasks.values():
            self._told.pop(launched.job, None)
        self._tell_updates(state, [launched.job for launched in tasks.values()])

    def recorded(self, state: State, found: Sequence[Fact]) -> None:
        """Send what these facts mean; updates first, so that no offer comes before the end of a task that made room for it."""
        changed: dict[int, None] = {}
        for fact in found:
            if isinstance(fact, facts.TasksPlaced | facts.TasksStarted | facts.TasksFinished) and state.frameworks.have_tasks:
                changed |= dict.fromkeys(fact.job.tolist())
            elif isinstance(fact, facts.TaskSaid):
                changed[fact.job] = None
            elif isinstance(fact, facts.UpdatesAcknowledged):
                changed |= dict.fromkeys(fact.jobs)
            elif isinstance(fact, facts.NodeLost):
                changed |= dict.fromkeys(state.frameworks.task_of)
        self._tell_updates(state, changed)
        for fact in found:
            if isinstance(fact, facts.OffersMade):
                self._offers_made(state, fact)
            elif isinstance(fact, facts.OffersAccepted | facts.OffersDeclined | facts.OffersRescinded):
                reported = isinstance(fact, facts.OffersRescinded) and fact.why in REPORTED_RESCINDED
                for number in fact.ids:
                    gone = self._offered.pop(number, None)
                    if gone is not None and reported:
                        self.tell(gone, [events.rescind(number)])
            elif isinstance(fact, facts.TasksFinished) and state.frameworks.have_tasks:
                if broken := broken_groups(state, fact.job.tolist()):
                    self._soon(self.on_broken, broken)
            elif isinstance(fact, facts.NodeLost):
                for who in self.streams:
                    self.tell(who, [events.failure(fact.node)])
            elif isinstance(fact, facts.FrameworkGone):
                self.end_with(self.streams.pop(fact.id, None))

    def _offers_made(self, state: State, fact: facts.OffersMade) -> None:
        by_framework, executors = defaultdict(list), defaultdict[tuple[str, str], list[str]](list)
        for each in state.frameworks.executors.values():
            executors[each.framework, each.node].append(each.name)
        for offer in fact.offers:
            self._offered[offer.id] = offer.framework
            by_framework[offer.framework].append(offer)
        for who, offers in by_framework.items():
            member = state.frameworks.members.get(who)
            if member is not None and who in self.streams:
                reservations = state.frameworks.role_reservations
                made = [
                    events.to_offer(offer, node, member.framework, here, executors[who, node.name])
                    for offer in offers
                    for node in [state.cluster.specs[offer.node]]
                    for here in [reservations.get(node.name, {})]
                ]
                self.tell(who, [Event(type=Event.OFFERS, offers={"offers": made})])

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


Noted = tuple[str, str, str, int, int]
"""An acknowledged update: framework and task, the agent where the framework believes the task to be or empty, job and number."""


class Acknowledgements:
    """Acknowledgements that are not recorded yet. For the event loop."""

    def __init__(self, client: StateClient) -> None:
        self._client = client
        self._noted: list[Noted] = []
        self._recording: asyncio.Task[None] | None = None

    def note(self, call: Call) -> None:
        """Accept an acknowledgement; one of an update that was not sent changes nothing. Raises Busy if too many wait."""
        if len(self._noted) >= MOST_WAITING:
            raise Busy(f"{MOST_WAITING} acknowledgements wait to be recorded: the journal cannot be written, or is slow")
        known = call.acknowledge
        job, number = events.UUID.unpack(known.uuid)
        self._noted.append((call.framework_id.value, known.task_id.value, known.agent_id.value, job, number))
        if self._recording is None:
            self._recording = asyncio.get_running_loop().create_task(self._record())

    async def _record(self) -> None:
        try:
            while self._noted and not self._client.loop.stopped.is_set():
                noted = self._noted.copy()
                await self._client.record(partial(recorded, noted))
                del self._noted[: len(noted)]
        finally:
            self._recording = None


def recorded(noted: list[Noted], state: State, now: float) -> list[Fact]:
    """Return the fact of acknowledgements, without known ones and those of updates that were not sent.

    Only the first unacknowledged update of a task is ever sent.
    """
    updates: dict[tuple[int, int], None] = {}
    for who, task, agent, job, number in noted:
        known = frameworks.tasks_of(state, who).get(task) if who in state.frameworks.members else None
        if known is None or known.job != job or agent not in ("", known.node):
            continue
        if known.updates and known.updates[0].number == number:
            updates[job, number] = None
    fact = UpdatesAcknowledged(at=now, jobs=[job for job, _ in updates], updates=[number for _, number in updates])
    return [fact] * bool(updates)
