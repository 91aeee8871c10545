"""Sessions of programs that call Python functions: each has a folder for its calls and their results.

A call is a task. A session reports to its program what happened to its calls, in order. A session whose program is silent for a
while is closed: its pending calls are cancelled, and its folder is removed. After a restart of the scheduler, the events are made
again from the state, with a new epoch; the program knows what it has seen.

Workers, which run as the program's owner, write the results. Files in their folder may be traps, and are opened as such. Nothing
here unpickles anything.
"""

import base64
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from fairlead.calls.payloads import CODE, RESULTS, SETUP, result_name
from fairlead.data_folder import NotPlain, open_plain, remove_folder, write_private
from fairlead.engines.local.fetching import MOST_OF_ALL, MOST_OF_ONE
from fairlead.model.api_types import Event, TaskInfo
from fairlead.model.specs import Call, Work
from fairlead.people.accounts import Person
from fairlead.scheduler.admission import Refused, Unknown, cancel
from fairlead.scheduler.facts import Fact, JobCancelled, JobsForgotten, JobSubmitted, NodeLost, TasksFinished, TasksStarted
from fairlead.scheduler.reports.listings import describe_task
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import CANCELLED, FAILED, RUNNING, SUCCEEDED, WAITING
from fairlead.scheduler.tables import NONE
from fairlead.service.wakeups import Wakeups

log = logging.getLogger("fairlead")

MOST_SPARE = 2**30
"""Bytes of payloads, including code, that one program may have put without calling them."""
MOST_CALLED_OF_ONE, MOST_CALLED_OF_ALL = 16 * 2**30, 64 * 2**30
"""Bytes of payloads of unfinished calls, of one person and of all, on a shared scheduler."""
LEASE_SECONDS = 120.0
"""After which a silent program counts as gone."""
KEEP_SECONDS = 86400.0
"""How long the files that came back from a job are kept after its end."""
MOST_SESSIONS, MOST_SENT, MOST_SENT_OF_ONE = 1000, 10_000, 1000
"""Programs with Python calls, and folders that were sent with jobs."""
OVER = (SUCCEEDED, FAILED, CANCELLED)
ENDED = ("succeeded", "failed", "cancelled")


class Session:
    """The events of one program, numbered from 0, without those it has seen. Owned by one uid.

    code : the payload with its program's code; empty for none.
    spare : bytes by file of payloads without a call; the code stays here.
    called : bytes by file of payloads with a call; `called_bytes` is their sum.
    lasts : None, or for a folder sent with jobs: seconds that it is kept after their end.
    """

    def __init__(self, uid: int, code: str) -> None:
        self.uid, self.code = uid, code
        self.first = 0
        self.events: list[Event] = []
        self.heard_at = time.monotonic()
        self.going = 0
        self.lasts: float | None = None
        self.left: dict[int, int] = {}  # by job: tasks whose end the program has not seen
        self.ended: dict[int, set[int]] = {}  # by job: tasks whose end was reported
        self.payloads: dict[int, str] = {}
        self.spare: dict[str, int] = {}
        self.called: dict[str, int] = {}
        self.called_bytes = 0

    def is_over(self, now: float) -> bool:
        """True if its program is gone, or nobody is to need the folder of its job."""
        if self.lasts is None:
            return now - self.heard_at > LEASE_SECONDS
        return not self.going and now - self.heard_at > self.lasts


