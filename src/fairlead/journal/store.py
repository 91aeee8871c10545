"""Where a journal keeps its bytes: numbered records, each in an envelope, and snapshots.

A store knows nothing of facts and states, and checks nothing that it is given: :class:`fairlead.journal.journal.Journal` does.
:class:`fairlead.journal.memory.MemoryStore` keeps them in memory, :class:`fairlead.journal.sql.SqlStore` in a database.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class JournalError(RuntimeError):
    """A journal that cannot be used; the message says which, why, and what to do."""


class Damaged(JournalError):
    """It is not what was written; `why` says where."""

    def __init__(self, name: str, why: object) -> None:
        super().__init__(
            f"{name}: the journal is damaged ({why}): `fairlead journal check` says what is left of it, and `fairlead journal "
            "repair` goes on with that; or restore a copy of it and its head, or move both away to start anew"
        )
        self.why = str(why)


class NewerJournal(JournalError):
    """A newer fairlead wrote something into it that this one does not know."""


class TakenOver(JournalError):
    """Another scheduler has begun to write it, so this one may not any more."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: another scheduler has begun to write it: this one ends, and its tasks go on")


class JournalFull(JournalError):
    """There is no room to write. Nothing of the batch was written; the same call works once there is room."""


class JournalLost(JournalFull):
    """What was written is not where the next start would find it: nothing was written, and nothing will be until then."""


class Forgotten(LookupError):
    """Facts that are not kept any more; `oldest` is the position of the oldest that is."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"facts before {oldest} are not kept any more: ask for those after {oldest - 1}")
        self.oldest = oldest


ENGINE = "(engine)"
"""Who caused what the engine saw; no account has such a name."""


class Envelope(NamedTuple):
    """What is known of a record without reading it.

    sequence : its number; the first is 1, and none is left out.
    monotonic : seconds of ``time.monotonic()`` of the scheduler that wrote it; 0.0 where unknown.
    wall : seconds since the epoch of 1970, as that scheduler's clock told them.
    by : who caused it: empty for the scheduler itself, `ENGINE`, or a person's name.
    epoch : which run of the scheduler wrote it.
    before : the checksum of the record before.
    checksum : of all of this and the body: see :func:`fairlead.journal.journal.link`.
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
    """A state in parts, as of the record with this number; `checksum` is that record's, and the first part's is made from it."""

    sequence: int
    checksum: int
    parts: Iterable[Part]


class Extent(NamedTuple):
    """How far a store goes.

    last, checksum : of its last record; 0 for none.
    snapshot : the number of the record that its newest snapshot is of; 0 for none.
    since : bytes of the records after that.
    """

    last: int
    checksum: int
    snapshot: int
    since: int


LARGEST_PAGE = 4 * 2**20
"""Bytes of the records that are read at once, where one is not larger by itself."""


def page_of(records: Iterable[Record]) -> list[Record]:
    """The first of some records, one at the least, that are no more than `LARGEST_PAGE` bytes together."""
    page: list[Record] = []
    size = 0
    for record in records:
        size += len(record.body)
        if page and size > LARGEST_PAGE:
            break
        page.append(record)
    return page


class Store(Protocol):
    """A place for records and snapshots. One thread writes; any may read.

    name : how messages call it.
    id : made with it, and its own for ever.
    writer : the version of the fairlead that wrote last.
    epoch : how often a scheduler began to write it.
    """

    name: str
    id: str
    writer: str
    epoch: int

    def extent(self) -> Extent:
        """How far it goes."""

    def head(self) -> tuple[int, int] | None:
        """The number and the checksum of the last record, as they were kept apart; None where they are not asked after."""

    def begin(self, sequence: int, checksum: int) -> None:
        """A scheduler begins to write: the next epoch, durably. The records end with this one, and the head says so.

        Raises TakenOver where they do not: somebody else wrote since they were read.
        """

    def append(self, records: Sequence[Record]) -> None:
        """Write all of the records durably, and the head; or none and raise JournalFull.

        Raises TakenOver where another scheduler has begun to write since.
        """

    def read(self, after: int, most: int) -> list[Record]:
        """The records with the lowest numbers above `after`, a page of `most` at most, as they were written."""

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[Record]:
        """The records that people caused, or one person; from a moment on, and below a number; a page of the `most` highest,
        highest first.
        """

    def snapshots(self) -> list[int]:
        """The numbers of the records that the snapshots which are kept are as of, rising."""

    def snapshot(self, until: int | None = None) -> Snapshot | None:
        """The newest snapshot, or the newest that is as of this record or one before it.

        It is as it was written; its parts are read as they are asked for.
        """

    def save(self, snapshot: Snapshot, keep: int) -> None:
        """Write a snapshot, and drop the records up to the newest snapshot, this one too, with `keep` bytes of them after it.

        The snapshots before that one go as well. So there is always one to begin with where the first records are dropped.
        Raises JournalFull where there is no room, and has done nothing then.
        """

    def close(self) -> None:
        """Give it back; nothing is lost without it."""


def newer(name: str, what: object, writer: str, reader: str) -> NewerJournal:
    """The refusal of `what` the fairlead of version `writer` wrote and that of version `reader` does not know."""
    return NewerJournal(
        f"{name}: written by a newer fairlead ({what}; {writer} wrote last, this is {reader}): "
        "upgrade fairlead, or start with another --home"
    )
