"""Predict when a job starts, as an 80% interval from dry runs of the scheduler.

Each run continues the current state with durations and arrivals drawn from past ones (:mod:`fairlead.simulate.dry_runs`),
until the job's next task starts, or all tasks of a gang. Frameworks get no offers in these runs; their tasks arrive as jobs do.
The answer is deterministic unless a time limit cuts runs short; fewer or shorter runs give a wider interval.
"""

import json
import time
from collections import deque
from collections.abc import Sequence
from math import exp, inf, log
from typing import NamedTuple

import numpy as np

from fairlead.engines.step import grace_of
from fairlead.plain_text import listed
from fairlead.scheduler.admission import job_row
from fairlead.scheduler.decide import run_cycle, settle_first
from fairlead.scheduler.effects import apply
from fairlead.scheduler.facts import JobReleased, JobsDue
from fairlead.scheduler.feasibility import why_never
from fairlead.scheduler.forecasts import are_known
from fairlead.scheduler.frameworks.requests import suppress_all
from fairlead.scheduler.job_caps import waits_for_cap
from fairlead.scheduler.snapshot import copy_of
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import RUNNING
from fairlead.scheduler.tables import F64, RESERVATION
from fairlead.simulate.dry_runs import DryRun, Run, dry_run_of

RUNS = 19
"""Runs of a prediction: between the second from either end lie 80% of them, and of future starts."""
TAIL = 0.1
"""Fraction of the runs below the interval, and above it."""
MIN_RANKED = 9
"""Runs from which order statistics can cover 80%."""
STUDENT_T = (1.0, 3.08, 1.89, 1.64, 1.53, 1.48, 1.44, 1.42)
"""By the number of runs from 1: 1.0, then the 90% quantiles of Student's t for 2, 3, ... runs."""
MAX_WORK = 100_000
"""Placements and arrivals after which a run stops; the job starts later than that."""
HORIZON = 60 * 86400.0
"""Seconds after which a run stops."""
IN_OFFERS = "at once, when frameworks answer their offers, or the offers end"
"""The room that the job needs is offered; when frameworks answer is unknown."""
WORK_PER_CHECK = 500
"""Placements and arrivals between two checks of whether the job has started, about."""
MAX_OPEN = 1000
"""Jobs with an open prediction; beyond, the oldest is forgotten."""
MAX_OUTCOMES = 200
"""Outcomes that calibrate; beyond, the oldest is forgotten."""
PRIOR = 2.0
"""How many outcomes the dry runs' own interval counts as."""


class Outlook(NamedTuple):
    """When a job is expected to start.

    job : its number.
    reason : ``expected``; ``never``, as configured now; ``unknown``; ``running`` or ``over``: nothing waits.
    text : the same as one line.
    earliest, latest : seconds, as in facts; None where unbounded.
    runs : dry runs behind it.
    held : jobs that somebody must release first.
    dry : the interval of waits that the dry runs found, in seconds; None if it is not to be calibrated.
    """

    job: int
    reason: str
    text: str
    earliest: float | None = None
    latest: float | None = None
    runs: int = 0
    held: tuple[int, ...] = ()
    dry: tuple[float, float] | None = None


