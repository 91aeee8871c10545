"""Sessions of programs that call Python functions: each has a folder for its workers.

A lease is a task. A session reports to its program what happened to its leases, in order. A session whose program is silent for a
while is closed: its leases are cancelled, and its folder is removed. After a restart of the scheduler, the events are made
again from the state, with a new epoch; the program knows what it has seen.

The files that come back from a sent folder are written by its person. They may be traps, and are opened as such. Nothing here
unpickles anything.
"""

import hashlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np

from fairlead.calls.payloads import RESULTS, SETUP, result_name
from fairlead.data_folder import NotPlain, drop_folder, open_plain, write_private
from fairlead.engines.local.fetching import MOST_OF_ALL, MOST_OF_ONE, make_session
from fairlead.model.api_types import Event, TaskInfo
from fairlead.model.specs import Call, Work
from fairlead.outcomes import Outcome
from fairlead.people.accounts import Person
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.facts import Fact, JobCancelled, JobsForgotten, JobSubmitted, NodeLost, TasksFinished, TasksStarted
from fairlead.scheduler.reports.leases import due_leases
from fairlead.scheduler.reports.listings import describe_task, exit_status, reason_of
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import ENDED, OVER, RUNNING, STOPPING, WAITING
from fairlead.scheduler.tables import NONE
from fairlead.service.relays import Relays
from fairlead.service.wakeups import Wakeups

log = logging.getLogger("fairlead")

MOST_SPARE = 2**30
"""Bytes of files that one program may have put."""
LEASE_SECONDS = 120.0
"""After which a silent program counts as gone."""
ANSWER_SECONDS = 5.0
"""After which a program has not heard that a lease is due, or hears it again."""
KEEP_SECONDS, MOST_FETCHED = 86400.0, 16 * 2**30
"""How long the files that came back from a job are kept after its end, and bytes of those of one person on a shared scheduler."""
MOST_SESSIONS, MOST_SENT, MOST_SENT_OF_ONE = 1000, 10_000, 1000
"""Programs with Python calls, and folders that were sent with jobs."""


class Session:
    """The events of one program, numbered from 0, without those it has seen. Owned by one uid.

    secret : what its relays are known by; empty for a folder sent with jobs.
    counts : of the program's calls, as it reported: how many workers have, how many wait, and when; None before.
    spare : bytes by file that was put.
    ended : by job, the tasks whose end was reported.
    fetched : bytes by name of results with files that came back; `fetched_bytes` is their sum.
    lasts : None, or for a folder sent with jobs: seconds that it is kept after their end.
    """

    def __init__(self, uid: int, secret: str) -> None:
        self.uid, self.secret = uid, secret
        self.first = 0
        self.events: list[Event] = []
        self.heard_at = time.monotonic()
        self.going = 0
        self.lasts: float | None = None
        self.counts: tuple[int, int, float] | None = None
        self.ended: dict[int, set[int]] = {}
        self.spare: dict[str, int] = {}
        self.fetched: dict[str, int] = {}
        self.fetched_bytes = 0

    def is_over(self, now: float) -> bool:
        """True if its program is gone, or nobody is to need the folder of its job."""
        if self.lasts is None:
            return now - self.heard_at > LEASE_SECONDS
        return not self.going and now - self.heard_at > self.lasts


