"""Who did what, from two places: facts of the journal that a person caused, and the file of deeds. For those who may know it."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.journal import Envelope
from fairlead.model.api_types import Doing, DoingList
from fairlead.model.quantity import format_quantities
from fairlead.model.specs import Job, path_to_root, written
from fairlead.people.deeds import Deed
from fairlead.people.rules import (
    Caller,
    Rules,
    acts_on,
    administers,
    operates,
    reaches,
    rules_all,
    seen_queue,
    sees_names,
)
from fairlead.people.telling import without
from fairlead.scheduler.facts import (
    EDITABLE,
    Configured,
    Fact,
    FrameworkDisconnected,
    FrameworkGone,
    FrameworkSubscribed,
    JobCancelled,
    JobEdited,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeForgotten,
    NodeResumed,
    OffersAccepted,
    OffersDeclined,
    OffersRescinded,
    ResourcesReserved,
    RolesRevived,
    RolesSuppressed,
    TasksRevoked,
)
from fairlead.scheduler.framework_index import holds_jobs_of

LARGEST_PAGE = 2**20
"""Bytes of the entries of a page, about."""


def job_of(fact: Fact) -> int | None:
    """The job that a person's fact is about, if it is about one."""
    return fact.id if isinstance(fact, JobSubmitted | JobCancelled | JobHeld | JobReleased | JobEdited) else None


def told_fact(envelope: Envelope, fact: Fact, job: Job | None) -> Doing:
    """A fact that a person caused, as an entry of the log; `job` is what it is about, where that is still known."""
    return {
        "at": envelope.wall,
        "by": envelope.by,
        "what": _told(fact, job),
        "outcome": "done",
        "why": "",
        "job": job_of(fact),
        "queue": holds_jobs_of(job.queue) if job is not None else None,
    }


def fact_as_known(rules: Rules, caller: Caller, envelope: Envelope, fact: Fact, job: Job | None) -> Doing:
    """As `told_fact`, less what they may not know: as in listings of jobs, whose those of a private queue are.

    Of a job that is forgotten it is not known where it was: where there are private queues, it may have been in one.
    """
    told = told_fact(envelope, fact, job)
    if told["job"] is None or envelope.by == caller.person.name:
        return told
    if job is None:
        knows = rules_all(rules, caller) or not any(said.private for said in rules.queues.values())
        return told if knows else {**told, "by": ""}
    if sees_names(rules, caller, job):
        return told
    seen = replace(job, user="", queue=written(seen_queue(rules, caller, job.queue)))
    told = told_fact(envelope, replace(fact, job=seen) if isinstance(fact, JobSubmitted) else fact, seen)
    return {**told, "by": "" if envelope.by == job.user else envelope.by}


def deed_as_known(caller: Caller, deed: Deed, hidden: Mapping[str, str]) -> Deed:
    """A deed less what they may not know: the leaves of others in private queues, and who it was that had to do with one."""
    if deed.by == caller.person.name:
        return deed
    what, why, queue = (without(text, hidden) for text in (deed.what, deed.why, deed.queue))
    if (what, why, queue) == (deed.what, deed.why, deed.queue):
        return deed
    return replace(deed, by="", what=what, why=why, queue=queue)


def told_deed(deed: Deed) -> Doing:
    """A deed as an entry of the log."""
    return {
        "at": deed.at,
        "by": deed.by,
        "what": deed.what,
        "outcome": deed.outcome,
        "why": deed.why,
        "job": None,
        "queue": deed.queue or None,
    }


def may_know(rules: Rules, caller: Caller, entry: Doing, job: Job | None) -> bool:
    """Whether an entry is for them, as far as they may know it: their own, about a job or a queue of theirs, or anything for
    operators.

    By a token for some queues, only what is about these.
    """
    here = caller.queues is None or (entry["queue"] is not None and reaches(caller, entry["queue"]))
    if operates(rules, caller) or (entry["by"] == caller.person.name and here):
        return True
    if job is not None:
        return acts_on(rules, caller, job)
    return entry["queue"] is not None and administers(rules, caller, entry["queue"])


def is_in(entry: Doing, queue: str | None) -> bool:
    """Whether an entry is about a queue or one below it; any is, where none is named."""
    return queue is None or (entry["queue"] is not None and queue in path_to_root(entry["queue"]))


class Before(NamedTuple):
    """From where on, back in time, the log is to be told: facts with a lower number, and deeds of an earlier moment."""

    fact: int | None = None
    deed: float | None = None

    @classmethod
    def read(cls, text: str) -> "Before":
        """What :meth:`write` wrote."""
        fact, _, deed = text.partition("-")
        return cls(int(fact) if fact else None, float(deed) if deed else None)

    def write(self) -> str:
        """As text, which means nothing to others."""
        return f"{'' if self.fact is None else self.fact}-{'' if self.deed is None else repr(self.deed)}"


