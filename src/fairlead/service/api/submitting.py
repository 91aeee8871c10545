"""Submission of commands and calls: all jobs of a request or none, and only once per key."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from fairlead.model.api_types import Submitted
from fairlead.model.specs import Job, Work
from fairlead.people.accounts import Person
from fairlead.people.bounds import check_load, output_limit
from fairlead.people.placing import leaf_of
from fairlead.people.rules import Caller, check_acts, check_submits
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact, JobEdited
from fairlead.scheduler.state import State
from fairlead.service.api.requests import EditRequest, JobFields, check_gpus
from fairlead.service.api.state_client import StateClient, spec_of
from fairlead.service.exports import Exports
from fairlead.service.loop import Busy
from fairlead.service.unfinished_jobs import UnfinishedJobs, load_of


class JobSubmission(NamedTuple):
    """A job to submit: number of tasks, gang or not, its work, and environment variables stored outside the journal."""

    request: JobFields
    tasks: int
    gang: bool
    work: Work
    exported: Mapping[str, str]


class Submitter:
    """Submits, reruns and edits jobs for callers."""

    def __init__(self, client: StateClient, unfinished: UnfinishedJobs) -> None:
        self._client, self._unfinished = client, unfinished

    async def submit(self, caller: Caller, asked: Sequence[JobSubmission], key: str) -> list[Submitted]:
        """Submit jobs: all or none."""
        digest = await asyncio.to_thread(_digest, asked) if key else ""
        key = f"{caller.person.uid}:{key}" if key else ""  # keys of different people never collide
        exports = self._unfinished.exports
        kept: list[str] = []
        try:
            if any(each.exported for each in asked):
                asked = await asyncio.to_thread(_with_exports, asked, exports, caller.person, kept)
            answers: list[Submitted]
            answers, are_new = await self._client.ask(
                lambda state, now: self._submitted(state, now, caller, self._jobs(state, caller, asked, digest), key, digest),
                changes=True,
                by=caller.person.name,
                takes_on=True,
            )
        except (Refused, Busy):  # other errors may still take effect; the next start removes leftovers
            exports.drop(kept)
            raise
        if not are_new:
            exports.drop(kept)
        return answers

    async def rerun(self, caller: Caller, number: int, failed: bool, key: str) -> Submitted:
        """Submit a job again for the caller, or only its failed tasks."""
        digest = hashlib.sha256(f"rerun {number} {failed}".encode()).hexdigest() if key else ""
        key = f"{caller.person.uid}:{key}" if key else ""

        def question(state: State, now: float) -> tuple[list[Fact], tuple[list[Submitted], bool]]:
            check_acts(self._client.authenticator.rules, caller, number, spec_of(state, number))
            job = self._with_usual(state, admission.again(state, number, failed))
            job = self._as_theirs(caller, msgspec.structs.replace(job, digest=digest), None)
            return self._submitted(state, now, caller, [job], key, digest)

        had_input = await self._client.read(lambda state: bool(spec_of(state, number).work.input))
        (answer,), _ = await self._client.ask(question, changes=True, by=caller.person.name)
        found: Submitted = answer
        if had_input:
            lost = f"job {number} read the standard input of `fairlead run`, which is not stored: now it reads nothing"
            found = {**found, "warning": "; ".join(filter(None, [lost, found["warning"]]))}
        return found

    def edit(self, state: State, now: float, caller: Caller, number: int, request: EditRequest) -> JobEdited | None:
        """Return the fact of an edit of a job that the caller may change; None if nothing changes."""
        spec, rules = spec_of(state, number), self._client.authenticator.rules
        leaf = None if request.queue is None else admission.leaf_for(state, request.queue, spec.user)
        demand = None if request.demand is None else {**spec.demand, **request.demand}
        if demand is not None:
            check_gpus(demand)
            demand = {name: amount for name, amount in demand.items() if amount}
            demand = self._with_usual(state, msgspec.structs.replace(spec, demand=demand)).demand
        said = JobEdited(
            at=now, id=number, queue=leaf, demand=demand, on=request.on, priority=request.priority, retries=request.retries,
            time_limit=request.time_limit, at_most=request.at_most,
        )  # fmt: skip
        fact = admission.edit(state, number, said)
        if fact is not None and leaf is not None and leaf != spec.queue:
            check_submits(rules, caller, leaf, None)
            has = partial(self._unfinished.load, spec.uid, but=number)
            check_load(rules, caller, has, {leaf: load_of(spec, self._unfinished.exports)})
            self._unfinished.moved(number, leaf)
        return fact

    def _submitted(
        self, state: State, now: float, caller: Caller, jobs: list[Job], key: str, digest: str
    ) -> tuple[list[Fact], tuple[list[Submitted], bool]]:
        """Return the facts of a submission, the answers, and whether the jobs are new."""
        first = admission.repeated(state, key, digest)
        facts: list[Fact] = []
        if first is None:
            first = state.index.last + 1
            loads = [load_of(job, self._unfinished.exports) for job in jobs]
            asked_for = zip((job.queue for job in jobs), loads, strict=True)
            self._unfinished.check(self._client.authenticator.rules, caller, asked_for)
            jobs[0] = msgspec.structs.replace(jobs[0], key=key)
            submitted = admission.submit(state, jobs, now)
            facts += submitted
            jobs = [fact.job for fact in submitted]
            for number, (job, load) in enumerate(zip(jobs, loads, strict=True), first):
                self._unfinished.begin(number, job, load)
        answers: list[Submitted] = [
            {"id": number, "queue": state.display_name(job.queue), "warning": admission.doubt(state, job)}
            for number, job in enumerate(jobs, first)
        ]
        return facts, (answers, bool(facts))

    def _jobs(self, state: State, caller: Caller, asked: Sequence[JobSubmission], digest: str) -> list[Job]:
        """Return the requested jobs, each in its leaf; raises Refused if the caller may not submit one."""
        rules = self._client.authenticator.rules
        jobs = []
        for number, (request, tasks, gang, work, _) in enumerate(asked):
            try:
                leaf = leaf_of(state, rules, caller, request.queue, request.user)
                job = request.to_job(leaf, tasks, gang, work)
                job = self._with_usual(state, job)
                jobs.append(self._as_theirs(caller, msgspec.structs.replace(job, digest=digest), request.user))
                if request.strict and (warning := admission.never_starts(state, jobs[-1])):
                    raise Refused(warning.partition(": ")[0])
            except Refused as refused:
                raise type(refused)(f"jobs.{number}: {refused}") if len(asked) > 1 else refused from None
        return jobs

    def _with_usual(self, state: State, job: Job) -> Job:
        """Add the default demands of a shared scheduler."""
        return job if self._client.authenticator.rules.personal else admission.with_default_demand(state, job)

    def _as_theirs(self, caller: Caller, job: Job, user: str | None) -> Job:
        """Return a job as the caller submits it, under their own or another name; raises Forbidden."""
        rules, person = self._client.authenticator.rules, caller.person
        name = check_submits(rules, caller, job.queue, user)
        limit = output_limit(rules, job.queue)
        return msgspec.structs.replace(job, user=name, uid=person.uid, gid=person.gid, output_limit=limit)


def _with_exports(asked: Sequence[JobSubmission], exports: Exports, person: Person, kept: list[str]) -> list[JobSubmission]:
    """Write environments stored outside the journal to files, and add their names to `kept`; return the updated requests."""
    found = []
    for each in asked:
        if each.exported:
            kept.append(exports.keep(each.exported, person))
            each = each._replace(work=msgspec.structs.replace(each.work, export=kept[-1]))  # noqa: PLW2901
        found.append(each)
    return found


def _digest(asked: Sequence[JobSubmission]) -> str:
    digest = hashlib.sha256()
    for each in asked:
        digest.update(each.request.model_dump_json().encode() + b"\n")
    return digest.hexdigest()
