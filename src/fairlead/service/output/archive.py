"""Copies the output of finished tasks from their nodes to the storage that `output` in the configuration names.

Threads of the scheduler read from the node, as `fairlead logs` does, and write through fsspec, which finds credentials as it
always does. A file records what was copied, so a restart continues where the last run stopped. A node's output is removed only
after it was copied or given up. A task's output is URL/JOURNAL/JOB/INDEX.out and .err; an empty stream has no file.

The storage may be unavailable at any time, for any time. Then everything waits, and one thread retries. So a failure counts
against an output only if others succeeded since its last attempt, or if the disk has room without it: then its owner waits.

What a task wrote is bounded: no more is read than its job's `output_limit`, and a large hole ends it, since a task may set the
size of its file. Outputs wait in a line for each owner, so that nobody waits for another's.
"""

import heapq
import json
import logging
import math
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairlead.engines.contract import LiveEngine, Unreachable
from fairlead.engines.step import forgotten_by
from fairlead.model.api_types import OutputInfo
from fairlead.model.specs import Job, Work
from fairlead.people.bounds import DEFAULT
from fairlead.plain_text import plain
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.facts import Fact, TasksFinished
from fairlead.scheduler.reports.listings import find_task
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import OVER
from fairlead.service.output import storage as output_storage
from fairlead.service.output.storage import BoundedCalls

log = logging.getLogger("fairlead")

STREAMS = ("out", "err")
PIECE_BYTES = 2**20
MOST_HOLES, SMALLEST_HOLE = 2**30, 2**16
"""Bytes of holes in an output; it ends with one that exceeds them, since most storages would keep zeros. A smaller one counts
as `SMALLEST_HOLE`, since each takes some reads."""
THREADS, MOST_OF_ONE = 4, 3
"""Outputs copied at the same time, and those of one owner."""
MOST_WRITES, MOST_READS = 32, 3
"""Concurrent calls: writes, some of which may hang, and reads."""
START_SECONDS, READ_SECONDS = 5.0, 10.0
"""When a scheduler starts without its storage, and when a read fails."""
MOST_TRIES = 10
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""Between two tries, doubling: an output is given up after about five minutes."""
LOG_SECONDS, LOG_AGAIN_SECONDS = 60.0, 3600.0
"""Between two log lines about failures, and about a storage that is still unavailable."""
MANY_LINES = 100_000


class _Due(NamedTuple):
    """Output to be copied: when, and after how many tries; whose, and how many bytes of it, None for all.

    `known` is the task's own index, by which its files are named.
    """

    at: float
    job: int
    task: int
    known: int
    node: str
    tries: int
    owner: str
    limit: int | None


class _Away(NamedTuple):
    """An unavailable storage: since when, why, after how many tries, and when to try again."""

    since: float
    why: str
    tries: int
    again_at: float


class _Left:
    """What is left of a task's bounds, over both streams, and where its output was cut."""

    def __init__(self, data: float) -> None:
        self.data, self.holes, self.cut = data, MOST_HOLES, ""


