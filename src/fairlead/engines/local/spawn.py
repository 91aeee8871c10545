"""Starts a program without copying this process: the copy is most of the cost of a short command.

It does what :mod:`fairlead.engines.local.child` does, for tasks that need no Python between fork and exec.
"""

import contextlib
import os
import resource
from functools import cache

from fairlead.engines.local.child import FILES, ChildSetup, own_environment
from fairlead.engines.local.kernel import vfork
from fairlead.engines.local.messages import Program


def spawn(program: Program, files: list[int], setup: ChildSetup) -> int:
    """Start a program; `files` become its descriptors from 1 on.

    Returns its pid once it is executed; 0 if a fork must do or retry it: another user, a terminal, a stored environment, a
    worker, or a failure, which the fork then reports.
    """
    if setup.person is not None or setup.export or (setup.input is not None and setup.input.terminal):
        return 0
    if setup.record is None or (setup.cgroup is not None and not setup.cgroup.can_be_entered()):
        return 0
    pid = 0
    try:
        argv = [_c_string(word.encode(program.encoding)) for word in program.argv]
        cwd = _c_string(program.cwd.encode(program.encoding))
        asked = setup.unless_set | program.env
        env = _own() | {name.encode(program.encoding): value.encode(program.encoding) for name, value in asked.items()}
        variables = [_c_string(name + b"=" + value) for name, value in env.items()]
        given = [_nothing() if setup.input is None else setup.input.theirs, *files]
        if min(given) < len(given):  # a dup2 could overwrite a descriptor that is still needed
            raise ValueError("the standard descriptors are not open here")
        cores = sum(1 << core for core in setup.cores).to_bytes(128, "little") if setup.cores else b""
        with setup.cgroup.entered() if setup.cgroup else contextlib.nullcontext():
            pid = vfork.start(_found(argv[0], cwd, env), cwd, argv, variables, given, cores, _most_files(), *setup.record)
    # The fork meets an error before the start, too, and reports it; an error after it changes nothing.
    except (OSError, ValueError, LookupError):
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


def _c_string(word: bytes) -> bytes:
    if b"\0" in word:
        raise ValueError("embedded null byte")
    return word


def _most_files() -> int:
    """Return the limit of open files that a program gets; -1 if it is ours."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if FILES in (resource.RLIM_INFINITY, soft) else FILES


def _found(name: bytes, cwd: bytes, env: dict[bytes, bytes]) -> bytes:
    """Return the path of a program by the PATH of its environment, from its folder."""
    if b"/" in name:
        return name
    for folder in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = os.path.join(folder, name)
        if os.access(os.path.join(cwd, path), os.X_OK):
            return path
    raise FileNotFoundError(name)
