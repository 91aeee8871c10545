"""Time and memory of recovery from a journal of many finished tasks.

Measured from facts alone, the worst case, and with the snapshots of a live scheduler. For comparison, the time to read the
journal's rows is printed.
"""

import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fairlead.journal import Journal
from fairlead.journal.sql import SqlStore
from fairlead.model.specs import Job, Node, Queue, Settings, Work
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, Fact, JobSubmitted, NodeJoined, TasksFinished, TasksPlaced, TasksStarted
from fairlead.scheduler.state import State


def write_history(path: Path, tasks: int, snapshots: bool, jobs: int = 1000, batch: int = 200) -> State:
    """Write a journal of `tasks` tasks in `jobs` jobs; each commit has three facts about `batch` tasks."""
    journal, state = Journal(SqlStore(path)), new_state()

    def record(facts: list[Fact]) -> None:
        for fact in facts:
            apply(state, fact)
        journal.append(facts)
        if snapshots and journal.snapshot_due():
            journal.save(state)

    record([Configured(at=0, queues=[Queue("A")], settings=Settings(keep_jobs=1_000_000))])
    record([NodeJoined(at=0, node=Node("n", {"cpu": 1000 * batch}))])
    each = tasks // jobs
    ones, zeros = np.ones(batch, np.int64), np.zeros(batch, np.int64)
    work = Work(["python", "train.py"], "/home/ada", {"PATH": "/usr/bin:/bin", "HOME": "/home/ada"})
    for number in range(1, jobs + 1):
        record([JobSubmitted(at=number, id=number, job=Job("A", {"cpu": 1000}, each, work=work))])
        for first in range(0, each, batch):
            task = {"job": ones * number, "index": np.arange(first, first + batch), "attempt": ones}
            at = number + first / each
            record(
                [
                    TasksPlaced(at=at, **task, node=zeros),
                    TasksStarted(at=at, **task),
                    TasksFinished(at=at, **task, outcome=zeros, code=zeros),
                ]
            )
    journal.close()
    return state


def recover(path: Path) -> None:
    """Recover in this process; print seconds, number of tasks, and peak memory in MiB."""
    began = time.perf_counter()
    journal = Journal(SqlStore(path))
    state = journal.recover()
    seconds = time.perf_counter() - began
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(seconds, state.tasks.n, size)


def run(tasks: int = 1_000_000) -> None:
    """Print seconds and memory for both cases."""
    jobs = max(1, tasks // 1000)
    with tempfile.TemporaryDirectory() as folder:
        for snapshots in (False, True):
            path = Path(folder) / f"{snapshots}.db"
            write_history(path, tasks, snapshots, jobs)
            command = [sys.executable, "-c", f"from bench.recovery import *; recover(Path({str(path)!r}))"]
            root = str(Path(__file__).parent.parent)
            out = subprocess.check_output(command, text=True, env={**os.environ, "PYTHONPATH": root})
            seconds, found, size = map(float, out.split())
            began = time.perf_counter()
            with sqlite3.connect(path) as connection:
                rows = sum(1 for _ in connection.execute("select * from facts"))
            reading = time.perf_counter() - began
            how = "with its snapshots" if snapshots else "from its facts alone"
            print(
                f"recovery   {found:,.0f} tasks placed, started and finished, {how}: {seconds:.2f} s, {size:,.0f} MiB; "
                f"journal {path.stat().st_size / 2**20:.0f} MiB, {rows:,} facts (to read them: {reading:.2f} s)"
            )
