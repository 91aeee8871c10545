"""Predictions of job starts, for all callers, in a thread that the scheduler never waits for.

The scheduler's thread only copies its state, at most once a second and after a change by people. All callers with the same
question until then share the answer. A prediction is remembered until its job starts, and its outcome calibrates later
intervals. A file beside the journal keeps them across restarts. A recently submitted job is predicted now and then, to learn
even if nobody asks.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import inf
from pathlib import Path
from threading import Lock

import numpy as np

from fairlead.data_folder import write_private
from fairlead.scheduler import facts
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.snapshot import copy_of
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE
from fairlead.service import metrics
from fairlead.service.loop import Busy, Loop
from fairlead.simulate.outlook import Calibration, Outlook, outlook, settled

log = logging.getLogger("fairlead")

FRESH_SECONDS = 1.0
"""How long a copy of the state, and an answer made from it, are used, if there is no change by people."""
CHANGES = (facts.Configured, facts.JobEdited, facts.JobHeld, facts.JobReleased, facts.NodeDrained, facts.NodeResumed)
"""Changes by people, who then look at the forecast."""
MOST_ASKED = 16
"""Waiting questions; more are refused."""
ANSWER_SECONDS, PER_TASK_SECONDS = 0.75, 2e-6
"""How long an answer may take: base, and addition per pending task."""
LEARN_SECONDS, LEARN_SHARE = 10.0, 0.01
"""The least time between two predictions that nobody asked for, and the share of time they may use."""

Find = Callable[[State, float, Calibration, float], Outlook]
"""Takes a copy of the state, its time, the calibration, and the seconds it may take."""


class Outlooks:
    """Predictions for one scheduler's jobs. Called from the event loop, except `recorded`, which the scheduler's thread calls.

    path : the file that keeps predictions across restarts. It is written now and then; losing it does little harm.
    """

    def __init__(self, path: Path) -> None:
        self._worker = ThreadPoolExecutor(1, "outlook")
        self._copy: tuple[float, asyncio.Future[tuple[State, float]]] | None = None
        self._found: dict[Hashable, tuple[float, asyncio.Future[Outlook]]] = {}
        self._waiting = 0
        self._path, self._kept = path, ""
        self._calibration, self._lock = self._read(), Lock()
        self._newest, self._changed = 0, -inf

    def _read(self) -> Calibration:
        try:
            return Calibration.from_text(self._path.read_text())
        except FileNotFoundError:
            return Calibration()
        except (OSError, ValueError, TypeError, LookupError) as error:
            log.warning("%s: cannot be read (%s): earlier predictions are forgotten", self._path, error)
            return Calibration()

    def recover(self, state: State) -> None:
        """Forget jobs that have started or ended since the file was written."""
        with self._lock:
            for job in self._calibration.open_jobs():
                row = state.index.find(job)
                tasks = slice(int(state.jobs.first[row]), int(state.jobs.first[row] + state.jobs.tasks[row]))
                if row == NONE or state.tasks.attempt[tasks].any() or not state.jobs.waiting[row]:
                    self._calibration.forget(job)

    def keep(self) -> None:
        with self._lock:
            text = self._calibration.as_text()
        if text != self._kept:
            try:
                write_private(self._path, text)
                self._kept = text
            except OSError as error:  # intervals become right again without it
                log.warning("%s: cannot be written: %s", self._path, error.strerror)

    def recorded(self, state: State, found: Sequence[Fact]) -> None:
        if any(isinstance(fact, CHANGES) for fact in found):
            self._changed = time.monotonic()
        for fact in found:
            match fact:
                case facts.JobSubmitted(id=job, more=more):
                    self._newest = job + len(more)
                case facts.TasksStarted(at=at, job=jobs) if self._calibration:
                    with self._lock:
                        for job in np.unique(jobs).tolist():
                            within = self._calibration.started(job, at)
                            if within is not None:
                                metrics.outlooks.labels("yes" if within else "no").inc()
                case facts.JobHeld(id=job) | facts.JobCancelled(id=job, indices=None):
                    with self._lock:
                        self._calibration.forget(job)

    async def of_job(self, loop: Loop, job: int) -> Outlook:
        """Predict the start of a job. Raises Unknown, Busy."""

        def find(state: State, now: float, calibration: Calibration, seconds: float) -> Outlook:
            found = outlook(state, job, now, calibration, seconds)
            with self._lock:
                calibration.record(found, now)
            return found

        # A prediction may be FRESH_SECONDS old, but whether the job has ended must be current.
        known = await asyncio.wrap_future(loop.ask(lambda state, _: ([], settled(state, job))))
        return known or await self.find(loop, job, find, job)

    async def find(self, loop: Loop, key: Hashable, find: Find, last: int = 0) -> Outlook:
        """Answer a question from a copy of the state that includes job `last`; cached by `key`.

        Raises what `find` raises, and Busy.
        """
        self._found = {key: old for key, old in self._found.items() if self._is_fresh(old[0])}
        if key not in self._found:
            if self._waiting == MOST_ASKED:
                raise Busy(f"{MOST_ASKED} other predictions are being made already: try again in a moment")
            self._waiting += 1
            self._found[key] = time.monotonic(), asyncio.ensure_future(self._find(loop, find, last))
        return await asyncio.shield(self._found[key][1])

    def _is_fresh(self, made: float) -> bool:
        return made > max(self._changed, time.monotonic() - FRESH_SECONDS)

    async def _find(self, loop: Loop, find: Find, last: int) -> Outlook:
        try:
            state, now = await self._state(loop, last)
            seconds = ANSWER_SECONDS + PER_TASK_SECONDS * int(state.jobs.waiting[: state.jobs.n].sum())
            running = asyncio.get_running_loop()
            return await running.run_in_executor(self._worker, find, state, now, self._calibration, seconds)
        finally:
            self._waiting -= 1

    async def _state(self, loop: Loop, last: int) -> tuple[State, float]:
        """Return a fresh copy of the state that includes a job, and its time."""
        if self._copy is not None and self._is_fresh(self._copy[0]):
            state, now = await asyncio.shield(self._copy[1])
            if state.index.last >= last:
                return state, now
        answer = loop.ask(lambda state, now: ([], (copy_of(state), now)))
        self._copy = time.monotonic(), asyncio.wrap_future(answer)
        return await asyncio.shield(self._copy[1])

    async def learn(self, loop: Loop) -> None:
        """Predict a new job now and then, for ever."""
        seen, pause = 0, LEARN_SECONDS
        while True:
            await asyncio.sleep(pause)
            begin = time.monotonic()
            if self._newest != seen:
                seen = self._newest
                with suppress(Refused, Busy):  # forgotten, or too busy
                    await self.of_job(loop, seen)
            pause = max(LEARN_SECONDS, (time.monotonic() - begin) / LEARN_SHARE)
            await asyncio.to_thread(self.keep)

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)
        self.keep()