class Sessions:
    """All sessions. `recorded` and `recover` run in the scheduler's thread, the rest in others.

    folder : where their folders are
    shared : True if they belong to many people, each with limits on bytes
    """

    def __init__(self, folder: Path, wakeups: Wakeups, shared: bool = False) -> None:
        self.folder, self.shared = folder, shared
        self.epoch = uuid.uuid4().hex
        self._wakeups = wakeups
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._session_of: dict[int, tuple[str, int]] = {}  # and how many tasks the job has
        self._cancelled: dict[int, set[int]] = {}  # tasks by job, until it is forgotten
        self._due: dict[tuple[int, int], float] = {}  # when leases, as job and attempt, were reported as due
        self._of_secret: dict[str, str] = {}
        self.address = f"fairlead-{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]}"
        self.relays = Relays(lambda secret: self._of_secret.get(secret, ""), wakeups)

    def recover(self, state: State) -> None:
        """Rebuild the sessions and their events from the state, after a restart."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for path in list(self.folder.iterdir()):
            found = _found(path)
            if found is not None:
                session = self._open(path.name, *found)
                session.spare = {file.name: file.lstat().st_size for file in path.iterdir() if file.is_file()}
                session.spare.pop(SETUP, None)
            else:  # it was being created or removed when the last scheduler ended
                drop_folder(path, "the folder of a session", log.warning)
        for number, job in state.index.specs.items():
            call = job.work.call
            if call is not None and call.session in self._sessions:
                self._begin(number, job.tasks, call)
                first = int(state.jobs.first[state.job_row(number)])
                self._cancelled[number] = {*np.flatnonzero(state.tasks.status[first : first + job.tasks] == STOPPING).tolist()}
                self._tell(state, number, range(job.tasks), RUNNING)
                self._tell(state, number, range(job.tasks))

    def recorded(self, state: State, facts: Sequence[Fact]) -> None:
        """Report what happened. All facts are applied: a later one may have forgotten the job of an earlier one."""
        for fact in facts:
            for number, new in fact.numbered() if isinstance(fact, JobSubmitted) else ():
                if new.work.call is not None:
                    self._begin(number, new.tasks, new.work.call)
            if not self._session_of:
                continue
            match fact:
                case TasksStarted() | TasksFinished():
                    mine = [(j, i) for j, i in zip(fact.job.tolist(), fact.index.tolist(), strict=True) if j in self._session_of]
                    for job, index in mine:
                        self._tell(state, job, [index], RUNNING if isinstance(fact, TasksStarted) else WAITING)
                case JobCancelled(id=job, indices=indices) if job in self._session_of:
                    chosen = range(self._session_of[job][1]) if indices is None else indices
                    self._cancelled.setdefault(job, set()).update(chosen)
                    self._tell(state, job, chosen)
                case NodeLost():
                    for job, (_, tasks) in list(self._session_of.items()):
                        self._tell(state, job, range(tasks), WAITING)
                case JobsForgotten(ids=ids):
                    self._tell_forgotten([job for job in ids if job in self._session_of], facts)

    def report_due(self, state: State) -> list[int]:
        """Report the leases that are to end between two calls, as others are due.

        Return the jobs to cancel, as their program did not hear of it: such leases, and its requests that wait.
        """
        leases, now = self.leases(), time.monotonic()
        due, late = dict[tuple[int, int], float](), list[int]()
        for name in sorted(due_leases(state, leases, set(self._due))):
            due[name] = self._due.get(name, -inf)
            if now - due[name] > ANSWER_SECONDS:  # also again: the program may have stopped since
                if self._report(leases, name[0], "due") or name not in self._due:
                    due[name] = now
                else:
                    late.append(name[0])
        self._due = due
        silent = {leases[job] for job in late}
        rows = {job: state.index.find(job) for job, session in leases.items() if session in silent}
        late += [job for job, row in rows.items() if row != NONE and state.jobs.waiting[row]]
        for job in late:
            self._report(leases, job, "preempted")
        return late

    def _report(self, leases: dict[int, str], job: int, status: Literal["due", "preempted"]) -> bool:
        """Report what happens to a lease; return False if its program did not hear the last such report."""
        event: Event = {"job": job, "index": 0, "status": status, "exit": None, "reason": None}
        with self._lock:
            session = self._sessions.get(leases[job])
            if session is None or event in session.events:
                return False
            session.events.append(event)
        self._wakeups.wake([("session", leases[job])])
        return True

    def leases(self) -> dict[int, str]:
        """Return the session of each lease whose end its program has not seen, by job."""
        with self._lock:
            return {job: name for name, each in self._sessions.items() if each.lasts is None for job in each.ended}

    def create(self, setup: dict[str, Any], person: Person, most: int | None = None) -> str:
        """Open a session for a person, who may read its folder and write results in it; return its id.

        Raises Refused if they have `most` already, or if there are too many in total.
        """
        name = uuid.uuid4().hex
        with self._lock:
            programs = [each for each in self._sessions.values() if each.lasts is None]
            if len(programs) >= MOST_SESSIONS:
                raise Refused(f"{MOST_SESSIONS} programs are connected already: wait until one ends")
            if len(self._sessions) >= MOST_SENT:
                raise Refused(f"{MOST_SENT} programs and folders of jobs are here already: wait until some jobs end")
            if most is not None and sum(each.uid == person.uid for each in programs) >= most:
                raise Refused(f"you have {most} programs with Python calls already: wait until one ends")
            if most is not None and sum(each.uid == person.uid for each in self._sessions.values()) >= MOST_SENT_OF_ONE:
                raise Refused(f"you have {MOST_SENT_OF_ONE} folders here: wait until jobs that have them end, or cancel some")
            secret = str(setup.get("secret", ""))
            if (known := self._sessions.get(self._of_secret.get(secret, ""))) is not None and known.uid != person.uid:
                raise Refused("another person's program has this secret")
            self._open(name, person.uid, secret)
        folder, setup = self.folder / name, {**setup, "relay": self.address}
        make_session(folder, person.uid, person.gid)
        fresh = folder / f"{SETUP}.setup"
        write_private(fresh, json.dumps(setup))
        fresh.chmod(0o644)  # now readable for its workers, the only ones who can reach the folder
        fresh.rename(folder / SETUP)
        return name

    def _open(self, name: str, uid: int, secret: str) -> Session:
        session = self._sessions[name] = Session(uid, secret)
        if secret:
            self._of_secret[secret] = name
        return session

    @contextmanager
    def putting(self, name: str, person: Person, payload: str) -> Iterator[Callable[[bytes], None]]:
        """Put a payload into the folder of a session of this person, who will own it.

        Yields a function that writes a piece. The payload gets its name when complete. Raises Refused beyond `MOST_SPARE` bytes
        in this session, or beyond the limits of this person or of all.
        """
        fresh = f"{payload}.{uuid.uuid4().hex}"
        path = self.touch(name, person.uid) / fresh
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                if os.geteuid() != person.uid:
                    os.fchown(file.fileno(), person.uid, person.gid)

                def write(piece: bytes) -> None:
                    self._grow(name, fresh, len(piece))
                    file.write(piece)

                yield write
            path.rename(path.with_name(payload))
            self._settle(name, fresh, payload)
        finally:
            path.unlink(missing_ok=True)
            self._settle(name, fresh)

    def _grow(self, name: str, file: str, size: int) -> None:
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                raise Unknown(f"no session {name}: it was closed")
            if sum(session.spare.values()) + size > MOST_SPARE:
                raise Refused(f"the code of this program would exceed {MOST_SPARE >> 20} MiB: send less")
            if self.shared and session.uid != 0:
                self._check_room(session.uid, size)
            session.heard_at = time.monotonic()  # a long upload
            session.spare[file] = session.spare.get(file, 0) + size

    def _check_room(self, uid: int, size: int) -> None:
        """Raise Refused beyond the limits of one person or of all; root has none."""
        there = [(each.uid, sum(each.spare.values())) for each in self._sessions.values() if each.spare]
        if sum(spare for of, spare in there if of == uid) + size > MOST_OF_ONE:
            raise Refused(f"the code of your programs would exceed {MOST_OF_ONE >> 20} MiB: end some, or send less")
        if sum(spare for _, spare in there) + size > MOST_OF_ALL:
            raise Refused(f"the code of all programs would exceed {MOST_OF_ALL >> 20} MiB: wait until some end, or send less")

    def _settle(self, name: str, file: str, payload: str = "") -> None:
        """Count the bytes of a file that was being put as a payload's, or if that failed no more."""
        with self._lock:
            session = self._sessions.get(name)
            size = session.spare.pop(file, None) if session is not None else None
            if session is not None and payload:
                session.spare[payload] = size or 0

    def touch(self, name: str, uid: int) -> Path:
        """Note that the program of this uid is alive; return its folder. Raises Unknown."""
        with self._lock:
            session = self._sessions.get(name)
            if session is None or session.uid != uid:
                raise Unknown(f"no session {name}: it was closed, or its program was silent for {LEASE_SECONDS:g} seconds")
            session.heard_at = time.monotonic()
        return self.folder / name

    def events(self, name: str, uid: int, epoch: str, after: int, most: int) -> tuple[int, list[Event]]:
        """Return the number of the next event, and the events from `after` on; drop earlier ones."""
        self.touch(name, uid)
        with self._lock:
            session = self._sessions[name]
            if epoch != self.epoch:
                after = session.first
            seen = session.events[: max(0, after - session.first)]
            session.events = session.events[len(seen) :]
            session.first += len(seen)
            events = session.events[:most]
            following = session.first + len(events)
            for event in seen:
                if event["status"] in ENDED:
                    session.ended.pop(event["job"], None)
        return following, events

    def calls(self, name: str) -> list[int]:
        """Return the jobs of a session whose end its program has not seen."""
        with self._lock:
            session = self._sessions.get(name)
            return list(session.ended) if session is not None else []

    def note_calls(self, name: str, sent: int, waiting: int) -> None:
        with self._lock:
            if (session := self._sessions.get(name)) is not None:
                session.counts = sent, waiting, time.monotonic()

    def about(self, state: State, job: int) -> str:
        """Describe the calls that a lease is for; empty for another job, or if its program has not reported any."""
        spec = state.index.specs.get(job)
        call = spec.work.call if spec is not None else None
        with self._lock:
            session = self._sessions.get(call.session) if call is not None and call.fetch is None else None
        if session is None or session.counts is None:
            return ""
        sent, waiting, at = session.counts
        ago = f"{time.monotonic() - at:.0f} s ago"
        had = f"{sent} call{'s' * (sent != 1)} at workers, and {waiting} waiting"
        return f"a worker for Python calls: {ago} its program had {had}"

    def close(self, name: str) -> None:
        """Forget a session and remove its folder, which ends its workers."""
        with self._lock:
            session = self._sessions.pop(name, None)
            if session is not None and self._of_secret.get(session.secret) == name:
                del self._of_secret[session.secret]
        self._wakeups.wake([("session", name)])
        self.relays.close_soon(name)
        drop_folder(self.folder / name, "the folder of a session", log.warning)

    def silent(self) -> list[str]:
        """Return the sessions whose program has been silent for too long."""
        now = time.monotonic()
        with self._lock:
            return [name for name, session in self._sessions.items() if session.is_over(now)]

    def _begin(self, job: int, tasks: int, call: Call) -> None:
        with self._lock:
            session = self._sessions.get(call.session)
            if session is not None:
                self._session_of[job] = call.session, tasks
                session.going += tasks
                if call.fetch is not None:
                    session.lasts = max(session.lasts or 0.0, KEEP_SECONDS if call.fetch else 0.0)
                session.ended[job] = set()

    def _tell(self, state: State, job: int, indices: Iterable[int], status_too: int = NONE) -> None:
        """Report the ends of tasks, and those with a certain other status."""
        name, _ = self._session_of[job]
        row = state.job_rows(np.array([job]))[0]
        if row == NONE:
            return
        begin = int(state.jobs.first[row])
        with self._lock:
            session = self._sessions.get(name)
            ended = session.ended.get(job) if session is not None else None
            if session is None or ended is None:
                return
            for index in indices:
                status = int(state.tasks.status[begin + index])
                if status == status_too or (status in OVER and index not in ended):
                    if status in OVER:
                        self._note_end(name, session, job, index)
                    if session.lasts is None:  # nobody reads what happens to a job with a sent folder
                        event = _event(job, describe_task(state, begin, Work(), index))
                        if status not in OVER and state.tasks.attempt[begin + index] > (status == RUNNING):
                            lost = state.tasks.outcome[begin + index] == Outcome.LOST
                            event["reason"] = "lost" if lost else "preempted"
                        session.events.append(event)
        self._wakeups.wake([("session", name)])

    def _tell_forgotten(self, jobs: Sequence[int], facts: Sequence[Fact]) -> None:
        """Report the ends of jobs that were forgotten in the step in which they ended: the facts are all that is left of them."""
        mine, ends, told = {*jobs}, dict[tuple[int, int], tuple[int, int]](), set[str]()
        for fact in facts if mine else ():
            if isinstance(fact, TasksFinished):
                columns = (column.tolist() for column in (fact.job, fact.index, fact.outcome, fact.code))
                ends |= {(job, index): (outcome, code) for job, index, outcome, code in zip(*columns, strict=True) if job in mine}
        lost = any(isinstance(fact, NodeLost) for fact in facts)
        with self._lock:
            for job in jobs:
                name, tasks = self._session_of.pop(job)
                cancelled, session = self._cancelled.pop(job, set()), self._sessions.get(name)
                ended = session.ended.get(job) if session is not None else None
                if session is None or ended is None:
                    continue
                for index in [each for each in range(tasks) if each not in ended]:
                    self._note_end(name, session, job, index)
                    if session.lasts is None:
                        end = ends.get((job, index), (Outcome.LOST, 0) if lost and index not in cancelled else None)
                        session.events.append(_event_of_end(job, index, end, index in cancelled))
                    told.add(name)
        self._wakeups.wake([("session", name) for name in sorted(told)])

    def _note_end(self, name: str, session: Session, job: int, index: int) -> None:
        session.ended[job].add(index)
        session.going -= 1
        session.heard_at = time.monotonic()
        if session.lasts is not None:
            self._came_back(name, session, result_name(job, index))

    def _came_back(self, name: str, session: Session, result: str) -> None:
        """Count the files that came back from a task, by space on the disk; beyond a person's bound, remove the oldest."""
        try:
            size = 512 * (self.folder / name / RESULTS / result).lstat().st_blocks
        except OSError:  # none did
            return
        session.fetched[result], session.fetched_bytes = size, session.fetched_bytes + size
        if not self.shared or session.uid == 0:
            return
        theirs = {of: each for of, each in self._sessions.items() if each.uid == session.uid and each.fetched}
        over = sum(each.fetched_bytes for each in theirs.values()) - MOST_FETCHED
        for of, each in theirs.items():
            while over > 0 and each.fetched:
                oldest = next(iter(each.fetched))
                size = each.fetched.pop(oldest)
                each.fetched_bytes, over = each.fetched_bytes - size, over - size
                with suppress(OSError):
                    (self.folder / of / RESULTS / oldest).unlink()


