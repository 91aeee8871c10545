"""What a store has of a journal's bytes: numbered records in envelopes, and snapshots.

:class:`fairlead.journal.sql.SqlStore` knows nothing of facts and states, and checks nothing:
:class:`fairlead.journal.journal.Journal` does.
"""

from collections.abc import Iterable
from typing import NamedTuple

import fairlead
from fairlead.failure import Failure


class JournalError(Failure, RuntimeError):
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


def named_node(node: str) -> str:
    """Return who caused it where a node joins or leaves; no account has a space in its name."""
    return f"node {node}"


class Envelope(NamedTuple):
    """The metadata of a record.

    sequence : its number, from 1 without gaps.
    monotonic : ``time.monotonic()`` of the scheduler that wrote it, in seconds; 0.0 if unknown.
    wall : seconds since 1970 by that scheduler's clock.
    by : who caused it: empty for the scheduler itself, `ENGINE`, a person's name, or :func:`named_node`.
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


def newer(name: str, what: object, writer: str) -> NewerJournal:
    """Return the error for `what` version `writer` wrote and this one does not know."""
    return NewerJournal(
        f"{name}: written by a newer fairlead ({what}; {writer} wrote last, this is {fairlead.__version__}): "
        "upgrade fairlead, or start with another --home"
    )
