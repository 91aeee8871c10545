"""Calls of executors, as questions to the scheduler's thread; checked and answered as Mesos agents do."""

import asyncio
from collections.abc import Callable
from typing import Any

from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State
from fairlead.service.api.state_client import StateClient
from fairlead.service.mesos import events
from fairlead.service.mesos.executors import Executors, acknowledged, check_status
from fairlead.service.mesos.messages.executor_pb2 import Call
from fairlead.service.mesos.refusals import CallRefused
from fairlead.service.mesos.streams import Stream
from fairlead.service.mesos.subscriptions import Subscriptions

ABSENT_CHECK_SECONDS = 5.0
"""Between two searches for executors that do not connect."""


class ExecutorCalls:
    """Handles the calls of all executors.

    subscriptions : of the frameworks, which get what their executors send
    until_taken : records the facts of a question as soon as possible
    """

    def __init__(
        self, client: StateClient, executors: Executors, subscriptions: Subscriptions, until_taken: Callable[[Any], Any]
    ) -> None:
        self._client, self._executors, self._subscriptions = client, executors, subscriptions
        self._until_taken = until_taken

    async def subscribe(self, call: Call, token: str, stream: Stream) -> None:
        for update in call.subscribe.unacknowledged_updates:
            check_status(update.status)

        def question(state: State, now: float) -> tuple[list[Fact], None]:
            number = self._find(state, call, token)
            if number not in state.frameworks.executors or call.framework_id.value not in state.frameworks.members:
                raise CallRefused(403, "Only executors of a registered framework can subscribe")
            return self._executors.begin(state, number, call.subscribe, stream, now), None

        try:
            await self._client.ask(question, changes=True)
        except BaseException:
            await self.leave(stream)  # it may still get subscribed
            raise
        stream.tell(acknowledged(update.status) for update in call.subscribe.unacknowledged_updates)

    async def leave(self, stream: Stream) -> None:
        stream.end()

        def question(state: State, now: float) -> tuple[list[Fact], None]:
            self._executors.drop(stream)
            return [], None

        await self._until_taken(question)

    async def take(self, call: Call, token: str) -> None:
        if call.type == Call.UPDATE:
            check_status(call.update.status)
        who, name = call.framework_id.value, call.executor_id.value

        def question(state: State, now: float) -> tuple[list[Fact], Stream | None]:
            number = self._find(state, call, token)
            stream, known = self._executors.streams.get(number), state.frameworks.executors.get(number)
            if known is not None and stream is None:
                raise CallRefused(403, "Executor is not subscribed")
            if call.type == Call.UPDATE:
                return self._executors.say(state, number, call.update.status, now), stream
            if call.type == Call.MESSAGE:
                agent = (known or state.frameworks.tasks[who][name]).node
                self._subscriptions.tell(who, [events.message(agent, name, call.message.data)])
            return [], None

        stream = await self._client.ask(question, changes=True)
        if stream is not None:
            stream.tell([acknowledged(call.update.status)])

    def _find(self, state: State, call: Call, token: str) -> int:
        """Return the job of the executor that makes a call. Raises CallRefused if its secret is another's."""
        f, who, name = state.frameworks, call.framework_id.value, call.executor_id.value
        number = self._executors.find(state, who, name, token)
        if number is not None:
            return number
        if who not in f.members:
            raise CallRefused(400, "Framework cannot be found")
        if name not in f.tasks.get(who, {}) and all((each.framework, each.name) != (who, name) for each in f.executors.values()):
            raise CallRefused(400, "Executor cannot be found")
        raise CallRefused(
            401, "this executor's secret, MESOS_EXECUTOR_AUTHENTICATION_TOKEN, is needed: send 'Authorization: Bearer ...'"
        )

    async def go_on(self) -> None:
        """End executors that do not connect, for ever; first those that a scheduler before was ending."""
        await self._until_taken(self._executors.end_those_of_before)
        while True:
            await asyncio.sleep(ABSENT_CHECK_SECONDS)
            await self._until_taken(lambda state, now: (self._executors.end_absent(state, now), None))
