"""Handles an interrupt (Ctrl-C) wherever it arrives.

Python raises KeyboardInterrupt in the main thread, except in two places where it only reports it through `sys.unraisablehook`: in
a finalizer (`__del__`, the callback of a weak reference), and after a program's last line, while the interpreter shuts down. And
an interrupt that arrives just as a thread begins to wait for a lock does not end the wait.
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

LONGEST_WAIT_SECONDS = 0.5
"""Length of one wait in the main thread, which an interrupt at its beginning does not end."""

_at_end = list["weakref.WeakMethod[Callable[[], None]]"]()


def handle_interrupts(at_end: Callable[[], None] | None = None) -> None:
    """Raise an interrupt that hits a finalizer again, after the finalizer.

    at_end : a bound method to call if an interrupt hits the interpreter's shutdown; only a weak reference is kept
    """
    if at_end is not None:
        _at_end[:] = [each for each in _at_end if each() is not None]
        _at_end.append(weakref.WeakMethod(at_end))
    if not isinstance(sys.unraisablehook, _Hook):
        sys.unraisablehook = _Hook(sys.unraisablehook)


def wait_until(over: Callable[[float], object]) -> None:
    """Call `over(seconds)`, which waits up to that long, until it returns a true value."""
    while not over(LONGEST_WAIT_SECONDS):
        pass


class _Hook:
    """The hook that the interpreter calls with an exception that it cannot raise."""

    def __init__(self, before: Callable[[Any], Any]) -> None:
        self.before = before

    def __call__(self, args: "sys.UnraisableHookArgs") -> None:
        interrupt = args.exc_type is not None and issubclass(args.exc_type, KeyboardInterrupt)
        if not interrupt or threading.current_thread() is not threading.main_thread():
            self.before(args)
        elif sys._getframe().f_back is not None:
            _thread.start_new_thread(_interrupt_again, ())  # raised here it would be lost again
        else:  # no frame above: the program has ended
            self.before(args)
            for each in _at_end:
                end = each()
                if end is not None:
                    end()


def _interrupt_again() -> None:
    """Interrupt the main thread once it has left the hook."""
    main = threading.main_thread().ident
    assert main is not None
    while _Hook.__call__.__code__ in _running_code(main):
        time.sleep(0.001)
    signal.pthread_kill(main, signal.SIGINT)  # unlike `_thread.interrupt_main`, this also ends a wait


def _running_code(thread: int) -> Iterator[CodeType]:
    """Yield the code objects on a thread's stack."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer interrupts until the block ends; processes started in it never receive them.

    Blocking the signal is not enough: the kernel delivers it to another thread, and Python passes it to the main thread.
    """
    came = list[int]()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # new processes inherit it
    here = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if here else None
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # a pending one arrives now
        if here:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
        if came:
            signal.raise_signal(signal.SIGINT)
