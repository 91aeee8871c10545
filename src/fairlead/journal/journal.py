"""Facts kept in a store: durable before anything acts on them, read back to recover the state.

A journal is a numbered sequence of facts, the first is number 1, and snapshots of the state that follows from them.
Here is all that is to know of it but how its bytes are kept: how facts are written and checked, how a state is recovered, and
what is refused as damaged or as newer.
"""

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from math import inf
from typing import NamedTuple

import msgspec

import fairlead
from fairlead.journal.store import (
    Damaged,
    Envelope,
    Forgotten,
    JournalError,
    JournalFull,
    JournalLost,
    Part,
    Record,
    Snapshot,
    Store,
    newer,
)
from fairlead.scheduler import snapshot
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Contradiction, Fact, decode, encode
from fairlead.scheduler.state import State

SNAPSHOT_AFTER = 8 * 2**20
"""Bytes of facts after which a snapshot is due; or twice the last snapshot's, if that is more."""
KEEP_HISTORY = 64 * 2**20
"""Bytes of facts that are kept though a snapshot covers them, at least; it may be as much more as came between two snapshots."""
PAGE = 200
"""Facts that are read at a time."""


def link(envelope: Envelope, body: bytes) -> int:
    """The checksum of a record: 63 bits of BLAKE2b over its body and all of its envelope, with the checksum of the one before.

    So a record is proved only together with all that came before it. The first comes after :func:`beginning`.
    """
    told = " ".join(map(repr, envelope._replace(checksum=0)))
    return _digest(told.encode("utf-8", "surrogatepass") + body)


def beginning(journal: str) -> int:
    """What the first record comes after, so that no record of another journal does: a checksum of the journal's id."""
    return _digest(journal.encode())


def link_part(sequence: int, before: int, body: bytes) -> int:
    """The checksum of a part of a snapshot, after that of the part before or, for the first, of the record that it is as of."""
    return _digest(f"{sequence} {before}\n".encode() + body)


def _digest(told: bytes) -> int:
    return int.from_bytes(blake2b(told, digest_size=8).digest(), "big") >> 1


