"""Jobs by number: what was submitted, and in which row of the table it is."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, MutableMapping, Sequence, Set
from itertools import chain
from typing import TypeVar

import numpy as np
from msgspec import Struct

from fairlead.model.job_columns import LARGE_JOB_BYTES
from fairlead.model.specs import Job
from fairlead.scheduler.tables import I64, NONE, Jobs, Table

T = TypeVar("T")
BLOCK_BITS = 12
"""Jobs are kept in blocks of 2**BLOCK_BITS numbers."""


class ByNumber(MutableMapping[int, T]):
    """What is known of jobs, by number, in blocks: jobs that are added move only those of their own block.

    A copy shares all blocks. A block is copied when either of the two first changes something in it.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, T]] = {}
        self._own = set[int]()  # blocks that no copy shares

    def __getitem__(self, number: int) -> T:
        try:
            return self._blocks[number >> BLOCK_BITS][number]
        except KeyError:
            raise KeyError(number) from None

    def __setitem__(self, number: int, value: T) -> None:
        self._to_change(number >> BLOCK_BITS)[number] = value

    def __delitem__(self, number: int) -> None:
        key = number >> BLOCK_BITS
        if number not in self._blocks.get(key, ()):
            raise KeyError(number)
        block = self._to_change(key)
        del block[number]
        if not block:
            del self._blocks[key]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._blocks.values())

    def __len__(self) -> int:
        return sum(map(len, self._blocks.values()))

    def add(self, numbers: Sequence[int], values: Sequence[T]) -> None:
        """Set many; the numbers ascend."""
        for key, here in _by_block(numbers):
            self._to_change(key).update(zip(numbers[here], values[here], strict=True))

    def remove(self, numbers: Sequence[int]) -> list[T]:
        """Remove many and return them; the numbers ascend."""
        found: list[T] = []
        for key, here in _by_block(numbers):
            block = self._to_change(key)
            found += map(block.pop, numbers[here])
            if not block:
                del self._blocks[key]
        return found

    def copy(self) -> "ByNumber[T]":
        found = type(self)()
        found._blocks, self._own = self._blocks.copy(), set()  # from now on, neither owns any
        return found

    def _to_change(self, key: int) -> dict[int, T]:
        """Return a block that no copy shares."""
        if key not in self._own:
            self._own.add(key)
            self._blocks[key] = self._blocks[key].copy() if key in self._blocks else {}
        return self._blocks.setdefault(key, {})


def _by_block(numbers: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """Yield the blocks of ascending numbers, and which of these are in each."""
    begin = 0
    while begin < len(numbers):
        key = numbers[begin] >> BLOCK_BITS
        end = bisect_left(numbers, (key + 1) << BLOCK_BITS, begin)
        yield key, slice(begin, end)
        begin = end


class Specs(ByNumber[Job]):
    """Jobs by number, and by the names and groups that they have, which are looked up in each block when they are needed."""

    def __init__(self) -> None:
        super().__init__()
        self._named: dict[int, dict[str, list[int]]] = {}

    def named(self, names: Set[str]) -> Iterator[tuple[int, Job]]:
        """Yield the jobs of some names or groups, in ascending order."""
        for key, block in sorted(self._blocks.items()):
            if key not in self._named:
                here = self._named.setdefault(key, {})
                for number, job in block.items():
                    for name in {job.name, job.group} - {""}:
                        here.setdefault(name, []).append(number)
            found = {number for name in names for number in self._named[key].get(name, ())}
            yield from ((number, block[number]) for number in sorted(found))

    def _to_change(self, key: int) -> dict[int, Job]:
        self._named.pop(key, None)
        return super()._to_change(key)


class _Rows(Table):
    """Rows by number, from the first known one on; NONE for forgotten jobs."""

    RESERVES = True

    row: I64


class JobIndex(Struct, dict=True):
    """What is known of jobs beside the table.

    last : the number of the last job
    specs : by number
    keys : numbers by idempotency key
    heavy, heavier : by number, the extra weight of large jobs; and its sum
    led, in_executors, delayed : gangs that end with their first task, tasks inside executors of frameworks, and jobs whose
        failed tasks wait before they start again
    first : the number of `row_of[0]`
    """

    last: int = 0

    def __post_init__(self) -> None:
        self.specs = Specs()
        self.rebuild()
        self.first = 1
        self.rows = _Rows([0])

    @property
    def row_of(self) -> I64:
        """Rows by number, NONE for forgotten jobs."""
        return self.rows.row[: self.rows.n]

    def rebuild(self) -> None:
        """Recompute what follows from `specs`."""
        self.keys: dict[str, int] = {}
        self.heavy: dict[int, int] = {}
        self.heavier = 0
        self.led, self.in_executors, self.delayed = set[int](), set[int](), set[int]()
        for number, job in self.specs.items():
            self._note(number, job)

    def _note(self, number: int, job: Job) -> None:
        """Note what few jobs have."""
        if job.key:
            self.keys[job.key] = number
        if more := job.size // LARGE_JOB_BYTES:
            self.heavy[number] = more
            self.heavier += more
        if job.is_led:
            self.led.add(number)
        if job.runs_in_executor:
            self.in_executors.add(number)
        if job.retry_delay:
            self.delayed.add(number)

    def add(self, numbers: I64, jobs: Sequence[Job], rows: I64, noted: Iterable[int] = ()) -> None:
        """Add jobs with ascending new numbers; `noted` has the places of the jobs of which it notes more."""
        self.specs.add(numbers.tolist(), jobs)
        self.last = int(numbers[-1])
        self._extend()
        self.row_of[numbers - self.first] = rows
        for place in noted:
            self._note(int(numbers[place]), jobs[place])

    def _extend(self) -> None:
        begin = self.rows.extend(self.last - self.first + 1 - self.rows.n)
        self.row_of[begin:] = NONE

    def find(self, number: int) -> int:
        """Return the row of a job, NONE if it is unknown or forgotten."""
        place = number - self.first
        return int(self.rows.row[place]) if 0 <= place < self.rows.n else NONE

    def forget(self, numbers: I64) -> None:
        self.row_of[numbers - self.first] = NONE
        gone = self.specs.remove(np.sort(numbers).tolist())
        if self.keys:
            for job in gone:
                self.keys.pop(job.key, None)
        if self.heavy:
            for number in numbers.tolist():
                self.heavier -= self.heavy.pop(number, 0)
        for some in (self.led, self.in_executors, self.delayed):
            if some:
                some.difference_update(numbers.tolist())

    def renumber(self, table: Jobs) -> None:
        """Recompute all rows."""
        numbers = table.id[: table.n]
        known = np.flatnonzero(numbers != NONE)
        self.first = int(numbers[known[0]]) if len(known) else self.last + 1
        self.rows = _Rows([0])
        self._extend()
        self.row_of[numbers[known] - self.first] = known
