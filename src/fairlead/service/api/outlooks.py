"""Requests about when jobs start: those that were submitted, and those that were not yet."""

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
from fairlead.service.api.asking import Asker, Json, Number, by_wall_clock
from fairlead.service.api.requests import WhenRequest
from fairlead.service.outlooks import Outlooks
from fairlead.simulate.outlook import Outlook, outlook


def add_outlooks(api: APIRouter, asker: Asker, outlooks: Outlooks) -> None:
    @api.get("/v1/jobs/{job}/when", response_model=WhenInfo)
    async def when(job: Number, caller: Known) -> Response:
        """When a job is expected to start, as an interval: in eight of ten cases within it."""
        found = await outlooks.of_job(asker.loop, job)
        return Json(await asker.told_to(caller, _told(asker, found, found.job, None)))

    @api.post("/v1/when", response_model=WhenInfo)
    async def when_submitted(request: WhenRequest, caller: Known) -> Response:
        """When a job would start, were it submitted now. Nothing is submitted."""

        def asked(state: State) -> tuple[Job, str]:
            rules = asker.door.rules
            leaf = leaf_of(state, rules, caller, request.queue, request.user)
            user = check_submits(rules, caller, leaf, request.user)
            job = request.to_job(leaf, request.tasks, request.gang, Work())
            job = msgspec.structs.replace(job if rules.personal else admission.with_usual(state, job), user=user)
            if request.strict and (warning := admission.never_starts(state, job)):
                raise admission.Refused(warning.partition(": ")[0])
            return job, state.called(job.queue)

        def find(state: State, now: float, widen: float, seconds: float) -> Outlook:
            (fact,) = admission.submit(state, [job], now)
            state = copy_of(state)
            apply(state, fact)
            return outlook(state, fact.id, now, widen, seconds)

        job, queue = await asker.read(asked)
        found = await outlooks.find(asker.loop, (caller, request.model_dump_json()), find)
        warning = admission.doubt_about_memory(job)
        return Json(await asker.told_to(caller, _told(asker, found, None, queue, warning)))


def _told(asker: Asker, found: Outlook, job: int | None, queue: str | None, warning: str | None = None) -> Any:
    return by_wall_clock({**found._asdict(), "job": job, "queue": queue, "warning": warning}, asker.clock)
