"""The state: what follows from the facts so far, as data. :func:`fairlead.scheduler.effects.apply` alone changes it.

Two states that saw the same facts are equal. Here is what a state is made of, and how things are found in it.
"""

from math import inf
from typing import Any

import numpy as np

from fairlead.model.specs import JobStatus, Policy, Quantities, Queue, Settings, written
from fairlead.scheduler.cluster import Constraints
from fairlead.scheduler.dependencies import Attempt, Deadlines, Dependencies, JobCaps
from fairlead.scheduler.facts import Attempts, Contradiction, Ints, Revocation
from fairlead.scheduler.framework_index import holds_jobs_of
from fairlead.scheduler.job_index import JobIndex
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.view import ENDED, HISTOGRAMS, HOLDS
from fairlead.scheduler.order import Order
from fairlead.scheduler.records import Records
from fairlead.scheduler.statuses import JOB_STATUSES, PLACED, REVOKING, RUNNING
from fairlead.scheduler.tables import I64, NONE

ShapeKey = tuple[tuple[tuple[str, int], ...], Constraints]
GroupKey = tuple[int, int, int, int, bool]


class State(Records):
    """Everything the scheduler knows: its records, and what is not in tables.

    Attributes
    ----------
    settings : Settings
    index, dependencies, deadlines
        Jobs by number, which jobs come after which, and when the time of what is over.
    shape_keys : list
        Of each shape, its demand and its constraints.
    shape_rows, group_rows : dict
        Shapes and groups by what they are.
    any_revocable : bool
        True if some group is of revocable jobs.
    broken_gangs : set of int
        Job numbers: a task was lost while others run.
    job_caps : JobCaps
        Whose jobs wait for others of the same person to end; it follows from the tables.
    revocations : dict of int to Revocation
        By the number of the job whose tasks were preempted.
    forgotten, dead_tasks : int
        How many of `ended` are forgotten, and how many rows of tasks are of forgotten jobs.
    order : Order
        Who goes next, kept from one decision to the next: a cache, which changes nothing that is decided.
    at : float
        The time of the last fact; minus infinity before the first.
    version : int
        Counts facts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.settings = Settings()
        self.index, self.dependencies, self.deadlines = JobIndex(), Dependencies(), Deadlines()
        self.shape_keys: list[ShapeKey] = []
        self.shape_rows: dict[tuple[ShapeKey, int], int] = {}
        self.group_rows: dict[GroupKey, int] = {}
        self.any_revocable = False
        self.broken_gangs: set[int] = set()
        self.job_caps = JobCaps()
        self.revocations: dict[int, Revocation] = {}
        self.at = -inf
        self.forgotten = self.dead_tasks = 0
        self.order = Order(self.moves)
        self.version = 0

    def job_row(self, job: int) -> int:
        """The row of a job; raises Contradiction for one that is not known (any more)."""
        row = self.index.find(job)
        if row == NONE:
            raise Contradiction(f"there is no job {job}")
        return row

    def job_rows(self, job: Ints) -> I64:
        """The rows of jobs, -1 where there is none."""
        return scheduling.rows_of(job, self.index.first, self.index.row_of)

    def current_tasks(self, attempts: Attempts) -> I64:
        """The task rows of attempts; NONE for one that is unknown, not the latest of its task, or holds no resources."""
        return scheduling.current_tasks(self.view(), *attempts, self.index.first, self.index.row_of)

    def job_rows_of(self, tasks: I64) -> I64:
        """The job rows of task rows. Tasks lie in the order of their jobs."""
        return np.searchsorted(self.jobs.first[: self.jobs.n], tasks, side="right") - 1

    def held_rows(self) -> I64:
        """The rows of the tasks that hold resources."""
        status = self.tasks.status[: self.tasks.n]
        return np.flatnonzero((status >= PLACED) & (status <= REVOKING))

    def attempts_of(self, tasks: I64) -> Attempts:
        """The latest attempts of task rows."""
        rows = self.job_rows_of(tasks)
        return Attempts(self.jobs.id[rows], tasks - self.jobs.first[rows], self.tasks.attempt[tasks].astype(np.int64))

    def task_columns(self, tasks: I64) -> dict[str, Ints]:
        """The same as the columns of a fact."""
        job, index, attempt = self.attempts_of(tasks)
        return {"job": job, "index": index, "attempt": attempt}

    def job_status(self, row: int) -> JobStatus:
        """Return the status of a job."""
        return JOB_STATUSES[int(self.jobs.statuses(slice(row, row + 1))[0])]

    def runs(self, attempt: Attempt) -> bool:
        """Whether an attempt runs now, and was not told to stop."""
        job, index, number = attempt
        row = self.index.find(job)
        task = self.jobs.first[row] + index
        return row != NONE and bool(self.tasks.attempt[task] == number and self.tasks.status[task] == RUNNING)

    def ended_jobs(self) -> I64:
        """The numbers of the jobs that have ended and are remembered, oldest end first."""
        return self.ended[self.forgotten : int(self.order.counts[ENDED])]

    def ended_count(self) -> int:
        """How many those are."""
        return int(self.order.counts[ENDED]) - self.forgotten

    def policy_of(self, row: int) -> Policy:
        """The policy among a queue's children."""
        return self.tree.policy_of(self.tree.names[row])

    def spec_of(self, queue: str) -> Queue:
        """What holds for a queue: what was declared, or nothing in particular."""
        return self.tree.spec_of(queue)

    def called(self, queue: str) -> str:
        """A queue's name as people read it: where a leaf is for the jobs of one that others are, or were, below, that one's."""
        return written(holds_jobs_of(queue))

    def quantities(self, vector: I64) -> Quantities:
        """An array of quantities by name, without the zeros."""
        return {name: int(value) for name, value in zip(self.resources, vector, strict=True) if value}

    def view(self) -> Any:
        """What kernels see."""
        return self.order.view(self)

    def count_rows(self) -> None:
        """After kernels that add and drop rows by themselves: know how many there are."""
        self.holds.n, self.histograms.n = int(self.order.counts[HOLDS]), int(self.order.counts[HISTOGRAMS])
