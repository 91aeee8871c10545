"""The folder of one scheduler: where its journal, its socket, its tokens and its tasks' output are.

It is `$FAIRLEAD_HOME`, or the user's data folder. Everything in it belongs to its owner alone.
"""

import errno
import os
import stat
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


def make_home(home: Path) -> None:
    """Make the folder, for its owner only. Raises OSError where that cannot be, or somebody else has, or had, a hand in it.

    What others may change above it they may put in its place; what they have put in it would be taken for the scheduler's own.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
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
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(f"{what}: everybody may write to {folder}, and put another in its place: use another")


def open_private(path: Path) -> BinaryIO:
    """Open a file that only its owner reads, to add to it; made where it does not exist, and never through a link."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "ab")


class NotPlain(OSError):
    """What is there is not the plain file that it should be, or not whose it should be."""


def open_plain(path: Path, uid: int | None = None) -> BinaryIO:
    """Open a file to read, in a place where somebody else may have put one: a plain file, of this uid if one is named.

    Never through a link, and never waiting for a writer. Raises NotPlain, OSError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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
