"""Facebook's Hadoop clusters, 2009 and 2010 (Chen et al., SWIM, MASCOTS 2011): jobs with bytes in, shuffled and out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairlead.simulate.traces.rows import Rows, delimited
from fairlead.simulate.traces.table import MOST_TASKS
from fairlead.simulate.workload import Jobs, Workload

GiB = 2**30


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
    kinds: Sequence[tuple[float, float, float]] = ((0.6, 1.0, 1.0), (0.25, 1.0, 4.0), (0.1, 2.0, 2.0), (0.05, 1.0, 8.0))
    seed: int = 0


def read_swim(path: Path, skip_bad: bool = False, how: Derivation | None = None) -> Workload:
    """Read one of Facebook's days, which names no machines; the rest comes from :class:`Derivation`."""
    how = how or Derivation()
    rng = np.random.default_rng([how.seed, 2])
    found, jobs = Rows(path, skip_bad), Jobs()
    ranks = np.cumsum(1 / np.arange(1, how.users + 1))
    chances = np.cumsum([chance for chance, _, _ in how.kinds])
    users = np.array([jobs.leaf(f"user{user:02}") for user in range(how.users)])
    demands = [{"cpu": round(cpu * 1000), "memory": round(memory * GiB)} for _, cpu, memory in how.kinds]
    kinds = np.array([jobs.shape(demand, {}) for demand in demands])
    columns = ("name", "submit", "gap", "input", "shuffle", "output")

    for chunk in delimited(path, "\t", columns):
        for row, last in enumerate(chunk.texts("output")):
            if last == "":
                here = sum(chunk.texts(name)[row] != "" for name in columns)
                chunk.refuse(row, f"{here} columns: needs 6, separated by tabs")
        submit = chunk.numbers("submit")
        read, shuffled, written = (chunk.numbers(name, 0, 1e18) for name in columns[3:])
        maps = np.maximum(1, np.ceil(read / how.split))
        tasks = maps + np.ceil(np.maximum(shuffled, written) / how.reduce_split)
        for row in np.flatnonzero(tasks > MOST_TASKS).tolist():
            chunk.refuse(row, f"{tasks[row]:,.0f} tasks: more than {MOST_TASKS:,}")
        seconds = np.ceil(how.start + (read + shuffled + written) / how.rate / tasks)

        rows = found.good(chunk)
        drawn = rng.random((len(rows), 2))
        leaf = users[np.searchsorted(ranks / ranks[-1], drawn[:, 0], side="right")]
        shape = kinds[np.searchsorted(chances / chances[-1], drawn[:, 1], side="right")]
        jobs.extend(submit[rows], leaf, shape, seconds[rows], tasks[rows])
    notes = [
        f"swim: tasks of {how.split >> 20} MiB in and {how.reduce_split >> 20} MiB shuffled or out, {how.start:g} s and "
        f"{how.rate / 1e6:g} MB/s each; {how.users} users; demands <CPUs, GiB> "
        + ", ".join(f"<{cpu:g}, {memory:g}> {part:.0%}" for part, cpu, memory in how.kinds)
    ]
    return jobs.workload(path.stem, [], [], found.skipped, notes)
