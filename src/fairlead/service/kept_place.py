"""Where output is kept: a folder here, or what fsspec opens.

A folder here is written as one in which others may try to have a hand: nobody else may change what is on the way to it, and no
link below it is followed. All that is made in it is for the scheduler's account alone.
"""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.data_folder import check_folder, open_plain
from fairlead.scheduler.admission import Refused

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRONG = (PermissionError, NotADirectoryError, FileExistsError)
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

ALLOWED = 60.0
"""Seconds for what is small; and for a sign of life."""
SLOWEST = 2**17
"""Bytes a second at which a storage is taken for away."""


class Place(NamedTuple):
    """A URL, what opens it, and the path there."""

    url: str
    files: Any
    base: str

    @property
    def folder(self) -> Path | None:
        """The folder here that it is; None where it is none."""
        from fsspec.implementations.local import LocalFileSystem

        return Path(self.base) if isinstance(self.files, LocalFileSystem) else None


def open_place(url: str) -> Place:
    """What a URL names, reached anew. Raises Refused where nothing could ever write there, and what fsspec raises."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise Refused(f"output = {url!r}: fsspec is not installed here: pip install 'fairlead[output]'") from None
    try:
        files, base = url_to_fs(url, skip_instance_cache=True)  # one that lost its line stays so
    except (ImportError, ValueError) as error:
        raise Refused(f"output = {url!r}: {error}") from None
    return Place(url.rstrip("/"), files, base.rstrip("/"))


def check_place(place: Place) -> None:
    """Make the folder, if it is one here; else look there. Raises what fsspec raises where it does not answer.

    Raises Refused for a folder that cannot be made before somebody changes something, as one above it is open to others.
    """
    if place.folder is None:
        with suppress(
            FileNotFoundError, PermissionError
        ):  # it answers, and is asked for no more than to take something
            place.files.info(place.base)
        return
    try:
        _make_folder(place.folder)
    except OSError as error:
        if isinstance(error, _WRONG) or error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise Refused(f"output = {place.url!r}: {error}") from None
        raise


def put(
    place: Place, names: tuple[str, ...], pieces: Iterator[bytes], home: Path, allow: Callable[[float], None]
) -> bool:
    """Write a file of these pieces, whole or not at all, and none where there are no pieces; whether there were.

    Parameters
    ----------
    place : Place
    names : tuple of str
        Those of the folders below the place, and of the file.
    pieces : iterator of bytes
        The first is kept in memory.
    home : Path
        A folder with room for what is larger than that, until it is there.
    allow : callable
        Told for how many seconds more this may go on, as it is known how much is to be sent.
    """
    first = next(pieces, None)
    if first is None:
        return False
    second = next(pieces, None)
    pieces = chain([first], [] if second is None else [second], pieces)
    if place.folder is not None:
        _put_here(place.folder, names, pieces)
        return True
    *folders, name = names
    folder = "/".join([place.base, *folders])
    place.files.makedirs(folder, exist_ok=True)
    if second is None:
        place.files.pipe_file(f"{folder}/{name}", first)
        return True
    with tempfile.TemporaryFile(dir=home, buffering=0) as here:  # it has no name: nothing is left of it after a crash
        _write(here, pieces, f"{home}: the disk is full: make room in the scheduler's data folder")
        allow(ALLOWED + here.tell() / SLOWEST)
        # By the number of this process, as some of fsspec's have other programs send it.
        place.files.put_file(f"/proc/{os.getpid()}/fd/{here.fileno()}", f"{folder}/{name}")
    return True


def read(place: Place, names: tuple[str, ...], offset: int, most: int) -> bytes:
    """A piece of a file. Raises FileNotFoundError where there is none, and what fsspec raises."""
    if place.folder is not None:
        with open_plain(place.folder.joinpath(*names), os.geteuid()) as file:
            file.seek(offset)
            return file.read(most)
    path = "/".join([place.base, *names])
    place.files.invalidate_cache(path)
    end = min(place.files.size(path), offset + most)
    return bytes(place.files.cat_file(path, start=offset, end=end)) if offset < end else b""


def _make_folder(path: Path) -> Path:
    """Make a folder and those above it; returns it without links.

    Raises PermissionError where on the way to it there is a folder in which somebody else may change what is next, or a link
    of somebody else.
    """
    here = Path(path.anchor)
    for part in path.parts[1:]:
        check_folder(here, path)
        here = here.parent if part == ".." else here / part
        if here.is_symlink():
            here.stat()  # of a link to nowhere, or to itself, nothing can be made
            if (uid := here.lstat().st_uid) not in (0, os.geteuid()):
                raise PermissionError(f"{path}: {here} is a link of uid {uid}, who may change it: use another")
            here = _make_folder(here.parent / here.readlink())
        else:
            here.mkdir(mode=0o700, exist_ok=True)
    check_folder(here, path)
    return here


def _put_here(base: Path, names: tuple[str, ...], pieces: Iterator[bytes]) -> None:
    *folders, name = names
    with ExitStack() as closing:
        folder = os.open(_make_folder(base), _FOLDER)
        closing.callback(os.close, folder)
        path = base
        for each in folders:
            path /= each
            folder = _open_own(folder, each, path)
            closing.callback(os.close, folder)
        fresh = f"{name}.new"
        with suppress(FileNotFoundError):  # of one that was killed
            os.unlink(fresh, dir_fd=folder)
        with os.fdopen(os.open(fresh, _FRESH, 0o600, dir_fd=folder), "wb", buffering=0) as file:
            _write(file, pieces, f"{path}: the disk is full: make room")
            os.fsync(file.fileno())
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)


def _write(file: Any, pieces: Iterator[bytes], full: str) -> None:
    """Write to a file without a buffer; `full` is what is said where the disk is full."""
    for piece in pieces:
        left = memoryview(piece)
        while left:
            try:
                left = left[file.write(left) :]
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise OSError(full) from None


def _open_own(above: int, name: str, path: Path) -> int:
    """Open a folder within an open one, made where there is none; refused if it is a link or others have a hand in it."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above)
    try:
        folder = os.open(name, _FOLDER, dir_fd=above)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise NotADirectoryError(f"{path}: is a link, or no folder: move it away") from None
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(folder)
        raise PermissionError(f"{path}: belongs to somebody else, or others may write to it: move it away")
    return folder
