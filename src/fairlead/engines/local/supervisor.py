"""The parent of all tasks on this machine. It is small, has one thread, and outlives the scheduler.

    python -m fairlead.engines.local.supervisor FOLDER

It listens on FOLDER/socket for one scheduler at a time and talks in lines of JSON:

    {"do": "start", "work": {...}, "limits": {...}, "tasks": [[job, index, number], ...]}
        work: argv, cwd, env, encoding, numbered; or session, payload and pool for calls of Python functions
    {"do": "stop", "tasks": [...], "grace": seconds}      {"do": "acknowledge", "tasks": [...]}
    {"do": "inventory"}                                   {"do": "leave"}

    {"saw": "inventory", "tasks": [...], "limits": {"memory": true, "cpu": true}}
    {"saw": "started", "task": [...]}                     {"saw": "ended", "task": [...], "outcome": 0, "code": 0}

What it did is in FOLDER/spool before and after it is done, so that a supervisor that takes over from a killed one knows what
to clean up: those tasks are ended and reported lost. Only the standard library is imported; forking must be cheap.
"""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from fairlead.engines.local.cgroups import Cgroups, Group, find

EXITED, SIGNALLED, OUT_OF_MEMORY, NOT_STARTED, LOST = range(5)  # as in fairlead.scheduler.facts.Outcome

Task = tuple[int, int, int]

MARK = "FAIRLEAD_ATTEMPT"
"""In the environment of every process of a task: how its children are known where there are no cgroups."""
LONGEST_LINE = 64 * 2**20
LINGER = 10.0
"""Seconds that a supervisor stays with nothing to do and nobody connected."""
WATCH_EVERY = 0.5
IDLE_FOR = 60.0
"""Seconds that a worker waits for another call."""
MOST_IDLE = 4 * (os.cpu_count() or 1)
SPOOL_SIZE = 4 * 2**20


class Worker:
    """A process that calls Python functions, one after another; those of one pool only: a session, queue and shape."""

    def __init__(self, pool: str, session: str, line: socket.socket) -> None:
        self.pool, self.session, self.line = pool, session, line
        self.pid = 0
        self.group: Group | None = None
        self.mark = ""
        self.run: Running | None = None  # what it does now
        self.idle_since = 0.0


class Running:
    """A task whose processes are not all gone."""

    def __init__(
        self, task: Task, pid: int, group: Group | None, mark: str, memory: int, gpus: list[int], worker: Worker | None
    ) -> None:
        self.task, self.pid, self.group, self.mark, self.memory, self.gpus = task, pid, group, mark, memory, gpus
        self.worker = worker
        self.result: tuple[int, int] | None = None  # how its call ended, whatever becomes of its worker
        self.kill_at: float | None = None  # when its time to end by itself is over
        self.status: int | None = None  # the wait status of its first process
        self.over_memory = False
        self.executed = False  # whether it is known if it could be
        self.failure: int | None = None  # the errno, where it could not


