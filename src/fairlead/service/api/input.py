"""Standard input of tasks, sent piece by piece."""

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from fairlead.engines.contract import LiveEngine
from fairlead.model.api_types import InputTaken, TaskInfo
from fairlead.people.rules import check_acts
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.state import State
from fairlead.service.api.access import Known
from fairlead.service.api.answers import Json
from fairlead.service.api.requests import Number
from fairlead.service.api.state_client import StateClient, spec_of

TAKEN_SECONDS = 1.0
"""After which a request returns, even if not all was taken."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.001, 0.05
"""Between two checks of how much was taken."""

Side = Annotated[int, Query(ge=1, lt=2**16)]


def add_input(api: APIRouter, client: StateClient, engine: LiveEngine) -> None:
    @api.put(
        "/v1/jobs/{job}/tasks/{index}/input",
        response_model=InputTaken,
        openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}},
    )
    async def put_input(
        job: Number,
        index: Number,
        request: Request,
        caller: Known,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        end: Annotated[bool, Query(description="True if nothing follows.")] = False,
        rows: Annotated[Side | None, Query(description="With `columns`, the size of the client's terminal.")] = None,
        columns: Side | None = None,
    ) -> Response:
        """Send a task a piece of its standard input, starting at `offset`; continue from the returned `taken`.

        Data that the task already has is ignored; after a gap nothing is taken. A waiting task takes nothing yet. A restarted
        task has read nothing: its `attempt` has changed.
        """

        def view(state: State) -> TaskInfo:
            spec = spec_of(state, job)
            check_acts(client.authenticator.rules, caller, job, spec)
            if not spec.work.input:
                raise Refused(f"job {job} was submitted to read nothing: its input is neither a pipe nor a terminal")
            return report.find_task(state, job, index)

        data = await request.body()  # the caller's permission is checked when it has come
        task: TaskInfo = await client.read(view)
        attempt, taken, over = task["attempt"], 0, task["status"] in ("succeeded", "failed", "cancelled")
        if not over and task["status"] != "waiting":
            size = (rows, columns) if rows is not None and columns is not None else None
            taken, over = await _fed(engine, (job, index, attempt), offset, data, end, size)
        return Json({"attempt": attempt, "taken": taken, "over": over})


async def _fed(
    engine: LiveEngine, task: tuple[int, int, int], offset: int, data: bytes, end: bool, size: tuple[int, int] | None
) -> tuple[int, bool]:
    """Feed a task, and wait a while until it is taken; return how much was, and whether the input is over."""
    until, pause = time.monotonic() + TAKEN_SECONDS, FIRST_PAUSE_SECONDS
    with engine.feeding(task, offset, data, end, size) as told:
        while True:
            found = told()
            if found is not None and (found.over or found.taken >= offset + len(data)):
                return found.taken, found.over
            if time.monotonic() > until:
                return (found.taken, found.over) if found is not None else (0, False)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
