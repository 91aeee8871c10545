"""An interrupt (Ctrl-C) is heeded wherever it hits.

Python raises KeyboardInterrupt between any two instructions of the main thread, but in two places only reports it and goes on: in
a finalizer (`__del__`, the callback of a weak reference), and after a program's last line, while the interpreter ends. Both
reports pass through `sys.unraisablehook`. And one that comes just as a thread begins to wait for a lock does not end the wait.
"""

import _thread
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

LONGEST_DEAF = 0.5
"""Seconds that a wait in the main thread goes on, at most, when an interrupt comes just as it begins."""

_at_end = list["weakref.WeakMethod[Callable[[], None]]"]()


def heed(at_end: Callable[[], None] | None = None) -> None:
    """Raise again, in what went on meanwhile, an interrupt that hits a finalizer.

    Parameters
    ----------
    at_end : callable, optional
        A bound method, called when an interrupt hits the interpreter while it ends; its object is not kept alive by this.
    """
    if at_end is not None:
        _at_end[:] = [each for each in _at_end if each() is not None]
        _at_end.append(weakref.WeakMethod(at_end))
    if not isinstance(sys.unraisablehook, _Hook):
        sys.unraisablehook = _Hook(sys.unraisablehook)


def wait_until(over: Callable[[float], object]) -> None:
    """Wait without end for what can be waited for for so many seconds, and tells whether it is over."""
    while not over(LONGEST_DEAF):
        pass


class _Hook:
    """What the interpreter calls with an exception that it cannot raise."""

    def __init__(self, before: Callable[[Any], Any]) -> None:
        self.before = before

    def __call__(self, told: "sys.UnraisableHookArgs") -> None:
        interrupt = told.exc_type is not None and issubclass(told.exc_type, KeyboardInterrupt)
        if not interrupt or threading.current_thread() is not threading.main_thread():
            self.before(told)
        elif sys._getframe().f_back is not None:
            _thread.start_new_thread(_interrupt_again, ())  # raised in here it would be lost again
        else:  # under no function of the program: it has ended
            self.before(told)
            for each in _at_end:
                end = each()
                if end is not None:
                    end()


def _interrupt_again() -> None:
    """Interrupt the main thread as soon as it has left the hook."""
    main = threading.main_thread().ident
    assert main is not None
    while _Hook.__call__.__code__ in _under_way(main):
        time.sleep(0.001)
    signal.pthread_kill(main, signal.SIGINT)  # ends a wait as well, which `_thread.interrupt_main` does not


def _under_way(thread: int) -> Iterator[CodeType]:
    """What a thread is in the midst of."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


@contextmanager
def put_off() -> Iterator[None]:
    """Let interrupts wait for the end of this; processes started meanwhile never hear of them.

    Blocking the signal would not do: the kernel hands it to another thread, and Python to the main one.
    """
    came = list[int]()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # what is started inherits it
    here = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if here else None
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # one that waited comes now
        if here:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
        if came:
            signal.raise_signal(signal.SIGINT)
