"""What only SQLite needs: its file, made whole, its settings, and how a broken one shows.

WAL mode with synchronous=FULL: a commit is on the disk when it returns.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fairlead.journal.store import Damaged, JournalError

_CONNECTED = 128
"""The byte of the index of the log on which each that is connected has a lock: SQLite's UNIX_SHM_DMS."""


def log_of(path: Path) -> Path:
    """The write-ahead log of a journal."""
    return path.with_name(path.name + "-wal")


def is_open(path: Path) -> bool:
    """Whether another process is connected to a database: SQLite has a lock on a byte of its index of the log then."""
    try:
        file = os.open(path.with_name(path.name + "-shm"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _CONNECTED)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _code(error: Exception) -> int:
    """SQLite's code of an error, without the part that gives details; 0 if it is not SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_locked(error: Exception) -> bool:
    """Whether an error says that another program has a lock on the database."""
    return _code(error) == sqlite3.SQLITE_BUSY


def refusal(name: str, error: Exception) -> JournalError:
    """The error to raise where SQLite cannot read a journal."""
    if is_locked(error):
        return JournalError(f"{name}: another program has locked it: end that one")
    if _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY):
        return JournalError(f"{name}: cannot be opened: {error}: look at who may write it and its folder")
    return Damaged(name, "its schema is not text" if isinstance(error, UnicodeDecodeError) else error)


def create(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Make a new journal aside and move it into place, so that one is never found half made."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(fresh)) as connection, connection:
            fill(connection)
    except sqlite3.OperationalError as error:
        fresh.unlink(missing_ok=True)
        raise JournalError(f"{path}: cannot be made: {error}: make room on its disk") from None
    fresh.rename(path)


def connect(path: Path) -> sqlite3.Connection:
    """Open a journal to write and read it."""
    if path.stat().st_size == 0:
        raise JournalError(f"{path}: the journal is empty: restore a copy of it, or move it away to start anew")
    try:
        connection = sqlite3.connect(path, timeout=5, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # sqlite3 may fail to decode its own message
        raise refusal(str(path), error) from None
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a journal that may be in use, as it is now: what is written from now on is not seen."""
    if not path.is_file():
        raise JournalError(f"{path}: there is no journal: name the file `journal.db` of a data folder")
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if _code(error) == sqlite3.SQLITE_NOTADB:
            raise JournalError(f"{path}: is no journal: {error}") from None
        raise refusal(str(path), error) from None
    return connection


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file of which SQLite itself can tell that it is broken or cut off."""
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise Damaged(str(path), str(verdict).splitlines()[0])
    log = log_of(path)
    if not (log.exists() and log.stat().st_size):
        pages, page = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        if path.stat().st_size != pages * page:
            raise Damaged(str(path), "it is cut off")