class Page:
    """A page of the log, filled from the newest entry on, until it has so many, or they are so large.

    Attributes
    ----------
    before : Before
        Where it goes on.
    """

    def __init__(
        self, allows: Callable[[Doing, Job | None], bool], deeds: Iterator[Deed], before: Before, most: int
    ) -> None:
        self._allows, self._most, self._size = allows, most, 0
        self._deeds = deeds
        self._deed = next(deeds, None)
        self._found: list[Doing] = []
        self.before = before

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self._found) >= self._most or self._size >= LARGEST_PAGE

    def add_facts(self, facts: Iterable[tuple[int, Doing, Job | None]]) -> None:
        """Add facts by their numbers, the newest first, older than those before them, and the deeds since."""
        for number, entry, job in facts:
            self.add_deeds(entry["at"])
            if self.is_full:
                return
            self.before = self.before._replace(fact=number)
            self._take(entry, job)

    def add_deeds(self, since: float = -inf) -> bool:
        """Add the deeds since a moment; whether there are none before."""
        while self._deed is not None and self._deed.at > since and not self.is_full:
            self.before = self.before._replace(deed=self._deed.at)
            self._take(told_deed(self._deed), None)
            self._deed = next(self._deeds, None)
        return self._deed is None

    def _take(self, entry: Doing, job: Job | None) -> None:
        if self._allows(entry, job):
            self._found.append(entry)
            self._size += 100 + len(entry["what"]) + len(entry["why"]) + len(entry["queue"] or "")

    def told(self, is_last: bool) -> DoingList:
        """The page, the newest entry last."""
        return {"log": self._found[::-1], "next": None if is_last else self.before.write()}


def specs_in(facts: Iterable[Fact], known: Mapping[int, Job]) -> dict[int, Job]:
    """The jobs that facts are about: as they were submitted among them, else as they are known."""
    found = {}
    for fact in facts:
        number = job_of(fact)
        if isinstance(fact, JobSubmitted):
            found[fact.id] = fact.job
        elif number is not None and number in known:
            found.setdefault(number, known[number])
    return found


def _told(fact: Fact, job: Job | None) -> str:
    match fact:
        case JobSubmitted(id=number, job=asked):
            count = f"{asked.tasks} tasks" if asked.tasks != 1 else "1 task"
            return f"submitted job {number} to {holds_jobs_of(asked.queue)}: {count}"
        case JobCancelled(id=number, indices=indices):
            whose = f" of {job.user}" if job is not None and job.user else ""
            return f"cancelled {'' if indices is None else f'{len(indices)} tasks of '}job {number}{whose}"
        case JobHeld(id=number):
            return f"held job {number}"
        case JobReleased(id=number):
            return f"released job {number}"
        case JobEdited(id=number):
            changed = [name for name in EDITABLE if getattr(fact, name) is not None]
            return f"edited job {number}: {', '.join(name.replace('_', ' ') for name in changed)}"
        case NodeDrained(node=node):
            return f"drained node {node}"
        case NodeForgotten(node=node):
            return f"forgot node {node}"
        case NodeResumed(node=node):
            return f"resumed node {node}"
        case Configured(queues=queues):
            return f"changed the configuration: {len(queues)} queues"
        case TasksRevoked(job=jobs):
            return f"stopped {len(jobs)} tasks that ran"
        case FrameworkSubscribed(id=who):
            return f"subscribed framework {who}"
        case FrameworkDisconnected(id=who):
            return f"disconnected framework {who}"
        case FrameworkGone(id=who):
            return f"tore down framework {who}"
        case RolesSuppressed(id=who):
            return f"wants no more offers for framework {who}"
        case RolesRevived(id=who):
            return f"wants offers for framework {who}"
        case OffersAccepted(framework=who, ids=ids, jobs=jobs):
            return f"accepted {_count(ids, 'offer')} of framework {who}: {_count(jobs, 'task')}"
        case OffersDeclined(framework=who, ids=ids):
            return f"declined {_count(ids, 'offer')} of framework {who}"
        case OffersRescinded(ids=ids, why=why):
            return f"had {_count(ids, 'offer')} rescinded: {why}"
        case ResourcesReserved(amount=amount, mark=mark):
            return f"{'set apart' if mark else 'gave back'} {format_quantities(amount)} of a node"
        case _:
            return re.sub("(?<=.)([A-Z])", r" \1", type(fact).__name__).lower()


def _count(those: Collection[int], what: str) -> str:
    return f"{len(those)} {what}{'' if len(those) == 1 else 's'}"
