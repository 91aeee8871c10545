"""The tasks that run here: each in a group of processes of its own, or as a call in a worker, until its last process is gone."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from fairlead.engines.local import proc
from fairlead.engines.local.child import open_output
from fairlead.engines.local.messages import Call, Command, Program, Start, Task
from fairlead.engines.local.process_groups import Given, ProcessGroup, ProcessGroups
from fairlead.engines.local.warm_workers import WarmWorkers, Worker
from fairlead.outcomes import Outcome


class Running:
    """A task whose processes are not all gone. `worker` is None for one that is no call."""

    def __init__(self, task: Task, given: Given, group: ProcessGroup, worker: Worker | None) -> None:
        self.task, self.given, self.group, self.worker = task, given, group, worker
        self.over_memory = self.over_output = False


class Tasks:
    """All that run.

    Parameters
    ----------
    output : Path
        The folder for what tasks print, a folder a job.
    on_start : callable
        Called with the task and the number of its first process, once it is known that its program was executed.
    on_end : callable
        Called with the task, its outcome and code, once nothing is left of it.
    """

    def __init__(
        self,
        output: Path,
        groups: ProcessGroups,
        workers: WarmWorkers,
        on_start: Callable[[Task, int], None],
        on_end: Callable[[Task, Outcome, int], None],
    ) -> None:
        self._output, self._groups, self._workers = output, groups, workers
        self._on_start, self._on_end = on_start, on_end
        self._made = ""  # the output folder that was made last
        self.running: dict[Task, Running] = {}

    def start(self, task: Task, start: Start) -> None:
        """Start a task; raises OSError where that cannot be done."""
        memory = start.limits.memory
        if memory and self._workers.are_idle() and proc.available_memory() < memory:
            self._workers.dismiss()
        given = self._give(task, start)
        if isinstance(start.work, Command):
            self._start_command(task, start.work, given)
        else:
            self._start_call(task, start.work, given)

    def _give(self, task: Task, start: Start) -> Given:
        (job, index, number), limits = task, start.limits
        env = {"FAIRLEAD_JOB": str(job), "FAIRLEAD_INDEX": str(index), "FAIRLEAD_NUMBER": str(number)}
        gpus: list[int] = []
        if limits.gpus:
            taken = {gpu for run in self.running.values() for gpu in run.given.gpus}
            gpus = [gpu for gpu in limits.gpu_indices if gpu not in taken][: limits.gpus]
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        folder = f"{self._output}/{job}"
        if folder != self._made:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._made = folder
        export = start.work.export if isinstance(start.work, Command) else ""
        return Given(limits, env, gpus, f"{folder}/{index}", start.person, export)

    def _start_command(self, task: Task, work: Command, given: Given) -> None:
        program = work.program
        if work.numbered:
            program = program._replace(argv=[word.replace("{index}", str(task[1])) for word in program.argv])
        name = ".".join(map(str, task))
        group = self._groups.fork(name, program, given, lambda program: self._hear_of_start(run, program))
        run = self.running[task] = Running(task, given, group, None)

    def _start_call(self, task: Task, call: Call, given: Given) -> None:
        job, index, _ = task
        message = {"payload": call.payload, "job": job, "index": index, "env": given.env}
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
            self._on_start(task, worker.group.pid)

    def _hear_of_start(self, run: Running, program: Program) -> None:
        """The child became the task, or told why it could not."""
        failure = run.group.failure
        if failure is None:
            self._on_start(run.task, run.group.pid)
            return
        given = run.given
        with contextlib.suppress(OSError):  # a full disk: the outcome tells the errno
            out, err = open_output(given.output, given.person)
            os.write(err, f"fairlead: {failure.reason(program, given.person)}\n".encode("utf-8", "replace"))
            os.close(out)
            os.close(err)

    def stop(self, task: Task, grace: float) -> None:
        """SIGTERM, and SIGKILL for what is left after so many seconds."""
        self._groups.stop(self.running[task].group, grace)

    def finish_those_over(self, keep_workers: bool) -> None:
        """Report those of which nothing is left; have the workers of calls that are over wait for another, if they may."""
        now = time.monotonic()
        for run in list(self.running.values()):
            group, worker = run.group, run.worker
            if worker and worker.answer is not None and group.status is None and group.kill_at is None:
                clean = not run.given.gpus and not run.over_memory and not self._groups.members(group)
                if keep_workers and clean and self._workers.keep(worker):
                    self._end(run, Outcome.EXITED, worker.answer)
                else:
                    group.kill_at = now
            elif self._groups.clear(group, now):
                run.over_memory |= bool(group.cgroup and group.cgroup.ran_out_of_memory())
                self._groups.bury(group)
                self._end(run, *_how_it_ended(run))

    def _end(self, run: Running, outcome: Outcome, code: int) -> None:
        del self.running[run.task]
        self._on_end(run.task, outcome, code)

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


def _size_of_output(path: str) -> int:
    """What a task's output takes on the disk, in bytes; nothing where somebody has removed it."""
    size = 0
    for name in ("out", "err"):
        with contextlib.suppress(FileNotFoundError):
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
