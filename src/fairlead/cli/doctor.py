"""`fairlead doctor`: checks a scheduler's data folder and this machine, and suggests remedies. It changes nothing.

Each check is a function, named after its subject; one that fails hides no other.
"""

import os
import platform
import re
import resource
import shlex
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import typer

import fairlead
from fairlead.cli.scheduler import print_json
from fairlead.cli.tables import plain_table, show
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.data_folder import SYSTEM_HOME, home_folder, socket_of
from fairlead.engines.contract import EngineError
from fairlead.engines.local import cgroups
from fairlead.engines.local.member import supervisor_in
from fairlead.engines.ray import ADDRESS_FILE, authenticate, live_nodes, seen_as
from fairlead.journal import JournalError, head
from fairlead.journal.repair import examine
from fairlead.locks import holding, is_stopped
from fairlead.model.quantity import round_quantity
from fairlead.plain_text import span
from fairlead.service.clock import Clock, read_clock

LOW_DISK_BYTES, FULL_DISK_BYTES = 2**30, 64 * 2**20
"""Free disk space below which doctor warns, and below which tasks fail."""
FEW_FILES, FEW_PROCESSES = 4096, 512
"""Limits on descriptors and processes below which a busy scheduler may fail to start tasks."""
CLOCK_STEP_SECONDS = 60.0
"""Step of the machine's clock since boot above which doctor warns."""
NO_SCHEDULER = "can be checked only while a scheduler runs"
"""What is found of a running scheduler's state without one."""
CLOCKS_APART = 5.0
"""Seconds that the clocks of nodes may differ; their measurement includes the delay of a message."""
MOST_SCALED = 3
"""Scaled guarantees to name."""
MOUNTS = Path("/proc/self/mountinfo")

How = Literal["well", "look", "wrong"]
Found = tuple[How, str] | tuple[How, str, str]
"""The result of a check: the state of its subject, what was found, and a remedy."""


class Finding(NamedTuple):
    """The result of a check, with its subject."""

    thing: str
    how: How
    what: str
    help: str = ""


def print_findings(home: Path | None, system: bool, as_json: bool) -> None:
    """Run all checks and print the findings; exit status 1 if something is wrong."""
    folder = (home or (SYSTEM_HOME if system else home_folder())).absolute()
    found = examine_all(folder, system)
    if as_json:
        print_json({"home": str(folder), "found": [finding._asdict() for finding in found]})
    else:
        print(f"the scheduler in {folder}")
        table = plain_table("", "", "what")
        for finding in found:
            table.add_row(finding.thing, finding.how, finding.what)
            if finding.help:
                table.add_row("", "", f"-> {finding.help}")
        show(table, "")
    if any(finding.how == "wrong" for finding in found):
        raise typer.Exit(1)


def examine_all(home: Path, shared: bool = False) -> list[Finding]:
    """Run all checks on the scheduler of a data folder and on this machine; `shared` is True for one that serves everybody."""
    checks: list[Callable[[Path], Found]] = [_versions, _home, _journal, _scheduler, _guarantees, _supervisor, _output]
    checks += [_ray] * (home / ADDRESS_FILE).exists() + [_nodes] * (home / "keys").exists()
    checks += [_cgroups, _disk, _clocks, _limits] + [_arguments] * (shared or home == SYSTEM_HOME)
    if home == SYSTEM_HOME and os.geteuid() != 0:  # only root may read the rest
        checks = [check for check in checks if check in (_versions, _scheduler, _output, _disk, _limits, _arguments)]
    found = []
    for check in checks:
        try:
            found.append(Finding(check.__name__[1:], *check(home)))
        except ServiceError:
            found.append(Finding(check.__name__[1:], "well", NO_SCHEDULER))
        except OSError as error:
            what = f"cannot be checked: {error.strerror or error}"
            found.append(Finding(check.__name__[1:], "wrong", what, f"run this as the owner of {home}, or as root"))
    return found


def _versions(home: Path) -> Found:
    what = f"fairlead {fairlead.__version__}, Python {platform.python_version()}, NumPy {np.__version__}"
    return "well", f"{what}, SQLite {sqlite3.sqlite_version}"


def _home(home: Path) -> Found:
    try:
        found = home.lstat()
    except FileNotFoundError:
        return "look", "does not exist yet", _makes(home)
    if stat.S_ISLNK(found.st_mode):
        found = home.stat()
    if not stat.S_ISDIR(found.st_mode):
        return "wrong", "is not a folder", "move it away, or name another with --home"
    if found.st_uid != os.geteuid():
        return "wrong", f"belongs to uid {found.st_uid}, not to you", "name your own with --home"
    if found.st_mode & 0o077:
        return "wrong", f"is open to others (mode {stat.S_IMODE(found.st_mode):o})", f"chmod 700 {home}"
    return "well", "is private to you"


