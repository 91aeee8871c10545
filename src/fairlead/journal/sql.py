"""A journal in an SQLite file, through SQLAlchemy Core.

WAL mode with synchronous=FULL: a commit is on the disk when it returns, and one commit takes a whole batch. Every row has a
checksum, so that a damaged file is refused instead of believed. One process at a time: a lock file beside the journal is
held as long as it is open, and the kernel lets go of it however the process ends.
"""

import fcntl
import os
import sqlite3
import threading
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from fairlead.journal import Forgotten, JournalError, JournalFull
from fairlead.scheduler import snapshot
from fairlead.scheduler.facts import Fact, decode, encode
from fairlead.scheduler.state import Contradiction, State

SCHEMA_VERSION = 1

SNAPSHOT_AFTER = 8 * 2**20
"""Bytes of facts after which a snapshot is due; or twice the last snapshot's, if that is more."""
KEEP_HISTORY = 64 * 2**20
"""Bytes of facts that are kept though a snapshot covers them."""

_metadata = sa.MetaData()
_meta = sa.Table(
    "meta",
    _metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)


def _numbered(name: str) -> sa.Table:
    """A table of bodies, each with its position and its checksum."""
    return sa.Table(
        name,
        _metadata,
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("crc", sa.BigInteger, nullable=False),
    )


_facts, _snapshots = _numbered("facts"), _numbered("snapshots")


class SqlJournal:
    """A journal in a file; see :class:`fairlead.journal.Journal`.

    Parameters
    ----------
    path : Path
        Made where it does not exist, readable by its owner only.

    Raises
    ------
    JournalError
        Another scheduler has it open; it is damaged or no journal at all; a newer fairlead wrote it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _lock(path)
        try:
            if not path.exists():
                _create(path)
            self._connection = _connect(path)
            self._looking, self._look_lock = _connect(path), threading.Lock()
            self.id, self.position, self._since_snapshot = self._check()
        except BaseException:
            os.close(self._lock)
            raise
        self._snapshot_size = 0

    def append(self, facts: Sequence[Fact]) -> None:
        bodies = [encode(fact) for fact in facts]
        rows = [
            {"position": self.position + k, "body": body, "crc": zlib.crc32(body)} for k, body in enumerate(bodies, 1)
        ]
        if rows:
            with self._transaction() as connection:
                connection.execute(_facts.insert(), rows)
            self.position += len(rows)
            self._since_snapshot += sum(map(len, bodies))

    def read(self, after: int = 0) -> Iterator[tuple[int, Fact]]:
        """Go through the facts kept, with their numbers, from the one after `after`."""
        query = sa.select(_facts).where(_facts.c.position > after).order_by(_facts.c.position)
        expected = None
        for position, body, crc in self._connection.execute(query):
            if not _is_sound(body, crc) or position != (expected or position):
                raise self._damaged(f"fact {expected or position} is not what was written")
            expected = position + 1
            try:
                yield position, decode(body)
            except msgspec.MsgspecError as error:
                raise self._damaged(f"fact {position} cannot be read: {error}") from None

    def recover(self) -> State:
        state = State()
        try:
            row = self._connection.execute(sa.select(_snapshots)).one_or_none()
            if row is not None:
                if not _is_sound(row.body, row.crc):
                    raise self._damaged("the snapshot is not what was written")
                state = snapshot.load(row.body)
                self._snapshot_size = len(row.body)
            position = first = row.position if row is not None else 0
            for position, fact in self.read(first):
                if first is not None and position != first + 1:
                    raise self._damaged(f"fact {first + 1} is missing")
                first = None
                state.apply(fact)
        except (sa.exc.DatabaseError, msgspec.MsgspecError, ValueError, Contradiction) as error:
            raise self._damaged(str(getattr(error, "orig", error))) from None
        finally:
            self._connection.rollback()
        if position != self.position:
            raise self._damaged(f"fact {position + 1} is missing")
        return state

    def look(self, after: int, most: int) -> list[tuple[int, bytes]]:
        with self._look_lock:
            query = sa.select(_facts).where(_facts.c.position > after).order_by(_facts.c.position).limit(most)
            rows = list(self._looking.execute(query))
            oldest = rows[0].position if rows else self.position + 1
            self._looking.rollback()
        if after + 1 < oldest:
            raise Forgotten(oldest)
        if any(not _is_sound(row.body, row.crc) for row in rows):
            raise self._damaged(f"a fact after {after} is not what was written")
        return [(row.position, row.body) for row in rows]

    def snapshot_due(self) -> bool:
        return self._since_snapshot > max(SNAPSHOT_AFTER, 2 * self._snapshot_size)

    def save(self, state: State) -> None:
        # The room of dropped facts is used again, so the file stays as large as it ever had to be.
        body = snapshot.dump(state)
        size = sa.func.sum(sa.func.length(_facts.c.body)).over(order_by=_facts.c.position.desc())
        sizes = sa.select(_facts.c.position, size.label("size")).subquery()
        keep = sa.select(sa.func.max(sizes.c.position)).where(sizes.c.size > KEEP_HISTORY).scalar_subquery()
        with self._transaction() as connection:
            connection.execute(_snapshots.delete())
            connection.execute(_snapshots.insert(), {"position": self.position, "body": body, "crc": zlib.crc32(body)})
            connection.execute(_facts.delete().where(_facts.c.position <= keep))
        self._since_snapshot, self._snapshot_size = 0, len(body)

    def close(self) -> None:
        for connection in (self._looking, self._connection):
            connection.close()
            connection.engine.dispose()
        os.close(self._lock)

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._connection, self.path)

    def _check(self) -> tuple[str, int, int]:
        """Refuse what is no journal of ours; returns its id, its last position, and the bytes since its snapshot."""
        try:
            verdict = self._connection.execute(sa.text("PRAGMA quick_check(1)")).scalar()
            if verdict != "ok":
                raise self._damaged(str(verdict).splitlines()[0])
            wal = Path(f"{self.path}-wal")
            if not (wal.exists() and wal.stat().st_size):
                pages, page = (
                    self._connection.execute(sa.text(f"PRAGMA {n}")).scalar_one() for n in ("page_count", "page_size")
                )
                if self.path.stat().st_size != pages * page:
                    raise self._damaged("it is cut off")
            known = sa.inspect(self._connection).get_table_names()
            if not {"meta", "facts", "snapshots"} <= set(known):
                raise JournalError(f"{self.path}: not a fairlead journal: name another file")
            meta = {row.key: row.value for row in self._connection.execute(sa.select(_meta))}
            version = int(meta["schema_version"])
            if version > SCHEMA_VERSION:
                raise JournalError(
                    f"{self.path}: written by a newer fairlead (schema {version}, this one knows {SCHEMA_VERSION}): "
                    "upgrade fairlead, or start with another --home"
                )
            last = self._connection.execute(sa.select(sa.func.max(_facts.c.position))).scalar()
            snapped = self._connection.execute(sa.select(sa.func.max(_snapshots.c.position))).scalar()
            since = sa.select(sa.func.sum(sa.func.length(_facts.c.body))).where(_facts.c.position > (snapped or 0))
            size = self._connection.execute(since).scalar() or 0
            return meta["id"], max(last or 0, snapped or 0), size
        except (sa.exc.DatabaseError, KeyError, ValueError, TypeError) as error:
            raise self._damaged(str(getattr(error, "orig", error))) from None
        finally:
            self._connection.rollback()

    def _damaged(self, why: str) -> JournalError:
        return JournalError(
            f"{self.path}: the journal is damaged ({why}): restore a copy of it, or move it away to start anew"
        )


class _Transaction:
    """A commit, or a rollback with SQLite's ways of saying that the disk is full made one error."""

    def __init__(self, connection: sa.Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    def __enter__(self) -> sa.Connection:
        return self._connection

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if error is None:
                self._connection.commit()
        except sa.exc.OperationalError as failed:
            error = failed
        if error is not None:
            self._connection.rollback()
        if isinstance(error, sa.exc.OperationalError):
            raise JournalFull(f"{self._path}: cannot be written: {error.orig}: make room on its disk") from None


def read_history(path: Path) -> tuple[State | None, Iterator[Fact]]:
    """Read a journal that may be in use, without taking it: what is known of the time before the facts, and the facts kept.

    Returns
    -------
    State or None
        That of the newest snapshot, where the first facts are not kept any more.
    iterator of Fact

    Raises
    ------
    JournalError
        There is no journal, or it is damaged.
    """
    if not path.is_file():
        raise JournalError(f"{path}: there is no journal: name the file `journal.db` of a data folder")
    engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(f"file:{path}?mode=ro", uri=True))
    try:
        with engine.connect() as connection:
            first = connection.execute(sa.select(sa.func.min(_facts.c.position))).scalar_one()
            row = connection.execute(sa.select(_snapshots)).one_or_none()
            known = snapshot.load(row.body) if first != 1 and row is not None and _is_sound(row.body, row.crc) else None
    except (sa.exc.DatabaseError, msgspec.MsgspecError, ValueError) as error:
        raise JournalError(f"{path}: is no journal: {getattr(error, 'orig', error)}") from None

    def facts() -> Iterator[Fact]:
        with engine.connect() as connection:
            for position, body, crc in connection.execute(sa.select(_facts).order_by(_facts.c.position)):
                if not _is_sound(body, crc):
                    raise JournalError(f"{path}: is damaged: fact {position} is not what was written")
                yield decode(body)

    return known, facts()