def outlook(
    state: State, job: int, now: float, calibration: "Calibration | None" = None, seconds: float = inf, runs: int = RUNS
) -> Outlook:
    """Predict when the next task of a job starts; all tasks of a gang. The state is unchanged, except for its caches.

    `now` is in seconds, as in facts. `calibration` widens the interval. At most `runs` dry runs take about `seconds`
    at most. Raises Unknown for a job that is unknown or forgotten.
    """
    if (known_already := settled(state, job)) is not None:
        return known_already
    in_offers = bool(state.frameworks.members) and job_row(state, job) not in run_cycle(state).job
    state, held, behind = _released(state, job, now)
    if (known_already := settled(state, job)) is not None:  # a gang ends with its leader
        return known_already
    why = why_never(state, job)
    if why:
        return Outlook(job, "never", f"never{why}")
    if waits_for_cap(state, job):
        return Outlook(job, "unknown", "unknown: it waits for other jobs of its user to end", held=held)
    if (grace := _grace_of_victims(state, job)) is not None:
        text = f"within {span(grace, grace)}, when the tasks that are stopping for it have ended"
        return Outlook(job, "expected", text, now, now + grace, held=held)
    earliest = state.dependencies.begins.get(job, now) - now
    if earliest:
        state = copy_of(state)
        del state.dependencies.begins[job]
        apply(state, JobsDue(at=now, ids=[job]))
    dry_run = dry_run_of(state, job_row(state, job), now)
    begun, reached, known = runs_of(dry_run, [job, int(now * 1000)], seconds, runs)
    low, high = interval_of(begun - now, reached - now)
    of_held = dry_run.source[dry_run.held_jobs]
    limits = high > 0 and len(of_held) > 0 and not are_known(state, of_held, dry_run.ages).any()
    if low == inf or (high > 0 and not known) or (limits and not np.isfinite(state.jobs.time_limit[of_held]).any()):
        return Outlook(job, "unknown", "unknown: no duration of such tasks is known yet", runs=len(begun))
    low = 0.0 if limits else low  # a limit is only an upper bound
    dry = (low, high) if not earliest and not limits else None  # a given time teaches nothing
    if calibration is not None and not limits:
        low, high = calibration.widened(low, high, now)
    low, high = max(low, earliest), max(high, earliest)
    if high == 0 and in_offers and not held and not behind:
        return Outlook(job, "expected", IN_OFFERS, now, None, len(begun), held)
    names = ["it" if number == job else f"job {number}" for number in held]
    begin = f" from when {listed(names, len(names))} {_are(names)} released" if names else ""
    text = _describe(low, high, begin, behind, bool(begun.min() < inf))
    if earliest < high < inf:
        text += ", by the time limits of what runs" if limits else ", if tasks take as long as earlier ones did"
    return Outlook(job, "expected", text, now + low, now + high if high < inf else None, len(begun), held, dry)


def settled(state: State, job: int) -> Outlook | None:
    """Return the outlook of a job that has ended, has started or never will; None for others. Raises Unknown."""
    row = job_row(state, job)
    if not np.isnan(state.jobs.finished_at[row]):
        return Outlook(job, "over", "it has ended")
    if state.jobs.waiting[row] == 0:
        return Outlook(job, "running", "all its tasks have started")
    if job in state.dependencies.doomed:
        return Outlook(job, "never", "never: a job that it comes after did not end as required")
    return None


def _released(state: State, job: int, now: float) -> tuple[State, tuple[int, ...], list[int]]:
    """Release the held jobs that a job depends on; return the state, those jobs, and the job's direct dependencies."""
    held, to_see = [], [job]
    for number in to_see:  # grows while iterating
        if state.jobs.held[state.job_row(number)]:
            held.append(number)
        waits = state.dependencies
        others = waits.behind(number, state.index.specs[number]) + waits.paired_with(number)
        to_see += [other for other in others if other not in to_see]
    facts = settle_first(state, now)
    if held or facts or state.frameworks.members:
        state = copy_of(state)
        for fact in facts:
            apply(state, fact)
        for fact in [*suppress_all(state, now), *(JobReleased(at=now, id=number) for number in held)]:
            apply(state, fact)
    return state, tuple(held), state.dependencies.behind(job, state.index.specs[job])


def _grace_of_victims(state: State, job: int) -> float | None:
    """Return how long the tasks that are stopping for a claim of a job may take, seconds; None if there are none."""
    holds, tasks, held = state.holds, state.tasks, state.held_rows()
    claims = (holds.job[: holds.n] == job) & (holds.kind[: holds.n] != RESERVATION)
    stopping = held[(tasks.status[held] > RUNNING) & np.isin(tasks.node[held], holds.node[: holds.n][claims])]
    victims = np.unique(state.jobs.id[state.job_rows_of(stopping)]).tolist()
    return max((grace_of(state, victim) for victim in victims), default=None)


