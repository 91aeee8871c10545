"""`fairlead doctor`: is all well where a scheduler lives, and if not, what helps. It changes nothing.

Each thing that is looked at is a function over the data folder that gives what it found, so that one which cannot be looked at
hides no other.
"""

import os
import platform
import resource
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import typer
from rich.table import Table

import fairlead
from fairlead.cli.scheduler import print_json
from fairlead.cli.tables import plain_table, show
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.data_folder import SYSTEM_HOME, home_folder, socket_of
from fairlead.engines.contract import EngineError
from fairlead.engines.local import cgroups
from fairlead.engines.local.member import supervisor_in
from fairlead.engines.ray.engine import ADDRESS_FILE
from fairlead.journal import JournalError, head
from fairlead.journal.repair import examine
from fairlead.locks import holding, is_stopped
from fairlead.service.clock import Clock, read_clock

TIGHT, FULL = 2**30, 64 * 2**20
"""Bytes of room on a disk under which it is worth a word, and under which things fail."""
FEW_FILES, FEW_PROCESSES = 4096, 512
"""Descriptors and processes that one may have, under which a busy scheduler could fail to start tasks."""
CLOCK_SET = 60.0
"""Seconds by which the machine's clock was set, over which it is worth a word."""

SLOW = 30.0
"""Seconds until a node is declared dead, over which it is worth a word."""

How = Literal["well", "look", "wrong"]


class Finding(NamedTuple):
    """What was found of one thing: how it is, what is seen, and the command or the change that helps."""

    thing: str
    how: How
    what: str
    help: str = ""


def see_all(home: Path | None, system: bool, as_json: bool) -> None:
    """Look at everything and print it; exit status 1 if something is wrong."""
    folder = (home or (SYSTEM_HOME if system else home_folder())).absolute()
    found = examine_all(folder)
    if as_json:
        print_json({"home": str(folder), "found": [finding._asdict() for finding in found]})
    else:
        print(f"the scheduler in {folder}")
        show(_table(found), "")
    if any(finding.how == "wrong" for finding in found):
        raise typer.Exit(1)


def examine_all(home: Path) -> list[Finding]:
    """Look at the scheduler of a data folder, and at this machine as far as it matters to one."""
    looks: list[tuple[str, Callable[[], Finding]]] = [
        ("versions", _versions),
        ("home", partial(_home, home)),
        ("journal", partial(_journal, home)),
        ("scheduler", partial(_scheduler, home)),
        ("supervisor", partial(_supervisor, home)),
        ("output", partial(_output, home)),
        *([("ray", partial(_ray, home))] if (home / ADDRESS_FILE).exists() else []),
        ("cgroups", _cgroups),
        ("disk", partial(_disk, home)),
        ("clocks", partial(_clocks, home)),
        ("limits", _limits),
    ]
    if home == SYSTEM_HOME and os.geteuid() != 0:  # the rest is for root's eyes
        looks = [look for look in looks if look[0] in ("versions", "scheduler", "output", "disk", "limits")]
    found = []
    for thing, look in looks:
        try:
            found.append(look())
        except OSError as error:
            what = f"cannot be looked at: {error.strerror or error}"
            found.append(Finding(thing, "wrong", what, f"run this as who owns {home}, or as root"))
    return found


def _table(found: list[Finding]) -> Table:
    table = plain_table("", "", "what")
    for finding in found:
        table.add_row(finding.thing, finding.how, finding.what)
        if finding.help:
            table.add_row("", "", f"-> {finding.help}")
    return table


def _versions() -> Finding:
    what = (
        f"fairlead {fairlead.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SQLite {sqlite3.sqlite_version}"
    )
    return Finding("versions", "well", what)


def _home(home: Path) -> Finding:
    try:
        found = home.lstat()
    except FileNotFoundError:
        return Finding("home", "look", "there is none yet", "`fairlead up` makes it")
    if stat.S_ISLNK(found.st_mode):
        found = home.stat()
    if not stat.S_ISDIR(found.st_mode):
        return Finding("home", "wrong", "is no folder", "move it away, or name another with --home")
    if found.st_uid != os.geteuid():
        return Finding("home", "wrong", f"belongs to uid {found.st_uid}, not to you", "name your own with --home")
    if found.st_mode & 0o077:
        mode = f"others may look into it (mode {stat.S_IMODE(found.st_mode):o})"
        return Finding("home", "wrong", mode, f"chmod 700 {home}")
    return Finding("home", "well", "is yours alone")


