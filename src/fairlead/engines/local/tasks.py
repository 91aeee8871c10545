"""The tasks that run here, each as a process group or as a call in a worker, until their last process is gone."""

import contextlib
import errno
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairlead.calls.payloads import COUNTS, result_name
from fairlead.descriptors import closing_all
from fairlead.disk_room import room_on
from fairlead.engines.local import proc, process_groups
from fairlead.engines.local.cards import visible
from fairlead.engines.local.checkpoints import VARIABLE, Checkpoints
from fairlead.engines.local.child import ProcessSpec
from fairlead.engines.local.messages import Call, Command, Feed, Gang, Program, Start, Task
from fairlead.engines.local.output import note_attempt, open_output
from fairlead.engines.local.spool import StartRecord
from fairlead.engines.local.standard_input import StandardInput
from fairlead.engines.local.warm_workers import WarmWorkers, Worker
from fairlead.outcomes import Outcome

IDLE_CPU = 0.01
"""The part of one CPU that an idle task may use, over the time after which it ends."""
PORTS = ("FAIRLEAD_PORT", "PORT", "JUPYTER_PORT")
"""Variables with a task's port: ours, one that many servers know, and Jupyter's."""
FILE_TIME_LAG = 0.1
"""Seconds by which file times may lag the clock."""


class Running:
    """A task with processes left. `worker` is set for Python calls only."""

    def __init__(self, task: Task, given: ProcessSpec, group: process_groups.ProcessGroup, worker: Worker | None) -> None:
        self.task, self.given, self.group, self.worker = task, given, group, worker
        self.over_memory = self.over_output = self.paused = self.idled = False
        self.program: Program | None = None  # None for a call
        self.sent = False  # its program runs in the copy of a folder
        self.port: int | None = None
        self.idle, self.used_at, self.used_cpu = 0.0, time.monotonic(), 0
        self.before = process_groups.NOTHING  # the worker's usage by earlier calls
        self.began = process_groups.since_boot()
        self.counts = -1  # a file in which the worker counts its calls

    def age(self) -> int:
        """Return the milliseconds since its start."""
        return process_groups.since_boot() - self.began

    def deciding_pids(self) -> list[int]:
        """Return the pid whose exit status is the task's, and then 0 once it was asked to stop; 0 alone for a call."""
        if self.worker is not None:
            return [0]
        return [self.group.pid] if self.group.kill_at is None else [self.group.pid, 0]

    def calls_made(self) -> tuple[int, int]:
        """Return how many calls its worker made, and their milliseconds, and close the file that has them."""
        if self.counts < 0:
            return 0, 0
        data = os.pread(self.counts, COUNTS.size, 0)
        os.close(self.counts)
        calls, seconds = COUNTS.unpack(data) if len(data) == COUNTS.size else (0, 0.0)
        return (calls, round(1000 * seconds)) if 0 < calls < 2**53 and 0 <= seconds < 2**40 else (0, 0)

    def ran(self) -> int:
        """Return its run time in milliseconds, at least 1; 0 if its program never started."""
        if self.group.failure is not None:
            return 0
        answered = self.worker is not None and self.worker.answer is not None
        ended = self.worker.answered_at if self.worker is not None and answered else self.group.seen_at
        return max(1, ended - self.began)


