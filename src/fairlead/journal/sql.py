"""A store in an SQLite file.

A commit writes a whole batch and is durable when it returns; so is the separate head (:mod:`fairlead.journal.head`). Every row
has a checksum, so a damaged file is refused instead of believed. What is specific to SQLite is in
:mod:`fairlead.journal.sqlite`.
"""

import logging
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import accumulate, chain, count
from pathlib import Path
from typing import Any

import fairlead
from fairlead.failure import failing
from fairlead.journal import head, sqlite, store
from fairlead.journal.head import Head, HeadFile

log = logging.getLogger("fairlead")

SCHEMA_VERSION = 4
"""The format of a journal's content: tables, facts and snapshots. Any change raises it; see docs/journal.md."""
OLDEST_VERSION = 3
"""The earliest format that is read; a journal of one gets SCHEMA_VERSION when a scheduler begins to write it."""
_TABLES = """
CREATE TABLE meta (
    "key" TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE TABLE facts (  -- the fields of an Envelope in their order, and the body
    sequence BIGINT NOT NULL,
    monotonic DOUBLE NOT NULL,
    wall DOUBLE NOT NULL,
    "by" TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    "before" BIGINT NOT NULL,
    checksum BIGINT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (sequence)
);
CREATE TABLE snapshots (  -- the parts of a Snapshot, each with its sequence and its record's checksum
    sequence BIGINT NOT NULL,
    part BIGINT NOT NULL,
    as_of BIGINT NOT NULL,
    checksum BIGINT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (sequence, part)
);
"""
_BEYOND = 2**63 - 1
"""Above the number of every record."""
_SLICE = 2**18
"""Bytes of a snapshot that are written at a time. Four times as much is dropped."""
_Row = tuple[int, int, int, int, bytes]
"""A part of a snapshot in the database."""
_RECORDS = (
    "SELECT rowid, length(body) FROM facts WHERE sequence <= ? ORDER BY sequence LIMIT 1000",
    "DELETE FROM facts WHERE rowid = ?",
)
_PARTS_ALONE = (
    """
    SELECT rowid, length(body) FROM snapshots
    WHERE sequence NOT IN (SELECT sequence FROM snapshots WHERE part = 0) LIMIT 1000
    """,
    "DELETE FROM snapshots WHERE rowid = ?",
)
"""How records are dropped; and parts without a first one: of dropped snapshots, and of one that was never whole."""


