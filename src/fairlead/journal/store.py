"""Where a journal keeps its bytes: numbered records, each in an envelope, and the newest snapshot.

A store knows nothing of facts and states, and checks nothing that it is given: :class:`fairlead.journal.journal.Journal` does.
:class:`fairlead.journal.memory.MemoryStore` keeps them in memory, :class:`fairlead.journal.sql.SqlStore` in a database.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class JournalError(RuntimeError):
    """A journal that cannot be used; the message says which, why, and what to do."""


class NewerJournal(JournalError):
    """A newer fairlead wrote something into it that this one does not know."""


class JournalFull(JournalError):
    """There is no room to write. Nothing of the batch was written; the same call works once there is room."""


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
    checksum : crc32 of the body.
    """

    sequence: int
    monotonic: float
    wall: float
    by: str
    epoch: int
    checksum: int


class Record(NamedTuple):
    envelope: Envelope
    body: bytes


class Snapshot(NamedTuple):
    """A state as bytes, as of the record with this number; `checksum` is the crc32 of the body."""

    sequence: int
    checksum: int
    body: bytes


class Extent(NamedTuple):
    """How far a store goes: the numbers of its last record and of its snapshot, 0 for none, and the bytes of what came since."""

    last: int
    snapshot: int
    since: int


class Store(Protocol):
    """A place for records and one snapshot. One thread writes; any may read.

    name : how messages call it.
    id : made with it, and its own for ever.
    writer : the version of the fairlead that wrote last.
    """

    name: str
    id: str
    writer: str

    def extent(self) -> Extent:
        """How far it goes."""

    def append(self, records: Sequence[Record]) -> None:
        """Write all of the records durably, or none and raise JournalFull."""

    def read(self, after: int, most: int) -> list[Record]:
        """The records with the lowest numbers above `after`, `most` at most, as they were written."""

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[Record]:
        """The records that people caused, or one person; from a moment on, and below a number; the `most` highest, highest
        first.
        """

    def snapshot(self) -> Snapshot | None:
        """The newest snapshot, as it was written."""

    def save(self, snapshot: Snapshot, keep: int) -> None:
        """Write a snapshot in the place of the one before, and drop the oldest records: the last `keep` bytes stay.

        Raises JournalFull where there is no room, and has done nothing then.
        """

    def close(self) -> None:
        """Give it back; nothing is lost without it."""


def damaged(name: str, why: object) -> JournalError:
    return JournalError(f"{name}: the journal is damaged ({why}): restore a copy of it, or move it away to start anew")


def newer(name: str, what: object, writer: str, reader: str) -> NewerJournal:
    """The refusal of `what` the fairlead of version `writer` wrote and that of version `reader` does not know."""
    return NewerJournal(
        f"{name}: written by a newer fairlead ({what}; {writer} wrote last, this is {reader}): "
        "upgrade fairlead, or start with another --home"
    )
