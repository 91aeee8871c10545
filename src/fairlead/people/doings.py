"""Who did what, from two places: facts of the journal that a person caused, and the file of deeds. For those who may know it."""

from collections.abc import Iterable, Mapping

from fairlead.journal import Envelope
from fairlead.model.api_types import Doing
from fairlead.model.specs import Job, ancestors
from fairlead.people.deeds import Deed
from fairlead.people.rules import Caller, Rules, acts_on, administers, operates, reaches
from fairlead.scheduler.facts import (
    Configured,
    Fact,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeResumed,
    TasksRevoked,
)


def job_of(fact: Fact) -> int | None:
    """The job that a person's fact is about, if it is about one."""
    return fact.id if isinstance(fact, JobSubmitted | JobCancelled | JobHeld | JobReleased) else None


def told_fact(envelope: Envelope, fact: Fact, job: Job | None) -> Doing:
    """A fact that a person caused, as an entry of the log; `job` is what it is about, where that is still known."""
    return {
        "at": envelope.wall,
        "by": envelope.by,
        "what": _told(fact, job),
        "outcome": "done",
        "why": "",
        "job": job_of(fact),
        "queue": job.queue if job is not None else None,
    }


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
    """Whether an entry is for them: their own, about a job or a queue of theirs, or anything for operators.

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
    return queue is None or (entry["queue"] is not None and queue in (entry["queue"], *ancestors(entry["queue"])))


def newest(entries: Iterable[Doing], limit: int) -> list[Doing]:
    """The newest entries, the oldest of them first."""
    return sorted(entries, key=lambda entry: entry["at"])[-limit:]


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
            return f"submitted job {number} to {asked.queue}: {count}"
        case JobCancelled(id=number, indices=indices):
            whose = f" of {job.user}" if job is not None and job.user else ""
            return f"cancelled {'' if indices is None else f'{len(indices)} tasks of '}job {number}{whose}"
        case JobHeld(id=number):
            return f"held job {number}"
        case JobReleased(id=number):
            return f"released job {number}"
        case NodeDrained(node=node):
            return f"drained node {node}"
        case NodeResumed(node=node):
            return f"resumed node {node}"
        case Configured(queues=queues):
            return f"changed the configuration: {len(queues)} queues"
        case TasksRevoked(job=jobs):
            return f"stopped {len(jobs)} tasks that ran"
        case _:
            return type(fact).__name__
