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
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fairlead.engines.local import proc
from fairlead.engines.local.cgroups import Cgroups, Group
from fairlead.engines.local.child import ChildSetup, Failure, ProcessSpec, become
from fairlead.engines.local.kernel import vfork
from fairlead.engines.local.messages import Program
from fairlead.engines.local.output import open_output
from fairlead.engines.local.spawn import prepared
from fairlead.engines.local.spool import StartRecord
from fairlead.engines.local.standard_input import Feeder

SPARE = 3
"""Descriptors that a fork of this process needs until exec; without them none is forked."""
MARK = "FAIRLEAD_ATTEMPT"
"""Environment variable of every process of a task: identifies its descendants without cgroups."""


class Used(NamedTuple):
    """CPU time in milliseconds, peak memory in bytes, run time in milliseconds; 0 if unknown.

    Of a lease also how many calls its worker made, and their milliseconds.
    """

    cpu: int
    peak: int
    ran: int = 0
    calls: int = 0
    called: int = 0


NOTHING = Used(0, 0)


class ProcessGroup:
    """A group with processes left.

    executed : True once it is known whether exec succeeded
    failure : why it did not
    kill_at : end of its grace period
    status : wait status of its first process
    reaped : usage of the first process and the children it reaped, once it is reaped
    seen_at : when any of its processes was last seen, once the first has ended; milliseconds since boot
    """

    def __init__(self, pid: int, cgroup: Group | None, mark: str) -> None:
        self.pid, self.cgroup, self.mark = pid, cgroup, mark
        self.executed = False
        self.failure: Failure | None = None
        self.kill_at: float | None = None
        self.status: int | None = None
        self.reaped = NOTHING
        self.seen_at = 0


class _Start(NamedTuple):
    """What starts the first process of a group; `then` is called once it is known whether exec succeeded."""

    group: ProcessGroup
    program: Program
    given: ProcessSpec
    files: list[int]
    then: Callable[[Program], None]
    failed: Callable[[OSError], None]


