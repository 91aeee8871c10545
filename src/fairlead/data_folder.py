"""The folder of one scheduler: where its journal, its socket, its tokens and its tasks' output are.

It is `$FAIRLEAD_HOME`, or the user's data folder. Everything in it belongs to its owner alone.
"""

import errno
import fcntl
import grp
import os
import pwd
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

SYSTEM_HOME = Path("/var/lib/fairlead")
SYSTEM_SOCKET = Path("/run/fairlead/socket")
"""Where the scheduler for all of a machine has its data, and where it answers."""


def home_folder() -> Path:
    """The folder that is used unless another is named."""
    named = os.environ.get("FAIRLEAD_HOME")
    if named:
        return Path(named).absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("fairlead"))


def socket_of(home: Path) -> Path:
    """Where the scheduler of a folder answers."""
    return SYSTEM_SOCKET if home == SYSTEM_HOME else home / "socket"


@contextmanager
def starting(socket: Path, shared: bool) -> Iterator[Callable[[], None]]:
    """Let whoever asks meanwhile know that a scheduler starts which is to answer there; what is given ends that sooner.

    It is a lock on a file beside the socket, so that nothing of it outlives the process. Where none can be, nobody is told.
    """
    mark, is_new = mark_of(socket), not socket.parent.exists()
    with ExitStack() as ending:
        with suppress(OSError):
            mark.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if shared else 0o700)
            if is_new:
                ending.callback(_remove_empty, mark.parent)
            fd = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            ending.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ending.callback(mark.unlink, missing_ok=True)
        yield ending.close


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it is of use by now
        folder.rmdir()


def mark_of(socket: Path) -> Path:
    """What is locked while a scheduler starts that is to answer there."""
    return socket.with_name(f"{socket.name}.starting")


def make_home(home: Path) -> None:
    """Make the folder, for its owner only. Raises OSError where that cannot be, or somebody else has, or had, a hand in it.

    What others may change above it they may put in its place; what they have put in it would be taken for the scheduler's own.
    """
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(
            f"{home}: it, or what it is to be in, is no folder: name another with --home"
        ) from None
    me = os.geteuid()
    for link in {home, home.resolve()}:  # a link is its owner's to change
        if link.lstat().st_uid != me:
            raise PermissionError(
                f"{home}: belongs to uid {link.lstat().st_uid}, not to you: name another folder with --home"
            )
    for folder in home.resolve().parents:
        check_folder(folder, home)
    home.chmod(0o700)
    for path in home.iterdir():
        if path.lstat().st_uid != me:
            raise PermissionError(
                f"{path}: belongs to uid {path.lstat().st_uid}, and was not made by this scheduler: move it away"
            )


def check_folder(folder: Path, what: Path) -> None:
    """Raises PermissionError for a folder in which somebody else, who is not root, may put another thing in the place of one."""
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(
            f"{what}: {folder} belongs to uid {found.st_uid}, who may put another in its place: use another"
        )
    if found.st_mode & stat.S_ISVTX:
        return
    if found.st_mode & stat.S_IWOTH:
        raise PermissionError(f"{what}: everybody may write to {folder}, and put another in its place: use another")
    if found.st_mode & stat.S_IWGRP and not _is_alone(found.st_uid, found.st_gid):
        raise PermissionError(
            f"{what}: group {found.st_gid} may write to {folder}, and put another in its place: use another, "
            f"or take that away: chmod g-w {folder}"
        )


def _is_alone(uid: int, gid: int) -> bool:
    """Whether a group is root's, or the private one of a person, which has their name and nobody else in it."""
    if gid == 0:
        return True
    try:
        name, group = pwd.getpwuid(uid).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def open_private(path: Path) -> BinaryIO:
    """Open a file that only its owner reads, to add to it; made where it does not exist, and never through a link."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "ab")


class NotPlain(OSError):
    """What is there is not the plain file that it should be, or not whose it should be."""


def open_plain(path: Path, uid: int | None = None) -> BinaryIO:
    """Open a file to read, in a place where somebody else may have put one: a plain file, of this uid if one is named.

    Never through a link, and never waiting for a writer or for who has a lease of it. Raises NotPlain, OSError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except BlockingIOError:
        raise NotPlain(f"{path}: a process has a lease of it") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPlain(f"{path}: is a link") from None
        raise
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or uid not in (None, found.st_uid):
        os.close(fd)
        raise NotPlain(f"{path}: is no plain file" + (f" of uid {uid}" if uid is not None else ""))
    return os.fdopen(fd, "rb")


def write_private(path: Path, text: str, durable: bool = False) -> None:
    """Write a file that only its owner reads, whole or not at all; `durable` has it on the disk when this returns."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.rename(path)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it, which may be a trap: links are not followed, and it may be nested to any depth.

    What is below its folders is moved up into it, one level after another, so that neither the stack nor the open files grow
    with the depth. Raises OSError, FileNotFoundError where there is none.
    """
    top = os.open(path, _FOLDER)
    try:
        while folders := _remove_files(top):
            for name in folders:
                below = os.open(name, _FOLDER, dir_fd=top)
                try:
                    for each in _remove_files(below):
                        os.rename(each, uuid.uuid4().hex, src_dir_fd=below, dst_dir_fd=top)
                finally:
                    os.close(below)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    path.rmdir()


def _remove_files(folder: int) -> list[str]:
    """Remove what is no folder from an open one; returns the names of the folders."""
    with os.scandir(folder) as found:
        entries = list(found)
    folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in {entry.name for entry in entries} - set(folders):
        with suppress(FileNotFoundError):  # somebody else removes it too
            os.unlink(name, dir_fd=folder)
    return folders
