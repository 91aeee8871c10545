"""The data folder of a scheduler: its journal, socket, tokens and task output.

It is `$FAIRLEAD_HOME`, or the user's data folder. Only its owner can read it.
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

from fairlead.descriptors import opened

SYSTEM_HOME = Path("/var/lib/fairlead")
SYSTEM_SOCKET = Path("/run/fairlead/socket")
"""Data folder and socket of the machine-wide scheduler."""


def home_folder() -> Path:
    """Return the default data folder."""
    named = os.environ.get("FAIRLEAD_HOME")
    if named:
        return Path(named).absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("fairlead"))


def socket_of(home: Path) -> Path:
    """Return the socket of a data folder's scheduler."""
    return SYSTEM_SOCKET if home == SYSTEM_HOME else home / "socket"


@contextmanager
def starting(socket: Path, shared: bool) -> Iterator[Callable[[], None]]:
    """Mark that a scheduler is starting at a socket; yield the function that removes the mark early.

    The mark is a lock on a file beside the socket, so it ends with the process. Failure to set it is ignored.
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
    with suppress(OSError):  # it is in use by now
        folder.rmdir()


def mark_of(socket: Path) -> Path:
    """Return the file that is locked while a scheduler is starting at a socket."""
    return socket.with_name(f"{socket.name}.starting")


def make_home(home: Path) -> None:
    """Make the data folder, private to its owner. Raises OSError, also if another user could replace it or has written to it.

    A user who may change a folder above it could replace it, and a foreign file in it would pass for the scheduler's own.
    """
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(f"{home}: it or a parent is not a folder: name another with --home") from None
    except OSError as error:
        raise PermissionError(f"{home}: cannot be made: {error.strerror}: name another folder with --home") from None
    me = os.geteuid()
    for link in {home, home.resolve()}:  # a link's owner may change its target
        if link.lstat().st_uid != me:
            raise PermissionError(f"{home}: belongs to uid {link.lstat().st_uid}, not to you: name another folder with --home")
    for folder in home.resolve().parents:
        check_folder(folder, home)
    home.chmod(0o700)
    for path in home.iterdir():
        if path.lstat().st_uid != me:
            message = f"{path}: belongs to uid {path.lstat().st_uid}, so this scheduler did not make it: move it away"
            raise PermissionError(message)


def check_folder(folder: Path, what: Path) -> None:
    """Raise PermissionError if a user other than root and you could replace `what` by changing `folder`."""
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"{what}: {folder} belongs to uid {found.st_uid}, who could replace it: use another")
    if found.st_mode & stat.S_ISVTX:
        return
    if found.st_mode & stat.S_IWOTH:
        raise PermissionError(f"{what}: everybody may write to {folder} and could replace it: use another")
    if found.st_mode & stat.S_IWGRP and not _is_alone(found.st_uid, found.st_gid):
        raise PermissionError(
            f"{what}: group {found.st_gid} may write to {folder} and could replace it: use another, or run chmod g-w {folder}"
        )


def _is_alone(uid: int, gid: int) -> bool:
    """Return True if a group is root's, or a user's private group: of the user's name and without other members."""
    if gid == 0:
        return True
    try:
        name, group = pwd.getpwuid(uid).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def open_private(path: Path) -> BinaryIO:
    """Open a private file for appending; create it if missing, and never follow a link."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "ab")


class NotPlain(OSError):
    """A path is no plain file, or has the wrong owner."""


def open_plain(path: Path, uid: int | None = None) -> BinaryIO:
    """Open a plain file, of this uid if given, for reading where other users may have put one.

    It never follows a link, and never waits for a writer or the holder of a lease. Raises NotPlain, OSError.
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
        raise NotPlain(f"{path}: is not a plain file" + (f" of uid {uid}" if uid is not None else ""))
    return os.fdopen(fd, "rb")


def write_private(path: Path, text: str, durable: bool = False) -> None:
    """Write a private file atomically; with `durable` it is on disk when this returns."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.rename(path)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def remove_folder(path: Path) -> None:
    """Remove a folder with untrusted content: links are not followed, and it may be nested to any depth.

    The content of subfolders is moved up, level by level, so that neither the stack nor the number of open files grows with the
    depth. Raises OSError; FileNotFoundError if it does not exist.
    """
    with opened(path, _FOLDER) as top:
        while folders := _remove_files(top):
            for name in folders:
                with opened(name, _FOLDER, dir_fd=top) as below:
                    for each in _remove_files(below):
                        os.rename(each, uuid.uuid4().hex, src_dir_fd=below, dst_dir_fd=top)
                os.rmdir(name, dir_fd=top)
    path.rmdir()


def drop_folder(path: Path, what: str, note: Callable[[str], object]) -> None:
    """Remove a folder if it is there, as :func:`remove_folder` does; `note` gets a sentence about `what` it is if that fails."""
    try:
        remove_folder(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        note(f"{what} cannot be removed: {error}: remove {path}")


def _remove_files(folder: int) -> list[str]:
    """Remove the files of an open folder; return the names of its subfolders."""
    with os.scandir(folder) as found:
        entries = list(found)
    folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in {entry.name for entry in entries} - set(folders):
        with suppress(FileNotFoundError):  # another process removed it
            os.unlink(name, dir_fd=folder)
    return folders
