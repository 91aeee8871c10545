"""The tasks that run here: each in a group of processes of its own, or as a call in a worker, until its last process is gone."""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable
from pathlib import Path

from fairlead.disk_room import room_on
from fairlead.engines.local import proc
from fairlead.engines.local.checkpoints import VARIABLE, Checkpoints
from fairlead.engines.local.child import open_output
from fairlead.engines.local.messages import Call, Command, Feed, Program, Start, Task
from fairlead.engines.local.process_groups import (
    NOTHING,
    ProcessGroup,
    ProcessGroups,
    ProcessSpec,
    Used,
    signal_group,
    since_boot,
)
from fairlead.engines.local.standard_input import StandardInput
from fairlead.engines.local.warm_workers import WarmWorkers, Worker
from fairlead.outcomes import Outcome

COARSE = 0.1
"""Seconds by which a file's time may be behind the clock."""


class Running:
    """A task whose processes are not all gone. `worker` is None for one that is no call."""

    def __init__(self, task: Task, given: ProcessSpec, group: ProcessGroup, worker: Worker | None) -> None:
        self.task, self.given, self.group, self.worker = task, given, group, worker
        self.over_memory = self.over_output = self.paused = False
        self.before = NOTHING  # what a worker had used for other calls
        self.began = since_boot()

    def age(self) -> int:
        """For how many milliseconds it has run."""
        return since_boot() - self.began

    def ran(self) -> int:
        """For how many milliseconds it did, at least 1; 0 where its program never did."""
        if self.group.failure is not None:
            return 0
        answered = self.worker is not None and self.worker.answer is not None
        ended = self.worker.answered_at if self.worker is not None and answered else self.group.seen_at
        return max(1, ended - self.began)


