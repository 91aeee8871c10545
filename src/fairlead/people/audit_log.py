"""The audit log that people read: facts that a person or a node caused, merged with the log of other actions and refusals.

What is not a fact (refusals, new tokens, stopping the scheduler) is in files of the scheduler's folder, as lines of JSON. Each
person has one file for actions and one for refusals, plus one older file of each: at most four times `MOST_FILE_BYTES` in all.
Nobody can push out another person's entries, or their own refusals by actions. Strangers share one file. Above `LINES_A_MINUTE`,
refusals are only counted.
"""

import heapq
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from fairlead.data_folder import open_private
from fairlead.journal import Envelope, named_node
from fairlead.model.api_types import AuditEntry, AuditPage
from fairlead.model.cards import named
from fairlead.model.quantity import format_quantities
from fairlead.model.specs import Job, holds_jobs_of, written
from fairlead.people.rules import Caller, Rules, rules_all, seen_queue, sees_names, without
from fairlead.scheduler import facts
from fairlead.scheduler.facts import Fact, JobSubmitted

log = logging.getLogger("fairlead")

MOST_FILE_BYTES = 2**20
LINES_A_MINUTE = 30
MOST_CHARACTERS = 500
"""Of each text in an entry."""
READ_BYTES = 16 * 2**10
"""Bytes read at once, from the end of a file."""
STRANGERS = "@strangers"
"""The file name for strangers; no account can have it."""
OF_JOBS = (JobSubmitted, facts.JobCancelled, facts.JobHeld, facts.JobReleased, facts.JobEdited)
MOST_PAGE_BYTES = 2**20
"""Approximate size of the entries of one page."""


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An action or a refused attempt.

    at : seconds since the epoch.
    by : a person's name, or what else identifies the caller.
    why : the reason of a refusal.
    """

    at: float
    by: str
    what: str
    outcome: Literal["done", "refused"]
    why: str = ""


class AuditRecords:
    """The folder of audit log files. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        folder.mkdir(mode=0o700, exist_ok=True)
        self._minutes: dict[str, tuple[int, int]] = {}  # by person: the current minute and their lines in it

    def done(self, by: str, what: str) -> None:
        self._write(by, by, what, "done")

    def refused(self, by: str, what: str, why: str, stranger: bool = False) -> None:
        """Log a refusal to a person or a stranger."""
        this, whose = int(time.time() // 60), STRANGERS if stranger else by
        with self._lock:
            if len(self._minutes) > 1000:
                self._minutes = {}
            minute, lines = self._minutes.get(by, (0, 0))
            left_out = max(0, lines - LINES_A_MINUTE) if minute != this else 0
            lines = 1 if minute != this else lines + 1
            self._minutes[by] = this, lines
        if left_out:
            self._write(whose, by, f"{left_out} more requests", "refused", "too many to log each")
        if lines <= LINES_A_MINUTE:
            self._write(whose, by, what, "refused", why)

    def newest_first(self, by: str | None = None, since: float = 0.0, before: float | None = None) -> Iterator[AuditRecord]:
        """Iterate over entries with ``since <= at < before``, newest first, optionally of one person. Reads lazily."""
        theirs = (f"{by}.done", f"{by}.refused", f"{STRANGERS}.refused")
        there = self._folder.iterdir() if self._folder.is_dir() else ()  # else removed by somebody
        names = sorted({path.name.removesuffix(".older") for path in there})
        names = [name for name in names if by is None or name in theirs]
        for record in heapq.merge(*map(self._records_in, names), key=lambda record: -record.at):
            if record.at < since:
                return
            if (before is None or record.at < before) and by in (None, record.by):
                yield record

    def _records_in(self, name: str) -> Iterator[AuditRecord]:
        for path in (self._folder / name, self._folder / f"{name}.older"):
            for line in _lines_from_the_end(path):
                try:
                    yield msgspec.json.decode(line, type=AuditRecord)
                except msgspec.DecodeError:  # truncated by a crash
                    continue

    def _write(self, whose: str, by: str, what: str, outcome: Literal["done", "refused"], why: str = "") -> None:
        by, what, why = (text[:MOST_CHARACTERS] for text in (by, what, why))
        line = msgspec.json.encode(AuditRecord(time.time(), by, what, outcome, why)) + b"\n"
        path = self._folder / f"{whose}.{outcome}"
        with self._lock:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                with open_private(path) as file:
                    file.write(line)
                    full = file.tell() > MOST_FILE_BYTES
                if full:
                    path.replace(self._folder / f"{path.name}.older")
            except OSError as error:  # a full disk must not fail the request
                log.warning("%s: cannot be written: %s", path, error.strerror)


def _lines_from_the_end(path: Path) -> Iterator[bytes]:
    """Iterate over a file's lines, last first; none if it does not exist. Reopens it per piece: there may be many files."""
    try:
        end, rest = path.stat().st_size, b""
        while end > 0:
            begin = max(0, end - READ_BYTES)
            with path.open("rb") as file:
                file.seek(begin)
                rest, *lines = (file.read(end - begin) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line)
            end = begin
        yield from [rest] if rest else []
    except FileNotFoundError:
        return


def job_of(fact: Fact) -> int | None:
    """Return the job that a person's fact is about; None if it is about no job."""
    return fact.id if isinstance(fact, OF_JOBS) else None


def fact_entry(envelope: Envelope, fact: Fact, job: Job | None) -> AuditEntry:
    """Turn a fact that a person or a node caused into a log entry; `job` is its subject, if still known."""
    return {
        "at": envelope.wall, "by": envelope.by, "what": _told(fact, job, envelope.by), "outcome": "done", "why": "",
        "job": job_of(fact), "queue": holds_jobs_of(job.queue) if job is not None else None,
    }  # fmt: skip


def visible_fact(rules: Rules, caller: Caller, envelope: Envelope, fact: Fact, job: Job | None) -> AuditEntry:
    """Like `fact_entry`, but without what the caller may not see, as in job listings.

    The queue of a forgotten job is unknown. If any queue is private, the job may have been there, so its author is hidden.
    """
    told = fact_entry(envelope, fact, job)
    if told["job"] is None or envelope.by == caller.person.name:
        return told
    if job is None:
        knows = rules_all(rules, caller) or not any(said.private for said in rules.queues.values())
        return told if knows else {**told, "by": ""}
    if sees_names(rules, caller, job):
        return told
    seen = replace(job, user="", queue=written(seen_queue(rules, caller, job.queue)))
    told = fact_entry(envelope, replace(fact, job=seen) if isinstance(fact, JobSubmitted) else fact, seen)
    return {**told, "by": "" if envelope.by == job.user else envelope.by}


def visible_record(caller: Caller, record: AuditRecord, hidden: Mapping[str, str]) -> AuditRecord:
    """Hide other people's leaves in private queues, and the person who acted on one."""
    if record.by == caller.person.name:
        return record
    what, why = without(record.what, hidden), without(record.why, hidden)
    return record if (what, why) == (record.what, record.why) else replace(record, by="", what=what, why=why)


def record_entry(record: AuditRecord) -> AuditEntry:
    return {**asdict(record), "job": None, "queue": None}  # type: ignore[typeddict-item]


class Position(NamedTuple):
    """The position of a page: continue with facts of a lower number and actions of an earlier time."""

    fact: int | None = None
    record: float | None = None

    @classmethod
    def read(cls, text: str) -> "Position":
        fact, _, record = text.partition("-")
        return cls(int(fact) if fact else None, float(record) if record else None)

    def write(self) -> str:
        return f"{'' if self.fact is None else self.fact}-{'' if self.record is None else repr(self.record)}"


class Page:
    """A page of the log, filled from the newest entry back until it has `most` entries or `MOST_PAGE_BYTES`.

    before : where the next page continues
    """

    def __init__(
        self, allows: Callable[[AuditEntry, Job | None], bool], records: Iterator[AuditRecord], before: Position, most: int
    ) -> None:
        self._allows, self._most, self._size = allows, most, 0
        self._records = records
        self._record = next(records, None)
        self._found: list[AuditEntry] = []
        self.before = before

    @property
    def is_full(self) -> bool:
        return len(self._found) >= self._most or self._size >= MOST_PAGE_BYTES

    def add_facts(self, told: Iterable[tuple[int, AuditEntry, Job | None]]) -> None:
        """Add facts by number, newest first, each preceded by the actions since then."""
        for number, entry, job in told:
            self.add_records(entry["at"])
            if self.is_full:
                return
            self.before = self.before._replace(fact=number)
            self._take(entry, job)

    def add_records(self, since: float = -inf) -> bool:
        """Add actions since a time; return True if no earlier ones are left."""
        while self._record is not None and self._record.at > since and not self.is_full:
            self.before = self.before._replace(record=self._record.at)
            self._take(record_entry(self._record), None)
            self._record = next(self._records, None)
        return self._record is None

    def _take(self, entry: AuditEntry, job: Job | None) -> None:
        if self._allows(entry, job):
            self._found.append(entry)
            self._size += 100 + len(entry["what"]) + len(entry["why"]) + len(entry["queue"] or "")

    def told(self, is_last: bool) -> AuditPage:
        return {"log": self._found[::-1], "next": None if is_last else self.before.write()}


def specs_in(some: Iterable[Fact], known: Mapping[int, Job]) -> dict[int, Job]:
    """Return the jobs that facts are about: as submitted among these facts, otherwise as known."""
    found = {}
    for fact in some:
        number = job_of(fact)
        if isinstance(fact, JobSubmitted):
            found[fact.id] = fact.job  # those submitted with it have the same owner
        elif number is not None and number in known:
            found.setdefault(number, known[number])
    return found


TOLD: dict[type[Fact], str] = {
    facts.JobHeld: "held job {0.id}",
    facts.JobReleased: "released job {0.id}",
    facts.FrameworkSubscribed: "subscribed framework {0.id}",
    facts.FrameworkDisconnected: "disconnected framework {0.id}",
    facts.FrameworkGone: "tore down framework {0.id}",
    facts.RolesSuppressed: "suppressed offers to framework {0.id}",
    facts.RolesRevived: "revived offers to framework {0.id}",
}
"""What a fact is called where only its subject varies."""


def _told(fact: Fact, job: Job | None, by: str) -> str:
    match fact:
        case JobSubmitted(id=number, job=asked, more=more):
            others = f", and {len(more):,} more jobs" if more else ""
            return f"submitted job {number} to {holds_jobs_of(asked.queue)}: {_counted(asked.tasks, 'task')}{others}"
        case facts.JobCancelled(id=number, indices=indices):
            whose = f" of {job.user}" if job is not None and job.user else ""
            some = "" if indices is None else f"{_counted(len(indices), 'task')} of "
            return f"cancelled {some}job {number}{whose}"
        case facts.JobEdited(id=number):
            changed = [name for name in facts.EDITABLE if getattr(fact, name) is not None]
            return f"edited job {number}: {', '.join(name.replace('_', ' ') for name in changed)}"
        case facts.NodeDrained(node=node, cards=cards) | facts.NodeResumed(node=node, cards=cards):
            verb = "drained" if isinstance(fact, facts.NodeDrained) else "resumed"
            return f"{verb} {f'{named(cards)} of ' if cards else ''}node {node}"
        case facts.NodeAdmitted(node=node, token=token):
            return f"joined as node {node}" if token else f"replaced the key of node {node}"
        case facts.NodeForgotten(node=node) | facts.NodeLeft(node=node):
            return "left" if by == named_node(node) else f"forgot node {node}"
        case facts.NodeTokenMade(node=node):
            return f"made a token for node {node}" if node else "made a token for a node"
        case facts.Configured(queues=queues):
            return f"changed the configuration: {len(queues)} queues"
        case facts.TasksRevoked(job=jobs):
            return f"stopped {len(jobs)} tasks that ran"
        case facts.OffersAccepted(framework=who, ids=ids, jobs=jobs):
            return f"accepted {_counted(len(ids), 'offer')} of framework {who}: {_counted(len(jobs), 'task')}"
        case facts.OffersDeclined(framework=who, ids=ids):
            return f"declined {_counted(len(ids), 'offer')} of framework {who}"
        case facts.OffersRescinded(ids=ids, why=why):
            return f"had {_counted(len(ids), 'offer')} rescinded: {why}"
        case facts.ResourcesReserved(amount=amount, mark=mark):
            return f"{'reserved' if mark else 'unreserved'} {format_quantities(amount)} of a node"
    return TOLD.get(type(fact), re.sub("(?<=.)([A-Z])", r" \1", type(fact).__name__).lower()).format(fact)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