def _journal(home: Path) -> Found:
    path = home / "journal.db"
    try:
        if not path.exists():
            return _missing(path)
        found = examine(path)
    except JournalError as error:
        return "wrong", str(error).removeprefix(f"{path}: ")
    if found.wrong:
        return "wrong", f"damaged: {found.wrong}", _command("journal check", home)
    if head.is_of_another(found.head, path):
        return "look", f"{found.position:,} facts proved; it is a copy", _command("journal adopt", home)
    return "well", f"{found.position:,} facts proved"


def _missing(path: Path) -> Found:
    """Report a journal that is not there: it may have been moved."""
    known, name = head.read(path), head.path_of(path).name
    if known and known.epoch:
        what = f"{path} is missing, and {name} records {known.sequence:,} facts of it"
        helps = f"put it back; to start afresh instead, without its jobs, move {name} away as well"
        return "wrong", what, helps
    if not (path.parent / "clock.json").exists():
        return "look", "does not exist yet", _makes(path.parent)
    helps = f"put it back, with {name}; `{_command('up', path.parent)}` starts afresh, without its jobs"
    return "look", f"{path} is missing, though a scheduler ran here", helps


def _makes(home: Path) -> str:
    return f"`{_command('up', home)}` makes it; one that was moved is named with --home"


def _command(words: str, home: Path) -> str:
    """Return a command for a data folder, to be pasted into a shell."""
    if words == "up" and home == SYSTEM_HOME:
        return "fairlead up --system"
    return f"fairlead {words}" if home == home_folder() else f"fairlead {words} --home {shlex.quote(str(home))}"


def _scheduler(home: Path) -> Found:
    lock = head.path_of(home / "journal.db")
    for pid in holding(lock):
        with suppress(OSError):  # it has ended, or another user owns it
            if is_stopped(pid) and any(map(lock.samefile, Path(f"/proc/{pid}/fd").iterdir())):
                return "wrong", f"process {pid} is stopped", f"kill -CONT {pid}"
    try:
        with Connection(home, retry_seconds=0, timeout=15) as connection:
            ready = connection.get("/readyz")
            status = connection.get("/v1/status")
    except ServiceError as error:
        if error.status:  # it answers with an error
            return "wrong", str(error), f"see {home}/log"
        left = "a scheduler was killed here; " if socket_of(home).exists() else ""
        system = ", as root, or: systemctl start fairlead" if home == SYSTEM_HOME else ""
        return "look", f"{left}none runs", f"{_command('up', home)}{system}"
    if status["version"] != fairlead.__version__:
        return "look", f"runs, but is fairlead {status['version']}", "restart it: its tasks run on"
    return "well", f"runs, as process {status['pid']}; its last step ended {ready['step']:.1f} s ago"


def _asked(home: Path, what: str) -> Any:
    """Ask the scheduler for its queues, nodes or status. Raises ServiceError if it does not answer: `_scheduler` reports that."""
    with Connection(home, retry_seconds=0, timeout=15) as connection:
        return connection.get(f"/v1/{what}")


def _guarantees(home: Path) -> Found:
    """Ask the scheduler which guarantees are scaled, because all together exceed what there is now."""
    scaled = [
        f"{queue['name']} has {round_quantity(name, queue['guarantee'].get(name, 0))} of {round_quantity(name, amount)} {name}"
        for queue in _asked(home, "queues")["queues"]
        for name, amount in queue["declared_guarantee"].items()
        if queue["guarantee"].get(name, 0) < amount
    ]
    if not scaled:
        return "well", "within what there is"
    what = f"scaled to what there is: {', '.join(scaled[:MOST_SCALED])}{' ...' if len(scaled) > MOST_SCALED else ''}"
    return "look", what, "bring lost nodes back, resume drained ones, or guarantee less in fairlead.toml"


def _supervisor(home: Path) -> Found:
    """Check the supervisor by its lock; a connection would displace the scheduler's."""
    if not (home / "supervisor" / "lock").exists():
        if (home / ADDRESS_FILE).exists():
            return "well", "none is needed here: each Ray node has its own, see `ray`"
        return "well", "not needed yet"
    there = supervisor_in(home / "supervisor")
    if there is None:
        return "well", "none runs; a scheduler starts one"
    if there.is_stopped:
        return "wrong", f"process {there.pid} is stopped", f"kill -CONT {there.pid}"
    return "well", f"runs, as process {there.pid}"


def _output(home: Path) -> Found:
    """Ask the scheduler: only its environment may have the credentials of the storage."""
    output = _asked(home, "status").get("output")
    if output is None:
        return "well", "stays on the nodes, without a copy elsewhere"
    waiting = f"that of {output['waiting']:,} tasks is still to be copied"
    if output["trouble"]:
        helps = "check that this machine reaches it, and the credentials in the scheduler's environment; copying is retried"
        return "wrong", f"{output['trouble']}; {waiting}", helps
    return "well", f"is copied to {output['url']}; {waiting}"


