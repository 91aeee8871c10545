"""Standard input of tasks, programs that are attached to running tasks, and connections to their ports: bytes, piece by piece."""

import asyncio
import base64
import shlex
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from fairlead.engines.contract import LiveEngine
from fairlead.engines.local.reports import StreamAnswer
from fairlead.model.api_types import Changed, InputTaken, StreamPiece, TaskInfo, TaskPort
from fairlead.model.specs import Job
from fairlead.people.audit_log import AuditRecords
from fairlead.people.rules import Caller
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.statuses import ENDED
from fairlead.service.api.access import Known
from fairlead.service.api.answers import BYTES_BODY, Json
from fairlead.service.api.requests import LONGEST_WAIT, Identity, Number, Side, StreamRequest
from fairlead.service.api.state_client import StateClient

TAKEN_SECONDS, OPEN_SECONDS = 1.0, 10.0
"""For input to be taken, after which a request returns; for a node to answer that a stream is open."""
PAUSE_SECONDS = 0.2
"""Until the answer that a task takes no input yet."""


async def _find(client: StateClient, caller: Caller, job: int, index: int) -> tuple[TaskInfo, Job]:
    """Return a task and its job, on which the caller must be allowed to act."""
    return await client.read_of(caller, job, lambda state, spec: (report.find_task(state, job, index), spec))


async def _ask(engine: LiveEngine, job: int, task: TaskInfo, seconds: float, do: str, **what: Any) -> StreamAnswer | None:
    """Ask a task's supervisor to "feed" it, or about a stream; None if no answer comes in time."""
    asked = what if do == "feed" else {"what": do, "argv": [], "env": {}, "size": [], "number": 0, **what}
    answer = engine.ask_stream((job, task["index"], task["attempt"]), "feed" if do == "feed" else "stream", **asked)
    try:
        return await asyncio.wait_for(asyncio.wrap_future(answer), seconds)
    except TimeoutError:
        return None


def add_input(api: APIRouter, client: StateClient, engine: LiveEngine) -> None:
    @api.put("/v1/jobs/{job}/tasks/{index}/input", response_model=InputTaken, openapi_extra=BYTES_BODY)
    async def put_input(
        job: Number,
        index: Number,
        request: Request,
        caller: Known,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        end: Annotated[bool, Query(description="True if nothing follows.")] = False,
        rows: Annotated[Side | None, Query(description="With `columns`, the size of the client's terminal.")] = None,
        columns: Annotated[Side | None, Query()] = None,
        stream: Annotated[str, Query(pattern=r"^([0-9a-f]{32})?$", description="Instead, of this stream of the task.")] = "",
    ) -> Response:
        """Send a task a piece of its standard input, starting at `offset`; continue from the returned `taken`.

        Data that the task already has is ignored; after a gap nothing is taken. A waiting task takes nothing yet. A restarted
        task has read nothing: its `attempt` has changed.
        """
        data = await request.body()  # the caller's permission is checked when it has come
        task, spec = await _find(client, caller, job, index)
        if not stream and not spec.work.input:
            raise Refused(f"job {job} was submitted to read nothing: its input is neither a pipe nor a terminal")
        over, taken = task["status"] in ENDED, 0
        if not over and task["status"] != "waiting":
            size = (rows, columns) if rows is not None and columns is not None else None
            for each, last in ((data, end), (b"", False)):  # if it takes only a part now, the second answer says which
                what = {"stream": stream, "offset": offset, "data": base64.b64encode(each).decode(), "end": last, "size": size}
                answer = await _ask(engine, job, task, TAKEN_SECONDS, "feed", **what)
                if answer is not None:
                    taken, over = answer.taken, answer.over
                    break
            if taken < offset + len(data) and not over:
                await asyncio.sleep(PAUSE_SECONDS)
        return Json({"attempt": task["attempt"], "taken": taken, "over": over})


def add_streams(api: APIRouter, client: StateClient, engine: LiveEngine, audit_records: AuditRecords) -> None:
    @api.post("/v1/jobs/{job}/tasks/{index}/streams", status_code=201, response_model=InputTaken)
    async def open_stream(job: Number, index: Number, request: StreamRequest, caller: Known) -> Response:
        """Attach a program to a running task, with its account, folder, environment, limits and cards; it ends with the task.

        Without argv, connect to the task's port.
        """
        task, spec = await _find(client, caller, job, index)
        if task["status"] in ("waiting", *ENDED):
            raise Refused(f"task {job}.{task['known_as']} does not run: it is {task['status']}")
        answer = await _ask(engine, job, task, OPEN_SECONDS, "open", **request.model_dump(exclude_none=True))
        if answer is None:
            raise Refused(f"node {task['node']} does not answer, or its fairlead is too old for this")
        if answer.wrong:
            raise Refused(f"task {job}.{task['known_as']}: {answer.wrong}")
        if request.argv or spec.user != caller.person.name:
            about = f"ran {shlex.join(request.argv)} in task" if request.argv else "connected to the port of task"
            await asyncio.to_thread(audit_records.done, caller.person.name, f"{about} {job}.{task['known_as']} of {spec.user}")
        return Json({"attempt": task["attempt"], "taken": 0, "over": False}, 201)

    @api.get("/v1/jobs/{job}/tasks/{index}/port", response_model=TaskPort)
    async def find_port(job: Number, index: Number, caller: Known) -> Response:
        """The port that a running task was given, its FAIRLEAD_PORT; 0 if it has none, or its node does not answer."""
        task, _ = await _find(client, caller, job, index)
        runs = task["status"] not in ("waiting", *ENDED)
        answer = await _ask(engine, job, task, TAKEN_SECONDS, "port", stream="") if runs else None
        return Json({"port": answer.number if answer is not None else 0})

    @api.get("/v1/jobs/{job}/tasks/{index}/streams/{name}", response_model=StreamPiece)
    async def take_piece(
        job: Number,
        index: Number,
        name: Identity,
        caller: Known,
        number: Annotated[int, Query(ge=1, le=2**53, description="Of the piece: 1 is the first. The next acknowledges it.")],
        wait: Annotated[float, Query(ge=0.1, le=LONGEST_WAIT, description="Seconds to wait for it.")] = 0.1,
    ) -> Response:
        """A piece of a stream's output, in base64; `number` is 0 if there is none yet."""
        task, _ = await _find(client, caller, job, index)
        over = task["status"] in ENDED  # the end of its streams may still be there
        with client.waiter(caller):
            answer = await _ask(engine, job, task, TAKEN_SECONDS if over else wait, "take", stream=name, number=number)
        found = answer or StreamAnswer(0, over=over)
        return Json({key: getattr(found, key) for key in StreamPiece.__annotations__})

    @api.delete("/v1/jobs/{job}/tasks/{index}/streams/{name}", response_model=Changed)
    async def close_stream(job: Number, index: Number, name: Identity, caller: Known) -> Response:
        """Hang up: an attached program gets SIGHUP."""
        task, _ = await _find(client, caller, job, index)
        await _ask(engine, job, task, 0, "shut", stream=name)
        return Json({"changed": task["status"] not in ENDED})
