"""Accuracy of start-time predictions on real traces, each made at submission, over several seeds.

For an even sample of the jobs that do not start at once, in four ways: as it was before (29 dry runs in which tasks that run
do not count as durations, widened by one factor for all jobs), the dry runs alone, these widened by one factor, and calibrated
as the scheduler does it. Of each the fractions that started within, before and after the interval; the median ratio
of its end to its begin; and the mean interval score for 80% (Gneiting and Raftery, Journal of the American Statistical
Association 2007, equation 43) of waits in seconds and of their logarithms, where all have an end. Lower is better.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from math import ceil, exp, inf, log

import numpy as np

from bench.forecasts import data_folder, traces
from fairlead.scheduler.facts import Fact, JobSubmitted, TasksStarted
from fairlead.scheduler.state import State
from fairlead.simulate.dry_runs import dry_run_of
from fairlead.simulate.outlook import Calibration, interval_of, outlook, runs_of
from fairlead.simulate.run import simulate
from fairlead.simulate.traces.swim import Derivation, read_swim
from fairlead.simulate.workload import Workload, cut, synthetic_nodes

OUTSIDE = 0.2
"""Fraction of starts outside of their intervals."""


class OneFactor:
    """Widens all intervals by one factor, which 80% of the last 200 outcomes needed: what the scheduler did before."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[float, float, float]] = {}
        self._factors: deque[float] = deque(maxlen=200)

    def record(self, job: int, at: float, low: float, high: float) -> None:
        self._open[job] = at, low, high

    def started(self, job: int, now: float) -> None:
        if job in self._open:
            self._factors.append(self._missed(job, now))
            del self._open[job]

    def _missed(self, job: int, now: float) -> float:
        at, low, high = self._open[job]
        above = log((now - at + 1) / (high + 1)) if high < inf else -inf
        return max(log((low + 1) / (now - at + 1)), above)

    def told(self, now: float, low: float, high: float) -> tuple[float, float]:
        late = [self._missed(job, now) for job, (at, _, last) in self._open.items() if now - at > last]
        factors = sorted([*self._factors, *late])
        place = ceil((1 - OUTSIDE) * (len(factors) + 1)) - 1
        by = exp(max(0.0, factors[min(place, len(factors) - 1)])) if len(factors) >= 20 else 1.0
        return max(0.0, (low + 1) / by - 1), (high + 1) * by - 1


WAYS = ("before", "dry runs", "dry runs, one factor", "calibrated")
RUNS_BEFORE = 29


@dataclass
class Outlooks:
    """Predictions of a simulation: for every `every`-th job that waits on submission, at most `most`."""

    every: int
    most: int
    calibration: Calibration = field(default_factory=Calibration)
    before: OneFactor = field(default_factory=OneFactor)
    one_factor: OneFactor = field(default_factory=OneFactor)
    rows: list[tuple[int, float, tuple[tuple[float, float], ...]]] = field(default_factory=list)
    waited: int = 0
    unknown: int = 0

    def __call__(self, state: State, facts: list[Fact]) -> None:
        """Compare predictions with the starts of a moment, and predict for new jobs."""
        for fact in facts:
            if isinstance(fact, TasksStarted):
                for job in np.unique(fact.job).tolist():
                    self.calibration.started(job, fact.at)
                    self.one_factor.started(job, fact.at)
                    self.before.started(job, fact.at)
        for fact in facts:
            if isinstance(fact, JobSubmitted):
                row = state.job_row(fact.id)
                if state.jobs.holding[row] == 0 and np.isnan(state.jobs.finished_at[row]):
                    self.waited += 1
                    if self.waited % self.every == 0 and len(self.rows) < self.most:
                        self._predict(state, fact.id, fact.at)

    def _predict(self, state: State, job: int, now: float) -> None:
        found = outlook(state, job, now, self.calibration)
        if found.earliest is None or found.dry is None:
            self.unknown += 1
            return
        low, high = found.dry
        dry_run = dry_run_of(state, state.job_row(job), now)
        ended = replace(dry_run, running=np.zeros_like(dry_run.running))
        begun, reached, _ = runs_of(ended, [job, int(now * 1000)], inf, RUNS_BEFORE)
        before = interval_of(begun - now, reached - now)
        last = inf if found.latest is None else found.latest - now
        all_ways = (
            self.before.told(now, *before),
            (low, high),
            self.one_factor.told(now, low, high),
            (found.earliest - now, last),
        )
        self.rows.append((job, now, all_ways))
        self.calibration.record(found, now)
        self.one_factor.record(job, now, low, high)
        self.before.record(job, now, *before)


@dataclass
class Measure:
    """How one way of making intervals did; see the module."""

    count: int
    within: float
    before: float
    after: float
    longer: float
    endless: float
    seconds: float
    logs: float


def score(low: np.ndarray, high: np.ndarray, wait: np.ndarray) -> np.ndarray:
    """Return the interval scores."""
    return high - low + 2 / OUTSIDE * (np.maximum(0, low - wait) + np.maximum(0, wait - high))


def measured(seen: Outlooks, begun: np.ndarray) -> dict[str, Measure]:
    """Return how each way did."""
    wait = np.array([begun[job - 1] - at for job, at, _ in seen.rows])
    intervals = np.array([each for *_, each in seen.rows])
    ends, found = np.isfinite(intervals[:, :, 1]).all(axis=1), {}
    for k, way in enumerate(WAYS):
        low, high = intervals[:, k].T
        before, after = (wait < low - 1).mean(), (wait > high + 1).mean()
        first, last, waited = low[ends], high[ends], wait[ends]
        found[way] = Measure(
            len(wait), 1 - before - after, before, after, float(np.median((last + 1) / (first + 1))),
            1 - ends.mean(), score(first, last, waited).mean(), score(*np.log1p([first, last, waited])).mean(),
        )  # fmt: skip
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


def seeded(seed: int, scale: float) -> list[tuple[str, Workload]]:
    """Return the busy traces of a seed: another nine tenths of openb's pods, another derivation of Facebook's days."""
    found = []
    for name, workload in busy(scale):
        if seed and name == "openb":
            chosen = cut(workload, scale=0.9, seed=seed)
        elif seed:
            path = data_folder() / "facebook" / f"{name}_samples_24_times_1hr_0.tsv"
            day = read_swim(path, how=Derivation(seed=seed))
            chosen = replace(cut(day, end=float(workload.submit[-1]) + 1), nodes=workload.nodes)
        else:
            chosen = workload
        found.append((f"{name} {seed}", chosen))
    return found


def rows(name: str, workload: Workload, most: int) -> list[str]:
    """Return the table's rows for a trace, from at most `most` predictions."""
    seen = Outlooks(max(1, len(workload.submit) // (4 * most)), most)
    done = simulate(workload, "drf", watch=seen)
    if not seen.rows:
        return [f"{name}: nobody had to wait, or nothing was known"]
    return [
        f"| {name} | {way} | {m.count} | {m.within:.0%} | {m.before:.0%} | {m.after:.0%} | {m.longer:.1f} "
        f"| {m.endless:.0%} | {m.seconds:,.0f} | {m.logs:.2f} |"
        for way, m in measured(seen, done.begun).items()
    ]


def run(scale: float = 1.0, most: int = 200, seeds: int = 3) -> None:
    """Print four rows for each trace and seed."""
    print("| trace, seed | way | predicted | within | before | after | end by begin | no end | score, s | score, logs |")
    print("| --- " * 10 + "|")
    for seed in range(seeds):
        for name, workload in seeded(seed, scale):
            print(*rows(name, workload, most), sep="\n", flush=True)
