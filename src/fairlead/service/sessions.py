"""Programs that call Python functions here: each has a session, with a folder for its calls and their results.

A call is a task like any other; what is told here is what a program that waits for it must know, in the order in which it
happened. A session that was not heard of for a while is closed: what it still asks for is cancelled, and its folder removed.
Should the scheduler be restarted, the events are made anew from the state, under another epoch; the program knows what it has
seen already.

Results are written by workers, which run as the person whose program it is: whatever is in their folder may be a trap, and is
opened as such. Nothing here reads what was pickled.
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

from fairlead.data_folder import NotPlain, open_plain, remove_folder, write_private
from fairlead.engines.calls import CODE, RESULTS, SETUP, result_name
from fairlead.engines.local.fetching import MOST_OF_ALL, MOST_OF_ONE
from fairlead.model.api_types import Event, TaskInfo
from fairlead.people.accounts import Person
from fairlead.scheduler.admission import Refused, Unknown, cancel
from fairlead.scheduler.facts import (
    Fact,
    JobCancelled,
    JobsForgotten,
    JobSubmitted,
    NodeLost,
    TasksFinished,
    TasksStarted,
)
from fairlead.scheduler.reports.listings import describe_task
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import CANCELLED, FAILED, RUNNING, SUCCEEDED
from fairlead.scheduler.tables import NONE
from fairlead.service.wakeups import Wakeups

log = logging.getLogger("fairlead")

MOST_SPARE = 2**30
"""Bytes of payloads that one program may have put and not called: its code, where that goes along, is of these."""
MOST_CALLED_OF_ONE, MOST_CALLED_OF_ALL = 16 * 2**30, 64 * 2**30
"""Bytes of payloads of calls of which the program has not seen all, of one person and of all, where many people share."""
LEASE = 120.0
"""Seconds after which a program that was not heard of is taken for gone."""
MOST_SESSIONS = 1000
OVER = (SUCCEEDED, FAILED, CANCELLED)


class Session:
    """The events of one program, numbered from 0; those that it has seen are dropped. It is of one uid.

    code : the payload that is its program's code; empty for none.
    spare : by file, the bytes of payloads that were put and belong to no call yet; the code never does.
    called : by file, the bytes of those that do; `called_bytes` is their sum.
    """

    def __init__(self, uid: int, code: str) -> None:
        self.uid, self.code = uid, code
        self.first = 0
        self.events: list[Event] = []
        self.heard_at = time.monotonic()
        self.going = 0
        self.left: dict[int, int] = {}  # by job: tasks whose end the program has not seen
        self.ended: dict[int, set[int]] = {}  # by job: tasks whose end was told
        self.payloads: dict[int, str] = {}
        self.spare: dict[str, int] = {}
        self.called: dict[str, int] = {}
        self.called_bytes = 0


class Sessions:
    """All sessions. `recorded` and `recover` are called in the scheduler's thread, the rest in others.

    Parameters
    ----------
    folder : Path
        Where their folders are.
    wakeups : Wakeups
    shared : bool
        Whether they are of many people, who have so many bytes each and in all.
    """

    def __init__(self, folder: Path, wakeups: Wakeups, shared: bool = False) -> None:
        self.folder, self.shared = folder, shared
        self.epoch = uuid.uuid4().hex
        self._wakeups = wakeups
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._session_of: dict[int, str] = {}

    def recover(self, state: State) -> None:
        """Make the sessions and their events from the state, after a restart."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for path in list(self.folder.iterdir()):
            found = _found(path)
            if found is not None:
                session = self._sessions[path.name] = Session(*found)
                session.spare = {file.name: file.lstat().st_size for file in path.iterdir() if file.is_file()}
                session.spare.pop(SETUP, None)
            else:  # it was being made, or removed, as the last scheduler ended
                _remove(path)
        for number, job in state.index.specs.items():
            call = job.work.call
            if call is not None and call.session in self._sessions:
                self._begin(number, call.session, job.tasks, call.payload)
                self._tell(state, number, range(job.tasks), running=True)
                self._tell(state, number, range(job.tasks))

    def recorded(self, state: State, facts: Sequence[Fact]) -> None:
        """Note what happened to calls."""
        for fact in facts:
            if isinstance(fact, JobSubmitted) and fact.job.work.call is not None:
                self._begin(fact.id, fact.job.work.call.session, fact.job.tasks, fact.job.work.call.payload)
            if not self._session_of:
                continue
            match fact:
                case TasksStarted() | TasksFinished():
                    mine = [
                        (j, i)
                        for j, i in zip(fact.job.tolist(), fact.index.tolist(), strict=True)
                        if j in self._session_of
                    ]
                    for job, index in mine:
                        self._tell(state, job, [index], running=isinstance(fact, TasksStarted))
                case JobCancelled(id=job, indices=indices) if job in self._session_of:
                    self._tell(state, job, range(state.index.specs[job].tasks) if indices is None else indices)
                case NodeLost():
                    for job in list(self._session_of):
                        self._tell(state, job, range(state.index.specs[job].tasks))
                case JobsForgotten(ids=ids):
                    for job in ids:
                        self._session_of.pop(job, None)

    def create(self, setup: dict[str, Any], person: Person, most: int | None = None) -> str:
        """Open a session of a person, who may read its folder and writes the results in it; returns its id.

        Refused where they have `most` already, or all have as many as there may be.
        """
        name = uuid.uuid4().hex
        with self._lock:
            if len(self._sessions) >= MOST_SESSIONS:
                raise Refused(f"there are {MOST_SESSIONS} programs already: wait until one ends")
            if most is not None and sum(each.uid == person.uid for each in self._sessions.values()) >= most:
                raise Refused(f"{most} programs of yours have Python calls already: wait until one ends")
            self._sessions[name] = Session(person.uid, _code_of(setup))
        folder = self.folder / name
        for each, mode in ((folder, 0o755), (folder / RESULTS, 0o700), (folder / CODE, 0o700)):
            each.mkdir()
            each.chmod(mode)  # whatever the umask is
            if each != folder and os.geteuid() != person.uid:
                os.chown(each, person.uid, person.gid)
        fresh = folder / f"{SETUP}.setup"
        write_private(fresh, json.dumps(setup))
        fresh.chmod(0o644)  # its workers may read it then, who alone have a way to the folder
        fresh.rename(folder / SETUP)
        return name

    @contextmanager
    def putting(self, name: str, person: Person, payload: str) -> Iterator[Callable[[bytes], None]]:
        """Put a payload into the folder of a session, which must be this person's; it is theirs, as what it calls is.

        Yields what writes a piece of it; it has its name when all is written. Raises Refused where the session would have more
        than `MOST_SPARE` bytes of payloads that belong to no call, or there would be too many of the person's, or in all.
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
                raise Unknown(f"there is no session {name}: it was closed")
            if sum(session.spare.values()) + size > MOST_SPARE:
                raise Refused(
                    f"payloads of this program that belong to no call would be more than {MOST_SPARE >> 20} MiB: call them"
                )
            if self.shared and session.uid != 0:
                self._check_room(session.uid, size)
            session.spare[file] = session.spare.get(file, 0) + size

    def _check_room(self, uid: int, size: int) -> None:
        """Refuse what would be too much of one person's, or in all; root is bounded by none."""
        there = [(each.uid, sum(each.spare.values())) for each in self._sessions.values() if each.spare]
        if sum(spare for of, spare in there if of == uid) + size > MOST_OF_ONE:
            raise Refused(
                f"the code of your programs, and what they put and do not call, would be more than {MOST_OF_ONE >> 20} MiB: end "
                "some, or have less go along"
            )
        if sum(spare for _, spare in there) + size > MOST_OF_ALL:
            raise Refused(
                f"the code of all programs, and what they put and do not call, would be more than {MOST_OF_ALL >> 20} MiB: wait "
                "until some end, or have less go along"
            )

        called = [(each.uid, each.called_bytes) for each in self._sessions.values()]
        if sum(size for of, size in called if of == uid) + size > MOST_CALLED_OF_ONE:
            raise Refused(
                f"the payloads of calls of yours would be more than {MOST_CALLED_OF_ONE >> 20} MiB: wait until some are over"
            )
        if sum(size for _, size in called) + size > MOST_CALLED_OF_ALL:
            raise Refused(
                f"the payloads of everybody's calls would be more than {MOST_CALLED_OF_ALL >> 20} MiB: wait until some are over"
            )

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
        """Note that the program was heard of, which must be of this uid; returns its folder."""
        with self._lock:
            session = self._sessions.get(name)
            if session is None or session.uid != uid:
                raise Unknown(f"there is no session {name}: it was closed, or was not heard of for {LEASE:g} seconds")
            session.heard_at = time.monotonic()
        return self.folder / name

    def events(self, name: str, uid: int, epoch: str, after: int, most: int) -> tuple[int, list[Event]]:
        """The number of the next event, and the events from `after` on; those before were seen, and their results go."""
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
            old = [f"{RESULTS}/{result_name(e['job'], e['index'])}" for e in seen if e["status"] != "running"]
            for event in seen:
                if event["status"] != "running" and event["job"] in session.left:
                    session.left[event["job"]] -= 1
                    if session.left[event["job"]] <= 0:
                        del session.left[event["job"]], session.ended[event["job"]]
                        old.append(session.payloads.pop(event["job"]))
                        session.called_bytes -= session.called.pop(old[-1], 0)
        for file in old:
            with suppress(OSError):  # there is none, or what is there is no file
                (self.folder / name / file).unlink()
        return following, events

    def calls(self, name: str) -> list[int]:
        """The jobs of a session of which its program has not seen all."""
        with self._lock:
            session = self._sessions.get(name)
            return list(session.payloads) if session is not None else []

    def going(self, name: str) -> int:
        """How many of its calls have not ended."""
        with self._lock:
            session = self._sessions.get(name)
            return session.going if session is not None else 0

    def close(self, name: str) -> None:
        """Forget a session, and remove its folder; its workers see that, and end."""
        with self._lock:
            self._sessions.pop(name, None)
        self._wakeups.wake([("session", name)])
        _remove(self.folder / name)

    def silent(self) -> list[str]:
        """The sessions whose program was not heard of for too long."""
        now = time.monotonic()
        with self._lock:
            return [name for name, session in self._sessions.items() if now - session.heard_at > LEASE]

    def _begin(self, job: int, name: str, tasks: int, payload: str) -> None:
        with self._lock:
            session = self._sessions.get(name)
            if session is not None:
                self._session_of[job] = name
                session.going += tasks
                session.left[job], session.payloads[job], session.ended[job] = tasks, payload, set()
                if payload != session.code and payload in session.spare:
                    size = session.called[payload] = session.spare.pop(payload)
                    session.called_bytes += size

    def _tell(self, state: State, job: int, indices: Iterable[int], running: bool = False) -> None:
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
                if status == RUNNING if running else status in OVER and index not in ended:
                    if status in OVER:
                        ended.add(index)
                        session.going -= 1
                    session.events.append(_event(job, describe_task(state, begin, [], index)))
        self._wakeups.wake([("session", name)])