def _journal(home: Path) -> Finding:
    path = home / "journal.db"
    if not path.exists():
        return Finding("journal", "look", "there is none yet", "`fairlead up` makes it")
    try:
        found = examine(path)
    except JournalError as error:
        return Finding("journal", "wrong", str(error).removeprefix(f"{path}: "))
    if found.wrong:
        return Finding("journal", "wrong", f"damaged: {found.wrong}", "fairlead journal check")
    if head.is_of_another(found.head, path):
        return Finding(
            "journal", "look", f"{found.position:,} facts are proved; it is a copy", "fairlead journal adopt"
        )
    return Finding("journal", "well", f"{found.position:,} facts are proved")


def _scheduler(home: Path) -> Finding:
    lock = head.path_of(home / "journal.db")
    for pid in holding(lock):
        with suppress(OSError):  # it has ended, or is nobody's that may be looked at
            if is_stopped(pid) and any(map(lock.samefile, Path(f"/proc/{pid}/fd").iterdir())):
                return Finding("scheduler", "wrong", f"process {pid} is stopped", f"kill -CONT {pid}")
    try:
        with Connection(home, patience=0, timeout=15) as connection:
            ready = connection.get("/readyz")
            version = connection.get("/v1/status")["version"]
    except ServiceError as error:
        if error.status:  # it answers, and says what is wrong
            return Finding("scheduler", "wrong", str(error), f"see {home}/log")
        left = "a scheduler was killed here; " if socket_of(home).exists() else ""
        system = " --system, as root, or: systemctl start fairlead" if home == SYSTEM_HOME else ""
        return Finding("scheduler", "look", f"{left}none runs", f"fairlead up{system}")
    if version != fairlead.__version__:
        return Finding("scheduler", "look", f"runs, but is fairlead {version}", "start it again: its tasks run on")
    return Finding("scheduler", "well", f"runs; its last step ended {ready['step']:.1f} s ago")


def _supervisor(home: Path) -> Finding:
    """By who holds its lock: a connection would take the scheduler's place."""
    if not (home / "supervisor" / "lock").exists():
        if (home / ADDRESS_FILE).exists():
            return Finding("supervisor", "well", "none is needed here: each node of Ray's has its own, see `ray`")
        return Finding("supervisor", "well", "none was needed yet")
    there = supervisor_in(home / "supervisor")
    if there is None:
        return Finding("supervisor", "well", "none runs; a scheduler starts one")
    if there.is_stopped:
        return Finding("supervisor", "wrong", f"process {there.pid} is stopped", f"kill -CONT {there.pid}")
    return Finding("supervisor", "well", f"runs, as process {there.pid}")


def _output(home: Path) -> Finding:
    """By the word of the scheduler: what lets it in may be known to its environment alone."""
    try:
        with Connection(home, patience=0, timeout=15) as connection:
            output = connection.get("/v1/status").get("output")
    except ServiceError:  # none runs, or it is not well, which is said elsewhere
        return Finding("output", "well", "where it is kept is looked at by a scheduler that runs")
    if output is None:
        return Finding("output", "well", "is on its nodes, and kept nowhere else")
    waiting = f"that of {output['waiting']:,} tasks waits on its nodes"
    if output["trouble"]:
        helps = (
            "see that this machine reaches it, and that the scheduler's environment has what lets in: it is tried again"
        )
        return Finding("output", "wrong", f"{output['trouble']}; {waiting}", helps)
    return Finding("output", "well", f"is kept at {output['url']}; {waiting}")


