"""Read published traces into workloads.

- `openb`: Alibaba's GPU cluster, 2023 (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): a folder with a list of nodes
  and lists of pods. A pod is a job of one task; its `qos` is the queue. A node's GPUs are one pool, so a fraction of a GPU may
  be split over several.
- `swim`: Facebook's Hadoop clusters, 2009 and 2010 (Chen et al., SWIM, MASCOTS 2011): jobs with bytes in, shuffled and out.
  Tasks, durations, demands and users are derived: see :class:`Derivation`.
- `swf`: the Standard Workload Format of the Parallel Workloads Archive (Feitelson, version 2.2).
- `table`: CSV or Parquet with the columns of `TABLE_COLUMNS`; any other column is a resource.
- `journal`: the journal of a live scheduler.

A malformed row raises :class:`TraceError` with file and line, or is skipped and counted.
"""

import csv
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.model.documents import check_queue_name
from fairlead.model.faults import repeated, shortened
from fairlead.model.quantity import parse_quantity, read_number
from fairlead.model.specs import USERS, Node, Quantities, Queue
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeJoined, TasksFinished, TasksPlaced
from fairlead.scheduler.framework_index import holds_jobs_of
from fairlead.simulate.workload import Jobs, TraceError, Workload

GiB = 2**30
LONGEST = 10 * 365 * 86400.0
"""Longest duration of a task, in seconds."""
LATEST = 1e11
"""Latest time, in seconds: beyond some 3,000 years float64 loses precision."""
MOST_TASKS = 10_000_000
"""Tasks per job."""
MOST_MACHINES = 1_000_000
LARGEST_MEMORY = 1e15
"""KiB per processor."""

TABLE_COLUMNS = {
    "submit": "seconds from the start",
    "queue": "a path, such as research/vision; by default `default`",
    "duration": "seconds of each task; or one number per task, separated by spaces",
    "tasks": "their number; by default 1, or the number of durations",
    "priority": "by default 0",
    "gang": "1: all tasks start at once or none",
    "on": "labels that a node must have, such as zone=east model=A100|H100",
    "job": "a unique name, for `after`",
    "after": "names of jobs that must end before, separated by spaces",
    "cpu, memory, gpu, ...": "what one task needs, as quantities: 0.5, 4GiB",
}
"""Columns of a `table`; `submit`, `duration` and a resource are required."""

Row = dict[str, str]


@dataclass(frozen=True)
class Derivation:
    """Parameters that derive tasks, durations, demands and users for SWIM's traces.

    users : number of users; a job's user is drawn with probability proportional to 1/rank
    split : bytes of input per map task; a job has at least one
    reduce_split : bytes shuffled or written, whichever is more, per reduce task; phases are not separated
    rate, start : bytes per second and seconds to start of each task; a job's work is divided evenly over its tasks and rounded
        up to whole seconds
    kinds : demands as (probability, CPUs, GiB) of one task
    seed : of the draws
    """

    users: int = 20
    split: int = 128 * 2**20
    reduce_split: int = 2**30
    rate: float = 20e6
    start: float = 5.0
    kinds: tuple[tuple[float, float, float], ...] = (
        (0.6, 1.0, 1.0),
        (0.25, 1.0, 4.0),
        (0.1, 2.0, 2.0),
        (0.05, 1.0, 8.0),
    )
    seed: int = 0


OPENB_PODS = "openb_pod_list_default.csv"


class Reader:
    """Reads rows, and stops at a malformed one, or skips and counts it."""

    def __init__(self, path: Path, skip_bad: bool) -> None:
        self._path, self._skip_bad = path, skip_bad
        self.skipped = 0

    def each(self, rows: Iterator[tuple[int, Any]], take: Callable[[Any], None]) -> None:
        """Call `take` with each row; its ValueError, KeyError or IndexError marks the row as malformed."""
        for line, row in rows:
            try:
                take(row)
            except (ValueError, KeyError, IndexError) as error:
                if not self._skip_bad:
                    what = f"there is no column {error}" if isinstance(error, KeyError) else str(error)
                    raise TraceError(f"{self._path}:{line}: {shortened(what)} (--skip-bad skips such rows)") from None
                self.skipped += 1


