"""A workload: machines, queues, and jobs with the durations of their tasks."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.failure import Failure, failing
from fairlead.model.quantity import format_quantities, parse_quantity
from fairlead.model.specs import Job, Node, Quantities, Queue, Settings, parent_of, with_ancestors, written
from fairlead.scheduler.admission import some
from fairlead.scheduler.facts import Fact

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
Column = NDArray[Any] | float
"""A value for each job, or one for all."""
MOST_KINDS = 5
"""Kinds of machines listed by capacity."""

ANY = Job(queue="", demand={})
"""The template of a job without a name, a user or options."""


class TraceError(Failure, ValueError):
    """A trace cannot be read, or a simulation cannot run; the message names the file, the line and the remedy."""


@dataclass(frozen=True)
class Workload:
    """Machines, and jobs in order of submission. All arrays have an entry a job unless another shape is named.

    queues : the tree; if empty, each queue of a job is a leaf under the root
    submit : seconds from the start, ascending
    leaf, leaves : index into `leaves`; the queues of jobs, in order of their first job
    shape : index into `demands`, of one task in base units, and `places`, required labels with their accepted values
    duration : seconds; job j's start at `first[j]`: one per task where `varied[j]`, else one for all
    gang : True if all tasks start at once or none
    time_limit : declared most seconds of a task, never less than it took. Infinite: none
    like, templates : index into `templates`, which have everything else about a job, such as its name, user and retries; the
        columns above override the template
    after : by job: earlier jobs that must have ended before it
    settings : of the scheduler; the defaults where neither a configuration nor a journal sets them
    changes : what else happens, by time: nodes that join, are lost or drained, other configurations, and what people ask about
        jobs, by their number in the order of submission, from 1
    begun : shape (tasks,) or (0,): when tasks really began, those of one job after another's; NaN: not, empty: unknown
    origin : when the workload begins on the scheduler's clock. Another clock rounds differently, which may turn a decision
    skipped : malformed rows left out
    notes : choices made where the trace is silent
    """

    name: str
    nodes: list[Node]
    queues: list[Queue]
    submit: F64
    leaf: I64
    leaves: list[str]
    tasks: I64
    shape: I64
    demands: list[Quantities]
    places: list[dict[str, list[str]]]
    duration: F64
    first: I64
    varied: I64
    gang: NDArray[np.bool_]
    priority: I64
    time_limit: F64
    like: I64
    templates: list[Job]
    after: dict[int, list[int]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    changes: list[Fact] = field(default_factory=list)
    begun: F64 = field(default_factory=lambda: np.zeros(0))
    origin: float = 0.0
    skipped: int = 0
    notes: list[str] = field(default_factory=list)

    @cached_property
    def queue(self) -> list[str]:
        """Queue of each job."""
        return [self.leaves[leaf] for leaf in self.leaf.tolist()]

    @cached_property
    def resources(self) -> list[str]:
        """Resources of machines and tasks, in order of appearance."""
        named = [*(r for node in self.nodes for r in node.capacity), *(r for demand in self.demands for r in demand)]
        return list(dict.fromkeys(named))

    @cached_property
    def capacity(self) -> I64:
        """Capacity of each machine, shape (nodes, resources)."""
        return _amounts((node.capacity for node in self.nodes), self.resources)

    @cached_property
    def needs(self) -> I64:
        """What one task of each shape needs, shape (shapes, resources)."""
        return _amounts(self.demands, self.resources)

    @property
    def machines(self) -> str:
        """Machines as text: ``400 of cpu=12 memory=48Gi``."""
        kinds = Counter(format_quantities(node.capacity) for node in self.nodes)
        named = [f"{count:,} of {capacity}" for capacity, count in kinds.most_common(MOST_KINDS)]
        others = len(self.nodes) - sum(count for _, count in kinds.most_common(MOST_KINDS))
        return ", ".join([*named, *([f"{others:,} others"] if others else [])]) or "none"

    @property
    def work(self) -> F64:
        """Sum of the durations of each job's tasks, in seconds."""
        sums = np.add.reduceat(self.duration, self.first) if len(self.first) else np.zeros(0)
        return np.where(self.varied == 1, sums, self.duration[self.first] * self.tasks)


def _amounts(quantities: Iterable[Quantities], resources: list[str]) -> I64:
    rows = [[each.get(r, 0) for r in resources] for each in quantities]
    return np.array(rows, np.int64).reshape(len(rows), len(resources))


class Once(dict[Any, int]):
    """Numbers of distinct values: `number` is called once with each. What it raises is raised again for the same value."""

    def __init__(self, number: Callable[[Any], int]) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, value: Any) -> int:
        self[value] = found = self._number(value)
        return found

    def column(self, values: Iterable[Any]) -> I64:
        return np.fromiter(map(self.__getitem__, values), np.int64)


