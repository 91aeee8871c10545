"""Acknowledgements of task updates by frameworks: accepted at once, and recorded soon after, many at a time.

The next update of a task is sent once the acknowledgement of the one before is recorded. A scheduler that is killed in between
may send a task's last update again; as in Mesos, the framework then acknowledges it again. What cannot be recorded yet is
recorded later. If too much waits, acknowledgements are refused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from fairlead.scheduler.facts import Fact, UpdatesAcknowledged
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.state import State
from fairlead.service.api.state_client import StateClient
from fairlead.service.loop import Busy
from fairlead.service.mesos import events
from fairlead.service.mesos.messages.scheduler_pb2 import Call

MOST_WAITING = 10_000
"""Acknowledgements that wait to be recorded."""


class Noted(NamedTuple):
    """An acknowledged update: its task, and the agent where the framework believes the task to be, or empty."""

    framework: str
    task: str
    agent: str
    job: int
    number: int


class Acknowledgements:
    """Acknowledgements that are not recorded yet. For the event loop.

    until_taken : records the facts of a question as soon as possible
    """

    def __init__(
        self, client: StateClient, until_taken: Callable[[Callable[[State, float], tuple[list[Fact], None]]], Awaitable[None]]
    ) -> None:
        self._client, self._until_taken = client, until_taken
        self._noted: list[Noted] = []
        self._recording: asyncio.Task[None] | None = None

    def note(self, call: Call) -> None:
        """Accept an acknowledgement; one of an update that was not sent changes nothing. Raises Busy if too many wait."""
        if len(self._noted) >= MOST_WAITING:
            raise Busy(f"{MOST_WAITING} acknowledgements wait to be recorded: the journal cannot be written, or is slow")
        known = call.acknowledge
        update = events.update_of(known.uuid)
        self._noted.append(Noted(call.framework_id.value, known.task_id.value, known.agent_id.value, *update))
        if self._recording is None:
            self._recording = asyncio.get_running_loop().create_task(self._record())

    async def _record(self) -> None:
        try:
            while self._noted and not self._client.loop.stopped.is_set():
                noted = self._noted.copy()
                await self._until_taken(partial(recorded, noted))
                del self._noted[: len(noted)]
        finally:
            self._recording = None


def recorded(noted: list[Noted], state: State, now: float) -> tuple[list[Fact], None]:
    """Return the fact of acknowledgements, without known ones and those of updates that were not sent.

    Only the first unacknowledged update of a task is ever sent.
    """
    updates: dict[tuple[int, int], None] = {}
    for each in noted:
        there = each.framework in state.frameworks.members
        known = frameworks.tasks_of(state, each.framework).get(each.task) if there else None
        if known is None or known.job != each.job or each.agent not in ("", known.node):
            continue
        if known.updates and known.updates[0].number == each.number:
            updates[each.job, each.number] = None
    fact = UpdatesAcknowledged(at=now, jobs=[job for job, _ in updates], updates=[number for _, number in updates])
    return [fact] * bool(updates), None
