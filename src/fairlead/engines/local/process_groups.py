"""A task's processes as a group: started together, tracked, limited, and ended together.

If cgroups are available, the group's cgroup tracks and limits them. Otherwise its mark in the inherited environment identifies
them, and as their subreaper we become the parent of orphans. The first process stays a zombie until its group was signalled, so
that its pid is not reused.
"""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fairlead.engines.local import proc
from fairlead.engines.local.cgroups import Cgroups, Group
from fairlead.engines.local.child import ChildSetup, Failure, become, open_output
from fairlead.engines.local.messages import Limits, Person, Program
from fairlead.engines.local.spawn import spawn
from fairlead.engines.local.spool import StartRecord
from fairlead.engines.local.standard_input import StandardInput

THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "JULIA_NUM_THREADS", "GOMAXPROCS",
)  # fmt: skip
"""Variables that size thread pools."""
SPARE = 3
"""Descriptors that a fork of this process needs until exec; without them none is forked."""
MARK = "FAIRLEAD_ATTEMPT"
"""Environment variable of every process of a task: identifies its descendants without cgroups."""


class Used(NamedTuple):
    """CPU time in milliseconds, peak memory in bytes, run time in milliseconds; 0 if unknown."""

    cpu: int
    peak: int
    ran: int = 0


NOTHING = Used(0, 0)


class ProcessSpec(NamedTuple):
    """The setup of a process: limits, environment, GPUs, and the path of its output without .out or .err.

    `person` is the user to run as; None for the supervisor's own. `export` is a file with more environment variables.
    `cores` is the CPU affinity; empty for all. `input` is standard input; None for nothing. `signal` asks it to stop.
    """

    limits: Limits
    env: dict[str, str]
    gpus: list[int]
    output: str
    person: Person | None
    export: str
    cores: list[int]
    input: StandardInput | None = None
    signal: int = signal.SIGTERM


class ProcessGroup:
    """A group with processes left.

    Attributes
    ----------
    executed : bool
        True once it is known whether exec succeeded.
    failure : Failure or None
        Why it did not.
    kill_at : float or None
        End of its grace period.
    status : int or None
        Wait status of its first process.
    reaped : Used
        Usage of the first process and the children it reaped, once it is reaped.
    seen_at : int
        When any of its processes was last seen, once the first has ended; milliseconds since boot.
    """

    def __init__(self, pid: int, cgroup: Group | None, mark: str) -> None:
        self.pid, self.cgroup, self.mark = pid, cgroup, mark
        self.executed = False
        self.failure: Failure | None = None
        self.kill_at: float | None = None
        self.status: int | None = None
        self.reaped = NOTHING
        self.seen_at = 0