class SqlStore:
    """A store of records and snapshots in a database. One thread writes; any may read.

    path : the file. Made if missing, readable by its owner only.
    to_read : read the current content, even if another process has it open; make and write nothing
    upgrade : False to leave a journal of an earlier format in that
    name, epoch : id and epoch of a new journal that continues another; by default a new id

    name : in messages
    id : permanent and unique
    writer : the version of fairlead that wrote last
    epoch : how often a scheduler began to write it

    Raises
    ------
    NewerJournal
        A newer fairlead wrote it.
    JournalError
        Another scheduler has it open; it is missing, damaged, an older fairlead's, or not a journal.
    """

    def __init__(self, path: Path, *, to_read: bool = False, upgrade: bool = True, name: str = "", epoch: int = 0) -> None:
        self._upgrade, self.path, self.name, self._log_path = upgrade, path, str(path), sqlite.log_of(path)
        self._read_lock = threading.Lock()
        self._head: HeadFile | None = None
        self._read_head = head.read(path) if to_read else None  # first, since the journal may grow meanwhile
        with ExitStack() as opened:
            if to_read:
                self._reading = opened.enter_context(closing(sqlite.connect_to_read(path)))
            else:
                self._head = HeadFile(path)
                opened.callback(self._head.close)
                if not path.exists():
                    self._refuse_lost()
                    sqlite.create(path, lambda connection: _fill(connection, name or uuid.uuid4().hex, epoch))
                self._writing = opened.enter_context(closing(sqlite.connect(path)))
                self._saving = opened.enter_context(closing(sqlite.connect(path)))
                # On disk with the next records, which follow in the log: until then the snapshot before counts.
                self._saving.execute("PRAGMA synchronous = NORMAL")
                self._saving.execute("PRAGMA wal_autocheckpoint = 250")  # pages: a MiB takes some milliseconds
                self._reading = opened.enter_context(closing(sqlite.connect(path)))
            with self._naming_damage():
                if not to_read:
                    sqlite.check(self._reading, path)
                meta = self._check()
                self._format = int(meta["schema_version"])
                self.id, self.writer, self.epoch = meta["id"], meta["fairlead"], int(meta["epoch"])
            self._machine, self._inode = head.this_machine(), path.stat().st_ino
            self._log: tuple[int, int] | None = None
            self._check_head()
            self._opened = opened.pop_all()

    @property
    def _known(self) -> Head | None:
        return self._head.head if self._head else self._read_head

    def _refuse_lost(self) -> None:
        """Refuse to start an empty journal where there was one."""
        known = self._known
        if known and known.epoch:
            raise store.JournalError(
                f"{self.name}: the journal is missing, and its head records {known.sequence:,} facts: restore it, or move "
                f"{head.path_of(self.path).name} away as well, to start afresh"
            )

    def _check_head(self) -> None:
        """Refuse a journal that is not its head's; to write, also one without a head, a copy, and one with fewer starts."""
        known, writes = self._known, self._head is not None
        if writes and known is None and any(self.extent()):
            why = f"{head.path_of(self.path).name}, which records its last fact, is missing or unreadable"
            raise store.Damaged(self.name, why)
        if writes and head.is_of_another(known, self.path):  # the original may have a running scheduler
            raise store.JournalError(
                f"{self.name}: this is a copy of a journal: if the scheduler of the other runs, tasks would run twice; "
                "if it does not, `fairlead journal adopt` makes this one the journal"
            )
        if known and known.id != self.id:
            raise store.Damaged(self.name, "it differs from the one in its head")
        if writes and (wrong := self.missing_starts()):
            raise store.Damaged(self.name, wrong)

    def missing_starts(self) -> str:
        """Return what is wrong if its head knows more scheduler starts than the journal; else empty."""
        missing = self._known.epoch - self.epoch if self._known else 0
        return f"it is an older copy: {missing} start{'s' * (missing > 1)} of its scheduler are missing" if missing > 0 else ""

    def extent(self) -> store.Extent:
        """Return how far it goes."""
        with self._naming_damage():
            last = self._one("SELECT sequence, checksum FROM facts ORDER BY sequence DESC LIMIT 1") or (0, 0)
            (saved,) = self._one("SELECT max(sequence) FROM snapshots WHERE part = 0")
            (since,) = self._one("SELECT sum(length(body)) FROM facts WHERE sequence > ?", saved or 0)
            return store.Extent(*(int(number or 0) for number in (*last, saved, since)))  # a damaged file may contain any type

    def _one(self, query: str, *values: object) -> Any:
        return self._reading.execute(query, values).fetchone()

    def head(self) -> tuple[int, int] | None:
        """Return the number and checksum of the last record by the separate head; None if there is no head."""
        return (self._known.sequence, self._known.checksum) if self._known else None

    def begin(self, sequence: int, checksum: int) -> None:
        """Begin a scheduler's writing: store the next epoch, and the head of this record, which must be the last.

        Raises TakenOver if it is not: another scheduler has written since.
        """
        earlier = self._upgrade and self._format < SCHEMA_VERSION
        if earlier:
            self._keep_copy()
        with self._transaction() as writing:
            if earlier:
                writing.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION),))
            known = "UPDATE meta SET value = ? WHERE key = 'epoch' AND value = ?"
            found = writing.execute(known, (str(self.epoch + 1), str(self.epoch))).rowcount
            if not found or writing.execute("SELECT 1 FROM facts WHERE sequence > ?", (sequence,)).fetchone():
                raise store.TakenOver(self.name)
        self.epoch += 1
        self._write_head(sequence, checksum)

    def _keep_copy(self) -> None:
        """Copy the journal and its head aside before it gets another format. Raises JournalError."""
        kept = sqlite.kept_of(self.path)
        shutil.rmtree(fresh := kept.with_suffix(".new"), ignore_errors=True)
        try:
            fresh.mkdir(mode=0o700)
            sqlite.create(fresh / self.path.name, self._reading.backup)
            if self._known is not None:
                with closing(HeadFile(fresh / self.path.name)) as file:
                    file.write(self._known)
            shutil.rmtree(kept, ignore_errors=True)
            fresh.rename(kept)
        except (OSError, sqlite3.DatabaseError) as error:
            message = f"{self.name}: cannot be copied before its upgrade: {error}: free space on its disk"
            raise store.JournalError(message) from None
        log.info(
            "the journal of fairlead %s gets format %d; `fairlead journal rollback` puts it back as it was",
            self.writer,
            SCHEMA_VERSION,
        )

    def _write_head(self, sequence: int, checksum: int) -> None:
        assert self._head is not None  # a store opened to read is never written
        # If that fails, nobody knows yet whether the commit counts, so nobody may go on either way.
        with failing(f"{self._head.path}: cannot be written: ", OSError, after=": check its disk", to=store.JournalError):
            self._head.write(Head(self.id, self._machine, self._inode, self.epoch, sequence, checksum))

    def _still_there(self) -> None:
        """Refuse to write to a file that is no longer at its path."""
        try:
            there = self.path.stat().st_ino == self._inode
        except OSError:
            there = False
        if not there or (self._head and not self._head.is_in_place()):
            message = f"{self.name}: it or its head was moved or deleted while in use: restore it, or stop the scheduler"
            raise store.JournalFull(message)
        self._log_still_there()

    def _log_still_there(self) -> None:
        """Refuse to continue if the log was moved or cut: checkpoint what is left in it first."""
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
        with suppress(sqlite3.DatabaseError):  # a cut log has nothing to checkpoint
            self._writing.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        raise store.JournalLost(
            f"{log}: was moved, deleted or cut while in use: stop the scheduler, and `fairlead journal check` before the next up"
        )

    def append(self, records: Sequence[store.Record]) -> None:
        """Write all records durably, and the head, or none and raise JournalFull. Raises TakenOver if another has begun."""
        rows = [(*record.envelope, record.body, str(self.epoch)) for record in records]
        add = "INSERT INTO facts SELECT ?, ?, ?, ?, ?, ?, ?, ? WHERE ? = (SELECT value FROM meta WHERE key = 'epoch')"
        with self._transaction() as writing:
            try:
                if writing.executemany(add, rows).rowcount != len(rows):
                    raise store.TakenOver(self.name)
            except sqlite3.IntegrityError:  # the numbers are taken
                raise store.TakenOver(self.name) from None
        if records:
            self._write_head(records[-1].envelope.sequence, records[-1].envelope.checksum)

    def read(self, after: int, most: int) -> list[store.Record]:
        """Return the next records above number `after`, a page of at most `most`, as written."""
        return self._page("SELECT * FROM facts WHERE sequence > ? ORDER BY sequence LIMIT ?", (after, most))

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[store.Record]:
        """Return records that people, or one person, caused since `wall` time `since` and below number `before`: the highest,
        in descending order, at most `most`.
        """
        query = """
            SELECT * FROM facts
            WHERE ("by" = :by OR :by IS NULL AND "by" NOT IN ('', :engine)) AND wall >= :since AND sequence < :before
            ORDER BY sequence DESC LIMIT :most
        """
        before = _BEYOND if before is None else before
        return self._page(query, {"by": by, "engine": store.ENGINE, "since": since, "before": before, "most": most})

    def _page(self, query: str, values: tuple[int, ...] | dict[str, object]) -> list[store.Record]:
        with self._naming_damage(), closing(self._reading.execute(query, values)) as rows:
            return store.page_of(store.Record(store.Envelope(*envelope), body) for *envelope, body in rows)

    def snapshots(self) -> list[int]:
        """Return the record numbers of the snapshots, ascending."""
        with self._naming_damage():
            rows = self._reading.execute("SELECT sequence FROM snapshots WHERE part = 0 ORDER BY sequence").fetchall()
            return [int(sequence) for (sequence,) in rows]

    def snapshot(self, until: int | None = None) -> store.Snapshot | None:
        """Return the newest snapshot, or the newest at or before a record, as written. Its parts are read lazily."""
        query = "SELECT sequence, as_of FROM snapshots WHERE sequence <= ? AND part = 0 ORDER BY sequence DESC LIMIT 1"
        with self._naming_damage():
            row = self._one(query, _BEYOND if until is None else until)
        if row is None:
            return None
        sequence, as_of = row
        return store.Snapshot(sequence, as_of, self._parts(sequence))

    def _parts(self, sequence: int) -> Iterator[store.Part]:
        """Yield the parts of a snapshot, one in memory at a time."""
        for part in count():
            with self._naming_damage():
                row = self._one("SELECT checksum, body FROM snapshots WHERE sequence = ? AND part = ?", sequence, part)
            if row is None:
                return
            yield store.Part(*row)

    def save(self, snapshot: store.Snapshot, keep: int) -> Iterator[None]:
        """Write a snapshot, unless it is there. Then drop the records up to the newest snapshot, maybe this one, that has `keep`
        bytes of records after it, not counting those after this one. Each slice is a transaction.

        The first part is written last: without it there is no snapshot. Earlier snapshots are dropped too, so a snapshot always
        precedes the first record left. Raises JournalFull if there is no space.
        """
        # SQLite reuses the space of dropped records, so the file never shrinks and stays within its largest size.
        rows = ((snapshot.sequence, number, snapshot.checksum, *part) for number, part in enumerate(snapshot.parts))
        first = next(rows)  # before the first slice, after which the state may change
        yield from self._drop(*_PARTS_ALONE)
        if snapshot.sequence not in self.snapshots():
            yield from self._write(chain(rows, [first]))
        last = yield from self._newest_with(snapshot.sequence, keep)
        with self._slice() as saving:
            saving.execute("DELETE FROM snapshots WHERE sequence < ? AND part = 0", (last,))
        yield from self._drop(*_PARTS_ALONE)
        yield from self._drop(*_RECORDS, last)

    def _write(self, rows: Iterator[_Row]) -> Iterator[None]:
        while some := list(_first(rows)):
            with self._slice() as saving:
                saving.executemany("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", some)
            yield

    def _newest_with(self, sequence: int, keep: int) -> Generator[None, None, int]:
        """Return the newest snapshot that has `keep` bytes of records up to a number after it; 0 if there is none."""
        query = "SELECT sequence - 1, length(body) FROM facts WHERE sequence <= ? ORDER BY sequence DESC LIMIT 1000"
        while keep > 0:
            with self._slice() as saving:
                rows = saving.execute(query, (sequence,)).fetchall()
            if not rows:
                return 0
            for before, size in rows:
                sequence, keep = before, keep - size
                if keep <= 0:
                    break
            yield
        return max((number for number in self.snapshots() if number <= sequence), default=0)

    def _drop(self, query: str, drop: str, *values: int) -> Iterator[None]:
        """Drop the rows that a query returns with their sizes, some at a time."""
        while True:
            with self._slice() as saving:
                rows = saving.execute(query, values).fetchall()
                sizes = accumulate(size for _, size in rows)
                some = [(row,) for (row, size), total in zip(rows, sizes, strict=True) if total <= max(size, 4 * _SLICE)]
                saving.executemany(drop, some)
            if not rows:
                return
            yield

    @contextmanager
    def _slice(self) -> Iterator[sqlite3.Connection]:
        """Make one transaction of a snapshot. Raises TakenOver: what another scheduler writes is not this one's to drop."""
        with self._transaction(self._saving) as saving:
            same = "UPDATE meta SET value = value WHERE key = 'epoch' AND value = ?"
            if not saving.execute(same, (str(self.epoch),)).rowcount:
                raise store.TakenOver(self.name)
            yield saving

    def close(self) -> None:
        self._opened.close()

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection | None = None) -> Iterator[sqlite3.Connection]:
        """Commit with this fairlead's version, or roll back. Raises JournalFull if the database cannot be written.

        The first statement must write: it begins the transaction and takes SQLite's write lock.
        """
        if self._head is None:
            raise store.JournalFull(f"{self.name}: is open for reading only")
        self._still_there()
        try:
            with connection or self._writing as writing:
                yield writing
                if self.writer != fairlead.__version__:
                    writing.execute("UPDATE meta SET value = ? WHERE key = 'fairlead'", (fairlead.__version__,))
        except sqlite3.OperationalError as error:
            remedy = "end the program that has locked it" if sqlite.is_locked(error) else "free space on its disk"
            raise store.JournalFull(f"{self.name}: cannot be written: {error}: {remedy}") from None
        except sqlite3.DatabaseError as error:
            raise sqlite.refusal(self.name, error) from None
        self.writer = fairlead.__version__

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """Lock for one reader; report what the database cannot parse as damage."""
        with self._read_lock:
            try:
                yield
            except sqlite3.ProgrammingError:  # the caller's mistake: the store is closed
                raise
            except (sqlite3.DatabaseError, KeyError, ValueError, TypeError, OverflowError) as error:
                raise sqlite.refusal(self.name, error) from None

    def _check(self) -> dict[str, str]:
        """Refuse a file that is not a journal of this schema. Return its metadata."""
        known = self._reading.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if not {("meta",), ("facts",), ("snapshots",)} <= set(known):
            raise store.JournalError(f"{self.name}: not a fairlead journal: name another file")
        meta = dict(self._reading.execute("SELECT key, value FROM meta").fetchall())
        version = int(meta["schema_version"])
        if version > SCHEMA_VERSION:
            what = f"schema {version}, this one knows {SCHEMA_VERSION}"
            raise store.newer(self.name, what, meta.get("fairlead", "an unknown one"))
        if version < OLDEST_VERSION:
            raise store.JournalError(
                f"{self.name}: written by an older fairlead (schema {version}, this one reads {OLDEST_VERSION} to "
                f"{SCHEMA_VERSION}): start one between them first, or finish or cancel its jobs with that and move it away"
            )
        return meta


def _first(rows: Iterator[_Row]) -> Iterator[_Row]:
    """Yield the first rows, whose last column has a slice of bytes or more."""
    size = 0
    for row in rows:
        yield row
        size += len(row[-1])
        if size >= _SLICE:
            return


def _fill(connection: sqlite3.Connection, name: str, epoch: int) -> None:
    """Make the tables of a new journal."""
    connection.executescript("BEGIN;" + _TABLES)
    ours = {"schema_version": SCHEMA_VERSION, "fairlead": fairlead.__version__}
    meta = {**ours, "id": name, "epoch": epoch, "created": int(time.time())}
    connection.executemany("INSERT INTO meta VALUES (?, ?)", [(key, str(value)) for key, value in meta.items()])
