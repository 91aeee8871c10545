"""`fairlead run` while its task runs: what is read and written here is the task's, and it ends with whoever ran it.

It is cancelled by Ctrl-C, SIGTERM and SIGHUP, and when nobody reads its output any more; then its end is waited for. Where this
process can do nothing any more, since it was killed, another one does that for it.
"""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from fairlead.cli.failure import Failure
from fairlead.cli.output import TaskOutput
from fairlead.cli.scheduler import connect
from fairlead.cli.streams import OutputLost
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.client.standard_input import InputLost, Kind, StandardInput, TerminalGone

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RETURNS_WITHIN = 60.0
"""Seconds in which a scheduler that does not answer may come back, to be told that a run was killed."""


class Told(Exception):
    """A signal came, which means that the task is to end."""

    def __init__(self, number: int) -> None:
        self.number = number


class Signals:
    """Has the signals that end a run raise Told, once it is known what is to be ended; before, a first one waits for that."""

    def __init__(self) -> None:
        self._known, self._came = False, 0

    def hear(self, number: int, frame: FrameType | None) -> None:
        again, self._came = self._known or bool(self._came), number
        if again:
            raise Told(number)

    def let_through(self) -> None:
        """From now on, what came and what comes is raised; again and again, for a finalizer may swallow it."""
        self._known = True
        if self._came:
            raise Told(self._came)


@contextlib.contextmanager
def heard_signals() -> Iterator[Signals]:
    """Hear those that are not ignored already, as by `nohup`."""
    signals = Signals()
    before = {number: signal.getsignal(number) for number in ENDING if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, signals.hear)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def guarded() -> Iterator[Callable[[int], None]]:
    """Have a job cancelled once this process is gone, however it went, but where all went well; gives what names the job.

    A process apart waits for that, at the other end of a pipe. It has nothing to do with the scheduler meanwhile, so that may be
    restarted, and this process may be stopped and go on. What tells this process to end tells that one nothing: it ends after it.
    """
    ear, mouth = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            os.setsid()
            for number in (*ENDING, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)
            if os.fork() == 0:
                os.close(mouth)
                _wait_and_cancel(ear)
        finally:
            os._exit(0)
    os.waitpid(between, 0)
    os.close(ear)
    try:
        yield lambda job: _say(mouth, f"{job} ")
        _say(mouth, "over")
    finally:
        os.close(mouth)


def _say(mouth: int, words: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # who would hear it was killed
        os.write(mouth, words.encode())


def _wait_and_cancel(ear: int) -> None:
    """Cancel the job that was named, unless it was said that it is over, once nobody can say more."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # others wait for the end of these
        os.dup2(null, fd)
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd not in {0, 1, 2, ear}:
            with contextlib.suppress(OSError):  # it was that of the listing
                os.close(fd)
    said = b"".join(iter(partial(os.read, ear, 64), b"")).split()
    until = time.monotonic() + RETURNS_WITHIN
    while len(said) == 1 and time.monotonic() < until:
        try:
            with connect() as connection:
                connection.post(f"/v1/jobs/{int(said[0])}/cancel", {})
            return
        except ServiceError as error:
            if error.status not in (None, 429, 503):  # it is not known any more
                return
            time.sleep(0.5)


def follow(connection: Connection, job: int, kind: Kind, signals: Signals) -> dict[str, Any]:
    """Be the task's terminal until it is over; the task as it is then. Exits where it was ended from here."""
    output = TaskOutput(connection, job, 0)
    try:
        signals.let_through()
        with StandardInput(connection, job, kind) as given, _resizes(given, kind):

            def look(task: dict[str, Any]) -> None:
                signals.let_through()
                if _reader_has_gone():
                    raise Told(signal.SIGPIPE)
                given.look(task)

            return output.copy(follow=True, look=look)
    except BrokenPipeError:
        _end(job, output, signal.SIGPIPE)
    except TerminalGone:
        _end(job, output, signal.SIGHUP)
    except Told as told:
        _end(job, output, told.number)
    except OutputLost:
        _cancel_and_wait(job, output)
        raise
    except InputLost:
        connection.post(f"/v1/jobs/{job}/cancel", {})
        raise Failure(
            f"job {job} was stopped and is to start again, but what it had read of a pipe is gone: it is cancelled"
        ) from None


def _end(job: int, output: TaskOutput, number: int) -> NoReturn:
    """Cancel the job, wait for its end, and exit as one does for a signal; another signal ends the waiting.

    A signal may have come while the connection's lock was held, which nobody gives back then: so there is another connection,
    and nothing is closed on the way out.
    """
    told = number in (signal.SIGINT, signal.SIGTERM)
    if not told:  # nobody reads what would still come
        null = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2) if number == signal.SIGHUP else (1,):
            os.dup2(null, fd)
    outcome = "is being cancelled, and its end was not waited for"
    with contextlib.suppress(Told, OutputLost, BrokenPipeError):
        _cancel_and_wait(job, output)
        outcome = "is cancelled"
    with contextlib.suppress(OSError, ValueError, OutputLost):
        if told:
            print(f"fairlead: job {job} {outcome}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(128 + number)


def _cancel_and_wait(job: int, output: TaskOutput) -> None:
    connection = connect()
    connection.post(f"/v1/jobs/{job}/cancel", {})
    output.over(connection).copy(follow=True)


@contextlib.contextmanager
def _resizes(given: StandardInput, kind: Kind) -> Iterator[None]:
    """While a terminal is handed on, its size is."""
    if kind != "terminal":
        yield
        return
    before = signal.signal(signal.SIGWINCH, lambda *_: given.ring())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _reader_has_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
