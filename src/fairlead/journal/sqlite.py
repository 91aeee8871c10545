"""What only SQLite needs: its file, made whole, its settings, and how a broken one shows.

WAL mode with synchronous=FULL: a commit is on the disk when it returns.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from fairlead.journal.store import Damaged, JournalError

_CONNECTED = 128
"""The byte of the index of the log on which each that is connected has a lock: SQLite's UNIX_SHM_DMS."""


def path_of(where: str | Path) -> Path:
    """The file that a path or a URL ``sqlite:///FILE`` names."""
    if isinstance(where, Path):
        return where
    try:
        url = sa.make_url(where)
    except sa.exc.ArgumentError:
        raise JournalError(f"{where}: is no URL of a journal: write sqlite:///FILE") from None
    if url.get_backend_name() != "sqlite" or not url.database:
        shown = url.render_as_string(hide_password=True)
        raise JournalError(f"{shown}: journals are kept in SQLite files: write sqlite:///FILE")
    return Path(url.database)


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


def _url(path: Path) -> sa.URL:
    return sa.URL.create("sqlite", database=str(path))  # not as text, in which a ? ends the path


def create(path: Path, fill: Callable[[sa.Connection], None]) -> None:
    """Make a new journal aside and move it into place, so that one is never found half made."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL, 0o600))
    engine = sa.create_engine(_url(fresh))
    try:
        with engine.begin() as connection:
            fill(connection)
    except sa.exc.OperationalError as error:
        fresh.unlink(missing_ok=True)
        raise JournalError(f"{path}: cannot be made: {error.orig}: make room on its disk") from None
    finally:
        engine.dispose()
    fresh.rename(path)


def connect(path: Path) -> sa.Connection:
    """Open a journal to write and read it."""
    engine = sa.create_engine(_url(path), poolclass=StaticPool, connect_args={"timeout": 5, "check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def _(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    try:
        if path.stat().st_size == 0:
            raise JournalError(f"{path}: the journal is empty: restore a copy of it, or move it away to start anew")
        return engine.connect()
    except (sa.exc.DatabaseError, UnicodeDecodeError) as error:  # sqlite3 may fail to decode its own message
        raise Damaged(str(path), getattr(error, "orig", "its schema is not text")) from None


def connect_to_read(path: Path) -> sa.Connection:
    """Open a journal that may be in use, as it is now: what is written from now on is not seen."""
    if not path.is_file():
        raise JournalError(f"{path}: there is no journal: name the file `journal.db` of a data folder")
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False),
        poolclass=StaticPool,
        isolation_level="AUTOCOMMIT",
    )
    try:
        connection = engine.connect()
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").all()
    except sa.exc.DatabaseError as error:
        raise JournalError(f"{path}: is no journal: {error.orig}") from None
    return connection


def check(connection: sa.Connection, path: Path) -> None:
    """Refuse a file of which SQLite itself can tell that it is broken or cut off."""
    verdict = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if verdict != "ok":
        raise Damaged(str(path), str(verdict).splitlines()[0])
    wal = Path(f"{path}-wal")
    if not (wal.exists() and wal.stat().st_size):
        pages, page = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "page_size")
        )
        if path.stat().st_size != pages * page:
            raise Damaged(str(path), "it is cut off")
