"""The client for asyncio: the same calls, awaited."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from fairlead.client.calls_under_way import CallFuture
from fairlead.client.executor import Client
from fairlead.client.jobs import SubmittedJob
from fairlead.client.options import Asked, names_options
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

    @names_options
    def __init__(
        self, home: Path | str | None = None, *, working_dir: Path | str | None = None, **options: Unpack[Asked]
    ) -> None:
        self._client = Client(home, working_dir=working_dir, **options)

    async def submit(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        cpu: float | str | None = None,
        memory: float | str | None = None,
        gpu: int | None = None,
        queue: str | None = None,
        **kwargs: Any,
    ) -> T:
        """Call a function when it is its turn, and give what it returns. A task that is cancelled while it waits stops the call.

        See :meth:`fairlead.Client.submit` for what can be asked for.
        """
        future = self._client.submit(fn, *args, cpu=cpu, memory=memory, gpu=gpu, queue=queue, **kwargs)
        return await self._result(future)

    @names_options
    async def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **options: Unpack[Asked]) -> AsyncIterator[T]:
        """Call a function with an element of each iterable, and give the results in order. Who goes on no more stops the rest."""
        caller, asked = self._client._caller, replace(self._client.options, **options)
        futures = [caller.call(asked, fn, each, {}) for each in zip(*iterables, strict=False)]
        try:
            for future in futures:
                yield await self._result(future)
        finally:
            caller.stop_all(futures)

    async def _result(self, future: CallFuture[T]) -> T:
        """What a call comes to; it is stopped where nobody waits for that any more."""
        inner = asyncio.wrap_future(future)
        inner.add_done_callback(lambda done: done.cancelled() or done.exception())  # so that it counts as seen
        try:
            return await asyncio.shield(inner)
        except asyncio.CancelledError:
            self._client._caller.stop_all([future])
            raise

    async def submit_job(self, argv: Iterable[str], **options: Any) -> SubmittedJob:
        """Submit a command; see :meth:`fairlead.Client.submit_job`."""
        return await asyncio.to_thread(lambda: self._client.submit_job(argv, **options))

    async def wait(self, job: SubmittedJob, timeout: float | None = None) -> JobInfo:
        """Wait until a job has ended; raises TimeoutError where that takes longer than `timeout` seconds."""
        return await asyncio.to_thread(job.wait, timeout)

    async def aclose(self) -> None:
        """Wait until what was submitted has ended, and give the session back."""
        try:
            await asyncio.to_thread(self._client.shutdown)
        except asyncio.CancelledError:
            self._client._caller.abandon()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt | asyncio.CancelledError):
            await asyncio.to_thread(self._client._caller.abandon)
        else:
            await self.aclose()
