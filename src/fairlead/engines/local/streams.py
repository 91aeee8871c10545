"""Programs attached to running tasks, and connections to their ports: bytes both ways, in pieces.

A piece of input has an offset: a repeated one is taken once. Pieces of output are numbered: the request for the next acknowledges
the last, which is repeated until then. So a scheduler that repeats what was not answered loses nothing. Nothing is read
that was not requested, so a stream keeps one piece each way, and its other end waits. Standard library only.
"""

import base64
import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from fairlead.descriptors import closing_all
from fairlead.engines.local.child import Failure
from fairlead.engines.local.messages import Feed, OnStream, Program, Task
from fairlead.engines.local.process_groups import ProcessGroups
from fairlead.engines.local.standard_input import PIECE, Feeder, listen
from fairlead.engines.local.tasks import Running
from fairlead.sockets import listeners

SILENT = 120.0
"""Seconds after which a stream about which nobody asks is closed."""
MOST_OF_TASK, MOST = 64, 4096
"""Streams of one task, and of all."""
_REACHED = ("0100007F", 8 * "0", "00000000000000000000000001000000", 32 * "0", "0000000000000000FFFF00000100007F")
"""In the kernel's tables, the addresses by which a port of this machine is reached: 127.0.0.1, ::1, and all, as both kinds."""


class Stream(Feeder):
    """One of them; :meth:`attach` or :meth:`connect` begins it. `answer` is called with a question's number, and its answer."""

    def __init__(self, task: Task, selector: selectors.BaseSelector, answer: Callable[..., None]) -> None:
        super().__init__(selector, answer)
        self.task, self.heard_at, self.over = task, time.monotonic(), False
        self._readers: dict[int, str] = {}  # what each descriptor is: out or err
        self._line: socket.socket | None = None
        self._pid, self._begun, self._exit = 0, False, -1
        self._number, self._piece = 0, dict[str, Any]()  # the last piece of output
        self._taking = 0  # the question for the next

    def attach(self, groups: ProcessGroups, run: Running, program: Program, size: list[int]) -> None:
        """Start a program in a task's group; its input and output are pipes, or a terminal of this size. Raises OSError."""
        pairs = [os.openpty()] if size else [os.pipe2(os.O_CLOEXEC)[::-1], *(os.pipe2(os.O_CLOEXEC) for _ in range(2))]
        (self._writer, self.theirs), *more = pairs
        self._readers = {self._writer: "out"} if size else {more[0][0]: "out", more[1][0]: "err"}
        self.terminal = bool(size)
        with closing_all([their for _, their in pairs]) as theirs:
            try:
                for ours, their in pairs:
                    os.set_blocking(ours, False)
                    if run.given.person is not None:
                        os.fchown(their, run.given.person.uid, -1)
                if size:
                    self._resize(size)
                self._pid = groups.attach(run.group, program, run.given, theirs[1:], self, self._has_begun, self._has_ended)
            except OSError:
                self.close()
                raise

    def connect(self, uid: int, port: int) -> str:
        """Connect to a port of this machine on which only programs of this uid listen; return why not, or an empty string."""
        while True:  # once before it connects, and once after: the port may have changed hands between
            listeners = _listeners(port)
            if not listeners:
                wrong = f"nothing listens on its port, {port} (FAIRLEAD_PORT), yet"
            elif any(owner != uid for _, owner in listeners):
                wrong = f"its port, {port} (FAIRLEAD_PORT), belongs to another account's program"
            else:
                wrong = ""
            if wrong or self._line is not None:
                break
            host = "127.0.0.1" if any(kind == socket.AF_INET for kind, _ in listeners) else "::1"
            self._line = socket.socket(socket.AF_INET6 if host == "::1" else socket.AF_INET)
            self._line.setblocking(False)
            self._writer = self._line.fileno()
            self._readers = {self._writer: "out"}
            self._line.connect_ex((host, port))  # a failure shows when it is read
        if wrong:
            self.close()
        return wrong

    def take(self, ask: int, number: int) -> None:
        """Hand out a piece of output: the last one again, or the next one once there is one."""
        if number == self._number:
            self._answer(ask, **self._piece)
        elif number == self._number + 1:
            self._taking = ask
        self._look()

    def close(self) -> None:
        """Hang up. A program that still runs gets SIGHUP; what ignores that ends with the task."""
        self.over = True
        for fd in {self._writer, *self._readers} - {-1}:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(fd)
            if self._line is None:
                os.close(fd)
        if self._line is not None:
            self._line.close()
        self._readers, self._writer = {}, -1
        if self._pid and self._exit < 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGHUP)
                os.killpg(self._pid, signal.SIGCONT)

    def _has_begun(self, failure: Failure | None, why: str) -> None:
        self._begun = True
        if failure is not None:
            self._exit = 127 if failure.errno == 2 else 126
            self._piece = {"err": base64.b64encode(f"fairlead: {why}\n".encode("utf-8", "replace")).decode()}
        self._look()

    def _has_ended(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self._exit = self._exit if self._exit >= 0 else code if code >= 0 else 128 - code
        self._look()

    def _look(self) -> None:
        if self._taking:
            self._hand_out()
        self._write()

    def _hand_out(self) -> None:
        """Answer the question for the next piece, if there is one."""
        found, quiet = {"out": b"", "err": b""}, True
        for fd, name in list(self._readers.items()):
            try:
                found[name] = os.read(fd, PIECE)
            except BlockingIOError:
                continue
            except OSError:  # no process has the terminal open; the connection is broken
                found[name] = b""
            quiet &= not found[name]
            if not found[name]:
                self._end_of(fd)
        over = quiet and (self._begun and self._exit >= 0 if self._pid else not self._readers)
        if quiet and not over:
            return
        failure = self._piece if over and not self._number else {}
        self._number += 1
        self._piece = {name: base64.b64encode(data).decode() for name, data in found.items() if data}
        self._piece |= {"number": self._number, **failure, "over": over, "exit": self._exit if over and self._pid else None}
        ask, self._taking = self._taking, 0
        self._answer(ask, **self._piece)
        if over:
            self.close()

    def _end_of(self, fd: int) -> None:
        """Read no more from a descriptor; one that is not written either is closed."""
        del self._readers[fd]
        if fd != self._writer:
            listen(self._selector, fd, 0, self._look)
            if self._line is None:
                os.close(fd)

    def _listen(self) -> None:
        for fd in {self._writer, *self._readers} - {-1}:
            reads = selectors.EVENT_READ if fd in self._readers and self._taking else 0
            writes = selectors.EVENT_WRITE if fd == self._writer and self._pending else 0
            listen(self._selector, fd, reads | writes, self._look)

    def _stop_writing(self) -> None:
        fd, self._writer = self._writer, -1
        self._pending.clear()
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)
        if fd >= 0 and fd not in self._readers:
            listen(self._selector, fd, 0, self._look)
            if self._line is None:
                os.close(fd)


