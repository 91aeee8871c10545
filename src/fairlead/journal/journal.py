"""Facts in a store: durable before anything acts on them, read back to recover the state.

A journal is a sequence of facts, numbered from 1, and snapshots of the state that follows from them. This module knows
everything about it except how its bytes are stored: how facts are written and checked, how a state is recovered, and what is
refused as damaged or newer.
"""

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from math import inf
from typing import NamedTuple

import msgspec

from fairlead.journal.sql import SqlStore
from fairlead.journal.store import Damaged, Envelope, Forgotten, JournalFull, JournalLost, Part, Record, Snapshot, newer
from fairlead.journal.used_days import UsedDays
from fairlead.scheduler import snapshot
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Contradiction, Fact, decode, encode
from fairlead.scheduler.state import State

SNAPSHOT_AFTER = 8 * 2**20
"""Bytes of facts after which a snapshot is due; or twice the last snapshot's size, if that is more."""
KEEP_HISTORY = 64 * 2**20
"""Least bytes of facts kept before a snapshot; at most as much more as came between two snapshots."""
PAGE = 200
"""Facts read at a time."""


def link(envelope: Envelope, body: bytes) -> int:
    """Return the checksum of a record: 63 bits of BLAKE2b over its body and its envelope, which has the previous checksum.

    So a record is only proved together with all before it. The first record follows :func:`beginning`.
    """
    text = " ".join(map(repr, envelope._replace(checksum=0)))
    return _digest(text.encode("utf-8", "surrogatepass") + body)


def beginning(journal: str) -> int:
    """Return what the first record follows: a checksum of the journal's id, so that other journals' records do not fit."""
    return _digest(journal.encode())


def link_part(sequence: int, before: int, body: bytes) -> int:
    """Return the checksum of a snapshot's part, which follows that of the part before or, first, of the snapshot's record."""
    return _digest(f"{sequence} {before}\n".encode() + body)


def _digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") >> 1