def read_trace(
    path: Path, kind: str | None = None, *, skip_bad: bool = False, derivation: Derivation | None = None
) -> Workload:
    """Read a trace.

    Parameters
    ----------
    path : Path
    kind : str, optional
        ``openb``, ``swim``, ``swf``, ``table`` or ``journal``; by default from the file name.
    skip_bad : bool
        Skip and count malformed rows.
    derivation : Derivation, optional
        For ``swim``.

    Raises
    ------
    TraceError
        The trace cannot be read; the message names file, line and remedy.
    """
    kind = kind or _kind(path)
    if kind not in READERS:
        raise TraceError(f"unknown format {kind!r}: use one of {', '.join(READERS)}")
    try:
        found = read_swim(path, skip_bad, derivation) if kind == "swim" else READERS[kind](path, skip_bad)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text (byte {error.start})") from None
    if not len(found.submit):
        raise TraceError(f"{path}: contains no jobs")
    return found


def is_derived(path: Path, kind: str | None = None) -> bool:
    """True if tasks and users of a trace are drawn, so that each seed gives another workload."""
    return (kind or _kind(path)) == "swim"


def _kind(path: Path) -> str:
    name = path.name.lower()
    if name.startswith("openb_pod"):
        return "openb"
    if path.is_dir():
        if not (path / OPENB_PODS).exists():
            raise TraceError(f"{path}: is a folder without {OPENB_PODS}, which openb needs: name a file")
        return "openb"
    kinds = {".tsv": "swim", ".swf": "swf", ".csv": "table", ".parquet": "table", ".db": "journal"}
    if path.suffix.lower() in kinds:
        return kinds[path.suffix.lower()]
    raise TraceError(f"{path}: unknown format: choose one with --format: {', '.join(READERS)}")


def _number(row: Row, column: str, least: float = 0.0, most: float = LATEST) -> float:
    try:
        return read_number(row[column], float, least, most)
    except ValueError as error:
        raise ValueError(f"{column}: {error}") from None


def _whole(row: Row, column: str, least: int, most: int) -> int:
    value = _number(row, column, least, most)
    if value != int(value):
        raise ValueError(f"{column}: write a whole number, not {row[column]!r}")
    return int(value)


def _switch(row: Row, column: str) -> bool:
    text = row.get(column, "").strip().lower()
    if text not in ("", "0", "1", "true", "false"):
        raise ValueError(f"{column}: write true or false, not {row[column]!r}")
    return text in ("1", "true")


