"""The storage for output: a local folder, or whatever fsspec opens.

A local folder may be exposed to other users: nobody else may be able to change the path to it, and no link below it is followed.
Everything created in it is for the scheduler's account only.

A storage may never answer, and a thread cannot be stopped. So each call has a deadline and a daemon thread of its own. A call
that does not return is abandoned, and the number of threads is bounded.
"""

import errno
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.data_folder import check_folder, open_plain
from fairlead.failure import failing
from fairlead.scheduler.admission import Refused

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRONG = (PermissionError, NotADirectoryError, FileExistsError)
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

ROOM_BYTES = 2**20
"""A disk with less than this free is full."""
CALL_SECONDS = 60.0
"""For a small request, and between two signs of progress."""
SLOWEST_BYTES_PER_SECOND = 2**17
"""A slower storage counts as unavailable."""
FREE_THREAD_SECONDS = 1.0
"""How long to wait for room if all threads are busy."""


class Full(OSError):
    """A local disk was full while an output was written; what was written of it is removed.

    is_full : True if it is still full without it; else only this output is too large
    """

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: the disk is full: make room")
        found = os.statvfs(path)
        self.is_full = found.f_bavail * found.f_frsize < ROOM_BYTES


class Storage(NamedTuple):
    """A URL, its file system, and the path in it."""

    url: str
    files: Any
    base: str

    @property
    def folder(self) -> Path | None:
        """The local folder; None if it is not local."""
        from fsspec.implementations.local import LocalFileSystem

        return Path(self.base) if isinstance(self.files, LocalFileSystem) else None


def open_storage(url: str) -> Storage:
    """Open a URL with a new connection. Raises Refused if it can never be written to, and what fsspec raises."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise Refused(f"output = {url!r}: fsspec is not installed here: pip install 'fairlead[output]'") from None
    with failing(f"output = {url!r}: ", ImportError, ValueError, to=Refused):
        files, base = url_to_fs(url, skip_instance_cache=True)  # a cached instance may have lost its connection
    return Storage(url.rstrip("/"), files, base.rstrip("/"))


def check_storage(storage: Storage) -> None:
    """Create a local folder, or check that a remote storage answers. Raises what fsspec raises.

    Raises Refused for a folder that cannot be created unless somebody intervenes, such as one below a folder open to others.
    """
    if storage.folder is None:
        with suppress(FileNotFoundError, PermissionError):  # it answers; only writing is required
            storage.files.info(storage.base)
        return
    try:
        _make_folder(storage.folder)
    except OSError as error:
        if isinstance(error, _WRONG) or error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise Refused(f"output = {storage.url!r}: {error}") from None
        raise


def put(
    storage: Storage, names: tuple[str, ...], pieces: Iterator[bytes | int], home: Path, allow: Callable[[float], None]
) -> bool:
    """Write a file atomically, unless it would be empty; return True if there was anything to write.

    names : folders below the storage, and the file name
    pieces : the first is kept in memory. An int is the length of a hole.
    home : a folder for larger files until they are sent
    allow : extends the deadline by these seconds once the size is known

    Raises
    ------
    Full
        A local disk is full: the storage, or `home`.
    """
    first = next(pieces, None)
    if first is None:
        return False
    second = next(pieces, None)
    pieces = chain([first], [] if second is None else [second], pieces)
    if storage.folder is not None:
        _put_here(storage.folder, names, pieces)
        return True
    *folders, name = names
    folder = "/".join([storage.base, *folders])
    storage.files.makedirs(folder, exist_ok=True)
    if second is None and isinstance(first, bytes):
        storage.files.pipe_file(f"{folder}/{name}", first)
        return True
    with _unless_full(home), tempfile.TemporaryFile(dir=home, buffering=0) as here:  # without a name: a crash leaves nothing
        _write(here, pieces)
        allow(CALL_SECONDS + here.tell() / SLOWEST_BYTES_PER_SECOND)
        # With this process's number, since some file systems let another program send it.
        try:
            storage.files.put_file(f"/proc/{os.getpid()}/fd/{here.fileno()}", f"{folder}/{name}")
        except BaseException:
            with suppress(Exception):  # fsspec raises many kinds
                storage.files.rm_file(f"{folder}/{name}")  # there may be a part of it
            raise
    return True


def read(storage: Storage, names: tuple[str, ...], offset: int, most: int) -> bytes:
    """Return a piece of a file. Raises FileNotFoundError, and what fsspec raises."""
    if storage.folder is not None:
        with open_plain(storage.folder.joinpath(*names), os.geteuid()) as file:
            file.seek(offset)
            return file.read(most)
    path = "/".join([storage.base, *names])
    storage.files.invalidate_cache(path)
    end = min(storage.files.size(path), offset + most)
    return bytes(storage.files.cat_file(path, start=offset, end=end)) if offset < end else b""


def _make_folder(path: Path) -> Path:
    """Create a folder and its parents; return its path without links.

    Raises PermissionError if another user can change a folder on the path or owns a link on it.
    """
    here = Path(path.anchor)
    for part in path.parts[1:]:
        check_folder(here, path)
        here = here.parent if part == ".." else here / part
        if here.is_symlink():
            here.stat()  # fails for a broken or circular link
            if (uid := here.lstat().st_uid) not in (0, os.geteuid()):
                raise PermissionError(f"{path}: {here} is a link of uid {uid}, who could change it: use another path")
            here = _make_folder(here.parent / here.readlink())
        else:
            here.mkdir(mode=0o700, exist_ok=True)
    check_folder(here, path)
    return here


def _put_here(base: Path, names: tuple[str, ...], pieces: Iterator[bytes | int]) -> None:
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
        with suppress(FileNotFoundError):  # left by a scheduler that was killed
            os.unlink(fresh, dir_fd=folder)
        with _unless_full(path):
            try:
                with os.fdopen(os.open(fresh, _FRESH, 0o600, dir_fd=folder), "wb", buffering=0) as file:
                    _write(file, pieces)
                    os.fsync(file.fileno())
                os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(fresh, dir_fd=folder)
                raise


@contextmanager
def _unless_full(path: Path) -> Iterator[None]:
    """Raise Full for a full disk; what was written there has been removed by then."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise Full(path) from None


