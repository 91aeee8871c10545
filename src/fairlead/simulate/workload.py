"""A workload: machines, queues, and jobs with the durations of their tasks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.model.quantity import format_quantities, parse_quantity
from fairlead.model.specs import ROOT, Job, Node, Quantities, Queue, Settings, ancestors, written
from fairlead.scheduler.admission import some
from fairlead.scheduler.facts import Fact

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
MOST_KINDS = 5
"""Kinds of machines listed by capacity."""


ANY = Job(queue="", demand={})
"""The template of a job without a name, a user or options."""


class TraceError(ValueError):
    """A trace cannot be read, or a simulation cannot run; the message names the file, the line and the remedy."""


@dataclass(frozen=True)
class Workload:
    """Machines, and jobs in order of submission.

    Attributes
    ----------
    name : str
    nodes : list of Node
    queues : list of Queue
        The tree; if empty, each queue of a job is a leaf under the root.
    submit : float64, shape (jobs,)
        Seconds from the start, ascending.
    queue : list of str, one per job
    tasks : int64, shape (jobs,)
    shape : int64, shape (jobs,)
        Index into `demands` and `places`.
    demands : list of dict
        Demand of one task, in base units.
    places : list of dict
        Required labels, each with its accepted values.
    duration : float64
        Seconds; job j's start at `first[j]`: one per task where `varied[j]`, else one for all.
    first, varied : int64, shape (jobs,)
    gang : bool, shape (jobs,)
        True if all tasks start at once or none.
    priority : int64, shape (jobs,)
    withdrawn : float64, shape (jobs,)
        When a job's waiting tasks are cancelled; running ones go on. Infinite: never.
    time_limit : float64, shape (jobs,)
        Declared most seconds of a task, never less than it took. Infinite: none.
    like : int64, shape (jobs,)
        Index into `templates`.
    templates : list of Job
        Everything else about a job, such as its name, user and retries; the columns above override the template.
    after : dict of int to list of int
        By job: earlier jobs that must have ended before it.
    settings : Settings
        Of the scheduler; the defaults where neither a configuration nor a journal sets them.
    changes : list of Fact
        What else happens, by time: nodes that join, are lost or drained, other configurations, and what people ask about jobs,
        by their number in the order of submission, from 1.
    begun : float64, shape (tasks,) or (0,)
        When tasks really began, those of one job after another's; NaN if they did not. Empty if that is not known.
    skipped : int
        Malformed rows left out.
    notes : list of str
        Choices made where the trace is silent.
    """

    name: str
    nodes: list[Node]
    queues: list[Queue]
    submit: F64
    queue: list[str]
    tasks: I64
    shape: I64
    demands: list[Quantities]
    places: list[dict[str, list[str]]]
    duration: F64
    first: I64
    varied: I64
    gang: NDArray[np.bool_]
    priority: I64
    withdrawn: F64
    time_limit: F64
    like: I64
    templates: list[Job]
    after: dict[int, list[int]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    changes: list[Fact] = field(default_factory=list)
    begun: F64 = field(default_factory=lambda: np.zeros(0))
    skipped: int = 0
    notes: list[str] = field(default_factory=list)

    @cached_property
    def resources(self) -> list[str]:
        """Resources of machines and tasks, in order of appearance."""
        named = [*(r for node in self.nodes for r in node.capacity), *(r for demand in self.demands for r in demand)]
        return list(dict.fromkeys(named))

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
        ends = np.append(self.first[1:], len(self.duration)) if len(self.first) else self.first
        sums = np.add.reduceat(self.duration, self.first) if len(self.first) else np.zeros(0)
        return np.where((self.varied == 1) & (ends > self.first), sums, self.duration[self.first] * self.tasks)


class Jobs:
    """Collects jobs into a workload."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, int, str, int, int, bool, int, float, float, int]] = []
        self._durations: list[list[float]] = []
        self._after: dict[int, list[int]] = {}
        self._templates: dict[bytes, tuple[int, Job]] = {}
        self._shapes: dict[tuple[tuple[tuple[str, int], ...], tuple[tuple[str, tuple[str, ...]], ...]], int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        submit: float,
        queue: str,
        demand: Quantities,
        duration: float | list[float],
        tasks: int = 1,
        on: dict[str, list[str]] | None = None,
        gang: bool = False,
        priority: int = 0,
        withdrawn: float = np.inf,
        time_limit: float = np.inf,
        after: Sequence[int] = (),
        like: Job = ANY,
    ) -> None:
        """Add a job; `duration` is one for all tasks or a list, `after` the indices of jobs in order of addition."""
        if after:
            self._after[len(self._rows)] = list(after)
        key = (tuple(sorted(demand.items())), tuple(sorted((k, tuple(v)) for k, v in (on or {}).items())))
        shape = self._shapes.setdefault(key, len(self._shapes))
        template = self._templates.setdefault(msgspec.json.encode(like), (len(self._templates), like))[0]
        durations = duration if isinstance(duration, list) else [duration]
        row = (
            submit,
            len(self._rows),
            queue,
            tasks,
            shape,
            gang,
            priority,
            withdrawn,
            max(time_limit, max(durations, default=0.0)),
            template,
        )
        self._durations.append(durations)
        self._rows.append(row)

    def workload(
        self, name: str, nodes: list[Node], queues: list[Queue], skipped: int = 0, notes: list[str] | None = None
    ) -> Workload:
        """Return the jobs as a workload, in order of submission."""
        rows = sorted(self._rows)
        place = {row[1]: number for number, row in enumerate(rows)}
        durations = [self._durations[row[1]] for row in rows]
        lengths = np.array([len(d) for d in durations], np.int64)
        return Workload(
            name=name,
            nodes=nodes,
            queues=queues,
            submit=np.array([row[0] for row in rows], float),
            queue=[row[2] for row in rows],
            tasks=np.array([row[3] for row in rows], np.int64),
            shape=np.array([row[4] for row in rows], np.int64),
            demands=[dict(demand) for demand, _ in self._shapes],
            places=[{label: list(values) for label, values in on} for _, on in self._shapes],
            duration=np.array([x for d in durations for x in d], float),
            first=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64) if rows else np.zeros(0, np.int64),
            varied=(lengths > 1).astype(np.int64),
            gang=np.array([row[5] for row in rows], np.bool_),
            priority=np.array([row[6] for row in rows], np.int64),
            withdrawn=np.array([row[7] for row in rows], float),
            time_limit=np.array([row[8] for row in rows], float),
            like=np.array([row[9] for row in rows], np.int64),
            templates=[job for _, job in self._templates.values()],
            after={place[job]: [place[other] for other in others] for job, others in self._after.items()},
            skipped=skipped,
            notes=list(notes or []),
        )


