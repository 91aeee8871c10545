"""Requests about jobs: submit, list, wait, cancel, hold, and what their tasks wrote."""

import asyncio
import time
from contextlib import nullcontext
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from fairlead.engines.contract import LiveEngine
from fairlead.model.api_types import (
    Cancelled,
    Changed,
    Edited,
    JobInfo,
    JobList,
    JobStatus,
    Submitted,
    SubmittedMany,
    TaskPage,
    TaskStatus,
    Why,
)
from fairlead.model.specs import Job, path_to_root
from fairlead.people.rules import acts_on, check_acts, seen_queue, sees_names
from fairlead.people.telling import job_as_seen
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.reports.explain import explain
from fairlead.scheduler.state import State
from fairlead.service.api.access import Known
from fairlead.service.api.asking import Asker, Bytes, Json, Key, Number, OneEach, Wait, by_wall_clock, spec_of
from fairlead.service.api.requests import (
    CancelManyRequest,
    CancelRequest,
    EditRequest,
    JobRequest,
    JobsRequest,
    RerunRequest,
)
from fairlead.service.api.submitting import Asked, Submitter
from fairlead.service.kept_output import KeptOutput, read_output
from fairlead.service.wakeups import heard_within

SHORT = 500
"""Jobs of a listing of which one person may ask for several at once."""
LOOKED_AT = 500
"""Jobs that are looked at for a listing before others are answered."""


def add_jobs(api: APIRouter, asker: Asker, submitter: Submitter, engine: LiveEngine, kept: KeptOutput | None) -> None:
    _add_submitting(api, submitter, engine)
    _add_listing(api, asker)
    _add_looking(api, asker, engine, kept)
    _add_why(api, asker, kept)
    _add_changing(api, asker, submitter)


def _add_submitting(api: APIRouter, submitter: Submitter, engine: LiveEngine) -> None:
    @api.post("/v1/jobs", status_code=201, response_model=Submitted)
    async def submit(request: JobRequest, caller: Known, key: Key = "") -> Response:
        """Submit a job. It is in the journal when this answers."""
        (answer,) = await submitter.submit(caller, [_commands(request, engine)], key)
        return Json(answer, 201)

    @api.post("/v1/bulk", status_code=201, response_model=SubmittedMany)
    async def submit_many(request: JobsRequest, caller: Known, key: Key = "") -> Response:
        """Submit jobs together: all of them, or none and say which is wrong."""
        asked = [_commands(job, engine) for job in request.jobs]
        return Json({"jobs": await submitter.submit(caller, asked, key)}, 201)


def _add_listing(api: APIRouter, asker: Asker) -> None:
    long_listings = OneEach("a long listing of jobs is made for you already")

    @api.get("/v1/jobs", response_model=JobList)
    async def jobs(
        caller: Known,
        queue: str | None = None,
        user: str | None = None,
        status: JobStatus | None = None,
        before: Annotated[int | None, Query(ge=0, le=2**53, description="Of those with a lower number.")] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    ) -> Response:
        """The newest jobs, newest first; `next` is the `before` of the next page."""
        rules = asker.door.rules

        def theirs(job: Job) -> bool:
            named = user is None or (job.user == user and sees_names(rules, caller, job))
            return named and (queue is None or queue.strip("/") in path_to_root(seen_queue(rules, caller, job.queue)))

        listing = report.Listing(queue=queue, where=theirs, status=status, before=before, limit=limit)
        seen: list[JobInfo] = []

        def look(state: State) -> None:
            listing.look(state, LOOKED_AT)
            new = [job_as_seen(rules, caller, state.index.specs[job["id"]], job) for job in listing.found[len(seen) :]]
            seen.extend(by_wall_clock(job, asker.clock) for job in new)

        with long_listings.of(caller) if limit > SHORT else nullcontext():
            while not listing.is_over:  # others are answered in between
                await asker.read(look)
        return Json({"jobs": seen, "next": listing.next, "stalled": asker.loop.takes_nothing_on})


def _add_looking(api: APIRouter, asker: Asker, engine: LiveEngine, kept: KeptOutput | None) -> None:
    @api.get("/v1/jobs/{job}", response_model=JobInfo)
    async def job(job: Number, caller: Known, wait: Wait = 0) -> Response:
        """One job; with `wait`, as soon as it has ended, or as it is after so many seconds."""
        until = time.monotonic() + wait
        with asker.waiter(caller), asker.wakeups.listen([("job", job)]) as heard:
            while True:
                found = await asker.read_job(caller, job)
                left = until - time.monotonic()
                if found["finished_at"] is not None or left <= 0 or asker.loop.stopped.is_set():
                    return Json(found)
                await heard_within(heard, left)

    @api.get("/v1/jobs/{job}/tasks", response_model=TaskPage)
    async def tasks(
        job: Number,
        first: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
        status: TaskStatus | None = None,
    ) -> Response:
        """Tasks of a job by index, with when those that run are expected to end; of one status, if named."""
        page = await asker.ask(lambda s, now: ([], report.describe_tasks(s, job, now, first, limit, status)))
        return Json({**page, "tasks": [by_wall_clock(task, asker.clock) for task in page["tasks"]]})

    @api.get("/v1/jobs/{job}/tasks/{index}/output/{stream}", response_class=Bytes)
    async def output(
        job: Number,
        index: Number,
        stream: Literal["out", "err"],
        caller: Known,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=2**20)] = 2**20,
    ) -> Response:
        """A piece of what a task wrote, as bytes, from an offset on; empty where there is no more yet.

        503 where its node does not answer, and it is kept nowhere else.
        """

        def view(state: State) -> str:
            check_acts(asker.door.rules, caller, job, spec_of(state, job))
            return report.find_task(state, job, index)["node"] or ""

        node = await asker.read(view)
        return Bytes(await asyncio.to_thread(read_output, engine, kept, (job, index), stream, offset, limit, node))


