"""Runs many calls of a function on all cores, in processes that end with the calling program."""

import ctypes
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from fairlead.interrupts import LONGEST_WAIT_SECONDS, defer_interrupts


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, for whatever reason."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


_shared: list[Any] = []
"""In a worker process: the arguments that all calls share."""


def _begin(parent: int, shared: int) -> None:
    """Begin as a worker of this parent, which has the arguments that all calls share in an open file."""
    end_with(parent)
    with Path(f"/proc/{parent}/fd/{shared}").open("rb") as file:
        _shared[:] = pickle.load(file)  # noqa: S301 from the parent


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*_shared, *arguments)


def on_all_cores(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], workers: int | None = None, shared: Sequence[Any] = ()
) -> Iterator[tuple[int, Any]]:
    """Run all calls; yield the index and the result of each, as they finish.

    `shared` comes before the arguments of each call; a process gets it once.

    An interrupt, an exception of a call, closing the generator early, or the end of this process kills the worker processes.
    """
    if not calls:
        return
    with os.fdopen(os.memfd_create("shared"), "wb") as file:  # through pipes, each start would wait for the last reader
        pickle.dump(shared, file, pickle.HIGHEST_PROTOCOL)
        file.flush()
        yield from _on_all_cores(function, calls, min(workers or cores(), len(calls)), file.fileno())


def _on_all_cores(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], workers: int, shared: int
) -> Iterator[tuple[int, Any]]:
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=(os.getpid(), shared))
    try:
        with defer_interrupts():  # processes start here, all of them, and leave interrupts to this one
            running = {pool.submit(_call, function, arguments): index for index, arguments in enumerate(calls)}
        finished = SimpleQueue[Future[Any]]()
        for future in running:
            future.add_done_callback(finished.put)
        while running:
            try:
                future = finished.get(timeout=LONGEST_WAIT_SECONDS)
            except Empty:  # not `as_completed`: an interrupt that arrives as its wait begins does not end it
                continue
            yield running.pop(future), future.result()
        pool.shutdown()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(cancel_futures=True)  # waits for the pool's thread, which would complain during the interpreter's shutdown
        raise
