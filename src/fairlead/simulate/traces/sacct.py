"""Slurm's accounting: the output of `sacct -P`, with the fields of `FIELDS` and any others.

A job is a gang of one task per node; its queue is its account and its user. Steps, and jobs that have not ended or never ran, are
left out.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fairlead.model.faults import shortened
from fairlead.simulate.traces.rows import Chunk, delimited
from fairlead.simulate.traces.table import as_queue
from fairlead.simulate.traces.times import moment
from fairlead.simulate.workload import TraceError

FIELDS = "JobID,JobName,User,Account,Submit,Elapsed,Timelimit,NNodes,ReqTRES,State"
NOTE = "sacct: a job is a gang of one task per node; its queue is ACCOUNT/USER"
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
_SIZE = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def sacct_chunks(path: Path) -> Iterator[Chunk]:
    """Read jobs as chunks of a table."""
    for chunk in delimited(path, "|", errors="replace"):
        missing = [name for name in FIELDS.split(",") if name not in chunk.cells]
        if missing:
            raise TraceError(f"{path}:1: has no field {missing[0]}: make it with sacct -a -X -P -o {FIELDS}")
        yield _table(chunk)


def _table(chunk: Chunk) -> Chunk:
    found = Chunk({}, chunk.lines, chunk.faults)
    state = [(text.split() or [""])[0] for text in chunk.texts("State")]
    elapsed = np.array(
        [chunk.attempt(row, _seconds, text) for row, text in enumerate(chunk.texts("Elapsed"))], np.float64
    )
    found.left_out = elapsed == 0
    found.left_out[[*chunk.faults]] = False  # a wrong time is not 0
    found.left_out |= np.isin(state, ("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING"))
    found.left_out |= np.array(["." in number for number in chunk.texts("JobID")], bool)
    submit, nodes = np.zeros(len(state)), chunk.numbers("NNodes", 1, 1e6, empty=1)
    demands: list[dict[str, str]] = []
    for row, (at, wanted) in enumerate(zip(chunk.texts("Submit"), chunk.texts("ReqTRES"), strict=True)):
        submit[row] = chunk.attempt(row, moment, "Submit", at)
        demands.append(chunk.attempt(row, _demand, wanted, int(nodes[row])) or {})
    users, limits = chunk.texts("User"), chunk.texts("Timelimit")
    accounts = chunk.texts("Account")
    found.cells = {
        "submit": submit,
        "duration": elapsed,
        "user": users,
        "name": chunk.texts("JobName"),
        "queue": ["/".join(filter(None, map(as_queue, both))) for both in zip(accounts, users, strict=True)],
        "time_limit": [str(seconds) if (seconds := _seconds(text, True)) else "" for text in limits],
        "tasks": nodes,
        "gang": ["1" if count > 1 else "" for count in nodes],
        **{name: [demand.get(name, "") for demand in demands] for name in ("cpu", "memory", "gpu")},
    }
    return found


def _seconds(text: str, limit: bool = False) -> float:
    """Read ``[days-][hours:]minutes:seconds``; a limit may be unlimited, which is 0."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        if limit or not text:
            return 0
        raise ValueError(f"Elapsed: write days-hours:minutes:seconds, not {shortened(repr(text))}")
    days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _demand(wanted: str, nodes: int) -> dict[str, str]:
    """Return what a node's task needs: its part of a job's resources such as ``cpu=8,gres/gpu=2,mem=64G``, rounded up."""
    found: dict[str, str] = {}
    for each in wanted.split(",") if wanted else ():
        name, _, text = each.partition("=")
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
        if name not in ("cpu", "mem", "gres/gpu"):
            continue
        if match is None:
            raise ValueError(f"ReqTRES: {shortened(repr(each))} is no amount")
        total = float(match[1]) * _SIZE[match[2]]
        if name == "mem":
            found["memory"] = str(-int(-total // nodes))
        else:
            found["cpu" if name == "cpu" else "gpu"] = f"{-int(-total * 1000 // nodes)}m"
    return found
