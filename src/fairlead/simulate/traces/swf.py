"""The Standard Workload Format of the Parallel Workloads Archive (Feitelson, version 2.2)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fairlead.model.faults import shortened
from fairlead.model.specs import Node
from fairlead.simulate.traces.rows import CHUNK, Chunk, by_columns, opened
from fairlead.simulate.traces.table import LONGEST, MOST_TASKS, read_table
from fairlead.simulate.workload import TraceError, Workload

MOST_MACHINES = 1_000_000
LARGEST_MEMORY = 1e15
"""KiB per processor."""
FIELDS = ("job", "submit", "wait", "run", "used", "cpu", "memory used", "asked", "time", "memory", "status", "user")
"""The first of eighteen fields; -1 stands for unknown."""


def read_swf(path: Path, skip_bad: bool = False) -> Workload:
    """Read the format: a job is a gang of its processors; its user is its queue.

    `MaxProcs` (or `MaxNodes`) of the header gives the number of machines. Each has one CPU, and the largest memory demand.
    """
    header: dict[str, int] = {}
    jobs, found = read_table(path, map(_table, _chunks(path, header)), skip_bad)
    count = header.get("MaxProcs", header.get("MaxNodes", 0))
    workload = jobs.workload(path.stem, [], [], found.skipped, [
        "swf: one machine per processor; all processors of a job start at once; a job's user is its queue"
    ])  # fmt: skip
    largest = max((demand.get("memory", 0) for demand in workload.demands), default=0)
    capacity = {"cpu": 1000} | ({"memory": largest} if largest else {})
    workload.nodes.extend(Node(f"p{i}", capacity, {}) for i in range(count))
    return workload


def _table(chunk: Chunk) -> Chunk:
    submit, run = chunk.numbers("submit"), chunk.numbers("run", -1, LONGEST)
    asked, used = (chunk.wholes(name, -1, MOST_TASKS) for name in ("asked", "used"))
    tasks = np.where(asked > 0, asked, used)
    never = np.isin(chunk.texts("status"), ("0", "5")) & (run <= 0)
    chunk.left_out = never & ~np.isin(np.arange(len(run)), [*chunk.faults])  # failed or cancelled before it ran
    chunk.refuse_all((tasks < 1) & ~never, "does not say how many processors it had: field 8 is -1")
    chunk.refuse_all((run < 0) & ~never, "does not say how long it ran: field 4 is -1")
    memory = np.maximum(chunk.numbers("memory", -1, LARGEST_MEMORY), 0).astype(np.int64) * 1024  # KiB per processor
    limit = chunk.numbers("time", -1, LONGEST)
    users = chunk.wholes("user", -1, 10**12).tolist()
    chunk.cells = {
        "submit": submit, "duration": np.maximum(1.0, run), "tasks": np.maximum(1.0, tasks), "cpu": ["1"] * len(run),
        "memory": [*map(str, memory.tolist())], "gang": ["1" if count > 1 else "" for count in tasks.tolist()],
        "time_limit": [str(seconds) if seconds > 0 else "" for seconds in limit.tolist()],
        "queue": ["user_unknown" if user < 0 else f"user{user}" for user in users],
    }  # fmt: skip
    return chunk


def _chunks(path: Path, header: dict[str, int]) -> Iterator[Chunk]:
    """Read jobs; what the header says of machines goes into `header`."""
    rows: list[list[str]] = []
    lines: list[int] = []
    with opened(path, "replace") as file:
        for line, text in enumerate(file, 1):
            if text.startswith(";"):
                key, _, value = text[1:].partition(":")
                if key.strip() in ("MaxProcs", "MaxNodes"):
                    header[key.strip()] = _machines_of(f"{path}:{line}: {key.strip()}", value.strip())
            elif text.strip():
                rows.append(text.split())
                lines.append(line)
            if len(rows) == CHUNK:
                yield _chunk(rows, lines)
                rows, lines = [], []
    yield _chunk(rows, lines)


def _chunk(rows: list[list[str]], lines: list[int]) -> Chunk:
    chunk = by_columns(FIELDS, [row[: len(FIELDS)] for row in rows], lines)
    for number, row in enumerate(rows):
        if len(row) < 18:  # some archives append their own
            chunk.refuse(number, f"{len(row)} fields: needs 18")
    return chunk


def _machines_of(where: str, text: str) -> int:
    """Parse the number of machines in a header line; 0 if it is not a number."""
    if not text.isascii() or not text.isdigit():
        return 0
    if len(text) > 15 or int(text) > MOST_MACHINES:
        raise TraceError(f"{where}: {shortened(text)} is more than {MOST_MACHINES:,} machines")
    return int(text)
