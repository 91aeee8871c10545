"""What a child of the supervisor does between fork and exec: it becomes whose task it is, enters the folder, and is the program.

Who somebody is, is looked up here, so that a slow directory of accounts makes nobody wait but this child; whether the folder and
the program are theirs to use is the kernel's to say, since by then the child is them. Only the standard library.
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
from fairlead.engines.local.messages import Person, Program
from fairlead.engines.local.standard_input import StandardInput

_libc = ctypes.CDLL(None, use_errno=True)
_SET_NO_NEW_PRIVS = 38
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}.get(os.uname().machine)
_JOIN_SESSION_KEYRING = 1

PART = 4
"""The processes of one person, threads among them, are at most one in so many of all that the machine can have."""

FILES, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
"""How many files a task may have open: as many as the supervisor at first, since some programs count on that."""

USUAL_SIGNALS = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
"""A program begins with all of them, whatever they mean to the supervisor, or was ignored where that was started."""


class Failure(NamedTuple):
    """Why there is no program: at what it failed ("environment", "account", "folder" or "program"), and the errno."""

    at: str
    errno: int

    @classmethod
    def read(cls, told: bytes) -> "Failure | None":
        """What a child told; None where it became its program."""
        at, _, number = told.decode().partition(" ")
        return cls(at, int(number)) if at else None

    def reason(self, program: Program, person: Person | None) -> str:
        """The reason as people read it."""
        who = person.name if person is not None else "you"
        what = f"cannot run {program.argv[0]!r} in {program.cwd!r}"
        why = os.strerror(self.errno)
        if self.at == "environment":
            return f"{what}: the environment that was kept for it cannot be read: {why}"
        if self.at == "account":
            uid = f"uid {person.uid}" if person is not None else "this uid"
            return f"{what} as {who}: {uid} is no account of theirs here (any more): {why}"
        if self.at == "folder":
            return f"{what}: {who} cannot enter {program.cwd!r}: {why}: name another folder with --cwd"
        return f"{what}: {why}"


def open_output(path: str, person: Person | None) -> list[int]:
    """Open the files of a task's output, `path` with .out and .err, to add to them; only whose task it is can read them.

    Raises OSError, also for what is a link or no plain file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    files: list[int] = []
    try:
        for name in ("out", "err"):
            files.append(os.open(f"{path}.{name}", flags, 0o600))
            os.set_blocking(files[-1], True)
            if person is not None and os.fstat(files[-1]).st_uid != person.uid:
                os.fchown(files[-1], person.uid, -1)
    except OSError:
        for fd in files:
            os.close(fd)
        raise
    return files


def load_directory() -> None:
    """Load what looks accounts up, once: else each child would, which takes it two milliseconds."""
    with contextlib.suppress(KeyError):  # we have no account, as in some containers
        own = pwd.getpwuid(os.geteuid())
        os.getgrouplist(own.pw_name, own.pw_gid)


class ChildSetup(NamedTuple):
    """What a program is born with.

    person : as whom it runs; None for whose process this is.
    export : a file with more of the environment; empty for none.
    unless_set : variables that it has where nobody has set them.
    cores : those that it keeps to; empty for no such bound.
    input : what it reads; None for nothing.
    cgroup : its own; None where none can be made.
    """

    person: Person | None
    export: str
    unless_set: dict[str, str]
    cores: list[int]
    input: StandardInput | None
    cgroup: Group | None


def become(program: Program, files: list[int], born: ChildSetup, report: int, spare: list[int]) -> NoReturn:
    """In the forked child: become the program; the files become its descriptors from 1 on, and 0 is what it reads.

    Where that is a terminal, it is all three of them. Returns never; an error is told through `report`. The `spare` descriptors
    are given up for those that it takes until then.
    """
    at = "program"
    try:
        for fd in spare:
            os.close(fd)
        os.setsid()
        if born.cgroup:
            born.cgroup.join()
        if born.cores:
            os.sched_setaffinity(0, born.cores)
        signal.set_wakeup_fd(-1)
        for name in USUAL_SIGNALS:
            signal.signal(name, signal.SIG_DFL)
        first = os.open(os.devnull, os.O_RDONLY) if born.input is None else born.input.theirs
        for target, fd in enumerate((first, *files)):
            os.dup2(fd, target)
        if born.input is not None and born.input.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.dup2(0, 1)
            os.dup2(0, 2)
        at = "environment"
        exported = json.loads(Path(born.export).read_bytes()) if born.export else {}
        at = "account"
        own = _act_as(born.person) if born.person is not None else own_environment()
        environment = {os.fsencode(name): os.fsencode(value) for name, value in own.items()}
        at = "folder"
        cwd = program.cwd.encode(program.encoding)
        try:
            os.chdir(cwd)
        except FileNotFoundError:  # which is said of a program only
            raise NotADirectoryError(errno.ENOTDIR, cwd) from None
        at = "program"
        argv = [argument.encode(program.encoding) for argument in program.argv]
        asked = born.unless_set | exported | program.env
        environment |= {n.encode(program.encoding): value.encode(program.encoding) for n, value in asked.items()}
        _bound_files()
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(report, f"{at} {error.errno or errno.EIO}".encode())
    except (ValueError, LookupError):  # a NUL byte, or no such character in its encoding, or no such encoding
        os.write(report, f"{at} {errno.EINVAL}".encode())
    finally:
        os._exit(127)


def _act_as(person: Person) -> dict[str, str]:
    """Become somebody, for good, and without a way to be more again; returns what their account says of the environment.

    Their name and their uid must still be those of one account: one that was made anew under either is somebody else's.
    """
    try:
        account = pwd.getpwnam(person.name)
    except KeyError:
        account = None
    if account is None or account.pw_uid != person.uid:
        raise PermissionError(errno.EPERM, "no such account")
    _bound_processes()
    os.initgroups(account.pw_name, account.pw_gid)
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    os.umask(0o022)
    _leave_keyring()
    if _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    return {
        "HOME": account.pw_dir or "/",
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": account.pw_shell or "/bin/sh",
    }


def _bound_processes() -> None:
    """Have the kernel refuse processes to a person who has a part of all that can be, so that others can still start theirs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = min(int(Path("/proc/sys/kernel", name).read_text()) for name in ("threads-max", "pid_max")) // PART
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _bound_files() -> None:
    """Have no more files than is usual, if the supervisor may have more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if FILES != resource.RLIM_INFINITY:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (FILES if hard == resource.RLIM_INFINITY else min(FILES, hard), hard)
        )


def _leave_keyring() -> None:
    """Take a session keyring of one's own: else all tasks would share that of the terminal which the scheduler was started from.

    Where there are no keys, or a container forbids to ask for them, it does so to tasks as well.
    """
    if _KEYCTL is not None and _libc.syscall(_KEYCTL, _JOIN_SESSION_KEYRING, None, 0, 0, 0) < 0:
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EPERM):
            raise OSError(number, "session keyring")


def own_environment() -> dict[str, str]:
    """What the supervisor's own environment says of whose it is."""
    return {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME", "SHELL") if name in os.environ}
