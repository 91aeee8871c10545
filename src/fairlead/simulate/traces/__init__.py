"""Read published traces into workloads.

- `openb`: Alibaba's GPU cluster, 2023: :mod:`fairlead.simulate.traces.openb`.
- `swim`: Facebook's Hadoop clusters, 2009 and 2010. Tasks, durations, demands and users are derived:
  :class:`fairlead.simulate.traces.swim.Derivation`.
- `swf`: the Standard Workload Format of the Parallel Workloads Archive.
- `table`: CSV or Parquet with the columns of `TABLE_COLUMNS`; any other column is a resource.
- `journal`: the journal of a live scheduler.

A malformed row raises :class:`TraceError` with file and line, or is skipped and counted.
"""

from collections.abc import Callable
from pathlib import Path

from fairlead.simulate.traces import openb, rows
from fairlead.simulate.traces.journal import read_journal
from fairlead.simulate.traces.openb import read_openb
from fairlead.simulate.traces.swf import read_swf
from fairlead.simulate.traces.swim import Derivation, read_swim
from fairlead.simulate.traces.table import TABLE_COLUMNS, read_table
from fairlead.simulate.workload import TraceError, Workload


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
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text (byte {error.start})") from None
    if not len(found.submit):
        raise TraceError(f"{path}: contains no jobs")
    return found


def _kind(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    if name.startswith("openb_pod"):
        return "openb"
    if path.is_dir():
        if not (path / openb.PODS).exists():
            raise TraceError(f"{path}: is a folder without {openb.PODS}, which openb needs: name a file")
        return "openb"
    kinds = {".tsv": "swim", ".swf": "swf", ".csv": "table", ".parquet": "table", ".db": "journal"}
    for suffix, kind in kinds.items():
        if name.endswith(suffix):
            return kind
    raise TraceError(f"{path}: unknown format: choose one with --format: {', '.join(READERS)}")


def _read_jobs(path: Path, skip_bad: bool = False) -> Workload:
    """Read a CSV or Parquet table."""
    chunks = rows.parquet(path) if path.suffix.lower() == ".parquet" else rows.delimited(path)
    jobs, read = read_table(path, chunks, skip_bad)
    return jobs.workload(path.stem, [], [], read.skipped)


READERS: dict[str, Callable[[Path, bool], Workload]] = {
    "openb": read_openb,
    "swim": read_swim,
    "swf": read_swf,
    "table": _read_jobs,
    "journal": read_journal,
}

__all__ = ["READERS", "TABLE_COLUMNS", "Derivation", "read_trace"]
