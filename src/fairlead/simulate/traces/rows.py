"""Rows of a trace by columns of text, a chunk at a time; a malformed row is known by its line."""

import csv
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice, zip_longest
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from fairlead.model.faults import repeated, shortened
from fairlead.model.quantity import read_number
from fairlead.simulate.workload import F64, I64, Once, TraceError

CHUNK = 500
"""Rows of a chunk: few enough that its texts stay in the processor's caches."""
LATEST = 1e11
"""Latest time, in seconds: beyond some 3,000 years float64 loses precision."""
Cells = Sequence[str] | F64


class Chunk:
    """Some rows of a trace.

    cells : by column, a list of texts, in which an empty cell is an empty text, or float64, shape (rows,)
    lines : line of each row in its file
    faults : what is wrong with a row; the first thing counts
    left_out : bool, shape (rows,): rows that are no jobs, though nothing is wrong with them
    """

    def __init__(self, cells: dict[str, Cells], lines: Sequence[int], faults: dict[int, str] | None = None) -> None:
        self.cells, self.lines = cells, lines
        self.faults = {} if faults is None else faults
        self.left_out: NDArray[np.bool_] = np.zeros(len(lines), np.bool_)

    def texts(self, column: str) -> Sequence[str]:
        """Return a column of text; of empty cells if there is none."""
        found = self.cells.get(column)
        return [""] * len(self.lines) if found is None else found if isinstance(found, list) else [*map(_plain, found)]

    def numbers(self, column: str, least: float = 0.0, most: float = LATEST, empty: float | None = None) -> F64:
        """Return a column of numbers; rows out of range are faults. `empty` stands for empty cells, or for no column."""
        cells = self.cells.get(column)
        if cells is None:
            return np.full(len(self.lines), empty, float)
        blank = None
        if empty is not None and not isinstance(cells, np.ndarray) and "" in cells:
            blank = np.array([cell == "" for cell in cells])
            cells = [cell or f"{least}" for cell in cells]
        found = _fast_numbers(cells)
        if found is None or not ((found >= least) & (found <= most)).all():
            found = np.array([self._number(row, column, _plain(cell), least, most) for row, cell in enumerate(cells)])
        return found if blank is None else np.where(blank, float(empty or 0), found)

    def wholes(self, column: str, least: int, most: int, empty: int | None = None) -> I64:
        """Return a column of whole numbers, as :meth:`numbers` does."""
        found = self.numbers(column, least, most, empty)
        for row in np.flatnonzero(found != np.floor(found)).tolist():
            self.refuse(row, f"{column}: write a whole number, not {self.texts(column)[row]!r}")
        return found.astype(np.int64)

    def each(self, column: str, read: Callable[[str], float]) -> F64:
        return np.array([self.attempt(row, read, text) for row, text in enumerate(self.texts(column))], np.float64)

    def codes(self, values: Sequence[Any], number: Once) -> I64:
        """Return the number of each value; one that has none is a fault of its row."""
        try:
            return number.column(values)
        except ValueError:
            return np.array([self.attempt(row, number.__getitem__, value) for row, value in enumerate(values)])

    def attempt(self, row: int, read: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `read` returns of these arguments; its ValueError is a fault of the row."""
        try:
            return read(*arguments)
        except ValueError as error:
            self.refuse(row, str(error))
            return 0

    def refuse(self, row: int, why: str) -> None:
        """Record what is wrong with a row, unless something is already."""
        self.faults.setdefault(row, why)

    def refuse_all(self, rows: NDArray[np.bool_], why: str) -> None:
        for row in np.flatnonzero(rows).tolist():
            self.refuse(row, why)

    def _number(self, row: int, column: str, text: str, least: float, most: float) -> float:
        try:
            return read_number(text, float, least, most)
        except ValueError as error:
            self.refuse(row, f"{column}: {error}")
            return least


def _fast_numbers(cells: Cells) -> F64 | None:
    """Return the numbers, or None if some cell may not be one as :func:`read_number` reads them."""
    if isinstance(cells, np.ndarray):
        return cells
    text = "".join(cells)
    if "_" in text or not text.isascii():
        return None
    try:
        return np.fromiter(map(float, cells), float, len(cells))
    except ValueError:
        return None


def _plain(cell: Any) -> str:
    return cell if isinstance(cell, str) else f"{cell:.12g}"


class Rows:
    """Chooses the rows of one file: stops at a malformed one, or skips and counts it."""

    def __init__(self, path: Path, skip_bad: bool) -> None:
        self.path, self._skip_bad = path, skip_bad
        self.skipped = self.left_out = 0

    def good(self, chunk: Chunk) -> I64:
        """Return the rows of a chunk that are jobs without a fault, once all of its columns are read."""
        faults = [row for row in chunk.faults if not chunk.left_out[row]]
        if faults and not self._skip_bad:
            row = min(faults)
            why = shortened(chunk.faults[row])
            raise TraceError(f"{self.path}:{chunk.lines[row]}: {why} (--skip-bad skips such rows)")
        self.skipped += len(faults)
        self.left_out += int(chunk.left_out.sum())
        chosen = ~chunk.left_out
        chosen[[*chunk.faults]] = False
        return np.flatnonzero(chosen)


def opened(path: Path, errors: str = "strict") -> TextIO:
    """Open a text file, which may be compressed with gzip."""
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig", errors=errors)
    return path.open(newline="", encoding="utf-8-sig", errors=errors)


def delimited(path: Path, separator: str = ",", names: Sequence[str] = (), errors: str = "strict") -> Iterator[Chunk]:
    """Read text with a row a line; `names` are the columns of a file whose first line is a row."""
    with opened(path, errors) as file:
        reader = csv.reader(file, delimiter=separator, quotechar=None if separator == "|" else '"', strict=True)
        begin, rows = 0, list[list[str]]()
        try:
            names = names or _header(path, next(reader, []), separator)
            begin = reader.line_num
            while True:
                rows.extend(islice(reader, CHUNK))  # so the rows before a fault are known
                if not rows:
                    return
                lines: Sequence[int] = range(begin + 1, reader.line_num + 1)
                begin = reader.line_num
                if len(lines) != len(rows) or [] in rows:
                    lines = [*accumulate((1 + sum(map(_line_ends, row)) for row in rows), initial=lines[0] - 1)][1:]
                    lines = [line for line, row in zip(lines, rows, strict=True) if row]
                    rows = [row for row in rows if row]
                yield by_columns(names, rows, lines)
                rows = []
        except csv.Error as error:
            line = begin + 1 + sum(1 + sum(map(_line_ends, row)) for row in rows)
            quoted = reader.line_num > line or "end of data" in str(error)
            raise TraceError(f"{path}:{line}: not CSV: {'a quote is not closed' if quoted else error}") from None


def _line_ends(cell: str) -> int:
    return cell.count("\n") + cell.count("\r") - cell.count("\r\n")


def by_columns(names: Sequence[str], rows: list[list[str]], lines: Sequence[int]) -> Chunk:
    """Return rows by columns; missing cells at the end are empty, and more cells than columns are a fault."""
    columns = [*map(list, zip_longest(*rows, fillvalue=""))]
    columns += [[""] * len(rows)] * (len(names) - len(columns))
    chunk = Chunk(dict(zip(names, columns, strict=False)), lines)
    if len(columns) > len(names):
        for number, row in enumerate(rows):
            if len(row) > len(names):
                chunk.refuse(number, "has more cells than the first line")
    return chunk


def _header(path: Path, names: list[str], separator: str) -> list[str]:
    bars = "bars between its cells: sacct -P writes so: use --format sacct"
    for other, what in ((";", "semicolons between its cells: write commas"), ("|", bars)):
        if len(names) == 1 and separator == "," and other in names[0]:
            raise TraceError(f"{path}:1: has {what}")
    if (twice := repeated(names)) is not None:
        raise TraceError(f"{path}:1: there are two columns {shortened(twice)!r}: keep one of them")
    return names


def parquet(path: Path) -> Iterator[Chunk]:
    """Read Parquet; a row's number stands for its line."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise TraceError("Parquet needs pyarrow: pip install 'fairlead[simulate]'") from None
    try:
        with ParquetFile(path) as file:
            line = 1
            for batch in file.iter_batches(CHUNK):
                cells: dict[str, Cells] = {
                    name: ["" if value is None else str(value) for value in column.to_pylist()]
                    for name, column in zip(batch.schema.names, batch.columns, strict=True)
                }
                yield Chunk(cells, range(line, line + batch.num_rows))
                line += batch.num_rows
    except pyarrow.ArrowException as error:
        raise TraceError(f"{path}: not Parquet: {str(error).splitlines()[0]}") from None


def records(path: Path, where: str = "") -> list[dict[str, Any]]:
    """Read the list of objects at `where`, keys with dots between, in a JSON file."""
    with opened(path) as file:
        try:
            found = json.load(file)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{path}: not JSON: {shortened(str(error))}") from None
    for key in where.split(".") if where else ():
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise TraceError(f"{path}: has no list of objects{' at ' * bool(where)}{where}")
    return found