class ProcessGroups:
    """All groups of this supervisor.

    Parameters
    ----------
    folder : Path
        The supervisor's; distinguishes its processes from those of other supervisors on this machine.
    """

    def __init__(self, folder: Path, cgroups: Cgroups | None, selector: selectors.BaseSelector) -> None:
        self.cgroups = cgroups
        self._folder, self._selector = folder, selector
        self._by_pid: dict[int, ProcessGroup] = {}  # those whose first process is not reaped

    def fork(
        self,
        name: str,
        program: Program,
        given: ProcessSpec,
        then: Callable[[Program], None],
        more: Sequence[int] = (),
        record: StartRecord | None = None,
    ) -> ProcessGroup:
        """Start a program; `more` become its descriptors from 3 on. It writes the `record` before it runs.

        `then` is called once it is known whether exec succeeded; not if that is known at once: see the group's
        `executed`. Raises OSError if nothing was started.
        """
        mark = f"{self._folder}:{name}"
        program = program._replace(env={**program.env, **given.env, MARK: mark})
        group = ProcessGroup(0, None, mark)
        files, spare = [], []
        line: tuple[int, ...] = ()

        def hear_of_start() -> None:
            report = os.read(line[0], 64)
            self._selector.unregister(line[0])
            os.close(line[0])
            group.executed = True
            group.failure = Failure.read(report)
            then(program)

        try:
            files = open_output(given.output, given.person)
            if given.input:
                given.input.begin(files[0])
            if self.cgroups:
                group.cgroup = self.cgroups.create(name)
            unless_set = threads(given.limits.cpu)
            setup = ChildSetup(given.person, given.export, unless_set, given.cores, given.input, group.cgroup, record)
            group.pid = 0 if more else spawn(program, files, setup)
            group.executed = group.pid != 0
            if group.cgroup and group.executed:
                group.cgroup.limit_running(given.limits.memory, given.limits.cpu)
            elif group.cgroup:
                group.cgroup.limit(given.limits.memory, given.limits.cpu)
            if not group.executed:
                line = os.pipe2(os.O_CLOEXEC)
                for _ in range(SPARE):
                    spare.append(os.dup(line[1]))
                self._selector.register(line[0], selectors.EVENT_READ, hear_of_start)
                group.pid = os.fork()
                if group.pid == 0:
                    become(program, [*files, *more], setup, line[1], spare)
        except OSError:
            for fd in line[:1]:
                with contextlib.suppress(KeyError):  # not registered yet
                    self._selector.unregister(fd)
                os.close(fd)
            if given.input:
                given.input.close()
            if group.cgroup:
                group.cgroup.remove()
            raise
        finally:
            for fd in (*files, *spare, *line[1:]):
                os.close(fd)
            if given.input:
                given.input.give_away()
        self._by_pid[group.pid] = group
        return group

    def reap(self, note: Callable[[os.waitid_result], None]) -> list[ProcessGroup]:
        """Reap first processes and orphans. The end of a first process that was not asked to stop ends its group.

        `note` is called before such a first process is reaped.
        """
        reaped: list[ProcessGroup] = []
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return reaped
            if child is None:
                return reaped
            group = self._by_pid.pop(child.si_pid, None)
            if group is not None and group.kill_at is None:
                note(child)
                signal_group(group, signal.SIGKILL)
            _, status, used = os.wait4(child.si_pid, 0)
            if group is not None:
                group.status, group.seen_at = status, since_boot()
                group.reaped = Used(round(1000 * (used.ru_utime + used.ru_stime)), 1024 * used.ru_maxrss)
                reaped.append(group)

    def ended_but_traced(self, group: ProcessGroup) -> bool:
        """Return True if its first process ended but a tracer keeps it from being reaped: it now counts as ended.

        Its pid stays taken until the tracer detaches; then it is reaped without a report.
        """
        if group.status is not None or group.pid not in self._by_pid:
            return False
        status = proc.status_of_zombie(group.pid)
        if status is None or _has_ended(group.pid):
            return False
        if group.kill_at is None:
            signal_group(group, signal.SIGKILL)
        del self._by_pid[group.pid]
        group.status, group.seen_at = status, since_boot()
        return True

    def stop(self, group: ProcessGroup, grace: float, number: int) -> None:
        """Send `number` to the group once, and start its grace period in seconds. No-op if its first process has ended."""
        if group.kill_at is None and group.status is None and not _has_ended(group.pid):
            group.kill_at = time.monotonic() + grace
            signal_group(group, number)
            signal_group(group, signal.SIGCONT)

    def signal_all(self, group: ProcessGroup, number: int) -> None:
        """Send a signal to all processes of the group."""
        if group.status is None:
            signal_group(group, number)
        _signal_each(self.members(group), number)

    def clear(self, group: ProcessGroup, now: float) -> bool:
        """Kill what is left if its first process has ended or its grace is over. Return whether nothing is left."""
        late = group.kill_at is not None and now >= group.kill_at
        if group.status is None and not late:
            return False
        members = self.members(group)
        if members:
            group.seen_at = since_boot()
        if (members or group.status is None) and (late or group.kill_at is None):
            self._kill(group, members)
        # Only a check that finds none is the end: what was just killed may have left us orphans.
        return not members and group.status is not None and group.executed

    def kill(self, group: ProcessGroup) -> None:
        """Send SIGKILL to all processes of the group."""
        self._kill(group, set() if group.cgroup else self.members(group))

    def _kill(self, group: ProcessGroup, members: set[int]) -> None:
        if group.status is None:
            signal_group(group, signal.SIGKILL)
        if group.cgroup:
            group.cgroup.kill()
        else:
            _signal_each(members, signal.SIGKILL)

    def members(self, group: ProcessGroup) -> set[int]:
        """Return the processes of the group without its first."""
        if group.cgroup:
            return group.cgroup.pids() - {group.pid}
        mark = f"{MARK}={group.mark}\0".encode()
        found = {pid for pid in proc.children() if pid not in self._by_pid and mark in proc.environment(pid)}
        if group.status is None:
            found.add(group.pid)
        return found.union(*map(proc.descendants, found)) - {group.pid}

    def is_over_memory(self, group: ProcessGroup, memory: int) -> bool:
        """Return whether it exceeds its memory limit, or the kernel OOM-killed any of it."""
        if group.cgroup and self.cgroups and self.cgroups.limits_memory:
            return group.cgroup.ran_out_of_memory()
        return sum(map(proc.resident, {group.pid, *self.members(group)})) > memory

    def used(self, group: ProcessGroup) -> Used:
        """Return its usage so far, from its cgroup or else from its first process."""
        cpu, peak = group.cgroup.used() if group.cgroup else (0, 0)
        if group.status is None:
            return Used(cpu or proc.cpu_time(group.pid), peak or proc.most_resident(group.pid))
        return Used(cpu or group.reaped.cpu, peak or group.reaped.peak)

    def bury(self, group: ProcessGroup) -> None:
        """Remove its cgroup now or once it is empty."""
        if group.cgroup and self.cgroups:
            self.cgroups.remove_when_empty(group.cgroup)

    def sweep(self) -> None:
        if self.cgroups:
            self.cgroups.sweep()

    def are_swept(self) -> bool:
        return self.cgroups is None or self.cgroups.are_swept()

    def end_leftovers(self) -> None:
        """End the tasks and idle workers that the last supervisor left running."""
        cgroups = self.cgroups.leftovers() if self.cgroups else []
        mark = f"{MARK}={self._folder}:".encode()
        until = time.monotonic() + 10
        while time.monotonic() < until:
            left = set().union(*(cgroup.pids() for cgroup in cgroups))
            for cgroup in cgroups:
                cgroup.kill()
            left |= {pid for pid in proc.processes() if mark in proc.environment(pid)}
            if not left:
                break
            _signal_each(left, signal.SIGKILL)
            time.sleep(0.01)
        if self.cgroups:
            for cgroup in cgroups:
                self.cgroups.remove_when_empty(cgroup)


def since_boot() -> int:
    """Return milliseconds since boot, including suspend."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10**6


def threads(milli_cpu: int) -> dict[str, str]:
    """Return the variables that size thread pools to the requested CPU; none if no CPU was requested."""
    return dict.fromkeys(THREADS, str(-(-milli_cpu // 1000))) if milli_cpu else {}


def signal_group(group: ProcessGroup, number: int) -> None:
    """Signal the processes in the first one's process group; only before the first is reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group.pid, number)


def _has_ended(pid: int) -> bool:
    """Return whether an unreaped child is a zombie."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_each(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # a command that became another user, such as sudo
            os.kill(pid, number)