def _ray(home: Path) -> Found:
    """Check the Ray cluster used last: its head, and nodes without a supervisor."""
    address = (home / ADDRESS_FILE).read_text()
    try:
        names = sorted(each.node.name for each in seen_as(live_nodes(authenticate(address)[1])))
    except EngineError as error:
        return "wrong", str(error), "tasks run on; nodes can join and leave once the head answers"
    except ImportError:
        return "wrong", "Ray is not installed here", "pip install 'fairlead[ray]'"
    what = f"Ray {version('ray')} at {address}, {len(names)} nodes"
    try:
        nodes = _asked(home, "nodes")["nodes"]
    except ServiceError:
        return "well", what
    heard = [each["name"] for each in nodes if each["status"] != "lost" and each["silent"] is None]
    if missing := [name for name in names if name not in heard]:
        what += f"; no contact with the supervisor on {', '.join(missing[:3])}{' and others' * (len(missing) > 3)}"
        helps = f"check that it runs, the network, and that the same fairlead is installed; see {home}/log and {home}/ray.log"
        return "wrong", what, helps
    return "well", what


def _nodes(home: Path) -> Found:
    """Ask the scheduler for the nodes that connect to it: who is lost or silent, and whose version or clock differs."""
    nodes = _asked(home, "nodes")["nodes"]
    found = {
        "lost": [node["name"] for node in nodes if node["status"] == "lost"],
        "silent": [
            node["name"]
            for node in nodes
            if node["status"] != "lost" and node["silent"] is not None and node.get("unheard") is None
        ],
        "not heard since the scheduler's restart": [
            f"{node['name']} ({span(node['unheard'])})" for node in nodes if node.get("unheard") is not None
        ],
        f"not {fairlead.__version__}": [
            f"{node['name']} ({node['version']})" for node in nodes if node["version"] not in (None, fairlead.__version__)
        ],
        "clock off": [
            f"{node['name']} ({node['clock_ahead']:+.0f} s)" for node in nodes if abs(node["clock_ahead"] or 0) > CLOCKS_APART
        ],
    }
    wrong = [f"{what}: {', '.join(names[:3])}{' and others' * (len(names) > 3)}" for what, names in found.items() if names]
    if not wrong:
        return "well", f"{len(nodes)} nodes are heard, with the same fairlead and clocks"
    helps = "check `fairlead node join` or Ray there, the network, and NTP; `fairlead forget NODE` removes a lost node"
    return "look", "; ".join(wrong), helps


def _cgroups(home: Path) -> Found:
    tried = cgroups.find(f"fairlead-doctor-{os.getpid()}")
    if tried is None:
        what = "not available: memory is polled twice a second, CPU is not limited"
        return "look", what, "run as root, or delegate them with systemd: Delegate=yes"
    tried.close()
    missing = [name for name, there in (("memory", tried.limits_memory), ("cpu", tried.limits_cpu)) if not there]
    if missing:
        return "look", f"{' and '.join(missing)} cannot be limited", "delegate the controller"
    return "well", "limit tasks to their memory and CPU"


def _disk(home: Path) -> Found:
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    disk = os.statvfs(there)
    room = disk.f_bavail * disk.f_frsize
    what = f"{room / 2**30:.1f} GiB free"
    if disk.f_files and disk.f_favail < 1000:
        return "wrong", f"only {disk.f_favail} more files can be made", f"remove files from {there}"
    if room < FULL_DISK_BYTES:
        return "wrong", what, f"free space: du -xh {there} | sort -h | tail"
    if room < LOW_DISK_BYTES:
        return "look", what, f"free space soon: du -xh {there} | sort -h | tail"
    return "well", what


def _clocks(home: Path) -> Found:
    try:
        boot, begin = read_clock(home / "clock.json")
    except FileNotFoundError:
        return "well", "no time recorded yet"
    except ValueError:
        return "look", "clock.json is unreadable", "the next `fairlead up` rewrites it"
    if boot != Clock.boot():
        return "well", "the machine was rebooted since: `fairlead up` trusts its clock"
    ahead = time.time() - begin - time.clock_gettime(time.CLOCK_BOOTTIME)
    if abs(ahead) > CLOCK_STEP_SECONDS:
        what = f"the machine's clock was set by {ahead:+,.0f} s since boot; time limits are not affected"
        return "look", what
    return "well", "agree"


def _limits(home: Path) -> Found:
    files, processes = (resource.getrlimit(which)[1] for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    for many, few, name, option in ((files, FEW_FILES, "open files", "n"), (processes, FEW_PROCESSES, "processes", "u")):
        if many != resource.RLIM_INFINITY and many < few:
            return "look", f"at most {many} {name}", f"ulimit -{option} {few}, as root"
    return "well", "enough files and processes"


def _arguments(home: Path) -> Found:
    """Check whether accounts see each other's processes: `ps` shows the arguments of commands."""
    lines = (line.partition(" - ") for line in MOUNTS.read_text().splitlines())
    (options,) = [right.split()[-1] for left, _, right in lines if left.split()[4] == "/proc"][-1:] or [""]
    if re.search("(^|,)hidepid=(1|2|4|noaccess|invisible|ptraceable)(,|$)", options):
        return "well", "of commands are hidden from other accounts"
    what = "every account sees the arguments of all commands in `ps`: /proc is mounted without hidepid"
    return "look", what, "mount -o remount,hidepid=2 /proc, and in /etc/fstab"
