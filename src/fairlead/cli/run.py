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
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from fairlead.cli.output import TaskOutput
from fairlead.cli.scheduler import connect, say
from fairlead.cli.streams import OutputLost
from fairlead.cli.terminal import width
from fairlead.client import standard_input
from fairlead.client.connection import Connection
from fairlead.client.jobs import SubmittedJob
from fairlead.client.service_error import ServiceError
from fairlead.client.waiting import sentence_of_waiting
from fairlead.failure import Failure, WrongUsage
from fairlead.plain_text import plain_lines, span

if TYPE_CHECKING:
    from fairlead.cli.forwarding import Forwarder

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REASONS = {
    "out of memory": "killed for using more memory than it requested: request more with --memory",
    "output limit": "stopped: it exceeded the output limit: have it write to a file of its own",
    "time limit": "stopped at its time limit",
    "idle": "ended: it was idle: no connection, and no CPU or GPU use",
}
"""How a task ended, by the name of the reason."""
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


def run_job(options: dict[str, Any]) -> int:
    """Run a job by the options of `fairlead run`, and return its exit status. Raises Failure."""
    from fairlead.cli.forwarding import Forwarder, read_port
    from fairlead.cli.job_options import job_request, seconds
    from fairlead.cli.submitting import check_commands, fetch_files, with_sent

    if options["pty"] and not standard_input.is_terminal():
        raise Failure("standard input is not a terminal: without --pty, it is sent to the command")
    nodes = options["nodes"]
    for one in ("pty", "port"):
        if options[one] and nodes is not None:
            raise WrongUsage(f"--{one}: for one task, not one on each of several nodes: omit --nodes")
    kind: standard_input.Kind = "terminal" if options["pty"] else standard_input.kind_of_input() if nodes is None else ""
    idle = seconds("--idle", options["idle"])
    if idle == 0:
        raise WrongUsage("--idle 0: write how long, such as 30m, or omit it")
    here, there = (None, None) if options["port"] is None else read_port(options["port"])
    with connect() as connection:
        size = [*standard_input.size_of_terminal().values()] if options["pty"] else None
        body = {**job_request(options), "input": kind, "size": size, "port": there, "idle": idle or 0}
        if not options["no_check"]:
            try:
                check_commands(connection, [body], [])
            except Failure as failure:
                print(f"fairlead: {plain_lines(str(failure))}", file=sys.stderr)
                return 127  # as a shell
        forwarder = None if here is None else Forwarder(connection, here)
        (body,) = with_sent(connection, [body], [options])
        with cancel_if_killed() as guard, catch_signals() as signals:
            answer = connection.submit("/v1/jobs", body)
            job = answer["id"]
            guard(job)
            say(answer["warning"])
            task = _follow(connection, job, kind, signals, forwarder, nodes is not None)
        if options["fetch"] and task["status"] == "succeeded":
            tasks = SubmittedJob(connection, job).tasks()
            say(fetch_files(connection, job, {Path() if nodes is None else Path(str(each["known_as"])): each for each in tasks}))
    if task["reason"] not in (None, "exited", "stopped", "not started"):
        say(f"job {job}: {_reason(task)}")
    return task["exit"] if task["exit"] is not None else 130


def attach(connection: Connection, job: int, index: int, command: list[str]) -> int:
    """Run a command in a task; return its exit status. Raises Failure if the task ended first."""
    from fairlead.client.streams import Stream

    kind = "terminal" if standard_input.is_terminal() and sys.stdout.isatty() else standard_input.kind_of_input()
    program: dict[str, Any] = {"argv": command}
    if kind == "terminal":
        program |= {"env": {"TERM": os.environ.get("TERM", "dumb")}, "size": [*standard_input.size_of_terminal().values()]}
    status: int | None = None
    with catch_signals() as signals:
        stream = Stream(connection, job, index, **program)
        try:
            signals.check()
            given = standard_input.StandardInput(connection, job, kind, index, stream=stream.id)
            with closing(given), _resizes(given, kind):
                given.update({"status": "running", "attempt": stream.attempt})
                if not kind:
                    stream.send(b"")
                for out, err, code in stream.pieces():
                    status = code
                    for data, target in ((out, sys.stdout), (err, sys.stderr)):
                        target.buffer.write(data)
                        target.flush()
        except Interrupted as interrupted:
            return 128 + interrupted.number
        except (standard_input.TerminalGone, BrokenPipeError) as gone:
            return 128 + (signal.SIGPIPE if isinstance(gone, BrokenPipeError) else signal.SIGHUP)
        finally:
            stream.close()
    if status is None:
        raise Failure("the task has ended")
    return status


