"""The parent of all tasks on a machine. It is small, has one thread of Python, and outlives the scheduler.

    python -m fairlead.engines.local.supervisor [--apart] FOLDER

`--apart` detaches it and returns at once.

It carries out the scheduler's messages (:mod:`fairlead.engines.local.messages`), and reports in lines of JSON, of which
:mod:`fairlead.engines.local.reports` has the records:

    {"saw": "started", "task": [job, index, number], "ago": ms, "cards": [indices]}

Its parent, :mod:`fairlead.engines.local.guardian`, ends what runs here when it is killed. FOLDER/spool logs each action before
and after it. From it, a supervisor that takes over from a killed one knows what to clean up: it reports tasks lost, except those
whose exit status is known. Standard library and one small kernel only, since forks must be cheap.
"""

import base64
import contextlib
import errno
import fcntl
import hashlib
import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fairlead
from fairlead.data_folder import NotPlain, drop_folder
from fairlead.engines.local import fence, guardian, messages, proc
from fairlead.engines.local.card_use import CardWatch
from fairlead.engines.local.cgroups import find
from fairlead.engines.local.checkpoints import Checkpoints
from fairlead.engines.local.child import FILES, load_directory, uid_here
from fairlead.engines.local.fetching import FetchedSessions, session_to_fetch
from fairlead.engines.local.lease import Lease
from fairlead.engines.local.member import read_membership
from fairlead.engines.local.output import next_data, read_piece
from fairlead.engines.local.process_groups import NOTHING, ProcessGroups, Used
from fairlead.engines.local.scheduler_connection import SchedulerConnection
from fairlead.engines.local.spool import End, Spool
from fairlead.engines.local.streams import Streams
from fairlead.engines.local.tasks import Tasks
from fairlead.engines.local.warm_workers import WarmWorkers
from fairlead.outcomes import Outcome

IDLE_GRACE = 30.0
"""Seconds between the stop signal and SIGKILL of a task that ends because it is idle."""
END_WITHIN = 0.5
"""Seconds after the grace of an expired lease for tasks to have ended; less than the scheduler waits."""
LINGER = 10.0
"""Seconds that an idle supervisor stays without a connection."""
LINGER_WITH_LEASE = 600.0
"""The same on a node that dials its scheduler: over a network, that may be away for longer."""
CHECK_EVERY = 0.5
"""Seconds between two checks of what raises no event."""
CHECK_EVERY_WHILE_ENDING = 0.01
"""The same in seconds while tasks end."""
MOST_FILES = 2**16
"""Most open files of this process, if its hard limit allows: a task needs one or more."""
MOST_READ = 2**18
"""Bytes of output per answer, so that one reader does not delay other messages."""
MOST_REFUSED = 10_000
"""Attempts remembered as stopped before their start; no message is later than that many others."""
CLOSED_FOR = 600.0
"""Seconds until a user who had no account here is tried again."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""Errors that only postpone a start: disk, files, processes or memory are exhausted."""


