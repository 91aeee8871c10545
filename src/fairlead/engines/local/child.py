"""What a child of the supervisor does between fork and exec: change user, change folder, execute the program.

Accounts are looked up here, so that a slow directory service delays only this child. Whether the user may use the folder and
the program is checked by the kernel, since the child is that user by then. Standard library only.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pwd
import resource
import signal
import termios
from pathlib import Path
from typing import NamedTuple, NoReturn

from fairlead.engines.local.cgroups import Group
from fairlead.engines.local.messages import Limits, Person, Program
from fairlead.engines.local.spool import StartRecord
from fairlead.engines.local.standard_input import Feeder, StandardInput

_libc = ctypes.CDLL(None, use_errno=True)
_SET_PDEATHSIG, _SET_NO_NEW_PRIVS = 1, 38
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}.get(os.uname().machine)
_JOIN_SESSION_KEYRING = 1

MOST_PROCESSES_DIVISOR = 4
"""One person may have at most 1/4 of all processes and threads of the machine."""

THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "JULIA_NUM_THREADS", "GOMAXPROCS",
)  # fmt: skip
"""Variables that size thread pools."""

FILES, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
"""Soft limit of open files of a task: what the supervisor had at first, since some programs rely on it."""

DEFAULT_SIGNALS = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
"""Reset to their defaults for each program, whatever the supervisor inherited or handles."""


class Failure(NamedTuple):
    """Why the program was not executed: the step ("environment", "account", "folder", "spool" or "program") and the errno."""

    at: str
    errno: int

    @classmethod
    def read(cls, report: bytes) -> "Failure | None":
        """Parse a child's report; None if the program was executed."""
        at, _, number = report.decode().partition(" ")
        return cls(at, int(number)) if at else None

    def reason(self, program: Program, person: Person | None) -> str:
        """Return the reason for people."""
        who = person.name if person is not None else "you"
        what = f"cannot run {program.argv[0]!r} in {program.cwd!r}"
        why = os.strerror(self.errno)
        if self.at == "environment":
            return f"{what}: its stored environment cannot be read: {why}"
        if self.at == "account":
            uid = f"uid {person.uid}" if person is not None else "this uid"
            return f"{what} as {who}: {uid} is not their account here (any more): {why}"
        if self.at == "folder":
            return f"{what}: {who} cannot enter {program.cwd!r}: {why}: name another folder with --cwd"
        if self.at == "spool":
            return f"{what}: its start cannot be recorded: {why}: it starts again"
        return f"{what}: {why}"


def load_directory() -> None:
    """Load the account directory's modules once: each child would need two milliseconds for that."""
    with contextlib.suppress(KeyError):  # no account, as in some containers
        own = pwd.getpwuid(os.geteuid())
        os.getgrouplist(own.pw_name, own.pw_gid)


