"""Accuracy of duration forecasts on real traces.

Forecasts are made at each task's start, and at even intervals for the running tasks. Reported are:
- of the median forecast: its median error, as a factor;
- of the p90 forecast: the fraction of tasks that ended by then (goal: 90%), the median ratio to the true duration, and the
  fraction of tasks without one, because no duration was known.
"""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fairlead.scheduler.facts import Fact, TasksStarted
from fairlead.scheduler.forecasts import CAUTIOUS, EXPECTED, durations
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import RUNNING
from fairlead.simulate.run import simulate
from fairlead.simulate.traces import read_trace
from fairlead.simulate.workload import Workload, cut, synthetic_nodes

Columns = list[np.ndarray]


@dataclass
class Forecasts:
    """Forecasts of a simulation: arrays of ages, median and p90 forecasts, and true durations.

    every : float
        Seconds between forecasts for running tasks.
    """

    workload: Workload
    every: float
    young: Columns = field(default_factory=list)
    old: Columns = field(default_factory=list)
    _next: float = 0.0

    def __call__(self, state: State, facts: list[Fact]) -> None:
        """Forecast for the tasks that just started, and every `every` seconds for running ones."""
        for fact in facts:
            if isinstance(fact, TasksStarted):
                rows = state.job_rows(fact.job)
                self.young.append(self._look(state, rows, fact.index, np.zeros(len(rows))))
        now = facts[-1].at if facts else 0.0
        if now >= self._next:
            self._next = now + self.every
            tasks = np.flatnonzero(state.tasks.status[: state.tasks.n] == RUNNING)[::3]
            rows = state.job_rows_of(tasks)
            ages = now - state.tasks.started_at[tasks]
            rows, tasks, ages = rows[ages > 0], tasks[ages > 0], ages[ages > 0]
            self.old.append(self._look(state, rows, tasks - state.jobs.first[rows], ages))

    def _look(self, state: State, rows: np.ndarray, index: np.ndarray, ages: np.ndarray) -> np.ndarray:
        w, job = self.workload, state.jobs.id[rows] - 1
        truth = w.duration[w.first[job] + np.where(w.varied[job], index, 0)]
        return np.array([ages, durations(state, rows, ages, EXPECTED), durations(state, rows, ages, CAUTIOUS), truth])


def told(what: str, seen: Columns) -> str:
    """Return a line of the table."""
    age, median, cautious, truth = np.concatenate(seen, axis=1)
    wrong = np.exp(np.median(np.abs(np.log((median - age + 1) / (truth - age + 1)))))
    known = np.isfinite(cautious)
    by_then = (truth <= cautious)[known].mean()
    longer = np.median((cautious - age)[known] / np.maximum(1.0, (truth - age)[known]))
    return (
        f"{what:<34}{len(age):>11,}{(truth <= median).mean():>12.0%}{wrong:>12.2f}"
        f"{by_then:>15.0%}{longer:>10.2f}{1 - known.mean():>12.0%}"
    )


def data_folder() -> Path:
    """Return the folder of the published traces."""
    return Path(os.environ.get("FAIRLEAD_DATA", Path(__file__).parents[2] / "shared" / "data"))


def traces(scale: float) -> list[tuple[str, Workload]]:
    """Return the available traces with machines; of 2010 a part of the day."""
    data = data_folder()
    if not (data / "openb").is_dir():
        print(f"no traces in {data}: set FAIRLEAD_DATA to measure forecasts")
        return []
    found = [("openb", read_trace(data / "openb"))]
    for year, hours, nodes in ((2009, 24, 300), (2010, 4, 400)):
        trace = read_trace(data / "facebook" / f"FB-{year}_samples_24_times_1hr_0.tsv")
        day = cut(trace, end=3600 * hours * scale)
        found.append((f"FB-{year}", replace(day, nodes=synthetic_nodes(nodes, "cpu=12,memory=48GiB"))))
    return found


def run(scale: float = 1.0) -> None:
    """Print a line for each trace, for starting and for running tasks."""
    print(f"{'':<34}{'forecasts':>11}{'ended by':>12}{'times too':>12}{'ended by':>15}{'times as':>10}{'without a':>12}")
    print(f"{'':<34}{'':>11}{'the median':>12}{'long/short':>12}{'the cautious':>15}{'long':>10}{'cautious':>12}")
    for name, workload in traces(scale):
        seen = Forecasts(workload, every=float(np.ptp(workload.submit)) / 300)
        simulate(workload, "drf", watch=seen)
        print(told(f"{name}, as tasks start", seen.young))
        print(told(f"{name}, of tasks that run", seen.old))
