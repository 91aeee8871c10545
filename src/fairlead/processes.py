"""Many calls of one function on all cores, in processes of their own, which end with the program that waits for them."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from fairlead.interrupts import put_off


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have the kernel kill this process when the one that started it ends, however it does."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before that
        os._exit(1)


def on_all_cores(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], workers: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Make all the calls; gives the place of each with its result, as they come.

    An interrupt, an exception of a call, or not asking for the rest, kills the processes, and so does whatever kills this
    one: none goes on unheard.
    """
    if not calls:
        return
    pool = ProcessPoolExecutor(
        min(workers or cores(), len(calls)), get_context("spawn"), initializer=end_with, initargs=(os.getpid(),)
    )
    try:
        with put_off():  # the processes are started here: not half, and with interrupts left to this one
            running = {pool.submit(function, *arguments): place for place, arguments in enumerate(calls)}
        for future in as_completed(running):
            yield running[future], future.result()
        pool.shutdown()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(cancel_futures=True)  # waits for its thread: one that ends beside the interpreter complains
        raise