class ProcessSpec(NamedTuple):
    """The setup of a process: limits, environment, GPUs, and the path of its output without .out or .err.

    `person` is the user to run as; None for the supervisor's own. `export` is a file with more environment variables.
    `cores` is the CPU affinity; empty for all. `input` is standard input; None for nothing. `signal` asks it to stop.
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


class ChildSetup(NamedTuple):
    """The setup of a child.

    given : that of its task's processes.
    input : standard input; None for /dev/null.
    cgroup : the task's own; None if cgroups are not available.
    record : what is written before the program runs; None for workers and attached programs.
    """

    given: ProcessSpec
    input: Feeder | None
    cgroup: Group | None
    record: StartRecord | None


def become(program: Program, files: list[int], setup: ChildSetup, report: int, spare: list[int]) -> NoReturn:
    """Execute the program in the forked child: `files` become descriptors 1 and up, `setup.input` becomes 0.

    A terminal becomes all three of them. Never returns; errors go to `report`. The `spare` descriptors are closed first to make
    room.
    """
    at, given = "program", setup.given
    try:
        for fd in spare:
            os.close(fd)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # until the program runs
        os.setsid()
        if setup.cgroup:
            setup.cgroup.join()
        if given.cores:
            os.sched_setaffinity(0, given.cores)
        signal.set_wakeup_fd(-1)
        for name in DEFAULT_SIGNALS:
            signal.signal(name, signal.SIG_DFL)
        first = os.open(os.devnull, os.O_RDONLY) if setup.input is None else setup.input.theirs
        for target, fd in enumerate((first, *files)):
            os.dup2(fd, target)
        if setup.input is not None and setup.input.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.dup2(0, 1)
            os.dup2(0, 2)
        at = "environment"
        exported = json.loads(Path(given.export).read_bytes()) if given.export else {}
        at = "account"
        own = _act_as(given.person) if given.person is not None else own_environment()
        environment = {os.fsencode(name): os.fsencode(value) for name, value in own.items()}
        if setup.record is None and setup.input is None:  # an idle worker is stopped, and would not notice that we are gone
            _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        at = "folder"
        cwd = program.cwd.encode(program.encoding)
        try:
            os.chdir(cwd)
        except FileNotFoundError:  # ENOENT means the program
            raise NotADirectoryError(errno.ENOTDIR, cwd) from None
        at = "program"
        argv = [argument.encode(program.encoding) for argument in program.argv]
        asked = threads(given.limits.cpu) | exported | program.env
        environment |= {n.encode(program.encoding): value.encode(program.encoding) for n, value in asked.items()}
        _bound_files()
        if setup.record is not None:
            at = "spool"
            setup.record.write()
            at = "program"
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(report, f"{at} {error.errno or errno.EIO}".encode())
    except (ValueError, LookupError):  # a NUL byte, a character outside the encoding, or no such encoding
        os.write(report, f"{at} {errno.EINVAL}".encode())
    finally:
        os.kill(os.getpid(), signal.SIGKILL)  # an exit status would be the program's
        os._exit(127)


def _act_as(person: Person) -> dict[str, str]:
    """Change to a person's account irrevocably. Return the environment variables of the account.

    Name and uid must still belong to one account: a new account under either is somebody else's.
    """
    try:
        account = pwd.getpwnam(person.name)
    except KeyError:
        raise FileNotFoundError(errno.ENOENT, "no such account") from None
    if account.pw_uid != person.uid:
        raise PermissionError(errno.EPERM, "another uid")
    _bound_processes()
    if os.geteuid() != person.uid or person.uid == 0:  # else it is the supervisor's own, on a node of one person
        os.initgroups(account.pw_name, account.pw_gid)
        os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
        os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    os.umask(0o022)
    _leave_keyring()
    if _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    name, shell = account.pw_name, account.pw_shell or "/bin/sh"
    return {"HOME": account.pw_dir or "/", "USER": name, "LOGNAME": name, "SHELL": shell}


def uid_here(person: Person) -> Person:
    """Return a person with the uid of their account on this machine; unchanged without one, or where only here it is root's."""
    with contextlib.suppress(KeyError):
        uid = pwd.getpwnam(person.name).pw_uid
        return person._replace(uid=uid) if uid != 0 or person.uid == 0 else person
    return person


def _bound_processes() -> None:
    """Limit a person's processes to a fraction of the machine's, so that others can start theirs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = min(int(Path("/proc/sys/kernel", name).read_text()) for name in ("threads-max", "pid_max")) // MOST_PROCESSES_DIVISOR
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _bound_files() -> None:
    """Restore the default limit of open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if FILES != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if hard == resource.RLIM_INFINITY else min(FILES, hard), hard))


def _leave_keyring() -> None:
    """Join a new session keyring: else all tasks share that of the terminal that started the scheduler.

    Where there are no keyrings, or a container forbids them, tasks have none either.
    """
    if _KEYCTL is not None and _libc.syscall(_KEYCTL, _JOIN_SESSION_KEYRING, None, 0, 0, 0) < 0:
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EPERM):
            raise OSError(number, "session keyring")


def threads(milli_cpu: int) -> dict[str, str]:
    """Return the variables that size thread pools to the requested CPU; none if no CPU was requested."""
    return dict.fromkeys(THREADS, str(-(-milli_cpu // 1000))) if milli_cpu else {}


def own_environment() -> dict[str, str]:
    """Return the account variables of the supervisor's environment, and those by which Ray asks for tokens.

    Without the latter, a task's `ray.init()` would write a token into the home, which the next head of a cluster asks for.
    """
    names = ("HOME", "USER", "LOGNAME", "SHELL", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
    return {name: os.environ[name] for name in names if name in os.environ}
