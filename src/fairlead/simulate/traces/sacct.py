"""Slurm's accounting: the output of `sacct -P`, with the fields of `FIELDS` and any others.

A job is a gang of one task per node; its queue is its account and its user. Steps, and jobs that have not ended or never ran, are
left out.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from fairlead.model.faults import shortened
from fairlead.simulate.traces.rows import Chunk, delimited
from fairlead.simulate.traces.table import as_queue, moment
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
    texts = {name: chunk.texts(name) for name in FIELDS.split(",")}
    elapsed = chunk.each("Elapsed", _seconds)
    state = [(text.split() or [""])[0] for text in texts["State"]]
    found.left_out = elapsed == 0
    found.left_out[[*chunk.faults]] = False  # a wrong time is not 0
    found.left_out |= np.isin(state, ("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING"))
    found.left_out |= np.array(["." in number for number in texts["JobID"]], bool)
    nodes = chunk.numbers("NNodes", 1, 1e6, empty=1)
    submit = chunk.each("Submit", partial(moment, "Submit"))
    wanted = enumerate(zip(texts["ReqTRES"], nodes.tolist(), strict=True))
    demands = [chunk.attempt(row, _demand, text, int(count)) or {} for row, (text, count) in wanted]
    owners = zip(texts["Account"], texts["User"], strict=True)
    found.cells = {
        "submit": submit, "duration": elapsed, "user": texts["User"], "name": texts["JobName"],
        "queue": ["/".join(filter(None, map(as_queue, both))) for both in owners],
        "time_limit": [str(seconds) if (seconds := _seconds(text, True)) else "" for text in texts["Timelimit"]],
        "tasks": nodes, "gang": ["1" if count > 1 else "" for count in nodes],
        **{name: [demand.get(name, "") for demand in demands] for name in ("cpu", "memory", "gpu")},
    }  # fmt: skip
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
