"""Routes for jobs: submit, list, wait, cancel, hold, predict their start, and read output."""

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from fnmatch import fnmatchcase
from math import inf
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Response
from fastapi.exceptions import RequestValidationError
from msgspec.structs import replace
from pydantic import ValidationError

from fairlead.engines.contract import LiveEngine
from fairlead.model import api_types
from fairlead.model.specs import Job, Work, path_to_root
from fairlead.people.placing import leaf_of
from fairlead.people.rules import Caller, acts_on, administers, check_acts, check_submits, job_as_seen, seen_queue, sees_names
from fairlead.scheduler import admission
from fairlead.scheduler.admission import MOST_TASKS, Refused, Unknown
from fairlead.scheduler.effects import apply
from fairlead.scheduler.facts import Fact, JobCancelled
from fairlead.scheduler.forecasts import any_end_known
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.reports.explain import explain
from fairlead.scheduler.snapshot import copy_of
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import JOB_STATUSES, UNFINISHED
from fairlead.service.api import requests
from fairlead.service.api.access import Known
from fairlead.service.api.answers import Bytes, Json, by_wall_clock, promised
from fairlead.service.api.cluster import unheard_of
from fairlead.service.api.state_client import OnePerPerson, StateClient, spec_of
from fairlead.service.api.submitting import PIECE, JobSubmission, Submitter
from fairlead.service.outlooks import Outlooks
from fairlead.service.output.archive import OutputArchive, read_output
from fairlead.service.sessions import Sessions
from fairlead.simulate.outlook import Calibration, Outlook, outlook

STATUS = "|".join(JOB_STATUSES)
SHORT = 500
"""Jobs in a listing up to which one person may request several at once."""
BATCH = 500
"""Jobs found for a listing before other questions are answered."""


def add_submitting(api: APIRouter, submitter: Submitter, engine: LiveEngine, sessions: Sessions) -> None:
    def commands(request: requests.JobRequest, caller: Known) -> JobSubmission:
        sent = request.sent
        if sent is not None and not (sessions.touch(sent.session, caller.person.uid) / sent.payload).exists():
            raise Unknown("sent: the folder is missing: put it into the session first")
        if request.ray and not engine.ray:
            raise Refused(
                "ray: no Ray cluster is available for programs here: the scheduler would have to run with --engine ray, and "
                "without --system"
            )
        tasks, work = request.work()
        return JobSubmission(request, tasks, request.gang or request.ray, work, request.exported)

    def all_commands(asked: list[requests.JobRequest], caller: Known) -> list[JobSubmission]:
        found, indices = [], 0
        for number, request in enumerate(asked):
            try:
                found.append(commands(request, caller))
                indices += found[-1].tasks if request.array else 0
                if indices > MOST_TASKS:
                    raise Refused(f"array: the arrays of one request have more than {MOST_TASKS:,} tasks")
            except Refused as refused:
                raise type(refused)(f"jobs.{number}: {refused}") if len(asked) > 1 else refused from None
        return found

    @api.post("/v1/jobs", status_code=201, response_model=api_types.Submitted)
    async def submit(request: requests.JobRequest, caller: Known, key: requests.Key = "") -> Response:
        """Submit a job. When this returns, the job is in the journal."""
        asked = await asyncio.to_thread(commands, request, caller) if request.array else commands(request, caller)
        (answer,) = await submitter.submit(caller, [asked], key)
        return Json(answer, 201)

    @api.post("/v1/bulk", status_code=201, response_model=api_types.SubmittedMany)
    async def submit_many(request: requests.JobsRequest, caller: Known, key: requests.Key = "") -> Response:
        """Submit several jobs: all, or none with an error that names the wrong one."""
        asked = await asyncio.to_thread(all_commands, request.jobs, caller)
        return Json({"jobs": await submitter.submit(caller, asked, key)}, 201)


