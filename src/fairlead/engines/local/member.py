"""What makes a supervisor one of many: the files by which the scheduler reaches it from another machine, and how one is started.

FOLDER/member.json says where it listens; FOLDER/own.pem is its certificate and key, FOLDER/scheduler.pem the certificate of whom
it lets in. It tells in FOLDER/address how it is reached: by a socket of its machine, and by a port. Without these files a
supervisor listens on the socket alone, as one does that has its machine for itself. Only the standard library.
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
"""Seconds that a new supervisor is given until it answers."""
PAUSE = 0.01


class Keys(NamedTuple):
    """What a supervisor is given to know and be known by, as PEM: its certificate with the key, and that of the scheduler."""

    own: str
    scheduler: str


class Address(NamedTuple):
    """How a supervisor is reached.

    machine : an id of the machine, of this time that it runs, and of the file system that the socket is on.
    socket : the path of its socket.
    host, port : where it listens for other machines; 0 where it does not.
    """

    machine: str
    socket: str
    host: str
    port: int


def start_member(folder: Path, keys: Keys | None, host: str = "", checkpoints: Path | None = None) -> Address:
    """Have a supervisor run in a folder, apart from this process and all its kin, or find the one that runs there.

    Parameters
    ----------
    folder : Path
        The node's own; the supervisor's files go to its folder `supervisor`, what tasks print to `output`.
    keys : Keys, optional
        For those who connect from other machines; without them there is no port.
    host : str
        The address of this machine at which it listens for others.
    checkpoints : Path, optional
        A folder that people may enter, where tasks run as people: by files in it they say that they have kept what they did.

    Raises
    ------
    OSError
        None runs, and none could be started, which the message says with its log; or the one that runs does not answer.
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
        if there is None and not started:  # or it has ended meanwhile, as one does that was told to go
            make_checkpoints(place / "checkpoints", checkpoints)
            _spawn(place)
            started = True
        if there is not None and there.is_stopped:
            raise TimeoutError(f"its supervisor, process {there.pid}, is stopped: kill -CONT {there.pid}")
        if time.monotonic() > until:
            if there is not None:
                raise TimeoutError(f"its supervisor, process {there.pid}, does not answer: see {place}/log")
            raise TimeoutError(f"no supervisor answers {START_WITHIN:.0f} s after it was started: see {place}/log")
        time.sleep(PAUSE)


class Running(NamedTuple):
    """The process of a supervisor, and whether a signal or a debugger has stopped it."""

    pid: int
    is_stopped: bool


def supervisor_in(place: Path) -> Running | None:
    """The supervisor that runs in a folder, whether it answers or not: who holds the lock, as far as that can be seen."""
    lock = place / "lock"
    for pid in holding(lock):
        with contextlib.suppress(OSError):  # it has ended, or the number is that of a file on another disk
            its = Path(f"/proc/{pid}/cmdline").read_text(errors="surrogateescape").split("\0")[-2:-1]
            if its and Path(its[0], "lock").samefile(lock):
                return Running(pid, is_stopped(pid))
    return None


def forget_address(place: Path) -> None:
    """Have what is told be that of the supervisor that begins now, and of none before it."""
    (place / "address").unlink(missing_ok=True)


def tell_address(place: Path, host: str, port: int) -> None:
    """Write down how the supervisor in a folder is reached."""
    address = Address(machine_of(place), str(place / "socket"), host, port)
    _write(place / "address", json.dumps(address._asdict()))


def machine_of(place: Path) -> str:
    """An id of this machine, as long as it runs, and of what a path means on it: containers on one may mean another thing."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    found = place.stat()
    return f"{boot}.{found.st_dev}.{found.st_ino}"


def is_here(address: Address) -> bool:
    """Whether a supervisor's socket is one of this machine, that can be connected to by its path."""
    try:
        return machine_of(Path(address.socket).parent) == address.machine
    except OSError:
        return False


def how_to_listen(place: Path) -> dict[str, Any] | None:
    """What member.json says; None where there is none."""
    try:
        said = json.loads((place / "member.json").read_text())
        return {"host": str(said["host"])}
    except FileNotFoundError:
        return None


def _answers(place: Path) -> bool:
    """Whether somebody listens there. Nothing is said: who connects and goes takes nobody's place."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line, contextlib.suppress(OSError):
        line.settimeout(1.0)
        with socket_name(place / "socket") as name:
            line.connect(name)
        return True
    return False


def _spawn(place: Path) -> None:
    """Start one whose parent is not this process: what ends the children of this process does not find it."""
    fd = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        subprocess.run(
            [sys.executable, "-I", "-m", "fairlead.engines.local.supervisor", "--apart", str(place)],
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            cwd="/",
            check=True,
            timeout=START_WITHIN,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise OSError(f"no supervisor could be started: {error}: see {place}/log") from None
    finally:
        os.close(fd)


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    fresh.rename(path)
