"""Accuracy of start-time predictions on real traces, each made at submission.

For an even sample of the jobs that do not start at once: the fractions that started within, before and after the interval, from
the dry runs alone and calibrated by recent misses; the median ratio of its end to its begin; and the fraction without an end.
"""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from bench.forecasts import traces
from fairlead.scheduler.facts import Fact, JobSubmitted, TasksStarted
from fairlead.scheduler.state import State
from fairlead.simulate.outlook import Calibration, outlook, widened
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Workload, cut, synthetic_nodes


@dataclass
class Outlooks:
    """Predictions of a simulation: for every `every`-th job that waits on submission, at most `most`."""

    every: int
    most: int
    calibration: Calibration = field(default_factory=Calibration)
    rows: list[tuple[int, float, float, float, float, float, float]] = field(default_factory=list)
    waited: int = 0

    def __call__(self, state: State, facts: list[Fact]) -> None:
        """Compare predictions with the starts of a moment, and predict for new jobs."""
        for fact in facts:
            if isinstance(fact, TasksStarted):
                for job in np.unique(fact.job).tolist():
                    self.calibration.started(job, fact.at)
        for fact in facts:
            if isinstance(fact, JobSubmitted):
                row = state.job_row(fact.id)
                if state.jobs.holding[row] == 0 and np.isnan(state.jobs.finished_at[row]):
                    self.waited += 1
                    if self.waited % self.every == 0 and len(self.rows) < self.most:
                        self._tell(state, fact)

    def _tell(self, state: State, fact: JobSubmitted) -> None:
        widen, begin = self.calibration.widen(fact.at), time.process_time()
        found = outlook(state, fact.id, fact.at, widen=widen)
        took = time.process_time() - begin
        self.calibration.record(found, fact.at, widen)
        if found.earliest is not None:
            low = found.earliest - fact.at
            high = np.inf if found.latest is None else found.latest - fact.at
            self.rows.append((fact.id, fact.at, low, high, widened(low, widen), widened(high, -widen), took))


def lines(name: str, rows: np.ndarray, begun: np.ndarray) -> list[str]:
    """Return a line for the dry runs alone, and one for the calibrated predictions."""
    found = []
    job, at = rows[:, 0].astype(np.int64), rows[:, 1]
    wait = begun[job - 1] - at
    for what, low, high in (
        (f"{name}, by the runs alone", rows[:, 4], rows[:, 5]),
        (f"{name}, as told", rows[:, 2], rows[:, 3]),
    ):
        inside = (low - 1 <= wait) & (wait <= high + 1)
        ends = np.isfinite(high)
        longer = np.median((high[ends] + 1) / (low[ends] + 1)) if ends.any() else np.inf
        found.append(
            f"{what:<34}{len(rows):>8,}{inside.mean():>10.0%}{(wait < low - 1).mean():>10.0%}{(wait > high + 1).mean():>10.0%}"
            f"{longer:>12.1f}{1 - ends.mean():>10.0%}{np.median(wait):>10.0f}{np.median(rows[:, 6]):>8.2f}"
        )
    return found


def busy(scale: float) -> list[tuple[str, Workload]]:
    """Return the available traces on few machines, or accelerated, so that jobs wait."""
    found = []
    for name, trace in traces(1.0):
        if name == "openb":
            workload = replace(cut(trace, speed=40.0), nodes=trace.nodes[::24])
        else:
            machines = {"FB-2009": 15, "FB-2010": 150}[name]
            workload = replace(trace, nodes=synthetic_nodes(machines, "cpu=12,memory=48GiB"))
        found.append((name, cut(workload, end=scale * float(workload.submit[-1]) + 1)))
    return found


def run(scale: float = 1.0, most: int = 200) -> None:
    """Print two lines for each trace."""
    heads = ("told", "started", "before", "after", "end by", "told no", "wait of", "CPU")
    more = ("", "within", "", "", "beginning", "end", "half, s", "s")
    widths = (8, 10, 10, 10, 12, 10, 10, 8)
    for head in (heads, more):
        print(f"{'':<34}" + "".join(f"{word:>{width}}" for word, width in zip(head, widths, strict=True)))
    for name, workload in busy(scale):
        count = Outlooks(1, 0)
        simulate(workload, "drf", watch=count)
        seen = Outlooks(max(1, count.waited // most), most)
        done = simulate(workload, "drf", watch=seen)
        told = lines(name, np.array(seen.rows), done.begun) if seen.rows else [f"{name}: nobody had to wait"]
        print(*told, sep="\n", flush=True)