class Journal:
    """Facts in a store. One thread calls it; any may `look`.

    Parameters
    ----------
    store : Store
    make_room : callable, optional
        Makes some where there is none to write; returns whether it did.

    Attributes
    ----------
    id : str
        The store's own.
    position : int
        Of the last fact.
    epoch : int
        How often a scheduler began to write it, this one too once it did.
    """

    def __init__(self, store: Store, make_room: Callable[[], bool] = lambda: False) -> None:
        self._store, self._make_room = store, make_room
        self.id, self.epoch = store.id, store.epoch
        extent, saved = store.extent(), store.snapshot()
        self.position, self._checksum = extent.last, extent.checksum
        if extent.last == 0 or extent.last < extent.snapshot:
            self.position, self._checksum = saved[:2] if saved else (0, beginning(store.id))
        self._since_snapshot, self._snapshot_size = extent.since, 0

    def begin(self) -> None:
        """Begin to write, in an epoch of its own. To be called after :meth:`recover` found all as it should be."""
        self._write(lambda: self._store.begin(self.position, self._checksum))
        self.epoch = self._store.epoch

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
        """Write what must be written, also where room must be made for it."""
        while True:
            try:
                return write()
            except JournalLost:
                raise
            except JournalFull:
                if not self._make_room():
                    raise

    def recover(self) -> State:
        """The state that follows from what is kept: the newest snapshot, then the facts after it.

        Raises
        ------
        NewerJournal
            It holds what only a newer fairlead knows.
        JournalError
            Something is missing, or is not what was written.
        """
        position, _, state = deque(self.prove(), maxlen=1).pop()
        self.check_end(position)
        return state

    def check_end(self, position: int) -> None:
        """Refuse a journal of which no more than the facts up to this position is there, but was."""
        head = self._store.head()
        last = max(self.position, head[0] if head else 0)
        if position < last:
            raise Damaged(self._store.name, f"facts {position + 1} to {last} are missing")

    def check_kept(self) -> int:
        """Look at all facts that are kept, those before the snapshot too; how many they are. Raises JournalError as `recover`."""
        oldest = self._store.read(0, 1)
        after = oldest[0].envelope.sequence - 1 if oldest else self.position
        return sum(1 for _ in self._records(after, beginning(self.id) if after == 0 else None))

    def prove(self, begin: int | None = None) -> Iterator[tuple[int, int, State]]:
        """Go through what is kept, from a snapshot on, as far as it is proved to be what was written.

        Parameters
        ----------
        begin : int, optional
            With the newest snapshot that is as of this fact or one before it, or with the first fact; without, the newest.

        Yields
        ------
        position, checksum : int
            Of the snapshot, then of each fact after it.
        state : State
            What follows from all up to there: the same object each time.

        Raises
        ------
        JournalError
            Where it is no further proved; as :meth:`recover`.
        """
        saved, head = self._store.snapshot(begin), self._store.head()
        position, checksum = saved[:2] if saved else (0, beginning(self.id))
        if head and head[0] < position:
            raise Damaged(self._store.name, f"its head is at fact {head[0]}, its snapshot at {position}")
        state = self._load(saved) if saved else new_state()
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
        """All that :meth:`prove` can begin with, the newest first."""
        return [None, *self._store.snapshots()[-2::-1], 0]

    def last_at(self) -> float:
        """When the last fact happened that is kept, in seconds of the clock that facts go by; minus infinity for none."""
        last = self._store.read(self.position - 1, 1) if self.position else []
        return self._decode(last[0]).at if last else -inf

    def look(self, after: int, most: int) -> list[tuple[int, bytes]]:
        """The facts after a position as they were written, with theirs; a page of `most` at most. From any thread.

        Raises Forgotten where the next fact is not kept any more.
        """
        known = self.position  # before it is read: what is appended meanwhile was not forgotten
        page = self._store.read(after, most)
        oldest = page[0].envelope.sequence if page else known + 1
        if after + 1 < oldest:
            raise Forgotten(oldest)
        return [(record.envelope.sequence, record.body) for record in self._checked(page, after, None)]

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[tuple[Envelope, Fact]]:
        """The newest facts that people caused, newest first; a page of `most` at most. From any thread.

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
            self._check_one(record)
            found.append((record.envelope, self._decode(record)))
        return found

    def snapshot_due(self) -> bool:
        """Tell whether so much came since the last snapshot that recovery would be slow."""
        return self._since_snapshot > max(SNAPSHOT_AFTER, 2 * self._snapshot_size)

    def save(self, state: State) -> None:
        """Keep the state as of the last fact, and drop old facts that it covers; or raise JournalFull."""
        size = 0

        def parts() -> Iterator[Part]:
            nonlocal size
            checksum = self._checksum
            for body in snapshot.dump(state):
                checksum, size = link_part(self.position, checksum, body), size + len(body)
                yield Part(checksum, body)

        self._store.save(Snapshot(self.position, self._checksum, parts()), KEEP_HISTORY)
        self._since_snapshot, self._snapshot_size = 0, size

    def go_on(self, state: State, position: int, checksum: int) -> None:
        """Have an empty journal go on after another's fact with this position and checksum, which led to this state."""
        self.position, self._checksum = position, checksum
        self.save(state)
        self.begin()

    def close(self) -> None:
        """Give the journal back; nothing is lost without it."""
        self._store.close()

    def _records(self, after: int, before: int | None) -> Iterator[Record]:
        """Go through the records after a position, a page at a time; the first comes after the checksum `before`, if known."""
        while page := self._store.read(after, PAGE):
            yield from self._checked(page, after, before)
            after, before = page[-1].envelope.sequence, page[-1].envelope.checksum

    def _checked(self, page: Iterable[Record], after: int, before: int | None) -> Iterator[Record]:
        """The records that follow a position, refused where one is missing or is not what was written."""
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
        """Refuse a record that is not what was written."""
        envelope, body = record
        if not isinstance(body, bytes) or link(envelope, body) != envelope.checksum:
            raise Damaged(self._store.name, f"fact {envelope.sequence} is not what was written")

    def _meet(self, head: tuple[int, int] | None, position: int, checksum: int) -> None:
        """Refuse another history than the one that the head is of."""
        if head and head[0] == position and head[1] != checksum:
            raise Damaged(self._store.name, f"fact {position} is another than the one that its head is of")

    def _decode(self, record: Record) -> Fact:
        try:
            return decode(record.body)
        except msgspec.ValidationError as error:  # its checksum is right: so it was written so, by another fairlead
            raise self._newer(f"fact {record.envelope.sequence}: {error}") from None
        except msgspec.DecodeError as error:
            raise Damaged(self._store.name, f"fact {record.envelope.sequence} cannot be read: {error}") from None

    def _load(self, saved: Snapshot) -> State:
        """The state of a snapshot, and how large that is."""
        self._snapshot_size = 0

        def bodies() -> Iterator[bytes]:
            checksum = saved.checksum
            for part in saved.parts:
                if not isinstance(part.body, bytes) or link_part(saved.sequence, checksum, part.body) != part.checksum:
                    raise Damaged(self._store.name, "the snapshot is not what was written")
                checksum = part.checksum
                self._snapshot_size += len(part.body)
                yield part.body

        try:
            return snapshot.load(bodies())
        except msgspec.ValidationError as error:
            raise self._newer(f"its snapshot: {error}") from None
        except (msgspec.DecodeError, ValueError) as error:
            raise Damaged(self._store.name, f"the snapshot cannot be read: {error}") from None

    def _newer(self, what: str) -> JournalError:
        return newer(self._store.name, what, self._store.writer, fairlead.__version__)