class OutputArchive:
    """All archived output, and all that is still to be copied.

    `recover`, `recorded` and `forget` run in the scheduler's thread, `close` in any, the rest in others.

    url : the target: anything that fsspec opens
    home : the scheduler's data folder

    Raises
    ------
    Refused
        The target can never be written to. If it is only unavailable, a warning is logged.
    """

    def __init__(self, url: str, home: Path) -> None:
        self._url = url.rstrip("/")
        self._urls = [self._url]  # this one, and those of earlier configurations
        self._calls, self._reads = BoundedCalls(MOST_WRITES, "storage"), BoundedCalls(MOST_READS, "reading")
        self._idle: dict[str, list[output_storage.Storage]] = {}  # open storages that no call uses, by URL
        self._away: _Away | None = None
        self._notes, self._home, self._journal = home / "kept_output", home, ""
        self._engine: LiveEngine | None = None
        self._changed = threading.Condition()  # guards what follows; held briefly
        self._kept: dict[int, array[int]] = {}  # by job, the location of each task's output: see _coded
        self._due: dict[str, list[_Due]] = {}  # by owner, heaps
        self._at_work: Counter[str] = Counter()  # by owner, the threads that copy
        self._held: dict[str, float] = {}  # by owner, until when none is copied
        self._own: dict[int, Work] = {}  # by job, if its tasks have indices of their own
        self._open: dict[int, dict[int, tuple[str, int]]] = {}  # by job, the tasks still to be copied: nodes and own indices
        self._forgotten: set[int] = set()  # forgotten jobs with tasks still to be copied
        self._let_go: list[int] = []  # jobs whose output nodes may remove now
        self._troubles: dict[int, str] = {}
        self._cut: dict[int, str] = {}  # by job, which output is stored in part
        self._lines, self._said_at, self._closed = 0, -LOG_SECONDS, False
        try:
            self._calls.call(START_SECONDS, self._check)
        except Refused:
            raise
        except Exception as error:  # fsspec raises many kinds
            self._is_away(_said(error), again=False)

    # -- in the scheduler's thread ------------------------------------------------------------------------------

    def recover(self, state: State, journal: str, engine: LiveEngine) -> None:
        """Continue with everything that has ended and is not copied."""
        self._engine, self._journal = engine, journal
        stored, pending = _read_notes(self._notes)
        with self._changed:
            for job, spec in state.index.specs.items():
                kept = self._known(job, spec)
                for index, (url, streams) in stored.get(job, {}).items():
                    if url not in self._urls:
                        self._urls.append(url)
                    kept[index] = _coded(self._urls.index(url), streams)
                first = int(state.jobs.first[int(state.job_row(job))])
                over = np.isin(state.tasks.status[first : first + spec.tasks], OVER)
                for index in np.flatnonzero(over & (np.frombuffer(kept, np.uint16) == 0)).tolist():
                    self._has_ended(state, job, index)
            for job, index, node, known in pending:
                if job not in self._kept:
                    self._forgotten.add(job)
                    self._add(job, index, node, limit=DEFAULT.output_limit, known=known)
            self._write_notes()
        for number in range(THREADS):
            threading.Thread(target=self._work, name=f"keeping-{number}", daemon=True).start()

    def recorded(self, state: State, facts: Sequence[Fact]) -> None:
        """Note ended tasks; let nodes remove the output of forgotten jobs that was copied."""
        assert self._engine is not None
        for fact in facts:
            if isinstance(fact, TasksFinished):
                with self._changed:
                    for job, index in zip(fact.job.tolist(), fact.index.tolist(), strict=True):
                        self._has_ended(state, job, index)
                    self._changed.notify_all()
        with self._changed:
            gone, self._let_go = self._let_go, []
        if gone:
            self._engine.forget(gone)

    def _has_ended(self, state: State, job: int, index: int) -> None:
        """Note the output of a task, if that is over and not copied."""
        spec = state.index.specs.get(job)
        if spec is None:  # forgotten already, since few are remembered
            return
        kept = self._known(job, spec)
        first = int(state.jobs.first[int(state.job_row(job))])
        if not kept[index] and int(state.tasks.status[first + index]) in OVER:
            node = find_task(state, job, index)["node"] or ""
            self._add(job, index, node, spec.user, spec.output_limit, spec.work.known_as(index))

    def _known(self, job: int, spec: Job) -> "array[int]":
        """Return the locations of the output of a job that is not forgotten."""
        if spec.work.own_indices:
            self._own[job] = spec.work
        if job not in self._kept:
            self._kept[job] = array("H", bytes(2 * spec.tasks))
        return self._kept[job]

    def _add(self, job: int, index: int, node: str, owner: str = "", limit: int | None = None, known: int | None = None) -> None:
        known = index if known is None else known
        self._open.setdefault(job, {})[index] = node, known
        self._wait(_Due(0.0, job, index, known, node, 0, owner, limit))

    def _wait(self, due: _Due) -> None:
        heapq.heappush(self._due.setdefault(due.owner, []), due)

    def forget(self, facts: Sequence[Fact]) -> list[int]:
        """Return the forgotten jobs whose output may be removed now; the others' is removed after copying."""
        jobs = forgotten_by(facts)
        with self._changed:
            for job in jobs:
                self._kept.pop(job, None)
                self._own.pop(job, None)
                self._troubles.pop(job, None)
                self._cut.pop(job, None)
            waiting = self._open.keys() & jobs
            self._forgotten |= waiting
            if jobs and self._lines > MANY_LINES:
                self._write_notes()
            else:
                for job in waiting:
                    for index, there in self._open[job].items():
                        self._note("pending", job, index, *there)
        return [job for job in jobs if job not in waiting]

    # -- in threads of its own ----------------------------------------------------------------------------------

    def _work(self) -> None:
        while (found := self._next()) is not None:
            due, again = found
            try:
                self._serve(due, again)
            finally:
                if due is not None:
                    with self._changed:
                        self._at_work -= Counter([due.owner])
                        self._changed.notify_all()

    def _serve(self, due: _Due | None, again: bool) -> None:
        try:
            what = self._check if due is None else partial(self._copy, due)
            streams = self._calls.call(output_storage.CALL_SECONDS, what)
        except Unreachable as error:  # the node, not the storage
            self._is_unsure(again)
            self._failed(due, _said(error), counts=True)
        except output_storage.Full as error:
            if error.is_full:
                self._is_away(_said(error), again)
            else:
                self._is_unsure(again)
            self._failed(due, _said(error), counts=not error.is_full, held=not error.is_full)
        except Exception as error:  # fsspec raises many kinds
            self._is_away(_said(error), again)
            self._failed(due, _said(error), counts=not again)
        else:
            self._answers(again)
            if due is not None:
                self._done(due, streams)

    def _next(self) -> tuple[_Due | None, bool] | None:
        """Wait for the next output to copy; also return True if this checks whether the storage is available again.

        There may be no output for that check. Returns None after `close`.
        """
        with self._changed:
            while not self._closed:
                away, (owner, at) = self._away, self._first()
                if away is not None:
                    at = max(at if owner is not None else 0.0, away.again_at)
                if (left := at - time.monotonic()) > 0:
                    self._changed.wait(left if left < math.inf else None)
                    continue
                if away is not None:  # one thread checks; the others wait
                    self._away = away._replace(again_at=math.inf)
                if owner is None:
                    return None, True
                due = heapq.heappop(self._due[owner])
                if not self._due[owner]:
                    del self._due[owner]
                self._at_work[owner] += 1
                return due, away is not None
            return None

    def _first(self) -> tuple[str | None, float]:
        """Return whose output is next, and when: among those whose time has come, the one with the fewest threads."""
        now, found = time.monotonic(), []
        for owner, heap in self._due.items():
            if (threads := self._at_work[owner]) < MOST_OF_ONE:
                at = max(heap[0].at, self._held.get(owner, 0.0))
                found.append((threads if at <= now else THREADS, at, owner))
        _, at, who = min(found, default=(0, math.inf, None))
        return who, at

    @contextmanager
    def _storage(self, url: str) -> Iterator[output_storage.Storage]:
        """Open a storage, or take one that no other call uses; it is given back unless something fails meanwhile."""
        with self._changed:
            idle = self._idle.setdefault(url, [])
            storage = idle.pop() if idle else None
        storage = storage or output_storage.open_storage(url)
        yield storage
        with self._changed:
            if self._idle.get(url) is idle:
                idle.append(storage)

    def _check(self) -> int:
        with self._storage(self._url) as storage:
            output_storage.check_storage(storage)
        return 0

    def _copy(self, due: _Due) -> int:
        streams, left = 0, _Left(math.inf if due.limit is None else due.limit)
        for bit, stream in enumerate(STREAMS if due.node else ()):
            names, pieces = self._names(due.job, due.known, stream), self._pieces(due, stream, left)
            with self._storage(self._url) as storage:
                if output_storage.put(storage, names, pieces, self._home, self._calls.allow):
                    streams |= 1 << bit
        if left.cut:
            said = f"the output of task {due.job}.{due.task} is stored at {self._url} {left.cut}"
            with self._changed:
                if due.job not in self._forgotten:
                    self._cut[due.job] = said
            log.warning("%s", said)
        return streams

    def _pieces(self, due: _Due, stream: str, left: _Left) -> Iterator[bytes | int]:
        """Yield what a task wrote, and the lengths of holes, as far as its bounds allow."""
        assert self._engine is not None
        where, offset = (due.job, due.task, stream), 0
        while piece := self._engine.read_output(*where, offset, PIECE_BYTES, due.node):
            self._calls.allow(output_storage.CALL_SECONDS)
            hole = 0 if piece.strip(b"\0") else self._engine.next_data(*where, offset, due.node) - offset
            if hole and max(hole, SMALLEST_HOLE) > left.holes:
                left.cut = left.cut or f"up to byte {offset} of {stream}: a hole follows"
                return
            if hole:
                left.holes -= max(hole, SMALLEST_HOLE)
                offset += hole
                yield hole
                continue
            piece = piece[: int(min(left.data, len(piece)))]
            if not piece:
                left.cut = left.cut or f"up to byte {offset} of {stream}: its output_limit is reached"
                return
            left.data -= len(piece)
            offset += len(piece)
            yield piece

    def _is_away(self, why: str, again: bool) -> None:
        """Mark the storage as unavailable for a while; `again` means that a check has failed."""
        with self._changed:
            self._idle = {}  # their connections may be lost
            if self._away is not None and not again:  # already known
                return
            now = time.monotonic()
            before = self._away or _Away(now, why, 0, 0.0)
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**before.tries)
            self._away = _Away(before.since, why, before.tries + 1, now + pause)
            self._changed.notify_all()
            loud = now - self._said_at > (LOG_AGAIN_SECONDS if again else LOG_SECONDS)
            if loud:
                self._said_at = now
        if loud:
            log.warning("output = %r: nothing can be written there: %s: output waits where it is; retrying", self._url, why)

    def _is_unsure(self, again: bool) -> None:
        """A check of the storage was inconclusive: use another output for it."""
        with self._changed:
            if again and self._away is not None:
                self._away = self._away._replace(again_at=0.0)
                self._changed.notify_all()

    def _answers(self, again: bool) -> None:
        """The storage works; `again` means that it did not before."""
        if not again:
            return
        with self._changed:
            away, self._away = self._away, None
            self._changed.notify_all()
        if away is not None and self._said_at >= away.since:
            log.warning("output = %r: available again; waiting output is copied", self._url)

    def _failed(self, due: _Due | None, why: str, counts: bool, held: bool = False) -> None:
        """An output was not copied. Only failures that count against this output exhaust its tries.

        `held` means that nothing else of its owner is copied until it is tried again.
        """
        if due is None:
            return
        tries, name = due.tries + counts, f"{due.job}.{due.known}"
        last = counts and tries >= MOST_TRIES
        how = "given up: the next start of the scheduler retries" if last else "retrying"
        said = f"the output of task {name} is not stored at {self._url}: {why}: {how}"
        with self._changed:
            if due.job not in self._forgotten:
                self._troubles[due.job] = said
            if not last:
                pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**due.tries)
                self._wait(due._replace(at=time.monotonic() + pause, tries=tries))
                if held:
                    self._held[due.owner] = time.monotonic() + pause
                self._changed.notify_all()
            loud = counts and (last or time.monotonic() - self._said_at > LOG_SECONDS)
            if loud:
                self._said_at = time.monotonic()
        if loud:
            log.warning("%s", said)

    def _done(self, due: _Due, streams: int) -> None:
        with self._changed:
            self._held.pop(due.owner, None)
            del self._open[due.job][due.task]
            if not self._open[due.job]:
                del self._open[due.job]
                self._troubles.pop(due.job, None)
                if due.job in self._forgotten:
                    self._forgotten.discard(due.job)
                    self._let_go.append(due.job)
            self._note("at", self._url, due.job, streams, due.task)
            if due.job in self._kept:
                self._kept[due.job][due.task] = _coded(0, streams)

    # -- in the API's threads -----------------------------------------------------------------------------------

    def trouble(self, job: int) -> str:
        """Return why the output of a job is not stored; empty if nothing is wrong."""
        with self._changed:
            waits = self._away is not None and job in self._open
            return self._troubles.get(job) or (self._said_away() if waits else "") or self._cut.get(job, "")

    def describe(self) -> OutputInfo:
        """Return the storage's URL, the number of waiting outputs, and why they wait."""
        with self._changed:
            waiting = sum(map(len, self._open.values()))
            return {"url": self._url, "waiting": waiting, "trouble": self._said_away()}

    @property
    def away_for(self) -> float:
        """For how many seconds the storage has been unavailable; 0 if it is available."""
        with self._changed:
            return time.monotonic() - self._away.since if self._away is not None else 0.0

    def _said_away(self) -> str:
        if self._away is None:
            return ""
        return f"storage {self._url} has been unavailable for {time.monotonic() - self._away.since:.0f} s: {self._away.why}"

    def read(self, job: int, index: int, stream: str, offset: int, most: int) -> bytes | None:
        """Return a piece of stored output; None if it is not stored. Raises Unknown if it cannot be read."""
        with self._changed:
            kept = self._kept.get(job)
            if kept is None or not kept[index]:
                return None
            number, streams = _decoded(kept[index])
            url, known = self._urls[number], self._own[job].known_as(index) if job in self._own else index
        if not streams & 1 << STREAMS.index(stream):
            return b""

        def piece() -> bytes:
            with self._storage(url) as storage:
                return output_storage.read(storage, self._names(job, known, stream), offset, most)

        try:
            return self._reads.call(READ_SECONDS, piece)
        except Exception as error:  # fsspec raises many kinds
            if not isinstance(error, FileNotFoundError):
                with self._changed:
                    self._idle = {}  # their connections may be lost too
            why = "it was stored there, and is gone" if isinstance(error, FileNotFoundError) else _said(error)
            raise Unknown(f"the output of task {job}.{known} cannot be read at {url}: {why}") from None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- the notes ----------------------------------------------------------------------------------------------

    def _names(self, job: int, known: int, stream: str) -> tuple[str, str, str]:
        return self._journal, str(job), f"{known}.{stream}"

    def _note(self, *what: Any) -> None:
        self._lines += 1
        try:
            with self._notes.open("a") as file:
                file.write(json.dumps(what) + "\n")
        except OSError as error:  # it is copied again after a restart
            log.warning("%s cannot be written: %s", self._notes, error)

    def _write_notes(self) -> None:
        """Rewrite the file with what still matters."""
        kept = []
        for job, of in self._kept.items():
            for code in set(of) - {0}:
                number, streams = _decoded(code)
                kept.append(["at", self._urls[number], job, streams, *(i for i, each in enumerate(of) if each == code)])
        pending = [["pending", job, index, *there] for job in self._forgotten for index, there in self._open[job].items()]
        fresh = self._notes.with_name("kept_output.new")
        self._lines = 0
        try:
            fresh.write_text("".join(json.dumps(line) + "\n" for line in kept + pending))
            fresh.rename(self._notes)
        except OSError as error:  # a full disk: keep the old file, which has the same and more
            log.warning("%s cannot be rewritten: %s", self._notes, error)


