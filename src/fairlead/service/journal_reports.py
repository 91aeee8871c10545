"""Reports over past time (audits, usage), made by a separate process that reads the journal, so no step waits."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from fairlead.people.rules import Caller
from fairlead.service.api.state_client import OnePerPerson


class ReportFailed(RuntimeError):
    """The report could not be made; the message states why."""


class JournalReports:
    """Reports from one journal, one at a time.

    path : the journal's file
    clock : the scheduler's clock
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._one = asyncio.Lock()
        self._one_each = OnePerPerson("a report is being made for you already")

    async def __call__(self, caller: Caller, over: float, starved_after: float) -> bytes:
        """Audit the last `over` seconds; return :class:`fairlead.model.api_types.OverTimeInfo` as JSON.

        Raises ReportFailed, Busy. Cancelling the call ends the process.
        """
        return await self._one_of(caller, "over-time", over, starved_after)

    async def usage(self, caller: Caller, over: float, until: float, by_day: bool, by_job: bool) -> bytes:
        """Report usage of `over` seconds before `until`; :class:`fairlead.model.api_types.UsageInfo` as JSON. Raises alike."""
        return await self._one_of(caller, "usage", over, until, by_day, by_job)

    async def _one_of(self, caller: Caller, report: str, over: float, *more: float) -> bytes:
        with self._one_each.of(caller):
            return await self._make(report, over, *more)

    async def _make(self, report: str, over: float, *more: float) -> bytes:
        async with self._one:
            arguments = [report, str(self._path), *map(json.dumps, (over, self._clock(), *more))]
            # Isolated from environment and folder, which anybody may control.
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-m", "fairlead.journal.reports", *arguments, cwd="/",
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
