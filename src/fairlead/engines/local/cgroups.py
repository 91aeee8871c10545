"""One cgroup per task: enforces its limits and tracks all its processes.

Uses cgroup v2 where it is mounted alone, else the v1 memory and cpu controllers (on a hybrid system only these limit). Standard
library only.
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

PERIOD = 100_000  # microseconds
ROUNDS = 100


@dataclass(frozen=True)
class Hierarchy:
    """A mounted hierarchy, our folder in it, and what it can limit.

    home : the cgroup of this process, if it can enter a group and return at no cost; else None.
    swap : whether it limits memory together with swap.
    counts : whether a v1 hierarchy accounts CPU time.
    """

    base: Path
    version: int
    memory: bool
    cpu: bool
    home: Path | None = None
    swap: bool = False
    counts: bool = False


class Group:
    """The cgroup of one task: a folder per hierarchy."""

    def __init__(self, folders: list[tuple[Hierarchy, str]]) -> None:
        self._folders = folders
        self._exceeded = False  # it used more memory than the limit when the limit was set

    def limit(self, memory: int, milli_cpu: int) -> None:
        """Limit memory (bytes, never lowered) and CPU (millicores); 0 means no limit."""
        for h, folder in self._folders:
            if h.memory and memory:
                if h.version == 2:
                    _write(f"{folder}/memory.max", str(memory))
                    with contextlib.suppress(OSError):
                        _write(f"{folder}/memory.swap.max", "0")
                        _write(f"{folder}/memory.oom.group", "1")
                else:
                    with contextlib.suppress(OSError):  # no limit yet, or a lower one
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

    def limit_running(self, memory: int, milli_cpu: int) -> None:
        """Limit a group that has processes. Kill them if the limit cannot be set; as out of memory, if they use more already."""
        try:
            self.limit(memory, milli_cpu)
        except OSError as error:
            self._exceeded = error.errno == errno.EBUSY
            self.kill()

    def join(self) -> None:
        """Move the calling process, which has one thread, into the group."""
        for hierarchy, folder in self._folders:
            # With v1, `tasks` moves a thread at once; `cgroup.procs` waits until no process on the machine forks.
            _write(f"{folder}/{'tasks' if hierarchy.version == 1 else 'cgroup.procs'}", "0")

    def can_be_entered(self) -> bool:
        """Return whether this process can enter the group and return at no cost."""
        return all(hierarchy.home is not None for hierarchy, _ in self._folders)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be in the group, so that a process spawned meanwhile starts in it. It has no limits yet, as they would apply to us.

        The ways back are opened first: afterwards there may be no free descriptor.
        """
        with contextlib.ExitStack() as back:
            for hierarchy, _ in self._folders:
                back.enter_context(_way_back(hierarchy))
            self.join()
            yield

    def pids(self) -> set[int]:
        """Return the processes in it now."""
        found: set[int] = set()
        for _, folder in self._folders:
            found.update(map(int, _read_or_empty(f"{folder}/cgroup.procs").split()))
        return found

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
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not pids:
                return

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel OOM-killed a process in it."""
        if self._exceeded:
            return True
        for hierarchy, folder in self._folders:
            if hierarchy.memory:
                name = "memory.events" if hierarchy.version == 2 else "memory.oom_control"
                for line in _read_or_empty(f"{folder}/{name}").splitlines():
                    key, _, value = line.partition(" ")
                    if key == "oom_kill" and int(value):
                        return True
        return False

    def used(self) -> tuple[int, int]:
        """Return the CPU time in milliseconds and the peak memory in bytes; 0 if unknown."""
        cpu = peak = 0
        for hierarchy, folder in self._folders:
            if hierarchy.version == 2:
                lines = dict(line.split() for line in _read_or_empty(f"{folder}/cpu.stat").splitlines())
                cpu = cpu or int(lines.get("usage_usec", 0)) // 1000
                peak = peak or int(_read_or_empty(f"{folder}/memory.peak") or 0)
            else:
                if hierarchy.counts:
                    cpu = int(_read_or_empty(f"{folder}/cpuacct.usage") or 0) // 1_000_000
                if hierarchy.memory:
                    peak = int(_read_or_empty(f"{folder}/memory.max_usage_in_bytes") or 0)
        return cpu, peak

    def remove(self) -> bool:
        """Remove it if it is empty. Return whether it is gone."""
        for place in list(self._folders):
            try:
                os.rmdir(place[1])
            except FileNotFoundError:
                pass
            except OSError:  # not empty
                continue
            self._folders.remove(place)
        return not self._folders


class Cgroups:
    """The cgroups of one supervisor.

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
        """Make a group without limits."""
        folders = []
        for h in self._hierarchies:
            folder = f"{h.base}/{name}"
            try:
                _make(folder)
            except FileNotFoundError:  # somebody removed our folder
                _make_base(h.base, h.version)
                _make(folder)
            folders.append((h, folder))
        return Group(folders)

    def leftovers(self) -> list[Group]:
        """Return the groups that the last supervisor left."""
        bases = [h.base for h in self._hierarchies if h.base.is_dir()]
        names = {f.name for base in bases for f in base.iterdir() if f.is_dir()}
        return [Group([(h, f"{h.base}/{n}") for h in self._hierarchies if (h.base / n).is_dir()]) for n in sorted(names)]

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
    """Find by trial what this process may use. Return None if it can make no groups.

    Parameters
    ----------
    name : str
        Name of our folder in each hierarchy.
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
        # Each hierarchy costs a task a millisecond to join; on a hybrid system v2 limits nothing.
        for spare in [h for h in hierarchies if h.version == 2]:
            spare.base.rmdir()
            hierarchies.remove(spare)
    return Cgroups(hierarchies) if hierarchies else None


def _try(base: Path, kind: str, controller: str, options: set[str], own: Path) -> Hierarchy | None:
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
        home = own if version == 1 and _is_home(own) else None
        return Hierarchy(base, version, memory, cpu, home, swap, counts)
    except OSError:
        _remove_probe(probe)
        with contextlib.suppress(OSError):
            base.rmdir()
        return None


def _is_home(place: Path) -> bool:
    """Return whether this process is in it and may return to it."""
    try:
        return os.access(place / "tasks", os.W_OK) and str(os.getpid()) in (place / "tasks").read_text().split()
    except OSError:
        return False


@contextlib.contextmanager
def _way_back(hierarchy: Hierarchy) -> Iterator[None]:
    """Return to `home` at the end; to `base` if somebody removed `home` meanwhile."""
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


@contextlib.contextmanager
def _unless_missing() -> Iterator[None]:
    """Suppress errors of missing files, but not those of missing resources: these do not mean that the file is absent."""
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


def _read_or_empty(path: str) -> str:
    """Return a file's content; empty if there is no such file."""
    with _unless_missing():
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