def add_listing(api: APIRouter, client: StateClient) -> None:
    long_listings = OnePerPerson("a long listing of jobs is being made for you already")

    @api.get("/v1/jobs", response_model=api_types.JobList)
    async def jobs(
        caller: Known,
        selection: Annotated[requests.Selection, Depends(_selection)],
        mine: Annotated[bool, Query(description="Only your own, or those of `queue` or `user` that you may change.")] = False,
        before: Annotated[int | None, Query(ge=0, le=2**53, description="Only jobs with a lower number.")] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    ) -> Response:
        """The newest jobs, newest first; `next` is the `before` of the next page."""
        rules = client.authenticator.rules
        listing = report.Listing(_selected(client, caller, selection, mine), before, limit)
        seen: list[api_types.JobInfo] = []

        def look(state: State) -> list[Job]:
            listing.read(state, BATCH)
            return [state.index.specs[job["id"]] for job in listing.found[len(seen) :]]

        with long_listings.of(caller) if limit > SHORT else nullcontext():
            while not listing.is_over:  # other questions are answered in between
                for spec in await client.read(look):
                    seen.append(by_wall_clock(job_as_seen(rules, caller, spec, listing.found[len(seen)]), client.clock))
        return Json({"jobs": seen, "next": listing.next, "stalled": client.loop.takes_nothing_on})


def _selection(
    queue: str | None = None,
    user: str | None = None,
    name: Annotated[str | None, Query(description="Of this name, or of names such as `fold-*`.")] = None,
    group: Annotated[str | None, Query(description="Likewise.")] = None,
    status: Annotated[
        str | None, Query(pattern=f"^({STATUS})(,({STATUS}))*$", description="One status of jobs, or several with commas.")
    ] = None,
    since: Annotated[float | None, Query(description="Submitted since; seconds since the epoch.")] = None,
) -> requests.Selection:
    asked = {"queue": queue, "user": user, "name": name, "group": group, "since": since}
    try:
        return requests.Selection.model_validate({**asked, "status": status.split(",") if status else []})
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


def _selected(client: StateClient, caller: Caller, asked: requests.Selection, mine: bool) -> report.Selection:
    """Return a selection as the caller may see it; if `mine`, only what they may change, and of others only by queue or user."""
    rules = client.authenticator.rules
    owner = caller.person.name if mine and asked.user is None and asked.queue is None else asked.user
    within = asked.queue and asked.queue.strip("/")
    unnamed = owner is asked.name is asked.group is None
    allowed: dict[tuple[object, ...], bool] = {}  # whether a job of this owner and queue may be selected

    def where(job: Job) -> bool:
        pairs = ((asked.name, job.name), (asked.group, job.group))
        if owner not in (None, job.user) or not all(one in (None, is_) or fnmatchcase(is_, one) for one, is_ in pairs):
            return False  # first what excludes most, at least cost
        whose = job.user, job.uid, job.queue
        if whose not in allowed:
            seen = acts_on(rules, caller, job) if mine else unnamed or sees_names(rules, caller, job)
            allowed[whose] = seen and (within is None or within in path_to_root(seen_queue(rules, caller, job.queue)))
        return allowed[whose]

    since = -inf if asked.since is None else asked.since - client.clock.wall(0.0)
    return report.Selection(asked.queue, asked.status, since, where)


def add_looking(api: APIRouter, client: StateClient, engine: LiveEngine, archive: OutputArchive | None) -> None:
    @api.get("/v1/jobs/{job}", response_model=api_types.JobInfo)
    async def job(job: requests.Number, caller: Known, wait: requests.Wait = 0) -> Response:
        """One job. With `wait`, answers when it has ended, or after so long."""
        until = time.monotonic() + wait
        with client.listening(caller, ("job", job)) as heard:
            while True:
                found = await client.read_job(caller, job)
                left = until - time.monotonic()
                if found["finished_at"] is not None or left <= 0 or client.loop.stopped.is_set():
                    return Json(found)
                caller = await client.heard_within(caller, heard, left)

    @api.get("/v1/jobs/{job}/tasks", response_model=api_types.TaskPage)
    async def tasks(
        job: requests.Number,
        first: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
        status: api_types.TaskStatus | None = None,
    ) -> Response:
        """Tasks of a job by index, optionally of one status, with the expected end of running ones."""
        page = await client.ask(lambda s, now: ([], report.describe_tasks(s, job, now, first, limit, status)))
        return Json({**page, "tasks": [by_wall_clock(task, client.clock) for task in page["tasks"]]})

    @api.get("/v1/jobs/{job}/tasks/{index}/output/{stream}", response_class=Bytes)
    async def output(
        job: requests.Number,
        index: requests.Number,
        stream: Literal["out", "err", "attempts"],
        caller: Known,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=2**20)] = 2**20,
        last: Annotated[int, Query(ge=0, le=2**18, description="Instead, this many bytes from its end.")] = 0,
    ) -> Response:
        """A piece of a task's output as bytes, from an offset on; empty if there is no more yet.

        `attempts` has a line for each further attempt on its node: its number, and where it begins in out and in err.
        503 if its node does not answer and the output is not stored elsewhere.
        """
        node = await client.read_of(caller, job, lambda state, _: report.find_task(state, job, index)["node"] or "")

        def read(offset: int, limit: int) -> bytes:
            return read_output(engine, archive, (job, index), stream, offset, limit, node)

        return Bytes(await asyncio.to_thread(*((_last, read, last) if last else (read, offset, limit))))


