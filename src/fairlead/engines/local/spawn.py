"""Starts a program without forking this process: the copy is most of the cost of a short command.

What :mod:`fairlead.engines.local.child` does between fork and exec is done here beforehand, in this process, as far as a child
inherits it and it can be undone: cgroup, cores, folder, open-file limit. posix_spawn does the rest, without Python in the
child.
"""

import contextlib
import os
import resource
from collections.abc import Iterator
from functools import cache

from fairlead.engines.local.child import DEFAULT_SIGNALS, FILES, ChildSetup, own_environment
from fairlead.engines.local.messages import Program

SPARE = 16
"""Descriptors needed to start one."""


def spawn(program: Program, files: list[int], setup: ChildSetup) -> int:
    """Start a program; `files` become its descriptors from 1 on.

    Returns its pid once it is executed; 0 if a fork must do or retry it: another user, a terminal, a stored environment, or a
    failed exec, which the fork then reports.
    """
    if setup.person is not None or setup.export or (setup.input is not None and setup.input.terminal):
        return 0
    if (setup.cgroup is not None and not setup.cgroup.can_be_entered()) or files[-1] + SPARE > FILES > 0:
        return 0
    pid = 0
    try:
        argv = [word.encode(program.encoding) for word in program.argv]
        cwd = program.cwd.encode(program.encoding)
        asked = setup.unless_set | program.env
        env = _own() | {name.encode(program.encoding): value.encode(program.encoding) for name, value in asked.items()}
        given = _nothing() if setup.input is None else setup.input.theirs
        into = setup.cgroup.entered() if setup.cgroup else contextlib.nullcontext()
        _own_folder()
        with into, _cores(setup.cores), _usual_files(), _folder(cwd):
            pid = _execute(argv, env, [given, *files])
    # If exec failed, the fork meets the error too and reports it; an error after it changes nothing.
    except (OSError, ValueError, LookupError, NotImplementedError):
        return pid
    return pid


@cache
def _own() -> dict[bytes, bytes]:
    """Return the part of our environment that programs inherit, which never changes."""
    return {os.fsencode(name): os.fsencode(value) for name, value in own_environment().items()}


@cache
def _nothing() -> int:
    """Return the input of programs without one."""
    return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


def _execute(argv: list[bytes], env: dict[bytes, bytes], files: list[int]) -> int:
    if min(files) < len(files):  # a dup2 could overwrite a descriptor that is still needed
        raise ValueError("the standard descriptors are not open here")
    places = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in enumerate(files)]
    return os.posix_spawn(_found(argv[0], env), argv, env, file_actions=places, setsid=True, setsigdef=DEFAULT_SIGNALS)


def _found(name: bytes, env: dict[bytes, bytes]) -> bytes:
    """Return the path of a program by the PATH of its environment."""
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
        except OSError:  # we lost access; the program has started, and that must be known
            os.chdir("/")


@cache
def _own_folder() -> int:
    """Return our working directory, to come back to."""
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