def cut(
    workload: Workload, start: float = 0.0, end: float = np.inf, speed: float = 1.0, scale: float = 1.0, seed: int = 0
) -> Workload:
    """Select a period of a workload, and scale its arrival rate or its number of jobs.

    Parameters
    ----------
    workload : Workload
    start, end : float
        Seconds: jobs submitted in [start, end); `start` becomes 0.
    speed : float
        Factor of the arrival rate; durations stay.
    scale : float
        Factor of the number of jobs: 0.5 takes each with that probability, 2.5 takes each twice and half of them once more.
    seed : int
    """
    wanted = (workload.submit >= start) & (workload.submit < end)
    copies = np.full(len(workload.submit), int(scale))
    copies += np.random.default_rng([seed, 1]).random(len(copies)) < scale - int(scale)
    rows = np.repeat(np.flatnonzero(wanted), copies[wanted])
    begin = start if np.isfinite(start) else 0.0
    lengths = np.where(workload.varied[rows] == 1, workload.tasks[rows], 1)
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64) if len(rows) else np.zeros(0, np.int64)
    where = np.repeat(workload.first[rows] - first, lengths) + np.arange(lengths.sum())
    return replace(
        workload,
        submit=(workload.submit[rows] - begin) / speed,
        queue=[workload.queue[row] for row in rows],
        tasks=workload.tasks[rows],
        shape=workload.shape[rows],
        duration=workload.duration[where],
        first=first,
        varied=workload.varied[rows],
        gang=workload.gang[rows],
        priority=workload.priority[rows],
        withdrawn=(workload.withdrawn[rows] - begin) / speed,
        time_limit=workload.time_limit[rows],
        like=workload.like[rows],
        after=_after(workload.after, rows),
        changes=_changes(workload.changes, rows, begin, speed),
        begun=_begun(workload, rows) - begin if speed == 1 else np.zeros(0),
    )


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
    named = {*workload.queue, *(queue.name for queue in workload.queues)}
    inner = {ROOT, *(path for name in named for path in ancestors(name))}
    for job, name in enumerate(workload.queue):
        if name in inner:
            below = [other for other in sorted(named - inner) if not name or other.startswith(f"{name}/")]
            raise TraceError(
                f"{workload.name}: job {job + 1}, submitted at {workload.submit[job]:g} s: "
                f"{written(name)!r} is not a leaf queue: choose one below it{': ' * bool(below)}{some(below)}"
            )


def most_at_once(demand: I64, total: I64) -> int:
    """Return an upper bound of the tasks that run at once.

    Group tasks by dominant resource r. The sum of a group's demands for r is at most the total, and each is at least that of the
    smallest shape, so a group has at most as many tasks as fit of the shape of which most fit.

    Parameters
    ----------
    demand : int64, shape (shapes, resources)
    total : int64, shape (resources,)
        Capacity of all machines.
    """
    fit = np.where(demand > 0, total // np.maximum(demand, 1), np.iinfo(np.int64).max).min(axis=1)
    return len(total) * int(fit.max())


def synthetic_nodes(count: int, node: str) -> list[Node]:
    """Return identical machines of a capacity such as ``cpu=12,memory=48GiB``. Raises TraceError for invalid text."""
    capacity: Quantities = {}
    for part in node.split(","):
        resource, _, amount = part.strip().partition("=")
        try:
            capacity[resource] = parse_quantity(resource, amount)
        except ValueError as error:
            raise TraceError(f"--node {node!r}: {part.strip()!r}: {error}; write cpu=12,memory=48GiB") from None
        if not resource or capacity[resource] <= 0:
            raise TraceError(f"--node {node!r}: {part.strip()!r} is no capacity: write cpu=12,memory=48GiB")
    return [Node(f"n{i}", capacity, {}) for i in range(count)]