class ProcessGroups:
    """All groups of this supervisor; its `folder` distinguishes its processes from those of other supervisors here."""

    def __init__(self, folder: Path, cgroups: Cgroups | None, selector: selectors.BaseSelector) -> None:
        self.cgroups, self._folder, self._selector = cgroups, folder, selector
        self._by_pid: dict[int, ProcessGroup] = {}  # those whose first process is not reaped
        self._starting: deque[tuple[_Start, ChildSetup, vfork.Start]] = deque()
        self._sessions: set[int] = set()  # of groups that are not buried: the pids of their first processes
        self._attached: dict[int, Callable[[int], None]] = {}  # by the pid of an attached program: takes its status

    def fork(
        self,
        name: str,
        program: Program,
        given: ProcessSpec,
        then: Callable[[Program], None],
        failed: Callable[[OSError], None],
        more: Sequence[int] = (),
        record: StartRecord | None = None,
    ) -> ProcessGroup:
        """Start a program; `more` become its descriptors from 3 on. It writes the `record` before it runs.

        `then` is called after this call, once it is known whether exec succeeded. Raises OSError if nothing was started; if that
        is only known in `settle`, `failed` is called. Before that, nothing else may be done to the group, except with `more`.
        """
        mark = f"{self._folder}:{name}"
        program = program._replace(env={**program.env, **given.env, MARK: mark})
        group = ProcessGroup(0, None, mark)
        files: list[int] = []
        start = _Start(group, program, given, files, then, failed)
        try:
            files += open_output(given.output, given.person)
            if given.input:
                given.input.begin(files[0])
            if self.cgroups:
                owner = given.person.uid if given.person is not None else os.geteuid()
                group.cgroup = self.cgroups.create(name, owner, given.limits.memory, given.limits.cpu)
                group.cgroup.limit(given.limits.memory, given.limits.cpu)  # before any process is in it
            setup = ChildSetup(given, given.input, group.cgroup, record)
            if not more and (run := prepared(program, files, setup)) is not None:
                self._starting.append((start, setup, run()))
                return group
            self._fork_first(start, setup, more)
        except OSError:
            self._abandon(start)
            raise
        _give_away(start)
        return group

    def settle(self, wait: bool = True) -> None:
        """Learn which starts were executed, and which were not: with `wait`, of all. Until then, their pids are unknown."""
        while self._starting and (pid := self._starting[0][2].pid(wait)) is not None:
            start, setup, _ = self._starting.popleft()
            group = start.group
            if pid:
                self._add(group, pid)
                group.executed = True
                start.then(start.program)
            else:
                try:
                    self._fork_first(start, setup)
                except OSError as error:
                    self._abandon(start)
                    start.failed(error)
                    continue
            _give_away(start)

    def _add(self, group: ProcessGroup, pid: int) -> None:
        group.pid = pid
        self._by_pid[pid] = group
        self._sessions.add(pid)

    def _fork_first(self, start: "_Start", setup: ChildSetup, more: Sequence[int] = ()) -> None:
        """Start the first process of a group by a fork; raises OSError."""
        group, program, _, files, then, _ = start

        def hear_of_start(failure: Failure | None) -> None:
            group.executed, group.failure = True, failure
            then(program)

        self._add(group, self._fork(program, [*files, *more], setup, hear_of_start))

    def attach(
        self,
        group: ProcessGroup,
        program: Program,
        given: ProcessSpec,
        files: list[int],
        feeder: Feeder,
        begun: Callable[[Failure | None, str], None],
        ended: Callable[[int], None],
    ) -> int:
        """Start a program in a group that runs, as its first process was started; return its pid. It ends with the group.

        `begun` is called with why it was not executed, if so, and that in words; `ended` with its wait status. Raises OSError.
        """
        program = program._replace(env={**program.env, **given.env, MARK: group.mark})
        setup = ChildSetup(given, feeder, group.cgroup, None)

        def hear_of_start(failure: Failure | None) -> None:
            if group.cgroup:
                group.cgroup.joining -= 1
            begun(failure, failure.reason(program, given.person) if failure else "")

        pid = self._fork(program, files, setup, hear_of_start)
        if group.cgroup:
            group.cgroup.joining += 1
        self._attached[pid] = ended
        return pid

    def _fork(self, program: Program, files: list[int], setup: ChildSetup, hear: Callable[[Failure | None], None]) -> int:
        """Fork a child that executes a program; `hear` is called with why it could not, if so. Raises OSError."""
        read, write = os.pipe2(os.O_CLOEXEC)
        spare: list[int] = []

        def hear_of_start() -> None:
            report = os.read(read, 64)
            self._selector.unregister(read)
            os.close(read)
            hear(Failure.read(report))

        try:
            for _ in range(SPARE):
                spare.append(os.dup(write))
            self._selector.register(read, selectors.EVENT_READ, hear_of_start)
            pid = os.fork()
            if pid == 0:
                become(program, files, setup, write, spare)
            return pid
        except OSError:
            with contextlib.suppress(KeyError):  # not registered yet
                self._selector.unregister(read)
            os.close(read)
            raise
        finally:
            for fd in (*spare, write):
                os.close(fd)

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
            if child.si_pid not in self._by_pid:
                self.settle()
            group = self._by_pid.pop(child.si_pid, None)
            if group is not None and group.kill_at is None:
                note(child)
                signal_group(group, signal.SIGKILL)
            try:
                _, status, used = os.wait4(child.si_pid, 0)
            except ChildProcessError:  # a command that cannot run: what started it reaps it
                continue
            if child.si_pid in self._attached:
                self._attached.pop(child.si_pid)(status)
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
        if group.status is None:
            signal_group(group, number)
        proc.signal_each(self.members(group), number)

    def clear(self, group: ProcessGroup, now: float) -> bool:
        """Kill what is left if its first process has ended or its grace is over. Return whether nothing is left."""
        late = group.kill_at is not None and now >= group.kill_at
        if group.status is None and not late:
            return False
        if group.cgroup and group.status is not None and group.executed and group.cgroup.remove():  # only if it is empty
            return True
        members, perhaps_more = self._find(group)
        if members:
            group.seen_at = since_boot()
        if (members or group.status is None) and (late or group.kill_at is None):
            self.kill(group, members)
        # Only a check that finds none is the end: what was just killed may have left us orphans.
        return not members and not perhaps_more and group.status is not None and group.executed

    def kill(self, group: ProcessGroup, members: set[int] | None = None) -> None:
        if group.status is None:
            signal_group(group, signal.SIGKILL)
        if group.cgroup:
            group.cgroup.kill()
        else:
            proc.signal_each(self.members(group) if members is None else members, signal.SIGKILL)

    def members(self, group: ProcessGroup) -> set[int]:
        """Return the processes of the group without its first."""
        return self._find(group)[0]

    def is_alone(self, group: ProcessGroup) -> bool:
        """Return whether the group surely has no process but its first."""
        return not any(self._find(group))

    def _find(self, group: ProcessGroup) -> tuple[set[int], bool]:
        """Return the processes of the group without its first, and whether there may be more that look like others'.

        Without cgroups, an orphan may be in the middle of exec, or may end and leave us an orphan of its own while we look.
        """
        if group.cgroup:
            return group.cgroup.pids() - {group.pid}, False
        mark = f"{MARK}={group.mark}\0".encode()
        orphans = {pid: proc.environment(pid) for pid in proc.children() if pid not in self._by_pid}
        found = {pid for pid, environment in orphans.items() if environment is not None and mark in environment}
        others = self._sessions - {group.pid}
        perhaps_more = any(each is None and proc.session(pid) not in others for pid, each in orphans.items())
        if not found:
            perhaps_more |= not orphans.keys() >= {pid for pid in proc.children() if pid not in self._by_pid}
        if group.status is None:
            found.add(group.pid)
        return found.union(*map(proc.descendants, found)) - {group.pid}, perhaps_more

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

    def cpu_of_all(self, group: ProcessGroup) -> int:
        """Return the CPU time of its processes in milliseconds; without cgroups it falls when one ends."""
        if group.cgroup and (cpu := group.cgroup.used()[0]):
            return cpu
        return sum(map(proc.cpu_time, {group.pid, *self.members(group)}))

    def bury(self, group: ProcessGroup) -> None:
        """Remove its cgroup now or once it is empty."""
        self._sessions.discard(group.pid)
        if group.cgroup and self.cgroups:
            self.cgroups.remove_when_empty(group.cgroup)

    def _abandon(self, start: _Start) -> None:
        """Leave nothing of a group that was not started."""
        if start.given.input:
            start.given.input.close()
        self.bury(start.group)
        _give_away(start)

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
        unknown = set(proc.processes())  # since the first look
        while time.monotonic() < until:
            left = set().union(*(cgroup.pids() for cgroup in cgroups))
            for cgroup in cgroups:
                cgroup.kill()
            environments = {pid: proc.environment(pid) for pid in proc.processes()}
            left |= {pid for pid, environment in environments.items() if environment is not None and mark in environment}
            unknown = {pid for pid in unknown if environments.get(pid, b"") is None and proc.session(pid)}
            if not left and (not unknown or time.monotonic() > until - 9):
                break
            proc.signal_each(left, signal.SIGKILL)
            time.sleep(0.01)
        if self.cgroups:
            for cgroup in cgroups:
                self.cgroups.remove_when_empty(cgroup)


def _give_away(start: _Start) -> None:
    """Close our copies of what a first process has now."""
    for fd in start.files:
        os.close(fd)
    if start.given.input:
        os.close(start.given.input.theirs)


def since_boot() -> int:
    """Return milliseconds since boot, including suspend."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10**6


def signal_group(group: ProcessGroup, number: int) -> None:
    """Signal the processes in the first one's process group; only before the first is reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group.pid, number)


def _has_ended(pid: int) -> bool:
    """Return whether an unreaped child is a zombie."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