def _add_why(api: APIRouter, asker: Asker, kept_output: KeptOutput | None) -> None:
    @api.get("/v1/jobs/{job}/why", response_model=Why)
    async def why(job: Number, caller: Known) -> Response:
        """What a job waits for, now."""
        found = await asker.told_to(caller, await asker.ask(lambda s, now: ([], explain(s, job, now))))
        moments = {"kept": [by_wall_clock(each, asker.clock) for each in found.get("kept", [])]}
        if "reserved" in found:
            moments["reserved"] = by_wall_clock(found["reserved"], asker.clock)
        output = kept_output.trouble(job) if kept_output is not None else ""
        return Json(
            {
                **found,
                **{name: told for name, told in moments.items() if told},
                **({"output": output} if output else {}),
            }
        )


def _add_changing(api: APIRouter, asker: Asker, submitter: Submitter) -> None:
    @api.post("/v1/jobs/{job}/cancel", response_model=Changed)
    async def cancel(job: Number, request: CancelRequest, caller: Known) -> Response:
        """Cancel a job, or some of its tasks. What runs is told to end; what waits never starts."""
        chosen, only_waiting = request.indices, request.only_waiting
        changed = await asker.change_job(
            caller, job, lambda s, now: admission.cancel(s, job, chosen, now, only_waiting)
        )
        return Json({"changed": changed})

    @api.post("/v1/cancel", response_model=Cancelled)
    async def cancel_many(request: CancelManyRequest, caller: Known) -> Response:
        """Cancel jobs by number, or all of a queue that are the caller's to cancel. A number that is unknown or not theirs
        refuses the whole.
        """
        rules = asker.door.rules

        def question(state: State, now: float) -> tuple[list[Fact], list[int]]:
            chosen = list(dict.fromkeys(request.jobs))
            for job in chosen:
                check_acts(rules, caller, job, spec_of(state, job))
            if request.queue is not None:
                there = admission.unfinished(state, request.queue, request.user)
                chosen += [job for job in there if acts_on(rules, caller, state.index.specs[job])]
            facts: list[Fact] = [f for f in (admission.cancel(state, job, None, now) for job in chosen) if f]
            return facts, [fact.id for fact in facts]  # type: ignore[attr-defined]

        return Json({"cancelled": await asker.ask(question, changes=True, by=caller.person.name)})

    @api.post("/v1/jobs/{job}/hold", response_model=Changed)
    async def hold(job: Number, caller: Known) -> Response:
        """Keep the tasks of a job that wait from starting."""
        return Json({"changed": await asker.change_job(caller, job, lambda s, now: admission.hold(s, job, now))})

    @api.post("/v1/jobs/{job}/release", response_model=Changed)
    async def release(job: Number, caller: Known) -> Response:
        """Undo a hold."""
        return Json({"changed": await asker.change_job(caller, job, lambda s, now: admission.release(s, job, now))})

    @api.post("/v1/jobs/{job}/edit", response_model=Edited)
    async def edit(job: Number, request: EditRequest, caller: Known) -> Response:
        """Have a job ask for something else: while all of it waits, anything; later its priority, retries and `at_most`."""
        changed = await asker.change_job(caller, job, lambda s, now: submitter.edit(s, now, caller, job, request))
        warning = await asker.read(lambda s: admission.doubt(s, spec_of(s, job))) if changed else None
        return Json({"changed": changed, "warning": warning})

    @api.post("/v1/jobs/{job}/rerun", status_code=201, response_model=Submitted)
    async def rerun(job: Number, request: RerunRequest, caller: Known, key: Key = "") -> Response:
        """Submit what a job was once more, or its tasks that failed, as a new job."""
        return Json(await submitter.rerun(caller, job, request.failed, key), 201)


def _commands(request: JobRequest, engine: LiveEngine) -> Asked:
    if request.ray and not engine.ray:
        raise Refused(
            "ray: there is no Ray cluster here for programs: the scheduler would have to run with --engine ray, and for one "
            "person, not with --system"
        )
    tasks = 1 if request.tasks is None else request.tasks
    return Asked(request, tasks, request.gang or request.ray, request.work(), request.exported)
