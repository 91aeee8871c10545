"""A store in a database, through SQLAlchemy Core: an SQLite file.

One commit takes a whole batch, and is durable when it returns, as is the head, kept apart (:mod:`fairlead.journal.head`).
Every row has a checksum, so that a damaged file is refused instead of believed. What only SQLite needs is in
:mod:`fairlead.journal.sqlite`.
"""

import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import dialect

import fairlead
from fairlead.journal import head, sqlite
from fairlead.journal.head import Head, HeadFile
from fairlead.journal.store import (
    ENGINE,
    Damaged,
    Envelope,
    Extent,
    JournalError,
    JournalFull,
    JournalLost,
    Part,
    Record,
    Snapshot,
    TakenOver,
    newer,
    page_of,
)

SCHEMA_VERSION = 3
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
    sa.Column("before", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
_snapshots = sa.Table(  # the parts of a Snapshot, each with its sequence and its record's checksum
    "snapshots",
    _metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("part", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("as_of", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

_INSERT = str(_facts.insert().compile(dialect=dialect()))
_EPOCH = str(sa.select(_meta.c.value).where(_meta.c.key == sa.literal_column("'epoch'")))
"""What each commit executes, as text: to make it of its parts each time takes longer than all the rest."""


class SqlStore:
    """A store in a database; see :class:`fairlead.journal.store.Store`.

    Parameters
    ----------
    where : str or Path
        A file, or a URL: ``sqlite:///FILE``. Made where it does not exist, readable by its owner only.
    to_read : bool
        Read what is there now, though another process may have it open; nothing is made or written.
    name, epoch : str and int
        Of one that is made, where it goes on with what another had; without a name it has one of its own.

    Raises
    ------
    NewerJournal
        A newer fairlead wrote it.
    JournalError
        Another scheduler has it open; there is none to read; it is damaged, an older fairlead's, or no journal at all.
    """

    def __init__(self, where: str | Path, *, to_read: bool = False, name: str = "", epoch: int = 0) -> None:
        self.path = path = sqlite.path_of(where)
        self.name, self._log_path = str(path), sqlite.log_of(path)
        self._read_lock = threading.Lock()
        self._head: HeadFile | None = None
        self._read_head = head.read(path) if to_read else None  # first: what is written meanwhile is beyond it
        with ExitStack() as opened:
            if to_read:
                self._writing = self._reading = _closed_by(opened, sqlite.connect_to_read(path))
            else:
                self._head = HeadFile(path)
                opened.callback(self._head.close)
                if not path.exists():
                    self._refuse_lost()
                    sqlite.create(path, lambda connection: _fill(connection, name or uuid.uuid4().hex, epoch))
                self._writing = _closed_by(opened, sqlite.connect(path))
                self._reading = _closed_by(opened, sqlite.connect(path).execution_options(isolation_level="AUTOCOMMIT"))
            self._driver: Any = self._writing.connection.driver_connection
            with self._naming_damage():
                if not to_read:
                    sqlite.check(self._reading, path)
                meta = self._check()
                self.id, self.writer, self.epoch = meta["id"], meta["fairlead"], int(meta["epoch"])
            self._machine, self._inode = head.this_machine(), path.stat().st_ino
            self._log: tuple[int, int] | None = None
            if self._head:
                self._refuse_missing()
                self._refuse_copy()
            self._refuse_other()
            if self._head:
                self._refuse_older()
            self._opened = opened.pop_all()

    @property
    def _known(self) -> Head | None:
        """How far it came, as was kept apart."""
        return self._head.head if self._head else self._read_head

    def _refuse_lost(self) -> None:
        """Refuse to begin anew where there was a journal."""
        known = self._known
        if known and known.epoch:
            raise JournalError(
                f"{self.name}: the journal is gone, of which {known.sequence:,} facts are known: put it back, or move "
                f"{head.path_of(self.path).name} away as well, to start anew"
            )

    def _refuse_missing(self) -> None:
        """Refuse a journal of which nothing says how far it came."""
        if self._known is None and any(self.extent()):
            raise Damaged(self.name, f"{head.path_of(self.path).name}, which says how far it came, is missing")

    def _refuse_copy(self) -> None:
        """Refuse a journal whose scheduler may run elsewhere."""
        if head.is_of_another(self._known, self.path):
            raise JournalError(
                f"{self.name}: this is a copy of a journal: where the scheduler of the other may run, tasks would run twice; "
                "if it does not, `fairlead journal adopt` makes this one the journal"
            )

    def _refuse_other(self) -> None:
        """Refuse a journal that is not the one that its head is of."""
        known = self._known
        if known and known.id != self.id:
            raise Damaged(self.name, "it is another than the one that its head is of")

    def _refuse_older(self) -> None:
        """Refuse one that does not know of starts that its head knows of."""
        if wrong := self.missing_starts():
            raise Damaged(self.name, wrong)

    def missing_starts(self) -> str:
        """What is wrong with it if its head knows of more starts of its scheduler than it does; else empty."""
        missing = self._known.epoch - self.epoch if self._known else 0
        return (
            f"it is an older one: {missing} start{'s' * (missing > 1)} of its scheduler are missing"
            if missing > 0
            else ""
        )

    def extent(self) -> Extent:
        last = sa.select(_facts.c.sequence, _facts.c.checksum).order_by(_facts.c.sequence.desc()).limit(1)
        with self._naming_damage():
            sequence, checksum = self._reading.execute(last).one_or_none() or (0, 0)
            saved = self._reading.execute(sa.select(sa.func.max(_snapshots.c.sequence))).scalar()
            size = sa.select(sa.func.sum(sa.func.length(_facts.c.body))).where(_facts.c.sequence > (saved or 0))
            since = self._reading.execute(size).scalar()
            return Extent(
                *(int(number or 0) for number in (sequence, checksum, saved, since))
            )  # they may hold anything

    def head(self) -> tuple[int, int] | None:
        return (self._known.sequence, self._known.checksum) if self._known else None

    def begin(self, sequence: int, checksum: int) -> None:
        with self._transaction() as connection:
            known = _meta.update().where(_meta.c.key == "epoch", _meta.c.value == str(self.epoch))
            found = connection.execute(known.values(value=str(self.epoch + 1))).rowcount
            if (
                not found
                or connection.execute(sa.select(_facts.c.sequence).where(_facts.c.sequence > sequence)).first()
            ):
                raise TakenOver(self.name)
        self.epoch += 1
        self._write_head(sequence, checksum)

    def _write_head(self, sequence: int, checksum: int) -> None:
        if self._head is None:
            raise JournalFull(f"{self.name}: is open to read only")
        try:
            self._head.write(Head(self.id, self._machine, self._inode, self.epoch, sequence, checksum))
        except OSError as error:
            # What was committed is known to nobody yet, so nobody may go on as if it were or were not.
            raise JournalError(f"{self._head.path}: cannot be written: {error.strerror}: look at its disk") from None

    def _still_there(self) -> None:
        """Refuse to write what nobody would find again."""
        try:
            there = self.path.stat().st_ino == self._inode
        except OSError:
            there = False
        if not there or (self._head and not self._head.is_there()):
            raise JournalFull(
                f"{self.name}: it, or its head, was moved or deleted while in use: put it back, or stop the scheduler"
            )
        self._log_still_there()

    def _log_still_there(self) -> None:
        """Refuse to go on where the newest commits would be found by nobody: what is in the log still is brought home first."""
        log = self._log_path
        try:
            found = log.stat()
            there: tuple[int, int] | None = (found.st_ino, found.st_size)
        except FileNotFoundError:
            there = None
        known, self._log = self._log, self._log or there
        if known is None or (there is not None and there[0] == known[0] and there[1] >= known[1]):
            self._log = there
            return
        with suppress(sa.exc.DatabaseError):  # of a log that was cut, there is nothing to bring
            self._writing.execute(sa.text("PRAGMA wal_checkpoint(FULL)"))
            self._writing.rollback()
        raise JournalLost(
            f"{log}: was moved, deleted or cut while in use: stop the scheduler, and `fairlead journal check` before the next up"
        )

    def append(self, records: Sequence[Record]) -> None:
        self._still_there()
        rows = [(*record.envelope, record.body) for record in records]
        with self._transaction():
            try:  # by the driver: SQLAlchemy would take longer than all the rest, and this is done in every step
                self._driver.executemany(_INSERT, rows)
            except sqlite3.IntegrityError:  # these numbers are taken
                raise TakenOver(self.name) from None
            # It has written, so nobody else does before the commit.
            if self._driver.execute(_EPOCH).fetchone() != (str(self.epoch),):
                raise TakenOver(self.name)
        if records:
            self._write_head(records[-1].envelope.sequence, records[-1].envelope.checksum)

    def read(self, after: int, most: int) -> list[Record]:
        query = sa.select(_facts).where(_facts.c.sequence > after).order_by(_facts.c.sequence).limit(most)
        with self._naming_damage():
            return self._page(query)

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[Record]:
        theirs = _facts.c.by.not_in(["", ENGINE]) if by is None else _facts.c.by == by
        query = sa.select(_facts).where(theirs, _facts.c.wall >= since)
        if before is not None:
            query = query.where(_facts.c.sequence < before)
        with self._naming_damage():
            return self._page(query.order_by(_facts.c.sequence.desc()).limit(most))

    def _page(self, query: sa.Select[Any]) -> list[Record]:
        with self._reading.execute(query) as rows:
            return page_of(Record(Envelope(*envelope), body) for *envelope, body in rows)

    def snapshots(self) -> list[int]:
        query = sa.select(_snapshots.c.sequence).distinct().order_by(_snapshots.c.sequence)
        with self._naming_damage():
            return [int(row.sequence) for row in self._reading.execute(query)]

    def snapshot(self, until: int | None = None) -> Snapshot | None:
        query = sa.select(_snapshots.c.sequence, _snapshots.c.as_of)
        query = query.order_by(_snapshots.c.sequence.desc(), _snapshots.c.part).limit(1)
        with self._naming_damage():
            row = self._reading.execute(
                query if until is None else query.where(_snapshots.c.sequence <= until)
            ).one_or_none()
        return Snapshot(*row, self._parts(row[0])) if row is not None else None

    def _parts(self, sequence: int) -> Iterator[Part]:
        """The parts of a snapshot, one in memory at a time."""
        of = sa.select(_snapshots.c.checksum, _snapshots.c.body).where(_snapshots.c.sequence == sequence)
        for part in count():
            with self._naming_damage():
                row = self._reading.execute(of.where(_snapshots.c.part == part)).one_or_none()
            if row is None:
                return
            yield Part(*row)

    def save(self, snapshot: Snapshot, keep: int) -> None:
        # The room of dropped records is used again, so the file stays as large as it ever had to be.
        length = sa.func.length(_facts.c.body)
        after = sa.func.sum(length).over(order_by=_facts.c.sequence.desc()) - length
        sizes = sa.select(_facts.c.sequence, after.label("after")).subquery()
        enough = sa.select(sa.func.max(sizes.c.sequence)).where(sizes.c.after >= keep).scalar_subquery()
        begin = sa.select(sa.func.max(_snapshots.c.sequence)).where(_snapshots.c.sequence <= enough)
        self._still_there()
        with self._transaction() as connection:
            connection.execute(_snapshots.delete().where(_snapshots.c.sequence == snapshot.sequence))
            for number, part in enumerate(snapshot.parts):
                row = {"sequence": snapshot.sequence, "part": number, "as_of": snapshot.checksum, **part._asdict()}
                connection.execute(_snapshots.insert(), row)
            first = connection.execute(begin).scalar() or 0
            connection.execute(_snapshots.delete().where(_snapshots.c.sequence < first))
            connection.execute(_facts.delete().where(_facts.c.sequence <= first))

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
            self._writing.commit()  # what was done through it
            self._driver.commit()  # and beside it
            self.writer = fairlead.__version__
        except BaseException as error:
            self._writing.rollback()
            self._driver.rollback()
            if isinstance(error, sa.exc.OperationalError | sqlite3.OperationalError):
                why = getattr(error, "orig", error)
                raise JournalFull(f"{self.name}: cannot be written: {why}: make room on its disk") from None
            raise

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """One reader at a time; what the database cannot make sense of is damage."""
        with self._read_lock:
            try:
                yield
            except (sa.exc.DatabaseError, KeyError, ValueError, TypeError) as error:
                raise Damaged(self.name, getattr(error, "orig", error)) from None

    def _check(self) -> dict[str, str]:
        """Refuse what is no journal of this schema; returns what is told of it."""
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
        return meta


def _closed_by(opened: ExitStack, connection: sa.Connection) -> sa.Connection:
    opened.callback(connection.engine.dispose)
    opened.callback(connection.close)
    return connection


def _fill(connection: sa.Connection, name: str, epoch: int) -> None:
    """Make the tables of a new journal."""
    _metadata.create_all(connection)
    told = {
        "schema_version": SCHEMA_VERSION,
        "fairlead": fairlead.__version__,
        "id": name,
        "epoch": epoch,
        "created": int(time.time()),
    }
    connection.execute(_meta.insert(), [{"key": key, "value": str(value)} for key, value in told.items()])
