"""What tasks wrote, kept beyond their nodes: copied to where `output` in the configuration says, when a task has ended for good.

The scheduler does it, in threads of its own: it reads from the node, as `fairlead logs` does, and writes by fsspec, which finds
what lets it in where it always does. What is kept is noted in a file, so that a restart goes on where the last one was. What a
node has is removed no sooner than it is kept, or was given up. Under URL/JOURNAL, the output of a task is JOB/INDEX.out and .err;
what is empty has no file.

A storage may be away, at any time and for any time: then all waits, and one thread tries now and then. So a failure is counted
against an output only where others went well since the one before.
"""

import heapq
import json
import logging
import math
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.engines.contract import LiveEngine, Unreachable
from fairlead.engines.step import forgotten_by
from fairlead.model.api_types import OutputInfo
from fairlead.plain_text import plain
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.facts import Fact, TasksFinished
from fairlead.scheduler.reports.listings import find_task
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import CANCELLED, FAILED, SUCCEEDED
from fairlead.service import kept_place
from fairlead.service.patient_calls import PatientCalls

log = logging.getLogger("fairlead")

STREAMS = ("out", "err")
_UNSAID = 2 ** len(STREAMS)
"""In place of the streams that have a file, a bit each: it was not noted which have one."""
PIECE = 2**20
THREADS = 4
MOST_CALLS, MOST_READS = 32, 3
"""At once: of a storage that takes, in which some may hang; and of all that are read from."""
START_WITHIN, READ_WITHIN = 5.0, 10.0
"""Seconds until a scheduler starts without its storage, and until somebody who reads is told that it does not answer."""
MOST_TRIES = 10
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries; each is twice the one before: so it is given up after some five minutes."""
SAY_EVERY, SAY_AGAIN = 60.0, 3600.0
"""Seconds between two lines of the log about what cannot be kept, and about a storage that is still away."""
MANY_LINES = 100_000
OVER = (SUCCEEDED, FAILED, CANCELLED)


class _Due(NamedTuple):
    """Output that is to be copied: when, and how often that was tried."""

    at: float
    job: int
    task: int
    node: str
    tries: int


class _Away(NamedTuple):
    """A storage that does not take anything: since when, why, how often that was tried, and when it is tried again."""

    since: float
    why: str
    tries: int
    again_at: float


class KeptOutput:
    """All that is kept, and is to be.

    `recover`, `recorded` and `forget` are called in the scheduler's thread, `close` in any, the rest in others.

    Parameters
    ----------
    url : str
        Where to: anything that fsspec opens.
    home : Path
        The scheduler's data folder.

    Raises
    ------
    Refused
        There is nothing that could ever write there. Where it is only away, that is said in the log.
    """

    def __init__(self, url: str, home: Path) -> None:
        self._url = url.rstrip("/")
        self._urls = [self._url]  # this one, and those of schedulers before
        self._calls, self._reads = PatientCalls(MOST_CALLS, "storage"), PatientCalls(MOST_READS, "reading")
        self._opened = threading.local()  # places, as fsspec has one by thread
        self._openings = 0  # how often all places are to be opened anew
        self._away: _Away | None = None
        self._notes, self._home, self._journal = home / "kept_output", home, ""
        self._engine: LiveEngine | None = None
        self._changed = threading.Condition()  # of what follows; held for moments
        self._kept: dict[int, array[int]] = {}  # by job, of each task where it is: see _coded
        self._due: list[_Due] = []
        self._open: dict[int, dict[int, str]] = {}  # by job, the tasks that are to be kept, and their nodes
        self._forgotten: set[int] = set()  # jobs that nobody remembers, of which tasks are to be kept
        self._let_go: list[int] = []  # jobs whose output nodes may remove now
        self._troubles: dict[int, str] = {}
        self._lines, self._said_at, self._closed = 0, -SAY_EVERY, False
        try:
            self._calls.call(START_WITHIN, self._check)
        except Refused:
            raise
        except Exception as error:  # of fsspec's many kinds
            self._is_away(_said(error), again=False)

    # -- in the scheduler's thread ------------------------------------------------------------------------------

    def recover(self, state: State, journal: str, engine: LiveEngine) -> None:
        """Go on where the last one was: with all that has ended and is not kept."""
        self._engine, self._journal = engine, journal
        noted = _read_notes(self._notes)
        with self._changed:
            for job, spec in state.index.specs.items():
                kept = self._kept[job] = array("H", bytes(2 * spec.tasks))
                for index, (url, streams) in noted.kept.get(job, {}).items():
                    kept[index] = _coded(self._number(url or self._url), streams)
                row = int(state.job_row(job))
                first = int(state.jobs.first[row])
                for index in range(spec.tasks):
                    if int(state.tasks.status[first + index]) in OVER and not kept[index]:
                        self._add(job, index, find_task(state, job, index)["node"] or "")
            for job, index, node in noted.pending:
                if job not in self._kept:
                    self._forgotten.add(job)
                    self._add(job, index, node)
            self._write_notes()
        for number in range(THREADS):
            threading.Thread(target=self._work, name=f"keeping-{number}", daemon=True).start()

    def recorded(self, state: State, facts: Sequence[Fact]) -> None:
        """Note what has ended; let go of what was forgotten and is kept."""
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
        spec = state.index.specs.get(job)
        if spec is None:  # so few are remembered that it is forgotten already
            return
        kept = self._kept.setdefault(job, array("H", bytes(2 * spec.tasks)))
        first = int(state.jobs.first[int(state.job_row(job))])
        if not kept[index] and int(state.tasks.status[first + index]) in OVER:
            self._add(job, index, find_task(state, job, index)["node"] or "")

    def _number(self, url: str) -> int:
        if url not in self._urls:
            self._urls.append(url)
        return self._urls.index(url)

    def _add(self, job: int, index: int, node: str) -> None:
        self._open.setdefault(job, {})[index] = node
        heapq.heappush(self._due, _Due(0.0, job, index, node, 0))

    def forget(self, facts: Sequence[Fact]) -> list[int]:
        """The jobs that were forgotten and whose output may go; the others' goes when it is kept."""
        jobs = forgotten_by(facts)
        with self._changed:
            for job in jobs:
                self._kept.pop(job, None)
                self._troubles.pop(job, None)
            waiting = self._open.keys() & jobs
            self._forgotten |= waiting
            if jobs and self._lines > MANY_LINES:
                self._write_notes()
            else:
                for job in waiting:
                    for index, node in self._open[job].items():
                        self._note("pending", job, index, node)
        return [job for job in jobs if job not in waiting]

    # -- in threads of its own ----------------------------------------------------------------------------------

    def _work(self) -> None:
        while (found := self._next()) is not None:
            due, again = found
            try:
                what = self._check if due is None else partial(self._copy, due)
                streams = self._calls.call(kept_place.ALLOWED, what)
            except Unreachable as error:  # a node, and not the storage
                self._is_unsure(again)
                self._failed(due, _said(error), counts=True)
            except Exception as error:  # of fsspec's many kinds
                self._is_away(_said(error), again)
                self._failed(due, _said(error), counts=not again)
            else:
                self._answers(again)
                if due is not None:
                    self._done(due, streams)

    def _next(self) -> tuple[_Due | None, bool] | None:
        """What is to be copied next, as soon as it is time, and whether that is to find out if the storage is still away.

        There may be nothing to find it out with. None when no more is to begin.
        """
        with self._changed:
            while not self._closed:
                again = self._away is not None
                at = self._due[0].at if self._due else 0.0 if again else math.inf
                if self._away is not None:
                    at = max(at, self._away.again_at)
                if (left := at - time.monotonic()) > 0:
                    self._changed.wait(left if left < math.inf else None)
                    continue
                if self._away is not None:  # by nobody else meanwhile
                    self._away = self._away._replace(again_at=math.inf)
                return heapq.heappop(self._due) if self._due else None, again
            return None

    def _place(self, url: str) -> kept_place.Place:
        """A place, opened for this thread, and anew since it last failed."""
        if getattr(self._opened, "number", -1) != self._openings:
            self._opened.number, self._opened.places = self._openings, {}
        places: dict[str, kept_place.Place] = self._opened.places
        if url not in places:
            places[url] = kept_place.open_place(url)
        return places[url]

    def _check(self) -> int:
        kept_place.check_place(self._place(self._url))
        return 0

    def _copy(self, due: _Due) -> int:
        """Copy the output of a task; returns which streams there are, a bit each."""
        streams = 0
        for bit, stream in enumerate(STREAMS if due.node else ()):
            names, pieces = self._names(due.job, due.task, stream), self._pieces(due, stream)
            if kept_place.put(self._place(self._url), names, pieces, self._home, self._calls.allow):
                streams |= 1 << bit
        return streams

    def _pieces(self, due: _Due, stream: str) -> Iterator[bytes]:
        assert self._engine is not None
        offset = 0
        while piece := self._engine.read_output(due.job, due.task, stream, offset, PIECE, due.node):
            self._calls.allow(kept_place.ALLOWED)
            yield piece
            offset += len(piece)

    def _is_away(self, why: str, again: bool) -> None:
        """Nothing more is tried for a while; `again` says that this was found out once more."""
        with self._changed:
            self._openings += 1
            if self._away is not None and not again:  # others found it out before
                return
            now = time.monotonic()
            before = self._away or _Away(now, why, 0, 0.0)
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**before.tries)
            self._away = _Away(before.since, why, before.tries + 1, now + pause)
            self._changed.notify_all()
            loud = now - self._said_at > (SAY_AGAIN if again else SAY_EVERY)
            if loud:
                self._said_at = now
        if loud:
            log.warning(
                "output = %r: nothing can be kept there: %s: it waits where it is, and is tried again", self._url, why
            )

    def _is_unsure(self, again: bool) -> None:
        """Whether the storage was still away was to be found out, and was not: it is tried with another output."""
        with self._changed:
            if again and self._away is not None:
                self._away = self._away._replace(again_at=0.0)
                self._changed.notify_all()

    def _answers(self, again: bool) -> None:
        """The storage takes what it is given; `again` says that it did not before."""
        if not again:
            return
        with self._changed:
            away, self._away = self._away, None
            self._changed.notify_all()
        if away is not None and self._said_at >= away.since:
            log.warning("output = %r: what waited is kept there again", self._url)

    def _failed(self, due: _Due | None, why: str, counts: bool) -> None:
        """An output is not kept; what `counts` does so against it alone, so that trying it comes to an end."""
        if due is None:
            return
        tries, name = due.tries + counts, f"{due.job}.{due.task}"
        last = counts and tries >= MOST_TRIES
        how = "it was given up: the next start of the scheduler tries again" if last else "it is tried again"
        said = f"the output of task {name} is not kept at {self._url}: {why}: {how}"
        with self._changed:
            if due.job not in self._forgotten:
                self._troubles[due.job] = said
            if not last:
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**due.tries)
                heapq.heappush(self._due, due._replace(at=time.monotonic() + pause, tries=tries))
                self._changed.notify_all()
            loud = counts and (last or time.monotonic() - self._said_at > SAY_EVERY)
            if loud:
                self._said_at = time.monotonic()
        if loud:
            log.warning("%s", said)

    def _done(self, due: _Due, streams: int) -> None:
        with self._changed:
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
        """What keeps the output of a job from being kept; empty for nothing."""
        with self._changed:
            waits = self._away is not None and job in self._open
            return self._troubles.get(job, "") or (self._said_away() if waits else "")

    def describe(self) -> OutputInfo:
        """Where output is kept, what waits for it, and why."""
        with self._changed:
            waiting = sum(map(len, self._open.values()))
            return {"url": self._url, "waiting": waiting, "trouble": self._said_away()}

    @property
    def away_for(self) -> float:
        """For how many seconds nothing could be kept; 0 while it can."""
        with self._changed:
            return time.monotonic() - self._away.since if self._away is not None else 0.0

    def _said_away(self) -> str:
        if self._away is None:
            return ""
        return f"for {time.monotonic() - self._away.since:.0f} s nothing can be kept at {self._url}: {self._away.why}"

    def read(self, job: int, index: int, stream: str, offset: int, most: int) -> bytes | None:
        """A piece of what was kept; None where it is not. Raises Unknown where it cannot be read."""
        with self._changed:
            kept = self._kept.get(job)
            if kept is None or not kept[index]:
                return None
            number, streams = _decoded(kept[index])
            url = self._urls[number]
        if not streams & (_UNSAID | 1 << STREAMS.index(stream)):
            return b""
        names = self._names(job, index, stream)
        try:
            found: bytes = self._reads.call(READ_WITHIN, lambda: kept_place.read(self._place(url), names, offset, most))
        except Exception as error:  # of fsspec's many kinds
            if isinstance(error, FileNotFoundError):
                if streams == _UNSAID:
                    return b""
                why = "it was kept there, and is not there now"
            else:
                why = _said(error)
                with self._changed:
                    self._openings += 1
            raise Unknown(f"the output of task {job}.{index} cannot be read at {url}: {why}") from None
        return found

    def close(self) -> None:
        """Begin nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- the notes ----------------------------------------------------------------------------------------------

    def _names(self, job: int, index: int, stream: str) -> tuple[str, str, str]:
        return self._journal, str(job), f"{index}.{stream}"

    def _note(self, *what: Any) -> None:
        self._lines += 1
        try:
            with self._notes.open("a") as file:
                file.write(json.dumps(what) + "\n")
        except OSError as error:  # it is copied once more after a restart
            log.warning("%s cannot be written: %s", self._notes, error)

    def _write_notes(self) -> None:
        """Write the file anew, of what still matters."""
        kept = []
        for job, of in self._kept.items():
            for code in set(of) - {0}:
                number, streams = _decoded(code)
                kept.append(["at", self._urls[number], job, streams, *(i for i, each in enumerate(of) if each == code)])
        pending = [["pending", job, *each] for job in self._forgotten for each in self._open[job].items()]
        fresh = self._notes.with_name("kept_output.new")
        self._lines = 0
        try:
            fresh.write_text("".join(json.dumps(line) + "\n" for line in kept + pending))
            fresh.rename(self._notes)
        except OSError as error:  # a full disk: go on in the old one, which says the same and more
            log.warning("%s cannot be written anew: %s", self._notes, error)


def _said(error: Exception) -> str:
    return plain(" ".join(str(error).split())[:300] or repr(error))


def _coded(number: int, streams: int) -> int:
    """Where the output of a task is kept, and which streams there are, as a number; 0 is for what is not kept."""
    return 1 + streams + 2 * _UNSAID * number


def _decoded(code: int) -> tuple[int, int]:
    number, streams = divmod(code - 1, 2 * _UNSAID)
    return number, streams


class _Notes(NamedTuple):
    """What a scheduler before noted: by job and task where they are kept and the streams, and what of forgotten jobs is to be."""

    kept: dict[int, dict[int, tuple[str, int]]]
    pending: list[tuple[int, int, str]]


def _read_notes(path: Path) -> _Notes:
    kept: dict[int, dict[int, tuple[str, int]]] = {}
    pending: dict[tuple[int, int], str] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            what, *more = json.loads(line)
        except ValueError:  # the last line, cut off where the last scheduler was
            continue
        if what == "pending":
            job, index, node = more
            pending[job, index] = node
            continue
        if what == "at":
            url, job, streams, *tasks = more
        else:  # as it was written before, without where
            url, streams, (job, *tasks) = "", _UNSAID, more
        kept.setdefault(job, {}).update(dict.fromkeys(tasks, (url, streams)))
        for index in tasks:
            pending.pop((job, index), None)
    return _Notes(kept, [(job, index, node) for (job, index), node in pending.items()])


def read_output(
    engine: LiveEngine, kept: KeptOutput | None, task: tuple[int, int], stream: str, offset: int, most: int, node: str
) -> bytes:
    """A piece of what a task wrote: from its node while that is there, else from where it is kept; empty where there is none.

    Raises Unreachable where its node, if it ever had one, does not tell, and nothing is kept.
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
