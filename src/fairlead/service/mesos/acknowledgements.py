"""That frameworks know what they were told of their tasks: answered when it is taken, and recorded soon, many at a time.

A task's next update is told once it is recorded that the one before is known. So of each task the last one may be told again,
by a scheduler that was killed in the moment between; as in Mesos, who has acknowledged it does so again. What cannot be recorded
for a while is recorded when it can be; where much waits for that, no more is taken.
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

MOST = 10_000
"""Acknowledgements that wait to be recorded."""
AGAIN = 0.5
"""Seconds between two tries to record what could not be."""
Noted = tuple[str, str, int, int]
"""A framework, its task, the job that this is, and the number of the update."""


class Acknowledgements:
    """What is not recorded yet. It is used in the event loop."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._noted: list[Noted] = []
        self._recording: asyncio.Task[None] | None = None

    def note(self, call: Call) -> None:
        """Have an acknowledgement recorded; one of what there never was changes nothing. Raises Busy where too many wait."""
        found = events.update_of(call.acknowledge.uuid)
        if found is None:
            return
        if len(self._noted) >= MOST:
            raise Busy(f"{MOST} acknowledgements wait to be recorded: the journal cannot be written, or all are busy")
        self._noted.append((call.framework_id.value, call.acknowledge.task_id.value, *found))
        if self._recording is None:
            self._recording = asyncio.get_running_loop().create_task(self._record())

    async def _record(self) -> None:
        try:
            while self._noted and not self._asker.loop.stopped.is_set():
                noted = self._noted.copy()
                if await self._is_recorded(noted):
                    del self._noted[: len(noted)]
                else:
                    await asyncio.sleep(AGAIN)
        finally:
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
