"""The parent of all tasks on this machine. It is small, has one thread, and outlives the scheduler.

    python -m fairlead.engines.local.supervisor [--apart] FOLDER

`--apart` has it run as nobody's child, and returns at once.

It does what the scheduler tells it on :mod:`the line <fairlead.engines.local.scheduler_connection>`, and tells what it saw:

    {"saw": "inventory", "tasks": [...], "limits": {"memory": true, "cpu": true, "tracking": true}}
    {"saw": "started", "task": [...], "ago": ms}
    {"saw": "ended", "task": [...], "outcome": 0, "code": 0, "cpu": ms, "peak": bytes, "ran": ms}
    {"saw": "checkpointed", "task": [...], "ago": ms}, that it has kept what it did
    {"saw": "fed", "task": [...], "taken": bytes, "over": whether it takes no more}
    {"saw": "here"}      {"saw": "refused", "why": ...}, to one that it does not obey
    {"saw": "paused", "tasks": [...]}, all that wait for room on the disk

One of many, which was promised a lease (:mod:`fairlead.engines.local.lease`), besides:

    {"saw": "number", "number": to be said back}      {"saw": "fenced"}, that nothing runs here and nothing will
    {"saw": "read", "ask": id, "data": base64 or null}
    {"saw": "wanted", "session": id, "name": ..., "at": 0, "offset": bytes}, a piece of a file that a call needs
    "sessions" with the inventory, and "session" with the end of a call that was fetched: what it came to is to be collected

What it did is in FOLDER/spool before and after it is done, so that a supervisor that takes over from a killed one knows what
to clean up: those tasks are ended and reported lost. Only the standard library is imported; forking must be cheap.
"""

import base64
import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import resource
import selectors
import signal
import sys
import time
from pathlib import Path

from fairlead.data_folder import remove_folder
from fairlead.engines.local import messages, proc
from fairlead.engines.local.cgroups import find
from fairlead.engines.local.checkpoints import Checkpoints
from fairlead.engines.local.child import FILES, load_directory
from fairlead.engines.local.fence import Fence
from fairlead.engines.local.fetching import FetchedSessions, session_to_fetch
from fairlead.engines.local.lease import Lease
from fairlead.engines.local.member import forget_address
from fairlead.engines.local.messages import (
    Acknowledge,
    Answer,
    Close,
    Collect,
    Feed,
    Forget,
    Greet,
    Inventory,
    LeaseTerms,
    Leave,
    Limit,
    Message,
    Piece,
    Read,
    Renew,
    Start,
    Stop,
    Task,
)
from fairlead.engines.local.output import read_piece
from fairlead.engines.local.process_groups import NOTHING, ProcessGroups, Used
from fairlead.engines.local.scheduler_connection import SchedulerConnection
from fairlead.engines.local.spool import End, Spool
from fairlead.engines.local.tasks import Tasks
from fairlead.engines.local.warm_workers import WarmWorkers
from fairlead.outcomes import Outcome

LINGER = 10.0
"""Seconds that a supervisor stays with nothing to do and nobody connected."""
LINGER_OF_MANY = 600.0
"""The same of one that has a lease: whoever reaches it by a network may be away for longer."""
LOOK_EVERY = 0.5
"""Seconds between two looks at what nobody tells us."""
ENDING = 0.01
"""The same while something ends."""
MOST_FILES = 2**16
"""Files that this process may have open, if its hard limit allows: each task has one or some."""
MOST_READ = 2**18
"""Bytes of output that are told at once: whoever reads more asks again, and others are heard in between."""
MOST_REFUSED = 10_000
"""Attempts that are known to have been stopped before they began: no message is late by so many."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""Why a task cannot be started now, but later: on the disk, of files, of processes, in memory."""