class Supervisor:
    """Keeps the engine's contract: runs each requested task once, and reports its end until it is acknowledged."""

    def __init__(self, folder: Path, lock: int) -> None:
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        self.selector = selectors.DefaultSelector()
        self.groups = ProcessGroups(folder, find(f"fairlead-{name}"), self.selector)
        self.workers = WarmWorkers(self.groups, self.selector)
        self.folder, self.output = folder, folder.parent / "output"
        self._lock, self._lock_path = os.fstat(lock), str(folder / "lock")
        on = (self._report_started, self._could_not_start, self._has_ended, self._answer)
        self.tasks = Tasks(self.output, Checkpoints(folder), self.groups, self.workers, self.selector, *on, self._dial)
        self.fetched = FetchedSessions(folder.parent, lambda **what: self.scheduler.report("wanted", **what))
        self.streams = Streams(self.selector, self.groups, self.tasks.running, self._answer)
        self.cards = CardWatch(self.selector, self._hear_of_cards)
        self.spool = Spool(folder)
        self.ended: dict[messages.Task, End] = self._take_over()
        self.refused: dict[messages.Task, None] = {}  # stopped before their start; the newest
        self.postponed: dict[messages.Task, messages.Start] = {}  # until resources are free
        self.paused: list[messages.Task] = []  # as last reported
        self.closed_until = 0.0
        self.lease: Lease | None = None  # None for the local engine's
        self.lapsed = True  # there is a lease, and it has expired
        self.fencing = False  # asked to end everything
        self.fenced: set[messages.Task] = set()  # ended because of either
        self.leaving = False
        self.until_dialed = 0.0
        self.busy_at = self.checked_at = time.monotonic()
        load_directory()
        self.scheduler = SchedulerConnection(folder, self.selector, partial(fence.refuses, folder), self._hear)
        _wake_when_a_child_ends(self.selector)

    def run(self) -> None:
        """Run until there is nothing to do; after "leave" only until nothing runs."""
        try:
            while not self._is_over():
                ready = self.selector.select(self._timeout())
                self._end_unless_in_place()
                self._do(
                    self._check_lease,
                    *(partial(self._hear_of, key) for key, _ in ready),
                    self.groups.settle,
                    self._reap,
                    lambda: self.tasks.finish_ended(keep_workers=not self.leaving),
                    self._check,
                    self.groups.sweep,
                )
                self._keep_guardian_informed()
                self.scheduler.flush()
                self.until_dialed = self.scheduler.keep_dialing()
        finally:
            self._close()

    def _hear_of(self, key: selectors.SelectorKey) -> None:
        """Handle an event, unless an earlier step has closed what it is about."""
        if self.selector.get_map().get(key.fd) is key:
            key.data()

    def _do(self, *steps: Callable[[], object]) -> None:
        """Take each step. One that lacks descriptors, disk or memory is taken again next time."""
        lacks = False
        for step in steps:
            try:
                step()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                lacks = True
        if lacks:
            time.sleep(CHECK_EVERY_WHILE_ENDING)

    def _is_over(self) -> bool:
        if self.tasks.running or self.postponed or self.scheduler.is_open():
            self.busy_at = time.monotonic()
        if self.leaving:
            return not self.tasks.running and not self.postponed
        linger = LINGER_WITH_LEASE if self.scheduler.about and not self.fencing else LINGER
        return time.monotonic() - self.busy_at > linger

    def _timeout(self) -> float:
        timeout = min(self._until_check(), self.until_dialed)
        return timeout if self.lease is None else min(timeout, self.lease.next_check(self.scheduler.is_open()))

    def _until_check(self) -> float:
        if self.tasks.any_ending() or not self.groups.are_swept():
            return CHECK_EVERY_WHILE_ENDING
        if self.tasks.running or self.postponed or self.workers.are_idle():
            return max(0.0, self.checked_at + CHECK_EVERY - time.monotonic())
        return LINGER / 2

    def _reap(self) -> None:
        for group in self.groups.reap(self.spool.note_exit):
            self.workers.ended(group)

    def _check(self) -> None:
        now = time.monotonic()
        if now - self.checked_at >= CHECK_EVERY:
            self.checked_at = now
            proc.keep_spare()
            for group in self.tasks.ended_but_traced():
                self.workers.ended(group)
            self.tasks.copy_output()
            self.tasks.enforce_limits()
            self.tasks.check_disk()
            self.streams.sweep()
            for task in self.tasks.idle(self.streams.is_connected):
                self._ask_to_stop(task, IDLE_GRACE)
            if self.scheduler.is_open():  # else the next scheduler gets it
                for task, ago in self.tasks.checkpointed():
                    self.scheduler.report("checkpointed", task=task, ago=ago)
            if self.tasks.paused() != self.paused:
                self._report_paused()
            self.workers.watch()
            self.fetched.trim_code()
            if self.tasks.closed_to and now > self.closed_until:
                self.tasks.closed_to = {}
                self.scheduler.report("closed", to={})
            postponed, self.postponed = self.postponed, {}
            for task, start in postponed.items():
                self._start(task, start)
                self.groups.settle()  # one at a time: together they could keep the last descriptors from each other, for ever

    def _end_unless_in_place(self) -> None:
        """End as by a signal, and all tasks by the guardian, if this folder was removed: another supervisor may run there.

        It says nothing more, since what runs here may have been ended by that one.
        """
        try:
            if os.path.samestat(os.stat(self._lock_path), self._lock):
                return
        except FileNotFoundError:
            pass
        except OSError:  # nobody can know now
            return
        _note(f"{self.folder} was removed: what runs here ends")
        os.kill(os.getpid(), signal.SIGTERM)

    def _check_lease(self) -> None:
        """Send the next heartbeat. If the lease has expired, end what runs and drop earlier messages."""
        lease = self.lease
        if lease is None:
            return
        if not self.lapsed and lease.is_over():
            self.scheduler.hang_up()
            self._end_all(lease.grace)
            self.lapsed = True
        self._send_heartbeat(lease)

    def _keep_guardian_informed(self) -> None:
        """Let the guardian know when tasks must have ended, should this process stand still."""
        if self.lease is not None and (not self.lapsed or not self.tasks.running):
            guardian.end_all_at(self.lease.until + self.lease.grace + END_WITHIN if self.tasks.running else 0.0)

    def _send_heartbeat(self, lease: Lease) -> None:
        if self.scheduler.is_open() and (number := lease.number()) is not None:
            self.scheduler.report("number", number=number)

    def _end_all(self, grace: float) -> None:
        """End everything as lost, since it will run elsewhere."""
        postponed, self.postponed = self.postponed, {}
        for task in postponed:
            self._has_ended(task, Outcome.LOST, 0)
        for task in self.tasks.running:
            if task not in self.fenced:
                self._ask_to_stop(task, grace)
                self.fenced.add(task)
        self.workers.dismiss()

    def _close(self) -> None:
        """Leave no worker and no empty cgroup behind."""
        self.scheduler.flush()
        self.cards.end()
        self.workers.dismiss()
        until = time.monotonic() + 2
        while (self.workers.exist() or not self.groups.are_swept()) and time.monotonic() < until:
            self._do(self._reap, self.groups.sweep)
            time.sleep(0.005)
        if self.groups.cgroups:
            self.groups.cgroups.close()

    # -- messages of the scheduler -------------------------------------------------------------------------------

    def _hear(self, message: messages.Message) -> None:
        if not isinstance(message, messages.Start):
            self.groups.settle()
        match message:
            case messages.Start() as start:
                if not self._is_fenced():
                    self._hear_start(start)
            case messages.Stop(tasks, grace):
                for task in tasks:
                    self._stop(task, grace)
            case messages.Acknowledge(tasks):
                self._forget(tasks)
            case messages.Feed(ask=ask, task=task) if task in self.postponed:
                self._answer(ask)
            case messages.Feed(stream="") as piece:
                self.tasks.feed(piece)
            case messages.Feed() as piece:
                self.streams.feed(piece)
            case messages.OnStream() as asked:
                self.streams.hear(asked)
            case messages.Limit(tasks, cpu, memory):
                for task in tasks:
                    self.tasks.limit(task, cpu, memory)
            case messages.Inventory():
                self._report_inventory()
            case messages.Answer():
                self.scheduler.report("here")
            case messages.Leave():
                self.leaving = True
            case messages.Watch():
                self.cards.begin()
            case messages.Greet():
                self.fencing, self.tasks.closed_to = False, {}
                self.cards.end()  # this scheduler may not know what they report
                if self.lease is not None:
                    self.lease.reset()
            case messages.LeaseTerms(lost_after, grace):
                if self.lease is None:
                    self.lease = Lease(lost_after, grace)
                self.lease.change(lost_after, grace)
                self._send_heartbeat(self.lease)  # first, so that the lease is valid before anything is to start
            case messages.Renew(number) if self.lease is not None:
                self.lease.renew(number)
            case messages.Fence():
                self.fencing = True
                self._end_all(self.lease.grace if self.lease is not None else 0.0)
                self._report_if_fenced()
            case messages.Read() as asked:
                self._read(asked)
            case messages.Forget(jobs):
                for job in jobs:
                    drop_folder(self.output / str(job), f"the output of job {job}", _note)
            case messages.Piece() as piece:
                self._take_piece(piece)
            case messages.Collect(ask) as asked:
                self._report_piece(ask, self.fetched.read_result(asked._replace(most=min(asked.most, MOST_READ))))
            case messages.Close(sessions):
                for session in sessions:
                    self._close_session(session)

    def _read(self, asked: messages.Read) -> None:
        where = self.output, asked.job, asked.task, asked.stream, asked.offset
        data, wrong = None, ""
        try:
            data = read_piece(*where, min(asked.most, MOST_READ)) if asked.most else b"%d" % next_data(*where)
        except OSError as error:
            _note(f"the output of task {asked.job}.{asked.task} cannot be shown: {error}")
            wrong = "" if isinstance(error, NotPlain) else str(error.strerror)
        self._report_piece(asked.ask, data, wrong)

    def _report_piece(self, ask: int, data: bytes | None, wrong: str = "") -> None:
        encoded = None if data is None else base64.b64encode(data).decode()
        self.scheduler.report("read", ask=ask, data=encoded, wrong=wrong)

    def _take_piece(self, piece: messages.Piece) -> None:
        """Store a piece of a file; start the calls that waited for the file."""
        try:
            if not self.fetched.take(piece):
                return
        except OSError as error:  # it is requested again
            _note(f"files for calls of session {piece.session} cannot be written: {error}")
            return
        for task, start in list(self.postponed.items()):
            if session_to_fetch(start.work) == piece.session:
                del self.postponed[task]
                self._start(task, start)

    def _close_session(self, session: str) -> None:
        try:
            self.fetched.close(session)
        except OSError as error:
            _note(f"files of session {session} cannot be removed: {error}")

    def _is_fenced(self) -> bool:
        """Return whether nothing may start here, since it may run elsewhere."""
        if self.fencing or self.lease is None:
            return self.fencing
        over = self.lease.is_over()
        self.lapsed = self.lapsed and over
        return over

    def _report_if_fenced(self) -> None:
        if self.fencing and not self.tasks.running:
            self.scheduler.report("fenced")

    def _hear_start(self, start: messages.Start) -> None:
        for task in start.tasks:
            if task in self.refused:
                self._has_ended(task, Outcome.SIGNALLED, signal.SIGTERM)
            elif task not in self.tasks.running and task not in self.ended and task not in self.postponed:
                self._start(task, start)
                self.groups.settle(wait=False)
                self._reap()  # starting many takes long, and that must not count as run time of one that ends meanwhile

    def _start(self, task: messages.Task, start: messages.Start) -> None:
        try:
            if start.person is not None and self.scheduler.about.get("any_uid"):
                start = start._replace(person=uid_here(start.person))
            ready = None if self._must_wait(task) else start
            if ready is not None and session_to_fetch(start.work):
                ready = self.fetched.local(task, start)
            if ready is None:
                self.postponed[task] = start
                return
            self.tasks.start(task, ready, self.spool.begin(task))
        except OSError as error:
            self._could_not_start(task, start, error)

    def _must_wait(self, task: messages.Task) -> bool:
        """Return whether what the scheduler counts as lost must end first: all that is fenced, and each attempt before."""
        job, index, number = task
        return bool(self.fenced) or any((job, index, before) in self.tasks.running for before in range(1, number))

    def _could_not_start(self, task: messages.Task, start: messages.Start, error: OSError) -> None:
        if error.errno in NO_ROOM:
            self.postponed[task] = start
        elif error.errno == errno.EADDRINUSE:  # the gang starts again, with another port
            self._has_ended(task, Outcome.LOST, 0)
        else:
            self._has_ended(task, Outcome.NOT_STARTED, error.errno or errno.EIO)

    def _stop(self, task: messages.Task, grace: float) -> None:
        if task in self.tasks.running:
            self._ask_to_stop(task, grace)
        elif task not in self.ended:
            self.postponed.pop(task, None)
            self.refused[task] = None
            if len(self.refused) > MOST_REFUSED:
                del self.refused[next(iter(self.refused))]
            self._has_ended(task, Outcome.SIGNALLED, signal.SIGTERM)

    def _ask_to_stop(self, task: messages.Task, grace: float) -> None:
        self.spool.note("started", task, 0)  # its exit status no longer says whether it is done
        self.tasks.stop(task, grace)

    def _forget(self, tasks: list[messages.Task]) -> None:
        for task in tasks:
            if self.ended.pop(task, None) is not None:
                self.spool.note("acknowledged", task)
                self.fetched.acknowledge(task)
        if self.spool.is_large():
            running = [(task, pid) for task, run in self.tasks.running.items() for pid in run.deciding_pids()]
            self.spool.rewrite(running, self.ended)

    def _report_inventory(self) -> None:
        cgroups = self.groups.cgroups
        limits = {
            "memory": bool(cgroups and cgroups.limits_memory),
            "cpu": bool(cgroups and cgroups.limits_cpu),
            "tracking": cgroups is not None,
        }
        tasks, sessions = [*self.tasks.running, *self.postponed, *self.ended], self.fetched.sessions()
        more: dict[str, Any] = {"sessions": sessions} if sessions else {}
        if about := self.scheduler.about:
            more["about"] = {**about, "clock": time.time(), "version": fairlead.__version__}
        more["speaks"] = (messages.OLDEST_PROTOCOL, messages.PROTOCOL)
        self.scheduler.report("inventory", tasks=tasks, limits=limits, **more)
        for task, end in self.ended.items():
            self._report_end(task, end)
        for task in self.tasks.running:
            self._report_started(task)
        self._report_paused()

    def _hear_of_cards(self, cards: list[Any]) -> None:
        self.tasks.busy_cards = {index for index, busy, *_ in cards if busy}
        self.scheduler.report("cards", cards=cards)

    def _report_paused(self) -> None:
        self.paused = self.tasks.paused()
        self.scheduler.report("paused", tasks=self.paused)

    # -- reports on tasks ----------------------------------------------------------------------------------------

    def _dial(self) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            if (membership := read_membership(self.folder)) is not None:
                return {"hosts": membership.hosts, "port": membership.port, "scheduler": membership.scheduler}
        return {}

    def _report_started(self, task: messages.Task) -> None:
        run = self.tasks.running[task]
        more = {"cards": run.given.gpus} if run.given.gpus else {}
        self.scheduler.report("started", task=task, ago=run.age(), **more)

    def _has_ended(self, task: messages.Task, outcome: Outcome, code: int, used: Used = NOTHING) -> None:
        if task in self.fenced:
            self.fenced.remove(task)
            if outcome == Outcome.SIGNALLED or (outcome == Outcome.STOPPED and code):  # its job may call an exit with 0 done
                outcome, code = Outcome.LOST, 0
        if outcome == Outcome.LOST and code and not self.scheduler.about:  # no other node has the account either
            outcome = Outcome.NOT_STARTED
        elif outcome == Outcome.LOST and code:
            self.closed_until = time.monotonic() + CLOSED_FOR
            why = {name: "no account" if code == errno.ENOENT else "another uid" for name, code in self.tasks.closed_to.items()}
            self.scheduler.report("closed", to=why)  # first, so that it does not come back
        end = self.ended[task] = (outcome, code, *used)
        self.spool.note("ended", task, *end)
        self._report_end(task, end)
        self._report_if_fenced()

    def _report_end(self, task: messages.Task, end: End) -> None:
        outcome, code, *used = end
        more = {"session": session} if (session := self.fetched.session_of(task)) else {}
        self.scheduler.report("ended", task=task, outcome=outcome, code=code, **Used(*used)._asdict(), **more)

    def _answer(self, ask: int, **what: Any) -> None:
        self.scheduler.report("stream", ask=ask, **what)

    def _take_over(self) -> dict[messages.Task, End]:
        """End what the last supervisor left running, and continue its spool. Return the unacknowledged ends."""
        begun, ended = self.spool.read()
        self.groups.end_leftovers()
        self.tasks.checkpoints.clear()
        ended |= dict.fromkeys(begun, (Outcome.LOST, 0, *NOTHING))
        self.spool.rewrite([], ended)
        return ended


def _wake_when_a_child_ends(selector: selectors.BaseSelector) -> None:
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector.register(read, selectors.EVENT_READ, lambda: os.read(read, 4096))


def _note(line: str) -> None:
    with contextlib.suppress(OSError):  # the log is on a full disk
        sys.stderr.write(f"fairlead: {line}\n")


def main() -> None:
    folder = Path(sys.argv[-1])
    if sys.argv[1] == "--apart" and os.fork():
        os._exit(0)
    last = guardian.guard(folder)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another supervisor runs
    fcntl.flock(last, fcntl.LOCK_EX)  # once the last guardian has ended, which `MOST_KILLS` bounds
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Ray's actors block SIGINT, and tasks would inherit that
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(name, lambda *_: None)  # not SIG_IGN, which tasks would inherit
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if FILES != resource.RLIM_INFINITY and wanted > FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    guardian.adopt_orphans()
    proc.keep_spare()
    Supervisor(folder, lock).run()


if __name__ == "__main__":
    main()
