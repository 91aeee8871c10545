"""One cgroup per task: enforces its limits and tracks all its processes.

Uses cgroup v2 where it is mounted alone, else the v1 memory and cpu controllers (on a hybrid system only these limit). Standard
library only.
"""

import contextlib
import errno
import os
import resource
import signal
import time
from collections.abc import Mapping
from itertools import chain
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fairlead.descriptors import opened
from fairlead.engines.local.proc import signal_each, unless_missing, with_spare

PERIOD = 100_000  # microseconds
ROUNDS = 100
MOST_IDLE = 64
LEAST_CPU = 100
"""Millicores: with less, the thread that starts a program could wait for its next period. The kernel gives 5 ms at a time."""
TASKS, OOM, PEAK, SWAP_PEAK = "tasks", "memory.oom_control", "memory.max_usage_in_bytes", "memory.memsw.max_usage_in_bytes"
LIMITS = ("cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
MOST_CHARGED = 2**20
"""Bytes that may still be charged to an empty group that is used again; at most 1/16 of its limit, which they count to.

The kernel charges ahead for each CPU, so the figures of a new group are as coarse. More is what the files of a task have in the
page cache.
"""
WHOLE = 2**10
"""Bytes: a shorter piece is the last of a file, since the kernel fills nearly a page with each of the others."""


class Hierarchy(NamedTuple):
    """A mounted hierarchy, our folder in it, and what it can limit.

    back : two files, open to write, by which a thread returns to our own cgroup, or else to our folder; none if it cannot.
    swap : whether it limits memory together with swap.
    counts : whether a v1 hierarchy accounts CPU time.
    """

    base: Path
    version: int
    memory: bool
    cpu: bool
    back: tuple[int, ...] = ()
    swap: bool = False
    counts: bool = False


class Made(NamedTuple):
    """The folders of a group, one per hierarchy, and which tasks they serve: their owner's uid, and their limits.

    files : what is kept open of it, by path; empty if it serves only one task.
    written : what its open limits must still be, for another task to get it.
    whole_at : when its quota was written last, by the CPU seconds of all children that had ended.
    """

    folders: list[tuple[Hierarchy, str]]
    owner: int = -1
    memory: int = 0
    milli_cpu: int = 0
    files: Mapping[str, int] = MappingProxyType({})
    written: tuple[bytes, ...] = ()
    whole_at: float = -inf


class Group:
    """The cgroup of one task.

    joining : processes that may still join it: forked for it, and their program not executed yet. Until then it stays.
    """

    def __init__(self, made: Made, idle: "Idle | None" = None) -> None:
        self._made, self._idle = made, idle
        self._folders = folders = list(made.folders)
        self._ran_out = False  # of memory
        self._used = 0, 0
        self.joining = 0
        self.born_in = folders[0][1] if [h.version for h, _ in folders] == [2] else ""  # where a process can be born

    def limit(self, memory: int, milli_cpu: int) -> None:
        """Limit memory (bytes, never lowered) and CPU (millicores); 0 means no limit."""
        made = self._made
        if made.written and (memory, milli_cpu) == made[2:4]:
            return
        self._made = made._replace(written=())  # until all is
        for h, folder in self._folders:
            if h.memory and memory not in (0, made.memory):
                _limit_memory(h, folder, memory)
            if h.cpu and milli_cpu != made.milli_cpu:
                quota = max(1000, milli_cpu * PERIOD // 1000) if milli_cpu else -1
                if h.version == 2:
                    _write(f"{folder}/cpu.max", f"{quota if milli_cpu else 'max'} {PERIOD}")
                else:
                    _write(f"{folder}/cpu.cfs_quota_us", str(quota))
        self._made = made._replace(memory=memory or made.memory, milli_cpu=milli_cpu, written=_limits(made))

    def keep_open(self) -> None:
        """Keep open what each task needs of it, unless half of all descriptors are in use. Only then it serves several tasks.

        To read an open file costs a tenth of opening it. But an open `tasks` may show for a second what it showed before.
        """
        files, most = dict[str, int](), resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        try:
            for h, folder in self._folders:
                names = [TASKS, *LIMITS[:2] * h.cpu, *(OOM, PEAK, LIMITS[2]) * h.memory, *(SWAP_PEAK, LIMITS[3]) * h.swap]
                for path in (f"{folder}/{name}" for name in names):
                    files[path] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                fd = files[folder] = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                if fd >= most:
                    raise OSError(errno.EMFILE, "half of all descriptors")
        except OSError:
            _close(files)
        else:
            self._made = self._made._replace(files=files)

    def is_slow(self) -> bool:
        """Return whether a process in it may be kept from running for a period or more before its program is executed."""
        return 0 < self._made.milli_cpu < LEAST_CPU

    def kept_ways_in(self) -> tuple[list[int], list[int]]:
        """Return the open `ways_in` of two kinds: those by which a process joins, and those by which its parent's thread does.

        The latter have two ways back each. A process inherits its CPU group, since a move costs it more. It joins that of memory
        itself: there the kernel may end all of a process for one thread, but never one that is being spawned.
        """
        own, ours = list[int](), list[int]()
        for h, folder in self._folders:
            if (fd := self._made.files.get(f"{folder}/{TASKS}")) is not None:
                (ours if h.back and not h.memory else own).append(fd)
                ours += h.back if not h.memory else ()
        return own, ours

    def _read_or_empty(self, path: str) -> str:
        with unless_missing():
            kept = self._made.files.get(path)
            return _read(path) if kept is None else os.pread(kept, WHOLE, 0).decode()
        return ""

    def ways_in(self) -> list[str]:
        """Return the files by which a process with one thread joins: it writes 0 to each.

        With v1, `tasks` moves it at once; `cgroup.procs` waits until no process on the machine forks.
        """
        return [f"{folder}/{TASKS if hierarchy.version == 1 else 'cgroup.procs'}" for hierarchy, folder in self._folders]

    def join(self) -> None:
        """Move the calling process into the group."""
        for name in self.ways_in():
            _write(name, "0")

    def pids(self) -> set[int]:
        """Return the processes in it now, and in the groups that its task made in it."""
        found: set[int] = set()
        for each in chain(*(_with_inner(folder) for _, folder in self._folders)):
            found.update(map(int, self._read_or_empty(f"{each}/cgroup.procs").split()))
        return found - {os.getpid()}  # a thread of ours that could not return

    def kill(self) -> None:
        """Send SIGKILL to every process in it.

        v1 lists processes at one moment, so forks may be missed: the list is read again until it is empty, at most
        `ROUNDS` times. What is left then (in uninterruptible sleep) is for the next call.
        """
        for hierarchy, folder in self._folders:
            if hierarchy.version == 2:
                with contextlib.suppress(OSError):
                    _write(f"{folder}/cgroup.kill", "1")
                    return
        for _ in range(ROUNDS):
            pids = self.pids()
            signal_each(pids, signal.SIGKILL)
            if not pids:
                return

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel OOM-killed a process in it."""
        for hierarchy, folder in self._folders:
            if hierarchy.memory and not self._ran_out:
                name = "memory.events" if hierarchy.version == 2 else OOM
                for line in self._read_or_empty(f"{folder}/{name}").splitlines():
                    key, _, value = line.partition(" ")
                    self._ran_out |= key == "oom_kill" and int(value) > 0
        return self._ran_out

    def used(self) -> tuple[int, int]:
        """Return the CPU time in milliseconds and the peak memory in bytes; 0 if unknown. Once it is removed, as it was then."""
        cpu, peak = self._used
        for hierarchy, folder in self._folders:
            if hierarchy.version == 2:
                lines = dict(line.split() for line in self._read_or_empty(f"{folder}/cpu.stat").splitlines())
                cpu = max(cpu, int(lines.get("usage_usec", 0)) // 1000)
                peak = max(peak, int(self._read_or_empty(f"{folder}/memory.peak") or 0))
            else:
                if hierarchy.counts:
                    cpu = max(cpu, int(self._read_or_empty(f"{folder}/cpuacct.usage") or 0) // 1_000_000)
                if hierarchy.memory:
                    peak = max(peak, int(self._read_or_empty(f"{folder}/{PEAK}") or 0))
        return cpu, peak

    def remove(self) -> bool:
        """Remove it if it is and stays empty, and if what it used can be read, which stays known. Return whether it is gone."""
        if self.joining:
            return False
        try:
            empty = _is_empty(self._made)
            self._used, ran_out = self.used(), self.ran_out_of_memory()
            if self._idle is not None and empty and not ran_out and self._begin_again():
                self._idle.keep(self._made)
                self._made, self._folders = Made([]), []
        except OSError:  # no descriptor
            return False
        for place in list(self._folders):
            try:
                _remove(place[1])
            except OSError:  # not empty
                continue
            self._folders.remove(place)
            self._idle = None  # what is left of it limits less than a group must
        if not self._folders:
            _close(self._made.files)
            self._made = Made([])
        return not self._folders

    def _begin_again(self) -> bool:
        """Reset what it counts. Return False if it serves no other: memory is still charged to it, or somebody removed it.

        A quota that is written is whole again: what starts next does not wait for what was used of it. The kernel then visits all
        groups of the machine, so this comes after tasks that ended, of any groups, have used as much as half of it.
        """
        most = min(MOST_CHARGED, self._made.memory // 16 or MOST_CHARGED)
        milli_cpu, spent = self._made.milli_cpu, sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        refill = 0 < milli_cpu * PERIOD / 2 <= (spent - self._made.whole_at) * 10**9
        with unless_missing():
            for h, folder in self._folders:
                if h.counts:
                    _write(f"{folder}/cpuacct.usage", "0")
            for path, fd in self._made.files.items():
                if refill and path.endswith(LIMITS[0]):
                    os.pwrite(fd, os.pread(fd, WHOLE, 0), 0)
                    self._made = self._made._replace(whole_at=spent)
                elif path.endswith((PEAK, SWAP_PEAK)):
                    os.write(fd, b"0")
                    if int(os.pread(fd, WHOLE, 0)) > most:
                        return False
            return True
        return False


class Idle:
    """Empty groups for the next tasks of their owners: making and removing one costs as much as starting a process."""

    def __init__(self) -> None:
        self._there: list[Made] = []

    def keep(self, made: Made) -> None:
        """Keep a group; remove the one kept longest if there are too many."""
        self._there.append(made)
        if len(self._there) > MOST_IDLE:
            _give_up(self._there.pop(0))

    def take(self, owner: int, memory: int = 0, milli_cpu: int = 0) -> Made | None:
        """Return the group of this owner with these limits that was kept last; None if there is none."""
        for made in [each for each in reversed(self._there) if each[1:4] == (owner, memory, milli_cpu)]:
            self._there.remove(made)
            if _is_there(made):
                return made
            _give_up(made)
        return None


class Cgroups:
    """The cgroups of one supervisor. `limits_memory` and `limits_cpu` are what can be limited here."""

    def __init__(self, hierarchies: list[Hierarchy]) -> None:
        self._hierarchies = hierarchies
        self._ended: list[Group] = []  # to be removed when empty
        self._idle, self._made = Idle(), 0
        self.limits_memory = any(h.memory for h in hierarchies)
        self.limits_cpu = any(h.cpu for h in hierarchies)

    def create(self, name: str, owner: int = -1, memory: int = 0, milli_cpu: int = 0) -> Group:
        """Return a group that a task of this owner with these limits had, or a new one without limits.

        Its folder has a number, too: the one of a start that failed may still be there, to be killed, when it is tried again.
        """
        if (made := self._idle.take(owner, memory, milli_cpu)) is not None:
            return Group(made, self._idle)
        folders = []
        self._made += 1
        for h in self._hierarchies:
            folder = f"{h.base}/{name}-{self._made}"
            try:
                _make(folder)
            except FileNotFoundError:  # somebody removed our folder
                _make_base(h.base, h.version)
                _make(folder)
            folders.append((h, folder))
        group = Group(Made(folders, owner), self._idle)
        if all(h.version == 1 for h in self._hierarchies):
            group.keep_open()
        return group

    def leftovers(self) -> list[Group]:
        """Return the groups that the last supervisor left."""
        bases = [h.base for h in self._hierarchies if h.base.is_dir()]
        names = {name for base in bases for name in with_spare(os.listdir, base) if (base / name).is_dir()}
        return [Group(Made([(h, f"{h.base}/{n}") for h in self._hierarchies if (h.base / n).is_dir()])) for n in sorted(names)]

    def remove_when_empty(self, group: Group) -> None:
        """Remove a group now or in a later `sweep`: it may be busy for a moment after its last process ended."""
        if not group.remove():
            self._ended.append(group)

    def sweep(self) -> None:
        """Kill what is left in groups to be removed, and remove them."""
        for group in self._ended:
            group.kill()
        self._ended = [group for group in self._ended if not group.remove()]

    def are_swept(self) -> bool:
        """Return whether all groups to be removed are gone."""
        return not self._ended

    def close(self) -> None:
        """Remove our folders, and empty groups in them."""
        for group in self.leftovers():
            group.remove()
        for h in self._hierarchies:
            with contextlib.suppress(OSError):
                h.base.rmdir()


def find(name: str) -> Cgroups | None:
    """Find by trial what this process may use, with folders of this name. Return None if it can make no groups."""
    mounts: list[tuple[Path, str, set[str]]] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, rest = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            mounts.append((Path(left.split()[4]), kind, set(rest.split()[-1].split(","))))
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for each in controllers.split(","):
            own[each] = path.lstrip("/")

    by_controller = dict[str, Hierarchy]()  # one may be mounted in several places
    for mount, kind, options in mounts:
        controller: str | None = "" if kind == "cgroup2" else next((c for c in ("memory", "cpu") if c in options), None)
        if controller is None or controller not in own or controller in by_controller:
            continue
        for parent in dict.fromkeys([mount / own[controller], mount]):
            found = _try(parent / name, kind, options, mount / own[controller])
            if found is not None:
                by_controller[controller] = found
                break
    hierarchies = list(by_controller.values())
    if any(h.version == 1 for h in hierarchies):
        # Each hierarchy costs a task a millisecond to join; on a hybrid system v2 limits nothing.
        for spare in [h for h in hierarchies if h.version == 2]:
            spare.base.rmdir()
            hierarchies.remove(spare)
    return Cgroups(hierarchies) if hierarchies else None


def _try(base: Path, kind: str, options: set[str], own: Path) -> Hierarchy | None:
    """Make our folder and a group in it, and set a limit. Return None if that is refused."""
    version, swap, counts = 2 if kind == "cgroup2" else 1, False, False
    probe = base / "probe"
    try:
        _make_base(base, version)
        memory = cpu = False
        probe.mkdir(exist_ok=True)
        if kind == "cgroup2":
            memory, cpu = (probe / "memory.max").exists(), (probe / "cpu.max").exists()
        else:
            memory, counts = "memory" in options, (probe / "cpuacct.usage").exists()
            cpu = "cpu" in options and (probe / "cpu.cfs_quota_us").exists()
            if memory:
                _write(probe / "memory.limit_in_bytes", str(2**30))
                swap = (probe / "memory.memsw.limit_in_bytes").exists()
        _can_be_joined(probe)
        _remove_probe(probe)
        back = _ways_back(own, base) if version == 1 and not memory else ()
        return Hierarchy(base, version, memory, cpu, back, swap, counts)
    except OSError:
        _remove_probe(probe)
        with contextlib.suppress(OSError):
            base.rmdir()
        return None


def _limit_memory(h: Hierarchy, folder: str, memory: int) -> None:
    if h.version == 2:
        _write(f"{folder}/memory.max", str(memory))
        with unless_missing():
            _write(f"{folder}/memory.swap.max", "0")
            _write(f"{folder}/memory.oom.group", "1")
        return
    both = ("memory.memsw.limit_in_bytes",) * h.swap
    for name in (*both, "memory.limit_in_bytes", *both):  # before, if there is no limit yet or a lower one
        with unless_missing() if name in both else contextlib.nullcontext():
            _write(f"{folder}/{name}", str(memory))


def _ways_back(own: Path, base: Path) -> tuple[int, ...]:
    """Return descriptors by which a thread returns to `own`, or to `base` if somebody removed it; none if we are not in it."""
    with contextlib.suppress(OSError):  # it cannot be written
        if str(os.getpid()) in (own / "tasks").read_text().split():
            return tuple(os.open(folder / "tasks", os.O_WRONLY | os.O_CLOEXEC) for folder in (own, base))
    return ()


def _is_empty(made: Made) -> bool:
    """Return whether an open group has no process and no group in it."""
    with unless_missing():
        paths = [folder for _, folder in made.folders if made.files]
        return bool(paths) and not any(os.fstat(made.files[path]).st_nlink > 2 or _read(f"{path}/{TASKS}") for path in paths)
    return False


def _is_there(made: Made) -> bool:
    """Return whether nobody removed an open group, made groups in it, or changed its limits, as a task of root may."""
    with unless_missing():
        there = [(os.stat(folder), made.files[folder]) for _, folder in made.folders]
        same = all(each.st_nlink <= 2 and os.path.samestat(each, os.fstat(fd)) for each, fd in there)
        return same and _limits(made) == made.written
    return False


def _limits(made: Made) -> tuple[bytes, ...]:
    """Return the open limits of a group as they are; after them, something even if there are none."""
    return (*(os.pread(fd, WHOLE, 0) for path, fd in made.files.items() if path.endswith((*LIMITS, OOM))), b"")


def _with_inner(folder: str) -> list[str]:
    """Return the folder of a group and those of the groups in it, the innermost first."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(folder).st_nlink > 2:
            return with_spare(lambda: [each for each, _, _ in os.walk(folder, topdown=False, onerror=_raise_unless_missing)])
    return [folder]


def _raise_unless_missing(error: OSError) -> None:
    with unless_missing():
        raise error


def _remove(folder: str) -> None:
    """Remove a group and those in it, unless somebody did. Raises OSError if one is not empty."""
    for each in _with_inner(folder):
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(each)


def _give_up(made: Made) -> None:
    _close(made.files)
    for _, folder in made.folders:
        with contextlib.suppress(OSError):
            _remove(folder)


def _close(files: Mapping[str, int]) -> None:
    for fd in files.values():
        os.close(fd)


def _make(folder: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)


def _make_base(base: Path, version: int) -> None:
    """Make our folder; delegate the controllers to groups in it as far as allowed."""
    base.mkdir(exist_ok=True)
    if version == 2:
        for folder in (base.parent, base):
            with contextlib.suppress(OSError):
                _write(folder / "cgroup.subtree_control", "+memory +cpu")


def _remove_probe(probe: Path) -> None:
    for _ in range(100):  # a group is busy for a moment after its last process ended
        try:
            probe.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.001)
        else:
            return


def _can_be_joined(folder: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            _write(folder / "cgroup.procs", "0")
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        raise PermissionError(f"{folder} cannot be joined")


def _read(path: str) -> str:
    return with_spare(_read_at_once, path).decode()


def _read_at_once(path: str) -> bytes:
    found = b""
    with opened(path, os.O_RDONLY) as fd:
        while piece := os.read(fd, 1 << 16):  # a larger buffer is mapped for each read
            found += piece
            if len(piece) < WHOLE:
                break
    return found


def _write(path: Path | str, text: str) -> None:
    with_spare(_write_at_once, path, text)


def _write_at_once(path: Path | str, text: str) -> None:
    with opened(path, os.O_WRONLY) as fd:
        os.write(fd, text.encode())
