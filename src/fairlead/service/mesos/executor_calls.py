"""Calls of executors, as questions to the scheduler's thread; checked and answered as Mesos agents do."""

import asyncio
from collections.abc import Callable
from typing import Any

from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State
from fairlead.service.api.state_client import StateClient
from fairlead.service.mesos import events
from fairlead.service.mesos.calls import Refusal
from fairlead.service.mesos.executors import Executors, acknowledged, check_status
from fairlead.service.mesos.messages.executor_pb2 import Call
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

    async def subscribe(self, call: Call, token: str, stream: Stream) -> Refusal | None:
        for update in call.subscribe.unacknowledged_updates:
            if wrong := _refused(update):
                return wrong

        def question(state: State, now: float) -> tuple[list[Fact], Refusal | None]:
            number = self._executors.find(state, call.framework_id.value, call.executor_id.value, token)
            if number is None:
                return [], _unknown(state, call)
            if number not in state.frameworks.executors or call.framework_id.value not in state.frameworks.members:
                return [], Refusal(403, "Only executors of a registered framework can subscribe")
            return self._executors.begin(state, number, call.subscribe, stream, now), None

        try:
            refusal: Refusal | None = await self._client.ask(question, changes=True)
        except BaseException:
            await self.leave(stream)  # it may still get subscribed
            raise
        if refusal is None:
            stream.tell(acknowledged(update.status) for update in call.subscribe.unacknowledged_updates)
        return refusal

    async def leave(self, stream: Stream) -> None:
        stream.end()

        def question(state: State, now: float) -> tuple[list[Fact], None]:
            self._executors.drop(stream)
            return [], None

        await self._until_taken(question)

    async def take(self, call: Call, token: str) -> Refusal | None:
        """Handle a call other than SUBSCRIBE; return why it is refused, if it is."""
        if call.type == Call.UPDATE and (wrong := _refused(call.update)):
            return wrong

        def question(state: State, now: float) -> tuple[list[Fact], tuple[Refusal | None, Stream | None]]:
            number = self._executors.find(state, call.framework_id.value, call.executor_id.value, token)
            if number is None:
                return [], (_unknown(state, call), None)
            stream, known = self._executors.streams.get(number), state.frameworks.executors.get(number)
            if known is not None and stream is None:
                return [], (Refusal(403, "Executor is not subscribed"), None)
            if call.type == Call.UPDATE:
                return self._executors.say(state, number, call.update.status, now), (None, stream)
            if call.type == Call.MESSAGE:
                agent = (
                    known.node
                    if known is not None
                    else state.frameworks.tasks[call.framework_id.value][call.executor_id.value].node
                )
                told = events.message(agent, call.executor_id.value, call.message.data)
                self._subscriptions.tell(call.framework_id.value, [told])
            return [], (None, None)

        refusal, stream = await self._client.ask(question, changes=True)
        if stream is not None:
            stream.tell([acknowledged(call.update.status)])
        return refusal

    async def go_on(self) -> None:
        """End executors that do not connect, for ever; first those that a scheduler before was ending."""
        await self._until_taken(self._executors.end_those_of_before)
        while True:
            await asyncio.sleep(ABSENT_CHECK_SECONDS)
            await self._until_taken(lambda state, now: (self._executors.end_absent(state, now), None))


def _refused(update: Call.Update) -> Refusal | None:
    try:
        check_status(update.status)
    except Refused as error:
        return Refusal(400, f"Failed to validate executor::Call: {error}")
    return None


def _unknown(state: State, call: Call) -> Refusal:
    f, who, name = state.frameworks, call.framework_id.value, call.executor_id.value
    if who not in f.members:
        return Refusal(400, "Framework cannot be found")
    if name not in f.tasks.get(who, {}) and all((each.framework, each.name) != (who, name) for each in f.executors.values()):
        return Refusal(400, "Executor cannot be found")
    return Refusal(
        401, "this executor's secret, MESOS_EXECUTOR_AUTHENTICATION_TOKEN, is needed: send 'Authorization: Bearer ...'"
    )