class Tasks:
    """All that run.

    Parameters
    ----------
    output : Path
        The folder for what tasks print, a folder a job.
    checkpoints : Checkpoints
        The pipes by which tasks say that they have kept what they did.
    on_start : callable
        Called with the task and the number of its first process, once it is known that its program was executed.
    on_end : callable
        Called with the task, its outcome and code, and what it used, once nothing is left of it.
    on_fed : callable
        Called with a task, how much of its input was taken, and whether no more will be, when that has changed.
    """

    def __init__(
        self,
        output: Path,
        checkpoints: Checkpoints,
        groups: ProcessGroups,
        workers: WarmWorkers,
        selector: selectors.BaseSelector,
        on_start: Callable[[Task, int], None],
        on_end: Callable[[Task, Outcome, int, Used], None],
        on_fed: Callable[[Task, int, bool], None],
    ) -> None:
        self._output, self._groups, self._workers, self._selector = output, groups, workers, selector
        self._on_start, self._on_end, self._on_fed = on_start, on_end, on_fed
        self.checkpoints = checkpoints
        self._made = ""  # the output folder that was made last
        self.running: dict[Task, Running] = {}
        self._room_is_low, self._room_seen_at = False, time.time()

    def start(self, task: Task, start: Start) -> None:
        """Start a task; raises OSError where that cannot be done."""
        memory = start.limits.memory
        if memory and self._workers.are_idle() and proc.available_memory() < memory:
            self._workers.dismiss()
        try:
            given = self._give(task, start)
            if isinstance(start.work, Command):
                self._start_command(task, start.work, given)
            else:
                self._start_call(task, start.work, given)
        except OSError:
            self.checkpoints.remove([task])
            raise

    def _give(self, task: Task, start: Start) -> ProcessSpec:
        (job, index, number), limits = task, start.limits
        env = {"FAIRLEAD_JOB": str(job), "FAIRLEAD_INDEX": _known_as(task, start.work), "FAIRLEAD_NUMBER": str(number)}
        if number > 1:
            env["FAIRLEAD_RESUMED"] = "1"
        if start.gang is not None:
            env |= {
                "FAIRLEAD_RANK": str(index),
                "FAIRLEAD_SIZE": str(start.gang.size),
                "FAIRLEAD_MASTER": start.gang.master,
            }
        if limits.cpu:
            env["FAIRLEAD_CPU"] = f"{limits.cpu / 1000:g}"
        if limits.memory:
            env["FAIRLEAD_MEMORY"] = str(limits.memory)
        gpus: list[int] = []
        if limits.gpus:
            taken = {gpu for run in self.running.values() for gpu in run.given.gpus}
            gpus = [gpu for gpu in limits.gpu_indices if gpu not in taken][: limits.gpus]
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        folder = f"{self._output}/{job}"
        if folder != self._made:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._made = folder
        env[VARIABLE] = self.checkpoints.make(task, start.person)
        given = ProcessSpec(limits, env, gpus, f"{folder}/{index}", start.person, "", [], signal=start.signal)
        if isinstance(start.work, Command):
            return given._replace(export=start.work.export, cores=self._free_cores(limits.cpu))
        return given

    def _free_cores(self, milli_cpu: int) -> list[int]:
        """As many cores as a task asks for, if it asks for whole ones, that no other task keeps to; else none: it may use all.

        So what counts the cores that it may use sizes itself to what was asked for. A worker is used for one call after another,
        with threads that stay where they began, and is kept to none.
        """
        count, rest = divmod(milli_cpu, 1000)
        there = os.sched_getaffinity(0)
        free = sorted(there.difference(*(run.given.cores for run in self.running.values())))
        return free[:count] if not rest and 0 < count <= len(free) and count < len(there) else []

    def _start_command(self, task: Task, work: Command, given: ProcessSpec) -> None:
        program = work.program
        if work.numbered:
            program = program._replace(argv=[_with_index(word, _known_as(task, work)) for word in program.argv])
        name = ".".join(map(str, task))
        if work.input:
            given = given._replace(input=self._input(task, work.input == "terminal", given))
        group = self._groups.fork(name, program, given, lambda program: self._hear_of_start(run, program))
        run = self.running[task] = Running(task, given, group, None)
        if group.executed:
            self._on_start(task, group.pid)

    def _input(self, task: Task, terminal: bool, given: ProcessSpec) -> StandardInput:
        def say() -> None:
            self._on_fed(task, made.taken, made.is_over())

        made = StandardInput(self._selector, terminal, given.person, say)
        return made

    def feed(self, piece: Feed) -> None:
        """Give a task a piece of its standard input, and tell how much was taken."""
        run = self.running.get(piece.task)
        given = run.given.input if run is not None else None
        if given is not None:
            given.feed(piece)
            self._on_fed(piece.task, given.taken, given.is_over())
        else:
            self._on_fed(piece.task, 0, True)

    def _start_call(self, task: Task, call: Call, given: ProcessSpec) -> None:
        job, index, _ = task
        message = {"payload": call.payload, "alone": call.fetched, "job": job, "index": index, "env": given.env}
        files = open_output(given.output, given.person)
        try:
            # A worker that had a GPU may still hold memory of it, so it does not wait for another call.
            warm = self._workers.take(call.pool, given.person) if not given.gpus else None
            worker = warm or self._workers.start(call, given, lambda program: self._hear_of_start(run, program))
            worker.call(message, files)
        finally:
            for fd in files:
                os.close(fd)
        run = self.running[task] = Running(task, given, worker.group, worker)
        if warm:
            run.before = self._groups.used(worker.group)
            proc.forget_most_resident(worker.group.pid)
            self._on_start(task, worker.group.pid)

    def _hear_of_start(self, run: Running, program: Program) -> None:
        """The child became the task, or told why it could not."""
        failure = run.group.failure
        if failure is None:
            self._on_start(run.task, run.group.pid)
            return
        given = run.given
        with contextlib.suppress(OSError):  # a full disk: the outcome tells the errno
            files = open_output(given.output, given.person)
            try:
                os.write(files[1], f"fairlead: {failure.reason(program, given.person)}\n".encode("utf-8", "replace"))
            finally:
                for fd in files:
                    os.close(fd)

    def stop(self, task: Task, grace: float) -> None:
        """Its signal, and SIGKILL for what is left after so many seconds. Shells end when their terminal hangs up: SIGHUP too."""
        run = self.running[task]
        if run.paused:
            self._pause(run, False)
        self._groups.stop(run.group, grace, run.given.signal)
        if run.given.input and run.given.input.terminal and run.group.status is None:
            signal_group(run.group, signal.SIGHUP)

    def limit(self, task: Task, cpu: int, memory: int) -> None:
        """Hold a task to other thousandths of a CPU, and to more bytes of memory, if it runs and was held to any."""
        run = self.running.get(task)
        if run is None or run.worker is not None:
            return
        limits = run.given.limits
        more = max(memory, limits.memory) if limits.memory else 0
        if (cpu, more) != (limits.cpu, limits.memory):
            run.given = run.given._replace(limits=limits._replace(cpu=cpu, memory=more))
            if run.group.cgroup:
                with contextlib.suppress(OSError):  # it is on its way out
                    run.group.cgroup.limit(more, cpu)

    def paused(self) -> list[Task]:
        """Those that wait for room on the disk."""
        return [task for task, run in self.running.items() if run.paused]

    def mind_the_room(self) -> None:
        """Pause what wrote output since the last look, while there is too little room on its disk; have all go on when there is
        enough again.

        Looked at by when files were changed, which those are too that nothing more could be written to. What was told to end may
        write until it has.
        """
        since, self._room_seen_at = self._room_seen_at - COARSE, time.time()
        try:
            self._room_is_low = room_on(self._output).is_low(self._room_is_low)
        except OSError:  # somebody took the folder away: it is made again with the next task
            self._room_is_low = False
        for run in self.running.values():
            if run.paused != self._is_to_wait(run, since):
                self._pause(run, not run.paused)

    def _is_to_wait(self, run: Running, since: float) -> bool:
        if not self._room_is_low or run.group.status is not None or run.group.kill_at is not None:
            return False
        return run.paused or _changed_at(run.given.output) >= since

    def _pause(self, run: Running, stop: bool) -> None:
        run.paused = stop
        self._groups.signal_all(run.group, signal.SIGSTOP if stop else signal.SIGCONT)

    def checkpointed(self) -> list[tuple[Task, int]]:
        """Those that have said since the last look that they kept what they did, and how many milliseconds ago."""
        seen = ((task, self.checkpoints.look(task)) for task in self.running)
        return [(task, ago) for task, ago in seen if ago is not None]

    def finish_those_over(self, keep_workers: bool) -> None:
        """Report those of which nothing is left; have the workers of calls that are over wait for another, if they may."""
        now = time.monotonic()
        for run in list(self.running.values()):
            group, worker = run.group, run.worker
            if worker and worker.answer is not None and group.status is None and group.kill_at is None:
                used = self._used(run)
                clean = not run.given.gpus and not run.over_memory and not self._groups.members(group)
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
        """Try again to write down what tasks have written to their terminals, where a full disk kept it from being."""
        for run in self.running.values():
            if run.given.input:
                run.given.input.copy_output()

    def _used(self, run: Running) -> Used:
        """What a task has used; of a call, what its worker has since it began, and at the most, where that is itself."""
        used = self._groups.used(run.group)
        if run.worker is None:
            return used
        peak = proc.most_resident(run.group.pid) if run.group.status is None else run.group.reaped.peak
        return Used(max(0, used.cpu - run.before.cpu), peak)

    def _end(self, run: Running, outcome: Outcome, code: int, used: Used) -> None:
        del self.running[run.task]
        self.checkpoints.remove([run.task])
        if run.given.input:
            run.given.input.copy_output()
            run.given.input.close()
        self._on_end(run.task, outcome, code, used._replace(ran=run.ran()))

    def end_those_over_limits(self) -> None:
        """End what uses more memory than it asked for, where the kernel does not, or ended only a part of it; and what has
        written more than it may.
        """
        for run in self.running.values():
            if run.group.status is None:
                memory, output = run.given.limits.memory, run.given.limits.output
                run.over_memory |= bool(memory) and self._groups.is_over_memory(run.group, memory)
                run.over_output |= bool(output) and _size_of_output(run.given.output) > output
                if run.over_memory or run.over_output:
                    self._groups.kill(run.group)

    def taken_from_tracers(self) -> list[ProcessGroup]:
        """Those whose first process has ended, which nobody tells since it is traced."""
        return [run.group for run in self.running.values() if self._groups.take_from_tracer(run.group)]

    def some_end_soon(self) -> bool:
        """Whether one is to be looked at again in a moment: nobody tells when its last process is gone."""
        return any(run.group.status is not None or run.group.kill_at is not None for run in self.running.values())


