"""Fetches what leased workers need, and folders that were sent, to a machine that does not see the scheduler's files, in pieces.

A session has the same folder here as there: `setup.json`, the packed code of its program if sent, and `results`, where what comes
back from sent folders is read from. An empty file JOB.INDEX.NUMBER marks each task, so that a supervisor that takes over finds
there which ends are its own to report. Packed code is named by its hash and kept for a while
after its session, for the next one with the same code. Standard library only.
"""

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fairlead.calls.payloads import CODE, RESULTS, SETUP
from fairlead.data_folder import NotPlain, open_plain, remove_folder
from fairlead.engines.local.messages import Call, Collect, Command, Piece, Start, Task

RETRY_AFTER = 2.0
"""Seconds after which a missing piece is requested again."""
MOST_AT_ONCE = 16
"""Files fetched at once."""
KEEP_FOR = 3600.0
"""Seconds that unused packed code is kept."""
MOST_OF_ONE, MOST_OF_ALL = 2 * 2**30, 16 * 2**30
"""Bytes of packed code kept per person and in total; the scheduler bounds the code in use alike."""
CHECK_EVERY = 60.0


class SessionFile(NamedTuple):
    """A file of a session: its name, and -1, for which older schedulers knew the index of a call in it."""

    session: str
    name: str
    at: int = -1


class _Part:
    """What arrived of a file."""

    def __init__(self, path: Path, uid: int) -> None:
        self.path, self.uid = path, uid
        self.size, self.asked_at = 0, -RETRY_AFTER
        self.hash = hashlib.sha256()