def _is_sound(body: object, crc: object) -> bool:
    return isinstance(body, bytes) and crc == zlib.crc32(body)


def _lock(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalError(f"{path}: cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise JournalError(f"{path}: another scheduler has it open: stop that one, or use another --home") from None
    return lock


def _connect(path: Path) -> sa.Connection:
    engine = sa.create_engine(
        f"sqlite:///{path}", poolclass=StaticPool, connect_args={"timeout": 5, "check_same_thread": False}
    )

    @sa.event.listens_for(engine, "connect")
    def _(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    try:
        if path.stat().st_size == 0:
            raise JournalError(f"{path}: the journal is empty: restore a copy of it, or move it away to start anew")
        return engine.connect()
    except (sa.exc.DatabaseError, UnicodeDecodeError) as error:  # sqlite3 may fail to decode its own message
        why = getattr(error, "orig", "its schema is not text")
        raise JournalError(
            f"{path}: the journal is damaged ({why}): restore a copy of it, or move it away to start anew"
        ) from None


def _create(path: Path) -> None:
    """Make a new journal aside and move it into place, so that one is never found half made."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL, 0o600))
    engine = sa.create_engine(f"sqlite:///{fresh}")
    try:
        with engine.begin() as connection:
            _metadata.create_all(connection)
            rows = {"schema_version": SCHEMA_VERSION, "id": uuid.uuid4().hex, "created": int(time.time())}
            connection.execute(_meta.insert(), [{"key": k, "value": str(v)} for k, v in rows.items()])
    except sa.exc.OperationalError as error:
        fresh.unlink(missing_ok=True)
        raise JournalError(f"{path}: cannot be made: {error.orig}: make room on its disk") from None
    finally:
        engine.dispose()
    fresh.rename(path)
