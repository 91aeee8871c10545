"""Routes for predicted starts: of submitted jobs, and of jobs that would be submitted."""

from typing import Any

import msgspec
from fastapi import APIRouter, Response

from fairlead.model.api_types import WhenInfo
from fairlead.model.specs import Job, Work
from fairlead.people.placing import leaf_of
from fairlead.people.rules import check_submits
from fairlead.scheduler import admission
from fairlead.scheduler.effects import apply
from fairlead.scheduler.snapshot import copy_of
from fairlead.scheduler.state import State
from fairlead.service.api.access import Known
from fairlead.service.api.answers import Json, by_wall_clock
from fairlead.service.api.requests import Number, WhenRequest, begin_by
from fairlead.service.api.state_client import StateClient
from fairlead.service.outlooks import Outlooks
from fairlead.simulate.outlook import Calibration, Outlook, outlook


def add_outlooks(api: APIRouter, client: StateClient, outlooks: Outlooks) -> None:
    @api.get("/v1/jobs/{job}/when", response_model=WhenInfo)
    async def when(job: Number, caller: Known) -> Response:
        """When a job is expected to start, as an interval that is right in eight of ten cases."""
        found = await outlooks.of_job(client.loop, job)
        return Json(await client.told_to(caller, _told(client, found, found.job, None)))

    @api.post("/v1/when", response_model=WhenInfo)
    async def when_submitted(request: WhenRequest, caller: Known) -> Response:
        """When a job would start if it were submitted now. Nothing is submitted."""

        def asked(state: State) -> tuple[Job, str]:
            rules = client.authenticator.rules
            leaf = leaf_of(state, rules, caller, request.queue, request.user)
            user = check_submits(rules, caller, leaf, request.user)
            job = request.to_job(leaf, request.tasks, request.gang, Work())
            job = msgspec.structs.replace(job if rules.personal else admission.with_default_demand(state, job), user=user)
            job = msgspec.structs.replace(job, begin=begin_by(client.clock, request.begin))
            if request.strict and (warning := admission.never_starts(state, job)):
                raise admission.Refused(warning.partition(": ")[0])
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