def _csv_rows(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or []
        if len(names) == 1 and ";" in names[0]:
            raise TraceError(f"{path}:1: has semicolons between its cells: write commas")
        if (twice := repeated(names)) is not None:
            raise TraceError(f"{path}:1: there are two columns {shortened(twice)!r}: keep one of them")
        try:
            for row in reader:
                if None in row:  # DictReader's key for surplus cells; missing ones are None values
                    raise TraceError(f"{path}:{reader.line_num}: has more cells than the first line")
                yield reader.line_num, {k: v for k, v in row.items() if v is not None}
        except csv.Error as error:
            raise TraceError(f"{path}:{reader.line_num}: no CSV: {error}") from None


# -- openb ---------------------------------------------------------------------------------------------------------------


def read_openb(path: Path, skip_bad: bool = False) -> Workload:
    """Read Alibaba's GPU cluster: the folder, or one of its pod lists with the node list beside it."""
    pods = path / OPENB_PODS if path.is_dir() else path
    machines = pods.parent / "openb_node_list_all_node.csv"
    reader, nodes, jobs = Reader(machines, skip_bad), [], Jobs()

    def take_node(row: Row) -> None:
        gpus = _whole(row, "gpu", 0, 10**9)
        capacity = {"cpu": _whole(row, "cpu_milli", 0, 10**12), "memory": _whole(row, "memory_mib", 0, 10**12) * 2**20}
        if gpus:
            capacity["gpu"] = gpus * 1000
        nodes.append(Node(row["sn"], capacity, {"model": row["model"]} if row["model"] else {}))

    def take_pod(row: Row) -> None:
        demand = {"cpu": _whole(row, "cpu_milli", 0, 10**12), "memory": _whole(row, "memory_mib", 0, 10**12) * 2**20}
        gpus = _whole(row, "num_gpu", 0, 10**9)
        if gpus:
            demand["gpu"] = _whole(row, "gpu_milli", 1, 1000) if gpus == 1 else gpus * 1000
        if "creation_time" not in row:
            raise ValueError("has no times: use openb_pod_list_default.csv or a gpuspec list")
        begin, end = _number(row, "creation_time"), _number(row, "deletion_time")
        begun = _number(row, "scheduled_time") if row.get("scheduled_time") else begin
        if not any(demand.values()) or end < begun:
            raise ValueError("asks for nothing" if end >= begun else "is deleted before it is scheduled")
        on = {"model": row["gpu_spec"].split("|")} if row.get("gpu_spec") else {}
        jobs.add(begin, row["qos"], {r: q for r, q in demand.items() if q}, max(1.0, end - begun), on=on)

    reader.each(_csv_rows(machines), take_node)
    pod_reader = Reader(pods, skip_bad)
    pod_reader.each(_csv_rows(pods), take_pod)
    notes = ["openb: a pod's qos is its queue; a node's GPUs are one pool; a pod runs from scheduling to deletion"]
    return jobs.workload(pods.stem, nodes, [], reader.skipped + pod_reader.skipped, notes)


# -- swim ----------------------------------------------------------------------------------------------------------------


def read_swim(path: Path, skip_bad: bool = False, how: Derivation | None = None) -> Workload:
    """Read one of Facebook's days, which names no machines; the rest comes from :class:`Derivation`."""
    how = how or Derivation()
    rng = np.random.default_rng([how.seed, 2])
    reader, jobs = Reader(path, skip_bad), Jobs()
    users = 1 / np.arange(1, how.users + 1)
    users /= users.sum()
    chance = np.array([kind[0] for kind in how.kinds])
    demands: list[Quantities] = [
        {"cpu": round(cpu * 1000), "memory": round(memory * GiB)} for _, cpu, memory in how.kinds
    ]
    columns = ("submit", "gap", "input", "shuffle", "output")

    def rows() -> Iterator[tuple[int, list[str]]]:
        with path.open(encoding="utf-8") as file:
            for line, text in enumerate(file, 1):
                if text.strip():
                    yield line, text.rstrip("\n").split("\t")

    def take(fields: list[str]) -> None:
        if len(fields) != 6:
            raise ValueError(f"{len(fields)} columns: needs 6, separated by tabs")
        row = dict(zip(columns, fields[1:], strict=True))
        read, shuffled, written = (_number(row, name, 0, 1e18) for name in columns[2:])
        maps = max(1, math.ceil(read / how.split))
        reduces = math.ceil(max(shuffled, written) / how.reduce_split) if shuffled or written else 0
        tasks = maps + reduces
        if tasks > MOST_TASKS:
            raise ValueError(f"{tasks:,} tasks: more than {MOST_TASKS:,}")
        seconds = how.start + (read + shuffled + written) / how.rate / tasks
        user, kind = int(rng.choice(len(users), p=users)), int(rng.choice(len(chance), p=chance / chance.sum()))
        jobs.add(_number(row, "submit"), f"user{user:02}", demands[kind], float(math.ceil(seconds)), tasks)

    reader.each(rows(), take)
    notes = [
        f"swim: tasks of {how.split >> 20} MiB in and {how.reduce_split >> 20} MiB shuffled or out, {how.start:g} s and "
        f"{how.rate / 1e6:g} MB/s each; {how.users} users; demands <CPUs, GiB> "
        + ", ".join(f"<{cpu:g}, {memory:g}> {part:.0%}" for part, cpu, memory in how.kinds)
    ]
    return jobs.workload(path.stem, [], [], reader.skipped, notes)


# -- swf -----------------------------------------------------------------------------------------------------------------


def read_swf(path: Path, skip_bad: bool = False) -> Workload:
    """Read the Standard Workload Format: a job is a gang of its processors; its user is its queue.

    `MaxProcs` (or `MaxNodes`) of the header gives the number of machines. Each has one CPU, and the largest memory demand.
    """
    reader, jobs = Reader(path, skip_bad), Jobs()
    header: dict[str, int] = {}

    def rows() -> Iterator[tuple[int, list[str]]]:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line, text in enumerate(file, 1):
                if text.startswith(";"):
                    key, _, value = text[1:].partition(":")
                    if key.strip() in ("MaxProcs", "MaxNodes"):
                        header[key.strip()] = _machines_of(f"{path}:{line}: {key.strip()}", value.strip())
                elif text.strip():
                    yield line, text.split()

    most_memory = 0

    def take(fields: list[str]) -> None:
        nonlocal most_memory
        if len(fields) < 18:  # some archives append their own
            raise ValueError(f"{len(fields)} fields: needs 18")
        row = dict(zip(("job", "submit", "wait", "run", "used"), fields, strict=False))
        row["asked"], row["memory"], row["status"], row["user"] = fields[7], fields[9], fields[10], fields[11]
        submit, run = _number(row, "submit"), _number(row, "run", -1, LONGEST)
        asked = _whole(row, "asked", -1, MOST_TASKS)
        processors = asked if asked > 0 else _whole(row, "used", -1, MOST_TASKS)
        if row["status"] in ("0", "5") and run <= 0:
            return  # failed or cancelled before it ran: nothing to replay
        for known, what in ((processors >= 1, "how many processors it had"), (run >= 0, "how long it ran")):
            if not known:
                raise ValueError(f"does not say {what}: field {8 if what.endswith('had') else 4} is -1")
        demand = {"cpu": 1000}
        memory = int(_number(row, "memory", -1, LARGEST_MEMORY))
        if memory > 0:
            demand["memory"] = memory * 1024  # KiB per processor
            most_memory = max(most_memory, memory * 1024)
        user = f"user{_whole(row, 'user', -1, 10**12)}".replace("-1", "_unknown")
        jobs.add(submit, user, demand, max(1.0, run), processors, gang=processors > 1)

    reader.each(rows(), take)
    count = header.get("MaxProcs", header.get("MaxNodes", 0))
    capacity = {"cpu": 1000, **({"memory": most_memory} if most_memory else {})}
    nodes = [Node(f"p{i}", capacity, {}) for i in range(count)]
    notes = ["swf: one machine per processor; all processors of a job start at once; a job's user is its queue"]
    return jobs.workload(path.stem, nodes, [], reader.skipped, notes)


def _machines_of(where: str, text: str) -> int:
    """Parse the number of machines in a header line; 0 if it is not a number."""
    if not text.isascii() or not text.isdigit():
        return 0
    if len(text) > 15 or int(text) > MOST_MACHINES:
        raise TraceError(f"{where}: {shortened(text)} is more than {MOST_MACHINES:,} machines")
    return int(text)


# -- tables ------------------------------------------------------------------------------------------------------------


def read_jobs(path: Path, skip_bad: bool = False) -> Workload:
    """Read a CSV or Parquet table; see `TABLE_COLUMNS`."""
    reader, jobs = Reader(path, skip_bad), Jobs()
    named: dict[str, tuple[int, float]] = {}

    def take(row: Row) -> None:
        for name in _NO_RESOURCES:
            if name in row:
                raise ValueError(
                    f"{name}: is neither a resource nor a column of a trace: leave it out, or set it in --config"
                )
        demand = {
            name: parse_quantity(name, amount) for name, amount in row.items() if name not in _KNOWN and amount != ""
        }
        demand = {name: amount for name, amount in demand.items() if amount}
        if not demand:
            raise ValueError("asks for nothing: name an amount of some resource")
        durations = [_number({"duration": each}, "duration", 0, LONGEST) for each in row["duration"].split() or [""]]
        tasks = _whole(row, "tasks", 1, MOST_TASKS) if row.get("tasks") else len(durations)
        if len(durations) not in (1, tasks):
            raise ValueError(f"duration: {len(durations)} durations for {tasks} tasks")
        priority = _whole(row, "priority", -1_000_000, 1_000_000) if row.get("priority") else 0
        queue, gang, on = _leaf(row), _switch(row, "gang"), _labels(row)
        submit, name = _number(row, "submit"), row.get("job", "")
        if name in named:
            raise ValueError(f"job: {name!r} exists already: choose another name")
        after = [_before(named, other, submit) for other in row.get("after", "").split()]
        if name:
            named[name] = len(jobs), submit
        jobs.add(
            submit,
            queue,
            demand,
            durations if len(durations) > 1 else durations[0],
            tasks,
            on,
            gang,
            priority,
            after=after,
        )

    reader.each(_parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path), take)
    return jobs.workload(path.stem, [], [], reader.skipped)