class Sessions:
    """All sessions. `recorded` and `recover` run in the scheduler's thread, the rest in others.

    Parameters
    ----------
    folder : Path
        Where their folders are.
    shared : bool
        True if they belong to many people, each with limits on bytes.
    """

    def __init__(self, folder: Path, wakeups: Wakeups, shared: bool = False) -> None:
        self.folder, self.shared = folder, shared
        self.epoch = uuid.uuid4().hex
        self._wakeups = wakeups
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._session_of: dict[int, str] = {}

    def recover(self, state: State) -> None:
        """Rebuild the sessions and their events from the state, after a restart."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for path in list(self.folder.iterdir()):
            found = _found(path)
            if found is not None:
                session = self._sessions[path.name] = Session(*found)
                session.spare = {file.name: file.lstat().st_size for file in path.iterdir() if file.is_file()}
                session.spare.pop(SETUP, None)
            else:  # it was being created or removed when the last scheduler ended
                _remove(path)
        for number, job in state.index.specs.items():
            call = job.work.call
            if call is not None and call.session in self._sessions:
                self._begin(number, job.tasks, call)
                self._tell(state, number, range(job.tasks), RUNNING)
                self._tell(state, number, range(job.tasks))

    def recorded(self, state: State, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, JobSubmitted) and fact.job.work.call is not None:
                self._begin(fact.id, fact.job.tasks, fact.job.work.call)
            if not self._session_of:
                continue
            match fact:
                case TasksStarted() | TasksFinished():
                    mine = [(j, i) for j, i in zip(fact.job.tolist(), fact.index.tolist(), strict=True) if j in self._session_of]
                    for job, index in mine:
                        self._tell(state, job, [index], RUNNING if isinstance(fact, TasksStarted) else WAITING)
                case JobCancelled(id=job, indices=indices) if job in self._session_of:
                    self._tell(state, job, range(state.index.specs[job].tasks) if indices is None else indices)
                case NodeLost():
                    for job in list(self._session_of):
                        self._tell(state, job, range(state.index.specs[job].tasks))
                case JobsForgotten(ids=ids):
                    for job in ids:
                        self._session_of.pop(job, None)

    def create(self, setup: dict[str, Any], person: Person, most: int | None = None) -> str:
        """Open a session for a person, who may read its folder and write results in it; return its id.

        Raises Refused if they have `most` already, or if there are too many in total.
        """
        name = uuid.uuid4().hex
        with self._lock:
            programs = [each for each in self._sessions.values() if each.lasts is None]
            if len(programs) >= MOST_SESSIONS or len(self._sessions) >= MOST_SENT:
                raise Refused(f"{MOST_SESSIONS} programs are connected already: wait until one ends")
            if most is not None and sum(each.uid == person.uid for each in programs) >= most:
                raise Refused(f"you have {most} programs with Python calls already: wait until one ends")
            if most is not None and sum(each.uid == person.uid for each in self._sessions.values()) >= MOST_SENT_OF_ONE:
                raise Refused(f"you have {MOST_SENT_OF_ONE} folders here: wait until jobs that have them end, or cancel some")
            self._sessions[name] = Session(person.uid, _code_of(setup))
        folder = self.folder / name
        for each, mode in ((folder, 0o755), (folder / RESULTS, 0o700), (folder / CODE, 0o700)):
            each.mkdir()
            each.chmod(mode)  # regardless of the umask
            if each != folder and os.geteuid() != person.uid:
                os.chown(each, person.uid, person.gid)
        fresh = folder / f"{SETUP}.setup"
        write_private(fresh, json.dumps(setup))
        fresh.chmod(0o644)  # now readable for its workers, the only ones who can reach the folder
        fresh.rename(folder / SETUP)
        return name

    @contextmanager
    def putting(self, name: str, person: Person, payload: str) -> Iterator[Callable[[bytes], None]]:
        """Put a payload into the folder of a session of this person, who will own it.

        Yields a function that writes a piece. The payload gets its name when complete. Raises Refused beyond `MOST_SPARE` bytes
        without a call in this session, or beyond the limits of this person or of all.
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
            self._named(name, fresh, payload)
        finally:
            path.unlink(missing_ok=True)
            self._drop_spare(name, fresh)

    def _grow(self, name: str, file: str, size: int) -> None:
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                raise Unknown(f"no session {name}: it was closed")
            if sum(session.spare.values()) + size > MOST_SPARE:
                raise Refused(f"payloads of this program without a call would exceed {MOST_SPARE >> 20} MiB: call them")
            if self.shared and session.uid != 0:
                self._check_room(session.uid, size)
            session.spare[file] = session.spare.get(file, 0) + size

    def _check_room(self, uid: int, size: int) -> None:
        """Raise Refused beyond the limits of one person or of all; root has none."""
        there = [(each.uid, sum(each.spare.values())) for each in self._sessions.values() if each.spare]
        if sum(spare for of, spare in there if of == uid) + size > MOST_OF_ONE:
            raise Refused(
                f"the code of your programs, and their payloads without a call, would exceed {MOST_OF_ONE >> 20} MiB: end "
                "some, or send less"
            )
        if sum(spare for _, spare in there) + size > MOST_OF_ALL:
            raise Refused(
                f"the code of all programs, and their payloads without a call, would exceed {MOST_OF_ALL >> 20} MiB: wait "
                "until some end, or send less"
            )

        called = [(each.uid, each.called_bytes) for each in self._sessions.values()]
        if sum(size for of, size in called if of == uid) + size > MOST_CALLED_OF_ONE:
            raise Refused(f"the payloads of your calls would exceed {MOST_CALLED_OF_ONE >> 20} MiB: wait until some calls end")
        if sum(size for _, size in called) + size > MOST_CALLED_OF_ALL:
            raise Refused(f"the payloads of all calls would exceed {MOST_CALLED_OF_ALL >> 20} MiB: wait until some calls end")

    def _named(self, name: str, file: str, payload: str) -> None:
        with self._lock:
            session = self._sessions.get(name)
            if session is not None:
                session.spare[payload] = session.spare.pop(file, 0)

    def _drop_spare(self, name: str, file: str) -> None:
        with self._lock:
            session = self._sessions.get(name)
            if session is not None:
                session.spare.pop(file, None)

    def touch(self, name: str, uid: int) -> Path:
        """Note that the program of this uid is alive; return its folder. Raises Unknown."""
        with self._lock:
            session = self._sessions.get(name)
            if session is None or session.uid != uid:
                raise Unknown(f"no session {name}: it was closed, or its program was silent for {LEASE_SECONDS:g} seconds")
            session.heard_at = time.monotonic()
        return self.folder / name

    def events(self, name: str, uid: int, epoch: str, after: int, most: int) -> tuple[int, list[Event]]:
        """Return the number of the next event, and the events from `after` on; drop earlier ones and their results."""
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
            old = [f"{RESULTS}/{result_name(e['job'], e['index'])}" for e in seen if e["status"] in ENDED]
            for event in seen:
                if event["status"] in ENDED and event["job"] in session.left:
                    session.left[event["job"]] -= 1
                    if session.left[event["job"]] <= 0:
                        del session.left[event["job"]], session.ended[event["job"]]
                        old.append(session.payloads.pop(event["job"]))
                        session.called_bytes -= session.called.pop(old[-1], 0)
        for file in old:
            with suppress(OSError):  # it does not exist, or is not a file
                (self.folder / name / file).unlink()
        return following, events

    def calls(self, name: str) -> list[int]:
        """Return the jobs of a session whose end its program has not seen."""
        with self._lock:
            session = self._sessions.get(name)
            return list(session.payloads) if session is not None else []

    def going(self, name: str) -> int:
        """Return the number of its calls that have not ended."""
        with self._lock:
            session = self._sessions.get(name)
            return session.going if session is not None else 0

    def close(self, name: str) -> None:
        """Forget a session and remove its folder, which ends its workers."""
        with self._lock:
            self._sessions.pop(name, None)
        self._wakeups.wake([("session", name)])
        _remove(self.folder / name)

    def silent(self) -> list[str]:
        """Return the sessions whose program has been silent for too long."""
        now = time.monotonic()
        with self._lock:
            return [name for name, session in self._sessions.items() if session.is_over(now)]

    def _begin(self, job: int, tasks: int, call: Call) -> None:
        name, payload = call.session, call.payload
        with self._lock:
            session = self._sessions.get(name)
            if session is not None:
                self._session_of[job] = name
                session.going += tasks
                if call.fetch is not None:
                    session.lasts = max(session.lasts or 0.0, KEEP_SECONDS if call.fetch else 0.0)
                session.left[job], session.payloads[job], session.ended[job] = tasks, payload, set()
                if payload != session.code and payload in session.spare:
                    size = session.called[payload] = session.spare.pop(payload)
                    session.called_bytes += size

    def _tell(self, state: State, job: int, indices: Iterable[int], status_too: int = NONE) -> None:
        """Report the ends of tasks, and those with a certain other status."""
        name = self._session_of[job]
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
                        ended.add(index)
                        session.going -= 1
                        session.heard_at = time.monotonic()
                    if session.lasts is None:  # nobody reads what happens to a job with a sent folder
                        session.events.append(_event(job, describe_task(state, begin, Work(), index)))
        self._wakeups.wake([("session", name)])