def runs_of(dry_run: DryRun, seed: list[int], seconds: float, runs: int) -> tuple[F64, F64, bool]:
    """Return the job's start in each run (inf: none), the end of each run, and True if any duration was known.

    A run that would exceed the time limit is not begun, or stops.
    """
    begin = time.perf_counter()
    begun, reached, known = [], [], False
    for k in range(runs):
        if k and (time.perf_counter() - begin) * (k + 1) / k > seconds:
            break
        run = Run(dry_run, np.random.default_rng([*seed, k]))
        known |= run.known
        until, step, goes_on = dry_run.now, 1.0, True
        while goes_on and np.isnan(run.begun) and run.work < MAX_WORK and until < dry_run.now + HORIZON:
            before = run.work
            goes_on = run.go_on(until)
            step = step * 2 if run.work - before < WORK_PER_CHECK else step / 2
            until = run.until + step
            if time.perf_counter() - begin > seconds:
                break
        started = not np.isnan(run.begun)
        begun.append(run.begun if started else inf)
        reached.append(run.until if goes_on or started else inf)
    return np.array(begun), np.array(reached), known


def interval_of(begun: F64, reached: F64) -> tuple[float, float]:
    """Return the 80% interval of waits; inf where the runs give no bound.

    From `MIN_RANKED` runs on it lies between order statistics. With fewer it is a prediction interval of Student's t over the
    logarithms, taken as normal. One run gives the order of magnitude.
    """
    count, first = len(begun), float(np.minimum(begun, reached).min())
    if count >= MIN_RANKED:
        outside = int(TAIL * (count + 1))
        return float(np.sort(np.minimum(begun, reached))[outside - 1]), float(np.sort(begun)[count - outside])
    if np.isinf(begun).any():
        return first, inf
    logs = np.log(begun + 1)
    spread = STUDENT_T[count - 1] * (logs.std(ddof=1) if count > 1 else 1.0) * np.sqrt(1 + 1 / count)
    low, high = np.exp([logs.mean() - spread, logs.mean() + spread]) - 1
    return max(0.0, min(first, float(low))), max(float(begun.max()), float(high))


def _describe(low: float, high: float, begin: str, behind: list[int], some: bool) -> str:
    """Write an interval as a line; its seconds count from `begin`, or from now where that is empty."""
    after = listed([f"job {number}" for number in behind], len(behind))
    begin = begin or (" from now" if after else "")
    if high == 0:
        return f"at once{begin}" if begin else "now: there is room, and it is its turn"
    comes = f": it comes after {after}" if after else ""
    if high == inf:
        if low < 1:
            return "unknown: the dry runs did not get far enough in their time limit"
        return f"in {span(low, low)} or later{begin}{comes}" if some else f"not within {span(low, low)}{begin}{comes}"
    text = f"within {span(high, high)}" if low < high / 20 else f"in {span(low, high)}"
    return f"{text}{begin}{f', when {after} {_are(behind)} over' if after else ''}"


def _are(some: Sequence[object]) -> str:
    return "is" if len(some) == 1 else "are"


