"""That frameworks know what they were told of their tasks: taken as they come, and recorded many at a time.

A framework is answered before its acknowledgement is recorded, since most wait for that answer before they look at what comes
next. What is not recorded before the scheduler is killed is told again, and acknowledged again, as Mesos has it.
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

Noted = tuple[str, str, int, int]
"""A framework, its task, the job that this is, and the number of the update."""


class Acknowledgements:
    """What is not recorded yet. It is used in the event loop."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._noted: list[Noted] = []
        self._recording: asyncio.Task[None] | None = None

    def note(self, call: Call) -> None:
        """Take an acknowledgement; one of what there never was changes nothing."""
        found = events.update_of(call.acknowledge.uuid)
        if found is not None:
            self._noted.append((call.framework_id.value, call.acknowledge.task_id.value, *found))
            if self._recording is None:
                self._recording = asyncio.get_running_loop().create_task(self._record())

    async def _record(self) -> None:
        try:
            while self._noted:
                noted, self._noted = self._noted, []
                try:
                    await self._asker.ask(partial(_question, noted), changes=True)
                except (Stalled, Busy, TimeoutError):  # they are told again, and acknowledged again
                    await asyncio.sleep(1.0)
        finally:
            self._recording = None


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
