"""The client for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from fairlead.client.call_future import CallFuture
from fairlead.client.executor import Client
from fairlead.client.jobs import SubmittedJob
from fairlead.client.options import CallOptions, names_options
from fairlead.model.api_types import JobInfo

T = TypeVar("T")


class AsyncClient:
    """A client of the scheduler for asyncio programs. See :class:`fairlead.Client` for the parameters.

    Examples
    --------
    >>> async with fairlead.AsyncClient() as client:      # doctest: +SKIP
    ...     await client.submit(pow, 2, 10)
    1024
    """

    @names_options
    def __init__(
        self,
        home: Path | str | None = None,
        *,
        working_dir: Path | str | None = None,
        progress: bool = False,
        preload: Sequence[str] = (),
        **options: Unpack[CallOptions],
    ) -> None:
        self._client = Client(home, working_dir=working_dir, progress=progress, preload=preload, **options)

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
        """Call a function as a task, and return its result. Cancelling the awaiting asyncio task stops the call.

        See :meth:`fairlead.Client.submit` for the options.
        """
        future = self._client.submit(fn, *args, cpu=cpu, memory=memory, gpu=gpu, queue=queue, **kwargs)
        return await self._result(future)

    @names_options
    async def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **options: Unpack[CallOptions]) -> AsyncIterator[T]:
        """Call a function with an element of each iterable; yield the results in order. Leaving the loop stops the rest."""
        caller, call_options = self._client._caller, replace(self._client.options, **options)
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        elements = zip(*iterables, strict=False)
        if call_options.are_counted():
            futures = [caller.call(call_options, fn, each, {}) for each in elements]
            try:
                for future in futures:
                    yield await self._result(future)
            finally:
                caller.stop_all(futures)
            return

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(arrived.set)

        mapped = caller.map(call_options, fn, elements, wake)
        try:
            while not mapped.is_over():
                arrived.clear()
                for result in mapped.ready():
                    yield result
                if not mapped.is_over():
                    await arrived.wait()
        finally:
            caller.stop_all([mapped.whole])

    async def _result(self, future: CallFuture[T]) -> T:
        """Await the result of a call; stop the call if this is cancelled."""
        inner = asyncio.wrap_future(future)
        inner.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks the exception as retrieved
        try:
            return await asyncio.shield(inner)
        except asyncio.CancelledError:
            self._client._caller.stop_all([future])
            raise

    async def submit_job(self, argv: Iterable[str], **options: Any) -> SubmittedJob:
        """Submit a command; see :meth:`fairlead.Client.submit_job`."""
        return await asyncio.to_thread(lambda: self._client.submit_job(argv, **options))

    async def wait(self, job: SubmittedJob, timeout: float | None = None) -> JobInfo:
        """Wait until a job has ended. Raises TimeoutError after `timeout` seconds."""
        return await asyncio.to_thread(job.wait, timeout)

    async def aclose(self) -> None:
        """Wait until all submitted calls have ended, and close the session."""
        try:
            await asyncio.to_thread(self._client.shutdown)
        except asyncio.CancelledError:
            self._client._caller.abandon()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt | asyncio.CancelledError):
            await asyncio.to_thread(self._client._caller.abandon)
        else:
            await self.aclose()
