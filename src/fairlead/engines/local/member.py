"""A supervisor on a node of a cluster: how it is started, and how it reaches its scheduler.

====================  ============================================================
FOLDER/member.json    where the scheduler listens, and what the node shares
FOLDER/own.pem        its certificate and key
FOLDER/joining-*.pem  those that it asks to join by, for each token; next.pem those that it rotates to; until they are its own
FOLDER/scheduler.pem  the certificate of the only scheduler that it talks to
FOLDER/unheard        is there while it dials and no scheduler has greeted it
====================  ============================================================

Without member.json it listens on its Unix socket only, as the local engine's supervisor does. Standard library only.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.descriptors import opened
from fairlead.engines.local.checkpoints import make_checkpoints
from fairlead.locks import holding, is_stopped
from fairlead.sockets import socket_name

START_WITHIN = 20.0
"""Seconds for a new supervisor to accept connections."""
PAUSE = 0.01
UNHEARD = "unheard"
NEXT = "next.pem"


class Membership(NamedTuple):
    """What makes a supervisor that of a node.

    own, scheduler : its certificate with the key, and the scheduler's certificate, as PEM.
    hosts, port : where the scheduler listens: its IP addresses, tried in turn, and the port.
    about : what the node says of itself with each inventory: its version, and what it shares.
    """

    own: str
    scheduler: str
    hosts: list[str]
    port: int
    about: dict[str, Any]


def start_member(folder: Path, membership: Membership | None, checkpoints: Path | None = None) -> None:
    """Start a supervisor in a folder, detached from this process, unless one runs there.

    folder : the node's own; the supervisor's files go to its folder `supervisor`, output to `output`
    membership : for one that dials its scheduler. One that runs uses it when it dials next.
    checkpoints : a folder that people may enter, for checkpoint pipes; needed if tasks run as people

    Raises OSError if none runs and none could be started (see its log), or the one that runs does not answer.
    """
    place = folder / "supervisor"
    for each in (place, folder / "output"):
        each.mkdir(parents=True, exist_ok=True, mode=0o700)
    if membership is not None:
        write_membership(place, membership)
    until = time.monotonic() + START_WITHIN
    started = False
    while not _answers(place):
        there = supervisor_in(place)
        if there is None and not started:  # or it ended meanwhile, as after "leave"
            make_checkpoints(place / "checkpoints", checkpoints)
            _spawn_apart(place)
            started = True
        if there is not None and there.is_stopped:
            raise TimeoutError(f"its supervisor, process {there.pid}, is stopped: kill -CONT {there.pid}")
        if time.monotonic() > until:
            if there is not None:
                raise TimeoutError(f"its supervisor, process {there.pid}, does not answer: see {place}/log")
            raise TimeoutError(f"no supervisor answers {START_WITHIN:.0f} s after it was started: see {place}/log")
        time.sleep(PAUSE)


class Running(NamedTuple):
    """A supervisor's process, and whether a signal or a debugger stopped it."""

    pid: int
    is_stopped: bool


def supervisor_in(place: Path) -> Running | None:
    """Find the supervisor that runs in a folder, responsive or not: the holder of its lock, as far as visible."""
    lock = place / "lock"
    for pid in holding(lock):
        with contextlib.suppress(OSError):  # it ended, or the inode number belongs to another disk
            its = Path(f"/proc/{pid}/cmdline").read_text(errors="surrogateescape").split("\0")[-2:-1]
            if its and Path(its[0], "lock").samefile(lock):
                return Running(pid, is_stopped(pid))
    return None


def read_membership(place: Path) -> Membership | None:
    """Read a supervisor's membership; None if it has none. Raises OSError, ValueError."""
    try:
        dialed = json.loads((place / "member.json").read_text())
    except FileNotFoundError:
        return None
    own, scheduler = ((place / name).read_text() for name in ("own.pem", "scheduler.pem"))
    return Membership(own, scheduler, dialed["hosts"], dialed["port"], dialed["about"])


def write_membership(place: Path, membership: Membership) -> None:
    """Store a supervisor's membership; one that runs dials again if it differs."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    dialed = {"hosts": membership.hosts, "port": membership.port, "about": membership.about}
    files = {"own.pem": membership.own, "scheduler.pem": membership.scheduler, "member.json": json.dumps(dialed)}
    for name, text in files.items():
        with contextlib.suppress(FileNotFoundError):
            if (place / name).read_text() == text:
                continue
        _write(place / name, text)
    for asked in (*place.glob("joining-*.pem"), place / NEXT):
        with contextlib.suppress(FileNotFoundError):
            if asked.read_text() == membership.own:
                asked.unlink()


def change_membership(place: Path, **about: Any) -> None:
    """Change what a node says of itself."""
    membership = read_membership(place)
    if membership is not None:
        write_membership(place, membership._replace(about=membership.about | about))


def _answers(place: Path) -> bool:
    """Return whether the socket accepts connections. Sends nothing, so it replaces no scheduler's connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line, contextlib.suppress(OSError):
        line.settimeout(1.0)
        with socket_name(place / "socket") as name:
            line.connect(name)
        return True
    return False


def spawn(place: Path, *flags: str) -> "subprocess.Popen[bytes]":
    """Start a supervisor in a folder; its messages go to the file `log` there."""
    place.mkdir(mode=0o700, exist_ok=True)  # somebody may have removed it
    argv = [sys.executable, "-I", "-m", "fairlead.engines.local.supervisor", *flags, str(place)]
    with opened(place / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) as fd:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, start_new_session=True, cwd="/")


def _spawn_apart(place: Path) -> None:
    """Start one that is not our child, so that whatever ends our children spares it."""
    try:
        starter = spawn(place, "--apart")
        try:
            status = starter.wait(START_WITHIN)
        except subprocess.TimeoutExpired:
            starter.kill()
            status = starter.wait()
    except OSError as error:
        raise OSError(f"no supervisor could be started: {error.strerror or error}: see {place}/log") from None
    if status:
        raise OSError(f"no supervisor could be started: exit status {status}: see {place}/log")


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    fresh.rename(path)
