"""Forecast when running tasks end; docs/forecasts.md explains the model.

Reads the state, never changes it. The kernel keeps the duration histograms and evaluates them (`kernel/durations.pxi`).
"""

import numpy as np

from fairlead.scheduler.kernel import constants, scheduling
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, REVOKING, RUNNING
from fairlead.scheduler.tables import F64, I64, Bools

EXPECTED, CAUTIOUS = 0.5, 0.9
"""Probabilities that a task has ended by its forecast."""


def durations(state: State, jobs: I64, ages: F64, chance: float = EXPECTED) -> F64:
    """Forecast the total durations of tasks that have run for `ages`.

    Returns seconds, at least `ages` and at most the time limits; inf if unknown.

    jobs : int64, shape (n,): rows of their jobs, tasks of one job adjacent
    ages : float64, shape (n,): seconds; 0 for a task that does not run yet
    chance : probability that it takes no longer, between 0 and 1
    """
    return scheduling.durations(state.view(), jobs, ages, np.full(len(jobs), 1 - chance), constants.MAX_EXTRAPOLATION)


def are_known(state: State, jobs: I64, ages: F64) -> Bools:
    """Return which tasks have run less than MAX_EXTRAPOLATION times as long as the longest like them that ended.

    jobs, ages : as in :func:`durations`
    """
    ages = ages / constants.MAX_EXTRAPOLATION
    all_longer = scheduling.durations(state.view(), jobs, ages, np.ones(len(jobs)), 0.0)  # beyond all: inf, or the time limit
    return np.asarray(all_longer <= ages)


def any_end_known(state: State, now: float) -> bool:
    """Return True if earlier tasks, or a time limit, tell when one that runs ends. Else nobody knows when others start."""
    held = state.held_rows()
    jobs, ages = state.job_rows_of(held), np.fmax(0.0, now - state.tasks.started_at[held])  # NaN: not started yet
    return bool((are_known(state, jobs, ages) | np.isfinite(state.jobs.time_limit[jobs])).any())


def ends(state: State, tasks: I64, now: float, chance: float = EXPECTED) -> F64:
    """Forecast when tasks end, in seconds as in the facts, never before now.

    A placed task is taken to start now, a stopping one to end now. inf if unknown, NaN for a task that holds nothing. Of a task
    that earlier ones say nothing of, only the cautious end is known: its time limit.

    tasks : int64, shape (n,): rows of tasks, in the order of the table: `state.held_rows()` or a part of them
    now : seconds, as in the facts
    chance : probability that it ends no later, between 0 and 1
    """
    status, started_at = state.tasks.status[tasks], state.tasks.started_at[tasks]
    runs = (status == PLACED) | (status == RUNNING)
    found = np.where((status > RUNNING) & (status <= REVOKING), now, np.nan)
    ages = np.fmax(0.0, now - started_at[runs])  # NaN if about to start
    jobs = state.job_rows_of(tasks[runs])
    left = durations(state, jobs, ages, chance) - ages
    found[runs] = now + np.where(are_known(state, jobs, ages) | (chance >= CAUTIOUS), left, np.inf)
    return found
