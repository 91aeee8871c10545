"""Reports over past time (audits, usage), made by a separate process that reads the journal, so no step waits."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path


class ReportFailed(RuntimeError):
    """The report could not be made; the message states why."""


class ReportRunning(RuntimeError):
    """A report for this caller is being made already."""


class JournalReports:
    """Reports from one journal, one at a time.

    Parameters
    ----------
    path : Path
        The journal's file.
    clock : callable
        The scheduler's clock.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._one = asyncio.Lock()
        self._asking: set[int] = set()

    async def __call__(self, uid: int, over: float, starved_after: float) -> bytes:
        """Audit the last `over` seconds; return :class:`fairlead.model.api_types.OverTimeInfo` as JSON.

        Raises ReportFailed, ReportRunning. Cancelling the call ends the process.
        """
        return await self._one_of(uid, "over_time", over, starved_after)

    async def usage(self, uid: int, over: float, until: float, by_day: bool, by_job: bool) -> bytes:
        """Report usage of `over` seconds before `until`; :class:`fairlead.model.api_types.UsageInfo` as JSON. Raises alike."""
        return await self._one_of(uid, "usage", over, until, by_day, by_job)

    async def _one_of(self, uid: int, module: str, over: float, *more: float) -> bytes:
        if uid in self._asking:
            raise ReportRunning("a report is being made for you already: wait until it is done")
        self._asking.add(uid)
        try:
            return await self._make(module, over, *more)
        finally:
            self._asking.remove(uid)

    async def _make(self, module: str, over: float, *more: float) -> bytes:
        async with self._one:
            arguments = [str(self._path), *map(repr, (over, self._clock(), *more))]
            # Isolated from environment and folder, which anybody may control.
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-m", f"fairlead.journal.{module}", *arguments, cwd="/",
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                answer, trouble = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            if process.returncode:
                lines = trouble.decode(errors="replace").strip().splitlines() or [f"status {process.returncode}"]
                raise ReportFailed(lines[-1])
            return answer
