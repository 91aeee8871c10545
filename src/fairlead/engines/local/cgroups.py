"""One cgroup a task: it cannot use more than it asked for, and nothing that it started is missed when it ends.

Version 2 where it is mounted alone; version 1 where its memory and cpu controllers are there, which on a hybrid system is all
that limits. Only the standard library: the supervisor stays small.
"""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.local.proc import with_spare

PERIOD = 100_000  # microseconds over which a share of the CPUs is counted
ROUNDS = 100


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy, our folder in it, and what it can limit.

    home : where this process is itself, if it may enter a group and come back at no cost; else None.
    swap : whether it limits memory together with swap.
    counts : whether one of version 1 tells how much CPU was used.
    """

    base: Path
    version: int
    memory: bool
    cpu: bool
    home: Path | None = None
    swap: bool = False
    counts: bool = False


class Group:
    """The cgroup of one task, a folder in each hierarchy."""

    def __init__(self, folders: list[tuple[Hierarchy, str]]) -> None:
        self._folders = folders
        self._has_more = False  # than it may, as it was when it was to be held to that

    def limit(self, memory: int, milli_cpu: int) -> None:
        """Hold it to so many bytes, never to fewer than before, and thousandths of a CPU; 0 means no limit."""
        for h, folder in self._folders:
            if h.memory and memory:
                if h.version == 2:
                    _write(f"{folder}/memory.max", str(memory))
                    with contextlib.suppress(OSError):
                        _write(f"{folder}/memory.swap.max", "0")
                        _write(f"{folder}/memory.oom.group", "1")
                else:
                    with contextlib.suppress(OSError):  # there is no limit yet, or it is less than this
                        if h.swap:
                            _write(f"{folder}/memory.memsw.limit_in_bytes", str(memory))
                    _write(f"{folder}/memory.limit_in_bytes", str(memory))
                    with contextlib.suppress(OSError):
                        if h.swap:
                            _write(f"{folder}/memory.memsw.limit_in_bytes", str(memory))
            if h.cpu and milli_cpu:
                quota = max(1000, milli_cpu * PERIOD // 1000)
                if h.version == 2:
                    _write(f"{folder}/cpu.max", f"{quota} {PERIOD}")
                else:
                    _write(f"{folder}/cpu.cfs_quota_us", str(quota))

    def limit_who_is_in_it(self, memory: int, milli_cpu: int) -> None:
        """The same, once there are processes; who cannot be held to that is killed: with more memory than that, for it."""
        try:
            self.limit(memory, milli_cpu)
        except OSError as error:
            self._has_more = error.errno == errno.EBUSY
            self.kill()

    def join(self) -> None:
        """Move the calling process in, which has one thread."""
        for hierarchy, folder in self._folders:
            # A thread of version 1 moves itself at once; a process waits until nobody forks on the whole machine.
            _write(f"{folder}/{'tasks' if hierarchy.version == 1 else 'cgroup.procs'}", "0")

    def can_be_entered(self) -> bool:
        """Whether this process may enter it and come back, at no cost."""
        return all(hierarchy.home is not None for hierarchy, _ in self._folders)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be in it, so that what is started meanwhile is born there. It has no limits yet, which would be ours as well.

        The ways back are opened before: once something is started there may be no descriptor left.
        """
        with contextlib.ExitStack() as back:
            for hierarchy, _ in self._folders:
                back.enter_context(_way_back(hierarchy))
            self.join()
            yield

    def pids(self) -> set[int]:
        """The processes in it now."""
        found: set[int] = set()
        for _, folder in self._folders:
            found.update(map(int, _told(f"{folder}/cgroup.procs").split()))
        return found

    def kill(self) -> None:
        """SIGKILL to every process in it.

        Version 1 names the processes of a moment, and those that fork meanwhile are missed: so it is asked again until it
        names none, or `ROUNDS` times. What is left then, in a sleep that nothing ends, is for the next call.
        """
        for hierarchy, folder in self._folders:
            if hierarchy.version == 2:
                with contextlib.suppress(OSError):
                    _write(f"{folder}/cgroup.kill", "1")
                    return
        for _ in range(ROUNDS):
            pids = self.pids()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not pids:
                return

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed something in it for going over the memory limit."""
        if self._has_more:
            return True
        for hierarchy, folder in self._folders:
            if hierarchy.memory:
                name = "memory.events" if hierarchy.version == 2 else "memory.oom_control"
                for line in _told(f"{folder}/{name}").splitlines():
                    key, _, value = line.partition(" ")
                    if key == "oom_kill" and int(value):
                        return True
        return False

    def used(self) -> tuple[int, int]:
        """Milliseconds of CPU that all in it have used, and the most bytes of memory that it had; 0 where that is not told."""
        cpu = peak = 0
        for hierarchy, folder in self._folders:
            if hierarchy.version == 2:
                lines = dict(line.split() for line in _told(f"{folder}/cpu.stat").splitlines())
                cpu = cpu or int(lines.get("usage_usec", 0)) // 1000
                peak = peak or int(_told(f"{folder}/memory.peak") or 0)
            else:
                if hierarchy.counts:
                    cpu = int(_told(f"{folder}/cpuacct.usage") or 0) // 1_000_000
                if hierarchy.memory:
                    peak = int(_told(f"{folder}/memory.max_usage_in_bytes") or 0)
        return cpu, peak

    def remove(self) -> bool:
        """Take it away if it is empty; whether it is gone."""
        for place in list(self._folders):
            try:
                os.rmdir(place[1])
            except FileNotFoundError:
                pass
            except OSError:  # something is still in it
                continue
            self._folders.remove(place)
        return not self._folders


class Cgroups:
    """Where groups are made.

    Attributes
    ----------
    limits_memory, limits_cpu : bool
        What can be limited here.
    """

    def __init__(self, hierarchies: list[Hierarchy]) -> None:
        self._hierarchies = hierarchies
        self._ended: list[Group] = []  # to be removed when empty
        self.limits_memory = any(h.memory for h in hierarchies)
        self.limits_cpu = any(h.cpu for h in hierarchies)

    def create(self, name: str) -> Group:
        """Make a group, without limits."""
        folders = []
        for h in self._hierarchies:
            folder = f"{h.base}/{name}"
            try:
                _make(folder)
            except FileNotFoundError:  # somebody took ours away
                _make_base(h.base, h.version)
                _make(folder)
            folders.append((h, folder))
        return Group(folders)

    def leftovers(self) -> list[Group]:
        """The groups that a supervisor before this one left."""
        bases = [h.base for h in self._hierarchies if h.base.is_dir()]
        names = {f.name for base in bases for f in base.iterdir() if f.is_dir()}
        return [
            Group([(h, f"{h.base}/{n}") for h in self._hierarchies if (h.base / n).is_dir()]) for n in sorted(names)
        ]

    def remove_when_empty(self, group: Group) -> None:
        """Take a group away, now or at a later `sweep`: it may be busy for a moment after its last process ended."""
        if not group.remove():
            self._ended.append(group)

    def sweep(self) -> None:
        """Kill and take away what is left of groups that are to go."""
        for group in self._ended:
            group.kill()
        self._ended = [group for group in self._ended if not group.remove()]

    def are_swept(self) -> bool:
        """Whether no group that is to go is left."""
        return not self._ended

    def close(self) -> None:
        """Take our own folders away, and empty ones in them."""
        for group in self.leftovers():
            group.remove()
        for h in self._hierarchies:
            with contextlib.suppress(OSError):
                h.base.rmdir()


def find(name: str) -> Cgroups | None:
    """Find out what this process may use, by trying; None where it may make no groups at all.

    Parameters
    ----------
    name : str
        Of our folder in each hierarchy.
    """
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

    hierarchies = []
    for mount, kind, options in mounts:
        controller: str | None = "" if kind == "cgroup2" else next((c for c in ("memory", "cpu") if c in options), None)
        if controller is None or controller not in own:
            continue
        for parent in dict.fromkeys([mount / own[controller], mount]):
            found = _try(parent / name, kind, controller, options, mount / own[controller])
            if found is not None:
                hierarchies.append(found)
                break
    if any(h.version == 1 for h in hierarchies):
        # Each hierarchy that a task joins costs a millisecond; on a hybrid system version 2 limits nothing.
        for spare in [h for h in hierarchies if h.version == 2]:
            spare.base.rmdir()
            hierarchies.remove(spare)
    return Cgroups(hierarchies) if hierarchies else None


def _try(base: Path, kind: str, controller: str, options: set[str], own: Path) -> Hierarchy | None:
    """Make our folder and a group in it, and set a limit: whatever is refused here is not to be had."""
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
        home = own if version == 1 and _is_home(own) else None
        return Hierarchy(base, version, memory, cpu, home, swap, counts)
    except OSError:
        _remove_probe(probe)
        with contextlib.suppress(OSError):
            base.rmdir()
        return None


def _is_home(place: Path) -> bool:
    """Whether this process is there, and may come back."""
    try:
        return os.access(place / "tasks", os.W_OK) and str(os.getpid()) in (place / "tasks").read_text().split()
    except OSError:
        return False


@contextlib.contextmanager
def _way_back(hierarchy: Hierarchy) -> Iterator[None]:
    """Go to where this process was at the end, or to where its groups are, if somebody took that away while nobody was there."""
    with contextlib.ExitStack() as files:
        ways = []
        for folder in (hierarchy.home, hierarchy.base):
            ways.append(os.open(f"{folder}/tasks", os.O_WRONLY | os.O_CLOEXEC))
            files.callback(os.close, ways[-1])
        try:
            yield
        finally:
            try:
                os.write(ways[0], b"0")
            except OSError:
                os.write(ways[1], b"0")


def _make(folder: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)


def _make_base(base: Path, version: int) -> None:
    """Make our folder, so that groups in it can be limited as far as is allowed."""
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


@contextlib.contextmanager
def _if_it_is_there() -> Iterator[None]:
    """What is to be looked at may be gone, or was never there; that it cannot be looked at for want of room is no such answer."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise


def _read(path: str) -> str:
    return with_spare(_read_at_once, path).decode()


def _read_at_once(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def _told(path: str) -> str:
    """What a file says; nothing where there is no such file."""
    with _if_it_is_there():
        return _read(path)
    return ""


def _write(path: Path | str, text: str) -> None:
    with_spare(_write_at_once, path, text)


def _write_at_once(path: Path | str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
