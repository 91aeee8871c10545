"""Reports over past time (audits, usage), made by a separate process that reads the journal, so no step waits."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from fairlead.people.rules import Caller
from fairlead.service.api.state_client import OnePerPerson


class ReportFailed(RuntimeError):
    """The report could not be made; the message states why."""


class JournalReports:
    """Reports from one journal, one at a time."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._one = asyncio.Lock()
        self._one_each = OnePerPerson("a report is being made for you already")

    async def __call__(self, caller: Caller, report: Literal["over-time", "usage"], over: float, *more: float) -> Any:
        """Make a report on `over` seconds, with what more :mod:`fairlead.journal.separate` needs for it.

        Audited over time, the last seconds are an :class:`fairlead.model.api_types.OverTimeInfo`; usage of seconds before a time
        is a :class:`fairlead.model.api_types.UsageInfo`. Raises ReportFailed, Busy. Cancelling the call ends the process.
        """
        with self._one_each.of(caller):
            async with self._one:
                arguments = [report, str(self._path), *map(json.dumps, (over, self._clock(), *more))]
                # Isolated from environment and folder, which anybody may control.
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", "-m", "fairlead.journal.separate", *arguments, cwd="/",
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
                return msgspec.json.decode(answer)
