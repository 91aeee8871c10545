"""Starts a program without copying this process: the copy is most of the cost of a short command.

It does what :mod:`fairlead.engines.local.child` does, for tasks that need no Python between fork and exec.
"""

import os
import resource
import signal
from collections.abc import Callable
from functools import cache, lru_cache, partial

from fairlead.engines.local.child import DEFAULT_SIGNALS, FILES, ChildSetup, own_environment, threads
from fairlead.engines.local.kernel import vfork
from fairlead.engines.local.messages import Program

THREADS = min(os.cpu_count() or 1, 4)
"""Threads that start programs: each waits for its exec, and often for a program that took its core."""


def prepared(program: Program, files: list[int], setup: ChildSetup) -> Callable[[], vfork.Start] | None:
    """Return what starts a program; `files` become its descriptors from 1 on.

    Its pid is 0 if that failed, which a fork then meets again and reports. None if a fork must do it: another user, a terminal, a
    stored environment, a worker, a slow cgroup, or one of version 1 that is not open.
    """
    given = setup.given
    if given.person is not None or setup.record is None or given.export or (setup.input is not None and setup.input.terminal):
        return None
    try:
        cwd, *argv = _c_strings([program.cwd, *program.argv], program.encoding)
        asked = threads(given.limits.cpu) | program.env
        variables = _c_strings([f"{name}={value}" for name, value in asked.items()], program.encoding)
        variables += [b"%b=%b" % (name.encode(), value) for name, value in _own().items() if name not in asked]
        ends = [_nothing() if setup.input is None else setup.input.theirs, *files]
        if min(ends) < len(ends):  # a dup2 could overwrite a descriptor that is still needed
            return None
        words = max(given.cores, default=-1) // 64 + 1  # the kernel takes masks of any length
        cores = sum(1 << core for core in given.cores).to_bytes(8 * words, "little")
        born_in = setup.cgroup.born_in.encode() if setup.cgroup else b""
        groups, ours = setup.cgroup.kept_ways_in() if setup.cgroup else ([], [])
        if setup.cgroup and (setup.cgroup.is_slow() or not (born_in or groups or ours)):
            return None
        folders = asked["PATH"].encode(program.encoding) if "PATH" in asked else os.fsencode(os.defpath)
    except (OSError, ValueError, LookupError):
        return None
    paths, more = _paths(argv[0], folders), (ends, cores, _signals(), _most_files(), THREADS)
    return partial(vfork.Start, paths, cwd, argv, variables, groups, ours, born_in, *more, *setup.record)


@cache
def _own() -> dict[str, bytes]:
    """Return the part of our environment that programs inherit, which never changes."""
    return {name: os.fsencode(value) for name, value in own_environment().items()}


@cache
def _nothing() -> int:
    """Return the input of programs without one."""
    return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


def _c_strings(words: list[str], encoding: str) -> list[bytes]:
    """Encode words, all at once: an environment has dozens. Raises ValueError if one has a null byte."""
    found = "\0".join(words).encode(encoding).split(b"\0") if words else []
    if len(found) != len(words):
        raise ValueError("embedded null byte")
    return found


@cache
def _signals() -> bytes:
    """Return the signals for which this process has no default action: a program does not get their handlers."""
    return bytes(number for number in DEFAULT_SIGNALS if signal.getsignal(number) != signal.SIG_DFL)


@cache
def _most_files() -> int:
    """Return the limit of open files that a program gets; -1 if it is ours."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if FILES in (resource.RLIM_INFINITY, soft) else FILES


@lru_cache(64)
def _paths(name: bytes, folders: bytes) -> list[bytes]:
    """Return where a program may be by a PATH, in order; relative ones are from its folder."""
    if b"/" in name:
        return [name]
    return [b"%b/%b" % (folder, name) if folder else name for folder in folders.split(b":")]