def _said(error: Exception) -> str:
    return plain(" ".join(str(error).split())[:300] or repr(error))


def _coded(number: int, streams: int) -> int:
    """Encode location and streams of an output as a number; 0 means not stored."""
    return 1 + streams + 2 ** len(STREAMS) * number


def _decoded(code: int) -> tuple[int, int]:
    return divmod(code - 1, 2 ** len(STREAMS))


def _read_notes(path: Path) -> tuple[dict[int, dict[int, tuple[str, int]]], list[tuple[int, int, str, int]]]:
    """Return the notes of earlier runs: URL and streams by job and task, and pending tasks of forgotten jobs."""
    kept: dict[int, dict[int, tuple[str, int]]] = {}
    pending: dict[tuple[int, int], tuple[str, int]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            what, *more = json.loads(line)
        except ValueError:  # the last line, truncated by a crash
            continue
        if what == "pending":
            job, index, *there = more
            pending[job, index] = there[0], there[1]
            continue
        url, job, streams, *tasks = more
        kept.setdefault(job, {}).update(dict.fromkeys(tasks, (url, streams)))
        for index in tasks:
            pending.pop((job, index), None)
    return kept, [(job, index, node, known) for (job, index), (node, known) in pending.items()]


def read_output(
    engine: LiveEngine, kept: OutputArchive | None, task: tuple[int, int], stream: str, offset: int, most: int, node: str
) -> bytes:
    """Return a piece of a task's output: from its node if available, otherwise from the storage; empty if there is none.

    Raises Unreachable if the task's node does not answer and nothing is stored.
    """
    away = None
    try:
        found = engine.read_output(*task, stream, offset, most, node)
    except Unreachable as error:
        found, away = None, error
    if found is None and kept is not None:
        found = kept.read(*task, stream, offset, most)
    if found is None and away is not None and node:
        raise Unreachable(f"the output of task {task[0]}.{task[1]} cannot be read: {away}")
    return found or b""
