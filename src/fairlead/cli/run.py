"""`fairlead run` while its task runs: connects this terminal to the task, and cancels the job when it is interrupted.

Ctrl-C, SIGTERM, SIGHUP and a closed output pipe cancel the job, and `run` waits for its end. If `run` is killed with SIGKILL, a
helper process cancels the job.
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
from fairlead.cli.waiting import WaitingLine
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.client.standard_input import InputLost, Kind, StandardInput, TerminalGone

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CANCEL_RETRY_SECONDS = 60.0
"""Time for which the helper process retries a cancellation while the scheduler does not answer."""


class Interrupted(Exception):
    """A signal that ends the task has arrived."""

    def __init__(self, number: int) -> None:
        self.number = number


class Signals:
    """Raises Interrupted for signals once the job is known; a first signal before that is kept until then."""

    def __init__(self) -> None:
        self._job_known, self._pending = False, 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        raises, self._pending = self._job_known or bool(self._pending), number
        if raises:
            raise Interrupted(number)

    def check(self) -> None:
        """Raise Interrupted if a signal has arrived, at each call: a finalizer may have swallowed the first."""
        self._job_known = True
        if self._pending:
            raise Interrupted(self._pending)


@contextlib.contextmanager
def catch_signals() -> Iterator[Signals]:
    """Catch the signals of `ENDING`, except those already ignored, as by `nohup`."""
    signals = Signals()
    before = {number: signal.getsignal(number) for number in ENDING if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, signals.handle)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def cancel_if_killed() -> Iterator[Callable[[int], None]]:
    """Cancel a job if this process dies before the block ends; yield the function that names the job.

    A helper process waits at the other end of a pipe. It does not connect to the scheduler meanwhile, so the scheduler may
    restart and this process may be stopped and continued. It ignores the signals that end this process.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            for number in (*ENDING, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)
            if os.fork() == 0:
                os.close(writer)
                _wait_and_cancel(reader)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(reader)
    try:
        yield lambda job: _write(writer, f"{job} ")
        _write(writer, "over")
    finally:
        os.close(writer)


def _write(writer: int, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the helper was killed
        os.write(writer, text.encode())


def _wait_and_cancel(reader: int) -> None:
    """Wait until the pipe closes, then cancel the named job unless "over" was written."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # callers may wait for these to close
        os.dup2(null, fd)
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd not in {0, 1, 2, reader}:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(fd)
    words = b"".join(iter(partial(os.read, reader, 64), b"")).split()
    until = time.monotonic() + CANCEL_RETRY_SECONDS
    while len(words) == 1 and time.monotonic() < until:
        try:
            with connect() as connection:
                connection.post(f"/v1/jobs/{int(words[0])}/cancel", {})
            return
        except ServiceError as error:
            if error.status not in (None, 429, 503):  # the job is no longer known
                return
            time.sleep(0.5)


def follow(connection: Connection, job: int, kind: Kind, signals: Signals) -> dict[str, Any]:
    """Connect this terminal to the task until it ends, and return the task. Exits if the job is cancelled from here."""
    output = TaskOutput(connection, job, 0)
    try:
        signals.check()
        with StandardInput(connection, job, kind) as given, _resizes(given, kind), WaitingLine(connection, job) as waiting:

            def on_poll(task: dict[str, Any]) -> None:
                signals.check()
                if _output_closed():
                    raise Interrupted(signal.SIGPIPE)
                given.update(task)
                waiting.update(task)

            return output.copy(follow=True, on_poll=on_poll)
    except BrokenPipeError:
        _end(job, output, signal.SIGPIPE)
    except TerminalGone:
        _end(job, output, signal.SIGHUP)
    except Interrupted as interrupted:
        _end(job, output, interrupted.number)
    except OutputLost:
        _cancel_and_wait(job, output)
        raise
    except InputLost:
        connection.post(f"/v1/jobs/{job}/cancel", {})
        raise Failure(
            f"job {job} was stopped, and a restart could not read the same input from a pipe again: it is cancelled"
        ) from None


def _end(job: int, output: TaskOutput, number: int) -> NoReturn:
    """Cancel the job, wait for its end, and exit with the signal's status; another signal ends the waiting.

    The signal may have arrived while a lock of the connection was held, which stays locked. So another connection is used, and
    nothing is closed.
    """
    heard = number in (signal.SIGINT, signal.SIGTERM)
    if not heard:  # nobody reads the rest of the output
        null = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2) if number == signal.SIGHUP else (1,):
            os.dup2(null, fd)
    outcome = "is being cancelled; did not wait for its end"
    with contextlib.suppress(Interrupted, OutputLost, BrokenPipeError):
        _cancel_and_wait(job, output)
        outcome = "is cancelled"
    with contextlib.suppress(OSError, ValueError, OutputLost):
        if heard:
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
    """Send the task the terminal's size whenever it changes."""
    if kind != "terminal":
        yield
        return
    before = signal.signal(signal.SIGWINCH, lambda *_: given.wake())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _output_closed() -> bool:
    """Return True if standard output is a pipe without a reader."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
