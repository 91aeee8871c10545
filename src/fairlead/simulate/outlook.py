"""When a job is expected to start: an interval, from runs of the scheduler on paper.

Each run goes on from the very state that is, with durations and arrivals drawn from those that were
(:mod:`fairlead.simulate.dry_runs`), until a task of the job starts, or all of them where it is a gang. What is told is
where eight in ten of the runs are. What frameworks would answer nobody knows: they are offered nothing in these runs, and their
tasks come as jobs do. The same state, moment and job give the same answer, but where a time is set in which it is to be found:
then there may be fewer runs, or shorter ones, and the interval is wider.
"""

import time
from collections.abc import Sequence
from math import exp, inf
from typing import NamedTuple

import numpy as np

from fairlead.scheduler.admission import job_row
from fairlead.scheduler.decide import run_cycle, settled_before
from fairlead.scheduler.effects import apply
from fairlead.scheduler.facts import JobReleased
from fairlead.scheduler.feasibility import why_never
from fairlead.scheduler.frameworks.requests import set_aside
from fairlead.scheduler.job_caps import waits_for_cap
from fairlead.scheduler.snapshot import copy_of
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import F64, OF_FAMILY, OF_JOB, OF_QUEUE
from fairlead.simulate.dry_runs import DryRun, Run, dry_run_of

RUNS = 29
"""Of so many, the third from either end leave eight in ten between them, and as much of what is to come."""
OUTSIDE = 0.1
"""The part of the runs before the interval, and after it."""
FEW = 9
"""With fewer runs not even all of them have eight in ten between them."""
TENTH = (1.0, 3.08, 1.89, 1.64, 1.53, 1.48, 1.44, 1.42)
"""What a tenth of Student's t is above, for two runs, three and so on."""
MOST_WORK = 100_000
"""Tasks that are placed in a run and jobs that come, at most; then it is given up: the job does not start before that."""
HORIZON = 60 * 86400.0
"""Seconds that are looked ahead, at most."""
IN_OFFERS = "at once, when frameworks answer what they are offered, or it is offered no longer"
"""Where there is room but for that; when they will nobody knows."""
PACE = 500
"""Of these, between two looks at whether the job has started, about."""


class Outlook(NamedTuple):
    """When a job is expected to start.

    job : its number.
    reason : ``expected``; ``never``, as things are; ``unknown``, for nothing says when; ``running`` or ``over``: nothing waits.
    text : all of it in a line, for people.
    earliest, latest : seconds as in the facts; None where nothing bounds it.
    runs : how many it was found from.
    held : the jobs that somebody has to release first.
    """

    job: int
    reason: str
    text: str
    earliest: float | None = None
    latest: float | None = None
    runs: int = 0
    held: tuple[int, ...] = ()


def outlook(state: State, job: int, now: float, widen: float = 0.0, seconds: float = inf, runs: int = RUNS) -> Outlook:
    """Say when the next task of a job is expected to start; of a gang, all of them.

    Parameters
    ----------
    state : State
        Not changed, but for its order.
    job : int
    now : float
        Seconds, as in the facts.
    widen : float
        By how much the interval is too narrow, as recent ones were: waits are divided and multiplied by its exponential.
    seconds : float
        That it may take, about.
    runs : int
        At most.

    Raises
    ------
    Unknown
        There is no such job (any more).
    """
    known_already = settled(state, job)
    if known_already is not None:
        return known_already
    in_offers = bool(state.frameworks.members) and job_row(state, job) not in run_cycle(state).job
    state, held, behind = _let_go(state, job, now)
    known_already = settled(state, job)  # a gang whose leader is over is over with that
    if known_already is not None:
        return known_already
    why = why_never(state, job)
    if why:
        return Outlook(job, "never", f"never{why}")
    if waits_for_cap(state, job):
        return Outlook(job, "unknown", "nobody can say: it waits for others of its person's jobs to end", held=held)
    paper = dry_run_of(state, job_row(state, job), now)
    begun, reached, known = _runs(paper, [job, int(now * 1000)], seconds, runs)
    low, high = _interval(begun - now, reached - now)
    if low == inf or (not known and high > 0):
        return Outlook(
            job, "unknown", "nobody can say: nothing is known yet of how long such tasks take", runs=len(begun)
        )
    low, high = widened(low, -widen), widened(high, widen)
    if high == 0 and in_offers and not held and not behind:
        return Outlook(job, "expected", IN_OFFERS, now, None, len(begun), held)
    text = _told(low, high, _from(job, held), behind, begun.min() < inf)
    if 0 < high < inf:
        text += f", if {_as_long_as(state)}"
    return Outlook(job, "expected", text, now + low, now + high if high < inf else None, len(begun), held)


def settled(state: State, job: int) -> Outlook | None:
    """What needs no forecast: of a job that has ended, has started, or never will. Raises Unknown."""
    row = job_row(state, job)
    if not np.isnan(state.jobs.finished_at[row]):
        return Outlook(job, "over", "it has ended")
    if state.jobs.waiting[row] == 0:
        return Outlook(job, "running", "all its tasks have started")
    if job in state.dependencies.doomed:
        return Outlook(job, "never", "never: what it comes after did not end as it was to")
    return None