class FetchedSessions:
    """The sessions fetched to this node.

    node : the node's folder: sessions are in its folder `fetched`, packed code in `archives`
    request : requests a piece: called with the fields of :class:`SessionFile` and ``offset``
    """

    def __init__(self, node: Path, request: Callable[..., None]) -> None:
        self._sessions, self._archives, self._request = node / "fetched", node / "archives", request
        self._parts: dict[SessionFile, _Part] = {}
        self._absent: set[SessionFile] = set()
        self._code: dict[str, str] = {}  # by session: name of its packed code; empty for none
        self._of: dict[Task, str] = {}
        self._checked_at = -CHECK_EVERY
        for path in self._sessions.glob("*/*.*.*"):
            with contextlib.suppress(ValueError):  # setup.json, or a partial file
                job, index, number = map(int, path.name.split("."))
                self._of[job, index, number] = path.parent.name

    def sessions(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self._sessions))
        return []

    def session_of(self, task: Task) -> str:
        """Return the session of a fetched call until its end is acknowledged; empty for any other task."""
        return self._of.get(task, "")

    def local(self, task: Task, start: Start) -> Start | None:
        """Return the start of a call whose files are here; None while they are on their way.

        Raises OSError if the scheduler does not have them (the session was closed), or if the disk is full.
        """
        work, person = start.work, start.person
        call = work if isinstance(work, Call) else work.sent
        assert call is not None
        folder, uid = self._sessions / call.session, person.uid if person is not None else os.geteuid()
        self._of[task] = call.session
        name = ".".join(map(str, task))
        if not (folder / SETUP).exists():
            make_session(folder, uid)
            self._fetch(SessionFile(call.session, SETUP), folder / SETUP, uid)
            return None
        (folder / name).touch()
        if not self._has_code(call.session, folder, uid):
            return None
        here = call._replace(session=str(folder))
        return start._replace(work=here if isinstance(work, Call) else work._replace(sent=here))

    def _has_code(self, session: str, folder: Path, uid: int) -> bool:
        """Return whether the packed code of a session is here or not needed."""
        if session not in self._code:
            try:
                self._code[session] = str(dict(json.loads((folder / SETUP).read_text())).get("code", ""))
            except (ValueError, TypeError):
                raise OSError(errno.EINVAL, f"{folder / SETUP} cannot be read") from None
        name = self._code[session]
        if not name or (folder / name).exists():
            return True
        kept = self._archives / f"{uid}-{name}"
        if not kept.exists():
            self._archives.mkdir(mode=0o700, exist_ok=True)
            self._fetch(SessionFile(session, name), kept, uid)
            return False
        os.utime(kept)
        os.link(kept, folder / name)
        return True

    def _fetch(self, wanted: SessionFile, path: Path, uid: int) -> None:
        """Fetch a file. Raises FileNotFoundError if the scheduler reported it missing."""
        if wanted in self._absent:
            self._absent.discard(wanted)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), wanted.name)
        if wanted not in self._parts:
            if len(self._parts) >= MOST_AT_ONCE:
                return
            self._parts[wanted] = _Part(path.with_name(f"{path.name}.part"), uid)
            self._parts[wanted].path.unlink(missing_ok=True)
        part = self._parts[wanted]
        if time.monotonic() - part.asked_at >= RETRY_AFTER:
            self._ask(wanted, part)

    def _ask(self, wanted: SessionFile, part: _Part) -> None:
        part.asked_at = time.monotonic()
        self._request(**wanted._asdict(), offset=part.size)

    def take(self, piece: Piece) -> bool:
        """Store a requested piece and request the next. Return True if it was the last, so that calls may start or fail.

        A file that cannot be written (full disk) is fetched again when next needed.
        """
        wanted = SessionFile(piece.session, piece.name, piece.at)
        part = self._parts.get(wanted)
        if part is None or piece.offset != part.size:
            return False
        if piece.data is None:
            self._drop(wanted)
            self._absent.add(wanted)
            return True
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(part.path, flags, 0o600), "wb") as file:
                file.write(piece.data)
        except OSError:
            self._drop(wanted)
            raise
        part.size += len(piece.data)
        part.hash.update(piece.data)
        if not piece.last:
            self._ask(wanted, part)
            return False
        if wanted.name != SETUP and part.hash.hexdigest()[: len(wanted.name)] != wanted.name:
            self._drop(wanted)  # it changed there, so its name is no longer its hash
            self._absent.add(wanted)
        else:
            part.path.chmod(0o444)  # readable for the session's workers
            part.path.rename(part.path.with_suffix(""))
            del self._parts[wanted]
            if part.path.parent == self._archives:
                self._trim(part.uid)
        return True

    def _drop(self, wanted: SessionFile) -> None:
        with contextlib.suppress(OSError):
            self._parts[wanted].path.unlink()
        del self._parts[wanted]

    def read_result(self, asked: Collect) -> bytes | None:
        """Return a piece of a call's result; None if there is no valid result."""
        folder = self._sessions / asked.session / RESULTS
        try:
            with open_plain(folder / f"{asked.job}.{asked.task}", folder.lstat().st_uid) as file:
                file.seek(asked.offset)
                return file.read(asked.most)
        except (FileNotFoundError, NotADirectoryError, NotPlain):
            return None

    def acknowledge(self, task: Task) -> None:
        """Forget a call whose end is in the journal, with its result unless another attempt may have written that."""
        session = self._of.pop(task, None)
        if session is None:
            return
        folder, (job, index, _) = self._sessions / session, task
        gone = [folder / ".".join(map(str, task))]
        if not any(each[:2] == (job, index) for each in self._of):
            gone.append(folder / RESULTS / f"{job}.{index}")
        for path in gone:
            with contextlib.suppress(OSError):  # missing, or not a file
                path.unlink()

    def close(self, session: str) -> None:
        """Remove a session's files here; its workers notice and end. Raises OSError on failure."""
        for wanted in [each for each in self._parts if each.session == session]:
            self._drop(wanted)
        self._absent = {each for each in self._absent if each.session != session}
        self._code.pop(session, None)
        with contextlib.suppress(FileNotFoundError):
            remove_folder(self._sessions / session)

    def trim_code(self) -> None:
        """Remove unused packed code from time to time."""
        if time.monotonic() - self._checked_at < CHECK_EVERY:
            return
        self._checked_at = time.monotonic()
        with contextlib.suppress(FileNotFoundError):
            for kept in os.scandir(self._archives):
                found = kept.stat(follow_symlinks=False)
                if found.st_nlink == 1 and time.time() - found.st_mtime > KEEP_FOR:
                    os.unlink(kept.path)

    def _trim(self, uid: int) -> None:
        """Remove the oldest unused packed code until the rest is within its bounds: first this person's, then anyone's."""
        kept = [(each, each.stat(follow_symlinks=False)) for each in os.scandir(self._archives)]
        kept = sorted(((e, s) for e, s in kept if not e.name.endswith(".part")), key=lambda each: each[1].st_mtime)
        for most, of in ((MOST_OF_ONE, f"{uid}-"), (MOST_OF_ALL, "")):
            there = [(entry, found) for entry, found in kept if entry.name.startswith(of)]
            size = sum(found.st_size for _, found in there)
            for each in there[:-1]:
                entry, found = each
                if size > most and found.st_nlink == 1:
                    os.unlink(entry.path)
                    kept.remove(each)
                    size -= found.st_size


def session_to_fetch(work: Command | Call) -> str:
    """Return the session of a call or a sent folder to be fetched; empty for any other work."""
    call = work if isinstance(work, Call) else work.sent
    return call.session if call is not None and call.fetched else ""


def make_session(folder: Path, uid: int, gid: int = -1) -> None:
    """Make the folder of a session, and in it those that belong to its person."""
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    for each, mode in ((folder, 0o755), (folder / RESULTS, 0o700), (folder / CODE, 0o700)):
        each.mkdir(exist_ok=True)
        each.chmod(mode)  # despite the umask
        if each != folder and uid != os.geteuid():
            os.chown(each, uid, gid)