def span(low: float, high: float) -> str:
    """Write two durations in seconds as a range: 4 to 11 min."""
    units = [(86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s")]

    def unit_of(seconds: float) -> tuple[float, str]:
        return next((unit for unit in units if seconds >= 1.5 * unit[0]), units[-1])

    (size, unit), (less, small) = unit_of(high), unit_of(low)
    if low < size and less < size:
        return f"{_number(low / less, np.floor)} {small} to {_number(high / size, np.ceil)} {unit}"
    first, last = _number(low / size, np.floor), _number(high / size, np.ceil)
    return f"{_number(high / size, np.rint)} {unit}" if low == high else f"{first} to {last} {unit}"


def _number(value: float, rounded: np.ufunc) -> str:
    digits = 1 if value < 10 else 0
    return f"{rounded(round(value * 10**digits, 6)) / 10**digits:.{digits}f}".removesuffix(".0")


class _Prediction(NamedTuple):
    """A prediction for a job that has not started: when it was made, its interval of waits, and that of the dry runs."""

    at: float
    first: float
    last: float
    low: float
    high: float

    def outcome(self, wait: float) -> tuple[float, float]:
        """Return the logarithms of the wait that the dry runs forecast, and of the factor by which a wait misses."""
        above = log((wait + 1) / (self.high + 1)) if self.high < inf else -inf
        return _middle(self.low, self.high), max(log((self.low + 1) / (wait + 1)), above)


class Calibration:
    """Widens intervals by the factor that 80% of earlier ones needed, mostly those with a similar forecast, or narrows them.

    That is localized conformal prediction (Guan, Biometrika 2023) with the scores of conformal quantile regression (Romano,
    Patterson and Candès, NeurIPS 2019). An outcome counts by exp(-d² / 2), where d is the difference of the logarithms of the
    waits that were forecast. The dry runs themselves count as `PRIOR` outcomes on the edge of their interval.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Prediction] = {}
        self._outcomes: deque[tuple[float, float]] = deque(maxlen=MAX_OUTCOMES)

    def as_text(self) -> str:
        """Return it as JSON, for :meth:`from_text`."""
        return json.dumps({"open": list(self._open.items()), "outcomes": list(self._outcomes)})

    @classmethod
    def from_text(cls, text: str) -> "Calibration":
        """Read what :meth:`as_text` wrote. Raises ValueError, TypeError or KeyError for anything else."""
        stored, found = json.loads(text), cls()
        found._open = {int(job): _Prediction(*map(float, each)) for job, each in stored["open"][-MAX_OPEN:]}
        found._outcomes.extend((float(middle), float(missed)) for middle, missed in stored["outcomes"])
        return found

    def open_jobs(self) -> list[int]:
        """Return the jobs with a prediction that have not started."""
        return list(self._open)

    def record(self, given: Outlook, now: float) -> None:
        """Remember a job's first outlook."""
        if given.earliest is None or given.dry is None or given.held or given.job in self._open:
            return
        if len(self._open) == MAX_OPEN:
            self.forget(next(iter(self._open)))
        last = inf if given.latest is None else given.latest - now
        self._open[given.job] = _Prediction(now, given.earliest - now, last, *given.dry)

    def __bool__(self) -> bool:
        return bool(self._open)

    def started(self, job: int, now: float) -> bool | None:
        """Note the start of a job's task; return True if within its prediction, to the second, None without one."""
        prediction = self._open.pop(job, None)
        if prediction is None:
            return None
        self._outcomes.append(prediction.outcome(now - prediction.at))
        return prediction.first - 1 <= now - prediction.at <= prediction.last + 1

    def forget(self, job: int) -> None:
        """Drop the prediction of a job that will not start, or was held."""
        self._open.pop(job, None)

    def widened(self, low: float, high: float, now: float) -> tuple[float, float]:
        """Widen or narrow an interval of waits of the dry runs. Jobs that are late already count as if they started now."""
        waiting, outcomes = list(self._open.values()), list(self._outcomes)  # copies: another thread may add to them
        outcomes += [p.outcome(now - p.at) for p in waiting if now - p.at > p.high]
        near, missed = np.array([(_middle(low, high), 0.0), *outcomes]).T
        weights = np.exp(-((near - near[0]) ** 2) / 2)
        weights[0] = PRIOR
        found = float(np.quantile(missed, 1 - 2 * TAIL, weights=weights, method="inverted_cdf"))
        by = exp(max(log(low + 1) - near[0], found))  # narrowed at most to its middle
        return max(0.0, (low + 1) / by - 1), (high + 1) * by - 1


def _middle(low: float, high: float) -> float:
    return (log(low + 1) + log(min(high, HORIZON) + 1)) / 2
