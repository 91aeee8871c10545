"""Submission, of commands and of calls: all jobs of a request or none, and once under a key."""

import hashlib
from collections.abc import Sequence

import msgspec

from fairlead.model.api_types import Submitted
from fairlead.model.specs import Work
from fairlead.people.rules import Caller, check_submits
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State
from fairlead.service.api.asking import Asker
from fairlead.service.api.requests import JobAsked


async def submit_all(
    asker: Asker, caller: Caller, asked: Sequence[tuple[JobAsked, int, bool, Work]], key: str
) -> list[Submitted]:
    """Submit jobs, each with its number of tasks, whether they are a gang, and their work: all or none."""
    digest = _digest(asked) if key else ""
    key = f"{caller.person.uid}:{key}" if key else ""  # nobody meets another's
    own = {"uid": caller.person.uid, "gid": caller.person.gid}

    def question(state: State, now: float) -> tuple[list[Fact], list[Submitted]]:
        jobs = []
        for number, (request, tasks, gang, work) in enumerate(asked):
            try:
                leaf = admission.leaf_for(state, request.queue, request.user or caller.person.name)
                user = check_submits(asker.door.rules, caller, leaf, request.user)
                job = request.to_job(leaf, tasks, gang, work)
                jobs.append(msgspec.structs.replace(job, digest=digest, user=user, **own))
                warning = admission.too_large(state, jobs[-1])
                if warning and request.strict:
                    raise Refused(warning.partition(": ")[0])
            except Refused as refused:
                raise type(refused)(f"jobs.{number}: {refused}") if len(asked) > 1 else refused from None
        first = admission.repeated(state, key, digest)
        facts: list[Fact] = []
        if first is None:
            first = state.index.last + 1
            jobs[0] = msgspec.structs.replace(jobs[0], key=key)
            facts += admission.submit(state, jobs, now)
        answers: list[Submitted] = [
            {"id": number, "queue": job.queue, "warning": admission.too_large(state, job)}
            for number, job in enumerate(jobs, first)
        ]
        return facts, answers

    answers: list[Submitted] = await asker.ask(question, changes=True, by=caller.person.name)
    return answers


def _digest(asked: Sequence[tuple[JobAsked, int, bool, Work]]) -> str:
    digest = hashlib.sha256()
    for request, *_ in asked:
        digest.update(request.model_dump_json().encode() + b"\n")
    return digest.hexdigest()
