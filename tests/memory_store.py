"""A store in memory."""

import uuid
from collections.abc import Iterator, Sequence
from itertools import accumulate

import fairlead
from fairlead.journal.store import ENGINE, Extent, Record, Snapshot, TakenOver, page_of


class MemoryStore:
    """See :class:`fairlead.journal.sql.SqlStore`. Its content outlives the journals over it."""

    def __init__(self) -> None:
        self.name, self.id, self.writer = "memory", uuid.uuid4().hex, fairlead.__version__
        self.epoch = 0
        self._records: list[Record] = []
        self._snapshots: list[Snapshot] = []

    def extent(self) -> Extent:
        snapshot = max(self.snapshots(), default=0)
        last = self._records[-1].envelope if self._records else None
        since = sum(len(record.body) for record in self._records if record.envelope.sequence > snapshot)
        return Extent(last.sequence if last else 0, last.checksum if last else 0, snapshot, since)

    def head(self) -> tuple[int, int] | None:
        return None  # it would share the memory's fate

    def begin(self, sequence: int, checksum: int) -> None:
        self.epoch += 1

    def append(self, records: Sequence[Record]) -> None:
        if records and records[0].envelope.epoch < self.epoch:
            raise TakenOver(self.name)
        self._records += records

    def read(self, after: int, most: int) -> list[Record]:
        records = self._records  # `save` replaces the list
        begin = max(0, after + 1 - records[0].envelope.sequence) if records else 0
        return page_of(records[begin : begin + most])

    def caused(self, since: float, by: str | None, before: int | None, most: int) -> list[Record]:
        found = []
        for record in reversed(self._records):
            number, who = record.envelope.sequence, record.envelope.by
            theirs = who not in ("", ENGINE) if by is None else who == by
            if theirs and record.envelope.wall >= since and (before is None or number < before):
                found.append(record)
        return page_of(found[:most])

    def snapshots(self) -> list[int]:
        return [snapshot.sequence for snapshot in self._snapshots]

    def snapshot(self, until: int | None = None) -> Snapshot | None:
        return next((s for s in reversed(self._snapshots) if until is None or s.sequence <= until), None)

    def save(self, snapshot: Snapshot, keep: int) -> Iterator[None]:
        parts = []
        for part in snapshot.parts:
            parts.append(part)
            yield
        kept = list(self._snapshots)
        if snapshot.sequence not in self.snapshots():
            kept.append(snapshot._replace(parts=parts))
        before = [record for record in reversed(self._records) if record.envelope.sequence <= snapshot.sequence]
        sizes = accumulate((len(record.body) for record in before), initial=0)
        enough = [r.envelope.sequence for r, after in zip(before, sizes, strict=False) if after >= keep]
        first = max((s.sequence for s in kept if enough and s.sequence <= enough[0]), default=0)
        self._snapshots = [s for s in kept if s.sequence >= first]
        self._records = [record for record in self._records if record.envelope.sequence > first]

    def close(self) -> None:
        pass
