"""The state: what follows from the facts so far. `apply` is the only way to change it.

Two states that saw the same facts are the same. A fact that contradicts the state (a task placed twice, an end of an
attempt that is not the current one) is a fault of whoever made it: `apply` raises :class:`Contradiction`.

Here is what it is made of, and how things are found in it. What each fact does to it is in
:mod:`~fairlead.scheduler.effects`, how it gets rows for what is new in :mod:`~fairlead.scheduler.growth`, and how those of
what is forgotten are taken out in :mod:`~fairlead.scheduler.compaction`.
"""

from math import inf, nan
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fairlead.model.specs import ROOT, Policy, Quantities, Queue, Settings, written
from fairlead.scheduler import effects, growth
from fairlead.scheduler.cluster import Cluster, Constraints
from fairlead.scheduler.deadlines import Attempt, Deadlines
from fairlead.scheduler.dependencies import Dependencies
from fairlead.scheduler.facts import Attempts, Contradiction, Fact, Ints, Revocation, TasksPlaced
from fairlead.scheduler.framework_index import Frameworks, holds_jobs_of
from fairlead.scheduler.job_index import JobIndex
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.let_in import LetIn
from fairlead.scheduler.order import Order
from fairlead.scheduler.queue_tree import QueueTree
from fairlead.scheduler.statuses import PLACED, REVOKING, RUNNING
from fairlead.scheduler.tables import (
    F64,
    I64,
    NONE,
    Buckets,
    Holds,
    Jobs,
    Nodes,
    Offers,
    Queues,
    Refusals,
    Shapes,
    Sketches,
    Tasks,
)
from fairlead.scheduler.view import BEGAN, ENDED, HOLDS, NEXT_TICK, SKETCHES

ShapeKey = tuple[tuple[tuple[str, int], ...], Constraints]
BucketKey = tuple[int, int, int, int, bool]


class Learned(NamedTuple):
    """What the last cycle noted in the order about who has room, true once what it placed has happened.

    version : of the state that it looked at
    placed : what it placed
    more : whether there was more to decide at once
    """

    version: int
    placed: TasksPlaced
    more: bool


class State:
    """Everything the scheduler knows.

    Attributes
    ----------
    settings : Settings
    resources : list of str
        The columns of every array of quantities.
    nodes, queues, shapes, buckets, jobs, tasks, holds, offers, refusals, sketches
        Tables (see :mod:`fairlead.scheduler.tables`).
    tree, cluster, index, dependencies, deadlines, frameworks
        What is known beside the tables: queues and nodes by name, jobs by number, which jobs come after which, when time is
        over, and frameworks with their tasks. Each has a file of its own.
    shape_keys : list
        Of each shape, its demand and its constraints.
    shape_rows, bucket_rows : dict
        Shapes and buckets by what they are.
    any_revocable : bool
        Whether some bucket is of revocable jobs.
    broken_gangs : set of int
        Job numbers: a task was lost while others run.
    let_in : LetIn
        Whose jobs wait for others of the same person to end; it follows from the tables.
    revocations : dict of int to Revocation
        By the number of the job that had tasks revoked for others.
    ended : int64 array
        The numbers of the jobs that have ended, in that order; those that are remembered are `ended_jobs()`.
    times : float64 array
        When the first fact happened, and when history changes next: see :mod:`fairlead.scheduler.view`.
    grain : int64 array
        Of each resource, the binary digits that its history does without: see :mod:`fairlead.scheduler.kernel`.
    forgotten, dead_tasks : int
        How many of `ended` are not, and how many rows of tasks are of jobs that are not.
    order : Order
        Who goes next, kept from one decision to the next: a cache, which speeds deciding up and changes nothing that is decided.
    learned : Learned or None
    at : float
        The time of the last fact; minus infinity before the first.
    version : int
        Counts facts.
    moves : list of one int
        Counts how often an array was replaced by another.
    """

    def __init__(self) -> None:
        self.settings = Settings()
        self.resources: list[str] = []
        self.moves = [0]
        self.nodes, self.queues, self.shapes = Nodes(self.moves), Queues(self.moves), Shapes(self.moves)
        self.buckets, self.jobs, self.tasks = Buckets(self.moves), Jobs(self.moves), Tasks(self.moves)
        self.holds, self.sketches = Holds(self.moves), Sketches(self.moves)
        self.offers, self.refusals, self.frameworks = Offers(self.moves), Refusals(self.moves), Frameworks()
        self.tree, self.cluster, self.index, self.dependencies = QueueTree(), Cluster(), JobIndex(), Dependencies()
        self.deadlines = Deadlines()
        self.shape_keys: list[ShapeKey] = []
        self.shape_rows: dict[tuple[ShapeKey, int], int] = {}
        self.bucket_rows: dict[BucketKey, int] = {}
        self.any_revocable = False
        self.broken_gangs: set[int] = set()
        self.let_in = LetIn()
        self.revocations: dict[int, Revocation] = {}
        self.ended: I64 = np.zeros(0, np.int64)
        self.times: F64 = np.array([nan, -inf, inf, -inf, -inf, inf])
        self.at = -inf
        self.grain: I64 = np.zeros(0, np.int64)
        self.forgotten = self.dead_tasks = 0
        self.order = Order(self.moves)
        self.learned: Learned | None = None
        self.version = 0
        growth.ensure_queue(self, ROOT)

    def apply(self, fact: Fact) -> None:
        """Let a fact happen. Raises Contradiction if it cannot have."""
        if type(fact.at) is not float:  # of whoever writes facts by hand; the kernels are compiled for that alone
            fact = replace(fact, at=float(fact.at))
        self.version += 1
        effect = effects.EFFECTS.get(type(fact))
        if effect is None:
            raise Contradiction(f"{type(fact).__name__} is no fact of the scheduler")
        if not fact.at < self.times[NEXT_TICK]:
            if np.isnan(self.times[BEGAN]):
                self.times[BEGAN] = fact.at
            scheduling.fade(self.view(), fact.at)
        effect(self, fact)
        self.at = fact.at

    # -- looking up ----------------------------------------------------------------------------------------------

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
        self.holds.n, self.sketches.n = int(self.order.counts[HOLDS]), int(self.order.counts[SKETCHES])
