"""Tables of jobs: a row each, columns by name, any other column a resource."""

import json
import re
import sysconfig
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import numpy as np

from fairlead.model.documents import check_queue_name
from fairlead.model.faults import shortened
from fairlead.model.quantity import parse_quantity, plain_number
from fairlead.model.specs import USERS, Job
from fairlead.simulate.traces.rows import Chunk, Rows
from fairlead.simulate.workload import F64, I64, Jobs, Once, TraceError

LONGEST = 10 * 365 * 86400.0
"""Longest duration of a task, in seconds."""
MOST_TASKS = 10_000_000
"""Tasks per job."""
TABLE_COLUMNS = {
    "submit": "seconds from the start",
    "queue": "a path, such as research/vision; by default the user, else `default`",
    "user": "who submits it",
    "name": "forecasts are from jobs of the same name",
    "duration": "seconds of each task; or one number per task, separated by spaces",
    "time_limit": "seconds that each task may run at most; by default none",
    "tasks": "their number; by default 1, or the number of durations",
    "priority": "by default 0",
    "gang": "1: all tasks start at once or none",
    "on": "labels that a node must have, such as zone=east model=A100|H100",
    "job": "a unique name, for `after`",
    "after": "names of jobs that must end before, separated by spaces",
    "cpu, memory, gpu, ...": "what one task needs, as quantities: 0.5, 4GiB",
}
"""Columns of a `table`; `submit`, `duration` and a resource are required."""
KNOWN = frozenset(TABLE_COLUMNS) - {"cpu, memory, gpu, ..."}

SHIPPED = Path(sysconfig.get_path("data"), "share", "fairlead", "columns")


@cache
def _meanings() -> dict[str, str]:
    """Return what columns of other systems, in lower case without other signs, might be here."""
    known: dict[str, str] = json.loads((SHIPPED / "elsewhere.json").read_text("utf-8"))
    return {name: meaning for meaning, names in known.items() for name in names.split()}


def check_columns(path: Path, names: Sequence[str]) -> list[str]:
    """Return the columns that are resources. Raises TraceError for one that is known elsewhere, or if a needed one is missing."""
    where, leave = f"{path}:1", "or list the columns to use in a file for --columns"
    for name in names:
        if name in ("weight", "guarantee", "limit", "policy"):
            what = "is neither a resource nor a column of a trace"
            raise TraceError(f"{where}: {name}: {what}: leave it out, or set it in --config")
        meant = _meanings().get(re.sub(r"[^a-z0-9]", "", name.lower()))
        if name not in KNOWN and (meant is not None or not name):
            rename = f"rename it {meant} if it is that, " if meant else ""
            what = shortened(name or "a column without a name")
            raise TraceError(f"{where}: {what}: is not a resource: {rename}leave it out, {leave}")
    resources = [name for name in names if name not in KNOWN]
    if not KNOWN & set(names):
        raise TraceError(
            f"{where}: has no column of a table, such as submit and duration, but {shortened(', '.join(names)) or 'nothing'}: "
            "rename its columns, or name them in a file for --columns"
        )
    for name in ("submit", "duration"):
        if name not in names:
            raise TraceError(f"{where}: there is no column {name!r}: add it, {leave}")
    if not resources:
        raise TraceError(f"{where}: there is no resource: add a column such as cpu or memory, {leave}")
    return resources


def read_table(path: Path, chunks: Iterator[Chunk], skip_bad: bool) -> tuple[Jobs, Rows]:
    rows, table = Rows(path, skip_bad), _Table(path)
    for chunk in chunks:
        table.take(chunk, rows)
    return table.jobs, rows