def widened(wait: float, by: float) -> float:
    """A wait longer by a factor's logarithm, or shorter; a second and less counts as one."""
    return max(0.0, (wait + 1) * exp(by) - 1)


def _let_go(state: State, job: int, now: float) -> tuple[State, tuple[int, ...], list[int]]:
    """The state with what is held released, and what is settled done; which jobs were held, and which it comes after."""
    held, to_see = [], [job]
    for number in to_see:  # it grows
        if state.jobs.held[state.job_row(number)]:
            held.append(number)
        others = state.dependencies.waits_for.get(number, [])
        to_see += [other for other in others if other not in to_see]
    facts = settled_before(state, now)
    if held or facts or state.frameworks.members:
        state = copy_of(state)
        for fact in facts:
            apply(state, fact)
        for fact in [*set_aside(state, now), *(JobReleased(at=now, id=number) for number in held)]:
            apply(state, fact)
    return state, tuple(held), list(state.dependencies.waits_for.get(job, []))


def _as_long_as(state: State) -> str:
    """What durations are taken to be like: where nothing like what runs has ended, all that is known is how long it has run."""
    histograms, jobs, rows = state.histograms, state.jobs, np.unique(state.job_rows_of(state.held_rows()))
    counted = histograms.total[: histograms.n] > 0
    about, key = histograms.about[: histograms.n][counted], histograms.key[: histograms.n][counted]
    columns = {OF_JOB: jobs.id, OF_FAMILY: jobs.family, OF_QUEUE: jobs.queue}
    if len(rows) and not any(np.isin(column[rows], key[about == which]).any() for which, column in columns.items()):
        return "what runs takes about as long again as it has: nothing like it has ended yet"
    return "tasks take as long as those before them did"


def _and(words: Sequence[str]) -> str:
    return " and ".join(([", ".join(words[:-1])] if len(words) > 1 else []) + list(words[-1:]))


def _runs(paper: DryRun, seed: list[int], seconds: float, runs: int) -> tuple[F64, F64, bool]:
    """When the job starts in each run, infinite where it does not; until when each went; and whether anything was known.

    Where time is short no run is begun that would end too late; one that ends too late all the same is given up.
    """
    begin = time.perf_counter()
    begun, reached, known = [], [], False
    for k in range(runs):
        if k and (time.perf_counter() - begin) * (k + 1) / k > seconds:
            break
        run = Run(paper, np.random.default_rng([*seed, k]))
        known |= run.known
        until, step, goes_on = paper.now, 1.0, True
        while goes_on and np.isnan(run.begun) and run.work < MOST_WORK and until < paper.now + HORIZON:
            before = run.work
            goes_on = run.go_on(until)
            step = step * 2 if run.work - before < PACE else step / 2
            until = run.until + step
            if time.perf_counter() - begin > seconds:
                break
        started = not np.isnan(run.begun)
        begun.append(run.begun if started else inf)
        reached.append(run.until if goes_on or started else inf)
    return np.array(begun), np.array(reached), known


def _interval(begun: F64, reached: F64) -> tuple[float, float]:
    """The waits between which eight in ten are, by those of some runs; infinite where they do not say.

    By their order where there are enough of them. The logarithms of a few are taken to be normal, and the next one is between
    bounds of Student's t: a prediction interval. One run says as much as the order of magnitude.
    """
    count, first = len(begun), float(np.minimum(begun, reached).min())
    if count >= FEW:
        outside = int(OUTSIDE * (count + 1))
        return float(np.sort(np.minimum(begun, reached))[outside - 1]), float(np.sort(begun)[count - outside])
    if np.isinf(begun).any():
        return first, inf
    logs = np.log(begun + 1)
    spread = TENTH[count - 1] * (logs.std(ddof=1) if count > 1 else 1.0) * np.sqrt(1 + 1 / count)
    low, high = np.exp([logs.mean() - spread, logs.mean() + spread]) - 1
    return max(0.0, min(first, float(low))), max(float(begun.max()), float(high))


def _told(low: float, high: float, begin: str, behind: list[int], some: bool) -> str:
    """An expectation as people read it, in seconds from when it says that it is counted: now, where that is empty."""
    after = _and([f"job {number}" for number in behind])
    begin = begin or (" from now" if after else "")
    if high == 0:
        return f"at once{begin}" if begin else "now: there is room, and it is its turn"
    comes = f": it comes after {after}" if after else ""
    if high == inf:
        if low < 1:
            return "nobody can say in so short a time: too much is going on"
        return f"in {span(low, low)} or later{begin}{comes}" if some else f"not within {span(low, low)}{begin}{comes}"
    said = f"within {span(high, high)}" if low < high / 20 else f"in {span(low, high)}"
    return f"{said}{begin}{f', when {after} {_are(behind)} over' if after else ''}"


def _from(job: int, held: tuple[int, ...]) -> str:
    """From when it is counted: the release of what is held; now, where nothing is."""
    names = ["it" if number == job else f"job {number}" for number in held]
    return f" from when {_and(names)} {_are(names)} released" if names else ""


def _are(some: Sequence[object]) -> str:
    return "is" if len(some) == 1 else "are"


def span(low: float, high: float) -> str:
    """Two durations in seconds as people read them: 4 to 11 min."""
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