def _write(file: Any, pieces: Iterator[bytes | int]) -> None:
    """Write to an unbuffered file; holes stay holes."""
    for piece in pieces:
        if isinstance(piece, int):
            file.seek(piece, os.SEEK_CUR)
            continue
        left = memoryview(piece)
        while left:
            left = left[file.write(left) :]
    file.truncate()  # it may end with a hole


def _open_own(above: int, name: str, path: Path) -> int:
    """Open a folder inside an open one, creating it if missing. Refuses links, and folders that others can write to."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above)
    try:
        folder = os.open(name, _FOLDER, dir_fd=above)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise NotADirectoryError(f"{path}: is a link or not a folder: move it away") from None
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(folder)
        raise PermissionError(f"{path}: belongs to somebody else, or others may write to it: move it away")
    return folder


class _Call:
    """A call, its result, and its deadline."""

    def __init__(self, what: Callable[[], Any], seconds: float) -> None:
        self.what, self.answer = what, Future[Any]()
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        self.seconds, self.until = seconds, time.monotonic() + seconds


class BoundedCalls:
    """Makes at most `most` calls at the same time, each in a thread of its own. Thread-safe."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._room, self._here = threading.Semaphore(most), threading.local()

    def call(self, seconds: float, what: Callable[[], Any]) -> Any:
        """Call a function and return its result. Raises what it raises, and TimeoutError after `seconds`."""
        if not self._room.acquire(timeout=FREE_THREAD_SECONDS):
            raise TimeoutError(f"it has not answered the last {self._most} calls yet")
        asked = _Call(what, seconds)
        try:
            threading.Thread(target=self._make, args=(asked,), name=self._name, daemon=True).start()
        except RuntimeError:  # no thread can be started
            self._room.release()
            raise
        while not asked.answer.done():
            left = asked.until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"it does not answer within {asked.seconds:.0f} s")
            wait([asked.answer], left)
        return asked.answer.result()

    def allow(self, seconds: float) -> None:
        """From within a call: move its deadline to `seconds` from now."""
        if (asked := getattr(self._here, "asked", None)) is not None:
            asked.allow(seconds)

    def _make(self, asked: _Call) -> None:
        self._here.asked = asked
        try:
            asked.answer.set_result(asked.what())
        except BaseException as error:
            asked.answer.set_exception(error)
        finally:
            self._room.release()
