"""Read published traces into workloads.

- `openb`: Alibaba's GPU cluster, 2023: :mod:`fairlead.simulate.traces.openb`.
- `swim`: Facebook's Hadoop clusters, 2009 and 2010. Tasks, durations, demands and users are derived:
  :class:`fairlead.simulate.traces.swim.Derivation`.
- `swf`: the Standard Workload Format of the Parallel Workloads Archive.
- `table`: CSV or Parquet with the columns of `TABLE_COLUMNS`; any other column is a resource.
- `sacct`: Slurm's accounting, from `sacct -P`.
- `yarn`: YARN's applications, from the ResourceManager.
- `journal`: the journal of a live scheduler.

A malformed row raises :class:`TraceError` with file and line, or is skipped and counted.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fairlead.model.faults import shortened
from fairlead.simulate.traces import openb, rows, sacct, yarn
from fairlead.simulate.traces.journal import read_journal
from fairlead.simulate.traces.mapping import mapped, read_mapping
from fairlead.simulate.traces.openb import read_openb
from fairlead.simulate.traces.rows import Chunk
from fairlead.simulate.traces.swf import read_swf
from fairlead.simulate.traces.swim import Derivation, read_swim
from fairlead.simulate.traces.table import TABLE_COLUMNS, read_table
from fairlead.simulate.workload import TraceError, Workload


def read_trace(
    path: Path, kind: str | None = None, *, skip_bad: bool = False, derivation: Derivation | None = None,
    columns: Path | None = None,
) -> Workload:  # fmt: skip
    """Read a trace of a kind of `READERS`, by default that of the file name.

    `skip_bad` skips and counts malformed rows; `derivation` is for ``swim``; `columns` says where a table's columns come from
    (:mod:`fairlead.simulate.traces.mapping`). Raises TraceError, which names file, line and remedy.
    """
    kind = kind or ("table" if columns else kind_of(path))
    if kind not in READERS:
        raise TraceError(f"--format {kind!r}: use one of {', '.join(READERS)}")
    if columns and kind != "table":
        what = f"is for tables, and {path} is {kind}"
        raise TraceError(f"--columns {columns}: {what}: leave it out, or add --format table")
    try:
        if columns:
            found = _joined(path, mapped(path, read_mapping(columns)), skip_bad)
        else:
            found = read_swim(path, skip_bad, derivation) if kind == "swim" else READERS[kind](path, skip_bad)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {shortened(error.strerror or str(error))}") from None
    except (EOFError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be unpacked: {error}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text (byte {error.start})") from None
    if not len(found.submit):
        raise TraceError(f"{path}: contains no jobs")
    return found


def kind_of(path: Path) -> str:
    """Return the format of a trace by its name. Raises TraceError if it has none."""
    name = path.name.lower().removesuffix(".gz")
    if name.startswith("openb_pod"):
        return "openb"
    if path.is_dir():
        if not (path / openb.PODS).exists():
            raise TraceError(f"{path}: is a folder without {openb.PODS}, which openb needs: name a file")
        return "openb"
    for suffix, kind in SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    if not path.exists():
        raise TraceError(f"{path}: cannot be read: No such file or directory")
    if path.is_file() and not path.stat().st_size:
        raise TraceError(f"{path}: is empty: name a file with jobs")
    raise TraceError(f"{path}: unknown format: choose one with --format: {', '.join(READERS)}")


def _read_jobs(path: Path, skip_bad: bool = False) -> Workload:
    chunks = rows.parquet(path) if path.suffix.lower() == ".parquet" else rows.delimited(path)
    jobs, read = read_table(path, chunks, skip_bad)
    return jobs.workload(path.stem, [], [], read.skipped)


def _joined(path: Path, chunks: Iterator[Chunk], skip_bad: bool, *notes: str) -> Workload:
    """Read chunks of a table whose times are dates, or from any start: they count from the first submission."""
    jobs, read = read_table(path, chunks, skip_bad)
    left = f"{path}: left out {read.left_out:,} of its rows: no jobs that ran and ended, or not to be used"
    found = jobs.workload(path.stem, [], [], read.skipped, [*notes, *([left] if read.left_out else [])])
    return replace(found, submit=found.submit - found.submit[:1])


SUFFIXES = {
    ".tsv": "swim", ".swf": "swf", ".csv": "table", ".parquet": "table", ".db": "journal", ".sacct": "sacct", ".json": "yarn",
}  # fmt: skip
READERS: dict[str, Callable[[Path, bool], Workload]] = {
    "openb": read_openb,
    "swim": read_swim,
    "swf": read_swf,
    "table": _read_jobs,
    "sacct": lambda path, skip_bad: _joined(path, sacct.sacct_chunks(path), skip_bad, sacct.NOTE),
    "yarn": lambda path, skip_bad: _joined(path, yarn.yarn_chunks(path), skip_bad, yarn.NOTE),
    "journal": read_journal,
}

__all__ = ["READERS", "TABLE_COLUMNS", "Derivation", "kind_of", "read_trace"]
