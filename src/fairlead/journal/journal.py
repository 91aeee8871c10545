"""Facts kept in a store: durable before anything acts on them, read back to recover the state.

A journal is a numbered sequence of facts, the first is number 1, and the newest snapshot of the state that follows from them.
Here is all that is to know of it but how its bytes are kept: how facts are written and checked, how a state is recovered, and
what is refused as damaged or as newer.
"""

import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

import fairlead
from fairlead.journal.store import (
    Envelope,
    Forgotten,
    JournalError,
    Record,
    Snapshot,
    Store,
    damaged,
    newer,
)
from fairlead.scheduler import snapshot
from fairlead.scheduler.facts import Fact, decode, encode
from fairlead.scheduler.state import Contradiction, State

SNAPSHOT_AFTER = 8 * 2**20
"""Bytes of facts after which a snapshot is due; or twice the last snapshot's, if that is more."""
KEEP_HISTORY = 64 * 2**20
"""Bytes of facts that are kept though a snapshot covers them."""
PAGE = 200
"""Facts that are read at a time."""


class Journal:
    """Facts in a store. One thread calls it; any may `look`.

    Parameters
    ----------
    store : Store

    Attributes
    ----------
    id : str
        The store's own.
    position : int
        Of the last fact.
    epoch : int
        Which run of the scheduler this is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.id, self.epoch = store.id, 0
        extent = store.extent()
        self.position = max(extent.last, extent.snapshot)
        self._since_snapshot, self._snapshot_size = extent.since, 0

    def append(self, facts: Sequence[Fact], by: Sequence[str] = ()) -> None:
        """Write all of the facts durably, or none and raise JournalFull.

        Parameters
        ----------
        facts : sequence of Fact
        by : sequence of str
            Who caused each: a person's name, `ENGINE`, or empty for the scheduler itself. Without, it was the scheduler.
        """
        if not facts:
            return
        monotonic, wall = time.monotonic(), time.time()
        records = []
        for sequence, (fact, who) in enumerate(zip(facts, by or [""] * len(facts), strict=True), self.position + 1):
            body = encode(fact)
            records.append(Record(Envelope(sequence, monotonic, wall, who, self.epoch, zlib.crc32(body)), body))
        self._store.append(records)
        self.position += len(records)
        self._since_snapshot += sum(len(record.body) for record in records)

    def recover(self) -> State:
        """The state that follows from what is kept: the newest snapshot, then the facts after it.

        Raises
        ------
        NewerJournal
            It holds what only a newer fairlead knows.
        JournalError
            Something is missing, or is not what was written.
        """
        saved = self._store.snapshot()
        position, state = (saved.sequence, self._load(saved)) if saved else (0, State())
        for record in self._records(position):
            fact, position = self._decode(record), record.envelope.sequence
            try:
                state.apply(fact)
            except (Contradiction, ValueError) as error:
                raise damaged(self._store.name, f"fact {position}: {error}") from None
        if position != self.position:
            raise damaged(self._store.name, f"fact {position + 1} is missing")
        self._snapshot_size = len(saved.body) if saved else 0
        return state

    def look(self, after: int, most: int) -> list[tuple[int, bytes]]:
        """The facts after a position as they were written, with theirs; `most` at most. From any thread.

        Raises Forgotten where the next fact is not kept any more.
        """
        known = self.position  # before it is read: what is appended meanwhile was not forgotten
        page = self._store.read(after, most)
        oldest = page[0].envelope.sequence if page else known + 1
        if after + 1 < oldest:
            raise Forgotten(oldest)
        return [(record.envelope.sequence, record.body) for record in self._checked(page, after)]

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[tuple[Envelope, Fact]]:
        """The newest facts that people caused, newest first; `most` at most. From any thread.

        Parameters
        ----------
        since : float
            Seconds since the epoch.
        by : str or None
            Those of one person; None for everybody's.
        before : int or None
            Those with a lower number.
        """
        found = []
        for record in self._store.caused(since, by, before, most):
            if not _is_sound(record.body, record.envelope.checksum):
                raise damaged(self._store.name, f"fact {record.envelope.sequence} is not what was written")
            found.append((record.envelope, self._decode(record)))
        return found

    def snapshot_due(self) -> bool:
        """Tell whether so much came since the last snapshot that recovery would be slow."""
        return self._since_snapshot > max(SNAPSHOT_AFTER, 2 * self._snapshot_size)

    def save(self, state: State) -> None:
        """Keep the state as of the last fact, and drop old facts that it covers; or raise JournalFull."""
        body = snapshot.dump(state)
        self._store.save(Snapshot(self.position, zlib.crc32(body), body), KEEP_HISTORY)
        self._since_snapshot, self._snapshot_size = 0, len(body)

    def close(self) -> None:
        """Give the journal back; nothing is lost without it."""
        self._store.close()

    def _records(self, after: int) -> Iterator[Record]:
        """Go through the records after a position, a page at a time."""
        while page := self._store.read(after, PAGE):
            yield from self._checked(page, after)
            after += len(page)

    def _checked(self, page: Iterable[Record], after: int) -> Iterator[Record]:
        """The records that follow a position, refused where one is missing or is not what was written."""
        for expected, record in enumerate(page, after + 1):
            if record.envelope.sequence != expected:
                raise damaged(self._store.name, f"fact {expected} is missing")
            if not _is_sound(record.body, record.envelope.checksum):
                raise damaged(self._store.name, f"fact {expected} is not what was written")
            yield record

    def _decode(self, record: Record) -> Fact:
        try:
            return decode(record.body)
        except msgspec.ValidationError as error:  # its checksum is right: so it was written so, by another fairlead
            raise self._newer(f"fact {record.envelope.sequence}: {error}") from None
        except msgspec.DecodeError as error:
            raise damaged(self._store.name, f"fact {record.envelope.sequence} cannot be read: {error}") from None

    def _load(self, saved: Snapshot) -> State:
        if not _is_sound(saved.body, saved.checksum):
            raise damaged(self._store.name, "the snapshot is not what was written")
        try:
            return snapshot.load(saved.body)
        except msgspec.ValidationError as error:
            raise self._newer(f"its snapshot: {error}") from None
        except (msgspec.DecodeError, ValueError) as error:
            raise damaged(self._store.name, f"the snapshot cannot be read: {error}") from None

    def _newer(self, what: str) -> JournalError:
        return newer(self._store.name, what, self._store.writer, fairlead.__version__)


class Unrecorded:
    """A journal that keeps nothing, for simulations; see :class:`Journal`."""

    def __init__(self) -> None:
        self.id, self.epoch = uuid.uuid4().hex, 0
        self.position = 0

    def append(self, facts: Sequence[Fact], by: Sequence[str] = ()) -> None:
        self.position += len(facts)

    def recover(self) -> State:
        """The state before anything happened."""
        return State()

    def look(self, after: int, most: int) -> list[tuple[int, bytes]]:
        if after < self.position:
            raise Forgotten(self.position + 1)
        return []

    def snapshot_due(self) -> bool:
        return False

    def save(self, state: State) -> None:
        pass

    def close(self) -> None:
        pass


def read_history(store: Store) -> tuple[State | None, Iterator[Fact]]:
    """What is known of the time before the facts that a store keeps, and these facts.

    Returns
    -------
    State or None
        That of the newest snapshot, where the first facts are not kept any more.
    iterator of Fact

    Raises
    ------
    JournalError
        As :meth:`Journal.recover`; the iterator as well.
    """
    journal = Journal(store)
    saved, oldest = store.snapshot(), store.read(0, 1)
    first = oldest[0].envelope.sequence if oldest else journal.position + 1
    known = journal._load(saved) if saved and first > 1 else None
    return known, map(journal._decode, journal._records(first - 1))


def _is_sound(body: object, checksum: object) -> bool:
    return isinstance(body, bytes) and checksum == zlib.crc32(body)
