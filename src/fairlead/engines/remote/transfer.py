"""Transfers sent folders and code to, and what comes back from, machines that do not see the scheduler's files.

Both go in pieces, each requested after the one before, so that nothing piles up in memory and large files delay nothing. A
session's folder belongs in part to a person, so files in it are opened defensively.
"""

import base64
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fairlead.calls.payloads import LARGEST_RESULT, RESULTS, SETUP, result_name
from fairlead.data_folder import NotPlain, open_plain
from fairlead.descriptors import opened
from fairlead.engines.local.instructions import message
from fairlead.engines.local.reports import Ended, PieceRequest

log = logging.getLogger("fairlead")

PIECE = 2**18
"""Bytes per piece."""
THREADS = 4


def read_requested(folder: Path, wanted: PieceRequest) -> tuple[bytes | None, bool]:
    """Read a requested piece of a session's file. Return it and True if it is the last; None if there is no such file.

    `folder` contains the sessions.
    """
    session = folder / wanted.session
    try:
        uid = os.geteuid() if wanted.name == SETUP else (session / RESULTS).lstat().st_uid
        with open_plain(session / wanted.name, uid) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(wanted.offset)
            data = file.read(max(0, min(PIECE, size - wanted.offset)))
            return data, len(data) < PIECE or wanted.offset + len(data) >= size
    except (FileNotFoundError, NotPlain, ValueError):
        return None, True


class _Coming(NamedTuple):
    """A result under way: its node, its end, and the bytes received."""

    node: str
    ended: Ended
    size: int


class ResultCollector:
    """Collects results; an end is reported once its result is here. Thread-safe.

    folder : the folder of sessions
    send : sends a message to a node
    on_end : called with the node and the end, in a thread of its own, when the result is here or there is none
    """

    def __init__(self, folder: Path, send: Callable[[str, bytes], None], on_end: Callable[[str, Ended], None]) -> None:
        self._folder, self._send, self._on_end = folder, send, on_end
        self._lock = threading.Lock()
        self._coming: dict[int, _Coming] = {}  # by the number of the last request
        self._asked = -1  # odd numbers only: even ones belong to reads of output
        self._threads = ThreadPoolExecutor(THREADS, "calls")

    def answer(self, node: str, wanted: PieceRequest) -> None:
        """Send a node the piece that it requested."""
        self._threads.submit(self._answer, node, wanted)

    def _answer(self, node: str, wanted: PieceRequest) -> None:
        try:
            data, last = read_requested(self._folder, wanted)
        except OSError as error:  # it requests it again
            log.warning("files for calls of session %s cannot be read: %s", wanted.session, error)
            return
        asked = {"session": wanted.session, "name": wanted.name, "at": wanted.at, "offset": wanted.offset}
        text = None if data is None else base64.b64encode(data).decode()
        self._send(node, message("piece", **asked, data=text, last=last))

    def begin(self, node: str, ended: Ended) -> None:
        """Collect the result of a call. Reported again, as after a reconnection, start again."""
        with self._lock:
            self._coming = {ask: each for ask, each in self._coming.items() if each.ended.task != ended.task}
        if (self._folder / ended.session / SETUP).exists():
            self._ask(_Coming(node, ended, 0))
        else:
            self._threads.submit(self._on_end, node, ended)  # the session was closed: nobody wants it

    def _ask(self, coming: _Coming) -> None:
        with self._lock:
            self._asked += 2
            ask = self._asked
            self._coming[ask] = coming
        (job, index, _), session = coming.ended.task, coming.ended.session
        asked = {"ask": ask, "session": session, "job": job, "task": index, "offset": coming.size, "most": PIECE}
        self._send(coming.node, message("collect", **asked))

    def receive(self, node: str, ask: int, data: bytes | None) -> None:
        with self._lock:
            coming = self._coming.get(ask)
            if coming is None or coming.node != node:
                return
            del self._coming[ask]
        self._threads.submit(self._take, coming, data)

    def _take(self, coming: _Coming, data: bytes | None) -> None:
        """Write a piece and request the next; report the end after the last. A result that cannot be stored counts as none."""
        job, index, number = coming.ended.task
        try:
            place = self._folder / coming.ended.session / RESULTS
            with opened(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) as folder:
                fresh = f"{job}.{index}.{number}.new"
                if data is not None:
                    _write(folder, fresh, data, coming.size)
                    if coming.size + len(data) > LARGEST_RESULT:
                        raise ValueError(f"more than {LARGEST_RESULT >> 20} MiB")
                    if len(data) == PIECE:
                        self._ask(coming._replace(size=coming.size + len(data)))
                        return
                    os.rename(fresh, result_name(job, index), src_dir_fd=folder, dst_dir_fd=folder)
        except (OSError, ValueError) as error:
            if (self._folder / coming.ended.session).exists():
                log.warning("the result of call %d.%d cannot be stored: %s", job, index, error)
        self._on_end(coming.node, coming.ended)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _write(folder: int, name: str, data: bytes, offset: int) -> None:
    """Append to a file owned by its folder's owner; make it at offset 0."""
    if offset == 0:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if offset == 0 else 0)
    fd = os.open(name, flags, 0o600, dir_fd=folder)
    with os.fdopen(fd, "wb") as file:
        whose = os.fstat(folder)
        if offset == 0 and whose.st_uid != os.geteuid():
            os.fchown(fd, whose.st_uid, whose.st_gid)
        file.seek(offset)
        file.write(data)