def _found(folder: Path) -> tuple[int, str] | None:
    """Return the owner's uid and the secret of a session's folder; None if it is not one, or incomplete."""
    try:
        return (folder / RESULTS).lstat().st_uid, str(json.loads((folder / SETUP).read_text()).get("secret", ""))
    except (OSError, ValueError):
        return None


def _event(job: int, task: TaskInfo) -> Event:
    return cast(Event, {"job": job} | {key: value for key, value in task.items() if key in Event.__annotations__})


def _event_of_end(job: int, index: int, end: tuple[int, int] | None, cancelled: bool) -> Event:
    """Return the event of a task that is over, by the outcome and code of its last attempt; None if it had none."""
    if end is None:
        return {"job": job, "index": index, "status": "cancelled", "exit": None, "reason": None}
    outcome, code = end
    well = outcome == Outcome.UNUSED or (outcome == Outcome.EXITED and code == 0)
    status: Literal["succeeded", "failed", "cancelled"] = "succeeded" if well else "cancelled" if cancelled else "failed"
    how = {"exit": exit_status(outcome, code), "reason": reason_of(Outcome(outcome), code)}
    return cast(Event, {"job": job, "index": index, "status": status, **how})


def open_result(folder: Path, uid: int, job: int, index: int) -> BinaryIO | None:
    """Open the result of a call; None if its worker wrote none, or something that cannot be one."""
    try:
        return open_plain(folder / RESULTS / result_name(job, index), uid)
    except (FileNotFoundError, NotPlain):
        return None
