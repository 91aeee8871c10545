"""The state's arrays: rows for nodes, queues, shapes, buckets, jobs and tasks; columns grow by doubling.

A **bucket** is the waiting jobs of one leaf queue that are alike to the scheduler: same priority, same shape, same gang
size. They wait in a list linked through the jobs' rows, by job number; whatever stops the first of them stops all.
Only jobs with tasks that may start now are in their bucket.
"""

from collections import namedtuple
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

NONE = -1
UNLIMITED = np.iinfo(np.int64).max

# What a task is doing. From PLACED to REVOKING it holds resources.
WAITING, PLACED, RUNNING, STOPPING, EXPIRING, REVOKING, SUCCEEDED, FAILED, CANCELLED = range(9)
STATUS_NAMES = (
    "waiting",
    "starting",
    "running",
    "stopping",
    "expiring",
    "revoking",
    "succeeded",
    "failed",
    "cancelled",
)

T = TypeVar("T", bound="Table")

I8 = NDArray[np.int8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]


def _column(dtype: type) -> Any:
    return field(default_factory=lambda: np.zeros(0, dtype))


def _wide(dtype: type) -> Any:
    """Make a column with one number a resource."""
    return field(default_factory=lambda: np.zeros((0, 0), dtype))


@dataclass
class Table:
    """`n` rows in use of the columns, which are longer."""

    n: int = 0

    def extend(self, count: int) -> int:
        """Add rows of zeros; returns the first."""
        first = self.n
        self.n += count
        if self.n <= len(getattr(self, self.columns()[-1])):
            return first
        for column in self.columns():
            old = getattr(self, column)
            new = np.zeros((max(2 * len(old), self.n, 16), *old.shape[1:]), old.dtype)
            new[:first] = old[:first]
            setattr(self, column, new)
        return first

    def columns(self) -> tuple[str, ...]:
        return _columns(type(self).__name__)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name in _VIEWS[type(self).__name__]._fields:
            self.__dict__["view"] = None  # what kernels saw before

    def keep(self, rows: I64) -> None:
        """Keep these rows only, in this order; rows freed behind them are zeros again."""
        for column in self.columns():
            setattr(self, column, getattr(self, column)[rows].copy())
        self.n = len(rows)

    def widen(self, resources: int, fill: dict[str, float]) -> None:
        """Add a resource: the columns named in `fill` get wider."""
        for column, value in fill.items():
            old = getattr(self, column)
            more = np.full((len(old), resources - old.shape[1]), value, old.dtype)
            setattr(self, column, np.ascontiguousarray(np.hstack([old, more])))


@cache
def _columns(table: str) -> tuple[str, ...]:
    return tuple(f.name for f in fields(globals()[table]) if f.name != "n")


def view(table: T) -> T:
    """Show a table to a kernel, which knows named tuples of arrays but no dataclasses; same names, same memory."""
    found: T | None = table.__dict__["view"]
    if found is None:
        row = _VIEWS[type(table).__name__]
        found = table.__dict__["view"] = row(*(getattr(table, name) for name in row._fields))
    return found


@dataclass
class Nodes(Table):
    capacity: I64 = _wide(np.int64)
    free: I64 = _wide(np.int64)
    up: Bools = _column(np.bool_)
    draining: Bools = _column(np.bool_)
    fresh: Bools = _column(np.bool_)  # room came back since the shapes' cursors went by


@dataclass
class Queues(Table):
    parent: I64 = _column(np.int64)
    policy: I64 = _column(np.int64)  # among its children; a leaf's among its buckets is priority
    rank: I64 = _column(np.int64)  # by name: breaks ties
    weight: F64 = _wide(np.float64)
    guarantee: I64 = _wide(np.int64)
    limit: I64 = _wide(np.int64)
    max_tasks: I64 = _column(np.int64)
    max_jobs: I64 = _column(np.int64)
    used: I64 = _wide(np.int64)
    tasks: I64 = _column(np.int64)  # that hold resources
    jobs: I64 = _column(np.int64)  # with such tasks


@dataclass
class Shapes(Table):
    demand: I64 = _wide(np.int64)
    mask: I64 = _column(np.int64)  # row of State.masks
    cursor: I64 = _column(np.int64)  # no node before it has room, but fresh ones


@dataclass
class Buckets(Table):
    leaf: I64 = _column(np.int64)
    priority: I64 = _column(np.int64)
    shape: I64 = _column(np.int64)
    gang: I64 = _column(np.int64)  # tasks at once; 0: one by one
    head: I64 = _column(np.int64)
    tail: I64 = _column(np.int64)
    started: I64 = _column(np.int64)  # jobs in the list that run already
    passed_since: F64 = _column(np.float64)  # NaN: it was not


@dataclass
class Jobs(Table):
    id: I64 = _column(np.int64)
    queue: I64 = _column(np.int64)
    shape: I64 = _column(np.int64)
    priority: I64 = _column(np.int64)
    gang: Bools = _column(np.bool_)
    retries: I64 = _column(np.int64)
    time_limit: F64 = _column(np.float64)  # seconds; infinite: none
    held: Bools = _column(np.bool_)  # by a person, until it is released
    irregular: Bools = _column(np.bool_)  # the tasks that wait are not just those from `next` on
    first: I64 = _column(np.int64)  # its tasks' rows start here
    tasks: I64 = _column(np.int64)
    next: I64 = _column(np.int64)  # tasks from this index on were never placed
    waiting: I64 = _column(np.int64)
    holding: I64 = _column(np.int64)  # tasks that hold resources
    failed: I64 = _column(np.int64)
    cancelled: I64 = _column(np.int64)
    bucket: I64 = _column(np.int64)  # NONE: not in one now
    after: I64 = _column(np.int64)  # next row in the bucket
    before: I64 = _column(np.int64)
    submitted_at: F64 = _column(np.float64)
    finished_at: F64 = _column(np.float64)  # NaN: not yet


@dataclass
class Tasks(Table):
    status: I8 = _column(np.int8)
    outcome: I8 = _column(np.int8)
    losses: I8 = _column(np.int8)
    failures: I8 = _column(np.int8)
    attempt: I32 = _column(np.int32)
    node: I32 = _column(np.int32)
    code: I32 = _column(np.int32)
    started_at: F64 = _column(np.float64)
    finished_at: F64 = _column(np.float64)


# One named tuple a table, at module level: numba's cache finds a type by its name. Kernels go by rows of jobs and tasks that
# they are given and never through all of them, so these have no `n`, which changes too often to make them anew each time.
NodesView = namedtuple("NodesView", [f.name for f in fields(Nodes)])  # type: ignore[misc]
QueuesView = namedtuple("QueuesView", [f.name for f in fields(Queues)])  # type: ignore[misc]
ShapesView = namedtuple("ShapesView", [f.name for f in fields(Shapes)])  # type: ignore[misc]
BucketsView = namedtuple("BucketsView", [f.name for f in fields(Buckets)])  # type: ignore[misc]
JobsView = namedtuple("JobsView", _columns("Jobs"))  # type: ignore[misc]
TasksView = namedtuple("TasksView", _columns("Tasks"))  # type: ignore[misc]
_VIEWS: dict[str, Any] = {
    "Nodes": NodesView,
    "Queues": QueuesView,
    "Shapes": ShapesView,
    "Buckets": BucketsView,
    "Jobs": JobsView,
    "Tasks": TasksView,
}
