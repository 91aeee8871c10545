"""A file for `--columns`: how the columns of another system's trace become those of a table.

    names = ["vmid", "owner", "created", "deleted", "cores"]   # of a file whose first line is a row
    [columns]
    user = "owner"                                      # a column of the file
    submit = { column = "created", unit = "ms" }        # or a date and time: 2017-10-07 01:11:39
    duration = { end = "deleted", start = "created" }   # in the same unit, which is seconds by default
    cpu = { column = "cores", unit = "500m", values = { ">24" = "32" } }   # what 1 stands for, and texts to replace
    gang = true                                         # the same for all

Columns that the file does not list are ignored, and times count from the first submission.
"""

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from fairlead.failure import failing
from fairlead.model.faults import shortened
from fairlead.model.quantity import parse_quantity, plain_number
from fairlead.simulate.traces import rows
from fairlead.simulate.traces.rows import Cells, Chunk
from fairlead.simulate.traces.table import KNOWN, SHIPPED, moment
from fairlead.simulate.workload import F64, TraceError

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
TIMES = ("submit", "duration", "time_limit")


class Source(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where a column of a table comes from: a column of the file, or `end` less `start`.

    unit : what 1 stands for: of times one of `UNITS`, of a resource a quantity
    values : texts of the file, and what they stand for
    count : True to count the values at a path of JSON
    """

    column: str = ""
    end: str = ""
    start: str = ""
    unit: str = ""
    values: dict[str, str] = {}
    count: bool = False


class Events(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A file with a row per event of a job: the rows of one `key` become one row with the columns `submit`, `start` and `end`.

    column, time : columns of the event and of its time
    submit, start, end : the events of each kind; the first submission counts, and the last start and end
    """

    column: str
    time: str
    key: list[str]
    submit: list[str]
    start: list[str]
    end: list[str]


class Mapping(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A file for `--columns`.

    names : columns of a file whose first line is a row
    records : where the list of objects is in JSON, keys with dots between
    only : by column, the texts of rows that are used
    """

    columns: dict[str, str | int | float | bool | Source]
    format: Literal["csv", "json", "parquet"] | None = None
    separator: str = ","
    names: list[str] = []
    records: str = ""
    only: dict[str, list[str]] = {}
    events: Events | None = None


def read_mapping(path: Path) -> Mapping:
    """Read a mapping, or one of those in share/fairlead/columns by its name. Raises TraceError if it is invalid."""
    file = SHIPPED / f"{path}.toml" if len(path.parts) == 1 and not path.suffix and not path.exists() else path
    try:
        found = msgspec.convert(tomllib.loads(file.read_text("utf-8")), Mapping)
    except OSError as error:
        there = ", ".join(sorted(each.stem for each in SHIPPED.glob("*.toml")))
        raise TraceError(f"--columns {path}: {error.strerror}: name a file, or one of {there}") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise TraceError(f"--columns {path}: {shortened(str(error))}") from None
    for name, source in found.columns.items():
        if isinstance(source, Source):
            _check(f"--columns {path}: columns.{name}", name, source)
    return found


def _check(where: str, name: str, source: Source) -> None:
    if bool(source.column) == bool(source.start and source.end):
        raise TraceError(f"{where}: write column, or start and end")
    if not source.unit:
        return
    if name in TIMES and source.unit not in UNITS:
        raise TraceError(f"{where}: unit {source.unit!r} is unknown: use one of {', '.join(UNITS)}")
    if name in KNOWN and name not in TIMES:
        raise TraceError(f"{where}: has no unit: leave it out")
    if name not in KNOWN:
        with failing(f"{where}: unit: ", ValueError, to=TraceError):
            parse_quantity(name, source.unit)


def mapped(path: Path, mapping: Mapping) -> Iterator[Chunk]:
    """Read a file as chunks of a table."""
    suffix = path.suffix.lower().lstrip(".")
    kind = mapping.format or suffix
    if kind == "json":
        chunks = _of_records(path, mapping)
    else:
        chunks = rows.parquet(path) if kind == "parquet" else rows.delimited(path, mapping.separator, mapping.names)
    if mapping.events is not None:
        chunks = _of_events(path, chunks, mapping, mapping.events)
    amounts: dict[str, dict[str, str]] = {}
    return (_translated(path, mapping, chunk, amounts) for chunk in chunks)


def _check_names(path: Path, chunk: Chunk, names: Iterable[str]) -> None:
    for name in names:
        if name not in chunk.cells:
            there = shortened(", ".join(chunk.cells))
            raise TraceError(f"{path}: has no column {name!r}, which --columns uses: it has {there}")


def _paths(mapping: Mapping) -> dict[str, bool]:
    """Return the columns of the file that are used; True for those that are counted."""
    found = dict.fromkeys(mapping.only, False)
    for source in mapping.columns.values():
        if isinstance(source, str):
            found[source] = False
        elif isinstance(source, Source):
            found |= {each: source.count for each in (source.column, source.start, source.end) if each}
    return found


def _translated(path: Path, mapping: Mapping, chunk: Chunk, amounts: dict[str, dict[str, str]]) -> Chunk:
    """Turn a chunk of a file into one of a table; `amounts` are those read before, by column and text."""
    _check_names(path, chunk, _paths(mapping))
    for name, wanted in mapping.only.items():
        chunk.left_out |= ~np.isin(chunk.texts(name), wanted)
    found, broken = Chunk({}, chunk.lines, chunk.faults), [*chunk.faults]
    found.left_out = chunk.left_out
    for name, source in mapping.columns.items():
        if isinstance(source, bool | int | float):
            found.cells[name] = [str(source).lower()] * len(chunk.lines)
        else:
            known = amounts.setdefault(name, {"": ""})
            found.cells[name] = _column(chunk, name, Source(source) if isinstance(source, str) else source, known)
    found.left_out[broken] = False  # a row with a wrong number of cells says nothing
    return found


def _column(chunk: Chunk, name: str, source: Source, known: dict[str, str]) -> Cells:
    if source.start:
        end, start = (_moments(chunk, column, source) for column in (source.end, source.start))
        chunk.left_out |= np.isnan(end) | np.isnan(start)  # has not ended, or never started
        return np.nan_to_num(end - start)
    if name in TIMES:
        found = _moments(chunk, source.column, source)
        if name == "time_limit":
            return ["" if np.isnan(value) else repr(value) for value in found.tolist()]
        chunk.left_out |= np.isnan(found)
        return np.nan_to_num(found)
    texts = chunk.texts(source.column)
    if source.values:
        texts = [source.values.get(text, text) for text in texts]
    if name in KNOWN or not source.unit:
        return texts
    for row, text in enumerate(texts):
        if text not in known:
            known[text] = chunk.attempt(row, _amount, name, text, source.unit) or ""
    return [known[text] for text in texts]


def _amount(name: str, text: str, unit: str) -> str:
    """Return an amount in a unit as a quantity, to the nearest base unit."""
    try:
        base = round(float(plain_number(text)) * parse_quantity(name, unit))
    except (ValueError, OverflowError):
        raise ValueError(f"{name}: write a number, not {shortened(repr(text))}") from None
    return str(base) if parse_quantity(name, "1") == 1 else f"{base}m"


def _moments(chunk: Chunk, column: str, source: Source) -> F64:
    """Return times in seconds; NaN where there is none."""

    def read(text: str) -> float:
        text = source.values.get(text, text)
        if text.strip().lower() in ("", "none", "null", "nan", "unknown"):
            return np.nan
        return moment(column, text, UNITS[source.unit or "s"])

    return chunk.each(column, read)


def _of_records(path: Path, mapping: Mapping) -> Iterator[Chunk]:
    """Read objects of JSON by paths such as `attempts.-1.end`; `*` stands for all of a list."""
    found = rows.records(path, mapping.records)
    wanted = _paths(mapping)
    for begin in range(0, len(found), rows.CHUNK):
        some = found[begin : begin + rows.CHUNK]
        cells: dict[str, Cells] = {}
        for column, counts in wanted.items():
            values = [reduce(_step, column.split("."), [record]) for record in some]
            cells[column] = [str(len(each)) if counts else _text(each) for each in values]
        yield Chunk(cells, range(begin + 1, begin + 1 + len(some)))


def _step(values: list[Any], key: str) -> list[Any]:
    """Return what is at a key of each value."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, dict) and key in value:
            found.append(value[key])
        elif isinstance(value, list) and key == "*":
            found += value
        elif isinstance(value, list) and key.lstrip("-").isdigit() and -len(value) <= int(key) < len(value):
            found.append(value[int(key)])
    return found


def _text(values: Sequence[Any]) -> str:
    return "" if not values or values[0] is None else str(values[0])


def _of_events(path: Path, chunks: Iterator[Chunk], mapping: Mapping, events: Events) -> Iterator[Chunk]:
    """Join the events of each job into a row."""
    jobs: dict[tuple[str, ...], dict[str, str]] = {}
    lines: list[int] = []
    faults: dict[int, str] = {}
    others = [name for name in _paths(mapping) if name not in ("submit", "start", "end")]
    kinds = {text: kind for kind in ("submit", "start", "end") for text in getattr(events, kind)}
    for chunk in chunks:
        _check_names(path, chunk, (events.column, events.time, *events.key, *others))
        keys = zip(*map(chunk.texts, events.key), strict=True)
        times, columns = chunk.texts(events.time), [*map(chunk.texts, others)]
        for row, (key, event) in enumerate(zip(keys, chunk.texts(events.column), strict=True)):
            kind = kinds.get(event)
            if row in chunk.faults:
                faults[len(jobs)] = chunk.faults[row]
                jobs[(*key, str(len(jobs)))] = {}  # the key of no job
                lines.append(chunk.lines[row])
            elif kind == "submit" and key not in jobs:
                jobs[key] = {name: column[row] for name, column in zip(others, columns, strict=True)}
                jobs[key]["submit"] = times[row]
                lines.append(chunk.lines[row])
            elif kind in ("start", "end") and key in jobs:
                jobs[key][kind] = times[row]
    names = [*others, "submit", "start", "end"]
    yield Chunk({name: [job.get(name, "") for job in jobs.values()] for name in names}, lines, faults)