class Supervisor:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        self.cgroups: Cgroups | None = find(f"fairlead-{name}")
        self.running: dict[Task, Running] = {}
        self.by_pid: dict[int, Running] = {}
        self.workers: dict[int, Worker] = {}  # by the number of their process
        self.idle: list[Worker] = []  # the one that waits longest first
        self.graves: list[Group] = []  # of workers that ended, to be removed when empty
        self.workers_made = 0
        self.ended: dict[Task, tuple[int, int]] = {}
        self.refused: set[Task] = set()  # told to stop before they were to start
        self.postponed: dict[Task, tuple[dict[str, Any], dict[str, Any]]] = {}  # until the disk has room again
        self.unwritten = bytearray()  # of the spool, until then
        self.connection: socket.socket | None = None
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.leaving = False
        self.made: set[str] = set()  # the output folder that was made last
        self.idle_since = time.monotonic()
        self.watch_at = self.watch_idle_at = 0.0
        self.retry_at = 0.0
        self.selector = selectors.DefaultSelector()
        self.spool = -1
        self._take_over(folder / "spool")
        self.listener = _listen(folder)
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(wake_read, selectors.EVENT_READ, lambda: _drain(wake_read))

    def run(self) -> None:
        while not (self.leaving and not self.running and not self.postponed):
            for key, _ in self.selector.select(self._timeout()):
                key.data()
            self._reap()
            self._finish_those_over()
            self._watch_memory()
            self._watch_idle()
            self._try_again()
            self._flush()
            if self.running or self.connection:
                self.idle_since = time.monotonic()
            elif time.monotonic() - self.idle_since > LINGER:
                break
        self._flush()
        self._dismiss(self.idle)
        until = time.monotonic() + 2
        while (self.workers or self.graves) and time.monotonic() < until:
            self._reap()
            self._bury()
            time.sleep(0.005)
        if self.cgroups:
            self.cgroups.close()

    # -- talking -------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        if self.connection:
            self._hang_up()
        connection.setblocking(False)
        self.connection, self.inbox, self.outbox = connection, bytearray(), bytearray()
        self.selector.register(connection, selectors.EVENT_READ, self._receive)

    def _hang_up(self) -> None:
        assert self.connection
        self.selector.unregister(self.connection)
        self.connection.close()
        self.connection = None

    def _receive(self) -> None:
        if self.connection is None:  # hung up since the selector saw it
            return
        try:
            data = self.connection.recv(1 << 20)
        except BlockingIOError:
            self._flush()
            return
        except OSError:
            data = b""
        if not data or len(self.inbox) > LONGEST_LINE:
            self._hang_up()
            return
        self.inbox += data
        *lines, rest = self.inbox.split(b"\n")
        self.inbox = rest
        for line in lines:
            message = json.loads(line)
            getattr(self, "_do_" + message["do"])(message)

    def _say(self, saw: str, **what: Any) -> None:
        if self.connection:
            self.outbox += json.dumps({"saw": saw, **what}).encode() + b"\n"
            if len(self.outbox) > 65536:
                self._flush()

    def _flush(self) -> None:
        if not self.connection:
            return
        try:
            while self.outbox:
                sent = self.connection.send(self.outbox)
                del self.outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up()
            return
        want = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outbox else 0)
        self.selector.modify(self.connection, want, self._receive)

    def _do_inventory(self, message: dict[str, Any]) -> None:
        limits = {
            "memory": bool(self.cgroups and self.cgroups.limits_memory),
            "cpu": bool(self.cgroups and self.cgroups.limits_cpu),
            "tracking": self.cgroups is not None,
        }
        self._say("inventory", tasks=[*self.running, *self.postponed, *self.ended], limits=limits)
        for task, (outcome, code) in self.ended.items():
            self._say("ended", task=task, outcome=outcome, code=code)
        for task in self.running:
            self._say("started", task=task)

    def _do_start(self, message: dict[str, Any]) -> None:
        for task in _tasks(message):
            if task in self.refused:
                self._end(task, SIGNALLED, signal.SIGTERM)
            elif task not in self.running and task not in self.ended and task not in self.postponed:
                self._start(task, message["work"], message["limits"])

    def _do_stop(self, message: dict[str, Any]) -> None:
        for task in _tasks(message):
            run = self.running.get(task)
            if run is None:
                self.postponed.pop(task, None)
                if task not in self.ended:
                    self.refused.add(task)
                    self._end(task, SIGNALLED, signal.SIGTERM)
            elif run.kill_at is None:
                run.kill_at = time.monotonic() + message["grace"]
                _signal_group(run.pid, signal.SIGTERM)
                _signal_group(run.pid, signal.SIGCONT)

    def _do_acknowledge(self, message: dict[str, Any]) -> None:
        for task in _tasks(message):
            if self.ended.pop(task, None) is not None:
                self._note("acknowledged", task)
        if os.fstat(self.spool).st_size > SPOOL_SIZE:
            self._rewrite_spool()

    def _do_leave(self, message: dict[str, Any]) -> None:
        self.leaving = True

    # -- tasks ---------------------------------------------------------------------------------------------------

    def _start(self, task: Task, work: dict[str, Any], limits: dict[str, Any]) -> None:
        self._note("starting", task)
        job, index, number = task
        given = {"FAIRLEAD_JOB": str(job), "FAIRLEAD_INDEX": str(index), "FAIRLEAD_NUMBER": str(number)}
        gpus: list[int] = []
        if limits["gpus"]:
            taken = {gpu for run in self.running.values() for gpu in run.gpus}
            gpus = [gpu for gpu in limits["gpu_indices"] if gpu not in taken][: limits["gpus"]]
            given["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        if self.idle and limits["memory"] and _available_memory() < limits["memory"]:
            self._dismiss(self.idle)
        try:
            output = self._output_folder(job)
            if output not in self.made:
                self.made = {output}
                os.makedirs(output, mode=0o700, exist_ok=True)
            if "session" in work:
                # A worker that had a GPU may still hold memory of it, so it does not wait for another call.
                worker = self._idle_worker(work["pool"]) if not gpus else None
                if worker is None:
                    self._start_worker(task, work, limits, given, gpus)
                else:
                    self._call(worker, task, work, limits, given)
                    self._note("started", task, worker.pid)
                    self._say("started", task=task)
                return
            argv = [a.replace("{index}", str(index)) for a in work["argv"]] if work["numbered"] else work["argv"]
            mark = self._mark(".".join(map(str, task)))
            files = _open_output(output, index)
            pid, group, report = self._fork(
                ".".join(map(str, task)),
                {**work, "argv": argv, "env": {**work["env"], **given, MARK: mark}},
                limits,
                files,
            )
            run = Running(task, pid, group, mark, limits["memory"], gpus, None)
            self.running[task] = self.by_pid[pid] = run
            self.selector.register(report, selectors.EVENT_READ, lambda: self._executed(run, report, work))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self.postponed[task] = (work, limits)
            else:
                self._end(task, NOT_STARTED, error.errno or errno.EIO)

    def _fork(
        self, name: str, work: dict[str, Any], limits: dict[str, Any], files: list[int]
    ) -> tuple[int, Group | None, int]:
        """Start a process in a group of its own; the files, which are closed here, become its descriptors from 1 on.

        Returns its number, its group, and where it reports the errno if it cannot be executed.
        """
        group = None
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            if self.cgroups:
                group = self.cgroups.create(name, limits["memory"], limits["cpu"])
            pid = os.fork()
            if pid == 0:
                _become(work, files, group, write)
            return pid, group, read
        except OSError:
            os.close(read)
            if group:
                group.remove()
            raise
        finally:
            for fd in (*files, write):
                os.close(fd)

    def _executed(self, run: Running, report: int, work: dict[str, Any]) -> None:
        """The child became the task, or tells why it could not."""
        failure = os.read(report, 16)
        self.selector.unregister(report)
        os.close(report)
        run.executed = True
        if not failure:
            self._note("started", run.task, run.pid)
            self._say("started", task=run.task)
            return
        run.failure = int(failure)
        what = work["argv"][0] if run.failure != errno.ENOTDIR else work["cwd"]
        reason = f"fairlead: cannot run {what!r} in {work['cwd']!r}: {os.strerror(run.failure)}\n"
        with (
            contextlib.suppress(OSError),
            open(f"{self._output_folder(run.task[0])}/{run.task[1]}.err", "a") as log,
        ):
            log.write(reason)

    # -- workers: processes that call Python functions ---------------------------------------------------------

    def _idle_worker(self, pool: str) -> Worker | None:
        """Take the worker of a pool that waits least long: the warmest."""
        for place in range(len(self.idle) - 1, -1, -1):
            if self.idle[place].pool == pool:
                return self.idle.pop(place)
        return None

    def _start_worker(
        self, task: Task, work: dict[str, Any], limits: dict[str, Any], given: dict[str, str], gpus: list[int]
    ) -> None:
        setup = json.loads(Path(work["session"], "setup.json").read_text())
        self.workers_made += 1
        name = f"worker.{self.workers_made}"
        line, theirs = socket.socketpair()
        worker = Worker(work["pool"], work["session"], line)
        worker.mark = self._mark(name)
        try:
            files = [*_open_output(self._output_folder(task[0]), task[1]), theirs.detach()]
            setup["env"] |= {**given, MARK: worker.mark}
            worker.pid, worker.group, report = self._fork(name, setup, limits, files)
        except OSError:
            line.close()
            raise
        finally:
            theirs.close()
        self.workers[worker.pid] = worker
        self.selector.register(line, selectors.EVENT_READ, lambda: self._heard_from(worker))
        run = self._call(worker, task, work, limits, given)
        run.gpus, run.executed = gpus, False
        self.selector.register(report, selectors.EVENT_READ, lambda: self._executed(run, report, setup))

    def _call(
        self, worker: Worker, task: Task, work: dict[str, Any], limits: dict[str, Any], given: dict[str, str]
    ) -> Running:
        """Have a worker call the function of a task."""
        run = Running(task, worker.pid, worker.group, worker.mark, limits["memory"], [], worker)
        run.executed = True
        worker.run = self.running[task] = self.by_pid[worker.pid] = run
        job, index, _ = task
        message = {"session": work["session"], "payload": work["payload"], "job": job, "index": index, "env": given}
        message["output"] = f"{self._output_folder(job)}/{index}"
        with contextlib.suppress(OSError):  # it is gone: that is seen when it is reaped
            worker.line.sendall(json.dumps(message).encode() + b"\n")
        return run

    def _heard_from(self, worker: Worker) -> None:
        try:
            answer = worker.line.recv(64)
        except OSError:
            answer = b""
        if not answer:
            self._hang_up_on(worker)
        elif worker.run is not None:
            worker.run.result = (EXITED, int(answer.split()[-1]))

    def _hang_up_on(self, worker: Worker) -> None:
        if worker.line.fileno() >= 0:
            self.selector.unregister(worker.line)
            worker.line.close()

    def _call_is_over(self, run: Running) -> None:
        """Its worker waits for another call if nothing speaks against it, else it ends, and with it the task."""
        worker = run.worker
        assert worker is not None
        assert run.result is not None
        clean = not run.gpus and not run.over_memory and not self._members(run) and worker.line.fileno() >= 0
        if not clean or self.leaving or len(self.idle) >= MOST_IDLE or not _is_there(worker.session):
            run.kill_at = time.monotonic()
            return
        del self.running[run.task], self.by_pid[run.pid]
        worker.run, worker.idle_since = None, time.monotonic()
        self.idle.append(worker)
        self._end(run.task, *run.result)

    def _dismiss(self, workers: list[Worker]) -> None:
        """End workers that are idle."""
        for worker in list(workers):
            self.idle.remove(worker)
            self._hang_up_on(worker)
            _signal_group(worker.pid, signal.SIGKILL)

    def _watch_idle(self) -> None:
        """End workers that waited for long, or whose program is gone; clean up after those that ended."""
        self._bury()
        now = time.monotonic()
        if self.idle and now >= self.watch_idle_at:
            self.watch_idle_at = now + WATCH_EVERY
            self._dismiss([w for w in self.idle if now - w.idle_since > IDLE_FOR or not _is_there(w.session)])

    def _bury(self) -> None:
        for group in list(self.graves):
            if group.pids():
                group.kill()
            else:
                group.remove()
                self.graves.remove(group)

    # -- ends ----------------------------------------------------------------------------------------------------

    def _output_folder(self, job: int) -> str:
        return f"{self.folder.parent}/output/{job}"

    def _mark(self, name: str) -> str:
        return f"{self.folder}:{name}"

    def _reap(self) -> None:
        """Collect ended processes. A task's first process stays a zombie until its group is gone: its number is ours."""
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if child is None:
                return
            run = self.by_pid.pop(child.si_pid, None)
            worker = self.workers.pop(child.si_pid, None)
            if run is not None and run.kill_at is None:
                _signal_group(run.pid, signal.SIGKILL)
            _, status = os.waitpid(child.si_pid, 0)
            if worker is not None:
                self._hang_up_on(worker)
                if worker in self.idle:
                    self.idle.remove(worker)
                if run is None and worker.group:
                    self.graves.append(worker.group)
            if run is not None:
                run.status = status

    def _finish_those_over(self) -> None:
        now = time.monotonic()
        for run in list(self.running.values()):
            if run.result is not None and run.status is None and run.kill_at is None:
                self._call_is_over(run)
                continue
            late = run.kill_at is not None and now >= run.kill_at
            if run.status is None and not late:
                continue
            members = self._members(run)
            if (members or run.status is None) and (late or run.kill_at is None):
                self._kill(run, members)
            # Only a look that finds nobody is the end: what was just killed may have left children to us.
            if not members and run.status is not None and run.executed:
                self._finish(run)

    def _finish(self, run: Running) -> None:
        assert run.status is not None
        if run.result is not None:
            outcome, code = run.result
        elif run.failure is not None:
            outcome, code = NOT_STARTED, run.failure
        elif os.WIFSIGNALED(run.status):
            outcome, code = SIGNALLED, os.WTERMSIG(run.status)
        else:
            outcome, code = EXITED, os.WEXITSTATUS(run.status)
        if run.group:
            run.over_memory |= run.group.ran_out_of_memory()
            run.group.remove()
        if run.over_memory and (outcome, code) != (EXITED, 0):
            outcome = OUT_OF_MEMORY
        del self.running[run.task]
        self._end(run.task, outcome, code)

    def _end(self, task: Task, outcome: int, code: int) -> None:
        self.ended[task] = (outcome, code)
        self._note("ended", task, outcome, code)
        self._say("ended", task=task, outcome=outcome, code=code)

    def _kill(self, run: Running, members: set[int]) -> None:
        if run.status is None:
            _signal_group(run.pid, signal.SIGKILL)
        if run.group:
            run.group.kill()
        else:
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _members(self, run: Running) -> set[int]:
        """The processes of a task, but for its first."""
        if run.group:
            return run.group.pids() - {run.pid}
        # As their subreaper we are the parent of all that were left behind; the environment tells whose they were.
        mark = f"{MARK}={run.mark}\0".encode()
        found = {pid for pid in _children() if pid not in self.by_pid and mark in _environment(pid)}
        if run.status is None:
            found.add(run.pid)
        return found.union(*map(_descendants, found)) - {run.pid}

    def _watch_memory(self) -> None:
        """End what uses more memory than it asked for, where the kernel does not, or ended only a part of it."""
        now = time.monotonic()
        if now < self.watch_at:
            return
        self.watch_at = now + WATCH_EVERY
        for run in self.running.values():
            if not run.memory or run.status is not None:
                continue
            members: set[int] = set()
            if run.group and self.cgroups and self.cgroups.limits_memory:
                over = run.group.ran_out_of_memory()
            else:
                members = self._members(run)
                over = sum(map(_resident, {run.pid, *members})) > run.memory
            if over:
                run.over_memory = True
                self._kill(run, members)

    def _timeout(self) -> float:
        if self.graves or any(run.status is not None or run.kill_at is not None for run in self.running.values()):
            return 0.01
        return WATCH_EVERY if self.running or self.postponed or self.idle else LINGER / 2

    # -- the spool -----------------------------------------------------------------------------------------------

    def _note(self, what: str, task: Task, *more: int) -> None:
        self.unwritten += json.dumps([what, *task, *more]).encode() + b"\n"
        # On a full disk what is not written yet is kept, and written when there is room.
        with contextlib.suppress(OSError):
            while self.unwritten:
                del self.unwritten[: os.write(self.spool, self.unwritten)]

    def _try_again(self) -> None:
        """What a full disk kept us from."""
        if self.postponed and time.monotonic() >= self.retry_at:
            self.retry_at = time.monotonic() + WATCH_EVERY
            postponed, self.postponed = self.postponed, {}
            for task, (work, limits) in postponed.items():
                self._start(task, work, limits)

    def _take_over(self, path: Path) -> None:
        """Read what the last supervisor did, end what it left running, and go on in its spool."""
        begun: set[Task] = set()
        if path.exists():
            for line in path.read_bytes().split(b"\n"):
                try:
                    what, job, index, number, *more = json.loads(line)
                except ValueError:  # the last line, cut off where the last supervisor was
                    continue
                task = (job, index, number)
                if what in ("starting", "started"):
                    begun.add(task)
                else:
                    begun.discard(task)
                    self.ended.pop(task, None)
                    if what == "ended":
                        self.ended[task] = (more[0], more[1])
            self._end_leftovers()
        for task in begun:
            self.ended[task] = (LOST, 0)
        self._rewrite_spool()

    def _end_leftovers(self) -> None:
        """End whatever a supervisor before this one left running: tasks, and workers that wait."""
        groups = self.cgroups.leftovers() if self.cgroups else []
        mark = f"{MARK}={self._mark('')}".encode()
        until = time.monotonic() + 10
        while time.monotonic() < until:
            left = set().union(*(group.pids() for group in groups))
            for group in groups:
                group.kill()
            left |= {pid for pid in _processes() if mark in _environment(pid)}
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        for group in groups:
            group.remove()

    def _rewrite_spool(self) -> None:
        """Make the spool anew from what still matters, or leave it as it is where the disk is full."""
        path, fresh = self.folder / "spool", self.folder / "spool.new"
        lines = [["started", *run.task, run.pid] for run in self.running.values()]
        lines += [["ended", *task, *end] for task, end in self.ended.items()]
        try:
            fresh.write_text("".join(json.dumps(line) + "\n" for line in lines))
        except OSError:  # a full disk: go on in the old one
            fresh.unlink(missing_ok=True)
            if self.spool >= 0:
                return
        else:
            fresh.rename(path)
            self.unwritten.clear()
        if self.spool >= 0:
            os.close(self.spool)
        self.spool = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _become(work: dict[str, Any], files: list[int], group: Group | None, report: int) -> None:
    """In the forked child: become the task. Returns never; an error is told through `report`."""
    try:
        os.setsid()
        if group:
            group.join()
        signal.set_wakeup_fd(-1)
        for name in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, fd in enumerate((null, *files)):
            os.dup2(fd, target)
        encoding = work["encoding"]
        cwd = work["cwd"].encode(encoding)
        try:
            os.chdir(cwd)
        except FileNotFoundError:
            raise NotADirectoryError(errno.ENOTDIR, cwd) from None
        argv = [argument.encode(encoding) for argument in work["argv"]]
        environment = {name.encode(encoding): value.encode(encoding) for name, value in work["env"].items()}
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(report, str(error.errno or errno.EIO).encode())
    except ValueError:  # a NUL byte, or no such character in its encoding
        os.write(report, str(errno.EINVAL).encode())
    finally:
        os._exit(127)


def _tasks(message: dict[str, Any]) -> list[Task]:
    return [(job, index, number) for job, index, number in message["tasks"]]


def _open_output(output: str, index: int) -> list[int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    files: list[int] = []
    try:
        for end in ("out", "err"):
            files.append(os.open(f"{output}/{index}.{end}", flags, 0o600))
    except OSError:
        for fd in files:
            os.close(fd)
        raise
    return files


def _is_there(session: str) -> bool:
    return os.path.exists(f"{session}/setup.json")


def _available_memory() -> int:
    """What can be used without swapping, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return sys.maxsize


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _children() -> list[int]:
    return list(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    new = [pid]
    while new:
        try:
            below = Path(f"/proc/{new[-1]}/task/{new.pop()}/children").read_text().split()
        except OSError:
            continue
        new += [int(p) for p in below if int(p) not in found]
        found.update(map(int, below))
    return found


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return b""


def _resident(pid: int) -> int:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass


def address(folder: Path) -> str:
    """A socket address for FOLDER/socket however long its path is: 108 bytes are all that the kernel takes."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{fd}/socket"


def _listen(folder: Path) -> socket.socket:
    (folder / "socket").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address(folder))
    listener.listen(4)
    return listener


def main() -> None:
    folder = Path(sys.argv[1])
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another one is there already
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(name, signal.SIG_IGN)
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)
    Supervisor(folder).run()


if __name__ == "__main__":
    main()