def _found(folder: Path) -> tuple[int, str] | None:
    """The uid of the person of a session's folder, and its code; None where it is not, or not any more, that of a session."""
    try:
        return (folder / RESULTS).lstat().st_uid, _code_of(json.loads((folder / SETUP).read_text()))
    except (OSError, ValueError):
        return None


def _code_of(setup: dict[str, Any]) -> str:
    return str(setup.get("code") or "")


def _remove(folder: Path) -> None:
    try:
        remove_folder(folder)
    except FileNotFoundError:  # it was removed already
        pass
    except OSError as error:
        log.warning("the folder of a session cannot be removed: %s: remove %s", error, folder)


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
    """The jobs of a session that are still known."""
    return [
        number
        for number, job in state.index.specs.items()
        if job.work.call is not None and job.work.call.session == session
    ]


def unfinished_calls(state: State, session: str, now: float) -> list[JobCancelled]:
    """Cancel what a session still asks for."""
    return [fact for number in calls_of(state, session) if (fact := cancel(state, number, None, now))]


def open_result(folder: Path, uid: int, job: int, index: int) -> BinaryIO | None:
    """Open what a call of a person's program came to; None where its worker wrote nothing that could be that."""
    try:
        return open_plain(folder / RESULTS / result_name(job, index), uid)
    except (FileNotFoundError, NotPlain):
        return None


def with_results(events: Iterable[Event], folder: Path, uid: int, largest: int, most: int) -> list[Event]:
    """The events with the size of their results, and the small ones' themselves as long as they are `most` bytes together."""
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