class Unrecorded:
    """A journal that keeps nothing, for simulations; see :class:`Journal`."""

    def __init__(self) -> None:
        self.id, self.epoch = uuid.uuid4().hex, 0
        self.position = 0

    def begin(self) -> None:
        self.epoch += 1

    def append(self, facts: Sequence[Fact], by: Sequence[str] = ()) -> None:
        self.position += len(facts)

    def recover(self) -> State:
        """The state before anything happened."""
        return new_state()

    def look(self, after: int, most: int) -> list[tuple[int, bytes]]:
        if after < self.position:
            raise Forgotten(self.position + 1)
        return []

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[tuple[Envelope, Fact]]:
        return []

    def snapshot_due(self) -> bool:
        return False

    def save(self, state: State) -> None:
        pass

    def close(self) -> None:
        pass


class History(NamedTuple):
    """What is known of a time that has passed.

    known : the state before the facts; None where they are all that there ever were
    position : of the last fact before them
    facts : in order
    """

    known: State | None
    position: int
    facts: Iterator[Fact]


def read_history(store: Store, since: float = -inf) -> History:
    """The facts that a store keeps, and what is known of the time before them.

    Parameters
    ----------
    store : Store
    since : float
        Seconds as in the facts: those that happened before the newest snapshot of that time, or an earlier one, may be left out.

    Raises
    ------
    JournalError
        As :meth:`Journal.recover`; the iterator as well.
    """
    journal = Journal(store)
    oldest = store.read(0, 1)
    first = oldest[0].envelope.sequence if oldest else journal.position + 1
    begins = [0] * (first == 1) + [position for position in store.snapshots() if position >= first - 1]
    if not begins:
        raise Damaged(store.name, f"there is no snapshot from before fact {first}, the oldest")
    begin = begins[0]
    for position in begins[1:]:
        record = store.read(position - 1, 1)
        if record and journal._decode(record[0]).at > since:
            break
        begin = position
    saved = store.snapshot(begin) if begin else None
    known, before = (journal._load(saved), saved.checksum) if saved else (None, beginning(store.id))
    return History(known, begin, map(journal._decode, journal._records(begin, before)))
