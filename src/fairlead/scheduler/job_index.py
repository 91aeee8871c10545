"""Jobs by number: what was submitted, and in which row of the table it is."""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct, field

from fairlead.model.job_columns import LARGE_JOB_BYTES
from fairlead.model.specs import Job
from fairlead.scheduler.tables import I64, NONE, Jobs


class JobIndex(Struct, dict=True, forbid_unknown_fields=True):
    """What is known of jobs beside the table.

    last : the number of the last job
    specs : by number
    keys : numbers by idempotency key
    heavy, heavier : by number, the extra weight of large jobs; and its sum
    led, in_executors, delayed : gangs that end with their first task, tasks inside executors of frameworks, and jobs whose
        failed tasks wait before they start again
    first : the number of `row_of[0]`
    row_of : int64 array: rows by number, NONE for forgotten jobs
    """

    last: int = 0
    specs: dict[int, Job] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rebuild()
        self.first = 1
        self.row_of: I64 = np.zeros(0, np.int64)

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
        self.specs.update(zip(numbers.tolist(), jobs, strict=True))
        self.last = int(numbers[-1])
        missing = self.last - self.first + 1 - len(self.row_of)
        if missing > 0:
            more = np.full(max(missing, len(self.row_of), 16), NONE, np.int64)
            self.row_of = np.concatenate([self.row_of, more])
        self.row_of[numbers - self.first] = rows
        for place in noted:
            self._note(int(numbers[place]), jobs[place])

    def find(self, number: int) -> int:
        """Return the row of a job, NONE if it is unknown or forgotten."""
        place = number - self.first
        return int(self.row_of[place]) if 0 <= place < len(self.row_of) else NONE

    def forget(self, numbers: I64) -> None:
        """Remove jobs."""
        self.row_of[numbers - self.first] = NONE
        gone = list(map(self.specs.pop, numbers.tolist()))
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
        self.row_of = np.full(self.last - self.first + 1, NONE, np.int64)
        self.row_of[numbers[known] - self.first] = known
