"""Predict when a job starts, as an 80% interval from dry runs of the scheduler.

Each run continues the current state with durations and arrivals drawn from past ones (:mod:`fairlead.simulate.dry_runs`),
until the job's next task starts, or all tasks of a gang. Frameworks get no offers in these runs; their tasks arrive as jobs do.
The answer is deterministic unless a time limit cuts runs short; fewer or shorter runs give a wider interval.
"""

import json
import time
from collections.abc import Sequence
from math import exp, frexp, inf, log
from typing import NamedTuple

import numpy as np

from fairlead.scheduler.admission import job_row
from fairlead.scheduler.decide import run_cycle, settle_first
from fairlead.scheduler.effects import apply
from fairlead.scheduler.facts import JobReleased
from fairlead.scheduler.feasibility import why_never
from fairlead.scheduler.frameworks.requests import suppress_all
from fairlead.scheduler.job_caps import waits_for_cap
from fairlead.scheduler.snapshot import copy_of
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import F64, OF_FAMILY, OF_JOB, OF_QUEUE
from fairlead.simulate.dry_runs import DryRun, Run, dry_run_of

RUNS = 29
"""Runs of a prediction: between the third from either end lie 80% of them, and of future starts."""
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
MAX_KINDS = 1000
"""Kinds of jobs with margins of their own; beyond, the one not updated for longest is forgotten."""
NO_MARGINS = (0.0, 0.0)
STEP, FIRST_STEP = 0.03, 0.3
"""How much an outcome moves a margin; that of all jobs by FIRST_STEP / sqrt(outcomes) while that is more."""
MOST_MARGIN = 4.0
"""Bound of a margin, either way: a factor of 55."""


class Outlook(NamedTuple):
    """When a job is expected to start.

    job : its number.
    reason : ``expected``; ``never``, as configured now; ``unknown``; ``running`` or ``over``: nothing waits.
    text : the same as one line.
    earliest, latest : seconds, as in facts; None where unbounded.
    runs : dry runs behind it.
    held : jobs that somebody must release first.
    kind : the kind of job that it is calibrated with.
    """

    job: int
    reason: str
    text: str
    earliest: float | None = None
    latest: float | None = None
    runs: int = 0
    held: tuple[int, ...] = ()
    kind: str = ""


def outlook(
    state: State, job: int, now: float, calibration: "Calibration | None" = None, seconds: float = inf, runs: int = RUNS
) -> Outlook:
    """Predict when the next task of a job starts; all tasks of a gang. The state is unchanged, except for its caches.

    `now` is in seconds, as in facts. `calibration` moves the ends of the interval. At most `runs` dry runs take about `seconds`
    at most. Raises Unknown for a job that is unknown or forgotten.
    """
    known_already = settled(state, job)
    if known_already is not None:
        return known_already
    in_offers = bool(state.frameworks.members) and job_row(state, job) not in run_cycle(state).job
    state, held, behind = _released(state, job, now)
    known_already = settled(state, job)  # a gang ends with its leader
    if known_already is not None:
        return known_already
    why = why_never(state, job)
    if why:
        return Outlook(job, "never", f"never{why}")
    if waits_for_cap(state, job):
        return Outlook(job, "unknown", "unknown: it waits for other jobs of its user to end", held=held)
    dry_run = dry_run_of(state, job_row(state, job), now)
    begun, reached, known = _runs(dry_run, [job, int(now * 1000)], seconds, runs)
    low, high = _interval(begun - now, reached - now)
    if low == inf or (high > 0 and not (known and _has_data(state))):
        return Outlook(job, "unknown", "unknown: no duration of such tasks is known yet", runs=len(begun))
    kind = _kind(state, job, low, high)
    if calibration is not None:
        low, high = with_margins(low, high, *calibration.margins(kind))
    if high == 0 and in_offers and not held and not behind:
        return Outlook(job, "expected", IN_OFFERS, now, None, len(begun), held)
    text = _describe(low, high, _since(job, held), behind, begun.min() < inf)
    if 0 < high < inf:
        text += ", if tasks take as long as earlier ones did"
    return Outlook(job, "expected", text, now + low, now + high if high < inf else None, len(begun), held, kind)


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
        others = state.dependencies.waits_for.get(number, [])
        to_see += [other for other in others if other not in to_see]
    facts = settle_first(state, now)
    if held or facts or state.frameworks.members:
        state = copy_of(state)
        for fact in facts:
            apply(state, fact)
        for fact in [*suppress_all(state, now), *(JobReleased(at=now, id=number) for number in held)]:
            apply(state, fact)
    return state, tuple(held), list(state.dependencies.waits_for.get(job, []))


def _has_data(state: State) -> bool:
    """Return True if a task that runs has a time limit, or one like it has ended; or if nothing runs."""
    histograms, jobs, rows = state.histograms, state.jobs, np.unique(state.job_rows_of(state.held_rows()))
    counted = histograms.total[: histograms.n] > 0
    about, key = histograms.about[: histograms.n][counted], histograms.key[: histograms.n][counted]
    columns = {OF_JOB: jobs.id, OF_FAMILY: jobs.family, OF_QUEUE: jobs.queue}
    like = (np.isin(column[rows], key[about == which]).any() for which, column in columns.items())
    return not len(rows) or bool(np.isfinite(jobs.time_limit[rows]).any()) or any(like)


def _and(words: Sequence[str]) -> str:
    return " and ".join(([", ".join(words[:-1])] if len(words) > 1 else []) + list(words[-1:]))


def _runs(dry_run: DryRun, seed: list[int], seconds: float, runs: int) -> tuple[F64, F64, bool]:
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


