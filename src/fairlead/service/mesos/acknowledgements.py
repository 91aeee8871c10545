"""That frameworks know what they were told of their tasks: recorded many at a time, and each answered when it is recorded.

So nothing that was acknowledged is told again, whatever happens to the scheduler. One that cannot be recorded for a while is
answered so; it is recorded when that can be.
"""

import asyncio
from functools import partial

from fairlead.engines.step import Stalled
from fairlead.scheduler import frameworks
from fairlead.scheduler.facts import Fact, UpdatesAcknowledged
from fairlead.scheduler.state import State
from fairlead.service.api.asking import Asker
from fairlead.service.loop import Busy
from fairlead.service.mesos import events
from fairlead.service.mesos.messages.scheduler_pb2 import Call

PATIENCE = 10.0
"""Seconds that one waits until it is recorded."""
AGAIN = 0.5
"""Seconds between two tries to record what could not be."""
Noted = tuple[str, str, int, int]
"""A framework, its task, the job that this is, and the number of the update."""


class Acknowledgements:
    """What is not recorded yet. It is used in the event loop."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._noted: list[Noted] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._recording: asyncio.Task[None] | None = None

    async def note(self, call: Call) -> None:
        """Record an acknowledgement; one of what there never was changes nothing. Raises Busy where it cannot be recorded now."""
        found = events.update_of(call.acknowledge.uuid)
        if found is None:
            return
        loop = asyncio.get_running_loop()
        recorded: asyncio.Future[None] = loop.create_future()
        self._noted.append((call.framework_id.value, call.acknowledge.task_id.value, *found))
        self._waiting.append(recorded)
        if self._recording is None:
            self._recording = loop.create_task(self._record())
        try:
            await asyncio.wait_for(recorded, PATIENCE)
        except TimeoutError:
            raise Busy(
                "the acknowledgement is not recorded yet: the journal cannot be written, or all are busy"
            ) from None

    async def _record(self) -> None:
        while self._noted:
            noted, waiting = self._noted, self._waiting
            self._noted, self._waiting = [], []
            over = False
            while not over and not await self._is_recorded(noted):
                await asyncio.sleep(AGAIN)
                over = self._asker.loop.stopped.is_set()
            for each in waiting:
                if not over and not each.done():
                    each.set_result(None)
        self._recording = None

    async def _is_recorded(self, noted: list[Noted]) -> bool:
        """Have acknowledgements recorded, unless that cannot be now. Those that may have been once do no harm again."""
        try:
            await self._asker.ask(partial(_question, noted), changes=True)
        except (Stalled, Busy, TimeoutError):
            return False
        return True


def _question(noted: list[Noted], state: State, now: float) -> tuple[list[Fact], None]:
    return recorded(state, noted, now), None


def recorded(state: State, noted: list[Noted], now: float) -> list[Fact]:
    """The fact that acknowledgements come to, without those that are known or of nothing."""
    updates: dict[tuple[int, int], None] = {}
    for who, task, job, number in noted:
        known = frameworks.tasks_of(state, who).get(task) if who in state.frameworks.members else None
        if known is not None and known.job == job and any(update.number == number for update in known.updates):
            updates[job, number] = None
    if not updates:
        return []
    return [UpdatesAcknowledged(at=now, jobs=[job for job, _ in updates], updates=[number for _, number in updates])]
