"""The spool: a file with a JSON line before and after each action of the supervisor.

From it, a supervisor that takes over from a killed one knows which tasks had begun and which ends were not acknowledged.

    ["starting", *task]         before its first process exists
    ["started", *task, pid]     written by its first process before its program runs, so that no program runs without it;
                                pid 0 once it was asked to stop, and for a call, whose worker's exit status is not its own
    ["exited", pid, status, 0]  its first process ended; what it left is still to be ended
    ["stopped", pid, status, 0] the same, after it may have been signalled as its supervisor was, or by the guardian
    ["ended", *task, *end]      it ended; reported until ["acknowledged", *task]
"""

import contextlib
import errno
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fairlead.engines.local.messages import Task
from fairlead.outcomes import Outcome

LARGE = 4 * 2**20

End = tuple[int, int, int, int, int, int, int]
"""Outcome and code; then what was used, as :class:`fairlead.engines.local.process_groups.Used`."""


class StartRecord(NamedTuple):
    """What a task's first process writes: the descriptor of the spool, and the line up to its pid."""

    spool: int
    line: bytes

    def write(self) -> None:
        line = b"%s%d]\n" % (self.line, os.getpid())
        if os.write(self.spool, line) != len(line):
            raise OSError(errno.ENOSPC, "spool")


def exit_line(how: str, ended: os.waitid_result) -> bytes:
    """Return the line for a child that ended."""
    by_signal = ended.si_code != os.CLD_EXITED
    return b'["%s", %d, %d, 0]\n' % (how.encode(), ended.si_pid, ended.si_status if by_signal else ended.si_status << 8)


class Spool:
    """The file FOLDER/spool, and lines that a full disk keeps back. Call `read` and `rewrite` before `note`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "spool"
        self._file = -1
        self._unwritten = bytearray()

    def read(self) -> tuple[set[Task], dict[Task, End]]:
        """Return the tasks that began and did not end, and unacknowledged ends."""
        begun: set[Task] = set()
        ended: dict[Task, End] = {}
        pids: dict[Task, int] = {}
        firsts: dict[int, Task] = {}
        for line in self._path.read_bytes().split(b"\n") if self._path.exists() else []:
            try:
                what, job, index, number, *more = json.loads(line)
            except ValueError:  # the last line, torn when the last supervisor died
                continue
            task = (job, index, number)
            if what in ("starting", "started"):  # rewritten files and older supervisors have only the latter
                begun.add(task)
                if more and pids.get(task) != 0:
                    pids[task] = more[0]
                    firsts[more[0]] = task
            elif what in ("exited", "stopped"):
                known = firsts.pop(job, None)
                if known in begun and job and (how := _how(index, what == "exited" and pids[known] == job)):
                    begun.discard(known)
                    ended[known] = (*how, 0, 0, 0, 0, 0)
            else:
                begun.discard(task)
                ended.pop(task, None)
                if what == "ended":
                    outcome, code, cpu, peak, ran, calls, called = [*more, 0, 0, 0, 0, 0][:7]  # older ones wrote fewer fields
                    ended[task] = outcome, code, cpu, peak, ran, calls, called
        return begun, ended

    def note(self, what: str, task: Task, *more: int) -> None:
        """Write a line. On a full disk it is kept and written when there is room."""
        self._write(b'["%s"%s]\n' % (what.encode(), b", %d" * (3 + len(more)) % (*task, *more)))

    def begin(self, task: Task) -> StartRecord:
        """Note that a task starts; return what its first process is to write. Raises OSError while lines wait for a full disk."""
        self._write(b"")
        if not self._unwritten:
            self.note("starting", task)
        if self._unwritten:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        return StartRecord(self._file, b'\n["started", %d, %d, %d, ' % task)

    def note_exit(self, ended: os.waitid_result) -> None:
        """Write that a first process ended, before it is reaped: from then on nobody else can learn how."""
        self._write(exit_line("exited", ended))

    def _write(self, line: bytes) -> None:
        self._unwritten += line
        with contextlib.suppress(OSError):
            while self._unwritten:
                del self._unwritten[: os.write(self._file, self._unwritten)]

    def is_large(self) -> bool:
        """Return whether it is time to rewrite it."""
        return os.fstat(self._file).st_size > LARGE

    def rewrite(self, running: Iterable[tuple[Task, int]], ended: dict[Task, End]) -> None:
        """Replace the file by one with only what still matters; keep it if the disk is full."""
        fresh, file, flags = self._path.with_name("spool.new"), -1, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        lines = [["started", *task, pid] for task, pid in running]
        lines += [["ended", *task, *end] for task, end in ended.items()]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        try:
            file = os.open(fresh, flags | os.O_TRUNC, 0o600)
            if os.write(file, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(fresh))
        except OSError:  # a full disk, or no descriptor: keep appending to the old file
            if file >= 0:
                os.close(file)
            fresh.unlink(missing_ok=True)
            if self._file >= 0:
                return
            file = os.open(self._path, flags, 0o600)
        else:
            fresh.rename(self._path)
            self._unwritten.clear()
        if self._file >= 0:
            os.close(self._file)
        self._file = file


def _how(status: int, by_itself: bool) -> tuple[int, int] | None:
    """Return the outcome and code of a wait status; None if it does not say how the task ended.

    SIGKILL says nothing, since the guardian or the kernel may have sent it, and after a signal only an exit with 0 says anything.
    """
    code = os.waitstatus_to_exitcode(status)
    if not by_itself:
        return (Outcome.STOPPED, 0) if code == 0 else None
    if code == -signal.SIGKILL:
        return None
    return (Outcome.EXITED, code) if code >= 0 else (Outcome.SIGNALLED, -code)