def _reason(task: dict[str, Any]) -> str:
    if task["reason"] == "signalled":
        return f"ended by signal {task['exit'] - 128}"
    return REASONS.get(task["reason"], str(task["reason"]))


def _follow(
    connection: Connection, job: int, kind: standard_input.Kind, signals: Signals, forwarder: "Forwarder | None", gang: bool
) -> dict[str, Any]:
    """Connect this terminal to the task until it ends, and return the task; of a gang, the first that failed, once all ended.

    Exits if the job is cancelled from here.
    """
    output = TaskOutput(connection, job, 0)
    try:
        signals.check()
        with (
            closing(standard_input.StandardInput(connection, job, kind)) as given,
            _resizes(given, kind),
            closing(WaitingLine(connection, job)) as waiting,
        ):

            def on_poll(task: dict[str, Any]) -> None:
                signals.check()
                if _output_closed():
                    raise Interrupted(signal.SIGPIPE)
                given.update(task)
                waiting.update(task)
                if forwarder is not None:
                    forwarder.begin(task, job)

            task = output.copy(follow=True, on_poll=on_poll)
            if gang:
                SubmittedJob(connection, job).wait()
                failed = connection.get(f"/v1/jobs/{job}/tasks", status="failed", limit=1)["tasks"]
                task = failed[0] if failed else task
            return task
    except BrokenPipeError:
        _end(job, output, signal.SIGPIPE)
    except standard_input.TerminalGone:
        _end(job, output, signal.SIGHUP)
    except Interrupted as interrupted:
        _end(job, output, interrupted.number)
    except OutputLost:
        _cancel_and_wait(job, output)
        raise
    except standard_input.InputLost:
        connection.post(f"/v1/jobs/{job}/cancel", {})
        message = f"job {job} was stopped, and a restart could not read the same input from a pipe again: it is cancelled"
        raise Failure(message) from None


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
            say(f"job {job} {outcome}")
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(128 + number)


def _cancel_and_wait(job: int, output: TaskOutput) -> None:
    output.connection = connect()
    output.connection.post(f"/v1/jobs/{job}/cancel", {})
    output.copy(follow=True)


@contextlib.contextmanager
def _resizes(given: standard_input.StandardInput, kind: standard_input.Kind) -> Iterator[None]:
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


FIRST_SECONDS = 1.0
"""A job that starts sooner is not said to wait."""
REFRESH_SECONDS = 5.0
"""Time between questions why and until when; the line shows the seconds meanwhile."""


class WaitingLine:
    """The line about one job; `update` is called with its task at each poll."""

    def __init__(self, connection: Connection, job: int) -> None:
        self._connection, self._job = connection, job
        self._since, self._asked, self._drawn = time.monotonic(), 0.0, 0.0
        self._text = ""

    def update(self, task: dict[str, Any]) -> None:
        """Show the line if the task has waited for a second; remove it once the task starts."""
        now = time.monotonic()
        if task["status"] not in ("none", "waiting"):
            self.close()
            self._since = now  # it may be preempted, and wait again
            return
        if now - self._since < FIRST_SECONDS:
            return
        if not sys.stderr.isatty():
            if not self._text:
                self._text = sentence_of_waiting(self._connection, self._job)
                say(self._text)
            return
        if now - self._asked >= REFRESH_SECONDS:
            self._text, self._asked, self._drawn = sentence_of_waiting(self._connection, self._job), now, 0.0
        if now - self._drawn >= 1.0:
            line = f"fairlead: {span(now - self._since)}: {self._text}"
            most = width() - 1
            shown = line if len(line) <= most else line[: most - 1] + "…"
            print(f"\r\033[K{shown}", end="", file=sys.stderr, flush=True)
            self._drawn = now

    def close(self) -> None:
        if self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._drawn = self._asked = 0.0
