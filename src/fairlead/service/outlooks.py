"""When jobs are expected to start, for all who ask, in a thread of its own that the scheduler never waits for.

The scheduler's thread only copies its state, once a second at most however many ask. What is found from that copy is told to
whoever asks the same within the second. What was told of a job is remembered until it starts, and what is told next is as much
wider as that shows to be needed; a file beside the journal has it for the next start. So that there is something to learn from
where nobody asks, a job that was just submitted is looked at now and then.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock

import numpy as np

from fairlead.data_folder import write_private
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact, JobCancelled, JobHeld, JobSubmitted, TasksStarted
from fairlead.scheduler.snapshot import copy_of
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE
from fairlead.service import metrics
from fairlead.service.loop import Busy, Loop
from fairlead.simulate.outlook import Calibration, Outlook, outlook, settled

log = logging.getLogger("fairlead")

FREED = 1.0
"""Seconds for which a copy of the state, and what was found from it, will do."""
MOST_ASKED = 16
"""Questions that may wait; another is turned away."""
SECONDS, FOR_EACH = 0.75, 2e-6
"""How long an answer may take, about; and how much longer for each task that waits."""
LEARN_EVERY, LEARN_PART = 10.0, 0.01
"""Seconds between two looks that nobody asked for, at least; and the part of the time that they may take."""

Find = Callable[[State, float, float, float], Outlook]
"""Takes a copy of the state, its moment, by how much to widen, and the seconds that it may take."""


class Outlooks:
    """Outlooks on one scheduler's jobs. Asked from the event loop's thread; told of facts in the scheduler's.

    Parameters
    ----------
    path : Path, optional
        The file in which what was told is kept over a restart. It is written now and then, and lost with little harm.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._worker = ThreadPoolExecutor(1, "outlook")
        self._copy: tuple[float, asyncio.Future[tuple[State, float]]] | None = None
        self._found: dict[Hashable, tuple[float, asyncio.Future[Outlook]]] = {}
        self._waiting = 0
        self._path, self._kept = path, ""
        self._calibration, self._lock = self._read(), Lock()
        self._newest = 0

    def _read(self) -> Calibration:
        """What was told before, as far as that is known."""
        try:
            return Calibration() if self._path is None else Calibration.from_text(self._path.read_text())
        except FileNotFoundError:
            return Calibration()
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("%s: cannot be read (%s): what was told of starts is forgotten", self._path, error)
            return Calibration()

    def recover(self, state: State) -> None:
        """Forget of whom started, or ended, since that was written."""
        with self._lock:
            for job in self._calibration.open_jobs():
                row = state.index.find(job)
                tasks = slice(int(state.jobs.first[row]), int(state.jobs.first[row] + state.jobs.tasks[row]))
                if row == NONE or state.tasks.attempt[tasks].any() or not state.jobs.waiting[row]:
                    self._calibration.forget(job)

    def keep(self) -> None:
        """Write what was told, if it is news."""
        with self._lock:
            text = self._calibration.as_text()
        if self._path is not None and text != self._kept:
            try:
                write_private(self._path, text)
                self._kept = text
            except OSError as error:  # the intervals are right without it, in the end
                log.warning("%s: cannot be written: %s", self._path, error.strerror)

    def happened(self, facts: Sequence[Fact]) -> None:
        """Hear of what was recorded."""
        for fact in facts:
            match fact:
                case JobSubmitted(id=job):
                    self._newest = job
                case TasksStarted(at=at, job=jobs) if self._calibration:
                    with self._lock:
                        for job in np.unique(jobs).tolist():
                            within = self._calibration.started(job, at)
                            if within is not None:
                                metrics.outlooks.labels("yes" if within else "no").inc()
                case JobHeld(id=job) | JobCancelled(id=job, indices=None):
                    with self._lock:
                        self._calibration.forget(job)

    async def of_job(self, loop: Loop, job: int) -> Outlook:
        """When a job is expected to start. Raises Unknown, Busy."""

        def find(state: State, now: float, widen: float, seconds: float) -> Outlook:
            found = outlook(state, job, now, widen, seconds)
            with self._lock:
                self._calibration.record(found, now, widen)
            return found

        # A forecast may be as old as FREED; whether the job has ended is told as it is now.
        known = await asyncio.wrap_future(loop.ask(lambda state, _: ([], settled(state, job))))
        return known or await self.find(loop, job, find, job)

    async def find(self, loop: Loop, key: Hashable, find: Find, last: int = 0) -> Outlook:
        """Have something found from a copy of the state that knows the job number `last`; the same key, once a second.

        Raises what `find` raises, and Busy.
        """
        now = time.monotonic()
        self._found = {key: old for key, old in self._found.items() if now - old[0] < FREED}
        if key not in self._found:
            if self._waiting == MOST_ASKED:
                raise Busy(f"{MOST_ASKED} others ask when their jobs start already: try again in a moment")
            self._waiting += 1
            self._found[key] = now, asyncio.ensure_future(self._find(loop, find, last))
        return await asyncio.shield(self._found[key][1])

    async def _find(self, loop: Loop, find: Find, last: int) -> Outlook:
        try:
            state, now = await self._state(loop, last)
            with self._lock:
                widen = self._calibration.widen(now)
            seconds = SECONDS + FOR_EACH * int(state.jobs.waiting[: state.jobs.n].sum())
            running = asyncio.get_running_loop()
            return await running.run_in_executor(self._worker, find, state, now, widen, seconds)
        finally:
            self._waiting -= 1

    async def _state(self, loop: Loop, last: int) -> tuple[State, float]:
        """A copy of the state that is not old and knows a job, and its moment."""
        if self._copy is not None and time.monotonic() - self._copy[0] < FREED:
            state, now = await asyncio.shield(self._copy[1])
            if state.index.last >= last:
                return state, now
        answer = loop.ask(lambda state, now: ([], (copy_of(state), now)))
        self._copy = time.monotonic(), asyncio.wrap_future(answer)
        return await asyncio.shield(self._copy[1])

    async def learn(self, loop: Loop) -> None:
        """Look at a new job now and then, for ever."""
        seen, pause = 0, LEARN_EVERY
        while True:
            await asyncio.sleep(pause)
            begin = time.monotonic()
            if self._newest != seen:
                seen = self._newest
                with suppress(Refused, Busy):  # it was forgotten, or there is too much to do for this
                    await self.of_job(loop, seen)
            pause = max(LEARN_EVERY, (time.monotonic() - begin) / LEARN_PART)
            await asyncio.to_thread(self.keep)

    def close(self) -> None:
        """Find nothing more."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self.keep()