class Journal:
    """Facts in a store. Not thread-safe, except `look` and `caused`.

    make_room : frees space when the disk is full; returns whether it did

    id : the store's
    position : of the last fact
    epoch : how often a scheduler began to write it; with this one after `begin`
    """

    def __init__(self, store: SqlStore, make_room: Callable[[], bool] = lambda: False) -> None:
        self._store, self._make_room = store, make_room
        self.id, self.epoch = store.id, store.epoch
        extent, saved = store.extent(), store.snapshot()
        self.position, self._checksum = extent.last, extent.checksum
        if extent.last == 0 or extent.last < extent.snapshot:
            self.position, self._checksum = saved[:2] if saved else (0, beginning(store.id))
        self._since_snapshot, self._snapshot_size = extent.since, 0

    def begin(self) -> None:
        """Begin to write, in a new epoch. Call it after a successful :meth:`recover`."""
        self._write(lambda: self._store.begin(self.position, self._checksum))
        self.epoch = self._store.epoch

    def append(self, facts: Sequence[Fact], by: Sequence[str] = ()) -> None:
        """Write all of the facts durably, or none and raise JournalFull.

        by : who caused each: a person's name, `ENGINE`, or empty for the scheduler. By default the scheduler.
        """
        if not facts:
            return
        monotonic, wall, checksum = time.monotonic(), time.time(), self._checksum
        records = []
        for sequence, (fact, who) in enumerate(zip(facts, by or [""] * len(facts), strict=True), self.position + 1):
            body = encode(fact)
            envelope = Envelope(sequence, monotonic, wall, who, self.epoch, checksum, 0)
            checksum = link(envelope, body)
            records.append(Record(envelope._replace(checksum=checksum), body))
        self._write(lambda: self._store.append(records))
        self.position, self._checksum = self.position + len(records), checksum
        self._since_snapshot += sum(len(record.body) for record in records)

    def _write(self, write: Callable[[], None]) -> None:
        """Write; on a full disk make room and retry."""
        while True:
            try:
                return write()
            except JournalLost:
                raise
            except JournalFull:
                if not self._make_room():
                    raise

    def recover(self) -> State:
        """Return the state from the newest snapshot and the facts after it.

        Raises NewerJournal for what only a newer fairlead knows, JournalError if something is missing or was changed.
        """
        position, _, state = deque(self.prove(), maxlen=1).pop()
        self.check_end(position)
        return state

    def check_end(self, position: int) -> None:
        """Refuse a journal whose facts end at this position but once went further."""
        head = self._store.head()
        last = max(self.position, head[0] if head else 0)
        if position < last:
            raise Damaged(self._store.name, f"facts {position + 1} to {last} are missing")

    def check_kept(self) -> int:
        """Check all facts, also those before the snapshot. Return their number. Raises JournalError as `recover`."""
        oldest = self._store.read(0, 1)
        after = oldest[0].envelope.sequence - 1 if oldest else self.position
        return sum(1 for _ in self._records(after, beginning(self.id) if after == 0 else None))

    def prove(self, begin: int | None = None) -> Iterator[tuple[int, int, State]]:
        """Go through the journal from a snapshot on, as far as it is proved.

        Yields position and checksum of the snapshot, then of each fact after it, and the state there: the same object each time.
        Raises JournalError where the proof ends; as :meth:`recover`.

        begin : start from the newest snapshot at or before this fact, or from the first fact; by default from the newest
            snapshot
        """
        saved, head = self._store.snapshot(begin), self._store.head()
        position, checksum = saved[:2] if saved else (0, beginning(self.id))
        if head and head[0] < position:
            raise Damaged(self._store.name, f"its head is at fact {head[0]}, its snapshot at {position}")
        state = self._load(saved) if saved else new_state()
        state.days = state.days or UsedDays(begin=state.at)
        self._meet(head, position, checksum)
        yield position, checksum, state
        for record in self._records(position, checksum):
            fact, (position, *_, checksum) = self._decode(record), record.envelope
            self._meet(head, position, checksum)
            try:
                apply(state, fact)
            except (Contradiction, ValueError) as error:
                raise Damaged(self._store.name, f"fact {position}: {error}") from None
            yield position, checksum, state

    def beginnings(self) -> list[int | None]:
        """Return all starting points for :meth:`prove`, newest first."""
        return [None, *self._store.snapshots()[-2::-1], 0]

    def last_at(self) -> float:
        """Return when the last fact happened, in seconds of the facts' clock; -inf if there is none."""
        last = self._store.read(self.position - 1, 1) if self.position else []
        return self._decode(last[0]).at if last else -inf

    def look(self, after: int, most: int) -> list[tuple[int, bytes]]:
        """Return the facts after a position as stored, with their positions; a page of at most `most`. Thread-safe.

        Raises Forgotten if the next fact is no longer kept.
        """
        known = self.position  # before reading: facts appended meanwhile are not forgotten ones
        page = self._store.read(after, most)
        oldest = page[0].envelope.sequence if page else known + 1
        if after + 1 < oldest:
            raise Forgotten(oldest)
        return [(record.envelope.sequence, record.body) for record in self._checked(page, after, None)]

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[tuple[Envelope, Fact]]:
        """Return the newest facts that people caused, newest first; a page of at most `most`. Thread-safe.

        since : seconds since the epoch
        by : one person; None for everybody
        before : only facts with lower numbers
        """
        found = []
        for record in self._store.caused(since, by, before, most):
            self._check_one(record)
            found.append((record.envelope, self._decode(record)))
        return found

    def snapshot_due(self) -> bool:
        """Return True if recovery would be slow without a new snapshot."""
        return self._since_snapshot > max(SNAPSHOT_AFTER, 2 * self._snapshot_size)

    def save(self, state: State) -> Iterator[None]:
        """Store the state, and drop old facts that it covers, in slices of about a millisecond.

        In the first slices memory is found; the state is stored as of the last fact after these. After each slice the state may
        change and more facts may be appended. Until the last of its parts is stored, the snapshot before counts. Raises
        JournalFull.
        """
        room = yield from snapshot.room_for(state)
        position, before, since, size = self.position, self._checksum, self._since_snapshot, 0

        def parts() -> Iterator[Part]:
            nonlocal size
            checksum = before
            for body in snapshot.dump(state, room):
                checksum, size = link_part(position, checksum, body), size + len(body)
                yield Part(checksum, body)

        yield from self._store.save(Snapshot(position, before, parts()), KEEP_HISTORY)
        self._since_snapshot, self._snapshot_size = self._since_snapshot - since, size

    def go_on(self, state: State, position: int, checksum: int) -> None:
        """Continue in an empty journal after another journal's fact, which led to this state."""
        self.position, self._checksum = position, checksum
        list(self.save(state))
        self.begin()

    def close(self) -> None:
        """Close the journal; nothing is lost without it."""
        self._store.close()

    def _records(self, after: int, before: int | None) -> Iterator[Record]:
        """Yield the records after a position, reading pages; the first follows the checksum `before`, if known."""
        while page := self._store.read(after, PAGE):
            yield from self._checked(page, after, before)
            after, before = page[-1].envelope.sequence, page[-1].envelope.checksum

    def _checked(self, page: Iterable[Record], after: int, before: int | None) -> Iterator[Record]:
        """Yield the records after a position; refuse missing and changed ones."""
        for expected, record in enumerate(page, after + 1):
            envelope = record.envelope
            if envelope.sequence != expected:
                raise Damaged(self._store.name, f"fact {expected} is missing")
            self._check_one(record)
            if before is not None and envelope.before != before:
                raise Damaged(self._store.name, f"fact {expected} does not follow the one before it")
            before = envelope.checksum
            yield record

    def _check_one(self, record: Record) -> None:
        envelope, body = record
        if not isinstance(body, bytes) or link(envelope, body) != envelope.checksum:
            raise Damaged(self._store.name, f"fact {envelope.sequence} does not match its checksum")

    def _meet(self, head: tuple[int, int] | None, position: int, checksum: int) -> None:
        """Refuse a history that differs from the head's."""
        if head and head[0] == position and head[1] != checksum:
            raise Damaged(self._store.name, f"fact {position} differs from the one in its head")

    def _decode(self, record: Record) -> Fact:
        try:
            return decode(record.body)
        except msgspec.ValidationError as error:  # the checksum is right, so another fairlead wrote it
            raise newer(self._store.name, f"fact {record.envelope.sequence}: {error}", self._store.writer) from None
        except msgspec.DecodeError as error:
            raise Damaged(self._store.name, f"fact {record.envelope.sequence} cannot be read: {error}") from None

    def _load(self, saved: Snapshot) -> State:
        """Load the state of a snapshot, and note its size."""
        self._snapshot_size = 0

        def bodies() -> Iterator[bytes]:
            checksum = saved.checksum
            for part in saved.parts:
                if not isinstance(part.body, bytes) or link_part(saved.sequence, checksum, part.body) != part.checksum:
                    raise Damaged(self._store.name, "the snapshot does not match its checksum")
                checksum = part.checksum
                self._snapshot_size += len(part.body)
                yield part.body

        try:
            return snapshot.load(bodies(), msgspec.msgpack.Decoder(UsedDays | None).decode)
        except msgspec.ValidationError as error:
            raise newer(self._store.name, f"its snapshot: {error}", self._store.writer) from None
        except (msgspec.DecodeError, ValueError) as error:
            raise Damaged(self._store.name, f"the snapshot cannot be read: {error}") from None


