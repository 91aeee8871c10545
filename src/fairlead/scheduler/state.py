"""The state: what follows from the facts so far, as data. Only :func:`fairlead.scheduler.effects.apply` changes it.

Two states that saw the same facts are equal.
"""

from collections.abc import Iterable
from math import inf
from typing import Any

import numpy as np

from fairlead.model.cards import cards_of
from fairlead.model.specs import Constraints, JobStatus, Quantities, Settings, holds_jobs_of, written
from fairlead.scheduler.dependencies import Dependencies, JobCaps
from fairlead.scheduler.facts import Attempts, Contradiction, Ints, Revocation
from fairlead.scheduler.job_index import JobIndex
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import HOURS
from fairlead.scheduler.kernel.view import ENDED, HISTOGRAMS, HOLDS
from fairlead.scheduler.order import Order
from fairlead.scheduler.records import Records
from fairlead.scheduler.statuses import JOB_STATUSES, PLACED, REVOKING, RUNNING
from fairlead.scheduler.tables import I32, I64, NONE

ShapeKey = tuple[tuple[tuple[str, int], ...], Constraints]
GroupKey = tuple[int, int, int, int, bool]
Attempt = tuple[int, int, int]
"""Job, index, number."""


class State(Records):
    """Everything the scheduler knows: its records, and what is not in tables.

    index, dependencies : jobs by number, and dependencies between jobs
    deadlines : a heap: when the time limit of an attempt is over, and the attempt; those that ended are dropped once they come
        first
    shape_keys : demand and constraints of each shape
    shape_rows, group_rows : rows of shapes and groups by key
    kinds : the rows of jobs alike, and the groups where they wait, by what :func:`fairlead.model.job_columns.kind_of`
        returns: a cache
    named : what :func:`fairlead.scheduler.admission.named_resources` returns: a cache; None after a change
    any_revocable : True if some group is of revocable jobs
    broken_gangs : jobs that lost a task while others of the gang run
    drained : rows of nodes with drained cards; derived from the table
    job_caps : jobs under the caps on users' jobs; derived from the tables
    revocations : by job whose tasks were preempted
    calls : how many calls the worker of a lease made, and their milliseconds, by job
    forgotten, dead_tasks : how many of `ended` are forgotten, and how many task rows belong to forgotten jobs
    order : who is served next: a cache, which never changes a decision
    at : time of the last fact; -inf before the first
    version : number of facts applied
    days : use by day, if it is kept; no decision depends on it
    """

    def __init__(self) -> None:
        super().__init__()
        self.hours.extend(HOURS)
        self.settings = Settings()
        self.index, self.dependencies = JobIndex(), Dependencies()
        self.deadlines: list[tuple[float, Attempt]] = []
        self.shape_keys: list[ShapeKey] = []
        self.shape_rows: dict[tuple[ShapeKey, int, int], int] = {}
        self.group_rows: dict[GroupKey, int] = {}
        self.kinds: dict[bytes, tuple[bytes, int]] = {}
        self.named: frozenset[str] | None = None
        self.any_revocable = False
        self.broken_gangs: set[int] = set()
        self.drained: set[int] = set()
        self.job_caps = JobCaps()
        self.revocations: dict[int, Revocation] = {}
        self.calls: dict[int, tuple[int, int]] = {}
        self.at = -inf
        self.forgotten = self.dead_tasks = 0
        self.order = Order(self.moves)
        self.version = 0
        self.days: Any = None

    def job_row(self, job: int) -> int:
        """Return the row of a job; raises Contradiction if it is unknown or forgotten."""
        row = self.index.find(job)
        if row == NONE:
            raise Contradiction(f"there is no job {job}")
        return row

    def job_rows(self, job: Ints) -> I64:
        """Return the rows of jobs, -1 for unknown ones."""
        return scheduling.rows_of(job, self.index.first, self.index.row_of)

    def current_tasks(self, attempts: Attempts) -> I64:
        """Return the task rows of attempts; NONE for one that is unknown, not the latest of its task, or holds no resources."""
        return scheduling.current_tasks(self.view(), *attempts, self.index.first, self.index.row_of)

    def job_rows_of(self, tasks: I64) -> I64:
        """Return the job rows of task rows; tasks lie in the order of their jobs."""
        return np.searchsorted(self.jobs.first[: self.jobs.n], tasks, side="right") - 1

    def held_rows(self, nodes: Iterable[int] | None = None) -> I64:
        """Return the rows of tasks that hold resources, on some nodes or all."""
        if nodes is not None:
            tasks = [task for node in nodes for task in linked(self.nodes.task[node], self.tasks.after)]
            return np.array(sorted(tasks), np.int64)
        status = self.tasks.status[: self.tasks.n]
        return np.flatnonzero((status >= PLACED) & (status <= REVOKING))

    def attempts_of(self, tasks: I64) -> Attempts:
        """Return the latest attempts of task rows."""
        rows = self.job_rows_of(tasks)
        return Attempts(self.jobs.id[rows], tasks - self.jobs.first[rows], self.tasks.attempt[tasks].astype(np.int64))

    def task_columns(self, tasks: I64) -> dict[str, Ints]:
        """Return the latest attempts of task rows as the columns of a fact."""
        job, index, attempt = self.attempts_of(tasks)
        return {"job": job, "index": index, "attempt": attempt}

    def job_status(self, row: int) -> JobStatus:
        return JOB_STATUSES[int(self.jobs.statuses(slice(row, row + 1))[0])]

    def runs(self, attempt: Attempt) -> bool:
        """True if an attempt runs and is not stopping."""
        job, index, number = attempt
        row = self.index.find(job)
        task = self.jobs.first[row] + index
        return row != NONE and bool(self.tasks.attempt[task] == number and self.tasks.status[task] == RUNNING)

    def ended_jobs(self) -> I64:
        """Return the ended jobs that are remembered, oldest end first."""
        return self.ended[self.forgotten : int(self.order.counts[ENDED])]

    def display_name(self, queue: str) -> str:
        """Return a queue's name for people; the jobs leaf of a role is shown as the role."""
        return written(holds_jobs_of(queue))

    def quantities(self, vector: I64) -> Quantities:
        """Return an array of quantities by resource, without zeros."""
        return {name: int(value) for name, value in zip(self.resources, vector, strict=True) if value}

    def drained_cards(self, row: int) -> list[int]:
        """Return the cards of a node that take no more tasks."""
        return cards_of(self.nodes.drained_cards[row].tolist())

    def view(self) -> Any:
        """Return what kernels see."""
        return self.order.view(self)

    def count_rows(self) -> None:
        """Update row counts after kernels that add and drop rows themselves."""
        self.holds.n, self.histograms.n = int(self.order.counts[HOLDS]), int(self.order.counts[HISTOGRAMS])


def linked(first: int, after: I32 | I64) -> list[int]:
    """Return the rows of a linked list."""
    found = []
    while first != NONE:
        found.append(int(first))
        first = int(after[first])
    return found
