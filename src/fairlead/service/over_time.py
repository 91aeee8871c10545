"""Looking back on what ran live, for audits and for usage: a process of its own reads the journal, so that no step waits."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path


class AuditFailed(RuntimeError):
    """It could not be made; the message says why."""


class OneAtATime(RuntimeError):
    """Somebody asks for another while theirs is made."""


class Audits:
    """Audits of one journal, one at a time.

    Parameters
    ----------
    path : Path
        The journal's file.
    clock : callable
        The scheduler's: seconds as in its facts.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._one = asyncio.Lock()
        self._asking: set[int] = set()

    async def __call__(self, uid: int, over: float, starved_after: float) -> bytes:
        """The last so many seconds, as JSON, for somebody: :class:`fairlead.model.api_types.OverTimeInfo`.

        Raises AuditFailed, OneAtATime. The process ends with whoever waits for it.
        """
        return await self._one_of(uid, "over_time", over, starved_after)

    async def usage(self, uid: int, over: float) -> bytes:
        """What was used in the last so many seconds, as JSON: :class:`fairlead.model.api_types.UsageInfo`; raises alike."""
        return await self._one_of(uid, "usage", over)

    async def _one_of(self, uid: int, module: str, over: float, *more: float) -> bytes:
        if uid in self._asking:
            raise OneAtATime("the journal is looked through for you already: wait until that is done")
        self._asking.add(uid)
        try:
            return await self._make(module, over, *more)
        finally:
            self._asking.remove(uid)

    async def _make(self, module: str, over: float, *more: float) -> bytes:
        async with self._one:
            arguments = [str(self._path), *map(repr, (over, self._clock(), *more))]
            # Without what a folder or the environment may bring in: what is there may be anybody's.
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
                raise AuditFailed(lines[-1])
            return answer