def _ray(home: Path) -> Finding:
    """The cluster that was used last: its head, how soon it sees that a node is dead, and nodes without a supervisor."""
    from fairlead.engines.ray.health import examine as examine_ray

    address = (home / ADDRESS_FILE).read_text()
    try:
        health = examine_ray(address)
    except EngineError as error:
        return Finding("ray", "wrong", str(error), "tasks run on; nodes come and go when the head is there again")
    except ImportError:
        return Finding("ray", "wrong", "Ray is not installed here", "pip install 'fairlead[ray]'")
    what = f"Ray {health.version} at {address}, {len(health.nodes)} nodes"
    try:
        with Connection(home, patience=0, timeout=15) as connection:
            known = connection.get("/v1/nodes")["nodes"]
            heard = [node["name"] for node in known if node["status"] != "lost" and node.get("silent") is None]
    except ServiceError:  # none runs, which is said elsewhere
        heard = health.nodes
    missing = [name for name in health.nodes if name not in heard]
    if missing:
        what += f"; no supervisor is heard on {', '.join(missing[:3])}{' and others' * (len(missing) > 3)}"
        helps = f"is it stopped, or the network cut? is the same fairlead installed there? see {home}/log and {home}/ray.log"
        return Finding("ray", "wrong", what, helps)
    if health.seen_after is None:
        return Finding("ray", "well", f"{what}; how soon it sees a loss is set at the head, which is not here")
    soon, late = health.seen_after
    what += f"; a node that ended is seen after {soon:g} s, one that does not answer after {late:g} s"
    what += f"; what its head knows is {'on disk' if health.on_disk else 'in memory, and lost with it'}"
    if late > SLOW:
        return Finding("ray", "look", what, "start the head with RAY_health_check_...: see docs/ray.md")
    return Finding("ray", "well", what)


def _cgroups() -> Finding:
    tried = cgroups.find(f"fairlead-doctor-{os.getpid()}")
    if tried is None:
        what = "none can be made: memory is watched twice a second, CPU is not limited"
        return Finding("cgroups", "look", what, "run as root, or have systemd delegate: Delegate=yes")
    tried.close()
    missing = [name for name, there in (("memory", tried.limits_memory), ("cpu", tried.limits_cpu)) if not there]
    if missing:
        return Finding("cgroups", "look", f"{' and '.join(missing)} cannot be limited", "delegate its controller")
    return Finding("cgroups", "well", "hold tasks to their memory and CPU")


def _disk(home: Path) -> Finding:
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    disk = os.statvfs(there)
    room = disk.f_bavail * disk.f_frsize
    what = f"{room / 2**30:.1f} GiB are free"
    if disk.f_files and disk.f_favail < 1000:
        return Finding("disk", "wrong", f"only {disk.f_favail} more files can be made", f"remove files from {there}")
    if room < FULL:
        return Finding("disk", "wrong", what, f"make room: du -xh {there} | sort -h | tail")
    if room < TIGHT:
        return Finding("disk", "look", what, f"make room soon: du -xh {there} | sort -h | tail")
    return Finding("disk", "well", what)


def _clocks(home: Path) -> Finding:
    try:
        boot, begin = read_clock(home / "clock.json")
    except FileNotFoundError:
        return Finding("clocks", "well", "nothing has been timed yet")
    except ValueError:
        return Finding("clocks", "look", "clock.json says nothing", "the next `fairlead up` writes it anew")
    if boot != Clock.boot():
        return Finding("clocks", "well", "the machine was booted since: `fairlead up` takes its clock's word")
    ahead = time.time() - begin - time.clock_gettime(time.CLOCK_BOOTTIME)
    if abs(ahead) > CLOCK_SET:
        what = f"the machine's was set by {ahead:+,.0f} s since it was booted; no time limit is changed by that"
        return Finding("clocks", "look", what)
    return Finding("clocks", "well", "agree")


def _limits() -> Finding:
    files, processes = (resource.getrlimit(which)[1] for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    for many, few, name, option in (
        (files, FEW_FILES, "open files", "n"),
        (processes, FEW_PROCESSES, "processes", "u"),
    ):
        if many != resource.RLIM_INFINITY and many < few:
            return Finding("limits", "look", f"{many} {name} at most", f"ulimit -{option} {few}, as root")
    return Finding("limits", "well", "files and processes enough")
