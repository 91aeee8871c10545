"""Start a program without copying this process: most of what a short command costs is that copy.

What is done between fork and exec elsewhere (:mod:`fairlead.engines.local.child`) is done here before, in this process, as far as
a child inherits it and it can be taken back: the cgroup, the cores, the folder, how many files may be open. The rest the system's
library does in the child, without running Python there. Nothing else is imported.
"""

import contextlib
import os
import resource
from collections.abc import Iterator
from functools import cache

from fairlead.engines.local.child import FILES, USUAL_SIGNALS, ChildSetup, own_environment
from fairlead.engines.local.messages import Program

SPARE = 16
"""Descriptors that it takes to start one."""


def spawn(program: Program, files: list[int], born: ChildSetup) -> int:
    """Start a program; `files` become its descriptors from 1 on.

    Returns its number once it is executed; 0 where that must be done, or tried, by a copy of this process: where it is to be
    somebody else, or has a terminal or an environment in a file, or could not be executed, which the copy then tells.
    """
    if born.person is not None or born.export or (born.input is not None and born.input.terminal):
        return 0
    if (born.cgroup is not None and not born.cgroup.can_be_entered()) or files[-1] + SPARE > FILES > 0:
        return 0
    pid = 0
    try:
        argv = [word.encode(program.encoding) for word in program.argv]
        cwd = program.cwd.encode(program.encoding)
        asked = born.unless_set | program.env
        env = _own() | {name.encode(program.encoding): value.encode(program.encoding) for name, value in asked.items()}
        given = _nothing() if born.input is None else born.input.theirs
        into = born.cgroup.entered() if born.cgroup else contextlib.nullcontext()
        _own_folder()
        with into, _cores(born.cores), _usual_files(), _folder(cwd):
            pid = _execute(argv, env, [given, *files])
    # Whatever kept it from being executed, the copy meets it too, and tells it; whatever came later, it was.
    except (OSError, ValueError, LookupError, NotImplementedError):
        return pid
    return pid


@cache
def _own() -> dict[bytes, bytes]:
    """What of this process's environment a program has, which stays as it is."""
    return {os.fsencode(name): os.fsencode(value) for name, value in own_environment().items()}


@cache
def _nothing() -> int:
    """What is read by who has no input."""
    return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


def _execute(argv: list[bytes], env: dict[bytes, bytes], files: list[int]) -> int:
    if min(files) < len(files):  # one could take another's place before that has its own
        raise ValueError("the standard descriptors are not open here")
    places = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in enumerate(files)]
    return os.posix_spawn(_found(argv[0], env), argv, env, file_actions=places, setsid=True, setsigdef=USUAL_SIGNALS)


def _found(name: bytes, env: dict[bytes, bytes]) -> bytes:
    """The path of a program, as who looks for it with this environment finds it."""
    if b"/" in name:
        return name
    for folder in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(name)


@contextlib.contextmanager
def _folder(cwd: bytes) -> Iterator[None]:
    os.chdir(cwd)
    try:
        yield
    finally:
        try:
            os.fchdir(_own_folder())
        except OSError:  # it is closed to us now; what was started is, and that is to be known
            os.chdir("/")


@cache
def _own_folder() -> int:
    """Where this process is, and comes back to."""
    return os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


@contextlib.contextmanager
def _cores(cores: list[int]) -> Iterator[None]:
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _usual_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if FILES in (resource.RLIM_INFINITY, soft):
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