class Tasks:
    """All running tasks.

    output : the folder for output, with a folder per job
    checkpoints : their checkpoint pipes
    on_start : called with the task, once its program is executed
    on_failure : called with the task, what it was to start by, and an OSError, if that is known only after `start`
    on_end : called with the task, its outcome, code and usage, once none of its processes is left
    answer : called with the number of a question about input, and its answer
    dial : returns where the relays of workers reach the scheduler; empty if it is on this machine
    """

    def __init__(
        self,
        output: Path,
        checkpoints: Checkpoints,
        groups: process_groups.ProcessGroups,
        workers: WarmWorkers,
        selector: selectors.BaseSelector,
        on_start: Callable[[Task], None],
        on_failure: Callable[[Task, Start, OSError], None],
        on_end: Callable[[Task, Outcome, int, process_groups.Used], None],
        answer: Callable[..., None],
        dial: Callable[[], dict[str, Any]],
    ) -> None:
        self._dial = dial
        self._output, self._groups, self._workers, self._selector = output, groups, workers, selector
        self._on_start, self._on_failure, self._on_end, self._answer = on_start, on_failure, on_end, answer
        self.checkpoints = checkpoints
        self._made = ""  # the last output folder made
        self.running: dict[Task, Running] = {}
        self._room_is_low, self._room_seen_at = False, time.time()
        self.closed_to: dict[str, int] = {}  # by user who could not run here: the errno
        self.busy_cards: set[int] = set()

    def start(self, task: Task, start: Start, record: StartRecord) -> None:
        """Start a task, which writes the `record` before its program runs; raises OSError if that fails."""
        memory = start.limits.memory
        if memory and self._workers.are_idle() and proc.available_memory() < memory:
            self._workers.dismiss()

        def failed(error: OSError) -> None:
            del self.running[task]
            self.checkpoints.give_up(task, error)
            self._on_failure(task, start, error)

        try:
            given = self._give(task, start)
            if isinstance(start.work, Command):
                self._start_command(task, start.work, given, failed, record)
            else:
                self._start_call(task, start.work, given)
        except OSError as error:
            self.checkpoints.give_up(task, error)
            raise

    def _give(self, task: Task, start: Start) -> ProcessSpec:
        (job, index, number), limits = task, start.limits
        env = {"FAIRLEAD_JOB": str(job), "FAIRLEAD_INDEX": _known_as(task, start.work), "FAIRLEAD_NUMBER": str(number)}
        if number > 1:
            env["FAIRLEAD_RESUMED"] = "1"
        if start.gang is not None:
            env |= self._gang_env(index, start.gang, start.work)
        if limits.cpu:
            env["FAIRLEAD_CPU"] = f"{limits.cpu / 1000:g}"
        if limits.memory:
            env["FAIRLEAD_MEMORY"] = str(limits.memory)
        gpus: list[int] = []
        if limits.gpus:
            taken = {gpu for run in self.running.values() for gpu in run.given.gpus}
            gpus = [gpu for gpu in limits.gpu_indices if gpu not in taken][: limits.gpus]
        env |= visible(gpus)
        folder = f"{self._output}/{job}"
        if folder != self._made:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._made = folder
        if number > 1:
            note_attempt(f"{folder}/{index}", number)
        env[VARIABLE] = self.checkpoints.make(task, start.person)
        given = ProcessSpec(limits, env, gpus, f"{folder}/{index}", start.person, "", [], signal=start.signal)
        if isinstance(start.work, Command):
            return given._replace(export=start.work.export, cores=self._free_cores(limits.cpu))
        return given

    def _gang_env(self, index: int, gang: Gang, work: Command | Call) -> dict[str, str]:
        """Return what a task of a gang knows of the others. Raises OSError if it is the first and the gang's port is taken."""
        if index == 0 and gang.port:
            if str(gang.port) in (run.given.env.get("FAIRLEAD_PORT") for run in self.running.values() if run.task[1] == 0):
                raise OSError(errno.EADDRINUSE, f"port {gang.port} is of another gang")
            with socket.socket() as line:
                line.bind(("", gang.port))
        env = {"FAIRLEAD_RANK": str(index), "FAIRLEAD_SIZE": str(gang.size), "FAIRLEAD_MASTER": gang.master}
        if gang.port:
            env |= {"FAIRLEAD_HOSTS": gang.hosts, "FAIRLEAD_PORT": str(gang.port)}
        if not gang.apart:
            return env
        torch = {"MASTER_ADDR": gang.master, "MASTER_PORT": str(gang.port), "WORLD_SIZE": str(gang.size), "LOCAL_WORLD_SIZE": "1"}
        torch |= {"RANK": str(index), "NODE_RANK": str(index), "LOCAL_RANK": "0"}
        own = work.program.env if isinstance(work, Command) else {}
        return env | {name: value for name, value in torch.items() if name not in own}

    def _free_cores(self, milli_cpu: int) -> list[int]:
        """Return as many free cores as a task requests, if it requests whole ones; else none: it may use all.

        A program that counts its cores then sizes itself to its request. Workers are never pinned: their threads outlive a
        call.
        """
        count, rest = divmod(milli_cpu, 1000)
        there = os.sched_getaffinity(0)
        free = sorted(there.difference(*(run.given.cores for run in self.running.values())))
        return free[:count] if not rest and 0 < count <= len(free) and count < len(there) else []

    def _start_command(
        self, task: Task, work: Command, given: ProcessSpec, failed: Callable[[OSError], None], record: StartRecord
    ) -> None:
        program = work.program
        if work.numbered:
            program = program._replace(argv=[_with_index(word, _known_as(task, work)) for word in program.argv])
        port = None if work.port is None else free_port(work.port, {run.port for run in self.running.values()})
        if port is not None:
            given.env.update(dict.fromkeys(PORTS, str(port)))
            program = program._replace(argv=[word.replace("{port}", str(port)) for word in program.argv])
        name = ".".join(map(str, task))
        more: list[int] = []
        if work.sent is not None:
            more = [os.open(work.sent.session, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
            words = [sys.executable, "-I", "-m", "fairlead.calls.parcel", result_name(*task[:2]), json.dumps(work.fetch)]
            program = program._replace(argv=[*words, *program.argv], cwd="/")
        with closing_all(more):
            if work.input:
                feeder = StandardInput(self._selector, work.input == "terminal", given.person, self._answer, work.size)
                given = given._replace(input=feeder)
            group = self._groups.fork(
                name, program, given, lambda program: self._hear_of_start(task, program), failed, more, record
            )
        run = self.running[task] = Running(task, given, group, None)
        run.program, run.sent, run.port, run.idle = work.program, work.sent is not None, port, work.idle

    def feed(self, piece: Feed) -> None:
        """Pass a piece of standard input to a task, and answer how much was taken."""
        run = self.running.get(piece.task)
        if run is not None and run.given.input is not None:
            run.given.input.feed(piece)
        else:
            self._answer(piece.ask, over=True)

    def _start_call(self, task: Task, call: Call, given: ProcessSpec) -> None:
        job, index, _ = task
        message = {"payload": call.payload, "job": job, "index": index, "env": given.env, "dial": self._dial()}
        with closing_all(open_output(given.output, given.person)) as files:
            files.append(os.memfd_create("calls", os.MFD_CLOEXEC))
            # A worker that used a GPU may hold its memory, so it is not reused.
            warm = self._workers.take(call.pool, given.person) if not given.gpus else None
            worker = warm or self._workers.start(call, given, lambda program: self._hear_of_start(task, program))
            worker.call(message, files)
            counts = files.pop()
        run = self.running[task] = Running(task, given, worker.group, worker)
        run.counts = counts
        if warm:
            run.before = process_groups.NOTHING._replace(cpu=worker.used)
            proc.forget_most_resident(worker.group.pid)
            self._on_start(task)

    def _hear_of_start(self, task: Task, program: Program) -> None:
        """Report the start of a task; or write to its output why exec failed."""
        run = self.running[task]
        failure = run.group.failure
        if failure is None:
            self._on_start(run.task)
            return
        given = run.given
        # On a full disk, the outcome has the errno.
        with contextlib.suppress(OSError), closing_all(open_output(given.output, given.person)) as files:
            os.write(files[1], f"fairlead: {failure.reason(program, given.person)}\n".encode("utf-8", "replace"))

    def stop(self, task: Task, grace: float) -> None:
        """Send a task its signal, and SIGKILL after `grace` seconds. With a terminal also SIGHUP, which shells end by."""
        run = self.running[task]
        if run.paused:
            self._pause(run, False)
        self._groups.stop(run.group, grace, run.given.signal)
        if run.given.input and run.given.input.terminal and run.group.status is None:
            process_groups.signal_group(run.group, signal.SIGHUP)

    def limit(self, task: Task, cpu: int, memory: int) -> None:
        """Change the limits of a running task, if it has any: millicores, and bytes of memory, which only grow."""
        run = self.running.get(task)
        if run is None or run.worker is not None:
            return
        limits = run.given.limits
        more = max(memory, limits.memory) if limits.memory else 0
        if (cpu, more) != (limits.cpu, limits.memory):
            run.given = run.given._replace(limits=limits._replace(cpu=cpu, memory=more))
            if run.group.cgroup:
                with contextlib.suppress(OSError):  # it is about to end
                    run.group.cgroup.limit(more, cpu)

    def paused(self) -> list[Task]:
        """Return the tasks stopped until the disk has room."""
        return [task for task, run in self.running.items() if run.paused]

    def check_disk(self) -> None:
        """Stop the tasks that wrote output lately while the disk is nearly full; continue all when it has room.

        Recent writers are found by file times, which failed writes also change. Tasks that are being stopped may write.
        """
        since, self._room_seen_at = self._room_seen_at - FILE_TIME_LAG, time.time()
        try:
            self._room_is_low = room_on(self._output).is_low(self._room_is_low)
        except OSError:  # somebody removed the folder: the next task makes it again
            self._room_is_low = False
        for run in self.running.values():
            if run.paused != self._must_pause(run, since):
                self._pause(run, not run.paused)

    def _must_pause(self, run: Running, since: float) -> bool:
        if not self._room_is_low or run.group.status is not None or run.group.kill_at is not None:
            return False
        return run.paused or any(file.st_mtime >= since for file in _output_files(run.given.output))

    def _pause(self, run: Running, stop: bool) -> None:
        run.paused = stop
        self._groups.signal_all(run.group, signal.SIGSTOP if stop else signal.SIGCONT)

    def checkpointed(self) -> list[tuple[Task, int]]:
        """Return the tasks that reported a checkpoint since the last call, and its age in milliseconds."""
        seen = ((task, self.checkpoints.age(task)) for task in self.running)
        return [(task, ago) for task, ago in seen if ago is not None]

    def finish_ended(self, keep_workers: bool) -> None:
        """Report tasks with no process left; keep the workers of finished calls, if allowed."""
        now = time.monotonic()
        for run in list(self.running.values()):
            group, worker = run.group, run.worker
            if worker and worker.answer is not None and group.status is None and group.kill_at is None:
                used = self._used(run)
                clean = not run.given.gpus and not run.over_memory and self._groups.is_alone(group)
                if keep_workers and clean and self._workers.keep(worker):
                    self._end(run, Outcome.EXITED, worker.answer, used)
                else:
                    group.kill_at = now
            elif self._groups.clear(group, now):
                run.over_memory |= bool(group.cgroup and group.cgroup.ran_out_of_memory())
                used = self._used(run)
                self._groups.bury(group)
                self._end(run, *_how_it_ended(run), used)

    def copy_output(self) -> None:
        """Retry to copy the output of terminals after the disk was full."""
        for run in self.running.values():
            if run.given.input:
                run.given.input.copy_output()

    def _used(self, run: Running) -> process_groups.Used:
        """Return a task's usage; for a call, what its worker used during it."""
        used = self._groups.used(run.group)
        if run.worker is None:
            return used
        peak = proc.most_resident(run.group.pid) if run.group.status is None else run.group.reaped.peak
        return process_groups.Used(max(0, used.cpu - run.before.cpu), peak)

    def _end(self, run: Running, outcome: Outcome, code: int, used: process_groups.Used) -> None:
        del self.running[run.task]
        self.checkpoints.remove([run.task])
        if run.given.input:
            run.given.input.copy_output()
            run.given.input.close()
        if run.group.failure is not None and run.group.failure.at == "account" and run.given.person is not None:
            self.closed_to[run.given.person.name] = code
            outcome = Outcome.LOST
        calls, called = run.calls_made()
        self._on_end(run.task, outcome, code, used._replace(ran=run.ran(), calls=calls, called=called))

    def enforce_limits(self) -> None:
        """End tasks that exceed their memory (unless the kernel ended all of it) or their output limit."""
        for run in self.running.values():
            if run.group.status is None:
                memory, output = run.given.limits.memory, run.given.limits.output
                run.over_memory |= bool(memory) and self._groups.is_over_memory(run.group, memory)
                blocks = sum(file.st_blocks for file in _output_files(run.given.output)) if output else 0
                run.over_output |= 512 * blocks > output
                if run.over_memory or run.over_output:
                    self._groups.kill(run.group)

    def idle(self, is_connected: Callable[[Task], bool]) -> list[Task]:
        """Return the tasks that became idle for as long as their jobs say: no connection, no busy card, hardly any CPU time."""
        now, found = time.monotonic(), []
        for task, run in self.running.items():
            if not run.idle or run.idled or run.group.status is not None or run.group.kill_at is not None:
                continue
            cpu = self._groups.cpu_of_all(run.group)
            used = abs(cpu - run.used_cpu) > 1000 * IDLE_CPU * run.idle
            if used or run.paused or is_connected(task) or self.busy_cards.intersection(run.given.gpus):
                run.used_at, run.used_cpu = now, cpu
            elif now - run.used_at >= run.idle:
                run.idled = True
                found.append(task)
        return found

    def ended_but_traced(self) -> list[process_groups.ProcessGroup]:
        """Return groups whose first process ended without an event, because it is traced."""
        return [run.group for run in self.running.values() if self._groups.ended_but_traced(run.group)]

    def any_ending(self) -> bool:
        """Return True if a group may end at any moment, which raises no event."""
        return any(run.group.status is not None or run.group.kill_at is not None for run in self.running.values())


def _known_as(task: Task, work: Command | Call) -> str:
    """Return the index that the task sees."""
    index = str(task[1])
    return str(work.known_as.get(index, index)) if isinstance(work, Command) else index


def free_port(wanted: int, taken: set[int | None]) -> int:
    """Return a port for a task: the one that it would like if it is free on this machine, else another. Raises OSError."""
    for port in (wanted, *(0 for _ in range(20))):
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(("", port))
            if (found := int(trial.getsockname()[1])) not in taken:
                return found
    raise OSError(errno.EAGAIN, "no port is free")


def _with_index(word: str, index: str) -> str:
    """Replace {index} in a word; {{index}} becomes {index}."""
    return "{index}".join(part.replace("{index}", index) for part in word.split("{{index}}"))


def _output_files(path: str) -> Iterator[os.stat_result]:
    """Yield what the file system says of a task's output, unless it was removed."""
    for name in ("out", "err"):
        with contextlib.suppress(OSError):
            yield os.stat(f"{path}.{name}")


def _how_it_ended(run: Running) -> tuple[Outcome, int]:
    """Return the outcome and code of a task with no process left. An answered call counts however its worker ended."""
    group = run.group
    assert group.status is not None
    if run.worker and run.worker.answer is not None:
        return Outcome.EXITED, run.worker.answer
    if group.failure is not None:
        outcome, code = Outcome.NOT_STARTED, group.failure.errno
        if group.failure.at == "spool":  # a full disk, which only postpones
            outcome, code = Outcome.LOST, 0
    elif os.WIFSIGNALED(group.status):
        outcome, code = Outcome.SIGNALLED, os.WTERMSIG(group.status)
    else:
        outcome = Outcome.EXITED if group.kill_at is None else Outcome.STOPPED
        code = os.WEXITSTATUS(group.status)
    if run.idled:
        outcome, code = Outcome.UNUSED, 0
    if run.over_output and (outcome, code) != (Outcome.EXITED, 0):
        outcome, code = Outcome.SIGNALLED, signal.SIGXFSZ  # the system's signal for too large a file
    if run.over_memory:
        # The kernel may have killed a part of it, and the rest may have ended as if nothing had happened.
        outcome, code = Outcome.OUT_OF_MEMORY, signal.SIGKILL
    return outcome, code
