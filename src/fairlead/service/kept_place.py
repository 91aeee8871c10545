"""Where output is kept: a folder here, or what fsspec opens.

A folder here is written as one in which others may try to have a hand: nobody else may change what is on the way to it, and no
link below it is followed. All that is made in it is for the scheduler's account alone.
"""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.data_folder import check_folder, open_plain
from fairlead.scheduler.admission import Refused

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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
    """What a URL names. Raises Refused where nothing could write there."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise Refused(f"output = {url!r}: fsspec is not installed here: pip install 'fairlead[output]'") from None
    try:
        files, base = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise Refused(f"output = {url!r}: {error}") from None
    return Place(url.rstrip("/"), files, base.rstrip("/"))


def make_place(place: Place) -> None:
    """Make the folder, if it is one here. Raises Refused where somebody else could put another in its place."""
    if place.folder is not None:
        try:
            _make_folder(place.folder)
        except OSError as error:
            raise Refused(f"output = {place.url!r}: {error}") from None


def put(place: Place, names: tuple[str, ...], pieces: Iterator[bytes], home: Path) -> bool:
    """Write a file of these pieces, whole or not at all, and none where there are no pieces; whether there were.

    `names` are those of the folders below the place, and of the file; `home` is a folder with room for it, until it is there.
    """
    first = next(pieces, None)
    if first is None:
        return False
    if place.folder is not None:
        _put_here(place.folder, names, chain([first], pieces))
        return True
    with tempfile.TemporaryFile(dir=home, buffering=0) as here:  # it has no name: nothing is left of it after a crash
        _write(here, chain([first], pieces), f"{home}: the disk is full: make room in the scheduler's data folder")
        *folders, name = names
        folder = "/".join([place.base, *folders])
        place.files.makedirs(folder, exist_ok=True)
        place.files.put_file(f"/proc/self/fd/{here.fileno()}", f"{folder}/{name}")
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