class Streams:
    """All streams of a supervisor, to tasks of `running`; `answer` is called with the number of a question, and its answer."""

    def __init__(
        self, selector: selectors.BaseSelector, groups: ProcessGroups, running: dict[Task, Running], answer: Callable[..., None]
    ) -> None:
        self._selector, self._groups, self._running, self._answer = selector, groups, running, answer
        self._streams: dict[tuple[int | str, ...], Stream] = {}  # by task and name

    def feed(self, piece: Feed) -> None:
        if (stream := self._heard(piece)) is not None:
            stream.feed(piece)
        else:
            self._answer(piece.ask, over=True)

    def hear(self, asked: OnStream) -> None:
        stream = self._heard(asked)
        if asked.what == "port":
            run = self._running.get(asked.task)
            self._answer(asked.ask, number=run.port or 0 if run is not None else 0)
        elif asked.what == "open":
            self._answer(asked.ask, wrong=self._open(asked) if stream is None else "")
        elif stream is None:  # its task ended, or nobody asked for too long
            self._answer(asked.ask, over=True)
        elif asked.what == "take":
            stream.take(asked.ask, asked.number)
        else:
            self._streams.pop((*asked.task, asked.stream)).close()

    def _heard(self, asked: Feed | OnStream) -> Stream | None:
        stream = self._streams.get((*asked.task, asked.stream))
        if stream is not None:
            stream.heard_at = time.monotonic()
        return stream

    def is_connected(self, task: Task) -> bool:
        return any(stream.task == task and not stream.over for stream in self._streams.values())

    def sweep(self) -> None:
        """Close the streams whose task has ended, or about which nobody asks."""
        now = time.monotonic()
        for name, stream in list(self._streams.items()):
            if now - stream.heard_at > SILENT:
                stream.close()
                del self._streams[name]

    def _open(self, asked: OnStream) -> str:
        """Begin a stream; return why that is impossible, or an empty string."""
        task, run = asked.task, self._running.get(asked.task)
        if run is None or run.program is None or run.group.status is not None:
            return "it does not run a command now"
        theirs = [each for each in self._streams.values() if each.task == task and not each.over]
        if len(theirs) >= MOST_OF_TASK or len(self._streams) >= MOST:
            return f"it has {MOST_OF_TASK} connections and attached programs, the maximum: end some"
        stream = Stream(task, self._selector, self._answer)
        if asked.argv:
            try:
                program = run.program._replace(argv=asked.argv, cwd=_folder(run), env=run.program.env | asked.env)
                stream.attach(self._groups, run, program, asked.size)
            except OSError as error:
                return f"no program can start there: {error.strerror}"
        elif run.port is None:
            return "it has no port: `fairlead run --port` gives it one"
        elif wrong := stream.connect(run.given.person.uid if run.given.person is not None else os.geteuid(), run.port):
            return wrong
        self._streams[*task, asked.stream] = stream
        return ""


def _folder(run: Running) -> str:
    """Return where a task's program runs: of a folder that was sent, the task's copy."""
    assert run.program is not None
    if not run.sent:
        return run.program.cwd
    try:
        return os.readlink(f"/proc/{run.group.pid}/cwd")  # of what made the copy and waits; its command may have gone elsewhere
    except OSError:  # it has just ended
        return run.program.cwd


def _listeners(port: int) -> list[tuple[int, int]]:
    """Return the sockets that listen on a port of 127.0.0.1, ::1 or all addresses: the family and the uid of each."""
    there, kinds = listeners(), {8: socket.AF_INET, 32: socket.AF_INET6}
    return [(int(kinds[len(each)]), uid) for each in _REACHED for uid in there.get(f"{each}:{port:04X}", ())]
