"""A supervisor on a node of a cluster: how it is started, and the files by which the scheduler reaches it.

====================  ============================================================
FOLDER/member.json    the address to listen on
FOLDER/own.pem        its certificate and key
FOLDER/scheduler.pem  the certificate of the only scheduler that may connect
FOLDER/address        written by it: how it is reached, by socket and by port
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

from fairlead.engines.local.checkpoints import make_checkpoints
from fairlead.locks import holding, is_stopped
from fairlead.sockets import socket_name

START_WITHIN = 20.0
"""Seconds for a new supervisor to accept connections."""
PAUSE = 0.01


class Keys(NamedTuple):
    """The keys of a supervisor as PEM: its own certificate with the key, and the scheduler's certificate."""

    own: str
    scheduler: str


class Address(NamedTuple):
    """How a supervisor is reached.

    machine : id of the machine, of this boot, and of the socket's file system.
    socket : path of its socket.
    host, port : its TCP address; port 0 for none.
    """

    machine: str
    socket: str
    host: str
    port: int


def start_member(folder: Path, keys: Keys | None, host: str = "", checkpoints: Path | None = None) -> Address:
    """Start a supervisor in a folder, detached from this process, or find the one that runs there.

    Parameters
    ----------
    folder : Path
        The node's own; the supervisor's files go to its folder `supervisor`, output to `output`.
    keys : Keys, optional
        For connections from other machines; without them there is no port.
    host : str
        The address of this machine to listen on.
    checkpoints : Path, optional
        A folder that people may enter, for checkpoint pipes; needed if tasks run as people.

    Raises
    ------
    OSError
        None runs and none could be started (see its log), or the one that runs does not answer.
    """
    place = folder / "supervisor"
    for each in (place, folder / "output"):
        each.mkdir(parents=True, exist_ok=True, mode=0o700)
    if keys is not None:
        _write(place / "own.pem", keys.own)
        _write(place / "scheduler.pem", keys.scheduler)
        _write(place / "member.json", json.dumps({"host": host}))
    until = time.monotonic() + START_WITHIN
    started = False
    while True:
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            if _answers(place):
                return Address(**json.loads((place / "address").read_text()))
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


def forget_address(place: Path) -> None:
    """Remove the address of the last supervisor."""
    (place / "address").unlink(missing_ok=True)


def write_address(place: Path, host: str, port: int) -> None:
    """Write down how the supervisor in a folder is reached."""
    address = Address(machine_of(place), str(place / "socket"), host, port)
    _write(place / "address", json.dumps(address._asdict()))


def machine_of(place: Path) -> str:
    """Return an id of this boot of the machine and of a path's file system: containers on one machine may see other paths."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    found = place.stat()
    return f"{boot}.{found.st_dev}.{found.st_ino}"


def is_here(address: Address) -> bool:
    """Return whether a supervisor's socket can be reached by its path on this machine."""
    try:
        return machine_of(Path(address.socket).parent) == address.machine
    except OSError:
        return False


def read_listen_address(place: Path) -> dict[str, Any] | None:
    """Read member.json; None if there is none."""
    try:
        read = json.loads((place / "member.json").read_text())
        return {"host": str(read["host"])}
    except FileNotFoundError:
        return None


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
    fd = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-m", "fairlead.engines.local.supervisor", *flags, str(place)],
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(fd)


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
        raise OSError(f"no supervisor could be started: {error}: see {place}/log") from None
    if status:
        raise OSError(f"no supervisor could be started: exit status {status}: see {place}/log")


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    fresh.rename(path)
