"""The parent of the supervisor: waits for the supervisor's end, then ends what that left running, also without a scheduler.

It survives what kills the supervisor: it has another session, and hears no messages. A supervisor that stands still when its
lease is over is killed, so that its tasks can start elsewhere. Every process of a
task is its descendant then, since orphans go to the nearest subreaper. It stops all tasks before it ends any, so that each has
ended by itself or not. Exit statuses that the supervisor did not see go to its spool, so that a task that is done does not run
again. Standard library only.
"""

import contextlib
import ctypes
import mmap
import os
import signal
import struct
import time
from pathlib import Path

from fairlead.engines.local import lease, proc
from fairlead.engines.local.spool import exit_line

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL, when the supervisor itself ended by SIGTERM, as when the machine goes down."""
MOST_KILLS = 5000
"""Rounds of SIGKILL until it gives up on processes that survive it, as in uninterruptible sleep: some ten seconds, more on a busy
machine.
"""
STOP_WITHIN = 1.0
"""Seconds until it goes on although some do not stop, as in uninterruptible sleep."""
LOOK_EVERY = 1.0
"""Seconds between two looks whether the supervisor's time is over."""
PAUSE = 0.001
"""Seconds between two rounds of signals."""
TITLE = b"guardian of tasks"
"""What `ps` shows: a supervisor is often ended by its command line, and this process is not to end with it."""
_PR_SET_CHILD_SUBREAPER = 36

_until = mmap.mmap(-1, 8)
"""Shared by guardian and supervisor: when tasks must have ended, by the lease's clock; 0 for never."""


def adopt_orphans() -> None:
    """Become the parent of all orphans among our descendants."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def guard(folder: Path) -> int:
    """Fork, and return in the child only, which becomes the supervisor of this folder; this process becomes its guardian.

    Returns a descriptor. It is inherited by both, so that a lock of it lasts until both have ended.
    """
    lock = os.open(folder / "guardian", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    adopt_orphans()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, the kernel reaps: nobody learns how a child ended
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # `_wait_for` takes it
    supervisor = os.fork()
    if supervisor == 0:
        os.setsid()
        return lock
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(name, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # only root may: it waits for no CPU then, however busy the machine is
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    _rename()
    status = _wait_for(supervisor)
    asked = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
    _end_descendants(folder / "spool", GRACE if asked else 0.0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def end_all_at(until: float) -> None:
    """Have the guardian end the supervisor and its tasks then, by the lease's clock; 0 for never. Called by the supervisor."""
    struct.pack_into("d", _until, 0, until)


def _wait_for(supervisor: int) -> int:
    """Wait for the supervisor's end, and kill it when its time is over. Return its wait status."""
    while not (ended := os.waitpid(supervisor, os.WNOHANG))[0]:
        (until,) = struct.unpack_from("d", _until)
        left = until - lease.clock() if until else LOOK_EVERY
        if left <= 0:
            os.kill(supervisor, signal.SIGKILL)
        signal.sigtimedwait([signal.SIGCHLD], min(LOOK_EVERY, max(left, PAUSE)))
    return ended[1]


def _rename() -> None:
    """Overwrite the memory that holds the words of this process's command line."""
    start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    if end - start > len(TITLE):
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, TITLE, len(TITLE))


def _end_descendants(spool: Path, grace: float) -> None:
    kill_at = time.monotonic() + grace
    _stop_children()
    # When the machine goes down, tasks get SIGTERM as the supervisor does, and may end before they are stopped.
    left, kills = _reap(spool, "stopped" if grace else "exited"), 0
    if grace:
        proc.signal_each(proc.descendants(os.getpid()), signal.SIGTERM)
        proc.signal_each(proc.descendants(os.getpid()), signal.SIGCONT)
    while left and kills < MOST_KILLS:
        if time.monotonic() >= kill_at:
            proc.signal_each(proc.descendants(os.getpid()), signal.SIGKILL)
            kills += 1
        left = _reap(spool, "stopped")
        time.sleep(PAUSE)


def _stop_children() -> None:
    """Stop all tasks before any is signalled: what ended until then ended by itself, and what ends later did not."""
    until = time.monotonic() + STOP_WITHIN
    while time.monotonic() < until:
        children = proc.children()
        proc.signal_each(children, signal.SIGSTOP)
        if all(map(proc.stands_still, children)):
            return
        time.sleep(PAUSE)


def _reap(spool: Path, how: str) -> bool:
    """Reap what has ended, and note how. Return True if there are children left."""
    lines = b""
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)) is not None:
            lines += exit_line(how, ended)
        return True
    except ChildProcessError:
        return False
    finally:
        if lines:
            with contextlib.suppress(OSError):  # a full disk: these tasks are lost
                file = os.open(spool, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                os.write(file, b"\n" + lines)  # the last line may be torn
                os.close(file)
