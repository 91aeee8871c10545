"""Stores of a journal's bytes: numbered records in envelopes, and snapshots.

A store knows nothing of facts and states, and checks nothing: :class:`fairlead.journal.journal.Journal` does.
:class:`fairlead.journal.memory.MemoryStore` is in memory, :class:`fairlead.journal.sql.SqlStore` in a database.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class JournalError(RuntimeError):
    """The journal cannot be used; the message says which, why, and what to do."""


class Damaged(JournalError):
    """It differs from what was written; `why` says where."""

    def __init__(self, name: str, why: object) -> None:
        super().__init__(
            f"{name}: the journal is damaged ({why}): `fairlead journal check` shows what is left of it, and `fairlead journal "
            "repair` continues with that; or restore a copy of it and its head, or move both away to start afresh"
        )
        self.why = str(why)


class NewerJournal(JournalError):
    """A newer fairlead wrote something unknown to this one."""


class TakenOver(JournalError):
    """Another scheduler began to write it, so this one must stop."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: another scheduler has begun to write it: this one ends, and its tasks continue")


class JournalFull(JournalError):
    """No space to write. Nothing of the batch was written; the same call works once there is space."""


class JournalLost(JournalFull):
    """The next start would not find what is written now: nothing was written, and nothing will be until then."""


class Forgotten(LookupError):
    """Facts that are no longer kept; `oldest` is the oldest position that is."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"facts before {oldest} are no longer kept: ask for those after {oldest - 1}")
        self.oldest = oldest


ENGINE = "(engine)"
"""Who caused the engine's reports; no account has this name."""


class Envelope(NamedTuple):
    """The metadata of a record.

    sequence : its number, from 1 without gaps.
    monotonic : ``time.monotonic()`` of the scheduler that wrote it, in seconds; 0.0 if unknown.
    wall : seconds since 1970 by that scheduler's clock.
    by : who caused it: empty for the scheduler itself, `ENGINE`, or a person's name.
    epoch : of the scheduler run that wrote it.
    before : the checksum of the record before.
    checksum : of all this and the body: see :func:`fairlead.journal.journal.link`.
    """

    sequence: int
    monotonic: float
    wall: float
    by: str
    epoch: int
    before: int
    checksum: int


class Record(NamedTuple):
    envelope: Envelope
    body: bytes


class Part(NamedTuple):
    """A piece of a state as bytes; its `checksum` is chained to that of the part before."""

    checksum: int
    body: bytes


class Snapshot(NamedTuple):
    """A state in parts, as of record `sequence`; `checksum` is that record's, and the first part's is chained to it."""

    sequence: int
    checksum: int
    parts: Iterable[Part]


class Extent(NamedTuple):
    """The extent of a store.

    last, checksum : of its last record; 0 if there is none.
    snapshot : the record number of its newest snapshot; 0 if there is none.
    since : bytes of the records after that.
    """

    last: int
    checksum: int
    snapshot: int
    since: int


LARGEST_PAGE = 4 * 2**20
"""Most bytes of records read at once, unless a single one is larger."""


def page_of(records: Iterable[Record]) -> list[Record]:
    """Return the first records, at least one, within `LARGEST_PAGE` bytes in total."""
    page: list[Record] = []
    size = 0
    for record in records:
        size += len(record.body)
        if page and size > LARGEST_PAGE:
            break
        page.append(record)
    return page


class Store(Protocol):
    """A store of records and snapshots. One thread writes; any may read.

    name : its name in messages.
    id : its permanent, unique id.
    writer : the version of fairlead that wrote last.
    epoch : how often a scheduler began to write it.
    """

    name: str
    id: str
    writer: str
    epoch: int

    def extent(self) -> Extent:
        """Return how far it goes."""

    def head(self) -> tuple[int, int] | None:
        """Return the number and checksum of the last record by the separate head; None if there is no head."""

    def begin(self, sequence: int, checksum: int) -> None:
        """Begin a scheduler's writing: store the next epoch, and the head of this record, which must be the last.

        Raises TakenOver if it is not: another scheduler has written since.
        """

    def append(self, records: Sequence[Record]) -> None:
        """Write all of the records durably, and the head; or none and raise JournalFull.

        Raises TakenOver if another scheduler has begun to write since.
        """

    def read(self, after: int, most: int) -> list[Record]:
        """Return the next records above number `after`, a page of at most `most`, as written."""

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[Record]:
        """Return records that people, or one person, caused since `wall` time `since` and below number `before`: the highest,
        in descending order, at most `most`.
        """

    def snapshots(self) -> list[int]:
        """Return the record numbers of the snapshots, ascending."""

    def snapshot(self, until: int | None = None) -> Snapshot | None:
        """Return the newest snapshot, or the newest at or before a record, as written.

        Its parts are read lazily.
        """

    def save(self, snapshot: Snapshot, keep: int) -> None:
        """Write a snapshot. Then drop the records up to the newest snapshot, maybe this one, that has `keep` bytes of records
        after it.

        Earlier snapshots are dropped too, so a snapshot always precedes the first record left. Raises JournalFull if there is
        no space, and has changed nothing then.
        """

    def close(self) -> None:
        """Close it; nothing is lost without it."""


def newer(name: str, what: object, writer: str, reader: str) -> NewerJournal:
    """Return the error for `what` version `writer` wrote and version `reader` does not know."""
    return NewerJournal(
        f"{name}: written by a newer fairlead ({what}; {writer} wrote last, this is {reader}): "
        "upgrade fairlead, or start with another --home"
    )
