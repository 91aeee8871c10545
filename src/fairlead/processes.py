"""Runs many calls of a function on all cores, in processes that end with the calling program."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from fairlead.interrupts import defer_interrupts


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, for whatever reason."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


def on_all_cores(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], workers: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Run all calls; yield the index and the result of each, as they finish.

    An interrupt, an exception of a call, closing the generator early, or the end of this process kills the worker processes.
    """
    if not calls:
        return
    pool = ProcessPoolExecutor(
        min(workers or cores(), len(calls)), get_context("spawn"), initializer=end_with, initargs=(os.getpid(),)
    )
    try:
        with defer_interrupts():  # processes start here, all of them, and leave interrupts to this one
            running = {pool.submit(function, *arguments): index for index, arguments in enumerate(calls)}
        for future in as_completed(running):
            yield running[future], future.result()
        pool.shutdown()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(
            cancel_futures=True
        )  # waits for the pool's thread, which would complain during the interpreter's shutdown
        raise