def _interval(begun: F64, reached: F64) -> tuple[float, float]:
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
    after = _and([f"job {number}" for number in behind])
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


def _since(job: int, held: tuple[int, ...]) -> str:
    """Name the releases that the interval counts from; empty for now."""
    names = ["it" if number == job else f"job {number}" for number in held]
    return f" from when {_and(names)} {_are(names)} released" if names else ""


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
    """A prediction for a job that has not started: when it was made, its bounds as waits, the job's kind, True if overdue."""

    at: float
    first: float
    last: float
    kind: str
    overdue: bool = False


class Calibration:
    """Moves the ends of predicted intervals so that one start in ten comes before them and one after, for each kind of job.

    A margin is the logarithm of a factor by which to begin earlier, or end later. After each outcome the margin of an end grows
    by a step times (missed - TAIL), for all jobs and for the job's kind; their sum applies. So of N outcomes of a kind, TAIL miss
    that end, up to a constant divided by N, whatever the errors of the dry runs: adaptive conformal inference (Gibbs and
    Candès, NeurIPS 2021).
    """

    def __init__(self) -> None:
        self._open: dict[int, _Prediction] = {}
        self._of_all, self._outcomes = NO_MARGINS, 0
        self._of_kinds: dict[str, tuple[float, float]] = {}

    def as_text(self) -> str:
        """Return it as JSON, for :meth:`from_text`."""
        return json.dumps(
            {"open": list(self._open.items()), "all": self._of_all, "outcomes": self._outcomes, "kinds": self._of_kinds}
        )

    @classmethod
    def from_text(cls, text: str) -> "Calibration":
        """Read what :meth:`as_text` wrote. Raises ValueError, TypeError, AttributeError or KeyError for anything else."""
        stored, found = json.loads(text), cls()
        found._open = {
            int(job): _Prediction(float(at), float(first), float(last), str(kind), bool(overdue))
            for job, (at, first, last, kind, overdue) in stored["open"][-MAX_OPEN:]
        }
        (early, late), kinds = stored["all"], list(stored["kinds"].items())[-MAX_KINDS:]
        found._of_all, found._outcomes = (float(early), float(late)), int(stored["outcomes"])
        found._of_kinds = {kind: (float(early), float(late)) for kind, (early, late) in kinds}
        return found

    def open_jobs(self) -> list[int]:
        """Return the jobs with a prediction that have not started."""
        return list(self._open)

    def record(self, given: Outlook, now: float) -> None:
        """Remember a job's first outlook."""
        if given.earliest is None or given.held or given.job in self._open:
            return
        if len(self._open) == MAX_OPEN:
            self.forget(next(iter(self._open)))
        last = inf if given.latest is None else given.latest - now
        self._open[given.job] = _Prediction(now, given.earliest - now, last, given.kind)

    def __bool__(self) -> bool:
        return bool(self._open)

    def started(self, job: int, now: float) -> bool | None:
        """Note the start of a job's task; return True if within its prediction, to the second, None without one."""
        prediction = self._open.pop(job, None)
        if prediction is None:
            return None
        wait = now - prediction.at
        early, late = wait < prediction.first - 1, wait > prediction.last + 1
        if not prediction.overdue:
            self._learn(prediction.kind, early, late)
        return not early and not late

    def note_overdue(self, now: float) -> None:
        """Count the jobs that should have started by now, but have not, as outcomes already."""
        for job, prediction in self._open.items():
            if not prediction.overdue and now - prediction.at > prediction.last + 1:
                self._open[job] = prediction._replace(overdue=True)
                self._learn(prediction.kind, False, True)

    def forget(self, job: int) -> None:
        """Drop the prediction of a job that will not start, or was held."""
        self._open.pop(job, None)

    def margins(self, kind: str) -> tuple[float, float]:
        """Return the margins of the begin and of the end for this kind of job."""
        return _sum(self._of_all, self._of_kinds.get(kind, NO_MARGINS))

    def _learn(self, kind: str, early: bool, late: bool) -> None:
        self._outcomes += 1
        step = max(STEP, FIRST_STEP / self._outcomes**0.5)
        self._of_all = _sum(self._of_all, (step * (early - TAIL), step * (late - TAIL)))
        moved = STEP * (early - TAIL), STEP * (late - TAIL)
        self._of_kinds[kind] = _sum(self._of_kinds.pop(kind, NO_MARGINS), moved)
        if len(self._of_kinds) > MAX_KINDS:
            del self._of_kinds[next(iter(self._of_kinds))]


def _sum(margins: tuple[float, float], others: tuple[float, float]) -> tuple[float, float]:
    early, late = (min(max(one + other, -MOST_MARGIN), MOST_MARGIN) for one, other in zip(margins, others, strict=True))
    return early, late


def _kind(state: State, job: int, low: float, high: float) -> str:
    """Return the kind of a job: powers of 2 of the dominant share of what starts together, and of 10 of the wait in s."""
    row = job_row(state, job)
    demand = state.shapes.demand[state.jobs.shape_row[row]] * (state.jobs.tasks[row] if state.jobs.gang[row] else 1)
    share = float((demand / np.maximum(1, state.cluster.total)).max())
    middle = (log(low + 1) + log(min(high, HORIZON) + 1)) / 2
    return f"{frexp(share)[1]} {int(middle / log(10))}"


def with_margins(low: float, high: float, early: float, late: float) -> tuple[float, float]:
    """Begin an interval of waits earlier and end it later, by factors' logarithms; 1 s is added first, so that 0 can move."""
    begin = max(0.0, (low + 1) * exp(-early) - 1)
    return begin, max(begin, (high + 1) * exp(late) - 1)