_NO_RESOURCES = ("weight", "guarantee", "limit", "policy")
"""Settings of queues, refused as columns: they would count as resources."""
_KNOWN = ("submit", "queue", "duration", "tasks", "priority", "gang", "on", "job", "after")


def _leaf(row: Row) -> str:
    """Return a row's leaf queue."""
    name = check_queue_name(row.get("queue") or "default")
    if USERS in name.split("/"):
        raise ValueError(f"queue: {name!r}: a job is in one queue: write its own name instead of {USERS!r}")
    return name


def _labels(row: Row) -> dict[str, list[str]]:
    """Parse the labels that a row requires, with their accepted values."""
    found = {}
    for each in row.get("on", "").split():
        label, equals, values = each.partition("=")
        if not label or not equals or not all(values.split("|")):
            raise ValueError(f"on: {each!r}: write LABEL=VALUE, or LABEL=VALUE|VALUE")
        found[label] = values.split("|")
    return found


def _before(named: dict[str, tuple[int, float]], name: str, submit: float) -> int:
    """Return the index of an earlier job by name, for a job submitted at `submit`."""
    if name not in named or named[name][1] > submit:
        why = "is submitted later" if name in named else "is no job above"
        raise ValueError(f"after: {name!r} {why}: a job comes after earlier ones")
    return named[name][0]


