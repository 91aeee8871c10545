"""That frameworks know what they were told of their tasks: answered when it is taken, and recorded soon, many at a time.

A task's next update is told once it is recorded that the one before is known. So of each task the last one may be told again,
by a scheduler that was killed in the moment between; as in Mesos, who has acknowledged it does so again. What cannot be recorded
for a while is recorded when it can be; where much waits for that, no more is taken.
"""

import asyncio
from functools import partial
from typing import NamedTuple

from fairlead.engines.step import Stalled
from fairlead.scheduler.facts import Fact, UpdatesAcknowledged
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.state import State
from fairlead.service.api.asking import Asker
from fairlead.service.loop import Busy
from fairlead.service.mesos import events
from fairlead.service.mesos.messages.scheduler_pb2 import Call

MOST = 10_000
"""Acknowledgements that wait to be recorded."""
AGAIN = 0.5
"""Seconds between two tries to record what could not be."""


class Noted(NamedTuple):
    """An update that a framework says it knows: of which task, where it believes that to be, empty for no belief."""

    framework: str
    task: str
    agent: str
    job: int
    number: int


class Acknowledgements:
    """What is not recorded yet. It is used in the event loop."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._noted: list[Noted] = []
        self._recording: asyncio.Task[None] | None = None

    def note(self, call: Call) -> None:
        """Have an acknowledgement recorded; one of what was not told changes nothing. Raises Busy where too many wait."""
        if len(self._noted) >= MOST:
            raise Busy(f"{MOST} acknowledgements wait to be recorded: the journal cannot be written, or all are busy")
        known = call.acknowledge
        update = events.update_of(known.uuid)
        self._noted.append(Noted(call.framework_id.value, known.task_id.value, known.agent_id.value, *update))
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
    """The fact that acknowledgements come to, without those that are known, of nothing, or of what was not told.

    Of each task nothing is told but the first update that is not acknowledged.
    """
    updates: dict[tuple[int, int], None] = {}
    for each in noted:
        there = each.framework in state.frameworks.members
        known = frameworks.tasks_of(state, each.framework).get(each.task) if there else None
        if known is None or known.job != each.job or each.agent not in ("", known.node):
            continue
        if known.updates and known.updates[0].number == each.number:
            updates[each.job, each.number] = None
    if not updates:
        return []
    return [UpdatesAcknowledged(at=now, jobs=[job for job, _ in updates], updates=[number for _, number in updates])]