def _found(folder: Path) -> tuple[int, str] | None:
    """Return the owner's uid and the code of a session's folder; None if it is not one, or incomplete."""
    try:
        return (folder / RESULTS).lstat().st_uid, _code_of(json.loads((folder / SETUP).read_text()))
    except (OSError, ValueError):
        return None


def _code_of(setup: dict[str, Any]) -> str:
    return str(setup.get("code") or "")


def _remove(folder: Path) -> None:
    try:
        remove_folder(folder)
    except FileNotFoundError:  # already removed
        pass
    except OSError as error:
        log.warning("cannot remove the folder of a session: %s: remove %s", error, folder)


def _event(job: int, task: TaskInfo) -> Event:
    return {
        "job": job,
        "index": task["index"],
        "status": cast(Any, task["status"]),
        "exit": task["exit"],
        "reason": task["reason"],
        "size": None,
        "result": None,
    }


def calls_of(state: State, session: str) -> list[int]:
    return [number for number, job in state.index.specs.items() if job.work.call is not None and job.work.call.session == session]


def unfinished_calls(state: State, session: str, now: float) -> list[JobCancelled]:
    """Return facts that cancel the unfinished calls of a session."""
    return [fact for number in calls_of(state, session) if (fact := cancel(state, number, None, now))]


def open_result(folder: Path, uid: int, job: int, index: int) -> BinaryIO | None:
    """Open the result of a call; None if its worker wrote none, or something that cannot be one."""
    try:
        return open_plain(folder / RESULTS / result_name(job, index), uid)
    except (FileNotFoundError, NotPlain):
        return None


def with_results(events: Iterable[Event], folder: Path, uid: int, largest: int, most: int) -> list[Event]:
    """Add the size of their results to events, and the results up to `largest` bytes each and `most` in total."""
    found: list[Event] = []
    for event in events:
        size, result = None, None
        if event["status"] in ("succeeded", "failed"):
            file = open_result(folder, uid, event["job"], event["index"])
            if file is not None:
                with file:
                    size = os.fstat(file.fileno()).st_size
                    if size <= min(largest, most):
                        most -= size
                        result = base64.b64encode(file.read(size)).decode()
        found.append({**event, "size": size, "result": result})
    return found
