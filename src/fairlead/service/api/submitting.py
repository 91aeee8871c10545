"""Submission, of commands and of calls: all jobs of a request or none, and once under a key."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from fairlead.model.api_types import Submitted
from fairlead.model.specs import Job, Work
from fairlead.people.accounts import Person
from fairlead.people.bounds import Load, check_load, output_limit
from fairlead.people.rules import Caller, check_submits
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State
from fairlead.service.api.asking import Asker
from fairlead.service.api.requests import JobAsked
from fairlead.service.exports import Exports
from fairlead.service.loop import Busy
from fairlead.service.unfinished import Unfinished, load_of


class Asked(NamedTuple):
    """A job as it is asked for: its tasks, whether they are a gang, their work, and what of the environment is kept apart."""

    request: JobAsked
    tasks: int
    gang: bool
    work: Work
    exported: Mapping[str, str]


class Submitter:
    """Submits jobs for callers."""

    def __init__(self, asker: Asker, unfinished: Unfinished) -> None:
        self._asker, self._unfinished = asker, unfinished

    async def submit(self, caller: Caller, asked: Sequence[Asked], key: str) -> list[Submitted]:
        """Submit jobs: all or none."""
        digest = _digest(asked) if key else ""
        key = f"{caller.person.uid}:{key}" if key else ""  # nobody meets another's
        exports = self._unfinished.exports
        kept: list[str] = []
        try:
            if any(each.exported for each in asked):
                asked = await asyncio.to_thread(_with_exports, asked, exports, caller.person, kept)
            answers: list[Submitted]
            answers, are_new = await self._asker.ask(
                lambda state, now: self._submitted(state, now, caller, asked, key, digest),
                changes=True,
                by=caller.person.name,
            )
        except (
            Refused,
            Busy,
        ):  # whatever else goes wrong, it may happen yet: what is left then goes with the next start
            exports.drop(kept)
            raise
        if not are_new:
            exports.drop(kept)
        return answers

    def _submitted(
        self, state: State, now: float, caller: Caller, asked: Sequence[Asked], key: str, digest: str
    ) -> tuple[list[Fact], tuple[list[Submitted], bool]]:
        """The facts that a submission comes to; the answers, and whether the jobs are new ones."""
        jobs = self._jobs(state, caller, asked, digest)
        first = admission.repeated(state, key, digest)
        facts: list[Fact] = []
        if first is None:
            first = state.index.last + 1
            loads = [load_of(job, self._unfinished.exports) for job in jobs]
            self._check_load(caller, jobs, loads)
            jobs[0] = msgspec.structs.replace(jobs[0], key=key)
            facts += admission.submit(state, jobs, now)
            for number, (job, load) in enumerate(zip(jobs, loads, strict=True), first):
                self._unfinished.begin(number, job, load)
        answers: list[Submitted] = [
            {"id": number, "queue": job.queue, "warning": admission.too_large(state, job)}
            for number, job in enumerate(jobs, first)
        ]
        return facts, (answers, bool(facts))

    def _check_load(self, caller: Caller, jobs: Sequence[Job], loads: Sequence[Load]) -> None:
        new: dict[str, Load] = {}
        for job, load in zip(jobs, loads, strict=True):
            new[job.queue] = new.get(job.queue, Load()).plus(load)
        uid = caller.person.uid
        check_load(self._asker.door.rules, caller, lambda queue: self._unfinished.load(uid, queue), new)

    def _jobs(self, state: State, caller: Caller, asked: Sequence[Asked], digest: str) -> list[Job]:
        """The jobs that a submission asks for, each in its leaf; refuses those that the caller may not submit."""
        own, rules = {"uid": caller.person.uid, "gid": caller.person.gid}, self._asker.door.rules
        jobs = []
        for number, (request, tasks, gang, work, _) in enumerate(asked):
            try:
                leaf = admission.leaf_for(state, request.queue, request.user or caller.person.name)
                user, limit = check_submits(rules, caller, leaf, request.user), output_limit(rules, leaf)
                job = request.to_job(leaf, tasks, gang, work)
                job = job if rules.personal else admission.with_usual(state, job)
                jobs.append(msgspec.structs.replace(job, digest=digest, user=user, output_limit=limit, **own))
                warning = admission.too_large(state, jobs[-1])
                if warning and request.strict:
                    raise Refused(warning.partition(": ")[0])
            except Refused as refused:
                raise type(refused)(f"jobs.{number}: {refused}") if len(asked) > 1 else refused from None
        return jobs


def _with_exports(asked: Sequence[Asked], exports: Exports, person: Person, kept: list[str]) -> list[Asked]:
    """What is asked for, with the environments that are kept apart written to files, whose names are added to `kept`."""
    found = []
    for each in asked:
        if each.exported:
            kept.append(exports.keep(each.exported, person))
            each = each._replace(work=msgspec.structs.replace(each.work, export=kept[-1]))  # noqa: PLW2901
        found.append(each)
    return found


def _digest(asked: Sequence[Asked]) -> str:
    digest = hashlib.sha256()
    for each in asked:
        digest.update(each.request.model_dump_json().encode() + b"\n")
    return digest.hexdigest()
