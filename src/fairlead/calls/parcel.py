"""Runs a command in a copy of a folder that its person sent, and packs the files that they want back.

    PYTHON -I -m fairlead.calls.parcel RESULT PATTERNS COMMAND [ARG...]

File descriptor 3 is the session's folder, with the packed folder. RESULT is the name of the result there, PATTERNS a JSON list.
Each attempt has a copy of its own, which is removed at its end; that of a killed one by the person's next. Standard library only.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

SESSION = Path("/proc/self/fd/3")
MOST_BYTES = 256 * 2**20
"""Total size of the files that come back from one task, at most."""
PLACE = "/var/tmp"  # noqa: S108 on a disk; TMPDIR names another
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that the command gets, too, as it is in our process group: it decides what to do."""
NEW = 60.0
"""Seconds after which a copy that nobody holds was left behind."""


def main() -> None:
    result, patterns, *command = sys.argv[1:]
    for number in PASSED_ON:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the command would inherit
    try:
        setup = json.loads((SESSION / "setup.json").read_text())
        with _copy() as folder:
            extract(SESSION / setup["code"], folder)
            inside, wanted = folder / setup["inside"], json.loads(patterns)
            sent = _seen(inside) if wanted else {}
            status = _run(command, inside)
            if wanted:
                status = status or _pack(inside, wanted, sent, SESSION / "results" / result)
    except (OSError, ValueError, tarfile.TarError) as error:
        status = _fail(f"the folder that was sent cannot be used: {error}")
    if status < 0:
        if -status in PASSED_ON:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


@contextlib.contextmanager
def _copy() -> Iterator[Path]:
    """Make a folder that is removed at the end, and remove those that were left behind."""
    place, prefix = Path(os.environ.get("TMPDIR") or PLACE).absolute(), f"fairlead-{os.getuid()}-"
    for old in place.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another person's, or in use
            if time.time() - old.stat().st_ctime > NEW and old.stat().st_uid == os.getuid():
                os.close(_hold(old))
                shutil.rmtree(old)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    holds = _hold(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(holds)


def _hold(folder: Path) -> int:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def extract(archive: Path, folder: Path) -> None:
    """Unpack an archive of the person's own."""
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "tar_filter"):
            packed.extraction_filter = tarfile.tar_filter
        packed.extractall(folder)  # noqa: S202 the person's own, as the person


def _run(command: list[str], folder: Path) -> int:
    """Run the command and return its exit status, negative for a signal."""
    os.chdir(folder)  # where `fairlead exec` runs, too
    try:
        return subprocess.Popen(command, env={**os.environ, "PWD": str(folder)}).wait()
    except OSError as error:
        _fail(f"cannot run {command[0]!r} in the folder that was sent: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _seen(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return what changes with each file that changes, by name."""
    found: dict[str, tuple[int, ...]] = {}
    for path in (Path(at, name) for at, _, names in os.walk(folder) for name in names):
        with contextlib.suppress(OSError):  # a process that was left behind removed it
            there = path.lstat()
            if not stat.S_ISLNK(there.st_mode):
                found[str(path.relative_to(folder))] = (there.st_size, there.st_ino, there.st_mtime_ns, there.st_ctime_ns)
    return found


def _pack(folder: Path, patterns: list[str], sent: dict[str, tuple[int, ...]], result: Path) -> int:
    """Pack the files that match and are new or changed; links are left out. Return 1 if they are too large, else 0."""
    now = _seen(folder)
    names = [name for name, seen in now.items() if is_wanted(name, patterns) and sent.get(name) != seen]
    size = sum(now[name][0] for name in names)
    if size > MOST_BYTES:
        return _fail(f"the files to fetch are {size >> 20} MiB, and at most {MOST_BYTES >> 20} MiB can be: fetch fewer")
    fresh = result.with_name(f"{result.name}.new")
    with tarfile.open(fresh, "w:gz", compresslevel=1) as packed:
        for name in names:
            try:
                fd = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:  # a socket, or unreadable
                _fail(f"{name} is not fetched: {error.strerror}")
                continue
            with os.fdopen(fd, "rb") as file:
                there, found = os.fstat(fd), tarfile.TarInfo(name)
                if stat.S_ISREG(there.st_mode):
                    found.size, found.mtime = there.st_size, int(there.st_mtime)
                    found.mode = 0o755 if there.st_mode & stat.S_IXUSR else 0o644
                    packed.addfile(found, file)
                else:
                    _fail(f"{name} is not fetched: it is not a plain file")
    fresh.rename(result)
    return 0


def is_wanted(name: str, patterns: list[str]) -> bool:
    """Return whether a path matches a pattern, or is below a folder that one names."""
    return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern.rstrip('/')}/") for pattern in patterns)


def _fail(what: str) -> int:
    sys.stderr.write(f"fairlead: {what}\n")
    return 1


if __name__ == "__main__":
    main()