class Unrecorded:
    """A journal that stores nothing, for simulations; see :class:`Journal`."""

    def __init__(self) -> None:
        self.id, self.epoch = uuid.uuid4().hex, 0
        self.position = 0

    def begin(self) -> None:
        self.epoch += 1

    def append(self, facts: Sequence[Fact], by: Sequence[str] = ()) -> None:
        self.position += len(facts)

    def recover(self) -> State:
        return new_state()

    def snapshot_due(self) -> bool:
        return False

    def save(self, state: State) -> Iterator[None]:
        yield from ()


class History(NamedTuple):
    """The known part of the past.

    known : the state before the facts; None if they are all there ever were
    position : of the last fact before them
    facts : in order
    """

    known: State | None
    position: int
    facts: Iterator[Fact]


def read_history(store: SqlStore, since: float = -inf) -> History:
    """Return the stored facts, and the state before them.

    since : seconds of the facts' clock: facts before the newest snapshot of that time, or an earlier one, may be left out

    Raises
    ------
    JournalError
        As :meth:`Journal.recover`; the iterator too.
    """
    journal = Journal(store)
    oldest = store.read(0, 1)
    first = oldest[0].envelope.sequence if oldest else journal.position + 1
    begins = [0] * (first == 1) + [position for position in store.snapshots() if position >= first - 1]
    if not begins:
        raise Damaged(store.name, f"no snapshot precedes fact {first}, the oldest")
    begin = begins[0]
    for position in begins[1:]:
        record = store.read(position - 1, 1)
        if record and journal._decode(record[0]).at > since:
            break
        begin = position
    saved = store.snapshot(begin) if begin else None
    known, before = (journal._load(saved), saved.checksum) if saved else (None, beginning(store.id))
    return History(known, begin, map(journal._decode, journal._records(begin, before)))