class _Table:
    """Reads a table into jobs; each distinct text is parsed once."""

    def __init__(self, path: Path) -> None:
        self.jobs = Jobs()
        self._path = path
        self._resources: list[str] = []
        self._amounts: dict[str, Once] = {}
        self._shapes = Once(self._shape)
        self._leaves = Once(lambda queue: self.jobs.leaf(_leaf(queue)))
        self._switches = Once(_switch)
        self._templates = Once(lambda who: self.jobs.like(Job(queue="", demand={}, user=who[0], name=who[1])))
        self._named: dict[str, tuple[int, float]] = {}

    def take(self, chunk: Chunk, rows: Rows) -> None:
        if not self._amounts:
            self._resources = check_columns(self._path, [*chunk.cells])
            self._amounts = {name: Once(partial(parse_quantity, name)) for name in self._resources}
        of_shape = [*map(chunk.texts, self._resources)]
        shape = chunk.codes([*zip(*of_shape, chunk.texts("on"), strict=True)], self._shapes)
        each, durations, lengths = _durations(chunk)
        tasks = chunk.wholes("tasks", 1, MOST_TASKS, 0)
        tasks = np.where(tasks == 0, lengths, tasks)
        for row in np.flatnonzero((lengths != 1) & (lengths != tasks)).tolist():
            chunk.refuse(row, f"duration: {lengths[row]} durations for {tasks[row]} tasks")
        priority = chunk.wholes("priority", -1_000_000, 1_000_000, 0)
        users = chunk.texts("user")
        queues = chunk.texts("queue") if "queue" in chunk.cells else [*map(as_queue, users)]
        leaf = chunk.codes(queues, self._leaves)
        gang = chunk.codes(chunk.texts("gang"), self._switches) > 0
        limit = chunk.numbers("time_limit", 0, LONGEST, np.inf)
        who = [*zip(users, chunk.texts("name"), strict=True)] if {"user", "name"} & chunk.cells.keys() else []
        like = chunk.codes(who, self._templates) if who else np.full(len(users), self._templates["", ""])
        submit = chunk.numbers("submit")
        after = self._follow(chunk, submit) if {"job", "after"} & chunk.cells.keys() else {}

        good = rows.good(chunk)
        flat = np.array([x for row in good.tolist() for x in durations[row]], float) if durations else each[good]
        self.jobs.extend(
            submit[good], leaf[good], shape[good], flat, tasks[good], lengths[good], gang[good], priority[good],
            time_limit=limit[good], like=like[good], after=after,
        )  # fmt: skip

    def _shape(self, texts: tuple[str, ...]) -> int:
        """Return the number of a demand with its labels."""
        given = zip(self._resources, texts, strict=False)
        demand = {name: amount for name, text in given if text != "" and (amount := self._amounts[name][text])}
        if not demand:
            raise ValueError("asks for nothing: name an amount of some resource")
        return self.jobs.shape(demand, _labels(texts[-1]))

    def _follow(self, chunk: Chunk, submit: F64) -> dict[int, list[int]]:
        """Return, by job, the earlier jobs that it comes after."""
        found, number = {}, len(self.jobs)
        for row, (name, others) in enumerate(zip(chunk.texts("job"), chunk.texts("after"), strict=True)):
            if row in chunk.faults or chunk.left_out[row]:
                continue
            before = chunk.attempt(row, self._before, name, others.split(), submit[row])
            if row in chunk.faults:
                continue
            if before:
                found[number] = before
            if name:
                self._named[name] = number, float(submit[row])
            number += 1
        return found

    def _before(self, name: str, others: list[str], submit: float) -> list[int]:
        """Return the indices of the other jobs, by name, that a job submitted at `submit` comes after."""
        if name in self._named:
            raise ValueError(f"job: {name!r} exists already: choose another name")
        for other in others:
            if other not in self._named or self._named[other][1] > submit:
                why = "is submitted later" if other in self._named else "is not a job above"
                raise ValueError(f"after: {other!r} {why}: a job comes after earlier ones")
        return [self._named[other][0] for other in others]


def _durations(chunk: Chunk) -> tuple[F64, list[list[float]] | None, I64]:
    """Return one duration per row, or a list per row where some have several, and how many each has."""
    cells = chunk.cells["duration"]
    if isinstance(cells, np.ndarray) or " " not in "".join(cells):
        return chunk.numbers("duration", 0, LONGEST), None, np.ones(len(chunk.lines), np.int64)
    split = [cell.split() or [""] for cell in cells]
    lengths = np.array([len(each) for each in split])
    rows = [row for row, each in enumerate(split) for _ in each]
    flat = Chunk({"duration": [text for each in split for text in each]}, rows)
    values = iter(flat.numbers("duration", 0, LONGEST).tolist())
    for place, why in flat.faults.items():
        chunk.refuse(rows[place], why)
    return np.zeros(0), [[next(values) for _ in each] for each in split], lengths


def moment(column: str, text: str, unit: float = 1.0) -> float:
    """Read a number of units as seconds, or a date and time, of UTC by default. Raises ValueError for anything else."""
    try:
        return float(plain_number(text)) * unit
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{column}: write a number, or a date and time, not {shortened(repr(text))}") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def as_queue(user: str) -> str:
    """Return a user, or another name, as a part of a queue's path: with _ for signs that it cannot have."""
    name = user if user.isalnum() and user.isascii() else re.sub(r"[^A-Za-z0-9_.@+-]", "_", user)
    return (name if name[:1].isalnum() else f"_{name}" if name else "")[:128]


def _leaf(text: str) -> str:
    name = check_queue_name(text or "default")
    if USERS in name.split("/"):
        raise ValueError(f"queue: {name!r}: a job is in one queue: write its own name instead of {USERS!r}")
    return name


def _switch(text: str) -> int:
    value = text.strip().lower()
    if value not in ("", "0", "1", "true", "false"):
        raise ValueError(f"gang: write true or false, not {text!r}")
    return value in ("1", "true")


def _labels(text: str) -> dict[str, list[str]]:
    """Parse the labels that a row requires, with their accepted values."""
    found = {}
    for each in text.split():
        label, equals, values = each.partition("=")
        if not label or not equals or not all(values.split("|")):
            raise ValueError(f"on: {each!r}: write LABEL=VALUE, or LABEL=VALUE|VALUE")
        found[label] = values.split("|")
    return found