def _parquet_rows(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise TraceError("Parquet needs pyarrow: pip install 'fairlead[simulate]'") from None
    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise TraceError(f"{path}: not Parquet: {str(error).splitlines()[0]}") from None
    for number, row in enumerate(table.to_pylist(), 1):
        yield number, {name: str(value) for name, value in row.items() if value is not None}


# -- journals ------------------------------------------------------------------------------------------------------------


def read_journal(path: Path, skip_bad: bool = False) -> Workload:
    """Read the journal of a live scheduler: machines, queue tree, and jobs with the real durations of their tasks.

    A duration is from placement to end, the time that the task held resources; the last placement counts. Tasks that have not
    ended get the job's median; jobs without an ended task are left out, with a note. Facts folded into snapshots are gone.
    """
    from fairlead.journal import JournalError, read_history
    from fairlead.journal.sql import SqlStore

    nodes: dict[str, Node] = {}
    queues: list[Queue] = []
    specs: dict[int, JobSubmitted] = {}
    placed: dict[tuple[int, int], float] = {}
    took: dict[int, dict[int, float]] = {}
    try:
        with closing(SqlStore(path, to_read=True)) as store:
            known, _, facts = read_history(store)
            if known is not None:
                nodes, queues = {node.name: node for node in known.cluster.specs}, list(known.tree.declared.values())
            for fact in facts:
                if isinstance(fact, NodeJoined):
                    nodes[fact.node.name] = fact.node
                elif isinstance(fact, Configured):
                    queues = fact.queues
                elif isinstance(fact, JobSubmitted):
                    specs[fact.id] = fact
                elif isinstance(fact, TasksPlaced):
                    placed |= dict.fromkeys(zip(fact.job.tolist(), fact.index.tolist(), strict=True), fact.at)
                elif isinstance(fact, TasksFinished):
                    for job, index in zip(fact.job.tolist(), fact.index.tolist(), strict=True):
                        if (job, index) in placed:
                            took.setdefault(job, {})[index] = fact.at - placed[job, index]
    except JournalError as error:
        raise TraceError(str(error)) from None
    jobs, left_out = Jobs(), 0
    first = min((fact.at for fact in specs.values()), default=0.0)
    for number, fact in specs.items():
        ran, job = took.get(number, {}), fact.job
        if not ran:
            left_out += 1
            continue
        usual = float(np.median(list(ran.values())))
        durations = [ran.get(index, usual) for index in range(job.tasks)]
        each = durations if job.tasks > 1 else durations[0]
        jobs.add(fact.at - first, holds_jobs_of(job.queue), job.demand, each, job.tasks, job.on, job.gang, job.priority)
    if not len(jobs):
        raise TraceError(f"{path}: no job has an ended task")
    which = f"{left_out:,} job{'s' * (left_out > 1)} without an ended task {'are' if left_out > 1 else 'is'} left out"
    return jobs.workload(path.stem, list(nodes.values()), queues, notes=[f"{path}: {which}"] if left_out else None)


READERS: dict[str, Callable[[Path, bool], Workload]] = {
    "openb": read_openb,
    "swim": read_swim,
    "swf": read_swf,
    "table": read_jobs,
    "journal": read_journal,
}

__all__ = ["READERS", "TABLE_COLUMNS", "Derivation", "read_trace"]
