"""A process in a group of its own, together with all that it starts: how one begins, who belongs to it, how it ends.

Where cgroups may be made, its cgroup tells who belongs to it and holds them to their limits. Elsewhere the environment tells,
which children inherit: as their subreaper we become the parent of all that were left behind. The first process stays a zombie
until its group was signalled, so that its number is ours for so long.
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
from fairlead.engines.local.standard_input import StandardInput

THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "JULIA_NUM_THREADS", "GOMAXPROCS",
)  # fmt: skip
"""Variables that size pools of threads."""
SPARE = 3
"""Descriptors that a copy of this process needs until it is the program; where they are not to be had, none is made."""
MARK = "FAIRLEAD_ATTEMPT"
"""In the environment of every process of a task: how its children are known where there are no cgroups."""


class Used(NamedTuple):
    """Milliseconds of CPU, the most memory at once, in bytes, and for how many milliseconds it ran; 0 where that is not known."""

    cpu: int
    peak: int
    ran: int = 0


NOTHING = Used(0, 0)


class ProcessSpec(NamedTuple):
    """What a process is given: limits, its part of the environment, GPUs, and where its output goes, without .out or .err.

    `person` is as whom it runs; None for whose process the supervisor is. `export` is a file with more of the environment.
    `cores` are those that it keeps to, where that is not all. `input` is what it reads; None for nothing. `signal` is what
    it gets when it is told to stop.
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
    """One whose processes are not all gone.

    Attributes
    ----------
    executed : bool
        Whether it is known if its program could be executed.
    failure : Failure or None
        Why it could not, where it could not.
    kill_at : float or None
        When its time to end by itself is over.
    status : int or None
        The wait status of its first process.
    reaped : Used
        What the first process and the children that it waited for have used, once it is reaped.
    seen_at : int
        When any of its processes was there, as far as is known since the first has ended; in milliseconds since the boot.
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
    """All of this supervisor.

    Parameters
    ----------
    folder : Path
        The supervisor's; it tells its processes from those of another one on this machine.
    """

    def __init__(self, folder: Path, cgroups: Cgroups | None, selector: selectors.BaseSelector) -> None:
        self.cgroups = cgroups
        self._folder, self._selector = folder, selector
        self._by_pid: dict[int, ProcessGroup] = {}  # those whose first process is not reaped

    def fork(
        self, name: str, program: Program, given: ProcessSpec, then: Callable[[Program], None], more: Sequence[int] = ()
    ) -> ProcessGroup:
        """Start a program; `more` become its descriptors from 3 on.

        `then` is called as soon as it is known whether it could be executed, unless that is known at once: then the group says
        so. Raises OSError where nothing was started.
        """
        mark = f"{self._folder}:{name}"
        program = program._replace(env={**program.env, **given.env, MARK: mark})
        group = ProcessGroup(0, None, mark)
        files, spare = [], []
        line: tuple[int, ...] = ()

        def hear_of_start() -> None:
            told = os.read(line[0], 64)
            self._selector.unregister(line[0])
            os.close(line[0])
            group.executed = True
            group.failure = Failure.read(told)
            then(program)

        try:
            files = open_output(given.output, given.person)
            if given.input:
                given.input.begin(files[0])
            if self.cgroups:
                group.cgroup = self.cgroups.create(name)
            born = ChildSetup(
                given.person, given.export, threads(given.limits.cpu), given.cores, given.input, group.cgroup
            )
            group.pid = 0 if more else spawn(program, files, born)
            group.executed = group.pid != 0
            if group.cgroup and group.executed:
                group.cgroup.limit_who_is_in_it(given.limits.memory, given.limits.cpu)
            elif group.cgroup:
                group.cgroup.limit(given.limits.memory, given.limits.cpu)
            if not group.executed:
                line = os.pipe2(os.O_CLOEXEC)
                for _ in range(SPARE):
                    spare.append(os.dup(line[1]))
                self._selector.register(line[0], selectors.EVENT_READ, hear_of_start)
                group.pid = os.fork()
                if group.pid == 0:
                    become(program, [*files, *more], born, line[1], spare)
        except OSError:
            for fd in line[:1]:
                with contextlib.suppress(KeyError):  # it did not come to that
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

    def reap(self) -> list[ProcessGroup]:
        """Collect first processes that ended, and strays; those that were not told to stop take their group with them."""
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
                signal_group(group, signal.SIGKILL)
            _, status, used = os.wait4(child.si_pid, 0)
            if group is not None:
                group.status, group.seen_at = status, since_boot()
                group.reaped = Used(round(1000 * (used.ru_utime + used.ru_stime)), 1024 * used.ru_maxrss)
                reaped.append(group)

    def take_from_tracer(self, group: ProcessGroup) -> bool:
        """Whether its first process has ended, and is kept from being reaped by another that traces it: it counts as ended then.

        Its number stays taken until the tracer lets go; it is reaped then, and told of no more.
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
        """Ask it to end, once, and give it so many seconds. One whose first process has ended is on its way out anyway."""
        if group.kill_at is None and group.status is None and not _has_ended(group.pid):
            group.kill_at = time.monotonic() + grace
            signal_group(group, number)
            signal_group(group, signal.SIGCONT)

    def signal_all(self, group: ProcessGroup, number: int) -> None:
        """Signal all that belong to it."""
        if group.status is None:
            signal_group(group, number)
        _signal_each(self.members(group), number)

    def clear(self, group: ProcessGroup, now: float) -> bool:
        """Kill what is left if its first process or its time is over; whether nothing is left."""
        late = group.kill_at is not None and now >= group.kill_at
        if group.status is None and not late:
            return False
        members = self.members(group)
        if members:
            group.seen_at = since_boot()
        if (members or group.status is None) and (late or group.kill_at is None):
            self._kill(group, members)
        # Only a look that finds nobody is the end: what was just killed may have left children to us.
        return not members and group.status is not None and group.executed

    def kill(self, group: ProcessGroup) -> None:
        """SIGKILL to all that belong to it."""
        self._kill(group, set() if group.cgroup else self.members(group))

    def _kill(self, group: ProcessGroup, members: set[int]) -> None:
        if group.status is None:
            signal_group(group, signal.SIGKILL)
        if group.cgroup:
            group.cgroup.kill()
        else:
            _signal_each(members, signal.SIGKILL)

    def members(self, group: ProcessGroup) -> set[int]:
        """The processes that belong to it, but for its first."""
        if group.cgroup:
            return group.cgroup.pids() - {group.pid}
        mark = f"{MARK}={group.mark}\0".encode()
        found = {pid for pid in proc.children() if pid not in self._by_pid and mark in proc.environment(pid)}
        if group.status is None:
            found.add(group.pid)
        return found.union(*map(proc.descendants, found)) - {group.pid}

    def is_over_memory(self, group: ProcessGroup, memory: int) -> bool:
        """Whether it uses more, or was killed by the kernel for it, as a whole or in part."""
        if group.cgroup and self.cgroups and self.cgroups.limits_memory:
            return group.cgroup.ran_out_of_memory()
        return sum(map(proc.resident, {group.pid, *self.members(group)})) > memory

    def used(self, group: ProcessGroup) -> Used:
        """What it has used until now: as its cgroup says, or as far as its first process tells."""
        cpu, peak = group.cgroup.used() if group.cgroup else (0, 0)
        if group.status is None:
            return Used(cpu or proc.cpu_time(group.pid), peak or proc.most_resident(group.pid))
        return Used(cpu or group.reaped.cpu, peak or group.reaped.peak)

    def bury(self, group: ProcessGroup) -> None:
        """Take its cgroup away, now or as soon as it is empty."""
        if group.cgroup and self.cgroups:
            self.cgroups.remove_when_empty(group.cgroup)

    def sweep(self) -> None:
        """Take away the cgroups that could not be before."""
        if self.cgroups:
            self.cgroups.sweep()

    def are_swept(self) -> bool:
        """Whether no cgroup is left of those that were buried."""
        return self.cgroups is None or self.cgroups.are_swept()

    def end_leftovers(self) -> None:
        """End whatever a supervisor before this one left running: tasks, and workers that wait."""
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
    """Milliseconds, asleep or not."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10**6


def threads(milli_cpu: int) -> dict[str, str]:
    """What has pools of threads be of the size that was asked for; nothing where no CPU was."""
    return dict.fromkeys(THREADS, str(-(-milli_cpu // 1000))) if milli_cpu else {}


def signal_group(group: ProcessGroup, number: int) -> None:
    """Signal its first process and those that stayed in its process group; only while the first is not reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group.pid, number)


def _has_ended(pid: int) -> bool:
    """Whether a child that is not reaped is a zombie."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_each(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(
            ProcessLookupError, PermissionError
        ):  # as of a command that became another user, such as sudo
            os.kill(pid, number)
