"""The client for asyncio: the same calls, awaited."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from fairlead.client.executor import Client
from fairlead.client.jobs import SubmittedJob
from fairlead.model.api_types import JobInfo

T = TypeVar("T")


class AsyncClient:
    """The scheduler, from an asyncio program; see :class:`fairlead.Client` for what the parameters mean.

    Examples
    --------
    >>> async with fairlead.AsyncClient() as client:      # doctest: +SKIP
    ...     await client.submit(pow, 2, 10)
    1024
    """

    def __init__(self, home: Path | str | None = None, **options: Any) -> None:
        self._client = Client(home, **options)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "asyncio.Future[T]":
        """Call a function when it is its turn; cancelling the future cancels a call that has not started."""
        return asyncio.wrap_future(self._client.submit(fn, *args, **kwargs))

    async def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **options: Any) -> AsyncIterator[T]:
        """Call a function with an element of each iterable, and give the results in order."""
        executor = self._client.executor(**options)
        futures = [asyncio.wrap_future(executor.submit(fn, *each)) for each in zip(*iterables, strict=False)]
        try:
            for future in futures:
                yield await future
        finally:
            for future in futures:
                future.cancel()

    async def submit_job(self, argv: Iterable[str], **options: Any) -> SubmittedJob:
        """Submit a command; see :meth:`fairlead.Client.submit_job`."""
        return await asyncio.to_thread(lambda: self._client.submit_job(argv, **options))

    async def wait(self, job: SubmittedJob, timeout: float | None = None) -> JobInfo:
        """Wait until a job has ended; raises TimeoutError where that takes longer than `timeout` seconds."""
        return await asyncio.to_thread(job.wait, timeout)

    async def aclose(self) -> None:
        """Wait until what was submitted has ended, and give the session back."""
        await asyncio.to_thread(self._client.shutdown)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
