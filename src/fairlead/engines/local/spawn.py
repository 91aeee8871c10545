"""Start a program without copying this process: most of what a short command costs is that copy.

What is done between fork and exec elsewhere (:mod:`fairlead.engines.local.child`) is done here before, in this process, as far as
a child inherits it and it can be taken back: the cgroup, the cores, how many files may be open. The rest the standard library
does in the child, without running Python there. Nothing else is imported.
"""

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator

from fairlead.engines.local.child import FILES, Born, own_environment
from fairlead.engines.local.messages import Program

SPARE = 16
"""Descriptors that it takes to start one."""


def spawn(program: Program, files: list[int], born: Born) -> int:
    """Start a program; `files` become its descriptors from 1 on.

    Returns its number once it is executed; 0 where that must be done, or tried, by a copy of this process: where it is to be
    somebody else, or has a terminal or an environment in a file, or could not be executed, which the copy then tells.
    """
    if born.person is not None or born.export or (born.input is not None and born.input.terminal):
        return 0
    if (born.cgroup is not None and not born.cgroup.can_be_entered()) or files[-1] + SPARE > FILES > 0:
        return 0
    try:
        argv = [word.encode(program.encoding) for word in program.argv]
        cwd = program.cwd.encode(program.encoding)
        own = {os.fsencode(name): os.fsencode(value) for name, value in own_environment().items()}
        asked = born.unless_set | program.env
        env = own | {name.encode(program.encoding): value.encode(program.encoding) for name, value in asked.items()}
        with born.cgroup.entered() if born.cgroup else contextlib.nullcontext(), _cores(born.cores), _usual_files():
            return _execute(argv, cwd, env, files, None if born.input is None else born.input.theirs)
    except (OSError, ValueError, LookupError):  # whatever it is, the copy meets it too, and tells it
        return 0


def _execute(argv: list[bytes], cwd: bytes, env: dict[bytes, bytes], files: list[int], given: int | None) -> int:
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL if given is None else given,
        stdout=files[0],
        stderr=files[1],
        cwd=cwd,
        env=env,
        close_fds=False,  # none of ours is inherited
        start_new_session=True,
    )
    child.returncode = 0  # it is reaped elsewhere
    return child.pid


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