def _last(read: Callable[[int, int], bytes], most: int) -> bytes:
    """Return the end of an output: found by doubling an offset, then by halving, since only pieces from an offset can be read."""
    low, high = 0, most
    while read(high, 1):
        low, high = high, 2 * high
    while high - low > most:
        middle = (low + high) // 2
        low, high = (middle, high) if read(middle, 1) else (low, middle)
    return read(max(0, low - most), 3 * most)[-most:]


def add_why(api: APIRouter, client: StateClient, engine: LiveEngine, archive: OutputArchive | None, sessions: Sessions) -> None:
    @api.get("/v1/jobs/{job}/why", response_model=api_types.Why)
    async def why(job: requests.Number, caller: Known) -> Response:
        """What a job waits for now."""
        unheard = unheard_of(engine)
        found, calls, known = await client.ask(
            lambda s, now: ([], (explain(s, job, now, unheard), sessions.about(s, job), any_end_known(s, now)))
        )
        found = by_wall_clock(await client.told_to(caller, found), client.clock)
        moments = {"kept": [promised(each, known, client.clock) for each in found.get("kept", [])]}
        if "reserved" in found:
            moments["reserved"] = promised(found["reserved"], known, client.clock)
        more = {"calls": calls, "output": archive.trouble(job) if archive is not None else ""}
        return Json(found | {name: told for name, told in (moments | more).items() if told})


