"""A store in a database, through SQLAlchemy Core: an SQLite file.

One commit takes a whole batch, and is durable when it returns. Every row has a checksum, so that a damaged file is refused
instead of believed. What only SQLite needs is in :mod:`fairlead.journal.sqlite`.
"""

import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa

import fairlead
from fairlead.journal import sqlite
from fairlead.journal.store import ENGINE, Envelope, Extent, JournalError, JournalFull, Record, Snapshot, damaged, newer

SCHEMA_VERSION = 2
"""Of what is in a journal: its tables, its facts and its snapshots. See docs/journal.md for what raises it."""

_metadata = sa.MetaData()
_meta = sa.Table(
    "meta",
    _metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
_facts = sa.Table(  # the fields of an Envelope in their order, and the body
    "facts",
    _metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("monotonic", sa.Double, nullable=False),
    sa.Column("wall", sa.Double, nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
_snapshots = sa.Table(  # the fields of a Snapshot in their order
    "snapshots",
    _metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("checksum", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)


class SqlStore:
    """A store in a database; see :class:`fairlead.journal.store.Store`.

    Parameters
    ----------
    where : str or Path
        A file, or a URL: ``sqlite:///FILE``. Made where it does not exist, readable by its owner only.
    to_read : bool
        Read what is there now, though another process may have it open; nothing is made or written.

    Raises
    ------
    NewerJournal
        A newer fairlead wrote it.
    JournalError
        Another scheduler has it open; there is none to read; it is damaged, an older fairlead's, or no journal at all.
    """

    def __init__(self, where: str | Path, *, to_read: bool = False) -> None:
        path = sqlite.path_of(where)
        self.name = str(path)
        self._read_lock = threading.Lock()
        with ExitStack() as opened:
            if to_read:
                self._writing = self._reading = _closed_by(opened, sqlite.connect_to_read(path))
            else:
                opened.callback(os.close, sqlite.lock(path))
                if not path.exists():
                    sqlite.create(path, _fill)
                self._writing = _closed_by(opened, sqlite.connect(path))
                self._reading = _closed_by(opened, sqlite.connect(path).execution_options(isolation_level="AUTOCOMMIT"))
            with self._naming_damage():
                if not to_read:
                    sqlite.check(self._reading, path)
                self.id, self.writer = self._check()
            self._opened = opened.pop_all()

    def extent(self) -> Extent:
        with self._naming_damage():
            last = self._reading.execute(sa.select(sa.func.max(_facts.c.sequence))).scalar()
            saved = self._reading.execute(sa.select(sa.func.max(_snapshots.c.sequence))).scalar()
            size = sa.select(sa.func.sum(sa.func.length(_facts.c.body))).where(_facts.c.sequence > (saved or 0))
            since = self._reading.execute(size).scalar()
            return Extent(int(last or 0), int(saved or 0), int(since or 0))  # a broken row may hold anything

    def append(self, records: Sequence[Record]) -> None:
        rows = [{**record.envelope._asdict(), "body": record.body} for record in records]
        with self._transaction() as connection:
            connection.execute(_facts.insert(), rows)

    def read(self, after: int, most: int) -> list[Record]:
        query = sa.select(_facts).where(_facts.c.sequence > after).order_by(_facts.c.sequence).limit(most)
        with self._naming_damage():
            rows = self._reading.execute(query).all()
        return [Record(Envelope(*envelope), body) for *envelope, body in rows]

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[Record]:
        theirs = _facts.c.by.not_in(["", ENGINE]) if by is None else _facts.c.by == by
        query = sa.select(_facts).where(theirs, _facts.c.wall >= since)
        if before is not None:
            query = query.where(_facts.c.sequence < before)
        with self._naming_damage():
            rows = self._reading.execute(query.order_by(_facts.c.sequence.desc()).limit(most)).all()
        return [Record(Envelope(*envelope), body) for *envelope, body in rows]

    def snapshot(self) -> Snapshot | None:
        with self._naming_damage():
            row = self._reading.execute(sa.select(_snapshots)).one_or_none()
        return Snapshot(*row) if row is not None else None

    def save(self, snapshot: Snapshot, keep: int) -> None:
        # The room of dropped records is used again, so the file stays as large as it ever had to be.
        size = sa.func.sum(sa.func.length(_facts.c.body)).over(order_by=_facts.c.sequence.desc())
        sizes = sa.select(_facts.c.sequence, size.label("size")).subquery()
        drop = sa.select(sa.func.max(sizes.c.sequence)).where(sizes.c.size > keep).scalar_subquery()
        with self._transaction() as connection:
            connection.execute(_snapshots.delete())
            connection.execute(_snapshots.insert(), snapshot._asdict())
            connection.execute(_facts.delete().where(_facts.c.sequence <= drop))

    def close(self) -> None:
        self._opened.close()

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """A commit under this fairlead's version, or a rollback; the database's ways of saying that it is full are made one."""
        try:
            yield self._writing
            if self.writer != fairlead.__version__:
                version = {"value": fairlead.__version__}
                self._writing.execute(_meta.update().where(_meta.c.key == "fairlead").values(version))
            self._writing.commit()
            self.writer = fairlead.__version__
        except BaseException as error:
            self._writing.rollback()
            if isinstance(error, sa.exc.OperationalError):
                raise JournalFull(f"{self.name}: cannot be written: {error.orig}: make room on its disk") from None
            raise

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """One reader at a time; what the database cannot make sense of is damage."""
        with self._read_lock:
            try:
                yield
            except (sa.exc.DatabaseError, KeyError, ValueError, TypeError) as error:
                raise damaged(self.name, getattr(error, "orig", error)) from None

    def _check(self) -> tuple[str, str]:
        """Refuse what is no journal of this schema; returns its id, and the version of the fairlead that wrote last."""
        known = set(sa.inspect(self._reading).get_table_names())
        if not {"meta", "facts", "snapshots"} <= known:
            raise JournalError(f"{self.name}: not a fairlead journal: name another file")
        meta = {row.key: row.value for row in self._reading.execute(sa.select(_meta))}
        version = int(meta["schema_version"])
        if version > SCHEMA_VERSION:
            what = f"schema {version}, this one knows {SCHEMA_VERSION}"
            raise newer(self.name, what, meta.get("fairlead", "an unknown one"), fairlead.__version__)
        if version < SCHEMA_VERSION:
            raise JournalError(
                f"{self.name}: written by an older fairlead (schema {version}, this one knows {SCHEMA_VERSION}): finish or "
                "cancel its jobs with the fairlead that wrote it, then start with another --home, or move it away"
            )
        return meta["id"], meta["fairlead"]


def _closed_by(opened: ExitStack, connection: sa.Connection) -> sa.Connection:
    opened.callback(connection.engine.dispose)
    opened.callback(connection.close)
    return connection


def _fill(connection: sa.Connection) -> None:
    """Make the tables of a new journal."""
    _metadata.create_all(connection)
    told = {
        "schema_version": SCHEMA_VERSION,
        "fairlead": fairlead.__version__,
        "id": uuid.uuid4().hex,
        "created": int(time.time()),
    }
    connection.execute(_meta.insert(), [{"key": key, "value": str(value)} for key, value in told.items()])
