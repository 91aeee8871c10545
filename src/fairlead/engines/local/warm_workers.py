"""Workers: processes that call Python functions one after another, and stay warm between calls.

A worker serves one pool of one person: a session, queue and shape. It runs as that person; nobody else's process unpickles
their data. An idle worker is stopped (SIGSTOP) with all its threads, since its CPU time would be charged to no task; if the
person resumes it by other means, it is ended. Its program is :mod:`fairlead.calls.worker`. It gets the session's folder and
each task's output files as open descriptors, because the folders above are closed to people.
"""

import errno
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead.calls import worker as worker_program
from fairlead.descriptors import opened
from fairlead.engines.local.child import ProcessSpec
from fairlead.engines.local.messages import Call, Person, Program, read_program
from fairlead.engines.local.process_groups import ProcessGroup, ProcessGroups, signal_group, since_boot

IDLE_FOR = 60.0
"""Seconds that a worker waits for another call."""
MOST_IDLE = 4 * (os.cpu_count() or 1)
ELSEWHERE = "elsewhere"
"""Argument of a worker on another machine than its program."""
MOST_IDLE_CPU = 100
"""Milliseconds of CPU that an idle worker may use before it has stopped."""


class Worker:
    """One worker. `answer` is the status of its last call, None while it runs; `answered_at` is when it came."""

    def __init__(self, call: Call, person: Person | None, line: socket.socket, group: ProcessGroup) -> None:
        self.pool, self.person, self.session = call.pool, person, call.session
        self.line, self.group = line, group
        self.answer: int | None = None
        self.answered_at = 0
        self.idle_since, self.used = 0.0, 0  # start of idling, and CPU used until then

    def call(self, message: dict[str, Any], files: list[int]) -> None:
        """Call a function; its output goes to `files`."""
        self.answer = None
        try:
            socket.send_fds(self.line, [json.dumps(message).encode()], files)
        except BlockingIOError:  # it does not read its messages: nobody waits for that
            signal_group(self.group, signal.SIGKILL)
        except OSError:  # it ended, which is handled when it is reaped
            pass


class WarmWorkers:
    """All workers, idle and busy."""

    def __init__(self, groups: ProcessGroups, selector: selectors.BaseSelector) -> None:
        self._groups, self._selector = groups, selector
        self._by_pid: dict[int, Worker] = {}
        self._idle: list[Worker] = []  # longest idle first
        self._made = 0

    def exist(self) -> bool:
        return bool(self._by_pid)

    def are_idle(self) -> bool:
        """Return whether any waits for a call."""
        return bool(self._idle)

    def take(self, pool: str, person: Person | None) -> Worker | None:
        """Take the most recently used worker of a person's pool; raises OSError if its CPU time cannot be read now."""
        for worker in reversed(self._idle):
            if (worker.pool, worker.person) == (pool, person):
                worker.used = self._groups.used(worker.group).cpu
                self._idle.remove(worker)
                signal_group(worker.group, signal.SIGCONT)
                return worker
        return None

    def start(self, call: Call, given: ProcessSpec, then: Callable[[Program], None]) -> Worker:
        """Start a worker by its session's setup; the rest is as in :meth:`ProcessGroups.fork`."""
        try:
            program = read_program(Path(call.session, "setup.json").read_text())
        except ValueError as error:
            raise OSError(errno.EINVAL, f"{call.session}/setup.json: {error}") from None
        if call.fetched:
            program = _elsewhere(program)
        self._made += 1
        line, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        line.setblocking(False)
        try:
            with theirs, opened(call.session, os.O_PATH | os.O_DIRECTORY) as folder:
                group = self._groups.fork(f"worker.{self._made}", program, given, then, _never, [theirs.fileno(), folder])
        except OSError:
            line.close()
            raise
        worker = self._by_pid[group.pid] = Worker(call, given.person, line, group)
        self._selector.register(line, selectors.EVENT_READ, lambda: self._hear(worker))
        return worker

    def keep(self, worker: Worker) -> bool:
        """Keep a worker for another call, if there is room and its session is open. Return whether it is kept."""
        if worker.line.fileno() < 0 or len(self._idle) >= MOST_IDLE or not _is_open(worker.session):
            return False
        worker.idle_since, worker.used = time.monotonic(), self._groups.used(worker.group).cpu
        signal_group(worker.group, signal.SIGSTOP)
        self._idle.append(worker)
        return True

    def watch(self) -> None:
        """End those that waited too long, do not stand still, or whose session was closed."""
        now = time.monotonic()
        over = [w for w in self._idle if now - w.idle_since > IDLE_FOR or not self._is_stopped(w) or not _is_open(w.session)]
        self.dismiss(over)

    def ended(self, group: ProcessGroup) -> None:
        """Handle the end of a group's first process: if it was a worker, it takes no more calls."""
        worker = self._by_pid.pop(group.pid, None)
        if worker is not None:
            self._hang_up_on(worker)
            if worker in self._idle:
                self._idle.remove(worker)
                self._groups.bury(group)

    def _is_stopped(self, worker: Worker) -> bool:
        return self._groups.used(worker.group).cpu - worker.used <= MOST_IDLE_CPU

    def dismiss(self, workers: list[Worker] | None = None) -> None:
        """End idle workers, by default all."""
        for worker in list(self._idle if workers is None else workers):
            self._hang_up_on(worker)
            self._groups.kill(worker.group)
            self._idle.remove(worker)
            self._groups.bury(worker.group)

    def _hear(self, worker: Worker) -> None:
        try:
            answer = worker.line.recv(64)
        except OSError:
            answer = b""
        if answer in (b"0\n", b"1\n"):
            worker.answer, worker.answered_at = int(answer), since_boot()
            return
        if answer:  # its function wrote to the socket: later answers cannot be trusted
            worker.answer, worker.answered_at = 1, since_boot()
        self._hang_up_on(worker)

    def _hang_up_on(self, worker: Worker) -> None:
        if worker.line.fileno() >= 0:
            self._selector.unregister(worker.line)
            worker.line.close()


def _elsewhere(program: Program) -> Program:
    """Return the program of a worker on another machine: the program's own interpreter if it exists, else fairlead's here."""
    own = [sys.executable, "-P", worker_program.__file__]
    python, *_, script = program.argv
    argv = program.argv if os.path.exists(python) and os.path.exists(script) else own
    return program._replace(argv=[*argv, ELSEWHERE], cwd="/")


def _never(error: OSError) -> None:
    raise AssertionError("a worker is forked at once") from error


def _is_open(session: str) -> bool:
    return os.path.exists(f"{session}/setup.json")
