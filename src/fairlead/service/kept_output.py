"""What tasks wrote, kept beyond their nodes: copied to where `output` in the configuration says, when a task has ended for good.

The scheduler does it, in threads of its own: it reads from the node, as `fairlead logs` does, and writes by fsspec, which finds
what lets it in where it always does. What is kept is noted in a file, so that a restart goes on where the last one was. What a
node has is removed no sooner than it is kept, or was given up. Under URL/JOURNAL, the output of a task is JOB/INDEX.out and .err;
what is empty has no file.
"""

import heapq
import json
import logging
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.engines.contract import LiveEngine, Unreachable
from fairlead.engines.step import forgotten_by
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.facts import Fact, TasksFinished
from fairlead.scheduler.report import find_task
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import CANCELLED, FAILED, SUCCEEDED

log = logging.getLogger("fairlead")

STREAMS = ("out", "err")
PIECE = 2**20
THREADS = 4
MOST_TRIES = 10
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries; each is twice the one before: so it is given up after some five minutes."""
SAY_EVERY = 60.0
"""Seconds between two lines of the log about what cannot be kept."""
MANY_LINES = 100_000
OVER = (SUCCEEDED, FAILED, CANCELLED)


class _Due(NamedTuple):
    """Output that is to be copied: when, and how often that was tried."""

    at: float
    job: int
    task: int
    node: str
    tries: int


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
        There is nothing that could write there.
    """

    def __init__(self, url: str, home: Path) -> None:
        self._url, self._notes, self._home = url.rstrip("/"), home / "kept_output", home
        self._files, self._base = _file_system(url)
        self._engine: LiveEngine | None = None
        self._changed = threading.Condition()  # of what follows; held for moments
        self._kept: dict[int, bytearray] = {}  # by job, of each task whether
        self._due: list[_Due] = []
        self._open: dict[int, dict[int, str]] = {}  # by job, the tasks that are to be kept, and their nodes
        self._forgotten: set[int] = set()  # jobs that nobody remembers, of which tasks are to be kept
        self._let_go: list[int] = []  # jobs whose output nodes may remove now
        self._troubles: dict[int, str] = {}
        self._lines, self._said_at, self._closed = 0, -SAY_EVERY, False

    # -- in the scheduler's thread ------------------------------------------------------------------------------

    def recover(self, state: State, journal: str, engine: LiveEngine) -> None:
        """Go on where the last one was: with all that has ended and is not kept."""
        self._engine, self._base = engine, f"{self._base}/{journal}"
        noted = _read_notes(self._notes)
        with self._changed:
            for job, spec in state.index.specs.items():
                kept = self._kept[job] = bytearray(spec.tasks)
                for index in noted.kept.get(job, ()):
                    kept[index] = 1
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
        kept = self._kept.setdefault(job, bytearray(spec.tasks))
        first = int(state.jobs.first[int(state.job_row(job))])
        if not kept[index] and int(state.tasks.status[first + index]) in OVER:
            self._add(job, index, find_task(state, job, index)["node"] or "")

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
        while True:
            with self._changed:
                while not self._closed and not (self._due and self._due[0].at <= time.monotonic()):
                    self._changed.wait(max(0.0, self._due[0].at - time.monotonic()) if self._due else None)
                if self._closed:
                    return
                due = heapq.heappop(self._due)
            try:
                self._copy(due)
            except Exception as error:  # of fsspec's many kinds
                self._failed(due, error)
            else:
                self._done(due, True)

    def _copy(self, due: _Due) -> None:
        """Copy the output of a task, by a file here, so that nothing is there in part."""
        for stream in STREAMS if due.node else ():
            with tempfile.NamedTemporaryFile(dir=self._home, prefix="keeping.") as here:
                offset = 0
                while piece := self._piece(due, stream, offset):
                    here.write(piece)
                    offset += len(piece)
                here.flush()
                if offset:
                    path = self._path(due.job, due.task, stream)
                    self._make_folder(path.rpartition("/")[0])
                    self._files.put_file(here.name, path)

    def _piece(self, due: _Due, stream: str, offset: int) -> bytes | None:
        assert self._engine is not None
        return self._engine.read_output(due.job, due.task, stream, offset, PIECE, due.node)

    def _make_folder(self, folder: str) -> None:
        if "file" in _protocols(self._files):  # other people have no part in it
            Path(self._base).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.makedirs(folder, exist_ok=True)

    def _failed(self, due: _Due, error: Exception) -> None:
        why = " ".join(str(error).split())[:300] or repr(error)
        tries, name = due.tries + 1, f"{due.job}.{due.task}"
        last = tries >= MOST_TRIES
        how = "it was given up: the next start of the scheduler tries again" if last else "it is tried again"
        said = f"the output of task {name} is not kept at {self._url}: {why}: {how}"
        with self._changed:
            if due.job not in self._forgotten:
                self._troubles[due.job] = said
            if not last:
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**due.tries)
                heapq.heappush(self._due, due._replace(at=time.monotonic() + pause, tries=tries))
            loud = last or time.monotonic() - self._said_at > SAY_EVERY
            if loud:
                self._said_at = time.monotonic()
        if loud:
            log.warning(said)
        if last:
            self._done(due, False)

    def _done(self, due: _Due, kept: bool) -> None:
        with self._changed:
            del self._open[due.job][due.task]
            if not self._open[due.job]:
                del self._open[due.job]
                if kept:
                    self._troubles.pop(due.job, None)
                if due.job in self._forgotten:
                    self._forgotten.discard(due.job)
                    self._let_go.append(due.job)
            if kept or due.job not in self._kept:
                self._note("kept", due.job, due.task)
            if kept and due.job in self._kept:
                self._kept[due.job][due.task] = 1

    # -- in the API's threads -----------------------------------------------------------------------------------

    def trouble(self, job: int) -> str:
        """What keeps the output of a job from being kept; empty for nothing."""
        with self._changed:
            return self._troubles.get(job, "")

    def read(self, job: int, index: int, stream: str, offset: int, most: int) -> bytes | None:
        """A piece of what was kept; None where it is not. Raises Unknown where it cannot be read."""
        with self._changed:
            kept = self._kept.get(job)
            if kept is None or not kept[index]:
                return None
        path = self._path(job, index, stream)
        try:
            self._files.invalidate_cache(path)
            size = self._files.size(path)
            end = min(size, offset + most)
            return bytes(self._files.cat_file(path, start=offset, end=end)) if offset < end else b""
        except FileNotFoundError:  # it was empty
            return b""
        except Exception as error:
            raise Unknown(f"the output of task {job}.{index} cannot be read at {self._url}: {error}") from None

    def close(self) -> None:
        """Begin nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- the notes ----------------------------------------------------------------------------------------------

    def _path(self, job: int, index: int, stream: str) -> str:
        return f"{self._base}/{job}/{index}.{stream}"

    def _note(self, *what: Any) -> None:
        self._lines += 1
        try:
            with self._notes.open("a") as file:
                file.write(json.dumps(what) + "\n")
        except OSError as error:  # it is copied once more after a restart
            log.warning("%s cannot be written: %s", self._notes, error)

    def _write_notes(self) -> None:
        """Write the file anew, of what still matters."""
        kept = [["kept", job, *(i for i, each in enumerate(of) if each)] for job, of in self._kept.items() if any(of)]
        pending = [["pending", job, *each] for job in self._forgotten for each in self._open[job].items()]
        fresh = self._notes.with_name("kept_output.new")
        self._lines = 0
        try:
            fresh.write_text("".join(json.dumps(line) + "\n" for line in kept + pending))
            fresh.rename(self._notes)
        except OSError as error:  # a full disk: go on in the old one, which says the same and more
            log.warning("%s cannot be written anew: %s", self._notes, error)


class _Notes(NamedTuple):
    """What a scheduler before noted: the tasks that are kept, by job, and those of forgotten jobs that are to be."""

    kept: dict[int, set[int]]
    pending: list[tuple[int, int, str]]


def _read_notes(path: Path) -> _Notes:
    kept: dict[int, set[int]] = {}
    pending: dict[tuple[int, int], str] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            what, job, *more = json.loads(line)
        except ValueError:  # the last line, cut off where the last scheduler was
            continue
        if what == "kept":
            kept.setdefault(job, set()).update(more)
            for index in more:
                pending.pop((job, index), None)
        else:
            pending[job, more[0]] = more[1]
    return _Notes(kept, [(job, index, node) for (job, index), node in pending.items()])


def _file_system(url: str) -> tuple[Any, str]:
    """What writes to a URL, and the path there."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise Refused(f"output = {url!r}: fsspec is not installed here: pip install 'fairlead[output]'") from None
    try:
        files, base = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise Refused(f"output = {url!r}: {error}") from None
    return files, base.rstrip("/")


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def read_output(
    engine: LiveEngine, kept: KeptOutput | None, task: tuple[int, int], stream: str, offset: int, most: int, node: str
) -> bytes:
    """A piece of what a task wrote: from its node while that is there, else from where it is kept; empty where there is none."""
    try:
        found = engine.read_output(*task, stream, offset, most, node)
    except Unreachable:
        found = None
    if found is None and kept is not None:
        found = kept.read(*task, stream, offset, most)
    return found or b""
