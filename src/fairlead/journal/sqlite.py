"""What is specific to SQLite: atomic creation of its file, its settings, its errors.

WAL mode with synchronous=FULL: a commit is on disk when it returns.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fairlead.descriptors import opened
from fairlead.journal.store import Damaged, JournalError

_CONNECTED = 128
"""SQLite's UNIX_SHM_DMS: the byte of the WAL index that each connection locks."""


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def kept_of(path: Path) -> Path:
    """Return the folder of a journal's copy from before its last upgrade."""
    return path.with_name(path.name + ".before-upgrade")


def is_open(path: Path) -> bool:
    """Return whether another process has a database open, by SQLite's lock in its WAL index."""
    try:
        with opened(path.with_name(path.name + "-shm"), os.O_RDWR) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _CONNECTED)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _code(error: Exception) -> int:
    """Return SQLite's primary error code; 0 for other errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_locked(error: Exception) -> bool:
    return _code(error) == sqlite3.SQLITE_BUSY


def refusal(name: str, error: Exception) -> JournalError:
    """Return the error to raise if SQLite cannot read a journal."""
    if is_locked(error):
        return JournalError(f"{name}: another program has locked it: end that one")
    if _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY):
        if Path(name).is_dir():
            return JournalError(f"{name}: a folder is in its place: move it away, and restore a copy of the journal")
        return JournalError(f"{name}: cannot be opened: {error}: check who may write it and its folder")
    return Damaged(name, "its schema is not text" if isinstance(error, UnicodeDecodeError) else error)


def create(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Make a new journal beside its path and rename it, so that it is never half made."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(fresh)) as connection, connection:
            fill(connection)
    except sqlite3.OperationalError as error:
        fresh.unlink(missing_ok=True)
        raise JournalError(f"{path}: cannot be made: {error}: free space on its disk") from None
    fresh.rename(path)


def connect(path: Path) -> sqlite3.Connection:
    """Open a journal to read and write."""
    if path.stat().st_size == 0:
        raise JournalError(f"{path}: the journal is empty: restore a copy of it, or move it away to start afresh")
    try:
        connection = sqlite3.connect(path, timeout=5, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # sqlite3 may fail to decode its own message
        raise refusal(str(path), error) from None
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open the current content of a journal, which may be in use; later writes are not seen."""
    if not path.is_file():
        raise JournalError(f"{path}: there is no journal: name the file `journal.db` of a data folder")
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if _code(error) == sqlite3.SQLITE_NOTADB:
            raise JournalError(f"{path}: is not a journal: {error}") from None
        raise refusal(str(path), error) from None
    return connection


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that SQLite itself finds damaged or truncated."""
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise Damaged(str(path), str(verdict).splitlines()[-1])
    log = log_of(path)
    if not (log.exists() and log.stat().st_size):
        pages, page = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        if path.stat().st_size != pages * page:
            raise Damaged(str(path), "it is truncated")
