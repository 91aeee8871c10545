"""Submission of commands and calls: all jobs of a request or none, and only once per key."""

import asyncio
import hashlib
import threading
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import is_not
from typing import Any, NamedTuple

import msgspec
from numpy.typing import NDArray

from fairlead.model.api_types import Submitted
from fairlead.model.job_columns import columns_of, kind_of
from fairlead.model.specs import Job, Work
from fairlead.people.accounts import Person
from fairlead.people.bounds import check_load, output_limit
from fairlead.people.placing import leaf_of
from fairlead.people.rules import Caller, check_acts, check_submits
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Dependency, Refused
from fairlead.scheduler.facts import Fact, JobEdited, JobSubmitted
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import find_memory
from fairlead.service.api.requests import OF_ITS_OWN, EditRequest, JobFields, begin_by, check_gpus
from fairlead.service.api.state_client import StateClient, spec_of
from fairlead.service.loop import Busy
from fairlead.service.unfinished_jobs import Exports, Loads, Unfinished, UnfinishedJobs, totals, unfinished
from fairlead.service.wakeups import Answer

PIECE = 200
"""Jobs of a request that are checked, or cancelled, before other questions are answered."""
MOST_KINDS, LARGEST_KIND = 10_000, 2048
"""Kinds of jobs of which the checks are remembered, and the most bytes of one, since a refused request adds one, too."""
MOST_AHEAD = 100_000
"""Tasks of a request for whose rows memory is found before it is known whether it is granted."""
MOST_TOGETHER = 100
"""Submissions of one person that are taken together."""


class JobSubmission(NamedTuple):
    """A job to submit: number of tasks, gang or not, its work, and environment variables stored outside the journal."""

    request: JobFields
    tasks: int
    gang: bool
    work: Work
    exported: Mapping[str, str]


class _Kind(NamedTuple):
    """What is true of jobs that differ in their work and names only, until something changes."""

    job: Job  # an accepted one, without its work
    kind: bytes  # from kind_of
    queue: str  # its displayed name
    never: str | None  # why it never starts


class _Checked(NamedTuple):
    """A job that the caller may submit, and what they should know of it."""

    job: Job
    kind: _Kind
    known: Unfinished
    warning: str | None
    after: Dependency = ()


class _Submission:
    """Jobs that a caller submits with one request: all or none.

    checked : the jobs checked so far, as of a generation of the configuration
    kinds : of jobs that ask for much; remembered for this submission only
    loads : of all of them; None if yet to be summed
    fact : of all of them, without numbers; None if yet to be made, or if some depend on other jobs
    first, is_new : the number of the first job, and whether a request with this key submits it for the first time
    told : otherwise the answer
    refusal : why there is none
    """

    def __init__(self, caller: Caller, asked: Sequence[JobSubmission], key: str, digest: str) -> None:
        self.caller, self.asked, self.digest = caller, asked, digest
        self.key = f"{caller.person.uid}:{key}" if key else ""  # keys of different people never collide
        self.first, self.is_new, self.told = 0, True, list[Submitted]()
        self.restart(0)
        self.refusal: Refused | None = None

    def restart(self, as_of: int) -> None:
        """Check from the first job on, as of a generation."""
        self.as_of, self.checked, self.kinds = as_of, list[_Checked](), dict[Hashable, _Kind]()
        self.loads: Loads | None = None
        self.fact: JobSubmitted | None = None

    def is_known(self, state: State) -> bool:
        """Return True if a request with this key was granted before, and note its answer: whatever has changed since.

        Warnings are as of now; of a job that is forgotten, those of the first. Raises Conflict if that request was another.
        """
        first, specs = admission.repeated(state, self.key, self.digest), state.index.specs
        self.is_new = first is None
        self.told.clear()
        if first is None:
            return False
        for number in range(first, first + max(1, len(self.asked))):
            job = specs[number if number in specs else first]
            doubt = admission.doubt(state, job) if job.queue in state.tree.rows else None
            self.told.append({"id": number, "queue": state.display_name(job.queue), "warning": doubt})
        return True

    def rows_in(self, state: State) -> list[NDArray[Any]]:
        """Return the memory that their rows will have if no others come before, but not of more than MOST_AHEAD tasks."""
        tasks = min(sum(each.tasks for each in self.asked), MOST_AHEAD)
        return [*state.jobs.ahead(len(self.asked)), *state.index.rows.ahead(len(self.asked)), *state.tasks.ahead(tasks)]

    def prepare(self, memory: list[NDArray[Any]]) -> None:
        """Find memory, and compute what follows from the jobs alone: in another thread, before the scheduler's takes them."""
        find_memory(memory)
        self.loads = totals([each.known for each in self.checked])
        if not any(each.after or each.job.singleton or each.job.retry_delay for each in self.checked):
            self.fact = _submitted(self.checked)
            self.fact.written  # noqa: B018 computed here