def add_changing(api: APIRouter, client: StateClient, submitter: Submitter) -> None:
    def cancelled(
        caller: Caller, state: State, job: int, now: float, chosen: list[int] | None = None, only_waiting: bool = False
    ) -> JobCancelled | None:
        found = admission.cancel(state, job, chosen, now, only_waiting)
        return found and replace(found, by_admin=administers(client.authenticator.rules, caller, spec_of(state, job).queue))

    @api.post("/v1/jobs/{job}/cancel", response_model=api_types.Changed)
    async def cancel(job: requests.Number, request: requests.CancelRequest, caller: Known) -> Response:
        """Cancel a job, or some of its tasks. Running tasks are stopped; waiting ones never start."""
        chosen, only_waiting = request.indices, request.only_waiting
        changed = await client.change_job(caller, job, lambda s, now: cancelled(caller, s, job, now, chosen, only_waiting))
        return Json({"changed": changed})

    @api.post("/v1/cancel", response_model=api_types.Cancelled)
    async def cancel_many(request: requests.CancelManyRequest, caller: Known) -> Response:
        """Cancel jobs by number, and the unfinished jobs of a selection that the caller may cancel. An unknown or foreign
        number refuses the whole request. Many are cancelled in pieces, the newest first.
        """
        rules, found, before = client.authenticator.rules, set[int](), inf
        numbers = sorted(set(request.jobs))
        unfinished = request if request.status else request.model_copy(update={"status": [*UNFINISHED]})
        selection = None if request.is_empty() else _selected(client, caller, unfinished, mine=True)

        def check(state: State) -> None:
            for job in numbers:
                check_acts(rules, caller, job, spec_of(state, job))

        def some(state: State, now: float) -> tuple[list[Fact], bool]:
            """Cancel what follows; return True if that is not all."""
            nonlocal before
            chosen = [numbers.pop() for _ in range(min(PIECE, len(numbers)))]
            if not chosen and selection is not None:
                rows, following = selection.next(state, before, PIECE)
                chosen = [int(state.jobs.id[row]) for row in rows if np.isnan(state.jobs.finished_at[row])]
                before = -1 if following is None else following
            facts: list[Fact] = [
                f
                for job in chosen
                if job in state.index.specs and (f := cancelled(caller, state, job, now, None, request.only_waiting))
            ]
            found.update(fact.id for fact in facts)  # type: ignore[attr-defined]
            return facts, bool(numbers) or (selection is not None and before >= 0)

        await client.read(check)
        while await client.ask(some, changes=True, by=caller.person.name):
            pass  # others are answered in between
        return Json({"cancelled": sorted(found)})

    @api.post("/v1/jobs/{job}/hold", response_model=api_types.Changed)
    async def hold(job: requests.Number, caller: Known) -> Response:
        """Hold a job: its waiting tasks do not start."""
        return Json({"changed": await client.change_job(caller, job, lambda s, now: admission.hold(s, job, now))})

    @api.post("/v1/jobs/{job}/release", response_model=api_types.Changed)
    async def release(job: requests.Number, caller: Known) -> Response:
        """Release a held job."""
        return Json({"changed": await client.change_job(caller, job, lambda s, now: admission.release(s, job, now))})

    @api.post("/v1/jobs/{job}/edit", response_model=api_types.Edited)
    async def edit(job: requests.Number, request: requests.EditRequest, caller: Known) -> Response:
        """Change what a job asks for: anything while all of it waits; later its priority, retries and `at_most`."""
        changed = await client.change_job(caller, job, lambda s, now: submitter.edit(s, now, caller, job, request))
        warning = await client.read(lambda s: admission.doubt(s, spec_of(s, job))) if changed else None
        return Json({"changed": changed, "warning": warning})

    @api.post("/v1/jobs/{job}/rerun", status_code=201, response_model=api_types.Submitted)
    async def rerun(job: requests.Number, request: requests.RerunRequest, caller: Known, key: requests.Key = "") -> Response:
        """Submit a job again as a new one, or only its failed tasks."""
        return Json(await submitter.rerun(caller, job, request.failed, key), 201)


def add_outlooks(api: APIRouter, client: StateClient, outlooks: Outlooks) -> None:
    @api.get("/v1/jobs/{job}/when", response_model=api_types.WhenInfo)
    async def when(job: requests.Number, caller: Known) -> Response:
        """When a job is expected to start, as an interval that is right in eight of ten cases."""
        found = await outlooks.of_job(client.loop, job)
        return Json(await client.told_to(caller, _told(client, found, found.job, None)))

    @api.post("/v1/when", response_model=api_types.WhenInfo)
    async def when_submitted(request: requests.WhenRequest, caller: Known) -> Response:
        """When a job would start if it were submitted now. Nothing is submitted."""

        def asked(state: State) -> tuple[Job, str]:
            rules = client.authenticator.rules
            leaf = leaf_of(state, rules, caller, request.queue, request.user)
            user = check_submits(rules, caller, leaf, request.user)
            job = request.to_job(leaf, request.tasks, request.gang, Work())
            job = job if rules.personal else admission.with_default_demand(state, job)
            job = replace(job, user=user, begin=requests.begin_by(client.clock, request.begin))
            if request.strict and (warning := admission.never_starts(state, job)):
                raise Refused(warning.partition(": ")[0])
            return job, state.display_name(job.queue)

        def find(state: State, now: float, calibration: Calibration, seconds: float) -> Outlook:
            (fact,) = admission.submit(state, [job], now, [request.comes_after()])
            state = copy_of(state)
            apply(state, fact)
            return outlook(state, fact.id, now, calibration, seconds)

        job, queue = await client.read(asked)
        found = await outlooks.find(client.loop, (caller, request.model_dump_json()), find)
        warning = admission.doubt_about_memory(job)
        return Json(await client.told_to(caller, _told(client, found, None, queue, warning)))


def _told(client: StateClient, found: Outlook, job: int | None, queue: str | None, warning: str | None = None) -> Any:
    shown = found._asdict() | {"job": job, "queue": queue, "warning": warning}
    del shown["dry"]
    return by_wall_clock(shown, client.clock)