def _changed_at(path: str) -> float:
    """When a task wrote last, by the file system's clock; long ago where its output is not to be seen, as somebody removed it."""
    changed = 0.0
    for name in ("out", "err"):
        with contextlib.suppress(OSError):
            changed = max(changed, os.stat(f"{path}.{name}").st_mtime)
    return changed


def _known_as(task: Task, work: Command | Call) -> str:
    """The index that a task knows itself by."""
    index = str(task[1])
    return str(work.known_as.get(index, index)) if isinstance(work, Command) else index


def _with_index(word: str, index: str) -> str:
    """A word of a command with the index for {index}; {{index}} is {index} itself."""
    return "{index}".join(part.replace("{index}", index) for part in word.split("{{index}}"))


def _size_of_output(path: str) -> int:
    """What a task's output takes on the disk, in bytes; nothing where it is not to be seen, as somebody removed it."""
    size = 0
    for name in ("out", "err"):
        with contextlib.suppress(OSError):
            size += 512 * os.stat(f"{path}.{name}").st_blocks
    return size


def _how_it_ended(run: Running) -> tuple[Outcome, int]:
    """The outcome and code of a task of which nothing is left. What a call answered counts, whatever became of its worker."""
    group = run.group
    assert group.status is not None
    if run.worker and run.worker.answer is not None:
        return Outcome.EXITED, run.worker.answer
    if group.failure is not None:
        outcome, code = Outcome.NOT_STARTED, group.failure.errno
    elif os.WIFSIGNALED(group.status):
        outcome, code = Outcome.SIGNALLED, os.WTERMSIG(group.status)
    else:
        outcome = Outcome.EXITED if group.kill_at is None else Outcome.STOPPED
        code = os.WEXITSTATUS(group.status)
    if run.over_output and (outcome, code) != (Outcome.EXITED, 0):
        outcome, code = Outcome.SIGNALLED, signal.SIGXFSZ  # the system's own word for a file that is too large
    if run.over_memory:
        # The kernel may have killed a part of it, and the rest ended by itself, even as if nothing had happened.
        outcome, code = Outcome.OUT_OF_MEMORY, signal.SIGKILL
    return outcome, code