class _Together:
    """Submissions of one person to one queue that come together: a question to the scheduler's thread, and one fact.

    Each is granted or refused by itself. It is an :class:`fairlead.service.wakeups.Answer` for all of them.
    """

    def __init__(self, submitter: "Submitter", line: Hashable, one: _Submission, answer: Answer) -> None:
        self.line, self.all, self._submitter = line, [(one, answer)], submitter

    def question(self, state: State, now: float) -> tuple[list[Fact], None]:
        return self._submitter.decide(state, now, [one for one, _ in self.all]), None

    def set_running_or_notify_cancel(self) -> bool:
        self._submitter.close(self)
        self.all = [(one, answer) for one, answer in self.all if answer.set_running_or_notify_cancel()]
        return bool(self.all)

    def set_result(self, value: object) -> None:
        self.set_exception(None)

    def set_exception(self, error: BaseException | None) -> None:
        for one, answer in self.all:
            if found := one.refusal or (error if one.is_new else None):
                answer.set_exception(found)
            else:
                answer.set_result(None)


class Submitter:
    """Submits, reruns and edits jobs for callers."""

    def __init__(self, client: StateClient, unfinished: UnfinishedJobs) -> None:
        self._client, self._unfinished = client, unfinished
        self._kinds: dict[Hashable, _Kind] = {}  # by caller and what they ask for
        self._as_of: tuple[object, ...] = ()
        self._generation = 0
        self._open: dict[Hashable, _Together] = {}  # those that the scheduler's thread has not taken yet
        self._joining = threading.RLock()

    async def submit(self, caller: Caller, asked: Sequence[JobSubmission], key: str) -> list[Submitted]:
        """Submit jobs: all or none. Many are checked in pieces first, so that others are answered in between."""
        digest = "" if not key else _digest(asked) if len(asked) <= PIECE else await asyncio.to_thread(_digest, asked)
        exports = self._unfinished.exports
        kept: list[str] = []
        try:
            if any(each.exported for each in asked):
                asked = await asyncio.to_thread(_with_exports, asked, exports, caller.person, kept)
            one = _Submission(caller, asked, key, digest)
            for _ in range(2 * (len(asked) // PIECE)):  # enough, unless all is checked again and again
                await self._client.read(lambda state: self._check_some(state, one, PIECE))
                if not one.is_new:
                    break
                if len(one.checked) == len(asked):
                    memory = await self._client.read(one.rows_in)
                    await asyncio.to_thread(one.prepare, memory)
                    break
            await self._client.answer(self._join(one), changes=True)
        except (Refused, Busy):  # other errors may still take effect; the next start removes leftovers
            exports.drop(kept)
            raise
        if not one.is_new:
            exports.drop(kept)
            return one.told
        return [{"id": n, "queue": each.kind.queue, "warning": each.warning} for n, each in enumerate(one.checked, one.first)]

    def _join(self, one: _Submission) -> Answer:
        """Ask for a submission, with others if it depends on none."""
        request, answer = one.asked[0].request, self._client.awaited()
        line = one.caller.person.uid, request.queue, request.user
        alone = len(one.asked) > 1 or request.after or request.singleton or request.retry_delay
        with self._joining:
            there = self._open.get(line)
            repeats = there is not None and one.key and any(one.key == other.key for other, _ in there.all)
            if there is not None and len(there.all) < MOST_TOGETHER and not (alone or repeats):
                there.all.append((one, answer))
                return answer
            together = _Together(self, line, one, answer)
            if not alone:
                self._open[line] = together
            try:
                self._client.put(together, together.question, True, one.caller.person.name, True)
            except Busy:
                self.close(together)
                raise
        return answer

    def close(self, together: _Together) -> None:
        """Let no more submissions join these."""
        with self._joining:
            if self._open.get(together.line) is together:
                del self._open[together.line]

    async def rerun(self, caller: Caller, number: int, failed: bool, key: str) -> Submitted:
        """Submit a job again for the caller, or only its failed tasks."""
        digest = hashlib.sha256(f"rerun {number} {failed}".encode()).hexdigest() if key else ""
        one = _Submission(caller, [], key, digest)

        def question(state: State, now: float) -> tuple[list[Fact], None]:
            if one.is_known(state):
                return [], None
            check_acts(self._client.authenticator.rules, caller, number, spec_of(state, number))
            job = self._with_usual(state, admission.again(state, number, failed))
            one.restart(self._generation_of(state))
            kind = self._check(state, one.caller, job, None)
            one.checked = [self._checked(state, one, kind, job, job.work)]
            if spec_of(state, number).work.input:
                said = f"job {number} read the standard input of `fairlead run`, which is not stored: now it reads nothing"
                one.checked[0] = one.checked[0]._replace(warning="; ".join(filter(None, [said, one.checked[0].warning])))
            granted = self._grant(state, one, [])
            return [_submitted(granted).numbered_from(state.index.last + 1, now)] if granted else [], None

        await self._client.ask(question, changes=True, by=caller.person.name)
        if not one.is_new:
            return one.told[0]
        (checked,) = one.checked
        return {"id": one.first, "queue": checked.kind.queue, "warning": checked.warning}

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
            time_limit=request.time_limit, at_most=request.at_most, begin=begin_by(self._client.clock, request.begin),
        )  # fmt: skip
        fact = admission.edit(state, number, said)
        if fact is not None and leaf is not None and leaf != spec.queue:
            check_submits(rules, caller, leaf, None)
            has = partial(self._unfinished.load, spec.uid, but=number)
            check_load(rules, caller, has, {leaf: unfinished(spec, self._unfinished.exports).load})
            self._unfinished.moved(number, leaf)
        return fact

    def decide(self, state: State, now: float, submissions: Sequence[_Submission]) -> list[Fact]:
        """Grant or refuse each submission; return the fact of those granted, if any."""
        granted = list[_Checked]()
        for one in submissions:
            try:
                self._check_some(state, one, len(one.asked))
                granted += self._grant(state, one, granted)
            except Refused as refused:
                one.refusal = refused
        # One that has a fact comes alone.
        return [(submissions[0].fact or _submitted(granted)).numbered_from(state.index.last + 1, now)] if granted else []

    def _grant(self, state: State, one: _Submission, before: Sequence[_Checked]) -> Sequence[_Checked]:
        """Return the new jobs of a checked submission, which follow those `before`; none if they are known already."""
        if one.is_known(state):
            return []
        one.first = state.index.last + 1 + len(before)
        known = [each.known for each in one.checked]
        loads = totals(known) if one.loads is None else one.loads
        self._unfinished.check(self._client.authenticator.rules, one.caller, loads)
        if one.fact is None:
            jobs = [each.job for each in one.checked]
            jobs = admission.with_dependencies(state, jobs, [each.after for each in one.checked])
            one.checked = [each._replace(job=job) for each, job in zip(one.checked, jobs, strict=True)]
        admission.check_room(state, sum(each.job.tasks for each in [*before, *one.checked]))
        self._unfinished.add(one.first, known, loads)
        for place, each in enumerate(one.checked):
            if each.job.after and (unmet := admission.unmet_dependency(state, each.job)) is not None:
                said = f"it comes after job {unmet[0]}, {unmet[1]}: the job is cancelled"
                one.checked[place] = each._replace(warning="; ".join(filter(None, [each.warning, said])))
        return one.checked

    def _check_some(self, state: State, one: _Submission, most: int) -> None:
        """Check at most `most` jobs of a submission that are not checked yet; all again if anything has changed.

        Raises Refused if the caller may not submit one. Nothing is checked of a submission that is known.
        """
        if one.is_known(state):
            return
        if (now := self._generation_of(state)) != one.as_of:
            one.restart(now)
        done = len(one.checked)
        for number, asked in enumerate(one.asked[done : done + most], done):
            request = asked.request
            try:
                kind = self._kind(state, one, asked)
                if request.strict and kind.never:
                    raise Refused(kind.never.partition(": ")[0])
            except Refused as refused:
                raise type(refused)(f"jobs.{number}: {refused}") if len(one.asked) > 1 else refused from None
            checked = self._checked(state, one, kind, request, asked.work)
            one.checked.append(checked._replace(after=request.comes_after()) if request.after else checked)

    def _generation_of(self, state: State) -> int:
        """Count changes of the configuration, queues and nodes, after which all is checked again."""
        rules, named = self._client.authenticator.rules, admission.named_resources(state)
        now = (rules, state.settings, state.tree.declared, state.cluster.total, named, state.queues.n)
        if len(self._kinds) > MOST_KINDS or now[-1:] != self._as_of[-1:] or any(map(is_not, now[:-1], self._as_of)):
            self._as_of = now
            self._generation += 1
            self._kinds.clear()
        return self._generation

    def _kind(self, state: State, one: _Submission, asked: JobSubmission) -> _Kind:
        """Return the kind of a job that the caller may submit; raises Refused, Forbidden."""
        request, tasks, gang, work, _ = asked
        begin = begin_by(self._client.clock, request.begin)
        same = [(name, getattr(request, name)) for name in sorted(request.model_fields_set - OF_ITS_OWN)]
        most = (getattr(request, "array", None) or "").partition("%")[2]
        caller, key, kinds = one.caller, None, self._kinds
        if not state.cluster.older:  # else what a job runs counts too: an older supervisor may not know of it
            with suppress(OverflowError):  # a number of more than 64 bits, which is refused by its name
                asks = msgspec.msgpack.encode((tasks, gang, begin, most, same))
                key, kinds = (caller, type(request), asks), kinds if len(asks) <= LARGEST_KIND else one.kinds
        kind = kinds.get(key)
        if kind is None:
            leaf = leaf_of(state, self._client.authenticator.rules, caller, request.queue, request.user)
            job = self._with_usual(state, request.to_job(leaf, tasks, gang, work))
            kind = self._check(state, caller, job, request.user, begin)
            if key is not None:
                kinds[key] = kind
        return kind

    def _check(self, state: State, caller: Caller, job: Job, user: str | None, begin: float | None = None) -> _Kind:
        """Check a job, as the caller submits it under their own or another name; raises Refused, Forbidden."""
        rules, person = self._client.authenticator.rules, caller.person
        name, limit = check_submits(rules, caller, job.queue, user), output_limit(rules, job.queue)
        job = msgspec.structs.replace(job, user=name, uid=person.uid, gid=person.gid, output_limit=limit, begin=begin)
        job = admission.accept(state, job)
        never, plain = admission.never_starts(state, job), msgspec.structs.replace(job, work=Work())
        return _Kind(plain, kind_of(job), state.display_name(job.queue), never)

    def _checked(self, state: State, one: _Submission, kind: _Kind, asked: JobFields | Job, work: Work) -> _Checked:
        """Return a job of a kind with its own names and work; the first of a submission stands for all."""
        key, digest = ("", "") if one.checked else (one.key, one.digest)
        job = msgspec.structs.replace(kind.job, work=work, name=asked.name, group=asked.group, key=key, digest=digest)
        return _Checked(job, kind, unfinished(job, self._unfinished.exports), admission.doubt(state, job, kind.never))

    def _with_usual(self, state: State, job: Job) -> Job:
        """Add the default demands of a shared scheduler."""
        return job if self._client.authenticator.rules.personal else admission.with_default_demand(state, job)


def _submitted(checked: Sequence[_Checked]) -> JobSubmitted:
    """Return the fact of checked jobs, without numbers, with its columns."""
    jobs = [each.job for each in checked]
    fact = JobSubmitted(at=0.0, id=0, job=jobs[0], more=jobs[1:])
    fact.__dict__["columns"] = columns_of(jobs, [each.kind.kind for each in checked])
    return fact


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
    return hashlib.sha256(b"".join(each.request.model_dump_json().encode() + b"\n" for each in asked)).hexdigest()