class Jobs:
    """Collects jobs into a workload, one by one or by columns."""

    def __init__(self) -> None:
        self._columns: dict[str, array[Any]] = {name: array(code) for name, code in _CODES.items()}
        self._duration = array("d")
        self._after: dict[int, list[int]] = {}
        self._leaves: dict[str, int] = {}
        self._templates: dict[bytes, tuple[int, Job]] = {}
        self._shapes: dict[tuple[tuple[tuple[str, int], ...], tuple[tuple[str, tuple[str, ...]], ...]], int] = {}

    def __len__(self) -> int:
        return len(self._columns["submit"])

    def leaf(self, queue: str) -> int:
        """Return the number of a leaf queue, for :meth:`extend`."""
        return self._leaves.setdefault(queue, len(self._leaves))

    def shape(self, demand: Quantities, on: dict[str, list[str]]) -> int:
        """Return the number of a demand with its constraints, for :meth:`extend`."""
        key = (tuple(sorted(demand.items())), tuple(sorted((k, tuple(v)) for k, v in on.items())))
        return self._shapes.setdefault(key, len(self._shapes))

    def like(self, template: Job) -> int:
        """Return the number of a template, for :meth:`extend`."""
        return self._templates.setdefault(msgspec.json.encode(template), (len(self._templates), template))[0]

    def add(
        self, submit: float, queue: str, demand: Quantities, duration: float | list[float], tasks: int = 1,
        on: dict[str, list[str]] | None = None, gang: bool = False, priority: int = 0, time_limit: float = np.inf,
        after: Sequence[int] = (), like: Job = ANY,
    ) -> None:  # fmt: skip
        """Add a job; `duration` is one for all tasks or a list, `after` the indices of jobs in order of addition."""
        if after:
            self._after[len(self)] = list(after)
        durations = duration if isinstance(duration, list) else [duration]
        row = (
            submit, self.leaf(queue), tasks, len(durations), self.shape(demand, on or {}), gang, priority, time_limit,
            self.like(like),
        )  # fmt: skip
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        self._duration.extend(durations)

    def extend(
        self, submit: F64, leaf: Column, shape: Column, duration: F64, tasks: Column = 1, lengths: Column = 1,
        gang: Column = False, priority: Column = 0, time_limit: Column = np.inf, like: Column | None = None,
        after: Mapping[int, list[int]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Add jobs by columns, which are those of :class:`Workload`; a number stands for all jobs.

        `leaf`, `shape` and `like` are from the methods of these names. `duration` has those of all jobs one after another,
        `lengths` of each: 1, or `tasks`. Jobs in `after` count by order of addition.
        """
        self._after |= after
        like = self.like(ANY) if like is None else like
        given = (submit, leaf, tasks, lengths, shape, gang, priority, time_limit, like)
        for (name, code), values in zip(_CODES.items(), given, strict=True):
            self._columns[name].frombytes(np.broadcast_to(values, len(submit)).astype(code).tobytes())
        self._duration.frombytes(duration.astype(float).tobytes())

    def workload(
        self, name: str, nodes: list[Node], queues: list[Queue], skipped: int = 0, notes: list[str] | None = None
    ) -> Workload:
        """Return the jobs as a workload, in order of submission."""
        kept = zip(_CODES.items(), self._columns.values(), strict=True)
        columns: dict[str, Any] = {name: np.frombuffer(column, code) for (name, code), column in kept}
        lengths, duration = columns.pop("lengths"), np.frombuffer(self._duration, float)
        first = np.cumsum(lengths) - lengths
        longest = np.maximum.reduceat(duration, first) if len(first) else np.zeros(0)
        columns |= {"gang": columns["gang"] > 0, "time_limit": np.maximum(columns["time_limit"], longest)}
        found = Workload(
            name=name, nodes=nodes, queues=queues, **columns, leaves=list(self._leaves),
            demands=[dict(demand) for demand, _ in self._shapes],
            places=[{label: list(values) for label, values in on} for _, on in self._shapes],
            duration=duration, first=first, varied=(lengths > 1).astype(np.int64),
            templates=[job for _, job in self._templates.values()], after=self._after, skipped=skipped, notes=list(notes or []),
        )  # fmt: skip
        return _chosen(found, np.argsort(found.submit, kind="stable"))


_CODES = {
    "submit": "d", "leaf": "q", "tasks": "q", "lengths": "q", "shape": "q", "gang": "q", "priority": "q",
    "time_limit": "d", "like": "q",
}  # fmt: skip
"""Columns that are collected, with their types."""


def _chosen(workload: Workload, rows: I64) -> Workload:
    """Return these jobs in this order; each may occur several times."""
    lengths = np.where(workload.varied[rows] == 1, workload.tasks[rows], 1)
    first = np.cumsum(lengths) - lengths
    where = np.repeat(workload.first[rows] - first, lengths) + np.arange(lengths.sum())
    leaf = workload.leaf[rows]
    begins = np.full(len(workload.leaves), len(leaf))
    begins[leaf[::-1]] = np.arange(len(leaf))[::-1]  # of equal indices the last counts: the first job
    order = np.argsort(begins, kind="stable")[: int((begins < len(leaf)).sum())]
    number = np.zeros_like(begins)
    number[order] = np.arange(len(order))
    names = ("submit", "tasks", "shape", "varied", "gang", "priority", "time_limit", "like")
    return replace(
        workload, **{name: getattr(workload, name)[rows] for name in names}, leaf=number[leaf],
        leaves=[workload.leaves[k] for k in order.tolist()], duration=workload.duration[where], first=first,
        after=_after(workload.after, rows),
    )  # fmt: skip


def cut(
    workload: Workload, start: float = 0.0, end: float = np.inf, speed: float = 1.0, scale: float = 1.0, seed: int = 0
) -> Workload:
    """Select the jobs submitted in [start, end) seconds, and scale their arrival rate or their number; `start` becomes 0.

    `speed` multiplies the arrival rate; durations stay. `scale` multiplies the number of jobs: 0.5 takes each with that
    probability, 2.5 takes each twice and half of them once more.
    """
    wanted = (workload.submit >= start) & (workload.submit < end)
    copies = np.full(len(workload.submit), int(scale))
    copies += np.random.default_rng([seed, 1]).random(len(copies)) < scale - int(scale)
    rows = np.repeat(np.flatnonzero(wanted), copies[wanted])
    begin = start if np.isfinite(start) else 0.0
    found = _chosen(workload, rows)
    return replace(
        found, submit=(found.submit - begin) / speed, changes=_changes(workload.changes, rows, begin, speed),
        begun=_begun(workload, rows) - begin if speed == 1 else np.zeros(0), origin=workload.origin + begin,
    )  # fmt: skip


def moved(workload: Workload, seconds: float) -> Workload:
    """Return a workload with all of its times moved, and its origin back."""
    return replace(
        workload, submit=workload.submit + seconds, begun=workload.begun + seconds,
        changes=[msgspec.structs.replace(fact, at=fact.at + seconds) for fact in workload.changes],
        origin=workload.origin - seconds,
    )  # fmt: skip


def _changes(changes: list[Fact], rows: I64, begin: float, speed: float) -> list[Fact]:
    """Return changes in the time of a selection; those about a job are about each copy of it."""
    found = []
    for fact in changes:
        then = msgspec.structs.replace(fact, at=max(0.0, fact.at - begin) / speed)
        job = getattr(fact, "id", None)
        copies = [] if job is None else (np.flatnonzero(rows == job - 1) + 1).tolist()
        found += [then] if job is None else [msgspec.structs.replace(then, id=number) for number in copies]
    return found


def _begun(workload: Workload, rows: I64) -> F64:
    """Return when the tasks of a selection really began."""
    if not len(workload.begun):
        return workload.begun
    task, tasks = np.cumsum(workload.tasks) - workload.tasks, workload.tasks[rows]
    return workload.begun[np.repeat(task[rows] - np.cumsum(tasks) + tasks, tasks) + np.arange(tasks.sum())]


def _after(after: dict[int, list[int]], rows: I64) -> dict[int, list[int]]:
    """Return dependencies among copies: the k-th copy comes after the k-th of each dependency, if that was selected."""
    copies: dict[int, list[int]] = {}
    for number, row in enumerate(rows.tolist() if after else ()):
        copies.setdefault(row, []).append(number)
    found = {}
    for job, others in after.items():
        for k, number in enumerate(copies.get(job, ())):
            there = [copies[other] for other in others if other in copies]
            if there:
                found[number] = [each[min(k, len(each) - 1)] for each in there]
    return found


def check_leaves(workload: Workload) -> None:
    """Raise TraceError for a job in an inner queue, declared or named by other jobs."""
    named = {*workload.leaves, *(queue.name for queue in workload.queues)}
    inner = with_ancestors(map(parent_of, named))
    for leaf, name in enumerate(workload.leaves):
        if name in inner:
            job = int((workload.leaf == leaf).argmax())
            below = [other for other in sorted(named - inner) if not name or other.startswith(f"{name}/")]
            raise TraceError(
                f"{workload.name}: job {job + 1}, submitted at {workload.submit[job]:g} s: "
                f"{written(name)!r} is not a leaf queue: choose one below it{': ' * bool(below)}{some(below)}"
            )


def most_at_once(demand: I64, total: I64) -> int:
    """Return an upper bound of the tasks that run at once.

    Group tasks by dominant resource r. The sum of a group's demands for r is at most the `total` of all machines, and each is at
    least that of the smallest shape, so a group has at most as many tasks as fit of the shape of which most fit.
    """
    fit = np.where(demand > 0, total // np.maximum(demand, 1), np.iinfo(np.int64).max).min(axis=1)
    return len(total) * int(fit.max())


def synthetic_nodes(count: int, node: str) -> list[Node]:
    """Return identical machines of a capacity such as ``cpu=12,memory=48GiB``. Raises TraceError for invalid text."""
    capacity: Quantities = {}
    for part in node.split(","):
        resource, _, amount = part.strip().partition("=")
        with failing(f"--node {node!r}: {part.strip()!r}: ", ValueError, after="; write cpu=12,memory=48GiB", to=TraceError):
            capacity[resource] = parse_quantity(resource, amount)
        if not resource or capacity[resource] <= 0:
            raise TraceError(f"--node {node!r}: {part.strip()!r} is not a capacity: write cpu=12,memory=48GiB")
    return [Node(f"n{i}", capacity, {}) for i in range(count)]