class Supervisor:
    """What the scheduler was promised: each task that it told us of runs once, and its end is told until it is acknowledged."""

    def __init__(self, folder: Path) -> None:
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        self.selector = selectors.DefaultSelector()
        self.groups = ProcessGroups(folder, find(f"fairlead-{name}"), self.selector)
        self.workers = WarmWorkers(self.groups, self.selector)
        self.folder, self.output = folder, folder.parent / "output"
        on = (self._has_started, self._has_ended, self._was_fed)
        self.tasks = Tasks(self.output, Checkpoints(folder), self.groups, self.workers, self.selector, *on)
        self.fetched = FetchedSessions(folder.parent, lambda **what: self.scheduler.report("wanted", **what))
        self.spool = Spool(folder)
        self.ended: dict[Task, End] = self._take_over()
        self.refused: dict[Task, None] = {}  # told to stop before they were to start; the newest
        self.postponed: dict[Task, Start] = {}  # until there is room again
        self.paused: list[Task] = []  # as was told
        self.lease: Lease | None = None  # where this one has its machine for itself
        self.lapsed = True  # there is a lease, and it is over
        self.fencing = False  # told to end everything
        self.fenced: set[Task] = set()  # that were ended for either
        self.leaving = False
        self.busy_at = self.looked_at = time.monotonic()
        load_directory()
        self.scheduler = SchedulerConnection(folder, self.selector, Fence(folder).refuses, self._hear)
        _wake_when_a_child_ends(self.selector)

    def run(self) -> None:
        """Until there is nothing to do, or nothing left to do for one that was told to leave."""
        try:
            while not self._is_over():
                ready = self.selector.select(self._timeout())
                self._mind_the_lease()
                for key, _ in ready:
                    key.data()
                self._reap()
                try:
                    self.tasks.finish_those_over(keep_workers=not self.leaving)
                    self._look_around()
                    self.groups.sweep()
                except OSError as error:  # what could not be looked at is looked at again
                    if error.errno not in NO_ROOM:
                        raise
                    time.sleep(ENDING)
                self.scheduler.flush()
        finally:
            self._close()

    def _is_over(self) -> bool:
        if self.tasks.running or self.postponed or self.scheduler.is_open():
            self.busy_at = time.monotonic()
        if self.leaving:
            return not self.tasks.running and not self.postponed
        linger = LINGER if self.lease is None or self.fencing else LINGER_OF_MANY
        return time.monotonic() - self.busy_at > linger

    def _timeout(self) -> float:
        timeout = self._time_to_look()
        return timeout if self.lease is None else min(timeout, self.lease.next_look(self.scheduler.is_open()))

    def _time_to_look(self) -> float:
        if self.tasks.some_end_soon() or not self.groups.are_swept():
            return ENDING
        return LOOK_EVERY if self.tasks.running or self.postponed or self.workers.are_idle() else LINGER / 2

    def _reap(self) -> None:
        for group in self.groups.reap():
            self.workers.ended(group)

    def _look_around(self) -> None:
        now = time.monotonic()
        if now - self.looked_at >= LOOK_EVERY:
            self.looked_at = now
            proc.keep_spare()
            for group in self.tasks.taken_from_tracers():
                self.workers.ended(group)
            self.tasks.copy_output()
            self.tasks.end_those_over_limits()
            self.tasks.mind_the_room()
            if self.scheduler.is_open():  # else it is told to the next
                for task, ago in self.tasks.checkpointed():
                    self.scheduler.report("checkpointed", task=task, ago=ago)
            if self.tasks.paused() != self.paused:
                self._tell_paused()
            self.workers.watch()
            self.fetched.look()
            postponed, self.postponed = self.postponed, {}
            for task, start in postponed.items():
                self._start(task, start)

    def _mind_the_lease(self) -> None:
        """Say the next number, where there is a lease; where it is over, end what runs, and hear nothing that was said before."""
        lease = self.lease
        if lease is None:
            return
        if not self.lapsed and lease.is_over():
            self.lapsed = True
            self.scheduler.hang_up()
            self._end_all(lease.grace)
        self._say_number(lease)

    def _say_number(self, lease: Lease) -> None:
        if self.scheduler.is_open() and (number := lease.number()) is not None:
            self.scheduler.report("number", number=number)

    def _end_all(self, grace: float) -> None:
        """End everything, as lost: it is to run elsewhere."""
        postponed, self.postponed = self.postponed, {}
        for task in postponed:
            self._has_ended(task, Outcome.LOST, 0)
        self.workers.dismiss()
        for task in self.tasks.running:
            if task not in self.fenced:
                self.fenced.add(task)
                self.tasks.stop(task, grace)

    def _close(self) -> None:
        """Leave nothing behind: no worker, and no cgroup that is empty."""
        self.scheduler.flush()
        self.workers.dismiss()
        self.tasks.checkpoints.drop_idle()
        until = time.monotonic() + 2
        while (self.workers.are_there() or not self.groups.are_swept()) and time.monotonic() < until:
            self._reap()
            self.groups.sweep()
            time.sleep(0.005)
        if self.groups.cgroups:
            self.groups.cgroups.close()

    # -- what the scheduler says ---------------------------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        match message:
            case Start() as start:
                if not self._is_fenced():
                    self._hear_start(start)
            case Stop(tasks, grace):
                for task in tasks:
                    self._stop(task, grace)
            case Acknowledge(tasks):
                self._forget(tasks)
            case Feed(task) as piece:
                if task in self.postponed:
                    self._was_fed(task, 0, False)
                else:
                    self.tasks.feed(piece)
            case Limit(tasks, cpu, memory):
                for task in tasks:
                    self.tasks.limit(task, cpu, memory)
            case Inventory():
                self._tell_all()
            case Answer():
                self.scheduler.report("here")
            case Leave():
                self.leaving = True
            case Greet():
                self.fencing = False
                if self.lease is not None:
                    self.lease.greeted()
            case _:
                self._hear_as_one_of_many(message)

    def _hear_as_one_of_many(self, message: Message) -> None:
        match message:
            case LeaseTerms(lost_after, grace):
                if self.lease is None:
                    self.lease = Lease(self.folder, lost_after, grace)
                self.lease.lost_after, self.lease.grace = lost_after, grace
                self._say_number(self.lease)  # before all else: so the lease lasts before there is anything to start
            case Renew(number) if self.lease is not None:
                self.lease.said_back(number)
            case messages.Fence():
                self.fencing = True
                self._end_all(self.lease.grace if self.lease is not None else 0.0)
                self._tell_if_fenced()
            case Read(ask, job, index, stream, offset, most):
                try:
                    data = read_piece(self.output, job, index, stream, offset, min(most, MOST_READ))
                except OSError as error:
                    data = None
                    _note(f"the output of task {job}.{index} is not told: {error}")
                self._say_read(ask, data)
            case Forget(jobs):
                self._remove_output(jobs)
            case Piece() as piece:
                self._take_piece(piece)
            case Collect(ask) as asked:
                self._say_read(ask, self.fetched.read_result(asked._replace(most=min(asked.most, MOST_READ))))
            case Close(sessions):
                for session in sessions:
                    self._close_session(session)

    def _say_read(self, ask: int, data: bytes | None) -> None:
        self.scheduler.report("read", ask=ask, data=None if data is None else base64.b64encode(data).decode())

    def _take_piece(self, piece: Piece) -> None:
        """What a call needs has come: those that waited for it may start."""
        try:
            if not self.fetched.take(piece):
                return
        except OSError as error:  # it is asked for again
            _note(f"what calls of session {piece.session} need cannot be written: {error}")
            return
        for task, start in list(self.postponed.items()):
            if session_to_fetch(start.work) == piece.session:
                del self.postponed[task]
                self._start(task, start)

    def _close_session(self, session: str) -> None:
        try:
            self.fetched.close(session)
        except OSError as error:
            _note(f"what is left of session {session} cannot be removed: {error}")

    def _remove_output(self, jobs: list[int]) -> None:
        for job in jobs:
            try:
                remove_folder(self.output / str(job))
            except FileNotFoundError:  # none of it ran here
                pass
            except OSError as error:
                _note(f"the output of job {job} cannot be removed: {error}: remove {self.output / str(job)}")

    def _is_fenced(self) -> bool:
        """Whether nothing may start here, as it may run elsewhere."""
        if self.fencing or self.lease is None:
            return self.fencing
        over = self.lease.is_over()
        self.lapsed = self.lapsed and over
        return over

    def _tell_if_fenced(self) -> None:
        if self.fencing and not self.tasks.running:
            self.scheduler.report("fenced")

    def _hear_start(self, start: Start) -> None:
        for task in start.tasks:
            if task in self.refused:
                self._has_ended(task, Outcome.SIGNALLED, signal.SIGTERM)
            elif task not in self.tasks.running and task not in self.ended and task not in self.postponed:
                self._start(task, start)
                self._reap()  # many may be started, and what ends meanwhile has not run for as long as that takes

    def _start(self, task: Task, start: Start) -> None:
        try:
            ready = self.fetched.local(task, start) if session_to_fetch(start.work) else start
            if ready is None:
                self.postponed[task] = start
                return
            self.spool.note("starting", task)
            self.tasks.start(task, ready)
        except OSError as error:
            if error.errno in NO_ROOM:
                self.tasks.checkpoints.drop_idle()  # they take room
                self.postponed[task] = start
            else:
                self._has_ended(task, Outcome.NOT_STARTED, error.errno or errno.EIO)

    def _stop(self, task: Task, grace: float) -> None:
        if task in self.tasks.running:
            self.tasks.stop(task, grace)
        elif task not in self.ended:
            self.postponed.pop(task, None)
            self.refused[task] = None
            if len(self.refused) > MOST_REFUSED:
                del self.refused[next(iter(self.refused))]
            self._has_ended(task, Outcome.SIGNALLED, signal.SIGTERM)

    def _forget(self, tasks: list[Task]) -> None:
        for task in tasks:
            if self.ended.pop(task, None) is not None:
                self.spool.note("acknowledged", task)
                self.fetched.acknowledge(task)
        if self.spool.is_large():
            self.spool.rewrite([(task, run.group.pid) for task, run in self.tasks.running.items()], self.ended)

    def _tell_all(self) -> None:
        cgroups = self.groups.cgroups
        limits = {
            "memory": bool(cgroups and cgroups.limits_memory),
            "cpu": bool(cgroups and cgroups.limits_cpu),
            "tracking": cgroups is not None,
        }
        tasks, sessions = [*self.tasks.running, *self.postponed, *self.ended], self.fetched.sessions()
        self.scheduler.report("inventory", tasks=tasks, limits=limits, **({"sessions": sessions} if sessions else {}))
        for task, end in self.ended.items():
            self._say_end(task, end)
        for task in self.tasks.running:
            self._say_started(task)
        self._tell_paused()

    def _tell_paused(self) -> None:
        self.paused = self.tasks.paused()
        self.scheduler.report("paused", tasks=self.paused)

    # -- what became of the tasks --------------------------------------------------------------------------------

    def _has_started(self, task: Task, _pid: int) -> None:
        self._say_started(task)

    def _say_started(self, task: Task) -> None:
        self.scheduler.report("started", task=task, ago=self.tasks.running[task].age())

    def _has_ended(self, task: Task, outcome: Outcome, code: int, used: Used = NOTHING) -> None:
        if task in self.fenced:
            self.fenced.remove(task)
            if outcome in (Outcome.STOPPED, Outcome.SIGNALLED):
                outcome, code = Outcome.LOST, 0
        end = self.ended[task] = (outcome, code, *used)
        self.spool.note("ended", task, *end)
        self._say_end(task, end)
        self._tell_if_fenced()

    def _say_end(self, task: Task, end: End) -> None:
        outcome, code, cpu, peak, ran = end
        more = {"session": session} if (session := self.fetched.session_of(task)) else {}
        self.scheduler.report("ended", task=task, outcome=outcome, code=code, cpu=cpu, peak=peak, ran=ran, **more)

    def _was_fed(self, task: Task, taken: int, over: bool) -> None:
        self.scheduler.report("fed", task=task, taken=taken, over=over)

    def _take_over(self) -> dict[Task, End]:
        """End what the last supervisor left running, and go on in its spool; the ends that nobody acknowledged."""
        begun, ended = self.spool.read()
        self.groups.end_leftovers()
        self.tasks.checkpoints.remove(begun)
        ended |= dict.fromkeys(begun, (Outcome.LOST, 0, *NOTHING))
        self.spool.rewrite([], ended)
        return ended


def _wake_when_a_child_ends(selector: selectors.BaseSelector) -> None:
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector.register(read, selectors.EVENT_READ, lambda: _drain(read))


def _note(line: str) -> None:
    with contextlib.suppress(OSError):  # the log is on a full disk
        sys.stderr.write(f"fairlead: {line}\n")


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass


def main() -> None:
    folder = Path(sys.argv[-1])
    if sys.argv[1] == "--apart" and os.fork():
        os._exit(0)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another one is there already
    forget_address(folder)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Ray's actors block SIGINT, and tasks would as well
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(name, lambda *_: None)  # not SIG_IGN, which tasks would inherit
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if FILES != resource.RLIM_INFINITY and wanted > FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)
    proc.keep_spare()
    Supervisor(folder).run()


if __name__ == "__main__":
    main()
